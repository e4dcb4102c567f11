"""Silo and promises: one process, several processes, a whole command. Beside raw SQLite and PMLL 2.0.4 where they do the same."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.harness import Side, Table, WrongAnswer, us_per_call, us_per_item
from benchmarks.peers import Peer
from pinfold import Claimed, Hit, Memory, Miss, Session

VALUE = "v" * 64
CALLS = 20_000


@dataclass
class Bench:
    """What a bench may use: the table to report to, an empty folder of its own, the peers if they are wanted.

    memnet starts its peer when first called. shared: what benches of one run leave for the next. peers: whether others than
    these may be started. quick: the sizes of the quick report; small: a hundredth of the work, for tests.
    """

    table: Table
    folder: Path
    peer: Peer | None = None
    small: bool = False
    memnet: Callable[[], Peer | None] = lambda: None
    shared: dict[str, Any] = field(default_factory=dict)
    peers: bool = True
    quick: bool = False
    _stores: Iterator[int] = field(default_factory=count)

    def calls(self, wanted: int) -> int:
        return max(10, wanted // 100) if self.small else wanted

    def url(self, durability: str = "normal") -> str:
        return f"sqlite:///{self.folder}/{next(self._stores)}.db?durability={durability}"

    def peer_side(self, op: str, check: Callable[[dict[str, Any]], bool], *, note: str = "", **arguments: Any) -> list[Side]:
        """Return the peer's side of an operation, none where no peer is running."""
        peer = self.peer
        if peer is None:
            return []
        return [Side(peer.name, lambda: float(peer.ask(op, **arguments)), lambda: check(peer.ask("check")), note)]


def _is_hit(found: object, value: object = VALUE) -> bool:
    return isinstance(found, Hit) and found.value == value


@contextlib.contextmanager
def read_again(url: str) -> Iterator[Session]:
    """Yield the session as one who has only the store finds it: what a session says of itself may never have been written."""
    with Memory(url, background=False) as memory:
        yield memory.session("bench")


# --- one process --------------------------------------------------------------------------------------------------


def _write_beside(url: str, pipe: Any) -> None:
    """Another process that writes to the same session, a few hundred entries a second, until its pipe closes."""
    with Memory(url) as memory:
        session = memory.session("bench")
        written = 0
        pipe.send("ready")
        while not pipe.poll(0.003):
            session.set(f"beside:{written % 50}", VALUE)
            written += 1


@contextlib.contextmanager
def _writer_beside(url: str) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_write_beside, args=(url, theirs), daemon=True)
    process.start()
    try:
        mine.recv()
        yield
    finally:
        mine.send("stop")
        process.join(10)


def peek(bench: Bench) -> None:
    """A value that is there, and one that is not."""
    calls = bench.calls(CALLS)
    sqlite_url, shared_url = bench.url(), bench.url()
    with Memory("memory://") as memory_ram, Memory(sqlite_url) as memory_sqlite, Memory(shared_url) as memory_shared:
        ram, sqlite, shared = (m.session("bench") for m in (memory_ram, memory_sqlite, memory_shared))
        for session in (ram, sqlite, shared):
            session.set("hit", VALUE)

        def sides(key: str, check: Callable[[Session], bool]) -> list[Side]:
            def side(name: str, session: Session) -> Side:
                return Side(name, lambda: us_per_call(functools.partial(session.peek, key), calls), lambda: check(session))

            return [side("pinfold memory://", ram), side("pinfold sqlite", sqlite), side("pinfold sqlite, another process writing", shared)]

        known = {"hit": VALUE}
        plain = [Side("a dict", lambda: us_per_call(functools.partial(known.get, "hit"), calls), lambda: known.get("hit") == VALUE, "get, for scale")]
        raw = sqlite3.connect(sqlite_url.removeprefix("sqlite:///").partition("?")[0], isolation_level=None)

        def data_version() -> int:
            return int(raw.execute("PRAGMA data_version").fetchone()[0])

        plain += [Side("raw sqlite3", lambda: us_per_call(data_version, calls), lambda: data_version() > 0, "PRAGMA data_version: has anybody written?")]
        with _writer_beside(shared_url):
            hit = bench.peer_side("peek_hit", lambda seen: seen["hit"][:2] == [True, VALUE], calls=calls)
            context = bench.peer_side("peek_context_hit", lambda seen: seen["context"]["value"] == VALUE, calls=calls, note="peek_context: with its promises")
            bench.table.compare("peek hit", "us", sides("hit", lambda s: _is_hit(s.peek("hit"))) + plain + hit + context)
            miss = bench.peer_side("peek_miss", lambda seen: seen["miss"][0] is False, calls=calls)
            bench.table.compare("peek miss", "us", sides("miss", lambda s: isinstance(s.peek("miss"), Miss)) + miss)
        raw.close()


