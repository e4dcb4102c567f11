"""The corruption matrix: each kind of damage, what the doctor says, what survives a repair."""

from __future__ import annotations

import base64
import json
import sqlite3

import pytest

from pinfold import Hit, JournalCorrupt, Memory, Miss
from pinfold.doctor import examine, repair
from pinfold.entry import Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Broken, Busy, ConfigurationError, NewerFormat, Refused
from pinfold.journal.lock import FileLock
from pinfold.journal.sqlite import SqliteJournal
from pinfold.state.session import decode_snapshot, encode_snapshot

NOW = 1_800_000_000_000
LARGE = "large value " * 10_000


@pytest.fixture
def path(tmp_path):
    """A store of two sessions, ten entries and a snapshot in one, a large value in the other."""
    path = str(tmp_path / "store.db")
    with Memory(f"sqlite:///{path}") as memory:
        session = memory.session("hurt")
        for n in range(6):
            session.set(f"k{n}", f"v{n}")
        memory.compact()
        for n in range(6, 10):
            session.set(f"k{n}", f"v{n}")
        memory.session("whole").set("large", LARGE)
        memory.session("whole").set("small", "1")
    return path


def execute(path, sql, *arguments):
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return db.execute(sql, arguments).fetchall()
    finally:
        db.close()


def session_id(path, name="hurt"):
    return execute(path, "SELECT id FROM session WHERE name = ?", name)[0][0]


def flip_a_bit_of_an_entry(path, seq=8):
    body = bytearray(execute(path, "SELECT body FROM entry WHERE session = ? AND seq = ?", session_id(path), seq)[0][0])
    body[-3] ^= 1
    execute(path, "UPDATE entry SET body = ? WHERE session = ? AND seq = ?", bytes(body), session_id(path), seq)


def remove_an_entry(path):
    execute(path, "DELETE FROM entry WHERE session = ? AND seq = 8", session_id(path))


def break_the_chain(path):
    row = execute(path, "SELECT seq, hash, body FROM entry WHERE session = ? AND seq = 8", session_id(path))[0]
    entry = decode_entry(Record(*row))
    other = encode_entry(type(entry)(entry.seq, b"x" * 16, entry.at_ms, None, None, entry.facts))
    execute(path, "UPDATE entry SET hash = ?, body = ? WHERE session = ? AND seq = 8", other.hash, other.body, session_id(path))


def tear_the_snapshot(path):
    execute(path, "UPDATE snapshot SET body = substr(body, 1, 20) WHERE session = ?", session_id(path))


def lose_a_blob(path):
    execute(path, "DELETE FROM blob")


def half_write_a_blob(path):
    execute(path, "UPDATE blob SET body = substr(body, 1, 1000)")


def orphan_rows(path):
    execute(path, "INSERT INTO entry VALUES (999, 1, x'00', x'11')")


