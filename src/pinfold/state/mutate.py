"""What a document of lines does to a graph: decide_mutate, pure.

Rules kept here:
- All or nothing: every problem is found, and one is enough to refuse. A refused line still acts in the draft where what
  it meant is plain, so that the lines behind it are judged as if it had been right.
- Lines act in order on a draft over the graph; a draft costs what the document touches, never what the graph holds.
- Facts record outcomes: whole rows, every dropped edge by name, minted numbers, absolute times.
- Dropped ids are named even where the row lived within the document only: their counters must move past them.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Any

import msgspec

from pinfold import limits
from pinfold.dialect.format import format_edge, format_law, format_node
from pinfold.dialect.legacy import translate
from pinfold.dialect.parse import (
    NEW,
    RESERVED,
    Batch,
    Op,
    Problem,
    column_of,
    column_of_name,
    is_id,
    is_key,
    is_law_id,
    is_number,
    is_relation,
)
from pinfold.entry import Fact
from pinfold.errors import DocumentRefused
from pinfold.state.graph import Edge, Graph, Law, Node, Row, counted_forms, format_time, line_of, parse_time, shown_fields
from pinfold.state.schema import BASE_RELATIONS, Kind, Schema, derive_id, kind_fact, near, near_ids, relations_fact

RECYCLE = ("persistent", "delete_on_settle", "delete_on_expire")
SETTLED = "settled"
VERBS = ("mutate", "add", "update")
_HINTED = 20
"""Problems that get near ids: looking for them probes some thousand spellings."""


class Mutated(msgspec.Struct, frozen=True):
    """What a document did: minted label or #k -> id; lines as they now read; dropped ids in order; warnings."""

    minted: dict[str, str]
    lines: list[str]
    dropped: list[str]
    warnings: list[str]


class _Work(msgspec.Struct):
    """A row of the draft: new (base None), or changed from its base. born ranks it among the edges of a node."""

    form: str
    id: str
    fields: dict[str, str]
    line: int
    born: int
    base: Row | None = None
    kind: str = ""
    src: str = ""
    rel: str = ""
    dst: str = ""
    minted: int | None = None
    shown: bool = False
    gone: bool = False


_MISSING = object()
_NEW_BORN = 1 << 62
_FORMS = {Node: "node", Edge: "edge", Law: "law"}


def decide_mutate(
    graph: Graph,
    schema: Schema,
    batch: Batch,
    *,
    verb: str = "mutate",
    now_ms: int,
    actor: str | None = None,
    if_seq: int | None = None,
    allow_new_relation: bool = False,
) -> tuple[list[Fact], Mutated]:
    """Return the facts of a document and what to answer. Changes neither graph nor schema. O(document and rows it touches).

    verb: mutate, add (creates, laws, schema) or update (patches, drops). if_seq: refuse if a touched row changed after it.
    Raises DocumentRefused with problems=[Problem, …], by line and column.
    """
    return _Draft(graph, schema, now_ms, if_seq, allow_new_relation).run(batch, verb)


def refuse(problems: Iterable[Problem]) -> DocumentRefused:
    """Return the refusal of a document with these problems, in order of line and column."""
    ordered = sorted(problems, key=lambda p: (p.line, p.column))
    count = len(ordered)
    first = f"{count} problems, the first: {ordered[0]}" if count > 1 else str(ordered[0])
    code = ordered[0].code if count == 1 else None
    return DocumentRefused(f"nothing was written: {first}", code=code, hint=ordered[0].hint, problems=ordered)


