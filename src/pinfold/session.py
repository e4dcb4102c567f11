"""Session: what a Python user holds. Reads come from RAM after a look at whether another process wrote; writes are turns.

Whatever may wait is written once, as steps, and driven by this thread here and by asyncio in AsyncSession.
"""

from __future__ import annotations

import contextvars
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from pinfold import limits
from pinfold.arguments import (
    CallKeys,
    age_ms_of,
    blobs_of,
    check_actor,
    check_reason,
    check_session_name,
    deadline_of,
    held,
    is_async,
    lease_ms_of,
    positive,
    reason_of,
    request_of,
    shown_request,
    ttl_ms_of,
    until_lapse,
)
from pinfold.engine import Engine, Replica
from pinfold.entry import Fact, decode_entry
from pinfold.errors import Busy, PinfoldError, Refused, Unavailable, WorkFailed
from pinfold.graph_session import rows_kept
from pinfold.inputs_session import InputsSession
from pinfold.recall_session import RecallSession
from pinfold.state import promises as rules
from pinfold.state.graph import Edge, Law, Node
from pinfold.state.inputs import Input, rest_on
from pinfold.state.outcomes import (
    Claimed,
    Dropped,
    Flushed,
    Forgotten,
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
from pinfold.state.value import check_key, inline_bytes, pack_value, value_fields, value_of
from pinfold.steps import RELEASED, Steps, Turn, Wait, Work, drive, no_work

T = TypeVar("T")
P = ParamSpec("P")

_MISS = Miss()
KEEP: Any = object()
"""A session option that was not given: the session keeps what it has."""

_at_work: contextvars.ContextVar[frozenset[tuple[int, str]]] = contextvars.ContextVar("pinfold_at_work", default=frozenset())
"""(replica, key) of every `once` this thread or task is inside of: joining oneself would wait for ever."""


def _leave(outer: contextvars.Token[frozenset[tuple[int, str]]]) -> None:
    try:
        _at_work.reset(outer)
    except ValueError:
        pass  # a task that was thrown away is closed outside of its context, which goes with it


class SessionStatus(msgspec.Struct, frozen=True):
    """Counts and sizes of one session, and of the graph that keeps its long-term memory; counters of use are best effort."""

    session_id: str
    short_term: dict[str, Any]
    promises: dict[str, int]
    long_term: dict[str, Any]
    seq: int
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


class Session(InputsSession, RecallSession):
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

    def by(self, actor: str | None) -> Session:
        """Return this session for another writer: what is written through it carries that name. Raises Refused `bad_actor`."""
        return Session(self._replica, self._engine, check_actor(actor))

    def __repr__(self) -> str:
        return f"<Session {self._replica.name!r} in {self._replica.journal.url}>"

    # --- reading ------------------------------------------------------------------------------------------------

    def peek(self, key: str, *, wait_s: float = 0.0, fresh: bool = False) -> Hit | Pending | Miss | Rejected:
        """Return Hit with the value, Pending where somebody is at work on it, or Miss. Changes nothing.

        wait_s: wait that long for pending work; Rejected is its failure, seen only by those who waited. fresh: a value
        whose inputs changed is no hit; without it such a hit is `stale`, and `because` says why.
        """
        replica = self._replica
        if self._version(self._id) != replica.seen:
            replica.catch_up()
        if replica.plain and key.__class__ is str:
            slot = replica.slots.get(key)
            if slot is not None and slot.expires_at_ms is slot.extra:  # type: ignore[comparison-overlap]  # only None is both: no time, no inputs
                value = slot.value
                if value.__class__ is str or value.__class__ is bytes:
                    replica.touches.hits += 1
                    return Hit(value, slot.index)
        found = self._look(check_key(key), fresh)
        if wait_s and found.__class__ is Pending:
            return drive(self._peek_steps(key, wait_s, fresh), self, no_work)
        return found

    def peeks_in_ram(self) -> bool:
        """Return whether `peek` touches nothing but RAM: no server to ask, no file to look at for an input, no promotion to write at a hit."""
        state = self._replica.state
        return self._replica.journal.local and not state.inputs.given and state.settings.promote_after is None

    def _look(self, key: str, fresh: bool = False) -> Hit | Pending | Miss:
        """Return what is there now, without catching up; count it. fresh: what is stale is not there."""
        replica = self._replica
        state, touches, now_ms = replica.state, replica.touches, replica.now_ms()
        if not replica.plain and state.is_over(now_ms, touches.last_used_ms):
            return _MISS
        found = rules.look(state.silo, state.promises, key, now_ms)
        if found is None:
            touches.misses += 1
            return _MISS
        because: tuple[str, ...] = ()
        if type(found) is Slot and found.extra is not None and "in" in found.extra:
            because = self._because(key)
            if because and fresh:
                held = state.promises.by_key.get(key)
                if held is None or not held.is_held(now_ms):
                    touches.misses += 1
                    return _MISS
                found = held
        touches.hits += 1
        if not replica.plain:
            replica.used(key)
            if state.settings.promote_after is not None and type(found) is Slot:
                self._promote_if_due(key, found)
        outcome = self._outcome(key, found, now_ms)
        return outcome if not because or type(outcome) is not Hit else Hit(outcome.value, outcome.index, False, because)

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
        long_term = self.long_term_counts()
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
                long_term=long_term,
                seq=state.seq,
                expires_at=state.expires_at_ms(),
                promotion_threshold=state.settings.promote_after,
                ledger={
                    "executions_avoided": recency.avoided + touches.avoided,
                    "waits_joined": recency.joined + touches.joined,
                    "tokens_served": recency.served + touches.served,
                    "tokens_full": recency.full + touches.full,
                },
            )

    def state_hash(self) -> str:
        """Return 32 hex digits that are equal for equal states, in any process. O(state)."""
        replica = self._replica
        replica.catch_up()
        with replica.lock:
            return state_hash(replica.state)

    def log(self, *, after: int = 0, limit: int = 50, actor: str | None = None) -> list[LogRow]:
        """Return up to limit entries with seq > after, oldest first; with after=0 the newest limit entries.

        actor: only those of this writer, and of those who write under it (`ci`, `ci/agent-7`).
        Raises Refused `history_gone` where after lies before the retained history, `bad_arguments`.
        """
        if after < 0 or limit < 0:
            raise Refused(f"there are no {limit} entries after {after}", code="bad_arguments", hint="give both from 0 up")
        replica = self._replica
        replica.catch_up()
        journal, last = replica.journal, replica.state.seq
        start = after or max(0, last - limit if actor is None else 0)
        rows: deque[LogRow] = deque(maxlen=None if after else limit)
        first = True
        while (not after or len(rows) < limit) and (records := journal.read(self._id, start, 256)):
            if after and first and records[0].seq > start + 1:
                raise Refused(
                    f"the history before entry {records[0].seq} is no longer kept",
                    code="history_gone",
                    hint=f"ask from --after {records[0].seq - 1}",
                    first_seq=records[0].seq,
                )
            first, start = False, records[-1].seq
            for entry in map(decode_entry, records):
                if actor is None or entry.actor == actor or (entry.actor or "").startswith(f"{actor}/"):
                    rows.append(LogRow(entry.seq, entry.at_ms, entry.actor, shown_request(entry.request_id), [_told(fact) for fact in entry.facts]))
        return list(rows)[:limit]

    def confirm(self) -> int:
        """Return the seq this session stands at, once all that was acknowledged before this call, by anyone, is in it.

        What is read next is no older than that. Files and PostgreSQL are read so anyway; Redis may answer from a primary that was
        replaced, and `max_stale_ms` from RAM. Raises Unavailable `unconfirmed`, `read_only` where it cannot be known.
        """
        self._replica.catch_up(confirm=True)
        return self._replica.state.seq

    # --- writing ------------------------------------------------------------------------------------------------

    def _turn(self, decide: Callable[[SessionState, int], tuple[list[Fact], Any]], *, request_id: str | None = None, **rest: Any) -> Any:
        return self._replica.turn(decide, request_id=request_of(request_id), actor=self._actor, **rest)

    def set(
        self,
        key: str,
        value: Any,
        *,
        ttl_s: float | None = None,
        token: int | None = None,
        inputs: Iterable[str | Input] | None = None,
        request_id: str | None = None,
    ) -> Stored:
        """Store value under key, durably; its ttl starts anew, and without ttl_s an old one is cleared.

        A plain set on a claimed key wins: the promise is settled, its waiters get this value. With token it is fulfil.
        inputs: what the value was made from (slot:KEY, row:ID, session:NAME/row:ID, file:PATH, tree:PATH, url:… etag=…,
        version:NAME=VALUE, or what `note` returned); when one changes the value is stale. Without inputs it rests on nothing.
        Raises Refused `bad_key`, `bad_value`, `value_too_large`, `silo_full`, `bad_input`, `no_such_input`, `input_cycle`.
        """
        if token is not None:
            settled = self.fulfil(key, value, token=token, ttl_s=ttl_s, inputs=inputs, request_id=request_id)
            if type(settled) is not Settled:
                return cast(Stored, settled)  # already_applied
            return Stored(settled.index if settled.index is not None else -1, settled.evicted)
        check_key(key)
        stored, _, blob = pack_value(value)
        ttl_ms = ttl_ms_of(ttl_s)
        rests = self._marked(inputs) if inputs is not None else None

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Stored]:
            expires_at_ms = None if ttl_ms is None else now_ms + ttl_ms
            facts, answer = rules.decide_set(state.silo, state.promises, state.recency, key, stored, expires_at_ms, now_ms)
            return (facts if rests is None else rest_on(state, facts, key, rests, now_ms)), answer

        asked = None if request_id is None else {"f": "slot.put", "k": key, **value_fields(stored)}
        # Not by way of _turn: a frame and a dict less, where it counts.
        replica, request, blobs = self._replica, request_of(request_id), blobs_of(stored, blob)
        return cast(Stored, replica.turn(decide, request_id=request, actor=self._actor, blobs=blobs, answer_type=Stored, asked=asked))

    def claim(
        self, key: str, lease_s: float = limits.LEASE_DEFAULT_S, *, wait_s: float = 0.0, fresh: bool = False, request_id: str | None = None
    ) -> Hit | Pending | Claimed | Rejected:
        """Return Claimed where this caller, and nobody else anywhere, now owns the work; else Hit or Pending.

        wait_s: wait for pending work; take over when its owner's lease lapses; Rejected is a failure seen while waiting.
        fresh: a stale value is work to be done again, and exactly one caller gets it.
        """
        check_key(key)
        if wait_s:
            return drive(self._claim_steps(key, lease_s, wait_s, request_id, fresh), self, no_work)
        found = self._claim(key, lease_ms_of(lease_s), request_id, fresh)
        if type(found) is Hit:  # whoever asks for the work and is given its result does not do it
            self._replica.touches.avoided += 1
        return found

    def _claim(
        self, key: str, lease_ms: int, request_id: str | None, fresh: bool = False, inputs: Iterable[str | Input] | None = None
    ) -> Hit | Pending | Claimed:
        """Claim key. inputs: a value made from others than these is stale too."""
        replica = self._replica
        for _ in range(limits.TURN_ATTEMPTS):
            replica.catch_up()
            over = self._stale_slot(key, inputs) if fresh else None
            if over is None and request_id is None and (found := self._look(key)) is not _MISS:  # a retry would find its own first claim
                return cast("Hit | Pending", found)
            noticed: list[int] = []

            def decide(state: SessionState, now_ms: int, over: Slot | None = over, noticed: list[int] = noticed) -> tuple[list[Fact], Any]:
                noticed[:] = [now_ms]
                return rules.decide_claim(state.silo, state.promises, key, lease_ms, self._actor, now_ms, over)

            answer = self._turn(decide, request_id=request_id, answer_type=Claimed, asked={"f": "promise.put", "k": key})
            if fresh and type(answer) is Slot and answer.extra is not None:
                continue  # stored meanwhile: judge that one
            if isinstance(answer, (Slot, Promise)):
                return self._outcome(key, answer, noticed[0])
            return cast(Claimed, answer)
        raise Busy(f"{key!r} was stored anew {limits.TURN_ATTEMPTS} times while it was judged", hint="try again")

    def _stale_slot(self, key: str, inputs: Iterable[str | Input] | None) -> Slot | None:
        """Return the slot of key where it is stale, or was made from other inputs than these."""
        slot = self._replica.state.silo.live(key, self._replica.now_ms())
        if slot is None or self._replica.is_over() or (inputs is None and slot.extra is None):
            return None
        return slot if self._because(key) or (inputs is not None and self._unlike(slot, self._marked(inputs))) else None

    def fulfil(
        self,
        claim: Claimed | str,
        value: Any,
        *,
        token: int | None = None,
        ttl_s: float | None = None,
        inputs: Iterable[str | Input] | None = None,
        request_id: str | None = None,
    ) -> Settled:
        """Store value and resolve the promise, in one entry. claim: what `claim` returned, or a promise id (with its token).

        inputs: as `set`; those of work that took a while are best noted (`note`) when it began. Without any, a value made
        anew rests on what the one before rested on, as that is now.

        Raises Refused `stale_token` where another owner took over or somebody set the value (`value` is then in the
        error), `token_required`, `already_settled`, `unknown_promise`.
        """
        key, token = held(claim, token)
        stored, _, blob = pack_value(value)
        ttl_ms = ttl_ms_of(ttl_s)
        rests = self._marked(inputs) if inputs is not None else self._inherited(key) if self._replica.state.inputs.on else None

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Settled]:
            expires_at_ms = None if ttl_ms is None else now_ms + ttl_ms
            facts, answer = rules.decide_fulfil(state.silo, state.promises, state.recency, key, token, stored, expires_at_ms, now_ms)
            return (facts if rests is None else rest_on(state, facts, key, rests, now_ms)), answer

        try:
            asked = {"f": "slot.put", "k": key, **value_fields(stored)}
            answer = self._turn(decide, request_id=request_id, blobs=blobs_of(stored, blob), answer_type=Settled, asked=asked)
        except Refused as refused:
            if refused.code in ("stale_token", "already_settled") and type(hit := self._look(key)) is Hit:
                refused.fields["value"] = hit.value
            raise
        return cast(Settled, answer)

    def reject(
        self, claim: Claimed | str, reason: str, *, token: int | None = None, cause: BaseException | None = None, request_id: str | None = None
    ) -> Settled:
        """Settle the promise as failed: present waiters get the reason, and the next claim wins.

        cause: the exception that waiters in this process are raised. Raises Refused as `fulfil`.
        """
        key, token = held(claim, token)
        reason = check_reason(reason)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Settled]:
            return rules.decide_reject(state.silo, state.promises, key, token, reason, now_ms)

        asked = {"f": "promise.put", "k": key, "s": rules.REJECTED}
        return cast(Settled, self._turn(decide, request_id=request_id, answer_type=Settled, asked=asked, cause=cause))

    def release(self, claim: Claimed | str, *, token: int | None = None) -> None:
        """Give a claim back without a result, as if it had never been made: one of those waiting takes over at once.

        Raises Refused as `fulfil`.
        """
        key, token = held(claim, token)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], None]:
            return rules.decide_release(state.silo, state.promises, key, token, now_ms), None

        self._turn(decide)

    def renew(self, claim: Claimed | str, lease_s: float = limits.LEASE_DEFAULT_S, *, token: int | None = None) -> Renewed:
        """Let the lease end lease_s from now, never earlier than it would have. Raises Refused as `fulfil`."""
        key, token = held(claim, token)
        lease_ms = lease_ms_of(lease_s)

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
            self._turn(lambda state, now_ms: rules.decide_resolve(state.silo, state.promises, key, stored, now_ms), blobs=blobs_of(stored, blob)),
        )

    def drop(self, *keys: str, prefix: str | None = None) -> Dropped:
        """Remove these keys, and all that start with prefix, in one entry; the answer names what was there."""
        for key in keys:
            check_key(key)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Dropped]:
            found = [k for held in (state.silo.slots, state.promises.by_key) for k in held if k.startswith(prefix)] if prefix is not None else []
            return rules.decide_drop(state.silo, state.promises, [*keys, *found], now_ms)

        return cast(Dropped, self._turn(decide))

    def forget(
        self,
        *names: str,
        prefix: str | None = None,
        kind: str | None = None,
        where: Any = None,
        group: str | None = None,
        actor: str | None = None,
        older_than_s: float | None = None,
        dry_run: bool = False,
        erase: bool = False,
    ) -> Forgotten:
        """Remove these keys and rows, and what meets every condition given, in one entry; not undoable.

        names: keys of slots, or ids of rows where no slot is called so; slot:KEY and row:ID say which. prefix: of keys. kind,
        where, group: of rows. actor, older_than_s: of both, by their last write. An edge goes with its nodes. erase: also
        rewrite the retained journal, snapshots, blobs and caches, so that what they said is in no file any more. dry_run: only
        say what would go. Raises Refused `bad_arguments` where nothing was named, or a prefix and a condition of rows; `bad_age`.
        """
        of_rows = kind is not None or where is not None or group is not None
        if not names and not of_rows and prefix is None and actor is None and older_than_s is None:
            raise Refused("nothing was named to forget", code="bad_arguments", hint="pass keys, ids, a prefix, a kind, a filter, a group, an actor or an age")
        if of_rows and prefix is not None:
            raise Refused("a prefix is of keys, kind, where and group are of rows", code="bad_arguments", hint="forget them one after the other")
        from pinfold.recall.read import predicate
        from pinfold.state import memory_rows as rows

        of = None if kind is None else rows.kind_of_type(kind)
        holds = predicate(where)
        replica, older_than_ms = self._replica, age_ms_of(older_than_s)
        keys = [name.removeprefix("slot:") for name in names if not name.startswith("row:")]
        ids = [name.removeprefix("row:") for name in names if not name.startswith("slot:")]
        any_slots = not of_rows and (prefix is not None or actor is not None or older_than_s is not None)
        any_rows = of_rows or (prefix is None and (actor is not None or older_than_s is not None))

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], tuple[list[str], list[str]]]:
            before_ms = None if older_than_ms is None else now_ms - older_than_ms

            def matches(row: Node | Edge | Law) -> bool:
                return (
                    (of is None or (isinstance(row, Node) and row.kind == of))
                    and (group is None or row.get("group") == group)
                    and (actor is None or row.mark[2] == actor)
                    and (before_ms is None or row.mark[1] < before_ms)
                    and (holds is None or holds(row))
                )

            conditions = (prefix, actor, before_ms) if any_slots else (None, None, None)
            facts, dropped = rules.decide_forget(state.silo, state.promises, keys, *conditions)
            slots = set(dropped.keys)
            gone, went = rows.decide_forget_rows(state.graph, state.schema, [id for id in ids if id not in slots], matches if any_rows else None, now_ms)
            facts += rows_kept(state, gone, now_ms)
            return [] if dry_run else facts, (dropped.keys, went)

        slots, went = self._turn(decide)
        erased = {*slots, *keys}, {*went, *ids}
        if dry_run or not erase or not any(erased):
            return Forgotten(slots, False, went)
        from pinfold.erase import erase as erase_values

        erase_values(replica.journal, replica.id, *erased)
        replica.reload()
        return Forgotten(slots, True, went)

    def flush(self) -> Flushed:
        """Empty the silo; graph and pending promises stay, indexes are not given again. Returns the count of live slots."""
        return cast(Flushed, self._turn(lambda state, now_ms: rules.decide_flush(state.silo, state.promises, now_ms)))

    def configure(self, *, silo_size: int | None = KEEP, ttl_s: float | None = KEEP, long_term: str | None = KEEP, promote_after: int | None = KEEP) -> None:
        """Change the session's options, creating it if it does not exist. Raises Refused `bad_option`."""
        wanted: Fact = {}
        if silo_size is not KEEP:
            wanted["size"] = positive("silo_size", silo_size)
        if promote_after is not KEEP:
            wanted["promote"] = positive("promote_after", promote_after)
        if ttl_s is not KEEP:
            wanted["ttl"] = ttl_ms_of(ttl_s)
        if long_term is not KEEP:
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

        Never takes over and never returns an older value. Without pending work, or where it was given back and nobody has
        taken it over yet: what is known, Miss if nothing is. Raises Refused `bad_timeout`.
        """
        return drive(self._wait_steps(check_key(key), timeout_s), self, no_work)

    def _wait_steps(self, key: str, timeout_s: float) -> Steps[Hit | Rejected | Pending | Miss]:
        deadline = deadline_of(timeout_s)
        while True:
            known = yield Turn(lambda: self.promise(key))
            if known.status == rules.REJECTED:
                return Rejected(key, known.reason or "")
            if known.status != rules.PENDING:
                return self._look(key)
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return Pending(key, known.lease_left_s)
            outcome = yield Wait(key, left_s)
            if isinstance(outcome, BaseException):
                return Rejected(key, reason_of(outcome))
            if outcome is not None and outcome is not RELEASED:
                return cast("Hit | Rejected", outcome)

    def _peek_steps(self, key: str, wait_s: float, fresh: bool = False) -> Steps[Hit | Pending | Miss | Rejected]:
        deadline = deadline_of(wait_s)
        while True:
            yield Turn(self._replica.catch_up)
            found = self._look(key, fresh)
            left_s = deadline - time.monotonic()
            if type(found) is not Pending or left_s <= 0:
                return found
            outcome = yield Wait(key, until_lapse(found, left_s), fresh)
            if isinstance(outcome, BaseException):
                return Rejected(key, reason_of(outcome))
            if outcome is not None and outcome is not RELEASED:
                return cast("Hit | Rejected", outcome)

    def _claim_steps(self, key: str, lease_s: float, wait_s: float, request_id: str | None, fresh: bool = False) -> Steps[Hit | Pending | Claimed | Rejected]:
        deadline = deadline_of(wait_s)
        lease_ms = lease_ms_of(lease_s)
        while True:
            found = yield Turn(lambda: self._claim(key, lease_ms, request_id, fresh))
            left_s = deadline - time.monotonic()
            if type(found) is not Pending or left_s <= 0:
                if type(found) is Hit:
                    self._replica.touches.avoided += 1
                return cast("Hit | Pending | Claimed", found)
            outcome = yield Wait(key, until_lapse(found, left_s), fresh)
            if isinstance(outcome, BaseException):
                return Rejected(key, reason_of(outcome))
            if outcome is not None and outcome is not RELEASED:
                if type(outcome) is Hit:
                    self._replica.touches.joined += 1
                return cast("Hit | Rejected", outcome)

    # --- once ---------------------------------------------------------------------------------------------------

    def once(
        self,
        key: str,
        fn: Callable[[], T],
        *,
        ttl_s: float | None = None,
        lease_s: float = limits.LEASE_DEFAULT_S,
        timeout_s: float | None = None,
        inputs: Iterable[str | Input] | None = None,
        fresh: bool = True,
    ) -> T:
        """Return the value of key: the one that is there, the one somebody else is making, or fn(), run once anywhere.

        While fn runs its lease is renewed in the background; if this process dies, one of those waiting takes over.
        An exception of fn is raised here and in everyone waiting now (in other processes as WorkFailed), and not kept.
        timeout_s: how long to wait for somebody else's work. inputs: as `set`, as they are when fn begins; a value that is
        stale, or was made from other inputs, is made anew, by exactly one, unless fresh=False.
        Raises Unavailable `wait_timeout`, Refused `recursive_once`.
        """
        found = self.peek(key)
        if found.__class__ is Hit and ((inputs is None and found.because is None) or not fresh):
            self._replica.touches.avoided += 1
            return cast(T, found.value)
        return cast(T, self.once_hit(key, fn, ttl_s=ttl_s, lease_s=lease_s, timeout_s=timeout_s, inputs=inputs, fresh=fresh).value)

    def once_hit(
        self,
        key: str,
        fn: Callable[[], Any],
        *,
        ttl_s: float | None = None,
        lease_s: float = limits.LEASE_DEFAULT_S,
        timeout_s: float | None = None,
        inputs: Iterable[str | Input] | None = None,
        fresh: bool = True,
    ) -> Hit:
        """Return what `once` returns as a Hit; `shared` says whether somebody else made it."""
        return drive(self._once_steps(check_key(key), ttl_s, lease_s, timeout_s, inputs, fresh), self, fn)

    def _once_steps(
        self,
        key: str,
        ttl_s: float | None,
        lease_s: float,
        timeout_s: float | None,
        inputs: Iterable[str | Input] | None = None,
        fresh: bool = True,
    ) -> Steps[Hit]:
        rests = None if inputs is None else list(inputs)
        deadline = None if timeout_s is None else deadline_of(timeout_s)
        lease_ms = lease_ms_of(lease_s)
        mark = (id(self._replica), key)
        if mark in _at_work.get():
            raise Refused(f"once({key!r}) is called from inside its own work", code="recursive_once", hint="give the inner work a key of its own")
        touches = self._replica.touches
        made: list[Any] = []  # our own result, where another owner had taken over by the time it was there
        while True:
            found = yield Turn(lambda: self._claim(key, lease_ms, None, fresh, rests))
            if type(found) is Claimed:
                done = yield from self._work_steps(found, mark, ttl_s, lease_s, rests, made)
                if done is not None:
                    return done
                continue
            if type(found) is Hit:
                touches.avoided += 1
                return Hit(found.value, found.index, True)
            left_s = 3600.0 if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                if made:
                    return Hit(made[0], None)
                raise Unavailable(f"the work on {key!r} was not done within {timeout_s:g} s", code="wait_timeout", hint="try again, or wait longer", key=key)
            outcome = yield Wait(key, until_lapse(found, left_s), fresh)
            if isinstance(outcome, BaseException):
                raise outcome
            if isinstance(outcome, Rejected):
                raise WorkFailed(f"the work on {key!r} failed: {outcome.reason}", hint="not kept: the next call tries again", key=key, reason=outcome.reason)
            if type(outcome) is Hit:
                touches.joined += 1
                return Hit(outcome.value, outcome.index, True)

    def _work_steps(
        self, claim: Claimed, mark: tuple[int, str], ttl_s: float | None, lease_s: float, inputs: list[str | Input] | None, made: list[Any]
    ) -> Steps[Hit | None]:
        """Do the work of a claim (once: made keeps what came of it) and settle it. None where another owner is at it by now."""
        renewing = self._engine.renewer.add(lease_s / 3, lambda: self.renew(claim, lease_s))
        outer = _at_work.set(_at_work.get() | {mark})
        try:
            try:
                noting = self._replica.state.inputs.on or inputs is not None
                rests = (yield Turn(lambda: self._inherited(claim.key) if inputs is None else self._noted(claim.key, inputs))) if noting else None
                if not made:
                    made.append((yield Work()))
                value = made[0]
            finally:
                self._engine.renewer.remove(renewing)
                _leave(outer)
            settled = yield Turn(lambda: self.fulfil(claim, value, ttl_s=ttl_s, inputs=rests))
        except Exception as error:
            if isinstance(error, Refused) and error.code in ("stale_token", "already_settled") and error.fields.get("key") == claim.key:
                # Our lease lapsed and another took over: its result, there or still to come, is everyone's.
                return Hit(error.fields["value"], None, True) if "value" in error.fields else None
            yield Turn(lambda error=error: self._quietly(lambda: self.reject(claim, reason_of(error), cause=error)))  # type: ignore[misc]
            raise
        except GeneratorExit:  # a task that was thrown away with its loop: nobody is left to wait for a turn
            self._quietly(lambda: self.release(claim))
            raise
        except BaseException:  # interrupted or cancelled: that is this caller's affair, not the waiters'
            yield Turn(lambda: self._quietly(lambda: self.release(claim)))
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
        inputs: Iterable[str] | Callable[..., Iterable[str]] | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator: the function runs once per arguments, across threads, processes and restarts.

        The key is `call_key(name, arguments)`; name is the function's module and qualified name. key(*args, **kwargs)
        makes another. inputs: what a result rests on (a list, or of the call's arguments); a stale one is made anew. Works on
        async functions too. Raises Refused `bad_arguments` at a call whose arguments are not
        JSON.
        """

        def decorate(fn: Callable[P, T]) -> Callable[P, T]:
            key_of = key or CallKeys(fn, name)
            rests: Callable[..., Any] = inputs if callable(inputs) else lambda *args, **kwargs: inputs
            plain = inputs is None
            if is_async(fn):
                from pinfold.async_session import AsyncSession

                session = AsyncSession(self)

                @functools.wraps(fn)
                async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                    called = key_of(*args, **kwargs)
                    found = self.peek(called)
                    if found.__class__ is Hit and plain and found.because is None:
                        self._replica.touches.avoided += 1
                        return found.value
                    return await session.once(
                        called, cast("Callable[[], Awaitable[Any]]", lambda: fn(*args, **kwargs)), ttl_s=ttl_s, lease_s=lease_s, inputs=rests(*args, **kwargs)
                    )

                return cast("Callable[P, T]", run_async)

            @functools.wraps(fn)
            def run(*args: P.args, **kwargs: P.kwargs) -> T:
                called = key_of(*args, **kwargs)
                found = self.peek(called)
                if found.__class__ is Hit and plain and found.because is None:
                    self._replica.touches.avoided += 1
                    return cast(T, found.value)
                return self.once(called, lambda: fn(*args, **kwargs), ttl_s=ttl_s, lease_s=lease_s, inputs=rests(*args, **kwargs))

            return run

        return decorate

    # --- the end ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._replica.flush_touches()


