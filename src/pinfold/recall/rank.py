"""The fused ranker: pure functions over arrays by slot, each a named part of a score. `index.py` puts them in order.

Order: lanes (words, grams, meaning) are scaled by their maximum and added; neighbours in a conversation share; the
conversation as a whole gives a prior; free-standing texts are lifted by what conversations gained; the right speaker is
preferred; then activation spreads from the best few along names they mention and edges that were stored.

Invariants:
- every function returns a new array and leaves its arguments alone; scores are >= 0, and 0 means "no reason";
- nothing depends on the numbering of slots: equal documents get equal scores, ties are broken by id;
- spreading never overtakes the best direct hit; a part with nothing to say changes nothing.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinfold.recall.analyse import FIRST_PERSON, STOP_WORDS, plain
from pinfold.recall.document import Document, indexed_text
from pinfold.recall.lexical import K1, B, Floats, Gathered, idf
from pinfold.recall.vectors import Names, top_slots

Slots = NDArray[np.int32]
Mask = NDArray[np.bool_]


class Weights(msgspec.Struct, frozen=True):
    """The constants of the ranker. All lie on plateaus; `docs/design/recall.md` gives the figures."""

    grams: float = 0.7
    dense: float | None = None
    """None: what the embedder asks for (static .7, MiniLM 1.0)."""
    neighbour: float = 0.35
    carry: float = 2.0
    """A short question hands this much more to the turn that follows it: the answer."""
    group: float = 0.3
    equalise_over: int = 50
    who: float = 0.4
    seeds: int = 5
    mention: float = 0.5
    edge: float = 0.5
    decay_floor: float = 0.8
    decay_per_day: float = 0.05


DEFAULT_WEIGHTS = Weights()
NAME_TOKENS = 8
MENTION_TOKENS = 4_000
"""How far into a seed's text names are looked for."""
QUESTION_CHARS = 160
_QUESTION = re.compile(r"[?？][^.!。！]*$")
_ASIDE = re.compile(r"\(.*?\)")


def scaled(values: Floats) -> Floats:
    """Return values divided by their maximum; unchanged where that is not above 0."""
    top = values.max(initial=0.0)
    return values / top if top > 0 else values


# --- the lanes ----------------------------------------------------------------------------------------------------
NOISE = 1e-9
"""Where all cosines are equal, what rounding leaves of their distance to the mean must not be scaled up to 1."""


def centred(cosines: Floats, mean: float) -> Floats:
    """Return max(0, cosine - mean of the store): what is nearer than the store at large."""
    out = cosines - mean
    out[out < NOISE] = 0.0
    return out


def shares(lanes: Mapping[str, Floats], weights: Mapping[str, float]) -> dict[str, float]:
    """Return what a lane's values are multiplied by: its weight / its maximum. A lane that is zero everywhere has no share."""
    tops = {name: float(lane.max(initial=0.0)) for name, lane in lanes.items()}
    return {name: weights[name] / top for name, top in tops.items() if top > 0 and weights[name]}


def fuse(lanes: Mapping[str, Floats], shares: Mapping[str, float]) -> Floats:
    """Return the sum of the lanes by their shares. Ranks alone would lose the margins."""
    first, *others = lanes
    out = lanes[first] * shares.get(first, 0.0)
    for name in others:
        if name in shares:
            out += lanes[name] * shares[name]
    return out


# --- the conversation around a memory -----------------------------------------------------------------------------
def asks(document: Document) -> bool:
    """Return whether a turn is a short question: what follows it is likely the answer."""
    text = document.text
    if "?" not in text and "？" not in text:
        return False
    return len(indexed_text(document)) < QUESTION_CHARS and _QUESTION.search(text.strip()) is not None


def spread_neighbours(scores: Floats, before: Slots, after: Slots, asking: Mask, slots: NDArray[np.int64], weight: float, carry: float) -> Floats:
    """Return what each of some slots gains from two turns before and two after it in its group.

    before, after: by slot, the slot of the previous and next turn, -1 at the ends. These and scores and asking have one more
    entry than there are slots, which answers for -1: -1, 0 and False. Y_i = w (q S_(i-1) + S_(i+1)) + w^2 (S_(i-2) + S_(i+2)),
    q = carry where turn i-1 asks, else 1.
    """
    b, a = before[slots], after[slots]
    gain = scores[b]
    gain[asking[b]] *= carry
    gain += scores[a]
    gain *= weight
    far = scores[before[b]]
    far += scores[after[a]]
    far *= weight * weight
    gain += far
    return gain


