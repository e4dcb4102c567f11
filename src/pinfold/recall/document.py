"""What recall works over: plain documents in, hits out. Graph rows are bound to these elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import msgspec

ROLES = frozenset({"user", "assistant", "system", "tool"})
"""Speakers that say who in general, not who by name: never indexed as words."""
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")


class Document(msgspec.Struct, frozen=True, gc=False):
    """One memory.

    id      unique, the tie-breaker of every order
    text    what was said or written
    kind    a word for filters ("note", "turn" …)
    group   the conversation or file it is part of; order inside a group is the order of adding. None: free-standing
    speaker name of who said it; role: "user" or "assistant". Either may be None
    date    its date in words ("8 May, 2023"), indexed, so that "in May 2023" finds it
    name    a label or title, indexed first; other texts that mention it lead here
    at_ms   event time or last write, Unix time, for since/until and decay; None: unknown, never decays
    pinned  never decays
    held    [from, until) in Unix time where it says when it was so, None at an open end: since/until go by that
    """

    id: str
    text: str
    kind: str = ""
    group: str | None = None
    speaker: str | None = None
    role: str | None = None
    date: str | None = None
    name: str | None = None
    at_ms: int | None = None
    actor: str | None = None
    pinned: bool = False
    held: tuple[int | None, int | None] | None = None


def indexed_text(document: Document) -> str:
    """Return the text that is analysed and embedded: name and text, or date, speaker (never a role) and text."""
    if document.name:
        return f"{document.name}\n{document.text}"
    date = f"{document.date} " if document.date else ""
    who = f"{document.speaker}: " if document.speaker and document.speaker not in ROLES else ""
    return f"{date}{who}{document.text}"


def who_of(document: Document) -> str:
    """Return the speaker's name, else the role, else nothing."""
    return document.speaker or document.role or ""


def date_in_words(at_ms: int) -> str:
    """Return Unix milliseconds as "8 May, 2023" (UTC), or nothing for times a calendar does not have."""
    return _day_in_words(at_ms // 86_400_000)


@lru_cache(maxsize=1024)
def _day_in_words(day: int) -> str:
    try:
        moment = datetime.fromtimestamp(86_400 * day, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{moment.day} {MONTHS[moment.month - 1]}, {moment.year}"


class Part(msgspec.Struct, frozen=True):
    """One named part of a hit's score: how much it gave, before the final scaling."""

    name: str
    amount: float
    note: str = ""


class Hit(msgspec.Struct, frozen=True):
    """One answer. score: 0..1 rank score of the best hit's 1; confidence: 0..1 from direct match alone, bar at 0.5.

    why: which ways led here ("words", "grams", "meaning", "neighbour", "group", "who", "mention", "edge", "exact").
    count, duplicates: hits with the same words that were collapsed into this one, and their ids.
    """

    id: str
    score: float
    confidence: float
    why: tuple[str, ...] = ()
    count: int = 1
    duplicates: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """Hits, best first, and what is known of the query as a whole.

    confidence: 0..1, whether the store holds an answer at all. low: below the bar. miss: low and declared so (never for
    scripts without spaces, where the bar does not hold). empty: the query analysed to nothing.
    """

    hits: tuple[Hit, ...]
    confidence: float
    low: bool
    miss: bool
    empty: bool = False
    note: str = ""
    unembedded: int = 0
