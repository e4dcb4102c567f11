"""What rests on what: the inputs of slots and rows, and what went stale of them. Pure, derived, never journaled.

Rules:
- A fact that puts a dependent may keep `in`: [[name, mark], …] (a third item: what a cheap look may go by). mark is a
  digest of the input's content at that time, so an input written again as it was changes nothing.
- An edge `derived_from` says that its source rests on its target; its `in` is of the source. Patching the edge, with no
  field too, says that the source was looked at again.
- A row that loses such an edge because the target goes keeps the input in its own `in`: absence is told, not forgotten.
- A dependent is stale where an input changed, is gone, was superseded or is stale itself. Nothing may rest on itself.
- Superseded rows (`superseded_by`) and the keys a kind declares `unique` are indexed here too: they are derived alike.

Names of inputs: slot:KEY, row:ID, session:NAME/row:ID (or /slot:KEY), file:PATH, tree:PATH, url:URL (etag=…),
version:NAME (=VALUE). The index costs what is declared; where nothing is, one look at a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold.entry import Fact, blake2b
from pinfold.errors import Refused
from pinfold.state.value import Blob, Json, Stored

if TYPE_CHECKING:
    from pinfold.state.graph import Edge, Graph, Law, Node
    from pinfold.state.schema import Schema
    from pinfold.state.session import SessionState
    from pinfold.state.silo import Silo

DERIVED_FROM = "derived_from"
SUPERSEDED_BY = "superseded_by"
CAUSES_KEPT = 8
"""Root causes told of one dependent: enough to act on."""
INPUTS_OF_ONE = 10_000
_MARK_BYTES = 8
_APART = frozenset(("recycle", "expires", SUPERSEDED_BY))
"""Fields that are no content: how long a row lives, and what took its place, which is told apart."""
_OUTSIDE = ("file:", "tree:", "session:")

Rest = tuple[str, str, Any]
"""(input name, its mark when the dependent was made, hint)."""


class Input(msgspec.Struct, frozen=True):
    """One declared input. mark: None where the state is to say (slots, rows, versions without a value)."""

    name: str
    mark: str | None = None
    hint: Any = None

    def record(self) -> list[Any]:
        return [self.name, self.mark or ""] if self.hint is None else [self.name, self.mark or "", self.hint]


class Cause(msgspec.Struct, frozen=True, gc=False):
    """Why something is stale: an input, and what became of it ("changed", "gone", "superseded by E9", "now 8")."""

    name: str
    what: str = "changed"


# --- names ----------------------------------------------------------------------------------------------------------


def parse_input(text: str) -> Input:
    """Return the input a caller wrote. Raises Refused `bad_input`."""
    kind, _, rest = text.partition(":")
    if kind == "slot" or (kind in ("row", "file", "tree") and rest):
        return Input(text)
    if kind == "session":
        session, _, inner = rest.partition("/")
        if session and inner.startswith(("row:", "slot:")):
            return Input(text)
    elif kind == "version":
        name, given, value = rest.partition("=")
        if name.strip():
            return Input(f"version:{name.strip()}", value if given else None)
    elif kind == "url" and rest:
        address, given, etag = rest.rpartition(" etag=")
        return Input(f"url:{address}", etag) if given else Input(text)
    raise Refused(
        f"{text[:80]!r} is no input",
        code="bad_input",
        hint="slot:KEY, row:ID, session:NAME/row:ID, file:PATH, tree:PATH, url:… etag=…, or version:NAME=VALUE",
    )


def is_outside(name: str) -> bool:
    """Return whether an input is judged by looking beyond the session's own state."""
    return name.startswith(_OUTSIDE)


# --- marks ----------------------------------------------------------------------------------------------------------


def slot_mark(value: Stored) -> str:
    """Return the mark of a stored value."""
    if type(value) is str:
        raw = b"s" + value.encode("utf-8", "surrogatepass")
    elif type(value) is bytes:
        raw = b"b" + value
    elif type(value) is Json:
        raw = b"j" + value.text
    else:
        assert type(value) is Blob
        raw = b"h" + value.sha256 + value.kind.encode()
    return blake2b(raw, digest_size=_MARK_BYTES).hexdigest()


_encode = msgspec.msgpack.Encoder().encode


