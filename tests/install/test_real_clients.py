"""The command lines of Claude Code, Codex and Gemini themselves accept what `install` leaves behind: theirs asked, and the file edited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.peers import node_modules_with, python_with

pytestmark = pytest.mark.heavy

RUN_S = 300
SOURCE = Path(__file__).resolve().parents[2] / "src"


class There(NamedTuple):
    """A home with one client's command line on the path, and a project in it."""

    home: Path
    env: dict[str, str]

    def run(self, *argv: str) -> str:
        done = subprocess.run(
            argv, cwd=self.home / "app", env=self.env, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=RUN_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr  # Gemini lists on stderr

    def pinfold(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "pinfold", *words)


@pytest.fixture
def there(request: pytest.FixtureRequest, tmp_path: Path) -> There:
    (tmp_path / "app" / ".git").mkdir(parents=True)
    folders = [os.path.dirname(subprocess.check_output(["sh", "-c", "command -v node"], text=True).strip())] if request.param != "claude" else []
    if request.param == "claude":
        python = python_with(request, "claude-agent-sdk==0.2.189")
        (program,) = python.parents[1].glob("lib/python*/site-packages/claude_agent_sdk/_bundled/claude")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "claude").symlink_to(program)
        folders.append(str(tmp_path / "bin"))
    else:
        package = {"codex": "@openai/codex@0.171.0", "gemini": "@google/gemini-cli@0.61.0"}[request.param]
        folders.append(str(node_modules_with(request, package) / ".bin"))
    env = {"PATH": os.pathsep.join([*folders, "/usr/bin", "/bin"]), "HOME": str(tmp_path), "PYTHONPATH": str(SOURCE), "LANG": "C.UTF-8"}
    return There(tmp_path, env)


@pytest.mark.parametrize("there", ["claude"], indirect=True)
@pytest.mark.parametrize("way", [(), ("--edit",)])
@pytest.mark.parametrize("scope", ["user", "local", "project"])
def test_claude_code_finds_the_server_and_loses_it_again(there: There, scope: str, way: tuple[str, ...]) -> None:
    words = ("claude-code", "--scope", scope, "--force", *way)
    said = there.pinfold("install", *words, "--env", "A=x y")
    assert said.startswith("installed") and ("claude mcp add" in said) == (not way)
    shown = there.run("claude", "mcp", "get", "pinfold")
    assert {"user": "User config", "local": "Local config", "project": "Project config"}[scope] in shown
    assert "A=x y" in shown
    if scope != "project":  # which names `pinfold` alone, and waits to be approved
        assert "Connected" in shown, shown
    assert there.pinfold("install", *words).startswith("unchanged")
    assert there.pinfold("uninstall", *words).startswith("removed")
    gone = subprocess.run(["claude", "mcp", "get", "pinfold"], cwd=there.home / "app", env=there.env, capture_output=True, timeout=RUN_S, check=False)
    assert gone.returncode != 0


@pytest.mark.parametrize("there", ["codex"], indirect=True)
@pytest.mark.parametrize("way", [(), ("--edit",)])
def test_codex_finds_the_server_and_loses_it_again(there: There, way: tuple[str, ...]) -> None:
    file = there.home / ".codex" / "config.toml"
    file.parent.mkdir()
    before = '# mine\nmodel   = "o" # big\n'
    file.write_text(before)
    said = there.pinfold("install", "codex", "--env", "A=x y", *way)
    assert ("codex mcp add" in said) == (not way)
    (row,) = json.loads(there.run("codex", "mcp", "list", "--json").partition("\nWARNING")[0].partition("WARNING")[0])
    assert (row["name"], row["enabled"], row["transport"]["args"][-1], row["transport"]["env"]) == ("pinfold", True, "mcp", {"A": "x y"})
    assert file.read_text().startswith(before)
    assert there.pinfold("install", "codex").startswith("unchanged")
    assert there.pinfold("uninstall", "codex", *way).startswith("removed")
    assert file.read_text() == before


@pytest.mark.parametrize("there", ["gemini"], indirect=True)
@pytest.mark.parametrize("scope", ["user", "project"])
def test_gemini_finds_the_server_and_its_settings_stay_as_they_were(there: There, scope: str) -> None:
    folder = there.home / ".gemini" if scope == "user" else there.home / "app" / ".gemini"
    folder.mkdir()
    before = '// mine\n{\n\t"ui": { "theme":   "Default" }, // dark\n}\n'.replace(", //", " //")
    (folder / "settings.json").write_text(before)
    there.pinfold("install", "gemini", "--scope", scope)
    assert "pinfold: " in there.run("gemini", "mcp", "list")
    there.pinfold("uninstall", "gemini", "--scope", scope)
    assert (folder / "settings.json").read_text() == before
