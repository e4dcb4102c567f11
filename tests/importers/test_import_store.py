"""Every importer on small stores of its real shape: what comes over, what is named as left, that a second run changes nothing."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold import Memory, Session
from pinfold.errors import ConfigurationError, PinfoldError, Refused
from pinfold.importers import KINDS, import_store, read_store
from pinfold.importers.records import LINE_BYTES, fields_of, kind_of, relation_of, text_of, time_of
from pinfold.importers.write import BATCH_ROWS, Imported
from pinfold.limits import FIELD_VALUE_BYTES, VALUE_BYTES
from pinfold.state.schema import derive_id

pytestmark = pytest.mark.requirement("import")


@pytest.fixture
def session(open_memory: Callable[..., Memory]) -> Session:
    return open_memory("memory://").session("work")


def lines(session: Session) -> set[str]:
    """The rows of a session as lines."""
    return {item.line for form in ("node", "edge", "law") for item in session.find(form=form, limit=10_000).items}


def counts(done: Imported) -> tuple[int, int, int, int]:
    return done.created["nodes"], done.created["edges"], done.updated, done.unchanged


def again(session: Session, kind: str, path: Path, **options: Any) -> None:
    """A second run, and a dry one before it, find nothing to do and write no entry."""
    seq = session.status().seq
    for dry in (True, False):
        done = import_store(session, kind, str(path), dry_run=dry, **options)
        assert (sum(done.created.values()), done.updated, done.kept) == (0, 0, [])
    assert session.status().seq == seq


# --- memory.jsonl -------------------------------------------------------------------------------------------------

ENTITIES = [
    {"type": "entity", "name": "Alice Liddell", "entityType": "person", "observations": ["likes green tea", "lives in Oxford"]},
    {"type": "entity", "name": "测试 project", "entityType": "Software Project!", "observations": []},
    {"type": "relation", "from": "Alice Liddell", "to": "测试 project", "relationType": "works on"},
    {"type": "relation", "from": "测试 project", "to": "Nobody", "relationType": "owned_by"},
]


def jsonl(path: Path, items: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(item, ensure_ascii=False) for item in items), "utf-8")
    return path


def test_entities_and_relations_of_a_memory_file_come_over(session: Session, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "memory.jsonl", ENTITIES)
    done = import_store(session, "memory", str(path))
    assert counts(done) == (3, 2, 0, 0)
    assert done.left == {} and done.notes == ["no entity has these names, so each became a bare NOTE: Nobody"]
    found = lines(session)
    (alice,) = session.find("PERSON").items
    assert alice.id == derive_id("PERSON", "Alice Liddell")
    assert alice.line.partition(" ; ")[2] == 'label=Alice Liddell ; content="likes green tea\\nlives in Oxford"'
    assert any("SOFTWARE_PROJECT [" in line and "type=Software Project!" in line for line in found)
    assert any("--(works_on)-->" in line and line.endswith("; name=works on") for line in found)
    assert any("--(owned_by)--> [NOTE_Nobody]" in line for line in found)
    assert session.search("who drinks tea").direct[0].label == "Alice Liddell"
    again(session, "memory", path)


def test_observations_may_be_rows_of_their_own(session: Session, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "memory.jsonl", ENTITIES)
    assert counts(import_store(session, "memory", str(path), observations="nodes")) == (5, 4, 0, 0)
    assert sum("--(about)-->" in line for line in lines(session)) == 2
    again(session, "memory", path, observations="nodes")


def test_a_second_import_brings_what_changed_and_leaves_what_was_added_here(session: Session, tmp_path: Path) -> None:
    path = jsonl(tmp_path / "memory.jsonl", ENTITIES)
    import_store(session, "memory", str(path))
    (alice,) = session.find("PERSON").items
    session.mutate(f"~ [{alice.id}] ; mine=kept")
    ENTITIES_2 = [{**ENTITIES[0], "observations": ["likes coffee"]}, *ENTITIES[1:], {"type": "entity", "name": "New", "entityType": "person"}]
    done = import_store(session, "memory", str(jsonl(path, ENTITIES_2)))
    assert counts(done) == (1, 0, 1, 4)
    assert "content=likes coffee ; mine=kept" in session.get(alice.id).items[0].line


def test_what_read_graph_returns_and_older_names_are_read_too(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(
        json.dumps(
            {
                "entities": [{"entityName": "a", "entity_type": "x", "observations": ["1"]}, {"id": "b"}],
                "relations": [{"from_id": "a", "to_id": "b", "relation_type": "is"}],
            },
            indent=2,
        )
    )
    assert counts(import_store(session, "memory", str(path))) == (2, 1, 0, 0)
    assert lines(session) == {"X [X_a] ; label=a ; content=1", "NOTE [NOTE_b] ; label=b", "E1 [X_a] --(is)--> [NOTE_b]"}


def test_damaged_lines_are_counted_by_what_is_wrong_with_them(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl"
    good = json.dumps(ENTITIES[0]).encode()
    path.write_bytes(
        b"\xef\xbb\xbf"
        + b"\n".join(
            [
                good,
                b"{torn",
                b'{"type": "entity", "name": "\xff"}',
                b"",
                b'{"type": "entity"}',
                b'{"type": "relation", "from": "a"}',
                b'{"type": "wish"}',
                b"[1]",
                b'{"type": "entity", "name": "' + b"x" * (LINE_BYTES + 10) + b'"}',
                b'{"type": "entity", "name": "half \\ud800", "observations": ["nul \\u0000", null, 7, {"a": 1}]}',
                good,
            ]
        )
    )
    done = import_store(session, "memory", str(path))
    assert done.left == {
        f"lines of more than {LINE_BYTES} bytes": 1,
        "lines that are no JSON": 1,
        "lines that are not UTF-8": 1,
        "entities without a name": 1,
        "relations without an end or a name": 1,
        "records of type wish": 1,
        "records of type none": 1,
    }
    assert counts(done)[:2] == (2, 0)
    assert any('label=half \ufffd ; content="nul \\u0000\\n7\\n{\\"a\\":1}"' in line for line in lines(session))
    assert done.notes == ["'Alice Liddell' stands there more than once: its observations were joined"]


# --- mem0 ---------------------------------------------------------------------------------------------------------

MEMORIES = [
    {
        "id": "17c0ca48-2a67-4f6f-8c8a-b64752147c28",
        "memory": "Prefers green tea over coffee",
        "hash": "b4eb691f",
        "metadata": {"topic": "drinks", "n": 1, "id": "theirs", "odd key": [1], "status": "settled"},
        "created_at": "2026-11-29T10:00:00.516266+00:00",
        "updated_at": "2026-11-30T18:47:35.516266+01:00",
        "user_id": "alice",
        "role": "user",
        "score": 0.5,
        "categories": ["food"],
    },
    {"id": "2", "memory": "Works at night", "expiration_date": "2030-01-01", "created_at": None, "updated_at": "nonsense"},
    {"id": "3", "memory": " "},
    "nothing",
]


@pytest.mark.parametrize("shape", ["results", "list", "lines"])
def test_memories_of_mem0_come_over_in_every_shape_they_are_written_in(shape: str, session: Session, tmp_path: Path) -> None:
    path = tmp_path / "mem0.json"
    if shape == "lines":
        jsonl(path, MEMORIES)
    else:
        path.write_text(json.dumps({"results": MEMORIES} if shape == "results" else MEMORIES))
    done = import_store(session, "mem0", str(path))
    assert counts(done) == (2, 0, 0, 0)
    assert done.left == {"entries without a memory": 2}
    first = session.get("NOTE_17c0ca482a674f6f8c8ab64752147c28").items[0].line
    for part in ("content=Prefers green tea over coffee", "user=alice", "role=user", "topic=drinks", "n=1", "at=2026-11-30T17:47:35", 'categories=["food"]'):
        assert part in first
    assert "hash" not in first and 'meta={"id":"theirs","odd key":[1],"status":"settled"}' in first
    assert "valid_until=2030-01-01T00:00:00" in session.get("NOTE_2").items[0].line
    assert session.search("what does alice drink").direct[0].node_id == "NOTE_17c0ca482a674f6f8c8ab64752147c28"
    again(session, "mem0", path)


def test_exactly_as_many_memories_as_get_all_returns_by_itself_are_doubted(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "mem0.json"
    path.write_text(json.dumps([{"id": str(n), "memory": f"fact {n}"} for n in range(20)]))
    assert "were there more?" in import_store(session, "mem0", str(path)).notes[0]
    path.write_text(json.dumps([{"id": str(n), "memory": f"fact {n}"} for n in range(21)]))
    done = import_store(session, "mem0", str(path))
    assert (done.notes, counts(done)) == ([], (1, 0, 0, 20))


# --- basic-memory -------------------------------------------------------------------------------------------------

NOTE = """\
---
title: 'Coffee: brewing'
type: guide
permalink: notes/coffee-brewing
tags:
- brewing
- "slow mornings"
created: 2026-01-02
source: https://example.org  # where
---

