"""A session as a text file: lossless, readable, in the dialect itself. Promises are not saved: whoever holds them is elsewhere.

    # pinfold snapshot 1
    # pinfold session {"name": …, "seq": …, …}        settings, counters and what else is no row, as JSON
    SCHEMA …                                          present lines, each section only if it has rows
    ## Laws … ## Nodes … ## Edges …
    # pinfold row ID SEQ AT_MS BORN ACTOR EXTRA       one for each row, in the order of the rows; ACTOR and EXTRA as JSON
    SLOT key=… ; index=… ; stored=… ; value=…         text=, json= or base64=; expires= and by= where they are

`load_text(save_text(s)) == s`: schema, counters, order and provenance included.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from pinfold.dialect.format import format_document, format_edge, format_law, format_node, format_value
from pinfold.dialect.parse import Op, fields_of, parse_lines
from pinfold.entry import Fact
from pinfold.errors import Refused
from pinfold.state.graph import Graph, Row
from pinfold.state.schema import Schema
from pinfold.state.session import SessionState, Settings
from pinfold.state.silo import Silo, Slot
from pinfold.state.value import Blob, Json, Stored, unpack_raw

HEAD = "# pinfold snapshot 1"
_SESSION, _ROW, _SLOT = "# pinfold session ", "# pinfold row ", "SLOT "


def save_lines(name: str, state: SessionState, fetch: Callable[[Blob], bytes]) -> Iterator[str]:
    """Yield the lines of a session's file. fetch: returns the bytes of a large value."""
    graph = state.graph
    rest = {
        "name": name,
        "seq": state.seq,
        "at_ms": state.at_ms,
        "settings": msgspec.to_builtins(state.settings),
        "next_index": state.silo.next_index,
        "last_token": state.promises.last_token,
        "graph": {name: value for name, value in _dumped(graph).items() if name not in ("nodes", "edges", "laws", "marks", "shapes")},
        "schema": state.schema.dump(),
    }
    yield HEAD
    yield _SESSION + _json(rest)
    yield from state.schema.lines()
    yield from format_document(
        [format_law(row.id, _pairs(row)) for row in graph.laws.values()],
        [format_node(row.id, row.kind, _pairs(row)) for row in graph.nodes.values()],
        [format_edge(row.id, row.src, row.rel, row.dst, _pairs(row)) for row in graph.edges.values()],
    )
    for row in graph.rows():
        seq, at_ms, actor = row.mark
        yield f"{_ROW}{row.id} {seq} {at_ms} {row.born} {_json(actor)}" + (f" {_json(row.extra)}" if row.extra else "")
    for key, slot in state.silo.slots.items():
        yield _SLOT + _slot_fields(key, slot, fetch)


def _dumped(graph: Graph) -> dict[str, Any]:
    dumped = graph.dump()
    assert isinstance(dumped, dict)
    return dumped


def _pairs(row: Row) -> Iterable[tuple[str, str]]:
    return zip(row.keys, row.values, strict=True)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _slot_fields(key: str, slot: Slot, fetch: Callable[[Blob], bytes]) -> str:
    value: Any = slot.value
    if isinstance(value, Blob):
        raw = unpack_raw(fetch(value), "b" if value.kind == "j" else value.kind)
        value = Json(raw) if value.kind == "j" else raw
    if isinstance(value, Json):
        kind, text = "json", value.text.decode()
    elif isinstance(value, bytes):
        kind, text = "base64", base64.b64encode(value).decode()
    else:
        kind, text = "text", value
    fields = {"key": key, "index": str(slot.index), "stored": str(slot.stored_at_ms)}
    if slot.expires_at_ms is not None:
        fields["expires"] = str(slot.expires_at_ms)
    if slot.actor is not None:
        fields["by"] = slot.actor
    if slot.extra:
        fields["extra"] = _json(slot.extra)
    fields[kind] = text
    return " ; ".join(f"{name}={_quoted(value)}" for name, value in fields.items())


def _quoted(value: str) -> str:
    """Return a value as a field shows it; the empty one in quotes, so that it is there."""
    return format_value(value) if value else '""'


# --- loading ------------------------------------------------------------------------------------------------------


