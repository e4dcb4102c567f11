"""Registering with every client under a fake home of every system: only our key comes, a second run changes nothing, it goes without a trace."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pinfold.errors import ConfigurationError, Refused
from pinfold.install import actions
from pinfold.install.actions import Wish, deeplink, find_clients, install, uninstall
from pinfold.install.clients import CLIENTS, Client, Place, client_of
from pinfold.install.jsonedit import Document

pytestmark = pytest.mark.requirement("install")

COMMAND = "/opt/测试 x/pinfold"

JSON = '{\n    "theme":   "dark",\n    "mcpServers": {\n        "other": {"command": "x", "args": [ ]}\n    }\n}'
JSONC = '// mine\n{\n\t"theme":   "dark", // dark\n\t"KEY": {\n\t\t"other": {"command": "x", "args": [ ],},\n\t},\n\t/* last */\n}\n'
TOML = "# mine\nmodel = \"o\"   # big\n\n[KEY.other]\ncommand = 'x'\nargs = [ ]\n\n# last\n"
FORMS = {"json": JSON, "jsonc": JSONC, "toml": TOML}
GOLDENS = {
    (row["client"], row["scope"]): row for row in map(json.loads, (Path(__file__).parents[1] / "goldens" / "install.jsonl").read_text("utf-8").splitlines())
}
"""What stands in each file afterwards, and where it lies on each system: ~ is the home, ~/my app the project."""


@pytest.fixture(autouse=True)
def no_client_is_really_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "executable", lambda system: [COMMAND])
    monkeypatch.setenv("PATH", os.devnull)


def home(tmp_path: Path, system: str) -> Place:
    """A machine of that system under a folder with a space and more than ASCII in its name."""
    root = tmp_path / "测试 home"
    project = root / "my app"
    project.mkdir(parents=True)
    env = {"APPDATA": str(root / "Roaming"), "LOCALAPPDATA": str(root / "Local")} if system == "win32" else {}
    return Place(system, env, str(root), str(project))


def client(name: str) -> Client:
    found = client_of(name)
    assert found is not None
    return found


CASES = [(row.name, scope, system) for row in CLIENTS for scope in row.files for system in ("linux", "darwin", "win32")]


@pytest.mark.parametrize(("name", "scope", "system"), CASES)
def test_only_our_key_comes_and_it_goes_without_a_trace(name: str, scope: str, system: str, tmp_path: Path) -> None:
    place = home(tmp_path, system)
    target = client(name).files[scope](place)[0]
    before = FORMS[target.format].replace("KEY", target.keys[0])
    file = Path(target.path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before.encode())
    wish = Wish(scope, env={"PINFOLD_STORE": "sqlite:////data/测试.db"})

    dry = install(client(name), Wish(scope, env=wish.env, dry_run=True), place)
    assert [step.status for step in dry] == ["would_install"] and "+" in dry[0].diff
    assert file.read_bytes() == before.encode()

    (step,) = install(client(name), wish, place)
    after = file.read_text("utf-8")
    assert (step.status, step.via, step.file) == ("installed", "edit", target.path)
    golden = GOLDENS[name, scope]
    assert target.path.replace(place.home, "~").replace(os.sep, "/") == golden["files"][system]
    assert after.replace(place.home.replace(os.sep, "/"), "~") == golden["text"]
    assert Path(step.backup).read_bytes() == before.encode()
    if target.format == "toml":
        assert after.startswith(before)
        entry = tomllib.loads(after)["mcp_servers"]["pinfold"]
    else:
        document = Document(after, comments=target.format == "jsonc")
        entry = document.get((*target.keys, "pinfold"))
        _, left = document.find((*target.keys, "pinfold"))
        assert left == ()
        assert document.get((target.keys[0], "other")) == {"command": "x", "args": []} or target.keys[0] == "projects"
        assert _without(document, target.keys) == before
    expected = "pinfold" if scope == "project" else COMMAND
    assert (entry["command"], entry["args"][0], entry["env"]) == (expected, "mcp", wish.env)

    assert [again.status for again in install(client(name), wish, place)] == ["unchanged"]
    assert [again.status for again in install(client(name), Wish(scope), place)] == ["unchanged"]
    assert file.read_text("utf-8") == after
    assert [gone.status for gone in uninstall(client(name), Wish(scope), place)] == ["removed"]
    assert file.read_bytes() == before.encode()
    assert [gone.status for gone in uninstall(client(name), Wish(scope), place)] == ["absent"]


def _without(document: Document, keys: tuple[str, ...]) -> str:
    return document.cleared((*keys, "pinfold"))


@pytest.mark.parametrize(("name", "scope", "system"), CASES)
def test_where_no_file_is_one_is_made_if_the_client_is_there(name: str, scope: str, system: str, tmp_path: Path) -> None:
    place = home(tmp_path, system)
    target = client(name).files[scope](place)[0]
    if target.sign:
        with pytest.raises(Refused) as refused:
            install(client(name), Wish(scope), place)
        assert refused.value.code == "client_not_found"
        Path(target.sign).mkdir(parents=True)
    (step,) = install(client(name), Wish(scope), place)
    assert (step.status, step.backup) == ("installed", "")
    text = Path(target.path).read_text("utf-8")
    found: Any = tomllib.loads(text) if target.format == "toml" else json.loads(text)
    for key in (*target.keys, "pinfold"):
        found = found[key]
    assert found["args"][:1] == ["mcp"]
    (gone,) = uninstall(client(name), Wish(scope), place)
    assert gone.status == "removed"
    assert Path(target.path).read_text("utf-8") == ("" if target.format == "toml" else "{}\n")


@pytest.mark.parametrize("content", [b"", b" \n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_one_without_servers(content: bytes, tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".mcp.json")
    file.write_bytes(content)
    install(client("project"), Wish("project"), place)
    assert json.loads(file.read_text("utf-8"))["mcpServers"]["pinfold"]["command"] == "pinfold"


def test_force_makes_the_file_of_a_client_that_seems_not_to_be_here(tmp_path: Path) -> None:
    place = home(tmp_path, "darwin")
    (step,) = install(client("cursor"), Wish("user", force=True), place)
    assert step.status == "installed" and os.path.exists(step.file)


def test_a_client_with_two_homes_is_told_in_both(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    for target in client("windsurf").files["user"](place):
        Path(target.sign).mkdir(parents=True)
    steps = install(client("windsurf"), Wish("user"), place)
    assert [step.file for step in steps] == [target.path for target in client("windsurf").files["user"](place)]
    assert {step.status for step in steps} == {"installed"}


def test_an_entry_of_ours_is_brought_up_to_date_and_what_its_user_put_there_stays(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".cursor", "mcp.json")
    file.parent.mkdir()
    file.write_text(
        '{"mcpServers": {"pinfold": {\n  "command": "/old/pinfold", "disabled": false,\n  "args": ["mcp", "--tools", "all"], "env": {"MINE": "1"}}}}'
    )
    (step,) = install(client("cursor"), Wish("project", env={"PINFOLD_SESSION": "s"}), place)
    assert step.status == "updated"
    assert file.read_text() == (
        '{"mcpServers": {"pinfold": {\n  "command": "pinfold", "disabled": false,\n  "args": ["mcp"], "env": {"MINE": "1", "PINFOLD_SESSION": "s"}}}}'
    )


@pytest.mark.parametrize("name", ["cursor", "codex"])
def test_an_entry_of_that_name_which_is_not_ours_is_never_touched(name: str, tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    target = client(name).files["project"](place)[0]
    Path(target.path).parent.mkdir()
    text = '[mcp_servers.pinfold]\ncommand = "evil"\n' if target.format == "toml" else '{"mcpServers": {"pinfold": {"command": "evil"}}}'
    Path(target.path).write_text(text)
    for do in (install, uninstall):
        with pytest.raises(Refused) as refused:
            do(client(name), Wish("project"), place)
        assert refused.value.code == "name_taken"
    assert Path(target.path).read_text() == text


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b'{"mcpServers": {', "invalid_file"),
        (b'{"mcpServers": {}} // words', "invalid_file"),
        (b'{"mcpServers": []}', "invalid_file"),
        (b'{"mcpServers": {"a": "\xff"}}', "not_utf8"),
        ('{"mcpServers": {}}'.encode("utf-16"), "not_utf8"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_left_as_it_is(content: bytes, code: str, tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".mcp.json")
    file.write_bytes(content)
    for do in (install, uninstall):
        with pytest.raises(Refused) as refused:
            do(client("project"), Wish("project"), place)
        assert refused.value.code == code
    assert os.listdir(place.project) == [".mcp.json"]
    assert file.read_bytes() == content


def test_a_link_is_followed_and_the_mode_is_kept(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    kept = tmp_path / "dotfiles.json"
    kept.write_text("{}")
    kept.chmod(0o600)
    link = Path(place.home, ".cursor", "mcp.json")
    link.parent.mkdir()
    link.symlink_to(kept)
    install(client("cursor"), Wish("user"), place)
    assert link.is_symlink()
    assert "pinfold" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["dotfiles.json", "测试 home"]


def test_a_folder_in_the_files_place_and_a_scope_that_is_none_are_named(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    Path(place.project, ".mcp.json").mkdir()
    with pytest.raises(ConfigurationError) as refused:
        install(client("project"), Wish("project"), place)
    assert refused.value.code == "bad_path"
    for do in (install, uninstall):
        with pytest.raises(ConfigurationError) as refused:
            do(client("zed"), Wish("local"), place)
        assert refused.value.code == "bad_scope"
    with pytest.raises(ConfigurationError) as refused:
        install(client("zed"), Wish("project", tools=""), place)
    assert refused.value.code == "no_hooks"


def test_a_file_that_another_program_changes_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".mcp.json")
    file.write_text("{}")
    backup = actions.files.backup

    def meanwhile(path: str) -> str:
        file.write_text('{"theirs": 1}')
        return backup(path)

    monkeypatch.setattr(actions.files, "backup", meanwhile)
    with pytest.raises(Refused) as refused:
        install(client("project"), Wish("project"), place)
    assert refused.value.code == "changed_meanwhile"
    assert file.read_text() == '{"theirs": 1}'


# --- a client's own command line ----------------------------------------------------------------------------------


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> Path:
    """Put a stand-in of a client's command line on the path; it notes what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    said = tmp_path / "said"
    file = folder / name
    file.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> "{said}"\n{script}\n')
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return said


