"""Long-term memory of a session: which session keeps it, traversal, decay, budgets, filters, promotion, refusals."""

from __future__ import annotations

import datetime
import math
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold import Memory, limits
from pinfold.errors import DocumentRefused, Refused
from pinfold.journal.memory import MemoryJournal

DAY_MS = 86_400_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(clock):
    memory = Memory(journal=MemoryJournal(clock))
    yield memory
    memory.close()


# --- traversal --------------------------------------------------------------------------------------------------


def textbook(edges: list[tuple[int, int]], start: int, depth: int) -> dict[int, int]:
    near: dict[int, set[int]] = {}
    for a, b in edges:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    found, queue = {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        for other in near.get(at, ()):
            if other not in found and found[at] < depth:
                found[other] = found[at] + 1
                queue.append(other)
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40), st.integers(0, 5), st.randoms(use_true_random=False))
def test_a_limited_traversal_is_a_textbook_breadth_first_search(pairs, depth, dice):
    edges = list(dict.fromkeys((a, b) for a, b in pairs if a != b))
    with Memory("memory://", background=False) as memory:
        session = memory.session("s")
        dice.shuffle(edges)
        session.mutate("\n".join([f"+ NOTE [N{n}] ; content=x" for n in range(13)] + [f"+ [N{a}] --(next)--> [N{b}]" for a, b in edges]))
        found = session.traverse("N0", max_depth=depth)
        assert {int(r.node_id[1:]): r.depth for r in found.results} == textbook(edges, 0, depth) and found.complete
        assert all(len(r.path) == 2 * r.depth + 1 for r in found.results)


def test_a_star_of_ten_thousand_is_walked_whole_or_as_far_as_asked(session):
    for begin in range(0, 10_000, 2_500):
        lines = [f"+ NOTE [N{n}] ; content=x\n+ [HUB] --(has)--> [N{n}]" for n in range(begin, begin + 2_500)]
        session.mutate("\n".join([*(["+ NOTE [HUB] ; content=hub"] if not begin else []), *lines]))
    found = session.traverse("HUB", max_depth=3)
    assert (len(found.results), found.total, found.complete) == (1_000, 10_001, True)
    assert len(session.traverse("N1", max_depth=2, limit=20_000).results) == 10_001


def test_of_two_short_ways_the_stronger_counts_whatever_was_made_first(memory):
    for name, order in (("one", 1), ("other", -1)):
        session = memory.session(name)
        session.mutate("\n".join(f"+ NOTE [{id}] ; content=x" for id in "ABCD"))
        for a, b, weight in [("A", "B", 1.0), ("A", "C", 1.0), ("B", "D", 0.2), ("C", "D", 0.9)][::order]:
            session.create_relation(a, b, "next", weight)
        assert [(r.node_id, r.score) for r in session.traverse("A").results] == [("A", 100.0), ("B", 76.9), ("C", 76.9), ("D", 56.2)]


def test_an_arrow_followed_backwards_says_so(session):
    session.mutate("+ NOTE [A] ; label=a ; content=x\n+ NOTE [B] ; label=b ; content=y\n+ [A] --(needs)--> [B]")
    assert session.traverse("B").results[1].path == ["b", "<--[needs]--", "a"]


def test_an_unknown_start_is_refused_with_what_is_near(session):
    session.upsert_node("concept", "a", "x")
    with pytest.raises(Refused) as refused:
        session.traverse("CONCEPT2")
    assert (refused.value.code, refused.value.fields["near"]) == ("not_found", ["CONCEPT1"])


# --- which session ----------------------------------------------------------------------------------------------


