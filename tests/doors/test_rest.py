"""JSON over HTTP: a route for every row, under the rules of MCP's; the document that describes them; the numbers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.doors.cli_runner import run, runtime_folder
from tests.doors.http_runner import Server, serving

from pinfold.doors.grants import digest
from pinfold.doors.rest import openapi
from pinfold.operations import TABLE

TOKENS = {
    "reader": {"scopes": ["read"], "sessions": ["team"]},
    "writer": {"scopes": ["write"], "sessions": ["team", "team.*"]},
    "boss": {"scopes": ["admin"], "sessions": ["*"]},
}


STORE: dict[str, str] = {}


def token(name: str) -> str:
    return f"{name}-secret-token-0123456789"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With tokens, and with commands beside. Requests are `boss`'s, who may do everything, unless they say otherwise."""
    folder = tmp_path_factory.mktemp("rest")
    rows = [{"name": name, "sha256": digest(token(name)).hex(), **rest} for name, rest in TOKENS.items()]
    (folder / "tokens.json").write_text(json.dumps({"tokens": rows}))
    with serving(folder / "s.db", "--token-file", str(folder / "tokens.json"), env={"XDG_RUNTIME_DIR": runtime_folder()}, verb="serve") as found:
        STORE[found.url] = f"sqlite:///{folder}/s.db"
        found.http.headers["authorization"] = f"Bearer {token('boss')}"
        yield found
        status, err = found.end()
        assert status == 0 and "Traceback" not in err, err


def call(server: Server, name: str, /, who: str | None = None, **arguments: Any) -> tuple[int, Any]:
    headers = {} if who is None else {"authorization": f"Bearer {token(who)}" if who else ""}
    answer = server.http.post(f"/v1/{name}", json=arguments, headers=headers)
    return answer.status_code, answer.json()


def code(answer: tuple[int, Any]) -> tuple[int, str]:
    error = answer[1]["error"]
    assert error["message"] and error["hint"]
    return answer[0], error["code"]


# --- routes -------------------------------------------------------------------------------------------------------


def test_a_route_answers_as_the_command_with_json_does(server: Server) -> None:
    assert call(server, "set", session_id="a", key="k", value={"b": [1, None]}) == (200, {"status": "stored", "index": 0})
    assert call(server, "peek", session_id="a", key="k") == (200, {"hit": True, "value": {"b": [1, None]}, "index": 0})
    assert call(server, "peek", session_id="a", key="none") == (200, {"hit": False})
    status, done = call(server, "mutate", session_id="a", text="+ TSK [NEW:x] ; goal=ship", actor="ann")
    assert status == 200 and done["minted"] == {"x": "TSK1"}
    assert call(server, "read_get", session_id="a", ids=["TSK1"])[1]["items"][0]["actor"] == "boss/ann"
    assert call(server, "graphql", session_id="a", query="{ session { id } }") == (200, {"data": {"session": {"id": "a"}}})
    assert call(server, "session_list")[1]["total"] >= 1
    assert call(server, "peek", key="k") == (200, {"hit": False}) and call(server, "status")[1]["session_id"] == "shared"


@pytest.mark.requirement("routes")
def test_every_operation_has_a_route_and_refuses_an_argument_it_does_not_have(server: Server) -> None:
    for row in TABLE:
        assert code(call(server, row.name, session_id="a", nonsense=1)) == (400, "bad_arguments"), row.name


def test_a_retry_under_a_request_id_changes_nothing(server: Server) -> None:
    call(server, "mutate", session_id="r", text="+ TSK [C] ; n=0")
    first = call(server, "update", session_id="r", text="~ [C] ; n+=1", request_id="one")
    assert call(server, "update", session_id="r", text="~ [C] ; n+=1", request_id="one") == first
    assert call(server, "read_get", session_id="r", ids=["C"])[1]["items"][0]["line"] == "TSK [C] ; n=1"
    assert (
        call(server, "claim", session_id="r", key="k", request_id="two")[1]["token"]
        == call(server, "claim", session_id="r", key="k", request_id="two")[1]["token"]
    )


def test_what_is_refused_says_whose_turn_it_is(server: Server) -> None:
    post = server.http.post
    assert post("/v1/peek", content=b"{", headers={"content-type": "application/json"}).json()["error"]["code"] == "bad_arguments"
    assert post("/v1/peek", content=b"[1]", headers={"content-type": "application/json"}).status_code == 400
    assert post("/v1/peek", content=b"[" * 100_000, headers={"content-type": "application/json"}).status_code == 400
    assert post("/v1/peek", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    answer = server.http.get("/v1/peek")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert code(call(server, "peak")) == (404, "not_found") and "did you mean peek" in call(server, "peak")[1]["error"]["hint"]
    assert code(call(server, "peek", key=7)) == (400, "bad_arguments")
    assert code(call(server, "set", key="k")) == (400, "bad_arguments")
    assert code(call(server, "peek", session_id="no name", key="k")) == (400, "bad_session_name")
    assert code(call(server, "resolve", promise_id="k", payload="x", token=9)) == (409, "stale_token")
    status, document = call(server, "mutate", text="~ [T9] ; goal=x\n? what")
    assert status == 400 and [problem["line"] for problem in document["error"]["errors"]] == [1, 2]
    assert code(call(server, "session_save", file="/etc/passwd")) == (403, "outside_roots")
    assert code(call(server, "session_restore", session_id="never")) == (404, "no_such_session")
    assert post("/v1/peek", json={}, headers={"host": "elsewhere.example"}).status_code == 421
    assert post("/v1/peek", json={}, headers={"origin": "https://elsewhere.example"}).status_code == 403


def test_a_wait_over_http_ends_with_the_work(server: Server) -> None:
    token_ = call(server, "claim", session_id="w", key="k")[1]["token"]
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(call(server, "wait", session_id="w", key="k", timeout_s=60)))
    waiting.start()
    call(server, "resolve", session_id="w", promise_id="k", payload="done", token=token_)
    waiting.join(60)
    assert found[0][1]["payload"] == "done"
    assert call(server, "wait", session_id="w", key="nothing", timeout_s=0.01)[1]["status"] == "unknown"


