"""Rows of the table: sessions, silo and promises."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from pinfold import limits
from pinfold.errors import Refused
from pinfold.operations.table import REQUEST_ID, Call, Operation, Param, key_of, page_of, part_of, rests_of, stale_shape, whole_ms
from pinfold.state.outcomes import AlreadyApplied, Claimed, Hit, Miss, Pending, Rejected
from pinfold.state.value import check_key
from pinfold.steps import Steps

_KEY = Param("key", "str", "names the work; or give tool and arguments", None, positional=True)
_TOOL = Param("tool", "str", "or: the tool about to be called", None, told=False)
_ARGUMENTS = Param("arguments", "object", "and its arguments, in any order", None, told=False)
_TTL = Param("ttl_s", "seconds", "forget after", None, cli="ttl", told=False)
_LEASE = Param("lease_s", "seconds", "how long the claim lasts unrenewed", limits.LEASE_MCP_S, cli="lease", told=False)
_WAIT = Param("wait_s", "seconds", "wait for work in flight", 0, cli="wait", told=False)
_TOKEN = Param("token", "int", "the claim's token", None, told=False)
_INPUTS = Param("inputs", "strings", "what it rests on: file:PATH, tree:FOLDER, row:ID, slot:KEY, …", None, cli="input", repeat=True, told=False)
_FRESH = Param("fresh", "bool", "a stale value is a miss", False, mcp=False)


# --- sessions -----------------------------------------------------------------------------------------------------


def _open(
    call: Call,
    silo_size: int | None,
    ttl_s: float | None,
    long_term: str | None,
    promote_after: int | None,
    schema: str | None,
    map_file: str | None,
    map_lines: list[str] | None,
    seed_lines: list[str] | None,
    allow_new_relation: bool,
    must_exist: bool = False,
) -> dict[str, Any]:
    session = call.session
    existed = session._replica.state.exists and not session._replica.is_over()
    if must_exist and not existed:
        hint = f"`session open {session.session_id}` begins one, `session restore` brings an ended one back"
        raise Refused(f"there is no session {session.session_id!r}", code="no_such_session", hint=hint, session_id=session.session_id)
    document = "\n".join([*_declared(call, schema, map_file, map_lines), *(seed_lines or [])])
    wanted: dict[str, Any] = {"silo_size": silo_size, "ttl_s": ttl_s, "long_term": long_term, "promote_after": promote_after}
    session.configure(**{name: value for name, value in wanted.items() if value is not None})
    if document:
        session.add(document, allow_new_relation=allow_new_relation)
    settings = session._replica.state.settings
    return {
        "status": "resumed" if existed else "initialized",
        "session_id": session.session_id,
        "silo_size": settings.silo_size,
        "ttl_s": None if settings.ttl_ms is None else settings.ttl_ms / 1000,
        "seq": session._replica.state.seq,
    }


def _declared(call: Call, schema: str | None, map_file: str | None, map_lines: list[str] | None) -> list[str]:
    """Return the SCHEMA lines of a schema text, or of a map in MemNet's words. Raises DocumentRefused."""
    if map_file is None and not map_lines:
        return [] if schema is None else [schema]
    from pinfold.dialect.format import format_schema_kind
    from pinfold.dialect.legacy import parse_map
    from pinfold.portable import read_text
    from pinfold.state.mutate import refuse

    text = "\n".join([*([read_text(call.file(map_file))] if map_file is not None else []), *(map_lines or [])])
    if text.lstrip("\ufeff \n").startswith("SCHEMA"):
        return [text, *([schema] if schema else [])]
    columns, problems = parse_map(text)
    if problems:
        raise refuse(problems)
    lines = [format_schema_kind(kind, fields, False) for kind, fields in columns.items() if kind not in ("EDG", "LAW")]
    return [*([schema] if schema else []), *lines]


def _open_in_minutes(call: Call, ttl: float | None, **rest: Any) -> dict[str, Any]:
    if call.named_session is None:  # as MemNet's: a new one, not the project's, so that seeds meet nothing
        call.name_session(f"s_{os.urandom(4).hex()}")
    return _open(call, None, None if ttl is None else ttl * 60, None, None, None, **rest)


