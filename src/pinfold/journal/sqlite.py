"""Journals in one SQLite file: `sqlite:///path[?durability=full][&mode=ro]`.

One connection a process, WAL. A writer takes the in-process lock, the flock beside the file (for fairness), then writes
one statement that checks and inserts at once: right even where there is no flock. A reader only ever waits for the
connection lock, which is held for microseconds and never while waiting for other processes.
`PRAGMA data_version` (a few microseconds) tells whether another connection committed; own commits do not move it.
NORMAL survives kill -9 and may lose the last entries when the power fails; FULL waits for the disk.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn

from pinfold import limits
from pinfold.entry import GENESIS, Record
from pinfold.errors import Busy, ConfigurationError, JournalCorrupt, NewerFormat, PinfoldError, Unavailable
from pinfold.journal.base import Conflict, SessionInfo, Snapshot
from pinfold.journal.lock import FileLock, has_flock

try:
    from _weakrefset import WeakSet  # which threading has loaded; weakref itself is not needed
except ImportError:
    from weakref import WeakSet

APPLICATION_ID = 0x50464C44
STORE_FORMAT = 1

SCHEMA = """
CREATE TABLE session (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE entry (session INTEGER NOT NULL, seq INTEGER NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL,
                    PRIMARY KEY (session, seq)) WITHOUT ROWID;
CREATE TABLE snapshot (session INTEGER NOT NULL, seq INTEGER NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL, PRIMARY KEY (session, seq));
CREATE TABLE blob (sha256 BLOB PRIMARY KEY, put_at_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE blob_ref (session INTEGER NOT NULL, seq INTEGER NOT NULL, snapshot INTEGER NOT NULL, sha256 BLOB NOT NULL,
                       PRIMARY KEY (session, snapshot, seq, sha256)) WITHOUT ROWID;
CREATE INDEX blob_ref_sha256 ON blob_ref (sha256);
CREATE TABLE derived (session INTEGER NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (session, name));
"""

_APPEND = """INSERT INTO entry SELECT ?1, ?2, ?3, ?4
 WHERE EXISTS (SELECT 1 FROM entry WHERE session = ?1 AND seq = ?5 AND hash = ?6)"""
_THIS = "(SELECT id FROM session WHERE name = ?)"
_APPEND_FIRST = """INSERT INTO entry SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM entry WHERE session = ?1)"""

_abandoned: list[sqlite3.Connection] = []
"""Connections inherited over a fork: closing one in the child could run a checkpoint on the parent's locks."""


_open_journals: WeakSet[SqliteJournal] = WeakSet()
_held_at_fork: dict[int, list[Any]] = {}
_FORK_WAIT_S = 5.0
_making = threading.RLock()


def _before_fork() -> None:
    """Let no thread be inside SQLite while this one forks: the child would wait for ever for SQLite's own, global locks."""
    held = _held_at_fork[threading.get_ident()] = []
    if _making.acquire(timeout=_FORK_WAIT_S):  # and none begins to use one that was not there a moment ago
        held.append(_making)
    for journal in list(_open_journals):
        lock = journal._db_lock
        if lock.acquire(timeout=_FORK_WAIT_S):
            held.append(lock)


def _after_fork() -> None:
    """In parent and child, where the thread that forked goes on: let go."""
    for lock in _held_at_fork.pop(threading.get_ident(), []):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class SqliteJournal:
    """A store in one SQLite file. Threads, processes and forks may share it."""

    local = True

    def __init__(self, path: str, *, durability: str = "normal", mode: str = "rw") -> None:
        if durability not in ("normal", "full"):
            raise ConfigurationError(f"durability={durability} is not known", hint="use durability=normal or durability=full")
        if mode not in ("rw", "ro"):
            raise ConfigurationError(f"mode={mode} is not known", hint="use mode=rw or mode=ro")
        self.path = path
        self.url = f"sqlite:///{path}"
        self.durability = durability
        self.read_only = mode == "ro"
        self._db: sqlite3.Connection | None = None
        self._look: sqlite3.Cursor | None = None
        self._db_lock = threading.RLock()
        self._turns = threading.Lock()
        self._holder = 0
        self._file_lock = FileLock(path + ".lock")
        self._ids: dict[str, int] = {}
        self._doubts = 0
        """Appends that failed and may be there: SQLite counts no commit of its own connection."""
        self._closed = False
        with _making:
            _open_journals.add(self)

    # --- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        if self._closed:
            raise _closed(self.path)
        fresh = not os.path.exists(self.path)
        if not fresh and not os.access(self.path, os.W_OK):
            self.read_only = True
        if fresh or os.path.getsize(self.path) == 0:
            self._create_file()
        db: sqlite3.Connection | None = None
        try:
            db = self._connect()
            if not self.read_only:
                db.execute(f"PRAGMA synchronous = {'FULL' if self.durability == 'full' else 'NORMAL'}")
            self._check_format(db)
        except BaseException as error:
            if db is not None:
                db.close()
            if isinstance(error, sqlite3.Error):
                _translate(error, self.path)
            raise
        self._db = db
        return db

    def _create_file(self) -> None:
        """Make the file, unless it is there by now. An empty file where the lock file says that a store was made is damage.

        SQLite would take it for a new database and throw its write-ahead log away.
        """
        if self.read_only:
            raise ConfigurationError(f"there is no store at {self.path} to read", code="no_store", hint="check the path, or open it without mode=ro")
        try:
            os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
            with self._creating():
                if not os.path.exists(self.path):
                    self._file_lock.mark(False)  # whoever removed a store meant it
                    os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # what agents remember is private
                elif os.path.getsize(self.path) == 0 and self._file_lock.marked():
                    raise self._emptied()
        except OSError as error:
            raise ConfigurationError(f"no store can be made at {self.path}: {error.strerror}", code="bad_path", hint="choose a writable folder") from error
        kind = network_file_system(self.path)
        if kind:
            raise ConfigurationError(
                f"{self.path} is on a network file system ({kind}), where SQLite's locks cannot be trusted",
                code="network_file_system",
                hint="keep the store on a local disk, or use redis:// or postgresql:// to share it between machines",
            )

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self.read_only else "rw"
        uri = f"{file_uri(os.path.abspath(self.path))}?mode={mode}"
        if self.read_only and not os.path.exists(self.path + "-wal") and not os.access(os.path.dirname(os.path.abspath(self.path)), os.W_OK):
            uri += "&immutable=1"  # no side files can be made there, and nobody is writing
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=2.0 if has_flock() else limits.LOCK_WAIT_S)

    def _check_format(self, db: sqlite3.Connection) -> None:
        version, application = db.execute("PRAGMA user_version").fetchone()[0], db.execute("PRAGMA application_id").fetchone()[0]
        if application == 0 and version == 0 and not self.read_only:
            self._create_schema(db)
            return
        if application != APPLICATION_ID:
            raise ConfigurationError(f"{self.path} is not a pinfold store", code="not_a_store", hint="choose another path; nothing was changed")
        if version > STORE_FORMAT:
            raise NewerFormat(f"{self.path} has store format {version}, this pinfold knows {STORE_FORMAT}", hint="upgrade pinfold")

    @contextmanager
    def _creating(self) -> Iterator[None]:
        if not self._file_lock.acquire(limits.LOCK_WAIT_S):
            raise Busy(f"somebody else has been creating {self.path} for {limits.LOCK_WAIT_S:.0f} s", hint="try again")
        try:
            yield
        finally:
            self._file_lock.release()

    def _emptied(self) -> JournalCorrupt:
        return JournalCorrupt(
            f"the store {self.path} was emptied or cut: {self.path}.lock says that one was made here",
            hint="bring a copy back; to begin anew, remove both files",
            path=self.path,
        )

    def _create_schema(self, db: sqlite3.Connection) -> None:
        with self._creating():
            # Where there is no flock another process may be at it too: SQLite's own lock decides who makes the schema.
            db.execute("BEGIN IMMEDIATE")
            try:
                if self._is_made(db):
                    return
                if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    raise ConfigurationError(f"{self.path} is somebody else's SQLite file", code="not_a_store", hint="choose another path; nothing was changed")
                if self._file_lock.marked():
                    raise self._emptied()
            finally:
                db.execute("ROLLBACK")
            journal_mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if journal_mode != "wal":
                raise ConfigurationError(f"{self.path} cannot use a write-ahead log ({journal_mode})", code="no_wal", hint="keep the store on a local disk")
            db.execute("BEGIN IMMEDIATE")
            if self._is_made(db):
                db.execute("ROLLBACK")
                return
            for statement in SCHEMA.split(";")[:-1]:
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {STORE_FORMAT}")
            db.execute("COMMIT")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # from here on the file alone says what it is
            self._file_lock.mark(True)

    @staticmethod
    def _is_made(db: sqlite3.Connection) -> bool:
        return bool(db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID)

    # --- reading ------------------------------------------------------------------------------------------------

    def _rows(self, sql: str, *arguments: Any) -> list[Any]:
        with self._db_lock:
            try:
                return self._open().execute(sql, arguments).fetchall()
            except sqlite3.Error as error:
                _translate(error, self.path)

    @staticmethod
    def _id(db: sqlite3.Connection, session: str) -> int:
        """Return the row id of a session, 0 where it has none. Never remembered across transactions: it may be dropped and begun anew."""
        row = db.execute("SELECT id FROM session WHERE name = ?", (session,)).fetchone()
        return row[0] if row else 0

    def read(self, session: str, after: int, limit: int | None = None) -> list[Record]:
        sql = f"SELECT seq, hash, body FROM entry WHERE session = {_THIS} AND seq > ? ORDER BY seq LIMIT ?"
        rows = self._rows(sql, session, after, -1 if limit is None else limit)
        return [Record(*row) for row in rows]

    def version(self, session: str, confirm: bool = False) -> int:
        with self._db_lock:
            try:
                if self._db is None or self._look is None:  # one cursor for all looks: making one costs as much as the look
                    self._look = self._open().cursor()
                version: int = self._look.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                _translate(error, self.path)
        return version + self._doubts

    def wait(self, session: str, after: int, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        seen, pause_s = None, limits.POLL_MIN_S
        while True:
            changes = (self.version(session), self._open().total_changes)  # others' commits, and those of this connection
            if changes != seen:
                seen = changes
                if self._rows(f"SELECT 1 FROM entry WHERE session = {_THIS} AND seq > ? LIMIT 1", session, after):
                    return True
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.2, limits.POLL_MAX_S)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # --- writing ------------------------------------------------------------------------------------------------

    def write_lock(self, session: str, timeout_s: float) -> _WriteLock:
        return _WriteLock(self, timeout_s)

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        known = self._ids.get(session, 0)
        if known and after_hash != GENESIS and len(records) == 1 and not blobs:
            # The common case is one statement, its own transaction: the check and the insert are one. An id that was
            # remembered too long does no harm here: the entry before is gone with its session.
            record = records[0]
            with self._db_lock:
                try:
                    done = self._open().execute(_APPEND, (known, record.seq, record.hash, record.body, after, after_hash)).rowcount
                except sqlite3.Error as error:
                    done = self._collided(error)
                if done == 1:
                    return None
                if self._rows("SELECT id FROM session WHERE name = ?", session) == [(known,)]:
                    return self._conflict(session, after)
            # The session was dropped and begun anew since: once more, under its new id.
        start = after
        with _Transaction(self) as db:
            known = self._id(db, session) or db.execute("INSERT INTO session (name) VALUES (?)", (session,)).lastrowid or 0
            for record in records:
                if not self._append_one(db, known, after, after_hash, record):
                    db.execute("ROLLBACK")
                    return self._conflict(session, start)
                after, after_hash = record.seq, record.hash
            if blobs:
                self._put_blobs(db, blobs)
                db.executemany("INSERT OR IGNORE INTO blob_ref VALUES (?, ?, 0, ?)", [(known, after, name) for name in blobs])
        self._ids[session] = known
        return None

    def _append_one(self, db: sqlite3.Connection, known: int, after: int, after_hash: bytes, record: Record) -> bool:
        values = (known, record.seq, record.hash, record.body)
        try:
            if after_hash == GENESIS:
                return db.execute(_APPEND_FIRST, values).rowcount == 1
            return db.execute(_APPEND, (*values, after, after_hash)).rowcount == 1
        except sqlite3.Error as error:
            return self._collided(error) == 1

    def _collided(self, error: sqlite3.Error) -> int:
        """Return 0 where the error says that the place was taken; raise what else it means."""
        if isinstance(error, sqlite3.IntegrityError):
            return 0
        self._doubts += 1
        _translate(error, self.path, committing=True)

    def _conflict(self, session: str, after: int) -> Conflict:
        missing = self.read(session, after)
        if not missing:
            self._ids.pop(session, None)  # it may have been dropped and made anew
        return Conflict(missing)

    def load_snapshots(self, session: str, limit: int | None = None) -> list[Snapshot]:
        sql = f"SELECT seq, hash, body FROM snapshot WHERE session = {_THIS} ORDER BY seq DESC LIMIT ?"
        rows = self._rows(sql, session, -1 if limit is None else limit)
        return [Snapshot(*row) for row in rows]

    def begin(self, session: str, last: Record, snapshot: Snapshot, blobs: Mapping[bytes, bytes]) -> bool:
        with _Transaction(self) as db:
            if self._id(db, session):
                return False
            known = db.execute("INSERT INTO session (name) VALUES (?)", (session,)).lastrowid or 0
            db.execute("INSERT INTO entry VALUES (?, ?, ?, ?)", (known, last.seq, last.hash, last.body))
            self._put_snapshot(db, known, snapshot)
            self._put_blobs(db, blobs)
        return True

    @staticmethod
    def _put_snapshot(db: sqlite3.Connection, known: int, snapshot: Snapshot) -> None:
        db.execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", (known, snapshot.seq, snapshot.hash, snapshot.body))
        db.execute("DELETE FROM blob_ref WHERE session = ? AND snapshot = 1 AND seq = ?", (known, snapshot.seq))
        db.executemany("INSERT OR IGNORE INTO blob_ref VALUES (?, ?, 1, ?)", [(known, snapshot.seq, name) for name in snapshot.blobs])

    def _put_blobs(self, db: sqlite3.Connection, blobs: Mapping[bytes, bytes]) -> None:
        now_ms = self.now_ms()
        db.executemany("INSERT OR IGNORE INTO blob VALUES (?, ?, ?)", [(name, now_ms, body) for name, body in blobs.items()])

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        with _Transaction(self) as db:
            known = self._id(db, session)
            if not known:
                return  # dropped meanwhile
            self._put_snapshot(db, known, snapshot)
            self._drop_snapshots(db, known)

    @staticmethod
    def _drop_snapshots(db: sqlite3.Connection, known: int) -> None:
        """Drop all snapshots but the two newest and the newest before the first record, or else at it."""
        seqs = [row[0] for row in db.execute("SELECT seq FROM snapshot WHERE session = ? ORDER BY seq DESC", (known,))]
        first = db.execute("SELECT min(seq) FROM entry WHERE session = ?", (known,)).fetchone()[0] or 0
        base = [seq for seq in seqs if seq < first] or [seq for seq in seqs if seq == first]
        gone = [(known, seq) for seq in seqs[2:] if seq not in base[:1]]
        db.executemany("DELETE FROM snapshot WHERE session = ? AND seq = ?", gone)
        db.executemany("DELETE FROM blob_ref WHERE session = ? AND snapshot = 1 AND seq = ?", gone)

    def rewrite(self, session: str, after: int, after_hash: bytes, records: Sequence[tuple[Record, list[bytes]]], snapshots: Sequence[Snapshot]) -> bool:
        with _Transaction(self) as db:
            known = self._id(db, session)
            last = db.execute("SELECT seq, hash FROM entry WHERE session = ? ORDER BY seq DESC LIMIT 1", (known,)).fetchone()
            if last != (after, after_hash):
                return False
            db.execute("PRAGMA secure_delete = ON")
            for table in ("entry", "snapshot", "blob_ref", "derived"):
                db.execute(f"DELETE FROM {table} WHERE session = ?", (known,))
            db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?)", [(known, r.seq, r.hash, r.body) for r, _ in records])
            refs = [(known, r.seq, name) for r, names in records for name in names]
            db.executemany("INSERT OR IGNORE INTO blob_ref VALUES (?, ?, 0, ?)", refs)
            for snapshot in snapshots:
                self._put_snapshot(db, known, snapshot)
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")  # the old pages are in the log until then
        return True

    def trim(self, session: str, up_to: int, blobs_up_to: int, *, only: Sequence[bytes] | None = None, base: Snapshot | None = None) -> None:
        with _Transaction(self) as db:
            known = self._id(db, session)
            if not known:
                return
            last = db.execute("SELECT max(seq) FROM entry WHERE session = ?", (known,)).fetchone()[0] or 0
            db.execute("DELETE FROM entry WHERE session = ? AND seq <= ?", (known, min(up_to, last - 1)))
            release = "DELETE FROM blob_ref WHERE session = ? AND snapshot = 0 AND seq <= ?"
            db.execute(release, (known, up_to if only is not None else max(up_to, blobs_up_to)))
            db.executemany(f"{release} AND sha256 = ?", [(known, blobs_up_to, name) for name in only or ()])
            if base is not None:
                self._put_snapshot(db, known, base)
            self._drop_snapshots(db, known)
            older = "snapshot = 1 AND seq NOT IN (SELECT seq FROM snapshot WHERE session = ?1 ORDER BY seq DESC LIMIT 2)"
            db.executemany(f"DELETE FROM blob_ref WHERE session = ?1 AND sha256 = ?2 AND {older}", [(known, name) for name in only or ()])

    def put_blob(self, session: str, sha256: bytes, body: bytes) -> None:
        with _Transaction(self) as db:
            self._put_blobs(db, {sha256: body})
            db.execute("UPDATE blob SET put_at_ms = ? WHERE sha256 = ?", (self.now_ms(), sha256))  # young again: its record is still to come

    def get_blob(self, session: str, sha256: bytes) -> bytes | None:
        rows = self._rows("SELECT body FROM blob WHERE sha256 = ?", sha256)
        return rows[0][0] if rows else None

    def collect_blobs(self, put_before_ms: int, only: Sequence[bytes] | None = None) -> tuple[int, int]:
        unnamed = "FROM blob WHERE put_at_ms < ? AND NOT EXISTS (SELECT 1 FROM blob_ref WHERE blob_ref.sha256 = blob.sha256)"
        with _Transaction(self) as db:
            rows = db.execute(f"SELECT sha256, length(body) {unnamed}", (put_before_ms,)).fetchall()
            gone = [(name, size) for name, size in rows if only is None or name in only]
            db.executemany("DELETE FROM blob WHERE sha256 = ?", [(name,) for name, _ in gone])
        if only is not None and gone:
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return len(gone), sum(size for _, size in gone)

    def put_derived(self, session: str, name: str, body: bytes) -> None:
        with _Transaction(self) as db:
            if known := self._id(db, session):
                db.execute("INSERT OR REPLACE INTO derived VALUES (?, ?, ?)", (known, name, body))

    def get_derived(self, session: str, name: str) -> bytes | None:
        rows = self._rows(f"SELECT body FROM derived WHERE session = {_THIS} AND name = ?", session, name)
        return rows[0][0] if rows else None

    def sessions(self) -> list[SessionInfo]:
        names = self._rows("SELECT name FROM session ORDER BY name")
        return [info for (name,) in names if (info := self.info(name)) is not None]

    def incarnations(self, name: str) -> list[str]:
        # Names hold no "@"; incarnations are "name@2", "name@3", …: one range of the index.
        rows = self._rows("SELECT name FROM session WHERE name = ? OR (name > ? AND name < ?)", name, f"{name}@", f"{name}A")
        return [row[0] for row in rows]

    def info(self, session: str) -> SessionInfo | None:
        rows = self._rows(
            """WITH this AS (SELECT id FROM session WHERE name = ?)
               SELECT max(seq), count(*), sum(length(body)),
                      (SELECT coalesce(sum(length(body)), 0) FROM snapshot WHERE session = (SELECT id FROM this)),
                      (SELECT coalesce(sum(length(body)), 0) FROM blob
                       WHERE sha256 IN (SELECT sha256 FROM blob_ref WHERE session = (SELECT id FROM this)))
               FROM entry WHERE session = (SELECT id FROM this)""",
            session,
        )
        return None if rows[0][0] is None else SessionInfo(session, *rows[0])

    def drop(self, session: str) -> None:
        with _Transaction(self) as db:
            known = self._id(db, session)
            for table in ("entry", "snapshot", "blob_ref", "derived"):
                db.execute(f"DELETE FROM {table} WHERE session = ?", (known,))
            db.execute("DELETE FROM session WHERE id = ?", (known,))
        self._ids.pop(session, None)

    # --- life ---------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        if self._db is not None:
            _abandoned.append(self._db)
            self._db = self._look = None
        self._db_lock, self._turns, self._holder = threading.RLock(), threading.Lock(), 0
        self._file_lock.close()

    def close(self) -> None:
        self._closed = self._file_lock.given_up = True
        # A turn of another thread ends first, within its bounds: its lock must not be closed under it.
        ours = self._holder != threading.get_ident() and self._turns.acquire(timeout=limits.LOCK_WAIT_S)
        try:
            with self._db_lock:
                if self._db is not None:
                    self._db.close()
                    self._db = self._look = None
                self._file_lock.close()
        finally:
            if ours:
                self._turns.release()


