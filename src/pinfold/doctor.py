"""Is a store whole, and if not, what of it can be kept? `examine` only reads; `repair` makes a new file beside the old.

What examine finds, by code:
    bad_checksum      an entry whose bytes do not match their hash      undecodable      an entry that cannot be read
    missing_entries   a gap in the sequence                            broken_chain     an entry that follows another history
    torn_snapshot     a snapshot that cannot be read                   unreadable       rows or pages that SQLite cannot read
    blob_missing      a value whose bytes are not there                blob_corrupt     a blob that does not match its SHA-256
    foreign_rows      rows of no session                               clock_ahead      a last entry from the future (no damage)

A repair never writes into the damaged file: it is moved aside as it is. Lost entries become entries that say so, so that
every seq keeps its meaning; what could not be read is kept, byte for byte, in a quarantine file.
"""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from pinfold import limits
from pinfold.engine import blob_names
from pinfold.entry import GENESIS, Entry, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Broken, Busy, ConfigurationError, JournalCorrupt, NewerFormat, PinfoldError, Refused
from pinfold.journal.base import Journal, Snapshot
from pinfold.journal.lock import FileLock
from pinfold.journal.sqlite import APPLICATION_ID, SqliteJournal, file_uri
from pinfold.state.promises import drop_facts
from pinfold.state.session import SessionState, apply, blobs_in, decode_snapshot, encode_snapshot, state_hash
from pinfold.state.silo import Silo
from pinfold.state.value import Blob, check_blob


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be. damage is False for what only deserves a look."""

    code: str
    message: str
    session: str | None = None
    seq: int | None = None
    damage: bool = True


class SessionReport(msgspec.Struct, frozen=True):
    """One session's journal: what is retained, and the state it folds to (state_hash None where it does not)."""

    session: str
    entries: int
    first_seq: int
    last_seq: int
    snapshots: list[int]
    state_hash: str | None


class Report(msgspec.Struct, frozen=True):
    """What `examine` saw. healthy: no damage among the findings."""

    url: str
    healthy: bool
    sessions: list[SessionReport]
    findings: list[Finding]


class Repair(msgspec.Struct, frozen=True):
    """What `repair` did: where the damaged file and the unreadable bytes are now, and what was lost."""

    path: str
    damaged: str
    quarantine: str | None
    sessions: int
    entries_kept: int
    entries_lost: int
    slots_lost: int
    findings: list[Finding]


# --- examining ----------------------------------------------------------------------------------------------------


def examine(journal: Journal) -> Report:
    """Return a report on every session of a store; reads all of it. Raises what opening the store raises."""
    findings: list[Finding] = []
    sessions: list[SessionReport] = []
    if isinstance(journal, SqliteJournal):
        findings += _examine_file(journal)
    for name in _names(journal, findings):
        try:
            sessions.append(_examine_session(journal, name, findings))
        except JournalCorrupt as error:
            findings.append(Finding("unreadable", error.message, name))
    return Report(journal.url, not any(f.damage for f in findings), sessions, findings)


def _names(journal: Journal, findings: list[Finding]) -> list[str]:
    try:
        return [info.name for info in journal.sessions()]
    except JournalCorrupt as error:
        findings.append(Finding("unreadable", error.message))
        return []


def _examine_file(journal: SqliteJournal) -> Iterator[Finding]:
    try:
        for (line,) in journal._rows("PRAGMA integrity_check(20)"):
            if line != "ok":
                yield Finding("unreadable", f"SQLite: {line}")
        for table in ("entry", "snapshot", "blob_ref"):
            count = journal._rows(f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT id FROM session)")[0][0]
            if count:
                yield Finding("foreign_rows", f"{count} rows of {table} belong to no session")
    except JournalCorrupt as error:
        yield Finding("unreadable", error.message)


def _examine_session(journal: Journal, name: str, findings: list[Finding]) -> SessionReport:
    records = journal.read(name, 0)
    entries, at_ms = _examine_entries(name, records, findings)
    good, kept = [], journal.load_snapshots(name)
    for snapshot in kept:
        state = _readable(snapshot)
        if state is None:
            findings.append(Finding("torn_snapshot", "the snapshot cannot be read", name, snapshot.seq))
        else:
            good.append(state)
    first = records[0].seq if records else 0
    state = good[0] if good else SessionState()
    if not good and (first > 1 or not records):
        findings.append(Finding("missing_entries", f"no snapshot covers what came before entry {first}", name, first))
    folded = _fold(state, entries)
    if folded is not None:
        for blob in blobs_in(folded):
            found = journal.get_blob(name, blob.sha256)
            if found is None:
                findings.append(Finding("blob_missing", f"the large value {blob.sha256.hex()[:12]} ({blob.size} bytes) is not in the store", name))
            elif not _matches(found, blob):
                findings.append(Finding("blob_corrupt", f"the large value {blob.sha256.hex()[:12]} does not match its SHA-256", name))
    ahead_ms = at_ms - journal.now_ms()
    if ahead_ms > 1000:
        findings.append(Finding("clock_ahead", f"the last entry is {ahead_ms / 1000:.0f} s in the future: a clock was wrong once", name, damage=False))
    return SessionReport(name, len(records), first, records[-1].seq if records else 0, [s.seq for s in kept], state_hash(folded) if folded else None)


