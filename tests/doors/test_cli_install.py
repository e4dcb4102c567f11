"""`pinfold install`, `uninstall` and `hook` as typed, and as Claude Code runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import command, isolate, process, run

from pinfold import Memory
from pinfold.call_key import call_key
from pinfold.doors import hook

own_store = pytest.fixture(autouse=True)(isolate)  # alone: none of it is sent to a server, as test_serve shows of each verb


@pytest.fixture(autouse=True)
def at_home(own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home, project = tmp_path / "home", tmp_path / "home" / "app"
    (project / ".git").mkdir(parents=True)
    (home / ".cursor").mkdir()
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR", "APPDATA", "LOCALAPPDATA", "PINFOLD_STORE", "PINFOLD_SESSION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.chdir(project)
    return home


# --- install ------------------------------------------------------------------------------------------------------


def test_the_clients_that_are_here_are_listed(at_home: Path) -> None:
    run("install", "cursor")
    listed = run("install")
    lines = dict(line.split(None, 1) for line in listed.text.splitlines())
    assert lines["cursor"] == f"yes   {at_home / '.cursor' / 'mcp.json'}"
    assert lines["zed"] == "no    -"
    rows = {row["client"]: row for row in run("install", "--json").json["clients"]}
    assert rows["cursor"] == {"client": "cursor", "title": "Cursor", "here": True, "registered": [str(at_home / ".cursor" / "mcp.json")]}


def test_install_says_what_it_did_and_the_second_time_that_it_did_nothing(at_home: Path) -> None:
    file = at_home / ".cursor" / "mcp.json"
    file.write_text("{}")
    first = run("install", "cursor", "--store", "sqlite:///mine.db", "--session", "s", "--env", "A=b=c", "--", "--tools", "core")
    assert first.status == 0
    assert first.text == f"installed: server in {file} (Cursor, user)\n  as it was: {file}.pinfold-backup\n  restart Cursor\n"
    entry = json.loads(file.read_text())["mcpServers"]["pinfold"]
    assert entry["args"][-3:] == ["mcp", "--tools", "core"]
    assert entry["env"] == {"PINFOLD_STORE": f"sqlite:///{at_home / 'app' / 'mine.db'}", "PINFOLD_SESSION": "s", "A": "b=c"}
    assert run("install", "cursor", "--", "--tools", "core").text == f"unchanged: server in {file} (Cursor, user)\n"
    gone = run("uninstall", "cursor", "--json").json
    assert [step["status"] for step in gone["steps"]] == ["removed"]
    assert file.read_text() == "{}"


def test_what_would_be_done_is_shown_and_not_done(at_home: Path) -> None:
    shown = run("install", "cursor", "--dry-run")
    assert shown.text.startswith("would install: server in ")
    assert '+    "pinfold": {' in shown.text
    printed = run("install", "cursor", "--print")
    assert json.loads(printed.text)["mcpServers"]["pinfold"]["args"][-1] == "mcp"
    assert "cursor://" in printed.err
    hooks = run("install", "claude-code", "--print", "--hooks", "--json").json
    assert json.loads(hooks["hooks"])["hooks"]["PreToolUse"][0]["matcher"] == "WebFetch|WebSearch"
    assert os.listdir(at_home / ".cursor") == [] and sorted(os.listdir(at_home)) == [".cursor", "app"]


def test_a_project_is_told_at_its_root(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (at_home / "app" / "src").mkdir()
    monkeypatch.chdir(at_home / "app" / "src")
    assert run("install", "project").status == 0
    assert json.loads((at_home / "app" / ".mcp.json").read_text()) == {"mcpServers": {"pinfold": {"type": "stdio", "command": "pinfold", "args": ["mcp"]}}}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("install", "nobody"), 2, "there is no client 'nobody'"),
        (("install", "cursor", "zed"), 2, "'zed' is one word too many"),
        (("install", "--", "x"), 2, "name one client"),
        (("uninstall",), 2, "name one client"),
        (("install", "cursor", "--env", "A"), 2, "--env A is no NAME=VALUE"),
        (("install", "cursor", "--scope", "galaxy"), 2, "bad_scope"),
        (("install", "zed"), 3, "client_not_found"),
        (("install", "cursor", "--hooks"), 2, "no_hooks"),
    ],
)
def test_what_cannot_be_done_is_said(words: tuple[str, ...], status: int, said: str) -> None:
    ran = run(*words)
    assert (ran.status, ran.out) == (status, b"") and said in ran.err


def test_a_store_that_only_the_shell_knows_is_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_STORE", "sqlite:////x.db")
    assert "--store URL passes one on" in run("install", "cursor").err
    assert run("install", "cursor", "--store", "sqlite:////x.db").err == ""


# --- hooks --------------------------------------------------------------------------------------------------------

FETCH = {"tool_name": "WebFetch", "tool_input": {"url": "https://example.org/测试", "prompt": "what is it"}}


def fired(event: str, content: Any, *flags: str) -> Any:
    """Return what a hook answers, None for nothing. Its status is always 0."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    ran = run("hook", event, *flags, stdin=raw)
    assert ran.status == 0
    return ran.json["hookSpecificOutput"] if ran.out else None


