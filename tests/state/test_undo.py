from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.errors import DocumentRefused, Refused
from pinfold.state.housekeep import decide_expire
from pinfold.state.undo import decide_undo
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore


def undo(store: GraphStore, seq: int) -> list[str]:
    before = GraphStore()
    for entry in store.entries[: seq - 1]:
        before.apply(entry)
    facts, ids = decide_undo(store.graph, store.schema, before.graph, store.entries[seq - 1].facts, seq=seq, now_ms=store.now_ms)
    store.append(facts)
    return ids


@given(st.lists(strategies.documents(), min_size=1, max_size=6))
@settings(max_examples=70, deadline=None)
def test_undoing_the_last_entry_gives_the_graph_before_it(documents: list[str]) -> None:
    store = GraphStore("+ TSK [T1]\n+ TSK [T2]\n+ [T1] --(owns)--> [T2]")
    for document in documents:
        content = store.content()
        try:
            store.mutate(document)
        except DocumentRefused:
            continue
        if store.seq > 1 and content != store.content():
            last = store.seq
            changed = store.content()
            undo(store, last)
            assert store.content() == content
            undo(store, store.seq)
            assert store.content() == changed


def test_undo_is_refused_with_names_where_later_changes_depend() -> None:
    store = GraphStore("+ TSK [T1] ; a=1", "+ TSK [T2]", "+ [T1] --(owns)--> [T2]", "~ [T1] ; a=2", "- T2")
    for seq, rows in ((1, ["T1"]), (2, ["T2"]), (3, ["E1"])):
        with pytest.raises(Refused) as refused:
            undo(store, seq)
        assert (refused.value.code, refused.value.rows) == ("undo_conflict", rows)
    assert undo(store, 4) == ["T1"]
    assert undo(store, 5) == ["E1", "T2"]
    assert (store.read("T1"), store.read("E1")) == ("TSK [T1] ; a=1", "E1 [T1] --(owns)--> [T2]")
    assert store.mutate("+ [T2] --(owns)--> [T1]").minted == {"#1": "E2"}


def conflict(store: GraphStore, seq: int) -> Refused:
    before = store.state()
    with pytest.raises(Refused) as refused:
        undo(store, seq)
    error = refused.value
    assert (error.code, error.fields["seq"]) == ("undo_conflict", seq) and f"entry {seq} " in error.message
    assert "undo the later changes" in error.hint and store.state() == before
    return error


def test_each_reason_against_undoing_is_told_with_its_row() -> None:
    store = GraphStore("+ T [T1]", "~ [T1] ; a=2", "+ T [T2]", "- T2")
    assert "T1 (changed at seq 2)" in conflict(store, 1).message
    assert "T2 (dropped since)" in conflict(store, 3).message
    store = GraphStore("+ T [T1]\n+ T [T2]", "+ T [T3]", "+ [T3] --(r)--> [T1]")
    error = conflict(store, 2)
    assert error.rows == ["E1"] and "E1 (an edge of T3, which would go)" in error.message
    store = GraphStore("+ T [T1]\n+ T [T2]\n+ [T1] --(r)--> [T2]", "- E1", "- T2")
    error = conflict(store, 2)
    assert error.rows == ["T2"] and "T2 (no longer there, and E1 needs it)" in error.message
    store = GraphStore("+ T [T1]\n+ T [T2]\n+ [T1] --(r)--> [T2]", "- E1", "+ [T1] --(r)--> [T2]")
    error = conflict(store, 2)
    assert error.rows == ["E2"] and "E2 (says what E1 said)" in error.message


def test_every_row_in_the_way_is_in_rows_and_ten_of_them_are_told() -> None:
    store = GraphStore("\n".join(f"+ T [T{at}]" for at in range(12)), "\n".join(f"~ [T{at}] ; a=1" for at in range(12)))
    error = conflict(store, 1)
    assert error.rows == [f"T{at}" for at in range(12)]
    assert "T9 (" in error.message and "T10 (" not in error.message


