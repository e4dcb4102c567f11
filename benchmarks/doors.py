"""The doors: MCP beside a bare server and beside peers, tokens of tool lists and of answers, HTTP, the server's socket, other journals.

What measures stands in mcp.py, http.py, listing.py and fleet.py, which run alone too; here it becomes rows of the report.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import benchmarks.harness as harness
from benchmarks.harness import Row, Side, WrongAnswer
from benchmarks.mcp import BARE, BARE_LOW
from benchmarks.mcp import Peer as McpPeer
from benchmarks.peers import LANGGRAPH, PMLL, Peer, PeerMissing, install
from benchmarks.silo import VALUE, Bench
from pinfold import Memory


def mcp(bench: Bench) -> None:
    """MCP over stdio: start to `tools/list` and the round trip of one read, beside bare servers and PMLL; 64 calls in flight."""
    store = bench.url().partition("?")[0]
    commands = {
        "bare server": [sys.executable, "-c", BARE],
        "bare low-level server": [sys.executable, "-c", BARE_LOW],
        "pinfold": [sys.executable, "-m", "pinfold", "mcp", "--store", store, "--session", "bench"],
    }
    if bench.peers:
        try:
            commands[" ".join(PMLL)] = [str(install(*PMLL).with_name("pmll-memory-mcp"))]
        except PeerMissing as missing:
            bench.table.note("mcp", f"left out: {missing}")
    environment = {**os.environ, "HOME": str(bench.folder), "XDG_DATA_HOME": str(bench.folder), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    tools: dict[str, int] = {}

    def start(name: str) -> Side:
        def run() -> float:
            began = time.perf_counter()
            peer = McpPeer(commands[name], env=environment)
            tools[name] = len(peer.begin()["tools"])
            took_s = time.perf_counter() - began
            peer.end()
            return took_s * 1000

        return Side(name, run, lambda: tools[name] > 0)

    bench.table.compare("MCP start to tools/list", "ms", [start(name) for name in commands], repeats=1 if bench.small or bench.quick else bench.table.repeats)
    calls = bench.calls(300)
    peers = {name: McpPeer(command, env=environment) for name, command in commands.items()}
    for peer in peers.values():
        peer.begin()
    peers["pinfold"].call("set", {"key": "k", "value": VALUE})
    if (pmll := peers.get(" ".join(PMLL))) is not None:
        pmll.call("set", {"session_id": "bench", "key": "k", "value": VALUE})

    def arguments(name: str) -> dict[str, Any]:
        return {"key": "k", "session_id": "bench"} if name == " ".join(PMLL) else {"key": "k"}

    def trip(name: str) -> Side:
        def right() -> bool:
            answer = json.dumps(peers[name].ask("tools/call", {"name": "peek", "arguments": arguments(name)}))
            return "v" * 64 in answer

        return Side(name, lambda: harness.median_ms(lambda _: peers[name].call("peek", arguments(name)), range(calls)), right)

    bench.table.compare("MCP peek round trip", "ms", [trip(name) for name in commands], repeats=1 if bench.small else bench.table.repeats)

    def flight(name: str) -> Side:
        right = [False]

        def run() -> float:
            took_s, right[0] = in_flight(peers[name], arguments(name), calls, 64)
            return calls / took_s

        return Side(name, run, lambda: right[0])

    bench.table.compare("MCP calls, 64 in flight", "/s", [flight(name) for name in commands], repeats=1 if bench.small else min(5, bench.table.repeats))
    for peer in peers.values():
        peer.end()


def in_flight(peer: McpPeer, arguments: dict[str, Any], calls: int, most: int) -> tuple[float, bool]:
    """Return the seconds of so many reads with `most` of them unanswered at a time, and whether each id was answered once, rightly."""
    assert peer.process.stdout is not None
    answered: set[int] = set()
    first, sent, right = peer._id + 1, 0, True
    began = time.perf_counter()
    while len(answered) < calls:
        while sent < calls and sent - len(answered) < most:
            peer._id += 1
            sent += 1
            peer._send({"jsonrpc": "2.0", "id": peer._id, "method": "tools/call", "params": {"name": "peek", "arguments": arguments}})
        line = peer.process.stdout.readline()
        if not line:
            return time.perf_counter() - began, False
        told = json.loads(line)
        right &= told.get("id", 0) >= first and told["id"] not in answered and "v" * 64 in line.decode()
        answered.add(told["id"])
    return time.perf_counter() - began, right


def listing(bench: Bench) -> None:
    """Tokens of `tools/list`: every toolset here, and the peers' lists."""
    from benchmarks.listing import bench_listing

    for found in bench_listing(bench.peers):
        if "left_out" in found:
            bench.table.note("tokens of tools/list", f"left out: {found['left_out']}")
        else:
            bench.table.rows.append(Row("tokens of tools/list", found["server"], "tokens o200k", [found["tokens"]], note=f"{found['tools']} tools"))


