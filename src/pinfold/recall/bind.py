"""Recall bound to a session: graph rows -> documents, and one index for each replica.

Invariants:
- the index is derived: built at the first search, kept up at later ones, never journaled; writers only note which ids
  they touched, and not even that where nobody has searched;
- what a search answers is what the graph holds at that moment: rows whose time is over are forgotten before it looks;
- the order inside a group is the order of creation, however an index came about;
- the replica's lock is held for copying rows, never for analysing, embedding or ranking; lock order: index, then replica;
- a cache in the store is a hint: checksummed, each text verified, best effort, in a file of its own beside the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold.entry import Fact, blake2b
from pinfold.errors import PinfoldError, Unavailable
from pinfold.recall.analyse import ANALYSER_VERSION
from pinfold.recall.document import ROLES, Answer, Document, date_in_words
from pinfold.recall.embed import Embedder, open_embedder
from pinfold.recall.index import RecallIndex, open_index
from pinfold.recall.parts import EVERYTHING, Filter
from pinfold.recall.rank import EDGES_PER_NODE
from pinfold.recall.static import StaticEmbedder
from pinfold.recall.vectors import top_slots
from pinfold.recall.walk import steps
from pinfold.state.graph import Graph, Law, Node
from pinfold.state.inputs import SUPERSEDED_BY
from pinfold.state.memory_rows import INTERNAL, META, decayed, event_ms, is_kept, metadata_of
from pinfold.state.resting import VALID_FROM, VALID_UNTIL, validity_of

if TYPE_CHECKING:
    from pinfold.engine import Engine, Replica

COPIED_AT_ONCE = 2_048
"""Rows copied under the replica's lock before writers get a turn."""
EMBED_PER_SEARCH = 64
"""Texts that a slow embedder is given with a search; `pinfold reembed` does the rest."""
SAVE_CHANGED_MIN = 256
_SPOKEN = ("by", "group", "at")
_SEQ_BYTES = 8


# --- rows as documents --------------------------------------------------------------------------------------------


class _Shape(msgspec.Struct, frozen=True):
    """Where the rows of one set of fields have what recall asks for; -1: nowhere. Most rows of a session share a few shapes."""

    spoken: bool
    by: int
    group: int
    label: int
    at: int
    meta: bool
    dated: bool
    bounded: bool
    kept: bool
    said: tuple[int, ...]
    """What is indexed, content first, but for `at`: that is said too where it is no time and nothing was spoken."""


@lru_cache(maxsize=1024)
def _shape(keys: tuple[str, ...]) -> _Shape:
    place = {key: number for number, key in enumerate(keys)}
    spoken = "content" in place and ("by" in place or "group" in place)
    left_out = {*INTERNAL, "label", META, "at", *(_SPOKEN if spoken else ())}
    said = [number for key, number in place.items() if key not in left_out]
    said.sort(key=lambda number: keys[number] != "content")
    find = place.get
    return _Shape(
        spoken,
        find("by", -1) if spoken else -1,
        find("group", -1) if spoken else -1,
        find("label", -1),
        find("at", -1),
        META in place,
        "at" in place or VALID_FROM in place,
        VALID_FROM in place or VALID_UNTIL in place,
        "pinned" in place or "recycle" in place,
        tuple(said),
    )


def document_of(row: Node | Law) -> Document:
    """Return what recall knows of a row.

    Indexed are all field values but those of INTERNAL fields. What was said in a conversation (content, with by or group)
    has a speaker, a place in its group and a date; elsewhere by and group are fields like others.
    """
    shape, values = _shape(row.keys), row.values
    said = [values[number] for number in shape.said]
    at_ms = event_ms(row) if shape.dated else None
    date = "" if at_ms is None else date_in_words(at_ms)
    if at_ms is None and shape.at >= 0:
        if shape.spoken:
            date = values[shape.at]
        else:
            said.append(values[shape.at])
    if shape.meta:
        said.extend(value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in _meta_values(row))
    by = values[shape.by] if shape.by >= 0 else ""
    label = values[shape.label] if shape.label >= 0 else None
    role = by if by in ROLES else None
    if label and by and not role:
        said.append(by)  # a label stands where the speaker would
    return Document(
        row.id,
        "\n".join(said),
        row.kind if isinstance(row, Node) else "LAW",
        group=values[shape.group] if shape.group >= 0 else None,
        speaker=None if role else by or None,
        role=role,
        date=date or None,
        name=label or None,
        at_ms=row.mark[1] if at_ms is None else at_ms,
        actor=row.mark[2],
        pinned=shape.kept and is_kept(row),
        held=validity_of(row) if shape.bounded else None,
    )


