"""The honest miss: what the store does not hold is called low, what it does is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.recall.confidence import bar, is_unspaced
from pinfold.recall.document import Document
from pinfold.recall.english import rarity
from pinfold.recall.index import open_index

NOTES = [
    "The staging database was moved to port 6543 on Tuesday.",
    "Priya prefers tabs over spaces in Makefiles.",
    "The nightly backup runs at half past two.",
    "Ticket 4411: login fails behind the proxy.",
    "The cat of the office is called Mortimer.",
    "We agreed to drop support for Python 3.9 in May.",
    "The release checklist lives in docs/release.md.",
    "Rate limits are 600 requests a minute per key.",
    "The designer asked for a darker shade of teal.",
    "Invoices go to accounts@example.org.",
    "Staging certificates expire in November.",
    "Luis will present the quarterly numbers.",
]
STORE = open_index([Document(f"n{n}", text) for n, text in enumerate(NOTES)])


STORED = ["Which port is the staging database on?", "What is the office cat called?", "when does the nightly backup run", "rate limits"]


@pytest.mark.parametrize("query", STORED)
def test_what_is_stored_is_answered_with_confidence(query: str) -> None:
    answer = STORE.search(query)
    assert not answer.miss and answer.confidence >= 0.5


@pytest.mark.parametrize("query", ["Who won the 1998 chess olympiad?", "recipe for sourdough rye bread", "Kubernetes ingress annotations", "zxqv"])
def test_what_is_not_stored_is_a_miss_though_hits_may_come(query: str) -> None:
    answer = STORE.search(query)
    assert answer.miss and answer.low and answer.confidence < 0.5


def test_confidence_is_the_same_with_and_without_an_embedding() -> None:
    plain = open_index([Document(f"n{n}", text) for n, text in enumerate(NOTES)], "none")
    for query in ("staging database port", "chess olympiad", "cat"):
        assert plain.search(query).confidence == STORE.search(query).confidence


def test_no_hit_is_surer_than_its_answer() -> None:
    for query in ("staging database port", "Luis numbers in May", "office"):
        answer = STORE.search(query)
        assert all(hit.confidence <= answer.confidence + 1e-9 or "exact" in hit.why for hit in answer.hits[:1])


def test_a_missing_name_says_more_than_a_missing_common_word() -> None:
    assert rarity("kyoto") >= rarity("recommend") > rarity("time")
    assert rarity("zxqv") == rarity("层") == 1.0


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_the_bar_never_falls_as_a_store_grows(a: int, b: int) -> None:
    assert bar(min(a, b)) <= bar(max(a, b))


def test_a_third_of_ideographs_makes_a_query_unspaced() -> None:
    assert is_unspaced("上司 ok") and not is_unspaced("what does 好 mean in English")
