"""A graph as it would be: changes laid over one that stays as it is, and the facts that make them so.

A draft costs what is changed in it, never what the graph holds. Every decide_* that changes rows goes through one, so
that cascades, counters and the order of facts are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pinfold.dialect.format import format_edge, format_law, format_node
from pinfold.entry import Fact
from pinfold.state.graph import Edge, Graph, Law, Node, Row, counted_forms, line_of, shown_fields
from pinfold.state.schema import Schema

NEW_BORN = 1 << 62
"""Rows of the draft rank behind all rows of the graph."""


class Work(msgspec.Struct, gc=False):
    """A row of the draft: new (base None), or changed from its base. born ranks it among the edges of a node.

    line: of the document, where it was first touched. shown: it is in the answer. gone: dropped, or never to be written.
    """

    form: str
    id: str
    fields: dict[str, str]
    line: int
    born: int
    base: Row | None = None
    kind: str = ""
    src: str = ""
    rel: str = ""
    dst: str = ""
    minted: int | None = None
    shown: bool = False
    gone: bool = False

    def get(self, key: str) -> str:
        """Return a field's value, "" where there is none."""
        return self.fields.get(key, "")


AnyRow = Work | Node | Edge | Law
_FORMS = {Node: "node", Edge: "edge", Law: "law"}


