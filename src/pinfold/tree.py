"""What is a path, and the files of a folder that git would not ignore, for whoever looks at a project: `tree:` inputs, ingest.

Ignored is what `.gitignore` files name (the folder's own, those in it and those above it up to the repository's root) and
`.git/info/exclude`; a folder that these ignore has none of them when it is asked for by name. Links are named, never followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from pinfold.errors import Refused

RACY_NS = 2_000_000_000
"""The coarsest clock of a file system in use: FAT's two seconds. An mtime younger than this when it was read proves nothing."""
TREE_FILES = 100_000
"""Entries of one folder: a look at it must stay a look."""


def check_path(path: str) -> str:
    """Return a path that a file system can have: no NUL, no half of a surrogate pair. Raises Refused `bad_path`."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise Refused(f"{str(path)[:100]!r} is no path", code="bad_path", hint="name a file or a folder")


def walk_tree(root: str, exclude: Sequence[str] = ()) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield (path in the folder, full path, lstat) of files and links that git would not ignore, in order of their paths.

    exclude: more patterns, as `.gitignore` writes them, from the folder on. Raises Refused `tree_too_large`.
    """
    count = 0
    rules = [*_rules(root, exclude), *_rules_above(root)]
    stack: list[tuple[str, str, list[tuple[str, Any]]]] = [("", root, rules)]
    while stack:
        name, full, rules = stack.pop()
        try:
            entries = sorted(os.scandir(full), key=lambda entry: entry.name)
        except OSError:
            continue
        if any(entry.name == ".gitignore" for entry in entries):
            rules = [*rules, *_rules_of(os.path.join(full, ".gitignore"), full)]
        ahead = []
        for entry in entries:
            inner = f"{name}/{entry.name}" if name else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _is_ignored(entry.path, is_folder, rules):
                continue
            if is_folder:
                ahead.append((inner, entry.path, rules))
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                count += 1
                if count > TREE_FILES:
                    raise Refused(f"{root} has more than {TREE_FILES} files", code="tree_too_large", hint="name a smaller folder, or ignore what is made")
                yield inner, entry.path, found
        stack.extend(reversed(ahead))


def repository_of(folder: str) -> str | None:
    """Return the root of the git repository that a folder (an absolute path) is in; None for none, or one that ignores the folder."""
    root = _git_root(folder)
    return None if root is None or _is_ignored(folder, True, list(_rules_between(root, folder))) else root


def _git_root(path: str) -> str | None:
    while not os.path.exists(os.path.join(path, ".git")):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return path


def _rules_above(folder: str) -> Iterator[tuple[str, Any]]:
    """Yield the ignore rules that hold above a folder, outermost first. None do where they ignore it: then it was asked for all the same."""
    root = repository_of(folder)
    if root is not None:
        yield from _rules_between(root, folder)


def _rules_between(root: str, folder: str) -> Iterator[tuple[str, Any]]:
    """Yield the ignore rules of a repository that hold for a folder in it, save the folder's own."""
    yield from _rules_of(os.path.join(root, ".git", "info", "exclude"), root)
    above = []
    while folder != root:
        folder = os.path.dirname(folder)
        above.append(folder)
    for folder in reversed(above):
        yield from _rules_of(os.path.join(folder, ".gitignore"), folder)


def _rules_of(path: str, folder: str) -> Iterator[tuple[str, Any]]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError:
        return
    yield from _rules(folder, [line.removesuffix("\r") for line in lines])


def _rules(folder: str, lines: Sequence[str]) -> Iterator[tuple[str, Any]]:
    if lines:
        from pathspec import GitIgnoreSpec

        yield folder, GitIgnoreSpec.from_lines(lines)


def _is_ignored(full: str, is_folder: bool, rules: list[tuple[str, Any]]) -> bool:
    """Return whether the innermost rule that says anything about a path ignores it."""
    for folder, spec in reversed(rules):
        if full == folder:
            continue
        said = spec.check_file(os.path.relpath(full, folder).replace(os.sep, "/") + ("/" if is_folder else "")).include
        if said is not None:
            return bool(said)
    return False
