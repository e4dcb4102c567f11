"""Runs inside LangGraph's environment: its two stores, timed by the same harness."""

from __future__ import annotations

import sqlite3
from typing import Any

from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

from benchmarks.harness import us_per_call, us_per_item
from benchmarks.peers import serve

VALUE = {"value": "v" * 64}

_db = sqlite3.connect("langgraph.db", check_same_thread=False, isolation_level=None)
_db.execute("PRAGMA journal_mode = WAL")
_db.execute("PRAGMA synchronous = NORMAL")
_sqlite = SqliteStore(_db)
_sqlite.setup()
_stores: dict[str, Any] = {"InMemoryStore": InMemoryStore(), "SqliteStore": _sqlite}
for _store in _stores.values():
    _store.put(("bench",), "k0", VALUE)


def put(store: str, calls: int) -> float:
    return us_per_item(lambda number: _stores[store].put(("bench",), f"k{number}", VALUE), range(calls))


def get(store: str, calls: int) -> float:
    return us_per_call(lambda: _stores[store].get(("bench",), "k0"), calls)


def has(store: str, key: str) -> bool:
    found = _stores[store].get(("bench",), key)
    return found is not None and found.value == VALUE


if __name__ == "__main__":
    serve({f.__name__: f for f in (put, get, has)})
