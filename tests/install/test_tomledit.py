"""Editing TOML by its text: one table comes and goes, every other byte is what it was."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.errors import Refused
from pinfold.install.jsonedit import ABSENT
from pinfold.install.tomledit import get, with_table, without_table

pytestmark = pytest.mark.requirement("install")

PATH = ("mcp_servers", "pinfold")
ENTRY = {"command": "C:\\Users\\测试 X\\pinfold.exe", "args": ["mcp", 'a"b'], "env": {"A": "1", "odd key": "\x7f"}}
BLOCK = """\
[mcp_servers.pinfold]
command = "C:\\\\Users\\\\测试 X\\\\pinfold.exe"
args = ["mcp", "a\\"b"]

[mcp_servers.pinfold.env]
A = "1"
"odd key" = "\\u007f"
"""

TEXTS = [
    "",
    "a = 1\n",
    "a = 1",
    "# words\r\n\r\na = 1 # one\r\n",
    '[mcp_servers.other]\ncommand = "x" # mine\n\n# the end\n',
    'x = """\n[mcp_servers.pinfold]\n"""\ny = \'\'\'\n[a]\n\'\'\'\n[a]\nb = [ # [\n  1,\n  "]", # ]\n]\nc = { d = "}", e = [1] }\n',
    '[[profiles]]\nname = "a"\n[[profiles]]\nname = "b"\n[profiles."q.x".\'y z\']\n',
    "[mcp_servers]\n",
    'd = 2026-11-30T10:00:00Z\nf = nan\ng = inf\n"" = 1\n',
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_table_is_appended_and_taken_away_without_a_trace(text: str) -> None:
    after = with_table(text, PATH, ENTRY)
    assert after.startswith(text)
    assert after.replace("\r\n", "\n").endswith(BLOCK.removesuffix("\n") if text and not text.endswith("\n") else BLOCK)
    assert tomllib.loads(after)["mcp_servers"]["pinfold"] == ENTRY
    assert with_table(after, PATH, ENTRY) == after
    assert without_table(after, PATH) == text
    assert without_table(text, PATH) == text


def test_keys_are_set_where_they_stand_and_those_of_the_user_stay() -> None:
    text = (
        'a = 1\n\n[mcp_servers.pinfold] # ours\ncommand = "old" # was\nstartup_timeout_sec = 20\nargs = [\n  "x", # y\n]\n\n'
        '[mcp_servers.pinfold.env]\nA = "0"\nMINE = "m"\n\n[z]\nb = 1'
    )
    after = with_table(text, PATH, {"command": "new", "args": ["mcp"], "env": {"A": "1", "MINE": "m", "B": "2"}})
    assert after == (
        'a = 1\n\n[mcp_servers.pinfold] # ours\ncommand = "new" # was\nstartup_timeout_sec = 20\nargs = ["mcp"]\n\n'
        '[mcp_servers.pinfold.env]\nA = "1"\nMINE = "m"\nB = "2"\n\n[z]\nb = 1'
    )
    assert without_table(after, PATH) == "a = 1\n\n[z]\nb = 1"


def test_a_key_and_a_table_that_are_missing_are_put_behind_those_there() -> None:
    text = "[mcp_servers.pinfold]\nenabled = true\n# more\n[z]\n"
    after = with_table(text, PATH, {"command": "p", "env": {"A": "1"}})
    assert after == '[mcp_servers.pinfold]\nenabled = true\ncommand = "p"\n\n[mcp_servers.pinfold.env]\nA = "1"\n# more\n[z]\n'
    inline = '[mcp_servers.pinfold]\ncommand = "p"\nenv = { A = "0" } # env'
    assert with_table(inline, PATH, {"env": {"A": "1"}}) == '[mcp_servers.pinfold]\ncommand = "p"\nenv = { A = "1" } # env'


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { pinfold = { command = "old" } }\n',
        'mcp_servers = { other = { command = "x" } }\n',
        'mcp_servers.pinfold.command = "old"\n',
        '[mcp_servers]\npinfold = { command = "old" }\n',
        '[mcp_servers]\npinfold.command = "old"\n',
        'mcp_servers.pinfold = "old"\n',
    ],
)
def test_a_table_in_an_unusual_form_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        with_table(text, PATH, ENTRY)
    assert refused.value.code == "unusual_form"
    if get(text, PATH) is not ABSENT:
        with pytest.raises(Refused):
            without_table(text, PATH)


@pytest.mark.parametrize("text", ["a = ", "[a\n", "a = 1\na = 2\n", "\ufeffa = 1", "a = [" * 5000])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        with_table(text, PATH, ENTRY)
    assert refused.value.code == "invalid_file"


values = st.sampled_from(["1", '"#"', "'[x]'", '"""\n[y]\n"""', "'''\n[mcp_servers.pinfold]\n'''", "[1, [2],\n3]", '{ a = "}" }', "1979-05-27", "-inf"])
names = st.sampled_from(["a", "b-c", '"x.y"', "'q r'", '"é"'])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A TOML text of a few tables, with comments and blanks anywhere."""
    eol = draw(st.sampled_from(["\n", "\r\n"]))
    gap = st.sampled_from(["", eol, f"# words [x]{eol}", f"  {eol}"])
    text = draw(gap)
    for header in ("", *draw(st.lists(names, unique=True, max_size=3))):
        text += f"[t.{header}] # {header}{eol}" if header else ""
        for name in draw(st.lists(names, unique=True, max_size=3)):
            text += f"{name} = {draw(values)}{draw(st.sampled_from(['', ' # c', '  ']))}{eol}{draw(gap)}"
    return text.removesuffix("\n").removesuffix("\r") if draw(st.booleans()) else text


@given(documents())
def test_whatever_the_text_only_our_table_comes_and_goes(text: str) -> None:
    after = with_table(text, PATH, ENTRY)
    assert after.startswith(text)
    assert tomllib.loads(after)["mcp_servers"]["pinfold"] == ENTRY
    changed = with_table(after, PATH, {"command": "other", "args": []})
    assert changed.startswith(text)
    assert without_table(after, PATH) == without_table(changed, PATH) == text
