from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.entry import Entry
from pinfold.errors import DocumentRefused
from pinfold.state.graph import APPLY, HUB_EDGES, Graph, counted_forms, format_time, parse_time
from pinfold.state.schema import Schema
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore


def entry(seq: int, *facts: dict[str, object], actor: str | None = None) -> Entry:
    return Entry(seq, b"", 1_000 * seq, None, actor, list(facts))


def applied(*entries: Entry) -> Graph:
    graph = Graph()
    for e in entries:
        for fact in e.facts:
            APPLY[fact["f"]](graph, fact, e)
    return graph


def check(graph: Graph) -> None:
    """Every index says what the rows say, in the order of the rows."""
    out: dict[str, list[str]] = {}
    into: dict[str, list[str]] = {}
    for edge in graph.edges.values():
        assert edge.src in graph.nodes and edge.dst in graph.nodes
        out.setdefault(edge.src, []).append(edge.id)
        into.setdefault(edge.dst, []).append(edge.id)
        assert graph.edge_between(edge.src, edge.rel, edge.dst) is edge
        assert edge.id in graph.relations[edge.rel]
    assert {id: [e.id for e in graph.edges_out(id)] for id in graph.out} == out
    assert {id: [e.id for e in graph.edges_into(id)] for id in graph.into} == into
    assert sum(map(len, graph.relations.values())) == len(graph.edges)
    assert {id: kind for kind, ids in graph.kinds.items() for id in ids} == {n.id: n.kind for n in graph.nodes.values()}
    assert not (graph.nodes.keys() & graph.edges.keys() or graph.nodes.keys() & graph.laws.keys() or graph.edges.keys() & graph.laws.keys())
    assert all(value for row in graph.rows() for value in row.values)


@given(st.lists(strategies.documents(), max_size=8))
@settings(max_examples=50, deadline=None)
def test_after_any_documents_indexes_agree_snapshots_are_equal_and_replay_gives_the_same(documents: list[str]) -> None:
    store = GraphStore()
    for document in documents:
        before = store.state()
        try:
            dry = store.decide(document)[1]
            assert store.state() == before
            assert store.mutate(document) == dry
        except DocumentRefused:
            assert store.state() == before
        check(store.graph)
    dumped = msgspec.msgpack.decode(msgspec.msgpack.encode(store.graph.dump()))
    loaded = Graph.load(dumped)
    check(loaded)
    assert loaded.dump() == store.graph.dump()
    again = GraphStore()
    for e in store.entries:
        again.apply(e)
    assert again.state() == store.state()
    assert (loaded.expiring, loaded.on_settle, loaded._triples) == (store.graph.expiring, store.graph.on_settle, store.graph._triples) or len(
        loaded.edges
    ) > HUB_EDGES


def test_unknown_keys_of_a_fact_stay_with_the_row_through_patches_and_snapshots() -> None:
    store = GraphStore()
    store.append([{"f": "node.put", "id": "T1", "kind": "TSK", "fields": {"a": "1"}, "inputs": [["src/a.py", 3]]}])
    store.mutate("~ [T1] ; a=2\n~ [T1] ; id=T2")
    node = Graph.load(store.graph.dump()).nodes["T2"]
    assert node.extra == {"inputs": [["src/a.py", 3]]}
    assert (node.fields, node.born) == ({"a": "2"}, 0)


def test_provenance_is_that_of_the_last_write() -> None:
    graph = applied(
        entry(1, {"f": "node.put", "id": "A", "kind": "K", "fields": {}}, {"f": "node.put", "id": "B", "kind": "K", "fields": {}}, actor="ada"),
        entry(2, {"f": "node.put", "id": "B", "kind": "K", "fields": {"x": "1"}}, actor="bob"),
    )
    assert (graph.nodes["A"].mark, graph.nodes["B"].mark, graph.seq) == ((1, 1_000, "ada"), (2, 2_000, "bob"), 2)


def test_apply_is_total() -> None:
    graph = applied(
        entry(1, {"f": "node.drop", "id": "nobody"}, {"f": "edge.drop", "id": "E9"}, {"f": "law.drop", "id": "LAW1"}),
        entry(2, {"f": "edge.put", "id": "E1", "src": "A", "rel": "r", "dst": "B"}),
        entry(3, {"f": "node.put", "id": "A", "kind": "K"}, {"f": "node.put", "id": "A", "kind": "L", "fields": {"x": "1"}}),
    )
    assert graph.kinds == {"L": {"A": None}}
    assert [e.id for e in graph.edges_out("A")] == ["E1"]


