"""SIGKILL at random moments of writing: what was acknowledged stays, and everybody agrees.

PINFOLD_KILLS sets how many; the default fits a test run, a soak asks for 1,000.
"""

import os
import random
from itertools import pairwise

import pytest
import worker

from pinfold.entry import decode_entry
from pinfold.fold import load_state
from pinfold.journal.sqlite import SqliteJournal
from pinfold.state.session import SessionState, apply, state_hash
from pinfold.state.value import Blob

KILLS = int(os.environ.get("PINFOLD_KILLS", "100"))
SEED = int(os.environ.get("PINFOLD_SEED", "20261130"))
WRITERS = 4


@pytest.mark.requirement("no-acknowledged-write-lost", "processes", "equal-states", "no-gap")
def test_random_kills_during_writes_lose_no_acknowledged_write(start, sqlite_url, tmp_path):
    dice = random.Random(SEED)
    acknowledged: set[str] = set()
    writers = [start(worker.write, sqlite_url, str(number)) for number in range(WRITERS)]
    for kill in range(KILLS):
        place = dice.randrange(WRITERS)
        victim = writers[place]
        for _ in range(dice.randint(1, 12)):  # killed after so many answers, wherever it then is
            acknowledged.add(victim.next()["ok"])
        acknowledged.update(event["ok"] for event in victim.kill())
        writers[place] = start(worker.write, sqlite_url, str(WRITERS + kill))
    for writer in writers:
        acknowledged.update(event["ok"] for event in writer.kill())

    journal = SqliteJournal(str(tmp_path / "store.db"))
    records = journal.read("soak", 0)
    entries = [decode_entry(record) for record in records]
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert all(later.prev_hash == earlier.hash for earlier, later in zip(records, entries[1:], strict=False))
    assert all(earlier.at_ms <= later.at_ms for earlier, later in pairwise(entries))
    written = {fact["v"] for entry in entries for fact in entry.facts if fact["f"] == "slot.put" and "v" in fact}
    assert acknowledged - written == set()
    assert len(acknowledged) > KILLS
    replayed = SessionState()
    for entry, record in zip(entries, records, strict=True):
        apply(replayed, entry, record.hash)
    assert state_hash(load_state(journal, "soak")) == state_hash(replayed)
    for slot in replayed.silo.slots.values():
        if isinstance(slot.value, Blob):
            assert len(journal.get_blob("soak", slot.value.sha256)) == slot.value.size
    journal.close()

    readers = [start(worker.state, sqlite_url) for _ in range(WRITERS)]
    for reader in readers:
        assert reader.next() == {"ready": True}
        reader.go()
    expected = {"ram": state_hash(replayed), "disk": state_hash(replayed), "seq": len(entries)}
    assert [reader.next() for reader in readers] == [expected] * WRITERS
