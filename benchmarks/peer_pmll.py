"""Runs inside PMLL's environment: the operations it shares with pinfold, timed by the same harness."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

from pmll_memory_mcp import PMMemoryStore, QPromiseRegistry, peek_context

from benchmarks.harness import us_per_call, us_per_item
from benchmarks.peers import serve

VALUE = "v" * 64

_large = 1_000_000  # a silo that does not evict, as pinfold's default
_store = PMMemoryStore(_large)
_registry = QPromiseRegistry()
_store.set("hit", VALUE)
_fresh = count()
_full: dict[int, PMMemoryStore] = {}


def peek_hit(calls: int) -> float:
    return us_per_call(partial(_store.peek, "hit"), calls)


def peek_miss(calls: int) -> float:
    return us_per_call(partial(_store.peek, "miss"), calls)


def peek_context_hit(calls: int) -> float:
    return us_per_call(partial(peek_context, "hit", "bench", _store, _registry), calls)


def set_new(calls: int) -> float:
    return us_per_item(lambda key: _store.set(key, VALUE), [f"new:{next(_fresh)}" for _ in range(calls)])


def set_update(calls: int) -> float:
    return us_per_call(lambda: _store.set("hit", VALUE), calls)


def set_full(size: int, calls: int) -> float:
    store = _full.get(size)
    if store is None:
        store = _full[size] = PMMemoryStore(size)
        for number in range(size):
            store.set(f"old:{number}", VALUE)
    return us_per_item(lambda key: store.set(key, VALUE), [f"new:{next(_fresh)}" for _ in range(calls)])


def promise(calls: int) -> float:
    """Register, resolve, store: what an owner does here that claims and fulfils there (no atomic claim, no token)."""

    def one(key: str) -> None:
        _registry.register(key)
        _registry.resolve(key, VALUE)
        _store.set(key, VALUE)

    return us_per_item(one, [f"work:{next(_fresh)}" for _ in range(calls)])


def check() -> dict[str, Any]:
    """Return what shows that the timed calls did their work."""
    return {
        "hit": list(_store.peek("hit")),
        "miss": list(_store.peek("miss")),
        "context": peek_context("hit", "bench", _store, _registry),
        "slots": len(_store),
        "fresh": next(_fresh),
        "full": {str(size): len(store) for size, store in _full.items()},
        "promises": len(_registry),
    }


if __name__ == "__main__":
    serve({f.__name__: f for f in (peek_hit, peek_miss, peek_context_hit, set_new, set_update, set_full, promise, check)})
