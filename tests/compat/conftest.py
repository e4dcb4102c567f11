"""A store of PMLL's graphs for each test, in RAM, with a clock that a test may move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pinfold import Memory
from pinfold.compat import pmll_graph
from pinfold.journal.memory import MemoryJournal

DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def pass_days(self, days: float) -> None:
        self.now_ms += round(days * DAY_MS)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def graphs(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    memory = Memory(journal=MemoryJournal(clock))
    monkeypatch.setattr(pmll_graph, "_memory", memory)
    monkeypatch.setattr(pmll_graph, "_path", None)
    yield memory
    memory.close()
