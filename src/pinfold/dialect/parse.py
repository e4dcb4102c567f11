"""Text of the line dialect -> a Batch of records, with every problem in it. What a record means is decided elsewhere.

Invariants:
- Only LF and CR LF end a line; only spaces and tabs are trimmed. `str.splitlines` and `str.strip` know more characters
  than that, and a value must keep every one of them, so neither is used here.
- One pass. A line either becomes one Op or leaves at least one Problem; nothing is guessed.
- The common line is matched by two or three compiled patterns, all of them linear (possessive where a value could be
  long). Only a line that fails them is looked at step by step, to say where and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from pinfold import limits

NEW = "NEW"
RESERVED = frozenset({"NEW", "EDG", "LAW", "SCHEMA"})
"""Never ids, never kinds of a user's own."""

ID = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
KIND = r"[A-Z][A-Z0-9_]{0,31}"
RELATION = r"[A-Za-z][A-Za-z0-9_]{0,63}"
LAW_ID = r"LAW[0-9_.-][A-Za-z0-9_.-]{0,60}"
LABEL = r"[A-Za-z0-9_]{1,32}"
KEY = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?"

is_id = re.compile(ID).fullmatch
is_kind = re.compile(KIND).fullmatch
is_relation = re.compile(RELATION).fullmatch
is_law_id = re.compile(LAW_ID).fullmatch
is_key = re.compile(KEY).fullmatch
is_number = re.compile(NUMBER).fullmatch


class Problem(msgspec.Struct, frozen=True):
    """One reason why a document is refused. line and column count from 1, columns in characters."""

    line: int
    column: int
    code: str
    message: str
    hint: str = ""

    @property
    def told(self) -> str:
        """Where and what, without the hint."""
        return f"{self.line}:{self.column} {self.code} {self.message}"

    def __str__(self) -> str:
        return self.told + (f" | {self.hint}" if self.hint else "")


class Op(msgspec.Struct, gc=False):
    """One record as written.

    op: "+", "~", "-" or "" (a present line). form: node, edge, law, schema, or row (an id alone, whatever it names).
    id: None where one is to be minted. label: of `NEW:label`. src, dst: an id, `NEW:label` or (wrongly) `NEW`.
    fields: key -> value, in order; for the keys in sums the value is the signed number to add.
    replace: a legacy update: the fields are the whole row.
    """

    op: str
    form: str
    line: int
    text: str
    id: str | None = None
    kind: str = ""
    label: str | None = None
    src: str = ""
    rel: str = ""
    dst: str = ""
    fields: dict[str, str] = {}
    sums: tuple[str, ...] = ()
    replace: bool = False


class Batch(msgspec.Struct):
    """A document: its records in order and what is wrong with it so far.

    poison: ids and labels (`NEW:x`) named on lines that did not parse -> the first such line; a problem that only
    hangs on one of them is not worth reporting. pipes: legacy rows, untranslated: (line, text).
    """

    ops: list[Op]
    problems: list[Problem]
    poison: dict[str, int]
    pipes: list[tuple[int, str]]
    lines: int


_W = r"[ \t]"
_NEW_OR_ID = rf"NEW(?::{LABEL})?(?![A-Za-z0-9_.:-])|{ID}"
_END = rf"NEW:{LABEL}|{ID}"
_ARROW = rf"\[({_END})\]{_W}*--\(({RELATION})\)-->{_W}*\[({_END})\]"
_TRIPLE = rf"\[({ID})\]{_W}*--\(({RELATION})\)-->{_W}*\[({ID})\]"

