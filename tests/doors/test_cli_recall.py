"""Recall's verbs on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import process, run, twice

own_store = twice()


def test_what_is_written_by_one_command_is_found_by_the_next() -> None:
    assert run("upsert", "concept", "auth", "login by OAuth", "--metadata", '{"team": "core"}').text == "created CONCEPT1\n"
    assert run("upsert", "file", "login.py", "the handler").text == "created FILE1\n"
    assert run("relate", "CONCEPT1", "FILE1", "implements", "--weight", "0.5").text == "created E1 implements 0.5\n"
    assert run("remember", "we ship on Fridays", "--by", "Ann", "--group", "standup", "--at", "2026-05-08").text == "remembered NOTE1\n"
    for verb in ("search", "recall"):
        found = run(verb, "OAuth", "--json").json
        assert found["direct"][0]["node_id"] == "CONCEPT1" and found["low"] is False
    assert "login by OAuth" in run("search", "OAuth").text
    assert run("search", "ship", "--where", "by=Ann", "--kinds", "note", "--since", "2026-05-01", "--until", "2026-06-01").text.startswith("100.0")
    assert run("search", "ship", "--written-by", "nobody", "--fail-on-miss").status == 1
    for verb in ("search", "recall"):
        refused = run(verb, "ship", "--by", "Ann")  # who said it, or who wrote it?
        assert refused.status == 2 and "--where by=NAME" in refused.err and "--written-by" in refused.err
    assert run("search", "ship", "--where", '{"by": {"$ne": "Ann"}}', "--kinds", "note", "--fail-on-miss").status == 1
    assert [row["depth"] for row in run("traverse", "CONCEPT1", "--json").json["results"]] == [0, 1]
    assert "auth --[implements]--> login.py" in run("traverse", "CONCEPT1").text
    assert "[CONCEPT1]" in run("query", "pin-map", "--query", "OAuth").text


def test_many_come_from_a_file_and_links_can_be_left_out(tmp_path: Path) -> None:
    items = [{"type": "note", "label": label, "content": "one text"} for label in ("a", "b")]
    (tmp_path / "items.json").write_text(json.dumps(items), encoding="utf-8")
    assert run("interlink", "--file", str(tmp_path / "items.json"), "--no-auto-link").text == "created 2, updated 0, linked 0\n"
    assert run("interlink", json.dumps(items)).text == "created 0, updated 2, linked 1\n"
    assert run("interlink", "-", stdin=b"no json").status == 3
    assert run("interlink", '[{"type": "note"}]', "--json").json["error"]["code"] == "bad_item"


def test_a_slot_is_promoted_and_resolved_and_a_miss_is_a_miss() -> None:
    run("set", "decision", "use SQLite")
    assert run("resolve-context", "decision", "--json").json["source"] == "short_term"
    assert run("promote", "decision").text == "promoted CONCEPT1\n"
    run("drop", "decision")
    assert run("resolve-context", "decision").text == "use SQLite"
    missed = run("resolve-context", "zeppelins over Mongolia", "--fail-on-miss", "--json")
    assert (missed.status, missed.json["source"]) == (1, "miss")
    missed = run("resolve-context", "zeppelins over Mongolia")
    assert (missed.status, missed.out, missed.err) == (0, b"", "miss: zeppelins over Mongolia\n")
    run("claim", "report")
    waiting = run("resolve-context", "report", "--fail-on-miss")
    assert (waiting.status, waiting.out, waiting.err) == (1, b"", "pending: report is being worked on\n")
    assert run("promote", "nothing").status == 3


def test_pruning_says_what_would_go() -> None:
    run("upsert", "concept", "a", "x")
    assert run("prune", "--dry-run").text == "0 would go, 0 edges stay\n"
    assert run("prune", "--threshold", "7").status == 3


def test_bench_prints_the_figures_of_each_set(tmp_path: Path) -> None:
    documents = [{"id": str(n), "text": f"the {word} is here", "by": None, "group": None, "at": None, "name": None} for n, word in enumerate(("boat", "lamp"))]
    corpus = {"set": "toy", "corpus": "1", "documents": documents, "queries": [{"id": "q", "text": "boat", "relevant": ["0"], "category": None}]}
    (tmp_path / "toy.jsonl").write_text(json.dumps(corpus) + "\n", encoding="utf-8")
    (row,) = run("bench", "recall", str(tmp_path / "toy.jsonl"), "--json").json["sets"]
    assert (row["set"], row["queries"], row["recall@10"], row["mrr"]) == ("toy", 1, 1.0, 1.0)
    assert run("bench", "recall", str(tmp_path / "toy.jsonl"), "--level", "none").text.splitlines()[1].startswith("toy")
    assert run("bench", "recall").status == run("bench", "recall", str(tmp_path / "none.jsonl")).status == 2


def test_reembed_makes_the_vectors_another_embedder_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        run("remember", f"text number {n}")
    monkeypatch.setenv("PINFOLD_EMBEDDER", "hash")
    assert run("reembed", "--json").json == {"status": "embedded", "sessions": [{"session_id": "test", "embedded": 3}]}
    assert run("reembed", "--session", "test").text == "test: 0 vectors made\n", "the others were kept"
    monkeypatch.setenv("PINFOLD_EMBEDDER", "nonsense")
    assert run("search", "text").status == 2 and run("peek", "k").status == 0


def test_no_other_command_pays_for_recall() -> None:
    run("set", "k", "v")
    run("mutate", "+ NOTE [N] ; content=x")
    for words in (("peek", "k"), ("set", "k", "w"), ("status",), ("mutate", "~ [N] ; content=y"), ("query", "pin-map", "N")):
        ran = process(*words, python=("-X", "importtime"))
        loaded = {line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time:")}
        assert not loaded & {"numpy", "snowballstemmer", "pinfold.recall.bind", "pinfold.recall.index", "pinfold.recall_answers"}, words
