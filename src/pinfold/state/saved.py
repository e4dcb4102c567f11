"""A session as one text file: `session save` and `session load`. Lossless, and every row of it a line of the dialect.

    # pinfold snapshot 1
    # pinfold session=demo ; seq=41 ; graph_seq=41 ; schema_seq=2 ; born=77
    # pinfold counters ; TSK=3 ; E=12
    SCHEMA TSK ; fields=id goal status
    ## Nodes
    # pinfold row seq=3 ; at_ms=1700000000000 ; by=ada ; born=0
    TSK [TSK1] ; goal=ship
    SLOT key=… ; value=…

A `row` line says who wrote the rows behind it, when, at which seq; the rows behind the first of them count their births on.
Slots are the caller's: their fields come and go as text. Promises are not saved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from pinfold import limits
from pinfold.dialect.format import format_fields, format_value
from pinfold.dialect.parse import Op, Problem, fields_of, is_key, parse_rows
from pinfold.state.graph import Graph, line_of
from pinfold.state.mutate import refuse
from pinfold.state.schema import Kind, Schema

HEAD = "# pinfold snapshot 1"
_NOTE = "# pinfold "


class Saved(msgspec.Struct):
    """What a saved session holds. head: the fields of its first note; slots: those of each SLOT line, in order."""

    session: str
    seq: int
    head: dict[str, str]
    graph: Graph
    schema: Schema
    slots: list[dict[str, str]]


def whole(text: str) -> int:
    """Return a count, seq or time of a saved file. Raises ValueError where it is none: below 0, or too large to be kept."""
    number = int(text)
    if not 0 <= number < 1 << 53:
        raise ValueError(f"{text[:40]} is not possible")
    return number


def is_saved(text: str) -> bool:
    """Return whether a text is a saved session of this pinfold."""
    return text.removeprefix("\ufeff").startswith(HEAD)


def format_saved(
    graph: Graph, schema: Schema, *, session: str, seq: int, more: Mapping[str, str] | None = None, slots: Iterable[Mapping[str, str]] = ()
) -> Iterator[str]:
    """Yield the lines of a session's file, without line ends. more: what else its head says."""
    yield HEAD
    head = {"session": session, "seq": str(seq), "graph_seq": str(graph.seq), "schema_seq": str(schema.seq), "born": str(graph.born)}
    yield _NOTE + format_fields({**head, **(more or {})})
    if graph.counters:
        yield f"{_NOTE}counters ; {format_fields((k, str(v)) for k, v in graph.counters.items())}"
    if graph.long_digits:
        yield f"{_NOTE}long_digits ; {format_fields((k, str(v)) for k, v in graph.long_digits.items())}"
    yield from schema.lines()
    for kind in schema.kinds.values():
        if kind.extra:
            yield f"{_NOTE}kind ; name={kind.name} ; extra={format_value(json.dumps(kind.extra))}"
    for title, rows in (("## Laws", graph.laws), ("## Nodes", graph.nodes), ("## Edges", graph.edges)):
        if rows:
            yield title
        told: object = None  # what the last note says of the next row
        for row in rows.values():
            if (row.mark, row.born) != told or row.extra:
                note = {"seq": str(row.mark[0]), "at_ms": str(row.mark[1]), "by": row.mark[2] or "", "born": str(row.born)}
                if row.extra:
                    note["extra"] = json.dumps(row.extra)
                yield f"{_NOTE}row {format_fields(note)}"
            told = None if row.extra else (row.mark, row.born + 1)  # extra is of its row alone
            yield line_of(row)
    for slot in slots:
        yield f"SLOT {format_fields(slot)}"


def parse_saved(text: str) -> Saved:
    """Return the session of a saved file. Raises DocumentRefused with every problem: what does not parse, doubles, loose ends."""
    lines = text.removeprefix("\ufeff").split("\n")
    problems: list[Problem] = []
    if not lines[0].startswith(HEAD):
        raise refuse([Problem(1, 1, "parse_error", "not a saved session", f"it begins with {HEAD}")])
    head: dict[str, str] = {}
    tables: dict[str, dict[str, str]] = {}
    kinds: list[dict[str, str]] = []
    notes: list[tuple[int, dict[str, str]]] = []
    slots: list[dict[str, str]] = []
    for at, line in enumerate(lines):
        note = line.startswith(_NOTE)
        if not note and not line.startswith("SLOT "):
            continue
        lines[at] = ""
        if at == 0:
            continue
        body = line.removesuffix("\r")[len(_NOTE) if note else 5 :]
        name, _, rest = body.partition(" ")
        named = note and (is_key(name) is not None)
        got = fields_of(rest if named else body, limits.VALUE_BYTES)
        if got is None:
            problems.append(Problem(at + 1, 1, "parse_error", "not a line of a saved session", "save it again"))
        elif not note:
            slots.append(got)
        elif not named:
            head.update(got)
        elif name == "row":
            notes.append((at + 1, got))
        elif name == "kind":
            kinds.append(got)
        else:
            tables[name] = got
    batch = parse_rows(lines)
    problems.extend(batch.problems)
    problems.extend(_not_present(line) for line, _ in batch.pipes)
    if problems:
        raise refuse(problems)
    try:
        schema = _schema(batch.ops, head, kinds)
        graph = _graph(batch.ops, head, tables, notes)
        return Saved(head.get("session", ""), whole(head["seq"]), head, graph, schema, slots)
    except (KeyError, ValueError, TypeError) as error:
        raise refuse([Problem(1, 1, "parse_error", f"the file is damaged: {error!r}", "save it again")]) from error


