"""What a Python user holds: Memory (a store), Session and AsyncSession (one session of it).

Reads come from RAM after a look at whether another process wrote; writes are turns of the engine. Whatever may wait is
written once, as steps (`_Turn`, `_Wait`, `_Work`), and driven by threads in Session and by asyncio in AsyncSession.
"""

from __future__ import annotations

import contextvars
import functools
import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from pinfold import limits
from pinfold.call_key import call_key
from pinfold.engine import Engine, Replica, Waiter, compact, incarnation_id, incarnation_number, load_state
from pinfold.entry import Fact, decode_entry
from pinfold.errors import PinfoldError, Refused, Unavailable, WorkFailed
from pinfold.journal.base import Journal, SessionInfo
from pinfold.journal.open import default_url, open_journal
from pinfold.state import promises as rules
from pinfold.state.outcomes import (
    Claimed,
    Dropped,
    Flushed,
    Hit,
    Miss,
    Pending,
    PromiseState,
    Registered,
    Rejected,
    Renewed,
    Settled,
    Stored,
)
from pinfold.state.promises import Promise
from pinfold.state.session import SessionState, state_hash
from pinfold.state.silo import Slot
from pinfold.state.value import check_key, pack_value

T = TypeVar("T")
P = ParamSpec("P")

_MISS = Miss()
_KEEP: Any = object()
"""A session option that was not given: the session keeps what it has."""

_at_work: contextvars.ContextVar[frozenset[tuple[int, str]]] = contextvars.ContextVar("pinfold_at_work", default=frozenset())
"""(replica, key) of every `once` this thread or task is inside of: joining oneself would wait for ever."""


class SessionStatus(msgspec.Struct, frozen=True):
    """Counts and sizes of one session; counters of use are best effort."""

    session_id: str
    short_term: dict[str, Any]
    promises: dict[str, int]
    seq: int
    state_hash: str
    expires_at: int | None
    promotion_threshold: int | None
    ledger: dict[str, int]


class LogRow(msgspec.Struct, frozen=True):
    """One entry of a session's journal, told briefly. at_ms: Unix time."""

    seq: int
    at_ms: int
    actor: str | None
    request_id: str | None
    changes: list[str]


class SessionRow(msgspec.Struct, frozen=True):
    """One session of a store. Sizes in bytes, times in Unix ms."""

    session_id: str
    seq: int
    size_bytes: int
    created_at: int
    last_used_at: int
    expires_at: int | None
    ended_at: int | None


# --- steps: what may wait, said once ------------------------------------------------------------------------------


class _Turn(msgspec.Struct):
    run: Callable[[], Any]


class _Wait(msgspec.Struct):
    key: str
    timeout_s: float


class _Work(msgspec.Struct):
    pass


Steps = Generator[_Turn | _Wait | _Work, Any, T]


