"""Runs inside bm25s' environment: BM25 with its English stop words, as its README shows it."""

from __future__ import annotations

import time
from typing import Any

import bm25s

from benchmarks.peers import serve

_stores: dict[str, tuple[Any, list[str]]] = {}


def fill(store: str, documents: list[list[str]], within_s: float) -> int:
    """Index [id, text] pairs; return how many."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize([text for _, text in documents], stopwords="en", show_progress=False), show_progress=False)
    _stores[store] = index, [id for id, _ in documents]
    return len(documents)


def search(store: str, queries: list[str], k: int, within_s: float) -> list[Any]:
    """Return [ids, seconds] for each query."""
    index, ids = _stores[store]
    out = []
    for query in queries:
        began = time.perf_counter()
        tokens = bm25s.tokenize([query], stopwords="en", show_progress=False, return_ids=False)
        found, scores = index.retrieve(tokens, k=min(k, len(ids)), show_progress=False)
        hits = [ids[place] for place, score in zip(found[0], scores[0], strict=True) if score > 0]
        out.append([hits, time.perf_counter() - began])
    return out


if __name__ == "__main__":
    serve({f.__name__: f for f in (fill, search)})
