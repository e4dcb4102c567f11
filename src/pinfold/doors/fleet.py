"""Verbs for stores that are servers: copy, migrate."""

from __future__ import annotations

from collections.abc import Sequence

from pinfold.doors.arguments import Common, Parser
from pinfold.doors.cli import write, write_json


def run_copy(words: Sequence[str]) -> int:
    parser = Parser(
        "copy", "FROM_URL TO_URL [--compacted] [flags]", "Copy sessions into another store: all, or --session NAME. Verified; goes on after a break."
    )
    parser.add_argument("--compacted", action="store_true", help="the state alone, without its history")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if len(bare) != 2:
        parser.error("it takes the URL to copy from and the URL to copy to")
    common = Common(flags)
    from pinfold.journal.open import open_journal
    from pinfold.transfer import copy_store

    source, target = open_journal(bare[0]), open_journal(bare[1])
    rows = []
    try:
        for copied in copy_store(source, target, compacted=flags.compacted, only=common.session):
            rows.append({"session_id": copied.session, "entries": copied.entries, "seq": copied.seq, "state_hash": copied.state_hash})
            if not common.json:
                write(f"{copied.session}  seq={copied.seq} entries={copied.entries} state={copied.state_hash}")
    finally:
        source.close()
        target.close()
    if common.json:
        write_json({"status": "copied", "sessions": rows})
    elif not rows:
        write("nothing to copy")
    return 0


def run_migrate(words: Sequence[str]) -> int:
    parser = Parser("migrate", "[URL] [flags]", "Bring the tables of a PostgreSQL store to this version's format; other stores need none.")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if len(bare) > 1:
        parser.error(f"{bare[1]!r} is one word too many")
    common = Common(flags)
    from pinfold.journal.open import default_url, migrate_store

    url = bare[0] if bare else common.store or default_url()
    done = migrate_store(url)
    if common.json:
        write_json({"status": "migrated" if done else "unchanged", "done": done})
    else:
        write("\n".join(done) if done else "nothing to migrate")
    return 0
