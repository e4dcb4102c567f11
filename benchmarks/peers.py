"""Peers, each in an environment of its own, at an exact version from PyPI; measured by a small script inside it.

A peer's script answers requests on stdin, one JSON object a line: {"op": name, ...} -> {"result": ...}. So a peer's
rounds alternate with ours in one run, and its process, like ours, is warm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("PINFOLD_PEERS") or ROOT / ".peers")

PMLL = ("pmll-memory-mcp", "2.0.4")
MEMNET = ("memnet-llm", "0.3.2")


class PeerMissing(Exception):
    """The peer cannot be installed or run here: its rows are left out, and the table says so."""


def install(name: str, version: str, cache: Path = CACHE) -> Path:
    """Return the Python of an environment that has exactly this version; made on first use. Raises PeerMissing."""
    home = cache / f"{name}-{version}"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = home / ".installed"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{name}=={version}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PeerMissing(f"{name}=={version} could not be installed: {last}")
        done.touch()
    return python


class Peer:
    """A peer's process. `ask` sends one request and returns its result. Raises PeerMissing where the script fails."""

    def __init__(self, package: tuple[str, str], script: str, folder: str, cache: Path = CACHE) -> None:
        python = install(*package, cache)
        self.name = " ".join(package)
        environment = {**os.environ, "PYTHONPATH": str(ROOT.parent), "HOME": folder, "XDG_DATA_HOME": folder}  # nothing outside the run's own folder
        self._process = subprocess.Popen(
            [str(python), str(ROOT / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment, cwd=folder
        )

    def ask(self, op: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError as error:
            raise PeerMissing(f"{self.name} stopped: {error}") from error
        if not line:
            raise PeerMissing(f"{self.name} stopped at {op}")
        return json.loads(line)["result"]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(operations: dict[str, Any]) -> None:
    """Answer requests on stdin until it closes: what a peer's script calls. The peer's own prints go to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        result = operations[request.pop("op")](**request)
        print(json.dumps({"result": result}), file=answers, flush=True)
