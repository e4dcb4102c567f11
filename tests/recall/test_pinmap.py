from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold import limits
from pinfold.dialect.format import format_value
from pinfold.dialect.parse import parse_document
from pinfold.errors import DocumentRefused, Refused
from pinfold.recall import pinmap, walk
from pinfold.recall.pinmap import PinMap, etag_seq, pin_map
from pinfold.recall.tokens import estimate, line_tokens, o200k_counter
from pinfold.state.graph import Edge, line_of
from pinfold.testing import strategies
from pinfold.testing.graphs import GraphStore


def shown(store: GraphStore, *anchors: str, **args: object) -> PinMap:
    return pin_map(store.graph, anchors, now_ms=store.now_ms, schema=store.schema, **args)  # type: ignore[arg-type]


def town(seed: int, nodes: int = 60, edges: int = 150) -> GraphStore:
    rng = random.Random(seed)
    store = GraphStore("\n".join(f"+ TSK [T{i}] ; goal={'word ' * rng.randint(1, 12)}{i}" for i in range(nodes)))
    for _ in range(edges):
        try:
            store.mutate(f"+ [T{rng.randrange(nodes)}] --({rng.choice(('owns', 'next'))})--> [T{rng.randrange(nodes)}] ; note=n{rng.randrange(9)}")
        except DocumentRefused:
            pass
    return store


SMALL = "LAW02 name=b\nLAW01 name=a\n+ TSK [T1] ; goal=ship\n+ MOD [M1] ; path=a.py\n"
SMALL += "+ [T1] --(owns)--> [M1] ; note=core\n+ TSK [T2] ; goal=far\n+ [M1] --(next)--> [T2]"


def test_a_pin_map_shows_laws_anchors_what_is_near_and_a_footer() -> None:
    got = shown(GraphStore(SMALL), "T1")
    *lines, footer = got.text.split("\n")
    assert lines == [
        "## Laws",
        "LAW01 name=a",
        "LAW02 name=b",
        "## Nodes",
        "TSK [T1] ; goal=ship",
        "MOD [M1] ; path=a.py",
        "TSK [T2] ; goal=far",
        "## Edges",
        "E1 [T1] --(owns)--> [M1] ; note=core",
        "E2 [M1] --(next)--> [T2]",
    ]
    assert footer.startswith("# pinfold: seq=1 nodes=3/3 edges=2/2 tokens=") and f"etag={got.etag}" in footer
    assert (got.cursor, got.more, etag_seq(got.etag)) == ("", False, 1)


def test_depth_direction_relations_and_kinds_narrow_it() -> None:
    store = GraphStore(SMALL)
    assert shown(store, "T1", depth=1).ids == ("LAW01", "LAW02", "T1", "M1", "E1")
    assert shown(store, "T1", depth=0).ids == ("LAW01", "LAW02", "T1")
    assert shown(store, "M1", direction="in").ids == ("LAW01", "LAW02", "M1", "T1", "E1")
    assert shown(store, "M1", relations=["next"]).ids == ("LAW01", "LAW02", "M1", "T2", "E2")
    assert shown(store, "T1", kinds=["TSK"]).ids == ("LAW01", "LAW02", "T1", "T2")
    assert set(shown(store, "E1", depth=0).ids) == {"LAW01", "LAW02", "E1", "T1", "M1"}
    assert shown(store, "T2", "M1", max_rows=1).ids == ("LAW01", "LAW02", "T2")


@given(st.integers(0, 10_000), st.integers(64, 1_500), st.lists(strategies.values(), max_size=4), st.integers(0, 6))
@settings(max_examples=80, deadline=None)
def test_a_pin_map_is_never_over_its_budget_and_reads_back(seed: int, budget: int, values: list[str], depth: int) -> None:
    rng = random.Random(seed)
    store = town(seed % 7, 25, 50)
    for value in values:
        store.mutate(f"~ [T{rng.randrange(25)}] ; goal={format_value(value * rng.choice((1, 1, 30)))}")
    if seed % 3 == 0:
        store.mutate("\n".join(f"LAW{i} name={'x' * rng.randint(1, 90)}" for i in range(9)))
    anchors = [f"T{rng.randrange(25)}" for _ in range(rng.randint(1, 3))]
    got = shown(store, *anchors, budget_tokens=budget, depth=depth)
    assert estimate(got.text) <= got.tokens <= budget
    assert shown(store, *anchors, budget_tokens=budget, depth=depth) == got
    batch = parse_document(got.text)
    cut = sum("…+" in line for line in got.text.split("\n"))
    assert len(batch.problems) <= cut
    assert all(op.op == "" or op.form == "law" for op in batch.ops)
    seen = store.graph.nodes.keys() | store.graph.edges.keys() | store.graph.laws.keys()
    assert set(got.ids) <= seen and len(set(got.ids)) == len(got.ids)


