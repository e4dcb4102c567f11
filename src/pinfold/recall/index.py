"""The derived index of one session: documents in, ranked hits out.

Invariants:
- it is a function of the live documents (and their order inside groups): updates, deletes and slot numbers leave no trace;
- a slot freed by a delete is used again, so nothing grows but with what is alive;
- words and grams answer at once; vectors follow (inline embedders at the next search, others by `embed_pending`).

One thread at a time: the owner holds a lock around changes and searches.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinfold.errors import Unavailable
from pinfold.recall import rank
from pinfold.recall.analyse import ANALYSER_VERSION, Analysed, analyse, normalise, plain
from pinfold.recall.confidence import Judge, highest, is_unspaced
from pinfold.recall.document import ROLES, Answer, Document, Hit, Part, indexed_text
from pinfold.recall.embed import Embedder, open_embedder, vector_key
from pinfold.recall.lexical import Floats, LexicalIndex, idf
from pinfold.recall.rank import Adjacency, Mask, Weights
from pinfold.recall.vectors import SKETCH_ABOVE, Names, VectorStore, sketch_kept, top_slots

CACHE_FORMAT = 1
_MAGIC = b"pinfold-recall\n"
_CHECK_BYTES = 16
_EMBED_BATCH = 256
_INDEX_BATCH = 2_048
POOL_ALL_UP_TO = 20_000
POOL = 4_096
"""In larger stores the context of a memory (neighbours, group, speaker) is worked out for this many best direct scores."""
NO_TIME = np.iinfo(np.int64).min
DAY_MS = 86_400_000


_NO_MEANING: tuple[NDArray[np.int64], Floats, float] = (np.zeros(0, dtype=np.int64), np.zeros(0), 0.0)


class Filter(msgspec.Struct, frozen=True):
    """Which documents may answer; None: all. Scores do not depend on it. where: called in rank order, as far as needed."""

    ids: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    groups: frozenset[str | None] | None = None
    speakers: frozenset[str] | None = None
    actors: frozenset[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    where: Callable[[Document], bool] | None = None

    def accepts(self, d: Document) -> bool:
        """Return whether a document passes. since_ms is inclusive, until_ms is not; what has no time fails either."""
        return (
            (self.ids is None or d.id in self.ids)
            and (self.kinds is None or d.kind in self.kinds)
            and (self.groups is None or d.group in self.groups)
            and (self.speakers is None or (d.speaker or d.role or "") in self.speakers)
            and (self.actors is None or d.actor in self.actors)
            and (self.since_ms is None or (d.at_ms is not None and d.at_ms >= self.since_ms))
            and (self.until_ms is None or (d.at_ms is not None and d.at_ms < self.until_ms))
            and (self.where is None or self.where(d))
        )


EVERYTHING = Filter()


class _Named:
    """The ids of some slots, by their place among them, without making a list of them."""

    __slots__ = ("_ids", "_slots")

    def __init__(self, ids: list[str], slots: NDArray[np.int64]) -> None:
        self._ids, self._slots = ids, slots

    def __getitem__(self, place: int, /) -> str:
        return self._ids[int(self._slots[place])]


class _Column:
    """A growing array with one value a slot."""

    __slots__ = ("_data", "_empty")

    def __init__(self, dtype: Any, empty: Any) -> None:
        self._data = np.full(64, empty, dtype=dtype)
        self._empty = empty

    def __getitem__(self, slot: int) -> Any:
        return self._data[slot].item()

    def __setitem__(self, slot: int, value: Any) -> None:
        if slot >= len(self._data):
            grown = np.full(max(slot + 1, len(self._data) * 3 // 2), self._empty, dtype=self._data.dtype)
            grown[: len(self._data)] = self._data
            self._data = grown
        self._data[slot] = value

    def upto(self, capacity: int) -> NDArray[Any]:
        return self._data[:capacity]


class Scored(msgspec.Struct):
    """The named parts of one query's scores. Arrays run over `slots` (ascending): all slots, or the pool of a large store."""

    slots: NDArray[np.int64]
    ids: Names
    total: Floats
    """What ranks; the best is 1."""
    direct: Floats
    """Words and grams fused: what confidence rests on."""
    lanes: dict[str, Floats]
    weights: dict[str, float]
    """Lane -> its weight / its maximum over the store."""
    best_gram: float
    """The best value in the gram lane, over the store."""
    gains: dict[str, Floats] = {}
    equal: float = 1.0
    grouped: Mask | None = None
    who: Floats | None = None
    scale: float = 1.0
    spread: dict[str, tuple[float, dict[int, float]]] = {}
    note: str = ""


