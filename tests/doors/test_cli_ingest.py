"""`pinfold ingest` as a user has it: words, JSON, a watch that goes on, and what it may cost a command's start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from cli_runner import command, process, run, twice

from pinfold.errors import Refused

own_store = twice()


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project that is the working folder."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.py").write_text("def f(): g()\ndef g(): pass\n")
    (folder / "b.py").write_text("import a\n")
    monkeypatch.chdir(folder)
    return folder


def test_it_says_what_it_read_and_what_changed(project: Path) -> None:
    first = run("ingest", "code", ".")
    assert first.status == 0 and first.err == ""
    lines = first.text.splitlines()
    assert lines[0] == f"code {project}: 2 files, 4 pins, 4 edges"
    assert lines[1] == "python: 2" and lines[-1] == "# pinfold: 4 created, 4 linked seq=1"
    assert len([line for line in lines if line.startswith("+ ")]) == 4
    assert run("ingest", "code", ".").text.splitlines()[-1] == "# pinfold: nothing changed seq=1"
    run("mutate", f"+ TSK [T1] ; goal=x\n+ [T1] --(about)--> [{lines[2].split()[1]}]\n~ [{lines[2].split()[1]}] ; note=mine")
    (project / "a.py").unlink()
    (project / "broken.py").write_text("def (")
    told = run("ingest", "code", ".").text
    assert "orphaned: note=mine of SOURCE_a_py_" in told and "orphaned: E5 [T1] --(about)--> [SOURCE_a_py_" in told and "(a.py is gone)" in told
    assert "not read: broken.py: line 1: invalid syntax" in told and "seq=3" in told


def test_json_is_the_report(project: Path) -> None:
    told = run("ingest", "code", "a.py", "--json", "--dry-run").json
    assert (told["files"], told["pins"], told["created"], told["dry_run"], told["root"]) == (1, 3, 3, True, str(project))
    assert run("session", "list").text == ""
    assert run("ingest", "code", ".", "--exclude", "b.py", "--exclude", "c*", "--json").json["files"] == 1


def test_refusals_are_told_with_a_way_on() -> None:
    for words, code, status in (
        (("ingest", "code", "nowhere"), "no_such_path", 3),
        (("ingest", "cobol", "."), "bad_argument", 3),
        (("ingest", "code", ".", "--max-rows", "1"), "too_many_rows", 3),
        (("ingest", "code", ".", "--watch", "--dry-run"), "bad_arguments", 2),
        (("ingest", "code"), "usage", 2),
    ):
        ran = run(*words)
        assert ran.status == status and code in ran.err, words
    assert run("ingest", "ato", ".", "--fail-on-miss").status == 1


@pytest.mark.alone
def test_progress_is_drawn_on_a_terminal_and_nowhere_else(project: Path) -> None:
    import pty

    leader, follower = pty.openpty()
    done = subprocess.run(command("ingest", "code", "."), stdout=subprocess.PIPE, stderr=follower, timeout=60, check=True)
    os.close(follower)
    drawn = os.read(leader, 10_000).decode()
    os.close(leader)
    assert "ingest" in drawn and re.search(r"(\d+)/\1\b", drawn)  # a bar of rich, or a plain one where rich is not installed
    assert done.stdout.decode().startswith("code ")
    assert process("ingest", "code", ".").err == ""


@pytest.mark.alone
def test_a_watch_tells_every_change_until_it_is_interrupted(project: Path) -> None:
    watching = subprocess.Popen(command("ingest", "code", ".", "--watch", "--every", "50ms", "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["created"] == 4
        (project / "c.py").write_text("import b\ndef h(): pass\n")
        told = json.loads(watching.stdout.readline())
        assert (told["created"], told["linked"], told["patched"], told["dropped"]) == (2, 2, 0, 0)
        (project / "c.py").unlink()
        assert json.loads(watching.stdout.readline())["dropped"] == 2
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=60)
        assert (watching.returncode, out) == (130, b"") and b"Traceback" not in err
    finally:
        watching.kill()
        watching.communicate()
    assert run("log", "--json").json["entries"][-1]["seq"] == 3


@pytest.mark.alone
def test_ingest_costs_other_commands_nothing_and_python_needs_no_grammar() -> None:
    def imported(*argv: str) -> set[str]:
        ran = process(*argv, python=("-X", "importtime"))
        assert ran.status == 0
        return {line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time:")}

    run("set", "k", "v")
    for argv in (("peek", "k"), ("mutate", "+ TSK [NEW] ; goal=x"), ("--help",)):
        assert not any(name.startswith(("pinfold.ingest", "tree_sitter", "ast", "pathspec")) for name in imported(*argv)), argv
    of_code = imported("ingest", "code", ".")
    assert "pinfold.ingest.python" in of_code
    assert not any(name.startswith(("tree_sitter", "pinfold.ingest.grammars", "pinfold.ingest.sysml", "asyncio", "numpy")) for name in of_code)


@pytest.mark.alone
def test_a_server_ingests_the_project_it_serves_and_no_other_folder(tmp_path: Path) -> None:
    from pinfold import Memory
    from pinfold.operations import BY_NAME, Call
    from pinfold.operations import run as run_row

    (tmp_path / "elsewhere").mkdir()
    with Memory("memory://") as memory:
        call = Call(memory, "work", roots=[])
        assert run_row(BY_NAME["ingest"], call, {"kind": "code", "path": "."})["created"] == 4
        for arguments in ({"kind": "code", "path": str(tmp_path / "elsewhere")}, {"kind": "code", "path": ".", "root": str(tmp_path)}):
            with pytest.raises(Refused) as refused:
                run_row(BY_NAME["ingest"], call, arguments)
            assert refused.value.code == "outside_roots"
        with pytest.raises(Refused) as refused:
            run_row(BY_NAME["ingest"], call, {"kind": "code", "path": ".", "watch": True})
        assert refused.value.code == "bad_arguments"
