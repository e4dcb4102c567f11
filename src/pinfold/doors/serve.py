"""`pinfold serve`: keeps a store warm for the commands of this user, and serves it over HTTP where that is wanted.

One server a store, held by a lock that ends with the process. Nothing depends on it: commands find its socket, or do without.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pinfold.doors import client
from pinfold.doors.arguments import Parser
from pinfold.doors.cli import MISS, OK, say, write, write_json
from pinfold.errors import ConfigurationError, PinfoldError, Refused, Unavailable
from pinfold.journal.url import default_url, resolved

if TYPE_CHECKING:
    import socket

TCP_PORT = 18765
"""Where MemNet's users expect it."""
START_S = 30.0
STOP_S = 20.0
ASK_S = 5.0
LOOK_S = 1.0
CLOSE_S = 5.0
GLANCE_S = 0.2
"""Whoever looks whether a lock is held holds it for a moment; that is no server."""
ENDINGS = (".sock", ".tcp")
"""What stands at the address of a server that can be found."""


def run_serve(words: Sequence[str]) -> int:
    from pinfold.doors.http_options import add_http_arguments, print_new_token

    parser = Parser(
        "serve",
        "[--http] [--tcp [PORT]] [--background | --status | --stop] [flags]",
        "Keep a store warm: commands on it find this server by themselves and answer the same, sooner. Needed by none.",
    )
    group = parser.add_argument_group("flags of this command")
    group.add_argument("--background", action="store_true", help="return once it serves; what it says goes to a log")
    group.add_argument("--status", action="store_true", help="say whether one serves this store, and what it did")
    group.add_argument("--stop", action="store_true", help="let the one of this store answer what is under way, and end")
    group.add_argument("--tcp", nargs="?", const=TCP_PORT, type=int, metavar="PORT", help=f"listen on 127.0.0.1 too, with a token (default {TCP_PORT})")
    add_http_arguments(parser, "serve over HTTP too: /mcp, /graphql, /v1/OPERATION, /openapi.json, /healthz, /metrics")
    group.add_argument("--tools", choices=("standard", "core", "all", "pmll", "memnet"), default="standard", help="which tools MCP lists over HTTP")
    group.add_argument("--structured", choices=("on", "off"), default="off", help="MCP results as structured content too")
    parser.set_defaults(host=None, port=None)
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return OK
    if bare:
        parser.error(f"{bare[0]!r} is one word too many")
    if flags.background + flags.status + flags.stop > 1:
        parser.error("--background, --status and --stop are three different things")
    if flags.new_token is not None:
        return print_new_token(flags)
    url = resolved(flags.store or default_url())
    if url.startswith("memory:"):
        hint = "name a file: sqlite:///path, or leave --store out"
        raise ConfigurationError("a store in memory is no other process's to see", code="memory_store", hint=hint)
    from pinfold.journal.open import open_journal

    base, shown = client.address_of(url), open_journal(url).url  # without a password
    if flags.status:
        return _status(base, shown, flags)
    if flags.stop:
        return _stop(base, shown, flags)
    _read_addresses(flags, parser)
    if flags.background:
        return _background(base, shown, words, flags)
    return _serve(base, url, shown, flags)


def _read_addresses(flags: Any, parser: Parser) -> None:
    """Give --host and --port to what they mean: HTTP where that is served, else TCP, as MemNet's users write them."""
    from pinfold.doors.http import is_loopback
    from pinfold.doors.http_options import PORT

    flags.tcp_host = "127.0.0.1"
    if not flags.http and (flags.host or flags.port is not None):
        flags.tcp_host = flags.host or flags.tcp_host
        flags.tcp = flags.port if flags.port is not None else flags.tcp or TCP_PORT
        if not is_loopback(flags.tcp_host):
            hint = "serve other machines over --http, with tokens"
            raise ConfigurationError(f"commands are taken from this machine only, not at {flags.tcp_host}", code="not_loopback", hint=hint)
    if flags.tcp is not None and not 0 <= flags.tcp <= 65535:
        parser.error(f"{flags.tcp} is no port: 0 to 65535")
    flags.host, flags.port = flags.host or "127.0.0.1", PORT if flags.port is None else flags.port


# --- asking one that runs -----------------------------------------------------------------------------------------


def ask(base: str, question: str) -> dict[str, Any] | None:
    """Return a server's answer to `status` or `stop`, None where none answers."""
    import json

    try:
        found = client.connect(base)
    except OSError:
        return None
    if found is None:
        return None
    link, token = found
    try:
        link.settimeout(ASK_S)
        link.sendall(client.framed(json.dumps({"token": token, "ask": question}).encode()))
        kind, payload, _ = client.read_answer(link, None)
        return dict(json.loads(payload)) if kind == client.JSON else None
    except (OSError, EOFError, ValueError):
        return None
    finally:
        link.close()