SCRIPT: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("init", {"session_id": "s"}, "init"),
    ("peek", {"session_id": "s", "key": "https://example.org/report"}, ""),
    ("set", {"session_id": "s", "key": "https://example.org/report", "value": "The release is on Friday; Ann signs it off."}, "stored"),
    ("peek", {"session_id": "s", "key": "https://example.org/report"}, "Ann signs it off"),
    ("upsert_memory_node", {"session_id": "s", "type": "concept", "label": "auth flow", "content": "login via OAuth with refresh tokens"}, "auth flow"),
    ("upsert_memory_node", {"session_id": "s", "type": "file", "label": "src/login.py", "content": "implements the login handler"}, "src/login.py"),
    ("upsert_memory_node", {"session_id": "s", "type": "note", "label": "deploy", "content": "deploys moved to Fridays"}, "deploy"),
    ("search_memory_graph", {"session_id": "s", "query": "refresh tokens"}, "auth flow"),
    ("resolve_memory_context", {"session_id": "s", "key": "refresh tokens"}, "OAuth"),
    ("promote_memory_to_long_term", {"session_id": "s", "key": "owner", "value": "Ann owns the release"}, "promoted"),
    ("memory_status", {"session_id": "s"}, "short_term"),
)
"""One agent's task over the tools that both servers have: (tool, arguments, what a right answer holds)."""


