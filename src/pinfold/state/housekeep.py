"""What a session drops by itself: rows whose time is over, and, when asked, what nobody needs any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from pinfold import limits
from pinfold.entry import Fact
from pinfold.state.graph import Edge, Graph, Law, Node
from pinfold.state.schema import Schema


def drop_rows(graph: Graph, schema: Schema, ids: Iterable[str], now_ms: int) -> tuple[list[Fact], list[str]]:
    """Return facts that drop these rows, each node with its edges, and the ids that go, in order."""
    from pinfold.state.draft import Draft  # with the rules of lines, which a peek does not need

    draft = Draft(graph, schema, now_ms)
    for id in ids:
        row = graph.row(id)
        if row is not None and id not in draft.rows:
            draft.remove(row)
    return draft.facts(), draft.dropped()


def decide_expire(graph: Graph, schema: Schema, *, now_ms: int, limit: int = limits.HOUSEKEEP_PER_TURN) -> tuple[list[Fact], list[str]]:
    """Return the facts that remove rows whose time is over, earliest first, and what goes: at most limit rows and their edges."""
    if not graph.due or graph.due[0][0] > now_ms:
        return [], []
    return drop_rows(graph, schema, graph.expired(now_ms, limit), now_ms)


# --- housekeeping when asked ----------------------------------------------------------------------------------------

HOUSEKEEPING = ("expired", "orphans", "stale", "dangling", "recyclable")
"""What `housekeep` looks for: rows past their time; nodes without edges; both; edges without an end (there are none here);
rows marked to be recycled that may go now."""

ORPHAN_AGE_MS = 7 * 24 * 3600 * 1000
"""A node without edges is fresh for a week: it may be about to be linked."""

_TRANSIENT = frozenset(("delete_on_settle", "delete_on_expire"))


def find_rows(graph: Graph, bucket: str, kind: str | None, now_ms: int) -> list[str]:
    """Return the ids in a bucket, in the order of the graph."""
    return [row.id for row in _rows_in(graph, bucket, kind, now_ms)]


def _rows_in(graph: Graph, bucket: str, kind: str | None, now_ms: int) -> list[Node | Edge]:
    found: list[Node | Edge] = []
    for row in graph.rows():
        if isinstance(row, Law) or (kind is not None and not (isinstance(row, Node) and row.kind == kind)):
            continue
        is_orphan = isinstance(row, Node) and not graph.degree(row.id)
        is_due = _is_due(graph, row.id, now_ms)
        is_transient = is_due or (row.get("recycle") in _TRANSIENT and row.get("status") == "settled")
        wanted = {"expired": is_due, "orphans": is_orphan, "stale": is_due or is_orphan, "dangling": False, "recyclable": is_transient}
        if wanted[bucket]:
            found.append(row)
    return found


def _is_due(graph: Graph, id: str, now_ms: int) -> bool:
    at_ms = graph.expiring.get(id)
    return at_ms is not None and at_ms <= now_ms


def decide_prune(graph: Graph, schema: Schema, bucket: str, kind: str | None, now_ms: int) -> tuple[list[Fact], list[str]]:
    """Return facts that drop what may go of a bucket: past its time, or transient and old; never fresh or persistent rows."""
    ids = []
    for row in _rows_in(graph, bucket, kind, now_ms):
        is_old = row.get("recycle") in _TRANSIENT and now_ms - row.mark[1] > ORPHAN_AGE_MS
        if bucket == "recyclable" or is_old or _is_due(graph, row.id, now_ms):
            ids.append(row.id)
    return drop_rows(graph, schema, ids, now_ms)
