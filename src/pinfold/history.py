"""A session as it was: past states, who wrote what, and merging a fork. Everything follows from the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pinfold.dialect.delta import Row, diff
from pinfold.dialect.format import format_value
from pinfold.entry import Entry, decode_entry
from pinfold.errors import JournalCorrupt, Refused
from pinfold.journal.base import Journal
from pinfold.state.graph import Edge, Graph, Law, Node
from pinfold.state.session import SessionState, apply, decode_snapshot
from pinfold.state.undo import GRAPH_FACTS

AnyRow = Node | Edge | Law


class Past:
    """The states of one session at earlier seqs. Keeps the last one made and moves it on, so that going forward is cheap."""

    def __init__(self, journal: Journal, journal_id: str) -> None:
        self._journal = journal
        self._id = journal_id
        self._state: SessionState | None = None

    def at(self, seq: int) -> SessionState:
        """Return the state after entry seq; not to be changed or kept by the caller. Raises Refused `history_gone`."""
        if seq < 0:
            raise Refused(f"there is no entry {seq}", code="bad_seq", hint="`log` shows the entries there are", seq=seq)
        state, self._state = self._state, None  # it is kept again once it is whole: an interrupt may fall anywhere in apply
        if state is None or state.seq > seq or not self._moved_on(state, seq):
            state = self._replayed(seq)
        self._state = state
        if state.seq != seq:
            raise Refused(f"there is no entry {seq}: the last is {state.seq}", code="bad_seq", hint="`log` shows the entries there are", seq=seq)
        return state

    def _replayed(self, seq: int) -> SessionState:
        """Return the state at seq, or at the last entry there is. Raises JournalCorrupt."""
        problem: JournalCorrupt | None = None
        for _ in range(3):  # a compaction may trim, an erasure rewrite, between the two reads
            try:
                state = self._base(seq)
                for record in self._journal.read(self._id, state.seq, max(0, seq - state.seq)):
                    apply(state, decode_entry(record), record.hash)
                return state
            except JournalCorrupt as error:
                problem = error
        assert problem is not None
        raise problem

    def _moved_on(self, state: SessionState, seq: int) -> bool:
        """Move a kept state on to seq; False where the history it stands in was replaced meanwhile."""
        try:
            for record in self._journal.read(self._id, state.seq, seq - state.seq) if seq > state.seq else ():
                apply(state, decode_entry(record), record.hash)
        except JournalCorrupt:
            return False
        return state.seq == seq

    def _base(self, seq: int) -> SessionState:
        """Return the newest readable snapshot at or before seq, or the beginning."""
        for snapshot in self._journal.load_snapshots(self._id):
            if snapshot.seq <= seq:
                try:
                    return decode_snapshot(snapshot.verified())
                except JournalCorrupt:
                    continue
        first = self._journal.read(self._id, 0, 1)
        if first and first[0].seq > 1:
            raise Refused(f"the history before entry {first[0].seq} is no longer kept", code="history_gone", hint="ask for a later one", first_seq=first[0].seq)
        return SessionState()

    def entry(self, seq: int) -> Entry:
        """Return one retained entry. Raises Refused `history_gone`, `bad_seq`."""
        records = self._journal.read(self._id, seq - 1, 1) if seq > 0 else []
        if not records:
            raise Refused(f"there is no entry {seq}", code="bad_seq", hint="`log` shows the entries there are", seq=seq)
        if records[0].seq != seq:
            raise Refused(f"entry {seq} is no longer kept", code="history_gone", hint="ask for a later one", first_seq=records[0].seq)
        return decode_entry(records[0])

    def entries(self) -> Iterator[Entry]:
        """Yield the retained entries, oldest first."""
        after = 0
        while records := self._journal.read(self._id, after, 1000):
            for record in records:
                yield decode_entry(record)
            after = records[-1].seq

    def seq_at(self, at_ms: int) -> int:
        """Return the seq of the last entry written at or before Unix time at_ms, 0 where all came later. By bisection."""
        first = self._journal.read(self._id, 0, 1)
        info = self._journal.info(self._id)
        if not first or info is None or decode_entry(first[0]).at_ms > at_ms:
            if first and first[0].seq > 1:
                raise Refused("that time lies before the retained history", code="history_gone", hint="ask for a later one", first_seq=first[0].seq)
            return 0
        low, high = first[0].seq, info.last_seq
        while low < high:
            middle = (low + high + 1) // 2
            if self.entry(middle).at_ms <= at_ms:
                low = middle
            else:
                high = middle - 1
        return low


def content(row: AnyRow | None) -> Any:
    """Return what a row says, without who wrote it when: equal for rows that read alike."""
    if row is None:
        return None
    if isinstance(row, Node):
        return ("node", row.kind, row.fields)
    if isinstance(row, Edge):
        return ("edge", row.src, row.rel, row.dst, row.fields)
    return ("law", row.fields)


def rows_of(graph: Graph, ids: list[str] | None = None) -> list[Row]:
    """Return rows (all, or those of these ids that are there) as a diff takes them."""
    found = graph.rows() if ids is None else (row for id in ids if (row := graph.row(id)) is not None)
    return [as_row(row) for row in found]


def as_row(row: AnyRow) -> Row:
    """Return a row as a diff takes it."""
    if isinstance(row, Node):
        return Row("node", row.id, row.fields, kind=row.kind)
    if isinstance(row, Edge):
        return Row("edge", row.id, row.fields, src=row.src, rel=row.rel, dst=row.dst)
    return Row("law", row.id, row.fields)


def diff_states(a: SessionState, b: SessionState) -> str:
    """Return a mutate document that turns the graph of a into that of b; empty where they are alike."""
    schema = [line for line in b.schema.lines() if line not in a.schema.lines()]
    return "\n".join([*schema, *diff(rows_of(a.graph), rows_of(b.graph))])


# --- blame --------------------------------------------------------------------------------------------------------


class Blame(msgspec.Struct, frozen=True):
    """Who last wrote one thing of a row. field: "" for the row itself. at_ms: Unix time."""

    field: str
    value: str
    seq: int
    at_ms: int
    actor: str | None


def blame(past: Past, row: AnyRow) -> list[Blame]:
    """Return, for a row and each of its fields, the retained entry that last gave it that value.

    What was written before the retained history is laid to the row's last writer known from then.
    """
    found: dict[str, Blame] = {}
    was: dict[str, str] | None = None
    id = row.id
    names = _names_of(past, id)
    for entry in past.entries():
        for fact in entry.facts:
            if fact.get("id") not in names or fact["f"] not in GRAPH_FACTS:
                continue
            if fact["f"].endswith(".drop"):
                if fact["id"] == id:
                    found, was = {}, None
                continue
            fields = fact.get("fields") or {}
            if was is None or "" not in found:
                found[""] = Blame("", "", entry.seq, entry.at_ms, entry.actor)
            for name, value in fields.items():
                if was is None or was.get(name) != value:
                    found[name] = Blame(name, value, entry.seq, entry.at_ms, entry.actor)
            was = dict(fields)
    seq, at_ms, actor = row.mark
    found.setdefault("", Blame("", "", seq, at_ms, actor))
    return [found[""], *(found.get(name) or Blame(name, value, seq, at_ms, actor) for name, value in row.fields.items())]


def _names_of(past: Past, id: str) -> set[str]:
    """Return id and every id the row had before a rename."""
    names = {id}
    for entry in reversed(list(past.entries())):
        for fact in entry.facts:
            if fact.get("was") and fact.get("id") in names:
                names.add(fact["was"])
    return names


# --- merging a fork -----------------------------------------------------------------------------------------------


class Merge(msgspec.Struct, frozen=True):
    """What a fork adds to ours: a document, or the conflicts in it as comment lines.

    renamed: ids of both sides, theirs by its label in the document. joined: their edges that are one with an edge here, by its id.
    """

    document: str
    conflicts: list[str]
    renamed: dict[str, str]
    joined: dict[str, str]


def merge_document(base: Graph, ours: Graph, theirs: Graph, known: Mapping[str, str]) -> Merge:
    """Return the document that brings what theirs changed since base into ours, row by row and field by field.

    known: rows of theirs that an earlier merge brought here under another id. A row changed here and dropped there, a field
    or an edge's ends changed on both sides to different values, and an edge to a row that is gone are conflicts. A row created
    on both sides under one id gets a new id here; an edge created on both sides between the same rows is one edge.
    """
    names = _names_here(known, base, theirs)
    was, there, here = _rows_named(base, names), _rows_named(theirs, names), _rows_named(ours, {})
    taken: dict[str, Row] = {}
    wanted: dict[str, Row] = {}
    conflicts: list[str] = []
    fresh: dict[str, Row] = {}
    joined: dict[str, str] = {}
    for row in sorted(there.values(), key=lambda row: row.form == "edge"):
        old, mine = was.get(row.id), here.get(row.id)
        if old is None:
            on_fresh = row.src in fresh or row.dst in fresh
            edge = ours.edge_between(row.src, row.rel, row.dst) if row.form == "edge" and not on_fresh else None
            if edge is not None and edge.id not in was:
                twin = here[edge.id]
                merged, clashes = _merge_row(msgspec.structs.replace(twin, fields={}), twin, row)
                conflicts += clashes
                taken[twin.id], wanted[twin.id] = twin, merged
                joined |= {row.id.removesuffix(_TAKEN): twin.id} if row.id != twin.id else {}
            elif row.id.endswith(_TAKEN) or (mine is not None and (on_fresh or mine != row)):
                fresh[row.id] = row
            elif mine is None:
                wanted[row.id] = row
        elif row == old:
            continue
        elif mine is None:
            conflicts.append(f"# conflict {row.id}: changed there, dropped here")
        else:
            merged, clashes = _merge_row(old, mine, row)
            conflicts += clashes
            taken[row.id], wanted[row.id] = mine, merged
    for row in was.values():
        if row.id not in there and (mine := here.get(row.id)) is not None:
            if mine == row:
                taken[row.id] = mine
            else:
                conflicts.append(f"# conflict {row.id}: dropped there, changed here")
    gone = {id for id in taken if id not in wanted}
    labels = {id: f"NEW:m{number}" for number, id in enumerate(fresh)}
    lines = diff(list(taken.values()), [_renamed(row, labels) for row in wanted.values()])
    lines += [_create(_renamed(row, labels), labels[id]) for id, row in fresh.items() if row.form != "law"]
    conflicts += [f"# conflict {id}: created on both sides" for id, row in fresh.items() if row.form == "law"]
    for new in [*wanted.values(), *fresh.values()]:
        for end in (new.src, new.dst) if new.form == "edge" else ():
            if end not in fresh and end not in wanted and (end not in ours.nodes or end in gone):
                conflicts.append(f"# conflict {new.id}: its end {end} is gone here")
    hanging = [edge for id in sorted(gone) if id in ours.nodes for edge in ours.edges_of(id) if edge.id not in gone and edge.id not in was]
    conflicts += [f"# conflict {edge.id}: hangs here on what was dropped there" for edge in hanging]
    return Merge("\n".join(lines), list(dict.fromkeys(conflicts)), {id.removesuffix(_TAKEN): label for id, label in labels.items()}, joined)


_TAKEN = "'"
"""Marks a row of theirs whose id means another row here: in no id that is written."""


def _names_here(known: Mapping[str, str], *graphs: Graph) -> dict[str, str]:
    """Return how rows of theirs are called here, where it is not by their own id."""
    taken = set(known.values())
    return {**{id: f"{id}{_TAKEN}" for graph in graphs for id in taken if graph.row(id) is not None}, **known}


def _rows_named(graph: Graph, names: Mapping[str, str]) -> dict[str, Row]:
    """Return the rows as a diff takes them, under the names they have here."""
    rows = (as_row(row) for row in graph.rows())
    if names:
        rows = (msgspec.structs.replace(row, id=names.get(row.id, row.id), src=names.get(row.src, row.src), dst=names.get(row.dst, row.dst)) for row in rows)
    return {row.id: row for row in rows}


def _merge_row(base: Row, ours: Row, theirs: Row) -> tuple[Row, list[str]]:
    clashes: list[str] = []
    if _shape(theirs) not in (_shape(base), _shape(ours)):
        if _shape(ours) == _shape(base):
            ours = msgspec.structs.replace(theirs, fields=ours.fields)
        else:
            clashes.append(f"# conflict {base.id}: another row stands here under this id")
    fields = dict(ours.fields)
    for name in dict.fromkeys([*base.fields, *theirs.fields]):
        was, mine, other = base.fields.get(name, ""), ours.fields.get(name, ""), theirs.fields.get(name, "")
        if other in (was, mine):
            continue
        if mine != was:
            clashes.append(f"# conflict {base.id} {name}: base={format_value(was)} here={format_value(mine)} there={format_value(other)}")
        elif other:
            fields[name] = other
        else:
            fields.pop(name, None)
    return msgspec.structs.replace(ours, fields=fields), clashes


def _shape(row: Row) -> tuple[str, ...]:
    return row.form, row.kind, row.src, row.rel, row.dst


def _renamed(row: Row, renamed: dict[str, str]) -> Row:
    return msgspec.structs.replace(row, src=renamed.get(row.src, row.src), dst=renamed.get(row.dst, row.dst)) if row.form == "edge" else row


def _create(row: Row, name: str) -> str:
    fields = "".join(f" ; {key}={format_value(value)}" for key, value in row.fields.items())
    return f"+ {row.kind} [{name}]{fields}" if row.form == "node" else f"+ {name} [{row.src}] --({row.rel})--> [{row.dst}]{fields}"
