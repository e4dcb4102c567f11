"""Inputs of long-term memories, and superseded ones in search."""

from __future__ import annotations

from pinfold import Memory, Session


def test_a_promoted_memory_rests_on_what_it_was_made_from(memory: Memory) -> None:
    for name, kept_name in (("alone", None), ("here", "long")):
        session = memory.session(name, **({} if kept_name is None else {"long_term": kept_name}))
        session.set("source", 1)
        session.set("answer", "forty-two")
        id = session.promote("answer", inputs=["slot:source"]).node_id
        kept = memory.session(kept_name or name)
        assert kept.stale() == []
        session.set("source", 2)
        assert [row.name for row in kept.stale()] == [f"row:{id}"]
        session.promote("answer", inputs=["slot:source"])
        assert kept.stale() == []


def test_a_relation_derived_from_is_an_input_and_asserting_it_again_is_looking_again(session: Session) -> None:
    a = session.upsert_node("concept", "ground", "one").node_id
    b = session.upsert_node("concept", "conclusion", "two").node_id
    session.create_relation(b, a, "derived_from")
    session.upsert_node("concept", "ground", "another")
    assert [row.name for row in session.stale()] == [f"row:{b}"]
    session.create_relation(b, a, "derived_from")
    assert session.stale() == []


def test_search_leaves_out_what_was_superseded(session: Session) -> None:
    old = session.upsert_node("concept", "deploy window", "deploys happen on Tuesday").node_id
    new = session.upsert_node("concept", "deploy window 2", "deploys happen on Thursday").node_id
    session.create_relation(new, old, "relates_to")
    assert old in {hit.node_id for hit in session.search("deploy window").direct}
    session.supersede(old, new)
    found = session.search("deploy window")
    assert {hit.node_id for hit in found.direct} == {new} and found.neighbors == []
    session.mutate(f"~ [{old}] ; superseded_by=")
    assert old in {hit.node_id for hit in session.search("deploy window").direct}
