"""A session's state: a pure fold of its entries; a snapshot is that fold, and nothing decides by changing it."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold import JournalCorrupt, NewerFormat, Refused, limits
from pinfold.entry import GENESIS, Entry, encode_entry
from pinfold.state import promises as rules
from pinfold.state.session import SessionState, apply, decide_housekeep, decode_snapshot, encode_snapshot, state_hash
from pinfold.state.silo import Slot
from pinfold.testing.strategies import SMALL_KEYS, histories


def replayed(history, state: SessionState | None = None) -> SessionState:
    state = state or SessionState()
    for entry, record in history:
        apply(state, entry, record.hash)
    return state


def folded(*facts_of_entries) -> SessionState:
    """The state after entries of these facts, 1 s apart."""
    state = SessionState()
    for facts in facts_of_entries:
        entry = Entry(state.seq + 1, state.hash, (state.seq + 1) * 1_000, None, None, list(facts))
        apply(state, entry, encode_entry(entry).hash)
    return state


@pytest.mark.requirement("equal-states")
@given(histories())
def test_a_snapshot_gives_back_an_equal_state_and_its_recency(history):
    state = replayed(history)
    again = decode_snapshot(encode_snapshot(state))
    assert state_hash(again) == state_hash(state)
    assert again.recency.dump() == state.recency.dump()
    assert (again.silo.inline_bytes, again.silo.blob_bytes) == (state.silo.inline_bytes, state.silo.blob_bytes)
    assert encode_snapshot(again) == encode_snapshot(state)


@pytest.mark.requirement("equal-states", "compaction")
@given(histories(), st.data())
def test_snapshot_and_tail_equal_the_full_replay(history, data):
    cut = data.draw(st.integers(0, len(history)))
    snapshot = encode_snapshot(replayed(history[:cut]))
    assert state_hash(replayed(history[cut:], decode_snapshot(snapshot))) == state_hash(replayed(history))


@pytest.mark.requirement("equal-states")
@given(histories())
def test_what_is_derived_is_what_the_slots_say(history):
    silo = replayed(history).silo
    again = type(silo).load(silo.dump())
    assert (again.inline_bytes, again.blob_bytes, again.next_index) == (silo.inline_bytes, silo.blob_bytes, silo.next_index)
    for now_ms in (0, 2**39, 2**41):
        expired = [key for key, slot in silo.slots.items() if slot.expires_at_ms is not None and slot.expires_at_ms <= now_ms]
        assert sorted(silo.expired(now_ms)) == sorted(expired)


@pytest.mark.requirement("decide-is-pure")
@given(histories(), st.sampled_from(SMALL_KEYS), st.integers(0, 2**41), st.one_of(st.none(), st.integers(0, 99)))
def test_deciding_changes_nothing_whether_it_is_granted_or_refused(history, key, now_ms, token):
    state = replayed(history)
    before = encode_snapshot(state)
    silo, promises, recency = state.silo, state.promises, state.recency
    for decide in (
        lambda: rules.decide_claim(silo, promises, key, 1_000, "me", now_ms),
        lambda: rules.decide_set(silo, promises, recency, key, "v", now_ms + 5, now_ms),
        lambda: rules.decide_fulfil(silo, promises, recency, key, token, "v", None, now_ms),
        lambda: rules.decide_resolve(silo, promises, key, "v", now_ms),
        lambda: rules.decide_reject(silo, promises, key, token, "no", now_ms),
        lambda: rules.decide_release(silo, promises, key, token, now_ms),
        lambda: rules.decide_renew(silo, promises, key, token, 1_000, now_ms),
        lambda: rules.decide_register(silo, promises, key, None, now_ms),
        lambda: rules.decide_drop(silo, promises, SMALL_KEYS, now_ms),
        lambda: rules.decide_flush(silo, promises, now_ms),
        lambda: decide_housekeep(state, now_ms),
    ):
        with suppress(Refused):
            decide()
        assert encode_snapshot(state) == before


def test_an_entry_that_does_not_follow_is_refused_and_changes_nothing():
    state = folded([{"f": "slot.put", "k": "a", "i": 0, "v": "x"}])
    before = state_hash(state)
    for seq, last in ((3, state.hash), (1, GENESIS), (2, b"another history!")):
        with pytest.raises(JournalCorrupt):
            apply(state, Entry(seq, last, 5_000, None, None, [{"f": "slot.drop", "k": "a"}]), b"")
    assert state_hash(state) == before


@pytest.mark.requirement("unknown-facts")
def test_an_unknown_fact_is_refused_before_anything_of_its_entry_is_applied():
    state = folded([{"f": "slot.put", "k": "a", "i": 0, "v": "x"}])
    before = state_hash(state)
    with pytest.raises(NewerFormat) as newer:
        apply(state, Entry(2, state.hash, 5_000, None, None, [{"f": "slot.drop", "k": "a"}, {"f": "star.put"}]), b"")
    assert newer.value.seq == 2
    assert state_hash(state) == before


@pytest.mark.requirement("unknown-facts")
def test_unknown_optional_keys_are_kept_through_a_snapshot():
    state = folded(
        [{"f": "session.put", "created": 1, "colour": "red"}],
        [{"f": "slot.put", "k": "a", "i": 0, "v": "x", "inputs": ["f.py"]}, {"f": "promise.put", "k": "b", "s": "pending", "t": 1, "l": 9, "validity": 3}],
    )
    again = decode_snapshot(encode_snapshot(state))
    assert again.settings.extra == {"colour": "red"}
    assert again.silo.slots["a"].extra == {"inputs": ["f.py"]}
    assert again.promises.by_key["b"].extra == {"validity": 3}


def test_a_snapshot_of_another_format_or_cut_is_named():
    body = encode_snapshot(folded([{"f": "slot.put", "k": "a", "i": 0, "v": "x"}]))
    for damaged in (b"", b"\x09" + body[1:]):
        with pytest.raises(NewerFormat):
            decode_snapshot(damaged)
    for damaged in (body[:1], body[: len(body) // 2], body[:1] + b"\xc0"):
        with pytest.raises(JournalCorrupt):
            decode_snapshot(damaged)


@pytest.mark.requirement("request-id")
def test_the_latest_request_ids_are_remembered(monkeypatch):
    monkeypatch.setattr(limits, "REQUESTS_KEPT", 3)
    state = SessionState()
    for name in ("a", "b", "c", "b", "d"):
        entry = Entry(state.seq + 1, state.hash, 1_000, name, None, [{"f": "touch", "at": 1}])
        apply(state, entry, encode_entry(entry).hash)
    assert dict(state.requests) == {"c": 3, "b": 4, "d": 5}


# --- expiry and its heap ------------------------------------------------------------------------------------------


@pytest.mark.requirement("ttl")
def test_housekeeping_is_bounded_and_comes_round_to_everything():
    count = limits.HOUSEKEEP_PER_TURN * 2 + 5
    state = folded([{"f": "slot.put", "k": f"k{n}", "i": n, "v": "x", "x": 2_000 + n % 3} for n in range(count)])
    removed = []
    while facts := decide_housekeep(state, 60_000):
        assert len(facts) <= limits.HOUSEKEEP_PER_TURN
        removed += [fact["k"] for fact in facts]
        entry = Entry(state.seq + 1, state.hash, 60_000, None, None, facts)
        apply(state, entry, encode_entry(entry).hash)
    assert sorted(removed) == sorted(f"k{n}" for n in range(count))
    assert state.silo.slots == {}
    assert state.silo.expiry == []


@pytest.mark.requirement("ttl")
def test_times_that_were_replaced_do_not_pile_up_under_the_next_writes():
    state = folded([{"f": "slot.put", "k": f"k{n}", "i": n, "v": "x", "x": 2_000} for n in range(100)])
    for n in range(100):
        state.silo._put(f"k{n}", Slot(n, "x", 900_000, 0))
    assert state.silo.expiry[0][0] == 900_000  # nothing stale on top: a look at it is all that a write pays
    assert list(state.silo.expired(500_000)) == []
    for turn in range(1_000):
        state.silo._put("k1", Slot(1, "x", 900_000 + turn, 0))
    assert len(state.silo.expiry) <= 64 + 4 * len(state.silo.slots) + 1


def test_a_slot_put_twice_in_one_ms_is_removed_once():
    state = folded([{"f": "slot.put", "k": "a", "i": 0, "v": "x", "x": 2_000}, {"f": "slot.put", "k": "a", "i": 0, "v": "y", "x": 2_000}])
    assert list(state.silo.expired(3_000)) == ["a"]


# --- reading while another thread writes --------------------------------------------------------------------------


@pytest.mark.requirement("peek-order")
def test_a_look_between_a_promise_s_settling_and_its_slot_is_no_miss():
    state = folded([{"f": "promise.put", "k": "job", "s": "pending", "t": 1, "l": 90_000}])
    silo, promises = state.silo, state.promises

    class Settling(dict):
        """The promises, whose reader is overtaken by the thread that fulfils."""

        def get(self, key, default=None):
            facts = [{"f": "slot.put", "k": "job", "i": 0, "v": "done"}, {"f": "promise.put", "k": "job", "s": "resolved", "t": 1}]
            promises.by_key = dict(self)
            entry = Entry(2, state.hash, 2_000, None, None, facts)
            apply(state, entry, encode_entry(entry).hash)
            return promises.by_key.get(key, default)

    promises.by_key = Settling(promises.by_key)
    assert rules.look(silo, promises, "job", 3_000).value == "done"
