"""python -m benchmarks [--list] [--json] [--repeats N] [--no-peers] [--cpu] [NAME ...]"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import benchmarks.harness as harness
import pinfold
from benchmarks import graph, silo
from benchmarks.peers import MEMNET, PMLL, Peer, PeerMissing
from benchmarks.silo import Bench

BENCHES = {**silo.BENCHES, **graph.BENCHES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benches and print their figures. Return 0; 1 where a side gave a wrong answer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures beside raw SQLite and peers; they report, they never gate.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--list", action="store_true", help="list the benches")
    parser.add_argument("--json", action="store_true", help="JSON on stdout instead of a Markdown table")
    parser.add_argument("--repeats", type=int, default=7, help="rounds per comparison (default: 7)")
    parser.add_argument("--small", action="store_true", help="a hundredth of the work: to see that it runs, not for figures")
    parser.add_argument("--million", action="store_true", help="reads at 1,000,000 nodes too: some minutes and 2 GB")
    parser.add_argument("--no-peers", action="store_true", help="install and run no peers")
    parser.add_argument("--cpu", action="store_true", help="in-process figures in CPU time, where other programs compete for the cores")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BENCHES]:
        parser.error(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if options.list:
        for name, bench in BENCHES.items():
            print(f"{name:<8} {(bench.__doc__ or '').splitlines()[0]}")
        return 0
    if options.cpu:
        os.environ[harness.CLOCK] = "cpu"  # for the peer's process too
        harness.per_call_clock = time.process_time
    table = harness.Table(max(1, options.repeats), tell=harness.say)
    with tempfile.TemporaryDirectory(prefix="pinfold-bench-") as folder:
        about = {**harness.machine(folder), "pinfold": pinfold.__version__}
        try:
            _run(table, Path(folder), options.names or list(BENCHES), options, about)
        except harness.WrongAnswer as wrong:
            harness.say(f"WRONG: {wrong}")
            return 1
    if options.json:
        print(json.dumps({"about": about, "rows": [row.as_dict() for row in table.rows]}, indent=1))
    else:
        print(harness.as_markdown(table.rows, about))
    return 0


def _run(table: harness.Table, folder: Path, names: Sequence[str], options: argparse.Namespace, about: dict[str, object]) -> None:
    with contextlib.ExitStack() as stack:
        peers: dict[str, Peer | None] = {}
        shared: dict[str, object] = {}

        def peer(package: tuple[str, str], script: str) -> Peer | None:
            """Start a peer when it is first wanted; where it cannot run, its rows are left out."""
            name = " ".join(package)
            if name not in peers and not options.no_peers:
                try:
                    peers[name] = stack.enter_context(Peer(package, script, str(folder)))
                    about["peers"] = ", ".join(sorted(peers))
                except PeerMissing as missing:
                    peers[name] = None
                    table.note("peers", f"left out: {missing}")
                    harness.say(str(missing))
            return peers.get(name)

        for name in names:
            own = folder / name
            own.mkdir()
            pmll = peer(PMLL, "peer_pmll.py") if name in silo.BENCHES else None
            BENCHES[name](Bench(table, own, pmll, options.small, options.million, lambda: peer(MEMNET, "peer_memnet.py"), shared))


if __name__ == "__main__":
    sys.exit(main())
