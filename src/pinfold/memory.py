"""Memory: a store, by its URL, and the sessions in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold import limits
from pinfold.arguments import check_actor, check_session_name
from pinfold.bulk import Bulk
from pinfold.engine import Engine, Replica, incarnation_id, incarnation_number
from pinfold.entry import Entry, Fact, Record, decode_entry, encode_entry, hash_of
from pinfold.errors import Broken, Busy, Refused
from pinfold.fold import compact, load_state
from pinfold.graph_session import Changed
from pinfold.journal.base import Journal, SessionInfo, Snapshot
from pinfold.journal.open import open_journal
from pinfold.journal.url import default_url
from pinfold.session import KEEP, Session
from pinfold.state.promises import Promises
from pinfold.state.session import SessionState, blobs_in, decode_snapshot, encode_snapshot, state_hash
from pinfold.state.value import Blob, pack_value

if TYPE_CHECKING:
    from pinfold.async_session import AsyncSession


class SessionRow(msgspec.Struct, frozen=True):
    """One session of a store. Sizes in bytes, times in Unix ms. damaged: it cannot be opened, and its times are 0."""

    session_id: str
    seq: int
    size_bytes: int
    created_at: int
    last_used_at: int
    expires_at: int | None
    ended_at: int | None
    damaged: bool = False


class Memory:
    """A store of sessions, by URL: memory://, sqlite:///path[?durability=full]; default $PINFOLD_STORE or the user's data folder.

    actor: who writes, for the log. background=False starts no threads. embedder: what `search` embeds with; default
    $PINFOLD_EMBEDDER or "static"; "none", "hash", "minilm", https://HOST/v1#MODEL, or a function of yours. Raises
    ConfigurationError.
    """

    def __init__(
        self, url: str | None = None, *, actor: str | None = None, background: bool = True, journal: Journal | None = None, embedder: Any = None
    ) -> None:
        if os.environ.get("PINFOLD_OTEL"):
            from pinfold.telemetry import instrument

            instrument()
        self._journal = journal if journal is not None else open_journal(url or default_url())
        self._engine = Engine(self._journal, background=background)
        self._engine.embedder = embedder if embedder is not None else os.environ.get("PINFOLD_EMBEDDER") or "static"
        self._actor = check_actor(actor)
        self._sessions: dict[str, Session] = {}
        self._lent = False

    def by(self, actor: str | None) -> Memory:
        """Return this store for another writer. It shares everything with this one, and its `close` releases nothing."""
        from copy import copy

        other = copy(self)
        other._actor, other._sessions, other._lent = check_actor(actor), {}, True
        return other

    @property
    def url(self) -> str:
        return self._journal.url

    def session(
        self, session_id: str, *, silo_size: int | None = KEEP, ttl_s: float | None = KEEP, long_term: str | None = KEEP, promote_after: int | None = KEEP
    ) -> Session:
        """Return the session of that name; nothing is written until something is stored or an option given.

        silo_size: evict the least recently used slots beyond this count. ttl_s: end the session this long after its
        last use. An ended or expired session is followed by a new, empty one under its name.
        """
        replica = self._engine.open(check_session_name(session_id))
        session = self._sessions.get(session_id)
        if session is None or session._replica is not replica:
            if len(self._sessions) >= limits.SESSIONS_IN_RAM:
                self._sessions.clear()  # handles cost nothing to make, and each keeps its session in RAM
            session = self._sessions[session_id] = Session(replica, self._engine, self._actor)
        if any(option is not KEEP for option in (silo_size, ttl_s, long_term, promote_after)):
            session.configure(silo_size=silo_size, ttl_s=ttl_s, long_term=long_term, promote_after=promote_after)
        return session

    def async_session(self, session_id: str, **options: Any) -> AsyncSession:
        """Return the session of that name for asyncio; options as `session`. Opening reads the journal: do it at start."""
        from pinfold.async_session import AsyncSession

        return AsyncSession(self.session(session_id, **options))

    def sessions(self, *, expired: bool = False) -> list[SessionRow]:
        """Return the living sessions of this store, damaged ones too; with expired=True those that ended and are still kept."""
        rows = []
        for info in self._journal.sessions():
            try:
                state = load_state(self._journal, info.name)
            except Broken:
                if not expired:
                    rows.append(msgspec.structs.replace(_session_row(info, SessionState(), None), damaged=True))
                continue
            ended_at = _ended_at(state, self._journal.now_ms())
            if (ended_at is not None) == expired:
                rows.append(_session_row(info, state, ended_at))
        return rows

    def end(self, session_id: str) -> bool:
        """End a session: it reads as absent, its journal is kept for ENDED_SESSION_KEPT_S. False where there is none.

        In a file this also drops what ended long ago; in a store that is a server `compact` and `purge` do.
        """
        replica = self._engine.open(check_session_name(session_id))

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], bool]:
            if not state.exists or state.is_over(now_ms, replica.touches.last_used_ms):
                return [], False
            return [{"f": "session.put", "ended": now_ms}], True

        ended = bool(replica.turn(decide, actor=self._actor))
        if self._journal.local:
            self.purge()
        return ended

    def restore(self, session_id: str, *, as_name: str | None = None) -> Session:
        """Bring an ended or expired session back, under as_name if given.

        Raises Refused `session_exists` while a new one lives under the name, `no_such_session`.
        """
        name = check_session_name(session_id)
        target = check_session_name(as_name) if as_name else name
        now_ms = self._journal.now_ms()
        if any(_ended_at(load_state(self._journal, journal_id), now_ms) is None for journal_id in self._journal.incarnations(target)):
            raise Refused(f"a session {target!r} is alive", code="session_exists", hint="restore it under another name: --as NEW", session_id=target)
        numbers = sorted((incarnation_number(journal_id) for journal_id in self._journal.incarnations(name)), reverse=True)
        states = {n: load_state(self._journal, incarnation_id(name, n)) for n in numbers}
        ended = [n for n, state in states.items() if state.exists and _ended_at(state, now_ms) is not None]
        if not ended:
            raise Refused(f"no session {name!r} is kept", code="no_such_session", hint="`session list --expired` names those that are", session_id=name)
        if target == name:
            replica = self._engine.replica(name, ended[0])
        else:
            replica = self._engine.copy(name, ended[0], target)
        replica.turn(lambda state, at_ms: ([{"f": "session.put", "ended": None, "restored": at_ms}], None), actor=self._actor, over=True)
        self._engine.forget(target)
        return self.session(target)

    def fork(self, session_id: str, name: str, *, at: int | None = None) -> Session:
        """Copy a session as of seq `at` (now by default) under a new name, without its promises. Returns the fork.

        Raises Refused `session_exists`, `no_such_session`, `bad_seq`, `history_gone`.
        """
        from pinfold.history import Past

        source = self._engine.open(check_session_name(session_id))
        source.catch_up()
        if not source.state.exists or source.is_over():
            raise Refused(f"there is no session {session_id!r}", code="no_such_session", hint="`session list` names those there are", session_id=session_id)
        if at == 0:
            raise Refused(f"session {session_id!r} had not begun then", code="bad_seq", hint="`log` shows its entries", seq=at)
        for _ in range(limits.TURN_ATTEMPTS):
            with source.lock:
                seq = source.state.seq if at is None else at
                state = decode_snapshot(encode_snapshot(Past(self._journal, source.id).at(seq)))
            with self._journal.write_lock(source.id, limits.LOCK_WAIT_S):  # nothing is erased between the look and the copy
                records = self._journal.read(source.id, seq - 1, 1) if seq > 0 else []
                if not records or records[0].seq != seq:
                    first = records[0].seq if records else 1
                    raise Refused(f"entry {seq} is no longer kept", code="history_gone", hint="ask for a later one", first_seq=first)
                if records[0].hash == state.hash:
                    return self._begin_fork(source, name, records[0], state)
            source.catch_up()
        raise Busy(f"session {session_id!r} is rewritten all the time", hint="try again")

    def _begin_fork(self, source: Replica, name: str, record: Record, state: SessionState) -> Session:
        last_token, state.promises = state.promises.last_token, Promises()
        state.promises.last_token = last_token
        state.requests.clear()
        _drop_values_gone(self._journal, source.id, state)
        state.settings = msgspec.structs.replace(state.settings, extra={**state.settings.extra, "forked_from": source.name, "fork_seq": state.seq})
        return self._begin(name, record, state, lambda blob: self._journal.get_blob(source.id, blob.sha256))

    def merge(self, fork_id: str, *, into: str | None = None) -> Changed:
        """Bring what a fork's graph changed since it was forked into its origin (or into): all, or nothing and the conflicts.

        Merged again, it brings what changed since; a merge that was undone is brought back by undoing that.
        Raises Refused `not_a_fork`, `history_gone`.
        """
        fork = self.session(fork_id)
        extra = fork._replica.state.settings.extra
        if "fork_seq" not in extra:
            raise Refused(f"session {fork_id!r} is not a fork", code="not_a_fork", hint="`session fork` makes one", session_id=fork_id)
        return self.session(into or extra["forked_from"]).merge_from(fork, extra["fork_seq"])

    def save(self, session_id: str, path: str) -> tuple[int, int]:
        """Write a session to a text file, losslessly but for promises; beside it first, then renamed. Returns (rows, bytes)."""
        from pinfold.portable import write_whole
        from pinfold.savefile import save_lines

        replica = self._engine.open(check_session_name(session_id))
        if not replica.state.exists:
            raise Refused(f"there is no session {session_id!r}", code="no_such_session", hint="`session list` names those there are", session_id=session_id)
        with replica.lock:
            lines = list(save_lines(session_id, replica.state, replica.raw_of))
            rows = len(replica.state.graph)
        return rows, write_whole(path, lines)

    def load(self, path: str, session_id: str | None = None, *, keep_id: bool = False, replace: bool = False) -> Session:
        """Make a session of a saved file (a MemNet `@SNAP: 1` file too): as session_id, under its own name, or a new one.

        Raises Refused `session_exists` where one of that name lives and replace was not given, `bad_snapshot`.
        """
        from pinfold.dialect.legacy import is_snapshot
        from pinfold.portable import read_text
        from pinfold.savefile import load_text

        text = read_text(path)
        large: dict[bytes, bytes] = {}

        def pack(value: Any) -> Any:
            stored, _, raw = pack_value(value)
            if isinstance(stored, Blob) and raw is not None:
                large[stored.sha256] = raw
            return stored

        if is_snapshot(text):
            return self._load_legacy(text, session_id, keep_id, replace)
        with Bulk():
            saved, state = load_text(text, pack)
        name = self._name_for(session_id, saved, keep_id)
        state.seq = max(state.seq, 1)
        record = encode_entry(Entry(state.seq, b"", state.at_ms, None, self._actor, [{"f": "session.put", "loaded": state.seq}]))
        state.hash = record.hash
        return self._begin(name, record, state, lambda blob: large.get(blob.sha256), replace, ours=True)

    def _load_legacy(self, text: str, session_id: str | None, keep_id: bool, replace: bool) -> Session:
        from pinfold.dialect.legacy import parse_snapshot
        from pinfold.dialect.parse import Batch, Op
        from pinfold.state.mutate import refuse

        snapshot = parse_snapshot(text)
        if snapshot.problems:
            raise refuse(snapshot.problems)
        name = self._name_for(session_id, snapshot.session, keep_id)
        self._make_room(name, replace)
        schema = [
            Op("", "schema", 0, f"SCHEMA {tag}", kind=tag, fields={"fields": " ".join(fields)})
            for tag, fields in snapshot.columns.items()
            if tag not in ("EDG", "LAW")
        ]
        session = self.session(name)
        session._change(Batch([*schema, *snapshot.ops], [], {}, [], len(snapshot.ops)), "add", None, False, True, None)
        return session

    def _name_for(self, wanted: str | None, saved: str, keep_id: bool) -> str:
        if keep_id:
            return check_session_name(saved)
        return f"s_{os.urandom(4).hex()}" if wanted is None else check_session_name(wanted)

    def _make_room(self, name: str, replace: bool) -> Replica:
        """Return a session of that name in which nothing is written. Raises Refused `session_exists`."""
        replica = self._engine.open(check_session_name(name))
        if replica.state.exists and not replica.is_over():
            if not replace:
                raise _exists(name)
            self.end(name)
            replica = self._engine.open(name)
        return replica

    def _begin(
        self, name: str, record: Record, state: SessionState, fetch: Callable[[Blob], bytes | None], replace: bool = False, ours: bool = False
    ) -> Session:
        """Begin a journal in the middle: with state, which record ends. ours: nobody else holds the state, so it need not be read back.

        Raises Refused `session_exists`, `bad_snapshot`.
        """
        state.recency.last_used_ms = max(state.recency.last_used_ms, self._journal.now_ms())  # else its ttl may be over at its birth
        try:
            body = encode_snapshot(state)
        except OverflowError as error:
            raise Refused(f"a number in it cannot be kept: {error}", code="bad_snapshot", hint="`session load` reads what `session save` wrote") from error
        blobs = {blob.sha256: raw for blob in blobs_in(state) if (raw := fetch(blob)) is not None}
        taken = self._make_room(name, replace)
        if not self._journal.begin(taken.id, record, Snapshot(state.seq, hash_of(body), body, list(blobs)), blobs):
            raise _exists(name)
        if ours:
            taken.begun(state, len(body))
        else:
            self._engine.forget(name)
        return self.session(name)

    def purge(self) -> list[str]:
        """Drop the journals of sessions that ended longer than ENDED_SESSION_KEPT_S ago. Return their names."""
        before_ms = self._journal.now_ms() - limits.ENDED_SESSION_KEPT_S * 1000
        gone = []
        for info in self._journal.sessions():
            try:
                if not self._is_past(info, before_ms):
                    continue
                with self._journal.write_lock(info.name, limits.LOCK_WAIT_S):
                    if self._is_past(info, before_ms):  # it may have been restored meanwhile
                        self._journal.drop(info.name)
                        gone.append(info.name)
            except Broken:
                continue  # what is damaged is kept: `pinfold doctor` names it, and it is in nobody's way here
        return gone

    def _is_past(self, info: SessionInfo, before_ms: int) -> bool:
        """Return whether a session ended before then. A look at its last entry spares loading those in use."""
        last = self._journal.read(info.name, info.last_seq - 1)
        if not last or decode_entry(last[-1]).at_ms >= before_ms:
            return False
        ended_at = _ended_at(load_state(self._journal, info.name), self._journal.now_ms())
        return ended_at is not None and ended_at < before_ms

    def compact(self, told: Callable[[int, int], None] | None = None) -> list[str]:
        """Snapshot every session, apply retention, drop what ended long ago. Return the names of compacted sessions.

        told: called with (sessions done, sessions). Raises JournalCorrupt where one is damaged, after all others were compacted.
        """
        self.purge()
        names, damage = [], None
        found = self._journal.sessions()
        for done, info in enumerate(found, 1):
            try:
                compact(self._journal, info.name)
                names.append(info.name)
            except Broken as error:
                damage = damage or error
            if told is not None:
                told(done, len(found))
        if damage is not None:
            raise damage
        return names

    def close(self) -> None:
        """Release the store: touches are journaled, due snapshots made. Ends no session. Idempotent."""
        if not self._lent:
            self._engine.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _drop_values_gone(journal: Journal, journal_id: str, state: SessionState) -> None:
    """Drop the slots of a past state whose large values were replaced since and are no longer kept: a miss is made again."""
    gone = {blob.sha256 for blob in blobs_in(state) if journal.get_blob(journal_id, blob.sha256) is None}
    for key, slot in list(state.silo.slots.items()) if gone else ():
        if isinstance(slot.value, Blob) and slot.value.sha256 in gone:
            state.silo._drop(key)
            state.recency.order.pop(key, None)


def _ended_at(state: SessionState, now_ms: int) -> int | None:
    if state.settings.ended_at_ms is not None:
        return state.settings.ended_at_ms
    return state.expires_at_ms() if state.is_over(now_ms) else None


def _session_row(info: SessionInfo, state: SessionState, ended_at: int | None) -> SessionRow:
    return SessionRow(
        session_id=info.name.partition("@")[0],
        seq=info.last_seq,
        size_bytes=info.entry_bytes + info.snapshot_bytes + info.blob_bytes,
        created_at=state.settings.created_at_ms,
        last_used_at=max(state.at_ms, state.recency.last_used_ms),
        expires_at=state.expires_at_ms(),
        ended_at=ended_at,
    )


def _exists(name: str) -> Refused:
    return Refused(f"a session {name!r} is alive", code="session_exists", hint="choose another name, or end it first", session_id=name)


def iter_states(memory: Memory) -> Iterable[tuple[str, str]]:
    """Yield (journal name, state hash) of every session in a store: two stores that yield the same are equal."""
    for info in memory._journal.sessions():
        yield info.name, state_hash(load_state(memory._journal, info.name))
