"""The contract of `pinfold.journal.base.Journal` as tests: any backend must pass all of it.

Subclass it in a test module and give it a fixture `open_journal`, a function that opens one more handle on the same,
at first empty store (the same object where a store lives in one process):

    class TestMyJournal(JournalContract):
        @pytest.fixture
        def open_journal(self): ...

Real differences between backends are flags, not exceptions in the tests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise

import pytest

from pinfold.entry import GENESIS, Entry, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Busy, JournalCorrupt, Unavailable
from pinfold.journal.base import Conflict, Journal, Snapshot

OpenJournal = Callable[[], Journal]

BOUND_S = 10.0
"""No wait in a test is longer; all of them end by an event long before."""


def chain(count: int, after: Record | None = None, tag: str = "k") -> list[Record]:
    """Return count records that follow after (or begin a journal), each with one slot.put fact."""
    records: list[Record] = []
    last = after or Record(0, GENESIS, b"")
    for _ in range(count):
        seq = last.seq + 1
        last = encode_entry(Entry(seq, last.hash, 1_000 + seq, None, None, [{"f": "slot.put", "k": f"{tag}{seq}", "i": seq, "v": "x"}]))
        records.append(last)
    return records


def blob_of(body: bytes) -> dict[bytes, bytes]:
    """Return body under its SHA-256, as `append` takes it."""
    return {sha256(body).digest(): body}


def snapshot_of(seq: int, body: bytes = b"state", blobs: list[bytes] | None = None) -> Snapshot:
    """Return a snapshot whose hash is right."""
    return Snapshot(seq, hash_of(body), body, blobs or [])


def append_all(journal: Journal, session: str, records: list[Record], after: Record | None = None, blobs: dict[bytes, bytes] | None = None) -> None:
    """Append records one by one; blobs go with the last. Fails the test at a conflict."""
    last = after or Record(0, GENESIS, b"")
    for record in records:
        assert journal.append(session, last.seq, last.hash, [record], blobs or {} if record is records[-1] else {}) is None
        last = record


class JournalContract:
    """Every promise of `Journal`, one test each."""

    has_locks = True
    """write_lock keeps others out; False where append's compare-and-set is all there is."""
    has_processes = True
    """Other processes can open the same store."""

    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        raise NotImplementedError("give a function that opens one more handle on the same store")

    @pytest.fixture
    def journal(self, open_journal: OpenJournal) -> Iterator[Journal]:
        journal = open_journal()
        yield journal
        journal.close()

    @pytest.fixture
    def other(self, open_journal: OpenJournal) -> Iterator[Journal]:
        journal = open_journal()
        yield journal
        journal.close()

    # --- append and read ----------------------------------------------------------------------------------------

    def test_an_unknown_session_has_no_records_and_looking_creates_none(self, journal: Journal) -> None:
        assert journal.read("s", 0) == []
        assert journal.load_snapshots("s") == []
        assert journal.get_derived("s", "index") is None
        assert journal.get_blob("s", bytes(32)) is None
        assert journal.info("s") is None
        assert journal.incarnations("s") == []
        assert journal.sessions() == []

    def test_what_was_appended_is_read_in_order_and_byte_for_byte(self, journal: Journal, other: Journal) -> None:
        records = chain(5)
        append_all(journal, "s", records)
        assert journal.read("s", 0) == records
        assert other.read("s", 2) == records[2:]
        assert journal.read("s", 1, 2) == records[1:3]
        assert journal.read("s", 5) == []
        assert [decode_entry(record).seq for record in other.read("s", 0)] == [1, 2, 3, 4, 5]

    def test_several_records_are_appended_as_one(self, journal: Journal) -> None:
        records = chain(4)
        assert journal.append("s", 0, GENESIS, records[:3], {}) is None
        assert journal.append("s", records[2].seq, records[2].hash, records[3:], {}) is None
        assert journal.read("s", 0) == records

    def test_a_conflict_names_what_was_missed_and_writes_nothing(self, journal: Journal, other: Journal) -> None:
        records = chain(4)
        append_all(journal, "s", records)
        mine = chain(1, records[1], tag="mine")
        conflict = other.append("s", records[1].seq, records[1].hash, mine, blob_of(b"never"))
        assert conflict == Conflict(records[2:])
        assert journal.read("s", 0) == records
        assert journal.get_blob("s", sha256(b"never").digest()) is None

    def test_a_session_begins_once(self, journal: Journal, other: Journal) -> None:
        first, second = chain(1, tag="a"), chain(1, tag="b")
        assert journal.append("s", 0, GENESIS, first, {}) is None
        assert other.append("s", 0, GENESIS, second, {}) == Conflict(first)
        assert other.read("s", 0) == first

    def test_of_two_writers_of_the_very_same_bytes_one_must_lose(self, journal: Journal, other: Journal) -> None:
        same = chain(2)
        assert journal.append("s", 0, GENESIS, same[:1], {}) is None
        assert other.append("s", 0, GENESIS, same[:1], {}) == Conflict(same[:1])
        assert other.append("s", 1, same[0].hash, same[1:], {}) is None
        assert journal.append("s", 1, same[0].hash, same[1:], {}) == Conflict(same[1:])
        assert journal.append("s", 1, same[0].hash, same[1:], blob_of(b"x")) == Conflict(same[1:])
        assert journal.read("s", 0) == same

    def test_the_previous_hash_must_match_and_not_only_its_seq(self, journal: Journal) -> None:
        records = chain(2)
        append_all(journal, "s", records)
        stranger = chain(2, tag="other")[1]
        assert journal.append("s", 2, stranger.hash, chain(1, stranger), {}) is not None
        assert journal.read("s", 0) == records

    def test_an_append_beyond_the_end_would_leave_a_gap_and_is_a_conflict(self, journal: Journal) -> None:
        records = chain(4)
        append_all(journal, "s", records[:1])
        assert journal.append("s", 3, records[2].hash, records[3:], {}) == Conflict([])
        assert journal.read("s", 0) == records[:1]

    def test_a_conflict_in_the_first_of_several_records_writes_none_of_them(self, journal: Journal, other: Journal) -> None:
        records = chain(3)
        append_all(journal, "s", records)
        mine = chain(3, records[0], tag="mine")
        assert other.append("s", records[0].seq, records[0].hash, mine, {}) == Conflict(records[1:])
        assert journal.read("s", 0) == records

    def test_sessions_do_not_see_each_other(self, journal: Journal) -> None:
        a, b = chain(2, tag="a"), chain(3, tag="b")
        append_all(journal, "a", a)
        append_all(journal, "b", b)
        assert journal.read("a", 0) == a
        assert journal.read("b", 0) == b

    def test_racing_writers_leave_one_chain_without_a_gap(self, open_journal: OpenJournal) -> None:
        handles = [open_journal() for _ in range(4)]
        acknowledged: list[bytes] = []

        def write(journal: Journal, tag: str) -> None:
            last = Record(0, GENESIS, b"")
            done = 0
            while done < 25:
                (mine,) = chain(1, last, tag)
                conflict = journal.append("s", last.seq, last.hash, [mine], {})
                if conflict is None:
                    last, done = mine, done + 1
                    acknowledged.append(mine.hash)
                elif conflict.missing:
                    last = conflict.missing[-1]

        run_threads([lambda j=j, t=f"w{n}-": write(j, t) for n, j in enumerate(handles)])  # type: ignore[misc]
        records = handles[0].read("s", 0)
        assert [record.seq for record in records] == list(range(1, 101))
        assert sorted(acknowledged) == sorted(record.hash for record in records)
        assert all(decode_entry(b).prev_hash == a.hash for a, b in pairwise(records))
        for handle in handles:
            handle.close()

    # --- version and waiting ------------------------------------------------------------------------------------

    def test_the_version_changes_when_somebody_else_appends(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(1))
        before = other.version("s")
        append_all(journal, "s", chain(1, chain(1)[0]), chain(1)[0])
        assert other.version("s") != before

    def test_a_confirmed_look_sees_what_was_appended_and_makes_no_session(self, journal: Journal, other: Journal) -> None:
        before = other.version("s", True)
        assert other.sessions() == []
        append_all(journal, "s", chain(1))
        assert other.version("s", True) != before
        assert other.version("s", True) == other.version("s")

    def test_wait_returns_at_once_where_records_are_there(self, journal: Journal) -> None:
        append_all(journal, "s", chain(2))
        assert journal.wait("s", 1, BOUND_S) is True

    def test_wait_returns_false_at_its_timeout(self, journal: Journal) -> None:
        append_all(journal, "s", chain(2))
        assert journal.wait("s", 2, 0.01) is False

    def test_wait_is_woken_by_an_append(self, journal: Journal, other: Journal) -> None:
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(other.wait("s", 0, BOUND_S)))
        thread.start()
        append_all(journal, "s", chain(1))
        thread.join(BOUND_S)
        assert woken == [True]

    def test_wait_is_woken_by_an_append_through_the_same_handle(self, journal: Journal) -> None:
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(journal.wait("s", 1, BOUND_S)))
        first, second = chain(2)
        append_all(journal, "s", [first])
        thread.start()
        append_all(journal, "s", [second], after=first)
        thread.join(BOUND_S)
        assert woken == [True]

    # --- locks --------------------------------------------------------------------------------------------------

    def test_the_write_lock_is_re_entrant_in_its_thread(self, journal: Journal) -> None:
        with journal.write_lock("s", BOUND_S), journal.write_lock("s", BOUND_S):
            append_all(journal, "s", chain(1))
        append_all(journal, "t", chain(1))

    def test_a_held_write_lock_makes_others_busy_in_bounded_time_and_only_until_it_is_released(self, journal: Journal, other: Journal) -> None:
        if not self.has_locks:
            pytest.skip("this backend has no locks, by its flag")
        with held_elsewhere(journal):
            with pytest.raises(Busy) as busy, other.write_lock("s", 0.02):
                pass
            assert busy.value.code == "busy"
            assert busy.value.maybe_applied is False
            with pytest.raises(Busy), journal.write_lock("s", 0.02):  # the same handle in another thread
                pass
        with other.write_lock("s", BOUND_S):
            append_all(other, "s", chain(1))

    def test_the_write_lock_is_released_by_an_exception(self, journal: Journal, other: Journal) -> None:
        with pytest.raises(KeyError), journal.write_lock("s", BOUND_S):
            raise KeyError("work failed")
        with other.write_lock("s", BOUND_S):
            append_all(other, "s", chain(1))

    def test_reading_waits_for_no_lock(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(1))
        with held_elsewhere(other):
            assert journal.read("s", 0) == chain(1)
            journal.version("s")

    # --- snapshots ----------------------------------------------------------------------------------------------

    def test_two_snapshots_are_kept_newest_first(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(9))
        for seq in (2, 5, 9):
            journal.save_snapshot("s", snapshot_of(seq, b"at %d" % seq))
        kept = other.load_snapshots("s")
        assert [(snapshot.seq, snapshot.verified()) for snapshot in kept] == [(9, b"at 9"), (5, b"at 5")]

    def test_a_snapshot_saved_late_does_not_push_out_newer_ones(self, journal: Journal) -> None:
        append_all(journal, "s", chain(9))
        for seq in (5, 9, 2):
            journal.save_snapshot("s", snapshot_of(seq))
        assert [snapshot.seq for snapshot in journal.load_snapshots("s")] == [9, 5]

    def test_the_newest_snapshot_before_the_first_record_stays_however_many_follow(self, journal: Journal, other: Journal) -> None:
        records = chain(12)
        append_all(journal, "s", records)
        for seq in (3, 6, 8):
            journal.save_snapshot("s", snapshot_of(seq))
        assert [snapshot.seq for snapshot in journal.load_snapshots("s")] == [8, 6]
        journal.trim("s", 5, 0, base=snapshot_of(5, b"base"))
        for seq in (9, 10, 12):
            journal.save_snapshot("s", snapshot_of(seq))
        assert [snapshot.seq for snapshot in other.load_snapshots("s")] == [12, 10, 5]
        assert [snapshot.seq for snapshot in other.load_snapshots("s", 1)] == [12]
        journal.trim("s", 7, 0, base=snapshot_of(7, b"later base"))
        assert [(snapshot.seq, snapshot.verified()) for snapshot in other.load_snapshots("s")][2:] == [(7, b"later base")]
        assert other.read("s", 0) == records[7:]

    def test_a_journal_begun_in_the_middle_keeps_the_snapshot_it_began_with(self, journal: Journal) -> None:
        records = chain(7)
        assert journal.begin("s", records[3], snapshot_of(4), {}) is True
        append_all(journal, "s", records[4:], records[3])
        for seq in (5, 6, 7):
            journal.save_snapshot("s", snapshot_of(seq))
        assert [snapshot.seq for snapshot in journal.load_snapshots("s")] == [7, 6, 4]

    def test_a_torn_snapshot_is_found_by_its_hash(self, journal: Journal) -> None:
        append_all(journal, "s", chain(1))
        journal.save_snapshot("s", Snapshot(1, hash_of(b"whole"), b"who"))
        with pytest.raises(JournalCorrupt):
            journal.load_snapshots("s")[0].verified()

    def test_a_snapshot_of_a_session_that_was_dropped_meanwhile_is_not_kept(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(1))
        other.drop("s")
        journal.save_snapshot("s", snapshot_of(1))
        assert journal.load_snapshots("s") == []
        assert journal.sessions() == []

    # --- trimming -----------------------------------------------------------------------------------------------

    def test_trim_drops_old_records_and_keeps_the_order_of_the_rest(self, journal: Journal, other: Journal) -> None:
        records = chain(6)
        append_all(journal, "s", records)
        journal.trim("s", 4, 0)
        assert other.read("s", 0) == records[4:]
        assert other.read("s", 5) == records[5:]

    def test_trim_always_keeps_the_last_record(self, journal: Journal) -> None:
        records = chain(3)
        append_all(journal, "s", records)
        journal.trim("s", 99, 0)
        assert journal.read("s", 0) == records[2:]
        append_all(journal, "s", chain(1, records[2]), records[2])
        assert [record.seq for record in journal.read("s", 0)] == [3, 4]

    def test_trimming_a_session_that_is_not_there_does_nothing(self, journal: Journal) -> None:
        journal.trim("nobody", 5, 5)
        assert journal.sessions() == []

    # --- rewriting ----------------------------------------------------------------------------------------------

    def test_rewrite_replaces_records_snapshots_and_caches(self, journal: Journal, other: Journal) -> None:
        old, new = chain(3, tag="old"), chain(3, tag="new")
        name = sha256(b"kept").digest()
        append_all(journal, "s", old, blobs=blob_of(b"kept"))
        journal.save_snapshot("s", snapshot_of(2, b"old"))
        journal.put_derived("s", "index", b"old")
        before = other.version("s")
        assert journal.rewrite("s", 3, old[2].hash, [(new[1], [name]), (new[2], [])], [snapshot_of(3, b"new")]) is True
        assert other.version("s") != before
        assert other.read("s", 0) == new[1:]
        assert [snapshot.body for snapshot in other.load_snapshots("s")] == [b"new"]
        assert other.get_derived("s", "index") is None
        journal.collect_blobs(journal.now_ms() + 10_000)
        assert other.get_blob("s", name) == b"kept"

    def test_rewrite_does_nothing_where_somebody_appended_meanwhile(self, journal: Journal, other: Journal) -> None:
        old = chain(3, tag="old")
        append_all(journal, "s", old)
        assert other.rewrite("s", 2, old[1].hash, [(chain(1)[0], [])], []) is False
        assert other.rewrite("nobody", 0, GENESIS, [(chain(1)[0], [])], []) is False
        assert journal.read("s", 0) == old

    # --- blobs --------------------------------------------------------------------------------------------------

    def test_a_blob_is_there_with_the_record_that_names_it(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(2), blobs=blob_of(b"large"))
        assert other.get_blob("s", sha256(b"large").digest()) == b"large"

    def test_a_blob_may_be_put_before_the_record_that_names_it(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(1))
        journal.put_blob("s", sha256(b"early").digest(), b"early")
        assert other.get_blob("s", sha256(b"early").digest()) == b"early"

    def test_the_same_blob_is_put_twice_without_harm(self, journal: Journal) -> None:
        append_all(journal, "s", chain(2), blobs=blob_of(b"same"))
        append_all(journal, "t", chain(1), blobs=blob_of(b"same"))
        journal.put_blob("s", sha256(b"same").digest(), b"same")
        assert journal.get_blob("t", sha256(b"same").digest()) == b"same"

    def test_collect_blobs_never_drops_what_a_record_names(self, journal: Journal) -> None:
        append_all(journal, "s", chain(2), blobs=blob_of(b"named"))
        assert journal.collect_blobs(journal.now_ms() + 10_000) == (0, 0)
        assert journal.get_blob("s", sha256(b"named").digest()) == b"named"

    def test_collect_blobs_never_drops_what_a_kept_snapshot_names(self, journal: Journal) -> None:
        name = sha256(b"named").digest()
        append_all(journal, "s", chain(3), blobs=blob_of(b"named"))
        journal.save_snapshot("s", snapshot_of(2))
        journal.save_snapshot("s", snapshot_of(3, blobs=[name]))
        journal.trim("s", 3, 3)
        journal.collect_blobs(journal.now_ms() + 10_000)
        assert journal.get_blob("s", name) == b"named"

    def test_a_blob_goes_with_the_last_snapshot_that_named_it(self, journal: Journal) -> None:
        name = sha256(b"named").digest()
        records = chain(8)
        append_all(journal, "s", records[:3], blobs=blob_of(b"named"))
        append_all(journal, "s", records[3:], records[2])
        for seq, names in ((3, [name]), (5, [])):
            journal.save_snapshot("s", snapshot_of(seq, blobs=names))
        journal.trim("s", 5, 5)
        assert journal.collect_blobs(journal.now_ms() + 10_000) == (0, 0)
        journal.save_snapshot("s", snapshot_of(7))
        journal.collect_blobs(journal.now_ms() + 10_000)
        assert [snapshot.seq for snapshot in journal.load_snapshots("s")] == [7, 5]
        assert journal.get_blob("s", name) is None

    def test_collect_blobs_never_drops_young_ones(self, journal: Journal) -> None:
        append_all(journal, "s", chain(1))
        journal.put_blob("s", sha256(b"young").digest(), b"young")
        assert journal.collect_blobs(journal.now_ms() - 60_000) == (0, 0)
        assert journal.get_blob("s", sha256(b"young").digest()) == b"young"

    def test_a_blob_put_again_is_young_again_since_its_record_is_still_to_come(self, journal: Journal) -> None:
        name = sha256(b"again").digest()
        append_all(journal, "s", chain(1))
        journal.put_blob("s", name, b"again")
        first_ms = journal.now_ms()
        while journal.now_ms() == first_ms:
            pass
        journal.put_blob("s", name, b"again")
        assert journal.collect_blobs(first_ms + 1) == (0, 0)
        assert journal.get_blob("s", name) == b"again"

    def test_collect_blobs_drops_what_nothing_retained_names_and_says_how_much(self, journal: Journal) -> None:
        records = chain(3)
        append_all(journal, "s", records[:2], blobs=blob_of(b"replaced"))
        append_all(journal, "s", records[2:], records[1])
        journal.trim("s", 0, 2)  # history stays, its large values go
        assert journal.collect_blobs(journal.now_ms() + 10_000) == (1, len(b"replaced"))
        assert journal.get_blob("s", sha256(b"replaced").digest()) is None
        assert journal.read("s", 0) == records

    def test_trim_may_release_some_blobs_and_keep_others(self, journal: Journal, other: Journal) -> None:
        records = chain(4)
        one, two = (sha256(body).digest() for body in (b"one", b"two"))
        append_all(journal, "s", records[:1], blobs=blob_of(b"one"))
        append_all(journal, "s", records[1:2], records[0], blobs=blob_of(b"two"))
        append_all(journal, "s", records[2:], records[1])
        journal.trim("s", 0, 4, only=[one])
        assert journal.collect_blobs(journal.now_ms() + 10_000) == (1, 3)
        assert (other.get_blob("s", one), other.get_blob("s", two)) == (None, b"two")

    def test_trim_releases_what_the_base_names_but_not_what_the_two_newest_snapshots_do(self, journal: Journal) -> None:
        records = chain(6)
        old, now = (sha256(body).digest() for body in (b"old", b"now"))
        append_all(journal, "s", records[:1], blobs=blob_of(b"old"))
        append_all(journal, "s", records[1:2], records[0], blobs=blob_of(b"now"))
        append_all(journal, "s", records[2:], records[1])
        journal.save_snapshot("s", snapshot_of(5, blobs=[now]))
        journal.save_snapshot("s", snapshot_of(6, blobs=[now]))
        journal.trim("s", 3, 3, only=[], base=snapshot_of(3, b"base", [old, now]))
        assert journal.collect_blobs(journal.now_ms() + 10_000) == (0, 0)
        journal.trim("s", 3, 3, only=[old, now])
        journal.collect_blobs(journal.now_ms() + 10_000)
        assert (journal.get_blob("s", old), journal.get_blob("s", now)) == (None, b"now")

    def test_collect_blobs_may_be_bound_to_some_names(self, journal: Journal) -> None:
        append_all(journal, "s", chain(1))
        names = [sha256(body).digest() for body in (b"one", b"two")]
        for name, body in zip(names, (b"one", b"two"), strict=True):
            journal.put_blob("s", name, body)
        assert journal.collect_blobs(journal.now_ms() + 10_000, names[:1]) == (1, 3)
        assert [journal.get_blob("s", name) for name in names] == [None, b"two"]

    def test_one_session_s_end_leaves_the_blobs_of_others(self, journal: Journal) -> None:
        append_all(journal, "a", chain(1), blobs=blob_of(b"shared"))
        append_all(journal, "b", chain(1), blobs=blob_of(b"shared"))
        journal.drop("a")
        journal.collect_blobs(journal.now_ms() + 10_000)
        assert journal.get_blob("b", sha256(b"shared").digest()) == b"shared"

    # --- derived ------------------------------------------------------------------------------------------------

    def test_a_derived_cache_is_kept_by_session_and_name_and_replaced(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(1))
        append_all(journal, "t", chain(1))
        journal.put_derived("s", "index", b"one")
        journal.put_derived("s", "index", b"two")
        assert other.get_derived("s", "index") == b"two"
        assert other.get_derived("s", "vectors") is None
        assert other.get_derived("t", "index") is None

    def test_a_derived_cache_of_an_unknown_session_is_seen_by_no_other(self, journal: Journal) -> None:
        journal.put_derived("nobody", "index", b"lost")
        assert journal.get_derived("somebody", "index") is None
        assert journal.sessions() == []
        assert journal.begin("nobody", chain(1)[0], snapshot_of(1), {}) is True

    # --- sessions -----------------------------------------------------------------------------------------------

    def test_begin_starts_a_journal_in_the_middle(self, journal: Journal, other: Journal) -> None:
        records = chain(5)
        name = sha256(b"carried").digest()
        assert journal.begin("copy", records[3], snapshot_of(4, b"state", [name]), {name: b"carried"}) is True
        assert other.read("copy", 0) == records[3:4]
        assert [snapshot.seq for snapshot in other.load_snapshots("copy")] == [4]
        journal.collect_blobs(journal.now_ms() + 10_000)
        assert other.get_blob("copy", name) == b"carried"
        append_all(other, "copy", records[4:], records[3])
        assert journal.read("copy", 3) == records[3:]

    def test_begin_refuses_a_session_that_exists(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(2))
        assert other.begin("s", chain(1, tag="z")[0], snapshot_of(1), {}) is False
        assert journal.read("s", 0) == chain(2)

    def test_sessions_are_listed_by_name_with_their_sizes(self, journal: Journal) -> None:
        records = chain(3)
        append_all(journal, "b", records, blobs=blob_of(b"12345"))
        append_all(journal, "a", records[:1])
        journal.save_snapshot("b", snapshot_of(3, b"1234567"))
        a, b = journal.sessions()
        assert (a.name, a.last_seq, a.entries, a.blob_bytes) == ("a", 1, 1, 0)
        assert (b.name, b.last_seq, b.entries) == ("b", 3, 3)
        assert b.entry_bytes == sum(len(record.body) for record in records)
        assert (b.snapshot_bytes, b.blob_bytes) == (7, 5)
        assert journal.info("b") == b

    def test_incarnations_are_the_journals_of_one_name(self, journal: Journal) -> None:
        for name in ("work", "work@2", "work@10", "work-2", "workshop", "wor", "Work"):
            append_all(journal, name, chain(1))
        assert sorted(journal.incarnations("work")) == ["work", "work@10", "work@2"]

    def test_a_dropped_session_is_gone_with_all_that_is_its_own(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(3))
        journal.save_snapshot("s", snapshot_of(3))
        journal.put_derived("s", "index", b"cache")
        other.drop("s")
        assert other.read("s", 0) == []
        assert journal.read("s", 0) == []
        assert journal.load_snapshots("s") == []
        assert journal.get_derived("s", "index") is None
        assert journal.sessions() == []
        other.drop("s")

    def test_a_session_begun_anew_after_a_drop_is_seen_by_everyone(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(3, tag="old"))
        assert other.read("s", 2) != []
        other.drop("s")
        fresh = chain(2, tag="new")
        append_all(journal, "s", fresh, blobs=blob_of(b"with a blob"))
        assert other.read("s", 0) == fresh
        assert journal.read("s", 0) == fresh
        other.drop("s")
        append_all(other, "s", fresh[:1])
        assert journal.read("s", 0) == fresh[:1]
        assert journal.load_snapshots("s") == []

    def test_a_session_dropped_and_begun_in_the_middle_is_appended_to_by_a_handle_that_knew_the_old_one(self, journal: Journal, other: Journal) -> None:
        old, new = chain(5, tag="old"), chain(6, tag="new")
        append_all(journal, "s", old)
        other.drop("s")
        assert other.begin("s", new[4], snapshot_of(5), {}) is True
        assert journal.append("s", 5, new[4].hash, new[5:], {}) is None
        assert other.read("s", 0) == new[4:]

    # --- life ---------------------------------------------------------------------------------------------------

    def test_the_clock_is_unix_time_in_ms(self, journal: Journal) -> None:
        assert 1_500_000_000_000 < journal.now_ms() < 10_000_000_000_000

    def test_close_is_idempotent(self, open_journal: OpenJournal) -> None:
        journal = open_journal()
        append_all(journal, "s", chain(1))
        journal.close()
        journal.close()

    def test_a_closed_handle_is_unavailable_and_others_go_on(self, open_journal: OpenJournal, journal: Journal) -> None:
        if not self.has_processes:
            pytest.skip("all handles are one object, by its flag")
        closed = open_journal()
        append_all(closed, "s", chain(1))
        closed.close()
        with pytest.raises(Unavailable) as refused:
            closed.read("s", 0)
        assert refused.value.code == "closed"
        assert journal.read("s", 0) == chain(1)

    def test_what_was_acknowledged_is_there_after_everybody_closed(self, open_journal: OpenJournal) -> None:
        if not self.has_processes:
            pytest.skip("the store lives as long as its process, by its flag")
        journal = open_journal()
        append_all(journal, "s", chain(3), blobs=blob_of(b"large"))
        journal.close()
        again = open_journal()
        assert again.read("s", 0) == chain(3)
        assert again.get_blob("s", sha256(b"large").digest()) == b"large"
        again.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
    def test_after_a_fork_child_and_parent_both_go_on(self, journal: Journal) -> None:
        records = chain(3)
        append_all(journal, "s", records[:1])

        def child() -> None:
            journal.after_fork()
            append_all(journal, "s", records[1:2], records[0])
            assert journal.read("s", 0) == records[:2]

        assert run_forked(child) == 0
        if self.has_processes:
            append_all(journal, "s", records[2:], records[1])
            assert journal.read("s", 0) == records
        else:
            assert journal.read("s", 0) == records[:1]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
    def test_a_child_may_write_although_a_thread_held_the_lock_at_the_fork(self, journal: Journal, other: Journal) -> None:
        append_all(journal, "s", chain(1))
        with held_elsewhere(journal):

            def child() -> None:
                journal.after_fork()
                if self.has_locks:
                    with pytest.raises(Busy), journal.write_lock("s", 0.02):  # the parent still holds it
                        pass
                assert journal.read("s", 0) == chain(1)

            assert run_forked(child) == 0
        with other.write_lock("s", BOUND_S):  # and the child's end did not release or keep it
            append_all(other, "s", chain(1, chain(1)[0]), chain(1)[0])


# --- what the tests are made of ---------------------------------------------------------------------------------


def run_threads(jobs: list[Callable[[], None]]) -> None:
    """Run jobs at once, one thread each; the first exception of any of them is raised here."""
    failed: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a job hangs"
    if failed:
        raise failed[0]


@contextmanager
def held_elsewhere(journal: Journal, session: str = "s") -> Iterator[None]:
    """Hold the write lock of a journal in another thread for the length of the block."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with journal.write_lock(session, BOUND_S):
            held.set()
            done.wait(BOUND_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(BOUND_S)
    try:
        yield
    finally:
        done.set()
        thread.join(BOUND_S)


def run_forked(child: Callable[[], None]) -> int:
    """Run child in a forked process; return its exit status, 0 where it raised nothing. The reason goes to stderr."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
