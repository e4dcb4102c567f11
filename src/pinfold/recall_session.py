"""The long-term side of a session: remember, relate, search, traverse, prune, promote, resolve.

Without `long_term` a session's own graph is its long-term memory. With `long_term=NAME`, upserts, relations, interlinking,
pruning, traversal and promotion act on session NAME; search and resolve_context read both and mark each hit `session`;
remember writes here. No turn spans the two.

What ranks and embeds is imported where it is used: no other call pays for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from pinfold import limits
from pinfold.entry import Fact
from pinfold.errors import PinfoldError, Refused
from pinfold.graph_session import GraphSession, check_rows, names_of, rows_finished, rows_kept
from pinfold.state.inputs import Input
from pinfold.state.session import SessionState

if TYPE_CHECKING:
    from pinfold.engine import Engine
    from pinfold.recall.bind import Recall
    from pinfold.state.memory_rows import Gone

TOP_K_MAX = 1_000
BUDGET_MAX = 1_000_000_000
TRAVERSED = 1_000
"""Rows of a traversal, unless asked for fewer or more."""
PINNED = 3
"""Anchors that a pin map takes from a query."""
BAR = 0.5
"""Confidence at and above which resolve_context takes an answer for one."""


class Upserted(msgspec.Struct, frozen=True):
    """A memory that was written; access_count: how often it was asserted."""

    node_id: str
    label: str
    node_type: str
    created: bool
    access_count: int
    graph_nodes: int
    graph_edges: int
    status: str = "upserted"


class Remembered(msgspec.Struct, frozen=True):
    """The row that keeps what was said."""

    node_id: str


class Related(msgspec.Struct, frozen=True):
    """An edge that was created, or asserted again: its age begins anew."""

    edge_id: str
    relation: str
    weight: float
    status: str = "created"


class FoundNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hit. score: 0..100, how directly it answers; order is the ranker's, which also knows context.

    why: which ways led here. count: how many memories say this, their ids in duplicates. parts: with explain.
    stale: what it was made from changed, because says what. superseded_by: what took its place. held: its valid_from or
    valid_until, where it does not hold now.
    """

    node_id: str
    label: str
    type: str
    content: str
    score: float
    why: list[str]
    session: str
    count: int = 1
    duplicates: list[str] = []
    at: str = ""
    parts: dict[str, float] = {}
    stale: bool = False
    because: list[str] = []
    superseded_by: str = ""
    held: str = ""


class NearNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node near a hit: how far, and the way there. stale, because: as of a hit."""

    node_id: str
    label: str
    type: str
    content: str
    score: float
    depth: int
    path: list[str]
    session: str
    stale: bool = False
    because: list[str] = []


class Searched(msgspec.Struct, frozen=True):
    """What a query found. confidence: 0..1, whether it was answered at all, bar .5; low: below it. note: what a reader should know."""

    query: str
    direct: list[FoundNode]
    neighbors: list[NearNode]
    total_nodes: int
    total_edges: int
    confidence: float
    low: bool
    note: str = ""
    next_offset: int | None = None
    tokens: int | None = None
    suppressed: dict[str, list[str]] = {}


class TraversedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node on a traversal. score: 0..100; the start's is 100. because: why it is stale, in words."""

    node_id: str
    label: str
    type: str
    content: str
    depth: int
    score: float
    path: list[str]
    stale: bool = False
    because: list[str] = []


class Traversed(msgspec.Struct, frozen=True):
    """The nodes around one, nearest first. total: how many are in reach; complete: none was left out for work's sake.

    next_offset: where the rest begins, None where these are all.
    """

    start_node: str
    results: list[TraversedNode]
    total: int
    complete: bool = True
    next_offset: int | None = None


class Interlinked(msgspec.Struct, frozen=True):
    """What a bulk write did, in one entry."""

    nodes_created: int
    nodes_updated: int
    edges_created: int
    edges_updated: int
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    status: str = "added"


class PrunedLinks(msgspec.Struct, frozen=True):
    """What went, or would go: id, line and why of each row."""

    removed: int
    remaining_edges: int
    what: list[dict[str, str]]
    status: str = "pruned"


class Promoted(msgspec.Struct, frozen=True):
    """The memory that keeps a promoted value."""

    node_id: str
    promoted: bool = True


class Resolved(msgspec.Struct, frozen=True):
    """Where a key was answered: short_term, pending, long_term or miss; score 0..1. A miss keeps the best score seen.

    because: why what was found is stale, in words; () where it holds.
    """

    source: str
    value: Any
    score: float
    node_id: str | None = None
    session: str | None = None
    promise_id: str | None = None
    because: tuple[str, ...] = ()


