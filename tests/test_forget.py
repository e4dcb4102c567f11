"""Forgetting and erasing: what is forgotten is gone everywhere, and what is erased is in no file any more."""

from __future__ import annotations

import pytest

from pinfold import Hit, Memory, Miss, Refused
from pinfold.state.session import state_hash

SECRET = "the-launch-code-is-0000"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def files_with(folder, needle: str) -> list[str]:
    return [path.name for path in folder.iterdir() if needle.encode() in path.read_bytes()]


def test_forget_removes_what_meets_every_condition():
    with Memory("memory://", actor="ann") as memory:
        session = memory.session("s")
        for key in ("a:1", "a:2", "b:1"):
            session.set(key, key)
        assert session.forget(prefix="a:", actor="bob", dry_run=True).keys == []
        assert session.forget(prefix="a:", actor="ann", dry_run=True).keys == ["a:1", "a:2"]
        assert session.keys() == ["a:1", "a:2", "b:1"]
        assert session.forget("b:1", prefix="a:", actor="ann").keys == ["b:1", "a:1", "a:2"]
        assert session.keys() == []


def test_forgetting_nothing_named_is_refused():
    with Memory("memory://") as memory, pytest.raises(Refused) as refused:
        memory.session("s").forget()
    assert refused.value.code == "bad_arguments"


@pytest.mark.parametrize("size", [1, 60_000])
@pytest.mark.parametrize("compacted", [False, True])
def test_erased_values_are_in_no_file_and_the_rest_is_whole(tmp_path, url, size, compacted):
    with Memory(url) as memory, Memory(url) as other:
        session, elsewhere = memory.session("s"), other.session("s")
        session.set("keep", "kept")
        session.set("gone", SECRET * size)
        session.set("gone", SECRET * size + "!")
        claim = session.claim("failed")
        session.reject(claim, SECRET)
        assert isinstance(elsewhere.peek("gone"), Hit)
        if compacted:
            memory.compact()
            session.set("after", "x")
        answer = session.forget("gone", "failed", erase=True)
        assert answer.keys == ["gone"] and answer.erased
        assert files_with(tmp_path, SECRET) == []
        assert isinstance(session.peek("gone"), Miss) and session.peek("keep").value == "kept"
        session.set("later", "y")
        assert isinstance(elsewhere.peek("gone"), Miss) and elsewhere.peek("later").value == "y"
        assert elsewhere.state_hash() == session.state_hash()
        told = [change for row in session.log() for change in row.changes]
        assert any("forgotten gone" in change for change in told)
    with Memory(url) as again:
        session = again.session("s")
        assert session.peek("keep").value == "kept" and isinstance(session.peek("gone"), Miss)


def test_a_writer_that_did_not_see_the_erasing_goes_on_without_harm(url):
    with Memory(url) as memory, Memory(url) as other:
        session, elsewhere = memory.session("s"), other.session("s")
        session.set("gone", SECRET)
        session.set("keep", "1")
        elsewhere.peek("keep")
        session.forget("gone", erase=True)
        assert elsewhere.set("theirs", "2").index == 2
        assert session.peek("theirs").value == "2"
        assert state_hash(session._replica.state) == state_hash(elsewhere._replica.state)


def test_an_erased_large_value_stays_where_another_session_holds_it(tmp_path, url):
    with Memory(url) as memory:
        mine, theirs = memory.session("mine"), memory.session("theirs")
        mine.set("k", SECRET * 5000)
        theirs.set("k", SECRET * 5000)
        mine.forget("k", erase=True)
        assert theirs.peek("k").value == SECRET * 5000
        theirs.forget("k", erase=True)
        assert files_with(tmp_path, SECRET) == []