def _status(base: str, url: str, flags: Any) -> int:
    told = ask(base, "status")
    if told is None:
        _check_answers(base, url)
    if flags.json:
        write_json({"running": told is not None, "store": url, **(told or {})})
    elif told is None:
        say(f"no server for {url}; commands do without")
    else:
        counts = told["counts"]
        lines = [f"serving  {told['store']}  pid {told['pid']}, pinfold {told['pinfold']}, {_duration(told['uptime_s'])}"]
        lines += [f"at       {address}" for address in told["addresses"]]
        lines.append(
            f"did      {_many(counts.get('done', 0), 'command')}, handed back {counts.get('handed_back', 0)}; {_many(told['sessions'], 'session')} loaded"
        )
        write("\n".join(lines))
    return MISS if told is None and flags.fail_on_miss else OK


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"


def _stop(base: str, url: str, flags: Any) -> int:
    told = ask(base, "stop")
    if told is None:
        _check_answers(base, url)
    until = time.monotonic() + STOP_S
    while told is not None and (_is_held(base) or ask(base, "status") is not None):
        if time.monotonic() > until:
            raise Unavailable(f"the server of {url} (pid {told['pid']}) has not ended yet", code="still_running", hint=f"kill {told['pid']}")
        time.sleep(0.02)
    if flags.json:
        write_json({"status": "absent" if told is None else "stopped", "store": url})
    else:
        say(f"no server for {url}" if told is None else f"stopped the server of {url}")
    return MISS if told is None and flags.fail_on_miss else OK


def _is_held(base: str) -> bool:
    return bool(_holder(base).held)


def _holder(base: str) -> Any:
    from pinfold.journal.lock import lock_holder

    return lock_holder(f"{base}.lock")


def _check_answers(base: str, url: str) -> None:
    """Raise Unavailable where a server can be found that does not answer: it is stuck, and only a signal ends it."""
    holder = _holder(base)
    if holder.held and any(os.path.exists(base + ending) for ending in ENDINGS):
        hint = f"commands do without it; kill -9 {' '.join(map(str, holder.pids)) or 'PID'} ends it, and nothing that was acknowledged is lost"
        raise Unavailable(f"the server of {url} does not answer", code="not_answering", hint=hint)


def _already(base: str, url: str) -> Refused:
    told = ask(base, "status")
    who = f"pid {told['pid']}" if told is not None else "it does not answer"
    return Refused(f"a server for {url} runs already ({who})", code="already_serving", hint="pinfold serve --status, or --stop")


# --- in the background --------------------------------------------------------------------------------------------


def _background(base: str, url: str, words: Sequence[str], flags: Any) -> int:
    import subprocess

    import pinfold
    from pinfold.doors.daemon import private_folder

    private_folder()
    if _is_held(base) or ask(base, "status") is not None:
        raise _already(base, url)
    root = os.path.dirname(os.path.dirname(os.path.abspath(pinfold.__file__)))
    safe = ["-P"] if root != os.getcwd() else []  # a folder that happens to have a pinfold.py in it is not run
    command = [sys.executable, *safe, "-m", "pinfold", "serve", *[word for word in words if word not in ("--background", "--json")]]
    path = f"{base}.log"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    until = time.monotonic() + START_S
    while (told := ask(base, "status")) is None or not told["ready"] or not _is_of(process, told):
        if process.poll() is not None or time.monotonic() > until:
            if process.poll() is not None and _is_held(base):
                raise _already(base, url)  # another one began at the same moment, and was first
            with open(path, encoding="utf-8", errors="replace") as log_:
                reason = log_.read().strip().rpartition("pinfold: ")[2] or f"exit status {process.returncode}"
            raise Unavailable(f"the server did not start: {reason}", code="not_started", hint=f"its log is {path}")
        time.sleep(0.02)
    if flags.json:
        write_json({"running": True, "log": path, **told})
    else:
        say(f"serving {url} at {', '.join(told['addresses'])}; pid {told['pid']}, log {path}")
    return OK


def _is_of(process: Any, told: dict[str, Any]) -> bool:
    return told["pid"] == process.pid or os.name == "nt"  # where Python starts itself once more, under another number


# --- serving ------------------------------------------------------------------------------------------------------


def _serve(base: str, url: str, shown: str, flags: Any) -> int:
    from pinfold.doors.daemon import private_folder
    from pinfold.journal.lock import FileLock

    private_folder()
    lock = FileLock(f"{base}.lock")
    if not lock.acquire(GLANCE_S) or ask(base, "status") is not None:  # where there is no flock, or its file was cleaned away, one still answers
        raise _already(base, shown)
    try:
        return _Server(base, url, flags).run()
    except ModuleNotFoundError as error:
        if not flags.http:
            raise
        raise ConfigurationError(
            f"HTTP needs the package {(error.name or 'mcp').partition('.')[0]!r}, which is not installed",
            code="extra_missing",
            hint="pip install 'pinfold[mcp]'",
        ) from error
    finally:
        lock.close()


