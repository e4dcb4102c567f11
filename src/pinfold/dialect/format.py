"""Rows -> lines of the dialect. For every row, parse(format(row)) == row, and no value can become a line or an op.

A value prints bare exactly when reading it back bare gives the same value; otherwise it is quoted. Nothing printed here
carries an op, save by `delta.diff`, whose purpose is to be applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

_CONTROL = "\x00-\x1f\x7f-\x9f\u2028\u2029"
_bare = re.compile(rf'(?!["\s])[^;{_CONTROL}]*+(?<!\s)').fullmatch
# White space at either end, of any sort: spaces are trimmed on reading, and the others would not survive an editor.
_escapes: dict[int, str] = {code: f"\\u{code:04x}" for code in [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]}
_escapes.update({ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"})

CUT = "…+"
"""Behind a closing quote: the value was cut, and the number of characters left out follows. Refused on write."""


def quote(value: str) -> str:
    """Return the value in quotes, with the short escapes and \\uXXXX for the other control and separator characters."""
    return f'"{value.translate(_escapes)}"'


def format_value(value: str) -> str:
    """Return the value as it stands behind "=": bare where that reads back the same, else quoted."""
    return value if value and _bare(value) else quote(value)


def format_cut(value: str, kept: int) -> str:
    """Return the first kept characters, quoted, with the number left out: content="The first"…+1234."""
    return f"{quote(value[:kept])}{CUT}{len(value) - kept}"


def format_fields(fields: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return "k=v ; k=v". Empty values are absent fields and are left out."""
    pairs = fields.items() if isinstance(fields, (dict, Mapping)) else list(fields)  # dict first: asking an ABC takes longer than all the rest
    text = " ; ".join([f"{key}={value}" for key, value in pairs if value])
    # One look at the whole instead of one at each value: nothing here could need quotes. False alarms only cost time.
    if text.isprintable() and '"' not in text and "= " not in text and "  " not in text and text[-1:] != " " and text.count(";") < max(len(pairs), 1):
        return text
    return " ; ".join([f"{key}={value if _bare(value) else quote(value)}" for key, value in pairs if value])


def format_node(id: str, kind: str, fields: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return "KIND [id] ; k=v"."""
    tail = format_fields(fields)
    return f"{kind} [{id}] ; {tail}" if tail else f"{kind} [{id}]"


def format_edge(id: str, src: str, rel: str, dst: str, fields: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return "E1 [T1] --(owns)--> [M1] ; k=v"."""
    tail = format_fields(fields) if fields else ""
    head = f"{id} [{src}] --({rel})--> [{dst}]"
    return f"{head} ; {tail}" if tail else head


def format_law(id: str, fields: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return "LAW01 k=v ; k=v". A law line reads as a create: where it was printed it is `id_exists`."""
    tail = format_fields(fields)
    return f"{id} {tail}" if tail else id


def format_schema_kind(kind: str, fields: Iterable[str], pin: bool) -> str:
    """Return "SCHEMA TSK ; fields=id goal status", with "; pin=true" for a pin."""
    return f"SCHEMA {kind} ; fields={' '.join(['id', *fields])}" + (" ; pin=true" if pin else "")


def format_schema_relations(relations: Iterable[str]) -> str:
    """Return "SCHEMA relations ; names=owns next"."""
    return f"SCHEMA relations ; names={' '.join(relations)}"


def format_document(laws: list[str], nodes: list[str], edges: list[str]) -> list[str]:
    """Return the lines in their sections; a section without rows is not named."""
    out: list[str] = []
    for title, lines in (("## Laws", laws), ("## Nodes", nodes), ("## Edges", edges)):
        if lines:
            out.append(title)
            out.extend(lines)
    return out


STALE_LINES = 20
"""Stale rows told of below one read; how many more there are is told too."""


def format_stale(id: str, because: Iterable[str]) -> str:
    """Return the comment line of a row that can no longer be trusted: "# stale T1 because E7, src/a.py"."""
    return f"# stale {id} because {', '.join(because)}"


def stale_lines(because: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the comment lines of stale rows, given why by id; from STALE_LINES on only their number."""
    told = [format_stale(id, words) for id, words in islice(because.items(), STALE_LINES)]
    return told if len(because) <= STALE_LINES else [*told, f"# stale: {len(because) - STALE_LINES} more"]


def format_footer(
    *,
    seq: int,
    nodes: tuple[int, int] | None = None,
    edges: tuple[int, int] | None = None,
    laws: tuple[int, int] | None = None,
    tokens: tuple[int, int] | None = None,
    counter: str = "est",
    omitted_tokens: int = 0,
    more: Mapping[str, str] | None = None,
    cursor: str = "",
) -> str:
    """Return the footer, one comment line: "# pinfold: seq=41 nodes=12/40 edges=18/77 tokens=612/800 est …".

    nodes, edges, laws: shown and total; laws only where not all are shown. tokens: used and allowed.
    """
    parts = [f"# pinfold: seq={seq}"]
    if laws is not None and laws[0] != laws[1]:
        parts.append(f"laws={laws[0]}/{laws[1]}")
    if nodes is not None:
        parts.append(f"nodes={nodes[0]}/{nodes[1]}")
    if edges is not None:
        parts.append(f"edges={edges[0]}/{edges[1]}")
    if tokens is not None:
        parts.append(f"tokens={tokens[0]}/{tokens[1]}" + (f" {counter}" if counter else ""))
    if omitted_tokens:
        parts.append(f"omitted~{omitted_tokens}")
    parts.extend(f"{key}={value}" if value else key for key, value in (more or {}).items())
    if cursor:
        parts.append(f"cursor={cursor}")
    return " ".join(parts)
