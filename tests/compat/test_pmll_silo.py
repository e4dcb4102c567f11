"""Each intent of PMLL's own tests of store, promises and peek; the deliberate differences are named as such."""

from __future__ import annotations

import threading

import pytest

from pinfold.compat.pmll import PMMemoryStore, QPromiseRegistry, drop_store, get_store, peek_context, reset_store
from pinfold.errors import Refused


@pytest.fixture
def store():
    return PMMemoryStore()


@pytest.fixture
def registry():
    return QPromiseRegistry()


# --- the store --------------------------------------------------------------------------------------------------


def test_an_empty_store_misses(store):
    assert store.peek("a") == (False, None, None)


def test_set_then_peek_hits_with_the_value_and_its_index(store):
    assert store.set("a", "1") == 0
    assert store.peek("a") == (True, "1", 0)


def test_indexes_count_up_and_an_update_keeps_its_own(store):
    assert [store.set("a", "1"), store.set("b", "2"), store.set("a", "3")] == [0, 1, 0]
    assert store.peek("a") == (True, "3", 0)


def test_len_and_contains_tell_what_is_there(store):
    store.set("a", "1")
    assert (len(store), "a" in store, "b" in store) == (1, True, False)


def test_flush_returns_the_count_and_leaves_misses(store):
    store.set("a", "1")
    store.set("b", "2")
    assert (store.flush(), store.flush(), len(store)) == (2, 0, 0)
    assert store.peek("a") == (False, None, None)


def test_an_index_is_not_given_again_after_flush_unlike_pmll(store):
    store.set("a", "1")
    store.flush()
    assert store.set("a", "1") == 1


def test_silo_size_is_kept_and_is_a_limit():
    small = PMMemoryStore(silo_size=2)
    assert small.silo_size == 2
    small.set("a", "1")
    small.set("b", "2")
    small.peek("a")
    small.set("c", "3")
    assert ("a" in small, "b" in small, "c" in small) == (True, False, True)


@pytest.mark.parametrize("size", [0, -5, "12", 1.5, True])
def test_an_impossible_silo_size_is_refused(size):
    with pytest.raises(Refused) as refused:
        PMMemoryStore(silo_size=size)
    assert refused.value.code == "bad_option"


def test_values_are_copies_not_aliases(store):
    value = {"list": [1]}
    store.set("a", value)
    value["list"].append(2)
    store.peek("a")[1]["list"].append(3)
    assert store.peek("a")[1] == {"list": [1]}


def test_a_large_value_comes_back_and_goes_with_its_slot(store):
    store.set("a", "x" * 100_000)
    assert store.peek("a")[1] == "x" * 100_000
    store.flush()
    assert not store._values._large


def test_sessions_are_apart_and_the_same_id_is_the_same_store():
    a, b = get_store("pmll-a", silo_size=8), get_store("pmll-b")
    a.set("shared", "for a")
    assert b.peek("shared") == (False, None, None)
    assert get_store("pmll-a") is a and a.silo_size == 8
    assert (drop_store("pmll-a"), drop_store("pmll-a"), drop_store("pmll-b")) == (1, 0, 0)


def test_reset_store_replaces_what_was_there():
    get_store("pmll-r").set("a", "1")
    assert len(reset_store("pmll-r", 4)) == 0
    assert drop_store("pmll-r") == 0


def test_threads_never_share_an_index(store):
    big, found = PMMemoryStore(None), []
    lock = threading.Lock()

    def work(n):
        mine = [big.set(f"{n}:{i}", "v") for i in range(500)]
        with lock:
            found.extend(mine)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(4000))


# --- promises ---------------------------------------------------------------------------------------------------


def test_an_unknown_promise_is_not_pending(registry):
    assert registry.peek_promise("x") == (False, None, None)
    assert registry.resolve("x", "payload") is False
    assert len(registry) == 0


def test_register_then_resolve_shows_pending_then_the_payload(registry):
    registry.register("x")
    assert registry.peek_promise("x") == (True, "pending", None)
    assert registry.resolve("x", {"n": 1}) is True
    assert registry.peek_promise("x") == (True, "resolved", {"n": 1})
    assert registry.peek_promise("x") == (True, "resolved", {"n": 1})
    assert "x" in registry and len(registry) == 1


def test_registering_a_resolved_promise_keeps_its_payload_unlike_pmll(registry):
    registry.register("x")
    registry.resolve("x", "first")
    registry.register("x")
    assert registry.resolve("x", "second") is False
    assert registry.peek_promise("x") == (True, "resolved", "first")


# --- peek -------------------------------------------------------------------------------------------------------


def test_peek_context_finds_a_value_first(store, registry):
    store.set("k", "value")
    registry.register("k")
    assert peek_context("k", "s", store, registry) == {"hit": True, "value": "value", "index": 0}
    assert len(store) == 1


def test_peek_context_shows_work_in_flight(store, registry):
    registry.register("k")
    assert peek_context("k", "s", store, registry) == {"hit": True, "status": "pending", "promise_id": "k"}


def test_peek_context_misses_and_adds_nothing(store, registry):
    assert peek_context("k", "s", store, registry) == {"hit": False}
    assert (len(store), len(registry)) == (0, 0)


def test_a_resolved_promise_is_a_hit_unlike_pmll(store, registry):
    registry.register("k")
    registry.resolve("k", "done")
    assert peek_context("k", "s", store, registry) == {"hit": True, "value": "done", "index": None}


# --- the usage PMLL documents, with only the import changed -----------------------------------------------------


def test_the_documented_usage_runs():
    store = PMMemoryStore(silo_size=4)
    assert store.peek("page:/docs") == (False, None, None)
    assert store.set("page:/docs", "<html>cached</html>") == 0
    assert store.peek("page:/docs") == (True, "<html>cached</html>", 0)

    store_a, store_b = get_store("session-a", silo_size=8), get_store("session-b", silo_size=8)
    store_a.set("shared-key", "value-for-a")
    assert (store_a.peek("shared-key")[1], store_b.peek("shared-key")[0], drop_store("session-a")) == ("value-for-a", False, 1)
    drop_store("session-b")

    registry = QPromiseRegistry()
    registry.register("page:pricing")
    assert peek_context("page:pricing", "demo", PMMemoryStore(), registry)["status"] == "pending"

    promise_id = "session-42:search:billing"
    registry.register(promise_id)
    assert registry.peek_promise(promise_id)[1] == "pending"
    registry.resolve(promise_id, "resolved payload")
    assert registry.peek_promise(promise_id) == (True, "resolved", "resolved payload")
