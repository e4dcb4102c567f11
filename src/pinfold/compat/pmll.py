"""PMLL Memory MCP's library names, the 17 of 2.0.2 and the six of 2.0.4: change the import and the documented usage runs.

    from pinfold.compat.pmll import PMMemoryStore, QPromiseRegistry, peek_context, upsert_node, search_graph

Store and registry stand alone, in RAM. Graphs and the solution engine (`pmll_graph`, loaded at first use) are sessions of one
store: in RAM until `configure_db(path)`. For everything else use `pinfold.Memory`.

Deliberate differences, each mending something PMLL's users ran into:
* a promise resolved with a payload is a hit in `peek_context`, not a miss: the work is not repeated before `set`;
* an index is not given again after `flush`;
* `silo_size` is a limit: the least recently used slots go (`None` for no limit);
* registering a resolved id keeps its payload, and resolving twice keeps the first (the second returns False);
* values are str, bytes or JSON and come back as copies, so a caller's later change does not reach into the store.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from pinfold.entry import GENESIS, Entry, Fact
from pinfold.errors import Refused
from pinfold.state import promises as promise_rules
from pinfold.state import silo as silo_rules
from pinfold.state.promises import Promises
from pinfold.state.silo import Recency, Silo
from pinfold.state.value import Blob, Stored, check_key, pack_value, unpack_raw, unpack_value

if TYPE_CHECKING:
    from pinfold.compat.pmll_graph import (
        EMBED_DIM,
        GraphSearchResult,
        HashingVectorizer,
        MemoryEdge,
        MemoryNode,
        TraversalResult,
        add_interlinked_context,
        clear_graph,
        configure_db,
        create_relation,
        embed,
        export_graph,
        get_db_path,
        get_graph_stats,
        get_memory_status,
        import_graph,
        promote_to_long_term,
        prune_stale_links,
        reload_session_from_db,
        resolve_context,
        retrieve_with_traversal,
        search_graph,
        upsert_node,
    )
    from pinfold.recall.embed import TfIdfVectorizer, cosine_similarity, l2_normalize, tokenize

_OF_RECALL = ("TfIdfVectorizer", "cosine_similarity", "l2_normalize", "tokenize")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'pinfold.compat.pmll' has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module("pinfold.recall.embed" if name in _OF_RECALL else "pinfold.compat.pmll_graph"), name, None)
    if found is None:
        raise AttributeError(f"module 'pinfold.compat.pmll' has no attribute {name!r}")
    return found


def _entry(facts: list[Fact]) -> Entry:
    return Entry(0, GENESIS, time.time_ns() // 1_000_000, None, None, facts)


class _Values:
    """Stored values and, since there is no journal beside this state, the bytes of the large ones."""

    def __init__(self) -> None:
        self._large: dict[bytes, bytes] = {}

    def pack(self, value: Any) -> Stored:
        stored, _, raw = pack_value(value)
        if isinstance(stored, Blob) and raw is not None:
            self._large[stored.sha256] = raw
        return stored

    def unpack(self, stored: Stored) -> Any:
        return unpack_raw(self._large[stored.sha256], stored.kind) if isinstance(stored, Blob) else unpack_value(stored)

    def keep(self, used: set[bytes]) -> None:
        for sha256 in self._large.keys() - used:
            del self._large[sha256]


class PMMemoryStore:
    """A silo in RAM: key -> value with a stable slot index. Threads may share it.

    silo_size: how many slots to keep; None for no limit. Raises Refused `bad_key`, `bad_value`, `value_too_large`.
    """

    def __init__(self, silo_size: int | None = 256) -> None:
        if silo_size is not None and (type(silo_size) is not int or silo_size < 1):
            raise Refused(f"silo_size={silo_size!r} is not possible", code="bad_option", hint="give a whole number above 0, or None for no limit")
        self.silo_size = silo_size
        self._lock = threading.RLock()
        self._silo, self._recency, self._values = Silo(), Recency(), _Values()
        silo_rules.set_silo_size(self._silo, self._recency, silo_size)

    def peek(self, key: str) -> tuple[bool, Any, int | None]:
        """Return (True, value, index), or (False, None, None). Adds nothing; a hit makes the slot recently used."""
        with self._lock:
            slot = self._silo.slots.get(key)
            if slot is None:
                return False, None, None
            if key in self._recency.order:
                self._recency.order.move_to_end(key)
            return True, self._values.unpack(slot.value), slot.index

    def set(self, key: str, value: Any) -> int:
        """Store value and return its slot index: a new key takes the next, an update keeps its own."""
        check_key(key)
        with self._lock:
            stored = self._values.pack(value)
            facts, index, _ = silo_rules.decide_store(self._silo, self._recency, key, stored, None, 0, lambda _: False)
            self._apply(facts)
        return index

    def flush(self) -> int:
        """Empty the store and return how many slots went."""
        with self._lock:
            keys = list(self._silo.slots)
            self._apply([{"f": "slot.drop", "k": key} for key in keys])
        return len(keys)

    def _apply(self, facts: list[Fact]) -> None:
        entry = _entry(facts)
        for fact in facts:
            (silo_rules.apply_put if fact["f"] == "slot.put" else silo_rules.apply_drop)(self._silo, self._recency, fact, entry)
        if self._values._large:
            self._values.keep({slot.value.sha256 for slot in self._silo.slots.values() if isinstance(slot.value, Blob)})

    def __len__(self) -> int:
        return len(self._silo.slots)

    def __contains__(self, key: object) -> bool:
        return key in self._silo.slots


class QPromiseRegistry:
    """Promises in RAM: pending, then resolved with a payload. Ids are the caller's to scope. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._silo, self._promises, self._values = Silo(), Promises(), _Values()

    def register(self, promise_id: str) -> None:
        """Make a pending promise; one that is pending or resolved stays as it is."""
        with self._lock:
            self._apply(promise_rules.decide_register(self._silo, self._promises, check_key(promise_id), None, 0)[0])

    def resolve(self, promise_id: str, payload: Any) -> bool:
        """Resolve a pending promise. False where there is none, or it is resolved already: the first payload stays."""
        with self._lock:
            try:
                facts, _ = promise_rules.decide_resolve(self._silo, self._promises, promise_id, self._values.pack(payload), 0)
            except Refused as refused:
                if refused.code in ("unknown_promise", "already_settled"):
                    return False
                raise
            self._apply(facts)
        return True

    def peek_promise(self, promise_id: str) -> tuple[bool, str | None, Any]:
        """Return (True, "pending" | "resolved", payload), or (False, None, None) for an unknown id. Consumes nothing."""
        with self._lock:
            promise = self._promises.by_key.get(promise_id)
            if promise is None:
                return False, None, None
            return True, promise.status, None if promise.payload is None else self._values.unpack(promise.payload)

    def _apply(self, facts: list[Fact]) -> None:
        for fact in facts:
            promise_rules.apply_put(self._promises, fact, _entry(facts))

    def __len__(self) -> int:
        return len(self._promises.by_key)

    def __contains__(self, promise_id: object) -> bool:
        return promise_id in self._promises.by_key


