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
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold import limits
from pinfold.bulk import Bulk
from pinfold.entry import Entry, Fact, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Busy, JournalCorrupt, PinfoldError, Refused, Unavailable
from pinfold.journal.base import Journal, SessionInfo, Snapshot
from pinfold.state import promises as rules
from pinfold.state.outcomes import AlreadyApplied, Miss, Rejected
from pinfold.state.session import SessionState, apply, blobs_in, decide_housekeep, decode_snapshot, encode_snapshot
from pinfold.state.silo import Slot
from pinfold.state.value import Blob, Stored, check_blob, unpack_raw, unpack_value, value_of

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
        self._event.wait(timeout_s)

    def wait_following(self, replica: Replica, timeout_s: float) -> None:
        """Wait without a watcher thread: this one looks out for other processes meanwhile."""
        until_s = replica.monotonic() + timeout_s
        while self.outcome is None and (left_s := until_s - replica.monotonic()) > 0:
            if replica.journal.wait(replica.id, replica.state.seq, min(left_s, 0.05)):
                replica.catch_up()


class Touches:
    """Use that happened in this process and is not journaled yet. last_used_ms goes on from what was journaled before."""

    __slots__ = ("_since_ms", "avoided", "hits", "joined", "keys", "last_used_ms", "misses", "uses")

    def __init__(self, last_used_ms: int = 0) -> None:
        self.hits = self.misses = self.joined = self.avoided = 0
        self.keys: OrderedDict[str, None] = OrderedDict()
        self.uses: dict[str, int] = {}
        self.last_used_ms = self._since_ms = last_used_ms

    def fact(self) -> Fact | None:
        """Return the `touch` fact of all of it, None where nothing happened."""
        counts = {"hits": self.hits, "misses": self.misses, "joined": self.joined, "avoided": self.avoided}
        fact: Fact = {"f": "touch", "at": self.last_used_ms, **{name: count for name, count in counts.items() if count}}
        if self.keys:
            fact["keys"] = list(self.keys)
        if self.uses:
            fact["uses"] = dict(self.uses)
        return fact if len(fact) > 2 or self.last_used_ms > self._since_ms else None


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
        self._touched_at = monotonic()
        self._timer: threading.Timer | None = None
        self._compacting = threading.Lock()
        self._wrote = False
        self.recall: Recall | None = None
        """The index of this session's graph, once somebody searched."""
        self._install(*_load(journal, journal_id))

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
        self.plain = settings.silo_size is None and settings.ttl_ms is None and settings.ended_at_ms is None and settings.promote_after is None
        """Whether a hit needs neither clock nor recency: the hot path of peek."""

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
        """Return whether the session was ended or its ttl ran out."""
        return not self.plain and self.state.is_over(self.now_ms(), self.touches.last_used_ms)

    # --- keeping in step ----------------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply what others appended. Cheap where nothing did."""
        version = self.journal.version(self.id)
        if version == self.seen:
            return
        with self.lock:
            self._read_on()
            self.seen = version

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
        return [woken for fact in entry.facts for woken in self._woken_by(fact, cause)]

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
        over: bool = False,
    ) -> Any:
        """Return decide's answer once its facts are durable: the only way anything changes.

        blobs: the large values the facts name. cause: the exception handed to this process's waiters with a rejection.
        answer_type: what a retried request_id's answer is converted to. over: also where the session has ended.
        Raises what decide raises; Busy, Unavailable.
        """
        with self.journal.write_lock(self.id, limits.LOCK_WAIT_S) as waited, self.lock:
            if waited:
                self.catch_up()  # whoever held the lock has most likely written: decide on that, not on a conflict
            for _ in range(limits.TURN_ATTEMPTS):
                if request_id is not None and request_id in self.state.requests:
                    return self._answer_again(self.state.requests[request_id], answer_type)
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
                facts, touched = self._with_chores(facts, now_ms)
                entry = Entry(self.state.seq + 1, self.state.hash, now_ms, request_id, actor, facts, answer if request_id else None)
                record = encode_entry(entry)
                seen, self.seen = self.seen, None  # until it is applied, nobody may take RAM for the journal
                conflict = self.journal.append(self.id, self.state.seq, self.state.hash, [record], blobs or {})
                if conflict is None:
                    break
                if conflict.missing:  # even where it is byte for byte this entry, it is another writer's: two may claim in one ms
                    self._follow(conflict.missing)
                else:
                    self._reload(after_conflict=True)
            else:
                raise Busy(f"session {self.name!r}: {limits.TURN_ATTEMPTS} other writers were first", hint="try again")
            self._wrote = True
            woken = self._apply(entry, record, cause)
            self.seen = seen
            if touched:
                self.touches, self._touched_at = Touches(self.touches.last_used_ms), self.monotonic()
        if woken:
            _wake(woken)
        if self.state.seq >= self._check_at:
            self._compact_if_due()
        return answer

    def _refuse_if_over(self, now_ms: int) -> None:
        if self.state.exists and self.state.is_over(now_ms, self.touches.last_used_ms):
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
        if self.monotonic() - self._touched_at >= self._touch_interval_s() and (touch := self.touches.fact()):
            return [touch, *chores, *facts], True  # first: what these facts put was used later
        return [*chores, *facts] if chores else facts, False

    def _answer_again(self, seq: int, answer_type: Any) -> Any:
        """Return what the request was answered the first time."""
        records = self.journal.read(self.id, seq - 1, 1)
        if records and records[0].seq == seq:
            answer = decode_entry(records[0]).result
            try:
                return answer if answer_type is None or answer is None else msgspec.convert(answer, answer_type)
            except msgspec.ValidationError as error:
                raise Refused(
                    f"this request_id was used for something else, at entry {seq}", code="request_id_reused", hint="use a new one per request", seq=seq
                ) from error
        return AlreadyApplied(seq)

    def reload(self) -> None:
        """Discard RAM, large values too, and load what the journal holds."""
        with self.lock:
            self._blobs.clear()
            self._blob_bytes = 0
            self._reload()

    def _reload(self, after_conflict: bool = False) -> None:
        before = self.state.seq, self.state.hash
        self._install(*_load(self.journal, self.id))
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
            self._timer = threading.Timer(self._touch_interval_s(), self.flush_touches)
            self._timer.daemon = True
            self._timer.start()

    def _touch_interval_s(self) -> float:
        """A ttl that slides must be journaled before it ends, or other processes would take the session for over."""
        ttl_ms = self.state.settings.ttl_ms
        return limits.TOUCH_INTERVAL_S if ttl_ms is None else min(limits.TOUCH_INTERVAL_S, ttl_ms / 3000)

    def flush_touches(self) -> None:
        """Journal what was touched, best effort: a read-only or busy store is no error here."""
        self._timer = None
        if self.state.exists and (touch := self.touches.fact()) is not None:
            self.touches = Touches(self.touches.last_used_ms)
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
                    self.catch_up()
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

    def close(self) -> None:
        """Journal touches where somebody relies on them, and compact where that is due."""
        if self._timer is not None:
            self._timer.cancel()
        if not self.plain or self.background:
            self.flush_touches()
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


