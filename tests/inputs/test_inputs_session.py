"""What callers see of inputs: fresh and stale hits, one recomputation, other sessions, versions, pin maps, unique keys."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from pinfold import AsyncSession, Hit, Memory, Miss, Pending, Session
from pinfold.errors import PinfoldError, Refused
from pinfold.state.outcomes import Claimed


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def code_of(refused: pytest.ExceptionInfo[PinfoldError]) -> str:
    return refused.value.code


def test_a_stale_value_is_a_hit_that_says_so_and_no_hit_where_it_must_be_fresh(session: Session) -> None:
    Path("a.py").write_text("1")
    session.set("sum", 1, inputs=["file:a.py"])
    assert session.peek("sum") == Hit(1, 0)
    Path("a.py").write_text("22")
    assert session.peek("sum") == Hit(1, 0, False, ("a.py",))
    assert session.peek("sum", fresh=True) == Miss()
    assert type(session.claim("sum")) is Hit
    claim = session.claim("sum", fresh=True)
    assert type(claim) is Claimed
    assert type(session.peek("sum", fresh=True)) is Pending
    assert type(session.claim("sum", fresh=True)) is Pending
    assert session.peek("sum").stale, "who does not mind still gets it"
    session.fulfil(claim, 2)
    assert session.peek("sum", fresh=True) == Hit(2, 0)
    Path("a.py").write_text("333")
    assert session.peek("sum").because == ("a.py",), "a value made anew rests on what the one before rested on"


def test_a_set_without_inputs_rests_on_nothing(session: Session) -> None:
    session.set("a", 1)
    session.set("b", 1, inputs=["slot:a"])
    session.set("b", 2)
    session.set("a", 2)
    assert session.stale() == []


def test_a_value_that_is_made_again_as_it_was_changes_nothing(session: Session) -> None:
    session.set("a", "x")
    session.set("b", 1, inputs=["slot:a"])
    session.set("a", "y")
    assert [row.name for row in session.stale()] == ["slot:b"]
    session.set("a", "x")
    assert session.stale() == []


@pytest.mark.requirement("made-anew-once")
def test_once_makes_a_stale_value_anew_exactly_once_among_many(session: Session) -> None:
    Path("a").write_text("1")
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    def work() -> None:
        results.append(session.once("k", make, inputs=["file:a"], timeout_s=30))

    for round_ in range(3):
        Path("a").write_text("1" * (round_ + 1))
        results: list[int] = []
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == [round_] * 6
    assert made == [0, 1, 2]
    assert session.once("k", make) == 2
    Path("a").write_text("changed for good")
    assert session.once("k", make, fresh=False) == 2


def test_inputs_count_as_they_were_when_the_work_began(session: Session) -> None:
    Path("a").write_text("1")

    def make() -> str:
        Path("a").write_text("changed meanwhile")
        return "made of 1"

    session.once("k", make, inputs=["file:a"])
    assert session.peek("k").stale
    noted = session.note("file:a")
    Path("a").write_text("x")
    session.set("j", 1, inputs=noted)
    assert session.peek("j").stale


def test_other_inputs_than_before_are_other_work(session: Session) -> None:
    session.set("a", 1)
    session.set("b", 1)
    made: list[int] = []
    for inputs in (["slot:a"], ["slot:a"], ["slot:a", "slot:b"], ["slot:b", "slot:a"], ["slot:b"], ["version:p=1"], ["version:p=1"], ["version:p=2"]):
        session.once("k", lambda: made.append(1), inputs=inputs)
    assert len(made) == 5


def test_a_failed_recomputation_leaves_the_stale_value_and_the_next_tries_again(session: Session) -> None:
    session.set("a", 1)
    session.once("k", lambda: "old", inputs=["slot:a"])
    session.set("a", 2)
    with pytest.raises(ZeroDivisionError):
        session.once("k", lambda: 1 / 0, inputs=["slot:a"])
    assert session.peek("k").value == "old" and session.peek("k").stale
    assert session.once("k", lambda: "new", inputs=["slot:a"]) == "new"


def test_cached_functions_and_async_sessions_know_inputs_too(session: Session) -> None:
    Path("f").write_text("1")
    calls: list[str] = []

    @session.cached(inputs=lambda path: [f"file:{path}"])
    def read(path: str) -> str:
        calls.append(path)
        return Path(path).read_text()

    assert [read("f"), read("f")] == ["1", "1"]
    Path("f").write_text("22")
    assert [read("f"), read("f")] == ["22", "22"] and len(calls) == 2

    async def work() -> None:
        other = AsyncSession(session)

        async def make() -> str:
            calls.append("async")
            return "v"

        await other.once("k", make, inputs=["file:f"])
        Path("f").write_text("333")
        assert (await other.peek("k")).stale and (await other.peek("k", fresh=True)) == Miss()  # type: ignore[union-attr]
        await other.once("k", make)
        assert calls.count("async") == 2

    asyncio.run(work())


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("slot:nothing", "no_such_input"), ("row:T9", "no_such_input"), ("file:nothing", "no_such_input"), ("tree:nothing", "no_such_input"),
        ("session:other/row:T1", "no_such_input"), ("version:unset", "no_such_input"), ("url:https://example.org/a", "no_such_input"),
        ("T9", "bad_input"), ("", "bad_input"), ("file:", "bad_input"), ("session:x", "bad_input"), ("session:x/file:y", "bad_input"),
        ("version:=1", "bad_input"), ("session:no name/row:T1", "bad_session_name"), ("session:other@1/row:T1", "bad_session_name"),
        ("slot:self", "input_cycle"),
    ],
)  # fmt: skip
def test_what_is_not_there_cannot_be_rested_on(session: Session, given: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        session.set("self", 1, inputs=[given])
    assert code_of(refused) == code
    with pytest.raises(Refused) as refused:
        session.once("self", lambda: pytest.fail("the work was begun"), inputs=[given])
    assert code_of(refused) == code
    assert session.peek("self") == Miss() and session.keys() == []


@pytest.mark.requirement("no-rings")
def test_a_cycle_is_refused_with_its_path(session: Session) -> None:
    session.set("a", 1)
    session.set("b", 1, inputs=["slot:a"])
    session.mutate("+ T [T1] ; x=1", inputs=["slot:b"])
    session.set("c", 1, inputs=["row:T1"])
    with pytest.raises(Refused) as refused:
        session.set("a", 2, inputs=["slot:c"])
    assert code_of(refused) == "input_cycle"
    assert refused.value.path == ["slot:a", "slot:c", "row:T1", "slot:b", "slot:a"]
    with pytest.raises(PinfoldError) as refused_lines:
        session.mutate("# fine\n+ T [T2]\n+ [T2] --(derived_from)--> [T1]\n+ [T1] --(derived_from)--> [T2]")
    assert code_of(refused_lines) == "input_cycle" and refused_lines.value.problems[0].line in (3, 4)


def test_files_are_judged_by_content_not_by_their_times(session: Session) -> None:
    path = Path("a.txt")
    path.write_bytes(b"one")
    os.utime(path, ns=(10**18, 10**18))
    session.set("k", 1, inputs=["file:a.txt"])
    os.utime(path, ns=(10**18 + 5, 10**18 + 5))
    assert not session.peek("k").stale
    path.write_bytes(b"two")
    assert session.peek("k").because == ("a.txt",)
    path.write_bytes(b"one")
    assert not session.peek("k").stale, "it is what it was"
    path.unlink()
    assert session.peek("k").because == ("a.txt gone",)
    path.mkdir()
    assert session.peek("k").because == ("a.txt gone",)


def test_a_file_whose_stat_is_as_it_was_is_not_read(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from pinfold import inputs

    Path("a").write_text("x")
    os.utime("a", ns=(10**18, 10**18))
    monkeypatch.setattr(inputs, "RACY_NS", -(10**19))
    session.set("k", 1, inputs=["file:a"])
    monkeypatch.setattr(inputs, "_digest", lambda *_: pytest.fail("the file was read"))
    assert not session.peek("k").stale
    Path("a").write_text("longer")
    assert session.peek("k").stale


def test_rows_of_another_session_and_what_they_rest_on(memory: Memory) -> None:
    here, there, third = memory.session("here"), memory.session("there"), memory.session("third")
    third.set("x", 1)
    there.mutate("+ T [T1] ; a=1", inputs=["session:third/slot:x"])
    here.set("k", 1, inputs=["session:there/row:T1"])
    assert here.stale() == []
    third.set("x", 2)
    assert here.peek("k").because == ("session:there/row:T1 stale",)
    there.reaffirm("T1")
    assert here.stale() == []
    there.mutate("- T1")
    assert here.peek("k").because == ("session:there/row:T1 gone",)


def test_sessions_that_rest_on_each_other_come_to_an_end(memory: Memory) -> None:
    a, b = memory.session("a"), memory.session("b")
    a.mutate("+ T [T1] ; x=1")
    b.mutate("+ T [T1] ; x=1", inputs=["session:a/row:T1"])
    a.mutate("~ [T1] ; y=1", inputs=["session:b/row:T1"])
    assert [row.name for row in b.stale()] == ["row:T1"]
    a.stale()


def test_versions_and_etags_are_what_the_caller_says(session: Session) -> None:
    session.set("answer", 42, inputs=["version:prompt=7", "url:https://example.org/a?b=c etag=W/1"])
    assert session.stale() == []
    session.set_version("prompt", "7")
    assert session.stale() == []
    session.set_version("prompt", "8")
    assert session.peek("answer").because == ("version:prompt now 8",)
    session.set_version("prompt", None)
    session.set_version("url:https://example.org/a?b=c", "W/2")
    assert session.peek("answer").because == ("url:https://example.org/a?b=c now W/2",)
    session.set_version("prompt", "9")
    session.set("other", 1, inputs=["version:prompt"])
    assert not session.peek("other").stale


def test_inputs_survive_a_snapshot_a_text_file_a_fork_and_another_process(sqlite_url: str, open_memory, tmp_path: Path) -> None:
    first = open_memory(sqlite_url)
    session = first.session("s")
    session.set("a", 1)
    session.set("b", 1, inputs=["slot:a"])
    session.mutate("+ T [T1] ; x=1\n+ T [T2]\n+ [T2] --(derived_from)--> [T1]")
    session.mutate("- T1")
    session.set("a", 2)
    stale = {row.name: row.because for row in session.stale()}
    assert stale == {"slot:b": ("slot:a",), "row:T2": ("T1 gone",)}
    session._replica.compact()
    first.save("s", str(tmp_path / "s.txt"))
    for other in (open_memory(sqlite_url).session("s"), first.fork("s", "f"), first.load(str(tmp_path / "s.txt"), "g")):
        assert {row.name: row.because for row in other.stale()} == stale


def test_what_expires_or_is_pruned_is_told(session: Session) -> None:
    session.mutate("+ T [T1] ; ttl=1s\n+ T [T2]\n+ [T2] --(derived_from)--> [T1]")
    replica = session._replica
    later = replica.now_ms() + 5_000
    replica.now_ms = lambda: later  # type: ignore[method-assign]
    assert session.stale()[0].because == ("T1 gone",)
    session.mutate("~ [T2] ; x=1")  # housekeeping removes T1 and the edge along with it
    assert "T1" not in replica.state.graph.nodes
    assert session.stale()[0].because == ("T1 gone",)


@pytest.mark.parametrize("how", ["dropped", "flushed", "forgotten", "expired", "evicted", "its session ended"])
@pytest.mark.requirement("staleness")
def test_a_slot_that_is_gone_is_told_however_it_went(memory: Memory, how: str) -> None:
    there, here = memory.session("there", silo_size=2), memory.session("here")
    there.set("a", 1, ttl_s=60)
    here.set("b", 1, inputs=["session:there/slot:a"])
    there.mutate("+ T [T1]", inputs=["slot:a"])
    assert here.stale() == there.stale() == []
    if how == "dropped":
        there.drop("a")
    elif how == "flushed":
        there.flush()
    elif how == "forgotten":
        there.forget("a", erase=True)
    elif how == "expired":
        later = there._replica.now_ms() + 61_000
        there._replica.now_ms = lambda: later  # type: ignore[method-assign]
    elif how == "evicted":
        for key in "xyz":
            there.set(key, 1)
    else:
        memory.end("there")
    assert [row.because for row in here.stale()] == [("session:there/slot:a gone",)]
    if how != "its session ended":
        assert [row.because for row in there.stale()] == [("slot:a gone",)]


def test_who_settles_a_claim_says_what_it_was_made_from(session: Session) -> None:
    session.set("a", 1)
    claim = session.claim("b")
    assert type(claim) is Claimed
    with pytest.raises(Refused) as refused:
        session.fulfil(claim, 1, inputs=["slot:none"])
    assert code_of(refused) == "no_such_input" and type(session.peek("b")) is Pending, "the claim is still held"
    session.fulfil(claim, 1, inputs=["slot:a"])
    assert session.stale() == []
    session.set("a", 2)
    assert session.peek("b") == Hit(1, 1, False, ("slot:a",))


def test_undo_gives_the_input_back(session: Session) -> None:
    session.mutate("+ T [T1] ; x=1\n+ T [T2]\n+ [T2] --(derived_from)--> [T1]")
    gone = session.mutate("- T1").seq
    assert session.stale()
    session.undo(gone)
    assert session.stale() == []
    session.mutate("~ [T1] ; x=2")
    assert session.stale()[0].because == ("T1",)


# --- showing --------------------------------------------------------------------------------------------------------


def test_a_pin_map_says_what_is_stale_within_its_budget(session: Session) -> None:
    rows = "\n".join(f"+ T [T{n}] ; goal=number {n}\n+ [T{n}] --(derived_from)--> [E7]" for n in range(1, 30))
    session.mutate(f"+ EVT [E7] ; what=window\n+ EVT [E8] ; what=x\n{rows}")
    fresh = session.pin_map("E7", budget_tokens=400)
    assert "# stale" not in fresh.text
    session.mutate("~ [E7] ; what=moved")
    for budget in (64, 100, 200, 400, 2000):
        shown = session.pin_map("E7", budget_tokens=budget)
        notes = [line for line in shown.text.splitlines() if line.startswith("# stale ")]
        assert shown.tokens <= budget
        for line in notes:
            assert line == f"# stale {line.split()[2]} because E7" and line.split()[2] in shown.ids
        if budget == 2000:
            assert len(notes) == 29
        elif budget == 400:
            assert notes and "# stale: " in shown.text
    again = session.pin_map("E7", budget_tokens=2000, since=shown.etag)
    assert again.delta and "# stale T1 because E7" in again.text
    with pytest.raises(PinfoldError):
        session.mutate(shown.text)  # nothing displayed is an op


def test_names_cannot_become_lines(session: Session) -> None:
    key = 'k\n- T1 ; "x'
    session.set(key, 1)
    session.mutate("+ T [T1] ; a=1", inputs=[f"slot:{key}"])
    session.set(key, 2)
    lines = session.pin_map("T1").text.splitlines()
    assert len(lines) == 4 and lines[2].startswith("# stale T1 because ")


def test_superseded_rows_leave_pin_maps_and_lists_but_not_history(session: Session) -> None:
    session.mutate("+ T [T1] ; x=1\n+ T [T2] ; x=2\n+ T [T3]\n+ [T3] --(relates_to)--> [T1]\n+ [T3] --(relates_to)--> [T2]\n+ [T2] --(derived_from)--> [T1]")
    before = session.status().seq
    session.supersede("T1", "T2")
    assert session.pin_map("T3").ids == ("T3", "T2", "E2")
    assert "superseded_by=T2" in session.pin_map("T1").text, "asked for by name it is shown"
    assert [item.id for item in session.find().items] == ["T2", "T3"]
    assert [item.id for item in session.find(superseded=True).items] == ["T1", "T2", "T3"]
    assert "T1" in session.at(before).pin_map("T3").ids
    assert session.stale() == [], "what took its place was made from it, and stands"
    assert session.why("T1").superseded_by == "T2"
    session.mutate("~ [T1] ; superseded_by=")
    assert "T1" in session.pin_map("T3").ids
    with pytest.raises(PinfoldError) as refused:
        session.mutate("~ [T1] ; superseded_by=T9")
    assert code_of(refused) == "no_such_row"


def test_rows_hold_from_and_until(session: Session) -> None:
    session.mutate("+ T [T1] ; valid_from=2020-01-01 ; valid_until=2021-01-01\n+ T [T2] ; valid_from=2021-01-01\n+ T [T3]\n+ [T3] --(relates_to)--> [T1]")
    now_ms = session._replica.now_ms()
    assert {item.id for item in session.at(at_ms=now_ms).find().items} == {"T2", "T3"}
    assert "T1" not in session.at(at_ms=now_ms).pin_map("T3").ids
    assert {item.id for item in session.at(session.status().seq).find().items} == {"T1", "T2", "T3"}
    assert {item.id for item in session.find(since="2020-06-01", until="2020-07-01").items} == {"T1"}
    assert {item.id for item in session.find(since="2022-01-01").items} == {"T2", "T3"}
    assert {item.id for item in session.find(until="2020-12-31").items} == {"T1"}
    with pytest.raises(PinfoldError) as refused:
        session.mutate("~ [T3] ; valid_from=soon")
    assert code_of(refused) == "bad_time"
    with pytest.raises(PinfoldError) as refused:
        session.find(since="soon")
    assert code_of(refused) == "bad_argument"


def test_two_live_rows_cannot_claim_one_unique_key(session: Session) -> None:
    session.mutate('SCHEMA TSK ; fields="id code site" ; unique="code site"')
    assert session.schema() == ["SCHEMA TSK ; fields=id code site ; unique=code site"]
    session.mutate("+ TSK [A] ; code=7 ; site=x\n+ TSK [B] ; code=7 ; site=y\n+ TSK [C] ; code=7\n+ TSK [D] ; code=7")
    with pytest.raises(PinfoldError) as refused:
        session.mutate("# a remark\n+ TSK [NEW] ; code=1 ; site=z\n+ TSK [NEW] ; code=7 ; site=x")
    assert code_of(refused) == "unique_conflict" and refused.value.problems[0].line == 3 and refused.value.rows == ["A", "TSK2"]
    with pytest.raises(PinfoldError):
        session.mutate("~ [C] ; site=y")
    with pytest.raises(PinfoldError):
        session.mutate("+ TSK [E] ; code=9 ; site=q\n+ TSK [F] ; code=9 ; site=q")
    session.mutate("+ TSK [A2] ; code=7 ; site=x\n~ [A] ; superseded_by=A2")
    session.mutate("- B\n~ [C] ; site=y")
    session._replica.reload()
    with pytest.raises(PinfoldError):
        session.mutate("~ [D] ; site=y")
    assert session.conflicts() == []


def test_a_key_declared_unique_later_is_reported_not_refused(session: Session) -> None:
    session.mutate("+ TSK [A] ; code=7\n+ TSK [B] ; code=7")
    session.mutate('SCHEMA TSK ; fields="id code" ; unique=code')
    assert [(row.kind, row.key, row.ids) for row in session.conflicts()] == [("TSK", {"code": "7"}, ["A", "B"])]
    session.supersede("A", "B")
    assert session.conflicts() == []
    with pytest.raises(PinfoldError) as refused:
        session.mutate('SCHEMA TSK ; fields="id" ; unique="none"')
    assert code_of(refused) == "unknown_field"


def test_why_and_refresh_list_tell_the_whole_way(session: Session) -> None:
    Path("a.py").write_text("1")
    session.set("parsed", 1, inputs=["file:a.py"])
    session.mutate("+ T [T1] ; a=1", inputs=["slot:parsed", "file:a.py"])
    session.set("report", 1, inputs=["row:T1", "slot:parsed"])
    Path("a.py").unlink()
    assert [row.name for row in session.refresh_list()] == ["slot:parsed", "row:T1", "slot:report"]
    why = session.why("report")
    assert why.because == ("a.py gone",)
    here = os.getcwd()
    assert [(row.depth, row.name.replace(here, "."), row.what, row.again) for row in why.grounds] == [
        (0, "slot:report", "stale", False),
        (1, "row:T1", "stale", False),
        (2, "slot:parsed", "stale", False),
        (3, "file:./a.py", "gone", False),
        (2, "file:./a.py", "gone", False),
        (1, "slot:parsed", "stale", True),
    ]
    with pytest.raises(Refused) as refused:
        session.why("nothing")
    assert code_of(refused) == "not_found"
    assert session.reaffirm("parsed") == ["slot:parsed"]
    assert [row.name for row in session.stale()] == ["row:T1", "slot:report"]
