"""The operations table: every operation once. CLI, MCP tools, later doors and docs/operations.md are made from it."""

from __future__ import annotations

from pinfold.operations import graph, silo
from pinfold.operations.table import Call, Operation, Param, finish, run, start, waits

TABLE: tuple[Operation, ...] = (*silo.ROWS, *graph.ROWS)

BY_NAME: dict[str, Operation] = {row.name: row for row in TABLE}
BY_TOOL: dict[str, Operation] = {name: row for row in TABLE for name in (row.mcp, *row.aliases, *row.memnet) if name}

TOOLSETS = {"standard": "S", "core": "C", "pmll": "P", "memnet": "M"}


def listed(toolset: str) -> list[tuple[str, Operation]]:
    """Return (tool name, row) of the tools a toolset lists; `all` lists every tool by its first name."""
    mark = TOOLSETS.get(toolset)
    if toolset == "memnet":
        return [(name, row) for row in TABLE if "M" in row.toolsets for name in (row.memnet or (row.mcp,))]
    return [(row.mcp, row) for row in TABLE if row.mcp and (toolset == "all" or (mark is not None and mark in row.toolsets))]


__all__ = ["BY_NAME", "BY_TOOL", "TABLE", "TOOLSETS", "Call", "Operation", "Param", "finish", "listed", "run", "start", "waits"]
