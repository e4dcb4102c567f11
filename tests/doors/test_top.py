"""`pinfold top`, and bars: for people on a terminal, plain or silent elsewhere."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_runner import isolate, run, serving

from pinfold import Memory
from pinfold.doors.progress import progress
from pinfold.doors.top import Looker, plain

own_store = pytest.fixture(autouse=True)(isolate)


def test_top_once_shows_who_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("top", "--once").text.splitlines()[0].endswith("sessions 0  turns/s 0.0  pending 0  hit ratio -")
    run("set", "k", "v")
    run("claim", "busy", "--lease", "1h")
    run("session", "open", "lru", "--silo-size", "2")
    run("set", "k", "v", "--session", "lru")
    run("peek", "k", "--session", "lru")
    run("peek", "none", "--session", "lru")
    run("session", "open", "gone", "--silo-size", "2")
    run("session", "close", "gone")
    lines = run("top", "--once").text.splitlines()
    assert lines[0].endswith("sessions 2  turns/s 0.0  pending 1  hit ratio 50%")
    table = [line.split() for line in lines[1:]]
    assert [row[0] for row in table] == ["session", "lru", "test"]
    assert table[1][:10] == ["lru", "4", "0.0", "1", "0", "0", "0", "1", "1", "50%"] and table[2][:5] == ["test", "2", "0.0", "1", "1"]
    told = run("top", "--once", "--json").json
    assert told["pending"] == 1 and told["server"] is None and told["rows"][0]["session_id"] == "lru"
    with serving():
        run("peek", "k")
        server = run("top", "--once").text.splitlines()[1]
        assert server.startswith("server pid ") and "commands 1  commands/s 0.0  hit ratio 100%  loaded 1" in server


def test_rates_are_those_since_the_look_before() -> None:
    with Memory() as writer, Memory(background=False) as memory:
        looker = Looker(memory, memory.url)
        for n in range(3):
            writer.session(f"s{n}").set("k", "v")
        assert looker.look().turns_per_s == 0
        for n in range(10):
            writer.session("s1").set("k", str(n))
        look = looker.look()
        assert [row.session_id for row in look.rows] == ["s1", "s0", "s2"]  # who is at work comes first
        assert look.rows[0].turns_per_s > 0 == look.rows[1].turns_per_s and look.turns_per_s == look.rows[0].turns_per_s
        assert plain(look).splitlines()[2].startswith("s1")


def test_on_a_terminal_top_refreshes_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    run("set", "k", "v")
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("pinfold.doors.top.time.sleep", sleep)
    ran = run("top", "--interval", "500ms", terminal=True)
    assert ran.status == 0 and looks == [0.5] * 3 and b"test" in ran.out and b"turns/s" in ran.out


@pytest.mark.parametrize("has_rich", [True, False])
def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(has_rich: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    if not has_rich:
        for name in ("rich.console", "rich.progress"):
            monkeypatch.setitem(sys.modules, name, None)
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False), (None, False)):
        monkeypatch.setattr("sys.stderr", stream)
        with progress("copying") as told:
            for done in range(11):
                told(done, 10)
        assert stream is None or ("copying" in stream.getvalue() and "10/10" in stream.getvalue()) is drawn
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr", stream := Terminal())
    with progress("copying") as told:
        told(1, 2)
    assert stream.getvalue() == ""


SET = {"set": "toy", "documents": [{"id": "0", "text": "the boat is here"}], "queries": [{"id": "q", "text": "boat", "relevant": ["0"]}] * 3}


@pytest.mark.parametrize(
    ("argv", "bars"),
    [
        (("doctor",), ["examining"]),
        (("doctor", "--repair"), ["repairing", "examining"]),
        (("compact",), ["compacting"]),
        (("copy", "sqlite:///{folder}/store.db", "sqlite:///{folder}/copy.db"), ["copying"]),
        (("reembed",), ["test"]),
        (("import", "json", "{folder}/out.json", "--session", "other"), ["import"]),
        (("bench", "recall", "{folder}/set.jsonl"), ["asking"]),
    ],
)
def test_long_commands_say_how_far_they_are(argv: tuple[str, ...], bars: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        run("remember", f"the harbour number {n} is closed on Sundays")
    run("export", "json", "--file", f"{tmp_path}/out.json")
    (tmp_path / "set.jsonl").write_text(json.dumps(SET))
    if "--repair" in argv:
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as db:
            db.execute("DELETE FROM entry WHERE seq = 2")
    drawn: dict[str, list[tuple[int, int]]] = {}

    def plain_bar(name: str, err: object) -> object:
        told = drawn.setdefault(name, [])
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr("pinfold.doors.progress._plain", plain_bar)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setattr("cli_runner._Stream.isatty", lambda stream: True)
    assert run(*(word.format(folder=tmp_path) for word in argv)).status == 0
    assert list(drawn) == bars
    for told in drawn.values():
        assert told and told[-1][0] == told[-1][1] > 0 and told == sorted(told)
