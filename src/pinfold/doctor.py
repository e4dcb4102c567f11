"""Is a store whole, and if not, what of it can be kept? `examine` only reads; `repair` makes a new file beside the old.

What examine finds, by code:
    bad_checksum      an entry whose bytes do not match their hash      undecodable      an entry that cannot be read
    missing_entries   a gap, or a beginning that no snapshot holds      broken_chain     an entry that follows another history
    torn_snapshot     a snapshot that cannot be read                   wrong_snapshot   one that is not what its entries come to
    blob_missing      a value whose bytes are not there                blob_corrupt     a blob that does not match its SHA-256
    foreign_rows      rows of no session                               unreadable       rows or pages that SQLite cannot read
    newer_format      written by a later pinfold                       clock_ahead      a last entry from the future (no damage)

A repair never writes into the damaged file: it is moved aside as it is. Lost entries become entries that say so, so that
every seq keeps its meaning; what could not be read is kept, byte for byte, in a quarantine file.
"""

from __future__ import annotations

import base64
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pinfold import limits
from pinfold.entry import ENTRY_FORMAT, GENESIS, Entry, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Broken, Busy, ConfigurationError, JournalCorrupt, NewerFormat, PinfoldError, Refused
from pinfold.fold import blob_names, load_state
from pinfold.journal.base import Journal, SessionInfo, Snapshot
from pinfold.journal.lock import FileLock, Holder, lock_holder
from pinfold.journal.open import open_journal, store_bytes
from pinfold.journal.sqlite import APPLICATION_ID, STORE_FORMAT, SqliteJournal, file_uri
from pinfold.state.promises import drop_facts
from pinfold.state.session import SNAPSHOT_FORMAT, SessionState, apply, blobs_in, decode_snapshot, encode_snapshot, state_hash
from pinfold.state.silo import Silo
from pinfold.state.value import Blob, check_blob

_BATCH = 512

Told = Callable[[int, int], None]


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be. damage is False for what only deserves a look."""

    code: str
    message: str
    session: str | None = None
    seq: int | None = None
    damage: bool = True


class SessionReport(msgspec.Struct, frozen=True):
    """One session's journal: what is retained, whether it is whole, and the state it folds to (None where it does not)."""

    session_id: str
    entries: int
    first_seq: int
    last_seq: int
    chain_ok: bool
    snapshots: list[int]
    snapshots_ok: bool
    large_values_ok: bool
    clock_ahead_s: float
    state_hash: str | None


class Report(msgspec.Struct, frozen=True):
    """What `examine` saw. ok: no damage among the findings. size_bytes, lock: of a store in a file."""

    store: str
    ok: bool
    exists: bool
    formats: dict[str, int]
    size_bytes: int | None
    lock: Holder | None
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


def examine_store(url: str, told: Told | None = None) -> Report:
    """Return a report on the store of a URL, opened for reading only. A store that is not there is no damage, and none is made.

    told: called with (entries looked at, entries). Raises ConfigurationError, Unavailable.
    """
    if url.startswith("sqlite:") and "mode=ro" not in url:
        url = f"{url}{'&' if '?' in url else '?'}mode=ro"
    journal = open_journal(url)
    try:
        if isinstance(journal, SqliteJournal) and not os.path.exists(journal.path):
            return Report(journal.url, True, False, {}, None, None, [], [])
        return examine(journal, told)
    finally:
        journal.close()


def examine(journal: Journal, told: Told | None = None) -> Report:
    """Return a report on every session of a store; reads all of it, a part at a time. Raises Unavailable, ConfigurationError."""
    findings: list[Finding] = []
    sessions: list[SessionReport] = []
    formats = {"entry": ENTRY_FORMAT, "snapshot": SNAPSHOT_FORMAT}
    size_bytes, lock = None, None
    if isinstance(journal, SqliteJournal):
        size_bytes, lock = store_bytes(journal.path), lock_holder(journal.path + ".lock")
        try:
            formats["store"] = journal._rows("PRAGMA user_version")[0][0]
            findings += _examine_file(journal)
        except Broken as error:
            findings.append(_finding(error))
    infos = _infos(journal, findings)
    total, done = sum(info.entries for info in infos), 0

    def seen(entries: int) -> None:
        if told is not None:
            told(min(done + entries, total), total)

    for info in infos:
        try:
            sessions.append(_Examined(journal, info, findings).report(seen))
        except Broken as error:
            findings.append(_finding(error, info.name))
        done += info.entries
    return Report(journal.url, not any(f.damage for f in findings), True, formats, size_bytes, lock, sessions, list(dict.fromkeys(findings)))


