"""MemNet's newest beside pinfold: 200 nodes and 200 edges. It names nodes by their content and takes hundreds of lines a second."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import benchmarks.harness as harness
from benchmarks.harness import Row, must_hold
from benchmarks.peers import MEMNET_NEWEST, Peer, PeerMissing
from benchmarks.silo import Bench
from pinfold import Memory
from pinfold.recall.tokens import o200k_counter


def newest(bench: Bench) -> None:
    """Nodes and edges a second, a pin map, and its characters and tokens, beside MemNet's newest at 200 nodes."""
    if not bench.peers:
        return
    size = 20 if bench.small else 200
    dice = random.Random(7)
    nodes = [{"goal": f"goal number {number}", "status": "open", "prio": str(number % 7)} for number in range(size)]
    edges = [[number, other] for number in range(size) if (other := dice.randrange(size)) != number]
    lines = [f"+ TSK [T{n}] ; " + " ; ".join(f"{key}={value}" for key, value in fields.items()) for n, fields in enumerate(nodes)]
    links = [f"+ [T{a}] --(links)--> [T{b}]" for a, b in edges]
    around = edges[0][0]
    near = {nodes[around]["goal"]} | {nodes[b]["goal"] for a, b in edges if a == around}
    rates: dict[tuple[str, str], list[float]] = {}
    shown: dict[str, str] = {}
    try:
        peer = Peer(MEMNET_NEWEST, "peer_memnet_newest.py", str(bench.folder))
    except PeerMissing as missing:
        bench.table.note("MemNet's newest", f"left out: {missing}")
        return
    with peer, Memory("memory://", background=False) as memory:
        for number in range(2 if bench.small else 4):  # the first round warms up
            bench.table.tell(f"MemNet's newest, round {number}")
            session, name = memory.session(f"s{number}"), f"s{number}"
            took = []
            for part in (lines, links):
                began = time.perf_counter()
                session.mutate("\n".join(part))
                took.append(time.perf_counter() - began)
            theirs = peer.ask("write", name=name, kinds={"TSK": list(nodes[0])}, nodes=nodes, edges=edges, kind="TSK", relation="links")
            with must_hold("MemNet's newest", "pinfold ram"):
                counts = session.graph_counts()
                assert (counts["nodes"], counts["edges"]) == (size, len(set(map(tuple, edges))))
                shown["pinfold ram"] = session.pin_map(f"T{around}", depth=2).text
                assert all(goal in shown["pinfold ram"] for goal in near)
            with must_hold("MemNet's newest", peer.name):
                shown[peer.name] = peer.ask("show", name=name, node=around, depth=2, max_rows=50)
                assert all(goal in shown[peer.name] for goal in near)
            for side, (nodes_s, edges_s) in () if number == 0 else (("pinfold ram", took), (peer.name, theirs)):
                rates.setdefault((f"nodes, one batch of {size}", side), []).append(size / nodes_s)
                rates.setdefault((f"edges, one batch of {len(edges)}", side), []).append(len(edges) / edges_s)
        asked = list(range(0, size, max(1, size // 20)))
        rates[f"pin map, depth 2, {size} nodes", "pinfold ram"] = [harness.median_ms(lambda n: session.pin_map(f"T{n}", depth=2), asked)]
        rates[f"pin map, depth 2, {size} nodes", peer.name] = [float(peer.ask("pin_map", name=name, nodes=asked, depth=2, max_rows=50))]
    count = o200k_counter()
    for name, text in shown.items():
        rates[f"a node's map at {size} nodes, depth 2", name] = [sum(map(count, text.split("\n")))]
    first = {bench_name: runs for (bench_name, name), runs in rates.items() if name == "pinfold ram"}
    for (bench_name, name), runs in rates.items():
        unit = "ms" if bench_name.startswith("pin map") else "tokens o200k" if "map" in bench_name else "/s"
        ratio = None if name == "pinfold ram" else harness.paired_ratio(runs, first[bench_name])
        bench.table.rows.append(Row(bench_name, name, unit, runs, ratio, note="" if unit != "tokens o200k" else f"{len(shown[name])} characters"))


BENCHES: dict[str, Callable[[Bench], None]] = {"newest": newest}
