"""The command line: `pinfold VERB …`, made from the operations table. What starts at every call is imported sparingly.

Data on stdout, words on stderr, both UTF-8 whatever the console says. Exit status: 0 fine, 1 a miss or an empty answer
under --fail-on-miss, 2 usage, 3 refused, 4 unavailable, 5 broken, 130 interrupted; `once` replays its command's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pinfold import caller
from pinfold.doors.client import Carried, utf8
from pinfold.errors import Broken, ConfigurationError, PinfoldError, Refused, Unavailable

if TYPE_CHECKING:
    from pinfold.doors.arguments import Common
    from pinfold.operations.table import Operation

OK, MISS, USAGE, REFUSED, UNAVAILABLE, BROKEN, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

OWN_VERBS = {
    "once": ("pinfold.doors.once", "run a command once, everywhere; its output is shared"),
    "where": ("pinfold.doors.verbs", "the store, its file, and this folder's session"),
    "doctor": ("pinfold.doors.doctor", "check the store; says what is damaged and where"),
    "stat": ("pinfold.doors.verbs", "sizes of the store and its sessions"),
    "copy": ("pinfold.doors.fleet", "copy sessions into another store, verified"),
    "migrate": ("pinfold.doors.fleet", "make or bring up to date the tables of a PostgreSQL store"),
    "compact": ("pinfold.doors.verbs", "snapshot every session and drop old history"),
    "bench": ("pinfold.doors.recall", "measure: recall on question sets; silo, graph, mcp, tokens"),
    "reembed": ("pinfold.doors.recall", "make the vectors that search lacks"),
    "mcp": ("pinfold.doors.verbs", "serve MCP clients over stdio or HTTP"),
    "install": ("pinfold.doors.install", "register pinfold with an MCP client; without one: which are here"),
    "uninstall": ("pinfold.doors.install", "take it out of a client's settings"),
    "hook": ("pinfold.doors.hook", "answer an event of Claude Code's hooks"),
    "demo": ("pinfold.doors.verbs", "see eight workers share one store"),
    "guide": ("pinfold.doors.verbs", "what an agent needs to know, to paste into its prompt"),
    "examples": ("pinfold.doors.examples", "four worked examples, a map, lines to add"),
    "serve": ("pinfold.doors.serve", "keep the store warm; HTTP with --http"),
    "top": ("pinfold.doors.top", "who is at work: sessions, promises, rates"),
    "completion": ("pinfold.doors.completion", "tab completion for bash, zsh or fish"),
    "version": ("pinfold.doors.verbs", "the version"),
}
"""Verbs that are no operation of the table: module with `run_VERB(words)`, and the line of the help text."""


def main(argv: Sequence[str] | None = None, carried: Carried | None = None) -> int:
    """Run one command. Return its exit status; as a process of its own, end it.

    carried: what it brings back from the server it was sent to.
    """
    if argv is not None:
        return _main([utf8(word) for word in argv], carried)
    import gc

    gc.disable()  # what one command allocates is not worth collecting
    status = _main([utf8(word) for word in sys.argv[1:]], carried)
    if not gc.isenabled() and _last_words():
        os._exit(status)  # taking the modules apart again costs a tenth of the command
    return status


def _last_words() -> bool:
    """Return whether everything that was printed is out."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _main(words: list[str], carried: Carried | None) -> int:
    as_json, is_once = _wants_json(words), _verb_first(words)[:1] == ["once"]
    try:
        return _flushed(_run(words, carried))
    except PinfoldError as error:
        status = report(error, as_json)
        return 120 + status if is_once else status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:  # the outermost loop: a bug is told, with where it is
        import traceback

        say(traceback.format_exc())
        status = report(PinfoldError(f"{type(error).__name__}: {error}", code="internal", hint="this is a bug in pinfold"), as_json)
        return 120 if is_once else status


def _wants_json(words: list[str]) -> bool:
    return "--json" in words[: words.index("--") if "--" in words else None]


def run_for(someone: caller.Caller, words: list[str], request_id: str) -> int:
    """Run a command, its words in UTF-8, for somebody who sent it here. Return its exit status. Raises Elsewhere."""
    with caller.working_for(someone):
        return _main(words, Carried(request_id))


