"""The way to a PostgreSQL server: a small pool, bounded retries, errors translated, and the one connection that listens.

Nothing relies on the state of a database session: each call is one statement or one transaction, no statement is prepared, so
a transaction pooler may stand in between. Every wait for the server ends: `statement_timeout` there, a deadline here.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg import errors as failures
from psycopg import generators, pq

from pinfold.errors import Busy, ConfigurationError, PinfoldError, Unavailable

T = TypeVar("T")

VERSION = 140_000

_LOST_STATES = ("08", "57P01", "57P02", "57P03", "57P05", "53300")
"""Classes and codes that say: the connection, not the statement."""
_AGAIN = ("40001", "40P01")
_MEANING = {
    "53100": ("disk_full", "the disk of {url} is full; nothing was written", "free some space and try again"),
    "53200": ("store_full", "the server of {url} has no memory left; nothing was written", "look at its memory"),
    "25006": ("read_only", "the server of {url} is read-only; nothing was written", "use the primary's URL"),
    "57014": ("timeout", "a statement took too long on {url}; nothing was written", "try again, or raise timeout_ms"),
}


class _Connection(psycopg.Connection[Any]):
    """A connection whose every wait for the server ends."""

    deadline_s = 15.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        return super().wait(gen, interval, self.deadline_s if timeout is None else timeout)


_INT, _BYTES, _TEXT = 20, 17, 25
"""Types as PostgreSQL numbers them: bigint, bytea, text."""


def rows(connection: psycopg.Connection[Any], sql: str, *arguments: str | int | bytes | None) -> list[tuple[Any, ...]]:
    """Return the rows of one statement; %s for an argument, columns of type text, bytea, integer and bigint.

    Straight to libpq, in binary: a cursor of psycopg, with its choice of adapters, costs a process more than all the rest of an
    append. An int goes as bigint, so that no statement depends on how large it is.
    """
    types, values = zip(*map(_sent, arguments), strict=True) if arguments else ((), ())
    connection.pgconn.send_query_params(_numbered(sql), values, types, (pq.Format.BINARY,) * len(values), pq.Format.BINARY)
    result = connection.wait(generators.execute(connection.pgconn))[-1]
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise failures.error_from_result(result, connection.info.encoding)
    read = [_READ[result.ftype(column)] for column in range(result.nfields)]
    get = result.get_value
    return [tuple(None if (value := get(row, column)) is None else read[column](value) for column in range(len(read))) for row in range(result.ntuples)]


@cache
def _numbered(sql: str) -> bytes:
    first, *rest = sql.split("%s")
    return (first + "".join(f"${place}{part}" for place, part in enumerate(rest, 1))).encode()


def _sent(value: str | int | bytes | None) -> tuple[int, bytes | None]:
    """Return (type, bytes) of an argument; 0 leaves the type to the statement."""
    if isinstance(value, bytes):
        return _BYTES, value
    if isinstance(value, int):
        return _INT, value.to_bytes(8, "big", signed=True)
    return (0, None) if value is None else (_TEXT, value.encode())


def _int_of(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


_READ: dict[int, Callable[[bytes], Any]] = {_INT: _int_of, 23: _int_of, _BYTES: bytes, _TEXT: bytes.decode}


def _unheard(notice: psycopg.Notify) -> None:
    pass


class Link:
    """Connections to one database. Threads may share it."""

    def __init__(self, url: str, connect: dict[str, Any], *, size: int, timeout_s: float, retry_s: float) -> None:
        self.url = url
        self.retry_s = retry_s
        self._connect = {"connect_timeout": 5, "application_name": "pinfold", "keepalives_idle": 30, "tcp_user_timeout": 15_000, **connect}
        self._options = f"-c statement_timeout={int(timeout_s * 1000)} -c lock_timeout={int(timeout_s * 1000)}"
        self._deadline_s = timeout_s * 1.5
        self._timeout_s = timeout_s
        self._size = size
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._idle: deque[_Connection] = deque()
        self._room = threading.Semaphore(self._size)

    # --- connections ----------------------------------------------------------------------------------------------

    def connect(self) -> _Connection:
        """Return a new connection. Raises ConfigurationError, or a psycopg error that says "not now"."""
        try:
            connection = _Connection.connect(**self._connect, options=self._options, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            text = str(error)
            if self._options and "startup parameter" in text:  # a pooler: the role's own statement_timeout is what is left
                self._options = ""
                return self.connect()
            self._raise_if_configuration(error, text)
            raise
        connection.deadline_s = self._deadline_s
        if connection.info.server_version < VERSION:
            version = connection.info.server_version
            connection.close()
            raise ConfigurationError(f"{self.url} runs version {version // 10_000}", code="wrong_version", hint="use PostgreSQL >= 14")
        return connection

    def _pooled(self) -> _Connection:
        """Return a new connection for the pool. A pooler may hand it a server that listens for others: what is heard there is dropped."""
        connection = self.connect()
        connection.add_notify_handler(_unheard)
        return connection

    def _raise_if_configuration(self, error: psycopg.Error, text: str) -> None:
        code, hint = "", ""
        if "password" in text or "authentication failed" in text or "pg_hba.conf" in text or error.sqlstate in ("28P01", "28000"):
            code, hint = "wrong_password", "write postgresql://user:password@host:port/database"
        elif ("database" in text or "role" in text) and "does not exist" in text:
            code, hint = "no_database", "check the user's and the database's names"
        elif "translate host name" in text or "resolve host" in text or "Name or service not known" in text:
            code, hint = "bad_url", "check the host's name"
        elif "received invalid response to" in text or "expected authentication request" in text:
            code, hint = "wrong_server", "what answers there is not PostgreSQL: check host and port"
        if code:
            last = text.strip().splitlines()[-1]
            raise ConfigurationError(f"{self.url} does not let us in: {last}", code=code, hint=hint) from error

    def run(self, work: Callable[[psycopg.Connection[Any]], T], *, writes: bool = False, again: bool = True) -> T:
        """Return what work gives; done again where the connection was lost or the server said so, for retry_s at most.

        writes: for `maybe_applied`. again=False: never a second time once it may have been applied.
        """
        until_s = time.monotonic() + self.retry_s
        doubtful, pause_s = False, 0.02
        while True:
            if self._closed:
                raise closed(self.url)
            if not self._room.acquire(timeout=self._timeout_s):
                raise Busy(f"all {self._size} connections to {self.url} have been in use for {self._timeout_s:g} s", hint="raise pool in the URL")
            connection: _Connection | None = None
            sent = False
            try:
                connection = self._idle.pop() if self._idle else self._pooled()
                sent = True
                answer = work(connection)
                self._keep(connection)
                return answer
            except psycopg.Error as error:
                if connection is not None:
                    self._put_back(connection, error)
                if not self._passes(error):
                    raise self._translated(error, doubtful) from error
                if sent and writes and self._is_loss(error):
                    doubtful = True
                problem: psycopg.Error = error
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            finally:
                self._room.release()
            if time.monotonic() >= until_s or (doubtful and not again):
                raise Unavailable(
                    f"{self.url} does not answer: {str(problem).strip() or type(problem).__name__}",
                    code="server_down",
                    hint="check that the server runs; try again",
                    maybe_applied=doubtful,
                ) from problem
            time.sleep(pause_s * (0.5 + random.random()))
            pause_s = min(pause_s * 1.6, 0.3)

    def _put_back(self, connection: _Connection, error: psycopg.Error) -> None:
        if connection.closed or connection.broken or self._is_loss(error) or connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
            self._close_idle()  # the others will be as dead
        else:
            self._keep(connection)

    def _keep(self, connection: _Connection) -> None:
        self._idle.append(connection)
        if self._closed:  # meanwhile, by another thread
            self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break

    @staticmethod
    def _is_loss(error: psycopg.Error) -> bool:
        state = error.sqlstate
        return state is None or state.startswith(_LOST_STATES)

    def _passes(self, error: psycopg.Error) -> bool:
        return (isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and self._is_loss(error)) or error.sqlstate in _AGAIN

    def _translated(self, error: psycopg.Error, doubtful: bool) -> PinfoldError:
        state, text = error.sqlstate or "", str(error).strip()
        if state in _MEANING:
            code, message, hint = _MEANING[state]
            return Unavailable(message.format(url=self.url), code=code, hint=hint, maybe_applied=doubtful)
        if state == "55P03":
            return Busy(f"another writer has held this session in {self.url} for {self._timeout_s:g} s", hint="try again", maybe_applied=doubtful)
        if state in ("42P01", "3F000", "42883"):
            return ConfigurationError(f"{self.url} holds no pinfold store: {text.splitlines()[0]}", code="not_migrated", hint="run `pinfold migrate URL`")
        if isinstance(error, failures.InsufficientPrivilege):
            return ConfigurationError(
                f"the user of {self.url} may not do this: {text.splitlines()[0]}", code="no_permission", hint="docs/design/fleet.md lists the grants"
            )
        return Unavailable(f"{self.url} failed: {text}", code="server_error", hint="look at the server's log", maybe_applied=doubtful)

    # --- life -----------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Forget the parent's connections without a word to the server: closing one here would end it there."""
        _inherited.extend(self._idle)
        self._reset()

    def close(self) -> None:
        self._closed = True
        self._close_idle()