_add = re.compile(rf"\+{_W}+(?:({KIND}){_W}+\[({_NEW_OR_ID})\](?!{_W}*--\()|(?:({_NEW_OR_ID}){_W}+)?{_ARROW}|({LAW_ID})(?={_W}|;|$)(?!{_W}*\[))").match
_patch = re.compile(rf"~{_W}+(?:\[({ID})\](?!{_W}*--\()|(?:({ID}){_W}+)?{_TRIPLE}|({ID})(?={_W}|;|$)(?!{_W}*\[))").match
_drop = re.compile(rf"-{_W}+(?:\[({ID})\]|({ID}))$").match
_present = re.compile(rf"(?:({KIND}){_W}+\[({_NEW_OR_ID})\](?!{_W}*--\()|(?:({_NEW_OR_ID}){_W}+)?{_ARROW}|({LAW_ID})(?={_W}|;|$)(?!{_W}*\[))").match
_schema = re.compile(rf"SCHEMA{_W}+({KIND}|relations)(?={_W}|;|$)(?!{_W}*\[)").match
_field = re.compile(rf'[ \t;]*+({KEY})(?![A-Za-z0-9_]){_W}*+(=|\+=|-=){_W}*+(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"{_W}*+(?:;|$)|((?!")[^;]*+)(?:;|$))').match
_blank = re.compile(r"[ \t;]*").match
_escape = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))")
_named = re.compile(rf"\[(NEW:{LABEL}|{ID})\]|(?:^|[~+-]){_W}*({ID})|id{_W}*={_W}*({ID})")

