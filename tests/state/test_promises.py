"""Promises, by example: exactly which facts are decided, which refusals, and what they come to."""

import pytest

from pinfold import limits
from pinfold.entry import Entry
from pinfold.errors import Refused
from pinfold.state import outcomes
from pinfold.state import promises as rules
from pinfold.state.promises import PENDING, REJECTED, RESOLVED, SUPERSEDED, Promise, Promises
from pinfold.state.session import APPLY, SessionState
from pinfold.state.silo import Slot, apply_put, set_silo_size
from pinfold.state.value import Blob, Json

NOW = 1_000_000


class World(SessionState):
    """A state, and the facts of this test applied to it."""

    def apply(self, facts, at_ms=NOW, actor=None):
        for fact in facts:
            APPLY[fact["f"]](self, fact, Entry(1, b"", at_ms, None, actor, facts))

    def put(self, key, status, token=0, at_ms=NOW, **rest):
        self.apply([{"f": "promise.put", "k": key, "s": status, "t": token, **rest}], at_ms)

    def slot(self, key, value="v", expires=None, at_ms=NOW, actor=None):
        fact = {"f": "slot.put", "k": key, "i": self.silo.next_index, "v": value}
        self.apply([fact if expires is None else {**fact, "x": expires}], at_ms, actor)

    def look(self, key, now=NOW):
        return rules.look(self.silo, self.promises, key, now)

    def status(self, key, now=NOW):
        return rules.status_of(self.silo, self.promises, key, now)

    def claim(self, key, lease_ms=1_000, owner=None, now=NOW):
        return rules.decide_claim(self.silo, self.promises, key, lease_ms, owner, now)

    def set(self, key, value="v", now=NOW):
        return rules.decide_set(self.silo, self.promises, self.recency, key, value, None, now)

    def fulfil(self, key, token, now=NOW, expires=None):
        return rules.decide_fulfil(self.silo, self.promises, self.recency, key, token, "v", expires, now)


@pytest.fixture
def world():
    return World()


NEXT_STEP = {"unknown_promise": "claim it", "token_required": "pass the token", "stale_token": "peek", "already_settled": "peek", "no_lease": "only claims"}


def refused(code, run):
    with pytest.raises(Refused) as raised:
        run()
    assert raised.value.code == code and raised.value.fields["key"] == "k" and NEXT_STEP[code] in raised.value.hint
    return raised.value


# --- applying -------------------------------------------------------------------------------------------------------


def test_a_put_keeps_everything_it_says(world):
    fact = {"f": "promise.put", "k": "k", "s": REJECTED, "t": 3, "l": 9, "o": "me", "r": "why", "later": 1}
    world.apply([fact])
    assert world.promises.by_key["k"] == Promise(REJECTED, 3, 9, "me", "why", None, NOW, {"later": 1})
    world.apply([{"f": "promise.put", "k": "p", "s": PENDING}])
    assert world.promises.by_key["p"] == Promise(PENDING, 0)
    world.apply([{"f": "promise.put", "k": "j", "s": RESOLVED, "j": b"[1]"}])
    assert world.promises.by_key["j"].payload == Json(b"[1]")
    assert world.promises.last_token == 3
    assert list(world.promises.settled) == ["k", "j"]


def test_settled_keys_are_kept_oldest_first_and_a_new_claim_takes_its_key_out(world):
    for key in "abc":
        world.put(key, RESOLVED, 1)
    world.put("a", REJECTED, 2)
    world.put("b", PENDING, 3)
    assert list(world.promises.settled) == ["c", "a"]
    world.apply([{"f": "promise.drop", "k": "a"}, {"f": "promise.drop", "k": "never"}])
    assert list(world.promises.settled) == ["c"] and set(world.promises.by_key) == {"b", "c"}
    world.put("d", PENDING, 1)
    assert world.promises.last_token == 3


