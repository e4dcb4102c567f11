"""Editing JSON by its text: what was meant is there, and every other byte is what it was."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import Refused
from pinfold.install.jsonedit import ABSENT, DEPTH, Document

pytestmark = pytest.mark.requirement("install")

ENTRY = {"command": "C:\\Users\\测试\\pinfold.exe", "args": ["mcp"], "env": {"A": "1"}}
PATH = ("mcpServers", "pinfold")


def put(text: str, comments: bool = True, path: tuple = PATH, value: object = ENTRY) -> str:
    return Document(text, comments=comments).with_value(path, value)


def cleared(text: str, comments: bool = True, path: tuple = PATH) -> str:
    return Document(text, comments=comments).cleared(path)


GOLDENS = [
    ("{}\n", '{\n  "mcpServers": {\n    "pinfold": {\n      "x": 1\n    }\n  }\n}\n', "{}\n"),
    ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"mcpServers": {\n\t\t"pinfold": {\n\t\t\t"x": 1\n\t\t}\n\t}\n}', '{\n\t"a": 1\n}'),
    ('{"a":1}', '{"a":1,"mcpServers":{"pinfold":{"x":1}}}', '{"a":1}'),
    ('{"a": 1, "mcpServers": {"b": {}}}', '{"a": 1, "mcpServers": {"b": {}, "pinfold": {"x": 1}}}', '{"a": 1, "mcpServers": {"b": {}}}'),
    ('{\r\n    "mcpServers": {}\r\n}\r\n', '{\r\n    "mcpServers": {\r\n        "pinfold": {\r\n            "x": 1\r\n        }\r\n    }\r\n}\r\n', "{}\r\n"),
    (
        '// head\n{\n  "a": 1 // one\n  // last words\n}',
        '// head\n{\n  "a": 1, // one\n  // last words\n  "mcpServers": {\n    "pinfold": {\n      "x": 1\n    }\n  }\n}',
        '// head\n{\n  "a": 1 // one\n  // last words\n}',
    ),
    (
        '{\n  "mcpServers": {\n    "b": {}, /* b */\n  },\n}',
        '{\n  "mcpServers": {\n    "b": {}, /* b */\n    "pinfold": {\n      "x": 1\n    },\n  },\n}',
        '{\n  "mcpServers": {\n    "b": {}, /* b */\n  },\n}',
    ),
    (
        '\ufeff{\n  "mcpServers": { // none yet\n  }\n}',
        '\ufeff{\n  "mcpServers": { // none yet\n    "pinfold": {\n      "x": 1\n    }\n  }\n}',
        '\ufeff{\n  "mcpServers": { // none yet\n  }\n}',
    ),
]


@pytest.mark.parametrize(("before", "after", "back"), GOLDENS, ids=range(len(GOLDENS)))
def test_a_key_is_added_in_the_style_of_its_surroundings_and_taken_away_without_a_trace(before: str, after: str, back: str) -> None:
    assert put(before, value={"x": 1}) == after
    assert cleared(after) == back


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"pinfold": 1, "b": 2}', '{"b": 2}'),
        ('{"b": 2, "pinfold": 1}', '{"b": 2}'),
        ('{"a": 1, "pinfold": 1, "b": 2}', '{"a": 1, "b": 2}'),
        ('{\n  "pinfold": 1,\n  "b": 2\n}', '{\n  "b": 2\n}'),
        ('{\n  "b": 2, // two\n  "pinfold": 1\n}', '{\n  "b": 2 // two\n}'),
        ('{\n  // ours\n  "pinfold": 1, // mine\n  "b": 2\n}', '{\n  // ours\n  // mine\n  "b": 2\n}'),
        ('{\n  // ours\n  "pinfold": 1, "b": 2\n}', '{\n  // ours\n  "b": 2\n}'),
        ('{ "b": 2 // two\n, "pinfold": 1}', '{ "b": 2 // two\n}'),
        ('{ // only\n  "pinfold": 1 }', "{ // only\n  }"),
    ],
)
def test_a_member_goes_with_one_comma_and_the_comments_stay(before: str, after: str) -> None:
    assert cleared(before, path=("pinfold",)) == after


def test_elements_of_a_list_are_appended_replaced_and_removed() -> None:
    text = '{\n  "hooks": {\n    "Stop": [\n      {"a": 1}\n    ]\n  }\n}'
    more = Document(text).with_value(("hooks", "Stop", 1), {"b": 2})
    assert json.loads(more) == {"hooks": {"Stop": [{"a": 1}, {"b": 2}]}}
    assert Document(more).cleared(("hooks", "Stop", 1)) == text
    assert Document(more).get(("hooks", "Stop", 0, "a")) == 1
    assert Document(more).get(("hooks", "Stop", 7)) is ABSENT


def test_the_same_value_again_changes_no_byte() -> None:
    text = '{ "mcpServers" : { "pinfold" : { "args" : [ "mcp" ] , "command" : "p" } } }'
    assert put(text, value={"command": "p", "args": ["mcp"]}) == text
    assert cleared(text, path=("other",)) == text


def test_a_value_with_comments_inside_is_not_replaced() -> None:
    with pytest.raises(Refused) as refused:
        put('{"mcpServers": {"pinfold": {"command": "x" /* mine */}}}')
    assert refused.value.code == "invalid_file" and "comments" in refused.value.message


BROKEN = [
    "",
    "nothing",
    "{",
    '{"a": 1',
    '{"a" 1}',
    '{"a": }',
    '{"a": 01}',
    '{"a": 1.}',
    '{"a": truely}',
    '{"a": "\n"}',
    '{"a": "\\x"}',
    "{'a': 1}",
    "{a: 1}",
    '{"a": 1} x',
    '{"a": 1,, "b": 2}',
    '{"a": 1 "b": 2}',
    "[1 2]",
    "{/* no end",
    '{"a": NaN}',
    "[" * (DEPTH + 2) + "]" * (DEPTH + 2),
    '{"mcpServers": []}',
    '{"mcpServers": null}',
    '{"mcpServers": {}, "mcpServers": {}}',
    '{"mcpServers": {"pinfold": 1, "pinfold": 2}}',
    "[]",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_json_or_says_two_things_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Refused) as refused:
        put(text)
    assert refused.value.code == "invalid_file"
    assert refused.value.line >= 1 and refused.value.column >= 1


@pytest.mark.parametrize("text", ["{} // c", "/* c */ {}", '{"a": 1,}', '{"a": [1,]}'])
def test_plain_json_has_no_comments_and_no_comma_before_the_end(text: str) -> None:
    assert "pinfold" in put(text)
    with pytest.raises(Refused) as refused:
        put(text, comments=False)
    assert refused.value.code == "invalid_file"


# --- any JSON in any layout ---------------------------------------------------------------------------------------

blanks = st.text(" \t\n\r", max_size=4)
remarks = st.sampled_from(["", "", "// words\n", "/* a , } */", "//\r\n", "/* \n */"])
keys = st.text(max_size=5) | st.sampled_from(["mcpServers", "pinfold", "a//b", '"', "\\"])
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)


@st.composite
def layouts(draw: st.DrawFn, comments: bool = True, depth: int = 3, object_only: bool = False) -> str:
    """A JSON text in a layout nobody would choose, with comments and commas before the end where they are allowed."""

    def gap() -> str:
        return draw(blanks) + (draw(remarks) + draw(blanks) if comments else "")

    kind = "object" if object_only else draw(st.sampled_from(["object", "list", "scalar"] if depth else ["scalar"]))
    if kind == "scalar":
        return json.dumps(draw(scalars), ensure_ascii=draw(st.booleans()))
    inner = [draw(layouts(comments, depth - 1)) for _ in range(draw(st.integers(0, 3)))]
    if kind == "object":
        names = draw(st.lists(keys.filter(lambda key: not (object_only and key == "mcpServers")), min_size=len(inner), max_size=len(inner), unique=True))
        inner = [f"{json.dumps(name)}{gap()}:{gap()}{value}" for name, value in zip(names, inner, strict=True)]
    opened, closed = "{}" if kind == "object" else "[]"
    end = "," + gap() if comments and inner and draw(st.booleans()) else ""
    return opened + gap() + ",".join(f"{gap()}{value}{gap()}" for value in inner) + end + closed


@given(st.booleans().flatmap(lambda comments: st.tuples(st.just(comments), layouts(comments, object_only=True))))
def test_whatever_the_layout_only_our_key_comes_and_goes(case: tuple[bool, str]) -> None:
    comments, text = case
    after = put(text, comments)
    assert Document(after, comments=comments).get(PATH) == ENTRY
    squeezed = re.compile(r"[ \t\r\n,]+")
    span = next(part for part in Document(after, comments=comments).root.parts if part.key == "mcpServers")
    without = after[: span.start] + after[span.span.end :]
    assert squeezed.sub("", without) == squeezed.sub("", text)
    back = cleared(after, comments)
    assert back == text or (squeezed.sub("", back) == squeezed.sub("", text) and Document(text, comments=comments).root.parts == [])


@given(layouts(False))
def test_plain_json_reads_as_the_standard_library_reads_it(text: str) -> None:
    assert Document(text).plain() == json.loads(text)


@given(st.text('{}[]:,"\\/* \n1a', max_size=20))
def test_noise_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        found = Document(text, comments=True).plain()
    except Refused:
        return
    try:
        assert found == json.loads(text)
    except ValueError:
        assert "/" in text or "," in text