def _info(call: Call) -> dict[str, Any]:
    status = call.session.status()
    return {
        "session_id": status.session_id,
        "short_term": status.short_term,
        "promises": status.promises,
        "long_term": status.long_term,
        "promotion_threshold": status.promotion_threshold,
        "seq": status.seq,
        "expires_at": whole_ms(status.expires_at),
        "ledger": status.ledger,
    }


def _list(call: Call, expired: bool, limit: int, cursor: int) -> dict[str, Any]:
    page, more = page_of(call.memory.sessions(expired=expired), limit, cursor)
    rows = [
        {
            "session_id": row.session_id,
            "seq": row.seq,
            "size_bytes": row.size_bytes,
            "created_at": whole_ms(row.created_at),
            "last_used_at": whole_ms(row.last_used_at),
            "expires_at": whole_ms(row.expires_at),
            **({"ended_at": whole_ms(row.ended_at)} if expired else {}),
            **({"damaged": True} if row.damaged else {}),
        }
        for row in page
    ]
    return {"sessions": rows, **more}


def _close(call: Call) -> dict[str, Any]:
    return {"status": "ended" if call.memory.end(call.session_id) else "absent", "session_id": call.session_id}


def _restore(call: Call, as_name: str | None) -> dict[str, Any]:
    session = call.memory.restore(call.session_id, as_name=as_name)
    return {"status": "restored", "session_id": session.session_id, "seq": session.status().seq}


def _flush(call: Call) -> dict[str, Any]:
    return {"status": "flushed", "cleared_count": call.session.flush().cleared_count}


def _log(call: Call, after: int, limit: int, actor: str | None) -> dict[str, Any]:
    rows = call.session.log(after=after, limit=limit, actor=actor)
    told = [
        {
            "seq": row.seq,
            "at": whole_ms(row.at_ms),
            **({"actor": row.actor} if row.actor else {}),
            **({"request_id": row.request_id} if row.request_id else {}),
            "changes": row.changes,
        }
        for row in rows
    ]
    return {"entries": told, "next_after": rows[-1].seq if rows else after}


# --- silo and promises --------------------------------------------------------------------------------------------


def _peek(
    call: Call,
    key: str | None,
    tool: str | None,
    arguments: dict[str, Any] | None,
    claim: bool,
    lease_s: float,
    wait_s: float,
    fresh: bool,
    offset: int,
    limit_bytes: int | None,
    request_id: str | None = None,
) -> dict[str, Any] | Steps[dict[str, Any]]:
    name = check_key(key_of(key, tool, arguments))
    if claim or wait_s > 0:
        return _peek_steps(call, name, claim, lease_s, wait_s, fresh, offset, limit_bytes, request_id)
    return _found(call, call.session.peek(name, fresh=fresh), offset, limit_bytes)


def _peek_steps(
    call: Call, key: str, claim: bool, lease_s: float, wait_s: float, fresh: bool, offset: int, limit_bytes: int | None, request_id: str | None
) -> Steps[dict[str, Any]]:
    session = call.session
    found = yield from session._claim_steps(key, lease_s, wait_s, request_id, fresh) if claim else session._peek_steps(key, wait_s, fresh)
    return _found(call, found, offset, limit_bytes)


def _found(call: Call, found: Hit | Pending | Claimed | Rejected | Miss | AlreadyApplied, offset: int, limit_bytes: int | None) -> dict[str, Any]:
    if isinstance(found, Hit):
        return {"hit": True, **stale_shape(found.because), **part_of(found.value, offset, limit_bytes, call.shown), "index": found.index}
    if isinstance(found, Pending):
        return {"hit": True, "status": "pending", "promise_id": found.promise_id, "lease_left_s": _s(found.lease_left_s)}
    if isinstance(found, Claimed):
        return {"hit": False, "claimed": True, "promise_id": found.key, "token": found.token, "lease_left_s": _s(found.lease_left_s)}
    if isinstance(found, Rejected):
        return {"hit": False, "status": "rejected", "promise_id": found.promise_id, "reason": found.reason}
    if isinstance(found, AlreadyApplied):
        raise found.refused()
    return {"hit": False}


