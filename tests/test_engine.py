"""The turn, the clock, following others, compaction and retention: the one room with journal, clock and locks."""

import threading
from itertools import pairwise

import pytest

from pinfold import Busy, JournalCorrupt, Refused, Unavailable, limits
from pinfold.engine import Engine, Waiter, compact, load_state
from pinfold.entry import Entry, decode_entry, encode_entry
from pinfold.journal.base import Conflict, Snapshot
from pinfold.journal.memory import MemoryJournal
from pinfold.memory import Memory
from pinfold.renewer import Renewer
from pinfold.state.session import state_hash
from pinfold.testing.journal_contract import held_elsewhere
from pinfold.testing.sim import FaultyJournal, SimClock

BOUND_S = 20.0


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def journal(clock) -> MemoryJournal:
    return MemoryJournal(clock)


@pytest.fixture
def open_session(journal, clock, open_memory):
    """A function that opens the session "work" in one more engine over the same journal, whose wall clock may be its own."""

    def open_one(handle: MemoryJournal | None = None):
        memory = open_memory(journal=handle or journal, background=False)
        memory._engine = Engine(memory._journal, clock.monotonic, background=False)
        return memory.session("work")

    return open_one


class Scripted(FaultyJournal):
    """A handle whose next append does what the test says."""

    def __init__(self, inner, clock):
        super().__init__(inner, clock)
        self.before = self.after = None

    def append(self, *arguments):
        before, self.before = self.before, None
        if before is not None:
            before()
        reply = super().append(*arguments)
        after, self.after = self.after, None
        if after is not None:
            return after(reply, arguments)
        return reply


@pytest.fixture
def scripted(journal, clock) -> Scripted:
    return Scripted(journal, clock)


# --- the turn -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("turn")
def test_a_write_that_lost_a_race_is_decided_anew_on_what_the_winner_wrote(scripted, open_session):
    session, other = open_session(scripted), open_session()
    scripted.before = lambda: other.claim("job", 60)
    assert session.claim("job", 60).hit
    scripted.before = lambda: other.set("b", 1)
    assert session.set("a", 2).index == 1


@pytest.mark.requirement("turn")
def test_a_lost_reply_leaves_ram_equal_to_the_journal(scripted, open_session, journal):
    session = open_session(scripted)
    session.set("k", "before")

    def lose(reply, arguments):
        raise Unavailable("the reply was lost", code="io_error", maybe_applied=True)

    scripted.after = lose
    with pytest.raises(Unavailable) as lost:
        session.set("k", "after", request_id="r")
    assert lost.value.maybe_applied is True
    assert session.peek("k").value == "after"
    assert state_hash(session._replica.state) == state_hash(load_state(journal, "work"))
    assert session.set("k", "after", request_id="r").index == 0
    assert session.status().seq == 2


@pytest.mark.requirement("turn")
def test_an_interrupt_after_the_append_or_in_the_middle_of_apply_leaves_ram_equal_to_the_journal(scripted, open_session, journal, monkeypatch):
    session = open_session(scripted)
    session.set("k", "one")

    def interrupt(*_):
        raise KeyboardInterrupt

    scripted.after = interrupt
    with pytest.raises(KeyboardInterrupt):
        session.set("k", "two")
    assert session.peek("k").value == "two"
    with monkeypatch.context() as patch:
        patch.setattr(session._replica.state.silo, "slots", _InterruptedDict(session._replica.state.silo.slots))
        with pytest.raises(KeyboardInterrupt):
            session.set("k", "three")
    assert session.peek("k").value == "three"
    assert session._replica.state.silo.inline_bytes == len("k" + "three")
    assert state_hash(session._replica.state) == state_hash(load_state(journal, "work"))


class _InterruptedDict(dict):
    def __setitem__(self, key, value):
        raise KeyboardInterrupt


@pytest.mark.requirement("turn", "one-winner")
def test_of_two_claims_that_are_byte_for_byte_the_same_one_wins(scripted, open_session):
    session, other = open_session(scripted), open_session()
    answers = []
    scripted.before = lambda: answers.append(other.claim("job", 60))
    answers.append(session.claim("job", 60))
    assert [answer.hit for answer in answers] == [False, True]


