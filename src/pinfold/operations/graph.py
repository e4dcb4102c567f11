"""Rows of the table: the graph by lines, its reads, its history, and moving sessions in and out as text."""

from __future__ import annotations

from typing import Any

from pinfold import limits
from pinfold.errors import Refused
from pinfold.graph_session import Changed, GraphReads, SessionAt
from pinfold.operations.table import PAGE, REQUEST_ID, Call, Operation, Param, page_note, page_of, rests_of, stale_shape, whole_ms

_TEXT = Param("text", "str", "lines: + KIND [NEW] ; key=value, ~ [ID] ; key=value, - ID", positional=True, file=True, told=False)
_WIRE = Param("wire_lines", "strings", "the lines", None, cli="", told=False)
_IF_SEQ = Param("if_seq", "int", "refuse if a touched row changed after this seq", None, told=False)
_DRY = Param("dry_run", "bool", "answer the same, write nothing", False, told=False)
_NEW_RELATION = Param("allow_new_relation", "bool", "declare relations the schema lacks", False, mcp=False, memnet=True)
_ANCHORS = Param("anchor", "strings", "ids to read around", None, positional=True, also="anchor", told=False)
_DEPTH = Param("depth", "int", "edges from an anchor", limits.WALK_DEPTH, told=False)
_ROWS = Param("max_rows", "int", "at most this many rows", None, mcp=False, memnet=True)
_RELATIONS = Param("relations", "strings", "only along these", None, told=False)
_DIRECTION = Param("direction", "str", "out, in or both", "both", mcp=False)
_INPUTS = Param("inputs", "strings", "what these rows rest on: file:PATH, row:ID, slot:KEY, …", None, cli="input", repeat=True, mcp=False)
_AT = Param("at", "str", "as of a seq or an ISO time", None, mcp=False)


# --- writing ------------------------------------------------------------------------------------------------------


def _shape(done: Changed) -> dict[str, Any]:
    shape: dict[str, Any] = {"seq": done.seq, "minted": done.minted, "lines": done.lines, "dropped": done.dropped, "warnings": done.warnings}
    return {**shape, "conflicts": done.conflicts} if done.conflicts else shape


def _brief(result: dict[str, Any]) -> str:
    """Return what a model reads of a change: JSON without what is empty."""
    import msgspec

    kept = {name: value for name, value in result.items() if name == "seq" or value}
    return msgspec.json.encode(kept).decode()


def _mutate(
    call: Call, text: str, if_seq: int | None, dry_run: bool, allow_new_relation: bool, inputs: list[str] | None, request_id: str | None
) -> dict[str, Any]:
    rests = rests_of(call, inputs)
    return _shape(call.session.mutate(text, if_seq=if_seq, dry_run=dry_run, allow_new_relation=allow_new_relation, inputs=rests, request_id=request_id))


def _lines_of(text: str | None, wire_lines: list[str] | None) -> str:
    if (text is None) == (wire_lines is None):
        raise Refused("the lines are missing" if text is None else "give the lines once", code="bad_arguments", hint="as text, or as wire_lines")
    return text if text is not None else "\n".join(wire_lines or [])


def _add(call: Call, text: str | None, wire_lines: list[str] | None, dry_run: bool, allow_new_relation: bool, request_id: str | None) -> dict[str, Any]:
    lines = _lines_of(text, wire_lines)
    return _shape(call.session.add(lines, dry_run=dry_run, allow_new_relation=allow_new_relation, request_id=request_id))


def _update(
    call: Call, text: str | None, wire_lines: list[str] | None, if_seq: int | None, dry_run: bool, allow_new_relation: bool, request_id: str | None
) -> dict[str, Any]:
    lines = _lines_of(text, wire_lines)
    return _shape(call.session.update(lines, if_seq=if_seq, dry_run=dry_run, allow_new_relation=allow_new_relation, request_id=request_id))


def _delete(call: Call, ids: list[str] | None, dry_run: bool, request_id: str | None) -> dict[str, Any]:
    if not ids:
        raise Refused("nothing was named to delete", code="bad_arguments", hint="pass ids")
    return _shape(call.session.delete(*ids, dry_run=dry_run, request_id=request_id))


# --- reading ------------------------------------------------------------------------------------------------------