def test_dump_and_load_give_the_same_promises(world):
    world.put("a", PENDING, 4, l=NOW + 5, o="me")
    world.put("b", REJECTED, 2, r="why", later=1)
    world.apply([{"f": "promise.put", "k": "c", "s": RESOLVED, "v": "payload"}])
    assert world.promises.dump()[0] == [
        ["a", "pending", 4, NOW + 5, "me", None, None, None, None],
        ["b", "rejected", 2, None, None, "why", None, NOW, {"later": 1}],
        ["c", "resolved", 0, None, None, None, {"v": "payload"}, NOW, None],
    ]
    again = Promises.load(world.promises.dump())
    assert again.by_key == world.promises.by_key and again.last_token == 4 and list(again.settled) == ["b", "c"]
    assert [list(again.by_key), again.dump()] == [["a", "b", "c"], world.promises.dump()]


def test_a_promise_is_held_until_the_ms_its_lease_ends():
    assert Promise(PENDING, 1, NOW).is_held(NOW - 1)
    assert not Promise(PENDING, 1, NOW).is_held(NOW)
    assert Promise(PENDING, 0).is_held(NOW)
    assert not Promise(RESOLVED, 1, NOW + 1).is_held(NOW)


def test_only_a_held_claim_counts_as_claimed(world):
    world.put("claim", PENDING, 1, l=NOW + 1)
    world.apply([{"f": "promise.put", "k": "registered", "s": PENDING}])
    claimed = world.promises.is_claimed
    assert claimed("claim", NOW) and not claimed("claim", NOW + 1)
    assert not claimed("registered", NOW) and not claimed("nobody", NOW)


# --- looking --------------------------------------------------------------------------------------------------------


def test_look_finds_a_slot_then_a_held_promise_then_a_payload(world):
    assert world.look("k") is None
    world.put("k", PENDING, 1, l=NOW + 1)
    assert world.look("k") is world.promises.by_key["k"]
    assert world.look("k", NOW + 1) is None
    world.put("k", RESOLVED, 1)
    world.slot("k", expires=NOW + 1)
    assert world.look("k") is world.silo.slots["k"] and world.look("k", NOW + 1) is None
    world.slot("k")
    assert world.look("k") is world.silo.slots["k"]
    world.apply([{"f": "promise.put", "k": "paid", "s": RESOLVED, "v": "payload"}])
    assert world.look("paid").payload == "payload"
    world.put("done", RESOLVED, 2)
    world.put("failed", REJECTED, 3, r="why")
    assert world.look("done") is None and world.look("failed") is None
    world.apply([{"f": "promise.put", "k": "odd", "s": SUPERSEDED, "v": "payload"}])
    assert world.look("odd") is None


def test_status_of_each_kind(world):
    assert world.status("k") == "unknown"
    world.put("k", PENDING, 1, l=NOW)
    assert world.status("k") == PENDING  # outlives its lease
    world.put("k", REJECTED, 1, r="why")
    assert world.status("k") == REJECTED
    for status in (RESOLVED, SUPERSEDED):
        world.put("k", status, 1)
        assert world.status("k") == "unknown"
    world.slot("k", expires=NOW + 1)
    assert world.status("k") == RESOLVED and world.status("k", NOW + 1) == "unknown"
    world.apply([{"f": "promise.put", "k": "paid", "s": RESOLVED, "v": ""}])
    assert world.status("paid") == RESOLVED


# --- claiming, setting, settling ------------------------------------------------------------------------------------


def test_a_claim_is_granted_where_nothing_is_found_with_a_token_above_all(world):
    assert world.claim("k", 1_500, "me") == (
        [{"f": "promise.put", "k": "k", "s": PENDING, "t": 1, "l": NOW + 1_500, "o": "me"}],
        outcomes.Claimed("k", 1, NOW + 1_500, 1.5),
    )
    world.put("other", REJECTED, 41, r="why")
    facts, claimed = world.claim("k")
    assert facts == [{"f": "promise.put", "k": "k", "s": PENDING, "t": 42, "l": NOW + 1_000}] and claimed.token == 42
    world.apply(facts)
    assert world.claim("k") == ([], world.promises.by_key["k"])
    assert world.claim("k", now=NOW + 1_000)[1].token == 43
    world.slot("k")
    assert world.claim("k") == ([], world.silo.slots["k"])


