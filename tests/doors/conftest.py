"""Leaves out of the pass with a server what shows nothing there: tests marked `alone`."""

from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not (_is_served(item) and item.get_closest_marker("alone"))]


def _is_served(item: Any) -> bool:
    return hasattr(item, "callspec") and item.callspec.params.get("own_store") == "served"
