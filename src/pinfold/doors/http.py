"""The HTTP door: MCP of both eras at /mcp, GraphQL at /graphql and JSON at /v1/OPERATION, on the same Door as stdio.

Its rules:

* loopback unless there are tokens; a Host that is not ours or an Origin that was not allowed is refused before anything is read;
* who calls is known from the first moment on (a Grant in the request's scope); a request without one is refused, never let in;
* every refusal is JSON: a code, what happened, what to do next; a traceback stays on the server's stderr;
* bodies, rates and calls at once are bounded before any work is done;
* at the end nothing new is accepted, what is under way is answered, whoever waits for others is told to ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pinfold.doors.grants import EVERYTHING, Grant, GrantedMemory, Tokens, open_tokens
from pinfold.doors.mcp import WORKERS, Door, build_server
from pinfold.doors.metrics import Metrics
from pinfold.doors.stdio import encode_json
from pinfold.errors import ConfigurationError, PinfoldError, Refused, Unavailable

if TYPE_CHECKING:
    from pinfold.memory import Memory
    from pinfold.operations import Operation

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

GRANT = "pinfold.grant"
"""Where a request's grant lies in its ASGI scope."""
DRAIN_S = 10.0
"""How long answers under way are waited for after a signal."""
OPEN_CALLS = 1_024
"""Beyond this many requests under way a new one is told to come back."""
BODY_S = 30.0
"""A body must be there by then: a slow sender holds no place."""
CLIENTS_KEPT = 10_000
CLIENT_SESSIONS = 1_000
"""Protocol sessions of the older era at once."""
IDLE_S = 30 * 60.0
BURST_S = 2.0
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class HttpDoor(Door):
    """The door, where each request says who calls."""

    def __init__(self, memory: Memory, **options: Any) -> None:
        super().__init__(memory, **options)
        self.stopping = asyncio.Event()
        self.metrics = Metrics(memory)
        self._stores: dict[Grant, Any] = {EVERYTHING: memory}

    def grant_of(self, request: Any) -> Grant:
        """Return the grant of a request. Raises Refused `token_required`: a request nobody answers for gets nothing."""
        grant = request.scope.get(GRANT) if request is not None else None
        if type(grant) is not Grant:
            raise Refused("nobody answers for this request", code="token_required", hint="send Authorization: Bearer TOKEN")
        return grant

    def store_of(self, grant: Grant) -> Any:
        """Return the store as a grant shows it."""
        store = self._stores.get(grant)
        if store is None:
            if len(self._stores) > CLIENTS_KEPT:
                self._stores = {EVERYTHING: self.memory}
            store = self._stores[grant] = GrantedMemory(self.memory, grant)
        return store

    def admit(self, row: Operation, arguments: dict[str, Any], request: Any) -> tuple[Any, dict[str, Any]]:
        return self.admit_as(self.grant_of(request), row, arguments)

    def admit_as(self, grant: Grant, row: Operation, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return (the store, the arguments) a call of this grant goes on with: its session always named, its actor its own."""
        arguments = row.renamed(arguments)
        grant.check(row, arguments)
        if not row.store:
            if arguments.get("session_id") is None:
                arguments["session_id"] = self.default_of(grant)
            if isinstance(arguments["session_id"], str):  # any other is refused as a bad argument
                grant.need_session(arguments["session_id"])
        if row.takes_actor and arguments.get("actor") is not None and grant.name is not None:
            arguments["actor"] = f"{grant.name}/{arguments['actor']}"[:128]
        return self.store_of(grant), arguments

    def default_of(self, grant: Grant) -> str:
        """Return a caller's default session: the only one it is granted, else the server's."""
        if len(grant.sessions) == 1 and not grant.sessions[0].endswith("*"):
            return grant.sessions[0]
        return self._default_session()

    def _session_id(self, given: Any) -> str:
        return self._default_session() if given is None else super()._session_id(given)  # what one client opened is no other's default

    def default_for(self, request: Any) -> str:
        return self.default_of(self.grant_of(request))

    def allows(self, request: Any, session_id: str) -> bool:
        grant = self.grant_of(request)
        return grant.may("read") and grant.covers(session_id)

    async def _wait(self, steps: Any, wait_s: float, report: Callable[[float, float, str], Any], request_id: Any) -> Any:
        """As over stdio, but let go when the server stops: whoever waits is told to ask again, and takes nothing over."""
        if wait_s <= 0:
            return await steps
        waiting = asyncio.ensure_future(super()._wait(steps, wait_s, report, request_id))
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            raise Unavailable("the server is stopping", code="shutting_down", hint="ask again: whoever is at work goes on")
        finally:
            stopping.cancel()
            if not waiting.done():
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)


# --- answers ------------------------------------------------------------------------------------------------------


async def send_json(send: Send, status: int, document: Any, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    body = encode_json(document)
    length = str(len(body)).encode()
    plain = [(b"content-type", b"application/json"), (b"content-length", length), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*plain, *headers]})
    await send({"type": "http.response.body", "body": body})


def problem(code: str, message: str, hint: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint}}


class Turned(Exception):
    """A request that is answered without being looked into."""

    def __init__(self, status: int, code: str, message: str, hint: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(code)
        self.status, self.document, self.headers = status, problem(code, message, hint), headers


# --- the guard ----------------------------------------------------------------------------------------------------


class Buckets:
    """Requests a second for each caller, with bursts of BURST_S seconds' worth."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> float:
        """Return 0 where the caller may go on, else the seconds until it may."""
        if not self.rate:
            return 0.0
        most = max(1.0, self.rate * BURST_S)
        now = self._clock()
        left, then = self._left.get(caller, (most, now))
        left = min(most, left + (now - then) * self.rate)
        if left < 1:
            self._left[caller] = (left, now)
            return (1 - left) / self.rate
        if len(self._left) >= CLIENTS_KEPT and caller not in self._left:
            self._left.clear()
        self._left[caller] = (left - 1, now)
        return 0.0


class Guard:
    """The outermost layer: who calls, from where, how much and how often. What is let through has a Grant in its scope."""

    def __init__(self, app: App, *, tokens: Tokens | None, hosts: tuple[str, ...], origins: tuple[str, ...], max_body: int, rate: float) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = hosts
        self._origins = origins
        self._max_body = max_body
        self._buckets = Buckets(rate)
        self.draining = False
        self.answered: Counter[int] = Counter()
        """How many requests got which status."""
        self.under_way: set[object] = set()
        self.streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"no {scope['type']} here")
        started = False

        async def sending(message: Any) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                self.answered[message["status"]] += 1
            await send(message)

        headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        place = object()
        try:
            cors = self._checked_origin(headers, scope)
            if scope["method"] == "OPTIONS" and cors:
                await sending({"type": "http.response.start", "status": 204, "headers": [*cors, *_PREFLIGHT]})
                await sending({"type": "http.response.body", "body": b""})
                return
            if scope["path"] == "/healthz":
                await send_json(sending, 503 if self.draining else 200, {"status": "stopping" if self.draining else "ok"})
                return
            if self.draining:
                raise Turned(503, "shutting_down", "the server is stopping", "try again in a moment", (b"retry-after", b"2"))
            grant = self._checked_grant(headers)
            client = scope.get("client") or ("?", 0)
            if wait_s := self._buckets.take(grant.name or str(client[0])):
                seconds = str(max(1, round(wait_s))).encode()
                raise Turned(429, "too_many_requests", f"more than {self._buckets.rate:g} requests a second", "slow down", (b"retry-after", seconds))
            if len(self.under_way) >= OPEN_CALLS:
                raise Turned(503, "busy", f"{OPEN_CALLS} requests are under way", "try again in a moment", (b"retry-after", b"1"))
            scope[GRANT] = grant
            scope["user"] = _as_user(grant)
            if scope["method"] == "GET":  # a stream of the older era, which holds up nobody's end
                self.streams += 1
                try:
                    await self._app(scope, receive, _with(cors, sending))
                finally:
                    self.streams -= 1
                return
            self.under_way.add(place)
            body = await self._body(headers, receive)
            await self._app(scope, _replayed(body, receive), _with(cors, sending))
        except Turned as turned:
            if not started:
                await send_json(sending, turned.status, turned.document, turned.headers)
        except asyncio.CancelledError:
            raise
        except Exception:
            import traceback

            traceback.print_exc(file=sys.stderr)
            if not started:
                await send_json(sending, 500, problem("internal", "the request failed", "a bug in pinfold: the server's stderr has the traceback"))
        finally:
            self.under_way.discard(place)

    # --- checks ---------------------------------------------------------------------------------------------------

    def _checked_origin(self, headers: dict[bytes, bytes], scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers of the answer. Raises Turned at a Host or Origin that is none of ours."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _without_port(host) not in self._hosts:
            hint = "call it by the address it was bound to; its operator allows other names with --allow-host"
            raise Turned(421, "wrong_host", f"this server is not {host[:100]!r}", hint)
        origin = headers.get(b"origin")
        if origin is None:
            return []
        text = origin.decode("latin-1").lower()
        if text in self._origins:
            return [(b"access-control-allow-origin", origin), (b"vary", b"origin"), (b"access-control-expose-headers", b"mcp-session-id, mcp-protocol-version")]
        scheme, _, rest = text.partition("://")
        if scheme in ("http", "https") and _without_port(rest) in LOOPBACK and self._hosts == LOOPBACK:
            return []  # a page or tool of this machine; without CORS headers a browser's page reads nothing
        raise Turned(403, "wrong_origin", f"pages of {text[:100]!r} may not call", "its operator allows an origin with --allow-origin")

    def _checked_grant(self, headers: dict[bytes, bytes]) -> Grant:
        if self._tokens is None:
            return EVERYTHING
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        grant = self._tokens.grant_of(token.strip()) if scheme.lower() == "bearer" else None
        if grant is None:
            which = b'Bearer error="invalid_token"' if token else b"Bearer"
            message = "this token is not known here" if token else "this server wants a token"
            raise Turned(401, "token_required", message, "send Authorization: Bearer TOKEN; ask whoever runs this server", (b"www-authenticate", which))
        return grant

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._max_body:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_S):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Turned(400, "incomplete", "the body did not come whole", "send it again")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._max_body:
                        raise self._too_large()
                    parts.append(part)
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Turned(408, "incomplete", f"the body was not there after {BODY_S:g} s", "send it again", (b"connection", b"close")) from None

    def _too_large(self) -> Turned:
        hint = "store the path of a file instead, or ask the operator for a larger --max-body"
        return Turned(413, "body_too_large", f"a request has at most {self._max_body} bytes", hint, (b"connection", b"close"))


