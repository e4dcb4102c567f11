"""What a document of lines says beyond its rows: what they rest on, what replaces them, which key they alone may claim. Pure.

`finish` runs behind whoever decided the rows, and only where a word of it, or the session, makes that worth while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pinfold.entry import Fact
from pinfold.errors import PinfoldError, Refused
from pinfold.state.graph import Edge, Graph, Law, Node, parse_time
from pinfold.state.inputs import (
    DERIVED_FROM,
    SUPERSEDED_BY,
    Input,
    as_rests,
    cycle_refusal,
    fact_mark,
    find_cycle,
    is_outside,
    look_at,
    resolve_inputs,
    row_mark,
    unique_fields,
    unique_key,
)
from pinfold.state.schema import Kind, Schema

if TYPE_CHECKING:
    from pinfold.dialect.parse import Batch
    from pinfold.state.session import SessionState

VALID_FROM, VALID_UNTIL = "valid_from", "valid_until"


def finish(
    state: SessionState,
    facts: list[Fact],
    *,
    now_ms: int,
    inputs: Iterable[Input] | None = None,
    asserted: Collection[str] = (),
    lines: Mapping[str, int] | None = None,
    checks: bool = True,
) -> list[Fact]:
    """Return the facts of a change to rows with what they rest on.

    inputs: of every row the facts put. asserted: edges that a patch named. lines: id -> line, for refusals. checks: False
    where nobody can be refused (expiry). Raises Refused or DocumentRefused: `input_cycle`, `unique_conflict`, `no_such_row`,
    `supersede_cycle`, `bad_time`, `no_such_input`.
    """
    work = _Finish(state, facts, now_ms, lines)
    work.derive(asserted)
    if inputs is not None:
        work.rest([given.record() for given in resolve_inputs(state, inputs, now_ms)])
    work.keep_lost()
    if checks:
        work.check_cycles()
        work.check_fields()
        work.check_unique()
        work.raise_problems()
    return work.facts


def schema_of(state: SessionState, facts: Iterable[Fact]) -> Schema:
    """Return the schema as it is behind these facts."""
    schema = state.schema
    for fact in facts:
        if fact["f"] == "schema.put" and "kind" in fact:
            if schema is state.schema:
                schema = schema.copy()
            extra = {"unique": fact["unique"]} if fact.get("unique") else None
            schema.put(Kind(fact["kind"], tuple(fact.get("fields", ())), bool(fact.get("pin")), extra))
    return schema


class _Finish:
    def __init__(self, state: SessionState, facts: list[Fact], now_ms: int, lines: Mapping[str, int] | None) -> None:
        self.state = state
        self.graph: Graph = state.graph
        self.now_ms = now_ms
        self.lines = lines
        self.facts = facts
        self.puts = {fact["id"]: fact for fact in facts if fact["f"] in ("node.put", "edge.put", "law.put")}
        self.gone = {fact["id"] for fact in facts if fact["f"].endswith(".drop") and "id" in fact} - set(self.puts)
        self.changed: list[str] = []
        self.problems: list[PinfoldError] = []

    def _row(self, id: str) -> Node | Edge | Law | None:
        return None if id in self.gone else self.graph.live(id, self.now_ms)

    def _mark_behind(self, id: str) -> str:
        if id in self.puts:
            return fact_mark(self.puts[id])
        row = self._row(id)
        return "" if row is None else row_mark(row)

    # --- what rows rest on ----------------------------------------------------------------------------------------

    def derive(self, asserted: Collection[str]) -> None:
        """Record, with each edge derived_from, its target as it is behind the facts; one that only moved keeps what it knew."""
        for id in asserted:
            edge = self.graph.edges.get(id)
            if edge is None or edge.rel != DERIVED_FROM or id in self.puts or id in self.gone:
                continue
            put: Fact = {"f": "edge.put", "id": id, "src": edge.src, "rel": edge.rel, "dst": edge.dst, "fields": edge.fields, **(edge.extra or {})}
            put["born"] = edge.born
            if (edge.extra or {}).get("in") != [[f"row:{edge.dst}", self._mark_behind(edge.dst)]]:
                self.puts[id] = put
                self.facts = [*self.facts, put]
        for id, fact in self.puts.items():
            if fact.get("rel") != DERIVED_FROM:
                continue
            known = as_rests(fact.get("in"))
            fresh = "born" not in fact or id in asserted or not known
            mark = self._mark_behind(fact["dst"]) if fresh else known[0][1]
            fact["in"] = [[f"row:{fact['dst']}", mark]]
            self.changed.append(f"row:{fact['src']}")

    def rest(self, records: list[list[Any]]) -> None:
        """Let every row the facts put rest on the same inputs."""
        for id, fact in self.puts.items():
            if fact.get("rel") != DERIVED_FROM:
                kept = [record for record in records if record[0] != f"row:{id}"]
                fact.pop("in", None)
                if kept:
                    fact["in"] = kept
                self.changed.append(f"row:{id}")

    def keep_lost(self) -> None:
        """Let a row whose derived_from edge goes with its target remember that it rested on it."""
        inputs = self.state.inputs
        lost: dict[str, list[list[Any]]] = {}
        for edge_id, dependent in inputs.by_edge.items() if self.gone else ():
            if edge_id in self.gone:
                edge = self.graph.edges.get(edge_id)
                if edge is not None and edge.dst in self.gone:
                    lost.setdefault(dependent[4:], []).append([f"row:{edge.dst}", inputs.given[dependent][edge_id][0][1]])
        for id, fact in self.puts.items():
            # What this turn's housekeeping is about to remove is not to be lost by a patch that does not know of it.
            if "born" in fact and self.graph.expiring and f"row:{id}" in inputs.given:
                for edge_id, known_of in inputs.given[f"row:{id}"].items():
                    edge = self.graph.edges.get(edge_id)
                    if edge is not None and self.graph.is_hidden(edge, self.now_ms) and edge.dst in self.graph.expiring:
                        lost.setdefault(id, []).append([f"row:{edge.dst}", known_of[0][1]])
        for id, records in lost.items():
            put = self.puts.get(id)
            if put is None:
                row = None if id in self.gone else self.graph.row(id)
                if not isinstance(row, Node):
                    continue
                put = {"f": "node.put", "id": id, "kind": row.kind, "fields": row.fields, **(row.extra or {}), "born": row.born}
                self.facts = [*self.facts, put]
            known = {record[0]: list(record) for record in put.get("in") or ()}
            put["in"] = [*known.values(), *(record for record in records if record[0] not in known)]

    def check_cycles(self) -> None:
        if not self.changed:
            return
        own = {f"row:{id}": [record[0] for record in fact.get("in") or ()] for id, fact in self.puts.items() if fact.get("rel") != DERIVED_FROM}
        by_edge: dict[str, list[str]] = {}
        for fact in self.puts.values():
            if fact.get("rel") == DERIVED_FROM:
                by_edge.setdefault(f"row:{fact['src']}", []).append(f"row:{fact['dst']}")
        given = self.state.inputs.given

        def rests(name: str) -> list[str]:
            found = list(by_edge.get(name, ()))
            for origin, records in given.get(name, {}).items():
                if (origin == "" and name in own) or origin in self.puts or origin in self.gone:
                    continue
                found += [record[0] for record in records]
            return found + own.get(name, [])

        cycle = find_cycle(dict.fromkeys(self.changed), rests)
        if cycle is not None:
            self._problem(next((id for id in self._edges_on(cycle)), cycle[0][4:]), cycle_refusal(cycle))

    def _edges_on(self, cycle: list[str]) -> list[str]:
        pairs = set(pairwise(cycle))
        return [id for id, fact in self.puts.items() if fact.get("rel") == DERIVED_FROM and (f"row:{fact['src']}", f"row:{fact['dst']}") in pairs]

    # --- what replaces them, when they hold -------------------------------------------------------------------------

    def check_fields(self) -> None:
        for id, fact in self.puts.items():
            fields = fact.get("fields") or {}
            row = self.graph.row(fact.get("was") or id)
            by = fields.get(SUPERSEDED_BY)
            if by and (row is None or row.get(SUPERSEDED_BY) != by or by in self.gone):
                self._check_superseded(id, by)
            for name in (VALID_FROM, VALID_UNTIL):
                if name in fields and parse_time(fields[name]) is None:
                    hint = "2026-11-30 or 2026-11-30T15:00:00Z"
                    self._problem(id, Refused(f"{name}={fields[name][:40]} of {id} is no ISO 8601 time", code="bad_time", hint=hint))

    def _check_superseded(self, id: str, by: str) -> None:
        if by not in self.puts and self._row(by) is None:
            self._problem(id, Refused(f"{id} cannot be superseded by {by}: there is no such row", code="no_such_row", hint="create it first", id=by))
            return
        path = [id]
        following: str | None = by
        while following and following not in path:
            path.append(following)
            put = self.puts.get(following)
            following = self.state.inputs.superseded.get(following) if put is None else (put.get("fields") or {}).get(SUPERSEDED_BY)
        if following:
            path.append(following)
            told = " -> ".join(path)
            self._problem(id, Refused(f"rows cannot supersede each other: {told}", code="supersede_cycle", hint="let one of them stand", path=path))

    def check_unique(self) -> None:
        """Refuse a row put under a key that another live row of its kind claims."""
        schema = schema_of(self.state, self.facts)
        index = self.state.inputs.unique
        here: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for id, fact in self.puts.items():
            fields = fact.get("fields") or {}
            if fact["f"] == "node.put" and not fields.get(SUPERSEDED_BY):
                claimed = unique_key(unique_fields(schema, fact["kind"]), fields)
                if claimed is not None:
                    here.setdefault((fact["kind"], claimed), []).append(id)
        for (kind, claimed), ids in here.items():
            others = [id for id in index.get(kind, {}).get(claimed, ()) if id not in self.puts and self.is_live(id)]
            if len(others) + len(ids) < 2:
                continue
            first = (others or ids)[0]
            for id in ids if others else ids[1:]:
                told = " ".join(f"{name}={value}" for name, value in zip(unique_fields(schema, kind), claimed, strict=True))
                hint = f"patch {first}, or create the new one under an id of its own, with ~ [{first}] ; superseded_by=ID"
                self._problem(id, Refused(f"{first} is the {kind} with {told}", code="unique_conflict", hint=hint, rows=[first, id]))

    def is_live(self, id: str) -> bool:
        return id not in self.state.inputs.superseded and self._row(id) is not None

    # --- refusing -----------------------------------------------------------------------------------------------------

    def _problem(self, id: str, refusal: Refused) -> None:
        refusal.fields["row"] = id
        self.problems.append(refusal)

    def raise_problems(self) -> None:
        if not self.problems:
            return
        if self.lines is None:
            raise self.problems[0]
        from pinfold.dialect.parse import Problem
        from pinfold.state.mutate import refuse

        refusal = refuse([Problem(self.lines.get(p.fields["row"], 1), 1, p.code, p.message, p.hint) for p in self.problems])
        refusal.fields.update({name: value for name, value in self.problems[0].fields.items() if name != "row"})
        raise refusal


def lines_of(batch: Batch, minted: Mapping[str, str]) -> dict[str, int]:
    """Return id -> the line of a document that first writes it."""
    found: dict[str, int] = {}
    unlabelled = 0
    for op in batch.ops:
        id = op.id
        if op.op == "+" and op.id is None:
            unlabelled += op.label is None
            id = minted.get(op.label or f"#{unlabelled}")
        for name in (op.fields.get("id"), id):
            if name:
                found.setdefault(name, op.line)
    return found


def asserted_in(batch: Batch, graph: Graph) -> set[str]:
    """Return the derived_from edges that patches of a document name."""
    found: set[str] = set()
    for op in batch.ops:
        if op.op == "~":
            edge = graph.edges.get(op.id) if op.id is not None else graph.edge_between(op.src, op.rel, op.dst)
            if edge is not None and edge.rel == DERIVED_FROM:
                found.add(edge.id)
    return found


def decide_supersede(state: SessionState, old: str, new: str, now_ms: int) -> list[Fact]:
    """Return the facts by which old leaves pin maps and lists in favour of new. Raises Refused `no_such_row`, `supersede_cycle`."""
    graph = state.graph
    for id in (old, new):
        if graph.live(id, now_ms) is None:
            raise Refused(f"no row {id}", code="no_such_row", hint="read it first: its id may have changed", id=id)
    if old == new:
        raise Refused(f"{old} cannot supersede itself", code="supersede_cycle", hint="name two rows", path=[old, new])
    row = graph.row(old)
    assert row is not None
    if row.get(SUPERSEDED_BY) == new:
        return []
    return finish(state, [{**_row_again(graph, old), "fields": {**row.fields, SUPERSEDED_BY: new}}], now_ms=now_ms)


def decide_reaffirm(state: SessionState, names: Iterable[str], fresh: Mapping[str, Input], now_ms: int) -> tuple[list[Fact], list[str]]:
    """Return the facts by which dependents rest on their inputs as these are now, and which: somebody looked, and they still hold.

    fresh: marks of inputs outside the session, as they are now. An input that is gone is left out from here on; one that was
    superseded gives way to what took its place.
    """
    graph, facts, done = state.graph, [], []
    for name in dict.fromkeys(names):
        origins = state.inputs.given.get(name)
        if origins is None:
            continue
        done.append(name)
        for origin, records in origins.items():
            now = [found.record() for rest in records if (found := as_now(state, rest, fresh, now_ms)) is not None]
            if now == [Input(*rest).record() for rest in records]:
                continue
            put = _slot_again(state, name[5:]) if name.startswith("slot:") else _row_again(graph, origin or name[4:])
            put.pop("in", None)
            if now or origin:
                put["in"] = now
            facts.append(put)
    return facts, done


def as_now(state: SessionState, rest: tuple[str, str, Any], fresh: Mapping[str, Input], now_ms: int) -> Input | None:
    """Return an input as it is now, None where it is gone; what took the place of a superseded row stands for it."""
    name = rest[0]
    if is_outside(name):
        return fresh.get(name)
    fault, mark = look_at(state, name, now_ms)
    while fault.startswith("superseded"):
        name = f"row:{fault.rpartition(' ')[2]}"
        fault, mark = look_at(state, name, now_ms)
    if fault:
        return None
    return Input(name, mark or rest[1])


def _slot_again(state: SessionState, key: str) -> Fact:
    from pinfold.state.value import value_fields

    slot = state.silo.slots[key]
    fact: Fact = {"f": "slot.put", "k": key, "i": slot.index, **value_fields(slot.value), **(slot.extra or {})}
    return fact if slot.expires_at_ms is None else {**fact, "x": slot.expires_at_ms}


def _row_again(graph: Graph, id: str) -> Fact:
    row = graph.row(id)
    fact: Fact
    if isinstance(row, Node):
        fact = {"f": "node.put", "id": id, "kind": row.kind}
    elif isinstance(row, Edge):
        fact = {"f": "edge.put", "id": id, "src": row.src, "rel": row.rel, "dst": row.dst}
    else:
        assert row is not None
        fact = {"f": "law.put", "id": id}
    return {**fact, **(row.extra or {}), "fields": row.fields, "born": row.born}


def find_conflicts(state: SessionState, now_ms: int) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Return (kind, key, ids) wherever two or more live rows claim one unique key, in order of kind and key."""
    found = []
    for kind in sorted(state.inputs.unique):
        for claimed, ids in sorted(state.inputs.unique[kind].items()):
            live = [id for id in ids if id not in state.inputs.superseded and state.graph.live(id, now_ms) is not None]
            if len(live) > 1:
                found.append((kind, claimed, sorted(live)))
    return found


