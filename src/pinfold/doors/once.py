"""`pinfold once KEY -- COMMAND…`: the command runs once, wherever it is asked for; everyone gets its output.

Its stdout is the value; its status is this command's status. A failure is shared with those who wait and not kept.
A signal goes to the command first; when it is gone the claim is given back, so that one of those waiting takes over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import IO, Any

from pinfold.doors.arguments import NO_KEY, Common, Parser, UsageError, _json_text, duration
from pinfold.doors.cli import open_memory, say, write, write_bytes, write_json
from pinfold.errors import PinfoldError, WorkFailed

GRACE_S = 5.0
"""How long a command may take to end after a signal before it is killed."""
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class CommandFailed(Exception):
    """The command ended with a status other than 0: "exit 3: its last line on stderr"."""

    def __init__(self, status: int, last_line: str) -> None:
        super().__init__(f"exit {status}" + (f": {last_line}" if last_line else ""))
        self.status = status


class Interrupted(BaseException):
    """A signal arrived: not a failure of the work, so the claim is given back."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run_once(words: Sequence[str]) -> int:
    parser = Parser("once", "KEY [flags] -- COMMAND…", "Run a command once, everywhere: whoever asks for KEY gets its output and its status.")
    group = parser.add_argument_group("flags of this command")
    group.add_argument("--ttl", type=duration, metavar="90s|60m|2h", help="forget the output after")
    group.add_argument("--lease", type=duration, default=30.0, metavar="30s", help="how long a dead owner blocks the others; renewed while the command runs")
    group.add_argument("--timeout", type=duration, metavar="10m", help="wait no longer than this for somebody else's run")
    group.add_argument(
        "--input",
        action="append",
        metavar="TEXT",
        help="what the output is made from: file:PATH, tree:FOLDER, slot:KEY, row:ID, "
        "version:NAME=VALUE, url:… etag=…; when it changes the command runs again; may be repeated",
    )
    group.add_argument("--any-age", action="store_true", help="take what is there, stale or not")
    group.add_argument("--tool", metavar="TEXT", help="instead of KEY: the name of a call")
    group.add_argument("--arguments", type=_json_text, metavar="JSON", help="and its arguments, in any order")
    flags, bare, before = parser.read(words)
    if flags.help:
        write(f"{parser.format_help()}\nA failing command is not kept. pinfold's own failures: 120 to 125.\n")
        return 0
    keys, command = bare[:before], bare[before:]
    if len(keys) > 1 and not command:
        raise UsageError(f"the command {' '.join(keys[1:])!r} must stand after `--`", hint="pinfold once KEY -- COMMAND…")
    if len(keys) != (0 if flags.tool is not None else 1):
        raise UsageError("name the work by one KEY, or by --tool and --arguments", hint="pinfold once KEY -- COMMAND…")
    if keys == [""]:
        raise UsageError(NO_KEY, hint="pinfold once KEY -- COMMAND…")
    if not command:
        raise UsageError("the command is missing", hint="put it after `--`: pinfold once KEY -- COMMAND…")
    from pinfold.operations.table import key_of

    key = key_of(keys[0] if keys else None, flags.tool, flags.arguments)
    return _once(Common(flags), key, [os.fsencode(word.encode("utf-8", "surrogateescape")) if os.name != "nt" else word for word in command], flags)


