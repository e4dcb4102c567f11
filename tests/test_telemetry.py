"""What is counted, timed and traced, read as OpenTelemetry's SDK exports it."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from pinfold import Memory, Refused, Session, Unavailable, telemetry
from pinfold.engine import Engine, Replica
from pinfold.journal.memory import MemoryJournal
from pinfold.testing.journal_contract import run_forked, run_threads

pytestmark = pytest.mark.requirement("telemetry")


class Exported:
    """What the SDK was told. `metrics` reads now."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metric -> labels -> value."""
        found: dict[str, dict[str, float]] = {}
        data = self._reader.get_metrics_data()
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = found.setdefault(metric.name, {})
                    for point in metric.data.data_points:
                        points[",".join(map(str, (point.attributes or {}).values()))] = point.value  # type: ignore[union-attr]
        return found


@pytest.fixture
def exported() -> Iterator[Exported]:
    """Stores opened from here on are measured, and the SDK exports into memory."""
    found = Exported()
    telemetry.instrument(tracer_provider=found.tracers, meter_provider=found.meters)
    yield found
    telemetry.uninstrument()
    found.meters.shutdown()


def until_waiting(session: Session) -> None:
    """Return once somebody waits in session."""
    end = time.monotonic() + 20
    while not session._replica._waiters:
        assert time.monotonic() < end
        threading.Event().wait(0.001)


def since(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]], name: str, label: str = "") -> float:
    return after[name].get(label, 0) - before.get(name, {}).get(label, 0)


def test_turns_looks_waits_conflicts_and_catching_up_are_told_as_metrics_and_spans(exported, sqlite_url):
    before = exported.metrics()
    with Memory(sqlite_url) as here, Memory(sqlite_url) as there:
        ours, theirs = here.session("work"), there.session("work")
        ours.set("secret-key", "secret-value")
        assert theirs.peek("secret-key").hit is True
        assert theirs.peek("nothing").hit is False
        claim = ours.claim("job", 60)
        found: list[object] = []
        run_threads([lambda: found.append(theirs.wait("job", 20).value), lambda: (until_waiting(theirs), ours.fulfil(claim, "done"))])
        assert found == ["done"]
        with pytest.raises(Refused):
            ours.fulfil(claim, "again")
        after = exported.metrics()
    assert since(before, after, "pinfold.turns") == 3
    assert since(before, after, "pinfold.misses") == 2  # the claim looked, too
    assert since(before, after, "pinfold.hits") >= 1
    assert since(before, after, "pinfold.waits") == 1
    assert since(before, after, "pinfold.wait_seconds") > 0
    assert since(before, after, "pinfold.turn_seconds") >= since(before, after, "pinfold.lock_seconds") > 0
    assert since(before, after, "pinfold.caught_up_entries") >= since(before, after, "pinfold.catch_ups") >= 1
    assert since(before, after, "pinfold.errors", "already_settled") == 1
    assert 0 < after["pinfold.hit_ratio"][""] <= 1
    turns = exported.spans("pinfold.turn")
    assert [span.attributes["pinfold.seq"] for span in turns[:2]] == [1, 2]
    (refused,) = [span for span in turns if "error.type" in span.attributes]
    assert (refused.attributes["error.type"], refused.status.status_code) == ("already_settled", StatusCode.UNSET)
    assert [span.attributes["pinfold.outcome"] for span in exported.spans("pinfold.wait")] == ["slot"]
    assert sum(span.attributes["pinfold.entries"] for span in exported.spans("pinfold.catch_up")) >= since(before, after, "pinfold.caught_up_entries")
    told = "".join(span.to_json() for name in ("pinfold.turn", "pinfold.wait", "pinfold.catch_up") for span in exported.spans(name))
    assert "secret" not in told
    assert "job" not in told


class Interrupted(MemoryJournal):
    """A journal before whose appends something happens."""

    before: Callable[[], None] | None = None

    def append(self, *arguments, **options):
        happens, self.before = self.before, None
        if happens is not None:
            happens()
        return super().append(*arguments, **options)


def test_a_turn_that_lost_a_race_says_so_and_a_failed_one_is_an_error(exported):
    journal = Interrupted()
    before = exported.metrics()
    with Memory(journal=journal) as here, Memory(journal=journal) as there:
        ours, theirs = here.session("work"), there.session("work")
        ours.set("a", "1")
        assert theirs.peek("a").hit is True
        journal.before = lambda: theirs.set("b", "2")
        ours.set("c", "3")
        assert [span.attributes["pinfold.conflicts"] for span in exported.spans("pinfold.turn")][-1] == 1

        def fails() -> None:
            raise Unavailable("the store does not answer about key b", code="server_down")

        journal.before = fails
        with pytest.raises(Unavailable):
            ours.set("d", "4")
        after = exported.metrics()
    assert since(before, after, "pinfold.conflicts") == 1
    assert since(before, after, "pinfold.errors", "server_down") == 1
    (failed,) = [span for span in exported.spans("pinfold.turn") if "error.type" in span.attributes]
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "server_down")


def test_totals_never_fall_also_when_stores_are_closed_and_forgotten(exported):
    before = telemetry.totals()
    for _ in range(3):
        with Memory("memory://") as memory:
            memory.session("work").set("a", "1")
            memory.session("work").peek("a")
    counted = telemetry.totals() - before
    assert (counted["turns"], counted["hits"]) == (6, 3)  # each close journals its touches
    assert telemetry.totals() - before == counted


def test_unmeasured_stores_count_turns_and_looks_and_are_of_the_plain_class():
    before = telemetry.totals()
    with Memory("memory://") as memory:
        session = memory.session("work")
        session.set("a", "1")
        session.peek("a")
        assert type(session._replica) is Replica is Engine.replica_type
        counted = telemetry.totals() - before
    assert counted == {"turns": 1, "hits": 1}


def test_measuring_needs_no_opentelemetry():
    telemetry.measure()
    try:
        before = telemetry.totals()
        with Memory("memory://") as memory:
            memory.session("work").set("a", "1")
        assert (telemetry.totals() - before)["turn_us"] > 0
    finally:
        telemetry.uninstrument()


@pytest.mark.requirement("fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_counts_from_nothing():
    with Memory("memory://") as memory:
        memory.session("work").set("a", "1")

        def child() -> None:
            assert telemetry.totals() == {}
            memory.session("work").set("b", "2")
            assert telemetry.totals()["turns"] == 1

        assert run_forked(child) == 0


def test_nothing_of_it_is_imported_until_it_is_asked_for():
    look = "import sys; from pinfold import Memory; Memory('memory://').session('s').set('a', '1'); print([m for m in sys.modules if 'telemetry' in m])"
    run = {"args": [sys.executable, "-c", look], "capture_output": True, "text": True, "check": True}
    plain = {name: value for name, value in os.environ.items() if name != "PINFOLD_OTEL"}
    assert subprocess.run(**run, env=plain).stdout.strip() == "[]"
    told = subprocess.run(**run, env={**plain, "PINFOLD_OTEL": "1"}).stdout
    assert "pinfold.telemetry" in told
    assert "opentelemetry.sdk" not in told


@pytest.mark.requirement("errors")
def test_a_missing_extra_is_named(monkeypatch):
    from pinfold import ConfigurationError

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError) as error:
        telemetry.instrument()
    assert error.value.code == "missing_extra"
    assert "pinfold[otel]" in error.value.hint
