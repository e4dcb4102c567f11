from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.dialect.delta import diff, format_delta
from pinfold.dialect.parse import parse_document
from pinfold.errors import DocumentRefused
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore, diff_rows


def grown(documents: list[str]) -> GraphStore:
    store = GraphStore()
    for document in documents:
        try:
            store.mutate(document)
        except DocumentRefused:
            pass
    return store


@given(st.lists(strategies.documents(), max_size=6), st.lists(strategies.documents(), max_size=6))
@settings(max_examples=45, deadline=None)
def test_applying_a_diff_gives_the_other_graph(first: list[str], second: list[str]) -> None:
    a, b = grown(first), grown(first[:3] + second)
    lines = diff(diff_rows(a.graph), diff_rows(b.graph))
    a.mutate("\n".join(lines))
    assert a.content() == b.content()
    assert diff(diff_rows(a.graph), diff_rows(b.graph)) == []


@given(strategies.fields(), strategies.fields())
@settings(max_examples=45, deadline=None)
def test_a_diff_carries_any_value(old: dict[str, str], new: dict[str, str]) -> None:
    base = "+ TSK [A]\n+ TSK [B]\n+ E1 [A] --(owns)--> [B]\nLAW01"
    a, b = GraphStore(base), GraphStore(base)
    for store, fields in ((a, old), (b, new)):
        rows = [type(row)(row.form, row.id, fields, row.kind, row.src, row.rel, row.dst) for row in diff_rows(store.graph)]
        store.mutate("\n".join(diff(diff_rows(store.graph), rows)))
    a.mutate("\n".join(diff(diff_rows(a.graph), diff_rows(b.graph))))
    assert a.content() == b.content()


def test_nothing_in_a_delta_is_an_op() -> None:
    lines = format_delta(["TSK [T1] ; goal=x", "E1 [T1] --(owns)--> [M1]"], ["T4", "E7"])
    assert lines == ["## Changed", "TSK [T1] ; goal=x", "E1 [T1] --(owns)--> [M1]", "# pinfold: gone T4 E7"]
    assert all(op.op == "" for op in parse_document("\n".join(lines)).ops)