def _reader(call: Call, at: str | None) -> GraphReads:
    """Return what to read: the session, or the session as it was at a seq or a time."""
    if at is None:
        return call.session
    if at.isascii() and at.isdigit() and len(at) < 19:
        return call.session.at(int(at))
    from pinfold.state.memory_rows import moment_ms

    try:
        at_ms = moment_ms(at)
    except Refused as refused:
        raise Refused(refused.message, code=refused.code, hint=f"a seq (41), or {refused.hint}") from refused
    return call.session.at(at_ms=at_ms)


def _pin_map(
    call: Call,
    anchor: list[str] | None,
    query: str | None,
    depth: int,
    budget_tokens: int,
    max_rows: int | None,
    relations: list[str] | None,
    kinds: list[str] | None,
    direction: str,
    since: str,
    cursor: str,
    counter: str,
    at: str | None,
) -> dict[str, Any]:
    shown = _reader(call, at).pin_map(
        *(anchor or []),
        query=query or "",
        depth=depth,
        budget_tokens=budget_tokens,
        max_rows=max_rows,
        relations=relations,
        kinds=kinds,
        direction=direction,
        since=since,
        cursor=cursor,
        counter=counter,
    )
    return {
        "text": shown.text,
        "etag": shown.etag,
        "tokens": shown.tokens,
        "laws": _counts(shown.laws),
        "nodes": _counts(shown.nodes),
        "edges": _counts(shown.edges),
        "cursor": shown.cursor,
    }


def _counts(pair: tuple[int, int]) -> dict[str, int]:
    return {"shown": pair[0], "total": pair[1]}


def _walk(call: Call, anchor: str, depth: int, relations: list[str] | None, direction: str, max_rows: int | None, at: str | None) -> dict[str, Any]:
    most = limits.WALK_ROWS if max_rows is None else max_rows
    found = _reader(call, at).walk(anchor, depth=depth, relations=relations, direction=direction, max_rows=most)
    return {"text": found.text, "nodes": found.nodes, "hops": len(found.hops), "clipped": found.clipped}


def _neighbors(
    call: Call, anchor: str, depth: int, relations: list[str] | None, direction: str, max_rows: int | None, at: str | None, with_anchor: bool = False
) -> dict[str, Any]:
    most = limits.WALK_ROWS if max_rows is None else max_rows
    found = _reader(call, at).neighbors(anchor, depth=depth, relations=relations, direction=direction, max_rows=most, with_anchor=with_anchor)
    return {"text": found.text, "nodes": [{"id": id, "depth": at_depth} for at_depth, id in found.nodes], "clipped": found.clipped}


def _context(call: Call, anchor: str, depth: int, relations: list[str] | None, direction: str, max_rows: int | None, at: str | None) -> dict[str, Any]:
    return _neighbors(call, anchor, depth, relations, direction, max_rows, at, with_anchor=True)


def _path(call: Call, start: str, end: str, direction: str, relations: list[str] | None, weight: str | None, at: str | None) -> dict[str, Any]:
    found = _reader(call, at).path(start, end, direction=direction, relations=relations, weight=weight)
    return {"text": found.text, "nodes": found.nodes, "edges": found.edges, "cost": found.cost, "complete": found.complete}


def _get(call: Call, ids: list[str] | None, tag: str | None, at: str | None) -> dict[str, Any]:
    if not ids:
        raise Refused("no id was named", code="bad_arguments", hint="pass ids")
    found = _reader(call, at).get(*ids)
    items = [item for item in found.items if tag is None or item.line.startswith(f"{tag} [")]
    other = [item.id for item in found.items if item not in items]
    result: dict[str, Any] = {"items": [_item(item) for item in items], "missing": [*other, *found.missing]}
    near = {id: ids for id, ids in found.missing.items() if ids}
    return {**result, "near": near} if near else result


def _item(item: Any) -> dict[str, Any]:
    told = {"id": item.id, "line": item.line, "seq": item.seq, "at": whole_ms(item.at_ms), **({"actor": item.actor} if item.actor else {})}
    return {**told, **stale_shape(item.because)}


def _list(
    call: Call,
    tag: str | None,
    where: list[str] | None,
    form: str,
    active_only: bool,
    superseded: bool,
    since: str,
    until: str,
    limit: int,
    cursor: str,
    at: str | None,
) -> dict[str, Any]:
    found = _reader(call, at).find(
        tag, where=where, form=form, active_only=active_only, superseded=superseded, since=since, until=until, limit=limit, cursor=cursor
    )
    return {"items": [_item(item) for item in found.items], "total": found.total, "returned": len(found.items), "next": found.cursor}


