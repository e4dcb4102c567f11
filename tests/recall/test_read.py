from __future__ import annotations

import pytest

from pinfold.errors import Refused
from pinfold.recall.read import find, get
from pinfold.testing.graphs import GraphStore

ROWS = (
    "+ TSK [T1] ; goal=ship it ; status=open ; prio=9\n+ TSK [T2] ; goal=test it ; status=settled ; prio=10\n+ MOD [M1] ; path=src/a.py\n"
    "+ [T1] --(owns)--> [M1]\nLAW01 name=x"
)
NOW = 1_700_000_000_000


def ids(where: object = None, **args: object) -> list[str]:
    return [item.id for item in find(GraphStore(ROWS).graph, where=where, now_ms=NOW, **args).items]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (None, ["T1", "T2", "M1"]),
        ("status=open", ["T1"]),
        ("status!=open", ["T2", "M1"]),
        ("goal=*it", ["T1", "T2"]),
        ("goal=s??p *", ["T1"]),
        ("goal!=*i*", ["M1"]),
        ("prio>9", ["T2"]),
        ("prio>=9 and status=open", ["T1"]),
        ("status=open or path=src/*", ["T1", "M1"]),
        ("status=open and prio<5 or kind=MOD", ["M1"]),
        ('goal="ship it"', ["T1"]),
        ('goal="ship it" or goal="test it"', ["T1", "T2"]),
        ("goal<sz", ["T1"]),
        ("colour=", ["T1", "T2", "M1"]),
        ("id=T?", ["T1", "T2"]),
        (["prio>1", "status=settled"], ["T2"]),
        ({"prio": {"$gte": 10}}, ["T2"]),
        ({"prio": {"$gt": 8, "$lt": 10}, "status": "open"}, ["T1"]),
        ({"status": {"$in": ["open", "done"]}}, ["T1"]),
        ({"status": {"$ne": "open"}, "kind": {"$eq": "TSK"}}, ["T2"]),
    ],
)
def test_filters(where: object, found: list[str]) -> None:
    assert ids(where) == found


@pytest.mark.parametrize(
    "where",
    ["status", "=x", "a~b", {"a": {"$regex": "x"}}, {"a": {"$in": "text"}}, {"a": {"$in": 5}}, {"a": {"$in": {}}}, {"a": ["x"]}, 7, b"a=b", [1], {"a=b"}],
)
def test_a_bad_filter_is_refused(where: object) -> None:
    with pytest.raises(Refused) as refused:
        ids(where)
    assert refused.value.code == "bad_where"


def test_a_joint_that_joins_nothing_is_part_of_the_value() -> None:
    assert ids("goal=ship it and") == [] and ids('goal="ship it"') == ["T1"]


def test_a_page_that_cannot_be_is_refused_by_what_is_wrong_with_it() -> None:
    for args, told in (({"limit": -1}, "limit=-1"), ({"cursor": "x"}, "cursor"), ({"form": "banana"}, "form=banana")):
        with pytest.raises(Refused, match=told) as refused:
            ids(**args)
        assert refused.value.code == "bad_argument" and refused.value.hint


def test_a_glob_of_many_stars_is_linear() -> None:
    store = GraphStore("+ N [N1] ; text=" + "a" * 20_000)
    assert find(store.graph, where="text=" + "*a" * 30 + "*b", now_ms=NOW).items == []
    assert len(find(store.graph, where="text=" + "*a" * 30, now_ms=NOW).items) == 1


def test_kinds_relations_and_forms_choose_rows() -> None:
    assert ids(kind="TSK") == ["T1", "T2"]
    assert ids(relation="owns") == ["E1"]
    assert ids("source=T1", form="edge") == ["E1"]
    assert ids(form="law") == ["LAW01"]
    assert ids(form="any") == ["T1", "T2", "M1", "LAW01", "E1"]
    assert ids(active_only=True) == ["T1", "M1"]
    assert ids(kind="NONE") == []


def test_pages_hold_each_row_once_and_say_the_total() -> None:
    store = GraphStore("\n".join(f"+ N [N{i}]" for i in range(25)))
    seen: list[str] = []
    cursor = ""
    while True:
        page = find(store.graph, limit=10, cursor=cursor, now_ms=NOW)
        assert page.total == 25
        seen.extend(item.id for item in page.items)
        cursor = page.cursor
        if not cursor:
            break
    assert seen == [f"N{i}" for i in range(25)]


def test_get_answers_in_the_order_asked_with_provenance_and_near_ids() -> None:
    store = GraphStore(ROWS)
    store.mutate("~ [T1] ; prio=1", actor="ada")
    got = get(store.graph, ["E1", "T1", "E1", "T9"], now_ms=NOW)
    assert [(i.id, i.seq, i.actor) for i in got.items] == [("E1", 1, None), ("T1", 2, "ada")]
    assert got.items[1].line == "TSK [T1] ; goal=ship it ; status=open ; prio=1"
    assert got.missing == {"T9": ["T1", "T2"]}
