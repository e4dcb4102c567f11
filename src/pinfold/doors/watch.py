"""Following sessions for those who asked: one thread for all of them, whoever wrote the entries.

A look costs a few microseconds a session and happens every LOOK_S while anybody follows; with nobody there is no thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pinfold.errors import PinfoldError, Refused

if TYPE_CHECKING:
    from pinfold.engine import Replica
    from pinfold.entry import Entry
    from pinfold.memory import Memory

LOOK_S = 0.025
FOLLOWERS_MAX = 4_096
BATCH = 1_024
"""Entries told of after one look; where there are more, only that there are."""

Deliver = Callable[[list["Entry"]], None]
"""Called from the watching thread with new entries, oldest first; empty where too many came at once or history is gone."""


class _Followed:
    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.seq = replica.state.seq
        self.deliver: dict[object, Deliver] = {}


class Watch:
    """The sessions of a store that somebody follows."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._followed: dict[str, _Followed] = {}
        self._tickets: dict[object, str] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, session_id: str, deliver: Deliver) -> object:
        """Follow a session from now on. Return the ticket for `remove`. Raises Refused `too_many_followers`, `bad_session_name`."""
        from pinfold.arguments import check_session_name

        replica = self._memory._engine.open(check_session_name(session_id))
        ticket = object()
        with self._lock:
            if len(self._tickets) >= FOLLOWERS_MAX:
                raise Refused(f"{FOLLOWERS_MAX} followers are served already", code="too_many_followers", hint="end a subscription that is no longer read")
            followed = self._followed.get(session_id)
            if followed is None:
                followed = self._followed[session_id] = _Followed(replica)
            followed.deliver[ticket] = deliver
            self._tickets[ticket] = session_id
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name="pinfold-watch", daemon=True)
                self._thread.start()
        return ticket

    def remove(self, ticket: object) -> None:
        """Follow no longer; a ticket that is gone is fine."""
        with self._lock:
            session_id = self._tickets.pop(ticket, None)
            followed = self._followed.get(session_id) if session_id is not None else None
            if followed is not None:
                followed.deliver.pop(ticket, None)
                if not followed.deliver:
                    del self._followed[session_id]  # type: ignore[arg-type]

    def rests(self, session_id: str) -> bool:
        """Return whether anything in a followed session rests on anything: then any write may make a row stale."""
        followed = self._followed.get(session_id)
        return followed is not None and bool(followed.replica.state.inputs.given)

    def close(self) -> None:
        with self._lock:
            self._tickets.clear()
            self._followed.clear()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(LOOK_S)
            with self._lock:
                if not self._followed:
                    self._thread = None
                    return
                todo = list(self._followed.items())
            for session_id, followed in todo:
                try:
                    entries = self._new(session_id, followed)
                except PinfoldError as error:  # told once a look: the store comes back, or its writers hear of it
                    print(f"pinfold mcp: following {session_id}: {error}", file=sys.stderr)
                    continue
                if entries is None:
                    continue
                for deliver in list(followed.deliver.values()):
                    try:
                        deliver(entries)
                    except RuntimeError:
                        pass  # that loop is closed

    def _new(self, session_id: str, followed: _Followed) -> list[Entry] | None:
        """Return the entries since the last look, None for none."""
        replica = self._memory._engine.open(session_id)
        seq, before = replica.state.seq, followed.seq
        if replica is followed.replica and seq == before:
            return None
        same = replica.id == followed.replica.id
        followed.replica, followed.seq = replica, seq
        if not same or seq < before or seq - before > BATCH:
            return []
        from pinfold.entry import decode_entry

        entries = [decode_entry(record) for record in replica.journal.read(replica.id, before, BATCH)]
        entries = [entry for entry in entries if entry.seq <= seq]
        return entries if len(entries) == seq - before else []


GRAPH_FACTS = ("node.", "edge.", "law.", "schema.")


def touches_only(entries: list[Entry]) -> bool:
    """Return whether the entries only note reads: nobody needs to look again for that."""
    return bool(entries) and all(fact["f"] == "touch" for entry in entries for fact in entry.facts)


def changes_graph(entries: list[Entry]) -> bool:
    """Return whether a pin map may have changed; an empty list means it is not known."""
    return not entries or any(str(fact["f"]).startswith(GRAPH_FACTS) for entry in entries for fact in entry.facts)


def path_of(uri: str) -> tuple[str, str]:
    """Return (session, path) of a pinfold:// URI. Raises Refused `no_such_resource`."""
    from urllib.parse import unquote

    session, slash, path = uri.removeprefix("pinfold://").partition("/")
    if not uri.startswith("pinfold://") or not session or not slash or not path:
        hint = "pinfold://SESSION/pin-map/ANCHOR, pinfold://SESSION/log, status or stale"
        raise Refused(f"{uri[:100]!r} is no resource here", code="no_such_resource", hint=hint)
    return unquote(session), path


def concerns(path: str, entries: list[Entry], rests: bool) -> bool:
    """Return whether a resource of a session may have changed with these entries. rests: whether anything in it rests on anything."""
    if touches_only(entries):
        return False
    return rests or changes_graph(entries) if path.startswith("pin-map/") else True


def bridge(loop: Any, take: Deliver) -> Deliver:
    """Return a deliver that hands entries over to an event loop."""
    return lambda entries: loop.call_soon_threadsafe(take, entries)
