"""Single flight in a peer's environment: a hit, a stampede of tasks or threads on one key, a stampede of processes on many.

Executions are counted by an append-only log, without the library under test. Also run here with pinfold itself, so that all
sides share every line but those that call the library.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import us_per_call
from benchmarks.peers import serve

Get = Callable[[str], str]
Work = Callable[[str], str]
AsyncGet = Callable[[str], Awaitable[str]]


def value_of(key: str) -> str:
    return f"value of {key} " + "v" * 64


def logged(path: str, work_s: float) -> Work:
    """Return work that takes its time and leaves a line for each execution."""

    def work(key: str) -> str:
        with open(path, "ab", buffering=0) as log:
            log.write(key.encode() + b"\n")
        time.sleep(work_s)
        return value_of(key)

    return work


# --- the libraries ------------------------------------------------------------------------------------------------------


def pinfold_get(folder: str, work: Work) -> Get:
    from pinfold import Memory

    session = Memory(f"sqlite:///{folder}/pinfold.db").session("flight")
    return lambda key: session.once(key, lambda: work(key))


def diskcache_get(folder: str, work: Work) -> Get:
    """The library's Lock, and a second look once it is held: how its users get one execution."""
    import diskcache

    cache = diskcache.Cache(f"{folder}/diskcache")

    def get(key: str) -> str:
        found = cache.get(key)
        if found is None:
            with diskcache.Lock(cache, f"lock:{key}", expire=60):
                found = cache.get(key)
                if found is None:
                    found = work(key)
                    cache.set(key, found)
        return str(found)

    return get


def diskcache_stampede_get(folder: str, work: Work) -> Get:
    import diskcache

    cache = diskcache.Cache(f"{folder}/stampede")
    return diskcache.memoize_stampede(cache, expire=3600)(work)  # type: ignore[no-any-return]


def dogpile_get(folder: str, work: Work) -> Get:
    from dogpile.cache import make_region

    region = make_region().configure("dogpile.cache.dbm", expiration_time=3600, arguments={"filename": f"{folder}/dogpile.dbm"})
    return lambda key: str(region.get_or_create(key, lambda: work(key)))


def cashews_get(folder: str, work: Work) -> Get:
    runner = asyncio.Runner()
    get = cashews_async(f"disk://?directory={folder}/cashews", work)
    return lambda key: runner.run(get(key))  # type: ignore[arg-type]


def cashews_async(url: str, work: Work) -> AsyncGet:
    from cashews import Cache

    cache = Cache()
    cache.setup(url)

    @cache(ttl="1h", key="{key}", lock=True)
    async def get(key: str) -> str:
        return await asyncio.to_thread(work, key)

    return get  # type: ignore[no-any-return]


def async_lru_async(work: Work) -> AsyncGet:
    from async_lru import alru_cache

    @alru_cache(maxsize=None)
    async def get(key: str) -> str:
        return await asyncio.to_thread(work, key)

    return get


def pinfold_async(work: Work) -> AsyncGet:
    from pinfold import Memory

    session = Memory("memory://").async_session("flight")
    return lambda key: session.once(key, lambda: asyncio.to_thread(work, key))


def no_op_get(folder: str, work: Work) -> Get:
    """Does nothing: planted by the tests."""
    return lambda key: ""


def no_op_async(work: Work) -> AsyncGet:
    async def get(key: str) -> str:
        return ""

    return get


GETS: dict[str, Callable[[str, Work], Get]] = {
    "pinfold": pinfold_get,
    "diskcache": diskcache_get,
    "diskcache memoize_stampede": diskcache_stampede_get,
    "dogpile.cache": dogpile_get,
    "cashews": cashews_get,
    "no-op": no_op_get,
}
ASYNC_GETS: dict[str, Callable[[Work], AsyncGet]] = {
    "pinfold": pinfold_async,
    "cashews": lambda work: cashews_async("mem://", work),
    "async-lru": async_lru_async,
    "no-op": no_op_async,
}


