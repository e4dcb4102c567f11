"""Reading rows by id or by what their fields say, a page at a time.

A filter is written `status=open and prio>=3 or goal=*ship*`: `and` binds tighter than `or`; = and != take * and ? as
wildcards; < <= > >= compare as numbers where both sides are numbers, else as text. A missing field is the empty text.
Programs may give {"prio": {"$gte": 3}} instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from pinfold import limits
from pinfold.dialect.parse import is_number
from pinfold.errors import Refused
from pinfold.state.graph import Edge, Graph, Law, Node, line_of, parse_time
from pinfold.state.resting import is_within
from pinfold.state.schema import Schema, near_ids

AnyRow = Node | Edge | Law
Predicate = Callable[[AnyRow], bool]


class Item(msgspec.Struct, frozen=True):
    """A row as it reads: its line, and who wrote it last, when (Unix ms) and at which seq. because: why it is stale, () where it holds."""

    id: str
    line: str
    seq: int
    at_ms: int
    actor: str | None
    because: tuple[str, ...] = ()


class Got(msgspec.Struct, frozen=True):
    """Rows in the order asked for; missing ids with the ids near them."""

    items: list[Item]
    missing: dict[str, list[str]]


class Found(msgspec.Struct, frozen=True):
    """A page of rows, oldest first. total: all that match. cursor: "" on the last page."""

    items: list[Item]
    total: int
    cursor: str


def item_of(row: AnyRow, schema: Schema | None = None) -> Item:
    """Return a row as it reads."""
    return Item(row.id, line_of(row, schema), *row.mark)


def get(graph: Graph, ids: Iterable[str], *, now_ms: int, schema: Schema | None = None) -> Got:
    """Return the rows of the ids, each once."""
    items: list[Item] = []
    missing: dict[str, list[str]] = {}
    for id in dict.fromkeys(ids):
        row = graph.live(id, now_ms)
        if row is not None:
            items.append(item_of(row, schema))
        else:
            missing[id] = near_ids(id, lambda other: graph.live(other, now_ms) is not None, kinds=graph.kinds) if len(missing) < 20 else []
    return Got(items, missing)


def find(
    graph: Graph,
    *,
    now_ms: int,
    schema: Schema | None = None,
    form: str = "node",
    kind: str | Collection[str] | None = None,
    relation: str | Collection[str] | None = None,
    where: str | Mapping[str, Any] | Sequence[str] | None = None,
    active_only: bool = False,
    limit: int = limits.LIST_ROWS,
    cursor: str = "",
    without: Collection[str] = (),
    since: str = "",
    until: str = "",
) -> Found:
    """Return the rows that match, oldest first.

    form: node, edge, law or any; kind means nodes, relation edges. where: a filter, or several that must all hold.
    active_only: without rows that are settled. without: ids left out. since, until: ISO times, see `is_within`.
    Raises Refused bad_where, bad_argument.
    """
    if limit < 0:
        raise Refused(f"limit={limit}", code="bad_argument", hint="a number of rows is 0 or more")
    if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise Refused("the cursor is none that a page gave", code="bad_argument", hint="begin again without a cursor")
    matches = predicate(where)
    kinds = None if kind is None else (kind,) if isinstance(kind, str) else tuple(kind)
    relations = None if relation is None else (relation,) if isinstance(relation, str) else tuple(relation)
    rows: list[AnyRow] = []
    if kinds is not None:
        rows.extend(graph.nodes[id] for name in dict.fromkeys(kinds) for id in graph.kinds.get(name, ()))
    elif relations is not None:
        rows.extend(graph.edges[id] for name in dict.fromkeys(relations) for id in graph.relations.get(name, ()))
    elif form == "any":
        rows.extend(graph.rows())
    elif form in ("node", "edge", "law"):
        rows.extend((graph.nodes if form == "node" else graph.edges if form == "edge" else graph.laws).values())
    else:
        raise Refused(f"form={form}", code="bad_argument", hint="node, edge, law or any")
    found = [
        row for row in rows if not graph.is_hidden(row, now_ms) and (matches is None or matches(row)) and not (active_only and row.get("status") == "settled")
    ]
    if without:
        found = [row for row in found if row.id not in without]
    if since or until:
        since_ms, until_ms = _time(since), _time(until)
        found = [row for row in found if is_within(row, since_ms, until_ms)]
    found.sort(key=lambda row: row.born)
    after = int(cursor) if cursor else -1
    page = [row for row in found if row.born > after]
    shown = page[: min(limit, limits.LIST_ROWS_MAX)]
    more = len(page) > len(shown)
    return Found([item_of(row, schema) for row in shown], len(found), str(shown[-1].born) if more and shown else "")


def _time(text: str) -> int | None:
    at_ms = parse_time(text) if text else None
    if text and at_ms is None:
        raise Refused(f"{text!r} is no ISO 8601 time", code="bad_argument", hint="2026-11-30 or 2026-11-30T15:00:00Z")
    return at_ms


# --- filters -----------------------------------------------------------------------------------------------------


def predicate(where: str | Mapping[str, Any] | Sequence[str] | None) -> Predicate | None:
    """Return what tells whether a row matches, None where everything does. Raises Refused bad_where."""
    if where is None or where == "" or where == {} or where == []:
        return None
    if isinstance(where, str):
        return _parsed(where)
    if isinstance(where, Mapping):
        return _all([_of_mapping(key, value) for key, value in where.items()])
    if not isinstance(where, (list, tuple)) or not all(isinstance(part, str) for part in where):
        raise Refused(f"where is a {type(where).__name__} of something else than filters", code="bad_where", hint='prio>=3, or {"prio": {"$gte": 3}}')
    return _all([_parsed(part) for part in where])


def _all(tests: list[Predicate]) -> Predicate:
    return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)


def _any(tests: list[Predicate]) -> Predicate:
    return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)


_joint = re.compile(r"[ \t]+(and|or)[ \t]+", re.IGNORECASE)
_compare = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_]{0,63})[ \t]*(!=|<=|>=|=|<|>)[ \t]*")
_quoted = re.compile(r'"((?:[^"\\]|\\.)*)"[ \t]*(?=$|[ \t](?:and|or)[ \t])', re.IGNORECASE)


def _parsed(text: str) -> Predicate:
    either: list[Predicate] = []
    both: list[Predicate] = []
    at = 0
    while True:
        m = _compare.match(text, at)
        if m is None:
            hint = "field=value, field!=value, field>=3; joined by and, or"
            raise Refused(f"not a filter at column {at + 1}: {text!r}", code="bad_where", hint=hint, column=at + 1)
        quoted = _quoted.match(text, m.end())
        if quoted is not None:
            value, end = re.sub(r"\\(.)", r"\1", quoted[1]), quoted.end()
            joint = _joint.match(text, end - (end > 0 and text[end - 1 : end] in " \t"))
            both.append(comparison(m[1], m[2], value, wild=False))
        else:
            joint = _joint.search(text, m.end())
            both.append(comparison(m[1], m[2], text[m.end() : joint.start() if joint else len(text)].strip(" \t")))
        if joint is None:
            break
        if joint[1].lower() == "or":
            either.append(_all(both))
            both = []
        at = joint.end()
    either.append(_all(both))
    return _any(either)


_OPERATORS = {"$eq": "=", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def _of_mapping(key: str, value: Any) -> Predicate:
    if isinstance(value, (list, tuple)):
        raise Refused(f"{key} is compared with a list", code="bad_where", hint="$in takes a list")
    if not isinstance(value, Mapping):
        return comparison(key, "=", _text(value), wild=False)
    tests: list[Predicate] = []
    for name, operand in value.items():
        if name == "$in":
            if isinstance(operand, (str, bytes, Mapping)) or not isinstance(operand, Collection):
                raise Refused(f"$in of {key} is no list", code="bad_where", hint='{"status": {"$in": ["open", "done"]}}')
            wanted = frozenset(_text(v) for v in operand)
            tests.append(lambda row, wanted=wanted: value_of(row, key) in wanted)  # type: ignore[misc]
        elif name in _OPERATORS:
            tests.append(comparison(key, _OPERATORS[name], _text(operand), wild=False))
        else:
            raise Refused(f"{name} is no operator", code="bad_where", hint=f"{' '.join(_OPERATORS)} $in")
    return _all(tests) if tests else (lambda row: True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def value_of(row: AnyRow, key: str) -> str:
    """Return a field, or what every row has under its own name: id, kind, source, relation, target."""
    value = row.get(key)
    if value:
        return value
    if key == "id":
        return row.id
    if isinstance(row, Node):
        return row.kind if key == "kind" else ""
    if isinstance(row, Edge):
        return row.src if key == "source" else row.rel if key == "relation" else row.dst if key == "target" else ""
    return ""


@lru_cache(maxsize=256)
def _glob(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a whole text matches. Each part between stars is looked for once, leftmost: linear, whatever the pattern."""
    parts = [re.compile("".join("(?s:.)" if c == "?" else re.escape(c) for c in part)) for part in re.split(r"\*+", pattern)]
    if len(parts) == 1:
        return lambda text: parts[0].fullmatch(text) is not None
    tail = len(re.split(r"\*+", pattern)[-1])

    def matches(text: str) -> bool:
        head = parts[0].match(text)
        end = len(text) - tail
        if head is None or end < head.end() or parts[-1].fullmatch(text, end) is None:
            return False
        at = head.end()
        for part in parts[1:-1]:
            m = part.search(text, at, end)
            if m is None:
                return False
            at = m.end()
        return True

    return matches


def comparison(key: str, operator: str, operand: str, *, wild: bool = True) -> Predicate:
    """Return the test of one field. wild: * and ? in the operand of = and != are wildcards, case counts."""
    if operator in ("=", "!="):
        want = operator == "="
        if wild and ("*" in operand or "?" in operand):
            matches = _glob(operand)
            return lambda row: matches(value_of(row, key)) is want
        return lambda row: (value_of(row, key) == operand) is want
    number = Decimal(operand) if is_number(operand) else None

    def test(row: AnyRow) -> bool:
        value = value_of(row, key)
        if not value:
            return False
        if number is not None:
            if is_number(value) is None:
                return False
            order = (Decimal(value) > number) - (Decimal(value) < number)
        else:
            order = (value > operand) - (value < operand)
        return order < 0 if operator == "<" else order <= 0 if operator == "<=" else order > 0 if operator == ">" else order >= 0

    return test