# --- grants -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("routes")
def test_the_routes_obey_tokens_scopes_and_sessions(server: Server) -> None:
    assert code(call(server, "peek", "", key="k")) == (401, "token_required")
    nobody = {"authorization": ""}
    assert server.http.get("/openapi.json", headers=nobody).status_code == server.http.get("/metrics", headers=nobody).status_code == 401
    assert server.http.get("/healthz", headers=nobody).json() == {"status": "ok"}
    assert call(server, "set", "writer", key="k", value="v", session_id="team")[0] == 200
    assert call(server, "peek", "reader", key="k")[1]["value"] == "v"  # its only session is its default
    assert code(call(server, "set", "reader", key="k", value="w")) == (403, "scope_required")
    assert code(call(server, "peek", "reader", key="k", session_id="other")) == (403, "session_not_granted")
    assert code(call(server, "session_close", "writer", session_id="team")) == (403, "scope_required")
    assert [row["session_id"] for row in call(server, "session_list", "reader")[1]["sessions"]] == ["team"]
    assert call(server, "log", "boss", session_id="team")[1]["entries"][0]["actor"] == "writer"
    headers = {"authorization": f"Bearer {token('reader')}"}
    assert server.http.get("/openapi.json", headers=headers).status_code == 200
    refused = server.http.get("/metrics", headers=headers)
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "scope_required"
    assert server.http.get("/metrics", headers={"authorization": f"Bearer {token('boss')}"}).status_code == 200


# --- the description, the numbers ---------------------------------------------------------------------------------


def test_the_document_describes_every_row_with_all_its_arguments(server: Server) -> None:
    document = server.http.get("/openapi.json").json()
    assert document == json.loads(json.dumps(openapi())) and document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {f"/v1/{row.name}" for row in TABLE}
    for row in TABLE:
        described = document["paths"][f"/v1/{row.name}"]["post"]
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        assert {p.name for p in row.params} <= set(schema["properties"]) and schema.get("required", []) == [p.name for p in row.params if p.required]
        assert described["operationId"] == row.name and described["summary"]
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)):
        found: Any = document
        for part in reference.split("/"):
            found = found[part]
        assert found
    assert server.http.post("/openapi.json", json={}).status_code == 405


def samples(server: Server) -> dict[str, float]:
    answer = server.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    families = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(families) == len(set(families)) == sum(line.startswith("# HELP ") for line in lines)
    told = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"pinfold_[a-z_]+(\{[a-z]+=\"[^\"]*\"\})?", name) for name in told)
    return {name.removeprefix("pinfold_"): float(value) for name, value in told.items()}


def test_the_numbers_count_what_was_done(server: Server) -> None:
    before = samples(server)
    call(server, "set", session_id="m", key="k", value="v")
    for key in ("k", "k", "none"):
        call(server, "peek", session_id="m", key=key)
    call(server, "nothing")
    after = samples(server)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert (grown["turns_total"], grown["hits_total"], grown["misses_total"], grown["conflicts_total"]) == (1, 2, 1, 0)
    assert grown['http_requests_total{status="200"}'] >= 4 and grown['http_requests_total{status="404"}'] == 1
    assert after['sessions_loaded{door="http"}'] > before['sessions_loaded{door="http"}'] and after["store_bytes"] > 0 and after["waiting"] == 0
    assert after["commands_under_way"] == 0


def test_commands_and_http_share_a_store_and_are_counted_together(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    before = samples(server)
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_folder())
    store = ("--store", STORE[server.url], "--session", "both")
    assert run("set", "k", "from the command", *store).status == 0
    assert call(server, "peek", session_id="both", key="k")[1]["value"] == "from the command"
    call(server, "set", session_id="both", key="k", value="over http")
    assert run("peek", "k", *store).out == b"over http"
    grown = {name: value - before.get(name, 0) for name, value in samples(server).items()}
    assert grown['commands_total{outcome="done"}'] == 2 and grown["commands_seconds_total"] > 0
    assert (grown["turns_total"], grown["hits_total"]) == (2, 2)


# --- without the extra --------------------------------------------------------------------------------------------


def test_where_graphql_core_is_missing_it_is_named_and_no_model_is_offered_the_tool(tmp_path: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['graphql'] = None\n")
    with serving(tmp_path / "s.db", env={"PYTHONPATH": str(tmp_path)}) as bare:
        stream = bare.http.post("/graphql", json={"query": "subscription { changes { seq } }"}, headers={"accept": "text/event-stream"})
        for answer in (bare.graphql("{ session { id } }"), stream, bare.http.post("/v1/graphql", json={"query": "{ session { id } }"})):
            assert (answer.status_code, answer.json()["error"]["code"]) == (501, "extra_missing")
            assert "pinfold[graphql]" in answer.json()["error"]["hint"]
        listed = [tool["name"] for tool in bare.rpc("tools/list").json()["result"]["tools"]]
        assert "peek" in listed and "graphql" not in listed
        status, err = bare.end()
        assert status == 0 and "Traceback" not in err, err
