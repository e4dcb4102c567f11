"""A project's code as pins: the same ids everywhere, the difference and no more, nothing lost, nothing half done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from projects import links, pins, put, rows

import pinfold
from pinfold import Memory, Session, limits
from pinfold.errors import ConfigurationError, Refused
from pinfold.ingest.job import Ingest
from pinfold.state.schema import derive_id

SHOP = {
    "src/shop/__init__.py": '"""A shop."""\n',
    "src/shop/cart.py": '''"""Carts."""
from shop.money import total
import numpy

class Cart:
    """What is bought."""
    def put(self, item, count=1):
        """Put an item in."""
        self.check(item)
    def check(self, item): pass

def pay(cart): return total(cart)
def pay_later(cart): pay(cart)
def pay_twice(cart): pay(cart); pay(cart)
''',
    "src/shop/money.py": "def total(cart): return rounded(0)\ndef rounded(value): return value\n",
    "tests/test_cart.py": "from shop.cart import Cart\n\ndef test_put(): Cart()\n",
}
PAY = derive_id("FUNC", "src/shop/cart.py::pay")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small project in a git repository."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    return put(tmp_path / "shop", SHOP)


def test_a_project_is_files_symbols_and_what_they_do_to_each_other(session: Session, shop: Path) -> None:
    done = session.ingest("code", str(shop))
    assert (done.files, done.pins, done.created, done.unread, done.found) == (4, 13, 13, [], {"python": 4})
    told = pins(session)
    assert told["src/shop/cart.py"] == {"kind": "SOURCE", "path": "src/shop/cart.py", "lines": "14", "doc": "Carts.", "uses": "numpy"}
    assert told["src/shop/cart.py::Cart.put"] == {
        "kind": "FUNC", "qname": "src/shop/cart.py::Cart.put", "lines": "7-9", "sig": "(item, count=)", "doc": "Put an item in.",
    }  # fmt: skip
    assert links(session, "imports") == {
        ("src/shop/cart.py", "imports", "src/shop/money.py"),
        ("tests/test_cart.py", "imports", "src/shop/cart.py"),
    }
    assert links(session, "calls") == {
        ("src/shop/cart.py::Cart.put", "calls", "src/shop/cart.py::Cart.check"),
        ("src/shop/cart.py::pay_later", "calls", "src/shop/cart.py::pay"),
        ("src/shop/cart.py::pay_twice", "calls", "src/shop/cart.py::pay"),
        ("src/shop/money.py::total", "calls", "src/shop/money.py::rounded"),
    }
    assert ("src/shop/cart.py::Cart", "contains", "src/shop/cart.py::Cart.put") in links(session)
    assert len(session.log()) == 1


def test_a_pin_map_of_a_function_with_its_callers_fits_400_tokens(session: Session, shop: Path) -> None:
    bpe_openai = pytest.importorskip("bpe_openai", reason="the extra `tokens` counts them")
    session.ingest("code", str(shop))
    shown = session.pin_map(PAY, depth=1, relations=["calls"], direction="in", budget_tokens=400)
    assert len(bpe_openai.get_encoding("o200k_base").encode(shown.text)) <= 400
    assert shown.nodes == (3, 3) and shown.edges == (2, 2)
    assert all(f"src/shop/cart.py::{name} ;" in shown.text for name in ("pay", "pay_later", "pay_twice"))


def test_who_names_a_pin_by_its_locator_is_told_its_id(session: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    with pytest.raises(Refused) as refused:
        session.pin_map("src/shop/cart.py::pay")
    assert refused.value.near == [PAY] and refused.value.hint == f"is it {PAY}?"
    assert session.get("src/shop/cart.py::pay").missing == {"src/shop/cart.py::pay": [PAY]}


def test_what_is_ingested_is_found_by_search(session: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    hits = [hit.node_id for hit in session.search("put an item into the cart").direct]
    assert derive_id("FUNC", "src/shop/cart.py::Cart.put") in hits[:3]


# --- the same, again and elsewhere -------------------------------------------------------------------------------------


def test_again_nothing_changes_and_no_entry_is_made(session: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    before = session.log()[-1].seq
    done = session.ingest("code", str(shop))
    assert not done.changed and done.pins == 13 and session.log()[-1].seq == before


def test_ids_and_rows_are_the_same_in_another_checkout_by_another_name(session: Session, other: Session, shop: Path, tmp_path: Path) -> None:
    session.ingest("code", str(shop))
    elsewhere = shutil.copytree(shop, tmp_path / "deeper" / "elsewhere")
    (tmp_path / "link").symlink_to(elsewhere, target_is_directory=True)
    other.ingest("code", str(tmp_path / "link"))
    assert rows(session) == rows(other)


def test_locators_begin_at_the_repository_whatever_part_of_it_is_read(session: Session, other: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    for part in ("src/shop/cart.py", "tests", "src"):
        other.ingest("code", str(shop / part))
    for part in ("tests", "src"):  # what was not there yet when it was first read
        other.ingest("code", str(shop / part))
    assert rows(session) == rows(other)


def test_without_a_repository_they_begin_at_the_folder_or_where_the_caller_says(session: Session, tmp_path: Path) -> None:
    put(tmp_path / "a", {"b/c.py": "def f(): pass"})
    session.ingest("code", str(tmp_path / "a"))
    assert "b/c.py::f" in pins(session)
    session.ingest("code", str(tmp_path / "a"), root=str(tmp_path))
    assert "a/b/c.py::f" in pins(session)
    with pytest.raises(Refused) as refused:
        session.ingest("code", str(tmp_path / "a"), root=str(tmp_path / "a" / "b"))
    assert refused.value.code == "bad_argument"


def test_three_edited_files_are_all_that_changes(session: Session, tmp_path: Path) -> None:
    """This repository's own sources: three files are edited, the others keep every row with its seq."""
    source = Path(pinfold.__file__).parent
    project = tmp_path / "project"
    for name in ("journal", "state", "dialect"):
        shutil.copytree(source / name, project / "pinfold" / name)
    session.ingest("code", str(project))
    graph = session._view().graph
    before = {row.id: row.mark for row in graph.rows()}
    edited = ["pinfold/journal/base.py", "pinfold/state/silo.py", "pinfold/dialect/delta.py"]
    for name in edited:
        path = project / name
        path.write_text(path.read_text(encoding="utf-8") + "\n\ndef added():\n    return 1\n", encoding="utf-8")
    done = session.ingest("code", str(project))
    assert (done.created, done.patched, done.dropped, done.linked, done.unlinked) == (3, 3, 0, 3, 0)
    changed = [graph.nodes[row.id] for row in session._view().graph.nodes.values() if row.mark != before.get(row.id)]
    assert {node.get(node.keys[0]).partition("::")[0] for node in changed} == set(edited)
    assert all(edge.mark == before.get(edge.id) or edge.dst in {node.id for node in changed} for edge in graph.edges.values())
    assert done.changes == [f"{op} {id}" for op, id in (line.split() for line in done.changes)] and len(done.changes) == 6