DAMAGE = {
    # kind: (damage, what examine must find, opening, keys of "hurt" after repair, whether "large" survives)
    "bit flip in an entry": (flip_a_bit_of_an_entry, {"bad_checksum"}, "corrupt", {f"k{n}" for n in range(10) if n != 7}, True),
    "missing entry": (remove_an_entry, {"missing_entries"}, "corrupt", {f"k{n}" for n in range(10) if n != 7}, True),
    "broken hash chain": (break_the_chain, {"broken_chain"}, "corrupt", {f"k{n}" for n in range(10)}, True),
    "torn snapshot": (tear_the_snapshot, {"torn_snapshot"}, "opens", {f"k{n}" for n in range(10)}, True),
    "lost blob": (lose_a_blob, {"blob_missing"}, "opens", {f"k{n}" for n in range(10)}, False),
    "half-written blob": (half_write_a_blob, {"blob_corrupt"}, "opens", {f"k{n}" for n in range(10)}, False),
    "foreign rows": (orphan_rows, {"foreign_rows"}, "opens", {f"k{n}" for n in range(10)}, True),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named_and_what_is_readable_survives_repair(path, kind):
    damage, codes, opening, keys, large = DAMAGE[kind]
    damage(path)
    journal = SqliteJournal(path)
    report = examine(journal)
    journal.close()
    assert not report.ok and codes <= {finding.code for finding in report.findings}

    with Memory(f"sqlite:///{path}") as memory:
        if opening == "corrupt":
            with pytest.raises(JournalCorrupt):
                memory.session("hurt")
        else:
            assert set(memory.session("hurt").keys()) == {f"k{n}" for n in range(10)}
        assert memory.session("whole").peek("small").value == "1"

    done = repair(path, NOW)
    assert codes <= {finding.code for finding in done.findings}
    with Memory(f"sqlite:///{path}") as memory:
        session = memory.session("hurt")
        assert set(session.keys()) == keys
        assert all(session.peek(key).value == f"v{key[1:]}" for key in keys)
        whole = memory.session("whole")
        assert whole.peek("small").value == "1"
        found = whole.peek("large")
        assert (isinstance(found, Hit) and found.value == LARGE) if large else isinstance(found, Miss)
        session.set("later", "goes on")
        assert examine(memory._journal).ok
    with Memory(f"sqlite:///{path}") as memory:
        assert memory.session("hurt").peek("later").value == "goes on"


def test_unreadable_bytes_are_kept_in_quarantine_and_the_damaged_file_as_it_was(path):
    flip_a_bit_of_an_entry(path)
    body = execute(path, "SELECT body FROM entry WHERE session = ? AND seq = 8", session_id(path))[0][0]
    done = repair(path, NOW)
    with open(done.quarantine, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(row["table"], row["session"], row["seq"], base64.b64decode(row["base64"])) for row in rows] == [("entry", "hurt", 8, body)]
    assert execute(done.damaged, "SELECT body FROM entry WHERE session = ? AND seq = 8", session_id(done.damaged))[0][0] == body
    assert (done.entries_lost, done.slots_lost) == (1, 0)


def test_damage_before_a_snapshot_is_named_and_costs_no_value(path):
    flip_a_bit_of_an_entry(path, seq=3)
    with Memory(f"sqlite:///{path}") as memory:
        assert len(memory.session("hurt").keys()) == 10
        report = examine(memory._journal)
        assert [(finding.code, finding.seq) for finding in report.findings] == [("bad_checksum", 3)]
    done = repair(path, NOW)
    assert done.entries_lost == 1
    with Memory(f"sqlite:///{path}") as memory:
        assert len(memory.session("hurt").keys()) == 10
        assert examine(memory._journal).ok


def test_seqs_keep_their_meaning_and_the_log_says_what_is_lost(path):
    flip_a_bit_of_an_entry(path)
    repair(path, NOW)
    with Memory(f"sqlite:///{path}") as memory:
        told = {row.seq: row.changes for row in memory.session("hurt").log()}
    assert "lost" in told[8][0] and "set k8" in told[9][0]


def test_a_lost_snapshot_with_a_trimmed_history_keeps_the_tail(path):
    execute(path, "DELETE FROM entry WHERE session = ? AND seq <= 6", session_id(path))
    tear_the_snapshot(path)
    with Memory(f"sqlite:///{path}") as memory, pytest.raises(JournalCorrupt):
        memory.session("hurt")
    repair(path, NOW)
    with Memory(f"sqlite:///{path}") as memory:
        assert memory.session("hurt").keys() == ["k6", "k7", "k8", "k9"]


def test_a_whole_store_is_healthy_and_not_repaired(path):
    journal = SqliteJournal(path)
    report = examine(journal)
    journal.close()
    assert report.ok and [s.session_id for s in report.sessions] == ["hurt", "whole"]
    with pytest.raises(Refused) as refused:
        repair(path, NOW)
    assert refused.value.code == "not_damaged"


def test_pages_that_cannot_be_read_cost_only_their_rows(tmp_path):
    path = str(tmp_path / "store.db")
    with Memory(f"sqlite:///{path}") as memory:
        for n in range(400):
            memory.session("s").set(f"k{n}", f"{n}" * 200)
        memory.session("other").set("a", "1")
    page = execute(path, "PRAGMA page_size")[0][0]
    with open(path, "r+b") as file:
        file.seek(page * 40)
        file.write(b"\xff" * page)
    journal = SqliteJournal(path)
    report = examine(journal)
    journal.close()
    assert not report.ok
    done = repair(path, NOW)
    assert 0 < done.entries_lost < 100
    with Memory(f"sqlite:///{path}") as memory:
        assert 300 <= len(memory.session("s").keys()) < 400
        assert memory.session("other").peek("a").value == "1"


def test_what_is_not_a_store_or_cannot_be_read_at_all_is_left_alone(tmp_path):
    stranger = tmp_path / "other.db"
    execute(str(stranger), "CREATE TABLE t (x)")
    with pytest.raises(ConfigurationError):
        repair(str(stranger), NOW)
    noise = tmp_path / "noise.db"
    noise.write_bytes(b"\x00\x01noise" * 1000)
    with pytest.raises(Broken):
        repair(str(noise), NOW)
    assert noise.read_bytes() == b"\x00\x01noise" * 1000


def test_a_store_that_somebody_has_open_is_not_repaired(path):
    flip_a_bit_of_an_entry(path)
    with Memory(f"sqlite:///{path}") as memory:
        memory.session("whole").set("small", "2")
        with pytest.raises(Busy):
            repair(path, NOW)
        memory.session("whole").set("small", "3")
    repair(path, NOW)
    with Memory(f"sqlite:///{path}") as memory:
        assert memory.session("whole").peek("small").value == "3"


def test_a_store_of_a_later_format_is_not_repaired(path):
    flip_a_bit_of_an_entry(path)
    execute(path, "PRAGMA user_version = 99")
    with pytest.raises(NewerFormat):
        repair(path, NOW)


def test_a_snapshot_that_lies_about_its_entries_is_dropped(path):
    body, seq = execute(path, "SELECT body, seq FROM snapshot WHERE session = ?", session_id(path))[0]
    state = decode_snapshot(body)
    state.silo.slots.pop("k2")
    false = encode_snapshot(state)
    execute(path, "UPDATE snapshot SET body = ?, hash = ? WHERE session = ?", false, hash_of(false), session_id(path))
    journal = SqliteJournal(path)
    report = examine(journal)
    journal.close()
    assert [(finding.code, finding.seq) for finding in report.findings] == [("wrong_snapshot", seq)]
    done = repair(path, NOW)
    assert [(finding.code, finding.seq) for finding in done.findings] == [("wrong_snapshot", seq)]
    with Memory(f"sqlite:///{path}") as memory:
        assert memory.session("hurt").keys() == [f"k{n}" for n in range(10)]


def test_a_fork_of_the_very_beginning_is_whole(tmp_path):
    path = str(tmp_path / "store.db")
    with Memory(f"sqlite:///{path}") as memory:
        memory.session("s").set("a", "1")
        memory.fork("s", "f").set("b", "2")
        memory.compact()
        memory.session("f").set("c", "3")
        memory.compact()
        report = examine(memory._journal)
        assert report.ok, report.findings
        assert memory.session("f").at(1) and memory.session("f").keys() == ["a", "b", "c"]
    with pytest.raises(Refused):
        repair(path, NOW)


def test_a_store_in_use_is_not_repaired(path, monkeypatch):
    monkeypatch.setattr("pinfold.limits.LOCK_WAIT_S", 0.05)
    flip_a_bit_of_an_entry(path)
    lock = FileLock(path + ".lock")
    assert lock.acquire(1)
    try:
        with pytest.raises(Busy):
            repair(path, NOW)
    finally:
        lock.release()
        lock.close()
