"""The MCP door: every tool in both protocol eras in memory, and real server processes over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from journey import call_at_once, hear_of_changes, work_a_day
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import ListToolsResult
from mcp_types.methods import serialize_server_result
from tool_examples import EXAMPLES

from pinfold import Memory, call_key, limits
from pinfold.doors.mcp import INSTRUCTIONS, LIST_TTL_MS, RENEWED_S, Door, build_server, tools_of
from pinfold.errors import Refused
from pinfold.operations import BY_TOOL, TABLE, TOOLSETS, listed
from pinfold.operations.graph import _brief

ERAS = ("legacy", "2026-07-28")
WAIT_S = 20.0
"""Bound of every wait here; reached only where something is broken."""


# --- in memory ----------------------------------------------------------------------------------------------------


class Talk:
    """A client in this process, and the door it talks to."""

    def __init__(self, client: Client, door: Door) -> None:
        self.client = client
        self.door = door

    async def raw(self, tool: str, arguments: dict[str, Any] | None = None, **rest: Any) -> Any:
        return await self.client.call_tool(tool, arguments or {}, **rest)

    async def ask(self, tool: str, /, **arguments: Any) -> Any:
        result = await self.raw(tool, arguments)
        assert not result.is_error, result.content[0].text
        return json.loads(result.content[0].text)

    async def refused(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.raw(tool, arguments)
        assert result.is_error
        error = json.loads(result.content[0].text)["error"]
        assert {"code", "message", "hint"} <= set(error)
        return error


def talk(work: Callable[[Talk], Awaitable[None]], era: str = "legacy", *, memory: Memory | None = None, toolset: str = "standard", default: Any = None) -> None:
    async def run() -> None:
        store = memory or Memory("memory://")
        door = Door(store, default_session=default or (lambda: "project-1234"), toolset=toolset)
        async with asyncio.timeout(WAIT_S), Client(build_server(door), mode=era) as client:
            await work(Talk(client, door))
        if memory is None:
            store.close()

    asyncio.run(run())


def fields_of(told: str) -> list[tuple[dict[str, Any], set[str]]]:
    """Return (fields by name, required names) of each alternative a row's `result` tells of; a field may have fields."""
    alternatives = re.findall(r"(?:^|\| )\{(.*?)\}(?= \||$)", told) or [told]
    return [_fields(text) for text in alternatives]


def _fields(text: str) -> tuple[dict[str, Any], set[str]]:
    found, required = {}, set()
    for part in re.findall(r"[^,{]+(?:\{[^}]*\})?", text):
        name = re.match(r"\s*(\w+)", part)
        if name is None:
            continue
        inner = re.search(r"\{([^}]*)\}", part)
        found[name[1]] = _fields(inner[1]) if inner else None
        if not re.match(r"\s*\w+(\[\])?\?", part):
            required.add(name[1])
    return found, required


def satisfies(answer: Any, shape: tuple[dict[str, Any], set[str]]) -> bool:
    fields, required = shape
    rows = answer if isinstance(answer, list) else [answer]
    return all(required <= set(row) and all(satisfies(row[name], inner) for name, inner in fields.items() if inner and name in row) for row in rows)


def test_a_hit_that_promotes_does_not_write_on_the_event_loop() -> None:
    with Memory("memory://") as memory:
        session = memory.session("project-1234", promote_after=2)
        session.set("key", "value")
        writers, turn = [], session._replica.turn
        session._replica.turn = lambda *given, **options: (writers.append(threading.current_thread()), turn(*given, **options))[1]  # type: ignore[method-assign]

        async def work(to: Talk) -> None:
            for _ in range(3):
                assert (await to.ask("peek", key="key"))["value"] == "value"

        talk(work, memory=memory)
        assert writers and threading.main_thread() not in writers
        assert session.search("key").direct[0].content == "value"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.requirement("tools")