def _once(common: Common, key: str, command: list[Any], flags: Any) -> int:
    from pinfold.doors.context import default_session
    from pinfold.operations.table import looked_through

    work = _Command(command)

    def kept() -> str | bytes:
        return looked_through({"stdout": work.run()})["stdout"]  # type: ignore[no-any-return]

    before = {number: signal.signal(number, work.on_signal) for number in _SIGNALS} if threading.current_thread() is threading.main_thread() else {}
    try:
        with open_memory(common) as memory:
            session = memory.session(common.session or default_session())
            hit = session.once_hit(key, kept, ttl_s=flags.ttl, lease_s=flags.lease, timeout_s=flags.timeout, inputs=flags.input, fresh=not flags.any_age)
    except CommandFailed as failed:
        return _failed(common, failed.status, str(failed), work.stdout)
    except WorkFailed as shared:
        status, words = _shared_failure(shared)
        say(f"pinfold: the run that was shared failed: {words}")
        return _failed(common, status, words, b"")
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except PinfoldError:
        if work.stdout and not common.json:
            write_bytes(work.stdout)  # the work was done; that it could not be kept is told apart
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if common.json:
        from pinfold.operations.table import shown

        write_json({"key": key, "value": shown(hit.value), "shared": hit.shared, "status": 0})
    else:
        from pinfold.operations.table import raw_of

        write_bytes(raw_of(hit.value)[0])
    return 0


def _failed(common: Common, status: int, words: str, stdout: bytes) -> int:
    if common.json:
        write_json({"error": {"code": "command_failed", "message": words, "hint": "not kept: the next call tries again", "status": status}})
    else:
        write_bytes(stdout)
    return status


def _shared_failure(failed: WorkFailed) -> tuple[int, str]:
    """Return (status, words) of a failure in the process that did the work; 1 where that was no command."""
    reason = str(failed.fields.get("reason", ""))
    told = reason.removeprefix("CommandFailed: ")
    status = told.removeprefix("exit ").partition(":")[0]
    if told is not reason and told.startswith("exit ") and status.isdigit():
        return int(status), told
    return 1, reason


class _Command:
    """One run of the command: stdin passed through, stderr streamed, stdout kept."""

    def __init__(self, command: list[Any]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._last_line = b""
        self.stdout = b""

    def run(self) -> str | bytes:
        """Return the command's stdout. Raises CommandFailed; Interrupted once the command is gone."""
        try:
            self._process = process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            status = 127 if isinstance(error, FileNotFoundError) else 126
            name = os.fsdecode(self._command[0])
            say(f"pinfold: {name}: {error.strerror}")
            raise CommandFailed(status, f"{name}: {error.strerror}") from None
        assert process.stdout is not None and process.stderr is not None
        streaming = threading.Thread(target=self._stream, args=(process.stderr,), daemon=True)
        try:
            streaming.start()
            with process.stdout:
                self.stdout = process.stdout.read()
            status = process.wait()
        except BaseException:
            self._end(process)
            raise
        finally:
            self._process = None
        streaming.join(GRACE_S)  # a child left in the background may hold stderr open
        if status:
            status = 128 - status if status < 0 else status
            raise CommandFailed(status, self._last_line.decode("utf-8", "replace").strip())
        try:
            return self.stdout.decode()
        except UnicodeDecodeError:
            return self.stdout

    def _stream(self, stderr: IO[bytes]) -> None:
        """Pass stderr on as it comes, and remember its last line that says anything."""
        line = b""
        out = getattr(sys.stderr, "buffer", None)
        with stderr:
            while chunk := os.read(stderr.fileno(), 65536):
                *lines, line = (line + chunk).split(b"\n")
                self._last_line = next((text[:1000] for text in reversed([*lines, line]) if text.strip()), self._last_line)
                line = line[-1000:]
                try:
                    if out is not None:
                        out.write(chunk)
                        out.flush()
                except (OSError, ValueError):
                    out = None  # nobody listens: the command must not block on that

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on to the command and unwind; where a terminal sent it, the command has it already."""
        for each in _SIGNALS:
            signal.signal(each, self._on_second)
        if self._process is not None and not (number == signal.SIGINT and _in_foreground()):
            self._signal(number)
        raise Interrupted(number)

    def _on_second(self, number: int, frame: FrameType | None) -> None:
        if self._process is not None:
            self._process.kill()

    def _signal(self, number: int) -> None:
        try:
            if self._process is not None:
                self._process.send_signal(number)
        except (OSError, ValueError):
            pass

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
