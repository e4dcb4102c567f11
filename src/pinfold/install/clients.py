"""The clients: where each keeps its servers on each system, under which key, in which shape. One row, one client.

Nothing here touches a file. `Place` is the machine as a row sees it, so that every system's paths can be told from any.
A client that keeps several files (an old and a new folder, two editions) names each; those whose folder is there count.
"""

from __future__ import annotations

import glob
import os
import posixpath
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

SCOPES = ("user", "project", "local")


class Place(msgspec.Struct, frozen=True):
    """A machine and where one stands on it. system: linux, darwin or win32. project: the root of the project one is in."""

    system: str
    env: Mapping[str, str]
    home: str
    project: str
    join: Callable[..., str] = os.path.join

    def settings(self) -> str:
        """Return the folder where programs of this system keep a user's settings."""
        if self.system == "win32":
            return self.env.get("APPDATA") or self.join(self.home, "AppData", "Roaming")
        if self.system == "darwin":
            return self.join(self.home, "Library", "Application Support")
        return self.env.get("XDG_CONFIG_HOME") or self.join(self.home, ".config")

    def dotfiles(self) -> str:
        """Return the folder of programs that keep to ~/.config on macOS too."""
        return self.join(self.home, ".config") if self.system == "darwin" else self.settings()


class Target(msgspec.Struct, frozen=True):
    """A file that lists servers: its format (json, jsonc, toml), the keys down to the list, and the folder that shows the client is there."""

    path: str
    format: str
    keys: tuple[str, ...]
    sign: str = ""


class Client(msgspec.Struct, frozen=True):
    """A client. files: scope -> its files there; the first scope is the default. more: what an entry has besides command, args, env.

    args: what the server is started with besides `mcp`. program: its own command line; add, remove: its words there, by
    scope, with {name}, {entry} (the entry as JSON) and {command} (command and arguments, as words) filled in, {env} as `env` says.
    """

    name: str
    title: str
    files: dict[str, Callable[[Place], list[Target]]]
    more: dict[str, Any] = {}
    args: tuple[str, ...] = ()
    program: str = ""
    add: dict[str, tuple[str, ...]] = {}
    remove: dict[str, tuple[str, ...]] = {}
    env: tuple[str, ...] = ()
    then: str = ""
    also: tuple[str, ...] = ()


def _user(format: str, key: str, *folders: Callable[[Place], str], file: str) -> Callable[[Place], list[Target]]:
    """Return the rule of one file in each of these folders of the user's, which show that the client is there."""
    return lambda place: [Target(place.join(path, file), format, (key,), path) for path in (folder(place) for folder in folders)]


def _project(format: str, key: str, *parts: str) -> Callable[[Place], list[Target]]:
    return lambda place: [Target(place.join(place.project, *parts), format, (key,))]


def _claude_file(place: Place) -> Target:
    folder = place.env.get("CLAUDE_CONFIG_DIR")
    return Target(place.join(folder or place.home, ".claude.json"), "json", ("mcpServers",), claude_folder(place))


def claude_folder(place: Place) -> str:
    """Return the folder of Claude Code's settings of a user."""
    return place.env.get("CLAUDE_CONFIG_DIR") or place.join(place.home, ".claude")


def _claude_local(place: Place) -> list[Target]:
    """The servers one keeps for oneself in one project, in the user's own file; on Windows it writes paths with slashes."""
    project = place.project.replace("\\", "/") if place.system == "win32" else place.project
    return [msgspec.structs.replace(_claude_file(place), keys=("projects", project, "mcpServers"))]


def _claude_desktop(place: Place) -> list[Target]:
    folders = [place.join(place.settings(), "Claude")]
    if place.system == "win32":
        local = place.env.get("LOCALAPPDATA") or place.join(place.home, "AppData", "Local")
        folders.append(place.join(local, "Packages", "Claude_pzs8sxrjxfjjc", "LocalCache", "Roaming", "Claude"))
        folders += sorted(glob.glob(place.join(glob.escape(local), "Claude-Data", "claude_*")))
    return [Target(place.join(folder, "claude_desktop_config.json"), "json", ("mcpServers",), folder) for folder in folders]


