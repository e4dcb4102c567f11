"""Rows of another system's store written into a session: in batches, each one entry; again: only what differs.

Rules kept here:
- What is there and says the same is left alone; a field that the source does not name is never touched.
- A row under the source's own id that says otherwise may be somebody else's: it is kept, and named, unless `replace`.
- Nothing is refused for the session's schema: kinds and fields it lacks are declared along with the rows, relations let in.
- A value too long for a field is kept whole in a slot, whose key the row names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from pinfold import limits
from pinfold.dialect.parse import Batch, Op
from pinfold.entry import Fact
from pinfold.graph_session import check_rows, rows_finished
from pinfold.importers.records import Read, Record, named
from pinfold.session import Session
from pinfold.state.graph import Edge, Graph, Node, Row
from pinfold.state.mutate import decide_mutate
from pinfold.state.schema import Schema, derive_id
from pinfold.state.session import SessionState

BATCH_ROWS = 1_000
BATCH_BYTES = limits.DOCUMENT_BYTES // 2
NAMED = 10
"""Ids that are named of rows that were kept."""

Progress = Callable[[int, int], None]


class Imported(msgspec.Struct, frozen=True):
    """What an import did, or would do: rows by what became of them; left: what could not be carried -> how often."""

    created: dict[str, int]
    updated: int
    unchanged: int
    kept: list[str]
    left: dict[str, int]
    notes: list[str]
    seq: int


def write(session: Session, read: Read, *, dry_run: bool = False, replace: bool = False, progress: Progress | None = None) -> Imported:
    """Write what a reader found. progress: called with (rows done, rows in all) after each batch. Raises as `mutate`."""
    for record in (*read.laws, *read.nodes.values(), *read.edges):
        _shorten(session, record, read, dry_run)
    plan = _Plan(read, replace)
    edges: dict[tuple[str, str, str], Record] = {}
    for edge in read.edges:
        edges.setdefault((edge.src, edge.rel, edge.dst), edge)
    if len(edges) < len(read.edges):
        read.left["relations that stand there twice"] += len(read.edges) - len(edges)
    rows: list[Record] = [*read.laws, *read.nodes.values(), *edges.values()]
    with session._replica.lock:
        view = session._view()
        if dry_run:
            plan.ops(view.graph, view.schema, rows, view.now_ms)
            return plan.told(view.seq)
        schema = _declared(read) if not (view.schema.kinds or view.schema.relations or len(view.graph)) else []
    done = 0
    for batch in _batches(rows):
        _write_batch(session, plan, batch, schema)
        schema = []
        done += len(batch)
        if progress is not None:
            progress(done, len(rows))
    return plan.told(session.status().seq)


def _write_batch(session: Session, plan: _Plan, rows: Sequence[Record], schema: list[Op]) -> None:
    def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], _Plan]:
        made = plan.fork()  # a turn that loses to another writer decides again
        batch = Batch([*schema, *made.ops(state.graph, state.schema, rows, now_ms)], [], {}, [], len(rows))
        facts, _ = decide_mutate(state.graph, state.schema, batch, now_ms=now_ms, allow_new_relation=True)
        facts = rows_finished(state, facts, now_ms)
        check_rows(state.graph, facts)
        return facts, made

    plan.take(session._turn(decide))


def _batches(rows: Sequence[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += 64 + sum(len(value) for value in row.fields.values())
        if len(batch) == BATCH_ROWS or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _declared(read: Read) -> list[Op]:
    """Return the SCHEMA lines that a store brings, for a session in which nothing is yet."""
    ops = [Op("", "schema", 0, f"SCHEMA {kind}", kind=kind, fields={"fields": " ".join(["id", *fields])}) for kind, fields in read.kinds.items()]
    if read.relations:
        ops.append(Op("", "schema", 0, "SCHEMA relations", kind="relations", fields={"names": " ".join(read.relations)}))
    return ops


def _shorten(session: Session, record: Record, read: Read, dry_run: bool) -> None:
    """Move a node's values that are too long for a field into slots; a part stays, so that it is found."""
    for key, value in list(record.fields.items()):
        if len(value) * 4 <= limits.FIELD_VALUE_BYTES or len(raw := value.encode()) <= limits.FIELD_VALUE_BYTES:
            continue
        record.fields[key] = raw[: limits.FIELD_VALUE_BYTES].decode("utf-8", "ignore")
        if record.form != "node" or len(raw) > limits.VALUE_BYTES:
            read.left["values of which only the beginning was kept"] += 1
            continue
        slot = f"import:{record.id}:{key}"
        record.fields[f"{key}_slot"] = slot
        read.notes.append(f"{key} of {record.id} has {len(raw)} bytes: its beginning is in the row, all of it in slot {slot}")
        if not dry_run and getattr(session.peek(slot), "value", None) != value:
            session.set(slot, value)