def _examine_entries(name: str, records: list[Record], findings: list[Finding]) -> tuple[list[tuple[Entry, bytes]], int]:
    """Return the readable entries with their hashes, and the time of the last; what does not fit goes to findings."""
    entries: list[tuple[Entry, bytes]] = []
    previous: Record | None = None
    for record in records:
        if previous is not None and record.seq != previous.seq + 1:
            findings.append(Finding("missing_entries", f"entries {previous.seq + 1} to {record.seq - 1} are missing", name, previous.seq + 1))
        try:
            entry = decode_entry(record)
        except NewerFormat as error:
            findings.append(Finding("newer_format", error.message, name, record.seq))
        except JournalCorrupt as error:
            code = "bad_checksum" if hash_of(record.body) != record.hash else "undecodable"
            findings.append(Finding(code, error.message, name, record.seq))
        else:
            if previous is not None and record.seq == previous.seq + 1 and entry.prev_hash != previous.hash:
                findings.append(Finding("broken_chain", f"entry {record.seq} does not follow entry {previous.seq}", name, record.seq))
            entries.append((entry, record.hash))
        previous = record
    return entries, entries[-1][0].at_ms if entries else 0


def _readable(snapshot: Snapshot) -> SessionState | None:
    try:
        return decode_snapshot(snapshot.verified())
    except JournalCorrupt:
        return None


def _fold(state: SessionState, entries: list[tuple[Entry, bytes]]) -> SessionState | None:
    try:
        for entry, entry_hash in entries:
            if entry.seq > state.seq:
                apply(state, entry, entry_hash)
    except (JournalCorrupt, NewerFormat):
        return None
    return state


def _matches(raw: bytes, blob: Blob) -> bool:
    try:
        check_blob(raw, blob)
    except JournalCorrupt:
        return False
    return True


# --- repairing ----------------------------------------------------------------------------------------------------


def repair(path: str, now_ms: int) -> Repair:
    """Make a whole store of what can be read of the SQLite file at path. The damaged file is kept beside it.

    now_ms: Unix time, for the names of the kept files. Raises Refused `not_damaged`, Busy while others use the store,
    Broken where nothing can be read.
    """
    if not os.path.exists(path):
        raise ConfigurationError(f"there is no store at {path}", code="no_store", hint="check the path")
    lock = FileLock(path + ".lock")
    if not lock.acquire(limits.LOCK_WAIT_S):
        raise Busy(f"somebody is using {path}", hint="stop the programs that use this store, then repair it")
    try:
        return _repair(path, now_ms)
    finally:
        lock.release()
        lock.close()


