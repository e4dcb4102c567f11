"""Verbs of the command line that are no operation on a session: where, stat, compact, guide, version, demo, mcp."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pinfold.doors.arguments import Common, Parser
from pinfold.doors.cli import open_memory, write, write_json
from pinfold.doors.progress import progress
from pinfold.errors import ConfigurationError, Refused


def read_plain(verb: str, words: Sequence[str], doc: str) -> Common | None:
    """Return the flags of a verb without arguments of its own; None where its help was asked for, and printed."""
    parser = Parser(verb, "[flags]", doc)
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return None
    if bare:
        parser.error(f"{bare[0]!r} is one word too many")
    return Common(flags)


# --- where, stat, compact -----------------------------------------------------------------------------------------


def run_where(words: Sequence[str]) -> int:
    common = read_plain("where", words, "The store, its file and size, and the session that is used here.")
    if common is None:
        return 0
    from pinfold.journal.open import open_journal, store_bytes
    from pinfold.journal.url import ENVIRONMENT, default_url

    why = "--store" if common.store else f"${ENVIRONMENT}" if os.environ.get(ENVIRONMENT) else "the default"
    journal = open_journal(common.store or default_url())  # a handle: nothing is made or read yet
    path = getattr(journal, "path", None)
    size = store_bytes(path) if path is not None else None
    session, reason = _session_here(common)
    result = {"store": journal.url, "store_from": why, "path": path, "size_bytes": size, "session_id": session, "session_from": reason}
    if common.json:
        write_json(result)
        return 0
    kept = "not there yet: the first use makes it" if size is None else f"{size} bytes"
    lines = [f"store    {journal.url}  ({why})"]
    lines += [f"file     {path}  ({kept})"] if path is not None else []
    lines += [f"session  {session}  ({reason})" if session else f"session  none: {reason}"]
    write("\n".join(lines))
    return 0


def _session_here(common: Common) -> tuple[str | None, str]:
    from pinfold.doors.context import explain_session

    if common.session:
        return common.session, "--session"
    try:
        return explain_session()
    except Refused as refused:
        return None, f"{refused.message.partition(': ')[2]}; {refused.hint}"


def run_stat(words: Sequence[str]) -> int:
    parser = Parser("stat", "[URL] [flags]", "Sizes of the store and of every journal in it; of a server, what to know about its set-up.")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if len(bare) > 1:
        parser.error(f"{bare[1]!r} is one word too many")
    common = Common(flags)
    common.store = bare[0] if bare else common.store
    from pinfold.journal.open import require_store, store_bytes

    if common.store is not None:
        require_store(common.store)
    with open_memory(common) as memory:
        infos = memory._journal.sessions()
        path = getattr(memory._journal, "path", None)
        url = memory.url
        notes = getattr(memory._journal, "notes", [])
    rows = [
        {
            "session_id": info.name,
            "seq": info.last_seq,
            "entries": info.entries,
            "entry_bytes": info.entry_bytes,
            "snapshot_bytes": info.snapshot_bytes,
            "large_value_bytes": info.blob_bytes,
        }
        for info in infos
    ]
    size = store_bytes(path) if path is not None else None
    if common.json:
        write_json({"store": url, "size_bytes": size, "notes": notes, "sessions": rows})
        return 0
    write(f"{url}: {'' if size is None else f'{size} bytes, '}{len(rows)} {'journal' if len(rows) == 1 else 'journals'}")
    for note in notes:
        write(f"  note: {note}")
    for row in rows:
        write(
            f"  {row['session_id']}  seq={row['seq']} entries={row['entries']} ({row['entry_bytes']} bytes)"
            f" snapshots={row['snapshot_bytes']} large_values={row['large_value_bytes']}"
        )
    return 0


def run_compact(words: Sequence[str]) -> int:
    common = read_plain("compact", words, "Snapshot every session, drop history past its retention and sessions that ended long ago.")
    if common is None:
        return 0
    if common.store is not None:
        from pinfold.journal.open import require_store

        require_store(common.store)
    with open_memory(common) as memory, progress("compacting") as told:
        names = memory.compact(told)
    if common.json:
        write_json({"status": "compacted", "sessions": names})
    else:
        write("\n".join(f"compacted {name}" for name in names) if names else "nothing to compact")
    return 0


# --- words --------------------------------------------------------------------------------------------------------


def run_guide(words: Sequence[str]) -> int:
    loose = "--loose" in words
    common = read_plain(
        "guide", [word for word in words if word != "--loose"], "What an agent needs to know: for its prompt, AGENTS.md or a skill. --loose: as a list."
    )
    if common is not None:
        from pinfold.doors.guide import GUIDE, loose_guide

        text = loose_guide() if loose else GUIDE
        write_json({"guide": text}) if common.json else write(text)
    return 0


def run_version(words: Sequence[str]) -> int:
    common = read_plain("version", words, "The version of pinfold.")
    if common is not None:
        from pinfold import __version__

        if common.json:
            import sqlite3

            write_json({"pinfold": __version__, "python": sys.version.split()[0], "sqlite": sqlite3.sqlite_version})
        else:
            write(f"pinfold {__version__}")
    return 0


# --- doors of their own -------------------------------------------------------------------------------------------


def run_demo(words: Sequence[str]) -> int:
    common = read_plain("demo", words, "Eight workers want the same results from one store: nothing is done twice.")
    if common is None:
        return 0
    run: Any = import_module("pinfold.doors.demo").run_demo

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    return int(run(sys.stdout))


def run_mcp(words: Sequence[str]) -> int:
    try:
        serve: Any = import_module("pinfold.doors.mcp").main
        return int(serve(list(words)))
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the MCP server needs the package {(error.name or 'mcp').partition('.')[0]!r}, which is not installed",
            code="extra_missing",
            hint="pip install 'pinfold[mcp]'",
        ) from error
