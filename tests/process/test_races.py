"""Several real processes on one SQLite store: who works, who joins, who takes over."""

import pytest
import worker

from pinfold import Refused

pytestmark = pytest.mark.requirement("processes")


@pytest.mark.requirement("one-winner")
def test_eight_processes_racing_on_the_same_keys_execute_each_exactly_once(start, sqlite_url):
    keys = 300
    workers = [start(worker.race, sqlite_url, str(keys)) for _ in range(8)]
    for racer in workers:
        assert racer.next() == {"ready": True}
    for racer in workers:
        racer.go()
    results = [racer.next() for racer in workers]
    assert [result["wrong"] for result in results] == [[]] * 8
    assert sorted(name for result in results for name in result["executed"]) == sorted(f"key-{n}" for n in range(keys))


@pytest.mark.requirement("takeover", "background-renewal")
def test_when_an_owner_is_killed_exactly_one_of_eight_waiters_takes_over(start, sqlite_url, open_memory):
    owner = start(worker.own, sqlite_url, "job")
    assert owner.next() == {"executing": "job"}
    waiters = [start(worker.want, sqlite_url, "job") for _ in range(8)]
    for waiter in waiters:  # the lease is shorter than all this takes: the owner renews it in the background
        assert waiter.next() == {"ready": True}
    session = open_memory(sqlite_url).session("race")
    token = session._replica.state.promises.by_key["job"].token
    owner.kill()
    events = [event for waiter in waiters for event in waiter.end()]
    assert [event["value"] for event in events if "value" in event] == ["done"] * 8
    assert [event for event in events if "executing" in event] == [{"executing": "job"}]
    with pytest.raises(Refused) as refused:  # as the owner would be, if it were only slow
        session.fulfil("job", "too late", token=token)
    assert refused.value.code == "stale_token"
    assert refused.value.value == "done"


@pytest.mark.requirement("wake-up")
def test_a_waiter_in_another_process_is_woken_with_the_value_or_the_reason(start, sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("race")
    for key, settle, expected in (
        ("good", lambda claim: session.fulfil(claim, {"n": 1}), {"outcome": "Hit", "value": {"n": 1}, "reason": None}),
        ("bad", lambda claim: session.reject(claim, "no such file"), {"outcome": "Rejected", "value": None, "reason": "no such file"}),
    ):
        claim = session.claim(key, lease_s=60)
        waiter = start(worker.wait, sqlite_url, key)
        assert waiter.next() == {"ready": True}
        settle(claim)
        assert waiter.next() == expected


def test_sixteen_writes_of_short_lived_processes_in_parallel_are_all_kept(start, sqlite_url, open_memory):
    workers = [start(worker.sets, sqlite_url, f"n{number}") for number in range(16)]
    for one in workers:
        assert one.end() == []
        assert one.process.exitcode == 0
    assert sorted(open_memory(sqlite_url).session("shell").keys()) == sorted(f"n{number}" for number in range(16))
