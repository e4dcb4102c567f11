"""Stores of every earlier format open, hold what was put into them, and go on. `tests/stores/make_format_N.py` made each."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from pinfold import Hit, Memory, Miss, Pending
from pinfold.doctor import examine
from pinfold.memory import iter_states

STORES = Path(__file__).parent / "stores"
FORMAT_1 = {
    "ended": "202c77b9c68e9f0798d34deccd642d65",
    "fork": "78d87d846d2ca24761f365e2786abae3",
    "graph": "483194afea5543f2355c9928e1f14ae4",
    "kinds": "c81d4f512037067b8af83da0d84e0fc9",
}
"""Every session, and the hash of the state it must come to."""


def large_of(script):
    spec = importlib.util.spec_from_file_location("make_store", STORES / script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LARGE


@pytest.fixture
def memory(tmp_path):
    shutil.copy(STORES / "format-1.db", tmp_path / "store.db")
    with Memory(f"sqlite:///{tmp_path}/store.db", background=False) as memory:
        yield memory


def test_format_1_comes_to_the_states_it_had(memory):
    assert dict(iter_states(memory)) == FORMAT_1
    report = examine(memory._journal)
    assert report.ok and report.formats == {"entry": 1, "snapshot": 1, "store": 1}
    assert [(row.session_id, row.entries, row.snapshots) for row in report.sessions] == [
        ("ended", 2, []),
        ("fork", 2, [2]),
        ("graph", 2, []),
        ("kinds", 20, [18]),
    ]


def test_format_1_holds_values_of_every_kind_and_promises_of_every_status(memory):
    session = memory.session("kinds")
    values = {
        "text": "zażółć 用户 🐟",
        "bytes": b"\x00\xff",
        "json": {"list": [1, 2.5, None, True], "text": "é"},
        "large": large_of("make_format_1.py"),
        "old": "current",
        "once": "asked",
        "fulfilled": "result",
        "after": "the snapshot",
        "resolved": "payload",
    }
    for key, value in values.items():
        found = session.peek(key)
        assert isinstance(found, Hit) and found.value == value, key
    assert isinstance(session.peek("gone"), Miss) and isinstance(session.peek("lapsed"), Miss) and isinstance(session.peek("registered"), Pending)
    assert (session.promise("rejected").status, session.promise("rejected").reason) == ("rejected", "no luck")
    assert session.set("once", "asked", request_id="request-1").index == session.peek("once").index and session.peek("once").value == "asked"
    assert session.status().short_term["silo_size"] == 100
    assert session.log(after=1, limit=1)[0].actor == "founder"


def test_format_1_holds_a_graph_its_schema_a_fork_and_an_ended_session(memory):
    graph, fork = memory.session("graph"), memory.session("fork")
    assert [item.line for item in graph.get("T1", "T2").items] == ["TSK [T1] ; goal=ship ; status=done", "TSK [T2] ; goal=rest"]
    assert "status=open" in graph.at(1).get("T1").items[0].line
    assert "goal=sleep" in fork.get("T2").items[0].line
    assert memory.merge("fork").seq == 3 and "goal=sleep" in graph.get("T2").items[0].line
    assert [row.session_id for row in memory.sessions(expired=True)] == ["ended"]
    assert memory.restore("ended").peek("k").value == "v"


def test_format_1_goes_on(memory):
    session = memory.session("kinds")
    claim = session.claim("more", 60)
    session.fulfil(claim, "work")
    memory.compact()
    session._replica.reload()
    assert session.peek("more").value == "work" and session.peek("large").value == large_of("make_format_1.py")
    assert examine(memory._journal).ok