def _claim(
    call: Call, key: str | None, tool: str | None, arguments: dict[str, Any] | None, lease_s: float, wait_s: float, fresh: bool, request_id: str | None
) -> dict[str, Any] | Steps[dict[str, Any]]:
    return _peek(call, key, tool, arguments, True, lease_s, wait_s, fresh, 0, None, request_id)


def _set(
    call: Call,
    key: str | None,
    value: Any,
    tool: str | None,
    arguments: dict[str, Any] | None,
    ttl_s: float | None,
    token: int | None,
    inputs: list[str] | None,
    request_id: str | None,
) -> dict[str, Any]:
    stored = call.session.set(key_of(key, tool, arguments), value, ttl_s=ttl_s, token=token, inputs=rests_of(call, inputs), request_id=request_id)
    return {"status": "stored", "index": stored.index, **({"evicted": stored.evicted} if stored.evicted else {})}


def _resolve(
    call: Call,
    promise_id: str,
    payload: Any,
    error: str | None,
    token: int | None,
    wait_s: float,
    inputs: list[str] | None,
    ttl_s: float | None,
    request_id: str | None,
) -> dict[str, Any] | Steps[dict[str, Any]]:
    session = call.session
    if payload is not None and error is not None:
        raise Refused("a promise is resolved with a payload or rejected with an error, not both", code="bad_arguments", hint="pass one of them")
    if payload is not None:
        settled = session.fulfil(promise_id, payload, token=token, ttl_s=ttl_s, inputs=rests_of(call, inputs), request_id=request_id)
        return {"status": "resolved", "promise_id": promise_id, "index": settled.index, **({"evicted": settled.evicted} if settled.evicted else {})}
    if error is not None:
        session.reject(promise_id, error, token=token, request_id=request_id)
        return {"status": "rejected", "promise_id": promise_id, "reason": error}
    if wait_s > 0:
        return _wait(call, promise_id, wait_s)
    known = session.promise(promise_id)
    result: dict[str, Any] = {"status": known.status, "promise_id": promise_id, "payload": call.shown(known.payload)}
    if known.status == "resolved":
        result |= stale_shape(session._because(promise_id))
    if known.status == "rejected":
        result["reason"] = known.reason
    if known.lease_left_s is not None:
        result["lease_left_s"] = _s(known.lease_left_s)
    return result


def _wait(call: Call, key: str, timeout_s: float) -> Steps[dict[str, Any]]:
    return _waited(call, (yield from call.session._wait_steps(check_key(key), timeout_s)), key)


def _waited(call: Call, outcome: Hit | Rejected | Pending | Miss, key: str) -> dict[str, Any]:
    if isinstance(outcome, Hit):
        return {"status": "resolved", "promise_id": key, "payload": call.shown(outcome.value), **stale_shape(outcome.because)}
    if isinstance(outcome, Rejected):
        return {"status": "rejected", "promise_id": key, "payload": None, "reason": outcome.reason}
    if isinstance(outcome, Pending):
        return {"status": "pending", "promise_id": key, "payload": None, "lease_left_s": _s(outcome.lease_left_s)}
    return {"status": "unknown", "promise_id": key, "payload": None}


def _renew(call: Call, promise_id: str, token: int, lease_s: float) -> dict[str, Any]:
    return {"status": "renewed", "promise_id": promise_id, "lease_left_s": _s(call.session.renew(promise_id, lease_s, token=token).lease_left_s)}


def _drop(call: Call, keys: list[str] | None, prefix: str | None, dry_run: bool) -> dict[str, Any]:
    if not keys and prefix is None:
        raise Refused("nothing was named to drop", code="bad_arguments", hint="pass keys, or a prefix")
    if dry_run:
        live = set(call.session.keys())
        found = [key for key in keys or [] if key in live] + (call.session.keys(prefix) if prefix is not None else [])
        return {"status": "would_drop", "keys": list(dict.fromkeys(found))}
    return {"status": "dropped", "keys": call.session.drop(*(keys or []), prefix=prefix).keys}