class Session:
    """One session: peek before you work. Safe to share between threads; `with` releases nothing but the handle.

    Raises from every writing method: Busy, Unavailable (`maybe_applied`), Refused `session_ended`.
    """

    def __init__(self, replica: Replica, engine: Engine, actor: str | None) -> None:
        self._replica = replica
        self._engine = engine
        self._actor = actor
        self._version = replica.journal.version
        self._id = replica.id

    @property
    def session_id(self) -> str:
        return self._replica.name

    def __repr__(self) -> str:
        return f"<Session {self._replica.name!r} in {self._replica.journal.url}>"

    # --- reading ------------------------------------------------------------------------------------------------

    def peek(self, key: str, *, wait_s: float = 0.0) -> Hit | Pending | Miss | Rejected:
        """Return Hit with the value, Pending where somebody is at work on it, or Miss. Changes nothing.

        wait_s: wait that long for pending work; Rejected is its failure, seen only by those who waited.
        """
        replica = self._replica
        if self._version(self._id) != replica.seen:
            replica.catch_up()
        if replica.plain and key.__class__ is str:
            slot = replica.slots.get(key)
            if slot is not None and slot.expires_at_ms is None:
                value = slot.value
                if value.__class__ is str or value.__class__ is bytes:
                    replica.touches.hits += 1
                    return Hit(value, slot.index)
        found = self._look(check_key(key))
        if wait_s > 0 and found.__class__ is Pending:
            return _drive(self._peek_steps(key, wait_s), self, _no_work)
        return found

    def _look(self, key: str) -> Hit | Pending | Miss:
        """Return what is there now, without catching up; count it."""
        replica = self._replica
        state, touches, now_ms = replica.state, replica.touches, replica.now_ms()
        if not replica.plain and state.is_over(now_ms, touches.last_used_ms):
            return _MISS
        found = rules.look(state.silo, state.promises, key, now_ms)
        if found is None:
            touches.misses += 1
            return _MISS
        touches.hits += 1
        if not replica.plain:
            replica.used(key)
        return self._outcome(key, found, now_ms)

    def _outcome(self, key: str, found: Slot | Promise, now_ms: int) -> Hit | Pending:
        if type(found) is Slot:
            return Hit(self._replica.value_of(found.value), found.index if found.index >= 0 else None)
        assert type(found) is Promise
        if found.payload is not None:
            return Hit(self._replica.value_of(found.payload), None)
        return Pending(key, None if found.lease_until_ms is None else max(0, found.lease_until_ms - now_ms) / 1000)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the live keys that start with prefix, in order of their slots."""
        replica = self._replica
        replica.catch_up()
        with replica.lock:
            now_ms = replica.now_ms()
            found = [(s.index, key) for key, s in replica.slots.items() if key.startswith(prefix) and replica.state.silo.live(key, now_ms)]
        return [] if replica.is_over() else [key for _, key in sorted(found)]

    def promise(self, promise_id: str) -> PromiseState:
        """Return what is known of a promise; its payload where it is resolved. Unknown is "unknown", never pending."""
        replica = self._replica
        replica.catch_up()
        key = check_key(promise_id)
        state, now_ms = replica.state, replica.now_ms()
        status = "unknown" if replica.is_over() else rules.status_of(state.silo, state.promises, key, now_ms)
        promise = state.promises.by_key.get(key)
        if status == rules.RESOLVED:
            found = rules.look(state.silo, state.promises, key, now_ms)
            hit = self._outcome(key, found, now_ms) if found is not None else None
            return PromiseState(key, status, hit.value if type(hit) is Hit else None)
        if promise is None or status == "unknown":
            return PromiseState(key, "unknown")
        left_s = None if promise.lease_until_ms is None or status != rules.PENDING else max(0, promise.lease_until_ms - now_ms) / 1000
        return PromiseState(key, status, None, promise.reason, promise.owner, left_s)

    def status(self) -> SessionStatus:
        """Return counts and sizes; hits and misses include this process's own, journaled or not."""
        replica = self._replica
        replica.catch_up()
        with replica.lock:
            state, touches, now_ms = replica.state, replica.touches, replica.now_ms()
            silo, recency = state.silo, state.recency
            counts = {"pending": 0, "resolved": 0, "rejected": 0}
            for promise in state.promises.by_key.values():
                counts["resolved" if promise.status == rules.SUPERSEDED else promise.status] += 1
            live = 0 if replica.is_over() else sum(1 for key in silo.slots if silo.live(key, now_ms) is not None)
            return SessionStatus(
                session_id=replica.name,
                short_term={
                    "slots": live,
                    "silo_size": silo.silo_size,
                    "bytes": silo.inline_bytes + silo.blob_bytes,
                    "hits": recency.hits + touches.hits,
                    "misses": recency.misses + touches.misses,
                    "evicted": recency.evicted,
                },
                promises=counts,
                seq=state.seq,
                state_hash=state_hash(state),
                expires_at=state.expires_at_ms(),
                promotion_threshold=state.settings.promote_after,
                ledger={
                    "executions_avoided": recency.avoided + touches.avoided,
                    "waits_joined": recency.joined + touches.joined,
                },
            )

    def log(self, *, after: int = 0, limit: int = 50, actor: str | None = None) -> list[LogRow]:
        """Return up to limit entries with seq > after, oldest first; with after=0 the newest limit entries.

        Raises Refused `history_gone` where after lies before the retained history.
        """
        replica = self._replica
        replica.catch_up()
        journal, last = replica.journal, replica.state.seq
        start = after or max(0, last - limit if actor is None else 0)
        rows: list[LogRow] = []
        while len(rows) < limit and (records := journal.read(self._id, start, 256)):
            if after and not rows and records[0].seq > start + 1:
                raise Refused(
                    f"the history before entry {records[0].seq} is no longer kept",
                    code="history_gone",
                    hint=f"ask from --after {records[0].seq - 1}",
                    first_seq=records[0].seq,
                )
            for record in records:
                entry = decode_entry(record)
                if actor is None or entry.actor == actor:
                    rows.append(LogRow(entry.seq, entry.at_ms, entry.actor, entry.request_id, [_told(fact) for fact in entry.facts]))
            start = records[-1].seq
        return rows[:limit]

    # --- writing ------------------------------------------------------------------------------------------------

    def _turn(self, decide: Callable[[SessionState, int], tuple[list[Fact], Any]], **rest: Any) -> Any:
        replica = self._replica

        def decide_open(state: SessionState, now_ms: int) -> tuple[list[Fact], Any]:
            if state.settings.ended_at_ms is not None or (
                state.settings.ttl_ms is not None and state.exists and state.is_over(now_ms, replica.touches.last_used_ms)
            ):
                raise Refused(
                    f"session {replica.name!r} has ended",
                    code="session_ended",
                    hint="open it again for a new, empty one; `session restore` brings this one back",
                )
            return decide(state, now_ms)

        return replica.turn(decide_open, actor=self._actor, **rest)

    def set(self, key: str, value: Any, *, ttl_s: float | None = None, token: int | None = None, request_id: str | None = None) -> Stored:
        """Store value under key, durably; its ttl starts anew, and without ttl_s an old one is cleared.

        A plain set on a claimed key wins: the promise is settled, its waiters get this value. With token it is fulfil.
        Raises Refused `bad_key`, `bad_value`, `value_too_large`, `silo_full`.
        """
        if token is not None:
            settled = self.fulfil(key, value, token=token, ttl_s=ttl_s, request_id=request_id)
            return Stored(settled.index if settled.index is not None else -1, settled.evicted)
        check_key(key)
        stored, _, blob = pack_value(value)
        ttl_ms = _ttl_ms(ttl_s)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Stored]:
            expires_at_ms = None if ttl_ms is None else now_ms + ttl_ms
            return rules.decide_set(state.silo, state.promises, state.recency, key, stored, expires_at_ms, now_ms)

        answer = self._turn(decide, request_id=_request(request_id), blobs=_blobs(stored, blob), answer_type=Stored)
        return cast(Stored, answer)

    def claim(
        self, key: str, lease_s: float = limits.LEASE_DEFAULT_S, *, wait_s: float = 0.0, request_id: str | None = None
    ) -> Hit | Pending | Claimed | Rejected:
        """Return Claimed where this caller, and nobody else anywhere, now owns the work; else Hit or Pending.

        wait_s: wait for pending work; take over when its owner's lease lapses; Rejected is a failure seen while waiting.
        """
        check_key(key)
        if wait_s > 0:
            return _drive(self._claim_steps(key, lease_s, wait_s, request_id), self, _no_work)
        return self._claim(key, _lease_ms(lease_s), request_id)

    def _claim(self, key: str, lease_ms: int, request_id: str | None) -> Hit | Pending | Claimed:
        self._replica.catch_up()
        if (found := self._look(key)) is not _MISS:
            return cast("Hit | Pending", found)
        noticed: list[int] = []

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Any]:
            noticed[:] = [now_ms]
            return rules.decide_claim(state.silo, state.promises, key, lease_ms, self._actor, now_ms)

        answer = self._turn(decide, request_id=_request(request_id), answer_type=Claimed)
        if isinstance(answer, (Slot, Promise)):
            return self._outcome(key, answer, noticed[0])
        return cast(Claimed, answer)

    def fulfil(self, claim: Claimed | str, value: Any, *, token: int | None = None, ttl_s: float | None = None, request_id: str | None = None) -> Settled:
        """Store value and resolve the promise, in one entry. claim: what `claim` returned, or a promise id (with its token).

        Raises Refused `stale_token` where another owner took over or somebody set the value (`value` is then in the
        error), `token_required`, `already_settled`, `unknown_promise`.
        """
        key, token = _held(claim, token)
        stored, _, blob = pack_value(value)
        ttl_ms = _ttl_ms(ttl_s)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Settled]:
            expires_at_ms = None if ttl_ms is None else now_ms + ttl_ms
            return rules.decide_fulfil(state.silo, state.promises, state.recency, key, token, stored, expires_at_ms, now_ms)

        try:
            answer = self._turn(decide, request_id=_request(request_id), blobs=_blobs(stored, blob), answer_type=Settled)
        except Refused as refused:
            if refused.code == "stale_token" and type(hit := self._look(key)) is Hit:
                refused.fields["value"] = hit.value
            raise
        return cast(Settled, answer)

    def reject(
        self, claim: Claimed | str, reason: str, *, token: int | None = None, cause: BaseException | None = None, request_id: str | None = None
    ) -> Settled:
        """Settle the promise as failed: present waiters get the reason, and the next claim wins.

        cause: the exception that waiters in this process are raised. Raises Refused as `fulfil`.
        """
        key, token = _held(claim, token)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Settled]:
            return rules.decide_reject(state.silo, state.promises, key, token, reason, now_ms)

        return cast(Settled, self._turn(decide, request_id=_request(request_id), answer_type=Settled, cause=cause))

    def release(self, claim: Claimed | str, *, token: int | None = None) -> None:
        """Give a claim back without a result, as if it had never been made: one of those waiting takes over at once.

        Raises Refused as `fulfil`.
        """
        key, token = _held(claim, token)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], None]:
            return rules.decide_release(state.silo, state.promises, key, token, now_ms), None

        self._turn(decide)

    def renew(self, claim: Claimed | str, lease_s: float = limits.LEASE_DEFAULT_S, *, token: int | None = None) -> Renewed:
        """Let the lease end lease_s from now, never earlier than it would have. Raises Refused as `fulfil`."""
        key, token = _held(claim, token)
        lease_ms = _lease_ms(lease_s)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Renewed]:
            return rules.decide_renew(state.silo, state.promises, key, token, lease_ms, now_ms)

        return cast(Renewed, self._turn(decide))

    def register(self, promise_id: str) -> Registered:
        """Make a promise without owner or lease that anyone may settle: `fulfil`, `resolve` or `reject` need no token."""
        key = check_key(promise_id)
        return cast(Registered, self._turn(lambda state, now_ms: rules.decide_register(state.silo, state.promises, key, self._actor, now_ms)))

    def resolve(self, promise_id: str, payload: Any) -> Settled:
        """Resolve a registered promise with a payload that is no slot. Raises Refused as `fulfil`."""
        key = check_key(promise_id)
        stored, _, blob = pack_value(payload)
        return cast(
            Settled,
            self._turn(lambda state, now_ms: rules.decide_resolve(state.silo, state.promises, key, stored, now_ms), blobs=_blobs(stored, blob)),
        )

    def drop(self, *keys: str, prefix: str | None = None) -> Dropped:
        """Remove these keys, and all that start with prefix, in one entry; the answer names what was there."""
        for key in keys:
            check_key(key)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Dropped]:
            found = [k for k in state.silo.slots if k.startswith(prefix)] if prefix is not None else []
            return rules.decide_drop(state.silo, state.promises, [*keys, *found], now_ms)

        return cast(Dropped, self._turn(decide))

    def flush(self) -> Flushed:
        """Empty the silo; graph and pending promises stay, indexes are not given again. Returns the count of live slots."""
        return cast(Flushed, self._turn(lambda state, now_ms: rules.decide_flush(state.silo, state.promises, now_ms)))

    def configure(
        self, *, silo_size: int | None = _KEEP, ttl_s: float | None = _KEEP, long_term: str | None = _KEEP, promote_after: int | None = _KEEP
    ) -> None:
        """Change the session's options, creating it if it does not exist. Raises Refused `bad_option`."""
        wanted: Fact = {}
        if silo_size is not _KEEP:
            wanted["size"] = _positive("silo_size", silo_size)
        if promote_after is not _KEEP:
            wanted["promote"] = _positive("promote_after", promote_after)
        if ttl_s is not _KEEP:
            wanted["ttl"] = _ttl_ms(ttl_s)
        if long_term is not _KEEP:
            wanted["long"] = None if long_term is None else check_session_name(long_term)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], None]:
            settings = state.settings
            now = {"size": settings.silo_size, "promote": settings.promote_after, "ttl": settings.ttl_ms, "long": settings.long_term}
            changed = {name: value for name, value in wanted.items() if now[name] != value}
            if state.exists and not changed:
                return [], None
            return [{"f": "session.put", **({} if state.exists else {"created": now_ms}), **changed}], None

        self._turn(decide)

    # --- waiting ------------------------------------------------------------------------------------------------

    def wait(self, key: str, timeout_s: float) -> Hit | Rejected | Pending | Miss:
        """Return how the pending work on key ends: Hit or Rejected, through any takeovers; Pending at the timeout.

        Never takes over and never returns an older value. Without pending work: what is known, Miss if nothing is.
        """
        return _drive(self._wait_steps(check_key(key), timeout_s), self, _no_work)

    def _wait_steps(self, key: str, timeout_s: float) -> Steps[Hit | Rejected | Pending | Miss]:
        deadline = time.monotonic() + timeout_s
        while True:
            known = self.promise(key)
            if known.status == rules.REJECTED:
                return Rejected(key, known.reason or "")
            if known.status != rules.PENDING:
                return self._look(key)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return Pending(key, known.lease_left_s)
            outcome = yield _Wait(key, left_s)
            if isinstance(outcome, BaseException):
                return Rejected(key, reason_of(outcome))
            if outcome is not None and outcome is not _RELEASED:
                return cast("Hit | Rejected", outcome)

    def _peek_steps(self, key: str, wait_s: float) -> Steps[Hit | Pending | Miss | Rejected]:
        deadline = time.monotonic() + wait_s
        while True:
            self._replica.catch_up()
            found = self._look(key)
            left_s = deadline - time.monotonic()
            if type(found) is not Pending or left_s <= 0:
                return found
            outcome = yield _Wait(key, _until_lapse(found, left_s))
            if isinstance(outcome, BaseException):
                return Rejected(key, reason_of(outcome))
            if outcome is not None and outcome is not _RELEASED:
                return cast("Hit | Rejected", outcome)

    def _claim_steps(self, key: str, lease_s: float, wait_s: float, request_id: str | None) -> Steps[Hit | Pending | Claimed | Rejected]:
        deadline = time.monotonic() + wait_s
        lease_ms = _lease_ms(lease_s)
        while True:
            found = yield _Turn(lambda: self._claim(key, lease_ms, request_id))
            left_s = deadline - time.monotonic()
            if type(found) is not Pending or left_s <= 0:
                return cast("Hit | Pending | Claimed", found)
            outcome = yield _Wait(key, _until_lapse(found, left_s))
            if isinstance(outcome, BaseException):
                return Rejected(key, reason_of(outcome))
            if outcome is not None and outcome is not _RELEASED:
                return cast("Hit | Rejected", outcome)

    # --- once ---------------------------------------------------------------------------------------------------

    def once(self, key: str, fn: Callable[[], T], *, ttl_s: float | None = None, lease_s: float = limits.LEASE_DEFAULT_S, timeout_s: float | None = None) -> T:
        """Return the value of key: the one that is there, the one somebody else is making, or fn(), run once anywhere.

        While fn runs its lease is renewed in the background; if this process dies, one of those waiting takes over.
        An exception of fn is raised here and in everyone waiting now (in other processes as WorkFailed), and not kept.
        timeout_s: how long to wait for somebody else's work. Raises Unavailable `wait_timeout`, Refused `recursive_once`.
        """
        found = self.peek(key)
        if found.__class__ is Hit:
            self._replica.touches.avoided += 1
            return cast(T, found.value)
        return cast(T, self.once_hit(key, fn, ttl_s=ttl_s, lease_s=lease_s, timeout_s=timeout_s).value)

    def once_hit(
        self, key: str, fn: Callable[[], Any], *, ttl_s: float | None = None, lease_s: float = limits.LEASE_DEFAULT_S, timeout_s: float | None = None
    ) -> Hit:
        """Return what `once` returns as a Hit; `shared` says whether somebody else made it."""
        return _drive(self._once_steps(check_key(key), ttl_s, lease_s, timeout_s), self, fn)

    def _once_steps(self, key: str, ttl_s: float | None, lease_s: float, timeout_s: float | None) -> Steps[Hit]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        lease_ms = _lease_ms(lease_s)
        mark = (id(self._replica), key)
        if mark in _at_work.get():
            raise Refused(f"once({key!r}) is called from inside its own work", code="recursive_once", hint="give the inner work a key of its own")
        touches = self._replica.touches
        while True:
            found = yield _Turn(lambda: self._claim(key, lease_ms, None))
            if type(found) is Claimed:
                return (yield from self._work_steps(found, mark, ttl_s, lease_s))
            if type(found) is Hit:
                touches.avoided += 1
                return Hit(found.value, found.index, True)
            left_s = 3600.0 if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                raise Unavailable(f"the work on {key!r} was not done within {timeout_s:g} s", code="wait_timeout", hint="try again, or wait longer", key=key)
            outcome = yield _Wait(key, _until_lapse(found, left_s))
            if isinstance(outcome, BaseException):
                raise outcome
            if isinstance(outcome, Rejected):
                raise WorkFailed(f"the work on {key!r} failed: {outcome.reason}", hint="not kept: the next call tries again", key=key, reason=outcome.reason)
            if type(outcome) is Hit:
                touches.joined += 1
                return Hit(outcome.value, outcome.index, True)

    def _work_steps(self, claim: Claimed, mark: tuple[int, str], ttl_s: float | None, lease_s: float) -> Steps[Hit]:
        renewing = self._engine.renewer.add(lease_s / 3, lambda: self.renew(claim, lease_s))
        outer = _at_work.set(_at_work.get() | {mark})
        try:
            try:
                value = yield _Work()
            finally:
                _at_work.reset(outer)
                self._engine.renewer.remove(renewing)
            settled = yield _Turn(lambda: self.fulfil(claim, value, ttl_s=ttl_s))
        except Exception as error:
            if isinstance(error, Refused) and error.code == "stale_token" and error.fields.get("key") == claim.key:
                # Our lease lapsed and another owner's result stands: everyone gets the same one.
                return Hit(error.fields["value"], None, True) if "value" in error.fields else Hit(value, None)
            yield _Turn(lambda error=error: self._quietly(lambda: self.reject(claim, reason_of(error), cause=error)))  # type: ignore[misc]
            raise
        except BaseException:  # interrupted or cancelled: that is this caller's affair, not the waiters'
            self._quietly(lambda: self.release(claim))
            raise
        return Hit(value, settled.index)

    def _quietly(self, settle: Callable[[], Any]) -> None:
        try:
            settle()
        except PinfoldError:
            pass  # the lease lapses by itself; the caller is already being told what went wrong

    def cached(
        self,
        *,
        ttl_s: float | None = None,
        lease_s: float = limits.LEASE_DEFAULT_S,
        key: Callable[..., str] | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator: the function runs once per arguments, across threads, processes and restarts.

        The key is `call_key(name, arguments)`; name is the function's module and qualified name. key(*args, **kwargs)
        makes another. Works on async functions too. Raises Refused `bad_arguments` at a call whose arguments are not
        JSON.
        """

        def decorate(fn: Callable[P, T]) -> Callable[P, T]:
            key_of = key or _Keys(fn, name)
            if _is_async(fn):
                session = AsyncSession(self)

                @functools.wraps(fn)
                async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                    called = key_of(*args, **kwargs)
                    found = self.peek(called)
                    if found.__class__ is Hit:
                        self._replica.touches.avoided += 1
                        return found.value
                    return await session.once(called, cast("Callable[[], Awaitable[Any]]", lambda: fn(*args, **kwargs)), ttl_s=ttl_s, lease_s=lease_s)

                return cast("Callable[P, T]", run_async)

            @functools.wraps(fn)
            def run(*args: P.args, **kwargs: P.kwargs) -> T:
                called = key_of(*args, **kwargs)
                found = self.peek(called)
                if found.__class__ is Hit:
                    self._replica.touches.avoided += 1
                    return cast(T, found.value)
                return self.once(called, lambda: fn(*args, **kwargs), ttl_s=ttl_s, lease_s=lease_s)

            return run

        return decorate

    # --- the end ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._replica.flush_touches()


class AsyncSession:
    """A Session for asyncio: the same methods, awaited. Reads come from RAM; journal I/O runs in a worker thread."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    async def peek(self, key: str, *, wait_s: float = 0.0) -> Hit | Pending | Miss | Rejected:
        found = self._session.peek(key)
        if wait_s > 0 and found.__class__ is Pending:
            return await _drive_async(self._session._peek_steps(key, wait_s), self._session, None)
        return found

    async def claim(
        self, key: str, lease_s: float = limits.LEASE_DEFAULT_S, *, wait_s: float = 0.0, request_id: str | None = None
    ) -> Hit | Pending | Claimed | Rejected:
        check_key(key)
        return await _drive_async(self._session._claim_steps(key, lease_s, wait_s, request_id), self._session, None)

    async def wait(self, key: str, timeout_s: float) -> Hit | Rejected | Pending | Miss:
        return await _drive_async(self._session._wait_steps(check_key(key), timeout_s), self._session, None)

    async def once(
        self, key: str, fn: Callable[[], Awaitable[T]], *, ttl_s: float | None = None, lease_s: float = limits.LEASE_DEFAULT_S, timeout_s: float | None = None
    ) -> T:
        found = self._session.peek(key)
        if found.__class__ is Hit:
            self._session._replica.touches.avoided += 1
            return cast(T, found.value)
        steps = self._session._once_steps(key, ttl_s, lease_s, timeout_s)
        return cast(T, (await _drive_async(steps, self._session, fn)).value)

    def cached(
        self, *, ttl_s: float | None = None, lease_s: float = limits.LEASE_DEFAULT_S, key: Callable[..., str] | None = None, name: str | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        return self._session.cached(ttl_s=ttl_s, lease_s=lease_s, key=key, name=name)

    def keys(self, prefix: str = "") -> list[str]:
        return self._session.keys(prefix)

    def promise(self, promise_id: str) -> PromiseState:
        return self._session.promise(promise_id)

    def status(self) -> SessionStatus:
        return self._session.status()

    async def set(self, key: str, value: Any, *, ttl_s: float | None = None, token: int | None = None, request_id: str | None = None) -> Stored:
        return await _in_thread(lambda: self._session.set(key, value, ttl_s=ttl_s, token=token, request_id=request_id))

    async def fulfil(self, claim: Claimed | str, value: Any, *, token: int | None = None, ttl_s: float | None = None, request_id: str | None = None) -> Settled:
        return await _in_thread(lambda: self._session.fulfil(claim, value, token=token, ttl_s=ttl_s, request_id=request_id))

    async def reject(self, claim: Claimed | str, reason: str, *, token: int | None = None, cause: BaseException | None = None) -> Settled:
        return await _in_thread(lambda: self._session.reject(claim, reason, token=token, cause=cause))

    async def release(self, claim: Claimed | str, *, token: int | None = None) -> None:
        await _in_thread(lambda: self._session.release(claim, token=token))

    async def renew(self, claim: Claimed | str, lease_s: float = limits.LEASE_DEFAULT_S, *, token: int | None = None) -> Renewed:
        return await _in_thread(lambda: self._session.renew(claim, lease_s, token=token))

    async def drop(self, *keys: str, prefix: str | None = None) -> Dropped:
        return await _in_thread(lambda: self._session.drop(*keys, prefix=prefix))

    async def flush(self) -> Flushed:
        return await _in_thread(self._session.flush)

    async def log(self, *, after: int = 0, limit: int = 50, actor: str | None = None) -> list[LogRow]:
        return await _in_thread(lambda: self._session.log(after=after, limit=limit, actor=actor))

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await _in_thread(self._session._replica.flush_touches)


class Memory:
    """A store of sessions, by URL: memory://, sqlite:///path[?durability=full]; default $PINFOLD_STORE or the user's data folder.

    actor: who writes, for the log. background=False starts no threads. Raises ConfigurationError.
    """

    def __init__(self, url: str | None = None, *, actor: str | None = None, background: bool = True, journal: Journal | None = None) -> None:
        self._journal = journal if journal is not None else open_journal(url or default_url())
        self._engine = Engine(self._journal, background=background)
        self._actor = check_actor(actor)
        self._sessions: dict[str, Session] = {}

    @property
    def url(self) -> str:
        return self._journal.url

    def session(
        self, session_id: str, *, silo_size: int | None = _KEEP, ttl_s: float | None = _KEEP, long_term: str | None = _KEEP, promote_after: int | None = _KEEP
    ) -> Session:
        """Return the session of that name; nothing is written until something is stored or an option given.

        silo_size: evict the least recently used slots beyond this count. ttl_s: end the session this long after its
        last use. An ended or expired session is followed by a new, empty one under its name.
        """
        replica = self._engine.open(check_session_name(session_id))
        session = self._sessions.get(session_id)
        if session is None or session._replica is not replica:
            session = self._sessions[session_id] = Session(replica, self._engine, self._actor)
        if any(option is not _KEEP for option in (silo_size, ttl_s, long_term, promote_after)):
            session.configure(silo_size=silo_size, ttl_s=ttl_s, long_term=long_term, promote_after=promote_after)
        return session

    def async_session(self, session_id: str, **options: Any) -> AsyncSession:
        """Return the session of that name for asyncio; options as `session`. Opening reads the journal: do it at start."""
        return AsyncSession(self.session(session_id, **options))

    def sessions(self, *, expired: bool = False) -> list[SessionRow]:
        """Return the living sessions of this store; with expired=True those that ended and are still kept."""
        rows = []
        for info in self._journal.sessions():
            state = load_state(self._journal, info.name)
            ended_at = _ended_at(state, self._journal.now_ms())
            if (ended_at is not None) == expired:
                rows.append(_session_row(info, state, ended_at))
        return rows

    def end(self, session_id: str) -> bool:
        """End a session: it reads as absent, its journal is kept for ENDED_SESSION_KEPT_S. False where there is none."""
        replica = self._engine.open(check_session_name(session_id))

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], bool]:
            if not state.exists or state.is_over(now_ms, replica.touches.last_used_ms):
                return [], False
            return [{"f": "session.put", "ended": now_ms}], True

        ended = bool(replica.turn(decide, actor=self._actor))
        self.purge()
        return ended

    def restore(self, session_id: str, *, as_name: str | None = None) -> Session:
        """Bring an ended or expired session back, under as_name if given.

        Raises Refused `session_exists` while a new one lives under the name, `no_such_session`.
        """
        name = check_session_name(session_id)
        target = check_session_name(as_name) if as_name else name
        now_ms = self._journal.now_ms()
        living = {info.name.partition("@")[0] for info in self._journal.sessions() if _ended_at(load_state(self._journal, info.name), now_ms) is None}
        if target in living:
            raise Refused(f"a session {target!r} is alive", code="session_exists", hint="restore it under another name: --as NEW", session_id=target)
        numbers = sorted((incarnation_number(journal_id) for journal_id in self._journal.incarnations(name)), reverse=True)
        ended = [n for n in numbers if load_state(self._journal, incarnation_id(name, n)).exists]
        if not ended:
            raise Refused(f"no session {name!r} is kept", code="no_such_session", hint="`session list --expired` names those that are", session_id=name)
        if target == name:
            replica = self._engine.replica(name, ended[0])
        else:
            replica = self._engine.copy(name, ended[0], target)
        replica.turn(lambda state, at_ms: ([{"f": "session.put", "ended": None, "restored": at_ms}], None), actor=self._actor)
        self._engine.forget(target)
        return self.session(target)

    def purge(self) -> list[str]:
        """Drop the journals of sessions that ended longer than ENDED_SESSION_KEPT_S ago. Return their names."""
        now_ms = self._journal.now_ms()
        gone = []
        for info in self._journal.sessions():
            ended_at = _ended_at(load_state(self._journal, info.name), now_ms)
            if ended_at is not None and now_ms - ended_at > limits.ENDED_SESSION_KEPT_S * 1000:
                self._journal.drop(info.name)
                gone.append(info.name)
        return gone

    def compact(self) -> list[str]:
        """Snapshot every session, apply retention, drop what ended long ago. Return the names of compacted sessions."""
        self.purge()
        names = [info.name for info in self._journal.sessions()]
        for name in names:
            compact(self._journal, name)
        return names

    def close(self) -> None:
        """Release the store: touches are journaled, due snapshots made. Ends no session. Idempotent."""
        self._engine.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


