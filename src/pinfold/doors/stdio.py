"""JSON-RPC lines over a process's own stdin and stdout.

Its rules:

* from `take` on, file descriptor 1 is stderr and 0 is empty: whatever a plug-in prints or reads, the wire is only ours;
* a message is one line, of any length; a line that is no message is answered as JSON-RPC says, never passed over;
* after the last line, answers under way get GRACE_S to go out; whoever waits for other people's work is let go.

The SDK's own stdio transport hops through worker threads three times a message; here one thread reads, and a short
answer is written where it was made, when the pipe has room.
"""

from __future__ import annotations

import math
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from mcp.server.lowlevel import Server
    from mcp.shared.message import SessionMessage

GRACE_S = 0.8
"""How long answers under way are waited for after stdin closed: with what follows, the process is gone within 2 s."""
OPEN_CALLS = 4096
"""Beyond this many unanswered calls nothing more is read until some are answered."""
CHUNK_BYTES = 256 * 1024
_SHORT_BYTES: int = getattr(select, "PIPE_BUF", 512)


class Wire:
    """The two ends that were stdin and stdout. `broken` is set once nobody reads the other end."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.broken = False
        self._lock = threading.Lock()
        self._queue: list[bytes] = []
        self._queued = threading.Condition(self._lock)
        self._writing = False
        self._closed = False
        self._writer: threading.Thread | None = None
        self._room = _room_check(write_fd)

    @classmethod
    def take(cls) -> Wire:
        """Take stdin and stdout away from everybody else in this process and its children."""
        read_fd, write_fd = _above_standard(0), _above_standard(1)
        empty = os.open(os.devnull, os.O_RDWR)
        os.dup2(empty, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # started without a stderr
            os.dup2(empty, 1)
        if empty > 2:
            os.close(empty)
        if sys.platform == "win32":
            import msvcrt

            for fd in (read_fd, write_fd):
                msvcrt.setmode(fd, os.O_BINARY)
        return cls(read_fd, write_fd)

    def write(self, line: bytes) -> None:
        """Write a line, here if that cannot block, else in the writing thread. Order is kept."""
        with self._lock:
            if not self._queue and not self._writing and len(line) <= _SHORT_BYTES and self._room():
                self._put(line)
                return
            self._queue.append(line)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="pinfold-stdout", daemon=True)
                self._writer.start()
            self._queued.notify()

    def _write(self) -> None:
        while True:
            with self._lock:
                while not self._queue:
                    self._writing = False
                    self._queued.notify_all()
                    if self._closed:
                        return
                    self._queued.wait()
                lines, self._queue, self._writing = self._queue, [], True
            self._put(b"".join(lines))

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view and not self.broken:
                view = view[os.write(self.write_fd, view) :]
        except OSError:
            self.broken = True

    def drain(self, timeout_s: float) -> None:
        """Wait until everything is written, at most timeout_s: a client that reads no more holds nobody up."""
        with self._lock:
            self._closed = True
            self._queued.notify_all()
            if self._writer is not None:
                self._queued.wait_for(lambda: not self._queue and not self._writing, timeout_s)

    def lines(self) -> Any:
        """Yield lists of whole lines as they come; the last may lack its line feed."""
        parts: list[bytes] = []
        while True:
            try:
                chunk = os.read(self.read_fd, CHUNK_BYTES)
            except OSError:
                chunk = b""
            if not chunk:
                if parts:
                    yield [b"".join(parts)]
                return
            *ended, rest = chunk.split(b"\n")
            if ended:
                ended[0] = b"".join((*parts, ended[0]))
                parts = [rest] if rest else []
                yield ended
            else:
                parts.append(rest)


def _above_standard(fd: int) -> int:
    """Return a private duplicate of fd outside 0..2."""
    if sys.platform == "win32":
        return os.dup(fd)
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def _room_check(fd: int) -> Callable[[], bool]:
    """Return a function that says whether PIPE_BUF bytes can be written without blocking: known of pipes and sockets only."""
    mode = os.fstat(fd).st_mode
    if not hasattr(select, "poll") or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return lambda: False
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return lambda: any(event == select.POLLOUT for _, event in poller.poll(0))


class _Outbox:
    """What the SDK writes to: a WriteStream that never blocks the event loop."""

    def __init__(self, wire: Wire, answered: Callable[[Any], None]) -> None:
        self._wire = wire
        self._answered = answered

    async def send(self, item: SessionMessage, /) -> None:
        message: Any = item.message
        if hasattr(message, "result"):
            data: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        else:
            data = message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        self._wire.write(encode_json(data) + b"\n")
        if "method" not in data:
            self._answered(data["id"])

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> _Outbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


def encode_json(value: Any) -> bytes:
    """Return compact JSON; text that UTF-8 cannot hold (a lone surrogate) as escapes."""
    import msgspec

    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(value, separators=(",", ":")).encode()


async def serve(server: Server[Any], wire: Wire, waiting: Callable[[Any], bool], stop: asyncio.Event) -> None:
    """Serve until stdin ends, the client stops reading, or stop is set; then let answers under way go out.

    waiting(request id): whether a call only waits for other people's work.
    """
    import asyncio

    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    loop = asyncio.get_running_loop()
    unanswered: set[Any] = set()
    room = threading.Event()
    room.set()
    inbox, messages = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)

    def answered(request_id: Any) -> None:
        unanswered.discard(request_id)
        if not room.is_set() and busy() < OPEN_CALLS:
            room.set()
        if wire.broken:
            stop.set()

    def busy() -> int:
        return sum(not waiting(request_id) for request_id in unanswered)

    def parse(line: bytes) -> Any:
        """Return the message of a line, or the answer to what is none."""
        try:
            return jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return _parse_slowly(line, jsonrpc_message_adapter.validate_python)

    def take(found: list[Any]) -> None:
        for message in found:
            if type(message) is dict:
                wire.write(encode_json(message) + b"\n")
                continue
            if hasattr(message, "method"):
                if hasattr(message, "id"):
                    unanswered.add(message.id)
                elif message.method == "notifications/cancelled":
                    answered((message.params or {}).get("requestId"))
            try:
                inbox.send_nowait(SessionMessage(message))
            except anyio.ClosedResourceError:  # it came after the end: nobody answers any more
                return
        if len(unanswered) >= OPEN_CALLS and busy() >= OPEN_CALLS:
            room.clear()

    def read() -> None:
        try:
            for lines in wire.lines():
                loop.call_soon_threadsafe(take, [parse(line) for line in lines if line and not line.isspace()])
                room.wait()
            loop.call_soon_threadsafe(stop.set)
        except RuntimeError:
            pass  # the loop is gone, and with it everybody who would read this

    running = asyncio.ensure_future(server.run(messages, _Outbox(wire, answered), server.create_initialization_options()))
    stopped = asyncio.ensure_future(stop.wait())
    threading.Thread(target=read, name="pinfold-stdin", daemon=True).start()
    await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
    deadline = time.monotonic() + GRACE_S
    while busy() and not wire.broken and not running.done() and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
    inbox.close()
    await asyncio.wait((running,), timeout=0.2)
    running.cancel()
    stopped.cancel()
    wire.drain(0.2)


def _parse_slowly(line: bytes, validate: Callable[[Any], Any]) -> Any:
    """Return the message of a line with lone surrogates, which the SDK's parser refuses; else the error to answer with."""
    import json

    try:
        value = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _error(None, -32700, "Parse error: this line is not JSON")
    try:
        return validate(value)
    except (ValueError, RecursionError):
        request_id = value.get("id") if isinstance(value, dict) else None
        plain = isinstance(request_id, (str, int)) and not isinstance(request_id, bool)
        return _error(request_id if plain else None, -32600, "Invalid Request: this JSON is not a JSON-RPC 2.0 message")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