@pytest.mark.skipif(os.name == "nt", reason="a stand-in is a shell script")
def test_the_clients_own_command_line_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.home, ".codex", "config.toml")
    file.parent.mkdir()
    block = f'[mcp_servers.pinfold]\\ncommand = "{COMMAND}"\\nargs = ["mcp"]\\n'
    said = program(tmp_path, monkeypatch, "codex", f"if [ $2 = add ]; then printf '{block}' > '{file}'; else : > '{file}'; fi")
    (step,) = install(client("codex"), Wish("user"), place)
    assert (step.status, step.via) == ("installed", f"{tmp_path}/bin/codex mcp add pinfold -- {COMMAND} mcp")
    assert said.read_text().splitlines() == ["mcp", "add", "pinfold", "--", COMMAND, "mcp"]
    assert [again.status for again in install(client("codex"), Wish("user"), place)] == ["unchanged"]
    (step,) = uninstall(client("codex"), Wish("user"), place)
    assert (step.status, step.via) == ("removed", f"{tmp_path}/bin/codex mcp remove pinfold")
    assert file.read_text() == ""
    (step,) = install(client("codex"), Wish("user", own_program=False), place)
    assert step.via == "edit"


@pytest.mark.skipif(os.name == "nt", reason="a stand-in is a shell script")
@pytest.mark.parametrize(("script", "why"), [("echo no login >&2; exit 3", "no login"), ("exit 0", "it said nothing"), ("exit 7", "it ended with 7")])
def test_where_the_clients_own_command_line_fails_the_file_is_edited(script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path, "linux")
    program(tmp_path, monkeypatch, "claude", script)
    (step,) = install(client("claude-code"), Wish("project"), place)
    assert (step.status, step.via) == ("installed", "edit")
    assert step.note.endswith(why)
    assert json.loads(Path(step.file).read_text())["mcpServers"]["pinfold"] == {"type": "stdio", "command": "pinfold", "args": ["mcp"]}


