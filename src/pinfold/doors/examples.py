"""`pinfold examples`: four worked examples, and what a first session needs: a map of kinds, lines to add, a line of each kind.

They are files, so that an agent can read them and a shell can use them: `pinfold examples path` says where.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pinfold.doors.arguments import Parser, UsageError
from pinfold.doors.cli import write, write_json
from pinfold.errors import Broken

WORKED = {
    "coding": "a coding task: what a fix touches, settled step by step",
    "story": "a story world: characters, places, an increment, a fork that is merged",
    "pcb": "a circuit board: parts as pins by locator, a net, a shortest path",
    "dossier": "a research dossier: claims with sources, a budget, only what changed",
}
PARTS = {
    "map": "a map of kinds, for `session open --map-file`",
    "workflow": "lines for that map, for `add --file`",
    "add": "one line of a kind to copy: `add --tag TSK`",
    "path": "where these files are",
    "agent-guide": "as `pinfold guide`",
}


def folder() -> Path:
    """Return the folder of the examples: beside the package where it is installed, in the docs of a checkout."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "examples", package.parents[1] / "docs" / "examples"):
        if place.is_dir():
            return place
    raise Broken("the examples are not installed", code="examples_missing", hint="install pinfold again")


def run_examples(words: Sequence[str]) -> int:
    parser = Parser("examples", "[NAME]", "Worked examples. Without a name: which there are.")
    parser.add_argument("--tag", metavar="KIND", help="of `add`: the kind")
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    if len(bare) > 1:
        parser.error(f"{bare[1]!r} is one word too many")
    name = bare[0] if bare else ""
    text = _text(name, flags.tag)
    write_json({"name": name, "text": text}) if flags.json else write(text)
    return 0


def _text(name: str, tag: str | None) -> str:
    if not name:
        told = {**WORKED, **PARTS}
        return "\n".join(f"pinfold examples {each:<12} {what}" for each, what in told.items()) + "\n"
    if name in WORKED:
        return _read(f"{name}.md")
    if name in ("map", "workflow"):
        return _read(f"{name}.txt")
    if name == "path":
        return "".join(f"{path}\n" for path in sorted(folder().iterdir()))
    if name == "agent-guide":
        from pinfold.doors.guide import GUIDE

        return GUIDE
    if name == "add":
        return _sample(tag)
    raise UsageError(f"there is no example {name!r}", hint=f"one of {', '.join([*WORKED, *PARTS])}")


def _read(name: str) -> str:
    return (folder() / name).read_text(encoding="utf-8")


def _sample(tag: str | None) -> str:
    """Return the workflow's lines, or its first line of a kind; EDG and LAW mean edges and laws, as they did in MemNet."""
    lines = [line for line in _read("workflow.txt").splitlines() if line.startswith(("+", "LAW"))]
    if tag is None:
        firsts = {_kind(line): line for line in reversed(lines)}
        return "".join(f"{line}\n" for line in reversed(firsts.values()))
    kind = tag.upper()
    found = next((line for line in lines if _kind(line) == kind), None)
    return f"{found or f'+ {kind} [NEW] ; key=value'}\n"


def _kind(line: str) -> str:
    return "LAW" if line.startswith("LAW") else "EDG" if "-->" in line else line.split()[1]
