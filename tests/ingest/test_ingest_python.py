"""Python read by its own parser: symbols, calls within a file, imports; and whatever else a file named .py may hold."""

from __future__ import annotations

import pytest

from pinfold.ingest.imports import Paths
from pinfold.ingest.outline import Import, Outline
from pinfold.ingest.python import read_python
from pinfold.ingest.source import Unread

CODE = '''
"""A file about shapes. And more."""
import os.path as p, sys
from . import sibling

@traced
def area(shape, /, scale=1, *rest, unit, round=True, **more):
    """Return the area. In square metres, and with a very long explanation that goes on."""
    def inner(value):
        return helper(value)
    return inner(convert(shape))

def helper(value): return value
def convert(shape): return [helper(part) for part in shape]
def traced(f): return f

class Shape(Base, p.Thing):
    """A shape."""
    default = convert([])
    def __init__(self): self.reset()
    def reset(self): super().reset()
    @property
    def size(self):
        """How large."""
    @size.setter
    def size(self, value): self.reset()
    @staticmethod
    def of(self): self.reset()
    class Corner:
        def turn(self): Shape.of(self)

class Square(Shape):
    async def load(self, *, fast=False): await self.reset(); self.Corner(); area(self)
    def shadow(self, helper): helper(1)
    def rebound(self):
        convert = len
        return convert(self)

if sys.platform == "x":
    def case(): return 1
else:
    def case(): return helper(2)
area(1)
'''.lstrip()


def outline(code: str | bytes) -> Outline:
    return read_python(code if isinstance(code, bytes) else code.encode())


def test_symbols_have_their_lines_signatures_and_first_sentences() -> None:
    told = {symbol.name: (symbol.kind, f"{symbol.start}-{symbol.end}", symbol.sig, symbol.doc) for symbol in outline(CODE).symbols}
    assert told["area"] == ("FUNC", "5-10", "(shape, /, scale=, *rest, unit, round=, **more)", "Return the area.")
    assert told["Shape"] == ("CLASS", "16-29", "(Base, p.Thing)", "A shape.")
    assert told["Shape.size"] == ("FUNC", "21-25", "()", "How large.")
    assert told["Shape.of"] == ("FUNC", "26-27", "(self)", "")
    assert told["Square.load"] == ("FUNC", "32-32", "async (*, fast=)", "")
    assert told["case"] == ("FUNC", "39-41", "()", "")
    assert "area.inner" not in told and "Shape.Corner.turn" in told
    assert outline(CODE).doc == "A file about shapes. And more."


def test_calls_are_those_that_the_file_itself_decides() -> None:
    assert outline(CODE).calls == [
        ("", "area"),
        ("", "traced"),
        ("Shape", "convert"),
        ("Shape.Corner.turn", "Shape.of"),
        ("Shape.__init__", "Shape.reset"),
        ("Shape.size", "Shape.reset"),
        ("Square.load", "Shape.Corner"),
        ("Square.load", "Shape.reset"),
        ("Square.load", "area"),
        ("area", "convert"),
        ("area", "helper"),
        ("case", "helper"),
        ("convert", "helper"),
    ]


def test_decorators_without_brackets_are_calls_too() -> None:
    assert outline("def traced(f): return f\n@traced\ndef a(): pass\nclass C:\n    @traced\n    def m(self): pass\n").calls == [("", "traced"), ("C", "traced")]


def test_every_sort_of_binding_hides_a_name_of_the_file() -> None:
    ways = [
        "f = 1", "for f in x: pass", "with x as f: pass", "import f", "from x import y as f", "import f.g", "f: int = 1", "[0 for f in x]", "lambda f: 1",
        "def f(): pass", "class f: pass", "(f := 1)", "del f",
        "try: pass\n    except E as f: pass", "match x:\n        case [*f]: pass", "match x:\n        case {'a': f}: pass",
    ]  # fmt: skip
    for way in ways:
        assert outline(f"def f(): pass\ndef g():\n    {way}\n    f()\n").calls == [], way
    assert outline("def f(): pass\ndef g():\n    h = 1\n    f()\n").calls == [("g", "f")]