def _run(words: list[str], carried: Carried | None) -> int:
    rest = _verb_first(words)
    verb = rest[0] if rest else ""
    is_help = verb in ("", "help") or not {"-h", "--help"}.isdisjoint(words)
    if caller.current() is None:
        load_lean()
    elif is_help or verb in OWN_VERBS or verb == "--version":
        raise caller.Elsewhere  # as wide as its terminal, with its files, its children and its signals
    if verb in ("", "-h", "--help", "help"):
        from pinfold.doors.help import run_help

        return run_help(rest[1:])
    if verb == "--version":
        verb = "version"
    if carried is not None and carried.input is not None:
        import io

        sys.stdin = io.TextIOWrapper(io.BytesIO(carried.input))  # the server that asked for it did not take it
    if verb in OWN_VERBS:
        import gc
        from importlib import import_module

        gc.enable()
        run_own: Any = getattr(import_module(OWN_VERBS[verb][0]), f"run_{verb}")
        return int(run_own(rest[1:]))
    if carried is not None and carried.skew:
        raise _skew(carried.skew)
    return _run_row(*_row_of(rest), carried)


def _skew(other: str) -> ConfigurationError:
    from pinfold import __version__

    return ConfigurationError(
        f"the server of this store is pinfold {other}, this command is {__version__}",
        code="version_skew",
        hint="pinfold serve --stop, and start it again; or PINFOLD_SERVE=off for this command",
    )


def _verb_first(words: list[str]) -> list[str]:
    """Return words with flags that stand before the verb moved behind it: `pinfold --json peek x` is `peek --json x`."""
    lead: list[str] = []
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] not in ("-", "-h", "--help", "--version"):
        count = 2 if words[place] in ("--session", "--store", "--actor") else 1
        lead += words[place : place + count]
        place += count
    return words[place : place + 1] + lead + words[place + 1 :]


# --- rows of the table --------------------------------------------------------------------------------------------


def load_lean() -> None:
    """Import msgspec and argparse without what they prefer or load but do not need here: a third of a command's start.

    typing_extensions is "not there" for msgspec (typing has all of it since 3.11; it would load inspect); gettext gives
    argparse its own English words (it would load locale and look for catalogues); platform answers the one question that
    uuid asks. All are real again afterwards.
    """
    absent: dict[str, Any] = {}
    if "msgspec" not in sys.modules:
        absent["typing_extensions"] = None
    if "argparse" not in sys.modules:
        absent["gettext"] = plain = ModuleType("gettext")
        vars(plain).update(gettext=lambda message: message, ngettext=lambda one, many, count: one if count == 1 else many)
    if "uuid" not in sys.modules and sys.platform == "linux":
        absent["platform"] = linux = ModuleType("platform")
        vars(linux)["system"] = lambda: "Linux"
    absent = {name: stand_in for name, stand_in in absent.items() if name not in sys.modules}
    sys.modules.update(absent)
    try:
        import argparse  # noqa: F401

        import msgspec  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


def _row_of(rest: list[str]) -> tuple[str, Operation, list[str]]:
    """Return (verb, row, words after the verb). Raises UsageError with the nearest verbs."""
    from pinfold.operations import row_of_verb

    verb = rest[0]
    pair = _verb_first(rest[1:])
    found = row_of_verb(verb, pair[0] if pair else "")
    if found is not None:
        return *found, rest[1:] if found[0] == verb else pair[1:]
    from pinfold.doors.help import unknown_verb

    raise unknown_verb(verb, pair[0] if pair else "")


