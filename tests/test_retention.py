"""What of the past is kept: every retained entry can be replayed, and nothing grows beyond its limits."""

from __future__ import annotations

import os
import threading
from hashlib import sha256

import pytest

from pinfold import Memory, Miss, Refused, fold, limits
from pinfold.entry import decode_entry
from pinfold.history import Past
from pinfold.journal.memory import MemoryJournal
from pinfold.journal.sqlite import SqliteJournal
from pinfold.state.session import state_hash
from pinfold.testing.sim import SimClock

DAY_MS = 24 * 3_600_000


class ClockedSqlite(SqliteJournal):
    """A SQLite store whose time passes only when told to."""

    clock: SimClock

    def now_ms(self) -> int:
        return self.clock()


@pytest.fixture
def clock():
    return SimClock()


@pytest.fixture(params=["memory", "sqlite"])
def memory(request, tmp_path, clock):
    if request.param == "memory":
        journal = MemoryJournal(clock)
    else:
        journal = ClockedSqlite(str(tmp_path / "store.db"))
        journal.clock = clock
    with Memory(journal=journal, background=False) as memory:
        yield memory


@pytest.fixture
def small(monkeypatch):
    """A history of 4 KB, replaced values of 100 KB."""
    monkeypatch.setattr(limits, "HISTORY_BYTES", 4_000)
    monkeypatch.setattr(limits, "REPLACED_VALUES_BYTES", 100_000)


def retained(memory, name="s"):
    return [record.seq for record in memory._journal.read(name, 0)]


def check_every_seq(memory, hashes, name="s"):
    """Every retained entry, and the state right before the first, folds to what it was when it was the last."""
    seqs = retained(memory, name)
    for seq in seqs:
        assert state_hash(Past(memory._journal, name).at(seq)) == hashes[seq], seq
    forward = Past(memory._journal, name)
    for seq in seqs:
        assert state_hash(forward.at(seq)) == hashes[seq], seq
    return seqs


@pytest.mark.parametrize("every", [7, 40])
def test_every_retained_seq_is_replayed_however_often_it_was_compacted(memory, small, every):
    session, hashes = memory.session("s"), {}
    for n in range(400):
        session.set(f"k{n % 9}", f"v{n}")
        hashes[n + 1] = session.state_hash()
        if n % every == 0:
            memory.compact()
    memory.compact()
    seqs = check_every_seq(memory, hashes)
    assert seqs[0] > 1 and seqs[-1] == 400
    kept = sum(len(record.body) for record in memory._journal.read("s", 0))
    assert kept <= limits.HISTORY_BYTES * 5 // 4 + every * 100
    assert len(memory._journal.load_snapshots("s")) <= 3


def test_what_is_no_longer_kept_names_the_first_seq_that_is(memory, small):
    session = memory.session("s")
    for n in range(200):
        session.mutate(f"+ TSK [NEW] ; goal=g{n}")
        if n % 20 == 0:
            memory.compact()
    memory.compact()
    first = retained(memory)[0]
    assert first > 2
    for ask in (lambda: session.at(first - 2), lambda: session.diff(first - 2), lambda: session.undo(first - 1), lambda: memory.fork("s", "f", at=first - 2)):
        with pytest.raises(Refused) as refused:
            ask()
        assert (refused.value.code, refused.value.fields["first_seq"]) == ("history_gone", first)
    assert len(session.diff(first).splitlines()) == 200 - first
    session.undo(first)
    with pytest.raises(Refused) as refused:
        session.log(after=1)
    assert refused.value.fields["first_seq"] == first


def test_the_past_is_read_from_the_nearest_snapshot_and_kept_for_the_next_read(memory, monkeypatch):
    session = memory.session("s")
    for n in range(40):
        session.mutate(f"+ TSK [NEW] ; n={n}")
        if n == 29:
            memory.compact()
    journal, reads = memory._journal, []
    monkeypatch.setattr(journal, "read", lambda id, after, limit=None, read=journal.read: reads.append((after, limit)) or read(id, after, limit))
    for seq, wanted in ((35, [(30, 5)]), (35, []), (37, [(35, 2)]), (32, [(30, 2)])):
        reads.clear()
        assert len(session.at(seq).find().items) == seq
        assert [(after, limit) for after, limit in reads if limit] == wanted