# --- drivers ------------------------------------------------------------------------------------------------------

_RELEASED = Miss()
"""The outcome of waiting for a claim that was given back: look again."""


def _no_work() -> Any:
    raise AssertionError("these steps have no work in them")


def _resume(steps: Generator[Any, Any, Any], run: Callable[[], Any]) -> Any:
    """Run one step and give its answer, or its exception, to the steps. Return the next step."""
    try:
        answer = run()
    except BaseException as error:
        return steps.throw(error)
    return steps.send(answer)


def _drive(steps: Steps[T], session: Session, work: Callable[[], Any]) -> T:
    """Run steps in this thread."""
    try:
        step = next(steps)
        while True:
            if type(step) is _Turn:
                step = _resume(steps, step.run)
            elif type(step) is _Wait:
                step = _resume(steps, functools.partial(_wait_in_thread, session, step))
            else:
                step = _resume(steps, work)
    except StopIteration as stop:
        return cast(T, stop.value)


def _wait_in_thread(session: Session, step: _Wait) -> Any:
    replica, waiter = session._replica, Waiter()
    replica.add_waiter(step.key, waiter)
    try:
        if _still_pending(replica, step.key):
            if replica.background:
                waiter.wait(step.timeout_s)
            else:
                _watch_in_thread(replica, waiter, step.timeout_s)
    finally:
        replica.remove_waiter(step.key, waiter)
    return _settle(replica, waiter)