def group_scores(hit: Gathered, group_of: Slots, sizes: Floats) -> Floats:
    """Return BM25 of each whole group, from the postings of its members: float64[groups + 1], the last 0, for no group.

    group_of: by slot, -1 for none. sizes: the terms in each group, 0 where there is no such group.
    """
    groups, live = len(sizes), int(np.count_nonzero(sizes))
    out = np.zeros(groups + 1)
    if not live or not len(hit.slots):
        return out
    terms = len(hit.lengths)
    # One table of terms and groups; its first column takes what is in no group.
    at = np.repeat(np.arange(0, terms * (groups + 1), groups + 1), hit.lengths)
    at += group_of[hit.slots]
    at += 1
    tf = np.bincount(at, hit.tfs, terms * (groups + 1)).reshape(terms, groups + 1)[:, 1:]
    norm = K1 * (1.0 - B + B * sizes / (sizes.sum() / live))
    weight = idf(np.count_nonzero(tf, axis=1), live) * (K1 + 1.0)
    np.sum(weight[:, None] * tf / (tf + norm), axis=0, out=out[:-1])
    return out


def group_prior(best: float, per_group: Floats, group_of: Slots, weight: float) -> Floats:
    """Return what each slot gains from its group: weight * best * group score / best group score.

    best: the highest score so far. per_group: as `group_scores` gives it; group_of: of the slots asked about.
    """
    top = float(per_group.max(initial=0.0))
    gain = per_group[group_of]
    gain *= weight * best / top if top > 0 else 0.0
    return gain


def equaliser(direct: Floats, lifted: Floats, group_of: Slots, over: int) -> float:
    """Return the factor for slots outside any group: the mean gain of the `over` best ones inside. 1 where nothing mixes.

    Without it every turn of a chat, lifted by its neighbours, crowds out documents that stand alone.
    """
    inside = group_of >= 0
    if inside.all() or not inside.any():
        return 1.0
    values, gained = direct[inside], lifted[inside]
    over = min(over, len(values))
    cut = np.partition(values, len(values) - over)[len(values) - over]
    # Equals at the cut could be any of them: take their mean gain, so that slot numbers do not matter.
    above, level = (values > cut).nonzero()[0], (values == cut).nonzero()[0]
    left = over - len(above)
    base = float(values[above].sum() + cut * left)
    total = float(gained[above].sum()) + (float(gained[level].sum()) / len(level) * left if cut > 0 else 0.0)
    return total / base if base > 0 else 1.0


def wants_first_person(query: str) -> bool:
    """Return whether a query speaks of its asker (I, my, we …)."""
    return FIRST_PERSON.search(query.casefold()) is not None


def who_factor(member: Mask, weight: float) -> Floats:
    """Return 1 + weight for what the speakers a query means have said, else 1."""
    return np.where(member, 1.0 + weight, 1.0)


