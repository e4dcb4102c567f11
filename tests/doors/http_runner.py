"""Starts the HTTP door as a process of its own, and talks to it in plain HTTP or by the SDK's client."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx

WAIT_S = 30.0
MODERN = "2026-07-28"


META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def message(method: str, params: dict[str, Any] | None, id: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return (body, headers) of one request of the stateless era."""
    params = params or {}
    name = params.get("name", params.get("uri"))
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN, "mcp-method": method}
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}
    return body, headers if name is None else {**headers, "mcp-name": name}


class Server:
    """A server process. `ask` is one JSON-RPC call of the stateless era."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=WAIT_S)

    def rpc(self, method: str, params: dict[str, Any] | None = None, *, token: str | None = None, headers: dict[str, str] | None = None, id: Any = 1) -> Any:
        body, given = message(method, params, id)
        return self.http.post("/mcp", json=body, headers={**given, **({"authorization": f"Bearer {token}"} if token else {}), **(headers or {})})

    def ask(self, tool: str, /, token: str | None = None, **arguments: Any) -> Any:
        answer = self.rpc("tools/call", {"name": tool, "arguments": arguments}, token=token)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.json()["result"]["content"][0]["text"])

    def graphql(self, query: str, token: str | None = None, **variables: Any) -> Any:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return self.http.post("/graphql", json={"query": query, "variables": variables}, headers=headers)

    def end(self) -> tuple[int, str]:
        """Send SIGTERM; return (exit status, stderr)."""
        self.http.close()
        self.process.terminate()
        _, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, err.decode()


class Plain:
    """The calls of the SDK's client, in plain requests of the stateless era: a tenth of its cost."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._id = 0

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._id += 1
        id = self._id
        body, headers = message(method, params, id)
        answer = (await self._http.post("/mcp", json=body, headers=headers)).json()
        assert answer["id"] == id, answer
        return answer["result"]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        result = await self._ask("tools/call", {"name": name, "arguments": arguments})
        return SimpleNamespace(is_error=result["isError"], content=[SimpleNamespace(**part) for part in result["content"]])

    async def read_resource(self, uri: str) -> Any:
        return SimpleNamespace(contents=[SimpleNamespace(**part) for part in (await self._ask("resources/read", {"uri": uri}))["contents"]])


@asynccontextmanager
async def plain_client(url: str) -> Any:
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_S) as http:
        yield Plain(http)


@contextmanager
def serving(store: Path, *options: str, env: dict[str, str] | None = None, verb: str = "mcp") -> Iterator[Server]:
    command = [sys.executable, "-m", "pinfold", verb, "--http", "--port", "0", "--store", f"sqlite:///{store}", *options]
    surroundings = {**os.environ, "PINFOLD_SESSION": "shared", **(env or {})}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=surroundings)
    server = None
    try:
        server = Server(process, _address(process))
        yield server
    finally:
        if server is not None:
            server.http.close()
        if process.poll() is None:
            process.kill()
        process.communicate()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    told, until = b"", time.monotonic() + WAIT_S
    while b"\n" not in told:
        ready, _, _ = select.select([process.stderr], [], [], max(0.0, until - time.monotonic()))
        part = os.read(process.stderr.fileno(), 65536) if ready else b""
        assert part, f"the server did not start: {told.decode()}"
        told += part
    found = re.search(rb"(http://127\.0\.0\.1:\d+)", told)
    assert found is not None
    return found[1].decode()


@asynccontextmanager
async def client(url: str, era: str, token: str | None = None) -> Any:
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(WAIT_S)) as http:
        async with Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=era) as found:
            yield found
