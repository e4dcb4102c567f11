"""Single flight beside the libraries that people use for it: what a hit costs, and how often the work is done in a stampede.

Every library runs the same script (`peer_flight.py`) in an environment of its own, pinfold here. A side whose callers do not
all get the right value is refused; executions are a figure, since some of these libraries promise less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

from benchmarks import peer_flight
from benchmarks.harness import Row, WrongAnswer, paired_ratio
from benchmarks.peers import ASYNC_LRU, CASHEWS, DISKCACHE, DOGPILE, Peer, PeerMissing
from benchmarks.silo import Bench

Ask = Callable[..., dict[str, Any]]
PEERS = {"diskcache": DISKCACHE, "diskcache memoize_stampede": DISKCACHE, "dogpile.cache": DOGPILE, "cashews": CASHEWS, "async-lru": ASYNC_LRU}
SHARED = ("pinfold", "diskcache", "diskcache memoize_stampede", "dogpile.cache", "cashews")
IN_LOOP = ("pinfold", "cashews", "async-lru")


def here(op: str, **arguments: Any) -> dict[str, Any]:
    """Run an operation in this process."""
    return dict(peer_flight.OPERATIONS[op](**arguments))


def compare(
    bench: Bench,
    name: str,
    unit: str,
    op: str,
    figure: str,
    sides: dict[str, tuple[str, Ask]],
    repeats: int,
    executions: Callable[[int], bool],
    **arguments: Any,
) -> None:
    """Add a row of figures and, where it is no hit, a row of executions for each side. Raises WrongAnswer.

    sides: by what is shown, the library and what runs it. executions: whether so many are plausible: none is what a no-op does.
    """
    bench.table.tell(f"{name}: {', '.join(sides)}")
    fresh = count()
    runs: dict[str, list[float]] = {side: [] for side in sides}
    counted: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(repeats + 1):
        order = list(sides) if number % 2 else list(reversed(sides))
        for side in order:
            library, ask = sides[side]
            try:
                told = ask(op, library=library, folder=str(bench.folder / f"{op}-{next(fresh)}"), **arguments)
            except PeerMissing as missing:
                bench.table.note(name, f"left out: {missing}")
                sides = {other: sides[other] for other in sides if other != side}
                continue
            if not told["right"] or not executions(told["executions"]):
                raise WrongAnswer(f"{name}: {side} does not do what it is timed for: {told}")
            if number:  # the first round warms up
                runs[side].append(float(told[figure]))
                counted[side].append(float(told["executions"]))
    first = next(iter(sides))
    for side in sides:
        bench.table.rows.append(Row(name, side, unit, runs[side], None if side == first else paired_ratio(runs[side], runs[first])))
    if op not in ("hit", "hit_async"):
        for side in sides:
            bench.table.rows.append(Row(f"{name}: executions", side, "executions", counted[side]))


def open_sides(bench: Bench, stack: ExitStack, libraries: Sequence[str], peers: dict[tuple[str, str], Peer]) -> dict[str, tuple[str, Ask]]:
    """Return the sides that can run here; a peer that cannot is noted."""
    sides: dict[str, tuple[str, Ask]] = {"pinfold": ("pinfold", here)}
    for library in libraries:
        if library == "pinfold" or not bench.peers:
            continue
        package = PEERS[library]
        try:
            if package not in peers:
                folder = bench.folder / package[0]
                folder.mkdir(exist_ok=True)
                peers[package] = stack.enter_context(Peer(package, "peer_flight.py", str(folder)))
            sides[library.replace(package[0], " ".join(package))] = (library, peers[package].ask)
        except PeerMissing as missing:
            bench.table.note("single flight", f"left out: {missing}")
    return sides


def flight(bench: Bench) -> None:
    """Single flight: a hit, 1,000 tasks, 64 threads and 8 processes on the same keys, executions counted. Beside four libraries."""
    repeats = 1 if bench.small else min(bench.table.repeats, 3 if bench.quick else 5)
    some = lambda n: n >= 1  # noqa: E731
    with ExitStack() as stack:
        peers: dict[tuple[str, str], Peer] = {}
        shared = open_sides(bench, stack, SHARED, peers)
        in_loop = open_sides(bench, stack, IN_LOOP, peers)
        calls = bench.calls(500 if bench.quick else 2_000)
        compare(bench, "shared hit", "us", "hit", "us", shared, repeats, some, calls=calls)
        compare(bench, "async hit", "us", "hit_async", "us", in_loop, repeats, some, calls=calls)
        tasks = bench.calls(1_000)
        compare(bench, f"stampede, {tasks:,} tasks on one key", "s", "tasks", "s", in_loop, repeats, some, count=tasks, work_s=0.05)
        threads = 8 if bench.small else 64
        threaded = {side: way for side, way in shared.items() if way[0] != "cashews"}  # it lives in one event loop
        compare(bench, f"stampede, {threads} threads on one key", "s", "threads", "s", threaded, repeats, some, count=threads, work_s=0.05)
        processes, keys = (2, 5) if bench.small else (8, 40)
        enough = lambda n: n >= keys  # noqa: E731
        name = f"stampede, {processes} processes on {keys} keys of 20 ms"
        compare(bench, name, "s", "processes", "s", shared, 1 if bench.quick else min(repeats, 3), enough, count=processes, keys=keys, work_s=0.02)


BENCHES: dict[str, Callable[[Bench], None]] = {"flight": flight}
