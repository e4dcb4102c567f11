"""`pinfold serve`: the same bytes with a server as without one, and what becomes of those who behave badly."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Ran, command, isolate, run, serving
from serve_link import Held, Link, base, becomes, counts

from pinfold import Memory, __version__
from pinfold.doors import client
from pinfold.doors.cli import OWN_VERBS
from pinfold.doors.serve import ask
from pinfold.operations import TABLE, row_of_verb

own_store = pytest.fixture(autouse=True)(isolate)


@pytest.fixture
def served() -> Iterator[Any]:
    with serving() as server:
        yield server


# --- the same bytes -----------------------------------------------------------------------------------------------

SCRIPT: list[tuple[str, ...]] = [
    ("set", "k", "v"), ("set", "k", "w", "--json"), ("peek", "k"), ("peek", "k", "--json"), ("peek", "none"),
    ("peek", "none", "--json", "--fail-on-miss"), ("set", "bytes", b"\xff\x00".decode("utf-8", "surrogateescape")), ("peek", "bytes"),
    ("peek", "bytes", "--json"), ("set", "日本", "ключ ✓"), ("keys",), ("set", "--json-value", "j", '{"b": [1, 2.5], "a": "\\ud800"}'),
    ("peek", "j"), ("peek", "j", "--limit-bytes", "9", "--json"), ("keys", "k", "--json"), ("status",), ("status", "--json"),
    ("claim", "c", "--lease", "1h"), ("claim", "c"), ("peek", "c", "--claim"), ("peek", "d", "--claim", "--lease", "1h"),
    ("renew", "c", "--token", "1", "--lease", "1h"), ("resolve", "c", "x", "--token", "7"), ("resolve", "c", "x", "--token", "1"),
    ("wait", "c"), ("wait", "c2", "--timeout", "1ms", "--fail-on-miss"), ("resolve", "d", "--error", "no luck", "--token", "2"),
    ("peek", "nope", "--wait", "1ms"), ("drop", "--prefix", "b", "--dry-run"), ("drop", "bytes", "nothing"), ("forget", "j"), ("flush",),
    ("peek",), ("pek", "k"), ("set", "k", "--ttl", "60", "v"), ("session", "open"),
    ("session", "open", "lru", "--silo-size", "2", "--ttl", "2h"), ("set", "a", "1", "--session", "lru"),
    ("set", "b", "2", "--session", "lru"), ("peek", "a", "--session", "lru"), ("peek", "a", "--session", "lru"),
    ("peek", "z", "--session", "lru"), ("status", "--session", "lru", "--json"), ("set", "c", "3", "--session", "lru"),
    ("keys", "--session", "lru"), ("log", "--session", "lru", "--json"), ("session", "open", "lru", "--json"),
    ("mutate", "+ TSK [NEW:a] ; goal=ship ; n=1\n+ TSK [NEW:b] ; goal=test\n+ [NEW:a] --(needs)--> [NEW:b]"),
    ("mutate", "~ [TSK1] ; n+=2", "--json"), ("add", "+ TSK [NEW] ; goal=x", "--dry-run"), ("update", "~ [TSK9] ; goal=x"),
    ("update", "~ [TSK9] ; goal=x", "--json"), ("query", "pin-map", "TSK1"), ("query", "pin-map", "TSK1", "--json"),
    ("query", "walk", "TSK1"), ("query", "path", "TSK1", "TSK2"), ("read", "get", "TSK1", "TSKX"), ("read", "list", "TSK"),
    ("delete", "TSK2"), ("diff", "1"), ("undo", "12"), ("blame", "TSK1"), ("log",), ("log", "--json", "--limit", "3"), ("schema", "show"),
    ("relations", "list"), ("housekeep", "orphans"), ("remember", "the harbour is closed on Sundays", "--by", "ada"),
    ("remember", "tea is in the blue tin"), ("search", "harbour"), ("search", "harbour", "--json"), ("search", "", "--fail-on-miss"),
    ("upsert", "concept", "harbour", "where ships lie"), ("upsert", "concept", "harbour", "closed"), ("relate", "N1", "N2", "references"),
    ("resolve-context", "harbour"), ("promote", "k", "v"), ("prune", "--dry-run"), ("traverse", "NOTE1"),
    ("graphql", "{ session { id seq } }"), ("graphql", 'mutation { set(key: "g", value: "1") { index } }'), ("session", "fork", "f"),
    ("session", "merge", "f"), ("session", "list"), ("session", "close", "lru"), ("session", "restore", "lru"),
    ("session", "list", "--expired"), ("session", "save", "--file", "saved.txt"),
    ("session", "load", "--file", "saved.txt", "--session", "copy"), ("export", "json", "--file", "x.json"), ("where",), ("stat",),
    ("version",), ("help", "peek"), ("--help",), ("--json", "--session", "lru", "peek", "a"), ("set", "k", "--", "--json"),
    ("peek", "k", "--store", "nonsense"), ("peek", "k", "--actor", "\n"), ("once", "o", "--", sys.executable, "-c", "print(1)"),
    ("peek", "o"), ("set", "x", "--input", "file:saved.txt", "v"), ("peek", "x"), ("stale",), ("why", "x"),
    ("log", "--by", "nobody", "--fail-on-miss"), ("refresh", "x"), ("set-version", "prompt", "7"),
    ("interlink", '[{"type": "concept", "label": "tide", "content": "the tide comes in twice a day"}]'), ("conflicts",),
    ("supersede", "TSK1", "NOTE1"), ("query", "neighbors", "NOTE1"), ("query", "context", "NOTE1"), ("tagmap", "fields"),
    ("import", "json", "x.json", "--session", "imported"), ("compact",),
    ("ingest", "skills", "."), ("ingest", "code", ".", "--dry-run", "--json"), ("log", "--json"),
    ("doctor",), ("doctor", "--json"), ("copy", "sqlite:///store.db", "sqlite:///copy.db"), ("migrate",), ("reembed",), ("bench",), ("demo", "now"),
    ("install", "project", "--json"), ("hook", "SessionStart"), ("uninstall", "project"), ("completion", "zsh"), ("guide",), ("examples", "map"),
]  # fmt: skip
SEEN = ("query", "read", "log", "session", "relations", "diff", "blame")
"""What is run as on a terminal: what has columns and colours there."""
MASKS = [
    (rb"\b1\d{12}\b", b"MS"),
    (rb"\d{4}-\d\d-\d\dT[\d:.]+Z?", b"TIME"),
    (rb"s_[0-9a-f]{8}", b"s_MINTED"),
    (rb'("lease_left_s":|lease_left=|ends in )[\d.]+', rb"\1LEFT"),
    (rb"(entry_bytes|size_bytes|bytes|snapshots)([\"=: ]+)\d+", rb"\1\2SIZE"),  # an entry that can be asked for again keeps its answer
    (rb"(store\.db: |journal\s+|\()\d+ bytes", rb"\1SIZE bytes"),
    (rb'(state=|"state_hash":")[0-9a-f]{32}', rb"\1HASH"),  # times are in it
]


def _masked(ran: Ran) -> tuple[int, bytes, str]:
    out, err = ran.out, ran.err.encode()
    for pattern, by in MASKS:
        out, err = re.sub(pattern, by, out), re.sub(pattern, by, err)
    return ran.status, out, err.decode()


@pytest.mark.requirement("served")
def test_every_command_prints_the_same_bytes_with_a_server_as_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> list[tuple[tuple[str, ...], tuple[int, bytes, str]]]:
        folder = tmp_path / "work"
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{folder}/store.db")
        return [(words, _masked(run(*words, terminal=words[0] in SEEN))) for words in SCRIPT]

    verbs = {row.name for words in SCRIPT if (found := row_of_verb(words[0], words[1] if len(words) > 1 else "")) for row in found[1:]}
    assert {row.name for row in TABLE if row.cli} - verbs == set(), "the script lacks a verb"
    assert OWN_VERBS.keys() - {words[0] for words in SCRIPT} == {"mcp", "serve", "top"}, "the script lacks a verb"
    alone = play()
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "work")
    with serving():
        together = play()
        done = counts()
    assert [(words, got, wanted) for (words, got), (_, wanted) in zip(together, alone, strict=True) if got != wanted] == []
    assert done["done"] >= 75 and done["handed_back"] >= 25, done


# --- what is the caller's -----------------------------------------------------------------------------------------


def test_session_actor_and_colour_are_those_of_the_caller(served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PINFOLD_SESSION")
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("PINFOLD_ACTOR", f"agent-{name}")
        assert run("set", "k", name).status == 0
    assert run("peek", "k").out == b"two" and " agent-two  " in run("log").text
    monkeypatch.chdir(tmp_path / "one")
    assert run("peek", "k").out == b"one" and " agent-one  " in run("log").text
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("log", terminal=True).text
    monkeypatch.delenv("NO_COLOR")
    run("mutate", "+ TSK [T1] ; goal=a\n+ TSK [T22] ; goal=bb")
    assert "\x1b[36mTSK" in run("read", "list", terminal=True).text
    monkeypatch.setenv("COLUMNS", "10")
    assert "T1]  ;" not in run("read", "list", terminal=True).text
    assert counts()["done"] >= 9


def test_who_is_set_up_otherwise_gets_a_process_of_its_own(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "ghp_" + "a1B2" * 9
    assert run("set", "k", secret).status == 0
    monkeypatch.setenv("PINFOLD_SECRETS", "refuse")
    before = counts()
    refused = run("set", "k", secret)
    assert refused.status == 3 and "secret_found" in refused.err
    assert counts()["handed_back"] == before.get("handed_back", 0) + 1
    monkeypatch.setenv("PINFOLD_SERVE", "off")
    run("peek", "k")
    assert counts()["done"] == before["done"]


def test_a_hook_for_secrets_is_the_callers_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hook_of_mine.py").write_text("def find(text):\n    return [(0, 5, 'magic')] if text.startswith('xyzzy') else []\n")
    monkeypatch.setenv("PINFOLD_SECRETS", "redact")
    monkeypatch.setenv("PINFOLD_SECRETS_HOOK", "hook_of_mine:find")
    with serving():
        monkeypatch.syspath_prepend(str(tmp_path))  # of this process alone
        assert run("set", "k", "xyzzy!").status == 0
        assert run("peek", "k").text == "[redacted magic]!"
        assert counts()["handed_back"] == 2


def test_stdin_is_read_by_who_asks_for_it_alone(served: Any) -> None:
    pinfold = " ".join(command())
    script = f"{pinfold} set a 1; {pinfold} set b -; cat"
    done = subprocess.run(["bash", "-c", f"{pinfold} peek a; cat"], input=b"left alone", capture_output=True, timeout=60, check=False)
    assert done.stdout == b"left alone"
    done = subprocess.run(["bash", "-c", script], input=b"\xff value\n", capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and run("peek", "b").out == b"\xff value\n"
    assert counts()["asked_for_input"] == 1


def test_a_value_that_is_too_large_is_refused_and_one_that_fits_goes_through(served: Any) -> None:
    limit = 16 * 1024 * 1024
    ran = run("set", "k", "-", stdin=b"x" * (limit + 1))
    assert ran.status == 3 and "value_too_large" in ran.err
    value = os.urandom(1 << 20) * 16
    assert run("set", "k", "-", stdin=value).status == 0
    assert run("peek", "k").out == value
    assert counts()["done"] == 3


def test_files_are_opened_by_whose_they_are(served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("lines").write_text("+ TSK [T1] ; goal=ship\n")
    Path("map").write_text("@TSK: id|goal\n")
    assert run("session", "open", "s", "--map-file", "map", "--ttl", "60m").text == "initialized s seq=2 ttl=3600s\n"
    assert run("add", "--file", "lines", "--session", "s").status == 0
    assert run("session", "save", "--file", "saved", "--session", "s").status == 0
    assert run("export", "json", "--file", "out.json", "--session", "s").status == 0
    assert {path.name for path in Path().iterdir()} == {"lines", "map", "saved", "out.json"}
    assert run("session", "load", "--file", "saved", "--session", "t").status == 0
    assert run("read", "get", "T1", "--session", "t").text == "TSK [T1] ; goal=ship\n"
    assert run("set", "k", "v", "--input", "file:lines").status == 0
    Path("lines").write_text("other")
    assert "stale: k because lines\n" in run("peek", "k").err
    told = counts()
    assert told["handed_back"] == 5 and told["done"] == 3


def test_another_store_and_another_spelling_are_not_this_servers(served: Any, tmp_path: Path) -> None:
    assert run("set", "k", "other", "--store", f"sqlite:///{tmp_path}/other.db").status == 0
    assert run("set", "k", "full", "--store", f"{os.environ['PINFOLD_STORE']}?durability=full").status == 0
    assert counts().get("done", 0) == 0
    assert run("peek", "k", f"--store={os.environ['PINFOLD_STORE']}").out == b"full"
    assert counts()["done"] == 1


def test_the_server_sees_what_others_write_and_a_file_put_in_the_place_of_its_own(served: Any, tmp_path: Path) -> None:
    run("set", "k", "1")
    with Memory() as memory:
        memory.session("test").set("k", "2")
    assert run("peek", "k").out == b"2"
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        db.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    run("set", "k", "3")
    for name in ("store.db-wal", "store.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    os.replace(tmp_path / "copy.db", tmp_path / "store.db")
    assert run("peek", "k").out == b"2"
    run("set", "k", "4")
    with Memory() as memory:
        assert memory.session("test").peek("k").value == "4"  # type: ignore[union-attr]
    (tmp_path / "store.db").unlink()
    assert run("peek", "k", "--fail-on-miss").status == 1
    assert counts()["done"] == 6


# --- the wire -----------------------------------------------------------------------------------------------------


def _malformed() -> Iterator[bytes]:
    """Two hundred requests that are none."""
    dice = random.Random(8)
    yield b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"POST /v1/set HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde"
    yield (2 << 30).to_bytes(4, "big") + b"x" * 1000
    yield b"\xff\xff\xff\xff"
    yield b"\x00\x00\x00\x00"
    yield client.framed(b"[" * 100_000)
    yield client.framed(b'{"a":' * 50_000)
    yield client.framed(b"\xff\xfe")
    yield client.framed(b"null")
    yield client.framed(b"{}" * 3)
    for wrong in (
        {"argv": "peek"}, {"argv": [1]}, {"argv": None}, {"folder": "relative"}, {"folder": 7}, {"environ": []}, {"environ": {"A": 1}}, {"input": -1},
        {"input": 1 << 40}, {"input": "x"}, {"columns": "wide"}, {"terminal": "yes"}, {"id": ""}, {"id": "cli:"}, {"id": "x" * 500}, {"id": None},
    ):  # fmt: skip
        whole = {"protocol": client.PROTOCOL, "pinfold": __version__, "id": "cli:" + "0" * 20, "argv": ["set", "bad", "1"], "folder": "/", "environ": {}}
        yield client.framed(json.dumps({**whole, "terminal": False, "columns": 0, "input": None, **wrong}).encode())
    while True:
        body = dice.randbytes(dice.choice((1, 3, 5, 20, 300, 5000)))
        yield dice.choice((b"", b"\x00\x00", len(body).to_bytes(4, "big"), (len(body) // 2 + 1).to_bytes(4, "big"), (10**9).to_bytes(4, "big"))) + body


@pytest.mark.requirement("slow-clients")
def test_two_hundred_malformed_requests_are_refused_and_harm_nobody(served: Any) -> None:
    run("set", "k", "v")
    for _, raw in zip(range(200), _malformed(), strict=False):
        link = Link().send(raw)
        try:
            link.socket.shutdown(socket.SHUT_WR)  # half of one ends here
        except OSError:
            pass
        frames = link.frames()
        assert [kind for kind, _ in frames] in ([], [client.REFUSED]), raw[:100]
    told = counts()
    assert told["malformed"] + told.get("left", 0) == 200 and told["malformed"] >= 100
    assert run("peek", "k").out == b"v" and run("keys").text == "k\n"


@pytest.mark.requirement("slow-clients")
def test_who_says_nothing_or_half_or_reads_nothing_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PATIENCE_S", "600")
    value = b"x" * (4 << 20)
    with serving():
        run("set", "large", "-", stdin=value)
        silent = [Link() for _ in range(100)]
        halves = [Link().send((1000).to_bytes(4, "big") + b'{"argv": [') for _ in range(50)]
        deaf = [Link().ask("peek", "large") for _ in range(40)]  # more than there are threads
        assert [Link().answer("set", f"k{n}", str(n)) for n in range(20)] == [b"stored [%d]\n" % n for n in range(1, 21)]
        assert [run("peek", f"k{n}").text for n in range(20)] == [str(n) for n in range(20)]
        told = counts()
        assert told["done"] >= 41 and not told.keys() & {"too_slow", "unread", "left"}  # they are all still there
        for link in deaf:
            assert b"".join(payload for kind, payload in link.frames() if kind == client.STDOUT) == value
        for link in (*silent, *halves):
            link.socket.close()


@pytest.mark.requirement("slow-clients")
def test_who_is_too_slow_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PATIENCE_S", "1")
    value = b"x" * (4 << 20)
    run("set", "large", "-", stdin=value)
    with serving():
        slow = [Link() for _ in range(20)] + [Link().send((1000).to_bytes(4, "big") + b'{"argv": [') for _ in range(20)]
        deaf = [Link().ask("peek", "large") for _ in range(5)]
        for link in slow:
            assert link.frames() == []

        def told(name: str) -> int:
            return int((ask(base(), "status") or {"counts": {}})["counts"].get(name, 0))

        assert becomes(lambda: told("too_slow") + told("unread") == 45) and told("unread") > 0
        for link in deaf:
            assert len(b"".join(payload for _, payload in link.frames())) < len(value)


@pytest.mark.requirement("slow-clients")
def test_sixty_four_clients_at_once_get_their_own_answers(served: Any) -> None:
    def work(n: int) -> list[bytes]:
        own = ("--session", f"s{n}", "--actor", f"a{n}")
        answers = [Link().answer("set", "k", f"value-{n}-{i}", *own) and Link().answer("peek", "k", *own) for i in range(2)]
        Link().answer("mutate", f"+ TSK [T{n}] ; goal=g{n}", *own)
        return [*answers, Link().answer("read", "get", f"T{n}", *own), Link().answer("log", "--json", *own)]

    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(work, range(64)))
    for n, answers in enumerate(found):
        assert answers[:3] == [*(b"value-%d-%d" % (n, i) for i in range(2)), b"TSK [T%d] ; goal=g%d\n" % (n, n)]
        assert {entry["actor"] for entry in json.loads(answers[3])["entries"]} == {f"a{n}"}
    assert counts()["done"] == 64 * 7


def test_sixty_four_writers_of_one_session_lose_nothing(served: Any) -> None:
    run("mutate", "+ TSK [C] ; n=0")
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda _: Link().answer("update", "~ [C] ; n+=1"), range(128)))
    assert run("read", "get", "C").text == "TSK [C] ; n=128\n"


def test_a_command_whose_caller_has_left_is_not_done(served: Any, tmp_path: Path) -> None:
    run("set", "k", "v")
    with Held(tmp_path), ThreadPoolExecutor(40) as pool:
        waiting = list(pool.map(lambda n: Link().ask("set", f"w{n}", "1"), range(32)))  # every thread waits for the store
        for link in waiting:
            assert link.socket.recv(5) == b"b\x00\x00\x00\x00"
        gone = Link().ask("set", "gone", "1")
        gone.socket.close()
    assert [link.frames()[-1] for link in waiting] == [(client.STATUS, b"0")] * 32
    assert Link().answer("peek", "w0") == b"1"
    assert "gone" not in run("keys").text.split()
