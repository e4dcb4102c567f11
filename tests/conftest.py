"""Fixtures shared by all tests, and the marks that tie a test to a promise of the design (see requirements.py)."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from pinfold import Memory, Session
from pinfold.engine import Engine
from pinfold.journal.memory import MemoryJournal
from pinfold.testing.sim import SimClock

# On CI the same examples every time: what it says of a change is of that change. Run by hand, each run looks for new ones.
settings.register_profile("pinfold", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ)
settings.load_profile("pinfold")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs in the background so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "requirement(*ids): the promises this test proves; every id is in tests/requirements.py")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path) -> str:
    """The URL of a fresh store, of each kind in turn."""
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def sqlite_url(tmp_path) -> str:
    """The URL of a fresh store that other handles and processes can open too."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def open_memory() -> Iterator[Callable[..., Memory]]:
    """A function that opens stores; all of them are closed after the test."""
    opened: list[Memory] = []

    def open_one(*args, **options) -> Memory:
        opened.append(Memory(*args, **options))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


@pytest.fixture
def memory(url: str, open_memory) -> Memory:
    return open_memory(url)


@pytest.fixture
def session(memory: Memory) -> Session:
    return memory.session("work")


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def timed(clock, open_memory):
    """A function that opens a Memory on one shared journal whose clock passes only when told to."""
    journal = MemoryJournal(clock)

    def open_one(actor: str | None = None) -> Memory:
        memory = open_memory(journal=journal, background=False, actor=actor)
        memory._engine = Engine(journal, clock.monotonic, background=False)
        return memory

    return open_one
