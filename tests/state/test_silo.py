"""Slots, by example: exactly which facts are decided, and exactly what they come to."""

import pytest

from pinfold import limits
from pinfold.entry import Entry
from pinfold.errors import Refused
from pinfold.state.silo import PROMOTED, Recency, Silo, Slot, apply_drop, apply_put, decide_store, set_silo_size
from pinfold.state.value import Blob, Json

NOW = 1_000_000
BLOB = Blob(b"h" * 32, 50_000, "b")


def entry(at_ms=NOW, actor=None):
    return Entry(1, b"", at_ms, None, actor, [])


def put(silo, key, value="v", *, index=None, expires=None, recency=None, at_ms=NOW, actor=None, **extra):
    from pinfold.state.value import value_fields

    fact = {"f": "slot.put", "k": key, "i": silo.next_index if index is None else index, **value_fields(value), **extra}
    if expires is not None:
        fact["x"] = expires
    apply_put(silo, recency or Recency(), fact, entry(at_ms, actor))


def drop(silo, key, recency=None, **rest):
    apply_drop(silo, recency or Recency(), {"f": "slot.drop", "k": key, **rest}, entry())


def store(silo, key, value="v", *, recency=None, expires=None, now=NOW, claimed=()):
    return decide_store(silo, recency or Recency(), key, value, expires, now, lambda k: k in claimed)


def full(size, keys, **options):
    """A silo of this size that holds keys, oldest use first."""
    silo, recency = Silo(), Recency()
    set_silo_size(silo, recency, size)
    for key in keys:
        put(silo, key, recency=recency, **options)
    return silo, recency


# --- applying -------------------------------------------------------------------------------------------------------


def test_a_put_keeps_value_time_writer_expiry_and_unknown_keys():
    silo = Silo()
    put(silo, "k", "v", expires=NOW + 5, at_ms=NOW - 1, actor="me", later="kept")
    assert silo.slots == {"k": Slot(0, "v", NOW + 5, NOW - 1, "me", {"later": "kept"})}
    put(silo, "plain")
    assert silo.slots["plain"] == Slot(1, "v", None, NOW, None, None)
    assert silo.next_index == 2


def test_an_index_that_is_not_the_next_moves_the_next_only_forward():
    silo = Silo()
    put(silo, "a", index=7)
    assert silo.next_index == 8
    put(silo, "a", index=3)
    assert silo.next_index == 8


@pytest.mark.parametrize(("value", "inline", "blobs"), [("é", 2, 0), (b"abc", 3, 0), (Json(b"[1]"), 3, 0), (BLOB, 0, 50_000)])
def test_bytes_are_counted_in_and_out(value, inline, blobs):
    silo = Silo()
    put(silo, "ké", value)
    assert (silo.inline_bytes, silo.blob_bytes) == (3 + inline, blobs)
    put(silo, "ké", "xy", index=0)
    assert (silo.inline_bytes, silo.blob_bytes) == (5, 0)
    put(silo, "other", value)
    drop(silo, "ké")
    assert (silo.inline_bytes, silo.blob_bytes) == (5 + inline, blobs)
    drop(silo, "other")
    drop(silo, "never there")
    assert (silo.inline_bytes, silo.blob_bytes, silo.slots) == (0, 0, {})


def test_a_slot_lives_until_the_ms_of_its_expiry():
    silo = Silo()
    put(silo, "k", expires=NOW + 10)
    put(silo, "ever")
    assert silo.live("k", NOW + 9) is silo.slots["k"]
    assert silo.live("k", NOW + 10) is None and silo.live("k", NOW + 11) is None
    assert silo.live("ever", NOW * 9) is silo.slots["ever"]
    assert silo.live("none", NOW) is None


def test_expired_names_each_key_once_in_the_order_of_the_heap_and_no_other():
    silo = Silo()
    for n in range(10):
        put(silo, f"k{n}", expires=NOW + n)
    put(silo, "k3", index=3, expires=NOW + 100)  # its old time is still in the heap
    put(silo, "k4", index=4, expires=NOW + 4)
    put(silo, "k5", index=5)
    drop(silo, "k6")
    assert sorted(silo.expired(NOW + 7)) == ["k0", "k1", "k2", "k4", "k7"]
    assert list(silo.expired(NOW - 1)) == []
    assert list(silo.expired(NOW)) == ["k0"]
    assert sorted(silo.expired(NOW + 100)) == ["k0", "k1", "k2", "k3", "k4", "k7", "k8", "k9"]


