"""Runs the command line: in this process with captured binary streams, or as a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinfold.doors.cli import main

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Ran(NamedTuple):
    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class _Stream(io.TextIOWrapper):
    """A standard stream in the encoding of an old console: what is UTF-8 in it was not left to chance."""

    def __init__(self, content: bytes = b"", terminal: bool = False) -> None:
        super().__init__(io.BytesIO(content), encoding="cp1252", errors="strict")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def content(self) -> bytes:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue()


def run(*argv: str, stdin: bytes = b"", terminal: bool = False) -> Ran:
    """Run one command in this process."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = _Stream(terminal=terminal), _Stream()
    sys.stdin, sys.stdout, sys.stderr = _Stream(stdin), out, err
    try:
        status = main(argv)
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return Ran(status, out.content(), err.content().decode())


def isolate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store and a session of the test's own, whatever the developer's environment says."""
    for name in ("PINFOLD_ACTOR", "MEMNET_SESSION", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("PINFOLD_SESSION", "test")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))


def command(*argv: str, python: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, *python, "-m", "pinfold", *argv]


def process(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None, python: tuple[str, ...] = ()) -> Ran:
    """Run one command as a process."""
    done = subprocess.run(command(*argv, python=python), input=stdin, capture_output=True, timeout=60, env={**os.environ, **(env or {})}, check=False)
    return Ran(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
