"""Python by its own parser: classes, functions and methods, what they call within the file, what the file imports.

A function within a function is no symbol: what it calls, its owner calls. A name counts as one of the file's only where
the function does not bind it itself, so what is told to be a call is one; calls by other ways are not told.
"""

from __future__ import annotations

import ast
import warnings
from typing import Any

from pinfold.ingest.outline import CLASS, FUNC, Import, Outline, Symbol, add_symbol
from pinfold.ingest.source import Unread, first_line, words

SIG_CHARS = 60
DOC_CHARS = 60

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NODE_WORDS = """
    annotation args bases body cases cause cls comparators context_expr decorator_list defaults elt elts exc finalbody format_spec func generators
    guard handlers ifs items iter key keys keywords kw_defaults kwarg kwd_patterns kwonlyargs left lower msg operand optional_vars orelse pattern
    patterns posonlyargs returns right slice step subject target targets test type upper value values vararg
"""
_NODES = frozenset(_NODE_WORDS.split())
"""Fields that hold nodes to look at; the others hold names, constants and what says how a node is used."""


class _Inner(dict[type, tuple[str, ...]]):
    """Class of a node -> its fields that hold nodes; what is no node has none."""

    def __missing__(self, kind: type) -> tuple[str, ...]:
        fields = kind._fields if issubclass(kind, ast.AST) and kind not in (ast.Constant, ast.MatchSingleton) else ()
        found = self[kind] = tuple(field for field in fields if field in _NODES)
        return found


_INNER = _Inner()
_SPECIAL = frozenset(
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Import, ast.ImportFrom, ast.arg, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
)
_SELF, _SUPER = "\0self", "\0super"