# --- spreading ----------------------------------------------------------------------------------------------------
class NameBook:
    """Which slots bear a name, and which names a text mentions. O(tokens) for a text, however many names there are."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, ...], set[int]] = {}
        self._sizes: dict[str, dict[int, int]] = {}  # first token -> length of a name -> names of that kind

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, name: str, slot: int) -> None:
        key = name_key(name)
        if not key:
            return
        slots = self._slots.get(key)
        if slots is None:
            slots = self._slots[key] = set()
            sizes = self._sizes.setdefault(key[0], {})
            sizes[len(key)] = sizes.get(len(key), 0) + 1
        slots.add(slot)

    def remove(self, name: str, slot: int) -> None:
        key = name_key(name)
        if not key:
            return
        slots = self._slots[key]
        slots.discard(slot)
        if not slots:
            del self._slots[key]
            sizes = self._sizes[key[0]]
            sizes[len(key)] -= 1
            if not sizes[len(key)]:
                del sizes[len(key)]
            if not sizes:
                del self._sizes[key[0]]

    def slots_of(self, key: tuple[str, ...]) -> Collection[int]:
        return self._slots.get(key, ())

    def names_in(self, text: str) -> list[tuple[str, ...]]:
        """Return the names a text mentions, each once. One-word names need four letters and may not be stop words."""
        tokens = plain(text[: MENTION_TOKENS * 8])[:MENTION_TOKENS]
        found: dict[tuple[str, ...], None] = {}
        for begin, token in enumerate(tokens):
            for size in sorted(self._sizes.get(token, ())):
                key = tuple(tokens[begin : begin + size])
                if key in self._slots and not (size == 1 and (len(token) < 4 or token in STOP_WORDS)):
                    found[key] = None
        return list(found)


def name_key(name: str) -> tuple[str, ...]:
    """Return the first tokens a name is found by, what stands in brackets left out; () where nothing is left."""
    return tuple(plain(_ASIDE.sub("", name))[:NAME_TOKENS])


def spread_mentions(
    seeds: Sequence[tuple[int, float]], text_of: Callable[[int], str], names: NameBook, mentions_of: Callable[[tuple[str, ...]], int]
) -> dict[int, float]:
    """Return slot -> activation for the memories whose names the seeds mention: sum of p_seed / sqrt(times mentioned).

    seeds: (slot, share), shares adding up to 1. mentions_of(name): how many memories hold all its tokens.
    """
    out: dict[int, float] = {}
    for seed, share in seeds:
        reached: set[int] = set()
        for name in names.names_in(text_of(seed)):
            for slot in names.slots_of(name):
                if slot != seed and slot not in reached:
                    reached.add(slot)
                    out[slot] = out.get(slot, 0.0) + share / math.sqrt(max(1, mentions_of(name)))
    return out


class Adjacency(Protocol):
    """Stored edges, seen from both ends. Weights 0..1 (decayed already, where edges decay)."""

    def degree(self, node: str) -> int:
        """Return the number of edges at a node. O(1)."""
        ...

    def neighbours(self, node: str) -> Iterable[tuple[str, float]]:
        """Return (node, weight) for the edges at a node, in a stable order, heaviest first where it knows."""
        ...


EDGE_BUDGET = 2_000
"""Edges looked at for one query: a hub cannot make a search slow."""
EDGES_PER_NODE = 200
EDGE_PASSED_ON = 0.5
"""Share of what a node received that it hands on to the next ring."""
EDGE_RESIDUE = 0.01


def spread_edges(seeds: Sequence[tuple[str, float]], edges: Adjacency, budget: int = EDGE_BUDGET, depth: int = 2) -> tuple[dict[str, float], int]:
    """Return (node -> activation, edges looked at) by forward push from the seeds, at most `budget` edges, `depth` rings.

    An edge gives r * weight / sqrt(degree of its end): a hub is reached from everywhere and so says little. The node with
    the most left to give goes first, ties by id. Seeds get nothing back from themselves.
    """
    out: dict[str, float] = {}
    queue = [(-mass, node, node, 0) for node, mass in seeds if mass > 0]
    heapq.heapify(queue)
    left = budget
    while queue and left > 0:
        negative, node, seed, ring = heapq.heappop(queue)
        # A hub's mass is divided among its edges, so that a star does not flood the answer.
        share = -negative / math.sqrt(max(1, edges.degree(node))) if ring else -negative
        for count, (other, weight) in enumerate(edges.neighbours(node)):
            if count >= EDGES_PER_NODE or left <= 0:
                break
            left -= 1
            given = share * min(1.0, max(0.0, weight)) / math.sqrt(max(1, edges.degree(other)))
            if other in (seed, node) or given <= 0:
                continue
            out[other] = out.get(other, 0.0) + given
            onward = given * EDGE_PASSED_ON
            if ring + 1 < depth and onward >= EDGE_RESIDUE:
                heapq.heappush(queue, (-onward, other, seed, ring + 1))
    return out, budget - left


def add_spread(scores: Floats, activations: Sequence[tuple[float, Mapping[int, float]]]) -> Floats:
    """Return scores plus weight * activation / best activation of each spread; what was best stays best."""
    out = scores.copy()
    for weight, activation in activations:
        top = max(activation.values(), default=0.0)
        if top <= 0:
            continue
        for slot, amount in activation.items():
            out[slot] += weight * amount / top
    best = scores == scores.max(initial=0.0)
    highest = out.max(initial=0.0)
    if out[best].max(initial=0.0) < highest:
        out[best] = highest + 1e-9
    return out


# --- time and order -----------------------------------------------------------------------------------------------
def decay_factors(age_days: Floats, per_day: float, floor: float) -> Floats:
    """Return floor + (1 - floor) e^(-per_day * age): decay re-ranks, it never forgets. Times in the future count as now."""
    out: Floats = floor + (1.0 - floor) * np.exp(-per_day * np.maximum(age_days, 0.0))
    return out


def top_k(scores: Floats, k: int, ids: Names, mask: Mask | None = None) -> list[int]:
    """Return the k best slots with a score above 0 inside the mask, ties by id."""
    return top_slots(scores if mask is None else np.where(mask, scores, 0.0), k, ids, floor=0.0)
