"""python -m benchmarks.memory [--peeks N] [--overwrites N]: what a long life costs. RAM and file over many reads and overwrites.

Both are to be flat after a warm-up: reads keep nothing, overwritten values leave RAM at once and the file as history is trimmed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from pinfold import Memory, limits
from pinfold.journal.open import store_bytes


def rss_kb() -> int:
    """Return this process's resident memory. Linux; elsewhere the most it ever had."""
    gc.collect()
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(folder: str, peeks: int, overwrites: int, history_bytes: int) -> dict[str, Any]:
    """Return RSS in KB and the file's KB at ten points of each phase."""
    limits.HISTORY_BYTES = history_bytes
    path = os.path.join(folder, "store.db")
    figures: dict[str, Any] = {"peeks": peeks, "overwrites": overwrites, "history_kb": history_bytes // 1024}
    with Memory(f"sqlite:///{path}") as memory:
        session = memory.session("bench")
        for number in range(100):
            session.set(f"k{number}", "v" * 64)
        figures["peek_rss_kb"] = []
        for _ in range(10):
            for number in range(peeks // 10):
                session.peek(f"k{number % 120}")  # misses too
            figures["peek_rss_kb"].append(rss_kb())
        figures["set_rss_kb"], figures["file_kb"] = [], []
        for part in range(10):
            for number in range(overwrites // 10):
                session.set(f"k{number % 100}", f"{part}:{number}" * 8)
            figures["set_rss_kb"].append(rss_kb())
            figures["file_kb"].append((store_bytes(path) or 0) // 1024)
        figures["entries_kept"] = memory._journal.info("bench").entries  # type: ignore[union-attr]
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description="RAM and file over many reads and overwrites.")
    parser.add_argument("--peeks", type=int, default=1_000_000)
    parser.add_argument("--overwrites", type=int, default=100_000)
    parser.add_argument("--history-kb", type=int, default=1024, help="the retained history: small, so that trimming is reached")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pinfold-memory-") as folder:
        print(json.dumps(measure(folder, options.peeks, options.overwrites, options.history_kb * 1024)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
