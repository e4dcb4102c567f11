"""A folder of memory files: of Anthropic's memory tool, or Claude Code's own notes. A file is a FILE node with its text."""

from __future__ import annotations

import os
from typing import Any

from pinfold.errors import ConfigurationError
from pinfold.importers.records import Read, Record, bad_import, read_whole, time_of
from pinfold.state.schema import derive_id


def read(path: str, *, prefix: str = "/memories", **_: Any) -> Read:
    """Return the files below a folder, hidden ones and links left out. prefix: what the folder is called in their paths.

    Raises Refused `bad_import` where there is none, ConfigurationError `bad_path`.
    """
    if not os.path.isdir(path):
        raise ConfigurationError(f"{path} is no folder", code="bad_path", hint="name the folder that holds the memory files")
    found = Read()
    for folder, folders, names in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        found.left["links, which may lead anywhere"] += len(links)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in links)
        for name in sorted(names):
            _file(found, path, os.path.join(folder, name), prefix)
    found.left += type(found.left)()  # without zeros
    if not found.nodes:
        raise bad_import(f"{path} holds no file of text", "hidden files and links are not read")
    return found


def _file(found: Read, base: str, path: str, prefix: str) -> None:
    if os.path.basename(path).startswith("."):
        found.left["hidden files"] += 1
        return
    if not os.path.isfile(path) or os.path.islink(path):
        found.left["links, which may lead anywhere" if os.path.islink(path) else "files that are no files"] += 1
        return
    relative = os.path.relpath(path, base).replace(os.sep, "/")
    try:
        name = f"{prefix.rstrip('/')}/{relative}".encode().decode()
        text = read_whole(path).decode("utf-8")
    except UnicodeError:
        found.left["files that are not UTF-8"] += 1
        return
    except ConfigurationError:
        found.left["files that cannot be read"] += 1
        return
    id = derive_id("FILE", name)
    found.nodes[id] = Record("node", id, {"path": name, "content": text, "at": time_of(os.path.getmtime(path))}, "FILE")
