"""The examples of docs/dialect.md are documents that run."""

from __future__ import annotations

import re
from pathlib import Path

from pinfold.dialect.parse import parse_document
from pinfold.state.schema import derive_id
from pinfold.testing.graphs import GraphStore

TEXT = (Path(__file__).parents[2] / "docs" / "dialect.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", TEXT, re.M | re.S)


def test_display_blocks_parse_as_present_lines() -> None:
    for block in (BLOCKS[0], BLOCKS[-1]):
        batch = parse_document(block)
        assert batch.problems == [] and batch.ops and all(op.op == "" for op in batch.ops)


def test_the_labels_example_mints_what_the_page_says() -> None:
    assert GraphStore().mutate(BLOCKS[1]).minted == {"#1": "E1", "fix": "TSK1", "helper": "NPC1"}


def test_the_schema_example_is_printed_back() -> None:
    store = GraphStore(BLOCKS[3])
    assert "\n".join(store.schema.lines()) + "\n" == BLOCKS[3]
    assert derive_id("MOD", "main") == "MOD_main" and derive_id("MOD", "src/a.py").startswith("MOD_src_a_py_")


def test_the_lines_of_the_table_are_accepted_in_order() -> None:
    store = GraphStore("+ MOD [M1] ; path=a.py\n+ X [a] ; k=1\n+ X [b]")
    for line in re.findall(r"^\| `([^`]+)` \|", TEXT.split("## Values")[0], re.M):
        if line == "~ [T42] ; id=parser":
            store.mutate("+ TSK [T42] ; goal=again")
        store.mutate(line)
    assert store.read("parser") == "TSK [parser] ; goal=again"
    assert store.read("LAW01") == "LAW01 name=style ; constraint=no globals"


def test_every_code_of_the_page_is_raised_somewhere_and_every_code_raised_is_on_the_page() -> None:
    said = {code for row in re.findall(r"^\| (`[a-z_`, ]+) \| ", TEXT, re.M) for code in re.findall(r"[a-z_]{6,}", row)}
    root = Path(__file__).parents[2] / "src" / "pinfold"
    code = "".join((root / name).read_text("utf-8") for name in ("dialect/parse.py", "dialect/legacy.py", "state/mutate.py"))
    raised = set(re.findall(r'roblem\((?:[^"\n]|\n)*?"([a-z_]{6,})"', code))
    assert said <= set(re.findall(r'"([a-z_]{6,})"', code))
    assert {word for word in raised if "_" in word} <= said
