"""The graph of a session, over real stores: saved and loaded, forked and merged, read as it was, exported, shared by processes."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold import Memory, Session
from pinfold.dialect.parse import parse_document, parse_rows
from pinfold.errors import ConfigurationError, DocumentRefused, Refused
from pinfold.fold import load_state
from pinfold.importers import import_store
from pinfold.journal.memory import MemoryJournal
from pinfold.operations import TABLE, Call, run
from pinfold.portable import export_graph, write_whole
from pinfold.state.session import state_hash
from pinfold.testing import strategies

SMALL = "+ TSK [T1] ; goal=ship ; status=open\n+ TSK [T2] ; goal=test\n+ MOD [M1] ; path=a.py\n+ E1 [T1] --(owns)--> [M1] ; note=core\nLAW01 name=style"


def told(session: Session) -> tuple[Any, ...]:
    """Everything a session holds but promises: rows with counters and provenance, schema, slots, settings, where it stands."""
    state = session._replica.state
    slots = {key: (slot.index, session.peek(key), slot.expires_at_ms, slot.stored_at_ms, slot.actor) for key, slot in state.silo.slots.items()}
    return state.graph.dump(), state.schema.dump(), slots, state.silo.next_index, msgspec.to_builtins(state.settings), state.seq


def rows(session: Session) -> dict[str, str]:
    return {item.id: item.line for item in session.find(form="any", limit=10_000).items}


# --- what reading saved -------------------------------------------------------------------------------------------


def test_the_ledger_tells_what_pin_maps_cost_and_what_dumps_had_cost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with Memory(url) as memory:
        session = memory.session("s", silo_size=10)
        assert session.status().ledger["tokens_served"] == session.status().ledger["tokens_full"] == 0
        session.mutate("\n".join(f"+ TSK [T{n}] ; goal=the {n}th thing to do ; status=open" for n in range(400)) + "\n+ [T1] --(needs)--> [T2]")
        first = session.pin_map("T1")
        second = session.pin_map("T1", since=first.etag)
        ledger = session.status().ledger
        dump = first.tokens / len(first.ids) * 401
        assert first.tokens > second.tokens and ledger["tokens_served"] == first.tokens + second.tokens
        assert 0.5 * 2 * dump < ledger["tokens_full"] < 1.5 * 2 * dump
    with Memory(url) as memory:
        assert memory.session("s").status().ledger == ledger


# --- saved and loaded ---------------------------------------------------------------------------------------------


@given(
    st.lists(strategies.documents(), max_size=5),
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), st.one_of(strategies.values(), st.binary(max_size=9), st.lists(st.integers()))
    ),
    st.sampled_from((None, "ada", "x ; y")),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_loaded_session_is_the_saved_one(documents: list[str], slots: dict[str, Any], actor: str | None, strict: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, Memory("memory://", background=False) as memory:
        session = memory.session("s", silo_size=100, ttl_s=3600).by(actor)
        if strict:
            session.mutate("SCHEMA TSK ; fields=goal status prio n _k\nSCHEMA MOD ; fields=path ; pin=true\nSCHEMA relations ; names=owns next")
        for document in documents:
            try:
                session.mutate(document)
            except DocumentRefused:
                pass
        for key, value in slots.items():
            session.set(key, value, ttl_s=None if len(key) % 2 else 600)
        path = str(Path(folder) / "s.txt")
        memory.save("s", path)
        with Memory("memory://", background=False) as other:
            again = other.load(path, keep_id=True)
            assert told(again) == told(session)
            journaled = load_state(again._replica.journal, again._replica.id)
            assert (state_hash(journaled), journaled.inputs.given) == (again.state_hash(), again._replica.state.inputs.given)
            other.save("s", str(Path(folder) / "t.txt"))
            assert (Path(folder) / "t.txt").read_bytes() == (Path(folder) / "s.txt").read_bytes()
            grown, also = session.mutate("+ NEWKIND [NEW]" if not strict else "+ TSK [NEW]"), again.mutate("+ NEWKIND [NEW]" if not strict else "+ TSK [NEW]")
            assert (grown.minted, grown.seq) == (also.minted, also.seq), "counters go on where they stood"


def test_a_file_that_was_cut_short_makes_no_session(memory: Memory, tmp_path: Path) -> None:
    memory.session("s").mutate(SMALL)
    memory.save("s", str(tmp_path / "s.txt"))
    text = (tmp_path / "s.txt").read_text("utf-8")
    for cut in (0, 10, len(text) // 2, len(text) - 30):
        (tmp_path / "cut.txt").write_text(text[:cut], "utf-8")
        try:
            memory.load(str(tmp_path / "cut.txt"), f"cut{cut}")
        except Refused:
            assert f"cut{cut}" not in [row.session_id for row in memory.sessions()]


DYING = """
import os, sys
from pinfold.portable import write_whole
def lines():
    for n in range(100_000):
        if n == 50_000:
            os.kill(os.getpid(), 9)
        yield f"TSK [T{n}]"
