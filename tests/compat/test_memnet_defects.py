"""What is wrong in MemNet 0.3.2, D1 to D30 of our notes on it, is not so here: one test each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pinfold import Memory, Session
from pinfold.compat.memnet import run_memnet
from pinfold.doors.cli import main
from pinfold.errors import ConfigurationError, DocumentRefused, PinfoldError, Refused
from pinfold.journal.memory import MemoryJournal
from pinfold.state.schema import derive_id

SOURCE = Path(__file__).resolve().parents[2] / "src"
BASE = "+ TSK [T1] ; goal=ship ; status=open ; prio=3\n+ TSK [T2] ; goal=test\n+ MOD [M1] ; path=a.py\n+ E1 [T1] --(owns)--> [M1] ; note=core"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    for name in ("PINFOLD_SESSION", "PINFOLD_ACTOR", "MEMNET_SESSION", "MEMNET_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    memory = Memory()
    yield memory
    memory.close()


@pytest.fixture
def work(memory: Memory) -> Session:
    session = memory.session("work")
    session.mutate(BASE)
    return session


def line(session: Session, id: str) -> str:
    return session.get(id).items[0].line


def codes(session: Session, text: str, verb: str = "mutate", **args: object) -> list[str]:
    before = session.status().seq
    with pytest.raises(DocumentRefused) as refused:
        getattr(session, verb)(text, **args)
    assert session.status().seq == before
    assert all(p.line > 0 and p.column > 0 for p in refused.value.problems)
    return [p.code for p in refused.value.problems]


# --- severity A: wrong data, hang, loss ---------------------------------------------------------------------------


def test_d01_patches_of_one_node_in_one_document_all_count(work: Session) -> None:
    work.mutate("~ [T1] ; status=done\n~ [T1] ; prio+=1\n~ [T1] ; prio+=1")
    assert line(work, "T1") == "TSK [T1] ; goal=ship ; status=done ; prio=5"


def test_d02_a_refused_document_leaves_nothing_of_itself(work: Session) -> None:
    for text in ("~ [M1] ; id=MX\n~ [T1] ; id=T2", "~ [T1] ; id=T2 ; merge=true\n- T9", "+ TSK [T7]\n+ TSK [T7]", "+ [T2] --(novel)--> [M1]\n- T9"):
        before = work.diff(0)
        codes(work, text, allow_new_relation=True)
        assert work.diff(0) == before and "novel" not in work.graph_counts()["relations"]


def test_d03_many_at_once_each_get_their_own_answer(memory: Memory) -> None:
    def ask(n: int) -> tuple[str, str]:
        made = run_memnet(["add", f"+ TSK [T{n}] ; goal={n}"], session="many", memory=memory)
        return made.stdout, run_memnet(["query", "pin-map", "--anchor", f"T{n}"], session="many", memory=memory).stdout

    with ThreadPoolExecutor(16) as pool:
        for n, (made, shown) in enumerate(pool.map(ask, range(60))):
            assert made == f"TSK [T{n}] ; goal={n}\n" and shown.startswith(f"## Nodes\nTSK [T{n}] ; goal={n}\n")


def test_d04_an_empty_document_is_answered_at_once(work: Session) -> None:
    for text in ("", "\n\n", "# only a note"):
        assert work.add(text).lines == work.update(text).lines == []


def test_d05_lines_on_standard_input_reach_the_session(memory: Memory) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pinfold", "add", "--stdin", "--session", "piped"],
        input=b"+ TSK [T1] ; goal=x\n",
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"TSK [T1]" in done.stdout and line(memory.session("piped"), "T1") == "TSK [T1] ; goal=x"


def test_d06_a_saved_session_is_whole_and_never_loaded_over_a_living_one(memory: Memory, work: Session, tmp_path: Path) -> None:
    long = "x" * 60_000
    work.mutate(f'+ TSK [{"i" * 64}] ; goal="two\\nlines " ; undeclared={long}')
    memory.save("work", str(tmp_path / "s.txt"))
    again = memory.load(str(tmp_path / "s.txt"), "again")
    ids = ("T1", "T2", "M1", "E1", "i" * 64)
    assert again.get(*ids) == work.get(*ids) and again.get("i" * 64).items[0].line.endswith(long)
    work.mutate("~ [T1] ; status=newer")
    with pytest.raises(Refused, match="alive"):
        memory.load(str(tmp_path / "s.txt"), keep_id=True)
    assert "status=newer" in line(work, "T1")


def test_d07_a_field_can_be_cleared(work: Session) -> None:
    assert work.mutate('~ [T1] ; status="" ; prio=').lines == ["TSK [T1] ; goal=ship"]


def test_d08_sums_are_exact_at_any_size(work: Session) -> None:
    work.mutate("~ [T1] ; a=100000000000000000000 ; b=12345678901234567890 ; c-=0.1")
    work.mutate("~ [T1] ; a+=1 ; b+=0 ; c-=0.2")
    assert line(work, "T1").endswith("; a=100000000000000000001 ; b=12345678901234567890 ; c=-0.3")


def test_d09_an_expired_session_can_be_brought_back() -> None:
    now = [1_800_000_000_000]
    with Memory(journal=MemoryJournal(lambda: now[0]), background=False) as memory:
        memory.session("short", ttl_s=60).mutate("+ TSK [T1] ; goal=kept")
        now[0] += 61_000
        assert memory.session("short").get("T1").items == []
        assert [row.session_id for row in memory.sessions(expired=True)] == ["short"]
        assert line(memory.restore("short"), "T1") == "TSK [T1] ; goal=kept"


# --- severity B ---------------------------------------------------------------------------------------------------


def test_d10_the_callers_environment_and_folder_count(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("+ TSK [T1] ; goal=here")
    env = {**os.environ, "MEMNET_SESSION": "mine", "MEMNET_AGENT": "ada"}
    subprocess.run([sys.executable, "-m", "pinfold", "add", "--file", "lines.txt"], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=True)
    item = memory.session("mine").get("T1").items[0]
    assert item.line == "TSK [T1] ; goal=here" and item.actor == "ada"


def test_d11_clips_are_declared_edges_keep_their_place_and_an_unknown_anchor_is_refused(work: Session) -> None:
    work.mutate("\n".join(["+ TSK [hub]", *(f"+ TSK [L{n}]" for n in range(80)), *(f"+ [hub] --(has)--> [L{n}]" for n in range(80))]))
    shown = work.pin_map("hub", max_rows=50, budget_tokens=4000)
    assert shown.edges[0] >= 20 and shown.nodes[0] < shown.nodes[1] >= 81 and f"nodes={shown.nodes[0]}/{shown.nodes[1]}" in shown.text and shown.cursor
    with pytest.raises(Refused) as refused:
        work.pin_map("hubb")
    assert refused.value.code == "not_found" and "hub" in refused.value.hint


def test_d12_what_is_written_is_what_is_shown(work: Session) -> None:
    done = work.mutate("~ E1 ; note=rescope ; weight=3\n~ [T1] ; prio+=2.5\n+ [T2] --(memberOf)--> [M1]\n+ TSK [a.b-c]\n~ [a.b-c] ; goal=x")
    assert done.lines == [
        "E1 [T1] --(owns)--> [M1] ; note=rescope ; weight=3",
        "TSK [T1] ; goal=ship ; status=open ; prio=5.5",
        "E2 [T2] --(memberOf)--> [M1]",
        "TSK [a.b-c] ; goal=x",
    ]
    assert [item.line for item in work.get("E1", "T1", "E2", "a.b-c").items] == done.lines
    for shown in done.lines:  # with an op in front it is a patch that changes nothing
        assert work.mutate(f"~ {shown.removeprefix('TSK ')}").seq == done.seq


def test_d13_a_schema_is_enforced_and_values_have_their_words_and_sizes(work: Session) -> None:
    work.mutate("SCHEMA TSK ; fields=goal status prio\nSCHEMA MOD ; fields=path\nSCHEMA relations ; names=owns")
    assert codes(work, "+ TSK [NEW] ; colour=red") == ["unknown_field"]
    assert codes(work, "+ TSK [NEW] ; recycle=forever") == ["bad_recycle"]
    assert codes(work, f"+ TSK [NEW] ; goal={'x' * 70_000}") == ["limit_exceeded"]
    assert codes(work, "+ EDG [X] ; src=T1 ; relation=NOT OK ; dist=T2", allow_new_relation=True) == ["reserved_id"]
    assert codes(work, "+ [T1] --(blocks)--> [T2]") == ["unknown_relation"]


def test_d14_an_edge_is_patched_by_what_it_joins(work: Session) -> None:
    assert work.mutate("~ [T1] --(owns)--> [M1] ; note=new").lines == ["E1 [T1] --(owns)--> [M1] ; note=new"]


def test_d15_a_hidden_row_hides_its_edges_and_no_path_leads_through_it() -> None:
    now = [1_800_000_000_000]
    with Memory(journal=MemoryJournal(lambda: now[0]), background=False) as memory:
        work = memory.session("work")
        work.mutate(f"{BASE}\n+ TSK [gone] ; ttl=1h\n+ [T1] --(via)--> [gone]\n+ [gone] --(via)--> [T2]")
        assert work.path("T1", "T2").nodes == ["T1", "gone", "T2"], "until its time has come it is there, in full"
        now[0] += 3_600_000
        for shown in (work.pin_map("T1"), work.walk("T1"), work.neighbors("T1"), work.path("T1", "T2", direction="both")):
            assert "gone" not in shown.text
        assert work.path("T1", "T2").nodes == [] and "--(via)-->" not in work.pin_map("T1", "T2").text
        with pytest.raises(Refused, match="gone"):
            work.pin_map("gone")


def test_d16_no_edge_ever_hangs(work: Session) -> None:
    assert work.delete("M1").dropped == ["M1", "E1"]
    assert codes(work, "+ [T1] --(owns)--> [nowhere]") == ["no_such_node"]
    assert codes(work, "+ [T1] --(owns)--> [NEW]") == ["no_such_label"]
    assert work.mutate("+ [T1] --(owns)--> [NEW:x]\n+ MOD [NEW:x] ; path=b.py").minted == {"#1": "E2", "x": "MOD1"}
    assert work.housekeep("dangling").lines == []


def test_d17_housekeeping_never_drops_fresh_or_persistent_rows(work: Session) -> None:
    work.mutate("+ TSK [fresh]\n+ TSK [kept] ; recycle=persistent")
    for bucket in ("stale", "orphans", "recyclable", "expired", "dangling"):
        assert work.housekeep(bucket, apply=True).dropped == []
    assert len(work.get("fresh", "kept").items) == 2


def test_d18_laws_are_text_above_the_facts_and_every_change_of_one_is_told_and_can_be_undone(work: Session) -> None:
    """They are advice here too: what is enforced is the schema. But none is lost silently: who changed it is kept."""
    work.mutate("LAW01 name=style ; constraint=no globals")
    seq = work.by("mallory").mutate("- LAW01").seq
    assert work.log()[-1].actor == "mallory" and "LAW01" in " ".join(work.log()[-1].changes)
    work.undo(seq)
    assert line(work, "LAW01") == "LAW01 name=style ; constraint=no globals"


def test_d19_laws_with_names_and_whole_dictionaries_are_accepted(work: Session) -> None:
    """That MemNet's own bundled examples are accepted is shown with the real files, in test_memnet_peer.py."""
    assert work.add("LAW-CODE01 name=SYM ; cycle=on_add\nLAW_X name=y").lines == ["LAW-CODE01 name=SYM ; cycle=on_add", "LAW_X name=y"]
    assert len(work.add("\n".join(f"+ CMD [C{n}] ; scpi=S{n}" for n in range(9269))).lines) == 9269