# Coffee

## Observations
- [method] Pour over gives clarity #taste #slow (from a cup)
- [ ] buy filters
- [x] a task
- [docs](https://example.org)
- [00:01:02] spoken words
- plain words with #hashtag
- [price] 12 a bag @effective(2026-06-10,2026-07-27)

## Relations
- pairs_with [[Tea]] (at breakfast)
- "is told in" [[notes/history.md|the history]]
- See [[Tea]] and [[Nowhere]] for more
- `[[code]]` is no link

```
- inside [[fence]]
```
> - quoted [[callout]]
"""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    (folder / "notes").mkdir(parents=True)
    (folder / ".obsidian").mkdir()
    (folder / ".obsidian" / "x.md").write_text("hidden")
    (folder / "notes" / "coffee.md").write_text(NOTE)
    (folder / "notes" / "history.md").write_text("---\ntitle: History\n---\nLong ago.\n")
    (folder / "Tea.md").write_text("No front matter, but [[Coffee: brewing]].")
    (folder / "bad.md").write_text("---\ntitle: {\n---\nbroken head")
    (folder / "latin.md").write_bytes(b"\xff\xfe")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


def test_notes_of_basic_memory_come_over_with_their_links(session: Session, vault: Path) -> None:
    done = import_store(session, "basic-memory", str(vault))
    assert done.created == {"nodes": 5, "edges": 5, "laws": 0}
    assert done.left == {"files that are not UTF-8": 1}
    assert done.notes == ["the front matter of bad.md is malformed: kept as text", "no note is called this, so each became a bare NOTE: Nowhere"]
    (coffee,) = session.find("GUIDE").items
    for part in ("label=Coffee: brewing", "permalink=notes/coffee-brewing", "path=notes/coffee.md", "tags=brewing slow mornings", "at=2026-01-02"):
        assert part in coffee.line
    assert "source=https://example.org ;" in coffee.line
    names = {item.id: item.line.partition("label=")[2].partition(" ; ")[0] for item in session.find().items}
    edges = {line.partition(" ")[2] for line in lines(session) if "-->" in line}
    for id, name in names.items():
        edges = {edge.replace(f"[{id}]", f"[{name}]") for edge in edges}
    assert edges == {
        "[Coffee: brewing] --(pairs_with)--> [Tea] ; context=at breakfast",
        "[Coffee: brewing] --(is_told_in)--> [History] ; name=is told in",
        "[Coffee: brewing] --(links_to)--> [Tea]",
        "[Coffee: brewing] --(links_to)--> [Nowhere]",
        "[Tea] --(links_to)--> [Coffee: brewing]",
    }
    assert session.search("pour over clarity").direct[0].label == "Coffee: brewing"
    again(session, "basic-memory", vault)


def test_observations_of_a_note_may_be_rows(session: Session, vault: Path) -> None:
    done = import_store(session, "basic-memory", str(vault), observations="nodes")
    assert done.created == {"nodes": 8, "edges": 8, "laws": 0}
    assert {item.line.partition(" ; ")[2] for item in session.find("OBS", superseded=True).items} == {
        "content=Pour over gives clarity #taste #slow ; category=method ; tags=taste slow ; context=from a cup",
        "content=plain words with #hashtag ; tags=hashtag",
        "content=12 a bag ; category=price ; valid_from=2026-06-10T00:00:00Z ; valid_until=2026-07-27T00:00:00Z",
    }
    again(session, "basic-memory", vault, observations="nodes")


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("a: 1\nb: x # c\n", {"a": "1", "b": "x"}),
        ("a: [x, 'y, z', \"q\"]", {"a": ["x", "y, z", "q"]}),
        ("a: >-\n  one\n  two\n\n  three\nb: |\n  l1\n    l2", {"a": "one two\n\nthree", "b": "l1\n  l2"}),
        ("a:\n  - x\n  - y\nb:\n", {"a": ["x", "y"], "b": []}),
        ("a:\n  k: v\n  l: w", {"a": "  k: v\n  l: w"}),
        ("a: it's: fine\nb: 'it''s'", {"a": "it's: fine", "b": "it's"}),
        ('a: "q \\u00e9"', {"a": "q é"}),
        ("# only words\n", {}),
        ("a: {b: 1}", None),
        ("a: 1\na: 2", None),
        ("just words", None),
        ("a: [x", None),
        ('a: "x', None),
        ("a: &anchor x", None),
    ],
)
def test_front_matter_is_read_or_malformed(head: str, fields: dict[str, Any] | None) -> None:
    from pinfold.importers.frontmatter import split

    found, _, body = split(f"---\n{head}\n---\n\nbody\n")
    assert (found, body) == (fields, "body\n")


@given(st.text("-ab:[]'\"|> \n#{}", max_size=40))
def test_no_front_matter_can_break_the_reader(text: str) -> None:
    from pinfold.importers.frontmatter import split

    fields, _, _ = split(f"---\n{text}\n---\n")
    assert fields is None or all(isinstance(value, (str, list)) for value in fields.values())


# --- a folder of memory files -------------------------------------------------------------------------------------


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    folder = tmp_path / "memories"
    (folder / "notes").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / "plan.md").write_text("ship the parser on friday")
    (folder / "notes" / "测试.txt").write_text("")
    (folder / ".tmp-1").write_text("torn")
    (folder / "raw.bin").write_bytes(b"\xff\xff")
    (folder / "big.txt").write_text("ab" * FIELD_VALUE_BYTES)
    if os.name != "nt":
        (folder / "link.txt").symlink_to("/etc/passwd")
        (folder / "loop").symlink_to(folder)
        os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_files_of_a_memory_folder_come_over_and_nothing_that_leads_out_of_it(session: Session, memories: Path) -> None:
    done = import_store(session, "memory-folder", str(memories))
    assert counts(done) == (3, 0, 0, 0)
    assert done.left == {"hidden files": 1, "files that are not UTF-8": 1, "links, which may lead anywhere": 2, "files that are no files": 1}
    paths = {item.line.partition("path=")[2].partition(" ; ")[0]: item for item in session.find("FILE").items}
    assert set(paths) == {"/memories/plan.md", "/memories/notes/测试.txt", "/memories/big.txt"}
    assert "content=ship the parser on friday" in paths["/memories/plan.md"].line
    slot = f"import:{paths['/memories/big.txt'].id}:content"
    assert session.peek(slot).value == "ab" * FIELD_VALUE_BYTES
    assert f"content_slot={slot}" in paths["/memories/big.txt"].line and slot in done.notes[0]
    assert session.search("when does the parser ship").direct[0].content.endswith("friday")
    again(session, "memory-folder", memories)
    moved = import_store(session, "memory-folder", str(memories), prefix="/notes/")
    assert counts(moved) == (3, 0, 0, 0)


# --- LangGraph ----------------------------------------------------------------------------------------------------


def langgraph(path: Path, rows: list[tuple[Any, ...]], vectors: int = 0) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE store (prefix text, key text, value text, created_at TIMESTAMP, updated_at TIMESTAMP, expires_at TIMESTAMP, ttl_minutes REAL)"
    )
    connection.executemany("INSERT INTO store VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    if vectors:
        connection.execute("CREATE TABLE store_vectors (prefix text, key text, field_name text, embedding blob)")
        connection.executemany("INSERT INTO store_vectors VALUES ('a', 'b', 'c', x'00')", [()] * vectors)
    connection.commit()
    connection.close()
    return path


def test_items_of_a_langgraph_store_come_over(session: Session, tmp_path: Path) -> None:
    at = "2026-11-30 18:47:43"
    rows = [
        ("users.alice", "prefs", b'{"drink":"green tea","n":1}', at, at, None, None),
        ("users.bob", "m1", '{"text":"rides a bicycle"}', at, at, "2999-01-01 00:00:00+00:00", 60.0),
        ("users.bob", "old", b"{}", at, at, "2020-01-01T00:00:00+00:00", 1.0),
        ("users.bob", "bad", b"\xff", at, at, None, None),
        ("users.bob", "torn", b"{", at, at, None, None),
    ]
    path = langgraph(tmp_path / "store.db", rows, vectors=2)
    before = path.read_bytes()
    done = import_store(session, "langgraph", str(path))
    assert counts(done) == (2, 0, 0, 0)
    assert done.left == {"items that had expired": 1, "items that are no JSON": 2, "vectors (made from the values)": 2}
    assert any('lg_ns=["users","alice"] ; lg_key=prefs ; value={"drink":"green tea","n":1} ; at=2026-11-30T18:47:43Z' in line for line in lines(session)), (
        lines(session)
    )
    assert any("expires=2999-01-01T00:00:00Z" in line for line in lines(session))
    assert "bicycle" in session.search("who rides a bicycle").direct[0].content
    assert path.read_bytes() == before and sorted(os.listdir(tmp_path)) == ["store.db"]
    again(session, "langgraph", path)


# --- MemNet -------------------------------------------------------------------------------------------------------

SNAPSHOT = """\
# memnet-snapshot-v1
@SNAP: 1|mn_60754578|2026-11-30T13:45:02Z|2026-11-30T14:45:02Z|60|1|-
# map
@EDG: id|src|relation|dist|at|attrs|recycle
@LAW: id|name|cycle|mechanism|constraint
@TSK: id|goal|status|recycle
@MOD: id|path
# relations
@REL: owns
# records
@TSK: T1|ship it|open|
@TSK: T2|first line
second line

@nothing: like \\| a row
# no comment either|open|
@MOD: M1|src/a\\|b.py
@MOD: M2|ends with a
break
@LAW: LAW01|style|||no
globals
@EDG: E1|T1|owns|M1||core|persistent
@EDG: E2|T2|owns|M1|two
lines||
@EDG: E3|T2|owns|GONE|||
@TSK: T4|short
@TSK: T3|whole|done|
"""


def test_a_damaged_snapshot_of_memnet_comes_over_whole(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "saved.snap"
    path.write_text(SNAPSHOT)
    done = import_store(session, "memnet", str(path))
    assert done.created == {"nodes": 5, "edges": 2, "laws": 1}
    assert done.left == {"lines that are no row: TSK has 4 columns, this row 2": 1, "relations whose end is not here": 1}
    assert done.notes[0] == "split by a line break, and put together again: T2, M2, LAW01, E2"
    found = lines(session)
    assert 'TSK [T2] ; goal="first line\\nsecond line\\n\\n@nothing: like | a row\\n# no comment either" ; status=open' in found
    assert "MOD [M1] ; path=src/a|b.py" in found and 'MOD [M2] ; path="ends with a\\nbreak"' in found
    assert 'LAW01 name=style ; constraint="no\\nglobals"' in found
    assert "E1 [T1] --(owns)--> [M1] ; note=core ; recycle=persistent" in found
    assert 'E2 [T2] --(owns)--> [M1] ; at="two\\nlines"' in found
    assert session.schema() == ["SCHEMA TSK ; fields=id goal status recycle", "SCHEMA MOD ; fields=id path", "SCHEMA relations ; names=owns"]
    again(session, "memnet", path)


def test_rows_of_the_same_id_that_say_otherwise_are_kept_unless_asked(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "saved.snap"
    path.write_text(SNAPSHOT)
    session.mutate("+ TSK [T1] ; goal=mine\n+ OTHER [M1] ; x=1")
    done = import_store(session, "memnet", str(path), dry_run=True)
    assert done.kept == ["T1"] and "rows whose id is another row's (M1)" in done.left
    done = import_store(session, "memnet", str(path))
    assert done.kept == ["T1"] and "T1" in done.notes[-1]
    assert "TSK [T1] ; goal=mine" in lines(session)
    assert session.schema() == []
    done = import_store(session, "memnet", str(path), replace=True)
    assert (done.updated, done.kept) == (1, [])
    assert "TSK [T1] ; goal=ship it ; status=open" in lines(session)


# --- PMLL ---------------------------------------------------------------------------------------------------------


def pmll(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE nodes (session_id TEXT, id TEXT, type TEXT, label TEXT, content TEXT, embedding TEXT, created_at REAL, last_accessed REAL,
            access_count INT, metadata TEXT DEFAULT '{}', PRIMARY KEY (session_id, id));
        CREATE TABLE edges (session_id TEXT, id TEXT, source TEXT, target TEXT, relation TEXT, weight REAL, created_at REAL,
            metadata TEXT DEFAULT '{}', PRIMARY KEY (session_id, id));
        """
    )
    at = 1_790_000_000.25
    nodes = [
        ("a", "mn-1-x", "concept", "tea", "green tea is brewed at 80 degrees", "[0.1]", at, at, 3, '{"source":"book","meta":1}'),
        ("a", "mn-2-y", "concept", "tea", "another", "[]", at, at, 1, "{}"),
        ("a", "mn-3-z", "file", "a.py", "code", "[]", at, at, 1, "no json"),
        ("b", "mn-1-x", "note", "other session", "x", "[]", at, at, 1, None),
    ]
    edges = [
        ("a", "me-1-x", "mn-1-x", "mn-3-z", "references", 0.5, at, "{}"),
        ("a", "me-2-x", "mn-1-x", "mn-9-gone", "references", 1.0, at, "{}"),
        ("a", "me-3-x", "mn-2-y", "mn-3-z", "is a", 7.0, at, '{"why":"so"}'),
    ]
    connection.executemany("INSERT INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?)", nodes)
    connection.executemany("INSERT INTO edges VALUES (?,?,?,?,?,?,?,?)", edges)
    connection.commit()
    connection.close()
    return path


