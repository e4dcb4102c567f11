"""Cosine over numbered slots, in numpy. Deletes are immediate; storage is int8, float16 or float32.

`cosines` and `top_k` are exact scans, in blocks that fit a cache. Above SKETCH_ABOVE rows the ranker asks `near` first:
one bit a dimension and a popcount choose `sketch_kept` slots whose exact cosines are then taken. The mean cosine of the
store, which the ranker subtracts, is exact and O(dim) either way.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Cosines = NDArray[np.float64]
STORAGES = ("int8", "float16", "float32")
BLOCK_ROWS = 2048
SKETCH_ABOVE = 8_192
SKETCH_KEPT_MIN, SKETCH_KEPT_MAX = 1_024, 4_096


class Names(Protocol):
    """Place -> id: a list of ids, or a view of one."""

    def __getitem__(self, place: int, /) -> str: ...


def sketch_kept(rows: int) -> int:
    """Return how many slots a sketch keeps: a tenth of the store, which costs .002 in recall@10, within bounds."""
    return min(SKETCH_KEPT_MAX, max(SKETCH_KEPT_MIN, rows // 10))


def unit(vectors: NDArray[np.floating]) -> Vector:
    """Return vectors scaled to unit length, row by row; what has no length or is not finite becomes zero."""
    rows = np.asarray(vectors, dtype=np.float32)
    rows = np.where(np.isfinite(rows), rows, np.float32(0.0))
    lengths = np.sqrt(np.einsum("...i,...i->...", rows, rows, dtype=np.float64))[..., None]
    return np.asarray(np.where(lengths > 1e-12, rows / np.maximum(lengths, 1e-12), 0.0), dtype=np.float32)


def quantise(rows: Vector) -> tuple[NDArray[np.int8], Vector]:
    """Return (codes, scales) of unit rows: codes * scale has unit length again, so that rounding favours no row."""
    peak = np.abs(rows).max(axis=1, initial=0.0)
    step = np.where(peak > 0, peak / 127.0, 1.0)
    codes = np.rint(rows / step[:, None]).astype(np.int8)
    wide = codes.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return codes, np.where(lengths > 0, 1.0 / np.maximum(lengths, 1e-9), 0.0).astype(np.float32)


class VectorStore:
    """Unit vectors by slot. A slot without a vector scores 0 and is left out of the mean.

    storage: int8 (a quarter of the memory, and on a machine short of memory bandwidth the fastest scan), float16, float32.
    """

    def __init__(self, dim: int, storage: str = "int8") -> None:
        if storage not in STORAGES:
            raise ValueError(f"storage is one of {', '.join(STORAGES)}, not {storage!r}")
        if dim < 1:
            raise ValueError(f"a vector has at least one dimension, not {dim}")
        self.dim = dim
        self.storage = storage
        self.rows: NDArray[np.generic] = np.zeros((0, dim), dtype=storage)
        self.scales = np.zeros(0, dtype=np.float32)  # int8 only: row = codes * scale
        self.filled = np.zeros(0, dtype=bool)
        self.signs = np.zeros(((dim + 63) // 64, 0), dtype=np.uint64)  # int8 only; a word of sign bits by slot
        self._total = np.zeros(dim, dtype=np.float64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def _coded(self) -> bool:
        return self.rows.dtype == np.int8

    def reserve(self, capacity: int) -> None:
        """Make room for slots 0..capacity-1; amortised, so call it as often as wanted."""
        have = len(self.filled)
        if capacity <= have:
            return
        room = max(capacity, have + have // 4, 64)
        for name in ("rows", "filled", *(("scales",) if self._coded else ())):
            old = getattr(self, name)
            new = np.zeros((room, *old.shape[1:]), dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        if self._coded:
            signs = np.zeros((len(self.signs), room), dtype=np.uint64)
            signs[:, : self.signs.shape[1]] = self.signs
            self.signs = signs

    def put(self, slots: Sequence[int], vectors: NDArray[np.floating]) -> None:
        """Set the vectors of distinct slots: float[n, dim], scaled to unit length here. A zero vector counts as none."""
        given = np.atleast_2d(np.asarray(vectors))
        if not len(slots):
            return
        if given.shape != (len(slots), self.dim):
            raise ValueError(f"{len(slots)} slots need float[{len(slots)}, {self.dim}], not {list(given.shape)}")
        at = np.asarray(slots, dtype=np.int64)
        self.drop(slots)
        self.reserve(int(at.max()) + 1)
        rows = unit(given)
        if self._coded:
            self.rows[at], self.scales[at] = quantise(rows)
            self.signs[:, at] = _pack_signs(rows).T
        else:
            self.rows[at] = rows.astype(self.rows.dtype)
        self.filled[at] = rows.any(axis=1)
        self._count += int(self.filled[at].sum())
        self._total += self._decode(at).sum(axis=0, dtype=np.float64)

    def codes_of(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int8], Vector]:
        """Return (codes int8[n, dim], scales float32[n]) of slots: the form a cache keeps."""
        if self._coded:
            return np.asarray(self.rows[slots], dtype=np.int8), self.scales[slots]
        return quantise(self._decode(slots))

    def drop(self, slots: Sequence[int]) -> None:
        """Forget the vectors of slots, at once; slots that have none are fine."""
        at = np.asarray([s for s in dict.fromkeys(slots) if s < len(self.filled) and self.filled[s]], dtype=np.int64)
        if not len(at):
            return
        self._total -= self._decode(at).sum(axis=0, dtype=np.float64)
        self.rows[at] = 0
        if self._coded:
            self.scales[at] = 0
        self.filled[at] = False
        self._count -= len(at)
        if not self._count:
            self._total[:] = 0.0  # no rounding survives an empty store

    def get(self, slot: int) -> Vector | None:
        """Return the stored vector of a slot as float32, or None."""
        if slot >= len(self.filled) or not self.filled[slot]:
            return None
        return np.asarray(self._decode(np.array([slot]))[0])

    def _decode(self, at: NDArray[np.int64]) -> Vector:
        rows = self.rows[at].astype(np.float32)
        if self._coded:
            rows *= self.scales[at][:, None]
        return rows

    def _whole(self, query: Vector) -> tuple[Vector, float]:
        """Return (query in whole numbers, its scale): products with int8 rows then add up exactly in float32.

        By Cauchy no partial sum exceeds |row| |query| <= 127 sqrt(dim) |query|, kept below 2^24. So equal rows get equal
        cosines wherever they stand, which blocked products of fractions do not give.
        """
        q = unit(query)
        peak = float(np.abs(q).max(initial=0.0))
        if not self._coded or peak == 0.0:
            return q, 1.0
        levels = np.floor((2**24 - 1) / (127.0 * np.sqrt(self.dim)) * peak) - 1.0
        whole = np.rint(q * np.float32(max(1.0, levels) / peak))
        return whole, 1.0 / float(np.sqrt(np.square(whole, dtype=np.float64).sum()))

    def mean_cosine(self, query: Vector) -> float:
        """Return the mean cosine of the query with every stored vector. O(dim)."""
        whole, scale = self._whole(query)
        return float(self._total @ whole.astype(np.float64)) * scale / self._count if self._count else 0.0

    def cosines(self, query: Vector, capacity: int) -> Cosines:
        """Return float64[capacity]: the cosine of each slot with query (float32[dim]), 0 where there is no vector. O(n * dim)."""
        q, scale = self._whole(query)
        have = min(capacity, len(self.filled))
        raw = np.zeros(capacity, dtype=np.float32)
        for begin in range(0, have, BLOCK_ROWS):
            end = min(begin + BLOCK_ROWS, have)
            np.dot(self.rows[begin:end].astype(np.float32), q, out=raw[begin:end])
        out = raw.astype(np.float64)
        out *= scale
        if self._coded:
            out[:have] *= self.scales[:have]
        return out

    def cosines_at(self, query: Vector, slots: NDArray[np.int64]) -> Cosines:
        """Return float64[n]: the cosines of these slots, each below `capacity`."""
        q, scale = self._whole(query)
        out = np.zeros(len(slots), dtype=np.float64)
        for begin in range(0, len(slots), BLOCK_ROWS):
            part = slots[begin : begin + BLOCK_ROWS]
            out[begin : begin + BLOCK_ROWS] = np.take(self.rows, part, axis=0).astype(np.float32) @ q
        out *= scale
        if self._coded:
            out *= self.scales[slots]
        return out

    def near(self, query: Vector, kept: int) -> NDArray[np.int64]:
        """Return at least `kept` slots likely to be nearest, by the signs of their vectors alone (int8 only), ascending.

        Whole rings of equal distance are kept, so that slot numbers do not choose.
        """
        have = len(self.filled)
        distance = np.zeros(have, dtype=np.uint16)
        for word, mine in zip(_pack_signs(unit(query)[None])[0], self.signs, strict=True):
            distance += np.bitwise_count(mine ^ word)
        distance[~self.filled] = self.dim + 1
        # A histogram finds the cut without sorting a million numbers.
        running = np.cumsum(np.bincount(distance, minlength=self.dim + 2)[: self.dim + 1])
        cut = int(np.searchsorted(running, min(kept, self._count)))
        return np.flatnonzero(distance <= min(cut, self.dim))

    def top_k(self, query: Vector, k: int, ids: Sequence[str], mask: NDArray[np.bool_] | None = None) -> list[tuple[str, float]]:
        """Return the k nearest (id, cosine), best first, ties by id. ids[slot]; mask: slots that may answer."""
        scores = self.cosines(query, len(ids))
        allowed = np.zeros(len(ids), dtype=bool)
        have = min(len(ids), len(self.filled))
        allowed[:have] = self.filled[:have]
        if mask is not None:
            allowed &= mask
        return [(ids[i], float(scores[i])) for i in top_slots(np.where(allowed, scores, -np.inf), k, ids)]


def _pack_signs(rows: Vector) -> NDArray[np.uint64]:
    bits = np.packbits(rows > 0, axis=1)
    width = (rows.shape[1] + 63) // 64 * 8
    padded = np.zeros((len(rows), width), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64)


def top_slots(scores: NDArray[np.float64], k: int, ids: Names, floor: float = -np.inf) -> list[int]:
    """Return the k slots with the highest scores above floor, best first, equal scores by id. O(n + k log k)."""
    can = np.flatnonzero(scores > floor)
    k = min(k, len(can))
    if k <= 0:
        return []
    values = scores[can]
    cut = np.partition(values, len(values) - k)[len(values) - k]
    best: list[int] = can[values > cut].tolist()
    best.sort(key=lambda i: (-scores[i], ids[i]))
    level = can[values == cut].tolist()
    # Many may be equal: choose by id without sorting more ids than must be.
    return best + heapq.nsmallest(k - len(best), level, key=lambda i: ids[i])