def test_the_heap_s_top_is_always_a_time_that_holds():
    silo = Silo()
    put(silo, "a", expires=NOW + 1)
    put(silo, "b", expires=NOW + 2)
    put(silo, "a", index=0, expires=NOW + 50)
    assert silo.expiry[0] == (NOW + 2, "b")
    drop(silo, "b")
    assert silo.expiry[0] == (NOW + 50, "a")
    drop(silo, "a")
    assert silo.expiry == []


def test_the_heap_is_rebuilt_when_replaced_times_pile_up():
    silo = Silo()
    put(silo, "first", expires=NOW)  # its time stays on top and hides the others
    lengths = []
    for n in range(200):
        put(silo, "k", index=1, expires=NOW + 1 + n)
        lengths.append(len(silo.expiry))
    assert max(lengths) == 64 + 4 * 2 and min(lengths[100:]) == 2  # not later, and not so often that it costs
    assert sorted(set(silo.expired(NOW + 500))) == ["first", "k"]
    assert silo.expiry[0] == (NOW, "first")


def test_dump_and_load_give_the_same_silo():
    silo = Silo()
    set_silo_size(silo, Recency(), 9)
    put(silo, "s", "v", expires=NOW + 1, actor="me", later=1)
    put(silo, "b", b"\x00")
    put(silo, "j", Json(b"{}"))
    put(silo, "large", BLOB)
    drop(silo, "b")
    again = Silo.load(silo.dump())
    assert (again.slots, again.next_index, again.silo_size) == (silo.slots, 4, 9)
    assert (again.inline_bytes, again.blob_bytes, again.expiry) == (silo.inline_bytes, silo.blob_bytes, [(NOW + 1, "s")])
    assert list(again.slots) == ["s", "j", "large"]


# --- recency --------------------------------------------------------------------------------------------------------


def test_recency_adds_up_and_moves_used_keys_to_the_young_end():
    recency = Recency()
    recency.order.update(dict.fromkeys("abc"))
    recency.touch({"f": "touch", "at": 50, "hits": 1, "misses": 2, "joined": 3, "avoided": 4, "served": 5, "full": 6, "keys": ["a", "gone"]})
    recency.touch({"f": "touch", "at": 40, "hits": 10, "misses": 20, "joined": 30, "avoided": 40, "served": 50, "full": 60})
    recency.touch({"f": "touch"})
    assert (recency.hits, recency.misses, recency.joined, recency.avoided, recency.last_used_ms) == (11, 22, 33, 44, 50)
    assert (recency.served, recency.full) == (55, 66)
    assert list(recency.order) == ["b", "c", "a"]
    recency.evicted = 5
    again = Recency.load(recency.dump())
    assert again.dump() == recency.dump() == [["b", "c", "a"], 11, 22, 5, 33, 44, 50, {}, 55, 66]
    assert list(again.order) == ["b", "c", "a"]


def test_uses_are_counted_for_each_slot_until_it_is_promoted_or_stored_anew():
    silo, recency = Silo(), Recency()
    put(silo, "a", recency=recency)
    recency.touch({"f": "touch", "uses": {"a": 2, "b": 1}})
    recency.touch({"f": "touch", "uses": {"a": 3, "c": 4}})
    assert recency.uses == {"a": 5, "b": 1, "c": 4}
    recency.touch({"f": "touch", "promoted": ["a", "d"]})
    recency.touch({"f": "touch", "uses": {"a": 7, "b": 1, "d": 1}})
    assert recency.uses == {"a": PROMOTED, "b": 2, "c": 4, "d": PROMOTED}
    assert Recency.load(recency.dump()).uses == recency.uses
    put(silo, "a", recency=recency, index=0)
    drop(silo, "b", recency)
    put(silo, "new", recency=recency)
    drop(silo, "none", recency)
    assert recency.uses == {"c": 4, "d": PROMOTED}


