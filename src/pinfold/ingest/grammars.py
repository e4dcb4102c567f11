"""Other languages by tree-sitter: one reader for all, which a query file for each tells what is what.

A capture `def.*` is a symbol from its first line to its last, `scope` only qualifies what is in it. What lies within a
function is no symbol of its own. Calls are told where the name is one of the file's; a parser of one file cannot know more.
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pinfold.errors import ConfigurationError
from pinfold.ingest.languages import LANGUAGES
from pinfold.ingest.outline import CLASS, FUNC, Import, Outline, Symbol, add_symbol
from pinfold.ingest.source import Unread, first_line, words

if TYPE_CHECKING:
    from tree_sitter import Node

SIG_CHARS = 60
DOC_CHARS = 60
_SELVES = frozenset({b"this", b"self", b"Self"})
_DEPTH = 64
"""Scopes within scopes: nobody's code nests deeper, and a name repeats all that is around it."""
_TREE_DEPTH = 512
"""Nodes within nodes that are searched for symbols and calls: matching takes time by the square of the depth."""
_BRACKETS = 5_000
"""The same, for what makes a tree deep below that: a file of nothing but brackets would be searched for hours."""
_BEFORE = (b"#[", b"@", b"template")
"""Lines that may stand between a comment and its symbol."""

_comment_signs = re.compile(r"^\s*(?:/\*+!?|\*+/|\*(?!/)|//+!?|#+)?\s?|\s*\*+/\s*$", re.MULTILINE)
_separators = re.compile(r"::|\.")


def read_grammar(language: str, data: bytes) -> Outline:
    """Return the outline of a file; damaged code is read as far as it goes. Raises Unread; ConfigurationError `missing_extra`."""
    if bracket_depth(data) > _BRACKETS:
        raise Unread(f"more than {_BRACKETS} brackets within each other")
    grammar, query = _tools(language)
    from tree_sitter import Parser, QueryCursor

    cursor = QueryCursor(query)
    cursor.set_max_start_depth(_TREE_DEPTH)
    return _Reader(language, data, cursor.matches(Parser(grammar).parse(data).root_node)).outline()


@functools.cache
def _tools(name: str) -> tuple[Any, Any]:
    """Return (grammar, query) of a language; loaded once, when a file of it is met. Raises ConfigurationError `missing_extra`."""
    language = LANGUAGES[name]
    try:
        from tree_sitter import Language, Query

        grammar = Language(getattr(import_module(language.module), language.grammar)())
    except ImportError as error:
        raise ConfigurationError(
            f"reading {name} needs tree-sitter, which is not installed ({error.name})",
            code="missing_extra",
            hint="pip install 'pinfold[code]', or read Python alone: --languages python",
        ) from error
    from importlib.resources import files

    text = (files("pinfold.ingest") / "queries" / f"{language.query}.scm").read_text("utf-8")
    return grammar, Query(grammar, text)


class _Def:
    """A symbol or scope: its bytes, and what a method calls its object. name: qualified once it is known what it stands in."""

    __slots__ = ("end", "kind", "name", "selves", "start", "symbol")

    def __init__(self, kind: str, name: str, start: int, end: int, selves: frozenset[bytes], symbol: Symbol | None) -> None:
        self.kind, self.name, self.start, self.end, self.selves, self.symbol = kind, name, start, end, selves, symbol


