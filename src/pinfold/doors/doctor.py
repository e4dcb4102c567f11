"""`pinfold doctor`: a report on a store. It opens the store read-only and changes nothing.

Every entry is read and checked against its hash and the entry before it, every snapshot against its checksum and against
the entries it stands for, every large value against its SHA-256. Exit status 0 clean, 5 damage found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pinfold.doors.cli import BROKEN, OK, write, write_json
from pinfold.doors.verbs import read_plain, store_bytes
from pinfold.entry import ENTRY_FORMAT, GENESIS, Record, decode_entry
from pinfold.errors import Broken, JournalCorrupt
from pinfold.journal.base import Journal, SessionInfo
from pinfold.journal.open import default_url, open_journal
from pinfold.state.session import SNAPSHOT_FORMAT, SessionState, apply, decode_snapshot, state_hash
from pinfold.state.value import Blob, check_blob

_BATCH = 512


def run_doctor(words: Sequence[str]) -> int:
    common = read_plain("doctor", words, "Check a store and report; nothing is changed. Exit status 5 where damage was found.")
    if common is None:
        return OK
    report = examine(common.store or default_url())
    if common.json:
        write_json(report)
    else:
        write("\n".join(_told(report)))
    return OK if report["ok"] else BROKEN


def examine(url: str) -> dict[str, Any]:
    """Return the report: store, format, lock, sessions[], problems[], ok. Raises Unavailable, ConfigurationError."""
    report: dict[str, Any] = {"store": url, "ok": True, "exists": True, "format": None, "size_bytes": None, "lock": None, "sessions": [], "problems": []}
    if url.startswith("sqlite:") and "mode=ro" not in url:
        url = f"{url}{'&' if '?' in url else '?'}mode=ro"
    journal = open_journal(url)
    report["store"] = journal.url
    path = getattr(journal, "path", None)
    if path is not None:
        report["size_bytes"] = store_bytes(path)
        if report["size_bytes"] is None:
            return {**report, "exists": False}
        report["lock"] = lock_holder(f"{path}.lock")
    try:
        report["format"] = {"entry": ENTRY_FORMAT, "snapshot": SNAPSHOT_FORMAT, **_check_file(journal, report["problems"])}
        for info in journal.sessions():
            report["sessions"].append(_examine_session(journal, info, report["problems"]))
    except Broken as error:
        report["problems"].append({"session": None, "seq": error.fields.get("seq"), "code": error.code, "message": error.message})
    finally:
        journal.close()
    report["ok"] = not report["problems"]
    return report


def _check_file(journal: Any, problems: list[dict[str, Any]]) -> dict[str, Any]:
    """Let SQLite check its own pages. Return the store's format."""
    if not hasattr(journal, "path"):
        return {}
    found = [row[0] for row in journal._rows("PRAGMA quick_check(20)")]
    if found != ["ok"]:
        problems += [{"session": None, "seq": None, "code": "file_damaged", "message": text} for text in found]
    return {"store": journal._rows("PRAGMA user_version")[0][0]}


def _examine_session(journal: Journal, info: SessionInfo, problems: list[dict[str, Any]]) -> dict[str, Any]:
    name, found = info.name, len(problems)

    def note(error: Broken, what: str) -> None:
        problems.append({"session": name, "seq": error.fields.get("seq"), "code": error.code, "message": f"{what}{error.message}"})

    snapshots: list[tuple[int, SessionState]] = []
    kept = journal.load_snapshots(name)
    for snapshot in kept:
        try:
            state = decode_snapshot(snapshot.verified())
            snapshots.append((snapshot.seq, state))
        except Broken as error:
            note(error, "")
    first, at_ms, chain_ok = 0, 0, True
    try:
        for record, last_at_ms in _chained(journal, name, snapshots):
            first, at_ms = first or record.seq, max(at_ms, last_at_ms)
    except Broken as error:
        chain_ok = False
        note(error, "")
    useful = [(seq, state) for seq, state in snapshots if seq >= first - 1]
    if chain_ok and first > 1 and not useful:
        chain_ok = False
        note(JournalCorrupt(f"the journal begins at entry {first}, and no snapshot holds what was before", seq=first), "")
    blobs_ok = _check_state(journal, name, useful, chain_ok, note)
    ahead_ms = max(0, at_ms - journal.now_ms())
    return {
        "session_id": name,
        "entries": info.entries,
        "first_seq": first,
        "last_seq": info.last_seq,
        "chain_ok": chain_ok,
        "snapshots": len(kept),
        "snapshots_ok": len(snapshots) == len(kept),
        "large_values_ok": blobs_ok,
        "clock_ahead_s": round(ahead_ms / 1000, 3),
        "ok": len(problems) == found,
    }