def test_memories_of_pmll_come_over_under_their_ids(session: Session, tmp_path: Path) -> None:
    path = pmll(tmp_path / "memory_graph.sqlite3")
    done = import_store(session, "pmll", str(path))
    assert done.created == {"nodes": 4, "edges": 2, "laws": 0}
    assert done.left == {"access counts": 1, "metadata that is no JSON": 1, "relations whose end is gone": 1, "embeddings (made from the text)": 4}
    assert [note.partition(";")[0] for note in done.notes] == ["2 sessions were in the file", "memories of the same type and label as another: 1"]
    tea = 'CONCEPT [mn-1-x] ; source=book ; meta={"meta":1} ; label=tea ; content=green tea is brewed at 80 degrees'
    assert f"{tea} ; at=2026-09-21T14:13:20.250Z ; from_session=a" in lines(session)
    assert any(line.startswith("me-1-x [mn-1-x] --(references)--> [mn-3-z] ; ") and line.endswith("weight=0.5") for line in lines(session))
    assert any("--(is_a)-->" in line and "why=so ; name=is a" in line and line.endswith("weight=1") for line in lines(session))
    assert session.search("how hot is green tea").direct[0].node_id == "mn-1-x"
    again(session, "pmll", path)


def test_one_session_of_a_pmll_file_may_be_named(session: Session, tmp_path: Path) -> None:
    path = pmll(tmp_path / "memory_graph.sqlite3")
    assert counts(import_store(session, "pmll", str(path), group="b")) == (1, 0, 0, 0)
    with pytest.raises(Refused) as refused:
        import_store(session, "pmll", str(path), group="c")
    assert refused.value.hint == "it has a, b"


