"""The difference between the pins a session has and those a source says there are. Pure.

Rules:
- A pin is identified by its locator, so by its id; kinds belong to one source, and every pin says which file it is from.
- Own are: pins of the source's kinds, the fields these kinds declare, and edges between two such pins along the source's
  relations. Everything else on them is an annotation: it stays, and where its pin goes it is named.
- What lies outside the files that were read (another folder, a file that could not be read) is left as it is.
- A shared pin stands for something that is in no file (a library, a tool). It goes when no edge leads to it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pinfold import limits
from pinfold.dialect.format import format_edge, format_fields, format_schema_kind
from pinfold.dialect.parse import Batch, Op
from pinfold.state.graph import Edge, Graph, Node
from pinfold.state.schema import FREE_FIELDS, Schema, derive_id

Triple = tuple[str, str, str]


class PinKind(msgspec.Struct, frozen=True):
    """A kind of pin and its fields, the locator first. file: the field that names the file, up to `::`; "" for a shared pin."""

    name: str
    fields: tuple[str, ...]
    file: str = ""

    def file_of(self, node: Node) -> str:
        """Return the file a pin is from, "" for a shared one."""
        return node.get(self.file).partition("::")[0] if self.file else ""


class Pin(msgspec.Struct, gc=False):
    """A pin as the source has it: fields without empty ones, the locator first."""

    id: str
    kind: str
    fields: dict[str, str]


class Wanted(msgspec.Struct):
    """What a source says there is. links: own fields by (source id, relation, target id), whose ends are wanted or in the graph.

    owns: whether a file was read, so that what the graph has of it and is not wanted is gone.
    """

    kinds: tuple[PinKind, ...]
    relations: tuple[str, ...]
    pins: dict[str, Pin]
    links: dict[Triple, dict[str, str]]
    owns: Callable[[str], bool]
    link_fields: tuple[str, ...] = ()

    def add(self, kind: str, fields: dict[str, str]) -> str:
        """Add a pin, the locator its first field. Return its id; the first of two with one locator stays."""
        locator = next(iter(fields.values()))
        id = derive_id(kind, locator)
        if id not in self.pins:
            self.pins[id] = Pin(id, kind, {key: value for key, value in fields.items() if value})
        return id

    def link(self, src: str, relation: str, dst: str, **fields: str) -> None:
        """Add an edge; where there is one already, the values of its fields stand one behind the other."""
        had = self.links.setdefault((src, relation, dst), {})
        for key, value in fields.items():
            parts = had[key].split(", ") if key in had else []
            if value and value not in parts:
                had[key] = ", ".join([*parts, value])[: limits.INGEST_TEXT_CHARS]


class Orphan(msgspec.Struct, frozen=True):
    """An annotation whose pin is gone. row: the row that stays, "" where the annotation was a field; what: its line or field."""

    pin: str
    locator: str
    row: str
    what: str


class Difference(msgspec.Struct):
    """What turns the graph's pins into those wanted: operations (node, edge, schema) in an order that may be cut anywhere."""

    ops: list[Op]
    orphaned: list[Orphan]

    @property
    def added(self) -> int:
        """How many rows the graph grows by at most."""
        return sum(1 for op in self.ops if op.op == "+")

    def batches(self, rows: int) -> Iterator[Batch]:
        """Yield the operations, at most so many at a time; none of them names a row that a later one creates."""
        for at in range(0, len(self.ops), rows):
            part = self.ops[at : at + rows]
            yield Batch(part, [], {}, [], len(part))


def difference(graph: Graph, schema: Schema, wanted: Wanted, now_ms: int) -> Difference:
    """Return what there is to do. Changes nothing. O(wanted + the graph's rows of the source's kinds)."""
    return _Work(graph, schema, wanted, now_ms).run()


