"""The MCP memory server's `memory.jsonl`: an entity or a relation a line. What `read_graph` returns is read too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinfold.importers.records import Read, Record, bad_import, json_lines, kind_of, named, read_whole, relation_of, text_of
from pinfold.state.schema import derive_id

_NAMES = ("name", "entityName", "id")


def read(path: str, *, observations: str = "content", **_: Any) -> Read:
    """Return entities as nodes and relations as edges. observations: in one field `content`, or as `nodes` of their own.

    Raises Refused `bad_import` where there is neither, ConfigurationError `bad_path`.
    """
    found = Read()
    ids: dict[str, str] = {}
    relations: list[tuple[str, str, str]] = []
    for item in _items(path, found):
        what = item.get("type") if isinstance(item, dict) else None
        if what == "entity":
            _entity(found, ids, item, observations == "nodes")
        elif what == "relation":
            ends = tuple(_text(item, *names) for names in (("from", "from_id"), ("relationType", "relation_type"), ("to", "to_id")))
            if all(ends):
                relations.append(ends)  # type: ignore[arg-type]
            else:
                found.left["relations without an end or a name"] += 1
        else:
            found.left[f"records of type {text_of(what)[:40] or 'none'}"] += 1
    if not ids and not relations:
        raise bad_import(f"{path} holds no entity and no relation", "a memory.jsonl has a JSON object with a type on each line")
    bare: list[str] = []
    for source, name, target in relations:
        for end in (source, target):
            if end not in ids:
                bare.append(end)
                ids[end] = derive_id("NOTE", end)
                found.nodes[ids[end]] = Record("node", ids[end], {"label": end}, "NOTE")
        relation = relation_of(name)
        found.edges.append(Record("edge", None, {} if relation == name else {"name": name}, "", ids[source], relation, ids[target]))
    if bare:
        found.notes.append(f"no entity has these names, so each became a bare NOTE: {named(bare)}")
    return found


def _items(path: str, found: Read) -> Iterable[Any]:
    """Return the records of a file, or of the one JSON document it is."""
    import json

    items = [item for _, item in json_lines(path, found.left)]
    if any(isinstance(item, dict) and item.get("type") in ("entity", "relation") for item in items):
        return items
    try:
        whole = json.loads(read_whole(path))
    except (ValueError, RecursionError):
        return items
    if not isinstance(whole, dict):
        return items
    found.left.clear()
    parts = [(kind, part) for key, kind in (("entities", "entity"), ("relations", "relation")) for part in _list(whole.get(key))]
    return [{**part, "type": kind} for kind, part in parts if isinstance(part, dict)]


def _entity(found: Read, ids: dict[str, str], item: dict[str, Any], as_nodes: bool) -> None:
    name = _text(item, *_NAMES)
    if not name:
        found.left["entities without a name"] += 1
        return
    said = [text for value in _list(item.get("observations")) if (text := text_of(value)).strip()]
    what = _text(item, "entityType", "entity_type")
    kind = kind_of(what)
    if name in ids:
        found.notes.append(f"{name[:80]!r} stands there more than once: its observations were joined")
        record = found.nodes[ids[name]]
        said = [text for text in said if text not in record.fields.get("content", "").split("\n")]
    else:
        id = ids[name] = derive_id(kind, name)
        fields = {"label": name, **({"type": what} if what and what.lower() != kind.lower() else {})}
        record = found.nodes[id] = Record("node", id, fields, kind)
    if not as_nodes:
        record.fields["content"] = "\n".join([*filter(None, [record.fields.get("content", "")]), *said])
        return
    for text in said:
        id = derive_id("NOTE", f"{name}\n{text}")
        found.nodes[id] = Record("node", id, {"content": text}, "NOTE")
        found.edges.append(Record("edge", None, {}, "", id, "about", ids[name]))


def _text(item: dict[str, Any], *names: str) -> str:
    return next((text for name in names if (text := text_of(item.get(name)))), "")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
