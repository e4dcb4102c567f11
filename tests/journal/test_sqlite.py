"""What only a journal in a file can get wrong: an interrupt inside a transaction, a close while others wait."""

import threading

import pytest

from pinfold import ConfigurationError, Unavailable
from pinfold.entry import GENESIS, Entry, encode_entry
from pinfold.journal import lock as locks
from pinfold.journal.lock import FileLock
from pinfold.journal.open import open_journal
from pinfold.journal.sqlite import SqliteJournal

BOUND_S = 20.0


class Interrupted:
    """A connection on which Ctrl-C arrives while one statement runs: it is done, and its caller is told nothing but that."""

    def __init__(self, db, statement: str) -> None:
        self._db, self._statement = db, statement

    def __getattr__(self, name):
        return getattr(self._db, name)

    def execute(self, sql, *arguments):
        done = self._db.execute(sql, *arguments)
        if sql.startswith(self._statement):
            self._statement = "\0"
            raise KeyboardInterrupt
        return done


@pytest.mark.requirement("turn", "no-acknowledged-write-lost")
@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "SELECT seq FROM snapshot", "COMMIT"])
def test_ctrl_c_inside_a_transaction_leaves_none_open_that_would_swallow_later_writes(tmp_path, statement):
    journal, other = SqliteJournal(f"{tmp_path}/store.db"), SqliteJournal(f"{tmp_path}/store.db")
    first = encode_entry(Entry(1, GENESIS, 1, None, None, []))
    second = encode_entry(Entry(2, first.hash, 2, None, None, []))
    journal.append("s", 0, GENESIS, [first], {})
    journal._db = Interrupted(journal._db, statement)
    with pytest.raises(KeyboardInterrupt):
        journal.trim("s", 0, 0)
    assert not journal._db.in_transaction
    assert journal.append("s", 1, first.hash, [second], {}) is None
    journal.put_derived("s", "cache", b"made")
    assert other.read("s", 0) == [first, second] and other.get_derived("s", "cache") == b"made"
    journal.close()
    other.close()


@pytest.mark.requirement("turn")
def test_who_waits_for_the_lock_while_the_store_is_closed_is_told_so(tmp_path, monkeypatch):
    journal, held = SqliteJournal(f"{tmp_path}/store.db"), FileLock(f"{tmp_path}/store.db.lock")
    record = encode_entry(Entry(1, GENESIS, 1, None, None, []))
    journal.append("s", 0, GENESIS, [record], {})
    polled, told = threading.Event(), []
    draw = locks._random
    monkeypatch.setattr(locks, "_random", lambda: (polled.set(), draw())[1])

    def write() -> None:
        try:
            with journal.write_lock("s", BOUND_S):
                pass
        except Unavailable as error:
            told.append(error.code)

    assert held.acquire(BOUND_S)
    waiting = [threading.Thread(target=write, daemon=True) for _ in range(2)]  # one polls for the file, one queues behind it
    for thread in waiting:
        thread.start()
    assert polled.wait(BOUND_S)
    journal.close()
    for thread in waiting:
        thread.join(BOUND_S / 2)
    held.close()
    assert told == ["closed", "closed"]


def test_a_close_lets_the_turn_of_another_thread_end(tmp_path):
    journal = SqliteJournal(f"{tmp_path}/store.db")
    inside, closing, written = threading.Event(), threading.Event(), []

    def write() -> None:
        record = encode_entry(Entry(1, GENESIS, 1, None, None, []))
        with journal.write_lock("s", BOUND_S):
            inside.set()
            closing.wait(BOUND_S)
            written.append(journal.append("s", 0, GENESIS, [record], {}))

    journal.read("s", 0)
    writer, closer = threading.Thread(target=write), threading.Thread(target=journal.close)
    writer.start()
    assert inside.wait(BOUND_S)
    closer.start()
    while not journal._closed:
        pass
    closing.set()
    writer.join(BOUND_S)
    closer.join(BOUND_S)
    assert written == [None]


def test_a_store_in_ram_is_not_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as refused:
        open_journal("sqlite:///:memory:")
    assert refused.value.code == "bad_url" and "memory://" in refused.value.hint
