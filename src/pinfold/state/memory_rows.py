"""Long-term memory as rows of a graph: what remembering, relating, interlinking and pruning write. Pure.

Rules kept here:
- A memory is named by (kind, label): writing it again patches it, counts the assertion and renews its age.
- A weight is 0..1; one that was not given changes nothing. An edge ages from its last assertion, at DECAY_PER_DAY.
- No edge joins a node to itself; what is pinned or persistent never decays and is never pruned.
- All or nothing: every item is checked before the first fact is made.

The assertions of a row are counted in its unknown key `n` (1 where there is none), so that no line shows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec

from pinfold import limits
from pinfold.dialect.parse import RESERVED, is_id, is_key, is_kind, is_relation
from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.state.draft import NEW_BORN, Draft, Work, put_fact
from pinfold.state.graph import Edge, Graph, Law, Node, format_time, line_of, parse_time
from pinfold.state.schema import OPEN_KINDS, Schema, near, near_ids
from pinfold.state.value import utf8_bytes

DECAY_PER_DAY = 0.05
STALE = 0.15
SIMILAR = 0.72
LINKED_AT_MOST = 200
ORPHAN_AGE_MS = 7 * 86_400_000
"""How long a memory without edges stays after an assertion; each further assertion buys as much again."""
DAY_MS = 86_400_000
COUNT = "n"
META = "meta"
INTERNAL = frozenset({"recycle", "ttl", "expires", "status", "pinned", "from_session", "from_seq", "weight", "superseded_by"})
"""Fields that say how a row is kept, not what it says: never indexed."""
_OURS = frozenset({"label", "content", META, "id", "merge", "ttl", "weight"})
_PINNED = frozenset({"true", "yes", "1", "on"})


# --- names --------------------------------------------------------------------------------------------------------


def kind_of_type(type: str) -> str:
    """Return the kind a type means: concept, file, symbol, note, or any other kind in any case. Raises Refused `bad_type`."""
    kind = type.upper() if isinstance(type, str) else ""
    if not is_kind(kind) or kind in RESERVED:
        raise Refused(f"{str(type)[:40]!r} is no type", code="bad_type", hint="concept, file, symbol, note, or a kind: A-Z a-z 0-9 _")
    return kind


def type_of(row: Node | Law | Work) -> str:
    """Return the type a row is shown as: concept, file, symbol, note in lower case, any other kind as it is."""
    kind = "LAW" if isinstance(row, Law) else row.kind
    return kind.lower() if kind in OPEN_KINDS else kind


def label_of(row: Node | Law | Work) -> str:
    """Return a row's label, else its id."""
    return row.get("label") or row.id


def content_of(row: Node | Law, schema: Schema | None = None) -> str:
    """Return what a row says: its content, else its line."""
    return row.get("content") or line_of(row, schema)


def count_of(row: Any) -> int:
    """Return how often a row was asserted."""
    extra = row.extra if isinstance(row, (Node, Edge)) else row.base.extra if isinstance(row, Work) and row.base is not None else None
    return int(extra.get(COUNT, 1)) if extra else 1


def metadata_of(row: Node | Edge) -> dict[str, Any]:
    """Return the fields that are neither label nor content, those of `meta` under their own names."""
    found: dict[str, Any] = {key: value for key, value in zip(row.keys, row.values, strict=True) if key not in ("label", "content", META, "weight")}
    return {**found, **_meta_of(row.get(META))}