def test_every_tool_answers_with_the_fields_its_row_names(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_FILES", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    async def work(to: Talk) -> None:
        for tool, arguments in EXAMPLES:
            if tool == "undo":
                arguments = {"seq": next(row["seq"] for row in (await to.ask("log"))["entries"] if "patched TSK1" in row["changes"])}
            row = BY_TOOL[tool]
            if row.mcp_text is not None:
                result = await to.raw(tool, arguments)
                shown = result.content[0].text
                assert not result.is_error, shown
                assert shown and (row.mcp_text is not _brief or {"seq"} <= set(json.loads(shown)) <= {"seq", "minted", "lines", "dropped", "warnings"}), shown
                continue
            answer = await to.ask(tool, **arguments)
            told = row.result
            assert any(satisfies(answer, shape) for shape in fields_of(told)), f"{tool}: {answer} is not {told}"

    talk(work, era)
    names = {row.mcp for row in TABLE if row.mcp}
    assert {tool for tool, _ in EXAMPLES} >= names, "a tool without an example here"


def test_a_server_looks_at_files_of_its_project_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "a.py").write_text("1")
    (tmp_path / "secret").write_text("1")
    (project / "out").symlink_to(tmp_path / "secret")
    monkeypatch.chdir(project)

    async def work(to: Talk) -> None:
        await to.ask("set", key="k", value="v", inputs=["file:a.py", "tree:."])
        for path in ("../secret", str(tmp_path / "secret"), "out", "a.py/../../secret"):
            for kind in ("file", "tree"):
                assert (await to.refused("set", key="k", value="v", inputs=[f"{kind}:{path}"]))["code"] == "outside_roots"
        (project / "a.py").write_text("22")
        found = await to.ask("peek", key="k")
        assert found["value"] == "v" and found["stale"] and found["because"] == ["a.py", "./"]
        claim = await to.ask("peek", key="k", claim=True, fresh=True)
        await to.ask("resolve", promise_id="k", token=claim["token"], payload="w", inputs=["file:a.py"])
        assert await to.ask("peek", key="k") == {"hit": True, "value": "w", "index": 0}

    talk(work)


def test_a_server_names_only_files_in_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_FILES", str(tmp_path / "inside"))

    async def work(to: Talk) -> None:
        await to.ask("set", key="a", value="1")
        for file in (str(tmp_path / "outside.txt"), str(tmp_path / "inside" / ".." / "outside.txt"), "/etc/passwd"):
            for tool in ("session_save", "session_load"):
                assert (await to.refused(tool, file=file))["code"] == "outside_roots"

    talk(work)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.requirement("tools")
def test_every_toolset_lists_its_rows_and_every_name_is_callable_in_each(era: str) -> None:
    for toolset in (*TOOLSETS, "all"):

        async def work(to: Talk, toolset: str = toolset) -> None:
            tools = (await to.client.list_tools()).tools
            assert [tool.name for tool in tools] == [name for name, _ in listed(toolset)]
            for tool in tools:
                row = BY_TOOL[tool.name]
                assert tool.description == row.doc and tool.input_schema["type"] == "object"
                assert tool.annotations is not None and tool.annotations.open_world_hint is False
                assert tool.annotations.read_only_hint or tool.annotations.destructive_hint is row.destructive
            for name in BY_TOOL:
                assert (await to.refused(name, no_such_argument=1))["code"] == "bad_arguments"
            claim = await to.ask("peek", key="k", claim=True)
            assert (await to.ask("renew", promise_id="k", token=claim["token"]))["status"] == "renewed"

        talk(work, era, toolset=toolset)


def test_reading_tools_say_so_and_peek_which_can_claim_does_not() -> None:
    hints = {tool.name: tool.annotations for tool in tools_of("all")}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == {
        "memory_status", "session_list", "log", "keys", "pin_map", "query_walk", "read_get", "read_list", "schema", "diff", "session_save",
        "search_memory_graph", "retrieve_with_traversal", "resolve_context",
        "stale", "why", "conflicts",
    }  # fmt: skip
    assert hints["set"].idempotent_hint and hints["flush"].destructive_hint and not hints["peek"].destructive_hint


