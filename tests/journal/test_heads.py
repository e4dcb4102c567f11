"""The version of a head that nobody counts: when it moves, and how long one look serves."""

from types import SimpleNamespace

import pytest

from pinfold.entry import GENESIS
from pinfold.journal import heads as module
from pinfold.journal.heads import Heads

pytestmark = pytest.mark.requirement("freshness")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A monotonic clock that stands still until `now_s` is set."""
    found = SimpleNamespace(now_s=1_000.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now_s))
    return found


def test_the_version_moves_with_what_others_left_and_not_with_ones_own(clock):
    heads = Heads(0)
    first = heads.looked("s", None, clock.now_s)
    assert heads.looked("s", None, clock.now_s) == first
    heads.appended("s", GENESIS, b"mine", clock.now_s)
    assert heads.looked("s", b"mine", clock.now_s) == first
    second = heads.looked("s", b"theirs", clock.now_s)
    assert second != first
    heads.appended("s", b"not theirs", b"mine", clock.now_s)  # somebody was in between
    assert heads.looked("s", b"mine", clock.now_s) not in (first, second)


def test_a_look_serves_for_max_stale_ms_and_an_append_is_one(clock):
    heads = Heads(500)
    assert heads.recent("s") is None
    version = heads.looked("s", b"a", clock.now_s)
    clock.now_s += 0.499
    assert heads.recent("s") == version
    assert heads.recent("t") is None
    clock.now_s += 0.001
    assert heads.recent("s") is None
    heads.appended("s", b"a", b"b", clock.now_s)
    clock.now_s += 0.499
    assert heads.recent("s") == version
    heads.appended("s", b"z", b"c", clock.now_s)  # behind what was seen: says nothing
    clock.now_s += 0.001
    assert heads.recent("s") is None


def test_a_look_counts_from_when_it_was_asked_for(clock):
    heads = Heads(500)
    asked_s = clock.now_s
    clock.now_s += 0.4  # a slow answer
    heads.looked("s", b"a", asked_s)
    clock.now_s += 0.1
    assert heads.recent("s") is None


def test_without_max_stale_ms_every_read_looks(clock):
    heads = Heads(0)
    heads.looked("s", b"a", clock.now_s)
    assert heads.recent("s") is None