def read_python(data: bytes) -> Outline:
    """Return the outline of a file. Raises Unread where it is no Python of this interpreter's version."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the file's author is to be told is not for us
            tree = ast.parse(data)
    except SyntaxError as error:
        raise Unread(f"line {error.lineno or 1}: {words(error.msg)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unread(f"the parser gave up: {words(str(error)) or type(error).__name__}") from None
    return _Reader(tree, data.count(b"\n") + (data[-1:] not in (b"\n", b""))).outline()


class _Owner:
    """What encloses a node: the file (kind ""), a class or a function. bound: names that a function makes its own."""

    __slots__ = ("bound", "calls", "cls", "kind", "name")

    def __init__(self, kind: str, name: str, cls: str = "") -> None:
        self.kind, self.name, self.cls = kind, name, cls
        self.bound: set[str] = set()
        self.calls: list[tuple[str, str]] = []


class _Reader:
    def __init__(self, tree: ast.Module, lines: int) -> None:
        self.tree, self.lines = tree, lines
        self.symbols: dict[str, Symbol] = {}
        self.bases: dict[str, list[str]] = {}
        self.owners: list[_Owner] = []
        self.imports: list[Import] = []
        self.regions: list[tuple[list[Any], _Owner, str]] = []

    def outline(self) -> Outline:
        self._walk()
        calls = {(owner.name, self._callee(owner, base, name)) for owner in self.owners for base, name in owner.calls}
        told = sorted((caller, callee) for caller, callee in calls if callee and caller != callee)
        symbols = sorted(self.symbols.values(), key=lambda symbol: (symbol.start, symbol.name))
        return Outline("python", self.lines, first_line(_doc(self.tree)), symbols, told, self.imports)

    # --- the walk ---------------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        """Visit every node once, by regions of one owner and one name that it calls its own object by. No recursion: code nests deeply."""
        top = _Owner("", "")
        self.owners.append(top)
        regions = self.regions
        regions.append((list(self.tree.body), top, ""))
        while regions:
            stack, owner, me = regions.pop()
            in_function = owner.kind == FUNC
            while stack:
                node = stack.pop()
                kind = node.__class__
                if kind is ast.Name:
                    if in_function and node.ctx.__class__ is not ast.Load:
                        owner.bound.add(node.id)
                    continue
                if kind is ast.Call:
                    self._note_call(node.func, owner, me)
                elif kind in _SPECIAL and self._special(node, kind, owner, me):
                    continue
                for field in _INNER[kind]:
                    value = getattr(node, field)
                    if value.__class__ is list:
                        stack.extend(value)
                    elif value is not None:
                        stack.append(value)

    def _special(self, node: Any, kind: type, owner: _Owner, me: str) -> bool:
        """Note what makes names, symbols or a region of its own. Return whether nothing more is to be done for the node."""
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            self._function(node, owner, me)
            return True
        if kind is ast.ClassDef:
            self._class(node, owner, me)
            return True
        if kind is ast.Lambda:
            self.regions.append(([node.args, node.body], owner, "" if me in _names_of(node.args) else me))
            return True
        if kind is ast.Import:
            self.imports.extend(Import(alias.name) for alias in node.names)
            self._bind(owner, *((alias.asname or alias.name.partition(".")[0]) for alias in node.names))
        elif kind is ast.ImportFrom:
            self.imports.append(Import(node.module or "", node.level, tuple(alias.name for alias in node.names)))
            self._bind(owner, *(alias.asname or alias.name for alias in node.names))
        elif kind is ast.arg:
            self._bind(owner, node.arg)
        elif node.name:
            self._bind(owner, node.name)
        return False

    def _bind(self, owner: _Owner, *names: str) -> None:
        if owner.kind == FUNC:
            owner.bound.update(names)

    def _function(self, node: _Function, owner: _Owner, me: str) -> None:
        self._decorate(node, owner, me)
        outside = [*node.decorator_list, node.args, *([node.returns] if node.returns is not None else [])]
        if owner.kind == FUNC:
            owner.bound.add(node.name)
            self.regions.append(([*outside, *node.body], owner, "" if me in _names_of(node.args) else me))
            return
        name = f"{owner.name}.{node.name}" if owner.name else node.name
        first = [*node.args.posonlyargs, *node.args.args][:1]
        static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
        mine = first[0].arg if owner.kind == CLASS and first and not static else ""
        sig = ("async " if isinstance(node, ast.AsyncFunctionDef) else "") + _signature(node.args, mine)
        add_symbol(self.symbols, Symbol(FUNC, name, _start(node), node.end_lineno or node.lineno, words(sig, SIG_CHARS), first_line(_doc(node), DOC_CHARS)))
        inner = _Owner(FUNC, name, owner.name)
        inner.bound.update(_names_of(node.args))
        self.owners.append(inner)
        self.regions.append((outside, owner, me))
        self.regions.append((list(node.body), inner, mine))

    def _class(self, node: ast.ClassDef, owner: _Owner, me: str) -> None:
        self._decorate(node, owner, me)
        outside = [*node.decorator_list, *node.bases, *node.keywords]
        if owner.kind == FUNC:
            owner.bound.add(node.name)
            self.regions.append(([*outside, *node.body], owner, ""))
            return
        name = f"{owner.name}.{node.name}" if owner.name else node.name
        bases = ", ".join(ast.unparse(base) for base in node.bases if isinstance(base, (ast.Name, ast.Attribute)))
        sig = words(f"({bases})", SIG_CHARS) if bases else ""
        add_symbol(self.symbols, Symbol(CLASS, name, _start(node), node.end_lineno or node.lineno, sig, first_line(_doc(node), DOC_CHARS)))
        self.bases.setdefault(name, []).extend(base.id for base in node.bases if isinstance(base, ast.Name))
        inner = _Owner(CLASS, name)
        self.owners.append(inner)
        self.regions.append((outside, owner, me))
        self.regions.append((list(node.body), inner, ""))

    def _decorate(self, node: ast.ClassDef | _Function, owner: _Owner, me: str) -> None:
        """Note decorators without brackets: they are called all the same."""
        for mark in node.decorator_list:
            self._note_call(mark, owner, me)

    # --- calls ------------------------------------------------------------------------------------------------------

    def _note_call(self, called: ast.expr, owner: _Owner, me: str) -> None:
        if isinstance(called, ast.Name):
            owner.calls.append(("", called.id))
        elif isinstance(called, ast.Attribute):
            base = called.value
            if isinstance(base, ast.Name):
                owner.calls.append((_SELF if base.id == me and me else base.id, called.attr))
            elif isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super":
                owner.calls.append((_SUPER, called.attr))

    def _callee(self, owner: _Owner, base: str, name: str) -> str:
        """Return the symbol that is called, "" for none of this file."""
        if base == _SELF:
            return self._member(owner.cls, name)
        if base == _SUPER:
            return next((found for above in self.bases.get(owner.cls, ()) if (found := self._member(above, name))), "")
        head = base or name
        if head in owner.bound:
            return ""
        if owner.kind == CLASS and not base and f"{owner.name}.{name}" in self.symbols:
            return f"{owner.name}.{name}"
        if base:
            return self._member(base, name) if base in self.symbols else ""
        return name if name in self.symbols else ""

    def _member(self, cls: str, name: str) -> str:
        """Return a method of a class or of those above it in this file."""
        seen: set[str] = set()
        level = [cls]
        while level:
            at = level.pop(0)
            if at in seen:
                continue
            seen.add(at)
            if f"{at}.{name}" in self.symbols:
                return f"{at}.{name}"
            level.extend(self.bases.get(at, ()))
        return ""


def _names_of(args: ast.arguments) -> list[str]:
    return [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if arg is not None]


def _signature(args: ast.arguments, mine: str) -> str:
    """Return the parameters by name, `=` behind those that may be left out; without the object a method is called on."""
    plain = [*args.posonlyargs, *args.args]
    needed = len(plain) - len(args.defaults)
    parts = [arg.arg + ("=" if place >= needed else "") for place, arg in enumerate(plain)]
    if args.posonlyargs:
        parts.insert(len(args.posonlyargs), "/")
    if args.vararg is not None:
        parts.append(f"*{args.vararg.arg}")
    elif args.kwonlyargs:
        parts.append("*")
    parts += [arg.arg + ("=" if default is not None else "") for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg is not None:
        parts.append(f"**{args.kwarg.arg}")
    return f"({', '.join(parts[1:] if mine else parts)})"


def _doc(node: ast.Module | ast.ClassDef | _Function) -> str | None:
    return ast.get_docstring(node, clean=False)


def _start(node: ast.ClassDef | _Function) -> int:
    return min((mark.lineno for mark in node.decorator_list), default=node.lineno)
