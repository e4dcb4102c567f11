"""What remembering, relating, interlinking, pruning and forgetting write: each rule by example, on a graph without a session."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from pinfold import limits
from pinfold.errors import Refused
from pinfold.state import memory_rows as rows
from pinfold.state.draft import Work
from pinfold.state.graph import Edge, Node, Row
from pinfold.testing.graphs import GraphStore

DAY_MS = 86_400_000
BORN = GraphStore().now_ms


def refused(code: str, ask: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as error:
        ask()
    assert error.value.code == code
    return error.value


def node(id: str, **fields: str) -> Node:
    return Node(id, tuple(fields), tuple(fields.values()), (1, BORN, None), 0, None, "TSK")


def edge(**fields: str) -> Edge:
    return Edge("E1", tuple(fields), tuple(fields.values()), (1, BORN, None), 0, None, "A", "next", "B")


def draft(store: GraphStore) -> rows.Memories:
    return rows.Memories(store.graph, store.schema, store.now_ms)


def write(store: GraphStore, *items: rows.Item) -> list[tuple[str, bool, int]]:
    """Write memories as one entry. Return (id, whether it is new, how often it was asserted) of each."""
    memories = draft(store)
    done = [memories.upsert(item) for item in items]
    store.append(memories.facts())
    return [(work.id, new, count) for work, new, count in done]


def relate(store: GraphStore, source: str, relation: str, target: str, weight: float | None = None, **metadata: Any) -> tuple[str, bool]:
    memories = draft(store)
    work, new = memories.relate(source, target, relation, weight, rows.check_metadata(metadata))
    store.append(memories.facts())
    return work.id, new


# --- names --------------------------------------------------------------------------------------------------------


def test_a_type_is_a_kind_in_any_case() -> None:
    assert [rows.kind_of_type(type) for type in ("concept", "Note", "TSK", "my_kind2")] == ["CONCEPT", "NOTE", "TSK", "MY_KIND2"]
    for wrong in ("", "two words", "new", "law", "x" * 60, None, 7):
        error = refused("bad_type", lambda wrong=wrong: rows.kind_of_type(wrong))
        assert repr(str(wrong)[:40]) in error.message and len(error.message) < 70 and "concept" in error.hint


def test_a_row_is_shown_as_type_label_and_content() -> None:
    store = GraphStore("+ CONCEPT [C1] ; label=auth ; content=login\n+ TSK [T1] ; goal=x\n+ LAW01 name=x")
    concept, task, law = (store.graph.row(id) for id in ("C1", "T1", "LAW01"))
    assert [rows.type_of(row) for row in (concept, task, law)] == ["concept", "TSK", "LAW"]
    assert [rows.label_of(row) for row in (concept, task)] == ["auth", "T1"]
    assert [rows.content_of(row) for row in (concept, task)] == ["login", "TSK [T1] ; goal=x"]
    store.mutate("SCHEMA TSK ; fields=id status goal\n~ [T1] ; status=open")
    assert rows.content_of(store.graph.nodes["T1"], store.schema) == "TSK [T1] ; status=open ; goal=x"


def test_metadata_is_every_field_but_label_content_and_weight() -> None:
    row = node("T1", label="a", content="b", team="core", meta='{"a key":1,"team":2}', weight="0.5")
    assert rows.metadata_of(row) == {"team": 2, "a key": 1}
    for text in ("", "{", "[1]", "7"):
        assert rows.metadata_of(node("T1", team="core", meta=text)) == {"team": "core"}, "what is no map of names says nothing"


# --- weights and time ---------------------------------------------------------------------------------------------


def test_a_weight_is_from_0_to_1_and_1_where_there_is_none() -> None:
    texts = {"0": 0.0, "0.25": 0.25, "1": 1.0, "-3": 0.0, "7": 1.0, "nan": 1.0, "inf": 1.0, "-inf": 0.0, "much": 1.0}
    assert {text: rows.weight_of(edge(weight=text)) for text in texts} == texts
    assert rows.weight_of(edge()) == 1.0
    given: list[tuple[Any, float | None]] = [(None, None), (0, 0.0), (1, 1.0), (0.25, 0.25), (-0.5, 0.0), (1.5, 1.0), (7, 1.0), (math.inf, 1.0)]
    assert [rows.check_weight(weight) for weight, _ in given] == [kept for _, kept in given]
    for wrong in (math.nan, True, "0.5", [], 1j):
        error = refused("bad_weight", lambda wrong=wrong: rows.check_weight(wrong))
        assert repr(wrong) in error.message and "leave it out" in error.hint


def test_a_weight_is_written_to_four_digits_without_needless_ones() -> None:
    written = {0.0: "0", 1.0: "1", 0.5: "0.5", 0.25: "0.25", 0.12345: "0.1235", 0.00004: "0", 0.1: "0.1", 10.0: "10"}
    assert {weight: rows.written(weight) for weight in written} == written


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, False), ({"pinned": "true"}, True), ({"pinned": "YES"}, True), ({"pinned": "1"}, True), ({"pinned": "On"}, True), ({"pinned": "no"}, False),
        ({"recycle": "persistent"}, True), ({"recycle": "delete_on_settle"}, False),
    ],
)  # fmt: skip
def test_what_is_pinned_or_persistent_does_not_fade(fields: dict[str, str], kept: bool) -> None:
    row = edge(weight="0.8", **fields)
    assert rows.is_kept(row) is kept
    assert rows.decayed(row, BORN + 20 * DAY_MS) == pytest.approx(0.8 if kept else 0.8 * math.exp(-1))


def test_a_link_fades_from_its_last_assertion_on_and_the_future_counts_as_now() -> None:
    row = edge(weight="0.8")
    assert rows.decayed(row, BORN) == rows.decayed(row, BORN - DAY_MS) == 0.8
    assert rows.decayed(row, BORN + 1) < 0.8
    assert rows.decayed(row, BORN + DAY_MS // 2) == pytest.approx(0.8 * math.exp(-0.025))


MOMENTS: list[tuple[Any, int | None]] = [
    (None, None),
    ("", None),
    (0, 0),
    (1_790_000_000_123, 1_790_000_000_123),
    ("1970-01-02", DAY_MS),
    (date(1970, 1, 2), DAY_MS),
    ("1970-01-01T00:00:00.001Z", 1),
    ("1970-01-01T02:00:00+02:00", 0),
    (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1))), 3_600_000),
    (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1_000),
    ("1970-01-01T00:00:00.001999Z", 1),
]


@pytest.mark.parametrize(("moment", "at_ms"), MOMENTS, ids=str)
def test_a_moment_is_unix_ms(moment: Any, at_ms: int | None) -> None:
    found = rows.moment_ms(moment)
    assert found == at_ms and type(found) is type(at_ms)


def test_a_senseless_moment_is_refused_by_its_name_and_says_how_to_write_one() -> None:
    for wrong in ("soon", "1970-01-01 soon", "2026-13-01", 1.5, True, [], 10**18, -(10**18)):
        error = refused("bad_time", lambda wrong=wrong: rows.moment_ms(wrong, "since"))
        assert error.message.startswith(f"since={wrong!r} ") and "Unix ms" in error.hint
    assert refused("bad_time", lambda: rows.moment_ms("x" * 99)).message.startswith(f"at={'x' * 60!r} ")
    for naive in ("2026-05-08T10:00:00", datetime(2026, 5, 8, 10)):
        error = refused("bad_time", lambda naive=naive: rows.moment_ms(naive, "until"))
        assert error.message.startswith("until=2026-05-08T10:00:00 ") and "2026-05-08T10:00:00Z" in error.hint


def test_an_event_time_is_at_else_since_when_it_holds() -> None:
    assert rows.event_ms(node("T1", at="1970-01-02", valid_from="1970-01-03")) == DAY_MS
    assert rows.event_ms(node("T1", valid_from="1970-01-03", valid_until="1970-01-04")) == 2 * DAY_MS
    assert rows.event_ms(node("T1")) is None


# --- what may be written ------------------------------------------------------------------------------------------


def test_text_is_unicode_within_the_limit_of_its_field() -> None:
    assert rows.check_text(" ", "label") == " " and rows.check_text("é" * (limits.FIELD_VALUE_BYTES // 2), "label")
    assert rows.check_text("x" * limits.CONTENT_BYTES, "content")
    error = refused("value_too_large", lambda: rows.check_text("é" * (limits.FIELD_VALUE_BYTES // 2 + 1), "label"))
    assert error.limit_bytes == limits.FIELD_VALUE_BYTES
    assert error.message == f"label has {limits.FIELD_VALUE_BYTES + 2} bytes, the limit FIELD_VALUE_BYTES is {limits.FIELD_VALUE_BYTES}"
    assert "file" in error.hint
    for wrong, told in ((7, "int"), (None, "NoneType"), ("a\ud800", "surrogate")):
        error = refused("bad_value", lambda wrong=wrong: rows.check_text(wrong, "label"))
        assert error.message.startswith("label ") and told in error.message and "text" in error.hint
    for empty in ("", " \n"):
        error = refused("bad_value", lambda empty=empty: rows.check_text(empty, "label", needed=True))
        assert error.message == "label is empty" and "label" in error.hint


def test_metadata_is_kept_by_legal_names_and_the_others_together() -> None:
    assert rows.check_metadata(None) == rows.check_metadata({}) == rows.Noted({}, {})
    noted = rows.check_metadata({"team": "core", "n": 1, "yes": True, "none": None, "empty": "", "a key": 2, "meta": "x", "id": "y", "gone key": None, "2": ""})
    assert noted.fields == {"team": "core", "n": "1", "yes": "true", "none": "", "empty": ""}
    assert noted.odd == {"a key": 2, "meta": "x", "id": "y", "gone key": None, "2": None}
    assert rows.check_metadata({"expires": "2030-01-01"}).fields == {"expires": "2030-01-01"} and rows.check_metadata({"expires": ""}).fields == {"expires": ""}


def test_metadata_that_would_not_come_out_as_it_went_in_is_refused() -> None:
    for wrong in ([1], "x", {1: "x"}, {"": "x"}):
        error = refused("bad_metadata", lambda wrong=wrong: rows.check_metadata(wrong))
        assert error.message.startswith("metadata ") and "source" in error.hint
    loop: list[Any] = []
    loop.append(loop)
    for value in ((1, 2), {1, 2}, math.nan, math.inf, loop, {"k": (1,)}, object()):
        error = refused("bad_metadata", lambda value=value: rows.check_metadata({"odd one": value}))
        assert error.message.startswith("the value of odd one cannot be kept: ") and "JSON" in error.hint
    error = refused("value_too_large", lambda: rows.check_metadata({"team": "x" * (limits.FIELD_VALUE_BYTES + 1)}))
    assert error.message.startswith("team has ")
    error = refused("bad_time", lambda: rows.check_metadata({"expires": "s" * 99}))
    assert error.message.startswith(f"expires={'s' * 40!r} ") and "ISO 8601" in error.hint


def test_an_item_is_checked_whole() -> None:
    item = rows.check_item("concept", " auth ", "", {"team": "core"})
    assert item == rows.Item("CONCEPT", " auth ", "", rows.Noted({"team": "core"}, {}))
    refused("bad_type", lambda: rows.check_item("a b", "x", "y"))
    assert refused("bad_value", lambda: rows.check_item("note", "", "y")).message.startswith("label ")
    assert refused("bad_value", lambda: rows.check_item("note", "x", None)).message.startswith("content ")
    refused("value_too_large", lambda: rows.check_item("note", "x" * (limits.FIELD_VALUE_BYTES + 1), "y"))
    refused("value_too_large", lambda: rows.check_item("note", "x", "y" * (limits.CONTENT_BYTES + 1)))
    refused("bad_metadata", lambda: rows.check_item("note", "x", "y", 7))


def test_a_bulk_write_names_the_item_that_cannot_be_kept() -> None:
    good = {"type": "note", "label": "a", "content": "b"}
    assert rows.check_items([]) == []
    assert rows.check_items((good, {**good, "metadata": {"k": "v"}})) == [rows.Item("NOTE", "a", "b"), rows.Item("NOTE", "a", "b", rows.Noted({"k": "v"}, {}))]
    for wrong in ("text", b"bytes", {"a": 1}, None, 7):
        error = refused("bad_item", lambda wrong=wrong: rows.check_items(wrong))
        assert error.message.startswith("items ") and '"type"' in error.hint
    for wrong, told in (
        (7, "is no map"),
        ({}, "lacks 'type'"),
        ({"type": "note", "content": "b"}, "lacks 'label'"),
        ({"type": "note", "label": "b"}, "lacks 'content'"),
        ({**good, "b": 1, "a": 2}, "has no 'a'"),
        ({**good, 7: 2}, "has no '7'"),
    ):
        error = refused("bad_item", lambda wrong=wrong: rows.check_items([good, wrong]))
        assert (error.place, error.message.startswith(f"items[1] {told}")) == (1, True) and "metadata" in error.hint
    error = refused("bad_type", lambda: rows.check_items([good, good, {**good, "type": "a b"}]))
    assert (error.place, error.message.startswith("items[2]: 'a b' ")) == (2, True) and "concept" in error.hint


# --- remembering --------------------------------------------------------------------------------------------------


def test_a_memory_is_named_by_kind_and_label_and_counts_its_assertions() -> None:
    store = GraphStore()
    note = rows.check_item("note", "a", "x", {"team": "core"})
    assert write(store, note) == [("NOTE1", True, 1)]
    store.now_ms += 5
    assert write(store, note) == [("NOTE1", False, 2)]
    row = store.graph.nodes["NOTE1"]
    assert (row.mark[1], row.extra, rows.count_of(row)) == (store.now_ms, {"n": 2}, 2), "an assertion alone is written, and renews the age"
    assert write(store, rows.check_item("concept", "a", "x"), rows.check_item("note", "b", "x")) == [("CONCEPT1", True, 1), ("NOTE2", True, 1)]
    assert write(store, rows.check_item("note", "a", "y", {"team": ""})) == [("NOTE1", False, 3)]
    assert row.fields == {"label": "a", "content": "y"} and rows.count_of(store.graph.nodes["NOTE2"]) == 1


def test_one_memory_twice_in_one_write_is_asserted_twice_where_it_was_there_and_made_once_where_not() -> None:
    store = GraphStore()
    one, two = rows.check_item("note", "a", "x"), rows.check_item("note", "a", "y")
    assert write(store, one, two) == [("NOTE1", True, 1), ("NOTE1", False, 1)]
    assert store.graph.nodes["NOTE1"].fields == {"label": "a", "content": "y"} and store.graph.nodes["NOTE1"].extra is None
    assert write(store, one, two, one) == [("NOTE1", False, 2), ("NOTE1", False, 3), ("NOTE1", False, 4)]
    assert [fact["n"] for fact in store.entries[-1].facts] == [4], "and written once"
    assert rows.count_of(store.graph.nodes["NOTE1"]) == 4


def test_of_several_with_one_label_the_oldest_is_meant_and_none_whose_time_is_over_or_that_was_renamed() -> None:
    store = GraphStore("+ NOTE [B] ; label=a ; content=1 ; ttl=5s\n+ NOTE [A] ; label=a ; content=2\n+ NOTE [C] ; label=a ; content=3\n+ TSK [D] ; label=a")
    found = draft(store).find("NOTE", "a")
    assert found is not None and found.id == "B" and draft(store).find("NOTE", "b") is None
    store.now_ms += 5_000
    found = draft(store).find("NOTE", "a")
    assert found is not None and found.id == "A"
    memories = draft(store)
    memories.take(store.graph.nodes["A"]).fields = {"label": "other"}
    found = memories.find("NOTE", "a")
    assert found is not None and found.id == "C"


def test_odd_metadata_is_patched_key_by_key() -> None:
    store = GraphStore()
    write(store, rows.check_item("note", "a", "x", {"a key": 1, "b key": [2]}))
    assert store.graph.nodes["NOTE1"].get("meta") == '{"a key":1,"b key":[2]}'
    write(store, rows.check_item("note", "a", "x", {"a key": None, "c key": "3"}))
    assert store.graph.nodes["NOTE1"].get("meta") == '{"b key":[2],"c key":"3"}'
    write(store, rows.check_item("note", "a", "x", {"team": "core", "never": ""}))
    assert store.graph.nodes["NOTE1"].get("meta") == '{"b key":[2],"c key":"3"}'
    for _ in range(2):
        write(store, rows.check_item("note", "a", "x", {"b key": "", "c key": None, "no key": None}))
    assert store.graph.nodes["NOTE1"].fields == {"label": "a", "content": "x", "team": "core"}
    large = "x" * (limits.FIELD_VALUE_BYTES - 20)
    write(store, rows.check_item("note", "a", "x", {"a key": large}))
    error = refused("value_too_large", lambda: write(store, rows.check_item("note", "a", "x", {"b key": large})))
    assert error.message.startswith("meta has ")
    error = refused("bad_text", lambda: write(store, rows.Item("NOTE", "b", "x", rows.Noted({}, {"k k": "\ud800"}))))
    assert error.message.startswith("metadata ") and "escape" in error.hint


def test_more_fields_of_the_caller_are_written_over_the_metadata() -> None:
    store = GraphStore()
    memories = draft(store)
    memories.upsert(rows.check_item("note", "a", "x", {"team": "core", "by": "bo"}), {"by": "ann", "at": ""})
    store.append(memories.facts())
    assert store.graph.nodes["NOTE1"].fields == {"label": "a", "content": "x", "team": "core", "by": "ann"}


def test_a_row_has_so_many_fields_and_no_more() -> None:
    store = GraphStore()
    fields = {f"f{n}": "x" for n in range(limits.FIELDS_PER_ROW - 2)}
    assert write(store, rows.check_item("note", "a", "x", fields)) == [("NOTE1", True, 1)]
    for label in ("a", "b"):
        error = refused("limit_exceeded", lambda label=label: write(store, rows.check_item("note", label, "x", {**fields, "one_more": "x"})))
        assert error.message.startswith(f"{limits.FIELDS_PER_ROW + 1} fields") and "one JSON value" in error.hint


def test_what_a_schema_does_not_know_is_refused_with_what_it_does() -> None:
    store = GraphStore("SCHEMA TSK ; fields=id goal status\nSCHEMA PIN ; fields=path note ; pin=true\nSCHEMA NIL ; fields=")
    assert write(store, rows.check_item("tsk", "a", "x", {"goal": "y", "a key": 1}), rows.check_item("note", "n", "x", {"any": "y"}))
    for label in ("a", "b"):
        error = refused("unknown_field", lambda label=label: write(store, rows.check_item("tsk", label, "x", {"gaol": "y"})))
        assert error.message == "TSK has no field gaol" and error.hint == "TSK has goal status"
    error = refused("unknown_field", lambda: write(store, rows.check_item("nil", "a", "x", {"goal": "y"})))
    assert error.hint == "NIL has none"
    error = refused("unknown_kind", lambda: write(store, rows.check_item("tks", "a", "x")))
    assert error.message.startswith("TKS ") and error.hint == "is it TSK?"
    assert "SCHEMA lines" in refused("unknown_kind", lambda: write(store, rows.check_item("zzzzzz", "a", "x"))).hint
    assert refused("unknown_kind", lambda: write(store, rows.check_item("pil", "a", "x"))).hint == "is it PIN or NIL?"
    error = refused("pin_kind", lambda: write(store, rows.check_item("pin", "a", "x")))
    assert error.message.startswith("a PIN ") and "path" in error.message and "mutate" in error.hint


def test_a_created_row_has_no_empty_field_and_can_be_named_by_its_label_at_once() -> None:
    store = GraphStore()
    memories = draft(store)
    work = memories.create("NOTE", {"label": "a", "content": ""})
    assert (work.fields, work.minted, work.line) == ({"label": "a"}, 1, 0) and memories.find("NOTE", "a") is work
    other = memories.create("NOTE", {"label": "a", "content": "x"})
    memories.create("NOTE", {"content": "y"})
    assert memories.find("NOTE", "a") is work and other.born > work.born and memories.find("NOTE", "") is None
    store.append(memories.facts())
    assert list(store.graph.nodes) == ["NOTE1", "NOTE2", "NOTE3"] and store.graph.counters["NOTE"] == 3


# --- relating -----------------------------------------------------------------------------------------------------

THREE = "+ NOTE [A] ; content=1\n+ NOTE [B] ; content=2\n+ NOTE [C] ; content=3"


def test_a_relation_is_made_once_and_then_asserted() -> None:
    store = GraphStore(THREE)
    assert relate(store, "A", "next", "B", 0.5, note="x", **{"a key": 1}) == ("E1", True)
    row = store.graph.edges["E1"]
    assert (row.fields, row.extra, row.src, row.rel, row.dst) == ({"note": "x", "weight": "0.5", "meta": '{"a key":1}'}, None, "A", "next", "B")
    assert store.graph.counters["E"] == 1
    store.now_ms += 5
    assert relate(store, "A", "next", "B") == ("E1", False)
    assert (row.get("weight"), row.mark[1], rows.count_of(row)) == ("0.5", store.now_ms, 2)
    assert relate(store, "A", "next", "B", 0.0, note=None, **{"b key": 2}) == ("E1", False)
    assert row.fields == {"weight": "0", "meta": '{"a key":1,"b key":2}'} and rows.count_of(row) == 3
    assert relate(store, "B", "next", "A") == ("E2", True) and relate(store, "A", "before", "B") == ("E3", True)


def test_a_relation_twice_in_one_write_counts_as_often_as_it_was_said_of_what_was_there() -> None:
    store = GraphStore(THREE)
    for wanted in (None, {"n": 3}):
        memories = draft(store)
        told = [memories.relate("A", "B", "next", None, rows.Noted({}, {}))[1] for _ in range(2)]
        store.append(memories.facts())
        assert (told, store.graph.edges["E1"].extra) == ([wanted is None, False], wanted)


def test_an_edge_whose_time_is_over_makes_way_for_a_new_one() -> None:
    store = GraphStore(f"{THREE}\n+ [A] --(next)--> [B] ; ttl=5s")
    store.now_ms += 5_000
    assert relate(store, "A", "next", "B") == ("E2", True)
    assert list(store.graph.edges) == ["E2"]


def test_a_relation_that_cannot_be_is_refused_with_what_was_meant() -> None:
    store = GraphStore(f"{THREE}\n+ LAW01 name=x\n+ [A] --(next)--> [B]")
    for wrong in ("", "two words", None, 7, "x" * 99):
        error = refused("bad_relation", lambda wrong=wrong: relate(store, "A", wrong, "B"))
        assert repr(str(wrong)[:40]) in error.message and len(error.message) < 70 and "depends_on" in error.hint
    error = refused("self_loop", lambda: relate(store, "A", "next", "A"))
    assert error.id == "A" and error.message.startswith("A ") and "two nodes" in error.hint
    for source, target, wrong in (
        ("Aa", "B", "Aa"),
        ("A", "Bb", "Bb"),
        ("LAW01", "B", "LAW01"),
        ("A", "E1", "E1"),
        ("A", "x" * 99, "x" * 99),
        ("A", [], []),
    ):
        error = refused("not_found", lambda source=source, target=target: relate(store, source, "next", target))
        assert error.id == wrong and error.message == f"no node {str(wrong)[:80]}"
        assert error.near[:1] == {"Aa": ["A"], "Bb": ["B"]}.get(str(wrong), error.near[:1])
        assert error.hint == (f"is it {' or '.join(error.near)}?" if error.near else "search for it")
    assert refused("not_found", lambda: relate(store, "BA", "next", "A")).hint == "is it B or A?"
    store.mutate('SCHEMA relations ; names="owns next"')
    error = refused("unknown_relation", lambda: relate(store, "A", "onws", "B"))
    assert "onws" in error.message and error.hint == "is it owns?"
    assert refused("unknown_relation", lambda: relate(store, "A", "nextowns", "B")).hint == "is it owns or next?"
    assert "SCHEMA relations" in refused("unknown_relation", lambda: relate(store, "A", "zzzzzz", "B")).hint
    assert relate(store, "A", "owns", "B") == ("E2", True)


def test_ends_may_be_nodes_of_the_same_write_but_no_edge_or_what_it_dropped() -> None:
    store = GraphStore(THREE)
    memories = draft(store)
    work, _, _ = memories.upsert(rows.check_item("note", "new", "x"))
    link, _ = memories.relate("A", work.id, "next", None, rows.Noted({}, {}))
    refused("not_found", lambda: memories.relate("A", link.id, "next", None, rows.Noted({}, {})))
    other, _ = memories.relate("C", "A", "next", None, rows.Noted({}, {}))
    assert [edge.id for edge in memories.edges_of("A")] == [link.id, other.id], "oldest first"
    memories.remove(store.graph.nodes["B"])
    refused("not_found", lambda: memories.node("B"))
    store.append(memories.facts())
    assert store.graph.edges[link.id].dst == "NOTE1" and set(store.graph.nodes) == {"A", "C", "NOTE1"}


# --- interlinking -------------------------------------------------------------------------------------------------


def interlink(store: GraphStore, labels: str, similar: list[list[tuple[str, float]]], among: list[tuple[int, int, float]]) -> rows.Linked:
    items = [rows.check_item("note", label, "x") for label in labels]
    facts, linked = rows.decide_interlink(store.graph, store.schema, items, similar, among, store.now_ms)
    store.append(facts)
    return linked


def test_what_is_alike_is_linked_once_by_the_nearest_cosine() -> None:
    store = GraphStore("+ CONCEPT [C1] ; label=c ; content=y\n+ CONCEPT [C2] ; label=d ; content=y")
    linked = interlink(store, "aba", [[("C1", 0.8), ("GONE", 0.9)], [("C2", 0.75), ("NOTE2", 0.99)], [("C1", 0.9)]], [(0, 1, 0.7), (1, 0, 0.85), (0, 1, 0.6)])
    assert linked.nodes == [("NOTE1", "note", "a", True), ("NOTE2", "note", "b", True)]
    assert linked.edges == [
        ("E1", "NOTE2", "similar_to", "NOTE1", 0.85, True),
        ("E2", "NOTE1", "similar_to", "C1", 0.9, True),
        ("E3", "NOTE2", "similar_to", "C2", 0.75, True),
    ]
    assert store.read("E1") == "E1 [NOTE2] --(similar_to)--> [NOTE1] ; weight=0.85"


def test_of_two_as_near_the_first_is_taken_and_what_is_over_is_not_linked() -> None:
    store = GraphStore("+ CONCEPT [C1] ; label=c ; ttl=5s")
    store.now_ms += 5_000
    linked = interlink(store, "ab", [[("C1", 0.9)], []], [(1, 0, 0.8), (0, 1, 0.8)])
    assert linked.edges == [("E1", "NOTE2", "similar_to", "NOTE1", 0.8, True)]


def test_a_link_that_is_there_is_asserted_whichever_way_it_was_made() -> None:
    store = GraphStore()
    interlink(store, "ab", [[], []], [(0, 1, 0.8)])
    again = interlink(store, "ab", [[], []], [(1, 0, 0.9)])
    assert again.nodes == [("NOTE1", "note", "a", False), ("NOTE2", "note", "b", False)]
    assert again.edges == [("E1", "NOTE1", "similar_to", "NOTE2", 0.9, False)] and rows.count_of(store.graph.edges["E1"]) == 2
    store.mutate("+ [NOTE2] --(similar_to)--> [NOTE1]")
    assert [row[0] for row in interlink(store, "ab", [[], []], [(1, 0, 0.7)]).edges] == ["E2"], "where there are both, the one that was asked for"


# --- pruning ------------------------------------------------------------------------------------------------------


def prune(store: GraphStore, threshold: float = rows.STALE) -> tuple[dict[str, str], int]:
    """Prune. Return (id -> why, edges that stay)."""
    facts, (gone, left) = rows.decide_prune_links(store.graph, store.schema, threshold, store.now_ms)
    assert [row.line for row in gone] == [store.read(row.id) for row in gone], "each as its schema shows it"
    store.append(facts)
    assert not {row.id for row in gone} & {row.id for row in store.graph.rows()}
    return {row.id: row.why for row in gone}, left


def test_a_link_goes_when_it_faded_below_the_threshold_and_says_from_what_to_what() -> None:
    store = GraphStore(f"{THREE}\n+ [A] --(next)--> [B] ; weight=0.5\n+ [B] --(next)--> [C]\n+ [A] --(next)--> [C] ; weight=0.1 ; pinned=true")
    store.now_ms += 20 * DAY_MS
    assert prune(store, 0.5 * math.exp(-1)) == ({}, 3), "below it, not at it"
    assert prune(store, 0.2) == ({"E1": "weight 0.5 faded to 0.184 in 20 days"}, 2)


def test_a_link_whose_time_is_over_is_left_to_housekeeping() -> None:
    store = GraphStore(f"{THREE}\n+ [A] --(next)--> [B] ; weight=0.1 ; ttl=5s\n+ [B] --(next)--> [C] ; weight=0.1")
    store.now_ms += 5_000
    assert prune(store) == ({"E2": "weight 0.1 faded to 0.100 in 0 days"}, 1)


def test_a_memory_without_links_stays_a_week_for_each_assertion() -> None:
    store = GraphStore("+ NOTE [A] ; content=no label\n+ NOTE [G] ; label=g ; group=talk\n+ NOTE [P] ; label=p ; pinned=yes\n+ NOTE [T] ; label=t ; ttl=365d")
    write(store, rows.check_item("note", "once", "x"), rows.check_item("note", "twice", "x"))
    write(store, rows.check_item("note", "twice", "x"))
    store.now_ms += 7 * DAY_MS
    assert prune(store) == ({}, 0)
    store.now_ms += 1
    store.mutate('SCHEMA NOTE ; fields="id content label group pinned"')
    assert prune(store) == ({"NOTE1": "no edges, asserted once, last 7 days ago"}, 0)
    store.now_ms += 7 * DAY_MS - 1
    assert prune(store) == ({}, 0)
    store.now_ms += 1
    assert prune(store) == ({"NOTE2": "no edges, asserted 2 times, last 14 days ago"}, 0)
    assert set(store.graph.nodes) == {"A", "G", "P", "T"}


def test_a_memory_goes_along_with_its_last_faded_link_but_not_while_another_holds_it() -> None:
    store = GraphStore("+ NOTE [A] ; label=a\n+ NOTE [B] ; label=b\n+ NOTE [C] ; label=c\n+ NOTE [D] ; label=d")
    store.mutate(
        "+ [A] --(next)--> [B] ; weight=0.1\n+ [A] --(before)--> [B] ; weight=0.1\n+ [B] --(next)--> [C] ; weight=1\n+ [C] --(next)--> [D] ; pinned=true"
    )
    store.now_ms += 8 * DAY_MS
    why, left = prune(store)
    assert list(why) == ["E1", "E2", "A"] and left == 2 and set(store.graph.nodes) == {"B", "C", "D"}


# --- forgetting ---------------------------------------------------------------------------------------------------


def test_what_is_forgotten_goes_with_its_edges_pinned_or_not_each_once() -> None:
    store = GraphStore(f"{THREE} ; pinned=true\n+ [A] --(next)--> [B]\n+ LAW01 name=x\n+ NOTE [LATE] ; ttl=5s")
    matches: list[Callable[[Row], bool] | None] = [None, lambda row: row.get("pinned") == "true", lambda row: row.id == "A"]
    wanted = [["A", "E1"], ["A", "E1", "C"], ["A", "E1"]]
    for match, ids in zip(matches, wanted, strict=True):
        facts, gone = rows.decide_forget_rows(store.graph, store.schema, ["A", "A", "NONE"], match, store.now_ms)
        assert gone == ids and {fact["id"] for fact in facts} == set(ids)
        assert all(fact["why"] == rows.FORGOTTEN and fact["f"].endswith(".drop") for fact in facts)
    store.now_ms += 5_000
    assert rows.decide_forget_rows(store.graph, store.schema, ["LATE"], None, store.now_ms) == ([], [])


def test_how_often_a_row_was_asserted_is_known_in_a_draft_too() -> None:
    store = GraphStore()
    write(store, rows.check_item("note", "a", "x"))
    write(store, rows.check_item("note", "a", "x"))
    memories = draft(store)
    assert rows.count_of(memories.take(store.graph.nodes["NOTE1"])) == 2
    store.graph.nodes["NOTE1"].extra = {"in": []}
    assert rows.count_of(store.graph.nodes["NOTE1"]) == 1, "what else a row keeps says nothing of it"
    assert rows.count_of(memories.create("NOTE", {})) == 1 and rows.count_of(Work("node", "X", {}, 0, 0)) == 1
    assert rows.label_of(memories.create("NOTE", {"label": "l"})) == "l"
