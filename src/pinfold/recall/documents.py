"""What an index holds: documents by slot, their words, grams and vectors, groups and names, kept in step with put and delete.

Invariants:
- it is a function of the live documents (and their order inside groups): updates, deletes and slot numbers leave no trace;
- a slot freed by a delete is used again, so nothing grows but with what is alive;
- words and grams answer at once; vectors follow (inline embedders at the next search, others by `embed_pending`).
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinfold.recall import rank
from pinfold.recall.analyse import ANALYSER_VERSION, normalise, plain
from pinfold.recall.document import ROLES, Document, indexed_text
from pinfold.recall.embed import Embedder, open_embedder, vector_key
from pinfold.recall.lexical import PARTS, Floats, LexicalIndex
from pinfold.recall.parts import Column
from pinfold.recall.rank import Weights
from pinfold.recall.vectors import VectorStore

CACHE_FORMAT = 2
_MAGIC = b"pinfold-recall\n"
_CHECK_BYTES = 16
_EMBED_BATCH = 256
_INDEX_BATCH = 2_048
NO_TIME = np.iinfo(np.int64).min


class Documents:
    """Words, grams, vectors, groups, names of a set of documents, kept in step with `put` and `delete`.

    embedder: "static" (default), "none", "hash", "minilm", a URL, an Embedder or a callable; see `embed.open_embedder`.
    """

    def __init__(self, embedder: str | Embedder | Callable[[list[str]], Any] | None = "static", weights: Weights = rank.DEFAULT_WEIGHTS) -> None:
        self.embedder = open_embedder(embedder)
        self.weights = weights
        self.lexical = LexicalIndex()
        self.vectors: VectorStore | None = None
        self.ids: list[str] = []
        self._documents: list[Document | None] = []
        self._slot_of: dict[str, int] = {}
        self._free: list[int] = []
        self._before, self._after = Column(np.int32, -1), Column(np.int32, -1)
        self._group, self._speaker, self._kind = Column(np.int32, -1), Column(np.int32, -1), Column(np.int32, -1)
        self._asks, self._at = Column(bool, False), Column(np.int64, NO_TIME)
        self._groups: dict[str, int] = {}
        self._tails: list[int] = []
        self._group_sizes: list[int] = []
        self._free_groups: list[int] = []
        self._speakers: dict[tuple[str, str], int] = {}
        self._speaker_sizes: list[int] = []
        self._speaker_tokens: dict[str, set[int]] = {}
        self._kinds: dict[str, int] = {}
        self._pinned = 0
        self._group_lengths: Floats | None = None
        self._names = rank.NameBook()
        self._exact: dict[str, set[int]] = {}
        self._held: dict[int, tuple[int | None, int | None]] = {}
        self._unindexed: dict[int, None] = {}  # slots whose words are not in the postings yet
        self._pending: dict[int, None] = {}  # slots that have no vector yet
        self._piece_df = np.zeros(getattr(self.embedder, "pieces_known", 0), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __contains__(self, id: object) -> bool:
        return id in self._slot_of

    def get(self, id: str) -> Document | None:
        """Return the document of an id, or None."""
        slot = self._slot_of.get(id)
        return None if slot is None else self._documents[slot]

    @property
    def unindexed(self) -> int:
        """How many documents have been put but not analysed yet."""
        return len(self._unindexed)

    @property
    def waiting(self) -> int:
        """How many documents have no vector yet, 0 without an embedder."""
        return 0 if self.embedder is None else len(self._pending)

    def documents(self) -> list[Document]:
        """Return the documents, by slot."""
        return [document for document in self._documents if document is not None]

    # --- change ---------------------------------------------------------------------------------------------------
    def put(self, document: Document) -> bool:
        """Add a document, or replace the one with its id (its place in its group stays). Return whether it was new."""
        new = document.id not in self._slot_of
        self.put_many([document])
        return new

    def put_many(self, documents: Iterable[Document]) -> None:
        """Add documents, each id once, or replace the ones with their ids: as `put` in this order, and faster."""
        new: list[Document] = []
        for document in documents:
            slot = self._slot_of.get(document.id)
            if slot is None:
                new.append(document)
                continue
            old = self._documents[slot]
            assert old is not None
            if old.group != document.group:  # it joins its group after those before it
                self._add(new)
                new = []
            if old != document:
                self._replace(slot, old, document)
        self._add(new)

    def _add(self, documents: Sequence[Document]) -> None:
        for begin in range(0, len(documents), _INDEX_BATCH):
            part = documents[begin : begin + _INDEX_BATCH]
            free = self._free
            slots = [heapq.heappop(free) for _ in range(min(len(free), len(part)))]
            slots += range(len(self.ids), len(self.ids) + len(part) - len(slots))
            self._take(slots, part)
            self._unindexed.update(dict.fromkeys(slots))
            self._pending.update(dict.fromkeys(slots))
            if len(self._unindexed) >= _INDEX_BATCH:
                self.catch_up()

    def _replace(self, slot: int, old: Document, document: Document) -> None:
        self._group_lengths = None
        before, after = indexed_text(old), indexed_text(document)
        if before != after:
            if slot not in self._unindexed:
                self.lexical.remove(slot, before)
                self._unindexed[slot] = None
            self._forget_vector(slot, before)
            self._pending[slot] = None
        self._undescribe(slot, old)
        if old.group != document.group:
            self._unlink(slot, old)
            self._link([slot], [document])
        self._describe([slot], [document])

    def delete(self, id: str) -> bool:
        """Forget a document, at once and wholly. Return whether it was there."""
        slot = self._slot_of.pop(id, None)
        if slot is None:
            return False
        self._group_lengths = None
        document = self._documents[slot]
        assert document is not None
        text = indexed_text(document)
        if slot in self._unindexed:
            del self._unindexed[slot]
        else:
            self.lexical.remove(slot, text)
        self._forget_vector(slot, text)
        self._undescribe(slot, document)
        self._unlink(slot, document)
        self._documents[slot] = None
        self.ids[slot] = ""
        for column in (self._speaker, self._kind):
            column[slot] = -1
        self._asks[slot], self._at[slot] = False, NO_TIME
        heapq.heappush(self._free, slot)
        return True

    def catch_up(self) -> None:
        """Index what was put since the last search: together, which costs a third of doing it one by one."""
        if self.ids:
            self.lexical.reserve(len(self.ids) - 1)
        if self._unindexed:
            slots = list(self._unindexed)
            self._unindexed = {}
            for begin in range(0, len(slots), _INDEX_BATCH):
                part = slots[begin : begin + _INDEX_BATCH]
                self.lexical.add(part, [self._text(slot) for slot in part])

    def _take(self, slots: Sequence[int], documents: Sequence[Document]) -> None:
        """Put documents that are new into slots that are free."""
        self._group_lengths = None
        missing = max(slots, default=-1) + 1 - len(self.ids)
        if missing > 0:
            self.ids += [""] * missing
            self._documents += [None] * missing
        for slot, document in zip(slots, documents, strict=True):
            self.ids[slot] = document.id
            self._slot_of[document.id] = slot
        self._link(slots, documents)
        self._describe(slots, documents)

    def _describe(self, slots: Sequence[int], documents: Sequence[Document]) -> None:
        kinds, numbers, named = self._kinds, dict[tuple[str | None, str | None], int](), []
        kind_of, speaker_of = [], []
        for slot, document in zip(slots, documents, strict=True):
            self._documents[slot] = document
            kind_of.append(kinds.setdefault(document.kind, len(kinds)))
            who = document.speaker, document.role
            number = numbers.get(who)
            if number is None:
                number = numbers[who] = self._speaker_number(*who)
            speaker_of.append(number)
            self._speaker_sizes[number] += 1
            if document.name:
                named.append((slot, document.name))
            if document.pinned:
                self._pinned += 1
            if document.held is not None:
                self._held[slot] = document.held
        self._kind.put(slots, kind_of)
        self._speaker.put(slots, speaker_of)
        self._asks.put(slots, [rank.asks(document) for document in documents])
        self._at.put(slots, [NO_TIME if document.at_ms is None else document.at_ms for document in documents])
        for slot, name in named:
            self._exact.setdefault(exact_key(name), set()).add(slot)
            self._names.add(normalise(name), slot)

    def _speaker_number(self, speaker: str | None, role: str | None) -> int:
        name = speaker if speaker and speaker not in ROLES else ""
        role = role or ("" if name else speaker or "")
        known = self._speakers.get((name, role))
        if known is None:
            known = self._speakers[name, role] = len(self._speakers)
            self._speaker_sizes.append(0)
            for token in plain(name):
                self._speaker_tokens.setdefault(token, set()).add(known)
        return known

    def _undescribe(self, slot: int, document: Document) -> None:
        self._speaker_sizes[self._speaker[slot]] -= 1
        self._pinned -= document.pinned
        self._held.pop(slot, None)
        if document.name:
            _take(self._exact, exact_key(document.name), slot)
            self._names.remove(normalise(document.name), slot)

    def _link(self, slots: Sequence[int], documents: Sequence[Document]) -> None:
        """Put documents at the ends of their groups."""
        group_of, before, followed, following = [], [], [], []
        for slot, document in zip(slots, documents, strict=True):
            number, tail = -1, -1
            if document.group is not None:
                number = self._groups.get(document.group, -1)
                if number < 0:
                    number = self._groups[document.group] = self._new_group()
                tail = self._tails[number]
                if tail >= 0:
                    followed.append(tail)
                    following.append(slot)
                self._tails[number] = slot
                self._group_sizes[number] += 1
            group_of.append(number)
            before.append(tail)
        self._group.put(slots, group_of)
        self._before.put(slots, before)
        self._after.put(slots, [-1] * len(before))
        self._after.put(followed, following)

    def _new_group(self) -> int:
        if self._free_groups:
            return self._free_groups.pop()
        self._tails.append(-1)
        self._group_sizes.append(0)
        return len(self._tails) - 1

    def _unlink(self, slot: int, document: Document) -> None:
        if document.group is None:
            return
        number, before, after = self._group[slot], self._before[slot], self._after[slot]
        if before >= 0:
            self._after[before] = after
        if after >= 0:
            self._before[after] = before
        else:
            self._tails[number] = before
        self._group_sizes[number] -= 1
        if not self._group_sizes[number]:
            self._free_groups.append(number)
            del self._groups[document.group]
        self._group[slot] = self._before[slot] = self._after[slot] = -1

    # --- vectors --------------------------------------------------------------------------------------------------
    def _forget_vector(self, slot: int, text: str) -> None:
        if slot in self._pending:
            del self._pending[slot]
            return
        if self.vectors is not None:
            self.vectors.drop([slot])
        if len(self._piece_df):
            self._count_pieces(*self._pieces([normalise(text)]), -1)

    def _pieces(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], list[int]]:
        """Return (the word pieces of texts, end to end; how many each has)."""
        out: list[int] = []
        counts = []
        for text in texts:
            found = self.embedder.pieces(text)  # type: ignore[union-attr]
            out += found
            counts.append(len(found))
        return np.array(out, dtype=np.int64), counts

    def _count_pieces(self, pieces: NDArray[np.int64], counts: Sequence[int], times: int) -> None:
        """Count in how many texts each piece is."""
        known = len(self._piece_df)
        keys = np.repeat(np.arange(0, len(counts) * known, known), counts) + pieces
        keys.sort()
        seen = keys[np.flatnonzero(np.diff(keys, prepend=-1))] % known
        self._piece_df += times * np.bincount(seen, minlength=known)

    def pending(self) -> list[tuple[str, str, str]]:
        """Return (id, key, text) of the documents that have no vector yet; key is what a cache of vectors goes by."""
        if self.embedder is None:
            return []
        rows = ((self.ids[slot], self._text(slot)) for slot in self._pending)
        return [(id, vector_key(self.embedder.fingerprint, text), text) for id, text in rows]

    def set_vectors(self, ids: Sequence[str], vectors: NDArray[np.floating]) -> None:
        """Store vectors made elsewhere (a cache, another process): float[n, dim] of the embedder's fingerprint."""
        if self.embedder is None or not len(ids):
            return
        slots = [self._slot_of[id] for id in ids]
        if len(self._piece_df):
            self._count_pieces(*self._pieces([self._text(slot) for slot in slots if slot in self._pending]), 1)
        if self.vectors is None:
            self.vectors = VectorStore(int(np.atleast_2d(vectors).shape[1]))
        self.vectors.put(slots, vectors)
        for slot in slots:
            self._pending.pop(slot, None)

    def embed_pending(self, limit: int | None = None) -> int:
        """Embed up to limit documents that have no vector yet; return how many are left. Resumable: it just goes on."""
        if self.embedder is None or not self._pending:
            return 0
        todo = list(self._pending)[: limit if limit is not None else len(self._pending)]
        for begin in range(0, len(todo), _EMBED_BATCH):
            batch = todo[begin : begin + _EMBED_BATCH]
            texts = [self._text(slot) for slot in batch]
            if len(self._piece_df):
                pieces, counts = self._pieces(texts)
                rows = self.embedder.embed_pieces(pieces, counts)  # type: ignore[attr-defined]
                self._count_pieces(pieces, counts, 1)
            else:
                rows = self.embedder.embed(texts)
            if self.vectors is None:
                self.vectors = VectorStore(self.embedder.dim)
            self.vectors.put(batch, rows)
            for slot in batch:
                del self._pending[slot]
        return len(self._pending)

    def _text(self, slot: int) -> str:
        document = self._documents[slot]
        assert document is not None
        return normalise(indexed_text(document))

    # --- keep -----------------------------------------------------------------------------------------------------
    def to_bytes(self) -> bytes:
        """Return the lexical lanes and vectors as bytes for a cache: checksummed, droppable, read by `open_index`."""
        self.catch_up()
        lexical, buffers = self.lexical.to_parts()
        marks = b"".join(_mark_of(d) if d is not None else bytes(8) for d in self._documents)
        buffers += [marks, "\n".join(self.ids).encode("utf-8", "surrogatepass")]
        filled = np.zeros(0, dtype=np.int64)
        if self.vectors is not None:
            filled = np.flatnonzero(self.vectors.filled)
            codes, scales = self.vectors.codes_of(filled)
            buffers += [filled.tobytes(), codes.tobytes(), scales.tobytes(), np.array(sorted(self._pending), dtype=np.int64).tobytes()]
            buffers.append(self._piece_df.tobytes())
        header = {
            "format": CACHE_FORMAT,
            "analyser": ANALYSER_VERSION,
            "lexical": lexical,
            "sizes": [len(b) for b in buffers],
            "dim": self.vectors.dim if self.vectors is not None else 0,
            "fingerprint": self.embedder.fingerprint if self.embedder is not None else "",
        }
        head = msgspec.msgpack.encode(header)
        body = b"".join([_MAGIC, len(head).to_bytes(4, "big"), head, *buffers])
        return body + hashlib.blake2b(body, digest_size=_CHECK_BYTES).digest()

    def _restore(self, data: bytes, documents: Sequence[Document]) -> bool:
        """Take what a cache still knows of these documents; False where it is damaged or of another version."""
        view = memoryview(data)
        if len(data) < len(_MAGIC) + 4 + _CHECK_BYTES or data[: len(_MAGIC)] != _MAGIC:
            return False
        if hashlib.blake2b(view[:-_CHECK_BYTES], digest_size=_CHECK_BYTES).digest() != bytes(view[-_CHECK_BYTES:]):
            return False
        at = len(_MAGIC) + 4
        end = at + int.from_bytes(data[len(_MAGIC) : at], "big")
        header = msgspec.msgpack.decode(view[at:end])
        if header["format"] != CACHE_FORMAT or header["analyser"] != ANALYSER_VERSION:
            return False
        buffers = []
        for size in header["sizes"]:
            buffers.append(view[end : end + size])
            end += size
        marks, names = buffers[PARTS], str(buffers[PARTS + 1], "utf-8", "surrogatepass").split("\n")
        cached = {id: slot for slot, id in enumerate(names) if id}
        capacity = int(header["lexical"]["capacity"])
        keep = np.zeros(capacity, dtype=bool)
        slot_of: dict[str, int] = {}
        for document in documents:
            slot = cached.get(document.id)
            if slot is not None and slot < capacity and marks[8 * slot : 8 * slot + 8] == _mark_of(document):
                keep[slot] = True
                slot_of[document.id] = slot
        self.lexical = LexicalIndex.from_parts(header["lexical"], buffers[:PARTS], keep)
        taken = set(slot_of.values())
        spare = [slot for slot in range(capacity) if slot not in taken]
        more = iter(range(capacity, capacity + len(documents)))
        new = [document.id for document in documents if document.id not in slot_of]
        slot_of.update((id, spare.pop() if spare else next(more)) for id in new)
        missing = capacity - len(self.ids)
        self.ids += [""] * missing
        self._documents += [None] * missing
        self._take([slot_of[document.id] for document in documents], documents)
        self._free = sorted(spare)
        fresh = dict.fromkeys(slot_of[id] for id in new)
        self._unindexed.update(fresh)
        self._pending.update(fresh)
        same = self.embedder is not None and header["fingerprint"] == self.embedder.fingerprint and header["dim"]
        if not same:
            self._pending.update(dict.fromkeys(sorted(taken)))
            return True
        filled, dim = np.frombuffer(buffers[PARTS + 2], dtype=np.int64), int(header["dim"])
        codes = np.frombuffer(buffers[PARTS + 3], dtype=np.int8).reshape(len(filled), dim)
        scales = np.frombuffer(buffers[PARTS + 4], dtype=np.float32)
        pending = set(np.frombuffer(buffers[PARTS + 5], dtype=np.int64).tolist()) & taken
        self._pending.update(dict.fromkeys(sorted(pending)))
        self.vectors = VectorStore(dim)
        stays = keep[filled]
        self.vectors.put_codes(filled[stays], codes[stays], scales[stays])
        if len(self._piece_df):
            if len(taken) == len(cached):
                self._piece_df = np.frombuffer(buffers[PARTS + 6], dtype=np.int64).copy()
            else:
                self._count_pieces(*self._pieces([self._text(slot) for slot in taken - pending]), 1)
        return True


def _mark_of(document: Document) -> bytes:
    return hashlib.blake2b(indexed_text(document).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def exact_key(name: str) -> str:
    return " ".join(normalise(name).casefold().split())


def _take(table: dict[Any, set[int]], key: Any, slot: int) -> None:
    slots = table[key]
    slots.discard(slot)
    if not slots:
        del table[key]
