"""The silo: key -> slot. Invariants:

* an index is given once: a new key takes the next, an update keeps its own, flush and expiry give none back;
* a slot past its expiry reads as absent everywhere; a later write removes it;
* keys with a live claim are never chosen as victims;
* `inline_bytes` is the sum of keys and inline values.

Recency (who was used last, hits, misses) is kept apart: it is best effort, so state equality leaves it out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any

import msgspec

from pinfold import limits
from pinfold.entry import Entry, Fact
from pinfold.errors import Refused
from pinfold.state.value import Blob, Stored, slot_bytes, stored_in, value_fields


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One stored value. Replaced whole on update, so a reader in another thread never sees half of one."""

    index: int
    value: Stored
    expires_at_ms: int | None
    stored_at_ms: int
    actor: str | None = None
    extra: Fact | None = None


PROMOTED = -1


class Recency:
    """Use of a session as far as it was journaled or happened here: LRU order and counters, never part of equality."""

    __slots__ = ("avoided", "evicted", "full", "hits", "joined", "last_used_ms", "misses", "order", "served", "uses")

    def __init__(self) -> None:
        self.order: OrderedDict[str, None] = OrderedDict()
        self.hits = self.misses = self.evicted = self.joined = self.avoided = 0
        self.served = self.full = 0
        """Tokens of the pin maps that were read, and what dumps of the graph would have cost in their place."""
        self.last_used_ms = 0
        self.uses: dict[str, int] = {}
        """Hits of each slot since it was stored, where the session promotes by them; PROMOTED once it was."""

    def dump(self) -> list[Any]:
        return [list(self.order), self.hits, self.misses, self.evicted, self.joined, self.avoided, self.last_used_ms, self.uses, self.served, self.full]

    @classmethod
    def load(cls, data: list[Any]) -> Recency:
        self = cls()
        keys, self.hits, self.misses, self.evicted, self.joined, self.avoided, self.last_used_ms = data[:7]
        self.uses = dict(data[7]) if len(data) > 7 else {}
        self.served, self.full = data[8:10] if len(data) > 9 else (0, 0)
        self.order = OrderedDict.fromkeys(keys)
        return self

    def touch(self, fact: Fact) -> None:
        """Fold one `touch` fact: counters add up, used keys move to the young end."""
        self.hits += fact.get("hits", 0)
        self.misses += fact.get("misses", 0)
        self.joined += fact.get("joined", 0)
        self.avoided += fact.get("avoided", 0)
        self.served += fact.get("served", 0)
        self.full += fact.get("full", 0)
        self.last_used_ms = max(self.last_used_ms, fact.get("at", 0))
        for key in fact.get("keys", ()):
            if key in self.order:
                self.order.move_to_end(key)
        for key, count in fact.get("uses", {}).items():
            if (before := self.uses.get(key, 0)) != PROMOTED:
                self.uses[key] = before + count
        for key in fact.get("promoted", ()):
            self.uses[key] = PROMOTED


class Silo:
    """All slots of one session, with what is derived from them: byte counts and an expiry heap."""

    __slots__ = ("blob_bytes", "expiry", "inline_bytes", "next_index", "silo_size", "slots")

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.next_index = 0
        self.silo_size: int | None = None
        self.inline_bytes = 0
        self.blob_bytes = 0
        self.expiry: list[tuple[int, str]] = []

    def live(self, key: str, now_ms: int) -> Slot | None:
        """Return the slot of key unless there is none or it is past its expiry."""
        slot = self.slots.get(key)
        if slot is None or (slot.expires_at_ms is not None and slot.expires_at_ms <= now_ms):
            return None
        return slot

    def expired(self, now_ms: int) -> Iterator[str]:
        """Yield the keys past their expiry, each once, in a deterministic order. O(expired): walks only the top of the heap."""
        heap, todo = self.expiry, [0]
        found: set[str] = set()
        while todo:
            at = todo.pop()
            if at < len(heap) and heap[at][0] <= now_ms:
                at_ms, key = heap[at]
                slot = self.slots.get(key)
                if slot is not None and slot.expires_at_ms == at_ms and key not in found:
                    found.add(key)
                    yield key
                todo += (2 * at + 2, 2 * at + 1)

    def dump(self) -> list[Any]:
        rows = [[key, s.index, value_fields(s.value), s.expires_at_ms, s.stored_at_ms, s.actor, s.extra] for key, s in self.slots.items()]
        return [rows, self.next_index, self.silo_size]

    @classmethod
    def load(cls, data: list[Any]) -> Silo:
        self = cls()
        rows, self.next_index, self.silo_size = data
        for key, index, value, expires_at_ms, stored_at_ms, actor, extra in rows:
            self._put(key, Slot(index, stored_in(value), expires_at_ms, stored_at_ms, actor, extra))
        return self

    def _put(self, key: str, slot: Slot) -> None:
        old = self.slots.get(key)
        if old is not None:
            self._count(key, old, -1)
        self.slots[key] = slot
        self._count(key, slot, 1)
        if slot.expires_at_ms is not None:
            heappush(self.expiry, (slot.expires_at_ms, key))
            if len(self.expiry) > 64 + 4 * len(self.slots):  # replaced times pile up: rebuild, amortised O(1)
                self.expiry = [(s.expires_at_ms, k) for k, s in self.slots.items() if s.expires_at_ms is not None]
                heapify(self.expiry)
        if self.expiry:
            self._settle_heap()

    def _drop(self, key: str) -> None:
        old = self.slots.pop(key, None)
        if old is not None:
            self._count(key, old, -1)
        if self.expiry:
            self._settle_heap()

    def _settle_heap(self) -> None:
        """Pop times that no longer belong to a slot off the top; those below wait for their turn or a rebuild."""
        while self.expiry:
            at_ms, key = self.expiry[0]
            slot = self.slots.get(key)
            if slot is not None and slot.expires_at_ms == at_ms:
                return
            heappop(self.expiry)

    def _count(self, key: str, slot: Slot, sign: int) -> None:
        self.inline_bytes += sign * slot_bytes(key, slot.value)
        if type(slot.value) is Blob:
            self.blob_bytes += sign * slot.value.size


