"""Inputs of long-term memories, and superseded ones in search."""

from __future__ import annotations

import msgspec
import pytest

from pinfold import Memory, Session
from pinfold.operations import BY_NAME


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


def ground_and_claims(session: Session) -> tuple[str, str, str]:
    """Write a fact, a claim that rests on it, and one that rests on nothing. Return their ids."""
    fact = session.upsert_node("concept", "deploy window", "deploys happen on Tuesday").node_id
    claim = session.upsert_node("concept", "freeze", "so the deploy freeze begins on Monday").node_id
    other = session.upsert_node("concept", "deploy key", "the deploy key lives in the vault").node_id
    session.create_relation(claim, fact, "derived_from")
    return fact, claim, other


def test_a_hit_that_rests_on_what_changed_says_so(session: Session) -> None:
    fact, claim, other = ground_and_claims(session)
    assert not any(hit.stale for hit in session.search("deploy").direct)
    session.upsert_node("concept", "deploy window", "deploys happen on Thursday")
    found = session.search("deploy", top_k=3, max_depth=0)
    told = {hit.node_id: (hit.stale, hit.because) for hit in found.direct}
    assert told == {claim: (True, [fact]), fact: (False, []), other: (False, [])}
    assert [(near.node_id, near.stale, near.because) for near in session.search("deploy window", top_k=1).neighbors] == [(claim, True, [fact])]
    assert session.search("deploy", top_k=3, explain=True).direct[0].parts
    resolved = session.resolve_context("freeze")
    assert (resolved.node_id, resolved.because) == (claim, (fact,))
    session.reaffirm(claim)
    assert not any(hit.stale for hit in session.search("deploy").direct) and session.resolve_context("freeze").because == ()


def test_staleness_counts_in_a_budget_and_changes_no_order(session: Session) -> None:
    _, claim, _ = ground_and_claims(session)
    before = session.search("deploy freeze", max_depth=0, budget_tokens=1_000)
    session.upsert_node("concept", "deploy window", "deploys happen on Thursday")
    after = session.search("deploy freeze", max_depth=0, budget_tokens=1_000)
    assert [hit.node_id for hit in after.direct] == [hit.node_id for hit in before.direct]
    assert after.direct[0].node_id == claim and after.tokens > before.tokens


def test_where_nothing_is_declared_nothing_is_judged(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.upsert_node("concept", "deploy key", "the deploy key lives in the vault")
    monkeypatch.setattr(Session, "_verdict", None)
    assert session.search("deploy key").direct[0].label == "deploy key"


def test_superseded_rows_are_shown_to_those_who_ask_and_bear_on_no_score(session: Session) -> None:
    old = session.upsert_node("concept", "deploy window", "deploys happen on Tuesday").node_id
    session.upsert_node("concept", "lunch", "lunch happens at noon")
    new = session.upsert_node("concept", "deploy window 2", "deploys happen on Thursday").node_id
    session.supersede(old, new)
    plain = session.search("deploy window", explain=True)
    assert [hit.node_id for hit in plain.direct if "deploy" in hit.content] == [new]
    assert plain.suppressed["superseded"] == [old]
    asked = session.search("deploy window", superseded=True)
    told = {hit.node_id: hit.superseded_by for hit in asked.direct}
    assert told[old] == new and told[new] == ""
    scores = {hit.node_id: hit.score for hit in asked.direct}
    assert all(scores[hit.node_id] == hit.score for hit in session.search("deploy window").direct)
    session.mutate(f"~ [{old}] ; superseded_by=")
    assert [hit.superseded_by for hit in session.search("deploy window", superseded=True).direct if hit.node_id == old] == [""]
    session.supersede(old, new)
    assert old in {hit.node_id for hit in session.search("deploy window", superseded=True).direct}


def test_a_confidence_rests_on_what_still_stands(session: Session) -> None:
    old = session.upsert_node("concept", "zeppelin mooring", "the zeppelin mooring mast is at pier nine").node_id
    new = session.upsert_node("concept", "ruin", "it was torn down").node_id
    for number in range(12):
        session.upsert_node("note", f"note {number}", f"a remark on subject {number}")
    assert not session.search("zeppelin mooring mast pier").low
    session.supersede(old, new)
    assert session.search("zeppelin mooring mast pier").low


def test_since_and_until_go_by_when_a_fact_held(session: Session) -> None:
    lines = ["+ FACT [A] ; content=rate limit is 600 ; valid_until=2026-03-01", "+ FACT [B] ; content=rate limit is 900 ; valid_from=2026-03-01"]
    lines += [
        "+ FACT [C] ; content=rate limit of old ; at=2025-01-01T00:00:00Z",
        "+ FACT [D] ; content=rate limit then ; valid_from=2026-02-01 ; valid_until=2026-02-10",
    ]
    session.mutate("\n".join(lines))

    def found(**when: str) -> set[str]:
        return {hit.node_id for hit in session.search("rate limit", **when).direct}

    assert found() == {"A", "B", "C", "D"}
    assert found(since="2026-03-01") == {"B"}
    assert found(until="2026-02-01") == {"A", "C"}
    assert found(since="2026-02-05", until="2026-02-06") == {"A", "D"}
    assert found(since="2024-12-31", until="2025-01-02") == {"A", "C"}


def test_a_hit_that_does_not_hold_now_is_marked(session: Session) -> None:
    session.mutate("+ FACT [A] ; content=rate limit is 600 ; valid_until=2020-03-01\n+ FACT [B] ; content=rate limit is 900 ; valid_from=2020-03-01")
    session.mutate("+ FACT [C] ; content=rate limit to come ; valid_from=2999-01-01")
    held = {hit.node_id: hit.held for hit in session.search("rate limit").direct}
    assert held == {"A": "valid_until=2020-03-01", "B": "", "C": "valid_from=2999-01-01"}


def test_the_answer_in_words_has_the_comments_of_a_pin_map(session: Session) -> None:
    fact, claim, _ = ground_and_claims(session)
    session.upsert_node("concept", "deploy window", "deploys happen on Thursday")
    session.mutate("+ FACT [A] ; content=deploy quota is 6 ; valid_until=2020-03-01")
    row = BY_NAME["search"]
    result = msgspec.to_builtins(session.search("deploy", superseded=True))
    assert row.text is not None
    told = row.text(result).splitlines()
    assert f"# stale {claim} because {fact}" in told and "# not now A ; valid_until=2020-03-01" in told
    assert f"# stale {claim} because {fact}" in session.pin_map(claim).text
    session.supersede(fact, claim)
    told = row.text(msgspec.to_builtins(session.search("deploy window", superseded=True))).splitlines()
    assert f"# superseded {fact} by {claim}" in told