class _WriteLock:
    """The fair lock as a context, re-entrant in the thread that holds it: threads of this process queue, then processes."""

    __slots__ = ("_journal", "_outer", "_timeout_s")

    def __init__(self, journal: SqliteJournal, timeout_s: float) -> None:
        self._journal = journal
        self._timeout_s = timeout_s
        self._outer = False

    def __enter__(self) -> bool:
        journal = self._journal
        me = threading.get_ident()
        if journal._holder == me:
            return False
        if journal._closed:
            raise _closed(journal.path)
        if journal.read_only:
            raise _read_only(journal.path)
        waited = not journal._turns.acquire(blocking=False)
        if waited and not journal._turns.acquire(timeout=self._timeout_s):
            raise self._busy("another thread of this process")
        try:
            if not journal._file_lock.acquire(self._timeout_s):
                raise _closed(journal.path) if journal._closed else self._busy("another process")
            if journal._closed:  # while this thread queued behind others of its own
                journal._file_lock.release()
                raise _closed(journal.path)
        except BaseException as error:
            journal._turns.release()
            if isinstance(error, OSError):
                raise ConfigurationError(
                    f"{journal.path}.lock cannot be used: {error.strerror}", code="bad_path", hint="check the folder's permissions"
                ) from error
            raise
        journal._holder = me
        self._outer = True
        return waited or journal._file_lock.waited

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._outer:
            journal = self._journal
            journal._holder = 0
            journal._file_lock.release()
            journal._turns.release()

    def _busy(self, who: str) -> Busy:
        return Busy(
            f"{who} has held the store {self._journal.path} for {self._timeout_s:g} s",
            hint="try again; `pinfold doctor` shows who holds it",
            waited_s=self._timeout_s,
        )


