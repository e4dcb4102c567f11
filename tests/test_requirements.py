"""The manifest of promises, held both ways: every promise has a test, every tag is a promise."""

import ast
from pathlib import Path

from requirements import REQUIREMENTS


def tags() -> dict[str, list[str]]:
    """Return the ids used in requirement marks, with the files that use them."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement":
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path.name}:{node.lineno}: ids are written out"
                    found.setdefault(argument.value, []).append(path.name)
    return found


def test_every_promise_has_a_test():
    assert set(REQUIREMENTS) - set(tags()) == set()


def test_every_tag_is_a_promise():
    assert set(tags()) - set(REQUIREMENTS) == set()


def test_every_promise_is_one_sentence():
    for name, sentence in REQUIREMENTS.items():
        assert sentence.endswith("."), name
        assert sentence[0].isupper() or sentence.split()[0] in ("once", "peek"), name
