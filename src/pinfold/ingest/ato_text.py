"""The text of atopile -> blocks and what is in them, line by line: imports, blocks, instances, pins, signals, connections.

Lines are logical ones: brackets, texts of three quotes and a backslash join them. A block is what is indented below its
head. What is no statement of the grammar is passed over and counted by its first word.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from pinfold.ingest.source import words

INST, PIN, SIGNAL = "INST", "PIN", "SIGNAL"


class Item(msgspec.Struct, gc=False):
    """An instance, pin or signal of a block. type: the block it is one of, "" where it is not said here."""

    kind: str
    line: int
    type: str = ""
    mult: str = ""
    doc: str = ""
    params: list[str] = []


class Block(msgspec.Struct, gc=False):
    """A module, component or interface. connections: (an end, an end, as written), each end the name of an item."""

    kind: str
    name: str
    line: int
    base: str = ""
    doc: str = ""
    items: dict[str, Item] = {}
    params: list[str] = []
    asserts: list[str] = []
    traits: list[str] = []
    retyped: list[tuple[str, str]] = []
    connections: list[tuple[str, str, str]] = []


class Board(msgspec.Struct, gc=False):
    """One file. imports: (name, file it is from, "" for the library). skipped: first word -> lines that were passed over."""

    blocks: list[Block]
    imports: list[tuple[str, str]]
    doc: str
    statements: int
    skipped: dict[str, int]


_NAME = r"[^\W\d]\w*"
_TEXT = r"\"(?:[^\"\\\n]|\\.)*+\"|'(?:[^'\\\n]|\\.)*+'"
_FIELD = rf"{_NAME}(?:\[-?\d+\])?(?:\.(?:{_NAME}(?:\[-?\d+\])?|\d+))*+"

_piece = re.compile(
    r"(?P<long>\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?''')"
    rf"|(?P<text>{_TEXT})"
    r"|(?P<note>#[^\n]*)"
    r"|(?P<join>\\\r?\n)"
    r"|(?P<end>\r?\n)"
    r"|(?P<open>[\[({])|(?P<close>[\])}])"
    r"|(?P<semi>;)"
    r"|(?P<other>[^\"'#\\\r\n\[\](){};]+|.)",
    re.DOTALL,
)
_block = re.compile(rf"(module|component|interface)\s+({_NAME})(?:\s+from\s+({_NAME}))?\s*:(.*)", re.DOTALL).fullmatch
_loop = re.compile(rf"for\s+({_NAME})\s+in\s+(?:({_FIELD})\s*(?:\[[^\]]*\])?|\[([^\]]*)\])\s*:(.*)", re.DOTALL).fullmatch
_import = re.compile(rf"(?:from\s+({_TEXT})\s+)?import\s+({_NAME}(?:\s*,\s*{_NAME})*)").fullmatch
_pin = re.compile(rf"pin\s+({_NAME}|\d+|{_TEXT})").fullmatch
_signal = re.compile(rf"signal\s+({_NAME})").fullmatch
_new = re.compile(rf"new\s+({_NAME})\s*(?:\[\s*(\d+)\s*\])?\s*(?:<(.*)>)?", re.DOTALL).fullmatch
_assign = re.compile(rf"({_FIELD})\s*(?::\s*({_NAME})\s*)?=(?!=)\s*(.+)", re.DOTALL).fullmatch
_declare = re.compile(rf"({_FIELD})\s*:\s*({_NAME})").fullmatch
_retype = re.compile(rf"({_FIELD})\s*->\s*({_NAME})").fullmatch
_field = re.compile(_FIELD).fullmatch
_wire = re.compile(r"\s*(<~|~>|~)\s*")
_KNOWN = "module component interface import from new pin signal trait assert for pass if parameter param int float string str"
_WORDS = frozenset(_KNOWN.split())
"""First words that a report may name: others are somebody's own."""
_DEPTH = 64
"""Blocks within blocks: a name repeats all that is around it."""
_PAIRS = 100_000
"""Connections of one file: loops within loops could ask for any number."""
_VALUE_CHARS = 80
_DOC_CHARS = 240