def peek_context(key: str, session_id: str, store: PMMemoryStore, promise_registry: QPromiseRegistry) -> dict[str, Any]:
    """Return {hit: True, value, index} | {hit: True, status: "pending", promise_id} | {hit: False}; a value beats a promise.

    A promise that was resolved without a slot is a hit: {hit: True, value, index: None}. session_id is not used: store
    and registry are the session.
    """
    hit, value, index = store.peek(key)
    if hit:
        return {"hit": True, "value": value, "index": index}
    found, status, payload = promise_registry.peek_promise(key)
    if found and status == promise_rules.PENDING:
        return {"hit": True, "status": "pending", "promise_id": key}
    if found and status == promise_rules.RESOLVED:
        return {"hit": True, "value": payload, "index": None}
    return {"hit": False}


_stores: dict[str, PMMemoryStore] = {}
_stores_lock = threading.Lock()


def get_store(session_id: str, silo_size: int | None = 256) -> PMMemoryStore:
    """Return this process's store of a session, made at the first call; silo_size counts then."""
    with _stores_lock:
        if session_id not in _stores:
            _stores[session_id] = PMMemoryStore(silo_size)
        return _stores[session_id]


def drop_store(session_id: str) -> int:
    """Forget a session's store and return how many slots it had, 0 where there was none."""
    with _stores_lock:
        store = _stores.pop(session_id, None)
    return 0 if store is None else len(store)


def reset_store(session_id: str, silo_size: int | None = 256) -> PMMemoryStore:
    """Return a new, empty store for a session, whatever it had."""
    with _stores_lock:
        _stores[session_id] = PMMemoryStore(silo_size)
        return _stores[session_id]


__all__ = [
    "EMBED_DIM",
    "GraphSearchResult",
    "HashingVectorizer",
    "MemoryEdge",
    "MemoryNode",
    "PMMemoryStore",
    "QPromiseRegistry",
    "TfIdfVectorizer",
    "TraversalResult",
    "add_interlinked_context",
    "clear_graph",
    "configure_db",
    "cosine_similarity",
    "create_relation",
    "drop_store",
    "embed",
    "export_graph",
    "get_db_path",
    "get_graph_stats",
    "get_memory_status",
    "get_store",
    "import_graph",
    "l2_normalize",
    "peek_context",
    "promote_to_long_term",
    "prune_stale_links",
    "reload_session_from_db",
    "reset_store",
    "resolve_context",
    "retrieve_with_traversal",
    "search_graph",
    "tokenize",
    "upsert_node",
]
