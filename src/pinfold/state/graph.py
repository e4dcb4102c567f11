"""The graph of a session: nodes, edges and laws under one namespace of ids, with who wrote each row, when, and at which seq.

Invariants (decide_* keeps them, apply relies on nothing):
- An id names at most one row. Fields are strings, never empty: an empty field is an absent one.
- The ends of an edge are nodes; one edge at most has a given source, relation and target.
- Counters never go back, and move past an id of their form that is dropped, so an id somebody remembers never comes to
  mean something else.
- Order is part of the state: rows stand in the order they were created (an edge: was last attached), and the adjacency of
  a node in that same order, so that a snapshot and a replay walk alike.

Facts are dumb: node.drop does not drop edges; whoever decides names each one.

Rows are lean: keys are shared tuples, one mark (seq, at_ms, actor) is shared by all rows of an entry, and adjacency is a
plain list until a node has more than HUB_EDGES edges.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from itertools import groupby, islice, repeat
from typing import Any

import msgspec

from pinfold.dialect.format import format_edge, format_law, format_node
from pinfold.entry import Entry, Fact
from pinfold.state.schema import Schema

HUB_EDGES = 16
"""Above this many edges a node's adjacency is a dict: removing from a list is linear."""

Mark = tuple[int, int, str | None]
"""seq, at_ms, actor of the entry that wrote a row last."""


class Row(msgspec.Struct, gc=False):
    """What nodes, edges and laws have in common. born: rank of creation in this graph, kept by a rename."""

    id: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    mark: Mark
    born: int
    extra: dict[str, Any] | None

    @property
    def fields(self) -> dict[str, str]:
        """A dict of the row's fields, in first-written order; the caller's own."""
        return dict(zip(self.keys, self.values, strict=True))

    def get(self, key: str) -> str:
        """Return a field's value, "" where there is none."""
        return self.values[self.keys.index(key)] if key in self.keys else ""


class Node(Row, gc=False):
    """A node."""

    kind: str = ""


class Edge(Row, gc=False):
    """An edge from src to dst."""

    src: str = ""
    rel: str = ""
    dst: str = ""


class Law(Row, gc=False):
    """A law: advice that every pin map shows first."""


Adjacency = list[Edge] | dict[str, Edge]
_NONE: tuple[Edge, ...] = ()
_NO_IDS: tuple[str, ...] = ()

_kind_form = re.compile(r"[A-Z][A-Z0-9_]{0,31}").fullmatch
_digits_end = re.compile(r"[0-9]+$").search
COUNTED_DIGITS = 15


