"""Inputs on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import run, twice

own_store = twice()


@pytest.fixture(autouse=True)
def _here(own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PINFOLD_SESSION", "s")


def test_a_command_runs_again_when_its_input_changed() -> None:
    Path("a").write_text("1")
    command = ("once", "lint", "--input", "file:a", "--", "sh", "-c", "echo ran >> log; wc -c < a")
    assert [run(*command).text.strip() for _ in range(2)] == ["1", "1"]
    Path("a").write_text("333")
    assert run("once", "lint", "--any-age", "--", "false").text.strip() == "1"
    assert run(*command).text.strip() == "3"
    assert Path("log").read_text() == "ran\nran\n"
    Path("a").unlink()
    gone = run(*command)
    assert gone.status == 123 and "no_such_input" in gone.err
    assert run("stale").text == "slot:lint because a gone\n"


def test_set_peek_stale_why_and_refresh() -> None:
    Path("a b").write_text("1")
    run("set", "parsed", "x", "--input", "file:a b")
    run("set", "sum", "5", "--input", "slot:parsed", "--input", "version:prompt=7")
    assert run("stale", "--fail-on-miss").status == 1
    Path("a b").write_text("22")
    shown = run("peek", "sum")
    assert shown.text == "5" and shown.err == "stale: sum because a b\n"
    assert run("peek", "sum", "--fresh", "--fail-on-miss").status == 1
    assert run("claim", "sum", "--fresh").text.startswith("claimed sum token=")
    assert run("peek", "sum", "--json").json == {"hit": True, "stale": True, "because": ["a b"], "value": "5", "index": 1}
    assert run("refresh", "--list").text == "slot:parsed because a b\nslot:sum because a b\n"
    assert run("why", "sum").text == "slot:sum  stale\n  slot:parsed  stale\n    a b  changed\n  version:prompt\n"
    assert run("refresh", "parsed").text == "reaffirmed slot:parsed\n"
    assert run("stale", "--json").json == {"stale": [], "total": 0}
    run("set-version", "prompt", "8")
    assert run("stale").text == "slot:sum because version:prompt now 8\n"
    assert run("why", "nothing").status == 3


def test_rows_rest_on_files_and_a_pin_map_says_so() -> None:
    Path("src").mkdir()
    Path("src/a.py").write_text("1")
    run("mutate", "+ EVT [E7] ; what=window\n+ TSK [T1] ; goal=deploy\n+ [T1] --(derived_from)--> [E7]", "--input", "file:src/a.py")
    assert "# stale" not in run("query", "pin-map", "T1").text
    run("mutate", "~ [E7] ; what=moved", "--input", "file:src/a.py")
    Path("src/a.py").write_text("22")
    assert "# stale T1 because E7, src/a.py\n# stale E7 because src/a.py\n" in run("query", "pin-map", "T1").text
    assert run("why", "T1").text == "T1  stale\n  src/a.py  changed\n  E7  changed\n    src/a.py  changed\n"
    refused = run("mutate", "+ TSK [T2]", "--input", "row:T9")
    assert refused.status == 3 and "no_such_input" in refused.err and run("read", "get", "T2", "--fail-on-miss").status == 1


def test_supersede_and_conflicts() -> None:
    run("mutate", "+ T [A] ; code=7\n+ T [B] ; code=7\n+ T [C]\n+ [C] --(derived_from)--> [A]")
    run("add", 'SCHEMA T ; fields="id code" ; unique=code')
    assert run("conflicts").text == "T code=7: A B\n"
    assert run("supersede", "A", "B").text.startswith("T [A] ; code=7 ; superseded_by=B\n")
    assert run("conflicts").text == ""
    assert run("stale").text == "C because A superseded by B\n"
    assert run("read", "list").text == "T [B] ; code=7\nT [C]\n# stale C because A superseded by B\n"
    assert "T [A]" in run("read", "list", "--superseded").text
    assert "# stale C because A superseded by B" in run("query", "pin-map", "C").text