def _run_row(verb: str, row: Operation, words: list[str], carried: Carried | None) -> int:
    from pinfold.doors import arguments as reading

    parser = reading.parser_of(verb, row)
    if "-h" in words or "--help" in words:
        flags = parser.read(words)[0]
        if flags.help:
            from pinfold.doors.help import help_of

            write(help_of(verb, row, parser))
            return OK
    common, arguments = reading.read_row(verb, row, parser, words)
    unnamed = common.session is None and verb in ("session open", "session load")
    if unnamed and verb == "session open":
        common.session = f"s_{carried.request_id[-8:] if carried is not None else os.urandom(4).hex()}"
    if verb == "session resume":
        arguments["must_exist"] = True
    if carried is not None:
        _once_only(row, arguments, carried)
    from pinfold.operations import run

    with open_memory(common) as memory, _Bar(verb) as bar:
        call = call_of(memory, common, bar)
        call.tell = lambda result: _tell(row, result, common, arguments)
        result = run(row, call, arguments)
    if unnamed:
        result["export"] = f"export PINFOLD_SESSION={result['session_id']}"
    show(row, result, common, _name_of(arguments))
    if unnamed and not common.json:
        say(result["export"])
    return MISS if common.fail_on_miss and row.is_empty is not None and row.is_empty(result) else OK


def _once_only(row: Operation, arguments: dict[str, Any], carried: Carried) -> None:
    """See that what may have been done already is not done twice: by its request id, or where once more changes nothing."""
    from pinfold.operations.table import WAITS

    someone = caller.current()
    if someone is not None and any(param.name in WAITS and arguments.get(param.name, param.default) for param in row.params):
        raise caller.Elsewhere  # who waits can be interrupted, and holds nobody's place
    if (someone is None and not carried.lost) or not row.changes(arguments):
        return
    if any(param.name == "request_id" for param in row.params):
        arguments.setdefault("request_id", carried.request_id)
    elif someone is None and not row.idempotent:
        raise Unavailable(
            f"the server was gone before it answered: {row.name} may have been done",
            code="answer_lost",
            hint="look before you do it again",
            maybe_applied=True,
        )


def _tell(row: Operation, result: Any, common: Common, arguments: dict[str, Any]) -> None:
    """Show a result of a command that goes on, to whoever reads along."""
    show(row, result, common, _name_of(arguments))
    if sys.stdout is not None:
        sys.stdout.flush()


def open_memory(common: Common) -> Any:
    """Return the store a command works on. It starts no threads: one command drives everything itself."""
    from pinfold.doors.context import default_actor

    actor = common.actor or default_actor()
    someone = caller.current()
    if someone is not None:
        return someone.memory(common.store, actor)
    from pinfold.memory import Memory

    return Memory(common.store, actor=actor, background=False)


def call_of(memory: Any, common: Common, progress: Any = None) -> Any:
    from pinfold.doors.context import default_session
    from pinfold.operations.table import Call

    return Call(memory, common.session, default_session=default_session, as_shown=None if common.json else _as_it_is, progress=progress)


