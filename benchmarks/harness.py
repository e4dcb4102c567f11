"""How a figure is taken. Standard library only: peers are measured by this file too, inside their own environments.

* Sides of one comparison run in turn, A B A B, so that a machine that slows down slows both; a ratio is the median of
  the ratios within each round, never one run's A over another run's B.
* A side is right before it is timed: its check runs after the warm-up, and again after the last round.
* Every round is kept; what is told is the median and the spread (lowest and highest).
* Targets (targets.py) are printed beside the figures and decide nothing.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

CLOCK = "PINFOLD_BENCH_CLOCK"
"""Environment: `cpu` counts the process's own CPU time per call. Closer to a quiet machine where others compete for the
cores, and it counts what background threads cost; blind to waiting, so never used for disks, races and whole commands."""
per_call_clock = time.process_time if os.environ.get(CLOCK) == "cpu" else time.perf_counter


class WrongAnswer(Exception):
    """A side did not do what it is timed for."""


UNREADABLE = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What it comes to where an answer is not of the shape that was asked for."""


@dataclass
class Side:
    """One way to do the thing. run: one timed round, returns the figure. check: raises or returns False where it is wrong."""

    name: str
    run: Callable[[], float]
    check: Callable[[], bool | None]
    note: str = ""


@dataclass
class Row:
    """The figures of one side. ratio: this side's figure over the first side's, None for the first side itself."""

    bench: str
    side: str
    unit: str
    runs: list[float]
    ratio: float | None = None
    target: str = ""
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    def as_dict(self) -> dict[str, Any]:
        figures = {"median": self.median, "low": min(self.runs), "high": max(self.runs), "runs": self.runs} if self.runs else {}
        return {"bench": self.bench, "side": self.side, "unit": self.unit, **figures, "ratio": self.ratio, "target": self.target, "note": self.note}


@dataclass
class Table:
    """What benches report to. repeats: rounds per comparison, without the warm-up."""

    repeats: int = 7
    rows: list[Row] = field(default_factory=list)
    tell: Callable[[str], None] = lambda line: None

    def compare(self, bench: str, unit: str, sides: Sequence[Side], *, repeats: int | None = None) -> list[Row]:
        """Run the sides in turn and return a row each; the first side is what the others' ratios refer to.

        Raises WrongAnswer where a check fails, before anything was timed or after.
        """
        self.tell(f"{bench}: {', '.join(side.name for side in sides)}")
        for side in sides:
            run_once(bench, side)
            verify(bench, side)
        runs: list[list[float]] = [[] for _ in sides]
        for number in range(repeats or self.repeats):
            # Every other round backwards: whoever comes second in a round finds warmer caches.
            order = range(len(sides)) if number % 2 == 0 else reversed(range(len(sides)))
            for place in order:
                runs[place].append(run_once(bench, sides[place]))
        for side in sides:
            verify(bench, side)
        found = []
        for place, side in enumerate(sides):
            ratio = None if place == 0 else paired_ratio(runs[place], runs[0])
            found.append(Row(bench, side.name, unit, runs[place], ratio, note=side.note))
        self.rows += found
        return found

    def note(self, bench: str, note: str) -> None:
        """Say why a bench has no figures."""
        self.rows.append(Row(bench, "-", "", [], note=note))


def verify(bench: str, side: Side) -> None:
    """Raise WrongAnswer unless the side's check passes; an answer that the check cannot even read is wrong too."""
    with must_hold(bench, side.name):
        right = side.check()
    if right is False:
        raise WrongAnswer(f"{bench}: {side.name} does not do what it is timed for")


def run_once(bench: str, side: Side) -> float:
    """Return the figure of one round. Raises WrongAnswer where what was timed answers with something else altogether."""
    with must_hold(bench, side.name):
        return side.run()


@contextmanager
def must_hold(bench: str, side: str) -> Iterator[None]:
    """Raise WrongAnswer where what is asserted or read in the block is not as it must be: for benches that compare no sides."""
    try:
        yield
    except UNREADABLE as error:
        raise WrongAnswer(f"{bench}: {side} does not do what it is timed for: {error!r}") from error


def paired_ratio(figures: Sequence[float], reference: Sequence[float]) -> float:
    """Return the median of figure / reference over the rounds they shared."""
    if len(figures) != len(reference) or not figures:
        raise ValueError("a ratio needs both sides of the same rounds")
    return statistics.median(figure / other for figure, other in zip(figures, reference, strict=True))


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """Return x of the least-squares line log y = a + x log n: 0 is constant, 1 linear. Needs two sizes, and figures above 0."""
    logs = [(math.log(size), math.log(value)) for size, value in points]
    mean_n, mean_y = (statistics.fmean(values) for values in zip(*logs, strict=True))
    return sum((n - mean_n) * (y - mean_y) for n, y in logs) / sum((n - mean_n) ** 2 for n, _ in logs)


def us_per_call(call: Callable[[], object], count: int) -> float:
    """Return microseconds per call of count calls in a tight loop, the loop's own cost taken off. Garbage collection is off."""
    rounds, clock = range(count), per_call_clock
    was_on = gc.isenabled()
    gc.disable()
    try:
        began = clock()
        for _ in rounds:
            call()
        took_s = clock() - began
        began = clock()
        for _ in rounds:
            pass
        took_s -= clock() - began
    finally:
        if was_on:
            gc.enable()
    return took_s / count * 1e6


def us_per_item(call: Callable[[Any], object], items: Iterable[Any]) -> float:
    """Return microseconds per call, one call for each item. Garbage collection stays as it is: writers make garbage."""
    items, clock = list(items), per_call_clock
    began = clock()
    for item in items:
        call(item)
    return (clock() - began) / len(items) * 1e6


def median_ms(call: Callable[[Any], object], items: Iterable[Any]) -> float:
    """Return the median of milliseconds per call, one call for each item."""
    clock, took = per_call_clock, []
    for item in items:
        began = clock()
        call(item)
        took.append(clock() - began)
    return statistics.median(took) * 1000


def machine(folder: str | None = None) -> dict[str, Any]:
    """Return what figures depend on: processor, load, versions, and how long this disk takes for an fsync."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "clock": "CPU time per call" if per_call_clock is time.process_time else "wall",
        "load": [round(value, 2) for value in load],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "fsync_ms": round(fsync_ms(folder), 3),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def fsync_ms(folder: str | None = None, count: int = 20) -> float:
    """Return the median milliseconds of writing 4 KiB and fsync: what every FULL figure hangs on."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        took = []
        for _ in range(count):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def rss_kib() -> int:
    """Return the memory of this process that is in RAM, in KiB; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("VmRSS:")), 0)
    except OSError:
        return 0


def figure(value: float) -> str:
    """Return a number as people read it: three digits that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def as_markdown(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """Return the figures as a table, the machine above it."""
    lines = [", ".join(f"{name} {value}" for name, value in about.items()), ""]
    lines += ["| bench | side | median | lowest–highest | x first | target | note |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        if not row.runs:
            lines.append(f"| {row.bench} | {row.side} | | | | {row.target} | {row.note} |")
            continue
        ratio = "" if row.ratio is None else figure(row.ratio)
        spread = f"{figure(min(row.runs))}–{figure(max(row.runs))}"
        lines.append(f"| {row.bench} | {row.side} | {figure(row.median)} {row.unit} | {spread} | {ratio} | {row.target} | {row.note} |")
    return "\n".join(lines)


def say(line: str) -> None:
    """Tell the person who waits; data goes to stdout, words to stderr."""
    print(line, file=sys.stderr, flush=True)