def test_a_named_long_term_session_keeps_what_is_written_and_both_are_read(memory):
    session, kept = memory.session("work", long_term="kept"), memory.session("kept")
    node = session.upsert_node("concept", "auth", "OAuth login")
    other = session.add_interlinked([{"type": "note", "label": "n", "content": "unlike"}]).nodes[0]["id"]
    session.create_relation(node.node_id, other, "references")
    session.mutate("+ TSK [T1] ; goal=fix the OAuth redirect")
    assert [len(s._view().graph.nodes) for s in (session, kept)] == [1, 2]
    found = session.search("OAuth", max_depth=0)
    assert {(hit.node_id, hit.session) for hit in found.direct if hit.score} == {("T1", "work"), ("CONCEPT1", "kept")}
    assert (found.total_nodes, found.total_edges) == (3, 1)
    assert {hit.session for hit in session.search("OAuth", session="kept", max_depth=0).direct} == {"kept"}
    assert session.resolve_context("auth").session == "kept"
    assert session.traverse("CONCEPT1").results == session.traverse("kept/CONCEPT1").results
    assert session.traverse("work/T1").start_node == "T1"
    assert session.status().long_term["session"] == "kept"
    assert all(hit.node_id != "T1" for hit in kept.search("redirect").direct)


def test_a_promotion_goes_to_the_long_term_session_and_says_where_from(memory):
    session = memory.session("work", long_term="kept")
    session.set("decision", {"use": "SQLite"})
    done = session.promote("decision", metadata={"by": "review"})
    row = memory.session("kept")._view().graph.nodes[done.node_id]
    assert row.fields == {"label": "decision", "content": '{"use":"SQLite"}', "by": "review", "from_session": "work", "from_seq": "2"}
    assert session.promote("decision").node_id == done.node_id


def test_promotion_refuses_what_is_not_there_or_no_text(session):
    long = "x" * (limits.CONTENT_BYTES + 1)
    for value, code in ((None, "not_found"), (b"\xff", "bad_value"), (long, "value_too_large"), ({"n": math.nan}, "bad_value"), ({1, 2}, "bad_value")):
        with pytest.raises(Refused) as refused:
            session.promote("k", value)
        assert refused.value.code == code


def test_hits_of_two_handles_add_up_to_one_promotion(sqlite_url, open_memory):
    a = open_memory(sqlite_url).session("s", promote_after=4)
    a.set("k", "v1")
    for _ in range(2):
        a.peek("k")
    a._replica.flush_touches()
    b = open_memory(sqlite_url).session("s")
    assert b.status().long_term["nodes"] == 0
    for _ in range(2):
        b.peek("k")
    assert b.search("k").direct[0].content == "v1"
    seq = b.status().seq
    for _ in range(5):
        a.peek("k")
        b.peek("k")
    a._replica.flush_touches()
    assert a._view().graph.nodes["CONCEPT1"].extra is None and seq <= a.status().seq <= seq + 1
    a.set("k", "v2")
    for _ in range(4):
        a.peek("k")
    assert a._view().graph.nodes["CONCEPT1"].get("content") == "v2"


def test_without_opting_in_nothing_is_promoted(session):
    session.set("k", "v")
    for _ in range(10):
        session.peek("k")
    assert session.status().long_term["nodes"] == 0


# --- decay and time ---------------------------------------------------------------------------------------------


def test_a_conversation_of_242_days_ago_is_found_like_one_of_today(timed, clock):
    session = timed.session("s")
    names = ["Ann", "Ben"]
    for n in range(60):
        session.remember(
            f"story {n}: we met {['Clara', 'Dora', 'Emil'][n % 3]} at pier{n} and ate mango{n}", by=names[n % 2], group=f"g{n // 10}", at=clock.now_ms
        )
    fresh = [[h.node_id for h in session.search(f"who was at pier{n}", max_depth=0).direct[:3]] for n in range(0, 60, 5)]
    clock.now_ms += 242 * DAY_MS
    old = [[h.node_id for h in session.search(f"who was at pier{n}", max_depth=0).direct[:3]] for n in range(0, 60, 5)]
    assert old == fresh and all(n * 5 + 1 == int(ids[0][4:]) for n, ids in enumerate(old))
    session.prune()
    assert session.search("pier7").direct[0].node_id == "NOTE8", "what was said is no orphan"