def _meta_of(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


# --- weights and time ---------------------------------------------------------------------------------------------


def weight_of(row: Edge | Work) -> float:
    """Return an edge's weight, 0..1; 1 where it has none or what it has is no number."""
    text = row.get("weight")
    if not text:
        return 1.0
    try:
        weight = float(text)
    except ValueError:
        return 1.0
    return 1.0 if math.isnan(weight) else min(1.0, max(0.0, weight))


def is_kept(row: Any) -> bool:
    """Return whether a row is pinned or persistent: it does not decay and no pruning takes it."""
    return row.get("pinned").lower() in _PINNED or row.get("recycle") == "persistent"


def decayed(edge: Edge, now_ms: int) -> float:
    """Return weight e^(-0.05 days since the last assertion); what is pinned keeps its weight, the future counts as now."""
    if is_kept(edge):
        return weight_of(edge)
    return weight_of(edge) * math.exp(-DECAY_PER_DAY * max(0, now_ms - edge.mark[1]) / DAY_MS)


def check_weight(weight: Any) -> float | None:
    """Return a weight clamped to 0..1, None for none. Raises Refused `bad_weight` for NaN and what is no number."""
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or weight != weight:  # NaN
        raise Refused(f"weight={weight!r} is no weight", code="bad_weight", hint="a number from 0 to 1; leave it out to change nothing")
    return float(min(1, max(0, weight)))


def written(weight: float) -> str:
    return f"{weight:.4f}".rstrip("0").rstrip(".")


def moment_ms(moment: Any, name: str = "at") -> int | None:
    """Return Unix ms of an ISO 8601 text, a date, an aware datetime or Unix ms; None for none. A bare date is that day in UTC.

    Raises Refused `bad_time` for anything else: a time of day without a zone, NaN, a year no calendar has.
    """
    if moment is None or moment == "":
        return None
    hint = "an ISO 8601 time with its zone (2026-11-30T15:00:00Z), a date, or Unix ms"
    if isinstance(moment, str):
        try:
            parsed: Any = date.fromisoformat(moment) if len(moment) == 10 else datetime.fromisoformat(moment)
        except ValueError as error:
            raise Refused(f"{name}={moment[:60]!r} is no time", code="bad_time", hint=hint) from error
        moment = parsed
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise Refused(f"{name}={moment.isoformat()} has no time zone", code="bad_time", hint=f"write {moment.isoformat()}Z for UTC")
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(moment, bool) or not isinstance(moment, int):
        raise Refused(f"{name}={moment!r} is no time", code="bad_time", hint=hint)
    try:
        format_time(moment)
    except (OverflowError, ValueError) as error:
        raise Refused(f"{name}={moment} is in no calendar", code="bad_time", hint=hint) from error
    return moment


def event_ms(row: Node | Law) -> int | None:
    """Return the event time a row names: `at`, else since when it holds (`valid_from`); None where it names none."""
    return parse_time(row.get("at") or row.get("valid_from"))


# --- what may be written ------------------------------------------------------------------------------------------


def check_text(value: Any, name: str, *, needed: bool = False) -> str:
    """Return a field's text. Raises Refused `bad_value`, `value_too_large`."""
    if not isinstance(value, str):
        raise Refused(f"{name} is a {type(value).__name__}, not text", code="bad_value", hint=f"give {name} as text")
    try:
        size = utf8_bytes(value)
    except UnicodeEncodeError as error:
        raise Refused(f"{name} holds half a character (a lone surrogate)", code="bad_value", hint="give it as Unicode text") from error
    limit, most = limits.field_limit(name)
    if size > most:
        hint = "say it in parts, or keep the text in a file"
        raise Refused(f"{name} has {size} bytes, the limit {limit} is {most}", code="value_too_large", hint=hint, limit_bytes=most)
    if needed and not value.strip():
        raise Refused(f"{name} is empty", code="bad_value", hint=f"give {name} a text")
    return value


class Noted(msgspec.Struct, frozen=True):
    """Metadata as it is kept: legal field names as fields, the others in one JSON field. "" and None take a key away."""

    fields: dict[str, str]
    odd: dict[str, Any]


def check_metadata(metadata: Any) -> Noted:
    """Return metadata as it is kept. Raises Refused `bad_metadata`, and as `check_text`."""
    if metadata is None:
        return Noted({}, {})
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) and key for key in metadata):
        raise Refused("metadata is a map of names to values", code="bad_metadata", hint='{"source": "review"}')
    fields: dict[str, str] = {}
    odd: dict[str, Any] = {}
    for key, value in metadata.items():
        text = "" if value is None else value if isinstance(value, str) else _as_json(key, value)
        check_text(text, key)
        if is_key(key) and key not in _OURS:
            if key == "expires" and text and parse_time(text) is None:
                raise Refused(f"expires={text[:40]!r} is no time", code="bad_time", hint="an ISO 8601 time")
            fields[key] = text
        else:
            odd[key] = value if text else None
    return Noted(fields, odd)


def _as_json(key: str, value: Any) -> str:
    try:
        text = msgspec.json.encode(value).decode()
        if msgspec.json.decode(text) != value:
            raise ValueError("it would not come out as it went in")
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise Refused(f"the value of {key} cannot be kept: {error}", code="bad_metadata", hint="text, or JSON") from error
    return text


