"""Verbs for stores that are servers: copy, migrate."""

from __future__ import annotations

from collections.abc import Sequence

from pinfold.doors.arguments import Common, Parser
from pinfold.doors.cli import write, write_json
from pinfold.doors.progress import progress


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
    from pinfold.journal.open import open_journal, require_store
    from pinfold.transfer import Copied, copy_store

    require_store(bare[0])
    source, target = open_journal(bare[0]), open_journal(bare[1])
    rows: list[Copied] = []
    try:
        with progress("copying") as told:
            rows.extend(copy_store(source, target, compacted=flags.compacted, only=common.session, told=told))
    finally:
        source.close()
        target.close()
        if not common.json:  # what was verified before something went wrong, too
            for row in rows:
                write(f"{row.session}  seq={row.seq} entries={row.entries} state={row.state_hash}")
    if common.json:
        shown = [{"session_id": row.session, "entries": row.entries, "seq": row.seq, "state_hash": row.state_hash} for row in rows]
        write_json({"status": "copied", "sessions": shown})
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
    from pinfold.journal.open import migrate_store
    from pinfold.journal.url import default_url

    url = bare[0] if bare else common.store or default_url()
    done = migrate_store(url)
    if common.json:
        write_json({"status": "migrated" if done else "unchanged", "done": done})
    else:
        write("\n".join(done) if done else "nothing to migrate")
    return 0
