"""MemNet's library names: command lines answered in process, its environment, its pipe rows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold import Memory, limits
from pinfold.compat.memnet import UNHEARD, InProcessEngine, environment, pipe_row, run_argv, run_memnet
from pinfold.dialect.legacy import split_row
from pinfold.errors import Refused


@pytest.fixture(autouse=True)
def _own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*UNHEARD, "MEMNET_SESSION", "MEMNET_AGENT", "MEMNET_SESSION_TTL_MINUTES", "PINFOLD_SESSION", "PINFOLD_ACTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")


def done(*argv: str, **more: Any) -> dict[str, Any]:
    answer = run_argv(argv, **more)
    assert answer["exit_code"] == 0, answer["stderr"]
    return answer


def test_a_program_that_drove_memnet_in_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "map.txt").write_text("@TSK: id|goal|status|prio|recycle\n@MOD: id|path|recycle\n")
    opened = done("session", "open", "--map-file", str(tmp_path / "map.txt"), "--ttl", "60")
    session = opened["stderr"].strip().removeprefix("MEMNET_SESSION=")
    assert opened["stdout"] == f"@SESSION: {session}|2|3600.0\n"
    monkeypatch.setenv("MEMNET_SESSION", session)
    made = done("add", "+ TSK [NEW:x] ; goal=ship ; prio=3\n+ MOD [M1] ; path=a.py\n+ NEW [NEW:x] --(owns)--> [M1]")
    assert made["stderr"] == "@ID: NEW_node_0|TSK1\n@ID: NEW_edge_0|E1\nok=3 fail=0\n"
    assert (
        done(
            "update",
            "--stdin",
            stdin="~ [TSK1] ; prio+=2.5\n",
        )["stdout"]
        == "TSK [TSK1] ; goal=ship ; prio=5.5\n"
    )
    assert "E1 [TSK1] --(owns)--> [M1]" in done("query", "pin-map", "--anchor", "TSK1", "--depth", "2", "--max-rows", "50")["stdout"]
    assert done("read", "get", "--id", "TSK1")["stdout"] == "TSK [TSK1] ; goal=ship ; prio=5.5\n"
    assert done("read", "list", "--tag", "TSK", "--where", "goal=s*", "--where", "prio>=5", "--active-only")["stdout"].startswith("TSK [TSK1]")
    assert done("query", "path", "TSK1", "M1")["stdout"].count("\n") == 6
    assert "@STAT: nodes|2\n" in done("housekeep", "stats")["stdout"]
    assert done("session", "resume", session)["stdout"].startswith(f"@SESSION: {session}|")
    assert done("session", "save", "--file", str(tmp_path / "s.txt"))["exit_code"] == 0
    assert done("session", "load", "--file", str(tmp_path / "s.txt"), "--ttl", "5")["stderr"].startswith("MEMNET_SESSION=s_")
    assert done("delete", "--id", "M1")["stderr"] == "@DEL: M1\n@DEL: E1\nok=2 fail=0\n"
    assert done("session", "close", session)["stdout"] == f"ended {session}\n"
    assert done("version")["stdout"].startswith("@VER: pinfold|")


def test_refusals_are_lines_and_exit_statuses_are_memnets() -> None:
    memory = Memory("memory://")
    engine = InProcessEngine(memory)
    told = "@ERR: no_session|no session was named|--session ID, or set MEMNET_SESSION\n"
    assert engine.run(["add", "+ TSK [T1]"]) == {"exit_code": 2, "stdout": "", "stderr": told}
    assert engine.run(["session", "resume", "mn_0000"])["exit_code"] == 2
    refused = run_memnet(["add", "+ TSK [T1] ; a=1 ; a=2\n+ [T1] --(x)--> [T9]"], session="w", memory=memory)
    assert refused.exit_code == 1 and [line.split("|")[0] for line in refused.errors] == ["@ERR: duplicate_field", "@ERR: no_such_node"]
    assert refused.session_id == "w" and json.loads(refused.to_json())["errors"] == refused.errors
    for words in (["nonsense"], ["add", "--frob", "x"], ["query", "pin-map", "--depth", "two"], ["session", "open", "a", "b"], ["add", "--file", "/no/such"]):
        answer = run_memnet(words, session="w", memory=memory)
        assert answer.exit_code == 1 and answer.stderr.startswith("@ERR: ") and answer.stdout == "", words
    assert run_memnet(["add", ""], session="w", memory=memory).stderr == "ok=0 fail=0\n"
    memory.close()


def test_threads_get_their_own_answers() -> None:
    memory = Memory("memory://")
    engine = InProcessEngine(memory)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: engine.run(["add", f"+ TSK [T{n}] ; goal={n}", "--session", "w"]), range(60)))
        shown = list(pool.map(lambda n: engine.run(["read", "get", "--id", f"T{n}", "--session", "w"]), range(60)))
    assert [one["stdout"] for one in made] == [one["stdout"] for one in shown] == [f"TSK [T{n}] ; goal={n}\n" for n in range(60)]
    memory.close()


def test_the_environment_is_heard_or_it_is_said_that_it_is_not() -> None:
    heard = environment({"MEMNET_SESSION": "mn_1", "MEMNET_AGENT": "ada", "MEMNET_SESSION_TTL_MINUTES": "90", "MEMNET_MAX_DEPTH": "9", "MEMNET_SERVE_PORT": ""})
    assert (heard.session, heard.agent, heard.ttl_minutes) == ("mn_1", "ada", 90.0)
    assert list(heard.unheard) == ["MEMNET_MAX_DEPTH"]
    assert environment({"MEMNET_SESSION": "a", "PINFOLD_SESSION": "b"}).session == "b"
    with pytest.raises(Refused) as refused:
        environment({"MEMNET_SESSION_TTL_MINUTES": "an hour"})
    assert refused.value.code == "bad_ttl"
    for why in UNHEARD.values():
        assert not why.startswith("limits.") or hasattr(limits, why.removeprefix("limits."))


def test_the_ttl_of_the_environment_is_that_of_sessions_opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMNET_SESSION_TTL_MINUTES", "30")
    assert done("session", "open")["stdout"].endswith("|1800.0\n")
    assert done("session", "open", "--ttl", "5")["stdout"].endswith("|300.0\n")


def test_a_displayed_line_becomes_a_pipe_row() -> None:
    assert pipe_row("TSK [T1] ; status=open ; goal=a|b", ("id", "goal", "status", "prio")) == r"@TSK: T1|a\|b|open|"
    assert pipe_row("E1 [T1] --(owns)--> [M1] ; note=core ; recycle=persistent") == "@EDG: E1|T1|owns|M1||core|persistent"
    assert pipe_row("LAW01 name=* ; cycle=on_add") == "@LAW: LAW01|*|on_add||"
    for line, code in (("- T1", "parse_error"), ("prose", "parse_error"), ('TSK [T1] ; goal="a\\nb"', "newline_in_value")):
        with pytest.raises(Refused) as refused:
            pipe_row(line, ("goal",))
        assert refused.value.code == code


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1, max_size=20))
def test_a_pipe_row_reads_back(value: str) -> None:
    from pinfold.dialect.format import format_node

    assert split_row(pipe_row(format_node("T1", "TSK", {"goal": value}), ("goal",)).removeprefix("@TSK: ")) == ["T1", value]
