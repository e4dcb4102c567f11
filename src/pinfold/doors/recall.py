"""Verbs around recall that are no operation on a session: bench, reembed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from pinfold.doors.arguments import Common, Parser
from pinfold.doors.cli import open_memory, say, write, write_json
from pinfold.doors.verbs import read_plain

_HEAD = ("set", "queries", "recall@5", "recall@10", "recall@20", "any@5", "all@5", "mrr", "tokens@10", "ms_per_query", "build_s")


def run_bench(words: Sequence[str]) -> int:
    """Measure: `bench recall FILE…`. Figures are those of the sets given; nothing is stored."""
    parser = Parser(
        "bench", "recall FILE… [--level none|static|minilm|URL] [flags]", "Measure recall on question sets: one corpus a line, as docs/recall.md tells."
    )
    parser.add_argument("--level", default="static", help="what to embed with (default: static)")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if bare[:1] != ["recall"] or len(bare) < 2:
        parser.error("say what to measure, and by which files: bench recall FILE…")
    import msgspec

    from pinfold.recall.bench import bench_recall

    rows: list[dict[str, Any]] = [msgspec.to_builtins(report) for report in bench_recall(bare[1:], flags.level)]
    if Common(flags).json:
        write_json({"sets": rows})
        return 0
    table = [list(_HEAD), *([str(row[name]) for name in _HEAD] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    write("\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table))
    return 0


def run_reembed(words: Sequence[str]) -> int:
    """Give every memory of a session its vector, or those of all sessions where none is named."""
    common = read_plain("reembed", words, "Make the vectors that search lacks, after $PINFOLD_EMBEDDER changed. Can be stopped and goes on where it was.")
    if common is None:
        return 0
    made: list[dict[str, Any]] = []
    with open_memory(common) as memory:
        names = [common.session] if common.session else [row.session_id for row in memory.sessions()]
        for name in names:
            session = memory.session(name)
            made.append({"session_id": name, "embedded": session.embed_rows(lambda done, total, name=name: _progress(name, done, total))})
    if common.json:
        write_json({"status": "embedded", "sessions": made})
    else:
        write("\n".join(f"{row['session_id']}: {row['embedded']} vectors made" for row in made) or "nothing is stored")
    return 0


def _progress(name: str, done: int, total: int) -> None:
    """Draw a bar on a terminal; elsewhere nothing, so that a log is not filled."""
    if not total or sys.stderr is None or not sys.stderr.isatty():
        return
    filled = 30 * done // total
    sys.stderr.write(f"\r{name} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}")
    sys.stderr.flush()
    if done >= total:
        say("")
