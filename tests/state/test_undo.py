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
