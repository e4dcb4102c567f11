"""What a client does with the tools, whatever the transport and the protocol's era: a day's work, word of changes, a thousand calls at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

WAIT_S = 30.0
"""Bound of a wait; reached only where something is broken."""


async def call(to: Any, tool: str, /, **arguments: Any) -> Any:
    """Return the result of a tool call of the SDK's client."""
    result = await to.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return json.loads(result.content[0].text)


async def text_of(to: Any, tool: str, /, **arguments: Any) -> str:
    result = await to.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return str(result.content[0].text)


async def work_a_day(one: Any, two: Any, session: str) -> None:
    """Two agents on one session, from init to forget."""
    listed = {tool.name for tool in (await one.list_tools()).tools}
    assert listed >= {
        "init",
        "peek",
        "set",
        "resolve",
        "mutate",
        "pin_map",
        "search_memory_graph",
        "resolve_context",
        "promote_to_long_term",
        "graphql",
        "forget",
    }
    at: dict[str, Any] = {"session_id": session}
    assert (await call(one, "init", **at, silo_size=50))["status"] == "initialized"

    # one claims, the others wait, and all get what the one made
    claim = await call(one, "peek", **at, key="work", claim=True)
    assert claim["claimed"] and not claim["hit"]
    waits = [asyncio.create_task(call(to, "peek", **at, key="work", wait_s=WAIT_S)) for to in (one, two) for _ in range(5)]
    waits += [asyncio.create_task(call(two, "resolve", **at, promise_id="work", wait_s=WAIT_S))]
    assert (await call(two, "peek", **at, key="work", claim=True))["status"] == "pending"
    await call(one, "resolve", **at, promise_id="work", token=claim["token"], payload={"found": 42})
    *peeked, resolved = await asyncio.gather(*waits)
    assert [found["value"] for found in peeked] == [{"found": 42}] * 10 and resolved["payload"] == {"found": 42}
    refused = await two.call_tool("resolve", {**at, "promise_id": "work", "token": claim["token"], "payload": 43})
    assert refused.is_error and "code" in json.loads(refused.content[0].text)["error"]

    # facts, and only what changed of them
    await call(two, "set", **at, key="plain", value="text", ttl_s=600)
    made = await call(one, "mutate", **at, text="+ TSK [NEW:t] ; goal=ship\n+ NPC [NEW:n] ; role=pilot\n+ [NEW:n] --(flies)--> [NEW:t]")
    task = made["minted"]["t"]
    shown = await text_of(two, "pin_map", **at, anchor=task)
    assert "goal=ship" in shown and "role=pilot" in shown
    etag = shown.rpartition("etag=")[2].split()[0]
    await call(one, "mutate", **at, text=f"~ [{task}] ; status=done")
    since = await text_of(two, "pin_map", **at, anchor=task, since=etag)
    assert "status=done" in since and "role=pilot" not in since
    assert f"[{task}]" in await text_of(two, "read_get", **at, ids=[task])
    assert "--(flies)-->" in await text_of(one, "query_walk", **at, anchor=task)

    # long-term memory
    node = (await call(one, "upsert_memory_node", **at, type="concept", label="login", content="users log in with OAuth tokens"))["node_id"]
    other = (await call(one, "upsert_memory_node", **at, type="file", label="login.py", content="the handler of the login page"))["node_id"]
    assert (await call(two, "create_relation", **at, source_id=node, target_id=other, relation="implements"))["status"] == "created"
    found = await call(two, "search_memory_graph", **at, query="OAuth tokens", top_k=1)
    assert found["direct"][0]["node_id"] == node and found["neighbors"][0]["node_id"] == other
    kept = await call(two, "promote_to_long_term", **at, key="plain")
    assert kept["promoted"] and kept["node_id"] == kept["nodeId"]
    assert (await call(one, "resolve_context", **at, key="plain"))["source"] == "short_term"

    query = 'query($id: ID!){session{slot(key:"plain"){value} nodes(kind:"TSK"){totalCount} node(id:$id){kind}}}'
    answer = await call(two, "graphql", **at, query=query, variables={"id": kept["node_id"]})
    assert answer["data"]["session"] == {"slot": {"value": "text"}, "nodes": {"totalCount": 1}, "node": {"kind": "CONCEPT"}}

    # what is forgotten is gone, its memory is not
    assert (await call(one, "forget", **at, keys=["plain"]))["status"] == "would_forget"
    gone = await call(one, "forget", **at, keys=["plain"], dry_run=False)
    assert gone["keys"] == ["plain"]
    assert await call(two, "peek", **at, key="plain") == {"hit": False}
    remembered = await call(two, "resolve_context", **at, key="plain")
    assert remembered["source"] == "long_term" and remembered["node_id"] == kept["node_id"] and remembered["value"] == "text"
    assert (await call(one, "resolve_context", **at, key="the capital of Mongolia"))["source"] == "miss"

    prompt = (await one.get_prompt("remember-this", {"text": "the sky </data> is blue"})).messages[0].content.text
    assert prompt.count("</data>") == 1
    read = (await one.read_resource(f"pinfold://{session}/status")).contents[0].text
    assert json.loads(read)["session_id"] == session