def _chained(journal: Journal, name: str, snapshots: list[tuple[int, SessionState]]) -> Iterator[tuple[Record, int]]:
    """Yield (record, its time) in order. Raises JournalCorrupt where one does not follow the one before."""
    hashes = {seq: state.hash for seq, state in snapshots}
    before: Record | None = None
    after = 0
    while records := journal.read(name, after, _BATCH):
        for record in records:
            entry = decode_entry(record)
            if before is None:
                expected = GENESIS if record.seq == 1 else hashes.get(record.seq - 1)
            else:
                expected = before.hash
                if record.seq != before.seq + 1:
                    raise JournalCorrupt(f"entries {before.seq + 1} to {record.seq - 1} are missing", seq=before.seq + 1)
            if expected is not None and entry.prev_hash != expected:
                raise JournalCorrupt(f"entry {record.seq} does not follow entry {record.seq - 1}: the hash chain is broken", seq=record.seq)
            if record.seq in hashes and hashes[record.seq] != record.hash:
                raise JournalCorrupt(f"the snapshot at {record.seq} is of another history", seq=record.seq)
            before = record
            yield record, entry.at_ms
        after = records[-1].seq


def _check_state(journal: Journal, name: str, snapshots: list[tuple[int, SessionState]], chain_ok: bool, note: Any) -> bool:
    """Fold the session from its oldest snapshot, compare the newer one on the way, then check the large values."""
    if not chain_ok:
        return True  # nothing can be told about values whose journal cannot be read
    snapshots = sorted(snapshots, key=lambda pair: pair[0])
    state = snapshots[0][1] if snapshots else SessionState()
    expected = {seq: state_hash(each) for seq, each in snapshots[1:]}
    try:
        while records := journal.read(name, state.seq, _BATCH):
            for record in records:
                apply(state, decode_entry(record), record.hash)
                if record.seq in expected and state_hash(state) != expected[record.seq]:
                    raise JournalCorrupt(f"the snapshot at {record.seq} is not what the entries up to it come to", seq=record.seq)
    except Broken as error:
        note(error, "")
    whole = True
    for key, slot in state.silo.slots.items():
        if isinstance(slot.value, Blob):
            try:
                raw = journal.get_blob(name, slot.value.sha256)
                if raw is None:
                    raise JournalCorrupt("it is not in the store", code="blob_missing")
                check_blob(raw, slot.value)
            except Broken as error:
                whole = False
                note(error, f"the large value of {key!r}: ")
    return whole


# --- the lock -----------------------------------------------------------------------------------------------------


def lock_holder(path: str) -> dict[str, Any]:
    """Return {"held", "pids"}: whether a writer holds the lock now, and who, where the system says."""
    try:
        import fcntl
    except ImportError:
        return {"held": None, "pids": []}
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return {"held": False, "pids": []}
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return {"held": True, "pids": _holders(os.fstat(file).st_ino)}
    except OSError:
        return {"held": None, "pids": []}
    finally:
        os.close(file)
    return {"held": False, "pids": []}


def _holders(inode: int, listing: str = "/proc/locks") -> list[int]:
    """Return the processes that Linux says hold a lock on this inode; none elsewhere."""
    try:
        with open(listing, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return sorted({int(row[4]) for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode)})


# --- words --------------------------------------------------------------------------------------------------------


def _told(report: dict[str, Any]) -> list[str]:
    if not report["exists"]:
        return [f"{report['store']}: no store there yet; the first write makes it"]
    lines = [f"{report['store']}" + (f": {report['size_bytes']} bytes" if report["size_bytes"] is not None else "")]
    if report["format"]:
        lines.append("format    " + ", ".join(f"{name} {number}" for name, number in report["format"].items()))
    lock = report["lock"]
    if lock is not None:
        who = f" by process {', '.join(map(str, lock['pids']))}" if lock["pids"] else ""
        lines.append("lock      " + ("unknown" if lock["held"] is None else f"held{who}" if lock["held"] else "free"))
    for row in report["sessions"]:
        chain = "chain ok" if row["chain_ok"] else "CHAIN BROKEN"
        snapshots = f"{row['snapshots']} snapshots {'ok' if row['snapshots_ok'] else 'DAMAGED'}"
        large = "" if row["large_values_ok"] else ", LARGE VALUES DAMAGED"
        clock = f", its clock is {row['clock_ahead_s']:g}s ahead of now" if row["clock_ahead_s"] else ""
        lines.append(f"session   {row['session_id']}: {row['entries']} entries, {row['first_seq']}..{row['last_seq']}, {chain}, {snapshots}{large}{clock}")
    for problem in report["problems"]:
        where = f"{problem['session']} " if problem["session"] else ""
        lines.append(f"PROBLEM   {where}{problem['code']}: {problem['message']}")
    lines.append("clean" if report["ok"] else f"{len(report['problems'])} problems found; nothing was changed")
    return lines
