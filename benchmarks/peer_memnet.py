"""Runs inside MemNet's environment (0.3.2): what it shares with pinfold's graph, through its own mutate gate and composer."""

from __future__ import annotations

import os
import time
from typing import Any

from memnet.mutate_gate import MutateGate
from memnet.pin_map_composer import PinMapComposer
from memnet.session import close_session, open_session
from memnet.snapshot import load_snapshot, write_snapshot
from memnet.walk_query import WalkQuery

from benchmarks import harness
from benchmarks.peers import serve

for _cap in ("ROWS", "LAW", "RELATIONS", "TAGS", "FIELDS", "BATCH_LINES"):  # read when a session is opened
    os.environ[f"MEMNET_MAX_{_cap}"] = "100000000"

_clock = harness.per_call_clock
_open: dict[str, Any] = {}


def begin(name: str, kinds: dict[str, list[str]]) -> int:
    """Open a session with these kinds and fields. MemNet knows no others."""
    _open[name] = open_session(map_lines=[f"@{kind}: {'|'.join(['id', *fields, 'recycle'])}" for kind, fields in kinds.items()])
    return 0


def mutate(name: str, documents: list[str], mode: str) -> float:
    """Apply documents and return the seconds it took."""
    gate = MutateGate(_open[name])
    batches = [document.split("\n") for document in documents]
    began = _clock()
    for lines in batches:
        gate.apply(lines, mode=mode, allow_new_relation=True)
    return _clock() - began


def patch(name: str, lines: list[str]) -> float:
    """Return microseconds per one-line update."""
    gate = MutateGate(_open[name])
    return harness.us_per_item(lambda line: gate.apply([line], mode="update"), lines)


def show(name: str, anchor: str, depth: int, max_rows: int) -> str:
    text: str = PinMapComposer(_open[name]).compose(anchor=anchor, depth=depth, max_rows=max_rows)[1]
    return text


def pin_map(name: str, anchors: list[str], depth: int, max_rows: int) -> float:
    """Return the median milliseconds of a pin map."""
    composer = PinMapComposer(_open[name])
    return harness.median_ms(lambda anchor: composer.compose(anchor=anchor, depth=depth, max_rows=max_rows), anchors)


def walk(name: str, anchors: list[str], depth: int, max_rows: int) -> float:
    """Return the median milliseconds of a walk."""
    query = WalkQuery(_open[name])
    return harness.median_ms(lambda anchor: query.hops(anchor=anchor, depth=depth, max_rows=max_rows), anchors)


def hops(name: str, anchor: str, depth: int, max_rows: int) -> int:
    """Return how many hops a walk finds."""
    return len(WalkQuery(_open[name]).hops(anchor=anchor, depth=depth, max_rows=max_rows))


def save(name: str, path: str) -> float:
    began = time.perf_counter()
    write_snapshot(_open[name], path)
    return time.perf_counter() - began


def load(name: str, path: str) -> float:
    began = _clock()
    _open[name] = load_snapshot(path)
    return _clock() - began


def counts(name: str) -> dict[str, int]:
    records = list(_open[name].store.by_id.values())
    edges = sum(record.tag == "EDG" for record in records)
    return {"nodes": len(records) - edges, "edges": edges}


def rss_kib() -> int:
    return harness.rss_kib()


def forget(name: str) -> int:
    close_session(_open.pop(name).meta.session_id)
    return 0


if __name__ == "__main__":
    serve({f.__name__: f for f in (begin, mutate, patch, show, pin_map, walk, hops, save, load, counts, rss_kib, forget)})
