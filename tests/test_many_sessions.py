"""A process that is asked for ever new sessions keeps a bounded number of them, and nobody notices which."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest

from pinfold import Memory, limits
from pinfold.engine import Replica


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(limits, "SESSIONS_IN_RAM", 10)
    return f"sqlite:///{tmp_path}/s.db"


def in_ram() -> int:
    gc.collect()
    return sum(1 for found in gc.get_objects() if isinstance(found, Replica))


def test_sessions_that_nobody_holds_do_not_pile_up(url: str) -> None:
    before = in_ram()
    with Memory(url, background=False) as memory:
        for number in range(100):
            memory.session(f"s{number}").set("k", number)
        assert in_ram() - before <= 11
        assert [memory.session(f"s{number}").peek("k").value for number in range(100)] == list(range(100))
        tally = memory._engine.tally()
        assert (tally["turns"], tally["hits"]) == (100, 100)


def test_a_session_that_is_held_is_the_one_that_is_opened_again(url: str) -> None:
    with Memory(url, background=False) as memory:
        held = memory.session("held")
        held.set("k", 1)
        for number in range(100):
            memory.session(f"s{number}").set("k", number)
        again = memory.session("held")
        assert again._replica is held._replica
        claimed = again.claim("work")
        held.fulfil(claimed, "done")
        assert again.peek("work").value == "done"


def test_what_was_used_is_known_of_a_session_that_was_let_go(url: str) -> None:
    with Memory(url) as memory:
        first = memory.session("first", silo_size=2)
        first.set("a", 1)
        first.set("b", 2)
        first.peek("a")
        del first
        for number in range(100):
            memory.session(f"s{number}").set("k", number)
        with Memory(url, background=False) as other:
            again = other.session("first")
            again.set("c", 3)
            assert (again.peek("a").hit, again.peek("b").hit) == (True, False)


def test_opening_a_large_session_holds_up_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(url, background=False) as memory:
        loading, go_on = threading.Event(), threading.Event()
        load = Replica._install

        def slow(replica: Replica, *loaded: object) -> None:
            if replica.name == "large":
                loading.set()
                assert go_on.wait(60)
            load(replica, *loaded)

        monkeypatch.setattr(Replica, "_install", slow)
        opener = threading.Thread(target=memory.session, args=("large",))
        opener.start()
        assert loading.wait(60)
        other = next(name for name in map(str, range(100)) if hash(name) % 16 != hash("large") % 16)
        memory.session(other).set("k", 1)
        go_on.set()
        opener.join(60)
        assert memory.session("large").peek("k").hit is False
