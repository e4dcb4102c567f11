"""Runs commands for those who send them (doors/client.py), on sessions that stay loaded. `pinfold serve` starts it.

Its rules:

* a command is the command line's own code, run in a thread with its caller's folder, environment and streams: the same bytes;
* what belongs into its caller's process is handed back before anything is done: whatever opens its files, waits for others,
  starts a child, asks for help, works on another store or is set up differently;
* a request is whole before a thread is taken, an answer is whole before it is sent, and both have a time limit and a size:
  who sends or reads slowly holds nobody up;
* who has left by the time its command would begin, has it not done;
* each command leaves its sessions as a process that ends would: what it counted is journaled where somebody relies on it.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import socket
import stat
import sys
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from pinfold import __version__
from pinfold.caller import Caller, Elsewhere
from pinfold.doors import client
from pinfold.errors import PinfoldError
from pinfold.journal.url import default_url, resolved
from pinfold.limits import VALUE_BYTES
from pinfold.memory import Memory
from pinfold.scan import HOOK
from pinfold.session import Session

REQUEST_S = 5.0
"""A request must be there by then: half a request holds no place for longer."""
ANSWER_S = 30.0
"""How long an answer may lie unread."""
DRAIN_S = 10.0
LINKS = 512
"""Connections at once; whoever comes then runs its command itself."""
ANSWER_BYTES = 256 << 20
"""Of answers not yet read; beyond that commands are handed back."""
WORKERS = 32
WARM_SESSIONS = 64
WARM_S = 3600.0
"""Sessions that are kept loaded, and how long after their last use."""
CHORES_S = 2.0
OWN_VARIABLES = ("PINFOLD_SESSION", "PINFOLD_ACTOR", "PINFOLD_STORE", "PINFOLD_FILES", client.SWITCH)
"""What a caller may set as it likes; by every other PINFOLD_… this process was set up, once, when it started."""
SETUP = ("HOME", "XDG_DATA_HOME", "LOCALAPPDATA", "USERPROFILE")

_request_id = re.compile(r"cli:[0-9a-f]{20}").fullmatch


class Request(msgspec.Struct, frozen=True):
    """A command as it was sent. input: how many bytes of stdin come after it, None where it was not read yet."""

    id: str
    argv: list[str]
    folder: str
    environ: dict[str, str]
    terminal: bool
    columns: int
    input: int | None


class InputWanted(BaseException):
    """The command reads stdin, which was not sent along."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class Malformed(Exception):
    """What came is no request."""


# --- a caller's streams -------------------------------------------------------------------------------------------


class _Kept(io.RawIOBase):
    def __init__(self, kind: int, parts: list[bytes]) -> None:
        self._kind, self._parts = kind, parts

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        raw = bytes(data)
        self._parts.append(frame(self._kind, raw))
        return len(raw)


class _Out:
    """A standard stream that is kept in frames, buffered as a process buffers its own."""

    def __init__(self, kind: int, parts: list[bytes], terminal: bool = False) -> None:
        self.buffer = io.BufferedWriter(_Kept(kind, parts))
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def flush(self) -> None:
        self.buffer.flush()