class _Work:
    def __init__(self, graph: Graph, schema: Schema, wanted: Wanted, now_ms: int) -> None:
        self.graph, self.schema, self.wanted, self.now_ms = graph, schema, wanted, now_ms
        self.kinds = {kind.name: kind for kind in wanted.kinds}
        self.relations = frozenset(wanted.relations)
        self.ops: list[Op] = []

    def run(self) -> Difference:
        self._declare()
        self._pins()
        gone, lost = self._gone()
        self._links(gone)
        for edge in lost:
            self._op("-", "edge", f"- {edge.id}", id=edge.id, src=edge.src, rel=edge.rel, dst=edge.dst)
        orphaned = [orphan for node in gone.values() for orphan in self._orphans(node, gone)]
        for node in gone.values():
            self._op("-", "node", f"- {node.id}", id=node.id, kind=node.kind)
        return Difference(self.ops, orphaned)

    def _op(self, op: str, form: str, text: str, **rest: Any) -> None:
        self.ops.append(Op(op, form, len(self.ops) + 1, text, **rest))

    # --- pins -----------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        """Declare the kinds in use that are not, and relations where the session names its own."""
        used = {pin.kind for pin in self.wanted.pins.values()}
        for kind in self.wanted.kinds:
            known = self.schema.kinds.get(kind.name)
            if kind.name in used and (known is None or not known.pin or any(not self.schema.accepts_field(kind.name, field) for field in kind.fields)):
                fields = {"fields": " ".join(kind.fields), "pin": "true", **({"open": "true"} if known is None else {})}
                self._op("", "schema", format_schema_kind(kind.name, kind.fields, True), kind=kind.name, fields=fields)
        new = sorted({relation for _, relation, _ in self.wanted.links if not self.schema.accepts_relation(relation)})
        if new:
            self._op("", "schema", f"SCHEMA relations ; names={' '.join(new)}", kind="relations", fields={"names": " ".join(new)})

    def _pins(self) -> None:
        for pin in self.wanted.pins.values():
            node = self.graph.live(pin.id, self.now_ms)
            if node is None:
                self._op("+", "node", f"+ {pin.kind} [{pin.id}]", id=pin.id, kind=pin.kind, fields=pin.fields)
            elif changes := _changes(node.fields, pin.fields, self.kinds[pin.kind].fields):
                self._op("~", "node", f"~ [{pin.id}] ; {format_fields(changes)}", id=pin.id, kind=pin.kind, fields=changes)

    def _gone(self) -> tuple[dict[str, Node], list[Edge]]:
        """Return the pins that are no more, and the own edges between pins that stay."""
        gone: dict[str, Node] = {}
        shared: list[Node] = []
        own: list[Node] = []
        for name, kind in self.kinds.items():
            if self.schema.locator(name) is None:
                continue  # rows of this kind are somebody's own: to be refused, not dropped
            for id in self.graph.kinds.get(name, ()):
                node = self.graph.nodes[id]
                if self.graph.is_hidden(node, self.now_ms):
                    continue
                if not kind.file:
                    if id not in self.wanted.pins:
                        shared.append(node)
                elif self.wanted.owns(kind.file_of(node)):
                    own.append(node)
                    if id not in self.wanted.pins:
                        gone[id] = node
        lost = [
            edge for node in own for edge in self.graph.edges_out(node.id) if self._is_own(edge) and (edge.src, edge.rel, edge.dst) not in self.wanted.links
        ]
        ids = {edge.id for edge in lost}
        for node in shared:
            if all(edge.id in ids or edge.src in gone for edge in self.graph.edges_into(node.id)):
                gone[node.id] = node
        return gone, [edge for edge in lost if edge.src not in gone and edge.dst not in gone]

    def _is_own(self, edge: Edge) -> bool:
        return edge.rel in self.relations and self.graph.nodes[edge.src].kind in self.kinds and self.graph.nodes[edge.dst].kind in self.kinds

    def _links(self, gone: dict[str, Node]) -> None:
        for (src, rel, dst), fields in self.wanted.links.items():
            if dst not in self.wanted.pins and (dst in gone or self.graph.live(dst, self.now_ms) is None):
                continue
            edge = self.graph.edge_between(src, rel, dst)
            if edge is None or self.graph.is_hidden(edge, self.now_ms):
                self._op("+", "edge", f"+ [{src}] --({rel})--> [{dst}]", src=src, rel=rel, dst=dst, fields=fields)
            elif changes := _changes(edge.fields, fields, self.wanted.link_fields):
                self._op("~", "edge", f"~ {edge.id} ; {format_fields(changes)}", id=edge.id, src=src, rel=rel, dst=dst, fields=changes)

    # --- annotations ------------------------------------------------------------------------------------------------

    def _orphans(self, node: Node, gone: dict[str, Node]) -> Iterator[Orphan]:
        kind = self.kinds[node.kind]
        locator = node.get(kind.fields[0])
        for key, value in node.fields.items():
            if key not in kind.fields and key not in FREE_FIELDS:
                yield Orphan(node.id, locator, "", format_fields({key: value}))
        for edge in self.graph.edges_of(node.id):
            other = edge.dst if edge.src == node.id else edge.src
            if other not in gone and not self._is_own(edge) and not self.graph.is_hidden(edge, self.now_ms):
                yield Orphan(node.id, locator, other, format_edge(edge.id, edge.src, edge.rel, edge.dst, edge.fields))


def _changes(old: dict[str, str], new: dict[str, str], own: tuple[str, ...]) -> dict[str, str]:
    """Return what a patch has to say so that the own fields of a row are the new ones."""
    return {field: new.get(field, "") for field in own if old.get(field, "") != new.get(field, "")}