_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type, accept, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id"),
    (b"access-control-max-age", b"600"),
    (b"content-length", b"0"),
]


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body, and then what else comes."""
    given = False

    async def replay() -> Any:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


def _with(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
    if not headers:
        return send

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return sending


def _as_user(grant: Grant) -> Any:
    """Return the user the SDK compares a session's requests with: who began one is the only one to go on with it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    name = grant.name or "everybody"
    return AuthenticatedUser(AccessToken(token="", client_id=name, scopes=sorted(grant.scopes), subject=name))


# --- routes -------------------------------------------------------------------------------------------------------


def mcp_access(door: HttpDoor) -> Any:
    """Return the middleware that holds what is no tool call to the caller's grant."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import INVALID_PARAMS

    from pinfold.doors.watch import path_of

    def is_shown(request: Any, resource: Any) -> bool:
        uri = str(resource["uri"] if isinstance(resource, dict) else resource.uri)
        return not uri.startswith("pinfold://") or door.allows(request, path_of(uri)[0])

    async def access(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "resources/list":
            found = await call_next(ctx)
            listed = found["resources"] if isinstance(found, dict) else found.resources
            kept = [resource for resource in listed if is_shown(ctx.request, resource)]
            return {**found, "resources": kept} if isinstance(found, dict) else found.model_copy(update={"resources": kept})
        uri = (ctx.params or {}).get("uri") if ctx.method == "resources/read" else None
        if isinstance(uri, str) and uri.startswith("pinfold://"):
            try:
                grant = door.grant_of(ctx.request)
                grant.need("read", "resources/read")
                grant.need_session(path_of(uri)[0])
            except PinfoldError as error:
                raise MCPError(code=INVALID_PARAMS, message=str(error), data={"uri": uri, **error.shape()}) from None
        return await call_next(ctx)

    return access


def build_app(
    door: HttpDoor,
    *,
    tokens: Tokens | None = None,
    hosts: tuple[str, ...] = LOOPBACK,
    origins: tuple[str, ...] = (),
    max_body: int = 4 << 20,
    rate: float = 0.0,
    also: Callable[[Any], None] | None = None,
) -> tuple[Guard, Any]:
    """Return (the ASGI application, the MCP session manager whose `run()` must be entered around it).

    also: adds handlers of its own to the MCP server, for tests.
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    server = build_server(door)
    server.middleware.append(mcp_access(door))
    if also is not None:
        also(server)
    manager = StreamableHTTPSessionManager(app=server, session_idle_timeout=IDLE_S, max_sessions=CLIENT_SESSIONS, max_request_body_size=max_body + 1)

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].rstrip("/") or "/"
        if path == "/mcp":
            await manager.handle_request(scope, receive, _told(send))
        elif path == "/graphql":
            from pinfold.doors.graphql_http import answer_graphql

            try:
                await answer_graphql(door, scope, receive, send)
            except ModuleNotFoundError as error:  # nothing was sent: what needs the package comes first
                from pinfold.operations.graphql import without_package

                missing = without_package(error)
                await send_json(send, 501, problem(missing.code, missing.message, missing.hint))
        else:
            from pinfold.doors.rest import answer_rest

            await answer_rest(door, path, scope, receive, send)

    return Guard(route, tokens=tokens, hosts=hosts, origins=origins, max_body=max_body, rate=rate), manager