def test_a_map_whose_etag_is_of_a_history_that_is_gone_is_a_full_one(memory, small):
    session = memory.session("s")
    session.mutate("+ TSK [T1]")
    etag = session.pin_map("T1").etag
    for n in range(200):
        session.set(f"k{n}", "v")
        if n % 20 == 0:
            memory.compact()
    memory.compact()
    assert retained(memory)[0] > 1
    assert session.pin_map("T1", since=etag).delta, "nothing of it changed: the graph as of then is the graph of now"
    session.mutate("~ [T1] ; goal=x")
    shown = session.pin_map("T1", since=etag)
    assert not shown.delta and " full" in shown.text.split("\n")[-1] and "TSK [T1] ; goal=x" in shown.text


def test_history_is_kept_for_thirty_days_and_trimmed_once_a_day(memory, clock):
    session, hashes = memory.session("s"), {}
    for day in range(40):
        session.set("day", str(day))
        hashes[day + 1] = session.state_hash()
        memory.compact()
        clock.tick(DAY_MS)
    memory.compact()
    seqs = check_every_seq(memory, hashes)
    ages = [(clock() - decode_entry(record).at_ms) / DAY_MS for record in memory._journal.read("s", 0)]
    assert 29 <= max(ages) <= 31 and len(seqs) == max(ages)


def test_trimming_waits_until_enough_would_go(memory, small, monkeypatch):
    folds = []

    base = fold._base
    monkeypatch.setattr(fold, "_base", lambda *rest: folds.append(1) or base(*rest))
    session = memory.session("s")
    for n in range(600):
        session.set("k", f"v{n}")
        memory.compact()
    written = sum(len(record.body) for record in memory._journal.read("s", 0)) / len(retained(memory)) * 600
    assert 3 <= len(folds) <= written / (limits.HISTORY_BYTES / 4) + 1


def test_the_newest_snapshots_cover_for_a_torn_base(memory, small):
    session = memory.session("s")
    for n in range(200):
        session.set(f"k{n % 5}", f"v{n}")
        if n % 20 == 0:
            memory.compact()
    hash_before, last = session.state_hash(), retained(memory)[-1]
    snapshots = memory._journal.load_snapshots("s")
    records = [(record, []) for record in memory._journal.read("s", 0)]
    torn = type(snapshots[-1])(snapshots[-1].seq, snapshots[-1].hash, b"torn")
    assert memory._journal.rewrite("s", last, records[-1][0].hash, records, [*snapshots[:-1], torn])
    memory._engine.forget("s")
    assert memory.session("s").state_hash() == hash_before
    for n in range(200, 300):
        memory.session("s").set("k0", f"v{n}")
        memory.compact()
    assert memory.session("s").peek("k0").value == "v299"


def test_a_torn_newest_snapshot_is_replaced_by_the_next_compaction(memory):
    session = memory.session("s")
    session.set("a", "1")
    memory.compact()
    record = memory._journal.read("s", 0)[-1]
    snapshot = memory._journal.load_snapshots("s")[0]
    memory._journal.rewrite("s", record.seq, record.hash, [(record, [])], [type(snapshot)(snapshot.seq, snapshot.hash, b"torn")])
    memory.compact()
    assert memory._journal.load_snapshots("s")[0].verified()


# --- large values ---------------------------------------------------------------------------------------------------


def large(n):
    return f"{n:05d}".encode() * 8_000  # 40 KB


def is_kept(memory, n, name="s"):
    return memory._journal.get_blob(name, sha256(large(n)).digest()) is not None


def test_a_large_value_is_kept_a_day_after_it_was_replaced_not_after_it_was_stored(memory, clock):
    session = memory.session("s")
    session.set("k", large(0))
    session.set("stays", large(99))
    clock.tick(10 * DAY_MS)
    memory.compact()
    session.set("k", large(1))
    for _ in range(3):
        memory.compact()
        session.set("other", "x")
    clock.tick(DAY_MS - 1)
    memory.compact()
    assert is_kept(memory, 0)
    clock.tick(2)
    session.set("other", "y")
    memory.compact()
    assert not is_kept(memory, 0)
    assert is_kept(memory, 1) and is_kept(memory, 99)
    assert session.peek("k").value == large(1) and session.peek("stays").value == large(99)
    told = session.log()[0].changes[-1]
    assert told == f"set k [0] 40000 bytes sha256={sha256(large(0)).hexdigest()[:12]}"
    assert check_history_is_whole(memory)


def check_history_is_whole(memory):
    from pinfold.doctor import examine

    report = examine(memory._journal)
    assert report.ok, report.findings
    return True