class RecallSession(GraphSession):
    """Long-term memory of a live session."""

    _engine: Engine
    _actor: str | None

    # --- which session --------------------------------------------------------------------------------------------

    def _kept(self) -> RecallSession:
        """Return the session that keeps long-term memory: the one named so, or this one."""
        replica = self._replica
        replica.catch_up()
        name = replica.state.settings.long_term
        if name is None or name == replica.name or replica.is_over():
            return self
        from pinfold.arguments import check_session_name

        return type(self)(self._engine.open(check_session_name(name)), self._engine, self._actor)  # type: ignore[call-arg]

    def _read_sessions(self) -> list[RecallSession]:
        kept = self._kept()
        return [self] if kept is self else [self, kept]

    def _recall(self) -> Recall:
        from pinfold.recall.bind import recall_of

        return recall_of(self._replica, self._engine)

    def _write_rows(self, decide: Any, inputs: Sequence[Input] | None = None, **rest: Any) -> Any:
        """Run a turn of decide(state, now_ms) -> (facts, answer) over rows, within the limit of rows. inputs: what they rest on."""

        def checked(state: SessionState, now_ms: int) -> tuple[list[Fact], Any]:
            facts, answer = decide(state, now_ms)
            facts = rows_finished(state, facts, now_ms, inputs)
            check_rows(state.graph, facts)
            return facts, answer

        return self._turn(checked, **rest)

    # --- writing --------------------------------------------------------------------------------------------------

    def remember(
        self,
        text: str,
        by: str | None = None,
        group: str | None = None,
        at: Any = None,
        name: str | None = None,
        kind: str = "NOTE",
        *,
        request_id: str | None = None,
    ) -> Remembered:
        """Keep something that was said, as a row of its own; it stays in order inside its group.

        by: a name, or user, assistant, system, tool. group: the conversation. at: when it happened, as `moment_ms` reads
        it; a time to come is kept, and counts as now where age counts. name: a label it is found by.
        Raises Refused `bad_value`, `bad_time`, `bad_type`, `value_too_large`.
        """
        from pinfold.state import memory_rows as rows
        from pinfold.state.graph import format_time

        at_ms = rows.moment_ms(at)
        given = {"label": name, "content": text, "by": by, "group": group}
        fields = {key: rows.check_text(value, key, needed=key == "content") for key, value in given.items() if value is not None}
        if at_ms is not None:
            fields["at"] = format_time(at_ms)
        of = rows.kind_of_type(kind)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Remembered]:
            draft = rows.Memories(state.graph, state.schema, now_ms)
            work = draft.create(of, fields)
            return draft.facts(), Remembered(work.id)

        return cast(Remembered, self._write_rows(decide, request_id=request_id, answer_type=Remembered))

    def upsert_node(self, type: str, label: str, content: str, metadata: Mapping[str, Any] | None = None, *, request_id: str | None = None) -> Upserted:
        """Write a memory under its type and label: a new one, or new content and merged metadata for the one there is.

        type: concept, file, symbol, note or any kind. metadata: "" or None takes a key away; the map is copied.
        Raises Refused `bad_type`, `bad_value`, `value_too_large`, `bad_metadata`, `unknown_kind`.
        """
        from pinfold.state import memory_rows as rows

        item = rows.check_item(type, label, content, metadata)
        return self._kept()._upsert(item, {}, request_id)

    def _upsert(self, item: Any, more: dict[str, str], request_id: str | None = None, inputs: Sequence[Input] | None = None) -> Upserted:
        from pinfold.state import memory_rows as rows

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Upserted]:
            graph = state.graph
            draft = rows.Memories(graph, state.schema, now_ms)
            work, created, count = draft.upsert(item, more)
            answer = Upserted(work.id, item.label, rows.type_of(work), created, count, len(graph.nodes) + created, len(graph.edges))
            return draft.facts(), answer

        return cast(Upserted, self._write_rows(decide, inputs, request_id=request_id, answer_type=Upserted))

    def create_relation(
        self,
        source: str,
        target: str,
        relation: str,
        weight: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
    ) -> Related:
        """Relate two memories, or assert the relation again: its age begins anew, an absent weight changes nothing.

        weight: clamped to 0..1, 1 for a new edge without. Raises Refused `not_found`, `self_loop`, `bad_relation`,
        `unknown_relation`, `bad_weight`.
        """
        from pinfold.state import memory_rows as rows

        heavy, noted = rows.check_weight(weight), rows.check_metadata(metadata)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Related]:
            draft = rows.Memories(state.graph, state.schema, now_ms)
            work, created = draft.relate(source, target, relation, heavy, noted)
            return draft.facts(), Related(work.id, relation, rows.weight_of(work), "created" if created else "updated")

        return cast(Related, self._kept()._write_rows(decide, request_id=request_id, answer_type=Related))

    def add_interlinked(self, items: Sequence[Mapping[str, Any]], auto_link: bool = True) -> Interlinked:
        """Write memories (type, label, content, metadata?) and link those that are alike, in one entry, all or nothing.

        auto_link: `similar_to` edges, weight = cosine, from .72 on, to each other and to the 200 most similar there are;
        the same content always links, at 1. Raises Refused with the place of the first item that cannot be kept.
        """
        from pinfold.state import memory_rows as rows

        checked = rows.check_items(items)
        kept = self._kept()
        similar: list[list[tuple[str, float]]] = [[] for _ in checked]
        among: list[tuple[int, int, float]] = []
        if auto_link and checked:
            recall = kept._recall()
            kept._replica.catch_up()
            texts = [(item.label, item.content) for item in checked]
            similar = recall.similar(texts, rows.SIMILAR, rows.LINKED_AT_MOST, kept._replica.now_ms())
            among = _alike(texts, rows.SIMILAR)

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], Interlinked]:
            facts, done = rows.decide_interlink(state.graph, state.schema, checked, similar, among, now_ms)
            created = sum(new for *_, new in done.nodes)
            linked = sum(new for *_, new in done.edges)
            nodes = [{"id": id, "type": type, "label": label, "created": new} for id, type, label, new in done.nodes]
            edges = [
                {"id": id, "source": source, "relation": relation, "target": target, "weight": weight, "created": new}
                for id, source, relation, target, weight, new in done.edges
            ]
            return facts, Interlinked(created, len(nodes) - created, linked, len(edges) - linked, nodes, edges)

        return cast(Interlinked, kept._write_rows(decide))

    def prune(self, threshold: float = 0.15, dry_run: bool = False) -> PrunedLinks:
        """Drop edges that faded below threshold, and labelled memories that no edge holds and nobody asserted again for long.

        Ages are those of journaled assertions; pinned and persistent rows stay. dry_run: only say what would go, and why.
        Raises Refused `bad_threshold`.
        """
        from pinfold.state import memory_rows as rows

        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
            raise Refused(f"threshold={threshold!r}", code="bad_threshold", hint="a weight from 0 to 1")

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], tuple[list[Gone], int]]:
            facts, answer = rows.decide_prune_links(state.graph, state.schema, threshold, now_ms)
            return [] if dry_run else rows_kept(state, facts, now_ms), answer

        gone, remaining = self._kept()._turn(decide)
        what = [{"id": row.id, "line": row.line, "why": row.why} for row in gone]
        return PrunedLinks(len(gone), remaining, what, "would_prune" if dry_run else "pruned")

    # --- reading --------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        max_depth: int = 1,
        top_k: int = 5,
        offset: int = 0,
        edge_filter: str | Collection[str] | None = None,
        kinds: str | Collection[str] | None = None,
        where: Mapping[str, Any] | str | Sequence[str] | None = None,
        group: str | Collection[str] | None = None,
        session: str | None = None,
        since: Any = None,
        until: Any = None,
        actor: str | Collection[str] | None = None,
        budget_tokens: int | None = None,
        superseded: bool = False,
        explain: bool = False,
    ) -> Searched:
        """Return the best memories for a query, and what is near them by stored edges. Reading changes nothing.

        edge_filter: relations to follow. kinds, where ({"prio": {"$gte": 3}}, or `prio>=3`), group, actor, session and
        since (inclusive) / until (not), by when it held, else event time or last write, narrow the answer, never the scores.
        budget_tokens: what does not fit is passed over; where nothing fits the note says how much a match needs. superseded:
        those too that others took the place of. explain: each hit's parts, and the ids that were kept back by filters, by the
        budget, and because they are superseded. Raises Refused `bad_argument`, `bad_where`, `bad_time`.
        """
        from pinfold import recall_answers as answers

        depth, k, skip = _whole("max_depth", max_depth, limits.WALK_DEPTH_MAX), _whole("top_k", top_k, TOP_K_MAX), _whole("offset", offset, 10_000)
        if not isinstance(query, str):
            raise Refused("a query is text", code="bad_argument", hint="words to look for")
        asked = answers.Asked(query, _words(edge_filter), explain, superseded, answers.filter_of(kinds, where, group, since, until, actor))
        room = None if budget_tokens is None else _whole("budget_tokens", budget_tokens, BUDGET_MAX)
        sessions = [s for s in self._read_sessions() if session is None or s._replica.name == session]
        if not sessions:
            raise Refused(f"{session!r} is not read here", code="bad_argument", hint="this session, or the one that keeps its long-term memory")
        return answers.search(sessions, asked, depth, k, skip, room)

    def _anchors_for(self, query: str) -> list[str]:
        """Return the rows of this session that answer a query directly, at most PINNED; an exact label or id alone."""
        self._replica.catch_up()
        answer = self._recall().search(query, PINNED, now_ms=self._replica.now_ms())
        exact = [hit.id for hit in answer.hits if "exact" in hit.why]
        return exact or [hit.id for hit in answer.hits if hit.confidence > 0]

    def traverse(self, id: str, max_depth: int = 2, edge_filter: str | Collection[str] | None = None, limit: int = TRAVERSED, offset: int = 0) -> Traversed:
        """Return the memories around one along edges, either way, each at its shortest depth; the start first.

        id: of a node; NAME/ID for one of session NAME. limit: at most this many, from the offset-th on.
        Raises Refused `not_found`, `bad_argument`.
        """
        from pinfold.recall import traverse as ways
        from pinfold.state import memory_rows as rows

        depth, most = _whole("max_depth", max_depth, limits.WALK_DEPTH_MAX), _whole("limit", limit, limits.ROWS_PER_SESSION)
        skip = _whole("offset", offset, limits.ROWS_PER_SESSION)
        target, id = self._at(id)
        replica = target._replica
        replica.catch_up()
        with replica.lock:
            view = target._view()
            graph = view.graph
            rows.Memories(graph, view.schema, view.now_ms).node(id)
            reached, undone = ways.spread(graph, [id], depth, _words(edge_filter), view.now_ms)
            scored = sorted((step.depth, -ways.score_of(step), step.id) for step in reached.values())
            results = []
            for at_depth, score, found in scored[skip : skip + most]:
                node = graph.nodes[found]
                content = rows.content_of(node, view.schema)
                results.append(TraversedNode(found, rows.label_of(node), rows.type_of(node), content, at_depth, -score, ways.path_of(graph, reached, found)))
            label = rows.label_of(graph.nodes[id])
        because = target._because_of(row.node_id for row in results)
        if because:
            results = [replace(row, stale=True, because=list(because[row.node_id])) if row.node_id in because else row for row in results]
        end = skip + most
        return Traversed(label, results, len(scored), not undone, end if skip < end < len(scored) else None)

    def _at(self, id: str) -> tuple[RecallSession, str]:
        """Return (the session a node's id means, the id there)."""
        name, slash, rest = id.partition("/") if isinstance(id, str) else ("", "", id)
        if slash:
            for session in self._read_sessions():
                if session._replica.name == name:
                    return session, rest
        return self._kept(), id

    def resolve_context(self, key: str, min_score: float = BAR) -> Resolved:
        """Return what is known of a key: its slot, work in flight on it, the best memory that is sure enough, or a miss.

        min_score: 0..1. Raises Refused `bad_argument`, `bad_key`.
        """
        from pinfold import recall_answers as answers
        from pinfold.state.outcomes import Hit, Pending

        if isinstance(min_score, bool) or not isinstance(min_score, (int, float)) or not 0 <= min_score <= 1:
            raise Refused(f"min_score={min_score!r}", code="bad_argument", hint="a confidence from 0 to 1")
        found = self.peek(key)  # type: ignore[attr-defined]
        if type(found) is Hit:
            return Resolved("short_term", found.value, 1.0, session=self._replica.name, because=found.because or ())
        if type(found) is Pending:
            return Resolved("pending", None, 1.0, session=self._replica.name, promise_id=found.promise_id)
        sessions = self._read_sessions()
        memory = answers.resolve(sessions, key, float(min_score))
        if memory.node_id is None:
            return memory
        kept = next(session for session in sessions if session._replica.name == memory.session)
        return replace(memory, because=kept._because_of([memory.node_id]).get(memory.node_id, ()))

    # --- promotion ------------------------------------------------------------------------------------------------

    def promote(
        self,
        key: str,
        value: Any = None,
        node_type: str = "concept",
        metadata: Mapping[str, Any] | None = None,
        *,
        inputs: Sequence[str] | None = None,
    ) -> Promoted:
        """Keep a slot's value (or value, where given) as a long-term memory labelled key; done again, it is the same memory.

        inputs: what it was made from, as `set`; slot: and row: are of this session, wherever the memory is kept.
        Raises Refused `not_found` where there is neither, `value_too_large`, `bad_value` for bytes that are no text.
        """
        from pinfold.state.value import check_key

        check_key(key)
        replica = self._replica
        replica.catch_up()
        if value is None:
            slot = None if replica.is_over() else replica.state.silo.live(key, replica.now_ms())
            if slot is None:
                raise Refused(f"there is no value under {key!r}", code="not_found", hint="set it first, or pass value", key=key)
            value = replica.value_of(slot.value)
        return self._promote(key, value, node_type, metadata, inputs)

    def _promote(self, key: str, value: Any, node_type: str, metadata: Mapping[str, Any] | None, inputs: Sequence[str] | None = None) -> Promoted:
        from pinfold.state import memory_rows as rows

        replica = self._replica
        kept, rests = self._kept(), None
        if inputs is not None:
            away = f"session:{replica.name}/" if kept is not self else ""
            rests = kept._marked([f"{away}{given}" if given.startswith(("slot:", "row:")) else given for given in inputs])
        item = rows.check_item(node_type, key, as_text(value), metadata)
        done = kept._upsert(item, {"from_session": replica.name, "from_seq": str(replica.state.seq)}, inputs=rests)
        return Promoted(done.node_id)

    def _promote_if_due(self, key: str, slot: Any) -> None:
        """Promote a slot that was hit often enough, and journal that it was: once for each value. Best effort: this was a read."""
        replica = self._replica
        after = replica.state.settings.promote_after
        before = replica.state.recency.uses.get(key, 0)
        if after is None or before < 0 or before + replica.touches.uses.get(key, 0) < after:
            return
        try:
            self._promote(key, replica.value_of(slot.value), "concept", None)
        except Refused:
            pass  # bytes, or too long for a field: it stays where it is, and is not tried at each hit
        except PinfoldError:
            return
        try:
            replica.turn(lambda state, now_ms: ([{"f": "touch", "at": now_ms, "promoted": [key]}], None), actor=self._actor)
        except PinfoldError:
            return
        with replica.lock:
            replica.touches.uses.pop(key, None)

    def long_term_counts(self) -> dict[str, Any]:
        """Return the counts of the graph that keeps long-term memory: as `graph_counts`, with `types` and its session."""
        kept = self._kept()
        counts = kept.graph_counts()
        from pinfold.state.schema import OPEN_KINDS

        types = {kind.lower() if kind in OPEN_KINDS else kind: count for kind, count in counts["kinds"].items()}
        return {**counts, "types": types, "session": kept._replica.name}

    def embed_rows(self, told: Any = None) -> int:
        """Give every memory here its vector, telling (done, of how many) as it goes; return how many were made."""
        replica = self._replica
        replica.catch_up()
        return self._recall().embed(replica.now_ms(), told or (lambda done, total: None))


