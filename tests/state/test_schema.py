from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.dialect.parse import is_id
from pinfold.errors import DocumentRefused
from pinfold.state.schema import BASE_RELATIONS, FREE_FIELDS, OPEN_KINDS, Kind, Schema, derive_id, kind_fact, near, near_ids, relations_fact
from pinfold.testing.graphs import GraphStore

SCHEMA = 'SCHEMA TSK ; fields="id goal status"\nSCHEMA MOD ; fields="id path lines" ; pin=true\nSCHEMA relations ; names="owns next"'


def codes(store: GraphStore, text: str, **args: object) -> list[str]:
    before = store.state()
    with pytest.raises(DocumentRefused) as error:
        store.mutate(text, **args)  # type: ignore[arg-type]
    assert store.state() == before
    return [p.code for p in error.value.problems]


def test_a_schema_refuses_what_it_does_not_declare_and_names_what_was_meant() -> None:
    store = GraphStore(SCHEMA)
    with pytest.raises(DocumentRefused) as error:
        store.mutate("+ TKS [NEW] ; goal=x\n+ TSK [NEW:a] ; gaol=x ; colour=y\n+ [NEW:a] --(own)--> [NEW:a]")
    assert [(p.line, p.column, p.code, p.hint) for p in error.value.problems] == [
        (1, 3, "unknown_kind", "is it TSK?"),
        (2, 17, "unknown_field", "is it goal?"),
        (2, 26, "unknown_field", "TSK has goal status"),
        (3, 14, "unknown_relation", "is it owns?"),
    ]


def test_recycle_ttl_and_the_open_kinds_need_no_declaring() -> None:
    store = GraphStore(SCHEMA)
    store.mutate("+ TSK [NEW] ; goal=x ; recycle=persistent\n+ TSK [NEW] ; ttl=1h")
    store.mutate("+ CONCEPT [NEW:c] ; label=a ; anything=b\n+ [NEW:c] --(relates_to)--> [NEW:c] ; weight=1")
    assert codes(store, "~ [TSK1] ; colour=x") == ["unknown_field"]


def test_fields_stand_in_declared_order_then_as_written() -> None:
    store = GraphStore(SCHEMA, "+ TSK [T1] ; recycle=persistent ; status=open ; goal=x")
    assert store.read("T1") == "TSK [T1] ; goal=x ; status=open ; recycle=persistent"


def test_declaring_widens_and_never_narrows() -> None:
    store = GraphStore(SCHEMA)
    store.mutate("SCHEMA TSK ; fields=id prio\nSCHEMA MOD\nSCHEMA relations ; names=blocks")
    assert store.schema.lines() == [
        "SCHEMA TSK ; fields=id goal status prio",
        "SCHEMA MOD ; fields=id path lines ; pin=true",
        "SCHEMA relations ; names=owns next blocks",
    ]
    again = GraphStore("\n".join(store.schema.lines()))
    assert again.schema.lines() == store.schema.lines()
    assert Schema.load(store.schema.dump()).dump() == store.schema.dump()


OPEN = "SCHEMA SRC ; fields=id path lines ; pin=true ; open=true"


def test_an_open_kind_closes_nothing_and_its_rows_may_have_other_fields() -> None:
    store = GraphStore("+ TSK [T1] ; goal=x", OPEN)
    store.mutate("+ SRC [SRC_main] ; path=main ; note=mine\n+ ANYTHING [NEW] ; colour=x\n~ [SRC_main] ; owner=Ann")
    assert store.read("SRC_main") == "SRC [SRC_main] ; path=main ; note=mine ; owner=Ann"
    assert codes(store, "+ SRC [NEW] ; path=other") == ["new_on_pin"]
    assert store.schema.lines() == [OPEN]
    assert Schema.load(store.schema.dump()).lines() == [OPEN]
    assert GraphStore(OPEN).schema.copy().is_closed is False


def test_the_first_kind_that_is_not_open_closes_the_schema() -> None:
    store = GraphStore(OPEN, "+ TSK [T1] ; goal=x\n+ SRC [SRC_main] ; path=main ; note=mine")
    assert codes(store, "SCHEMA NPC ; fields=name") == ["schema_conflict"]
    store.mutate("SCHEMA TSK ; fields=goal")
    assert codes(store, "+ NPC [NEW] ; name=x") == ["unknown_kind"]
    store.mutate("~ [SRC_main] ; note=still open")
    assert codes(store, "SCHEMA SRC ; open=false") == ["schema_conflict"]
    store.mutate("SCHEMA SRC ; fields=note ; open=false")
    assert codes(store, "~ [SRC_main] ; owner=Ann") == ["unknown_field"]
    store.mutate("SCHEMA TSK ; open=true")
    store.mutate("~ [T1] ; anything=goes")