class _Draft:
    """The graph as it would be after the lines so far."""

    def __init__(self, graph: Graph, schema: Schema, now_ms: int, if_seq: int | None, allow_new_relation: bool) -> None:
        self.graph = graph
        self.old_schema = schema
        self.schema = schema
        self.now_ms = now_ms
        self.if_seq = if_seq
        self.allow_new_relation = allow_new_relation
        self.problems: list[Problem] = []
        self.poison: dict[str, int] = {}
        self.rows: dict[str, _Work | None] = {}
        self.works: list[_Work] = []
        self.shown: list[_Work] = []
        self.base_edges: set[str] = set()
        self.touched_base: dict[str, tuple[Row, int]] = {}
        self.adjacency: dict[str, dict[str, _Work]] = {}
        self.triples: dict[tuple[str, str, str], _Work] = {}
        self.left: dict[str, str] = {}
        self.removed: dict[str, None] = {}
        self.minted: dict[str, str] = {}
        self.unlabelled = 0
        self.labels: dict[str, _Work] = {}
        self.label_lines: dict[str, int] = {}
        self.counters: dict[str, int] = {}
        self.gone_numbers: dict[str, int] = {}
        self.mentioned: set[str] | None = None
        self.ops: list[Op] = []
        self.open_ends: list[tuple[Op, _Work]] = []
        self.kind_lines: dict[str, Op] = {}
        self.relations_line: Op | None = None
        self.warnings: list[str] = []
        self.created = 0

    # --- the run ------------------------------------------------------------------------------------------------

    def run(self, batch: Batch, verb: str) -> tuple[list[Fact], Mutated]:
        if verb not in VERBS:
            raise ValueError(f"verb is one of {VERBS}, not {verb!r}")
        self.problems.extend(batch.problems)
        self.poison.update(batch.poison)
        self.ops = batch.ops
        mixed = any(p.code == "mixed_dialect" for p in batch.problems)
        if batch.pipes and not mixed:
            if verb == "mutate":
                for line, _ in batch.pipes:
                    self.problems.append(Problem(line, 1, "present_on_mutate", "a pipe row does not say create or update", "use add or update, or write + or ~ lines"))
            else:
                ops, problems = translate(batch.pipes, verb, {k.name: k.fields for k in self.schema.kinds.values()})
                self.problems.extend(problems)
                self.ops = [*batch.ops, *ops]
        for op in self.ops:
            if verb != "mutate" and self._wrong_verb(op, verb):
                continue
            if op.op == "+":
                if op.form == "node":
                    self._create_node(op)
                elif op.form == "edge":
                    self._create_edge(op)
                else:
                    self._create_law(op)
            elif op.op == "~":
                self._patch(op)
            elif op.op == "-":
                self._drop(op)
            elif op.form == "schema":
                self._declare(op)
            else:
                self._present(op)
        self._resolve_ends()
        self._check_schema()
        if not self.problems:
            self._settle()
            self._check_size()
        self._check_seq()
        if self.problems:
            raise refuse(self.problems)
        return self._facts(), self._answer()

    def _wrong_verb(self, op: Op, verb: str) -> bool:
        creates = op.op == "+" or op.form == "schema"
        if (op.op == "" and op.form != "schema") or creates == (verb == "add"):
            return False
        other = "update or mutate" if verb == "add" else "add or mutate"
        what = "creates" if creates else "patches or drops"
        self._problem(op, 0, "op_mode_mismatch", f"this line {what}, {verb} does not", f"use {other}")
        self._taint(op)
        return True

    def _problem(self, op: Op, column: int, code: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(op.line, column or column_of(op.text, "\0"), code, message, hint))

    def _taint(self, op: Op) -> None:
        """A line that did not act: what it would have made or freed is not to be complained about further on."""
        for name in (op.id, f"NEW:{op.label}" if op.label else None, op.fields.get("id")):
            if name:
                self.poison.setdefault(name, op.line)

    def _hangs(self, op: Op, name: str) -> bool:
        """True where the trouble with name comes from an earlier refused line."""
        return self.poison.get(name, op.line) < op.line

    def _near(self, name: str) -> str:
        if len(self.problems) > _HINTED:
            return ""
        found = near_ids(name, lambda id: self.peek(id) is not None)
        return f"is it {' or '.join(found)}?" if found else "read it first: its id may have changed"

    # --- rows ---------------------------------------------------------------------------------------------------

    def peek(self, id: str) -> _Work | Node | Edge | Law | None:
        """Return the row of an id as it now is, without taking it into the draft."""
        work = self.rows.get(id, _MISSING)
        if work is not _MISSING:
            return work  # type: ignore[return-value]
        return self.graph.live(id, self.now_ms)

    def take(self, id: str, op: Op) -> _Work | None:
        """Return the draft's own row of an id, to be changed."""
        work = self.rows.get(id, _MISSING)
        if work is not _MISSING:
            return work  # type: ignore[return-value]
        row = self.graph.live(id, self.now_ms)
        return None if row is None else self._take_row(row, op)

    def _take_row(self, row: Node | Edge | Law, op: Op) -> _Work:
        work = _Work(_FORMS[type(row)], row.id, row.fields, op.line, row.born, row)
        self.touched_base.setdefault(row.id, (row, op.line))
        if isinstance(row, Node):
            work.kind = row.kind
        elif isinstance(row, Edge):
            work.src, work.rel, work.dst = row.src, row.rel, row.dst
            self.base_edges.add(row.id)
            self._attach(work)
        self.rows[row.id] = work
        self.works.append(work)
        return work

    def _attach(self, edge: _Work) -> None:
        for end in (edge.src, edge.dst):
            at = self.adjacency.get(end)
            if at is None:
                at = self.adjacency[end] = {}
            at[edge.id] = edge
        self.triples[(edge.src, edge.rel, edge.dst)] = edge

    def _detach(self, edge: _Work) -> None:
        for end in (edge.src, edge.dst):
            at = self.adjacency.get(end)
            if at is not None:
                at.pop(edge.id, None)
        key = (edge.src, edge.rel, edge.dst)
        if self.triples.get(key) is edge:
            del self.triples[key]

    def _edges_of(self, id: str) -> list[_Work | Edge]:
        """Return every edge of a node in the draft once, oldest first, hidden ones too."""
        taken = self.base_edges
        found: list[_Work | Edge] = [e for e in self.graph.edges_of(id) if e.id not in taken]
        found.extend(self.adjacency.get(id, {}).values())
        found.sort(key=lambda e: e.born)
        return found

    def _between(self, src: str, rel: str, dst: str) -> _Work | Edge | None:
        """Return the edge of a triple as the draft has it, hidden or not."""
        work = self.triples.get((src, rel, dst))
        if work is not None:
            return work
        edge = self.graph.edge_between(src, rel, dst)
        return None if edge is None or edge.id in self.base_edges else edge

    def _remove(self, row: _Work | Node | Edge | Law, op: Op) -> None:
        """Drop a row, and the edges of a node behind it."""
        edges = self._edges_of(row.id) if (row.form == "node" if isinstance(row, _Work) else isinstance(row, Node)) else []
        self._remove_one(row, op)
        for edge in edges:
            self._remove_one(edge, op)

    def _remove_one(self, row: _Work | Node | Edge | Law, op: Op) -> None:
        if isinstance(row, _Work):
            if row.form == "edge":
                self._detach(row)
            row.gone = True
            form = row.form
        else:
            self.touched_base.setdefault(row.id, (row, op.line))
            form = _FORMS[type(row)]
            if form == "edge":
                self.base_edges.add(row.id)
        self._leave(row.id, form)
        self.removed.pop(row.id, None)
        self.removed[row.id] = None

    def _leave(self, id: str, form: str) -> None:
        """An id that is no more moves the counters at once, as its fact will when it is applied."""
        self.rows[id] = None
        self.left[id] = form
        for prefix, number in counted_forms(id):
            if number > self.gone_numbers.get(prefix, 0):
                self.gone_numbers[prefix] = number

    def _free(self, id: str, op: Op) -> bool:
        """Return whether an id may be taken; a row whose time is over makes way, with its edges."""
        if id in self.rows:
            return self.rows[id] is None
        row = self.graph.row(id)
        if row is None:
            return True
        if not self.graph.is_hidden(row, self.now_ms):
            return False
        self._remove(row, op)
        return True

    def _show(self, work: _Work) -> None:
        if not work.shown:
            work.shown = True
            self.shown.append(work)

    # --- minting ------------------------------------------------------------------------------------------------

    def _mint(self, prefix: str) -> tuple[str, int]:
        if self.mentioned is None:
            self.mentioned = set()
            for op in self.ops:
                self.mentioned.update((op.id or "", op.src, op.dst, op.fields.get("id", "")))
        number = self.counters.get(prefix)
        if number is None:
            number = self.graph.counter(prefix)
        if self.gone_numbers:
            number = max(number, self.gone_numbers.get(prefix, 0))
        rows, graph, mentioned = self.rows, self.graph, self.mentioned
        while True:
            number += 1
            id = f"{prefix}{number}"
            if id not in mentioned and rows.get(id) is None and graph.row(id) is None:
                break
        self.counters[prefix] = number
        return id, number

    def _name(self, op: Op, work: _Work) -> None:
        """Note a minted id under its label or its number."""
        if op.label is None:
            self.unlabelled += 1
            self.minted[f"#{self.unlabelled}"] = work.id
        else:
            self.minted[op.label] = work.id

    def _label(self, op: Op) -> bool:
        """Return whether the op's label is its own."""
        if op.label is None:
            return True
        if op.label in self.label_lines:
            self._problem(op, column_of_name(op.text, f"NEW:{op.label}"), "label_exists", f"{op.label} is the label of line {self.label_lines[op.label]}", "one label, one row")
            return False
        self.label_lines[op.label] = op.line
        return True

    # --- creates ------------------------------------------------------------------------------------------------

    def _create_node(self, op: Op) -> None:
        problems = len(self.problems)
        kind, id, fields, schema = op.kind, op.id, op.fields, self.schema
        if kind in RESERVED:
            hint = "an edge is + [source] --(relation)--> [target]" if kind == "EDG" else "choose another kind"
            self._problem(op, column_of_name(op.text, kind), "reserved_id", f"{kind} is no kind of yours", hint)
        if op.sums or "id" in fields:
            fields = self._create_fields(op)
        if schema.kinds:
            if not schema.accepts_kind(kind):
                if kind not in RESERVED and not self._hangs(op, f"SCHEMA {kind}"):
                    self._problem(op, column_of_name(op.text, kind), "unknown_kind", f"{kind} is not declared", self._which(kind, schema.known_kinds(), "SCHEMA lines declare kinds"))
            else:
                self._check_fields(op, kind, fields)
        if not self._label(op):
            return
        locator = schema.locator(kind)
        if locator is not None:
            self._check_pin(op, kind, locator)
        if id is not None:
            if id in RESERVED:
                self._problem(op, column_of_name(op.text, id), "reserved_id", f"{id} is never an id", "write [NEW] to have one minted")
                self._taint(op)
                return
            if not self._free(id, op):
                self._taken(op, id, locator)
                return
        fields = self._life(op, fields, None)
        minted: int | None = None
        if id is None:
            id, minted = self._mint(kind)
        work = _Work("node", id, fields, op.line, _NEW_BORN + self.created, None, kind)
        work.minted = minted
        self.created += 1
        self._enter(work)
        if minted is not None:
            self._name(op, work)
            if op.label is not None:
                self.labels[op.label] = work
        if len(self.problems) > problems:
            work.gone = True  # judged by the lines behind, never written: the document is refused

    def _enter(self, work: _Work) -> None:
        self.rows[work.id] = work
        self.works.append(work)
        self._show(work)

    def _create_fields(self, op: Op) -> dict[str, str]:
        """Return the fields of a create that may stay, and refuse the others."""
        for key in op.sums:
            self._problem(op, column_of(op.text, key), "numeric_on_create", f"{key} has nothing to add to", f"write {key}={op.fields[key]}")
        if "id" in op.fields and "id" not in op.sums:
            self._problem(op, column_of(op.text, "id"), "id_on_create", "id= renames, it does not create", "write the id in the brackets")
        return {key: value for key, value in op.fields.items() if key != "id" and key not in op.sums}

    def _check_fields(self, op: Op, kind: str, fields: Iterable[str]) -> None:
        for key in fields:
            if not self.schema.accepts_field(kind, key):
                declared = self.schema.kinds[kind].fields
                self._problem(op, column_of(op.text, key), "unknown_field", f"{kind} has no field {key}", self._which(key, declared, f"{kind} has {' '.join(declared) or 'none'}"))

    def _which(self, name: str, candidates: Iterable[str], otherwise: str) -> str:
        found = near(name, candidates)
        return f"is it {' or '.join(found)}?" if found else otherwise

    def _check_pin(self, op: Op, kind: str, locator: str) -> None:
        value = op.fields.get(locator, "")
        at = op.id if op.id is not None else NEW
        if not value:
            self._problem(op, column_of_name(op.text, at), "new_on_pin", f"a {kind} is named by its {locator}, and this one has none", f"write {locator}=…")
            return
        derived = derive_id(kind, value)
        if op.id != derived:
            self._problem(op, column_of_name(op.text, at), "new_on_pin", f"the id of a {kind} comes from its {locator}", f"write [{derived}]")

    def _taken(self, op: Op, id: str, locator: str | None) -> None:
        if self._hangs(op, id):
            return
        row = self.peek(id)
        assert row is not None
        at = column_of_name(op.text, id)
        if locator is not None and (_kind_of(row) != op.kind or _field_of(row, locator) != op.fields.get(locator, "")):
            self._problem(op, at, "locator_clash", f"{id} is already another row: {self._line(row)}", f"its {locator} is not this one")
            return
        self._problem(op, at, "id_exists", f"{id} exists: {self._line(row)}", f"~ [{id}] patches it" if _form_of(row) == "node" else f"~ {id} patches it")

    def _create_edge(self, op: Op) -> None:
        problems = len(self.problems)
        id, src, rel, dst, fields = op.id, op.src, op.rel, op.dst, op.fields
        if op.sums or "id" in fields:
            fields = self._create_fields(op)
        if not self.schema.accepts_relation(rel):
            if self.allow_new_relation:
                self._own_schema().relations = (*(self.schema.relations or ()), rel)
            else:
                hint = self._which(rel, self.schema.known_relations(), "allow_new_relation admits it")
                self._problem(op, column_of_name(op.text, rel), "unknown_relation", f"{rel} is not declared", hint)
        if not self._label(op):
            return
        if id is not None:
            if id in RESERVED:
                self._problem(op, column_of_name(op.text, id), "reserved_id", f"{id} is never an id", "leave it out to have one minted")
                self._taint(op)
                return
            if not self._free(id, op):
                self._taken(op, id, None)
                return
        twin = self._between(src, rel, dst)
        if twin is not None and isinstance(twin, Edge) and self.graph.is_hidden(twin, self.now_ms):
            self._remove(twin, op)
            twin = None
        if twin is not None:
            # An edge whose own line did not act names nothing that can be patched.
            if not (self._hangs(op, src) or self._hangs(op, dst)):
                known = f"~ {twin.id} patches it" if isinstance(twin, Edge) or twin.minted is None else f"line {twin.line} creates it"
                self._problem(op, column_of_name(op.text, src), "edge_exists", f"{twin.id} is [{src}] --({rel})--> [{dst}]", known)
            self._taint(op)
            return
        fields = self._life(op, fields, None)
        minted: int | None = None
        if id is None:
            id, minted = self._mint("E")
        work = _Work("edge", id, fields, op.line, _NEW_BORN + self.created, None, "", src, rel, dst)
        work.minted = minted
        self.created += 1
        self._attach(work)
        self._enter(work)
        if minted is not None:
            self._name(op, work)
        self.open_ends.append((op, work))
        if len(self.problems) > problems:
            self._taint(op)

    def _create_law(self, op: Op) -> None:
        assert op.id is not None
        fields = self._create_fields(op) if op.sums or "id" in op.fields else op.fields
        if not self._free(op.id, op):
            self._taken(op, op.id, None)
            return
        self.created += 1
        self._enter(_Work("law", op.id, self._life(op, fields, None), op.line, _NEW_BORN + self.created))

    # --- how long a row lives -------------------------------------------------------------------------------------

    def _life(self, op: Op, fields: dict[str, str], old: dict[str, str] | None) -> dict[str, str]:
        """Return the fields to keep: without empty ones on a create, a ttl turned into its absolute time; checks recycle."""
        if "recycle" in fields:
            recycle = fields["recycle"]
            if (recycle and recycle not in RECYCLE) or "recycle" in op.sums:
                self._problem(op, column_of(op.text, "recycle"), "bad_recycle", f"recycle={recycle} is not known", f"it is one of {', '.join(RECYCLE)}")
        if "ttl" in fields or "expires" in fields:
            fields = self._expiry(op, dict(fields), old)
        if old is None and not all(fields.values()):
            fields = {key: value for key, value in fields.items() if value}
        return fields

    def _expiry(self, op: Op, fields: dict[str, str], old: dict[str, str] | None) -> dict[str, str]:
        ttl, expires = fields.get("ttl"), fields.get("expires")
        bad = ""
        if "ttl" in op.sums or "expires" in op.sums:
            bad = "a time is set, not added to"
        elif ttl and expires:
            bad = "ttl and expires are two ways to say one thing"
        elif expires and (at_ms := parse_time(expires)) is None:
            bad = f"expires={expires} is no ISO 8601 time"
        elif expires:
            assert at_ms is not None
            fields["expires"] = _time_or(at_ms, expires)
        elif ttl:
            span_ms = parse_ttl_ms(ttl)
            stamp = "" if span_ms is None else _time_or(self.now_ms + span_ms, "")
            if not stamp:
                bad = f"ttl={ttl} is not a time to live"
            else:
                fields = {("expires" if key == "ttl" else key): (stamp if key == "ttl" else value) for key, value in fields.items() if key != "expires"}
                if "recycle" not in fields and old is not None and old.get("recycle") == "persistent":
                    fields["recycle"] = "delete_on_expire"
        elif ttl == "":
            # Clearing the ttl clears the time it became.
            fields.pop("ttl")
            fields.setdefault("expires", "")
        if bad:
            key = "ttl" if "ttl" in fields else "expires"
            self._problem(op, column_of(op.text, key), "bad_ttl", bad, "ttl=30m: a whole number and s, m, h or d")
            fields.pop("ttl", None)
            fields.pop("expires", None)
        return fields

    # --- patches --------------------------------------------------------------------------------------------------

    def _patch(self, op: Op) -> None:
        row = self._target(op)
        if row is None:
            return
        new_id = op.fields.get("id")
        if new_id is None:
            work = row if isinstance(row, _Work) else self._take_row(row, op)
            self._show(work)
            self._set_fields(op, work, op.fields)
            return
        rest = {key: value for key, value in op.fields.items() if key not in ("id", "merge")}
        merge = op.fields.get("merge", "false")
        if "id" in op.sums or "merge" in op.sums:
            self._problem(op, column_of(op.text, "id" if "id" in op.sums else "merge"), "parse_error", "id and merge are set with =")
            self._taint(op)
        elif is_id(new_id) is None:
            self._problem(op, column_of(op.text, "id"), "parse_error", f"{new_id!r} is not an id" if new_id else "an id cannot be cleared", "letters, digits, _ . -")
            self._taint(op)
        elif merge not in ("true", "false", ""):
            self._problem(op, column_of(op.text, "merge"), "parse_error", f"merge={merge}", "merge is true or false")
            self._taint(op)
        elif new_id == row.id:
            work = row if isinstance(row, _Work) else self._take_row(row, op)
            self._show(work)
            self._set_fields(op, work, rest)
        elif merge == "true":
            self._merge(op, row, new_id, rest)
        else:
            self._rename(op, row, new_id, rest)

    def _target(self, op: Op) -> _Work | Node | Edge | Law | None:
        """Return the row that a patch or a drop names, or report that there is none."""
        if op.form == "edge" and op.id is None:
            edge = self._between(op.src, op.rel, op.dst)
            if edge is not None and not (isinstance(edge, Edge) and self.graph.is_hidden(edge, self.now_ms)):
                return edge
            if not (self._hangs(op, op.src) or self._hangs(op, op.dst)):
                self._problem(op, 0, "not_found", f"no edge [{op.src}] --({op.rel})--> [{op.dst}]", "+ creates it")
            return None
        assert op.id is not None
        row = self.peek(op.id)
        if row is None:
            if not self._hangs(op, op.id):
                self._problem(op, column_of_name(op.text, op.id), "not_found", f"no row {op.id}", self._near(op.id))
            self._taint_rename(op)
            return None
        if op.form == "edge":
            if not isinstance(row, (_Work, Edge)) or (row.src, row.rel, row.dst) != (op.src, op.rel, op.dst):
                if not self._hangs(op, op.id):
                    self._problem(op, column_of_name(op.text, op.id), "not_found", f"{op.id} is another row: {self._line(row)}", "name the edge by its id alone")
                self._taint_rename(op)
                return None
        return row

    def _taint_rename(self, op: Op) -> None:
        if (name := op.fields.get("id")) is not None:
            self.poison.setdefault(name, op.line)

    def _set_fields(self, op: Op, work: _Work, changes: dict[str, str]) -> None:
        """Change fields as a patch does; a refused field keeps its value."""
        fields = work.fields
        if work.form == "node" and self.schema.kinds:
            self._check_fields(op, work.kind, changes) if self.schema.accepts_kind(work.kind) else None
            locator = self.schema.locator(work.kind)
            if locator and locator in changes and (locator in op.sums or changes[locator] != fields.get(locator, "")):
                self._problem(op, column_of(op.text, locator), "locator_clash", f"{locator} names this {work.kind}", "drop it and create the other")
        changes = self._life(op, changes, fields)
        if op.replace:
            fields = work.fields = {}
        for key, value in changes.items():
            if key in op.sums:
                total = add_exact(fields.get(key, "0"), value)
                if total is None:
                    self._problem(op, column_of(op.text, key), "bad_numeric", f"{key} of {work.id} is not a number: {fields[key][:80]!r}", f"set it first: {key}={value.lstrip('+')}")
                    continue
                if len(total) > limits.FIELD_VALUE_BYTES:
                    self._problem(op, column_of(op.text, key), "limit_exceeded", f"{key} is over FIELD_VALUE_BYTES = {limits.FIELD_VALUE_BYTES}")
                    continue
                fields[key] = total
            elif value:
                fields[key] = value
            else:
                fields.pop(key, None)
        if len(fields) > limits.FIELDS_PER_ROW:
            self._problem(op, 0, "limit_exceeded", f"{work.id} has {len(fields)} fields, FIELDS_PER_ROW is {limits.FIELDS_PER_ROW}")
        if fields.get("recycle") == "persistent" and "expires" in fields and ("expires" in changes or "recycle" in changes):
            self.warnings.append(f"{work.id} is persistent and expires at {fields['expires']}; expires= keeps it")

    def _rename(self, op: Op, row: _Work | Node | Edge | Law, new_id: str, rest: dict[str, str]) -> None:
        at = column_of(op.text, "id")
        problems = len(self.problems)
        form = _form_of(row)
        if new_id in RESERVED:
            self._problem(op, at, "reserved_id", f"{new_id} is never an id", "choose another")
        elif form == "law" and is_law_id(new_id) is None:
            self._problem(op, at, "parse_error", "the id of a law stays a law's", "LAW and a digit, _, . or -")
        elif form == "node" and self.schema.locator(_kind_of(row)) is not None:
            self._problem(op, at, "new_on_pin", f"the id of a {_kind_of(row)} comes from its locator", "a pin keeps its id")
        elif not self._free(new_id, op):
            if not self._hangs(op, new_id):
                self._problem(op, at, "id_occupied", f"{new_id} is taken", f"; id={new_id} ; merge=true folds {row.id} into it" if form == "node" else "choose another")
        work = row if isinstance(row, _Work) else self._take_row(row, op)
        self._show(work)
        if len(self.problems) == problems and self._free(new_id, op):
            old_id = work.id
            if form == "node":
                for edge in self._edges_of(old_id):
                    self._retarget(edge, old_id, new_id, op)
            elif form == "edge":
                self._detach(work)
            self._leave(old_id, form)
            self.removed.pop(new_id, None)
            work.id = new_id
            self.rows[new_id] = work
            if form == "edge":
                self._attach(work)
        else:
            self._taint(op)
        self._set_fields(op, work, rest)

    def _retarget(self, edge: _Work | Edge, old: str, new: str, op: Op) -> None:
        work = edge if isinstance(edge, _Work) else self._take_row(edge, op)
        self._detach(work)
        work.src = new if work.src == old else work.src
        work.dst = new if work.dst == old else work.dst
        self._attach(work)

    def _merge(self, op: Op, row: _Work | Node | Edge | Law, into: str, rest: dict[str, str]) -> None:
        at = column_of(op.text, "id")
        target = self.peek(into)
        if target is None:
            if not self._hangs(op, into):
                self._problem(op, at, "not_found", f"no row {into} to merge into", self._near(into))
        elif _form_of(row) != "node" or _form_of(target) != "node":
            self._problem(op, at, "merge_edge", "only two nodes merge", "drop the edge and patch the other")
        elif _kind_of(row) != _kind_of(target):
            self._problem(op, at, "merge_kind", f"{row.id} is {_kind_of(row)}, {into} is {_kind_of(target)}", "only nodes of one kind merge")
        else:
            self._fold(op, row, target, rest)
            return
        self._taint(op)

    def _fold(self, op: Op, row: _Work | Node | Edge | Law, target: _Work | Node | Edge | Law, rest: dict[str, str]) -> None:
        old = row.id
        source = row.fields
        work = target if isinstance(target, _Work) else self._take_row(target, op)
        self._show(work)
        for key, value in source.items():
            work.fields.setdefault(key, value)
        self._set_fields(op, work, rest)
        edges = self._edges_of(old)
        self._remove_one(row, op)
        for edge in edges:
            src = work.id if edge.src == old else edge.src
            dst = work.id if edge.dst == old else edge.dst
            loop = src == dst and edge.src != edge.dst
            twin = None if loop else self._between(src, edge.rel, dst)
            if twin is not None and isinstance(twin, Edge) and self.graph.is_hidden(twin, self.now_ms):
                self._remove_one(twin, op)
                twin = None
            if loop or (twin is not None and twin.id != edge.id):
                self._remove_one(edge, op)
            else:
                self._retarget(edge, old, work.id, op)

    # --- drops and present lines ------------------------------------------------------------------------------------

    def _drop(self, op: Op) -> None:
        row = self._target(op)
        if row is not None:
            self._remove(row, op)

    def _present(self, op: Op) -> None:
        body = op.text.strip(" \t")
        row = self._between(op.src, op.rel, op.dst) if op.id is None else self.peek(op.id)
        if row is None:
            meant = f"+ {body}"
        elif op.form == "node":
            meant = "~ " + body[len(op.kind) :].lstrip(" \t")
        else:
            tail = body[body.find("]", body.find(")-->")) + 1 :]
            meant = f"~ {op.id}{tail}" if op.id is not None else f"~ {body}"
        self._problem(op, 0, "present_on_mutate", "this line only shows a row", meant)
        self._taint(op)

    # --- schema -----------------------------------------------------------------------------------------------------

    def _own_schema(self) -> Schema:
        if self.schema is self.old_schema:
            self.schema = self.old_schema.copy()
        return self.schema

    def _declare(self, op: Op) -> None:
        problems = len(self.problems)
        relations = op.kind == "relations"
        allowed = ("names",) if relations else ("fields", "pin")
        for key in op.fields:
            if key not in allowed:
                self._problem(op, column_of(op.text, key), "parse_error", f"a SCHEMA line has no {key}", f"it takes {' and '.join(allowed)}")
        names = (op.fields.get("names" if relations else "fields") or "").split()
        seen: set[str] = set()
        for name in names:
            if (is_relation(name) if relations else is_key(name)) is None:
                self._problem(op, column_of_name(op.text, name), "parse_error", f"{name!r} is no {'relation' if relations else 'field'}", "names stand apart by blanks")
            elif name in seen:
                self._problem(op, column_of_name(op.text, name, 2), "duplicate_field", f"{name} twice in one line")
            seen.add(name)
        if relations:
            self.relations_line = self.relations_line or op
            if len(self.problems) == problems:
                old = self.schema.relations or ()
                self._own_schema().relations = (*old, *(n for n in names if n not in old))
            return
        if op.kind in RESERVED:
            self._problem(op, column_of_name(op.text, op.kind), "reserved_id", f"{op.kind} is no kind of yours", "choose another kind")
        pin = op.fields.get("pin", "")
        if pin not in ("", "true", "false"):
            self._problem(op, column_of(op.text, "pin"), "parse_error", f"pin={pin}", "pin is true or false")
        fields = tuple(n for n in names if n != "id")
        known = self.schema.kinds.get(op.kind)
        if pin == "true" and not fields and (known is None or not known.fields):
            self._problem(op, column_of(op.text, "pin"), "parse_error", "a pin needs a field that locates it", 'fields="id path"')
        if len(self.problems) > problems:
            self.poison.setdefault(f"SCHEMA {op.kind}", op.line)
            return
        self.kind_lines.setdefault(op.kind, op)
        if known is not None:
            fields = (*known.fields, *(f for f in fields if f not in known.fields))
        is_pin = pin == "true" or (known is not None and known.pin and pin != "false")
        self._own_schema().kinds[op.kind] = Kind(op.kind, fields, is_pin, None if known is None else known.extra)
        self.schema._orders.clear()

    def _check_schema(self) -> None:
        """Refuse a declaration that rows which are there at the end would break. Reads the rows of the kinds it declares."""
        if self.schema is self.old_schema:
            return
        new, old = self.schema, self.old_schema
        if new.kinds and not old.kinds and self.kind_lines:
            op = next(iter(self.kind_lines.values()))
            homeless = [k for k in sorted(self.graph.kinds) if not new.accepts_kind(k) and any(self.peek(id) for id in self.graph.kinds[k])]
            homeless += [w.kind for w in self.works if w.form == "node" and not w.gone and w.base is None and not new.accepts_kind(w.kind)]
            if homeless:
                message = f"there are rows of {', '.join(dict.fromkeys(homeless))}, which no line declares"
                self._problem(op, column_of_name(op.text, op.kind), "schema_conflict", message, "declare every kind in use")
        if new.relations is not None and old.relations is None and self.relations_line is not None:
            op = self.relations_line
            used = [r for r in sorted(self.graph.relations) if not new.accepts_relation(r) and any(self.peek(id) for id in self.graph.relations[r])]
            used += [w.rel for w in self.works if w.form == "edge" and not w.gone and w.base is None and not new.accepts_relation(w.rel)]
            if used:
                self._problem(op, column_of_name(op.text, "relations"), "schema_conflict", f"there are edges with {', '.join(dict.fromkeys(used))}", "name every relation in use")
        for kind, op in self.kind_lines.items():
            was, now = old.kinds.get(kind), new.kinds[kind]
            if was is not None and (was.pin or not now.pin):
                continue
            self._check_rows(op, now)

    def _check_rows(self, op: Op, kind: Kind) -> None:
        rows: list[_Work | Node | Edge | Law] = [r for id in self.graph.kinds.get(kind.name, ()) if id not in self.rows and (r := self.peek(id)) is not None]
        rows.extend(w for w in self.rows.values() if w is not None and w.form == "node" and w.kind == kind.name)
        for row in rows:
            fields = row.fields
            stray = [key for key in fields if not self.schema.accepts_field(kind.name, key)]
            if stray:
                self._problem(op, column_of_name(op.text, kind.name), "schema_conflict", f"{row.id} has {', '.join(stray)}", f"declare {'it' if len(stray) == 1 else 'them'} too")
                return
            if kind.pin and row.id != derive_id(kind.name, fields.get(kind.locator or "", "")):
                self._problem(op, column_of_name(op.text, kind.name), "schema_conflict", f"{row.id} does not have the id of its locator", "drop or merge it first")
                return

    # --- the end of the document --------------------------------------------------------------------------------------

    def _resolve_ends(self) -> None:
        """Put ids for labels, and refuse edges whose ends are no nodes now."""
        for op, work in self.open_ends:
            if work.gone:
                continue
            ends: list[str] = []
            for nth, end in enumerate((work.src, work.dst)):
                got = self._end(op, end, 2 if nth and work.src == work.dst else 1)
                ends.append(end if got is None else got)
            if ends != [work.src, work.dst]:
                self._detach(work)
                work.src, work.dst = ends
                self._attach(work)

    def _end(self, op: Op, end: str, nth: int) -> str | None:
        if end.startswith("NEW:") or end == NEW:
            node = self.labels.get(end[4:])
            if node is not None:
                return node.id
            if end in self.poison and self.poison[end] != op.line:
                return None
            if end[4:] in self.label_lines:
                self._problem(op, column_of_name(op.text, end, nth), "no_such_node", f"{end[4:]} is the label of an edge", "an edge joins nodes")
                return None
            hint = "label the new node too: + KIND [NEW:x], then [NEW:x] is it" if end == NEW else f"no line creates one: + KIND [{end}]"
            self._problem(op, column_of_name(op.text, end, nth), "no_such_label", f"[{end}] names no new node", hint)
            return None
        row = self.peek(end)
        if row is not None and _form_of(row) == "node":
            return end
        if end in self.poison and self.poison[end] != op.line:
            return None
        what = f"no node {end}" if row is None else f"{end} is a {_form_of(row)}, not a node"
        self._problem(op, column_of_name(op.text, end, nth), "no_such_node", what, self._near(end))
        return None

    def _settle(self) -> None:
        """Drop what was to go when its work, or for an edge that of an end, is settled."""
        for work in list(self.works):
            if work.gone:
                continue
            op = Op("", "", work.line, "")
            if work.form == "edge":
                if work.fields.get("recycle") == "delete_on_settle" and (self._is_settled(work.src) or self._is_settled(work.dst)):
                    self._remove(work, op)
                continue
            if work.fields.get("status") != SETTLED:
                continue
            if work.fields.get("recycle") == "delete_on_settle":
                self._remove(work, op)
            elif work.form == "node" and (self.graph.on_settle or self.created):
                for edge in self._edges_of(work.id):
                    if _field_of(edge, "recycle") == "delete_on_settle":
                        self._remove(edge, op)

    def _is_settled(self, id: str) -> bool:
        row = self.peek(id)
        return row is not None and _field_of(row, "status") == SETTLED

    def _check_size(self) -> None:
        added = sum(1 for w in self.works if w.base is None and not w.gone)
        if added and len(self.graph) + added > limits.ROWS_PER_SESSION:
            last = next(w for w in reversed(self.works) if w.base is None and not w.gone)
            message = f"the graph would have {len(self.graph) + added} rows, ROWS_PER_SESSION is {limits.ROWS_PER_SESSION}"
            self.problems.append(Problem(last.line, 1, "limit_exceeded", message, "drop or forget rows first"))

    def _check_seq(self) -> None:
        if self.if_seq is None:
            return
        for row, line in self.touched_base.values():
            if row.mark[0] > self.if_seq:
                assert isinstance(row, (Node, Edge, Law))
                by = f" by {row.mark[2]}" if row.mark[2] else ""
                message = f"{row.id} changed at seq {row.mark[0]}{by}: {line_of(row, self.old_schema)}"
                self.problems.append(Problem(line, 1, "conflict", message, "read it again, then write"))

    def _line(self, row: _Work | Node | Edge | Law) -> str:
        if not isinstance(row, _Work):
            return line_of(row, self.schema)
        if row.form == "node":
            return format_node(row.id, row.kind, shown_fields(self.schema, row.kind, tuple(row.fields), tuple(row.fields.values())))
        if row.form == "edge":
            return format_edge(row.id, row.src, row.rel, row.dst, row.fields)
        return format_law(row.id, row.fields)

    def _answer(self) -> Mutated:
        lines = [self._line(w) for w in self.shown if not w.gone]
        dropped = [id for id in self.removed if self.peek(id) is None]
        return Mutated(self.minted, lines, dropped, self.warnings)

    def _facts(self) -> list[Fact]:
        """Return drops, then nodes, laws and edges in order of first touch: an id is free before it is taken again."""
        facts: list[Fact] = []
        new, old = self.schema, self.old_schema
        if new is not old:
            facts.extend(kind_fact(k) for k in new.kinds.values() if old.kinds.get(k.name) != k)
            if new.relations is not None and new.relations != old.relations:
                facts.append(relations_fact(new.relations))
        for form in ("edge", "node", "law"):
            facts.extend({"f": f"{form}.drop", "id": id} for id, what in self.left.items() if what == form)
        puts: dict[str, list[Fact]] = {"node": [], "law": [], "edge": []}
        for work in self.works:
            if not work.gone and not self._is_same(work):
                puts[work.form].append(_put(work))
        for form in ("node", "law", "edge"):
            facts.extend(puts[form])
        return facts

    def _is_same(self, work: _Work) -> bool:
        base = work.base
        if base is None or base.id != work.id or work.id in self.left:
            return False
        if isinstance(base, Edge) and (base.src, base.rel, base.dst) != (work.src, work.rel, work.dst):
            return False
        return tuple(work.fields) == base.keys and tuple(work.fields.values()) == base.values


