"""Damage and obstacles: a named error each, RAM equal to disk, nothing begun anew over what was there."""

import os
import shutil
import sqlite3

import pytest

from pinfold import ConfigurationError, Hit, JournalCorrupt, Memory, Miss, NewerFormat, Unavailable
from pinfold.fold import load_state
from pinfold.state.session import state_hash

pytestmark = pytest.mark.requirement("damage")


@pytest.fixture
def store(sqlite_url, tmp_path):
    """The path of a store with 30 entries, two snapshots and a large value; nobody has it open."""
    with Memory(sqlite_url, background=False) as memory:
        session = memory.session("work")
        for n in range(20):
            session.set(f"k{n}", f"value {n} " * 20)
        session._replica.compact()
        session.set("large", bytes(100_000))
        for n in range(5):
            session.set(f"l{n}", "after the first snapshot")
        session._replica.compact()
        for n in range(4):
            session.set(f"m{n}", "after the second snapshot")
    return tmp_path / "store.db"


@pytest.fixture
def change(store):
    """A function that runs SQL on the closed store."""

    def run(sql: str, *arguments) -> list:
        db = sqlite3.connect(store)
        with db:
            rows = db.execute(sql, arguments).fetchall()
        db.close()
        return rows

    return run


def flipped(body: bytes, at: int) -> bytes:
    return body[:at] + bytes([body[at] ^ 0x10]) + body[at + 1 :]


def opened(url: str) -> Hit | Miss:
    with Memory(url, background=False) as memory:
        return memory.session("work").peek("k3")


def test_a_flipped_bit_in_an_entry_after_the_snapshot_is_named(change, sqlite_url):
    seq, body = change("SELECT seq, body FROM entry ORDER BY seq DESC LIMIT 1")[0]
    for at in (0, len(body) // 2, len(body) - 1):
        change("UPDATE entry SET body = ? WHERE seq = ?", flipped(body, at), seq)
        with pytest.raises(JournalCorrupt) as damage:
            opened(sqlite_url)
        assert damage.value.seq == seq
    change("UPDATE entry SET body = ? WHERE seq = ?", body, seq)
    assert opened(sqlite_url).value.startswith("value 3")


def test_a_missing_entry_is_named(change, sqlite_url):
    (last,) = change("SELECT max(seq) FROM entry")[0]
    change("DELETE FROM entry WHERE seq = ?", last - 1)
    with pytest.raises(JournalCorrupt) as damage:
        opened(sqlite_url)
    assert damage.value.seq in (last - 1, last)


def test_a_torn_snapshot_falls_back_to_the_one_before(change, sqlite_url):
    seq, body = change("SELECT seq, body FROM snapshot ORDER BY seq DESC LIMIT 1")[0]
    change("UPDATE snapshot SET body = ? WHERE seq = ?", body[: len(body) // 2], seq)
    assert opened(sqlite_url).value.startswith("value 3")
    with Memory(sqlite_url, background=False) as memory:
        session = memory.session("work")
        assert session.set("new", "still writable").index == 30
        session._replica.compact()
    with Memory(sqlite_url, background=False) as memory:
        assert memory.session("work").peek("new").value == "still writable"


def test_two_torn_snapshots_are_named_and_never_an_empty_start(change, sqlite_url):
    change("UPDATE snapshot SET body = x'0000'")
    change("DELETE FROM entry WHERE seq < 10")
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            opened(sqlite_url)


def test_torn_snapshots_cost_nothing_while_all_entries_are_kept(change, sqlite_url):
    change("UPDATE snapshot SET body = x'0000'")
    assert opened(sqlite_url).value.startswith("value 3")


def test_a_damaged_large_value_is_named_where_it_is_read_and_only_there(change, sqlite_url):
    body = change("SELECT body FROM blob")[0][0]
    for damaged, code in ((flipped(body, 5_000), "blob_corrupt"), (None, "blob_missing")):
        change("DELETE FROM blob" if damaged is None else "UPDATE blob SET body = ?", *([] if damaged is None else [damaged]))
        with Memory(sqlite_url, background=False) as memory:
            session = memory.session("work")
            assert session.peek("k3").hit
            with pytest.raises(JournalCorrupt) as damage:
                session.peek("large")
        assert damage.value.code == code


def test_a_damaged_session_is_listed_and_in_no_other_s_way(store, change, sqlite_url):
    with Memory(sqlite_url, background=False) as memory:
        memory.session("other").set("k", 1)
        memory.session("third").set("k", 1)
    change("DELETE FROM entry WHERE seq = 28 AND session = (SELECT id FROM session WHERE name = 'work')")
    change("UPDATE entry SET body = x'01' WHERE seq = 30")
    with Memory(sqlite_url, background=False) as memory:
        assert [(row.session_id, row.damaged) for row in memory.sessions()] == [("other", False), ("third", False), ("work", True)]
        assert memory.end("other")
        assert [row.session_id for row in memory.sessions(expired=True)] == ["other"]
        assert memory.restore("other").peek("k").value == 1
        assert memory.purge() == []
        with pytest.raises(JournalCorrupt):
            memory.compact()
        assert len(memory._journal.load_snapshots("third")) == 1


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.7])
def test_a_cut_file_is_named_and_never_begun_anew(store, sqlite_url, share):
    size = store.stat().st_size
    kept = int(size * share)
    os.truncate(store, kept)
    for _ in range(2):
        with pytest.raises(JournalCorrupt):
            opened(sqlite_url)
    assert store.stat().st_size == kept


def test_an_emptied_file_beside_a_living_log_does_not_lose_the_log(store, sqlite_url):
    memory = Memory(sqlite_url, background=False)
    memory.session("work").set("late", "only in the log")
    log = store.with_name("store.db-wal")
    before = log.read_bytes()
    for name in ("store.db", "store.db-wal", "store.db.lock"):
        shutil.copy(store.with_name(name), store.with_name(f"copy-{name}"))
    memory.close()
    copy = store.with_name("copy-store.db")
    os.truncate(copy, 0)
    with pytest.raises(JournalCorrupt):
        opened(f"sqlite:///{copy}")
    assert store.with_name("copy-store.db-wal").read_bytes() == before


def test_a_store_that_was_removed_is_begun_anew(store, sqlite_url):
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        store.with_name(name).unlink(missing_ok=True)
    assert type(opened(sqlite_url)) is Miss


@pytest.mark.parametrize("garbage", [b"not a database at all, " * 100, b"SQLite format 3\x00" + bytes(5_000)])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, garbage):
    path = tmp_path / "notes.txt"
    path.write_bytes(garbage)
    with pytest.raises((JournalCorrupt, ConfigurationError)):
        opened(f"sqlite:///{path}")
    assert path.read_bytes() == garbage


