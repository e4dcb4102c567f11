"""The harness itself: a side that does nothing must not get a figure, and a ratio is of one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import benchmarks.__main__ as command
from benchmarks import budget, graph, harness, peers, silo

import pinfold
from pinfold import limits

exactly = pytest.mark.filterwarnings("ignore:open_binary is deprecated")
"""For tests that count exact tokens: the counter's own import warns."""


def honest(figure: float = 1.0, name: str = "honest") -> harness.Side:
    done = []

    def run() -> float:
        done.append(1)
        return figure

    return harness.Side(name, run, lambda: len(done) > 0)


def test_a_planted_no_op_is_refused_before_it_gets_a_figure() -> None:
    stored: dict[str, str] = {}
    table = harness.Table(repeats=3)
    no_op = harness.Side("no-op", lambda: 0.001, lambda: stored.get("key") == "value")

    with pytest.raises(harness.WrongAnswer, match="set: no-op does not do what it is timed for"):
        table.compare("set", "us", [honest(), no_op])

    assert table.rows == []


def test_a_side_that_stops_working_half_way_is_refused_after_the_last_round() -> None:
    rounds = count()
    kept: list[int] = []

    def run() -> float:
        if (number := next(rounds)) < 2:
            kept.append(number)
        return 1.0

    with pytest.raises(harness.WrongAnswer):
        harness.Table(repeats=3).compare("set", "us", [harness.Side("tired", run, lambda: len(kept) == next(rounds))])


@pytest.mark.parametrize(("method", "bench"), [("set", silo.durable), ("once", silo.once), ("fulfil", silo.claim)])
def test_silo_benches_catch_a_pinfold_that_does_nothing(
    method: str, bench: Callable[[silo.Bench], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silo.Session, method, lambda self, *arguments, **rest: None)

    with pytest.raises(harness.WrongAnswer):
        bench(silo.Bench(harness.Table(repeats=1), tmp_path, small=True))


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    # The machine was three times slower in the second round: both sides were, and the ratio does not move.
    assert harness.paired_ratio([2.0, 6.0, 2.2], [1.0, 3.0, 1.0]) == 2.0
    assert harness.paired_ratio([5.0], [10.0]) == 0.5
    with pytest.raises(ValueError, match="same rounds"):
        harness.paired_ratio([1.0, 2.0], [1.0])


def test_sides_take_turns_after_one_warm_up_and_the_order_swaps() -> None:
    seen: list[str] = []

    def side(name: str, figure: float) -> harness.Side:
        def run() -> float:
            seen.append(name)
            return figure

        return harness.Side(name, run, lambda: True)

    first, second = harness.Table(repeats=3).compare("turns", "us", [side("a", 2.0), side("b", 1.0)], target="<= 3")

    assert seen == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert (first.median, first.ratio, first.target) == (2.0, None, "<= 3")
    assert (second.runs, second.ratio, second.target) == ([1.0, 1.0, 1.0], 0.5, "")


def test_figures_are_told_as_a_table_and_as_json() -> None:
    table = harness.Table(repeats=1)
    table.compare("peek", "us", [honest(0.5), honest(1234.0, "slow")])
    table.note("command", "left out: not there")

    text = harness.as_markdown(table.rows, {"python": "3.11"})

    assert text.splitlines()[0] == "python 3.11"
    assert "| peek | slow | 1,234 us | 1,234–1,234 | 2,468 |  |  |" in text
    assert "left out: not there" in text
    assert json.loads(json.dumps([row.as_dict() for row in table.rows]))[1]["ratio"] == 2468.0


def test_the_command_lists_its_benches_and_refuses_unknown_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(command.BENCHES)
    assert all(len(line.split()) > 1 for line in listed)
    with pytest.raises(SystemExit, match="2"):
        command.main(["nothing"])


def test_one_bench_runs_small_without_peers_and_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["once", "full", "--small", "--repeats", "1", "--no-peers", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert {row["bench"] for row in told["rows"]} >= {"once hit", "@cached hit"}
    assert all(row["median"] > 0 for row in told["rows"])
    assert told["about"]["python"].endswith(".".join(map(str, sys.version_info[:3])))


def test_a_peer_that_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.venv, "create", lambda home, with_pip: Path(home).mkdir(parents=True))
    monkeypatch.setattr(peers.subprocess, "run", lambda *a, **k: peers.subprocess.CompletedProcess(a, 1, "", "no network\n"))

    with pytest.raises(peers.PeerMissing, match="some-peer==1.0 could not be installed: no network"):
        peers.install("some-peer", "1.0", tmp_path)


@exactly
def test_graph_benches_run_small_without_peers() -> None:
    assert command.main(["update", "opening", "shape", "--small", "--repeats", "1", "--no-peers", "--json"]) == 0


def test_a_graph_bench_catches_a_session_that_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph.Session, "mutate", lambda self, text: None)

    with pytest.raises(harness.WrongAnswer):
        graph.rates(silo.Bench(harness.Table(repeats=1), tmp_path, small=True))


