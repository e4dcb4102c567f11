"""Where rows and values are shown, what can no longer be trusted says so: reads, tools, resources and word of them, GraphQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cli_runner import run as cli
from test_mcp import ERAS, WAIT_S, Talk, talk

from pinfold import Memory, Session
from pinfold.operations import BY_NAME, Call, run

DOCUMENT = """\
+ FACT [F1] ; window=Tuesday
+ CONCEPT [C1] ; label=deploy ; content="the deploy is on Tuesday"
+ CONCEPT [C2] ; label=freeze ; content="the freeze is on Monday"
+ CONCEPT [C3] ; label=colour ; content=red
+ [C1] --(derived_from)--> [F1]
+ [C2] --(derived_from)--> [C1]
+ [C2] --(near)--> [C3]
"""
DOUBTED = {"stale": True, "because": ["F1"]}
SESSION = "project-1234"


def fill(session: Session) -> None:
    """C1, C2 and the slots `plan` and `deploy` are stale; C3 and `colour` hold."""
    session.mutate(DOCUMENT)
    session.set("plan", "go on Tuesday", inputs=["row:C1"])
    session.set("colour", "red", inputs=["row:C3"])
    session.mutate("~ [F1] ; window=Thursday")


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory("memory://", background=False) as memory:
        fill(memory.session(SESSION))
        yield memory


def doubt(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a result says of being stale."""
    return {name: found[name] for name in ("stale", "because") if name in found}


def stale_lines(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("# stale"))


BOTH = ["# stale C1 because F1", "# stale C2 because F1"]


@pytest.mark.parametrize(
    ("name", "arguments", "lines"),
    [
        ("pin_map", {"anchor": ["C2"]}, BOTH),
        ("walk", {"anchor": "C2", "depth": 2}, BOTH),
        ("neighbors", {"anchor": "C2"}, BOTH[:1]),
        ("context", {"anchor": "C2", "depth": 1}, BOTH),
        ("path", {"start": "C2", "end": "F1"}, BOTH),
        ("read_get", {"ids": ["C1", "C2", "C3", "C9"]}, BOTH),
        ("read_list", {"tag": "CONCEPT"}, BOTH),
        ("traverse", {"start_node_id": "C2"}, BOTH),
    ],
)
def test_every_read_of_rows_says_which_are_stale(memory: Memory, name: str, arguments: dict[str, Any], lines: list[str]) -> None:
    call = Call(memory, SESSION)
    row = BY_NAME[name]
    assert row.text is not None
    assert stale_lines(row.text(run(row, call, arguments))) == lines
    past = {**arguments, "at": "1"}
    if "at" in {param.name for param in row.params}:
        assert stale_lines(row.text(run(row, call, past))) == [], "what was once is not stale"
    call.session.mutate("~ [C1] --(derived_from)--> [F1]\n~ [C2] --(derived_from)--> [C1]")
    assert stale_lines(row.text(run(row, call, arguments))) == []


def test_rows_values_and_memories_carry_it_as_fields(memory: Memory) -> None:
    call = Call(memory, SESSION)

    def ask(name: str, **arguments: Any) -> Any:
        return run(BY_NAME[name], call, arguments)

    for name, arguments in (("read_get", {"ids": ["C1", "C3"]}), ("read_list", {"where": ["label=*o*"]})):
        by_id = {item["id"]: item for item in ask(name, **arguments)["items"]}
        assert doubt(by_id["C1"]) == DOUBTED and doubt(by_id["C3"]) == {}
    reached = {row["node_id"]: row for row in ask("traverse", start_node_id="C2")["results"]}
    assert doubt(reached["C1"]) == DOUBTED and doubt(reached["C3"]) == {}
    for key, doubted in (("plan", DOUBTED), ("colour", {})):
        for found in (ask("peek", key=key), ask("resolve", promise_id=key), ask("resolve", promise_id=key, wait_s=1), ask("resolve_context", key=key)):
            assert doubt(found) == doubted, (key, found)
    long_term = ask("resolve_context", key="deploy")
    assert long_term["source"] == "long_term" and long_term["node_id"] == "C1" and doubt(long_term) == DOUBTED
    assert doubt(ask("resolve_context", key="the capital of Mongolia")) == {}


def test_a_long_list_of_stale_rows_is_cut_and_counted(memory: Memory) -> None:
    session = memory.session("many")
    session.mutate("\n".join(["+ T [X] ; a=1", *(f"+ T [T{n}]\n+ [T{n}] --(derived_from)--> [X]" for n in range(30))]))
    session.mutate("~ [X] ; a=2")
    lines = stale_lines(session.walk("X").text)
    assert len(lines) == 21 and "# stale: 10 more" in lines
    assert session.walk("X").text.splitlines()[-1].startswith("# pinfold: ")
    assert sum(bool(item.because) for item in session.find("T").items) == 30


