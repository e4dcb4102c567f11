"""The derived index of one session: documents in, ranked hits out. What it holds is in `documents.py`, the parts of a score in `rank.py`.

Scores do not depend on slot numbers, on queries made, on filters, or on the order in which equals came; equals are ordered by id.
One thread at a time: the owner holds a lock around changes and searches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pinfold.errors import Unavailable
from pinfold.recall import rank
from pinfold.recall.analyse import Analysed, analyse, normalise, plain
from pinfold.recall.confidence import Judge, is_unspaced
from pinfold.recall.document import Answer, Document, Hit, Part
from pinfold.recall.documents import NO_TIME, Documents, exact_key
from pinfold.recall.embed import Embedder
from pinfold.recall.lexical import Floats, idf
from pinfold.recall.parts import EVERYTHING, Direct, Filter, Named, Scored
from pinfold.recall.rank import Adjacency, Mask, Weights
from pinfold.recall.vectors import SKETCH_ABOVE, Names, best_slots, sketch_kept
from pinfold.state.resting import overlaps

POOL_ALL_UP_TO = 2_048
POOL = 256
"""In larger stores the context of a memory (neighbours, group, speaker) is worked out for this many best direct scores."""
POOL_LEADERS = 128
"""Of these the neighbours are in the pool too, whatever they score themselves."""
DAY_MS = 86_400_000


class _Context:
    """What turns a direct score into one in context, for any slots of one query."""

    def __init__(self, index: RecallIndex, query: str, direct: Direct, scores: Floats) -> None:
        w, count = index.weights, len(index.ids)
        self._scores, self._weights = scores, w
        self._grouped = bool(index._groups)
        self._mixed = self._grouped and (w.neighbour > 0 or w.group > 0) and len(index) > sum(index._group_sizes)
        self._before, self._after = index._before.upto(count), index._after.upto(count)
        self._group_of, self._asks = index._group.upto(count), index._asks.upto(count)
        self._speakers, self._meant = index._speaker.upto(count), index._meant(query)
        self._per_group = rank.group_scores(direct.gathered, self._group_of, index._lengths_of_groups()) if self._grouped and w.group else np.zeros(1)
        self._best: float | None = None
        self.equal: float | None = None

    def lift(self, slots: NDArray[np.int64]) -> tuple[Floats, dict[str, Floats], Mask | None, Floats | None]:
        """Return (scores, gains by name, which are in a group, factor by speaker) of some slots.

        The first call is for the pool: what is measured by the best of all is taken from it.
        """
        w, s = self._weights, self._scores[slots]
        y, gains, grouped = s, dict[str, Floats](), None
        if self._grouped and w.neighbour:
            gains["neighbour"] = rank.spread_neighbours(self._scores, self._before, self._after, self._asks, slots, w.neighbour, w.carry)
            y = y + gains["neighbour"]
        group_of = self._group_of[slots]
        if self._grouped and w.group:
            if self._best is None:
                self._best = float(y.max(initial=0.0))
            gains["group"] = rank.group_prior(self._best, self._per_group, group_of, w.group)
            y = y + gains["group"]
        if self._mixed:
            if self.equal is None:
                self.equal = rank.equaliser(s, y, group_of, w.equalise_over)
            grouped = group_of >= 0
            y = np.where(grouped, y, s * self.equal)
        who = None if self._meant is None else rank.who_factor(self._meant[self._speakers[slots]], w.who)
        return y if who is None else y * who, gains, grouped, who


class RecallIndex(Documents):
    """The documents of one session, and their answers to queries."""

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
        pool = max(POOL, 2 * k)
        direct = self._direct(asked, pool)
        judge = Judge(self.lexical, asked.words, asked.grams)
        sure = 0.0
        if direct.shares:
            judge.set_best(*direct.best)
            sure = judge.confidence(*direct.best)
        while True:
            scored = self._score(query, asked, direct, edges, mask, exact, pool)
            order = self._decayed(scored, now_ms)
            if exact:
                order[np.searchsorted(scored.slots, list(exact))] += order.max() + 1.0
            order = np.round(order, 9)  # sums in another order differ in the last bits, which must not rank
            hits = self._hits(order, scored, judge, exact, max(0, k), filter, mask, explain, collapse)
            # A filter or many copies may leave fewer than there are in the store.
            if len(hits) >= k or not scored.partial:
                break
            pool = len(self.ids)
        if exact:
            sure = 1.0
        low = sure < 0.5
        unsaid = low and is_unspaced(query)
        return Answer(tuple(hits), max(sure, 0.5) if unsaid else sure, low=low, miss=low and not unsaid, note=scored.note, unembedded=unembedded)

    def confidences(self, query: str, ids: Collection[str]) -> dict[str, float]:
        """Return how directly each of these documents answers the query, 0..1, as a hit's confidence. Unknown ids are left out."""
        query = normalise(query)
        asked = analyse(query)
        self.catch_up()
        direct = self._direct(asked, 1)
        judge = Judge(self.lexical, asked.words, asked.grams)
        if direct.shares:
            judge.set_best(*direct.best)
        exact = self._exact_slots(query)
        slots = {id: slot for id in ids if (slot := self._slot_of.get(id)) is not None}
        return {id: 1.0 if slot in exact else judge.own(slot, float(direct.lanes["grams"][slot])) for id, slot in slots.items()}

    def _exact_slots(self, query: str) -> set[int]:
        slots = set(self._exact.get(exact_key(query), ()))
        by_id = self._slot_of.get(query.strip())
        return slots if by_id is None else slots | {by_id}

    def _direct(self, asked: Analysed, size: int) -> Direct:
        w, lexical = self.weights, self.lexical
        gathered = lexical.word_lane.gather(asked.words)
        lanes = {"words": lexical.bm25_of(gathered), "grams": lexical.gram_cosine(asked.grams)}
        shares = rank.shares(lanes, {"words": 1.0, "grams": w.grams})
        scores = rank.fuse(lanes, shares)
        front = best_slots(scores[:-1], size, self.ids, 0.0)
        first = front[scores[front] == scores.max()].tolist()
        best = min(first, key=self.ids.__getitem__, default=-1), float(lanes["grams"].max())
        return Direct(gathered, lanes, shares, scores, front, best)

    def _score(self, query: str, asked: Analysed, direct: Direct, edges: Adjacency | None, mask: Mask | None, exact: Collection[int], pool: int) -> Scored:
        scores, shares, note = direct.scores, direct.shares, ""
        whole = len(self.ids) <= max(pool, POOL_ALL_UP_TO)
        meaning: Floats | None = None
        near = np.zeros(0, dtype=np.int64)
        if asked.words or asked.grams:
            try:
                near, cosines, weight = self._meaning(query, None if whole else direct.front)
                if (top := float(cosines.max(initial=0.0))) > 0:
                    shares = {**shares, "meaning": weight / top}
                    meaning = np.zeros(len(scores))
                    meaning[near] = cosines
                    scores = scores.copy()
                    scores[near] += cosines * shares["meaning"]
            except Unavailable as error:  # words and grams still answer
                note = f"by words alone: {error.message}"
        if whole:
            slots, partial, ids = np.arange(len(self.ids)), False, cast(Names, self.ids)
        else:
            slots, partial = self._pool(scores, direct.front, near, mask, exact, pool)
            ids = Named(self.ids, slots)
        scored = Scored(slots=slots, ids=ids, partial=partial, total=scores, lanes=dict(direct.lanes), shares=shares, note=note)
        if meaning is not None:
            scored.lanes["meaning"] = meaning
        context = _Context(self, query, direct, scores)
        y, scored.gains, scored.grouped, scored.who = context.lift(slots)
        scored.equal = 1.0 if context.equal is None else context.equal
        best = float(y.max(initial=0.0))
        if best <= 0:
            scored.total = y
        else:
            scored.scale = 1.0 / best
            scored.total = self._spread(y / best, scored, context, edges)
        scored.lanes = {name: lane[scored.slots] for name, lane in scored.lanes.items()}
        return scored

    def _pool(
        self, scores: Floats, front: NDArray[np.int64], near: NDArray[np.int64], mask: Mask | None, exact: Collection[int], size: int
    ) -> tuple[NDArray[np.int64], bool]:
        """Return (the slots a large store works on, ascending; whether others match and pass the mask).

        They are the best by words, grams and meaning, those inside the mask, and two neighbours either way of the foremost. What
        is best by all three is best by words and grams (front) or has a meaning at all (near): no sort of all.
        """
        chosen = np.zeros(len(scores), dtype=bool)
        chosen[front] = True
        chosen[near] = True
        able = chosen.nonzero()[0]
        best = able[best_slots(scores[able], size, Named(self.ids, able), 0.0)]
        chosen[able] = False
        chosen[best] = True
        chosen[list(exact)] = True
        partial = len(best) >= size
        if mask is not None:
            inside = best_slots(np.where(mask, scores[:-1], 0.0), size // 4, self.ids, 0.0)
            chosen[inside] = True
            partial = len(inside) >= size // 4
        if self._groups and self.weights.neighbour:
            foremost = best[best_slots(scores[best], POOL_LEADERS, Named(self.ids, best), 0.0)]
            for column in (self._before.upto(len(self.ids)), self._after.upto(len(self.ids))):
                once = column[foremost]
                chosen[once] = True
                chosen[column[once]] = True
            chosen[-1] = False
        return chosen.nonzero()[0], partial

    def _lengths_of_groups(self) -> Floats:
        if self._group_lengths is None:
            group_of = self._group.upto(len(self.ids))[:-1]
            inside = group_of >= 0
            self._group_lengths = np.bincount(group_of[inside], self.lexical.lengths[inside], len(self._tails)).astype(np.float64)
        return self._group_lengths

    def _meaning(self, query: str, front: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], Floats, float]:
        """Return (slots ascending, their centred cosines, lane weight); nothing where the lane is off.

        front: where direct matches are best, in a store so large that only likely slots are looked at.
        """
        embedder, capacity = self.embedder, len(self.ids)
        off = np.zeros(0, dtype=np.int64), np.zeros(0), 0.0
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
        question = self.vectors.asked(vector)
        mean = self.vectors.mean_cosine(question)
        if front is None or capacity <= SKETCH_ABOVE:
            near = self.vectors.filled[:capacity].nonzero()[0]
            return near, rank.centred(self.vectors.cosines(question, capacity)[near], mean), weight
        chosen = np.zeros(len(self.vectors.filled), dtype=bool)
        chosen[self.vectors.near(question, capacity, sketch_kept(len(self.vectors)))] = True
        chosen[front] = True
        chosen &= self.vectors.filled
        near = chosen.nonzero()[0]
        return near, rank.centred(self.vectors.cosines_at(question, near), mean), weight

    def _meant(self, query: str) -> Mask | None:
        """Return which speakers a query means, by number, and last False for none; None where that tells nothing apart."""
        meant: set[int] = set()
        for token in set(plain(query)):
            meant |= self._speaker_tokens.get(token, set())
        if rank.wants_first_person(query):
            meant |= {number for (_, role), number in self._speakers.items() if role == "user"}
        if not self.weights.who or sum(self._speaker_sizes[number] for number in meant) in (0, len(self)):
            return None  # nobody, or everybody
        table = np.zeros(len(self._speakers) + 1, dtype=bool)
        table[list(meant)] = True
        return table

    def _spread(self, y: Floats, scored: Scored, context: _Context, edges: Adjacency | None) -> Floats:
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
        y = self._widen(y, scored, context, {slot for _, found in reached.values() for slot in found})
        for name, (weight, found) in reached.items():
            at = np.searchsorted(scored.slots, np.array(list(found), dtype=np.int64)).tolist()
            scored.spread[name] = (weight, dict(zip(at, found.values(), strict=True)))
        return rank.scaled(rank.add_spread(y, list(scored.spread.values())))

    def _widen(self, y: Floats, scored: Scored, context: _Context, reached: Collection[int]) -> Floats:
        """Return y over the pool and the slots that spreading reached outside it."""
        if len(scored.slots) == len(self.ids):
            return y
        wanted = np.array(sorted(reached), dtype=np.int64)
        at = np.searchsorted(scored.slots, wanted)
        new = wanted[scored.slots[np.minimum(at, len(scored.slots) - 1)] != wanted]
        if not len(new):
            return y
        slots = np.concatenate((scored.slots, new))
        order = np.argsort(slots)
        more, gains, grouped, who = context.lift(new)
        scored.slots = slots[order]
        scored.ids = Named(self.ids, scored.slots)
        scored.gains = {name: np.concatenate((gain, gains[name]))[order] for name, gain in scored.gains.items()}
        if scored.who is not None and who is not None:
            scored.who = np.concatenate((scored.who, who))[order]
        if scored.grouped is not None and grouped is not None:
            scored.grouped = np.concatenate((scored.grouped, grouped))[order]
        wider: Floats = np.concatenate((y, more * scored.scale))[order]
        return wider

    def _mention_text(self, slot: int) -> str:
        document = self._documents[slot]
        assert document is not None
        return f"{document.name}\n{document.text}" if document.name else document.text

    def _mentions(self, name: tuple[str, ...], memo: dict[tuple[str, ...], int]) -> int:
        """Return how many memories hold all the terms of a name."""
        if name not in memo:
            lane = self.lexical.word_lane
            terms = list(set(analyse(" ".join(name)).words))
            terms = [term for _, term in sorted(zip(lane.frequencies(terms).tolist(), terms, strict=True))]
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
            mask &= np.isin(self._kind.upto(capacity)[:-1], [self._kinds[kind] for kind in filter.kinds if kind in self._kinds])
        if filter.groups is not None:
            numbers = [-1 if group is None else self._groups.get(group, -2) for group in filter.groups]
            mask &= np.isin(self._group.upto(capacity)[:-1], numbers)
        if filter.since_ms is not None or filter.until_ms is not None:
            at = self._at.upto(capacity)[:-1]
            timely = at != NO_TIME
            if filter.since_ms is not None:
                timely &= at >= filter.since_ms
            if filter.until_ms is not None:
                timely &= at < filter.until_ms
            for slot, held in self._held.items():
                timely[slot] = overlaps(held, filter.since_ms, filter.until_ms)
            mask &= timely
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
        why, score = self._why(i, scored), min(1.0, float(order[i]))
        parts = self._parts(i, scored) if explain else []
        if slot in exact:
            why, score, confidence = ("exact", *why), 1.0, 1.0
        else:
            confidence = judge.own(slot, float(scored.lanes["grams"][i]))
            lost = float(order[i] - scored.total[i])
            if explain and lost < -1e-9:
                parts.append(Part("decay", lost))
        return Hit(self.ids[slot], score, confidence, why, 1 + len(copies), tuple(copies), tuple(parts))

    def _why(self, i: int, scored: Scored) -> tuple[str, ...]:
        """Return the names of the parts that gave a slot anything, in the order of `_parts`."""
        why = [name for name in scored.shares if scored.lanes[name][i] > 0]
        if scored.grouped is None or scored.grouped[i]:
            why += [name for name, gain in scored.gains.items() if gain[i] > 0]
        if scored.who is not None and scored.who[i] > 1.0 and why:
            why.append("who")
        return (*why, *(name for name, (_, reached) in scored.spread.items() if reached.get(i, 0.0) > 0))

    def _parts(self, i: int, scored: Scored) -> list[Part]:
        """Return what each part gave a slot; they add up to its score before the last scaling."""
        inside = scored.grouped is None or bool(scored.grouped[i])
        lift = scored.scale * (1.0 if inside else scored.equal)
        parts = [Part(name, share * float(scored.lanes[name][i]) * lift) for name, share in scored.shares.items() if scored.lanes[name][i] > 0]
        parts.extend(Part(name, float(gain[i]) * scored.scale) for name, gain in scored.gains.items() if inside and gain[i] > 0)
        if scored.who is not None and scored.who[i] > 1.0 and parts:
            parts.append(Part("who", sum(part.amount for part in parts) * (float(scored.who[i]) - 1.0)))
        for name, (weight, reached) in scored.spread.items():
            top = max(reached.values(), default=0.0)
            if top > 0 and i in reached:
                parts.append(Part(name, weight * reached[i] / top))
        return parts


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
    index.put_many(listed)
    return index


def _same_words(document: Document) -> tuple[str, ...]:
    who = document.speaker or document.role or ""
    name = exact_key(document.name) if document.name else ""
    return (document.kind, who, name, exact_key(document.text))