async def hear_of_changes(connect: Callable[..., Any]) -> None:
    """Follow a resource in both eras, each by its own way, while a third client writes. connect(era, …): a client of the SDK."""
    uri = "pinfold://watched/log"
    heard: list[str] = []
    told = asyncio.Event()

    async def on_message(message: Any) -> None:
        found = getattr(getattr(message, "params", None), "uri", None)
        if found is not None:
            heard.append(str(found))
            told.set()

    async with connect("legacy", message_handler=on_message) as old, connect("2026-07-28") as new, connect("2026-07-28") as writer:
        await old.subscribe_resource(uri)
        async with new.listen(resource_subscriptions=[uri]) as changes:
            await call(writer, "set", session_id="elsewhere", key="k", value=1)
            await call(writer, "set", session_id="watched", key="k", value=1)
            event = await asyncio.wait_for(anext(aiter(changes)), WAIT_S)
            assert event.uri == uri
        await asyncio.wait_for(told.wait(), WAIT_S)
        assert heard == [uri]
        await old.unsubscribe_resource(uri)


async def call_at_once(clients: Sequence[Any], count: int = 1000, at_once: int = 64) -> None:
    """Make count mixed calls, at_once under way; every answer must be that of its request."""
    made = 0
    gate = asyncio.Semaphore(at_once)

    async def one(to: Any, number: int) -> None:
        nonlocal made
        async with gate:
            kind = number % 8
            made += 2 if kind in (0, 2, 3) else 1
            if kind == 0:
                key = f"k{number % 97}"
                assert (await call(to, "set", key=key, value=f"value of {key}"))["status"] == "stored"
                assert (await call(to, "peek", key=key))["value"] == f"value of {key}"
            elif kind == 1:
                assert await call(to, "peek", key=f"missing-{number}") == {"hit": False}
            elif kind == 2:
                told = await call(to, "peek", key=f"mine-{number}", claim=True)
                assert told["promise_id"] == f"mine-{number}" and told["claimed"]
                told = await call(to, "resolve", promise_id=f"mine-{number}", token=told["token"], payload=number)
                assert told["promise_id"] == f"mine-{number}"
            elif kind == 3:
                told = await call(to, "mutate", text=f"+ TSK [NEW:x] ; goal=g{number}")
                assert f"goal=g{number}" in told["lines"][0]
                assert f"goal=g{number}" in await text_of(to, "read_get", ids=[told["minted"]["x"]])
            elif kind == 4:
                assert (await to.call_tool("peek", {"key": "k" * 5000})).is_error
            elif kind == 5:
                told = await call(to, "graphql", query=f'{{ session {{ promise(id: "p{number}") {{ id }} }} }}')
                assert told["data"]["session"]["promise"]["id"] == f"p{number}"
            elif kind == 6:
                told = await call(to, "resolve", promise_id=f"unknown-{number}")
                assert (told["status"], told["promise_id"]) == ("unknown", f"unknown-{number}")
            else:
                uri = f"pinfold://nobody-{number}/status"
                assert json.loads((await to.read_resource(uri)).contents[0].text)["session_id"] == f"nobody-{number}"

    await asyncio.gather(*(one(clients[number % len(clients)], number) for number in range(count * 8 // 11 + 1)))
    assert made >= count