@given(st.integers(0, 10_000), st.sampled_from((64, 100, 150, 260)), st.integers(1, 3), st.integers(0, 9))
@settings(max_examples=40, deadline=None)
def test_the_pages_of_a_pin_map_show_each_row_of_the_whole_once(seed: int, budget: int, depth: int, laws: int) -> None:
    store = town(seed, 5 + seed % 40, 90)
    store.mutate("\n".join(f"LAW{i}x name=law {i}" for i in range(laws)))
    whole = shown(store, "T1", "T2", depth=depth, budget_tokens=100_000)
    seen: list[str] = []
    cursor = ""
    while True:
        got = shown(store, "T1", "T2", depth=depth, budget_tokens=budget, cursor=cursor)
        assert estimate(got.text) <= got.tokens <= budget
        seen.extend(got.ids)
        cursor = got.cursor
        if not cursor:
            break
    assert len(seen) == len(set(seen)) and set(seen) <= set(whole.ids)
    never = {line_of(store.graph.row(id), store.schema) for id in set(whole.ids) - set(seen)}  # type: ignore[arg-type]
    assert not never or budget == 64 or min(map(line_tokens, never)) > budget / 3, "only what fits no page is on none"


def test_a_page_that_nobody_was_led_to_costs_no_more_than_the_pages_there_are() -> None:
    store = town(3)
    cursor = shown(store, "T1", budget_tokens=150).cursor
    head = cursor.rpartition(".")[0]
    got = shown(store, "T1", budget_tokens=150, cursor=f"{head}.1000")
    assert (got.ids, got.cursor) == ((), "")
    for page in ("1001", "999999", "-1", "1.5", "\u0661"):
        with pytest.raises(Refused) as refused:
            shown(store, "T1", budget_tokens=150, cursor=f"{head}.{page}")
        assert refused.value.code == "bad_argument"


def test_a_cursor_belongs_to_one_question_and_one_state() -> None:
    store = town(1)
    cursor = shown(store, "T1", budget_tokens=100).cursor
    for args, code in (({"depth": 3}, "bad_argument"), ({"budget_tokens": 101}, "bad_argument")):
        with pytest.raises(Refused) as refused:
            shown(store, "T1", **{"budget_tokens": 100, "cursor": cursor, **args})
        assert refused.value.code == code
    store.mutate("~ [T1] ; goal=x")
    with pytest.raises(Refused) as refused:
        shown(store, "T1", budget_tokens=100, cursor=cursor)
    assert refused.value.code == "stale_cursor"


def test_since_answers_with_what_changed_and_what_is_gone() -> None:
    store = GraphStore(SMALL)
    first = shown(store, "T1")
    before = (store.graph.copy(), store.schema.copy())
    store.mutate("~ [M1] ; path=b.py\n- T2\n+ TSK [T3] ; goal=new\n+ [T1] --(next)--> [T3]")
    got = shown(store, "T1", since=first.etag, before=before)
    *lines, footer = got.text.split("\n")
    assert lines == ["## Changed", "MOD [M1] ; path=b.py", "TSK [T3] ; goal=new", "E3 [T1] --(next)--> [T3]", "# pinfold: gone T2 E2"] or set(lines) == {
        "## Changed", "TSK [T3] ; goal=new", "MOD [M1] ; path=b.py", "E3 [T1] --(next)--> [T3]", "# pinfold: gone T2 E2"
    }  # fmt: skip
    assert got.delta and got.etag == shown(store, "T1").etag and "full" not in footer
    same = shown(store, "T1", since=got.etag, before=(store.graph, store.schema))
    assert same.text.startswith("# pinfold: seq=2 ") and same.delta


