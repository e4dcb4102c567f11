"""Runs the command line: in this process with captured binary streams, or as a process of its own.

Every test of it runs twice: on a store that nobody serves, and on one that a server in another process, with a folder and an
environment of its own, keeps warm. What a command prints must not tell the two apart.
"""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinfold.doors.cli import main
from pinfold.doors.client import forward

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
        status, carried = forward(list(argv))
        status = main(argv, carried) if status is None else status
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
    return Ran(status, out.content(), err.content().decode())


def isolate(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store and a session of the test's own, whatever the developer's environment says; served, where the parameter says so.

    Yields "alone" or "served".
    """
    for name in ("PINFOLD_ACTOR", "MEMNET_SESSION", "PYTHONIOENCODING", "PINFOLD_SERVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("PINFOLD_SESSION", "test")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_folder())
    how = getattr(request, "param", "alone")
    if how == "alone":
        yield how
    else:
        with serving() as server:
            yield how
            assert server.is_alive()


def twice() -> Any:
    """Return the fixture that runs each test of a module without a server and with one: `own_store = twice()`."""
    return pytest.fixture(autouse=True, params=["alone", "served"])(isolate)


@functools.cache
def runtime_folder() -> str:
    """A short path: that of a socket has a hundred bytes at most."""
    import atexit

    folder = tempfile.mkdtemp(prefix="pf")
    atexit.register(shutil.rmtree, folder, True)
    return folder


@functools.cache
def _forkserver() -> Any:
    """A process that has loaded all a server needs, and forks one in a few milliseconds."""
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "serve_child"])  # a child runs the main module again: pytest
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{SOURCE}{os.pathsep}{Path(__file__).parent}")
        forkserver.ensure_running()
    return context


@contextmanager
def serving(*options: str) -> Iterator[multiprocessing.process.BaseProcess]:
    """Serve $PINFOLD_STORE from another process, in the root folder."""
    import serve_child

    reading, writing = _forkserver().Pipe(duplex=False)
    process = _forkserver().Process(target=serve_child.serve, args=(writing, dict(os.environ), options), daemon=True)
    process.start()
    writing.close()
    assert reading.poll(60) and reading.recv()["pid"] == process.pid
    try:
        yield process
    finally:
        process.kill()
        process.join()
        reading.close()


def command(*argv: str, python: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, *python, "-m", "pinfold", *argv]


def process(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None, python: tuple[str, ...] = ()) -> Ran:
    """Run one command as a process."""
    done = subprocess.run(command(*argv, python=python), input=stdin, capture_output=True, timeout=60, env={**os.environ, **(env or {})}, check=False)
    return Ran(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