def _finding(error: Broken, session: str | None = None) -> Finding:
    code = "newer_format" if isinstance(error, NewerFormat) else "unreadable" if error.code == "journal_corrupt" else error.code
    return Finding(code, error.message, session, error.fields.get("seq"))


def _infos(journal: Journal, findings: list[Finding]) -> list[SessionInfo]:
    try:
        return journal.sessions()
    except Broken as error:
        findings.append(_finding(error))
        return []


def _examine_file(journal: SqliteJournal) -> Iterator[Finding]:
    for (line,) in journal._rows("PRAGMA integrity_check(20)"):
        if line != "ok":
            yield Finding("unreadable", f"SQLite: {line}")
    for table in ("entry", "snapshot", "blob_ref"):
        count = journal._rows(f"SELECT count(*) FROM {table} WHERE session NOT IN (SELECT id FROM session)")[0][0]
        if count:
            yield Finding("foreign_rows", f"{count} rows of {table} belong to no session")


class _Examined:
    """One pass over a session's entries: the chain is checked, the state folded, and snapshots compared on the way."""

    def __init__(self, journal: Journal, info: SessionInfo, findings: list[Finding]) -> None:
        self._journal, self._info, self._findings = journal, info, findings
        self._before: Record | None = None
        self._at_ms = 0
        self._chain_ok = True
        self._snapshots: list[Snapshot] = journal.load_snapshots(info.name)
        self._states: dict[int, SessionState] = {}
        self._wrong: set[int] = set()
        self._state: SessionState | None = None
        self._lacks = False  # an entry was lost, and a repair said so: the next snapshot knows more than the fold

    def _found(self, code: str, message: str, seq: int | None = None, *, damage: bool = True) -> None:
        self._findings.append(Finding(code, message, self._info.name, seq, damage))

    def report(self, seen: Callable[[int], None]) -> SessionReport:
        for snapshot in self._snapshots:
            state = _readable(snapshot)
            if state is None:
                self._found("torn_snapshot", f"the snapshot at {snapshot.seq} cannot be read", snapshot.seq)
            else:
                self._states[snapshot.seq] = state
        first = entries = 0
        while records := self._journal.read(self._info.name, self._before.seq if self._before else 0, _BATCH):
            if not first:
                first = records[0].seq
                self._begin(first)
            entries += len(records)
            for record in records:
                self._look_at(record)
                self._before = record
            seen(entries)
        if not entries:
            self._chain_ok = False
            self._found("missing_entries", "a journal without a single entry", 0)
        ahead_s = round(max(0, self._at_ms - self._journal.now_ms()) / 1000, 3)
        if ahead_s > 1:
            self._found("clock_ahead", f"the last entry is {ahead_s:.0f} s in the future: a clock was wrong once", damage=False)
        return SessionReport(
            session_id=self._info.name,
            entries=entries,
            first_seq=first,
            last_seq=self._before.seq if self._before else 0,
            chain_ok=self._chain_ok,
            snapshots=[snapshot.seq for snapshot in self._snapshots],
            snapshots_ok=len(self._states) == len(self._snapshots) and not self._wrong,
            large_values_ok=self._large_values_ok(),
            clock_ahead_s=ahead_s,
            state_hash=None if self._state is None else state_hash(self._state),
        )

    def _begin(self, first: int) -> None:
        """Fold from the beginning, or from the snapshot right before the first retained entry; else a later snapshot must do.

        A snapshot at the first entry is where a fork or a copy began: that entry is its origin's and is not folded.
        """
        if first in self._states:
            return
        if first == 1:
            self._state = SessionState()
        elif first - 1 in self._states:
            self._state = _copy(self._states[first - 1])
        elif not any(seq >= first for seq in self._states):
            self._chain_ok = False
            self._found("missing_entries", f"the journal begins at entry {first}, and no snapshot holds what was before", first)

    def _look_at(self, record: Record) -> None:
        before = self._before
        if before is not None and record.seq != before.seq + 1:
            self._broken("missing_entries", f"entries {before.seq + 1} to {record.seq - 1} are missing", before.seq + 1)
        try:
            entry = decode_entry(record)
        except NewerFormat as error:
            self._broken("newer_format", error.message, record.seq)
        except JournalCorrupt as error:
            self._broken("bad_checksum" if hash_of(record.body) != record.hash else "undecodable", error.message, record.seq)
        else:
            self._at_ms = max(self._at_ms, entry.at_ms)
            if before is not None and record.seq == before.seq + 1 and entry.prev_hash != before.hash:
                self._broken("broken_chain", f"entry {record.seq} does not follow entry {before.seq}", record.seq)
            self._fold(entry, record)
        self._compare(record)

    def _broken(self, code: str, message: str, seq: int) -> None:
        self._chain_ok, self._state = False, None
        self._found(code, message, seq)

    def _fold(self, entry: Entry, record: Record) -> None:
        self._lacks = self._lacks or _is_lost(entry)
        if self._state is not None:
            try:
                apply(self._state, entry, record.hash)
            except NewerFormat as error:
                self._broken("newer_format", error.message, record.seq)
            except JournalCorrupt as error:
                self._broken("broken_chain", error.message, record.seq)

    def _compare(self, record: Record) -> None:
        """Compare a snapshot with the entry it stands for and the state they come to; go on from it where the fold was broken."""
        kept = self._states.get(record.seq)
        if kept is None:
            return
        if kept.hash != record.hash or (self._state is not None and not self._lacks and state_hash(kept) != state_hash(self._state)):
            self._wrong.add(record.seq)
            self._found("wrong_snapshot", f"the snapshot at {record.seq} is not what the entries up to it come to", record.seq)
        elif self._state is None or self._lacks:
            self._state, self._lacks = _copy(kept), False

    def _large_values_ok(self) -> bool:
        whole = True
        for key, blob in _large_values(self._state) if self._state is not None else ():
            raw = self._journal.get_blob(self._info.name, blob.sha256)
            if raw is None:
                self._found("blob_missing", f"the large value of {key!r} ({blob.size} bytes) is not in the store")
            elif not _matches(raw, blob):
                self._found("blob_corrupt", f"the large value of {key!r} does not match its SHA-256")
            else:
                continue
            whole = False
        return whole