def _repair(path: str, now_ms: int) -> Repair:
    damaged, made = f"{path}.damaged-{now_ms}", f"{path}.repaired-{now_ms}"
    salvage = _Salvage(path)
    target = SqliteJournal(made)
    try:
        kept = lost = slots_lost = 0
        for session_id, name in salvage.sessions:
            one = _repair_session(salvage, session_id, name, target, now_ms)
            kept, lost, slots_lost = kept + one[0], lost + one[1], slots_lost + one[2]
        if not salvage.findings and not salvage.quarantined:
            raise Refused(f"the store {path} is not damaged", code="not_damaged", hint="nothing was changed")
    except BaseException:
        target.close()
        _remove(made)
        raise
    finally:
        salvage.close()
    target.close()
    for suffix in ("", "-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.replace(path + suffix, damaged + suffix)
    os.replace(made, path)
    _remove(made)
    quarantine = f"{path}.quarantine-{now_ms}.jsonl" if salvage.quarantined else None
    if quarantine:
        with open(quarantine, "wb") as file:
            for row in salvage.quarantined:
                file.write(msgspec.json.encode(row) + b"\n")
    return Repair(path, damaged, quarantine, len(salvage.sessions), kept, lost, slots_lost, salvage.findings)


def _remove(path: str) -> None:
    for suffix in ("", "-wal", "-shm", ".lock"):
        if os.path.exists(path + suffix):
            os.remove(path + suffix)


def _repair_session(salvage: _Salvage, session_id: int, name: str, target: SqliteJournal, now_ms: int) -> tuple[int, int, int]:
    """Write what is readable of one session to target. Return (entries kept, entries lost, slots lost with their blobs)."""
    good = salvage.entries(session_id, name)
    snapshots = salvage.snapshots(session_id, name)
    if not good and not snapshots:
        return 0, 0, 0
    first = min(good, default=snapshots[0].seq if snapshots else 1)
    last = max([*good, *(s.seq for s in snapshots)])
    if first > 1 and not any(s.seq >= first - 1 for s in snapshots):
        salvage.found("missing_entries", f"what came before entry {first} is lost with its snapshot", name, first)
        base = SessionState()
        base.seq, base.hash = first - 1, good[first].prev_hash
        snapshots.append(base)
    records, lost = _chained_anew(good, first, last, name, salvage)
    hashes = {record.seq: record.hash for record, _ in records}
    kept = []
    for state in sorted(snapshots, key=lambda s: -s.seq)[:2]:
        state.hash = hashes.get(state.seq, state.hash)
        body = encode_snapshot(state)
        kept.append(Snapshot(state.seq, hash_of(body), body, blob_names(state)))
    blobs = salvage.blobs({sha256 for _, names in records for sha256 in names} | {sha256 for s in kept for sha256 in s.blobs})
    base_snapshot = kept[-1] if kept else None
    tail = records[-1][0]
    if base_snapshot is None:
        body = encode_snapshot(SessionState())
        base_snapshot = Snapshot(0, hash_of(body), body)
    target.begin(name, tail, base_snapshot, blobs)
    target.rewrite(name, tail.seq, tail.hash, records, kept)
    return len(records) - lost, lost, _drop_slots_without_blobs(target, name, now_ms, salvage)


def _chained_anew(good: dict[int, Entry], first: int, last: int, name: str, salvage: _Salvage) -> tuple[list[tuple[Record, list[bytes]]], int]:
    """Return the entries first..last as one chain; a lost one is an entry that says so. And how many were lost."""
    records: list[tuple[Record, list[bytes]]] = []
    lost, at_ms = 0, 0
    previous = good[first].prev_hash if first in good else GENESIS
    for seq in range(first, last + 1):
        entry = good.get(seq)
        if entry is None:
            lost += 1
            salvage.found("missing_entries", f"entry {seq} is lost", name, seq)
            entry = Entry(seq, previous, at_ms, None, None, [{"f": "lost"}])
        elif entry.prev_hash != previous and records and good.get(seq - 1) is not None:
            salvage.found("broken_chain", f"entry {seq} did not follow entry {seq - 1}", name, seq)
        at_ms = max(at_ms, entry.at_ms)
        record = encode_entry(msgspec.structs.replace(entry, prev_hash=previous))
        records.append((record, [fact["h"] for fact in entry.facts if "h" in fact]))
        previous = record.hash
    return records, lost


def _drop_slots_without_blobs(target: SqliteJournal, name: str, now_ms: int, salvage: _Salvage) -> int:
    """Append an entry that drops the slots whose large value is lost: a miss is made again, an error is not."""
    from pinfold.engine import load_state

    state = load_state(target, name)
    missing = {blob.sha256 for blob in blobs_in(state) if target.get_blob(name, blob.sha256) is None}
    keys = _keys_with(state.silo, missing)
    if keys:
        salvage.found("blob_missing", f"{len(keys)} slots lost their large values: {', '.join(keys[:5])}", name)
        entry = Entry(state.seq + 1, state.hash, max(now_ms, state.at_ms), None, "doctor", drop_facts(state.promises, keys, "lost"))
        target.append(name, state.seq, state.hash, [encode_entry(entry)], {})
    return len(keys)


def _keys_with(silo: Silo, missing: set[bytes]) -> list[str]:
    return [key for key, slot in silo.slots.items() if isinstance(slot.value, Blob) and slot.value.sha256 in missing]


class _Salvage:
    """Reads what can be read of a damaged SQLite file, row by row where whole tables cannot; keeps the bytes of bad rows."""

    def __init__(self, path: str) -> None:
        self.findings: list[Finding] = []
        self.quarantined: list[dict[str, Any]] = []
        self._db = sqlite3.connect(file_uri(os.path.abspath(path)) + "?mode=rw", uri=True, isolation_level=None)
        try:
            if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise ConfigurationError(f"{path} is not a pinfold store", code="not_a_store", hint="nothing was changed")
            self.sessions: list[tuple[int, str]] = self._sessions()
            self._foreign_rows()
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise Broken(f"nothing can be read of {path}: {error}", hint="restore a copy of the file; this one was not changed") from error
        except PinfoldError:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def found(self, code: str, message: str, session: str | None = None, seq: int | None = None) -> None:
        self.findings.append(Finding(code, message, session, seq))

    def _sessions(self) -> list[tuple[int, str]]:
        rows = self._all("SELECT id, name FROM session ORDER BY id")
        if rows is not None:
            return [(row[0], row[1]) for row in rows]
        self.found("unreadable", "the table of sessions is damaged: sessions whose row is lost are named recovered-ID")
        ids = sorted({row[0] for row in self._rows("SELECT DISTINCT session FROM snapshot") + self._rows("SELECT DISTINCT session FROM entry")})
        named = {}
        for session_id in ids:
            row = self._all("SELECT name FROM session WHERE id = ?", session_id)
            named[session_id] = row[0][0] if row else f"recovered-{session_id}"
        return list(named.items())

    def _foreign_rows(self) -> None:
        for table, columns in (("entry", "session, seq, hash, body"), ("snapshot", "session, seq, hash, body")):
            for row in self._rows(f"SELECT {columns} FROM {table} WHERE session NOT IN (SELECT id FROM session)"):
                self.found("foreign_rows", f"a row of {table} belongs to no session (id {row[0]})", seq=row[1])
                self._keep(table, None, row[1], row[3])

    def entries(self, session_id: int, name: str) -> dict[int, Entry]:
        """Return the readable entries of a session by seq; the bytes of the others go to quarantine."""
        good: dict[int, Entry] = {}
        for seq, entry_hash, body in self._by_seq("entry", session_id, name):
            try:
                good[seq] = decode_entry(Record(seq, entry_hash, body))
            except JournalCorrupt as error:
                self.found("bad_checksum", error.message, name, seq)
                self._keep("entry", name, seq, body)
        return good

    def snapshots(self, session_id: int, name: str) -> list[SessionState]:
        good = []
        for seq, snapshot_hash, body in self._by_seq("snapshot", session_id, name):
            state = _readable(Snapshot(seq, snapshot_hash, body))
            if state is None:
                self.found("torn_snapshot", f"the snapshot at {seq} cannot be read", name, seq)
                self._keep("snapshot", name, seq, body)
            else:
                good.append(state)
        return good

    def blobs(self, names: set[bytes]) -> dict[bytes, bytes]:
        """Return the readable blobs of these names; one that does not match its name goes to quarantine."""
        found: dict[bytes, bytes] = {}
        for name in names:
            rows = self._all("SELECT body FROM blob WHERE sha256 = ?", name)
            if not rows:
                continue
            body = rows[0][0]
            if _matches(body, Blob(name, len(body), "b")):
                found[name] = body
            else:
                self.found("blob_corrupt", f"the blob {name.hex()[:12]} does not match its SHA-256")
                self._keep("blob", None, None, body)
        return found

    def _by_seq(self, table: str, session_id: int, name: str) -> list[tuple[int, bytes, bytes]]:
        rows = self._all(f"SELECT seq, hash, body FROM {table} WHERE session = ? ORDER BY seq", session_id)
        if rows is not None:
            return [(row[0], row[1], row[2]) for row in rows]
        self.found("unreadable", f"pages of {table} cannot be read: their rows are lost", name)
        top = self._all(f"SELECT max(seq) FROM {table} WHERE session = ?", session_id)
        high = top[0][0] if top and top[0][0] else 1 << 24
        return list(self._split(table, session_id, 1, high))

    def _split(self, table: str, session_id: int, low: int, high: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the rows of a range of seqs, halving it around what cannot be read."""
        rows = self._all(f"SELECT seq, hash, body FROM {table} WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq", session_id, low, high)
        if rows is not None:
            yield from ((row[0], row[1], row[2]) for row in rows)
        elif low < high:
            middle = (low + high) // 2
            yield from self._split(table, session_id, low, middle)
            yield from self._split(table, session_id, middle + 1, high)

    def _all(self, sql: str, *arguments: Any) -> list[Any] | None:
        try:
            return self._db.execute(sql, arguments).fetchall()
        except sqlite3.DatabaseError:
            return None

    def _rows(self, sql: str) -> list[Any]:
        return self._all(sql) or []

    def _keep(self, table: str, session: str | None, seq: int | None, body: Any) -> None:
        raw = body if isinstance(body, bytes) else str(body).encode()
        self.quarantined.append({"table": table, "session": session, "seq": seq, "base64": base64.b64encode(raw).decode()})
