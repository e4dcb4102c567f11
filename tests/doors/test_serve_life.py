"""A server's life: one for each store, gone without a trace, killed under load, of another version; and the way over TCP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from cli_runner import command, isolate, process, run, serving
from serve_link import Held, Link, base, becomes, counts, status
from tests.peers import python_with

from pinfold.doors import client
from pinfold.doors import daemon as warm
from pinfold.doors.daemon import Daemon

own_store = pytest.fixture(autouse=True)(isolate)

# --- one for each store -------------------------------------------------------------------------------------------


def test_serve_in_the_background_says_so_and_stop_ends_it_without_a_trace() -> None:
    assert run("serve", "--status") == (0, b"", f"no server for {os.environ['PINFOLD_STORE']}; commands do without\n")
    assert run("serve", "--status", "--fail-on-miss").status == 1
    assert run("serve", "--stop").err.startswith("no server for ")
    with ThreadPoolExecutor(2) as pool:  # at the same moment, too, there is one
        begun, late = sorted(pool.map(lambda _: process("serve", "--background", "--http", "--port", "0", "--json"), range(2)))
    assert begun.status == 0, begun.err
    assert late.status == 3 and late.json["error"]["code"] == "already_serving"
    try:
        told = begun.json
        local, http = told["addresses"]
        assert told["running"] and local == f"{base()}.sock" and told["pid"] != os.getpid()
        with urlopen(f"{http}/healthz", timeout=60) as answer:  # at once: it returned when all of it was there
            assert answer.read() == b'{"status":"ok"}'
        assert os.stat(f"{base()}.sock").st_mode & 0o777 == 0o600 and os.stat(os.path.dirname(base())).st_mode & 0o777 == 0o700
        assert process("set", "k", "v").status == 0 and process("peek", "k").out == b"v"
        assert "did      2 commands, handed back 0; 1 session loaded" in run("serve", "--status").text
        for again in (("serve",), ("serve", "--background"), ("serve", "--json")):
            second = run(*again)
            assert second.status == 3 and f"runs already (pid {told['pid']})" in second.err + second.out.decode()
    finally:
        stopped = process("serve", "--stop")
    assert (stopped.status, stopped.err) == (0, f"stopped the server of {os.environ['PINFOLD_STORE']}\n")
    assert not os.path.exists(f"{base()}.sock") and run("peek", "k").out == b"v"
    assert "Traceback" not in Path(told["log"]).read_text()


def test_a_server_that_was_killed_leaves_nothing_in_the_way() -> None:
    with serving() as server:
        run("set", "k", "v")
        server.kill()
        server.join()
        assert os.path.exists(f"{base()}.sock") and run("peek", "k").out == b"v"
        with serving():
            assert run("peek", "k").out == b"v" and counts()["done"] == 1


def test_a_server_that_nobody_can_find_any_more_ends() -> None:
    with serving() as server:
        run("set", "k", "v")
        os.unlink(f"{base()}.sock")
        server.join(60)
        assert server.exitcode == 0 and run("peek", "k").out == b"v"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_under_way_is_answered_before_the_end(number: int, tmp_path: Path) -> None:
    run("set", "k", "v")
    server = subprocess.Popen(command("serve"), stderr=subprocess.PIPE)
    assert server.stderr is not None
    assert b"Ctrl-C ends it" in server.stderr.readline()
    with Held(tmp_path):
        waiting = Link().ask("set", "k", "last")
        assert waiting.socket.recv(5) == b"b\x00\x00\x00\x00"
        server.send_signal(number)
        assert becomes(lambda: not os.path.exists(f"{base()}.sock"))
        assert run("peek", "k").out == b"v"  # nobody finds it any more
    assert waiting.frames()[-1] == (client.STATUS, b"0")
    assert server.wait(60) == 0 and server.stderr.read() == b""
    server.stderr.close()
    assert run("peek", "k").out == b"last"


def test_ctrl_c_ends_a_command_that_a_server_is_at(tmp_path: Path) -> None:
    run("set", "k", "v")
    with serving(), Held(tmp_path):
        waiting = subprocess.Popen(command("set", "k", "w"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert becomes(lambda: status()["under_way"] == 1)
        waiting.send_signal(signal.SIGINT)
        assert (waiting.communicate(timeout=60), waiting.returncode) == ((b"", b""), 130)


def test_a_store_in_memory_and_an_address_of_elsewhere_are_refused() -> None:
    assert run("serve", "--store", "memory://").status == 2
    far = run("serve", "--host", "192.0.2.1", "--port", "0")
    assert far.status == 2 and "not_loopback" in far.err and "--http" in far.err
    assert run("serve", "--tcp", "70000").status == 2 and run("serve", "now").status == 2
    assert run("serve", "--stop", "--status").status == 2


def test_a_folder_that_others_may_write_to_is_neither_served_from_nor_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving():
        run("set", "k", "v")
        before = counts()["done"]
        folder = os.path.dirname(base())
        os.chmod(folder, 0o770)
        try:
            assert run("peek", "k").out == b"v"
            refused = run("serve", "--store", f"sqlite:///{tmp_path}/other.db")
            assert refused.status == 2 and "unsafe_folder" in refused.err
        finally:
            os.chmod(folder, 0o700)
        assert counts()["done"] == before


# --- another version ----------------------------------------------------------------------------------------------


def test_another_version_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving():
        monkeypatch.setattr(client, "__version__", "9.9.9")
        ran = run("peek", "k")
        assert ran.status == 2 and "version_skew" in ran.err and "pinfold serve --stop" in ran.err
        assert run("peek", "k", "--json").json["error"]["code"] == "version_skew"
        assert run("version").status == 0 and run("help").status == 0 and run("serve", "--status").status == 0
        monkeypatch.setenv("PINFOLD_SERVE", "off")
        assert run("peek", "k").status == 0
        monkeypatch.delenv("PINFOLD_SERVE")
        assert run("serve", "--stop").status == 0


# --- over TCP -----------------------------------------------------------------------------------------------------


def test_over_tcp_a_command_needs_the_token_and_finds_it_by_itself() -> None:
    with serving("--tcp", "0"):
        os.unlink(f"{base()}.sock")
        assert os.stat(f"{base()}.tcp").st_mode & 0o777 == 0o600
        host, port, token = Path(f"{base()}.tcp").read_text().split()
        assert host == "127.0.0.1" and len(token) >= 40
        assert run("set", "k", "-", stdin=b"over tcp").status == 0 and process("peek", "k").out == b"over tcp"
        before = counts()
        for wrong in ("", "x" * len(token)):
            with socket.create_connection((host, int(port)), 60) as link:
                link.sendall(client.framed(json.dumps({"token": wrong, "ask": "stop"}).encode()))
                assert link.recv(5)[0] == client.REFUSED
        assert counts()["malformed"] == before.get("malformed", 0) + 2


def test_where_there_are_no_unix_sockets_it_is_loopback_tcp_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_NO_UNIX", "1")
    with serving():
        (address,) = status()["addresses"]
        host, port, token = Path(f"{base()}.tcp").read_text().split()
        assert address == f"{host}:{port}" and host == "127.0.0.1" and len(token) >= 40 and not os.path.exists(f"{base()}.sock")
        monkeypatch.delattr(socket, "AF_UNIX")
        monkeypatch.delattr("_socket.AF_UNIX")
        assert run("set", "k", "v").status == 0 and run("peek", "k").out == b"v"
        assert counts()["done"] == 2
        assert run("serve").err.startswith("pinfold: already_serving: ")
        assert run("serve", "--stop").err.startswith("stopped the server of ") and not os.path.exists(f"{base()}.tcp")


def test_a_port_that_somebody_else_took_is_told_nothing() -> None:
    run("set", "k", "v")
    os.makedirs(os.path.dirname(base()), 0o700, exist_ok=True)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            link, _ = listener.accept()
            with link:
                heard.append(link.recv(65536))
                link.sendall(b"p\x00\x00\x00\x40" + b"0" * 64)
                heard.append(link.recv(65536))

        thread = threading.Thread(target=listen)
        thread.start()
        Path(f"{base()}.tcp").write_text(f"127.0.0.1 {listener.getsockname()[1]} the-token-that-is-not-told\n")
        try:
            assert run("peek", "k").out == b"v"
        finally:
            os.unlink(f"{base()}.tcp")
            thread.join()
    assert json.loads(heard[0][4:]).keys() == {"nonce"} and heard[1] == b""


def test_memnets_way_of_working() -> None:
    """A server with their flags in one terminal, commands in another."""
    with serving("--host", "127.0.0.1", "--port", "0"):
        assert status()["addresses"][1].startswith("127.0.0.1:")
        opened = run("session", "open", "town", "--map", "@TSK: id|goal")
        assert opened.text.startswith("initialized town ")
        assert run("add", "+ TSK [T1] ; goal=ship", "--session", "town").status == 0
        assert run("query", "pin-map", "--anchor", "T1", "--session", "town").text.startswith("## Nodes\nTSK [T1] ; goal=ship\n")
        assert counts()["done"] == 3


@pytest.mark.peer
def test_the_quick_start_of_memnets_readme_runs_on_the_files_it_ships(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    (examples,) = python_with(request, "memnet-llm==0.3.2").parents[1].glob("lib/python*/site-packages/memnet/examples")
    monkeypatch.delenv("PINFOLD_SESSION")
    with serving("--tcp", "0"):
        opened = run("session", "open", "--map-file", f"{examples}/schema.example.txt")
        monkeypatch.setenv("MEMNET_SESSION", opened.err.strip().rpartition("=")[2])
        assert run("add", "--file", f"{examples}/workflow.example.txt").status == 0
        shown = run("query", "pin-map", "--anchor", "PLR01").text
        assert "PLR [PLR01] ; identity=Vagrant beggar" in shown and "E01 [N01] --(seeks_help)--> [PLR01]" in shown
        assert run("session", "close", os.environ["MEMNET_SESSION"]).text.startswith("ended s_")
        assert counts()["done"] == 2 and counts()["handed_back"] == 2  # those that open files


# --- answers that are lost ----------------------------------------------------------------------------------------


@contextmanager
def losing_answers(before: bool = False) -> Iterator[list[str]]:
    """A server that is killed after each command, before the answer is out; before: before it begins. Yields the ids it saw."""
    daemon = Daemon(os.environ["PINFOLD_STORE"], {})
    daemon.is_set_up_for = lambda environ: True  # type: ignore[method-assign]
    seen: list[str] = []
    os.makedirs(os.path.dirname(base()), 0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{base()}.sock")
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    size = int.from_bytes(link.recv(4), "big")
                    told = json.loads(link.recv(size, socket.MSG_WAITALL))
                    seen.append(told["id"])
                    if before:
                        continue
                    request = daemon._request({**told, "input": None})
                    assert not isinstance(request, bytes)
                    mute, other = socket.socketpair()
                    mute.setblocking(False)
                    with mute, other:
                        daemon.run(request, None, mute)
                    link.sendall(b"b\x00\x00\x00\x00")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield seen
        finally:
            os.unlink(f"{base()}.sock")
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            daemon.close()


@pytest.mark.requirement("lost-answers", "request-id")
def test_a_write_whose_answer_was_lost_is_not_done_twice() -> None:
    run("mutate", "+ TSK [C] ; n=0")
    with losing_answers() as seen:
        assert run("update", "~ [C] ; n+=1").text == "TSK [C] ; n=1\n# pinfold: seq=2\n"
        assert run("mutate", "+ TSK [NEW] ; goal=x").text == "TSK [TSK1] ; goal=x\n# pinfold: minted #1=TSK1\n# pinfold: seq=3\n"
        assert run("add", "+ TSK [T9] ; goal=x").status == 0
        assert run("claim", "k", "--lease", "1h").text == "claimed k token=1 lease_left=3600s\n"
        assert run("resolve", "k", "v", "--token", "1").text == "resolved\n"
        assert run("set", "k2", "v").text == "stored [1]\n"
        assert run("delete", "T9").text == "# pinfold: dropped T9\n# pinfold: seq=8\n"
        assert run("remember", "once").text == "remembered NOTE1\n"
        assert run("upsert", "concept", "a", "b").text.startswith("created ")
        opened = run("session", "open")
        assert opened.status == 0
        assert run("peek", "k").out == b"v"
        assert len(seen) == 11
    assert run("read", "get", "C").text == "TSK [C] ; n=1\n" and run("status", "--json").json["seq"] == 10
    assert "cli:" not in run("log", "--json").text
    assert len([row for row in run("session", "list", "--json").json["sessions"] if row["session_id"].startswith("s_")]) <= 1


@pytest.mark.requirement("lost-answers")
def test_a_write_that_cannot_be_asked_for_again_says_that_it_may_have_been_done() -> None:
    run("set", "k", "v")
    with losing_answers():
        lost = run("drop", "k")
    assert lost.status == 4 and "answer_lost" in lost.err and "drop may have been done" in lost.err
    assert run("peek", "k", "--fail-on-miss").status == 1


def test_a_command_that_had_not_begun_is_simply_done_here() -> None:
    run("set", "k", "v")
    with losing_answers(before=True) as seen:
        assert run("drop", "k").text == "dropped k\n"
        assert run("set", "k", "-", stdin=b"w").text == "stored [1]\n"
        assert len(seen) == 2


WORKER = """
import io, sys
from pinfold.doors.cli import main
from pinfold.doors.client import forward