def test_the_work_on_a_stale_slot_is_claimed_anew_while_it_is_there_and_nobody_is_at_it(world):
    world.slot("k", "old")
    old = world.look("k")

    def claim(now=NOW):
        return rules.decide_claim(world.silo, world.promises, "k", 1_000, None, now, old)

    assert claim()[1].token == 1
    world.put("k", PENDING, 1, l=NOW + 1)
    assert claim() == ([], world.promises.by_key["k"])
    assert claim(NOW + 1)[1].token == 2
    world.put("k", REJECTED, 2, r="why")
    assert claim()[1].token == 3
    world.slot("k", "new")
    assert claim() == ([], world.silo.slots["k"])


def test_set_and_fulfil_store_until_the_time_given_under_a_new_index_where_the_old_slot_is_over(world):
    world.slot("k", expires=NOW)
    put = {"f": "slot.put", "k": "k", "i": 1, "v": "v", "x": NOW + 9}
    assert rules.decide_set(world.silo, world.promises, world.recency, "k", "v", NOW + 9, NOW) == ([put], outcomes.Stored(1, []))
    world.put("k", PENDING, 7, l=NOW + 1)
    assert world.fulfil("k", 7, expires=NOW + 9)[0][0] == put


def test_a_set_settles_what_is_pending_and_drops_older_outcomes(world):
    put = {"f": "slot.put", "k": "k", "i": 0, "v": "v"}
    assert world.set("k") == ([put], outcomes.Stored(0, []))
    world.put("k", PENDING, 5, l=NOW)
    assert world.set("k")[0] == [put, {"f": "promise.put", "k": "k", "s": SUPERSEDED, "t": 5}]
    world.put("k", REJECTED, 5, r="why")
    assert world.set("k")[0] == [put, {"f": "promise.drop", "k": "k"}]
    world.apply([{"f": "promise.put", "k": "k", "s": RESOLVED, "v": "payload"}])
    assert world.set("k")[0] == [put, {"f": "promise.drop", "k": "k"}]
    world.put("k", RESOLVED, 5)
    assert world.set("k")[0] == [put]


def test_fulfil_evicts_as_set_does(world):
    set_silo_size(world.silo, world.recency, 1)
    world.slot("old")
    world.put("old", RESOLVED, 1)
    world.put("k", PENDING, 2, l=NOW + 1)
    facts, settled = world.fulfil("k", 2)
    assert settled.evicted == ["old"]
    assert facts == [*world.set("k")[0][:-1], {"f": "promise.put", "k": "k", "s": RESOLVED, "t": 2}]
    world.put("old", PENDING, 3, l=NOW + 1)
    assert world.fulfil("k", 2)[1].evicted == []


def test_a_set_that_evicts_drops_the_promise_that_rested_on_its_victim(world):
    set_silo_size(world.silo, world.recency, 1)
    world.slot("old")
    world.put("old", RESOLVED, 1)
    facts, stored = world.set("k")
    assert stored.evicted == ["old"]
    assert facts == [
        {"f": "slot.drop", "k": "old", "why": "evicted"},
        {"f": "slot.put", "k": "k", "i": 1, "v": "v"},
        {"f": "promise.drop", "k": "old"},
    ]
    world.put("old", PENDING, 2, l=NOW + 1)  # claimed: no victim
    assert world.set("k")[1].evicted == []


def test_fulfil_stores_and_resolves_in_one_entry(world):
    world.put("k", PENDING, 7, l=NOW)  # late, and nobody took over
    assert world.fulfil("k", 7, expires=NOW + 9) == (
        [{"f": "slot.put", "k": "k", "i": 0, "v": "v", "x": NOW + 9}, {"f": "promise.put", "k": "k", "s": RESOLVED, "t": 7}],
        outcomes.Settled("k", RESOLVED, 0, []),
    )
    world.apply([{"f": "promise.put", "k": "k", "s": PENDING}])
    assert world.fulfil("k", None)[0][-1] == {"f": "promise.put", "k": "k", "s": RESOLVED, "t": 0}


