from __future__ import annotations

import os
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinfold import limits
from pinfold.dialect import parse
from pinfold.dialect.parse import Problem, column_of, parse_document
from pinfold.testing import strategies


def problems(text: str) -> list[tuple[int, int, str]]:
    return [(p.line, p.column, p.code) for p in parse_document(text).problems]


def fields(text: str) -> dict[str, str]:
    batch = parse_document(text)
    assert batch.problems == []
    return batch.ops[0].fields


@pytest.mark.parametrize(
    ("text", "column", "code"),
    [
        ("+ tsk [T1]", 3, "parse_error"),
        ("  + tsk [T1]", 5, "parse_error"),
        ("+TSK [T1]", 1, "parse_error"),
        ("+ TSK [T 1]", 9, "parse_error"),
        ("+ TSK[T1]", 3, "parse_error"),
        ("+ [T1] -(owns)-> [M1]", 7, "parse_error"),
        ("+ [T1] --(9)--> [M1]", 11, "parse_error"),
        ("~ status=done", 3, "parse_error"),
        ("- T1 now", 5, "parse_error"),
        ("- [T1] ;", 7, "parse_error"),
        ('+ CLM [NEW] ; code="abc', 20, "parse_error"),
        ('+ CLM [NEW] ; code="a" b"', 23, "parse_error"),
        ('+ CLM [NEW] ; code="a\\q"', 22, "parse_error"),
        ('+ CLM [NEW] ; code="\\ud83d"', 21, "parse_error"),
        ("+ CLM [NEW] ; code", 15, "parse_error"),
        ("+ CLM [NEW] ; 9=x", 15, "parse_error"),
        ("~ [T1] ; n+=x", 13, "parse_error"),
        ('~ [T1] ; n+="1"', 13, "parse_error"),
        ("~ [T1] ; n+=1e3", 13, "parse_error"),
        ("~ [T1] ; n+=１", 13, "parse_error"),
        ('~ [T1] ; goal="shi"…+1234', 20, "parse_error"),
        ("~ [T1] ; a=1 ; b=2 ; a=3", 22, "duplicate_field"),
        ("~ [T1] ; a=1 ; a+=3", 16, "duplicate_field"),
        ("~ [NEW] ; a=1", 4, "new_on_update"),
        ("~ [NEW:x] ; a=1", 4, "new_on_update"),
        ("- [NEW]", 4, "new_on_update"),
        ("~ NEW [T1] --(owns)--> [M1]", 3, "new_on_update"),
        ("TSK [NEW] ; a=1", 6, "new_on_update"),
        ("Please remember this.", 1, "not_a_record"),
        ("TSK: [T1]", 1, "not_a_record"),
        ("```", None, None),
        ("x\n```", 1, "not_a_record"),
    ],
)
def test_a_refused_line_says_where_and_why(text: str, column: int | None, code: str | None) -> None:
    got = problems(text)
    if code is None:
        assert got == []
    else:
        assert got[0][1:] == (column, code)


def test_every_problem_of_a_line_is_reported() -> None:
    assert problems("~ [T1] ; a ; b=1 ; b=2 ; n+=x") == [(1, 10, "parse_error"), (1, 20, "duplicate_field"), (1, 29, "parse_error")]