def test_somebody_else_s_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    db = sqlite3.connect(path)
    with db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError) as refused:
        opened(f"sqlite:///{path}")
    assert refused.value.code == "not_a_store"
    assert path.read_bytes() == before


def test_a_store_of_a_newer_format_is_refused(change, sqlite_url):
    change("PRAGMA user_version = 99")
    with pytest.raises(NewerFormat) as newer:
        opened(sqlite_url)
    assert newer.value.code == "newer_format"


def test_an_entry_with_an_unknown_fact_refuses_to_open(sqlite_url, store):
    from pinfold.entry import Entry, encode_entry
    from pinfold.journal.sqlite import SqliteJournal

    journal = SqliteJournal(str(store))
    last = journal.read("work", 0)[-1]
    record = encode_entry(Entry(last.seq + 1, last.hash, 2_000_000_000_000, None, None, [{"f": "star.put", "k": "sirius"}]))
    assert journal.append("work", last.seq, last.hash, [record], {}) is None
    journal.close()
    with pytest.raises(NewerFormat) as newer:
        opened(sqlite_url)
    assert newer.value.seq == last.seq + 1


def test_a_full_disk_is_named_and_ram_stays_equal_to_disk(sqlite_url, open_memory):
    memory = open_memory(sqlite_url, background=False)
    session = memory.session("work")
    session.set("first", "fits")
    db = memory._journal._db
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(Unavailable) as full:
        for n in range(1_000):
            session.set(f"k{n}", "x" * 2_000)
    assert full.value.code == "disk_full"
    assert full.value.maybe_applied is False
    with pytest.raises(Unavailable) as full:
        session.set("large", bytes(100_000))
    assert full.value.code == "disk_full"
    assert state_hash(session._replica.state) == state_hash(load_state(memory._journal, "work"))
    db.execute("PRAGMA max_page_count = 1000000")
    session.set("large", bytes(100_000))
    assert state_hash(session._replica.state) == state_hash(load_state(memory._journal, "work"))
    assert len(session.peek("large").value) == 100_000


def test_a_read_only_store_is_read_and_refuses_writes_by_name(store, sqlite_url):
    before = {path.name: path.read_bytes() for path in store.parent.iterdir() if path.suffix != ".db-shm"}
    with Memory(f"{sqlite_url}?mode=ro", background=False) as memory:
        session = memory.session("work")
        assert session.peek("k3").hit
        assert session.peek("nothing").hit is False
        with pytest.raises(Unavailable) as refused:
            session.set("k3", "changed")
        assert refused.value.code == "read_only"
    assert store.read_bytes() == before["store.db"]
    assert opened(sqlite_url).value.startswith("value 3")


def test_a_read_only_look_at_no_store_makes_none(tmp_path):
    with pytest.raises(ConfigurationError) as refused:
        opened(f"sqlite:///{tmp_path}/none.db?mode=ro")
    assert refused.value.code == "no_store"
    assert list(tmp_path.iterdir()) == []
