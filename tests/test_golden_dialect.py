"""The golden cases of the dialect: each a document, what it answers, and what is there afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pinfold.errors import DocumentRefused
from pinfold.testing.graphs import GraphStore

CASES = [
    json.loads(line) for path in sorted((Path(__file__).parent / "goldens").glob("dialect*.jsonl")) for line in path.read_text("utf-8").split("\n") if line
]


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_golden_case(case: dict[str, Any]) -> None:
    store = GraphStore(*([case["schema"]] if case["schema"] else []), *case["setup"])
    before = store.state()
    expect = case["expect"]
    if expect["ok"]:
        dry = store.decide(case["input"], verb=case["verb"], **case["args"])[1]
        assert store.state() == before
        answer = store.mutate(case["input"], verb=case["verb"], **case["args"])
        assert answer == dry
        assert answer.lines == expect["lines"]
        assert answer.minted == expect["minted"]
        assert answer.dropped == expect["dropped"]
    else:
        with pytest.raises(DocumentRefused) as refused:
            store.mutate(case["input"], verb=case["verb"], **case["args"])
        assert [[p.line, p.code] for p in refused.value.problems] == expect["errors"]
        assert all(p.column >= 1 for p in refused.value.problems)
        assert store.state() == before
    for id, line in expect.get("view", {}).items():
        assert store.read(id) == line
