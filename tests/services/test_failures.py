"""What can be wrong with a server or its URL: each a named error, RAM equal to the journal, nothing half applied."""

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Postgres, Valkey, free_port, until

from pinfold import ConfigurationError, Memory, NewerFormat, PinfoldError, Refused, Unavailable
from pinfold.fold import load_state
from pinfold.journal.open import migrate_store, open_journal
from pinfold.state.session import state_hash

pytestmark = pytest.mark.requirement("damage")

HASTY = "timeout_ms=400&retry_ms=600"


def refused(url: str, kind: type[PinfoldError]) -> PinfoldError:
    """Return the error that a first look at a store raises."""
    with pytest.raises(kind) as error:
        journal = open_journal(url)
        try:
            journal.read("s", 0)
        finally:
            journal.close()
    assert error.value.hint
    return error.value


def agrees(memory: Memory, name: str = "work") -> bool:
    """Return whether RAM equals what the journal holds."""
    session = memory.session(name)
    return session.state_hash() == state_hash(load_state(memory._journal, name))


@pytest.fixture
def valkeys(redis_driver: None, tmp_path: Path) -> Iterator[Callable[..., Valkey]]:
    """A function that starts a Valkey with these options; all are stopped after the test."""
    started: list[Valkey] = []

    def start(*options: str) -> Valkey:
        started.append(Valkey(tmp_path, *options))
        return started[-1].start()

    yield start
    for server in started:
        if server.process is not None:
            server.signal(signal.SIGCONT)
        server.kill()


# --- URLs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://:6379",
        "redis://host:port",
        "redis://host/notes",
        "redis://one:1,two:2",
        "redis://host?colour=red",
        "redis://host?replicas=many",
        "redis://host?durability=eternal",
        "redis+cluster://host:1/3",
        "redis://host?prefix=",
        "redis://host?prefix=a{b}",
        "postgresql://host",
        "postgresql://host/",
        "postgresql://host:port/db",
        "postgresql://host/db?colour=red",
        "postgresql://host/db?schema=Robert'); DROP",
        "mysql://host/db",
    ],
)
def test_a_wrong_url_is_named_before_anything_is_asked(url, redis_driver, postgres_driver):
    with pytest.raises(ConfigurationError) as error:
        open_journal(url)
    assert error.value.code == "bad_url"
    assert error.value.hint


def test_a_password_is_never_shown(redis_driver, postgres_driver):
    for url in ("redis://app:se%2Fcret@host:1", "postgresql://app:se%2Fcret@host:1/db"):
        journal = open_journal(url)
        assert "cret" not in journal.url
        assert "***" in journal.url
        journal.close()
        for wrong in ("fresh=always", "max_stale_ms=soon", "colour=red", "nonsense"):
            with pytest.raises(ConfigurationError) as error:
                open_journal(f"{url}?{wrong}")
            assert "cret" not in str(error.value)


