"""The default session: one per project, none at home."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pinfold import Refused
from pinfold.doors.context import default_session, explain_session
from pinfold.session import check_session_name


def _digits(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:4]


def test_the_git_root_names_the_session_from_every_folder_below(tmp_path: Path) -> None:
    root = tmp_path / "api"
    (root / ".git").mkdir(parents=True)
    (root / "src" / "deep").mkdir(parents=True)
    expected = f"api-{_digits(root)}"
    assert default_session(str(root), {}) == default_session(str(root / "src" / "deep"), {}) == expected
    assert "git repository" in explain_session(str(root), {})[1]


def test_a_git_worktree_counts_as_a_root(tmp_path: Path) -> None:
    (tmp_path / "branch" / "src").mkdir(parents=True)
    (tmp_path / "branch" / ".git").write_text("gitdir: elsewhere")
    assert default_session(str(tmp_path / "branch" / "src"), {}).startswith("branch-")


def test_without_git_the_folder_names_the_session(tmp_path: Path) -> None:
    assert default_session(str(tmp_path), {}) == f"{tmp_path.name}-{_digits(tmp_path)}"
    assert "the folder" in explain_session(str(tmp_path), {})[1]


def test_two_projects_of_one_name_have_two_sessions(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        (tmp_path / parent / "api" / ".git").mkdir(parents=True)
    assert default_session(str(tmp_path / "a" / "api"), {}) != default_session(str(tmp_path / "b" / "api"), {})


def test_a_link_to_a_project_is_the_project(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "api")
    assert default_session(str(tmp_path / "link"), {}) == default_session(str(tmp_path / "api"), {})


@pytest.mark.parametrize("name", ["ünï cödé", "a/b".replace("/", "∕"), "x" * 200, "🙂", "with space"])
def test_every_folder_makes_a_name_that_sessions_can_have(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert check_session_name(default_session(str(folder), {}))


@pytest.mark.parametrize("folder", ["~", "/"])
def test_home_and_root_have_no_default_session(folder: str) -> None:
    with pytest.raises(Refused) as refused:
        default_session(os.path.expanduser(folder), {})
    assert refused.value.code == "session_required"
    assert "PINFOLD_SESSION" in refused.value.hint


def test_a_home_under_git_does_not_swallow_its_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".git").mkdir()
    (tmp_path / "notes").mkdir()
    assert default_session(str(tmp_path / "notes")).startswith("notes-") or "PINFOLD_SESSION" in os.environ
    with pytest.raises(Refused):
        default_session(str(tmp_path), {"HOME": str(tmp_path)})


def test_the_environment_overrides_and_pinfold_comes_before_memnet() -> None:
    both = {"PINFOLD_SESSION": "p", "MEMNET_SESSION": "m"}
    assert explain_session("/", both) == ("p", "$PINFOLD_SESSION")
    assert explain_session("/", {"MEMNET_SESSION": "m"}) == ("m", "$MEMNET_SESSION")
    assert explain_session("/", {"PINFOLD_SESSION": "", "MEMNET_SESSION": "m"})[0] == "m"
