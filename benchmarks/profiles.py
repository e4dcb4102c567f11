"""What limits a missed target: the same work under cProfile, as shares of its own time by function."""

from __future__ import annotations

import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.silo import VALUE
from pinfold import Memory

Work = Callable[[], object]


@contextmanager
def _session(url: str = "memory://", **rest: Any) -> Iterator[Any]:
    with Memory(url, background=False) as memory:
        yield memory.session("profile", **rest)


@contextmanager
def _peek(folder: str) -> Iterator[Work]:
    with _session() as session:
        session.set("hit", VALUE)
        yield lambda: [session.peek("hit") for _ in range(50_000)]


@contextmanager
def _peek_sqlite(folder: str) -> Iterator[Work]:
    with _session(f"sqlite:///{folder}/p.db") as session:
        session.set("hit", VALUE)
        yield lambda: [session.peek("hit") for _ in range(20_000)]


@contextmanager
def _once(folder: str) -> Iterator[Work]:
    with _session() as session:
        cached = session.cached()(lambda url, page: VALUE)
        yield lambda: [cached("https://example.org", 7) for _ in range(20_000)]


@contextmanager
def _set(folder: str) -> Iterator[Work]:
    with _session(f"sqlite:///{folder}/p.db") as session:
        yield lambda: [session.set(f"k{number}", VALUE) for number in range(3_000)]


@contextmanager
def _full(folder: str) -> Iterator[Work]:
    with _session(silo_size=100_000) as session:
        for number in range(100_000):
            session.set(f"old{number}", VALUE)
        yield lambda: [session.set(f"new{number}", VALUE) for number in range(3_000)]


@contextmanager
def _claim(folder: str) -> Iterator[Work]:
    with _session(f"sqlite:///{folder}/p.db") as session:
        yield lambda: [session.fulfil(session.claim(f"k{number}"), VALUE) for number in range(2_000)]


@contextmanager
def _reopen(folder: str) -> Iterator[Work]:
    url = f"sqlite:///{folder}/p.db"
    with Memory(url, background=False) as memory:
        session = memory.session("profile")
        for number in range(10_000):
            session.set(f"k{number}", VALUE)
        memory.compact()

    def run() -> None:
        with _session(url) as session:
            session.peek("k1")

    yield run


def _graph(session: Any, nodes: int) -> None:
    from benchmarks.graph import documents, write

    for parts in documents(nodes):
        write(session, parts)


@contextmanager
def _mutate(folder: str) -> Iterator[Work]:
    with _session(f"sqlite:///{folder}/p.db") as session:
        yield lambda: _graph(session, 10_000)


@contextmanager
def _patch(folder: str) -> Iterator[Work]:
    with _session(f"sqlite:///{folder}/p.db") as session:
        _graph(session, 10_000)
        yield lambda: [session.mutate(f"~ [TSK{number + 1}] ; status=s{number}") for number in range(2_000)]


@contextmanager
def _pin_map(folder: str) -> Iterator[Work]:
    with _session() as session:
        _graph(session, 20_000)
        yield lambda: [session.pin_map(f"TSK{number * 17 + 1}") for number in range(500)]


@contextmanager
def _opening(folder: str) -> Iterator[Work]:
    url = f"sqlite:///{folder}/p.db"
    with Memory(url, background=False) as memory:
        _graph(memory.session("profile"), 30_000)
        memory.compact()

    def run() -> None:
        with _session(url) as session:
            session.graph_counts()

    yield run


@contextmanager
def _load(folder: str) -> Iterator[Work]:
    path = f"{folder}/saved.txt"
    with Memory("memory://", background=False) as memory:
        _graph(memory.session("profile"), 20_000)
        memory.save("profile", path)
        yield lambda: memory.load(path, "again")


@contextmanager
def _index(folder: str) -> Iterator[Work]:
    from benchmarks.recall import texts

    told = list(texts(2_000))
    with _session(f"sqlite:///{folder}/p.db") as session:

        def run() -> None:
            for text in told:
                session.remember(text, by="Ann", group="talk")
            session.search("ready")

        yield run


@contextmanager
def _search(folder: str) -> Iterator[Work]:
    from benchmarks.recall import fill, queries

    with _session() as session:
        fill(session, 10_000)
        session.search("ready")
        asked = queries(100, 10_000)
        yield lambda: [session.search(query) for _, query in asked]


@contextmanager
def _first_search(folder: str) -> Iterator[Work]:
    from benchmarks.recall import fill

    url = f"sqlite:///{folder}/p.db"
    with Memory(url, background=False) as memory:
        session = memory.session("profile")
        fill(session, 5_000)
        session.search("ready")

    def run() -> None:
        with _session(url) as session:
            session.search("ready")

    yield run


@contextmanager
def _stale(folder: str) -> Iterator[Work]:
    with _session() as session:
        session.set("source", "0")
        for number in range(5_000):
            session.set(f"made{number}", VALUE, inputs=["slot:source"])
        session.set("source", "1")
        yield session.stale


WORKS: dict[str, Callable[[str], Any]] = {
    "peek": _peek, "peek_sqlite": _peek_sqlite, "once": _once, "set": _set, "full": _full, "claim": _claim, "reopen": _reopen, "mutate": _mutate,
    "patch": _patch, "pin_map": _pin_map, "opening": _opening, "load": _load, "index": _index, "search": _search, "first_search": _first_search,
    "stale": _stale,
}  # fmt: skip
COMMANDS = {"command": ["peek", "hit"], "pin_map_command": ["query", "pin-map", "--anchor", "TSK1"]}


def limits_of(name: str, most: int = 4) -> str:
    """Return what a work's time goes to: the functions with most time of their own, each with its share."""
    with tempfile.TemporaryDirectory(prefix="pinfold-profile-") as folder:
        if name in COMMANDS:
            return _imports(COMMANDS[name], folder, most)
        with WORKS[name](folder) as work:
            profile = cProfile.Profile()
            profile.enable()
            work()
            profile.disable()
    stats: Any = pstats.Stats(profile)
    total = max(stats.total_tt, 1e-9)
    ranked = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:most]
    return ", ".join(f"{_place(place)} {values[2] / total:.0%}" for place, values in ranked)


def _place(place: tuple[str, int, str]) -> str:
    file, _, function = place
    if file == "~":
        return f"`{function.removeprefix('<').removesuffix('>').replace('built-in method ', '').replace('method ', '')}`"
    return f"`{Path(file).stem}.{function}`"


def _imports(words: list[str], folder: str, most: int) -> str:
    """Return the milliseconds of a command's imports: the dearest modules with all that they import."""
    url = f"sqlite:///{folder}/p.db"
    with _session(url) as session:
        session.set("hit", VALUE)
        _graph(session, 1_000)
    environment = {**os.environ, "PINFOLD_STORE": url, "PINFOLD_SESSION": "profile", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    told = subprocess.run([sys.executable, "-X", "importtime", "-m", "pinfold", *words], env=environment, capture_output=True, text=True, check=False).stderr
    rows = [line.removeprefix("import time:").split("|") for line in told.splitlines() if line.startswith("import time:") and "cumulative" not in line]
    own = sorted(((int(row[0]) / 1000, row[2].strip()) for row in rows), reverse=True)
    total = sum(ms for ms, _ in own)
    return f"Python itself, then {total:.0f} ms of imports: " + ", ".join(f"`{name}` {ms:.0f} ms" for ms, name in own[:most])
