"""The graph side of a session: one way to write (a document of lines), many bounded ways to read, and its history.

Reads are answered from RAM under the replica's lock, so that they see one state; those of the past from the journal.
What reads and writes lines is imported where it is used: a peek on the command line must not pay for the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from pinfold import limits
from pinfold.entry import Fact
from pinfold.errors import DocumentRefused, Refused
from pinfold.state.graph import Graph
from pinfold.state.housekeep import HOUSEKEEPING, decide_prune, find_rows
from pinfold.state.inputs import Input
from pinfold.state.schema import Schema
from pinfold.state.session import SessionState

if TYPE_CHECKING:
    from pinfold.dialect.parse import Batch
    from pinfold.engine import Replica
    from pinfold.history import Blame, Past
    from pinfold.ingest.job import Ingested
    from pinfold.recall import pinmap, read
    from pinfold.recall import walk as walks
    from pinfold.state.mutate import Mutated


Rows = TypeVar("Rows", "read.Got", "read.Found")


class View(msgspec.Struct, frozen=True):
    """One state to read from: the graph and schema as of seq, and the time that counts there (Unix ms)."""

    graph: Graph
    schema: Schema
    seq: int
    now_ms: int
    without: Collection[str] = ()


class Changed(msgspec.Struct, frozen=True):
    """What a document did and at which seq; seq stays where nothing changed. conflicts: of a merge that changed nothing."""

    seq: int
    minted: dict[str, str]
    lines: list[str]
    dropped: list[str]
    warnings: list[str]
    conflicts: list[str] = []


class Pruned(msgspec.Struct, frozen=True):
    """Rows of one housekeeping bucket: their lines, and the ids that were dropped with apply."""

    bucket: str
    lines: list[str]
    dropped: list[str]


class GraphReads:
    """Reading a graph: of a live session, or of one as it was (`Session.at`)."""

    _replica: Replica

    @functools.cached_property
    def _past(self) -> Past:
        from pinfold.history import Past

        return Past(self._replica.journal, self._replica.id)

    def _view(self) -> View:
        """Return the state to read. Called under the replica's lock."""
        raise AssertionError("a reader says what it reads")

    def pin_map(
        self,
        *anchors: str,
        query: str = "",
        depth: int = limits.WALK_DEPTH,
        budget_tokens: int = limits.BUDGET_TOKENS,
        max_rows: int | None = None,
        relations: Collection[str] | None = None,
        kinds: Collection[str] | None = None,
        direction: str = "both",
        cursor: str = "",
        since: str = "",
        counter: str = "est",
    ) -> pinmap.PinMap:
        """Return the lines an agent needs around its anchors, never over budget_tokens; clips are declared in the footer.

        query: with or instead of anchors, the rows that answer it best are anchors too. since: the etag of a map got before:
        only what changed since comes back. counter: "est", or "o200k" for exact tokens (extra `tokens`).
        Raises Refused `not_found`, `budget_too_small`, `no_anchor`, `stale_cursor`.
        """
        from pinfold.dialect.format import format_stale
        from pinfold.recall import pinmap
        from pinfold.recall.tokens import counter_of

        if query:
            anchors = (*anchors, *(id for id in self._anchors_for(query) if id not in anchors))
        if not anchors and query:
            raise Refused(f"nothing here matches {query[:60]!r}", code="no_anchor", hint="other words, or the ids you are working on")
        if not anchors:
            raise Refused("a pin map needs an anchor", code="no_anchor", hint="name the ids you are working on, or search for them")
        count = counter_of(counter)
        along, wanted = names_of(relations, "relations"), names_of(kinds, "kinds")

        def shown(notes: Mapping[str, str] | None) -> pinmap.PinMap:
            with self._replica.lock:
                view = self._view()
                return pinmap.pin_map(
                    view.graph,
                    anchors,
                    now_ms=view.now_ms,
                    schema=view.schema,
                    depth=depth,
                    budget_tokens=budget_tokens,
                    max_rows=max_rows,
                    relations=along,
                    kinds=wanted,
                    direction=direction,
                    cursor=cursor,
                    since=since,
                    before=self._before(view, since) if since else None,
                    count=count,
                    counter=counter,
                    without=view.without,
                    notes=notes,
                )

        found = shown({} if self._replica.state.inputs.given else None)
        because = self._because_of(found.ids)  # files are looked at for it, so not under the lock
        if because:
            found = shown({id: format_stale(id, words) for id, words in because.items()})
        self._replica.read(found.tokens, found.full_tokens)
        return found

    def _because_of(self, ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return why rows are stale, in words, for those of these that are. What was once is not stale."""
        return {}

    def _judged(self, found: Rows) -> Rows:
        """Return rows with why they are stale."""
        if not self._replica.state.inputs.given or not (because := self._because_of([item.id for item in found.items])):
            return found
        items = [replace(item, because=because[item.id]) if item.id in because else item for item in found.items]
        return replace(found, items=items)

    def _told(self, text: str, ids: Iterable[str]) -> str:
        """Return a read's text with a line, before its footer, for each of these rows that is stale."""
        because = self._because_of(ids) if self._replica.state.inputs.given else {}
        if not because:
            return text
        from pinfold.dialect.format import stale_lines

        *lines, footer = text.split("\n")
        return "\n".join([*lines, *stale_lines(because), footer])

    def _anchors_for(self, query: str) -> list[str]:
        """Return the rows to begin at for a query, best first."""
        raise Refused("the past is not indexed for search", code="bad_argument", hint="name anchors, or ask without --at")

    def _before(self, view: View, since: str) -> tuple[Graph, Schema | None] | None:
        """Return graph and schema as of an etag, None where that history is gone or was never here."""
        from pinfold.recall.pinmap import etag_seq

        seq = etag_seq(since)
        if seq is None or seq > view.seq:
            return None
        if seq == max(view.graph.seq, view.schema.seq):
            return view.graph, view.schema
        try:
            state = self._past.at(seq)
        except Refused:
            return None
        return state.graph, state.schema

    def walk(
        self,
        anchor: str,
        *,
        depth: int = limits.WALK_DEPTH,
        relations: Collection[str] | None = None,
        direction: str = "both",
        max_rows: int = limits.WALK_ROWS,
    ) -> walks.Walk:
        """Return the edges within depth of an anchor, in path order; clips declared. Raises Refused `not_found`."""
        from pinfold.recall import walk as walks

        along = names_of(relations, "relations")
        with self._replica.lock:
            view = self._view()
            found = walks.walk(view.graph, anchor, depth=depth, relations=along, direction=direction, max_rows=max_rows, now_ms=view.now_ms)
        return replace(found, text=self._told(found.text, [*found.nodes, *(hop.edge for hop in found.hops)]))

    def neighbors(
        self,
        anchor: str,
        *,
        depth: int = 1,
        relations: Collection[str] | None = None,
        direction: str = "both",
        max_rows: int = limits.WALK_ROWS,
        with_anchor: bool = False,
    ) -> walks.Neighbors:
        """Return the nodes within depth of an anchor, nearest first, and the edges that lead to them."""
        from pinfold.recall import walk as walks

        along = names_of(relations, "relations")
        with self._replica.lock:
            view = self._view()
            found = walks.neighbors(
                view.graph,
                anchor,
                depth=depth,
                relations=along,
                direction=direction,
                max_rows=max_rows,
                now_ms=view.now_ms,
                schema=view.schema,
                with_anchor=with_anchor,
            )
        return replace(found, text=self._told(found.text, [*((anchor,) if with_anchor else ()), *(id for _, id in found.nodes), *found.edges]))

    def path(self, start: str, end: str, *, direction: str = "out", relations: Collection[str] | None = None, weight: str | None = None) -> walks.Path:
        """Return a shortest path; weight names the edge field that holds a step's cost. Raises Refused `not_found`, `bad_weight`."""
        from pinfold.recall import walk as walks

        along = names_of(relations, "relations")
        with self._replica.lock:
            view = self._view()
            found = walks.path(view.graph, start, end, direction=direction, relations=along, weight=weight, now_ms=view.now_ms, schema=view.schema)
        return replace(found, text=self._told(found.text, [*found.nodes, *found.edges]))

    def get(self, *ids: str) -> read.Got:
        """Return the rows of these ids as they read, and which are missing, with ids near them."""
        from pinfold.recall import read

        with self._replica.lock:
            view = self._view()
            found = read.get(view.graph, ids, now_ms=view.now_ms, schema=view.schema)
        return self._judged(found)

    def find(
        self,
        kind: str | Collection[str] | None = None,
        *,
        where: str | Mapping[str, Any] | Sequence[str] | None = None,
        form: str = "node",
        relation: str | Collection[str] | None = None,
        active_only: bool = False,
        limit: int = limits.LIST_ROWS,
        cursor: str = "",
        superseded: bool = False,
        since: str = "",
        until: str = "",
    ) -> read.Found:
        """Return a page of the rows that match, oldest first. where: `status=open and prio>=3`, or {"prio": {"$gte": 3}}.

        superseded: those too that others took the place of. since, until: ISO times; rows that held at some time between
        them (valid_from, valid_until), or that say nothing of it and were written then.
        """
        from pinfold.recall import read

        with self._replica.lock:
            view = self._view()
            found = read.find(
                view.graph,
                now_ms=view.now_ms,
                schema=view.schema,
                form=form,
                kind=kind,
                relation=relation,
                where=where,
                active_only=active_only,
                limit=limit,
                cursor=cursor,
                without=() if superseded else view.without,
                since=since,
                until=until,
            )
        return self._judged(found)

    def schema(self) -> list[str]:
        """Return the SCHEMA lines of the session; empty where nothing was declared."""
        with self._replica.lock:
            return self._view().schema.lines()

    def graph_counts(self) -> dict[str, Any]:
        """Return {"nodes", "edges", "laws", "kinds", "relations"}: counts, by kind and by relation too."""
        with self._replica.lock:
            graph = self._view().graph
            return {
                "nodes": len(graph.nodes),
                "edges": len(graph.edges),
                "laws": len(graph.laws),
                "kinds": {kind: len(ids) for kind, ids in sorted(graph.kinds.items())},
                "relations": {relation: len(ids) for relation, ids in sorted(graph.relations.items())},
            }


class GraphSession(GraphReads):
    """Reading and writing the graph of a live session."""

    def _turn(self, decide: Any, **rest: Any) -> Any:
        """Run one turn of the engine."""
        raise AssertionError("a session writes by turns")

    def _view(self) -> View:
        replica = self._replica
        replica.catch_up()
        if replica.is_over():
            return View(Graph(), Schema(), 0, replica.now_ms())
        state = replica.state
        return View(state.graph, state.schema, state.seq, replica.now_ms(), state.inputs.superseded)

    # --- writing ------------------------------------------------------------------------------------------------

    def mutate(
        self,
        text: str,
        *,
        if_seq: int | None = None,
        dry_run: bool = False,
        allow_new_relation: bool = False,
        inputs: Iterable[str | Input] | None = None,
        request_id: str | None = None,
    ) -> Changed:
        """Do what a document of lines says, all of it or nothing; a later line sees what an earlier one did.

        if_seq: refuse where a row the document touches changed after that seq. dry_run: answer the same, write nothing.
        inputs: what every row that it writes rests on, as `set`; an edge `--(derived_from)-->` says it of two rows.
        Raises DocumentRefused with every problem: line, column, code, message, hint.
        """
        return self._write(text, "mutate", if_seq, dry_run, allow_new_relation, request_id, inputs)

    def add(self, text: str, *, dry_run: bool = False, allow_new_relation: bool = False, request_id: str | None = None) -> Changed:
        """Do a document that only creates: + lines, laws, SCHEMA; legacy pipe rows too. As `mutate`."""
        return self._write(text, "add", None, dry_run, allow_new_relation, request_id)

    def update(
        self, text: str, *, if_seq: int | None = None, dry_run: bool = False, allow_new_relation: bool = False, request_id: str | None = None
    ) -> Changed:
        """Do a document that only patches and drops: ~ and - lines; legacy pipe rows too. As `mutate`."""
        return self._write(text, "update", if_seq, dry_run, allow_new_relation, request_id)

    def delete(self, *ids: str, dry_run: bool = False, request_id: str | None = None) -> Changed:
        """Drop these rows, nodes with their edges. Raises DocumentRefused `not_found` and then drops none."""
        from pinfold.dialect.parse import Batch, Op

        ops = [Op("-", "row", place, f"- {id}", id=id) for place, id in enumerate(dict.fromkeys(ids), 1)]
        return self._change(Batch(ops, [], {}, [], len(ops)), "mutate", None, dry_run, False, request_id)

    def _write(
        self,
        text: str,
        verb: str,
        if_seq: int | None,
        dry_run: bool,
        allow_new_relation: bool,
        request_id: str | None,
        inputs: Iterable[str | Input] | None = None,
    ) -> Changed:
        from pinfold.dialect.parse import parse_document

        rests = None if inputs is None else self._marked(inputs)
        return self._change(parse_document(text), verb, if_seq, dry_run, allow_new_relation, request_id, text, rests)

    def _marked(self, inputs: Iterable[str | Input]) -> list[Input]:
        """Return declared inputs with the marks of what lies outside the session."""
        raise AssertionError("a session knows what lies outside it")

    def _change(
        self,
        batch: Batch,
        verb: str,
        if_seq: int | None,
        dry_run: bool,
        allow_new_relation: bool,
        request_id: str | None,
        text: str = "",
        inputs: list[Input] | None = None,
    ) -> Changed:
        from pinfold.state.mutate import decide_mutate

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Changed]:
            facts, done = decide_mutate(state.graph, state.schema, batch, verb=verb, now_ms=now_ms, if_seq=if_seq, allow_new_relation=allow_new_relation)
            facts = _finished(state, facts, batch, done.minted, text, now_ms, inputs)
            check_rows(state.graph, facts)
            seq = state.seq + 1 if facts else state.seq
            if not (facts or done.lines or done.dropped):
                done.warnings.append("no line of it writes anything")
            return ([] if dry_run else facts), _changed(seq, done)

        answer: Changed = self._turn(decide, request_id=request_id, answer_type=Changed)
        return answer

    def ingest(
        self,
        kind: str,
        path: str,
        *,
        root: str | None = None,
        exclude: Sequence[str] = (),
        languages: Sequence[str] = (),
        max_rows: int = limits.INGEST_ROWS,
        max_bytes: int = limits.INGEST_BYTES,
        dry_run: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Ingested:
        """Bring the pins of a source (code, sysml, ato, skills) up to what the files of a folder, or one file, say.

        Locators begin at root: the repository's root, else the folder. exclude: patterns as in `.gitignore`. What you added to
        pins stays; what hung on a pin that is gone is named. progress: called with what is done, how many of it, of how many.
        Raises Refused `no_such_path`, `too_many_rows`, `too_many_bytes`, `schema_conflict`; ConfigurationError `missing_extra`.
        """
        from pinfold.ingest.job import Ingest

        job = Ingest(self, kind, path, root=root, exclude=exclude, languages=languages, max_rows=max_rows, max_bytes=max_bytes, progress=progress)
        return job.run(dry_run=dry_run)

    def housekeep(self, bucket: str = "recyclable", *, kind: str | None = None, apply: bool = False) -> Pruned:
        """Return the rows of a bucket (expired, orphans, stale, dangling, recyclable); with apply, drop those that may go.

        What is persistent or fresh is shown but never dropped. Raises Refused `bad_bucket`.
        """
        from pinfold.recall import read

        if bucket not in HOUSEKEEPING:
            raise Refused(f"there is no bucket {bucket!r}", code="bad_bucket", hint=f"one of {', '.join(HOUSEKEEPING)}")
        self._replica.catch_up()
        with self._replica.lock:
            found = find_rows(self._replica.state.graph, bucket, kind, self._replica.now_ms())
            lines = [item.line for item in read.get(self._replica.state.graph, found, now_ms=0, schema=self._replica.state.schema).items]
        if not apply:
            return Pruned(bucket, lines, [])

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], list[str]]:
            facts, gone = decide_prune(state.graph, state.schema, bucket, kind, now_ms)
            return rows_kept(state, facts, now_ms), gone

        return Pruned(bucket, lines, self._turn(decide))

    # --- history ------------------------------------------------------------------------------------------------

    def at(self, seq: int | None = None, *, at_ms: int | None = None) -> SessionAt:
        """Return this session as it was after entry seq, or at Unix time at_ms. Raises Refused `history_gone`, `bad_seq`."""
        self._replica.catch_up()
        with self._replica.lock:
            if (seq is None) == (at_ms is None):
                raise Refused("say when: a seq or a time", code="bad_arguments", hint="one of the two")
            wanted = seq if seq is not None else self._past.seq_at(at_ms or 0)
            self._past.at(wanted)
        return SessionAt(self._replica, self._past, wanted, at_ms)

    def diff(self, a: int, b: int | None = None) -> str:
        """Return a mutate document that turns the graph as of seq a into that of seq b (now, where none is given)."""
        from pinfold.history import Past, diff_states

        self._replica.catch_up()
        with self._replica.lock:
            past = Past(self._replica.journal, self._replica.id)
            older = past.at(a)
            newer = self._replica.state if b is None or b == self._replica.state.seq else Past(self._replica.journal, self._replica.id).at(b)
            return diff_states(older, newer)

    def undo(self, seq: int) -> Changed:
        """Take back what entry seq did to rows, as a new entry.

        Raises Refused `undo_conflict` (ids) where later changes rest on it, `nothing_to_undo`, `forgotten`, `history_gone`.
        """
        from pinfold.history import Past
        from pinfold.recall import read
        from pinfold.state.memory_rows import FORGOTTEN
        from pinfold.state.undo import decide_undo

        self._replica.catch_up()
        with self._replica.lock:
            past = Past(self._replica.journal, self._replica.id)
            entry = past.entry(seq)
            if any(fact.get("why") == FORGOTTEN for fact in entry.facts):
                raise Refused(f"entry {seq} forgot what it names", code="forgotten", hint="what was forgotten is written anew, not undone", seq=seq)
            before = past.at(seq - 1).graph if seq > 1 else Graph()

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], tuple[int, list[str]]]:
            facts, ids = decide_undo(state.graph, state.schema, before, entry.facts, seq=seq, now_ms=now_ms)
            if not ids:
                hint = "undo takes back what mutate did; what was set is set again"
                raise Refused(f"entry {seq} changed no rows", code="nothing_to_undo", hint=hint, seq=seq)
            facts = rows_kept(state, facts, now_ms)
            return facts, (state.seq + 1 if facts else state.seq, ids)

        done, ids = self._turn(decide)
        with self._replica.lock:
            view = self._view()
            found = read.get(view.graph, ids, now_ms=view.now_ms, schema=view.schema)
        return Changed(done, {}, [item.line for item in found.items], list(found.missing), [])

    def blame(self, id: str) -> list[Blame]:
        """Return who last wrote a row and each of its fields: the row first (field ""). Raises Refused `not_found`."""
        from pinfold.history import Past, blame
        from pinfold.recall import walk as walks

        with self._replica.lock:
            view = self._view()
            row = walks.check_anchor(view.graph, id, view.now_ms)
            return blame(Past(self._replica.journal, self._replica.id), row)

    def merge_from(self, fork: GraphSession, forked_at: int) -> Changed:
        """Bring what fork's graph changed since seq forked_at, or since it was merged last, into this one: all, or nothing and the conflicts."""
        from pinfold.dialect.parse import parse_document
        from pinfold.history import Past, merge_document
        from pinfold.state.mutate import decide_mutate

        self._replica.catch_up()
        fork._replica.catch_up()
        with self._replica.lock:
            last = _merged_of(self._replica.state, fork, forked_at)
        with fork._replica.lock:  # a copy: a turn under another session's lock would meet one that goes the other way
            theirs = Graph.load(fork._replica.state.graph.dump())
            seq = fork._replica.state.seq
        base = Past(fork._replica.journal, fork._replica.id).at(last["seq"] if last else forked_at).graph
        known = last["ids"] if last else {}

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Changed]:
            if _merged_of(state, fork, forked_at) != last:
                raise Refused("the fork is being merged by somebody else", code="conflict", hint="merge again: what is left is brought")
            merged = merge_document(base, state.graph, theirs, known)
            conflicts = merged.conflicts
            if not conflicts:
                batch = parse_document(merged.document)
                try:
                    facts, done = decide_mutate(state.graph, state.schema, batch, now_ms=now_ms, allow_new_relation=True)
                except DocumentRefused as refused:  # by what is declared here
                    lines = merged.document.split("\n")
                    conflicts = [f"# conflict {lines[p.line - 1][:200]}: {p.code} {p.message}" for p in refused.problems]
            if conflicts:
                return [], Changed(state.seq, {}, [], [], [], conflicts)
            facts = _finished(state, facts, batch, done.minted, merged.document, now_ms)
            minted = {old: done.minted[label.removeprefix("NEW:")] for old, label in merged.renamed.items()}
            if facts:
                noted = {"from": forked_at, "seq": seq, "ids": {**known, **merged.joined, **minted}}
                facts = [*facts, {"f": "session.put", "merged": {**state.settings.extra.get("merged", {}), fork._replica.id: noted}}]
            return facts, Changed(state.seq + 1 if facts else state.seq, minted, done.lines, done.dropped, done.warnings)

        answer: Changed = self._turn(decide)
        return answer


