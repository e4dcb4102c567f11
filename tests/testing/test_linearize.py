"""The checker of histories: what it accepts, and the faults it must catch."""

import threading

import pytest

from pinfold.entry import GENESIS, Record
from pinfold.journal.base import Conflict
from pinfold.journal.memory import MemoryJournal
from pinfold.testing.journal_contract import run_threads
from pinfold.testing.linearize import Call, Recorder, claimable, explains, register
from pinfold.testing.workloads import record_appends


def test_overlapping_calls_may_take_either_order_and_separate_ones_may_not():
    write, read_old = Call(("cas", 0, 1), True, 0, 10), Call(("read",), 0, 2, 8)
    assert explains([write, read_old], register, 0)
    assert not explains([Call(("cas", 0, 1), True, 0, 1), Call(("read",), 0, 2, 3)], register, 0)


def test_a_call_that_nobody_knows_of_may_have_happened_late_or_never():
    lost = Call(("cas", 0, 1), None, 0, None)
    assert explains([lost, Call(("read",), 0, 1, 2), Call(("read",), 1, 3, 4)], register, 0)
    assert explains([lost, Call(("read",), 0, 1, 2)], register, 0)
    assert not explains([lost, Call(("read",), 1, 1, 2), Call(("read",), 0, 3, 4)], register, 0)


def test_two_winners_of_one_claim_are_caught():
    won = [Call(("claim", "a"), "won", 0, 5), Call(("claim", "b"), "won", 1, 6)]
    assert not explains(won, claimable, ("free",))
    assert explains([won[0], Call(("claim", "b"), "pending", 1, 6)], claimable, ("free",))
    assert explains([won[0], Call(("release", "a"), True, 2, 3), won[1]], claimable, ("free",))


class Forgetful(MemoryJournal):
    """Plants a fault: every tenth append is acknowledged and not kept."""

    appends = 0

    def append(self, session, after, after_hash, records, blobs) -> Conflict | None:
        self.appends += 1
        return None if self.appends % 10 == 0 else super().append(session, after, after_hash, records, blobs)


class Careless(MemoryJournal):
    """Plants a fault: compares, then appends, and somebody may come between."""

    gate = threading.Barrier(2)

    def append(self, session, after, after_hash, records, blobs) -> Conflict | None:
        last = (self.read(session, 0) or [Record(0, GENESIS, b"")])[-1]
        if (last.seq, last.hash) != (after, after_hash):
            return Conflict(self.read(session, after))
        try:
            self.gate.wait(0.05)
        except threading.BrokenBarrierError:
            self.gate.reset()
        return super().append(session, last.seq, last.hash, records, blobs) and None


@pytest.mark.parametrize(("kind", "fine"), [(MemoryJournal, True), (Forgetful, False), (Careless, False)])
def test_planted_faults_of_a_journal_are_caught(kind, fine):
    journal = kind()
    recorder = Recorder()
    run_threads([lambda n=n: record_appends(recorder, journal, f"w{n}", 12) for n in range(3)])
    assert explains(recorder.history, register, GENESIS) is fine
