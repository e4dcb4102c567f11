from __future__ import annotations

import pytest
from hypothesis import given, settings

from pinfold.dialect.format import format_cut, format_edge, format_footer, format_law, format_node, format_value
from pinfold.dialect.parse import parse_document
from pinfold.testing import strategies


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a b"),
        ('a"b', 'a"b'),
        ("a\\b", "a\\b"),
        ("# x", "# x"),
        ('"a', r'"\"a"'),
        ("a;b", '"a;b"'),
        (" a", '" a"'),
        ("a\u00a0", '"a\u00a0"'),
        ("a\nb\t\r", r'"a\nb\t\r"'),
        ("\x00\x1f\x7f\x9f", r'"\u0000\u001f\u007f\u009f"'),
        ("a\u2028b", r'"a\u2028b"'),
        ("\ufeffx", "\ufeffx"),
        ("用户 🐟", "用户 🐟"),
        ("", '""'),
    ],
)
def test_a_value_is_bare_only_where_it_reads_back_bare(value: str, text: str) -> None:
    assert format_value(value) == text


@given(strategies.fields(), strategies.ids(), strategies.kinds())
@settings(max_examples=150, deadline=None)
def test_a_node_line_reads_back_equal(fields: dict[str, str], id: str, kind: str) -> None:
    batch = parse_document(format_node(id, kind, fields))
    assert batch.problems == []
    (op,) = batch.ops
    assert (op.op, op.form, op.id, op.kind, op.fields) == ("", "node", id, kind, fields)


@given(strategies.fields(), strategies.ids())
@settings(max_examples=150, deadline=None)
def test_an_edge_and_a_law_line_read_back_equal(fields: dict[str, str], id: str) -> None:
    batch = parse_document(format_edge(id, "T1", "owns", "b.c-d", fields) + "\n" + format_law("LAW-x", fields))
    assert batch.problems == []
    edge, law = batch.ops
    assert (edge.op, edge.form, edge.id, edge.src, edge.rel, edge.dst, edge.fields) == ("", "edge", id, "T1", "owns", "b.c-d", fields)
    assert (law.form, law.id, law.fields) == ("law", "LAW-x", fields)


def test_a_cut_value_says_how_much_is_left_out_and_is_refused_on_write() -> None:
    cut = format_cut("The first of many\nlines", 9)
    assert cut == '"The first"…+14'
    assert [p.code for p in parse_document(f"~ [T1] ; content={cut}").problems] == ["parse_error"]


def test_a_footer_is_one_comment_line() -> None:
    footer = format_footer(seq=41, nodes=(12, 40), edges=(18, 77), tokens=(612, 800), counter="", omitted_tokens=2100, cursor="41.a.1")
    assert footer == "# pinfold: seq=41 nodes=12/40 edges=18/77 tokens=612/800 omitted~2100 cursor=41.a.1"
    assert parse_document(footer).ops == []
