from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.dialect.format import format_value
from pinfold.errors import DocumentRefused
from pinfold.state.saved import format_saved, is_saved, parse_saved
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore


def text_of(store: GraphStore, *slots: dict[str, str]) -> str:
    return "\n".join(format_saved(store.graph, store.schema, session="demo", seq=store.seq, slots=slots)) + "\n"


@given(st.lists(strategies.documents(), max_size=6), st.lists(strategies.values(), max_size=3), st.sampled_from((None, "ada", "x ; y\n# z")))
@settings(max_examples=40, deadline=None)
def test_a_saved_session_is_loaded_equal(documents: list[str], values: list[str], actor: str | None) -> None:
    store = GraphStore("SCHEMA relations ; names=owns next memberOf\nSCHEMA TSK ; fields=id goal status prio n _k")
    store.append([{"f": "node.put", "id": "kept", "kind": "TSK", "fields": {}, "inputs": ["ü", 1]}])
    for kind in ("T", "T1", "E", "MOD"):
        store.mutate(f"SCHEMA {kind} ; fields=id goal status prio n _k")
    for document in documents:
        try:
            store.mutate(document, actor=actor)
        except DocumentRefused:
            pass
    slots = [{"key": value, "value": value[::-1]} for value in values]
    for value in values:
        store.mutate(f"~ [kept] ; goal={format_value(value)}")
    text = text_of(store, *slots)
    saved = parse_saved(text)
    assert is_saved(text)
    assert (saved.session, saved.seq, saved.slots) == ("demo", store.seq, slots)
    assert saved.graph.dump() == store.graph.dump()
    assert saved.schema.dump() == store.schema.dump()
    assert "\n".join(format_saved(saved.graph, saved.schema, session="demo", seq=store.seq, slots=slots)) + "\n" == text


def test_a_file_that_contradicts_itself_is_refused_with_every_line() -> None:
    text = text_of(GraphStore("+ A [a]\n+ A [b]\n+ [a] --(r)--> [b]"))
    bad = text + "A [a] ; x=1\nE9 [a] --(r)--> [zz]\nE10 [a] --(r)--> [b]\nprose\n"
    with pytest.raises(DocumentRefused) as refused:
        parse_saved(bad)
    assert [p.code for p in refused.value.problems] == ["not_a_record"]
    with pytest.raises(DocumentRefused) as refused:
        parse_saved(bad.replace("prose\n", ""))
    assert [p.code for p in refused.value.problems] == ["id_exists", "no_such_node", "edge_exists"]
    for broken in ("", "hello", text.replace("graph_seq=1", "graph_seq=x"), text.replace("seq=1 ; at_ms", "at_ms")):
        with pytest.raises(DocumentRefused):
            parse_saved(broken)


def test_a_saved_file_with_crlf_loads() -> None:
    store = GraphStore("+ A [a] ; x=1")
    assert parse_saved(text_of(store, {"key": "k", "value": "v"}).replace("\n", "\r\n")).graph.dump() == store.graph.dump()


def test_a_large_slot_is_no_field_of_a_row() -> None:
    store = GraphStore()
    slot = {"key": "k", "value": "x" * 1_000_000}
    assert parse_saved(text_of(store, slot)).slots == [slot]