_WORDS = {
    400: ("bad_request", "the request is not what this endpoint takes", "POST one JSON-RPC message as application/json"),
    404: ("no_such_client_session", "this protocol session has ended or belongs to another token", "initialize again"),
    405: ("wrong_method", "this endpoint is not called with that method", "POST JSON-RPC messages"),
    406: ("not_acceptable", "the answer is JSON or a stream of events", "send Accept: application/json, text/event-stream"),
    409: ("conflict", "that stream is open already", "close it first, or read there"),
    415: ("wrong_type", "the body must be JSON", "send Content-Type: application/json"),
    503: ("busy", "too many protocol sessions are open", "try again in a moment"),
}


def _told(send: Send) -> Send:
    """Return a send that gives the SDK's bare refusals a code and a next step; its JSON-RPC errors go out as they are."""
    held: list[Any] = []

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] in _WORDS:
            kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
            if not kinds or not kinds[0].startswith((b"application/json", b"text/event-stream")):
                held.append(message)
                return
        if held:
            if message.get("more_body"):
                return
            start = held.pop()
            extra = tuple((name, value) for name, value in start["headers"] if name.lower() == b"allow")
            await send_json(send, start["status"], problem(*_WORDS[start["status"]]), extra)
            return
        await send(message)

    return sending