# --- helpers of these methods -------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value as the text of a memory: text as it is, JSON as its compact text. Raises Refused `bad_value`."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise Refused("bytes that are no text cannot be a memory", code="bad_value", hint="pass value as text") from error
    from pinfold.state.value import Json, pack_value

    stored, _, raw = pack_value(value)
    return (stored.text if isinstance(stored, Json) else raw or b"").decode()


def _whole(name: str, value: Any, most: int) -> int:
    if type(value) is not int or value < 0:
        raise Refused(f"{name}={value!r}", code="bad_argument", hint=f"a whole number from 0 to {most}")
    return min(value, most)


def _words(given: str | Collection[str] | None) -> frozenset[str] | None:
    return frozenset(names) if given != "" and (names := names_of(given, "edge_filter")) else None


def _alike(texts: list[tuple[str, str]], least: float) -> list[tuple[int, int, float]]:
    """Return (place, place, cosine) of the pairs among texts that are alike."""
    import numpy as np

    from pinfold.recall.static import StaticEmbedder

    rows = StaticEmbedder().embed([f"{label}\n{content}" for label, content in texts])
    found: dict[tuple[int, int], float] = {}
    for place, row in enumerate(rows):
        cosines = rows[place + 1 :] @ row
        for ahead in np.flatnonzero(cosines >= least).tolist():
            found[place, place + 1 + ahead] = min(1.0, float(cosines[ahead]))
    same: dict[str, list[int]] = {}
    for place, (_, content) in enumerate(texts):
        if content:
            for other in same.get(content, ()):
                found[other, place] = 1.0
            same.setdefault(content, []).append(place)
    return [(one, other, cosine) for (one, other), cosine in sorted(found.items())]
