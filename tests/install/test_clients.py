"""The table of clients: where each keeps its servers on each system, and what is written there."""

from __future__ import annotations

import ntpath
import posixpath
from typing import Any

import pytest

from pinfold.install.actions import Wish, entry_for, snippet
from pinfold.install.clients import CLIENTS, Place, client_of, is_ours, words_of
from pinfold.install.hooks import groups, settings_of

LINUX = Place("linux", {}, "/home/测试", "/home/测试/my app", posixpath.join)
XDG = Place("linux", {"XDG_CONFIG_HOME": "/cfg", "CODEX_HOME": "/codex", "CLAUDE_CONFIG_DIR": "/claude"}, "/home/a", "/p", posixpath.join)
MAC = Place("darwin", {}, "/Users/a b", "/Users/a b/app", posixpath.join)
WINDOWS = Place(
    "win32",
    {"APPDATA": "C:\\Users\\测试\\AppData\\Roaming", "LOCALAPPDATA": "C:\\Users\\测试\\AppData\\Local"},
    "C:\\Users\\测试",
    "C:\\Users\\测试\\my app",
    ntpath.join,
)
BARE = Place("win32", {}, "D:\\h", "D:\\p", ntpath.join)

MSIX = "Packages\\Claude_pzs8sxrjxfjjc\\LocalCache\\Roaming\\Claude\\claude_desktop_config.json"
FILES: dict[str, dict[str, list[str]]] = {
    "claude-code": {
        "linux": ["/home/测试/.claude.json"],
        "xdg": ["/claude/.claude.json"],
        "darwin": ["/Users/a b/.claude.json"],
        "win32": ["C:\\Users\\测试\\.claude.json"],
        "bare": ["D:\\h\\.claude.json"],
        "project": ["/home/测试/my app/.mcp.json"],
    },
    "claude-desktop": {
        "linux": ["/home/测试/.config/Claude/claude_desktop_config.json"],
        "xdg": ["/cfg/Claude/claude_desktop_config.json"],
        "darwin": ["/Users/a b/Library/Application Support/Claude/claude_desktop_config.json"],
        "win32": ["C:\\Users\\测试\\AppData\\Roaming\\Claude\\claude_desktop_config.json", f"C:\\Users\\测试\\AppData\\Local\\{MSIX}"],
        "bare": ["D:\\h\\AppData\\Roaming\\Claude\\claude_desktop_config.json", f"D:\\h\\AppData\\Local\\{MSIX}"],
    },
    "cursor": {
        "linux": ["/home/测试/.cursor/mcp.json"],
        "xdg": ["/home/a/.cursor/mcp.json"],
        "darwin": ["/Users/a b/.cursor/mcp.json"],
        "win32": ["C:\\Users\\测试\\.cursor\\mcp.json"],
        "bare": ["D:\\h\\.cursor\\mcp.json"],
        "project": ["/home/测试/my app/.cursor/mcp.json"],
    },
    "vscode": {
        "linux": ["/home/测试/.config/Code/User/mcp.json", "/home/测试/.config/Code - Insiders/User/mcp.json"],
        "xdg": ["/cfg/Code/User/mcp.json", "/cfg/Code - Insiders/User/mcp.json"],
        "darwin": [
            "/Users/a b/Library/Application Support/Code/User/mcp.json",
            "/Users/a b/Library/Application Support/Code - Insiders/User/mcp.json",
        ],
        "win32": [
            "C:\\Users\\测试\\AppData\\Roaming\\Code\\User\\mcp.json",
            "C:\\Users\\测试\\AppData\\Roaming\\Code - Insiders\\User\\mcp.json",
        ],
        "bare": ["D:\\h\\AppData\\Roaming\\Code\\User\\mcp.json", "D:\\h\\AppData\\Roaming\\Code - Insiders\\User\\mcp.json"],
        "project": ["/home/测试/my app/.vscode/mcp.json"],
    },
    "windsurf": {
        "linux": ["/home/测试/.config/devin/mcp_config.json", "/home/测试/.codeium/windsurf/mcp_config.json"],
        "xdg": ["/cfg/devin/mcp_config.json", "/home/a/.codeium/windsurf/mcp_config.json"],
        "darwin": ["/Users/a b/.config/devin/mcp_config.json", "/Users/a b/.codeium/windsurf/mcp_config.json"],
        "win32": ["C:\\Users\\测试\\AppData\\Roaming\\devin\\mcp_config.json", "C:\\Users\\测试\\.codeium\\windsurf\\mcp_config.json"],
        "bare": ["D:\\h\\AppData\\Roaming\\devin\\mcp_config.json", "D:\\h\\.codeium\\windsurf\\mcp_config.json"],
        "project": ["/home/测试/my app/.devin/mcp_config.json"],
    },
    "codex": {
        "linux": ["/home/测试/.codex/config.toml"],
        "xdg": ["/codex/config.toml"],
        "darwin": ["/Users/a b/.codex/config.toml"],
        "win32": ["C:\\Users\\测试\\.codex\\config.toml"],
        "bare": ["D:\\h\\.codex\\config.toml"],
        "project": ["/home/测试/my app/.codex/config.toml"],
    },
    "gemini": {
        "linux": ["/home/测试/.gemini/settings.json"],
        "xdg": ["/home/a/.gemini/settings.json"],
        "darwin": ["/Users/a b/.gemini/settings.json"],
        "win32": ["C:\\Users\\测试\\.gemini\\settings.json"],
        "bare": ["D:\\h\\.gemini\\settings.json"],
        "project": ["/home/测试/my app/.gemini/settings.json"],
    },
    "zed": {
        "linux": ["/home/测试/.config/zed/settings.json"],
        "xdg": ["/cfg/zed/settings.json"],
        "darwin": ["/Users/a b/.config/zed/settings.json"],
        "win32": ["C:\\Users\\测试\\AppData\\Roaming\\Zed\\settings.json"],
        "bare": ["D:\\h\\AppData\\Roaming\\Zed\\settings.json"],
        "project": ["/home/测试/my app/.zed/settings.json"],
    },
    "project": {"project": ["/home/测试/my app/.mcp.json"]},
}
PLACES = {"linux": LINUX, "xdg": XDG, "darwin": MAC, "win32": WINDOWS, "bare": BARE, "project": LINUX}


