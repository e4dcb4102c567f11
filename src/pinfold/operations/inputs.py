"""Rows of the table: what things rest on, what went stale, and what takes the place of what."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pinfold.caller import current_folder
from pinfold.errors import Refused
from pinfold.operations.graph import _CHANGE, _brief, _shape, _told_changed
from pinfold.operations.table import PAGE, Call, Operation, Param, page_note, page_of

if TYPE_CHECKING:
    from pinfold.inputs_session import Stale


def check_inputs(call: Call, inputs: list[str]) -> None:
    """Raise Refused `outside_roots`, `session_not_granted` where this caller may not look at what it declares.

    A server's caller may name files of the project it serves, beside those its operator allows.
    """
    from pinfold.inputs import expand

    for text in inputs:
        kind, _, rest = expand(text, current_folder()).name.partition(":")
        if kind in ("file", "tree"):
            check_allowed(call, rest)
        elif kind == "session":
            call.memory.session(rest.partition("/")[0])  # a store that is granted in part refuses the others


def check_allowed(call: Call, path: str) -> None:
    """Raise Refused `outside_roots` where this caller may not look at a path: outside the served project and what its operator allows."""
    if call.roots is None:
        return
    real, project = os.path.realpath(path), _project()
    if project is None or os.path.commonpath([real, project]) != project:
        call.file(path)


def _project() -> str | None:
    """Return the git repository of the caller's folder, else that folder; None for a home or root folder."""
    folder = here = os.path.realpath(current_folder())
    home = os.path.realpath(os.path.expanduser("~"))
    while folder != home and os.path.dirname(folder) != folder:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return None if here == home or os.path.dirname(here) == here else here


def _stale(call: Call, prefix: str, limit: int, cursor: int) -> dict[str, Any]:
    return _listed(call.session.stale(prefix), limit, cursor)


def _listed(found: list[Stale], limit: int, cursor: int) -> dict[str, Any]:
    page, more = page_of(found, limit, cursor)
    return {"stale": [{"name": row.name, "because": list(row.because)} for row in page], **more}


def _why(call: Call, name: str) -> dict[str, Any]:
    why = call.session.why(name)
    return {
        "name": why.name,
        "stale": why.stale,
        "because": list(why.because),
        **({"superseded_by": why.superseded_by} if why.superseded_by else {}),
        "inputs": [
            {"depth": row.depth, "name": row.name, **({"what": row.what} if row.what else {}), **({"again": True} if row.again else {})}
            for row in why.grounds[1:]
        ],
        **({"left_out": why.left_out} if why.left_out else {}),
    }


def _refresh(call: Call, names: list[str] | None, list: bool, limit: int, cursor: int) -> dict[str, Any]:
    if list or not names:
        return _listed(call.session.refresh_list(), limit, cursor)
    return {"reaffirmed": call.session.reaffirm(*names)}


def _supersede(call: Call, old: str, new: str) -> dict[str, Any]:
    return _shape(call.session.supersede(old, new))


def _conflicts(call: Call, limit: int, cursor: int) -> dict[str, Any]:
    page, more = page_of(call.session.conflicts(), limit, cursor)
    return {"conflicts": [{"kind": row.kind, "key": row.key, "ids": row.ids} for row in page], **more}


def _set_version(call: Call, name: str, value: str | None, clear: bool) -> dict[str, Any]:
    if (value is None) != clear:
        raise Refused("give a value, or clear", code="bad_arguments", hint="set-version prompt 7")
    call.session.set_version(name, value)
    return {"status": "set" if value is not None else "cleared", "name": name, "version": value}


# --- words --------------------------------------------------------------------------------------------------------


def _short(names: Iterable[str]) -> list[str]:
    from pinfold.inputs import shown_name

    here = current_folder()
    return [shown_name(name, here) for name in names]


def _told_stale(result: dict[str, Any]) -> str:
    if "reaffirmed" in result:
        return "\n".join(f"reaffirmed {name}" for name in _short(result["reaffirmed"]))
    lines = [f"{name} because {', '.join(row['because'])}" for name, row in zip(_short(row["name"] for row in result["stale"]), result["stale"], strict=True)]
    return "\n".join([*lines, *page_note(result, len(lines))])


def _told_why(result: dict[str, Any]) -> str:
    rows = [{"depth": 0, "name": result["name"], "what": "stale" if result["stale"] else "fresh"}, *result["inputs"]]
    lines = []
    for name, row in zip(_short(row["name"] for row in rows), rows, strict=True):
        lines.append("  " * row["depth"] + name + (f"  {row['what']}" if row.get("what") else "") + ("  (above)" if row.get("again") else ""))
    if result.get("superseded_by"):
        lines[0] += f"  superseded by {result['superseded_by']}"
    return "\n".join([*lines, *([f"# pinfold: {result['left_out']} more"] if result.get("left_out") else [])])


