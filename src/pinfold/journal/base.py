"""What a backend is: a place to keep journals. It sees names, sequence numbers, hashes and bytes, never state.

Promises every backend keeps, proved by `pinfold.testing.journal_contract`:

* `append` is atomic on (last seq, last hash): either all records are there, durable as promised, or none, and the
  conflict names what was missed;
* a backend that sends an append again (a reply timed out) answers it by what became of the first, never as a conflict
  with itself; it cannot go by the hash, since two writers may decide byte for byte the same: one of them must lose;
* `read` never shows a gap or half a record; what `append` acknowledged survives the death of any process;
* `version` changes whenever somebody else may have appended: a cheap reason to `read`, never the truth itself;
* a blob is there before or with the record that names it;
* every retained record can be replayed: the newest snapshot before the first of them (or at it, where a journal
  began in the middle) is kept beside the two newest;
* `write_lock` is fair enough that nobody starves, and bounded: `Busy`, never a hang.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec

from pinfold.entry import Record, hash_of
from pinfold.errors import JournalCorrupt


class Conflict(msgspec.Struct, frozen=True):
    """Somebody appended first. missing: the records after the caller's seq, in order; empty if history was replaced."""

    missing: list[Record]


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The fold of a session's entries up to seq, the hash of its bytes, and the blobs it names."""

    seq: int
    hash: bytes
    body: bytes
    blobs: list[bytes] = []

    def verified(self) -> bytes:
        """Return body. Raises JournalCorrupt where it does not match its hash."""
        if hash_of(self.body) != self.hash:
            raise JournalCorrupt(f"the snapshot at {self.seq} does not match its checksum", seq=self.seq, hint="run `pinfold doctor`")
        return self.body


class SessionInfo(msgspec.Struct, frozen=True):
    """One journal in a store: its name, last seq, and sizes in bytes."""

    name: str
    last_seq: int
    entries: int
    entry_bytes: int
    snapshot_bytes: int
    blob_bytes: int


class Journal(Protocol):
    """A store of journals. Raises Unavailable, Busy, JournalCorrupt, NewerFormat, ConfigurationError."""

    url: str
    local: bool
    """Whether its answers come from this machine: else no look belongs on an event loop, and none at all sessions into everyday work."""

    def read(self, session: str, after: int, limit: int | None = None) -> list[Record]:
        """Return the retained records with seq > after, in order, without gaps between them; at most limit."""

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        """Append records that follow (after, after_hash), with every blob the last of them names. None, or what was in the way."""

    def write_lock(self, session: str, timeout_s: float) -> AbstractContextManager[Any]:
        """Return a context that writers queue for, where the backend has locks: for fairness, `append` is right without.

        Its value is true where it had to wait: somebody may have written meanwhile. Re-entrant in a thread. Raises Busy.
        """

    def version(self, session: str, confirm: bool = False) -> Hashable:
        """Return a value that differs from an earlier one if anybody else may have appended since, or this handle has by an
        append that failed with `maybe_applied`.

        confirm: of all that was acknowledged before this call, wherever; else a look may be as old as `max_stale_ms`, or come from
        a server that is no longer the primary. Raises Unavailable `unconfirmed`, `read_only` where that cannot be known.
        """

    def load_snapshots(self, session: str, limit: int | None = None) -> list[Snapshot]:
        """Return the kept snapshots, newest first; at most limit. Their `blobs` are not filled in."""

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        """Keep a snapshot beside the one before and the base: the newest before the first retained record. Others go."""

    def begin(self, session: str, last: Record, snapshot: Snapshot, blobs: Mapping[bytes, bytes]) -> bool:
        """Begin a journal in the middle: with a snapshot, the record it ends with, and its blobs. False if session exists."""

    def rewrite(self, session: str, after: int, after_hash: bytes, records: Sequence[tuple[Record, list[bytes]]], snapshots: Sequence[Snapshot]) -> bool:
        """Replace all retained records (each with the blobs it names) and snapshots, leaving no byte of the old ones.

        False, and nothing done, where the last record is no longer (after, after_hash).
        """

    def trim(self, session: str, up_to: int, blobs_up_to: int, *, only: Sequence[bytes] | None = None, base: Snapshot | None = None) -> None:
        """Drop records with seq <= up_to, release the blobs named by records <= blobs_up_to.

        only: release these alone, and those of them that an older snapshot than the two newest names. base: the snapshot that
        what remains is replayed from, kept in the same step. The last record of a session always stays.
        """

    def put_blob(self, session: str, sha256: bytes, body: bytes) -> None:
        """Keep a blob that no record names yet; the same bytes are kept once."""

    def get_blob(self, session: str, sha256: bytes) -> bytes | None:
        """Return a blob's bytes, None where it is not there."""

    def collect_blobs(self, put_before_ms: int, only: Sequence[bytes] | None = None) -> tuple[int, int]:
        """Drop blobs (only these, if given) put before then that no retained record or snapshot names.

        Return (how many, bytes).
        """

    def put_derived(self, session: str, name: str, body: bytes) -> None:
        """Keep a cache that can be rebuilt; its content is verified by whoever reads it."""

    def get_derived(self, session: str, name: str) -> bytes | None:
        """Return a kept cache, None where there is none."""

    def wait(self, session: str, after: int, timeout_s: float) -> bool:
        """Return True as soon as there may be records after `after`, False at the timeout. A hint, never the truth."""

    def now_ms(self) -> int:
        """Return Unix time by the journal's clock, in ms."""

    def sessions(self) -> list[SessionInfo]:
        """Return the journals here, by name."""

    def incarnations(self, name: str) -> list[str]:
        """Return the journals called name or name@N, in no order: cheap on every backend."""

    def info(self, session: str) -> SessionInfo | None:
        """Return the sizes of one journal, None where there is none."""

    def drop(self, session: str) -> None:
        """Drop a journal with everything that belongs to it alone."""

    def after_fork(self) -> None:
        """Forget connections, locks and file handles inherited from the parent; reopen at the next use."""

    def close(self) -> None:
        """Release connections and files. Idempotent."""