def test_a_declaration_that_rows_would_break_is_a_conflict() -> None:
    store = GraphStore("+ TSK [T1] ; goal=x ; status=y\n+ MOD [M1] ; path=a.py\n+ [T1] --(owns)--> [M1]")
    assert codes(store, 'SCHEMA TSK ; fields="id goal"\nSCHEMA MOD ; fields="id path"') == ["schema_conflict"]
    assert codes(store, 'SCHEMA TSK ; fields="id goal status"') == ["schema_conflict"]
    assert codes(store, 'SCHEMA TSK ; fields="id goal status"\nSCHEMA MOD ; fields="id path" ; pin=true') == ["schema_conflict"]
    assert codes(store, "SCHEMA relations ; names=next") == ["schema_conflict"]
    store.mutate('~ [T1] ; status=\nSCHEMA TSK ; fields="id goal"\nSCHEMA MOD ; fields="id path"\nSCHEMA relations ; names=owns')


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SCHEMA EDG ; fields=id", "reserved_id"),
        ("SCHEMA TSK ; columns=id", "parse_error"),
        ("SCHEMA TSK ; fields=id 9x", "parse_error"),
        ("SCHEMA TSK ; fields=a a", "duplicate_field"),
        ("SCHEMA TSK ; pin=yes", "parse_error"),
        ("SCHEMA TSK ; open=yes", "parse_error"),
        ("SCHEMA TSK ; pin=true", "parse_error"),
        ("SCHEMA relations ; fields=owns", "parse_error"),
    ],
)
def test_a_bad_schema_line_is_refused(text: str, code: str) -> None:
    assert code in codes(GraphStore(), text)


def test_a_relation_that_is_let_in_is_kept() -> None:
    store = GraphStore(SCHEMA, "+ TSK [T1]")
    store.mutate("+ [T1] --(blocks)--> [T1]", allow_new_relation=True)
    store.mutate("+ TSK [T2]\n+ [T2] --(blocks)--> [T1]")
    assert store.schema.relations == ("owns", "next", "blocks")


def test_a_pin_is_named_by_its_locator() -> None:
    store = GraphStore(SCHEMA)
    id = derive_id("MOD", "src/a.py")
    assert codes(store, "+ MOD [NEW] ; path=src/a.py") == ["new_on_pin"]
    assert codes(store, f"+ MOD [{id}] ; lines=3") == ["new_on_pin"]
    store.mutate(f"+ MOD [{id}] ; path=src/a.py ; lines=3")
    assert codes(store, f"+ MOD [{id}] ; path=src/a.py") == ["id_exists"]
    assert codes(store, f"~ [{id}] ; path=src/b.py") == ["locator_clash"]
    assert codes(store, f"~ [{id}] ; path=") == ["locator_clash"]
    assert codes(store, f"~ [{id}] ; id=MOD_mine") == ["new_on_pin"]
    store.mutate(f"~ [{id}] ; path=src/a.py ; lines=4")
    store.mutate("+ TSK [MOD_x]")
    assert codes(store, "+ MOD [MOD_x] ; path=x") == ["locator_clash"]


def test_ids_from_locators_are_plain_where_nothing_is_lost() -> None:
    assert derive_id("MOD", "main") == "MOD_main"
    assert derive_id("MOD", "src_a_py") == "MOD_src_a_py"
    ids = [derive_id("MOD", locator) for locator in ("src/a.py", "src_a.py", "src-a/py", "a__b", "用户", "x" * 80, "x" * 81)]
    assert len(set(ids)) == len(ids)
    assert ids[0].startswith("MOD_src_a_py_") and len(ids[0]) == len("MOD_src_a_py_") + 12
    assert all(len(id) <= 64 for id in ids) and len(ids[5]) == 64


@given(st.text(st.characters(codec="utf-8"), max_size=90), st.text(st.characters(codec="utf-8"), max_size=90))
@settings(max_examples=150, deadline=None)
def test_two_locators_never_share_an_id(a: str, b: str) -> None:
    for locator in (a, b):
        assert is_id(derive_id("MOD", locator))
    assert (derive_id("MOD", a) == derive_id("MOD", b)) == (a == b)


