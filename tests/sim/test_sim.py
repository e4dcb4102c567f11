"""Random histories under faults. A failure names its seed: `run_history(SEED)` plays it again."""

import os
from collections import Counter

import pytest

from pinfold.testing.sim import RATES, InvariantBroken, SimClock, run_history

HISTORIES = int(os.environ.get("PINFOLD_SIM_HISTORIES", "300"))
FIRST = int(os.environ.get("PINFOLD_SIM_SEED", "1"))


@pytest.mark.requirement("sim-invariants", "no-acknowledged-write-lost", "one-winner", "equal-states", "request-id")
def test_random_histories_under_faults_keep_every_invariant():
    met: Counter[str] = Counter()
    claims = entries = 0
    for seed in range(FIRST, FIRST + HISTORIES):
        report = run_history(seed)
        met.update(report.faults)
        claims, entries = claims + report.claims, entries + report.entries
    assert set(met) == set(RATES), "every fault of the list is met"
    assert claims > 5 * HISTORIES
    assert entries > 20 * HISTORIES


@pytest.mark.parametrize("seed", [2907, 4548, 5906, 6445, 9772])
def test_histories_that_once_broke(seed):
    run_history(seed)


def test_a_seed_reproduces_its_history():
    assert run_history(7) == run_history(7)
    assert run_history(7) != run_history(8)


def test_a_quiet_history_meets_no_fault():
    assert run_history(3, rates={}).faults == {}


def test_the_clock_passes_only_when_told_to():
    clock = SimClock(1_000)
    wall = clock.wall()
    wall.offset_ms = -300
    clock.tick(50)
    assert (clock(), wall(), clock.monotonic()) == (1_050, 750, 0.05)


@pytest.mark.requirement("sim-invariants")
def test_the_checks_see_a_store_that_loses_writes(monkeypatch):
    from pinfold.testing import sim

    def forgetful(self, session, after, after_hash, records, blobs):
        return None  # acknowledged, never kept

    monkeypatch.setattr(sim.FaultyJournal, "append", forgetful)
    with pytest.raises(InvariantBroken, match="^seed 1, "):
        run_history(1)


@pytest.mark.requirement("sim-invariants", "one-winner")
def test_the_checks_see_a_rule_that_grants_a_claim_twice(monkeypatch):
    from pinfold.state import promises

    monkeypatch.setattr(promises.Promise, "is_held", lambda self, now_ms: False)
    with pytest.raises(InvariantBroken, match="was claimed while somebody held it"):
        run_history(1)
