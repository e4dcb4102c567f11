"""The types of the operations table: one row describes an operation once, for every door.

A row's handler takes a Call (the store, the session, who asks) and the row's arguments by name, and returns the result
as plain builtins: the MCP and `--json` shape of it. A refusal is an exception, a miss is a result. A handler that may
wait returns steps (a generator of the session's), which `run` drives in this thread and `run_async` on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import GeneratorType
from typing import Any, TypeVar

import msgspec

from pinfold import caller
from pinfold.call_key import call_key
from pinfold.errors import Refused
from pinfold.memory import Memory
from pinfold.session import Session
from pinfold.steps import drive, drive_async, no_work

REQUIRED: Any = object()
Row = TypeVar("Row")

JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "seconds": "number", "object": "object", "strings": "array", "any": None}


class Param(msgspec.Struct, frozen=True):
    """One argument. kind: str, int, float, bool, seconds, object, strings (a list), any (JSON).

    On the command line seconds need a unit (90s, 60m, 2h). positional: given by place there. cli: its flag where that
    differs from the name, "" for none. file: text that may also come from --file or standard input there (kind any always
    may). mcp: whether an MCP tool shows it. told: whether a model is shown doc; not where the name says it, since every
    listed word is read at every turn. also: a flag that may give a positional instead. repeat: the flag may be repeated,
    each time one item. memnet: shown to MemNet's agents, whatever mcp says.
    """

    name: str
    kind: str
    doc: str
    default: Any = REQUIRED
    positional: bool = False
    cli: str | None = None
    mcp: bool = True
    cli_default: Any = REQUIRED
    told: bool = True
    file: bool = False
    also: str = ""
    repeat: bool = False
    memnet: bool = False

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of this argument."""
        kind = JSON_TYPES[self.kind]
        schema: dict[str, Any] = {} if kind is None else {"type": kind}
        if self.kind == "strings":
            schema["items"] = {"type": "string"}
        if self.default is not REQUIRED and self.default:
            whole = isinstance(self.default, float) and self.default.is_integer()
            schema["default"] = int(self.default) if whole else self.default  # the shorter way to write it: every turn pays for it
        if self.doc and self.told:
            schema["description"] = self.doc
        return schema


WAITS = ("wait_s", "timeout_s")
"""Arguments that say how long a call may wait for others."""
REQUEST_ID = Param("request_id", "str", "makes a retry safe", None, mcp=False)
"""Asked again under the same id, a row that has it answers as it did the first time and does nothing twice."""


class Operation(msgspec.Struct, frozen=True):
    """One row. toolsets: S standard, C core, P pmll, M memnet, A all only, "" no MCP tool. store: works on no session.

    doc is what a model reads: when to call it, and what comes back. cli: the verb (two words for a group), "" for none.
    summary: the line of `pinfold --help`, where the first sentence of doc is not it. text: the result as words for a
    terminal, where plain lines say it better than JSON. mcp_text: the same for a model. writes: whether a call with these
    arguments changes anything, where that depends on them. slow: reads more than RAM. memnet: its names in the toolset memnet.
    needs: the module of an extra without which it has no answer; where that is missing no model is offered the tool.
    """

    name: str
    access: str
    doc: str
    params: tuple[Param, ...]
    handler: Callable[..., Any]
    python: str
    toolsets: str = ""
    mcp: str = ""
    aliases: tuple[str, ...] = ()
    cli: tuple[str, ...] = ()
    text: Callable[[Any], str] | None = None
    is_empty: Callable[[Any], bool] | None = None
    destructive: bool = False
    idempotent: bool = False
    store: bool = False
    result: str = ""
    summary: str = ""
    mcp_text: Callable[[Any], str] | None = None
    writes: Callable[[dict[str, Any]], bool] | None = None
    slow: bool = False
    memnet: tuple[str, ...] = ()
    needs: str = ""

    def changes(self, arguments: dict[str, Any]) -> bool:
        """Return whether a call with these arguments may change the store."""
        return self.access == "write" if self.writes is None else self.writes(arguments)

    @property
    def takes_actor(self) -> bool:
        """Whether a caller may say who writes: `actor` is no argument of its own here."""
        return self.access == "write" and all(p.name != "actor" for p in self.params)

    def renamed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tool's arguments by the row's names. MemNet's users say session, agent, and id for ids; a name given twice stays."""
        names = {"session": "session_id", **({"agent": "actor"} if self.takes_actor else {}), **{p.also: p.name for p in self.params if p.also}}
        own = {p.name for p in self.params}
        return {(names[name] if name in names and name not in own and names[name] not in arguments else name): value for name, value in arguments.items()}

    def input_schema(self, memnet: bool = False) -> dict[str, Any]:
        """Return the JSON Schema of the arguments an MCP tool takes; every tool takes session_id. memnet: under MemNet's names.

        It does not forbid others: `start` refuses those that are none by name, and rarely used ones are not listed.
        """
        properties = {p.name: p.schema() for p in self.params if p.mcp or (memnet and p.memnet)}
        if not self.store:
            properties.setdefault("session_id", {"type": "string"})
        if memnet:
            properties = self._as_memnet(properties)
        required = [p.name for p in self.params if p.mcp and p.required]
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def _as_memnet(self, properties: dict[str, Any]) -> dict[str, Any]:
        names = {"session_id": "session", **{p.name: p.also for p in self.params if p.also}}
        one_or_more = {p.name for p in self.params if p.also and p.kind == "strings"}
        told = {names.get(name, name): {**schema, "type": ["string", "array"]} if name in one_or_more else schema for name, schema in properties.items()}
        return {**told, "agent": {"type": "string"}} if self.takes_actor else told