def test_a_result_is_kept_after_a_tool_and_told_before_the_same_call() -> None:
    assert fired("PreToolUse", FETCH) is None
    fired("PostToolUse", {**FETCH, "tool_response": {"code": 200, "bytes": 9, "result": "an example 测试"}})
    told = fired("PreToolUse", FETCH)
    assert (told["hookEventName"], told["permissionDecision"]) == ("PreToolUse", "deny")
    assert "an example 测试" in told["permissionDecisionReason"]
    key = call_key(FETCH["tool_name"], FETCH["tool_input"])
    assert key in told["permissionDecisionReason"]
    assert run("peek", key).text == "an example 测试"
    assert fired("PreToolUse", {**FETCH, "tool_input": {"url": "https://example.org/other"}}) is None
    run("drop", key)
    assert fired("PreToolUse", FETCH) is None


def test_a_result_with_a_secret_is_kept_without_it_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "ghp_" + "a1B2" * 9
    for mode, told in (("redact", "[redacted GitHub token]"), ("refuse", None)):
        monkeypatch.setenv("PINFOLD_SECRETS", mode)
        event = {**FETCH, "tool_input": {"url": mode}}
        fired("PostToolUse", {**event, "tool_response": {"result": f"the token is {secret}"}})
        found = fired("PreToolUse", event)
        assert (found is None) if told is None else told in found["permissionDecisionReason"] and secret not in found["permissionDecisionReason"]


def test_what_a_tool_says_is_kept_as_text_where_it_is_text() -> None:
    for response, kept in [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ([{"type": "text", "text": "c"}], "c"),
        ("d", "d"),
        ({"results": [1, 2]}, '{"results":[1,2]}'),
        ([{"type": "image"}], '[{"type":"image"}]'),
    ]:
        fired("PostToolUse", {**FETCH, "tool_response": response})
        assert run("peek", call_key(FETCH["tool_name"], FETCH["tool_input"])).text == kept


@pytest.mark.parametrize("response", [None, {"is_error": True}, {"isError": True, "content": []}, {"code": 404, "result": "gone"}, {"interrupted": True}])
def test_a_failure_is_not_kept(response: Any) -> None:
    fired("PostToolUse", {**FETCH, "tool_response": response})
    assert fired("PreToolUse", FETCH) is None


def test_a_long_result_is_told_in_part_and_a_kept_one_ends_with_its_time() -> None:
    fired("PostToolUse", {**FETCH, "tool_response": "x" * 50_000}, "--ttl", "2h")
    reason = fired("PreToolUse", FETCH)["permissionDecisionReason"]
    assert len(reason) < 21_000 and "30000 more characters" in reason
    fired("PostToolUse", {**FETCH, "tool_response": "short"}, "--ttl", "1ms")
    with Memory() as memory:
        (name,) = [row.session_id for row in memory.sessions()]
        assert memory.session(name)._replica.state.silo.slots[call_key(FETCH["tool_name"], FETCH["tool_input"])].expires_at_ms is not None


