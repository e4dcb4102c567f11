"""MemNet's users at the command line: every verb they know works, or says what to do instead. And what a terminal shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_runner import run, twice

from pinfold.doors.screen import for_people

own_store = twice()

MAP = "@TSK: id|goal|status|recycle\n@MOD: id|path|lines\n"
LINES = "+ TSK [T1] ; goal=ship ; status=open\n+ MOD [M1] ; path=a.py\n+ E1 [T1] --(owns)--> [M1] ; note=core\n"


@pytest.fixture
def at_work(tmp_path: Path) -> Path:
    """A session with a few rows, opened as MemNet's users do; the folder with its files."""
    (tmp_path / "map.txt").write_text(MAP)
    (tmp_path / "lines.txt").write_text(LINES)
    assert run("session", "open", "test", "--map-file", str(tmp_path / "map.txt"), "--ttl", "60m").status == 0
    assert run("add", "--file", str(tmp_path / "lines.txt")).status == 0
    return tmp_path


def test_every_verb_of_memnet_works(at_work: Path) -> None:
    commands = f"""
        version | version --json | guide | guide --loose | examples | examples map | examples workflow | examples add | examples add --tag NPC
        examples path | examples agent-guide
        session resume test | session current | session current --session test | session list
        session save --file {at_work}/saved.txt | session save --file {at_work}/saved.txt --session test | session load --file {at_work}/saved.txt --ttl 60m
        read get --id T1 | read get --id T1 --tag TSK | read list | read list --tag TSK --active-only --where status=open --where goal=s*
        query pin-map --anchor T1 | query pin-map --anchor T1 --depth 2 --max-rows 50 | query warm --anchor T1 | query walk --anchor T1 --depth 3 --max-rows 9
        query context --anchor T1 --depth 2 | query neighbors T1 --depth 2 | query path T1 M1
        housekeep stats | housekeep stale | housekeep dangling | housekeep recyclable | housekeep orphans --tag TSK
        housekeep prune stale | housekeep prune orphans --tag TSK --apply
        relations list | tagmap show | tagmap fields | tagmap fields --tag TSK | session close test
    """
    for words in commands.replace("\n", "|").split("|"):
        if not words.strip():
            continue
        ran = run(*words.split())
        assert ran.status == 0, f"{words}: {ran.err}"


def test_lines_come_by_argument_by_file_and_by_standard_input(at_work: Path) -> None:
    assert run("add", "+ TSK [NEW] ; goal=one").status == 0
    assert run("add", "--stdin", stdin=b"+ TSK [NEW] ; goal=two\n").status == 0
    (at_work / "more.txt").write_text("~ [TSK1] ; status=done\n")
    assert run("update", "--file", str(at_work / "more.txt"), "--agent", "ada").status == 0
    assert run("read", "list", "TSK").text.splitlines()[1:] == ["TSK [TSK1] ; goal=one ; status=done", "TSK [TSK2] ; goal=two"]
    assert " ada  " in run("log").text


def test_a_dry_run_answers_and_writes_nothing_and_a_new_relation_is_let_in_when_asked(at_work: Path) -> None:
    before = run("status", "--json").json["seq"]
    dry = run("add", "+ TSK [NEW] ; goal=one", "--dry-run")
    assert dry.text.startswith("TSK [TSK1] ; goal=one") and run("status", "--json").json["seq"] == before
    assert run("add", "SCHEMA relations ; names=owns").status == 0
    assert run("add", "+ [M1] --(blocks)--> [T1]").status == 3
    assert run("add", "+ [M1] --(blocks)--> [T1]", "--allow-new-relation").status == 0
    assert run("relations", "list").text == "SCHEMA relations ; names=owns blocks\nblocks 1\nowns 1\n"


def test_a_row_is_deleted_by_id_and_its_edges_are_named(at_work: Path) -> None:
    assert run("delete", "--id", "M1").text == "# pinfold: dropped M1 E1\n# pinfold: seq=4\n"
    assert run("delete", "--id", "M1").status == 3


def test_pruning_that_finds_nothing_to_drop_says_so(at_work: Path) -> None:
    ran = run("housekeep", "prune", "orphans", "--apply", "--fail-on-miss")
    assert (ran.status, ran.out, ran.err) == (1, b"", "nothing\n")


def test_a_bare_ttl_is_refused_with_both_readings(at_work: Path) -> None:
    for verb in (("session", "open", "x"), ("session", "load", "--file", "f")):
        ran = run(*verb, "--ttl", "60")
        assert ran.status == 2 and "60s for seconds or 60m for minutes" in ran.err


def test_what_is_gone_names_its_successor(at_work: Path) -> None:
    for words, successor in (
        ("query context --anchor T1 --active-only", "read list --active-only"),
        ("housekeep orphans --include-tags TSK", "--tag KIND"),
        ("housekeep prune orphans --include-tags TSK,MOD", "--tag KIND"),
        ("query context", "--anchor"),
        ("map show", "tagmap show"),
        ("map fields", "tagmap fields"),
        ("session save", "--file is missing"),
        ("add", "--file F"),
        ("examples maps", "coding, story, pcb, dossier, map"),
        ("read get", "pass ids"),
        ("delete", "pass ids"),
    ):
        ran = run(*words.split())
        assert ran.status in (2, 3) and successor in ran.err, f"{words}: {ran.err}"


