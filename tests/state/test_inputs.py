"""What rests on what: names, marks, the index, what is stale of it and what may be rested on, each rule by example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.state import inputs as rules
from pinfold.state.inputs import Cause, Input, Inputs
from pinfold.state.session import decode_snapshot, encode_snapshot
from pinfold.state.value import Blob, Json
from pinfold.testing.states import StateStore

TWO = "+ T [T1] ; a=1\n+ T [T2] ; a=2"


def refused(code: str, ask: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as error:
        ask()
    assert error.value.code == code
    return error.value


def index_of(inputs: Inputs) -> dict[str, Any]:
    return {name: getattr(inputs, name) for name in Inputs.__slots__ if name != "work"}


def check_index(store: StateStore) -> None:
    """What apply kept is what a snapshot gives, and what a look at every row gives."""
    state = store.state
    loaded = decode_snapshot(encode_snapshot(state)).inputs
    for other in (loaded, Inputs.build(state.silo, state.graph, state.schema)):
        assert index_of(other) == index_of(state.inputs)
        assert other.work or not other.on


# --- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("slot:k", Input("slot:k")),
        ("slot:", Input("slot:")),
        ("slot:a:b=c", Input("slot:a:b=c")),
        ("row:T1", Input("row:T1")),
        ("file:a/b.py", Input("file:a/b.py")),
        ("tree:src", Input("tree:src")),
        ("session:other/row:T1", Input("session:other/row:T1")),
        ("session:other/slot:a/b", Input("session:other/slot:a/b")),
        ("version:prompt", Input("version:prompt")),
        ("version:prompt=7", Input("version:prompt", "7")),
        ("version: prompt =a=b", Input("version:prompt", "a=b")),
        ("version:prompt=", Input("version:prompt", "")),
        ("url:https://x.org/a?b=c", Input("url:https://x.org/a?b=c")),
        ("url:https://x.org/ etag=a etag=b", Input("url:https://x.org/ etag=a", "b")),
    ],
)
def test_an_input_is_what_was_written(text: str, given: Input) -> None:
    assert rules.parse_input(text) == given


@pytest.mark.parametrize(
    "text", ["", "k", "row:", "file:", "tree:", "url:", "session:", "session:/row:T1", "session:a", "session:a/file:x", "version:", "version:=1", "version: =1"]
)
def test_what_is_no_input_is_refused_with_the_forms_there_are(text: str) -> None:
    error = refused("bad_input", lambda: rules.parse_input(text))
    assert error.message.startswith(f"{text!r} ") and "slot:KEY" in error.hint
    assert refused("bad_input", lambda: rules.parse_input("x" * 99)).message.startswith(f"{'x' * 80!r} ")


def test_a_record_has_a_name_a_mark_and_a_hint_only_where_there_is_one() -> None:
    assert Input("row:T1").record() == ["row:T1", ""] and Input("row:T1", "m").record() == ["row:T1", "m"]
    assert Input("file:a", "m", [1, 2]).record() == ["file:a", "m", [1, 2]] and Input("file:a", None, 0).record() == ["file:a", "", 0]
    assert rules.as_rests([["a", "1"], ["b", "2", [3]], ["a", "4"]]) == (("a", "4", None), ("b", "2", [3]))
    assert rules.as_rests(None) == rules.as_rests([]) == ()


def test_files_folders_and_other_sessions_lie_outside() -> None:
    names = ("slot:a", "row:T1", "version:a", "url:a", "file:a", "tree:a", "session:a/row:T1")
    assert [name for name in names if rules.is_outside(name)] == ["file:a", "tree:a", "session:a/row:T1"]


# --- marks --------------------------------------------------------------------------------------------------------


def test_marks_are_sixteen_digits_that_stay_as_they_are_written_in_journals() -> None:
    blob = Blob(b"\x01" * 32, 40_000, "json")
    marks = [rules.slot_mark(value) for value in ("a", b"a", Json(b"a"), blob, "\ud800é")]
    assert marks == ["a4e5032c0d419313", "ee3f6b40991a6c7a", "b365a4ea5b3664cd", "8b6db416d4a8463c", "b598b840630965ec"]
    assert len({*marks, rules.slot_mark(Blob(b"\x01" * 32, 40_000, "text")), rules.slot_mark(Blob(b"\x02" * 32, 40_000, "json"))}) == 7
    assert rules.content_mark("T", "", "", [("a", "1"), ("b", "2")]) == "8b0679362ebcc41f"


def test_the_mark_of_a_row_is_that_of_the_fact_that_puts_it_whatever_the_order_of_its_fields() -> None:
    store = StateStore(f"{TWO} ; b=3\n+ [T1] --(next)--> [T2] ; n=1\n+ LAW01 name=x")
    marks = {}
    for row in store.state.graph.rows():
        fact: Fact = {"id": row.id, "fields": dict(reversed(row.fields.items()))}
        fact |= {name: getattr(row, name) for name in ("kind", "src", "rel", "dst") if hasattr(row, name)}
        marks[row.id] = rules.row_mark(row)
        assert rules.fact_mark(fact) == marks[row.id]
    bare: Fact = {"id": "T1"}
    assert len(set(marks.values())) == 4 and rules.fact_mark(bare) == rules.content_mark("", "", "", [])
    edge: Fact = {"src": "A", "rel": "next", "dst": "B", "fields": {"n": "1"}}
    others = [edge | {"src": "C"}, edge | {"dst": "C"}, edge | {"rel": "c"}, edge | {"fields": {"n": "2"}}, edge | {"fields": {"m": "1"}}]
    assert len({rules.fact_mark(fact) for fact in (edge, *others)}) == 6


def test_how_long_a_row_lives_and_what_took_its_place_are_no_content() -> None:
    plain = rules.content_mark("T", "", "", [("a", "1")])
    for field in ("recycle", "expires", "superseded_by"):
        assert rules.content_mark("T", "", "", [("a", "1"), (field, "x")]) == plain
    assert rules.content_mark("T", "", "", [("a", "1"), ("status", "x")]) != plain


# --- the index ----------------------------------------------------------------------------------------------------


def test_the_index_follows_slots() -> None:
    store = StateStore(TWO)
    store.set("a", "1")
    assert (store.state.inputs.on, store.state.inputs.work) == (False, 0)
    store.set("b", "1", "slot:a", "row:T1")
    mark_a, mark_row = rules.slot_mark("1"), rules.row_mark(store.state.graph.nodes["T1"])
    assert store.rests("slot:b") == [("slot:a", mark_a, None), ("row:T1", mark_row, None)]
    store.set("c", "1", "slot:a")
    assert store.state.inputs.dependents == {"slot:a": {"slot:b": 1, "slot:c": 1}, "row:T1": {"slot:b": 1}}
    check_index(store)
    store.set("b", "2", "slot:a")
    assert store.state.inputs.dependents == {"slot:a": {"slot:b": 1, "slot:c": 1}}
    store.append([{"f": "slot.drop", "k": "c"}, {"f": "slot.drop", "k": "a"}])
    assert store.state.inputs.dependents == {"slot:a": {"slot:b": 1}}
    store.set("b", "3")
    assert (store.state.inputs.on, store.state.inputs.dependents, store.state.inputs.given) == (False, {}, {})
    check_index(store)


def test_the_index_follows_rows_edges_and_laws() -> None:
    store = StateStore()
    store.set("a", "1")
    store.mutate(f"{TWO}\n+ LAW01 name=x\n+ [T1] --(next)--> [T2]", "slot:a")
    inputs = store.state.inputs
    assert set(inputs.given) == {"row:T1", "row:T2", "row:LAW01", "row:E1"} and all(list(origins) == [""] for origins in inputs.given.values())
    check_index(store)
    store.mutate("~ [T1] ; a=9")
    assert len(inputs.given) == 4, "who patches a row says nothing of what it rests on"
    store.append([{"f": "node.put", "id": "T1", "kind": "T", "fields": {"a": "9"}, "born": 0}])
    store.mutate("- LAW01\n- E1")
    assert set(inputs.given) == {"row:T2"} and inputs.dependents == {"slot:a": {"row:T2": 1}}
    check_index(store)


def test_an_edge_derived_from_is_an_input_of_its_source() -> None:
    store = StateStore(f"{TWO}\n+ T [T3] ; a=3\n+ [T2] --(derived_from)--> [T1]")
    inputs = store.state.inputs
    mark = rules.row_mark(store.state.graph.nodes["T1"])
    assert (inputs.given, inputs.by_edge) == ({"row:T2": {"E1": (("row:T1", mark, None),)}}, {"E1": "row:T2"})
    store.mutate("~ [T2] ; a=5", "row:T1")
    assert inputs.dependents == {"row:T1": {"row:T2": 2}}
    check_index(store)
    store.append([{"f": "edge.put", "id": "E1", "src": "T3", "rel": "derived_from", "dst": "T2", "fields": {}}])
    assert inputs.given["row:T3"] == {"E1": (("row:T2", "", None),)}, "without a record it rests on its target as it may be"
    assert inputs.dependents == {"row:T1": {"row:T2": 1}, "row:T2": {"row:T3": 1}}
    check_index(store)
    store.append([{"f": "edge.put", "id": "E1", "src": "T3", "rel": "next", "dst": "T2", "fields": {}}])
    assert (inputs.by_edge, set(inputs.given)) == ({}, {"row:T2"})
    check_index(store)
    store.mutate("+ [T3] --(derived_from)--> [T2]")
    assert inputs.by_edge == {"E2": "row:T3"}
    store.mutate("- E2")
    assert (inputs.by_edge, set(inputs.given)) == ({}, {"row:T2"})


def test_what_was_superseded_is_known_until_it_is_no_more() -> None:
    store = StateStore(f"{TWO}\n+ T [T3] ; a=3\n~ [T1] ; superseded_by=T2\n~ [T2] ; superseded_by=T3")
    inputs = store.state.inputs
    assert (inputs.superseded, inputs.on) == ({"T1": "T2", "T2": "T3"}, True) and inputs.work
    check_index(store)
    store.mutate("~ [T1] ; superseded_by=")
    assert inputs.superseded == {"T2": "T3"}
    store.append([{"f": "node.drop", "id": "T2"}])
    assert (inputs.superseded, inputs.on) == ({}, False)
    check_index(store)


def test_the_index_knows_who_claims_a_unique_key() -> None:
    store = StateStore("+ T [T1] ; a=1 ; b=2\n+ T [T2] ; a=1\n+ U [U1] ; a=1\n+ T [T3] ; a=1 ; b=2")
    store.mutate('SCHEMA U ; fields="id a"\nSCHEMA T ; fields="id a b" ; unique="a b"')
    inputs = store.state.inputs
    assert (inputs.unique, inputs.on) == ({"T": {("1", "2"): {"T1": None, "T3": None}}}, True) and inputs.work
    check_index(store)
    store.append([{"f": "node.put", "id": "T2", "kind": "T", "fields": {"a": "1", "b": "3"}}, {"f": "node.put", "id": "T1", "kind": "T", "fields": {"a": "1"}}])
    assert inputs.unique == {"T": {("1", "2"): {"T3": None}, ("1", "3"): {"T2": None}}}
    check_index(store)
    store.mutate("- T3\n~ [T2] ; b=4")
    assert inputs.unique == {"T": {("1", "4"): {"T2": None}}} and inputs.keys_of == {"T2": ("T", ("1", "4"))}
    store.mutate('SCHEMA U ; fields="id a" ; unique=a')
    assert inputs.unique["U"] == {("1",): {"U1": None}}
    store.mutate('SCHEMA T ; fields="id a b" ; unique=a')
    assert inputs.unique == {"T": {("1",): {"T1": None, "T2": None}}, "U": {("1",): {"U1": None}}}
    check_index(store)
    for kind in "TU":
        store.append([{"f": "schema.put", "kind": kind, "fields": ["a"]}])
    assert (inputs.unique, inputs.keys_of, inputs.on) == ({}, {}, False)


def test_a_key_is_claimed_by_rows_that_have_all_its_fields() -> None:
    store = StateStore('SCHEMA T ; fields="id a b" ; unique="a b"\nSCHEMA U ; fields="id a"')
    assert [rules.unique_fields(store.state.schema, kind) for kind in "TUV"] == [("a", "b"), (), ()]
    assert rules.unique_key(("a", "b"), {"a": "1", "b": "2", "c": "3"}) == ("1", "2")
    assert rules.unique_key(("a", "b"), {"a": "1"}) is rules.unique_key((), {"a": "1"}) is rules.unique_key(("a",), {"a": ""}) is None


def test_a_dump_of_another_form_is_no_harm() -> None:
    store = StateStore()
    store.set("a", "1")
    store.mutate(TWO, "slot:a")
    state = store.state
    dumps: list[Any] = [{}, 7, {"nodes": {}}, {form: {"id": [], "extra": {"0": {}}} for form in ("nodes", "edges", "laws")}]
    dumps += [{form: {"id": [], "extra": {"x": {}}} for form in ("nodes", "edges", "laws")}]
    for dumped in dumps:
        assert index_of(Inputs.build(state.silo, state.graph, state.schema, dumped)) == index_of(state.inputs)
    unknown = {form: {"id": ["GONE", "T2"], "extra": {"0": {}, "1": {}}} for form in ("nodes", "edges", "laws")}
    assert list(Inputs.build(state.silo, state.graph, state.schema, unknown).given) == ["row:T2"]


# --- judging ------------------------------------------------------------------------------------------------------


def test_what_changed_or_is_gone_is_told_of_all_that_rest_on_it_in_order_of_redoing() -> None:
    store = StateStore(TWO)
    store.set("a", "1")
    store.set("z", "1", "slot:a", "row:T1")
    store.set("m", "1", "slot:z")
    store.set("b", "1", "slot:m", "slot:a")
    store.set("n", "1", "row:T2")
    assert store.stale() == {}
    store.set("a", "2")
    assert store.stale() == {"slot:z": ["slot:a changed"], "slot:m": ["slot:a changed"], "slot:b": ["slot:a changed"]}
    assert list(store.stale()) == ["slot:z", "slot:m", "slot:b"]
    store.append([{"f": "node.drop", "id": "T1"}])
    assert store.stale()["slot:z"] == ["slot:a changed", "row:T1 gone"]
    assert store.stale()["slot:b"] == ["slot:a changed", "row:T1 gone"]
    store.set("a", "1")
    assert store.stale()["slot:b"] == ["row:T1 gone"]
    store.append([{"f": "slot.drop", "k": "m"}])
    assert store.stale() == {"slot:z": ["row:T1 gone"], "slot:b": ["slot:m gone"]}


def test_some_are_judged_with_what_they_rest_on_and_no_others() -> None:
    store = StateStore()
    store.set("a", "1")
    store.set("b", "1", "slot:a")
    store.set("c", "1", "slot:b")
    store.set("d", "1", "slot:c")
    store.set("e", "1", "slot:a")
    store.set("a", "2")
    assert (
        set(store.stale("slot:c")) == {"slot:b", "slot:c"} and store.stale("slot:none") == {} and set(store.stale()) == {"slot:b", "slot:c", "slot:d", "slot:e"}
    )
    sheet = rules.collect(store.state, ["slot:d", "slot:none"], store.now_ms)
    assert sheet.within == {"slot:b", "slot:c", "slot:d"} and set(sheet.direct) == {"slot:b"}
    assert rules.collect(store.state, None, store.now_ms).within is None


def test_what_lies_outside_is_left_to_others_with_its_mark_and_hint() -> None:
    store = StateStore()
    store.set("b", "1", Input("file:x", "m", [1]), Input("session:s/row:T1", ""), Input("tree:t", "n"))
    sheet = rules.collect(store.state, None, store.now_ms)
    assert sheet.outside == [("slot:b", "file:x", "m", [1]), ("slot:b", "session:s/row:T1", "", None), ("slot:b", "tree:t", "n", None)]
    assert sheet.direct == {}
    verdict = rules.settle(store.state.inputs, rules.Sheet({"slot:b": [Cause("file:x")]}, [], None))
    assert verdict.causes == {"slot:b": (Cause("file:x"),)} and verdict.direct == {"slot:b": [Cause("file:x")]}


def test_a_version_is_stale_where_another_one_is_known() -> None:
    store = StateStore()
    store.set("b", "1", "version:p=7", "url:u etag=1", Input("version:q", ""))
    assert store.stale() == {}
    store.append([{"f": "session.put", "version:p": "8", "url:u": "2", "version:q": "1"}])
    assert store.stale() == {"slot:b": ["version:p now 8", "url:u now 2"]}
    assert rules.look_at(store.state, "version:p", store.now_ms) == ("", "8") and rules.look_at(store.state, "version:none", store.now_ms) == ("", "")


def test_what_an_input_is_now() -> None:
    store = StateStore(f"{TWO} ; ttl=5s\n+ T [T3]\n~ [T1] ; superseded_by=T3")
    store.set("a", "1", expires_at_ms=store.now_ms + 5_000)
    look = {name: rules.look_at(store.state, name, store.now_ms) for name in ("row:T1", "row:T2", "row:T9", "slot:a", "slot:b")}
    assert look == {
        "row:T1": ("superseded by T3", ""),
        "row:T2": ("", rules.row_mark(store.state.graph.nodes["T2"])),
        "row:T9": ("gone", ""),
        "slot:a": ("", rules.slot_mark("1")),
        "slot:b": ("gone", ""),
    }
    later = store.now_ms + 5_000
    assert rules.look_at(store.state, "row:T2", later) == rules.look_at(store.state, "slot:a", later) == ("gone", "")


def test_what_took_the_place_of_its_input_is_not_stale_for_that_but_others_are() -> None:
    store = StateStore(f"{TWO}\n+ T [T3]\n+ T [T4]\n+ [T2] --(derived_from)--> [T1]\n+ [T3] --(derived_from)--> [T1]\n+ [T4] --(derived_from)--> [T1]")
    store.mutate("~ [T1] ; superseded_by=T2\n~ [T2] ; superseded_by=T3")
    assert store.stale() == {"row:T4": ["row:T1 superseded by T2"]}
    store.append([{"f": "node.put", "id": "T1", "kind": "T", "fields": {"a": "9", "superseded_by": "T2"}, "born": 0}])
    assert store.stale() == {"row:T2": ["row:T1 changed"], "row:T3": ["row:T1 changed"], "row:T4": ["row:T1 superseded by T2"]}
    store.append([{"f": "edge.put", "id": "E1", "src": "T2", "rel": "derived_from", "dst": "T1", "fields": {}, "born": 9}])
    assert list(store.stale()) == ["row:T3", "row:T4"], "who noted no mark cannot tell"
    store.append([{"f": "node.put", "id": "T3", "kind": "T", "fields": {"superseded_by": "T1"}, "born": 2}])
    assert store.stale()["row:T4"] == ["row:T1 superseded by T2"], "a ring of successors, which no write makes, ends"


def test_of_many_causes_each_is_told_once_and_eight_at_most() -> None:
    store = StateStore("\n".join(f"+ T [T{n}] ; a=1" for n in range(1, 13)))
    store.set("b", "1", *(f"row:T{n}" for n in range(1, 13)))
    store.set("x", "1", "row:T1", "row:T2")
    store.set("y", "1", "row:T2")
    store.set("c", "1", "slot:x", "slot:y", "row:T2")
    store.mutate("\n".join(f"~ [T{n}] ; a=2" for n in range(1, 13)))
    stale = store.stale()
    assert stale["slot:b"] == [f"row:T{n} changed" for n in range(1, 9)]
    assert stale["slot:c"] == ["row:T2 changed", "row:T1 changed"], "its own first"


def test_a_ring_that_no_write_makes_is_told_whole() -> None:
    store = StateStore()
    store.set("a", "1")
    for one, other in (("b", "c"), ("c", "b")):
        store.append([{"f": "slot.put", "k": one, "i": 5, "v": "1", "in": [[f"slot:{other}", ""], ["slot:a", "other"]]}])
    assert store.stale() == {"slot:b": ["slot:a changed"], "slot:c": ["slot:a changed"]}
    store.append([{"f": "slot.put", "k": "c", "i": 5, "v": "1", "in": [["slot:b", ""]]}])
    assert store.stale() == {"slot:b": ["slot:a changed"], "slot:c": ["slot:a changed"]}


# --- deciding -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starts", "cycle"),
    [("a", None), ("g", None), ("b", ["c", "d", "c"]), ("ab", ["c", "d", "c"]), ("f", ["f", "f"]), ("", None), ("agf", ["f", "f"]), ("aa", None)],
)
def test_a_ring_is_found_from_where_it_can_be_reached(starts: str, cycle: list[str] | None) -> None:
    rests = {"a": "gh", "h": "g", "b": "ac", "c": "d", "d": "ac", "f": "f"}
    seen: list[str] = []

    def look(name: str) -> str:
        seen.append(name)
        return rests.get(name, "")

    assert rules.find_cycle(starts, look) == cycle
    assert len(seen) == len(set(seen)), "each name is looked at once"


def test_an_input_that_is_there_gets_its_mark_and_one_with_a_mark_keeps_it() -> None:
    store = StateStore(TWO)
    store.append([{"f": "session.put", "version:p": "8"}])
    given = [Input("row:T1"), Input("version:p"), Input("file:x", "m", [1]), Input("row:T9", "old"), Input("row:T1", "seen"), Input("version:q", "")]
    assert rules.resolve_inputs(store.state, given, store.now_ms) == [
        Input("row:T1", "seen"), Input("version:p", "8"), Input("file:x", "m", [1]), Input("row:T9", "old"), Input("version:q", ""),
    ]  # fmt: skip
    assert rules.resolve_inputs(store.state, [Input("row:T2")], store.now_ms) == [Input("row:T2", rules.row_mark(store.state.graph.nodes["T2"]))]


def test_an_input_that_is_not_there_is_refused_with_what_to_do() -> None:
    store = StateStore(f"{TWO}\n~ [T1] ; superseded_by=T2")
    for name, hint in (
        ("row:T9", "must be there"), ("slot:a", "must be there"), ("file:x", "must be there"),
        ("version:p", "version:p=VALUE"), ("url:u", "url:u=VALUE"),
    ):  # fmt: skip
        error = refused("no_such_input", lambda name=name: rules.resolve_inputs(store.state, [Input(name)], store.now_ms))
        assert (error.name, name in error.message, hint in error.hint) == (name, True, True)
    error = refused("superseded_input", lambda: rules.resolve_inputs(store.state, [Input("row:T1")], store.now_ms))
    assert (error.name, error.message, error.hint) == ("row:T1", "row:T1 was superseded by T2", "rest on row:T2")


def test_one_dependent_has_so_many_inputs_and_no_more() -> None:
    store = StateStore()
    given = [Input(f"file:{n}", "m") for n in range(rules.INPUTS_OF_ONE)]
    assert len(rules.resolve_inputs(store.state, [*given, given[0]], 0)) == rules.INPUTS_OF_ONE
    error = refused("too_many_inputs", lambda: rules.resolve_inputs(store.state, [*given, Input("file:more", "m")], 0))
    assert (error.limit, error.message.startswith("10001 "), "tree:" in error.hint) == (rules.INPUTS_OF_ONE, True, True)


def test_a_slot_rests_on_what_is_written_with_it_and_never_on_itself() -> None:
    store = StateStore()
    store.set("a", "1")
    store.set("b", "1", "slot:a")
    facts: list[Fact] = [{"f": "slot.put", "k": "c"}, {"f": "slot.put", "k": "d"}, {"f": "slot.drop", "k": "c"}]
    assert rules.rest_on(store.state, facts, "c", [Input("slot:b"), Input("file:x", "m", 7)], store.now_ms) is facts
    assert facts == [
        {"f": "slot.put", "k": "c", "in": [["slot:b", rules.slot_mark("1")], ["file:x", "m", 7]]}, {"f": "slot.put", "k": "d"}, {"f": "slot.drop", "k": "c"},
    ]  # fmt: skip
    assert rules.rest_on(store.state, [{"f": "slot.put", "k": "c"}], "c", [], store.now_ms) == [{"f": "slot.put", "k": "c"}]
    for given in (Input("slot:n"), Input("slot:n", "m")):
        assert refused("input_cycle", lambda given=given: rules.rest_on(store.state, [], "n", [given], store.now_ms)).path == ["slot:n", "slot:n"]
    error = refused("input_cycle", lambda: rules.rest_on(store.state, [], "a", [Input("slot:b")], store.now_ms))
    assert error.path == ["slot:a", "slot:b", "slot:a"] and "slot:a -> slot:b -> slot:a" in error.message and "leave" in error.hint
    store.set("b", "2")
    assert rules.rest_on(store.state, [], "a", [Input("slot:b")], store.now_ms) == []
