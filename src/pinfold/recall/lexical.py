"""Incremental postings with two lanes over them: BM25 of word terms, tf-idf cosine of character grams.

Documents are numbered slots chosen by the owner (`index.py` maps ids to slots and reuses freed ones). Terms are numbered
too, and a token's terms are looked up once: adding a text is a few array operations over numbers.

Invariants:
- a posting list holds exactly the live slots, ascending, so its length is the document frequency and nothing needs
  to be swept: an index that saw updates and deletes answers as one built afresh from what is left;
- sums kept per slot are integers (fixed point, in float64), so adding and taking away leave no rounding behind;
- what was read back from a cache stays one flat block; a list is copied out of it when it first changes;
- numpy sees growing lists only as short-lived copies: nothing here may keep a view while documents are added.

Gram vectors need their length under the *current* idf. idf(t) = ln(1 + (N - df + .5)/(df + .5)) = ln(N+1) - ln(df + .5),
so |d|^2 = A0 L^2 - 2 L A1 + A2 with L = ln(N+1), A0 = sum a^2, A1 = sum a^2 l, A2 = sum a^2 l^2, a = 1 + ln tf,
l = ln(step(df) + .5). N costs nothing; a gram whose df passed a step (about 8 %) corrects the sums of its slots.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pinfold.recall.analyse import TOKEN_CHARS, TOKENS_CACHED, analyse_token, tokens_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)

K1 = 1.2
B = 0.75
TF_MAX = 255
"""BM25 is flat long before this; it keeps a frequency in one byte."""
DEAD_TERMS_MIN = 4_096
"""After so many postings were taken away, and as many as there are grams, terms that nothing holds are dropped if they outnumber the others."""
_FIXED = float(1 << 20)
_CHUNK_POSTINGS = 1 << 20

_A = 1.0 + np.log(np.maximum(np.arange(TF_MAX + 1), 1))
_A[0] = 0.0
_A2 = np.rint(_A * _A * 1024.0) / 1024.0


def step(df: NDArray[np.integer[Any]]) -> Ints:
    """Return each df rounded down to its four leading bits: exact below 16, then steps of 6 to 12 %."""
    shift = np.maximum(np.frexp(df)[1] - 4, 0)
    down: Ints = (df.astype(np.int64) >> shift) << shift
    return down


def grown(values: NDArray[T], size: int) -> NDArray[T]:
    """Return values with room for at least size entries on the last axis, zero where new: the same array where it has it."""
    have = values.shape[-1]
    if size <= have:
        return values
    out = np.zeros((*values.shape[:-1], max(size, have + have // 4, 64)), dtype=values.dtype)
    out[..., :have] = values
    return out


def distinct(values: Ints) -> Ints:
    """Return the distinct values, ascending. np.unique imports numpy.ma, a tenth of a second."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=-1))]


class Batch(NamedTuple):
    """Texts that came in together, as postings: number of a term, slot, tf; ordered by term, then slot."""

    terms: Ints
    slots: NDArray[np.uint32]
    tfs: NDArray[np.uint8]


class Gathered(NamedTuple):
    """The postings of some terms, end to end: the terms' numbers, the length of each list, slots and tfs."""

    numbers: list[int]
    lengths: Ints
    slots: NDArray[np.uint32]
    tfs: NDArray[np.uint8]


