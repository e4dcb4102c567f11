"""Redis, a cluster with replicas, and PostgreSQL against the one contract."""

from collections.abc import Iterator

import pytest

from pinfold.journal.base import Journal
from pinfold.journal.open import open_journal as open_url
from pinfold.testing.journal_contract import JournalContract, OpenJournal


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
