"""The one room with clock, journal and locks: opening, catching up, the turn, waiting, compaction.

A Replica is a session's state in this process, kept in step with its journal. Its rules:

* nothing changes but through `turn`: decide (pure) -> append -> apply; a refusal has written nothing;
* what is applied is in the journal, in its order; where the two differ, RAM gives way and is loaded anew;
* waiting, embedding, callbacks and the wait for another process's lock never happen under `lock`;
* time never runs backwards and never stands still: behind the last entry it goes on by the monotonic clock.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold import limits
from pinfold.entry import Entry, Fact, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Busy, JournalCorrupt, PinfoldError, Refused, Unavailable
from pinfold.fold import blob_names, compact, load, load_state
from pinfold.journal.base import Journal, Snapshot
from pinfold.renewer import Renewer
from pinfold.state import promises as rules
from pinfold.state.outcomes import AlreadyApplied, Miss, Rejected
from pinfold.state.session import SessionState, apply, decide_housekeep, encode_snapshot
from pinfold.state.silo import Slot
from pinfold.state.value import Blob, Stored, check_blob, unpack_raw, unpack_value, value_of
from pinfold.touches import Touches

if TYPE_CHECKING:
    from pinfold.recall.bind import Recall

try:
    from _weakrefset import WeakSet  # which threading has loaded; weakref itself is not needed
except ImportError:
    from weakref import WeakSet

Decide = Callable[[SessionState, int], tuple[list[Fact], Any]]
"""(state, now_ms) -> (facts, answer): pure, raises Refused before anything is written."""


class Waiter:
    """Somebody waiting for a key to settle. `deliver` is called once, from any thread, with what it came to."""

    __slots__ = ("_event", "_notify", "outcome")

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        self.outcome: Slot | Rejected | BaseException | Miss | None = None
        self._event = None if notify else threading.Event()
        self._notify = notify

    def deliver(self, outcome: Slot | Rejected | BaseException | Miss) -> None:
        if self.outcome is None:
            self.outcome = outcome
            if self._event is not None:
                self._event.set()
            elif self._notify is not None:
                self._notify()

    def wait(self, timeout_s: float) -> None:
        assert self._event is not None
        self._event.wait(min(timeout_s, threading.TIMEOUT_MAX))

    def wait_following(self, replica: Replica, timeout_s: float) -> None:
        """Wait without a watcher thread: this one looks out for other processes meanwhile."""
        until_s = replica.monotonic() + timeout_s
        while self.outcome is None and (left_s := until_s - replica.monotonic()) > 0:
            if replica.journal.wait(replica.id, replica.state.seq, min(left_s, 0.5)):
                replica.read_on()


class Replica:
    """One session's state in this process. `slots` is the silo's dict, at hand for the hot path."""

    def __init__(self, journal: Journal, name: str, journal_id: str, monotonic: Callable[[], float], background: bool) -> None:
        self.journal = journal
        self.name = name
        self.id = journal_id
        self.background = background
        self.lock = threading.RLock()
        self.seen: Hashable = None
        self.touches = Touches()
        self.monotonic = monotonic
        self._waiters: dict[str, list[Waiter]] = {}
        self._watcher: threading.Thread | None = None
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()
        self._blob_bytes = 0
        self._touched_at = self.opened_at = monotonic()
        self._timer: threading.Timer | None = None
        self._compacting = threading.Lock()
        self._wrote = False
        self.done: Counter[str] = Counter()
        """What this process did: turns, conflicts, and of touches no longer held, what they counted."""
        self.recall: Recall | None = None
        """The index of this session's graph, once somebody searched."""
        self._dropped = False
        self._install(*load(journal, journal_id))

    def _install(self, state: SessionState, snapshot_seq: int, snapshot_bytes: int, tail_bytes: int) -> None:
        self.state = state
        self.recall = None
        self.slots = state.silo.slots
        self._snapshot_seq, self._snapshot_bytes, self._tail_bytes = snapshot_seq, snapshot_bytes, tail_bytes
        self._check_at = snapshot_seq + limits.SNAPSHOT_MIN_ENTRIES
        self._anchor = (state.at_ms, self.monotonic())
        self._torn = False
        self._settings_changed()

    def _settings_changed(self) -> None:
        settings = self._settings = self.state.settings
        self.plain = (
            settings.silo_size is None and settings.ttl_ms is None and settings.ended_at_ms is None and settings.promote_after is None and not self._dropped
        )
        """Whether a hit needs neither clock nor recency: the hot path of peek."""
        # A ttl that slides must be journaled before it ends, or other processes would take the session for over.
        self._touch_every_s = limits.TOUCH_INTERVAL_S if settings.ttl_ms is None else min(limits.TOUCH_INTERVAL_S, settings.ttl_ms / 3000)

    # --- time ---------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the journal's time; where that lies behind what was seen before, the last time goes on by the monotonic clock.

        The anchor stays while it carries: moved with every entry it would lose the fraction of a ms each time, and a
        session written to more often than that would stand still.
        """
        now_ms, now_s = self.journal.now_ms(), self.monotonic()
        anchor_ms, anchor_s = self._anchor
        carried_ms = anchor_ms + int((now_s - anchor_s) * 1000)
        if now_ms < carried_ms:
            return max(carried_ms, self.state.at_ms)
        if now_ms < self.state.at_ms:
            return self.state.at_ms
        self._anchor = (now_ms, now_s)
        return now_ms

    def is_over(self) -> bool:
        """Return whether the session was ended, its ttl ran out, or its journal was dropped."""
        return not self.plain and (self._dropped or self.state.is_over(self.now_ms(), self.touches.last_used_ms))

    # --- keeping in step ----------------------------------------------------------------------------------------

    def catch_up(self, confirm: bool = False) -> None:
        """Apply what others appended. Cheap where nothing did. confirm: all that was acknowledged before this call."""
        version = self.journal.version(self.id, confirm)
        if version == self.seen:
            return
        with self.lock:
            self._read_on()
            self.seen = version

    def read_on(self) -> None:
        """Apply what others appended, where there surely is something: a look at the version first would be one round trip more."""
        with self.lock:
            self._read_on()

    def _read_on(self) -> None:
        seq = self.state.seq
        if self._torn:
            self._reload()
        elif seq == 0:
            self._follow(self.journal.read(self.id, 0))
        else:  # from our last entry on: where it is another by now, history was replaced, and what was erased must leave RAM too
            records = self.journal.read(self.id, seq - 1)
            if records and (records[0].seq, records[0].hash) == (seq, self.state.hash):
                self._follow(records[1:])
            else:
                self.reload()

    def _follow(self, records: list[Record]) -> None:
        """Apply records after ours; where they do not follow, the history was replaced or trimmed: load anew."""
        try:
            for record in records:
                _wake(self._apply(decode_entry(record), record))
        except JournalCorrupt:
            self._reload()  # raises where the store itself is damaged

    def _apply(self, entry: Entry, record: Record, cause: BaseException | None = None) -> list[tuple[Waiter, Any]]:
        self._torn = True  # an exception from outside (Ctrl-C) may fall anywhere in apply
        apply(self.state, entry, record.hash)
        self._torn = False
        if self.recall is not None:
            self.recall.note(entry.facts)
        if entry.at_ms > self._anchor[0]:
            now_s = self.monotonic()
            if entry.at_ms > self._anchor[0] + int((now_s - self._anchor[1]) * 1000):
                self._anchor = (entry.at_ms, now_s)
        self._tail_bytes += len(record.body)
        if self.state.settings is not self._settings:
            self._settings_changed()
        if self.touches.keys:  # the touch that journals them comes after this entry: what it put must stay the younger
            for fact in entry.facts:
                if fact["f"] == "slot.put":
                    self.touches.keys[fact["k"]] = None
                    self.touches.keys.move_to_end(fact["k"])
        if not self._waiters:
            return _NOBODY
        woken = [woken for fact in entry.facts for woken in self._woken_by(fact, cause)]
        return woken if self._settings.ended_at_ms is None else woken + self._settled_waiters()

    def _woken_by(self, fact: Fact, cause: BaseException | None) -> list[tuple[Waiter, Any]]:
        """Return who waits for what this fact settles, with the outcome: the value as of this entry, never an older one."""
        key = fact.get("k")
        if key not in self._waiters:
            return []
        outcome: Slot | Rejected | BaseException | Miss
        if fact["f"] == "slot.put":
            outcome = self.slots[key]
        elif fact["f"] == "promise.put" and fact["s"] == rules.REJECTED:
            outcome = cause or Rejected(key, fact["r"])
        elif fact["f"] == "promise.put" and fact["s"] == rules.RESOLVED and (payload := value_of(fact)) is not None:
            outcome = Slot(-1, payload, None, 0)
        elif fact["f"] == "promise.drop":
            outcome = Miss()
        else:
            return []
        return [(waiter, outcome) for waiter in self._waiters.pop(key)]

    def wake_all(self) -> None:
        """Let everybody who waits look again."""
        with self.lock:
            woken = self._settled_waiters()
        _wake(woken)

    def _settled_waiters(self) -> list[tuple[Waiter, Any]]:
        return [(waiter, Miss()) for key in list(self._waiters) for waiter in self._waiters.pop(key)]

    # --- the turn -----------------------------------------------------------------------------------------------

    def turn(
        self,
        decide: Decide,
        *,
        request_id: str | None = None,
        actor: str | None = None,
        blobs: Mapping[bytes, bytes] | None = None,
        cause: BaseException | None = None,
        answer_type: Any = None,
        asked: Fact | None = None,
        over: bool = False,
    ) -> Any:
        """Return decide's answer once its facts are durable: the only way anything changes.

        blobs: the large values the facts name. cause: the exception handed to this process's waiters with a rejection.
        answer_type: what a retried request_id's answer is converted to. asked: what a fact of its entry says if it was the same
        request. over: also where the session has ended.
        Raises what decide raises; Busy, Unavailable.
        """
        with self.journal.write_lock(self.id, limits.LOCK_WAIT_S) as waited, self.lock:
            if waited:
                self.catch_up()  # whoever held the lock has most likely written: decide on that, not on a conflict
            for _ in range(limits.TURN_ATTEMPTS):
                if request_id is not None and request_id in self.state.requests:
                    return self._answer_again(self.state.requests[request_id], answer_type, asked)
                now_ms = self.now_ms()
                try:
                    if not self.plain and not over:
                        self._refuse_if_over(now_ms)
                    facts, answer = decide(self.state, now_ms)
                except Refused:
                    if self._is_behind():
                        continue
                    raise
                if not facts:
                    if self._is_behind():
                        continue
                    return answer
                if not self.state.exists and not self._may_begin(now_ms):
                    self._leave()
                    self._refuse_if_over(now_ms)
                facts, touched = self._with_chores(facts, now_ms)
                entry = Entry(self.state.seq + 1, self.state.hash, now_ms, request_id, actor, facts, answer if request_id else None)
                record = encode_entry(entry)
                seen, self.seen = self.seen, None  # until it is applied, nobody may take RAM for the journal
                try:
                    conflict = self.journal.append(self.id, self.state.seq, self.state.hash, [record], blobs or {})
                except Unavailable:
                    self.seen = seen  # reads go on while the store lets them: the version moves where it was written after all
                    raise
                if conflict is None:
                    break
                self.done["conflicts"] += 1
                if conflict.missing:  # even where it is byte for byte this entry, it is another writer's: two may claim in one ms
                    self._follow(conflict.missing)
                else:
                    self._reload(after_conflict=True)
            else:
                raise Busy(f"session {self.name!r}: {limits.TURN_ATTEMPTS} other writers were first", hint="try again")
            self._wrote = True
            self.done["turns"] += 1
            woken = self._apply(entry, record, cause)
            self.seen = seen
            if touched:
                self._drop_touches()
                self._touched_at = self.monotonic()
        if woken:
            _wake(woken)
        if self.state.seq >= self._check_at:
            self._compact_if_due()
        return answer

    def _may_begin(self, now_ms: int) -> bool:
        """Return whether this is the life that is to begin. Since it was opened the one before may have been restored or purged."""
        number, latest = incarnation_number(self.id), latest_number(self.journal, self.name)
        if latest != number - 1:
            return latest == number  # another process began it: the append will say so
        return not latest or load_state(self.journal, incarnation_id(self.name, latest)).is_over(now_ms)

    def _leave(self) -> None:
        """The session goes on in another life: what would be written to this one would be read by nobody."""
        self._dropped = True
        self._settings_changed()

    def _refuse_if_over(self, now_ms: int) -> None:
        if self._dropped or (self.state.exists and self.state.is_over(now_ms, self.touches.last_used_ms)):
            raise Refused(
                f"session {self.name!r} has ended",
                code="session_ended",
                hint="open it again for a new, empty one; `pinfold session restore` brings this one back",
            )

    def _is_behind(self) -> bool:
        """Catch up and return whether that changed anything: a refusal or an answer without facts must not rest on old state."""
        seq, last = self.state.seq, self.state.hash
        self._read_on()  # the journal itself, not its version: that is only a hint
        return (self.state.seq, self.state.hash) != (seq, last)

    def _with_chores(self, facts: list[Fact], now_ms: int) -> tuple[list[Fact], bool]:
        """Return facts with what rides along: the session's beginning, removal of what expired, touches now and then."""
        if not self.state.exists and facts[0]["f"] != "session.put":
            facts = [{"f": "session.put", "created": now_ms}, *facts]
        chores = decide_housekeep(self.state, now_ms)
        if self.monotonic() - self._touched_at >= self._touch_every_s and (touch := self.touches.fact()):
            return [touch, *chores, *facts], True  # first: what these facts put was used later
        return [*chores, *facts] if chores else facts, False

    def _answer_again(self, seq: int, answer_type: Any, asked: Fact | None) -> Any:
        """Return what the request was answered the first time. Raises Refused `request_id_reused` where it was another request."""
        records = self.journal.read(self.id, seq - 1, 1)
        if not records or records[0].seq != seq:
            return AlreadyApplied(seq)
        entry = decode_entry(records[0])
        if entry.result is None and answer_type is not None:
            return AlreadyApplied(seq)  # what was answered said what was erased since
        if asked is None or any(_says(fact, asked) for fact in entry.facts):
            try:
                return entry.result if answer_type is None else msgspec.convert(entry.result, answer_type)
            except msgspec.ValidationError:
                pass
        raise Refused(f"this request_id was used for something else, at entry {seq}", code="request_id_reused", hint="use a new one per request", seq=seq)

    def reload(self) -> None:
        """Discard RAM, large values too, and load what the journal holds."""
        with self.lock:
            self._blobs.clear()
            self._blob_bytes = 0
            self._reload()

    def begun(self, state: SessionState, snapshot_bytes: int) -> None:
        """Go on with a state that nobody else holds and that its journal just began with."""
        with self.lock:
            self._install(state, state.seq, snapshot_bytes, 0)
            self.seen = None

    def _reload(self, after_conflict: bool = False) -> None:
        old = self.state
        before = old.seq, old.hash
        found = load(self.journal, self.id)
        self._install(*found)
        # A journal that was dropped, or dropped and begun anew under the number of its first life.
        if old.exists and (not self.state.exists or self.state.settings.created_at_ms != old.settings.created_at_ms):
            self._leave()
        if after_conflict and self.state.exists and before == (self.state.seq, self.state.hash):
            raise JournalCorrupt(
                f"session {self.id!r}: entry {self.state.seq}, which its snapshot ends with, is missing", seq=self.state.seq, hint="run `pinfold doctor`"
            )
        _wake(self._settled_waiters())

    # --- touches ------------------------------------------------------------------------------------------------

    def used(self, key: str) -> None:
        """Note a use of key in a session that keeps recency or slides its ttl."""
        touches = self.touches
        touches.last_used_ms = self.now_ms()
        if self.state.settings.silo_size is not None:
            with self.lock:
                order = self.state.recency.order
                if key in order:
                    order.move_to_end(key)
                    touches.keys[key] = None
                    touches.keys.move_to_end(key)
        if self.state.settings.promote_after is not None:
            with self.lock:
                self.touches.uses[key] = self.touches.uses.get(key, 0) + 1
        if self.background and self._timer is None:
            self._timer = threading.Timer(self._touch_every_s, self.flush_touches)
            self._timer.daemon = True
            self._timer.start()

    def read(self, tokens: int, full_tokens: int) -> None:
        """Note that a pin map of so many tokens was read where the whole graph would have been full_tokens."""
        with self.lock:
            self.touches.served += tokens
            self.touches.full += full_tokens

    def _drop_touches(self) -> None:
        """Begin touches anew, once they are journaled or nobody relies on them."""
        self.done.update(self.touches.counts)
        self.touches = Touches(self.touches.last_used_ms)

    def tally(self) -> Counter[str]:
        """Return what this process did with the session, as `done`, touches that it still holds included."""
        return self.done + Counter(self.touches.counts)

    def flush_touches(self) -> None:
        """Journal what was touched, best effort: a read-only or busy store is no error here."""
        self._timer = None
        with self.lock:  # once, whoever else is at it
            touch = self.touches.fact() if self.state.exists else None
            if touch is not None:
                self._drop_touches()
        if touch is not None:
            try:
                self.turn(lambda state, now_ms: ([touch], None))
            except PinfoldError:
                pass

    # --- waiting ------------------------------------------------------------------------------------------------

    def add_waiter(self, key: str, waiter: Waiter) -> None:
        """Register waiter before looking, so that no wake-up falls between; the watcher looks out for other processes."""
        with self.lock:
            self._waiters.setdefault(key, []).append(waiter)
            if self._watcher is None and self.background:
                self._watcher = threading.Thread(target=self._watch, name=f"pinfold-watch-{self.id}", daemon=True)
                self._watcher.start()

    def remove_waiter(self, key: str, waiter: Waiter) -> None:
        with self.lock:
            waiting = self._waiters.get(key, [])
            if waiter in waiting:
                waiting.remove(waiter)
            if not waiting:
                self._waiters.pop(key, None)

    def _watch(self) -> None:
        """One thread a process and session, alive while somebody waits."""
        me = threading.current_thread()
        while True:
            with self.lock:
                if not self._waiters or self._watcher is not me:
                    if self._watcher is me:
                        self._watcher = None
                    return
            try:
                if self.journal.wait(self.id, self.state.seq, 0.5):
                    self.read_on()
            except PinfoldError:
                time.sleep(0.05)  # the waiters have time limits of their own; a store that comes back is followed again

    # --- values -------------------------------------------------------------------------------------------------

    def value_of(self, stored: Stored) -> Any:
        """Return the caller's value; a large one is fetched once and kept while there is room."""
        if not isinstance(stored, Blob):
            return unpack_value(stored)
        return unpack_raw(self.raw_of(stored), stored.kind)

    def raw_of(self, blob: Blob) -> bytes:
        """Return the bytes of a large value. Raises JournalCorrupt where they are not there or do not match."""
        raw = self._blobs.get(blob.sha256)
        if raw is None:
            found = self.journal.get_blob(self.id, blob.sha256)
            if found is None:
                raise JournalCorrupt(f"the large value {blob.sha256.hex()[:12]} is not in the store", code="blob_missing", hint="run `pinfold doctor`")
            raw = check_blob(found, blob)
            with self.lock:
                if blob.sha256 not in self._blobs:  # another thread may have been as fast
                    self._blobs[blob.sha256] = raw
                    self._blob_bytes += len(raw)
                while self._blob_bytes > limits.BLOB_CACHE_BYTES and self._blobs:
                    self._blob_bytes -= len(self._blobs.popitem(last=False)[1])
        return raw

    # --- compaction ---------------------------------------------------------------------------------------------

    def _snapshot_due(self) -> bool:
        entries = self.state.seq - self._snapshot_seq
        return entries >= limits.SNAPSHOT_MIN_ENTRIES and (
            self._tail_bytes >= max(limits.SNAPSHOT_MIN_BYTES, self._snapshot_bytes // 2) or entries >= 2 * self._rows()
        )

    def _snapshot_due_at_close(self) -> bool:
        return self._wrote and self._tail_bytes >= max(limits.SNAPSHOT_CLOSE_BYTES, self._snapshot_bytes // 2)

    def _rows(self) -> int:
        return len(self.slots) + len(self.state.promises.by_key) + len(self.state.graph)

    def _compact_if_due(self) -> None:
        self._check_at = self.state.seq + limits.SNAPSHOT_MIN_ENTRIES // 4
        if self._snapshot_due() and self.background and self._compacting.acquire(blocking=False):
            threading.Thread(target=self._compact_quietly, name=f"pinfold-compact-{self.id}", daemon=True).start()

    def _compact_quietly(self) -> None:
        try:
            self.compact()
        except PinfoldError:
            pass  # a chore: the next write tries again, and doctor names what stands in the way
        finally:
            self._compacting.release()

    def compact(self) -> None:
        """Save a snapshot folded from the store and drop what retention no longer keeps."""
        seq, size = compact(self.journal, self.id, thorough=False)
        with self.lock:
            self._snapshot_seq, self._snapshot_bytes, self._tail_bytes = seq, size, 0

    def settle(self) -> None:
        """Leave a session as a command does that ends: touches are journaled where somebody relies on them, else gone."""
        if self.touches.fact() is None:
            return
        if not self.plain or self.background:
            self.flush_touches()
        else:
            with self.lock:
                self._drop_touches()

    def close(self) -> None:
        """Journal touches where somebody relies on them, and compact where that is due. The replica can be used on."""
        if self._timer is not None:
            self._timer.cancel()
        self.settle()
        if self.recall is not None:
            self.recall.close()
        if (self._snapshot_due() or self._snapshot_due_at_close()) and self._compacting.acquire(timeout=limits.LOCK_WAIT_S):
            self._compact_quietly()

    def after_fork(self) -> None:
        if not self.lock.acquire(blocking=False):
            self._torn = True  # another thread was in a turn: what it left half done is loaded anew
        self.lock, self._compacting = threading.RLock(), threading.Lock()
        self.seen, self._watcher, self._timer = None, None, None
        self._waiters, self.touches, self.recall = {}, Touches(), None


_NOBODY: list[tuple[Waiter, Any]] = []


def _says(fact: Fact, asked: Fact) -> bool:
    """Return whether a fact says what was asked for. Of a value that was erased only the key can be told."""
    return all(name in fact and fact[name] == value for name, value in asked.items()) or ("erased" in fact and fact.get("k") == asked.get("k"))


def _wake(woken: list[tuple[Waiter, Any]]) -> None:
    for waiter, outcome in woken:
        waiter.deliver(outcome)


# --- the engine of one store -------------------------------------------------------------------------------------


_OPENING = 16
"""Locks that stand for the names of sessions while one is opened."""


class Engine:
    """The replicas of one store in this process, and the thread that renews their leases.

    background=False starts no threads: a simulation or a one-shot command drives everything itself.
    """

    replica_type: type[Replica] = Replica
    """What replicas are made of: measured ones where `telemetry` says so."""

    def __init__(self, journal: Journal, monotonic: Callable[[], float] = time.monotonic, *, background: bool = True) -> None:
        self.journal = journal
        self.background = background
        self.embedder: Any = None
        """What recall embeds with: a name, or an embedder once one was opened."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._opening = [threading.Lock() for _ in range(_OPENING)]
        self._replicas: dict[str, Replica] = {}
        self._let_go: MutableMapping[str, Replica] = {}
        """Replicas that only somebody's handle still keeps: a session has one in a process, however it was come by."""
        self._tally_of_gone: Counter[str] = Counter()
        self.renewer = Renewer()
        _engines.add(self)

    def open(self, name: str) -> Replica:
        """Return the replica of the session's living incarnation; an ended or expired one is followed by a new, empty one."""
        replica = self._replicas.get(name)
        if replica is not None:
            replica.catch_up()
            if replica.state.exists and not replica.is_over():
                replica.opened_at = self._monotonic()
                return replica
        surplus: list[Replica] = []
        with self._opening[hash(name) % _OPENING]:  # a large session holds up few others
            replica = self._replicas.get(name) or self._let_go.get(name)
            if replica is None or replica.is_over() or latest_number(self.journal, name) > incarnation_number(replica.id):
                if replica is not None:
                    self._retire(replica)
                    replica._drop_touches()
                replica = self._latest(name)
            replica.opened_at = self._monotonic()
            with self._lock:
                self._replicas[name] = replica
                if len(self._replicas) > limits.SESSIONS_IN_RAM:
                    surplus = self._surplus()
        for gone in surplus:
            gone.close()  # it may write: nobody waits for it
        return replica

    def _surplus(self) -> list[Replica]:
        """Let go of the tenth of the replicas that were longest not asked for. Whoever holds one goes on using it."""
        if not self._let_go:
            from weakref import WeakValueDictionary

            self._let_go = WeakValueDictionary()
        oldest = nsmallest(len(self._replicas) // 10 + 1, self._replicas.items(), key=lambda item: item[1].opened_at)
        for name, replica in oldest:
            del self._replicas[name]
            self._let_go[name] = replica
            self._retire(replica)
        return [replica for _, replica in oldest]

    def _retire(self, replica: Replica) -> None:
        """Count what a replica did, and may still do, with the engine's own: it is not kept here any more."""
        if replica.done is not self._tally_of_gone:
            self._tally_of_gone.update(replica.done)
            replica.done = self._tally_of_gone

    def _latest(self, name: str) -> Replica:
        number = latest_number(self.journal, name) or 1
        replica = self.replica(name, number)
        return self.replica(name, number + 1) if replica.state.exists and replica.is_over() else replica

    def replica(self, name: str, number: int) -> Replica:
        """Return a new replica of one incarnation of a session."""
        return self.replica_type(self.journal, name, incarnation_id(name, number), self._monotonic, self.background)

    def forget(self, name: str) -> None:
        """Let the next `open` look at the journal anew."""
        with self._opening[hash(name) % _OPENING], self._lock:
            self._let_go.pop(name, None)
            gone = self._replicas.pop(name, None)
        if gone is not None:
            self._retire(gone)
            gone._drop_touches()

    def tally(self) -> Counter[str]:
        """Return what this process did with all sessions: turns, conflicts, and what touches counted."""
        with self._lock:
            return sum((replica.tally() for replica in self._replicas.values()), self._tally_of_gone)

    def copy(self, name: str, number: int, target: str) -> Replica:
        """Return a replica of target after copying a session's journal to it, as its next incarnation."""
        source = incarnation_id(name, number)
        copied = incarnation_id(target, latest_number(self.journal, target) + 1)
        with self.journal.write_lock(source, limits.LOCK_WAIT_S):  # nothing is erased between the look and the copy
            state = load_state(self.journal, source)
            last = self.journal.read(source, state.seq - 1, 1)
        body = encode_snapshot(state)
        names = blob_names(state)
        blobs = {sha256: raw for sha256 in names if (raw := self.journal.get_blob(source, sha256)) is not None}
        if not self.journal.begin(copied, last[0], Snapshot(state.seq, hash_of(body), body, names), blobs):
            raise Refused(f"a session {target!r} was made meanwhile", code="session_exists", hint="choose another name", session_id=target)
        return self.replica(target, incarnation_number(copied))

    def close(self) -> None:
        self.renewer.close()
        replicas = [*self._replicas.values(), *self._let_go.values()]
        for replica in replicas:
            replica.close()
        self._replicas.clear()
        self.journal.close()
        for replica in replicas:
            replica.wake_all()  # they look again, and are told that the store was closed

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._opening = [threading.Lock() for _ in range(_OPENING)]
        self.journal.after_fork()
        self.renewer = Renewer()
        for replica in [*self._replicas.values(), *self._let_go.values()]:
            replica.after_fork()


def incarnation_id(name: str, number: int) -> str:
    """Return the journal name of a session's nth life."""
    return name if number == 1 else f"{name}@{number}"


def latest_number(journal: Journal, name: str) -> int:
    """Return which life of a session is the last that has a journal, 0 where none has."""
    return max((incarnation_number(journal_id) for journal_id in journal.incarnations(name)), default=0)


def incarnation_number(journal_id: str) -> int:
    """Return which life of its session a journal is."""
    _, _, number = journal_id.partition("@")
    return int(number) if number.isdigit() else 1


_engines: WeakSet[Engine] = WeakSet()


def engines() -> list[Engine]:
    """Return the engines of this process."""
    return list(_engines)


def _after_fork() -> None:
    for engine in engines():
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