class RecallIndex:
    """Words, grams, vectors, groups, names of a set of documents, kept in step with `put` and `delete`.

    embedder: "static" (default), "none", "hash", "minilm", a URL, an Embedder or a callable; see `embed.open_embedder`.
    """

    def __init__(self, embedder: str | Embedder | Callable[[list[str]], Any] | None = "static", weights: Weights = rank.DEFAULT_WEIGHTS) -> None:
        self.embedder = open_embedder(embedder)
        self.weights = weights
        self.lexical = LexicalIndex()
        self.vectors: VectorStore | None = None
        self.ids: list[str] = []
        self._documents: list[Document | None] = []
        self._slot_of: dict[str, int] = {}
        self._free: list[int] = []
        self._before, self._after = _Column(np.int32, -1), _Column(np.int32, -1)
        self._group, self._speaker, self._kind = _Column(np.int32, -1), _Column(np.int32, -1), _Column(np.int32, -1)
        self._asks, self._at = _Column(bool, False), _Column(np.int64, NO_TIME)
        self._groups: dict[str, int] = {}
        self._tails: list[int] = []
        self._group_sizes: list[int] = []
        self._free_groups: list[int] = []
        self._speakers: dict[tuple[str, str], int] = {}
        self._speaker_sizes: list[int] = []
        self._speaker_tokens: dict[str, set[int]] = {}
        self._kinds: dict[str, int] = {}
        self._pinned = 0
        self._group_lengths: Floats | None = None
        self._names = rank.NameBook()
        self._exact: dict[str, set[int]] = {}
        self._unindexed: dict[int, None] = {}  # slots whose words are not in the postings yet
        self._pending: dict[int, None] = {}  # slots that have no vector yet
        self._piece_df = np.zeros(getattr(self.embedder, "pieces_known", 0), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, id: object) -> bool:
        return id in self._slot_of

    def get(self, id: str) -> Document | None:
        """Return the document of an id, or None."""
        slot = self._slot_of.get(id)
        return None if slot is None else self._documents[slot]

    @property
    def unindexed(self) -> int:
        """How many documents have been put but not analysed yet."""
        return len(self._unindexed)

    @property
    def waiting(self) -> int:
        """How many documents have no vector yet, 0 without an embedder."""
        return 0 if self.embedder is None else len(self._pending)

    def documents(self) -> list[Document]:
        """Return the documents, by slot."""
        return [document for document in self._documents if document is not None]

    # --- change ---------------------------------------------------------------------------------------------------
    def put(self, document: Document) -> bool:
        """Add a document, or replace the one with its id (its place in its group stays). Return whether it was new."""
        self._group_lengths = None
        slot = self._slot_of.get(document.id)
        if slot is None:
            self._insert(document)
            if len(self._unindexed) >= _INDEX_BATCH:
                self.catch_up()
            return True
        old = self._documents[slot]
        assert old is not None
        if old == document:
            return False
        before, after = indexed_text(old), indexed_text(document)
        if before != after:
            if slot not in self._unindexed:
                self.lexical.remove(slot, analyse(before))
                self._unindexed[slot] = None
            self._forget_vector(slot, before)
            self._pending[slot] = None
        self._undescribe(slot, old)
        if old.group != document.group:
            self._unlink(slot, old)
            self._link(slot, document)
        self._describe(slot, document)
        return False

    def delete(self, id: str) -> bool:
        """Forget a document, at once and wholly. Return whether it was there."""
        slot = self._slot_of.pop(id, None)
        if slot is None:
            return False
        self._group_lengths = None
        document = self._documents[slot]
        assert document is not None
        text = indexed_text(document)
        if slot in self._unindexed:
            del self._unindexed[slot]
        else:
            self.lexical.remove(slot, analyse(text))
        self._forget_vector(slot, text)
        self._undescribe(slot, document)
        self._unlink(slot, document)
        self._documents[slot] = None
        self.ids[slot] = ""
        for column in (self._speaker, self._kind):
            column[slot] = -1
        self._asks[slot], self._at[slot] = False, NO_TIME
        heapq.heappush(self._free, slot)
        return True

    def catch_up(self) -> None:
        """Index what was put since the last search: together, which costs a third of doing it one by one."""
        if self.ids:
            self.lexical.reserve(len(self.ids) - 1)
        if self._unindexed:
            slots = list(self._unindexed)
            self._unindexed.clear()
            self.lexical.add_many(slots, [analyse(self._text(slot)) for slot in slots])

    def _insert(self, document: Document, slot: int | None = None, *, indexed: bool = False) -> None:
        if slot is None:
            slot = heapq.heappop(self._free) if self._free else len(self.ids)
        while len(self.ids) <= slot:
            self.ids.append("")
            self._documents.append(None)
        self.ids[slot] = document.id
        self._slot_of[document.id] = slot
        if not indexed:
            self._unindexed[slot] = None
            self._pending[slot] = None
        self._link(slot, document)
        self._describe(slot, document)

    def _describe(self, slot: int, document: Document) -> None:
        self._documents[slot] = document
        self._asks[slot] = rank.asks(document.text, len(indexed_text(document)))
        self._at[slot] = NO_TIME if document.at_ms is None else document.at_ms
        self._kind[slot] = self._kinds.setdefault(document.kind, len(self._kinds))
        name = document.speaker if document.speaker and document.speaker not in ROLES else ""
        role = document.role or ("" if name else document.speaker or "")
        known = self._speakers.get((name, role))
        if known is None:
            known = self._speakers[name, role] = len(self._speakers)
            self._speaker_sizes.append(0)
            for token in plain(name):
                self._speaker_tokens.setdefault(token, set()).add(known)
        self._speaker[slot] = known
        self._speaker_sizes[known] += 1
        self._pinned += document.pinned
        if document.name:
            self._exact.setdefault(_exact_key(document.name), set()).add(slot)
            self._names.add(normalise(document.name), slot)

    def _undescribe(self, slot: int, document: Document) -> None:
        self._speaker_sizes[self._speaker[slot]] -= 1
        self._pinned -= document.pinned
        if document.name:
            _take(self._exact, _exact_key(document.name), slot)
            self._names.remove(normalise(document.name), slot)

    def _link(self, slot: int, document: Document) -> None:
        if document.group is None:
            self._group[slot] = self._before[slot] = self._after[slot] = -1
            return
        number = self._groups.get(document.group)
        if number is None:
            if self._free_groups:
                number = self._free_groups.pop()
            else:
                number = len(self._tails)
                self._tails.append(-1)
                self._group_sizes.append(0)
            self._groups[document.group] = number
        tail = self._tails[number]
        self._group[slot], self._before[slot], self._after[slot] = number, tail, -1
        if tail >= 0:
            self._after[tail] = slot
        self._tails[number] = slot
        self._group_sizes[number] += 1

    def _unlink(self, slot: int, document: Document) -> None:
        if document.group is None:
            return
        number, before, after = self._group[slot], self._before[slot], self._after[slot]
        if before >= 0:
            self._after[before] = after
        if after >= 0:
            self._before[after] = before
        else:
            self._tails[number] = before
        self._group_sizes[number] -= 1
        if not self._group_sizes[number]:
            self._free_groups.append(number)
            del self._groups[document.group]
        self._group[slot] = self._before[slot] = self._after[slot] = -1

    # --- vectors --------------------------------------------------------------------------------------------------
    def _forget_vector(self, slot: int, text: str) -> None:
        if slot in self._pending:
            del self._pending[slot]
            return
        if self.vectors is not None:
            self.vectors.drop([slot])
        if len(self._piece_df):
            self._piece_df[np.unique(self._pieces(text))] -= 1

    def _pieces(self, text: str) -> NDArray[np.int64]:
        return np.array(self.embedder.pieces(normalise(text)), dtype=np.int64)  # type: ignore[union-attr]

    def pending(self) -> list[tuple[str, str, str]]:
        """Return (id, key, text) of the documents that have no vector yet; key is what a cache of vectors goes by."""
        if self.embedder is None:
            return []
        rows = ((self.ids[slot], self._text(slot)) for slot in self._pending)
        return [(id, vector_key(self.embedder.fingerprint, text), text) for id, text in rows]

    def set_vectors(self, ids: Sequence[str], vectors: NDArray[np.floating]) -> None:
        """Store vectors made elsewhere (a cache, another process): float[n, dim] of the embedder's fingerprint."""
        if self.embedder is None or not len(ids):
            return
        slots = [self._slot_of[id] for id in ids]
        if len(self._piece_df):
            for slot in slots:
                if slot in self._pending:
                    self._piece_df[np.unique(self._pieces(self._text(slot)))] += 1
        if self.vectors is None:
            self.vectors = VectorStore(int(np.atleast_2d(vectors).shape[1]))
        self.vectors.put(slots, vectors)
        for slot in slots:
            self._pending.pop(slot, None)

    def embed_pending(self, limit: int | None = None) -> int:
        """Embed up to limit documents that have no vector yet; return how many are left. Resumable: it just goes on."""
        if self.embedder is None:
            return 0
        todo = list(self._pending)[: limit if limit is not None else len(self._pending)]
        for begin in range(0, len(todo), _EMBED_BATCH):
            batch = todo[begin : begin + _EMBED_BATCH]
            texts = [self._text(slot) for slot in batch]
            if len(self._piece_df):
                pieces = [self.embedder.pieces(text) for text in texts]  # type: ignore[attr-defined]
                rows = self.embedder.embed_pieces(pieces)  # type: ignore[attr-defined]
                seen = np.fromiter((p for row in pieces for p in set(row)), dtype=np.int64)
                self._piece_df += np.bincount(seen, minlength=len(self._piece_df))
            else:
                rows = self.embedder.embed(texts)
            if self.vectors is None:
                self.vectors = VectorStore(self.embedder.dim)
            self.vectors.put(batch, rows)
            for slot in batch:
                del self._pending[slot]
        return len(self._pending)

    def _text(self, slot: int) -> str:
        document = self._documents[slot]
        assert document is not None
        return normalise(indexed_text(document))

    # --- ask ------------------------------------------------------------------------------------------------------
    def search(
        self,
        query: str,
        k: int = 10,
        *,
        filter: Filter = EVERYTHING,
        edges: Adjacency | None = None,
        now_ms: int | None = None,
        explain: bool = False,
        collapse: bool = True,
    ) -> Answer:
        """Return the best k hits and how sure it is that the store holds an answer.

        edges: stored edges to spread along. now_ms: apply decay as of then (None: no decay). collapse: documents of the
        same kind, speaker, name and words become one hit with a count. An exact id or name is always first.
        """
        query = normalise(query)
        asked = analyse(query)
        exact = self._exact_slots(query)
        empty = not asked.words and not asked.grams
        unembedded = 0 if self.embedder is None else len(self._pending)
        if (empty and not exact) or not self._slot_of:
            note = "the query has no word to look for" if empty else "nothing is stored"
            return Answer((), 0.0, low=True, miss=not is_unspaced(query), empty=empty, note=note)
        self.catch_up()
        if self.embedder is not None and getattr(self.embedder, "inline", False):
            self.embed_pending()
            unembedded = 0
        mask = self._mask(filter, len(self.ids))
        scored = self._score(query, asked, edges, mask, exact)
        order = self._decayed(scored, now_ms)
        if exact:
            order = order + np.isin(scored.slots, list(exact)) * (order.max() + 1.0)
        order = np.round(order, 9)  # sums in another order differ in the last bits, which must not rank
        judge = Judge(self.lexical, asked.words, asked.grams)
        if scored.direct.max(initial=0.0) > 0:
            judge.set_best(int(scored.slots[top_slots(scored.direct, 1, scored.ids)[0]]), scored.best_gram)
        hits = self._hits(order, scored, judge, exact, max(0, k), filter, mask, explain, collapse)
        sure = highest([1.0] * bool(exact))
        if not exact and scored.direct.max(initial=0.0) > 0:
            best = top_slots(scored.direct, 1, scored.ids)[0]
            sure = judge.confidence(int(scored.slots[best]), scored.best_gram)
        low = sure < 0.5
        unsaid = low and is_unspaced(query)
        return Answer(tuple(hits), max(sure, 0.5) if unsaid else sure, low=low, miss=low and not unsaid, note=scored.note, unembedded=unembedded)

    def confidences(self, query: str, ids: Collection[str]) -> dict[str, float]:
        """Return how directly each of these documents answers the query, 0..1, as a hit's confidence. Unknown ids are left out."""
        query = normalise(query)
        asked = analyse(query)
        self.catch_up()
        words, grams = self.lexical.bm25_of(self.lexical.word_lane.gather(asked.words)), self.lexical.gram_cosine(asked.grams)
        direct = rank.fuse([(1.0, words), (self.weights.grams, grams)])
        judge = Judge(self.lexical, asked.words, asked.grams)
        if direct.max(initial=0.0) > 0:
            judge.set_best(top_slots(direct, 1, self.ids)[0], float(grams.max(initial=0.0)))
        exact = self._exact_slots(query)
        slots = {id: slot for id in ids if (slot := self._slot_of.get(id)) is not None}
        return {id: 1.0 if slot in exact else judge.own(slot, float(grams[slot])) for id, slot in slots.items()}

    def _exact_slots(self, query: str) -> set[int]:
        slots = set(self._exact.get(_exact_key(query), ()))
        by_id = self._slot_of.get(query.strip())
        return slots if by_id is None else slots | {by_id}

    def _score(self, query: str, asked: Analysed, edges: Adjacency | None, mask: Mask | None, exact: Collection[int]) -> Scored:
        w, lexical = self.weights, self.lexical
        gathered = lexical.word_lane.gather(asked.words)
        words = lexical.bm25_of(gathered)
        grams = lexical.gram_cosine(asked.grams)
        direct = rank.fuse([(1.0, words), (w.grams, grams)])
        best_gram = float(grams.max(initial=0.0))
        weights = {name: share / top for name, share, top in (("words", 1.0, float(words.max(initial=0.0))), ("grams", w.grams, best_gram)) if top > 0}
        full = len(direct) <= POOL_ALL_UP_TO
        front = np.zeros(0, dtype=np.int64) if full else _best(direct, POOL)
        near, meaning, weight, note = *_NO_MEANING, ""
        if asked.words or asked.grams:
            try:
                near, meaning, weight = self._meaning(query, direct, front)
            except Unavailable as error:  # words and grams still answer
                note = f"by words alone: {error.message}"
        top = float(meaning.max(initial=0.0))
        if top > 0:
            weights["meaning"] = weight / top
        slots = np.arange(len(direct)) if full else self._pool(direct, front, near, meaning * weights.get("meaning", 0.0), mask, exact)
        lanes = {"words": words, "grams": grams}
        if not full:
            direct, lanes = direct[slots], {name: lane[slots] for name, lane in lanes.items()}
        s = direct
        if top > 0:
            lane = lanes["meaning"] = np.zeros(len(slots))
            at = np.searchsorted(slots, near)
            inside = at < len(slots)
            inside[inside] = slots[at[inside]] == near[inside]
            lane[at[inside]] = meaning[inside]
            s = direct + lane * weights["meaning"]
        ids: Names = self.ids if full else _Named(self.ids, slots)
        scored = Scored(slots=slots, ids=ids, total=s, direct=direct, lanes=lanes, weights=weights, best_gram=best_gram, note=note)
        y = s
        group_of = self._group.upto(len(self.ids))[slots]
        if self._groups:
            if w.neighbour:
                before, after = self._before.upto(len(self.ids)), self._after.upto(len(self.ids))
                if full:
                    b, a = before, after
                else:
                    place = np.full(len(self.ids) + 1, -1, dtype=np.int32)  # the last one answers for -1
                    place[slots] = np.arange(len(slots), dtype=np.int32)
                    b, a = place[before[slots]], place[after[slots]]
                gain = rank.spread_neighbours(s, b, a, self._asks.upto(len(self.ids))[slots], w.neighbour, w.carry)
                scored.gains["neighbour"] = gain
                y = s + gain
            if w.group:
                gain = rank.group_prior(y, rank.group_scores(gathered, self._group.upto(len(self.ids)), self._lengths_of_groups()), group_of, w.group)
                scored.gains["group"] = gain
                y = y + gain
            if y is not s and len(self) > sum(self._group_sizes):
                scored.equal = rank.equaliser(s, y, group_of, w.equalise_over)
                scored.grouped = group_of >= 0
                y = np.where(scored.grouped, y, s * scored.equal)
        scored.who = self._who(query, slots)
        if scored.who is not None:
            y = y * scored.who
        best = float(y.max(initial=0.0))
        if best <= 0:
            scored.total = y
            return scored
        scored.scale = 1.0 / best
        scored.total = self._spread(y / best, scored, edges)
        return scored

    def _pool(
        self, direct: Floats, front: NDArray[np.int64], near: NDArray[np.int64], meaning: Floats, mask: Mask | None, exact: Collection[int]
    ) -> NDArray[np.int64]:
        """Return the slots a large store works on, ascending: the best by words, grams and meaning, two neighbours either way.

        What is best by all three is best by words and grams (front) or has a meaning at all (near): no third sort of all.
        """
        marked = np.zeros(len(direct), dtype=bool)
        marked[front] = True
        marked[near] = True
        union = np.flatnonzero(marked)
        s = direct[union]
        s[np.searchsorted(union, near)] += meaning
        chosen = np.zeros(len(direct) + 1, dtype=bool)  # the last one answers for -1
        chosen[union[_best(s, POOL)]] = True
        chosen[list(exact)] = True
        if mask is not None:
            chosen[_best(np.where(mask[: len(direct)], direct, 0.0), POOL // 4)] = True
            chosen[near[mask[near]]] = True
        pool = np.flatnonzero(chosen[:-1])
        for _ in range(2 if self._groups and self.weights.neighbour else 0):
            chosen[self._before.upto(len(direct))[pool]] = True
            chosen[self._after.upto(len(direct))[pool]] = True
            pool = np.flatnonzero(chosen[:-1])
        return pool

    def _lengths_of_groups(self) -> Floats:
        if self._group_lengths is None:
            group_of = self._group.upto(len(self.ids))
            inside = group_of >= 0
            self._group_lengths = np.bincount(group_of[inside], self.lexical.lengths[inside], len(self._tails)).astype(np.float64)
        return self._group_lengths

    def _meaning(self, query: str, direct: Floats, front: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats, float]:
        """Return (slots ascending, their centred cosines, lane weight); nothing where the lane is off.

        front: where direct matches are best, in a store so large that only likely slots are looked at.
        """
        embedder, capacity, off = self.embedder, len(direct), _NO_MEANING
        if embedder is None or self.vectors is None or not len(self.vectors):
            return off
        weight = self.weights.dense if self.weights.dense is not None else float(getattr(embedder, "lane_weight", 1.0))
        if not weight or (not getattr(embedder, "reads_unspaced", True) and is_unspaced(query)):
            return off
        if len(self._piece_df):
            vector = embedder.embed_query(query, lambda pieces: idf(self._piece_df[pieces], len(self)))  # type: ignore[attr-defined]
        else:
            vector = embedder.embed([query])[0]
        if not np.any(vector):
            return off
        self.vectors.reserve(capacity)
        mean = self.vectors.mean_cosine(vector)
        if capacity <= SKETCH_ABOVE:
            lane = rank.centred(self.vectors.cosines(vector, capacity), mean)
            lane[~self.vectors.filled[:capacity]] = 0.0
            return np.arange(capacity), lane, weight
        kept = sketch_kept(len(self.vectors))
        chosen = np.zeros(len(self.vectors.filled), dtype=bool)
        chosen[self.vectors.near(vector, kept)] = True
        chosen[front if len(front) else _best(direct, kept)] = True
        near = np.flatnonzero(chosen & self.vectors.filled)
        return near, rank.centred(self.vectors.cosines_at(vector, near), mean), weight

    def _who(self, query: str, slots: NDArray[np.int64]) -> Floats | None:
        meant: set[int] = set()
        for token in set(plain(query)):
            meant |= self._speaker_tokens.get(token, set())
        if rank.wants_first_person(query):
            meant |= {number for (_, role), number in self._speakers.items() if role == "user"}
        said = sum(self._speaker_sizes[number] for number in meant)
        if not self.weights.who or said in (0, len(self)):
            return None  # nobody, or everybody: it tells nothing apart
        table = np.zeros(len(self._speakers) + 1, dtype=bool)  # the last one answers for -1
        table[list(meant)] = True
        return rank.who_factor(table[self._speaker.upto(len(self.ids))[slots]], self.weights.who)

    def _spread(self, y: Floats, scored: Scored, edges: Adjacency | None) -> Floats:
        w = self.weights
        best = rank.top_k(y, w.seeds, scored.ids)
        total = float(y[best].sum())
        seeds = [(int(scored.slots[i]), float(y[i]) / total) for i in best]
        reached: dict[str, tuple[float, dict[int, float]]] = {}
        if len(self._names) and w.mention:
            memo: dict[tuple[str, ...], int] = {}
            found = rank.spread_mentions(seeds, self._mention_text, self._names, lambda name: self._mentions(name, memo))
            reached["mention"] = (w.mention, found)
        if edges is not None and w.edge:
            linked, _ = rank.spread_edges([(self.ids[slot], share) for slot, share in seeds], edges)
            reached["edge"] = (w.edge, {self._slot_of[id]: amount for id, amount in linked.items() if id in self._slot_of})
        if not reached:
            return y
        y = self._widen(y, scored, {slot for _, found in reached.values() for slot in found})
        for name, (weight, found) in reached.items():
            at = np.searchsorted(scored.slots, np.array(list(found), dtype=np.int64)).tolist()
            scored.spread[name] = (weight, dict(zip(at, found.values(), strict=True)))
        return rank.scaled(rank.add_spread(y, list(scored.spread.values())))

    def _widen(self, y: Floats, scored: Scored, reached: Collection[int]) -> Floats:
        """Return y over the pool and the slots that spreading reached outside it (they matched too little to be in it)."""
        if len(scored.slots) == len(self.ids):
            return y
        wanted = np.array(sorted(reached), dtype=np.int64)
        at = np.searchsorted(scored.slots, wanted)
        new = wanted[scored.slots[np.minimum(at, len(scored.slots) - 1)] != wanted]
        if not len(new):
            return y
        slots = np.concatenate((scored.slots, new))
        order = np.argsort(slots)
        scored.slots = slots[order]
        scored.ids = _Named(self.ids, scored.slots)

        def widened(values: NDArray[Any], fill: float) -> NDArray[Any]:
            return np.concatenate((values, np.full(len(new), fill, dtype=values.dtype)))[order]

        scored.direct = widened(scored.direct, 0.0)
        scored.lanes = {name: widened(lane, 0.0) for name, lane in scored.lanes.items()}
        scored.gains = {name: widened(gain, 0.0) for name, gain in scored.gains.items()}
        if scored.who is not None:
            scored.who = widened(scored.who, 1.0)
        if scored.grouped is not None:
            scored.grouped = widened(scored.grouped, True)
        wider: Floats = widened(y, 0.0)
        return wider

    def _mention_text(self, slot: int) -> str:
        document = self._documents[slot]
        assert document is not None
        return f"{document.name}\n{document.text}" if document.name else document.text

    def _mentions(self, name: tuple[str, ...], memo: dict[tuple[str, ...], int]) -> int:
        """Return how many memories hold all the terms of a name."""
        if name not in memo:
            lane = self.lexical.word_lane
            terms = sorted(set(analyse(" ".join(name)).words), key=lambda t: (lane.df(t), t))
            common: NDArray[np.int64] | None = None
            for term in terms:
                slots = lane.slots_of(term)
                common = slots if common is None else np.intersect1d(common, slots, assume_unique=True)
                if not len(common):
                    break
            memo[name] = 1 if common is None else max(1, len(common))
        return memo[name]

    def _decayed(self, scored: Scored, now_ms: int | None) -> Floats:
        w = self.weights
        if now_ms is None or not w.decay_per_day:
            return scored.total
        at = self._at.upto(len(self.ids))[scored.slots]
        # In whole days (UTC): which of two equals was written a moment later is no reason.
        factor = rank.decay_factors((now_ms // DAY_MS - at // DAY_MS).astype(np.float64), w.decay_per_day, w.decay_floor)
        factor[at == NO_TIME] = 1.0
        if self._pinned:
            pinned = [(d := self._documents[slot]) is not None and d.pinned for slot in scored.slots.tolist()]
            factor[np.array(pinned, dtype=bool)] = 1.0
        return scored.total * factor

    def _mask(self, filter: Filter, capacity: int) -> Mask | None:
        """Return the slots that may pass, as far as columns tell; `Filter.accepts` has the last word."""
        if filter is EVERYTHING:
            return None
        mask = np.ones(capacity, dtype=bool)
        if filter.ids is not None:
            mask[:] = False
            mask[[self._slot_of[id] for id in filter.ids if id in self._slot_of]] = True
        if filter.kinds is not None:
            mask &= np.isin(self._kind.upto(capacity), [self._kinds[kind] for kind in filter.kinds if kind in self._kinds])
        if filter.groups is not None:
            numbers = [-1 if group is None else self._groups.get(group, -2) for group in filter.groups]
            mask &= np.isin(self._group.upto(capacity), numbers)
        at = self._at.upto(capacity)
        if filter.since_ms is not None:
            mask &= at >= filter.since_ms
        if filter.until_ms is not None:
            mask &= (at < filter.until_ms) & (at != NO_TIME)
        return mask

    def _hits(
        self,
        order: Floats,
        scored: Scored,
        judge: Judge,
        exact: Collection[int],
        k: int,
        filter: Filter,
        mask: Mask | None,
        explain: bool,
        collapse: bool,
    ) -> list[Hit]:
        inside = None if mask is None else mask[scored.slots]
        wanted = k + 4
        while True:
            ranked = rank.top_k(order, wanted, scored.ids, inside)
            leaders: dict[object, int] = {}
            copies: dict[int, list[str]] = {}
            for i in ranked:
                document = self._documents[int(scored.slots[i])]
                if document is None or not filter.accepts(document):
                    continue
                key: object = _same_words(document) if collapse else i
                leader = leaders.get(key)
                if leader is not None:
                    copies[leader].append(document.id)
                elif len(leaders) < k:
                    leaders[key] = i
                    copies[i] = []
            if len(leaders) >= k or len(ranked) < wanted:
                break
            wanted *= 4
        return [self._hit(i, order, scored, judge, exact, sorted(copies[i]), explain) for i in leaders.values()]

    def _hit(self, i: int, order: Floats, scored: Scored, judge: Judge, exact: Collection[int], copies: list[str], explain: bool) -> Hit:
        slot = int(scored.slots[i])
        parts = self._parts(i, scored)
        why = tuple(part.name for part in parts if part.amount > 0)
        score = min(1.0, float(order[i]))
        if slot in exact:
            why, score, confidence = ("exact", *why), 1.0, 1.0
        else:
            confidence = judge.own(slot, float(scored.lanes["grams"][i]))
            lost = float(order[i] - scored.total[i])
            if lost < -1e-9:
                parts.append(Part("decay", lost))
        return Hit(self.ids[slot], score, confidence, why, 1 + len(copies), tuple(copies), tuple(parts) if explain else ())

    def _parts(self, i: int, scored: Scored) -> list[Part]:
        """Return what each part gave a slot; they add up to its score before the last scaling."""
        inside = scored.grouped is None or bool(scored.grouped[i])
        lift = scored.scale * (1.0 if inside else scored.equal)
        parts = [Part(name, share * float(scored.lanes[name][i]) * lift) for name, share in scored.weights.items() if scored.lanes[name][i] > 0]
        parts.extend(Part(name, float(gain[i]) * scored.scale) for name, gain in scored.gains.items() if inside and gain[i] > 0)
        if scored.who is not None and scored.who[i] > 1.0 and parts:
            parts.append(Part("who", sum(part.amount for part in parts) * (float(scored.who[i]) - 1.0)))
        for name, (weight, reached) in scored.spread.items():
            top = max(reached.values(), default=0.0)
            if top > 0 and i in reached:
                parts.append(Part(name, weight * reached[i] / top))
        return parts

    # --- keep -----------------------------------------------------------------------------------------------------
    def to_bytes(self) -> bytes:
        """Return the lexical lanes and vectors as bytes for a cache: checksummed, droppable, read by `open_index`."""
        self.catch_up()
        lexical, buffers = self.lexical.to_parts()
        marks = b"".join(_mark_of(d) if d is not None else bytes(8) for d in self._documents)
        buffers += [marks, "\n".join(self.ids).encode("utf-8", "surrogatepass")]
        filled = np.zeros(0, dtype=np.int64)
        if self.vectors is not None:
            filled = np.flatnonzero(self.vectors.filled)
            codes, scales = self.vectors.codes_of(filled)
            buffers += [filled.tobytes(), codes.tobytes(), scales.tobytes(), np.array(sorted(self._pending), dtype=np.int64).tobytes()]
            buffers.append(self._piece_df.tobytes())
        header = {
            "format": CACHE_FORMAT,
            "analyser": ANALYSER_VERSION,
            "lexical": lexical,
            "sizes": [len(b) for b in buffers],
            "dim": self.vectors.dim if self.vectors is not None else 0,
            "fingerprint": self.embedder.fingerprint if self.embedder is not None else "",
        }
        head = msgspec.msgpack.encode(header)
        body = b"".join([_MAGIC, len(head).to_bytes(4, "big"), head, *buffers])
        return body + hashlib.blake2b(body, digest_size=_CHECK_BYTES).digest()

    def _restore(self, data: bytes, documents: Sequence[Document]) -> bool:
        """Take what a cache still knows of these documents; False where it is damaged or of another version."""
        view = memoryview(data)
        if len(data) < len(_MAGIC) + 4 + _CHECK_BYTES or data[: len(_MAGIC)] != _MAGIC:
            return False
        if hashlib.blake2b(view[:-_CHECK_BYTES], digest_size=_CHECK_BYTES).digest() != bytes(view[-_CHECK_BYTES:]):
            return False
        at = len(_MAGIC) + 4
        end = at + int.from_bytes(data[len(_MAGIC) : at], "big")
        header = msgspec.msgpack.decode(view[at:end])
        if header["format"] != CACHE_FORMAT or header["analyser"] != ANALYSER_VERSION:
            return False
        buffers = []
        for size in header["sizes"]:
            buffers.append(bytes(view[end : end + size]))
            end += size
        marks, names = buffers[9], buffers[10].decode("utf-8", "surrogatepass").split("\n")
        cached = {id: slot for slot, id in enumerate(names) if id}
        capacity = int(header["lexical"]["capacity"])
        keep = np.zeros(capacity, dtype=bool)
        slot_of: dict[str, int] = {}
        for document in documents:
            slot = cached.get(document.id)
            if slot is not None and slot < capacity and marks[8 * slot : 8 * slot + 8] == _mark_of(document):
                keep[slot] = True
                slot_of[document.id] = slot
        self.lexical = LexicalIndex.from_parts(header["lexical"], buffers[:9], keep)
        taken = set(slot_of.values())
        spare = [slot for slot in range(capacity) if slot not in taken]
        for document in documents:
            slot = slot_of.get(document.id)
            if slot is not None:
                self._insert(document, slot, indexed=True)
            else:
                self._insert(document, spare.pop() if spare else max(capacity, len(self.ids)))
        while len(self.ids) < capacity:
            self.ids.append("")
            self._documents.append(None)
        self._free = sorted(spare)
        same = self.embedder is not None and header["fingerprint"] == self.embedder.fingerprint and header["dim"]
        if not same:
            self._pending.update(dict.fromkeys(sorted(taken)))
            return True
        filled, dim = np.frombuffer(buffers[11], dtype=np.int64), int(header["dim"])
        codes = np.frombuffer(buffers[12], dtype=np.int8).reshape(len(filled), dim)
        scales = np.frombuffer(buffers[13], dtype=np.float32)
        pending = set(np.frombuffer(buffers[14], dtype=np.int64).tolist()) & taken
        self._pending.update(dict.fromkeys(sorted(pending)))
        self.vectors = VectorStore(dim)
        stays = keep[filled]
        for begin in range(0, len(filled), 8192):
            part = stays[begin : begin + 8192]
            rows = codes[begin : begin + 8192][part] * scales[begin : begin + 8192][part][:, None]
            self.vectors.put(filled[begin : begin + 8192][part].tolist(), rows)
        if len(self._piece_df):
            if len(taken) == len(cached):
                self._piece_df = np.frombuffer(buffers[15], dtype=np.int64).copy()
            else:
                for slot in sorted(taken - pending):
                    self._piece_df[np.unique(self._pieces(self._text(slot)))] += 1
        return True


def open_index(
    documents: Iterable[Document],
    embedder: str | Embedder | Callable[[list[str]], Any] | None = "static",
    cache: bytes | None = None,
    weights: Weights = rank.DEFAULT_WEIGHTS,
) -> RecallIndex:
    """Return the index of these documents, in this order inside groups; a cache of any earlier state saves what it knows.

    A cache is only a hint: what it has of other texts is dropped, what it lacks is analysed, a damaged one is ignored.
    """
    listed = list({document.id: document for document in documents}.values())
    index = RecallIndex(embedder, weights)
    if cache and index._restore(cache, listed):
        return index
    for document in listed:
        index.put(document)
    return index


def _best(values: Floats, k: int) -> NDArray[np.int64]:
    """Return the slots of the k highest values above 0 and of all that equal the last of them (but never many more)."""
    can = np.flatnonzero(values > 0)
    if len(can) <= k:
        return can
    inside = values[can]
    cut = np.partition(inside, len(inside) - k)[len(inside) - k]
    best: NDArray[np.int64] = can[inside >= cut]
    return best if len(best) <= 4 * k else can[inside > cut]


def _mark_of(document: Document) -> bytes:
    return hashlib.blake2b(indexed_text(document).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _exact_key(name: str) -> str:
    return " ".join(normalise(name).casefold().split())


def _same_words(document: Document) -> tuple[str, ...]:
    who = document.speaker or document.role or ""
    return (document.kind, who, _exact_key(document.name or ""), _exact_key(document.text))


def _take(table: dict[Any, set[int]], key: Any, slot: int) -> None:
    slots = table[key]
    slots.discard(slot)
    if not slots:
        del table[key]
