"""Cosine scans: exact, immediate about deletes, ties by id."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.recall.vectors import STORAGES, VectorStore, sketch_kept, top_slots, unit

ROWS = np.random.default_rng(7).normal(size=(300, 64)).astype(np.float32)
IDS = [f"n{slot:03d}" for slot in range(300)]


@pytest.mark.parametrize(("storage", "close"), [("float32", 1e-6), ("float16", 2e-3), ("int8", 1e-2)])
def test_every_storage_scans_to_the_true_cosine(storage: str, close: float) -> None:
    store = VectorStore(64, storage)
    store.put(range(300), ROWS * 5)
    query = ROWS[17] + ROWS[18]
    truth = unit(ROWS) @ unit(query)
    assert store.cosines(store.asked(query), 300) == pytest.approx(truth, abs=close)
    assert store.cosines_at(store.asked(query), np.array([3, 200])) == pytest.approx(truth[[3, 200]], abs=close)
    assert store.mean_cosine(store.asked(query)) == pytest.approx(truth.mean(), abs=close)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_dropped_vector_is_gone_at_once(storage: str) -> None:
    store = VectorStore(64, storage)
    store.put(range(300), ROWS)
    assert store.top_k(ROWS[5], 1, IDS)[0][0] == "n005"
    store.drop([5, 5, 4000])
    assert len(store) == 299 and store.get(5) is None
    assert "n005" not in [id for id, _ in store.top_k(ROWS[5], 300, IDS)]
    assert len(store.top_k(ROWS[5], 300, IDS)) == 299


def test_equal_vectors_come_in_the_order_of_their_ids() -> None:
    store = VectorStore(8)
    store.put([0, 1, 2, 3], np.ones((4, 8)))
    assert [id for id, _ in store.top_k(np.ones(8, dtype=np.float32), 3, ["d", "b", "c", "a"])] == ["a", "b", "c"]


def test_a_mask_leaves_k_answers_when_k_exist() -> None:
    store = VectorStore(64)
    store.put(range(300), ROWS)
    mask = np.zeros(300, dtype=bool)
    mask[[7, 9, 250]] = True
    assert {id for id, _ in store.top_k(ROWS[0], 3, IDS, mask)} == {"n007", "n009", "n250"}


def test_vectors_without_length_or_with_nan_count_as_none() -> None:
    store = VectorStore(4)
    store.put([0, 1], np.array([[0, 0, 0, 0], [np.nan, np.inf, 0, 0]]))
    assert len(store) == 0 and store.mean_cosine(store.asked(np.ones(4, dtype=np.float32))) == 0.0


def test_a_wrong_shape_is_refused_before_anything_is_stored() -> None:
    store = VectorStore(4)
    with pytest.raises(ValueError, match="need float"):
        store.put([0, 1], np.ones((2, 3)))
    with pytest.raises(ValueError, match="storage"):
        VectorStore(4, "float8")
    assert len(store) == 0


def test_the_sketch_keeps_the_true_nearest() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4000, 256)).astype(np.float32)
    store = VectorStore(256)
    store.put(range(4000), rows)
    found = 0
    for pick in range(40):
        query = rows[pick] + rng.normal(size=256).astype(np.float32)
        truth = set(np.argsort(-(unit(rows) @ unit(query)))[:10].tolist())
        found += len(truth & set(store.near(store.asked(query), 4000, sketch_kept(4000)).tolist()))
    assert found >= 0.97 * 400


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40))
def test_mean_and_count_follow_any_changes(steps: list[tuple[int, bool]]) -> None:
    store, live = VectorStore(64), set[int]()
    for slot, put in steps:
        if put:
            store.put([slot], ROWS[slot : slot + 1])
            live.add(slot)
        else:
            store.drop([slot])
            live.discard(slot)
    fresh = VectorStore(64)
    if live:
        fresh.put(sorted(live), ROWS[sorted(live)])
    assert len(store) == len(live)
    assert store.mean_cosine(store.asked(ROWS[1])) == pytest.approx(fresh.mean_cosine(fresh.asked(ROWS[1])), abs=1e-9)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=40), st.integers(0, 12))
def test_top_slots_is_a_full_sort_by_score_then_id(scores: list[float], k: int) -> None:
    ids = [f"{(slot * 7) % 41:02d}" for slot in range(len(scores))]
    expected = sorted((slot for slot in range(len(scores)) if scores[slot] > 0), key=lambda slot: (-scores[slot], ids[slot]))[:k]
    assert top_slots(np.array(scores), k, ids, floor=0.0) == expected