class _Bar:
    """How far a command is, shown from the first time that it says so."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown: Any = None
        self._told: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._shown is None:
            from pinfold.doors.progress import progress

            self._shown = progress(self._what)
            self._told = self._shown.__enter__()
        self._told(done, total)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.__exit__(None, None, None)


def _as_it_is(value: Any) -> Any:
    return value


def _name_of(arguments: dict[str, Any]) -> str:
    name = arguments.get("key") or arguments.get("promise_id")
    return str(name) if name else f"{arguments.get('tool', '')}(…)"


# --- printing -----------------------------------------------------------------------------------------------------


def show(row: Operation, result: Any, common: Common, name: str) -> None:
    """Print a result: one JSON document; or the value itself, byte for byte; or words."""
    if common.json:
        write_json(result)
        return
    status = result.get("status", result.get("source"))
    for field in ("value", "payload"):
        if field in result and status in (None, "resolved", "short_term", "long_term"):
            if result.get("stale"):
                say(f"stale: {name} because {', '.join(result['because'])}")
            write_value(result[field])
            if "next_offset" in result:
                say(f"more: --offset {result['next_offset']} of {result['size_bytes']} bytes")
            return
    text = row.text(result) if row.text is not None else ""
    if text:
        write(_for_people(row, text) if _is_terminal() else text)
        return
    if status == "pending":
        left_s = result.get("lease_left_s")
        say(f"pending: {name} is being worked on" + ("" if left_s is None else f", its lease ends in {left_s:.{0 if left_s >= 10 else 3}f}s unless renewed"))
    elif status == "rejected":
        say(f"rejected: {name}: {result.get('reason')}")
    elif result.get("claimed"):
        say(f"miss: {name} is yours to do: token={result['token']}, {result['lease_left_s']:.0f}s; `pinfold resolve` it, or `set` it")
    elif status in ("unknown", "miss") or result.get("hit") is False:
        say(f"{status or 'miss'}: {name}")
    elif row.is_empty is not None and row.is_empty(result):
        say("nothing")


def _is_terminal() -> bool:
    out = caller.stdout()
    return out is not None and bool(out.isatty())


def _for_people(row: Operation, text: str) -> str:
    from pinfold.doors.screen import for_people

    return for_people(row.name, text)


def write_value(value: Any) -> None:
    """Print a value byte for byte; a terminal gets the line end it needs."""
    from pinfold.operations.table import raw_of

    raw = raw_of(value)[0]
    write_bytes(raw)
    if not raw.endswith(b"\n") and _is_terminal():
        write_bytes(b"\n")


def write_json(document: Any) -> None:
    from pinfold.operations.table import raw_of

    write_bytes(raw_of(document)[0] + b"\n")


def write(text: str) -> None:
    """Print data: text with the line end it needs."""
    write_bytes(text.encode("utf-8", "backslashreplace") + (b"" if text.endswith("\n") else b"\n"))


def write_bytes(raw: bytes) -> None:
    """Print bytes. Raises BrokenPipeError where the reader left, Unavailable `output_failed`."""
    try:
        _write_to(caller.stdout(), raw)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _output_failed(error) from error


def _output_failed(error: OSError) -> Unavailable:
    return Unavailable(f"stdout cannot be written: {error.strerror}", code="output_failed", hint="the command itself was done")


def say(text: str) -> None:
    """Print words on stderr: never data, never worth failing for."""
    try:
        err = caller.stderr()
        _write_to(err, (text if text.endswith("\n") else f"{text}\n").encode("utf-8", "backslashreplace"))
        if err is not None:
            err.flush()
    except OSError:
        pass


def _write_to(stream: Any, raw: bytes) -> None:
    if stream is None:
        return
    if hasattr(stream, "buffer"):
        stream.flush()
        stream.buffer.write(raw)
    else:
        stream.write(raw.decode("utf-8", "replace"))


def report(error: PinfoldError, as_json: bool) -> int:
    """Print an error: as the JSON document on stdout, or as words. Return the exit status."""
    if error.code == "output_failed":
        _reader_left()
    elif as_json:
        write_json({"error": error.shape()})
        return _flushed(status_of(error))
    problems = error.shape().get("errors", ())
    for row in problems:
        say(f"{row['line']}:{row['column']} {row['code']} {row['message']}" + (f" | {row['hint']}" if row["hint"] else ""))
    if problems:
        say(f"pinfold: nothing was written: {len(problems)} problem{'s' if len(problems) > 1 else ''}")
    else:
        say(f"pinfold: {error.code}: {error.message}" + (f"\n  {error.hint}" if error.hint else ""))
    return status_of(error)


def status_of(error: PinfoldError) -> int:
    """Return the exit status of an error."""
    if isinstance(error, ConfigurationError) or error.code == "bad_arguments":
        return USAGE
    if isinstance(error, Refused):
        return REFUSED
    if isinstance(error, Unavailable):
        return UNAVAILABLE
    return BROKEN if isinstance(error, Broken) or error.code == "internal" else REFUSED


def _flushed(status: int) -> int:
    """Return status once stdout is out. A reader that left (`| head`) is no error; a full disk is."""
    try:
        out = caller.stdout()
        if out is not None:
            out.flush()
    except BrokenPipeError:
        _reader_left()
    except OSError as error:
        return report(_output_failed(error), False)
    return status


def not_printed(error: OSError, status: int, words: list[str]) -> int:
    """Say that an answer could not be printed. Return the exit status: its own where the reader left, who may do so."""
    if isinstance(error, BrokenPipeError):
        _reader_left()
        return status
    return report(_output_failed(error), _wants_json(words))


def _reader_left() -> int:
    """Let nothing more be said on a stdout that is gone, not even by the interpreter at its end."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass
    return OK
