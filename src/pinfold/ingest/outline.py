"""What a file of code says, in whatever language: the shapes that its reader fills and `code.py` turns into pins."""

from __future__ import annotations

import msgspec

CLASS, FUNC = "CLASS", "FUNC"


class Symbol(msgspec.Struct, gc=False):
    """A class or function. name: qualified within its file (`Class.method`). start, end: lines, from 1."""

    kind: str
    name: str
    start: int
    end: int
    sig: str = ""
    doc: str = ""


class Import(msgspec.Struct, frozen=True, gc=False):
    """An import as written. level: dots before a Python module. names: what is taken from it, which may be modules too."""

    module: str
    level: int = 0
    names: tuple[str, ...] = ()


class Outline(msgspec.Struct, gc=False):
    """One file. calls: (caller, callee) by name within the file, "" for the file itself; neither is missing from symbols."""

    language: str
    lines: int
    doc: str
    symbols: list[Symbol]
    calls: list[tuple[str, str]]
    imports: list[Import]


def add_symbol(symbols: dict[str, Symbol], symbol: Symbol) -> None:
    """Keep a symbol. What has one name (the parts of a property, overloads, definitions by case) is one, from its first line to its last."""
    known = symbols.get(symbol.name)
    if known is None:
        symbols[symbol.name] = symbol
        return
    first, second = (known, symbol) if known.start <= symbol.start else (symbol, known)
    symbols[symbol.name] = Symbol(first.kind, first.name, first.start, max(first.end, second.end), first.sig, first.doc or second.doc)
