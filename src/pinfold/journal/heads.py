"""What each session's head was when it was last looked at: for backends whose server counts no versions.

A version is a number that moves when the head is not the one this handle left there. A look may serve for `max_stale_ms`, and so
may an append that went through: at that moment nobody had written anything else. Beyond that time there is a new look, or the
server's own error: what is read from RAM is never older than that.
"""

from __future__ import annotations

import threading
import time

import msgspec

from pinfold.entry import GENESIS


class _Head(msgspec.Struct, frozen=True, gc=False):
    hash: bytes
    epoch: int
    at_s: float


class Heads:
    """The heads that one handle knows. Threads may share it."""

    def __init__(self, max_stale_ms: int) -> None:
        self._max_stale_s = max_stale_ms / 1000
        self._known: dict[str, _Head] = {}
        self._lock = threading.Lock()

    def recent(self, session: str) -> int | None:
        """Return the version of a look that is recent enough to serve again, else None."""
        head = self._known.get(session)
        return head.epoch if head is not None and time.monotonic() - head.at_s < self._max_stale_s else None

    def looked(self, session: str, hash: bytes | None, asked_s: float) -> int:
        """Take in a look at the head, None where there is none, asked for at asked_s; return the version."""
        hash = hash or GENESIS
        with self._lock:
            head = self._known.get(session)
            epoch = 0 if head is None else head.epoch if head.hash == hash else head.epoch + 1
            self._known[session] = _Head(hash, epoch, asked_s)
        return epoch

    def appended(self, session: str, after_hash: bytes, hash: bytes, asked_s: float) -> None:
        """Take in an append of this handle, sent at asked_s: it moves no version, unless there was one in between."""
        with self._lock:
            head = self._known.get(session)
            if head is not None and head.hash == after_hash:
                self._known[session] = _Head(hash, head.epoch, asked_s)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
