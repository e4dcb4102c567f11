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
    "compact": ("pinfold.doors.verbs", "snapshot every session and drop old history"),
    "bench": ("pinfold.doors.recall", "measure recall on question sets"),
    "reembed": ("pinfold.doors.recall", "make the vectors that search lacks"),
    "mcp": ("pinfold.doors.verbs", "serve MCP clients over stdio or HTTP"),
    "demo": ("pinfold.doors.verbs", "see eight workers share one store"),
    "guide": ("pinfold.doors.verbs", "what an agent needs to know, to paste into its prompt"),
    "examples": ("pinfold.doors.examples", "four worked examples, a map, lines to add"),
    "serve": ("pinfold.doors.verbs", "says that no server is needed"),
    "completion": ("pinfold.doors.completion", "tab completion for bash, zsh or fish"),
    "version": ("pinfold.doors.verbs", "the version"),
}
"""Verbs that are no operation of the table: module with `run_VERB(words)`, and the line of the help text."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit status; as a process of its own, end it."""
    if argv is not None:
        return _main(argv)
    import gc

    gc.disable()  # what one command allocates is not worth collecting
    status = _main(sys.argv[1:])
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


def _main(argv: Sequence[str]) -> int:
    words = [_utf8(word) for word in argv]
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    is_once = _verb_first(words)[:1] == ["once"]
    try:
        return _flushed(_run(words))
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


def _run(words: list[str]) -> int:
    rest = _verb_first(words)
    verb = rest[0] if rest else ""
    if verb in ("", "-h", "--help", "help"):
        load_lean()
        from pinfold.doors.help import run_help

        return run_help(rest[1:])
    if verb == "--version":
        verb = "version"
    load_lean()
    if verb in OWN_VERBS:
        import gc
        from importlib import import_module

        gc.enable()
        run_own: Any = getattr(import_module(OWN_VERBS[verb][0]), f"run_{verb}")
        return int(run_own(rest[1:]))
    return _run_row(*_row_of(rest))


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


def _run_row(verb: str, row: Operation, words: list[str]) -> int:
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
        common.session = f"s_{os.urandom(4).hex()}"
    if verb == "session resume":
        arguments["must_exist"] = True
    from pinfold.operations import run

    with open_memory(common) as memory:
        result = run(row, call_of(memory, common), arguments)
    if unnamed:
        result["export"] = f"export PINFOLD_SESSION={result['session_id']}"
    show(row, result, common, _name_of(arguments))
    if unnamed and not common.json:
        say(result["export"])
    return MISS if common.fail_on_miss and row.is_empty is not None and row.is_empty(result) else OK


def open_memory(common: Common) -> Any:
    """Return the store a command works on. It starts no threads: one command drives everything itself."""
    from pinfold.doors.context import default_actor
    from pinfold.memory import Memory

    return Memory(common.store, actor=common.actor or default_actor(), background=False)


def call_of(memory: Any, common: Common) -> Any:
    from pinfold.doors.context import default_session
    from pinfold.operations.table import Call

    return Call(memory, common.session, default_session=default_session, as_shown=None if common.json else _as_it_is)


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
    for field in ("value", "payload"):
        if field in result and not (field == "payload" and result.get("status") != "resolved"):
            if result.get("stale"):
                say(f"stale: {name} because {', '.join(result['because'])}")
            write_value(result[field])
            if "next_offset" in result:
                say(f"more: --offset {result['next_offset']} of {result['size_bytes']} bytes")
            return
    text = row.text(result) if row.text is not None else ""
    if text:
        write(text if sys.stdout is None or not sys.stdout.isatty() else _for_people(row, text))
        return
    status = result.get("status")
    if status == "pending":
        left_s = result.get("lease_left_s")
        say(f"pending: {name} is being worked on" + ("" if left_s is None else f", its lease ends in {left_s:.{0 if left_s >= 10 else 3}f}s unless renewed"))
    elif status == "rejected":
        say(f"rejected: {name}: {result.get('reason')}")
    elif status == "unknown" or result.get("hit") is False:
        say(f"{'unknown' if status else 'miss'}: {name}")
    elif row.is_empty is not None and row.is_empty(result):
        say("nothing")


def _for_people(row: Operation, text: str) -> str:
    from pinfold.doors.screen import for_people

    return for_people(row.name, text)


def write_value(value: Any) -> None:
    """Print a value byte for byte; a terminal gets the line end it needs."""
    from pinfold.operations.table import raw_of

    raw = raw_of(value)[0]
    write_bytes(raw)
    if not raw.endswith(b"\n") and sys.stdout is not None and sys.stdout.isatty():
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
        _write_to(sys.stdout, raw)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _output_failed(error) from error


def _output_failed(error: OSError) -> Unavailable:
    return Unavailable(f"stdout cannot be written: {error.strerror}", code="output_failed", hint="the command itself was done")


def say(text: str) -> None:
    """Print words on stderr: never data, never worth failing for."""
    try:
        _write_to(sys.stderr, (text if text.endswith("\n") else f"{text}\n").encode("utf-8", "backslashreplace"))
        if sys.stderr is not None:
            sys.stderr.flush()
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
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _reader_left()
    except OSError as error:
        return report(_output_failed(error), False)
    return status


def _reader_left() -> int:
    """Let nothing more be said on a stdout that is gone, not even by the interpreter at its end."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass
    return OK


def _utf8(word: str) -> str:
    """Return a word of the command line as UTF-8 with surrogate escapes, whatever the locale decoded it with."""
    if word.isascii() or os.name == "nt":
        return word
    try:
        return os.fsencode(word).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word
