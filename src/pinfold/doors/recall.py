"""Verbs around recall that are no operation on a session: bench, reembed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinfold.doors.arguments import Common, Parser
from pinfold.doors.cli import open_memory, write, write_json
from pinfold.doors.progress import progress
from pinfold.doors.verbs import read_plain

_HEAD = ("set", "queries", "recall@5", "recall@10", "recall@20", "any@5", "all@5", "mrr", "tokens@10", "ms_per_query", "build_s")


BENCHES = {
    "silo": "peek set full claim once durable reopen race flight langgraph",
    "graph": "rates update reads opening size pinmap shape",
    "mcp": "mcp http socket",
    "tokens": "answers listing budget",
}
"""What `pinfold bench WHAT` runs of the checkout's benches."""


def run_bench(words: Sequence[str]) -> int:
    """Measure: `bench recall FILE…` anywhere; `bench silo|graph|mcp|tokens` runs a checkout's benches, beside peers. Nothing is stored."""
    parser = Parser(
        "bench",
        "recall FILE… [--level none|static|minilm|URL] | silo|graph|mcp|tokens [flags]",
        "Measure. recall: on question sets, one corpus a line, as docs/recall.md tells. The others run benchmarks/ of a checkout, "
        "beside peers in environments of their own; all of it at once: make bench.",
    )
    parser.add_argument("--level", default="static", help="what to embed with (default: static)")
    parser.add_argument("--no-peers", action="store_true", help="install and run no peers")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if len(bare) == 1 and bare[0] in BENCHES:
        return _run_checkout(bare[0], Common(flags).json, flags.no_peers)
    if bare[:1] != ["recall"] or len(bare) < 2:
        parser.error(f"say what to measure: bench recall FILE…, or bench {'|'.join(BENCHES)}")
    import msgspec

    from pinfold.recall.bench import bench_recall

    with progress("asking") as told:
        rows: list[dict[str, Any]] = [msgspec.to_builtins(report) for report in bench_recall(bare[1:], flags.level, told)]
    if Common(flags).json:
        write_json({"sets": rows})
        return 0
    table = [list(_HEAD), *([str(row[name]) for name in _HEAD] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    write("\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table))
    return 0


def _run_checkout(what: str, as_json: bool, without_peers: bool) -> int:
    """Run benches of the checkout this package is installed from, else of the current folder."""
    import os
    import subprocess
    import sys
    from pathlib import Path

    import pinfold
    from pinfold.errors import ConfigurationError

    source = Path(pinfold.__file__).resolve().parents[1]
    home = next((place for place in (source.parent, Path.cwd()) if (place / "benchmarks" / "harness.py").is_file()), None)
    if home is None:
        raise ConfigurationError(
            f"bench {what} runs the benches of a checkout, and there is none here", code="bench_checkout", hint="run it in a clone of pinfold, or: make bench"
        )
    path = os.pathsep.join([str(home), str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "benchmarks", *BENCHES[what].split(), *(["--json"] if as_json else []), *(["--no-peers"] if without_peers else [])]
    return subprocess.run(command, cwd=home, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


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
            with progress(name) as told:
                made.append({"session_id": name, "embedded": session.embed_rows(told)})
    if common.json:
        write_json({"status": "embedded", "sessions": made})
    else:
        write("\n".join(f"{row['session_id']}: {row['embedded']} vectors made" for row in made) or "nothing is stored")
    return 0
