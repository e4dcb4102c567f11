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

import msgspec

from pinfold import limits
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
from pinfold.state.draft import NEW_BORN, AnyRow, Draft, Work, form_of, kind_of
from pinfold.state.graph import Edge, Graph, Law, Node, format_time, line_of, parse_time
from pinfold.state.schema import Kind, Schema, derive_id, kind_fact, near, near_ids, relations_fact

RECYCLE = ("persistent", "delete_on_settle", "delete_on_expire")
SETTLED = "settled"
VERBS = ("mutate", "add", "update")
_MEANT = frozenset({"id", "merge", "recycle", "ttl", "expires"})
"""Keys that mean something beyond their value."""
_HINTED = 20
"""Problems that get near ids: looking for them probes some thousand spellings."""


class Mutated(msgspec.Struct, frozen=True):
    """What a document did: minted label or #k -> id; lines as they now read; dropped ids in order; warnings."""

    minted: dict[str, str]
    lines: list[str]
    dropped: list[str]
    warnings: list[str]


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
    return _Document(graph, schema, now_ms, if_seq, allow_new_relation).run(batch, verb)


def refuse(problems: Iterable[Problem]) -> DocumentRefused:
    """Return the refusal of a document with these problems, in order of line and column."""
    ordered = sorted(problems, key=lambda p: (p.line, p.column))
    count = len(ordered)
    first = f"{count} problems, the first: {ordered[0].told}" if count > 1 else ordered[0].told
    code = ordered[0].code if count == 1 else None
    return DocumentRefused(f"nothing was written: {first}", code=code, hint=ordered[0].hint, problems=ordered)


