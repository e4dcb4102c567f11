"""Rows of the table: pins read from a project's own files."""

from __future__ import annotations

import os
from typing import Any

from pinfold import caller, limits
from pinfold.errors import Refused
from pinfold.operations.inputs import check_allowed
from pinfold.operations.table import Call, Operation, Param
from pinfold.tree import check_path

_EVERY_S = 1.0
_TOLD_ORPHANS = 20


def _ingest(
    call: Call,
    kind: str,
    path: str,
    root: str | None,
    exclude: list[str] | None,
    languages: list[str] | None,
    max_rows: int,
    max_bytes: int,
    dry_run: bool,
    watch: bool,
    every_s: float,
) -> dict[str, Any]:
    if caller.current() is not None:
        raise caller.Elsewhere  # its files are the caller's, and it takes as long as it takes
    from pinfold.ingest.job import Ingest

    for given in (path, root):
        if given is not None:
            check_allowed(call, os.path.abspath(os.path.expanduser(check_path(given))))
    if watch and (call.tell is None or dry_run):
        raise Refused("only a command that may go on can watch", code="bad_arguments", hint="pinfold ingest KIND PATH --watch")
    progress = call.progress
    job = Ingest(
        call.session,
        kind,
        path,
        root=root,
        exclude=exclude or (),
        languages=languages or (),
        max_rows=max_rows,
        max_bytes=max_bytes,
        progress=None if progress is None else lambda what, done, total: progress(done, total),
    )
    done = _shape(job.run(dry_run=dry_run))
    while watch:
        assert call.tell is not None
        if done.pop("changed"):
            call.tell(done)
        job.wait(every_s)
        done = _shape(job.run())
    done.pop("changed")
    return done


def _shape(done: Any) -> dict[str, Any]:
    import msgspec

    shape: dict[str, Any] = msgspec.to_builtins(done)
    return {**{name: value for name, value in shape.items() if value or name not in ("changes", "orphaned", "skipped", "unread")}, "changed": done.changed}


def _told(result: dict[str, Any]) -> str:
    counts = {name: result[name] for name in ("created", "patched", "dropped", "linked", "unlinked") if result[name]}
    lines = [f"{result['kind']} {result['path']}: {_many(result['files'], 'file')}, {_many(result['pins'], 'pin')}, {_many(result['links'], 'edge')}"]
    lines += [f"{key.replace('_', ' ')}: {_plain(value)}" for key, value in result["found"].items() if value]
    lines += [f"skipped: {count} {why}" for why, count in result.get("skipped", {}).items()]
    lines += [f"not read: {line}" for line in result.get("unread", ())]
    lines += result.get("changes", [])
    orphans = result.get("orphaned", [])
    for orphan in orphans[:_TOLD_ORPHANS]:
        lines.append(f"orphaned: {orphan['what']}" + ("" if orphan["row"] else f" of {orphan['pin']}") + f" ({orphan['locator']} is gone)")
    if len(orphans) > _TOLD_ORPHANS:
        lines.append(f"orphaned: {len(orphans) - _TOLD_ORPHANS} more")
    done = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing changed"
    lines.append(f"# pinfold: {'would be ' if result['dry_run'] and counts else ''}{done} seq={result['seq']}")
    return "\n".join(lines)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


ROWS = (
    Operation(
        name="ingest",
        access="write",
        doc="Bring the pins of a project up to its files: code, sysml, ato or skills. Ids follow from the files, so the same thing keeps "
        "its id; again, only what changed is written. What you added to pins stays.",
        params=(
            Param("kind", "str", "code, sysml, ato or skills", positional=True),
            Param("path", "str", "a folder, or one file", positional=True),
            Param("root", "str", "locators begin here; by default the repository's root, else the folder", None, mcp=False),
            Param("exclude", "strings", "leave out what this pattern of .gitignore matches", None, repeat=True, mcp=False),
            Param("languages", "strings", "code in these languages alone", None, mcp=False),
            Param("max_rows", "int", "refuse a source of more pins and edges", limits.INGEST_ROWS, told=False),
            Param("max_bytes", "int", "refuse to read more", limits.INGEST_BYTES, mcp=False),
            Param("dry_run", "bool", "tell what would change, write nothing", False, told=False),
            Param("watch", "bool", "go on, and again whenever a file changes", False, mcp=False),
            Param("every_s", "seconds", "with --watch, look this often", _EVERY_S, cli="every", mcp=False),
        ),
        handler=_ingest,
        python="ingest",
        toolsets="A",
        mcp="ingest",
        cli=("ingest",),
        text=_told,
        mcp_text=_told,
        is_empty=lambda result: not result["files"],
        idempotent=True,
        destructive=True,
        summary="pins of code, sysml, ato or skills; again, the difference",
        result="files, pins, links, created, patched, dropped, linked, unlinked, changes[]?, orphaned[]{pin, locator, row, what}?, "
        "skipped{why: count}?, unread[]?, found{}, seq, dry_run",
        slow=True,
    ),
)
