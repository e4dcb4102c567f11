"""GraphQL: what it reads and changes, what it refuses before running it, and that nothing sent to it breaks it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from graphql import get_introspection_query
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pinfold import Memory
from pinfold.doors import graphql as limits_of
from pinfold.doors.graphql_schema import PAGE_MAX, RESOLVERS, schema
from pinfold.errors import Refused
from pinfold.operations import BY_NAME, Call, run


def ask(memory: Memory, query: str, operation: str | None = None, **variables: Any) -> dict[str, Any]:
    found = run(BY_NAME["graphql"], Call(memory, "work"), {"query": query, "variables": variables, "operationName": operation})
    assert isinstance(found, dict) and set(found) <= {"data", "errors"} and found
    for error in found.get("errors", ()):
        assert error["message"] and error["extensions"]["code"], error
    return json.loads(json.dumps(found))


def codes(found: dict[str, Any]) -> list[str]:
    return [error["extensions"]["code"] for error in found["errors"]]


@pytest.fixture(scope="module")
def memory() -> Any:
    with Memory("memory://") as memory:
        session = memory.session("work")
        for number in range(45):
            session.set(f"k{number:02}", {"n": number})
        lines = [f"+ TSK [NEW:t{n}] ; goal=g{n} ; prio={n % 5}" for n in range(45)]
        lines += [f"+ [NEW:t{n}] --(after)--> [NEW:t0]" for n in range(1, 45)]
        session.mutate("\n".join(lines))
        session.claim("held")
        yield memory


def test_every_field_of_the_schema_resolves(memory: Memory) -> None:
    fields = {name: set(kind.fields) for name, kind in schema().type_map.items() if name in RESOLVERS}
    for name in ("Session", "Slot", "Promise", "Node", "Edge", "Law", "SessionInfo"):
        assert fields[name] <= set(RESOLVERS[name]), f"{name} has a field nobody resolves"


@pytest.mark.parametrize(("field", "total"), [("slots", 45), ("nodes", 45), ("edges", 44), ("promises", 1)])
def test_pages_hang_together(memory: Memory, field: str, total: int) -> None:
    seen: list[str] = []
    after, name = None, "key" if field == "slots" else "id"
    while True:
        page = ask(
            memory,
            f"query($a:String){{session{{{field}(first:7, after:$a){{totalCount pageInfo{{hasNextPage endCursor}} edges{{cursor node{{{name}}}}}}}}}}}",
            a=after,
        )
        page = page["data"]["session"][field]
        assert page["totalCount"] == total
        seen += [edge["node"][name] for edge in page["edges"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break
    assert len(seen) == total == len(set(seen))


def test_reads_and_changes(memory: Memory) -> None:
    found = ask(memory, '{session{node(id:"TSK1"){kind field(name:"goal") edges(direction:IN, first:2){totalCount edges{node{relation source{id}}}}}}}')
    node = found["data"]["session"]["node"]
    assert node["kind"] == "TSK" and node["field"] == "g0" and node["edges"]["totalCount"] == 44 and node["edges"]["edges"][0]["node"]["source"]["id"] == "TSK2"
    found = ask(memory, '{session{nodes(where:["prio>=3","goal=g1*"]){totalCount} pinMap(anchors:["TSK1"], budgetTokens:200){tokens text}}}')["data"]["session"]
    assert found["nodes"]["totalCount"] == 4 and found["pinMap"]["tokens"] <= 200
    done = ask(memory, 'mutation{a:claim(session:"other",key:"c"){claimed token} b:mutate(session:"other",text:"+ TSK [NEW:x] ; goal=y"){minted lines}}')[
        "data"
    ]
    assert done["a"]["claimed"] and done["b"]["minted"]["x"] in done["b"]["lines"][0]
    settled = ask(
        memory, 'mutation($v:JSON!,$t:Long){fulfil(session:"other",promiseId:"c",payload:$v,token:$t){status}}', v=[None, {"a": 1}], t=done["a"]["token"]
    )
    assert settled["data"]["fulfil"]["status"] == "resolved"
    assert memory.session("other").peek("c").value == [None, {"a": 1}]  # type: ignore[union-attr]
    assert ask(memory, '{session(id:"other"){slot(key:"c"){value} promise(id:"c"){status payload}}}')["data"]["session"]["promise"]["status"] == "RESOLVED"


def test_inputs_and_long_term_memory(memory: Memory) -> None:
    made = ask(
        memory,
        """mutation {
          ground: mutate(session: "kept", text: "+ FACT [F1] ; window=Tuesday") { seq }
          plan: set(session: "kept", key: "plan", value: "go on Tuesday", inputs: ["row:F1"]) { status }
          note: upsert(session: "kept", type: "concept", label: "freeze", content: "the deploy freeze begins on Monday")
          kept: promote(session: "kept", key: "plan", inputs: ["slot:plan"])
        }""",
    )["data"]
    assert made["note"]["status"] == "upserted" and made["kept"]["promoted"]
    ask(memory, 'mutation { mutate(session: "kept", text: "~ [F1] ; window=Thursday") { seq } }')
    found = ask(
        memory,
        """query($id: ID!) { session(id: "kept") {
          slot(key: "plan") { stale because } node(id: $id) { stale because } search(query: "deploy freeze", topK: 1)
        } }""",
        id=made["kept"]["node_id"],
    )["data"]["session"]
    assert found["slot"] == found["node"] == {"stale": True, "because": ["F1"]}
    assert [hit["node_id"] for hit in found["search"]["direct"]] == [made["note"]["node_id"]]
    claim = 'mutation($f: Boolean) { claim(session: "kept", key: "plan", fresh: $f) { hit claimed token } }'
    assert ask(memory, claim)["data"]["claim"]["hit"], "who does not ask for a fresh value gets the stale one"
    mine = ask(memory, claim, f=True)["data"]["claim"]
    again = 'mutation($t: Long) { fulfil(session: "kept", promiseId: "plan", payload: "go on Thursday", token: $t, inputs: ["row:F1"]) { status } }'
    assert mine["claimed"] and ask(memory, again, t=mine["token"])["data"]["fulfil"]["status"] == "resolved"
    assert ask(memory, '{session(id:"kept"){slot(key:"plan"){value stale}}}')["data"]["session"]["slot"] == {"value": "go on Thursday", "stale": False}


def test_refusals_carry_the_code_of_the_operation(memory: Memory) -> None:
    assert codes(ask(memory, 'mutation{fulfil(promiseId:"held",payload:1){status}}')) == ["token_required"]
    found = ask(memory, 'mutation{mutate(text:"~ [TSK999] ; a=b\\n- NO1"){seq}}')
    assert codes(found) == ["not_found"] or len(found["errors"][0]["extensions"]["errors"]) == 2
    many = ask(memory, "mutation($t:String!){mutate(text:$t){seq}}", t="\n".join(f"- NO{n}" for n in range(2000)))["errors"][0]
    assert many["message"].startswith("nothing was written: 2000 problems") and len(many["extensions"]["errors"]) == limits_of.ERRORS
    assert codes(ask(memory, '{session(id:"no/name"){id}}')) == ["bad_session_name"]
    assert codes(ask(memory, "{session{nodes(first:100000){totalCount}}}")) in (["bad_arguments"], ["query_too_costly"])
    assert codes(ask(memory, '{session{nodes(after:"x"){totalCount}}}')) == ["bad_arguments"]
    assert codes(ask(memory, "subscription{changes{seq}}")) == ["subscription_over_http"]
    for name in ("endpoint", "headers", "cache_key"):
        with pytest.raises(Refused, match=name):
            run(BY_NAME["graphql"], Call(memory, "work"), {"query": "{session{id}}", name: "https://example.org"})


DEEP = "{session" + '{node(id:"TSK1"){edges{edges{node{source' * 3 + "{id}" + "}}}}" * 3 + "}" * 4
COSTLY = "{session{nodes(first:500){edges{node{edges(first:500){edges{node{id}}}}}}}}"
CIRCLE = "query{...a} fragment a on Query{session{id} ...b} fragment b on Query{...a}"
SCHEMAS = "{" + " ".join(f"a{n}:__schema{{types{{fields{{type{{fields{{name}}}}}}}}}}" for n in range(250)) + "}"
TYPES = "{__schema{" + " ".join(f"a{n}:types{{...t}}" for n in range(700)) + "}} fragment t on __Type{fields{name args{name type{name}}}}"
BLOWN = "query{" + "...f0 " * 10 + "}" + "".join(f"fragment f{n} on Query{{{f'...f{n + 1} ' * 10}}}" for n in range(12)) + "fragment f12 on Query{session{id}}"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "bad_query"),
        ("{", "bad_query"),
        ("{nothing}", "bad_query"),
        ("{a" * 500, "query_too_deep"),
        ("{session{id}} {session{id}}", "bad_query"),
        (DEEP, "query_too_deep"),
        (COSTLY, "query_too_costly"),
        (CIRCLE, "bad_query"),
        (BLOWN, "query_too_costly"),
        (SCHEMAS, "query_too_costly"),
        (TYPES, "query_too_costly"),
        ("{" + " ".join(f"a{n}:session{{id}}" for n in range(3000)) + "}", "query_too_large"),
        ("{session{id}}" + " " * 200_000, "query_too_large"),
        ("mutation{" + " ".join(f'a{n}:set(key:"k",value:1){{status}}' for n in range(150)) + "}", "query_too_costly"),
        ("query($a:Int=500){session{nodes(first:$a){edges{node{edges(first:$a){totalCount edges{node{id}}}}}}}}", "query_too_costly"),
    ],
)
@pytest.mark.requirement("graphql-limits")
def test_what_would_cost_too_much_is_refused_before_it_runs(memory: Memory, query: str, code: str) -> None:
    began = time.monotonic()
    assert codes(ask(memory, query))[0] == code
    assert time.monotonic() - began < 20, "the refusal itself costs too much"


def test_introspection_is_within_the_limits(memory: Memory) -> None:
    assert "data" in ask(memory, get_introspection_query()) and "errors" not in ask(memory, get_introspection_query())
    assert limits_of.COST > PAGE_MAX * 10


def test_a_request_that_takes_too_long_is_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    from pinfold.doors import graphql_schema

    monkeypatch.setattr(graphql_schema, "REQUEST_S", -1.0)
    assert codes(ask(memory, "{session{id nodes{totalCount}}}"))[0] == "too_slow"


@pytest.mark.requirement("graphql-limits")
def test_an_answer_that_is_too_large_is_refused_however_it_is_asked_for() -> None:
    with Memory("memory://") as memory:
        session = memory.session("work")
        session.set("long", "v" * 1_000_000)
        session.mutate("\n".join(f"+ TSK [T{n}] ; text={'w' * 20_000}" for n in range(40)))
        values, lines = (" ".join(f"a{n}:{field}" for n in range(count)) for field, count in (("value", 450), ("line", 50)))
        for query in (f'{{session{{slot(key:"long"){{{values}}}}}}}', f"{{session{{nodes(first:40){{edges{{node{{{lines}}}}}}}}}}}"):
            found = ask(memory, query)
            assert codes(found)[0] == "answer_too_large" and len(json.dumps(found)) < 40_000_000
        session.set("wide", [["x" * 50_000] * 300])
        promise = ask(memory, '{session{promise(id:"wide"){status} slot(key:"wide"){value nextOffset sizeBytes}}}')["data"]["session"]
        assert promise["slot"]["nextOffset"] and promise["slot"]["sizeBytes"] > 15_000_000


def test_a_bug_is_told_without_its_insides(memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from pinfold.session import Session

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("a secret inside")

    monkeypatch.setattr(Session, "keys", broken)
    found = ask(memory, "{session{slots{totalCount}}}")
    assert codes(found) == ["internal"] and "secret" not in json.dumps(found)
    assert "a secret inside" in capsys.readouterr().err


WORDS = [
    *[
        "{",
        "}",
        "(",
        ")",
        "...",
        ":",
        "$",
        "!",
        "[",
        "]",
        "@",
        "query",
        "mutation",
        "subscription",
        "fragment",
        "on",
        "session",
        "nodes",
        "edges",
        "node",
        "first",
        "after",
        "id",
        "set",
        "key",
        "value",
        "claim",
        "mutate",
    ],
    *[
        "text",
        "pinMap",
        "anchors",
        "log",
        "null",
        "true",
        "1",
        "-5",
        "1e400",
        "99999999999",
        "__schema",
        "__typename",
        "@include(if:true)",
        "@defer",
        "@stream",
        "#",
        ",",
    ],
    '"',
    '"""',
    "\u0000",
    "\ud800",
    "é",
]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)),
    st.dictionaries(
        st.sampled_from(["a", "v", "first"]),
        st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)), lambda inner: st.lists(inner, max_size=3)),
    ),
)
def test_whatever_is_sent_is_answered_with_data_or_errors_with_codes(memory: Memory, query: str, variables: dict[str, Any]) -> None:
    found = run(BY_NAME["graphql"], Call(memory, "work"), {"query": query, "variables": variables})
    assert "internal" not in [error["extensions"]["code"] for error in found.get("errors", ())], (query, variables, found)


