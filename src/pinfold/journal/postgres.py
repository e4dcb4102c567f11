"""Journals in PostgreSQL >= 14: `postgresql://user@host:5432/database[?schema=pinfold]`.

An append is one call of one function: it locks the session's head, compares it, and inserts, or answers what was missed. A
blob and the entry that names it are one transaction. Who waits for a session marks its head; only then an append notifies:
notifications queue behind one lock of the whole server, which a store full of writers must not meet.
Readers see committed rows alone, so reads are as strict as writes. What a commit survives is the server's affair:
`synchronous_commit`, and `synchronous_standby_names` where a standby may be promoted.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

import psycopg

from pinfold import limits
from pinfold.entry import Record
from pinfold.errors import ConfigurationError, NewerFormat, PinfoldError, Unavailable
from pinfold.journal.base import Conflict, SessionInfo, Snapshot
from pinfold.journal.contention import RESERVED_MS, Contention, Queue
from pinfold.journal.heads import Heads
from pinfold.journal.offset import ServerClock
from pinfold.journal.postgres_link import Link, Listener, rows
from pinfold.journal.postgres_schema import STORE_FORMAT, statements

T = TypeVar("T")
Connection = psycopg.Connection[Any]

PAGE = 512
PART_BYTES = 32 << 20
"""A snapshot is kept in parts of this size: a field ends at 1 GiB, and memory on the server before."""
WAITED_MS = 60_000
"""How long one mark of a waiter makes appends notify."""


@lru_cache(maxsize=64)
def _append_sql(schema: str, records: int, blobs: int) -> str:
    """Return the statement for so many of each: seqs, hashes, bodies of the records; names, bytes of the blobs."""
    columns = (("bigint", records), ("bytea", records), ("bytea", records), ("bytea", blobs), ("bytea", blobs))
    arrays = ", ".join(f"ARRAY[{', '.join(['%s'] * count)}]::{kind}[]" for kind, count in columns)
    return f"SELECT * FROM {schema}.append(%s, %s, %s, %s, {arrays}, %s, %s, %s)"


class PostgresJournal:
    """A store in a PostgreSQL database. Threads, processes, forks and machines may share it.

    connect: libpq's parameters. pool: connections of this process at most, beside one that listens while somebody waits.
    max_stale_ms: how long a look at the head may serve reads from RAM. confirm: no read from a standby.
    """

    local = False

    def __init__(
        self,
        url: str,
        connect: dict[str, Any],
        *,
        schema: str = "pinfold",
        pool: int = 4,
        timeout_s: float = 10.0,
        retry_s: float = 10.0,
        max_stale_ms: int = 0,
        confirm: bool = False,
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", schema):
            raise ConfigurationError(f"schema={schema} is not a plain lower-case name", code="bad_url", hint="use letters, digits and _")
        self.url = url
        self.schema = schema
        self._link = Link(url, connect, size=max(1, pool), timeout_s=timeout_s, retry_s=retry_s)
        self._listener = Listener(self._link, schema)
        self._confirm = confirm
        self._lock = threading.Lock()
        self._ready = False
        self._clock = ServerClock()
        self._contention = Contention()
        self._heads = Heads(max_stale_ms)
        self._marked: dict[str, float] = {}
        self.notes: list[str] = []
        """What an operator should know about how this store is set up."""
        self._this = f"(SELECT id FROM {schema}.session WHERE name = %s)"
        self._new_deliveries()

    def _new_deliveries(self) -> None:
        self._delivery, self._deliveries = os.urandom(8), 0

    def _next_delivery(self) -> bytes:
        with self._lock:
            self._deliveries += 1
            return self._delivery + (self._deliveries & 0xFFFFFFFF).to_bytes(4, "big")

    # --- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> Link:
        if self._ready:
            return self._link
        format = self._format()
        if format < STORE_FORMAT:
            what = "holds no pinfold store" if format == 0 else f"has store format {format}, this pinfold writes {STORE_FORMAT}"
            raise ConfigurationError(f"{self.url} {what}", code="not_migrated", hint="run `pinfold migrate URL`, as the owner of the schema")
        if format > STORE_FORMAT:
            raise NewerFormat(f"{self.url} has store format {format}, this pinfold knows {STORE_FORMAT}", hint="upgrade pinfold")
        sql = "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('synchronous_standby_names')"
        commit, fsync, standby = self._link.run(lambda db: db.execute(sql).fetchall())[0]
        if commit == "off" or fsync == "off":
            self.notes.append(f"synchronous_commit={commit}, fsync={fsync}: the last commits may be lost when the server or its machine dies")
        if not standby:
            self.notes.append("no synchronous standby: promoting a standby may lose the last commits")
        self._ready = True
        return self._link

    def _format(self) -> int:
        sql = f"SELECT format FROM {self.schema}.store"

        def look(db: Connection) -> int:
            try:
                row = db.execute(sql).fetchone()
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                return 0
            return int(row[0]) if row else 0

        return self._link.run(look)

    def migrate(self, partitions: int = 0) -> list[str]:
        """Bring the tables to this pinfold's format; return what was done. partitions: of the entries, at the first migration."""
        done: list[str] = []

        def work(db: Connection) -> None:
            done.clear()
            with db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(hashtext('pinfold'), hashtext(%s))", (self.schema,))
                exists = db.execute("SELECT to_regclass(%s)", (f"{self.schema}.store",)).fetchone()
                format = 0
                if exists is not None and exists[0] is not None:
                    row = db.execute(f"SELECT format FROM {self.schema}.store").fetchone()
                    format = int(row[0]) if row else 0
                if format > STORE_FORMAT:
                    raise NewerFormat(f"{self.url} has store format {format}, this pinfold knows {STORE_FORMAT}", hint="upgrade pinfold")
                for number in range(format, STORE_FORMAT):
                    for statement in statements(number, self.schema, partitions):
                        db.execute(statement)
                    db.execute(f"UPDATE {self.schema}.store SET format = {number + 1}")
                    done.append(f"schema {self.schema}: format {number} -> {number + 1}")

        self._link.run(work, writes=True)
        return done

    # --- asking -------------------------------------------------------------------------------------------------

    def _rows(self, sql: str, *arguments: str | int | bytes | None) -> list[Any]:
        """Return the rows of one statement that changes nothing."""
        return self._open().run(lambda db: rows(db, sql, *arguments))

    def _locked(self, db: Connection, session: str) -> tuple[int, int, bytes]:
        """Return (id, last seq, last hash) of a session with its head locked until the transaction ends; (0, 0, b"") where there is none."""
        sql = f"SELECT id, last_seq, last_hash FROM {self.schema}.session WHERE name = %s FOR UPDATE"
        row = db.execute(sql, (session,), binary=True).fetchone()
        return row if row is not None else (0, 0, b"")

    def _do(self, db: Connection, sql: str, *arguments: Any) -> Any:
        return db.execute(sql.replace("@", f"{self.schema}."), arguments, binary=True)

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, session: str, after: int, limit: int | None = None) -> list[Record]:
        sql = f"SELECT seq, hash, body FROM {self.schema}.entry WHERE session = {self._this} AND seq > %s ORDER BY seq LIMIT %s"
        return [Record(*row) for row in self._rows(sql, session, after, limit)]

    def version(self, session: str, confirm: bool = False) -> int:
        confirm = confirm or self._confirm
        if not confirm and (recent := self._heads.recent(session)) is not None:
            return recent
        asked_s = time.monotonic()
        last, standby = self._rows(f"SELECT (SELECT last_hash FROM {self.schema}.session WHERE name = %s), pg_is_in_recovery()::int", session)[0]
        if standby and confirm:
            raise Unavailable(f"the server of {self.url} is a standby; what it holds may be old", code="read_only", hint="use the primary's URL")
        return self._heads.looked(session, last, asked_s)

    def wait(self, session: str, after: int, timeout_s: float) -> bool:
        until_s, pause_s = time.monotonic() + timeout_s, limits.POLL_MIN_S
        sql = f"SELECT last_seq FROM {self.schema}.session WHERE name = %s"
        while True:
            count = self._listener.count(session)
            marked = self._mark_waited(session)
            found = self._rows(sql, session)
            if found and found[0][0] > after:
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            if marked and self._listener.hears:
                if self._listener.wait(session, count, min(left_s, 1.0)):
                    return True  # looking at the head would cost the waiter one more round trip than the read it goes on with
            else:
                time.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 1.2, limits.POLL_MAX_S)

    def _mark_waited(self, session: str) -> bool:
        """Mark the head, so that appends notify; once in a while. False where there is no head yet or it cannot be marked."""
        now_s = time.monotonic()
        if self._marked.get(session, 0.0) > now_s:
            return True
        until_ms = self.now_ms() + WAITED_MS
        sql = f"UPDATE {self.schema}.session SET waited_until_ms = %s WHERE name = %s"
        try:
            done = self._open().run(lambda db: db.execute(sql, (until_ms, session)).rowcount)
        except PinfoldError as error:
            if error.code not in ("read_only", "no_permission"):
                raise
            return False
        if done:
            if len(self._marked) > 10_000:
                self._marked.clear()
            self._marked[session] = now_s + WAITED_MS / 2000
        return bool(done)

    def now_ms(self) -> int:
        if not self._clock.known:
            asked_s = time.monotonic()
            found = self._link.run(lambda db: rows(db, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"))
            self._clock.note(found[0][0], asked_s, time.monotonic())
        return self._clock.now_ms()

    # --- writing ------------------------------------------------------------------------------------------------

    def write_lock(self, session: str, timeout_s: float) -> AbstractContextManager[Any]:
        return self._contention.turn(session, self._release)

    def _release(self, session: str, token: bytes) -> None:
        sql = "UPDATE @session SET reserved_for = NULL, reserved_until_ms = 0 WHERE name = %s AND reserved_for = %s"
        try:
            self._open().run(lambda db: self._do(db, sql, session, token))
        except PinfoldError:
            pass  # it ends by itself

    def append(self, session: str, after: int, after_hash: bytes, records: Sequence[Record], blobs: Mapping[bytes, bytes]) -> Conflict | None:
        columns: tuple[list[Any], ...] = [r.seq for r in records], [r.hash for r in records], [r.body for r in records], list(blobs), list(blobs.values())
        sql = _append_sql(self.schema, len(records), len(blobs))
        reserve_ms = RESERVED_MS * self._contention.reserves(session)
        values = (value for column in columns for value in column)
        arguments = (session, after, after_hash, self._next_delivery(), *values, PAGE, self._contention.token(), reserve_ms)
        link = self._open()
        queue: Queue | None = None
        while True:
            asked_s = time.monotonic()
            found = link.run(lambda db: rows(db, sql, *arguments), writes=True)
            status, at_ms = found[0][:2]
            self._clock.note(at_ms, asked_s, time.monotonic())
            if status != 3:
                break
            queue = queue or Queue(session)
            queue.wait()
        if status == 0:
            self._contention.lost(session, reserve_ms > 0)
            missing = [Record(*row[2:]) for row in found[1:]]
            return Conflict(missing + self.read(session, missing[-1].seq) if len(missing) == PAGE else missing)
        self._contention.won(session)
        self._heads.appended(session, after_hash, records[-1].hash, asked_s)
        return None

    def _write(self, work: Any, *, again: bool = True) -> Any:
        """Return what work(connection) gives, as one transaction."""

        def transaction(db: Connection) -> Any:
            with db.transaction():
                return work(db)

        return self._open().run(transaction, writes=True, again=again)

    def begin(self, session: str, last: Record, snapshot: Snapshot, blobs: Mapping[bytes, bytes]) -> bool:
        delivery = self._next_delivery()

        def work(db: Connection) -> bool:
            self._do(db, "INSERT INTO @session (name) VALUES (%s) ON CONFLICT (name) DO NOTHING", session)
            id, seq, _ = self._locked(db, session)
            if seq:
                return bool(self._do(db, "SELECT 1 FROM @entry WHERE session = %s AND delivery = %s LIMIT 1", id, delivery).fetchone())
            head = "UPDATE @session SET last_seq = %s, last_hash = %s, entries = 1, entry_bytes = %s WHERE id = %s"
            self._do(db, head, last.seq, last.hash, len(last.body), id)
            self._do(db, "INSERT INTO @entry VALUES (%s, %s, %s, %s, %s)", id, last.seq, last.hash, delivery, last.body)
            self._put_snapshot(db, id, snapshot)
            self._put_blobs(db, id, blobs)
            return True

        return bool(self._write(work))

    def _put_blobs(self, db: Connection, id: int, blobs: Mapping[bytes, bytes]) -> None:
        now_ms = self.now_ms()
        sql = "INSERT INTO @blob VALUES (%s, %s, %s, %s) ON CONFLICT (session, sha256) DO UPDATE SET put_at_ms = EXCLUDED.put_at_ms"
        for name, body in blobs.items():
            self._do(db, sql, id, name, now_ms, body)

    def rewrite(self, session: str, after: int, after_hash: bytes, records: Sequence[tuple[Record, list[bytes]]], snapshots: Sequence[Snapshot]) -> bool:
        delivery = self._next_delivery()

        def work(db: Connection) -> bool:
            id, seq, hash = self._locked(db, session)
            if not id or (seq, hash) != (after, after_hash):
                return bool(self._do(db, "SELECT 1 FROM @entry WHERE session = %s AND delivery = %s LIMIT 1", id, delivery).fetchone())
            for table in ("entry", "snapshot", "blob_ref", "derived"):
                self._do(db, f"DELETE FROM @{table} WHERE session = %s", id)
            for record, names in records:
                self._do(db, "INSERT INTO @entry VALUES (%s, %s, %s, %s, %s)", id, record.seq, record.hash, delivery, record.body)
                for name in names:
                    self._do(db, "INSERT INTO @blob_ref VALUES (%s, false, %s, %s) ON CONFLICT DO NOTHING", id, record.seq, name)
            for snapshot in snapshots:
                self._put_snapshot(db, id, snapshot)
            last = records[-1][0]
            head = "UPDATE @session SET last_seq = %s, last_hash = %s, entries = %s, entry_bytes = %s, garbage = true WHERE id = %s"
            self._do(db, head, last.seq, last.hash, len(records), sum(len(record.body) for record, _ in records), id)
            return True

        return bool(self._write(work))

    # --- snapshots ----------------------------------------------------------------------------------------------

    def _put_snapshot(self, db: Connection, id: int, snapshot: Snapshot) -> None:
        self._drop_snapshot(db, id, snapshot.seq)
        for part, start in enumerate(range(0, len(snapshot.body) or 1, PART_BYTES)):
            body = snapshot.body[start : start + PART_BYTES]
            self._do(db, "INSERT INTO @snapshot VALUES (%s, %s, %s, %s, %s)", id, snapshot.seq, part, snapshot.hash, body)
        names = "INSERT INTO @blob_ref SELECT %s, true, %s, a FROM unnest(%s::bytea[]) AS u(a) ON CONFLICT DO NOTHING"
        self._do(db, names, id, snapshot.seq, snapshot.blobs)

    def _drop_snapshot(self, db: Connection, id: int, seq: int) -> None:
        self._do(db, "DELETE FROM @snapshot WHERE session = %s AND seq = %s", id, seq)
        self._do(db, "DELETE FROM @blob_ref WHERE session = %s AND snapshot AND seq = %s", id, seq)

    def _drop_snapshots(self, db: Connection, id: int) -> None:
        """Drop all snapshots but the two newest and the newest before the first record, or else at it."""
        seqs = [row[0] for row in self._do(db, "SELECT seq FROM @snapshot WHERE session = %s AND part = 0 ORDER BY seq DESC", id).fetchall()]
        first = self._do(db, "SELECT min(seq) FROM @entry WHERE session = %s", id).fetchone()[0] or 0
        base = [seq for seq in seqs if seq < first] or [seq for seq in seqs if seq == first]
        for seq in seqs[2:]:
            if seq not in base[:1]:
                self._drop_snapshot(db, id, seq)

    def _note_garbage(self, db: Connection, id: int) -> None:
        self._do(db, "UPDATE @session SET garbage = true WHERE id = %s AND NOT garbage", id)

    def save_snapshot(self, session: str, snapshot: Snapshot) -> None:
        def work(db: Connection) -> None:
            id, seq, _ = self._locked(db, session)
            if seq:  # else it was dropped meanwhile
                self._put_snapshot(db, id, snapshot)
                self._drop_snapshots(db, id)
                self._note_garbage(db, id)

        self._write(work)

    def load_snapshots(self, session: str, limit: int | None = None) -> list[Snapshot]:
        newest = f"SELECT seq FROM {self.schema}.snapshot WHERE session = {self._this} AND part = 0 ORDER BY seq DESC LIMIT %s"
        sql = f"SELECT seq, hash, body FROM {self.schema}.snapshot WHERE session = {self._this} AND seq IN ({newest}) ORDER BY seq DESC, part"
        parts: dict[int, tuple[bytes, list[bytes]]] = {}
        for seq, hash, body in self._rows(sql, session, session, limit):
            parts.setdefault(seq, (hash, []))[1].append(body)
        return [Snapshot(seq, hash, bodies[0] if len(bodies) == 1 else b"".join(bodies)) for seq, (hash, bodies) in parts.items()]

    def trim(self, session: str, up_to: int, blobs_up_to: int, *, only: Sequence[bytes] | None = None, base: Snapshot | None = None) -> None:
        def work(db: Connection) -> None:
            id, last, _ = self._locked(db, session)
            if not last:
                return
            gone = "WITH gone AS (DELETE FROM @entry WHERE session = %s AND seq <= %s RETURNING octet_length(body) AS size) "
            count, size = self._do(db, gone + "SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone", id, min(up_to, last - 1)).fetchone()
            self._do(db, "UPDATE @session SET entries = entries - %s, entry_bytes = entry_bytes - %s, garbage = true WHERE id = %s", count, size, id)
            release = "DELETE FROM @blob_ref WHERE session = %s AND NOT snapshot AND seq <= %s"
            self._do(db, release, id, up_to if only is not None else max(up_to, blobs_up_to))
            if only:
                self._do(db, f"{release} AND sha256 = ANY(%s)", id, blobs_up_to, list(only))
            if base is not None:
                self._put_snapshot(db, id, base)
            self._drop_snapshots(db, id)
            if only:
                newest = "(SELECT seq FROM @snapshot WHERE session = %s AND part = 0 ORDER BY seq DESC LIMIT 2)"
                older = f"DELETE FROM @blob_ref WHERE session = %s AND snapshot AND sha256 = ANY(%s) AND seq NOT IN {newest}"
                self._do(db, older, id, list(only), id)

        self._write(work)

    # --- blobs --------------------------------------------------------------------------------------------------

    def put_blob(self, session: str, sha256: bytes, body: bytes) -> None:
        def work(db: Connection) -> None:
            self._do(db, "INSERT INTO @session (name) VALUES (%s) ON CONFLICT (name) DO NOTHING", session)
            id, _, _ = self._locked(db, session)
            self._put_blobs(db, id, {sha256: body})
            self._note_garbage(db, id)

        self._write(work)

    def get_blob(self, session: str, sha256: bytes) -> bytes | None:
        found = self._rows(f"SELECT body FROM {self.schema}.blob WHERE session = {self._this} AND sha256 = %s", session, sha256)
        return found[0][0] if found else None

    def collect_blobs(self, put_before_ms: int, only: Sequence[bytes] | None = None) -> tuple[int, int]:
        unnamed = """FROM @blob b WHERE session = %s
            AND NOT EXISTS (SELECT 1 FROM @blob_ref r WHERE r.session = b.session AND r.sha256 = b.sha256)"""
        names = None if only is None else list(only)
        count = size = 0
        for (id,) in self._rows(f"SELECT id FROM {self.schema}.session WHERE garbage"):

            def work(db: Connection, id: int = id) -> list[Any]:
                # An append that names one of them waits for this lock, or had it before: then its mark is seen here.
                self._do(db, "SELECT 1 FROM @session WHERE id = %s FOR UPDATE", id)
                sql = f"DELETE {unnamed} AND put_at_ms < %s AND (%s::bytea[] IS NULL OR sha256 = ANY(%s::bytea[])) RETURNING octet_length(body)"
                gone = list(self._do(db, sql, id, put_before_ms, names, names).fetchall())
                self._do(db, f"UPDATE @session SET garbage = EXISTS (SELECT 1 {unnamed}) WHERE id = %s", id, id)
                return gone

            gone = self._write(work)
            count, size = count + len(gone), size + sum(row[0] for row in gone)
        return count, size

    def put_derived(self, session: str, name: str, body: bytes) -> None:
        sql = "INSERT INTO @derived SELECT id, %s, %s FROM @session WHERE name = %s AND last_seq > 0"
        sql += " ON CONFLICT (session, name) DO UPDATE SET body = EXCLUDED.body"
        self._write(lambda db: self._do(db, sql, name, body, session) and None)

    def get_derived(self, session: str, name: str) -> bytes | None:
        found = self._rows(f"SELECT body FROM {self.schema}.derived WHERE session = {self._this} AND name = %s", session, name)
        return found[0][0] if found else None

    # --- sessions -----------------------------------------------------------------------------------------------

    def sessions(self) -> list[SessionInfo]:
        return self._infos("TRUE")

    def incarnations(self, name: str) -> list[str]:
        sql = f"SELECT name FROM {self.schema}.session WHERE last_seq > 0 AND (name = %s OR (name >= %s AND name < %s))"
        return [row[0] for row in self._rows(sql, name, f"{name}@", f"{name}A")]  # A comes after @

    def info(self, session: str) -> SessionInfo | None:
        infos = self._infos("s.name = %s", session)
        return infos[0] if infos else None

    def _infos(self, where: str, *arguments: Any) -> list[SessionInfo]:
        sizes = ", ".join(
            f"coalesce((SELECT sum(octet_length(body))::bigint FROM {self.schema}.{table} x WHERE x.session = s.id), 0)" for table in ("snapshot", "blob")
        )
        sql = f"SELECT name, last_seq, entries, entry_bytes, {sizes} FROM {self.schema}.session s WHERE last_seq > 0 AND {where} ORDER BY name"
        return [SessionInfo(*row) for row in self._rows(sql, *arguments)]

    def drop(self, session: str) -> None:
        def work(db: Connection) -> None:
            id, _, _ = self._locked(db, session)
            if id:
                for table in ("entry", "snapshot", "blob", "blob_ref", "derived"):
                    self._do(db, f"DELETE FROM @{table} WHERE session = %s", id)
                self._do(db, "DELETE FROM @session WHERE id = %s", id)

        self._write(work, again=False)

    # --- life ---------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._contention = Contention()
        self._heads.after_fork()
        self._new_deliveries()
        self._link.after_fork()
        self._listener = Listener(self._link, self.schema)
        self._marked.clear()

    def close(self) -> None:
        self._listener.close()
        self._link.close()
