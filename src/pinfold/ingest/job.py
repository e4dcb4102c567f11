"""One ingest: find the files, read them, compare with the session's pins, write the difference in bounded entries."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold import limits
from pinfold.bulk import Bulk
from pinfold.errors import Busy, DocumentRefused, Refused
from pinfold.ingest.pins import Difference, Orphan, Wanted, difference
from pinfold.ingest.source import Source, Unread
from pinfold.tree import RACY_NS, check_path, repository_of, walk_tree

if TYPE_CHECKING:
    from pinfold.dialect.parse import Op
    from pinfold.graph_session import GraphSession, View

SOURCES = {
    "code": "pinfold.ingest.code",
    "sysml": "pinfold.ingest.sysml",
    "ato": "pinfold.ingest.ato",
    "skills": "pinfold.ingest.skills",
}
"""Kind -> the module whose `source(languages)` reads it."""

EXCLUDE = ("node_modules/", ".venv/", "venv/", "site-packages/", "__pycache__/", ".tox/", ".mypy_cache/")
"""Folders of other people's files, also where no `.gitignore` says so. A `.gitignore` that names one with `!` has it back."""

NAMED_CHANGES = 50
"""Changed pins that a report names one by one."""

_RACES = frozenset({"not_found", "id_exists", "edge_exists", "no_such_node"})
"""Refusals of a difference that somebody else's write made old."""

Progress = Callable[[str, int, int], None]
"""Called with what is done ("read", "write"), how many of it, and of how many."""


class Ingested(msgspec.Struct, frozen=True):
    """What an ingest did. Counts of pins, edges (links) and files; patched counts both; seq of the last entry.

    root: the folder that locators begin at. pins, links: what the files say, whether or not it was new. changes: `+ ID`, `~ ID`,
    `- ID` of the pins that changed, where they are at most NAMED_CHANGES. skipped: why a file was not read -> how many. unread:
    `file: why` of those that could not be understood. found: what the source has to say.
    """

    kind: str
    path: str
    root: str
    files: int
    pins: int
    links: int
    created: int
    patched: int
    dropped: int
    linked: int
    unlinked: int
    changes: list[str]
    orphaned: list[Orphan]
    skipped: dict[str, int]
    unread: list[str]
    found: dict[str, Any]
    seq: int
    dry_run: bool

    @property
    def changed(self) -> bool:
        return bool(self.created or self.patched or self.dropped or self.linked or self.unlinked)


class _File(msgspec.Struct):
    """A file as it was read. proven: its stat tells from now on whether it changed. why: it could not be understood, or not read."""

    seen: tuple[int, ...]
    proven: bool
    digest: bytes
    part: Any
    why: str


