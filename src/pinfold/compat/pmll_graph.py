"""PMLL's graph and solution engine by its library names, thin over a session. Imported by `pinfold.compat.pmll`.

A session_id is a session of one store: in RAM until `configure_db(path)` names a file. Nothing is created by looking.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.memory import Memory
from pinfold.recall.embed import HashEmbedder
from pinfold.recall_session import Resolved, TraversedNode
from pinfold.session import Session
from pinfold.state.graph import Edge, Node
from pinfold.state.memory_rows import content_of, count_of, label_of, metadata_of, type_of, weight_of
from pinfold.state.session import SessionState

EMBED_DIM = 128
DECAY_LAMBDA = 0.05
SIMILARITY_THRESHOLD = 0.72
STALE_THRESHOLD = 0.15
PROMOTION_THRESHOLD = 3

_lock = threading.Lock()
_memory: Memory | None = None
_path: str | None = None


class HashingVectorizer(HashEmbedder):
    """Stable hashing of words into `dim` signed buckets. Raises ValueError for dim < 1."""


def embed(text: str) -> list[float]:
    """Return a text's vector, float[128]: always the same for the same text, whatever else was embedded."""
    return HashEmbedder(EMBED_DIM).vectorize(text)


class MemoryNode(msgspec.Struct, frozen=True):
    """A memory as it is now; a copy. Times: Unix seconds."""

    id: str
    type: str
    label: str
    content: str
    created_at: float
    last_accessed: float
    access_count: int
    metadata: dict[str, Any]

    @property
    def embedding(self) -> list[float]:
        return embed(f"{self.label} {self.content}")


class MemoryEdge(msgspec.Struct, frozen=True):
    """A relation as it is now; a copy. created_at: its last assertion, Unix seconds."""

    id: str
    source: str
    target: str
    relation: str
    weight: float
    created_at: float
    metadata: dict[str, Any]


class TraversalResult(msgspec.Struct, frozen=True):
    """A node met on the way: relevance_score 0..100, path_relations as label, arrow, label …"""

    node: MemoryNode
    depth: int
    path_relations: list[str]
    relevance_score: float


class GraphSearchResult(msgspec.Struct, frozen=True):
    """Direct hits and neighbours, best first, and the size of the graph."""

    direct: list[TraversalResult]
    neighbors: list[TraversalResult]
    total_nodes: int
    total_edges: int


# --- the store ----------------------------------------------------------------------------------------------------


def _store() -> Memory:
    global _memory
    with _lock:
        if _memory is None:
            _memory = Memory("memory://" if _path is None else f"sqlite:///{_path}")
        return _memory


def configure_db(path: str | os.PathLike[str] | None = None) -> None:
    """Keep graphs in the SQLite file at path from now on; None: in RAM. What was in RAM before stays there, unread."""
    global _memory, _path
    with _lock:
        if _memory is not None:
            _memory.close()
        _memory, _path = None, None if path is None else os.path.abspath(path)


def get_db_path() -> str | None:
    """Return the file graphs are kept in, None while they are in RAM."""
    return _path


def reload_session_from_db(session_id: str) -> dict[str, Any]:
    """Return the session's counts. There is nothing to reload: every read sees what other processes wrote."""
    return get_graph_stats(session_id)


def _session(session_id: str) -> Session:
    return _store().session(session_id)


def _node(row: Node) -> MemoryNode:
    at_s = row.mark[1] / 1000
    return MemoryNode(row.id, type_of(row), label_of(row), content_of(row), at_s, at_s, count_of(row), metadata_of(row))


def _get(session: Session, id: str) -> MemoryNode:
    row = session._view().graph.nodes[id]
    return _node(row)


def _edge(row: Edge) -> MemoryEdge:
    return MemoryEdge(row.id, row.src, row.dst, row.rel, weight_of(row), row.mark[1] / 1000, metadata_of(row))


# --- the graph ----------------------------------------------------------------------------------------------------


def upsert_node(session_id: str, node_type: str, label: str, content: str, metadata: Mapping[str, Any] | None = None) -> MemoryNode:
    """Write a memory under its type and label; again: new content, merged metadata, one more access."""
    session = _session(session_id)
    return _get(session, session.upsert_node(node_type, label, content, metadata).node_id)


def create_relation(
    session_id: str, source_id: str, target_id: str, relation: str, weight: float | None = None, metadata: Mapping[str, Any] | None = None
) -> MemoryEdge | None:
    """Relate two memories, or assert the relation again. None where an end is not there."""
    session = _session(session_id)
    try:
        done = session.create_relation(source_id, target_id, relation, weight, metadata)
    except Refused as refused:
        if refused.code == "not_found":
            return None
        raise
    return _edge(session._view().graph.edges[done.edge_id])


def search_graph(session_id: str, query: str, max_depth: int = 1, top_k: int = 5, edge_filter: Sequence[str] | None = None) -> GraphSearchResult:
    """Return the memories that answer a query, and those near them."""
    session = _session(session_id)
    found = session.search(query, max_depth=max_depth, top_k=top_k, edge_filter=edge_filter)
    nodes = session._view().graph.nodes
    direct = [TraversalResult(_node(nodes[h.node_id]), 0, [], h.score) for h in found.direct if h.node_id in nodes]
    near = [TraversalResult(_node(nodes[n.node_id]), n.depth, n.path, n.score) for n in found.neighbors if n.node_id in nodes]
    return GraphSearchResult(direct, near, found.total_nodes, found.total_edges)


