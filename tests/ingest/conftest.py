"""Sessions to ingest into."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pinfold import Memory, Session


@pytest.fixture
def session(open_memory: Callable[..., Memory]) -> Session:
    """A session in RAM: what ingest does is the same on every store."""
    return open_memory("memory://").session("work")


@pytest.fixture
def other(open_memory: Callable[..., Memory]) -> Session:
    """Another session, of a store of its own."""
    return open_memory("memory://").session("other")
