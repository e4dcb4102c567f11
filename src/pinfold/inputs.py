"""Inputs beyond a session's own state: files, folders, other sessions. What may be slow here never happens under a lock.

* A file is looked at cheaply first: while size and mtime are what they were when it was recorded, it counts as unchanged;
  another size is a change; else its SHA-256 decides, so that a touch changes nothing.
* An mtime younger than RACY_NS when it was read proves nothing (a second write may fall into the same tick): it is not kept.
* A folder is the hash of what git would hash: names, executable bits, contents and link targets, as `tree.py` finds them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pinfold.arguments import check_session_name
from pinfold.errors import Refused
from pinfold.state.inputs import Cause, Input, collect, is_outside, look_at, parse_input, settle
from pinfold.tree import RACY_NS, TREE_FILES, check_path, walk_tree

if TYPE_CHECKING:
    from pinfold.engine import Engine, Replica
    from pinfold.state.inputs import Verdict

HOPS = 64
"""From session to session at most: each is a judgement of its own, inside the one before."""
_DIGEST_CHARS = 32

_known: dict[str, tuple[tuple[int, ...], str]] = {}
"""path -> (size, mtime, ctime, inode), digest: a file is read again only where one of these differs."""


def expand(text: str, here: str) -> Input:
    """Return the input a caller wrote, paths made absolute, without its mark where that is still to be looked up."""
    given = parse_input(text)
    kind, _, path = given.name.partition(":")
    if kind in ("file", "tree"):
        path = os.path.normpath(os.path.join(here, os.path.expanduser(check_path(path))))
        return Input(f"{kind}:{path}", given.mark)
    if kind == "session":
        check_session_name(path.partition("/")[0])
    return given


# --- files ------------------------------------------------------------------------------------------------------------


def file_input(path: str) -> Input | None:
    """Return a file as it is now, None where there is none."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        digest, settled = _digest(path, found)
    except OSError:
        return None
    return Input(f"file:{path}", digest, [found.st_size, found.st_mtime_ns] if settled else [found.st_size])


def _digest(path: str, found: os.stat_result) -> tuple[str, bool]:
    """Return (a file's digest, whether its stat proves it from now on)."""
    seen = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
    known = _known.get(path)
    if known is not None and known[0] == seen:
        return known[1], True
    from hashlib import sha256

    hasher = sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            hasher.update(chunk)
    digest = hasher.hexdigest()[:_DIGEST_CHARS]
    settled = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > RACY_NS
    if settled:
        if len(_known) > TREE_FILES:
            _known.clear()
        _known[path] = (seen, digest)
    return digest, settled


def _file_fault(path: str, mark: str, hint: Any) -> str:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return "gone"
        if hint:
            if found.st_size != hint[0]:
                return "changed"
            if len(hint) > 1 and found.st_mtime_ns == hint[1]:
                return ""
        return "" if _digest(path, found)[0] == mark else "changed"
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    except OSError as error:
        return f"unreadable ({error.strerror})"


# --- folders ----------------------------------------------------------------------------------------------------------


def tree_input(path: str) -> Input | None:
    """Return a folder as it is now, None where there is none. Raises Refused `tree_too_large`. hint: a digest of all stats."""
    if not os.path.isdir(path):
        return None
    from hashlib import sha256

    content, stats, settled = sha256(), sha256(), True
    for name, full, found in walk_tree(path):
        content.update(os.fsencode(name) + b"\0")
        stats.update(b"%s\0%d %d %d\0" % (os.fsencode(name), found.st_size, found.st_mtime_ns, found.st_mode))
        try:
            if stat.S_ISLNK(found.st_mode):
                content.update(b"link " + os.fsencode(os.readlink(full)) + b"\0")
            else:
                digest, proven = _digest(full, found)
                settled = settled and proven
                content.update(b"exec " if found.st_mode & stat.S_IXUSR else b"file ")
                content.update(digest.encode() + b"\0")
        except OSError:
            content.update(b"unreadable\0")
            settled = False
    return Input(f"tree:{path}", content.hexdigest()[:_DIGEST_CHARS], stats.hexdigest()[:_DIGEST_CHARS] if settled else None)


def _tree_fault(path: str, mark: str, hint: Any) -> str:
    if not os.path.isdir(path):
        return "gone"
    if hint:
        from hashlib import sha256

        stats = sha256()
        for name, _, found in walk_tree(path):
            stats.update(b"%s\0%d %d %d\0" % (os.fsencode(name), found.st_size, found.st_mtime_ns, found.st_mode))
        if stats.hexdigest()[:_DIGEST_CHARS] == hint:
            return ""
    now = tree_input(path)
    return "gone" if now is None else "" if now.mark == mark else "changed"