def prune_stale_links(session_id: str, threshold: float | None = None) -> dict[str, int]:
    """Drop faded links and orphans: {removed: edges and nodes together, remaining: edges}."""
    done = _session(session_id).prune(STALE_THRESHOLD if threshold is None else threshold)
    return {"removed": done.removed, "remaining": done.remaining_edges}


def add_interlinked_context(session_id: str, items: Sequence[Mapping[str, Any]], auto_link: bool = True) -> dict[str, list[Any]]:
    """Write memories together and link those alike, all or nothing: {nodes, edges}, each once."""
    session = _session(session_id)
    done = session.add_interlinked(items, auto_link)
    graph = session._view().graph
    return {"nodes": [_node(graph.nodes[row["id"]]) for row in done.nodes], "edges": [_edge(graph.edges[row["id"]]) for row in done.edges]}


def retrieve_with_traversal(session_id: str, start_node_id: str, max_depth: int = 2, edge_filter: Sequence[str] | None = None) -> list[TraversalResult]:
    """Return the memories around one, the start first, each at its shortest depth; [] for an unknown start."""
    session = _session(session_id)
    try:
        found = session.traverse(start_node_id, max_depth, edge_filter)
    except Refused as refused:
        if refused.code == "not_found":
            return []
        raise
    nodes = session._view().graph.nodes
    return [_met(nodes, row) for row in found.results if row.node_id in nodes]


def _met(nodes: Mapping[str, Node], row: TraversedNode) -> TraversalResult:
    return TraversalResult(_node(nodes[row.node_id]), row.depth, row.path, row.score)


def get_graph_stats(session_id: str) -> dict[str, Any]:
    """Return {nodes, edges, types, relations}; asking creates nothing."""
    counts = _session(session_id).long_term_counts()
    return {name: counts[name] for name in ("nodes", "edges", "types", "relations")}


def clear_graph(session_id: str) -> int:
    """Drop every row of the session's graph, in one entry; return nodes and edges together, 0 where there were none."""
    session = _session(session_id)
    graph = session._view().graph
    count = len(graph.nodes) + len(graph.edges)
    if graph.nodes:
        session.delete(*graph.nodes)
    return count


def export_graph(session_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the graph as {nodes, edges} of plain values."""
    graph = _session(session_id)._view().graph
    return {
        "nodes": [msgspec.to_builtins(_node(row)) for row in graph.nodes.values()],
        "edges": [msgspec.to_builtins(_edge(row)) for row in graph.edges.values()],
    }


def import_graph(session_id: str, data: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Replace the session's graph with an exported one, in one entry; ids are minted anew. Returns its counts.

    Raises Refused where a node or an edge cannot be kept; the graph then stays as it was.
    """
    from pinfold.state import memory_rows as rows

    nodes, edges = list(data["nodes"]), list(data["edges"])
    shown = ("type", "label", "content", "metadata")
    items = rows.check_items([{name: node[name] for name in shown if name in node} for node in nodes])
    known = {node.get("id") for node in nodes}
    if lost := [edge.get("id") for edge in edges if not {edge.get("source"), edge.get("target")} <= known]:
        raise Refused(f"edge {lost[0]} has an end that is no node", code="bad_item", hint="export_graph writes what import_graph reads")
    noted = [(rows.check_weight(edge.get("weight")), rows.check_metadata(edge.get("metadata"))) for edge in edges]

    def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], None]:
        draft = rows.Memories(state.graph, state.schema, now_ms)
        for row in state.graph.nodes.values():
            draft.remove(row)
        ids = {node.get("id"): draft.upsert(item)[0].id for node, item in zip(nodes, items, strict=True)}
        for edge, (weight, more) in zip(edges, noted, strict=True):
            draft.relate(ids[edge.get("source")], ids[edge.get("target")], edge.get("relation", ""), weight, more)
        return draft.facts(), None

    _session(session_id)._write_rows(decide)
    return get_graph_stats(session_id)


# --- the solution engine ------------------------------------------------------------------------------------------


def resolve_context(session_id: str, key: str, store: Any) -> dict[str, Any]:
    """Return {source: short_term | long_term | miss, value, score 0..1}: the store first, then a memory that is sure enough."""
    hit, value, _ = store.peek(key)
    if hit:
        return {"source": "short_term", "value": value, "score": 1.0}
    from pinfold.recall_answers import resolve
    from pinfold.recall_session import BAR

    session = _session(session_id)
    found: Resolved = resolve(session._read_sessions(), key, BAR)
    return {"source": found.source, "value": found.value, "score": found.score}


def promote_to_long_term(session_id: str, key: str, value: Any, node_type: str = "concept", metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Keep value as a memory labelled key: {promoted: True, node_id}."""
    done = _session(session_id).promote(key, value, node_type, metadata)
    return {"promoted": done.promoted, "node_id": done.node_id}


def get_memory_status(session_id: str, store: Any) -> dict[str, Any]:
    """Return {short_term: {slots, silo_size}, long_term: {nodes, edges, types}, promotion_threshold}."""
    stats = get_graph_stats(session_id)
    long_term = {name: stats[name] for name in ("nodes", "edges", "types")}
    return {"short_term": {"slots": len(store), "silo_size": store.silo_size}, "long_term": long_term, "promotion_threshold": PROMOTION_THRESHOLD}
