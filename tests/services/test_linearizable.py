"""Claims and compare-and-append on one key are linearizable on every backend: recorded histories, checked."""

import pytest

from pinfold import Memory
from pinfold.entry import GENESIS
from pinfold.journal.open import open_journal
from pinfold.testing.journal_contract import run_threads
from pinfold.testing.linearize import Recorder, claimable, explains, register
from pinfold.testing.workloads import record_appends, record_claims

pytestmark = pytest.mark.requirement("one-winner")


@pytest.fixture(params=["sqlite", "redis", "cluster", "cluster?fresh=confirm", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store of each kind in turn."""
    kind, mark, options = request.param.partition("?")
    return f"{request.getfixturevalue(f'{kind}_url')}{mark}{options}"


def test_compare_and_append_and_reads_of_one_journal_are_linearizable(url):
    recorder = Recorder()
    journals = [open_journal(url) for _ in range(4)]
    run_threads([lambda j=j, n=n: record_appends(recorder, j, f"w{n}", 15) for n, j in enumerate(journals)])
    for journal in journals:
        journal.close()
    assert explains(recorder.history, register, GENESIS)
    assert sum(1 for call in recorder.history if call.asked[0] == "cas" and call.answered is True) >= 15


def test_claims_releases_and_peeks_of_one_key_are_linearizable(url):
    recorder = Recorder()
    memories = [Memory(url) for _ in range(4)]
    sessions = [memory.session("work") for memory in memories]
    run_threads([lambda s=s, n=n: record_claims(recorder, s, f"w{n}", 12) for n, s in enumerate(sessions)])
    for memory in memories:
        memory.close()
    assert explains(recorder.history, claimable, ("free",))
    assert any(call.answered == "won" for call in recorder.history)