def _wake(woken: list[tuple[Waiter, Any]]) -> None:
    for waiter, outcome in woken:
        waiter.deliver(outcome)


# --- loading and compacting: functions over a journal ------------------------------------------------------------


def _load(journal: Journal, journal_id: str) -> tuple[SessionState, int, int, int]:
    """Return (state, snapshot seq, snapshot bytes, tail bytes): the newest readable snapshot and all entries after it.

    A damaged snapshot falls back to the one before. Never an empty start over a non-empty store: raises JournalCorrupt.
    """
    with Bulk():
        return _fold(journal, journal_id)


def _fold(journal: Journal, journal_id: str) -> tuple[SessionState, int, int, int]:
    problem: JournalCorrupt | None = None
    for _ in range(3):  # a compaction may trim between the two reads
        for limit in (1, None):  # the others are read only where the newest is damaged, or does not fit
            snapshots = journal.load_snapshots(journal_id, limit)
            for snapshot in snapshots:
                try:
                    return _loaded(journal, journal_id, decode_snapshot(snapshot.verified()), len(snapshot.body))
                except JournalCorrupt as error:
                    problem = error
            if not snapshots:
                break
        try:
            found = _loaded(journal, journal_id, SessionState(), 0)
        except JournalCorrupt as error:
            problem = problem or error
        else:
            if problem is None or found[0].exists:
                return found
    assert problem is not None
    raise problem


