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
from typing import Any

import httpx2 as httpx

WAIT_S = 30.0
MODERN = "2026-07-28"


class Server:
    """A server process. `ask` is one JSON-RPC call of the stateless era."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=WAIT_S)

    def rpc(self, method: str, params: dict[str, Any] | None = None, *, token: str | None = None, headers: dict[str, str] | None = None, id: Any = 1) -> Any:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}
        named = {"mcp-name": params["name"]} if params and "name" in params else {"mcp-name": params["uri"]} if params and "uri" in params else {}
        given = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            **named,
            **({"authorization": f"Bearer {token}"} if token else {}),
            **(headers or {}),
        }
        return self.http.post("/mcp", json=body, headers=given)

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


@contextmanager
def serving(store: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[Server]:
    command = [sys.executable, "-m", "pinfold", "mcp", "--http", "--port", "0", "--store", f"sqlite:///{store}", *options]
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
    while b"/mcp" not in told:
        ready, _, _ = select.select([process.stderr], [], [], max(0.0, until - time.monotonic()))
        part = os.read(process.stderr.fileno(), 65536) if ready else b""
        assert part, f"the server did not start: {told.decode()}"
        told += part
    found = re.search(rb"(http://\S+)/mcp", told)
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