# --- the process --------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def hosts_of(host: str, allowed: list[str]) -> tuple[str, ...]:
    """Return the Host headers to answer to. Raises ConfigurationError where an address for all of them is bound and no name given."""
    names = [name.lower() for name in allowed]
    if is_loopback(host):
        return (*LOOPBACK, *names) if names else LOOPBACK
    try:
        unspecified = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        unspecified = False
    if unspecified:
        if not names:
            hint = "add --allow-host NAME for each name or address clients use"
            raise ConfigurationError(f"{host} is every address of this machine: no Host header can be checked", code="host_required", hint=hint)
        return tuple(names)
    own = f"[{host.strip('[]')}]" if ":" in host else host
    return (own.lower(), *names)


def serve_http(memory: Memory, options: Any, default_session: Callable[[], str]) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP. Return the exit status."""
    try:
        binding = Binding(options)
    except ConfigurationError as error:
        print(f"pinfold mcp: {error}", file=sys.stderr)
        return 2
    except Unavailable as error:
        print(f"pinfold mcp: {error}", file=sys.stderr)
        return 4
    return asyncio.run(_serve(memory, options, default_session, binding))


class Binding:
    """Where a server listens, and whom it lets in. Raises ConfigurationError, Unavailable `port_in_use`."""

    def __init__(self, options: Any) -> None:
        self.tokens = open_tokens(options.token_file, os.environ.get("PINFOLD_TOKEN"))
        if self.tokens is None and not is_loopback(options.host):
            hint = "pass --token-file FILE or set PINFOLD_TOKEN; pinfold mcp --new-token NAME makes one"
            raise ConfigurationError(f"{options.host} can be reached from elsewhere: tokens are needed", code="token_required", hint=hint)
        self.hosts = hosts_of(options.host, options.allow_host)
        self.listening = bind(options.host, options.port)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises Unavailable `port_in_use`, ConfigurationError `bad_host`."""
    name = host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ConfigurationError(f"{host!r} is no address of this machine: {error.strerror}", code="bad_host", hint="127.0.0.1 is the default") from error
    listening = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise Unavailable(f"{host}:{port} cannot be bound: {error.strerror}", code="port_in_use", hint="another --port, or 0 for any") from error
    listening.setblocking(False)
    return listening