_TIMES = ("created", "ended", "restored")


def _when(at_ms: int) -> str:
    """Return Unix time in ms as UTC to the second."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))
    except (ValueError, OverflowError, OSError):
        return str(at_ms)  # a year that has no four digits: some clock was wrong


# --- telling ------------------------------------------------------------------------------------------------------


def _told(fact: Fact) -> str:
    """Return a fact in a few words, without its value: what an agent needs to find out who did what."""
    name, key = fact["f"], fact.get("k")
    if name == "slot.put":
        size = fact["n"] if "n" in fact else inline_bytes(value_of(fact))
        return f"set {key} [{fact['i']}] {size} bytes" + (f" sha256={fact['h'].hex()[:12]}" if "h" in fact else "")
    if name == "slot.drop":
        return f"{fact.get('why', 'dropped')} {key}"
    if name == "promise.put":
        verb = "claimed" if fact["s"] == rules.PENDING and fact.get("t") else "registered" if fact["s"] == rules.PENDING else fact["s"]
        return f"{verb} {key}" + (f" token={fact['t']}" if fact.get("t") else "") + (f": {fact['r']}" if "r" in fact else "")
    if name == "promise.drop":
        return f"promise of {key} dropped"
    if name in ("node.put", "edge.put", "law.put"):
        verb = "created" if "born" not in fact else f"renamed {fact['was']} to" if "was" in fact else "patched"
        return f"{verb} {fact['id']}" + (f" {fact['src']} --({fact['rel']})--> {fact['dst']}" if name == "edge.put" and verb == "created" else "")
    if name in ("node.drop", "edge.drop", "law.drop"):
        return f"{fact.get('why', 'dropped')} {fact['id']}"
    if name == "schema.put":
        return f"declared {fact.get('kind', 'relations')}"
    if name == "touch":
        return "reads noted"
    if name == "session.put":
        told = {k: _when(v) if k in _TIMES and v else ",".join(v) if k == "merged" else v for k, v in fact.items() if k != "f"}
        return "session " + " ".join(f"{k}={v}" for k, v in told.items())
    return "lost: this entry could not be read when the store was repaired" if name == "lost" else str(name)