class Item(msgspec.Struct, frozen=True):
    """One memory to write, checked."""

    kind: str
    label: str
    content: str
    noted: Noted = Noted({}, {})


def check_item(type: str, label: Any, content: Any, metadata: Any = None) -> Item:
    """Return a memory as it is kept. Raises Refused `bad_type`, `bad_value`, `value_too_large`, `bad_metadata`."""
    return Item(kind_of_type(type), check_text(label, "label", needed=True), check_text(content, "content"), check_metadata(metadata))


def check_items(items: Any) -> list[Item]:
    """Return the items of a bulk write. Raises Refused naming the first that cannot be kept, by its place."""
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes)):
        raise Refused("items is a list", code="bad_item", hint='[{"type": "concept", "label": "…", "content": "…"}]')
    checked = []
    for place, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise Refused(f"items[{place}] is no map", code="bad_item", hint="type, label, content, metadata?", place=place)
        missing = [name for name in ("type", "label", "content") if name not in item]
        unknown = sorted(str(name) for name in set(item) - {"type", "label", "content", "metadata"})
        if missing or unknown:
            what = f"lacks {missing[0]!r}" if missing else f"has no {unknown[0]!r}"
            raise Refused(f"items[{place}] {what}; nothing was written", code="bad_item", hint="type, label, content, metadata?", place=place)
        try:
            checked.append(check_item(item["type"], item["label"], item["content"], item.get("metadata")))
        except Refused as refused:
            raise Refused(f"items[{place}]: {refused.message}; nothing was written", code=refused.code, hint=refused.hint, place=place) from refused
    return checked


# --- the draft ----------------------------------------------------------------------------------------------------