# --- our own ------------------------------------------------------------------------------------------------------


def test_an_exported_graph_comes_back_and_does_so_once(session: Session, open_memory: Callable[..., Memory], tmp_path: Path) -> None:
    from pinfold.portable import export_graph

    other = open_memory("memory://").session("other")
    other.mutate("+ TSK [T1] ; goal=ship\n+ TSK [T2]\n+ E9 [T1] --(needs)--> [T2] ; note=x\nLAW01 name=style")
    path = tmp_path / "graph.json"
    path.write_text(export_graph(other._view().graph, "json"))
    done = import_store(session, "json", str(path))
    assert done.created == {"nodes": 2, "edges": 1, "laws": 1}
    assert lines(session) == lines(other)
    again(session, "json", path)


# --- what all have in common --------------------------------------------------------------------------------------


def test_a_session_with_a_schema_learns_the_kinds_it_needs_and_pins_stay_pins(session: Session, tmp_path: Path) -> None:
    session.mutate("SCHEMA PERSON ; fields=id label\nSCHEMA SOFTWARE_PROJECT ; fields=id url ; pin=true\nSCHEMA relations ; names=knows")
    path = jsonl(tmp_path / "memory.jsonl", ENTITIES)
    done = import_store(session, "memory", str(path))
    assert done.left == {"rows of SOFTWARE_PROJECT, which is a pin kind here": 1, "relations whose end is not here": 2}
    assert session.schema()[0] == "SCHEMA PERSON ; fields=id label content"
    again_left = import_store(session, "memory", str(path))
    assert (counts(again_left)[:3], again_left.left) == ((0, 0, 0), done.left)


