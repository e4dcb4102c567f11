"""`pinfold doctor` finds what is damaged, says where, and changes nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runner import isolate, run

from pinfold.journal.lock import Holder, lock_holder

own_store = pytest.fixture(autouse=True)(isolate)  # alone: a store is repaired when nobody has it open


def _fill() -> None:
    for i in range(5):
        run("set", f"k{i}", f"v{i}")
    run("set", "large", "-", stdin=b"x" * 100_000)


def _sql(tmp_path: Path, *statements: str) -> None:
    db = sqlite3.connect(tmp_path / "store.db")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def test_a_sound_store_is_clean() -> None:
    _fill()
    run("compact")
    run("set", "after", "v")
    report = run("doctor", "--json").json
    session = report["sessions"][0]
    assert report["ok"] and report["findings"] == [] and report["lock"] == {"held": False, "pids": []}
    assert (session["entries"], session["first_seq"], session["last_seq"], session["snapshots"]) == (7, 1, 7, [6])
    assert session["chain_ok"] and session["snapshots_ok"] and session["large_values_ok"] and session["clock_ahead_s"] == 0
    ran = run("doctor")
    assert ran.status == 0 and ran.text.endswith("clean\n") and "7 entries, 1..7, chain ok" in ran.text


def test_no_store_is_no_damage_and_none_is_made(tmp_path: Path) -> None:
    ran = run("doctor")
    assert ran.status == 0 and "no store there yet" in ran.text
    assert list(tmp_path.iterdir()) == []


DAMAGE: dict[str, tuple[str, str, int | None]] = {
    "a flipped bit": ("UPDATE entry SET body = CAST(substr(body, 1, 20) || x'00' || substr(body, 22) AS BLOB) WHERE seq = 3", "bad_checksum", 3),
    "a missing entry": ("DELETE FROM entry WHERE seq = 3", "missing_entries", 3),
    "a missing beginning": ("DELETE FROM entry WHERE seq <= 2", "missing_entries", 3),
    "a replaced hash": ("UPDATE entry SET hash = zeroblob(16) WHERE seq = 4", "bad_checksum", 4),
    "a large value changed": ("UPDATE blob SET body = zeroblob(100000)", "blob_corrupt", None),
    "a large value gone": ("DELETE FROM blob", "blob_missing", None),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_located(tmp_path: Path, what: str) -> None:
    statement, code, seq = DAMAGE[what]
    _fill()
    _sql(tmp_path, statement)
    before = (tmp_path / "store.db").read_bytes()
    ran = run("doctor", "--json")
    assert ran.status == 5
    problem = ran.json["findings"][0]
    assert (problem["session"], problem["code"], problem["seq"]) == ("test", code, seq)
    assert "PROBLEM   test " in run("doctor").text
    assert (tmp_path / "store.db").read_bytes() == before


def test_a_damaged_snapshot_is_found(tmp_path: Path) -> None:
    _fill()
    run("compact")
    _sql(tmp_path, "UPDATE snapshot SET body = x'0102'")
    report = run("doctor", "--json").json
    assert not report["ok"] and not report["sessions"][0]["snapshots_ok"] and report["sessions"][0]["chain_ok"]


def test_a_snapshot_of_another_history_is_found(tmp_path: Path) -> None:
    _fill()
    run("compact")
    run("set", "k", "v", "--session", "other")
    run("compact")
    _sql(tmp_path, "UPDATE snapshot SET (hash, body) = (SELECT hash, body FROM snapshot WHERE session = 2) WHERE session = 1")
    assert "test wrong_snapshot" in run("doctor").text
    assert run("doctor", "--repair").status == 0
    assert run("peek", "k1").text == "v1"


@pytest.mark.parametrize("ruin", [lambda raw: raw[: len(raw) // 2], lambda raw: b"\x00" * len(raw), lambda raw: raw[:4096] + b"\xff" * 4096 + raw[8192:]])
def test_a_ruined_file_is_reported_not_started_over(tmp_path: Path, ruin: Callable[[bytes], bytes]) -> None:
    _fill()
    path = tmp_path / "store.db"
    path.write_bytes(ruin(path.read_bytes()))
    ruined = path.read_bytes()
    assert run("doctor").status in (2, 5)
    assert run("doctor", "--json").json
    assert path.read_bytes() == ruined


def test_a_clock_that_was_wrong_once_is_named(tmp_path: Path) -> None:
    from pinfold.journal.sqlite import SqliteJournal
    from pinfold.memory import Memory

    class Tomorrow(SqliteJournal):
        def now_ms(self) -> int:
            return super().now_ms() + 86_400_000

    with Memory(journal=Tomorrow(f"{tmp_path}/store.db"), background=False) as memory:
        memory.session("test").set("k", "v")
    report = run("doctor", "--json").json
    assert report["ok"] and 86_000 < report["sessions"][0]["clock_ahead_s"] <= 86_400
    assert "ahead of now" in run("doctor").text


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="Linux says who holds a lock")
def test_who_holds_the_lock_is_named(tmp_path: Path) -> None:
    run("set", "k", "v")
    code = f"import fcntl; f = open({str(tmp_path / 'store.db.lock')!r}); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    try:
        assert lock_holder(f"{tmp_path}/store.db.lock") == Holder(True, [holder.pid])
        assert lock_holder(f"{tmp_path}/store.db.lock", str(tmp_path / "no-such-listing")) == Holder(True, [])
        assert f"held by process {holder.pid}" in run("doctor").text
    finally:
        holder.communicate(b"\n", timeout=60)


def test_repair_says_what_was_lost_and_where_the_rest_is(tmp_path: Path) -> None:
    _fill()
    _sql(tmp_path, DAMAGE["a flipped bit"][0], "DELETE FROM blob")
    ran = run("doctor", "--repair")
    assert ran.status == 0 and "6 entries kept, 1 lost, 1 values lost" not in ran.text
    assert "5 entries kept, 1 lost, 1 values lost" in ran.text and ran.text.endswith("clean\n")
    damaged, quarantine = (next(tmp_path.glob(f"store.db.{kind}-*")) for kind in ("damaged", "quarantine"))
    assert f"kept as {damaged}" in ran.text and f"kept in {quarantine}" in ran.text
    assert "was       test bad_checksum: entry 3" in ran.text
    assert run("doctor").status == 0
    assert [run("peek", key, "--fail-on-miss").status for key in ("k1", "k2", "k3", "large")] == [0, 1, 0, 1]


def test_repair_as_json_holds_the_repair_and_the_report_after_it(tmp_path: Path) -> None:
    _fill()
    _sql(tmp_path, DAMAGE["a missing entry"][0])
    told = run("doctor", "--repair", "--json").json
    assert (told["repaired"]["entries_kept"], told["repaired"]["entries_lost"]) == (5, 1)
    assert told["report"]["ok"] and told["report"]["sessions"][0]["last_seq"] == 6


def test_repair_leaves_a_sound_store_and_a_missing_one_alone(tmp_path: Path) -> None:
    assert run("doctor", "--repair").status == 2
    assert list(tmp_path.iterdir()) == []
    _fill()
    before = (tmp_path / "store.db").read_bytes()
    ran = run("doctor", "--repair", "--json")
    assert ran.status == 0 and ran.json["repaired"] is None and ran.json["report"]["ok"]
    assert (tmp_path / "store.db").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {"store.db", "store.db.lock", "store.db-wal", "store.db-shm"}


def test_repair_of_what_cannot_be_read_changes_nothing_and_exits_with_5(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"noise" * 5000)
    assert run("doctor", "--repair").status == 5
    assert (tmp_path / "store.db").read_bytes() == b"noise" * 5000


def test_only_files_are_repaired() -> None:
    ran = run("doctor", "--repair", "--store", "memory://")
    assert ran.status == 3


@pytest.mark.parametrize("words", ["stat URL", "stat --store URL", "copy URL memory://", "compact --store URL", "top --store URL"])
def test_a_named_store_that_is_not_there_is_said_and_not_made(words: str, tmp_path: Path) -> None:
    ran = run(*words.replace("URL", f"sqlite:///{tmp_path}/slip.db").split())
    assert ran.status == 2 and "no_store" in ran.err and "slip.db" in ran.err
    assert list(tmp_path.glob("slip.db*")) == []
