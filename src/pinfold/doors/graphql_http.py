"""GraphQL over HTTP: POST one JSON request to /graphql; a subscription answers as server-sent events (`next`, `complete`)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pinfold.doors.graphql import PreparedErrors, execute, prepare, result_shape, shape_of
from pinfold.doors.graphql_schema import Request, entry_shape, schema
from pinfold.doors.http import GRANT, HttpDoor, Receive, Scope, Send, problem, send_json
from pinfold.doors.stdio import encode_json
from pinfold.errors import PinfoldError, Refused
from pinfold.operations.table import Call, whole_ms

if TYPE_CHECKING:
    from pinfold.entry import Entry

PING_S = 15.0
BACKLOG = 1_024
"""Entries kept for a reader that is slower than the writers; beyond it the stream ends and says from where to go on."""
HISTORY = 5_000
"""Entries a subscription is given from before it began."""


async def answer_graphql(door: HttpDoor, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request at /graphql."""
    if scope["method"] != "POST":
        await send_json(send, 405, problem("wrong_method", "GraphQL is asked by POST", 'POST {"query": …} as application/json'), ((b"allow", b"POST"),))
        return
    headers = dict(reversed(scope["headers"]))
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != b"application/json":
        await send_json(send, 415, problem("wrong_type", "the body must be JSON", "send Content-Type: application/json"))
        return
    try:
        query, variables, name = _read((await receive())["body"])
    except Refused as refused:
        await send_json(send, 400, {"errors": [shape_of(refused)]})
        return
    grant = scope[GRANT]
    call = Call(door.store_of(grant), None, default_session=lambda: door.default_of(grant), roots=door.roots)
    loop = asyncio.get_running_loop()
    if b"text/event-stream" in headers.get(b"accept", b""):
        try:
            document, operation = await loop.run_in_executor(None, prepare, query, variables, name)
        except PreparedErrors as refused:
            await send_json(send, 400, {"errors": refused.errors})
            return
        if operation.operation.value == "subscription":
            await _stream(door, call, document, operation, variables, name, receive, send)
            return
    result = await loop.run_in_executor(None, execute, Request(call), query, variables, name)
    await send_json(send, 200 if "data" in result else 400, result)


def _read(body: bytes) -> tuple[str, dict[str, Any], str | None]:
    import json

    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused("the body is no JSON", code="bad_request", hint='{"query": "{ session { id } }"}') from None
    if not isinstance(given, dict):
        raise Refused("the body must be one JSON object", code="bad_request", hint="batches are not taken; one document may ask for many fields")
    query, variables, name = given.get("query"), given.get("variables"), given.get("operationName")
    if not isinstance(query, str):
        raise Refused("query must be a string", code="bad_request", hint='{"query": "{ session { id } }"}')
    if not isinstance(variables, (dict, type(None))) or not isinstance(name, (str, type(None))):
        raise Refused("variables must be an object and operationName a string", code="bad_request", hint="leave out what is not needed")
    foreign = sorted(set(given) - {"query", "variables", "operationName", "extensions"})
    if foreign:
        hint = "query, variables, operationName; no other endpoint is ever called"
        raise Refused(f"a request has no {foreign[0][:40]!r}", code="bad_request", hint=hint)
    return query, variables or {}, name


# --- subscriptions ------------------------------------------------------------------------------------------------


async def _stream(door: HttpDoor, call: Call, document: Any, operation: Any, variables: dict[str, Any], name: str | None, receive: Receive, send: Send) -> None:
    from graphql import subscribe

    fields = schema().type_map["Subscription"].fields  # type: ignore[attr-defined]
    request = Request(call, until_s=float("inf"))

    async def changes(_root: Any, _info: Any, session: str | None = None, after: int | None = None) -> Any:
        return await _entries(door, request, session, after)

    fields["changes"].subscribe = lambda _root, info, **given: info.context.changes(_root, info, **given)
    fields["changes"].resolve = lambda entry, _info, **_: entry
    request.changes = changes  # type: ignore[attr-defined]
    found: Any = subscribe(schema(), document, context_value=request, variable_values=variables, operation_name=name)
    if asyncio.iscoroutine(found) or isinstance(found, asyncio.Future):
        found = await found
    if not hasattr(found, "__anext__"):
        await send_json(send, 400, result_shape(found))
        return
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
    gone = asyncio.ensure_future(_disconnected(receive))
    stopping = asyncio.ensure_future(door.stopping.wait())
    coming: Any = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(found))
            await asyncio.wait((coming, gone, stopping), timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                return
            if coming.done():
                lost = coming.exception()
                if isinstance(lost, StopAsyncIteration):
                    break
                shown = {"errors": [shape_of(lost)]} if isinstance(lost, PinfoldError) else result_shape(coming.result())
                await send({"type": "http.response.body", "body": b"event: next\ndata: " + encode_json(shown) + b"\n\n", "more_body": True})
                if lost is not None:
                    break
                coming = None
            elif stopping.done():
                break
            else:
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"event: complete\ndata:\n\n", "more_body": False})
    finally:
        for task in (gone, stopping, coming):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await found.aclose()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _entries(door: HttpDoor, request: Request, session_id: str | None, after: int | None) -> Any:
    """Return a generator of a session's entries: those after a seq first, then each as it comes. Raises Refused."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    name = session_id if session_id is not None else request.call.session_id
    session = await loop.run_in_executor(None, request.session, name)
    last = after if after is not None else session._replica.state.seq

    def take(entries: list[Entry]) -> None:
        if not entries or queue.qsize() + len(entries) > BACKLOG:
            queue.put_nowait(None)
            return
        for entry in entries:
            queue.put_nowait(told(entry))

    from pinfold.doors.watch import bridge

    ticket = await loop.run_in_executor(None, door.watch.add, name, bridge(loop, take))
    before: list[dict[str, Any]] = []
    try:
        if after is not None:
            before = await loop.run_in_executor(None, _history, request, name, after)
    except PinfoldError:
        door.watch.remove(ticket)
        raise

    async def entries() -> Any:
        nonlocal last
        try:
            for entry in before:
                last = entry["seq"]
                yield entry
            while True:
                coming = await queue.get()
                if coming is None:
                    hint = f"subscribe again with after: {last}, or without where the session began anew"
                    raise Refused("entries were lost on the way", code="fell_behind", hint=hint, after=last)
                if coming["seq"] > last:
                    last = coming["seq"]
                    yield coming
        finally:
            door.watch.remove(ticket)

    return entries()


def _history(request: Request, session_id: str, after: int) -> list[dict[str, Any]]:
    found = request.operate("log", session_id, after=max(after, 0), limit=HISTORY) if after > 0 else request.operate("log", session_id, limit=HISTORY)
    return [entry_shape(entry) for entry in found["entries"]]


def told(entry: Entry) -> dict[str, Any]:
    """Return an entry as the log tells it."""
    from pinfold.session import _told

    changes = [_told(fact) for fact in entry.facts]
    return {"seq": entry.seq, "at": whole_ms(entry.at_ms), "actor": entry.actor, "requestId": entry.request_id, "changes": changes}