def test_d20_what_a_user_gets_wrong_is_no_internal_error(memory: Memory, tmp_path: Path) -> None:
    for words in (
        ["session", "open", "x", "--map-file", "/no/such/map"], ["session", "load", "--file", "/no/such/file"], ["add", "--file", "/no/such"],
        ["session", "save", "--session", "nobody", "--file", str(tmp_path / "f")], ["read", "get"], ["read", "list", "--frob"], ["query", "pin-map"],
    ):  # fmt: skip
        assert main(words) in (2, 3), words
    memory.session("work").mutate("+ TSK [T1]")
    with pytest.raises(ConfigurationError):
        memory.save("work", str(tmp_path / "no" / "folder" / "file"))
    assert main(["session", "open", "y", "--map", "SCHEMA TSK ; fields=id goal"]) == 0


def test_d21_exit_statuses_are_told_and_help_needs_nothing(work: Session) -> None:
    assert main(["--help"]) == 0
    assert main(["add", "+ TSK [T1]", "--session", "work"]) == 3
    assert main(["read", "get", "T9", "--session", "work", "--fail-on-miss"]) == 1
    done = subprocess.run([sys.executable, "-m", "pinfold", "update", "- T9", "--session", "work"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 3 and b"1:3 not_found" in done.stderr


def test_d22_nothing_has_to_listen_and_mcp_names_files_only_in_its_folders(work: Session, tmp_path: Path) -> None:
    """A command works on the store as its own user. Files over MCP are behind $PINFOLD_FILES.

    Who starts a server all the same: tests/doors/test_serve.py shows that it opens no file for a caller and what it does with
    malformed, half and silent requests; test_serve_life.py which addresses it listens on and that TCP needs a token; test_http.py
    tokens, hosts, sizes and rates of HTTP.
    """
    from pinfold.operations import BY_NAME, Call, run

    for roots in ([], [str(tmp_path / "mine")]):
        call = Call(Memory("memory://"), "w", roots=roots)
        for name in ("session_save", "session_load"):
            with pytest.raises(Refused) as refused:
                run(BY_NAME[name], call, {"file": str(tmp_path / "other")})
            assert refused.value.code == "outside_roots"


def test_d23_an_id_never_comes_back_and_a_guessed_one_is_not_minted(work: Session) -> None:
    assert work.mutate("+ CLM [NEW]").minted == {"#1": "CLM1"}
    work.mutate("- CLM1")
    assert work.mutate("+ CLM [NEW]").minted == {"#1": "CLM2"}
    assert codes(work, "+ CLM [NEW]\n+ [CLM3] --(about)--> [M1]") == ["no_such_node"], "the guess is told, not joined to a ghost"
    assert work.mutate("+ CLM [NEW:c]\n+ [NEW:c] --(about)--> [M1]").minted == {"c": "CLM3", "#1": "E2"}


def test_d24_one_line_costs_the_same_in_a_large_graph() -> None:
    """Counted, not timed: calls made and bytes allocated by a patch, a new row and a drop, in 200 rows and in 20,000."""

    def cost(rows: int) -> tuple[int, int]:
        calls = peak = 0

        def count(frame: Any, event: str, _: Any) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        with Memory("memory://", background=False) as memory:
            work = memory.session("work")
            for first in range(0, rows, 200):
                work.mutate("\n".join(f"+ N [n{n:05}] ; k={n}\n+ e{n:05} [n{n:05}] --(next)--> [n{max(first, n - 1):05}]" for n in range(first, first + 200)))
            for turn in range(3):
                for line in (f"~ [n0001{turn}] ; k=x", "+ N [NEW] ; k=y", f"- n0002{turn}"):
                    tracemalloc.start()
                    sys.setprofile(count if turn else None)  # the first turn makes what is made once
                    try:
                        work.mutate(line)
                    finally:
                        sys.setprofile(None)
                        peak = max(peak, tracemalloc.get_traced_memory()[1])
                        tracemalloc.stop()
        return calls, peak

    (few, small), (many, large) = cost(200), cost(20_000)
    assert many <= few * 1.1 and large <= small + 100_000, "a copy of 40,000 ids alone would be ten times that"


def test_d25_reads_change_nothing_that_is_told_and_writers_are_named(work: Session) -> None:
    before = work.status().seq, work.pin_map("T1").etag
    for _ in range(3):
        work.pin_map("T1"), work.get("T1"), work.walk("T1"), work.find("TSK")
    assert (work.status().seq, work.pin_map("T1").etag) == before
    work.by("ada").mutate("~ [T1] ; status=done")
    assert {row.field: row.actor for row in work.blame("T1")} == {"": None, "goal": None, "status": "ada", "prio": None}


def test_d26_dirty_input_is_cleaned_of_nothing_a_value_holds_and_every_error_has_its_place(work: Session) -> None:
    done = work.mutate("\ufeff```\r\n+ TSK [NEW] ; goal=run `make`\r\n\r\n# note\r\n```\r\n")
    assert done.lines == ["TSK [TSK1] ; goal=run `make`"]
    with pytest.raises(DocumentRefused) as refused:
        work.mutate("+ TSK [NEW] ; goal=x\n<think>\nhm\n</think>\n- T9")
    assert [(p.line, p.column, p.code) for p in refused.value.problems] == [(n, 1, "not_a_record") for n in (2, 3, 4)] + [(5, 3, "not_found")]


def test_d27_two_locators_have_two_ids() -> None:
    names = ["src/a.py", "src_a.py", "src-a/py", "src_a_py", "путь", "路径"]
    assert len({derive_id("MOD", name) for name in names}) == len(names)
    assert derive_id("MOD", "src/a.py") == derive_id("MOD", "src/a.py")


def test_d28_context_has_no_anchor_but_the_one_that_is_named(work: Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "context", "--session", "work"]) == 2
    assert "ANCHOR is missing" in capsys.readouterr().err


def test_d29_an_answer_carries_no_words_about_other_rows(work: Session) -> None:
    for n in range(20):
        work.mutate(f"+ TSK [lonely{n}]")
    done = work.mutate("~ [T1] ; status=done")
    assert done.warnings == [] and done.lines == ["TSK [T1] ; goal=ship ; status=done ; prio=3"]
    assert "lonely" not in work.pin_map("T1").text
    assert len(work.housekeep("orphans").lines) == 21, "asked for, all of them are told"


def test_d30_sessions_are_not_capped_and_can_be_closed_at_every_door(memory: Memory) -> None:
    from pinfold.operations import BY_TOOL

    for n in range(70):
        memory.session(f"s{n}").mutate("+ TSK [T1]")
    assert len(memory.sessions()) == 70 and "session_close" in BY_TOOL
    assert memory.end("s1") and main(["session", "close", "s2"]) == 0
    assert len(memory.sessions()) == 68


def test_every_refusal_in_here_has_a_code_and_a_next_step(work: Session) -> None:
    for attempt in (lambda: work.pin_map(), lambda: work.undo(99), lambda: work.housekeep("dust"), lambda: work.at(99)):
        with pytest.raises(PinfoldError) as refused:
            attempt()
        assert json.dumps(refused.value.shape()) and refused.value.code and refused.value.hint
