"""mem0's memories, as `Memory.get_all` returns them: a JSON file of a list or of {"results": […]}, or one memory a line."""

from __future__ import annotations

import json
from typing import Any

from pinfold.importers.records import Read, Record, bad_import, fields_of, json_lines, read_whole, text_of, time_of
from pinfold.state.schema import derive_id

DEFAULT_TOP_K = 20
_HINT = 'json.dump(memory.get_all(filters={"user_id": …}, top_k=100_000), file) writes what is read here'
_NAMES = {"user_id": "user", "agent_id": "agent", "run_id": "run", "actor_id": "actor", "role": "role", "attributed_to": "attributed_to"}
_KNOWN = frozenset({"id", "memory", "hash", "created_at", "updated_at", "expiration_date", "metadata", "score", *_NAMES})
_DERIVED = frozenset({"text_lemmatized", "embedding", "vector"})


def read(path: str, **_: Any) -> Read:
    """Return memories as NOTE nodes, at the time they were last changed. Raises Refused `bad_import`, ConfigurationError `bad_path`."""
    found = Read()
    items = _items(path, found)
    for item in items:
        text = text_of(item.get("memory") or item.get("data") or item.get("text")) if isinstance(item, dict) else ""
        if not text.strip():
            found.left["entries without a memory"] += 1
            continue
        own = text_of(item.get("id"))
        id = derive_id("NOTE", own.replace("-", "") or text)
        fields = {"content": text, **{name: text_of(item.get(key)) for key, name in _NAMES.items()}}
        fields["at"] = time_of(item.get("updated_at")) or time_of(item.get("created_at"))
        if until := time_of(item.get("expiration_date")):
            fields["valid_until"] = until
        more = {key: value for key, value in item.items() if key not in _KNOWN and key not in _DERIVED}
        metadata = item.get("metadata")
        fields_more = fields_of({**more, **(metadata if isinstance(metadata, dict) else {})})
        found.nodes[id] = Record("node", id, {**fields_more, **{key: value for key, value in fields.items() if value}}, "NOTE")
        found.left.update(f"{key} (made from the text)" for key in _DERIVED if key in item)
    if not found.nodes:
        raise bad_import(f"{path} holds no memory of mem0", _HINT)
    if len(items) == DEFAULT_TOP_K:
        found.notes.append(f"exactly {DEFAULT_TOP_K} memories, which is what get_all returns unless it is given a top_k: were there more?")
    return found


def _items(path: str, found: Read) -> list[Any]:
    content = read_whole(path)
    if content.startswith(b"SQLite format 3\0"):
        raise bad_import(f"{path} is a database of mem0's; its memories lie in its vector store", _HINT)
    try:
        whole = json.loads(content)
    except (ValueError, RecursionError):
        return [item for _, item in json_lines(path, found.left)]
    items = whole.get("results") if isinstance(whole, dict) and "results" in whole else whole
    return items if isinstance(items, list) else [items]
