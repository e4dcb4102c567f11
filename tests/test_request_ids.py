"""A retried request over every row that takes a request_id: its first answer, or a word that it was done; never done twice."""

from __future__ import annotations

from typing import Any

import pytest

from pinfold import Memory, limits
from pinfold.errors import Refused
from pinfold.operations import TABLE, Call, run

WITH_ID = {row.name: row for row in TABLE if any(param.name == "request_id" for param in row.params)}
CALLS: dict[str, dict[str, Any]] = {
    "peek": {"key": "work", "claim": True}, "claim": {"key": "more"}, "set": {"key": "k", "value": "v"}, "resolve": {"promise_id": "job", "payload": "done"},
    "mutate": {"text": "+ TSK [NEW]"}, "add": {"text": "+ TSK [NEW]"}, "update": {"text": "~ [T1] ; n+=1"}, "delete": {"ids": ["T2"]},
    "upsert": {"type": "concept", "label": "a", "content": "x"}, "remember": {"text": "said"},
    "relation": {"source_id": "T1", "target_id": "T3", "relation": "owns"},
}  # fmt: skip


@pytest.fixture
def begun(memory: Memory) -> Memory:
    session = memory.session("s")
    session.mutate("+ TSK [T1] ; n=0\n+ TSK [T2]\n+ TSK [T3]")
    claim = session.claim("job", 60)
    CALLS["resolve"]["token"] = claim.token  # type: ignore[union-attr]
    return memory


def test_every_row_with_a_request_id_is_tried_here() -> None:
    assert CALLS.keys() == WITH_ID.keys()


@pytest.mark.requirement("request-id")
@pytest.mark.parametrize("name", CALLS)
def test_a_retry_is_answered_as_before_and_later_by_a_word_that_it_was_done(begun: Memory, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = begun.session("s")
    call = Call(begun, "s")
    asked = {**CALLS[name], "request_id": "r1"}
    first = run(WITH_ID[name], call, asked)
    seq = session.status().seq
    assert {**run(WITH_ID[name], call, asked), "lease_left_s": 0} == {**first, "lease_left_s": 0}
    monkeypatch.setattr(limits, "HISTORY_BYTES", 0)
    for n in range(2):
        session.set(f"more{n}", n)
        session._replica.compact()
    hashed = session.state_hash()
    with pytest.raises(Refused) as refused:
        run(WITH_ID[name], call, asked)
    assert refused.value.code == "already_applied" and refused.value.fields["seq"] == seq and refused.value.hint
    assert session.state_hash() == hashed and session.status().seq == seq + 2


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", ["", "x" * 129, "\ud800"])
def test_an_id_that_is_none_is_refused_before_anything_is_done(begun: Memory, name: str, wrong: str) -> None:
    before = begun.session("s").state_hash()
    with pytest.raises(Refused) as refused:
        run(WITH_ID[name], Call(begun, "s"), {**CALLS[name], "request_id": wrong})
    assert refused.value.code == "bad_option" and begun.session("s").state_hash() == before


def test_a_library_user_who_needs_the_lost_answer_is_told(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    session = memory.session("s")
    session.mutate("+ TSK [NEW]", request_id="r")
    monkeypatch.setattr(limits, "HISTORY_BYTES", 0)
    for n in range(2):
        session.set("k", n)
        session._replica.compact()
    done = session.mutate("+ TSK [NEW]", request_id="r")
    assert done.seq == 1 and len(session.find().items) == 1
    with pytest.raises(Refused) as refused:
        _ = done.minted
    assert refused.value.code == "already_applied"
    with pytest.raises(AttributeError):
        _ = done.__wrapped__