@pytest.mark.parametrize("era", ERAS)
def test_refusals_are_results_and_only_protocol_faults_are_protocol_errors(era: str) -> None:
    async def work(to: Talk) -> None:
        assert (await to.refused("peek"))["code"] == "bad_arguments"
        assert (await to.refused("peek", key=1))["code"] == "bad_arguments"
        assert (await to.refused("peek", key="k", wait_s="long"))["code"] == "bad_arguments"
        assert (await to.refused("peek", key="k" * 5000))["code"] == "bad_key"
        assert (await to.refused("peek", key="k", session_id="no/name"))["code"] == "bad_session_name"
        assert (await to.refused("peek", key="k", session_id=7))["code"] == "bad_arguments"
        assert (await to.refused("set", key="k"))["code"] == "bad_arguments"
        assert (await to.refused("resolve", promise_id="k", payload="v"))["code"] == "unknown_promise"
        await to.ask("peek", key="k", claim=True)
        assert (await to.refused("resolve", promise_id="k", payload="v"))["code"] == "token_required"
        assert (await to.refused("resolve", promise_id="k", payload="v", token=99))["code"] == "stale_token"
        with pytest.raises(MCPError, match=r"Unknown tool: pek\. Did you mean peek\?") as caught:
            await to.raw("pek", {"key": "k"})
        assert caught.value.error.code == -32602

    talk(work, era)


def test_the_session_is_the_door_s_default_unless_named_and_a_missing_default_is_a_refusal() -> None:
    async def work(to: Talk) -> None:
        await to.ask("set", key="k", value="here")
        await to.ask("set", key="k", value="there", session_id="other")
        assert (await to.ask("peek", key="k"))["value"] == "here"
        assert (await to.ask("peek", key="k", session_id="project-1234"))["value"] == "here"
        assert (await to.ask("peek", key="k", session_id="other"))["value"] == "there"
        assert (await to.ask("init"))["session_id"] == "project-1234"

    talk(work)

    def no_default() -> str:
        raise Refused("no project here", code="session_required", hint="pass session_id")

    async def homeless(to: Talk) -> None:
        assert (await to.refused("peek", key="k"))["code"] == "session_required"
        assert (await to.ask("set", key="k", value=1, session_id="named"))["status"] == "stored"
        assert (await to.ask("session_list"))["total"] == 1

    talk(homeless, default=no_default)


VALUES = ["", "x", "a\x00b", "é\u0301", "\ud800", "x" * 100_000, 0, False, None, 1.5, [], {"a": [{"b": None}]}, "<&>\u2028"]


def test_values_come_out_as_they_went_in() -> None:
    async def work(to: Talk) -> None:
        for place, value in enumerate(VALUES):
            await to.ask("set", key=f"v{place}", value=value)
        for place, value in enumerate(VALUES):
            found = await to.ask("peek", key=f"v{place}")
            whole = found["value"]
            while "next_offset" in found:
                found = await to.ask("peek", key=f"v{place}", offset=found["next_offset"])
                whole += found["value"]
            assert whole == value

    talk(work)


@pytest.mark.parametrize("era", ERAS)
def test_progress_is_reported_while_a_call_waits_for_work_in_flight(era: str) -> None:
    async def work(to: Talk) -> None:
        claim = await to.ask("peek", key="k", claim=True)
        seen: list[tuple[float, float | None]] = []
        told = asyncio.Event()

        async def progress(now: float, total: float | None, message: str | None) -> None:
            seen.append((now, total))
            told.set()

        waiting = asyncio.create_task(to.raw("peek", {"key": "k", "wait_s": WAIT_S}, progress_callback=progress))
        await told.wait()
        await to.ask("resolve", promise_id="k", token=claim["token"], payload="made")
        assert json.loads((await waiting).content[0].text)["value"] == "made"
        assert seen[0][0] < WAIT_S and seen[0][1] == WAIT_S

    talk(work, era)


def test_a_cancelled_call_stops_waiting_and_never_takes_the_work_over() -> None:
    async def work(to: Talk) -> None:
        claim = await to.ask("peek", key="k", claim=True)
        waiting = asyncio.create_task(to.raw("peek", {"key": "k", "claim": True, "wait_s": WAIT_S}))
        replica = to.door.memory.session("project-1234")._replica
        while "k" not in replica._waiters:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        while "k" in replica._waiters:
            await asyncio.sleep(0)
        assert not to.door._waiting
        await to.ask("resolve", promise_id="k", token=claim["token"], error="gave up")
        assert (await to.ask("peek", key="k")) == {"hit": False}

    talk(work)


def test_a_claim_is_renewed_while_its_agent_thinks() -> None:
    async def work(to: Talk) -> None:
        mine = await to.ask("peek", key="k", claim=True, lease_s=0.2)
        other = await to.ask("peek", key="k", claim=True, wait_s=1)
        assert other["status"] == "pending", "the lease ran out under an agent that was still there"
        assert 1 < other["lease_left_s"] <= RENEWED_S, "it is not renewed fifteen times a second"
        await to.ask("resolve", promise_id="k", token=mine["token"], payload="late, and still mine")
        assert not to.door._held and not to.door.memory._engine.renewer._due

    talk(work)