def _put(work: _Work) -> Fact:
    fact: dict[str, Any] = {"f": f"{work.form}.put", "id": work.id}
    if work.form == "node":
        fact["kind"] = work.kind
    elif work.form == "edge":
        fact["src"], fact["rel"], fact["dst"] = work.src, work.rel, work.dst
    fact["fields"] = work.fields
    if work.minted is not None:
        fact["minted"] = work.minted
    base = work.base
    if base is not None:
        if base.extra:
            fact.update(base.extra)
        fact["born"] = base.born
        if base.id != work.id:
            fact["was"] = base.id
    return fact


def _form_of(row: _Work | Node | Edge | Law) -> str:
    return row.form if isinstance(row, _Work) else _FORMS[type(row)]


def _kind_of(row: _Work | Node | Edge | Law) -> str:
    return row.kind if isinstance(row, (_Work, Node)) else ""


def _field_of(row: _Work | Node | Edge | Law, key: str) -> str:
    return row.fields.get(key, "") if isinstance(row, _Work) else row.get(key)


def _time_or(at_ms: int, otherwise: str) -> str:
    try:
        return format_time(at_ms)
    except (OverflowError, ValueError):
        return otherwise


# --- numbers and spans -----------------------------------------------------------------------------------------------

_EXACT = Context(prec=4 * limits.FIELD_VALUE_BYTES)
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def add_exact(stored: str, number: str) -> str | None:
    """Return the exact decimal sum, plainly written (no exponent, no zeros at the end of a fraction, no -0).

    None where stored is not a number.
    """
    if is_number(stored) is None:
        return None
    text = format(_EXACT.add(Decimal(stored), Decimal(number)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def parse_ttl_ms(text: str) -> int | None:
    """Return the milliseconds of 90s, 30m, 2h, 7d; None for anything else, a bare number and 0 too."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_MS or not number.isascii() or not number.isdecimal() or len(number) > 15:
        return None
    return int(number) * _UNITS_MS[unit] or None