@pytest.mark.requirement("turn")
def test_a_refusal_rests_on_the_journal_and_not_on_a_stale_version(journal, clock, open_session):
    stale = FaultyJournal(journal, clock)
    session, other = open_session(stale), open_session()
    session.set("a", 1)
    stale._rates = {"stale_hint": 1.0}
    claim = other.claim("job", 60)
    assert session.fulfil("job", "mine", token=claim.token).status == "resolved"


def test_no_facts_no_entry(open_session):
    session = open_session()
    session.set("k", 1)
    for idle in (lambda: session.drop("nothing"), lambda: session.configure(silo_size=None), lambda: session.claim("k"), lambda: session.register("k")):
        idle()
    assert session.status().seq == 1
    with pytest.raises(Refused):
        session.fulfil("nobody", 1)
    assert session.status().seq == 1


def test_other_writers_that_are_always_first_end_in_busy(open_session, scripted):
    session, other = open_session(scripted), open_session()

    def again():
        other.set("k", 1)
        scripted.before = again

    scripted.before = again
    with pytest.raises(Busy):
        session.set("mine", 1)
    scripted.before = None
    assert session.set("mine", 1).index == 1


def test_a_held_store_is_busy_in_bounded_time_and_reads_go_on(sqlite_url, open_memory, monkeypatch):
    monkeypatch.setattr(limits, "LOCK_WAIT_S", 0.05)
    session = open_memory(sqlite_url).session("work")
    session.set("k", 1)
    with held_elsewhere(open_memory(sqlite_url)._journal, "work"):
        with pytest.raises(Busy) as busy:
            session.set("k", 2)
        assert busy.value.maybe_applied is False
        assert session.peek("k").value == 1
    assert session.set("k", 2).index == 0


def test_a_snapshot_whose_last_entry_is_missing_is_named_at_the_next_write(open_session, journal):
    session = open_session()
    session.set("k", 1)
    session._replica.compact()
    session.set("k", 2)
    journal._kept["work"].records.clear()
    with pytest.raises(JournalCorrupt):
        open_session().set("k", 3)


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("clock")
def test_time_goes_on_by_the_monotonic_clock_where_the_wall_clock_jumped_back(journal, clock, open_session):
    wall = clock.wall()
    session = open_session(FaultyJournal(journal, wall))
    wall.offset_ms = 3_600_000
    claim = session.claim("job", 10.0)
    session.set("short", 1, ttl_s=10.0)
    wall.offset_ms = 0
    assert session.peek("job").lease_left_s == 10.0
    clock.tick(9_999)
    assert session.peek("short").hit
    clock.tick(1)
    assert not session.peek("job").hit
    assert not session.peek("short").hit
    wall.offset_ms = 3_600_000 - 5_000  # half way back: what was seen to expire stays expired
    assert not session.peek("short").hit
    assert session.claim("job", 10.0).token > claim.token


@pytest.mark.requirement("clock")
def test_a_session_behind_its_last_entry_that_is_written_to_all_the_time_does_not_stand_still(journal, clock, open_session):
    class Fine(SimClock):
        """A clock whose monotonic side passes by fractions of a ms."""

        def monotonic(self):
            return self.passed_ms / 10_000

        def __call__(self):
            return 1_000_000

    fine = Fine()
    memory = Memory(journal=FaultyJournal(journal, fine), background=False)
    open_session().set("ahead", 1)
    memory._engine = Engine(memory._journal, fine.monotonic, background=False)
    session = memory.session("work")
    session.claim("job", 0.05)
    for n in range(600):  # 60 ms in steps of a tenth
        fine.tick(1)
        session.set("k", n)
    assert not session.peek("job").hit
    entries = [decode_entry(record) for record in journal.read("work", 0)]
    assert all(a.at_ms <= b.at_ms for a, b in pairwise(entries))


# --- following ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("equal-states")
def test_engines_over_one_journal_come_to_the_same_state(open_session, journal):
    first, second = open_session(), open_session()
    for n in range(10):
        first.set(f"a{n}", n)
        second.fulfil(second.claim(f"b{n}"), [n])
    assert first.keys() == second.keys()
    hashes = {state_hash(s._replica.state) for s in (first, second)} | {state_hash(load_state(journal, "work"))}
    assert len(hashes) == 1


