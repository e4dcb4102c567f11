"""Forgetting and erasing: what is forgotten is gone everywhere, and what is erased is in no file any more."""

from __future__ import annotations

import pytest

from pinfold import Hit, Memory, Miss, Refused
from pinfold.state.outcomes import AlreadyApplied, Forgotten
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


@pytest.mark.parametrize("where", [{"status": {"$in": "done"}}, {"status": ["done"]}, 7, [7]])
def test_a_condition_that_is_none_forgets_nothing(where):
    with Memory("memory://") as memory:
        session = memory.session("s")
        session.mutate("+ TSK [T1] ; status=d\n+ TSK [T2] ; status=done")
        with pytest.raises(Refused) as refused:
            session.forget(where=where)
        assert refused.value.code == "bad_where" and len(session.get("T1", "T2").items) == 2


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


# --- rows ---------------------------------------------------------------------------------------------------------


def test_rows_are_forgotten_by_id_kind_filter_group_writer_and_age_with_their_edges():
    with Memory("memory://", actor="ann") as memory:
        session = memory.session("s")
        session.mutate("+ TSK [T1] ; status=done\n+ TSK [T2] ; status=open\n+ PER [P] ; name=bo\n+ [T1] --(of)--> [P]\n+ [T2] --(of)--> [P]")
        session.remember("said in private", by="Ann", group="talk")
        session.by("bob").remember("said by bob", by="Bob", group="other")
        session.set("T2", "a slot that is called like a row")
        assert session.forget("T1", dry_run=True).rows == ["T1", "E1"]
        assert session.forget("T2", dry_run=True) == Forgotten(["T2"])
        assert session.forget("row:T2", dry_run=True).rows == ["T2", "E2"]
        assert session.forget(kind="tsk", where="status=done", dry_run=True).rows == ["T1", "E1"]
        assert session.forget(group="talk", dry_run=True).rows == ["NOTE1"]
        assert session.forget(actor="bob", dry_run=True).rows == ["NOTE2"]
        assert session.forget(kind="TSK", older_than_s=3600, dry_run=True).rows == []
        assert session.graph_counts()["nodes"] == 5
        everything = session.forget(actor="ann")
        assert everything.keys == ["T2"] and set(everything.rows) == {"T1", "T2", "P", "E1", "E2", "NOTE1"}
        assert [item.id for item in session.find(form="any").items] == ["NOTE2"]
        assert session.search("said in private").direct[0].node_id == "NOTE2"
        assert "forgotten T1" in session.log()[-1].changes


def test_a_prefix_of_keys_and_a_kind_of_rows_do_not_go_together():
    with Memory("memory://") as memory, pytest.raises(Refused) as refused:
        memory.session("s").forget(prefix="a:", kind="TSK")
    assert refused.value.code == "bad_arguments"


def test_what_was_forgotten_is_not_undone():
    with Memory("memory://") as memory:
        session = memory.session("s")
        session.mutate("+ TSK [T1] ; goal=x")
        session.forget("T1")
        with pytest.raises(Refused) as refused:
            session.undo(session.status().seq)
        assert refused.value.code == "forgotten" and list(session.get("T1").missing) == ["T1"]


@pytest.mark.parametrize("compacted", [False, True])
def test_erased_rows_are_in_no_file_under_any_name_they_had(tmp_path, url, compacted):
    with Memory(url) as memory, Memory(url) as other:
        session, elsewhere = memory.session("s"), other.session("s")
        session.mutate(f"+ TSK [OLD] ; goal={SECRET}\n+ TSK [KEEP] ; goal=kept\n+ [OLD] --(of)--> [KEEP] ; note={SECRET}", request_id="first")
        session.mutate(f"~ [OLD] ; id=LATER ; goal={SECRET}!")
        session.upsert_node("concept", "KEEP", "kept too")
        elsewhere.search(SECRET)
        session.search(SECRET)
        session._recall().save()
        if compacted:
            memory.compact()
            session.mutate("+ TSK [AFTER]")
        assert files_with(tmp_path, SECRET)
        gone = session.forget("LATER", erase=True)
        assert gone.erased and set(gone.rows) == {"LATER", "E1"}
        assert files_with(tmp_path, SECRET) == [] and files_with(tmp_path, "launch") == []
        assert session.get("KEEP").items[0].line == "TSK [KEEP] ; goal=kept"
        assert type(session.mutate("+ TSK [ANY]", request_id="first")) is AlreadyApplied
        assert list(elsewhere.get("LATER", "OLD").missing) == ["LATER", "OLD"] and elsewhere.state_hash() == session.state_hash()
        assert [hit.label for hit in elsewhere.search("kept too").direct][:1] == ["KEEP"]
    with Memory(url) as again:
        assert again.session("s").get("KEEP").items[0].line == "TSK [KEEP] ; goal=kept"


def test_a_row_that_is_gone_already_is_erased_by_its_id(tmp_path, url):
    with Memory(url) as memory:
        session = memory.session("s")
        session.mutate(f"+ TSK [T1] ; goal={SECRET}")
        session.delete("T1")
        assert files_with(tmp_path, SECRET)
        assert session.forget("T1", erase=True).erased
        assert files_with(tmp_path, SECRET) == []