class _In:
    """Standard input: what was sent of it, else asked for."""

    def __init__(self, content: bytes | None) -> None:
        self._content = content
        self.buffer = self

    def read(self, count: int = VALUE_BYTES + 1) -> bytes:
        if self._content is None:
            raise InputWanted(count)
        return self._content


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Return a frame as a server sends it."""
    return bytes((kind,)) + len(payload).to_bytes(4, "big") + payload


# --- the store ----------------------------------------------------------------------------------------------------


class WarmMemory(Memory):
    """A store whose sessions stay loaded. What is lent of it (`by`) is a command's own, and settles when that ends."""

    def __init__(self, url: str) -> None:
        super().__init__(url, background=False)
        self._used: OrderedDict[str, float] = OrderedDict()
        self._dirty: set[str] = set()
        self._usage = threading.Lock()

    def session(self, session_id: str, **options: Any) -> Session:
        session = super().session(session_id, **options)
        with self._usage:
            self._used[session_id] = time.monotonic()
            self._used.move_to_end(session_id)
            self._dirty.add(session_id)
        return session

    def close(self) -> None:
        if not self._lent:
            super().close()
            return
        for replica in list(self._engine._replicas.values()):
            replica.settle()

    def rest(self) -> None:
        """Do the chores of sessions that were used, and let go those that were not for long."""
        now = time.monotonic()
        with self._usage:
            for name in list(self._engine._replicas):  # opened on behalf of another: its long-term memory, or to be ended
                self._used.setdefault(name, now)
            dirty = set(self._dirty)
            self._dirty.clear()
            gone = [name for name, then in self._used.items() if now - then > WARM_S]
            gone += [name for name in list(self._used)[: max(0, len(self._used) - WARM_SESSIONS)] if name not in gone]
            for name in gone:
                del self._used[name]
        for name in dirty.union(gone):
            replica = self._engine._replicas.get(name)
            if replica is not None:
                replica.close()
        for name in gone:
            self._engine.forget(name)


class _Sender(Caller):
    """Who sent a command, as long as it runs."""

    def __init__(self, daemon: Daemon, link: socket.socket, request: Request, content: bytes | None, parts: list[bytes]) -> None:
        super().__init__(
            request.folder,
            request.environ,
            stdin=_In(content),
            stdout=_Out(client.STDOUT, parts, request.terminal),
            stderr=_Out(client.STDERR, parts),
            columns=request.columns,
        )
        self._daemon, self._link = daemon, link

    def memory(self, url: str | None, actor: str | None) -> Memory:
        daemon = self._daemon
        if resolved(url or default_url(self.environ), self.folder) != daemon.url or not daemon.is_set_up_for(self.environ):
            raise Elsewhere
        lent = daemon.lend(actor)
        self._begin()
        return lent

    def _begin(self) -> None:
        """Tell the caller that its command is being done. Raises Elsewhere where nobody is there to be told."""
        try:
            if not self._link.recv(1, socket.MSG_PEEK):
                raise Elsewhere
        except BlockingIOError:
            pass
        except OSError:
            raise Elsewhere from None
        try:
            self._link.send(frame(client.BEGUN))
        except OSError:
            raise Elsewhere from None


# --- the daemon ---------------------------------------------------------------------------------------------------


