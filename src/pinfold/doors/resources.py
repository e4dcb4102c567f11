"""What an MCP client may attach without a tool call: a pin map, the log, the status and what is stale of a session, by URI.

    pinfold://SESSION/pin-map/ANCHOR[,ANCHOR…]      pinfold://SESSION/log      …/status      …/stale

A part is percent-encoded where a URI wants it. What cannot be read is a protocol error with the refusal's words: a resource
has no other way to fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pinfold.doors.mcp import Door

SCHEME = "pinfold://"


class Kind(NamedTuple):
    """What can be read of a session. row: the row of the operations table that reads it."""

    path: str
    row: str
    name: str
    description: str
    mime_type: str


KINDS = (
    Kind("pin-map/{anchor}", "pin_map", "pin map", "The facts around an id (or several, by commas), within 800 tokens.", "text/plain"),
    Kind("log", "log", "log", "The newest changes: who, when, what.", "application/json"),
    Kind("status", "status", "status", "Counts of what the session holds.", "application/json"),
    Kind("stale", "stale", "stale", "What can no longer be trusted, and because of what.", "application/json"),
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
    """Return (text, MIME type) of a resource, within the bounds of an answer that nobody asked to be long. Raises Refused."""
    from msgspec.structs import replace

    from pinfold.doors.budget import within
    from pinfold.errors import Refused
    from pinfold.operations import BY_NAME

    session, path, anchors = _parts(uri)
    kind = next((kind for kind in KINDS if kind.path.partition("/")[0] == path), None)
    if kind is None:
        raise Refused(f"a session has no {path!r}", code="no_such_resource", hint="pin-map/ANCHOR, log, status or stale")
    row = BY_NAME[kind.row]
    if kind.mime_type == "application/json":
        row = replace(row, mcp_text=None)
    arguments: dict[str, Any] = {"session_id": session, **({"anchor": anchors} if anchors else {})}

    async def run(given: dict[str, Any]) -> Any:
        return await door.call(row, given)

    text, _ = await within(row, arguments, await run(arguments), run)
    return text, kind.mime_type


def _parts(uri: str) -> tuple[str, str, list[str]]:
    """Return (session, kind, anchors) of a URI. By hand: URI libraries read a session's name as a host and a port."""
    from urllib.parse import unquote

    from pinfold.errors import Refused

    parts = [unquote(part) for part in uri.removeprefix(SCHEME).split("/")]
    wanted = 3 if len(parts) > 1 and parts[1] == "pin-map" else 2
    if not uri.startswith(SCHEME) or len(parts) != wanted or not all(parts):
        raise Refused(f"{uri[:100]} is no resource here", code="no_such_resource", hint=", ".join(f"{SCHEME}SESSION/{kind.path}" for kind in KINDS))
    return parts[0], parts[1], [anchor for anchor in parts[2].split(",") if anchor] if wanted == 3 else []
