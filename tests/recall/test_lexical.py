"""Postings and lanes: an index that changed answers as one built afresh."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.recall import lexical
from pinfold.recall.analyse import analyse
from pinfold.recall.lexical import K1, B, LexicalIndex, idf_of, step

WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "islet"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def build(texts: dict[int, str]) -> LexicalIndex:
    index = LexicalIndex()
    for slot in sorted(texts):
        index.add([slot], [texts[slot]])
    return index


def test_bm25_is_the_textbook_formula() -> None:
    texts = {0: "amber amber birch", 1: "birch cedar", 2: "delta"}
    index = build(texts)
    average = 6 / 3
    for slot, text in texts.items():
        counts = Counter(analyse(text).words)
        expected = sum(
            idf_of(sum(analyse(q).words[0] in analyse(t).words for t in texts.values()), 3)
            * counts[analyse(q).words[0]]
            * (K1 + 1)
            / (counts[analyse(q).words[0]] + K1 * (1 - B + B * len(text.split()) / average))
            for q in ("amber", "birch")
        )
        assert index.bm25(analyse("amber birch amber").words)[slot] == pytest.approx(expected)


def test_the_gram_lane_is_a_cosine_but_for_the_query_length() -> None:
    index = build({0: "amber birch", 1: "birch cedar", 2: "heron"})
    asked = analyse("amber birch").grams
    cosine = index.gram_cosine(asked) / index.gram_norm_of(asked)
    assert cosine[0] == pytest.approx(1.0, abs=1e-3)
    assert 0 < cosine[1] < 1 and cosine[2] == 0


def test_idf_is_the_usual_one_rewritten() -> None:
    assert idf_of(3, 10) == pytest.approx(math.log(1 + (10 - 3 + 0.5) / (3 + 0.5)))


def test_nothing_found_is_zero_everywhere() -> None:
    index = build({0: "amber"})
    assert not index.bm25(["zebra"]).any() and not index.gram_cosine(["zebr"]).any()
    assert LexicalIndex().bm25(["amber"]).tolist() == [0.0]


def test_removing_what_was_never_there_is_refused() -> None:
    index = build({0: "amber", 1: "birch"})
    with pytest.raises((KeyError, ValueError)):
        index.remove(1, "amber")


@given(st.integers(1, 10**9))
def test_a_step_is_never_above_and_at_most_an_eighth_below(df: int) -> None:
    below = int(step(np.array([df]))[0])
    assert below <= df < below * 1.125 + 1


def answers(index: LexicalIndex, slots: list[int]) -> list[float]:
    asked = analyse("amber cedar ember islet")
    return [*index.bm25(asked.words)[slots], *index.gram_cosine(asked.grams)[slots]]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "ask"]), st.integers(0, 12), TEXTS), max_size=40))
def test_after_any_changes_the_index_answers_as_a_fresh_one(steps: list[tuple[str, int, str]]) -> None:
    index, live = LexicalIndex(), dict[int, str]()
    for what, slot, text in steps:
        if what == "ask":
            index.gram_norms()
        elif what == "drop":
            if slot in live:
                index.remove(slot, live.pop(slot))
        elif slot in live:
            index.remove(slot, live[slot])
            index.add([slot], [text])
            live[slot] = text
        else:
            index.add([slot], [text])
            live[slot] = text
    slots = sorted(live)
    assert answers(index, slots) == answers(build(live), slots)  # exactly: the sums are integers


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, max_size=48), st.sets(st.integers(0, 40)), st.booleans())
def test_adding_many_is_adding_one_by_one(texts: list[str], holes: set[int], asked_before: bool) -> None:
    slots = [slot for slot in range(200) if slot not in holes][: len(texts)]
    both = []
    for bulk in (True, False):
        index = build(dict.fromkeys(holes, "amber grove"))
        if asked_before:
            index.gram_norms()
        if bulk:
            index.add(slots, texts)
        else:
            for slot, text in zip(slots, texts, strict=True):
                index.add([slot], [text])
        both.append(answers(index, slots))
    assert both[0] == both[1]


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=20), st.sets(st.integers(0, 19)))
def test_an_index_read_back_without_some_slots_is_the_index_of_the_rest(texts: list[str], gone: set[int]) -> None:
    index = build(dict(enumerate(texts)))
    keep = np.array([slot not in gone for slot in range(len(texts))])
    header, buffers = index.to_parts()
    again = LexicalIndex.from_parts(header, [memoryview(buffer) for buffer in buffers], keep)
    rest = {slot: text for slot, text in enumerate(texts) if slot not in gone}
    assert answers(again, sorted(rest)) == answers(build(rest), sorted(rest))
    for slot, text in rest.items():
        again.remove(slot, text)
    assert again.live == 0 and not again.word_lane.kept().size and not again.gram_lane.kept().size


def test_terms_that_nothing_holds_any_more_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexical, "DEAD_TERMS_MIN", 20)
    index = build({0: "amber birch cedar"})
    for number in range(200):
        index.add([1], [f"passing{number} amber"])
        index.remove(1, f"passing{number} amber")
    assert len(index.word_lane.numbers) < 50 and len(index.gram_lane.numbers) < 100
    index.add([1], ["cedar delta"])
    assert answers(index, [0, 1]) == answers(build({0: "amber birch cedar", 1: "cedar delta"}), [0, 1])
