"""Going back: decide_undo. Pure, and through the same draft as every other change.

Undoing is a change like any other: a new entry that gives the rows of an old one the content they had before it. It is
refused, with names, where something later rests on what would go.
"""

from __future__ import annotations

from collections.abc import Iterable

from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.state.draft import NEW_BORN, Draft, Work, form_of, kind_of
from pinfold.state.graph import Edge, Graph, Law, Node
from pinfold.state.schema import Schema

GRAPH_FACTS = frozenset({"node.put", "node.drop", "edge.put", "edge.drop", "law.put", "law.drop"})


def decide_undo(graph: Graph, schema: Schema, before: Graph, facts: Iterable[Fact], *, seq: int, now_ms: int) -> tuple[list[Fact], list[str]]:
    """Return the facts that undo the graph facts of entry seq, and the ids they touch.

    before: the graph as it was just before that entry. Raises Refused undo_conflict with `rows`, the ids that changed or came
    to depend on it later; schema changes are not undone (a schema only widens).
    """
    touched = list(dict.fromkeys(fact["id"] for fact in facts if fact["f"] in GRAPH_FACTS))
    draft = Draft(graph, schema, now_ms)
    later: dict[str, str] = {}
    stood = {fact["id"] for fact in facts if fact["f"] in GRAPH_FACTS and fact["f"].endswith(".put")}
    for id in touched:
        now = graph.row(id)
        if now is not None and now.mark[0] > seq:
            later[id] = f"changed at seq {now.mark[0]}"
        elif now is None and id in stood:
            later[id] = "dropped since"
        elif isinstance(now, Node) and before.nodes.get(id) is None:
            for edge in graph.edges_of(id):
                if edge.id not in touched:
                    later[edge.id] = f"an edge of {id}, which would go"
    if later:
        raise _conflict(seq, later)
    for id in touched:
        now = graph.row(id)
        if now is not None and not _is_alike(now, before.row(id)):
            draft.remove_one(now)
    for id in touched:
        _restore(draft, before, id)
    for id in touched:
        row = draft.peek(id)
        if isinstance(row, Work) and row.form == "edge":
            for end in (row.src, row.dst):
                found = draft.peek(end)
                if not isinstance(found, Node) and not (isinstance(found, Work) and found.form == "node"):
                    later[end] = f"no longer there, and {id} needs it"
            twin = graph.edge_between(row.src, row.rel, row.dst)
            if twin is not None and twin.id not in touched:
                later[twin.id] = f"says what {id} said"
    if later:
        raise _conflict(seq, later)
    return draft.facts(), touched


def _conflict(seq: int, later: dict[str, str]) -> Refused:
    named = ", ".join(f"{id} ({why})" for id, why in list(later.items())[:10])
    return Refused(f"entry {seq} cannot be undone: {named}", code="undo_conflict", hint="undo the later changes first", seq=seq, rows=list(later))


def _is_alike(a: Node | Edge | Law, b: Node | Edge | Law | None) -> bool:
    """Return whether b can be had by changing a: the same form and kind."""
    return b is not None and form_of(a) == form_of(b) and kind_of(a) == kind_of(b)


def _restore(draft: Draft, before: Graph, id: str) -> None:
    was = before.row(id)
    if was is None:
        return
    now = draft.peek(id)
    if now is not None:
        work = draft.take(now)
        if isinstance(was, Edge):
            draft.detach(work)
            work.src, work.rel, work.dst = was.src, was.rel, was.dst
            draft.attach(work)
        work.fields = was.fields
        return
    work = Work(form_of(was), id, was.fields, 0, NEW_BORN + draft.created)
    if isinstance(was, Node):
        work.kind = was.kind
    elif isinstance(was, Edge):
        work.src, work.rel, work.dst = was.src, was.rel, was.dst
        draft.attach(work)
    draft.enter(work)
