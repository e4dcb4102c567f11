"""Journals in RAM: `memory://`. Gone with the process; the public double for tests, under the same contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pinfold.entry import GENESIS, Record
from pinfold.journal.base import Conflict, SessionInfo, Snapshot


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


_NO_LOCK: AbstractContextManager[Any] = nullcontext()


class _Kept:
    __slots__ = ("blobs", "derived", "named", "records", "snapshots")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.snapshots: list[Snapshot] = []
        self.blobs: dict[bytes, tuple[bytes, int]] = {}
        self.named: dict[int, list[bytes]] = {}
        self.derived: dict[str, bytes] = {}

    def keep(self, snapshot: Snapshot | None) -> None:
        """Keep the two newest snapshots and the newest before the first record, or else at it."""
        added = [] if snapshot is None else [snapshot, *(s for s in self.snapshots if s.seq != snapshot.seq)]
        newest = sorted(added or self.snapshots, key=lambda s: -s.seq)
        first = self.records[0].seq if self.records else 0
        base = [s.seq for s in newest if s.seq < first] or [s.seq for s in newest if s.seq == first]
        self.snapshots = newest[:2] + [s for s in newest[2:] if s.seq in base[:1]]


class _Changed(threading.Condition):
    """Knows whether anybody waits: telling nobody would take longer than the append itself."""

    waiting = 0


class MemoryJournal:
    """Journals in this process, shared by every engine that holds this object. Compare-and-set, no locks.

    clock: returns Unix time in ms; a simulation passes its own.
    """

    url = "memory://"
    local = True

    def __init__(self, clock: Callable[[], int] = _unix_ms) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.RLock()
        self._changed = _Changed(self._lock)
        self._version = 0

    def read(self, session: str, after: int, limit: int | None = None) -> list[Record]:
        kept = self._kept.get(session)
        records = kept.records if kept else []  # one look: trim replaces the list
        if not records:
            return []
        start = max(0, after + 1 - records[0].seq)
        return records[start : None if limit is None else start + limit]

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        with self._lock:
            kept = self._kept.get(session)
            if kept is not None and kept.records:
                last = kept.records[-1]
                if last.seq != after or last.hash != after_hash:
                    return Conflict(self.read(session, after))
            elif after or after_hash != GENESIS:
                return Conflict([])
            else:
                kept = self._kept.setdefault(session, _Kept())
            for sha256, body in blobs.items():
                kept.blobs[sha256] = (body, self.now_ms())
            kept.records.extend(records)
            if blobs:
                kept.named[records[-1].seq] = list(blobs)
            self._version += 1
            if self._changed.waiting:
                self._changed.notify_all()
        return None

    def write_lock(self, session: str, timeout_s: float) -> AbstractContextManager[Any]:
        return _NO_LOCK

    def version(self, session: str, confirm: bool = False) -> int:
        return self._version

    def load_snapshots(self, session: str, limit: int | None = None) -> list[Snapshot]:
        kept = self._kept.get(session)
        return kept.snapshots[:limit] if kept else []

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        with self._lock:
            kept = self._kept.get(session)
            if kept is not None:
                kept.keep(snapshot)

    def begin(self, session: str, last: Record, snapshot: Snapshot, blobs: Mapping[bytes, bytes]) -> bool:
        with self._lock:
            if self.info(session) is not None:
                return False
            kept = self._kept[session] = _Kept()
            kept.records, kept.snapshots = [last], [snapshot]
            kept.blobs = {sha256: (body, self.now_ms()) for sha256, body in blobs.items()}
            self._version += 1
            self._changed.notify_all()
        return True

    def rewrite(self, session: str, after: int, after_hash: bytes, records: Sequence[tuple[Record, list[bytes]]], snapshots: Sequence[Snapshot]) -> bool:
        with self._lock:
            kept = self._kept.get(session)
            if kept is None or not kept.records or (kept.records[-1].seq, kept.records[-1].hash) != (after, after_hash):
                return False
            kept.records = [record for record, _ in records]
            kept.named = {record.seq: names for record, names in records if names}
            kept.snapshots = list(snapshots)
            kept.derived.clear()
            self._version += 1
            self._changed.notify_all()
        return True

    def trim(self, session: str, up_to: int, blobs_up_to: int, *, only: Sequence[bytes] | None = None, base: Snapshot | None = None) -> None:
        with self._lock:
            kept = self._kept.get(session)
            if kept is None:
                return
            kept.records = [r for r in kept.records[:-1] if r.seq > up_to] + kept.records[-1:]
            released = None if only is None else frozenset(only)
            left = {seq: names for seq, names in kept.named.items() if seq > up_to}
            for seq in [seq for seq in left if seq <= blobs_up_to]:
                left[seq] = [] if released is None else [name for name in left[seq] if name not in released]
            kept.named = {seq: names for seq, names in left.items() if names}
            kept.keep(base)
            if released:
                older = [Snapshot(s.seq, s.hash, s.body, [name for name in s.blobs if name not in released]) for s in kept.snapshots[2:]]
                kept.snapshots = kept.snapshots[:2] + older

    def put_blob(self, session: str, sha256: bytes, body: bytes) -> None:
        with self._lock:
            self._kept.setdefault(session, _Kept()).blobs[sha256] = (body, self.now_ms())

    def get_blob(self, session: str, sha256: bytes) -> bytes | None:
        kept = self._kept.get(session)
        found = kept.blobs.get(sha256) if kept else None
        return found[0] if found else None

    def collect_blobs(self, put_before_ms: int, only: Sequence[bytes] | None = None) -> tuple[int, int]:
        count = size = 0
        with self._lock:
            for kept in self._kept.values():
                named = {sha256 for names in kept.named.values() for sha256 in names}
                named.update(sha256 for snapshot in kept.snapshots for sha256 in snapshot.blobs)
                for sha256, (body, at_ms) in list(kept.blobs.items()):
                    if at_ms < put_before_ms and sha256 not in named and (only is None or sha256 in only):
                        del kept.blobs[sha256]
                        count, size = count + 1, size + len(body)
        return count, size

    def put_derived(self, session: str, name: str, body: bytes) -> None:
        with self._lock:
            kept = self._kept.get(session)
            if kept is not None:
                kept.derived[name] = body

    def get_derived(self, session: str, name: str) -> bytes | None:
        kept = self._kept.get(session)
        return kept.derived.get(name) if kept else None

    def wait(self, session: str, after: int, timeout_s: float) -> bool:
        with self._lock:
            self._changed.waiting += 1
            try:
                return self._changed.wait_for(lambda: bool(self.read(session, after)), timeout_s)
            finally:
                self._changed.waiting -= 1

    def now_ms(self) -> int:
        return self._clock()

    def sessions(self) -> list[SessionInfo]:
        return [info for name in sorted(self._kept) if (info := self.info(name)) is not None]

    def incarnations(self, name: str) -> list[str]:
        return [session for session, kept in list(self._kept.items()) if kept.records and (session == name or session.startswith(f"{name}@"))]

    def info(self, session: str) -> SessionInfo | None:
        kept = self._kept.get(session)
        if kept is None or not kept.records:
            return None
        sizes = sum(len(r.body) for r in kept.records), sum(len(s.body) for s in kept.snapshots), sum(len(body) for body, _ in kept.blobs.values())
        return SessionInfo(session, kept.records[-1].seq, len(kept.records), *sizes)

    def drop(self, session: str) -> None:
        with self._lock:
            self._kept.pop(session, None)
            self._version += 1

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._changed = _Changed(self._lock)

    def close(self) -> None:
        pass