_SHORT = {"\\": "\\", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_WS = " \t"


def parse_document(text: str) -> Batch:
    """Return the records of a document and its problems. Never raises, whatever the text is. O(len(text))."""
    batch = Batch([], [], {}, [], 0)
    problems = batch.problems
    if len(text) * 4 > limits.DOCUMENT_BYTES:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > limits.DOCUMENT_BYTES:
            problems.append(Problem(1, 1, "limit_exceeded", f"the document has {size} bytes, DOCUMENT_BYTES is {limits.DOCUMENT_BYTES}", "send it in parts"))
            return batch
    lines = text.removeprefix("\ufeff").split("\n")
    batch.lines = len(lines) - (lines[-1] == "")
    if batch.lines > limits.DOCUMENT_LINES:
        at = limits.DOCUMENT_LINES + 1
        problems.append(
            Problem(at, 1, "limit_exceeded", f"the document has {batch.lines} lines, DOCUMENT_LINES is {limits.DOCUMENT_LINES}", "send it in parts")
        )
        return batch
    _unfence(lines)
    _read(lines, batch)
    return batch


def parse_lines(lines: list[str]) -> Batch:
    """Return the records of lines, without the limits and the fence of a document: for snapshot files, which are large."""
    batch = Batch([], [], {}, [], len(lines))
    _read(lines, batch)
    return batch


def _unfence(lines: list[str]) -> None:
    """Blank out a surrounding ``` fence. Its end may be missing; a fence elsewhere is left to be refused."""
    first = next((i for i, line in enumerate(lines) if line.strip(" \t\r")), None)
    if first is None or not lines[first].strip(" \t\r").startswith("```"):
        return
    lines[first] = ""
    last = next((i for i in range(len(lines) - 1, first, -1) if lines[i].strip(" \t\r")), None)
    if last is not None and lines[last].strip(" \t\r") == "```":
        lines[last] = ""


def _read(lines: list[str], batch: Batch) -> None:
    ops, problems = batch.ops, batch.problems
    dialect = ""  # "lines" or "pipes", by the first record of either
    mixed = json_seen = False
    number = 0
    for raw in lines:
        number += 1
        # The last line has no LF behind it: a CR there is a character of its value. Elsewhere CR LF is the line's end.
        if raw.endswith("\r") and number < len(lines):
            raw = raw[:-1]
        text = raw.strip(_WS)
        if not text or text[0] == "#":
            continue
        before = len(problems)
        first = text[0]
        if first == "@":
            if dialect == "lines":
                if not mixed:
                    problems.append(Problem(number, _start(raw), "mixed_dialect", "a pipe row among lines", "write the whole document in one dialect"))
                mixed = True
                _spoil(batch, number, text)
                continue
            dialect = "pipes"
            batch.pipes.append((number, text))
            continue
        op = _one(raw, text, first, number, problems)
        if op is None and len(problems) == before:
            if first in "{}" or (first == "[" and _looks_json(text)) or (json_seen and _continues_json(text)):
                if not json_seen:
                    problems.append(Problem(number, _start(raw), "json_not_supported", "this is JSON", "one record a line: + KIND [NEW] ; key=value"))
                json_seen = True
                continue
            problems.append(Problem(number, _start(raw), "not_a_record", "this is prose, not a record", "a record begins with +, ~ or -, a comment with #"))
            _spoil(batch, number, text)
            continue
        if dialect == "pipes" and not mixed:
            mixed = True
            problems.append(Problem(number, _start(raw), "mixed_dialect", "a line among pipe rows", "write the whole document in one dialect"))
        dialect = dialect or "lines"
        if op is None or len(problems) != before:
            _spoil(batch, number, text)
        else:
            ops.append(op)


def _one(raw: str, text: str, first: str, number: int, problems: list[Problem]) -> Op | None:
    """Return the record of one stripped line. None with a problem: refused; None without: not a record at all."""
    if first == "+":
        m = _add(text)
        if m is None:
            _explain(raw, text, number, problems)
            return None
        return _created("+", m, raw, text, number, problems)
    if first == "~":
        m = _patch(text)
        if m is None:
            _explain(raw, text, number, problems)
            return None
        node, edge, src, rel, dst, bare = m.groups()
        name = node or edge or bare
        if NEW in (name, src, dst):
            problems.append(_new_on_update(raw, text, number))
        got = _fields(raw, text, m.end(), number, problems)
        if rel is None:
            return Op("~", "row", number, raw, name, "", None, "", "", "", got[0], got[1])
        return Op("~", "edge", number, raw, edge, "", None, src, rel, dst, got[0], got[1])
    if first == "-":
        m = _drop(text)
        if m is None:
            _explain(raw, text, number, problems)
            return None
        name = m[1] or m[2]
        if name == NEW:
            problems.append(_new_on_update(raw, text, number))
        return Op("-", "row", number, raw, name)
    m = _schema(text) if first == "S" else None
    if m is not None:
        got = _fields(raw, text, m.end(), number, problems)
        if got[1]:
            problems.append(Problem(number, column_of(raw, got[1][0]), "parse_error", "a SCHEMA line takes = only"))
        return Op("", "schema", number, raw, None, m[1], None, "", "", "", got[0])
    m = _present(text)
    if m is None:
        if "--(" in text and _shaped(text):
            _explain(raw, text, number, problems)
        return None
    if m[7] is None and (m[2] or m[3] or "").startswith(NEW) and _is_new(m[2] or m[3]):
        problems.append(_new_on_update(raw, text, number))
        _fields(raw, text, m.end(), number, problems)
        return None
    if m[7] is None and (_is_new(m[4]) or _is_new(m[6])):
        problems.append(_new_on_update(raw, text, number))
        return None
    return _created("+" if m[7] else "", m, raw, text, number, problems)


def _created(op: str, m: re.Match[str], raw: str, text: str, number: int, problems: list[Problem]) -> Op:
    kind, node, edge, src, rel, dst, law = m.groups()
    fields, sums = _fields(raw, text, m.end(), number, problems)
    if kind is not None:
        if node[:3] == NEW and _is_new(node):
            return Op(op, "node", number, raw, None, kind, node[4:] or None, "", "", "", fields, sums)
        return Op(op, "node", number, raw, node, kind, None, "", "", "", fields, sums)
    if rel is not None:
        if edge is None or (edge[:3] == NEW and _is_new(edge)):
            return Op(op, "edge", number, raw, None, "", edge[4:] or None if edge else None, src, rel, dst, fields, sums)
        return Op(op, "edge", number, raw, edge, "", None, src, rel, dst, fields, sums)
    return Op(op, "law", number, raw, law, "", None, "", "", "", fields, sums)


def _is_new(name: str | None) -> bool:
    return name is not None and (name == NEW or name.startswith("NEW:"))


def _fields(raw: str, text: str, pos: int, number: int, problems: list[Problem], limit_bytes: int | None = None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return key -> value from pos on, and the keys written with += or -= (their values are signed numbers).

    limit_bytes: of a value; None: by `limits.field_limit`.
    """
    end = len(text)
    if pos == end:
        return {}, ()
    if text.find('"', pos) < 0 and end - pos < 4096:
        plain = _plain_fields(text[pos:])
        if plain is not None:
            return plain, ()
    fields: dict[str, str] = {}
    sums: tuple[str, ...] = ()
    while pos < end:
        m = _field(text, pos)
        if m is None:
            blank = _blank(text, pos)
            assert blank is not None
            pos = blank.end()
            if pos >= end:
                break
            column, message, hint, resume = _why_field(text, pos)
            problems.append(Problem(number, len(raw) - len(raw.lstrip(_WS)) + column + 1, "parse_error", message, hint))
            if resume < 0:
                break
            pos = resume
            continue
        key, sign, quoted, bare = m.groups()
        if quoted is not None:
            value = quoted
            if "\\" in value:
                got = _unescape(value)
                if isinstance(got, int):
                    problems.append(Problem(number, _start(raw) + m.start(3) + got, "parse_error", "not an escape", r"the escapes are \\ \" \n \r \t \uXXXX"))
                else:
                    value = got
        else:
            value = bare.rstrip(_WS)
        if sign != "=":
            if quoted is not None or is_number(value) is None:
                problems.append(Problem(number, _start(raw) + m.end(2), "parse_error", f"{key}{sign} takes a number", f"{key}{sign}1"))
            else:
                if sign == "-=":
                    value = value[1:] if value[0] == "-" else "-" + value.removeprefix("+")
                sums += (key,)
        if key in fields:
            problems.append(Problem(number, _start(raw) + m.start(1), "duplicate_field", f"{key} twice in one line", "a line says each field once"))
        elif len(value) * 4 > (limit_bytes or limits.FIELD_VALUE_BYTES) and _is_over(key, value, limit_bytes):
            name, most = limits.field_limit(key)
            message = f"the value of {key} is over {name} = {most}"
            problems.append(
                Problem(number, _start(raw) + m.start(1), "limit_exceeded", message, "a field is a fact; put the text in a file or a slot and name it")
            )
        else:
            fields[key] = value
        pos = m.end()
    if len(fields) > limits.FIELDS_PER_ROW:
        problems.append(Problem(number, _start(raw), "limit_exceeded", f"{len(fields)} fields, FIELDS_PER_ROW is {limits.FIELDS_PER_ROW}"))
    if not text.isascii() and (lone := re.search("[\ud800-\udfff]", text)):
        problems.append(Problem(number, _start(raw) + lone.start(), "parse_error", "a lone surrogate is no character"))
    return fields, sums


def _is_over(key: str, value: str, limit_bytes: int | None) -> bool:
    return len(value.encode("utf-8", "surrogatepass")) > (limit_bytes or limits.field_limit(key)[1])


@lru_cache(maxsize=4096)
def _key_in(text: str) -> str | None:
    """Return the key that stands alone in a text, blanks around it aside; None for anything else."""
    key = text.strip(_WS)
    return key if is_key(key) else None


def _plain_fields(text: str) -> dict[str, str] | None:
    """Return the fields where all are short, bare and set by =, None for anything else: the common line, at half the cost."""
    fields: dict[str, str] = {}
    count = 0
    for part in text.split(";"):
        before, equals, value = part.partition("=")
        if not equals:
            if before.strip(_WS):
                return None
            continue
        key = _key_in(before)
        if key is None:
            return None
        count += 1
        fields[key] = value.strip(_WS)
    if len(fields) != count or count > limits.FIELDS_PER_ROW or not (text.isascii() or text.isprintable()):
        return None
    return fields


def _unescape(value: str) -> str | int:
    """Return the value meant, or the offset of the escape that is none."""
    out: list[str] = []
    at = 0
    while (m := _escape.search(value, at)) is not None:
        out.append(value[at : m.start()])
        at = m.end()
        if m[1] is None:
            short = _SHORT.get(m[2])
            if short is None:
                return m.start()
            out.append(short)
            continue
        code = int(m[1], 16)
        if 0xD800 <= code < 0xDC00:
            low = _escape.match(value, at)
            if low is None or low[1] is None or not 0xDC00 <= int(low[1], 16) < 0xE000:
                return m.start()
            at = low.end()
            code = 0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00
        elif 0xDC00 <= code < 0xE000:
            return m.start()
        out.append(chr(code))
    out.append(value[at:])
    return "".join(out)


def fields_of(text: str, limit_bytes: int) -> dict[str, str] | None:
    """Return the fields of `key=value ; …` text, None where it is not that. For the heads and slots of a saved session."""
    problems: list[Problem] = []
    fields, sums = _fields(text, text, 0, 1, problems, limit_bytes)
    return None if problems or sums else fields


def parse_rows(lines: list[str]) -> Batch:
    """Return the records of the lines of a saved session: no limit on their number, no fence, no BOM; line numbers are theirs."""
    batch = Batch([], [], {}, [], len(lines))
    _read(lines, batch)
    return batch


# --- what is wrong, and where ------------------------------------------------------------------------------------

# Patterns as text: only a refused line needs them, and compiling them takes longer than all else a command imports.
_Step = tuple[str, str, str]


_ID_HINT = "an id is A-Z a-z 0-9 _ . - and at most 64 of them"
_DROP_HINT = f"- id drops one row; {_ID_HINT}"
_TAIL = r"(?![A-Za-z0-9_.:-])"
_nothing_more = (r"$", "nothing may follow the id", _DROP_HINT)
_blank_after_op = (rf"[+~-]{_W}+", "a blank must follow the op", "")
_open = (r"\[", "[ is expected", "ids stand in brackets: KIND [id]")
_close = (r"\]", "] is expected", _ID_HINT)
_arrow_open = (rf"{_W}*--\(", "--( is expected", "an edge is [source] --(relation)--> [target]")
_arrow_close = (rf"\)-->{_W}*", ")--> is expected", "a relation is A-Z a-z 0-9 _")
_relation = (RELATION, "a relation is expected", "a relation is A-Z a-z 0-9 _ beginning with a letter")
_ground = (ID, "an id is expected", "an id is A-Z a-z 0-9 _ . - beginning with a letter or _")
_end_of_edge = (_END, "an id or NEW:label is expected", _ID_HINT)
_kind = (rf"{KIND}(?![A-Za-z0-9_]){_W}+", "a kind is expected", "kinds are capitals A-Z: + TSK [NEW] ; goal=…")
_new_or_id = (rf"(?:{_NEW_OR_ID})", "NEW, NEW:label or an id is expected", _ID_HINT)

_ADD_NODE = (_blank_after_op, _kind, _open, _new_or_id, _close)
_ADD_EDGE = (
    _blank_after_op,
    (rf"(?:(?:{_NEW_OR_ID}){_W}+)?(?=\[)", "an edge's id, NEW or [ is expected", "+ [source] --(relation)--> [target]"),
    _open, _end_of_edge, _close, _arrow_open, _relation, _arrow_close, _open, _end_of_edge, _close,
)  # fmt: skip
_PATCH_NODE = (_blank_after_op, _open, _ground, _close)
_PATCH_EDGE = (
    _blank_after_op,
    (rf"(?:{ID}{_W}+)?(?=\[)", "an edge's id or [ is expected", "~ [source] --(relation)--> [target]"),
    _open, _ground, _close, _arrow_open, _relation, _arrow_close, _open, _ground, _close,
)  # fmt: skip
_PATCH_ROW = (_blank_after_op, (rf"{ID}(?={_W}|;|$)", "an id is expected", "~ [id] ; key=value"))
_DROP_NODE = (_blank_after_op, _open, _ground, _close, _nothing_more)
_DROP_ROW = (_blank_after_op, (rf"{ID}{_TAIL}", "an id is expected", _DROP_HINT), _nothing_more)
_PRESENT_EDGE = _ADD_EDGE[1:]


def _explain(raw: str, text: str, number: int, problems: list[Problem]) -> None:
    """Add the problem of a line whose head does not parse."""
    op, rest = text[0], text[1:].lstrip(_WS)
    arrow = "--(" in text or "-->" in text
    if op in "~-" and re.match(rf"\[?NEW(:|\]|{_W}|$)", rest):
        problems.append(_new_on_update(raw, text, number))
        return
    steps: tuple[_Step, ...]
    if op == "+":
        steps = _ADD_EDGE if arrow or rest.startswith("[") else _ADD_NODE
    elif op == "~":
        steps = _PATCH_EDGE if arrow else _PATCH_NODE if rest.startswith("[") else _PATCH_ROW
    elif op == "-":
        steps = _DROP_NODE if rest.startswith("[") else _DROP_ROW
    else:
        steps = _PRESENT_EDGE
    if op == "~" and arrow and re.search(rf"\[NEW(:{LABEL})?\]", text):
        problems.append(_new_on_update(raw, text, number))
        return
    pos = 0
    for pattern, message, hint in steps:
        m = re.compile(pattern).match(text, pos)
        if m is None:
            problems.append(Problem(number, _start(raw) + pos, "parse_error", message, hint))
            return
        pos = m.end()
    problems.append(Problem(number, _start(raw), "parse_error", "this is not a record", ""))


def _why_field(text: str, pos: int) -> tuple[int, str, str, int]:
    """Return (offset, message, hint, where to read on or -1) for a field that does not parse at pos."""
    next_field = text.find(";", pos)
    resume = next_field if next_field >= 0 else -1
    m = re.compile(rf"({KEY})(?![A-Za-z0-9_\x80-\U0010ffff])").match(text, pos)
    if m is None:
        return pos, "a field is key=value", "a key is A-Z a-z 0-9 _ beginning with a letter; a value with ; needs quotes", resume
    sign = re.compile(rf"{_W}*(=|\+=|-=){_W}*").match(text, m.end())
    if sign is None:
        return pos, f"the field {m[1]} has no value", f"{m[1]}=… sets it, {m[1]}= clears it", resume
    at = sign.end()
    if text[at : at + 1] != '"':
        return pos, "a field is key=value", "", resume
    end = at + 1
    while end < len(text) and text[end] != '"':
        end += 2 if text[end] == "\\" else 1
    if end >= len(text):
        return at, "the quote is never closed", r"write \" for a quote inside quotes", -1
    if text[end + 1 : end + 2] == "…":
        return end + 1, "this value was cut to fit a budget", "read the row in full before writing it", -1
    return end + 1, "only ; may follow a closing quote", r"write \" for a quote inside quotes", -1


def _new_on_update(raw: str, text: str, number: int) -> Problem:
    hint = "+ creates: + KIND [NEW] ; key=value" if text[0] in "~-" else "write + in front to create it"
    return Problem(number, _start(raw) + max(text.find(NEW), 0), "new_on_update", "NEW names nothing yet", hint)


def _start(raw: str) -> int:
    """Return the column where the line's text begins."""
    return len(raw) - len(raw.lstrip(_WS)) + 1


def _looks_json(text: str) -> bool:
    return re.match(r"\[\s*(?:[\[{\"\]0-9-]|$|true|false|null)", text) is not None


def _continues_json(text: str) -> bool:
    return re.match(r"[\[\]{}\",]|-?[0-9]|true\b|false\b|null\b", text) is not None


def _shaped(text: str) -> bool:
    """True for a line that means to be an edge without an op, however badly."""
    return re.match(rf"(?:[^\[\]\s]+{_W}*)?\[[^\]]*\]{_W}*--\(", text) is not None


def _spoil(batch: Batch, number: int, text: str) -> None:
    """Remember what a refused line names, so that what only hangs on it is not reported too."""
    for name in names_in(text):
        batch.poison.setdefault(name, number)


def names_in(text: str) -> Iterator[str]:
    """Yield every id and `NEW:label` that the text of a line could be naming."""
    for m in _named.finditer(text):
        yield m[1] or m[2] or m[3]


def column_of(raw: str, key: str) -> int:
    """Return the column of a field's key in a line that parsed."""
    text = raw.strip(_WS)
    for m in re.finditer(rf"(?<![A-Za-z0-9_]){re.escape(key)}{_W}*(?:=|\+=|-=)", text):
        # A key inside quotes is not this one: an even number of plain quotes stands before a real one.
        if len(re.findall(r'(?<!\\)"', text[: m.start()])) % 2 == 0:
            return _start(raw) + m.start()
    return _start(raw)


def column_of_name(raw: str, name: str, nth: int = 1) -> int:
    """Return the column of the nth mention of an id, kind, relation or label in a line that parsed; 1 where not found."""
    for m in re.finditer(rf"(?<![A-Za-z0-9_.:-]){re.escape(name)}(?![A-Za-z0-9_.-])", raw):
        nth -= 1
        if nth == 0:
            return m.start() + 1
    return _start(raw)
