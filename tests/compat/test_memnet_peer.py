"""Side by side with MemNet 0.3.2 itself: its bundled examples, command for command, `memnet` -> `pinfold`.

MemNet is installed from PyPI into a venv of its own (tests/peers.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.peers import python_with

from pinfold import Memory
from pinfold.dialect.parse import parse_rows
from pinfold.doors.cli import main

PEER = "memnet-llm==0.3.2"

pytestmark = pytest.mark.peer

_DRIVER = """
import json, os, re, sys
from memnet.in_process_engine import run_argv
answers = []
for argv in json.load(sys.stdin):
    answers.append(run_argv(argv))
    opened = re.search(r"MEMNET_SESSION=(\\S+)", answers[-1]["stderr"])
    if opened:
        os.environ["MEMNET_SESSION"] = opened[1]
json.dump(answers, sys.stdout)
"""


class Peer(NamedTuple):
    python: Path
    examples: Path

    def run(self, *commands: str, **env: str) -> list[dict[str, Any]]:
        """Return MemNet's answers to commands, all in one process: its sessions live no longer."""
        words = json.dumps([command.split() for command in commands])
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("MEMNET", "PINFOLD", "PYTHON"))}
        done = subprocess.run([str(self.python), "-c", _DRIVER], input=words, capture_output=True, text=True, timeout=120, env={**clean, **env}, check=True)
        answers: list[dict[str, Any]] = json.loads(done.stdout)
        return answers


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest) -> Peer:
    python = python_with(request, PEER)
    (examples,) = python.parents[1].glob("**/site-packages/memnet/examples")
    return Peer(python, examples)


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[..., list[tuple[int, str, str]]]:
    """A function that runs commands here as one shell would: what `session open` exports is exported."""
    for name in ("PINFOLD_SESSION", "PINFOLD_ACTOR", "MEMNET_SESSION", "MEMNET_AGENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PINFOLD_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.chdir(tmp_path)

    def run(*commands: str) -> list[tuple[int, str, str]]:
        answers = []
        for command in commands:
            status = main(command.split())
            told = capsysbinary.readouterr()
            answers.append((status, told.out.decode(), told.err.decode()))
            opened = re.search(r"export PINFOLD_SESSION=(\S+)", answers[-1][2])
            if opened:
                monkeypatch.setenv("MEMNET_SESSION", opened[1])  # as the README has it
        return answers

    return run


def rows(text: str) -> dict[str, Any]:
    """Return what the lines of a map say, by id."""
    found = {}
    for op in parse_rows(text.split("\n")).ops:
        fields = {("note" if key == "attrs" else key): value for key, value in op.fields.items() if value}  # note=x reads as attrs=x there
        found[str(op.id)] = (op.form, op.kind, op.src, op.rel, op.dst, fields)
    return found


def holds(shown: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return bool(wanted) and all(shown.get(id) == row for id, row in wanted.items())


def readme(examples: Path) -> list[str]:
    """The quick start of MemNet's README, in this order."""
    return [
        "version",
        f"session open --map-file {examples / 'schema.example.txt'}",
        f"add --file {examples / 'workflow.example.txt'}",
        "query pin-map --anchor PLR01",
        "query warm --anchor PLR01",
        "query walk --anchor PLR01",
        "read get --id PLR01",
        "read list --tag NPC --active-only --where status=active",
        "housekeep stats",
        "relations list",
        "tagmap show",
        "session current",
    ]


def test_the_quick_start_of_memnets_readme_runs_here_and_shows_what_memnet_hides(peer: Peer, ours: Callable[..., Any]) -> None:
    commands = readme(peer.examples)
    there = peer.run(*commands)
    assert [answer["exit_code"] for answer in there] == [0] * len(commands)
    here = ours(*commands)  # without `serve`: nothing has to be started here
    assert [(status, err) for status, _, err in here if status] == []
    for place in (3, 4):  # the pin map, and its older name
        theirs, shown = rows(there[place]["stdout"]), rows(here[place][1])
        assert holds(shown, theirs)
        # E01 and E02 are delete_on_expire: there hidden from the moment they are written, so that two nodes hang on nothing
        assert sorted(shown.keys() - theirs.keys()) == ["E01", "E02"]
    walked = [set(re.findall(r"\b[A-Z]+[0-9]+\b", text)) for text in (there[5]["stdout"], here[5][1])]
    assert walked[0] <= walked[1] and {"N01", "PLR01", "TEC01", "PRD01"} <= walked[1]
    assert ours("session close")[0][0] == 0


def test_the_coding_example_is_refused_there_and_accepted_here(peer: Peer, ours: Callable[..., Any], tmp_path: Path) -> None:
    opened = f"session open --map-file {peer.examples / 'schema.coding.example.txt'}"
    added = f"add --file {peer.examples / 'workflow.coding.example.txt'}"
    refused = peer.run(opened, added, "query pin-map --anchor MOD_cli")
    assert refused[1]["exit_code"] == 1 and "invalid_line" in refused[1]["stderr"] and rows(refused[2]["stdout"]) == {}
    assert [status for status, _, _ in ours(opened, added, "query pin-map --anchor MOD_cli")] == [0, 0, 0]
    # Without the laws, which it cannot read, MemNet takes it too: the same map, where both have room for all of it.
    text = (peer.examples / "workflow.coding.example.txt").read_text("utf-8")
    lawless = tmp_path / "lawless.txt"
    lawless.write_text("".join(line for line in text.splitlines(keepends=True) if not line.startswith("LAW")), "utf-8")
    asked = [f"query pin-map --anchor {anchor} --max-rows 500" for anchor in ("MOD_cli", "TSK_mcp_session_load", "SYM_run_memnet")]
    there = peer.run(opened, f"add --file {lawless}", *asked)[2:]
    here = ours(opened, f"add --file {lawless}", *(f"{words} --budget-tokens 8000" for words in asked))[2:]
    for their, (_, our, _) in zip(there, here, strict=True):
        theirs, shown = rows(their["stdout"]), rows(our)
        assert holds(shown, theirs)
        # its delete_on_settle rows are hidden there though their status is not settled; and edges between two nodes at the rim
        extra = {id: row for id, row in shown.items() if id not in theirs}
        assert all(row[0] == "edge" or row[5].get("recycle") == "delete_on_settle" for row in extra.values()), extra


def test_the_instrument_example_exceeds_memnets_caps_and_relations_and_is_accepted_here_whole(peer: Peer, ours: Callable[..., Any]) -> None:
    opened = f"session open --map-file {peer.examples / 'schema.techdocs.example.txt'}"
    added = f"add --file {peer.examples / 'workflow.rto-remote.example.txt'}"
    assert peer.run(opened, added)[1]["exit_code"] == 1
    here = ours(opened, added, "housekeep stats", "query pin-map --anchor S_rc_intro", "query pin-map --anchor ART_rto_um --max-rows 50")
    assert [status for status, _, _ in here] == [0] * 5
    tags = re.findall(r"^@([A-Z]+):", (peer.examples / "workflow.rto-remote.example.txt").read_text("utf-8"), re.MULTILINE)
    edges, laws = tags.count("EDG"), tags.count("LAW")
    assert f"{len(tags) - edges - laws} nodes, {edges} edges, {laws} laws" in here[2][1]
    text = (peer.examples / "workflow.rto-remote.example.txt").read_text("utf-8")
    hub = Counter(re.findall(r"^@EDG: [^|]*\|([^|]*)\|", text, re.MULTILINE)).most_common(1)[0][0]
    asked = f"query pin-map --anchor {hub} --max-rows 50"
    raised = peer.run(opened, f"{added} --allow-new-relation", asked, MEMNET_MAX_BATCH_LINES="20000", MEMNET_MAX_ROWS="20000")
    assert raised[1]["exit_code"] == 0
    theirs = [row[0] for row in rows(raised[2]["stdout"]).values() if row[0] != "law"]
    assert theirs == ["node"] * 50, "there nodes crowd out every edge, and nothing says that rows were left out"
    shown = ours(f"{asked} --budget-tokens 8000")[0][1]
    forms = [row[0] for row in rows(shown).values()]
    assert forms.count("edge") >= 15 and forms.count("node") >= 15
    clip = re.search(r"# pinfold: .*nodes=(\d+)/(\d+)", shown)
    assert clip is not None and int(clip[1]) < int(clip[2])


def test_the_snapshot_of_its_own_code_fits_its_own_map_nowhere(peer: Peer, ours: Callable[..., Any]) -> None:
    opened = f"session open --map-file {peer.examples / 'schema.coding.example.txt'}"
    added = f"add --file {peer.examples / 'workflow.memnet-codebase.snap.txt'}"
    there, here = peer.run(opened, added)[1], ours(opened, added)[1]
    assert there["exit_code"] == 1 and here[0] == 3
    assert "MOD has 5 columns, this row 6" in here[2], "each of its rows is named"


def test_rows_of_a_session_saved_by_memnet_are_loaded(peer: Peer, ours: Callable[..., Any], tmp_path: Path) -> None:
    saved = tmp_path / "memnet.snap"
    commands = readme(peer.examples)[1:3]
    assert [answer["exit_code"] for answer in peer.run(*commands, f"session save --file {saved}")] == [0, 0, 0]
    here = ours(f"session load --file {saved}", "query pin-map --anchor PLR01 --depth 3", "tagmap fields --tag TSK")
    assert [status for status, _, _ in here] == [0, 0, 0]
    assert {"PLR01", "N01", "TEC01", "PRD01", "E01", "E02", "E03", "LAW01"} <= rows(here[1][1]).keys()
    assert here[2][1] == "SCHEMA TSK ; fields=id goal deadline status recycle\n"
    memory = Memory()
    assert [row.session_id[:2] for row in memory.sessions()] == ["s_"]
    memory.close()


def test_words_of_memnet_that_need_no_session_are_answered(peer: Peer, ours: Callable[..., Any]) -> None:
    commands = ["version", "version --json", "guide", "guide --loose", "examples map", "examples workflow", "examples path", "examples agent-guide"]
    commands += ["examples add --tag NPC", "session list", "--help"]
    assert [answer["exit_code"] for answer in peer.run(*commands[:-1])] == [0] * (len(commands) - 1)
    assert [status for status, _, _ in ours(*commands)] == [0] * len(commands)


def test_a_neighbourhood_costs_no_more_characters_here_for_the_same_facts(peer: Peer, ours: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "map.txt").write_text("@TSK: id|goal|status|recycle\n", "utf-8")
    lines = [f"+ TSK [T{n}] ; goal=step {n} of the work that is to be done ; status=open ; recycle=persistent" for n in range(30)]
    pairs = [(n // 3, n) for n in range(1, 30)] + [(n + 9, n) for n in range(15)]
    lines += [f"+ E{n} [T{a}] --(next)--> [T{b}] ; note=because of {a} ; recycle=persistent" for n, (a, b) in enumerate(pairs)]
    (tmp_path / "lines.txt").write_text("\n".join(lines), "utf-8")
    commands = [f"session open --map-file {tmp_path / 'map.txt'}", f"add --file {tmp_path / 'lines.txt'}", "query pin-map --anchor T0 --depth 4 --max-rows 500"]
    there = peer.run(*commands)[2]["stdout"]
    here = ours(*commands[:2], f"{commands[2]} --budget-tokens 8000")[2][1]
    assert holds(rows(here), rows(there)) and len(rows(here)) == 74
    print(f"the same 74 rows: MemNet {len(there)} characters, pinfold {len(here)}")
    body = here.rpartition("# pinfold:")[0]
    assert len(body) <= len(there) and len(here) - len(body) < 150