_SLOT_KEYS = frozenset(("f", "k", "i", "v", "j", "h", "n", "y", "x"))


def apply_put(silo: Silo, recency: Recency, fact: Fact, entry: Entry) -> None:
    """slot.put: k key, i index, value (v | j | h n y), x expires_at_ms; other keys are kept in the slot."""
    key, index = fact["k"], fact["i"]
    # Four: f, k, i and a value.
    extra = None if len(fact) == 4 or _SLOT_KEYS.issuperset(fact) else {name: fact[name] for name in fact if name not in _SLOT_KEYS}
    silo._put(key, Slot(index, stored_in(fact), fact.get("x"), entry.at_ms, entry.actor, extra))
    if index >= silo.next_index:
        silo.next_index = index + 1
    if recency.uses:
        recency.uses.pop(key, None)
    if silo.silo_size is not None:
        recency.order[key] = None
        recency.order.move_to_end(key)


def apply_drop(silo: Silo, recency: Recency, fact: Fact, entry: Entry) -> None:
    """slot.drop: k key, why "evicted" where it was a victim."""
    key = fact["k"]
    silo._drop(key)
    recency.order.pop(key, None)
    if recency.uses:
        recency.uses.pop(key, None)
    if fact.get("why") == "evicted":
        recency.evicted += 1


def set_silo_size(silo: Silo, recency: Recency, silo_size: int | None) -> None:
    """Apply a new size: from here on recency is kept (oldest index first), or no longer."""
    silo.silo_size = silo_size
    recency.order = OrderedDict.fromkeys(silo.slots) if silo_size is not None else OrderedDict()


def decide_store(
    silo: Silo,
    recency: Recency,
    key: str,
    value: Stored,
    expires_at_ms: int | None,
    now_ms: int,
    is_claimed: Callable[[str], bool],
) -> tuple[list[Fact], int, list[str]]:
    """Return (facts, index, evicted keys) of storing value under key.

    Raises Refused `silo_full` when keys and inline values would exceed SILO_INLINE_BYTES and nothing may be evicted.
    """
    old = silo.live(key, now_ms)
    index = silo.next_index if old is None else old.index
    evicted: list[str] = []
    if old is None and silo.silo_size is not None:
        spared = {key}
        if silo.expiry:
            spared.update(islice(silo.expired(now_ms), limits.HOUSEKEEP_PER_TURN))  # these leave with this entry anyway
        over = len(silo.slots) + (key not in silo.slots) - silo.silo_size
        evicted = _victims(recency, spared, over - len(spared) + 1, is_claimed)
    facts: list[Fact] = [{"f": "slot.drop", "k": victim, "why": "evicted"} for victim in evicted]
    is_full = silo.inline_bytes + slot_bytes(key, value) > limits.SILO_INLINE_BYTES
    if is_full or type(value) is Blob:
        expired = [k for k in silo.expired(now_ms) if k != key] if is_full else []
        _check_room(silo, key, value, [*evicted, *expired])
        facts += [{"f": "slot.drop", "k": k, "why": "expired"} for k in expired]
    put: Fact = {"f": "slot.put", "k": key, "i": index, **value_fields(value)}
    if expires_at_ms is not None:
        put["x"] = expires_at_ms
    facts.append(put)
    return facts, index, evicted


def _victims(recency: Recency, spared: set[str], count: int, is_claimed: Callable[[str], bool]) -> list[str]:
    """Return up to count least recently used keys. Spared and claimed keys are passed over."""
    found: list[str] = []
    if count > 0:
        for victim in recency.order:
            if victim not in spared and not is_claimed(victim):
                found.append(victim)
                if len(found) == count:
                    break
    return found


def _check_room(silo: Silo, key: str, value: Stored, leaving: list[str]) -> None:
    going = [(k, silo.slots[k].value) for k in dict.fromkeys((*leaving, key)) if k in silo.slots]
    inline = silo.inline_bytes - sum(slot_bytes(k, old) for k, old in going) + slot_bytes(key, value)
    large = silo.blob_bytes - sum(old.size for _, old in going if type(old) is Blob) + (value.size if type(value) is Blob else 0)
    for name, need, limit in (
        ("SILO_INLINE_BYTES", inline, limits.SILO_INLINE_BYTES),
        ("BLOB_BYTES_PER_SESSION", large, limits.BLOB_BYTES_PER_SESSION),
    ):
        if need > limit:
            raise Refused(
                f"the silo would hold {need} bytes, the limit {name} is {limit}",
                code="silo_full",
                hint="drop or flush what is no longer needed, give values a ttl, or open the session with a silo_size",
                limit_bytes=limit,
            )