class Lane:
    """term -> its number -> the live slots that hold it, ascending, with their frequencies."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.df = np.zeros(1, dtype=np.int64)
        self._lists: list[tuple[array[int], array[int]] | None] = []  # (slots, tfs); None: still in the block
        self._block: tuple[memoryview, memoryview] = (memoryview(b""), memoryview(b""))
        self._begins: list[int] = [0]

    def number_of(self, term: str) -> int:
        """Return the number of a term, a new one where it has none."""
        number = self.numbers.setdefault(term, len(self._lists))
        if number == len(self._lists):
            self._lists.append((array("I"), array("B")))
        return number

    def fit(self) -> None:
        """Make room for the numbers given by now, and one that is never given."""
        self.df = grown(self.df, len(self._lists) + 1)

    def add(self, batch: Batch) -> None:
        """Index the postings of texts whose slots are not in yet."""
        terms, slots, tfs = batch
        if not len(terms):
            return
        firsts = np.flatnonzero(np.diff(terms, prepend=-1))
        numbers = terms[firsts]
        ends = np.append(firsts[1:], len(terms))
        self.df[numbers] += ends - firsts
        slot_bytes, tf_bytes = memoryview(slots.tobytes()), memoryview(tfs.tobytes())
        heads = slots[firsts].tolist()
        begin = 0
        for number, end, head in zip(numbers.tolist(), ends.tolist(), heads, strict=True):
            mine, tfs_of = self._lists[number] or self._thaw(number)
            late = not mine or mine[-1] < head
            mine.frombytes(slot_bytes[4 * begin : 4 * end])
            tfs_of.frombytes(tf_bytes[begin:end])
            if not late:  # a freed slot is used again
                self._sort(number)
            begin = end

    def _sort(self, number: int) -> None:
        slots, tfs = (np.array(column) for column in self._lists[number] or ())
        order = np.argsort(slots, kind="stable")
        self._lists[number] = array("I", slots[order].tobytes()), array("B", tfs[order].tobytes())

    def remove(self, slot: int, numbers: Iterable[int]) -> None:
        """Take a slot out of the lists of distinct terms. ValueError where it is not in one of them."""
        for number in numbers:
            slots, tfs = self._lists[number] or self._thaw(number)
            at = bisect_left(slots, slot)
            if at == len(slots) or slots[at] != slot:
                raise ValueError(f"slot {slot} is not indexed under term {number}")
            del slots[at], tfs[at]
            self.df[number] -= 1

    def _thaw(self, number: int) -> tuple[array[int], array[int]]:
        """Copy a list out of the block, so that it can change."""
        slots, tfs = array("I"), array("B")
        slot_view, tf_view = self._views(number)
        slots.frombytes(slot_view)
        tfs.frombytes(tf_view)
        self._lists[number] = slots, tfs
        return slots, tfs

    def _views(self, number: int) -> tuple[Any, Any]:
        """Return the slots and tfs of a term as buffers, not to be kept."""
        mine = self._lists[number]
        if mine is not None:
            return mine
        begin, end = self._begins[number], self._begins[number + 1]
        return self._block[0][4 * begin : 4 * end], self._block[1][begin:end]

    def has(self, number: int, slot: int) -> bool:
        """Return whether a live slot holds a term. O(log df)."""
        mine = self._lists[number]
        found: Sequence[int] = self._views(number)[0].cast("I") if mine is None else mine[0]
        at = bisect_left(found, slot)
        return at < len(found) and found[at] == slot

    def slots_of(self, term: str) -> Ints:
        """Return the slots of a term, ascending."""
        return self.gather((term,)).slots.astype(np.int64)

    def frequencies(self, terms: Iterable[str]) -> Ints:
        """Return how many live slots hold each term."""
        numbers = self.numbers
        return self.df[[numbers.get(term, -1) for term in terms]]  # the last is never used

    def gather(self, terms: Iterable[str]) -> Gathered:
        """Return the lists of the distinct terms that occur, in the order given."""
        known = self.numbers
        return self.gather_numbers([number for term in dict.fromkeys(terms) if (number := known.get(term)) is not None])

    def gather_numbers(self, numbers: list[int]) -> Gathered:
        views = [self._views(number) for number in numbers]
        # bytes.join copies out of the arrays: a view would forbid the next append.
        slots = np.frombuffer(b"".join([slots for slots, _ in views]), dtype=np.uint32)
        tfs = np.frombuffer(b"".join([tfs for _, tfs in views]), dtype=np.uint8)
        return Gathered(numbers, self.df[numbers], slots, tfs)

    def kept(self) -> Ints:
        """Return the numbers of the terms that live slots hold, ascending."""
        return np.flatnonzero(self.df[: len(self._lists)])

    def compact(self) -> Ints:
        """Drop the terms that nothing holds. Return the old numbers of what is left, by new number."""
        kept = self.kept()
        names = list(self.numbers)
        self._lists = [self._lists[n] or self._thaw(n) for n in kept.tolist()]
        self.numbers = {names[n]: place for place, n in enumerate(kept.tolist())}
        self.df = self.df[kept]
        self.fit()
        self._block, self._begins = (memoryview(b""), memoryview(b"")), [0]
        return kept

    # --- keep -----------------------------------------------------------------------------------------------------
    def to_buffers(self) -> list[bytes]:
        """Return the live terms, how many slots each has, and the lists end to end."""
        names, kept = list(self.numbers), self.kept().tolist()
        views = [self._views(number) for number in kept]
        return [
            "\n".join([names[number] for number in kept]).encode(),
            self.df[kept].astype(np.uint32).tobytes(),
            b"".join([slots for slots, _ in views]),
            b"".join([tfs for _, tfs in views]),
        ]

    @classmethod
    def from_buffers(cls, buffers: Sequence[memoryview], keep: NDArray[np.bool_] | None) -> tuple[Lane, Ints]:
        """Return (lane, numbers of the terms that lost a slot), given `to_buffers` and the slots that still count (None: all)."""
        self = cls()
        names = str(buffers[0], "utf-8").split("\n") if len(buffers[0]) else []
        df = np.frombuffer(buffers[1], dtype=np.uint32).astype(np.int64)
        self.numbers = dict(zip(names, range(len(names)), strict=True))
        lost = np.zeros(0, dtype=np.int64)
        self._block = (memoryview(bytes(buffers[2])), memoryview(bytes(buffers[3])))  # not all that came with it
        if keep is not None:
            slots, tfs = np.frombuffer(buffers[2], dtype=np.uint32), np.frombuffer(buffers[3], dtype=np.uint8)
            stays = keep[slots]
            owner = np.repeat(np.arange(len(df)), df)
            lost = distinct(owner[~stays])
            df = np.bincount(owner[stays], minlength=len(df))
            self._block = (memoryview(slots[stays].tobytes()), memoryview(tfs[stays].tobytes()))
        self.df = df
        self._lists = [None] * len(names)
        self.fit()
        self._begins = [0, *np.cumsum(df).tolist()]
        return self, lost


class _Terms:
    """The numbers of the terms of each token, end to end."""

    def __init__(self) -> None:
        self.flat = array("I")
        self.begins = array("I", (0,))

    def add(self, numbers: Iterable[int]) -> None:
        self.flat.extend(numbers)
        self.begins.append(len(self.flat))

    def _spans(self, places: Ints) -> tuple[Ints, Ints]:
        begins = np.frombuffer(self.begins, dtype=np.uint32)
        first = begins[places].astype(np.int64)
        return first, begins[places + 1] - first

    def lengths(self, places: Ints, counts: Sequence[int]) -> Ints:
        """Return how many terms each text has, given the places of their tokens, end to end, and how many tokens each has."""
        texts = np.repeat(np.arange(len(counts)), counts)
        return np.bincount(texts, self._spans(places)[1], len(counts)).astype(np.int64)

    def of(self, places: Ints, slots: NDArray[np.uint32]) -> Batch:
        """Return the postings of texts, given the places of their tokens and the slot of each."""
        first, counts = self._spans(places)
        before = np.cumsum(counts) - counts
        flat = np.frombuffer(self.flat, dtype=np.uint32)
        terms = flat[np.repeat(first - before, counts) + np.arange(int(counts.sum()))].astype(np.int64)
        keys = (terms << 32) | np.repeat(slots, counts)
        keys.sort()
        heads = np.flatnonzero(np.diff(keys, prepend=-1))
        found = keys[heads]
        tfs = np.minimum(np.diff(heads, append=len(keys)), TF_MAX)
        return Batch(found >> 32, (found & 0xFFFFFFFF).astype(np.uint32), tfs.astype(np.uint8))


class _Tokens:
    """token -> its place in the tables of word terms and grams. A cache: it is emptied when it is full."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.words = _Terms()
        self.grams = _Terms()