def run(*argv):
    sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    status, carried = forward(list(argv))
    return main(argv, carried) if status is None else status

out = sys.__stdout__
name, count = sys.argv[1], int(sys.argv[2])
for n in range(count):
    for argv in (("update", "~ [C] ; n+=1"), ("set", f"{name}-{n}", name), ("mutate", "+ MARK [NEW] ; by=" + name)):
        status = run(*argv)
        if status:
            sys.stderr.seek(0)
            out.write(f"{argv} {status} {sys.stderr.read()}")
            sys.exit(1)
    out.write("done\\n")
    out.flush()
"""


@pytest.mark.requirement("served", "lost-answers", "no-acknowledged-write-lost")
def test_clients_of_a_server_that_is_killed_carry_on_and_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    run("mutate", "+ TSK [C] ; n=0")
    names, count = [f"w{n}" for n in range(4)], 10
    with serving() as server:
        workers = [subprocess.Popen([sys.executable, "-c", WORKER, name, str(count)], stdout=subprocess.PIPE, bufsize=0) for name in names]
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == b"done\n"
            done = counts()["done"]
            server.kill()
            told = [worker.communicate(timeout=120)[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        server.join()
        assert 12 <= done < 4 * count * 3
        assert told == [b"done\n" * (count - 1)] * 4
        assert run("read", "get", "C").text == f"TSK [C] ; n={4 * count}\n"
        assert len(run("keys").text.splitlines()) == 4 * count
        assert run("read", "list", "MARK", "--json", "--limit", "1").json["total"] == 4 * count
        assert run("doctor").status == 0


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_server_that_is_stuck_is_not_waited_for_and_does_nothing_when_it_comes_round(monkeypatch: pytest.MonkeyPatch) -> None:
    run("mutate", "+ TSK [C] ; n=0")
    with serving() as server:
        assert run("peek", "k", "--json").json == {"hit": False}
        monkeypatch.setattr(client, "FIRST_S", 0.2)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        assert run("update", "~ [C] ; n+=1").text == "TSK [C] ; n=1\n# pinfold: seq=2\n"
        monkeypatch.setattr("pinfold.doors.serve.ASK_S", 0.2)
        stuck = run("serve", "--status")
        assert stuck.status == 4 and "not_answering" in stuck.err and f"kill -9 {server.pid}" in stuck.err
        monkeypatch.setattr("pinfold.doors.serve.ASK_S", 60)
        os.kill(server.pid, signal.SIGCONT)
        monkeypatch.setattr(client, "FIRST_S", 60)
        assert run("read", "get", "C").text == "TSK [C] ; n=1\n"
        told = counts()
        assert told["connections"] >= 3 and told["done"] == 2  # the peek and the read
        os.kill(server.pid, signal.SIGSTOP)
        monkeypatch.setattr("pinfold.doors.serve.ASK_S", 0.2)
        assert run("serve", "--stop").status == 4
        os.kill(server.pid, signal.SIGCONT)
        server.join(60)
        assert server.exitcode == 0  # it was told, and does it when it comes round


# --- what stays loaded --------------------------------------------------------------------------------------------


def test_sessions_are_let_go_when_there_are_too_many_or_long_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "WARM_SESSIONS", 3)
    memory = warm.WarmMemory(f"sqlite:///{tmp_path}/store.db")
    try:
        for n in range(6):
            with memory.by("ann") as lent:
                lent.session(f"s{n}").set("k", str(n))
                lent.session("s0").peek("k")
        memory.rest()
        assert set(memory._engine._replicas) == {"s0", "s4", "s5"}
        assert memory._engine.tally()["turns"] == 6 and memory._engine.tally()["hits"] == 6  # of those gone, too
        monkeypatch.setattr(warm, "WARM_S", -1.0)
        memory.rest()
        assert memory._engine._replicas == {}
        assert [memory.by(None).session(f"s{n}").peek("k").value for n in range(6)] == list("012345")  # type: ignore[union-attr]
    finally:
        memory.close()


def test_what_was_written_much_gets_its_snapshot_while_the_server_runs(tmp_path: Path) -> None:
    memory = warm.WarmMemory(f"sqlite:///{tmp_path}/store.db")
    try:
        with memory.by(None) as lent:
            lent.session("s").mutate("\n".join(f"+ TSK [T{n}] ; goal={'x' * 100}" for n in range(7_000)))
        assert memory._journal.load_snapshots("s") == []
        memory.rest()
        assert [snapshot.seq for snapshot in memory._journal.load_snapshots("s")] == [1]
    finally:
        memory.close()


def test_a_command_leaves_a_session_as_a_process_that_ends_would(tmp_path: Path) -> None:
    memory = warm.WarmMemory(f"sqlite:///{tmp_path}/store.db")
    try:
        with memory.by(None) as lent:
            lent.session("plain").set("k", "v")
            lent.session("lru", silo_size=2).set("k", "v")
        for name, seq in (("plain", 1), ("lru", 3)):
            with memory.by(None) as lent:
                lent.session(name).peek("k")
                assert lent.session(name).status().short_term["hits"] == 1
            status_ = memory.by(None).session(name).status()
            assert (status_.seq, status_.short_term["hits"]) == (seq, int(name == "lru"))
    finally:
        memory.close()