def test_a_replaced_history_is_loaded_anew_and_waiters_look_again(open_session, journal):
    session = open_session()
    session.set("old", 1)
    claim = session.claim("job", 60)
    waiter = Waiter()
    session._replica.add_waiter("job", waiter)
    journal.drop("work")
    other = open_session()
    for n in range(5):
        other.set(f"new{n}", n)
    assert session.peek("new4").value == 4
    assert not session.peek("old").hit
    assert waiter.outcome is not None
    with pytest.raises(Refused):
        session.fulfil(claim, 1)


def test_waiters_woken_before_an_unreadable_entry_are_not_forgotten(open_session, journal):
    from pinfold import NewerFormat

    session, other = open_session(), open_session()
    claim = other.claim("job", 60)
    assert session.peek("job").hit
    waiter = Waiter()
    session._replica.add_waiter("job", waiter)
    other.fulfil(claim, "done")
    last = journal.read("work", 0)[-1]
    record = encode_entry(Entry(last.seq + 1, last.hash, 2_000_000_000_000, None, None, [{"f": "of the future"}]))
    assert journal.append("work", last.seq, last.hash, [record], {}) is None
    with pytest.raises(NewerFormat):
        session._replica.catch_up()
    assert waiter.outcome.value == "done"


@pytest.mark.requirement("touches")
def test_reads_append_nothing_and_their_use_rides_along_with_a_later_write(open_session, clock):
    session = open_session()
    session.set("k", 1)
    for _ in range(3):
        session.peek("k")
        session.peek("nothing")
    assert session.status().seq == 1
    before = state_hash(session._replica.state)
    clock.tick(int(limits.TOUCH_INTERVAL_S * 1000))
    session.set("k", 2)
    again = open_session().status()
    assert (again.seq, again.short_term["hits"], again.short_term["misses"]) == (2, 3, 3)
    assert before != state_hash(session._replica.state)


@pytest.mark.requirement("touches")
def test_use_is_no_part_of_equality_and_never_an_error(open_session, sqlite_url, open_memory):
    session = open_session()
    session.set("k", 1)
    before = state_hash(session._replica.state)
    session.peek("k")
    assert state_hash(session._replica.state) == before
    open_memory(sqlite_url).session("work").set("k", 1)
    with open_memory(f"{sqlite_url}?mode=ro") as memory:
        assert memory.session("work").peek("k").hit  # and closing a read-only store with uses to journal raises nothing


# --- compaction and retention -------------------------------------------------------------------------------------


@pytest.mark.requirement("compaction")
def test_compacting_again_without_a_change_keeps_the_tail_of_the_older_snapshot(open_session, journal, monkeypatch):
    monkeypatch.setattr(limits, "HISTORY_BYTES", 0)
    session = open_session()
    for n in range(3):
        session.set(f"k{n}", n)
        compact(journal, "work")
    for _ in range(2):
        compact(journal, "work")
    newest, older = journal.load_snapshots("work")
    expected = state_hash(session._replica.state)
    journal._kept["work"].snapshots = [Snapshot(newest.seq, newest.hash, b"torn"), older]
    assert state_hash(load_state(journal, "work")) == expected


@pytest.mark.requirement("compaction", "equal-states")
def test_snapshot_and_tail_equal_the_full_replay(open_session, journal):
    session = open_session()
    for n in range(20):
        session.set(f"k{n % 7}", {"n": n}, ttl_s=100, request_id=f"r{n}")
        session.reject(session.claim(f"c{n}"), "no")
        if n % 6 == 0:
            compact(journal, "work")
    with_snapshot = state_hash(load_state(journal, "work"))
    journal._kept["work"].snapshots.clear()
    assert state_hash(load_state(journal, "work")) == with_snapshot == state_hash(session._replica.state)


