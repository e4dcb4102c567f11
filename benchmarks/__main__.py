"""python -m benchmarks [--list] [--json] [--repeats N] [--no-peers] [--cpu] [NAME ...], or python -m benchmarks report [--quick]"""

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

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

import benchmarks.harness as harness
import pinfold
from benchmarks import doors, flight, graph, instructions, newest, recall, recall_miss, recall_peers, silo
from benchmarks.peers import MEMNET, PMLL, Peer, PeerMissing
from benchmarks.silo import Bench
from benchmarks.targets import target_of

BENCHES = {
    **silo.BENCHES,
    **flight.BENCHES,
    **graph.BENCHES,
    **newest.BENCHES,
    "recall": recall_peers.recall,
    **recall.BENCHES,
    **recall_miss.BENCHES,
    **doors.BENCHES,
    **instructions.BENCHES,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benches and print their figures. Return 0; 1 where a side gave a wrong answer."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["report"]:
        from benchmarks import report

        return report.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures beside raw SQLite and peers; they report, they never gate.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--list", action="store_true", help="list the benches")
    parser.add_argument("--json", action="store_true", help="JSON on stdout instead of a Markdown table")
    parser.add_argument("--repeats", type=int, default=7, help="rounds per comparison (default: 7)")
    parser.add_argument("--small", action="store_true", help="a hundredth of the work: to see that it runs, not for figures")
    parser.add_argument("--quick", action="store_true", help="the sizes of the quick report")
    parser.add_argument("--lines", metavar="FILE", help="write rows as JSON lines too, each bench's when it ends")
    parser.add_argument("--no-peers", action="store_true", help="install and run no peers")
    parser.add_argument("--cpu", action="store_true", help="in-process figures in CPU time, where other programs compete for the cores")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BENCHES]:
        parser.error(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if options.list:
        for name, bench in BENCHES.items():
            print(f"{name:<12} {(bench.__doc__ or '').splitlines()[0]}")
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
    fill_targets(table)
    if options.json:
        print(json.dumps({"about": about, "rows": [row.as_dict() for row in table.rows]}, indent=1))
    else:
        print(harness.as_markdown(table.rows, about))
    return 0


def _run(table: harness.Table, folder: Path, names: Sequence[str], options: argparse.Namespace, about: dict[str, object]) -> None:
    lines = Lines(options.lines, table) if options.lines else None
    if lines is not None:
        table.tell = lines.tell
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
            if lines is not None:
                lines.of = name
            pmll = peer(PMLL, "peer_pmll.py") if name in silo.BENCHES else None
            memnet = lambda: peer(MEMNET, "peer_memnet.py")  # noqa: E731
            try:
                BENCHES[name](Bench(table, own, pmll, options.small, memnet, shared, not options.no_peers, options.quick))
            except PeerMissing as missing:
                table.note(name, f"what follows was left out: {missing}")
                harness.say(str(missing))
            if lines is not None:
                lines.write()
                lines.write_peak()


def fill_targets(table: harness.Table) -> None:
    """Put into each row what the issues ask of it."""
    for row in table.rows:
        row.target = target_of(row)


class Lines:
    """Writes a table's rows to a file as they come, so that a run that is stopped leaves what it has found."""

    def __init__(self, path: str, table: harness.Table) -> None:
        self._path, self._table, self._done, self.of = path, table, 0, ""

    def tell(self, line: str) -> None:
        """Write what is there before the next comparison begins, and say what that is."""
        self.write()
        harness.say(line)

    def write(self) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            for row in self._table.rows[self._done :]:
                row.target = target_of(row)
                file.write(json.dumps({**row.as_dict(), "of": self.of}) + "\n")
        self._done = len(self._table.rows)

    def write_peak(self) -> None:
        """Write the most memory this process has had."""
        if resource is not None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
            self._table.rows.append(harness.Row("peak RSS of the process that measures", f"after {self.of}", "MB", [peak / 1024]))
            self.write()


if __name__ == "__main__":
    sys.exit(main())
