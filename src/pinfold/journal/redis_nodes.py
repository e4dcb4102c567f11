"""The way to a Redis or Valkey server, or to the right node of a cluster: connections, routing, bounded retries.

Commands go out as one packet and their replies are read in order on the same connection: `WAIT` must follow its write there.
What is sent again after a lost reply was made to be: every script here knows its own earlier delivery, or does no harm twice.
Errors are translated here. Nothing is retried after `retry_s`; `maybe_applied` is True where a write was sent and not answered.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec
import redis.exceptions as failures
from redis.connection import Connection, SSLConnection
from redis.crc import key_slot

from pinfold.errors import ConfigurationError, PinfoldError, Unavailable

Command = tuple[Any, ...]
Address = tuple[str, int]

MOVES = 16
"""MOVED and ASK followed for one request before it counts as a failure: a map that changes is settled by then."""
_IDLE_CONNECTIONS = 16
_LOST = (failures.ConnectionError, failures.TimeoutError, failures.InvalidResponse, OSError)
_PASSING = ("CLUSTERDOWN", "MASTERDOWN", "LOADING", "TRYAGAIN", "NOREPLICAS", "BUSY ", "UNBLOCKED")
"""Replies that say "not now": a failover or a migration is under way."""


class Settings(msgspec.Struct, frozen=True):
    """How to reach the servers. Times in seconds."""

    addresses: list[Address]
    cluster: bool
    url: str
    """Without the password, for messages."""
    username: str | None = None
    password: str | None = None
    db: int = 0
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    timeout_s: float = 5.0
    retry_s: float = 10.0


class Node:
    """One server and its idle connections."""

    def __init__(self, settings: Settings, address: Address) -> None:
        self.address = address
        self._settings = settings
        self._idle: deque[Any] = deque()
        self._closed = False

    def exchange(self, commands: Sequence[Command], wait_s: float = 0.0, opened: set[Any] | None = None) -> list[Any]:
        """Return the replies to commands, an error in place of its reply. wait_s: how much longer the server may take.

        opened: noted in it while it is in use, for whoever has to cut it off. Raises one of _LOST, AuthenticationError.
        """
        connection = self._take()
        if opened is not None:
            opened.add(connection)
        try:
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            replies: list[Any] = []
            for _ in commands:
                try:
                    replies.append(connection.read_response(timeout=self._settings.timeout_s + wait_s))
                except failures.ResponseError as error:
                    replies.append(error)
        except BaseException:  # replies may still be on their way: this connection is out of step
            connection.disconnect()
            raise
        finally:
            if opened is not None:
                opened.discard(connection)
        if self._closed or len(self._idle) >= _IDLE_CONNECTIONS:
            connection.disconnect()
        else:
            self._idle.append(connection)
        return replies

    def _take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            pass
        known = self._settings
        options: dict[str, Any] = {
            "host": self.address[0],
            "port": self.address[1],
            "db": known.db,
            "username": known.username,
            "password": known.password,
            "socket_timeout": known.timeout_s,
            "socket_connect_timeout": min(known.timeout_s, 2.0),
            "protocol": 2,
            "driver_info": None,
        }
        if known.tls:
            options |= {"ssl_ca_certs": known.ca, "ssl_certfile": known.cert, "ssl_keyfile": known.key}
        connection = (SSLConnection if known.tls else Connection)(**options)
        connection.connect()  # type: ignore[no-untyped-call]
        return connection

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().disconnect()

    def forget_idle(self) -> None:
        """Drop idle connections: one of them was found dead."""
        while self._idle:
            try:
                self._idle.pop().disconnect()
            except IndexError:
                return


class Nodes:
    """The servers of one store and which of them holds which slot. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._nodes: dict[Address, Node] = {}
        self._slots: list[Address | None] = []
        self._lock = threading.Lock()
        self._blocked: set[Any] = set()
        self._closed = False
        self._refreshed_s = 0.0
        self.replicas_known = 0
        """Replicas in the cluster's own map, when it was last looked at."""

    # --- asking ---------------------------------------------------------------------------------------------------

    def run(self, key: bytes, commands: Sequence[Command], *, body: str | None = None, writes: bool = False, wait_s: float = 0.0) -> list[Any]:
        """Return the replies to commands at the node that holds key; they go out together.

        body: the script of the first command, an EVALSHA, for a server that does not know it yet. writes: for
        `maybe_applied`. wait_s: how long the server may block. Raises Unavailable, ConfigurationError.
        """
        if self._closed:
            raise closed(self.settings.url)
        slot = key_slot(key) if self.settings.cluster else 0
        address, asking, moves, doubtful, pause_s = self._address(slot), False, 0, False, 0.02
        until_s = time.monotonic() + self.settings.retry_s
        while True:
            sent = [("ASKING",), *commands] if asking else list(commands)
            problem: BaseException
            try:
                node = self.node(address)
                replies = node.exchange(sent, wait_s, self._blocked if wait_s else None)[1 if asking else 0 :]
            except failures.AuthenticationError as error:
                raise self._wrong_password(error) from error
            except failures.AuthorizationError as error:
                raise self._wrong_password(error) from error
            except _LOST as error:
                if self._closed:
                    raise closed(self.settings.url) from error
                self.node(address).forget_idle()
                doubtful = doubtful or (writes and not _refused_at_connect(error))
                problem = error
            else:
                answer = replies[0]
                if not isinstance(answer, BaseException):
                    return replies
                if isinstance(answer, failures.NoScriptError) and body is not None:
                    commands = [("EVAL", body, *commands[0][2:]), *commands[1:]]
                    body = None
                    continue
                asking = False
                if isinstance(answer, failures.AskError) and moves < MOVES:  # MOVED is one too
                    moves += 1
                    address = (answer.host, answer.port)
                    asking = not isinstance(answer, failures.MovedError)
                    if not asking:
                        self._note_moved(slot, address)
                    continue
                self._raise_if_final(answer, doubtful)
                problem = answer
            asking = False
            now_s = time.monotonic()
            if now_s >= until_s:
                raise self._unavailable(problem, doubtful) from problem
            time.sleep(min(pause_s * (0.5 + random.random()), max(0.0, until_s - now_s)))
            pause_s = min(pause_s * 1.6, 0.25)
            moves = 0
            if self.settings.cluster:
                self.refresh(avoid=address)
            address = self._address(slot)

    def everywhere(self, *command: Any) -> list[Any]:
        """Return the reply of each primary to a command. Raises Unavailable, ConfigurationError."""
        replies: list[Any] = []
        for address in self.primaries():
            try:
                reply = self.node(address).exchange([command])[0]
            except (failures.AuthenticationError, failures.AuthorizationError) as error:
                raise self._wrong_password(error) from error
            except _LOST as error:
                raise self._unavailable(error, False) from error
            if isinstance(reply, failures.AuthenticationError | failures.NoPermissionError):
                raise self._wrong_password(reply) from reply
            replies.append(reply)
        return replies

    # --- the map --------------------------------------------------------------------------------------------------

    def node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            with self._lock:
                node = self._nodes.setdefault(address, Node(self.settings, address))
        return node

    def primaries(self) -> list[Address]:
        """Return the address of every node that holds slots; without a cluster the one server."""
        if not self.settings.cluster:
            return self.settings.addresses[:1]
        if not self._slots:
            self.refresh()
        return sorted({address for address in self._slots if address is not None})

    def _address(self, slot: int) -> Address:
        if not self.settings.cluster:
            return self.settings.addresses[0]
        if not self._slots:
            self.refresh()
        return self._slots[slot] or self.settings.addresses[0]

    def _note_moved(self, slot: int, address: Address) -> None:
        if self._slots:
            self._slots[slot] = address

    def refresh(self, avoid: Address | None = None) -> None:
        """Read the map of slots from any node that answers; at most every 50 ms. Raises where none ever did."""
        with self._lock:
            if self._slots and time.monotonic() - self._refreshed_s < 0.05:
                return
            addresses = list(dict.fromkeys([*(a for a in self._slots if a is not None), *self.settings.addresses]))
        random.shuffle(addresses)
        addresses.sort(key=lambda address: address == avoid)
        problem: BaseException | None = None
        for address in addresses:
            try:
                reply = self.node(address).exchange([("CLUSTER", "SLOTS")])[0]
            except (failures.AuthenticationError, failures.AuthorizationError) as error:
                raise self._wrong_password(error) from error
            except _LOST as error:
                problem = error
                continue
            if isinstance(reply, failures.AuthenticationError | failures.NoPermissionError):
                raise self._wrong_password(reply) from reply
            if isinstance(reply, BaseException):
                if "cluster support disabled" in str(reply):
                    raise ConfigurationError(
                        f"{address[0]}:{address[1]} is no cluster", code="not_a_cluster", hint="use redis:// for a single server"
                    ) from reply
                problem = reply
                continue
            slots: list[Address | None] = [None] * 16_384
            replicas = 0
            for first, last, primary, *others in reply:
                host = (primary[0] or b"").decode() or address[0]
                slots[first : last + 1] = [(host, primary[1])] * (last + 1 - first)
                replicas = max(replicas, len(others))
            if any(slots):
                with self._lock:
                    self._slots, self.replicas_known, self._refreshed_s = slots, max(replicas, self.replicas_known), time.monotonic()
                return
            problem = problem or failures.ClusterDownError("CLUSTERDOWN no slot is served")
        if not self._slots:
            raise self._unavailable(problem or OSError("no node answered"), False) from problem

    # --- errors ---------------------------------------------------------------------------------------------------

    def _raise_if_final(self, answer: BaseException, doubtful: bool) -> None:
        """Raise what a reply means, unless it passes by itself."""
        text = str(answer)
        kind = _kind(answer)
        url = self.settings.url
        if kind == "OOM" or "OOM command not allowed" in text:
            raise Unavailable(
                f"the server of {url} has no memory left; nothing was written",
                code="store_full",
                hint="raise maxmemory or end sessions",
                maybe_applied=doubtful,
            ) from answer
        if kind == "MISCONF" or "MISCONF" in text:
            raise Unavailable(
                f"the server of {url} cannot write to its disk and refuses writes", code="disk_full", hint="free its disk", maybe_applied=doubtful
            ) from answer
        if isinstance(answer, failures.AuthenticationError):
            raise self._wrong_password(answer) from answer
        if isinstance(answer, failures.NoPermissionError):
            raise ConfigurationError(
                f"the user of {url} may not do this: {text}", code="no_permission", hint="docs/design/fleet.md lists the commands"
            ) from answer
        if kind == "READONLY" and not self.settings.cluster:
            raise Unavailable(
                f"the server of {url} is a read-only replica; nothing was written", code="read_only", hint="use the primary's URL", maybe_applied=doubtful
            ) from answer
        if kind == "READONLY" or any(word in text or kind == word.strip() for word in _PASSING):
            return
        if isinstance(answer, failures.AskError):
            return
        if "unknown command" in text.lower():
            raise ConfigurationError(
                f"the server of {url} is too old or something else: {text}", code="wrong_version", hint="use Redis or Valkey >= 7"
            ) from answer
        raise Unavailable(f"the server of {url} answered {text}", code="server_error", hint="look at the server's log", maybe_applied=doubtful) from answer

    def _wrong_password(self, error: BaseException) -> ConfigurationError:
        return ConfigurationError(
            f"the server of {self.settings.url} does not let us in: {error}", code="wrong_password", hint="write redis://user:password@host:port"
        )

    def _unavailable(self, problem: BaseException, doubtful: bool) -> PinfoldError:
        if isinstance(problem, failures.InvalidResponse):
            return _no_redis(self.settings.url)
        if isinstance(problem, socket.gaierror) or "Name or service not known" in str(problem):
            return ConfigurationError(f"{self.settings.url}: there is no such host", code="bad_url", hint="check the host's name")
        return Unavailable(
            f"{self.settings.url} does not answer: {problem}", code="server_down", hint="check that the server runs; try again", maybe_applied=doubtful
        )

    # --- life -----------------------------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """Forget the parent's connections; they are left open there."""
        self._nodes, self._blocked, self._lock = {}, set(), threading.Lock()

    def close(self) -> None:
        self._closed = True
        for connection in list(self._blocked):  # a thread is blocked in a read on it
            sock = getattr(connection, "_sock", None)
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        for node in list(self._nodes.values()):
            node.close()


def _kind(answer: BaseException) -> str:
    """Return the first word of a server's error, such as MOVED or OOM."""
    return str(getattr(answer, "status_code", None) or str(answer).partition(" ")[0])


def _refused_at_connect(error: BaseException) -> bool:
    """Return whether the connection was never made, so that nothing can have been sent."""
    return "connecting to" in str(error) or isinstance(error, ConnectionRefusedError | socket.gaierror)


def _no_redis(url: str) -> ConfigurationError:
    return ConfigurationError(f"what answers at {url} is neither Redis nor Valkey", code="wrong_server", hint="check host and port")


def closed(url: str) -> Unavailable:
    return Unavailable(f"the store {url} was closed", code="closed", hint="open a new Memory")


def raise_not_redis(url: str, error: BaseException) -> NoReturn:
    """Raise that something else answered."""
    raise _no_redis(url) from error
