"""Memory: a store, by its URL, and the sessions in it."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import msgspec

from pinfold import limits
from pinfold.arguments import check_actor, check_session_name
from pinfold.async_session import AsyncSession
from pinfold.engine import Engine, compact, incarnation_id, incarnation_number, load_state
from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.journal.base import Journal, SessionInfo
from pinfold.journal.open import default_url, open_journal
from pinfold.session import KEEP, Session
from pinfold.state.session import SessionState, state_hash


class SessionRow(msgspec.Struct, frozen=True):
    """One session of a store. Sizes in bytes, times in Unix ms."""

    session_id: str
    seq: int
    size_bytes: int
    created_at: int
    last_used_at: int
    expires_at: int | None
    ended_at: int | None


class Memory:
    """A store of sessions, by URL: memory://, sqlite:///path[?durability=full]; default $PINFOLD_STORE or the user's data folder.

    actor: who writes, for the log. background=False starts no threads. Raises ConfigurationError.
    """

    def __init__(self, url: str | None = None, *, actor: str | None = None, background: bool = True, journal: Journal | None = None) -> None:
        self._journal = journal if journal is not None else open_journal(url or default_url())
        self._engine = Engine(self._journal, background=background)
        self._actor = check_actor(actor)
        self._sessions: dict[str, Session] = {}

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
            session = self._sessions[session_id] = Session(replica, self._engine, self._actor)
        if any(option is not KEEP for option in (silo_size, ttl_s, long_term, promote_after)):
            session.configure(silo_size=silo_size, ttl_s=ttl_s, long_term=long_term, promote_after=promote_after)
        return session

    def async_session(self, session_id: str, **options: Any) -> AsyncSession:
        """Return the session of that name for asyncio; options as `session`. Opening reads the journal: do it at start."""
        return AsyncSession(self.session(session_id, **options))

    def sessions(self, *, expired: bool = False) -> list[SessionRow]:
        """Return the living sessions of this store; with expired=True those that ended and are still kept."""
        rows = []
        for info in self._journal.sessions():
            state = load_state(self._journal, info.name)
            ended_at = _ended_at(state, self._journal.now_ms())
            if (ended_at is not None) == expired:
                rows.append(_session_row(info, state, ended_at))
        return rows

    def end(self, session_id: str) -> bool:
        """End a session: it reads as absent, its journal is kept for ENDED_SESSION_KEPT_S. False where there is none."""
        replica = self._engine.open(check_session_name(session_id))

        def decide(state: SessionState, now_ms: int) -> tuple[list[Fact], bool]:
            if not state.exists or state.is_over(now_ms, replica.touches.last_used_ms):
                return [], False
            return [{"f": "session.put", "ended": now_ms}], True

        ended = bool(replica.turn(decide, actor=self._actor))
        self.purge()
        return ended

    def restore(self, session_id: str, *, as_name: str | None = None) -> Session:
        """Bring an ended or expired session back, under as_name if given.

        Raises Refused `session_exists` while a new one lives under the name, `no_such_session`.
        """
        name = check_session_name(session_id)
        target = check_session_name(as_name) if as_name else name
        now_ms = self._journal.now_ms()
        living = {info.name.partition("@")[0] for info in self._journal.sessions() if _ended_at(load_state(self._journal, info.name), now_ms) is None}
        if target in living:
            raise Refused(f"a session {target!r} is alive", code="session_exists", hint="restore it under another name: --as NEW", session_id=target)
        numbers = sorted((incarnation_number(journal_id) for journal_id in self._journal.incarnations(name)), reverse=True)
        ended = [n for n in numbers if load_state(self._journal, incarnation_id(name, n)).exists]
        if not ended:
            raise Refused(f"no session {name!r} is kept", code="no_such_session", hint="`session list --expired` names those that are", session_id=name)
        if target == name:
            replica = self._engine.replica(name, ended[0])
        else:
            replica = self._engine.copy(name, ended[0], target)
        replica.turn(lambda state, at_ms: ([{"f": "session.put", "ended": None, "restored": at_ms}], None), actor=self._actor, over=True)
        self._engine.forget(target)
        return self.session(target)

    def purge(self) -> list[str]:
        """Drop the journals of sessions that ended longer than ENDED_SESSION_KEPT_S ago. Return their names."""
        now_ms = self._journal.now_ms()
        gone = []
        for info in self._journal.sessions():
            ended_at = _ended_at(load_state(self._journal, info.name), now_ms)
            if ended_at is not None and now_ms - ended_at > limits.ENDED_SESSION_KEPT_S * 1000:
                self._journal.drop(info.name)
                gone.append(info.name)
        return gone

    def compact(self) -> list[str]:
        """Snapshot every session, apply retention, drop what ended long ago. Return the names of compacted sessions."""
        self.purge()
        names = [info.name for info in self._journal.sessions()]
        for name in names:
            compact(self._journal, name)
        return names

    def close(self) -> None:
        """Release the store: touches are journaled, due snapshots made. Ends no session. Idempotent."""
        self._engine.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


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


def iter_states(memory: Memory) -> Iterable[tuple[str, str]]:
    """Yield (journal name, state hash) of every session in a store: two stores that yield the same are equal."""
    for info in memory._journal.sessions():
        yield info.name, state_hash(load_state(memory._journal, info.name))
