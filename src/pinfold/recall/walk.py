"""Going along edges: walk, neighbors, path. Bounded before, not after: by fan-out, rows and depth, each clip declared.

Hidden rows (their time is over) are neither shown nor passed through. Edges are followed newest first where only some can
be; results stand in an order that depends on the graph alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Literal

import msgspec

from pinfold import limits
from pinfold.dialect.format import format_document, format_edge, format_footer
from pinfold.errors import Refused
from pinfold.state.graph import Edge, Graph, Law, Node, line_of
from pinfold.state.schema import Schema, near_ids

Direction = Literal["out", "in", "both"]
DIRECTIONS = ("out", "in", "both")
_WAYS = {"out": "along the arrows", "in": "against the arrows", "both": "either way"}


def steps(
    graph: Graph, id: str, direction: str, relations: Collection[str] | None, now_ms: int, fanout: int = limits.WALK_FANOUT
) -> Iterator[tuple[Edge, str]]:
    """Yield (edge, node at its other end), newest attachment first, at most fanout out and fanout in. Hidden ones are passed over."""
    for way in ("out", "in"):
        if direction not in (way, "both"):
            continue
        edges = graph.edges_out(id) if way == "out" else graph.edges_into(id)
        newest: Iterator[Edge] = reversed(edges)  # type: ignore[call-overload]
        for edge in islice(newest, fanout):
            other = edge.dst if way == "out" else edge.src
            if (way == "in" and other == id) or (relations is not None and edge.rel not in relations):
                continue
            if graph.expiring and graph.is_hidden(edge, now_ms):
                continue
            yield edge, other


def is_clipped(graph: Graph, id: str, direction: str, fanout: int = limits.WALK_FANOUT) -> bool:
    """Return whether steps() leaves edges of this node out."""
    return (direction != "in" and len(graph.edges_out(id)) > fanout) or (direction != "out" and len(graph.edges_into(id)) > fanout)


def check_anchor(graph: Graph, id: str, now_ms: int) -> Node | Edge | Law:
    """Return the row of an anchor. Raises Refused not_found with near ids in `near`."""
    row = graph.live(id, now_ms)
    if row is None:
        found = near_ids(id, lambda other: graph.live(other, now_ms) is not None, kinds=graph.kinds)
        hint = f"is it {' or '.join(found)}?" if found else "`read list` names the nodes there are"
        raise Refused(f"no row {id}", code="not_found", hint=hint, id=id, near=found)
    return row


def check_reading(direction: str, depth: int, max_rows: int | None = None) -> int:
    """Return the depth to use. Raises Refused bad_argument."""
    if direction not in DIRECTIONS:
        raise Refused(f"direction={direction}", code="bad_argument", hint=f"it is one of {', '.join(DIRECTIONS)}")
    if depth < 0:
        raise Refused(f"depth={depth}", code="bad_argument", hint="a depth is 0 or more")
    if max_rows is not None and max_rows < 0:
        raise Refused(f"max_rows={max_rows}", code="bad_argument", hint="a number of rows is 0 or more")
    return min(depth, limits.WALK_DEPTH_MAX)


class Hop(msgspec.Struct, frozen=True):
    """One edge of a walk: at which depth it leads (1 = from the anchor), and whether it was followed against its arrow."""

    depth: int
    edge: str
    source: str
    relation: str
    target: str
    backward: bool


class Walk(msgspec.Struct, frozen=True):
    """Hops in path order: each behind the hop that led to where it starts. clipped: by rows, depth or fan-out, "" for nothing."""

    anchor: str
    hops: list[Hop]
    nodes: list[str]
    clipped: str
    text: str


def walk(
    graph: Graph,
    anchor: str,
    *,
    depth: int = limits.WALK_DEPTH,
    relations: Collection[str] | None = None,
    direction: str = "both",
    max_rows: int = limits.WALK_ROWS,
    now_ms: int,
) -> Walk:
    """Return the edges within depth of an anchor, every edge once. Nodes are reached by a shortest way. O(max_rows * fan-out)."""
    depth = check_reading(direction, depth, max_rows)
    row = check_anchor(graph, anchor, now_ms)
    start = row.src if isinstance(row, Edge) else row.id
    max_rows = min(max_rows, limits.WALK_ROWS_MAX)
    reached: dict[str, int] = {start: 0}
    seen: set[str] = set()
    found: dict[str, list[tuple[Hop, str, bool]]] = {}
    queue = deque([start])
    count = 0
    clips: dict[str, None] = {}
    while queue:
        id = queue.popleft()
        at = reached[id]
        if at >= depth:
            if graph.degree(id) > 1 and any(e.id not in seen for e, _ in islice(steps(graph, id, direction, relations, now_ms), 8)):
                clips["depth"] = None
            continue
        if is_clipped(graph, id, direction):
            clips["fanout"] = None
        for edge, other in steps(graph, id, direction, relations, now_ms):
            if edge.id in seen:
                continue
            if count >= max_rows:
                clips["max_rows"] = None
                queue.clear()
                break
            seen.add(edge.id)
            count += 1
            new = other not in reached
            found.setdefault(id, []).append((Hop(at + 1, edge.id, edge.src, edge.rel, edge.dst, edge.src != id), other, new))
            if new:
                reached[other] = at + 1
                queue.append(other)
    hops: list[Hop] = []
    nodes = [start]
    # Path order: a hop, then all that it leads to. A stack, because a chain may be longer than Python's recursion.
    stack = [iter(found.get(start, ()))]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            continue
        hop, other, new = step
        hops.append(hop)
        if new:
            nodes.append(other)
            stack.append(iter(found.get(other, ())))
    clipped = ",".join(clips)
    lines = [format_edge(h.edge, h.source, h.relation, h.target, ()) for h in hops]
    more = {"clipped": clipped} if clipped else {}
    footer = format_footer(seq=graph.seq, nodes=(len(nodes), len(reached)), edges=(len(hops), len(hops)), more=more)
    return Walk(anchor, hops, nodes, clipped, "\n".join([*lines, footer]))


class Neighbors(msgspec.Struct, frozen=True):
    """Nodes around one, nearest first: (depth, id), without the node itself; text holds their lines and the edges between."""

    anchor: str
    nodes: list[tuple[int, str]]
    edges: list[str]
    clipped: str
    text: str


def neighbors(
    graph: Graph,
    anchor: str,
    *,
    depth: int = 1,
    relations: Collection[str] | None = None,
    direction: str = "both",
    max_rows: int = limits.WALK_ROWS,
    now_ms: int,
    schema: Schema | None = None,
    with_anchor: bool = False,
) -> Neighbors:
    """Return the nodes within depth of an anchor and the edges that lead to them. `context` is this with the anchor's own line."""
    got = walk(graph, anchor, depth=depth, relations=relations, direction=direction, max_rows=max_rows, now_ms=now_ms)
    depths = {got.nodes[0]: 0}
    for hop in got.hops:
        depths.setdefault(hop.source if hop.backward else hop.target, hop.depth)
    nodes = sorted(((d, id) for id, d in depths.items() if d), key=lambda pair: pair[0])
    edges = [hop.edge for hop in got.hops]
    shown = [got.nodes[0], *(id for _, id in nodes)] if with_anchor else [id for _, id in nodes]
    node_lines = [line_of(graph.nodes[id], schema) for id in shown if id in graph.nodes]
    edge_lines = [line_of(graph.edges[id], schema) for id in edges]
    more = {"clipped": got.clipped} if got.clipped else {}
    footer = format_footer(seq=graph.seq, nodes=(len(node_lines), len(node_lines)), edges=(len(edges), len(edges)), more=more)
    return Neighbors(anchor, nodes, edges, got.clipped, "\n".join([*format_document([], node_lines, edge_lines), footer]))