def test_the_object_of_a_method_is_known_by_any_name_until_a_function_takes_it_over() -> None:
    code = (
        "class A:\n    def m(me): (lambda: me.n())()\n    def n(me):\n        def inner(me): me.m()\n        class Local:\n            def m(self): self.m()\n"
    )
    assert outline(code).calls == [("A.m", "A.n")]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (b"def f(:\n  pass", "line 1: "),
        (b"x = 1\n\xff\xfe", "line "),
        (b"# coding: nonsense\nx = 1", "line "),
        (b"def f():\n\treturn 1\n        return 2", "line 3: "),
        (b"x = 1\0", ""),
        (b"(" * 100_000, ""),
        (b"x = " + b"-" * 200_000 + b"1", ""),
        (b"print 'python 2'", "line 1: "),
    ],
)
def test_what_is_no_python_says_so(code: bytes, why: str) -> None:
    with pytest.raises(Unread) as unread:
        read_python(code)
    assert str(unread.value).startswith(why) and "\n" not in str(unread.value)


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"\n",
        b"\xef\xbb\xbfx = 1",
        "# -*- coding: latin-1 -*-\ndef \xe4(): '\xfc'\n".encode("latin-1"),
        "def ﬁ(): pass".encode(),
        b"'\\ud800'",
        b"x = '\\d'\n1 is 1",
    ],
)
def test_encodings_marks_and_warnings_are_python(code: bytes) -> None:
    assert outline(code).language == "python"


def test_a_lone_surrogate_of_a_docstring_is_replaced() -> None:
    assert outline("def f():\n    'a \\ud800 b'\n").symbols[0].doc == "a \ufffd b"


def test_nesting_is_walked_without_recursion() -> None:
    deep = "x = " + "f(" * 90 + ")" * 90 + "\n" + "if x:\n" + "".join(" " * level + "if x:\n" for level in range(1, 95)) + " " * 95 + "def g(): pass\n"
    assert [symbol.name for symbol in outline(deep).symbols] == ["g"]
    assert outline("x = " + " + ".join(["f()"] * 700) + "\ndef f(): pass").calls == [("", "f")]


# --- imports ----------------------------------------------------------------------------------------------------------


PATHS = Paths(
    [
        "src/shop/__init__.py", "src/shop/cart.py", "src/shop/pay/__init__.py", "src/shop/pay/card.py", "src/shop/logging.py",
        "tests/helpers.py", "tests/test_cart.py", "tools/run.py", "tools/lib/__init__.pyi", "ns/deep/thing.py",
    ]
)  # fmt: skip


def _resolved(path: str, *given: Import) -> tuple[list[str], list[str]]:
    found = PATHS.of(path, Outline("python", 1, "", [], [], list(given)))
    return found.inside, found.outside


@pytest.mark.parametrize(
    ("path", "given", "inside", "outside"),
    [
        ("tests/test_cart.py", Import("shop.cart"), ["src/shop/cart.py"], []),
        ("tests/test_cart.py", Import("shop", names=("cart", "VERSION")), ["src/shop/__init__.py", "src/shop/cart.py"], []),
        ("tests/test_cart.py", Import("shop", names=("cart",)), ["src/shop/cart.py"], []),
        ("tests/test_cart.py", Import("helpers"), ["tests/helpers.py"], []),
        ("src/shop/cart.py", Import("pay", 1, ("card",)), ["src/shop/pay/card.py"], []),
        ("src/shop/pay/card.py", Import("cart", 2, ("Cart",)), ["src/shop/cart.py"], []),
        ("src/shop/pay/card.py", Import("", 2, ("*",)), ["src/shop/__init__.py"], []),
        ("src/shop/cart.py", Import("x", 9), [], []),
        ("src/shop/cart.py", Import("logging"), [], []),
        ("src/shop/cart.py", Import("shop.pay.card.Card"), ["src/shop/pay/card.py"], []),
        ("src/shop/cart.py", Import("numpy.linalg"), [], ["numpy"]),
        ("tools/run.py", Import("lib"), ["tools/lib/__init__.pyi"], []),
        ("tools/run.py", Import("ns.deep.thing"), ["ns/deep/thing.py"], []),
    ],
)
def test_imports_are_found_by_the_paths_there_are(path: str, given: Import, inside: list[str], outside: list[str]) -> None:
    assert _resolved(path, given) == (inside, outside)