def test_large_stores_come_in_batches_and_progress_is_told(session: Session, tmp_path: Path) -> None:
    count = BATCH_ROWS * 2 + 5
    items: list[Any] = [{"type": "entity", "name": f"n{n}", "entityType": "t"} for n in range(count)]
    items += [{"type": "relation", "from": f"n{n}", "to": f"n{n + 1}", "relationType": "next"} for n in range(count - 1)]
    path = jsonl(tmp_path / "memory.jsonl", items)
    told: list[tuple[int, int]] = []
    dry = import_store(session, "memory", str(path), dry_run=True, progress=lambda *now: told.append(now))
    assert (told, session.status().seq) == ([], 0)
    done = import_store(session, "memory", str(path), progress=lambda *now: told.append(now))
    assert counts(dry) == counts(done) == (count, count - 1, 0, 0)
    assert told == [(n, 2 * count - 1) for n in (1000, 2000, 3000, 4000, 2 * count - 1)]
    assert session.status().seq == len(told)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_made_of_what_is_no_such_store(kind: str, session: Session, tmp_path: Path) -> None:
    folder, empty, noise, dangling = tmp_path / "folder", tmp_path / "empty", tmp_path / "noise", tmp_path / "dangling"
    folder.mkdir()
    empty.write_bytes(b"")
    noise.write_bytes(bytes(range(256)) * 20)
    dangling.symlink_to(tmp_path / "gone")
    for path in (folder, empty, noise, tmp_path / "missing", dangling, tmp_path / "empty" / "below"):
        if kind == "basic-memory" and path in (empty,):
            continue  # an empty note is a note
        with pytest.raises(PinfoldError) as refused:
            import_store(session, kind, str(path))
        assert refused.value.code in ("bad_import", "bad_path", "not_utf8"), path
        assert refused.value.hint
    assert session.status().seq == 0