@pytest.mark.parametrize(
    ("document", "ids"),
    [
        ("- T1\n+ MOD [T1] ; b=2", ["E1", "T1"]),  # another kind under the same id
        ("- T3\n+ T3 [T2] --(r)--> [T2]", ["T3"]),  # an edge where a node was
        ("~ [E1] ; a=2", ["E1"]),
        ("~ [LAW01] ; name=y", ["LAW01"]),
        ("- LAW01\n- T3", ["T3", "LAW01"]),
        ("~ [T1] ; id=T9", ["T1", "T9", "E1"]),
        ("- E1\n+ [T2] --(owns)--> [T1]", ["E1", "E2"]),
    ],
)
def test_an_undone_document_leaves_the_content_as_it_was(document: str, ids: list[str]) -> None:
    store = GraphStore("+ TSK [T1] ; a=1\n+ TSK [T2]\n+ TSK [T3]\n+ [T1] --(owns)--> [T2]\n+ LAW01 name=x")
    content = store.content()
    store.mutate(document)
    assert store.content() != content
    assert undo(store, 2) == ids
    assert store.content() == content


def test_an_undone_patch_is_made_in_place_so_order_birth_and_edges_stay() -> None:
    store = GraphStore("+ TSK [T1] ; a=1 ; ttl=1h\n+ TSK [T2]\n+ [T1] --(owns)--> [T2]\n+ LAW01 name=x\n+ LAW02 name=x\n+ [T2] --(owns)--> [T1]")
    before = [(row.id, row.born, row.fields) for row in store.graph.rows()]
    store.mutate("~ [T1] ; a=2\n~ [E1] ; b=1\n~ [LAW01] ; name=y")
    undo(store, 2)
    assert [(row.id, row.born, row.fields) for row in store.graph.rows()] == before
    assert [fact["f"] for fact in store.entries[-1].facts] == ["node.put", "law.put", "edge.put"]


def test_undoing_gives_back_fields_and_leaves_what_a_row_carries_beside_them() -> None:
    store = GraphStore("+ A [a] ; x=1")
    fact = {"f": "node.put", "id": "a", "kind": "A", "fields": {"x": "1"}, "later": 7}
    store.append([fact])
    assert undo(store, 2) == ["a"] and store.seq == 2  # its fields are what they were: nothing to write
    store.append([{**fact, "fields": {"x": "2"}}])
    undo(store, 3)
    assert store.graph.nodes["a"].extra == {"later": 7} and store.read("a") == "A [a] ; x=1"


def test_an_edge_is_led_back_to_where_it_ended() -> None:
    store = GraphStore("+ A [a]\n+ A [b]\n+ A [c]\n+ [a] --(r)--> [b]")
    store.append([{"f": "edge.put", "id": "E1", "src": "b", "rel": "s", "dst": "c", "fields": {"x": "1"}}])
    assert undo(store, 2) == ["E1"]
    assert store.read("E1") == "E1 [a] --(r)--> [b]" and [e.id for e in store.graph.edges_of("c")] == []
    assert store.graph.edge_between("b", "s", "c") is None


def test_what_no_row_of_an_entry_says_is_left_as_it_is() -> None:
    store = GraphStore("+ A [a]")
    store.append([{"f": "schema.put", "kind": "A", "fields": ["x"]}])
    assert undo(store, 2) == [] and store.seq == 2


def test_an_earlier_entry_is_undone_around_later_ones() -> None:
    store = GraphStore("+ TSK [T1] ; a=1", "~ [T1] ; a=2", "+ TSK [T9]")
    undo(store, 2)
    assert store.read("T1") == "TSK [T1] ; a=1" and store.read("T9") == "TSK [T9]"


def test_an_edge_that_stands_on_a_new_node_keeps_it() -> None:
    store = GraphStore("+ TSK [T1]", "+ TSK [T2]\n+ [T1] --(owns)--> [T2]", "+ [T2] --(next)--> [T1]")
    with pytest.raises(Refused) as refused:
        undo(store, 2)
    assert refused.value.rows == ["E2"]


def test_rows_past_their_time_are_removed_a_few_at_a_time_with_their_edges() -> None:
    store = GraphStore("\n".join(f"+ N [N{i}] ; ttl={i + 1}s" for i in range(9)) + "\n+ N [K]\n+ [N1] --(x)--> [K]\n+ [N8] --(x)--> [K]")
    store.now_ms += 5_500
    facts, dropped = decide_expire(store.graph, store.schema, now_ms=store.now_ms, limit=3)
    assert dropped == ["N0", "N1", "E1", "N2"]
    store.append(facts)
    assert decide_expire(store.graph, store.schema, now_ms=store.now_ms)[1] == ["N3", "N4"]
    assert store.read("E2") == "E2 [N8] --(x)--> [K]"
