"""Output schemas of the tools, for `--structured on`, made from what each row says of its result.

`status "a"|"b", index, evicted?` are fields; `entries[]{seq, at}` is a list of objects, `short_term{slots}` an object; `?` may
lack; `{…} | {…}` are alternatives. A cut answer has `cut` beside them, so no schema forbids further fields.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pinfold.operations import Operation

_name = re.compile(r"\s*(\w+)(\[\])?(\?)?")


def output_schema(row: Operation) -> dict[str, Any]:
    """Return the JSON Schema of a row's result."""
    alternatives = re.findall(r"(?:^|\| )\{(.*?)\}(?= \||$)", row.result)
    if not alternatives and " | " in row.result:
        alternatives = row.result.split(" | ")
    if alternatives:
        return {"type": "object", "anyOf": [_object(told) for told in alternatives]}
    return {"type": "object", **_object(row.result)}


def _parts(told: str) -> list[str]:
    """Return what stands between the commas outside braces."""
    parts, depth = [""], 0
    for char in told:
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _object(told: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for part in _parts(told):
        found = _name.match(part)
        if found is None:
            continue
        name, is_list, may_lack = found[1], bool(found[2]), bool(found[3])
        properties[name] = _field(part[found.end() :], is_list)
        if not may_lack and not part.rstrip().endswith("?"):
            required.append(name)
    return {"properties": properties, **({"required": required} if required else {})}


def _field(rest: str, is_list: bool) -> dict[str, Any]:
    inner = re.search(r"\{(.*)\}", rest)
    if inner is not None and re.match(r'\s*("|\w+:)', inner[1]):
        return {"type": "object"}  # a map: its names are the caller's
    schema: dict[str, Any] = {} if inner is None else {"type": "object", "properties": _object(inner[1])["properties"]}  # listed words are paid for
    if is_list:
        return {"type": "array", **({"items": schema} if schema else {})}
    words = re.findall(r'"([^"]+)"', rest)
    if words and re.fullmatch(r'\s*"[^"]+"(\|"[^"]+")*\s*', rest):
        return {"enum": words}
    return schema