def test_what_is_too_long_even_for_a_slot_is_cut_and_counted(session: Session, tmp_path: Path) -> None:
    long = "x" * (VALUE_BYTES + 1)
    (tmp_path / "memories").mkdir()
    (tmp_path / "memories" / "long.txt").write_text(long)
    done = import_store(session, "memory-folder", str(tmp_path / "memories"))
    assert (done.left, done.notes, session.keys()) == ({"values of which only the beginning was kept": 1}, [], [])
    path = jsonl(tmp_path / "memory.jsonl", [{"type": "relation", "from": "a", "to": "b", "relationType": "y" * 100_000}])
    assert import_store(session, "memory", str(path)).left == {"values of which only the beginning was kept": 1}
    again(session, "memory", path)


def test_a_kind_that_is_none_is_named_with_those_there_are(session: Session, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        import_store(session, "zep", str(tmp_path))
    assert refused.value.code == "bad_argument" and "mem0" in refused.value.hint
    with pytest.raises(Refused):
        read_store("memory", str(tmp_path), observations="rows")
    with pytest.raises(ConfigurationError):
        read_store("memory", str(tmp_path))


names = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)
items = st.fixed_dictionaries(
    {"type": st.sampled_from(["entity", "entity", "relation", "x"])},
    optional=dict.fromkeys(("name", "entityType", "from", "to", "relationType"), names | values) | {"observations": st.lists(values, max_size=3) | values},
)


