"""Opening fast: what makes it so must be there, and must leave no trace in the process."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from pinfold import Memory
from pinfold.bulk import Bulk
from pinfold.testing.journal_contract import run_forked


def kept(memory: Memory) -> list[int]:
    return [snapshot.seq for snapshot in memory._journal.load_snapshots("s")]


def write(url: str, first: int, nodes: int) -> None:
    with Memory(url, background=False) as memory:
        for at in range(first, first + nodes, 1_000):
            memory.session("s").mutate("\n".join(f"+ TSK [T{n}] ; goal=goal number {n}" for n in range(at, at + 1_000)))


def test_who_wrote_much_leaves_a_snapshot_and_who_read_does_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    write(url, 0, 1_000)
    with Memory(url, background=False) as memory:
        assert kept(memory) == []
    write(url, 1_000, 12_000)
    with Memory(url, background=False) as memory:
        assert kept(memory) == [13]
        memory.session("s").mutate("~ [T1] ; goal=other")
    with Memory(url, background=False) as memory:  # a short tail is no reason
        assert kept(memory) == [13]
        assert memory.session("s").get("T1").items[0].line == "TSK [T1] ; goal=other"
        assert memory.session("s").graph_counts()["nodes"] == 13_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_forked_while_another_thread_loads_collects_its_garbage() -> None:
    with Bulk():
        assert run_forked(lambda: None if gc.isenabled() else pytest.fail("the collector stays off")) == 0
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_as_it_was_behind_a_bulk() -> None:
    assert gc.isenabled()
    with Bulk(), Bulk():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), Bulk():
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.disable()
    try:
        with Bulk():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
