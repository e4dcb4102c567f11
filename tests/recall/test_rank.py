"""The parts of the ranker, each alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.recall import rank
from pinfold.recall.analyse import analyse
from pinfold.recall.document import Document
from pinfold.recall.lexical import LexicalIndex

SCORES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=12).map(lambda values: np.array(values))


def test_lanes_are_scaled_by_their_best_and_an_empty_lane_stays_empty() -> None:
    lanes = {"a": np.array([2.0, 4.0]), "b": np.array([3.0, 0.0]), "c": np.zeros(2)}
    shares = rank.shares(lanes, {"a": 1.0, "b": 0.5, "c": 9.0})
    assert set(shares) == {"a", "b"} and rank.fuse(lanes, shares).tolist() == [1.0, 1.0]


def test_meaning_counts_above_the_mean_of_the_store_only() -> None:
    assert rank.centred(np.array([0.5, 0.2, 0.3 + 1e-12]), 0.3) == pytest.approx([0.2, 0.0, 0.0])


def test_neighbours_share_two_turns_either_way_and_a_question_hands_on_more() -> None:
    before, after = np.array([-1, 0, 1, 2, -1], dtype=np.int32), np.array([1, 2, 3, -1, -1], dtype=np.int32)

    def gain(first: float, last: float, asking: bool, slots: list[int]) -> list[float]:
        asks = np.array([asking, False, False, False, False])
        return rank.spread_neighbours(np.array([first, 0, 0, last, 0]), before, after, asks, np.array(slots), 0.35, 2.0).tolist()

    assert gain(1.0, 0.0, False, [0, 1, 2, 3]) == pytest.approx([0.0, 0.35, 0.1225, 0.0])
    assert gain(1.0, 0.0, True, [1]) == pytest.approx([0.7])
    assert gain(0.0, 1.0, False, [1, 2, 3]) == pytest.approx([0.1225, 0.35, 0])


def test_a_short_question_asks_and_a_long_or_answered_one_does_not() -> None:
    asking = {text: rank.asks(Document("d", text)) for text in ("So, where is it?", "去哪里？", "Where is it? Here.", "x " * 200 + "?", "Here.")}
    assert list(asking.values()) == [True, True, False, False, False]
    assert not rank.asks(Document("d", "Where is it?", name="n" * 150))


def test_group_scores_are_bm25_of_the_joined_members() -> None:
    index = LexicalIndex()
    for slot, text in enumerate(["amber birch", "amber", "cedar", "amber"]):
        index.add([slot], [text])
    hit = index.word_lane.gather(analyse("amber").words)
    per_group = rank.group_scores(hit, np.array([0, 0, 1, -1, -1], dtype=np.int32), np.array([3.0, 1.0]))
    assert per_group[0] > 0 and per_group[1] == 0
    whole = LexicalIndex()
    whole.add([0], ["amber birch amber"])
    whole.add([1], ["cedar"])
    assert per_group == pytest.approx(whole.bm25(analyse("amber").words))


def test_the_equaliser_gives_free_standing_texts_the_mean_gain() -> None:
    group_of = np.array([0, 0, -1], dtype=np.int32)
    assert rank.equaliser(np.array([1.0, 1.0, 1.0]), np.array([2.0, 4.0, 1.0]), group_of, 50) == pytest.approx(3.0)
    assert rank.equaliser(np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([0, 0], dtype=np.int32), 50) == 1.0
    assert rank.equaliser(np.array([0.0, 1.0]), np.array([1.0, 1.0]), np.array([0, -1], dtype=np.int32), 50) == 1.0


def test_names_are_found_longest_and_shortest_and_leave_no_trace() -> None:
    names = rank.NameBook()
    for slot, name in enumerate(["Port Ellery", "Ellery", "Ada (poet)", "The", "Port Ellery"]):
        names.add(name, slot)
    assert names.names_in("They left port ellery for the sea with Ada") == [("port", "ellery"), ("ellery",)]
    assert names.slots_of(("port", "ellery")) == {0, 4}
    for slot, name in enumerate(["Port Ellery", "Ellery", "Ada (poet)", "The", "Port Ellery"]):
        names.remove(name, slot)
    assert len(names) == 0 and names.names_in("port ellery") == []


def test_a_name_mentioned_everywhere_gives_less() -> None:
    names = rank.NameBook()
    names.add("Harbour", 1)
    names.add("Lighthouse", 2)
    reached = rank.spread_mentions([(0, 1.0)], lambda slot: "harbour lighthouse", names, lambda name: {"harbour": 100}.get(name[0], 1))
    assert reached == {1: pytest.approx(0.1), 2: 1.0}


class Graph:
    def __init__(self, edges: list[tuple[str, str, float]]) -> None:
        self.edges, self.asked = edges, 0

    def degree(self, node: str) -> int:
        return sum(node in (a, b) for a, b, _ in self.edges)

    def neighbours(self, node: str) -> Iterable[tuple[str, float]]:
        for a, b, weight in self.edges:
            if node in (a, b):
                self.asked += 1
                yield (b if node == a else a), weight


def test_activation_follows_edge_weights_and_fades_with_distance() -> None:
    out, _ = rank.spread_edges([("s", 1.0)], Graph([("s", "a", 1.0), ("s", "b", 0.5), ("a", "c", 1.0)]))
    assert out["a"] > out["b"] > 0 and out["a"] > out["c"] > 0
    assert out["a"] == pytest.approx(1 / math.sqrt(2)) and "s" not in out


def test_a_hub_is_worth_little_and_cannot_cost_more_than_the_budget() -> None:
    star = [("hub", f"leaf{n}", 1.0) for n in range(10_000)]

    class Star(Graph):
        def degree(self, node: str) -> int:
            return 10_000 if node == "hub" else 2 if node == "leaf1" else 1

    graph = Star([("leaf1", "friend", 1.0), *star])
    out, looked = rank.spread_edges([("leaf1", 1.0)], graph)
    assert out["friend"] > 50 * out["hub"] and looked <= rank.EDGE_BUDGET
    graph.asked = 0
    _, looked = rank.spread_edges([("hub", 1.0)], graph)
    assert looked <= rank.EDGES_PER_NODE * 2 + 1 and graph.asked <= rank.EDGES_PER_NODE * 3


def test_odd_edge_weights_are_clamped() -> None:
    out, _ = rank.spread_edges([("s", 1.0)], Graph([("s", "a", 7.0), ("s", "b", -1.0), ("s", "s", 1.0)]))
    assert out == {"a": 1.0}


@given(SCORES, st.dictionaries(st.integers(0, 11), st.floats(0, 5), max_size=6), st.floats(0, 3))
def test_spreading_never_overtakes_the_best_and_never_takes_away(scores: np.ndarray, reached: dict[int, float], weight: float) -> None:
    reached = {slot: amount for slot, amount in reached.items() if slot < len(scores)}
    before = scores.copy()
    out = rank.add_spread(scores, [(weight, reached)])
    assert scores.tolist() == before.tolist()
    assert (out >= scores).all()
    if scores.max() > 0:
        assert out.max() in out[scores == scores.max()]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_decay_stays_between_its_floor_and_one_and_falls_with_age(ages: list[float]) -> None:
    factors = rank.decay_factors(np.array(sorted(ages)), 0.05, 0.8)
    assert ((factors >= 0.8) & (factors <= 1.0)).all()
    assert (np.diff(factors) <= 0).all()
