"""Fairness for backends without locks: who loses a compare-and-append again and again steps back for a random, growing time."""

from __future__ import annotations

import random
import threading
import time

_FIRST_S, _LONGEST_S = 200e-6, 40e-3
"""The first is about one append; the longest lets a dozen writers by. Sixteen attempts thus spread over half a second."""


class Contention:
    """Lost appends in a row, by session and thread."""

    def __init__(self) -> None:
        self._lost: dict[tuple[str, int], int] = {}

    def won(self, session: str) -> None:
        """Note that an append went through."""
        if self._lost:
            self._lost.pop((session, threading.get_ident()), None)

    def lost(self, session: str) -> bool:
        """Note a conflict; step back unless it is the first, which only means being behind. Return whether time went by."""
        key = session, threading.get_ident()
        if len(self._lost) > 4_096:  # threads that ended without a win
            self._lost.clear()
        times = self._lost[key] = self._lost.get(key, 0) + 1
        if times < 2:
            return False
        time.sleep(random.random() * min(_LONGEST_S, _FIRST_S * 2 ** min(times, 10)))
        return True
