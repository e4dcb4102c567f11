"""The files of a folder: what git would not ignore, and what was asked for by name."""

from __future__ import annotations

from pathlib import Path

from pinfold.tree import repository_of, walk_tree


def put(folder: Path, **files: str) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def names(folder: Path, *exclude: str) -> list[str]:
    return [name for name, _, _ in walk_tree(str(folder), exclude)]


def test_patterns_to_exclude_hold_where_no_gitignore_says_otherwise(tmp_path: Path) -> None:
    put(tmp_path, a="", b="", sub__a="", sub__c="", sub___dot_gitignore="!a\n")
    assert names(tmp_path) == ["a", "b", "sub/.gitignore", "sub/a", "sub/c"]
    assert names(tmp_path, "a", "c") == ["b", "sub/.gitignore", "sub/a"]
    assert names(tmp_path, "sub/") == ["a", "b"]


def test_a_folder_that_its_repository_ignores_is_looked_at_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    put(tmp_path, _dot_gitignore="build/\n*.log\n", build__lib__made="", build__lib__x_dot_log="", src__y_dot_log="", src__z="")
    assert names(tmp_path) == [".gitignore", "src/z"]
    assert names(tmp_path / "src") == ["z"]
    assert names(tmp_path / "build" / "lib") == ["made", "x.log"]
    assert repository_of(str(tmp_path / "src")) == str(tmp_path)
    assert repository_of(str(tmp_path / "build")) is None and repository_of(str(tmp_path / "build" / "lib")) is None