_inherited: list[Any] = []
"""Kept for ever in a forked child: libpq says goodbye when a connection is dropped."""


class Listener:
    """The one connection of this process that listens: tells which sessions were written to. A hint, like every wake-up."""

    def __init__(self, link: Link, channel: str) -> None:
        self._link = link
        self._channel = channel
        self._changed = threading.Condition()
        self._counts: dict[str, int] = {}
        self._thread: threading.Thread | None = None
        self._needed_s = 0.0
        self._closed = False
        self.hears = False
        """Whether notifications arrive here: proved by one of our own."""

    def count(self, session: str) -> int:
        """Return a number that moves with every notification for session; starts the thread where it sleeps."""
        with self._changed:
            self._needed_s = time.monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="pinfold-listen", daemon=True)
                self._thread.start()
            return self._counts.get(session, 0)

    def wait(self, session: str, count: int, timeout_s: float) -> bool:
        """Return True once count has moved on, False at the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._counts.get(session, 0) != count or self._closed, timeout_s)
            return self._counts.get(session, 0) != count

    def _run(self) -> None:
        pause_s = 0.05
        while not self._is_done():
            try:
                connection = self._link.connect()
            except (psycopg.Error, PinfoldError):
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, 2.0)
                continue
            try:
                connection.deadline_s = 60.0
                connection.execute(f"LISTEN {self._channel}")
                # The proof comes by another connection: behind a transaction pooler this one would hear itself and nobody else.
                self._link.run(lambda db: db.execute("SELECT pg_notify(%s, '')", (self._channel,)))
                pause_s = 0.05
                while not self._is_done():
                    for notice in connection.notifies(timeout=0.5, stop_after=1):
                        self._note(notice.payload)
            except (psycopg.Error, PinfoldError):
                pass
            finally:
                self.hears = False
                connection.close()

    def _note(self, session: str) -> None:
        with self._changed:
            self.hears = True
            if len(self._counts) > 10_000:
                self._counts.clear()
            self._counts[session] = self._counts.get(session, 0) + 1
            self._changed.notify_all()

    def _is_done(self) -> bool:
        """End the thread when nobody has waited for a minute: an idle process holds no connection for this."""
        with self._changed:
            if self._closed or time.monotonic() - self._needed_s > 60.0:
                self._thread = None
                return True
            return False

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def closed(url: str) -> Unavailable:
    return Unavailable(f"the store {url} was closed", code="closed", hint="open a new Memory")
