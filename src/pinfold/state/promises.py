"""Promises: who is at work on a key, and how it ended. A promise's id is its key. Invariants:

* pending -> resolved | rejected; a settled promise never becomes pending again, a new claim replaces it;
* every claim gets a higher token than any before it in the session: only the latest owner can settle;
* a stored value beats a promise: peek looks at the silo first;
* a promise resolved with a value keeps none itself: it lives and dies with its slot. Only a registered promise that
  was resolved without a slot keeps a payload;
* whoever sets a value on a claimed key settles the promise as superseded, so nobody waits for a result that is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NoReturn

import msgspec

from pinfold import limits
from pinfold.entry import Entry, Fact
from pinfold.errors import Refused
from pinfold.state import outcomes
from pinfold.state.silo import Recency, Silo, Slot, decide_store
from pinfold.state.value import Stored, value_fields, value_of

PENDING, RESOLVED, REJECTED, SUPERSEDED = "pending", "resolved", "rejected", "superseded"


class Promise(msgspec.Struct, frozen=True, gc=False):
    """One promise. token 0 and no lease: registered, anyone may settle it. status as stored: superseded is a kind of resolved."""

    status: str
    token: int
    lease_until_ms: int | None = None
    owner: str | None = None
    reason: str | None = None
    payload: Stored | None = None
    settled_at_ms: int | None = None
    extra: Fact | None = None

    def is_held(self, now_ms: int) -> bool:
        """Return whether somebody is at work on it: pending, and its lease, if any, has not lapsed."""
        return self.status == PENDING and (self.lease_until_ms is None or self.lease_until_ms > now_ms)


class Promises:
    """All promises of one session. `settled` holds the keys of the settled ones, oldest first."""

    __slots__ = ("by_key", "last_token", "settled")

    def __init__(self) -> None:
        self.by_key: dict[str, Promise] = {}
        self.last_token = 0
        self.settled: dict[str, None] = {}

    def dump(self) -> list[Any]:
        rows = [
            [k, p.status, p.token, p.lease_until_ms, p.owner, p.reason, None if p.payload is None else value_fields(p.payload), p.settled_at_ms, p.extra]
            for k, p in self.by_key.items()
        ]
        return [rows, self.last_token, list(self.settled)]

    @classmethod
    def load(cls, data: list[Any]) -> Promises:
        self = cls()
        rows, self.last_token, settled = data
        for key, status, token, lease, owner, reason, payload, settled_at_ms, extra in rows:
            self.by_key[key] = Promise(status, token, lease, owner, reason, None if payload is None else value_of(payload), settled_at_ms, extra)
        self.settled = dict.fromkeys(settled)
        return self

    def is_claimed(self, key: str, now_ms: int) -> bool:
        promise = self.by_key.get(key)
        return promise is not None and promise.token > 0 and promise.is_held(now_ms)


_PROMISE_KEYS = frozenset(("f", "k", "s", "t", "l", "o", "r", "v", "j", "h", "n", "y"))


def apply_put(promises: Promises, fact: Fact, entry: Entry) -> None:
    """promise.put: k key, s status, t token, l lease_until_ms, o owner, r reason, payload (v | j | h n y)."""
    key, status = fact["k"], fact["s"]
    extra = None if _PROMISE_KEYS.issuperset(fact) else {name: fact[name] for name in fact if name not in _PROMISE_KEYS}
    settled_at_ms = None if status == PENDING else entry.at_ms
    token = fact.get("t", 0)
    promises.settled.pop(key, None)
    promises.by_key[key] = Promise(status, token, fact.get("l"), fact.get("o"), fact.get("r"), value_of(fact), settled_at_ms, extra)
    if settled_at_ms is not None:
        promises.settled[key] = None
    promises.last_token = max(promises.last_token, token)


def apply_drop(promises: Promises, fact: Fact, entry: Entry) -> None:
    """promise.drop: k key."""
    promises.by_key.pop(fact["k"], None)
    promises.settled.pop(fact["k"], None)


# --- reading ----------------------------------------------------------------------------------------------------


def look(silo: Silo, promises: Promises, key: str, now_ms: int) -> Slot | Promise | None:
    """Return what peek finds: a live slot; else a promise somebody holds, or resolved with a payload; else None."""
    slot = silo.live(key, now_ms)
    if slot is not None:
        return slot
    promise = promises.by_key.get(key)
    if promise is None:
        return None
    if promise.is_held(now_ms) or (promise.status == RESOLVED and promise.payload is not None):
        return promise
    # Another thread may have fulfilled it since the first look: the slot was put before the promise was settled.
    return silo.live(key, now_ms)


def status_of(silo: Silo, promises: Promises, key: str, now_ms: int) -> str:
    """Return pending | resolved | rejected | unknown. Pending outlives a lapsed lease: somebody may still take over."""
    promise = promises.by_key.get(key)
    if silo.live(key, now_ms) is not None or (promise is not None and promise.payload is not None):
        return RESOLVED  # a stored value beats whatever became of a promise
    if promise is None or promise.status in (RESOLVED, SUPERSEDED):
        return "unknown"
    return promise.status


def drop_facts(promises: Promises, keys: Iterable[str], why: str | None = None) -> list[Fact]:
    """Return the facts that remove these slots, and with each the resolved promise that rested on it."""
    facts: list[Fact] = []
    for key in keys:
        facts.append({"f": "slot.drop", "k": key} if why is None else {"f": "slot.drop", "k": key, "why": why})
        promise = promises.by_key.get(key)
        if promise is not None and promise.status in (RESOLVED, SUPERSEDED) and promise.payload is None:
            facts.append({"f": "promise.drop", "k": key})
    return facts


def decide_housekeep(silo: Silo, promises: Promises, now_ms: int) -> list[Fact]:
    """Return facts that remove expired slots and promises settled too long ago: at most HOUSEKEEP_PER_TURN of each."""
    facts: list[Fact] = []
    if silo.expiry and silo.expiry[0][0] <= now_ms:
        facts = drop_facts(promises, islice(silo.expired(now_ms), limits.HOUSEKEEP_PER_TURN), "expired")
    if not promises.settled:
        return facts
    excess = len(promises.settled) - limits.SETTLED_KEPT_COUNT
    before_ms = now_ms - limits.SETTLED_KEPT_S * 1000
    for key in islice(promises.settled, limits.HOUSEKEEP_PER_TURN):
        settled_at_ms = promises.by_key[key].settled_at_ms or before_ms
        if excess <= 0 and settled_at_ms > before_ms:
            break
        facts.append({"f": "promise.drop", "k": key})
        excess -= 1
    return facts


# --- deciding ---------------------------------------------------------------------------------------------------


def decide_claim(
    silo: Silo, promises: Promises, key: str, lease_ms: int, owner: str | None, now_ms: int, over: Slot | None = None
) -> tuple[list[Fact], outcomes.Claimed | Slot | Promise]:
    """Return ([], what peek finds) or the facts that make the caller the one owner, with a token above all before.

    over: a slot that was judged stale: while it is the one that is there, the work on it is to be done again.
    """
    found = look(silo, promises, key, now_ms)
    if over is not None and found == over:
        held = promises.by_key.get(key)
        found = held if held is not None and held.is_held(now_ms) else None
    if found is not None:
        return [], found
    token = promises.last_token + 1
    until_ms = now_ms + lease_ms
    fact: Fact = {"f": "promise.put", "k": key, "s": PENDING, "t": token, "l": until_ms}
    if owner is not None:
        fact["o"] = owner
    return [fact], outcomes.Claimed(key, token, until_ms, lease_ms / 1000)


def decide_set(
    silo: Silo, promises: Promises, recency: Recency, key: str, value: Stored, expires_at_ms: int | None, now_ms: int
) -> tuple[list[Fact], outcomes.Stored]:
    """Return facts that store value; a pending promise on the key is settled as superseded, so its waiters get it."""
    facts, index, evicted = _store(silo, promises, recency, key, value, expires_at_ms, now_ms)
    promise = promises.by_key.get(key)
    if promise is not None and promise.status == PENDING:
        facts.append({"f": "promise.put", "k": key, "s": SUPERSEDED, "t": promise.token})
    elif promise is not None and (promise.status == REJECTED or promise.payload is not None):
        facts.append({"f": "promise.drop", "k": key})  # an older outcome must not come back when this slot goes
    return facts, outcomes.Stored(index, evicted)


def decide_fulfil(
    silo: Silo,
    promises: Promises,
    recency: Recency,
    key: str,
    token: int | None,
    value: Stored,
    expires_at_ms: int | None,
    now_ms: int,
) -> tuple[list[Fact], outcomes.Settled]:
    """Return facts that store value and resolve the promise, in one entry. Raises Refused as `_held` does."""
    _held(silo, promises, key, token, now_ms)
    facts, index, evicted = _store(silo, promises, recency, key, value, expires_at_ms, now_ms)
    facts.append({"f": "promise.put", "k": key, "s": RESOLVED, "t": token or 0})
    return facts, outcomes.Settled(key, RESOLVED, index, evicted)


def decide_resolve(silo: Silo, promises: Promises, key: str, payload: Stored, now_ms: int) -> tuple[list[Fact], outcomes.Settled]:
    """Return facts that resolve a registered promise with a payload of its own, without a slot."""
    _held(silo, promises, key, None, now_ms)
    return [{"f": "promise.put", "k": key, "s": RESOLVED, **value_fields(payload)}], outcomes.Settled(key, RESOLVED)


def decide_reject(silo: Silo, promises: Promises, key: str, token: int | None, reason: str, now_ms: int) -> tuple[list[Fact], outcomes.Settled]:
    """Return facts that settle the promise as rejected: waiters get the reason, the next claim wins."""
    _held(silo, promises, key, token, now_ms)
    if len(reason) > limits.REASON_CHARS:
        reason = f"{reason[: limits.REASON_CHARS]}…+{len(reason) - limits.REASON_CHARS} chars"
    return [{"f": "promise.put", "k": key, "s": REJECTED, "t": token or 0, "r": reason}], outcomes.Settled(key, REJECTED)


def decide_release(silo: Silo, promises: Promises, key: str, token: int | None, now_ms: int) -> list[Fact]:
    """Return facts that take a claim back as if it had never been made: those waiting look again, and one takes over."""
    _held(silo, promises, key, token, now_ms)
    return [{"f": "promise.drop", "k": key}]


def decide_renew(silo: Silo, promises: Promises, key: str, token: int | None, lease_ms: int, now_ms: int) -> tuple[list[Fact], outcomes.Renewed]:
    """Return facts that let the lease end lease_ms from now, never earlier than it would have."""
    promise = _held(silo, promises, key, token, now_ms)
    if promise.token == 0:
        raise Refused(f"promise {key!r} has no lease to renew", code="no_lease", hint="only claims have leases", key=key)
    until_ms = max(now_ms + lease_ms, promise.lease_until_ms or now_ms)
    fact: Fact = {"f": "promise.put", "k": key, "s": PENDING, "t": promise.token, "l": until_ms}
    if promise.owner is not None:
        fact["o"] = promise.owner
    return [fact], outcomes.Renewed(key, until_ms, (until_ms - now_ms) / 1000)


def decide_register(silo: Silo, promises: Promises, key: str, owner: str | None, now_ms: int) -> tuple[list[Fact], outcomes.Registered]:
    """Return facts of a promise without lease that anyone may resolve. A pending or resolved one stays as it is."""
    if status_of(silo, promises, key, now_ms) in (PENDING, RESOLVED):
        return [], outcomes.Registered(key)
    fact: Fact = {"f": "promise.put", "k": key, "s": PENDING}
    if owner is not None:
        fact["o"] = owner
    return [fact], outcomes.Registered(key)


def decide_drop(silo: Silo, promises: Promises, keys: Iterable[str], now_ms: int) -> tuple[list[Fact], outcomes.Dropped]:
    """Return facts that remove these slots; what is absent or expired is not named in the answer."""
    present = [key for key in dict.fromkeys(keys) if status_of(silo, promises, key, now_ms) == RESOLVED]
    return [*drop_facts(promises, present), *_payload_facts(promises, present)], outcomes.Dropped(present)


def _payload_facts(promises: Promises, keys: Iterable[str]) -> list[Fact]:
    """Return the facts that remove promises with a payload of their own: they rest on no slot, so only a drop by name ends them."""
    return [{"f": "promise.drop", "k": key} for key in keys if (promise := promises.by_key.get(key)) is not None and promise.payload is not None]


def decide_forget(
    silo: Silo, promises: Promises, keys: Iterable[str], prefix: str | None, actor: str | None, stored_before_ms: int | None
) -> tuple[list[Fact], outcomes.Dropped]:
    """Return facts that remove these slots, and all slots that meet every one of the conditions given."""
    found = [key for key in dict.fromkeys(keys) if key in silo.slots or _payload_facts(promises, [key])]
    if prefix is not None or actor is not None or stored_before_ms is not None:
        found += [
            key
            for key, slot in silo.slots.items()
            if (prefix is None or key.startswith(prefix))
            and (actor is None or slot.actor == actor)
            and (stored_before_ms is None or slot.stored_at_ms < stored_before_ms)
        ]
    found = list(dict.fromkeys(found))
    return [*drop_facts(promises, found, "forgotten"), *_payload_facts(promises, found)], outcomes.Dropped(found)


def decide_flush(silo: Silo, promises: Promises, now_ms: int) -> tuple[list[Fact], outcomes.Flushed]:
    """Return facts that empty the silo. Pending promises stay; the count is of live slots."""
    live = sum(1 for key in silo.slots if silo.live(key, now_ms) is not None)
    return drop_facts(promises, list(silo.slots)), outcomes.Flushed(live)


def _store(
    silo: Silo, promises: Promises, recency: Recency, key: str, value: Stored, expires_at_ms: int | None, now_ms: int
) -> tuple[list[Fact], int, list[str]]:
    facts, index, evicted = decide_store(silo, recency, key, value, expires_at_ms, now_ms, lambda k: promises.is_claimed(k, now_ms))
    if len(facts) > 1 and promises.by_key:
        leaving = [fact["k"] for fact in facts if fact["f"] == "slot.drop"]
        facts += [fact for fact in drop_facts(promises, leaving) if fact["f"] == "promise.drop"]
    return facts, index, evicted


def _held(silo: Silo, promises: Promises, key: str, token: int | None, now_ms: int) -> Promise:
    """Return the pending promise that this token may settle; a registered one needs none.

    Raises Refused: `unknown_promise`, `token_required`, `stale_token` (another owner, or settled meanwhile: `value_stored`
    says whether a value is there), `already_settled`.
    """
    promise = promises.by_key.get(key)
    if promise is None:
        if token is None:
            _refuse("unknown_promise", f"there is no promise {key!r}", "claim it first, or store the value with set", key)
        _refuse("stale_token", f"token {token} no longer holds {key!r}: its promise is settled and gone", "peek for the result", key)
    if token is None:
        if promise.token and promise.status == PENDING:
            _refuse("token_required", f"promise {key!r} was claimed: only its token settles it", "pass the token that claim returned", key)
        if promise.token:
            _refuse("stale_token", f"promise {key!r} is already {status_of(silo, promises, key, now_ms)}", "peek for the result", key)
    elif token != promise.token:
        _refuse("stale_token", f"token {token} does not hold {key!r}: the latest is {promise.token}", "somebody took over; peek for their result", key)
    if promise.status == SUPERSEDED:
        _refuse("stale_token", f"promise {key!r} was settled by a plain set", "peek for the value that is stored", key)
    if promise.status != PENDING:
        _refuse("already_settled", f"promise {key!r} is already {promise.status}", "peek for the result, or claim it again", key)
    return promise


def _refuse(code: str, message: str, hint: str, key: str) -> NoReturn:
    raise Refused(message, code=code, hint=hint, key=key)
