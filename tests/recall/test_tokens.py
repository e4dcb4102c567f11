"""The estimate beside o200k. The fixture holds maps of our own with their counts, so that no tokeniser is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pinfold.recall.tokens import estimate, line_tokens

MAPS = [json.loads(line) for line in (Path(__file__).parent.parent / "goldens" / "token_maps.jsonl").read_text("utf-8").split("\n") if line]


@pytest.mark.parametrize("case", MAPS, ids=[m["id"] for m in MAPS])
def test_a_map_is_never_estimated_more_than_a_twentieth_under(case: dict[str, object]) -> None:
    text = "\n".join(case["lines"])  # type: ignore[arg-type]
    assert int(case["o200k"]) >= 200  # type: ignore[call-overload]
    assert estimate(text) / case["o200k"] >= 0.95  # type: ignore[operator]


def test_on_average_maps_are_estimated_at_most_15_percent_over() -> None:
    ratios = [estimate("\n".join(m["lines"])) / m["o200k"] for m in MAPS]
    assert sum(ratios) / len(ratios) <= 1.15


def test_counts_of_the_fixture_are_those_of_the_tokeniser() -> None:
    bpe = pytest.importorskip("bpe_openai")
    encoding = bpe.get_encoding("o200k_base")
    assert [len(encoding.encode("\n".join(m["lines"]))) for m in MAPS] == [m["o200k"] for m in MAPS]


def test_lines_add_up_to_the_text() -> None:
    for case in MAPS:
        text = "\n".join(case["lines"])
        assert abs(sum(map(line_tokens, case["lines"])) - line_tokens("") - estimate(text)) <= 3
