"""A cached analysis of this project's own source files: what changed is made again, and nothing else, across two processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pinfold import Memory

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("analyse_worker.py")
FILES = ("silo.py", "promises.py", "graph.py", "value.py", "inputs.py", "draft.py", "schema.py", "undo.py")


class Project:
    """A git repository with some of this project's files, and a store beside it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.log = folder / "project", folder / "log"
        self.store = f"sqlite:///{folder}/store.db"
        (self.root / "src" / "state").mkdir(parents=True)
        for name in FILES:
            shutil.copy(ROOT / "src" / "pinfold" / "state" / name, self.root / "src" / "state" / name)
        shutil.copy(ROOT / "src" / "pinfold" / "errors.py", self.root / "src" / "errors.py")
        (self.root / ".gitignore").write_text("__pycache__/\n*.tmp\n")
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")

    def git(self, *words: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        for who in ("AUTHOR", "COMMITTER"):
            env |= {f"GIT_{who}_NAME": "ada", f"GIT_{who}_EMAIL": "ada@example.org"}
        done = subprocess.run(["git", *words], cwd=self.root, env=env, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def run(self) -> list[str]:
        """Let two processes at once analyse all files. Return what was really done, sorted."""
        self.log.write_bytes(b"")
        argv = [sys.executable, str(WORKER), self.store, str(self.log), str(self.root)]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        processes = [subprocess.Popen(argv, stdout=subprocess.PIPE, env=env) for _ in range(2)]
        said = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
        assert said[0] == said[1], "both processes have one total"
        return sorted(self.log.read_text().split())


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.requirement("made-anew-once")
def test_exactly_what_changed_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = Project(tmp_path)
    src = project.root / "src"
    names = sorted([f"src/state/{name}" for name in FILES] + ["src/errors.py"])
    counts = {}

    def check(what: str, *wanted: str) -> None:
        did = project.run()
        counts[what] = len(did)
        assert did == sorted(wanted), what

    check("first", *names, "total", "tree")
    check("again")

    os.utime(src / "state" / "silo.py")
    os.utime(src / "errors.py", ns=(1, 1))
    check("touch")

    before = (src / "state" / "undo.py").read_bytes()
    (src / "state" / "undo.py").write_bytes(before + b"\ndef extra():\n    pass\n")
    check("edit", "src/state/undo.py", "total", "tree")

    (src / "state" / "undo.py").write_bytes((src / "state" / "undo.py").read_bytes() + b"# a remark changes the analysis by its size\n")
    check("edit of a remark", "src/state/undo.py", "total", "tree")

    (src / "scratch.tmp").write_text("ignored")
    (src / "__pycache__").mkdir()
    (src / "__pycache__" / "x.pyc").write_text("ignored")
    check("ignored files")

    (src / "state" / "draft.py").unlink()
    check("delete", "total", "tree")
    with Memory(project.store, background=False) as memory:
        stale = {row.name: row.because for row in memory.session("run").stale()}
        assert list(stale) == ["slot:analysis:src/state/draft.py"]
        assert stale["slot:analysis:src/state/draft.py"][0].endswith("src/state/draft.py gone")

    (src / "errors.py").rename(src / "faults.py")
    check("rename", "src/faults.py", "total", "tree")

    project.git("checkout", "-q", "-f", "main")
    (src / "faults.py").unlink()
    check("back to the commit", "src/state/undo.py", "total", "tree")  # errors.py and draft.py are as they were: their results hold

    project.git("checkout", "-q", "-b", "other")
    check("a new branch, the same files")
    (src / "state" / "value.py").write_text("def only():\n    return 1\n")
    (src / "new.py").write_text("x = 1\n")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "other")
    check("commits on it", "src/new.py", "src/state/value.py", "total", "tree")
    project.git("checkout", "-q", "main")
    check("change of branch", "src/state/value.py", "total", "tree")
    with capsys.disabled():
        print(f"\n  made by two processes together: {counts}")


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_folder_is_what_git_would_track(tmp_path: Path) -> None:
    from pinfold.tree import walk_tree

    project = Project(tmp_path)
    root = project.root
    layout = {
        ".gitignore": "*.log\n!keep.log\n/build\nnode_modules/\ndoc/*.txt\n**/deep/secret\n# remark\n\\#odd\ntrailing \nlib/**/gen\n",
        "a.log": "", "keep.log": "", "build/x": "", "sub/build/x": "", "node_modules/m/i.js": "", "sub/node_modules/y": "",
        "doc/a.txt": "", "doc/in/a.txt": "", "x/deep/secret": "", "x/deep/open": "", "#odd": "", "trailing": "",
        "lib/gen": "", "lib/a/b/gen/f": "", "lib/a/gen.c": "",
        "sub/.gitignore": "!*.log\nonly\n", "sub/b.log": "", "sub/only": "", "sub/more/only/z": "", "sub/more/b.log": "",
        "ex/cluded": "", "wild/[x].py": "",
    }  # fmt: skip
    for name, text in layout.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / ".git" / "info" / "exclude").write_text("ex/\n")
    (root / "link").symlink_to("keep.log")
    wanted = sorted(project.git("ls-files", "-z", "--cached", "--others", "--exclude-standard").strip("\0").split("\0"))
    assert sorted(name for name, _, _ in walk_tree(str(root))) == wanted
    below = sorted(project.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "sub").strip("\0").split("\0"))
    assert sorted(f"sub/{name}" for name, _, _ in walk_tree(str(root / "sub"))) == below