def _watch_in_thread(replica: Replica, waiter: Waiter, timeout_s: float) -> None:
    """Wait without a watcher thread: this thread looks out for other processes itself."""
    until = time.monotonic() + timeout_s
    while waiter.outcome is None and (left_s := until - time.monotonic()) > 0:
        if replica.journal.wait(replica.id, replica.state.seq, min(left_s, 0.5)):
            replica.catch_up()


def _still_pending(replica: Replica, key: str) -> bool:
    """Look once more after registering: what settled in between woke nobody, and the caller looks again."""
    replica.catch_up()
    promise = replica.state.promises.by_key.get(key)
    return promise is not None and promise.status == rules.PENDING and key not in replica.slots


def _settle(replica: Replica, waiter: Waiter) -> Any:
    """Return a waiter's outcome as a caller sees it; None where it only timed out."""
    outcome = waiter.outcome
    if type(outcome) is Slot:
        return Hit(replica.value_of(outcome.value), outcome.index if outcome.index >= 0 else None, True)
    return _RELEASED if type(outcome) is Miss else outcome


async def _drive_async(steps: Steps[T], session: Session, work: Callable[[], Awaitable[Any]] | None) -> T:
    """Run steps in this task: turns in a worker thread, waits as futures."""
    try:
        step = next(steps)
        while True:
            try:
                if type(step) is _Turn:
                    answer = await _turn_in_thread(session, step.run)
                elif type(step) is _Wait:
                    answer = await _wait_in_task(session, step)
                else:
                    assert work is not None
                    answer = await work()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return cast(T, stop.value)


