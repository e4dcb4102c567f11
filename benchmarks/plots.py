"""The report's plots, as SVG. Needs matplotlib (the extra `bench`); the same report gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "pinfold", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

from matplotlib import pyplot  # noqa: E402

OURS, THEIRS = "#1f6f8b", "#b8bfc6"
Rows = Sequence[dict[str, Any]]


def draw(report: dict[str, Any], folder: Path) -> dict[str, list[str]]:
    """Write the plots that the report has rows for; return their file names by the title of the section they belong to."""
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, list[str]] = {}
    for section in report["sections"]:
        rows = [row for row in section["rows"] if row.get("runs")]
        for name, plot in PLOTS.get(section["title"], {}).items():
            figure = plot(rows)
            if figure is not None:
                figure.savefig(folder / name, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
                pyplot.close(figure)
                made.setdefault(section["title"], []).append(name)
    return made


def bars(title: str, unit: str, pick: Callable[[dict[str, Any]], bool], log: bool = False) -> Callable[[Rows], Any]:
    """Return what draws the medians of the picked rows as bars, with the spread as a line."""

    def plot(rows: Rows) -> Any:
        chosen = [row for row in rows if pick(row)]
        if not chosen:
            return None
        figure, axes = pyplot.subplots(figsize=(7, 0.4 + 0.32 * len(chosen)))
        several = len({row["bench"] for row in chosen}) > 1
        names = [f"{row['bench']}: {row['side']}" if several else row["side"] for row in chosen]
        middles = [row["median"] for row in chosen]
        errors = [[m - row["low"] for m, row in zip(middles, chosen, strict=True)], [row["high"] - m for m, row in zip(middles, chosen, strict=True)]]
        colours = [OURS if "pinfold" in row["side"] else THEIRS for row in chosen]
        places = range(len(chosen))
        axes.barh(places, middles, color=colours, xerr=errors, error_kw={"lw": 0.8})
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        if log and min(middles) > 0:
            axes.set_xscale("log")
        axes.set_xlabel(unit)
        axes.set_title(title, loc="left")
        return figure

    return plot


def lines(title: str, y: str, pick: Callable[[dict[str, Any]], tuple[str, float] | None]) -> Callable[[Rows], Any]:
    """Return what draws medians over sizes, both logarithmic. pick: a row's line and size, None where it is not one of these."""

    def plot(rows: Rows) -> Any:
        series: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if (found := pick(row)) is not None and row["median"] > 0:
                series.setdefault(found[0], []).append((found[1], row["median"]))
        series = {name: points for name, points in series.items() if len(points) > 1}
        if not series:
            return None
        figure, axes = pyplot.subplots(figsize=(7, 3.6))
        for name, points in series.items():
            axes.plot(*zip(*sorted(points), strict=True), marker="o", ms=3.5, label=name)
        axes.set(xscale="log", yscale="log", xlabel="size", ylabel=y)
        axes.set_title(title, loc="left")
        axes.legend(frameon=False)
        axes.grid(alpha=0.25)
        return figure

    return plot


def _sized(prefix: str, what: str = "") -> Callable[[dict[str, Any]], tuple[str, float] | None]:
    """Return a pick of rows named `prefix, 10,000 …`: a line a side."""

    def pick(row: dict[str, Any]) -> tuple[str, float] | None:
        if not row["bench"].startswith(prefix):
            return None
        digits = row["bench"].removeprefix(prefix).split()[0].replace(",", "")
        return (f"{what}{row['side']}", float(digits)) if digits.isdigit() else None

    return pick


def _grown(row: dict[str, Any]) -> tuple[str, float] | None:
    if row["bench"].startswith("growth, ") and row["unit"] == "us":
        return row["bench"].removeprefix("growth, "), float(row["side"].replace(",", ""))
    return None


def _recall(rows: Rows) -> Any:
    """recall@10 by set: a group a set, a bar a side."""
    cells = {
        (row["side"], row["bench"].removeprefix("recall ")): row["median"] for row in rows if row["unit"] == "recall@10" and row["bench"].startswith("recall ")
    }
    if not cells:
        return None
    sides, sets = list(dict.fromkeys(side for side, _ in cells)), list(dict.fromkeys(name for _, name in cells))
    figure, axes = pyplot.subplots(figsize=(9, 3.8))
    width = 0.85 / len(sides)
    greys = iter(f"{0.35 + 0.5 * number / max(1, len(sides)):.2f}" for number in range(len(sides)))
    blues = iter(("#1f6f8b", "#5aa9c4", "#0b3c4d"))
    for number, side in enumerate(sides):
        colour = next(blues) if side.startswith("pinfold") else next(greys)
        axes.bar([place + number * width for place in range(len(sets))], [cells.get((side, name), 0) for name in sets], width, label=side, color=colour)
    axes.set_xticks([place + 0.42 for place in range(len(sets))], [name.replace(" mean of the sets", "").replace("mean of the sets", "mean") for name in sets])
    axes.set_ylabel("recall@10")
    axes.set_title("Share of the relevant documents among the first ten", loc="left")
    axes.legend(frameon=False, ncols=2, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.1))
    return figure


PLOTS: dict[str, dict[str, Callable[[Rows], Any]]] = {
    "Silo and promises": {"silo.svg": bars("A hit, and a write", "us (logarithmic)", lambda row: row["bench"] in ("peek hit", "set new"), log=True)},
    "Single flight": {
        "stampede.svg": bars("Executions in a stampede (one a key is right)", "executions", lambda row: row["bench"].endswith(": executions"), log=True),
        "flight.svg": bars("A hit on what processes share", "us (logarithmic)", lambda row: row["bench"] == "shared hit", log=True),
    },
    "Graph": {"graph.svg": lines("Nodes a second, by size of the batch", "nodes/s", _sized("nodes, "))},
    "Accuracy and tokens": {
        "tokens.svg": bars("Tokens of tools/list", "tokens (o200k)", lambda row: row["bench"] == "tokens of tools/list"),
        "accuracy.svg": bars("Needed rows shown, 200 questions", "share", lambda row: row["bench"].startswith("all 200 questions")),
    },
    "Recall": {
        "recall.svg": _recall,
        "recall-ms.svg": bars(
            "Milliseconds a query, one mixed store", "ms (logarithmic)", lambda row: row["bench"] == "recall mixed" and row["unit"] == "ms a query", log=True
        ),
    },
    "Recall by size": {"search.svg": lines("Search p50 by size", "ms", _sized("search p50, "))},
    "MCP and HTTP": {"mcp.svg": bars("Round trip of a read over MCP stdio", "ms", lambda row: row["bench"] == "MCP peek round trip")},
    "Growth": {"growth.svg": lines("Cost of one call by size", "us", _grown)},
}
