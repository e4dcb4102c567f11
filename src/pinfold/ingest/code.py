"""Code: a SOURCE for each file, a CLASS or FUNC for each symbol; what contains, calls and imports what.

Python is read by its own parser, other languages by tree-sitter (extra `code`). Calls are told within a file, imports
between the files that were read; what a file imports from elsewhere is named in its field `uses`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pinfold.errors import Refused
from pinfold.ingest.imports import Paths
from pinfold.ingest.languages import LANGUAGES, by_suffix
from pinfold.ingest.outline import CLASS, FUNC, Outline
from pinfold.ingest.pins import PinKind, Wanted
from pinfold.ingest.source import words

SOURCE = "SOURCE"
CONTAINS, CALLS, IMPORTS = "contains", "calls", "imports"


def source(languages: tuple[str, ...]) -> CodeSource:
    """Return the reader of these languages, of all where none is named. Raises Refused `bad_argument`."""
    for name in languages:
        if name not in LANGUAGES:
            raise Refused(f"there is no language {name!r}", code="bad_argument", hint=f"one of {', '.join(LANGUAGES)}")
    return CodeSource(languages or tuple(LANGUAGES))


class CodeSource:
    kinds = (
        PinKind(SOURCE, ("path", "lines", "doc", "uses"), "path"),
        PinKind(CLASS, ("qname", "lines", "sig", "doc"), "qname"),
        PinKind(FUNC, ("qname", "lines", "sig", "doc"), "qname"),
    )
    relations = (CONTAINS, CALLS, IMPORTS)
    link_fields: tuple[str, ...] = ()

    def __init__(self, languages: tuple[str, ...]) -> None:
        self._suffixes = {suffix: language for suffix, language in by_suffix().items() if language in languages}

    def _language(self, name: str) -> str | None:
        stem, dot, suffix = name.rpartition("/")[2].rpartition(".")
        return self._suffixes.get(suffix) if dot and stem else None

    def takes(self, name: str) -> bool:
        return self._language(name) is not None

    def reads(self, name: str) -> bool:
        return True

    def read(self, name: str, data: bytes) -> Outline:
        language = self._language(name)
        assert language is not None
        if language == "python":
            from pinfold.ingest.python import read_python

            return read_python(data)
        from pinfold.ingest.grammars import read_grammar

        return read_grammar(language, data)

    def join(self, parts: Mapping[str, Outline], known: Mapping[str, str], wanted: Wanted) -> dict[str, int | list[str]]:
        ids: dict[str, dict[str, str]] = {path: {} for path in parts}
        paths = Paths([*parts, *(locator for locator in known if "::" not in locator)])
        targets = {path: paths.of(path, part) for path, part in parts.items()}
        for path, part in parts.items():
            fields = {"path": path, "lines": str(part.lines), "doc": part.doc, "uses": words(" ".join(targets[path].outside))}
            ids[path][""] = wanted.add(SOURCE, fields)
            for symbol in part.symbols:
                span = str(symbol.start) if symbol.start == symbol.end else f"{symbol.start}-{symbol.end}"
                locator = f"{path}::{symbol.name}"
                ids[path][symbol.name] = wanted.add(symbol.kind, {"qname": locator, "lines": span, "sig": symbol.sig, "doc": symbol.doc})
        for path, part in parts.items():
            here = ids[path]
            for symbol in part.symbols:
                wanted.link(here.get(symbol.name.rpartition(".")[0]) or here[""], CONTAINS, here[symbol.name])
            for caller, callee in part.calls:
                wanted.link(here[caller], CALLS, here[callee])
            for target in targets[path].inside:
                if target != path:
                    wanted.link(here[""], IMPORTS, ids[target][""] if target in ids else known[target])
        counts: dict[str, int] = {}
        for part in parts.values():
            counts[part.language] = counts.get(part.language, 0) + 1
        return dict(sorted(counts.items()))