def test_a_hub_finds_removes_and_orders_its_edges_like_any_node() -> None:
    store = GraphStore("+ HUB [H]\n" + "\n".join(f"+ N [N{i}]\n+ [H] --(has)--> [N{i}]\n+ [N{i}] --(in)--> [H]" for i in range(60)))
    check(store.graph)
    with pytest.raises(DocumentRefused, match="edge_exists"):
        store.mutate("+ [H] --(has)--> [N7]")
    store.mutate("- N7\n+ N [N7]\n+ [H] --(has)--> [N7]\n~ [N8] ; id=M8")
    check(store.graph)
    assert [e.id for e in store.graph.edges_out("H")][-2:] == ["E121", "E17"]
    assert Graph.load(store.graph.dump()).dump() == store.graph.dump()
    answer = store.mutate("- H")
    assert len(answer.dropped) == 120 and not store.graph.edges and not store.graph._triples


@pytest.mark.parametrize(
    ("id", "forms"),
    [
        ("T12", [("T", 12), ("T1", 2)]),
        ("T102", [("T", 102), ("T10", 2)]),
        ("T012", [("T0", 12), ("T01", 2)]),
        ("T", []),
        ("12", []),
        ("t1", []),
        ("A-1", []),
        ("T1234567890123456", [("T" + "1234567890123456"[:i], int("1234567890123456"[i:])) for i in range(1, 16) if "1234567890123456"[i] != "0"]),
    ],
)
def test_the_forms_an_id_counts_for(id: str, forms: list[tuple[str, int]]) -> None:
    assert sorted(counted_forms(id)) == sorted(forms)


def test_counters_never_go_back() -> None:
    store = GraphStore("+ T [NEW]\n+ T [NEW]", "- T2", "- T1")
    assert store.mutate("+ T [NEW]").minted == {"#1": "T3"}
    store.mutate("+ T [T40]\n+ X [T50]")
    assert store.mutate("+ T [NEW]").minted == {"#1": "T4"}
    store.mutate("- T40\n~ [T50] ; id=other")
    assert store.mutate("+ T [NEW]").minted == {"#1": "T51"}
    copy = Graph.load(store.graph.dump())
    assert copy.counter("T") == 51


def test_a_kind_that_ends_in_a_digit_never_meets_a_dropped_id() -> None:
    store = GraphStore("+ T [T15]", "- T15")
    minted = store.mutate("+ T1 [NEW]").minted["#1"]
    assert minted != "T15" and int(minted[2:]) > 5
    store.mutate(
        "+ T1 [T112]",
    )
    assert store.mutate("- T112\n+ T1 [NEW]").minted == {"#1": "T113"}


def test_expired_rows_are_found_earliest_first_and_only_so_many() -> None:
    store = GraphStore("\n".join(f"+ N [N{i}] ; ttl={100 - i}s" for i in range(20)), "~ [N19] ; ttl=1h\n~ [N18] ; expires=")
    assert store.graph.expired(store.now_ms + 90_000, 3) == ["N17", "N16", "N15"]
    assert store.graph.expired(store.now_ms, 10) == []
    assert Graph.load(store.graph.dump()).expired(store.now_ms + 90_000, 3) == ["N17", "N16", "N15"]


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(0, "1970-01-01T00:00:00Z"), (1_700_000_000_123, "2023-11-14T22:13:20.123Z"), (-62_135_596_800_000, "0001-01-01T00:00:00Z")],
)
def test_times_are_iso_8601_in_utc_and_read_back(at_ms: int, text: str) -> None:
    assert format_time(at_ms) == text
    assert parse_time(text) == at_ms


def test_times_with_offsets_and_dates_alone_are_read() -> None:
    assert parse_time("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    assert parse_time("1970-01-02") == 86_400_000
    assert parse_time("tomorrow") is None


def test_a_copy_is_its_own() -> None:
    store = GraphStore("+ T [A] ; x=1")
    copy = store.graph.copy()
    store.mutate("~ [A] ; x=2")
    assert (copy.nodes["A"].fields, store.graph.nodes["A"].fields) == ({"x": "1"}, {"x": "2"})
    assert Schema.load(store.schema.dump()).dump() == store.schema.dump()
