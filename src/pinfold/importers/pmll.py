"""PMLL Memory MCP 2.0.4's graph in SQLite. Its silo and promises were never on disk."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from pinfold.dialect.parse import is_id
from pinfold.importers.records import Read, Record, bad_import, fields_of, kind_of, open_sqlite, relation_of, text_of, time_of
from pinfold.state.memory_rows import written
from pinfold.state.schema import derive_id

_NODES = ("session_id", "id", "type", "label", "content", "created_at", "access_count", "metadata")
_EDGES = ("session_id", "id", "source", "target", "relation", "weight", "created_at", "metadata")


def read(path: str, *, group: str | None = None, **_: Any) -> Read:
    """Return the memories of every session in the file, or of one (group), under their own ids.

    Raises Refused `bad_import`, ConfigurationError `bad_path`.
    """
    found = Read(own_ids=True)
    connection = open_sqlite(path)
    try:
        for table, columns in (("nodes", _NODES), ("edges", _EDGES)):
            known = {row[1].decode() for row in connection.execute(f"PRAGMA table_info({table})")}
            if not set(columns) <= known:
                raise bad_import(f"{path} has no table {table} of PMLL's", "it is $PMLL_GRAPH_DB, else memory_graph.sqlite3 in PMLL's data folder")
        nodes = list(connection.execute(f"SELECT {', '.join(_NODES)} FROM nodes ORDER BY created_at, id"))
        edges = list(connection.execute(f"SELECT {', '.join(_EDGES)} FROM edges ORDER BY created_at, id"))
    except sqlite3.Error as error:
        raise bad_import(f"{path} cannot be read as SQLite: {error}", "copy it while nobody writes, or `sqlite3 FILE .recover`") from error
    finally:
        connection.close()
    sessions = {_text(row[0]) for row in nodes}
    if group is not None and group not in sessions:
        raise bad_import(f"{path} has no session {group!r}", f"it has {', '.join(sorted(sessions)[:10]) or 'none'}")
    ids: dict[tuple[str, str], str] = {}
    names: dict[tuple[str, str, str], int] = {}
    for row in nodes:
        if group in (None, _text(row[0])):
            _node(found, ids, names, row)
    for row in edges:
        if group in (None, _text(row[0])):
            _edge(found, ids, row)
    if len(sessions) > 1 and group is None:
        found.notes.append(f"{len(sessions)} sessions were in the file; each row keeps its own in from_session")
    twins = sum(count - 1 for count in names.values() if count > 1)
    if twins:
        found.notes.append(f"memories of the same type and label as another: {twins}; all were kept, `~ [ID] ; id=OTHER ; merge=true` folds two into one")
    if found.nodes:
        found.left["embeddings (made from the text)"] = len(found.nodes)
    return found


def _node(found: Read, ids: dict[tuple[str, str], str], names: dict[tuple[str, str, str], int], row: tuple[Any, ...]) -> None:
    session, own, what, label = (_text(value) for value in row[:4])
    kind = kind_of(what)
    id = own if is_id(own) and own not in found.nodes else derive_id(kind, f"{session}/{own}")
    ids[session, own] = id
    names[session, what, label] = names.get((session, what, label), 0) + 1
    fields = {**_metadata(found, row[7]), "label": label, "content": _text(row[4]), "at": time_of(row[5]), "from_session": session}
    if isinstance(row[6], int) and row[6] > 1:
        found.left["access counts"] += 1
    found.nodes[id] = Record("node", id, {key: value for key, value in fields.items() if value}, kind)


def _edge(found: Read, ids: dict[tuple[str, str], str], row: tuple[Any, ...]) -> None:
    session, own, source, target, name = (_text(value) for value in row[:5])
    ends = ids.get((session, source)), ids.get((session, target))
    if ends[0] is None or ends[1] is None:
        found.left["relations whose end is gone"] += 1
        return
    relation = relation_of(name)
    fields = {**_metadata(found, row[7]), **({} if relation == name else {"name": name}), "at": time_of(row[6])}
    if isinstance(row[5], (int, float)) and row[5] == row[5]:
        fields["weight"] = written(min(1.0, max(0.0, row[5])))
    found.edges.append(Record("edge", own if is_id(own) else None, {key: value for key, value in fields.items() if value}, "", ends[0], relation, ends[1]))


def _metadata(found: Read, raw: Any) -> dict[str, str]:
    try:
        return fields_of(json.loads(raw or "{}"))
    except (ValueError, RecursionError):
        found.left["metadata that is no JSON"] += 1
        return {}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else text_of(value)
