"""The HTTP door beside a bare server on the same SDK: the round trip of one read, p50 and p95, in turns.

Both are asked over one kept connection with the same raw requests of the stateless era; GraphQL and the processor time of a
call on the server's side are given too, since they are quieter on a busy machine.
Run: python -m benchmarks.http [calls]
"""

from __future__ import annotations

import atexit
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from benchmarks import harness
from pinfold import Memory

BARE = """
import socket, sys
import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")
stored = {"k": "v" * 200}


@server.tool()
def peek(key: str) -> str:
    "Return what is stored under key."
    return stored.get(key, "")


listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(64)
print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listening])
"""
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Peer:
    """A server process and one connection to it."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        line = self.process.stderr.readline().decode()
        self.port = int(line.rpartition("127.0.0.1:")[2].partition("/")[0])
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def post(self, path: str, document: Any, headers: dict[str, str]) -> Any:
        self._connection.request("POST", path, json.dumps(document), {"content-type": "application/json", **headers})
        answer = self._connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return body

    def call(self, name: str, arguments: dict[str, Any], holds: str = "") -> None:
        """Call a tool; its answer must hold these words."""
        params = {"name": name, "arguments": arguments, "_meta": META}
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": name}
        answer = self.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)
        assert not answer["result"].get("isError") and holds in json.dumps(answer), answer

    def graphql(self, query: str) -> None:
        answer = self.post("/graphql", {"query": query}, {})
        assert "errors" not in answer and "v" * 200 in json.dumps(answer), answer

    def cpu_s(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self._connection.close()
        self.process.terminate()
        self.process.communicate(timeout=30)  # and closes its pipe


def bench_http(calls: int = 500) -> dict[str, Any]:
    """Return medians and 95th percentiles in milliseconds, server-side processor milliseconds a call, and ratios to the bare server.

    Every answer that is timed is looked at. Raises WrongAnswer.
    """
    with tempfile.TemporaryDirectory() as folder:
        store_url = f"sqlite:///{folder}/bench.db"
        own = [sys.executable, "-m", "pinfold", "mcp", "--http", "--port", "0", "--rate", "0", "--store", store_url, "--session", "bench"]
        pinfold, bare = Peer(own), Peer([sys.executable, "-c", BARE])
        atexit.register(pinfold.process.kill)
        atexit.register(bare.process.kill)
        versions = count()
        last = [""]

        def store() -> None:
            last[0] = f"{next(versions)} " + "v" * 200
            pinfold.call("set", {"key": "w", "value": last[0]})

        works: dict[str, tuple[Peer, Callable[[], None]]] = {
            "bare_peek": (bare, lambda: bare.call("peek", {"key": "k"}, "v" * 200)),
            "peek": (pinfold, lambda: pinfold.call("peek", {"key": "k"}, "v" * 200)),
            "set": (pinfold, store),
            "graphql": (pinfold, lambda: pinfold.graphql('{ session { slot(key: "k") { value } } }')),
        }
        took: dict[str, list[float]] = {name: [] for name in works}
        cpu: dict[str, float] = dict.fromkeys(works, 0.0)

        def is_kept() -> None:
            pinfold.call("peek", {"key": "w"}, last[0])
            with Memory(store_url, background=False) as memory:
                assert memory.session("bench").peek("w").value == last[0]  # what the server says of itself may never have been written

        try:
            with harness.must_hold("HTTP", "pinfold or the bare server"):
                pinfold.call("set", {"key": "k", "value": "v" * 200})
                for _, work in works.values():
                    work()
                is_kept()
                for _ in range(10):
                    for name, (peer, work) in works.items():
                        before = peer.cpu_s()
                        for _ in range(max(1, calls // 10)):
                            began = time.perf_counter()
                            work()
                            took[name].append((time.perf_counter() - began) * 1000)
                        cpu[name] += peer.cpu_s() - before
                is_kept()
        finally:
            for peer in (pinfold, bare):
                peer.end()
    result: dict[str, Any] = {"calls": calls, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    for name, times in took.items():
        cut = statistics.quantiles(times, n=20)
        result[name] = {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(cut[-1], 2), "server_cpu_ms": round(cpu[name] * 1000 / len(times), 2)}
    result["peek_to_bare_p50"] = round(result["peek"]["p50_ms"] / result["bare_peek"]["p50_ms"], 2)
    result["peek_to_bare_cpu"] = round(result["peek"]["server_cpu_ms"] / max(0.01, result["bare_peek"]["server_cpu_ms"]), 2)
    return result


if __name__ == "__main__":
    print(json.dumps(bench_http(int(sys.argv[1]) if len(sys.argv) > 1 else 500), indent=2))
