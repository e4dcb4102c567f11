"""Fairness for backends that compare and set: who lost PATIENCE times in a turn gets the next place reserved at the server.

The first conflict only means being behind, the next ones cost little. One more reserves: for RESERVED_MS, or until the turn ends, the server refuses
every other writer of the session, who wait in `append` and then find themselves behind. A writer that dies with a reservation
holds others up for that long, once. `append` is right without all this: it keeps a turn from losing time after time.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from types import TracebackType

from pinfold import limits
from pinfold.errors import Busy

RESERVED_MS = 1500
"""Ample for a turn that knows what it missed, even where ten processes share a core (250 ms was not); those who wait for one
that was killed with its reservation wait this long, once."""
PATIENCE = 5
"""Of the attempts of a turn (`TURN_ATTEMPTS`). Reserving at once is fairer and, with two round trips an append, several times slower."""
_FIRST_S, _LONGEST_S = 0.3e-3, 4e-3


class Contention:
    """Who of this process lost a compare-and-append, by session and thread, and what is reserved for it."""

    def __init__(self) -> None:
        self._lost: dict[tuple[str, int], int] = {}
        self._reserved: set[tuple[str, int]] = set()
        self._token = os.urandom(8)

    def token(self) -> bytes:
        """Return what reservations of this thread are known by."""
        return self._token + threading.get_ident().to_bytes(8, "big")

    def reserves(self, session: str) -> int:
        """Return 1 where another conflict in this turn is to reserve the next place."""
        return 1 if self._lost and self._lost.get((session, threading.get_ident()), 0) >= PATIENCE else 0

    def won(self, session: str) -> None:
        """Note that an append went through, which ends a reservation too."""
        if self._lost:
            key = session, threading.get_ident()
            self._lost.pop(key, None)
            self._reserved.discard(key)

    def lost(self, session: str, reserved: bool) -> None:
        """Note a conflict, and whether its answer came with a reservation."""
        key = session, threading.get_ident()
        self._lost[key] = self._lost.get(key, 0) + 1
        if reserved:
            self._reserved.add(key)

    def turn(self, session: str, release: Callable[[str, bytes], None]) -> Turn:
        """Return a context for one turn; release is called at its end where a reservation was not used."""
        return Turn(self, session, release)


class Turn:
    """One writer's turn at a session: forgets its conflicts at the end."""

    __slots__ = ("_contention", "_release", "_session")

    def __init__(self, contention: Contention, session: str, release: Callable[[str, bytes], None]) -> None:
        self._contention, self._session, self._release = contention, session, release

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        known = self._contention
        if known._lost:
            key = self._session, threading.get_ident()
            known._lost.pop(key, None)
            if key in known._reserved:
                known._reserved.discard(key)
                self._release(self._session, known.token())


class Queue:
    """The wait of one append while another writer's place is reserved: bounded, with growing pauses."""

    __slots__ = ("_pause_s", "_session", "_until_s")

    def __init__(self, session: str) -> None:
        self._session = session
        self._until_s = 0.0
        self._pause_s = _FIRST_S

    def wait(self) -> None:
        """Wait a little. Raises Busy after LOCK_WAIT_S."""
        now_s = time.monotonic()
        self._until_s = self._until_s or now_s + limits.LOCK_WAIT_S
        if now_s >= self._until_s:
            raise Busy(f"session {self._session!r}: other writers were first for {limits.LOCK_WAIT_S:g} s", hint="try again", waited_s=limits.LOCK_WAIT_S)
        time.sleep(self._pause_s * (0.5 + random.random()))
        self._pause_s = min(self._pause_s * 1.3, _LONGEST_S)
