"""Cosine over numbered slots, in numpy. Deletes are immediate; storage is int8, float16 or float32.

`cosines` and `top_k` are exact scans, in blocks that fit a cache. Above SKETCH_ABOVE rows the ranker asks `near` first:
one bit a dimension and a popcount choose `sketch_kept` slots whose exact cosines are then taken. The mean cosine of the
store, which the ranker subtracts, is exact and O(dim) either way.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Cosines = NDArray[np.float64]
STORAGES = ("int8", "float16", "float32")
BLOCK_ROWS = 256
"""Rows that are decoded at once: they stay in a cache."""
SKETCH_ABOVE = 2_048
SKETCH_KEPT_MIN = 1_024


class Names(Protocol):
    """Place -> id: a list of ids, or a view of one."""

    def __getitem__(self, place: int, /) -> str: ...


def sketch_kept(rows: int) -> int:
    """Return how many slots a sketch keeps: a tenth of the store, which has .97 of the true nearest and costs .002 in recall@10."""
    return max(SKETCH_KEPT_MIN, rows // 10)


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


class Asked(NamedTuple):
    """A query as a store compares it: in whole numbers, what they are to be scaled by, and the signs of its dimensions."""

    whole: Vector
    scale: float
    signs: NDArray[np.uint64]


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
        self._block = np.zeros((BLOCK_ROWS, dim), dtype=storage)
        self._decoded = np.zeros((BLOCK_ROWS, dim), dtype=np.float32)

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
            self.signs[:, at] = _pack_signs(self.rows[at]).T
        else:
            self.rows[at] = rows.astype(self.rows.dtype)
        self._note_filled(at)

    def put_codes(self, slots: NDArray[np.int64], codes: NDArray[np.int8], scales: Vector) -> None:
        """Set the vectors of slots that have none, as `codes_of` gave them."""
        if not len(slots):
            return
        if not self._coded:
            self.put(slots.tolist(), codes * scales[:, None])
            return
        self.reserve(int(slots.max()) + 1)
        self.rows[slots], self.scales[slots] = codes, scales
        self.signs[:, slots] = _pack_signs(codes).T
        self._note_filled(slots)

    def _note_filled(self, slots: NDArray[np.int64]) -> None:
        for begin in range(0, len(slots), 8_192):
            part = slots[begin : begin + 8_192]
            rows = self._decode(part)
            self.filled[part] = rows.any(axis=1)
            self._count += int(self.filled[part].sum())
            self._total += rows.sum(axis=0, dtype=np.float64)

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

    def asked(self, query: Vector) -> Asked:
        """Return a query (float32[dim]) in whole numbers: products with int8 rows then add up exactly in float32.

        By Cauchy no partial sum exceeds |row| |query| <= 127 sqrt(dim) |query|, kept below 2^24. So equal rows get equal
        cosines wherever they stand, which blocked products of fractions do not give.
        """
        q = np.asarray(query, dtype=np.float32)
        peak = float(np.abs(q).max(initial=0.0))
        length = math.sqrt(float(np.square(q, dtype=np.float64).sum()))
        if not math.isfinite(length) or length <= 1e-12:
            return Asked(np.zeros(self.dim, dtype=np.float32), 1.0, _pack_signs(np.zeros((1, self.dim), dtype=np.float32))[0])
        signs = _pack_signs(q[None])[0]
        if not self._coded:
            return Asked(q / np.float32(length), 1.0, signs)
        levels = math.floor((2**24 - 1) / (127.0 * math.sqrt(self.dim)) * peak / length) - 1.0
        whole = np.rint(q * np.float32(max(1.0, levels) / peak))
        return Asked(whole, 1.0 / math.sqrt(float(np.square(whole, dtype=np.float64).sum())), signs)

    def mean_cosine(self, query: Asked) -> float:
        """Return the mean cosine of the query with every stored vector. O(dim)."""
        return float(self._total @ query.whole.astype(np.float64)) * query.scale / self._count if self._count else 0.0

    def cosines(self, query: Asked, capacity: int) -> Cosines:
        """Return float64[capacity]: the cosine of each slot with the query, 0 where there is no vector. O(n * dim)."""
        out = np.zeros(capacity, dtype=np.float64)
        have = min(capacity, len(self.filled))
        out[:have] = self.cosines_at(query, np.arange(have))
        return out

    def cosines_at(self, query: Asked, slots: NDArray[np.int64]) -> Cosines:
        """Return float64[n]: the cosines of these slots, each below `capacity`."""
        out = np.empty(len(slots), dtype=np.float64)
        for begin in range(0, len(slots), BLOCK_ROWS):
            part = slots[begin : begin + BLOCK_ROWS]
            rows = np.take(self.rows, part, axis=0, out=self._block[: len(part)], mode="clip")
            decoded = self._decoded[: len(part)]
            decoded[:] = rows
            # Not by BLAS: its threads wait for each other where cores are busy.
            out[begin : begin + BLOCK_ROWS] = np.vecdot(decoded, query.whole)
        out *= query.scale
        if self._coded:
            out *= self.scales[slots]
        return out

    def near(self, query: Asked, capacity: int, kept: int) -> NDArray[np.int64]:
        """Return at least `kept` slots likely to be nearest, by the signs of their vectors alone (int8 only), ascending.

        Whole rings of equal distance are kept, so that slot numbers do not choose.
        """
        have = min(capacity, len(self.filled))
        distance = np.zeros(have, dtype=np.uint16)
        differing = np.empty(have, dtype=np.uint64)
        for word, mine in zip(query.signs, self.signs, strict=True):
            np.bitwise_xor(mine[:have], word, out=differing)
            distance += np.bitwise_count(differing)
        if self._count < have:
            distance[~self.filled[:have]] = self.dim + 1
        # A histogram finds the cut without sorting a million numbers.
        running = np.cumsum(np.bincount(distance, minlength=self.dim + 2)[: self.dim + 1])
        cut = int(np.searchsorted(running, min(kept, self._count)))
        return (distance <= min(cut, self.dim)).nonzero()[0]

    def top_k(self, query: Vector, k: int, ids: Sequence[str], mask: NDArray[np.bool_] | None = None) -> list[tuple[str, float]]:
        """Return the k nearest (id, cosine), best first, ties by id. ids[slot]; mask: slots that may answer."""
        scores = self.cosines(self.asked(query), len(ids))
        allowed = np.zeros(len(ids), dtype=bool)
        have = min(len(ids), len(self.filled))
        allowed[:have] = self.filled[:have]
        if mask is not None:
            allowed &= mask
        return [(ids[i], float(scores[i])) for i in top_slots(np.where(allowed, scores, -np.inf), k, ids)]


def _pack_signs(rows: NDArray[Any]) -> NDArray[np.uint64]:
    bits = np.packbits(rows > 0, axis=1)
    width = (rows.shape[1] + 63) // 64 * 8
    padded = np.zeros((len(rows), width), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view(np.uint64)


def best_slots(scores: NDArray[np.float64], k: int, ids: Names, floor: float = -np.inf) -> NDArray[np.int64]:
    """Return the k slots with the highest scores above floor, in no order; of equals at the cut those with the smallest ids. O(n)."""
    can = (scores > floor).nonzero()[0]
    if len(can) <= k or k <= 0:
        return can[: max(k, 0)]
    values = scores[can]
    cut = np.partition(values, len(values) - k)[len(values) - k]
    best, level = can[values > cut], can[values == cut]
    # Many may be equal: choose by id without sorting more ids than must be.
    left = k - len(best)
    chosen = level if len(level) == left else np.array(heapq.nsmallest(left, level.tolist(), key=lambda i: ids[i]), dtype=np.int64)
    return np.concatenate((best, chosen))


def top_slots(scores: NDArray[np.float64], k: int, ids: Names, floor: float = -np.inf) -> list[int]:
    """Return the k slots with the highest scores above floor, best first, equal scores by id. O(n + k log k)."""
    best: list[int] = best_slots(scores, k, ids, floor).tolist()
    best.sort(key=lambda i: (-scores[i], ids[i]))
    return best
