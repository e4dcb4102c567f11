"""`pinfold once`: one run, its output and its status for everyone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import command, run, twice

from pinfold import Hit, Memory, Pending, WorkFailed

own_store = twice()  # it is never sent to a server itself; what looks at it is

SAY = (sys.executable, "-c")


def _counted(tmp_path: Path, code: str) -> list[str]:
    """A command that leaves a mark in a file each time it runs."""
    return [*SAY, f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); {code}"]


def _runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text()) if (tmp_path / "runs").exists() else 0


def test_the_command_runs_once_and_its_output_is_the_value(tmp_path: Path) -> None:
    argv = _counted(tmp_path, "print('out')")
    assert run("once", "k", "--", *argv) == (0, b"out\n", "")
    assert run("once", "k", "--", *argv) == (0, b"out\n", "")
    assert _runs(tmp_path) == 1
    assert run("peek", "k").out == b"out\n"
    assert run("once", "k", "--json", "--", *argv).json == {"key": "k", "value": "out\n", "shared": True, "status": 0}


def test_output_that_is_no_text_is_kept_byte_for_byte() -> None:
    argv = [*SAY, "import sys; sys.stdout.buffer.write(bytes([0, 255, 10]))"]
    assert run("once", "k", "--", *argv).out == run("once", "k", "--", *argv).out == b"\x00\xff\n"


def test_a_failure_replays_its_status_and_output_and_is_not_kept(tmp_path: Path) -> None:
    argv = _counted(tmp_path, "import sys; print('half'); sys.stderr.write('first\\nno luck\\n'); sys.exit(7)")
    ran = run("once", "k", "--", *argv)
    assert (ran.status, ran.out) == (7, b"half\n") and ran.err == "first\nno luck\n"
    assert run("once", "k", "--json", "--", *argv).json["error"] == {
        "code": "command_failed",
        "message": "exit 7: no luck",
        "hint": "not kept: the next call tries again",
        "status": 7,
    }
    assert _runs(tmp_path) == 2
    assert run("peek", "k", "--fail-on-miss").status == 1


def test_a_command_that_is_not_there_is_status_127_as_in_a_shell(tmp_path: Path) -> None:
    ran = run("once", "k", "--", str(tmp_path / "nothing"))
    assert ran.status == 127 and "nothing" in ran.err
    (tmp_path / "plain").write_text("no program")
    assert run("once", "k", "--", str(tmp_path / "plain")).status == 126


@pytest.mark.parametrize("mode", ["refuse", "redact"])
@pytest.mark.requirement("secrets")
def test_a_secret_in_the_output_is_not_kept(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_SECRETS", mode)
    secret = "ghp_" + "a1B2" * 9
    argv = _counted(tmp_path, f"print('token {secret}')")
    first, again = (run("once", "k", "--", *argv) for _ in range(2))
    if mode == "redact":
        assert first.text == again.text == run("peek", "k").text == "token [redacted GitHub token]\n" and _runs(tmp_path) == 1
    else:
        assert first.status == 123 and "secret_found" in first.err and secret not in first.err
        assert first.text == again.text == f"token {secret}\n" and _runs(tmp_path) == 2, "the work was done, but it is not kept"
        assert run("peek", "k").text == ""
    assert secret.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_a_command_killed_by_a_signal_is_128_and_its_number() -> None:
    assert run("once", "k", "--", *SAY, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").status == 137


def test_pinfolds_own_failures_are_from_120_to_125(tmp_path: Path) -> None:
    assert run("once", "k").status == 122
    assert run("once", "k", "--session", "no/name", "--", "true").status == 123
    assert run("once", "k", "--store", "nonsense", "--", "true").status == 122
    run("claim", "k", "--lease", "1h")
    busy = run("once", "k", "--timeout", "1ms", "--", "true")
    assert busy.status == 124 and "wait_timeout" in busy.err
    (tmp_path / "notes").write_bytes(b"no store " * 500)
    assert run("once", "k", "--store", f"sqlite:///{tmp_path}/notes", "--", "true").status == 125


@pytest.mark.alone
def test_output_that_cannot_be_kept_is_printed_all_the_same() -> None:
    ran = run("once", "k", "--", *SAY, "print('x' * (16 * 1024 * 1024 + 1))")
    assert ran.status == 123 and len(ran.out) == 16 * 1024 * 1024 + 2 and "value_too_large" in ran.err


def test_a_ttl_and_a_call_key_are_taken() -> None:
    run("once", "--tool", "t", "--arguments", '{"a": 1}', "--ttl", "2h", "--", *SAY, "print(1)")
    assert run("peek", "--tool", "t", "--arguments", '{"a":1}').out == b"1\n"


@pytest.mark.alone
def test_standard_input_is_the_commands() -> None:
    done = subprocess.run(
        command("once", "k", "--", *SAY, "import sys; print(sys.stdin.read().upper())"), input=b"in", capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"IN\n"


# --- several processes --------------------------------------------------------------------------------------------


def _owner(gate: Path, rest: str, *flags: str) -> subprocess.Popen[bytes]:
    """Start a `once` whose command says on stderr that it runs, then waits for the gate, a named pipe, to be opened."""
    os.mkfifo(gate)
    code = f"import sys; sys.stderr.write('running\\n'); sys.stderr.flush(); open({str(gate)!r}).read(); {rest}"
    owner = subprocess.Popen(command("once", "k", *flags, "--", *SAY, code), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert owner.stderr is not None
    assert owner.stderr.readline() == b"running\n"
    return owner


def _open(gate: Path) -> None:
    with open(gate, "w", encoding="ascii"):
        pass


def _waiting(memory: Memory, tmp_path: Path) -> subprocess.Popen[bytes]:
    """Start a second `once` and return when it waits: it has opened the store after the claim was there."""
    joiner = subprocess.Popen(
        command("once", "k", "--", *_counted(tmp_path, "print('second')")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
    )
    assert joiner.stderr is not None
    for line in joiner.stderr:
        if b"pinfold.doors.context" in line:
            break
    return joiner


@pytest.mark.alone
@pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
def test_whoever_asks_meanwhile_gets_the_same_output_without_a_run(tmp_path: Path) -> None:
    owner = _owner(tmp_path / "gate", "print('first')")
    with Memory() as memory:
        joiner = _waiting(memory, tmp_path)
        _open(tmp_path / "gate")
        assert owner.communicate(timeout=60)[0] == b"first\n"
        assert joiner.communicate(timeout=60)[0] == b"first\n"
    assert (owner.returncode, joiner.returncode, _runs(tmp_path)) == (0, 0, 0)


@pytest.mark.alone
@pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
def test_python_joins_a_command_and_learns_how_it_failed(tmp_path: Path) -> None:
    import threading

    owner = _owner(tmp_path / "gate", "sys.stderr.write('boom\\n'); sys.exit(3)")
    with Memory() as memory:
        session = memory.session("test")
        assert isinstance(session.peek("k"), Pending)
        opener = threading.Thread(target=_open, args=(tmp_path / "gate",))
        real_wait = memory._journal.wait

        def wait(*args: object, **rest: object) -> bool:
            if not opener.ident:
                opener.start()  # not before somebody waits
            return real_wait(*args, **rest)  # type: ignore[arg-type]

        memory._journal.wait = wait  # type: ignore[method-assign]
        with pytest.raises(WorkFailed, match="exit 3: boom"):
            session.once("k", lambda: "mine")
        opener.join()
    owner.communicate(timeout=60)
    assert owner.returncode == 3


@pytest.mark.alone
@pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
def test_whoever_waits_gets_a_failures_status_and_last_line_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from pinfold.journal.sqlite import SqliteJournal

    owner = _owner(tmp_path / "gate", "sys.stderr.write('boom\\n'); sys.exit(3)")
    opener = threading.Thread(target=_open, args=(tmp_path / "gate",))
    real_wait = SqliteJournal.wait

    def wait(journal: SqliteJournal, session: str, after: int, timeout_s: float) -> bool:
        if not opener.ident:
            opener.start()  # not before somebody waits
        return real_wait(journal, session, after, timeout_s)

    monkeypatch.setattr(SqliteJournal, "wait", wait)
    ran = run("once", "k", "--", *_counted(tmp_path, "print('second')"))
    opener.join()
    owner.communicate(timeout=60)
    assert (ran.status, ran.out, _runs(tmp_path)) == (3, b"", 0)
    assert "exit 3: boom" in ran.err


@pytest.mark.alone
def test_a_shared_failure_has_the_owners_status_and_last_line() -> None:
    from pinfold.doors.once import _shared_failure

    assert _shared_failure(WorkFailed("…", reason="CommandFailed: exit 3: boom")) == (3, "exit 3: boom")
    assert _shared_failure(WorkFailed("…", reason="ValueError: no")) == (1, "ValueError: no")


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_reaches_the_command_and_gives_the_claim_back(tmp_path: Path, number: signal.Signals) -> None:
    owner = _owner(tmp_path / "gate", "print('never')", "--lease", "1h")
    assert "pending" in run("peek", "k").err
    owner.send_signal(number)
    out, err = owner.communicate(timeout=60)
    assert (owner.returncode, out) == (128 + number, b"")
    assert b"pinfold" not in err
    assert run("peek", "k", "--json").json == {"hit": False}
    assert run("once", "k", "--", *SAY, "print('next')").out == b"next\n"


def test_a_dead_owner_is_followed_when_its_lease_lapses(tmp_path: Path) -> None:
    run("claim", "k", "--lease", "50ms")
    assert run("once", "k", "--", *_counted(tmp_path, "print('mine')")).out == b"mine\n"
    with Memory() as memory:
        assert isinstance(memory.session("test").peek("k"), Hit)