def test_the_session_and_the_agent_of_memnets_environment_are_heard(at_work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMNET_AGENT", "ada")
    monkeypatch.setenv("MEMNET_SESSION", "mn_1234abcd")
    assert run("add", "+ TSK [T9]").status == 0 and " ada  " in run("log").text
    monkeypatch.delenv("PINFOLD_SESSION")
    assert run("read", "get", "--id", "T1").out == b"# pinfold: no T1\n"
    assert run("session", "current", "--json").json["session_id"] == "mn_1234abcd"


def test_a_new_session_says_how_to_use_it(at_work: Path) -> None:
    opened = run("session", "open", "--map", "@CLM: id|code", "--map", "@REF: id|url")
    name = re.fullmatch(r"export PINFOLD_SESSION=(s_[0-9a-f]{8})\n", opened.err)
    assert name is not None and run("tagmap", "show", "--session", name[1]).text == "SCHEMA CLM ; fields=id code\nSCHEMA REF ; fields=id url\n"
    run("session", "save", "--file", str(at_work / "s.txt"))
    loaded = run("session", "load", "--file", str(at_work / "s.txt"))
    name = re.fullmatch(r"export PINFOLD_SESSION=(s_[0-9a-f]{8})\n", loaded.err)
    assert name is not None and run("read", "get", "T1", "--session", name[1]).text == "TSK [T1] ; goal=ship ; status=open\n"
    assert run("session", "load", "--file", str(at_work / "s.txt"), "--keep-id").status == 3  # it is alive
    assert run("session", "load", "--file", str(at_work / "s.txt"), "--keep-id", "--replace", "--ttl", "2h").status == 0
    assert run("session", "open", "test", "--json").json["ttl_s"] == 7200


def test_a_bundled_example_runs_as_the_readme_of_memnet_does(at_work: Path) -> None:
    (at_work / "m.txt").write_bytes(run("examples", "map").out)
    (at_work / "w.txt").write_bytes(run("examples", "workflow").out)
    assert run("session", "open", "town", "--map-file", str(at_work / "m.txt")).status == 0
    assert run("add", "--file", str(at_work / "w.txt"), "--session", "town").status == 0
    assert run("query", "pin-map", "--anchor", "mara", "--session", "town").text.count("\n") == 15
    for path in run("examples", "path").text.split():
        assert Path(path).is_file()
    for name in ("coding", "story", "pcb", "dossier"):
        assert "```console" in run("examples", name).text
        assert run("examples", name, "--json").json["name"] == name
    assert run("examples", "add", "--tag", "edg").text.startswith("+ [mara] --(drinks_at)-->")
    assert run("examples", "add", "--tag", "zzz").text == "+ ZZZ [NEW] ; key=value\n"


# --- terminals ----------------------------------------------------------------------------------------------------

PLAIN = re.compile(r"\x1b\[[0-9;]*m")


def test_a_pipe_gets_plain_lines_and_a_terminal_columns_and_colour(at_work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    run("add", "+ TSK [much_longer] ; goal=rest ; status=open\n+ [much_longer] --(owns)--> [M1]")
    for words in (("query", "pin-map", "M1"), ("read", "list", "TSK"), ("session", "list"), ("log",), ("relations", "list"), ("diff", "1")):
        plain, shown = run(*words), run(*words, terminal=True)
        assert "\x1b" not in plain.text and "   " not in plain.text
        assert re.sub(r"[ \t]+", " ", PLAIN.sub("", shown.text)) == re.sub(r"[ \t]+", " ", plain.text)
    shown = run("read", "list", "TSK", terminal=True).text
    assert "\x1b[36mTSK" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("read", "list", "TSK", terminal=True).text
    assert shown == "TSK [T1]          ; goal=ship ; status=open\nTSK [much_longer] ; goal=rest ; status=open\n"
    assert run("mutate", "\n".join(f"+ {line}" for line in shown.replace("[T1]", "[T7]").replace("[much", "[very").splitlines())).status == 0


def test_what_does_not_fit_the_terminal_stays_as_it_is() -> None:
    text = "TSK [a] ; goal=x ; note=1\nTSK [bbbbbbbbbbbbbbbbbbbb] ; goal=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx ; note=22\nprose"
    assert for_people("read_list", text, width=60, colour=False) == text
    assert for_people("read_list", text, width=90, colour=False) != text
    assert for_people("session_list", "a b c\nlonger x y", width=80) == "a       b  c\nlonger  x  y"


def test_a_value_never_paints_or_aligns_into_another_row() -> None:
    text = 'TSK [a] ; goal="x ; y=1" ; note=1\nTSK [bb] ; goal=z ; note=2\nLAW01 name=x\nE1 [a] --(r)--> [bb] ; k=v\nE10 [bb] --(rel)--> [a] ; k=v'
    shown = for_people("read_list", text, width=100, colour=False).split("\n")
    assert shown[:2] == ['TSK [a]  ; goal="x ; y=1" ; note=1', "TSK [bb] ; goal=z         ; note=2"]
    assert shown[3:] == ["E1  [a]  --(r)-->   [bb] ; k=v", "E10 [bb] --(rel)--> [a]  ; k=v"]
    assert PLAIN.sub("", for_people("read_list", text, width=100, colour=True)) == "\n".join(shown)
