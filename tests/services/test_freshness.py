"""How fresh a read is: proved with fresh=confirm, bounded with max_stale_ms, and what goes on while the server is away."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Postgres, Valkey, free_port, until

from pinfold import ConfigurationError, Memory, Unavailable
from pinfold.fold import load_state
from pinfold.journal.open import migrate_store, open_journal
from pinfold.state.session import state_hash
from pinfold.testing.linearize import Recorder, claimable, explains

pytestmark = pytest.mark.requirement("freshness")

HASTY = "timeout_ms=400&retry_ms=400"


@pytest.fixture
def valkeys(redis_driver: None, tmp_path: Path) -> Iterator[Callable[..., Valkey]]:
    """A function that starts a Valkey with these options; all are stopped after the test."""
    started: list[Valkey] = []

    def start(*options: str) -> Valkey:
        started.append(Valkey(tmp_path, *options))
        return started[-1].start()

    yield start
    for server in started:
        server.kill()


@pytest.fixture(params=["valkey", "postgres"])
def server(request: pytest.FixtureRequest) -> Iterator[Valkey | Postgres]:
    """A server of each kind in turn, for one test to take away."""
    if request.param == "valkey":
        valkey = request.getfixturevalue("valkeys")("--appendonly", "yes", "--appendfsync", "always")
        yield valkey
        return
    request.getfixturevalue("postgres_driver")
    own = Postgres(request.getfixturevalue("postgres_place") / f"fresh-{free_port()}", "fsync=off").create().start()
    migrate_store(own.url)
    yield own
    own.stop()


def url_of(server: Valkey | Postgres) -> str:
    return server.url if isinstance(server, Postgres) else f"redis://127.0.0.1:{server.port}"


def stop(server: Valkey | Postgres) -> None:
    server.stop() if isinstance(server, Postgres) else server.kill()


def test_without_the_server_reads_go_on_within_max_stale_ms_writes_do_not_and_ram_is_the_journal(server):
    url = f"{url_of(server)}?{HASTY}"
    with Memory(f"{url}&max_stale_ms=3600000") as patient, Memory(f"{url}&max_stale_ms=1") as strict, Memory(url) as plain:
        patient.session("work").set("a", "1")
        sessions = [memory.session("work") for memory in (patient, strict, plain)]
        assert [session.peek("a").value for session in sessions] == ["1"] * 3
        stop(server)
        assert patient.session("work").peek("a").value == "1"
        assert sessions[0].keys() == ["a"]
        for session, looks in ((sessions[1], 1_000_000), (sessions[2], 1)):
            with pytest.raises(Unavailable) as away:
                for _ in range(looks):  # the millisecond that a read may be old may not be over yet
                    session.peek("a")
            assert (away.value.code, away.value.maybe_applied) == ("server_down", False)
        with pytest.raises(Unavailable) as unwritten:
            sessions[0].set("b", "2", request_id="r1")
        assert unwritten.value.code == "server_down"
        with pytest.raises(Unavailable):
            sessions[0].confirm()
        assert sessions[0].peek("b").hit is False
        assert sessions[0]._replica.state.seq == 1
        server.start()
        sessions[0].set("b", "2", request_id="r1")
        journal = open_journal(url)
        for session in sessions:
            session.confirm()
            assert session.keys() == ["a", "b"]
            assert session.state_hash() == state_hash(load_state(journal, "work"))
        assert len(journal.read("work", 0)) == 2
        journal.close()


def test_what_others_wrote_is_seen_at_once_after_confirm_and_always_by_who_decides(server):
    url = url_of(server)
    with Memory(f"{url}?max_stale_ms=3600000") as stale, Memory(url) as other:
        ours, theirs = stale.session("work"), other.session("work")
        assert ours.peek("a").hit is False
        theirs.set("a", "1")
        assert ours.peek("a").hit is False
        assert ours.confirm() == 1
        assert ours.peek("a").value == "1"
        theirs.set("job", "done")
        assert ours.claim("job").value == "done"  # nobody works on what is done, however old the look
        claim = theirs.claim("next", 60)
        assert ours.claim("next").hit is True
        theirs.fulfil(claim, "x")
        ours.confirm()
        assert ours.peek("next").value == "x"


@pytest.mark.requirement("wake-up")
def test_who_waits_is_woken_though_looks_may_be_old(server):
    from pinfold.testing.journal_contract import run_threads

    url = url_of(server)
    with Memory(f"{url}?max_stale_ms=3600000") as stale, Memory(url) as other:
        claim = other.session("work").claim("job", 60)
        ours = stale.session("work")
        assert ours.peek("job").hit is True
        found: list[object] = []
        run_threads([lambda: found.append(ours.wait("job", 20).value), lambda: other.session("work").fulfil(claim, "done")])
        assert found == ["done"]


def test_a_primary_that_was_replaced_is_read_from_in_vain_once_reads_are_confirmed(valkeys):
    old = valkeys()
    new = valkeys("--replicaof", f"127.0.0.1 {old.port}")
    until(lambda: new.info("replication")["master_link_status"] == "up", "the replica to follow")
    before, after = f"redis://127.0.0.1:{old.port}?wait_ms=100&{HASTY}", f"redis://127.0.0.1:{new.port}?replicas=0&{HASTY}"
    with Memory(before) as memory, Memory(f"{before}&fresh=confirm") as careful:
        memory.session("work").set("a", "1")
        stale, sure = memory.session("work"), careful.session("work")
        assert sure.peek("a").value == stale.peek("a").value == "1"
        assert sure.peek("nothing").hit is False
        new.ask("REPLICAOF", "NO", "ONE")  # a failover that the old primary knows nothing of
        plain, confirmed = Recorder(), Recorder()
        with Memory(after) as promoted:
            session = promoted.session("work")
            for recorder, reader, key in ((plain, stale, "p"), (confirmed, sure, "c")):
                recorder.call(("claim", "new"), lambda s=session, k=key: "won" if s.claim(k, 60) else "")
                recorder.call(("peek",), lambda r=reader, k=key: "pending" if r.peek(k).hit else "miss", Unavailable)
        assert not explains(plain.history, claimable, ("free",))
        assert explains(confirmed.history, claimable, ("free",))
        with pytest.raises(Unavailable) as unproved:
            sure.peek("a")
        assert (unproved.value.code, unproved.value.maybe_applied) == ("unconfirmed", False)
        with pytest.raises(Unavailable):
            stale.confirm()
        assert stale.peek("a").value == "1"
    assert [key for key in old.ask("KEYS", "*") if key.endswith(b":l") and old.ask("PTTL", key) < 0] == []


def test_a_standby_and_a_replica_are_read_but_not_where_reads_are_confirmed(valkeys):
    primary = valkeys()
    replica = valkeys("--replicaof", f"127.0.0.1 {primary.port}")
    with Memory(f"redis://127.0.0.1:{primary.port}?replicas=0&fresh=confirm") as memory:
        memory.session("work").set("a", "1")
        assert memory.session("work").peek("a").value == "1"
    until(lambda: replica.ask("EXISTS", "pinfold:{work}:1:h"), "the copy")
    with Memory(f"redis://127.0.0.1:{replica.port}?fresh=confirm") as memory:
        with pytest.raises(Unavailable) as error:
            memory.session("work").peek("a")
        assert error.value.code == "read_only"
    with Memory(f"redis://127.0.0.1:{replica.port}") as memory:
        assert memory.session("work").peek("a").value == "1"


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "cluster", "postgres"])
def test_every_store_takes_the_same_words_for_how_fresh_a_read_is(request, kind):
    url = "memory://" if kind == "memory" else request.getfixturevalue(f"{kind}_url")
    for option in ("fresh=confirm", "max_stale_ms=50"):
        with Memory(f"{url}?{option}") as memory:
            memory.session("work").set("a", option)
            assert memory.session("work").confirm() >= 1
            assert memory.session("work").peek("a").value == option
    for wrong in ("fresh=always", "max_stale_ms=soon", "fresh=confirm&max_stale_ms=50"):
        with pytest.raises(ConfigurationError) as error:
            open_journal(f"{url}?{wrong}")
        assert error.value.code == "bad_url"


@pytest.mark.requirement("async")
def test_a_server_that_is_asked_does_not_hold_up_an_event_loop(server):
    import asyncio
    import threading

    loop_thread = threading.get_ident()
    asked_by: set[int] = set()

    async def work(memory: Memory) -> None:
        journal = memory._journal
        for name in ("version", "read", "append"):
            inner = getattr(journal, name)
            setattr(journal, name, lambda *arguments, inner=inner: asked_by.add(threading.get_ident()) or inner(*arguments))
        session = await asyncio.to_thread(memory.async_session, "work")
        await session.set("a", "1")
        assert (await session.peek("a")).value == "1"
        claim = await session.claim("job", 60)
        waits = [asyncio.ensure_future(session.wait("job", 20)), asyncio.ensure_future(session.peek("job", wait_s=20))]
        await asyncio.sleep(0)
        await session.fulfil(claim, "done")
        assert [found.value for found in await asyncio.gather(*waits)] == ["done"] * 2

    with Memory(url_of(server)) as memory:
        asyncio.run(work(memory))
        assert loop_thread not in asked_by
        assert asked_by