def test_who_may_settle(world):
    assert "there is no promise 'k'" in refused("unknown_promise", lambda: world.fulfil("k", None)).message
    assert "token 3 no longer holds 'k'" in refused("stale_token", lambda: world.fulfil("k", 3)).message
    world.put("k", PENDING, 7, l=NOW + 1)
    assert "only its token" in refused("token_required", lambda: world.fulfil("k", None)).message
    assert "token 6 does not hold 'k': the latest is 7" in refused("stale_token", lambda: world.fulfil("k", 6)).message
    world.put("k", SUPERSEDED, 7)
    assert "plain set" in refused("stale_token", lambda: world.fulfil("k", 7)).message
    assert "is already unknown" in refused("stale_token", lambda: world.fulfil("k", None)).message
    world.put("k", RESOLVED, 7)
    assert "is already resolved" in refused("already_settled", lambda: world.fulfil("k", 7)).message
    world.slot("k")
    assert "is already resolved" in refused("stale_token", lambda: world.fulfil("k", None)).message
    world.apply([{"f": "promise.put", "k": "k", "s": REJECTED, "r": "why"}])
    assert "is already rejected" in refused("already_settled", lambda: world.fulfil("k", None)).message
    refused("already_settled", lambda: world.fulfil("k", 0))


@pytest.mark.parametrize(("now", "told"), [(NOW, "resolved"), (NOW + 1, "unknown")])
def test_who_comes_too_late_is_told_what_holds_now(world, now, told):
    world.slot("k", expires=NOW + 1)
    world.put("k", RESOLVED, 7)
    silo, promises = world.silo, world.promises
    for settle in (
        lambda: world.fulfil("k", None, now),
        lambda: rules.decide_resolve(silo, promises, "k", "v", now),
        lambda: rules.decide_reject(silo, promises, "k", None, "why", now),
        lambda: rules.decide_release(silo, promises, "k", None, now),
        lambda: rules.decide_renew(silo, promises, "k", None, 1, now),
    ):
        assert f"is already {told}" in refused("stale_token", settle).message
    assert bool(rules.decide_register(silo, promises, "k", None, now)[0]) is (told == "unknown")


def test_resolve_is_for_registered_promises(world):
    assert rules.decide_register(world.silo, world.promises, "k", "me", NOW) == (
        [{"f": "promise.put", "k": "k", "s": PENDING, "o": "me"}],
        outcomes.Registered("k"),
    )
    facts, _ = rules.decide_register(world.silo, world.promises, "k", None, NOW)
    assert facts == [{"f": "promise.put", "k": "k", "s": PENDING}]
    world.apply(facts)
    assert rules.decide_register(world.silo, world.promises, "k", None, NOW) == ([], outcomes.Registered("k"))
    assert rules.decide_resolve(world.silo, world.promises, "k", Json(b"1"), NOW) == (
        [{"f": "promise.put", "k": "k", "s": RESOLVED, "j": b"1"}],
        outcomes.Settled("k", RESOLVED),
    )
    world.apply([{"f": "promise.put", "k": "k", "s": RESOLVED, "j": b"1"}])
    assert rules.decide_register(world.silo, world.promises, "k", None, NOW)[0] == []
    world.put("k", REJECTED, 0, r="why")
    assert rules.decide_register(world.silo, world.promises, "k", None, NOW)[0] != []
    world.put("k", PENDING, 3, l=NOW + 1)
    refused("token_required", lambda: rules.decide_resolve(world.silo, world.promises, "k", "v", NOW))


