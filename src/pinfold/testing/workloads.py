"""Small workloads whose histories can be checked: appends to one journal, claims of one key."""

from __future__ import annotations

from collections.abc import Hashable

from pinfold.entry import GENESIS, Entry, Record, encode_entry
from pinfold.errors import Refused, Unavailable
from pinfold.journal.base import Journal
from pinfold.session import Session
from pinfold.state.outcomes import Claimed, Hit, Pending
from pinfold.testing.linearize import Recorder


def record_appends(recorder: Recorder, journal: Journal, tag: str, count: int, session: str = "register") -> None:
    """Try to append count records, one after another, each after the last one read; record it as a register of hashes."""

    def head() -> bytes:
        records = journal.read(session, max(0, last.seq - 1))
        return records[-1].hash if records else GENESIS

    last = Record(0, GENESIS, b"")
    for n in range(count):
        recorder.call(("read",), head, Unavailable)
        records = journal.read(session, last.seq)
        last = records[-1] if records else last
        mine = encode_entry(Entry(last.seq + 1, last.hash, 1_000 + n, None, tag, [{"f": "touch", "at": n}]))
        recorder.call(("cas", last.hash, mine.hash), lambda mine=mine: journal.append(session, last.seq, last.hash, [mine], {}) is None, Unavailable)  # type: ignore[misc]


def record_claims(recorder: Recorder, session: Session, who: str, count: int, *, peeks: bool = True, key: str = "job") -> None:
    """Claim one key again and again, give it back most times; record it as a claimable key."""

    held: Claimed | None = None

    def claim() -> Hashable:
        nonlocal held
        answer = session.claim(key, 3600)
        if isinstance(answer, Claimed):
            held = answer
            return "won"
        return ("hit", answer.value) if isinstance(answer, Hit) else "pending"

    def peek() -> Hashable:
        found = session.peek(key)
        return ("hit", found.value) if isinstance(found, Hit) else "pending" if isinstance(found, Pending) else "miss"

    def settle(claimed: Claimed, value: str | None) -> bool:
        try:
            if value is None:
                session.release(claimed)
            else:
                session.fulfil(claimed, value)
        except Refused:
            return False
        return True

    for n in range(count):
        name = f"{who}:{n}"
        if peeks:
            recorder.call(("peek",), peek, Unavailable)
        if recorder.call(("claim", name), claim, Unavailable) == "won":
            assert held is not None
            claimed, held = held, None
            last = n == count - 1
            recorder.call(("fulfil", name, name) if last else ("release", name), lambda c=claimed, v=name if last else None: settle(c, v), Unavailable)  # type: ignore[misc]