@pytest.mark.parametrize("known", [7, 8, 10])
def test_recency_of_before_something_was_counted_is_read(known):
    recency = Recency()
    recency.touch({"f": "touch"})
    assert recency.dump() == [[], 0, 0, 0, 0, 0, 0, {}, 0, 0]
    assert Recency.load(recency.dump()[:known]).dump() == recency.dump()


def test_order_is_kept_only_where_there_is_a_size():
    silo, recency = Silo(), Recency()
    put(silo, "a", recency=recency)
    put(silo, "b", recency=recency)
    assert list(recency.order) == []
    set_silo_size(silo, recency, 3)
    assert (silo.silo_size, list(recency.order)) == (3, ["a", "b"])
    put(silo, "c", recency=recency)
    put(silo, "a", recency=recency, index=0)
    assert list(recency.order) == ["b", "c", "a"]
    drop(silo, "c", recency)
    drop(silo, "b", recency, why="evicted")
    assert (list(recency.order), recency.evicted) == (["a"], 1)
    drop(silo, "a", recency, why="expired")
    assert recency.evicted == 1
    drop(silo, "never there", recency, why="evicted")
    assert recency.evicted == 2
    put(silo, "left", recency=recency)
    set_silo_size(silo, recency, None)
    assert (silo.silo_size, list(recency.order)) == (None, [])


# --- deciding -------------------------------------------------------------------------------------------------------


def test_a_new_key_takes_the_next_index_and_an_update_keeps_its_own():
    silo = Silo()
    assert store(silo, "a") == ([{"f": "slot.put", "k": "a", "i": 0, "v": "v"}], 0, [])
    put(silo, "a")
    put(silo, "b")
    assert store(silo, "a", "w") == ([{"f": "slot.put", "k": "a", "i": 0, "v": "w"}], 0, [])
    assert store(silo, "c", expires=NOW + 3) == ([{"f": "slot.put", "k": "c", "i": 2, "v": "v", "x": NOW + 3}], 2, [])
    put(silo, "short", expires=NOW)
    assert store(silo, "short")[1] == 3  # it is over: a new slot, a new index


def test_a_full_silo_evicts_its_least_recently_used_and_says_so():
    silo, recency = full(3, "abc")
    facts, index, evicted = store(silo, "d", recency=recency)
    assert facts == [{"f": "slot.drop", "k": "a", "why": "evicted"}, {"f": "slot.put", "k": "d", "i": 3, "v": "v"}]
    assert (index, evicted) == (3, ["a"])
    assert store(silo, "b", recency=recency)[2] == []  # an update needs no room
    silo.silo_size = 4
    assert store(silo, "d", recency=recency)[2] == []
    silo.silo_size = 1
    assert store(silo, "d", recency=recency)[2] == ["a", "b", "c"]


def test_claimed_keys_are_no_victims_and_no_victim_is_better_than_a_wrong_one():
    silo, recency = full(3, "abc")
    assert store(silo, "d", recency=recency, claimed="a")[2] == ["b"]
    assert store(silo, "d", recency=recency, claimed="abc")[2] == []


def test_what_expired_makes_room_before_anything_live():
    silo, recency = full(3, "ab")
    put(silo, "old", recency=recency, expires=NOW)
    assert store(silo, "d", recency=recency)[2] == []
    put(silo, "c", recency=recency)  # four slots, one of them over
    assert store(silo, "d", recency=recency)[2] == ["a"]
    assert store(silo, "old", recency=recency)[2] == ["a"]  # its own dead slot makes no room: it is replaced


def test_what_expired_is_no_victim_and_counts_only_as_far_as_it_leaves_in_this_turn(monkeypatch):
    silo, recency = full(3, ["old"], expires=NOW)
    for key in ("older", "a", "b"):
        put(silo, key, recency=recency, expires=NOW if key == "older" else None)
    assert store(silo, "d", recency=recency)[2] == []  # two over, and two that leave
    monkeypatch.setattr(limits, "HOUSEKEEP_PER_TURN", 1)
    assert store(silo, "d", recency=recency)[2] == ["older"]  # one leaves: the least recently used of the others goes
    put(silo, "c", recency=recency)
    assert store(silo, "d", recency=recency)[2] == ["older", "a"]


