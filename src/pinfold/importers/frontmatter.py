"""The front matter of a Markdown file: the part of YAML that people and tools write there, read without a YAML library.

`key: value`, quoted or not; `[a, b]` and `- item` lists; text blocks behind `|` and `>`. A nested map is kept as its text.
Everything else makes the front matter malformed, which is told, never guessed at.
"""

from __future__ import annotations

import json
import re

_key = re.compile(r"([A-Za-z_][\w .-]*?)[ \t]*:(?:[ \t]+(.*))?$").match
_item = re.compile(r"[ \t]*-(?:[ \t]+(.*))?$").match
_comment = re.compile(r"[ \t]+#.*$")
_block = re.compile(r"([|>])[+-]?[0-9]?[+-]?$").match

Value = str | list[str]


def split(text: str) -> tuple[dict[str, Value] | None, str, str]:
    """Return (fields, what stands between the marks, the text below). fields: {} where there is none, None where it is malformed."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return {}, "", "\n".join(lines)
    end = next((place for place, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return None, "", "\n".join(lines)
    head = lines[1:end]
    return parse(head), "\n".join(head), "\n".join(lines[end + 1 :]).lstrip("\n")


def parse(lines: list[str]) -> dict[str, Value] | None:
    """Return the fields of front matter, None where it is malformed."""
    fields: dict[str, Value] = {}
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _key(line)
        if found is None or found[1] in fields:
            return None
        below = place
        while below < len(lines) and (not lines[below].strip() or lines[below][:1] in (" ", "\t") or _item(lines[below])):
            below += 1
        value = _value((found[2] or "").strip(), lines[place:below])
        if value is None:
            return None
        fields[found[1]] = value
        place = below
    return fields


def _value(text: str, below: list[str]) -> Value | None:
    block = _block(_comment.sub("", text))
    inner = [line for line in below if line.strip()]
    if block is not None:
        width = min((len(line) - len(line.lstrip()) for line in inner), default=0)
        told = "\n".join(line[width:].rstrip() for line in below).strip("\n")
        return told if block[1] == "|" else re.sub(r"(?<!\n)\n(?!\n)", " ", told)
    if not text or text.startswith("#"):
        items = [_item(line) for line in inner]
        if all(items):
            plain = [_scalar((item[1] or "").strip()) for item in items if item]
            return None if None in plain else [value for value in plain if value]
        return "\n".join(inner)
    if text.startswith("[") and not inner:
        return _list(_comment.sub("", text))
    scalar = _scalar(" ".join([text, *(line.strip() for line in inner)]))
    return scalar


def _list(text: str) -> list[str] | None:
    if not text.endswith("]"):
        return None
    parts = re.findall(r"""\s*("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,\[\]{}"']*)\s*(?:,|$)""", text[1:-1])
    values = [_scalar(part.strip()) for part in parts]
    if None in values or re.sub(r"\s", "", ",".join(parts)).rstrip(",") != re.sub(r"\s", "", text[1:-1]).rstrip(","):
        return None
    return [value for value in values if value]


def _scalar(text: str) -> str | None:
    if text.startswith('"'):
        found = re.match(r'("(?:[^"\\]|\\.)*")[ \t]*(?:#.*)?$', text)
        if found is None:
            return None
        try:
            return str(json.loads(found[1]))
        except ValueError:
            return found[1][1:-1]
    if text.startswith("'"):
        found = re.match(r"'((?:[^']|'')*)'[ \t]*(?:#.*)?$", text)
        return None if found is None else found[1].replace("''", "'")
    plain = _comment.sub("", text).strip()
    return None if plain[:1] in ("{", "[", "&", "*", "!", "|", ">", "%", "@", "`") else "" if plain in ("null", "~") else plain
