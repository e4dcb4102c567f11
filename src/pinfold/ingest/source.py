"""What every kind of source has: which files it takes, what one of them says, and what all of them say together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from pinfold import limits
from pinfold.ingest.pins import PinKind, Wanted

_sentence_end = re.compile(r"(?<=[.!?;:])\s")
_surrogate = re.compile("[\ud800-\udfff]")


class Unread(Exception):
    """A file that cannot be understood, and why. What is known of it stays as it is."""


class Source(Protocol):
    """A kind of source. kinds and relations are its own in every session; parts are what `read` returned, by file."""

    kinds: tuple[PinKind, ...]
    relations: tuple[str, ...]
    link_fields: tuple[str, ...]

    def takes(self, name: str) -> bool:
        """Return whether pins may come from a file of this name."""

    def reads(self, name: str) -> bool:
        """Return whether such a file is opened, not only named."""

    def read(self, name: str, data: bytes) -> Any:
        """Return what one file says. Raises Unread."""

    def join(self, parts: Mapping[str, Any], known: Mapping[str, str], wanted: Wanted) -> dict[str, int | list[str]]:
        """Fill wanted with the pins and links of all files. known: locator -> id of pins of files that were not read.

        Return what there is to say: name -> how many, or which.
        """


def words(text: str | None, chars: int = limits.INGEST_TEXT_CHARS) -> str:
    """Return a text in one line, at most so long, "" for none; what no UTF-8 can hold is U+FFFD."""
    if not text:
        return ""
    line = " ".join(text.split())
    if not line.isascii():
        line = _surrogate.sub("\ufffd", line)
    return line if len(line) <= chars else line[: chars - 1].rstrip() + "…"


def first_line(text: str | None, chars: int = limits.INGEST_TEXT_CHARS // 2) -> str:
    """Return the first sentence of a comment, in one line, at most so long."""
    if not text:
        return ""
    paragraph = text.strip().partition("\n\n")[0]
    return words(_sentence_end.split(paragraph, maxsplit=1)[0] if len(paragraph) > chars else paragraph, chars)