@given(st.integers(0, 10_000), st.lists(strategies.documents(), max_size=4), st.sampled_from((120, 300, 800)), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_a_map_and_what_changed_since_give_the_map_of_now(seed: int, documents: list[str], budget: int, laws: int) -> None:
    store = town(seed % 9, 20, 40)
    store.mutate("\n".join(f"LAW{i}x name=law {i}" for i in range(laws)))
    first = shown(store, "T5", budget_tokens=budget)
    before = (store.graph.copy(), store.schema.copy())
    for document in documents:
        try:
            store.mutate(document)
        except DocumentRefused:
            pass
    if store.graph.live("T5", store.now_ms) is None:
        return
    now = shown(store, "T5", budget_tokens=budget)
    got = shown(store, "T5", budget_tokens=budget, since=first.etag, before=before)
    assert (got.etag, got.tokens <= budget) == (now.etag, True)
    if got.delta:
        known = {line_id(line): line for line in rows_in(first.text)}
        gone = [id for line in got.text.split("\n") if line.startswith("# pinfold: gone ") for id in line.split()[3:]]
        known = {id: line for id, line in known.items() if id not in gone} | {line_id(line): line for line in rows_in(got.text)}
        assert sorted(known.values()) == sorted(rows_in(now.text))
    else:
        assert rows_in(got.text) == rows_in(now.text) and " full" in got.text.split("\n")[-1]


def rows_in(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith("#")]


def line_id(line: str) -> str:
    op = parse_document(line).ops
    return str(op[0].id) if op else line.partition("[")[2].partition("]")[0]  # a value that was cut


def test_since_falls_back_to_the_full_map() -> None:
    store = GraphStore(SMALL)
    first = shown(store, "T1")
    before = (store.graph.copy(), store.schema.copy())
    store.mutate("~ [M1] ; path=b.py")
    for etag, args in ((first.etag, {"depth": 1}), ("1.x.y", {}), ("nonsense", {}), (first.etag[:-1] + "z", {})):
        got = shown(store, "T1", since=etag, before=before, **args)
        assert not got.delta and " full" in got.text.split("\n")[-1]
    assert not shown(store, "T1", since=first.etag).delta


def test_an_anchor_too_long_for_the_budget_is_cut_at_a_mark() -> None:
    store = GraphStore("+ TSK [T1] ; goal=" + "long words here " * 400 + "; status=open")
    got = shown(store, "T1", budget_tokens=120)
    line = got.text.split("\n")[1]
    assert line.startswith('TSK [T1] ; goal="long words') and "…+" in line and line.endswith("status=open")
    assert got.tokens <= 120


def test_unknown_and_hidden_anchors_are_refused_with_near_ids() -> None:
    store = GraphStore(SMALL, "+ TSK [T9] ; ttl=1s")
    store.now_ms += 2_000
    for anchor in ("T9", "T", "nobody"):
        with pytest.raises(Refused) as refused:
            shown(store, anchor)
        assert refused.value.code == "not_found"
    with pytest.raises(Refused) as refused:
        shown(store, "M2")
    assert refused.value.near[0] == "M1"
    for args, code in (({"budget_tokens": 63}, "budget_too_small"), ({"max_rows": -1}, "bad_argument"), ({"depth": -1}, "bad_argument")):
        with pytest.raises(Refused) as refused:
            shown(store, "T1", **args)
        assert refused.value.code == code


def test_hidden_rows_hide_their_edges_and_are_not_walked_through() -> None:
    store = GraphStore(SMALL, "~ [M1] ; ttl=1s")
    store.now_ms += 2_000
    assert shown(store, "T1").ids == ("LAW01", "LAW02", "T1")


def test_a_star_costs_bounded_work_and_says_what_it_left_out() -> None:
    store = GraphStore("+ HUB [H] ; goal=centre")
    for block in range(10):
        store.mutate("\n".join(f"+ N [L{block * 1000 + i}] ; goal=leaf\n+ [H] --(has)--> [L{block * 1000 + i}]" for i in range(1000)))
    got = shown(store, "H", depth=3, budget_tokens=500)
    assert got.ids[0] == "H" and got.more and got.tokens <= 500 and "+ edges=" in got.text
    assert got.nodes[1] < 1_000
    from_leaf = shown(store, "L5", depth=3, budget_tokens=500)
    assert from_leaf.ids[:2] == ("L5", "H")


def test_the_work_at_a_star_does_not_grow_with_its_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = 0

    def counted(*args: Any, **rest: Any) -> Iterator[tuple[Edge, str]]:
        nonlocal taken
        for step in walk.steps(*args, **rest):
            taken += 1
            yield step

    monkeypatch.setattr(pinmap, "steps", counted)
    counts = []
    for leaves in (1_000, 10_000):
        store = GraphStore("+ HUB [H] ; goal=centre")
        for first in range(0, leaves, 1_000):
            store.mutate("\n".join(f"+ N [L{n}] ; goal=leaf\n+ [H] --(has)--> [L{n}]" for n in range(first, first + 1_000)))
        for anchors in (("H",), ("L5",), ("L5", "L50")):
            taken = 0
            got = shown(store, *anchors, depth=3, budget_tokens=500)
            assert set(anchors) <= set(got.ids) and got.more and got.tokens <= 500
            counts.append(taken)
    assert counts[:3] == counts[3:]
    assert max(counts) <= 4 * limits.WALK_FANOUT


def test_a_long_chain_is_no_recursion() -> None:
    store = GraphStore("\n".join(f"+ N [C{i}]" for i in range(1500)), "\n".join(f"+ [C{i}] --(next)--> [C{i + 1}]" for i in range(1499)))
    got = shown(store, "C0", depth=5_000, budget_tokens=60_000)
    assert got.nodes == (1500, 1500)


def test_the_same_graph_gives_the_same_text_after_a_snapshot() -> None:
    store = town(3)
    loaded = GraphStore()
    loaded.graph = type(store.graph).load(store.graph.dump())
    loaded.schema = store.schema
    assert shown(loaded, "T1", "T7").text == shown(store, "T1", "T7").text


def test_newer_rows_come_before_older_ones_at_the_same_distance() -> None:
    store = GraphStore("+ TSK [T1]\n" + "\n".join(f"+ N [N{i}] ; text={'filler ' * 20}\n+ [T1] --(has)--> [N{i}]" for i in range(30)))
    store.mutate("~ [N11] ; fresh=yes")
    assert shown(store, "T1", budget_tokens=200).ids[1] == "N11"


def test_an_exact_counter_counts_exactly_and_is_named() -> None:
    bpe = pytest.importorskip("bpe_openai")
    got = shown(town(2), "T1", budget_tokens=400, count=o200k_counter(), counter="o200k")
    assert got.tokens == len(bpe.get_encoding("o200k_base").encode(got.text + "\n")) <= 400
    assert "/400 o200k" in got.text
