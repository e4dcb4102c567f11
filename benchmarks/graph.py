"""The graph by lines: rates, reads, opening, memory, a whole command, and what a neighbourhood costs. Beside MemNet 0.3.2.

The graph: N nodes of three fields, 2N different edges between nodes drawn at random (seed 7), documents of 1,000 lines.
MemNet runs in RAM through its own mutate gate, its limits raised; a turn here parses, decides, journals and applies.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import benchmarks.harness as harness
from benchmarks.budget import Text, budget, rows_in
from benchmarks.harness import Row, Side, WrongAnswer, must_hold
from benchmarks.silo import Bench, must_have_snapshot, read_again
from pinfold import Memory, Session
from pinfold.recall.tokens import o200k_counter

KINDS = {"TSK": ["goal", "status", "prio"]}
ANCHORS = 200


@functools.lru_cache(maxsize=4)
def documents(nodes: int) -> tuple[list[str], list[str]]:
    """Return documents that create the nodes and, when those are there, the edges."""
    rng = random.Random(7)
    lines = [f"+ TSK [NEW] ; goal=goal number {number} ; status=open ; prio={number % 7}" for number in range(nodes)]
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < 2 * nodes:
        pairs[rng.randrange(nodes) + 1, rng.randrange(nodes) + 1] = None
    edges = [f"+ [TSK{a}] --(links)--> [TSK{b}]" for a, b in pairs]
    return _parts(lines), _parts(edges)


def _parts(lines: list[str], size: int = 1_000) -> list[str]:
    return ["\n".join(lines[at : at + size]) for at in range(0, len(lines), size)]


def anchors(nodes: int, count: int = ANCHORS) -> list[str]:
    rng = random.Random(11)
    return [f"TSK{rng.randrange(nodes) + 1}" for _ in range(count)]


def write(session: Session, parts: list[str]) -> float:
    """Return the seconds that documents took."""
    began = harness.per_call_clock()
    for part in parts:
        session.mutate(part)
    return harness.per_call_clock() - began


def _is_full(counts: dict[str, Any], nodes: int) -> bool:
    return bool(counts["nodes"] == nodes and counts["edges"] == 2 * nodes)


def must_be_full(name: str, counts: dict[str, Any], nodes: int) -> None:
    """Raise WrongAnswer unless the whole graph is there."""
    if not _is_full(counts, nodes):
        raise WrongAnswer(f"{name} does not hold the {nodes:,} nodes and {2 * nodes:,} edges it was given: {counts}")


@contextmanager
def filled(url: str, nodes: int) -> Iterator[Session]:
    """Yield a session with the graph in it."""
    with Memory(url) as memory:
        session = memory.session("bench")
        for parts in documents(nodes):
            write(session, parts)
        must_be_full("pinfold", session.graph_counts(), nodes)
        yield session


# --- writing --------------------------------------------------------------------------------------------------------


def rates(bench: Bench) -> None:
    """Nodes and edges a second into an empty session, at 1,000, 10,000 and 100,000 nodes."""
    peer = bench.memnet()
    if peer is not None:
        peer_fill(bench, peer, bench.calls(100_000))  # first: what it frees later is not given back, and the graph would seem smaller
    medians: dict[tuple[str, str], list[float]] = {}
    for size in (1_000, 10_000, 100_000):
        nodes = bench.calls(size)
        parts = documents(nodes)
        repeats = 1 if bench.small else min(bench.table.repeats, 5 if size < 100_000 else 3)
        edge_rates: dict[str, list[float]] = {}
        seen: dict[str, bool] = {}

        def ours(name: str, make_url: Callable[[], str], nodes: int = nodes, parts: Any = parts, rates: Any = edge_rates, seen: Any = seen) -> Side:
            def run() -> float:
                url = make_url()
                with Memory(url) as memory:
                    session = memory.session("bench")
                    took_s, edges_s = write(session, parts[0]), write(session, parts[1])
                    seen[name] = _is_full(session.graph_counts(), nodes)
                    if url != "memory://":
                        with read_again(url) as again:
                            seen[name] &= _is_full(again.graph_counts(), nodes)
                rates.setdefault(name, []).append(2 * nodes / edges_s)
                return nodes / took_s

            return Side(name, run, lambda: seen[name])

        sides = [ours("pinfold sqlite", bench.url), ours("pinfold ram", lambda: "memory://")]
        if peer is not None and size < 100_000:

            def theirs(nodes: int = nodes, parts: Any = parts, rates: Any = edge_rates, seen: Any = seen) -> float:
                peer.ask("begin", name="rates", kinds=KINDS)
                took_s, edges_s = (peer.ask("mutate", name="rates", documents=part, mode="add") for part in parts)
                seen[peer.name] = _is_full(peer.ask("counts", name="rates"), nodes)
                peer.ask("forget", name="rates")
                rates.setdefault(peer.name, []).append(2 * nodes / edges_s)
                return float(nodes / took_s)

            sides.append(Side(peer.name, theirs, lambda seen=seen: seen[peer.name], "in RAM"))  # type: ignore[misc]
        found = bench.table.compare(f"nodes, {nodes:,}", "/s", sides, repeats=repeats)
        reference = edge_rates[sides[0].name][-repeats:]
        for place, side in enumerate(sides):
            runs = edge_rates[side.name][-repeats:]
            ratio = harness.paired_ratio(runs, reference) if place else None
            row = Row(f"edges, {2 * nodes:,}", side.name, "/s", runs, ratio, note=side.note)
            bench.table.rows.append(row)
            found.append(row)
        if peer is not None and size == 100_000:
            told = peer_fill(bench, peer, nodes)
            for row, what in ((found[0], "nodes"), (found[len(sides)], "edges")):
                mine = Row(row.bench, peer.name, "/s", [told[what]], told[what] / row.median, note="in RAM; once")
                bench.table.rows.append(mine)
                found.append(mine)
        for row in found:
            medians.setdefault((row.bench.split(",")[0], row.side), []).append(row.median)
    for (what, name), by_size in medians.items():
        bench.table.rows.append(Row(f"{what}: fall from 10,000 to 100,000", name, "x", [by_size[1] / by_size[2]]))


def update(bench: Bench) -> None:
    """A document of one patch, in a graph of 100,000 nodes."""
    nodes, calls = bench.calls(100_000), bench.calls(2_000)
    peer = bench.memnet()
    rng = random.Random(13)
    marks = iter(range(1 << 30))
    last: dict[str, str] = {}

    def lines(count: int) -> list[str]:
        mark = next(marks)
        return [f"~ [TSK{rng.randrange(nodes) + 1}] ; status=mark{mark}" for _ in range(count)]

    def side(name: str, session: Session) -> Side:
        def run() -> float:
            batch = lines(calls)
            last[name] = batch[-1]
            return harness.us_per_item(session.mutate, batch)

        def kept() -> bool:
            id, status = last[name][3:].split("] ; ")
            if session is sqlite:
                with read_again(url) as again:
                    return again.get(id).items[0].line.find(status) > 0
            return session.get(id).items[0].line.find(status) > 0

        return Side(name, run, kept)

    url = bench.url()
    with filled("memory://", nodes) as ram, filled(url, nodes) as sqlite:
        sides = [side("pinfold ram", ram), side("pinfold sqlite", sqlite)]
        if peer is not None:
            peer_fill(bench, peer, nodes)

            def theirs() -> float:
                batch = lines(max(10, calls // 100))
                last[peer.name] = batch[-1]
                return float(peer.ask("patch", name="graph", lines=batch))

            def there() -> bool:
                id, status = last[peer.name][3:].split("] ; ")
                return status in peer.ask("show", name="graph", anchor=id, depth=0, max_rows=5)

            sides.append(Side(peer.name, theirs, there, "in RAM"))
        bench.table.compare(f"one-line update, {nodes:,} nodes", "us", sides, repeats=min(bench.table.repeats, 5))


def peer_fill(bench: Bench, peer: Any, nodes: int) -> dict[str, float]:
    """Give the peer the same graph under the name `graph`, once: it takes a minute. Return nodes and edges a second, and bytes a row."""
    told: dict[str, float] | None = bench.shared.get("peer graph")
    if told is None:
        before_kib = peer.ask("rss_kib")
        peer.ask("begin", name="graph", kinds=KINDS)
        nodes_s, edges_s = (peer.ask("mutate", name="graph", documents=part, mode="add") for part in documents(nodes))
        must_be_full(peer.name, peer.ask("counts", name="graph"), nodes)
        grown_kib = peer.ask("rss_kib") - before_kib
        told = bench.shared["peer graph"] = {"nodes": nodes / nodes_s, "edges": 2 * nodes / edges_s, "bytes": grown_kib * 1024 / (3 * nodes)}
    return told


# --- reading ----------------------------------------------------------------------------------------------------------


def reads(bench: Bench) -> None:
    """Pin map and walk, median over 200 anchors, at 100,000 nodes."""
    _reads_at(bench, bench.calls(100_000), bench.memnet())


def reads_million(bench: Bench) -> None:
    """The same at 1,000,000 nodes, without a peer."""
    _reads_at(bench, bench.calls(1_000_000), None)


def _reads_at(bench: Bench, nodes: int, peer: Any) -> None:
    ids = anchors(nodes)
    repeats = min(bench.table.repeats, 5)
    with filled("memory://", nodes) as session:
        maps = [Side("pinfold", lambda: harness.median_ms(session.pin_map, ids), lambda: _is_map(session, ids))]
        walks = [Side("pinfold", lambda: harness.median_ms(session.walk, ids), lambda: len(session.walk(ids[0]).hops) > 0)]
        if peer is not None:
            peer_fill(bench, peer, nodes)
            ask = functools.partial(peer.ask, name="graph", depth=2, max_rows=50)
            maps.append(Side(peer.name, lambda: float(ask("pin_map", anchors=ids)), lambda: f"[{ids[0]}]" in ask("show", anchor=ids[0]), "50 rows"))
            walks.append(Side(peer.name, lambda: float(ask("walk", anchors=ids)), lambda: ask("hops", anchor=ids[0]) > 0, "50 rows"))
        bench.table.compare(f"pin map, depth 2, 800 tokens, {nodes:,} nodes", "ms", maps, repeats=repeats)
        bench.table.compare(f"walk, depth 2, 50 rows, {nodes:,} nodes", "ms", walks, repeats=repeats)


def _is_map(session: Session, ids: list[str]) -> bool:
    """A pin map holds its anchor and what the nearest edges lead to, within the budget."""
    for id in ids[:5]:
        found = session.pin_map(id)
        near = session.neighbors(id, depth=1).nodes
        if found.tokens > 800 or id not in found.ids or (near and near[0][1] not in found.ids):
            return False
    return True


def opening(bench: Bench) -> None:
    """A session of 100,000 nodes and 200,000 edges: opened from its store, saved and loaded as text."""
    nodes = bench.calls(100_000)
    urls = {"snapshot": bench.url(), "entries only": bench.url()}
    path = str(bench.folder / "saved.txt")
    for url in urls.values():
        with Memory(url, background=False) as memory:
            session = memory.session("bench")
            for parts in documents(nodes):
                write(session, parts)
            if url == urls["snapshot"]:
                memory.compact()
            else:
                session._replica._wrote = False  # as if it had not been closed
    must_have_snapshot("opening", urls["snapshot"])
    seen: dict[str, bool] = {}

    def opened(name: str, url: str) -> Side:
        def run() -> float:
            began = harness.per_call_clock()
            with Memory(url, background=False) as memory:
                session = memory.session("bench")
                took_s = harness.per_call_clock() - began
                seen[name] = _is_full(session.graph_counts(), nodes)
            return took_s

        return Side(f"pinfold, {name}", run, lambda: seen[name])

    repeats = min(bench.table.repeats, 5)
    bench.table.compare(f"opening {3 * nodes:,} rows", "s", [opened(*item) for item in urls.items()], repeats=repeats)

    def save() -> float:
        with Memory(urls["snapshot"], background=False) as memory:
            memory.session("bench")
            began = harness.per_call_clock()
            rows, _ = memory.save("bench", path)
            took_s = harness.per_call_clock() - began
            seen["save"] = rows == 3 * nodes
        return took_s

    def load() -> float:
        with Memory("memory://", background=False) as memory:
            began = harness.per_call_clock()
            session = memory.load(path, "again")
            took_s = harness.per_call_clock() - began
            seen["load"] = _is_full(session.graph_counts(), nodes)
        return took_s

    saves, loads = [Side("pinfold", save, lambda: seen["save"])], [Side("pinfold", load, lambda: seen["load"])]
    if (peer := bench.memnet()) is not None:
        peer_fill(bench, peer, nodes)
        theirs = str(bench.folder / "peer.txt")
        saves.append(
            Side(
                peer.name,
                lambda: float(peer.ask("save", name="graph", path=theirs)),
                lambda: os.path.exists(theirs) and os.path.getsize(theirs) > 0,
                "not atomic",
            )
        )
        loads.append(Side(peer.name, lambda: float(peer.ask("load", name="again", path=theirs)), lambda: _is_full(peer.ask("counts", name="again"), nodes)))
    bench.table.compare(f"text save, {3 * nodes:,} rows", "s", saves, repeats=min(repeats, 3))
    bench.table.compare(f"text load, {3 * nodes:,} rows", "s", loads, repeats=min(repeats, 3))


def _rss_of(nodes: int, pipe: Any) -> None:
    """A process of its own tells what the graph adds to its memory, in bytes a row."""
    parts = documents(nodes)
    with Memory("memory://", background=False) as memory:
        session = memory.session("bench")
        session._replica.journal.append = _keep_nothing  # a journal in RAM would be counted too
        before = harness.rss_kib()
        for part in parts:
            write(session, part)
        graph = session._replica.state.graph  # asking the session would look for the journal that is not kept
        is_full = (len(graph.nodes), len(graph.edges)) == (nodes, 2 * nodes)
        pipe.send((harness.rss_kib() - before) * 1024 / (3 * nodes) if is_full else -1.0)


def _keep_nothing(*arguments: object) -> None:
    return None


def size(bench: Bench) -> None:
    """Bytes of RAM a row: fields, indexes, provenance; the growth of a process that only builds the graph."""
    nodes = bench.calls(100_000)
    context = multiprocessing.get_context("spawn")
    told = [0.0]

    def run() -> float:
        mine, theirs = context.Pipe()
        process = context.Process(target=_rss_of, args=(nodes, theirs), daemon=True)
        process.start()
        told[0] = mine.recv()
        process.join(30)
        return told[0]

    sides = [Side("pinfold", run, lambda: told[0] > 0)]
    if (peer := bench.memnet()) is not None:
        told_of_peer = peer_fill(bench, peer, nodes)["bytes"]
        bench.table.rows.append(Row(f"RAM a row, {3 * nodes:,} rows", peer.name, "bytes", [told_of_peer], note="once"))
    bench.table.compare(f"RAM a row, {3 * nodes:,} rows", "bytes", sides, repeats=1 if bench.small else 2)


# --- a whole command, and the shape of an answer ------------------------------------------------------------------------


def pin_map_command(bench: Bench) -> None:
    """`pinfold query pin-map` from nothing to its exit, on a session of 10,000 nodes and 20,000 edges, without a server."""
    nodes = bench.calls(10_000)
    url = bench.url()
    with Memory(url, background=False) as memory:
        session = memory.session("bench")
        for parts in documents(nodes):
            write(session, parts)
    environment = {**os.environ, "PINFOLD_STORE": url, "PINFOLD_SESSION": "bench", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled: so is this one, in the bench's own folder
    environment["PYTHONPYCACHEPREFIX"] = str(bench.folder / "compiled")
    arguments = {
        "pinfold query pin-map": [sys.executable, "-m", "pinfold", "query", "pin-map", "--anchor", "TSK5"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    output: dict[str, str] = {}

    def side(name: str) -> Side:
        def run() -> float:
            began, cpu_began = time.perf_counter(), _children_s()
            result = subprocess.run(arguments[name], env=environment, capture_output=True, text=True, check=True)
            wall_s, cpu_s = time.perf_counter() - began, _children_s() - cpu_began
            output[name] = result.stdout
            return 1000 * (cpu_s if harness.per_call_clock is time.process_time else wall_s)

        return Side(name, run, lambda: "pinfold" not in name or "TSK [TSK5]" in output[name])

    bench.table.compare("query pin-map, whole process", "ms", [side(name) for name in arguments], repeats=1 if bench.small else max(bench.table.repeats, 9))


def _children_s() -> float:
    """Return the CPU seconds of processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def shape(bench: Bench) -> None:
    """The same 30 nodes and 44 edges shown by both: characters, and o200k tokens."""
    rng = random.Random(5)
    names = ("parser", "index", "door", "journal", "clock", "budget")
    nodes = [
        f"+ MOD [m{n}] ; path=src/{names[n % 6]}/part{n}.py ; goal=keeps the {names[(n + 1) % 6]} in step with the {names[n % 6]} ; status=open"
        for n in range(30)
    ]
    pairs = {(rng.randrange(max(1, n // 3)), n): None for n in range(1, 30)}
    while len(pairs) < 44:
        a, b = rng.sample(range(30), 2)
        pairs[a, b] = None
    text = Text("shape", ["\n".join(nodes), "\n".join(f"+ [m{a}] --(calls)--> [m{b}]" for a, b in pairs)])
    count = o200k_counter()
    shown: dict[str, str] = {}
    with Memory("memory://", background=False) as memory, must_hold("shape", "pinfold"):
        session = memory.session("shape")
        for document in text.documents:
            session.mutate(document)
        assert (session.graph_counts()["nodes"], session.graph_counts()["edges"]) == (30, 44)
        shown["pinfold"] = session.pin_map("m0", depth=9, budget_tokens=8_000).text
    if (peer := bench.memnet()) is not None:
        peer.ask("begin", name="shape", kinds={"MOD": ["path", "goal", "status"]})
        peer.ask("mutate", name="shape", documents=text.documents, mode="add")
        shown[peer.name] = peer.ask("show", name="shape", anchor="m0", depth=4, max_rows=500)
    everything = {*text.kinds, *text.edges}
    for unit, measure in (("characters", len), ("tokens o200k", lambda t: sum(map(count, t.split("\n"))))):
        first = float(measure(shown["pinfold"]))
        for name, answer in shown.items():
            if rows_in(text, answer) != everything:
                raise WrongAnswer(f"shape: {name} does not show the 30 nodes and 44 edges")
            figure = float(measure(answer))
            note = "with its footer" if name == "pinfold" else ""
            bench.table.rows.append(Row(f"30 nodes and 44 edges: {unit}", name, "", [figure], None if name == "pinfold" else figure / first, note=note))


BENCHES: dict[str, Callable[[Bench], None]] = {
    "rates": rates,
    "update": update,
    "reads": reads,
    "reads-million": reads_million,
    "opening": opening,
    "size": size,
    "pinmap": pin_map_command,
    "shape": shape,
    "budget": budget,
}
