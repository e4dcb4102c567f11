"""What a document says beyond its rows: what they rest on, what replaces them, which key they alone may claim, when they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pinfold.dialect.parse import parse_document
from pinfold.entry import Fact
from pinfold.errors import DocumentRefused, PinfoldError, Refused
from pinfold.state import resting as rules
from pinfold.state.graph import Edge, Row, parse_time
from pinfold.state.inputs import Input, fact_mark, row_mark, slot_mark
from pinfold.testing.states import StateStore

TWO = "+ T [T1] ; a=1\n+ T [T2] ; a=2"
THREE = f"{TWO}\n+ T [T3] ; a=3"
DAY_MS = 86_400_000


def refused(code: str, ask: Callable[[], Any]) -> PinfoldError:
    with pytest.raises(Refused) as error:
        ask()
    assert error.value.code == code
    return error.value


def mark(store: StateStore, id: str) -> str:
    row = store.state.graph.row(id)
    assert row is not None
    return row_mark(row)


def again(store: StateStore, id: str, **fields: str) -> Fact:
    """Return the fact that writes a node again with other fields."""
    row = store.state.graph.nodes[id]
    return {"f": "node.put", "id": id, "kind": row.kind, "fields": fields, "born": row.born, **(row.extra or {})}


def finish(store: StateStore, facts: list[Fact], **options: Any) -> list[Fact]:
    return rules.finish(store.state, facts, now_ms=store.now_ms, **options)


# --- edges derived_from -------------------------------------------------------------------------------------------


def test_a_new_edge_derived_from_notes_its_target_as_it_is_behind_the_facts() -> None:
    store = StateStore(TWO)
    facts = store.mutate("~ [T1] ; a=9\n+ [T2] --(derived_from)--> [T1]")
    assert facts[-1]["in"] == [["row:T1", fact_mark(facts[0])]] == [["row:T1", mark(store, "T1")]]
    store.mutate("+ T [NEW:x] ; a=5\n+ [T2] --(derived_from)--> [NEW:x]")
    assert store.rests("row:T2") == [("row:T1", mark(store, "T1"), None), ("row:T3", mark(store, "T3"), None)]
    assert finish(store, [{"f": "edge.put", "id": "E9", "src": "T1", "rel": "derived_from", "dst": "T9", "fields": {}}])[0]["in"] == [["row:T9", ""]]


def test_an_edge_named_by_a_patch_looks_again_and_one_written_otherwise_keeps_what_it_knew() -> None:
    store = StateStore(f"{TWO}\n+ [T2] --(derived_from)--> [T1]")
    old = mark(store, "T1")
    assert store.mutate("~ [T2] --(derived_from)--> [T1]") == [], "it knew that already"
    store.mutate("~ [T1] ; a=9")
    edge = store.state.graph.edges["E1"]
    kept: Fact = {
        "f": "edge.put",
        "id": "E1",
        "src": "T2",
        "rel": "derived_from",
        "dst": "T1",
        "fields": {"n": "1"},
        "born": edge.born,
        "in": [["row:T1", old]],
    }
    assert finish(store, [dict(kept)])[0]["in"] == [["row:T1", old]]
    assert finish(store, [dict(kept)], asserted=["E1"])[0]["in"] == [["row:T1", mark(store, "T1")]]
    assert finish(store, [{**kept, "in": []}])[0]["in"] == [["row:T1", mark(store, "T1")]], "who knew nothing looks"
    born = store.state.graph.edges["E1"].born
    facts = store.mutate("~ E1")
    assert facts == [
        {"f": "edge.put", "id": "E1", "src": "T2", "rel": "derived_from", "dst": "T1", "fields": {}, "in": [["row:T1", mark(store, "T1")]], "born": born}
    ]
    store.mutate("~ [T1] ; id=T5")
    assert store.rests("row:T2") == [("row:T5", mark(store, "T5"), None)] and store.stale() == {}


def test_only_edges_that_are_there_and_say_derived_from_can_be_asserted() -> None:
    store = StateStore(f"{THREE}\n+ [T2] --(derived_from)--> [T1]\n+ [T2] --(next)--> [T1]\n+ [T3] --(derived_from)--> [T1]", "~ [T1] ; a=9")
    assert finish(store, [], asserted=["E2", "E9", "T1"]) == []
    drop: list[Fact] = [{"f": "edge.drop", "id": "E1"}]
    assert finish(store, drop, asserted=["E1"]) == drop
    assert [fact["id"] for fact in finish(store, [], asserted=["E9", "E2", "E1", "E3"])] == ["E1", "E3"]
    graph = store.state.graph
    for text, found in {
        "~ E1": {"E1"}, "~ [T2] --(derived_from)--> [T1] ; n=1": {"E1"}, "~ E2": set(), "~ [T2] --(next)--> [T1]": set(), "~ [T1] ; a=1": set(),
        "~ E9\n~ E3\n~ E1": {"E1", "E3"}, "+ [T1] --(derived_from)--> [T2]": set(), "- E1": set(), "~ [T1] --(derived_from)--> [T2]": set(),
    }.items():  # fmt: skip
        assert rules.asserted_in(parse_document(text), graph) == found


def test_what_else_an_edge_carries_stays_when_it_is_looked_at_again() -> None:
    store = StateStore(TWO)
    store.append([{"f": "edge.put", "id": "E1", "src": "T2", "rel": "derived_from", "dst": "T1", "fields": {}, "later": 1}])
    assert finish(store, [], asserted=["E1"])[0]["later"] == 1


def test_facts_that_are_of_no_row_are_handed_through() -> None:
    store = StateStore(TWO)
    facts: list[Fact] = [{"f": "slot.drop", "k": "a"}, {"f": "session.put", "id": "T1"}]
    assert finish(store, facts) == facts
    edge: Fact = {"f": "edge.put", "id": "E9", "src": "T2", "rel": "derived_from", "dst": "T1", "fields": {}}
    assert finish(store, [*facts, edge])[2]["in"] == [["row:T1", mark(store, "T1")]], "only a drop takes a row away"


# --- inputs of rows -----------------------------------------------------------------------------------------------


def test_every_row_of_a_document_rests_on_its_inputs_but_not_on_itself() -> None:
    store = StateStore()
    store.set("a", "1")
    store.mutate(f"{TWO}\n+ [T2] --(derived_from)--> [T1]\n+ LAW01 name=x", "slot:a")
    mark_a = slot_mark("1")
    assert {name: store.rests(name) for name in store.state.inputs.given} == {
        "row:T1": [("slot:a", mark_a, None)],
        "row:T2": [("slot:a", mark_a, None), ("row:T1", mark(store, "T1"), None)],
        "row:LAW01": [("slot:a", mark_a, None)],
    }
    facts = finish(store, [again(store, "T1", a="5")], inputs=[Input("row:T1", "m"), Input("file:x", "m", 7)])
    assert facts[0]["in"] == [["file:x", "m", 7]]
    assert "in" not in finish(store, [again(store, "T1", a="5")], inputs=[Input("row:T1")])[0]
    assert "in" not in finish(store, [again(store, "T1", a="5")], inputs=[])[0], "none at all is an answer too"
    assert finish(store, [again(store, "T1", a="5")])[0]["in"] == [["slot:a", mark_a]]
    refused("no_such_input", lambda: finish(store, [again(store, "T1", a="5")], inputs=[Input("slot:none")]))


def test_a_row_cannot_rest_on_what_expired() -> None:
    store = StateStore(f"{TWO} ; ttl=5s")
    store.now_ms += 5_000
    refused("no_such_input", lambda: store.mutate("~ [T1] ; a=2", "row:T2"))


def test_a_row_whose_target_goes_remembers_that_it_rested_on_it() -> None:
    store = StateStore(f"{THREE}\n+ [T2] --(derived_from)--> [T1]\n+ [T3] --(derived_from)--> [T1]\n+ [T3] --(derived_from)--> [T2]")
    old, other = mark(store, "T1"), mark(store, "T2")
    born = store.state.graph.nodes["T3"].born
    facts = store.mutate("~ [T2] ; a=7\n- T1")
    puts = {fact["id"]: fact for fact in facts if fact["f"] == "node.put"}
    assert puts["T2"]["in"] == [["row:T1", old]] and puts["T2"]["fields"] == {"a": "7"}
    assert puts["T3"] == {"f": "node.put", "id": "T3", "kind": "T", "fields": {"a": "3"}, "born": born, "in": [["row:T1", old]]}
    assert store.stale() == {"row:T2": ["row:T1 gone"], "row:T3": ["row:T2 changed", "row:T1 gone"]}
    store.mutate("- T2")
    assert store.rests("row:T3") == [("row:T1", old, None), ("row:T2", other, None)]
    store.mutate("- T3")
    assert store.state.inputs.given == {}


def test_what_goes_with_its_own_target_or_by_a_cut_edge_remembers_nothing() -> None:
    store = StateStore(f"{THREE}\n+ [T2] --(derived_from)--> [T1]\n+ [T3] --(derived_from)--> [T1]")
    assert all(fact["f"].endswith(".drop") for fact in store.mutate("- E1"))
    assert store.rests("row:T2") == []
    facts = store.mutate("- T1\n- T3")
    assert {fact["id"] for fact in facts} == {"T1", "T3", "E2"} and all(fact["f"].endswith(".drop") for fact in facts)


def test_of_two_rows_whose_target_goes_the_one_that_stays_remembers() -> None:
    store = StateStore(f"{THREE}\n+ [T2] --(derived_from)--> [T1]\n+ [T3] --(derived_from)--> [T1]")
    lost = mark(store, "T1")
    store.mutate("- T1\n- T2")
    assert {name: store.rests(name) for name in store.state.inputs.given} == {"row:T3": [("row:T1", lost, None)]}


def test_a_row_that_knows_its_lost_input_already_knows_it_once() -> None:
    store = StateStore(TWO)
    store.mutate("+ [T2] --(derived_from)--> [T1]")
    old = mark(store, "T1")
    store.mutate("~ [T1] ; a=9")
    store.mutate("~ [T2] ; b=1", "row:T1")
    new = mark(store, "T1")
    store.mutate("- T1")
    assert old != new and store.rests("row:T2") == [("row:T1", new, None)]
    store = StateStore(TWO)
    store.append([{"f": "edge.put", "id": "E1", "src": "T2", "rel": "derived_from", "dst": "T1", "fields": {}}])
    store.mutate("- T1")
    assert store.rests("row:T2") == [("row:T1", "", None)]


def test_a_patch_of_a_row_whose_input_is_about_to_expire_keeps_it() -> None:
    store = StateStore(f"{THREE} ; ttl=5s\n+ [T1] --(derived_from)--> [T3]\n+ [T1] --(derived_from)--> [T2]\n+ [T2] --(derived_from)--> [T3] ; ttl=2s")
    lost = mark(store, "T3")
    assert "in" not in finish(store, [again(store, "T1", a="5")])[0]
    store.now_ms += 5_000
    assert finish(store, [again(store, "T1", a="5")])[0]["in"] == [["row:T3", lost]]
    fresh = again(store, "T1", a="5")
    del fresh["born"]
    assert "in" not in finish(store, [fresh])[0], "a new row under its id rested on nothing"


def test_what_expires_takes_no_refusal() -> None:
    store = StateStore(f"{TWO}\n+ [T2] --(derived_from)--> [T1]")
    bad = again(store, "T1", valid_from="soon", superseded_by="T9")
    assert finish(store, [bad], checks=False) == [bad]
    refused("no_such_row", lambda: finish(store, [bad]))


# --- cycles -------------------------------------------------------------------------------------------------------


def test_a_ring_is_refused_with_its_path_at_the_line_that_closes_it() -> None:
    store = StateStore(f"{THREE}\n+ [T2] --(derived_from)--> [T1]")
    store.mutate("~ [T3] ; a=4", "row:T2")
    error = refused("input_cycle", lambda: store.mutate("# a remark\n+ T [T4] ; a=1\n+ [T4] --(derived_from)--> [T3]\n+ [T1] --(derived_from)--> [T3]"))
    assert isinstance(error, DocumentRefused) and [(p.line, p.column, p.code) for p in error.problems] == [(4, 1, "input_cycle")]
    assert error.path == ["row:T3", "row:T2", "row:T1", "row:T3"] and "row" not in error.fields and error.problems[0].hint.startswith("leave")
    assert "row:T3 -> row:T2 -> row:T1 -> row:T3" in error.problems[0].message
    edge: Fact = {"f": "edge.put", "id": "E9", "src": "T1", "rel": "derived_from", "dst": "T3", "fields": {}}
    error = refused("input_cycle", lambda: finish(store, [edge]))
    assert not isinstance(error, DocumentRefused) and error.row == "E9"
    error = refused("input_cycle", lambda: store.mutate("# x\n~ [T1] ; a=9", "row:T3"))
    assert (error.problems[0].line, error.path) == (2, ["row:T1", "row:T3", "row:T2", "row:T1"])


def test_a_ring_is_found_beside_an_edge_that_is_cut_and_one_that_leads_nowhere() -> None:
    store = StateStore(f"{THREE}\n+ T [T4]", *(f"+ [T2] --(derived_from)--> [{id}]" for id in ("T1", "T3", "T4")))
    error = refused("input_cycle", lambda: store.mutate("- E1\n+ [T3] --(derived_from)--> [T2]"))
    assert error.path == ["row:T3", "row:T2", "row:T3"]


def test_what_an_edge_knows_is_of_its_source_so_its_target_may_rest_on_the_edge() -> None:
    store = StateStore(f"{TWO}\n+ [T2] --(derived_from)--> [T1]")
    store.mutate("~ [T1] ; a=9", "row:E1")
    store.mutate("~ E1")
    assert store.stale() == {}


def test_a_ring_that_is_cut_in_the_same_write_is_none() -> None:
    store = StateStore(f"{THREE}\n+ [T2] --(derived_from)--> [T1]")
    store.mutate("~ [T3] ; a=4", "row:T2")
    store.mutate("- E1\n+ [T1] --(derived_from)--> [T3]")
    assert store.stale() == {}
    refused("input_cycle", lambda: store.mutate("+ [T2] --(derived_from)--> [T1]"))
    facts = finish(store, [again(store, "T3", a="5"), {"f": "edge.put", "id": "E9", "src": "T2", "rel": "derived_from", "dst": "T1", "fields": {}}], inputs=[])
    assert "in" not in facts[0], "a row that no longer rests on it closes no ring"
    moved: Fact = {"f": "edge.put", "id": "E2", "src": "T1", "rel": "derived_from", "dst": "T2", "fields": {}, "born": 9, "in": [["row:T3", "m"]]}
    assert finish(store, [moved])[0]["in"] == [["row:T2", "m"]]
    refused("input_cycle", lambda: finish(store, [{**moved, "dst": "T1"}]))


# --- what replaces them, when they hold -----------------------------------------------------------------------------


def test_a_row_is_superseded_by_a_row_that_is_there_and_in_no_ring() -> None:
    store = StateStore(f"{THREE}\n~ [T1] ; superseded_by=T2\n~ [T2] ; superseded_by=T3")
    error = refused("no_such_row", lambda: store.mutate("# x\n~ [T3] ; superseded_by=T9"))
    assert (error.problems[0].line, error.id) == (2, "T9") and "T3" in error.problems[0].message and "T9" in error.problems[0].message
    assert "create" in error.problems[0].hint
    store.mutate("~ [T3] ; superseded_by=T9\n+ T [T9]")
    for text, path in (
        ("~ [T9] ; superseded_by=T1", ["T9", "T1", "T2", "T3", "T9"]),
        ("~ [T9] ; superseded_by=T9", ["T9", "T9"]),
        ("+ T [T8] ; superseded_by=T7\n+ T [T7] ; superseded_by=T8", ["T8", "T7", "T8"]),
    ):
        error = refused("document_refused" if "T8" in text else "supersede_cycle", lambda text=text: store.mutate(f"# x\n{text}"))
        assert [p.line for p in error.problems] == ([2, 3] if "T8" in text else [2])
        assert error.path == path and " -> ".join(path) in error.problems[0].message and "stand" in error.problems[0].hint
    store.mutate("~ [T3] ; superseded_by=\n~ [T9] ; superseded_by=T1")
    assert store.state.inputs.superseded == {"T1": "T2", "T2": "T3", "T9": "T1"}


def test_what_was_superseded_already_is_not_asked_about_again_unless_its_successor_goes() -> None:
    store = StateStore(f"{TWO} ; ttl=5s\n~ [T1] ; superseded_by=T2")
    store.now_ms += 5_000
    store.mutate("~ [T1] ; a=5")
    refused("no_such_row", lambda: store.mutate("+ T [T5] ; superseded_by=T2"))
    refused("no_such_row", lambda: finish(store, [again(store, "T1", superseded_by="T2"), {"f": "node.drop", "id": "T2"}]))
    moved = {**again(store, "T1", superseded_by="T2"), "id": "T7", "was": "T1"}
    assert finish(store, [{"f": "node.drop", "id": "T1"}, moved])[1] is moved, "a rename says nothing new"


def test_times_a_row_holds_are_iso_times() -> None:
    store = StateStore("+ T [T1] ; valid_from=2020-01-01 ; valid_until=2021-01-01T00:00:00+01:00")
    for name in ("valid_from", "valid_until"):
        error = refused("bad_time", lambda name=name: store.mutate(f"# x\n~ [T1] ; {name}={'s' * 50}"))
        assert error.problems[0].line == 2 and error.problems[0].message.startswith(f"{name}={'s' * 40} of T1 ")
        assert all(parse_time(example) is not None for example in error.problems[0].hint.split(" or ")), "what the hint shows is one"
    error = refused("document_refused", lambda: store.mutate("~ [T1] ; valid_from=x ; valid_until=y"))
    assert len(error.problems) == 2


# --- unique keys --------------------------------------------------------------------------------------------------


def test_a_key_that_another_live_row_claims_is_refused_with_both() -> None:
    store = StateStore('SCHEMA T ; fields="id a b" ; unique="a b"\nSCHEMA U ; fields="id a b" ; unique="a b"', "+ T [T1] ; a=1 ; b=2\n+ U [U1] ; a=1 ; b=2")
    error = refused("document_refused", lambda: store.mutate("# x\n+ T [T2] ; a=1 ; b=2\n+ T [T3] ; a=1 ; b=3\n+ T [T4] ; a=1 ; b=3\n+ T [T5] ; a=1"))
    assert [(p.line, p.message) for p in error.problems] == [(2, "T1 is the T with a=1 b=2"), (4, "T3 is the T with a=1 b=3")]
    assert error.rows == ["T1", "T2"] and "~ [T1]" in error.problems[0].hint and "~ [T3]" in error.problems[1].hint
    error = refused("document_refused", lambda: store.mutate("+ T [T2] ; a=1 ; b=2\n+ T [T3] ; a=1 ; b=2"))
    assert len(error.problems) == 2, "each of them is told"
    assert refused("unique_conflict", lambda: store.mutate("+ T [T2] ; a=8 ; b=8\n+ T [T3] ; a=1 ; b=2")).rows == ["T1", "T3"]
    store.mutate("~ [T1] ; b=3\n+ T [T2] ; a=1 ; b=2")
    store.mutate("- T1\n+ T [T3] ; a=1 ; b=3")
    store.mutate("+ T [T4] ; a=1 ; b=3 ; superseded_by=T3")
    store.mutate("~ [T4] ; id=T6 ; b=2")
    store.mutate("+ T [T7] ; a=7 ; b=7 ; ttl=5s")
    refused("unique_conflict", lambda: store.mutate("+ T [T8] ; a=7 ; b=7"))
    store.now_ms += 5_000
    store.mutate("+ T [T8] ; a=7 ; b=7")
    assert rules.find_conflicts(store.state, store.now_ms) == []


def test_a_key_declared_in_the_same_document_counts_there() -> None:
    store = StateStore()
    text = 'SCHEMA T ; fields="id a" ; unique=a\n+ T [T1] ; a=1\n+ T [T2] ; a=1'
    assert refused("unique_conflict", lambda: store.mutate(text)).problems[0].line == 3
    facts: list[Fact] = [{"f": "schema.put", "kind": "P", "fields": ["path"], "pin": True, "unique": ["path"]}, {"f": "schema.put", "relations": ["x"]}]
    schema = rules.schema_of(store.state, [*facts, {"f": "schema.put", "kind": "Q"}, {"f": "node.drop", "id": "x"}])
    known = schema.kinds["P"]
    assert (known.fields, known.pin, known.extra, schema.kinds["Q"].fields, schema.kinds["Q"].pin) == (("path",), True, {"unique": ["path"]}, (), False)
    assert schema.kinds["Q"].extra is None and store.state.schema.kinds == {} and rules.schema_of(store.state, []) is store.state.schema


def test_conflicts_are_told_of_live_rows_in_order() -> None:
    store = StateStore("\n".join(f"+ {kind} [{kind}{n}] ; a={n % 2}" for kind in "UT" for n in range(6, 0, -1)))
    store.mutate('SCHEMA U ; fields="id a" ; unique=a\nSCHEMA T ; fields="id a" ; unique=a')
    store.mutate("~ [T1] ; superseded_by=T3\n~ [T2] ; superseded_by=T3\n~ [T4] ; superseded_by=T3")
    assert rules.find_conflicts(store.state, store.now_ms) == [
        ("T", ("1",), ["T3", "T5"]), ("U", ("0",), ["U2", "U4", "U6"]), ("U", ("1",), ["U1", "U3", "U5"]),
    ]  # fmt: skip
    store.append([again(store, "T5", a="1", expires="2020-01-01")])
    assert [found[0] for found in rules.find_conflicts(store.state, store.now_ms)] == ["U", "U"]


# --- where problems are told ----------------------------------------------------------------------------------------


def test_a_problem_is_told_at_the_line_that_first_writes_the_row() -> None:
    text = "# x\n+ T [NEW]\n+ T [NEW:a] ; a=1\n+ T [NEW] ; a=2\n~ [T9] ; id=T10\n~ [T9] ; a=3\n+ [T9] --(x)--> [NEW:a]\n+ E7 [T9] --(y)--> [T9]"
    lines = rules.lines_of(parse_document(text), {"#1": "T1", "a": "T2", "#2": "T3", "#3": "E1"})
    assert lines == {"T1": 2, "T2": 3, "T3": 4, "T10": 5, "T9": 5, "E1": 7, "E7": 8}
    store = StateStore(TWO)
    bad = again(store, "T1", valid_from="soon")
    assert [p.line for p in refused("bad_time", lambda: finish(store, [bad], lines={})).problems] == [1], "a row that no line names is told at the first"


# --- superseding and looking again ----------------------------------------------------------------------------------


def test_superseding_writes_the_old_row_again_with_its_successor_and_nothing_else() -> None:
    store = StateStore()
    store.set("a", "1")
    store.mutate(f"{TWO}\n+ [T1] --(next)--> [T2] ; n=1\n+ LAW01 name=x", "slot:a")
    graph = store.state.graph
    for id in ("T1", "E1", "LAW01"):
        row = graph.row(id)
        assert row is not None
        born, fields = row.born, row.fields
        [fact] = rules.decide_supersede(store.state, id, "T2", store.now_ms)
        assert fact["born"] == born
        store.append([fact])
        row = graph.row(id)
        assert row is not None and (row.born, row.fields, row.extra) == (born, {**fields, "superseded_by": "T2"}, {"in": [["slot:a", slot_mark("1")]]})
        assert rules.decide_supersede(store.state, id, "T2", store.now_ms) == []
    assert (graph.edges["E1"].src, graph.edges["E1"].rel, graph.edges["E1"].dst, graph.nodes["T1"].kind) == ("T1", "next", "T2", "T")


def test_an_edge_that_is_superseded_was_not_looked_at_again() -> None:
    store = StateStore(f"{TWO}\n+ [T2] --(derived_from)--> [T1]", "~ [T1] ; a=9")
    store.append(rules.decide_supersede(store.state, "E1", "T1", store.now_ms))
    assert store.stale() == {"row:T2": ["row:T1 changed"]}


def test_only_two_live_rows_can_supersede_each_other() -> None:
    store = StateStore(f"{TWO}\n+ T [T3] ; ttl=5s")
    store.now_ms += 5_000
    for old, new, missing in (("T1", "T9", "T9"), ("T9", "T1", "T9"), ("T3", "T1", "T3"), ("T1", "T3", "T3")):
        error = refused("no_such_row", lambda old=old, new=new: rules.decide_supersede(store.state, old, new, store.now_ms))
        assert (error.id, error.message) == (missing, f"no row {missing}") and "read it first" in error.hint
    error = refused("supersede_cycle", lambda: rules.decide_supersede(store.state, "T1", "T1", store.now_ms))
    assert error.path == ["T1", "T1"] and error.message.startswith("T1 ") and "two rows" in error.hint
    store.append(rules.decide_supersede(store.state, "T1", "T2", store.now_ms))
    assert refused("supersede_cycle", lambda: rules.decide_supersede(store.state, "T2", "T1", store.now_ms)).path == ["T2", "T1", "T2"]


def reaffirm(store: StateStore, *names: str, **fresh: Input) -> list[str]:
    facts, done = rules.decide_reaffirm(store.state, names, {f"file:{name}": given for name, given in fresh.items()}, store.now_ms)
    if facts:
        store.append(facts)
    return done


def test_what_is_looked_at_again_rests_on_its_inputs_as_they_are_now_and_says_nothing_else() -> None:
    store = StateStore(TWO)
    store.set("a", "1", "row:T1")
    store.set("b", "1", "slot:a", Input("file:x", "old", 1), Input("file:y", "gone"), expires_at_ms=store.now_ms + 9_000)
    store.mutate("+ T [T3] ; a=1\n+ [T3] --(derived_from)--> [T1]\n+ LAW01 name=x", "slot:a")
    store.mutate("+ [T1] --(next)--> [T2] ; n=1", "slot:a")
    assert rules.decide_reaffirm(store.state, ["row:T2", "slot:a", "row:T3", "slot:none", "slot:a"], {}, store.now_ms) == ([], ["slot:a", "row:T3"])
    slot, rows = store.state.silo.slots["b"], {row.id: (row.fields, row.born) for row in store.state.graph.rows() if row.id != "T1"}
    store.set("a", "2", "row:T1")
    store.mutate("~ [T1] ; a=9")
    assert set(store.stale()) == {"slot:a", "slot:b", "row:T3", "row:LAW01", "row:E2"}
    names = ["slot:a", "slot:b", "row:T3", "row:LAW01", "row:E2"]
    assert reaffirm(store, *names, x=Input("file:x", "new", 2)) == names
    assert store.stale() == {} and store.rests("slot:b") == [("slot:a", slot_mark("2"), None), ("file:x", "new", 2)]
    again = store.state.silo.slots["b"]
    assert (again.value, again.index, again.expires_at_ms) == (slot.value, slot.index, slot.expires_at_ms)
    assert {row.id: (row.fields, row.born) for row in store.state.graph.rows() if row.id != "T1"} == rows
    assert store.rests("row:T3") == [("slot:a", slot_mark("2"), None), ("row:T1", mark(store, "T1"), None)]
    assert (store.state.graph.edges["E2"].src, store.state.graph.edges["E2"].rel, store.state.graph.edges["E2"].dst) == ("T1", "next", "T2")


def test_an_input_that_is_gone_is_left_out_and_one_superseded_gives_way() -> None:
    store = StateStore(THREE)
    store.set("a", "1", "row:T1", "row:T2")
    store.set("b", "1", "row:T2")
    store.mutate("+ T [T4]", "row:T2")
    store.append([{"f": "node.drop", "id": "T2"}])
    store.mutate("~ [T1] ; superseded_by=T3\n+ T [T5]\n~ [T3] ; superseded_by=T5")
    assert reaffirm(store, "slot:a", "slot:b", "row:T4") == ["slot:a", "slot:b", "row:T4"]
    assert {name: store.rests(name) for name in ("slot:a", "slot:b", "row:T4")} == {"slot:a": [("row:T5", mark(store, "T5"), None)], "slot:b": [], "row:T4": []}
    assert store.state.inputs.given.keys() == {"slot:a"} and "in" not in (store.state.graph.nodes["T4"].extra or {})


def test_an_input_whose_time_is_over_is_left_out_also_where_it_took_the_place_of_another() -> None:
    store = StateStore(f"{THREE} ; ttl=5s\n~ [T1] ; superseded_by=T3")
    store.set("a", "1", "row:T2", Input("row:T3", "old"), Input("row:T1", "old"))
    store.now_ms += 5_000
    assert reaffirm(store, "slot:a") == ["slot:a"]
    assert store.rests("slot:a") == [("row:T2", mark(store, "T2"), None)]


def test_only_what_changed_is_written_again_and_keeps_what_else_it_carries() -> None:
    store = StateStore(f"{THREE}\n+ [T3] --(derived_from)--> [T1]\n+ [T3] --(derived_from)--> [T2]", "~ [T2] ; a=9")
    facts, _ = rules.decide_reaffirm(store.state, ["row:T3"], {}, store.now_ms)
    assert [(fact["id"], fact["in"]) for fact in facts] == [("E2", [["row:T2", mark(store, "T2")]])]
    put: Fact = {"f": "slot.put", "k": "a", "i": 0, "v": "1", "later": 1, "in": [["row:T1", "old"]]}
    store.append([put])
    facts, _ = rules.decide_reaffirm(store.state, ["slot:a"], {}, store.now_ms)
    assert facts == [{**put, "in": [["row:T1", mark(store, "T1")]]}]


def test_an_edge_that_was_looked_at_again_stays_an_input_though_its_target_is_gone() -> None:
    store = StateStore(TWO)
    store.append([{"f": "edge.put", "id": "E1", "src": "T2", "rel": "derived_from", "dst": "T9", "fields": {}}])
    assert reaffirm(store, "row:T2") == ["row:T2"]
    assert store.state.graph.edges["E1"].extra == {"in": []}


def test_what_an_input_is_now_for_who_rests_on_it_again() -> None:
    store = StateStore(f"{THREE}\n~ [T1] ; superseded_by=T2\n~ [T2] ; superseded_by=T3")
    store.append([{"f": "session.put", "version:p": "8"}])

    def now(name: str, noted: str = "old", **fresh: Input) -> Input | None:
        return rules.as_now(store.state, (name, noted, None), {f"file:{key}": given for key, given in fresh.items()}, store.now_ms)

    assert now("row:T1") == now("row:T2") == Input("row:T3", mark(store, "T3")) and now("row:T9") is now("slot:a") is None
    assert now("file:x", x=Input("file:x", "m")) == Input("file:x", "m") and now("file:y", x=Input("file:x", "m")) is None
    assert now("version:p") == Input("version:p", "8") and now("version:q") == Input("version:q", "old")
    store.append([{"f": "node.drop", "id": "T3"}])
    assert now("row:T1") is None


# --- when rows hold -------------------------------------------------------------------------------------------------


def row(at_ms: int = 0, **fields: str) -> Row:
    return Edge("E1", tuple(fields), tuple(fields.values()), (1, at_ms, None), 0, None, "A", "x", "B")


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({}, None), ({"valid_from": "soon"}, None), ({"valid_from": "1970-01-02"}, (DAY_MS, None)), ({"valid_until": "1970-01-02"}, (None, DAY_MS)),
        ({"valid_from": "1970-01-02", "valid_until": "1970-01-03"}, (DAY_MS, 2 * DAY_MS)), ({"valid_from": "x", "valid_until": "1970-01-02"}, (None, DAY_MS)),
    ],
)  # fmt: skip
def test_a_row_says_from_when_until_when_it_holds(fields: dict[str, str], held: tuple[int | None, int | None] | None) -> None:
    assert rules.validity_of(row(**fields)) == held  # type: ignore[arg-type]


def test_a_time_begins_with_its_start_and_ends_before_its_end() -> None:
    assert [rules.overlaps((10, 20), at, at + 1) for at in (9, 10, 19, 20)] == [False, True, True, False]
    assert [rules.overlaps((10, 20), since, until) for since, until in ((None, 10), (None, 11), (19, None), (20, None), (None, None))] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert [rules.overlaps((None, 20), since, until) for since, until in ((0, 5), (20, 25), (None, 1))] == [True, False, True]
    assert [rules.overlaps((10, None), since, until) for since, until in ((0, 5), (20, 25), (10, None))] == [False, True, True]


def test_rows_that_do_not_hold_at_a_time_are_known_by_their_ids() -> None:
    store = StateStore(f"{TWO}\n+ T [T3] ; valid_from=1970-01-02\n+ T [T4] ; valid_until=1970-01-02\n+ T [T5] ; valid_from=1970-01-01 ; valid_until=1970-01-03")
    graph = store.state.graph
    assert [rules.not_valid_at(graph, at) for at in (-1, 0, DAY_MS - 1, DAY_MS, 2 * DAY_MS)] == [
        {"T3", "T5"}, {"T3"}, {"T3"}, {"T4"}, {"T4", "T5"},
    ]  # fmt: skip
    assert rules.not_valid_at(StateStore(TWO).state.graph, 0) == set()
    assert rules.not_valid_at(StateStore("+ T [T1] ; valid_until=1970-01-02").state.graph, DAY_MS) == {"T1"}
    assert rules.not_valid_at(StateStore("+ T [T1] ; valid_from=1970-01-02").state.graph, 0) == {"T1"}


def test_a_row_that_does_not_say_when_it_holds_counts_by_its_last_write() -> None:
    for fields in ({}, {"valid_from": "soon"}):
        assert [rules.is_within(row(10, **fields), since, until) for since, until in ((10, 11), (11, None), (None, 10), (None, 11), (None, None))] == [  # type: ignore[arg-type]
            True, False, False, True, True,
        ]  # fmt: skip
    assert not rules.is_within(row(10, valid_from="1970-01-02"), 10, 11)  # type: ignore[arg-type]
    assert rules.is_within(row(10, valid_from="1970-01-02"), DAY_MS, None)  # type: ignore[arg-type]