def test_reject_keeps_a_reason_that_is_cut_where_it_is_long(world):
    world.put("k", PENDING, 2, l=NOW + 1)

    def reject(reason):
        return rules.decide_reject(world.silo, world.promises, "k", 2, reason, NOW)

    assert reject("why") == ([{"f": "promise.put", "k": "k", "s": REJECTED, "t": 2, "r": "why"}], outcomes.Settled("k", REJECTED))
    most = "x" * limits.REASON_CHARS
    assert reject(most)[0][0]["r"] == most
    assert reject(most + "yz")[0][0]["r"] == f"{most}…+2 chars"
    world.apply([{"f": "promise.put", "k": "k", "s": PENDING}])
    assert rules.decide_reject(world.silo, world.promises, "k", None, "why", NOW)[0][0]["t"] == 0


def test_release_takes_the_claim_back(world):
    world.put("k", PENDING, 2, l=NOW + 1)
    assert rules.decide_release(world.silo, world.promises, "k", 2, NOW) == [{"f": "promise.drop", "k": "k"}]
    refused("stale_token", lambda: rules.decide_release(world.silo, world.promises, "k", 1, NOW))


def test_renew_moves_the_end_of_the_lease_only_forward(world):
    def renew(token, lease_ms):
        return rules.decide_renew(world.silo, world.promises, "k", token, lease_ms, NOW)

    world.put("k", PENDING, 2, l=NOW + 1_000, o="me")
    assert renew(2, 3_000) == (
        [{"f": "promise.put", "k": "k", "s": PENDING, "t": 2, "l": NOW + 3_000, "o": "me"}],
        outcomes.Renewed("k", NOW + 3_000, 3.0),
    )
    assert renew(2, 500) == (
        [{"f": "promise.put", "k": "k", "s": PENDING, "t": 2, "l": NOW + 1_000, "o": "me"}],
        outcomes.Renewed("k", NOW + 1_000, 1.0),
    )
    world.put("k", PENDING, 2, l=NOW + 1_000)
    assert "o" not in renew(2, 1)[0][0]
    world.put("k", PENDING, 2)
    assert renew(2, 1)[1].lease_until_ms == NOW + 1
    world.apply([{"f": "promise.put", "k": "k", "s": PENDING}])
    assert "no lease" in refused("no_lease", lambda: renew(None, 1)).message


# --- dropping -------------------------------------------------------------------------------------------------------


def test_a_resolved_promise_goes_with_its_slot_and_others_stay(world):
    for key, status in (("done", RESOLVED), ("over", SUPERSEDED), ("failed", REJECTED), ("busy", PENDING)):
        world.slot(key)
        world.put(key, status, 1)
    world.slot("bare")
    world.apply([{"f": "promise.put", "k": "paid", "s": RESOLVED, "v": "p"}])
    facts = rules.drop_facts(world.promises, ["done", "over", "failed", "busy", "bare", "paid"], "forgotten")
    assert [fact["k"] for fact in facts if fact["f"] == "promise.drop"] == ["done", "over"]
    assert facts[:2] == [{"f": "slot.drop", "k": "done", "why": "forgotten"}, {"f": "promise.drop", "k": "done"}]
    assert rules.drop_facts(world.promises, ["bare"]) == [{"f": "slot.drop", "k": "bare"}]


def test_drop_names_only_what_was_there(world):
    world.slot("a")
    world.slot("dead", expires=NOW)
    world.apply([{"f": "promise.put", "k": "paid", "s": RESOLVED, "v": "p"}])
    facts, dropped = rules.decide_drop(world.silo, world.promises, ["a", "a", "none", "dead", "paid"], NOW)
    assert dropped == outcomes.Dropped(["a", "paid"])
    assert facts == [{"f": "slot.drop", "k": "a"}, {"f": "slot.drop", "k": "paid"}, {"f": "promise.drop", "k": "paid"}]