def test_a_moved_symbol_is_another_and_what_is_said_of_it_is_named(session: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    session.mutate(f"~ [{PAY}] ; owner=Ann\n+ TSK [T1] ; goal=faster\n+ [T1] --(about)--> [{PAY}]\n+ [T1] --(derived_from)--> [{PAY}]")
    cart = shop / "src/shop/cart.py"
    cart.write_text(cart.read_text().replace("def pay(", "def settle("))
    done = session.ingest("code", str(shop))
    assert [(orphan.row, orphan.what.partition("[")[0]) for orphan in done.orphaned] == [("", "owner=Ann"), ("T1", "E16 "), ("T1", "E17 ")]
    assert session.get("T1").items[0].line == "TSK [T1] ; goal=faster"
    assert [(row.name, row.because) for row in session.stale()] == [("row:T1", (f"{PAY} gone",))]
    session.undo(done.seq)
    assert not session.get(PAY, "E16", "E17").missing


def test_a_file_that_can_no_longer_be_read_keeps_what_is_known_of_it(session: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    before = rows(session)
    put(shop, {"src/shop/cart.py": "class Cart(:\n", "src/shop/new.py": b"\xff = 1"})
    done = session.ingest("code", str(shop))
    assert not done.changed and rows(session) == before
    assert [line.partition(": ")[0] for line in done.unread] == ["src/shop/cart.py", "src/shop/new.py"]
    put(shop, {"src/shop/cart.py": "class Cart: pass\n"})
    assert session.ingest("code", str(shop)).dropped == 5


def test_a_file_that_is_gone_takes_its_pins_along(session: Session, shop: Path) -> None:
    session.ingest("code", str(shop))
    (shop / "src/shop/money.py").unlink()
    done = session.ingest("code", str(shop))
    assert (done.dropped, done.created) == (3, 0)
    assert not any(locator.startswith("src/shop/money.py") for locator in pins(session))
    assert ("src/shop/cart.py", "imports", "src/shop/__init__.py") in links(session)


# --- which files ------------------------------------------------------------------------------------------------------


def test_what_git_ignores_and_what_is_excluded_is_left_out_and_goes_when_it_was_there(session: Session, shop: Path) -> None:
    put(shop, {"gen/made.py": "def made(): pass", "node_modules/x/y.py": "z = 1", ".venv/lib/a.py": "b = 1"})
    session.ingest("code", str(shop))
    assert "gen/made.py" in pins(session) and not any(locator.startswith(("node_modules", ".venv")) for locator in pins(session))
    put(shop, {".gitignore": "gen/\n"})
    session.ingest("code", str(shop))
    assert "gen/made.py" not in pins(session)
    session.ingest("code", str(shop), exclude=["tests/", "money.py"])
    assert {locator for locator in pins(session) if "::" not in locator} == {"src/shop/__init__.py", "src/shop/cart.py"}


def test_an_ignored_folder_that_is_asked_for_is_a_project_of_its_own(session: Session, shop: Path) -> None:
    put(shop, {".gitignore": "vendor/\n", "vendor/lib/.gitignore": "out/\n", "vendor/lib/a.py": "", "vendor/lib/out/b.py": ""})
    assert session.ingest("code", str(shop / "vendor" / "lib")).root == str(shop / "vendor" / "lib")
    assert set(pins(session)) == {"a.py"}


def test_links_and_loops_of_links_are_named_and_not_followed(session: Session, shop: Path) -> None:
    (shop / "src/loop").symlink_to(shop / "src", target_is_directory=True)
    (shop / "src/self.py").symlink_to(shop / "src/self.py")
    (shop / "src/gone.py").symlink_to(shop / "nowhere.py")
    (shop / "src/again.py").symlink_to(shop / "src/shop/cart.py")
    (shop / "notes").symlink_to(shop / "nothing-to-read")  # of no language: it would not have been read as a file either
    done = session.ingest("code", str(shop))
    assert done.skipped == {"link": 4} and done.files == 4


def test_a_huge_file_is_skipped_and_said_so(session: Session, shop: Path) -> None:
    put(shop, {"big.py": b"x = 1\n" * (limits.INGEST_FILE_BYTES // 6 + 1)})
    assert session.ingest("code", str(shop)).skipped == {"over 2 MiB": 1}


@pytest.mark.skipif(os.name == "nt", reason="needs names that are bytes")
def test_odd_names_are_locators_of_their_own(session: Session, shop: Path) -> None:
    for name in (b"caf\xe9.py", "日本 語.py".encode(), b"a;b = c.py", b"new\nline.py", b"two::colons.py", b"~ [T1].py"):
        (shop / os.fsdecode(name)).write_text("def f(): pass")
    done = session.ingest("code", str(shop))
    told = pins(session)
    assert {"caf\\xe9.py", "日本 語.py", "a;b = c.py", "new\nline.py", "two:\\:colons.py", "~ [T1].py"} <= set(told)
    assert "two:\\:colons.py::f" in told and done.unread == []
    assert not session.ingest("code", str(shop)).changed


def test_what_cannot_be_ingested_is_refused_by_name(session: Session, shop: Path) -> None:
    for kind, path, options, code in (
        ("code", str(shop / "nowhere"), {}, "no_such_path"),
        ("code", "a\0b", {}, "bad_path"),
        ("cobol", str(shop), {}, "bad_argument"),
        ("code", str(shop), {"languages": ["cobol"]}, "bad_argument"),
        ("sysml", str(shop), {"languages": ["python"]}, "bad_argument"),
    ):
        with pytest.raises(Refused) as refused:
            session.ingest(kind, path, **options)  # type: ignore[arg-type]
        assert refused.value.code == code
    assert session.ingest("sysml", str(shop)).files == 0
    assert session.log() == []


def test_budgets_are_refused_before_anything_is_written(session: Session, shop: Path) -> None:
    for options, code in (({"max_rows": 20}, "too_many_rows"), ({"max_bytes": 100}, "too_many_bytes")):
        with pytest.raises(Refused) as refused:
            session.ingest("code", str(shop), **options)  # type: ignore[arg-type]
        assert refused.value.code == code and "src" in refused.value.hint
    assert session.log() == []


def test_a_session_without_room_is_full_before_anything_is_written(session: Session, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_PER_SESSION", 20)
    with pytest.raises(Refused) as refused:
        session.ingest("code", str(shop))
    assert refused.value.code == "graph_full" and session.log() == []


def test_a_dry_run_tells_the_same_and_writes_nothing(session: Session, other: Session, shop: Path) -> None:
    told = session.ingest("code", str(shop), dry_run=True)
    done = other.ingest("code", str(shop))
    assert session.log() == [] and told.dry_run
    assert (told.created, told.linked, told.changes) == (done.created, done.linked, done.changes)
    session.mutate("+ FUNC [NEW] ; qname=mine")
    with pytest.raises(Refused):
        session.ingest("code", str(shop), dry_run=True)


def test_languages_narrow_what_is_read_and_what_may_go(session: Session, shop: Path) -> None:
    pytest.importorskip("tree_sitter", reason="the extra `code` brings the grammars")
    put(
        shop,
        {
            "web/a.js": "import {b} from './b.js';\nexport function a() { return b(); }",
            "web/b.js": "export function b() {}",
            "c/x.c": "int x(void) { return 1; }",
        },
    )
    done = session.ingest("code", str(shop))
    assert done.found == {"c": 1, "javascript": 2, "python": 4}
    assert ("web/a.js", "imports", "web/b.js") in links(session)
    before = rows(session)
    assert not session.ingest("code", str(shop), languages=["python"]).changed
    assert rows(session) == before


def test_a_missing_extra_says_how_to_get_it_and_python_needs_none(session: Session, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pinfold.ingest import grammars

    grammars._tools.cache_clear()
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    session.ingest("code", str(shop))
    put(shop, {"web/a.js": "x()"})
    with pytest.raises(ConfigurationError) as refused:
        session.ingest("code", str(shop))
    assert refused.value.code == "missing_extra" and "pip install 'pinfold[code]'" in refused.value.hint
    assert not session.ingest("code", str(shop), languages=["python"]).changed


# --- large trees, crashes, others ---------------------------------------------------------------------------------------


def test_a_large_difference_is_several_entries_and_one_cut_short_is_finished_by_the_next(
    session: Session, other: Session, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INGEST_BATCH_ROWS", 5)

    class Stopped(Exception):
        pass

    def stop(what: str, done: int, total: int) -> None:
        if what == "write" and done == 15:
            raise Stopped

    with pytest.raises(Stopped):
        session.ingest("code", str(shop), progress=stop)
    assert len(session.log()) == 3
    done = session.ingest("code", str(shop))
    assert len(session.log()) > 5 and done.created + done.linked < 31
    other.ingest("code", str(shop))
    assert rows(session) == rows(other)
    assert not session.ingest("code", str(shop)).changed


def test_a_process_killed_between_entries_leaves_what_the_next_completes(
    sqlite_url: str, other: Session, shop: Path, open_memory: Callable[..., Memory]
) -> None:
    code = (
        "import os, sys, pinfold\nfrom pinfold import limits\nlimits.INGEST_BATCH_ROWS = 4\n"
        "session = pinfold.Memory(sys.argv[1]).session('work')\n"
        "session.ingest('code', sys.argv[2], progress=lambda what, done, total: os.kill(os.getpid(), 9) if what == 'write' and done >= 12 else None)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, sqlite_url, str(shop)], timeout=60, check=False)
    assert died.returncode != 0
    session = open_memory(sqlite_url).session("work")
    assert 0 < session.graph_counts()["nodes"] < 13
    session.ingest("code", str(shop))
    other.ingest("code", str(shop))
    assert rows(session) == rows(other)


def test_two_that_ingest_the_same_at_once_end_with_one_of_each(
    sqlite_url: str, other: Session, shop: Path, open_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INGEST_BATCH_ROWS", 5)
    first, second = (open_memory(sqlite_url).session("work") for _ in range(2))
    met: list[str] = []

    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "write" and not met:
            met.append(what)
            second.ingest("code", str(shop))

    first.ingest("code", str(shop), progress=meanwhile)
    other.ingest("code", str(shop))
    assert met and rows(first) == rows(second) == rows(other)


def test_a_run_again_reads_only_what_changed(session: Session, shop: Path) -> None:
    job = Ingest(session, "code", str(shop))
    job.run()
    kept = dict(job._files)
    assert not job.is_changed()
    for path in shop.rglob("*.py"):
        path.touch()
    assert not job.is_changed()  # they are read once more, and have the same content
    assert all(file.part is kept[name].part for name, file in job._files.items())
    before = (shop / "src/shop/money.py").stat()
    (shop / "src/shop/money.py").write_text("def total(cart): return rounded(1)\ndef rounded(value): return value\n")
    os.utime(shop / "src/shop/money.py", ns=(before.st_atime_ns, before.st_mtime_ns))  # of the same size, and of a time that proves nothing
    assert job.is_changed() and not job.is_changed()
    assert [name for name, file in job._files.items() if file.part is not kept[name].part] == ["src/shop/money.py"]
    (shop / "tests/test_cart.py").unlink()
    assert job.is_changed() and job.run().dropped == 2
    (shop / "src/shop/money.py").chmod(0)
    if not os.access(shop / "src/shop/money.py", os.R_OK):  # root may read everything
        assert job.is_changed() and job.run().unread == ["src/shop/money.py: Permission denied"]


def test_what_a_clock_cannot_tell_apart_is_read_again_and_what_it_can_is_not(session: Session, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ingest(session, "code", str(shop))
    job.run()
    assert not any(file.proven for file in job._files.values())
    later = time.time_ns() + 3_000_000_000
    monkeypatch.setattr("pinfold.ingest.job.time.time_ns", lambda: later)
    assert not job.is_changed() and all(file.proven for file in job._files.values())
    kept = dict(job._files)
    assert not job.is_changed() and all(file is kept[name] for name, file in job._files.items())


def test_part_of_the_standard_library_is_read_twice_alike(session: Session, other: Session, tmp_path: Path) -> None:
    """As it was installed, tests of the parser's own apart: `python -m benchmarks.ingest` reads all of it."""
    library = Path(json.__file__).parent
    copy = shutil.copytree(library, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    session.ingest("code", str(library))
    other.ingest("code", str(copy))
    assert rows(session) == rows(other) and len(rows(session)) > 60