def _merged_of(state: SessionState, fork: GraphSession, forked_at: int) -> dict[str, Any] | None:
    """Return what a session holds of its last merge of a fork: the fork's seq, and its ids that are others here; None before the first."""
    found: dict[str, Any] | None = state.settings.extra.get("merged", {}).get(fork._replica.id)
    return found if found is not None and found["from"] == forked_at else None  # another fork may have had this name


class SessionAt(GraphReads):
    """A session as it was after one entry: the same reads, nothing to write.

    at_ms: where a time was asked for, rows that say they did not hold then (valid_from, valid_until) are left out of pin maps
    and lists.
    """

    def __init__(self, replica: Replica, past: Past, seq: int, at_ms: int | None = None) -> None:
        self._replica = replica
        self.__dict__["_past"] = past  # the one of its session: it moves on cheaply
        self.seq = seq
        self._at_ms = at_ms

    def _view(self) -> View:
        state = self._past.at(self.seq)
        without: Collection[str] = state.inputs.superseded
        if self._at_ms is not None:
            from pinfold.state.resting import not_valid_at

            without = {*without, *not_valid_at(state.graph, self._at_ms)}
        return View(state.graph, state.schema, self.seq, state.at_ms, without)


def names_of(given: Any, argument: str) -> tuple[str, ...] | None:
    """Return one name, or several, as a tuple; None for none. A text is one name, never its letters. Raises Refused `bad_argument`."""
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise Refused(f"{argument}={given!r} names nothing", code="bad_argument", hint="a name, or a list of names")
    return names