def _loaded(journal: Journal, journal_id: str, state: SessionState, snapshot_bytes: int) -> tuple[SessionState, int, int, int]:
    """Return state moved on by all entries after it, as `_load`. Raises JournalCorrupt where they do not follow."""
    snapshot_seq, tail_bytes = state.seq, 0
    records = journal.read(journal_id, max(0, state.seq - 1))
    if state.exists and records and records[0].seq == state.seq:
        if records[0].hash != state.hash:
            raise JournalCorrupt(f"session {journal_id!r}: the snapshot at {state.seq} is of another history", seq=state.seq, hint="run `pinfold doctor`")
        records = records[1:]
    if records and records[0].seq != state.seq + 1:
        raise JournalCorrupt(
            f"session {journal_id!r}: entries {state.seq + 1} to {records[0].seq - 1} are missing", seq=state.seq + 1, hint="run `pinfold doctor`"
        )
    for record in records:
        apply(state, decode_entry(record), record.hash)
        tail_bytes += len(record.body)
    return state, snapshot_seq, snapshot_bytes, tail_bytes


def load_state(journal: Journal, journal_id: str) -> SessionState:
    """Return a session's state as its journal tells it. Raises JournalCorrupt, NewerFormat."""
    return _load(journal, journal_id)[0]


def compact(journal: Journal, journal_id: str, *, thorough: bool = True) -> tuple[int, int]:
    """Save a snapshot of what the store holds, then apply retention. Return (its seq, its bytes).

    The snapshot before this one and its tail stay, so that a torn snapshot costs nothing. thorough: look for replaced
    large values even where few bytes are at stake.
    """
    state = load_state(journal, journal_id)
    newest = journal.load_snapshots(journal_id, 1)
    body = encode_snapshot(state)
    if state.exists and (not newest or newest[0].seq < state.seq or (newest[0].seq == state.seq and newest[0].body != body)):
        with journal.write_lock(journal_id, limits.LOCK_WAIT_S):
            last = journal.read(journal_id, state.seq - 1, 1)
            if last and last[0].hash == state.hash:  # nothing was erased meanwhile
                journal.save_snapshot(journal_id, Snapshot(state.seq, hash_of(body), body, blob_names(state)))
    info = journal.info(journal_id)
    if info is not None:
        replaced_bytes = info.blob_bytes - state.silo.blob_bytes
        look_for_blobs = replaced_bytes > limits.REPLACED_VALUES_BYTES // limits.TRIM_SHARE or (thorough and replaced_bytes > 0)
        try:
            _retain(journal, info, look_for_blobs)
        except _Moved:
            pass  # another process is at it
    journal.collect_blobs(journal.now_ms() - limits.BLOB_GRACE_S * 1000)
    return state.seq, len(body)


def blob_names(state: SessionState) -> list[bytes]:
    """Return the SHA-256 of every large value a state names."""
    return [blob.sha256 for blob in blobs_in(state)]


class _Moved(Exception):
    """The history changed while it was read."""


def _retain(journal: Journal, info: SessionInfo, look_for_blobs: bool) -> None:
    """Drop history and replaced large values past their retention; what remains can still be replayed, from a base snapshot."""
    kept = journal.load_snapshots(info.name)
    first = journal.read(info.name, 0, 1)
    if len(kept) < 2 or not first or not all(_is_whole(snapshot) for snapshot in kept[:2]):
        return
    safe, now_ms = kept[1].seq, journal.now_ms()
    up_to = _horizon(journal, info, first[0], safe, now_ms)
    start = _oldest(kept, first[0].seq)
    released: frozenset[bytes] = frozenset()
    if start is not None and (look_for_blobs or (up_to and info.blob_bytes)):
        released = _replaced(journal, info.name, start, safe, now_ms)
    if not up_to and not released:
        return
    base = last = None
    if up_to and start is not None:
        last, base = _base(journal, info.name, start, up_to, released)
    with journal.write_lock(info.name, limits.LOCK_WAIT_S):
        # What was erased meanwhile must not come back with a snapshot made before.
        now_there = journal.read(info.name, last.seq - 1, 1) if last is not None else []
        if now_there[:1] == ([last] if last is not None else []) and _marks(journal.load_snapshots(info.name)) == _marks(kept):
            journal.trim(info.name, up_to, safe, only=list(released), base=base)
            journal.collect_blobs(now_ms + 1, only=list(released))  # an entry named them until now: none is still to come


def _marks(snapshots: list[Snapshot]) -> list[tuple[int, bytes]]:
    return [(snapshot.seq, snapshot.hash) for snapshot in snapshots]