write_whole(sys.argv[1], lines())
"""


def test_a_save_that_fails_or_dies_leaves_the_file_of_before(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    memory.session("s").mutate(SMALL)
    memory.save("s", str(path))
    before = path.read_bytes()

    def lines() -> Iterator[str]:
        yield "x" * 100_000
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigurationError) as refused:
        write_whole(str(path), lines())
    assert refused.value.code == "bad_path" and "No space left" in refused.value.message
    assert path.read_bytes() == before and list(tmp_path.glob("*.tmp")) == []
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")}
    assert subprocess.run([sys.executable, "-c", DYING, str(path)], env=env, timeout=60, check=False).returncode == -9
    assert path.read_bytes() == before and memory.load(str(path), "again").get("T1").items


# --- forked and merged --------------------------------------------------------------------------------------------


@pytest.fixture
def forked(memory: Memory) -> tuple[Session, Session]:
    session = memory.session("work")
    session.mutate(SMALL)
    return session, memory.fork("work", "trial")


def test_a_fork_without_its_promises_goes_its_own_way(memory: Memory) -> None:
    session = memory.session("work")
    session.mutate(SMALL)
    session.set("k", "v")
    session.claim("busy")
    seq = session.mutate("~ [T1] ; status=late").seq
    fork = memory.fork("work", "trial", at=seq - 1)
    assert rows(fork)["T1"] == "TSK [T1] ; goal=ship ; status=open" and fork.peek("k").value == "v"  # type: ignore[union-attr]
    assert fork.promise("busy").status == "unknown"
    fork.mutate("- M1")
    assert "M1" in rows(session) and "M1" not in rows(fork)
    for name, at, code in (("trial", None, "session_exists"), ("early", 0, "bad_seq"), ("late", 99, "bad_seq"), ("early", -1, "bad_seq")):
        with pytest.raises(Refused) as refused:
            memory.fork("work", name, at=at)
        assert refused.value.code == code
    with pytest.raises(Refused) as refused:
        run(next(row for row in TABLE if row.name == "session_fork"), Call(memory, "work"), {"name": "early", "at": "2020-01-01"})
    assert "had not begun" in refused.value.message
    assert sorted(row.session_id for row in memory.sessions()) == ["trial", "work"]


def test_a_merge_takes_fields_from_both_sides(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    session.mutate("~ [T1] ; status=doing\n~ E1 ; weight=3")
    fork.mutate("~ [T1] ; goal=ship it ; prio=1\n- T2\n+ [T1] --(next)--> [T1]\n~ E1 ; note=")
    done = memory.merge("trial")
    assert done.conflicts == [] and done.dropped == ["T2"]
    assert rows(session) == {
        "T1": "TSK [T1] ; goal=ship it ; status=doing ; prio=1",
        "M1": "MOD [M1] ; path=a.py",
        "E1": "E1 [T1] --(owns)--> [M1] ; weight=3",
        "E2": "E2 [T1] --(next)--> [T1]",
        "LAW01": "LAW01 name=style",
    }


def test_conflicts_are_listed_and_nothing_is_half_merged(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    session.mutate("~ [T1] ; status=here\n- T2")
    fork.mutate("~ [T1] ; status=there\n~ [T2] ; goal=changed\n+ TSK [T9] ; goal=harmless")
    before = told(session)
    done = memory.merge("trial")
    assert done.conflicts == ["# conflict T1 status: base=open here=here there=there", "# conflict T2: changed there, dropped here"]
    assert told(session) == before and done.lines == []
    fork.mutate("~ [T1] ; status=here\n- T2")
    assert memory.merge("trial").conflicts == [] and "T9" in rows(session)


def test_ids_minted_on_both_sides_are_renumbered_with_their_edges(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    session.mutate("+ CLM [NEW:a] ; text=ours\n+ [NEW:a] --(about)--> [T1]")
    fork.mutate("+ CLM [NEW:b] ; text=theirs\n+ [NEW:b] --(about)--> [M1]")
    done = memory.merge("trial")
    assert done.minted == {"CLM1": "CLM2", "E2": "E3"}
    assert rows(session)["CLM1"].endswith("text=ours") and rows(session)["CLM2"].endswith("text=theirs")
    assert rows(session)["E2"] == "E2 [CLM1] --(about)--> [T1]" and rows(session)["E3"] == "E3 [CLM2] --(about)--> [M1]"
    memory.session("other").set("k", 1)
    with pytest.raises(Refused) as refused:
        memory.merge("other")
    assert refused.value.code == "not_a_fork"


def test_edges_between_renumbered_rows_come_along_though_the_same_was_written_here(memory: Memory, forked: tuple[Session, Session]) -> None:
    for side in forked:
        side.mutate(f"+ CLM [NEW:a] ; of={side.session_id}\n+ [NEW:a] --(about)--> [T1]")
    assert memory.merge("trial").minted == {"CLM1": "CLM2", "E2": "E3"}
    assert rows(forked[0])["E2"] == "E2 [CLM1] --(about)--> [T1]" and rows(forked[0])["E3"] == "E3 [CLM2] --(about)--> [T1]"


def test_an_edge_written_on_both_sides_is_one_edge(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    session.mutate("+ mine [T1] --(next)--> [T2] ; weight=1")
    fork.mutate("+ theirs [T1] --(next)--> [T2] ; note=because")
    assert memory.merge("trial").conflicts == []
    assert rows(session)["mine"] == "mine [T1] --(next)--> [T2] ; weight=1 ; note=because" and "theirs" not in rows(session)
    fork.mutate("~ theirs ; note=else ; weight=2")
    assert memory.merge("trial").conflicts == ['# conflict mine weight: base="" here=1 there=2']


def test_a_rename_there_takes_its_edges_along_and_one_here_is_not_lost(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    fork.mutate("~ [T1] ; id=parser")
    session.mutate("~ E1 ; weight=3\n~ [T2] ; goal=more")
    assert memory.merge("trial").conflicts == []
    assert rows(session)["E1"] == "E1 [parser] --(owns)--> [M1] ; note=core ; weight=3" and "T1" not in rows(session)
    fork.mutate("~ [parser] ; id=reader")
    session.mutate("~ [parser] ; id=writer")
    assert "# conflict E1: another row stands here under this id" in memory.merge("trial").conflicts


def test_what_the_schema_here_refuses_is_a_conflict_with_its_line(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    fork.mutate("~ [T1] ; prio=1\n+ [T1] --(novel)--> [T2]")
    session.mutate("SCHEMA TSK ; fields=goal status\nSCHEMA MOD ; fields=path\nSCHEMA relations ; names=owns")
    before = told(session)
    assert memory.merge("trial").conflicts == ["# conflict ~ [T1] ; prio=1: unknown_field TSK has no field prio"]
    assert told(session) == before
    session.mutate("SCHEMA TSK ; fields=prio")
    assert memory.merge("trial").conflicts == [] and rows(session)["E2"] == "E2 [T1] --(novel)--> [T2]"


def test_merged_again_a_fork_brings_only_what_is_new(memory: Memory, forked: tuple[Session, Session]) -> None:
    session, fork = forked
    session.mutate("+ CLM [NEW:a] ; text=ours")
    fork.mutate("+ CLM [NEW:a] ; text=theirs\n+ [NEW:a] --(about)--> [T1]\n- T2")
    assert memory.merge("trial").minted == {"CLM1": "CLM2"}
    seq = session.status().seq
    assert memory.merge("trial").lines == [] and session.status().seq == seq, "nothing is new"
    fork.mutate("~ [CLM1] ; text=changed\n+ CLM [NEW:b] ; text=more\n+ [NEW:b] --(next)--> [CLM1]")
    assert memory.merge("trial").minted == {"CLM2": "CLM3"}, "CLM2 of the fork is another row than CLM2 here"
    assert [rows(session)[id] for id in ("CLM1", "CLM2", "CLM3", "E2", "E3")] == [
        "CLM [CLM1] ; text=ours", "CLM [CLM2] ; text=changed", "CLM [CLM3] ; text=more", "E2 [CLM2] --(about)--> [T1]", "E3 [CLM3] --(next)--> [CLM2]"
    ]  # fmt: skip
    assert "merged=trial" in " ".join(session.log()[-1].changes)
    session.undo(session.status().seq)
    assert "CLM3" not in rows(session) and memory.merge("trial").lines == []
    session.undo(session.status().seq)
    assert rows(session)["CLM2"] == "CLM [CLM2] ; text=changed", "a merge that was undone is brought back by undoing that"


def test_a_fork_under_the_name_of_an_older_one_is_another_fork(forked: tuple[Session, Session], memory: Memory) -> None:
    session, fork = forked
    session.mutate("+ CLM [NEW] ; text=ours")
    fork.mutate("+ CLM [NEW] ; text=theirs")
    assert memory.merge("trial").minted == {"CLM1": "CLM2"}
    memory.end("trial")
    again = memory.fork("work", "trial")
    again.mutate("~ [CLM1] ; text=changed\n+ CLM [NEW] ; text=new")
    assert memory.merge("trial").conflicts == []
    assert [rows(session)[f"CLM{n}"].partition("text=")[2] for n in (1, 2, 3)] == ["changed", "theirs", "new"]


@given(st.lists(st.lists(strategies.documents(), max_size=2), min_size=1, max_size=3), st.lists(strategies.documents(), max_size=2))
@settings(max_examples=40, deadline=None)
def test_merging_a_fork_into_an_origin_that_stands_still_gives_the_fork_each_time(rounds: list[list[str]], before: list[str]) -> None:
    with Memory("memory://", background=False) as memory:
        session = memory.session("work")
        for document in [SMALL, *before]:
            _try(session, document)
        fork = memory.fork("work", "trial")
        for documents in rounds:
            for document in documents:
                _try(fork, document)
            assert memory.merge("trial").conflicts == [] and _content(session) == _content(fork)


@given(st.lists(strategies.documents(), min_size=1, max_size=3), st.lists(strategies.documents(), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_merge_of_two_that_went_on_is_whole_or_nothing_and_leaves_nothing_to_merge(here: list[str], there: list[str]) -> None:
    with Memory("memory://", background=False) as memory:
        session = memory.session("work")
        session.mutate(SMALL)
        fork = memory.fork("work", "trial")
        for side, documents in ((session, here), (fork, there)):
            for document in documents:
                _try(side, document)
        before = told(session)
        if memory.merge("trial").conflicts:
            assert told(session) == before
        else:
            merged = _content(session)
            again = memory.merge("trial")
            assert (again.conflicts, again.lines, again.dropped) == ([], [], []) and _content(session) == merged


def _try(session: Session, document: str) -> None:
    try:
        session.mutate(document)
    except DocumentRefused:
        pass


def _content(session: Session) -> dict[str, Any]:
    from pinfold.history import content

    return {row.id: content(row) for row in session._replica.state.graph.rows()}


def test_one_name_means_that_name_and_not_its_letters(session: Session) -> None:
    session.mutate("+ TSK [T1]\n+ MOD [M1]\n+ [T1] --(owns)--> [M1]\n+ [M1] --(own)--> [T1]")
    for one, many in (("owns", ["owns"]), ("own", ("own",)), ("w", {"w"})):
        for read in (session.pin_map, session.walk, session.neighbors):
            assert read("T1", relations=one).text.splitlines()[:-1] == read("T1", relations=many).text.splitlines()[:-1]
        assert session.path("T1", "M1", relations=one, direction="both") == session.path("T1", "M1", relations=many, direction="both")
    assert session.walk("T1", relations="w").hops == [] and [hop.edge for hop in session.walk("T1", relations="owns").hops] == ["E1"]
    assert session.pin_map("T1", kinds="MOD").ids == session.pin_map("T1", kinds=["MOD"]).ids == ("T1", "M1", "E1", "E2")
    for read in (session.pin_map, session.walk, session.neighbors):
        for wrong in (5, [5], b"x"):
            with pytest.raises(Refused) as refused:
                read("T1", relations=wrong)
            assert refused.value.code == "bad_argument" and "relations=" in refused.value.message


def test_a_row_named_twice_is_dropped_once(session: Session) -> None:
    session.mutate(SMALL)
    assert session.delete("M1", "M1").dropped == ["M1", "E1"]


# --- as it was ----------------------------------------------------------------------------------------------------


def test_every_read_takes_at_a_seq_or_a_time() -> None:
    now = [1_800_000_000_000]
    with Memory(journal=MemoryJournal(lambda: now[0]), background=False) as memory:
        session = memory.session("work")
        then = session.mutate(SMALL).seq
        now[0] += 3_600_000
        session.mutate("~ [T1] ; goal=changed\n- M1\n+ [T1] --(needs)--> [T2]\nSCHEMA relations ; names=needs")
        now[0] += 3_600_000
        session.mutate("+ TSK [T3]")
        moment = datetime.datetime.fromtimestamp(1_800_000_000 + 60, datetime.UTC).isoformat()
        asked: dict[str, dict[str, Any]] = {
            "pin_map": {"anchor": ["T1"]}, "walk": {"anchor": "T1"}, "neighbors": {"anchor": "T1"}, "context": {"anchor": "T1"},
            "path": {"start": "T1", "end": "M1"}, "read_get": {"ids": ["T1", "M1"]}, "read_list": {"form": "any"}, "schema": {}, "export": {"kind": "json"},
        }  # fmt: skip
        assert {row.name for row in TABLE if any(p.name == "at" for p in row.params)} == {*asked, "session_fork", "remember"}  # when it was said
        for row in TABLE:
            if row.name in asked:
                by_seq, by_time = (run(row, Call(memory, "work"), {**asked[row.name], "at": at}) for at in (str(then), moment))
                assert by_seq == by_time, row.name
                if row.name == "path":
                    assert by_seq["nodes"] == ["T1", "M1"]
                elif row.name == "schema":
                    assert by_seq["lines"] == [] != run(row, Call(memory, "work"), {})["lines"]
                else:
                    assert by_seq != run(row, Call(memory, "work"), asked[row.name]), row.name
                    assert "goal=changed" not in json.dumps(by_seq), row.name
        read = next(row for row in TABLE if row.name == "read_get")
        for at, code in (("99", "bad_seq"), ("yesterday", "bad_time"), ("2026-01-01T00:00:00", "bad_time")):
            with pytest.raises(Refused) as refused:
                run(read, Call(memory, "work"), {"ids": ["T1"], "at": at})
            assert refused.value.code == code and refused.value.hint
        assert refused.value.hint == "a seq (41), or write 2026-01-01T00:00:00Z for UTC"
        assert run(read, Call(memory, "work"), {"ids": ["T3"], "at": "2027-01-16"})["items"], "a date is the beginning of that day in UTC"
        assert not run(read, Call(memory, "work"), {"ids": ["T3"], "at": "2027-01-15"})["items"]
        for when in ({"seq": -1}, {}, {"seq": 1, "at_ms": 1}):
            with pytest.raises(Refused):
                session.at(**when)
        assert session.at(at_ms=1_700_000_000_000).get("T1").items == [], "before it began there was nothing"


@given(st.lists(strategies.documents(), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_a_diff_turns_one_state_into_another_and_undo_into_the_one_before(documents: list[str]) -> None:
    with Memory("memory://", background=False) as memory:
        session, other = memory.session("work"), memory.session("other")
        session.mutate(SMALL)
        for document in documents:
            _try(session, document)
        last = session.status().seq
        for a in range(1, last):
            fork = memory.fork("work", f"fork{a}", at=a)
            _apply(fork, session.diff(a))
            assert _content(fork) == _content(session)
        _apply(other, session.diff(0))
        assert _content(other) == _content(session)
        if last > 1:
            session.undo(last)
            assert _content(session) == _content(memory.fork("work", "before", at=last - 1))


def test_the_first_entry_and_one_with_more_than_rows_in_it_are_undone_too(session: Session) -> None:
    first = session.mutate("+ TSK [T1] ; goal=ship").seq
    second = session.mutate("SCHEMA TSK ; fields=goal\nSCHEMA MOD ; fields=path\n+ MOD [M1] ; path=a.py").seq
    assert session.undo(second).dropped == ["M1"]
    assert session.undo(first).dropped == ["T1"]
    assert rows(session) == {} and len(session.schema()) == 2, "a schema only widens"
    with pytest.raises(Refused) as refused:
        session.undo(session.set("k", "v") and session.status().seq)
    assert refused.value.code == "nothing_to_undo"


def _apply(session: Session, document: str) -> None:
    if document:
        session.mutate(document)


def test_blame_names_the_writer_of_each_field_through_a_rename(session: Session) -> None:
    session.by("ada").mutate("+ TSK [T1] ; goal=ship ; prio=1")
    session.by("bob").mutate("~ [T1] ; prio+=1 ; id=T9")
    session.by("cy").mutate("~ [T9] ; status=open")
    assert [(row.field, row.value, row.actor) for row in session.blame("T9")] == [
        ("", "", "ada"), ("goal", "ship", "ada"), ("prio", "2", "bob"), ("status", "open", "cy"),
    ]  # fmt: skip
    with pytest.raises(Refused, match="T1"):
        session.blame("T1")


# --- exports ------------------------------------------------------------------------------------------------------


@given(st.lists(strategies.values(), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_exports_parse_whatever_the_values_are(values: list[str]) -> None:
    with Memory("memory://", background=False) as memory:
        session, other = memory.session("work"), memory.session("other")
        session.mutate(SMALL)
        graph = session._replica.state.graph
        for n, value in enumerate(values):
            from pinfold.dialect.format import format_value

            session.mutate(
                f"+ V [v{n}] ; text={format_value(value)}\n+ [T1] --(has)--> [v{n}] ; note={format_value(value)}\nLAW{n}x name={format_value(value)}"
            )
        import_text(other, export_graph(graph, "json"))
        assert _content(other) == _content(session)
        root = ElementTree.fromstring(export_graph(graph, "graphml"))
        ns = "{http://graphml.graphdrawing.org/xmlns}"
        assert len(root.findall(f".//{ns}node")) == len(graph.nodes) and len(root.findall(f".//{ns}edge")) == len(graph.edges)
        found = {node.get("id"): [data.text or "" for data in node] for node in root.findall(f".//{ns}node")}
        for n, value in enumerate(values):
            if all(char.isprintable() for char in value):
                assert found[f"v{n}"] == ["V", value]
        for kind, lines in (("dot", len(graph.nodes) + len(graph.edges) + 2), ("cypher", len(graph.nodes) + len(graph.edges))):
            text = export_graph(graph, kind)
            assert text.count("\n") + 1 == lines, "no value ends a statement"
            for each in text.split("\n"):
                assert re.fullmatch(r'(?:[^"\\]|"(?:[^"\\]|\\.)*")*', each), each


def import_text(session: Session, text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "graph.json")
        path.write_bytes(text.encode())
        import_store(session, "json", str(path))


def test_an_import_that_does_not_fit_is_named(session: Session) -> None:
    for text in (
        "",
        "{}",
        '{"format": "pinfold-graph", "version": 2}',
        '{"format": "pinfold-graph", "version": 1, "laws": [], "nodes": [{"id": 1}], "edges": []}',
    ):
        with pytest.raises(Refused) as refused:
            import_text(session, text)
        assert refused.value.code == "bad_import"


# --- shared -------------------------------------------------------------------------------------------------------


def test_if_seq_refuses_what_changed_since_and_only_that(session: Session) -> None:
    read = session.mutate(SMALL).seq
    session.by("bob").mutate("~ [T2] ; goal=other")
    assert session.mutate("~ [T1] ; status=done", if_seq=read).lines == ["TSK [T1] ; goal=ship ; status=done"]
    with pytest.raises(DocumentRefused) as refused:
        session.mutate("~ [T2] ; goal=mine\n~ [M1] ; lines=3", if_seq=read)
    (problem,) = refused.value.problems
    assert (problem.code, problem.line) == ("conflict", 1) and "TSK [T2] ; goal=other" in problem.message and "bob" in problem.message
    assert "lines=3" not in rows(session)["M1"]


@given(st.lists(strategies.documents(), min_size=1, max_size=4), st.sampled_from(("mutate", "add", "update")), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_a_dry_run_answers_what_the_real_run_does(documents: list[str], verb: str, if_seq: int) -> None:
    with Memory(journal=MemoryJournal(lambda: 1_800_000_000_000), background=False) as memory:
        session = memory.session("work")
        session.mutate(SMALL)
        for document in documents:
            args: dict[str, Any] = {} if verb == "add" else {"if_seq": if_seq or None}
            before = told(session)
            dry = _answer(session, verb, document, dry_run=True, **args)
            assert told(session) == before
            assert _answer(session, verb, document, **args) == dry


def _answer(session: Session, verb: str, document: str, **args: Any) -> Any:
    try:
        return getattr(session, verb)(document, **args)
    except DocumentRefused as refused:
        return [msgspec.to_builtins(problem) if isinstance(problem, msgspec.Struct) else tuple(problem) for problem in refused.problems]


def test_a_pasted_map_or_delta_is_refused_line_by_line_and_changes_nothing(session: Session) -> None:
    session.mutate(SMALL)
    first = session.pin_map("T1")
    session.mutate('~ [T1] ; goal=changed ; text="x ; - T1"\n- M1\n+ TSK [T5]\n+ [T1] --(needs)--> [T5]')
    delta = session.pin_map("T1", since=first.etag)
    assert "## Changed" in delta.text and "# pinfold: gone " in delta.text
    for shown in (first.text, delta.text, session.walk("T1").text, session.path("T1", "T5").text, session.neighbors("T1").text):
        before = told(session)
        lines = [line for line in shown.split("\n") if line and not line.startswith("#")]
        for verb in ("mutate", "add", "update"):
            with pytest.raises(DocumentRefused) as refused:
                getattr(session, verb)(shown)
            assert len(refused.value.problems) == len(lines)
            assert {p.code for p in refused.value.problems} <= {"present_on_mutate", "id_exists", "op_mode_mismatch"}
        assert told(session) == before
        assert all(op.op == "" or op.form == "law" for op in parse_document(shown).ops)


WRITER = """
import json, sys
from pinfold import Memory
from pinfold.errors import DocumentRefused
url, number, documents = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
accepted, refused = [], 0
with Memory(url, actor=f"w{number}", background=False) as memory:
    session = memory.session("shared")
    for n in range(documents):
        done = session.mutate(f"+ JOB [NEW:j] ; by={number} ; n={n}\\n+ [NEW:j] --(of)--> [root]\\n~ [root] ; total+=1")
        accepted.append((done.minted["j"], done.minted["#1"], number, n))
        try:
            session.mutate(f"~ [root] ; last={number}", if_seq=session.status().seq - 1)
        except DocumentRefused as conflict:
            refused += [p.code for p in conflict.problems] == ["conflict"]
