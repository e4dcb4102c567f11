"""The command line's arguments, made from the rows of the operations table.

argparse knows the flags alone; positionals are dealt out here, because a flag may stand anywhere between them and a
value may look like a flag after `--`. Words arrive as UTF-8 with surrogate escapes, so a value keeps bytes that are no
UTF-8.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pinfold import caller
from pinfold.errors import ConfigurationError, Refused
from pinfold.limits import VALUE_BYTES

if TYPE_CHECKING:
    from pinfold.operations.table import Operation, Param

WITH_VALUE = ("--session", "--store", "--actor")
PLAIN = ("--json", "--fail-on-miss")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


SUCCESSORS = {
    ("query context", "--active-only"): "what is past its time is never shown; `read list --active-only` leaves out settled rows",
    ("housekeep", "--include-tags"): "no kind is exempt here, so there is none to include; --tag KIND narrows",
    ("housekeep prune", "--include-tags"): "no kind is exempt here, so there is none to include; --tag KIND narrows",
    ("search", "--by"): "who said it: --where by=NAME; who wrote the row: --written-by NAME",
    ("recall", "--by"): "who said it: --where by=NAME; who wrote the row: --written-by NAME",
}
"""What to do instead of flags that somebody may look for and that are not here."""


NO_KEY = "KEY is empty; is a variable of the shell not set?"
"""Work under an empty name would be shared by everybody whose script has that mistake."""


class UsageError(ConfigurationError):
    """The command line itself is wrong: exit status 2."""

    default_code = "usage"


class Common:
    """The flags of every verb."""

    __slots__ = ("actor", "fail_on_miss", "json", "session", "store")

    def __init__(self, flags: argparse.Namespace) -> None:
        self.session: str | None = flags.session
        self.store: str | None = flags.store
        self.actor: str | None = flags.actor
        self.json: bool = flags.json
        self.fail_on_miss: bool = flags.fail_on_miss


class Parser(argparse.ArgumentParser):
    """One verb's parser: the flags of every verb, and what `add_argument` adds. Raises UsageError."""

    def __init__(self, verb: str, usage: str, description: str) -> None:
        super().__init__(prog=f"pinfold {verb}", usage=f"pinfold {verb} {usage}".rstrip(), description=description, add_help=False, allow_abbrev=False)
        self.verb = verb
        self._common = common = self.add_argument_group("flags of every command")
        common.add_argument("--session", metavar="NAME", help="the session; by default this folder's, see `pinfold where`")
        common.add_argument("--store", metavar="URL", help="the store; by default $PINFOLD_STORE, else the user's data folder")
        common.add_argument("--actor", "--agent", metavar="NAME", help="who writes, for the log; by default $PINFOLD_ACTOR")
        common.add_argument("--json", action="store_true", help="print one JSON document")
        common.add_argument("--fail-on-miss", action="store_true", help="exit with 1 at a miss or an empty answer")
        common.add_argument("-h", "--help", action="store_true", help="print this text")

    def format_help(self) -> str:
        self._action_groups.sort(key=lambda group: group is self._common)  # what is special to the verb comes first
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "), hint=f"pinfold {self.verb} --help")

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str], int]:
        """Return (flags, positionals, how many of them stood before `--`). Raises UsageError at a flag it does not know."""
        end = words.index("--") if "--" in words else len(words)
        flags, bare = self.parse_known_args(list(words[:end]))
        for word in bare:
            if word.startswith("-") and word != "-" and " " not in word and not _is_number(word):
                successor = SUCCESSORS.get((self.verb, word.partition("=")[0]))
                if successor:
                    raise UsageError(f"{self.verb} has no {word.partition('=')[0]}", hint=successor)
                import difflib

                near = difflib.get_close_matches(word.partition("=")[0], self._option_string_actions, 1, 0.7)
                self.error(f"there is no flag {word}" + (f"; did you mean {near[0]}?" if near else ""))
        return flags, [*bare, *words[end + 1 :]], len(bare)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


# --- rows of the table --------------------------------------------------------------------------------------------


def flag_of(param: Param) -> str:
    """Return the flag of an argument, "" for none."""
    if param.positional or param.cli == "":
        return ""
    return f"--{(param.cli or param.name).replace('_', '-')}"


def takes_id(verb: str, row: Operation) -> bool:
    """Return whether the verb takes the session by place: `session close ID`."""
    return verb.startswith("session ") and not row.store and verb != "session current" and not any(param.positional for param in row.params)