def _schema(call: Call, limit: int, cursor: int, at: str | None) -> dict[str, Any]:
    page, more = page_of(_reader(call, at).schema(), limit, cursor)
    return {"lines": page, **more}


def _fields(call: Call, tag: str | None) -> dict[str, Any]:
    lines = [line for line in call.session.schema() if tag is None or line.startswith(f"SCHEMA {tag} ")]
    return {"lines": lines}


def _relations(call: Call) -> dict[str, Any]:
    counts = call.session.graph_counts()["relations"]
    return {"relations": counts, "lines": [line for line in call.session.schema() if line.startswith("SCHEMA relations")]}


def _housekeep(call: Call, bucket: str, tag: str | None, apply: bool, limit: int, cursor: int) -> dict[str, Any]:
    done = call.session.housekeep(bucket, kind=tag, apply=apply)
    page, more = page_of(done.lines, limit, cursor)
    return {"bucket": done.bucket, "lines": page, **more, "dropped": done.dropped, "applied": apply}


def _found_text(result: dict[str, Any]) -> str:
    from pinfold.dialect.format import stale_lines

    lines = [item["line"] for item in result["items"]]
    lines += stale_lines({item["id"]: item["because"] for item in result["items"] if "because" in item})
    lines += [f"# pinfold: no {id}" + (f"; near: {' '.join(result['near'][id])}" if id in result.get("near", {}) else "") for id in result.get("missing", ())]
    if result.get("next"):
        lines.append(f"# pinfold: {result['returned']}/{result['total']} cursor={result['next']}")
    return "\n".join(lines)


# --- history ------------------------------------------------------------------------------------------------------


def _diff(call: Call, a: int, b: int | None) -> dict[str, Any]:
    return {"text": call.session.diff(a, b)}


def _undo(call: Call, seq: int) -> dict[str, Any]:
    return _shape(call.session.undo(seq))


def _blame(call: Call, id: str) -> dict[str, Any]:
    rows = call.session.blame(id)
    return {
        "id": id,
        "fields": [
            {"field": row.field, "value": row.value, "seq": row.seq, "at": whole_ms(row.at_ms), **({"actor": row.actor} if row.actor else {})} for row in rows
        ],
    }


def _told_blame(result: dict[str, Any]) -> str:
    lines = []
    for row in result["fields"]:
        what = f"{row['field']}={row['value']}" if row["field"] else result["id"]
        lines.append(f"{row['seq']} {row['at']} {row.get('actor', '-')}  {what}")
    return "\n".join(lines)


def _fork(call: Call, name: str, at: str | None) -> dict[str, Any]:
    seq = None if at is None else _seq_of(call, at)
    fork = call.memory.fork(call.session_id, name, at=seq)
    return {"status": "forked", "session_id": fork.session_id, "seq": fork._replica.state.seq}


def _seq_of(call: Call, at: str) -> int:
    reader = _reader(call, at)
    assert isinstance(reader, SessionAt)
    return reader.seq


def _merge(call: Call, fork: str) -> dict[str, Any]:
    return _shape(call.memory.merge(fork, into=call.session_id))


def _save(call: Call, file: str) -> dict[str, Any]:
    rows, size = call.memory.save(call.session_id, call.file(file))
    return {"status": "saved", "file": file, "rows": rows, "bytes": size}


def _load(call: Call, file: str, keep_id: bool, replace: bool, ttl_s: float | None) -> dict[str, Any]:
    session = call.memory.load(call.file(file), call.named_session, keep_id=keep_id, replace=replace)
    if ttl_s is not None:
        session.configure(ttl_s=ttl_s)
    counts = session.graph_counts()
    return {"status": "loaded", "session_id": session.session_id, "seq": session._replica.state.seq, "rows": counts["nodes"] + counts["edges"] + counts["laws"]}


def _export(call: Call, kind: str, file: str | None, at: str | None) -> dict[str, Any]:
    from pinfold.portable import export_graph

    text = export_graph(_reader(call, at)._view().graph, kind)
    if file is None:
        return {"text": text}
    from pinfold.portable import write_whole

    write_whole(call.file(file), [text])
    return {"text": "", "file": file}


