"""What an MCP client may attach without a tool call: a pin map, the log and the status of a session, by URI.

    pinfold://SESSION/pin-map/ANCHOR[,ANCHOR…]      pinfold://SESSION/log      pinfold://SESSION/status

A part is percent-encoded where a URI wants it. What cannot be read is a protocol error with the refusal's words: a resource
has no other way to fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pinfold.doors.mcp import Door

SCHEME = "pinfold://"
LOG_ENTRIES = 50


class Kind(NamedTuple):
    path: str
    name: str
    description: str
    mime_type: str


KINDS = (
    Kind("pin-map/{anchor}", "pin map", "The facts around an id (or several, by commas), within 800 tokens.", "text/plain"),
    Kind("log", "log", f"The last {LOG_ENTRIES} changes: who, when, what.", "application/json"),
    Kind("status", "status", "Counts of what the session holds.", "application/json"),
)


def templates() -> list[dict[str, Any]]:
    """Return the resource templates, as MCP lists them."""
    return [
        {"uriTemplate": f"{SCHEME}{{session}}/{kind.path}", "name": kind.name, "description": kind.description, "mimeType": kind.mime_type} for kind in KINDS
    ]


def resources(session_id: str) -> list[dict[str, Any]]:
    """Return the resources of one session that need no anchor, as MCP lists them."""
    return [
        {"uri": f"{SCHEME}{session_id}/{kind.path}", "name": f"{kind.name} of {session_id}", "description": kind.description, "mimeType": kind.mime_type}
        for kind in KINDS
        if "{" not in kind.path
    ]


async def read(door: Door, uri: str) -> tuple[str, str]:
    """Return (text, MIME type) of a resource. Raises Refused."""
    from pinfold.doors.stdio import encode_json
    from pinfold.errors import Refused
    from pinfold.operations import BY_NAME

    session, kind, anchors = _parts(uri)
    if kind == "pin-map":
        row = BY_NAME["pin_map"]
        told = await door.call(row, {"session_id": session, "anchor": anchors})
        return str(told["text"]), "text/plain"
    status = await door.call(BY_NAME["status"], {"session_id": session})
    if kind == "status":
        return encode_json(status).decode(), "application/json"
    if kind == "log":
        after = max(0, status["seq"] - LOG_ENTRIES)
        return encode_json(await door.call(BY_NAME["log"], {"session_id": session, "after": after})).decode(), "application/json"
    raise Refused(f"a session has no {kind!r}", code="no_such_resource", hint="pin-map/ANCHOR, log or status")


def _parts(uri: str) -> tuple[str, str, list[str]]:
    """Return (session, kind, anchors) of a URI. By hand: URI libraries read a session's name as a host and a port."""
    from urllib.parse import unquote

    from pinfold.errors import Refused

    parts = [unquote(part) for part in uri.removeprefix(SCHEME).split("/")]
    wanted = 3 if len(parts) > 1 and parts[1] == "pin-map" else 2
    if not uri.startswith(SCHEME) or len(parts) != wanted or not all(parts):
        raise Refused(f"{uri[:100]} is no resource here", code="no_such_resource", hint=", ".join(f"{SCHEME}SESSION/{kind.path}" for kind in KINDS))
    return parts[0], parts[1], [anchor for anchor in parts[2].split(",") if anchor] if wanted == 3 else []