def _large_values(state: SessionState) -> list[tuple[str, Blob]]:
    stored = [(key, slot.value) for key, slot in state.silo.slots.items()] + [(key, p.payload) for key, p in state.promises.by_key.items()]
    return [(key, value) for key, value in stored if isinstance(value, Blob)]


def _is_lost(entry: Entry) -> bool:
    return any(fact["f"] == "lost" for fact in entry.facts)


def _copy(state: SessionState) -> SessionState:
    return decode_snapshot(encode_snapshot(state))


def _readable(snapshot: Snapshot) -> SessionState | None:
    try:
        return decode_snapshot(snapshot.verified())
    except JournalCorrupt:
        return None


def _matches(raw: bytes, blob: Blob) -> bool:
    try:
        check_blob(raw, blob)
    except JournalCorrupt:
        return False
    return True


# --- repairing ----------------------------------------------------------------------------------------------------


def repair(path: str, now_ms: int, told: Told | None = None) -> Repair:
    """Make a whole store of what can be read of the SQLite file at path. The damaged file is kept beside it.

    now_ms: Unix time, for the names of the kept files. told: called with (sessions read, sessions). Raises Refused `not_damaged`,
    Busy while others use the store, Broken where nothing can be read.
    """
    if not os.path.exists(path):
        raise ConfigurationError(f"there is no store at {path}", code="no_store", hint="check the path")
    lock = FileLock(path + ".lock")
    if not lock.acquire(limits.LOCK_WAIT_S):
        raise Busy(f"somebody is using {path}", hint="stop the programs that use this store, then repair it")
    try:
        return _repair(path, now_ms, told)
    finally:
        lock.release()
        lock.close()


def _repair(path: str, now_ms: int, told: Told | None) -> Repair:
    damaged, made = f"{path}.damaged-{now_ms}", f"{path}.repaired-{now_ms}"
    salvage = _Salvage(path)
    target = SqliteJournal(made)
    try:
        kept = lost = slots_lost = 0
        for place, (session_id, name) in enumerate(salvage.sessions, 1):
            one = _repair_session(salvage, session_id, name, target, now_ms)
            kept, lost, slots_lost = kept + one[0], lost + one[1], slots_lost + one[2]
            if told is not None:
                told(place, len(salvage.sessions))
        if not salvage.findings and not salvage.quarantined:
            raise Refused(f"the store {path} is not damaged", code="not_damaged", hint="nothing was changed")
    except BaseException:
        target.close()
        _remove(made)
        raise
    finally:
        salvage.close()
    target.close()
    quarantine = f"{path}.quarantine-{now_ms}.jsonl" if salvage.quarantined else None
    if quarantine:
        with open(quarantine, "wb") as file:
            for row in salvage.quarantined:
                file.write(msgspec.json.encode(row) + b"\n")
    _exchange(path, damaged, made)
    _remove(made)
    return Repair(path, damaged, quarantine, len(salvage.sessions), kept, lost, slots_lost, salvage.findings)