json.dump([accepted, refused], sys.stdout)
"""


@pytest.mark.parametrize("processes", [8])
def test_eight_processes_mutate_one_session_and_every_accepted_document_is_there_once(sqlite_url: str, processes: int) -> None:
    documents = 6
    with Memory(sqlite_url) as memory:
        memory.session("shared").mutate("+ ROOT [root]")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src")}
    words = [sys.executable, "-c", WRITER, sqlite_url]
    started = [subprocess.Popen([*words, str(number), str(documents)], stdout=subprocess.PIPE, env=env) for number in range(processes)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in started]
    accepted = [job for jobs, _ in answers for job in jobs]
    with Memory(sqlite_url) as memory:
        session = memory.session("shared")
        assert len({id for id, *_ in accepted}) == len({edge for _, edge, *_ in accepted}) == len(accepted) == processes * documents
        found = rows(session)
        for id, edge, number, n in accepted:
            assert found[id] == f"JOB [{id}] ; by={number} ; n={n}" and found[edge] == f"{edge} [{id}] --(of)--> [root]"
            assert session.get(id).items[0].actor == f"w{number}"
        assert len(found) == 2 * len(accepted) + 1
        assert parse_rows([found["root"]]).ops[0].fields["total"] == str(processes * documents)
        assert sum(refused for _, refused in answers) == processes * documents, "each claimed to have read before its own write"


@pytest.mark.parametrize("name", ["ключ", "鍵", "مفتاح", "clé", "🔑"])
@pytest.mark.parametrize(
    "line",
    ["+ TSK [{}] ; a=1", "+ {} [NEW] ; a=1", "+ TSK [NEW] ; {}=1", "+ TSK [NEW:{}] ; a=1", "+ [{}] --(r)--> [T1]",
     "+ [T1] --(r)--> [{}]", "+ [T1] --({})--> [T1]", "~ [{}] ; a=1", "~ [T1] ; id={}", "- {}",
     "SCHEMA TSK ; fields=id {}", "SCHEMA relations ; names={}", "LAW01 {}=1"],
)  # fmt: skip
def test_a_name_in_another_script_is_refused_with_the_letters_there_are(line: str, name: str) -> None:
    with Memory("memory://") as memory:
        session = memory.session("s")
        session.mutate("+ TSK [T1] ; a=1")
        with pytest.raises(DocumentRefused) as refused:
            session.mutate(line.format(name))
        assert all("A-Z" in problem.hint for problem in refused.value.problems)
        session.mutate(f"~ [T1] ; a={name}")  # a value may be anything
