"""Renewing leases in the background: one thread for all claims of a store, since their renewals queue at the same store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from pinfold.errors import PinfoldError, Unavailable


class Renewer:
    """Keeps claims alive while their work runs: one thread, asleep until the first claim that lives long enough to need it."""

    def __init__(self) -> None:
        self._due: dict[object, tuple[float, float, Callable[[], Any]]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def add(self, every_s: float, renew: Callable[[], Any], first_s: float | None = None) -> object:
        """Call renew after first_s and then every every_s seconds until `remove`; a refusal ends it (the owner learns at fulfil)."""
        ticket, due = object(), time.monotonic() + (every_s if first_s is None else first_s)
        with self._changed:
            self._due[ticket] = (due, every_s, renew)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pinfold-renew", daemon=True)
                self._wakes_at = 0.0
                self._thread.start()
            elif due < self._wakes_at:  # most claims are settled long before: do not wake the thread for each
                self._changed.notify()
        return ticket

    def remove(self, ticket: object) -> None:
        with self._changed:
            self._due.pop(ticket, None)

    def close(self) -> None:
        with self._changed:
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while ready := self._next():
            for ticket, every_s, renew in ready:
                try:
                    renew()
                except Unavailable:
                    every_s = min(every_s, 1.0)  # the lease still runs: try again before it ends
                except PinfoldError:
                    self.remove(ticket)
                with self._changed:
                    if ticket in self._due:
                        self._due[ticket] = (time.monotonic() + every_s, every_s, renew)

    def _next(self) -> list[tuple[object, float, Callable[[], Any]]]:
        """Return what is due, waiting for it; empty when nothing was left for a second, and the thread may go."""
        with self._changed:
            while True:
                idle = not self._due
                now = time.monotonic()
                self._wakes_at = min((due[0] for due in self._due.values()), default=now + 1.0)
                if self._wakes_at > now:
                    self._changed.wait(self._wakes_at - now)
                now = time.monotonic()
                ready = [(ticket, every_s, renew) for ticket, (due, every_s, renew) in self._due.items() if due <= now]
                if ready:
                    return ready
                if idle and not self._due:
                    self._thread = None
                    return []
