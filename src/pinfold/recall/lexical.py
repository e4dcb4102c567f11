"""Incremental postings with two lanes over them: BM25 of word terms, tf-idf cosine of character grams.

Documents are numbered slots chosen by the owner (`index.py` maps ids to slots and reuses freed ones).

Invariants:
- a posting list holds exactly the live slots, ascending, so its length is the document frequency and nothing needs
  to be swept: an index that saw updates and deletes answers as one built afresh from what is left;
- sums kept per slot are integers (fixed point, in float64), so adding and taking away leave no rounding behind;
- numpy sees the lists only as short-lived views: nothing here may keep a view while documents are added.

Gram vectors need their length under the *current* idf. idf(t) = ln(1 + (N - df + .5)/(df + .5)) = ln(N+1) - ln(df + .5),
so |d|^2 = A0 L^2 - 2 L A1 + A2 with L = ln(N+1), A0 = sum a^2, A1 = sum a^2 l, A2 = sum a^2 l^2, a = 1 + ln tf,
l = ln(step(df) + .5). N costs nothing; a gram whose df passed a step (about 8 %) corrects the sums of its slots.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pinfold.recall.analyse import Analysed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

K1 = 1.2
B = 0.75
TF_MAX = 255
"""BM25 is flat long before this; it keeps a frequency in one byte."""
BULK_FROM = 16
_FIXED = float(1 << 20)
_CHUNK_POSTINGS = 1 << 20

_A = 1.0 + np.log(np.maximum(np.arange(TF_MAX + 1), 1))
_A[0] = 0.0
_A2 = np.rint(_A * _A * 1024.0) / 1024.0


def step(df: int) -> int:
    """Return df rounded down to its four leading bits: exact below 16, then steps of 6 to 12 %."""
    shift = max(0, df.bit_length() - 4)
    return df >> shift << shift


class Posting:
    """The live slots that hold a term, ascending, with their frequencies; `settled` is the step the sums know (0: none)."""

    __slots__ = ("settled", "slots", "tfs")

    def __init__(self) -> None:
        self.slots = array("I")
        self.tfs = array("B")
        self.settled = 0


class Batch(NamedTuple):
    """Texts that came in together: postings as (number of a term, slot, tf)."""

    terms: list[str]
    numbers: Ints
    slots: NDArray[np.uint32]
    tfs: NDArray[np.uint8]


class Gathered:
    """The postings of some terms, end to end: slots, tfs, the length of each list and the terms that have one."""

    __slots__ = ("lengths", "slots", "terms", "tfs")

    def __init__(self, terms: list[str], lists: list[Posting]) -> None:
        self.terms = terms
        self.lengths = np.array([len(p.slots) for p in lists], dtype=np.int64)
        # bytes.join copies out of the arrays: a view would forbid the next append.
        self.slots = np.frombuffer(b"".join([p.slots for p in lists]), dtype=np.uint32)
        self.tfs = np.frombuffer(b"".join([p.tfs for p in lists]), dtype=np.uint8)


class Postings:
    """term -> Posting. Add, remove: O(terms of the text), each a binary search and one move inside an array."""

    def __init__(self) -> None:
        self.lists: dict[str, Posting] = {}

    def add(self, slot: int, counts: Mapping[str, int]) -> None:
        lists = self.lists
        for term, tf in counts.items():
            p = lists.get(term)
            if p is None:
                p = lists[term] = Posting()
            slots = p.slots
            if not slots or slots[-1] < slot:
                slots.append(slot)
                p.tfs.append(tf if tf < TF_MAX else TF_MAX)
            else:
                at = bisect_left(slots, slot)
                slots.insert(at, slot)
                p.tfs.insert(at, min(tf, TF_MAX))

    def add_many(self, slots: Sequence[int], texts: Sequence[Sequence[str]]) -> Batch:
        """Index many texts at once (slots ascending), by one sort instead of one step a term. Return what came in."""
        numbers: dict[str, int] = {}
        take = numbers.setdefault
        flat = [take(term, len(numbers)) for terms in texts for term in terms]
        owners = np.repeat(np.asarray(slots, dtype=np.int64), [len(terms) for terms in texts])
        keys, tfs = np.unique((np.array(flat, dtype=np.int64) << 32) | owners, return_counts=True)
        terms_of, slots_of = keys >> 32, (keys & 0xFFFFFFFF).astype(np.uint32)
        small = np.minimum(tfs, TF_MAX).astype(np.uint8)
        slot_bytes, tf_bytes = slots_of.tobytes(), small.tobytes()
        lists, begin = self.lists, 0
        ends = np.cumsum(np.bincount(terms_of, minlength=len(numbers))).tolist()
        for term, end in zip(numbers, ends, strict=True):
            p = lists.get(term)
            if p is None:
                p = lists[term] = Posting()
            late = not p.slots or p.slots[-1] < slots_of[begin]
            p.slots.frombytes(slot_bytes[4 * begin : 4 * end])
            p.tfs.frombytes(tf_bytes[begin:end])
            if not late:  # a freed slot is used again
                order = np.argsort(np.array(p.slots), kind="stable")
                p.slots, p.tfs = array("I", np.array(p.slots)[order].tobytes()), array("B", np.array(p.tfs)[order].tobytes())
            begin = end
        return Batch(list(numbers), terms_of, slots_of, small)

    def remove(self, slot: int, terms: Iterable[str]) -> None:
        for term in terms:
            p = self.lists[term]
            at = bisect_left(p.slots, slot)
            if at == len(p.slots) or p.slots[at] != slot:
                raise ValueError(f"slot {slot} is not indexed under {term!r}")
            del p.slots[at], p.tfs[at]
            if not p.slots:
                del self.lists[term]

    def df(self, term: str) -> int:
        p = self.lists.get(term)
        return len(p.slots) if p is not None else 0

    def tf(self, term: str, slot: int) -> int:
        p = self.lists.get(term)
        if p is None:
            return 0
        at = bisect_left(p.slots, slot)
        return p.tfs[at] if at < len(p.slots) and p.slots[at] == slot else 0

    def slots_of(self, term: str) -> Ints:
        """Return a copy of the slots of a term, ascending."""
        p = self.lists.get(term)
        return np.array(p.slots if p is not None else (), dtype=np.int64)

    def gather(self, terms: Iterable[str]) -> Gathered:
        """Return the lists of the distinct terms that occur, in the order given."""
        found = [(t, p) for t in dict.fromkeys(terms) if (p := self.lists.get(t)) is not None]
        return Gathered([t for t, _ in found], [p for _, p in found])


def _summed(slots: NDArray[np.uint32], values: Floats, width: int) -> Floats:
    """Return the sum of values by slot; float64 even where there is nothing to sum."""
    return np.bincount(slots, values, width).astype(np.float64, copy=False)


def idf(df: NDArray[np.int64], n: int) -> Floats:
    """Return ln(1 + (n - df + .5)/(df + .5)) of each df; a term never seen has df 0."""
    out: Floats = math.log(n + 1) - np.log(df + 0.5)
    return out


def idf_of(df: int, n: int) -> float:
    """Return `idf` of one number."""
    return math.log(n + 1) - math.log(df + 0.5)


class LexicalIndex:
    """Both lanes over numbered slots. `capacity` is one more than the highest slot ever used."""

    def __init__(self) -> None:
        self.word_lane = Postings()
        self.gram_lane = Postings()
        self.capacity = 0
        self.live = 0
        self.total_length = 0
        self._lengths = np.zeros(0, dtype=np.uint32)
        self._sums = np.zeros((3, 0))
        self._built = False
        self._incoming: list[Batch] = []  # what is not in the sums yet
        self._fresh: set[int] = set()  # the slots of it
        self._moved: set[str] = set()  # grams whose df changed since the sums were settled
        self._norms: Floats | None = None

    # --- change ---------------------------------------------------------------------------------------------------
    def add(self, slot: int, analysed: Analysed) -> None:
        """Index a text under a free slot."""
        self.reserve(slot)
        grams = Counter(analysed.grams)
        self.word_lane.add(slot, Counter(analysed.words))
        self.gram_lane.add(slot, grams)
        if self._built:
            tfs = np.minimum(np.fromiter(grams.values(), dtype=np.int64), TF_MAX).astype(np.uint8)
            self._note(Batch(list(grams), np.arange(len(grams)), np.full(len(grams), slot, dtype=np.uint32), tfs), [slot])
        self._count(slot, len(analysed.words))

    def add_many(self, slots: Sequence[int], texts: Sequence[Analysed]) -> None:
        """Index texts under free slots: the same as `add` one by one, several times faster."""
        if len(slots) < BULK_FROM:
            for slot, text in zip(slots, texts, strict=True):
                self.add(slot, text)
            return
        order = sorted(range(len(slots)), key=slots.__getitem__)
        slots, texts = [slots[i] for i in order], [texts[i] for i in order]
        self.reserve(slots[-1])
        self.word_lane.add_many(slots, [text.words for text in texts])
        batch = self.gram_lane.add_many(slots, [text.grams for text in texts])
        if self._built:
            self._note(batch, slots)
        for slot, text in zip(slots, texts, strict=True):
            self._count(slot, len(text.words))

    def remove(self, slot: int, analysed: Analysed) -> None:
        """Forget a slot; analysed is what it was added with. ValueError or KeyError where it was not."""
        if slot in self._fresh:
            self._settle()
        grams = dict.fromkeys(analysed.grams)
        self.word_lane.remove(slot, dict.fromkeys(analysed.words))
        self.gram_lane.remove(slot, grams)
        if self._built:
            self._moved.update(grams)
            if slot < self._sums.shape[1]:
                self._sums[:, slot] = 0.0
        self.total_length -= int(self._lengths[slot])
        self._lengths[slot] = 0
        self.live -= 1
        self._norms = None

    def reserve(self, slot: int) -> None:
        """Make room up to a slot."""
        if slot >= self.capacity:
            self.capacity = slot + 1
            if slot >= len(self._lengths):
                grown = np.zeros(64 + self.capacity * 5 // 4, dtype=np.uint32)
                grown[: len(self._lengths)] = self._lengths
                self._lengths = grown

    def _count(self, slot: int, length: int) -> None:
        self._lengths[slot] = length
        self.total_length += length
        self.live += 1
        self._norms = None

    def _note(self, batch: Batch, slots: Sequence[int]) -> None:
        self._incoming.append(batch)
        self._fresh.update(slots)
        self._moved.update(batch.terms)

    def update(self, slot: int, old: Analysed, new: Analysed) -> None:
        """Put another text under a slot."""
        self.remove(slot, old)
        self.add(slot, new)

    # --- ask ------------------------------------------------------------------------------------------------------
    @property
    def lengths(self) -> Floats:
        """Return the number of word terms per slot; 0 where it is free."""
        return self._lengths[: self.capacity].astype(np.float64)

    def bm25(self, terms: Sequence[str]) -> Floats:
        """Return BM25 per slot (0 where nothing matches); each distinct query term counts once."""
        return self.bm25_of(self.word_lane.gather(terms))

    def bm25_of(self, hit: Gathered) -> Floats:
        if not len(hit.slots):
            return np.zeros(self.capacity)
        average = self.total_length / self.live
        tf = hit.tfs.astype(np.float64)
        lengths = self._lengths[hit.slots]
        weight = np.repeat(idf(hit.lengths, self.live) * (K1 + 1.0), hit.lengths)
        norm = lengths * (K1 * B / average)
        norm += K1 * (1.0 - B)
        norm += tf
        tf *= weight
        tf /= norm
        return _summed(hit.slots, tf, self.capacity)

    def gram_cosine(self, terms: Sequence[str]) -> Floats:
        """Return per slot sum of idf^2 (1 + ln tf) over the query's distinct grams, divided by the slot's vector length.

        The query's own length is left out: it is the same for every slot (`gram_norm_of` gives it).
        """
        hit = self.gram_lane.gather(terms)
        if not len(hit.slots):
            return np.zeros(self.capacity)
        weight = np.repeat(idf(hit.lengths, self.live) ** 2, hit.lengths)
        weight *= _A[hit.tfs]
        out = _summed(hit.slots, weight, self.capacity)
        out /= self.gram_norms()
        return out

    def gram_norm_of(self, terms: Sequence[str]) -> float:
        """Return the tf-idf length of a query's distinct grams, those never seen included."""
        squares = [idf_of(self.gram_lane.df(t), self.live) ** 2 for t in dict.fromkeys(terms)]
        return math.sqrt(math.fsum(squares))

    def gram_norms(self) -> Floats:
        """Return the length of each slot's gram vector under the idf of now (tiny where a slot is free). Do not change it."""
        if self._norms is None:
            self._settle()
            big = math.log(self.live + 1)
            a0, a1, a2 = self._sums[:, : self.capacity]
            squared = a0 * (big * big)
            squared -= a1 * (2.0 * big)
            squared += a2
            squared *= 1.0 / _FIXED
            np.maximum(squared, 1e-12, out=squared)
            self._norms = np.sqrt(squared, out=squared)
        return self._norms

    def _settle(self) -> None:
        """Bring the sums up to date: whole at first, later what came in and what is left of grams whose df passed a step."""
        if self._sums.shape[1] < self.capacity:
            grown = np.zeros((3, self.capacity * 9 // 8 + 64))
            grown[:, : self._sums.shape[1]] = self._sums
            self._sums = grown
        lists = self.gram_lane.lists
        if not self._built:
            self._sums[:] = 0.0
            self._correct(list(lists.values()), None)
            self._built = True
            return
        if self._moved:
            moved = [p for t in self._moved if (p := lists.get(t)) is not None and p.settled != step(len(p.slots))]
            fresh = np.zeros(self.capacity, dtype=bool)
            fresh[list(self._fresh)] = True
            self._correct(moved, fresh)
        for batch in self._incoming:
            l = np.log(np.array([step(self.gram_lane.df(t)) for t in batch.terms]) + 0.5)[batch.numbers]
            self._add_sums(batch.slots, _A2[batch.tfs], l, None)
        self._moved.clear()
        self._incoming.clear()
        self._fresh.clear()

    def _correct(self, lists: list[Posting], fresh: NDArray[np.bool_] | None) -> None:
        """Add lists to the sums (fresh None), or exchange their old step for the one of now in all slots but fresh ones."""
        begin = 0
        while begin < len(lists):
            end, size = begin, 0
            while end < len(lists) and size < _CHUNK_POSTINGS:
                size += len(lists[end].slots)
                end += 1
            chunk = lists[begin:end]
            begin = end
            hit = Gathered([], chunk)
            now = [step(len(p.slots)) for p in chunk]
            l_now = np.repeat(np.log(np.array(now) + 0.5), hit.lengths)
            a2 = _A2[hit.tfs]
            if fresh is None:
                self._add_sums(hit.slots, a2, l_now, None)
            else:
                known = ~fresh[hit.slots]
                l_old = np.repeat(np.log(np.array([p.settled or 1 for p in chunk]) + 0.5), hit.lengths)
                self._add_sums(hit.slots[known], a2[known], l_now[known], l_old[known])
            for p, settled in zip(chunk, now, strict=True):
                p.settled = settled

    def _add_sums(self, slots: NDArray[np.uint32], a2: Floats, now: Floats, old: Floats | None) -> None:
        first, second = np.rint(a2 * now * _FIXED), np.rint(a2 * now * now * _FIXED)
        rows = [(1, first), (2, second)]
        if old is None:
            rows.append((0, a2 * _FIXED))
        else:  # what came in once goes out as exactly
            first -= np.rint(a2 * old * _FIXED)
            second -= np.rint(a2 * old * old * _FIXED)
        width = self._sums.shape[1]
        for row, values in rows:
            if len(slots) * 8 < width:
                np.add.at(self._sums[row], slots, values)
            else:
                self._sums[row] += _summed(slots, values, width)

    # --- keep -----------------------------------------------------------------------------------------------------
    def to_parts(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return (header, buffers): a flat form that `from_parts` reads; the sums are derived again."""
        buffers: list[bytes] = [self._lengths[: self.capacity].tobytes()]
        header: dict[str, Any] = {"capacity": self.capacity, "lanes": []}
        for lane in (self.word_lane, self.gram_lane):
            terms = list(lane.lists)
            lists = list(lane.lists.values())
            header["lanes"].append(len(terms))
            buffers.append("\n".join(terms).encode("utf-8"))
            buffers.append(np.array([len(p.slots) for p in lists], dtype=np.uint32).tobytes())
            buffers.append(b"".join([p.slots for p in lists]))
            buffers.append(b"".join([p.tfs for p in lists]))
        return header, buffers

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], buffers: Sequence[bytes], keep: NDArray[np.bool_]) -> LexicalIndex:
        """Return the index of the kept slots only. keep: bool[capacity]."""
        self = cls()
        self.capacity = int(header["capacity"])
        lengths = np.frombuffer(buffers[0], dtype=np.uint32) * keep
        self._lengths = lengths.astype(np.uint32)
        self.live = int(keep.sum())
        self.total_length = int(lengths.sum())
        whole = bool(keep.all())
        for number, lane in enumerate((self.word_lane, self.gram_lane)):
            raw_terms, raw_counts, raw_slots, raw_tfs = buffers[1 + 4 * number : 5 + 4 * number]
            terms = raw_terms.decode("utf-8").split("\n") if raw_terms else []
            counts = np.frombuffer(raw_counts, dtype=np.uint32).astype(np.int64)
            slots, tfs = np.frombuffer(raw_slots, dtype=np.uint32), np.frombuffer(raw_tfs, dtype=np.uint8)
            if not whole:
                stays = keep[slots]
                owner = np.repeat(np.arange(len(terms)), counts)[stays]
                counts = np.bincount(owner, minlength=len(terms))
                slots, tfs = slots[stays], tfs[stays]
            slot_bytes, tf_bytes = slots.tobytes(), tfs.tobytes()
            at = 0
            lists = lane.lists
            for term, count in zip(terms, counts.tolist(), strict=True):
                if count:
                    p = lists[term] = Posting()
                    p.slots.frombytes(slot_bytes[4 * at : 4 * (at + count)])
                    p.tfs.frombytes(tf_bytes[at : at + count])
                    at += count
        return self