@given(st.lists(items, min_size=1, max_size=8), st.sampled_from(["content", "nodes"]))
@settings(max_examples=30)
def test_any_memory_file_is_read_or_refused_and_the_second_time_changes_nothing(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], how: str) -> None:
    path = tmp_path_factory.mktemp("any") / "memory.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    with Memory("memory://", background=False) as memory:
        session = memory.session("work")
        try:
            dry = import_store(session, "memory", str(path), observations=how, dry_run=True)
        except Refused as refused:
            if refused.code != "bad_import":
                raise
            return
        done = import_store(session, "memory", str(path), observations=how)
        assert (done.created, done.left, done.notes) == (dry.created, dry.left, dry.notes)
        again(session, "memory", path, observations=how)


@given(st.text(max_size=50))
def test_any_name_becomes_a_kind_and_a_relation(name: str) -> None:
    from pinfold.dialect.parse import RESERVED, is_kind, is_relation

    assert is_kind(kind_of(name)) and kind_of(name) not in RESERVED
    assert is_relation(relation_of(name))


def test_names_values_and_times_of_others_are_kept_as_near_as_can_be() -> None:
    assert [kind_of(name) for name in ("person", "Software Project", "3d model", "测试", "law", "")] == [
        "PERSON",
        "SOFTWARE_PROJECT",
        "K_3D_MODEL",
        "NOTE",
        "LAW_",
        "NOTE",
    ]
    assert [relation_of(name) for name in ("worksOn", "works on", "1:n", "测试", "")] == ["worksOn", "works_on", "r_1_n", "relates_to", "relates_to"]
    assert text_of({"é": [1, None]}) == '{"é":[1,null]}' and text_of(None) == ""
    assert fields_of({"a": 1, "Recycle": "x", "expires": "y", "b c": 2}) == {"a": "1", "meta": '{"Recycle":"x","expires":"y","b c":2}'}
    assert fields_of(["a"]) == {}
    times = ["2026-11-30", "2026-11-30 18:47:43", "2026-11-30T18:47:43+02:00", "2026-11-30T18:47:43.5Z", 1_790_000_000, "soon", None, True, 1e300, float("nan")]
    assert [time_of(value) for value in times] == [
        "2026-11-30T00:00:00Z",
        "2026-11-30T18:47:43Z",
        "2026-11-30T16:47:43Z",
        "2026-11-30T18:47:43.500Z",
        "2026-09-21T14:13:20Z",
        "",
        "",
        "",
        "",
        "",
    ]