@pytest.mark.skipif(os.name == "nt", reason="a stand-in is a shell script")
def test_a_batch_file_is_not_given_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home(tmp_path, "win32")
    said = program(tmp_path, monkeypatch, "code.cmd", "exit 0")
    monkeypatch.setattr(actions.shutil, "which", lambda name: str(tmp_path / "bin" / "code.cmd") if name == "code" else None)
    (step,) = install(client("vscode"), Wish("user"), place)
    assert step.via == "edit" and not said.exists()


# --- hooks --------------------------------------------------------------------------------------------------------


def test_hooks_come_once_beside_those_of_others_and_go_again(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".claude", "settings.json")
    file.parent.mkdir()
    before = """\
{
  "permissions": {"allow": ["Bash(ls:*)"]},
  "hooks": {
    "PreToolUse": [
      {"matcher": "Bash", "hooks": [{"type": "command", "command": "my-hook pinfold"}]}
    ]
  }
}
"""
    file.write_text(before)
    server, hooks = install(client("claude-code"), Wish("project", tools=""), place)
    assert (server.what, hooks.what, hooks.status) == ("server", "hooks", "installed")
    assert Path(hooks.backup).read_text() == before
    found = json.loads(file.read_text())
    assert found["hooks"]["PreToolUse"] == [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "my-hook pinfold"}]},
        {"matcher": "WebFetch|WebSearch", "hooks": [{"type": "command", "command": "pinfold hook PreToolUse", "timeout": 10}]},
    ]
    assert list(found["hooks"]) == ["PreToolUse", "SessionStart", "PostToolUse", "PreCompact"]
    after = file.read_text()
    assert [step.status for step in install(client("claude-code"), Wish("project", tools=""), place)] == ["unchanged", "unchanged"]
    _, hooks = install(client("claude-code"), Wish("project", tools="WebFetch", flags=("--session", "s")), place)
    assert hooks.status == "updated"
    found = json.loads(file.read_text())
    assert found["hooks"]["PostToolUse"] == [
        {"matcher": "WebFetch", "hooks": [{"type": "command", "command": "pinfold hook PostToolUse --session s", "timeout": 10}]}
    ]
    install(client("claude-code"), Wish("project", tools=""), place)
    assert file.read_text() == after
    assert [(step.what, step.status) for step in uninstall(client("claude-code"), Wish("project"), place)] == [("server", "removed"), ("hooks", "removed")]
    assert file.read_text() == before


