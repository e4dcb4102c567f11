"""Which files an import means, by the paths there are: each language's own rule, without running or building anything.

A standard library is not named among what a file uses: it is everywhere, and tells nothing.
"""

from __future__ import annotations

import functools
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec

from pinfold.ingest.outline import Import, Outline

_SCRIPTS = ("", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".mts", ".cts", ".d.ts", "/index.js", "/index.ts", "/index.tsx", "/index.jsx", "/index.mjs")
_GO_WORDS = """
    archive bufio bytes cmp compress container context crypto database debug embed encoding errors expvar flag fmt go hash html image index io iter
    log maps math mime net os path plugin reflect regexp runtime slices sort strconv strings structs sync syscall testing text time unicode unique
    unsafe weak
"""
_GO_OWN = frozenset(_GO_WORDS.split())
"""First words of Go's standard library: `crypto/rand` is not the folder rand."""


class Targets(msgspec.Struct):
    """What a file imports: paths of files that were read, and names of what is elsewhere; both in order of their names."""

    inside: list[str]
    outside: list[str]


class Paths:
    """The files an import may mean."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.all = frozenset(paths)
        self.folders: dict[str, list[str]] = {}
        self.named: dict[str, list[str]] = {}
        for path in sorted(self.all):
            folder, _, name = path.rpartition("/")
            self.folders.setdefault(folder, []).append(path)
            self.named.setdefault(name, []).append(path)
        self._packages = {path.rpartition("/")[0] for path in self.all if path.rpartition("/")[2] in ("__init__.py", "__init__.pyi")}
        self._roots = sorted({self._top(folder) for folder, files in self.folders.items() if any(name.endswith((".py", ".pyi")) for name in files)})
        self._python = functools.lru_cache(maxsize=None)(self._python_absolute)

    def of(self, path: str, outline: Outline) -> Targets:
        """Return what a file imports."""
        rule = _RULES[outline.language]
        inside: dict[str, None] = {}
        outside: dict[str, None] = {}
        for given in outline.imports:
            found, name = rule(self, path, given)
            inside.update(dict.fromkeys(found))
            if not found and name:
                outside[name] = None
        return Targets(sorted(inside), sorted(outside))

    def ending(self, tail: str) -> list[str]:
        """Return the one path that ends in these segments; nothing where none or several do."""
        found = [path for path in self.named.get(tail.rpartition("/")[2], ()) if path == tail or path.endswith(f"/{tail}")]
        return found if len(found) == 1 else []

    def first(self, candidates: Iterable[str]) -> list[str]:
        """Return the first of the candidates that is there, as a list of one or none."""
        return next(([path] for path in candidates if path in self.all), [])

    # --- Python -----------------------------------------------------------------------------------------------------

    def _top(self, folder: str) -> str:
        """Return the folder that holds the outermost package a folder is in."""
        while folder and folder in self._packages:
            folder = folder.rpartition("/")[0]
        return folder

    def python(self, path: str, given: Import) -> tuple[list[str], str]:
        folder = path.rpartition("/")[0]
        if given.level:
            above = folder.split("/") if folder else []
            if given.level - 1 > len(above):
                return [], ""
            base = "/".join(above[: len(above) - given.level + 1])
            return self._taken(_under(base, given.module), given.names), ""
        found = self._python(self._top(folder), given.module)
        if found is None:
            name = given.module.partition(".")[0]
            return [], "" if name in sys.stdlib_module_names else name
        return self._taken(found, given.names), ""

    def _python_absolute(self, top: str, module: str) -> str | None:
        """Return where a module is, without its suffix: from the importer's own root, the folders above it, then other roots."""
        parts = module.split(".")
        for root in dict.fromkeys([*_upwards(top), *self._roots]):
            for count in range(len(parts), 0, -1):
                stem = _under(root, ".".join(parts[:count]))
                if self._module(stem):
                    return stem
        return None

    def _module(self, stem: str) -> list[str]:
        return self.first(f"{stem}{tail}" for tail in (".py", "/__init__.py", ".pyi", "/__init__.pyi"))

    def _taken(self, stem: str, names: tuple[str, ...]) -> list[str]:
        """Return the files of what is taken from a module: its own modules where a name is one, else the module."""
        found = {path: None for name in names for path in self._module(_under(stem, name))}
        if len(found) < max(len(names), 1):
            found.update(dict.fromkeys(self._module(stem)))
        return list(found)

    # --- other languages ----------------------------------------------------------------------------------------------

    def script(self, path: str, given: Import) -> tuple[list[str], str]:
        module = given.module
        if module.startswith("."):
            stem = _joined(path, module)
            bare = re.sub(r"\.[mc]?js$", "", stem)  # TypeScript writes the name of what will be made
            return self.first(f"{base}{tail}" for base in dict.fromkeys((stem, bare)) for tail in _SCRIPTS), ""
        parts = module.removeprefix("node:").split("/")
        return [], "/".join(parts[:2]) if module.startswith("@") else parts[0]

    def go(self, path: str, given: Import) -> tuple[list[str], str]:
        parts = given.module.split("/")
        if parts[0] in _GO_OWN:
            return [], ""
        for at in range(len(parts)):
            if at == 1 or "." in parts[0]:
                folder = "/".join(parts[at:])
                files = [name for name in self.folders.get(folder, ()) if name.endswith(".go") and not name.endswith("_test.go")]
                if files:
                    return files, ""
        return [], "/".join(parts[:3]) if "." in parts[0] else given.module

    def rust(self, path: str, given: Import) -> tuple[list[str], str]:
        folder, _, name = path.rpartition("/")
        home = folder if name in ("mod.rs", "lib.rs", "main.rs") else _slash(folder, name.removesuffix(".rs"))
        parts = given.module.split("::")
        if given.level:  # `mod x;`
            return self._rust_file(home, parts), ""
        if parts[0] == "crate":
            crate = next((at for at in _upwards(folder) if self.first((_slash(at, "lib.rs"), _slash(at, "main.rs")))), folder)
            return self._rust_file(crate, parts[1:]), ""
        if parts[0] in ("self", "super"):
            while parts and parts[0] in ("self", "super"):
                home = home.rpartition("/")[0] if parts.pop(0) == "super" else home
            return self._rust_file(home, parts), ""
        found = self._rust_file(home, parts)
        return found, "" if found or parts[0] in ("std", "core", "alloc") else parts[0]

    def _rust_file(self, base: str, parts: list[str]) -> list[str]:
        for count in range(len(parts), 0, -1):
            stem = "/".join([*([base] if base else []), *parts[:count]])
            found = self.first((f"{stem}.rs", f"{stem}/mod.rs"))
            if found:
                return found
        return []

    def java(self, path: str, given: Import) -> tuple[list[str], str]:
        parts = given.module.split(".")
        for count in range(len(parts), 0, -1):
            found = self.ending("/".join(parts[:count]) + ".java") if parts[count - 1][:1].isupper() else []
            if found:
                return found, ""
        return [], "" if parts[0] in ("java", "javax") else ".".join(part for part in parts[:2] if part[:1].islower())

    def header(self, path: str, given: Import) -> tuple[list[str], str]:
        name = given.module[1:-1]
        own = self.first([_joined(path, name)]) if given.module[:1] == '"' else []
        found = own or (self.ending(name) if "/" in name or given.module[:1] == '"' else [])
        return found, "" if found or "." not in name else name  # a header without a suffix is the standard library's


Rule = Callable[[Paths, str, Import], tuple[list[str], str]]
_RULES: dict[str, Rule] = {
    "python": Paths.python,
    "javascript": Paths.script,
    "typescript": Paths.script,
    "tsx": Paths.script,
    "go": Paths.go,
    "rust": Paths.rust,
    "java": Paths.java,
    "c": Paths.header,
    "cpp": Paths.header,
}
"""Language -> (files that are meant, what to call it where none is)."""


def _under(base: str, module: str) -> str:
    return "/".join([*([base] if base else []), *(part for part in module.split(".") if part)])


def _slash(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _joined(path: str, relative: str) -> str:
    """Return a path relative to a file's folder, without the dots in it; it may leave the root, and then nothing is there."""
    return posixpath.normpath(posixpath.join(path.rpartition("/")[0], relative))


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    while folder:
        folder = folder.rpartition("/")[0]
        yield folder