def _summed(slots: NDArray[np.uint32], values: Floats, width: int) -> Floats:
    """Return the sum of values by slot; float64 even where there is nothing to sum."""
    return np.bincount(slots, values, width).astype(np.float64, copy=False)


def idf(df: Ints, n: int) -> Floats:
    """Return ln(1 + (n - df + .5)/(df + .5)) of each df; a term never seen has df 0."""
    out: Floats = math.log(n + 1) - np.log(df + 0.5)
    return out


def idf_of(df: int, n: int) -> float:
    """Return `idf` of one number."""
    return math.log(n + 1) - math.log(df + 0.5)


class LexicalIndex:
    """Both lanes over numbered slots. `capacity` is one more than the highest slot ever used."""

    def __init__(self) -> None:
        self.word_lane = Lane()
        self.gram_lane = Lane()
        self.capacity = 0
        self.live = 0
        self.total_length = 0
        self._tokens = _Tokens()
        self._lengths = np.zeros(0, dtype=np.uint32)
        self._sums = np.zeros((3, 0))
        self._settled = np.zeros(0, dtype=np.int64)  # by gram: the step that the sums know, 0 for none
        self._built = False
        self._removed = 0
        self._incoming: list[Batch] = []  # what is not in the sums yet
        self._fresh: set[int] = set()  # the slots of it
        self._moved: list[Ints] = []  # grams whose df changed since the sums were settled
        self._norms: Floats | None = None

    # --- change ---------------------------------------------------------------------------------------------------
    def add(self, slots: Sequence[int], texts: Sequence[str]) -> None:
        """Index texts under free slots, together: the more at once, the less each costs."""
        if not len(slots):
            return
        self.reserve(max(slots))
        places, counts = self._places_of(texts)
        owners = np.repeat(np.asarray(slots, dtype=np.uint32), counts)
        words, grams = self._tokens.words.of(places, owners), self._tokens.grams.of(places, owners)
        self.word_lane.add(words)
        self.gram_lane.add(grams)
        if self._built:
            self._incoming.append(grams)
            self._fresh.update(slots)
            self._moved.append(grams.terms[np.flatnonzero(np.diff(grams.terms, prepend=-1))])
        lengths = self._tokens.words.lengths(places, counts)
        self._lengths[slots] = lengths
        self.total_length += int(lengths.sum())
        self.live += len(slots)
        self._norms = None

    def remove(self, slot: int, text: str) -> None:
        """Forget a slot; text is what it was added with. ValueError where it was not."""
        if slot in self._fresh:
            self._settle()
        places, _ = self._places_of([text])
        owner = np.full(len(places), slot, dtype=np.uint32)
        words, grams = self._tokens.words.of(places, owner), self._tokens.grams.of(places, owner)
        self.word_lane.remove(slot, words.terms.tolist())
        self.gram_lane.remove(slot, grams.terms.tolist())
        if self._built:
            self._moved.append(grams.terms)
            if slot < self._sums.shape[1]:
                self._sums[:, slot] = 0.0
        self.total_length -= int(self._lengths[slot])
        self._lengths[slot] = 0
        self.live -= 1
        self._norms = None
        self._removed += len(words.terms) + len(grams.terms)
        if self._removed > DEAD_TERMS_MIN + len(self.gram_lane.numbers):  # then counting the dead costs little
            self._removed = 0
            if any(2 * len(lane.kept()) < len(lane.numbers) for lane in (self.word_lane, self.gram_lane)):
                self._compact()

    def _places_of(self, texts: Sequence[str]) -> tuple[Ints, list[int]]:
        """Return (the places of the tokens of all texts, how many tokens each has)."""
        if len(self._tokens.places) >= TOKENS_CACHED or len(self._tokens.grams.flat) >= 16 * TOKENS_CACHED:
            self._tokens = _Tokens()
        places = self._tokens.places
        known = places.get
        out: list[int] = []
        counts = []
        for text in texts:
            before = len(out)
            found = tokens_of(text)
            mine = [known(token, -1) for token in found]
            if -1 in mine:
                mine = [self._place_of(token) if place < 0 else place for token, place in zip(found, mine, strict=True)]
            out += mine
            counts.append(len(out) - before)
        self.word_lane.fit()
        self.gram_lane.fit()
        return np.array(out, dtype=np.int64), counts

    def _place_of(self, token: str) -> int:
        tokens = self._tokens
        place = tokens.places.get(token)
        if place is None:
            words, grams = analyse_token(token)
            tokens.words.add(map(self.word_lane.number_of, words))
            tokens.grams.add(map(self.gram_lane.number_of, grams))
            place = len(tokens.words.begins) - 2
            if len(token) <= TOKEN_CHARS:
                tokens.places[token] = place
        return place

    def _compact(self) -> None:
        self._settle()
        self.word_lane.compact()
        kept = self.gram_lane.compact()
        self._settled = grown(self._settled, int(kept.max(initial=-1)) + 1)[kept]
        self._tokens = _Tokens()

    def reserve(self, slot: int) -> None:
        """Make room up to a slot."""
        if slot >= self.capacity:
            self.capacity = slot + 1
            self._lengths = grown(self._lengths, self.capacity)

    # --- ask ------------------------------------------------------------------------------------------------------
    @property
    def lengths(self) -> Floats:
        """Return the number of word terms per slot; 0 where it is free."""
        return self._lengths[: self.capacity].astype(np.float64)

    def bm25(self, terms: Sequence[str]) -> Floats:
        """Return BM25 per slot, and a last 0; each distinct query term counts once."""
        return self.bm25_of(self.word_lane.gather(terms))

    def bm25_of(self, hit: Gathered) -> Floats:
        if not len(hit.slots):
            return np.zeros(self.capacity + 1)
        average = self.total_length / self.live
        tf = hit.tfs.astype(np.float64)
        norm = self._lengths[hit.slots] * (K1 * B / average)
        norm += K1 * (1.0 - B)
        norm += tf
        tf *= np.repeat(idf(hit.lengths, self.live) * (K1 + 1.0), hit.lengths)
        tf /= norm
        return _summed(hit.slots, tf, self.capacity + 1)

    def gram_cosine(self, terms: Sequence[str]) -> Floats:
        """Return per slot sum of idf^2 (1 + ln tf) over the query's distinct grams, divided by the slot's vector length; and a last 0.

        The query's own length is left out: it is the same for every slot (`gram_norm_of` gives it).
        """
        hit = self.gram_lane.gather(terms)
        if not len(hit.slots):
            return np.zeros(self.capacity + 1)
        weight = np.repeat(idf(hit.lengths, self.live) ** 2, hit.lengths)
        weight *= _A[hit.tfs]
        out = _summed(hit.slots, weight, self.capacity + 1)
        out[:-1] /= self.gram_norms()
        return out

    def gram_norm_of(self, terms: Sequence[str]) -> float:
        """Return the tf-idf length of a query's distinct grams, those never seen included."""
        return math.sqrt(float(np.square(idf(self.gram_lane.frequencies(dict.fromkeys(terms)), self.live)).sum()))

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
        self._sums = grown(self._sums, self.capacity)
        self._settled = grown(self._settled, len(self.gram_lane.numbers))
        if not self._built:
            self._sums[:] = 0.0
            self._settled[:] = 0
            self._correct(self.gram_lane.kept(), None)
            self._built = True
            return
        if self._moved:
            moved = distinct(np.concatenate(self._moved))
            passed = moved[self._settled[moved] != step(self.gram_lane.df[moved])]
            fresh = np.zeros(self.capacity, dtype=bool)
            fresh[list(self._fresh)] = True
            self._correct(passed, fresh)
        for batch in self._incoming:
            self._add_sums(batch.slots, _A2[batch.tfs], np.log(step(self.gram_lane.df[batch.terms]) + 0.5), None)
        self._moved.clear()
        self._incoming.clear()
        self._fresh.clear()

    def _correct(self, numbers: Ints, fresh: NDArray[np.bool_] | None) -> None:
        """Add the lists of grams to the sums (fresh None), or exchange their old step for the one of now in all slots but fresh ones."""
        ends = np.cumsum(self.gram_lane.df[numbers])
        begin = 0
        while begin < len(numbers):
            room = (int(ends[begin - 1]) if begin else 0) + _CHUNK_POSTINGS
            end = max(begin + 1, int(np.searchsorted(ends, room, side="right")))
            chunk = numbers[begin:end]
            begin = end
            hit = self.gram_lane.gather_numbers(chunk.tolist())
            now = step(hit.lengths)
            l_now = np.repeat(np.log(now + 0.5), hit.lengths)
            a2 = _A2[hit.tfs]
            if fresh is None:
                self._add_sums(hit.slots, a2, l_now, None)
            else:
                known = ~fresh[hit.slots]
                l_old = np.repeat(np.log(np.maximum(self._settled[chunk], 1) + 0.5), hit.lengths)
                self._add_sums(hit.slots[known], a2[known], l_now[known], l_old[known])
            self._settled[chunk] = now

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
        """Return (header, buffers): a flat form that `from_parts` reads."""
        self._settle()
        buffers = [self._lengths[: self.capacity].tobytes()]
        for lane in (self.word_lane, self.gram_lane):
            buffers += lane.to_buffers()
        buffers += [self._sums[:, : self.capacity].tobytes(), self._settled[self.gram_lane.kept()].tobytes()]
        return {"capacity": self.capacity}, buffers

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], buffers: Sequence[memoryview], keep: NDArray[np.bool_]) -> LexicalIndex:
        """Return the index of the slots that keep[slot] leaves, as it was kept by `to_parts`: what it took the buffers of."""
        self = cls()
        self.capacity = int(header["capacity"])
        self._lengths = np.frombuffer(buffers[0], dtype=np.uint32) * keep
        self.live = int(keep.sum())
        self.total_length = int(self._lengths.sum())
        some = None if keep.all() else keep
        self.word_lane, _ = Lane.from_buffers(buffers[1:5], some)
        self.gram_lane, lost = Lane.from_buffers(buffers[5:9], some)
        self._sums = np.frombuffer(buffers[9], dtype=np.float64).reshape(3, self.capacity) * keep
        self._settled = np.frombuffer(buffers[10], dtype=np.int64).copy()
        self._moved = [lost]
        self._built = True
        return self


PARTS = 11
"""How many buffers `to_parts` makes."""
