"""A draft says beforehand what the graph will say: whatever is changed in it, its facts make it so, and until then nothing moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pinfold.state.draft import NEW_BORN, Draft, Work, form_of, kind_of
from pinfold.testing.graphs import GraphStore

ROWS = """
SCHEMA TSK ; fields=id goal status
+ TSK [T1] ; goal=a
+ TSK [T2] ; goal=b
+ TSK [T3] ; goal=c
+ NOTE [M1] ; path=x
+ [T1] --(owns)--> [T2]
+ [T2] --(owns)--> [T3]
+ [T1] --(next)--> [T3]
+ [T3] --(next)--> [T3]
+ [M1] --(owns)--> [T3]
+ LAW01 name=x
"""
IDS = ("T1", "T2", "T3", "T9", "M1", "E1", "E2", "E3", "E4", "E5", "E9", "LAW01", "LAW02")
NODES = ("T1", "T2", "T3", "T9", "M1")


def new_node(draft: Draft, id: str = "T9", kind: str = "TSK") -> None:
    draft.enter(Work("node", id, {"status": "new", "goal": "z"}, 1, NEW_BORN + draft.created, kind=kind))


def new_edge(draft: Draft, id: str, src: str, rel: str, dst: str) -> None:
    work = Work("edge", id, {}, 1, NEW_BORN + draft.created, src=src, rel=rel, dst=dst)
    draft.attach(work)
    draft.enter(work)


def patch(draft: Draft, id: str, **fields: str) -> None:
    row = draft.peek(id)
    assert row is not None
    work = draft.take(row, 3)
    work.fields = {**work.fields, **fields}


def remove(draft: Draft, id: str) -> None:
    row = draft.peek(id)
    assert row is not None
    draft.remove(row, 4)


def rename(draft: Draft, id: str, new_id: str) -> None:
    row = draft.peek(id)
    assert row is not None
    draft.rename(draft.take(row), new_id)


def retarget(draft: Draft, id: str, old: str, new: str) -> None:
    edge = next(edge for edge in draft.edges_of(old) if edge.id == id)
    draft.retarget(edge, old, new)


def fold(draft: Draft, id: str, into: str) -> None:
    row, work = draft.peek(id), draft.peek(into)
    assert row is not None and work is not None
    draft.fold(row, draft.take(work))


def seen(draft: Draft, id: str) -> None:
    assert draft.edges_of(id)


def new_law(draft: Draft) -> None:
    draft.enter(Work("law", "LAW02", {"name": "y"}, 1, NEW_BORN))


Change = Callable[[Draft], None]
CHANGES: dict[str, list[Change]] = {
    "nothing": [],
    "looked at only": [lambda d: patch(d, "T1"), lambda d: patch(d, "E1")],
    "a field": [lambda d: patch(d, "T1", goal="other"), lambda d: patch(d, "E1", note="x"), lambda d: patch(d, "LAW01", name="z")],
    "a node goes": [lambda d: remove(d, "T3")],
    "an edge goes": [lambda d: remove(d, "E1"), lambda d: remove(d, "E4")],
    "a patched edge goes": [lambda d: patch(d, "E1", note="x"), lambda d: remove(d, "E1")],
    "a node goes with a patched edge": [lambda d: patch(d, "E2", note="x"), lambda d: remove(d, "T3")],
    "a law goes": [lambda d: remove(d, "LAW01")],
    "new rows": [new_node, new_law, lambda d: new_edge(d, "E9", "T9", "owns", "T1")],
    "a new node goes again": [new_node, lambda d: new_edge(d, "E9", "T9", "owns", "T1"), lambda d: remove(d, "T9")],
    "a new edge to an old node goes with it": [lambda d: new_edge(d, "E9", "T1", "owns", "T3"), lambda d: remove(d, "T1")],
    "an id taken again": [lambda d: remove(d, "T3"), lambda d: new_node(d, "T3", "NOTE")],
    "a triple said again": [lambda d: remove(d, "E1"), lambda d: new_edge(d, "E9", "T1", "owns", "T2")],
    "a node renamed": [lambda d: rename(d, "T3", "T9")],
    "an edge renamed": [lambda d: rename(d, "E3", "E9")],
    "an edge seen at its ends and renamed": [lambda d: patch(d, "E3", note="x"), lambda d: seen(d, "T1"), lambda d: rename(d, "E3", "E9")],
    "renamed and the old name taken": [lambda d: rename(d, "T3", "T9"), lambda d: new_node(d, "T3")],
    "renamed there and back": [lambda d: rename(d, "T3", "T9"), lambda d: rename(d, "T9", "T3")],
    "renamed to what was dropped": [lambda d: remove(d, "T2"), lambda d: rename(d, "T3", "T2")],
    "renamed and dropped": [lambda d: rename(d, "T3", "T9"), lambda d: remove(d, "T9")],
    "a new node renamed": [new_node, lambda d: new_edge(d, "E9", "T9", "owns", "T1"), lambda d: remove(d, "T2"), lambda d: rename(d, "T9", "T2")],
    "an edge led elsewhere": [lambda d: retarget(d, "E1", "T2", "M1"), lambda d: retarget(d, "E4", "T3", "T1")],
    "an edge led there and back": [lambda d: retarget(d, "E1", "T2", "M1"), lambda d: retarget(d, "E1", "M1", "T2")],
    "folded, with a double and a loop": [lambda d: fold(d, "T2", "T1")],
    "folded the other way": [lambda d: fold(d, "T1", "T2")],
    "folded with its own loop": [lambda d: fold(d, "T3", "M1")],
    "folded into a new node": [new_node, lambda d: fold(d, "T3", "T9")],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_what_a_draft_says_is_what_its_facts_make_of_the_graph(changes: list[Change]) -> None:
    store = GraphStore(ROWS)
    before = store.state()
    draft = Draft(store.graph, store.schema, store.now_ms)
    for change in changes:
        change(draft)
    facts, dropped = draft.facts(), draft.dropped()
    rows = {id: row if (row := draft.peek(id)) is None else draft.line(row) for id in IDS}
    edges = {id: [edge.id for edge in draft.edges_of(id)] for id in NODES}
    triples = {(e.src, e.rel, e.dst) for id in NODES for e in draft.edges_of(id)} | {("T1", "owns", "T2"), ("T2", "owns", "T3"), ("T1", "next", "T3")}
    between = {triple: getattr(draft.between(*triple), "id", None) for triple in triples}
    assert store.state() == before and draft.facts() == facts
    store.append(facts)
    assert rows == {id: store.read(id) for id in IDS}
    assert edges == {id: [edge.id for edge in store.graph.edges_of(id)] for id in NODES}
    assert between == {triple: getattr(store.graph.edge_between(*triple), "id", None) for triple in triples}
    assert all(store.graph.row(id) is None for id in dropped)


def lines_after(*changes: Change) -> dict[str, str | None]:
    """What the graph says of each edge after these changes, None where it is gone."""
    store = GraphStore(ROWS)
    draft = Draft(store.graph, store.schema, store.now_ms)
    for change in changes:
        change(draft)
    store.append(draft.facts())
    return {id: store.read(id) for id in ("E1", "E2", "E3", "E4", "E5", "E9")}


AS_WRITTEN = {
    "E1": "E1 [T1] --(owns)--> [T2]",
    "E2": "E2 [T2] --(owns)--> [T3]",
    "E3": "E3 [T1] --(next)--> [T3]",
    "E4": "E4 [T3] --(next)--> [T3]",
    "E5": "E5 [M1] --(owns)--> [T3]",
    "E9": None,
}


def test_the_edges_of_a_renamed_node_follow_it() -> None:
    renamed = {id: line and line.replace("[T3]", "[T9]") for id, line in AS_WRITTEN.items()}
    assert lines_after(lambda d: rename(d, "T3", "T9")) == renamed
    assert lines_after(lambda d: rename(d, "E3", "E9")) == {**AS_WRITTEN, "E3": None, "E9": "E9 [T1] --(next)--> [T3]"}
    assert lines_after(lambda d: rename(d, "LAW01", "LAW02")) == AS_WRITTEN


def test_the_edges_of_a_folded_node_move_and_doubles_and_loops_are_dropped() -> None:
    assert lines_after(lambda d: fold(d, "T2", "T1")) == {**AS_WRITTEN, "E1": None, "E2": "E2 [T1] --(owns)--> [T3]"}
    moved = {"E2": "E2 [T2] --(owns)--> [M1]", "E3": "E3 [T1] --(next)--> [M1]", "E4": "E4 [M1] --(next)--> [M1]", "E5": None}
    assert lines_after(lambda d: fold(d, "T3", "M1")) == {**AS_WRITTEN, **moved}  # its own loop stays one
    assert lines_after(lambda d: fold(d, "M1", "T2")) == {**AS_WRITTEN, "E5": None}  # E2 says it already


def test_only_what_was_named_and_its_edges_go() -> None:
    assert lines_after(lambda d: remove(d, "E1")) == {**AS_WRITTEN, "E1": None}
    assert lines_after(lambda d: remove(d, "T2")) == {**AS_WRITTEN, "E1": None, "E2": None}


def test_the_line_that_first_touched_a_row_of_the_graph_is_remembered() -> None:
    store = GraphStore(ROWS)
    draft = Draft(store.graph, store.schema, store.now_ms)
    patch(draft, "T1", goal="q")  # at line 3
    remove(draft, "T1")  # at line 4, with its edges
    fold(draft, "T2", "T3")
    touched = {id: line for id, (row, line) in draft.touched_base.items() if row is store.graph.row(id)}
    assert touched == {"T1": 3, "E1": 4, "E3": 4, "T3": 0, "T2": 0, "E2": 0}
    assert draft.take(store.graph.nodes["M1"]).line == 0
    draft.remove(store.graph.laws["LAW01"])
    assert draft.touched_base["LAW01"][1] == 0
    graph = store.graph
    for line, given in ((0, ()), (9, (9,))):
        draft = Draft(graph, store.schema, store.now_ms)
        draft.retarget(graph.edges["E1"], "T2", "T3", *given)
        draft.rename(draft.take(graph.nodes["M1"], line), "M9", *given)
        draft.remove_one(graph.edges["E4"], *given)
        draft.fold(graph.nodes["T2"], draft.take(graph.nodes["T1"], line), *given)
        assert {id: at for id, (_, at) in draft.touched_base.items()} == dict.fromkeys(("E1", "M1", "E5", "E4", "T1", "T2", "E2"), line)


def test_a_double_that_would_be_dropped_is_told_at_the_line_that_folded() -> None:
    store = GraphStore("+ A [a]\n+ A [b]\n+ A [c]\n+ [a] --(r)--> [c] ; ttl=5s\n+ [b] --(r)--> [c]\n+ [a] --(s)--> [c]\n+ [b] --(s)--> [c]")
    draft = Draft(store.graph, store.schema, store.now_ms + 5_000)
    draft.fold(store.graph.nodes["b"], draft.take(store.graph.nodes["a"], 9), 9)
    assert {id: at for id, (_, at) in draft.touched_base.items()} == dict.fromkeys(("a", "b", "E1", "E2", "E4"), 9)
    assert draft.dropped() == ["b", "E1", "E4"]


def test_a_loop_that_folding_makes_goes_without_a_look_at_what_is_over() -> None:
    store = GraphStore("+ A [a]\n+ A [b]\n+ [a] --(r)--> [a] ; ttl=5s\n+ [a] --(r)--> [b]")
    draft = Draft(store.graph, store.schema, store.now_ms + 5_000)
    fold(draft, "b", "a")
    assert draft.dropped() == ["b", "E2"]


def test_an_id_removed_and_taken_and_given_up_again_is_told_as_removed() -> None:
    draft = Draft(GraphStore(ROWS).graph, GraphStore(ROWS).schema, 0)
    remove(draft, "T2")
    rename(draft, "T3", "T2")
    assert draft.dropped() == ["E1", "E2"]
    rename(draft, "T2", "T9")
    assert draft.dropped() == ["T2", "E1", "E2"]


def test_what_is_removed_twice_is_told_where_it_went_last() -> None:
    draft = Draft(GraphStore(ROWS).graph, GraphStore(ROWS).schema, 0)
    remove(draft, "LAW01")
    remove(draft, "E1")
    draft.enter(Work("law", "LAW01", {"name": "y"}, 1, NEW_BORN))
    remove(draft, "LAW01")
    assert draft.dropped() == ["E1", "LAW01"]


def test_what_comes_out_as_it_was_writes_nothing() -> None:
    store = GraphStore(ROWS)
    for name in ("nothing", "looked at only", "an edge led there and back"):
        draft = Draft(store.graph, store.schema, store.now_ms)
        for change in CHANGES[name]:
            change(draft)
        assert draft.facts() == []


def test_facts_come_as_drops_then_nodes_then_laws_then_edges_each_in_order_of_first_touch() -> None:
    draft = Draft(GraphStore(ROWS).graph, GraphStore(ROWS).schema, 0)
    new_edge(draft, "E9", "T1", "owns", "M1")
    new_law(draft)
    remove(draft, "LAW01")
    remove(draft, "T2")
    new_node(draft)
    patch(draft, "M1", path="y")
    assert [(fact["f"], fact["id"]) for fact in draft.facts()] == [
        ("edge.drop", "E1"),
        ("edge.drop", "E2"),
        ("node.drop", "T2"),
        ("law.drop", "LAW01"),
        ("node.put", "T9"),
        ("node.put", "M1"),
        ("law.put", "LAW02"),
        ("edge.put", "E9"),
    ]
    assert draft.dropped() == ["LAW01", "T2", "E1", "E2"]


def test_a_renamed_row_says_what_it_was_and_keeps_its_birth_and_what_it_brought_along() -> None:
    store = GraphStore("+ A [a]")
    store.append([{"f": "node.put", "id": "b", "kind": "A", "fields": {"x": "1"}, "later": 7}])
    draft = Draft(store.graph, store.schema, store.now_ms)
    rename(draft, "b", "c")
    new_node(draft, "d")
    draft.works[-1].minted = 4
    drop, put, new = draft.facts()
    assert drop == {"f": "node.drop", "id": "b"}
    assert put == {"f": "node.put", "id": "c", "kind": "A", "fields": {"x": "1"}, "later": 7, "born": store.graph.nodes["b"].born, "was": "b"}
    assert new["minted"] == 4 and "born" not in new and "was" not in new


def test_rows_whose_time_is_over_are_absent_and_make_way_with_their_edges() -> None:
    store = GraphStore("+ A [a] ; ttl=5s\n+ A [b]\n+ [a] --(r)--> [b]")
    draft = Draft(store.graph, store.schema, store.now_ms + 4_999)
    assert draft.peek("a") is not None and not draft.free("a") and draft.free("c") and not draft.free("b")
    assert draft.facts() == []
    draft = Draft(store.graph, store.schema, store.now_ms + 5_000)
    assert draft.peek("a") is None and draft.is_hidden(store.graph.nodes["a"]) and not draft.is_hidden(store.graph.nodes["b"])
    assert draft.free("a", 7) and draft.free("a") and draft.dropped() == ["a", "E1"]
    assert draft.touched_base["a"] == (store.graph.nodes["a"], 7) and draft.touched_base["E1"][1] == 7
    unlined = Draft(store.graph, store.schema, store.now_ms + 5_000)
    assert unlined.free("a") and unlined.touched_base["a"][1] == 0
    new_node(draft, "a")
    assert not draft.free("a") and draft.dropped() == ["E1"]
    work = draft.peek("a")
    assert isinstance(work, Work) and not draft.is_hidden(work)


def test_a_double_whose_time_is_over_makes_way_for_a_folded_edge() -> None:
    store = GraphStore("+ A [a]\n+ A [b]\n+ A [c]\n+ [a] --(r)--> [c] ; ttl=5s\n+ [b] --(r)--> [c]")
    draft = Draft(store.graph, store.schema, store.now_ms + 5_000)
    fold(draft, "b", "a")
    assert draft.dropped() == ["b", "E1"]
    store.append(draft.facts())
    assert [edge.id for edge in store.graph.edges_of("a")] == ["E2"]


def test_an_id_is_minted_above_every_number_that_is_or_was_and_past_what_is_mentioned() -> None:
    store = GraphStore("+ A [NEW]\n+ A [NEW]\n+ A [A7]")
    draft = Draft(store.graph, store.schema, store.now_ms)
    assert draft.mint("A", set()) == ("A3", 3)
    assert draft.mint("A", {"A4", "A5"}) == ("A6", 6)
    assert draft.mint("A", set()) == ("A8", 8)  # A7 is there
    assert draft.mint("LAW", set())[1] == 1
    remove(draft, "A7")
    new_node(draft, "A9")
    remove(draft, "A9")
    assert draft.mint("A", set()) == ("A10", 10)
    new_node(draft, "A11")
    assert draft.mint("A", set()) == ("A12", 12)
    draft = Draft(store.graph, store.schema, store.now_ms)
    for id in ("B1", "C5", "C3", "D0"):
        new_node(draft, id)
        remove(draft, id)
    assert draft.mint("B", set()) == ("B2", 2) and draft.mint("C", set()) == ("C6", 6)
    assert draft.mint("Z", set()) == ("Z1", 1) and draft.mint("D", set()) == ("D1", 1)


def test_what_is_shown_is_told_once_in_the_order_it_was_touched() -> None:
    store = GraphStore(ROWS)
    draft = Draft(store.graph, store.schema, store.now_ms)
    new_node(draft)
    patch(draft, "T1", goal="q")
    patch(draft, "T2", goal="q")
    for id in ("T2", "T1", "T2", "T9"):
        work = draft.peek(id)
        assert isinstance(work, Work)
        draft.show(work)
    assert [work.id for work in draft.shown] == ["T9", "T2", "T1"] and draft.created == 1


def test_a_row_of_the_draft_is_told_in_the_order_its_kind_declares() -> None:
    store = GraphStore(ROWS)
    draft = Draft(store.graph, store.schema, store.now_ms)
    new_node(draft)
    new_node(draft, "M9", "NOTE")
    assert draft.created == 2
    store.mutate("+ TSK [T5] ; status=s ; goal=g")
    assert draft.line(store.graph.nodes["T5"]) == store.read("T5") == "TSK [T5] ; goal=g ; status=s"
    assert draft.line(draft.works[0]) == "TSK [T9] ; goal=z ; status=new"
    assert draft.line(draft.works[1]) == "NOTE [M9] ; status=new ; goal=z"


def test_form_and_kind_of_every_row() -> None:
    store = GraphStore(ROWS)
    draft = Draft(store.graph, store.schema, store.now_ms)
    for id, form, kind in (("M1", "node", "NOTE"), ("E1", "edge", ""), ("LAW01", "law", "")):
        row = store.graph.row(id)
        assert row is not None
        work = draft.take(row, 2)
        assert (form_of(row), kind_of(row), form_of(work), kind_of(work)) == (form, kind, form, kind)
        assert work.line == 2 and draft.take(work) is work and work.get("path") == ("x" if id == "M1" else "")
