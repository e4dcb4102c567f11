"""Several real processes on one store that is a server: who works, who joins, who takes over, and what a kill -9 leaves."""

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from pinfold import Memory, Refused
from pinfold.entry import decode_entry
from pinfold.fold import load_state
from pinfold.journal.open import open_journal
from pinfold.state.session import SessionState, apply, state_hash
from pinfold.testing.journal_contract import run_forked

PROCESS = Path(__file__).parent.parent / "process"
sys.path.append(str(PROCESS))

import worker  # noqa: E402

_spec = importlib.util.spec_from_file_location("process_conftest", PROCESS / "conftest.py")
assert _spec is not None and _spec.loader is not None
_processes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_processes)

pytestmark = pytest.mark.requirement("processes")

WRITERS = 4
KILLS = 25


@pytest.fixture
def start() -> Iterator[Callable[..., "_processes.Worker"]]:
    """A function that starts a worker process; none outlives the test."""
    started = []

    def start_one(job, *arguments):
        started.append(_processes.Worker(job, *arguments))
        return started[-1]

    yield start_one
    for process in started:
        process.close()


@pytest.fixture(params=["redis", "cluster", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store on each kind of server in turn."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def memory(url: str) -> Iterator[Memory]:
    with Memory(url) as opened:
        yield opened


@pytest.mark.requirement("one-winner")
def test_eight_processes_racing_on_the_same_keys_execute_each_exactly_once(start, url):
    keys = 60
    racers = [start(worker.race, url, str(keys)) for _ in range(8)]
    for racer in racers:
        assert racer.next() == {"ready": True}
    for racer in racers:
        racer.go()
    results = [racer.next() for racer in racers]
    assert [result["wrong"] for result in results] == [[]] * 8
    assert sorted(name for result in results for name in result["executed"]) == sorted(f"key-{n}" for n in range(keys))


@pytest.mark.requirement("takeover", "background-renewal")
def test_when_an_owner_is_killed_exactly_one_of_eight_waiters_takes_over(start, url, memory):
    owner = start(worker.own, url, "job")
    assert owner.next() == {"executing": "job"}
    waiters = [start(worker.want, url, "job") for _ in range(8)]
    for waiter in waiters:
        waiter.next()
    session = memory.session("race")
    token = session._replica.state.promises.by_key["job"].token
    owner.kill()
    events = [event for waiter in waiters for event in waiter.end()]
    assert [event["value"] for event in events if "value" in event] == ["done"] * 8
    assert [event for event in events if "executing" in event] == [{"executing": "job"}]
    with pytest.raises(Refused) as refused:
        session.fulfil("job", "too late", token=token)
    assert refused.value.code == "stale_token"


@pytest.mark.requirement("wake-up")
def test_a_waiter_in_another_process_is_woken_with_the_value_or_the_reason(start, url, memory):
    session = memory.session("race")
    for key, settle, expected in (
        ("good", lambda claim: session.fulfil(claim, {"n": 1}), {"outcome": "Hit", "value": {"n": 1}, "reason": None}),
        ("bad", lambda claim: session.reject(claim, "no such file"), {"outcome": "Rejected", "value": None, "reason": "no such file"}),
    ):
        claim = session.claim(key, lease_s=60)
        waiter = start(worker.wait, url, key)
        assert waiter.next() == {"ready": True}
        settle(claim)
        assert waiter.next() == expected


@pytest.mark.requirement("no-acknowledged-write-lost", "equal-states", "no-gap")
def test_random_kills_during_writes_lose_no_acknowledged_write(start, url):
    dice = random.Random(20261130)
    acknowledged: set[str] = set()
    writers = [start(worker.write, url, str(number)) for number in range(WRITERS)]
    for kill in range(KILLS):
        place = dice.randrange(WRITERS)
        for _ in range(dice.randint(1, 12)):
            acknowledged.add(writers[place].next()["ok"])
        acknowledged.update(event["ok"] for event in writers[place].kill())
        writers[place] = start(worker.write, url, str(WRITERS + kill))
    for writer in writers:
        acknowledged.update(event["ok"] for event in writer.kill())
    journal = open_journal(url)
    records = journal.read("soak", 0)
    entries = [decode_entry(record) for record in records]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert all(later.prev_hash == earlier.hash for earlier, later in zip(records, entries[1:], strict=False))
    assert all(earlier.at_ms <= later.at_ms for earlier, later in pairwise(entries))
    written = {fact["v"] for entry in entries for fact in entry.facts if fact["f"] == "slot.put" and "v" in fact}
    assert acknowledged - written == set()
    replayed = SessionState()
    for entry, record in zip(entries, records, strict=True):
        apply(replayed, entry, record.hash)
    assert state_hash(load_state(journal, "soak")) == state_hash(replayed)
    journal.close()


@pytest.mark.requirement("fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_and_parent_write_on_and_see_each_other(memory):
    session = memory.session("work")
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


@pytest.mark.requirement("compaction", "blobs", "incarnations")
def test_a_session_lives_on_a_server_as_it_does_anywhere(url):
    with Memory(url) as memory:
        session = memory.session("work", silo_size=40)
        for n in range(60):
            session.set(f"k{n}", f"value {n}")
        session.set("large", bytes(300_000))
        session.mutate("+ CONCEPT [NEW:a] ; label=anchors")
        expected = session.state_hash()
        session._replica.compact()
        memory.end("work")
        assert memory.session("work").peek("k59").hit is False
    with Memory(url) as memory:
        assert memory.session("work").peek("k59").hit is False
        memory.restore("work")
        session = memory.session("work")
        assert session.peek("k59").value == "value 59"
        assert len(session.peek("large").value) == 300_000
        assert session.peek("k1").hit is False
        assert session.log(limit=1000)[0].seq == 1
    assert expected