def test_every_client_has_its_files_on_every_system() -> None:
    assert list(FILES) == [client.name for client in CLIENTS]
    for client in CLIENTS:
        for where, wanted in FILES[client.name].items():
            scope = "project" if where == "project" else "user"
            assert [target.path for target in client.files[scope](PLACES[where])] == wanted, (client.name, where)
        assert ("project" in FILES[client.name]) == ("project" in client.files)


KEYS = {"vscode": "servers", "codex": "mcp_servers", "zed": "context_servers"}


def test_every_file_has_its_key_and_format() -> None:
    formats = {"vscode": "jsonc", "windsurf": "jsonc", "gemini": "jsonc", "zed": "jsonc", "codex": "toml"}
    for client in CLIENTS:
        for scope, rule in client.files.items():
            for target in rule(LINUX):
                keys = (KEYS.get(client.name, "mcpServers"),)
                assert target.keys == (("projects", LINUX.project, "mcpServers") if scope == "local" else keys)
                assert target.format == formats.get(client.name, "json")


def test_a_project_on_windows_is_named_with_slashes_in_claude_codes_file() -> None:
    (target,) = CLIENTS[0].files["local"](WINDOWS)
    assert (target.path, target.keys) == ("C:\\Users\\测试\\.claude.json", ("projects", "C:/Users/测试/my app", "mcpServers"))


def test_an_edition_of_claude_desktop_with_a_folder_of_its_own_is_found(tmp_path: Any) -> None:
    folder = tmp_path / "Claude-Data" / "claude_2f"
    folder.mkdir(parents=True)
    place = Place("win32", {"LOCALAPPDATA": str(tmp_path)}, str(tmp_path), str(tmp_path))
    client = client_of("claude-desktop")
    assert client is not None
    assert client.files["user"](place)[-1].path == str(folder / "claude_desktop_config.json")


ENTRIES: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "stdio", "command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "claude-desktop": {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp", "--session", "desktop"]},
    "cursor": {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "vscode": {"type": "stdio", "command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "windsurf": {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "codex": {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "gemini": {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "zed": {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"]},
    "project": {"type": "stdio", "command": "pinfold", "args": ["mcp"]},
}