class Ingest:
    """An ingest that can be run again: files that did not change meanwhile are not read again."""

    def __init__(
        self,
        session: GraphSession,
        kind: str,
        path: str,
        *,
        root: str | None = None,
        exclude: Sequence[str] = (),
        languages: Sequence[str] = (),
        max_rows: int = limits.INGEST_ROWS,
        max_bytes: int = limits.INGEST_BYTES,
        progress: Progress | None = None,
    ) -> None:
        """Raises Refused `bad_argument`, `bad_path`, `no_such_path`; ConfigurationError `missing_extra`."""
        if kind not in SOURCES:
            raise Refused(f"there is no source {kind!r}", code="bad_argument", hint=f"one of {', '.join(SOURCES)}")
        for given in (path, root):
            if given is not None:
                check_path(given)
        self.session, self.kind = session, kind
        self.source: Source = import_module(SOURCES[kind]).source(tuple(languages))
        self.path = os.path.realpath(os.path.expanduser(path))
        folder = self.path if os.path.isdir(self.path) else os.path.dirname(self.path)
        self.root = os.path.realpath(os.path.expanduser(root)) if root is not None else repository_of(folder) or folder
        if not f"{self.path}{os.sep}".startswith(self.root.rstrip(os.sep) + os.sep):
            raise Refused(f"{path} is not in {root}", code="bad_argument", hint="the root is a folder above the path, or the path itself", path=path)
        self.scope = "" if self.path == self.root else _name_of(os.path.relpath(self.path, self.root).replace(os.sep, "/"))
        self.exclude = (*EXCLUDE, *exclude)
        self.max_rows, self.max_bytes = max_rows, max_bytes
        self._progress = progress or (lambda what, done, total: None)
        self._files: dict[str, _File] = {}

    # --- looking ------------------------------------------------------------------------------------------------

    def find(self) -> tuple[dict[str, tuple[str, os.stat_result]], dict[str, int]]:
        """Return (name from the root -> (full path, stat) of the files there are, why others are left out -> how many)."""
        found: dict[str, tuple[str, os.stat_result]] = {}
        skipped: dict[str, int] = {}
        if os.path.isdir(self.path):
            listed: Iterable[tuple[str, str, os.stat_result]] = walk_tree(self.path, self.exclude)
            before = f"{self.scope}/" if self.scope else ""
        elif os.path.isfile(self.path):
            listed, before = [(self.scope, self.path, os.stat(self.path))], ""
        else:
            raise Refused(f"there is no {self.path}", code="no_such_path", hint="name a folder or a file", path=self.path)
        for inner, full, stats in listed:
            name = before + _name_of(inner)
            is_link = stat.S_ISLNK(stats.st_mode)
            if not self.source.takes(name) and not (is_link and os.path.isdir(full)):
                continue
            why = ""
            if is_link:
                why = "link"
            elif self.source.reads(name) and stats.st_size > limits.INGEST_FILE_BYTES:
                why = f"over {limits.INGEST_FILE_BYTES // limits.MIB} MiB"
            if why:
                skipped[why] = skipped.get(why, 0) + 1
            else:
                found[name] = (full, stats)
        return found, skipped

    def is_changed(self) -> bool:
        """Return whether a file came, went or has other content since it was last looked at; what is new or changed is read."""
        return self._read(self.find()[0])

    def wait(self, every_s: float) -> None:
        """Return when a file has come, gone or changed; looks every every_s seconds."""
        time.sleep(every_s)
        while not self.is_changed():
            time.sleep(every_s)

    def _read(self, found: Mapping[str, tuple[str, os.stat_result]]) -> bool:
        """Read what is new or changed. Return whether anything is otherwise than before. Raises Refused `too_many_bytes`."""
        size = sum(stats.st_size for name, (_, stats) in found.items() if self.source.reads(name))
        if size > self.max_bytes:
            raise _over("too_many_bytes", f"{self.path} has {size} bytes to read", f"max_bytes is {self.max_bytes}", found)
        before, self._files = self._files, {}
        changed = before.keys() != found.keys()
        for done, (name, (full, stats)) in enumerate(found.items()):
            old = before.get(name)
            file = self._files[name] = self._file(name, full, stats, old)
            changed = changed or old is None or (old.digest, old.why) != (file.digest, file.why)
            if done % 64 == 0:
                self._progress("read", done, len(found))
        self._progress("read", len(found), len(found))
        return changed

    def _file(self, name: str, full: str, stats: os.stat_result, old: _File | None) -> _File:
        """Return a file as it is now, read again only where its stat does not prove it, understood again only where its content is another."""
        seen = (stats.st_size, stats.st_mtime_ns, stats.st_ctime_ns, stats.st_ino)
        if old is not None and old.proven and old.seen == seen:
            return old
        proven = time.time_ns() - max(stats.st_mtime_ns, stats.st_ctime_ns) > RACY_NS
        data = b""
        try:
            if self.source.reads(name):
                with open(full, "rb") as opened:
                    data = opened.read(limits.INGEST_FILE_BYTES + 1)
            digest = blake2b(data).digest()
            if old is not None and old.digest == digest:
                return _File(seen, proven, digest, old.part, old.why)
            return _File(seen, proven, digest, self.source.read(name, data), "")
        except Unread as error:
            return _File(seen, proven, digest, None, str(error))
        except OSError as error:
            return _File(seen, proven, b"", None, str(error.strerror))

    # --- the run ------------------------------------------------------------------------------------------------

    def run(self, *, dry_run: bool = False) -> Ingested:
        """Bring the session's pins up to what the files say. Raises Refused `too_many_rows`, `too_many_bytes`, `graph_full`; Busy.

        Up to INGEST_BATCH_ROWS changes are one entry. More are several, each whole; a run after one that was cut short does the rest.
        """
        found, skipped = self.find()
        done = _Done()
        with Bulk():
            self._read(found)
            parts = {name: file.part for name, file in self._files.items() if not file.why}
            for attempt in range(limits.INGEST_ATTEMPTS):
                wanted, said, change = self._compare(parts)
                if attempt == 0:
                    self._check(wanted, change, parts)
                    done.orphaned = change.orphaned
                if dry_run:
                    for batch in change.batches(limits.INGEST_BATCH_ROWS):
                        self.session._change(batch, "mutate", None, True, False, None)
                        break
                    done.tally(change.ops)
                    break
                if self._write(change, done):
                    break
            else:
                raise Busy(f"others write the pins of {self.path} all the time", hint="try again")
        with self.session._replica.lock:
            seq = self.session._replica.state.seq
        return Ingested(
            kind=self.kind,
            path=self.path,
            root=self.root,
            files=sum(1 for name in parts if self.source.reads(name)),
            pins=len(wanted.pins),
            links=len(wanted.links),
            **done.counts,
            changes=done.changes if len(done.changes) <= NAMED_CHANGES else [],
            orphaned=done.orphaned,
            skipped=skipped,
            unread=[f"{name}: {file.why}" for name, file in self._files.items() if file.why],
            found=said,
            seq=seq,
            dry_run=dry_run,
        )

    def _compare(self, parts: Mapping[str, Any]) -> tuple[Wanted, dict[str, Any], Difference]:
        """Return what the files say and what that changes, on the session as it is now. What takes long is done without its lock."""
        source, kept, lock = self.source, {name for name, file in self._files.items() if file.why}, self.session._replica.lock
        wanted = Wanted(source.kinds, source.relations, {}, {}, lambda file: self._is_in_scope(file) and file not in kept, source.link_fields)
        with lock:
            known = dict(self._known(self.session._view(), wanted))
        said = source.join(parts, known, wanted)
        with lock:
            view = self.session._view()
            return wanted, said, difference(view.graph, view.schema, wanted, view.now_ms)

    def _known(self, view: View, wanted: Wanted) -> Iterator[tuple[str, str]]:
        """Yield (locator, id) of the pins that are of files which were not read."""
        for kind in self.source.kinds:
            for id in view.graph.kinds.get(kind.name, ()) if kind.file else ():
                node = view.graph.nodes[id]
                if not wanted.owns(kind.file_of(node)) and not view.graph.is_hidden(node, view.now_ms):
                    yield node.get(kind.fields[0]), id

    def _is_in_scope(self, file: str) -> bool:
        inside = not self.scope or file == self.scope or file.startswith(f"{self.scope}/")
        return inside and self.source.takes(file)

    def _check(self, wanted: Wanted, change: Difference, parts: Mapping[str, Any]) -> None:
        rows = len(wanted.pins) + len(wanted.links)
        if rows > self.max_rows:
            raise _over("too_many_rows", f"{self.path} gives {rows} rows", f"max_rows is {self.max_rows}", parts)
        with self.session._replica.lock:
            room = limits.ROWS_PER_SESSION - len(self.session._view().graph)
        if change.added > room:
            raise Refused(f"{self.path} adds {change.added} rows, the session has room for {room}", code="graph_full", hint="use a session of its own")

    def _write(self, change: Difference, done: _Done) -> bool:
        """Write a difference. Return whether all of it could be written; False where somebody else wrote the same rows."""
        at = 0
        for batch in change.batches(limits.INGEST_BATCH_ROWS):
            try:
                self.session._change(batch, "mutate", None, False, False, None)
            except DocumentRefused as refusal:
                if all(problem.code in _RACES for problem in refusal.problems):
                    return False
                raise
            done.tally(batch.ops)
            at += len(batch.ops)
            self._progress("write", at, len(change.ops))
        return True