async def _serve(memory: Memory, options: Any, default_session: Callable[[], str], binding: Binding) -> int:
    stop = asyncio.Event()
    stop_on_signals(stop)

    def started(url: str) -> None:
        who = "tokens only" if binding.tokens is not None else "everybody on this machine"
        print(f"pinfold mcp: {url}/mcp, /graphql and /v1, {who}; store {memory.url}", file=sys.stderr, flush=True)

    door = HttpDoor(memory, default_session=default_session, toolset=options.tools, structured=options.structured == "on")
    await run_http(door, options, binding, stop, started)
    return 0


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set stop at SIGTERM, SIGINT or SIGHUP, but for those that whoever started this wants to be ignored (nohup)."""
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(getattr(signal, name), stop.set)


async def run_http(door: HttpDoor, options: Any, binding: Binding, stop: asyncio.Event, started: Callable[[str], None]) -> None:
    """Serve until stop is set, and then until what is under way is answered. started: called with the URL."""
    from concurrent.futures import ThreadPoolExecutor

    import uvicorn

    loop = asyncio.get_running_loop()
    workers = ThreadPoolExecutor(WORKERS, "pinfold-http")
    loop.set_default_executor(workers)
    origins = tuple(origin.lower().rstrip("/") for origin in options.allow_origin)
    guard, manager = build_app(door, tokens=binding.tokens, hosts=binding.hosts, origins=origins, max_body=options.max_body, rate=options.rate)
    door.metrics.requests = guard.answered
    for name in ("uvicorn", "uvicorn.error", "mcp"):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
    config = uvicorn.Config(
        guard, lifespan="off", log_config=None, access_log=False, server_header=False, date_header=False, ws="none", proxy_headers=False,
        timeout_graceful_shutdown=1, timeout_keep_alive=30, h11_max_incomplete_event_size=64 << 10,
    )  # fmt: skip
    server = _server(config)
    bound = binding.listening.getsockname()
    shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
    async with manager.run():
        serving = asyncio.ensure_future(server.serve(sockets=[binding.listening]))
        started(f"http://{shown}:{bound[1]}")
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        await drain(guard, door, DRAIN_S)
        server.should_exit = True
        for transport in list(manager._server_instances.values()):
            with contextlib.suppress(Exception):
                await transport.terminate()
        await asyncio.gather(serving, return_exceptions=True)
    if door.watch is not None:
        door.watch.close()
    workers.shutdown(wait=False, cancel_futures=True)


async def drain(guard: Guard, door: HttpDoor, most_s: float) -> None:
    """Accept nothing new, let go whoever waits, end streams, and wait until what is under way is answered."""
    guard.draining = True
    door.stopping.set()
    door.end_streams()
    until = time.monotonic() + most_s
    while guard.under_way and time.monotonic() < until:
        await asyncio.sleep(0.01)


def _server(config: Any) -> Any:
    """Return a uvicorn server without signal handlers of its own: this process has its own idea of an end."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Any:
            yield

    return Server(config)
