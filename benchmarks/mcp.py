"""The MCP door beside a bare server on the same SDK: start to `tools/list`, and the round trip of one read.

Both are driven over stdio by the same few lines of raw JSON-RPC, in turns, so that a busy machine slows both;
the processor time of a whole short life (start, `tools/list`, end) is given too, since it is quieter there.
Run: python -m benchmarks.mcp [repeats]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from benchmarks.peers import PeerMissing

BARE = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")
stored = {"k": "v" * 200}


@server.tool()
def peek(key: str) -> str:
    "Return what is stored under key."
    return stored.get(key, "")


server.run()
"""
BARE_LOW = """
import asyncio

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

stored = {"k": "v" * 200}


async def list_tools(ctx, params):
    return ListToolsResult(tools=[Tool(name="peek", input_schema={"type": "object"})])


async def call_tool(ctx, params):
    return CallToolResult(content=[TextContent(text=stored.get(params.arguments["key"], ""))])


async def main():
    server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
"""


class Peer:
    """A server in a process of its own, spoken to line by line. One of another environment sees no package of this one."""

    def __init__(self, command: list[str], **options: Any) -> None:
        if command[0] != sys.executable:
            options["env"] = {name: value for name, value in options.get("env", os.environ).items() if name != "PYTHONPATH"}
        self._name = command[0]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, **options)
        self._id = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise PeerMissing(f"{self._name} ended at {method}")
        answer: dict[str, Any] = json.loads(line)
        assert answer["id"] == self._id and "result" in answer, answer
        return answer["result"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def begin(self) -> dict[str, Any]:
        """Shake hands and return what `tools/list` answers."""
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self.ask("tools/list", {})

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        assert not self.ask("tools/call", {"name": name, "arguments": arguments}).get("isError")

    def end(self) -> tuple[float, float]:
        """Close stdin; return (seconds until the process is gone, seconds of processor time it took in all).

        One that does not go within 20 s is killed.
        """
        began = time.perf_counter()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        killer = threading.Timer(20, os.kill, (self.process.pid, signal.SIGKILL))
        killer.start()
        _, status, usage = os.wait4(self.process.pid, 0)
        killer.cancel()
        ended = time.perf_counter() - began
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.process.stdout.close()
        return ended, usage.ru_utime + usage.ru_stime


def bench_mcp(repeats: int = 7) -> dict[str, Any]:
    """Return medians and their ratios to the bare server: seconds of starts, milliseconds of round trips."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/bench.db"
        commands = {
            "pinfold": [sys.executable, "-m", "pinfold", "mcp", "--store", store, "--session", "bench"],
            "bare": [sys.executable, "-c", BARE],
            "bare_lowlevel": [sys.executable, "-c", BARE_LOW],
        }
        starts: dict[str, list[float]] = {name: [] for name in commands}
        trips: dict[str, list[float]] = {name: [] for name in commands}
        costs: dict[str, list[float]] = {name: [] for name in commands}
        ends: list[float] = []
        for _ in range(repeats):
            for name, command in commands.items():
                began = time.perf_counter()
                peer = Peer(command)
                peer.begin()
                starts[name].append(time.perf_counter() - began)
                ended, cpu_s = peer.end()
                costs[name].append(cpu_s)
                if name == "pinfold":
                    ends.append(ended)
        peers = {name: Peer(command) for name, command in commands.items()}
        for peer in peers.values():
            peer.begin()
        peers["pinfold"].call("set", {"key": "k", "value": "v" * 200})
        for _ in range(repeats):
            for name, peer in peers.items():
                for _ in range(100):
                    began = time.perf_counter()
                    peer.call("peek", {"key": "k"})
                    trips[name].append((time.perf_counter() - began) * 1000)
        for peer in peers.values():
            peer.end()
    result: dict[str, Any] = {"repeats": repeats, "cores": os.cpu_count(), "end_s": round(statistics.median(ends), 3)}
    for name in commands:
        result[f"start_{name}_s"] = round(statistics.median(starts[name]), 3)
        result[f"start_{name}_cpu_s"] = round(statistics.median(costs[name]), 3)
        result[f"peek_{name}_ms"] = round(statistics.median(trips[name]), 3)
        result[f"peek_{name}_p95_ms"] = round(statistics.quantiles(trips[name], n=20)[-1], 3)
    for bare in ("bare", "bare_lowlevel"):
        result[f"start_ratio_to_{bare}"] = round(statistics.median(a / b for a, b in zip(starts["pinfold"], starts[bare], strict=True)), 3)
        result[f"start_cpu_ratio_to_{bare}"] = round(result["start_pinfold_cpu_s"] / result[f"start_{bare}_cpu_s"], 3)
        result[f"peek_ratio_to_{bare}"] = round(result["peek_pinfold_ms"] / result[f"peek_{bare}_ms"], 3)
    return result


if __name__ == "__main__":
    print(json.dumps(bench_mcp(int(sys.argv[1]) if len(sys.argv) > 1 else 7), indent=2))