class Graph:
    """One session's graph. Changed by APPLY only; seq is that of its last change, 0 for none."""

    __slots__ = (
        "_labels", "_mark", "_names", "_shapes", "_triples",
        "born", "counters", "due", "edges", "expiring", "into", "kinds", "laws", "long_digits", "nodes", "on_settle", "out", "relations", "seq",
    )  # fmt: skip

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[str, Edge] = {}
        self.laws: dict[str, Law] = {}
        self.out: dict[str, Adjacency] = {}
        self.into: dict[str, Adjacency] = {}
        self.kinds: dict[str, dict[str, None]] = {}
        self.relations: dict[str, dict[str, None]] = {}
        self.counters: dict[str, int] = {}
        # Stem of a dropped id -> most digits it ended in. A kind that itself ends in digits (T1, beside T) and is first
        # used later starts above all of them; counting for kinds nobody uses would grow with every drop.
        self.long_digits: dict[str, int] = {}
        self.expiring: dict[str, int] = {}
        self.due: list[tuple[int, str]] = []
        self.on_settle: dict[str, None] = {}
        self.born = 0
        self.seq = 0
        self._mark: Mark = (0, 0, None)
        self._names: dict[str, str] = {}
        self._shapes: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._triples: dict[tuple[str, str, str], str] = {}
        self._labels: dict[tuple[str, str], dict[str, None]] | None = None  # kept once somebody asked

    # --- reading ----------------------------------------------------------------------------------------------

    def row(self, id: str) -> Node | Edge | Law | None:
        """Return the row of an id, hidden or not."""
        return self.nodes.get(id) or self.edges.get(id) or self.laws.get(id)

    def is_hidden(self, row: Node | Edge | Law, now_ms: int) -> bool:
        """Return whether a row reads as absent: its time is over, or, for an edge, that of one of its ends."""
        expiring = self.expiring
        if not expiring:
            return False
        if expiring.get(row.id, now_ms + 1) <= now_ms:
            return True
        return isinstance(row, Edge) and (expiring.get(row.src, now_ms + 1) <= now_ms or expiring.get(row.dst, now_ms + 1) <= now_ms)

    def live(self, id: str, now_ms: int) -> Node | Edge | Law | None:
        """Return the row of an id as a reader sees it at now_ms."""
        row = self.row(id)
        return None if row is None or self.is_hidden(row, now_ms) else row

    def edges_out(self, id: str) -> Collection[Edge]:
        """Return the edges that begin at a node, oldest attachment first. Not to be kept across a change."""
        edges = self.out.get(id)
        return _NONE if edges is None else edges.values() if isinstance(edges, dict) else edges

    def edges_into(self, id: str) -> Collection[Edge]:
        """Return the edges that end at a node, oldest attachment first. Not to be kept across a change."""
        edges = self.into.get(id)
        return _NONE if edges is None else edges.values() if isinstance(edges, dict) else edges

    def edges_of(self, id: str) -> list[Edge]:
        """Return every edge of a node once, oldest first."""
        edges = [*self.edges_out(id), *(e for e in self.edges_into(id) if e.src != id)]
        edges.sort(key=_born)
        return edges

    def degree(self, id: str) -> int:
        """Return the number of a node's edges, a self edge counted twice. O(1)."""
        return len(self.out.get(id, _NONE)) + len(self.into.get(id, _NONE))

    def edge_between(self, src: str, rel: str, dst: str) -> Edge | None:
        """Return the edge with this source, relation and target, hidden or not. O(1)."""
        out = self.out.get(src)
        into = self.into.get(dst)
        if out is None or into is None:
            return None
        if isinstance(out, list):
            for edge in out:
                if edge.dst == dst and edge.rel == rel:
                    return edge
            return None
        if isinstance(into, list):
            for edge in into:
                if edge.src == src and edge.rel == rel:
                    return edge
            return None
        id = self._triples.get((src, rel, dst))
        return None if id is None else self.edges.get(id)

    def labelled(self, kind: str, label: str) -> Collection[str]:
        """Return the ids of the nodes of a kind with this label, hidden ones too. O(1) but for the first call."""
        if self._labels is None:
            self._labels = {}
            for node in self.nodes.values():
                if "label" in node.keys:
                    self._labels.setdefault((node.kind, node.get("label")), {})[node.id] = None
        return self._labels.get((kind, label), _NO_IDS)

    def _relabel(self, old: Node | None, id: str, kind: str, label: str) -> None:
        """Keep `labelled` in step: a node was put (label) or dropped ("")."""
        labels = self._labels
        if labels is None:
            return
        before = (old.kind, old.get("label")) if old is not None else ("", "")
        if before == (kind, label):
            return
        if before[1]:
            _unindex(labels, before, id)
        if label:
            labels.setdefault((kind, label), {})[id] = None

    def rows(self) -> Iterator[Node | Edge | Law]:
        """Yield laws, nodes and edges, each in order."""
        yield from self.laws.values()
        yield from self.nodes.values()
        yield from self.edges.values()

    def __len__(self) -> int:
        return len(self.nodes) + len(self.edges) + len(self.laws)

    # --- expiry -----------------------------------------------------------------------------------------------

    def expired(self, now_ms: int, limit: int) -> list[str]:
        """Return up to limit ids whose time is over, earliest first. Reads only what is due, and stale marks on the way."""
        found: list[tuple[int, str]] = []
        places = [0]
        while places:
            place = places.pop()
            if place >= len(self.due) or self.due[place][0] > now_ms:
                continue
            at_ms, id = self.due[place]
            if self.expiring.get(id) == at_ms:
                found.append((at_ms, id))
            places.extend((2 * place + 1, 2 * place + 2))
        return [id for _, id in islice(sorted(set(found)), limit)]

    def _set_expiry(self, id: str, value: str) -> None:
        at_ms = parse_time(value) if value else None
        if at_ms is None:
            if self.expiring:
                self.expiring.pop(id, None)
        elif self.expiring.get(id) != at_ms:
            self.expiring[id] = at_ms
            heappush(self.due, (at_ms, id))
        due = self.due
        while due and self.expiring.get(due[0][1]) != due[0][0]:
            heappop(due)

    # --- counters ---------------------------------------------------------------------------------------------

    def counter(self, prefix: str) -> int:
        """Return the last number given or gone under a prefix; the next id minted is above it."""
        known = self.counters.get(prefix)
        return self.floor(prefix) if known is None else known

    def floor(self, prefix: str) -> int:
        """Return where the counter of a kind nobody has used yet begins: above every id of its form that was dropped."""
        digits = _digits_end(prefix)
        if digits is None or not self.long_digits:
            return 0
        stem = prefix[: digits.start()]
        left = self.long_digits.get(stem, 0) - len(digits[0])
        return 10**left - 1 if left > 0 else 0

    def _use(self, prefix: str) -> None:
        """Give a kind that ends in a digit a counter of its own from its first row on."""
        if prefix[-1:].isdigit() and prefix not in self.counters:
            self.counters[prefix] = self.floor(prefix)

    def _leave(self, id: str) -> None:
        """Move every counter past an id of its form that is no more."""
        for prefix, number in counted_forms(id):
            if prefix[-1].isdigit() and prefix not in self.counters:
                continue
            if number > self.counters.get(prefix, 0):
                self.counters[prefix] = number
        digits = _digits_end(id)
        if digits is not None and len(digits[0]) > 1:
            stem = id[: digits.start()]
            if _kind_form(stem) and len(digits[0]) > self.long_digits.get(stem, 0):
                self.long_digits[stem] = min(len(digits[0]), COUNTED_DIGITS + 1)

    # --- writing: only APPLY calls these ----------------------------------------------------------------------

    def _touch(self, entry: Entry) -> Mark:
        """Return the mark of an entry, one tuple for all its rows."""
        mark = self._mark
        if mark[0] != entry.seq or mark[1] != entry.at_ms or mark[2] != entry.actor:
            mark = self._mark = (entry.seq, entry.at_ms, entry.actor)
        self.seq = entry.seq
        return mark

    def _shape(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return self._shapes.setdefault(keys, keys)

    def _set_recycle(self, id: str, recycle: str | None, expires: str | None) -> None:
        if recycle == "delete_on_settle":
            self.on_settle[id] = None
        elif self.on_settle:
            self.on_settle.pop(id, None)
        if expires or self.expiring:
            self._set_expiry(id, expires or "")

    def _attach(self, edge: Edge) -> None:
        out, into = self.out.get(edge.src), self.into.get(edge.dst)
        if out is None:
            self.out[edge.src] = [edge]
        elif type(out) is list and len(out) < HUB_EDGES:
            out.append(edge)
        else:
            if isinstance(out, list):
                self._triples.update(((e.src, e.rel, e.dst), e.id) for e in out)
                out = self.out[edge.src] = {e.id: e for e in out}
            out[edge.id] = edge
            self._triples[(edge.src, edge.rel, edge.dst)] = edge.id
        if into is None:
            self.into[edge.dst] = [edge]
        elif type(into) is list and len(into) < HUB_EDGES:
            into.append(edge)
        else:
            if isinstance(into, list):
                into = self.into[edge.dst] = {e.id: e for e in into}
            into[edge.id] = edge

    def _detach(self, edge: Edge) -> None:
        for index, end in ((self.out, edge.src), (self.into, edge.dst)):
            edges = index.get(end)
            if edges is None:
                continue
            if isinstance(edges, dict):
                edges.pop(edge.id, None)
                if index is self.out and self._triples.get((edge.src, edge.rel, edge.dst)) == edge.id:
                    del self._triples[(edge.src, edge.rel, edge.dst)]
            else:
                for place, other in enumerate(edges):
                    if other.id == edge.id:
                        del edges[place]
                        break
            if not edges:
                del index[end]

    # --- snapshots --------------------------------------------------------------------------------------------

    def dump(self) -> object:
        """Return all of it in builtins: rows, order, counters, provenance, unknown keys.

        By columns, because a few long lists are several times faster to read back than a list for each row. keys, marks, names:
        tables that the rows' shape, mark, kind and rel point into. values: those of all rows in a row. src, dst: the place of a node.
        """
        tables = _Tables()
        nodes, edges, laws = list(self.nodes.values()), list(self.edges.values()), list(self.laws.values())
        place = {node.id: at for at, node in enumerate(nodes)}
        dumped: dict[str, Any] = {
            "v": 1,
            "seq": self.seq,
            "born": self.born,
            "counters": dict(self.counters),
            "long_digits": dict(self.long_digits),
            "nodes": {**tables.columns(nodes), "kind": [tables.name(n.kind) for n in nodes]},
            "edges": {
                **tables.columns(edges),
                "src": [place.get(e.src, e.src) for e in edges],
                "rel": [tables.name(e.rel) for e in edges],
                "dst": [place.get(e.dst, e.dst) for e in edges],
            },
            "laws": tables.columns(laws),
        }
        dumped["marks"] = [list(mark) for mark in tables.marks]
        dumped["shapes"] = [list(keys) for keys in tables.shapes]
        dumped["names"] = list(tables.names)
        return dumped

    @classmethod
    def load(cls, dumped: Any) -> Graph:
        """Return the graph of what dump gave."""
        graph = cls()
        graph.seq, graph.born = dumped["seq"], dumped["born"]
        graph.counters, graph.long_digits = dict(dumped["counters"]), dict(dumped["long_digits"])
        marks: list[Mark] = [(seq, at_ms, actor) for seq, at_ms, actor in dumped["marks"]]
        shapes = [graph._shape(tuple(keys)) for keys in dumped["shapes"]]
        names: list[str] = [graph._names.setdefault(name, name) for name in dumped["names"]]
        nodes, edges = graph.nodes, graph.edges
        columns = dumped["nodes"]
        ids: list[str] = columns["id"]
        for id, keys, values, mark, born, kind in zip(*_columns(columns, shapes), columns["kind"], strict=True):
            nodes[id] = Node(id, keys, values, marks[mark], born, None, names[kind])
        graph.kinds = _index(ids, columns["kind"], names)
        columns = dumped["edges"]
        graph.relations = _index(columns["id"], columns["rel"], names)
        # By the place of a node, not by its id: a list is reached without hashing, and most of the time goes here.
        outs: list[list[Edge] | None] = [None] * len(ids)
        intos: list[list[Edge] | None] = [None] * len(ids)
        loose: list[Edge] = []
        ends = columns["src"], columns["rel"], columns["dst"]
        for id, keys, values, mark, born, src, rel, dst in zip(*_columns(columns, shapes), *ends, strict=True):
            if type(src) is int and type(dst) is int:
                edge = edges[id] = Edge(id, keys, values, marks[mark], born, None, ids[src], names[rel], ids[dst])
                at = outs[src]
                if at is None:
                    outs[src] = [edge]
                else:
                    at.append(edge)
                at = intos[dst]
                if at is None:
                    intos[dst] = [edge]
                else:
                    at.append(edge)
            else:
                src, dst = (ids[end] if isinstance(end, int) else end for end in (src, dst))
                edge = edges[id] = Edge(id, keys, values, marks[mark], born, None, src, names[rel], dst)
                loose.append(edge)
        for index, lists in ((graph.out, outs), (graph.into, intos)):
            for id, found in zip(ids, lists, strict=True):
                if found is not None:
                    index[id] = found if len(found) <= HUB_EDGES else {e.id: e for e in found}
                    if index is graph.out and len(found) > HUB_EDGES:
                        graph._triples.update(((e.src, e.rel, e.dst), e.id) for e in found)
        for edge in loose:
            graph._attach(edge)
        columns = dumped["laws"]
        for id, keys, values, mark, born in zip(*_columns(columns, shapes), strict=True):
            graph.laws[id] = Law(id, keys, values, marks[mark], born, None)
        special = {keys for keys in shapes if "recycle" in keys or "expires" in keys}
        for rows, form in ((list(nodes.values()), "nodes"), (list(edges.values()), "edges"), (list(graph.laws.values()), "laws")):
            for at, extra in dumped[form]["extra"].items():
                rows[int(at)].extra = extra
            if special:
                for row in rows:
                    if row.keys in special:
                        graph._set_recycle(row.id, row.get("recycle"), row.get("expires"))
        return graph

    def copy(self) -> Graph:
        """Return a graph of its own with the same content. O(rows)."""
        return Graph.load(self.dump())


class _Tables:
    """What rows share, each thing once, while a graph is dumped."""

    def __init__(self) -> None:
        self.marks: dict[Mark, int] = {}
        self.shapes: dict[tuple[str, ...], int] = {}
        self.names: dict[str, int] = {}

    def name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def columns(self, rows: Sequence[Row]) -> dict[str, Any]:
        shapes, marks = self.shapes, self.marks
        return {
            "id": [row.id for row in rows],
            "shape": [shapes.setdefault(row.keys, len(shapes)) for row in rows],
            "values": [value for row in rows for value in row.values],
            "mark": [marks.setdefault(row.mark, len(marks)) for row in rows],
            "born": [row.born for row in rows],
            # Keys of a map are text in every format a snapshot may take.
            "extra": {str(at): row.extra for at, row in enumerate(rows) if row.extra},
        }


def _columns(columns: Any, shapes: list[tuple[str, ...]]) -> tuple[list[str], list[tuple[str, ...]], list[tuple[str, ...]], list[int], list[int]]:
    """Return ids, keys, values, marks and births of the rows of dumped columns."""
    keys = [shapes[at] for at in columns["shape"]]
    flat = iter(columns["values"])
    values: list[tuple[str, ...]] = []
    # Rows of one shape mostly stand together: their values are cut in one go.
    for shape, run in groupby(keys):
        count = sum(1 for _ in run)
        values.extend(islice(zip(*[flat] * len(shape), strict=False), count) if shape else repeat((), count))
    return columns["id"], keys, values, columns["mark"], columns["born"]


def _index(ids: list[str], numbers: list[int], names: list[str]) -> dict[str, dict[str, None]]:
    """Return name -> ids, in order, of rows whose name is given by its number."""
    if len(set(numbers)) == 1:
        return {names[numbers[0]]: dict.fromkeys(ids)}
    indexes: list[dict[str, None]] = [{} for _ in names]
    for id, number in zip(ids, numbers, strict=True):
        indexes[number][id] = None
    return {name: found for name, found in zip(names, indexes, strict=True) if found}


def _born(row: Row) -> int:
    return row.born


def counted_forms(id: str) -> Iterator[tuple[str, int]]:
    """Yield (prefix, number) for each way an id is a KIND and a number as minting writes it: T12 is T, 12 and T1, 2."""
    digits = _digits_end(id)
    if digits is None:
        return
    for start in range(max(digits.start(), len(id) - COUNTED_DIGITS), len(id)):
        if id[start] == "0" or start == 0:
            continue
        prefix = id[:start]
        if _kind_form(prefix):
            yield prefix, int(id[start:])


# --- times ---------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_UTC = datetime(1970, 1, 1)
"""Without its zone, which isoformat would write as +00:00."""


def format_time(at_ms: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC: 2026-11-30T15:17:56Z, with .123 only where needed. Raises OverflowError."""
    moment = _EPOCH_UTC + timedelta(milliseconds=at_ms)
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds") + "Z"


def parse_time(text: str) -> int | None:
    """Return the Unix milliseconds of an ISO 8601 date or time, UTC where no offset is written. None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


# --- lines ---------------------------------------------------------------------------------------------------------


def shown_fields(schema: Schema | None, kind: str, keys: tuple[str, ...], values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return a node's fields in display order: declared, then as first written."""
    order = None if schema is None else schema.order(kind, keys)
    return list(zip(keys, values, strict=True)) if order is None else [(keys[i], values[i]) for i in order]


def line_of(row: Node | Edge | Law, schema: Schema | None = None) -> str:
    """Return a row's present line."""
    if isinstance(row, Node):
        return format_node(row.id, row.kind, shown_fields(schema, row.kind, row.keys, row.values))
    pairs = zip(row.keys, row.values, strict=True)
    if isinstance(row, Edge):
        return format_edge(row.id, row.src, row.rel, row.dst, pairs)
    return format_law(row.id, pairs)


# --- apply: total, dumb --------------------------------------------------------------------------------------------

_NODE_KEYS = frozenset({"f", "id", "kind", "fields", "minted", "born", "was"})
_EDGE_KEYS = frozenset({"f", "id", "src", "rel", "dst", "fields", "minted", "born", "was"})
_LAW_KEYS = frozenset({"f", "id", "fields", "born", "was"})


def _extra(fact: Fact, known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in fact.items() if key not in known}


def _birth(graph: Graph, fact: Fact) -> int:
    born: int | None = fact.get("born")
    if born is None:
        born = graph.born
        graph.born += 1
    return born


def _put_node(graph: Graph, fact: Fact, entry: Entry) -> None:
    id, kind, fields = fact["id"], fact["kind"], fact.get("fields") or {}
    keys = tuple(fields)
    keys, values, mark = graph._shapes.setdefault(keys, keys), tuple(fields.values()), graph._touch(entry)
    extra = None if _NODE_KEYS.issuperset(fact) else _extra(fact, _NODE_KEYS)
    kind = graph._names.setdefault(kind, kind)
    node = graph.nodes.get(id)
    if graph._labels is not None:
        graph._relabel(node, id, kind, fields.get("label", ""))
    if node is None:
        graph.nodes[id] = Node(id, keys, values, mark, _birth(graph, fact), extra, kind)
        index = graph.kinds.get(kind)
        if index is None:
            index = graph.kinds[kind] = {}
        index[id] = None
    else:
        if node.kind != kind:
            _unindex(graph.kinds, node.kind, id)
            graph.kinds.setdefault(kind, {})[id] = None
        node.keys, node.values, node.mark, node.extra, node.kind = keys, values, mark, extra, kind
    if kind not in graph.counters:
        graph._use(kind)
    minted = fact.get("minted")
    if minted is not None and minted > graph.counters.get(kind, 0):
        graph.counters[kind] = minted
    if "recycle" in fields or "expires" in fields or graph.on_settle or graph.expiring:
        graph._set_recycle(id, fields.get("recycle"), fields.get("expires"))


def _put_edge(graph: Graph, fact: Fact, entry: Entry) -> None:
    id, src, rel, dst, fields = fact["id"], fact["src"], fact["rel"], fact["dst"], fact.get("fields") or {}
    keys = tuple(fields)
    keys, values, mark = graph._shapes.setdefault(keys, keys), tuple(fields.values()), graph._touch(entry)
    extra = None if _EDGE_KEYS.issuperset(fact) else _extra(fact, _EDGE_KEYS)
    edge = graph.edges.get(id)
    if edge is not None and edge.src == src and edge.rel == rel and edge.dst == dst:
        edge.keys, edge.values, edge.mark, edge.extra = keys, values, mark, extra
    else:
        rel = graph._names.setdefault(rel, rel)
        # Share the nodes' own id strings: two references instead of two copies.
        if (end := graph.nodes.get(src)) is not None:
            src = end.id
        if (end := graph.nodes.get(dst)) is not None:
            dst = end.id
        if edge is None:
            edge = Edge(id, keys, values, mark, _birth(graph, fact), extra, src, rel, dst)
        else:
            # An edge that changes its ends goes last in every order, so that adjacency keeps the order of the edges.
            graph._detach(edge)
            del graph.edges[id]
            _unindex(graph.relations, edge.rel, id)
            edge.keys, edge.values, edge.mark, edge.extra, edge.src, edge.rel, edge.dst = keys, values, mark, extra, src, rel, dst
        graph.edges[id] = edge
        index = graph.relations.get(rel)
        if index is None:
            index = graph.relations[rel] = {}
        index[id] = None
        graph._attach(edge)
    minted = fact.get("minted")
    if minted is not None and minted > graph.counters.get("E", 0):
        graph.counters["E"] = minted
    if "recycle" in fields or "expires" in fields or graph.on_settle or graph.expiring:
        graph._set_recycle(id, fields.get("recycle"), fields.get("expires"))


def _put_law(graph: Graph, fact: Fact, entry: Entry) -> None:
    id, fields = fact["id"], fact.get("fields") or {}
    keys, values, mark = graph._shape(tuple(fields)), tuple(fields.values()), graph._touch(entry)
    extra = None if _LAW_KEYS.issuperset(fact) else _extra(fact, _LAW_KEYS)
    law = graph.laws.get(id)
    if law is None:
        graph.laws[id] = Law(id, keys, values, mark, _birth(graph, fact), extra)
    else:
        law.keys, law.values, law.mark, law.extra = keys, values, mark, extra
    graph._set_recycle(id, fields.get("recycle"), fields.get("expires"))


def _unindex(index: dict[Any, dict[str, None]], name: Any, id: str) -> None:
    ids = index.get(name)
    if ids is not None:
        ids.pop(id, None)
        if not ids:
            del index[name]


def _drop_node(graph: Graph, fact: Fact, entry: Entry) -> None:
    id = fact["id"]
    graph._touch(entry)
    node = graph.nodes.pop(id, None)
    if node is not None:
        if graph._labels is not None:
            graph._relabel(node, id, "", "")
        _unindex(graph.kinds, node.kind, id)
        graph._set_recycle(id, None, None)
    graph._leave(id)


def _drop_edge(graph: Graph, fact: Fact, entry: Entry) -> None:
    id = fact["id"]
    graph._touch(entry)
    edge = graph.edges.pop(id, None)
    if edge is not None:
        _unindex(graph.relations, edge.rel, id)
        graph._detach(edge)
        graph._set_recycle(id, None, None)
    graph._leave(id)


def _drop_law(graph: Graph, fact: Fact, entry: Entry) -> None:
    id = fact["id"]
    graph._touch(entry)
    if graph.laws.pop(id, None) is not None:
        graph._set_recycle(id, None, None)
    graph._leave(id)


APPLY: dict[str, Callable[[Graph, Fact, Entry], None]] = {
    "node.put": _put_node,
    "node.drop": _drop_node,
    "edge.put": _put_edge,
    "edge.drop": _drop_edge,
    "law.put": _put_law,
    "law.drop": _drop_law,
}
"""Fact name -> total function. Keys beside those of the fact's kind stay with the row:
minted: the number this put took from its counter; born: kept by a rename; was: the id before it."""