class Daemon:
    """Serves the commands of one store. `counts`: what became of those who came."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self.url = url
        self._environ = dict(environ)
        self._memory = WarmMemory(url)
        self.shown = self._memory.url
        """The URL without a password."""
        self._stamp = self._file()
        self._lock = threading.Lock()
        self._tally_of_gone: Counter[str] = Counter()
        self._workers = ThreadPoolExecutor(WORKERS, "pinfold-command")
        self._chores = ThreadPoolExecutor(1, "pinfold-chores")
        self._links: set[asyncio.Task[None]] = set()
        self._unread_bytes = 0
        self.token = ""
        self.counts: Counter[str] = Counter()
        self.busy_s = 0.0
        self.under_way = 0
        self.draining = False
        self.ask: Callable[[str], dict[str, Any]] = lambda question: {}
        """What answers `serve --status` and `serve --stop`."""
        self._utf8_paths = sys.getfilesystemencoding().lower().replace("-", "") == "utf8" or os.name == "nt"

    # --- the store ------------------------------------------------------------------------------------------------

    def lend(self, actor: str | None) -> Memory:
        """Return the store for one command. A file that was put in the place of the one that is open is opened instead."""
        stamp = self._file()
        if stamp != self._stamp:
            with self._lock:
                if stamp != self._stamp:
                    if self._stamp is not None:
                        self._tally_of_gone += self._memory._engine.tally()
                        self._memory = WarmMemory(self.url)  # the old one is let go by its last user
                    self._stamp = stamp
        return self._memory.by(actor)

    def _file(self) -> tuple[int, int] | None:
        path = getattr(self._memory._journal, "path", None)
        if path is None:
            return None
        try:
            found = os.stat(path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def is_set_up_for(self, environ: Mapping[str, str]) -> bool:
        """Return whether a command of this environment does here what it would do in its own process."""
        if environ.get(HOOK):
            return False  # it is code, found by the caller's own path
        if not self._utf8_paths and not all(value.isascii() for value in environ.values()):
            return False
        return _setup(environ) == _setup(self._environ)

    def tally(self) -> Counter[str]:
        """Return what commands did, as `Engine.tally`."""
        return self._tally_of_gone + self._memory._engine.tally()

    def sessions(self) -> int:
        """Return how many sessions are loaded."""
        return len(self._memory._engine._replicas)

    # --- commands -------------------------------------------------------------------------------------------------

    def run(self, request: Request, content: bytes | None, link: socket.socket) -> bytes:
        """Run a command in this thread. Return what of its answer is still to be sent."""
        from pinfold.doors.cli import run_for

        parts: list[bytes] = []
        sender = _Sender(self, link, request, content, parts)
        began = time.perf_counter()
        try:
            status = run_for(sender, request.argv, request.id)
        except Elsewhere:
            outcome, answer = "handed_back", frame(client.YOURS)
        except InputWanted as wanted:
            outcome, answer = "asked_for_input", frame(client.INPUT, str(wanted.count).encode())
        else:
            for stream in (sender.stdout, sender.stderr):
                stream.flush()
            outcome, answer = "done", b"".join((*parts, frame(client.STATUS, str(status).encode())))
        with self._lock:
            self.counts[outcome] += 1
            self.busy_s += time.perf_counter() - began
        try:
            return answer[link.send(answer) :]  # most fit into the socket: no need to go through the loop
        except BlockingIOError:
            return answer

    # --- connections ----------------------------------------------------------------------------------------------

    async def listen(self, listener: socket.socket) -> None:
        """Take connections until cancelled."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                link, _ = await loop.sock_accept(listener)
            except OSError:  # too many files, or a caller that left in the queue
                await asyncio.sleep(0.05)
                continue
            link.setblocking(False)
            self.counts["connections"] += 1
            if len(self._links) >= LINKS:
                link.close()
                continue
            task = loop.create_task(self._attend(link))
            self._links.add(task)
            task.add_done_callback(self._links.discard)

    async def _attend(self, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        is_local = link.family not in (socket.AF_INET, socket.AF_INET6)
        answer = b""
        try:
            if not is_local:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(REQUEST_S):
                told = await self._told(link)
                if not is_local and isinstance(told.get("nonce"), str):
                    await loop.sock_sendall(link, frame(client.PROOF, client.proof_of(self.token, told["nonce"][:64])))
                    told = await self._told(link)
                if not is_local and not _equal(told.get("token"), self.token):
                    raise Malformed("the token is not this server's")
                request = self._request(told)
                content = None if not isinstance(request, Request) or request.input is None else await _exactly(link, request.input)
            if not isinstance(request, Request):
                answer = request
            elif self.draining:
                return
            elif self._unread_bytes > ANSWER_BYTES:
                answer = frame(client.YOURS)
            else:
                self.under_way += 1
                try:
                    answer = await loop.run_in_executor(self._workers, self.run, request, content, link)
                finally:
                    self.under_way -= 1
            await self._send(link, answer)
        except Malformed as problem:
            self.counts["malformed"] += 1
            await self._send(link, frame(client.REFUSED, str(problem).encode()))
        except TimeoutError:
            self.counts["too_slow"] += 1
        except (OSError, EOFError):
            self.counts["left"] += 1
        except Exception:  # the outermost loop: a bug is told here, and its caller does without
            import traceback

            traceback.print_exc(file=sys.stderr)
            self.counts["failed"] += 1
        finally:
            link.close()

    async def _send(self, link: socket.socket, answer: bytes) -> None:
        if not answer:
            return
        self._unread_bytes += len(answer)
        try:
            async with asyncio.timeout(ANSWER_S):
                await asyncio.get_running_loop().sock_sendall(link, answer)
        except (OSError, TimeoutError):
            self.counts["unread"] += 1
        finally:
            self._unread_bytes -= len(answer)

    async def _told(self, link: socket.socket) -> dict[str, Any]:
        size = int.from_bytes(await _exactly(link, 4), "big")
        if not 0 < size <= client.REQUEST_BYTES:
            raise Malformed(f"a request has 1 to {client.REQUEST_BYTES} bytes, not {size}")
        body = await _exactly(link, size)
        try:
            told = json.loads(body) if size < 1 << 16 else await asyncio.get_running_loop().run_in_executor(self._workers, json.loads, body)
        except (ValueError, RecursionError):
            raise Malformed("a request is JSON") from None
        if not isinstance(told, dict):
            raise Malformed("a request is an object")
        return told

    def _request(self, told: dict[str, Any]) -> Request | bytes:
        """Return the command that was sent, or the answer to what is none."""
        if "ask" in told:
            return frame(client.JSON, json.dumps(self.ask(str(told["ask"]))).encode())
        if (told.get("protocol"), told.get("pinfold")) != (client.PROTOCOL, __version__):
            self.counts["skew"] += 1
            return frame(client.SKEW, __version__.encode())
        try:
            request = msgspec.convert(told, Request)
        except msgspec.ValidationError as error:
            raise Malformed(str(error)) from None
        if not _request_id(request.id) or not os.path.isabs(request.folder):
            raise Malformed("a request has an id and a folder")
        if request.input is not None and not 0 <= request.input <= VALUE_BYTES + 1:
            raise Malformed(f"of stdin at most {VALUE_BYTES + 1} bytes are sent")
        return request

    # --- its life -------------------------------------------------------------------------------------------------

    async def keep_house(self) -> None:
        """Do what commands leave to be done, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHORES_S)
            await loop.run_in_executor(self._chores, self._rest)

    def _rest(self) -> None:
        try:
            self._memory.rest()
        except PinfoldError as error:  # the store comes back, or the next command says what is wrong
            print(f"pinfold serve: {error}", file=sys.stderr, flush=True)

    async def drain(self) -> None:
        """Answer what has begun; nothing begins any more."""
        self.draining = True
        until = time.monotonic() + DRAIN_S
        while self.under_way and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for task in list(self._links):
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def close(self) -> None:
        """Release the store."""
        for pool in (self._workers, self._chores):
            pool.shutdown(wait=False, cancel_futures=True)
        self._memory.close()


def _setup(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a process is set up."""
    return {
        name: value for name, value in environ.items() if name in SETUP or (name.startswith("PINFOLD_") and "TOKEN" not in name and name not in OWN_VARIABLES)
    }


def _equal(given: Any, token: str) -> bool:
    from hmac import compare_digest

    return isinstance(given, str) and bool(token) and compare_digest(given.encode("utf-8", "replace"), token.encode())


async def _exactly(link: socket.socket, count: int) -> bytes:
    """Return the next count bytes. Raises EOFError where there are fewer."""
    loop = asyncio.get_running_loop()
    parts = bytearray()
    while len(parts) < count:
        part = await loop.sock_recv(link, min(count - len(parts), 1 << 18))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


# --- its place ----------------------------------------------------------------------------------------------------


def private_folder() -> str:
    """Return the folder of this user's servers, made where it is missing. Raises ConfigurationError `unsafe_folder`."""
    from pinfold.errors import ConfigurationError

    folder = client.runtime_folder()
    try:
        os.makedirs(folder, mode=stat.S_IRWXU, exist_ok=True)
        if client.is_private(folder):
            return folder
        reason = "it belongs to somebody else, or others may write to it"
    except OSError as error:
        reason = str(error.strerror)
    raise ConfigurationError(f"{folder} cannot hold a socket: {reason}", code="unsafe_folder", hint=f"chmod 700 {folder}, or set XDG_RUNTIME_DIR")


def bind_local(path: str) -> socket.socket:
    """Return a Unix socket at path that listens; one that was left there goes. Whoever calls holds the lock of its server."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
        listener.listen(1024)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener
