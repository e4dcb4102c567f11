"""The same session under asyncio: nobody blocks the loop, and a cancelled task harms nobody."""

import asyncio
import gc
import inspect
import threading

import pytest

from pinfold import AsyncSession, Claimed, Hit, Miss, Pending, Refused, Rejected, Session, Unavailable, WorkFailed, limits

BOUND_S = 30.0


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(BOUND_S):
            return await coroutine

    return asyncio.run(bounded())


async def until(holds) -> None:
    """Return once holds(). Bounded by `run`."""
    while not holds():
        await asyncio.sleep(0)


def waiters(session, key: str) -> int:
    return len(session._replica._waiters.get(key, ()))


@pytest.fixture
def tasks(session, memory):
    """(async session, its Session) of one session."""
    return memory.async_session("work"), session


@pytest.mark.requirement("once", "async")
def test_a_thousand_tasks_on_one_key_execute_once(tasks):
    many, session = tasks
    executed = []

    async def work():
        executed.append(1)
        await until(lambda: waiters(session, "job") >= 200)
        return ["result"]

    async def main():
        return await asyncio.gather(*(many.once("job", work) for _ in range(1_000)))

    assert run(main()) == [["result"]] * 1_000
    assert executed == [1]


@pytest.mark.requirement("async", "cancellation")
def test_cancelling_one_waiter_harms_nobody(tasks):
    many, session = tasks

    async def main():
        claim = await many.claim("job", 60)
        assert isinstance(claim, Claimed)
        waiting = [asyncio.create_task(many.once("job", None)) for _ in range(3)]
        await until(lambda: waiters(session, "job") == 3)
        waiting[1].cancel()
        await asyncio.wait(waiting[1:2])
        assert waiting[1].cancelled()
        assert waiters(session, "job") == 2
        await many.fulfil(claim, "done")
        assert await asyncio.gather(waiting[0], waiting[2]) == ["done", "done"]

    run(main())


@pytest.mark.requirement("async", "cancellation", "takeover")
def test_a_cancelled_owner_lets_another_take_over_at_once(tasks):
    many, session = tasks
    started = []

    async def endless():
        started.append("first")
        await asyncio.Event().wait()

    async def second():
        started.append("second")
        return "by the second"

    async def main():
        owner = asyncio.create_task(many.once("job", endless, lease_s=600))
        await until(lambda: started)
        joined = asyncio.create_task(many.once("job", second))
        await until(lambda: waiters(session, "job") == 1)
        owner.cancel()
        assert await joined == "by the second"
        with pytest.raises(asyncio.CancelledError):
            await owner

    run(main())
    assert started == ["first", "second"]


@pytest.mark.requirement("async", "cancellation")
def test_a_claim_won_for_a_cancelled_task_is_given_back(tasks):
    many, session = tasks

    async def main():
        for n in range(20):
            task = asyncio.create_task(many.claim(f"k{n}", 600))
            await asyncio.sleep(0)  # the turn is on its way in a thread
            task.cancel()
            await asyncio.wait([task])
        await until(lambda: all(isinstance(session.peek(f"k{n}"), Miss) for n in range(20)))

    run(main())


@pytest.mark.requirement("async", "cancellation")
def test_giving_a_claim_back_does_not_hold_up_the_loop(sqlite_url, open_memory, monkeypatch):
    memory = open_memory(sqlite_url)
    many, elsewhere = memory.async_session("work"), open_memory(sqlite_url)
    session = elsewhere.session("work")
    started, held, free = [], threading.Event(), threading.Event()

    def hold() -> None:
        with elsewhere._journal.write_lock("work", BOUND_S):
            held.set()
            free.wait(BOUND_S)

    async def endless():
        started.append(1)
        await asyncio.Event().wait()

    async def main():
        owner = asyncio.create_task(many.once("job", endless, lease_s=600))
        await until(lambda: started)
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(BOUND_S)
        owner.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        free.set()  # a loop that waits for the store never comes here, and gives nothing back
        await asyncio.wait([owner])
        holder.join()
        return owner.cancelled()

    monkeypatch.setattr(limits, "LOCK_WAIT_S", BOUND_S / 10)
    assert run(main())
    assert isinstance(session.peek("job"), Miss)


@pytest.mark.requirement("async", "cancellation", "background-renewal")
def test_a_task_thrown_away_with_its_loop_keeps_no_claim_alive(tasks, memory):
    many, session = tasks
    started = []

    async def endless():
        started.append(1)
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *told: None)  # "Task was destroyed but it is pending"
    task = loop.create_task(many.once("job", endless, lease_s=600))
    loop.run_until_complete(until(lambda: started))
    assert memory._engine.renewer._due
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    del task
    gc.collect()
    assert not memory._engine.renewer._due
    assert isinstance(session.claim("job"), Claimed)


@pytest.mark.requirement("async", "errors-shared")
def test_an_exception_is_shared_with_present_tasks_and_threads_and_not_kept(tasks):
    many, session = tasks

    async def fail():
        await until(lambda: waiters(session, "job") == 2)
        raise LookupError("no luck")

    async def main():
        owner = asyncio.create_task(many.once("job", fail))
        await until(lambda: isinstance(session.peek("job"), Pending))
        joined = asyncio.create_task(many.once("job", fail))
        told = asyncio.create_task(asyncio.to_thread(session.wait, "job", BOUND_S))
        outcomes = await asyncio.gather(owner, joined, told, return_exceptions=True)
        assert type(outcomes[0]) is LookupError
        assert outcomes[1] is outcomes[0]
        assert outcomes[2] == Rejected("job", "LookupError: no luck")

        async def succeed():
            return "second try"

        assert await many.once("job", succeed) == "second try"

    run(main())