def usage_of(verb: str, row: Operation) -> str:
    """Return the positionals of a verb as its usage line shows them."""
    parts = []
    if takes_id(verb, row):
        parts.append("ID" if verb in ("session resume", "session restore") else "[ID]")
    for param in row.params:
        if param.positional:
            name = param.name.removesuffix("_id").upper()
            name = f"{name.removesuffix('S')}…" if param.kind == "strings" else name
            may_lack = not param.required and not (param.name == "key" and _has_tool(row))
            parts.append(f"[{name}]" if may_lack else name)
    return " ".join(["[flags]", *parts])


def _has_tool(row: Operation) -> bool:
    return any(param.name == "tool" for param in row.params)


_parsers: dict[str, Parser] = {}


def parser_of(verb: str, row: Operation) -> Parser:
    """Return the parser of one verb; the same again, since a server that made it for each command would do little else."""
    known = _parsers.get(verb)
    if known is not None:
        return known
    parser = Parser(verb, usage_of(verb, row), row.summary or row.doc)
    group = parser.add_argument_group("flags of this command")
    for param in row.params:
        if (param.kind == "any" and param.positional) or param.file:
            group.add_argument("--file", metavar="F", help=f"read {param.name} from a file; `-` in its place reads standard input")
            group.add_argument("--stdin", action="store_true", help=f"read {param.name} from standard input")
            if param.kind == "any":
                group.add_argument("--json-value", action="store_true", help=f"{param.name} is JSON, not text")
        if param.also:
            group.add_argument(f"--{param.also}", dest=f"also_{param.name}", action="append", metavar="ID", help=f"{param.name}, by flag")
        flag = flag_of(param)
        if not flag:
            continue
        if param.kind == "bool":
            group.add_argument(flag, dest=param.name, action=argparse.BooleanOptionalAction if param.default is True else "store_true", help=param.doc)
            continue
        if param.repeat:
            group.add_argument(flag, dest=param.name, action="append", metavar="TEXT", help=f"{param.doc}; may be repeated".replace("%", "%%"))
            continue
        # argparse formats help with %, and a default there is for people: the table's own is filled in by `run`.
        group.add_argument(
            flag, dest=param.name, type=_TYPES.get(param.kind, str), metavar=_METAVARS.get(param.kind, "TEXT"), help=param.doc.replace("%", "%%")
        )
    _parsers[verb] = parser
    return parser


def read_row(verb: str, row: Operation, parser: Parser, words: Sequence[str]) -> tuple[Common, dict[str, Any]]:
    """Return (the flags of every verb, the row's arguments). Raises UsageError."""
    flags, bare, before = parser.read(words)
    common = Common(flags)
    if takes_id(verb, row):
        if bare and common.session is not None:
            parser.error("the session was named twice")
        if bare:
            common.session, bare, before = bare[0], bare[1:], before - 1
        elif common.session is None and verb in ("session resume", "session restore"):
            parser.error("name the session")
    arguments: dict[str, Any] = {}
    for param in row.params:
        if flag_of(param):
            given = getattr(flags, param.name)
            if given is None or (given is False and param.default is False):
                from pinfold.operations.table import REQUIRED

                if param.required:
                    parser.error(f"{flag_of(param)} is missing")
                if param.cli_default is REQUIRED:
                    continue
                given = param.cli_default
            arguments[param.name] = given
    if common.actor is not None and row.access == "read" and any(param.name == "actor" for param in row.params):
        arguments.setdefault("actor", common.actor)  # `log --actor ANN` asks for Ann's entries: nothing is written that could be hers
    _deal(row, parser, flags, bare, before, arguments)
    return common, arguments