@pytest.mark.parametrize(("url", "driver", "module"), [("redis://host", "redis", "redis"), ("postgresql://host/db", "psycopg", "postgres")])
def test_a_missing_extra_is_named(monkeypatch, url, driver, module):
    for name in [name for name in sys.modules if name.partition(".")[0] == driver or name.startswith(f"pinfold.journal.{module}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ConfigurationError) as error:
        open_journal(url)
    assert error.value.code == "missing_extra"
    assert f"pinfold[{module}]" in error.value.hint


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}", "redis+cluster://127.0.0.1:{port}", "postgresql://app@127.0.0.1:{port}/postgres"])
def test_a_server_that_is_down_is_unavailable_and_nothing_may_have_happened(url, redis_driver, postgres_driver):
    error = refused(f"{url.format(port=free_port())}?{HASTY}", Unavailable)
    assert (error.code, error.maybe_applied) == ("server_down", False)


def test_something_else_that_answers_is_no_redis(redis_driver):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        error = refused(f"redis://127.0.0.1:{server.getsockname()[1]}?{HASTY}", ConfigurationError)
        server.shutdown(socket.SHUT_RDWR)
    assert error.code == "wrong_server"


# --- Redis --------------------------------------------------------------------------------------------------------


def test_redis_a_wrong_or_missing_password_is_named(valkeys):
    server = valkeys("--requirepass", "right")
    for login in ("", "default:wrong@"):
        assert refused(f"redis://{login}127.0.0.1:{server.port}", ConfigurationError).code == "wrong_password"
    with Memory(f"redis://:right@127.0.0.1:{server.port}") as memory:
        assert memory.session("work").set("a", "1").index == 0


def test_redis_the_least_privileges_of_the_page_are_enough_and_less_is_named(valkeys):
    server = valkeys()
    page = (Path(__file__).parents[2] / "docs" / "design" / "fleet.md").read_text(encoding="utf-8")
    words = page.partition("ACL SETUSER ")[2].partition("\n")[0].split()
    server.ask("ACL", "SETUSER", *words)
    with Memory(f"redis://pinfold_app:password@127.0.0.1:{server.port}") as memory:
        session = memory.session("work")
        session.set("a", "1")
        session.set("large", bytes(100_000))
        session._replica.compact()
        session.forget("large")
        assert session.wait("a", 1).value == "1"
        memory.end("work")
        memory.compact()
    server.ask("ACL", "SETUSER", *words, "-@scripting")
    with Memory(f"redis://pinfold_app:password@127.0.0.1:{server.port}") as memory:
        with pytest.raises(ConfigurationError) as error:
            memory.session("other").set("a", "1")
        assert error.value.code == "no_permission"


def test_redis_an_old_server_a_newer_store_and_a_cluster_by_a_plain_url_are_named(redis_url, valkey, cluster, monkeypatch):
    from pinfold.journal import redis as module

    assert refused(f"redis://127.0.0.1:{cluster.nodes[0].port}", ConfigurationError).code == "is_cluster"
    assert refused(redis_url.replace("redis:", "redis+cluster:"), ConfigurationError).code == "not_a_cluster"
    with monkeypatch.context() as patch:
        patch.setattr(module, "VERSION", (99, 0))
        assert refused(redis_url, ConfigurationError).code == "wrong_version"
    valkey.ask("HSET", "pinfold:{store}", "format", 99)
    assert refused(redis_url, NewerFormat).code == "newer_format"


def test_redis_a_server_that_may_evict_memory_is_refused(valkeys):
    server = valkeys("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    assert refused(f"redis://127.0.0.1:{server.port}", ConfigurationError).code == "evicting"


def test_redis_full_durability_needs_an_append_only_file(valkeys):
    plain, careful = valkeys(), valkeys("--appendonly", "yes", "--appendfsync", "always")
    assert refused(f"redis://127.0.0.1:{plain.port}?durability=full", ConfigurationError).code == "no_aof"
    with Memory(f"redis://127.0.0.1:{careful.port}?durability=full") as memory:
        session = memory.session("work")
        session.set("a", "1")
        careful.kill()
        careful.start()
        assert session.peek("a").value == "1"
        session.set("b", "2")
        assert agrees(memory)


def test_redis_full_memory_is_named_and_writes_nothing(valkeys):
    server = valkeys()
    with Memory(f"redis://127.0.0.1:{server.port}") as memory:
        session = memory.session("work")
        session.set("first", "fits")
        server.ask("CONFIG", "SET", "maxmemory", "1")
        for value in ("small", bytes(100_000)):
            with pytest.raises(Unavailable) as full:
                session.set("k", value)
            assert (full.value.code, full.value.maybe_applied) == ("store_full", False)
        assert session.peek("first").value == "fits"
        assert agrees(memory)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        session.set("k", "now")
        assert agrees(memory)


def test_redis_a_read_only_replica_is_read_and_refuses_writes(valkeys):
    primary = valkeys()
    replica = valkeys("--replicaof", f"127.0.0.1 {primary.port}")
    with Memory(f"redis://127.0.0.1:{primary.port}?replicas=0") as memory:
        memory.session("work").set("a", "1")
        until(lambda: replica.ask("EXISTS", "pinfold:{work}:1:h"), "the copy")
    with Memory(f"redis://127.0.0.1:{replica.port}") as memory:
        session = memory.session("work")
        assert session.peek("a").value == "1"
        with pytest.raises(Unavailable) as error:
            session.set("a", "2")
        assert (error.value.code, error.value.maybe_applied) == ("read_only", False)


def test_redis_a_server_that_stops_answering_mid_turn_may_have_written_and_a_retry_writes_once(valkeys):
    server = valkeys()
    with Memory(f"redis://127.0.0.1:{server.port}?{HASTY}") as memory:
        session = memory.session("work")
        session.set("a", "1")
        server.signal(signal.SIGSTOP)
        with pytest.raises(Unavailable) as lost:
            session.set("b", "2", request_id="r1")
        assert lost.value.maybe_applied is True
        server.signal(signal.SIGCONT)
        session.set("b", "2", request_id="r1")
        assert agrees(memory)
        assert len(session.log(limit=100)) == 2


def test_redis_a_server_killed_and_restarted_is_found_again_and_lost_history_is_loaded_anew(valkeys):
    server = valkeys()
    with Memory(f"redis://127.0.0.1:{server.port}") as memory:
        session = memory.session("work")
        session.set("a", "1")
        server.kill()
        server.start()  # it kept nothing
        assert session.peek("a").hit is False
        with pytest.raises(Refused) as gone:  # who worked on in it is told; who opens it begins anew
            session.set("b", "2")
        assert gone.value.code == "session_ended"
        memory.session("work").set("b", "2")
        assert memory.session("work").keys() == ["b"]
        assert agrees(memory)


def test_redis_what_no_replica_has_is_neither_acknowledged_nor_applied_by_readers(valkeys):
    primary = valkeys()
    replica = valkeys("--replicaof", f"127.0.0.1 {primary.port}")
    until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to follow")
    url = f"redis://127.0.0.1:{primary.port}?wait_ms=150&{HASTY}"
    with Memory(url) as memory, Memory(url) as other:
        session, reader = memory.session("work"), other.session("work")
        session.set("a", "1")
        assert memory._journal.replicas == 1
        assert reader.peek("a").value == "1"
        replica.signal(signal.SIGSTOP)
        with pytest.raises(Unavailable) as unsure:
            session.set("b", "2", request_id="r1")
        assert (unsure.value.code, unsure.value.maybe_applied) == ("unconfirmed", True)
        with pytest.raises(Unavailable):
            reader.peek("b")
        replica.signal(signal.SIGCONT)
        until(lambda: _settles(lambda: session.set("b", "2", request_id="r1")), "the write to be confirmed")
        assert reader.peek("b").value == "2"
        assert len(session.log(limit=100)) == 2
        assert agrees(memory)
        assert agrees(other)
    replica.kill()
    with Memory(url) as memory:  # a store that had replicas goes on asking for one
        with pytest.raises(Unavailable) as alone:
            memory.session("work").set("c", "3")
        assert alone.value.code == "unconfirmed"
    with Memory(f"{url}&replicas=0") as memory:
        memory.session("other").set("c", "3")
        assert any("replicas=0" in note for note in memory._journal.notes)


def _settles(write: Callable[[], object]) -> bool:
    try:
        write()
    except Unavailable:
        return False
    return True


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


@pytest.fixture
def own_postgres(postgres_driver: None, postgres_place: Path) -> Iterator[Postgres]:
    """A migrated PostgreSQL for one test, to be stopped and broken."""
    server = Postgres(postgres_place / f"own-{free_port()}", "fsync=off").create().start()
    migrate_store(server.url)
    yield server
    if server.process is not None:
        server.signal(signal.SIGCONT)
    server.stop(signal.SIGQUIT)


@pytest.fixture
def admin(postgres: Postgres, postgres_url: str) -> Iterator:
    """A connection of the superuser to the shared PostgreSQL."""
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as db:
        yield db


def test_postgres_a_wrong_password_or_database_is_named(postgres_driver, postgres_place):
    server = Postgres(postgres_place / "secret", auth="scram-sha-256").create().start()
    try:
        address = f"127.0.0.1:{server.port}"
        for login in ("app", "app:wrong", "stranger:wrong"):
            assert refused(f"postgresql://{login}@{address}/postgres", ConfigurationError).code == "wrong_password"
        assert refused(f"postgresql://app:right@{address}/nowhere", ConfigurationError).code == "no_database"
        assert refused(f"postgresql://app:right@{address}/postgres", ConfigurationError).code == "not_migrated"
        assert migrate_store(f"postgresql://app:right@{address}/postgres") != []
        assert migrate_store(f"postgresql://app:right@{address}/postgres") == []
    finally:
        server.stop()


def test_postgres_an_old_server_and_a_newer_store_are_named(postgres_url, admin, monkeypatch):
    from pinfold.journal import postgres_link

    with monkeypatch.context() as patch:
        patch.setattr(postgres_link, "VERSION", 990_000)
        assert refused(postgres_url, ConfigurationError).code == "wrong_version"
    admin.execute("UPDATE pinfold.store SET format = 99")
    assert refused(postgres_url, NewerFormat).code == "newer_format"


def test_postgres_a_read_only_server_and_a_full_disk_write_nothing(postgres_url, admin):
    with Memory(postgres_url) as memory:
        session = memory.session("work")
        session.set("a", "1")
        admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        try:
            with Memory(postgres_url) as reader:
                assert reader.session("work").peek("a").value == "1"
                with pytest.raises(Unavailable) as error:
                    reader.session("work").set("a", "2")
                assert (error.value.code, error.value.maybe_applied) == ("read_only", False)
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        admin.execute(
            "CREATE FUNCTION pinfold.full() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
        )
        admin.execute("CREATE TRIGGER full_disk BEFORE INSERT ON pinfold.entry EXECUTE FUNCTION pinfold.full()")
        for value in ("small", bytes(100_000)):
            with pytest.raises(Unavailable) as error:
                session.set("b", value)
            assert (error.value.code, error.value.maybe_applied) == ("disk_full", False)
        assert agrees(memory)
        admin.execute("DROP TRIGGER full_disk ON pinfold.entry")
        session.set("b", "2")
        assert agrees(memory)


def test_postgres_the_least_privileges_of_the_page_are_enough_and_a_reader_may_only_read(postgres, postgres_url, admin):
    page = (Path(__file__).parents[2] / "docs" / "design" / "fleet.md").read_text(encoding="utf-8")
    grants = page.partition("```sql\n")[2].partition("```")[0]
    for role in ("pinfold_app", "pinfold_reader"):
        if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")
    admin.execute(grants)
    address = f"127.0.0.1:{postgres.port}/postgres"
    with Memory(f"postgresql://pinfold_app@{address}") as memory:
        session = memory.session("work")
        session.set("a", "1")
        session.set("large", bytes(100_000))
        session._replica.compact()
        session.forget("large")
        memory.end("work")
        memory.compact()
    with Memory(f"postgresql://pinfold_app@{address}") as memory:
        memory.session("read").set("a", "1")
    with Memory(f"postgresql://pinfold_reader@{address}") as memory:
        session = memory.session("read")
        assert session.peek("a").value == "1"
        with pytest.raises(ConfigurationError) as error:
            session.set("a", "2")
        assert error.value.code == "no_permission"


def test_postgres_dropped_connections_and_a_crash_are_got_over_without_loss(own_postgres):
    import psycopg

    with Memory(own_postgres.url) as memory:
        session = memory.session("work")
        session.set("a", "1")
        with psycopg.connect(own_postgres.url, autocommit=True) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pinfold'")
        session.set("b", "2")
        own_postgres.stop(signal.SIGQUIT)
        own_postgres.start()
        session.set("c", "3")
        assert session.keys() == ["a", "b", "c"]
        assert agrees(memory)


def test_postgres_a_server_that_stops_answering_mid_turn_may_have_written_and_a_retry_writes_once(own_postgres):
    import psycopg

    with Memory(f"{own_postgres.url}?{HASTY}") as memory:
        session = memory.session("work")
        session.set("a", "1")
        with psycopg.connect(own_postgres.url, autocommit=True) as db:
            row = db.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'pinfold' LIMIT 1").fetchone()
        assert row is not None
        import os

        os.kill(row[0], signal.SIGSTOP)  # the one backend that would answer; the pool meanwhile goes round it
        own_postgres.signal(signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable) as lost:
                session.set("b", "2", request_id="r1")
            assert lost.value.maybe_applied is True
        finally:
            os.kill(row[0], signal.SIGCONT)
            own_postgres.signal(signal.SIGCONT)
        session.set("b", "2", request_id="r1")
        assert agrees(memory)
        assert len(session.log(limit=100)) == 2


@pytest.mark.requirement("wake-up")
def test_postgres_where_notifications_do_not_arrive_waiting_still_ends(postgres_url, monkeypatch):
    from pinfold.journal import postgres_link

    monkeypatch.setattr(postgres_link.Listener, "_note", lambda self, session: None)  # as behind a pooler in transaction mode
    with Memory(postgres_url) as memory, Memory(postgres_url) as other:
        claim = memory.session("work").claim("k", lease_s=60)
        woken: list[object] = []
        thread = threading.Thread(target=lambda: woken.append(other.session("work").wait("k", 20)))
        thread.start()
        memory.session("work").fulfil(claim, "done")
        thread.join(20)
        assert [outcome.value for outcome in woken] == ["done"]


def test_a_reservation_that_comes_and_goes_beside_an_append_is_never_taken_for_a_conflict(postgres_url):
    """Between the statement that finds a place reserved and the one that asks why, the reservation may be given back."""
    import psycopg

    from pinfold.entry import GENESIS, Record, hash_of

    done = threading.Event()

    def come_and_go() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as db:
            while not done.is_set():
                db.execute("UPDATE pinfold.session SET reserved_for = '\\x01', reserved_until_ms = 9000000000000")
                db.execute("UPDATE pinfold.session SET reserved_for = NULL, reserved_until_ms = 0")

    journal = open_journal(postgres_url)
    others = [threading.Thread(target=come_and_go) for _ in range(3)]
    last = Record(1, hash_of(b"1"), b"1")
    try:
        assert journal.append("work", 0, GENESIS, [last], {}) is None
        for other in others:
            other.start()
        for seq in range(2, 300):
            body = str(seq).encode()
            record = Record(seq, hash_of(body), body)
            assert journal.append("work", last.seq, last.hash, [record], {}) is None
            last = record
    finally:
        done.set()
        for other in others:
            other.join(60)
        journal.close()