def test_age_costs_a_row_some_rank_but_not_what_is_pinned(timed, clock):
    session = timed.session("s")
    session.mutate("+ NOTE [A] ; content=the door is red ; pinned=true\n+ NOTE [B] ; content=the door is blue\n+ NOTE [C] ; content=the lamp is on")
    clock.now_ms += 60 * DAY_MS
    session.mutate("+ NOTE [D] ; content=the door is grey")
    lost = {h.node_id: h.parts.get("decay", 0.0) for h in session.search("door", explain=True).direct if h.score}
    assert lost["A"] == lost["D"] == 0.0 > lost["B"] > -0.2


def test_pinned_and_persistent_links_outlive_pruning_and_dry_runs_change_nothing(timed, clock):
    session = timed.session("s")
    session.mutate(
        "+ NOTE [A] ; content=x\n+ NOTE [B] ; content=y\n+ NOTE [C] ; content=z\n+ [A] --(next)--> [B] ; pinned=true\n"
        "+ [B] --(next)--> [C] ; recycle=persistent\n+ [A] --(next)--> [C]"
    )
    clock.now_ms += 100 * DAY_MS
    dry = session.prune(dry_run=True)
    assert (dry.status, dry.removed, [row["id"] for row in dry.what]) == ("would_prune", 1, ["E3"]) and "faded" in dry.what[0]["why"]
    assert session.prune().remaining_edges == 2 == len(session._view().graph.edges)
    assert session.undo(session.status().seq).lines, "pruning is one entry and can be taken back"


MOMENTS = [
    ("2026-05-08", "2026-05-08T00:00:00Z"),
    ("2026-05-08T10:00:00+02:00", "2026-05-08T08:00:00Z"),
    (1_790_000_000_000, "2026-09-21T14:13:20Z"),
    (datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC), "2100-01-01T00:00:00Z"),
]


@pytest.mark.parametrize(("given_at", "kept"), MOMENTS)
def test_event_times_are_kept_even_future_ones(session, given_at, kept):
    session.remember("hello there", at=given_at)
    assert session._view().graph.nodes["NOTE1"].get("at") == kept
    assert session.search("hello").direct[0].at == kept


@pytest.mark.parametrize("wrong", ["2026-05-08T10:00:00", datetime.datetime(2026, 5, 8), "yesterday", math.nan, 1.5, True, 10**18, []])
def test_naive_and_senseless_times_are_refused(session, wrong):
    for ask in (lambda: session.remember("x", at=wrong), lambda: session.search("x", since=wrong)):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code == "bad_time"


# --- filters, budgets, explanations -----------------------------------------------------------------------------


@pytest.fixture
def library(session):
    session.remember("the zeppelin lands at noon", by="Ann", group="g", at="2026-01-10")
    session.remember("the zeppelin starts at dusk", by="Ben", group="h", at="2026-03-10")
    session.upsert_node("concept", "airship", "another word for zeppelin", {"prio": "3", "odd-name": "x"})
    session.mutate("+ TSK [T1] ; goal=paint the zeppelin ; prio=10")
    return session


