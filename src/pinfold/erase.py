"""Erasing: values and rows that were forgotten leave the retained history too, not just the state.

The journal of the session is written anew without them, the hash chain is drawn again from its first retained entry,
and every other process, whose last hash no longer fits, discards its RAM and loads the new history.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pinfold import limits
from pinfold.entry import Fact, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Busy, JournalCorrupt
from pinfold.fold import blob_names, load_state
from pinfold.journal.base import Journal, Snapshot
from pinfold.state.session import decode_snapshot, encode_snapshot
from pinfold.state.silo import Slot

_VALUE = ("v", "j", "h", "n", "y")


def erase(journal: Journal, journal_id: str, keys: Collection[str], ids: Collection[str] = ()) -> int:
    """Remove the values, payloads and reasons of keys and the fields of rows from a session's retained history.

    Return how many entries changed. Slots and rows must be gone already; a row that was renamed goes under its former ids too.
    Raises Busy where writers never pause, JournalCorrupt.
    """
    for _ in range(limits.TURN_ATTEMPTS):
        with journal.write_lock(journal_id, limits.LOCK_WAIT_S):  # entries and snapshots of one moment: a compaction may trim both
            state = load_state(journal, journal_id)
            old = journal.read(journal_id, 0)
            ids = _with_former(old, ids)
            records, blobs = _without(old, keys, ids)
            hashes = {record.seq: record.hash for record, _ in records}
            snapshots = [_snapshot_without(snapshot, keys, ids, hashes) for snapshot in journal.load_snapshots(journal_id)]
            if journal.rewrite(journal_id, state.seq, state.hash, records, [s for s in snapshots if s is not None]):
                journal.collect_blobs(journal.now_ms() + 1, only=blobs)
                return sum(1 for before, (after, _) in zip(old, records, strict=True) if before.body != after.body)
    raise Busy(f"session {journal_id!r} is written to all the time", hint="try again when it is quieter")


def _with_former(old: list[Record], ids: Collection[str]) -> set[str]:
    """Return ids and those that their rows were called by before."""
    found = set(ids)
    for record in reversed(old) if found else ():
        found.update(fact["was"] for fact in decode_entry(record).facts if "was" in fact and fact.get("id") in found)
    return found


def _without(old: list[Record], keys: Collection[str], ids: Collection[str]) -> tuple[list[tuple[Record, list[bytes]]], list[bytes]]:
    """Return the records without the values of keys and rows, chained anew, each with the blobs it names; and the blobs let go."""
    records: list[tuple[Record, list[bytes]]] = []
    released: list[bytes] = []
    previous: bytes | None = None
    for record in old:
        entry = decode_entry(record)
        is_theirs = [fact.get("k") in keys or fact.get("id") in ids for fact in entry.facts]
        facts = [_fact_without(fact) if theirs else fact for fact, theirs in zip(entry.facts, is_theirs, strict=True)]
        released += [fact["h"] for fact in entry.facts if "h" in fact and fact.get("k") in keys]
        # What a retried request is answered may say what the rows said.
        result = None if any("id" in fact and theirs for fact, theirs in zip(entry.facts, is_theirs, strict=True)) else entry.result
        before = entry.prev_hash if previous is None else previous
        anew = encode_entry(msgspec.structs.replace(entry, facts=facts, prev_hash=before, result=result))
        records.append((anew, [fact["h"] for fact in facts if "h" in fact]))
        previous = anew.hash
    return records, released


def _fact_without(fact: Fact) -> Fact:
    if fact["f"] == "slot.put":
        return {**{name: value for name, value in fact.items() if name not in _VALUE}, "v": "", "erased": True}
    if fact["f"] == "promise.put":
        kept = {name: value for name, value in fact.items() if name not in _VALUE}
        return {**kept, "r": "(erased)"} if "r" in fact else kept
    return {**fact, "fields": {}} if "fields" in fact else fact


def _snapshot_without(snapshot: Snapshot, keys: Collection[str], ids: Collection[str], hashes: dict[int, bytes]) -> Snapshot | None:
    """Return the snapshot without the values of keys and rows; None for a damaged one, which must not keep what it holds."""
    try:
        state = decode_snapshot(snapshot.verified())
    except JournalCorrupt:
        return None
    state.hash = hashes.get(state.seq, state.hash)
    for key in keys:
        slot, promise = state.silo.slots.get(key), state.promises.by_key.get(key)
        if slot is not None:
            state.silo._put(key, Slot(slot.index, "", slot.expires_at_ms, slot.stored_at_ms, slot.actor, {"erased": True}))
        if promise is not None:
            reason = None if promise.reason is None else "(erased)"
            state.promises.by_key[key] = msgspec.structs.replace(promise, payload=None, reason=reason)
    for id in ids:
        row = state.graph.row(id)
        if row is not None:
            row.keys, row.values = (), ()
    body = encode_snapshot(state)
    return Snapshot(state.seq, hash_of(body), body, blob_names(state))
