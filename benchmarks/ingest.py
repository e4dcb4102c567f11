"""python -m benchmarks.ingest [--json] [FOLDER ...]: the rate of ingest, by default of this repository and of the standard library.

Each folder is copied to two paths, and each copy is read into a store of its own. Told are CPU seconds of this process for the first
run, for one again by a new handle (all files are read, nothing is written) and for one by the same handle (only what changed is
read), beside those that Python's own parser takes for the same files; whether rows and ids came out alike at both paths; and what
three edited files change. It never gates.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pinfold import Memory, Session
from pinfold.ingest.job import Ingest, Ingested

LIBRARY = sysconfig.get_paths()["stdlib"]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", "site-packages", "node_modules", "config-*", "*.so", "*.a")
LONG_AGO = 1_500_000_000
MAP_TOKENS = 400
MAPS = 500


def measure(folder: str, work: Path) -> dict[str, Any]:
    """Return the figures of one folder."""
    first, second = (Path(shutil.copytree(folder, work / name / "tree", ignore=LEFT_OUT, symlinks=True)) for name in ("one", "two"))
    for path in first.rglob("*.py"):
        os.utime(path, (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with Memory(f"sqlite:///{work}/one.db") as memory, Memory(f"sqlite:///{work}/two.db") as other:
        session, twin = memory.session("bench"), other.session("bench")
        parse_s = _parse(first)
        done, first_s = _timed(lambda: session.ingest("code", str(first), languages=["python"]))
        again, again_s = _timed(lambda: session.ingest("code", str(first), languages=["python"]))
        twin.ingest("code", str(second), languages=["python"])
        alike = _rows(session) == _rows(twin)
        job = Ingest(session, "code", str(first), languages=["python"])
        job.run()
        for file in job._files.values():
            file.proven = True  # as their stat makes them two seconds later
        same, same_s = _timed(job.run)
        _edit(first)
        after, after_s = _timed(job.run)
        size = sum(path.stat().st_size for path in first.rglob("*.py") if path.is_file())
        return {
            "folder": folder,
            "files": done.files,
            "megabytes": round(size / 1e6, 1),
            "pins": done.pins,
            "edges": done.links,
            "not_read": len(done.unread),
            "parse_s": round(parse_s, 2),
            "first_s": round(first_s, 2),
            "first_to_parse": round(first_s / parse_s, 2),
            "rows_per_s": round((done.pins + done.links) / first_s),
            "megabytes_per_s": round(size / 1e6 / first_s, 2),
            "again_s": round(again_s, 2),
            "again_to_parse": round(again_s / parse_s, 2),
            "unchanged_s": round(same_s, 2),
            "again_changes": _changes(again) + _changes(same),
            "alike_at_two_paths": alike,
            "three_edits_s": round(after_s, 2),
            "three_edits": f"+{after.created} ~{after.patched} -{after.dropped} rows, +{after.linked} -{after.unlinked} edges",
            "store_megabytes": round(sum(path.stat().st_size for path in work.glob("one.db*")) / 1e6, 1),
            **_maps(session),
        }


def _timed(run: Callable[[], Ingested]) -> tuple[Ingested, float]:
    began = time.process_time()
    done = run()
    return done, time.process_time() - began


def _parse(folder: Path) -> float:
    """Return the CPU seconds that parsing alone takes."""
    texts = [path.read_bytes() for path in sorted(folder.rglob("*.py")) if path.is_file()]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for text in texts:
            try:
                ast.parse(text)
            except (SyntaxError, ValueError):
                pass
    return time.process_time() - began


def _changes(done: Ingested) -> int:
    return done.created + done.patched + done.dropped + done.linked + done.unlinked


def _edit(folder: Path) -> None:
    """Append a function to three files."""
    paths = sorted(path for path in folder.rglob("*.py") if path.is_file() and path.stat().st_size > 1000 and "bad" not in path.name)
    for part in (1, 2, 3):
        with paths[len(paths) * part // 4].open("ab") as file:
            file.write(b"\n\ndef appended_for_the_benchmark():\n    return 1\n")


def _rows(session: Session) -> set[str]:
    """Return pins and edges as they read."""
    graph = session._view().graph
    return {f"{node.id} {node.fields}" for node in graph.nodes.values()} | {f"{edge.src} {edge.rel} {edge.dst}" for edge in graph.edges.values()}


def _maps(session: Session) -> dict[str, Any]:
    """Return of how many called functions all callers in their file fit into a pin map; of MAPS at most, evenly chosen."""
    graph = session._view().graph
    callers = Counter(edge.dst for edge in graph.edges.values() if edge.rel == "calls" and graph.nodes[edge.dst].kind == "FUNC")
    chosen = sorted(callers)[:: max(1, len(callers) // MAPS)]
    whole = 0
    for id in chosen:
        shown = session.pin_map(id, depth=1, budget_tokens=MAP_TOKENS, relations=["calls"], direction="in")
        whole += shown.nodes[0] == callers[id] + 1
    return {f"all_callers_in_{MAP_TOKENS}_tokens": f"{whole} of {len(chosen)}"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description="The rate of ingest, and what comes out.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=[str(Path(__file__).resolve().parents[1]), LIBRARY])
    parser.add_argument("--json", action="store_true", help="JSON instead of lines")
    options = parser.parse_args(arguments)
    figures = []
    for folder in options.folders:
        with tempfile.TemporaryDirectory(prefix="pinfold-ingest-") as work:
            figures.append(measure(folder, Path(work)))
        if not options.json:
            print("\n".join(f"{name:>26}  {value}" for name, value in figures[-1].items()), flush=True)
    if options.json:
        print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
