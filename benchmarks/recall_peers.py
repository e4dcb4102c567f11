"""Recall side by side: the same files, the same queries, the same run. Shares of the relevant documents found, and ms a query.

Every side is asked in turn, corpus by corpus and a third of the queries at a time, so that a machine that slows down slows
all. A side is right before it is measured: it must find a planted document by a word that only this one holds. Slow peers
are given at most 100 queries and 20 s a set; where that ends it the cell says `> 20 s`, and how many queries were answered.
Texts are what pinfold indexes (name or speaker and date, then the text), the same for every side.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from benchmarks.harness import Row, must_hold
from benchmarks.mcp import Peer as McpPeer
from benchmarks.peers import BM25S, MEMORY_SERVER, MINILM, PMLL, PMLL_2_0_2, Peer, PeerMissing, install_npm
from benchmarks.recall_sets import Corpus, Query, corpora, files, mixed, sample, with_typos
from benchmarks.silo import Bench
from pinfold.recall.bench import documents_of
from pinfold.recall.document import indexed_text
from pinfold.recall.embed import open_embedder
from pinfold.recall.index import RecallIndex, open_index

K = 10
SLOW_QUERIES, CELL_S = 100, 20.0
SAMPLED = 40
"""Queries a corpus with typos and in the mixed store: what is shown there is a difference, and whole sets take minutes more."""
FIGURES = (("recall_10", "recall@10"), ("recall_5", "recall@5"), ("any_5", "any@5"))
LEVEL_1, LEVEL_2 = "pinfold level 1", "pinfold level 2"
PLANTED = [
    ("a", "the lighthouse keeper mends a zeppelin"), ("b", "an orchard of quinces behind the mill"), ("c", "tickets for the harbour ferry")
]  # fmt: skip
ASKED = ("quinces", "b")

Found = tuple[list[str], float]
"""Ids, best first, and the seconds it took."""


class Asked(Protocol):
    """A way to search. slow: it gets fewer queries and a bounded time."""

    name: str
    slow: bool

    def fill(self, store: str, rows: list[dict[str, Any]], within_s: float) -> bool:
        """Take the documents of a store; return whether all of them."""

    def search(self, store: str, queries: list[str], within_s: float) -> list[Found]:
        """Return the first ten of each query that was answered in time."""


def texts_of(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (id, indexed text) of documents."""
    return [(document.id, indexed_text(document)) for document in documents_of(rows)]


class Pinfold:
    slow = False

    def __init__(self, name: str, embedder: str) -> None:
        self.name = name
        self._embedder = open_embedder(embedder)
        self._stores: dict[str, RecallIndex] = {}

    def fill(self, store: str, rows: list[dict[str, Any]], within_s: float) -> bool:
        index = self._stores[store] = open_index(documents_of(rows), self._embedder)
        index.embed_pending()
        index.search("ready?")
        return True

    def search(self, store: str, queries: list[str], within_s: float) -> list[Found]:
        # Duplicates are not collapsed: the sets count every turn.
        return [timed(lambda: [hit.id for hit in self._stores[store].search(query, K, collapse=False).hits]) for query in queries]


class Fts5:
    """SQLite's full-text search with bm25() and its Porter stemmer: any of the query's words."""

    slow = False
    name = f"SQLite {sqlite3.sqlite_version} FTS5"

    def __init__(self) -> None:
        self._stores: dict[str, sqlite3.Connection] = {}

    def fill(self, store: str, rows: list[dict[str, Any]], within_s: float) -> bool:
        db = self._stores[store] = sqlite3.connect(":memory:")
        db.execute("CREATE VIRTUAL TABLE memory USING fts5(id UNINDEXED, body, tokenize = 'porter unicode61')")
        db.executemany("INSERT INTO memory VALUES (?, ?)", texts_of(rows))
        return True

    def search(self, store: str, queries: list[str], within_s: float) -> list[Found]:
        db = self._stores[store]

        def ask(query: str) -> list[str]:
            words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query)))
            found = db.execute(f"SELECT id FROM memory WHERE memory MATCH ? ORDER BY bm25(memory) LIMIT {K}", (words,)) if words else ()
            return [id for (id,) in found]

        return [timed(lambda: ask(query)) for query in queries]


