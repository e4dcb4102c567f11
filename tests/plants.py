"""What is planted in the benches: for each of them things that do nothing, which it must refuse to give a figure.

`PLANTS` has an entry for every bench there is (test_benchmarks_plants.py). A plant stands where the real thing stood: a method, a
journal's append, a command, a server, in this process or in every Python started from it; or it is a peer that answers in time, and
wrongly. Each is run small, and WrongAnswer must come of it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import doors, flight, harness, instructions, listing, newest, recall, recall_peers, recall_sets, serve, silo
from benchmarks.__main__ import BENCHES
from benchmarks.budget import twenty_turns
from benchmarks.peers import PMLL, PeerMissing

import pinfold
from pinfold.journal.sqlite import SqliteJournal

TOY = {
    "set": "toy",
    "corpus": "toy",
    "documents": [{"id": f"d{n}", "text": text} for n, text in enumerate(("quinces ripen in October", "the ferry leaves at nine", "Ann mends the clock"))],
    "queries": [{"id": "q", "text": "when do quinces ripen", "relevant": ["d0"]}, {"id": "r", "text": "who mends the clock", "relevant": ["d2"]}],
}


def nothing(*arguments: object, **rest: object) -> None:
    """What a plant does."""


@dataclass(frozen=True)
class Plant:
    """A thing that does nothing. put: puts it there, given a folder of its own. peers: by script, what the peer answers by operation,
    a value or a function; every other peer is missing. part: the part of the bench that it is for, where that is not all of it.
    says: a part of the refusal, where another one would be luck.
    """

    name: str
    put: Callable[[pytest.MonkeyPatch, Path], None] = nothing
    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    part: Callable[[silo.Bench], None] | None = None
    says: str = "does not do what it is timed for"


def idle(of: Any, name: str, by: Any = nothing, **rest: Any) -> Plant:
    """A plant in this process."""
    return Plant(f"{of.__name__.rpartition('.')[2]}.{name}", lambda patch, folder: patch.setattr(of, name, by), **rest)


def driver_keeps_nothing(path: str, **rest: Any) -> Plant:
    """A plant in what is only imported where its driver is installed."""
    return Plant(".".join(path.split(".")[-2:]), lambda patch, folder: patch.setattr(path, nothing), **rest)


def idle_in_children(line: str, name: str, **rest: Any) -> Plant:
    """A plant in every Python that is started from here: a line that runs before anything else, `nothing` and `pinfold` known."""

    def put(patch: pytest.MonkeyPatch, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(f"import os, sys\nnothing = lambda *a, **k: None\n{line}\n", encoding="utf-8")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])))
        patch.syspath_prepend(str(folder))

    return Plant(f"{name}, elsewhere", put, **rest)


def method_elsewhere(name: str, **rest: Any) -> Plant:
    return idle_in_children(f"import pinfold; pinfold.Session.{name} = nothing", f"Session.{name}", **rest)


def both(first: Plant, second: Plant) -> Plant:
    """Two plants that only together make the thing they are for."""

    def put(patch: pytest.MonkeyPatch, folder: Path) -> None:
        first.put(patch, folder)
        second.put(patch, folder)

    return Plant(second.name, put, second.peers, second.part, second.says)


def silent_command(word: str, **rest: Any) -> Plant:
    """A `pinfold` command that says nothing, and that all went well."""
    return idle_in_children(f"if {word!r} in sys.orig_argv: os._exit(0)", f"pinfold {word}", **rest)


class HollowPeer:
    """A peer that is there and answers at once, with what it was given to say."""

    def __init__(self, name: str, answers: Mapping[str, Any]) -> None:
        self.name, self._answers = name, answers

    def ask(self, op: str, **arguments: Any) -> Any:
        answer = self._answers[op]
        return answer(**arguments) if callable(answer) else answer

    def __enter__(self) -> HollowPeer:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class DeafServer:
    """An MCP server that lists its tools and answers every call with nothing."""

    process = SimpleNamespace(stdout=SimpleNamespace(readline=bytes))
    text = ""

    def __init__(self, command: list[str], **options: object) -> None:
        self._id = 0

    def begin(self) -> dict[str, Any]:
        return {"tools": [{"name": "peek"}]}

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": self.text}]}

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        pass

    def _send(self, message: dict[str, Any]) -> None:
        pass

    def end(self) -> tuple[float, float]:
        return 0.0, 0.0


class EmptyMemoryServer(DeafServer):
    """A memory server that takes everything and has nothing."""

    text = '{"entities": [], "relations": []}'


def deaf_peer_server(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Ours is the real server, PMLL's a deaf one."""
    real = doors.McpPeer
    patch.setattr(doors, "install", lambda *package: folder / "python")
    patch.setattr(doors, "McpPeer", lambda command, **options: (real if command[0] == sys.executable else DeafServer)(command, **options))


