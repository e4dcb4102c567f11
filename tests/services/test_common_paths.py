"""What everyday work asks a server: nothing that looks at all sessions, however many there are."""

import re

from servers import until

from pinfold import Memory
from pinfold.journal.open import open_journal

CROWD = 1_500
"""Idle sessions beside those in use: enough that PostgreSQL prefers its indexes."""


def idle_sessions(url: str) -> None:
    from pinfold.entry import GENESIS, Entry, encode_entry

    journal = open_journal(url)
    first = encode_entry(Entry(1, GENESIS, 1_000, None, None, [{"f": "session.put", "created": 1_000}]))
    for n in range(CROWD):
        assert journal.append(f"idle-{n}", 0, GENESIS, [first], {}) is None
    journal.close()


def everyday_work(url: str) -> None:
    """Open, read, write, wait, claim, keep large values, compact by itself, end, begin anew, and close."""
    with Memory(url) as memory:
        session = memory.session("work")
        for n in range(40):
            session.set(f"k{n}", "v", ttl_s=60)
        claim = session.claim("job", 60)
        session.fulfil(claim, "done")
        assert session.wait("job", 5).value == "done"
        assert session.peek("nothing").hit is False
        session.set("large", bytes(100_000))
        session.set("large", bytes(100_001))
        session.mutate("+ CONCEPT [NEW:a] ; label=anchors")
        session.search("anchors")
        session._replica.compact()
        session.log(limit=10)
        session.status()
        memory.fork("work", "fork")
        memory.end("work")
        memory.session("work").set("a", "1")
    with Memory(url, background=False) as memory:
        assert memory.session("idle-7").keys() == []
        assert memory.session("never-seen").peek("a").hit is False
        memory.restore("work", as_name="again")


def test_redis_is_asked_for_no_list_of_keys_or_sessions(redis_url, valkey):
    idle_sessions(redis_url)
    valkey.ask("CONFIG", "RESETSTAT")
    everyday_work(redis_url)
    asked = valkey.info("commandstats")
    for name in ("keys", "scan", "sscan", "hscan", "zscan", "randomkey", "dbsize"):
        assert f"cmdstat_{name}" not in asked
    assert int(re.search(r"'calls': (\d+)", asked["cmdstat_smembers"])[1]) < 40  # of the lives of one session, and of sessions with garbage


def test_postgres_reads_no_table_from_end_to_end(postgres_url, postgres):
    import psycopg

    idle_sessions(postgres_url)
    with psycopg.connect(postgres.url, autocommit=True) as db:
        db.execute("INSERT INTO pinfold.blob SELECT id, sha256(name::bytea), 0, name::bytea FROM pinfold.session")
        db.execute("INSERT INTO pinfold.blob_ref SELECT id, false, 1, sha256(name::bytea) FROM pinfold.session")
        db.execute("INSERT INTO pinfold.snapshot SELECT id, 1, 0, last_hash, name::bytea FROM pinfold.session")
        db.execute("ANALYZE")
    with psycopg.connect(postgres.url, autocommit=True) as db:
        until(lambda: _others(db) == 0, "all connections so far to end, and to tell what they did")
        before = _rows_read(db)
        everyday_work(postgres_url)
        until(lambda: _others(db) == 0, "those of the work to end")
        read = {table: count - before[table] for table, count in _rows_read(db).items() if count != before[table]}
    assert set(read) <= {"store"}


def _others(db) -> int:
    return db.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()").fetchone()[0]


def _rows_read(db) -> dict[str, int]:
    """Return table -> rows read so far by reading it from end to end."""
    return dict(db.execute("SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = 'pinfold'").fetchall())
