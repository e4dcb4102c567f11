"""Other systems' stores, read into a session: one reader a kind, one writer for all."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pinfold.errors import Refused
from pinfold.tree import check_path

if TYPE_CHECKING:
    from pinfold.importers.records import Read
    from pinfold.importers.write import Imported, Progress
    from pinfold.session import Session

KINDS = {
    "json": ("exported", "a file of `export json`"),
    "memory": ("memory_jsonl", "memory.jsonl of the MCP memory server"),
    "mem0": ("mem0", "JSON of mem0's get_all"),
    "basic-memory": ("basic_memory", "a folder of basic-memory's Markdown"),
    "memory-folder": ("memory_folder", "a folder of Anthropic's memory tool"),
    "langgraph": ("langgraph", "the SQLite file of LangGraph's store"),
    "memnet": ("memnet", "an @SNAP: 1 file of MemNet, split rows too"),
    "pmll": ("pmll", "the SQLite file of PMLL 2.0.4"),
}
"""Kind -> the module that reads it, and what it reads."""
OBSERVATIONS = ("content", "nodes")


def read_store(kind: str, path: str, *, observations: str = "content", prefix: str = "/memories", group: str | None = None) -> Read:
    """Return what another system's store holds. Changes nothing anywhere.

    observations: what was observed, in the field `content` of its subject or as `nodes` of their own (memory,
    basic-memory). prefix: what a memory-folder is called in its paths. group: one session of a pmll file.
    Raises Refused `bad_argument`, `bad_import`, `bad_path`, ConfigurationError `bad_path`.
    """
    if kind not in KINDS:
        raise Refused(f"{kind} cannot be imported", code="bad_argument", hint=", ".join(KINDS))
    if observations not in OBSERVATIONS:
        raise Refused(f"observations={observations}", code="bad_argument", hint=" or ".join(OBSERVATIONS))
    check_path(path)
    reader = import_module(f"pinfold.importers.{KINDS[kind][0]}")
    found: Read = reader.read(path, observations=observations, prefix=prefix, group=group)
    return found


def import_store(
    session: Session,
    kind: str,
    path: str,
    *,
    dry_run: bool = False,
    replace: bool = False,
    observations: str = "content",
    prefix: str = "/memories",
    group: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Write another system's store into a session; again: only what changed there. As `read_store`, and raises as `mutate`.

    dry_run: answer the same, write nothing. replace: where a row under the store's own id says otherwise here, the store's
    values count. progress: called with (rows done, rows in all).
    """
    from pinfold.importers.write import write

    read = read_store(kind, path, observations=observations, prefix=prefix, group=group)
    return write(session, read, dry_run=dry_run, replace=replace, progress=progress)