def test_flush_empties_the_silo_and_counts_the_living(world):
    world.slot("a")
    world.slot("b")
    world.slot("dead", expires=NOW)
    world.put("a", RESOLVED, 1)
    world.put("busy", PENDING, 2, l=NOW + 1)
    facts, flushed = rules.decide_flush(world.silo, world.promises, NOW)
    assert flushed == outcomes.Flushed(2)
    assert facts == [{"f": "slot.drop", "k": "a"}, {"f": "promise.drop", "k": "a"}, {"f": "slot.drop", "k": "b"}, {"f": "slot.drop", "k": "dead"}]


def test_forget_takes_what_is_named_and_what_meets_every_condition(world):
    world.slot("a:1", at_ms=NOW, actor="me")
    world.slot("a:2", at_ms=NOW + 10, actor="me")
    world.slot("b:1", at_ms=NOW, actor="you")
    world.slot("dead", expires=NOW - 5, at_ms=NOW - 9)
    world.apply([{"f": "promise.put", "k": "paid", "s": RESOLVED, "v": "p"}])

    def forget(*keys, prefix=None, actor=None, before=None):
        return rules.decide_forget(world.silo, world.promises, keys, prefix, actor, before)[1].keys

    assert forget() == []
    assert forget("dead", "none", "paid", "dead") == ["dead", "paid"]
    assert forget(prefix="a:") == ["a:1", "a:2"] and forget(prefix="") == ["a:1", "a:2", "b:1", "dead"]
    assert forget(actor="you") == ["b:1"]
    assert forget(before=NOW) == ["dead"] and forget(before=NOW + 1) == ["a:1", "b:1", "dead"]
    assert forget("a:2", prefix="a", actor="me", before=NOW + 1) == ["a:2", "a:1"]
    facts, _ = rules.decide_forget(world.silo, world.promises, ["paid"], None, None, None)
    assert facts == [{"f": "slot.drop", "k": "paid", "why": "forgotten"}, {"f": "promise.drop", "k": "paid"}]


def test_housekeeping_takes_what_expired_and_what_was_settled_long_ago(world, monkeypatch):
    keep = rules.decide_housekeep
    assert keep(world.silo, world.promises, NOW) == []
    world.slot("dead", expires=NOW)
    world.slot("ever")
    assert keep(world.silo, world.promises, NOW - 1) == []
    assert keep(world.silo, world.promises, NOW) == [{"f": "slot.drop", "k": "dead", "why": "expired"}]
    world.put("old", REJECTED, 1, at_ms=NOW)
    world.put("new", REJECTED, 2, at_ms=NOW + 1)
    late = NOW + limits.SETTLED_KEPT_S * 1000
    dropped = {"f": "promise.drop", "k": "old"}
    assert keep(world.silo, world.promises, late - 1) == [{"f": "slot.drop", "k": "dead", "why": "expired"}]
    assert keep(world.silo, world.promises, late)[1:] == [dropped]
    monkeypatch.setattr(limits, "SETTLED_KEPT_COUNT", 1)
    assert keep(world.silo, world.promises, NOW - 1) == [dropped]
    monkeypatch.setattr(limits, "SETTLED_KEPT_COUNT", 0)
    assert keep(world.silo, world.promises, NOW - 1) == [dropped, {"f": "promise.drop", "k": "new"}]
    monkeypatch.setattr(limits, "SETTLED_KEPT_COUNT", 2)
    assert keep(world.silo, world.promises, NOW - 1) == []
    monkeypatch.setattr(limits, "HOUSEKEEP_PER_TURN", 1)
    monkeypatch.setattr(limits, "SETTLED_KEPT_COUNT", 0)
    world.slot("dead too", expires=NOW)
    assert len(keep(world.silo, world.promises, NOW)) == 2


def test_a_look_s_slot_is_the_slot_itself(world):
    world.slot("k", "v")
    assert world.look("k") == Slot(0, "v", None, NOW)
    apply_put(world.silo, world.recency, {"f": "slot.put", "k": "k", "i": 0, "h": b"h" * 32, "n": 5, "y": "s"}, Entry(1, b"", NOW, None, None, []))
    assert world.look("k").value == Blob(b"h" * 32, 5, "s")
