"""The command line as processes: what only a real one shows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import command, process, run, twice

own_store = twice()

HEAVY = frozenset(
    ("asyncio", "logging", "dataclasses", "numpy", "inspect", "hashlib", "json", "random", "subprocess", "shutil", "gettext", "locale",
     "tempfile", "traceback", "concurrent.futures", "multiprocessing", "socket", "mcp", "pydantic", "pinfold.doors.help", "pinfold.doors.once")
)  # fmt: skip


def _imported(*argv: str) -> set[str]:
    ran = process(*argv, python=("-X", "importtime"))
    return {line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time:")}


def test_peek_imports_nothing_heavy(own_store: str) -> None:
    run("set", "k", "v")
    imported = _imported("peek", "k")
    assert ("pinfold.journal.sqlite" in imported) == (own_store == "alone")  # the list is of a peek that worked
    assert imported & HEAVY == set()
    if own_store == "served":
        assert imported & {"typing", "msgspec", "socket", "json"} == set()
        assert {name for name in imported if name.startswith("pinfold.")} == {
            "pinfold.call_key", "pinfold.errors", "pinfold.doors", "pinfold.doors.client", "pinfold.journal", "pinfold.journal.url",
        }  # fmt: skip


@pytest.mark.alone
def test_set_and_help_import_no_asyncio_logging_dataclasses_or_numpy() -> None:
    assert _imported("set", "k", "v") & {"asyncio", "logging", "dataclasses", "numpy", "inspect", "subprocess"} == set()
    assert _imported("--help") & {"asyncio", "logging", "dataclasses", "numpy", "inspect", "sqlite3", "pinfold.journal.sqlite"} == set()


def test_sixteen_writes_from_a_shell_loop_in_parallel_are_all_kept() -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    loop = 'for i in $(seq 16); do "$0" -m pinfold set "k$i" "v$i" & done; for job in $(jobs -p); do wait $job || exit 1; done'
    done = subprocess.run(["bash", "-c", loop, sys.executable], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(run("keys").text.split()) == sorted(f"k{i}" for i in range(1, 17))
    assert run("doctor").status == 0


def test_a_megabyte_with_nul_and_invalid_utf8_goes_through_pipes_byte_for_byte() -> None:
    value = (bytes(range(256)) * 4096)[:1_000_000]
    assert process("set", "k", "-", stdin=value).status == 0
    assert process("peek", "k").out == value


@pytest.mark.parametrize("encoding", ["cp1252", "cp936", "ascii", "latin-1"])
def test_an_old_console_gets_utf8_all_the_same(encoding: str) -> None:
    env = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    assert process("set", "ключ", "日本 ✓", env=env).status == 0
    assert process("peek", "ключ", env=env).out.decode() == "日本 ✓"
    assert process("keys", env=env).out.decode() == "ключ\n"
    assert "ключ✗" in process("peek", "ключ✗", env=env).err


def test_a_word_that_is_no_utf8_reaches_the_store_as_its_bytes() -> None:
    if os.name == "nt":
        pytest.skip("Windows passes text")
    done = subprocess.run([*map(os.fsencode, command("set", "k")), b"caf\xe9"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert run("peek", "k").out == b"caf\xe9"


def test_a_latin1_locale_changes_neither_keys_nor_values() -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    process("set", "é", "ü", env=env)
    assert run("peek", "é").text == "ü"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    run("set", "k", "-", stdin=b"x" * 2_000_000)
    reading = subprocess.Popen(command("peek", "k"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reading.stdout is not None and reading.stderr is not None
    assert reading.stdout.read(1) == b"x"
    reading.stdout.close()
    assert reading.wait(60) == 0
    assert reading.stderr.read() == b""
    reading.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_told() -> None:
    run("set", "k", "v")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command("peek", "k"), stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 4 and b"stdout cannot be written" in done.stderr


def test_exit_statuses_are_those_of_the_process() -> None:
    assert process("peek", "k").status == 0
    assert process("peek", "k", "--fail-on-miss").status == 1
    assert process("peek").status == 2
    assert process("resolve", "k", "v", "--token", "1").status == 3


@pytest.mark.alone
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_while_waiting_is_clean() -> None:
    run("claim", "k", "--lease", "1h")
    waiting = subprocess.Popen(
        command("wait", "k", "--timeout", "1h", "--json", "--actor", "w"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_started_note()
    )
    assert waiting.stderr is not None
    _until_started(waiting.stderr)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out) == (130, b"") and b"Traceback" not in err


def _started_note() -> dict[str, str]:
    """An environment in which a command says on stderr, line by line, what it imports: a sign of life to wait for."""
    return {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}


def _until_started(stderr: object) -> None:
    for line in stderr:  # type: ignore[attr-defined]
        if b"pinfold.doors.context" in line:  # the last thing that is loaded before the session is opened
            return


def test_a_store_of_a_path_with_spaces_and_marks_works(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/with space & 100%.db"
    assert process("set", "k", "v", "--store", store).status == 0
    assert process("peek", "k", "--store", store).out == b"v"


@pytest.mark.alone
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("pinfold pe", "peek"),
        ("pinfold session re", "restore resume"),
        ("pinfold set k --json-v", "--json-value"),
        ("pinfold session open --silo", "--silo-size"),
    ],
)
def test_bash_completes_verbs_and_flags(words: str, offered: str, tmp_path: Path) -> None:
    (tmp_path / "completion").write_bytes(run("completion", "bash").out)
    asking = f'source {tmp_path}/completion; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _pinfold; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "--norc", "-c", asking], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (offered, "")


def test_a_closed_stdout_is_no_crash() -> None:
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    done = subprocess.run(["bash", "-c", '"$0" -m pinfold set k v >&-', sys.executable], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert run("peek", "k").out == b"v"
