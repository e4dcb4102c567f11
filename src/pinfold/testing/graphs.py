"""A graph with its schema and its entries, as an engine keeps them but without one: for tests of what documents do."""

from __future__ import annotations

from typing import Any

from pinfold.dialect.delta import Row
from pinfold.dialect.parse import parse_document
from pinfold.entry import Entry, Fact
from pinfold.state.graph import APPLY as GRAPH_APPLY
from pinfold.state.graph import Edge, Graph, Node, line_of
from pinfold.state.mutate import Mutated, decide_mutate
from pinfold.state.schema import APPLY as SCHEMA_APPLY
from pinfold.state.schema import Schema


class GraphStore:
    """One graph; its clock stands still until `now_ms` is set. `entries` can be replayed."""

    def __init__(self, *documents: str) -> None:
        self.graph = Graph()
        self.schema = Schema()
        self.entries: list[Entry] = []
        self.now_ms = 1_700_000_000_000
        for document in documents:
            self.mutate(document)

    @property
    def seq(self) -> int:
        """The seq of the last entry."""
        return len(self.entries)

    def decide(self, text: str, **args: Any) -> tuple[list[Fact], Mutated]:
        """Return what a document would do."""
        return decide_mutate(self.graph, self.schema, parse_document(text), now_ms=self.now_ms, **args)

    def mutate(self, text: str, *, actor: str | None = None, **args: Any) -> Mutated:
        """Apply a document. Raises DocumentRefused."""
        facts, answer = self.decide(text, actor=actor, **args)
        self.append(facts, actor)
        return answer

    def append(self, facts: list[Fact], actor: str | None = None) -> None:
        """Apply facts as one entry; none, no entry."""
        if facts:
            self.entries.append(Entry(self.seq + 1, b"", self.now_ms, None, actor, facts))
            self.apply(self.entries[-1])

    def apply(self, entry: Entry) -> None:
        """Apply an entry."""
        for fact in entry.facts:
            if fact["f"] in GRAPH_APPLY:
                GRAPH_APPLY[fact["f"]](self.graph, fact, entry)
            else:
                SCHEMA_APPLY[fact["f"]](self.schema, fact, entry)

    def read(self, id: str) -> str | None:
        """Return a row's line, None where there is none."""
        row = self.graph.live(id, self.now_ms)
        return None if row is None else line_of(row, self.schema)

    def lines(self) -> list[str]:
        """Return every row's line, laws, nodes, edges, each by id: equal for graphs that hold the same."""
        return sorted(line_of(row, None) for row in self.graph.rows() if not self.graph.is_hidden(row, self.now_ms))

    def content(self) -> dict[str, tuple[Any, ...]]:
        """Return what the graph holds, without order, counters and provenance."""
        return {
            row.id: (*((row.kind,) if isinstance(row, Node) else (row.src, row.rel, row.dst) if isinstance(row, Edge) else ()), row.fields)
            for row in self.graph.rows()
        }

    def state(self) -> tuple[object, object]:
        """Return all of it in builtins."""
        return self.graph.dump(), self.schema.dump()


def diff_rows(graph: Graph) -> list[Row]:
    """Return the rows of a graph as a diff takes them."""
    out: list[Row] = []
    for row in graph.rows():
        if isinstance(row, Node):
            out.append(Row("node", row.id, row.fields, row.kind))
        elif isinstance(row, Edge):
            out.append(Row("edge", row.id, row.fields, "", row.src, row.rel, row.dst))
        else:
            out.append(Row("law", row.id, row.fields))
    return out