def _import(call: Call, kind: str, file: str, dry_run: bool, replace: bool, observations: str, prefix: str, group: str | None) -> dict[str, Any]:
    from pinfold.importers import import_store

    path = call.file(file)
    done = import_store(
        call.session, kind, path, dry_run=dry_run, replace=replace, observations=observations, prefix=prefix, group=group, progress=call.progress
    )
    return {
        "status": "would_import" if dry_run else "imported",
        "kind": kind,
        "file": file,
        "created": done.created,
        "updated": done.updated,
        "unchanged": done.unchanged,
        "kept": done.kept,
        "left": done.left,
        "notes": done.notes,
        "seq": done.seq,
    }


# --- words --------------------------------------------------------------------------------------------------------


def _told_changed(result: dict[str, Any]) -> str:
    lines = list(result["lines"])
    if result["minted"]:
        lines.append("# pinfold: minted " + " ".join(f"{label}={id}" for label, id in result["minted"].items()))
    if result["dropped"]:
        lines.append("# pinfold: dropped " + " ".join(result["dropped"]))
    lines += [f"# pinfold: warning {warning}" for warning in result["warnings"]]
    lines += result.get("conflicts", [])
    lines.append(f"# pinfold: seq={result['seq']}" + (" nothing was merged" if result.get("conflicts") else ""))
    return "\n".join(lines)


def _told_import(result: dict[str, Any]) -> str:
    created = ", ".join(f"{count} {form if count != 1 else form[:-1]}" for form, count in result["created"].items() if count) or "nothing"
    verb = "would create" if result["status"] == "would_import" else "created"
    lines = [f"{verb} {created}; updated {result['updated']}, unchanged {result['unchanged']}" + (f", kept {len(result['kept'])}" if result["kept"] else "")]
    lines += ["could not be carried:"] if result["left"] else []
    lines += [f"  {count} {name}" for name, count in result["left"].items()]
    lines += [f"note: {note}" for note in result["notes"]]
    return "\n".join(lines)


def _text(result: dict[str, Any]) -> str:
    return str(result["text"])


def _lines_text(result: dict[str, Any]) -> str:
    return "\n".join([*result["lines"], *page_note(result, len(result["lines"]))])


def _told_housekeep(result: dict[str, Any]) -> str:
    if not result["applied"]:
        return _lines_text(result)
    return "\n".join(f"dropped {id}" for id in result["dropped"])


_CHANGE = 'seq, minted{"label"|"#k": id}, lines[], dropped[], warnings[]'