class Memories(Draft):
    """Memories written over a graph. A row that is asserted again is written again, even where nothing else changed."""

    def __init__(self, graph: Graph, schema: Schema, now_ms: int) -> None:
        super().__init__(graph, schema, now_ms)
        self._asserted: dict[str, tuple[Work, int]] = {}
        self._new_labels: dict[tuple[str, str], Work] = {}

    def find(self, kind: str, label: str) -> Work | Node | None:
        """Return the memory of a kind and label as it is now, the oldest where there are several."""
        work = self._new_labels.get((kind, label))
        if work is not None:
            return work
        found = [row for id in self.graph.labelled(kind, label) if (row := self.peek(id)) is not None and not isinstance(row, (Edge, Law))]
        return min((row for row in found if row.get("label") == label), key=lambda row: row.born, default=None)

    def create(self, kind: str, fields: dict[str, str]) -> Work:
        """Add a node with a minted id. Raises Refused `unknown_kind`, `unknown_field`, `pin_kind`."""
        self._check_kind(kind, fields)
        id, number = self.mint(kind, set())
        work = Work("node", id, {key: value for key, value in fields.items() if value}, 0, NEW_BORN + self.created, None, kind)
        work.minted = number
        self._check_size(work)
        self.enter(work)
        if "label" in work.fields:
            self._new_labels.setdefault((kind, work.fields["label"]), work)
        return work

    def upsert(self, item: Item, more: Mapping[str, str] | None = None) -> tuple[Work, bool, int]:
        """Return (row, whether it is new, how often it was asserted by now)."""
        changes = {**item.noted.fields, **(more or {})}
        row = self.find(item.kind, item.label)
        if row is None:
            fields = {"label": item.label, "content": item.content, **changes}
            if meta := _packed({}, item.noted.odd):
                fields[META] = meta
            return self.create(item.kind, fields), True, 1
        count = self._asserted[row.id][1] if row.id in self._asserted else count_of(row)
        work = self.take(row)
        if not (row is work and work.base is None):
            count += 1
            self._asserted[work.id] = (work, count)
        self._set(work, {"content": item.content, **changes}, item.noted.odd)
        self._check_kind(item.kind, work.fields)
        self.show(work)
        return work, False, count

    def relate(self, source: str, target: str, relation: str, weight: float | None, noted: Noted) -> tuple[Work, bool]:
        """Return (edge, whether it is new). Raises Refused `bad_relation`, `unknown_relation`, `self_loop`, `not_found`."""
        if not isinstance(relation, str) or not is_relation(relation):
            raise Refused(f"{str(relation)[:40]!r} is no relation", code="bad_relation", hint="A-Z a-z 0-9 _, like depends_on")
        if not self.schema.accepts_relation(relation):
            close = near(relation, self.schema.known_relations())
            hint = f"is it {' or '.join(close)}?" if close else "SCHEMA relations declares them"
            raise Refused(f"the relation {relation} is not declared", code="unknown_relation", hint=hint)
        for id in (source, target):
            self.node(id)
        if source == target:
            raise Refused(f"{source} cannot be related to itself", code="self_loop", hint="name two nodes", id=source)
        changes = dict(noted.fields)
        if weight is not None:
            changes["weight"] = written(weight)
        twin = self.between(source, relation, target)
        if twin is not None and self.is_hidden(twin):
            self.remove(twin)
            twin = None
        if twin is None:
            id, number = self.mint("E", set())
            work = Work("edge", id, {}, 0, NEW_BORN + self.created, None, "", source, relation, target)
            work.minted = number
            self._set(work, changes, noted.odd)
            self.attach(work)
            self.enter(work)
            return work, True
        count = self._asserted[twin.id][1] if twin.id in self._asserted else count_of(twin)
        work = self.take(twin)
        if work.base is not None:
            self._asserted[work.id] = (work, count + 1)
        self._set(work, changes, noted.odd)
        return work, False

    def node(self, id: str) -> Any:
        """Return a node as it is now. Raises Refused `not_found`, naming which, with ids near it."""
        row = self.peek(id) if isinstance(id, str) and is_id(id) else None
        if row is None or isinstance(row, (Edge, Law)) or (isinstance(row, Work) and row.form != "node"):
            close = near_ids(id, lambda other: self.peek(other) is not None) if isinstance(id, str) else []
            raise Refused(f"no node {str(id)[:80]}", code="not_found", hint=f"is it {' or '.join(close)}?" if close else "search for it", id=id, near=close)
        return row

    def facts(self) -> list[Fact]:
        facts = super().facts()
        puts = {fact["id"]: fact for fact in facts if fact["f"].endswith(".put")}
        for work, count in self._asserted.values():
            fact = puts.get(work.id)
            if fact is None:
                facts.append(fact := put_fact(work))
            fact[COUNT] = count
        return facts

    def _set(self, work: Work, changes: Mapping[str, str], odd: Mapping[str, Any]) -> None:
        for key, value in changes.items():
            if value:
                work.fields[key] = value
            else:
                work.fields.pop(key, None)
        if odd:
            meta = _packed(_meta_of(work.get(META)), odd)
            if meta:
                work.fields[META] = check_text(meta, META)
            else:
                work.fields.pop(META, None)
        self._check_size(work)

    def _check_size(self, work: Work) -> None:
        if len(work.fields) > limits.FIELDS_PER_ROW:
            raise Refused(f"{len(work.fields)} fields, FIELDS_PER_ROW is {limits.FIELDS_PER_ROW}", code="limit_exceeded", hint="put them in one JSON value")

    def _check_kind(self, kind: str, fields: Iterable[str]) -> None:
        schema = self.schema
        if not schema.accepts_kind(kind):
            close = near(kind, schema.known_kinds())
            hint = f"is it {' or '.join(close)}?" if close else "SCHEMA lines declare kinds"
            raise Refused(f"{kind} is not declared", code="unknown_kind", hint=hint)
        if schema.locator(kind) is not None:
            raise Refused(f"a {kind} is named by its {schema.locator(kind)}", code="pin_kind", hint="mutate creates it, under the id of its locator")
        for key in fields:
            if key not in ("label", "content", META) and not schema.accepts_field(kind, key):
                raise Refused(f"{kind} has no field {key}", code="unknown_field", hint=f"{kind} has {' '.join(schema.kinds[kind].fields) or 'none'}")


def _packed(old: Mapping[str, Any], odd: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in {**old, **odd}.items() if value is not None}
    try:
        return msgspec.json.encode(kept).decode() if kept else ""
    except UnicodeEncodeError as error:
        raise Refused("metadata with half of a surrogate pair is no text", code="bad_text", hint="leave it out, or escape it") from error


# --- interlinking -------------------------------------------------------------------------------------------------


class Linked(msgspec.Struct, frozen=True):
    """What a bulk write did: rows and edges, each once, and which of them are new."""

    nodes: list[tuple[str, str, str, bool]]
    edges: list[tuple[str, str, str, str, float, bool]]


