"""How far a long command is, for people: a bar on a terminal's stderr; in pipes, logs and on dumb terminals nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pinfold import caller

Told = Callable[[int, int], None]
"""(done, total)."""


@contextmanager
def progress(what: str) -> Iterator[Told]:
    """Return what is to be told how far it is. The bar is gone at the end."""
    err = sys.stderr if caller.current() is None else None
    if err is None or not err.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda done, total: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ModuleNotFoundError:
        yield from _plain(what, err)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=err), transient=True) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


def _plain(what: str, err: Any) -> Iterator[Told]:
    def told(done: int, total: int) -> None:
        filled = 30 * done // max(total, 1)
        err.write(f"\r{what} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}")
        err.flush()

    try:
        yield told
    finally:
        err.write("\r\x1b[K")
        err.flush()
