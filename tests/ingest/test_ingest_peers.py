"""Side by side with other readers of the same texts, from PyPI, each in a venv of its own: longeron for SysML v2, PyYAML for front matter."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from projects import SAMPLES
from tests.peers import python_with

from pinfold.ingest.front_matter import parse_front_matter
from pinfold.ingest.sysml_text import read_sysml

pytestmark = pytest.mark.peer

_LONGERON = """
import json, longeron, sys
model = longeron.loads(sys.stdin.read())
json.dump([[type(e).__name__, e.qualified_name] for e in model.iter_tree() if getattr(e, "qualified_name", None)], sys.stdout)
"""
_YAML = "import json, sys, yaml\njson.dump([yaml.load(text, yaml.BaseLoader) for text in json.load(sys.stdin)], sys.stdout)"
_NO_PINS = {"Alias", "Dependency", "Import"}
"""What has a name there and is an edge or nothing here."""


def ask(python: Path, code: str, words: str) -> object:
    done = subprocess.run([str(python), "-c", code], input=words, capture_output=True, text=True, timeout=1800, check=True)
    return json.loads(done.stdout)


def names(text: str) -> set[str]:
    """Return the qualified names of the elements that are named in their own right: one that redefines is seen through, as there."""
    model = read_sysml(text)
    found: list[str] = []
    for element in model.elements:
        above = found[element.owner] if element.owner >= 0 else ""
        found.append("::".join(part for part in (above, "" if element.redefined else element.name) if part))
    return {name for name, element in zip(found, model.elements, strict=True) if element.name and not element.redefined}


def test_the_drone_has_the_elements_that_another_reader_finds(request: pytest.FixtureRequest) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((SAMPLES / "drone").glob("*.sysml")))
    told = ask(python_with(request, "longeron==0.11.0"), _LONGERON, text)
    assert isinstance(told, list)
    theirs = {name for kind, name in told if kind not in _NO_PINS}
    assert names(text) == theirs


TEXTS = [
    "name: pdf\ndescription: >-\n  Folded text\n  over lines.\n\n  Another.\nlicense: MIT # c\n",
    "a: \"q \\\"x\\\" \\u00e9 # no\"\nb: 'it''s'\nc: [a, \"b, c\", d]\nd:\n  - one\n  - two\ne:\n- x\nf:\n  k: v\n  l: \"1.0\"\n",
    "a: |\n  line 1\n    indented\n  line 2\n\n",
    "a: plain\n  goes on\n  here\nb: x:y http://z\n",
    "a: >\n  x\n  y\n\nb: z",
    "a: >-\n  para\n\n    code\n  after\n",
    "a: |-\n\n  x\n",
    "# c\na: 1\n  # inner\nb: 2",
    "a: [\n x,\n y\n]\nb: [x, y]  # trailing",
    "m: {author: x, v: \"1, 0\"}\nb: c",
    "a: null\nb: ~\nc: true\nd: 007\ne: it#is # not",
]  # fmt: skip


def test_front_matter_is_what_yaml_says(request: pytest.FixtureRequest) -> None:
    theirs = ask(python_with(request, "PyYAML==6.0.4"), _YAML, json.dumps(TEXTS))
    assert [parse_front_matter(text) for text in TEXTS] == theirs