class InPeer:
    """A peer's script in its own environment. It times each query itself."""

    def __init__(self, package: tuple[str, str], script: str, folder: Path, slow: bool) -> None:
        self.name, self.slow = " ".join(package), slow
        folder.mkdir(exist_ok=True)
        self.peer = Peer(package, script, str(folder))

    def fill(self, store: str, rows: list[dict[str, Any]], within_s: float) -> bool:
        return bool(self.peer.ask("fill", store=store, documents=texts_of(rows), within_s=within_s) == len(rows))

    def search(self, store: str, queries: list[str], within_s: float) -> list[Found]:
        return [(ids, took_s) for ids, took_s in self.peer.ask("search", store=store, queries=queries, k=K, within_s=within_s)]

    def close(self) -> None:
        self.peer.__exit__(None, None, None)


class InMiniLm:
    """One of the two ways of searching over MiniLM's vectors; the first one asked fills for both."""

    slow = False

    def __init__(self, name: str, op: str, peer: Peer, filled: set[str]) -> None:
        self.name, self._op, self._peer, self._filled = name, op, peer, filled

    def fill(self, store: str, rows: list[dict[str, Any]], within_s: float) -> bool:
        if store not in self._filled:
            self._peer.ask("fill", store=store, rows=rows)
            self._filled.add(store)
        return True

    def search(self, store: str, queries: list[str], within_s: float) -> list[Found]:
        return [(ids, took_s) for ids, took_s in self._peer.ask(self._op, store=store, queries=queries, k=K)]


class MemoryServer:
    """The official MCP memory server over stdio: an entity a document, `search_nodes` with the whole query (it looks for substrings)."""

    slow = True

    def __init__(self, folder: Path) -> None:
        self.name = " ".join(MEMORY_SERVER)
        self._command = install_npm(*MEMORY_SERVER)
        self._folder = folder
        self._servers: dict[str, McpPeer] = {}

    def fill(self, store: str, rows: list[dict[str, Any]], within_s: float) -> bool:
        self.close()  # one process at a time: each store is asked right after it is filled
        path = self._folder / f"memory {store.replace('/', ' ')}.jsonl"
        server = self._servers[store] = McpPeer(self._command, env={**os.environ, "MEMORY_FILE_PATH": str(path)})
        server.begin()
        documents, until_s = texts_of(rows), time.monotonic() + within_s
        for at in range(0, len(documents), 500):
            entities = [{"name": id, "entityType": "note", "observations": [text]} for id, text in documents[at : at + 500]]
            server.call("create_entities", {"entities": entities})
            if time.monotonic() > until_s:
                return False
        return True

    def search(self, store: str, queries: list[str], within_s: float) -> list[Found]:
        server, until_s, out = self._servers[store], time.monotonic() + within_s, []
        for query in queries:
            out.append(timed(lambda: self._ask(server, query)))
            if time.monotonic() > until_s:
                break
        return out

    def _ask(self, server: McpPeer, query: str) -> list[str]:
        answer = server.ask("tools/call", {"name": "search_nodes", "arguments": {"query": query}})
        return [entity["name"] for entity in json.loads(answer["content"][0]["text"])["entities"][:K]]

    def close(self) -> None:
        for server in self._servers.values():
            server.end()
        self._servers.clear()


def timed(ask: Callable[[], list[str]]) -> Found:
    began = time.perf_counter()
    return ask(), time.perf_counter() - began


def check(side: Asked) -> None:
    """Raise WrongAnswer unless the side finds a planted document by the word that only this one holds."""
    with must_hold("recall", side.name):
        side.fill("planted", [{"id": id, "text": text} for id, text in PLANTED], CELL_S)
        found = side.search("planted", [ASKED[0]], CELL_S)
        assert found and found[0][0][:1] == [ASKED[1]], "a document is not found by its only word"


