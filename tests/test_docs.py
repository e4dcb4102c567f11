"""The papers say what is so: pages made from code are current, and every example in them runs."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from pinfold.operations import TABLE
from pinfold.operations.__main__ import page

ROOT = Path(__file__).resolve().parents[1]
PAPERS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_operations_page_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "operations.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_page_on_mcp_tells_of_every_tool_and_where_it_is_listed() -> None:
    letters = {"standard": "S", "core": "C", "pmll": "P", "memnet": "M", "all": "A"}
    told: dict[str, set[str]] = {}
    for names, where in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([a-z, ]+) \|", (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8"), re.MULTILINE):
        for name in re.findall(r"\w+", names):
            told[name] = {letters[part] for part in where.split(", ")}
    rows = {row.mcp: set(row.toolsets) for row in TABLE if row.mcp}
    assert set(told) == set(rows)
    assert {name: where - {"M"} for name, where in told.items()} == {name: where - {"M"} for name, where in rows.items()}


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of somebody who just installed pinfold: `pinfold` and `python` on the path, nothing configured."""
    (tmp_path / "bin").mkdir()
    for name, words in (("pinfold", "-m pinfold"), ("python", "")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "project").mkdir()
    sockets = tempfile.mkdtemp(prefix="pf")
    yield {
        "XDG_RUNTIME_DIR": sockets,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PINFOLD_STORE": f"sqlite:///{tmp_path}/store.db",
        "LANG": "C.UTF-8",
    }
    shutil.rmtree(sockets)


def _run(argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, encoding="utf-8", timeout=120, check=False
    )


def test_the_example_of_the_readme_runs_and_is_short(newcomer: dict[str, str], tmp_path: Path) -> None:
    (example,) = _blocks(ROOT / "README.md", "python")
    assert len(example.splitlines()) <= 15
    done = _run([sys.executable, "-W", "error", "-c", example], newcomer, tmp_path / "project")
    assert done.returncode == 0, done.stdout
    said = re.findall(r"# prints (.*)", example)
    assert done.stdout.splitlines() == said


SESSIONS = [path for path in PAPERS if _blocks(path, "console")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name)
def test_every_console_block_prints_what_it_says(path: Path, newcomer: dict[str, str], tmp_path: Path) -> None:
    """A line with `$ ` is a command, `> ` goes on with it, what follows is its output; `…` stands for anything. A page is one shell."""
    script, expected = ["set +e"], []
    if "pinfold serve --background" in path.read_text(encoding="utf-8"):
        script.append("trap 'pinfold serve --stop > /dev/null 2>&1' EXIT")  # whatever the page does
    for block in _blocks(path, "console"):
        for number, part in enumerate(re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]):
            lines = part.split("\n")
            while lines[0].endswith("\\"):
                lines[0] = f"{lines[0][:-1]}{lines.pop(1).removeprefix('> ')}"
            while lines[1].startswith("> "):
                lines[0] += f"\n{lines.pop(1).removeprefix('> ')}"
            script += [f"echo '@@@ {number}'", lines[0]]
            expected.append((lines[0], "\n".join(lines[1:]).strip("\n")))
    done = _run(["bash", "-c", "\n".join(script)], newcomer, tmp_path / "project")
    printed = [part.partition("\n")[2].strip("\n") for part in done.stdout.split("@@@ ")[1:]]
    for (line, wanted), got in zip(expected, printed, strict=True):
        pattern = ".*".join(re.escape(piece) for piece in wanted.split("…"))
        assert re.fullmatch(pattern, got, re.DOTALL), f"$ {line}\nsays:\n{wanted}\nprints:\n{got}"


@pytest.mark.parametrize("path", [path for path in PAPERS if _blocks(path, "python") and path.name != "README.md"], ids=lambda path: path.name)
def test_every_python_block_of_a_page_runs(path: Path, newcomer: dict[str, str], tmp_path: Path) -> None:
    done = _run([sys.executable, "-W", "error", "-c", "\n".join(_blocks(path, "python"))], newcomer, tmp_path / "project")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.name)
def test_links_between_the_papers_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", text):
        assert (path.parent / target).exists(), target


def test_the_examples_for_service_managers_start_the_server() -> None:
    (unit,), (plist,) = (_blocks(ROOT / "docs" / "serve.md", language) for language in ("ini", "xml"))
    parsed = ConfigParser(interpolation=None)
    parsed.read_string(unit)
    (install, service, _) = (parsed[name] for name in ("Install", "Service", "Unit"))
    job = plistlib.loads(plist.encode())
    for program, *words in (service["ExecStart"].split(), job["ProgramArguments"]):
        assert program.endswith("/pinfold") and words == ["serve"]
    assert install["WantedBy"] == "default.target" and job["RunAtLoad"] is True


def test_the_version_is_one() -> None:
    import tomllib

    import pinfold

    assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"] == pinfold.__version__
    assert f"## {pinfold.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
