"""Redis, a cluster with replicas, and PostgreSQL, also behind a transaction pooler, against the one contract."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from servers import Pgbouncer

from pinfold import Memory, Session
from pinfold.journal.base import Journal
from pinfold.journal.open import open_journal as open_url
from pinfold.testing.journal_contract import JournalContract, OpenJournal, run_threads


def opener(url: str) -> Iterator[OpenJournal]:
    opened: list[Journal] = []

    def open_one() -> Journal:
        opened.append(open_url(url))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()


class TestRedisJournal(JournalContract):
    has_locks = False

    @pytest.fixture
    def open_journal(self, redis_url: str) -> Iterator[OpenJournal]:
        yield from opener(redis_url)


class TestRedisClusterJournal(JournalContract):
    has_locks = False

    @pytest.fixture
    def open_journal(self, cluster_url: str) -> Iterator[OpenJournal]:
        yield from opener(cluster_url)


class TestPostgresJournal(JournalContract):
    has_locks = False

    @pytest.fixture
    def open_journal(self, postgres_url: str) -> Iterator[OpenJournal]:
        yield from opener(postgres_url)


class TestPostgresJournalBehindPgbouncer(JournalContract):
    has_locks = False

    @pytest.fixture
    def open_journal(self, postgres_url: str, pgbouncer: Pgbouncer) -> Iterator[OpenJournal]:
        yield from opener(pgbouncer.url)


class Swapped(deque[Any]):
    """A pool that hands out its oldest connection, bare of all that a session may have left there: what any pooler might do."""

    def pop(self) -> Any:  # type: ignore[override]
        return self.popleft()

    def append(self, connection: Any) -> None:
        connection.execute("DISCARD ALL")
        super().append(connection)


class TestPostgresJournalOnSwappedConnections(JournalContract):
    has_locks = False

    @pytest.fixture
    def open_journal(self, postgres_url: str) -> Iterator[OpenJournal]:
        opened: list[Any] = []

        def open_one() -> Journal:
            journal: Any = open_url(postgres_url)
            opened.append(journal)
            journal._link._idle = Swapped()
            for _ in range(3):
                journal._link._idle.append(journal._link._pooled())
            return journal

        yield open_one
        for journal in opened:
            journal.close()


@pytest.mark.requirement("wake-up")
def test_behind_a_pooler_who_waits_polls_and_is_woken(postgres_url: str, pgbouncer: Pgbouncer) -> None:
    with Memory(pgbouncer.url) as memory, Memory(pgbouncer.url) as other:
        ours, theirs = memory.session("work"), other.session("work")
        for key in ("a", "b", "c"):
            claim = ours.claim(key, lease_s=60)
            found: list[Any] = []
            run_threads([partial(_note_value, found, theirs, key), partial(ours.fulfil, claim, "done")])
            assert found == ["done"]
        assert not other._journal._listener.hears  # type: ignore[attr-defined]


def _note_value(found: list[Any], session: Session, key: str) -> None:
    found.append(session.wait(key, 20).value)