class Path(msgspec.Struct, frozen=True):
    """A shortest way: nodes from start to end and the edge between each two; both empty where there is none.

    cost: hops, or the sum of weights. complete: False where the search gave up at limits.PATH_NODES.
    """

    nodes: list[str]
    edges: list[str]
    cost: float
    complete: bool
    text: str


def path(
    graph: Graph,
    start: str,
    end: str,
    *,
    direction: str = "out",
    relations: Collection[str] | None = None,
    weight: str | None = None,
    now_ms: int,
    schema: Schema | None = None,
) -> Path:
    """Return a shortest path from start to end; ties go to the way found over older edges.

    weight: the edge field that holds a step's cost, a number of 0 or more; a step without it costs 1. Dijkstra (1959).
    Raises Refused bad_weight.
    """
    check_reading(direction, 0)
    for id in (start, end):
        if not isinstance(check_anchor(graph, id, now_ms), Node):
            raise Refused(f"{id} is not a node", code="bad_argument", hint="a path joins nodes")
    came: dict[str, tuple[str, Edge] | None] = {}
    queue: list[tuple[float, int, str, str, Edge | None]] = [(0.0, 0, start, "", None)]
    best = {start: 0.0}
    order = 0
    cost = 0.0
    while queue and len(came) < limits.PATH_NODES:
        cost, _, id, before, edge = heappop(queue)
        if id in came:
            continue
        came[id] = None if edge is None else (before, edge)
        if id == end:
            break
        # All edges, oldest first: a path through the 257th edge of a hub is still the path.
        for edge, other in reversed(list(steps(graph, id, direction, relations, now_ms, len(graph.edges)))):
            if other in came:
                continue
            ahead = cost + (1.0 if weight is None else _weight(edge, weight))
            if ahead < best.get(other, float("inf")):
                best[other] = ahead
                order += 1
                heappush(queue, (ahead, order, other, id, edge))
    if end not in came:
        complete = len(came) < limits.PATH_NODES
        along = "" if relations is None else f" over {', '.join(sorted(set(relations)))}"
        none = f"# pinfold: no path from {start} to {end} {_WAYS[direction]}{along}"
        footer = format_footer(seq=graph.seq, nodes=(0, 0), edges=(0, 0), more={} if complete else {"clipped": "nodes"})
        return Path([], [], 0.0, complete, f"{none}\n{footer}")
    nodes, edges = [end], []
    while (step := came[nodes[-1]]) is not None:
        nodes.append(step[0])
        edges.append(step[1])
    nodes.reverse()
    edges.reverse()
    node_lines = [line_of(graph.nodes[id], schema) for id in nodes]
    lines = format_document([], node_lines, [line_of(e, schema) for e in edges])
    footer = format_footer(seq=graph.seq, nodes=(len(nodes), len(nodes)), edges=(len(edges), len(edges)), more={"cost": f"{cost:g}"})
    return Path(nodes, [e.id for e in edges], cost, True, "\n".join([*lines, footer]))


def _weight(edge: Edge, field: str) -> float:
    from pinfold.dialect.parse import is_number  # with all its patterns: most reads need none of them

    value = edge.get(field)
    if not value:
        return 1.0
    if is_number(value) is None or value.startswith("-"):
        raise Refused(f"{field} of {edge.id} is no weight: {value[:40]!r}", code="bad_weight", hint="weights are numbers of 0 or more", id=edge.id)
    return float(value)