def load_text(text: str, pack: Callable[[Any], Stored]) -> tuple[str, SessionState]:
    """Return (the name a file was saved under, the state it holds). pack: keeps a value, the large ones beside the state.

    Raises Refused `bad_snapshot` with the line that does not fit; nothing is half-loaded.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    if lines[0].strip("\r") != HEAD:
        raise _bad(1, "it does not begin with the line " + HEAD)
    if len(lines) < 2 or not lines[1].startswith(_SESSION):
        raise _bad(2, "the session line is missing")
    rest = _from_json(lines[1].removeprefix(_SESSION), 2)
    present: list[str] = []
    marks: dict[str, tuple[int, int, str | None, int, Fact | None]] = {}
    silo = Silo()
    for number, line in enumerate(lines[2:], 3):
        if line.startswith(_ROW):
            _read_row(line, number, marks)
        elif line.startswith(_SLOT):
            _read_slot(line, number, silo, pack)
        elif line[:1] != "#" and not line.startswith("SCHEMA "):
            present.append(line)
    try:
        state = SessionState()
        state.seq, state.at_ms = rest["seq"], rest["at_ms"]
        state.settings = msgspec.convert(rest["settings"], Settings)
        state.graph = _graph(present, marks, rest["graph"])
        state.schema = Schema.load(rest["schema"])
        state.promises.last_token = rest["last_token"]
        silo.next_index, silo.silo_size = rest["next_index"], state.settings.silo_size
        state.silo = silo
        return str(rest["name"]), state
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise _bad(2, f"the session line does not fit: {error!r}") from error


def _from_json(text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise _bad(number, f"not JSON: {error}") from error


def _read_row(line: str, number: int, marks: dict[str, tuple[int, int, str | None, int, Fact | None]]) -> None:
    try:
        id, seq, at_ms, born, actor = line.removeprefix(_ROW).split(" ", 4)
        extra: Fact | None = None
        if not actor.startswith("null"):
            name, end = json.JSONDecoder().raw_decode(actor)
        else:
            name, end = None, 4
        if actor[end:].strip():
            extra = json.loads(actor[end:])
        marks[id] = (int(seq), int(at_ms), name, int(born), extra)
    except ValueError as error:
        raise _bad(number, f"the row line does not fit: {error}") from error


def _read_slot(line: str, number: int, silo: Silo, pack: Callable[[Any], Stored]) -> None:
    fields = fields_of(line.removeprefix(_SLOT))
    try:
        assert fields is not None
        value: Any
        if "json" in fields:
            value = pack(json.loads(fields["json"]))
        else:
            value = pack(base64.b64decode(fields["base64"], validate=True) if "base64" in fields else fields["text"])
        expires = fields.get("expires")
        extra = json.loads(fields["extra"]) if "extra" in fields else None
        slot = Slot(int(fields["index"]), value, int(expires) if expires else None, int(fields["stored"]), fields.get("by"), extra)
        silo._put(fields["key"], slot)
    except (AssertionError, KeyError, ValueError) as error:
        raise _bad(number, f"the slot line does not fit: {error}") from error


def _graph(present: list[str], marks: dict[str, tuple[int, int, str | None, int, Fact | None]], rest: dict[str, Any]) -> Graph:
    batch = parse_lines(present)
    if batch.problems or batch.pipes:
        problem = batch.problems[0] if batch.problems else None
        raise Refused(f"the file does not read back: {problem or 'pipe rows'}", code="bad_snapshot", hint="`session load` reads what `session save` wrote")
    rows: dict[str, list[Any]] = {"law": [], "node": [], "edge": []}
    shapes: dict[tuple[str, ...], int] = {}
    kept: dict[tuple[int, int, str | None], int] = {}
    for op in batch.ops:
        mark = marks.get(op.id or "")
        if mark is None or op.form not in rows:
            raise Refused(f"the row {op.id} has no row line", code="bad_snapshot", hint="`session load` reads what `session save` wrote")
        head = [op.id, shapes.setdefault(tuple(op.fields), len(shapes)), list(op.fields.values()), kept.setdefault(mark[:3], len(kept)), mark[3], mark[4]]
        rows[op.form].append([*head, *_tail(op)])
    dumped = {**rest, "marks": [list(m) for m in kept], "shapes": [list(s) for s in shapes], "nodes": rows["node"], "edges": rows["edge"], "laws": rows["law"]}
    return Graph.load(dumped)


def _tail(op: Op) -> list[str]:
    return [op.kind] if op.form == "node" else [op.src, op.rel, op.dst] if op.form == "edge" else []


def _bad(number: int, reason: str) -> Refused:
    return Refused(f"line {number} of the snapshot: {reason}", code="bad_snapshot", hint="`session load` reads what `session save` wrote", line=number)
