"""LangGraph's store in SQLite (`SqliteStore`): an item is an ITEM node, named by its namespace and key."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from pinfold.importers.records import Read, Record, bad_import, open_sqlite, text_of, time_of
from pinfold.state.graph import parse_time
from pinfold.state.schema import derive_id


def read(path: str, **_: Any) -> Read:
    """Return the items that have not expired. Raises Refused `bad_import`, ConfigurationError `bad_path`."""
    found = Read()
    connection = open_sqlite(path)
    try:
        known = {row[1].decode() for row in connection.execute("PRAGMA table_info(store)")}
        if not {"prefix", "key", "value"} <= known:
            raise bad_import(f"{path} has no table of LangGraph's store", "it is the file that SqliteStore was given; a checkpointer's is another one")
        columns = [name if name in known else "NULL" for name in ("prefix", "key", "value", "created_at", "updated_at", "expires_at")]
        for row in connection.execute(f"SELECT {', '.join(columns)} FROM store ORDER BY updated_at, prefix, key"):
            _item(found, *row)
        tables = {name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "store_vectors" in tables:
            (count,) = connection.execute("SELECT count(*) FROM store_vectors").fetchone()
            if count:
                found.left["vectors (made from the values)"] += count
    except sqlite3.Error as error:
        raise bad_import(f"{path} cannot be read as SQLite: {error}", "copy it while nobody writes, or `sqlite3 FILE .recover`") from error
    finally:
        connection.close()
    return found


def _item(found: Read, prefix: Any, key: Any, value: Any, created: Any, updated: Any, expires: Any) -> None:
    try:
        namespace = _decoded(prefix).split(".") if prefix else []
        name = _decoded(key)
        content = json.loads(value)
    except (UnicodeDecodeError, ValueError, TypeError, RecursionError):
        found.left["items that are no JSON"] += 1
        return
    until = time_of(_decoded(expires)) if expires else ""
    if until and (parse_time(until) or 0) <= time.time() * 1000:
        found.left["items that had expired"] += 1
        return
    id = derive_id("ITEM", json.dumps([*namespace, name], ensure_ascii=False, separators=(",", ":")))
    fields = {"lg_ns": text_of(namespace), "lg_key": name, "value": text_of(content), "expires": until}
    fields["at"] = time_of(_decoded(updated or created or b""))
    found.nodes[id] = Record("node", id, {field: text for field, text in fields.items() if text}, "ITEM")


def _decoded(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
