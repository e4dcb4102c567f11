"""Front matter as people write it: a small part of YAML 1.2, read strictly.

Read are keys with plain, quoted, folded (`>`) and literal (`|`) texts, lists (`- x` and `[a, b]`) and maps (also `{a: b}`) one
level down, and comments. Every scalar is its text: `1.0` stays "1.0". Anchors, tags and deeper nesting are refused.
"""

from __future__ import annotations

import re

Value = str | list[str] | dict[str, str] | None

CHARS = 32 * 1024
"""A longer one is no front matter."""

_colon = re.compile(r":(?:[ \t]|$)").search
_plain_key = re.compile(r"[\w. /-]+").fullmatch
_block = re.compile(r"([>|])([+-]?)(?:[ \t]+#.*)?").fullmatch
_escapes = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "0": "\0", " ": " "}


def parse_front_matter(text: str) -> dict[str, Value]:
    """Return the keys of a front matter. Raises ValueError naming the line, from 1, and what it has that is not read."""
    if len(text) > CHARS:
        raise ValueError(f"line 1: it has {len(text)} characters, {CHARS} are read at most")
    return _Reader(text.replace("\r\n", "\n").split("\n")).mapping()


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 0

    def _fault(self, what: str) -> ValueError:
        return ValueError(f"line {self.at + 1}: {what}")

    def mapping(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while self._skip_blank():
            if self._indent() > 0:
                raise self._fault("unexpected indentation")
            key, rest = self._pair(self.lines[self.at])
            if key in found:
                raise self._fault(f"{key} is there twice")
            self.at += 1
            found[key] = self._value(rest, 0)
        return found

    def _skip_blank(self) -> bool:
        """Go to the next line that says something. Return whether there is one."""
        while self.at < len(self.lines) and (not self.lines[self.at].strip() or self.lines[self.at].lstrip().startswith("#")):
            self.at += 1
        return self.at < len(self.lines)

    def _indent(self) -> int:
        line = self.lines[self.at]
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise self._fault("a tab indents")
        return len(line) - len(line.lstrip(" "))

    def _pair(self, line: str) -> tuple[str, str]:
        found = _key_of(line.strip())
        if found is None:
            raise self._fault("not a key with a value")
        return found

    def _value(self, rest: str, indent: int) -> Value:
        """Return the value behind a key whose line is read already. indent: of the key."""
        if (m := _block(rest)) is not None:
            return self._block(m[1], m[2], indent)
        if rest and not rest.startswith("#"):
            return self._flow(rest, indent)
        if not self._skip_blank() or (self._indent() <= indent and not (self._indent() == indent and self._item() is not None)):
            return None
        return self._list(self._indent()) if self._item() is not None else self._map(self._indent())

    def _item(self) -> str | None:
        line = self.lines[self.at].strip()
        return line[1:].strip() if line == "-" or line.startswith("- ") else None

    def _list(self, indent: int) -> list[str]:
        found = []
        while self._skip_blank() and self._indent() == indent and (item := self._item()) is not None:
            self.at += 1
            if _key_of(item) is not None and not item.startswith(("'", '"')):
                self.at -= 1
                raise self._fault("a map in a list")
            value = self._flow(item, indent)
            if not isinstance(value, str):
                self.at -= 1
                raise self._fault("a list in a list")
            found.append(value)
        return found

    def _map(self, indent: int) -> dict[str, str]:
        found: dict[str, str] = {}
        while self._skip_blank() and self._indent() == indent:
            key, rest = self._pair(self.lines[self.at])
            self.at += 1
            value = self._value(rest, indent)
            if isinstance(value, dict):
                self.at -= 1
                raise self._fault("a map in a map in a map")
            found[key] = ", ".join(value) if isinstance(value, list) else value or ""
        if self.at < len(self.lines) and self._skip_blank() and self._indent() > indent:
            raise self._fault("unexpected indentation")
        return found

    def _block(self, style: str, chomp: str, indent: int) -> str:
        """Read a folded or literal text: the lines that are indented more than its key."""
        lines: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
                break
            lines.append(line)
            self.at += 1
        inner = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        lines = [line[inner:] for line in lines]
        text = "\n".join(lines) if style == "|" else _folded(lines)
        text = text.rstrip("\n")
        return text if chomp == "-" or not text else text + "\n"

    def _flow(self, text: str, indent: int) -> str | list[str] | dict[str, str]:
        """Return a plain or quoted text, which may go on in lines that are indented more, or a list or map in brackets."""
        if text[0] in "\"'":
            while not _is_closed(text) and self.at < len(self.lines):
                text += " " + self.lines[self.at].strip()
                self.at += 1
            return self._quoted(text)
        if text[0] in "[{":
            close = "]" if text[0] == "[" else "}"
            while close not in text and self.at < len(self.lines):
                text += " " + self.lines[self.at].strip()
                self.at += 1
            inner, _, behind = text[1:].rpartition(close)
            if close not in text or (behind.strip() and not behind.strip().startswith("#")) or any(sign in inner for sign in "[{"):
                raise self._fault("a list or map in brackets that does not end, or holds another")
            parts = [part.strip() for part in _split(inner) if part.strip()]
            if close == "]":
                return [self._scalar(part) for part in parts]
            pairs = [self._pair(part) for part in parts]
            return {key: self._scalar(value) for key, value in pairs}
        if text[0] in "&*!%@`":
            self.at -= 1
            raise self._fault(f"{text[0]} is not read here")
        parts = [re.sub(r"(?:^|\s+)#.*$", "", text)]
        while self.at < len(self.lines) and self.lines[self.at].strip() and self._indent() > indent and not self.lines[self.at].lstrip().startswith("#"):
            parts.append(self.lines[self.at].strip())
            self.at += 1
        if ": " in parts[0]:
            self.at -= len(parts)
            raise self._fault("a plain text with a colon and a blank in it; quote it")
        return " ".join(parts)

    def _scalar(self, text: str) -> str:
        return self._quoted(text) if text[:1] in ("'", '"') else text

    def _quoted(self, text: str) -> str:
        if not _is_closed(text):
            raise self._fault("a quote that does not end")
        body = text[: _close(text) + 1]
        if body[0] == "'":
            return body[1:-1].replace("''", "'")
        return re.sub(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", _unescaped, body[1:-1])


def _unescaped(m: re.Match[str]) -> str:
    code = m[1] or m[2]
    return chr(int(code, 16)) if code else _escapes.get(m[3], m[3])


def _key_of(line: str) -> tuple[str, str] | None:
    """Return (key, what stands behind its colon) of a line, None where it has no key."""
    if line[:1] in ("'", '"'):
        end = _close(line) + 1
        rest = line[end:].lstrip()
        return (line[1 : end - 1], rest[1:].strip()) if end and rest.startswith(":") else None
    colon = _colon(line)
    key = line[: colon.start()].rstrip() if colon is not None else ""
    return (key, line[colon.end() :].strip()) if colon is not None and _plain_key(key) else None


def _close(text: str) -> int:
    """Return where a quoted text ends, -1 for nowhere."""
    pattern = r"'(?:[^']|'')*'" if text[0] == "'" else r'"(?:[^"\\]|\\.)*"'
    m = re.match(pattern, text, re.DOTALL)
    return m.end() - 1 if m is not None else -1


def _is_closed(text: str) -> bool:
    return _close(text) > 0


def _split(text: str) -> list[str]:
    """Return the parts of a list in brackets: commas within quotes part nothing."""
    return re.findall(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,])+""", text)


def _folded(lines: list[str]) -> str:
    """Return lines joined by blanks; an empty line is a line break, and lines that are indented more stay as they are."""
    text = ""
    breaks = 0
    before = ""
    for line in lines:
        if not line.strip():
            breaks += 1
            continue
        kept = line.startswith(" ") or before.startswith(" ")
        if not before:
            text = "\n" * breaks
        elif breaks:
            text += "\n" * (breaks + kept)
        else:
            text += "\n" if kept else " "
        text += line
        before, breaks = line, 0
    return text
