"""python -m benchmarks report [--quick] [--data DIR] [--out DIR]: every bench in one run, as JSON, a page and plots.

Each section runs in a process of its own with a bound on its time, so that one that hangs or fails costs its own rows only,
and the page says which. A full run stays under 40 minutes on two cores, the quick one under three.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import benchmarks.harness as harness
import pinfold
from benchmarks import peers
from benchmarks.harness import Row, figure
from benchmarks.recall_sets import DATA, files
from benchmarks.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[1]
FULL_S, QUICK_S = 39 * 60, 170
LEFT_FOR_PROFILES_S = 60


@dataclass(frozen=True)
class Section:
    """benches: what is run, in one process. quick: what of it the quick form runs. within_s, quick_s: the most they may take."""

    title: str
    words: str
    benches: tuple[str, ...]
    within_s: int
    quick: tuple[str, ...] = ()
    quick_s: int = 0
    repeats: int = 5


SECTIONS = (
    Section("Silo and promises", "Beside raw SQLite and PMLL where they do the same.", ("peek", "set", "full", "claim", "once", "durable", "reopen"), 240,
            ("peek", "set", "once", "durable"), 25),
    Section("Many processes", "Eight processes claim the same keys: executions are counted by a log.", ("race",), 120, ("race",), 20, 3),
    Section("Single flight", "Beside the libraries people use for it. A side whose callers do not all get the right value is refused; "
            "executions are figures, since some promise less.", ("flight",), 180, ("flight",), 45),
    Section("Whole commands", "From nothing to the exit.", ("command", "pinmap", "socket"), 120, ("command",), 10, 9),
    Section("Graph", "Beside MemNet, which keeps it in RAM.", ("rates", "update", "reads", "opening", "size", "shape", "newest"), 720, ("shape",), 15, 3),
    Section("Accuracy and tokens", "200 questions and a task of twenty turns over sessions of real text; a scripted task over MCP.",
            ("budget", "answers", "listing"), 180, ("answers",), 15),
    Section("Honest miss", "Through real sessions: `resolve_context` on answerable and on foreign queries.", ("miss",), 240),
    Section("Recall by size", "Synthetic memories of 24 words, through sessions on SQLite.", ("search", "remember", "first-search"), 330),
    Section("MCP and HTTP", "Beside bare servers on the same SDK.", ("mcp", "http"), 150, ("mcp",), 40),
    Section("Stores", "LangGraph's stores beside the silo.", ("langgraph",), 60),
    Section("Other journals", "An append beside the raw server doing the same.", ("fleet",), 150),
    Section("Growth", "Cost by size. An exponent of 0 is O(1), of 1 linear.", ("growth", "stale", "inputs"), 150),
    Section("Instructions", "Counted by callgrind: the same on a busy machine as on a quiet one.", ("instructions",), 200),
    Section("Recall", "The same files, the same queries, the same run. `> 20 s`: the side's time for that set was over.", ("recall",), 1200, ("recall",), 60),
    Section("A million rows", "Last, since a slow machine has no time for it.", ("search-million", "reads-million"), 720, repeats=3),
)  # fmt: skip


def run_section(section: Section, names: Sequence[str], within_s: float, quick: bool) -> tuple[list[dict[str, Any]], str]:
    """Return a section's rows, and why some are missing."""
    with tempfile.TemporaryDirectory(prefix="pinfold-report-") as folder:
        os.chmod(folder, 0o711)  # a PostgreSQL that root starts runs as another user, and works below
        lines = Path(folder) / "rows.jsonl"
        command = [sys.executable, "-m", "benchmarks", *names, "--lines", str(lines), "--repeats", str(3 if quick else section.repeats)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(os.path.abspath(p) for p in sys.path if p)]), "TMPDIR": folder}
        process = subprocess.Popen([*command, *(["--quick"] if quick else [])], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        trouble = ""
        try:
            if process.wait(within_s):
                trouble = f"ended with {process.returncode}: what follows the rows below was not measured"
        except subprocess.TimeoutExpired:
            trouble = f"stopped after {within_s:.0f} s: what follows the rows below was not measured"
        finally:
            _end(process)
        rows = [json.loads(line) for line in lines.read_text("utf-8").splitlines()] if lines.exists() else []
    return rows, trouble


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the section's process and those it started: they are its own group."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.kill()
    process.wait()


def row_from(told: dict[str, Any]) -> Row:
    return Row(told["bench"], told["side"], told["unit"], told.get("runs", []), told["ratio"], told.get("target", ""), told["note"])


def versions() -> dict[str, str]:
    """Return the exact versions of the peers."""
    named = (peers.PMLL, peers.PMLL_2_0_2, peers.MEMNET, peers.MEMNET_NEWEST, peers.BM25S, peers.MINILM, peers.MEMORY_SERVER, peers.LANGGRAPH,
             peers.CASHEWS, peers.ASYNC_LRU, peers.DISKCACHE, peers.DOGPILE)  # fmt: skip
    out: dict[str, str] = {}
    for name, version in named:
        out[name] = f"{out[name]} and {version}" if name in out else version
    return out


def judged(rows: Sequence[Row], quick: bool, until_s: float) -> list[dict[str, Any]]:
    """Return every target with its figure, whether it is met, and for a miss what limits it. A quick run asks a part of the sets, which judges none."""
    from benchmarks.profiles import limits_of

    found: list[dict[str, Any]] = []
    known: dict[str, str] = {}
    for target in TARGETS:
        value = None if quick and target.unit == "recall@10" else target.value(rows)
        met = None if value is None else target.is_met(value)
        limits = ""
        if met is False and target.profile and not quick:
            if target.profile not in known and time.monotonic() < until_s:
                harness.say(f"profile: {target.profile}")
                known[target.profile] = limits_of(target.profile)
            limits = known.get(target.profile, "no time was left to profile it")
        found.append(
            {
                "issue": target.issue,
                "what": target.what,
                "target": str(target),
                "figure": value,
                "met": met,
                "limits": limits,
                "bench": target.bench,
                "side": target.side,
            }
        )
    return found


# --- the page -----------------------------------------------------------------------------------------------------------


def page(report: dict[str, Any], plots: dict[str, list[str]]) -> str:
    """Return the Markdown page of a report."""
    about, targets = report["about"], report["targets"]
    missed = [row for row in targets if row["met"] is False]
    met = [row for row in targets if row["met"]]
    lines = [
        "# Benchmarks",
        "",
        f"Written by `{report['command']}` in {report['took_s'] / 60:.1f} minutes{' (the quick form)' if report['quick'] else ''}; do not edit. Data: "
        "[benchmarks.json](benchmarks.json). How figures are taken, and what was left out, stands at the end.",
        "",
        *(f"* {name}: {value}" for name, value in about.items()),
        f"* peers: {', '.join(f'{name} {version}' for name, version in report['peers'].items())}",
        "",
        "## Targets",
        "",
        f"{len(met)} met, {len(missed)} missed, {len(targets) - len(met) - len(missed)} not measured in this run. A miss is judged by the median; "
        "what limits it is a profile taken in the same run (a function's own time).",
        "",
        "| issue | what | target | figure | met | what limits it |",
        "|--|--|--|--|--|--|",
    ]
    for row in targets:
        shown = "" if row["figure"] is None else figure(row["figure"])
        verdict = "not measured" if row["met"] is None else "yes" if row["met"] else "**no**"
        lines.append(f"| {row['issue']} | {row['what']} | {row['target']} | {shown} | {verdict} | {row['limits']} |")
    for section in report["sections"]:
        rows = [row_from(row) for row in section["rows"]]
        lines += ["", f"## {section['title']}", "", section["words"]]
        if section["trouble"]:
            lines += ["", f"**{section['trouble']}**"]
        lines += [line for plot in plots.get(section["title"], ()) for line in ("", f"![{section['title']}](benchmarks/{plot})")]
        shares = [row for row in rows if row.bench.startswith(("recall ", "typos "))]
        lines += _pivots(shares)
        rest = [row for row in rows if row not in shares]
        if rest:
            lines += ["", *_table(rest)]
    lines += ["", "## How figures are taken", "", *HOW]
    return "\n".join(lines) + "\n"


HOW = (
    "* Sides of one comparison run in turn, A B B A, after a warm-up; a ratio is the median of the ratios within each round.",
    "* A side is checked to give right answers before it is timed and after the last round; one that does nothing ends the run.",
    "* Every peer runs at the exact version above, in an environment of its own that the run makes.",
    "* Slow peers get at most 100 queries and 20 s a set. The official MCP memory server looks for the whole query as a substring: a question finds nothing.",
    "* Targets are printed beside figures and decide nothing: they stand in `benchmarks/targets.py`.",
)


def _table(rows: Sequence[Row]) -> list[str]:
    lines = ["| bench | side | median | lowest–highest | x first | target | note |", "|--|--|--|--|--|--|--|"]
    for row in rows:
        if not row.runs:
            lines.append(f"| {row.bench} | {row.side} | | | | {row.target} | {row.note} |")
            continue
        spread = f"{figure(min(row.runs))}–{figure(max(row.runs))}" if len(row.runs) > 1 else ""
        ratio = "" if row.ratio is None else figure(row.ratio)
        lines.append(f"| {row.bench} | {row.side} | {figure(row.median)} {row.unit} | {spread} | {ratio} | {row.target} | {row.note} |")
    return lines


def _pivots(rows: Sequence[Row]) -> list[str]:
    """Return one table a figure: a line a side, a column a set."""
    lines: list[str] = []
    for what in ("recall", "typos"):
        of = [row for row in rows if row.bench.startswith(what + " ")]
        for unit in ("recall@10", "recall@5", "any@5", "ms a query"):
            cells = {(row.side, row.bench): row for row in of if row.unit == unit}
            if not cells:
                continue
            sets = list(dict.fromkeys(bench for _, bench in cells))
            lines += ["", f"{unit}{', 30 % of long words misspelt' if what == 'typos' else ''}:", ""]
            lines += [f"| | {' | '.join(name.removeprefix(what + ' ') for name in sets)} |", "|--" * (len(sets) + 1) + "|"]
            for side in dict.fromkeys(side for side, _ in cells):
                lines.append(f"| {side} | {' | '.join(_cell(cells.get((side, name)), unit) for name in sets)} |")
    return lines


def _cell(row: Row | None, unit: str) -> str:
    if row is None:
        return ""
    over = row.note.startswith(">")
    shown = "" if not row.runs else figure(row.median) if unit.startswith("ms") else f"{row.median:.3f}"
    limit, _, answered = row.note.partition(": ")
    return f"{shown} ({limit}, {answered.partition(' ')[0]} queries)" if over else shown


def main(arguments: Sequence[str]) -> int:
    """Run everything and write the report. Return 0; 1 where a section had trouble."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks report", description="Every bench in one run: JSON, a Markdown page and plots.")
    parser.add_argument("--quick", action="store_true", help="a part of it in under three minutes")
    parser.add_argument("--data", metavar="DIR", help=f"the recall question sets, *.jsonl (default: ${DATA}, or ../shared/data/recall)")
    parser.add_argument(
        "--out", metavar="DIR", help="where benchmarks.md, benchmarks.json and benchmarks/*.svg go (default: docs; build/bench for the quick form)"
    )
    parser.add_argument("--only", metavar="TITLE", action="append", help="only the sections whose title has this in it")
    parser.add_argument("--render", metavar="FILE", help="write the page and plots of a benchmarks.json again, measuring nothing")
    options = parser.parse_args(arguments)
    out = Path(options.out or (ROOT / "build" / "bench" if options.quick else ROOT / "docs"))
    if options.render:
        write(json.loads(Path(options.render).read_text("utf-8")), out)
        return 0
    if options.data:
        os.environ[DATA] = str(Path(options.data).resolve())
    began = time.monotonic()
    until_s = began + (QUICK_S if options.quick else FULL_S)
    with tempfile.TemporaryDirectory(prefix="pinfold-report-") as folder:
        about = {**harness.machine(folder), "pinfold": pinfold.__version__, "recall sets": ", ".join(path.stem for path in files()) or "none given"}
    sections: list[dict[str, Any]] = []
    for section in SECTIONS:
        names = section.quick if options.quick else section.benches
        if not names or (options.only and not any(word.lower() in section.title.lower() for word in options.only)):
            continue
        left_s = until_s - time.monotonic() - (0 if options.quick else LEFT_FOR_PROFILES_S)
        if left_s < 5:
            sections.append({"title": section.title, "words": section.words, "rows": [], "trouble": "not run: the time of the report was over", "took_s": 0})
            continue
        harness.say(f"== {section.title}")
        start = time.monotonic()
        rows, trouble = run_section(section, names, min(left_s, section.quick_s if options.quick else section.within_s), options.quick)
        sections.append({"title": section.title, "words": section.words, "rows": rows, "trouble": trouble, "took_s": round(time.monotonic() - start, 1)})
    rows_found = [row_from(row) for section in sections for row in section["rows"]]
    targets = judged(rows_found, options.quick, until_s)
    command = "QUICK=1 make bench" if options.quick else "make bench"
    report = {"about": about, "peers": versions(), "command": command, "quick": options.quick, "took_s": round(time.monotonic() - began, 1),
              "targets": targets, "sections": sections}  # fmt: skip
    write(report, out)
    troubled = [section["title"] for section in sections if section["trouble"]]
    harness.say(f"{out / 'benchmarks.md'}: {sum(bool(t['met']) for t in targets)} targets met, {sum(t['met'] is False for t in targets)} missed"
                f"{'; trouble in ' + ', '.join(troubled) if troubled else ''}")  # fmt: skip
    return 1 if troubled else 0


def write(report: dict[str, Any], out: Path) -> None:
    """Write the JSON, the plots and the page."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "benchmarks.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    try:
        from benchmarks.plots import draw

        plots = draw(report, out / "benchmarks")
    except ImportError as error:
        harness.say(f"no plots: {error} (pip install 'pinfold[bench]')")
        plots = {}
    (out / "benchmarks.md").write_text(page(report, plots), encoding="utf-8")


__all__ = ["SECTIONS", "Target", "main", "page", "write"]
