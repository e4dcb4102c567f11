"""The languages of code: a language is data, here and in `queries/`. What reads them is loaded when a file of theirs is met."""

from __future__ import annotations

import msgspec


class Language(msgspec.Struct, frozen=True):
    """suffixes: of its files. module, grammar: the wheel and the function in it that returns the grammar, "" for Python.

    query: the file in queries/. implicit: a bare name may be a member of the class around it.
    """

    suffixes: tuple[str, ...]
    module: str = ""
    grammar: str = "language"
    query: str = ""
    implicit: bool = False


LANGUAGES = {
    "python": Language(("py", "pyi", "pyw")),
    "javascript": Language(("js", "mjs", "cjs", "jsx"), "tree_sitter_javascript", query="javascript"),
    "typescript": Language(("ts", "mts", "cts"), "tree_sitter_typescript", "language_typescript", "typescript"),
    "tsx": Language(("tsx",), "tree_sitter_typescript", "language_tsx", "typescript"),
    "go": Language(("go",), "tree_sitter_go", query="go"),
    "rust": Language(("rs",), "tree_sitter_rust", query="rust"),
    "java": Language(("java",), "tree_sitter_java", query="java", implicit=True),
    "c": Language(("c",), "tree_sitter_c", query="c"),
    "cpp": Language(("cc", "cpp", "cxx", "hh", "hpp", "hxx", "h"), "tree_sitter_cpp", query="cpp", implicit=True),
}
"""Name -> language. Headers are read as C++, which is nearly all of C too."""


def by_suffix() -> dict[str, str]:
    """Return suffix -> language."""
    return {suffix: name for name, language in LANGUAGES.items() for suffix in language.suffixes}