def _exchange(path: str, damaged: str, made: str) -> None:
    """Keep the file at path as damaged and put made in its place, which is never empty: a death in between loses nothing."""
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            try:
                os.link(path + suffix, damaged + suffix)
            except OSError:  # no hard links here
                shutil.copy2(path + suffix, damaged + suffix)
    for suffix in ("-wal", "-shm"):  # they are the damaged file's, and must not meet the new one
        if os.path.exists(path + suffix):
            os.remove(path + suffix)
    os.replace(made, path)


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
    kept = []
    for state in _agreeing(snapshots, [record for record, _ in records], good, name, salvage)[:3]:
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


def _agreeing(snapshots: list[SessionState], records: list[Record], good: dict[int, Entry], name: str, salvage: _Salvage) -> list[SessionState]:
    """Return the snapshots that are what their entries come to, newest first, each ending with the new chain's hash.

    Over a lost entry nothing can be compared: there a snapshot knows more than the entries do.
    """
    by_seq = {state.seq: state for state in snapshots}
    hashes = {record.seq: record.hash for record in records}
    for state in snapshots:
        state.hash = hashes.get(state.seq, state.hash)
    first = records[0].seq
    before = by_seq.get(first - 1)
    folded = None if first in by_seq else SessionState() if first == 1 else _copy(before) if before is not None else None
    for record in records:
        if record.seq not in good or _is_lost(good[record.seq]):
            folded = None
        elif folded is not None:
            apply(folded, decode_entry(record), record.hash)
        kept = by_seq.get(record.seq)
        if kept is None:
            continue
        if folded is None:
            folded = _copy(kept)
        elif state_hash(folded) != state_hash(kept):
            salvage.found("wrong_snapshot", f"the snapshot at {record.seq} is not what the entries up to it come to", name, record.seq)
            salvage.keep("snapshot", name, record.seq, encode_snapshot(kept))
            del by_seq[record.seq]
    return sorted(by_seq.values(), key=lambda state: -state.seq)


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
        self._db = sqlite3.connect(file_uri(os.path.abspath(path)) + "?mode=rw", uri=True, isolation_level=None, timeout=0.5)
        set_config: Any = getattr(self._db, "setconfig", None)
        if set_config is not None:  # Python 3.12: as it is closed, nothing is copied from the log into the damaged file
            set_config(getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE"))  # noqa: B009
        try:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")  # whoever has the file open would go on writing into what is moved aside
            if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise ConfigurationError(f"{path} is not a pinfold store", code="not_a_store", hint="nothing was changed")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > STORE_FORMAT:
                raise NewerFormat(f"{path} has store format {version}, this pinfold knows {STORE_FORMAT}", hint="upgrade pinfold; nothing was changed")
            self.sessions: list[tuple[int, str]] = self._sessions()
            self._foreign_rows()
        except sqlite3.DatabaseError as error:
            self._db.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Busy(f"somebody has {path} open", hint="stop the programs that use this store, then repair it") from error
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
                self.keep(table, None, row[1], row[3])

    def entries(self, session_id: int, name: str) -> dict[int, Entry]:
        """Return the readable entries of a session by seq; the bytes of the others go to quarantine."""
        good: dict[int, Entry] = {}
        for seq, entry_hash, body in self._by_seq("entry", session_id, name):
            try:
                good[seq] = decode_entry(Record(seq, entry_hash, body))
            except JournalCorrupt as error:
                self.found("bad_checksum", error.message, name, seq)
                self.keep("entry", name, seq, body)
        return good

    def snapshots(self, session_id: int, name: str) -> list[SessionState]:
        good = []
        for seq, snapshot_hash, body in self._by_seq("snapshot", session_id, name):
            state = _readable(Snapshot(seq, snapshot_hash, body))
            if state is None:
                self.found("torn_snapshot", f"the snapshot at {seq} cannot be read", name, seq)
                self.keep("snapshot", name, seq, body)
            elif state.seq != seq:
                self.found("wrong_snapshot", f"the snapshot at {seq} says it is at {state.seq}", name, seq)
                self.keep("snapshot", name, seq, body)
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
                self.keep("blob", None, None, body)
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

    def keep(self, table: str, session: str | None, seq: int | None, body: Any) -> None:
        raw = body if isinstance(body, bytes) else str(body).encode()
        self.quarantined.append({"table": table, "session": session, "seq": seq, "base64": base64.b64encode(raw).decode()})
