"""What a terminal shows: columns that stand under each other, colour, how far work is. Never in a pipe; no colour under NO_COLOR.

Aligned lines say the same: blanks around `;` mean nothing in the dialect, so they can be pasted like the plain ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pinfold import caller

_CELLS = {"session_list": 5, "log": 3, "blame": 3, "relations": 1}
"""Answers that are tables: how many cells each line has before its last, which may hold blanks."""

_DIM, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = (f"\x1b[{code}m" for code in (2, 31, 32, 33, 34, 35, 36))
_OFF = "\x1b[0m"
_OPS = {"+": _GREEN, "~": _YELLOW, "-": _RED}

_node = re.compile(r"([A-Z][A-Z0-9_]*) (\[[^\]]+\])((?: +; .*)?)").fullmatch
_edge = re.compile(r"([A-Za-z_][\w.-]*)( +\[)([^\]]+)(\] +--\()(\w+)(\)--> +\[)([^\]]+)(\])((?: +; .*)?)").fullmatch
_law = re.compile(r"(LAW[\w.-]*) (.*)").fullmatch
_field = re.compile(r"( *; |^)([A-Za-z_]\w*)=")
_split = re.compile(r' ; (?=[A-Za-z_]\w*=)(?=(?:[^"]*"(?:[^"\\]|\\.)*")*[^"]*$)').split


def for_people(name: str, text: str, *, width: int | None = None, colour: bool | None = None) -> str:
    """Return an answer as a terminal shows it. name: the operation. width: columns, the terminal's by default."""
    wide = caller.columns() if width is None else width
    lines = text.split("\n")
    if name in _CELLS:
        return "\n".join(columns((re.split(r"[ \t]+", line, maxsplit=_CELLS[name]) for line in lines), wide))
    lines = _aligned(lines, wide)
    painted = has_colour() if colour is None else colour
    return "\n".join(map(_painted, lines) if painted else lines)


def has_colour() -> bool:
    """Return whether a terminal may be painted: not where NO_COLOR is set to anything, nor on a dumb one."""
    environ = caller.environ()
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def columns(rows: Iterable[list[str]], wide: int, gap: str = "  ") -> list[str]:
    """Return rows of cells as lines whose cells stand under each other; as they are where that would not fit."""
    table = list(rows)
    sizes: list[int] = []
    for row in table:
        for place, cell in enumerate(row[:-1]):
            if place == len(sizes):
                sizes.append(0)
            sizes[place] = max(sizes[place], len(cell))
    padded = [gap.join([*(cell.ljust(size) for cell, size in zip(row, sizes, strict=False)), *row[len(sizes) :]]).rstrip() for row in table]
    return padded if max(map(len, padded), default=0) <= wide else [" ".join(row) for row in table]


def _aligned(lines: list[str], wide: int) -> list[str]:
    """Return lines with the fields of neighbours of one shape under each other, where all of them fit."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        end = at + 1
        shape = _shape(lines[at], wide)
        while shape and end < len(lines) and _shape(lines[end], wide) == shape:
            end += 1
        out += _block(lines[at:end], wide) if shape and end - at > 1 else lines[at:end]
        at = end
    return out


def _shape(line: str, wide: int) -> tuple[str, ...] | None:
    """Return what lines share that may be aligned: the kind of row, and the names of its fields."""
    if len(line) > wide:
        return None
    head, *fields = _split(line)
    names = tuple(field.partition("=")[0] for field in fields)
    if _edge(head):
        return ("edge", *names)
    node = _node(head)
    return (node[1], *names) if node else None


def _block(lines: list[str], wide: int) -> list[str]:
    rows = [_split(line) for line in lines]
    edges = [_edge(row[0]) for row in rows]
    if all(edges):
        heads = columns(([m[1], f"[{m[3]}]", f"--({m[5]})-->", f"[{m[7]}]"] for m in edges if m), wide, " ")
        rows = [[head, *row[1:]] for head, row in zip(heads, rows, strict=True)]
    sizes = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    padded = [" ; ".join([*(cell.ljust(size) for cell, size in zip(row, sizes, strict=False)), row[-1]]) for row in rows]
    return padded if max(map(len, padded)) <= wide else lines


def _painted(line: str) -> str:
    if line.startswith("#"):
        return f"{_DIM}{line}{_OFF}"
    if line.startswith(("+ ", "~ ", "- ")):
        return f"{_OPS[line[0]]}{line[0]}{_OFF}{line[1:]}"
    edge = _edge(line)
    if edge:
        ends = f"{edge[2]}{_YELLOW}{edge[3]}{_OFF}{edge[4]}{_MAGENTA}{edge[5]}{_OFF}{edge[6]}{_YELLOW}{edge[7]}{_OFF}{edge[8]}"
        return f"{_DIM}{edge[1]}{_OFF}{ends}{_fields(edge[9])}"
    node = _node(line)
    if node:
        return f"{_CYAN}{node[1]}{_OFF} {_YELLOW}{node[2]}{_OFF}{_fields(node[3])}"
    law = _law(line)
    return f"{_BLUE}{law[1]}{_OFF} {_fields(law[2])}" if law else line


def _fields(text: str) -> str:
    return _field.sub(lambda m: f"{_DIM}{m[1]}{_OFF}{_GREEN}{m[2]}{_OFF}=", text)
