"""The operations table: every operation once. CLI, MCP tools, later doors and docs/operations.md are made from it.

Its rows live in rooms. A room is loaded when somebody gets that far: `pinfold peek` does not pay for the graph's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pinfold.operations.table import Call, Operation, Param, finish, run, start, waits

ROOMS = (
    "pinfold.operations.silo",
    "pinfold.operations.graph",
    "pinfold.operations.recall",
    "pinfold.operations.inputs",
    "pinfold.operations.ingest",
    "pinfold.operations.graphql",
)
TOOLSETS = {"standard": "S", "core": "C", "pmll": "P", "memnet": "M"}

if TYPE_CHECKING:
    TABLE: tuple[Operation, ...]
    BY_NAME: dict[str, Operation]
    BY_TOOL: dict[str, Operation]


def rooms() -> Iterator[tuple[Operation, ...]]:
    """Yield the rows of each room."""
    for room in ROOMS:
        yield import_module(room).ROWS


def __getattr__(name: str) -> Any:
    if name not in ("TABLE", "BY_NAME", "BY_TOOL"):
        raise AttributeError(f"module 'pinfold.operations' has no attribute {name!r}")
    table = tuple(row for rows in rooms() for row in rows)
    globals()["TABLE"] = table
    globals()["BY_NAME"] = {row.name: row for row in table}
    globals()["BY_TOOL"] = {tool: row for row in table for tool in (row.mcp, *row.aliases, *row.memnet) if tool}
    return globals()[name]


def row_of_verb(verb: str, then: str) -> tuple[str, Operation] | None:
    """Return (the verb as a row has it, the row) of a command line that begins with verb and then another word, if any."""
    two = f"{verb} {then}"
    for rows in rooms():
        for wanted in (two, verb):
            for row in rows:
                if wanted in row.cli:
                    return wanted, row
    return None


def listed(toolset: str) -> list[tuple[str, Operation]]:
    """Return (tool name, row) of the tools a toolset lists; `all` lists every tool by its first name. One whose extra is missing is not listed."""
    table: tuple[Operation, ...] = __getattr__("TABLE")
    mark = TOOLSETS.get(toolset)
    if toolset == "memnet":
        return [(name, row) for row in table if "M" in row.toolsets for name in (row.memnet or (row.mcp,))]
    from importlib.util import find_spec

    here = [row for row in table if row.mcp and (not row.needs or find_spec(row.needs) is not None)]
    return [(row.mcp, row) for row in here if toolset == "all" or (mark is not None and mark in row.toolsets)]


__all__ = ["BY_NAME", "BY_TOOL", "TABLE", "TOOLSETS", "Call", "Operation", "Param", "finish", "listed", "rooms", "row_of_verb", "run", "start", "waits"]
