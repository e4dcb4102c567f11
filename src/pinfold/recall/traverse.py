"""From one memory along its edges: breadth first, each node at its shortest depth by its strongest edge. Pure, bounded.

Scores are seed constants: 100 x decayed weight of the edge that led there / (1 + 0.3 depth), clamped to 0..100. Order:
depth, score, id; so it does not depend on the order in which edges were made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from pinfold.recall.walk import steps
from pinfold.state.graph import Edge, Graph
from pinfold.state.memory_rows import decayed, label_of

EDGES_LOOKED_AT = 500_000
"""Work of one traversal: edges beyond these are not followed, and the answer says so."""
DEPTH_DAMPING = 0.3


class Reached(msgspec.Struct, frozen=True):
    """A node, how far it is, by which edge it was reached, and the product of decayed weights on the way to it."""

    id: str
    depth: int
    edge: Edge | None
    weight: float
    strength: float


def spread(
    graph: Graph, starts: Iterable[str], max_depth: int, relations: Collection[str] | None, now_ms: int, budget: int = EDGES_LOOKED_AT
) -> tuple[dict[str, Reached], bool]:
    """Return (node -> how it was reached, whether work was left undone), starts first, nearest first.

    A node of several equally short ways takes the strongest edge, then the parent with the lesser id.
    """
    reached = {id: Reached(id, 0, None, 1.0, 1.0) for id in starts}
    ring = list(reached)
    for depth in range(1, max_depth + 1):
        found: dict[str, tuple[float, float, str, Edge]] = {}
        for id in ring:
            strength = reached[id].strength
            for edge, other in steps(graph, id, "both", relations, now_ms, max(1, budget)):
                budget -= 1
                if budget < 0:
                    break
                if other in reached:
                    continue
                weight = decayed(edge, now_ms)
                known = found.get(other)
                if known is None or (weight, strength) > known[:2] or ((weight, strength) == known[:2] and (id, edge.id) < (known[2], known[3].id)):
                    found[other] = (weight, strength, id, edge)
        if not found:
            break
        ring = sorted(found)
        for other in ring:
            weight, strength, _, edge = found[other]
            reached[other] = Reached(other, depth, edge, weight, strength * weight)
        if budget < 0:
            break
    return reached, budget < 0


def score_of(step: Reached) -> float:
    """Return 0..100; 100 for the start."""
    return 100.0 if step.edge is None else round(min(100.0, max(0.0, 100.0 * step.weight / (1.0 + DEPTH_DAMPING * step.depth))), 1)


def path_of(graph: Graph, reached: dict[str, Reached], id: str) -> list[str]:
    """Return label, arrow, label … from the start to a node; an edge followed against its arrow reads `<--[relation]--`."""
    parts: list[str] = []
    while True:
        node = graph.nodes.get(id)
        parts.append(label_of(node) if node is not None else id)
        edge = reached[id].edge
        if edge is None:
            return parts[::-1]
        forward = edge.dst == id
        parts.append(f"--[{edge.rel}]-->" if forward else f"<--[{edge.rel}]--")
        id = edge.src if forward else edge.dst
