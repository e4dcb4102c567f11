"""What a reader of another system's store yields: rows for a graph, and what could not be carried, counted by name.

A row names itself: by the id it had, or by one that follows from where it was (`derive_id`), so that the same store read
twice is the same rows. Readers open files read-only and know nothing of sessions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

from pinfold import limits
from pinfold.dialect.parse import RESERVED, is_key, is_kind, is_relation
from pinfold.errors import ConfigurationError, Refused
from pinfold.state.graph import format_time, parse_time

LINE_BYTES = limits.VALUE_BYTES
"""A longer line is no record of anybody's; it is counted and passed over."""
TEXT_BYTES = 4 * limits.VALUE_BYTES
"""A text file that is read whole."""
_MEANT = frozenset(
    {"id", "merge", "ttl", "expires", "recycle", "superseded_by", "valid_from", "valid_until", "pinned", "status", "weight", "label", "content", "meta"}
)
"""Field names that mean something here: another system's keys of these names go into `meta`."""


class Record(msgspec.Struct, gc=False):
    """A row to write. form: node, edge or law; id: None for an edge that is named by what it joins."""

    form: str
    id: str | None
    fields: dict[str, str]
    kind: str = ""
    src: str = ""
    rel: str = ""
    dst: str = ""


class Read(msgspec.Struct):
    """What a store holds. left: what could not be carried -> how often; notes: what a user should know.

    own_ids: the ids are the store's own, so a row of that id here may be another one: it is not overwritten unasked.
    kinds, relations: what the store declares, fields after id by kind.
    """

    nodes: dict[str, Record] = {}
    edges: list[Record] = []
    laws: list[Record] = []
    left: Counter[str] = msgspec.field(default_factory=Counter)
    notes: list[str] = []
    own_ids: bool = False
    kinds: dict[str, tuple[str, ...]] = {}
    relations: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.nodes) + len(self.edges) + len(self.laws)


# --- names and values ---------------------------------------------------------------------------------------------


def kind_of(name: str, otherwise: str = "NOTE") -> str:
    """Return the kind for a type of another system: its letters and digits in capitals."""
    plain = re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")[:32].rstrip("_")
    plain = plain if plain[:1].isalpha() else f"K_{plain}"[:32] if plain else otherwise
    return f"{plain}_" if plain in RESERVED else plain if is_kind(plain) else otherwise


def relation_of(name: str, otherwise: str = "relates_to") -> str:
    """Return the relation for a name of another system: as it is where it can be one, else its letters and digits."""
    if is_relation(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:64].rstrip("_")
    plain = plain if plain[:1].isalpha() else f"r_{plain}"[:64] if plain else otherwise
    return plain if is_relation(plain) else otherwise


def text_of(value: Any) -> str:
    """Return a value as a field keeps it: text as it is, nothing as "", everything else as compact JSON. Half characters become U+FFFD."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def fields_of(metadata: Any) -> dict[str, str]:
    """Return another system's keys and values as fields; keys that can be none, or mean something here, in one field `meta`."""
    fields: dict[str, str] = {}
    odd: dict[str, Any] = {}
    for key, value in metadata.items() if isinstance(metadata, Mapping) else ():
        if is_key(key) and key.lower() not in _MEANT and len(fields) < limits.FIELDS_PER_ROW // 2:
            fields[key] = text_of(value)
        else:
            odd[key] = value
    return {**fields, **({"meta": text_of(odd)} if odd else {})}


def time_of(value: Any) -> str:
    """Return a time of another system (ISO 8601, without a zone in UTC, or epoch seconds) as it is kept here, "" for none."""
    if isinstance(value, str):
        at_ms = parse_time(value) if value.endswith("Z") else None
        if at_ms is None:
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                return ""
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            at_ms = round(moment.timestamp() * 1000)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        at_ms = round(value * 1000) if abs(value) < 1e12 else 0
    else:
        return ""
    try:
        return format_time(at_ms) if at_ms else ""
    except (OverflowError, ValueError):
        return ""


def named(names: Iterable[str], count: int = 5) -> str:
    """Return the first names, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - count} more" if len(found) > count else ""
    return ", ".join(name[:80] for name in found[:count]) + more


# --- files --------------------------------------------------------------------------------------------------------


def bad_import(message: str, hint: str) -> Refused:
    return Refused(message, code="bad_import", hint=hint)


def open_file(path: str) -> IO[bytes]:
    """Return a file to read. Raises ConfigurationError `bad_path`."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", code="bad_path", hint="check the path") from error


def read_whole(path: str) -> bytes:
    """Return what is in a file. Raises ConfigurationError `bad_path`, Refused `bad_import` where it is too large."""
    with open_file(path) as file:
        try:
            content = file.read(TEXT_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}", code="bad_path", hint="check the path") from error
    if len(content) > TEXT_BYTES:
        raise bad_import(f"{path} has more than {TEXT_BYTES} bytes", "split it")
    return content


def lines_of(path: str, left: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) of a file; lines over LINE_BYTES are counted in left."""
    with open_file(path) as file:
        number = 0
        while True:
            try:
                line = file.readline(LINE_BYTES + 1)
            except OSError as error:
                raise ConfigurationError(f"{path} cannot be read: {error.strerror}", code="bad_path", hint="check the path") from error
            if not line:
                return
            number += 1
            if len(line) > LINE_BYTES:
                left[f"lines of more than {LINE_BYTES} bytes"] += 1
                while line and not line.endswith(b"\n"):
                    line = file.readline(LINE_BYTES)
                continue
            yield number, line


def json_lines(path: str, left: Counter[str]) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of a file with one JSON value a line; what is none is counted in left."""
    for number, line in lines_of(path, left):
        text = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not text:
            continue
        try:
            yield number, json.loads(text.decode("utf-8"))
        except UnicodeDecodeError:
            left["lines that are not UTF-8"] += 1
        except (ValueError, RecursionError):
            left["lines that are no JSON"] += 1


def open_sqlite(path: str) -> Any:
    """Return a connection that only reads, whoever else writes. Raises ConfigurationError `bad_path`."""
    import os
    import sqlite3
    from urllib.parse import quote

    open_file(path).close()  # says why, which SQLite does not
    connection = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True)
    connection.text_factory = bytes  # what is no UTF-8 is for the reader to count
    return connection