class _Document(Draft):
    """The graph as it would be after the lines so far."""

    def __init__(self, graph: Graph, schema: Schema, now_ms: int, if_seq: int | None, allow_new_relation: bool) -> None:
        super().__init__(graph, schema, now_ms)
        self.if_seq = if_seq
        self.allow_new_relation = allow_new_relation
        self.problems: list[Problem] = []
        self.poison: dict[str, int] = {}
        self.minted: dict[str, str] = {}
        self.unlabelled = 0
        self.labels: dict[str, Work] = {}
        self.label_lines: dict[str, int] = {}
        self.mentioned: set[str] | None = None
        self.ops: list[Op] = []
        self.open_ends: list[tuple[Op, Work]] = []
        self.kind_lines: dict[str, Op] = {}
        self.relations_line: Op | None = None
        self.warnings: list[str] = []

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
                    self.problems.append(
                        Problem(line, 1, "present_on_mutate", "a pipe row does not say create or update", "use add or update, or write + or ~ lines")
                    )
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
        lines = [self.line(work) for work in self.shown if not work.gone]
        return [*self._schema_facts(), *self.facts()], Mutated(self.minted, lines, self.dropped(), self.warnings)

    def _schema_facts(self) -> list[Fact]:
        new, old = self.schema, self.old_schema
        if new is old:
            return []
        facts = [kind_fact(k) for k in new.kinds.values() if old.kinds.get(k.name) != k]
        if new.relations is not None and new.relations != old.relations:
            facts.append(relations_fact(new.relations))
        return facts

    def _mint(self, prefix: str) -> tuple[str, int]:
        if self.mentioned is None:
            self.mentioned = {name for op in self.ops for name in (op.id, op.src, op.dst, op.fields.get("id")) if name}
        return self.mint(prefix, self.mentioned)

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

    def _near_node(self, name: str) -> str:
        """Return what to do about an edge's end that is no node; a row minted here is named by its label, never by a guess."""
        if len(self.problems) > _HINTED:
            return ""
        minted = {id for id in self.minted.values() if (row := self.peek(id)) is not None and form_of(row) == "node"}
        found = near_ids(name, lambda id: id not in minted and (row := self.peek(id)) is not None and form_of(row) == "node")
        if found:
            return f"is it {' or '.join(found)}?"
        return "label the new node: + KIND [NEW:x], then [NEW:x] is it" if minted else "read it first: its id may have changed"

    # --- minting ------------------------------------------------------------------------------------------------

    def _name(self, op: Op, work: Work) -> None:
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
            self._problem(
                op,
                column_of_name(op.text, f"NEW:{op.label}"),
                "label_exists",
                f"{op.label} is the label of line {self.label_lines[op.label]}",
                "one label, one row",
            )
            return False
        self.label_lines[op.label] = op.line
        return True

    # --- creates ------------------------------------------------------------------------------------------------

    def _create_node(self, op: Op) -> None:
        kind, id, fields, schema = op.kind, op.id, op.fields, self.schema
        plain = id is None and op.label is None and not schema.kinds and not op.sums and kind not in RESERVED
        if plain and _MEANT.isdisjoint(fields) and "" not in fields.values():
            # The common line: nothing in it can be wrong.
            id, number = self._mint(kind)
            self.enter(Work("node", id, fields.copy(), op.line, NEW_BORN + self.created, None, kind, "", "", "", number))
            self.unlabelled += 1
            self.minted[f"#{self.unlabelled}"] = id
            return
        problems = len(self.problems)
        if kind in RESERVED:
            hint = "an edge is + [source] --(relation)--> [target]" if kind == "EDG" else "choose another kind"
            self._problem(op, column_of_name(op.text, kind), "reserved_id", f"{kind} is no kind of yours", hint)
        if op.sums or "id" in fields:
            fields = self._create_fields(op)
        if schema.kinds:
            if not schema.accepts_kind(kind):
                if kind not in RESERVED and not self._hangs(op, f"SCHEMA {kind}"):
                    self._problem(
                        op,
                        column_of_name(op.text, kind),
                        "unknown_kind",
                        f"{kind} is not declared",
                        self._which(kind, schema.known_kinds(), "SCHEMA lines declare kinds"),
                    )
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
            if not self.free(id, op.line):
                self._taken(op, id, locator)
                return
        fields = self._life(op, fields, None)
        minted: int | None = None
        if id is None:
            id, minted = self._mint(kind)
        work = Work("node", id, fields, op.line, NEW_BORN + self.created, None, kind)
        work.minted = minted
        self.enter(work)
        if minted is not None:
            self._name(op, work)
            if op.label is not None:
                self.labels[op.label] = work
        if len(self.problems) > problems:
            work.gone = True  # judged by the lines behind, never written: the document is refused

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
                self._problem(
                    op,
                    column_of(op.text, key),
                    "unknown_field",
                    f"{kind} has no field {key}",
                    self._which(key, declared, f"{kind} has {' '.join(declared) or 'none'}"),
                )

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
        if locator is not None and (kind_of(row) != op.kind or row.get(locator) != op.fields.get(locator, "")):
            self._problem(op, at, "locator_clash", f"{id} is already another row: {self.line(row)}", f"its {locator} is not this one")
            return
        self._problem(op, at, "id_exists", f"{id} exists: {self.line(row)}", f"~ [{id}] patches it" if form_of(row) == "node" else f"~ {id} patches it")

    def _create_edge(self, op: Op) -> None:
        problems = len(self.problems)
        id, src, rel, dst, fields = op.id, op.src, op.rel, op.dst, op.fields
        if not fields and id is None and op.label is None and self.schema.relations is None and self.between(src, rel, dst) is None:
            # The common line: nothing in it can be wrong but its ends.
            id, number = self._mint("E")
            work = Work("edge", id, {}, op.line, NEW_BORN + self.created, None, "", src, rel, dst, number)
            self.attach(work)
            self.enter(work)
            self._name(op, work)
            self.open_ends.append((op, work))
            return
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
            if not self.free(id, op.line):
                self._taken(op, id, None)
                return
        twin = self.between(src, rel, dst)
        if twin is not None and self.is_hidden(twin):
            self.remove(twin, op.line)
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
        work = Work("edge", id, fields, op.line, NEW_BORN + self.created, None, "", src, rel, dst)
        work.minted = minted
        self.attach(work)
        self.enter(work)
        if minted is not None:
            self._name(op, work)
        self.open_ends.append((op, work))
        if len(self.problems) > problems:
            self._taint(op)

    def _create_law(self, op: Op) -> None:
        assert op.id is not None
        fields = self._create_fields(op) if op.sums or "id" in op.fields else op.fields
        if not self.free(op.id, op.line):
            self._taken(op, op.id, None)
            return
        self.enter(Work("law", op.id, self._life(op, fields, None), op.line, NEW_BORN + self.created))

    # --- how long a row lives -------------------------------------------------------------------------------------

    def _life(self, op: Op, fields: dict[str, str], old: dict[str, str] | None) -> dict[str, str]:
        """Return the fields to keep: without empty ones on a create, a ttl turned into its absolute time; checks recycle."""
        if "recycle" in fields:
            recycle = fields["recycle"]
            if (recycle and recycle not in RECYCLE) or "recycle" in op.sums:
                self._problem(op, column_of(op.text, "recycle"), "bad_recycle", f"recycle={recycle} is not known", f"it is one of {', '.join(RECYCLE)}")
        if "ttl" in fields or "expires" in fields:
            fields = self._expiry(op, dict(fields), old)
        if old is None:
            # Always the row's own: a later line may patch it, and the document may be decided again.
            return {key: value for key, value in fields.items() if value}
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
            work = self.take(row, op.line)
            self.show(work)
            self._set_fields(op, work, op.fields)
            return
        rest = {key: value for key, value in op.fields.items() if key not in ("id", "merge")}
        merge = op.fields.get("merge", "false")
        if "id" in op.sums or "merge" in op.sums:
            self._problem(op, column_of(op.text, "id" if "id" in op.sums else "merge"), "parse_error", "id and merge are set with =")
            self._taint(op)
        elif is_id(new_id) is None:
            self._problem(op, column_of(op.text, "id"), "parse_error", f"{new_id!r} is not an id" if new_id else "an id cannot be cleared", "A-Z a-z 0-9 _ . -")
            self._taint(op)
        elif merge not in ("true", "false", ""):
            self._problem(op, column_of(op.text, "merge"), "parse_error", f"merge={merge}", "merge is true or false")
            self._taint(op)
        elif new_id == row.id:
            work = self.take(row, op.line)
            self.show(work)
            self._set_fields(op, work, rest)
        elif merge == "true":
            self._merge(op, row, new_id, rest)
        else:
            self._rename(op, row, new_id, rest)

    def _target(self, op: Op) -> AnyRow | None:
        """Return the row that a patch or a drop names, or report that there is none."""
        if op.form == "edge" and op.id is None:
            edge = self.between(op.src, op.rel, op.dst)
            if edge is not None and not (self.is_hidden(edge)):
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
        if op.form == "edge" and (not isinstance(row, (Work, Edge)) or (row.src, row.rel, row.dst) != (op.src, op.rel, op.dst)):
            if not self._hangs(op, op.id):
                self._problem(op, column_of_name(op.text, op.id), "not_found", f"{op.id} is another row: {self.line(row)}", "name the edge by its id alone")
            self._taint_rename(op)
            return None
        return row

    def _taint_rename(self, op: Op) -> None:
        if (name := op.fields.get("id")) is not None:
            self.poison.setdefault(name, op.line)

    def _set_fields(self, op: Op, work: Work, changes: dict[str, str]) -> None:
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
                    self._problem(
                        op,
                        column_of(op.text, key),
                        "bad_numeric",
                        f"{key} of {work.id} is not a number: {fields[key][:80]!r}",
                        f"set it first: {key}={value.lstrip('+')}",
                    )
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

    def _rename(self, op: Op, row: AnyRow, new_id: str, rest: dict[str, str]) -> None:
        at = column_of(op.text, "id")
        problems = len(self.problems)
        form = form_of(row)
        if new_id in RESERVED:
            self._problem(op, at, "reserved_id", f"{new_id} is never an id", "choose another")
        elif form == "law" and is_law_id(new_id) is None:
            self._problem(op, at, "parse_error", "the id of a law stays a law's", "LAW and a digit, _, . or -")
        elif form == "node" and self.schema.locator(kind_of(row)) is not None:
            self._problem(op, at, "new_on_pin", f"the id of a {kind_of(row)} comes from its locator", "a pin keeps its id")
        elif not self.free(new_id, op.line) and not self._hangs(op, new_id):
            hint = f"; id={new_id} ; merge=true folds {row.id} into it" if form == "node" else "choose another"
            self._problem(op, at, "id_occupied", f"{new_id} is taken", hint)
        work = self.take(row, op.line)
        self.show(work)
        if len(self.problems) == problems and self.free(new_id, op.line):
            self.rename(work, new_id, op.line)
        else:
            self._taint(op)
        self._set_fields(op, work, rest)

    def _merge(self, op: Op, row: AnyRow, into: str, rest: dict[str, str]) -> None:
        at = column_of(op.text, "id")
        target = self.peek(into)
        if target is None:
            if not self._hangs(op, into):
                self._problem(op, at, "not_found", f"no row {into} to merge into", self._near(into))
        elif form_of(row) != "node" or form_of(target) != "node":
            self._problem(op, at, "merge_edge", "only two nodes merge", "drop the edge and patch the other")
        elif kind_of(row) != kind_of(target):
            self._problem(op, at, "merge_kind", f"{row.id} is {kind_of(row)}, {into} is {kind_of(target)}", "only nodes of one kind merge")
        else:
            self._fold(op, row, target, rest)
            return
        self._taint(op)

    def _fold(self, op: Op, row: AnyRow, target: AnyRow, rest: dict[str, str]) -> None:
        work = self.take(target, op.line)
        self.show(work)
        for key, value in row.fields.items():
            work.fields.setdefault(key, value)
        self._set_fields(op, work, rest)
        self.fold(row, work, op.line)

    # --- drops and present lines ------------------------------------------------------------------------------------

    def _drop(self, op: Op) -> None:
        row = self._target(op)
        if row is not None:
            self.remove(row, op.line)

    def _present(self, op: Op) -> None:
        body = op.text.strip(" \t")
        row = self.between(op.src, op.rel, op.dst) if op.id is None else self.peek(op.id)
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
        allowed = ("names",) if relations else ("fields", "pin", "unique", "open")
        for key in op.fields:
            if key not in allowed:
                self._problem(op, column_of(op.text, key), "parse_error", f"a SCHEMA line has no {key}", f"it takes {' and '.join(allowed)}")
        names = (op.fields.get("names" if relations else "fields") or "").split()
        seen: set[str] = set()
        for name in names:
            if (is_relation(name) if relations else is_key(name)) is None:
                what = f"{name!r} is no {'relation' if relations else 'field'}"
                self._problem(op, column_of_name(op.text, name), "parse_error", what, "names are A-Z a-z 0-9 _ and stand apart by blanks")
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
        pin, opened = op.fields.get("pin", ""), op.fields.get("open", "")
        for key, given in (("pin", pin), ("open", opened)):
            if given not in ("", "true", "false"):
                self._problem(op, column_of(op.text, key), "parse_error", f"{key}={given}", f"{key} is true or false")
        fields = tuple(n for n in names if n != "id")
        known = self.schema.kinds.get(op.kind)
        extra = None if known is None else known.extra
        if opened:
            extra = {key: value for key, value in {**(extra or {}), "open": opened == "true"}.items() if value} or None
        if unique := op.fields.get("unique", "").split():
            extra = {**(extra or {}), "unique": unique}
            for name in unique:
                if name not in fields and (known is None or name not in known.fields):
                    self._problem(op, column_of(op.text, "unique"), "unknown_field", f"{op.kind} has no field {name}", "unique names declared fields")
        if pin == "true" and not fields and (known is None or not known.fields):
            self._problem(op, column_of(op.text, "pin"), "parse_error", "a pin needs a field that locates it", 'fields="id path"')
        if len(self.problems) > problems:
            self.poison.setdefault(f"SCHEMA {op.kind}", op.line)
            return
        self.kind_lines.setdefault(op.kind, op)
        if known is not None:
            fields = (*known.fields, *(f for f in fields if f not in known.fields))
        is_pin = pin == "true" or (known is not None and known.pin and pin != "false")
        self._own_schema().put(Kind(op.kind, fields, is_pin, extra))

    def _check_schema(self) -> None:
        """Refuse a declaration that rows which are there at the end would break. Reads the rows of the kinds it declares."""
        if self.schema is self.old_schema:
            return
        new, old = self.schema, self.old_schema
        if new.is_closed and not old.is_closed:
            op = next(op for kind, op in self.kind_lines.items() if not new.kinds[kind].is_open)
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
                self._problem(
                    op,
                    column_of_name(op.text, "relations"),
                    "schema_conflict",
                    f"there are edges with {', '.join(dict.fromkeys(used))}",
                    "name every relation in use",
                )
        for kind, op in self.kind_lines.items():
            was, now = old.kinds.get(kind), new.kinds[kind]
            if was is not None and (was.pin or not now.pin) and (now.is_open or not was.is_open):
                continue
            self._check_rows(op, now)

    def _check_rows(self, op: Op, kind: Kind) -> None:
        rows: list[AnyRow] = [r for id in self.graph.kinds.get(kind.name, ()) if id not in self.rows and (r := self.peek(id)) is not None]
        rows.extend(w for w in self.rows.values() if w is not None and w.form == "node" and w.kind == kind.name)
        for row in rows:
            fields = row.fields
            stray = [key for key in fields if not self.schema.accepts_field(kind.name, key)]
            if stray:
                self._problem(
                    op,
                    column_of_name(op.text, kind.name),
                    "schema_conflict",
                    f"{row.id} has {', '.join(stray)}",
                    f"declare {'it' if len(stray) == 1 else 'them'} too",
                )
                return
            if kind.pin and row.id != derive_id(kind.name, fields.get(kind.locator or "", "")):
                self._problem(
                    op, column_of_name(op.text, kind.name), "schema_conflict", f"{row.id} does not have the id of its locator", "drop or merge it first"
                )
                return

    # --- the end of the document --------------------------------------------------------------------------------------

    def _resolve_ends(self) -> None:
        """Put ids for labels, and refuse edges whose ends are no nodes now."""
        nodes, rows, plain = self.graph.nodes, self.rows, not self.graph.expiring
        for op, work in self.open_ends:
            src, dst = work.src, work.dst
            if work.gone or (plain and src in nodes and dst in nodes and src not in rows and dst not in rows):
                continue
            new_src = self._end(op, src, 1) or src
            new_dst = self._end(op, dst, 2 if src == dst else 1) or dst
            if new_src != src or new_dst != dst:
                self.detach(work)
                work.src, work.dst = new_src, new_dst
                self.attach(work)

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
        if row is not None and form_of(row) == "node":
            return end
        if end in self.poison and self.poison[end] != op.line:
            return None
        what = f"no node {end}" if row is None else f"{end} is a {form_of(row)}, not a node"
        self._problem(op, column_of_name(op.text, end, nth), "no_such_node", what, self._near_node(end))
        return None

    def _settle(self) -> None:
        """Drop what was to go when its work, or for an edge that of an end, is settled."""
        for work in list(self.works):
            if work.gone:
                continue
            if work.form == "edge":
                if work.fields.get("recycle") == "delete_on_settle" and (self._is_settled(work.src) or self._is_settled(work.dst)):
                    self.remove(work, work.line)
                continue
            if work.fields.get("status") != SETTLED:
                continue
            if work.fields.get("recycle") == "delete_on_settle":
                self.remove(work, work.line)
            elif work.form == "node" and (self.graph.on_settle or self.created):
                for edge in self.edges_of(work.id):
                    if edge.get("recycle") == "delete_on_settle":
                        self.remove(edge, work.line)

    def _is_settled(self, id: str) -> bool:
        row = self.peek(id)
        return row is not None and row.get("status") == SETTLED

    def _check_size(self) -> None:
        if len(self.graph) + self.created <= limits.ROWS_PER_SESSION:
            return
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
