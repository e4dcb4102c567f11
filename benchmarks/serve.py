"""`pinfold peek` as whole processes: through the server of its store, and without one, beside the bare interpreter.

Rounds in turns, medians of wall-clock and of processor time (the command's own, not the server's), on compiled sources.
Run: python -m benchmarks.serve [rounds]
"""

from __future__ import annotations

import compileall
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pinfold
from benchmarks.harness import WrongAnswer

SCRIPT = "import sys; from pinfold.__main__ import main; sys.exit(main())"
"""What an installed `pinfold` runs. A script that pip wrote before 25.3 imports `re` as well."""


def once(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Return (wall-clock, processor time) of a command in ms."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise WrongAnswer(f"{command} ended with {process.returncode}")
    return wall * 1000, (used.ru_utime + used.ru_stime) * 1000


def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall-clock, processor time) in ms of each round, by command. Raises WrongAnswer where a command does not do its work."""
    source = Path(pinfold.__file__).parent
    compileall.compile_dir(str(source), quiet=2)
    with tempfile.TemporaryDirectory(prefix="pf") as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PINFOLD_", "MEMNET_", "PYTHONDONTWRITE"))}
        env |= {"PINFOLD_STORE": f"sqlite:///{folder}/store.db", "PINFOLD_SESSION": "bench", "XDG_RUNTIME_DIR": folder, "PYTHONPATH": str(source.parent)}
        alone = {**env, "PINFOLD_SERVE": "off"}
        run = [sys.executable, "-c", SCRIPT]
        sides = {
            "python -c pass": ([sys.executable, "-c", "pass"], env),
            "python -c 'import msgspec'": ([sys.executable, "-c", "import msgspec"], env),
            "peek, through the server": ([*run, "peek", "k"], env),
            "peek, through the server, by an older pip's script": ([sys.executable, "-c", f"import re; {SCRIPT}", "peek", "k"], env),
            "peek, in its own process": ([*run, "peek", "k"], alone),
            "set, through the server": ([*run, "set", "through"], env),
            "set, in its own process": ([*run, "set", "alone"], alone),
        }
        told([*run, "set", "k", "v" * 200], env)
        told([*run, "serve", "--background"], env)
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        try:
            for number in range(-1, rounds):  # the first one is looked at, not timed, and so is what the last one left
                for name, (command, surroundings) in sides.items():
                    words = [*command, f"v{number}"] if name.startswith("set") else command
                    if number >= 0:
                        figures[name].append(once(words, surroundings))
                    else:
                        must_tell(name, words, surroundings, "v" * 200 if name.startswith("peek") else None)
                if number in (-1, rounds - 1):
                    for key in ("through", "alone"):
                        must_tell(f"what was set, {key}", [*run, "peek", key], alone, f"v{number}")
            for name, (command, surroundings) in sides.items():
                if name.startswith("peek"):
                    must_tell(name, command, surroundings, "v" * 200)
            did = re.search(r"did +([\d,]+) command", told([*run, "serve", "--status"], env))
            if did is None or int(did[1].replace(",", "")) < 3 * (rounds + 1):
                raise WrongAnswer("whole commands and pinfold serve: the commands did not go through the server")
        finally:
            told([*run, "serve", "--stop"], env)
    return figures


def told(command: list[str], env: dict[str, str]) -> str:
    """Return what a command prints. Raises WrongAnswer where it fails."""
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongAnswer(f"whole commands and pinfold serve: {command} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def must_tell(name: str, command: list[str], env: dict[str, str], wanted: str | None) -> None:
    """Raise WrongAnswer unless a command prints this; None: unless it ends well."""
    found = told(command, env)
    if wanted is not None and found != wanted:
        raise WrongAnswer(f"whole commands and pinfold serve: {name} tells {found!r}")


def main() -> int:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 41
    figures = measure(rounds)
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {rounds} rounds in turns; ms, median (least)")
    print("| | wall-clock | processor |\n|---|---|---|")
    for name, found in figures.items():
        wall, cpu = zip(*found, strict=True)
        print(f"| {name} | {statistics.median(wall):.1f} ({min(wall):.1f}) | {statistics.median(cpu):.1f} ({min(cpu):.1f}) |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
