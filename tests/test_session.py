"""What a Python user holds: silo, promises, once and cached, on every kind of store."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

from pinfold import Claimed, Hit, Miss, Pending, Rejected, Unavailable, WorkFailed, limits
from pinfold.state.outcomes import AlreadyApplied
from pinfold.testing.journal_contract import run_threads
from sessions import BOUND_S, refusal, waiting

# --- silo ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("peek-changes-nothing")
def test_looking_at_an_unknown_session_or_key_creates_nothing(memory):
    session = memory.session("nobody")
    assert session.peek("k") == Miss()
    assert session.promise("k").status == "unknown"
    assert session.wait("k", 0) == Miss()
    assert session.keys() == []
    assert session.log() == []
    assert session.status().seq == 0
    assert session.drop("k").keys == []
    assert memory.sessions() == []


@pytest.mark.requirement("index-once")
def test_a_new_key_takes_the_next_index_an_update_keeps_it_and_flush_gives_none_back(session):
    assert [session.set(key, "v").index for key in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    assert session.flush().cleared_count == 3
    assert session.peek("a") == Miss()
    assert session.set("a", "again").index == 3
    assert session.flush().cleared_count == 1
    assert session.flush().cleared_count == 0


@pytest.mark.requirement("ttl")
def test_a_ttl_ends_a_value_on_every_path_and_a_set_without_one_clears_it(timed, clock):
    session, other = timed().session("work"), timed().session("work")
    session.set("short", "1", ttl_s=1.0)
    session.set("cleared", "1", ttl_s=1.0)
    session.set("cleared", "2")
    clock.tick(999)
    assert other.peek("short").hit
    clock.tick(1)
    for each in (session, other):
        assert each.peek("short") == Miss()
        assert each.keys() == ["cleared"]
        assert each.promise("short").status == "unknown"
        assert each.status().short_term["slots"] == 1
        assert each.drop("short").keys == []
    assert session.flush().cleared_count == 1
    session.set("short", "2", ttl_s=1.0)
    assert isinstance(other.claim("claimable"), Claimed)
    clock.tick(5_000)
    assert isinstance(other.claim("short"), Claimed)


@pytest.mark.requirement("lru")
def test_a_silo_size_evicts_the_least_recently_used_and_says_so(timed):
    session = timed().session("work", silo_size=2)
    session.set("a", 1)
    session.set("b", 2)
    assert session.peek("a").hit
    assert session.set("c", 3).evicted == ["b"]
    assert session.keys() == ["a", "c"]
    assert session.set("a", "update").evicted == []
    assert session.set("d", 4).evicted == ["c"]
    assert session.log(limit=1)[0].changes[0].startswith("evicted c")
    assert session.status().short_term["evicted"] == 2


@pytest.mark.requirement("lru", "ttl")
def test_an_expired_slot_makes_room_before_a_live_one_is_evicted(timed, clock):
    session = timed().session("work", silo_size=2)
    session.set("live", 1)
    session.set("dead", 2, ttl_s=1.0)
    clock.tick(1_000)
    assert session.set("new", 3).evicted == []
    assert session.keys() == ["live", "new"]
    session.set("dead", 4, ttl_s=1.0)
    clock.tick(1_000)
    assert session.set("dead", 5).evicted == []


@pytest.mark.requirement("lru")
def test_recency_of_reads_outlives_the_process(timed):
    memory = timed()
    session = memory.session("work", silo_size=2)
    session.set("a", 1)
    session.set("b", 2)
    session.peek("a")
    session._replica.close()
    assert timed().session("work").set("c", 3).evicted == ["b"]


@pytest.mark.requirement("limits")
def test_limits_are_named_where_they_are_met(session, monkeypatch):
    monkeypatch.setattr(limits, "VALUE_BYTES", 50_000)
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 100)
    assert refusal(lambda: session.set("k", "x" * 50_001)).code == "value_too_large"
    assert refusal(lambda: session.set("k", bytes(50_001))).limit_bytes == 50_000
    assert refusal(lambda: session.set("k" * 5_000, "v")).code == "bad_key"
    session.set("a", "x" * 90)
    full = refusal(lambda: session.set("b", "x" * 20))
    assert (full.code, full.limit_bytes) == ("silo_full", 100)
    session.set("a", "x" * 99)
    session.drop("a")
    session.set("b", "x" * 20)


@pytest.mark.requirement("limits", "ttl")
def test_a_silo_full_of_expired_values_takes_new_ones(timed, clock, monkeypatch):
    monkeypatch.setattr(limits, "SILO_INLINE_BYTES", 3_000)
    session = timed().session("work")
    for n in range(100):
        session.set(f"k{n:02}", "x" * 20, ttl_s=1.0)
    assert refusal(lambda: session.set("big", "x" * 2_500)).code == "silo_full"
    clock.tick(1_000)
    session.set("big", "x" * 2_500)
    assert session.keys() == ["big"]
    assert session._replica.state.silo.inline_bytes == len("big") + 2_500


@pytest.mark.requirement("values")
@pytest.mark.parametrize(
    "value",
    [
        "",
        "text",
        "nul \0 in it",
        b"",
        b"\x00\xff",
        bytes(100_000),
        "ä" * 50_000,
        None,
        True,
        0,
        -1,
        2**64,
        10**40,
        1.5,
        [],
        {},
        [1, [2, {"a": None}]],
        "\ud800 lone",
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:12].encode('unicode_escape').decode()}",
)
def test_what_went_in_comes_out_here_and_after_reopening(sqlite_url, open_memory, value):
    first = open_memory(sqlite_url)
    first.session("work").set("k", value)
    for memory in (first, open_memory(sqlite_url)):
        found = memory.session("work").peek("k").value
        assert found == value
        assert type(found) is type(value)


@pytest.mark.requirement("values")
@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), (1, 2), {1, 2}, {1: 2}, [b"x"], object(), "\ud83d\ude00", ["\ud800", (1,)], ["\ud800", object()]], ids=repr
)
def test_what_would_not_come_out_as_it_went_in_is_refused(session, value):
    assert refusal(lambda: session.set("k", value)).code == "bad_value"
    assert session.status().seq == 0


@pytest.mark.requirement("values")
def test_keys_compare_byte_for_byte_and_values_are_copies(session):
    session.set("é", "composed")
    session.set("e\u0301", "decomposed")
    assert (session.peek("é").value, session.peek("e\u0301").value) == ("composed", "decomposed")
    given = {"list": [1]}
    session.set("k", given)
    given["list"].append(2)
    session.peek("k").value["list"].append(3)
    assert session.peek("k").value == {"list": [1]}
    assert refusal(lambda: session.peek(7)).code == "bad_key"
    assert refusal(lambda: session.set("\ud800", 1)).code == "bad_key"


# --- promises -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("one-winner")
def test_a_claim_is_granted_once_until_it_is_settled(session):
    claim = session.claim("job", 60)
    assert isinstance(claim, Claimed)
    assert isinstance(session.claim("job", 60), Pending)
    assert isinstance(session.peek("job"), Pending)
    assert session.fulfil(claim, "done").index == 0
    assert session.claim("job") == Hit("done", 0)
    assert session.promise("job").status == "resolved"
    assert session.promise("job").payload == "done"


@pytest.mark.requirement("tokens")
def test_a_claimed_promise_settles_only_with_its_token(session):
    claim = session.claim("job", 60)
    for settle in (lambda **t: session.fulfil("job", 1, **t), lambda **t: session.reject("job", "no", **t), lambda **t: session.renew("job", **t)):
        assert refusal(settle).code == "token_required"
        assert refusal(functools.partial(settle, token=claim.token + 1)).code == "stale_token"
    assert refusal(lambda: session.fulfil("unknown", 1)).code == "unknown_promise"
    session.fulfil(claim, "done")
    assert refusal(lambda: session.fulfil(claim, "twice")).code == "already_settled"
    assert refusal(lambda: session.reject(claim, "late")).code == "already_settled"
    assert session.peek("job").value == "done"


@pytest.mark.requirement("takeover", "tokens")
def test_a_lapsed_lease_lets_another_take_over_and_refuses_the_old_owner_with_and_without_token(timed, clock):
    first, second = timed("first").session("work"), timed("second").session("work")
    old = first.claim("job", 1.0)
    clock.tick(1_000)
    assert second.peek("job") == Miss()
    new = second.claim("job", 1.0)
    assert new.token > old.token
    for token, code in ((old.token, "stale_token"), (None, "token_required")):
        assert refusal(lambda token=token: first.fulfil("job", "old", token=token)).code == code
        assert refusal(lambda token=token: first.reject("job", "old", token=token)).code == code
        assert refusal(lambda token=token: first.renew("job", token=token)).code == code
    second.fulfil(new, "new")
    late = refusal(lambda: first.fulfil(old, "old"))
    assert (late.code, late.value) == ("stale_token", "new")
    assert refusal(lambda: first.fulfil("job", "old")).code == "stale_token"
    assert first.peek("job").value == "new"


def test_a_lapsed_owner_nobody_followed_may_still_settle_or_renew(timed, clock):
    session = timed().session("work")
    claim = session.claim("job", 1.0)
    clock.tick(5_000)
    assert session.renew(claim, 1.0).lease_left_s == 1.0
    clock.tick(5_000)
    assert session.fulfil(claim, "done").status == "resolved"


@pytest.mark.requirement("supersede")
def test_a_plain_set_on_a_claimed_key_wins_and_tells_the_owner(session):
    claim = session.claim("job", 60)
    session.set("job", "theirs")
    assert session.promise("job").status == "resolved"
    late = refusal(lambda: session.fulfil(claim, "mine"))
    assert (late.code, late.value) == ("stale_token", "theirs")
    assert refusal(lambda: session.reject(claim, "mine")).code == "stale_token"
    session.drop("job")
    assert session.promise("job").status == "unknown"
    assert refusal(lambda: session.fulfil(claim, "mine")).code == "stale_token"


@pytest.mark.requirement("value-beats-promise")
def test_an_older_outcome_never_comes_back_when_a_later_value_goes(session):
    session.reject(session.claim("job"), "no luck")
    assert session.promise("job").status == "rejected"
    session.set("job", "value")
    assert session.promise("job").status == "resolved"
    assert session.wait("job", 0) == Hit("value", 0)
    session.drop("job")
    assert session.promise("job").status == "unknown"
    session.register("registered")
    session.resolve("registered", "old payload")
    session.set("registered", "value")
    session.drop("registered")
    assert session.peek("registered") == Miss()


@pytest.mark.requirement("register")
def test_a_registered_promise_is_resolved_by_anyone_and_is_a_hit_with_its_payload(session):
    session.register("p")
    assert session.peek("p") == Pending("p")
    assert isinstance(session.claim("p"), Pending)
    session.resolve("p", {"n": 1})
    assert session.peek("p") == Hit({"n": 1}, None)
    assert session.promise("p").payload == {"n": 1}
    assert session.flush().cleared_count == 0
    assert session.peek("p").hit
    assert session.drop("p").keys == ["p"]
    assert session.peek("p") == Miss()
    session.register("q")
    session.resolve("q", "x")
    assert session.drop(prefix="q").keys == ["q"]
    assert session.promise("q").status == "unknown"


@pytest.mark.requirement("lives-with-slot")
def test_a_fulfilled_promise_lives_and_dies_with_its_slot(timed, clock):
    session = timed().session("work", silo_size=2)
    for end in (lambda: session.drop("job"), lambda: session.flush(), lambda: clock.tick(2_000), lambda: [session.set(k, 1) for k in "xyz"]):
        session.fulfil(session.claim("job"), "done", ttl_s=2.0)
        assert session.promise("job").status == "resolved"
        end()
        assert session.promise("job").status == "unknown"
        assert session.peek("job") == Miss()


def test_settled_promises_are_dropped_after_a_while(timed, clock, monkeypatch):
    monkeypatch.setattr(limits, "SETTLED_KEPT_COUNT", 3)
    session = timed().session("work")
    for n in range(6):
        session.reject(session.claim(f"k{n}"), "no")
    assert [session.promise(f"k{n}").status for n in range(6)] == ["unknown"] * 2 + ["rejected"] * 4  # trimmed along with writes
    clock.tick(limits.SETTLED_KEPT_S * 1000)
    session.set("a write", 1)
    assert [session.promise(f"k{n}").status for n in range(6)] == ["unknown"] * 6
    assert session._replica.state.promises.settled == {}


def test_a_long_reason_is_cut_with_a_mark(session):
    session.reject(session.claim("job"), "x" * 10_000)
    reason = session.promise("job").reason
    assert reason.endswith("…+6000 chars")
    assert len(reason) < 4_100


@pytest.mark.parametrize(("bad", "code"), [(0, "bad_lease"), (1e9, "bad_lease"), (-1, "bad_lease"), (float("nan"), "bad_lease"), ("5", "bad_lease")])
def test_an_impossible_lease_is_refused(session, bad, code):
    assert refusal(lambda: session.claim("k", bad)).code == code


# --- retries ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("request-id")
def test_a_retried_request_gets_its_first_answer_and_writes_nothing(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session("work")
    stored = session.set("k", 1, request_id="r-set")
    claim = session.claim("job", 60, request_id="r-claim")
    session.set("k", 2)
    seq = session.status().seq
    for again in (session, open_memory(sqlite_url).session("work")):
        assert again.set("k", 1, request_id="r-set") == stored
        assert again.claim("job", 60, request_id="r-claim") == claim
        assert again.peek("k").value == 2
        assert again.status().seq == seq
    done = session.fulfil(claim, "done", request_id="r-done")
    assert session.fulfil(claim, "done", request_id="r-done") == done
    assert session.reject(session.claim("x", request_id="r-x"), "no", request_id="r-no") == session.reject("x", "no", request_id="r-no")


@pytest.mark.requirement("request-id")
def test_a_request_id_used_for_something_else_is_refused_by_name(session):
    session.set("k", 1, request_id="r")
    assert refusal(lambda: session.claim("other", request_id="r")).code == "request_id_reused"
    assert refusal(lambda: session.set("k", 1, request_id="")).code == "bad_option"
    assert refusal(lambda: session.set("k", 1, request_id="x" * 129)).code == "bad_option"


@pytest.mark.requirement("request-id", "retention")
def test_a_retry_of_what_is_compacted_says_already_applied(timed, clock, monkeypatch):
    session = timed().session("work")
    session.set("k", 1, request_id="r")
    claim = session.claim("c", request_id="rc")
    session.fulfil(claim, "v", request_id="rf")
    monkeypatch.setattr(limits, "HISTORY_BYTES", 0)
    for n in range(2):
        session.set("k", n)
        session._replica.compact()
    assert session.set("k", 1, request_id="r") == AlreadyApplied(1)
    assert session.set("c", "v", token=claim.token, request_id="rf") == AlreadyApplied(3)
    assert session.peek("k").value == 1


# --- waiting ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("wake-up")
def test_waiters_get_the_value_of_the_entry_that_settled_and_never_an_older_one(session):
    claim = session.claim("job", 60)
    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(session.wait, "job", BOUND_S), pool.submit(session.peek, "job", wait_s=BOUND_S), pool.submit(session.claim, "job", wait_s=BOUND_S)]
        waiting(session, "job", 3)
        session.fulfil(claim, ["fresh"])
        assert [wait.result(BOUND_S).value for wait in waits] == [["fresh"]] * 3


@pytest.mark.requirement("wake-up", "supersede")
def test_waiters_are_woken_by_a_rejection_a_plain_set_and_a_payload(session):
    session.register("payload")
    for key, claim, settle, expected in (
        ("bad", session.claim("bad", 60), lambda c: session.reject(c, "no such file"), Rejected("bad", "no such file")),
        ("set", session.claim("set", 60), lambda c: session.set("set", "theirs"), Hit("theirs", 0, True)),
        ("payload", None, lambda c: session.resolve("payload", "p"), Hit("p", None, True)),
    ):
        with ThreadPoolExecutor(1) as pool:
            wait = pool.submit(session.wait, key, BOUND_S)
            waiting(session, key)
            settle(claim)
            assert wait.result(BOUND_S) == expected


@pytest.mark.requirement("wake-up", "ttl")
def test_a_registered_payload_wakes_waiters_although_an_expired_slot_lies_under_it(timed, clock):
    session = timed().session("work")
    for n in range(100):  # more than one write removes
        session.set(f"k{n}", "x", ttl_s=1.0)
    clock.tick(1_000)
    session.register("k99")
    from pinfold.engine import Waiter

    waiter = Waiter()
    session._replica.add_waiter("k99", waiter)
    session.resolve("k99", "payload")
    assert waiter.outcome is not None
    assert session.peek("k99").value == "payload"


def test_wait_says_pending_at_its_timeout_and_takes_nothing_over(session):
    claim = session.claim("job", 0.001)
    answer = session.wait("job", 0.05)
    assert isinstance(answer, Pending)
    assert session._replica.state.promises.by_key["job"].token == claim.token
    assert isinstance(session.wait("job", 0), Pending)


@pytest.mark.requirement("takeover")
def test_of_those_waiting_to_claim_exactly_one_takes_over_a_lapsed_lease(session):
    old = session.claim("job", 0.05)
    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(session.claim, "job", 60.0, wait_s=BOUND_S) for _ in range(4)]
        won = next(as_completed(waits, BOUND_S)).result()  # the others wait on until the winner fulfils
        assert won.token > old.token
        session.fulfil(won, "done")
        answers = [wait.result(BOUND_S) for wait in waits]
    assert sum(isinstance(answer, Claimed) for answer in answers) == 1
    assert sum(isinstance(answer, Hit) for answer in answers) == 3


@pytest.mark.requirement("wake-up")
def test_without_a_watcher_thread_a_waiter_follows_other_processes_itself(sqlite_url, open_memory):
    owner, waiter = (open_memory(sqlite_url, background=background).session("work") for background in (True, False))
    claim = owner.claim("job", 60)
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(waiter.wait, "job", BOUND_S)
        waiting(waiter, "job")
        owner.fulfil(claim, "done")
        assert wait.result(BOUND_S) == Hit("done", 0, True)


# --- once ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("once")
def test_a_thousand_threads_on_one_key_execute_once(session):
    executed = []
    results = []
    started = threading.Barrier(21)

    def work() -> str:
        executed.append(1)
        waiting(session, "job", 500)
        return "result"

    def one() -> None:
        results.append(session.once("job", work))

    threading.stack_size(256 * 1024)
    try:
        run_threads([one] * 1_000)
    finally:
        threading.stack_size(0)
        started.abort()
    assert executed == [1]
    assert results == ["result"] * 1_000
    ledger = session.status().ledger
    assert ledger["executions_avoided"] + ledger["waits_joined"] >= 999


def test_whoever_claims_and_is_given_the_result_is_in_the_ledger(session):
    assert isinstance(session.claim("job"), Claimed)
    thread = threading.Thread(target=lambda: session.claim("job", wait_s=60))
    thread.start()
    waiting(session, "job")
    session.set("job", "result")
    thread.join(60)
    assert session.claim("job").value == session.claim("job", wait_s=1).value == session.peek("job").value == "result"
    ledger = session.status().ledger
    assert (ledger["executions_avoided"], ledger["waits_joined"]) == (2, 1)


@pytest.mark.requirement("once", "errors-shared")
def test_an_exception_is_raised_in_everyone_waiting_now_and_not_kept(sqlite_url, open_memory):
    here = open_memory(sqlite_url).session("work")
    elsewhere = open_memory(sqlite_url).session("work")
    failing = threading.Event()

    def fail():
        failing.set()
        waiting(here, "job")
        waiting(elsewhere, "job")
        raise LookupError("no such symbol")

    with ThreadPoolExecutor(3) as pool:
        owner = pool.submit(here.once, "job", fail)
        assert failing.wait(BOUND_S)
        joined = pool.submit(here.once, "job", lambda: "never run")
        afar = pool.submit(elsewhere.once, "job", lambda: "never run")
        with pytest.raises(LookupError, match="no such symbol") as raised:
            owner.result(BOUND_S)
        with pytest.raises(LookupError) as shared:
            joined.result(BOUND_S)
        assert shared.value is raised.value
        with pytest.raises(WorkFailed) as told:
            afar.result(BOUND_S)
    assert (told.value.code, told.value.reason) == ("work_failed", "LookupError: no such symbol")
    assert here.once("job", lambda: "second try") == "second try"


@pytest.mark.requirement("once")
def test_once_inside_its_own_work_is_refused_and_another_key_is_not(session):
    def work():
        assert session.once("inner", lambda: 1) == 1
        return refusal(lambda: session.once("outer", lambda: 2)).code

    assert session.once("outer", work) == "recursive_once"
    assert session.once("outer", lambda: "not run again") == "recursive_once"


@pytest.mark.requirement("background-renewal")
def test_a_short_lease_is_renewed_in_the_background_while_the_work_runs(sqlite_url, open_memory):
    owner, other = open_memory(sqlite_url).session("work"), open_memory(sqlite_url).session("work")

    def work():
        first = other.peek("job")
        for _ in range(3_000):  # until it was renewed twice, whatever the clock says
            renewals = [row for row in other.log(limit=100) if any("claimed job" in change for change in row.changes)]
            if len(renewals) >= 3:
                return isinstance(first, Pending)
            threading.Event().wait(0.01)
        raise AssertionError("never renewed")

    assert owner.once("job", work, lease_s=0.6) is True
    assert owner.once("job", lambda: "not run") is True


@pytest.mark.requirement("once")
def test_an_interrupted_owner_gives_its_claim_back(session):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.once("job", interrupted)
    assert session.peek("job") == Miss()
    assert session.promise("job").status == "unknown"
    assert session.once("job", lambda: "by another") == "by another"


@pytest.mark.requirement("once", "takeover")
def test_a_slow_owner_gets_the_result_of_who_took_over(timed, clock):
    session, other = timed().session("work"), timed().session("work")

    def slow():
        clock.tick(60_000)
        assert other.once("job", lambda: "theirs") == "theirs"
        return "mine"

    assert session.once("job", slow) == "theirs"
    assert session.peek("job").value == "theirs"


@pytest.mark.requirement("once")
def test_once_gives_up_waiting_by_name_and_a_bad_result_is_refused_to_all(session):
    session.claim("job", 60)
    with pytest.raises(Unavailable) as timeout:
        session.once("job", lambda: 1, timeout_s=0.01)
    assert timeout.value.code == "wait_timeout"
    assert refusal(lambda: session.once("bad", lambda: {1, 2})).code == "bad_value"
    assert session.promise("bad").status == "rejected"
    assert session.once("bad", lambda: [1, 2]) == [1, 2]
    assert session.once_hit("bad", lambda: 0).shared is True


# --- cached -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("cached")
def test_a_cached_function_runs_once_per_arguments_however_they_are_given(sqlite_url, open_memory):
    calls = []

    def area(width, height=2, *, unit="m"):
        calls.append((width, height, unit))
        return {"area": width * height, "unit": unit}

    for _ in range(2):
        cached = open_memory(sqlite_url).session("work").cached()(area)
        assert cached(3) == cached(3, 2) == cached(width=3, height=2, unit="m") == {"area": 6, "unit": "m"}
        assert cached(3, unit="cm")["unit"] == "cm"
        assert cached.__name__ == "area"
    assert calls == [(3, 2, "m"), (3, 2, "cm")]


@pytest.mark.requirement("cached")
def test_cached_tells_equal_arguments_of_other_types_apart_and_refuses_what_is_no_json(session):
    calls = []
    cached = session.cached(name="f")(lambda x: calls.append(x) or repr(x))
    assert [cached(1), cached(True), cached("1"), cached(1), cached(True)] == ["1", "True", "'1'", "1", "True"]
    assert len(calls) == 3
    assert refusal(lambda: cached(object())).code == "bad_arguments"
    keyed = session.cached(key=lambda thing: f"own:{id(thing) and 'k'}")(lambda thing: "by my key")
    assert keyed(object()) == "by my key"
    assert session.peek("own:k").value == "by my key"


@pytest.mark.requirement("cached", "ttl")
def test_cached_with_a_ttl_runs_again_after_it(timed, clock):
    calls = []
    cached = timed().session("work").cached(ttl_s=10)(lambda: calls.append(1) or len(calls))
    assert [cached(), cached()] == [1, 1]
    clock.tick(10_000)
    assert cached() == 2


# --- the life of a session ----------------------------------------------------------------------------------------


@pytest.mark.requirement("incarnations")
def test_an_ended_session_reads_as_absent_everywhere_and_its_name_starts_a_new_one(url, open_memory):
    memory = open_memory(url)
    session = memory.session("work")
    session.set("k", "old")
    assert memory.end("work") is True
    assert memory.end("work") is False
    assert memory.end("never-was") is False
    assert session.peek("k") == Miss()
    assert session.keys() == []
    assert refusal(lambda: session.set("k", 1)).code == "session_ended"
    assert refusal(lambda: session.claim("k")).code == "session_ended"
    assert memory.sessions() == []
    assert [row.session_id for row in memory.sessions(expired=True)] == ["work"]
    new = memory.session("work")
    assert new.peek("k") == Miss()
    assert new.set("k", "new").index == 0
    assert [row.session_id for row in memory.sessions()] == ["work"]


@pytest.mark.requirement("incarnations")
def test_an_ended_session_is_restored_under_its_name_or_another(url, open_memory):
    memory = open_memory(url)
    memory.session("work").set("k", "old")
    memory.session("work").set("large", bytes(100_000))
    memory.end("work")
    assert memory.restore("work").peek("k").value == "old"
    memory.end("work")
    memory.session("work").set("k", "new")
    assert refusal(lambda: memory.restore("work")).code == "session_exists"
    other = memory.restore("work", as_name="other")
    assert other.session_id == "other"
    assert (other.peek("k").value, len(other.peek("large").value)) == ("old", 100_000)
    assert refusal(lambda: memory.restore("nobody")).code == "no_such_session"
    assert memory.session("work").peek("k").value == "new"


@pytest.mark.requirement("session-ttl")
def test_a_session_with_a_ttl_ends_after_its_last_use_and_reads_slide_it(timed, clock):
    memory, elsewhere = timed(), timed()
    session = memory.session("work", ttl_s=60)
    session.set("k", 1)
    for _ in range(3):
        clock.tick(40_000)
        assert session.peek("k").hit
    session.set("other", 1)  # journals the use along with it
    clock.tick(59_000)
    assert elsewhere.session("work").peek("k").hit
    clock.tick(61_000)
    assert session.peek("k") == Miss()
    assert refusal(lambda: session.set("k", 2)).code == "session_ended"
    assert memory.session("work").peek("k") == Miss()
    assert elsewhere.session("work").set("k", "new").index == 0


@pytest.mark.requirement("session-ttl")
def test_the_use_of_a_session_is_journaled_in_time_for_others_to_see(timed, clock):
    session, elsewhere = timed().session("work", ttl_s=9), timed()
    session.set("k", 1)
    clock.tick(4_000)
    assert session.peek("k").hit
    session.claim("a write carries the touch")
    clock.tick(6_000)
    assert elsewhere.session("work").peek("k").hit


@pytest.mark.requirement("incarnations")
def test_what_ended_long_ago_is_purged(timed, clock):
    memory = timed()
    memory.session("work").set("k", 1)
    memory.end("work")
    clock.tick(limits.ENDED_SESSION_KEPT_S * 1000)
    assert memory.purge() == []
    clock.tick(1)
    assert memory.purge() == ["work"]
    assert memory.sessions(expired=True) == []


def test_options_are_checked_and_kept(memory):
    assert refusal(lambda: memory.session("work", silo_size=0)).code == "bad_option"
    assert refusal(lambda: memory.session("work", ttl_s=-1)).code == "bad_ttl"
    assert refusal(lambda: memory.session("work", promote_after=2**70)).code == "bad_option"
    for bad in ("", "a/b", "ä", "x" * 129, "a@2", None):
        assert refusal(lambda bad=bad: memory.session(bad)).code == "bad_session_name"
    memory.session("work", silo_size=5)
    seq = memory.session("work", silo_size=5).status().seq
    assert memory.session("work").status().short_term["silo_size"] == 5
    assert memory.session("work").status().seq == seq
    assert memory.session("work", silo_size=None).status().short_term["silo_size"] is None


def test_the_log_tells_who_did_what_and_names_what_it_no_longer_has(timed, monkeypatch):
    memory = timed(actor="ada")
    session = memory.session("work")
    for n in range(5):
        session.set(f"k{n}", n, request_id=f"r{n}")
    rows = session.log(limit=2)
    assert [(row.seq, row.actor, row.request_id) for row in rows] == [(4, "ada", "r3"), (5, "ada", "r4")]
    assert rows[0].changes == ["set k3 [3] 1 bytes"]
    assert [row.seq for row in session.log(after=2)] == [3, 4, 5]
    assert session.log(actor="nobody") == []
    monkeypatch.setattr(limits, "HISTORY_BYTES", 0)
    session._replica.compact()
    session.set("k", 1)
    session._replica.compact()
    gone = refusal(lambda: session.log(after=1))
    assert (gone.code, gone.first_seq) == ("history_gone", 6)
    assert [row.seq for row in session.log()] == [6]


@pytest.mark.requirement("once")
def test_an_owner_whose_lease_lapsed_returns_what_its_successor_makes_of_the_key(session):
    """Everyone gets one value: also the first owner, who finishes while the second is still at it."""
    taken = []

    def work():
        session.release("k", token=session._replica.state.promises.by_key["k"].token)  # as if the lease had lapsed
        taken.append(session.claim("k", 60))
        threading.Timer(0.05, lambda: session.fulfil(taken[0], "the successor's")).start()
        return "mine"

    assert session.once("k", work, timeout_s=20) == "the successor's"
    assert session.peek("k").value == "the successor's"


@pytest.mark.requirement("once")
def test_an_owner_whose_successor_gave_up_keeps_its_own_result_without_working_again(session):
    runs = []

    def work():
        runs.append(1)
        session.release("k", token=session._replica.state.promises.by_key["k"].token)
        successor = session.claim("k", 60)
        threading.Timer(0.05, lambda: session.release(successor)).start()
        return "mine"

    assert session.once("k", work, timeout_s=20) == "mine"
    assert (runs, session.peek("k").value) == ([1], "mine")
