"""Copying a store into another, of any kind: journal by journal, entry by entry, or the state as it is.

A copy that was broken off goes on where it stopped: what the target already holds must be the beginning of the source. Each
session is verified at its end: both sides, loaded anew from their journals, have one state hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pinfold import limits
from pinfold.entry import GENESIS, Record, decode_entry, hash_of
from pinfold.errors import Busy, JournalCorrupt, Refused
from pinfold.fold import blob_names, load_state
from pinfold.journal.base import Journal, Snapshot
from pinfold.state.session import decode_snapshot, encode_snapshot, state_hash

BATCH = 256
"""Entries sent as one append: many times faster than one by one, and small enough to begin again."""


class Copied(msgspec.Struct, frozen=True):
    """One session of a copy: entries that went over now, the seq both sides stand at, their common state hash."""

    session: str
    entries: int
    seq: int
    state_hash: str


def copy_store(
    source: Journal, target: Journal, *, compacted: bool = False, only: str | None = None, told: Callable[[int, int], None] | None = None
) -> Iterator[Copied]:
    """Copy every session, or only one with its incarnations; yield each once it is verified.

    compacted: the state alone, without its history. told: called with (entries done, entries).
    Raises Refused `copy_differs` where the target holds something else under that name, JournalCorrupt where the copy does not verify.
    """
    found = source.sessions() if only is None else [info for name in sorted(source.incarnations(only)) if (info := source.info(name)) is not None]
    total, done = sum(info.entries for info in found), 0

    def went(count: int) -> None:
        if told is not None:
            told(min(done + count, total), total)

    for name, size in [(info.name, info.entries) for info in found]:
        entries = 0
        for _ in range(limits.TURN_ATTEMPTS):
            entries += _copy(source, target, name, compacted, went)
            ours, theirs = load_state(source, name), load_state(target, name)
            if ours.seq == theirs.seq:
                break  # else somebody writes to the source: once more
        else:
            raise Busy(f"session {name!r} of {source.url} is written to all the time", hint="copy it when it is quieter")
        if (ours.hash, state_hash(ours)) != (theirs.hash, state_hash(theirs)):
            raise JournalCorrupt(f"the copy of session {name!r} differs from it at entry {ours.seq}", seq=ours.seq, hint="run `pinfold doctor` on both stores")
        done += size
        went(0)
        yield Copied(name, entries, ours.seq, state_hash(ours))


def _copy(source: Journal, target: Journal, name: str, compacted: bool, went: Callable[[int], None]) -> int:
    """Bring the target's journal up to the source's end. Return how many entries went over."""
    there = target.info(name)
    if there is None:
        last, count = _begin(source, target, name, compacted)
    else:
        (last,) = target.read(name, there.last_seq - 1, 1) or [Record(0, GENESIS, b"")]
        here = source.read(name, last.seq - 1, 1)
        if not here or here[0].hash != last.hash:
            raise Refused(
                f"session {name!r} is in {target.url} already, and is not a beginning of the one in {source.url}",
                code="copy_differs",
                hint="end or rename one of them",
                session_id=name,
            )
        count = 0
    after, after_hash = last.seq, last.hash
    while records := source.read(name, after, BATCH):
        for batch, blobs in _batches(source, name, records):
            if target.append(name, after, after_hash, batch, blobs) is not None:
                raise Refused(f"somebody writes to session {name!r} of {target.url}", code="copy_differs", hint="stop that first", session_id=name)
            after, after_hash, count = batch[-1].seq, batch[-1].hash, count + len(batch)
        went(count)
    if count >= limits.SNAPSHOT_MIN_ENTRIES:
        state = load_state(target, name)
        body = encode_snapshot(state)
        target.save_snapshot(name, Snapshot(state.seq, hash_of(body), body, blob_names(state)))
    return count


def _begin(source: Journal, target: Journal, name: str, compacted: bool) -> tuple[Record, int]:
    """Begin the target's journal: at entry 1 where the source has it, else with a snapshot. Return (its last record, entries)."""
    first = source.read(name, 0, 1)
    if first and first[0].seq == 1 and not compacted:
        return Record(0, GENESIS, b""), 0
    state: Any = None
    if not compacted:  # the oldest snapshot whose own entry is still there: as much history as a journal can begin with
        for snapshot in reversed(source.load_snapshots(name)):
            if first and snapshot.seq >= first[0].seq:
                state = decode_snapshot(snapshot.verified())
                break
    state = state or load_state(source, name)
    records = source.read(name, state.seq - 1, 1)
    if not records or records[0].seq != state.seq:
        raise Busy(f"session {name!r} of {source.url} was trimmed meanwhile", hint="try again")
    body, names = encode_snapshot(state), blob_names(state)
    blobs = {sha256: raw for sha256 in names if (raw := source.get_blob(name, sha256)) is not None}
    if not target.begin(name, records[0], Snapshot(state.seq, hash_of(body), body, names), blobs):
        raise Refused(f"session {name!r} was begun in {target.url} meanwhile", code="copy_differs", hint="stop that first", session_id=name)
    return records[0], 1


def _batches(source: Journal, name: str, records: list[Record]) -> Iterator[tuple[list[Record], dict[bytes, bytes]]]:
    """Yield records in appends that end with each record that names large values, together with those."""
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        names = {fact["h"] for fact in decode_entry(record).facts if "h" in fact}
        blobs = {sha256: raw for sha256 in names if (raw := source.get_blob(name, sha256)) is not None}
        if blobs:
            yield batch, blobs
            batch = []
    if batch:
        yield batch, {}