class _Server:
    """One server, from its sockets to its end."""

    def __init__(self, base: str, url: str, flags: Any) -> None:
        from pinfold.doors.daemon import Daemon

        self._base, self._flags = base, flags
        self._began = time.time()
        self._daemon = Daemon(url, os.environ)
        self._daemon.ask = self._answer
        self._listeners: list[socket.socket] = []
        self._paths: list[str] = []
        self._addresses: list[str] = []
        self._ready = False
        self._stop: Any = None
        self._http: Any = None

    def run(self) -> int:
        import asyncio

        try:
            self._bind()
            asyncio.run(self._run())
        finally:
            self._let_go()
        return self._end()

    def _bind(self) -> None:
        import socket

        from pinfold.doors.daemon import bind_local
        from pinfold.doors.http import Binding, bind

        if self._flags.http:
            self._http = Binding(self._flags)
        for ending in ENDINGS:  # the lock is ours: what was left there is nobody's
            if os.path.exists(self._base + ending):
                os.unlink(self._base + ending)
        if hasattr(socket, "AF_UNIX"):
            self._paths.append(f"{self._base}.sock")
            self._listeners.append(bind_local(f"{self._base}.sock"))
            self._addresses.append(f"{self._base}.sock")
        elif self._flags.tcp is None:
            self._flags.tcp = 0
        if self._flags.tcp is not None:
            listener = bind(self._flags.tcp_host, self._flags.tcp)
            self._listeners.append(listener)
            self._note_tcp(*listener.getsockname()[:2])

    def _note_tcp(self, host: str, port: int) -> None:
        """Write down where to connect, and what to show there, for this user alone."""
        import secrets

        self._daemon.token = secrets.token_urlsafe(32)
        path = f"{self._base}.tcp"
        with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(f"{host} {port} {self._daemon.token}\n")
        os.replace(f"{path}.new", path)
        self._paths.append(path)
        self._addresses.append(f"{host}:{port}")

    async def _run(self) -> None:
        import asyncio

        from pinfold.doors.http import stop_on_signals

        self._stop = stop = asyncio.Event()
        stop_on_signals(stop)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._daemon.listen(listener)) for listener in self._listeners]
        tasks += [loop.create_task(self._daemon.keep_house()), loop.create_task(self._until_lost())]
        http = loop.create_task(self._serve_http(stop)) if self._http is not None else None
        if http is None:
            self._say_started()
        waiting = [loop.create_task(stop.wait()), *tasks, *([http] if http is not None else [])]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        self._let_go()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(self._daemon.drain(), *([http] if http is not None else []), *tasks, return_exceptions=True)
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem

    async def _until_lost(self) -> None:
        """Return once nobody can find this server any more: its folder went at logout, or was tidied away."""
        import asyncio

        while self._http is not None or any(map(os.path.exists, self._paths)):
            await asyncio.sleep(LOOK_S)
        say("pinfold serve: the socket is gone, so nobody finds this server; it ends")

    async def _serve_http(self, stop: Any) -> None:
        from pinfold.doors.context import default_actor
        from pinfold.doors.http import HttpDoor, run_http
        from pinfold.memory import Memory

        flags = self._flags

        def default_session() -> str:
            from pinfold.doors.context import default_session

            return str(flags.session) if flags.session else default_session()

        def started(address: str) -> None:
            self._addresses.append(address)
            self._say_started()

        memory = Memory(self._daemon.url, actor=flags.actor or default_actor())
        try:
            door = HttpDoor(memory, default_session=default_session, toolset=flags.tools, structured=flags.structured == "on")
            door.metrics.daemon = self._daemon
            await run_http(door, flags, self._http, stop, started)
        finally:
            memory.close()

    def _say_started(self) -> None:
        self._ready = True
        if self._flags.json:
            write_json(self._answer("status"))
            sys.stdout.flush()
        else:
            say(f"pinfold serve: {self._daemon.shown} at {', '.join(self._addresses)}; pid {os.getpid()}, Ctrl-C ends it")

    def _answer(self, question: str) -> dict[str, Any]:
        from pinfold import __version__

        daemon = self._daemon
        if question == "stop":
            self._stop.set()
        return {
            "pid": os.getpid(),
            "pinfold": __version__,
            "protocol": client.PROTOCOL,
            "store": daemon.shown,
            "addresses": self._addresses,
            "ready": self._ready,
            "uptime_s": round(time.time() - self._began, 1),
            "sessions": daemon.sessions(),
            "under_way": daemon.under_way,
            "counts": dict(daemon.counts),
            "tally": dict(daemon.tally()),
            "busy_s": round(daemon.busy_s, 3),
        }

    def _let_go(self) -> None:
        """Let nobody find this server any more: who comes now does without."""
        for path in self._paths:
            try:
                os.unlink(path)
            except OSError:
                pass
        self._paths = []
        for listener in self._listeners:
            listener.close()

    def _end(self) -> int:
        """Release the store within CLOSE_S; a command that hangs on somebody else's lock does not keep the process."""
        import threading

        closing = threading.Thread(target=self._close, name="pinfold-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        others = [thread for thread in threading.enumerate() if thread not in (threading.current_thread(), closing) and not thread.daemon]
        for thread in others:
            thread.join(0.2)
        if closing.is_alive() or any(thread.is_alive() for thread in others):
            sys.stderr.flush()
            os._exit(OK)
        return OK

    def _close(self) -> None:
        try:
            self._daemon.close()
        except PinfoldError as error:  # nothing acknowledged is at stake: that was in the store before it was answered
            say(f"pinfold serve: {error}")
