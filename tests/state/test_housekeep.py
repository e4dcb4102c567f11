"""What goes by itself and what goes when asked: each bucket by example, with the ms at which a row falls into it."""

from __future__ import annotations

import pytest

from pinfold import limits
from pinfold.state.housekeep import HOUSEKEEPING, ORPHAN_AGE_MS, decide_expire, decide_prune, drop_rows, find_rows
from pinfold.testing.graphs import GraphStore

BORN = GraphStore().now_ms
ROWS = """
+ LAW01 name=x
+ TSK [alone] ; goal=x
+ MOD [odd]
+ TSK [T1] ; goal=x
+ TSK [T2] ; ttl=5s
+ [T1] --(owns)--> [T2] ; ttl=5s
+ TSK [settled] ; recycle=delete_on_settle ; status=open
+ TSK [spent] ; recycle=delete_on_expire ; status=open
+ TSK [kept] ; recycle=persistent ; status=settled
+ TSK [open] ; recycle=delete_on_settle ; status=open
+ [settled] --(owns)--> [spent]
+ [kept] --(owns)--> [open]
"""


def graph_of_all_kinds() -> GraphStore:
    """Rows of every bucket; two that are to go when settled were settled where nothing took them at once."""
    store = GraphStore(ROWS)
    for id in ("settled", "spent"):
        row = store.graph.nodes[id]
        store.append([{"f": "node.put", "id": id, "kind": "TSK", "fields": {**row.fields, "status": "settled"}}])
    return store


def found(store: GraphStore, bucket: str, kind: str | None = None, later_ms: int = 0) -> list[str]:
    return find_rows(store.graph, bucket, kind, BORN + later_ms)


def pruned(store: GraphStore, bucket: str, kind: str | None = None, later_ms: int = 0) -> list[str]:
    facts, ids = decide_prune(store.graph, store.schema, bucket, kind, BORN + later_ms)
    assert sorted(fact["id"] for fact in facts) == sorted(ids) and all(fact["f"].endswith(".drop") for fact in facts)
    return ids


def test_each_bucket_finds_its_rows_and_no_law() -> None:
    store = graph_of_all_kinds()
    assert {bucket: found(store, bucket) for bucket in HOUSEKEEPING} == {
        "expired": [],
        "orphans": ["alone", "odd"],
        "stale": ["alone", "odd"],
        "dangling": [],
        "recyclable": ["settled", "spent"],
    }
    assert found(store, "expired", later_ms=4_999) == []
    assert found(store, "expired", later_ms=5_000) == ["T2", "E1"]
    assert found(store, "stale", later_ms=5_000) == ["alone", "odd", "T2", "E1"]
    assert found(store, "recyclable", later_ms=5_000) == ["T2", "settled", "spent", "E1"]


def test_a_kind_narrows_to_its_nodes() -> None:
    store = graph_of_all_kinds()
    assert found(store, "orphans", "TSK") == ["alone"] and found(store, "orphans", "MOD") == ["odd"]
    assert found(store, "expired", "TSK", 5_000) == ["T2"]  # and not the edge, whose time is over too
    assert pruned(store, "expired", "MOD", 5_000) == []


def test_pruning_takes_what_is_past_its_time_with_its_edges_and_spares_what_is_fresh() -> None:
    store = graph_of_all_kinds()
    assert pruned(store, "stale", later_ms=4_999) == []
    assert pruned(store, "stale", later_ms=5_000) == ["T2", "E1"]
    assert pruned(store, "orphans", later_ms=5_000) == []


def test_an_orphan_goes_only_when_it_is_transient_and_older_than_a_week() -> None:
    store = GraphStore("+ TSK [plain]\n+ TSK [brief] ; recycle=delete_on_settle\n+ TSK [kept] ; recycle=persistent")
    assert pruned(store, "orphans", later_ms=ORPHAN_AGE_MS) == []
    assert pruned(store, "orphans", later_ms=ORPHAN_AGE_MS + 1) == ["brief"]


def test_what_is_settled_and_transient_goes_at_once_when_asked() -> None:
    store = graph_of_all_kinds()
    assert pruned(store, "recyclable") == ["settled", "E2", "spent"]


def test_dropping_names_each_row_once_and_passes_over_what_is_not_there() -> None:
    store = GraphStore("+ A [a]\n+ A [b]\n+ [a] --(r)--> [b]")
    facts, ids = drop_rows(store.graph, store.schema, ["E1", "none", "a", "b", "a"], store.now_ms)
    assert ids == ["E1", "a", "b"]
    store.append(facts)
    assert list(store.graph.rows()) == []


def test_expiry_waits_for_the_ms_and_takes_a_bounded_number_at_a_time() -> None:
    count = limits.HOUSEKEEP_PER_TURN + 1
    store = GraphStore("\n".join(f"+ N [N{at}] ; ttl=5s" for at in range(count)))
    assert decide_expire(store.graph, store.schema, now_ms=BORN + 4_999) == ([], [])
    facts, ids = decide_expire(store.graph, store.schema, now_ms=BORN + 5_000)
    assert len(ids) == limits.HOUSEKEEP_PER_TURN
    store.append(facts)
    assert len(decide_expire(store.graph, store.schema, now_ms=BORN + 5_000)[1]) == 1
    assert decide_expire(GraphStore("+ N [N1]").graph, store.schema, now_ms=2**60) == ([], [])


@pytest.mark.parametrize("bucket", HOUSEKEEPING)
def test_an_empty_graph_has_nothing_to_find(bucket: str) -> None:
    assert found(GraphStore(), bucket) == [] and pruned(GraphStore(), bucket) == []
