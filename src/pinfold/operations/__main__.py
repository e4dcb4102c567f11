"""`python -m pinfold.operations` prints docs/operations.md: every row of the table, as each door shows it."""

from __future__ import annotations

import sys
from typing import Any

from pinfold.operations import TABLE
from pinfold.operations.table import REQUIRED, Operation, Param

_INTRO = """\
# Operations

Made by `make docs` from the operations table (`src/pinfold/operations/`); do not edit. One row is one operation, with the
same rules in Python, on the command line and over MCP. The result is what MCP and `--json` show; Python returns frozen
structs with the same fields.

Every command takes `--session`, `--store`, `--actor`, `--json` and `--fail-on-miss`; every MCP tool takes `session_id`.
Durations need a unit on the command line (`90s`, `60m`, `2h`, `1d`) and are seconds elsewhere.
MCP toolsets: S `standard`, C `core`, P `pmll`, M `memnet`, A `all` only; every tool can be called in every toolset, and every
argument passed, listed or not.
"""
_UNLISTED = " (not listed over MCP)"
_KINDS = {"str": "text", "int": "whole number", "float": "number", "bool": "flag", "seconds": "duration", "object": "JSON object", "strings": "list of texts"}


def page() -> str:
    """Return the whole page."""
    lines = [_INTRO, "| operation | Python | command line | MCP |", "|---|---|---|---|"]
    for row in TABLE:
        tools = f"{_code(', '.join(_tools(row)))} {row.toolsets}".strip()
        lines.append(f"| [{row.name}](#{row.name}) | {_code(row.python)} | {_code(', '.join(row.cli))} | {tools} |")
    for row in TABLE:
        lines += ["", *_section(row)]
    return "\n".join(lines) + "\n"


def _section(row: Operation) -> list[str]:
    lines = [f"## {row.name}", "", row.doc, ""]
    lines.append(f"* Python: {_code(row.python) or '–'}")
    lines.append(f"* command line: {_code(', '.join(f'pinfold {verb}' for verb in row.cli)) or '–'}")
    tools = _code(", ".join(_tools(row)))
    lines.append(f"* MCP: {f'{tools} ({row.toolsets})' if tools else '–'}")
    lines.append("* " + ", ".join(_nature(row)))
    if row.params:
        lines += ["", "| argument | type | command line | default | what |", "|---|---|---|---|---|"]
        lines += [
            f"| `{p.name}` | {_KINDS.get(p.kind, 'JSON')} | {_cli(p)} | {_default(p)} | {_cell(p.doc)}{_UNLISTED if row.mcp and not p.mcp else ''} |"
            for p in row.params
        ]
    if row.result:
        lines += ["", f"Result: `{row.result}`"]
    return lines


def _nature(row: Operation) -> list[str]:
    traits = ["writes" if row.access == "write" else "reads"]
    traits += ["destructive"] if row.destructive else []
    traits += ["idempotent"] if row.idempotent else []
    traits += ["works on the store, not on one session"] if row.store else []
    return traits


def _tools(row: Operation) -> list[str]:
    return [name for name in (row.mcp, *row.aliases) if name]


def _cli(param: Param) -> str:
    if param.positional:
        return "by place" + (", `--file F` or `-`; `--json-value`" if param.kind == "any" else ", `--file F` or `-`" if param.file else "")
    return _code("" if param.cli == "" else f"--{(param.cli or param.name).replace('_', '-')}")


def _default(param: Param) -> str:
    if param.default is REQUIRED:
        return "required"
    return "" if param.default is None or param.default is False else _code(_plain(param.default))


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _code(text: str) -> str:
    return ", ".join(f"`{part}`" for part in text.split(", ")) if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.write(page())