def content_mark(kind: str, src: str, dst: str, fields: Iterable[tuple[str, str]]) -> str:
    """Return the mark of what a row says; the order of its fields says nothing. kind: a node's kind, an edge's relation."""
    told = sorted(pair for pair in fields if pair[0] not in _APART)
    return blake2b(_encode((kind, src, dst, told)), digest_size=_MARK_BYTES).hexdigest()


def row_mark(row: Node | Edge | Law) -> str:
    """Return the mark of a row of the graph."""
    kind = getattr(row, "kind", "") or getattr(row, "rel", "")
    return content_mark(kind, getattr(row, "src", ""), getattr(row, "dst", ""), zip(row.keys, row.values, strict=True))


def _mark_of(graph: Graph, id: str) -> str:
    row = graph.row(id)
    return "" if row is None else row_mark(row)


def fact_mark(fact: Fact) -> str:
    """Return the mark of the row that a put makes."""
    return content_mark(fact.get("kind") or fact.get("rel") or "", fact.get("src", ""), fact.get("dst", ""), (fact.get("fields") or {}).items())


# --- the index --------------------------------------------------------------------------------------------------------


class Inputs:
    """Derived from slots and rows: who rests on what, what was superseded, who claims which unique key.

    given: dependent -> origin ("" for its own fact, else an edge's id) -> records. on: whether a fact need be looked at.
    """

    __slots__ = ("by_edge", "dependents", "given", "keys_of", "on", "superseded", "unique", "work")

    def __init__(self) -> None:
        self.given: dict[str, dict[str, tuple[Rest, ...]]] = {}
        self.dependents: dict[str, dict[str, int]] = {}
        self.by_edge: dict[str, str] = {}
        self.superseded: dict[str, str] = {}
        self.unique: dict[str, dict[tuple[str, ...], dict[str, None]]] = {}
        self.keys_of: dict[str, tuple[str, tuple[str, ...]]] = {}
        self.on = False
        self.work = 0
        """How often anything here was written: 0 for a session that declares nothing."""

    def rests(self, dependent: str) -> Iterator[Rest]:
        """Yield what a dependent rests on."""
        for records in self.given.get(dependent, {}).values():
            yield from records

    def _set(self, dependent: str, origin: str, records: tuple[Rest, ...]) -> None:
        self.work += 1
        origins = self.given.get(dependent)
        old = origins.pop(origin, ()) if origins is not None else ()
        for name, _, _ in old:
            users = self.dependents[name]
            if users[dependent] > 1:
                users[dependent] -= 1
            else:
                del users[dependent]
                if not users:
                    del self.dependents[name]
        if records:
            self.given.setdefault(dependent, {})[origin] = records
            for name, _, _ in records:
                users = self.dependents.setdefault(name, {})
                users[dependent] = users.get(dependent, 0) + 1
        elif origins is not None and not origins:
            del self.given[dependent]
        self.on = bool(self.given or self.superseded or self.unique)

    # --- what apply tells ---------------------------------------------------------------------------------------

    def slot_put(self, key: str, records: Any) -> None:
        name = f"slot:{key}"
        if records or name in self.given:
            self._set(name, "", as_rests(records))

    def slot_drop(self, key: str) -> None:
        name = f"slot:{key}"
        if name in self.given:
            self._set(name, "", ())

    def row_put(self, fact: Fact, schema: Schema) -> None:
        """A node, edge or law was put. Total: an edge without a record rests on its target, as it may be."""
        id, records, fields = fact["id"], as_rests(fact.get("in")), fact.get("fields") or {}
        if fact.get("rel") == DERIVED_FROM:
            self._edge_gone(id)
            self.by_edge[id] = f"row:{fact['src']}"
            self._set(self.by_edge[id], id, records or ((f"row:{fact['dst']}", "", None),))
        else:
            if id in self.by_edge:
                self._edge_gone(id)
            if records or f"row:{id}" in self.given:
                self._set(f"row:{id}", "", records)
        by = fields.get(SUPERSEDED_BY)
        if by:
            self.superseded[id] = by
            self.work += 1
        elif id in self.superseded:
            del self.superseded[id]
        if self.unique and fact["f"] == "node.put":
            self._unkey(id)
            self._key(id, fact["kind"], fields, schema)
        self.on = bool(self.given or self.superseded or self.unique)

    def row_drop(self, id: str) -> None:
        if id in self.by_edge:
            self._edge_gone(id)
        if f"row:{id}" in self.given:
            self._set(f"row:{id}", "", ())
        self.superseded.pop(id, None)
        self._unkey(id)
        self.on = bool(self.given or self.superseded or self.unique)

    def _edge_gone(self, id: str) -> None:
        dependent = self.by_edge.pop(id, None)
        if dependent is not None:
            self._set(dependent, id, ())

    # --- unique keys ----------------------------------------------------------------------------------------------

    def declared(self, kind: str, graph: Graph, schema: Schema) -> None:
        """A kind was declared: index the rows that claim its unique key. O(rows of the kind), once."""
        for id in [id for id, (of, _) in self.keys_of.items() if of == kind]:
            self._unkey(id)
        self.unique.pop(kind, None)
        if unique_fields(schema, kind):
            self.unique[kind] = {}
            for id in graph.kinds.get(kind, ()):
                self._key(id, kind, graph.nodes[id].fields, schema)
        self.on = bool(self.given or self.superseded or self.unique)

    def _key(self, id: str, kind: str, fields: Mapping[str, str], schema: Schema) -> None:
        claimed = unique_key(unique_fields(schema, kind), fields) if kind in self.unique else None
        if claimed is not None:
            self.work += 1
            self.unique[kind].setdefault(claimed, {})[id] = None
            self.keys_of[id] = (kind, claimed)

    def _unkey(self, id: str) -> None:
        known = self.keys_of.pop(id, None)
        if known is not None:
            ids = self.unique[known[0]][known[1]]
            ids.pop(id, None)
            if not ids:
                del self.unique[known[0]][known[1]]

    # --- beginning --------------------------------------------------------------------------------------------------

    @classmethod
    def build(cls, silo: Silo, graph: Graph, schema: Schema, dumped: Any = None) -> Inputs:
        """Return the index of a state that was loaded whole. dumped: the graph's dump, which names the rows that have more than fields."""
        self = cls()
        for key, slot in silo.slots.items():
            if slot.extra is not None and "in" in slot.extra:
                self.slot_put(key, slot.extra["in"])
        for row in _rows_with_more(graph, dumped):
            if getattr(row, "rel", "") != DERIVED_FROM and row.extra and "in" in row.extra:
                self._set(f"row:{row.id}", "", as_rests(row.extra["in"]))
        for id in graph.relations.get(DERIVED_FROM, ()):
            edge = graph.edges[id]
            self.by_edge[id] = f"row:{edge.src}"
            self._set(self.by_edge[id], id, as_rests((edge.extra or {}).get("in")) or ((f"row:{edge.dst}", "", None),))
        if any(SUPERSEDED_BY in keys for keys in graph._shapes):
            self.superseded = {row.id: by for row in graph.rows() if (by := row.get(SUPERSEDED_BY))}
            self.work += 1
        for kind in schema.kinds:
            if unique_fields(schema, kind):
                self.declared(kind, graph, schema)
        self.on = bool(self.given or self.superseded or self.unique)
        return self


