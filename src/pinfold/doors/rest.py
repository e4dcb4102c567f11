"""JSON over HTTP: `POST /v1/OPERATION` for every row of the operations table, `/openapi.json` that describes them, `/metrics`.

A route is a row: its arguments are the body's members, its result is the answer, a refusal is the `error` of every door with
a status that says whose turn it is. Who may do what is decided where it is for MCP (`HttpDoor.admit_as`).
"""

from __future__ import annotations

import functools
from typing import Any

from pinfold import __version__
from pinfold.doors.http import GRANT, HttpDoor, Receive, Scope, Send, problem, send_json
from pinfold.errors import DocumentRefused, PinfoldError, Refused, Unavailable
from pinfold.operations import BY_NAME, TABLE, Operation
from pinfold.operations.table import Param

ROUTE = "/v1/"
FORBIDDEN = frozenset(("scope_required", "session_not_granted", "outside_roots"))
GONE = frozenset(("no_such_session", "not_found", "no_such_row", "no_such_input"))
WRONG = frozenset(("bad_arguments", "session_required", "bad_session_name", "bad_key", "bad_value"))
"""Codes by what a client does about them; every other refusal is a conflict with what is stored."""


async def answer_rest(door: HttpDoor, path: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request at one of these paths, or say what there is."""
    if path == "/openapi.json" or path == "/metrics":
        if scope["method"] != "GET":
            await send_json(send, 405, problem("wrong_method", f"{path} is read by GET", f"GET {path}"), ((b"allow", b"GET"),))
        elif path == "/openapi.json":
            await send_json(send, 200, openapi())
        else:
            await _send_metrics(door, scope, send)
    elif path.startswith(ROUTE):
        await _answer_operation(door, path.removeprefix(ROUTE), scope, receive, send)
    else:
        hint = "/v1/OPERATION, /mcp, /graphql, /openapi.json, /metrics or /healthz"
        await send_json(send, 404, problem("not_found", f"there is nothing at {scope['path'][:100]}", hint))


async def _answer_operation(door: HttpDoor, name: str, scope: Scope, receive: Receive, send: Send) -> None:
    row = BY_NAME.get(name)
    if row is None:
        from difflib import get_close_matches

        near = get_close_matches(name, BY_NAME, 1)
        hint = f"did you mean {near[0]}?" if near else "GET /openapi.json lists them"
        await send_json(send, 404, problem("not_found", f"there is no operation {name[:100]!r}", hint))
        return
    if scope["method"] != "POST":
        await send_json(send, 405, problem("wrong_method", "an operation is called by POST", f"POST {ROUTE}{name}"), ((b"allow", b"POST"),))
        return
    headers = dict(reversed(scope["headers"]))
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        await send_json(send, 415, problem("wrong_type", "the body must be JSON", "send Content-Type: application/json"))
        return
    try:
        arguments = _read((await receive())["body"])
        store, admitted = door.admit_as(scope[GRANT], row, arguments)
        result = await door.call(row, admitted, store)
    except PinfoldError as error:
        more = {"maybe_applied": True} if isinstance(error, Unavailable) and error.maybe_applied else {}
        await send_json(send, status_of(error), {"error": {**error.shape(), **more}})
        return
    await send_json(send, 200, result)


def _read(body: bytes) -> dict[str, Any]:
    import json

    try:
        given = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refused("the body is no JSON", code="bad_arguments", hint="an object of the operation's arguments") from None
    if not isinstance(given, dict):
        raise Refused("the body must be one JSON object", code="bad_arguments", hint="an object of the operation's arguments")
    return given


def status_of(error: PinfoldError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Unavailable):
        return 503
    if not isinstance(error, Refused):
        return 501 if error.code == "extra_missing" else 500
    if error.code in FORBIDDEN:
        return 403
    if error.code in WRONG or isinstance(error, DocumentRefused):
        return 400
    return 404 if error.code in GONE else 409


async def _send_metrics(door: HttpDoor, scope: Scope, send: Send) -> None:
    grant = scope[GRANT]
    if not grant.may("read") or not grant.covers_all:
        hint = 'ask whoever runs this server for one with "sessions": ["*"]'
        await send_json(send, 403, problem("scope_required", "the numbers are of all sessions, and this token is not", hint))
        return
    body = door.metrics.text().encode()
    headers = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8"), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# --- the description ----------------------------------------------------------------------------------------------


@functools.cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of every operation."""
    error = {"$ref": "#/components/schemas/Error"}
    refusals = {str(status): {"$ref": f"#/components/responses/{name}"} for status, name in _RESPONSES.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pinfold",
            "version": __version__,
            "description": 'Working memory for agents. Durations are seconds; bytes that are no text are {"base64": …}.',
        },
        "paths": {f"{ROUTE}{row.name}": {"post": _described(row, refusals)} for row in TABLE},
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {
                        "error": {
                            "type": "object",
                            "required": ["code", "message", "hint"],
                            "properties": {
                                **{name: {"type": "string"} for name in ("code", "message", "hint")},
                                "errors": {"type": "array", "items": {"type": "object"}},
                                "maybe_applied": {"type": "boolean"},
                            },
                        }
                    },
                }
            },
            "responses": {name: {"description": words, "content": {"application/json": {"schema": error}}} for name, words in _WORDS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


_RESPONSES = {400: "Wrong", 401: "Unknown", 403: "Forbidden", 404: "Gone", 409: "Conflict", 429: "TooMany", 500: "Broken", 503: "Unavailable"}
_WORDS = {
    "Wrong": "The arguments are not what the operation takes, or a document of lines has problems.",
    "Unknown": "The server wants a token.",
    "Forbidden": "The token does not allow it.",
    "Gone": "What was named is not there.",
    "Conflict": "It breaks a rule of what is stored; nothing was written.",
    "TooMany": "Slow down.",
    "Broken": "The store cannot be trusted as it is, or pinfold has a bug.",
    "Unavailable": "Try again; maybe_applied says that the write may have happened.",
}


def _described(row: Operation, refusals: dict[str, Any]) -> dict[str, Any]:
    from pinfold.doors.structured import output_schema

    properties = {p.name: _argument(p) for p in row.params}
    if not row.store:
        properties.setdefault("session_id", {"type": "string", "description": "by default the token's only session, else the server's"})
    if row.takes_actor:
        properties["actor"] = {"type": "string", "description": "who writes; after the token's name"}
    required = [p.name for p in row.params if p.required]
    schema = {"type": "object", "properties": properties, **({"required": required} if required else {}), "additionalProperties": False}
    return {
        "operationId": row.name,
        "summary": row.summary or row.doc.partition(". ")[0],
        "description": row.doc,
        "tags": [row.handler.__module__.rpartition(".")[2]],
        "requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": row.result, "content": {"application/json": {"schema": output_schema(row)}}}, **refusals},
    }


def _argument(param: Param) -> dict[str, Any]:
    schema = param.schema()
    return {**schema, "description": param.doc} if param.doc else schema
