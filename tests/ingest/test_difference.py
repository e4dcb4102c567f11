"""The difference between the pins there are and those there should be, whatever they are of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold import Memory, Session
from pinfold.errors import DocumentRefused
from pinfold.ingest.pins import Difference, PinKind, Wanted, difference
from pinfold.state.schema import derive_id

THING = PinKind("THING", ("name", "colour", "size"), "name")
PART = PinKind("PART", ("name", "colour"), "name")
LIBRARY = PinKind("LIBRARY", ("name",))

Told = dict[str, dict[str, str]]
Joined = list[tuple[str, str, str]]


def wanted(pins: Told, joined: Joined = [], *, owns: str = "") -> Wanted:  # noqa: B006
    """Return what a source of things says. A name is FILE::NAME; those that begin with `lib` are shared. owns: the one file that was read."""
    found = Wanted((THING, PART, LIBRARY), ("has", "uses"), {}, {}, lambda file: not owns or file == owns, ("count",))
    ids = {}
    for name, fields in pins.items():
        kind = "LIBRARY" if name.startswith("lib") else "PART" if "part" in name else "THING"
        ids[name] = found.add(kind, {"name": name, **(fields if kind != "LIBRARY" else {})})
    for src, rel, dst in joined:
        if src in ids and dst in ids:
            found.link(ids[src], rel, ids[dst], count="1")
    return found


def compare(session: Session, told: Wanted) -> Difference:
    view = session._view()
    return difference(view.graph, view.schema, told, view.now_ms)


def bring(session: Session, told: Wanted, rows: int = 1000) -> Difference:
    found = compare(session, told)
    for batch in found.batches(rows):
        session._change(batch, "mutate", None, False, False, None)
    return found


def thing(name: str) -> str:
    return derive_id("THING", name)


def test_pins_come_change_and_go_and_what_is_the_same_is_not_written(session: Session) -> None:
    bring(session, wanted({"a::x": {"colour": "red"}, "a::y": {"size": "1"}}, [("a::x", "has", "a::y")]))
    before = session.log()[-1].seq
    assert compare(session, wanted({"a::x": {"colour": "red"}, "a::y": {"size": "1"}}, [("a::x", "has", "a::y")])).ops == []
    bring(session, wanted({"a::x": {"colour": "blue"}, "a::z": {}}, [("a::x", "uses", "a::z")]))
    diff = [line for line in session.diff(before).split("\n") if not line.startswith(("SCHEMA", "#"))]
    assert f"~ [{thing('a::x')}] ; colour=blue" in diff
    assert any(line.startswith(f"- {thing('a::y')}") for line in diff)
    assert len(diff) == 4 and any("--(uses)-->" in line for line in diff)


def test_fields_and_rows_that_were_added_stay_and_own_fields_follow(session: Session) -> None:
    bring(session, wanted({"a::x": {"colour": "red", "size": "1"}}))
    session.mutate(f"~ [{thing('a::x')}] ; note=mine ; colour=green\n+ TSK [T1] ; goal=look\n+ [T1] --(about)--> [{thing('a::x')}]")
    assert bring(session, wanted({"a::x": {"colour": "blue"}})).orphaned == []
    assert session.get(thing("a::x"), "E1").items[0].line == f"THING [{thing('a::x')}] ; name=a::x ; colour=blue ; note=mine"
    assert not session.get("E1").missing


def test_annotations_of_a_pin_that_goes_are_named_and_rows_stay(session: Session) -> None:
    bring(session, wanted({"a::x": {}, "a::y": {}}, [("a::x", "has", "a::y")]))
    x, y = thing("a::x"), thing("a::y")
    session.mutate(f"~ [{x}] ; note=look here\n+ TSK [T1] ; goal=mend\n+ [T1] --(about)--> [{x}]\n+ [{y}] --(alike)--> [{x}]")
    gone = bring(session, wanted({"a::y": {}}))
    assert [(found.pin, found.locator, found.row, found.what) for found in gone.orphaned] == [
        (x, "a::x", "", "note=look here"),
        (x, "a::x", "T1", f"E2 [T1] --(about)--> [{x}]"),
        (x, "a::x", y, f"E3 [{y}] --(alike)--> [{x}]"),
    ]
    assert [item.id for item in session.get("T1", y).items] == ["T1", y]
    assert session.get(x).missing


def test_what_was_not_read_is_left_as_it_is(session: Session) -> None:
    bring(session, wanted({"a::x": {"size": "1"}, "b::y": {"size": "1"}}, [("a::x", "has", "b::y"), ("b::y", "has", "a::x")]))
    bring(session, wanted({"a::z": {}}, owns="a"))
    assert session.find("THING").total == 2 and not session.get(thing("b::y")).missing
    bring(session, wanted({}, owns="b"))
    assert [item.id for item in session.find("THING").items] == [thing("a::z")]


def test_a_shared_pin_goes_with_the_last_edge_to_it(session: Session) -> None:
    bring(session, wanted({"a::x": {}, "b::y": {}, "libc": {}}, [("a::x", "uses", "libc"), ("b::y", "uses", "libc")]))
    bring(session, wanted({"a::x": {}}, owns="a"))
    assert session.find("LIBRARY").total == 1
    bring(session, wanted({"b::y": {}}, owns="b"))
    assert session.find("LIBRARY").total == 0


def test_an_edge_to_a_pin_that_is_nowhere_is_left_out(session: Session) -> None:
    told = wanted({"a::x": {}})
    told.link(thing("a::x"), "uses", "LIBRARY_libm")
    bring(session, told)
    assert session._view().graph.edges == {}


def test_kinds_are_declared_open_by_the_entry_that_uses_them_and_other_kinds_stay_free(session: Session) -> None:
    session.mutate("+ TSK [NEW] ; goal=x")
    bring(session, wanted({"a::x": {"size": "1"}}))
    assert session.schema() == ["SCHEMA THING ; fields=id name colour size ; pin=true ; open=true"]
    assert len(session.log()) == 2
    session.mutate("+ ANYTHING [NEW] ; colour=x")
    with pytest.raises(DocumentRefused) as refused:
        session.mutate("+ THING [NEW] ; name=a::q")
    assert refused.value.problems[0].code == "new_on_pin"


def test_a_closed_schema_is_widened_by_kinds_and_relations(session: Session) -> None:
    session.mutate("SCHEMA TSK ; fields=id goal\nSCHEMA relations ; names=needs\n+ TSK [T1] ; goal=x")
    bring(session, wanted({"a::x": {}, "a::part": {}}, [("a::x", "has", "a::part")]))
    assert session.schema()[1:] == [
        "SCHEMA THING ; fields=id name colour size ; pin=true ; open=true",
        "SCHEMA PART ; fields=id name colour ; pin=true ; open=true",
        "SCHEMA relations ; names=needs has",
    ]
    session.mutate(f"~ [{thing('a::x')}] ; note=still welcome")


def test_rows_of_ones_own_that_have_the_kind_are_a_conflict_and_nothing_is_written(session: Session) -> None:
    session.mutate("+ THING [NEW] ; name=mine")
    with pytest.raises(DocumentRefused) as refused:
        bring(session, wanted({"a::x": {}}))
    assert refused.value.problems[0].code == "schema_conflict"
    assert session.find("THING").total == 1


def test_a_row_whose_time_is_over_makes_way(session: Session) -> None:
    bring(session, wanted({"a::x": {}, "a::y": {}}, [("a::x", "has", "a::y")]))
    session.mutate(f"~ [{thing('a::y')}] ; expires=2020-01-01T00:00:00Z")
    bring(session, wanted({"a::x": {}, "a::y": {}}, [("a::x", "has", "a::y")]))
    assert session.find("THING").total == 2 and session.graph_counts()["edges"] == 1


_names = st.sampled_from(["a::x", "a::y", "a::part", "b::x", "b::part", "libc", "libm"])
_fields = st.dictionaries(st.sampled_from(["colour"]), st.text(max_size=3), max_size=1)
_told = st.dictionaries(_names, _fields, max_size=7)
_joined = st.lists(st.tuples(_names.filter(lambda name: not name.startswith("lib")), st.sampled_from(["has", "uses"]), _names), max_size=8)


@settings(max_examples=40)
@given(first=_told, first_joined=_joined, then=_told, then_joined=_joined, rows=st.sampled_from([1, 3, 1000]))
def test_the_difference_makes_the_graph_what_is_wanted_wherever_it_is_cut(
    first: Told, first_joined: Joined, then: Told, then_joined: Joined, rows: int
) -> None:
    with Memory("memory://") as memory:
        session = memory.session("work")
        bring(session, wanted(first, first_joined), rows)
        session.mutate("+ NOTE [N1] ; label=mine" + "".join(f"\n+ [N1] --(about)--> [{id}]" for id in session._view().graph.nodes))
        told = wanted(then, then_joined)
        bring(session, told, rows)
        assert compare(session, told).ops == []
        graph = session._view().graph
        own = {node.id: node.fields for node in graph.nodes.values() if node.id != "N1"}
        assert own == {id: pin.fields for id, pin in told.pins.items()} | {
            id: own[id] for id in own if id not in told.pins and own[id]["name"].startswith("lib")
        }
        assert {(edge.src, edge.rel, edge.dst) for edge in graph.edges.values() if edge.rel != "about"} == set(told.links)
        assert "N1" in graph.nodes