@dataclass
class Cell:
    """What one side did on one set."""

    recall_5: list[float] = field(default_factory=list)
    recall_10: list[float] = field(default_factory=list)
    any_5: list[float] = field(default_factory=list)
    ms: list[list[float]] = field(default_factory=lambda: [[], [], []])
    spent_s: float = 0.0
    over: bool = False

    def take(self, query: Query, found: list[str], took_s: float, part: int) -> None:
        hits = [len(query.relevant.intersection(found[:k])) / len(query.relevant) for k in (5, 10)]
        self.recall_5.append(hits[0])
        self.recall_10.append(hits[1])
        self.any_5.append(float(hits[0] > 0))
        self.ms[part].append(took_s * 1000)


def measure(sides: Sequence[Asked], every: list[Corpus], slip: Callable[[str], str], slow_queries: int, cell_s: float) -> dict[tuple[str, str], Cell]:
    """Return a cell for each (side, set). Every side sees the same queries; slow ones an even sample of them."""
    cells: dict[tuple[str, str], Cell] = {}
    in_set: dict[str, int] = {}
    for corpus in every:
        in_set[corpus.set] = in_set.get(corpus.set, 0) + len(corpus.queries)
    for corpus in every:
        full: dict[str, bool] = {}
        asked: dict[str, list[Query]] = {}
        for side in sides:
            cell = cells.setdefault((side.name, corpus.set), Cell())
            left_s = cell_s - cell.spent_s if side.slow else float("inf")
            began = time.monotonic()
            full[side.name] = left_s > 0 and side.fill(corpus.name, corpus.rows, left_s if side.slow else CELL_S)
            cell.spent_s += time.monotonic() - began
            share = max(1, slow_queries * len(corpus.queries) // max(1, in_set[corpus.set]))
            asked[side.name] = sample(corpus.queries, share) if side.slow else corpus.queries
        for part in range(3):
            for side in sides:
                cell = cells[side.name, corpus.set]
                queries = asked[side.name][part::3]
                left_s = cell_s - cell.spent_s
                if side.slow and (not full[side.name] or left_s <= 0):
                    cell.over = True
                    continue
                began = time.monotonic()
                found = side.search(corpus.name, [slip(query.text) for query in queries], left_s)
                cell.spent_s += time.monotonic() - began
                cell.over |= len(found) < len(queries)
                for query, (ids, took_s) in zip(queries, found, strict=False):
                    cell.take(query, ids, took_s, part)
    return cells


def rows_of(cells: dict[tuple[str, str], Cell], what: str, sides: Sequence[Asked], cell_s: float) -> list[Row]:
    """Return rows of figures for each set. A cell whose time was over says so."""
    out: list[Row] = []
    for name in dict.fromkeys(name for _, name in cells):
        for figure, unit in (*FIGURES, ("ms", "ms a query")):
            for side in sides:
                cell = cells[side.name, name]
                answered = len(cell.recall_10)
                note = f"> {cell_s:.0f} s: {answered} queries answered" if cell.over else f"{answered} queries"
                parts = (
                    [statistics.median(part) for part in cell.ms if part] if figure == "ms" else [statistics.fmean(getattr(cell, figure))] if answered else []
                )
                out.append(Row(f"{what} {name}", side.name, unit, parts, note=note))
    return out


def means_of(cells: dict[tuple[str, str], Cell], what: str, sides: Sequence[Asked]) -> list[Row]:
    """Return the means over the sets, for sides that answered on each, and by how much level 2 falls behind level 1 at worst."""
    sets = list(dict.fromkeys(name for _, name in cells))
    out: list[Row] = []
    for figure, unit in FIGURES:
        for side in sides:
            lists = [getattr(cells[side.name, name], figure) for name in sets]
            if all(lists):
                out.append(Row(f"{what} mean of the sets", side.name, unit, [statistics.fmean(map(statistics.fmean, lists))]))
    if {LEVEL_1, LEVEL_2} <= {side.name for side in sides}:
        less = min(statistics.fmean(cells[LEVEL_2, name].recall_10) - statistics.fmean(cells[LEVEL_1, name].recall_10) for name in sets)
        out.append(Row(f"{what}: level 2 less level 1, worst set", LEVEL_2, "of recall@10", [less]))
    return out


def open_sides(bench: Bench) -> tuple[list[Asked], list[Callable[[], None]]]:
    """Return the sides that can run here and what closes them; a peer that cannot is noted."""
    sides: list[Asked] = [Pinfold(LEVEL_1, "static"), Pinfold("pinfold level 0", "none")]
    closes: list[Callable[[], None]] = []
    if bench.peers:
        for open_side in (_bm25,) if bench.quick else (_minilm, _bm25, _pmll, _pmll_2_0_2, _memory_server):
            try:
                for side, close in open_side(bench):
                    sides.append(side)
                    closes.append(close)
            except PeerMissing as missing:
                bench.table.note("recall", f"left out: {missing}")
    sides.append(Fts5())
    return sides, closes


def _minilm(bench: Bench) -> list[tuple[Asked, Callable[[], None]]]:
    folder = bench.folder / "minilm"
    folder.mkdir()
    peer, filled = Peer(MINILM, "peer_minilm.py", str(folder)), set[str]()
    close = lambda: peer.__exit__(None, None, None)  # noqa: E731
    return [(InMiniLm(LEVEL_2, "search_hybrid", peer, filled), close), (InMiniLm("MiniLM alone", "search", peer, filled), close)]


def _bm25(bench: Bench) -> list[tuple[Asked, Callable[[], None]]]:
    side = InPeer(BM25S, "peer_bm25.py", bench.folder / "bm25", slow=False)
    return [(side, side.close)]


def _pmll(bench: Bench) -> list[tuple[Asked, Callable[[], None]]]:
    side = InPeer(PMLL, "peer_pmll_search.py", bench.folder / "pmll", slow=True)
    return [(side, side.close)]


def _pmll_2_0_2(bench: Bench) -> list[tuple[Asked, Callable[[], None]]]:
    side = InPeer(PMLL_2_0_2, "peer_pmll_search.py", bench.folder / "pmll-2.0.2", slow=True)
    return [(side, side.close)]


def _memory_server(bench: Bench) -> list[tuple[Asked, Callable[[], None]]]:
    try:
        side = MemoryServer(bench.folder)
    except (subprocess.SubprocessError, OSError, KeyError) as error:
        raise PeerMissing(f"{' '.join(MEMORY_SERVER)}: {error}") from error
    return [(side, side.close)]


def shortened(corpus: Corpus, queries: int, documents: int) -> Corpus:
    """Return a corpus of fewer queries and documents, with all that answer these queries."""
    asked = sample(corpus.queries, queries)
    needed = set().union(*(query.relevant for query in asked))
    rows = [row for number, row in enumerate(corpus.rows) if number < documents or row["id"] in needed]
    return Corpus(corpus.set, corpus.name, rows, asked)


def sampled(corpus: Corpus) -> Corpus:
    return dataclasses.replace(corpus, queries=sample(corpus.queries, SAMPLED))


def recall(bench: Bench) -> None:
    """Recall@5, @10, any@5 and ms a query on the question sets, one mixed store, and with typos, beside peers."""
    paths = files()
    if not paths:
        bench.table.note("recall", "left out: no question sets; give their folder by --data")
        return
    every = list(corpora(paths))
    if bench.small or bench.quick:
        every = [shortened(corpus, 2 if bench.small else 12, 30 if bench.small else 10_000) for corpus in every]
    sides, closes = open_sides(bench)
    cell_s = 5.0 if bench.small else CELL_S
    try:
        for side in sides:
            check(side)
        fast = [side for side in sides if not side.slow]
        for what, asking, slip in (("recall", sides, str), ("typos", fast, with_typos)):
            cells: dict[tuple[str, str], Cell] = {}
            for name in dict.fromkeys(corpus.set for corpus in every):
                bench.table.tell(f"{what} {name}: {', '.join(side.name for side in asking)}")
                of_set = [corpus for corpus in every if corpus.set == name]
                if slip is not str:
                    of_set = [sampled(corpus) for corpus in of_set]
                found = measure(asking, of_set, slip, SLOW_QUERIES, cell_s)
                bench.table.rows += rows_of(found, what, asking, cell_s)
                cells |= found
            bench.table.rows += means_of(cells, what, asking)
        bench.table.tell("recall in one mixed store")
        bench.table.rows += rows_of(measure(sides, [mixed([sampled(corpus) for corpus in every])], str, SLOW_QUERIES, cell_s), "recall", sides, cell_s)
        for side in sides:
            check(side)
    finally:
        for close in closes:
            close()
