"""What inputs cost: `set`, `peek`, `mutate` and `pin_map` where nothing is declared, where other things are, and where these are.

Every side is a process of its own with its store in RAM, so that no disk hides a difference, and rounds go in turn. Figures are CPU
time per call; ratios are medians of the ratios within a round, to the first side, which runs twice: its second row says what is
noise. With --before DIR (the `src` of a checkout from before there were inputs) that side comes first: what those pay who declare
nothing.
Run: python -m benchmarks.inputs [NAME …] [--before DIR] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.peers import serve

ROOT = Path(__file__).resolve().parents[1]
CALLS = {"peek": 50_000, "once": 20_000, "set new": 1_000, "set update": 1_000, "mutate new": 200, "mutate patch": 200, "pin_map": 100, "get": 2_000}
ROWS = 1_000
MODES = ("nothing declared", "declared elsewhere", "declared here")


def worker(mode: str) -> dict[str, Any]:
    """Return the operations of a side's process, by name."""
    from pinfold import Memory

    session = Memory("memory://", background=False).session("bench")
    here = mode == "declared here"
    rest = {"inputs": ["row:G"]} if here else {}
    lines = ["+ GROUND [G] ; a=1", *(f"+ TSK [T{n}] ; goal=number {n} ; prio={n % 5}" for n in range(ROWS))]
    lines += [f"+ [T{n}] --(next)--> [T{n - 1}]" for n in range(1, ROWS)]
    session.mutate("\n".join(lines))
    if mode != "nothing declared":
        session.mutate("\n".join(f"+ NOTE [N{n}]" for n in range(ROWS)), inputs=["row:G"])
    if here:
        session.mutate("\n".join(f"~ [T{n}] ; prio=9" for n in range(ROWS)), **rest)
    for key in ("hit", "made"):
        session.set(key, "v" * 64, **rest)
    fresh = count()
    last: dict[str, int] = {}
    names = [f"T{n}" for n in range(10, ROWS - 10, 5)]

    def patch(number: int) -> None:
        last["patch"] = number
        session.mutate(f"~ [T{number % ROWS}] ; prio={number}", **rest)

    def new(number: int) -> None:
        last["new"] = number
        session.mutate(f"+ CLM [NEW] ; code=number {number}", **rest)

    def put(key: str, number: int) -> None:
        last[key] = number
        session.set(key, f"v{number}", **rest)

    calls = {
        "peek": lambda calls: harness.us_per_call(partial(session.peek, "hit"), calls),
        "once": lambda calls: harness.us_per_call(partial(session.once, "made", int, **rest), calls),
        "set new": lambda calls: harness.us_per_item(lambda number: put(f"k{number}", number), [next(fresh) for _ in range(calls)]),
        "set update": lambda calls: harness.us_per_item(lambda number: put("turn", number), [next(fresh) for _ in range(calls)]),
        "mutate new": lambda calls: harness.us_per_item(new, [next(fresh) for _ in range(calls)]),
        "mutate patch": lambda calls: harness.us_per_item(patch, [next(fresh) for _ in range(calls)]),
        "pin_map": lambda calls: harness.us_per_item(lambda place: session.pin_map(names[place % len(names)], depth=2), list(range(calls))),
        "get": lambda calls: harness.us_per_item(lambda place: session.get(names[place % len(names)]), list(range(calls))),
    }

    def run(name: str, calls_: int) -> float:
        return calls[name](calls_)

    does: dict[str, Callable[[], bool]] = {
        "peek": lambda: session.peek("hit").value == "v" * 64,
        "once": lambda: session.once("made", int, **rest) == "v" * 64,
        "set new": lambda: all(session.peek(key).value == f"v{number}" for key, number in last.items() if key.startswith("k")),
        "set update": lambda: session.peek("turn").value == f"v{last['turn']}",
        "mutate new": lambda: f"code=number {last['new']}" in session.find(kind="CLM", limit=10_000).items[-1].line,
        "mutate patch": lambda: f"prio={last['patch']}" in session.get(f"T{last['patch'] % ROWS}").items[0].line,
        "pin_map": lambda: all(name in session.pin_map(name, depth=2).ids for name in names[:5]),
        "get": lambda: all(f"[{name}]" in session.get(name).items[0].line for name in names[:5]),
    }

    def check(name: str) -> dict[str, Any]:
        """Return what shows that the calls did their work."""
        graph = session.graph_counts()
        stale = getattr(session, "stale", list)()
        try:
            did = does[name]()
        except harness.UNREADABLE:
            did = False  # an answer that cannot even be read
        return {"did": did, "nodes": graph["nodes"], "edges": graph["edges"], "stale": len(stale)}

    return {"run": lambda name, calls: run(name, calls), "check": check}


class Side:
    """A process that measures one side."""

    def __init__(self, name: str, mode: str, source: Path) -> None:
        self.name = name
        path = [str(source), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), harness.CLOCK: "cpu"}
        command = [sys.executable, "-m", "benchmarks.inputs", "--serve", mode]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)

    def ask(self, op: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        if "result" not in told:
            raise harness.WrongAnswer(f"{self.name} failed at {op}: {told['error']}")
        return told["result"]

    def end(self) -> None:
        self._process.communicate()


def bench_inputs(names: Sequence[str], before: Path | None, source: Path, rounds: int, small: bool) -> list[harness.Row]:
    """Return the rows of these operations for every side. Raises WrongAnswer where a side did not do its work."""
    table = harness.Table(rounds, tell=harness.say)
    first = ("before inputs", before) if before is not None else (MODES[0], source)
    same = [Side(first[0], MODES[0], first[1]), Side(f"{first[0]}, again", MODES[0], first[1])]
    sides = [*same, *(Side(mode, mode, source) for mode in (MODES if before is not None else MODES[1:]))]
    try:
        for name in names:
            many = max(1, CALLS[name] // 100) if small else CALLS[name]
            told = [harness.Side(side.name, partial(side.ask, "run", name=name, calls=many), partial(_is_right, side, name)) for side in sides]
            table.compare(name, "us CPU", told)
    finally:
        for side in sides:
            side.end()
    return table.rows


def _is_right(side: Side, name: str) -> bool:
    found = side.ask("check", name=name)
    return bool(found["did"] and found["nodes"] > ROWS and found["edges"] == ROWS - 1 and found["stale"] == 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as a Markdown table, or as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inputs", description="What inputs cost those who declare none, and those who do.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(CALLS)} (default: all)")
    parser.add_argument("--source", type=Path, default=ROOT / "src", metavar="DIR", help="the src to measure (default: this one)")
    parser.add_argument("--before", type=Path, metavar="DIR", help="the src of a checkout from before there were inputs")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--small", action="store_true", help="a hundredth of the work: to see that it runs, not for figures")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(worker(options.serve))
        return 0
    if unknown := [name for name in options.names if name not in CALLS]:
        parser.error(f"no such operation: {', '.join(unknown)}; there are {', '.join(CALLS)}")
    before = options.before.resolve() if options.before is not None else None
    rows = bench_inputs(options.names or list(CALLS), before, options.source.resolve(), options.rounds, options.small)
    about = {**harness.machine(), "clock": "CPU time per call"}
    print(json.dumps([row.as_dict() for row in rows], indent=1) if options.json else harness.as_markdown(rows, about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