def _meta_values(row: Node | Law) -> list[Any]:
    if isinstance(row, Law):
        return []
    return [value for key, value in metadata_of(row).items() if key not in row.keys]


class Edges:
    """The stored edges of a graph, decayed as of now, as the ranker and the answer walk them. Takes the lock at each step."""

    def __init__(self, replica: Replica, now_ms: int, relations: Collection[str] | None) -> None:
        self._replica, self._now_ms, self._relations = replica, now_ms, relations

    def degree(self, node: str) -> int:
        return self._replica.state.graph.degree(node)

    def neighbours(self, node: str) -> Iterable[tuple[str, float]]:
        with self._replica.lock:
            graph = self._replica.state.graph
            found = [(other, decayed(edge, self._now_ms)) for edge, other in steps(graph, node, "both", self._relations, self._now_ms, EDGES_PER_NODE)]
        found.sort(key=lambda pair: (-pair[1], pair[0]))
        return found


# --- the index of a replica -----------------------------------------------------------------------------------------


class Recall:
    """The index of one replica, made at the first search. Threads may share it.

    superseded: of the rows that others took the place of. They have an index of their own, so that what is no longer so
    bears on no score of what is; it is made when somebody first asks for them, and not cached.
    """

    def __init__(self, replica: Replica, embedder: Embedder | None, superseded: bool = False) -> None:
        self._replica = replica
        self._superseded = superseded
        self._older: Recall | None = None
        self._embedder = embedder
        self._lock = threading.RLock()
        self._saving = threading.Lock()
        self._changed: dict[str, None] = {}  # under the replica's lock
        self._index: RecallIndex | None = None
        self._tails: dict[str, int] = {}  # group -> birth of its last member
        self._unsaved = 0
        self.name = f"recall.{ANALYSER_VERSION}.{_digest(embedder.fingerprint if embedder is not None else 'none')}"

    def note(self, facts: Iterable[Fact]) -> None:
        """Note which rows an entry touched. Called in the write path, under the replica's lock."""
        changed = self._changed
        for fact in facts:
            if fact["f"].startswith(("node.", "law.")):
                changed[fact["id"]] = None
        if self._older is not None:
            self._older.note(facts)

    def older(self) -> Recall:
        """Return the index of the superseded rows."""
        with self._replica.lock:
            if self._older is None:
                self._older = Recall(self._replica, self._embedder, superseded=True)
            return self._older

    @property
    def waiting(self) -> int:
        """How many texts have no vector yet."""
        with self._lock:
            return 0 if self._index is None else len(self._index.pending())

    def ready(self, now_ms: int) -> RecallIndex:
        """Return the index as of now. Hold `lock` while it is used."""
        if self._index is None:
            self._build(now_ms)
        self._catch_up(now_ms)
        assert self._index is not None
        return self._index

    def _build(self, now_ms: int) -> None:
        replica = self._replica
        with replica.lock:
            self._changed = {}
            graph = replica.state.graph
            ids = [*graph.laws, *graph.nodes]
        found: list[tuple[int, Document]] = []
        for begin in range(0, len(ids), COPIED_AT_ONCE):
            with replica.lock:
                found += [(row.born, document_of(row)) for id in ids[begin : begin + COPIED_AT_ONCE] if (row := self._live(graph, id, now_ms)) is not None]
        found.sort(key=lambda pair: pair[0])
        try:
            cached = None if self._superseded else replica.journal.get_derived(replica.id, self.name)
        except PinfoldError:
            cached = None
        self._index = open_index((document for _, document in found), self._embedder, None if cached is None else cached[_SEQ_BYTES:])
        self._tails = {document.group: born for born, document in found if document.group is not None}
        self._unsaved = self._index.unindexed

    def _live(self, graph: Graph, id: str, now_ms: int) -> Node | Law | None:
        row = graph.nodes.get(id) or graph.laws.get(id)
        return None if row is None or (SUPERSEDED_BY in row.keys) != self._superseded or graph.is_hidden(row, now_ms) else row

    def _catch_up(self, now_ms: int) -> None:
        replica, index = self._replica, self._index
        assert index is not None
        with replica.lock:
            graph = replica.state.graph
            if not self._changed and not (graph.due and graph.due[0][0] <= now_ms):
                return
            changed, self._changed = self._changed, {}
            rows = [(row.born, document_of(row)) for id in changed if (row := self._live(graph, id, now_ms)) is not None]
            over = graph.expired(now_ms, len(graph.due)) if graph.due and graph.due[0][0] <= now_ms else []
        alive = {document.id for _, document in rows}
        gone = [id for id in (*changed, *over) if id not in alive and id in index]
        for id in gone:
            index.delete(id)
        out_of_order: dict[str, None] = {}
        rows.sort(key=lambda pair: pair[0])
        for born, document in rows:
            old, group = index.get(document.id), document.group
            if group is not None and (old is None or old.group != group):
                if born < self._tails.get(group, -1):
                    out_of_order[group] = None
                self._tails[group] = max(born, self._tails.get(group, -1))
        index.put_many([document for _, document in rows])
        for group in out_of_order:
            self._regroup(group)
        self._unsaved += len(rows) + len(gone)

    def _regroup(self, group: str) -> None:
        """Put the members of a group in order of creation again: one came in that is older than others (a rename, an undo)."""
        index = self._index
        assert index is not None
        with self._replica.lock:
            graph = self._replica.state.graph
            born = {d.id: row.born for d in index.documents() if d.group == group and (row := graph.row(d.id)) is not None}
        members = [d for id in sorted(born, key=lambda id: born[id]) if (d := index.get(id)) is not None]
        for document in members:
            index.delete(document.id)
        index.put_many(members)

    # --- asking ---------------------------------------------------------------------------------------------------

    def search(
        self, query: str, k: int, *, filter: Filter = EVERYTHING, now_ms: int, relations: Collection[str] | None = None, explain: bool = False
    ) -> Answer:
        """Return the best k hits and how sure it is that the session holds an answer, as of now."""
        with self._lock:
            index = self.ready(now_ms)
            note = ""
            if self._embedder is not None and not getattr(self._embedder, "inline", False):
                try:
                    before = index.waiting
                    self._unsaved += before - index.embed_pending(EMBED_PER_SEARCH)
                except Unavailable as error:
                    note = f"by words alone: {error.message}"
            edges = Edges(self._replica, now_ms, relations) if self._replica.state.graph.edges else None
            answer = index.search(query, k, filter=filter, edges=edges, now_ms=now_ms, explain=explain)
        if answer.unembedded:
            note = note or f"{answer.unembedded} memories have no vector yet and are found by their words; `pinfold reembed` makes them"
        self._save_if_due()
        return msgspec.structs.replace(answer, note=answer.note or note) if note else answer

    def confidences(self, query: str, ids: Collection[str], now_ms: int) -> dict[str, float]:
        """Return how directly each row answers the query: 0..1."""
        with self._lock:
            return self.ready(now_ms).confidences(query, ids)

    def similar(self, texts: Sequence[tuple[str, str]], least: float, limit: int, now_ms: int) -> list[list[tuple[str, float]]]:
        """Return for each (label, content) up to limit (id, cosine >= least) of rows with content, the most similar first.

        Rows with the same content count as 1. With an embedder that is slow, cosines are the shipped table's, of the rows
        that share most words.
        """
        with self._lock:
            index = self.ready(now_ms)
            same = self._same_content({content for _, content in texts if content}, now_ms)
            static, inline = StaticEmbedder(), getattr(self._embedder, "inline", False)
            if inline:
                index.embed_pending()
            out = []
            for label, content in texts:
                text = f"{label}\n{content}"
                found = dict.fromkeys(same.get(content, ()), 1.0)
                if inline and index.vectors is not None and self._embedder is not None:
                    cosines = index.vectors.cosines(index.vectors.asked(self._embedder.embed([text])[0]), len(index.ids))
                    near = [(index.ids[slot], float(cosines[slot])) for slot in top_slots(cosines, limit + len(found), index.ids, least - 1e-9)]
                else:
                    hits = [hit.id for hit in index.search(text, limit, collapse=False).hits]
                    rows = static.embed([f"{d.name or ''}\n{d.text}" for id in hits if (d := index.get(id)) is not None])
                    near = list(zip(hits, (rows @ static.embed([text])[0]).astype(float).tolist(), strict=True)) if hits else []
                for id, cosine in near:
                    if cosine >= least:
                        found.setdefault(id, min(1.0, cosine))
                with self._replica.lock:
                    graph = self._replica.state.graph
                    kept = [(id, cosine) for id, cosine in found.items() if (row := graph.nodes.get(id)) is not None and "content" in row.keys]
                out.append(sorted(kept, key=lambda pair: (-pair[1], pair[0]))[:limit])
            return out

    def _same_content(self, wanted: Collection[str], now_ms: int) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with self._replica.lock:
            graph = self._replica.state.graph
            for node in graph.nodes.values():
                if "content" in node.keys and (content := node.get("content")) in wanted and not graph.is_hidden(node, now_ms):
                    found.setdefault(content, []).append(node.id)
        return found

    # --- the cache ------------------------------------------------------------------------------------------------

    def embed(self, now_ms: int, told: Callable[[int, int], None], batch: int = 256) -> int:
        """Give every text its vector, telling (done, of how many); return how many were made. Kept as it goes, so resumable."""
        done = 0
        with self._lock:
            total = self.ready(now_ms).waiting
        told(0, total)
        try:
            while done < total:
                with self._lock:
                    index = self.ready(now_ms)
                    left = index.waiting
                    if not left:
                        break
                    done += left - index.embed_pending(batch)
                    self._unsaved += left - index.waiting
                told(min(done, total), total)
                if self._unsaved >= 8 * batch:
                    self.save()
        finally:
            self.save()  # whoever stopped it keeps what was made
        return done

    def _is_due(self, share: int) -> bool:
        if self._superseded or self._replica.journal.url == "memory://":
            return False  # few rows; a copy in the same RAM gains nothing
        return self._index is not None and self._unsaved >= max(SAVE_CHANGED_MIN, len(self._index) // share)

    def _save_if_due(self) -> None:
        if self._is_due(8) and self._replica.background and not self._saving.locked():
            threading.Thread(target=self.save, name=f"pinfold-recall-{self._replica.id}", daemon=True).start()

    def close(self) -> None:
        """Keep the index in the store where enough of it is new."""
        with self._saving:
            pass  # one that is under way is waited for: the store is closed next
        if self._is_due(16):
            self.save()

    def save(self) -> None:
        """Keep the index in the store: best effort, outside every turn. A read-only or busy store is no error here."""
        with self._saving:
            with self._lock:
                if self._index is None or self._replica.recall is not self:
                    return
                body = self._replica.state.seq.to_bytes(_SEQ_BYTES, "big") + self._index.to_bytes()
                unsaved, self._unsaved = self._unsaved, 0
            try:
                self._replica.journal.put_derived(self._replica.id, self.name, body)
            except PinfoldError:
                with self._lock:
                    self._unsaved += unsaved


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()


def recall_of(replica: Replica, engine: Engine) -> Recall:
    """Return the index of a replica, which is made and filled when it is first asked."""
    embedder = engine.embedder
    if isinstance(embedder, str) or (callable(embedder) and not hasattr(embedder, "embed")):
        embedder = engine.embedder = open_embedder(embedder)  # once: a model is large
    with replica.lock:
        if replica.recall is None:
            replica.recall = Recall(replica, embedder)
        recall: Recall = replica.recall
    return recall


# --- filters ------------------------------------------------------------------------------------------------------


def with_meta(row: Node | Law) -> Node | Law:
    """Return a row whose odd metadata can be asked for by its own names."""
    if not isinstance(row, Node) or META not in row.keys:
        return row
    found: Mapping[str, Any] = {key: value for key, value in metadata_of(row).items() if key not in row.keys}
    values = (value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in found.values())
    return msgspec.structs.replace(row, keys=(*row.keys, *found), values=(*row.values, *values))


__all__ = ["Edges", "Recall", "document_of", "recall_of", "with_meta"]
