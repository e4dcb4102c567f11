"""The simulation's histories on real servers: the same seed, the same faults, and the same report as in RAM.

Not on SQLite: what another process does in the middle of an append cannot happen behind its lock.
"""

from functools import partial

import pytest

from pinfold.journal.open import migrate_store, open_journal
from pinfold.testing.sim import InvariantBroken, run_history

pytestmark = pytest.mark.requirement("sim-invariants", "journal-contract", "equal-states")

SEEDS = range(1, 11)


def empty_store(request: pytest.FixtureRequest, kind: str, seed: int) -> str:
    """Return the URL of a store of its own for one history."""
    url: str = request.getfixturevalue(f"{kind}_url")
    if kind != "postgres":
        return f"{url}?prefix=history-{seed}"
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS history_{seed} CASCADE")
    migrate_store(f"{url}?schema=history_{seed}")
    return f"{url}?schema=history_{seed}"


@pytest.mark.parametrize("kind", ["redis", "cluster", "postgres"])
def test_histories_under_faults_end_as_they_do_in_ram(request, kind):
    faults = trimmed = forks = 0
    for seed in SEEDS:
        report = run_history(seed, open_handle=partial(open_journal, empty_store(request, kind, seed)))
        assert report == run_history(seed)
        faults, trimmed, forks = faults + sum(report.faults.values()), trimmed + report.trimmed, forks + report.forks
    assert faults > 100
    assert trimmed > 0
    assert forks > 0


def test_a_server_that_loses_writes_is_found_out(request, monkeypatch):
    from pinfold.journal.redis import RedisJournal

    monkeypatch.setattr(RedisJournal, "append", lambda self, *arguments: None)  # acknowledged, never kept
    with pytest.raises(InvariantBroken, match="^seed 1, "):
        run_history(1, open_handle=partial(open_journal, empty_store(request, "redis", 1)))