def _deal(row: Operation, parser: Parser, flags: argparse.Namespace, bare: list[str], before: int, arguments: dict[str, Any]) -> None:
    """Give each positional its word. A value may come from a file or standard input instead."""
    by_tool = "tool" in arguments
    place = 0
    for param in row.params:
        if not param.positional or (param.name == "key" and by_tool):
            continue
        by_flag = getattr(flags, f"also_{param.name}", None)
        if param.kind == "strings":
            arguments[param.name], place = [*(by_flag or []), *bare[place:]], len(bare)
            continue
        if by_flag:
            if len(by_flag) > 1:
                parser.error(f"--{param.also} was given twice")
            arguments[param.name] = by_flag[0]
            continue
        if (param.kind == "any" or param.file) and (flags.file is not None or flags.stdin):
            raw = _from_stdin() if flags.stdin else _from_file(flags.file, parser)
            arguments[param.name] = _content(raw, param, flags, parser)
            continue
        if place == len(bare):
            if param.required or (param.name == "key" and _has_tool(row)) or (param.file and param.name == "text"):
                ways = " (as a word, by --file F, or `-` for standard input)" if param.kind == "any" or param.file else ""
                ways = f" (as a word, or by --{param.also})" if param.also else ways
                parser.error(f"{param.name.removesuffix('_id').upper()} is missing{ways}")
            continue
        word = bare[place]
        place += 1
        if param.name == "key" and not word:
            parser.error(NO_KEY)
        if param.kind == "any" or param.file:
            is_stdin = word == "-" and place <= before
            arguments[param.name] = _content(_from_stdin() if is_stdin else _bytes(word), param, flags, parser)
        elif param.kind in _TYPES:
            try:
                arguments[param.name] = _TYPES[param.kind](word)
            except (argparse.ArgumentTypeError, ValueError) as error:
                parser.error(f"{param.name.upper()}: {error}")
        else:
            arguments[param.name] = word
    if place < len(bare):
        spare = bare[place]
        parser.error(f"{_printable(spare)!r} is one word too many" + ("; quote a value that has spaces" if place else ""))


def _printable(word: str) -> str:
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:60]


def _bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def _from_file(path: str, parser: Parser) -> bytes:
    if path == "-":
        return _from_stdin()
    if caller.current() is not None:
        raise caller.Elsewhere  # whose file it is, who opens it
    try:
        with open(path, "rb") as file:
            return _bounded(file.read)
    except OSError as error:
        parser.error(f"--file {path} cannot be read: {error.strerror}")


def _from_stdin() -> bytes:
    stdin = caller.stdin()
    if stdin is None:
        return b""
    return _bounded(stdin.buffer.read)


def _bounded(read: Callable[[int], bytes]) -> bytes:
    """Return what there is to read, refusing what no value can hold before it fills the memory."""
    content = read(VALUE_BYTES + 1)
    if len(content) > VALUE_BYTES:
        raise Refused(
            f"the value has more than {VALUE_BYTES} bytes, the limit VALUE_BYTES",
            code="value_too_large",
            hint="keep it in a file and store its path",
            limit_bytes=VALUE_BYTES,
        )
    return content


def _content(raw: bytes, param: Param, flags: argparse.Namespace, parser: Parser) -> Any:
    """Return raw as the value it is: JSON where the flag says so, text where it is UTF-8, else bytes."""
    if getattr(flags, "json_value", False):
        try:
            return _json(raw)
        except ValueError as error:
            parser.error(f"{param.name.upper()} is not JSON: {error}")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        if param.kind == "any":
            return raw
        parser.error(f"{param.name.upper()} is not UTF-8 text")


def _json(raw: bytes) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(raw)
    except ValueError:
        import json  # knows lone surrogates, and says where it stumbled

        return json.loads(raw)


# --- types of flags -----------------------------------------------------------------------------------------------


def duration(text: str) -> float:
    """Return seconds of 90s, 60m, 2h, 1d or 500ms."""
    number, unit = text.rstrip("abcdefghijklmnopqrstuvwxyz"), text.lstrip("0123456789.")
    if not unit and _is_number(text):
        raise argparse.ArgumentTypeError(f"{text} of what? write {text}s for seconds or {text}m for minutes")
    try:
        if number + unit != text or not number[:1].isdigit():
            raise ValueError(text)
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 60m, 2h or 1d") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _json_text(text: str) -> Any:
    try:
        return _json(_bytes(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from None


def _json_or_text(text: str) -> Any:
    """Return JSON where it is an object or a list, else the text: a filter may be either."""
    return _json_text(text) if text.lstrip()[:1] in ("{", "[") else text


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


_TYPES: dict[str, Callable[[str], Any]] = {"seconds": duration, "int": _whole, "float": float, "object": _json_text, "any": _json_or_text, "strings": _list}
_METAVARS = {"seconds": "90s|60m|2h", "int": "N", "float": "X", "object": "JSON", "any": "JSON", "strings": "A,B"}
