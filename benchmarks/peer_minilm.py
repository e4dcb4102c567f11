"""Runs where MiniLM can be had: the model alone (cosine over all texts), and pinfold's level 2 over the same vectors."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.peers import serve
from pinfold.recall.bench import documents_of
from pinfold.recall.document import indexed_text
from pinfold.recall.embed import MiniLmEmbedder
from pinfold.recall.index import RecallIndex, open_index


class Remembering:
    """MiniLM whose vectors are kept by text, so that each text is embedded once, whoever asks first."""

    def __init__(self, inner: MiniLmEmbedder) -> None:
        self._inner = inner
        self._known: dict[str, Any] = {}
        self.fingerprint, self.dim, self.lane_weight, self.reads_unspaced = inner.fingerprint, inner.dim, inner.lane_weight, inner.reads_unspaced

    def embed(self, texts: Any) -> Any:
        new = list(dict.fromkeys(text for text in texts if text not in self._known))
        if new:
            self._known.update(zip(new, self._inner.embed(new), strict=True))
        return np.stack([self._known[text] for text in texts])


_model = MiniLmEmbedder()
_kept = Remembering(_model)
_alone: dict[str, tuple[Any, list[str]]] = {}
_hybrid: dict[str, RecallIndex] = {}


def fill(store: str, rows: list[dict[str, Any]]) -> int:
    """Embed and index documents, as the sets have them; return how many."""
    documents = documents_of(rows)
    _alone[store] = _kept.embed([indexed_text(document) for document in documents]), [document.id for document in documents]
    index = _hybrid[store] = open_index(documents, _kept)
    index.embed_pending()
    index.search("ready?")
    return len(documents)


def search(store: str, queries: list[str], k: int) -> list[Any]:
    """Return [ids, seconds] for each query by the model alone; embedding the query is part of it."""
    matrix, ids = _alone[store]
    out = []
    for query in queries:
        began = time.perf_counter()
        scores = matrix @ _model.embed([query])[0]
        best = np.argsort(-scores, kind="stable")[:k]
        out.append([[ids[place] for place in best], time.perf_counter() - began])
    return out


def search_hybrid(store: str, queries: list[str], k: int) -> list[Any]:
    """Return [ids, seconds] for each query by pinfold's level 2; queries are new texts, so embedding is part of it."""
    out = []
    for query in queries:
        _kept._known.pop(query, None)
        began = time.perf_counter()
        found = [hit.id for hit in _hybrid[store].search(query, k, collapse=False).hits]
        out.append([found, time.perf_counter() - began])
    return out


if __name__ == "__main__":
    serve({f.__name__: f for f in (fill, search, search_hybrid)})