class _Plan:
    """What becomes of rows on a graph, as records of a document; counted."""

    def __init__(self, read: Read, replace: bool) -> None:
        self.read = read
        self.replace = replace
        self.created = {"nodes": 0, "edges": 0, "laws": 0}
        self.updated = self.unchanged = 0
        self.kept: list[str] = []
        self.left: dict[str, int] = {}

    def fork(self) -> _Plan:
        return _Plan(self.read, self.replace)

    def take(self, other: _Plan) -> None:
        for form, count in other.created.items():
            self.created[form] += count
        self.updated += other.updated
        self.unchanged += other.unchanged
        self.kept += other.kept
        for name, count in other.left.items():
            self.left[name] = self.left.get(name, 0) + count

    def told(self, seq: int) -> Imported:
        notes = list(self.read.notes)
        if self.kept:
            notes.append(f"they say otherwise here and were kept ({named(self.kept, NAMED)}); with replace the file's values count")
        left = {**self.read.left, **self.left}
        return Imported(self.created, self.updated, self.unchanged, self.kept, {name: count for name, count in left.items() if count}, notes, seq)

    def ops(self, graph: Graph, schema: Schema, rows: Iterable[Record], now_ms: int) -> list[Op]:
        """Return the records that make the graph hold these rows. O(rows)."""
        ops: list[Op] = []
        news: set[str] = set()
        fields: dict[str, dict[str, None]] = {}
        for row in rows:
            op = self._edge(graph, row, now_ms, news) if row.form == "edge" else self._row(graph, schema, row, now_ms)
            if op is None:
                continue
            ops.append(op)
            if op.op == "+" and op.id is not None:
                news.add(op.id)
            if row.form == "node":
                fields.setdefault(row.kind, {}).update(dict.fromkeys(op.fields))
        return [*_widened(schema, fields), *ops]

    def _row(self, graph: Graph, schema: Schema, row: Record, now_ms: int) -> Op | None:
        assert row.id is not None
        there = graph.live(row.id, now_ms)
        kind = there.kind if isinstance(there, Node) else ""
        if there is not None and (isinstance(there, Edge) or kind != row.kind):
            self._lost(f"rows whose id is another row's ({row.id})")
            return None
        if there is not None:
            return self._changed(row, there)
        locator = schema.locator(row.kind) if row.form == "node" else None
        if locator is not None and row.id != derive_id(row.kind, row.fields.get(locator, "")):
            self._lost(f"rows of {row.kind}, which is a pin kind here")
            return None
        self.created["nodes" if row.form == "node" else "laws"] += 1
        return Op("+", row.form, 0, "", row.id, row.kind, fields=row.fields)

    def _edge(self, graph: Graph, row: Record, now_ms: int, news: set[str]) -> Op | None:
        for end in (row.src, row.dst):
            if end not in news and not isinstance(graph.live(end, now_ms), Node):
                self._lost("relations whose end is not here")
                return None
        there = graph.edge_between(row.src, row.rel, row.dst)
        if there is not None and not graph.is_hidden(there, now_ms):
            return self._changed(row, there)
        self.created["edges"] += 1
        id = row.id if row.id is not None and graph.row(row.id) is None and row.id not in news else None
        return Op("+", "edge", 0, "", id, "", None, row.src, row.rel, row.dst, row.fields)

    def _changed(self, row: Record, there: Row) -> Op | None:
        changes = {key: value for key, value in row.fields.items() if there.get(key) != value}
        if not changes:
            self.unchanged += 1
            return None
        if self.read.own_ids and not self.replace:
            self.kept.append(there.id)
            return None
        self.updated += 1
        return Op("~", "row", 0, "", there.id, fields=changes)

    def _lost(self, why: str) -> None:
        self.left[why] = self.left.get(why, 0) + 1


def _widened(schema: Schema, fields: dict[str, dict[str, None]]) -> list[Op]:
    """Return the SCHEMA lines for kinds and fields that a session with declared kinds lacks."""
    ops = []
    for kind, names in fields.items() if schema.kinds else ():
        if schema.accepts_kind(kind) and all(schema.accepts_field(kind, name) for name in names):
            continue
        ops.append(Op("", "schema", 0, f"SCHEMA {kind}", kind=kind, fields={"fields": " ".join(["id", *names])}))
    return ops
