"""The golden cases of the dialect, each a document, what it answers and what is there afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pinfold.dialect.parse import parse_document
from pinfold.entry import Entry
from pinfold.errors import DocumentRefused
from pinfold.state.graph import APPLY as GRAPH
from pinfold.state.graph import Graph, line_of
from pinfold.state.mutate import Mutated, decide_mutate
from pinfold.state.schema import APPLY as SCHEMA
from pinfold.state.schema import Schema

CASES = [json.loads(line) for line in (Path(__file__).parent / "goldens" / "dialect.jsonl").read_text("utf-8").splitlines()]


class Store:
    """A graph and a schema with their journal, as the engine keeps them, without one."""

    def __init__(self) -> None:
        self.graph, self.schema, self.seq, self.now_ms = Graph(), Schema(), 0, 1_700_000_000_000

    def mutate(self, text: str, **args: Any) -> Mutated:
        facts, answer = decide_mutate(self.graph, self.schema, parse_document(text), now_ms=self.now_ms, **args)
        if facts:
            self.seq += 1
            entry = Entry(self.seq, b"", self.now_ms, None, None, facts)
            for fact in facts:
                if fact["f"] in GRAPH:
                    GRAPH[fact["f"]](self.graph, fact, entry)
                else:
                    SCHEMA[fact["f"]](self.schema, fact, entry)
        return answer

    def read(self, id: str) -> str | None:
        row = self.graph.live(id, self.now_ms)
        return None if row is None else line_of(row, self.schema)


@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_golden_case(case: dict[str, Any]) -> None:
    store = Store()
    for document in [*([case["schema"]] if case["schema"] else []), *case["setup"]]:
        store.mutate(document)
    before = store.graph.dump(), store.schema.dump()
    expect = case["expect"]
    if expect["ok"]:
        answer = store.mutate(case["input"], verb=case["verb"], **case["args"])
        assert answer.lines == expect["lines"]
        assert answer.minted == expect["minted"]
        assert answer.dropped == expect["dropped"]
    else:
        with pytest.raises(DocumentRefused) as refused:
            store.mutate(case["input"], verb=case["verb"], **case["args"])
        assert [[p.line, p.code] for p in refused.value.problems] == expect["errors"]
        assert (store.graph.dump(), store.schema.dump()) == before
    for id, line in expect.get("view", {}).items():
        assert store.read(id) == line