# --- what is measured ---------------------------------------------------------------------------------------------------


def hit(library: str, folder: str, calls: int) -> dict[str, Any]:
    """Return microseconds a hit, on the store that processes share."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    log = f"{folder}/hit.log"
    get = GETS[library](folder, logged(log, 0))
    get("hit")
    took = us_per_call(lambda: get("hit"), calls)
    return {"us": took, "right": get("hit") == value_of("hit"), "executions": executions(log)}


def hit_async(library: str, folder: str, calls: int) -> dict[str, Any]:
    """Return microseconds a hit inside one event loop."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    log = f"{folder}/hit.log"

    async def run() -> dict[str, Any]:
        get = ASYNC_GETS[library](logged(log, 0))
        await get("hit")
        began = time.perf_counter()
        for _ in range(calls):
            await get("hit")
        took_s = time.perf_counter() - began
        return {"us": took_s / calls * 1e6, "right": await get("hit") == value_of("hit"), "executions": executions(log)}

    return asyncio.run(run())


def tasks(library: str, folder: str, count: int, work_s: float) -> dict[str, Any]:
    """Return what happened when many tasks of one loop wanted one key."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    log = f"{folder}/tasks.log"

    async def run() -> dict[str, Any]:
        get = ASYNC_GETS[library](logged(log, work_s))
        began = time.perf_counter()
        found = await asyncio.gather(*(get("one") for _ in range(count)))
        took_s = time.perf_counter() - began
        return {"s": took_s, "right": all(value == value_of("one") for value in found), "executions": executions(log)}

    return asyncio.run(run())


def threads(library: str, folder: str, count: int, work_s: float) -> dict[str, Any]:
    """Return what happened when many threads wanted one key."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    log = f"{folder}/threads.log"
    get = GETS[library](folder, logged(log, work_s))
    found: list[str] = []
    gate = threading.Barrier(count + 1)

    def one() -> None:
        gate.wait()
        found.append(get("one"))

    team = [threading.Thread(target=one) for _ in range(count)]
    for each in team:
        each.start()
    gate.wait()
    began = time.perf_counter()
    for each in team:
        each.join()
    return {"s": time.perf_counter() - began, "right": found == [value_of("one")] * count, "executions": executions(log)}


def _worker(library: str, folder: str, keys: int, work_s: float, pipe: Any) -> None:
    get = GETS[library](folder, logged(f"{folder}/processes.log", work_s))
    get("warm")
    pipe.send("ready")
    pipe.recv()
    pipe.send(all(get(f"key {number}") == value_of(f"key {number}") for number in range(keys)))


def processes(library: str, folder: str, count: int, keys: int, work_s: float) -> dict[str, Any]:
    """Return what happened when processes wanted the same keys in the same order at the same time."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    GETS[library](folder, logged(f"{folder}/processes.log", work_s))  # one makes the files: not every library's may be made by eight at once
    context = multiprocessing.get_context("spawn")
    team = []
    for _ in range(count):
        mine, theirs = context.Pipe()
        process = context.Process(target=_worker, args=(library, folder, keys, work_s, theirs), daemon=True)
        process.start()
        theirs.close()  # so that one who died is the end of its pipe
        team.append((process, mine))
    for _, pipe in team:
        pipe.recv()
    began = time.perf_counter()
    for _, pipe in team:
        pipe.send("go")
    right = [pipe.recv() for _, pipe in team]
    took_s = time.perf_counter() - began
    for process, _ in team:
        process.join(30)
    return {"s": took_s, "right": all(right), "executions": executions(f"{folder}/processes.log", "key ")}


def executions(log: str, prefix: str = "") -> int:
    """Return how many lines a log has, those with the prefix."""
    if not os.path.exists(log):
        return 0
    return sum(line.startswith(prefix) for line in Path(log).read_text("utf-8").splitlines())


OPERATIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (hit, hit_async, tasks, threads, processes)}

if __name__ == "__main__":
    serve(OPERATIONS)