@pytest.mark.requirement("retention")
def test_history_goes_when_it_is_old_and_the_state_stays(open_session, journal, clock):
    session = open_session()
    session.set("old", "kept")
    for n in range(2):
        session.set(f"k{n}", n)
        compact(journal, "work")
    clock.tick((limits.HISTORY_S + limits.TRIM_SLACK_S) * 1000 + 1)
    compact(journal, "work")
    session.set("new", 1)
    compact(journal, "work")
    assert journal.read("work", 0)[0].seq > 1
    assert open_session().peek("old").value == "kept"


@pytest.mark.requirement("retention", "blobs")
def test_replaced_large_values_go_after_a_day_and_live_ones_stay(open_session, journal, clock):
    session = open_session()
    session.set("large", b"1" * 40_000)
    session.set("large", b"2" * 40_000)
    for _ in range(3):
        session.set("k", 1)
        compact(journal, "work")
    assert journal.info("work").blob_bytes == 80_000
    clock.tick(limits.REPLACED_VALUES_S * 1000 + 1)
    for _ in range(2):
        session.set("k", 2)
        compact(journal, "work")
    assert journal.info("work").blob_bytes == 40_000
    assert open_session().peek("large").value == b"2" * 40_000
    assert journal.read("work", 0)[0].seq == 1  # the history itself is kept for longer


@pytest.mark.requirement("compaction")
def test_a_snapshot_is_made_in_the_background_when_it_is_due_and_opening_uses_it(sqlite_url, open_memory, monkeypatch):
    monkeypatch.setattr(limits, "SNAPSHOT_MIN_ENTRIES", 40)
    memory = open_memory(sqlite_url)
    session = memory.session("work")
    for n in range(200):
        session.set(f"k{n % 5}", n)
    memory.close()
    again = open_memory(sqlite_url)
    assert again._journal.load_snapshots("work")
    assert again.session("work")._replica._snapshot_seq > 0
    assert again.session("work").peek("k4").value == 199


# --- blobs --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("blobs")
def test_large_values_of_many_sessions_are_kept_once_and_opening_reads_none(sqlite_url, open_memory, monkeypatch):
    memory = open_memory(sqlite_url)
    value = bytes(range(256)) * 4_096  # 1 MiB
    for n in range(5):
        memory.session(f"s{n}").set("large", value)
        memory.session(f"s{n}").set("again", value)
    (count,) = memory._journal._db.execute("SELECT count(*) FROM blob").fetchone()
    assert count == 1
    again = open_memory(sqlite_url)
    reads = []
    fetch = again._journal.get_blob
    monkeypatch.setattr(again._journal, "get_blob", lambda *arguments: reads.append(1) or fetch(*arguments))
    session = again.session("s3")
    assert session.status().short_term["slots"] == 2
    assert session.keys() == ["large", "again"]
    assert reads == []
    assert session.peek("large").value == session.peek("again").value == value
    assert reads == [1]


@pytest.mark.requirement("blobs")
def test_the_cache_of_large_values_is_bounded(open_session, monkeypatch):
    monkeypatch.setattr(limits, "BLOB_CACHE_BYTES", 100_000)
    session = open_session()
    for n in range(6):
        session.set(f"k{n}", bytes([n]) * 40_000)
    for _ in range(2):
        for n in range(6):
            assert session.peek(f"k{n}").value == bytes([n]) * 40_000
            assert session._replica._blob_bytes == sum(map(len, session._replica._blobs.values())) <= 100_000


# --- the renewer --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("background-renewal")
def test_the_renewer_calls_until_it_is_told_to_stop_or_refused_and_survives_a_busy_store():
    renewer = Renewer()
    called, refused, busy = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)

    def refuse():
        refused.release()
        raise Refused("somebody took over", code="stale_token")

    def once_busy():
        busy.release()
        raise Busy("held")

    ticket = renewer.add(0.001, called.release)
    renewer.add(0.001, refuse)
    renewer.add(0.001, once_busy)
    for semaphore in (called, called, called, refused, busy, busy):
        assert semaphore.acquire(timeout=BOUND_S)
    renewer.remove(ticket)
    assert not refused.acquire(timeout=0.01)
    renewer.close()


def test_conflict_is_what_stands_in_the_way(journal):
    assert journal.append("s", 3, b"nothing", [], {}) == Conflict([])
    assert journal.sessions() == []