class Call:
    """One call of an operation: the store, the session it names (opened when it is first used), and the door's default.

    as_shown: how values stand in the result; JSON by default, a door that prints bytes takes them as they are.
    roots: the folders whose files this caller may name; None for every file. actor: who writes, where not the store's own.
    progress: told (done, total) by something long; None: nobody looks. tell: shown a result of one that goes on; a door where
    somebody reads along sets it.
    """

    tell: Callable[[Any], None] | None = None

    def __init__(
        self,
        memory: Memory,
        session_id: str | None,
        *,
        default_session: Callable[[], str] | None = None,
        as_shown: Callable[[Any], Any] | None = None,
        roots: Sequence[str] | None = None,
        actor: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.memory = memory
        self.progress = progress
        self._actor = actor
        self.roots = roots
        self.shown = as_shown or shown
        self._session_id = session_id
        self._default_session = default_session
        self._session: Session | None = None

    def file(self, path: str) -> str:
        """Return path where this caller may read and write it. Raises Refused `outside_roots`, `bad_path`; Elsewhere in a server.

        To be asked before anything is done: whose file it is, opens it, with the rights and the umask it has.
        """
        if caller.current() is not None:
            raise caller.Elsewhere
        from pinfold.tree import check_path

        real = os.path.realpath(check_path(path))
        roots = None if self.roots is None else [os.path.realpath(root) for root in self.roots if root]
        if roots is not None and not any(os.path.commonpath([real, root]) == root for root in roots):
            raise Refused(f"{path} is in no folder this server may use", code="outside_roots", hint="its operator names them in $PINFOLD_FILES")
        return path

    @property
    def named_session(self) -> str | None:
        """The session the caller named, None where none was."""
        return self._session_id

    def name_session(self, session_id: str) -> None:
        """Let this call work on that session."""
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        if self._session_id is None:
            if self._default_session is None:
                raise Refused("no session was named", code="session_required", hint="pass session_id")
            self._session_id = self._default_session()
        return self._session_id

    @property
    def session(self) -> Session:
        if self._session is None:
            session = self.memory.session(self.session_id)
            self._session = session if self._actor is None else session.by(self._actor)
        return self._session


def run(operation: Operation, call: Call, arguments: dict[str, Any]) -> Any:
    """Return the result of an operation. Raises Refused `bad_arguments` for an argument it does not have or lacks, or of a wrong type."""
    result = start(operation, call, arguments)
    return drive(result, call.session, no_work) if type(result) is GeneratorType else result


async def finish(started: Any, call: Call) -> Any:
    """Return the result of what `start` returned, waiting on the event loop. A claim won after a cancellation is given back."""
    return await drive_async(started, call.session, None) if type(started) is GeneratorType else started


def waits(started: Any) -> bool:
    """Return whether `start` returned steps that are still to be gone."""
    return type(started) is GeneratorType


def start(operation: Operation, call: Call, arguments: dict[str, Any]) -> Any:
    """Return the result of an operation, or the steps to it where it may wait. Raises as `run`."""
    known = {p.name: p for p in operation.params}
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        takes = ", ".join(known) or "none"
        raise Refused(f"{operation.name} has no argument {unknown[0]!r}", code="bad_arguments", hint=f"it takes: {takes}")
    filled: dict[str, Any] = {}
    for name, param in known.items():
        value = arguments.get(name)
        if value is None and not (param.kind == "any" and name in arguments):
            if param.required:
                raise Refused(f"{operation.name} needs {name!r}", code="bad_arguments", hint=f"{name}: {param.doc}")
            value = param.default
        else:
            if param.kind == "strings" and isinstance(value, str):
                value = [value]
            _check_kind(operation, param, value)
        filled[name] = value
    return operation.handler(call, **(looked_through(filled) if operation.changes(arguments) else filled))


def looked_through(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return what is about to be written, with a mark for each secret where $PINFOLD_SECRETS asks for it. Raises Refused `secret_found`."""
    if not caller.environ().get("PINFOLD_SECRETS"):
        return arguments
    from pinfold.scan import scanner_of_environment

    return scanner_of_environment().checked(arguments)


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "seconds": (int, float),
    "bool": (bool,),
    "object": (dict,),
    "strings": (list, tuple),
    "any": (object,),
}


NUMBER_MAX = 2**63 - 1
"""Beyond it a number is no count, size or time, and much that works with numbers fails; NaN is not within it either."""


def _check_kind(operation: Operation, param: Param, value: Any) -> None:
    fits = isinstance(value, _KINDS[param.kind]) and (param.kind in ("bool", "any") or not isinstance(value, bool))
    if fits and param.kind == "strings":
        fits = all(isinstance(item, str) for item in value)
    if fits and isinstance(value, (int, float)) and param.kind in ("int", "float", "seconds") and not -NUMBER_MAX <= value <= NUMBER_MAX:
        raise Refused(f"{operation.name}: {param.name} is out of range", code="bad_arguments", hint="a finite number of at most 63 bits")
    if not fits:
        wanted = "a number of seconds" if param.kind == "seconds" else _an(JSON_TYPES[param.kind] or "JSON value")
        raise Refused(
            f"{operation.name}: {param.name} must be {wanted}, not {type(value).__name__}",
            code="bad_arguments",
            hint=f"{param.name}: {param.doc}" if param.doc else f"pass {param.name} as {wanted}",
        )


def _an(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


PAGE = (
    Param("limit", "int", "at most this many", 100, cli_default=1_000_000_000, told=False),
    Param("cursor", "int", "next_cursor of the page before", 0, told=False),
)
"""The arguments of a row that lists: a page at a time for a model, everything on the command line."""


def page_of(found: Sequence[Row], limit: int, cursor: int) -> tuple[Sequence[Row], dict[str, int]]:
    """Return (a page of what was found, what a result says of it: total, and next_cursor where there is more). Raises Refused `bad_arguments`."""
    if limit < 0 or cursor < 0:
        raise Refused(f"limit={limit}, cursor={cursor}", code="bad_arguments", hint="0 or more; a cursor is the next_cursor of the page before")
    end = cursor + limit
    return found[cursor:end], {"total": len(found), **({"next_cursor": end} if cursor < end < len(found) else {})}


def page_note(result: Mapping[str, Any], shown: int) -> list[str]:
    """Return the line that says in words how to go on; none where nothing is left."""
    return [f"# pinfold: {shown}/{result['total']} cursor={result['next_cursor']}"] if "next_cursor" in result else []


def rests_of(call: Call, inputs: list[str] | None) -> list[str] | None:
    """Return the inputs a caller declared, None for none. Raises Refused for what it may not look at."""
    if not inputs:
        return None
    from pinfold.operations.inputs import check_inputs

    check_inputs(call, inputs)
    return inputs


def key_of(key: str | None, tool: str | None, arguments: dict[str, Any] | None) -> str:
    """Return the key a call names: itself, or the canonical key of a tool call. Raises Refused `bad_arguments`."""
    if (key is None) == (tool is None):
        raise Refused("name the work by key, or by tool and arguments", code="bad_arguments", hint="exactly one of the two")
    return key if key is not None else call_key(tool or "", arguments)


def shown(value: Any) -> Any:
    """Return a value as JSON shows it: bytes as {"base64": …}."""
    if isinstance(value, bytes):
        from binascii import b2a_base64

        return {"base64": b2a_base64(value, newline=False).decode()}
    return value


def stale_shape(because: Sequence[str] | None) -> dict[str, Any]:
    """Return what a result says of a value or row that can no longer be trusted; nothing of one that holds."""
    return {"stale": True, "because": list(because)} if because else {}


def part_of(value: Any, offset: int, limit_bytes: int | None, shown: Callable[[Any], Any] = shown) -> dict[str, Any]:
    """Return {"value"} or, where it is longer than limit_bytes, a part of it with offset, next_offset and size_bytes.

    Text is cut between characters; JSON in parts is its text; offsets count UTF-8 bytes.
    """
    if offset < 0 or (limit_bytes is not None and limit_bytes < 4):
        raise Refused("offset must be 0 or more and limit_bytes 4 or more", code="bad_arguments", hint="use next_offset of the part before")
    raw, is_text = raw_of(value)
    if offset == 0 and (limit_bytes is None or len(raw) <= limit_bytes):
        return {"value": shown(value)}
    end = len(raw) if limit_bytes is None else min(len(raw), offset + limit_bytes)
    if is_text:
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end -= 1
    part = raw[offset:end]
    result: dict[str, Any] = {"value": part.decode("utf-8", "replace") if is_text else shown(part), "offset": offset, "size_bytes": len(raw)}
    if end < len(raw):
        result["next_offset"] = end
    return result


def raw_of(value: Any) -> tuple[bytes, bool]:
    """Return (a value's bytes, whether they are text): str and bytes as they are, JSON as its compact text."""
    if isinstance(value, bytes):
        return value, False
    if isinstance(value, str):
        try:
            return value.encode(), True
        except UnicodeEncodeError:
            pass  # a lone surrogate: only JSON text can show it
    try:
        return msgspec.json.encode(value), True
    except UnicodeEncodeError:
        import json

        return json.dumps(value, separators=(",", ":")).encode(), True


def whole_ms(at_ms: int | None) -> str | None:
    """Return Unix ms as ISO 8601 in UTC, None for none."""
    if at_ms is None:
        return None
    import datetime

    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