def toy_sets(patch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "toy.jsonl").write_text(json.dumps(TOY) + "\n", encoding="utf-8")
    patch.setenv(recall_sets.DATA, str(folder))


with_toy_sets = Plant("", toy_sets)


def counting_by(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """A valgrind that counts one instruction: the real one is not everywhere, takes minutes, and is not what is tested."""
    program = folder / "valgrind"
    program.write_text('#!/bin/sh\nlog="${3#--log-file=}"\nshift 3\n"$@"\ncode=$?\necho "Collected : 1" > "$log"\nexit $code\n', encoding="utf-8")
    program.chmod(0o755)
    patch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))


with_a_counter = Plant("", counting_by)


def mutate_but_patches(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """A session that writes what is new and drops what is changed."""
    real = pinfold.Session.mutate
    patch.setattr(pinfold.Session, "mutate", lambda self, text, **rest: None if text.startswith("~") else real(self, text, **rest))


def empty_pin_map_with_since(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """A pin map that says that nothing changed, whatever did."""
    real = pinfold.Session.pin_map

    def pin_map(self: Any, *anchors: str, since: str = "", **rest: Any) -> Any:
        found = real(self, *anchors, since=since, **rest)
        return SimpleNamespace(text="", etag=found.etag, delta=True, ids=found.ids, tokens=0) if since else found

    patch.setattr(pinfold.Session, "pin_map", pin_map)


def always_a_miss(self: Any, *arguments: object, **rest: object) -> Any:
    return SimpleNamespace(source="miss", node_id=None)


def no_op_flight(op: str, **arguments: Any) -> Plant:
    """A library that does nothing, in one of the things that are asked of all of them."""

    def part(bench: silo.Bench) -> None:
        flight.compare(bench, op, "us", op, "us", {"no-op": ("no-op", flight.here)}, 1, lambda n: n >= 1, **arguments)

    return Plant(f"no-op library, {op}", part=part, says="no-op does not do what it is timed for")


GOALS = " ".join(f"goal number {n}" for n in range(20))


def _newest(shows: str) -> dict[str, dict[str, Any]]:
    return {"peer_memnet_newest.py": {"write": [0.1, 0.1], "show": shows, "pin_map": 0.1}}


def _langgraph(has: bool) -> dict[str, dict[str, Any]]:
    return {"peer_langgraph.py": {"put": 0.1, "get": 0.1, "has": has}}


journal_keeps_nothing = idle(SqliteJournal, "append")
hollow_memnet = {"begin": 0, "mutate": 0.1, "patch": 0.1, "show": "", "pin_map": 0.1, "walk": 0.1, "hops": 0, "save": 0.1, "load": 0.1}
hollow_memnet |= {"rss_kib": 1, "forget": 0, "counts": {"nodes": 0, "edges": 0}}
filled_memnet = {**hollow_memnet, "counts": {"nodes": 1_000, "edges": 2_000}}
hollow_pmll = dict.fromkeys(("peek_hit", "peek_miss", "peek_context_hit", "set_new", "set_update", "set_full", "promise"), 0.1)
hollow_pmll |= {
    "check": {"hit": [False, None], "miss": [True, ""], "context": {"value": None}, "slots": 0, "fresh": 0, "full": {"100": 0, "1000": 0}, "promises": 0}
}
found_nothing = {"fill": lambda **asked: len(asked.get("documents", ())), "search": [[[], 0.1]], "search_hybrid": [[[], 0.1]]}


def _memnet(answers: Mapping[str, Any], **rest: Any) -> Plant:
    return Plant("hollow MemNet", peers={"peer_memnet.py": answers}, says=rest.pop("says", "memnet-llm 0.3.2 does not"), **rest)


def _pmll(**rest: Any) -> Plant:
    return Plant("hollow PMLL", peers={"peer_pmll.py": hollow_pmll}, says="pmll-memory-mcp 2.0.4 does not do", **rest)


COMMAND = "import sys; from pinfold.__main__ import main;"
Session, Memory = pinfold.Session, pinfold.Memory

PLANTS: dict[str, list[Plant]] = {
    # --- silo and promises
    "peek": [idle(Session, "peek"), _pmll()],
    "set": [idle(Session, "set"), journal_keeps_nothing, _pmll()],
    "full": [idle(Session, "set"), _pmll()],
    "claim": [idle(Session, "claim"), idle(Session, "fulfil"), journal_keeps_nothing, _pmll()],
    "once": [idle(Session, "once"), idle(Session, "cached", lambda self: lambda work: nothing), journal_keeps_nothing],
    "durable": [idle(Session, "set"), journal_keeps_nothing],
    "reopen": [idle(Session, "peek"), idle(Session, "set", says="no snapshot"), idle(Memory, "compact", says="no snapshot")],
    "race": [method_elsewhere("claim")],
    "command": [silent_command("peek")],
    # --- single flight
    "flight": [
        idle(Session, "once"),
        no_op_flight("hit", calls=5),
        no_op_flight("hit_async", calls=5),
        no_op_flight("tasks", count=3, work_s=0),
        no_op_flight("threads", count=3, work_s=0),
        no_op_flight("processes", count=1, keys=2, work_s=0),
        Plant("hollow diskcache", peers={"peer_flight.py": {"hit": {"us": 0.1, "right": True, "executions": 0}}}, says="shared hit"),
    ],
    # --- the graph
    "rates": [idle(Session, "mutate"), journal_keeps_nothing, _memnet(hollow_memnet, says="does not hold")],
    "update": [
        idle(Session, "mutate", says="pinfold does not hold"),
        Plant("Session.mutate of patches", mutate_but_patches),
        idle(SqliteJournal, "append", says="pinfold does not hold"),
        _memnet(filled_memnet),
        _memnet(hollow_memnet, says="memnet-llm 0.3.2 does not hold"),
    ],
    "reads": [idle(Session, "pin_map"), idle(Session, "walk"), _memnet(filled_memnet), _memnet({**filled_memnet, "show": lambda anchor, **_: f"[{anchor}]"})],
    "reads-million": [idle(Session, "pin_map"), idle(Session, "walk")],
    "opening": [
        idle(Session, "mutate", says="snapshot"),
        idle(Memory, "compact", says="no snapshot"),
        idle(Memory, "save"),
        idle(Memory, "load"),
        _memnet(filled_memnet),
    ],
    "size": [method_elsewhere("mutate"), _memnet(hollow_memnet, says="memnet-llm 0.3.2 does not hold")],
    "pinmap": [silent_command("pin-map")],
    "shape": [idle(Session, "pin_map"), idle(Session, "mutate"), _memnet(hollow_memnet, says="memnet-llm 0.3.2 does not show")],
    "budget": [
        idle(Session, "pin_map"),
        idle(Session, "mutate"),
        idle(Session, "find"),
        Plant("Session.pin_map with since", empty_pin_map_with_since, part=lambda bench: twenty_turns(bench.table)),
        _memnet(hollow_memnet, says="memnet-llm 0.3.2 does not show"),
    ],
    "newest": [
        idle(Session, "mutate", peers=_newest(shows=GOALS), says="pinfold ram does not do"),
        idle(Session, "pin_map", peers=_newest(shows=GOALS), says="pinfold ram does not do"),
        Plant("hollow MemNet", peers=_newest(shows=""), says="memnet-llm 0.19.27 does not do"),
    ],
    # --- recall
    "recall": [
        both(with_toy_sets, idle(recall_peers.RecallIndex, "search")),
        both(with_toy_sets, idle(recall_peers.Fts5, "search", lambda self, store, queries, within_s: [([], 1e-9) for _ in queries])),
        both(with_toy_sets, Plant("hollow bm25s", peers={"peer_bm25.py": found_nothing}, says="bm25s 0.3.16 does not do")),
        both(with_toy_sets, Plant("hollow MiniLM", peers={"peer_minilm.py": found_nothing}, says="pinfold level 2 does not do")),
        both(with_toy_sets, Plant("hollow PMLL", peers={"peer_pmll_search.py": found_nothing}, says="pmll-memory-mcp 2.0.4 does not do")),
        both(with_toy_sets, idle(recall_peers, "McpPeer", EmptyMemoryServer, peers={"npm": {}}, says="server-memory 2026.8.31 does not do")),
    ],
    "miss": [
        both(with_toy_sets, idle(Session, "mutate")),
        both(with_toy_sets, idle(Session, "search")),
        both(with_toy_sets, idle(Session, "resolve_context")),
        both(with_toy_sets, idle(Session, "resolve_context", always_a_miss)),
    ],
    "search": [idle(Session, "mutate", says="memories were written"), idle(Session, "search")],
    "search-million": [idle(Session, "mutate", says="memories were written"), idle(Session, "search")],
    "remember": [idle(Session, "remember"), idle(Session, "search"), journal_keeps_nothing],
    "first-search": [
        idle(Session, "mutate", says="memories were written"),
        method_elsewhere("search", says="first search"),
        idle(recall, "_OPEN", ""),
        idle(SqliteJournal, "put_derived", says="the index was not kept"),
    ],
    # --- the doors
    "mcp": [idle(doors, "McpPeer", DeafServer)],
    "listing": [idle(listing, "tools_of", lambda command, folder: [], says="lists no tools")],
    "answers": [
        idle(doors, "McpPeer", DeafServer, says="answers init with"),
        Plant("hollow PMLL", deaf_peer_server, peers={"mcp": {}}, says="pmll-memory-mcp 2.0.4 answers init with"),
    ],
    "http": [
        method_elsewhere("peek"),
        idle_in_children("from pinfold.journal.sqlite import SqliteJournal; SqliteJournal.append = nothing", "SqliteJournal.append"),
    ],
    "socket": [
        idle(serve, "SCRIPT", "pass", says="tells ''"),
        idle(serve, "SCRIPT", f"{COMMAND} sys.exit(sys.argv[1:3] != ['set', 'alone'] and main())", says="what was set, alone"),
        idle(serve, "SCRIPT", f"{COMMAND} sys.exit(sys.argv[1] != 'serve' and main())", says="did not go through"),
    ],
    "fleet": [
        driver_keeps_nothing("pinfold.journal.redis.RedisJournal.append", says="Valkey: append / raw compare-and-add: pinfold does not do"),
        driver_keeps_nothing("pinfold.journal.postgres.PostgresJournal.append", says="PostgreSQL: append / raw insert and commit: pinfold does not do"),
        idle(Session, "set", says="Session.set / raw compare-and-add: pinfold does not do"),
        method_elsewhere("wait", says="wake-up, redis: a waiter was told None"),
    ],
    "langgraph": [
        idle(Session, "set", peers=_langgraph(True), says="put in RAM: pinfold does not do"),
        idle(Session, "peek", peers=_langgraph(True), says="put in RAM: pinfold does not do"),
        Plant("hollow LangGraph", peers=_langgraph(False), says="langgraph 1.2.24) does not do"),
    ],
    "stale": [idle(Session, "set"), idle(Session, "stale")],
    "inputs": [method_elsewhere(name) for name in ("peek", "once", "pin_map", "get")],
    "growth": [
        idle(Session, "set", says="are not there"),
        idle(Session, "peek"),
        idle(Session, "pin_map"),
        Plant("Session.mutate of patches", mutate_but_patches),
        method_elsewhere("mutate", says="are not there in a process of their own"),
    ],
    "instructions": [
        both(with_a_counter, silent_command("peek", says="instructions of")),
        *(
            idle(Session, method, part=lambda bench, name=name: instructions.work(name, "memory://", 3), says=name)
            for name, method in (("peek hit", "peek"), ("set", "set"), ("one-line write", "mutate"), ("pin map", "pin_map"))
        ),
    ],
}


def refuses(name: str, plant: Plant, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Run a bench with a plant in it, and see that it is refused."""

    def open_peer(package: tuple[str, str], script: str, *rest: object) -> HollowPeer:
        if script not in plant.peers:
            raise PeerMissing(f"{script} is not part of this")
        return HollowPeer(" ".join(package), plant.peers[script])

    def missing(*package: str) -> Any:
        raise PeerMissing(f"{package} is not part of this")

    for module in (doors, flight, newest, recall_peers):
        patch.setattr(module, "Peer", open_peer)
    patch.setattr(doors, "install", missing)
    patch.setattr(listing, "install", missing)
    patch.setattr(recall_peers, "install_npm", (lambda *package: ["npm"]) if "npm" in plant.peers else missing)
    own = folder / "planted"
    own.mkdir()
    bench = silo.Bench(harness.Table(repeats=1), folder, small=True, peers=bool(plant.peers))
    if "peer_pmll.py" in plant.peers:
        bench.peer = open_peer(PMLL, "peer_pmll.py")  # type: ignore[assignment]
    if "peer_memnet.py" in plant.peers:
        bench.memnet = lambda: open_peer(("memnet-llm", "0.3.2"), "peer_memnet.py")  # type: ignore[assignment,return-value]
    plant.put(patch, own)
    with pytest.raises(harness.WrongAnswer) as refused:
        (plant.part or BENCHES[name])(bench)
    assert plant.says in str(refused.value), str(refused.value)
