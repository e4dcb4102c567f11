"""What changed: the delta a reader gets, and the document that turns one graph into another.

A delta shows, so nothing in it is an op. A diff is meant to be applied: apply(diff(a, b), a) == b, for equal nodes, edges,
laws and values; not for counters, the order of fields, or a schema that got narrower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pinfold.dialect.format import format_value

CHANGED = "## Changed"
GONE = "# pinfold: gone"


class Row(msgspec.Struct, frozen=True):
    """A row as a diff sees it. form: node, edge or law."""

    form: str
    id: str
    fields: Mapping[str, str]
    kind: str = ""
    src: str = ""
    rel: str = ""
    dst: str = ""


def format_delta(changed: list[str], gone: list[str]) -> list[str]:
    """Return the lines of a delta: "## Changed", present lines in full, and one comment line with the ids no longer shown."""
    lines = [CHANGED, *changed] if changed else []
    if gone:
        lines.append(f"{GONE} {' '.join(gone)}")
    return lines


def diff(a: Iterable[Row], b: Iterable[Row]) -> list[str]:
    """Return the lines of a mutate document that turns the rows a into the rows b. Drops, then creates and patches, edges last.

    A row whose form, kind or ends differ is dropped and created anew. An edge that a dropped node takes with it is not
    dropped by name; one that is still there in b is created again. Rows that go when they are settled are written settled
    only at the end of a document, so b never holds them.
    """
    old = {row.id: row for row in a}
    new = {row.id: row for row in b}
    gone = {id for id, row in old.items() if id not in new or not _is_same_row(row, new[id])}
    taken = {id for id, row in old.items() if row.form == "edge" and ({row.src, row.dst} & gone)}
    drops = [f"- {id}" for id, row in old.items() if id in gone and id not in taken]
    puts: dict[str, list[str]] = {"law": [], "node": [], "edge": []}
    for id, row in new.items():
        was = old.get(id)
        if was is None or id in gone or id in taken:
            puts[row.form].append(_create(row))
        else:
            line = _patch(was, row)
            if line:
                puts[row.form].append(line)
    return [*drops, *puts["law"], *puts["node"], *puts["edge"]]


def _is_same_row(a: Row, b: Row) -> bool:
    return (a.form, a.kind, a.src, a.rel, a.dst) == (b.form, b.kind, b.src, b.rel, b.dst)


def _assign(fields: Iterable[tuple[str, str]]) -> str:
    return "".join(f" ; {key}={format_value(value) if value else ''}" for key, value in fields)


def _create(row: Row) -> str:
    fields = _assign(pair for pair in row.fields.items() if pair[1])
    if row.form == "node":
        return f"+ {row.kind} [{row.id}]{fields}"
    if row.form == "edge":
        return f"+ {row.id} [{row.src}] --({row.rel})--> [{row.dst}]{fields}"
    return f"+ {row.id}{fields}"


def _patch(a: Row, b: Row) -> str:
    changes = [(key, value) for key, value in b.fields.items() if a.fields.get(key, "") != value]
    changes += [(key, "") for key, value in a.fields.items() if value and not b.fields.get(key)]
    if not changes:
        return ""
    name = f"[{b.id}]" if b.form == "node" else b.id
    return f"~ {name}{_assign(changes)}"
