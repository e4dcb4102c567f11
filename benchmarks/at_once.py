"""A thousand calls, 64 under way: p50 and p95 over stdio and over HTTP, beside bare servers on the same SDK, in turns.

Every answer is checked to be that of its request. The wait for one's turn is in these figures: with 64 under way a call takes 64
times what the server needs for one. The server's own processor time a call is given too; it says more on a busy machine.
Run: python -m benchmarks.at_once [rounds]
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks import http as over_http
from benchmarks import mcp as over_stdio

CALLS = 1000
AT_ONCE = 64
Call = tuple[str, dict[str, Any], Callable[[str], bool]]
"""(tool, arguments, whether a text is its answer)."""


def reads(count: int) -> list[Call]:
    """Return calls that both a bare server and pinfold answer: one read each."""
    return [("peek", {"key": "k"}, lambda text: "v" * 200 in text)] * count


def mixed(count: int, first: int) -> list[Call]:
    """Return calls of every sort; number `first` on, so that no round writes what another did."""
    calls: list[Call] = []
    for number in range(first, first + count):
        key = f"k{number}"
        calls.append(
            (
                ("set", {"key": key, "value": key}, lambda text: '"stored"' in text),
                ("peek", {"key": "k"}, lambda text: "v" * 200 in text),
                ("peek", {"key": f"none-{number}"}, lambda text: text == '{"hit":false}'),
                ("peek", {"key": f"mine-{number}", "claim": True}, lambda text, key=f'"mine-{number}"': key in text),
                ("mutate", {"text": f"+ TSK [NEW:x] ; goal=g{number}"}, lambda text, goal=f"goal=g{number}": goal in text),
                ("resolve", {"promise_id": f"p{number}"}, lambda text, id=f'"p{number}"': id in text),
                ("graphql", {"query": f'{{session{{promise(id:"q{number}"){{id}}}}}}'}, lambda text, id=f'"q{number}"': id in text),
            )[number % 7]
        )
    return calls


def _body(number: int, call: Call, meta: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": call[0], "arguments": call[1], **meta}}


def _check(number: int, call: Call, answer: dict[str, Any]) -> None:
    result = answer["result"]
    assert answer["id"] == number and not result.get("isError") and call[2](result["content"][0]["text"]), (call[:2], answer)


def pour(peer: over_stdio.Peer, calls: list[Call]) -> list[float]:
    """Return the milliseconds of each call over stdio."""
    assert peer.process.stdin is not None and peer.process.stdout is not None
    lines = [json.dumps(_body(number, call, {})).encode() + b"\n" for number, call in enumerate(calls)]
    took, sent = [0.0] * len(calls), [0.0] * len(calls)
    under_way = iter(range(len(calls)))

    def send() -> None:
        number = next(under_way, None)
        if number is not None:
            sent[number] = time.perf_counter()
            peer.process.stdin.write(lines[number])  # type: ignore[union-attr]

    for _ in range(AT_ONCE):
        send()
    for _ in calls:
        line = peer.process.stdout.readline()
        now = time.perf_counter()
        send()
        answer = json.loads(line)
        took[answer["id"]] = (now - sent[answer["id"]]) * 1000
        _check(answer["id"], calls[answer["id"]], answer)
    return took


async def flood(port: int, calls: list[Call]) -> list[float]:
    """Return the milliseconds of each call over HTTP: AT_ONCE kept connections, each with one call under way."""
    took = [0.0] * len(calls)
    numbers = iter(range(len(calls)))
    raw = []
    for number, call in enumerate(calls):
        body = json.dumps(_body(number, call, {"_meta": over_http.META})).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            f"mcp-protocol-version: {over_http.VERSION}\r\nmcp-method: tools/call\r\nmcp-name: {call[0]}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        raw.append(head.encode() + body)

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            began = time.perf_counter()
            writer.write(raw[number])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            size = next(int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            body = await reader.readexactly(size)
            took[number] = (time.perf_counter() - began) * 1000
            _check(number, calls[number], json.loads(body))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return took


def cpu_s(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time of a process so far. Linux."""
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench_at_once(rounds: int = 5, count: int = CALLS) -> dict[str, Any]:
    """Return p50 and p95 in milliseconds, calls a second and the server's processor milliseconds a call, by side."""
    with tempfile.TemporaryDirectory(prefix="pinfold-at-once-") as folder:
        own = [sys.executable, "-m", "pinfold", "mcp", "--session", "bench"]
        pipes = {
            "pinfold": over_stdio.Peer([*own, "--store", f"sqlite:///{folder}/stdio.db"]),
            "bare": over_stdio.Peer([sys.executable, "-c", over_stdio.BARE]),
            "bare_lowlevel": over_stdio.Peer([sys.executable, "-c", over_stdio.BARE_LOW]),
        }
        for pipe in pipes.values():
            pipe.begin()
        pipes["pinfold"].call("set", {"key": "k", "value": "v" * 200})
        webs = {
            "pinfold": over_http.Peer([*own, "--http", "--port", "0", "--rate", "0", "--store", f"sqlite:///{folder}/http.db"]),
            "bare": over_http.Peer([sys.executable, "-c", over_http.BARE]),
        }
        webs["pinfold"].call("set", {"key": "k", "value": "v" * 200})
        sides: dict[str, tuple[subprocess.Popen[bytes], Callable[[list[Call]], list[float]]]] = {}
        for name, pipe in pipes.items():
            sides[f"stdio {name}"] = (pipe.process, lambda calls, pipe=pipe: pour(pipe, calls))
        for name, web in webs.items():
            sides[f"http {name}"] = (web.process, lambda calls, port=web.port: asyncio.run(flood(port, calls)))
        took: dict[str, list[float]] = {}
        medians: dict[str, list[float]] = {}
        spent: dict[str, list[float]] = {}
        cpu: dict[str, float] = {}
        for number in range(-1, rounds):  # the first is a warm-up: GraphQL is loaded, connections are made
            for side, (process, run) in sides.items():
                for sort in ("peek", "mixed") if side.endswith("pinfold") else ("peek",):
                    calls = reads(count) if sort == "peek" else mixed(count, (number + 1) * count)
                    before, began = cpu_s(process), time.perf_counter()
                    times = run(calls)
                    if number < 0:
                        continue
                    name = f"{side} {sort}"
                    spent.setdefault(name, []).append(time.perf_counter() - began)
                    cpu[name] = cpu.get(name, 0.0) + cpu_s(process) - before
                    took.setdefault(name, []).extend(times)
                    medians.setdefault(name, []).append(statistics.median(times))
        for pipe in pipes.values():
            pipe.end()
        for web in webs.values():
            web.end()
    result: dict[str, Any] = {"calls": count, "at_once": AT_ONCE, "rounds": rounds, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    for name, times in took.items():
        result[name] = {
            "p50_ms": round(statistics.median(times), 1),
            "p95_ms": round(statistics.quantiles(times, n=20)[-1], 1),
            "calls_a_s": round(count / statistics.median(spent[name])),
            "server_cpu_ms": round(cpu[name] * 1000 / len(times), 3),
        }
    for transport in ("stdio", "http"):
        bare = f"{transport} bare peek"
        for sort in ("peek", "mixed"):
            name = f"{transport} pinfold {sort}"
            pairs = zip(medians[name], medians[bare], strict=True)
            result[name]["p50_to_bare"] = round(statistics.median(ours / theirs for ours, theirs in pairs), 2)
            result[name]["cpu_to_bare"] = round(result[name]["server_cpu_ms"] / max(0.001, result[bare]["server_cpu_ms"]), 2)
    return result


if __name__ == "__main__":
    print(json.dumps(bench_at_once(int(sys.argv[1]) if len(sys.argv) > 1 else 5), indent=1))
