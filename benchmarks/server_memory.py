"""python -m benchmarks.server_memory [--calls N] [--transport stdio|http|http-handshake]: RAM of a server process over many mixed calls.

It is to be flat after a warm-up. Keys and rows are written over and over, so that what is kept stays the same size; claims, waits,
refusals, GraphQL, resources, prompts and protocol sessions that come and go are among the calls. RSS is read at ten points.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import http as over_http
from benchmarks import mcp as over_stdio

TRANSPORTS = ("stdio", "http", "http-handshake")
KEYS = 200
ROWS = 200
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def rss_kb(pid: int) -> int:
    """Return the resident memory of a process. Linux."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def requests(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (method, params): calls of every sort that leave as much behind as they found."""

    def tool(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        return "tools/call", {"name": name, "arguments": arguments}

    for number in range(count):
        key, row = f"k{number % KEYS}", f"R{number % ROWS}"
        yield (
            lambda key=key, n=number: tool("set", key=key, value=f"value {n}" * 8),
            lambda key=key: tool("peek", key=key),
            lambda n=number: tool("peek", key=f"none-{n}"),
            lambda key=key: tool("resolve", promise_id=key),
            lambda row=row, n=number: tool("mutate", text=f"~ [{row}] ; goal=g{n}"),
            lambda row=row: tool("pin_map", anchor=[row]),
            lambda n=number: tool("peek", key=f"claimed-{n % KEYS}", claim=True, lease_s=1),
            lambda n=number: tool("resolve", promise_id=f"nobody-{n}", wait_s=0.001),
            lambda: tool("graphql", query='{session{nodes(kind:"TSK", first:5){totalCount edges{node{line stale}}} slots(first:3){totalCount}}}'),
            lambda n=number: tool("mutate", text=f"+ TSK [NEW] ; refused {n}"),
            lambda row=row: tool("search_memory_graph", query=f"goal of {row}", top_k=2),
            lambda n=number: ("resources/read", {"uri": f"pinfold://bench/{('status', 'log', 'stale')[n % 3]}"}),
            lambda n=number: ("prompts/get", {"name": "remember-this", "arguments": {"text": f"text {n}"}}),
            lambda n=number: tool("no_such_tool", n=n),
        )[number % 14]()


class Stdio:
    def __init__(self, command: list[str]) -> None:
        self._peer = over_stdio.Peer(command)
        self._peer.begin()
        self.pid = self._peer.process.pid
        self._id = 10

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self._id += 1
        self._peer._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self._peer.process.stdout is not None
        assert json.loads(self._peer.process.stdout.readline())["id"] == self._id

    def turn(self) -> None:
        """Begin anew where the transport can: it cannot."""

    def end(self) -> None:
        self._peer.end()


class Http:
    """The stateless era over one connection, or, with handshake, protocol sessions that come and go."""

    def __init__(self, command: list[str], handshake: bool) -> None:
        self._peer = over_http.Peer([*command, "--http", "--port", "0", "--rate", "0"])
        self.pid = self._peer.process.pid
        self._handshake = handshake
        self._headers: dict[str, str] = {}
        self._id = 0
        self.turn()

    def _post(self, body: dict[str, Any], headers: dict[str, str]) -> http.client.HTTPResponse:
        plain = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._peer._connection.request("POST", "/mcp", json.dumps(body), {**plain, **headers})
        return self._peer._connection.getresponse()

    def turn(self) -> None:
        """End the protocol session and begin another."""
        if not self._handshake:
            return
        if self._headers:
            self._peer._connection.request("DELETE", "/mcp", headers=self._headers)
            self._peer._connection.getresponse().read()
        answer = self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}, {})
        answer.read()
        self._headers = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": HELLO["protocolVersion"]}  # type: ignore[dict-item]

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self._id += 1
        headers = self._headers
        if not self._handshake:
            named = params.get("name", params.get("uri"))
            headers = {"mcp-protocol-version": over_http.VERSION, "mcp-method": method, "mcp-name": named}
            params = {**params, "_meta": over_http.META}
        answer = self._post({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}, headers)
        body = answer.read()
        told = body if body.startswith(b"{") else body.partition(b"data: ")[2].partition(b"\n")[0]
        assert json.loads(told)["id"] == self._id, body

    def end(self) -> None:
        self._peer.end()


def measure(transport: str, calls: int, turn_every: int = 100) -> dict[str, Any]:
    """Return RSS in KB before the calls, after a warm-up, and at ten points."""
    with tempfile.TemporaryDirectory(prefix="pinfold-server-memory-") as folder:
        command = [sys.executable, "-m", "pinfold", "mcp", "--session", "bench", "--store", f"sqlite:///{folder}/store.db"]
        makers: dict[str, Callable[[], Stdio | Http]] = {
            "stdio": lambda: Stdio(command),
            "http": lambda: Http(command, False),
            "http-handshake": lambda: Http(command, True),
        }
        server = makers[transport]()
        figures: dict[str, Any] = {"transport": transport, "calls": calls, "rss_kb_at_start": rss_kb(server.pid), "rss_kb": []}
        try:
            rows = "\n".join([*(f"+ TSK [R{n}] ; goal=g" for n in range(ROWS)), *(f"+ [R{n}] --(next)--> [R{n - 1}]" for n in range(1, ROWS))])
            server.ask("tools/call", {"name": "mutate", "arguments": {"text": rows}})
            for number, (method, params) in enumerate(requests(calls), 1):
                server.ask(method, params)
                if number % turn_every == 0:
                    server.turn()
                if number == calls // 20:
                    figures["rss_kb_warm"] = rss_kb(server.pid)
                if number % (calls // 10) == 0:
                    figures["rss_kb"].append(rss_kb(server.pid))
        finally:
            server.end()
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as JSON, a line for each transport."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server_memory", description="RAM of a server process over many mixed calls.")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--transport", choices=TRANSPORTS, action="append", help="may be repeated (default: all)")
    options = parser.parse_args(arguments)
    for transport in options.transport or TRANSPORTS:
        print(json.dumps(measure(transport, max(20, options.calls))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
