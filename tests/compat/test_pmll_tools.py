"""Each intent of PMLL's tests of its server, and the edge cases seen at its tools: the same names, over this store."""

from __future__ import annotations

from typing import Any

import pytest

from pinfold import Memory
from pinfold.errors import Refused
from pinfold.operations import BY_TOOL, Call, run

S = "s"


@pytest.fixture
def tool(graphs: Memory) -> Any:
    """A function that calls a tool as an agent does: tool(name, session_id?, **arguments)."""

    def call(name: str, session_id: str = S, **arguments: Any) -> Any:
        return run(BY_TOOL[name], Call(graphs, session_id), arguments)

    return call


def refused(call: Any, name: str, **arguments: Any) -> str:
    with pytest.raises(Refused) as caught:
        call(name, **arguments)
    assert caught.value.hint
    return caught.value.code


# --- the server's own tests ---------------------------------------------------------------------------------------


def test_init_opens_a_session_with_and_without_a_size(tool):
    assert {name: tool("init")[name] for name in ("status", "session_id", "silo_size")} == {"status": "initialized", "session_id": S, "silo_size": None}
    assert tool("init", "sized", silo_size=8)["silo_size"] == 8


def test_init_again_keeps_what_is_there(tool):
    tool("init", silo_size=8)
    tool("set", key="k", value="v")
    again = tool("init", silo_size=16)
    assert (again["status"], again["silo_size"]) == ("resumed", 16) and tool("peek", key="k")["value"] == "v"


def test_what_was_set_is_peeked_with_its_index_and_the_rest_is_a_miss(tool):
    assert tool("peek", key="a") == {"hit": False}
    assert [tool("set", key=key, value=f"value of {key}")["index"] for key in ("a", "b", "a")] == [0, 1, 0]
    assert tool("set", key="a", value="new")["status"] == "stored"
    assert tool("peek", key="a") == {"hit": True, "value": "new", "index": 0}


def test_a_promise_is_seen_pending_then_resolved_with_its_payload_and_an_unknown_one_is_unknown(tool):
    assert tool("resolve", promise_id="work")["status"] == "unknown", "there: pending, for ever"
    token = tool("peek", key="work", claim=True)["token"]
    seen = tool("peek", key="work")
    assert (seen["hit"], seen["status"], seen["promise_id"]) == (True, "pending", "work")
    waiting = tool("resolve", promise_id="work")
    assert (waiting["status"], waiting["payload"]) == ("pending", None)
    assert tool("resolve", promise_id="work", payload="done", token=token)["status"] == "resolved"
    settled = tool("resolve", promise_id="work")
    assert (settled["status"], settled["payload"]) == ("resolved", "done")


def test_flush_empties_the_silo_tells_how_many_and_leaves_the_graph(tool):
    assert tool("flush", "nobody") == {"status": "flushed", "cleared_count": 0}
    for key in "abc":
        tool("set", key=key, value="v")
    tool("upsert_memory_node", type="concept", label="kept", content="x")
    assert tool("flush") == {"status": "flushed", "cleared_count": 3}
    assert tool("peek", key="a") == {"hit": False} and tool("memory_status")["long_term"]["nodes"] == 1


def test_two_sessions_are_apart(tool):
    tool("set", "one", key="k", value="1")
    tool("set", "two", key="k", value="2")
    tool("flush", "two")
    assert tool("peek", "one", key="k")["value"] == "1" and tool("peek", "two", key="k") == {"hit": False}


# --- edge cases ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -5, "12", 1.5])
def test_a_size_that_cannot_be_is_refused(tool, size):
    assert refused(tool, "init", silo_size=size) in ("bad_option", "bad_arguments")


def test_a_full_silo_evicts_the_oldest_and_names_it(tool):
    tool("init", silo_size=2)
    assert [tool("set", key=key, value="v").get("evicted", []) for key in "abcd"] == [[], [], ["a"], ["b"]]
    assert tool("peek", key="a") == {"hit": False}


@pytest.mark.parametrize("key", ["ключ", "a\0b", "\u202eabc", " ", "constructor", "__proto__"])
def test_any_text_is_a_key_and_comes_out_as_it_went_in(tool, key):
    for value in ("", '{"a": [1]}', "語\0\u202e", "x" * 1_000_000):
        tool("set", key=key, value=value)
        assert tool("peek", key=key, limit_bytes=2_000_000)["value"] == value


def test_the_two_ways_to_compose_a_letter_are_two_keys_and_one_word_of_a_search(tool):
    tool("set", key="caf\u00e9", value="composed")
    assert tool("peek", key="cafe\u0301") == {"hit": False}
    node = tool("upsert_memory_node", type="note", label="caf\u00e9", content="x")["node_id"]
    assert tool("search_memory_graph", query="cafe\u0301")["direct"][0]["node_id"] == node


def test_an_argument_that_no_tool_has_is_refused_not_dropped(tool):
    assert refused(tool, "peek", key="k", frobnicate=1) == "bad_arguments"
    assert refused(tool, "create_relation", source_id="a", target_id="b") == "bad_arguments"


def test_asking_for_an_edge_again_without_a_weight_keeps_its_weight(tool):
    a, b = (tool("upsert_memory_node", type="concept", label=label, content="x")["node_id"] for label in "ab")
    first = tool("create_relation", source_id=a, target_id=b, relation="depends_on", weight=0.4)
    again = tool("create_relation", source_id=a, target_id=b, relation="depends_on")
    assert (first["status"], again["status"], again["weight"], again["edge_id"]) == ("created", "updated", 0.4, first["edge_id"])


def test_an_empty_query_and_an_unrelated_one_find_nothing_sure(tool):
    tool("upsert_memory_node", type="concept", label="auth", content="OAuth login with refresh tokens")
    empty = tool("search_memory_graph", query="")
    assert empty["direct"] == [] and empty["low"] and "no word" in empty["note"]
    unrelated = tool("search_memory_graph", query="zeppelins over Mongolia")
    assert unrelated["low"] and all(hit["score"] == 0 for hit in unrelated["direct"])
    assert refused(tool, "search_memory_graph", query="x", top_k=-1) == "bad_argument"
    assert tool("resolve_context", key="zeppelins over Mongolia")["source"] == "miss"


def test_a_bulk_write_that_cannot_be_whole_leaves_nothing(tool):
    assert refused(tool, "add_interlinked_context", items=[{"type": "note", "label": "a", "content": "x"}, {"type": "note"}]) == "bad_item"
    assert tool("memory_status")["long_term"]["nodes"] == 0