def _base(journal: Journal, journal_id: str, start: SessionState, up_to: int, released: frozenset[bytes]) -> tuple[Record | None, Snapshot]:
    """Return (the record it ends with, snapshot) of start moved on to up_to. start is changed."""
    last = None
    for record in _records(journal, journal_id, start.seq) if start.seq < up_to else ():
        apply(start, decode_entry(record), record.hash)
        if record.seq == up_to:
            last = record
            break
    body = encode_snapshot(start)
    return last, Snapshot(start.seq, hash_of(body), body, [name for name in blob_names(start) if name not in released])


def _is_whole(snapshot: Snapshot) -> bool:
    return hash_of(snapshot.body) == snapshot.hash


def _oldest(kept: list[Snapshot], first: int) -> SessionState | None:
    """Return the state that the retained entries, from first on, are replayed from; None where it is lost."""
    for snapshot in kept:
        if snapshot.seq <= first and _is_whole(snapshot):
            return decode_snapshot(snapshot.verified())
    return SessionState() if first == 1 else None


def _records(journal: Journal, journal_id: str, after: int) -> Iterator[Record]:
    """Yield the records after a seq, a part at a time. Raises _Moved where they no longer follow: somebody trimmed."""
    while records := journal.read(journal_id, after, 512):
        if records[0].seq != after + 1:
            raise _Moved
        yield from records
        after = records[-1].seq


def _horizon(journal: Journal, info: SessionInfo, first: Record, safe: int, now_ms: int) -> int:
    """Return the last entry that is to go, 0 where too few would: never past safe, nor the whole of a journal.

    An entry goes when it is older than HISTORY_S, or when what follows it already fills HISTORY_BYTES.
    """
    before_ms = now_ms - limits.HISTORY_S * 1000
    excess_bytes = info.entry_bytes - limits.HISTORY_BYTES
    is_late = decode_entry(first).at_ms <= before_ms - limits.TRIM_SLACK_S * 1000
    up_to = 0
    if is_late or excess_bytes >= limits.HISTORY_BYTES // limits.TRIM_SHARE:
        for record in _records(journal, info.name, first.seq - 1):
            if record.seq > safe or record.seq >= info.last_seq or (excess_bytes <= 0 and decode_entry(record).at_ms > before_ms):
                break
            up_to = record.seq
            excess_bytes -= len(record.body)
    return up_to


def _replaced(journal: Journal, journal_id: str, start: SessionState, safe: int, now_ms: int) -> frozenset[bytes]:
    """Return the large values that were replaced or dropped longer than REPLACED_VALUES_S ago, or before the latest
    REPLACED_VALUES_BYTES of such: never one that the state at safe or later names."""
    trail = _BlobTrail(start)
    for record in _records(journal, journal_id, start.seq):
        entry = decode_entry(record)
        for fact in entry.facts:
            trail.follow(fact, entry)
    before_ms = now_ms - limits.REPLACED_VALUES_S * 1000
    left_bytes = limits.REPLACED_VALUES_BYTES
    found = set()
    for name, (seq, at_ms) in sorted(trail.replaced.items(), key=lambda item: -item[1][0]):
        left_bytes -= trail.sizes[name]
        if seq <= safe and (at_ms <= before_ms or left_bytes < 0):
            found.add(name)
    return frozenset(found)


class _BlobTrail:
    """Which large values a history named, and the (seq, at_ms) since which nobody names them any more."""

    def __init__(self, start: SessionState) -> None:
        self.sizes: dict[bytes, int] = {}
        self.replaced: dict[bytes, tuple[int, int]] = {}
        self._held: dict[tuple[str, str], bytes] = {}
        self._holders: Counter[bytes] = Counter()
        for key, slot in start.silo.slots.items():
            self._hold("slot", key, slot.value)
        for key, promise in start.promises.by_key.items():
            self._hold("promise", key, promise.payload)

    def _hold(self, family: str, key: str, value: Stored | None) -> None:
        if isinstance(value, Blob):
            self._held[family, key] = value.sha256
            self._holders[value.sha256] += 1
            self.sizes[value.sha256] = value.size
            self.replaced.pop(value.sha256, None)

    def follow(self, fact: Fact, entry: Entry) -> None:
        family, _, what = fact["f"].partition(".")
        if family not in ("slot", "promise"):
            return
        name = self._held.pop((family, fact["k"]), None)
        if name is not None:
            self._holders[name] -= 1
            if not self._holders[name]:
                self.replaced[name] = entry.seq, entry.at_ms
        if what == "put":
            self._hold(family, fact["k"], value_of(fact))


# --- the engine of one store -------------------------------------------------------------------------------------


