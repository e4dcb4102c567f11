"""The short form of `python -m benchmarks.fleet`: servers broken under load; what was acknowledged stays, once."""

import tempfile
from pathlib import Path

import pytest
from benchmarks.fleet import break_cluster, break_postgres, costs, longest_pause, verify, wake_ups

from plants import PLANTS, refuses

pytestmark = pytest.mark.requirement("no-acknowledged-write-lost", "one-winner", "equal-states")


def test_a_cluster_that_loses_primaries_and_moves_slots_loses_and_doubles_nothing(cluster, cluster_url, tmp_path, capsys):
    counts = break_cluster(cluster, tmp_path, writers=4, sessions=16, times=1, say=print)
    assert counts["acknowledged"] > 50
    assert counts["lost"] == counts["doubled"] == counts["two winners"] == 0


def test_a_postgres_that_crashes_and_drops_connections_loses_and_doubles_nothing(postgres, postgres_url):
    with tempfile.TemporaryDirectory() as folder:
        counts = break_postgres(postgres, Path(folder), writers=4, sessions=16, rounds=1, say=print)
    assert counts["acknowledged"] > 20
    assert counts["lost"] == counts["doubled"] == counts["two winners"] == 0


def test_the_count_sees_a_lost_a_doubled_and_a_second_winner(redis_url):
    from pinfold import Memory

    with Memory(redis_url) as memory:
        session = memory.session("s0")
        session.set("k", "w:1")
        session.set("k", "w:2")
        claim = session.claim("job", 60)
    rows = [[0.0, "set", "s0", "w:1"], [0.0, "won", "s0", "job", claim.token]]
    assert verify(redis_url, rows, 1)["acknowledged"] == 1
    with pytest.raises(AssertionError, match="lost"):
        verify(redis_url, [*rows, [0.0, "set", "s0", "w:3"]], 1)
    with pytest.raises(AssertionError, match="two winners"):
        verify(redis_url, [*rows, [0.0, "won", "s0", "job", 7]], 1)
    with Memory(redis_url) as memory:
        memory.session("s0").set("j", "w:1")
    with pytest.raises(AssertionError, match="doubled"):
        verify(redis_url, rows, 1)


def test_the_longest_pause_counts_from_when_it_began():
    rows = [[1.0, "set", "a", ""], [2.0, "set", "a", ""], [6.5, "set", "a", ""], [3.0, "set", "b", ""]]
    assert longest_pause(rows, {"a"}, 1.5, 10.0) == 4.5


def test_the_costs_run(valkey, postgres, redis_url, postgres_url):
    assert [row["ratio50"] > 0 for row in costs(valkey, None, postgres, 20)] == [True] * 4
    assert wake_ups(redis_url, 3)["p50_ms"] < 5_000


@pytest.mark.parametrize("plant", PLANTS["fleet"], ids=lambda plant: plant.name)
def test_the_bench_of_servers_refuses_what_does_nothing(plant, redis_driver, postgres_driver, tmp_path, monkeypatch):
    refuses("fleet", plant, tmp_path, monkeypatch)
