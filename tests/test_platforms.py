"""Windows and macOS, as far as fakes can tell: paths, no flock, no fork, consoles that are not UTF-8."""

import ntpath
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import pinfold
from pinfold import Memory
from pinfold.journal import lock, sqlite
from pinfold.journal import url as opening
from pinfold.journal.lock import FileLock, Holder, lock_holder
from pinfold.journal.sqlite import SqliteJournal
from pinfold.testing.journal_contract import JournalContract, run_threads

SOURCE = Path(pinfold.__file__).parent.parent

# --- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("C:\\Users\\测试\\pinfold.db", "file:///C:/Users/测试/pinfold.db"),
        ("C:\\50% off?\\#1.db", "file:///C:/50%25 off%3f/%231.db"),
        ("\\\\server\\share\\p.db", "file://server/share/p.db"),
    ],
)
def test_a_windows_path_as_the_uri_that_sqlite_reads(monkeypatch, path, uri):
    monkeypatch.setattr(sqlite, "os", SimpleNamespace(name="nt"))
    assert sqlite.file_uri(path) == uri


def test_a_posix_path_keeps_its_backslashes(tmp_path):
    assert sqlite.file_uri("/tmp/a\\b?#%.db") == "file:/tmp/a\\b%3f%23%25.db"
    folder = tmp_path / "测试 ?#%\\"
    folder.mkdir()
    with Memory(journal=SqliteJournal(str(folder / "store.db")), background=False) as memory:
        memory.session("s").set("a", "1")
    assert {path.name for path in folder.iterdir()} == {"store.db", "store.db.lock"}


def test_a_drive_in_a_url_is_an_absolute_path_on_windows(monkeypatch):
    monkeypatch.setattr(opening, "os", SimpleNamespace(path=ntpath))
    assert opening.sqlite_path("/C:/Users/测试/pinfold.db") == "C:\\Users\\测试\\pinfold.db"
    assert opening.sqlite_path("/C:\\Users\\测试\\pinfold.db") == "C:\\Users\\测试\\pinfold.db"


def test_where_each_platform_keeps_its_data(monkeypatch):
    monkeypatch.setenv("HOME", "/home/测试")
    joined = os.path.join
    assert opening.data_directory("win32", {"LOCALAPPDATA": "C:\\Users\\测试\\AppData\\Local"}) == joined("C:\\Users\\测试\\AppData\\Local", "pinfold")
    assert opening.data_directory("win32", {}) == "/home/测试/AppData/Local/pinfold"
    assert opening.data_directory("darwin", {"XDG_DATA_HOME": "/ignored"}) == "/home/测试/Library/Application Support/pinfold"
    assert opening.data_directory("linux", {"XDG_DATA_HOME": "/data"}) == "/data/pinfold"
    assert opening.data_directory("freebsd14", {}) == "/home/测试/.local/share/pinfold"


# --- no flock -------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_flock(monkeypatch):
    monkeypatch.setattr(lock, "fcntl", None)


def test_without_flock_the_lock_is_always_free_and_doctor_says_it_cannot_tell(no_flock, tmp_path):
    one, two = FileLock(str(tmp_path / "lock")), FileLock(str(tmp_path / "lock"))
    assert one.acquire(0) and two.acquire(0)
    assert not one.waited
    one.mark(True)
    assert two.marked()
    one.release()
    two.release()
    one.close()
    two.close()
    assert lock_holder(str(tmp_path / "lock")) == Holder(None, [])


def test_without_flock_claims_have_one_winner_all_the_same(no_flock, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    executed = []

    def run():
        with Memory(url) as memory:
            for n in range(15):
                memory.session("s").once(f"k{n}", lambda n=n: executed.append(n) or n)

    run_threads([run] * 4)
    assert sorted(executed) == list(range(15))


class TestSqliteWithoutFlock(JournalContract):
    """The whole contract where the platform has no flock: less fair, just as right."""

    has_locks = False

    @pytest.fixture
    def open_journal(self, no_flock, tmp_path):
        opened = []

        def open_one():
            opened.append(SqliteJournal(str(tmp_path / "store.db")))
            return opened[-1]

        yield open_one
        for journal in opened:
            journal.close()


# --- no fork, other consoles ----------------------------------------------------------------------------------------


def run(code, *arguments, encoding="utf-8", **environment):
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUTF8": "0", "PYTHONIOENCODING": f"{encoding}:strict", **environment}
    return subprocess.run([sys.executable, *code, *arguments], env=env, capture_output=True, timeout=60, check=False)


def test_without_register_at_fork_everything_is_there_but_forks(tmp_path):
    code = f"""
import os, sys
for name in ("fork", "register_at_fork"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules["fcntl"] = None
from pinfold import Memory
with Memory({f"sqlite:///{tmp_path}/store.db"!r}) as memory:
    session = memory.session("s")
    session.once("k", lambda: "v")
    memory.compact()
print(session.session_id, memory.url[:7])
"""
    done = run(["-c", code])
    assert (done.stdout.strip(), done.stderr) == (b"s sqlite:", b"")


@pytest.mark.parametrize("encoding", ["cp1252", "cp936", "ascii"])
def test_a_console_of_another_encoding_gets_values_as_utf_8_and_words_that_never_fail(tmp_path, encoding):
    store = {"PINFOLD_STORE": f"sqlite:///{tmp_path}/测试.db", "PINFOLD_SESSION": "s"}
    command = ["-m", "pinfold"]
    assert run(command, "set", "ключ", "用户 🐟 é", encoding=encoding, **store).returncode == 0
    found = run(command, "peek", "ключ", encoding=encoding, **store)
    assert (found.returncode, found.stdout.decode().rstrip("\r\n")) == (0, "用户 🐟 é")
    assert "ключ" in run(command, "keys", encoding=encoding, **store).stdout.decode()
    refused = run(command, "resolve", "ключ🐟", "x", encoding=encoding, **store)
    assert refused.returncode == 3 and b"Traceback" not in refused.stderr and b"unknown_promise" in refused.stderr
    doctor = run(command, "doctor", encoding=encoding, **store)
    assert doctor.returncode == 0 and "测试.db" in doctor.stdout.decode()