def _changed(seq: int, done: Mutated) -> Changed:
    return Changed(seq, done.minted, done.lines, done.dropped, done.warnings)


def _finished(
    state: SessionState, facts: list[Fact], batch: Batch, minted: dict[str, str], text: str, now_ms: int, inputs: list[Input] | None = None
) -> list[Fact]:
    """Return the facts of a document with what its rows rest on, replace and claim; most documents say nothing of it."""
    if inputs is None and not state.inputs.on and not any(word in text for word in ("derived_from", "superseded_by", "valid_", "unique")):
        return facts
    from pinfold.state import resting

    asserted = resting.asserted_in(batch, state.graph)
    return resting.finish(state, facts, now_ms=now_ms, inputs=inputs, asserted=asserted, lines=resting.lines_of(batch, minted))


def rows_kept(state: SessionState, facts: list[Fact], now_ms: int) -> list[Fact]:
    """Return facts that nobody wrote as lines with what rows rested on that lose it by them."""
    if not facts or not (state.inputs.given or any(fact.get("rel") == "derived_from" for fact in facts)):
        return facts
    from pinfold.state.resting import finish

    return finish(state, facts, now_ms=now_ms, checks=False)


def rows_finished(state: SessionState, facts: list[Fact], now_ms: int, inputs: Iterable[Input] | None = None) -> list[Fact]:
    """Return facts of rows that nobody wrote as lines with what these rest on; a relation asserted again is looked at again."""
    derived = [fact["id"] for fact in facts if fact.get("rel") == "derived_from"]
    if inputs is None and not derived and not state.inputs.on:
        return facts
    from pinfold.state.resting import finish

    return finish(state, facts, now_ms=now_ms, inputs=inputs, asserted=derived)


def check_rows(graph: Graph, facts: Iterable[Fact]) -> None:
    """Raise Refused `graph_full` where the facts would take the graph over ROWS_PER_SESSION."""
    room = limits.ROWS_PER_SESSION - len(graph)
    if room > limits.DOCUMENT_LINES * 2:
        return
    new = sum(1 for fact in facts if fact["f"].endswith(".put") and fact.get("id") and graph.row(fact["id"]) is None)
    if new > max(room, 0):
        raise Refused(
            f"the graph would have {len(graph) + new} rows, the limit ROWS_PER_SESSION is {limits.ROWS_PER_SESSION}",
            code="graph_full",
            hint="drop what is settled, or open another session",
            limit=limits.ROWS_PER_SESSION,
        )