def store(bench: Bench) -> None:
    """`set` of a new key and of a known one."""
    calls = bench.calls(2_000)
    fresh = count()
    url = bench.url()
    with Memory("memory://") as memory_ram, Memory(url) as memory_sqlite:
        ram, sqlite = memory_ram.session("bench"), memory_sqlite.session("bench")

        def stored(key: str, value: str, session: Session) -> bool:
            if session is sqlite:
                with read_again(url) as again:
                    return _is_hit(again.peek(key), value)
            return _is_hit(session.peek(key), value)

        def new(name: str, session: Session, note: str = "") -> Side:
            last = [""]

            def run() -> float:
                keys = [f"new:{next(fresh)}" for _ in range(calls)]
                last[0] = keys[-1]
                return us_per_item(lambda key: session.set(key, VALUE), keys)

            return Side(name, run, lambda: session.status().short_term["slots"] >= calls and stored(last[0], VALUE, session), note)

        def update(name: str, session: Session, note: str = "") -> Side:
            versions = count()
            last = [""]

            def put() -> None:
                last[0] = f"{next(versions)}:{VALUE}"
                session.set("known", last[0])

            return Side(name, lambda: us_per_call(put, calls), lambda: stored("known", last[0], session), note)

        peer_new = bench.peer_side("set_new", lambda seen: seen["slots"] >= calls, calls=calls, note="kept in RAM only")
        peer_update = bench.peer_side("set_update", lambda seen: seen["hit"][1] == VALUE, calls=calls, note="kept in RAM only")
        bench.table.compare("set new", "us", [new("pinfold memory://", ram), new("pinfold sqlite", sqlite, "durable"), *peer_new])
        bench.table.compare("set update", "us", [update("pinfold memory://", ram), update("pinfold sqlite", sqlite, "durable"), *peer_update])


def full(bench: Bench) -> None:
    """`set` of a new key in a silo that is full: somebody must be evicted."""
    for size in (10_000, 100_000):
        size = bench.calls(size)
        calls, peer_calls = bench.calls(2_000), bench.calls(200 if size <= 10_000 else 20)
        fresh = count()
        with Memory("memory://") as memory:
            session = memory.session("bench", silo_size=size)
            for number in range(size):
                session.set(f"old:{number}", VALUE)
            evicted: list[int] = [0]

            def put(key: str, session: Session = session, evicted: list[int] = evicted) -> None:
                evicted[0] += len(session.set(key, VALUE).evicted)

            def run(put: Callable[[str], None] = put, fresh: Iterator[int] = fresh, calls: int = calls) -> float:
                return us_per_item(put, [f"new:{next(fresh)}" for _ in range(calls)])

            def check(session: Session = session, size: int = size, evicted: list[int] = evicted) -> bool:
                return session.status().short_term["slots"] == size and evicted[0] > 0

            sides = [Side("pinfold memory://", run, check)]
            sides += bench.peer_side(
                "set_full", lambda seen, size=size: seen["full"][str(size)] == size, size=size, calls=peer_calls, note=f"{peer_calls} calls a round"
            )
            bench.table.compare(f"set at capacity, {size:,} slots", "us", sides)


