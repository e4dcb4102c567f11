"""The default embedding: a table of word-piece vectors that ships inside the package. numpy only, no model, no network.

A text is the plain sum of its pieces' rows, scaled to unit length: it never changes as the store grows. A query weights
each piece by its idf in the store, so all drift is on the query's side. `tools/distil.py` makes the table.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from pinfold.errors import Broken
from pinfold.recall.vectors import Vector, unit
from pinfold.recall.wordpiece import WordPiece

TABLE_SHA256 = "ceb473c7d4f61c26fe49cec596d6e2912622f5269bba594bb8b26e36f85a0d18"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
BACKGROUND_SHA256 = "98acef03bc08a140d20d9e62946c4cfce106a598345d7d0ae941c3d149b7389c"
BACKGROUND_RANKS = 20_000
_MAGIC = b"pinfold-static-1\n"


def _read(name: str, sha256: str) -> bytes:
    """Return a file of the package's data. Raises Broken where it is not the one this version was made with."""
    data = files("pinfold.recall").joinpath("data", name).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Broken(f"the package's {name} is damaged: its SHA-256 differs", code="table_damaged", hint="reinstall pinfold", file=name)
    return data


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Return the 30,522 word pieces in id order."""
    return tuple(_read("vocabulary.txt", VOCABULARY_SHA256).decode("utf-8").splitlines())


@lru_cache(maxsize=1)
def wordpiece() -> WordPiece:
    return WordPiece(vocabulary())


@lru_cache(maxsize=1)
def background_ranks() -> Mapping[str, int]:
    """Return stem -> frequency rank in ordinary English, for the 20,000 commonest word pieces."""
    lines = _read("background.txt", BACKGROUND_SHA256).decode("ascii").split("\n")
    return {stem: rank for rank, stem in enumerate(lines) if stem}


def rarity(term: str) -> float:
    """Return 0..1: how rare a word term is in ordinary English; 1 for names, codes and other scripts."""
    rank = background_ranks().get(term)
    return 1.0 if rank is None else min(1.0, math.log(rank + 2) / math.log(BACKGROUND_RANKS))


@lru_cache(maxsize=1)
def _table() -> tuple[NDArray[np.int8], Vector]:
    data = _read("static.bin", TABLE_SHA256)
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
        return self.embed_pieces([self.pieces(text) for text in texts])

    def embed_pieces(self, batches: Sequence[Sequence[int]]) -> Vector:
        out = np.zeros((len(batches), self.dim), dtype=np.float32)
        codes, scales = _table()
        for number, pieces in enumerate(batches):
            if pieces:
                at = np.array(pieces)
                out[number] = scales[at] @ codes[at].astype(np.float32)
        return unit(out)

    def embed_query(self, text: str, weigh: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> Vector:
        """Return float32[256] of a query, its pieces weighted by weigh(pieces); zero where nothing is known."""
        pieces = self.pieces(text)
        if not pieces:
            return np.zeros(self.dim, dtype=np.float32)
        codes, scales = _table()
        at = np.array(pieces)
        return unit((scales[at] * weigh(at).astype(np.float32)) @ codes[at].astype(np.float32))