class _Transaction:
    """Several statements as one: BEGIN IMMEDIATE under the fair lock, COMMIT at the end, ROLLBACK at an exception."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal
        self._lock = _WriteLock(journal, limits.LOCK_WAIT_S)

    def __enter__(self) -> sqlite3.Connection:
        journal = self._journal
        self._lock.__enter__()
        journal._db_lock.acquire()
        try:
            db = journal._open()
            db.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._release()
            if isinstance(error, sqlite3.Error):
                _translate(error, journal.path)
            raise
        return db

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        db = self._journal._db
        try:
            if db is not None and db.in_transaction:
                db.execute("COMMIT" if kind is None else "ROLLBACK")
        except sqlite3.Error as failure:
            self._journal._doubts += 1
            _translate(failure, self._journal.path, committing=True)
        finally:
            self._release()
        if isinstance(error, sqlite3.Error):
            _translate(error, self._journal.path)

    def _release(self) -> None:
        """Let go. A transaction that Ctrl-C left open would swallow the writes after it: they would never be committed."""
        db = self._journal._db
        try:
            if db is not None and db.in_transaction:
                db.execute("ROLLBACK")
        finally:
            self._journal._db_lock.release()
            self._lock.__exit__(None, None, None)


def _closed(path: str) -> Unavailable:
    return Unavailable(f"the store {path} was closed", code="closed", hint="open a new Memory")


def _read_only(path: str) -> Unavailable:
    return Unavailable(f"the store {path} is read-only; nothing was written", code="read_only", hint="check its permissions, or open another store")


def _translate(error: sqlite3.Error, path: str, *, committing: bool = False) -> NoReturn:
    """Raise the pinfold error that a driver's error means."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if code is not None else None
    raised: PinfoldError
    if primary == sqlite3.SQLITE_FULL:
        raised = Unavailable(f"the disk under {path} is full; nothing was written", code="disk_full", hint="free some space and try again")
    elif primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        raised = _read_only(path)
    elif primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raised = Busy(f"another program holds the store {path}", hint="try again")
    elif primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raised = JournalCorrupt(f"the store {path} is damaged: {error}", hint="run `pinfold doctor`; nothing was changed", path=path)
    elif primary == sqlite3.SQLITE_CANTOPEN:
        if os.path.isdir(path):
            raised = ConfigurationError(f"the store {path} is a folder", code="bad_path", hint=f"name a file in it: {os.path.join(path, 'pinfold.db')}")
        else:
            raised = ConfigurationError(f"the store {path} cannot be opened", code="bad_path", hint="check the path and its permissions")
    elif isinstance(error, sqlite3.ProgrammingError):
        raised = _closed(path)
    else:
        raised = Unavailable(f"the store {path} failed: {error}", code="io_error", hint="check the disk and try again", maybe_applied=committing)
    raise raised from error


def file_uri(path: str) -> str:
    """Return an absolute path as the URI that SQLite reads: what would end or escape the path is quoted."""
    for mark, quoted in (("%", "%25"), ("?", "%3f"), ("#", "%23"), ("\\", "/")):
        if mark != "\\" or os.name == "nt":
            path = path.replace(mark, quoted)
    return "file:" + (path if path.startswith("/") else "///" + path)


_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs", "9p"))


def network_file_system(path: str, mounts: str = "/proc/self/mountinfo") -> str | None:
    """Return the name of the network file system path is on, None for a local one or where that cannot be told."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    target, best, kind = os.path.realpath(path), "", ""
    for line in lines:
        fields, _, rest = line.partition(" - ")
        mount = fields.split()[4].replace("\\040", " ")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, rest.split()[0] if rest else ""
    return kind if kind in _NETWORK else None
