"""MemNet's `@SNAP: 1` files, damaged ones too: a value with a line break was written raw there and split its row."""

from __future__ import annotations

from typing import Any

from pinfold.dialect.legacy import parse_snapshot
from pinfold.importers.records import Read, Record, bad_import, named, read_whole


def read(path: str, **_: Any) -> Read:
    """Return the rows of a snapshot under their own ids; a split row is put together again, and named.

    Raises Refused `bad_import`, `not_utf8`, ConfigurationError `bad_path`.
    """
    content = read_whole(path)
    found = Read(own_ids=True)
    text = content.decode("utf-8", "replace")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in content:
        found.notes.append("some bytes are not UTF-8; each reads as U+FFFD")
    snapshot = parse_snapshot(text, mend=True)
    if not snapshot.ops and any(problem.message.startswith(("no @SNAP", "a snapshot of version")) for problem in snapshot.problems):
        raise bad_import(f"{path} is no snapshot of MemNet: {snapshot.problems[0].message}", "`memnet session save` writes one")
    found.kinds, found.relations = {kind: fields for kind, fields in snapshot.columns.items() if kind not in ("EDG", "LAW")}, snapshot.relations
    for op in snapshot.ops:
        if op.form == "edge":
            found.edges.append(Record("edge", op.id, op.fields, "", op.src, op.rel, op.dst))
        elif op.id is None:
            found.left["rows that were never given an id"] += 1
        elif op.form == "law":
            found.laws.append(Record("law", op.id, op.fields))
        else:
            if op.id in found.nodes:
                found.left["rows that stand there twice (the last counts)"] += 1
            found.nodes[op.id] = Record("node", op.id, op.fields, op.kind)
    if snapshot.mended:
        found.notes.append(f"split by a line break, and put together again: {named(snapshot.mended)}")
    for problem in snapshot.problems:
        found.left[f"lines that are no row: {problem.message}"] += 1
    if snapshot.session:
        found.notes.append(f"it was session {snapshot.session}; how long that was to live is not taken over")
    return found
