"""Every backend of this build against the one contract."""

from collections.abc import Iterator

import pytest

from pinfold.journal.memory import MemoryJournal
from pinfold.journal.sqlite import SqliteJournal
from pinfold.testing.journal_contract import JournalContract, OpenJournal

pytestmark = pytest.mark.requirement("journal-contract", "blobs", "fork")


class TestMemoryJournal(JournalContract):
    has_locks = False
    has_processes = False

    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        journal = MemoryJournal()
        return lambda: journal


class TestSqliteJournal(JournalContract):
    durability = "normal"

    @pytest.fixture
    def open_journal(self, tmp_path) -> Iterator[OpenJournal]:
        opened = []

        def open_one() -> SqliteJournal:
            opened.append(SqliteJournal(str(tmp_path / "store.db"), durability=self.durability))
            return opened[-1]

        yield open_one
        for journal in opened:
            journal.close()


class TestSqliteJournalFull(TestSqliteJournal):
    durability = "full"
