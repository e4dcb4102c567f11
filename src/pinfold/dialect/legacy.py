r"""MemNet's older pipe rows, read and never printed: `@TAG: v1|v2` rows, `@TAG: id|f1|f2` maps, `@SNAP: 1` snapshots.

A row is positional by the columns of its tag; `\|` and `\\` are escapes. EDG rows are edges: id, src, relation, dist, at,
attrs, recycle (six values where `at` is missing), and their attrs become the field `note`. LAW rows are laws. An update of a
pipe row replaces the whole row, as it did there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pinfold.dialect.parse import Op, Problem, is_id, is_key, is_kind, is_law_id, is_relation

EDGE_COLUMNS = ("src", "relation", "dist", "at", "attrs", "recycle")
LAW_COLUMNS = ("name", "cycle", "mechanism", "constraint")
FIXED_TAGS = frozenset({"EDG", "LAW"})
RESERVED_TAGS = frozenset({"SESSION", "ERR", "WRN", "STAT", "REL", "DEL", "SNAP"})

_row = re.compile(r"@([A-Za-z][A-Za-z0-9_]*):[ \t]?(.*)", re.DOTALL).fullmatch


class Snapshot(msgspec.Struct):
    """An `@SNAP: 1` file: columns by tag, relations, records as creates, and what does not parse; mended: ids of rows that were split."""

    columns: dict[str, tuple[str, ...]]
    relations: tuple[str, ...]
    ops: list[Op]
    problems: list[Problem]
    session: str = ""
    mended: list[str] = []


def split_row(text: str) -> list[str]:
    r"""Return the values of a pipe row's text; `\|` and `\\` stand for themselves, any other backslash stays."""
    values: list[str] = [""]
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and text[at + 1 : at + 2] in ("|", "\\"):
            values[-1] += text[at + 1]
            at += 2
            continue
        if char == "|":
            values.append("")
        else:
            values[-1] += char
        at += 1
    return values


def translate(pipes: Sequence[tuple[int, str]], verb: str, columns: Mapping[str, Sequence[str]]) -> tuple[list[Op], list[Problem]]:
    """Return pipe rows as records of this dialect. verb: add makes creates, update makes whole-row patches.

    columns: the fields after id, by kind. Problems: parse_error (a wrong number of columns, names the right ones),
    unknown_kind.
    """
    ops: list[Op] = []
    problems: list[Problem] = []
    for line, text in pipes:
        got = _translate(line, text, "+" if verb == "add" else "~", columns)
        if isinstance(got, Problem):
            problems.append(got)
        else:
            ops.append(got)
    return ops, problems


def _translate(line: int, text: str, op: str, columns: Mapping[str, Sequence[str]]) -> Op | Problem:
    m = _row(text)
    if m is None:
        return Problem(line, 1, "parse_error", "a pipe row is @TAG: v1|v2", "")
    tag, values = m[1].upper(), split_row(m[2])
    names: Sequence[str] | None = EDGE_COLUMNS if tag == "EDG" else LAW_COLUMNS if tag == "LAW" else columns.get(tag)
    if names is None:
        known = " ".join(sorted({*columns, *FIXED_TAGS}))
        return Problem(line, 2, "unknown_kind", f"{tag} has no columns here", f"a pipe row needs a declared kind; known: {known}")
    if tag == "EDG" and len(values) == len(EDGE_COLUMNS):
        values.insert(4, "")
    if len(values) != len(names) + 1:
        want = "|".join(["id", *names])
        return Problem(line, 1, "parse_error", f"{tag} has {len(names) + 1} columns, this row {len(values)}", f"@{tag}: {want}")
    id, fields = values[0].strip(" \t"), dict(zip(names, values[1:], strict=True))
    if tag == "EDG":
        return _edge(line, text, op, id, fields)
    if id != "NEW" and is_id(id) is None:
        return Problem(line, 1, "parse_error", f"{id!r} is not an id", "A-Z a-z 0-9 _ . -")
    if tag == "LAW":
        if op == "+" and is_law_id(id) is None:
            return Problem(line, 1, "parse_error", f"{id!r} is not the id of a law", "LAW and a digit, _, . or -")
        return Op(op, "law" if op == "+" else "row", line, text, id, fields=_kept(fields, op), replace=op == "~")
    if id == "NEW" and op == "~":
        return Problem(line, 1, "new_on_update", "NEW names nothing yet", "add creates it")
    if op == "+":
        return Op(op, "node", line, text, None if id == "NEW" else id, tag, fields=_kept(fields, op))
    return Op(op, "row", line, text, id, fields=_kept(fields, op), replace=True)


def _edge(line: int, text: str, op: str, id: str, fields: dict[str, str]) -> Op | Problem:
    src, rel, dst = (fields.pop(key).strip(" \t") for key in ("src", "relation", "dist"))
    bad = next((name for name in (src, dst) if is_id(name) is None), None)
    if bad is not None or (id not in ("", "NEW") and is_id(id) is None):
        return Problem(line, 1, "parse_error", f"{bad if bad is not None else id!r} is not an id", "A-Z a-z 0-9 _ . -")
    if is_relation(rel) is None:
        return Problem(line, 1, "parse_error", f"{rel!r} is not a relation", "A-Z a-z 0-9 _")
    fields = {("note" if key == "attrs" else key): value for key, value in fields.items()}
    if op == "~" and id in ("", "NEW"):
        return Problem(line, 1, "new_on_update", "NEW names nothing yet", "add creates it")
    made = None if id in ("", "NEW") else id
    return Op(op, "edge", line, text, made, "", None, src, rel, dst, _kept(fields, op), replace=op == "~")


def _kept(fields: dict[str, str], op: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if value or op == "~"}