def validity_of(row: Node | Edge | Law) -> tuple[int | None, int | None] | None:
    """Return (valid_from, valid_until) in Unix ms, None at an open end; None for a row that says nothing of it."""
    if VALID_FROM not in row.keys and VALID_UNTIL not in row.keys:
        return None
    held = parse_time(row.get(VALID_FROM)), parse_time(row.get(VALID_UNTIL))
    return None if held == (None, None) else held


def overlaps(held: tuple[int | None, int | None], since_ms: int | None, until_ms: int | None) -> bool:
    """Return whether something that held in [start, end) did so at some time in [since, until); None is an open end."""
    start, end = held
    return (since_ms is None or end is None or end > since_ms) and (until_ms is None or start is None or start < until_ms)


def not_valid_at(graph: Graph, at_ms: int) -> set[str]:
    """Return the ids of rows that say they did not hold at a time. Reads only rows whose shape has such fields."""
    if not any(VALID_FROM in keys or VALID_UNTIL in keys for keys in graph._shapes):
        return set()
    return {row.id for row in graph.rows() if (held := validity_of(row)) is not None and not overlaps(held, at_ms, at_ms + 1)}


def is_within(row: Node | Edge | Law, since_ms: int | None, until_ms: int | None) -> bool:
    """Return whether a row held at some time in [since, until); a row that does not say counts by its last write."""
    held = validity_of(row)
    return overlaps((row.mark[1], row.mark[1] + 1) if held is None else held, since_ms, until_ms)