@pytest.mark.parametrize(
    ("narrowed", "expected"),
    [
        ({"kinds": "note"}, {"NOTE1", "NOTE2"}),
        ({"kinds": ["concept", "TSK"]}, {"CONCEPT1", "T1"}),
        ({"group": "g"}, {"NOTE1"}),
        ({"where": {"prio": {"$gte": 3}}}, {"CONCEPT1", "T1"}),
        ({"where": {"prio": {"$gt": 3, "$lt": 11}}}, {"T1"}),
        ({"where": {"prio": {"$lte": 3}}}, {"CONCEPT1"}),
        ({"where": {"prio": {"$ne": "10"}, "kind": {"$in": ["TSK", "CONCEPT"]}}}, {"CONCEPT1"}),
        ({"where": {"prio": {"$eq": 10}}}, {"T1"}),
        ({"where": {"odd-name": "x"}}, {"CONCEPT1"}),
        ({"where": "prio>=3 and prio<10"}, {"CONCEPT1"}),
        ({"until": "2026-02-01"}, {"NOTE1"}),
        ({"since": "2026-02-01", "until": "2026-04-01"}, {"NOTE2"}),
        ({"actor": "nobody"}, set()),
    ],
)
def test_filters_narrow_the_answer_and_never_the_scores(library, narrowed, expected):
    whole = {h.node_id: h.score for h in library.search("zeppelin", top_k=10).direct}
    found = library.search("zeppelin", top_k=10, **narrowed).direct
    assert {h.node_id for h in found} == expected
    assert all(h.score == whole[h.node_id] for h in found)


@pytest.mark.parametrize("wrong", [{"where": {"a": {"$like": 1}}}, {"where": {"a": {"$in": "text"}}}, {"where": {"a": [1]}}, {"where": 7}, {"where": "a ~ b"}])
def test_a_senseless_filter_is_refused(library, wrong):
    with pytest.raises(Refused) as refused:
        library.search("zeppelin", **wrong)
    assert refused.value.code == "bad_where"


def test_a_budget_skips_what_does_not_fit_and_is_never_silent(session):
    session.mutate(
        f"+ NOTE [LONG] ; content=zeppelin zeppelin {'and more ' * 400}\n+ NOTE [S1] ; content=a zeppelin lands\n+ NOTE [S2] ; content=one more zeppelin"
    )
    found = session.search("zeppelin", budget_tokens=250, explain=True)
    assert {h.node_id for h in found.direct} == {"S1", "S2"} and found.tokens <= 250
    assert "did not fit" in found.note and found.suppressed["budget"] == ["LONG"]
    assert session.search("more zeppelin", where={"id": "LONG"}, budget_tokens=100).note.startswith("1 match needs ")
    for wrong in (-1, "many", 1.5, True):
        with pytest.raises(Refused) as refused:
            session.search("zeppelin", budget_tokens=wrong)
        assert refused.value.code == "bad_argument"


@pytest.mark.parametrize("name", ["kinds", "group", "actor", "edge_filter"])
def test_names_to_narrow_by_are_texts(library, name):
    for wrong in (5, [5], b"x", {"a": 1}.values()):
        with pytest.raises(Refused) as refused:
            library.search("zeppelin", **{name: wrong})
        assert refused.value.code == "bad_argument" and f"{name}=" in refused.value.message


def test_explain_gives_each_part_and_what_filters_kept_back(library):
    found = library.search("zeppelin", explain=True, kinds="note", top_k=10)
    assert all(hit.parts.get("words", 0) > 0 for hit in found.direct)
    assert set(found.suppressed["filters"]) == {"CONCEPT1", "T1"}
    assert not library.search("zeppelin").direct[0].parts


def test_pages_follow_each_other(session):
    session.mutate("\n".join(f"+ NOTE [N{n:02}] ; content=zeppelin {n:02}" for n in range(12)))
    seen, offset = [], 0
    while offset is not None:
        page = session.search("zeppelin", top_k=5, offset=offset)
        seen += [hit.node_id for hit in page.direct]
        offset = page.next_offset
    assert sorted(seen) == [f"N{n:02}" for n in range(12)]


def test_duplicates_are_one_hit_with_a_count_and_contradictions_are_two(session):
    for text in ("the door is red", "The door is  red", "the door is blue"):
        session.remember(text)
    found = session.search("door").direct
    assert sorted((hit.count, hit.content) for hit in found) == [(1, "the door is blue"), (2, "the door is red")]


