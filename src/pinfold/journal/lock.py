"""A lock between processes, held by a file. SQLite's own busy wait is unfair (seconds for an unlucky writer);
an flock around the transaction keeps the worst wait in milliseconds.

Where the platform has no flock the lock is a no-op and SQLite's own lock, with its busy wait, is what remains.
"""

from __future__ import annotations

import os
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FIRST_S, _LONGEST_S = 50e-6, 1e-3
"""Polling, not blocking: a blocking flock cannot be bounded, and was no faster among 8 processes on 2 cores."""


def _random() -> float:
    import random

    return random.random()


class FileLock:
    """An exclusive lock on path between processes; within a process the caller serialises."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def acquire(self, timeout_s: float) -> bool:
        """Return True once the lock is held, False where timeout_s ran out first."""
        if fcntl is None:
            return True
        self._open()
        pause_s, until = _FIRST_S, 0.0
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now = time.monotonic()
                until = until or now + timeout_s
                if now >= until:
                    return False
                time.sleep(pause_s * (0.5 + _random()))  # spreads the pollers
                pause_s = min(pause_s * 1.5, _LONGEST_S)
            else:
                return True

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        return self._fd

    def mark(self, made: bool) -> None:
        """Note in the lock's file whether the file it guards was made: the one witness left where that file is emptied."""
        fd = self._open()
        os.ftruncate(fd, 0)
        if made:
            os.write(fd, b"made\n")
            os.lseek(fd, 0, os.SEEK_SET)

    def marked(self) -> bool:
        """Return what `mark` noted last, in any process."""
        return os.fstat(self._open()).st_size > 0

    def release(self) -> None:
        """Give the lock back."""
        if fcntl is not None and self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file. In a forked child this leaves the parent's lock alone: it belongs to the open file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
