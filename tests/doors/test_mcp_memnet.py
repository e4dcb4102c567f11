"""MCP for MemNet's users: its tools under its argument names; and resources, in both protocol eras."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from test_mcp import ERAS, Talk, talk

from pinfold import Memory
from pinfold.doors.mcp import tools_of

MEMNET_TOOLS = {
    "serve_status": set(), "session_open": {"map_lines", "map_file", "ttl", "seed_lines", "allow_new_relation"}, "session_current": {"session"},
    "session_load": {"file", "keep_id"}, "session_save": {"file", "session"}, "pin_map": {"anchor", "depth", "max_rows", "session"},
    "query_warm": {"anchor", "depth", "max_rows", "session"}, "query_walk": {"anchor", "depth", "max_rows", "session"},
    "add": {"wire_lines", "allow_new_relation", "agent", "session"}, "update": {"wire_lines", "allow_new_relation", "agent", "session"},
    "read_get": {"id", "session"}, "housekeep_stats": {"session"},
}  # fmt: skip


def test_the_toolset_lists_memnets_tools_with_memnets_arguments() -> None:
    listed = {tool.name: set(tool.input_schema["properties"]) for tool in tools_of("memnet")}
    for name, arguments in MEMNET_TOOLS.items():
        assert arguments <= listed[name], name
    assert {"tag", "where", "active_only"} <= set(next(tool for tool in tools_of("all") if tool.name == "read_list").input_schema["properties"])


async def said(to: Talk, tool: str, **arguments: Any) -> str:
    result = await to.raw(tool, arguments)
    assert not result.is_error, result.content[0].text
    text: str = result.content[0].text
    return text


@pytest.mark.parametrize("era", ERAS)
def test_a_memnet_agent_works_as_it_did(era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_FILES", str(tmp_path))
    (tmp_path / "map.txt").write_text("@TSK: id|goal|status|recycle\n@MOD: id|path|recycle\n")

    async def work(to: Talk) -> None:
        assert (await to.ask("serve_status"))["session_id"] == "project-1234"
        opened = await to.ask(
            "session_open", map_file=str(tmp_path / "map.txt"), ttl=60, seed_lines=["LAW01 name=* ; mechanism=short", "+ MOD [M1] ; path=a.py"]
        )
        session = opened["session_id"]
        assert session.startswith("s_") and opened["ttl_s"] == 3600 and opened["status"] == "initialized"
        made = json.loads(await said(to, "add", wire_lines=["+ TSK [NEW] ; goal=ship", "+ E9 [TSK1] --(owns)--> [M1]"][:1], agent="ada", session=session))
        assert made["minted"] == {"#1": "TSK1"}
        await said(to, "add", wire_lines=["+ [TSK1] --(owns)--> [M1]"], session_id=session)
        await said(to, "update", wire_lines=["~ [TSK1] ; status=open"])  # the session that was opened is the one meant
        shown = await said(to, "pin_map", anchor="TSK1", depth=2, max_rows=50, session=session)
        assert "TSK [TSK1] ; goal=ship ; status=open\n" in shown and "E1 [TSK1] --(owns)--> [M1]" in shown and "LAW01" in shown
        assert await said(to, "query_warm", anchor="TSK1", depth=2, max_rows=50, session=session) == shown
        assert (await said(to, "query_walk", anchor="TSK1", session=session)).startswith("E1 [TSK1] --(owns)--> [M1]\n")
        assert await said(to, "read_get", id="TSK1", session=session) == "TSK [TSK1] ; goal=ship ; status=open"
        assert (
            await said(to, "read_list", tag="TSK", active_only=True, where=["goal=s*", "status=open"], session=session)
            == "TSK [TSK1] ; goal=ship ; status=open"
        )
        assert (await to.ask("session_current", session=session))["session_id"] == session
        assert (await to.ask("housekeep_stats", session=session))["long_term"]["nodes"] == 2
        await to.ask("session_save", file=str(tmp_path / "s.txt"), session=session)
        assert (await to.refused("session_load", file=str(tmp_path / "s.txt"), keep_id=True))["code"] == "session_exists"
        loaded = await to.ask("session_load", file=str(tmp_path / "s.txt"))
        assert loaded["rows"] == 4 and loaded["session_id"] != session
        log = (await to.ask("log", session=session))["entries"]
        assert [row.get("actor") for row in log if "created TSK1" in " ".join(row["changes"])] == ["ada"]
        assert (await to.ask("session_open", session="named"))["session_id"] == "named"

    talk(work, era, toolset="memnet")


def test_an_empty_list_and_a_name_given_twice_are_answered() -> None:
    async def work(to: Talk) -> None:
        for tool in ("add", "update"):
            assert json.loads(await said(to, tool, wire_lines=[])) == {"seq": 0, "warnings": ["no line of it writes anything"]}
        assert (await to.refused("read_get", id="T1", ids=["T2"]))["code"] == "bad_arguments"
        assert (await to.refused("pin_map", anchor="T1", session="a", session_id="b"))["code"] == "bad_arguments"
        assert (await to.refused("add", wire_lines=["+ A [a]"], agent="a\nb"))["code"] == "bad_actor"

    talk(work, toolset="memnet")


def test_sixty_adds_and_thirty_maps_at_once_are_each_answered_rightly() -> None:
    async def work(to: Talk) -> None:
        made = await asyncio.gather(*(said(to, "add", wire_lines=[f"+ TSK [T{n}] ; goal=goal {n}"]) for n in range(60)))
        assert [json.loads(text)["lines"] for text in made] == [[f"TSK [T{n}] ; goal=goal {n}"] for n in range(60)]
        maps = await asyncio.gather(*(said(to, "pin_map", anchor=f"T{n}") for n in range(30)))
        assert all(text.startswith(f"## Nodes\nTSK [T{n}] ; goal=goal {n}\n") for n, text in enumerate(maps))

    talk(work, toolset="memnet")


# --- resources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
def test_resources_are_listed_and_read(era: str) -> None:
    async def work(to: Talk) -> None:
        await said(to, "mutate", text="+ TSK [T1] ; goal=ship\n+ TSK [T2]\n+ [T1] --(needs)--> [T2]")
        listed = (await to.client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in listed] == [f"pinfold://{{session}}/{path}" for path in ("pin-map/{anchor}", "log", "status", "stale")]
        plain = (await to.client.list_resources()).resources
        assert [str(one.uri) for one in plain] == [f"pinfold://project-1234/{path}" for path in ("log", "status", "stale")]
        (shown,) = (await to.client.read_resource("pinfold://project-1234/pin-map/T1")).contents
        assert shown.mime_type == "text/plain" and shown.text == await said(to, "pin_map", anchor=["T1"])  # type: ignore[union-attr]
        (both,) = (await to.client.read_resource("pinfold://project-1234/pin-map/T1,T2")).contents
        assert both.text == await said(to, "pin_map", anchor=["T1", "T2"])  # type: ignore[union-attr]
        (log,) = (await to.client.read_resource(str(plain[0].uri))).contents
        assert json.loads(log.text)["entries"][-1]["seq"] == 1  # type: ignore[union-attr]
        (status,) = (await to.client.read_resource(str(plain[1].uri))).contents
        assert json.loads(status.text)["long_term"]["edges"] == 1  # type: ignore[union-attr]

    talk(work, era)


@pytest.mark.parametrize("era", ERAS)
def test_what_is_no_resource_is_a_protocol_error_with_a_next_step(era: str) -> None:
    async def work(to: Talk) -> None:
        await said(to, "mutate", text="+ TSK [T1]")
        for uri, code in (
            ("pinfold://project-1234/pin-map/T9", "not_found"),
            ("pinfold://project-1234/pin-map", "no_such_resource"),
            ("pinfold://project-1234/pin-map/T1/more", "no_such_resource"),
            ("pinfold://project-1234/secrets", "no_such_resource"),
            ("pinfold://no%2Fname/log", "bad_session_name"),
            ("file:///etc/passwd", "no_such_resource"),
        ):
            with pytest.raises(MCPError) as caught:
                await to.client.read_resource(uri)
            assert caught.value.error.code == INVALID_PARAMS and caught.value.error.data["code"] == code and caught.value.error.data["uri"] == uri

    talk(work, era)


def test_a_session_whose_name_looks_like_a_host_and_port_is_read_as_it_is() -> None:
    memory = Memory("memory://")
    memory.session("Team.A:80").mutate("+ TSK [T1]")

    async def work(to: Talk) -> None:
        (shown,) = (await to.client.read_resource("pinfold://Team.A:80/pin-map/T1")).contents
        assert shown.text.startswith("## Nodes\nTSK [T1]\n")  # type: ignore[union-attr]

    talk(work, memory=memory)
    memory.close()


def test_reading_a_resource_of_an_unknown_session_makes_none() -> None:
    async def work(to: Talk) -> None:
        (status,) = (await to.client.read_resource("pinfold://nobody/status")).contents
        assert json.loads(status.text)["seq"] == 0  # type: ignore[union-attr]
        assert (await to.ask("session_list"))["total"] == 0

    talk(work)
