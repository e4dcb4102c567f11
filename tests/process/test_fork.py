"""os.fork in the middle of use: child and parent both go on, and neither harms the other."""

import os
import signal
import threading

import pytest

from pinfold import Busy, Claimed, Memory
from pinfold.testing.journal_contract import held_elsewhere, run_forked

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform"),
    pytest.mark.requirement("fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def test_child_and_parent_write_on_and_see_each_other(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("work")
    session.set("before", "the fork")

    def child():
        assert session.peek("before").value == "the fork"
        session.set("child", "was here")
        assert session.once("work", lambda: "done by the child") == "done by the child"

    assert run_forked(child) == 0
    assert session.peek("child").value == "was here"
    assert session.once("work", lambda: "done again") == "done by the child"
    session.set("parent", "goes on")
    assert sorted(session.keys()) == ["before", "child", "parent", "work"]


def test_a_child_forked_while_a_thread_is_in_a_turn_loads_what_was_left_half_done(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("work")
    replica = session._replica
    session.set("a", "1")
    session.set("b", "old")
    halfway, done = threading.Event(), threading.Event()

    class Torn(dict):
        """A silo whose next put stops in the middle of apply, as a thread that a fork cuts off does."""

        def __setitem__(self, key, value):
            if threading.current_thread() is writer:
                halfway.set()
                done.wait(20)
            super().__setitem__(key, value)

    replica.slots = replica.state.silo.slots = Torn(replica.slots)
    writer = threading.Thread(target=lambda: session.set("b", "half applied"))
    writer.start()
    assert halfway.wait(20)

    def child():
        assert session.peek("b").value == "half applied"
        assert session.status().seq == 3
        assert replica.state.silo.inline_bytes == len("a1b" + "half applied")

    assert run_forked(child) == 0
    done.set()
    writer.join(20)
    assert replica.state.silo.inline_bytes == len("a1b" + "half applied")


def test_a_child_is_not_the_owner_s_heartbeat_and_keeps_no_lock(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("work")
    journal = session._replica.journal

    def child():
        with pytest.raises(Busy), journal.write_lock("work", 0.02):
            pass

    with held_elsewhere(journal, "work"):
        assert run_forked(child) == 0
    claim = session.claim("job", 30)
    assert isinstance(claim, Claimed)
    assert run_forked(lambda: session.renew(claim, 60)) == 0  # a claim is known by its token, whoever holds it
    assert session.fulfil(claim, "ok").status == "resolved"


@pytest.mark.parametrize("how", ["reading", "opening"])
def test_a_child_forked_while_other_threads_are_inside_sqlite_does_not_hang(sqlite_url, open_memory, tmp_path, how):
    """SQLite has locks of its own, for the whole process; a child that inherits one held waits for ever."""
    memory = open_memory(sqlite_url)
    session = memory.session("work")
    done = threading.Event()

    def busy(number):
        while not done.is_set():
            if how == "opening":
                with Memory(f"sqlite:///{tmp_path}/{number}.db") as other:
                    other.session("s").set("a", "x" * 50_000)
            else:
                session.set(f"k{number}", "x" * 50_000)

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()

    def child():
        signal.alarm(30)
        session.set("child", "was here")

    try:
        for _ in range(15):
            assert run_forked(child) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
