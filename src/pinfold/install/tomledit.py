"""One table of a TOML text set or removed, every other byte left as it is: comments, order, line ends.

tomllib reads; what is written is found by a walk over the statements of a text that tomllib accepted. After an edit tomllib
must read what was meant and nothing else new, otherwise the edit is refused. A table in an unusual form (inline, dotted
keys) is refused too: it is shown what to write by hand.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import msgspec

from pinfold.errors import Refused
from pinfold.install.jsonedit import ABSENT

_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_header = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_KEY}(?:[ \t]*\.[ \t]*{_KEY})*)[ \t]*\]\]?[^\n]*(?:\n|$)").match
_pair = re.compile(rf"[ \t]*({_KEY}(?:[ \t]*\.[ \t]*{_KEY})*)[ \t]*=[ \t]*").match
_part = re.compile(_KEY).findall
_line = re.compile(r"[^\n]*(?:\n|$)").match
_token = re.compile(
    r'"""(?:[^"\\]|\\.|""?(?!"))*"{3,5}|' r"'''(?:[^']|''?(?!'))*'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'|#[^\n]*|[\[\]{}]|\r?\n|.", re.DOTALL
).match
_is_bare = re.compile(r"[A-Za-z0-9_-]+").fullmatch


class Statement(msgspec.Struct, gc=False):
    """A header or a pair, [start, end) with its line end. path: its keys; value: where a pair's value stands."""

    start: int
    end: int
    is_header: bool
    path: tuple[str, ...]
    value: tuple[int, int] = (0, 0)


class Table(msgspec.Struct, gc=False):
    """A header and the pairs under it; what stands above the first header has the path () and no header."""

    path: tuple[str, ...]
    header: Statement | None
    pairs: list[Statement]

    @property
    def end(self) -> int:
        return self.pairs[-1].end if self.pairs else self.header.end if self.header else 0


def read_toml(text: str, name: str = "the text") -> dict[str, Any]:
    """Return what a TOML text says. Raises Refused `invalid_file`."""
    import tomllib

    try:
        return tomllib.loads(text, parse_float=str)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Refused(f"{name} is not valid: {error}", code="invalid_file", hint="mend it first; --print shows what to add by hand") from error


def get(text: str, path: tuple[str, ...], name: str = "the text") -> Any:
    """Return the value at a path, ABSENT where there is none."""
    found: Any = read_toml(text, name)
    for step in path:
        if not isinstance(found, dict) or step not in found:
            return ABSENT
        found = found[step]
    return found


def with_table(text: str, path: tuple[str, ...], wanted: dict[str, Any], name: str = "the text") -> str:
    """Return the text with these keys in the table at path, its other keys as they are; a table is appended where there is none."""
    present = get(text, path, name)
    if present is ABSENT:
        return _checked(text, _appended(text, path, wanted), path, wanted, name)
    if not isinstance(present, dict):
        _refuse(name, path)
    made = _with_keys(text, path, present, wanted, name)
    return made if made == text else _checked(text, made, path, {**present, **wanted}, name)


def without_table(text: str, path: tuple[str, ...], name: str = "the text") -> str:
    """Return the text without the table at path and those below it, and without the blank line above them."""
    if get(text, path, name) is ABSENT:
        return text
    ours = [table for table in _tables(text) if table.header is not None and table.path[: len(path)] == path]
    made = text
    for table in reversed(ours):
        assert table.header is not None
        above = re.search(r"\n\r?\n\Z", made[: table.header.start])
        made = made[: above.start() + 1 if above else table.header.start] + made[table.end :]
    if not text.endswith("\n") and made.endswith("\n"):
        made = made.removesuffix("\n").removesuffix("\r")
    return _checked(text, made, path, ABSENT, name)


def format_table(path: tuple[str, ...], wanted: dict[str, Any], eol: str = "\n") -> str:
    """Return a table, and a table below it for each map in it, as lines."""
    lines = [f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in wanted.items() if not isinstance(value, dict)]
    text = eol.join([*lines, ""])
    for key, value in wanted.items():
        if isinstance(value, dict) and value:
            text += eol + format_table((*path, key), value, eol)
    return text


# --- edits --------------------------------------------------------------------------------------------------------


def _refuse(name: str, path: tuple[str, ...]) -> NoReturn:
    raise Refused(
        f"{name} holds {'.'.join(path)} in a form that cannot be edited safely",
        code="unusual_form",
        hint="--print shows what to write by hand",
    )


def _checked(old: str, new: str, path: tuple[str, ...], wanted: Any, name: str) -> str:
    before = read_toml(old, name)
    table = before
    for step in path[:-1]:
        table = table.setdefault(step, {}) if isinstance(table, dict) else {}
    if isinstance(wanted, dict):
        table[path[-1]] = {key: value for key, value in wanted.items() if value != {}}
    else:
        table.pop(path[-1], None)
    try:
        after = read_toml(new, name)
    except Refused:
        _refuse(name, path)
    if _full(after) != _full(before):
        _refuse(name, path)
    return new


def _full(value: Any) -> Any:
    """Return a value without empty tables: whether one is written down says nothing."""
    if not isinstance(value, dict):
        return value
    return {key: inner for key, item in value.items() if (inner := _full(item)) != {}}


def _eol(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _appended(text: str, path: tuple[str, ...], wanted: dict[str, Any]) -> str:
    eol = _eol(text)
    block = format_table(path, wanted, eol)
    if not text:
        return block
    return text + eol + block if text.endswith("\n") else text + eol + eol + block.removesuffix(eol)


def _with_keys(text: str, path: tuple[str, ...], present: dict[str, Any], wanted: dict[str, Any], name: str) -> str:
    for key, value in wanted.items():
        if present.get(key) != value:
            text = _with_key(text, path, key, value, present, name)
    return text


def _with_key(text: str, path: tuple[str, ...], key: str, value: Any, present: dict[str, Any], name: str) -> str:
    tables = _tables(text)
    table = next((table for table in tables if table.path == path and table.header is not None), None)
    if table is None:
        _refuse(name, path)
    pair = next((pair for pair in table.pairs if pair.path == (key,)), None)
    if pair is not None:
        return text[: pair.value[0]] + _value(value) + text[pair.value[1] :]
    if any(below.path == (*path, key) for below in tables):
        return _with_keys(text, (*path, key), present[key], value, name)
    eol = _eol(text)
    gap = "" if text[: table.end].endswith("\n") else eol
    made = eol + format_table((*path, key), value, eol) if isinstance(value, dict) else f"{_key(key)} = {_value(value)}{eol}"
    return text[: table.end] + gap + made + text[table.end :]


# --- statements ---------------------------------------------------------------------------------------------------


def _tables(text: str) -> list[Table]:
    """Return the tables of a valid text in order, arrays of tables among them."""
    tables = [Table((), None, [])]
    at = 0
    while at < len(text):
        header = _header(text, at)
        pair = None if header else _pair(text, at)
        if header:
            statement = Statement(at, header.end(), True, _path(header[2]))
            tables.append(Table(statement.path, statement, []))
            at = header.end()
        elif pair:
            end, at = _value_end(text, pair.end())
            tables[-1].pairs.append(Statement(pair.start(), at, False, _path(pair[1]), (pair.end(), end)))
        else:
            at = _line(text, at).end()  # type: ignore[union-attr]
    return tables


def _value_end(text: str, at: int) -> tuple[int, int]:
    """Return (where the value that begins at `at` ends, where its last line does)."""
    depth, end = 0, at
    while at < len(text):
        found = _token(text, at)
        assert found is not None
        token, at = found.group(), found.end()
        if token in ("\n", "\r\n") and depth == 0:
            break
        if token in ("[", "{"):
            depth += 1
        elif token in ("]", "}"):
            depth -= 1
        if not (token.startswith("#") and depth == 0) and not token.isspace():
            end = at
    return end, at


def _path(text: str) -> tuple[str, ...]:
    import tomllib

    return tuple(next(iter(tomllib.loads(f"{part} = 0"))) for part in _part(text))


def _key(key: str) -> str:
    return key if _is_bare(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(inner)}" for key, inner in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