def parse_map(text: str) -> tuple[dict[str, tuple[str, ...]], list[Problem]]:
    """Return the fields after id by kind of an `@TAG: id|f1|f2` map; `#` lines are comments. Its tags are read in capitals."""
    columns: dict[str, tuple[str, ...]] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip(" \t\r")
        if not line or line.startswith("#"):
            continue
        m = _row(line)
        if m is None:
            problems.append(Problem(number, 1, "parse_error", "a map line is @TAG: id|f1|f2", ""))
            continue
        _map_line(number, m[1].upper(), [name.strip(" \t") for name in m[2].split("|")], columns, problems)
    return columns, problems


def _map_line(number: int, tag: str, names: list[str], columns: dict[str, tuple[str, ...]], problems: list[Problem]) -> None:
    if tag in FIXED_TAGS:
        return  # their columns are known, and files written there repeat them
    if tag in RESERVED_TAGS or is_kind(tag) is None:
        problems.append(Problem(number, 2, "reserved_id", f"{tag} is no kind of yours", "choose another"))
    elif tag in columns:
        problems.append(Problem(number, 2, "duplicate_field", f"{tag} twice in one map", "one line a kind"))
    elif names[0] != "id":
        problems.append(Problem(number, 1, "parse_error", "the first column is id", f"@{tag}: id|…"))
    elif any(is_key(name) is None for name in names) or len(set(names)) != len(names):
        problems.append(Problem(number, 1, "parse_error", "column names are words, each once", "A-Z a-z 0-9 _"))
    else:
        columns[tag] = tuple(names[1:])


def is_snapshot(text: str) -> bool:
    """Return whether a text is an `@SNAP: 1` snapshot."""
    return any(line.startswith("@SNAP:") for line in text.removeprefix("\ufeff").split("\n")[:20])


def parse_snapshot(text: str, *, mend: bool = False) -> Snapshot:
    """Return what an `@SNAP: 1` snapshot holds, its records as creates in written order.

    mend: a record that was split by a raw line break in a value is put together again, and named in `mended`.
    """
    snapshot = Snapshot({}, (), [], [])
    relations: list[str] = []
    section = ""
    version_seen = False
    lines: Iterable[tuple[int, str]] = enumerate((raw.removesuffix("\r") for raw in text.removeprefix("\ufeff").split("\n")), 1)
    for number, line in _mended(lines, snapshot) if mend else lines:
        bare = line.strip(" \t")
        if bare.startswith("#"):
            section = bare.lstrip("# ").strip(" \t")
            continue
        if not bare:
            continue
        m = _row(line.lstrip(" \t"))
        if m is None:
            snapshot.problems.append(Problem(number, 1, "parse_error", "not a line of a snapshot", "a value with a line break was written raw"))
            continue
        tag = m[1].upper()
        if tag == "SNAP":
            values = split_row(m[2])
            if values[0] != "1":
                snapshot.problems.append(Problem(number, 1, "parse_error", f"a snapshot of version {values[0]!r}", "version 1 is read"))
            snapshot.session = values[1] if len(values) > 1 else ""
            version_seen = True
        elif tag == "REL":
            relations.append(m[2].strip(" \t"))
        elif section == "map":
            _map_line(number, tag, [name.strip(" \t") for name in m[2].split("|")], snapshot.columns, snapshot.problems)
        else:
            got = _translate(number, line.lstrip(" \t"), "+", snapshot.columns)
            if isinstance(got, Problem):
                snapshot.problems.append(got)
            else:
                snapshot.ops.append(got)
    if not version_seen:
        snapshot.problems.append(Problem(1, 1, "parse_error", "no @SNAP: 1 line", "this is no snapshot"))
    snapshot.relations = tuple(relations)
    return snapshot


def _mended(lines: Iterable[tuple[int, str]], snapshot: Snapshot) -> Iterator[tuple[int, str]]:
    """Yield the lines of a snapshot, a split record as one. What does not begin a row of a known tag goes on with the row above.

    A line that begins one goes on with it too, where that row lacks columns and the line's own do not fit.
    """
    held: list[str] = []
    first = 0
    in_records = False
    for number, line in lines:
        if not in_records:
            in_records = line.strip(" \t#") == "records"
            yield number, line
        elif held and not (_has_columns(line, snapshot, exactly=True) or (_has_columns("\n".join(held), snapshot) and _columns_of(line, snapshot))):
            held.append(line)
        else:
            if held:
                yield first, _joined(held, snapshot)
            first, held = number, [line]
    if held:
        yield first, _joined(held, snapshot)


def _joined(held: list[str], snapshot: Snapshot) -> str:
    while len(held) > 1 and not held[-1].strip(" \t"):
        held.pop()  # the end of the file, or of a value
    if len(held) > 1 and (m := _row(held[0].lstrip(" \t"))) is not None:
        snapshot.mended.append(split_row(m[2])[0].strip(" \t"))
    return "\n".join(held)


def _columns_of(line: str, snapshot: Snapshot) -> int:
    """Return how many columns the row that a line begins has, 0 where it begins none."""
    m = _row(line.lstrip(" \t"))
    tag = "" if m is None else m[1].upper()
    names = EDGE_COLUMNS if tag == "EDG" else LAW_COLUMNS if tag == "LAW" else snapshot.columns.get(tag)
    return 0 if names is None else len(names) + 1


def _has_columns(line: str, snapshot: Snapshot, exactly: bool = False) -> bool:
    """Return whether a line is a row with all its columns; an edge's `at` may lack."""
    wanted = _columns_of(line, snapshot)
    m = _row(line.lstrip(" \t"))
    if not wanted or m is None:
        return False
    count = len(split_row(m[2]))
    return count == wanted or (m[1].upper() == "EDG" and count == wanted - 1) or (not exactly and count > wanted)
