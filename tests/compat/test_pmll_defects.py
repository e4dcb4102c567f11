"""Every defect found in PMLL Memory MCP (its versions 2.0.2, 2.0.4 and TS 2.0.3), shown not to be one here. Numbers as in the study."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from pinfold import Claimed, Hit, Memory, Miss, Pending, limits
from pinfold.compat.pmll import PMMemoryStore, QPromiseRegistry, embed, peek_context, resolve_context, retrieve_with_traversal, search_graph, upsert_node
from pinfold.errors import Refused
from pinfold.operations import BY_NAME, BY_TOOL, Call, run

ROOT = Path(__file__).resolve().parents[2]
S = "s"


@pytest.fixture
def session(graphs):
    return graphs.session(S)


def call(memory: Memory, tool: str, **arguments: Any) -> Any:
    return run(BY_TOOL[tool], Call(memory, S), arguments)


# --- A. correctness ---------------------------------------------------------------------------------------------


def test_01_promises_can_be_made_settled_and_seen_by_tools(graphs):
    claimed = call(graphs, "peek", key="work", claim=True)
    assert call(graphs, "peek", key="work")["status"] == "pending"
    assert call(graphs, "resolve", promise_id="work", token=claimed["token"], payload="done")["status"] == "resolved"
    assert call(graphs, "peek", key="work")["value"] == "done"


def test_02_an_unknown_promise_is_unknown_not_pending(graphs, session):
    assert call(graphs, "resolve", promise_id="never")["status"] == session.promise("never").status == "unknown"


def test_03_a_resolved_promise_is_a_hit_with_its_payload():
    registry = QPromiseRegistry()
    registry.register("k")
    registry.resolve("k", "payload")
    assert peek_context("k", S, PMMemoryStore(), registry) == {"hit": True, "value": "payload", "index": None}


def test_04_no_payload_is_lost_and_a_failed_owner_blocks_nobody(session):
    registry = QPromiseRegistry()
    registry.register("k")
    registry.resolve("k", "first")
    registry.register("k")
    assert registry.resolve("k", "second") is False and registry.peek_promise("k")[2] == "first"
    claim = session.claim("work")
    session.reject(claim, "no luck")
    assert type(session.claim("work")) is Claimed


def test_05_promises_of_two_sessions_do_not_meet(graphs):
    graphs.session("a").claim("search")
    assert type(graphs.session("b").peek("search")) is Miss


def test_06_of_two_who_miss_exactly_one_may_start(session):
    assert [type(session.claim("work")) for _ in range(2)] == [Claimed, Pending]


def test_07_an_unrelated_key_is_a_miss_on_a_full_graph():
    for n, text in enumerate(("OAuth login with refresh tokens", "containers ship to production", "the billing job runs hourly")):
        upsert_node(S, "concept", f"n{n}", text)
    found = resolve_context(S, "zeppelins over Mongolia", PMMemoryStore())
    assert (found["source"], found["value"]) == ("miss", None) and found["score"] < 0.5


def test_08_depth_limits_lose_no_node_and_depth_is_the_shortest(session):
    a, b, c, d = (session.upsert_node("concept", name, "x").node_id for name in "abcd")
    for one, other in ((a, b), (b, c), (a, c), (c, d)):
        session.create_relation(one, other, "depends_on")
    assert {r.node.id: (r.depth, r.relevance_score) for r in retrieve_with_traversal(S, a, 2)} == {a: (0, 100.0), b: (1, 76.9), c: (1, 76.9), d: (2, 62.5)}


def test_09_weights_rank_and_scores_stay_between_0_and_100(session):
    a = session.upsert_node("concept", "auth", "OAuth login with refresh tokens").node_id
    ends = [session.upsert_node("file", f"f{n}", f"unlike number {n}").node_id for n in range(4)]
    for end, weight in zip(ends, (-3, 0.1, 0.8, 5), strict=True):
        session.create_relation(a, end, "references", weight)
    near = session.search("OAuth refresh", top_k=1).neighbors
    assert [n.node_id for n in near] == [ends[3], ends[2]] and 100 >= near[0].score > near[1].score > 0
    assert [r.score for r in session.traverse(a).results] == [100.0, 76.9, 61.5, 7.7, 0.0]


def test_10_a_neighbour_that_answers_nothing_stays_below_the_hit_it_hangs_on(session):
    a = session.upsert_node("concept", "auth", "tokens").node_id
    session.create_relation(a, session.upsert_node("file", "other", "unlike").node_id, "references")
    found = session.search("tokens of a bus in Lisbon", top_k=1)
    assert all(near.score <= 0.4 * found.direct[0].score + 0.1 for near in found.neighbors)


def test_11_asserting_a_link_again_renews_its_age(session, clock):
    a, b = (session.upsert_node("concept", name, "x").node_id for name in "ab")
    session.create_relation(a, b, "depends_on")
    clock.pass_days(30)
    session.create_relation(a, b, "depends_on")
    clock.pass_days(30)
    assert session.prune().remaining_edges == 1


def test_12_orphans_go_in_time_however_often_they_were_written_and_reading_keeps_none(session, clock):
    for _ in range(3):
        session.upsert_node("concept", "often", "x")
    session.upsert_node("concept", "once", "y")
    clock.pass_days(8)
    session.search("y once")
    session.traverse("CONCEPT2")
    assert [row["id"] for row in session.prune().what] == ["CONCEPT2"]
    clock.pass_days(400)
    assert [row["id"] for row in session.prune().what] == ["CONCEPT1"]


def test_13_a_slot_is_promoted_at_its_third_hit_where_the_session_opted_in(graphs):
    session = graphs.session("p", promote_after=3)
    session.set("k", "worth keeping")
    for hits in range(1, 6):
        session.peek("k")
        assert session.status().long_term["nodes"] == (hits >= 3)
    assert session.resolve_context("k").source == "short_term"
    session.drop("k")
    assert (session.resolve_context("k").value, session.status().promotion_threshold) == ("worth keeping", 3)


def test_14_a_chain_of_1500_is_walked_and_senseless_bounds_are_refused(session):
    session.mutate("\n".join([f"+ NOTE [N{n}] ; content=x" for n in range(1_500)] + [f"+ [N{n}] --(next)--> [N{n + 1}]" for n in range(1499)]))
    found = session.traverse("N0", max_depth=5000, limit=2000).results
    assert [r.depth for r in found] == list(range(1_500))
    for wrong in ({"max_depth": -1}, {"limit": -1}, {"max_depth": 1.5}):
        with pytest.raises(Refused):
            session.traverse("N0", **wrong)
    for wrong in ({"top_k": -1}, {"max_depth": -2}, {"top_k": True}):
        with pytest.raises(Refused):
            session.search("x", **wrong)
    for threshold in (math.nan, -1, 2, "x"):
        with pytest.raises(Refused):
            session.prune(threshold)


def test_15_a_bulk_write_is_whole_or_nothing_counts_rightly_and_links_the_most_similar(session):
    with pytest.raises(Refused) as refused:
        session.add_interlinked([{"type": "note", "label": "a", "content": "x"}, {"type": "note", "label": "b"}])
    assert (refused.value.fields["place"], session.status().seq) == (1, 0)
    done = session.add_interlinked([{"type": "note", "label": "a", "content": "same"}] * 2)
    assert (done.nodes_created, done.edges_created, len(done.nodes)) == (1, 0, 1)
    text = "tokens are refreshed hourly by the gateway of region"
    session.mutate("\n".join(f"+ NOTE [OLD{n}] ; content=bread number {n} is baked at noon" for n in range(300)))
    session.mutate(f"+ NOTE [NEW1x] ; content={text} north")
    done = session.add_interlinked([{"type": "note", "label": "late", "content": f"{text} south"}])
    assert [edge["target"] for edge in done.edges] == ["NEW1x"]
    alike = "the ferry to the island leaves at nine"
    session.mutate(
        "\n".join(f"+ NOTE [A{n:03}] ; content={alike} o'clock" for n in range(100))
        + "\n"
        + "\n".join(f"+ NOTE [S{n:03}] ; content={alike}" for n in range(150))
    )
    done = session.add_interlinked([{"type": "note", "label": "ferry", "content": alike}])
    assert done.edges_created == 200 and sum(edge["target"].startswith("S") and edge["weight"] == 1 for edge in done.edges) == 150, "the most similar 200"


def test_16_metadata_is_copied(session):
    mine = {"a": "1"}
    node = upsert_node(S, "concept", "x", "y", mine)
    upsert_node(S, "concept", "x", "y", {"b": "2"})
    assert mine == {"a": "1"} and node.metadata == {"a": "1"}


def test_17_looking_creates_nothing(graphs):
    for look in ("peek", "resolve_context"):
        call(graphs, look, key="k")
    call(graphs, "memory_status")
    call(graphs, "search_memory_graph", query="x")
    assert graphs.sessions() == []


def test_18_types_relations_and_weights_are_checked(session):
    a, b = (session.upsert_node("concept", name, "x").node_id for name in "ab")
    wrong = [
        lambda: session.upsert_node("no type!", "x", "y"),
        lambda: session.create_relation(a, b, "no relation!"),
        lambda: session.create_relation(a, b, "depends_on", math.nan),
        lambda: session.create_relation(a, b, "depends_on", True),
        lambda: session.create_relation(a, a, "depends_on"),
        lambda: session.upsert_node("concept", "", "y"),
        lambda: session.upsert_node("concept", "x", "\ud800"),
    ]
    codes = []
    for refused in wrong:
        with pytest.raises(Refused) as caught:
            refused()
        codes.append(caught.value.code)
    assert codes == ["bad_type", "bad_relation", "bad_weight", "bad_weight", "self_loop", "bad_value", "bad_value"]
    session.mutate("SCHEMA TSK ; fields=goal\nSCHEMA relations ; names=needs")
    for refused, code in (
        (lambda: session.upsert_node("banana", "x", "y"), "unknown_kind"),
        (lambda: session.create_relation(a, b, "likes"), "unknown_relation"),
    ):
        with pytest.raises(Refused) as caught:
            refused()
        assert caught.value.code == code


# --- B. retrieval -----------------------------------------------------------------------------------------------


def test_19_searching_elsewhere_moves_no_score_and_vectors_do_not_age():
    upsert_node("a", "concept", "n", "the gateway refreshes tokens")
    before = [(r.node.id, r.relevance_score) for r in search_graph("a", "gateway tokens").direct]
    vector = embed("gateway")
    for n in range(50):
        search_graph("b", f"gateway {n}")
    assert [(r.node.id, r.relevance_score) for r in search_graph("a", "gateway tokens").direct] == before and embed("gateway") == vector


def test_20_reading_grows_nothing(session):
    session.upsert_node("concept", "n", "the gateway refreshes tokens")
    session.search("gateway")
    index = session._replica.recall._index
    before = len(index.to_bytes())
    for n in range(100):
        session.search(f"unheard{n} of{n}")
    assert (len(index.to_bytes()), session.status().seq) == (before, 1)


def test_21_identical_content_always_links_in_a_store_of_any_size(session):
    session.mutate("\n".join(f"+ NOTE [N{n}] ; content=bread number {n} is baked at noon" for n in range(300)))
    session.upsert_node("note", "one", "父进程 watchdog")
    done = session.add_interlinked([{"type": "note", "label": "two", "content": "父进程 watchdog"}])
    assert [(edge["target"], edge["weight"]) for edge in done.edges] == [("NOTE1", 1.0)]


def test_22_one_shared_word_makes_no_link(session):
    session.upsert_node("note", "short", "token")
    long = "a token is issued by the gateway once a user of the billing portal has confirmed an invoice by mail from Lisbon"
    assert session.add_interlinked([{"type": "note", "label": "long", "content": long}]).edges == []


def test_23_an_exact_label_is_first_and_a_node_is_found_by_its_own_words(session):
    session.upsert_node("concept", "login", "login login login handler login")
    session.upsert_node("concept", "login handler", "see the other one")
    assert session.search("login handler").direct[0].label == "login handler"
    for n in range(200):
        session.remember(f"unit{n} of the fleet left harbour{n % 17} with cargo{n % 23}")
    found = [session.search(f"unit{n} harbour{n % 17}", top_k=1).direct[0].content.split()[0] for n in range(0, 200, 9)]
    assert found == [f"unit{n}" for n in range(0, 200, 9)]


def test_24_word_forms_identifiers_ids_and_metadata_are_found(session):
    node = session.upsert_node("symbol", "login_handler", "checks a password", {"owner": "Zephyrine"}).node_id
    session.upsert_node("symbol", "deploy", "ships containers")
    for query in ("logins", "loginHandler", "login_handler", node, "zephyrine"):
        assert session.search(query).direct[0].node_id == node, query


def test_25_other_scripts_and_metadata_are_searchable(session):
    node = session.upsert_node("note", "сервер", "перезапуск 父进程 ночью", {"причина": "утечка памяти"}).node_id
    for query in ("перезапуска", "父进程", "утечка"):
        assert session.search(query).direct[0].node_id == node, query


def test_26_keys_can_be_listed_by_prefix_and_dropped_one_by_one(session):
    for key in ("a:1", "a:2", "b"):
        session.set(key, "v")
    session.drop("a:1")
    assert session.keys("a:") == ["a:2"]


# --- C. durability and resources --------------------------------------------------------------------------------


def test_27_slots_promises_and_graph_survive_a_restart(sqlite_url, open_memory):
    session = open_memory(sqlite_url).session(S)
    session.set("k", "v")
    session.claim("work", 60)
    session.upsert_node("concept", "auth", "OAuth")
    again = open_memory(sqlite_url).session(S)
    assert type(again.peek("k")) is Hit and type(again.peek("work")) is Pending and again.search("OAuth").direct


def test_28_the_variables_that_are_named_are_read(monkeypatch, tmp_path):
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("PINFOLD_EMBEDDER", "none")
    with Memory() as memory:
        assert memory.url.endswith("store.db") and memory.session(S)._engine.embedder == "none"


def test_29_two_handles_see_each_other_and_share_a_label(sqlite_url, open_memory):
    a, b = open_memory(sqlite_url).session(S), open_memory(sqlite_url).session(S)
    a.search("x")
    first = b.upsert_node("concept", "auth", "OAuth login")
    assert a.search("OAuth").direct[0].node_id == first.node_id
    again = a.upsert_node("concept", "auth", "OAuth login, again")
    assert (again.node_id, again.created, b.status().long_term["nodes"]) == (first.node_id, False, 1)


def test_30_reading_writes_nothing(session):
    session.upsert_node("concept", "auth", "OAuth login")
    before = session.status().seq, session.state_hash()
    session.search("OAuth")
    session.traverse("CONCEPT1")
    session.resolve_context("OAuth")
    assert (session.status().seq, session.state_hash()) == before


def test_31_threads_may_write_and_search_at_once(session):
    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for m in range(25):
                session.upsert_node("concept", f"{n}:{m}", f"text {m} of worker{n}")
                session.search(f"worker{n} text")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and session.status().long_term["nodes"] == 150


def test_32_a_full_store_evicts_without_looking_at_every_slot():
    store = PMMemoryStore(20_000)
    for n in range(20_000):
        store.set(f"k{n}", "v")
    assert len(store._recency.order) == 20_000 and next(iter(store._recency.order)) == "k0"
    store.set("one more", "v")
    assert "k0" not in store and len(store) == 20_000


def test_33_ttl_and_sizes_are_bounded(graphs, clock):
    session = graphs.session("t")
    session.set("k", "v", ttl_s=60)
    clock.pass_days(1)
    assert type(session.peek("k")) is Miss
    with pytest.raises(Refused) as refused:
        session.upsert_node("concept", "big", "x" * (limits.CONTENT_BYTES + 1))
    assert refused.value.code == "value_too_large"


def test_34_an_upsert_and_a_relation_look_nothing_up_by_scanning(session):
    session.upsert_node("concept", "first", "x")
    session.mutate("\n".join(f"+ NOTE [N{n}] ; label=l{n} ; content=x" for n in range(3000)))
    graph = session._view().graph
    assert list(graph.labelled("NOTE", "l2999")) == ["N2999"]
    session.mutate("~ [N2999] ; label=renamed\n- N5")
    assert (list(graph.labelled("NOTE", "l2999")), list(graph.labelled("NOTE", "renamed")), list(graph.labelled("NOTE", "l5"))) == ([], ["N2999"], [])
    assert session.upsert_node("note", "renamed", "y").node_id == "N2999"


def test_35_a_text_of_many_distinct_words_is_searched_like_any_other(session):
    """200,000 words, there the end of it, are more than a content may have; what fits costs its length, and no more."""
    session.remember(" ".join(f"w{n:05}" for n in range(5_000)))
    session.remember("something else")
    found = session.search("w04999").direct
    assert found[0].node_id == "NOTE1" and found[0].score > 50
    with pytest.raises(Refused) as refused:
        session.remember(" ".join(f"w{n:06}" for n in range(200_000)))
    assert refused.value.code == "value_too_large"


def test_36_ids_that_are_names_of_the_language_are_just_not_there(session):
    session.upsert_node("concept", "a", "x")
    for name in ("constructor", "toString", "__class__", "__proto__"):
        with pytest.raises(Refused) as refused:
            session.create_relation("CONCEPT1", name, "depends_on")
        assert (refused.value.code, refused.value.fields["id"]) == ("not_found", name)


def test_37_a_server_answers_others_while_it_searches(graphs):
    from pinfold.doors.mcp import Door

    door = Door(graphs, default_session=lambda: S)
    graphs.session(S).mutate("\n".join(f"+ NOTE [N{n}] ; content=text number {n}" for n in range(2000)))

    async def both() -> list[str]:
        done: list[str] = []

        async def ask(tool: str, **arguments: Any) -> None:
            await door.answer(tool, arguments, lambda *_: None, None)
            done.append(tool)

        await asyncio.gather(ask("search_memory_graph", query="number 7"), ask("peek", key="k"))
        return done

    assert asyncio.run(both())[0] == "peek"


# --- D. interface, packaging, documents -------------------------------------------------------------------------


def test_38_the_mcp_sdk_is_bounded_above():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all("<" in need for need in project["optional-dependencies"]["mcp"])


@pytest.mark.parametrize(
    ("ts", "python"),
    [
        ("create_relation", "create_memory_relation"), ("prune_stale_links", "prune_memory_links"), ("add_interlinked_context", "add_interlinked_memory"),
        ("retrieve_with_traversal", "retrieve_memory_traversal"), ("resolve_context", "resolve_memory_context"),
        ("promote_to_long_term", "promote_memory_to_long_term"),
    ],
)  # fmt: skip
def test_39_both_spellings_of_a_tool_are_one_tool(ts, python):
    assert BY_TOOL[ts] is BY_TOOL[python]


def test_39_a_promotion_names_its_node_both_ways(graphs):
    done = call(graphs, "promote_to_long_term", key="k", value="v")
    assert done["node_id"] == done["nodeId"] and done["promoted"] is True


def test_40_no_tool_posts_to_a_url_somebody_names(graphs):
    named = {row.name for row in BY_NAME.values() if {"endpoint", "url", "headers"} & {param.name for param in row.params}}
    assert named <= {"graphql"}  # which knows PMLL's words only to refuse them
    for argument in ({"endpoint": "http://127.0.0.1:1/"}, {"headers": {"a": "b"}}, {"cache_key": "k"}):
        with pytest.raises(Refused):
            call(graphs, "graphql", query="{ __typename }", **argument)


def test_41_the_instructions_name_only_tools_and_arguments_that_exist():
    from pinfold.doors.mcp import INSTRUCTIONS
    from pinfold.doors.surface import prompt_text, prompts

    texts = [INSTRUCTIONS, *(prompt_text(prompt["name"], _given(prompt))[1] for prompt in prompts())]
    arguments = {param.name for row in BY_NAME.values() for param in row.params} | {"session_id"}
    for text in texts:
        named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text))
        assert named <= set(BY_TOOL) | arguments, named
    assert {"peek", "set", "resolve"} <= set(re.findall(r"[a-z]+", INSTRUCTIONS)) & set(BY_TOOL)


def _given(prompt):
    return {argument["name"]: "x" for argument in prompt["arguments"]}


def test_42_an_error_is_flagged_and_says_which_id_was_missing(graphs):
    from pinfold.doors.mcp import Door

    door = Door(graphs, default_session=lambda: S)
    arguments = {"source_id": "nope", "target_id": "no", "relation": "x"}
    text, _, is_error = asyncio.run(door.answer("create_relation", arguments, lambda *_: None, None))
    assert is_error and "nope" in json.loads(text)["error"]["message"]


def test_43_what_was_written_can_be_listed_exported_and_deleted_and_saved_work_is_counted(graphs, session):
    session.upsert_node("concept", "a", "x")
    session.set("k", "v")
    assert call(graphs, "read_list")["total"] == 1 and call(graphs, "keys")["keys"] == ["k"]
    assert call(graphs, "diff", a=0)["text"].startswith("+ CONCEPT [CONCEPT1] ; label=a") and call(graphs, "log")["entries"]
    assert call(graphs, "mutate", text="- CONCEPT1")["dropped"] == ["CONCEPT1"]
    call(graphs, "drop", keys=["k"])
    assert call(graphs, "keys")["keys"] == [] and call(graphs, "session_close")["status"] == "ended"
    session = graphs.session(S)
    session.set("k", "v")
    session.once("k", lambda: "never run")
    assert call(graphs, "memory_status")["ledger"]["executions_avoided"] == 1


def test_44_no_page_claims_an_accuracy_that_nothing_measures():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert "99% accura" not in page.read_text(encoding="utf-8")
