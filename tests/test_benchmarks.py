"""The harness itself: a side that does nothing must not get a figure, and a ratio is of one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import benchmarks.__main__ as command
from benchmarks import budget, flight, harness, peers, recall_peers, recall_sets, report, silo, targets

import pinfold
from pinfold import limits
from plants import TOY, toy_sets

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

    first, second = harness.Table(repeats=3).compare("turns", "us", [side("a", 2.0), side("b", 1.0)])

    assert seen == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert (first.median, first.ratio) == (2.0, None)
    assert (second.runs, second.ratio) == ([1.0, 1.0, 1.0], 0.5)


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
def test_what_a_peer_raises_leaves_out_its_side_and_no_other(tmp_path: Path) -> None:
    def ask(op: str, **arguments: Any) -> Any:
        raise peers.PeerMissing("it fell over")

    table = harness.Table(1, tell=lambda line: None)
    bench = silo.Bench(table, tmp_path)
    sides = {"pinfold": ("pinfold", flight.here), "fallen": ("pinfold", ask)}
    flight.compare(bench, "hit", "us", "hit", "us", sides, 1, lambda executed: executed == 1, calls=50)
    assert [(row.side, len(row.runs), row.note) for row in table.rows] == [("-", 0, "left out: it fell over"), ("pinfold", 1, "")]


def test_a_script_of_a_peer_answers_what_was_raised_and_goes_on() -> None:
    script = "from benchmarks.peers import serve; serve({'divide': lambda by: 1 // by})"
    asked = "".join(json.dumps({"op": "divide", "by": by}) + "\n" for by in (0, 1))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path) for path in (report.ROOT, report.ROOT / "src")])}
    done = subprocess.run([sys.executable, "-c", script], input=asked, capture_output=True, text=True, env=environment, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["error"].startswith("ZeroDivisionError") and second == {"result": 1}


def test_graph_benches_run_small_without_peers() -> None:
    assert command.main(["update", "opening", "shape", "--small", "--repeats", "1", "--no-peers", "--json"]) == 0


def test_recall_benches_run_small() -> None:
    assert command.main(["search", "remember", "first-search", "--small", "--repeats", "1", "--no-peers", "--json"]) == 0


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


# --- single flight -------------------------------------------------------------------


def small(tmp_path: Path) -> silo.Bench:
    return silo.Bench(harness.Table(repeats=1), tmp_path, small=True, peers=False)


def test_single_flight_counts_one_execution_of_ours(tmp_path: Path) -> None:
    bench = small(tmp_path)
    flight.flight(bench)

    counted = {row.bench: row.runs for row in bench.table.rows if row.bench.endswith(": executions")}
    assert counted == {
        "stampede, 10 tasks on one key: executions": [1.0],
        "stampede, 8 threads on one key: executions": [1.0],
        "stampede, 2 processes on 5 keys of 20 ms: executions": [5.0],
    }


# --- recall -------------------------------------------------------------------------------------------------------------


def test_recall_without_peers_tells_shares_of_each_set_the_mixed_store_and_typos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_sets(monkeypatch, tmp_path)
    bench = small(tmp_path)
    recall_peers.recall(bench)

    found = {(row.bench, row.side, row.unit): row.median for row in bench.table.rows if row.runs}
    assert found["recall toy", "pinfold level 1", "recall@10"] == found["recall mixed", "pinfold level 0", "recall@10"] == 1.0
    assert found["typos toy", "pinfold level 0", "ms a query"] > 0


def test_a_slow_side_whose_time_is_over_says_how_far_it_came() -> None:
    class Slow(recall_peers.Fts5):
        name, slow = "slow", True

        def search(self, store: str, queries: list[str], within_s: float) -> list[Any]:
            return super().search(store, queries[:1], within_s)

    corpus = recall_sets.Corpus("toy", "toy", TOY["documents"], [recall_sets.Query(q["text"], frozenset(q["relevant"])) for q in TOY["queries"] * 3])
    side = Slow()
    rows = recall_peers.rows_of(recall_peers.measure([side], [corpus], str, 100, 60.0), "recall", [side], 60.0)

    assert rows[0].note == "> 60 s: 3 queries answered"
    assert "(> 60 s, 3 queries)" in report._cell(rows[0], "recall@10")


def test_typos_are_slips_in_long_words_and_the_same_each_time() -> None:
    text = "where did the lighthouse keeper leave the telescope on Thursday evening after supper"
    slipped = recall_sets.with_typos(text)

    assert slipped == recall_sets.with_typos(text) != text
    before, after = text.split(), slipped.split()
    assert all(a == b for a, b in zip(before, after, strict=True) if len(a) <= 4)
    many = " ".join([text] * 60)
    changed = [a != b for a, b in zip(many.split(), recall_sets.with_typos(many).split(), strict=True) if len(a) > 4]
    assert 0.2 < sum(changed) / len(changed) < 0.36  # a few slips put back what was there


def test_an_exponent_is_that_of_the_law() -> None:
    assert harness.exponent([(10, 5.0), (100, 5.0), (1000, 5.0)]) == pytest.approx(0)
    assert harness.exponent([(10, 20.0), (100, 2000.0)]) == pytest.approx(2)


# --- targets and the report -----------------------------------------------------------------------------------------------


def test_a_target_judges_its_row_by_median_or_by_ratio() -> None:
    most = targets.Target(2, "peek", "peek hit", "pinfold", 0.6, unit="us")
    least = targets.Target(2, "beside", "trip", "pinfold", 1.2, least=True, ratio=True)
    rows = [harness.Row("peek hit", "pinfold", "us", [0.5, 0.55, 9.0]), harness.Row("trip", "pinfold", "ms", [3.0], 1.1)]

    assert (most.value(rows), least.value(rows)) == (0.55, 1.1)
    assert most.is_met(0.55) and not least.is_met(1.1)
    assert most.value([]) is None
    assert (str(most), str(least)) == ("<= 0.6 us", ">= 1.2 x")


def test_every_target_names_its_profile_rightly_and_no_two_are_the_same() -> None:
    from benchmarks import profiles

    assert all(t.profile in {"", *profiles.WORKS, *profiles.COMMANDS} for t in targets.TARGETS)
    assert len({(t.bench, t.side, t.unit, t.ratio) for t in targets.TARGETS}) == len(targets.TARGETS)


def test_what_limits_a_miss_is_named_by_function_with_its_share() -> None:
    from benchmarks import profiles

    told = profiles.limits_of("once", most=2)
    assert told.count("`") == 4 and told.count("%") == 2


def test_every_section_runs_benches_that_there_are_and_every_bench_is_in_one() -> None:
    in_sections = [name for section in report.SECTIONS for name in section.benches]
    assert sorted(in_sections) == sorted(command.BENCHES)
    assert all(set(section.quick) <= set(section.benches) for section in report.SECTIONS)
    assert sum(section.quick_s for section in report.SECTIONS) <= report.QUICK_S + 60


def test_a_section_that_is_stopped_leaves_its_rows_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys, time; p = sys.argv[sys.argv.index('--lines') + 1]; open(p, 'w').write('{\"bench\": \"b\"}' + chr(10)); time.sleep(600)"
    real = report.subprocess.Popen
    monkeypatch.setattr(report.subprocess, "Popen", lambda command, **rest: real([sys.executable, "-c", script, *command[1:]], **rest))

    rows, trouble = report.run_section(report.SECTIONS[0], ["peek"], 3, True)

    assert rows == [{"bench": "b"}]
    assert "stopped after 3 s" in trouble


def test_the_page_tells_targets_tables_and_what_was_left_out(tmp_path: Path) -> None:
    row = harness.Row("peek hit", "pinfold memory://", "us", [0.5, 0.7, 0.9]).as_dict()
    left = harness.Row("mcp", "-", "", [], note="left out: no network").as_dict()
    found = report.judged([report.row_from(row)], True, 0)
    told = {
        "about": {"cores": 2}, "peers": {"diskcache": "5.6.3"}, "command": "make bench", "quick": False, "took_s": 60.0, "targets": found,
        "sections": [{"title": "Silo and promises", "words": "w", "rows": [row, left], "trouble": "", "took_s": 1}],
    }  # fmt: skip

    text = report.page(told, {})

    assert "| 2 | peek hit in RAM | <= 0.6 us | 0.7 | **no** |" in text
    assert f"0 met, 1 missed, {len(targets.TARGETS) - 1} not measured" in text
    assert "| peek hit | pinfold memory:// | 0.7 us | 0.5–0.9 |" in text
    assert "left out: no network" in text


def test_bench_of_the_command_line_says_that_it_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pinfold.doors import recall as door
    from pinfold.errors import ConfigurationError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pinfold, "__file__", str(tmp_path / "src" / "pinfold" / "__init__.py"))

    with pytest.raises(ConfigurationError) as caught:
        door.run_bench(["silo"])
    assert caught.value.code == "bench_checkout"


def test_a_quick_run_judges_no_set_by_a_part_of_it() -> None:
    rows = [harness.Row("recall locomo", "pinfold level 1", "recall@10", [0.1])]

    whole, part = (next(t for t in report.judged(rows, quick, 0) if t["what"] == "level 1 on locomo") for quick in (False, True))
    assert (whole["met"], part["met"], part["figure"]) == (False, None, None)
