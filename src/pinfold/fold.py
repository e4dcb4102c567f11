"""From a session's journal to its state, and what of the journal may go: functions over a journal.

`load` folds the newest readable snapshot and the entries after it. `compact` saves a snapshot and applies retention; what it reads
while others write it looks at again under the store's lock (docs/design/durability.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pinfold import limits
from pinfold.bulk import Bulk
from pinfold.entry import Entry, Fact, Record, decode_entry, hash_of
from pinfold.errors import JournalCorrupt
from pinfold.journal.base import Journal, SessionInfo, Snapshot
from pinfold.state.session import SessionState, apply, blobs_in, decode_snapshot, encode_snapshot
from pinfold.state.value import Blob, Stored, value_of


def load(journal: Journal, journal_id: str) -> tuple[SessionState, int, int, int]:
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
            if problem is None or found[0].exists or journal.info(journal_id) is None:  # dropped meanwhile: gone, not damaged
                return found
    assert problem is not None
    raise problem


def _loaded(journal: Journal, journal_id: str, state: SessionState, snapshot_bytes: int) -> tuple[SessionState, int, int, int]:
    """Return state moved on by all entries after it, as `load`. Raises JournalCorrupt where they do not follow."""
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
    return load(journal, journal_id)[0]


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