def read_ato(text: str) -> Board:
    """Return what a file says. O(len(text))."""
    return _Parser().run(text)


class _Line(msgspec.Struct, gc=False):
    """A logical line or a part of one between semicolons. indent: columns, of its first part; -1: goes on in the same line."""

    indent: int
    number: int
    text: str


def logical_lines(text: str) -> list[_Line]:
    """Return the statements of a text with their indentation; comments and empty lines are left out."""
    found: list[_Line] = []
    parts: list[str] = []
    number = started = 1
    depth = 0
    first = True
    for m in _piece.finditer(text):
        kind, piece = m.lastgroup, m[0]
        if kind == "note" and piece.startswith("#pragma") and not "".join(parts).strip():
            found.append(_Line(0, number, piece))
        elif kind in ("end", "semi") and depth <= 0:
            line = "".join(parts)
            if line.strip():
                found.append(_Line(_columns(line) if first else -1, started, line.strip()))
                first = False
            first = first if kind == "semi" else True
            parts, depth = [], 0
            started = number + (kind == "end")
        elif kind == "join" or kind == "end":
            parts.append(" ")
        elif kind != "note":
            depth += (kind == "open") - (kind == "close")
            parts.append(piece)
        number += piece.count("\n")
    if "".join(parts).strip():
        found.append(_Line(_columns("".join(parts)) if first else -1, started, "".join(parts).strip()))
    return found


def _columns(line: str) -> int:
    expanded = line.expandtabs(8)
    return len(expanded) - len(expanded.lstrip(" "))


class _Scope(msgspec.Struct):
    """What a line may stand in. indent: that of its head. loops: name of a loop -> what it stands for. last: the item to be documented."""

    indent: int
    block: Block | None
    loops: dict[str, list[str]]
    last: Item | None = None
    fresh: bool = True