def answers(bench: Bench) -> None:
    """Tokens of a whole scripted task over MCP: the list once, the calls, and what comes back. The same calls to PMLL."""
    from pinfold.recall.tokens import o200k_counter

    count = o200k_counter()
    commands = {"pinfold --tools pmll": [sys.executable, "-m", "pinfold", "mcp", "--tools", "pmll", "--store", "memory://", "--session", "s"]}
    if bench.peers:
        try:
            commands[" ".join(PMLL)] = [str(install(*PMLL).with_name("pmll-memory-mcp"))]
        except PeerMissing as missing:
            bench.table.note("tokens of answers", f"left out: {missing}")
    environment = {**os.environ, "HOME": str(bench.folder), "XDG_DATA_HOME": str(bench.folder), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    spent: dict[str, float] = {}
    for name, command in commands.items():
        peer = McpPeer(command, env=environment)
        peer.begin()
        total = 0.0
        for tool, arguments, holds in SCRIPT:
            result = peer.ask("tools/call", {"name": tool, "arguments": arguments})
            told = "".join(part.get("text", "") for part in result["content"])
            if result.get("isError") or holds not in told:
                raise WrongAnswer(f"tokens of answers: {name} answers {tool} with {told[:200]}")
            used = count(told)
            if "structuredContent" in result:
                used += count(json.dumps(result["structuredContent"], ensure_ascii=False))
            total += used
            bench.table.rows.append(Row(f"tokens of an answer, {tool}", name, "tokens o200k", [used]))
        spent[name] = total
        peer.end()
    first = next(iter(spent.values()))
    for name, total in spent.items():
        bench.table.rows.append(Row("tokens of a scripted task's answers", name, "tokens o200k", [total], None if total is first else total / first))


def http(bench: Bench) -> None:
    """HTTP beside a bare server on the same SDK: one read, p50; GraphQL and a write for scale."""
    from benchmarks.http import bench_http

    told = bench_http(bench.calls(500))
    for what in ("bare_peek", "peek", "set", "graphql"):
        side = "bare server" if what == "bare_peek" else "pinfold"
        name = "HTTP peek" if what.endswith("peek") else f"HTTP {what}"
        ratio = told["peek_to_bare_p50"] if what == "peek" else None
        bench.table.rows.append(
            Row(name, side, "ms", [told[what]["p50_ms"]], ratio, note=f"p95 {told[what]['p95_ms']} ms, {told[what]['server_cpu_ms']} ms of CPU")
        )


def socket(bench: Bench) -> None:
    """`pinfold peek` and `set` as whole processes: through the server of their store, and without one."""
    from benchmarks.serve import measure

    for name, found in measure(3 if bench.small else 21).items():
        wall, cpu = zip(*found, strict=True)
        bench.table.rows.append(Row("whole commands and pinfold serve", name, "ms", list(wall), note=f"{statistics.median(cpu):.1f} ms of its own CPU"))


def fleet(bench: Bench) -> None:
    """An append beside the raw server doing the same, and wake-ups: Valkey and PostgreSQL from wheels."""
    try:
        from benchmarks import fleet as servers
        from pinfold.journal.open import migrate_store

        with servers.folder_for_servers() as place:
            primary, alone = servers.Valkey(place / "v"), servers.Valkey(place / "v")
            replica = servers.Valkey(place / "v", "--replicaof", f"127.0.0.1 {primary.port}")
            postgres = servers.Postgres(place / "pg").create()
            try:
                for each in (alone, primary, replica, postgres):
                    each.start()
                servers.until(lambda: replica.info("replication")["master_link_status"] == "up", "the replica to follow")
                migrate_store(postgres.url)
                for told in servers.costs(alone, primary, postgres, bench.calls(500)):
                    bench.table.rows.append(Row(told["what"], "raw", "ms", [told["raw50"]], note=f"p99 {told['raw99']} ms"))
                    bench.table.rows.append(Row(told["what"], "pinfold", "ms", [told["ours50"]], told["ratio50"], note=f"p99 {told['ours99']} ms"))
                for url in (f"redis://127.0.0.1:{primary.port}", postgres.url):
                    woken = servers.wake_ups(url, bench.calls(100))
                    bench.table.rows.append(
                        Row(woken["what"], "pinfold", "ms", [woken["p50_ms"]], note=f"p99 {woken['p99_ms']} ms, from the call to the waiter")
                    )
            finally:
                for each in (alone, replica, primary):
                    each.kill()
                postgres.stop()
    except ImportError as error:
        bench.table.note("other journals", f"left out: {error}")


def langgraph(bench: Bench) -> None:
    """LangGraph's stores beside the silo: put and get of one value, in RAM and on SQLite."""
    if not bench.peers:
        return
    folder = bench.folder / "langgraph"
    folder.mkdir()
    try:
        peer = Peer(LANGGRAPH, "peer_langgraph.py", str(folder))
    except PeerMissing as missing:
        bench.table.note("LangGraph", f"left out: {missing}")
        return
    calls = bench.calls(2_000)
    with peer, Memory("memory://") as ram, Memory(bench.url()) as disk:
        for where, memory, store in (("in RAM", ram, "InMemoryStore"), ("on SQLite", disk, "SqliteStore")):
            session = memory.session("bench")
            session.set("k0", VALUE)
            written = [0]

            def put(number: int, session: Any = session, written: list[int] = written) -> None:
                session.set(f"k{number}", VALUE)
                written[0] = number

            name = f"{store} ({LANGGRAPH[0]} {LANGGRAPH[1]})"
            puts = [
                Side("pinfold", lambda put=put: harness.us_per_item(put, range(calls)), lambda s=session: s.peek(f"k{calls - 1}").value == VALUE),  # type: ignore[misc]
                Side(
                    name,
                    lambda store=store: float(peer.ask("put", store=store, calls=calls)),
                    lambda store=store: bool(peer.ask("has", store=store, key=f"k{calls - 1}")),
                ),  # type: ignore[misc]
            ]
            bench.table.compare(f"put {where}", "us", puts, repeats=min(5, bench.table.repeats))
            gets = [
                Side("pinfold", lambda s=session: harness.us_per_call(lambda: s.peek("k0"), calls), lambda s=session: s.peek("k0").value == VALUE),  # type: ignore[misc]
                Side(
                    name, lambda store=store: float(peer.ask("get", store=store, calls=calls)), lambda store=store: bool(peer.ask("has", store=store, key="k0"))
                ),  # type: ignore[misc]
            ]
            bench.table.compare(f"get {where}", "us", gets, repeats=min(5, bench.table.repeats))


def stale(bench: Bench) -> None:
    """10,000 slots made from one input: how long until all are known to be stale once it changed."""
    count = bench.calls(10_000)
    versions = iter(range(1 << 30))
    with Memory("memory://", background=False) as memory:
        session = memory.session("bench")
        session.set("source", "0")
        for number in range(count):
            session.set(f"made:{number}", VALUE, inputs=["slot:source"])
        known = [0]

        def run() -> float:
            session.set("source", f"changed {next(versions)}")
            began = time.perf_counter()
            known[0] = len(session.stale())
            return (time.perf_counter() - began) * 1000

        bench.table.compare(f"{count:,} dependents known stale", "ms", [Side("pinfold", run, lambda: known[0] == count)])


def inputs(bench: Bench) -> None:
    """What inputs cost those who declare none, and those who do: CPU time per call, each side a process of its own."""
    from benchmarks.inputs import CALLS, ROOT, bench_inputs

    for row in bench_inputs(list(CALLS), None, ROOT / "src", 3 if bench.small else 9, bench.small or bench.quick):
        bench.table.rows.append(Row(f"inputs, {row.bench}", row.side, row.unit, row.runs, row.ratio))


def growth(bench: Bench) -> None:
    """Cost by size with fitted exponents: 0 is O(1). Peek, set, claim, one-line write, pin map, opening, RAM."""
    from benchmarks.graph import anchors, documents, write

    sizes = tuple(bench.calls(size) for size in ((1_000, 4_000, 16_000) if bench.quick else (1_000, 4_000, 16_000, 64_000)))
    points: dict[str, list[tuple[int, float]]] = {}
    calls = bench.calls(1_000)
    for size in sizes:
        bench.table.tell(f"growth at {size:,}")
        with Memory("memory://", background=False) as memory:
            session = memory.session("bench")
            for number in range(size):
                session.set(f"k{number}", VALUE)
            parts = documents(size)
            for part in parts:
                write(session, part)
            counts = session.graph_counts()
            if (counts["nodes"], counts["edges"], session.status().short_term["slots"]) != (size, 2 * size, size):
                raise WrongAnswer(f"growth: {size:,} slots and nodes are not there")
            ids = anchors(size)
            timed: dict[str, Callable[[], float]] = {
                "peek": lambda session=session, size=size: harness.us_per_item(lambda n: session.peek(f"k{n % size}"), range(calls)),  # type: ignore[misc]
                "set": lambda session=session, size=size: harness.us_per_item(lambda n: session.set(f"k{n * 7 % size}", "w"), range(calls)),  # type: ignore[misc]
                "one-line write": lambda session=session, size=size: harness.us_per_item(  # type: ignore[misc]
                    lambda n: session.mutate(f"~ [TSK{n * 7 % size + 1}] ; status=s{n}"), range(calls)
                ),
                "pin map": lambda session=session, ids=ids: 1000 * harness.median_ms(session.pin_map, ids),  # type: ignore[misc]
            }
            last = calls - 1
            right: dict[str, Callable[[], bool]] = {
                "peek": lambda session=session, size=size: session.peek(f"k{last % size}").value == VALUE,  # type: ignore[misc]
                "set": lambda session=session, size=size: session.peek(f"k{last * 7 % size}").value == "w",  # type: ignore[misc]
                "one-line write": lambda session=session, size=size: f"status=s{last}" in session.get(f"TSK{last * 7 % size + 1}").items[0].line,  # type: ignore[misc]
                "pin map": lambda session=session, ids=ids: all(id in session.pin_map(id).ids for id in ids[:5]),  # type: ignore[misc]
            }
            for name, run in timed.items():
                side = Side(f"pinfold, {name}", run, right[name])
                harness.run_once("growth", side)
                harness.verify("growth", side)
                points.setdefault(name, []).append((size, statistics.median(harness.run_once("growth", side) for _ in range(3))))
                harness.verify("growth", side)
        grown_kib = _in_process(_rss, size)
        if grown_kib < 0:
            raise WrongAnswer(f"growth: {size:,} nodes are not there in a process of their own")
        points.setdefault("RAM of nodes and edges", []).append((size, max(1.0, grown_kib)))
    for name, found in points.items():
        unit = "KiB" if "RAM" in name else "us"
        for size, value in found:
            bench.table.rows.append(Row(f"growth, {name}", f"{size:,}", unit, [value]))
        bench.table.rows.append(Row("growth: exponents", name, "exponent", [harness.exponent(found)], note="cost ~ size^x"))


def _in_process(target: Callable[..., None], *arguments: Any) -> float:
    """Run a function in a process of its own and return what it sends."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        return float(mine.recv())
    finally:
        process.join(30)


def _rss(nodes: int, pipe: Any) -> None:
    from benchmarks.graph import documents, write

    parts = documents(nodes)
    with Memory("memory://", background=False) as memory:
        session = memory.session("bench")
        before = harness.rss_kib()
        for part in parts:
            write(session, part)
        counts = session.graph_counts()
        is_full = (counts["nodes"], counts["edges"]) == (nodes, 2 * nodes)
        pipe.send(max(0.0, float(harness.rss_kib() - before)) if is_full else -1.0)


BENCHES: dict[str, Callable[[Bench], None]] = {
    "mcp": mcp,
    "listing": listing,
    "answers": answers,
    "http": http,
    "socket": socket,
    "fleet": fleet,
    "langgraph": langgraph,
    "stale": stale,
    "inputs": inputs,
    "growth": growth,
}