def test_near_names() -> None:
    assert near("gaol", ["goal", "status"]) == ["goal"]
    ids = {"TSK12", "Tsk1", "a-b", "MOD_core"}
    assert near_ids("TSK1", ids.__contains__) == ["TSK12", "Tsk1"] or near_ids("TSK1", ids.__contains__) == ["Tsk1", "TSK12"]
    assert near_ids("a_b", ids.__contains__) == ["a-b"]
    assert near_ids("MOD_croe", ids.__contains__) == ["MOD_core"]
    pin = derive_id("MOD", "src/a.py")
    assert near_ids("src/a.py", {pin, "SRC/A.PY"}.__contains__, kinds=["TSK", "MOD"]) == [pin, "SRC/A.PY"]
    assert near_ids("x" * 10**7, ids.__contains__, kinds=["MOD"] * 10**6) == []


def test_near_names_are_nearest_first_in_their_own_case_at_most_count_and_none_where_nothing_is_like_it() -> None:
    names = ["Status", "state", "stated", "statue", "goal"]
    assert near("STATUS", names, 1) == ["Status"]
    assert near("status", names)[:2] == ["Status", "statue"] and len(near("status", names)) == 3
    assert near("zzz", names) == []
    assert near("goal", ["GOAL", "goal"]) == ["GOAL"]  # of names that differ in case only the first is told
    assert near("abcde", ["abcxy"]) == ["abcxy"] and near("abcde", ["abxyz"]) == []


@pytest.mark.parametrize(
    "meant", ["tsk_1", "TSK_1", "Tsk_1", "tSk-1", "tkS_1", "tSk_", "tSk_9", "tSk1", "tSk1_", "tSk_12", "xtSk_1", "tSk_1.", "tXSk_1", "Sk_1", "zSk_1"]
)
def test_an_id_one_slip_away_is_found(meant: str) -> None:
    assert near_ids("tSk_1", {meant}.__contains__) == [meant]


def test_slips_are_told_by_likelihood_each_once_and_up_to_a_count() -> None:
    there = {"TSK_1", "Tsk_1", "tSk-1", "Stk_1", "tSk_", "tSk_2", "tSk_12"}
    assert near_ids("tSk_1", there.__contains__, 99) == ["TSK_1", "Tsk_1", "tSk-1", "Stk_1", "tSk_", "tSk_2", "tSk_12"]
    assert near_ids("tSk_1", there.__contains__) == ["TSK_1", "Tsk_1", "tSk-1"]
    assert near_ids("tSk_1", {"tSk_1", "tSk__1"}.__contains__) == ["tSk__1"]  # what was written is no suggestion
    assert near_ids("ABC_DEF", {"abc_def"}.__contains__) == ["abc_def"] and near_ids("abc_def", {"ABC_DEF"}.__contains__) == ["ABC_DEF"]
    assert near_ids("ABC_DEF", {"Abc_def"}.__contains__) == ["Abc_def"]
    assert near_ids("a_b-c", {"a-b-c", "a_b_c"}.__contains__) == ["a_b_c", "a-b-c"]
    assert near_ids("tSk_1", {"other", "kSt_1", "tSk_123"}.__contains__) == []


def test_the_end_of_a_long_id_is_kept_and_the_spellings_asked_for_are_bounded() -> None:
    tail = "x" * 60
    asked = []
    near_ids("a" * 24 + tail, lambda id: bool(asked.append(id)))
    assert len(asked) < 24 * 140 and all(id.endswith(tail) or id.lower() == id for id in asked[5:])
    assert near_ids("a" * 23 + "c" + tail, {"a" * 23 + "b" + tail}.__contains__) == ["a" * 23 + "b" + tail]
    assert near_ids("a" * 24 + "c" + tail, {"a" * 24 + "b" + tail}.__contains__) == []  # beyond what is probed


