"""Runs inside MemNet's newest environment: the same graph, written in the statements that it takes now, which name nodes by content."""

from __future__ import annotations

import os
import time
from typing import Any

from memnet.mutate_gate import MutateGate
from memnet.pin_map_composer import PinMapComposer
from memnet.session import open_session

from benchmarks import harness
from benchmarks.peers import serve

for _cap in ("ROWS", "LAW", "RELATIONS", "TAGS", "FIELDS", "BATCH_LINES"):
    os.environ[f"MEMNET_MAX_{_cap}"] = "100000000"

_open: dict[str, Any] = {}
_hidden: dict[str, list[str]] = {}


def write(name: str, kinds: dict[str, list[str]], nodes: list[dict[str, str]], edges: list[list[int]], kind: str, relation: str) -> list[float]:
    """Make a session, create nodes in one batch and edges in another, between places in the list; return the seconds of both."""
    session = _open[name] = open_session(map_lines=[f"@{kind}: {'|'.join(['id', *fields, 'recycle'])}" for kind, fields in kinds.items()])
    gate = MutateGate(session)

    def pattern(fields: dict[str, str]) -> str:
        return ", ".join(f"{key}: '{value}'" for key, value in fields.items())

    key = next(iter(nodes[0]))
    creates = [f"CREATE (:{kind} {{{pattern(fields)}}})" for fields in nodes]
    links = [f"MATCH (a:{kind} {{{key}: '{nodes[a][key]}'}}),(b:{kind} {{{key}: '{nodes[b][key]}'}}) CREATE (a)-[:{relation}]->(b)" for a, b in edges]
    took = []
    for lines in (creates, links):
        began = time.perf_counter()
        done = gate.apply(lines, mode="mutate", allow_new_relation=True)
        took.append(time.perf_counter() - began)
        if lines is creates:
            _hidden[name] = [record.hid for record in done.records]
    return took


def show(name: str, node: int, depth: int, max_rows: int) -> str:
    """Return the pin map around a node, by its place in the list."""
    text: str = PinMapComposer(_open[name]).compose(anchor=_hidden[name][node], depth=depth, max_rows=max_rows)[1]
    return text


def pin_map(name: str, nodes: list[int], depth: int, max_rows: int) -> float:
    """Return the median milliseconds of a pin map."""
    composer = PinMapComposer(_open[name])
    return harness.median_ms(lambda node: composer.compose(anchor=_hidden[name][node], depth=depth, max_rows=max_rows), nodes)


if __name__ == "__main__":
    serve({f.__name__: f for f in (write, show, pin_map)})