CLIENTS = (
    Client(
        "claude-code",
        "Claude Code",
        {
            "user": lambda place: [_claude_file(place)],
            "project": _project("json", "mcpServers", ".mcp.json"),
            "local": _claude_local,
        },
        more={"type": "stdio"},
        program="claude",
        add={scope: ("mcp", "add", "{name}", "-s", scope, "{env}", "--", "{command}") for scope in SCOPES},
        remove={scope: ("mcp", "remove", "{name}", "-s", scope) for scope in SCOPES},
        env=("-e", "{pair}"),
        then="a session that runs sees it after /mcp or a restart; a project's file is asked about once",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        {"user": _claude_desktop},
        args=("--session", "desktop"),  # it starts servers in the home folder, which is no project
        then="quit Claude Desktop and start it again",
    ),
    Client(
        "cursor",
        "Cursor",
        {
            "user": _user("json", "mcpServers", lambda place: place.join(place.home, ".cursor"), file="mcp.json"),
            "project": _project("json", "mcpServers", ".cursor", "mcp.json"),
        },
        then="restart Cursor",
    ),
    Client(
        "vscode",
        "VS Code",
        {
            "user": _user(
                "jsonc",
                "servers",
                lambda place: place.join(place.settings(), "Code", "User"),
                lambda place: place.join(place.settings(), "Code - Insiders", "User"),
                file="mcp.json",
            ),
            "project": _project("jsonc", "servers", ".vscode", "mcp.json"),
        },
        more={"type": "stdio"},
        program="code",
        add={"user": ("--add-mcp", "{entry}")},
        then="VS Code asks whether to trust it when it is first started",
        also=("code", "copilot"),
    ),
    Client(
        "windsurf",
        "Windsurf (Devin Desktop)",
        {
            "user": _user(
                "jsonc",
                "mcpServers",
                lambda place: place.join(place.dotfiles(), "devin"),
                lambda place: place.join(place.home, ".codeium", "windsurf"),
                file="mcp_config.json",
            ),
            "project": _project("jsonc", "mcpServers", ".devin", "mcp_config.json"),
        },
        then="press Refresh in its MCP settings, or restart it",
        also=("devin",),
    ),
    Client(
        "codex",
        "Codex",
        {
            "user": _user("toml", "mcp_servers", lambda place: place.env.get("CODEX_HOME") or place.join(place.home, ".codex"), file="config.toml"),
            "project": _project("toml", "mcp_servers", ".codex", "config.toml"),
        },
        program="codex",
        add={"user": ("mcp", "add", "{name}", "{env}", "--", "{command}")},
        remove={"user": ("mcp", "remove", "{name}")},
        env=("--env", "{pair}"),
        then="a project's file counts where the project is trusted",
    ),
    Client(
        "gemini",
        "Gemini CLI",
        {
            "user": _user("jsonc", "mcpServers", lambda place: place.join(place.home, ".gemini"), file="settings.json"),
            "project": _project("jsonc", "mcpServers", ".gemini", "settings.json"),
        },
        # `gemini mcp add` is not asked: it lays the whole file out anew (0.61.0), an edit leaves it as it is.
    ),
    Client(
        "zed",
        "Zed",
        {
            "user": _user(
                "jsonc",
                "context_servers",
                lambda place: place.join(place.dotfiles(), "Zed" if place.system == "win32" else "zed"),
                file="settings.json",
            ),
            "project": _project("jsonc", "context_servers", ".zed", "settings.json"),
        },
    ),
    Client(
        "project",
        "this project's .mcp.json",
        {"project": _project("json", "mcpServers", ".mcp.json")},
        more={"type": "stdio"},
        then="Claude Code and Copilot read it; Claude Code asks about it once",
    ),
)


def client_of(name: str) -> Client | None:
    """Return the client of a name, None for none."""
    plain = name.lower().replace("_", "-").replace(" ", "-")
    return next((client for client in CLIENTS if plain in (client.name, *client.also)), None)


def place_here() -> Place:
    """Return this machine, and the project of the current folder: the enclosing git root, else the folder."""
    system = sys.platform if sys.platform in ("win32", "darwin") else "linux"
    home, folder = os.path.expanduser("~"), os.getcwd()
    root = folder
    while root != home and not os.path.exists(os.path.join(root, ".git")) and os.path.dirname(root) != root:
        root = os.path.dirname(root)
    is_project = root != home and os.path.dirname(root) != root  # a home full of dotfiles is none
    return Place(system, os.environ, home, root if is_project else folder)


def words_of(client: Client, words: tuple[str, ...], name: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a client's own command line. {env} stands for one pair of words a variable."""
    made: list[str] = []
    for word in words:
        if word == "{env}":
            for key, value in entry.get("env", {}).items():
                made += [part.replace("{pair}", f"{key}={value}") for part in client.env]
        elif word == "{command}":
            made += [entry["command"], *entry["args"]]
        elif word == "{entry}":
            made.append(msgspec.json.encode({"name": name, **entry}).decode())
        else:
            made.append(word.replace("{name}", name))
    return made


def executable(system: str = sys.platform) -> list[str]:
    """Return the command that runs this pinfold from anywhere: the script beside the interpreter, else the interpreter itself."""
    from shutil import which

    name = "pinfold.exe" if system == "win32" else "pinfold"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    for path in (beside, which("pinfold")):
        if path and os.path.isfile(path):
            return [os.path.abspath(path)]
    return [sys.executable, "-m", "pinfold"]


def is_ours(entry: Any) -> bool:
    """Return whether an entry starts pinfold: by its own command, or as a module or tool of another one."""
    if not isinstance(entry, dict):
        return False
    args = entry.get("args")
    words = [str(entry.get("command", "")), *(map(str, args) if isinstance(args, list) else ())]
    names = [posixpath.basename(word.replace("\\", "/")).removesuffix(".exe") for word in words]
    return "pinfold" in names and "mcp" in names[names.index("pinfold") + 1 :]