FIELDS = [
    "id",
    "seq",
    "status",
    "schema",
    "slots(first:F){totalCount edges{node{key value}}}",
    "slot(key:S){value sizeBytes}",
    "promises(first:F){totalCount}",
    "promise(id:S){status}",
    "nodes(first:F,kind:S){totalCount}",
    "nodes(first:F,where:[S]){totalCount}",
    "node(id:S){line}",
    "edges(first:F,after:S){totalCount}",
    "laws(first:F){totalCount}",
    "log(first:F,after:L){seq changes}",
    "pinMap(anchors:[S],depth:F,budgetTokens:F){text}",
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(FIELDS), min_size=1, max_size=4),
    st.text(max_size=8),
    st.integers(-(2**40), 2**40),
    st.sampled_from([-1, 0, 1, 7, 500, 501, 2**31, "null"]),
)
def test_valid_documents_with_strange_arguments_never_break(memory: Memory, fields: list[str], text: str, number: int, first: Any) -> None:
    parts = [
        part.replace(":S", ":" + json.dumps(text)).replace("[S]", f"[{json.dumps(text)}]").replace(":L", f":{number}").replace(":F", f":{first}")
        for part in fields
    ]
    query = "{session{" + " ".join(f"a{place}:{part}" for place, part in enumerate(parts)) + "}}"
    found = run(BY_NAME["graphql"], Call(memory, "work"), {"query": query})
    assert "internal" not in [error["extensions"]["code"] for error in found.get("errors", ())], (query, found)