class _Parser:
    def __init__(self) -> None:
        self.board = Board([], [], "", 0, {})
        self.scopes = [_Scope(-1, None, {})]
        self.pairs = 0

    def run(self, text: str) -> Board:
        for line in logical_lines(text.removeprefix("\ufeff")):
            if line.indent >= 0:
                while len(self.scopes) > 1 and line.indent <= self.scopes[-1].indent:
                    self.scopes.pop()
            self._line(line, line.text, max(line.indent, 0))
        return self.board

    def _line(self, line: _Line, text: str, indent: int) -> None:
        scope = self.scopes[-1]
        head, loop = _block(text), _loop(text)
        if head is None and loop is None:
            if self._statement(scope, text, line.number):
                self.board.statements += 1
            else:
                word = re.match(r"\w+", text)
                self._skip(word[0] if word is not None and word[0] in _WORDS else "other")
            scope.fresh = False
            return
        scope.fresh = False
        if len(self.scopes) > _DEPTH:
            self._skip("too deep")
            return
        self.board.statements += 1
        if head is not None:
            block = Block(head[1], f"{scope.block.name}.{head[2]}" if scope.block is not None else head[2], line.number, head[3] or "")
            self.board.blocks.append(block)
            self.scopes.append(_Scope(indent, block, {}))
            rest = head[4]
        else:
            assert loop is not None
            many = [loop[2]] if loop[2] is not None else [name.strip() for name in loop[3].split(",") if name.strip()]
            self.scopes.append(_Scope(indent, scope.block, {**scope.loops, loop[1]: many}, None, False))
            rest = loop[4]
        if rest.strip():
            self._line(line, rest.strip(), indent + 1)

    def _skip(self, word: str) -> None:
        self.board.skipped[word] = self.board.skipped.get(word, 0) + 1

    # --- statements ---------------------------------------------------------------------------------------------------

    def _statement(self, scope: _Scope, text: str, line: int) -> bool:
        """Take one statement. Return whether it is one."""
        if text[0] in "\"'" and (text[-1] in "\"'" and len(text) > 1):
            self._doc(scope, text)
            return True
        if text == "pass" or text.startswith("#pragma"):
            return True
        if (m := _import(text)) is not None:
            names = [name.strip() for name in m[2].split(",")]
            self.board.imports += [(name, m[1][1:-1] if m[1] else "") for name in names]
            return True
        block = scope.block
        if block is None:
            return False
        for prefix, into in (("assert ", block.asserts), ("trait ", block.traits)):
            if text.startswith(prefix):
                into.append(words(text[len(prefix) :], _VALUE_CHARS))
                return True
        if "~" in text and self._connect(scope, block, text, line):
            return True
        if self._part(block, text, line) is not None:
            return True
        if (m := _retype(text)) is not None:
            block.retyped.append((_first(m[1]), m[2]))
            return True
        if (m := _assign(text)) is not None:
            self._assign(scope, block, m, line)
            return True
        if (m := _declare(text)) is not None:
            block.params.append(f"{m[1]}: {m[2]}")
            return True
        return False

    def _doc(self, scope: _Scope, text: str) -> None:
        """Give a text to what it stands in, or stands behind."""
        quotes = 3 if text[:3] in ('"""', "'''") else 1
        said = words(text[quotes:-quotes], _DOC_CHARS)
        if scope.block is None:
            self.board.doc = self.board.doc or said
        elif scope.fresh:
            scope.block.doc = scope.block.doc or said
        elif scope.last is not None:
            scope.last.doc = scope.last.doc or said

    def _part(self, block: Block, text: str, line: int) -> str | None:
        """Return the name of a pin or signal that a text declares, None for anything else."""
        for pattern, kind in ((_pin, PIN), (_signal, SIGNAL)):
            if (m := pattern(text)) is not None:
                name = m[1].strip("\"'")
                block.items.setdefault(name, Item(kind, line))
                return name
        return None

    def _connect(self, scope: _Scope, block: Block, text: str, line: int) -> bool:
        pieces = _wire.split(text.strip())
        ends, signs = pieces[::2], pieces[1::2]
        if not signs or not all(_field(end) or _pin(end) or _signal(end) for end in ends):
            return False
        names = [self._ends(scope, block, end, line) for end in ends]
        self.pairs += sum(len(a) * len(b) for a, b in pairwise(names))
        if self.pairs > _PAIRS:
            return False
        for place, sign in enumerate(signs):
            written = f"{ends[place]} {sign} {ends[place + 1]}"
            for a in names[place]:
                for b in names[place + 1]:
                    block.connections.append((b, a, written) if sign == "<~" else (a, b, written))
        return True

    def _ends(self, scope: _Scope, block: Block, end: str, line: int) -> list[str]:
        """Return the names of the items that an end of a connection is of; the name of a loop stands for what it goes through."""
        declared = self._part(block, end, line)
        if declared is not None:
            return [declared]
        first = _first(end)
        return [_first(name) for name in scope.loops[first]] if first in scope.loops else [first]

    def _assign(self, scope: _Scope, block: Block, m: re.Match[str], line: int) -> None:
        field, unit, value = m[1], m[2], words(m[3], _VALUE_CHARS)
        if (new := _new(m[3].strip())) is not None:
            params = [words(part, _VALUE_CHARS) for part in (new[3] or "").split(",") if part.strip()]
            scope.last = block.items[field] = Item(INST, line, new[1], new[2] or "", "", params)
            return
        first, _, rest = field.partition(".")
        text = f"{rest}={value}" if rest else f"{field}{f': {unit}' if unit else ''}={value}"
        names = scope.loops.get(_first(first), [first]) if rest else []
        owners = [item for name in names if (item := block.items.get(_first(name))) is not None]
        for owner in owners:
            owner.params.append(text if "[" not in first else f"{first[first.index('[') :]}.{text}")
        if not owners:
            block.params.append(text if not rest else f"{first}.{text}")


def _first(field: str) -> str:
    """Return the first name of a field, without its place in an array."""
    return re.split(r"[.\[]", field, maxsplit=1)[0]
