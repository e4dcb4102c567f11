"""One session's state: the fold of its journal. Pure: no clock, dice, I/O or locks.

`apply` is total and deterministic: the same entries give equal states in every process. Equality and `state_hash`
cover everything but recency, which reads change without an entry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from pinfold import limits
from pinfold.entry import GENESIS, Entry, Fact, hash_of
from pinfold.errors import JournalCorrupt, NewerFormat
from pinfold.state import graph as graph_rules
from pinfold.state import promises as promise_rules
from pinfold.state import schema as schema_rules
from pinfold.state import silo as silo_rules
from pinfold.state.graph import Graph
from pinfold.state.housekeep import decide_expire
from pinfold.state.inputs import DERIVED_FROM, SUPERSEDED_BY, Inputs
from pinfold.state.promises import Promises
from pinfold.state.schema import Schema
from pinfold.state.silo import Recency, Silo
from pinfold.state.value import Blob

SNAPSHOT_FORMAT = 1


class Settings(msgspec.Struct, frozen=True):
    """What a session was opened with. Times in Unix ms; ttl_ms slides with use."""

    created_at_ms: int = 0
    silo_size: int | None = None
    ttl_ms: int | None = None
    long_term: str | None = None
    promote_after: int | None = None
    ended_at_ms: int | None = None
    extra: Fact = {}


class SessionState:
    """Silo, promises, graph, schema and settings of one session, where its journal stands, and the requests served lately."""

    __slots__ = ("at_ms", "graph", "hash", "inputs", "promises", "recency", "requests", "schema", "seq", "settings", "silo")

    def __init__(self) -> None:
        self.seq = 0
        self.hash = GENESIS
        self.at_ms = 0
        self.silo = Silo()
        self.promises = Promises()
        self.graph = Graph()
        self.schema = Schema()
        self.settings = Settings()
        self.requests: OrderedDict[str, int] = OrderedDict()
        self.recency = Recency()
        self.inputs = Inputs()
        """Derived from slots and rows, so no part of equality."""

    def index_inputs(self, dumped: Any = None) -> None:
        """Build what is derived of a state that was loaded whole."""
        self.inputs = Inputs.build(self.silo, self.graph, self.schema, dumped)

    @property
    def exists(self) -> bool:
        return self.seq > 0

    def expires_at_ms(self, used_ms: int = 0) -> int | None:
        """Return when the session ends unless it is used again, None without a ttl. used_ms: latest use not journaled yet."""
        if self.settings.ttl_ms is None:
            return None
        return max(self.recency.last_used_ms, self.at_ms, used_ms) + self.settings.ttl_ms

    def is_over(self, now_ms: int, used_ms: int = 0) -> bool:
        """Return whether the session was ended or its ttl ran out."""
        if self.settings.ttl_ms is None:
            return self.settings.ended_at_ms is not None
        return self.settings.ended_at_ms is not None or (self.expires_at_ms(used_ms) or 0) <= now_ms


def _apply_session(state: SessionState, fact: Fact, entry: Entry) -> None:
    """session.put: created, size, ttl, long, promote, ended; other keys are kept."""
    known = {_SETTING[name]: value for name, value in fact.items() if name in _SETTING}
    extra = {name: value for name, value in fact.items() if name != "f" and name not in _SETTING}
    state.settings = msgspec.structs.replace(state.settings, **known, extra={**state.settings.extra, **extra})
    if "size" in fact:
        silo_rules.set_silo_size(state.silo, state.recency, fact["size"])


_SETTING = {
    "created": "created_at_ms",
    "size": "silo_size",
    "ttl": "ttl_ms",
    "long": "long_term",
    "promote": "promote_after",
    "ended": "ended_at_ms",
}


def _row_put(state: SessionState, fact: Fact, entry: Entry) -> None:
    graph_rules.APPLY[fact["f"]](state.graph, fact, entry)
    if state.inputs.on or "in" in fact or SUPERSEDED_BY in (fact.get("fields") or ()) or fact.get("rel") == DERIVED_FROM:
        state.inputs.row_put(fact, state.schema)


def _row_drop(state: SessionState, fact: Fact, entry: Entry) -> None:
    graph_rules.APPLY[fact["f"]](state.graph, fact, entry)
    if state.inputs.on:
        state.inputs.row_drop(fact["id"])


def _schema_put(state: SessionState, fact: Fact, entry: Entry) -> None:
    schema_rules.APPLY[fact["f"]](state.schema, fact, entry)
    if "kind" in fact and ("unique" in fact or fact["kind"] in state.inputs.unique):
        state.inputs.declared(fact["kind"], state.graph, state.schema)


def _slot_put(state: SessionState, fact: Fact, entry: Entry) -> None:
    silo_rules.apply_put(state.silo, state.recency, fact, entry)
    if "in" in fact or state.inputs.on:
        state.inputs.slot_put(fact["k"], fact.get("in"))


def _slot_drop(state: SessionState, fact: Fact, entry: Entry) -> None:
    silo_rules.apply_drop(state.silo, state.recency, fact, entry)
    if state.inputs.on:
        state.inputs.slot_drop(fact["k"])


APPLY: dict[str, Callable[[SessionState, Fact, Entry], None]] = {
    "slot.put": _slot_put,
    "slot.drop": _slot_drop,
    "promise.put": lambda s, fact, entry: promise_rules.apply_put(s.promises, fact, entry),
    "promise.drop": lambda s, fact, entry: promise_rules.apply_drop(s.promises, fact, entry),
    "touch": lambda s, fact, entry: s.recency.touch(fact),
    "session.put": _apply_session,
    **dict.fromkeys(("node.put", "edge.put", "law.put"), _row_put),
    **dict.fromkeys(("node.drop", "edge.drop", "law.drop"), _row_drop),
    "schema.put": _schema_put,
    "lost": lambda s, fact, entry: None,  # what a repair puts where an entry could not be read
}


def apply(state: SessionState, entry: Entry, entry_hash: bytes) -> None:
    """Fold one entry into state. Raises JournalCorrupt where it does not follow, NewerFormat at an unknown fact."""
    if entry.seq != state.seq + 1 or entry.prev_hash != state.hash:
        raise JournalCorrupt(f"entry {entry.seq} does not follow entry {state.seq}: the hash chain is broken", seq=entry.seq, hint="run `pinfold doctor`")
    for fact in entry.facts:
        if fact["f"] not in APPLY:
            raise NewerFormat(f"entry {entry.seq} has a fact {fact['f']!r} that this pinfold does not know", seq=entry.seq, hint="upgrade pinfold")
    for fact in entry.facts:
        APPLY[fact["f"]](state, fact, entry)
    state.seq, state.hash = entry.seq, entry_hash
    state.at_ms = max(state.at_ms, entry.at_ms)
    if entry.request_id is not None:
        state.requests[entry.request_id] = entry.seq
        state.requests.move_to_end(entry.request_id)
        if len(state.requests) > limits.REQUESTS_KEPT:
            state.requests.popitem(last=False)


def decide_housekeep(state: SessionState, now_ms: int) -> list[Fact]:
    """Return the facts that ride along with a write: what expired or was settled long ago goes, a bounded number at a time."""
    facts = promise_rules.decide_housekeep(state.silo, state.promises, now_ms)
    if not state.graph.due:
        return facts
    expired, _ = decide_expire(state.graph, state.schema, now_ms=now_ms)
    if expired and state.inputs.given:
        from pinfold.state.resting import finish

        expired = finish(state, expired, now_ms=now_ms, checks=False)
    return facts + expired


# --- snapshots --------------------------------------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def _core(state: SessionState) -> list[Any]:
    return [
        state.seq,
        state.hash,
        state.at_ms,
        msgspec.to_builtins(state.settings),
        list(state.requests.items()),
        state.silo.dump(),
        state.promises.dump(),
        state.graph.dump(),
        state.schema.dump(),
    ]


def encode_snapshot(state: SessionState) -> bytes:
    """Return state and recency as bytes: a format byte, then MessagePack. `decode_snapshot` gives back an equal state."""
    return bytes([SNAPSHOT_FORMAT]) + _encode([_core(state), state.recency.dump()])


def decode_snapshot(body: bytes) -> SessionState:
    """Return the state of a snapshot whose checksum was verified. Raises NewerFormat, JournalCorrupt."""
    if body[:1] != bytes([SNAPSHOT_FORMAT]):
        raise NewerFormat(f"a snapshot has format {body[0] if body else 'none'}, this pinfold knows {SNAPSHOT_FORMAT}", hint="upgrade pinfold")
    try:
        core, recency = _decode(body[1:])
        state = SessionState()
        state.seq, state.hash, state.at_ms, settings, requests, silo, promises, graph, schema = core
        state.settings = msgspec.convert(settings, Settings)
        state.requests = OrderedDict((name, seq) for name, seq in requests)
        state.silo = Silo.load(silo)
        state.promises = Promises.load(promises)
        state.graph = Graph.load(graph)
        state.schema = Schema.load(schema)
        state.recency = Recency.load(recency)
        state.index_inputs(graph)
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise JournalCorrupt(f"a snapshot cannot be decoded: {error}", hint="run `pinfold doctor`") from error
    return state


def blobs_in(state: SessionState) -> list[Blob]:
    """Return the large values a state names, each once."""
    stored = [slot.value for slot in state.silo.slots.values()] + [p.payload for p in state.promises.by_key.values()]
    return list({value.sha256: value for value in stored if isinstance(value, Blob)}.values())


def state_hash(state: SessionState) -> str:
    """Return 32 hex digits that are equal for equal states, in any process; recency is left out."""
    return hash_of(_encode(_core(state))).hex()