def test_an_exact_label_or_id_is_always_first(session):
    dice = random.Random(2)
    words = ["login", "token", "gateway", "deploy", "billing"]
    for n in range(80):
        session.upsert_node("concept", " ".join(dice.choices(words, k=3)) + f" {n}", " ".join(dice.choices(words, k=12)))
    session.upsert_node("note", "login", "nothing to do with it")
    assert session.search("login").direct[0].label == session.search("LOGIN ").direct[0].label == "login"
    assert session.search("CONCEPT7").direct[0].node_id == "CONCEPT7"
    assert session.resolve_context("login").score == 1.0


# --- resolving --------------------------------------------------------------------------------------------------


def test_resolving_looks_at_slot_then_work_then_memory_then_says_miss(session):
    assert (session.resolve_context("auth").source, session.resolve_context("auth").score) == ("miss", 0.0)
    session.upsert_node("concept", "auth", "OAuth with refresh tokens")
    assert (found := session.resolve_context("auth")).source == "long_term" and (found.node_id, found.score) == ("CONCEPT1", 1.0)
    claim = session.claim("auth")
    assert (found := session.resolve_context("auth")).source == "pending" and found.promise_id == "auth"
    session.fulfil(claim, {"n": 1})
    assert (found := session.resolve_context("auth")).source == "short_term" and (found.value, found.score) == ({"n": 1}, 1.0)


def test_the_bar_can_be_moved(session):
    session.upsert_node("concept", "auth", "OAuth login with refresh tokens for the billing gateway")
    score = session.resolve_context("tokens of the gateway in Lisbon, when it rains").score
    assert session.resolve_context("tokens of the gateway in Lisbon, when it rains", min_score=0).source == "long_term"
    assert session.resolve_context("tokens of the gateway in Lisbon, when it rains", min_score=min(1.0, score + 0.01)).source == "miss"
    for wrong in (math.nan, -1, 2, "x"):
        with pytest.raises(Refused):
            session.resolve_context("auth", wrong)


# --- pin maps from a query --------------------------------------------------------------------------------------


def test_a_pin_map_may_begin_at_what_answers_a_query(session):
    session.mutate("+ TSK [T1] ; goal=ship the zeppelin\n+ NPC [P1] ; role=pilot\n+ [P1] --(helps)--> [T1]\n+ TSK [T2] ; goal=unlike")
    shown = session.pin_map(query="zeppelin")
    assert "[T1]" in shown.text and "[P1]" in shown.text and "[T2]" not in shown.text
    assert session.pin_map(query="zeppelin", since=shown.etag).delta
    for query in ("Mongolia by night", "the"):
        with pytest.raises(Refused) as refused:
            session.pin_map(query=query)
        assert refused.value.code == "no_anchor"
    with pytest.raises(Refused) as refused:
        session.at(1).pin_map(query="zeppelin")
    assert refused.value.code == "bad_argument"


# --- writing ----------------------------------------------------------------------------------------------------


def test_odd_metadata_travels_as_one_field_and_can_be_taken_away(session):
    session.upsert_node("concept", "a", "x", {"team": "core", "a key": 1, "label": "mine", "nested": {"n": [1]}})
    fields = session._view().graph.nodes["CONCEPT1"].fields
    assert fields == {"label": "a", "content": "x", "team": "core", "nested": '{"n":[1]}', "meta": '{"a key":1,"label":"mine"}'}
    session.upsert_node("concept", "a", "x", {"team": None, "a key": "", "label": None})
    assert session._view().graph.nodes["CONCEPT1"].fields == {"label": "a", "content": "x", "nested": '{"n":[1]}'}
    for wrong in ([1], {1: "x"}, {"": "x"}, {"x": math.nan}, {"x": {1, 2}}, {"expires": "soon"}):
        with pytest.raises(Refused):
            session.upsert_node("concept", "a", "x", wrong)


