"""The demo, run small: its own checks must hold, and must fail where a count is wrong."""

from __future__ import annotations

import io
import json
import re
import tempfile
from pathlib import Path

import pytest

from pinfold.doors import demo


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return [cell.replace(",", "") for cell in re.split(r"\s{2,}", line.strip())[1:]]


def test_a_small_demo_counts_one_execution_a_result_and_one_takeover(temporary_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    middling = demo.standard_library(60)[-12:]
    monkeypatch.setattr(demo, "standard_library", lambda count: middling)
    out = io.StringIO()

    status = demo.run_demo(out, workers=3, files=12, lease_s=1.0)

    text = out.getvalue()
    assert status == 0, text
    assert row(text, "results wanted") == ["36", "36"]
    assert row(text, "executions") == ["36", "12"]
    assert int(row(text, "joins")[1]) + int(row(text, "hits")[1]) == 24
    assert "and nobody else, took over" in text and ": 2 executions" in text
    assert "all 2 that live got the same result" in text
    assert "13 of 13 results are there" in text
    assert len(text.splitlines()) <= 60
    assert "\r" not in text and "FAILED" not in text
    assert list(temporary_root.iterdir()) == []


def test_the_demo_ends_with_a_snippet_an_mcp_client_can_read() -> None:
    snippet = next(line for line in demo._CONNECT.splitlines() if line.strip().startswith("{"))

    assert json.loads(snippet) == {"mcpServers": {"pinfold": {"command": "pinfold", "args": ["mcp"]}}}


def test_a_wrong_count_makes_the_demo_fail_and_leave_nothing(temporary_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A run where every worker does everything itself although it says it shares.
    small = demo.standard_library(300)[-2:]
    monkeypatch.setattr(demo, "standard_library", lambda count: small)
    monkeypatch.setattr(demo, "work_shared", demo.work_alone)
    out = io.StringIO()

    status = demo.run_demo(out, workers=2, files=2)

    assert status == 1
    assert "FAILED: executions with pinfold: 4, and it should be 2" in out.getvalue()
    assert list(temporary_root.iterdir()) == []


def test_too_few_source_files_are_named() -> None:
    with pytest.raises(demo.DemoFailed, match="the demo needs 1000000"):
        demo.standard_library(1_000_000)


def test_the_progress_bar_is_for_terminals_only_and_erases_itself() -> None:
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        teller = demo.Teller(stream)
        teller.progress(1, 4, "results")
        teller.progress(4, 4, "results")
        teller.say("done")

    assert plain.getvalue() == "done\n"
    assert "[#######......................." in terminal.getvalue()
    assert terminal.getvalue().rpartition("\r")[2] == "done\n"


def test_metrics_of_a_file_are_what_a_reader_counts(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        "import os, sys.path\nfrom json import loads\nfrom . import near\n\n"
        "class A:\n    def f(self, x):\n        if x and x > 1:\n            return 1\n        for y in x:\n            pass\n\n"
        "def g():\n    return [z for z in () if z]\n"
    )

    metrics = demo.analyse(str(source))

    assert metrics["lines"] == 13
    assert metrics["functions"] == 2 and metrics["classes"] == 1
    assert metrics["branches"] == 4  # if, and, for, the comprehension
    assert metrics["imports"] == ["json", "os", "sys"]
    assert metrics["longest"] == ["A.f", 5]
    assert metrics["complexity"] == ["A.f", 4]


def test_an_execution_log_counts_whole_lines_only(tmp_path: Path) -> None:
    log = demo.ExecutionLog(str(tmp_path / "log"))
    assert log.lines("start") == []
    log.add("start", "a\tb")
    log.add("end", "a\tb")
    with open(log.path, "ab") as file:
        file.write(b"start\t12")

    assert [line.key for line in log.lines("start")] == ["a\tb"]
    assert len(log.lines("end")) == 1
