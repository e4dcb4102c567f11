"""Each importer on a store that the other system itself made: installed from PyPI or npm, and run, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.importers.test_import_store import again, lines
from tests.peers import newer_python, node_modules_with, python_with

from pinfold import Memory, Session
from pinfold.importers import import_store

pytestmark = pytest.mark.peer

RUN_S = 120


@pytest.fixture
def session(open_memory: Callable[..., Memory]) -> Session:
    return open_memory("memory://").session("work")


def run(command: list[str], folder: Path, stdin: str = "", **env: str) -> str:
    """Run a peer with the folder as its home; return what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PINFOLD", "MEMNET", "PYTHON", "XDG_"))}
    home = {"HOME": str(folder), "USERPROFILE": str(folder), "PYTHONUTF8": "1"}
    done = subprocess.run(command, input=stdin, capture_output=True, encoding="utf-8", cwd=folder, env={**clean, **home, **env}, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_file_of_the_mcp_memory_server(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    package = "@modelcontextprotocol/server-memory"
    server = node_modules_with(request, f"{package}@2026.8.31") / package / "dist" / "index.js"
    path = tmp_path / "memory.jsonl"
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    calls = [
        ("create_entities", {"entities": [
            {"name": "Alice Liddell", "entityType": "person", "observations": ["likes green tea", "quotes \"this\"\nover two lines"]},
            {"name": "测试 project", "entityType": "Software Project", "observations": []},
        ]}),
        ("create_relations", {"relations": [{"from": "Alice Liddell", "to": "测试 project", "relationType": "works on"}]}),
        ("add_observations", {"observations": [{"entityName": "测试 project", "contents": ["is written in Rust"]}]}),
    ]  # fmt: skip
    messages = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    messages += [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name, "arguments": args}} for n, (name, args) in enumerate(calls, 1)]
    child = subprocess.Popen(
        ["node", str(server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MEMORY_FILE_PATH": str(path)},
        encoding="utf-8",
    )
    assert child.stdin is not None and child.stdout is not None
    for message in messages:
        child.stdin.write(json.dumps(message) + "\n")
        child.stdin.flush()
        if "id" in message:
            answer = json.loads(child.stdout.readline())
            assert "error" not in answer and not answer["result"].get("isError"), answer
    child.stdin.close()
    child.stdout.close()
    child.wait(RUN_S)

    done = import_store(session, "memory", str(path))
    assert (done.created, done.left, done.notes) == ({"nodes": 2, "edges": 1, "laws": 0}, {}, [])
    assert session.search("what does Alice like to drink").direct[0].label == "Alice Liddell"
    assert session.search("which project is in Rust").direct[0].label == "测试 project"
    again(session, "memory", path)


_MEM0 = """
import json, os, sys
os.environ.update(MEM0_TELEMETRY="False", OPENAI_API_KEY="none", MEM0_DIR=os.getcwd())
from mem0 import Memory
from mem0.embeddings.mock import MockEmbeddings
memory = Memory.from_config({
    "vector_store": {"provider": "qdrant", "config": {"path": "vectors", "embedding_model_dims": 10, "on_disk": True}},
    "history_db_path": "history.db",
})
memory.embedding_model = MockEmbeddings()
for text, more in (("prefers green tea over coffee", {"topic": "drinks"}), ("rides a bicycle to work", {"topic": "travel", "n": 2})):
    memory.add([{"role": "user", "content": text}], user_id="alice", infer=False, metadata=more)
with open("all.json", "w") as file:
    json.dump(memory.get_all(filters={"user_id": "alice"}, top_k=1000), file)
"""


def test_memories_of_mem0(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    run([str(python_with(request, "mem0ai==2.2.1")), "-c", _MEM0], tmp_path)
    done = import_store(session, "mem0", str(tmp_path / "all.json"))
    assert (done.created["nodes"], done.left, done.notes) == (2, {}, [])
    assert any("; user=alice" in line and "; topic=drinks" in line and "; at=" in line for line in lines(session) if "green tea" in line)
    assert session.search("how does alice get to work").direct[0].content.endswith("rides a bicycle to work")
    again(session, "mem0", tmp_path / "all.json")


_LANGGRAPH = """
from langgraph.store.sqlite import SqliteStore
with SqliteStore.from_conn_string("store.db") as store:
    store.setup()
    store.put(("users", "alice"), "prefs", {"drink": "green tea", "deep": {"a": [1, 2]}})
    store.put(("users", "bob"), "travel", {"text": "rides a bicycle to work"}, ttl=60)
    store.put(("users", "bob"), "gone", {"text": "x"})
    store.delete(("users", "bob"), "gone")
"""


def test_a_store_of_langgraph(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    run([str(python_with(request, "langgraph-checkpoint-sqlite==3.1.2")), "-c", _LANGGRAPH], tmp_path)
    done = import_store(session, "langgraph", str(tmp_path / "store.db"))
    assert (done.created["nodes"], done.left) == (2, {})
    assert any('lg_ns=["users","alice"] ; lg_key=prefs ; value={"drink":"green tea","deep":{"a":[1,2]}}' in line for line in lines(session))
    assert any("lg_key=travel" in line and "expires=" in line for line in lines(session))
    assert "bicycle" in session.search("who goes by bicycle").direct[0].content
    again(session, "langgraph", tmp_path / "store.db")


_ANTHROPIC = """
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
tool = BetaLocalFilesystemMemoryTool(base_path=".")
tool.call({"command": "create", "path": "/memories/notes/plan.md", "file_text": "The parser ships on friday.\\n"})
tool.call({"command": "create", "path": "/memories/测试.txt", "file_text": "Alice drinks green tea.\\n"})
tool.call({"command": "str_replace", "path": "/memories/notes/plan.md", "old_str": "friday", "new_str": "monday"})
"""


def test_a_folder_of_anthropics_memory_tool(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    run([str(python_with(request, "anthropic==2.14.0")), "-c", _ANTHROPIC], tmp_path)
    done = import_store(session, "memory-folder", str(tmp_path / "memories"))
    assert (done.created["nodes"], done.left) == (2, {})
    assert any("path=/memories/notes/plan.md" in line and "ships on monday" in line for line in lines(session))
    assert "green tea" in session.search("what does Alice drink").direct[0].content
    again(session, "memory-folder", tmp_path / "memories")


_MEMNET = """
import os, re
from memnet.in_process_engine import run_argv
with open("map.txt", "w") as file:
    file.write("@TSK: id|goal|status\\n@MOD: id|path\\n")
said = run_argv(["session", "open", "--map-file", "map.txt"])
os.environ["MEMNET_SESSION"] = re.search(r"MEMNET_SESSION=(\\S+)", said["stderr"])[1]
rows = '+ TSK [T1] ; goal="ship the parser\\\\n@TSK: by friday\\\\n\\\\nat noon" ; status=open\\n+ MOD [M1] ; path="src/a|b.py"\\n'
rows += '+ TSK [T2] ; goal="whole" ; status="waits\\\\nfor T1"\\n+ [T1] --(owns)--> [M1] ; attrs="the\\\\ncore"\\n'
with open("rows.txt", "w") as file:
    file.write(rows)
for words in (["add", "--file", "rows.txt"], ["session", "save", "--file", "saved.snap"]):
    said = run_argv(words)
    assert said["exit_code"] == 0, said
"""


def test_a_snapshot_of_memnet_that_its_own_line_breaks_damaged(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    run([str(python_with(request, "memnet-llm==0.3.2")), "-c", _MEMNET], tmp_path)
    text = (tmp_path / "saved.snap").read_text("utf-8")
    assert "\nat noon|open" in text, text
    done = import_store(session, "memnet", str(tmp_path / "saved.snap"))
    assert (done.created, done.left) == ({"nodes": 3, "edges": 1, "laws": 0}, {}), text
    assert done.notes[0].startswith("split by a line break")
    found = lines(session)
    assert 'TSK [T1] ; goal="ship the parser\\n@TSK: by friday\\n\\nat noon" ; status=open' in found, text
    assert 'TSK [T2] ; goal=whole ; status="waits\\nfor T1"' in found
    assert "MOD [M1] ; path=src/a|b.py" in found
    assert session.search("when does the parser ship").direct[0].node_id == "T1"
    again(session, "memnet", tmp_path / "saved.snap")


_PMLL = """
from pmll_memory_mcp import create_relation, upsert_node
tea = upsert_node("work", "concept", "tea", "green tea is brewed at 80 degrees", {"source": "book"})
cup = upsert_node("work", "note", "cup", "the blue cup is the favourite one")
upsert_node("work", "concept", "tea", "green tea is brewed at 75 degrees")
create_relation("work", tea.id, cup.id, "relates_to", 0.5)
upsert_node("other", "symbol", "parse", "parses lines")
"""


def test_a_graph_of_pmll(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite3"
    run([str(python_with(request, "pmll-memory-mcp==2.0.4")), "-c", _PMLL], tmp_path, PMLL_GRAPH_DB=str(path))
    done = import_store(session, "pmll", str(path))
    assert done.created == {"nodes": 3, "edges": 1, "laws": 0}
    assert done.left == {"access counts": 1, "embeddings (made from the text)": 3}
    assert any("source=book ; label=tea ; content=green tea is brewed at 75 degrees" in line and "from_session=work" in line for line in lines(session))
    assert any("--(relates_to)-->" in line and line.endswith("weight=0.5") for line in lines(session))
    assert session.search("how hot is tea brewed").direct[0].label == "tea"
    again(session, "pmll", path)


_BASIC_MEMORY = """
import asyncio
from basic_memory.mcp.tools import write_note
async def main():
    await write_note(title="Coffee: brewing", directory="drinks", tags=["brewing"], note_type="guide", content=\"\"\"# Coffee

- [method] Pour over gives clarity #taste (from a cup)
- pairs_with [[Tea]] (at breakfast)
- See [[Nowhere]] too
\"\"\")
    await write_note(title="Tea", directory="drinks", content="Green tea is brewed at 80 degrees.")
asyncio.run(main())
"""


@pytest.mark.heavy
def test_notes_of_basic_memory(request: pytest.FixtureRequest, session: Session, tmp_path: Path) -> None:
    package = "basic-memory==0.24.1"
    python = python_with(request, package, newer_python(request, package, (3, 12)))
    notes = tmp_path / "notes"
    notes.mkdir()
    run([str(python), "-c", _BASIC_MEMORY], tmp_path, BASIC_MEMORY_HOME=str(notes), BASIC_MEMORY_CONFIG_DIR=str(tmp_path / "config"))
    done = import_store(session, "basic-memory", str(notes))
    assert (done.created, done.left) == ({"nodes": 3, "edges": 2, "laws": 0}, {})
    assert any(line.startswith("GUIDE [") and "permalink=" in line and "tags=brewing" in line for line in lines(session))
    assert sum("--(pairs_with)-->" in line and "context=at breakfast" in line for line in lines(session)) == 1
    assert session.search("how hot is tea brewed").direct[0].label == "Tea"
    again(session, "basic-memory", notes)