def test_replaced_large_values_are_bounded_by_their_bytes(memory, small):
    session = memory.session("s")
    for n in range(30):
        session.set("k", large(n))
        if n % 3 == 0:
            memory.compact()
    for n in range(4):
        session.set("small", f"{n}")
        memory.compact()
    kept = [n for n in range(30) if is_kept(memory, n)]
    assert kept == [27, 28, 29]  # the value that stands, and at most 100 KB of those before
    assert session.peek("k").value == large(29)
    assert check_history_is_whole(memory)


def test_a_value_that_came_back_or_is_held_twice_stays(memory, small):
    session = memory.session("s")
    session.set("a", large(0))
    session.set("b", large(0))
    session.set("b", "small now")
    session.set("c", large(1))
    session.set("c", "small now")
    session.set("c", large(1))
    for n in range(2, 20):
        session.set("k", large(n))
        memory.compact()
    memory.session("t").set("x", large(0))
    session.drop("a")
    for n in range(20, 40):
        session.set("k", large(n))
        memory.compact()
    assert memory.session("t").peek("x").value == large(0)
    assert session.peek("c").value == large(1)
    assert check_history_is_whole(memory)


def test_a_fork_of_a_past_whose_large_value_is_gone_has_a_miss_there(memory, small):
    session = memory.session("s")
    session.set("k", large(0))
    session.set("small", "1")
    for n in range(1, 12):
        session.set("k", large(n))
        memory.compact()
    assert not is_kept(memory, 0)
    fork = memory.fork("s", "f", at=2)
    assert isinstance(fork.peek("k"), Miss) and fork.peek("small").value == "1"
    assert fork.set("k", "new").index == 2


def test_a_fork_of_a_session_that_is_erased_meanwhile_is_of_one_history(memory, monkeypatch):
    session = memory.session("s")
    session.set("secret", "s3cret")
    session.set("b", "2")
    at = Past.at

    def erased_meanwhile(self, seq):
        state = at(self, seq)
        monkeypatch.setattr(Past, "at", at)
        session.forget("secret", erase=True)
        return state

    monkeypatch.setattr(Past, "at", erased_meanwhile)
    fork = memory.fork("s", "f", at=2)
    assert fork.peek("secret").value == ""  # as the rewritten history has it
    fork.set("c", "3")
    assert fork.keys() == ["secret", "b", "c"]


def test_a_fork_at_the_last_entry_that_went_names_the_first_that_is_kept(memory, small):
    session = memory.session("s")
    for n in range(200):
        session.set("k", f"v{n}")
        if n % 20 == 0:
            memory.compact()
    first = retained(memory)[0]
    with pytest.raises(Refused) as refused:
        memory.fork("s", "f", at=first - 1)
    assert (refused.value.code, refused.value.fields["first_seq"]) == ("history_gone", first)
    assert memory.fork("s", "f", at=first).peek("k").value == f"v{first - 1}"


def test_trimmed_history_keeps_the_large_values_that_are_still_there(memory, small, clock):
    session = memory.session("s")
    session.set("old", large(0))
    for n in range(300):
        session.set(f"k{n % 5}", f"v{n}")
        if n % 10 == 0:
            memory.compact()
    memory.compact()
    assert retained(memory)[0] > 1
    clock.tick(2 * DAY_MS)
    memory.compact()
    assert session.peek("old").value == large(0)
    session._replica.reload()
    assert session.peek("old").value == large(0)


# --- sessions -------------------------------------------------------------------------------------------------------


def test_an_ended_session_is_dropped_after_seven_days(memory, clock):
    memory.session("gone").set("k", large(1))
    memory.session("lapsed", ttl_s=60).set("k", "v")
    memory.session("stays").set("k", "v")
    memory.end("gone")
    clock.tick(7 * DAY_MS - 1000)
    memory.compact()
    assert {row.session_id for row in memory.sessions(expired=True)} == {"gone", "lapsed"}
    clock.tick(65_000)
    assert sorted(memory.purge()) == ["gone", "lapsed"]
    memory.compact()
    assert [row.session_id for row in memory.sessions()] == ["stays"] and memory.sessions(expired=True) == []
    assert not is_kept(memory, 1, "gone")


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_the_file_and_the_history_stay_bounded_over_many_overwrites(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "HISTORY_BYTES", 100_000)
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_ENTRIES", 512)
    path = str(tmp_path / "store.db")
    sizes = []
    with Memory(f"sqlite:///{path}") as memory:
        session = memory.session("s")
        for n in range(8_000):
            session.set(f"k{n % 20}", f"v{n}")
            if n % 1_000 == 999:
                session._replica._compacting.acquire()  # wait for a compaction in the background
                session._replica._compacting.release()
                session._replica.compact()
                sizes.append(os.path.getsize(path))
        assert memory._journal.info("s").entry_bytes <= 125_000 + 1_024 * 120
        hashes = session.state_hash()
        assert state_hash(Past(memory._journal, "s").at(8_000)) == hashes
        Past(memory._journal, "s").at(memory._journal.read("s", 0, 1)[0].seq)
    assert max(sizes[3:]) <= sizes[2] * 1.3, sizes