def test_every_client_has_its_shape_of_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinfold.install.actions.executable", lambda system: ["C:\\Users\\测试\\pinfold.exe"])
    for client in CLIENTS:
        entry = entry_for(client, Wish(next(iter(client.files))), WINDOWS)
        assert entry == ENTRIES[client.name]
        assert is_ours(entry)
        if "project" in client.files:
            assert entry_for(client, Wish("project"), WINDOWS)["command"] == "pinfold"
    more = entry_for(CLIENTS[1], Wish("user", args=("--tools", "core"), env={"PINFOLD_SESSION": "s"}), WINDOWS)
    assert (more["args"], more["env"]) == (["mcp", "--tools", "core"], {"PINFOLD_SESSION": "s"})


def test_a_snippet_is_what_stands_in_the_file() -> None:
    codex, zed = client_of("codex"), client_of("ZED")
    assert codex is not None and zed is not None
    entry = {"command": "p", "args": ["mcp"], "env": {"A": "1"}}
    assert snippet(codex.files["user"](LINUX)[0], entry) == '[mcp_servers.pinfold]\ncommand = "p"\nargs = ["mcp"]\n\n[mcp_servers.pinfold.env]\nA = "1"\n'
    assert snippet(zed.files["user"](LINUX)[0], {"command": "p"}) == '{\n  "context_servers": {\n    "pinfold": {\n      "command": "p"\n    }\n  }\n}\n'


OWN = {
    ("claude-code", "user"): "mcp add pinfold -s user -e A=1 -e B=x y -- /b/pinfold mcp",
    ("claude-code", "local"): "mcp add pinfold -s local -e A=1 -e B=x y -- /b/pinfold mcp",
    ("codex", "user"): "mcp add pinfold --env A=1 --env B=x y -- /b/pinfold mcp",
    ("vscode", "user"): '--add-mcp {"name":"pinfold","command":"/b/pinfold","args":["mcp"],"env":{"A":"1","B":"x y"}}',
}


@pytest.mark.parametrize(("name", "scope"), OWN)
def test_a_clients_own_command_line_is_asked_in_its_own_words(name: str, scope: str) -> None:
    client = client_of(name)
    assert client is not None
    entry = {"command": "/b/pinfold", "args": ["mcp"], "env": {"A": "1", "B": "x y"}}
    assert " ".join(words_of(client, client.add[scope], "pinfold", entry)) == OWN[name, scope]


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"command": "/a b/pinfold", "args": ["mcp", "--tools", "all"]}, True),
        ({"command": "C:\\x\\pinfold.exe", "args": ["mcp"]}, True),
        ({"command": "uvx", "args": ["pinfold", "mcp"]}, True),
        ({"command": "python3", "args": ["-m", "pinfold", "mcp"]}, True),
        ({"command": "/a/pinfold", "args": ["serve"]}, False),
        ({"command": "mcp", "args": ["pinfold"]}, False),
        ({"command": "node", "args": ["pinfold.js", "mcp"]}, False),
        ({"url": "http://127.0.0.1/mcp"}, False),
        ({"command": "pinfold", "args": "mcp"}, False),
        ("pinfold mcp", False),
        (None, False),
    ],
)
def test_an_entry_is_ours_where_it_starts_our_server(entry: Any, ours: bool) -> None:
    assert is_ours(entry) is ours


def test_hooks_stand_in_the_settings_of_their_scope_quoted_for_the_shell_that_runs_them() -> None:
    assert settings_of(LINUX, "user").path == "/home/测试/.claude/settings.json"
    assert settings_of(XDG, "user").path == "/claude/settings.json"
    assert settings_of(WINDOWS, "project").path == "C:\\Users\\测试\\my app\\.claude\\settings.json"
    assert settings_of(MAC, "local").path == "/Users/a b/app/.claude/settings.local.json"
    made = groups(["C:\\Users\\测试 X\\pinfold.exe"], ["--session", "a b"], "WebFetch", "win32")
    assert made["PreToolUse"] == {
        "matcher": "WebFetch",
        "hooks": [{"type": "command", "command": "'C:/Users/测试 X/pinfold.exe' hook PreToolUse --session 'a b'", "timeout": 10}],
    }
    assert made["SessionStart"] == {"hooks": [{"type": "command", "command": "'C:/Users/测试 X/pinfold.exe' hook SessionStart --session 'a b'", "timeout": 10}]}
    assert list(made) == ["SessionStart", "PreToolUse", "PostToolUse", "PreCompact"]
