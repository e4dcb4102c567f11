"""What a server counted since it started, as Prometheus reads it. Numbers only: no names of sessions, keys or callers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pinfold import __version__
from pinfold.telemetry import COUNTED, ERROR, measure

if TYPE_CHECKING:
    from pinfold.doors.daemon import Daemon
    from pinfold.memory import Memory

Sample = tuple[str, float]
"""(labels in braces or nothing, value)."""


class Metrics:
    """The counts of one server. daemon: where it also runs commands. requests: HTTP answers by status."""

    def __init__(self, memory: Memory) -> None:
        measure()
        self._memory = memory
        self._began = time.time()
        self.requests: Counter[int] = Counter()
        self.daemon: Daemon | None = None

    def tally(self) -> Counter[str]:
        """Return what was done with sessions by everybody this process serves."""
        tally = self._memory._engine.tally()
        return tally if self.daemon is None else tally + self.daemon.tally()

    def text(self) -> str:
        """Return the page in Prometheus' text format, version 0.0.4."""
        lines: list[str] = []
        for name, kind, told, samples in self._families():
            lines += [f"# HELP pinfold_{name} {told}", f"# TYPE pinfold_{name} {kind}"]
            lines += [f"pinfold_{name}{labels} {value:.15g}" for labels, value in samples]
        return "\n".join(lines) + "\n"

    def _families(self) -> Iterator[tuple[str, str, str, list[Sample]]]:
        yield "info", "gauge", "The version that runs.", [(f'{{version="{__version__}"}}', 1)]
        yield "start_time_seconds", "gauge", "When it started, in Unix time.", [("", self._began)]
        tally = self.tally()
        for name, counted in COUNTED.items():
            yield f"{counted.metric}_total", "counter", counted.told, [("", tally[name] * counted.scale)]
        failed = [(f'{{code="{name.removeprefix(ERROR)}"}}', float(count)) for name, count in sorted(tally.items()) if name.startswith(ERROR)]
        yield "errors_total", "counter", "Requests that were refused or failed, by code.", failed
        replicas = list(self._memory._engine._replicas.values())
        waiting = sum(len(waiters) for replica in replicas for waiters in list(replica._waiters.values()))
        yield "waiting", "gauge", "Who waits now for work in flight.", [("", waiting)]
        commands = self.daemon
        sessions = [('{door="http"}', float(len(replicas)))]
        if commands is not None:
            sessions.append(('{door="command"}', float(commands.sessions())))
        yield "sessions_loaded", "gauge", "Sessions held in memory.", sessions
        if (size := self._store_bytes()) is not None:
            yield "store_bytes", "gauge", "Size of the store's file with its log.", [("", size)]
        yield "http_requests_total", "counter", "HTTP answers by status.", [(f'{{status="{code}"}}', n) for code, n in sorted(self.requests.items())]
        if commands is not None:
            counts = dict(commands.counts)
            yield "commands_total", "counter", "What became of commands, and of those who came.", [(f'{{outcome="{n}"}}', c) for n, c in sorted(counts.items())]
            yield "commands_seconds_total", "counter", "Time spent on commands.", [("", commands.busy_s)]
            yield "commands_under_way", "gauge", "Commands that are being done.", [("", commands.under_way)]

    def _store_bytes(self) -> int | None:
        from pinfold.journal.open import store_bytes

        path: Callable[[], str] | str | None = getattr(self._memory._journal, "path", None)
        return store_bytes(path) if isinstance(path, str) else None