@pytest.mark.requirement("async", "wake-up")
def test_a_task_is_woken_by_another_store_handle(sqlite_url, open_memory):
    here, there = open_memory(sqlite_url), open_memory(sqlite_url)
    claim = there.session("work").claim("job", 60)

    async def main():
        many = here.async_session("work")
        session = here.session("work")
        tasks = [
            asyncio.create_task(many.wait("job", BOUND_S)),
            asyncio.create_task(many.peek("job", wait_s=BOUND_S)),
            asyncio.create_task(many.once("bad", None)),
        ]
        await until(lambda: waiters(session, "job") == 2 and waiters(session, "bad") == 1)
        await asyncio.to_thread(there.session("work").fulfil, claim, {"n": 1})
        await asyncio.to_thread(there.session("work").reject, bad, "no")
        assert await tasks[0] == Hit({"n": 1}, 0, True)
        assert await tasks[1] == Hit({"n": 1}, 0, True)
        with pytest.raises(WorkFailed):
            await tasks[2]

    bad = there.session("work").claim("bad", 60)
    run(main())


@pytest.mark.requirement("async")
def test_every_writing_method_has_its_awaited_twin(tasks):
    many, session = tasks

    async def main():
        assert (await many.set("a", 1, ttl_s=60)).index == 0
        assert (await many.peek("a")).value == 1
        claim = await many.claim("b")
        assert (await many.renew(claim, 60)).lease_left_s == 60
        assert (await many.fulfil(claim, 2)).status == "resolved"
        assert (await many.reject(await many.claim("c"), "no")).status == "rejected"
        await many.release(await many.claim("d"))
        assert many.promise("d").status == "unknown"
        assert many.keys() == ["a", "b"]
        assert (await many.drop("a")).keys == ["a"]
        assert (await many.flush()).cleared_count == 1
        assert many.status().seq == session.status().seq
        assert [row.seq for row in await many.log(limit=1)] == [session.status().seq]
        await many.claim("e", 600)
        with pytest.raises(Unavailable):
            await many.once("e", None, timeout_s=0.01)
        async with many as again:
            assert again.session_id == "work"

    run(main())


@pytest.mark.requirement("async")
def test_all_that_a_session_does_an_async_one_does_with_the_same_arguments(tasks):
    many, session = tasks
    names = {name for name in dir(Session) if not name.startswith("_")} - {"peeks_in_ram"}
    assert names <= set(dir(AsyncSession))
    differing = [
        name
        for name in sorted(names - {"once", "once_hit", "cached", "session_id", "by"})
        if list(inspect.signature(getattr(Session, name)).parameters) != list(inspect.signature(getattr(AsyncSession, name)).parameters)
    ]
    assert differing == []
    assert list(inspect.signature(many.once).parameters) == list(inspect.signature(session.once).parameters)


@pytest.mark.requirement("async")
def test_memories_are_kept_and_found_by_awaiting(tasks):
    many, session = tasks

    async def main():
        auth = await many.by("ann").upsert_node("concept", "auth flow", "login by refresh tokens")
        file = await many.upsert_node("file", "src/login.py", "the login handler")
        await many.create_relation(auth.node_id, file.node_id, "implements", 0.5)
        turn = await many.remember("We deploy on Fridays.", by="Ann", group="standup")
        assert [hit.node_id for hit in (await many.search("refresh tokens")).direct][:1] == [auth.node_id]
        assert {row.node_id for row in (await many.traverse(auth.node_id)).results} == {auth.node_id, file.node_id}
        assert (await many.resolve_context("deploy on Fridays")).node_id == turn.node_id
        assert (await many.prune(dry_run=True)).removed == 0
        assert turn.node_id in (await many.pin_map(turn.node_id)).text
        linked = await many.add_interlinked([{"type": "note", "label": n, "content": "same words"} for n in "ab"])
        assert linked.edges_created == 1
        assert (await many.stale()) == [] and (await many.blame(auth.node_id))[0].actor == "ann"
        with pytest.raises(Refused):
            await many.traverse("NOTE99")

    run(main())
    assert session.graph_counts()["nodes"] == 5


@pytest.mark.requirement("async")
def test_a_hit_that_promotes_writes_in_a_worker_thread(sqlite_url, open_memory):
    memory = open_memory(sqlite_url)
    session = memory.session("work", promote_after=2)
    session.set("key", "value")
    writers, turn = [], session._replica.turn
    session._replica.turn = lambda *given, **options: (writers.append(threading.current_thread()), turn(*given, **options))[1]

    async def main():
        many = memory.async_session("work")
        assert [(await many.peek("key")).value for _ in range(3)] == ["value"] * 3

    run(main())
    assert writers and threading.main_thread() not in writers
    assert session.search("key").direct[0].content == "value"


@pytest.mark.requirement("async", "cached")
def test_cached_works_on_async_functions(tasks):
    many, session = tasks
    calls = []

    @many.cached(name="square")
    async def square(x: int) -> int:
        calls.append(x)
        await asyncio.sleep(0)
        return x * x

    async def main():
        assert await asyncio.gather(*(square(n % 3) for n in range(30))) == [(n % 3) ** 2 for n in range(30)]
        assert await square(x=2) == 4

    run(main())
    assert sorted(calls) == [0, 1, 2]
    assert len(session.keys("square(")) == 3
