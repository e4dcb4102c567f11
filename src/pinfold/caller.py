"""Whose command this is: its folder, its environment, its streams.

A command line works in a process of its own, and all of these are the process's. A server runs commands for others, each in
a thread with the Caller that gave it: whatever depends on folder, environment or terminal asks here, never the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Elsewhere(BaseException):
    """This command belongs into its caller's own process. Nothing was done yet."""


class Caller:
    """Somebody else's surroundings. columns: the width of the terminal, 0 where it is not known."""

    def __init__(self, folder: str, environ: Mapping[str, str], *, stdin: Any, stdout: Any, stderr: Any, columns: int = 0) -> None:
        self.folder = folder
        self.environ = environ
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.columns = columns

    def memory(self, url: str | None, actor: str | None) -> Any:
        """Return the store a command of this caller works on; from here on it may have been done.

        Raises Elsewhere where that is another store than this process serves, or the caller is gone.
        """
        raise Elsewhere


_current: ContextVar[Caller | None] = ContextVar("pinfold_caller", default=None)


def current() -> Caller | None:
    """Return the caller this thread works for, None where that is the process itself."""
    return _current.get()


@contextmanager
def working_for(caller: Caller) -> Iterator[None]:
    """Work for somebody else inside this block."""
    token = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(token)


def current_folder() -> str:
    """Return the folder that relative paths start from. Raises FileNotFoundError where the process's own is gone."""
    caller = _current.get()
    return os.getcwd() if caller is None else caller.folder


def environ() -> Mapping[str, str]:
    caller = _current.get()
    return os.environ if caller is None else caller.environ


def stdin() -> Any:
    caller = _current.get()
    return sys.stdin if caller is None else caller.stdin


def stdout() -> Any:
    caller = _current.get()
    return sys.stdout if caller is None else caller.stdout


def stderr() -> Any:
    caller = _current.get()
    return sys.stderr if caller is None else caller.stderr


def columns() -> int:
    """Return the width of the terminal: $COLUMNS, else as it is, else 80."""
    caller = _current.get()
    if caller is None:
        import shutil

        return shutil.get_terminal_size().columns
    given = caller.environ.get("COLUMNS", "")
    return (int(given) if given.isdecimal() else 0) or caller.columns or 80