def claim(bench: Bench) -> None:
    """Own a piece of work and settle it: two turns, two entries."""
    calls = bench.calls(1_000)
    fresh = count()
    url = bench.url()
    with Memory("memory://") as memory_ram, Memory(url) as memory_sqlite:

        def side(name: str, session: Session, note: str = "") -> Side:
            def one(key: str) -> None:
                claimed = session.claim(key)
                assert isinstance(claimed, Claimed)
                session.fulfil(claimed, VALUE)

            def run() -> float:
                return us_per_item(one, [f"work:{next(fresh)}" for _ in range(calls)])

            def settled(session: Session) -> bool:
                status = session.status()
                return status.promises["pending"] == 0 and status.short_term["slots"] >= calls

            def check() -> bool:
                if not note:
                    return settled(session)
                with read_again(url) as again:
                    return settled(session) and settled(again)

            return Side(name, run, check, note)

        peer = bench.peer_side("promise", lambda seen: seen["promises"] >= calls, calls=calls, note="register, resolve, set: not atomic, RAM only")
        sides = [side("pinfold memory://", memory_ram.session("bench")), side("pinfold sqlite", memory_sqlite.session("bench"), "durable"), *peer]
        bench.table.compare("claim + fulfil", "us", sides)


def once(bench: Bench) -> None:
    """What a function's second caller pays."""
    calls = bench.calls(CALLS)
    url = bench.url()
    with Memory("memory://") as memory_ram, Memory(url) as memory_sqlite:
        executions: list[str] = []

        def work(name: str) -> str:
            executions.append(name)
            return VALUE

        def once_side(name: str, session: Session) -> Side:
            def check() -> bool:
                with read_again(url) as again:
                    kept = session is not sqlite or again.once("once", str) == VALUE
                return kept and executions.count(name) == 1 and session.once("once", str) == VALUE

            return Side(name, lambda: us_per_call(lambda: session.once("once", lambda: work(name)), calls), check)

        def cached_side(name: str, session: Session) -> Side:
            cached = session.cached()(lambda url, page: work(f"cached {name}"))
            return Side(
                name,
                lambda: us_per_call(lambda: cached("https://example.org", 7), calls),
                lambda: executions.count(f"cached {name}") == 1 and cached("https://example.org", 7) == VALUE,
            )

        ram, sqlite = memory_ram.session("bench"), memory_sqlite.session("bench")
        bench.table.compare("once hit", "us", [once_side("pinfold memory://", ram), once_side("pinfold sqlite", sqlite)])
        bench.table.compare("@cached hit", "us", [cached_side("pinfold memory://", ram), cached_side("pinfold sqlite", sqlite)])


# --- a file -------------------------------------------------------------------------------------------------------


class RawSqlite:
    """The same file without pinfold: one row of about the same size a transaction, WAL, the same synchronous setting."""

    def __init__(self, path: Path, durability: str) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {durability}")
        self.db.execute("CREATE TABLE entry (session INTEGER, seq INTEGER, hash BLOB, body BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID")
        self.seq = 0

    def put(self, key: str) -> None:
        self.seq += 1
        body = b'[1,%d,1750000000000,null,null,[{"f":"slot.put","k":"%s","i":%d,"v":"%s"}]]' % (self.seq, key.encode(), self.seq, VALUE.encode())
        self.db.execute("INSERT INTO entry VALUES (1, ?, ?, ?)", (self.seq, bytes(32), body))

    def rows(self) -> int:
        return int(self.db.execute("SELECT count(*) FROM entry").fetchone()[0])


def durable(bench: Bench) -> None:
    """Acknowledged writes a second, beside SQLite alone doing as many transactions of one row."""
    for durability, calls in (("NORMAL", bench.calls(2_000)), ("FULL", bench.calls(300))):
        raw = RawSqlite(bench.folder / f"raw-{durability}.db", durability)
        fresh = count()
        url = bench.url(durability.lower())
        with Memory(url) as memory:
            session = memory.session("bench")

            def per_second(put: Callable[[str], object], calls: int = calls, fresh: Iterator[int] = fresh) -> float:
                keys = [f"key:{next(fresh)}" for _ in range(calls)]
                began = time.perf_counter()
                for key in keys:
                    put(key)
                return calls / (time.perf_counter() - began)

            def kept(session: Session = session, url: str = url, calls: int = calls) -> bool:
                with read_again(url) as again:
                    return session.status().short_term["slots"] == again.status().short_term["slots"] >= calls

            sides = [
                Side("pinfold", lambda session=session, run=per_second: run(lambda key: session.set(key, VALUE)), kept),
                Side("raw sqlite3", lambda raw=raw, run=per_second: run(raw.put), lambda raw=raw, calls=calls: raw.rows() >= calls, "no state, no hash chain"),
            ]
            bench.table.compare(f"durable set, {durability}", "/s", sides)
        raw.db.close()


