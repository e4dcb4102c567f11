"""The style of the house, read from the sources: which room may import which, and what no file may hold."""

import ast
import importlib
import inspect
from itertools import pairwise
from pathlib import Path

import pytest

import pinfold

pytestmark = pytest.mark.requirement("tidy")

SOURCE = Path(pinfold.__file__).parent
TESTS = Path(__file__).parent
MODULES = {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}

ARROWS = {
    "errors": (),
    "caller": (),
    "limits": (),
    "entry": ("errors",),
    "call_key": ("errors",),
    "dialect": ("entry", "limits", "errors"),
    "state": ("dialect", "entry", "limits", "errors"),
    "recall": ("state",),
    "journal.base": ("entry", "limits", "errors"),
    "journal.backends": ("journal.base",),
    "journal.url": ("errors",),
    "journal.open": ("journal.backends", "journal.url"),
    "bulk": (),
    "fold": ("journal.base", "state", "bulk"),
    "engine": ("fold",),
    "tree": ("errors",),
    "ingest": ("state", "tree", "bulk"),
    "session": ("engine", "journal.open", "recall", "call_key", "caller", "ingest"),
    "doctor": ("session", "journal.backends"),
    "importers": ("session",),
    "operations": ("session", "importers"),
    "doors": ("operations", "doctor", "install"),
    "adapters": ("operations",),
    "compat": ("operations",),
    "install": ("errors",),
}
"""Room -> the rooms right below it; what lies further below may be imported too. `testing` may import anything."""

ROOMS = {
    "arguments": "session",
    "async_session": "session",
    "erase": "session",
    "recall_session": "session",
    "recall_answers": "session",
    "inputs": "session",
    "inputs_session": "session",
    "graph_session": "session",
    "history": "session",
    "memory": "session",
    "portable": "session",
    "renewer": "engine",
    "savefile": "session",
    "steps": "session",
    "telemetry": "session",
    "doors.graphql": "operations",
    "doors.graphql_schema": "operations",
    "transfer": "session",
    "touches": "engine",
    "scan": "operations",
    "journal.memory": "journal.backends",
    "journal.sqlite": "journal.backends",
    "journal.lock": "journal.backends",
    "journal.redis": "journal.backends",
    "journal.redis_nodes": "journal.backends",
    "journal.redis_scripts": "journal.backends",
    "journal.postgres": "journal.backends",
    "journal.postgres_link": "journal.backends",
    "journal.postgres_schema": "journal.backends",
    "journal.contention": "journal.backends",
    "journal.heads": "journal.backends",
    "journal.offset": "journal.backends",
    "journal.remote": "journal.open",
    "__main__": "doors",
}
"""Modules that live in a room of another name."""

FREE = ("testing", "__init__")
"""May import anything: the test kit, and the one file that gathers the public names."""
PURE_MAY_IMPORT = {
    "__future__",
    "bisect",
    "collections",
    "datetime",
    "decimal",
    "difflib",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "msgspec",
    "operator",
    "re",
    "string",
    "typing",
    "unicodedata",
}
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "now", "utcnow", "today", "time_ns", "monotonic"}
LINES = 900


def room_of(module: str) -> str:
    if module in ROOMS:
        return ROOMS[module]
    first, _, rest = module.partition(".")
    return f"journal.{rest or 'base'}" if first == "journal" else first


def below(room: str) -> set[str]:
    found = {room}
    for lower in ARROWS[room]:
        found |= below(lower)
    return found


def imports_of(tree: ast.AST):
    """Yield (line, module) of every import that runs; `from pinfold import x` counts as pinfold.x where that is a module."""
    for_types = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                known = inner.removeprefix("pinfold.")
                yield node.lineno, inner if node.module.startswith("pinfold") and known in MODULES else node.module


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith(FREE)])
def test_imports_run_one_way(module):
    room = room_of(module)
    allowed = below(room)
    for line, name in imports_of(TREES[module]):
        if name.startswith("pinfold."):
            target = room_of(name.removeprefix("pinfold."))
            assert target in allowed, f"{module}:{line} ({room}) imports {name} ({target}); it may import {sorted(allowed)}"


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith(("state.", "dialect."))])
def test_pure_rooms_know_no_clock_dice_files_locks_or_logging(module):
    foreign = {name.partition(".")[0] for _, name in imports_of(TREES[module])} - {"pinfold"}
    assert foreign <= PURE_MAY_IMPORT
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            assert called not in IMPURE_CALLS, f"{module}:{node.lineno} calls {called}"


def test_the_arrows_are_a_drawing_without_circles():
    for room in ARROWS:
        assert all(room not in below(lower) for lower in ARROWS[room])


@pytest.mark.parametrize("path", [*MODULES.values(), *sorted(TESTS.rglob("*.py"))], ids=lambda path: path.name)
def test_no_file_is_too_long_or_left_unfinished(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LINES
    for mark in ("odot", "emxif"):
        assert mark[::-1].upper() not in text


@pytest.mark.parametrize("module", [name for name in MODULES if MODULES[name].stat().st_size])
def test_every_module_says_what_it_is(module):
    assert ast.get_docstring(TREES[module])


def test_all_is_sorted_and_names_what_is_there_and_documented():
    assert pinfold.__all__ == sorted(pinfold.__all__)
    for name in pinfold.__all__:
        public = getattr(pinfold, name)
        if not name.startswith("__"):
            assert inspect.getdoc(public), name
            assert inspect.getdoc(public) != inspect.getdoc(type(public)), name


def test_every_public_method_of_the_python_api_is_documented():
    bare = [
        f"{kind.__name__}.{name}"
        for kind in (pinfold.Memory, pinfold.Session)
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_") and not inspect.getdoc(member)
    ]
    assert bare == []


def raised_pinfold_errors():
    """Yield (module, line, call, kind) of every PinfoldError made in the sources."""
    from pinfold import errors

    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.PinfoldError)}
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                yield module, node.lineno, node, kinds[node.func.id]


def test_every_error_has_a_code_that_says_more_than_its_kind():
    vague = []
    for module, line, call, kind in raised_pinfold_errors():
        names = {keyword.arg for keyword in call.keywords}
        if kind.default_code in ("refused", "unavailable", "error") and "code" not in names and None not in names:
            vague.append(f"{module}:{line}")
    assert vague == []


def test_codes_are_words_with_underscores():
    import re

    for module, line, call, _ in raised_pinfold_errors():
        for keyword in call.keywords:
            if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", keyword.value.value), f"{module}:{line}"


def test_nothing_but_a_door_catches_every_exception_unless_it_raises_again():
    """`except Exception` belongs in a door's outermost loop; steps hand any exception of the work to those who wait."""
    for module, tree in TREES.items():
        if module.startswith(("doors", "testing")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"):
                again = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                assert again or module == "steps", f"{module}:{node.lineno}"


def test_limits_name_their_unit_and_stand_with_their_reason():
    limits = importlib.import_module("pinfold.limits")
    names = [name for name in vars(limits) if name.isupper()]
    assert len(names) > 30
    body = TREES["limits"].body
    documented = sum(isinstance(a, ast.Assign) and isinstance(b, ast.Expr) for a, b in pairwise(body))
    assert documented >= 15
