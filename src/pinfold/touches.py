"""Uses of a session in this process that are not journaled yet."""

from __future__ import annotations

from collections import OrderedDict

from pinfold.entry import Fact


class Touches:
    """Use that happened in this process and is not journaled yet. last_used_ms goes on from what was journaled before."""

    __slots__ = ("_since_ms", "avoided", "full", "hits", "joined", "keys", "last_used_ms", "misses", "served", "uses")

    def __init__(self, last_used_ms: int = 0) -> None:
        self.hits = self.misses = self.joined = self.avoided = self.served = self.full = 0
        self.keys: OrderedDict[str, None] = OrderedDict()
        self.uses: dict[str, int] = {}
        self.last_used_ms = self._since_ms = last_used_ms

    @property
    def counts(self) -> dict[str, int]:
        return {"hits": self.hits, "misses": self.misses, "joined": self.joined, "avoided": self.avoided, "served": self.served, "full": self.full}

    def fact(self) -> Fact | None:
        """Return the `touch` fact of all of it, None where nothing happened."""
        fact: Fact = {"f": "touch", "at": self.last_used_ms, **{name: count for name, count in self.counts.items() if count}}
        if self.keys:
            fact["keys"] = list(self.keys)
        if self.uses:
            fact["uses"] = dict(self.uses)
        return fact if len(fact) > 2 or self.last_used_ms > self._since_ms else None
