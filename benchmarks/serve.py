"""`pinfold peek` as whole processes: through the server of its store, and without one, beside the bare interpreter.

Rounds in turns, medians of wall-clock and of processor time (the command's own, not the server's), on compiled sources.
Run: python -m benchmarks.serve [rounds]
"""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pinfold

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
        raise SystemExit(f"{command} ended with {process.returncode}")
    return wall * 1000, (used.ru_utime + used.ru_stime) * 1000


def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return (wall-clock, processor time) in ms of each round, by command. Raises SystemExit where a command fails."""
    source = Path(pinfold.__file__).parent
    compileall.compile_dir(str(source), quiet=2)
    with tempfile.TemporaryDirectory(prefix="pf") as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PINFOLD_", "MEMNET_", "PYTHONDONTWRITE"))}
        env |= {"PINFOLD_STORE": f"sqlite:///{folder}/store.db", "PINFOLD_SESSION": "bench", "XDG_RUNTIME_DIR": folder, "PYTHONPATH": str(source.parent)}
        pinfold_ = [sys.executable, "-c", SCRIPT]
        subprocess.run([*pinfold_, "set", "k", "v" * 200], env=env, check=True, stdout=subprocess.DEVNULL)
        if subprocess.run([*pinfold_, "peek", "k"], env=env, check=True, capture_output=True, text=True).stdout.strip() != "v" * 200:
            raise SystemExit("peek does not answer with what was set")
        subprocess.run([*pinfold_, "serve", "--background"], env=env, check=True, stdout=subprocess.DEVNULL)
        sides = {
            "python -c pass": ([sys.executable, "-c", "pass"], env),
            "python -c 'import msgspec'": ([sys.executable, "-c", "import msgspec"], env),
            "peek, through the server": ([*pinfold_, "peek", "k"], env),
            "peek, through the server, by an older pip's script": ([sys.executable, "-c", f"import re; {SCRIPT}", "peek", "k"], env),
            "peek, in its own process": ([*pinfold_, "peek", "k"], {**env, "PINFOLD_SERVE": "off"}),
            "set, through the server": ([*pinfold_, "set", "k", "v"], env),
            "set, in its own process": ([*pinfold_, "set", "k", "v"], {**env, "PINFOLD_SERVE": "off"}),
        }
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        try:
            for _ in range(rounds):
                for name, (command, surroundings) in sides.items():
                    figures[name].append(once(command, surroundings))
        finally:
            subprocess.run([*pinfold_, "serve", "--stop"], env=env, check=True, stdout=subprocess.DEVNULL)
    return figures


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