class _Done:
    """What was written, counted; the pins by name while they are few."""

    def __init__(self) -> None:
        self.counts = {"created": 0, "patched": 0, "dropped": 0, "linked": 0, "unlinked": 0}
        self.changes: list[str] = []
        self.orphaned: list[Orphan] = []

    def tally(self, ops: Iterable[Op]) -> None:
        for op in ops:
            name = _COUNTS.get((op.op, op.form))
            if name is not None:
                self.counts[name] += 1
            if op.form == "node" and len(self.changes) <= NAMED_CHANGES:
                self.changes.append(f"{op.op} {op.id}")


_COUNTS = {
    ("+", "node"): "created",
    ("~", "node"): "patched",
    ("-", "node"): "dropped",
    ("+", "edge"): "linked",
    ("~", "edge"): "patched",
    ("-", "edge"): "unlinked",
}


def _name_of(path: str) -> str:
    """Return a path as a locator has it: text of UTF-8, without the two colons that end the file in it."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace("::", ":\\:")


def _over(code: str, what: str, limit: str, names: Iterable[str]) -> Refused:
    """Return a refusal by a budget, naming the folder that most files are in."""
    counts: dict[str, int] = {}
    for name in names:
        folder = name.partition("/")[0] if "/" in name else "."
        counts[folder] = counts.get(folder, 0) + 1
    most = max(counts, key=lambda folder: counts[folder], default=".")
    hint = f"most files are in {most}: name a smaller folder, --exclude some, or raise the limit"
    return Refused(f"{what}, {limit}; nothing was written", code=code, hint=hint)