def _not_present(line: int) -> Problem:
    return Problem(line, 1, "parse_error", "a saved session holds present lines only", "take this one out, and write it with mutate later")


def _schema(ops: list[Op], head: dict[str, str], kinds: list[dict[str, str]]) -> Schema:
    extras = {note["name"]: json.loads(note["extra"]) for note in kinds}
    schema = Schema()
    schema.seq = whole(head["schema_seq"])
    for op in ops:
        if op.form != "schema":
            continue
        if op.kind == "relations":
            schema.relations = tuple(op.fields.get("names", "").split())
        else:
            fields = tuple(name for name in op.fields.get("fields", "").split() if name != "id")
            schema.put(Kind(op.kind, fields, op.fields.get("pin") == "true", extras.get(op.kind)))
    return schema


def _graph(ops: list[Op], head: dict[str, str], tables: dict[str, dict[str, str]], notes: list[tuple[int, dict[str, str]]]) -> Graph:
    """Return the graph of a file's rows, by way of columns as `Graph.dump` has them: lists made in one go, since these files are large."""
    problems: list[Problem] = []
    marks: dict[tuple[int, int, str | None], int] = {}
    rows: dict[str, list[Op]] = {"node": [], "edge": [], "law": []}
    columns: dict[str, dict[str, Any]] = {form: {"mark": [], "born": [], "extra": {}} for form in rows}
    adders = {form: (rows[form].append, columns[form]["mark"].append, columns[form]["born"].append) for form in rows}
    ahead = iter([*notes, (1 << 60, {})])
    next_line, next_note = next(ahead)
    mark, born = marks.setdefault((0, 0, None), 0), 0
    for op in ops:
        form = op.form
        if form == "schema":
            continue
        if op.id is None or (op.op and not (op.op == "+" and form == "law")):
            problems.append(_not_present(op.line))
            continue
        if op.line > next_line:
            while op.line > next_line:
                note = next_note
                next_line, next_note = next(ahead)
            mark = marks.setdefault((whole(note["seq"]), whole(note["at_ms"]), note.get("by") or None), len(marks))
            born = whole(note["born"])
            if "extra" in note:
                columns[form]["extra"][str(len(rows[form]))] = json.loads(note["extra"])
        add_row, add_mark, add_born = adders[form]
        add_row(op)
        add_mark(mark)
        add_born(born)
        born += 1
    names: dict[str, int] = {}
    shapes: dict[tuple[str, ...], int] = {}
    for form, of_form in rows.items():
        columns[form]["id"] = [op.id for op in of_form]
        columns[form]["shape"] = [shapes.setdefault(tuple(op.fields), len(shapes)) for op in of_form]
        columns[form]["values"] = [value for op in of_form for value in op.fields.values()]
    nodes, edges = columns["node"], columns["edge"]
    place = {id: at for at, id in enumerate(nodes["id"])}
    nodes["kind"] = [names.setdefault(op.kind, len(names)) for op in rows["node"]]
    edges["src"] = [place.get(op.src) for op in rows["edge"]]
    edges["rel"] = [names.setdefault(op.rel, len(names)) for op in rows["edge"]]
    edges["dst"] = [place.get(op.dst) for op in rows["edge"]]
    ids = {*nodes["id"], *edges["id"], *columns["law"]["id"]}
    triples = set(zip(edges["src"], edges["rel"], edges["dst"], strict=True))
    if len(ids) < sum(map(len, rows.values())) or len(triples) < len(rows["edge"]) or None in edges["src"] or None in edges["dst"]:
        problems += _loose(rows, place)
    if problems:
        raise refuse(sorted(problems, key=lambda problem: problem.line))
    numbers = {name: {key: whole(value) for key, value in tables.get(name, {}).items()} for name in ("counters", "long_digits")}
    return Graph.load(
        {
            "v": 1, "seq": whole(head["graph_seq"]), "born": whole(head["born"]), **numbers, "marks": list(marks), "shapes": list(shapes), "names": list(names),
            "nodes": nodes, "edges": edges, "laws": columns["law"],
        }
    )  # fmt: skip


def _loose(rows: dict[str, list[Op]], place: Mapping[str, int]) -> Iterator[Problem]:
    """Yield what is wrong with rows that are there twice, and edges that end nowhere. place: has the ids of nodes."""
    seen: set[str | None] = set()
    triples: set[tuple[str, str, str]] = set()
    for op in sorted((op for of_form in rows.values() for op in of_form), key=lambda op: op.line):
        if op.id in seen:
            yield Problem(op.line, 1, "id_exists", f"{op.id} is there twice", "keep one of the lines")
            continue
        seen.add(op.id)
        if op.form == "edge":
            for end in (op.src, op.dst):
                if end not in place:
                    yield Problem(op.line, 1, "no_such_node", f"no node {end}", "put its line back, or take this one out")
            if (op.src, op.rel, op.dst) in triples:
                yield Problem(op.line, 1, "edge_exists", f"[{op.src}] --({op.rel})--> [{op.dst}] is there twice", "keep one of the lines")
            triples.add((op.src, op.rel, op.dst))
