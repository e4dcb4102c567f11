"""Agent skills by their published rules, and the front matter they are written in."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import links, pins, put

from pinfold import Session
from pinfold.ingest.front_matter import parse_front_matter
from pinfold.ingest.skills import read_skill
from pinfold.ingest.source import Unread

PDF = """\
---
name: pdf-tools
description: >-
  Fills forms and
  joins files. Use when a PDF is at hand.
license: MIT # or so
compatibility: Needs pdftk
allowed-tools: Read Bash(git add *) Bash(pdftk:*)
metadata:
  author: Ann
  version: "1.0"
color: blue
---
# How
Do it.
"""


def test_a_skill_is_its_front_matter_its_files_and_its_tools(session: Session, tmp_path: Path) -> None:
    put(tmp_path, {".claude/skills/pdf-tools/SKILL.md": PDF, ".claude/skills/pdf-tools/scripts/fill.py": "x", ".claude/skills/README.md": "x", "main.py": "x"})
    done = session.ingest("skills", str(tmp_path))
    told = pins(session)
    assert (done.files, done.found) == (1, {"skills": 1, "problems": []})
    assert told["pdf-tools"] == {
        "kind": "SKILL", "skill_id": "pdf-tools", "path": ".claude/skills/pdf-tools/SKILL.md",
        "description": "Fills forms and joins files. Use when a PDF is at hand.",
        "license": "MIT", "compatibility": "Needs pdftk", "metadata": "author=Ann; version=1.0; color=blue", "lines": "2",
    }  # fmt: skip
    assert links(session) == {
        ("pdf-tools", "has_file", ".claude/skills/pdf-tools/scripts/fill.py"),
        ("pdf-tools", "mentions_tool", "Read"),
        ("pdf-tools", "mentions_tool", "Bash"),
    }
    (scope,) = [edge.get("scope") for edge in session._view().graph.edges.values() if edge.get("scope")]
    assert scope == "git add *, pdftk:*"
    assert hits(session, "fill a form in a PDF") == "pdf-tools"


def hits(session: Session, query: str) -> str:
    return session._view().graph.nodes[session.search(query).direct[0].node_id].get("skill_id")


def test_two_skills_of_one_name_are_told_apart_and_a_tool_goes_with_its_last(session: Session, tmp_path: Path) -> None:
    put(tmp_path, {"a/pdf-tools/SKILL.md": PDF, "b/pdf-tools/SKILL.md": PDF})
    session.ingest("skills", str(tmp_path))
    assert {"pdf-tools", "pdf-tools (b/pdf-tools)"} <= set(pins(session))
    (tmp_path / "a/pdf-tools/SKILL.md").unlink()
    (tmp_path / "b/pdf-tools/SKILL.md").write_text(PDF.replace(" Bash(git add *) Bash(pdftk:*)", ""))
    session.ingest("skills", str(tmp_path))
    assert set(pins(session)) == {"pdf-tools", "Read"}


@pytest.mark.parametrize(
    ("text", "folder", "problem"),
    [
        ("---\nname: Bad Name\ndescription: x\n---\n", "Bad Name", "name is not 1 to 64"),
        ("---\nname: -a\ndescription: x\n---\n", "-a", "name is not 1 to 64"),
        ("---\nname: a--b\ndescription: x\n---\n", "a--b", "name is not 1 to 64"),
        (f"---\nname: {'a' * 65}\ndescription: x\n---\n", "a" * 65, "name is not 1 to 64"),
        ("---\nname: one\ndescription: x\n---\n", "two", "name is not that of its folder, two"),
        ("---\ndescription: x\n---\n", "two", "name is missing"),
        ("---\nname: two\n---\n", "two", "description is missing"),
        ("---\nname: two\ndescription:\n---\n", "two", "description is missing"),
        (f"---\nname: two\ndescription: {'x' * 1025}\n---\n", "two", "description has 1025 characters"),
        (f"---\nname: two\ndescription: x\ncompatibility: {'x' * 501}\n---\n", "two", "compatibility has 501 characters"),
        ("---\nname: two\ndescription: x\n---\n" + "line\n" * 501, "two", "the body has 501 lines"),
        ("---\nname: two\ndescription: x\n---\nfine", "two", ""),
    ],
)
def test_the_published_rules_are_checked(text: str, folder: str, problem: str) -> None:
    problems = read_skill(text, folder).problems
    assert [told.startswith(problem) for told in problems] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# no front matter", "no front matter"),
        ("---\nname: x\n", "no front matter"),
        ("---\nname: x\ndescription: when: always\n---\n", "line 2: a plain text with a colon"),
        ("---\nname: &x y\n---\n", "line 1: & is not read"),
        ("---\nname: x\nname: y\n---\n", "line 2: name is there twice"),
        ("---\n\tname: x\n---\n", "line 1: a tab indents"),
        ("---\nname: 'x\n---\n", "a quote that does not end"),
        ("---\njust words\n---\n", "line 1: not a key with a value"),
        ("---\nlist:\n  - a: b\n---\n", "line 2: a map in a list"),
        (f"---\nname: {'x' * 40_000}\n---\n", "it has 40006 characters"),
    ],
)
def test_front_matter_that_says_more_than_is_read_is_told_never_guessed(text: str, why: str) -> None:
    with pytest.raises(Unread, match=why):
        read_skill(text, "x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: plain # remark\nb: it#is\n# c: no\n", {"a": "plain", "b": "it#is"}),
        ("a: \"q \\\"x\\\" \\u00e9 # no\"\nb: 'it''s'\n", {"a": 'q "x" é # no', "b": "it's"}),
        ("a: goes\n  on here\nb: http://x:1\n", {"a": "goes on here", "b": "http://x:1"}),
        ("a: >\n  one\n  two\n\n  three\nb: 1\n", {"a": "one two\nthree\n", "b": "1"}),
        ("a: >-\n  one\n\n    code\n  two\n", {"a": "one\n\n  code\ntwo"}),
        ("a: |\n  one\n   two\n\n", {"a": "one\n two\n"}),
        ("a: |-\n  one\n", {"a": "one"}),
        ("a: [x, 'y, z', \"w\"] # r\nb:\n  - one\n  - two\nc:\n- three\n", {"a": ["x", "y, z", "w"], "b": ["one", "two"], "c": ["three"]}),
        ("a: {x: 1, y: 'b, c'}\nb:\n  k: v\n  l:\n    - 1\n    - 2\n", {"a": {"x": "1", "y": "b, c"}, "b": {"k": "v", "l": "1, 2"}}),
        ("a:\nb: null\n\"q k\": v\n", {"a": None, "b": "null", "q k": "v"}),
        ("", {}),
    ],
)  # fmt: skip
def test_the_yaml_that_skills_are_written_in(text: str, told: dict[str, object]) -> None:
    assert parse_front_matter(text) == told
    assert parse_front_matter(text.replace("\n", "\r\n")) == told


def test_a_skill_that_is_no_longer_understood_stays_as_it_was(session: Session, tmp_path: Path) -> None:
    put(tmp_path, {"pdf-tools/SKILL.md": PDF})
    session.ingest("skills", str(tmp_path))
    put(tmp_path, {"pdf-tools/SKILL.md": b"---\nname: \xff\n---\n"})
    done = session.ingest("skills", str(tmp_path))
    assert done.unread == ["pdf-tools/SKILL.md: not UTF-8 at byte 10"] and "pdf-tools" in pins(session) and not done.dropped