class Engine:
    """The replicas of one store in this process, and the thread that renews their leases.

    background=False starts no threads: a simulation or a one-shot command drives everything itself.
    """

    def __init__(self, journal: Journal, monotonic: Callable[[], float] = time.monotonic, *, background: bool = True) -> None:
        self.journal = journal
        self.background = background
        self.embedder: Any = None
        """What recall embeds with: a name, or an embedder once one was opened."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._replicas: dict[str, Replica] = {}
        self.renewer = Renewer()
        _engines.add(self)

    def open(self, name: str) -> Replica:
        """Return the replica of the session's living incarnation; an ended or expired one is followed by a new, empty one."""
        replica = self._replicas.get(name)
        if replica is not None:
            replica.catch_up()
            if not replica.is_over():
                return replica
        with self._lock:
            replica = self._replicas.get(name)
            if replica is None or replica.is_over():
                replica = self._replicas[name] = self._latest(name)
            return replica

    def _latest(self, name: str) -> Replica:
        number = max((incarnation_number(journal_id) for journal_id in self.journal.incarnations(name)), default=1)
        replica = self.replica(name, number)
        return self.replica(name, number + 1) if replica.state.exists and replica.is_over() else replica

    def replica(self, name: str, number: int) -> Replica:
        """Return a new replica of one incarnation of a session."""
        return Replica(self.journal, name, incarnation_id(name, number), self._monotonic, self.background)

    def forget(self, name: str) -> None:
        """Let the next `open` look at the journal anew."""
        with self._lock:
            self._replicas.pop(name, None)

    def copy(self, name: str, number: int, target: str) -> Replica:
        """Return a replica of target after copying a session's journal to it, as its next incarnation."""
        source = incarnation_id(name, number)
        numbers = [incarnation_number(journal_id) for journal_id in self.journal.incarnations(target)]
        copied = incarnation_id(target, max(numbers, default=0) + 1)
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
        for replica in list(self._replicas.values()):
            replica.close()
        self._replicas.clear()
        self.journal.close()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self.journal.after_fork()
        self.renewer = Renewer()
        for replica in self._replicas.values():
            replica.after_fork()


def incarnation_id(name: str, number: int) -> str:
    """Return the journal name of a session's nth life."""
    return name if number == 1 else f"{name}@{number}"


def incarnation_number(journal_id: str) -> int:
    """Return which life of its session a journal is."""
    _, _, number = journal_id.partition("@")
    return int(number) if number.isdigit() else 1


class Renewer:
    """Keeps claims alive while their work runs: one thread, asleep until the first claim that lives long enough to need it."""

    def __init__(self) -> None:
        self._due: dict[object, tuple[float, float, Callable[[], Any]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def add(self, every_s: float, renew: Callable[[], Any]) -> object:
        """Call renew every every_s seconds until `remove`; a refusal ends it (the owner learns at fulfil)."""
        ticket, due = object(), time.monotonic() + every_s
        with self._changed:
            self._due[ticket] = (due, every_s, renew)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pinfold-renew", daemon=True)
                self._wakes_at = 0.0
                self._thread.start()
            elif due < self._wakes_at:  # most claims are settled long before: do not wake the thread for each
                self._changed.notify()
        return ticket

    def remove(self, ticket: object) -> None:
        with self._changed:
            self._due.pop(ticket, None)

    def close(self) -> None:
        with self._changed:
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while ready := self._next():
            for ticket, every_s, renew in ready:
                try:
                    renew()
                except Unavailable:
                    every_s = min(every_s, 1.0)  # the lease still runs: try again before it ends
                except PinfoldError:
                    self.remove(ticket)
                with self._changed:
                    if ticket in self._due:
                        self._due[ticket] = (time.monotonic() + every_s, every_s, renew)

    def _next(self) -> list[tuple[object, float, Callable[[], Any]]]:
        """Return what is due, waiting for it; empty when nothing was left for a second, and the thread may go."""
        with self._changed:
            while True:
                idle = not self._due
                now = time.monotonic()
                self._wakes_at = min((due[0] for due in self._due.values()), default=now + 1.0)
                if self._wakes_at > now:
                    self._changed.wait(self._wakes_at - now)
                now = time.monotonic()
                ready = [(ticket, every_s, renew) for ticket, (due, every_s, renew) in self._due.items() if due <= now]
                if ready:
                    return ready
                if idle and not self._due:
                    self._thread = None
                    return []


_engines: WeakSet[Engine] = WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