def test_the_command_line_says_it_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("PINFOLD_SESSION", "test")
    with Memory(f"sqlite:///{tmp_path}/store.db") as memory:
        fill(memory.session("test"))
    assert stale_lines(cli("read", "get", "C1", "C3").text) == BOTH[:1]
    assert stale_lines(cli("query", "walk", "C2").text) == BOTH
    told = cli("resolve-context", "plan")
    assert told.out == b"go on Tuesday" and told.err.startswith("stale: plan because F1")


@pytest.mark.parametrize("era", ERAS)
def test_tools_and_resources_say_it(memory: Memory, era: str) -> None:
    async def work(to: Talk) -> None:
        for tool, arguments in (("read_get", {"ids": ["C1", "C3"]}), ("query_walk", {"anchor": "C1"}), ("pin_map", {"anchor": ["C1"]})):
            assert BOTH[0] in (await to.raw(tool, arguments)).content[0].text
        (shown,) = (await to.client.read_resource(f"pinfold://{SESSION}/pin-map/C2")).contents
        assert stale_lines(shown.text) == BOTH  # type: ignore[union-attr]
        (stale,) = (await to.client.read_resource(f"pinfold://{SESSION}/stale")).contents
        found = {row["name"]: row["because"] for row in json.loads(stale.text)["stale"]}  # type: ignore[union-attr]
        assert found == {"row:C1": ["F1"], "row:C2": ["F1"], "slot:plan": ["F1"]}

    talk(work, era, memory=memory)


def test_whoever_watches_a_pin_map_hears_that_a_slot_made_it_stale(memory: Memory) -> None:
    session = memory.session(SESSION)
    session.set("ground", "firm")
    session.mutate("+ CLAIM [K1] ; about=ground", inputs=["slot:ground"])
    memory.session("plain").mutate("+ T [T1]")

    async def work(to: Talk) -> None:
        uris = [f"pinfold://{SESSION}/pin-map/K1", f"pinfold://{SESSION}/stale", "pinfold://plain/pin-map/T1"]
        async with to.client.listen(resource_subscriptions=uris) as changes:
            await to.ask("set", session_id="plain", key="other", value=1)  # a pin map where nothing rests on anything stays as it is
            await to.ask("set", key="ground", value="shaking")
            heard = {(await asyncio.wait_for(anext(aiter(changes)), WAIT_S)).uri for _ in range(2)}
            assert heard == set(uris[:2])
        (shown,) = (await to.client.read_resource(uris[0])).contents
        assert stale_lines(shown.text) == ["# stale K1 because slot:ground"]  # type: ignore[union-attr]

    talk(work, "2026-07-28", memory=memory)


GRAPHQL = """{ session(id: "project-1234") {
  nodes(kind: "CONCEPT") { edges { node { id stale because } } }
  node(id: "C1") { stale because edges(direction: IN) { edges { node { id stale source { id because } } } } }
  edges(relation: "near") { edges { node { stale because } } }
  slots { edges { node { key stale because } } }
  slot(key: "plan") { value stale because }
} }"""


def test_graphql_has_it_on_rows_and_slots(memory: Memory) -> None:
    found = run(BY_NAME["graphql"], Call(memory, SESSION), {"query": GRAPHQL})["data"]["session"]

    def page(field: Any) -> list[Any]:
        return [edge["node"] for edge in field["edges"]]

    assert {node["id"]: node["because"] for node in page(found["nodes"])} == {"C1": ["F1"], "C2": ["F1"], "C3": []}
    assert all(node["stale"] is bool(node["because"]) for node in page(found["nodes"]))
    assert found["node"]["because"] == ["F1"] and page(found["node"]["edges"])[0]["source"] == {"id": "C2", "because": ["F1"]}
    assert page(found["edges"]) == [{"stale": False, "because": []}]
    assert {slot["key"]: slot["stale"] for slot in page(found["slots"])} == {"plan": True, "colour": False}
    assert found["slot"] == {"value": "go on Tuesday", **DOUBTED}


def test_a_page_of_graphql_is_judged_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[str]] = []
    judge = Session._doubts
    monkeypatch.setattr(Session, "_doubts", lambda self, names: (looked.append(list(names)), judge(self, looked[-1]))[1])

    def page(fields: str) -> list[list[str]]:
        looked.clear()
        run(BY_NAME["graphql"], Call(memory, SESSION), {"query": '{session(id:"project-1234"){' + fields + "}}"})
        return looked

    assert page("nodes(first:4){edges{node{stale because}}}") == [["row:C1", "row:C2"]], "what rests on nothing is not looked at"
    assert page("slots{edges{node{stale because}}}") == [["slot:plan", "slot:colour"]]
    assert page('slot(key:"plan"){value stale because}') == [["slot:plan"]]
    assert page('slots{edges{node{key value}}} node(id:"C1"){line}') == [], "what nobody asks is not looked at"