class _Reader:
    def __init__(self, language: str, data: bytes, matches: list[tuple[int, dict[str, list[Node]]]]) -> None:
        self.language, self.rows = language, data.split(b"\n")
        self.implicit = LANGUAGES[language].implicit
        self.symbols: dict[str, Symbol] = {}
        self.defs: list[_Def] = []
        self.refs: list[tuple[int, bytes, str]] = []
        self.imports: list[Import] = []
        self.comments = {_last_row(node): node for _, captures in matches for node in captures.get("comment", ())}
        self.head = self._head()
        for _, captures in matches:
            self._take(captures)

    def outline(self) -> Outline:
        self._nest()
        calls = self._calls()
        symbols = sorted(self.symbols.values(), key=lambda symbol: (symbol.start, symbol.name))
        imports = sorted(set(self.imports), key=lambda given: (given.module, given.level))
        lines = len(self.rows) - (self.rows[-1] == b"")
        return Outline(self.language, lines, first_line(self.head), symbols, calls, imports)

    def _head(self) -> str:
        """Return the comment the file begins with."""
        first = min(self.comments.values(), key=lambda node: node.start_byte, default=None)
        if first is None or any(row.strip() and not row.startswith(b"#!") for row in self.rows[: first.start_point[0]]):
            return ""
        row = _last_row(first)
        lines = [_plain(first)]
        while (below := self.comments.get(row + 1)) is not None and below.start_point[0] == row + 1:
            lines.append(_plain(below))
            row += 1
        return "\n".join(lines)

    # --- captures ---------------------------------------------------------------------------------------------------

    def _take(self, captures: dict[str, list[Node]]) -> None:
        for kind, capture in ((CLASS, "def.class"), (FUNC, "def.function"), ("", "scope")):
            if capture in captures:
                self._define(kind, captures[capture][0], captures)
                return
        for node in captures.get("ref.import", ()):
            self.imports.extend(Import(module) for module in self._modules(_text(node)))
        self.imports.extend(Import(_text(node), 1) for node in captures.get("ref.module", ()))
        for node in captures.get("ref.call", ()):
            self.refs.append((node.start_byte, b"", _text(node)))
        for node in captures.get("ref.member", ()):
            self.refs.append((node.start_byte, captures["object"][0].text or b"", _text(node)))

    def _define(self, kind: str, node: Node, captures: dict[str, list[Node]]) -> None:
        name = ".".join(part for part in _separators.split(re.sub(r"\s|<[^<>]*>", "", _text(captures["name"][0]))) if part)
        if not name:
            return
        if "owner" in captures:
            name = f"{_text(captures['owner'][0])}.{name}"
        symbol = None
        if kind:
            sig = words(_text(captures["params"][0]), SIG_CHARS) if "params" in captures else ""
            symbol = Symbol(kind, "", node.start_point[0] + 1, _last_row(node) + 1, sig, self._doc(node))
        selves = frozenset((captures["self"][0].text or b"",)) if "self" in captures else _SELVES
        self.defs.append(_Def(kind, name, node.start_byte, node.end_byte, selves, symbol))

    def _modules(self, text: str) -> list[str]:
        return rust_paths(text) if self.language == "rust" else [text]

    # --- names ------------------------------------------------------------------------------------------------------

    def _doc(self, node: Node) -> str:
        """Return the first sentence of the comment right before a symbol."""
        row, column = node.start_point
        same = self.comments.get(row)
        if same is not None and same.end_byte <= node.start_byte and not self.rows[row][same.end_point[1] : column].strip():
            return first_line(_plain(same), DOC_CHARS)
        row -= 1
        while row >= 0 and self.rows[row].lstrip().startswith(_BEFORE) and not self.rows[row].rstrip().endswith((b"}", b";")):
            row -= 1
        lines: list[str] = []
        while (comment := self.comments.get(row)) is not None and not self.rows[comment.start_point[0]][: comment.start_point[1]].strip():
            lines.insert(0, _plain(self.comments.pop(row)))  # a comment is that of one symbol
            row = comment.start_point[0] - 1
        return first_line("\n".join(lines), DOC_CHARS)

    def _nest(self) -> None:
        """Qualify every symbol by what it stands in; drop those within functions."""
        self.defs.sort(key=lambda found: (found.start, -found.end, bool(found.symbol)))
        stack: list[_Def] = []
        kept: list[_Def] = []
        for found in self.defs:
            while stack and stack[-1].end <= found.start:
                stack.pop()
            if len(stack) == _DEPTH or (stack and stack[-1].kind == FUNC):
                continue
            if stack and not found.name.startswith(f"{stack[-1].name}."):
                found.name = f"{stack[-1].name}.{found.name}"
            stack.append(found)
            kept.append(found)
            if found.symbol is not None:
                found.symbol.name = found.name
                add_symbol(self.symbols, found.symbol)
        self.defs = kept

    def _calls(self) -> list[tuple[str, str]]:
        told: set[tuple[str, str]] = set()
        stack: list[_Def] = []
        ahead = iter([*self.defs, None])
        following = next(ahead)
        for start, base, name in sorted(self.refs):
            while following is not None and following.start <= start:
                stack.append(following)
                following = next(ahead)
            while stack and stack[-1].end <= start:
                stack.pop()
            around = next((found for found in reversed(stack) if found.end > start and found.symbol is not None), None)
            caller = around.name if around is not None else ""
            callee = self._callee(around, base, name)
            if callee and callee != caller:
                told.add((caller, callee))
        return sorted(told)

    def _callee(self, around: _Def | None, base: bytes, name: str) -> str:
        """Return the symbol that is called, "" for none of this file: a member of the object's class, or the nearest outward."""
        owner = around.name.rpartition(".")[0] if around is not None else ""
        if base and around is not None and base in around.selves:
            return f"{owner}.{name}" if f"{owner}.{name}" in self.symbols else ""
        if base:
            return self._outward(owner, f"{base.decode('utf-8', 'replace')}.{name}")
        while owner in self.symbols and not self.implicit:
            owner = owner.rpartition(".")[0]  # members of a class are no bare names
        return self._outward(owner, name)

    def _outward(self, owner: str, name: str) -> str:
        """Return the symbol of a name as it is seen from a scope."""
        while True:
            found = f"{owner}.{name}" if owner else name
            if found in self.symbols:
                return found
            if not owner:
                return ""
            owner = owner.rpartition(".")[0]


def rust_paths(text: str) -> list[str]:
    """Return the paths of a `use`: one for each name in its braces, without `as` and `*`."""
    text = re.sub(r"\s+as\s+\w+", "", text)
    found: list[str] = []
    prefixes = [""]
    part = ""
    for char in re.sub(r"\s+", "", text) + ",":
        if char == "{":
            prefixes.append(prefixes[-1] + part)
            part = ""
        elif char in ",}":
            if part:
                found.append((prefixes[-1] + part).removesuffix("::*").removesuffix("::self").removeprefix("::"))
            part = ""
            if char == "}" and len(prefixes) > 1:
                prefixes.pop()
        else:
            part += char
    return found


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _last_row(node: Node) -> int:
    """Return the last row of a node, from 0; some grammars count the line end behind a comment to it."""
    row: int = node.end_point[0]
    return row - 1 if node.end_point[1] == 0 and row > node.start_point[0] else row


def _plain(comment: Node) -> str:
    """Return a comment without its signs."""
    return _comment_signs.sub("", _text(comment))


def bracket_depth(data: bytes) -> int:
    """Return how many brackets are open at once at most; those in texts and comments count too."""
    return max(accumulate(map(_WEIGHTS.__getitem__, data.translate(None, _NO_BRACKETS))), default=0)


_WEIGHTS = {**dict.fromkeys(b"([{", 1), **dict.fromkeys(b")]}", -1)}
_NO_BRACKETS = bytes(code for code in range(256) if code not in _WEIGHTS)