def _rows_with_more(graph: Graph, dumped: Any) -> Iterator[Node | Edge | Law]:
    try:
        columns = [dumped[form] for form in ("nodes", "edges", "laws")]
        ids = [column["id"][int(at)] for column in columns for at in column["extra"]]
    except (KeyError, TypeError, ValueError, IndexError):
        yield from (row for row in graph.rows() if row.extra)  # another way of dumping: look at every row
        return
    for id in ids:
        row = graph.row(id)
        if row is not None:
            yield row


def as_rests(records: Any) -> tuple[Rest, ...]:
    """Return the records of an `in` as the index keeps them: each name once, the last counts."""
    if not records:
        return ()
    return tuple({record[0]: (record[0], record[1], record[2] if len(record) > 2 else None) for record in records}.values())


def unique_fields(schema: Schema, kind: str) -> tuple[str, ...]:
    """Return the fields that together name one live row of a kind, () for none."""
    known = schema.kinds.get(kind)
    return tuple(known.extra.get("unique", ())) if known is not None and known.extra else ()


def unique_key(names: tuple[str, ...], fields: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what a row claims, None where it lacks one of the fields."""
    values = tuple(fields.get(name, "") for name in names)
    return values if names and all(values) else None


# --- judging ----------------------------------------------------------------------------------------------------------


class Sheet(msgspec.Struct):
    """What one judgement works on: what is wrong with each dependent directly, and what is still to be looked at.

    outside: (dependent, name, mark, hint), for whoever may look beyond the state. within: the dependents asked about and all
    upstream of them, None for all there are.
    """

    direct: dict[str, list[Cause]]
    outside: list[tuple[str, str, str, Any]]
    within: set[str] | None


class Verdict(msgspec.Struct):
    """What is stale: dependents in an order in which they can be redone, each with its root causes."""

    causes: dict[str, tuple[Cause, ...]]
    direct: dict[str, list[Cause]]


_Now = tuple[str, str, Cause | None]
"""(what is wrong with an input whatever a dependent noted, its mark, what to say where the marks differ)."""
_ELSEWHERE: _Now = ("", "", None)


def collect(state: SessionState, wanted: Iterable[str] | None, now_ms: int) -> Sheet:
    """Return the sheet of these dependents and everything upstream of them, or of all. O(what they rest on)."""
    given = state.inputs.given
    within = None if wanted is None else _upstream(state.inputs, wanted)
    direct: dict[str, list[Cause]] = {}
    outside: list[tuple[str, str, str, Any]] = []
    known: dict[str, _Now] = {}
    for dependent in given if within is None else within:
        for records in given[dependent].values():
            for name, mark, hint in records:
                at = known.get(name)
                if at is None:
                    at = known[name] = _ELSEWHERE if name.startswith(_OUTSIDE) else _now(state, name, now_ms)
                fault, now, cause = at
                if not fault and (now == mark or not now or not mark):
                    if at is _ELSEWHERE:
                        outside.append((dependent, name, mark, hint))
                    continue
                if fault.startswith("superseded") and _takes_place(state, dependent, name):
                    if not mark or _mark_of(state.graph, name[4:]) == mark:
                        continue
                    cause = Cause(name)
                assert cause is not None
                causes = direct.get(dependent)
                if causes is None:
                    direct[dependent] = [cause]
                else:
                    causes.append(cause)
    return Sheet(direct, outside, within)


def _upstream(inputs: Inputs, wanted: Iterable[str]) -> set[str]:
    """Return these dependents and every dependent they rest on."""
    seen: set[str] = set()
    stack = [name for name in wanted if name in inputs.given]
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack.extend(rest[0] for rest in inputs.rests(name) if rest[0] in inputs.given and rest[0] not in seen)
    return seen


def _now(state: SessionState, name: str, now_ms: int) -> _Now:
    fault, mark = look_at(state, name, now_ms)
    if fault:
        return fault, mark, Cause(name, fault)
    return "", mark, Cause(name, f"now {mark}") if name.startswith(("version:", "url:")) else Cause(name)


def _takes_place(state: SessionState, dependent: str, name: str) -> bool:
    """Return whether a dependent is what took the place of the input it was made from: that is no reason to doubt it."""
    by, seen = name[4:], set()
    while (by := state.inputs.superseded.get(by, "")) and by not in seen:
        if dependent == f"row:{by}":
            return True
        seen.add(by)
    return False


def look_at(state: SessionState, name: str, now_ms: int) -> tuple[str, str]:
    """Return (what is wrong with an input of this session, "" for nothing; its mark now, "" where nobody says)."""
    if name.startswith("row:"):
        id = name[4:]
        row = state.graph.row(id)
        if row is None or state.graph.is_hidden(row, now_ms):
            return "gone", ""
        by = state.inputs.superseded.get(id)
        return (f"superseded by {by}", "") if by else ("", row_mark(row))
    if name.startswith("slot:"):
        slot = state.silo.live(name[5:], now_ms)
        return ("gone", "") if slot is None else ("", slot_mark(slot.value))
    return "", str(state.settings.extra.get(name) or "")


def settle(inputs: Inputs, sheet: Sheet) -> Verdict:
    """Return what is stale on a sheet, directly or through others. Iterative, O(what is stale and who rests on it)."""
    direct, within, users = sheet.direct, sheet.within, inputs.dependents
    waits = dict.fromkeys(direct, 0)
    stack = list(direct)
    while stack:
        for user in users.get(stack.pop(), ()):
            if user in waits:
                waits[user] += 1
            elif within is None or user in within:
                waits[user] = 1
                stack.append(user)
    ready = sorted([dependent for dependent, count in waits.items() if not count])
    causes: dict[str, tuple[Cause, ...]] = {}
    inherited: dict[str, dict[Cause, None]] = {}
    at = 0
    while len(causes) < len(waits):
        if at == len(ready):  # a ring, which no write makes: begin it somewhere, so that nothing is left out
            ready.append(min(dependent for dependent in waits if dependent not in causes))
        dependent = ready[at]
        at += 1
        if dependent in causes:
            continue
        own, more = direct.get(dependent, ()), inherited.pop(dependent, None)
        found = causes[dependent] = tuple(own) if more is None and len(own) == 1 else tuple(dict.fromkeys([*own, *(more or ())]))[:CAUSES_KEPT]
        for user in users.get(dependent, ()):
            if user in waits and user not in causes:
                inherited.setdefault(user, {}).update(dict.fromkeys(found))
                waits[user] -= 1
                if not waits[user]:
                    ready.append(user)
    return Verdict(causes, direct)


# --- deciding ---------------------------------------------------------------------------------------------------------


def find_cycle(starts: Iterable[str], rests: Callable[[str], Iterable[str]]) -> list[str] | None:
    """Return a ring of names reached from starts, first and last alike; None where there is none. Iterative, each name once."""
    done: set[str] = set()
    for start in starts:
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, Iterator[str]]] = []
        if start in done:
            continue
        path.append(start)
        on_path.add(start)
        stack.append((start, iter(rests(start))))
        while stack:
            name, ahead = stack[-1]
            following = next(ahead, None)
            if following is None:
                stack.pop()
                path.pop()
                on_path.discard(name)
                done.add(name)
            elif following in on_path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                path.append(following)
                on_path.add(following)
                stack.append((following, iter(rests(following))))
    return None


def cycle_refusal(cycle: list[str]) -> Refused:
    return Refused(f"nothing can rest on itself: {' -> '.join(cycle)}", code="input_cycle", hint="leave the input out that leads back", path=cycle)


def resolve_inputs(state: SessionState, inputs: Iterable[Input], now_ms: int) -> list[Input]:
    """Return inputs with the marks of this session's own filled in. Raises Refused `no_such_input`, `superseded_input`."""
    found: dict[str, Input] = {}
    for given in inputs:
        if given.mark is not None:
            found[given.name] = given
            continue
        fault, mark = look_at(state, given.name, now_ms)
        if fault.startswith("superseded"):
            raise Refused(f"{given.name} was {fault}", code="superseded_input", hint=f"rest on row:{fault.rpartition(' ')[2]}", name=given.name)
        if fault or not mark:
            versioned = given.name.startswith(("version:", "url:"))
            hint = f"{given.name}=VALUE, or set its version first" if versioned else "check its name; an input must be there"
            raise Refused(f"there is no {given.name}", code="no_such_input", hint=hint, name=given.name)
        found[given.name] = Input(given.name, mark)
    if len(found) > INPUTS_OF_ONE:
        raise Refused(f"{len(found)} inputs of one dependent", code="too_many_inputs", hint="tree:FOLDER stands for many files", limit=INPUTS_OF_ONE)
    return list(found.values())


def rest_on(state: SessionState, facts: list[Fact], key: str, inputs: Iterable[Input], now_ms: int) -> list[Fact]:
    """Return facts in which the slot of key rests on these inputs. Raises Refused as `resolve_inputs`, `input_cycle`."""
    name = f"slot:{key}"
    resolved = resolve_inputs(state, [given for given in inputs if given.name != name or given.mark is not None], now_ms)
    names = [given.name for given in resolved]
    if any(given.name == name for given in inputs):
        raise cycle_refusal([name, name])
    cycle = find_cycle([name], lambda of: names if of == name else (rest[0] for rest in state.inputs.rests(of)))
    if cycle is not None:
        raise cycle_refusal(cycle)
    for fact in facts:
        if fact["f"] == "slot.put" and fact["k"] == key and resolved:
            fact["in"] = [given.record() for given in resolved]
    return facts
