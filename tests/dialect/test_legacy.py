from __future__ import annotations

import pytest

from pinfold.dialect.legacy import is_snapshot, parse_map, parse_snapshot, split_row
from pinfold.errors import DocumentRefused
from pinfold.testing.graphs import GraphStore

SCHEMA = 'SCHEMA TSK ; fields="id goal status recycle"\nSCHEMA MOD ; fields="id path"'


def test_escapes_of_a_pipe_row_stand_for_themselves() -> None:
    assert split_row(r"a\|b|c\\|d\e|") == ["a|b", "c\\", r"d\e", ""]


def test_add_takes_pipe_rows_and_shows_lines() -> None:
    store = GraphStore(SCHEMA)
    answer = store.mutate("@TSK: T1|go \\| stay||\n@MOD: M1|a.py\n@EDG: E1|T1|owns|M1||core|persistent\n@LAW: LAW01|n|c|m|k", verb="add")
    assert answer.lines == [
        "TSK [T1] ; goal=go | stay",
        "MOD [M1] ; path=a.py",
        "E1 [T1] --(owns)--> [M1] ; note=core ; recycle=persistent",
        "LAW01 name=n ; cycle=c ; mechanism=m ; constraint=k",
    ]


def test_a_pipe_update_replaces_the_whole_row() -> None:
    store = GraphStore(SCHEMA, "+ TSK [T1] ; goal=a ; status=open")
    store.mutate("@TSK: T1|b||", verb="update")
    assert store.read("T1") == "TSK [T1] ; goal=b"


def test_a_wrong_number_of_columns_is_a_parse_error_and_mutate_refuses_pipes() -> None:
    store = GraphStore(SCHEMA)
    for text, verb, code in (("@TSK: T1|b", "add", "parse_error"), ("@TSK: T1|b||", "mutate", "present_on_mutate"), ("@XXX: 1", "add", "unknown_kind")):
        with pytest.raises(DocumentRefused) as refused:
            store.mutate(text, verb=verb)
        assert [p.code for p in refused.value.problems] == [code]


def test_a_map_gives_the_columns_of_each_tag() -> None:
    columns, problems = parse_map("# tags\n@tsk: id|goal|status\n@EDG: id|src|relation|dist|at|attrs|recycle\n@MOD: path\n@TSK: id")
    assert columns == {"TSK": ("goal", "status")}
    assert [(p.line, p.code) for p in problems] == [(4, "parse_error"), (5, "duplicate_field")]


def test_a_snapshot_of_version_1_is_read() -> None:
    text = "# memnet\n@SNAP: 1|mn_1|0|0|60|1|0\n# map\n@TSK: id|goal\n@EDG: id|src|relation|dist|at|attrs|recycle\n"
    text += "# relations\n@REL: owns\n# records\n@TSK: T1|x\n@TSK: T2|y\n@EDG: E1|T1|owns|T2||n|\n"
    assert is_snapshot(text)
    snapshot = parse_snapshot(text)
    assert snapshot.problems == []
    assert (snapshot.session, snapshot.columns, snapshot.relations) == ("mn_1", {"TSK": ("goal",)}, ("owns",))
    assert [(op.form, op.id, op.fields) for op in snapshot.ops] == [("node", "T1", {"goal": "x"}), ("node", "T2", {"goal": "y"}), ("edge", "E1", {"note": "n"})]