def test_a_session_starts_with_the_rows_that_were_written_last(at_home: Path) -> None:
    assert fired("SessionStart", {"source": "startup", "cwd": str(at_home / "app")}) is None
    run("add", "+ TSK [T1] ; goal=ship\n+ MOD [M1] ; path=a.py\n+ [T1] --(touches)--> [M1]\nLAW01 name=style ; constraint=no globals")
    told = fired("SessionStart", {"source": "compact", "cwd": str(at_home / "app")})
    assert "TSK [T1] ; goal=ship" in told["additionalContext"] and "LAW01" in told["additionalContext"]
    assert "not instructions" in told["additionalContext"]
    assert fired("SessionStart", {"cwd": str(at_home / "elsewhere")}) is None


def test_the_session_is_saved_before_a_compaction(tmp_path: Path) -> None:
    fired("PreCompact", {"trigger": "auto"}, "--session", "none-yet")
    run("add", "+ TSK [T1] ; goal=ship", "--session", "a:b")
    fired("PreCompact", {"trigger": "auto"}, "--session", "a:b")
    (saved,) = tmp_path.rglob("saves/*")
    assert saved.name == "a_b.before-compaction.txt"
    assert "goal=ship" in saved.read_text()
    assert run("session", "load", "copy", "--file", str(saved)).status == 0


@pytest.mark.requirement("hooks")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"tool_name": 1}', b'{"tool_name": "x", "tool_input": [1]}', b"{}"])
@pytest.mark.parametrize("event", ["SessionStart", "PreToolUse", "PostToolUse", "PreCompact", "Nonsense", ""])
def test_no_input_can_make_a_hook_fail_or_say_anything_on_stdout(event: str, content: bytes) -> None:
    assert fired(event, content) is None
    assert fired(event, content, "--store", "nonsense") is None
    assert fired(event, content, "--ttl", "5") is None


def test_a_store_that_hangs_does_not_hold_the_client_up(tmp_path: Path) -> None:
    """The input never ends; the hook does, by itself, with 0 and nothing said."""
    code = "from pinfold.doors import hook; hook.HOOK_S = 0.2; import sys; sys.exit(hook.run_hook(['PreToolUse']))"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.wait(60) == 0
    assert child.stdin is not None and child.stdout is not None
    child.stdin.close()
    assert child.stdout.read() == b""
    child.stdout.close()
    assert hook.HOOK_S < 10


@pytest.mark.skipif(os.name == "nt", reason="needs sh")
def test_an_installed_hook_runs_by_its_own_line(at_home: Path) -> None:
    """The line in the settings is what a shell runs, and a store in a folder with blanks is the one it uses."""
    store = f"sqlite:///{at_home}/it's a store.db"
    assert run("install", "claude-code", "--force", "--hooks", "--session", "mine", "--store", store).status == 0
    settings = json.loads((at_home / ".claude" / "settings.json").read_text())["hooks"]

    def fire(event: str, content: Any) -> bytes:
        (call,) = [call for group in settings[event] for call in group["hooks"]]
        done = subprocess.run(["/bin/sh", "-c", call["command"]], input=json.dumps(content).encode(), capture_output=True, timeout=60, check=True)
        return done.stdout

    fire("PostToolUse", {**FETCH, "tool_response": "by a shell"})
    assert b"by a shell" in fire("PreToolUse", FETCH)
    assert run("peek", call_key(FETCH["tool_name"], FETCH["tool_input"]), "--session", "mine", "--store", store).text == "by a shell"


def test_a_hook_that_finds_nothing_imports_little() -> None:
    ran = process("hook", "PreToolUse", stdin=json.dumps(FETCH).encode(), python=("-X", "importtime"))
    imported = {line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time:")}
    assert ran.status == 0 and ran.out == b""
    assert "pinfold.session" in imported
    assert imported.isdisjoint({"asyncio", "logging", "dataclasses", "numpy", "inspect", "pinfold.install.clients", "pinfold.dialect.parse"})


def test_other_verbs_do_not_pay_for_installation() -> None:
    ran = subprocess.run(command("peek", "x", python=("-X", "importtime")), capture_output=True, text=True, timeout=60, check=True)
    assert "pinfold.install" not in ran.stderr and "pinfold.doors.install" not in ran.stderr and "pinfold.doors.hook" not in ran.stderr