def _told_conflicts(result: dict[str, Any]) -> str:
    lines = [f"{row['kind']} {' '.join(f'{k}={v}' for k, v in row['key'].items())}: {' '.join(row['ids'])}" for row in result["conflicts"]]
    return "\n".join([*lines, *page_note(result, len(lines))])


_NOTHING = "# pinfold: nothing"

ROWS = (
    Operation(
        name="stale",
        access="read",
        doc="What can no longer be trusted because something it was made from changed or is gone; each with its root causes.",
        params=(Param("prefix", "str", "only names that start so: slot:, row:T", "", positional=True), *PAGE),
        handler=_stale,
        python="stale",
        toolsets="A",
        mcp="stale",
        cli=("stale",),
        text=_told_stale,
        mcp_text=lambda result: _told_stale(result) or _NOTHING,
        is_empty=lambda result: not result["stale"],
        summary="what can no longer be trusted, and why",
        result="stale[]{name, because[]}, total, next_cursor?",
        slow=True,
    ),
    Operation(
        name="why",
        access="read",
        doc="What a row or key rests on, as a tree, with what changed.",
        params=(Param("name", "str", "a row's id or a key; row:ID and slot:KEY say which", positional=True),),
        handler=_why,
        python="why",
        toolsets="A",
        mcp="why",
        cli=("why",),
        text=_told_why,
        mcp_text=lambda result: _told_why(result) or _NOTHING,
        is_empty=lambda result: not result["inputs"],
        summary="what a row or key rests on, and what changed",
        result="name, stale, because[], inputs[]{depth, name, what?, again?}, superseded_by?",
        slow=True,
    ),
    Operation(
        name="refresh",
        access="write",
        doc="Without names: what to redo, each after what it rests on; nothing is executed. With names: somebody looked, these still hold.",
        params=(
            Param("names", "strings", "ids or keys that still hold, with their inputs as they are now", None, positional=True),
            Param("list", "bool", "what to redo, in order", False),
            *PAGE,
        ),
        handler=_refresh,
        python="refresh_list, reaffirm",
        toolsets="A",
        mcp="refresh",
        cli=("refresh",),
        text=_told_stale,
        mcp_text=lambda result: _told_stale(result) or _NOTHING,
        is_empty=lambda result: not result.get("stale") and not result.get("reaffirmed"),
        summary="--list what to redo, in order; or NAME… that still hold",
        result="stale[]{name, because[]}, total, next_cursor? | reaffirmed[]",
        writes=lambda arguments: bool(arguments.get("names")) and not arguments.get("list"),
        slow=True,
    ),
    Operation(
        name="supersede",
        access="write",
        doc="A row takes another's place: the old one leaves pin maps and lists, and what rests on it is stale.",
        params=(Param("old", "str", "this row", positional=True), Param("new", "str", "gives way to this one", positional=True)),
        handler=_supersede,
        python="supersede",
        toolsets="A",
        mcp="supersede",
        cli=("supersede",),
        text=_told_changed,
        mcp_text=_brief,
        idempotent=True,
        summary="let one row take another's place",
        result=_CHANGE,
    ),
    Operation(
        name="conflicts",
        access="read",
        doc="Live rows that claim the same unique key of their kind.",
        params=PAGE,
        handler=_conflicts,
        python="conflicts",
        toolsets="A",
        mcp="conflicts",
        cli=("conflicts",),
        text=_told_conflicts,
        mcp_text=lambda result: _told_conflicts(result) or _NOTHING,
        is_empty=lambda result: not result["conflicts"],
        summary="live rows that claim the same unique key",
        result="conflicts[]{kind, key{field: value}, ids[]}, total, next_cursor?",
        slow=True,
    ),
    Operation(
        name="set_version",
        access="write",
        doc="Say what a version (a model, a prompt, or url:… for an etag) is from now on; what rests on another one is stale.",
        params=(
            Param("name", "str", "prompt, or url:…", positional=True),
            Param("value", "str", "its value", None, positional=True),
            Param("clear", "bool", "it is no longer known", False),
        ),
        handler=_set_version,
        python="set_version",
        toolsets="A",
        mcp="set_version",
        cli=("set-version",),
        text=lambda result: f"{result['status']} {result['name']}" + (f"={result['version']}" if result["version"] else ""),
        idempotent=True,
        summary="say what a model's or prompt's version is now",
        result='status "set"|"cleared", name, version',
    ),
)