def test_asserting_again_is_an_entry_of_its_own_and_counts(timed, clock):
    session = timed.session("s")
    session.upsert_node("concept", "a", "x")
    clock.now_ms += DAY_MS
    assert session.upsert_node("concept", "a", "x").access_count == 2
    row = session._view().graph.nodes["CONCEPT1"]
    assert (row.mark[1], "n" in row.fields, session.upsert_node("concept", "a", "x").access_count) == (clock.now_ms, False, 3)
    session.mutate("~ [CONCEPT1] ; content=y")
    assert session.upsert_node("concept", "a", "y").access_count == 4


def test_a_retried_request_is_done_once(session):
    first = session.upsert_node("concept", "a", "x", request_id="r1")
    assert session.upsert_node("concept", "a", "x", request_id="r1") == first
    assert session.remember("hi", request_id="r2") == session.remember("hi", request_id="r2")
    assert session.status().long_term["nodes"] == 2


def test_memories_and_lines_are_one_graph(session):
    session.upsert_node("concept", "auth flow", 'login; with =signs and "quotes"\nin two lines')
    line = session.get("CONCEPT1").items[0].line
    session.delete("CONCEPT1")
    session.mutate(f"+ {line}")
    assert session.upsert_node("concept", "auth flow", "new").created is False
    with pytest.raises(DocumentRefused):
        session.mutate("+ CONCEPT [CONCEPT1] ; label=x")


def test_pins_are_left_to_their_locators(session):
    session.mutate("SCHEMA PIN ; fields=path note ; pin=true")
    with pytest.raises(Refused) as refused:
        session.upsert_node("pin", "a", "x")
    assert refused.value.code == "pin_kind"


def test_an_absent_weight_changes_nothing_and_flush_leaves_memories(session):
    a, b = (session.upsert_node("concept", name, "x").node_id for name in "ab")
    first = session.create_relation(a, b, "depends_on", 0.4)
    again = session.create_relation(a, b, "depends_on", metadata=None)
    assert (again.edge_id, again.weight, again.status) == (first.edge_id, 0.4, "updated")
    weights = (-3, 1e6, 0.25, 10**400, -(10**400), math.inf)
    assert [session.create_relation(a, b, "depends_on", weight).weight for weight in weights] == [0.0, 1.0, 0.25, 1.0, 0.0, 1.0]
    session.set("k", "v")
    session.flush()
    assert session.status().long_term["edges"] == 1


def test_ids_of_another_session_are_not_found(memory):
    ids = [memory.session(name).upsert_node("concept", name, "x").node_id for name in ("one", "two")]
    memory.session("two").upsert_node("file", "f", "y")
    with pytest.raises(Refused) as refused:
        memory.session("one").create_relation(ids[0], "FILE1", "depends_on")
    assert refused.value.fields["id"] == "FILE1"


# --- long messages ------------------------------------------------------------------------------------------------


def test_what_was_said_is_kept_whole_found_and_saved_however_long(tmp_path, sqlite_url, open_memory):
    text = "zeppelin over the fjord. " + "log line, nothing to see\n" * 14_000
    assert limits.FIELD_VALUE_BYTES < len(text) < limits.CONTENT_BYTES
    memory = open_memory(sqlite_url)
    session = memory.session("s")
    session.remember(text, by="Ann", group="talk")
    session.upsert_node("note", "long", text)
    assert [hit.content for hit in session.search("zeppelin fjord", top_k=2).direct] == [text, text]
    memory.save("s", str(tmp_path / "saved.txt"))
    assert memory.load(str(tmp_path / "saved.txt"), "again").search("zeppelin fjord").direct[0].content == text
    assert "…+" in session.pin_map("NOTE1").text


@pytest.mark.parametrize(("field", "most"), [("content", limits.CONTENT_BYTES), ("label", limits.FIELD_VALUE_BYTES)])
def test_what_is_too_long_is_refused_with_its_limit(session, field, most):
    with pytest.raises(Refused) as refused:
        session.upsert_node("note", **{"label": "l", "content": "c", field: "x" * (most + 1)})
    assert refused.value.code == "value_too_large" and refused.value.limit_bytes == most
