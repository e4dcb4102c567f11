"""Projects in a folder of a test's own, and what a session has of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pinfold import Session

SAMPLES = Path(__file__).parent / "samples"


def put(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files into a folder, which is made. Return it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def pins(session: Session) -> dict[str, dict[str, str]]:
    """Return locator -> fields (and `kind`) of every node."""
    view = session._view()
    return {node.values[0]: {"kind": node.kind, **node.fields} for node in view.graph.nodes.values() if node.values}


def links(session: Session, *relations: str) -> set[tuple[str, str, str]]:
    """Return (locator, relation, locator) of every edge, or of those along some relations."""
    graph = session._view().graph
    name = {node.id: node.get(node.keys[0]) if node.keys else node.id for node in graph.nodes.values()}
    return {(name[edge.src], edge.rel, name[edge.dst]) for edge in graph.edges.values() if not relations or edge.rel in relations}


def rows(session: Session) -> list[str]:
    """Return every row as it reads, edges by what they join: what two sessions have in common but for minted ids."""
    graph = session._view().graph
    nodes = [f"{node.kind} {node.id} {sorted(node.fields.items())}" for node in graph.nodes.values()]
    return sorted([*nodes, *(f"{edge.src} {edge.rel} {edge.dst} {sorted(edge.fields.items())}" for edge in graph.edges.values())])