# --- looking beyond a session -------------------------------------------------------------------------------------------


class Beyond:
    """One judgement's looks at what lies outside a session: each thing once, so sessions that rest on each other end it too."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._files: dict[tuple[str, str, str], str] = {}
        self._foreign: dict[str, tuple[str, str]] = {}
        self._hops = 0

    def fault(self, name: str, mark: str, hint: Any) -> str:
        """Return what is wrong with an outside input, "" for nothing."""
        if name.startswith("session:"):
            fault, now = self._look(name)
            return fault or ("" if not mark or now == mark else "changed")
        asked = (name, mark, repr(hint))
        if asked not in self._files:
            kind, _, path = name.partition(":")
            self._files[asked] = _file_fault(path, mark, hint) if kind == "file" else _tree_fault(path, mark, hint)
        return self._files[asked]

    def input(self, given: Input) -> Input:
        """Return an outside input as it is now. Raises Refused `no_such_input`, `superseded_input`."""
        kind, _, path = given.name.partition(":")
        found: Input | None
        if kind == "session":
            fault, mark = self._look(given.name)
            found = None if fault and not mark else Input(given.name, mark)
            if fault.startswith("superseded"):
                raise Refused(f"{given.name} was {fault}", code="superseded_input", hint="rest on what took its place", name=given.name)
        else:
            found = file_input(path) if kind == "file" else tree_input(path)
        if found is None:
            raise Refused(f"there is no {given.name}", code="no_such_input", hint="an input must be there when it is declared", name=given.name)
        return found

    def _look(self, name: str) -> tuple[str, str]:
        """Return (fault, mark) of a row or slot of another session; stale there is stale here."""
        if name in self._foreign:
            return self._foreign[name]
        session, _, inner = name[len("session:") :].partition("/")
        replica = self._engine.open(session)
        replica.catch_up()
        with replica.lock:
            now_ms = replica.now_ms()
            fault, mark = ("gone", "") if replica.is_over() else look_at(replica.state, inner, now_ms)
        self._foreign[name] = (fault, mark)  # sessions that rest on each other find this
        if not fault and inner in replica.state.inputs.given and self._hops < HOPS:
            self._hops += 1
            if self.judge(replica, [inner]):
                fault = "stale"
            self._hops -= 1
        self._foreign[name] = (fault, mark)
        return fault, mark

    def judge(self, replica: Replica, wanted: Iterable[str] | None) -> dict[str, tuple[Cause, ...]]:
        return self.verdict(replica, wanted).causes

    def verdict(self, replica: Replica, wanted: Iterable[str] | None) -> Verdict:
        """Return what is stale of these dependents of a session and what they rest on, or of all. Files are looked at without its lock."""
        with replica.lock:
            sheet = collect(replica.state, wanted, replica.now_ms())
        for dependent, name, mark, hint in sheet.outside:
            fault = self.fault(name, mark, hint)
            if fault:
                sheet.direct.setdefault(dependent, []).append(Cause(name, fault))
        with replica.lock:
            return settle(replica.state.inputs, sheet)


def marked(texts: Iterable[str | Input], beyond: Beyond, here: str) -> list[Input]:
    """Return declared inputs; those outside the session with their marks as of now."""
    found = []
    for text in texts:
        given = text if isinstance(text, Input) else expand(text, here)
        found.append(beyond.input(given) if given.mark is None and is_outside(given.name) else given)
    return found


def own_name(given: Input, session: str) -> Input:
    """Return an input that names this very session by the shorter name."""
    inner = given.name.removeprefix(f"session:{session}/")
    return given if inner == given.name else Input(inner, given.mark, given.hint)


# --- words --------------------------------------------------------------------------------------------------------------


def shown_name(name: str, here: str) -> str:
    """Return a name as people and agents read it, in one line: a row by its id, a file by its path from here."""
    from pinfold.dialect.format import format_value

    kind, _, rest = name.partition(":")
    if kind == "row":
        return rest
    if kind in ("file", "tree"):
        path = os.path.relpath(rest, here) if f"{rest}{os.sep}".startswith(here.rstrip(os.sep) + os.sep) else rest
        name = path.replace(os.sep, "/") + ("/" if kind == "tree" else "")
    return format_value(name)


def told(causes: Iterable[Cause], here: str) -> tuple[str, ...]:
    """Return causes as words: the name, and what became of it where that is not simply that it changed."""
    return tuple(shown_name(c.name, here) + ("" if c.what == "changed" else f" {_clean(c.what)}") for c in causes)


def _clean(words: str) -> str:
    from pinfold.dialect.format import quote

    return words if words.isprintable() else quote(words)