def decide_interlink(
    graph: Graph,
    schema: Schema,
    items: Sequence[Item],
    similar: Sequence[Sequence[tuple[str, float]]],
    among: Sequence[tuple[int, int, float]],
    now_ms: int,
) -> tuple[list[Fact], Linked]:
    """Return the facts of writing items and linking them, as one.

    similar: for each item (id, cosine) of the rows there are that are alike; among: (place, place, cosine) of items alike.
    """
    draft = Memories(graph, schema, now_ms)
    rows = [draft.upsert(item) for item in items]
    nodes: dict[str, tuple[str, str, str, bool]] = {}
    for work, new, _ in rows:
        nodes.setdefault(work.id, (work.id, type_of(work), work.get("label"), new))
    wanted: dict[frozenset[str], tuple[str, str, float]] = {}
    pairs = [(rows[a][0].id, rows[b][0].id, cosine) for a, b, cosine in among]
    pairs += [(rows[place][0].id, id, cosine) for place, found in enumerate(similar) for id, cosine in found]
    for one, other, cosine in pairs:
        key = frozenset((one, other))
        if one != other and (key not in wanted or wanted[key][2] < cosine) and draft.peek(other) is not None:
            wanted[key] = (one, other, cosine)
    edges = []
    for one, other, cosine in wanted.values():
        if draft.between(one, "similar_to", other) is None and draft.between(other, "similar_to", one) is not None:
            one, other = other, one
        work, new = draft.relate(one, other, "similar_to", cosine, Noted({}, {}))
        edges.append((work.id, one, "similar_to", other, weight_of(work), new))
    return draft.facts(), Linked(list(nodes.values()), edges)


# --- pruning ------------------------------------------------------------------------------------------------------


class Gone(msgspec.Struct, frozen=True):
    """A row that pruning takes: its line and why."""

    id: str
    line: str
    why: str


def decide_prune_links(graph: Graph, schema: Schema, threshold: float, now_ms: int) -> tuple[list[Fact], tuple[list[Gone], int]]:
    """Return (facts, (what goes and why, edges that stay)): faded edges, then labelled nodes that nothing holds any more.

    Ages are those of journaled assertions. Pinned and persistent rows stay; so do rows of a group: their order holds them.
    """
    gone: list[Gone] = []
    lost: dict[str, int] = {}
    for edge in graph.edges.values():
        if is_kept(edge) or graph.is_hidden(edge, now_ms):
            continue
        left = decayed(edge, now_ms)
        if left < threshold:
            days = (now_ms - edge.mark[1]) / DAY_MS
            gone.append(Gone(edge.id, line_of(edge, schema), f"weight {written(weight_of(edge))} faded to {left:.3f} in {days:.0f} days"))
            for end in (edge.src, edge.dst):
                lost[end] = lost.get(end, 0) + 1
    faded = len(gone)
    for node in graph.nodes.values():
        if "label" not in node.keys or "group" in node.keys or graph.degree(node.id) > lost.get(node.id, 0):
            continue
        age_ms = now_ms - node.mark[1]
        if age_ms > ORPHAN_AGE_MS * count_of(node) and not is_kept(node) and node.id not in graph.expiring:
            asserted = "once" if count_of(node) == 1 else f"{count_of(node)} times"
            gone.append(Gone(node.id, line_of(node, schema), f"no edges, asserted {asserted}, last {age_ms / DAY_MS:.0f} days ago"))
    draft = Draft(graph, schema, now_ms)
    for row in gone:
        found = graph.row(row.id)
        assert found is not None
        draft.remove_one(found)
    return draft.facts(), (gone, len(graph.edges) - faded)


# --- forgetting ---------------------------------------------------------------------------------------------------

FORGOTTEN = "forgotten"
"""Why a row was dropped, in the fact: such an entry is not undone."""


def decide_forget_rows(
    graph: Graph, schema: Schema, ids: Iterable[str], matches: Callable[[Node | Edge | Law], bool] | None, now_ms: int
) -> tuple[list[Fact], list[str]]:
    """Return (facts, the ids that go): these rows and those that match, whoever pinned them, and the edges of each node."""
    draft = Draft(graph, schema, now_ms)
    chosen = [*ids, *(row.id for row in graph.rows() if matches(row))] if matches is not None else list(ids)
    for id in dict.fromkeys(chosen):
        row = draft.peek(id)
        if row is not None:
            draft.remove(row)
    return [{**fact, "why": FORGOTTEN} for fact in draft.facts()], draft.dropped()
