"""One key of a JSON text set or removed, every other byte left as it is. Reads JSON with comments and trailing commas too.

Rules kept here:
- A text that does not parse, or parses otherwise than its client would (a key twice on our way), is refused, never mended.
- An edit is a few insertions and deletions in the text. Afterwards it is parsed again: it must say what was meant, and
  nothing else may say anything new; otherwise it is refused.
- What is inserted looks like its surroundings: their indentation, line ends, and spaces after a colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from pinfold.errors import Refused

Path = tuple[str | int, ...]
"""Keys and places from the root."""
DEPTH = 200

_blank = re.compile(r"[ \t\r\n]*").match
_comment = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL).match
_string = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"').match
_scalar = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])|(?:true|false|null)(?!\w)").match
_rest_of_line_is_blank = re.compile(r"[ \t]*(?:\r?\n|$)").match


class Absent:
    """What `get` returns where there is no such key."""


ABSENT = Absent()


class Span(msgspec.Struct, gc=False):
    """A value in the text, [start, end). parts: of an object or a list, in order; value: of everything else."""

    start: int
    end: int = 0
    kind: str = ""
    parts: list[Part] = []
    value: Any = None


class Part(msgspec.Struct, gc=False):
    """A member or an element: where it begins (its key does), and the comma behind it, -1 for none."""

    start: int
    key: str
    span: Span
    comma: int = -1


class Document:
    """A JSON text with the place of every value. comments: whether comments and trailing commas are allowed."""

    def __init__(self, text: str, *, comments: bool = False, name: str = "the text") -> None:
        self.text = text
        self.comments = comments
        self.name = name
        self.remarks: list[tuple[int, int]] = []
        at = self._skip(1 if text.startswith("\ufeff") else 0)
        if at == len(text):
            self._refuse(at, "nothing is there")
        self.root, at = self._value(at, 0)
        at = self._skip(at)
        if at != len(text):
            self._refuse(at, "something follows the end")

    # --- reading --------------------------------------------------------------------------------------------------

    def _refuse(self, at: int, what: str) -> NoReturn:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        raise Refused(
            f"{self.name} is not valid at line {line}, column {column}: {what}",
            code="invalid_file",
            hint="mend it first; --print shows what to add by hand",
            line=line,
            column=column,
        )

    def _skip(self, at: int) -> int:
        """Return the first place from at on that is neither blank nor a comment."""
        while True:
            at = _blank(self.text, at).end()  # type: ignore[union-attr]
            if not self.text.startswith("/", at):
                return at
            found = _comment(self.text, at)
            if found is None:
                self._refuse(at, "a comment that does not end" if self.text.startswith("/*", at) else "a stray /")
            if not self.comments:
                self._refuse(at, "a comment, which plain JSON has none of")
            self.remarks.append(found.span())
            at = found.end()

    def _value(self, at: int, depth: int) -> tuple[Span, int]:
        text = self.text
        if depth > DEPTH:
            self._refuse(at, f"nested deeper than {DEPTH}")
        if text.startswith(("{", "["), at):
            return self._container(at, depth)
        found = _string(text, at) if text.startswith('"', at) else _scalar(text, at)
        if found is None:
            self._refuse(at, "a string that does not end or has a bad escape" if text.startswith('"', at) else "no value stands here")
        return Span(at, found.end(), "scalar", [], json.loads(found.group())), found.end()

    def _container(self, at: int, depth: int) -> tuple[Span, int]:
        text = self.text
        is_object = text[at] == "{"
        close = "}" if is_object else "]"
        span = Span(at, 0, "object" if is_object else "list", [])
        at = self._skip(at + 1)
        while not text.startswith(close, at):
            if span.parts and span.parts[-1].comma < 0:
                self._refuse(at, f"a comma or {close} is missing")
            start, key = at, ""
            if is_object:
                found = _string(text, at)
                if found is None:
                    self._refuse(at, "a key is missing")
                key = json.loads(found.group())
                at = self._skip(found.end())
                if not text.startswith(":", at):
                    self._refuse(at, "a colon is missing")
                at = self._skip(at + 1)
            inner, at = self._value(at, depth + 1)
            part = Part(start, key, inner)
            span.parts.append(part)
            at = self._skip(at)
            if text.startswith(",", at):
                part.comma = at
                at = self._skip(at + 1)
                if text.startswith(close, at) and not self.comments:
                    self._refuse(part.comma, "a comma before the end")
        span.end = at + 1
        return span, at + 1

    def plain(self, span: Span | None = None) -> Any:
        """Return a value as Python has it; of a key that stands twice the last counts."""
        span = self.root if span is None else span
        if span.kind == "object":
            return {part.key: self.plain(part.span) for part in span.parts}
        if span.kind == "list":
            return [self.plain(part.span) for part in span.parts]
        return span.value

    def find(self, path: Path) -> tuple[Span, Path]:
        """Return (the deepest value on the way that is there, what is left of the path). Refuses what is no container."""
        span = self.root
        for place, step in enumerate(path):
            if span.kind != ("list" if isinstance(step, int) else "object"):
                self._refuse(span.start, f"{'.'.join(map(str, path[:place])) or 'the whole'} is no {'list' if isinstance(step, int) else 'object'}")
            part = self._part(span, step)
            if part is None:
                return span, path[place:]
            span = part.span
        return span, ()

    def _part(self, span: Span, step: str | int) -> Part | None:
        if isinstance(step, int):
            return span.parts[step] if step < len(span.parts) else None
        found = [part for part in span.parts if part.key == step]
        if len(found) > 1:
            self._refuse(found[1].start, f"the key {step!r} stands twice")
        return found[0] if found else None

    def get(self, path: Path) -> Any:
        """Return the value at a path, ABSENT where there is none."""
        span, left = self.find(path)
        return ABSENT if left else self.plain(span)

    # --- writing --------------------------------------------------------------------------------------------------

    def with_value(self, path: Path, value: Any) -> str:
        """Return the text with the value at path; what is missing on the way is made. In a list a step past its end appends."""
        span, left = self.find(path)
        if not left:
            if self.plain(span) == value:
                return self.text
            if any(span.start <= start < span.end for start, _ in self.remarks):
                self._refuse(span.start, "there are comments in what would be replaced")
            made = self._rendered(value, self._indent_at(span.start), "\n" in self.text[span.start : span.end])
            return self._checked([(span.start, span.end, made)], path, value)
        key, inner = left[0], value
        for step in reversed(left[1:]):
            inner = [inner] if isinstance(step, int) else {step: inner}
        return self._checked(self._insertion(span, key, inner), path, value)

    def without(self, path: Path) -> str:
        """Return the text without the member or element at path; without it there as it is."""
        span, left = self.find(path[:-1])
        part = None if left else self._part(span, path[-1])
        if part is None:
            return self.text
        return self._checked(self._deletion(span, part), path, ABSENT)

    def cleared(self, path: Path) -> str:
        """Return the text without what is at path, and without the containers above that it leaves empty; one with a comment stays."""
        text = self.without(path)
        while text != self.text and len(path := path[:-1]):
            after = Document(text, comments=self.comments, name=self.name)
            span, left = after.find(path)
            if left or span.parts or any(span.start < start < span.end for start, _ in after.remarks):
                break
            text = after.without(path)
        return text

    def _checked(self, edits: Sequence[tuple[int, int, str]], path: Path, value: Any) -> str:
        text = self.text
        for start, end, made in sorted(edits, reverse=True):
            text = text[:start] + made + text[end:]
        wanted = _put(self.plain(), path, value)
        if Document(text, comments=self.comments, name=self.name).plain() != wanted:
            self._refuse(edits[0][0], "it cannot be edited safely here")
        return text

    def _insertion(self, span: Span, key: str | int, value: Any) -> list[tuple[int, int, str]]:
        text, eol = self.text, self._eol()
        inside = [remark for remark in self.remarks if span.start < remark[0] < span.end]
        if span.parts:
            last = span.parts[-1]
            head = text[span.start + 1 : span.parts[0].start]
            tail = [end for start, end in inside if start >= last.span.end]
            at = max([last.span.end, last.comma + 1, *tail])
            many = "\n" in head or bool(tail)
            indent = self._indent_at(span.parts[0].start) if "\n" in head else self._indent_at(span.start) + self._unit()
            member = self._member(key, value, indent, many) + ("," if last.comma >= 0 else "")
            made = f"{eol}{indent}{member}" if many else f"{' ' if self._spaced() else ''}{member}"
            if last.comma >= 0:
                return [(at, at, made)]
            return [(at, at, f",{made}")] if at == last.span.end else [(last.span.end, last.span.end, ","), (at, at, made)]
        many = self._is_tall(span)
        at = max([span.start + 1, *(end for _, end in inside)])
        outer = self._indent_at(span.start)
        indent = outer + self._unit()
        if not many:
            return [(span.start + 1, span.end - 1, self._member(key, value, "", False))]
        made = f"{eol}{indent}{self._member(key, value, indent, True)}"
        if inside and "\n" in text[at : span.end - 1]:
            return [(at, at, made)]
        return [(at, span.end - 1, f"{made}{eol}{outer}")]

    def _deletion(self, span: Span, part: Part) -> list[tuple[int, int, str]]:
        text = self.text
        place = span.parts.index(part)
        end = max(part.span.end, part.comma + 1)
        start = part.start
        while text[start - 1] in " \t\r\n":
            start -= 1
        if len(span.parts) == 1 and not text[span.start + 1 : start].strip(" \t\r\n") and not text[end : span.end - 1].strip(" \t\r\n"):
            return [(span.start + 1, span.end - 1, "")]
        edits = []
        is_last = place == len(span.parts) - 1
        if is_last and place and part.comma < 0:
            before = span.parts[place - 1].comma
            edits.append((before, before + 1, ""))
        if _rest_of_line_is_blank(text, end) or (is_last and not any(stop == start and text.startswith("//", begin) for begin, stop in self.remarks)):
            return [*edits, (max(start, edits[0][1]) if edits else start, end, "")]
        while text[end : end + 1] in (" ", "\t"):
            end += 1
        return [*edits, (part.start, end, "")]

    # --- looks ----------------------------------------------------------------------------------------------------

    def _member(self, key: str | int, value: Any, indent: str, many: bool) -> str:
        made = self._rendered(value, indent, many)
        return made if isinstance(key, int) else f"{json.dumps(key, ensure_ascii=False)}:{' ' if self._spaced() else ''}{made}"

    def _rendered(self, value: Any, indent: str, many: bool) -> str:
        """Return a value as text: on one line, or with a line for each member; a list of plain values stays on one."""
        if many and isinstance(value, (dict, list)) and value and (isinstance(value, dict) or any(isinstance(item, (dict, list)) for item in value)):
            inner = indent + self._unit()
            pairs: list[tuple[str | int, Any]] = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
            lines = f",{self._eol()}{inner}".join(self._member(key, item, inner, True) for key, item in pairs)
            opened, closed = "{}" if isinstance(value, dict) else "[]"
            return f"{opened}{self._eol()}{inner}{lines}{self._eol()}{indent}{closed}"
        return json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if self._spaced() else (",", ":"))

    def _eol(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    def _is_tall(self, span: Span) -> bool:
        """Return whether what is put into an empty container goes on lines of its own."""
        return span is self.root or "\n" in self.text[self.root.start : self.root.end]

    def _spaced(self) -> bool:
        found = re.search(r'"\s*:(\s?)', self.text)
        return found is None or bool(found[1])

    def _unit(self) -> str:
        for part in self.root.parts[:1]:
            indent = self._indent_at(part.start)
            if indent and "\n" in self.text[self.root.start : part.start]:
                return indent
        return "  "

    def _indent_at(self, at: int) -> str:
        """Return the blanks that begin the line of a place."""
        start = self.text.rfind("\n", 0, at) + 1
        end = start
        while self.text[end : end + 1] in (" ", "\t"):
            end += 1
        return self.text[start : min(end, at)]


def _put(value: Any, path: Path, new: Any) -> Any:
    """Return value with new at path (ABSENT: without it)."""
    step = path[0]
    if isinstance(step, int):
        items = list(value or [])
        if len(path) > 1:
            items[step:] = [_put(items[step] if step < len(items) else None, path[1:], new), *items[step + 1 :]]
        else:
            items[step:] = items[step + 1 :] if new is ABSENT else [new, *items[step + 1 :]]
        return items
    found = dict(value or {})
    if len(path) > 1:
        found[step] = _put(found.get(step), path[1:], new)
    elif new is ABSENT:
        found.pop(step, None)
    else:
        found[step] = new
    return found