async def _wait_in_task(session: Session, step: _Wait) -> Any:
    import asyncio

    loop = asyncio.get_running_loop()
    settled = loop.create_future()

    def settle() -> None:
        if not settled.done():
            settled.set_result(None)

    def notify() -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    replica, waiter = session._replica, Waiter(notify)
    replica.add_waiter(step.key, waiter)
    try:
        if _still_pending(replica, step.key):
            await asyncio.wait([settled], timeout=step.timeout_s)
    finally:
        replica.remove_waiter(step.key, waiter)
    return _settle(replica, waiter)


async def _in_thread(run: Callable[[], T]) -> T:
    import asyncio

    return await asyncio.to_thread(run)


async def _turn_in_thread(session: Session, run: Callable[[], Any]) -> Any:
    """Run a turn in a worker thread. A claim won after the caller was cancelled is given back: nobody would work on it."""
    import asyncio

    future = asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:

        def give_back(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and type(done.result()) is Claimed:
                session._quietly(lambda: session.release(done.result()))

        future.add_done_callback(give_back)
        raise


def _is_async(fn: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(fn)


# --- arguments ----------------------------------------------------------------------------------------------------

_PLAIN = frozenset((str, int, bool, type(None)))


class _Keys:
    """Makes the canonical key of a function's calls; remembers recent ones, since canonical JSON costs more than a hit."""

    _KEPT = 4096

    def __init__(self, fn: Callable[..., Any], name: str | None) -> None:
        import inspect

        self._signature = inspect.signature(fn)
        self._name = name or f"{fn.__module__}.{fn.__qualname__}"
        self._known: dict[Any, str] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        # 1, 1.0 and True are equal and hash alike but are different calls: types are part of what is remembered.
        types = tuple(map(type, args)) if not kwargs else None
        if types is not None and _PLAIN.issuperset(types):
            call = (args, types)
            key = self._known.get(call)
            if key is None:
                if len(self._known) >= self._KEPT:
                    self._known.clear()
                key = self._known[call] = self._make(args, kwargs)
            return key
        return self._make(args, kwargs)

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return call_key(self._name, dict(bound.arguments))


def _until_lapse(found: Pending, left_s: float) -> float:
    return left_s if found.lease_left_s is None else min(left_s, found.lease_left_s + 0.001)


def reason_of(error: BaseException) -> str:
    """Return an exception as one line for those who waited."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _held(claim: Claimed | str, token: int | None) -> tuple[str, int | None]:
    if isinstance(claim, Claimed):
        return claim.key, claim.token
    return check_key(claim), token


def _blobs(stored: Any, blob: bytes | None) -> dict[bytes, bytes] | None:
    return None if blob is None else {stored.sha256: blob}


def _ttl_ms(ttl_s: float | None) -> int | None:
    if ttl_s is None:
        return None
    if not isinstance(ttl_s, (int, float)) or not 0 < ttl_s < 1e9:
        raise Refused(f"a ttl of {ttl_s!r} s is not possible", code="bad_ttl", hint="give seconds above 0, or None for no ttl")
    return max(1, round(ttl_s * 1000))


def _lease_ms(lease_s: float) -> int:
    if not isinstance(lease_s, (int, float)) or not limits.LEASE_MIN_S <= lease_s <= limits.LEASE_MAX_S:
        raise Refused(f"a lease of {lease_s!r} s is not possible", code="bad_lease", hint=f"give {limits.LEASE_MIN_S} to {limits.LEASE_MAX_S:.0f} seconds")
    return round(lease_s * 1000)


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise Refused(f"{name}={value!r} is not possible", code="bad_option", hint=f"give {name} a whole number above 0, or none for no limit")
    return value


def _request(request_id: str | None) -> str | None:
    if request_id is not None and not 0 < len(request_id) <= limits.REQUEST_ID_CHARS:
        raise Refused("a request_id has 1 to 128 characters", code="bad_option", hint="a UUID is a good one")
    return request_id


_NAME = re.compile(limits.SESSION_NAME_PATTERN)


def check_session_name(name: str) -> str:
    """Return name where a session can have it. Raises Refused `bad_session_name`."""
    if type(name) is str and _NAME.fullmatch(name):
        return name
    raise Refused(f"{str(name)[:40]!r} cannot name a session", code="bad_session_name", hint=f"use 1 to {limits.SESSION_NAME_CHARS} of A-Z a-z 0-9 _ . : -")


def check_actor(actor: str | None) -> str | None:
    """Return actor where it can be journaled. Raises Refused `bad_actor`."""
    if actor is None or (0 < len(actor) <= limits.ACTOR_CHARS and actor.isprintable()):
        return actor
    raise Refused(f"{actor[:40]!r} cannot name an actor", code="bad_actor", hint=f"use 1 to {limits.ACTOR_CHARS} printable characters")


# --- telling ------------------------------------------------------------------------------------------------------


def _told(fact: Fact) -> str:
    """Return a fact in a few words, without its value: what an agent needs to find out who did what."""
    name, key = fact["f"], fact.get("k")
    if name == "slot.put":
        size = fact.get("n", len(fact.get("v") or fact.get("j") or ""))
        return f"set {key} [{fact['i']}] {size} bytes" + (f" sha256={fact['h'].hex()[:12]}" if "h" in fact else "")
    if name == "slot.drop":
        return f"{fact.get('why', 'dropped')} {key}"
    if name == "promise.put":
        verb = "claimed" if fact["s"] == rules.PENDING and fact.get("t") else "registered" if fact["s"] == rules.PENDING else fact["s"]
        return f"{verb} {key}" + (f" token={fact['t']}" if fact.get("t") else "") + (f": {fact['r']}" if "r" in fact else "")
    if name == "promise.drop":
        return f"promise of {key} dropped"
    if name == "session.put":
        return "session " + " ".join(f"{k}={v}" for k, v in fact.items() if k != "f")
    return str(name)


def _ended_at(state: SessionState, now_ms: int) -> int | None:
    if state.settings.ended_at_ms is not None:
        return state.settings.ended_at_ms
    return state.expires_at_ms() if state.is_over(now_ms) else None


def _session_row(info: SessionInfo, state: SessionState, ended_at: int | None) -> SessionRow:
    return SessionRow(
        session_id=info.name.partition("@")[0],
        seq=info.last_seq,
        size_bytes=info.entry_bytes + info.snapshot_bytes + info.blob_bytes,
        created_at=state.settings.created_at_ms,
        last_used_at=max(state.at_ms, state.recency.last_used_ms),
        expires_at=state.expires_at_ms(),
        ended_at=ended_at,
    )


def iter_states(memory: Memory) -> Iterable[tuple[str, str]]:
    """Yield (journal name, state hash) of every session in a store: two stores that yield the same are equal."""
    for info in memory._journal.sessions():
        yield info.name, state_hash(load_state(memory._journal, info.name))
