from __future__ import annotations

import pytest

from pinfold import limits
from pinfold.errors import Refused
from pinfold.recall.walk import neighbors, path, walk
from pinfold.testing.graphs import GraphStore

MAP = "+ N [A]\n+ N [B]\n+ N [C]\n+ N [D]\n+ [A] --(x)--> [B] ; w=1\n+ [B] --(x)--> [C] ; w=1\n"
MAP += "+ [C] --(y)--> [D] ; w=1\n+ [A] --(z)--> [D] ; w=10\n+ [D] --(x)--> [A]"
NOW = 1_700_000_000_000


def test_a_walk_follows_each_hop_by_what_it_leads_to() -> None:
    got = walk(GraphStore("+ N [A]\n+ N [B]\n+ N [C]\n+ N [D]\n+ [A] --(x)--> [B]\n+ [B] --(x)--> [C]\n+ [A] --(x)--> [D]").graph, "A", now_ms=NOW)
    assert [(h.depth, h.edge, h.backward) for h in got.hops] == [(1, "E3", False), (1, "E1", False), (2, "E2", False)]
    assert got.text.split("\n")[:3] == ["E3 [A] --(x)--> [D]", "E1 [A] --(x)--> [B]", "E2 [B] --(x)--> [C]"]
    assert got.clipped == ""


def test_a_walk_declares_its_clips() -> None:
    graph = GraphStore(MAP).graph
    assert walk(graph, "A", depth=1, direction="out", now_ms=NOW).clipped == "depth"
    got = walk(graph, "A", max_rows=2, now_ms=NOW)
    assert (len(got.hops), got.clipped) == (2, "max_rows")
    assert "clipped=max_rows" in got.text


def test_a_walk_over_a_hub_and_along_a_chain_is_bounded() -> None:
    star = GraphStore("+ H [H]\n" + "\n".join(f"+ N [N{i}]\n+ [H] --(x)--> [N{i}]" for i in range(600)))
    got = walk(star.graph, "H", max_rows=1_000, now_ms=NOW)
    assert (len(got.hops), got.clipped) == (limits.WALK_FANOUT, "fanout")
    chain = GraphStore("\n".join(f"+ N [N{i}]" for i in range(1500)), "\n".join(f"+ [N{i}] --(x)--> [N{i + 1}]" for i in range(1499)))
    assert len(walk(chain.graph, "N0", depth=2_000, max_rows=5_000, now_ms=NOW).hops) == 1499


def test_relations_and_direction_narrow_a_walk() -> None:
    graph = GraphStore(MAP).graph
    assert {h.edge for h in walk(graph, "A", direction="in", depth=1, now_ms=NOW).hops} == {"E5"}
    assert {h.edge for h in walk(graph, "A", relations=["x"], depth=9, now_ms=NOW).hops} == {"E1", "E2", "E5"}
    with pytest.raises(Refused, match="bad_argument"):
        walk(graph, "A", direction="up", now_ms=NOW)
    with pytest.raises(Refused, match="bad_argument"):
        walk(graph, "A", depth=-1, now_ms=NOW)


def test_a_number_of_rows_is_what_it_says_and_never_negative() -> None:
    graph = GraphStore(MAP).graph
    got = walk(graph, "A", max_rows=0, now_ms=NOW)
    assert (got.hops, got.clipped) == ([], "max_rows")
    for read in (walk, neighbors):
        with pytest.raises(Refused) as refused:
            read(graph, "A", max_rows=-1, now_ms=NOW)
        assert refused.value.code == "bad_argument" and "max_rows=-1" in refused.value.message


def test_hidden_rows_are_not_walked_through() -> None:
    store = GraphStore(MAP, "~ [B] ; ttl=1s")
    assert {h.edge for h in walk(store.graph, "A", now_ms=NOW + 5_000, depth=9).hops} == {"E3", "E4", "E5"}


def test_neighbors_stand_nearest_first() -> None:
    got = neighbors(GraphStore(MAP).graph, "A", depth=2, direction="out", now_ms=NOW)
    assert got.nodes == [(1, "D"), (1, "B"), (2, "C")]
    assert got.text.startswith("## Nodes\nN [D]\nN [B]\nN [C]\n## Edges\n")
    assert neighbors(GraphStore(MAP).graph, "A", now_ms=NOW, with_anchor=True).text.startswith("## Nodes\nN [A]\n")


def test_paths_are_shortest_by_hops_or_by_weight() -> None:
    graph = GraphStore(MAP).graph
    assert path(graph, "A", "D", now_ms=NOW).edges == ["E4"]
    got = path(graph, "A", "D", weight="w", now_ms=NOW)
    assert (got.nodes, got.edges, got.cost) == (["A", "B", "C", "D"], ["E1", "E2", "E3"], 3.0)
    assert path(graph, "C", "B", now_ms=NOW).nodes == ["C", "D", "A", "B"]
    assert path(graph, "C", "B", direction="both", now_ms=NOW).nodes == ["C", "B"]
    assert path(graph, "A", "A", now_ms=NOW).nodes == ["A"]


def test_no_path_is_a_value_and_a_bad_weight_a_refusal() -> None:
    store = GraphStore(MAP, "+ N [X]")
    got = path(store.graph, "A", "X", now_ms=NOW)
    assert (got.nodes, got.complete) == ([], True)
    assert got.text.split("\n")[0] == "# pinfold: no path from A to X along the arrows"
    told = path(store.graph, "A", "X", direction="both", relations=["y", "x"], now_ms=NOW).text
    assert told.split("\n")[0] == "# pinfold: no path from A to X either way over x, y"
    store.mutate("~ E1 ; w=-1")
    with pytest.raises(Refused) as refused:
        path(store.graph, "A", "C", weight="w", now_ms=NOW)
    assert (refused.value.code, refused.value.id) == ("bad_weight", "E1")


def test_a_path_past_the_fanout_of_a_hub_is_found() -> None:
    store = GraphStore("+ H [H]\n+ N [N0]\n+ [H] --(x)--> [N0]\n" + "\n".join(f"+ M [M{i}]\n+ [H] --(x)--> [M{i}]" for i in range(600)))
    assert path(store.graph, "H", "N0", now_ms=NOW).edges == ["E1"]
