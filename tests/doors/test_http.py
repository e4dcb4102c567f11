"""The HTTP door: who may call, what is refused and how, and that every answer belongs to its request."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from journey import call_at_once, hear_of_changes, work_a_day
from mcp.shared.exceptions import MCPError
from tests.doors.http_runner import MODERN, WAIT_S, Server, client, plain_client, serving

from pinfold import Memory
from pinfold.doors.grants import Grant, check_pattern, covers, digest, new_token, read_tokens
from pinfold.doors.http import Buckets, hosts_of, is_loopback
from pinfold.errors import ConfigurationError, Refused

ERAS = ("legacy", MODERN)
TOKENS = {
    "reader": {"scopes": ["read"], "sessions": ["team"]},
    "writer": {"scopes": ["write"], "sessions": ["team", "team.*"]},
    "below": {"scopes": ["read", "write"], "sessions": ["team.*"]},
    "boss": {"scopes": ["admin"], "sessions": ["*"]},
}


def token(name: str) -> str:
    return f"{name}-secret-token-0123456789"


@pytest.fixture(scope="module")
def tokens_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    rows = [{"name": name, "sha256": digest(token(name)).hex(), **rest} for name, rest in TOKENS.items()]
    path.write_text(json.dumps({"tokens": rows}))
    return path


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("open") / "s.db", "--max-body", "200000") as server:
        yield server
        status, err = server.end()
        assert status == 0 and "Traceback" not in err, err


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory, tokens_file: Path) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("closed") / "s.db", "--token-file", str(tokens_file)) as server:
        yield server
        status, err = server.end()
        assert status == 0 and "Traceback" not in err, err


# --- grants, alone ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("team", ["team"], ["teammate", "team.a", "tea", "Team", "team."]),
        ("team.*", ["team.a", "team.a.b"], ["team", "teammate", "team.", "xteam.a"]),
        ("a.b.*", ["a.b.c"], ["a.b", "a.bc", "a.c.b"]),
        ("*", ["team", "x.y"], []),
    ],
)
def test_a_grant_covers_whole_segments_only(pattern: str, yes: list[str], no: list[str]) -> None:
    check_pattern(pattern)
    assert all(covers(pattern, name) for name in yes) and not any(covers(pattern, name) for name in no)


@pytest.mark.parametrize("pattern", ["", "te*m", "*.team", "team.*.x", ".*", "team*", 7, None])
def test_what_is_no_grant_is_refused(pattern: Any) -> None:
    with pytest.raises(ConfigurationError):
        check_pattern(pattern)


def test_scopes_include_the_lesser_ones() -> None:
    for scope, may in (("read", {"read"}), ("write", {"read", "write"}), ("admin", {"read", "write", "admin"})):
        grant = Grant("x", frozenset((scope,)), ("*",))
        assert {name for name in ("read", "write", "admin") if grant.may(name)} == may
        if may != {"read", "write", "admin"}:
            with pytest.raises(Refused, match="scope"):
                grant.need("admin", "this")


BAD_FILES = [
    "nonsense",
    "[]",
    '{"tokens": [{}]}',
    '{"tokens": [{"name": "a", "sha256": "00", "sessions": ["*"]}]}',
    '{"tokens": [{"name": "a", "token": "short", "sessions": ["*"]}]}',
    '{"tokens": [{"name": "a", "token": "x0123456789012345678901", "sessions": []}]}',
    '{"tokens": [{"name": "a", "token": "x0123456789012345678901", "sessions": ["*"], "scopes": ["root"]}]}',
    '{"tokens": [{"name": "a", "token": "x0123456789012345678901", "sessions": ["*"], "more": 1}]}',
    '{"tokens": [{"name": "a/b", "token": "x0123456789012345678901", "sessions": ["*"]}]}',
    '{"tokens": [{"name": "a", "token": "x0123456789012345678901", "sessions": ["*"]}, {"name": "a", "token": "y0123456789012345678901", "sessions": ["*"]}]}',
]


@pytest.mark.parametrize("text", BAD_FILES)
def test_a_token_file_that_is_not_right_is_refused_whole(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as refused:
        read_tokens(str(path))
    assert refused.value.code == "bad_token_file" and refused.value.hint


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_plain_tokens_that_others_may_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text('{"tokens": [{"name": "a", "token": "x0123456789012345678901", "sessions": ["*"]}]}')
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="others may read"):
        read_tokens(str(path))
    made, entry = new_token("b", ["read"], ["team.*"])
    path.write_text(json.dumps({"tokens": [entry]}))
    assert read_tokens(str(path))[digest(made)] == Grant("b", frozenset(("read",)), ("team.*",))


def test_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"))) and not any(
        map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example"))
    )
    assert hosts_of("10.0.0.1", ["Memory.Example"]) == ("10.0.0.1", "memory.example")
    with pytest.raises(ConfigurationError, match="Host"):
        hosts_of("0.0.0.0", [])


def test_a_bucket_fills_as_time_passes() -> None:
    now = [0.0]
    buckets = Buckets(2.0, lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0] and buckets.take("a") == 0.5
    assert buckets.take("b") == 0
    now[0] = 0.5
    assert buckets.take("a") == 0 and buckets.take("a") > 0


@pytest.mark.parametrize(
    ("options", "env", "status", "code"),
    [
        (["--host", "0.0.0.0"], {}, 2, "token_required"),
        (["--host", "0.0.0.0"], {"PINFOLD_TOKEN": "x" * 30}, 2, "host_required"),
        (["--host", "127.0.0.1"], {"PINFOLD_TOKEN": "short"}, 2, "bad_token_file"),
        (["--token-file", "/no/such/file"], {}, 2, "bad_token_file"),
        (["--host", "no.such.host.invalid"], {"PINFOLD_TOKEN": "x" * 30}, 2, "bad_host"),
    ],
)
def test_a_server_that_would_be_open_to_others_does_not_start(options: list[str], env: dict[str, str], status: int, code: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "pinfold", "mcp", "--http", "--port", "0", "--store", f"sqlite:///{tmp_path}/s.db", *options]
    done = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False, env={**os.environ, **env})
    assert done.returncode == status and code.encode() in done.stderr and b"Traceback" not in done.stderr and done.stdout == b""


# --- refusals -----------------------------------------------------------------------------------------------------


def code_of(answer: httpx.Response) -> str:
    error = answer.json()["error"]
    assert error["message"] and error["hint"]
    return str(error["code"])


def test_host_and_origin_are_checked_before_anything_else(open_server: Server) -> None:
    http = open_server.http
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example:1", ""):
        answer = http.post("/mcp", content=b"{}", headers={"host": host})
        assert answer.status_code == 421 and code_of(answer) == "wrong_host"
    for origin in ("http://evil.example", "null", "http://localhost.evil.example", "http://127.0.0.1@evil.example", "file://localhost"):
        for path in ("/mcp", "/graphql", "/healthz"):
            answer = http.post(path, content=b"{}", headers={"origin": origin})
            assert answer.status_code == 403 and code_of(answer) == "wrong_origin"
    assert open_server.rpc("tools/list", headers={"origin": "http://localhost:6274"}).status_code == 200
    assert "access-control-allow-origin" not in open_server.rpc("tools/list", headers={"origin": "http://localhost:6274"}).headers


def test_an_operator_may_let_other_names_and_pages_in(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", "--allow-host", "Memory.Example", "--allow-origin", "https://app.example/") as server:
        ask = {"host": "memory.example:443", "origin": "https://app.example"}
        allowed = server.rpc("tools/list", headers=ask)
        assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == "https://app.example"
        asked = server.http.request("OPTIONS", "/graphql", headers={**ask, "access-control-request-method": "POST"})
        assert asked.status_code == 204 and "authorization" in asked.headers["access-control-allow-headers"]
        for headers, status in (({"host": "other.example"}, 421), ({"origin": "https://app.example.evil"}, 403), ({"origin": "http://localhost:1"}, 403)):
            assert server.rpc("tools/list", headers=headers).status_code == status
        assert server.end()[0] == 0


JUNK = [b"", b"{", b"[]", b"null", b"1", b'"x"', b"[" * 60_000, b"\xff\xfe", b'{"jsonrpc": "2.0"}', b'{"jsonrpc":"2.0","id":1,"method":5}', b"9" * 5000]


def test_malformed_bodies_get_refusals_and_never_a_traceback(open_server: Server) -> None:
    both = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    for path in ("/mcp", "/graphql", "/elsewhere"):
        for body in JUNK:
            for headers in ({}, {"content-type": "application/json"}, both, {**both, "mcp-protocol-version": MODERN}, {**both, "mcp-protocol-version": "junk"}):
                for method in ("POST", "PUT", "DELETE"):
                    answer = open_server.http.request(method, path, content=body, headers=headers)
                    assert 400 <= answer.status_code < 500, (method, path, body[:20], headers, answer.status_code, answer.text[:200])
                    assert "Traceback" not in answer.text and answer.headers["content-type"].startswith("application/json"), answer.text
                    assert "error" in answer.json() or "errors" in answer.json()
    for path in ("/graphql", "/elsewhere", "/"):
        assert "error" in open_server.http.get(path).json()
    assert open_server.http.get("/healthz").json() == {"status": "ok"}
    answer = open_server.http.get("/mcp", headers={"accept": "text/event-stream"})
    assert answer.status_code == 400


def test_oversized_bodies_are_refused_whether_declared_or_not(open_server: Server) -> None:
    answer = open_server.http.post("/mcp", content=b"x" * 300_000)
    assert answer.status_code == 413 and code_of(answer) == "body_too_large"

    def parts() -> Iterator[bytes]:
        for _ in range(300):
            yield b"x" * 1000

    answer = open_server.http.post("/graphql", content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413 and code_of(answer) == "body_too_large"
    assert open_server.ask("peek", key="nothing") == {"hit": False}


def test_too_many_requests_are_told_to_slow_down(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", "--rate", "5") as server:
        answers = [server.http.get("/nothing") for _ in range(30)]
        late = [answer for answer in answers if answer.status_code == 429]
        assert late and code_of(late[0]) == "too_many_requests" and int(late[0].headers["retry-after"]) >= 1
        assert server.end()[0] == 0


# --- who may what -------------------------------------------------------------------------------------------------


def test_without_a_known_token_nothing_is_answered(closed_server: Server) -> None:
    for path in ("/mcp", "/graphql", "/elsewhere"):
        for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": f"Basic {token('boss')}"}, {"authorization": token("boss")}):
            answer = closed_server.http.post(path, content=b"{}", headers=headers)
            assert answer.status_code == 401 and code_of(answer) == "token_required" and answer.headers["www-authenticate"].startswith("Bearer")
    assert closed_server.http.get("/healthz").status_code == 200


CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("peek", {"key": "k"}, "read"),
    ("peek", {"key": "claimed", "claim": True}, "write"),
    ("set", {"key": "k", "value": 1}, "write"),
    ("memory_status", {}, "read"),
    ("resolve", {"promise_id": "none"}, "read"),
    ("mutate", {"text": "+ TSK [NEW] ; goal=x"}, "write"),
    ("read_list", {}, "read"),
    ("log", {}, "read"),
    ("flush", {}, "write"),
    ("forget", {"prefix": "zz", "dry_run": False}, "write"),
    ("forget", {"prefix": "zz", "dry_run": False, "erase": True}, "admin"),
    ("housekeep", {}, "admin"),
    ("session_fork", {"name": "team.fork"}, "admin"),
    ("session_close", {}, "admin"),
]
RANK = {"read": 0, "write": 1, "admin": 2}


@pytest.mark.requirement("grants")
def test_the_matrix_of_scopes_and_sessions(closed_server: Server) -> None:
    for name, row in TOKENS.items():
        most = max(RANK[scope] for scope in row["scopes"])
        for session in ("team", "team.a", "teammate", "other"):
            granted = any(covers(pattern, session) for pattern in row["sessions"])
            for tool, arguments, scope in CALLS:
                told = closed_server.ask(tool, token=token(name), session_id=session, **arguments) if tool != "read_list" else None
                if told is None:
                    answer = closed_server.rpc("tools/call", {"name": tool, "arguments": {"session_id": session, **arguments}}, token=token(name)).json()
                    told = json.loads(answer["result"]["content"][0]["text"]) if answer["result"]["isError"] else {}
                code = told.get("error", {}).get("code")
                if RANK[scope] > most:
                    assert code == "scope_required", (name, session, tool, told)
                elif not granted:
                    assert code == "session_not_granted", (name, session, tool, told)
                else:
                    assert code not in ("scope_required", "session_not_granted", "internal"), (name, session, tool, told)


@pytest.mark.requirement("grants")
def test_every_way_to_name_a_session_is_checked(closed_server: Server) -> None:
    boss, below = token("boss"), token("below")
    closed_server.ask("set", token=boss, session_id="secret", key="k", value="hidden")
    for tool, arguments in (
        ("peek", {"key": "k", "session_id": "secret"}),
        ("peek", {"key": "k", "session": "secret"}),
        ("init", {"session_id": "team.x", "long_term": "secret"}),
        ("graphql", {"session_id": "secret", "query": "{session{id}}"}),
    ):
        assert closed_server.ask(tool, token=below, **arguments)["error"]["code"] == "session_not_granted", tool
    for query in ('{session(id:"secret"){slot(key:"k"){value}}}', '{session(id:"secret"){nodes{totalCount}}}', "{session{id}}"):
        for answer in (
            closed_server.graphql(query, below).json(),
            closed_server.ask("graphql", token=below, session_id="team.x", query=query.replace("{session{", '{session(id:"secret"){')),
        ):
            assert answer["errors"][0]["extensions"]["code"] == "session_not_granted", answer
    closed_server.ask("mutate", token=boss, session_id="secret", text="+ TSK [T1] ; goal=hidden")
    for given in ("session:secret/row:T1", "session:secret/row:T9", "session:secret/slot:k"):
        for tool, arguments in (("set", {"key": "x", "value": 1}), ("promote_to_long_term", {"key": "x", "value": 1})):
            told = closed_server.ask(tool, token=below, session_id="team.x", inputs=[given], **arguments)
            assert told["error"]["code"] == "session_not_granted", "whether it is there, and when it changes, is the other session's to tell"
    assert "error" not in closed_server.ask("set", token=boss, session_id="team.x", key="x", value=1, inputs=["session:secret/row:T1"])
    assert closed_server.ask("peek", token=below, session_id="team.x", key="x") == {"hit": True, "value": 1, "index": 0}
    answer = closed_server.graphql('mutation{set(session:"team", key:"k", value:1){status}}', token("reader")).json()
    assert answer["errors"][0]["extensions"]["code"] == "scope_required"
    listed = closed_server.graphql("{sessions{edges{node{id}}}}", below).json()["data"]["sessions"]["edges"]
    assert not {edge["node"]["id"] for edge in listed} & {"secret", "team"}
    assert {row["session_id"] for row in closed_server.ask("session_list", token=below)["sessions"]} <= {"team.x", "team.a", "team.fork"}
    for uri in ("pinfold://secret/status", "pinfold://secret/log"):
        error = closed_server.rpc("resources/read", {"uri": uri}, token=below).json()["error"]
        assert "session_not_granted" in error["message"] and "hidden" not in json.dumps(error)
        assert closed_server.rpc("resources/read", {"uri": uri}, token=boss).status_code == 200
    assert closed_server.rpc("resources/list", token=below).json()["result"]["resources"] == []
    complete = {"ref": {"type": "ref/resource", "uri": "pinfold://{session}/log"}, "argument": {"name": "session", "value": ""}}
    assert "secret" not in closed_server.rpc("completion/complete", complete, token=below).json()["result"]["completion"]["values"]
    assert "secret" in closed_server.rpc("completion/complete", complete, token=boss).json()["result"]["completion"]["values"]


@pytest.mark.filterwarnings("ignore:resources/.* is removed")
@pytest.mark.requirement("grants")
def test_nobody_follows_a_session_that_is_not_granted(closed_server: Server) -> None:
    uri, below = "pinfold://secret/log", token("below")

    async def work() -> None:
        async with client(closed_server.url, "legacy", below) as old:
            with pytest.raises(MCPError, match="session_not_granted"):
                await old.subscribe_resource(uri)
            await old.subscribe_resource("pinfold://team.x/log")
        async with client(closed_server.url, MODERN, below) as new:
            with pytest.raises(MCPError, match="session_not_granted"):
                async with new.listen(resource_subscriptions=["pinfold://team.x/log", uri]):
                    pytest.fail("it listens")

    asyncio.run(asyncio.wait_for(work(), 3 * WAIT_S))
    body = {"query": 'subscription{changes(session:"secret", after:0){changes}}'}
    answer = closed_server.http.post("/graphql", json=body, headers={"accept": "text/event-stream", "authorization": f"Bearer {below}"})
    assert answer.status_code == 400 and answer.json()["errors"][0]["extensions"]["code"] == "session_not_granted"


def test_the_log_tells_which_token_wrote(closed_server: Server) -> None:
    closed_server.ask("set", token=token("writer"), session_id="team", key="by-writer", value=1)
    closed_server.graphql('mutation{set(session:"team", key:"by-boss", value:1){status}}', token("boss"))
    closed_server.ask("mutate", token=token("writer"), session_id="team", text="+ TSK [NEW] ; goal=audit", actor="somebody")
    entries = closed_server.ask("log", token=token("boss"), session_id="team")["entries"]
    told = {change: row.get("actor") for row in entries for change in row["changes"]}
    assert next(actor for change, actor in told.items() if "by-writer" in change) == "writer"
    assert next(actor for change, actor in told.items() if "by-boss" in change) == "boss"
    assert entries[-1]["actor"] == "writer/somebody"
    assert {row["actor"] for row in closed_server.ask("log", token=token("boss"), session_id="team", actor="writer")["entries"]} == {
        "writer",
        "writer/somebody",
    }


def test_a_protocol_session_is_only_its_token_s(closed_server: Server) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token('writer')}"}
    begun = closed_server.http.post("/mcp", json=body, headers=headers)
    assert begun.status_code == 200
    headers |= {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    assert closed_server.http.post("/mcp", json=call, headers=headers).status_code == 200
    assert closed_server.http.post("/mcp", json=call, headers={**headers, "authorization": f"Bearer {token('boss')}"}).status_code == 404


def test_a_token_taken_out_of_the_file_is_refused_at_once(tmp_path: Path) -> None:
    one, entry = new_token("one", ["write"], ["*"])
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps({"tokens": [entry]}))
    with serving(tmp_path / "s.db", "--token-file", str(path)) as server:
        assert server.ask("peek", token=one, key="k") == {"hit": False}
        two, entry = new_token("two", ["write"], ["*"])
        path.write_text(json.dumps({"tokens": [entry]}))
        assert server.rpc("tools/list", token=one).status_code == 401
        assert server.ask("peek", token=two, key="k") == {"hit": False}
        path.write_text("{")
        assert server.rpc("tools/list", token=two).status_code == 401
        assert server.end()[0] == 0


# --- answers ------------------------------------------------------------------------------------------------------


def test_a_thousand_mixed_calls_at_once_each_get_their_own_answer(open_server: Server) -> None:
    async def work() -> None:
        async with client(open_server.url, "legacy") as old, plain_client(open_server.url) as new:
            await call_at_once((new, old, new))

    asyncio.run(asyncio.wait_for(work(), 6 * WAIT_S))


@pytest.mark.parametrize("era", ERAS)
def test_a_real_client_goes_all_the_way(open_server: Server, era: str) -> None:
    async def work() -> None:
        async with client(open_server.url, era) as one, client(open_server.url, era) as two:
            await work_a_day(one, two, f"walk-{era[:4]}")

    asyncio.run(asyncio.wait_for(work(), 3 * WAIT_S))


@pytest.mark.filterwarnings("ignore:resources/.* is removed")
def test_changes_of_a_resource_are_told_in_both_eras(open_server: Server) -> None:
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    def connect(era: str, **options: Any) -> Any:
        return Client(streamable_http_client(f"{open_server.url}/mcp"), mode=era, **options)

    asyncio.run(asyncio.wait_for(hear_of_changes(connect), 3 * WAIT_S))


def test_a_subscription_streams_the_journal(open_server: Server) -> None:
    open_server.ask("set", session_id="stream", key="before", value=1)
    lines: list[dict[str, Any]] = []
    body = {"query": 'subscription($after: Long){changes(session: "stream", after: $after){seq changes}}', "variables": {"after": 0}}
    with open_server.http.stream("POST", "/graphql", json=body, headers={"accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data: "):
                lines.append(json.loads(line[6:])["data"]["changes"])
                if len(lines) == 1:
                    with httpx.Client(base_url=open_server.url) as other:
                        other.post("/graphql", json={"query": 'mutation{set(session:"stream", key:"after", value:2){status}}'})
                else:
                    break
    assert "before" in lines[0]["changes"][-1] and "after" in lines[1]["changes"][-1] and lines[1]["seq"] == lines[0]["seq"] + 1


def test_a_subscription_that_cannot_go_on_says_so_and_ends(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db") as server:
        server.ask("set", session_id="stream", key="before", value=1)
        told: list[dict[str, Any]] = []
        body = {"query": 'subscription{changes(session: "stream", after: 0){seq changes}}'}
        with server.http.stream("POST", "/graphql", json=body, headers={"accept": "text/event-stream"}) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    told.append(json.loads(line[6:]))
                    if len(told) == 1:
                        with Memory(f"sqlite:///{tmp_path}/s.db") as memory:  # another life of the session: what came between is not known
                            memory.end("stream")
                            memory.session("stream").set("again", 2)
        assert line == "" and [row.get("errors", [{}])[0].get("extensions", {}).get("code") for row in told] == [None, "fell_behind"]
        status, err = server.end()
        assert status == 0 and "Traceback" not in err


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM to catch")
@pytest.mark.requirement("server-ends")
def test_sigterm_under_load_loses_nothing_acknowledged_and_lets_the_waiting_go(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    acknowledged: list[int] = []
    refused: list[str] = []
    with serving(store) as server:
        claim = server.ask("peek", key="held", claim=True)
        assert claim["claimed"]
        waited: list[Any] = []

        def wait() -> None:
            waited.append(server.ask("peek", key="held", claim=True, wait_s=600))

        def write(start: int) -> None:
            with httpx.Client(base_url=server.url, timeout=WAIT_S) as http:
                for number in range(start, start + 100_000, 8):
                    try:
                        answer = http.post("/graphql", json={"query": f'mutation{{set(key:"k{number}", value:{number}){{status}}}}'})
                    except httpx.HTTPError:
                        return
                    if answer.status_code == 503:
                        refused.append(answer.json()["error"]["code"])
                        return
                    assert answer.json()["data"]["set"]["status"] == "stored"
                    acknowledged.append(number)

        threads = [threading.Thread(target=write, args=(start,)) for start in range(8)] + [threading.Thread(target=wait)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + WAIT_S
        while len(acknowledged) < 100 and time.monotonic() < until:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_S) == 0
        for thread in threads:
            thread.join(WAIT_S)
        assert server.process.stderr is not None
        assert b"Traceback" not in server.process.stderr.read()
    assert waited and waited[0]["error"]["code"] == "shutting_down"
    assert set(refused) <= {"shutting_down"}
    with Memory(f"sqlite:///{store}") as memory:
        session = memory.session("shared")
        assert len(acknowledged) >= 100 and [session.peek(f"k{number}").value for number in acknowledged] == acknowledged  # type: ignore[union-attr]