def test_an_empty_schema_accepts_everything_and_a_declared_one_what_it_names() -> None:
    schema = Schema()
    assert schema.accepts_kind("ANY") and schema.accepts_field("ANY", "any") and schema.accepts_relation("any")
    store = GraphStore(SCHEMA)
    schema = store.schema
    assert schema.accepts_kind("TSK") and not schema.accepts_kind("ANY") and all(map(schema.accepts_kind, OPEN_KINDS))
    assert schema.accepts_field("TSK", "goal") and not schema.accepts_field("TSK", "path") and schema.accepts_field("NOTE", "any")
    assert all(schema.accepts_field("TSK", field) for field in FREE_FIELDS)
    assert schema.accepts_relation("owns") and schema.accepts_relation("derived_from") and not schema.accepts_relation("any")
    assert all(map(schema.accepts_relation, BASE_RELATIONS))


def test_what_may_be_suggested_is_what_is_declared_then_what_is_always_there_each_once() -> None:
    assert Schema().known_kinds() == list(OPEN_KINDS) and Schema().known_relations() == list(BASE_RELATIONS)
    schema = GraphStore("SCHEMA NOTE ; fields=id text\nSCHEMA TSK\nSCHEMA relations ; names=owns contains").schema
    assert schema.known_kinds() == ["NOTE", "TSK", "CONCEPT", "FILE", "SYMBOL"]
    assert schema.known_relations() == ["owns", "contains", *(name for name in BASE_RELATIONS if name != "contains")]


def test_only_a_pin_has_a_locator_its_first_declared_field() -> None:
    schema = GraphStore(SCHEMA).schema
    assert (schema.locator("MOD"), schema.locator("TSK"), schema.locator("none")) == ("path", None, None)
    schema.kinds["BARE"] = Kind("BARE", (), True)
    assert schema.locator("BARE") == "" and schema.kinds["BARE"].locator is None


def test_the_order_of_fields_is_told_only_where_it_is_not_as_written_and_anew_after_a_declaration() -> None:
    store = GraphStore(SCHEMA)
    assert store.schema.order("none", ("b", "a")) is None
    assert store.schema.order("TSK", ("goal", "status", "ttl")) is None
    for _ in range(2):
        assert store.schema.order("TSK", ("ttl", "status", "extra", "goal")) == (3, 1, 0, 2)
    assert store.schema.order("TSK", ("prio", "ttl")) is None and store.schema.order("TSK", ("ttl", "prio")) is None
    store.mutate("SCHEMA TSK ; fields=id prio")
    assert store.schema.order("TSK", ("ttl", "prio")) == (1, 0)


def test_a_schema_is_had_again_from_its_facts_its_dump_or_a_copy_of_its_own() -> None:
    store = GraphStore(SCHEMA)
    store.append([{"f": "schema.put", "kind": "KEY", "fields": ["name", "of"], "unique": ["name", "of"]}])
    again = GraphStore()
    again.append([kind_fact(kind) for kind in store.schema.kinds.values()] + [relations_fact(store.schema.relations or ())])
    assert again.schema.kinds == store.schema.kinds and again.schema.relations == store.schema.relations
    assert store.schema.lines()[2].endswith(" ; unique=name of")
    assert store.schema.seq == 2 and Schema.load(store.schema.dump()).dump() == store.schema.dump()
    other = store.schema.copy()
    assert other.dump() == store.schema.dump()
    other.kinds.clear()
    assert len(store.schema.kinds) == 3
    assert Schema.load(Schema().dump()).relations is None
    assert Schema().dump() == {"v": 1, "seq": 0, "kinds": [], "relations": None}
    assert again.schema.dump() == {
        "v": 1,
        "seq": 1,
        "kinds": [
            ["TSK", ["goal", "status"], False, None],
            ["MOD", ["path", "lines"], True, None],
            ["KEY", ["name", "of"], False, {"unique": ["name", "of"]}],
        ],
        "relations": ["owns", "next"],
    }
    again.append([{"f": "schema.put", "kind": "BARE"}])
    assert again.schema.kinds["BARE"] == Kind("BARE", ())


def test_a_lossy_id_ends_in_the_digest_of_its_locator_and_a_long_one_keeps_its_beginning() -> None:
    digest = sha256(b"src/a.py").hexdigest()[:12]
    assert derive_id("MOD", "src/a.py") == f"MOD_src_a_py_{digest}"
    fits, long = "x" * 60, "x" * 61
    assert derive_id("MOD", "Main9") == "MOD_Main9"
    assert derive_id("MOD", fits) == f"MOD_{fits}"
    assert derive_id("MOD", long) == f"MOD_{'x' * 47}_{sha256(long.encode()).hexdigest()[:12]}"
    assert is_id(derive_id("MOD", "half\udc00"))
