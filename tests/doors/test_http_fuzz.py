"""Whatever is sent to any route, it is answered: no 5xx, no traceback, no hang, and every refusal says what to do next.

The server is a process of its own: what it says on stderr is looked at in the end. Bodies are bytes, JSON, JSON-RPC of both eras,
calls of every tool and every route with right and wrong arguments, and GraphQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from graphql import print_schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis_graphql import mutations, nodes, queries
from tests.doors.http_runner import META, MODERN, Server, serving
from tool_examples import EXAMPLES

from pinfold.doors.graphql_schema import schema
from pinfold.operations import BY_NAME, BY_TOOL, Operation
from pinfold.operations.table import WAITS

fuzz = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("fuzz") / "s.db", "--tools", "all", "--rate", "0", "--max-body", "100000") as server:
        server.ask("mutate", text="+ TSK [T1] ; goal=ship\n+ TSK [T2] ; goal=rest\n+ [T1] --(needs)--> [T2]")
        server.ask("set", key="k", value={"a": [1, None]})
        yield server
        assert server.ask("peek", session_id="after", key="k") == {"hit": False}, "it still answers"
        status, err = server.end()
        assert status == 0 and err.count("\n") <= 1, err  # the line that says where it listens


def checked(answer: httpx.Response) -> Any:
    """Return the JSON of an answer that is what any answer must be."""
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text and 'File "' not in answer.text
    if answer.status_code in (202, 204) and not answer.content:
        return None
    if answer.headers["content-type"].startswith("text/event-stream"):
        told = [json.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:") and line[5:].strip()]
    else:
        assert answer.headers["content-type"].startswith("application/json"), answer.headers
        told = [answer.json()]
    for one in told:
        assert isinstance(one, dict) and "internal" not in json.dumps(one.get("error", {})), one
    if answer.status_code >= 400:
        assert any("error" in one or "errors" in one for one in told), answer.text
    return told[-1] if told else None


hostile = st.sampled_from(["", "\0", "é" * 300, "../../etc/passwd", "'; DROP TABLE entries; --", "{{7*7}}", "\ud800", "T1", "k", "- T1", "[" * 500, "9" * 400])
texts = st.one_of(hostile, st.text(max_size=20))
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.sampled_from([0, -1, 1, 2**31, 2**63, 1e308]))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
paths = st.one_of(
    st.sampled_from(["/", "/mcp", "/mcp/", "/graphql", "/healthz", "//mcp", "/mcp/../graphql", "/mcp%2f", "/graphql?query={session{id}}"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#?\\"), max_size=12).map("/".__add__),
)
header_values = st.one_of(
    st.sampled_from(
        [
            "application/json",
            "application/json; charset=x",
            "text/event-stream",
            "*/*",
            MODERN,
            "2025-11-25",
            "1999-01-01",
            "tools/call",
            "peek",
            "gzip",
            "chunked",
            "junk",
            "Bearer x",
            "-1",
            "4294967296",
        ]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=12).map(str.strip),
)
headers = st.dictionaries(
    st.sampled_from(
        [
            "accept",
            "content-type",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "mcp-session-id",
            "authorization",
            "origin",
            "host",
            "last-event-id",
            "content-encoding",
            "x-forwarded-for",
            "mcp-param-key",
            "cookie",
        ]
    ),
    header_values,
    max_size=6,
)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")  # NaN and Infinity too, which are no JSON


@fuzz
@given(methods, paths, headers, st.one_of(st.binary(max_size=60), values.map(dumped)))
@pytest.mark.requirement("any-request")
def test_any_request_is_answered(server: Server, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
    given_headers = {name: value.encode("latin-1") for name, value in headers.items()}
    stream = method == "GET" and path.startswith("/mcp") and "mcp-session-id" in headers  # the stream of the older era is meant to stay open
    answer = server.http.request(method, "/" if stream else path, headers=given_headers, content=body)
    if method == "HEAD":
        assert answer.status_code < 500
    elif method != "OPTIONS" or answer.status_code != 204:
        checked(answer)


RPC = [
    *("initialize", "ping", "tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read"),
    *("resources/subscribe", "completion/complete", "server/discover", "logging/setLevel", "notifications/cancelled", "no/such", ""),
]
uris = st.one_of(texts, texts.map("pinfold://shared/pin-map/".__add__), st.sampled_from(["pinfold://shared/log", "pinfold://shared/stale"]))
named = {"name": texts, "uri": uris, "protocolVersion": texts, "_meta": st.one_of(values, st.just(META))}
params = st.one_of(
    values,
    st.fixed_dictionaries({}, optional=named | dict.fromkeys(("arguments", "argument", "ref", "cursor", "requestId", "capabilities", "clientInfo"), values)),
)


@pytest.fixture(scope="module")
def older_era(server: Server) -> dict[str, str]:
    """The headers of a protocol session of the era with a handshake."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    both = {"accept": "application/json, text/event-stream"}
    begun = server.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=both)
    return {**both, "mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


@fuzz
@given(st.sampled_from(RPC), params, st.one_of(st.integers(), texts, st.none(), values), st.sampled_from(["older", MODERN, None, "2099-01-01"]))
def test_any_json_rpc_is_answered(server: Server, older_era: dict[str, str], method: str, params: Any, id: Any, version: str | None) -> None:
    headers = dict(older_era) if version == "older" else {"accept": "application/json, text/event-stream", "mcp-method": method}
    if version is not None and version != "older":
        headers["mcp-protocol-version"] = version
    if version == MODERN and isinstance(params, dict):
        name = params.get("name", params.get("uri"))
        if isinstance(name, str) and name.isprintable() and name.isascii():
            headers["mcp-name"] = name.strip()
        params = {"_meta": META, **params}
    body = dumped({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    checked(server.http.post("/mcp", content=body, headers={"content-type": "application/json", **headers}))


def argument(row: Operation, name: str, kind: str) -> st.SearchStrategy[Any]:
    """Return values for an argument: mostly of its kind. Waits are short: a call that waits is no hang."""
    if name in WAITS:
        return st.sampled_from([0, 0.01, -1, "soon", False])
    own = {
        "str": texts, "int": numbers, "float": numbers, "seconds": numbers, "bool": st.booleans(),
        "object": st.dictionaries(texts, values, max_size=3), "strings": st.lists(texts, max_size=3), "any": values,
    }[kind]  # fmt: skip
    return st.one_of(own, own, own, values)


@st.composite
def calls(draw: st.DrawFn, names: dict[str, Operation]) -> tuple[str, dict[str, Any]]:
    """Draw a call of any of these rows: an example with some arguments changed, or arguments from nothing."""
    name = draw(st.sampled_from(sorted(names)))
    row = names[name]
    known = [arguments for tool, arguments in EXAMPLES if BY_TOOL[tool] is row]
    arguments = dict(draw(st.sampled_from([{}, *known])))
    kinds = {param.name: param.kind for param in row.params} | {"session_id": "str", "actor": "str"}
    for each in draw(st.lists(st.sampled_from(sorted(kinds)), max_size=4, unique=True)):
        arguments[each] = draw(argument(row, each, kinds[each]))
    for wait in WAITS:
        if wait in arguments or any(param.name == wait and param.default for param in row.params):
            arguments[wait] = draw(argument(row, wait, "seconds"))
    return name, arguments


@settings(fuzz, max_examples=400)
@given(calls(BY_TOOL))
def test_any_call_of_any_tool_is_answered(server: Server, call: tuple[str, dict[str, Any]]) -> None:
    tool, arguments = call
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments, "_meta": META}}
    given_headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    given_headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    told = checked(server.http.post("/mcp", content=dumped(body), headers=given_headers))
    if told is not None and told.get("result", {}).get("isError"):
        error = json.loads(told["result"]["content"][0]["text"])["error"]
        assert error["code"] != "internal" and error["message"] and "hint" in error, (tool, arguments, error)


@settings(fuzz, max_examples=400)
@given(calls(BY_NAME))
@pytest.mark.requirement("any-request")
def test_any_call_of_any_route_is_answered(server: Server, call: tuple[str, dict[str, Any]]) -> None:
    name, arguments = call
    answer = server.http.post(f"/v1/{name}", content=dumped(arguments), headers={"content-type": "application/json"})
    told = checked(answer)
    if answer.status_code >= 400:
        assert told["error"]["code"] != "internal" and told["error"]["message"] and "hint" in told["error"], (name, arguments, told)


# --- GraphQL ------------------------------------------------------------------------------------------------------

SCHEMA = print_schema(schema())
short = st.one_of(hostile, st.text(max_size=5)).map(nodes.String)
SCALARS = {
    "Long": st.integers(-(2**70), 2**70).map(nodes.Int),
    "JSON": st.one_of(short, st.integers().map(nodes.Int), st.booleans().map(nodes.Boolean), st.just(nodes.Null), st.floats().map(nodes.Float)),
    "ID": st.one_of(short, st.sampled_from(["shared", "T1", "k"]).map(nodes.String)),
    "String": st.one_of(short, st.sampled_from(["shared", "T1", "k", "status=open", "+ TSK [NEW]"]).map(nodes.String)),
}


@settings(fuzz, max_examples=60)
@given(st.one_of(queries(SCHEMA, custom_scalars=SCALARS), mutations(SCHEMA, custom_scalars=SCALARS)))
def test_any_document_made_from_the_schema_is_answered(server: Server, document: str) -> None:
    told = checked(server.http.post("/graphql", content=dumped({"query": document}), headers={"content-type": "application/json"}))
    for error in told.get("errors", ()):
        assert error["extensions"]["code"] not in ("internal", "failed"), (document, error)