def test_what_expired_stays_for_housekeeping_where_its_room_is_not_needed(monkeypatch):
    silo = Silo()
    put(silo, "a", "x" * 9, expires=NOW)
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 20)
    for value in ("x" * 9, BLOB):
        (fact,), _, _ = store(silo, "b", value)
        assert fact["k"] == "b"


def test_the_victims_and_what_expired_leave_with_one_entry(monkeypatch):
    silo, recency = full(2, "ab", value="x" * 4)
    put(silo, "old", "x" * 4, recency=recency, expires=NOW)
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 12)
    facts, _, evicted = store(silo, "c", "x" * 6, recency=recency)
    assert evicted == ["a"]
    assert [(fact["k"], fact.get("why")) for fact in facts] == [("a", "evicted"), ("old", "expired"), ("c", None)]


def test_the_limit_of_inline_bytes_is_exact_and_counts_what_leaves(monkeypatch):
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 20)
    silo = Silo()
    put(silo, "a", "x" * 9)
    assert store(silo, "b", "x" * 9)[1] == 1
    with pytest.raises(Refused) as refused:
        store(silo, "b", "x" * 10)
    assert (refused.value.code, refused.value.fields["limit_bytes"]) == ("silo_full", 20)
    assert "21 bytes" in refused.value.message and "SILO_INLINE_BYTES is 20" in refused.value.message
    assert store(silo, "a", "x" * 19)[1] == 0  # its own old value goes
    with pytest.raises(Refused):
        store(silo, "a", "x" * 20)


def test_what_expired_leaves_with_the_entry_that_needs_its_room(monkeypatch):
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 20)
    silo = Silo()
    put(silo, "a", "x" * 9, expires=NOW)
    put(silo, "b", "x" * 4)
    facts, index, _ = store(silo, "c", "x" * 14)
    assert facts == [{"f": "slot.drop", "k": "a", "why": "expired"}, {"f": "slot.put", "k": "c", "i": 2, "v": "x" * 14}]
    assert index == 2
    facts, index, _ = store(silo, "a", "x" * 14)  # the dead slot of the key itself is replaced, not dropped
    assert facts == [{"f": "slot.put", "k": "a", "i": 2, "v": "x" * 14}]
    with pytest.raises(Refused):
        store(silo, "c", "x" * 15)


def test_a_victim_s_bytes_count_as_room(monkeypatch):
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 20)
    silo, recency = full(2, "ab", value="x" * 8)
    assert store(silo, "c", "x" * 10, recency=recency)[2] == ["a"]
    with pytest.raises(Refused):
        store(silo, "c", "x" * 11, recency=recency)


def test_the_limit_of_large_values_is_exact(monkeypatch):
    monkeypatch.setattr(limits, "BLOB_BYTES_PER_SESSION", 100_000)
    silo = Silo()
    put(silo, "a", BLOB)
    assert store(silo, "b", BLOB)[1] == 1
    with pytest.raises(Refused) as refused:
        store(silo, "b", Blob(b"i" * 32, 50_001, "s"))
    assert "BLOB_BYTES_PER_SESSION is 100000" in refused.value.message and "100001 bytes" in refused.value.message
    assert "silo_size" in refused.value.hint and "ttl" in refused.value.hint
    assert store(silo, "a", Blob(b"i" * 32, 100_000, "s"))[1] == 0
    assert store(silo, "b", "small")[1] == 1


def test_a_small_value_takes_nothing_of_the_room_for_large_ones(monkeypatch):
    monkeypatch.setattr(limits, "BLOB_BYTES_PER_SESSION", 50_000)
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 20)
    silo = Silo()
    put(silo, "full", BLOB)
    put(silo, "over", "x" * 9, expires=NOW)
    assert store(silo, "a", "x" * 15)[1] == 2


def test_a_large_value_s_fact_carries_its_hash_size_and_kind():
    (fact,), _, _ = store(Silo(), "k", BLOB)
    assert fact == {"f": "slot.put", "k": "k", "i": 0, "h": b"h" * 32, "n": 50_000, "y": "b"}
