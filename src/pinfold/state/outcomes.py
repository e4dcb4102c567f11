"""What the operations on silo and promises answer: frozen values, tagged by `type` where they travel as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.errors import Refused


class Hit(msgspec.Struct, frozen=True, tag="hit", tag_field="type"):
    """A value is there. index is its slot, None for the payload of a registered promise.

    shared is True where this caller waited for somebody else's work instead of doing it. because: None for a value that
    holds; else what it rests on that is not what it was, the root causes in words.
    """

    value: Any
    index: int | None = None
    shared: bool = False
    because: tuple[str, ...] | None = None  # not (): a field that may hold others makes every hit the collector's business

    hit = True

    @property
    def stale(self) -> bool:
        return self.because is not None


class Pending(msgspec.Struct, frozen=True, tag="pending", tag_field="type"):
    """Somebody is at work on it. lease_left_s is None for a promise without a lease."""

    promise_id: str
    lease_left_s: float | None = None

    hit = True


class Miss(msgspec.Struct, frozen=True, tag="miss", tag_field="type"):
    """Nothing is known of this key."""

    hit = False


class Claimed(msgspec.Struct, frozen=True, tag="claimed", tag_field="type"):
    """The caller owns the work until lease_until_ms (Unix time). fulfil, reject and renew take this."""

    key: str
    token: int
    lease_until_ms: int
    lease_left_s: float = 0.0

    hit = False

    @property
    def promise_id(self) -> str:
        return self.key


class Rejected(msgspec.Struct, frozen=True, tag="rejected", tag_field="type"):
    """The owner gave up; reason says why. Not kept as a result: the next claim wins."""

    promise_id: str
    reason: str

    hit = False


class Stored(msgspec.Struct, frozen=True, tag="stored", tag_field="type"):
    """The value is kept, durably. evicted names the slots that made room for it."""

    index: int
    evicted: list[str] = []


class Settled(msgspec.Struct, frozen=True, tag="settled", tag_field="type"):
    """The promise is settled: status "resolved" or "rejected"; index of the stored value, if one was stored."""

    promise_id: str
    status: str
    index: int | None = None
    evicted: list[str] = []


class Renewed(msgspec.Struct, frozen=True, tag="renewed", tag_field="type"):
    """The lease now ends at lease_until_ms."""

    promise_id: str
    lease_until_ms: int
    lease_left_s: float = 0.0


class Registered(msgspec.Struct, frozen=True, tag="registered", tag_field="type"):
    """A promise without owner or lease is pending; anyone may resolve it."""

    promise_id: str


class Dropped(msgspec.Struct, frozen=True, tag="dropped", tag_field="type"):
    """These keys are gone, in one entry."""

    keys: list[str]


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten", tag_field="type"):
    """These keys and rows (edges of theirs too) are gone, in one entry; erased: also from the retained history, its snapshots, blobs
    and caches."""

    keys: list[str]
    erased: bool = False
    rows: list[str] = []


class Flushed(msgspec.Struct, frozen=True, tag="flushed", tag_field="type"):
    """The silo is empty; graph and pending promises stay."""

    cleared_count: int


class PromiseState(msgspec.Struct, frozen=True, tag="promise", tag_field="type"):
    """What is known of a promise: status "pending", "resolved", "rejected" or "unknown"."""

    promise_id: str
    status: str
    payload: Any = None
    reason: str | None = None
    owner: str | None = None
    lease_left_s: float | None = None


class AlreadyApplied(msgspec.Struct, frozen=True, tag="already_applied", tag_field="type"):
    """This request_id was served before, at seq; its answer is no longer retained.

    Whoever asks it for more than seq, because the first answer had it, is told so: Refused `already_applied`.
    """

    seq: int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise self.refused()

    def refused(self) -> Refused:
        """Return what a caller that needs the answer is told."""
        return Refused(
            f"this request was done before, at entry {self.seq}; what it was answered is no longer kept",
            code="already_applied",
            hint="read what is there now",
            seq=self.seq,
        )


Outcome = Hit | Pending | Miss | Claimed | Rejected