def test_our_call_in_a_group_with_others_goes_alone(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".claude", "settings.json")
    file.parent.mkdir()
    text = '{"hooks": {"PreCompact": [{"hooks": [{"type": "command", "command": "a"}, {"type": "command", "command": "/x/pinfold hook PreCompact"}]}]}}'
    file.write_text(text)
    (step,) = [step for step in uninstall(client("claude-code"), Wish("project"), place) if step.what == "hooks"]
    assert step.status == "removed"
    assert file.read_text() == '{"hooks": {"PreCompact": [{"hooks": [{"type": "command", "command": "a"}]}]}}'


def test_hooks_that_are_no_list_are_refused(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    file = Path(place.project, ".claude", "settings.json")
    file.parent.mkdir()
    for text in ('{"hooks": {"PreCompact": {}}}', '{"hooks": []}'):
        file.write_text(text)
        with pytest.raises(Refused) as refused:
            install(client("claude-code"), Wish("project", tools=""), place)
        assert refused.value.code == "invalid_file"
        assert file.read_text() == text


# --- what is here -------------------------------------------------------------------------------------------------


def test_the_clients_that_are_here_are_found_and_where_pinfold_is_registered(tmp_path: Path) -> None:
    place = home(tmp_path, "linux")
    Path(place.home, ".cursor").mkdir()
    Path(place.home, ".codex").mkdir()
    Path(place.home, ".codex", "config.toml").write_text("broken = ")
    install(client("cursor"), Wish("user"), place)
    install(client("project"), Wish("project"), place)
    found = {row.client: row for row in find_clients(place)}
    assert [name for name, row in found.items() if row.there] == ["cursor", "codex", "project"]
    assert found["cursor"].registered == [str(Path(place.home, ".cursor", "mcp.json"))]
    assert found["claude-code"].registered == found["project"].registered == [str(Path(place.project, ".mcp.json"))]
    assert found["codex"].problem.startswith("invalid_file")


def test_cursors_link_holds_the_entry() -> None:
    from base64 import urlsafe_b64decode

    link = deeplink({"command": "/测试/pinfold", "args": ["mcp"]})
    config = re.fullmatch(r"cursor://anysphere\.cursor-deeplink/mcp/install\?name=pinfold&config=([A-Za-z0-9_=-]+)", link)
    assert config is not None
    assert json.loads(urlsafe_b64decode(config[1])) == {"command": "/测试/pinfold", "args": ["mcp"]}
