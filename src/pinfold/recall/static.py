"""The default embedding: a table of word-piece vectors that ships inside the package. numpy only, no model, no network.

A text is the plain sum of its pieces' rows, scaled to unit length: it never changes as the store grows. A query weights
each piece by its idf in the store, so all drift is on the query's side. `tools/distil.py` makes the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pinfold.recall.english import read_data, vocabulary
from pinfold.recall.vectors import Vector, unit
from pinfold.recall.wordpiece import WordPiece

TABLE_SHA256 = "ceb473c7d4f61c26fe49cec596d6e2912622f5269bba594bb8b26e36f85a0d18"
_MAGIC = b"pinfold-static-1\n"


@lru_cache(maxsize=1)
def wordpiece() -> WordPiece:
    return WordPiece(vocabulary())


@lru_cache(maxsize=1)
def _table() -> tuple[NDArray[np.int8], Vector]:
    data = read_data("static.bin", TABLE_SHA256)
    end = data.index(b"\n", len(_MAGIC))
    header = json.loads(data[len(_MAGIC) : end])
    rows, dim = header["rows"], header["dim"]
    codes = np.frombuffer(data, dtype=np.int8, count=rows * dim, offset=end + 1).reshape(rows, dim)
    scales = np.frombuffer(data, dtype=np.float16, count=rows, offset=end + 1 + rows * dim).astype(np.float32)
    return codes, scales


class StaticEmbedder:
    """The shipped table as an embedder; loads at its first use (about 10 ms), 256 dimensions."""

    fingerprint = f"static:{TABLE_SHA256[:16]}"
    dim = 256
    pieces_known = 30_522
    lane_weight = 0.7
    reads_unspaced = False
    inline = True
    """Fast enough to embed where a text is indexed."""

    def pieces(self, text: str) -> list[int]:
        """Return the word-piece ids of a text."""
        return wordpiece().encode(text)

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return float32[n, 256]: unit vectors, zero where a text has no known piece."""
        batches = [self.pieces(text) for text in texts]
        return self.embed_pieces(np.array([piece for pieces in batches for piece in pieces], dtype=np.int64), [len(pieces) for pieces in batches])

    def embed_pieces(self, pieces: NDArray[np.int64], counts: Sequence[int]) -> Vector:
        """Return the vectors of texts whose pieces stand end to end; counts: how many each text has."""
        out = np.zeros((len(counts), self.dim), dtype=np.float32)
        codes, scales = _table()
        begin = 0
        for number, count in enumerate(counts):
            at = pieces[begin : begin + count]
            rows = codes[at].astype(np.float32)
            rows *= scales[at, None]
            rows.sum(axis=0, out=out[number])
            begin += count
        return unit(out)

    def embed_query(self, text: str, weigh: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> Vector:
        """Return float32[256] of a query, its pieces weighted by weigh(pieces), of any length; zero where nothing is known."""
        pieces = self.pieces(text)
        if not pieces:
            return np.zeros(self.dim, dtype=np.float32)
        codes, scales = _table()
        at = np.array(pieces)
        vector: Vector = (scales[at] * weigh(at).astype(np.float32)) @ codes[at].astype(np.float32)
        return vector