def reopen(bench: Bench) -> None:
    """A session of 10,000 slots, opened by a process that has just begun."""
    slots = bench.calls(10_000)
    raw = RawSqlite(bench.folder / "raw-reopen.db", "NORMAL")
    urls = {"all in the tail": bench.url(), "snapshot": bench.url()}
    for url in urls.values():
        with Memory(url, background=False) as memory:
            session = memory.session("bench")
            for number in range(slots):
                session.set(f"key:{number}", VALUE)
    with Memory(urls["snapshot"], background=False) as memory:
        memory.compact()
    must_have_snapshot("reopen", urls["snapshot"])
    for number in range(slots):
        raw.put(f"key:{number}")

    def side(name: str, url: str) -> Side:
        seen = [0]

        def run() -> float:
            began = time.perf_counter()
            with Memory(url, background=False) as memory:
                session = memory.session("bench")
                found = session.peek(f"key:{slots - 1}")
                took_s = time.perf_counter() - began
                seen[0] = session.status().short_term["slots"] if _is_hit(found) else -1
            return took_s * 1000

        return Side(f"pinfold, {name}", run, lambda: seen[0] == slots)

    def read_raw() -> float:
        began = time.perf_counter()
        db = sqlite3.connect(bench.folder / "raw-reopen.db")
        rows = db.execute("SELECT seq, hash, body FROM entry ORDER BY seq").fetchall()
        took_s = time.perf_counter() - began
        db.close()
        assert len(rows) == slots
        return took_s * 1000

    sides = [side(name, url) for name, url in urls.items()]
    sides.append(Side("raw sqlite3", read_raw, lambda: raw.rows() == slots, "reads the rows, builds nothing"))
    bench.table.compare(f"reopening {slots:,} slots", "ms", sides)
    raw.db.close()


def must_have_snapshot(bench: str, url: str) -> None:
    """Raise WrongAnswer unless the session of a store begins with a snapshot."""
    with Memory(url, background=False) as memory:
        info = memory._journal.info("bench")
    if info is None or not info.snapshot_bytes:
        raise WrongAnswer(f"{bench}: compacting left no snapshot")


# --- several processes --------------------------------------------------------------------------------------------


def _race(url: str, keys: int, log_path: str, pipe: Any) -> None:
    """Claim every key in the same order as everybody else; work on what was won. Tells counts and worst times."""
    worst_lock_s = worst_call_s = 0.0
    won = 0
    with Memory(url) as memory:
        session = memory.session("race")
        journal: Any = session._replica.journal
        lock = journal.write_lock

        class Timed:
            """The journal's write lock, and how long it took to get."""

            def __init__(self, inner: Any) -> None:
                self.inner = inner

            def __enter__(self) -> Any:
                nonlocal worst_lock_s
                began = time.perf_counter()
                entered = self.inner.__enter__()
                worst_lock_s = max(worst_lock_s, time.perf_counter() - began)
                return entered

            def __exit__(self, *error: Any) -> Any:
                return self.inner.__exit__(*error)

        journal.write_lock = lambda *arguments: Timed(lock(*arguments))
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        pipe.send("ready")
        pipe.recv()
        began, cpu_began_s = time.monotonic(), time.process_time()
        for number in range(keys):
            called = time.perf_counter()
            claimed = session.claim(f"key:{number}")
            worst_call_s = max(worst_call_s, time.perf_counter() - called)
            if isinstance(claimed, Claimed):
                won += 1
                os.write(log, b"%d\n" % number)  # the execution, counted without pinfold
                session.fulfil(claimed, number)
        ended, cpu_s = time.monotonic(), time.process_time() - cpu_began_s
        missing = sum(not _is_hit(session.peek(f"key:{number}", wait_s=10), number) for number in range(keys))
        os.close(log)
        pipe.send((won, missing, worst_lock_s, worst_call_s, began, ended, cpu_s))
        pipe.recv()