def test_a_claim_is_left_to_lapse_when_it_was_renewed_for_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MCP_RENEW_MAX_S", 0.4)

    async def work(to: Talk) -> None:
        mine = await to.ask("peek", key="k", claim=True, lease_s=0.1)
        other = await to.ask("peek", key="k", claim=True, wait_s=WAIT_S)
        assert other["claimed"] and other["token"] > mine["token"]
        assert (await to.refused("resolve", promise_id="k", token=mine["token"], payload="too late"))["code"] == "stale_token"

    talk(work)


def test_a_bug_is_an_error_result_without_its_insides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(self: Memory, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret inside")

    async def work(to: Talk) -> None:
        monkeypatch.setattr(Memory, "session", broken)
        error = await to.refused("peek", key="k")
        assert error["code"] == "internal" and "secret" not in json.dumps(error)

    talk(work)
    assert "a secret inside" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # of the counter's own data file
def test_the_listing_costs_few_tokens() -> None:
    import bpe_openai

    encoding = bpe_openai.get_encoding("o200k_base")

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    bounds = {"standard": 2300, "core": 1100}
    for toolset in (*TOOLSETS, "all"):
        for version in ("2025-11-25", "2026-07-28"):
            listing = ListToolsResult(tools=tools_of(toolset), ttl_ms=0, cache_scope="public").model_dump(by_alias=True)
            tools = serialize_server_result("tools/list", version, listing)["tools"]  # as they go out: the SDK has an order of its own
            tokens = count(json.dumps({"tools": tools}, separators=(",", ":"), ensure_ascii=False))
            print(f"tools/list {toolset}, {version}: {len(tools)} tools, {tokens} tokens")
            assert tokens <= bounds.get(toolset, 5000)
    assert count(INSTRUCTIONS) <= 150


def test_what_changes_with_the_version_only_may_be_kept_and_what_was_read_may_not() -> None:
    async def work(to: Talk) -> None:
        for found in (await to.client.list_tools(), await to.client.list_prompts(), await to.client.list_resource_templates()):
            assert (found.ttl_ms, found.cache_scope) == (LIST_TTL_MS, "public")
        await to.ask("set", key="k", value=1)
        for read in (await to.client.list_resources(), await to.client.read_resource("pinfold://project-1234/status")):
            assert (read.ttl_ms, read.cache_scope) == (0, "private")

    talk(work, "2026-07-28")


# --- processes ----------------------------------------------------------------------------------------------------


def command(store: Path | str, *options: str) -> list[str]:
    return ["-m", "pinfold", "mcp", "--store", f"sqlite:///{store}", "--session", "shared", *options]


@asynccontextmanager
async def connected(store: Path, *options: str, env: dict[str, str] | None = None, era: str = "legacy") -> Any:
    server = StdioServerParameters(command=sys.executable, args=command(store, *options), env={**os.environ, **(env or {})})
    async with Client(server, mode=era) as client:
        yield Talk(client, None)  # type: ignore[arg-type]


def bounded(work: Awaitable[None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * WAIT_S):
            await work

    asyncio.run(run())


class Raw:
    """A server process spoken to in raw lines."""

    started: ClassVar[list[subprocess.Popen[bytes]]] = []

    def __init__(self, store: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command(store, *options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.started.append(self.process)

    def send(self, *messages: dict[str, Any] | str) -> None:
        assert self.process.stdin is not None
        for message in messages:
            line = message if isinstance(message, str) else json.dumps(message)
            self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def begin(self) -> Raw:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert self.answer()["result"]["protocolVersion"] == "2025-11-25"
        return self

    def call(self, number: int, tool: str, /, **arguments: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, number: int, tool: str, /, **arguments: Any) -> dict[str, Any]:
        self.call(number, tool, **arguments)
        message = self.answer()
        assert message["id"] == number
        told: dict[str, Any] = json.loads(message["result"]["content"][0]["text"])
        return told

    def rest(self) -> tuple[list[dict[str, Any]], str]:
        """Close stdin; return (all further messages, stderr) once the process has ended."""
        lines, err = rest_of(self.process)
        return [json.loads(line) for line in lines], err.decode()


def rest_of(process: subprocess.Popen[bytes]) -> tuple[list[bytes], bytes]:
    """Close stdin; return (the whole lines that are left, stderr) once the process has ended."""
    held = b""
    if sys.platform != "win32":  # communicate reads below the buffer, and would lose what readline took from the pipe beyond its line
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        held = process.stdout.read1()  # type: ignore[attr-defined]
        os.set_blocking(process.stdout.fileno(), True)
    out, err = process.communicate(timeout=WAIT_S)
    return [line for line in (held + out).splitlines(keepends=True) if line.endswith(b"\n")], err


@pytest.fixture(autouse=True)
def _no_server_is_left() -> Iterator[None]:
    yield
    while Raw.started:
        with Raw.started.pop() as process:
            process.kill()


@pytest.mark.parametrize("era", ERAS)
def test_sixty_calls_at_once_get_sixty_right_answers(tmp_path: Path, era: str) -> None:
    async def work() -> None:
        async with connected(tmp_path / "s.db", era=era) as to:
            await asyncio.gather(*(to.ask("set", key=f"k{n}", value=f"value {n}") for n in range(60)))
            waits = [asyncio.create_task(to.ask("peek", key=f"w{n}", claim=True, wait_s=WAIT_S)) for n in range(60)]
            claims = await asyncio.gather(*waits)
            joined = [asyncio.create_task(to.ask("peek", key=f"w{n}", wait_s=WAIT_S)) for n in range(60)]
            found = await asyncio.gather(*(to.ask("peek", key=f"k{n}") for n in range(60)))
            assert [one["value"] for one in found] == [f"value {n}" for n in range(60)]
            assert not any(wait.done() for wait in joined)
            await asyncio.gather(*(to.ask("resolve", promise_id=f"w{n}", token=claims[n]["token"], payload=n) for n in range(60)))
            assert [one["value"] for one in await asyncio.gather(*joined)] == list(range(60))

    bounded(work())


def test_a_thousand_mixed_calls_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path / "s.db", era=ERAS[0]) as old, connected(tmp_path / "s.db", era=ERAS[1]) as new:
            await call_at_once((old.client, new.client))

    bounded(work())


@pytest.mark.parametrize("era", ERAS)
def test_a_real_client_goes_all_the_way(tmp_path: Path, era: str) -> None:
    async def work() -> None:
        async with connected(tmp_path / "s.db", era=era) as one, connected(tmp_path / "s.db", era=era) as two:
            await work_a_day(one.client, two.client, "day")

    bounded(work())


@pytest.mark.filterwarnings("ignore:resources/.* is removed")
def test_changes_of_a_resource_are_told_in_both_eras(tmp_path: Path) -> None:
    def connect(era: str, **options: Any) -> Any:  # a server of its own for each: the writer's is another process
        return Client(StdioServerParameters(command=sys.executable, args=command(tmp_path / "s.db"), env=dict(os.environ)), mode=era, **options)

    bounded(hear_of_changes(connect))


def test_two_servers_on_one_file_share_writes_and_work_in_flight(tmp_path: Path) -> None:
    async def work() -> None:
        store = tmp_path / "s.db"
        async with connected(store) as one, connected(store, era="2026-07-28") as two:
            await asyncio.gather(*((one, two)[n % 2].ask("set", key=f"k{n}", value=n) for n in range(40)))
            for to in (one, two):
                assert [(await to.ask("peek", key=f"k{n}"))["value"] for n in range(40)] == list(range(40))
                assert (await to.ask("memory_status"))["short_term"]["slots"] == 40
            claim = await one.ask("peek", key="work", claim=True)
            assert (await two.ask("peek", key="work", claim=True))["status"] == "pending"
            waiting = [
                asyncio.create_task(two.ask("peek", key="work", wait_s=WAIT_S)),
                asyncio.create_task(two.ask("resolve", promise_id="work", wait_s=WAIT_S)),
            ]
            assert (await two.ask("peek", key="k1"))["hit"], "a wait holds up nobody"
            await one.ask("resolve", promise_id="work", token=claim["token"], payload={"made": "by one"})
            peeked, resolved = await asyncio.gather(*waiting)
            assert peeked["value"] == resolved["payload"] == {"made": "by one"}

    bounded(work())


def test_stdin_closed_answers_what_is_under_way_and_ends_though_calls_wait(tmp_path: Path) -> None:
    server = Raw(tmp_path / "s.db", "--actor", "raw").begin()
    server.ask(1, "peek", key="held", claim=True)
    for number in range(2, 10):
        server.call(number, "peek", key="held", claim=True, wait_s=600)
    for number in range(10, 40):
        server.call(number, "set", key=f"k{number}", value=number)
    messages, err = server.rest()
    assert server.process.returncode == 0 and err == ""
    by_id = {message["id"]: message for message in messages}
    assert all("result" in by_id[number] for number in range(10, 40))
    with Memory(f"sqlite:///{tmp_path / 's.db'}") as memory:
        session = memory.session("shared")
        assert [session.peek(f"k{number}").value for number in range(10, 40)] == list(range(10, 40))  # type: ignore[union-attr]
        assert session.promise("held").status == "pending"
        assert {row.actor for row in session.log()} <= {"raw", None}, "only the note of what was read has no author"


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM to catch")
def test_sigterm_ends_the_server_cleanly(tmp_path: Path) -> None:
    server = Raw(tmp_path / "s.db").begin()
    server.ask(1, "set", key="k", value="kept")
    server.call(2, "peek", key="held", claim=True)
    server.answer()
    server.call(3, "peek", key="held", wait_s=600)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(WAIT_S) == 0
    _, err = server.rest()
    assert err == ""


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM to catch")
@pytest.mark.requirement("server-ends")
def test_sigterm_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    server = Raw(tmp_path / "s.db").begin()
    for number in range(1, 1501):
        server.call(number, "set", key=f"k{number}", value=number)
    acknowledged = [server.answer()["id"] for _ in range(50)]
    server.process.send_signal(signal.SIGTERM)
    messages, err = server.rest()
    assert server.process.returncode == 0 and err == ""
    # What the end came before is answered by an error: it is not acknowledged, and not left without an answer.
    acknowledged += [message["id"] for message in messages if "result" in message and not message["result"]["isError"]]
    with Memory(f"sqlite:///{tmp_path / 's.db'}") as memory:
        session = memory.session("shared")
        assert [session.peek(f"k{number}").value for number in acknowledged] == acknowledged  # type: ignore[union-attr]


CLIENT = """
import json, subprocess, sys

server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # stderr is the client's own

def send(number, method, **params):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\\n")
    server.stdin.flush()

send(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "mortal", "version": "1"})
server.stdout.readline()
send(1, "resources/subscribe", uri="pinfold://shared/log")
send(2, "tools/call", name="peek", arguments={"key": "held", "claim": True})
send(3, "tools/call", name="peek", arguments={"key": "held", "claim": True, "wait_s": 600})
for number in range(10, 30):
    send(number, "tools/call", name="set", arguments={"key": f"k{number}", "value": number})
while True:
    answer = json.loads(server.stdout.readline())
    if answer.get("id", 0) >= 10:
        print(answer["id"], flush=True)
        number += 1
        send(number, "tools/call", name="set", arguments={"key": f"k{number}", "value": number})
"""


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals there")
def test_a_person_who_starts_the_server_is_told_what_it_waits_for(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, *command(tmp_path / "s.db")], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        os.close(theirs)
        assert server.stderr is not None and b"waiting for an MCP client" in server.stderr.readline()
        os.write(ours, b"\x04")
        out, _ = server.communicate(timeout=WAIT_S)
    os.close(ours)
    assert (out, server.returncode) == (b"", 0)


@pytest.mark.skipif(os.name == "nt", reason="a pipe is no sign of a process's end there")
@pytest.mark.requirement("server-ends")
def test_a_killed_client_leaves_no_server_behind_and_loses_nothing_acknowledged(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", CLIENT, sys.executable, *command(tmp_path / "s.db")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        assert client.stdout is not None
        acknowledged = [int(client.stdout.readline()) for _ in range(100)]
        client.kill()
        lines, err = rest_of(client)  # the server has the same stderr: the end of that is its end
    assert err == b""
    acknowledged += map(int, lines)
    with Memory(f"sqlite:///{tmp_path / 's.db'}") as memory:
        session = memory.session("shared")
        assert [session.peek(f"k{number}").value for number in acknowledged] == acknowledged  # type: ignore[union-attr]
        assert session.promise("held").status == "pending", "its claim is left to its lease"


def test_a_killed_server_has_lost_nothing_it_acknowledged(tmp_path: Path) -> None:
    server = Raw(tmp_path / "s.db").begin()
    for number in range(1, 301):
        server.call(number, "set", key=f"k{number}", value=number)
    acknowledged = []
    for _ in range(100):
        message = server.answer()
        assert not message["result"]["isError"]
        acknowledged.append(message["id"])
    server.process.kill()
    messages, _ = server.rest()
    acknowledged += [message["id"] for message in messages]
    with Memory(f"sqlite:///{tmp_path / 's.db'}") as memory:
        session = memory.session("shared")
        assert [session.peek(f"k{number}").value for number in acknowledged] == acknowledged  # type: ignore[union-attr]


def test_stdout_carries_nothing_but_the_protocol_whatever_is_loaded(tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.mkdir()
    (noisy / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import atexit, builtins, os, sys
            print("noise at start")
            whole = builtins.__import__
            def loud(name, *rest, **named):
                found = whole(name, *rest, **named)
                if name.startswith("mcp"):
                    print("noise of", name)
                    sys.stdout.flush()
                    os.write(1, b"noise below print\\n")
                    os.system("echo noise of a child")
                    builtins.__import__ = whole
                return found
            builtins.__import__ = loud
            atexit.register(print, "noise at the end")
            """
        )
    )
    path = os.pathsep.join(filter(None, (str(noisy), os.environ.get("PYTHONPATH"))))
    server = Raw(tmp_path / "s.db", env={"PYTHONPATH": path, "PYTHONUNBUFFERED": ""}).begin()
    assert server.ask(1, "set", key="k", value="v")["status"] == "stored"
    messages, err = server.rest()
    assert messages == []
    for noise in ("noise at start", "noise of", "noise below print", "noise of a child", "noise at the end"):
        assert noise in err


def test_lines_of_any_length_and_lines_that_are_no_messages(tmp_path: Path) -> None:
    server = Raw(tmp_path / "s.db").begin()
    big = "é" * 300_000
    assert server.ask(1, "set", key="big", value=big)["status"] == "stored"
    found, offset = "", 0
    while offset is not None:
        part = server.ask(2, "peek", key="big", **({"offset": offset} if offset else {}))
        found, offset = found + part["value"], part.get("next_offset")
    assert found == big
    server.send("", "   ", "not json", "[]", '{"id": 3}', '{"jsonrpc": "2.0", "id": 4, "method": "no/such"}')
    server.send('{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "set", "arguments": {"key": "s", "value": "\\ud800"}}}')
    answers = {(message["id"], message.get("error", {}).get("code")) for message in (server.answer() for _ in range(5))}
    assert answers == {(None, -32700), (None, -32600), (3, -32600), (4, -32601), (5, None)}
    assert server.ask(6, "peek", key="s")["value"] == "\ud800"
    server.rest()


def test_a_store_that_cannot_be_opened_is_said_on_stderr(tmp_path: Path) -> None:
    for store, status in (("nonsense://x", 2), ("sqlite:///", 2)):
        ended = subprocess.run([sys.executable, "-m", "pinfold", "mcp", "--store", store], input=b"", capture_output=True, timeout=WAIT_S, check=False)
        assert ended.returncode == status and ended.stdout == b"" and b"bad_url" in ended.stderr


def test_thousands_of_calls_sent_before_an_answer_is_read_are_all_answered(tmp_path: Path) -> None:
    server = Raw(tmp_path / "s.db").begin()
    calls = [{"name": "peek", "arguments": {"key": f"k{n}"}} for n in range(5000)]
    server.send(*({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call} for n, call in enumerate(calls)))
    assert sorted(server.answer()["id"] for _ in calls) == list(range(len(calls)))
    assert server.rest() == ([], "")


def test_the_door_s_key_of_a_call_is_the_library_s() -> None:
    memory = Memory("memory://")

    async def work(to: Talk) -> None:
        await to.ask("set", tool="search", arguments={"b": 1, "a": [2]}, value="v")
        assert memory.session("project-1234").peek(call_key("search", {"a": [2], "b": 1})).value == "v"  # type: ignore[union-attr]

    talk(work, memory=memory)
    memory.close()