ROWS = (
    Operation(
        name="mutate",
        access="write",
        doc="Write facts, all lines or none: + TSK [NEW] ; goal=ship creates (copy the minted id), + [T1] --(needs)--> [T2] links, "
        "~ [T1] ; status=done patches, - T1 drops. Quote values with ; in them.",
        params=(_TEXT, _IF_SEQ, _DRY, _NEW_RELATION, _INPUTS, REQUEST_ID),
        handler=_mutate,
        python="mutate",
        toolsets="SC",
        mcp="mutate",
        cli=("mutate",),
        text=_told_changed,
        mcp_text=_brief,
        summary="write facts as lines, all or nothing",
        result=_CHANGE,
        destructive=True,
    ),
    Operation(
        name="add",
        access="write",
        doc="Create rows: lines that begin with +. All or none.",
        params=(Param("text", "str", "the lines", None, positional=True, file=True, mcp=False), _WIRE, _DRY, _NEW_RELATION, REQUEST_ID),
        handler=_add,
        python="add",
        toolsets="M",
        mcp="add",
        cli=("add",),
        text=_told_changed,
        mcp_text=_brief,
        summary="create rows only",
        result=_CHANGE,
    ),
    Operation(
        name="update",
        access="write",
        doc="Patch and drop rows: lines that begin with ~ or -. All or none.",
        params=(Param("text", "str", "the lines", None, positional=True, file=True, mcp=False), _WIRE, _IF_SEQ, _DRY, _NEW_RELATION, REQUEST_ID),
        handler=_update,
        python="update",
        toolsets="M",
        mcp="update",
        cli=("update",),
        text=_told_changed,
        mcp_text=_brief,
        summary="patch and drop rows only",
        result=_CHANGE,
        destructive=True,
    ),
    Operation(
        name="delete",
        access="write",
        doc="Drop rows by id, nodes with their edges.",
        params=(Param("ids", "strings", "these rows", None, positional=True, also="id"), _DRY, REQUEST_ID),
        handler=_delete,
        python="delete",
        cli=("delete",),
        text=_told_changed,
        summary="drop rows by id",
        result=_CHANGE,
        destructive=True,
    ),
    Operation(
        name="pin_map",
        access="read",
        doc="The facts around anchors (ids) or a query, within budget_tokens: read it each turn. since=<etag>: only what changed.",
        params=(
            _ANCHORS,
            Param("query", "str", "or: find the anchors by this", None, told=False),
            _DEPTH,
            Param("budget_tokens", "int", "", limits.BUDGET_TOKENS, told=False),
            _ROWS,
            _RELATIONS,
            Param("kinds", "strings", "only these kinds", None, mcp=False),
            _DIRECTION,
            Param("since", "str", "etag of an earlier map", "", told=False),
            Param("cursor", "str", "of the page before", "", told=False),
            Param("counter", "str", "est, or o200k to count exactly", "est", mcp=False),
            _AT,
        ),
        handler=_pin_map,
        python="pin_map",
        toolsets="SCM",
        mcp="pin_map",
        memnet=("pin_map", "query_warm"),
        cli=("query pin-map", "query warm"),
        text=_text,
        mcp_text=_text,
        summary="the facts around anchors, within a token budget",
        result="text, etag, tokens, laws{shown, total}, nodes{shown, total}, edges{shown, total}, cursor",
        slow=True,
    ),
    Operation(
        name="walk",
        access="read",
        doc="The edges reachable from a row, in path order.",
        params=(Param("anchor", "str", "the row to start at", positional=True, also="anchor"), _DEPTH, _RELATIONS, _DIRECTION, _ROWS, _AT),
        handler=_walk,
        python="walk",
        toolsets="SM",
        mcp="query_walk",
        cli=("query walk",),
        text=_text,
        mcp_text=_text,
        summary="edges reachable from a row",
        result="text, nodes[], hops, clipped",
        slow=True,
    ),
    Operation(
        name="neighbors",
        access="read",
        doc="The nodes around one, nearest first, and the edges between.",
        params=(
            Param("anchor", "str", "the row to start at", positional=True, also="anchor"),
            Param("depth", "int", "edges from it", 1),
            _RELATIONS,
            _DIRECTION,
            _ROWS,
            _AT,
        ),
        handler=_neighbors,
        python="neighbors",
        cli=("query neighbors",),
        text=_text,
        summary="nodes around one",
        result="text, nodes[]{id, depth}, clipped",
    ),
    Operation(
        name="context",
        access="read",
        doc="A row with the nodes around it and the edges between.",
        params=(Param("anchor", "str", "the row", positional=True, also="anchor"), _DEPTH, _RELATIONS, _DIRECTION, _ROWS, _AT),
        handler=_context,
        python="neighbors",
        cli=("query context",),
        text=_text,
        summary="a row with what is around it",
        result="text, nodes[]{id, depth}, clipped",
    ),
    Operation(
        name="path",
        access="read",
        doc="A shortest path between two nodes.",
        params=(
            Param("start", "str", "from", positional=True),
            Param("end", "str", "to", positional=True),
            Param("direction", "str", "out, in or both", "out"),
            _RELATIONS,
            Param("weight", "str", "edge field that holds a step's cost", None),
            _AT,
        ),
        handler=_path,
        python="path",
        cli=("query path",),
        text=_text,
        is_empty=lambda result: not result["nodes"],
        summary="a shortest path between two nodes",
        result="text, nodes[], edges[], cost, complete",
    ),
    Operation(
        name="read_get",
        access="read",
        doc="Rows by id, as lines.",
        params=(
            Param("ids", "strings", "these rows", None, positional=True, also="id"),
            Param("tag", "str", "only if of this kind", None, mcp=False),
            _AT,
        ),
        handler=_get,
        python="get",
        toolsets="SM",
        mcp="read_get",
        cli=("read get",),
        text=_found_text,
        mcp_text=_found_text,
        is_empty=lambda result: not result["items"],
        summary="rows by id",
        result="items[]{id, line, seq, at, actor?, stale?, because?}, missing[], near?",
        slow=True,
    ),
    Operation(
        name="read_list",
        access="read",
        doc="Rows by kind and filter, oldest first, in pages.",
        params=(
            Param("tag", "str", "of this kind", None, positional=True, also="tag"),
            Param("where", "strings", "status=open, prio>=3, goal=*ship*; all must hold", None, repeat=True),
            Param("form", "str", "node, edge, law or any", "node"),
            Param("active_only", "bool", "without settled rows", False),
            Param("superseded", "bool", "those too that others took the place of", False, told=False),
            Param("since", "str", "that held at or after this ISO time", "", told=False),
            Param("until", "str", "that held before this ISO time", "", told=False),
            Param("limit", "int", "rows a page", 50, cli_default=limits.LIST_ROWS_MAX),
            Param("cursor", "str", "next of the page before", ""),
            _AT,
        ),
        handler=_list,
        python="find",
        toolsets="A",
        mcp="read_list",
        cli=("read list",),
        text=_found_text,
        mcp_text=_found_text,
        is_empty=lambda result: not result["items"],
        summary="rows by kind and filter",
        result="items[]{id, line, seq, at, actor?, stale?, because?}, total, returned, next",
        slow=True,
    ),
    Operation(
        name="schema",
        access="read",
        doc="The declared kinds, fields and relations.",
        params=(*PAGE, _AT),
        handler=_schema,
        python="schema",
        toolsets="A",
        mcp="schema",
        cli=("schema show", "tagmap show"),
        text=_lines_text,
        mcp_text=_lines_text,
        is_empty=lambda result: not result["lines"],
        summary="declared kinds and relations",
        result="lines[], total, next_cursor?",
        slow=True,
    ),
    Operation(
        name="tagmap_fields",
        access="read",
        doc="The declared fields of one kind, or of all.",
        params=(Param("tag", "str", "this kind", None, positional=True, also="tag"),),
        handler=_fields,
        python="schema",
        cli=("tagmap fields",),
        text=_lines_text,
        is_empty=lambda result: not result["lines"],
        summary="declared fields of a kind",
        result="lines[]",
    ),
    Operation(
        name="relations",
        access="read",
        doc="The relations in use, with counts, and those declared.",
        params=(),
        handler=_relations,
        python="graph_counts",
        cli=("relations list",),
        text=lambda result: "\n".join([*result["lines"], *(f"{name} {count}" for name, count in result["relations"].items())]),
        is_empty=lambda result: not result["relations"] and not result["lines"],
        summary="relations in use",
        result="relations{name: count}, lines[]",
    ),
    Operation(
        name="housekeep",
        access="write",
        doc="Rows that could go: expired, orphans, stale or recyclable. apply=true drops them, never fresh or persistent ones.",
        params=(
            Param("bucket", "str", "expired, orphans, stale, dangling or recyclable", "recyclable", positional=True),
            Param("tag", "str", "of this kind", None),
            Param("apply", "bool", "drop them", False),
            *PAGE,
        ),
        handler=_housekeep,
        python="housekeep",
        toolsets="A",
        mcp="housekeep",
        cli=("housekeep", "housekeep prune"),
        text=_told_housekeep,
        is_empty=lambda result: not result["dropped" if result["applied"] else "lines"],
        summary="rows that could go",
        result="bucket, lines[], total, next_cursor?, dropped[], applied",
        destructive=True,
        writes=lambda arguments: bool(arguments.get("apply")),
        slow=True,
    ),
    Operation(
        name="diff",
        access="read",
        doc="The document that turns the graph as of one seq into that of another (now by default).",
        params=(Param("a", "int", "from this seq", positional=True), Param("b", "int", "to this one", None, positional=True)),
        handler=_diff,
        python="diff",
        toolsets="A",
        mcp="diff",
        cli=("diff",),
        text=_text,
        mcp_text=_text,
        is_empty=lambda result: not result["text"],
        summary="what changed between two seqs, as lines",
        result="text",
        slow=True,
    ),
    Operation(
        name="undo",
        access="write",
        doc="Take back what one entry did to rows, as a new entry. Refused where later changes rest on it.",
        params=(Param("seq", "int", "of the entry, see log", positional=True),),
        handler=_undo,
        python="undo",
        toolsets="A",
        mcp="undo",
        cli=("undo",),
        text=_told_changed,
        mcp_text=_brief,
        summary="take back one entry",
        result=_CHANGE,
        destructive=True,
    ),
    Operation(
        name="blame",
        access="read",
        doc="Who last wrote a row and each of its fields, when.",
        params=(Param("id", "str", "the row", positional=True),),
        handler=_blame,
        python="blame",
        cli=("blame",),
        text=_told_blame,
        summary="who wrote a row's fields, when",
        result='id, fields[]{field ("" for the row), value, seq, at, actor?}',
    ),
    Operation(
        name="session_fork",
        access="write",
        doc="Copy a session, without its promises, to try something; merge brings it back.",
        params=(Param("name", "str", "of the fork", positional=True), Param("at", "str", "as of a seq or an ISO time", None)),
        handler=_fork,
        python="Memory.fork",
        toolsets="A",
        mcp="session_fork",
        cli=("session fork",),
        text=lambda result: f"forked {result['session_id']} seq={result['seq']}",
        summary="copy a session to try something",
        result='status "forked", session_id, seq',
    ),
    Operation(
        name="session_merge",
        access="write",
        doc="Bring a fork's rows back, field by field; with conflicts nothing is merged.",
        params=(Param("fork", "str", "the fork", positional=True),),
        handler=_merge,
        python="Memory.merge",
        cli=("session merge",),
        text=_told_changed,
        is_empty=lambda result: not result["lines"] and not result["dropped"],
        summary="bring a fork's rows back",
        result=_CHANGE + ", conflicts[]?",
    ),
    Operation(
        name="session_save",
        access="read",
        doc="Write a session to a text file, losslessly; promises are not saved.",
        params=(Param("file", "str", "to this file"),),
        handler=_save,
        python="Memory.save",
        toolsets="MA",
        mcp="session_save",
        cli=("session save",),
        text=lambda result: f"saved {result['rows']} rows, {result['bytes']} bytes to {result['file']}",
        summary="write a session to a text file",
        result='status "saved", file, rows, bytes',
        slow=True,
    ),
    Operation(
        name="session_load",
        access="write",
        doc="Make a session of a saved file; MemNet's @SNAP: 1 files too.",
        params=(
            Param("file", "str", "this file"),
            Param("keep_id", "bool", "under the name it was saved with", False),
            Param("replace", "bool", "end a living session of that name first", False),
            Param("ttl_s", "seconds", "end it this long after its last use", None, cli="ttl", mcp=False),
        ),
        handler=_load,
        python="Memory.load",
        toolsets="MA",
        mcp="session_load",
        cli=("session load",),
        text=lambda result: f"loaded {result['session_id']} seq={result['seq']} rows={result['rows']}",
        summary="make a session of a saved file",
        result='status "loaded", session_id, seq, rows',
    ),
    Operation(
        name="export",
        access="read",
        doc="The graph as json, dot, graphml or cypher.",
        params=(Param("kind", "str", "json, dot, graphml or cypher", positional=True), Param("file", "str", "to this file", None), _AT),
        handler=_export,
        python="portable.export_graph",
        cli=("export",),
        text=_text,
        summary="the graph as json, dot, graphml or cypher",
        result="text",
        slow=True,
    ),
    Operation(
        name="import",
        access="write",
        doc="Read another system's store into the session: json, memory, mem0, basic-memory, memory-folder, langgraph, memnet or pmll. "
        "Again: only what changed there. Says what could not be carried.",
        params=(
            Param("kind", "str", "json, memory, mem0, basic-memory, memory-folder, langgraph, memnet or pmll", positional=True),
            Param("file", "str", "the file or folder", positional=True),
            Param("dry_run", "bool", "answer the same, write nothing", False),
            Param("replace", "bool", "where rows of the same id differ, the file's values count", False),
            Param("observations", "str", "memory, basic-memory: they become lines of their subject's content (content), or rows (nodes)", "content"),
            Param("prefix", "str", "memory-folder: what the folder is called in paths", "/memories"),
            Param("group", "str", "pmll: only this session of the file", None),
        ),
        handler=_import,
        python="importers.import_store",
        cli=("import",),
        text=_told_import,
        summary="read another system's store into the session",
        result='status "imported"|"would_import", kind, file, created{nodes, edges, laws}, updated, unchanged, kept[], left{what: count}, notes[], seq',
        idempotent=True,
    ),
)
