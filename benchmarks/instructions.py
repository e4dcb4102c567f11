"""Machine instructions: what a clock on a shared machine cannot tell. Counted by callgrind, where valgrind is installed.

A process with more calls less one with fewer, by the calls between: what starting and filling take falls out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, WrongAnswer
from benchmarks.silo import Bench
from pinfold import Memory, Session

NODES = 1_000
FEW = 20
OPERATIONS = {"peek hit": ("memory://", 20_020), "set": ("sqlite", 2_020), "one-line write": ("sqlite", 520), "pin map": ("memory://", 120)}
"""Name -> where it is done, and how often in the longer run."""


def work(name: str, side: str, calls: int) -> None:
    """Do one operation so often in an empty store, memory:// or sqlite, and see that it was done. Raises WrongAnswer."""
    with tempfile.TemporaryDirectory() as folder, Memory(f"sqlite:///{folder}/bench.db" if side == "sqlite" else side, background=False) as memory:
        WORKS[name](memory.session("bench"), calls)


def _peek(session: Session, calls: int) -> None:
    session.set("k", "v")
    for _ in range(calls):
        found = session.peek("k")
    if getattr(found, "value", None) != "v":
        raise WrongAnswer("peek hit: the value is not there")


def _set(session: Session, calls: int) -> None:
    for number in range(calls):
        session.set("k", number)
    if getattr(session.peek("k"), "value", None) != calls - 1:
        raise WrongAnswer("set: the last value is not there")


def _fill(session: Session) -> None:
    session.mutate("\n".join(f"+ TSK [T{n}] ; goal=goal {n}" for n in range(NODES)))
    session.mutate("\n".join(f"+ [T{n}] --(next)--> [T{(n * 7 + 1) % NODES}]" for n in range(NODES)))


def _write(session: Session, calls: int) -> None:
    _fill(session)
    for number in range(calls):
        session.mutate(f"~ [T{number % NODES}] ; mark={number}")
    if not any(f"mark={calls - 1}" in item.line for item in session.get(f"T{(calls - 1) % NODES}").items):
        raise WrongAnswer("one-line write: the last mark is not there")


def _pin_map(session: Session, calls: int) -> None:
    _fill(session)
    for number in range(calls):
        shown = session.pin_map(f"T{number}")
    if f"[T{calls - 1}]" not in getattr(shown, "text", ""):
        raise WrongAnswer("pin map: its anchor is not shown")


WORKS: dict[str, Callable[[Session, int], None]] = {"peek hit": _peek, "set": _set, "one-line write": _write, "pin map": _pin_map}


def count(folder: Path, arguments: list[str], tells: str = "", **environ: str) -> int:
    """Return the instructions of a Python process, from its start to its end. Raises WrongAnswer where it fails or tells something else.

    It runs once without being counted: that compiles what it imports, and makes its store.
    """
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": str(folder / "compiled"), **environ}
    environment["PYTHONPATH"] = os.pathsep.join([str(root), *(path for path in sys.path if path)])
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    told = Path(tempfile.mkstemp(dir=folder, suffix=".log")[1])
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={told}"]
    options: dict[str, Any] = {"env": environment, "cwd": folder, "capture_output": True, "text": True, "check": False}
    for command in ([sys.executable, *arguments], [*valgrind, sys.executable, *arguments]):
        done = subprocess.run(command, **options)
        if done.returncode or done.stdout.strip() != tells:
            raise WrongAnswer(f"instructions of {arguments}: {done.stdout.strip()[-500:]} {done.stderr.strip()[-500:]}")
    found = re.search(r"Collected : (\d+)", told.read_text("utf-8"))
    if found is None:
        raise WrongAnswer(f"instructions of {arguments}: none were counted")
    return int(found[1])


def instructions(bench: Bench) -> None:
    """Machine instructions of an operation and of a whole command, by callgrind: exact where clocks are not."""
    if shutil.which("valgrind") is None:
        bench.table.note("instructions", "left out: there is no valgrind here")
        return
    bench.table.tell("instructions")
    environ = {"PINFOLD_STORE": f"sqlite:///{bench.folder}/peek.db", "PINFOLD_SESSION": "bench"}
    with Memory(environ["PINFOLD_STORE"], background=False) as memory:
        memory.session("bench").set("k", "v")
    commands = {
        "python -c pass": (["-c", "pass"], ""),
        "python -m pinfold peek": (["-m", "pinfold", "peek", "k"], "v"),
    }
    for name, (arguments, tells) in commands.items():
        bench.table.rows.append(Row("instructions, whole process", name, "million", [count(bench.folder, arguments, tells, **environ) / 1e6]))
    for name, (side, many) in OPERATIONS.items():
        calls = FEW + (many - FEW) // (50 if bench.small else 1)
        spent = []
        for number in (FEW, calls):
            spent.append(count(bench.folder, ["-c", f"from benchmarks.instructions import work; work({name!r}, {side!r}, {number})"]))
        bench.table.rows.append(Row(f"instructions, {name}", f"pinfold {side}", "thousand", [(spent[1] - spent[0]) / (calls - FEW) / 1e3]))


BENCHES: dict[str, Callable[[Bench], None]] = {"instructions": instructions}