def race(bench: Bench) -> None:
    """Eight processes claim the same keys at the same time: one execution a key."""
    processes, keys = (2, 50) if bench.small else (8, 2_000)
    context = multiprocessing.get_context("spawn")
    figures: dict[str, list[float]] = {"worst lock wait": [], "worst claim": [], "CPU time a claim": []}
    executions: list[int] = []

    def run() -> float:
        url, log = bench.url(), bench.folder / f"race-{len(executions)}.log"
        team = []
        for _ in range(processes):
            mine, theirs = context.Pipe()
            process = context.Process(target=_race, args=(url, keys, str(log), theirs), daemon=True)
            process.start()
            team.append((process, mine))
        for _, pipe in team:
            pipe.recv()
        for _, pipe in team:
            pipe.send("go")
        told = [pipe.recv() for _, pipe in team]
        for process, pipe in team:
            pipe.send("end")
            process.join(30)
        lines = log.read_bytes().split() if log.exists() else []
        executions.append(len(lines) if len(set(lines)) == keys and sum(t[0] for t in told) == keys and not any(t[1] for t in told) else -1)
        took_s = max(t[5] for t in told) - min(t[4] for t in told)
        figures["worst lock wait"].append(max(t[2] for t in told) * 1000)
        figures["worst claim"].append(max(t[3] for t in told) * 1000)
        figures["CPU time a claim"].append(sum(t[6] for t in told) / (processes * keys) * 1e6)
        return processes * keys / took_s

    name = f"race, {processes} processes x {keys:,} keys"
    side = Side("pinfold sqlite", run, lambda: set(executions) == {keys}, f"{keys:,} executions each time, counted by a log")
    repeats = min(bench.table.repeats, 5)
    bench.table.compare(f"{name}: claims", "/s", [side], repeats=repeats)
    for figure, unit in (("worst lock wait", "ms"), ("worst claim", "ms"), ("CPU time a claim", "us")):
        runs = figures[figure][-repeats:]
        bench.table.compare(f"{name}: {figure}", unit, [Side("pinfold sqlite", iter([runs[0], *runs]).__next__, lambda: True)], repeats=repeats)


# --- a whole command ----------------------------------------------------------------------------------------------


def command(bench: Bench) -> None:
    """`pinfold peek` from nothing to its exit, beside a Python that does nothing."""
    url = bench.url()
    with Memory(url) as memory:
        memory.session("bench").set("hit", VALUE)
    environment = {**os.environ, "PINFOLD_STORE": url, "PINFOLD_SESSION": "bench", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled: so is this one, in the bench's own folder
    environment["PYTHONPYCACHEPREFIX"] = str(bench.folder / "compiled")
    arguments = {
        "python -m pinfold peek": [sys.executable, "-m", "pinfold", "peek", "hit"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import pinfold'": [sys.executable, "-c", "import pinfold"],
    }
    outputs: dict[str, str] = {}

    def side(name: str) -> Side:
        def run() -> float:
            began = time.perf_counter()
            result = subprocess.run(arguments[name], env=environment, capture_output=True, text=True, check=False)
            took_s = time.perf_counter() - began
            outputs[name] = result.stdout + result.stderr if result.returncode == 0 or "peek" not in name else f"exit {result.returncode}: {result.stderr}"
            return took_s * 1000

        return Side(name, run, lambda: VALUE in outputs[name] if "peek" in name else outputs[name] == "")

    names = ("python -c pass", "python -m pinfold peek", "python -c 'import pinfold'")
    bench.table.compare("pinfold peek, whole process", "ms", [side(name) for name in names])


BENCHES: dict[str, Callable[[Bench], None]] = {
    "peek": peek,
    "set": store,
    "full": full,
    "claim": claim,
    "once": once,
    "durable": durable,
    "reopen": reopen,
    "race": race,
    "command": command,
}
