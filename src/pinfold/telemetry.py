"""What this process does with its stores: counted always, timed and traced where somebody asked for it, before a store is opened.

    measure()       times too: turns, locks, catching up, waits, errors by code
    instrument()    the same, and all of it to OpenTelemetry (extra `otel`: its API alone; the SDK and exporters are the program's);
                    called by the first store opened where PINFOLD_OTEL is set
    totals()        the numbers, for a page of one's own: name -> count, as COUNTED explains them

Who counts are replicas, in plain numbers. Measured ones are of a class of their own, so that the others pay nothing. A session
opened before stays as it is. Attributes name a session and never a key or a value.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from pinfold.engine import Decide, Engine, Replica, Waiter, engines
from pinfold.entry import Record
from pinfold.errors import ConfigurationError, PinfoldError, Refused

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Tracer, TracerProvider


class Counted(msgspec.Struct, frozen=True):
    """One number: its name for metrics, its unit as UCUM has it, what it tells, and what a count is of that unit."""

    metric: str
    unit: str
    told: str
    scale: float = 1


COUNTED = {
    "turns": Counted("turns", "{turn}", "Entries written."),
    "conflicts": Counted("conflicts", "{conflict}", "Turns that another writer was faster than, and that were decided again."),
    "hits": Counted("hits", "{look}", "Looks that found a value or work in flight."),
    "misses": Counted("misses", "{look}", "Looks that found nothing."),
    "joined": Counted("waits_joined", "{wait}", "Waits for work that somebody else was at."),
    "avoided": Counted("executions_avoided", "{execution}", "Executions avoided."),
    "served": Counted("tokens_served", "{token}", "Tokens of the pin maps that were read."),
    "full": Counted("tokens_full", "{token}", "Tokens that dumps of the graph would have been in their place, estimated."),
    "turn_us": Counted("turn_seconds", "s", "Time in turns.", 1e-6),
    "lock_us": Counted("lock_seconds", "s", "Time in turns before the first decision: waiting for locks.", 1e-6),
    "catch_ups": Counted("catch_ups", "{catch-up}", "Times that others had written, at a look or before a decision."),
    "entries_caught_up": Counted("caught_up_entries", "{entry}", "Entries of others applied then."),
    "waits": Counted("waits", "{wait}", "Waits for a key to settle."),
    "wait_us": Counted("wait_seconds", "s", "Time in them.", 1e-6),
}
"""Every number but errors, which are counted as `error.CODE`. From turn_us on only where `measure` was called."""
ERROR = "error."

_lock = threading.Lock()
_totals: Counter[str] = Counter()
_seen: WeakKeyDictionary[Engine, Counter[str]] = WeakKeyDictionary()
_tracer: Tracer | None = None


def totals() -> Counter[str]:
    """Return what this process did with all its stores so far; no number ever falls, also when a store is closed."""
    with _lock:
        for engine in engines():
            tally = engine.tally()
            _totals.update(tally - _seen.get(engine, Counter()))
            _seen[engine] = tally
        return Counter(_totals)


def measure() -> None:
    """Time what stores do whose sessions are opened from now on."""
    Engine.replica_type = MeasuredReplica


def instrument(*, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None) -> None:
    """Measure, and report to OpenTelemetry: spans `pinfold.turn`, `pinfold.catch_up`, `pinfold.wait`, and every number as a metric.

    The providers default to the program's global ones, which may also be set later. Raises ConfigurationError `missing_extra`.
    """
    global _tracer
    if _tracer is not None:
        return
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise ConfigurationError("OpenTelemetry's API is not installed", code="missing_extra", hint="pip install 'pinfold[otel]'") from error
    from pinfold import __version__

    measure()
    _tracer = trace.get_tracer("pinfold", __version__, tracer_provider)
    _report(metrics.get_meter("pinfold", __version__, meter_provider))


def uninstrument() -> None:
    """Open sessions unmeasured again. Numbers that were handed to a meter go on being read by it."""
    global _tracer
    Engine.replica_type, _tracer = Replica, None


def _report(meter: Any) -> None:
    from opentelemetry.metrics import Observation

    def observe(read: Callable[[Counter[str]], list[Observation]]) -> Callable[[CallbackOptions], list[Observation]]:
        return lambda _: read(totals())

    def errors(counts: Counter[str]) -> list[Observation]:
        return [Observation(count, {"error.type": name.removeprefix(ERROR)}) for name, count in counts.items() if name.startswith(ERROR)]

    def hit_ratio(counts: Counter[str]) -> list[Observation]:
        looks = counts["hits"] + counts["misses"]
        return [Observation(counts["hits"] / looks)] if looks else []

    def one(name: str, counted: Counted) -> Callable[[Counter[str]], list[Observation]]:
        return lambda counts: [Observation(counts[name] * counted.scale)]

    for name, counted in COUNTED.items():
        meter.create_observable_counter(f"pinfold.{counted.metric}", [observe(one(name, counted))], counted.unit, counted.told)
    meter.create_observable_counter("pinfold.errors", [observe(errors)], "{error}", "Requests that were refused or failed, by code.")
    meter.create_observable_gauge("pinfold.hit_ratio", [observe(hit_ratio)], "1", "Share of looks that found something.")


class MeasuredReplica(Replica):
    """A replica that times what it does and tells of it."""

    def __init__(self, *arguments: Any) -> None:
        self._waiting: dict[Waiter, tuple[float, Span | None]] = {}
        super().__init__(*arguments)

    def turn(self, decide: Decide, **options: Any) -> Any:
        began_s = first_s = time.perf_counter()
        conflicts = self.done["conflicts"]

        def first(state: Any, now_ms: int) -> Any:
            nonlocal first_s, conflicts
            if first_s == began_s:
                first_s, conflicts = time.perf_counter(), self.done["conflicts"]
            return decide(state, now_ms)

        with self._span("pinfold.turn") as span:
            try:
                return super().turn(first, **options)
            except PinfoldError as error:
                self._count(**{ERROR + error.code: 1})
                _tell_error(span, error)
                raise
            finally:
                self._count(turn_us=_us(time.perf_counter() - began_s), lock_us=_us(first_s - began_s))
                if span is not None:
                    span.set_attributes({"pinfold.seq": self.state.seq, "pinfold.conflicts": self.done["conflicts"] - conflicts})

    def catch_up(self, confirm: bool = False) -> None:
        try:
            super().catch_up(confirm)
        except PinfoldError as error:
            self._count(**{ERROR + error.code: 1})
            raise

    def _follow(self, records: list[Record]) -> None:
        if not records:
            return
        self._count(catch_ups=1, entries_caught_up=len(records))
        with self._span("pinfold.catch_up") as span:
            if span is not None:
                span.set_attribute("pinfold.entries", len(records))
            super()._follow(records)

    def add_waiter(self, key: str, waiter: Waiter) -> None:
        span = _tracer.start_span("pinfold.wait", attributes={"pinfold.session": self.name}) if _tracer is not None else None
        self._waiting[waiter] = time.perf_counter(), span
        super().add_waiter(key, waiter)

    def remove_waiter(self, key: str, waiter: Waiter) -> None:
        super().remove_waiter(key, waiter)
        began_s, span = self._waiting.pop(waiter, (0.0, None))
        if began_s:
            self._count(waits=1, wait_us=_us(time.perf_counter() - began_s))
        if span is not None:
            span.set_attribute("pinfold.outcome", type(waiter.outcome).__name__.lower() if waiter.outcome is not None else "timeout")
            span.end()

    def close(self) -> None:
        super().close()
        totals()  # before the store is forgotten

    def after_fork(self) -> None:
        super().after_fork()
        self._waiting = {}

    def _count(self, **counts: int) -> None:
        with self.lock:
            self.done.update(counts)

    @contextmanager
    def _span(self, name: str) -> Iterator[Span | None]:
        if _tracer is None:
            yield None
            return
        with _tracer.start_as_current_span(name, attributes={"pinfold.session": self.name}, record_exception=False, set_status_on_exception=False) as span:
            yield span


def _tell_error(span: Span | None, error: PinfoldError) -> None:
    """Mark a span: a refusal is an answer, everything else a failure."""
    if span is None:
        return
    span.set_attribute("error.type", error.code)
    if not isinstance(error, Refused):
        from opentelemetry.trace import StatusCode

        span.set_status(StatusCode.ERROR, error.code)  # a message may name a key


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _after_fork() -> None:
    """Begin at nothing in a child: what the parent did is told there."""
    global _lock
    _lock = threading.Lock()
    totals()
    _totals.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