def _forget(call: Call, keys: list[str] | None, dry_run: bool, **conditions: Any) -> dict[str, Any]:
    gone = call.session.forget(*(keys or []), dry_run=dry_run, **conditions)
    rows = {"rows": gone.rows} if gone.rows else {}
    return {"status": "would_forget" if dry_run else "forgotten", "keys": gone.keys, **rows, **({"erased": True} if gone.erased else {})}


def _keys(call: Call, prefix: str, limit: int, cursor: int) -> dict[str, Any]:
    page, more = page_of(call.session.keys(prefix), limit, cursor)
    return {"keys": page, **more}


def _s(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# --- words for a terminal -----------------------------------------------------------------------------------------


def _told_open(result: dict[str, Any]) -> str:
    size = "" if result["silo_size"] is None else f" silo_size={result['silo_size']}"
    ttl = "" if result["ttl_s"] is None else f" ttl={result['ttl_s']:g}s"
    return f"{result['status']} {result['session_id']} seq={result['seq']}{size}{ttl}"


def _told_status(result: dict[str, Any]) -> str:
    short, promises, ledger, graph = result["short_term"], result["promises"], result["ledger"], result["long_term"]
    uncounted = "" if short["hits"] or short["misses"] else "  (those of single commands are not counted)"
    size = "no limit" if short["silo_size"] is None else f"limit {short['silo_size']}"
    return "\n".join(
        (
            f"session   {result['session_id']}  seq {result['seq']}" + (f"  expires {result['expires_at']}" if result["expires_at"] else ""),
            f"silo      {short['slots']} slots ({size}), {short['bytes']} bytes, {short['evicted']} evicted",
            f"reads     {short['hits']} hits, {short['misses']} misses" + uncounted,
            f"graph     {graph['nodes']} nodes, {graph['edges']} edges, {graph['laws']} laws",
            f"promises  {promises['pending']} pending, {promises['resolved']} resolved, {promises['rejected']} rejected",
            f"ledger    {ledger['executions_avoided']} executions avoided, {ledger['waits_joined']} waits joined",
            *([f"pin maps  {ledger['tokens_served']} tokens read, dumps had been about {ledger['tokens_full']}"] if ledger["tokens_served"] else []),
        )
    )


def _told_list(result: dict[str, Any]) -> str:
    return "\n".join(
        f"{row['session_id']}  seq={row['seq']} bytes={row['size_bytes']} used={row['last_used_at']}"
        + (f" expires={row['expires_at']}" if row["expires_at"] else "")
        + (f" ended={row['ended_at']}" if row.get("ended_at") else "")
        for row in result["sessions"]
    )


def _told_log(result: dict[str, Any]) -> str:
    return "\n".join(f"{row['seq']} {row['at']} {row.get('actor', '-')}  {'; '.join(row['changes'])}" for row in result["entries"])


def _told_set(result: dict[str, Any]) -> str:
    return f"stored [{result['index']}]" + (f" evicted {' '.join(result['evicted'])}" if "evicted" in result else "")


def _told_claim(result: dict[str, Any]) -> str:
    if result.get("claimed"):
        return f"claimed {result['promise_id']} token={result['token']} lease_left={result['lease_left_s']:g}s"
    return ""


def _told_resolve(result: dict[str, Any]) -> str:
    return f"{result['status']}: {result['reason']}" if result.get("reason") else f"{result['status']}"


ROWS = (
    Operation(
        name="session_open",
        access="write",
        doc="Open a session with a map of its kinds, a new one unless named. Later calls that name none go to it. Never wipes.",
        params=(
            Param("ttl", "float", "minutes after the last use until it ends", None, cli=""),
            Param("map_file", "str", "a file with the map", None, cli=""),
            Param("map_lines", "strings", "@TAG: id|field|…, or SCHEMA lines", None, cli=""),
            Param("seed_lines", "strings", "lines to add", None, cli=""),
            Param("allow_new_relation", "bool", "", False, cli="", told=False),
        ),
        handler=_open_in_minutes,
        python="Memory.session",
        toolsets="M",
        mcp="session_open",
        result='status "initialized"|"resumed", session_id, silo_size, ttl_s, seq',
        idempotent=True,
    ),
    Operation(
        name="open",
        access="write",
        doc="Open a session. Not required.",
        params=(
            Param("silo_size", "int", "keep at most this many slots, evicting the least recently used", None, told=False),
            Param("ttl_s", "seconds", "end the session this long after its last use", None, cli="ttl", told=False),
            Param("long_term", "str", "session that keeps long-term memory", None, mcp=False),
            Param("promote_after", "int", "promote a slot at this many hits", None, mcp=False),
            Param("schema", "str", "SCHEMA lines to declare", None, mcp=False),
            Param("map_file", "str", "a file of SCHEMA lines, or of a MemNet map", None, mcp=False),
            Param("map_lines", "strings", "one line of a MemNet map", None, cli="map", repeat=True, mcp=False),
            Param("seed_lines", "strings", "a line to add", None, cli="seed", repeat=True, mcp=False),
            Param("allow_new_relation", "bool", "declare relations the schema lacks", False, mcp=False),
            Param("must_exist", "bool", "refuse to begin a new one, as `session resume` does", False, mcp=False),
        ),
        handler=_open,
        python="Memory.session",
        toolsets="SCP",
        mcp="init",
        cli=("session open", "session resume"),
        text=_told_open,
        idempotent=True,
        summary="start or resume one; without ID a new name is minted",
        result='status "initialized"|"resumed", session_id, silo_size, ttl_s, seq',
    ),
    Operation(
        name="status",
        access="read",
        doc="Counts, and what was saved.",
        params=(),
        handler=_info,
        python="status",
        toolsets="SCPM",
        mcp="memory_status",
        memnet=("session_current", "housekeep_stats", "serve_status"),
        cli=("status", "session current", "housekeep stats"),
        text=_told_status,
        summary="counts of slots, promises, hits, and what was saved",
        result="short_term{slots, silo_size, bytes, hits, misses, evicted}, promises{pending, resolved, rejected}, "
        "long_term{nodes, edges, laws, kinds, relations, types, session}, promotion_threshold, seq, expires_at, "
        "ledger{executions_avoided, waits_joined, tokens_served, tokens_full}",
        slow=True,
    ),
    Operation(
        name="session_list",
        access="read",
        doc="The sessions of this store.",
        params=(
            Param("expired", "bool", "those that ended and are still kept", False),
            Param("limit", "int", "at most this many", 50, cli_default=1_000_000_000),
            Param("cursor", "int", "next_cursor of the page before", 0),
        ),
        handler=_list,
        python="Memory.sessions",
        toolsets="A",
        mcp="session_list",
        cli=("session list",),
        text=_told_list,
        is_empty=lambda result: not result["sessions"],
        store=True,
        summary="the sessions of this store",
        result="sessions[]{session_id, seq, size_bytes, created_at, last_used_at, expires_at, damaged?}, total, next_cursor?",
        slow=True,
    ),
    Operation(
        name="session_close",
        access="write",
        doc="End a session. It can be restored for seven days.",
        params=(),
        handler=_close,
        python="Memory.end",
        toolsets="A",
        mcp="session_close",
        cli=("session close",),
        text=lambda result: f"{result['status']} {result['session_id']}",
        is_empty=lambda result: result["status"] == "absent",
        destructive=True,
        summary="end one; restorable for seven days",
        result='status "ended"|"absent", session_id',
    ),
    Operation(
        name="session_restore",
        access="write",
        doc="Bring back a session that ended or expired within seven days.",
        params=(Param("as_name", "str", "under this name", None, cli="as"),),
        handler=_restore,
        python="Memory.restore",
        cli=("session restore",),
        text=lambda result: f"restored {result['session_id']} seq={result['seq']}",
        summary="bring an ended one back",
        result='status "restored", session_id, seq',
    ),
    Operation(
        name="flush",
        access="write",
        doc="Empty the session's slots. Promises in flight stay.",
        params=(),
        handler=_flush,
        python="flush",
        toolsets="SP",
        mcp="flush",
        cli=("flush",),
        text=lambda result: f"flushed {result['cleared_count']}",
        destructive=True,
        summary="empty the silo; promises in flight stay",
        result='status "flushed", cleared_count',
    ),
    Operation(
        name="log",
        access="read",
        doc="Who changed what, newest entries last.",
        params=(
            Param("after", "int", "only entries after this seq", 0),
            Param("limit", "int", "at most this many", 50),
            Param("actor", "str", "only entries by this actor, and by those under it", None, cli="by"),
        ),
        handler=_log,
        python="log",
        toolsets="A",
        mcp="log",
        cli=("log",),
        text=_told_log,
        is_empty=lambda result: not result["entries"],
        summary="who changed what",
        result="entries[]{seq, at, actor?, request_id?, changes[]}, next_after",
        slow=True,
    ),
    Operation(
        name="peek",
        access="read",
        doc="Call before costly work. value: use it. pending: somebody is at it; call again with wait_s. hit false: do the work, "
        "then set. claim=true: a miss makes you the owner (token); finish with resolve.",
        params=(
            _KEY,
            _TOOL,
            _ARGUMENTS,
            Param("claim", "bool", "own the work if nobody does", False, told=False),
            _LEASE,
            _WAIT,
            _FRESH,
            Param("offset", "int", "next_offset of a long value", 0, told=False),
            Param("limit_bytes", "int", "longest part", limits.PEEK_PART_BYTES, cli_default=2**53, mcp=False),
            msgspec.structs.replace(REQUEST_ID, doc="makes a retried claim safe"),
        ),
        handler=_peek,
        python="peek",
        toolsets="SCP",
        mcp="peek",
        cli=("peek",),
        is_empty=lambda result: "value" not in result,
        summary="look: the value, or who is at work on it",
        result="{hit:true, value, index, stale?:true, because[]?} | {hit:true, status:pending, promise_id, lease_left_s} | {hit:false} | "
        "{hit:false, claimed:true, promise_id, token}",
        writes=lambda arguments: bool(arguments.get("claim")),
    ),
    Operation(
        name="claim",
        access="write",
        doc="Own the work on a key unless it is done or in flight.",
        params=(_KEY, _TOOL, _ARGUMENTS, _LEASE, _WAIT, _FRESH, REQUEST_ID),
        handler=_claim,
        python="claim",
        cli=("claim",),
        text=_told_claim,
        is_empty=lambda result: "value" not in result and not result.get("claimed"),
        summary="own the work unless it is done or in flight",
        result="as peek with claim",
    ),
    Operation(
        name="set",
        access="write",
        doc="Store a result; inputs: file:PATH or row:ID it rests on.",
        params=(
            msgspec.structs.replace(_KEY, told=False),
            Param("value", "any", "the result: text or JSON", positional=True, told=False),
            _TOOL,
            _ARGUMENTS,
            _TTL,
            msgspec.structs.replace(_TOKEN, mcp=False),
            _INPUTS,
            REQUEST_ID,
        ),
        handler=_set,
        python="set",
        toolsets="SCP",
        mcp="set",
        cli=("set",),
        text=_told_set,
        idempotent=True,
        summary="store a result; wakes those who wait",
        result='status "stored", index, evicted?',
    ),
    Operation(
        name="resolve",
        access="write",
        doc="Settle a claim: payload stores the result, error tells those who wait; neither: its status.",
        params=(
            Param("promise_id", "str", "from peek", positional=True, told=False),
            Param("payload", "any", "the result", None, positional=True, told=False),
            Param("error", "str", "why there is none", None, told=False),
            _TOKEN,
            Param("wait_s", "seconds", "wait until it is settled", 0, cli="wait", told=False),
            msgspec.structs.replace(_INPUTS, mcp=False),
            Param("ttl_s", "seconds", "forget the result after", None, cli="ttl", mcp=False),
            REQUEST_ID,
        ),
        handler=_resolve,
        python="fulfil, reject, promise, wait",
        toolsets="SCP",
        mcp="resolve",
        cli=("resolve",),
        text=_told_resolve,
        is_empty=lambda result: result["status"] in ("pending", "unknown"),
        summary="settle a claim with a result or an --error",
        result='status "resolved"|"pending"|"rejected"|"unknown", promise_id, payload?, reason?, index?, stale?:true, because[]?',
        writes=lambda arguments: arguments.get("payload") is not None or arguments.get("error") is not None,
    ),
    Operation(
        name="wait",
        access="read",
        doc="Wait until the work on a key is settled, through any takeovers.",
        params=(Param("key", "str", "what the work is called", positional=True), Param("timeout_s", "seconds", "give up after", 60.0, cli="timeout")),
        handler=_wait,
        python="wait",
        cli=("wait",),
        is_empty=lambda result: result["status"] != "resolved",
        summary="wait until the work on a key is settled",
        result="as resolve",
    ),
    Operation(
        name="renew",
        access="write",
        doc="Keep a claim alive while the work goes on.",
        params=(
            Param("promise_id", "str", "from peek", positional=True, told=False),
            Param("token", "int", "the claim's token", told=False),
            _LEASE,
        ),
        handler=_renew,
        python="renew",
        toolsets="A",
        mcp="renew",
        cli=("renew",),
        text=lambda result: f"renewed {result['promise_id']} lease_left={result['lease_left_s']:g}s",
        idempotent=True,
        summary="keep a claim while the work goes on",
        result='status "renewed", promise_id, lease_left_s',
    ),
    Operation(
        name="drop",
        access="write",
        doc="Remove slots by key or key prefix.",
        params=(
            Param("keys", "strings", "these keys", None, positional=True),
            Param("prefix", "str", "and all that start so", None),
            Param("dry_run", "bool", "only say what would go", False),
        ),
        handler=_drop,
        python="drop",
        toolsets="A",
        mcp="drop",
        cli=("drop",),
        text=lambda result: "\n".join(f"{result['status'].replace('_', ' ')} {key}" for key in result["keys"]),
        is_empty=lambda result: not result["keys"],
        destructive=True,
        summary="remove keys",
        result='status "dropped"|"would_drop", keys[]',
    ),
    Operation(
        name="forget",
        access="write",
        doc="Remove what must not be remembered: keys, rows, by actor or age. erase also rewrites the history. Not undoable.",
        params=(
            Param("keys", "strings", "these keys or row ids", None, positional=True),
            Param("prefix", "str", "keys that start so", None),
            Param("kind", "str", "rows of this kind", None, mcp=False),
            Param("where", "strings", "rows of which this holds: status=done, prio>=3", None, repeat=True, mcp=False),
            Param("group", "str", "rows of this conversation", None, mcp=False),
            Param("actor", "str", "written by", None, cli="by"),
            Param("older_than_s", "seconds", "stored longer ago than", None, cli="older-than"),
            Param("dry_run", "bool", "only say what would go", True, cli_default=False),
            Param("erase", "bool", "from the history too", False),
        ),
        handler=_forget,
        python="forget",
        toolsets="S",
        mcp="forget",
        cli=("forget",),
        text=lambda result: "\n".join(f"{result['status'].replace('_', ' ')} {name}" for name in (*result["keys"], *result.get("rows", ()))),
        is_empty=lambda result: not result["keys"] and "rows" not in result,
        destructive=True,
        result='status "forgotten"|"would_forget", keys[], rows[]?, erased?',
    ),
    Operation(
        name="keys",
        access="read",
        doc="The live keys, in order of their slots.",
        params=(
            Param("prefix", "str", "only those that start so", "", positional=True),
            Param("limit", "int", "at most this many", 200, cli_default=1_000_000_000),
            Param("cursor", "int", "next_cursor of the page before", 0),
        ),
        handler=_keys,
        python="keys",
        toolsets="A",
        mcp="keys",
        cli=("keys",),
        text=lambda result: "\n".join(result["keys"]),
        is_empty=lambda result: not result["keys"],
        summary="the keys that are there",
        result="keys[], total, next_cursor?",
    ),
)
