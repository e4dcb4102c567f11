"""A lock between processes, held by a file. SQLite's own busy wait is unfair (seconds for an unlucky writer);
an flock around the transaction keeps the worst wait in milliseconds.

Where the platform has no flock the lock is a no-op and SQLite's own lock, with its busy wait, is what remains.
"""

from __future__ import annotations

import os
import time

import msgspec

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FIRST_S, _LONGEST_S = 200e-6, 2e-3
"""Polling, not blocking: a blocking flock cannot be bounded, and was no faster among 8 processes on 2 cores."""


def _random() -> float:
    import random

    return random.random()


def has_flock() -> bool:
    """Return whether this platform has flock; where it has not, SQLite's own busy wait is all that writers queue by."""
    return fcntl is not None


class FileLock:
    """An exclusive lock on path between processes; within a process the caller serialises."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self.waited = False
        self.given_up = False
        """Set by another thread: whoever waits here stops waiting."""

    def acquire(self, timeout_s: float) -> bool:
        """Return True once the lock is held, False where timeout_s ran out first. `waited` tells whether somebody else held it."""
        self.waited = False
        if fcntl is None:
            return True
        self._open()
        pause_s, until = _FIRST_S, 0.0
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.waited = True
                now = time.monotonic()
                until = until or now + timeout_s
                if now >= until or self.given_up:
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


class Holder(msgspec.Struct, frozen=True):
    """Whether a lock is held now (None: that cannot be told), and by which processes, where the system says."""

    held: bool | None
    pids: list[int]


def lock_holder(path: str, listing: str = "/proc/locks") -> Holder:
    """Return who holds the lock on path, without waiting for it or making its file."""
    if fcntl is None:
        return Holder(None, [])
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return Holder(False, [])
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Holder(True, _holders(os.fstat(file).st_ino, listing))
    except OSError:
        return Holder(None, [])
    finally:
        os.close(file)
    return Holder(False, [])


def _holders(inode: int, listing: str) -> list[int]:
    """Return the processes that Linux says hold a lock on this inode; none elsewhere."""
    try:
        with open(listing, encoding="ascii") as rows:
            fields = [line.split() for line in rows]
    except OSError:
        return []
    return sorted({int(row[4]) for row in fields if len(row) > 5 and row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode)})