class Draft:
    """Changes over a graph at now_ms; rows whose time is over read as absent."""

    def __init__(self, graph: Graph, schema: Schema, now_ms: int) -> None:
        self.graph = graph
        self.old_schema = schema
        self.schema = schema
        self.now_ms = now_ms
        self.rows: dict[str, Work | None] = {}
        self.works: list[Work] = []
        self.shown: list[Work] = []
        self.touched_base: dict[str, tuple[Row, int]] = {}
        self.left: dict[str, str] = {}
        self.removed: dict[str, None] = {}
        self.created = 0
        self._base_edges: set[str] = set()
        self._adjacency: dict[str, dict[str, Work]] = {}
        self._triples: dict[tuple[str, str, str], Work] = {}
        # Edges attached since somebody last asked for those of a node: most documents never ask.
        self._unplaced: list[Work] = []
        self._counters: dict[str, int] = {}
        self._gone_numbers: dict[str, int] = {}

    # --- reading --------------------------------------------------------------------------------------------------

    def peek(self, id: str) -> AnyRow | None:
        """Return the row of an id as it now is, without taking it into the draft."""
        if id in self.rows:
            return self.rows[id]
        return self.graph.live(id, self.now_ms)

    def edges_of(self, id: str) -> list[Work | Edge]:
        """Return every edge of a node once, oldest first, hidden ones too."""
        self._place()
        taken = self._base_edges
        found: list[Work | Edge] = [e for e in self.graph.edges_of(id) if e.id not in taken]
        found.extend(self._adjacency.get(id, {}).values())
        found.sort(key=lambda e: e.born)
        return found

    def between(self, src: str, rel: str, dst: str) -> Work | Edge | None:
        """Return the edge of a triple, hidden or not."""
        work = self._triples.get((src, rel, dst))
        if work is not None:
            return work
        edge = self.graph.edge_between(src, rel, dst)
        return None if edge is None or edge.id in self._base_edges else edge

    def is_hidden(self, row: AnyRow) -> bool:
        """Return whether the time of a row of the graph is over; a row of the draft is always seen."""
        return not isinstance(row, Work) and self.graph.is_hidden(row, self.now_ms)

    def line(self, row: AnyRow) -> str:
        """Return a row's present line."""
        if not isinstance(row, Work):
            return line_of(row, self.schema)
        if row.form == "node":
            if row.kind in self.schema.kinds:
                return format_node(row.id, row.kind, shown_fields(self.schema, row.kind, tuple(row.fields), tuple(row.fields.values())))
            return format_node(row.id, row.kind, row.fields)
        if row.form == "edge":
            return format_edge(row.id, row.src, row.rel, row.dst, row.fields)
        return format_law(row.id, row.fields)

    # --- changing -------------------------------------------------------------------------------------------------

    def take(self, row: AnyRow, line: int = 0) -> Work:
        """Return the draft's own version of a row, to be changed."""
        if isinstance(row, Work):
            return row
        work = Work(_FORMS[type(row)], row.id, row.fields, line, row.born, row)
        self.touched_base.setdefault(row.id, (row, line))
        if isinstance(row, Node):
            work.kind = row.kind
        elif isinstance(row, Edge):
            work.src, work.rel, work.dst = row.src, row.rel, row.dst
            self._base_edges.add(row.id)
            self.attach(work)
        self.rows[row.id] = work
        self.works.append(work)
        return work

    def enter(self, work: Work) -> None:
        """Add a new row, which is part of the answer."""
        self.created += 1
        self.rows[work.id] = work
        self.works.append(work)
        work.shown = True
        self.shown.append(work)

    def show(self, work: Work) -> None:
        """Make a row part of the answer."""
        if not work.shown:
            work.shown = True
            self.shown.append(work)

    def attach(self, edge: Work) -> None:
        """Make an edge of the draft known at its ends."""
        self._unplaced.append(edge)
        self._triples[(edge.src, edge.rel, edge.dst)] = edge

    def _place(self) -> None:
        adjacency = self._adjacency
        for edge in self._unplaced:
            for end in (edge.src, edge.dst):
                adjacency.setdefault(end, {})[edge.id] = edge
        self._unplaced.clear()

    def detach(self, edge: Work) -> None:
        """Take an edge of the draft away from its ends."""
        self._place()
        for end in (edge.src, edge.dst):
            at = self._adjacency.get(end)
            if at is not None:
                at.pop(edge.id, None)
        key = (edge.src, edge.rel, edge.dst)
        if self._triples.get(key) is edge:
            del self._triples[key]

    def remove(self, row: AnyRow, line: int = 0) -> None:
        """Drop a row, and the edges of a node behind it, oldest first."""
        edges = self.edges_of(row.id)
        self.remove_one(row, line)
        for edge in edges:
            self.remove_one(edge, line)

    def remove_one(self, row: AnyRow, line: int = 0) -> None:
        """Drop a row alone."""
        if isinstance(row, Work):
            if row.form == "edge":
                self.detach(row)
            row.gone = True
        else:
            self.touched_base.setdefault(row.id, (row, line))
            if isinstance(row, Edge):
                self._base_edges.add(row.id)
        self._leave(row.id, form_of(row))
        self.removed.pop(row.id, None)
        self.removed[row.id] = None

    def _leave(self, id: str, form: str) -> None:
        """An id that is no more moves the counters at once, as its fact will when it is applied."""
        self.rows[id] = None
        self.left[id] = form
        for prefix, number in counted_forms(id):
            self._gone_numbers[prefix] = max(number, self._gone_numbers.get(prefix, 0))

    def free(self, id: str, line: int = 0) -> bool:
        """Return whether an id may be taken; a row whose time is over makes way, with its edges."""
        if id in self.rows:
            return self.rows[id] is None
        row = self.graph.row(id)
        if row is None:
            return True
        if not self.graph.is_hidden(row, self.now_ms):
            return False
        self.remove(row, line)
        return True

    def rename(self, work: Work, new_id: str, line: int = 0) -> None:
        """Give a row a free id; the edges of a node follow."""
        old_id = work.id
        if work.form == "node":
            for edge in self.edges_of(old_id):
                self.retarget(edge, old_id, new_id, line)
        elif work.form == "edge":
            self.detach(work)
        self._leave(old_id, work.form)
        work.id = new_id
        self.rows[new_id] = work
        if work.form == "edge":
            self.attach(work)

    def retarget(self, edge: Work | Edge, old: str, new: str, line: int = 0) -> None:
        """Let an edge end at new where it ended at old."""
        work = self.take(edge, line)
        self.detach(work)
        work.src = new if work.src == old else work.src
        work.dst = new if work.dst == old else work.dst
        self.attach(work)

    def fold(self, row: AnyRow, work: Work, line: int = 0) -> None:
        """Drop a node and move its edges to another; those that become loops, or doubles, are dropped too."""
        old = row.id
        edges = self.edges_of(old)
        self.remove_one(row, line)
        for edge in edges:
            src = work.id if edge.src == old else edge.src
            dst = work.id if edge.dst == old else edge.dst
            loop = src == dst and edge.src != edge.dst
            twin = None if loop else self.between(src, edge.rel, dst)
            if twin is not None and self.is_hidden(twin):
                self.remove_one(twin, line)
                twin = None
            if loop or (twin is not None and twin.id != edge.id):
                self.remove_one(edge, line)
            else:
                self.retarget(edge, old, work.id, line)

    def mint(self, prefix: str, mentioned: set[str]) -> tuple[str, int]:
        """Return a new id under a prefix and its number: above the counter, and no id that exists or is mentioned."""
        number = self._counters.get(prefix)
        if number is None:
            number = self.graph.counter(prefix)
        if self._gone_numbers:
            number = max(number, self._gone_numbers.get(prefix, 0))
        rows, graph = self.rows, self.graph
        nodes, edges, laws = graph.nodes, graph.edges, graph.laws
        while True:
            number += 1
            id = f"{prefix}{number}"
            if not (id in nodes or id in edges or id in mentioned or id in rows or id in laws):
                break
        self._counters[prefix] = number
        return id, number

    # --- the outcome ----------------------------------------------------------------------------------------------

    def dropped(self) -> list[str]:
        """Return the ids that were removed and are not there now, in order of removal."""
        return [id for id in self.removed if self.peek(id) is None]

    def facts(self) -> list[Fact]:
        """Return drops, then nodes, laws and edges in order of first touch: an id is free before it is taken again.

        Dropped ids are named even where the row lived in the draft only: their counters must move past them.
        """
        facts: list[Fact] = []
        if self.left:
            for form in ("edge", "node", "law"):
                facts.extend({"f": f"{form}.drop", "id": id} for id, what in self.left.items() if what == form)
        edges: list[Fact] = []
        laws: list[Fact] = []
        for work in self.works:
            if work.gone or (work.base is not None and self._is_same(work)):
                continue
            form = work.form
            (facts if form == "node" else edges if form == "edge" else laws).append(put_fact(work))
        facts.extend(laws)
        facts.extend(edges)
        return facts

    def _is_same(self, work: Work) -> bool:
        base = work.base
        if base is None or base.id != work.id or work.id in self.left:
            return False
        if isinstance(base, Edge) and (base.src, base.rel, base.dst) != (work.src, work.rel, work.dst):
            return False
        return tuple(work.fields) == base.keys and tuple(work.fields.values()) == base.values


def put_fact(work: Work) -> Fact:
    """Return the fact that writes a row as it is in the draft."""
    form, minted, base = work.form, work.minted, work.base
    fact: dict[str, Any]
    if form == "node":
        fact = {"f": "node.put", "id": work.id, "kind": work.kind, "fields": work.fields}
    elif form == "edge":
        fact = {"f": "edge.put", "id": work.id, "src": work.src, "rel": work.rel, "dst": work.dst, "fields": work.fields}
    else:
        fact = {"f": "law.put", "id": work.id, "fields": work.fields}
    if minted is not None:
        fact["minted"] = minted
    if base is not None:
        if base.extra:
            fact.update(base.extra)
        fact["born"] = base.born
        if base.id != work.id:
            fact["was"] = base.id
    return fact


def form_of(row: AnyRow) -> str:
    """Return node, edge or law."""
    return row.form if isinstance(row, Work) else _FORMS[type(row)]


def kind_of(row: AnyRow) -> str:
    """Return a node's kind, "" for other rows."""
    return row.kind if isinstance(row, (Work, Node)) else ""