# --- accuracy under budget: ours alone ------------------------------------------------------------------------------


@exactly
def test_a_pin_map_of_800_tokens_holds_what_answers_two_hundred_questions() -> None:
    table = harness.Table()
    budget.accuracy(table, None, budgets=(800,))

    found = {row.side: row.median for row in table.rows if row.bench == "all 200 questions, 800 tokens"}
    assert found["pinfold pin map"] >= 0.95
    assert found["dump, cut"] < 0.5


def test_the_rows_a_question_needs_follow_from_its_form_alone() -> None:
    text = budget.Text("story", ["+ PER [A] ; name=a\n+ PER [B]\n+ SEC [S] ; what=s\n+ [A] --(knows)--> [S]\n+ [B] --(knows)--> [S]\n+ [A] --(trusts)--> [B]"])

    assert text.on_ways("A", (("knows", "<knows"),)) == {"A", "S", "B", "E1", "E2"}
    assert text.on_ways("A", (("knows", "lives_in"),)) == frozenset()
    assert budget.rows_in(text, 'PER [A] ; name="a"…+9\nPER [B]\nE9 [B] --(knows)--> [S]') == {"B", "E2"}


@exactly
def test_a_delta_each_turn_costs_a_quarter_of_the_pin_map_and_a_thirtieth_of_the_dump() -> None:
    spent = {name: sum(runs[1:]) for name, runs in budget.task().items()}

    assert spent["since"] <= 0.25 * spent["pin map"]
    assert spent["since"] <= 0.03 * spent["dump"]


# --- long runs, made short ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux says how much memory a process has")
def test_memory_and_file_are_flat_over_many_reads_and_overwrites(tmp_path: Path) -> None:
    from benchmarks import memory

    code = f"from benchmarks.memory import measure; import json; print(json.dumps(measure({str(tmp_path)!r}, 20_000, 10_000, 50_000)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(memory.__file__).parents[1]), str(Path(pinfold.__file__).parents[1])])}
    figures = json.loads(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=120).stdout)
    assert max(figures["peek_rss_kb"]) - figures["peek_rss_kb"][0] <= 512
    assert max(figures["set_rss_kb"]) - figures["set_rss_kb"][4] <= 2_048
    assert max(figures["file_kb"]) <= 1.5 * max(figures["file_kb"][:5])
    assert figures["entries_kept"] < 6_000


def test_a_soak_of_a_few_seconds_holds_and_tells_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import soak

    before = {name: getattr(limits, name) for name in soak.SMALL}
    try:
        assert soak.main(["--seconds", "6", "--seed", "5", "--processes", "2", "--histories", "3"]) == 0
    finally:
        for name, value in before.items():
            setattr(limits, name, value)
    told = capsys.readouterr().out.splitlines()
    summary = json.loads(told[-1])
    assert told[0].startswith("seed 5, 2 processes") and summary["seed"] == 5
    assert summary["acknowledged"] > 0 and summary["works_shared"] > 0 and summary["histories"] == 3


def test_a_soak_sees_a_series_that_goes_on_growing() -> None:
    from benchmarks.soak import is_bounded

    assert is_bounded([1, 50, 90, 100, 101, 99, 100, 102, 100, 101, 99, 100], 5)
    assert not is_bounded([float(n * 100) for n in range(12)], 5)
