"""What a session drops by itself: rows whose time is over, and, when asked, what nobody needs any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pinfold.entry import Fact
from pinfold.state.graph import Edge, Graph, Law, Node


def drop_rows(graph: Graph, ids: Iterable[str]) -> list[Fact]:
    """Return facts that drop these rows, each node with its edges; every row once, edges first."""
    edges: dict[str, None] = {}
    nodes: list[Fact] = []
    for id in dict.fromkeys(ids):
        row = graph.row(id)
        if isinstance(row, Edge):
            edges[row.id] = None
        elif isinstance(row, Node):
            edges.update((edge.id, None) for edge in graph.edges_of(row.id))
            nodes.append({"f": "node.drop", "id": row.id})
        elif isinstance(row, Law):
            nodes.append({"f": "law.drop", "id": row.id})
    return [*({"f": "edge.drop", "id": id} for id in edges), *nodes]


def decide_expire(graph: Graph, now_ms: int, limit: int) -> list[Fact]:
    """Return facts that drop up to limit rows whose time is over."""
    if not graph.due or graph.due[0][0] > now_ms:
        return []
    return drop_rows(graph, graph.expired(now_ms, limit))
