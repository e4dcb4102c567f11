from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.dialect.parse import is_id
from pinfold.errors import DocumentRefused
from pinfold.state.schema import Schema, derive_id, near, near_ids
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