def test_json_and_mixed_dialects_are_named_once() -> None:
    assert problems('{\n  "nodes": [\n    1,\n    true\n  ]\n}') == [(1, 1, "json_not_supported")]
    assert problems("+ A [NEW]\n@A: 1\n@A: 2") == [(2, 1, "mixed_dialect")]
    assert problems("@A: 1\n+ A [NEW]\n+ A [NEW]") == [(2, 1, "mixed_dialect")]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("fence", ["", "```", "```text"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("close", [True, False])
def test_bom_crlf_and_fences_are_fine(end: str, fence: str, bom: str, close: bool) -> None:
    lines = [fence] * bool(fence) + ["", "# note", "## Nodes", "  + CLM [NEW] ; code=x `y`  "] + ["```"] * (bool(fence) and close)
    batch = parse_document(bom + end.join(lines) + end)
    assert batch.problems == []
    assert [op.fields for op in batch.ops] == [{"code": "x `y`"}]


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r", "\u00a0"])
def test_only_lf_ends_a_line_and_only_blanks_are_trimmed(char: str) -> None:
    assert fields(f"+ CLM [NEW] ; a=x{char}+ TSK [NEW] ; b={char}y \t") == {"a": f"x{char}+ TSK [NEW]", "b": f"{char}y"}


def test_blanks_are_free_around_signs_and_may_be_missing_beside_an_arrow() -> None:
    assert fields("~ [T1] a = 1;b= x y ;; c += 2 ;") == {"a": "1", "b": "x y", "c": "2"}
    op = parse_document("+ [T1]--(owns)-->[M1];note=x").ops[0]
    assert (op.src, op.rel, op.dst, op.fields) == ("T1", "owns", "M1", {"note": "x"})


def test_minus_equals_keeps_the_sign_of_its_number() -> None:
    assert fields("~ [T1] ; a-=1 ; b-=-2 ; c-=+3 ; d+=-4") == {"a": "-1", "b": "2", "c": "-3", "d": "-4"}


def test_limits_are_named() -> None:
    assert problems("#" * (limits.DOCUMENT_BYTES + 1)) == [(1, 1, "limit_exceeded")]
    assert problems("\n" * (limits.DOCUMENT_LINES + 1)) == [(limits.DOCUMENT_LINES + 1, 1, "limit_exceeded")]
    assert problems(f"~ [T1] ; a={'x' * (limits.FIELD_VALUE_BYTES + 1)}") == [(1, 10, "limit_exceeded")]
    assert problems(f"~ [T1] ; content={'x' * limits.CONTENT_BYTES}") == []
    assert problems(f"~ [T1] ; content={'x' * (limits.CONTENT_BYTES + 1)}") == [(1, 10, "limit_exceeded")]
    assert problems("~ [T1]" + "".join(f" ; k{i}=1" for i in range(limits.FIELDS_PER_ROW + 1)))[0][2] == "limit_exceeded"
    assert problems(f"+ TSK [{'x' * 65}]")[0][2] == "parse_error"
    assert problems(f"+ TSK [{'x' * 64}]") == []


def test_a_raw_lone_surrogate_is_refused() -> None:
    assert problems("+ CLM [NEW] ; a=\ud800") == [(1, 17, "parse_error")]


def test_a_column_inside_quotes_is_not_a_fields_column() -> None:
    assert column_of('~ [T1] ; a="b=1 ; b=2" ; b=3', "b") == 26


@given(st.lists(st.one_of(strategies.lines(), st.text(st.characters(codec="utf-8"), max_size=40)), max_size=6))
@example(["\r"])
@example([" \r ", "\r"])
@settings(max_examples=150, deadline=None)
def test_every_line_is_an_op_or_a_problem_or_says_nothing(lines: list[str]) -> None:
    lines = [line.replace("\n", " ").removeprefix("\ufeff") for line in lines]
    batch = parse_document("\n".join(lines))
    if batch.pipes or any(p.code in ("mixed_dialect", "json_not_supported", "limit_exceeded") for p in batch.problems):
        return
    said = {op.line for op in batch.ops} | {p.line for p in batch.problems}
    fences = {i for i, line in enumerate(lines, 1) if line.strip(" \t\r").startswith("```")}
    for number, line in enumerate(lines, 1):
        # Behind the last line there is no LF: a CR there is a character.
        text = line.strip(" \t") if number == len(lines) else line.removesuffix("\r").strip(" \t")
        assert (number in said) == bool(text and not text.startswith("#") and number not in fences) or number in fences
    assert len({op.line for op in batch.ops}) == len(batch.ops)


PIECES = (
    "+",
    "~",
    "-",
    " ",
    "\t",
    "[",
    "]",
    "T1",
    "NEW",
    "NEW:a",
    "TSK",
    "--(",
    ")-->",
    "owns",
    ";",
    "=",
    "+=",
    '"',
    "\\",
    "\\u00",
    "x",
    "1",
    "#",
    "##",
    "@",
    "|",
    "{",
    "\r",
    "é",
    "…",
)


SOAK_LINES = int(os.environ.get("PINFOLD_SOAK_LINES", "100_000"))


def test_lines_of_noise_parse_without_a_crash_or_a_hang() -> None:
    rng = random.Random(4)
    for _ in range(0, SOAK_LINES, limits.DOCUMENT_LINES):
        text = "\n".join("".join(rng.choices(PIECES, k=rng.randint(1, 14))) for _ in range(limits.DOCUMENT_LINES))
        batch = parse_document(text)
        assert batch.lines == limits.DOCUMENT_LINES or batch.problems
        assert batch.problems


@pytest.mark.parametrize(
    "text", ['+ A [NEW] ; a="' + "\\" * 60_000, "+ A [NEW] ; " + "a" * 60_000, "[" * 60_000, "+ [A]" + " " * 60_000 + "x", '~ [T1] ; a="' + '"' * 60_000]
)
def test_long_nonsense_takes_no_more_than_linear_time(text: str) -> None:
    # A quadratic scan of 60,000 characters would take minutes here: the test hangs rather than fails.
    batch = parse_document(text)
    assert batch.ops or batch.problems


@given(st.text(alphabet='ab =;"\\\t1_é\x0b', max_size=24).map(lambda text: f" ; {text}"))
def test_the_short_way_to_read_fields_reads_what_the_careful_one_does(tail: str) -> None:
    tail = tail.rstrip(" \t")
    short = parse._plain_fields(tail) if '"' not in tail else None
    if short is not None:
        problems: list[Problem] = []
        quoted = ' ; x="1"' + tail  # a quote anywhere, and every field is read on its own
        assert parse._fields(quoted, quoted, 0, 1, problems) == ({"x": "1", **short}, ()) and not problems
