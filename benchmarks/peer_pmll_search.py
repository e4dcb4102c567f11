"""Runs inside PMLL's environment, 2.0.2 or 2.0.4: its memory graph filled with documents, and asked."""

from __future__ import annotations

import time
from typing import Any

from pmll_memory_mcp import search_graph, upsert_node

from benchmarks.peers import serve


def fill(store: str, documents: list[list[str]], within_s: float) -> int:
    """Add [id, text] pairs as nodes until the time is over; return how many."""
    until_s = time.monotonic() + within_s
    for number, (id, text) in enumerate(documents):
        if time.monotonic() > until_s:
            return number
        upsert_node(store, "note", id, text)
    return len(documents)


def search(store: str, queries: list[str], k: int, within_s: float) -> list[Any]:
    """Return [ids, seconds] for each query that was answered within the time."""
    until_s, out = time.monotonic() + within_s, []
    for query in queries:
        began = time.perf_counter()
        found = search_graph(store, query, 1, k).direct
        out.append([[hit.node.label for hit in found], time.perf_counter() - began])
        if time.monotonic() > until_s:
            break
    return out


if __name__ == "__main__":
    serve({f.__name__: f for f in (fill, search)})
