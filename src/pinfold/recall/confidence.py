"""Whether the store holds an answer at all, from direct matches alone: 0..1, with the bar at 0.5.

    cov   idf of the query's terms that the best direct hit holds / idf of all of them
    have  idf of the query's terms that occur anywhere in the store / idf of all of them
    cg    cosine of the query's and a memory's character grams, the best one
    c     cov + have + 1.7 cg, where cov and have weigh each term by rarity^3: a missing "recommend" says less than a
          missing "Kyoto"

c of a query that has no answer grows with the store (more to match by chance), so the bar does: .22 ln N - .28. The
embedding adds next to nothing here, so the confidence is the same with and without one. Queries in scripts without
spaces get no verdict: single characters match everywhere, and the bar does not carry over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pinfold.recall.analyse import unspaced_share
from pinfold.recall.english import rarity
from pinfold.recall.lexical import LexicalIndex, idf_of

GRAM_WEIGHT = 1.7
RARITY_POWER = 3
BAR_SLOPE, BAR_BASE = 0.22, -0.28
BAR_MIN = 0.1
SOFTNESS = 0.25
"""c above the bar that takes the confidence from .5 to .73."""
UNSPACED_SHARE = 0.3


def bar(live: int) -> float:
    """Return the value of c at which confidence is 0.5 in a store of this many memories."""
    return max(BAR_MIN, BAR_SLOPE * math.log(max(1, live)) + BAR_BASE)


def is_unspaced(query: str) -> bool:
    """Return whether 30 % or more of a query's letters are of scripts without spaces."""
    return unspaced_share(query) >= UNSPACED_SHARE


class Judge:
    """The confidence of one query over one index: terms are weighed once, then each slot is O(terms * log df)."""

    def __init__(self, index: LexicalIndex, words: Sequence[str], grams: Sequence[str]) -> None:
        self._index = index
        lane = index.word_lane
        self._weights: list[tuple[int, float]] = []  # by number of a term that occurs
        self._total = 0.0
        found = 0.0
        once = list(dict.fromkeys(words))
        for term, df in zip(once, lane.frequencies(once).tolist(), strict=True):
            weight = idf_of(df, index.live) * rarity(term) ** RARITY_POWER
            self._total += weight
            if df:
                found += weight
                self._weights.append((lane.numbers[term], weight))
        self.have = found / self._total if self._total > 0 else 0.0
        self._gram_norm = index.gram_norm_of(grams)
        self._bar = bar(index.live)
        self._best = 0.0

    def set_best(self, slot: int, gram_lane: float) -> None:
        """Say which slot matches best directly, and the best value in the gram lane: what `own` measures by."""
        self._best = self._direct(slot, gram_lane)

    def _direct(self, slot: int, gram_lane: float) -> float:
        cosine = gram_lane / self._gram_norm if self._gram_norm > 0 else 0.0
        return self.cover(slot) + GRAM_WEIGHT * min(1.0, cosine)

    def own(self, slot: int, gram_lane: float) -> float:
        """Return the confidence of one hit: 0 where nothing of it matches, and its share of `have` by how much does.

        What the store knows of the query at large is no merit of a slot that matches little of it.
        """
        direct = self._direct(slot, gram_lane)
        if direct <= 0.0:
            return 0.0
        share = min(1.0, direct / self._best) if self._best > 0 else 1.0
        return 1.0 / (1.0 + math.exp(-(direct + self.have * share - self._bar) / SOFTNESS))

    def cover(self, slot: int) -> float:
        """Return cov of a slot, 0..1."""
        has = self._index.word_lane.has
        held = math.fsum([weight for number, weight in self._weights if has(number, slot)])
        return held / self._total if self._total > 0 else 0.0

    def raw(self, slot: int, gram_lane: float) -> float:
        """Return c; gram_lane: the slot's value in the gram lane (`LexicalIndex.gram_cosine`)."""
        return self._direct(slot, gram_lane) + self.have

    def confidence(self, slot: int, gram_lane: float) -> float:
        """Return 0..1, rising with c, 0.5 at the bar."""
        return 1.0 / (1.0 + math.exp(-(self.raw(slot, gram_lane) - self._bar) / SOFTNESS))


def highest(values: Iterable[float]) -> float:
    """Return the largest of some confidences, 0 of none."""
    return max(values, default=0.0)