# --- erasing beside compaction --------------------------------------------------------------------------------------


def test_a_compaction_that_an_erasure_overtakes_saves_no_snapshot_of_the_old_history(memory, monkeypatch):
    session = memory.session("s")
    session.set("secret", "s3cret")
    session.set("b", "2")
    load_state = fold.load_state

    def erased_meanwhile(journal, name):
        state = load_state(journal, name)
        monkeypatch.setattr(fold, "load_state", load_state)
        session.forget("secret", erase=True)
        return state

    monkeypatch.setattr(fold, "load_state", erased_meanwhile)
    fold.compact(memory._journal, "s")
    assert memory._journal.load_snapshots("s") == []
    memory._engine.forget("s")
    again = memory.session("s")
    again.set("c", "3")
    assert again.keys() == ["b", "c"]


def test_a_base_made_before_an_erasure_is_not_kept_after_it(memory, small, monkeypatch):
    session = memory.session("s")
    session.set("secret", "s3cret")
    for n in range(100):
        session.set("k", f"v{n}")
    memory.compact()
    session.set("k", "later")
    base = fold._base

    def erased_meanwhile(*rest):
        made = base(*rest)
        session.forget("secret", erase=True)
        return made

    monkeypatch.setattr(fold, "_base", erased_meanwhile)
    memory.compact()
    assert all(b"s3cret" not in snapshot.body for snapshot in memory._journal.load_snapshots("s"))
    assert all(b"s3cret" not in record.body for record in memory._journal.read("s", 0))
    check_history_is_whole(memory)


def test_a_snapshot_of_another_history_falls_back_a_generation(memory):
    session = memory.session("s")
    session.set("a", "1")
    memory.compact()
    session.set("b", "2")
    state = fold.load_state(memory._journal, "s")
    state.hash = b"x" * 16
    body = fold.encode_snapshot(state)
    memory._journal.save_snapshot("s", fold.Snapshot(2, fold.hash_of(body), body))
    memory._engine.forget("s")
    session = memory.session("s")
    session.set("c", "3")
    assert session.keys() == ["a", "b", "c"]


def test_what_was_erased_elsewhere_leaves_ram_at_the_next_look(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with Memory(url, background=False) as one, Memory(url, background=False) as two:
        one.session("s").set("secret", large(1))
        assert two.session("s").peek("secret").value == large(1)
        one.session("s").forget("secret", erase=True)
        assert isinstance(two.session("s").peek("secret"), Miss)
        assert two.session("s")._replica._blobs == {}
        assert two.session("s").state_hash() == one.session("s").state_hash()


def test_looking_back_while_another_process_trims(memory, small, monkeypatch):
    session = memory.session("s")
    for n in range(60):
        session.set("k", f"v{n}")
        if n == 30:
            memory.compact()
    base = Past._base

    def trimmed_meanwhile(self, seq):
        state = base(self, seq)
        monkeypatch.setattr(Past, "_base", base)
        for n in range(100):
            session.set("k", f"w{n}")
            memory.compact()
        return state

    monkeypatch.setattr(Past, "_base", trimmed_meanwhile)
    with pytest.raises(Refused) as refused:
        Past(memory._journal, "s").at(60)
    assert refused.value.code == "history_gone" and retained(memory)[0] > 61


def test_an_erasure_and_a_compaction_take_turns(tmp_path, monkeypatch):
    """An erasure reads entries and snapshots; if a compaction trimmed in between, entries would come back without their base."""
    monkeypatch.setattr(limits, "HISTORY_BYTES", 2_000)
    url = f"sqlite:///{tmp_path}/store.db"
    with Memory(url, background=False) as one, Memory(url, background=False) as two:
        stop = threading.Event()

        def compact():
            while not stop.is_set():
                two.session("s").set("k", "x")
                fold.compact(two._journal, "s")

        thread = threading.Thread(target=compact)
        thread.start()
        try:
            for n in range(60):
                one.session("s").set(f"secret{n % 5}", f"s3cret{n}")
                one.session("s").forget(f"secret{n % 5}", erase=True)
        finally:
            stop.set()
            thread.join(30)
        past = Past(one._journal, "s")
        for seq in retained(one):
            past.at(seq)
        check_history_is_whole(one)
