"""basic-memory's Markdown notes: a file is a node; what it links to are edges; observations stay in its text, or become rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from pinfold.errors import ConfigurationError
from pinfold.importers import frontmatter
from pinfold.importers.records import Read, Record, bad_import, fields_of, kind_of, named, read_whole, relation_of, text_of, time_of
from pinfold.state.schema import derive_id

_fence = re.compile(r" {0,3}(`{3,}|~{3,})").match
_item = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(.*)$").match
_code = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_link = re.compile(r"(?<!\\)\[\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\]")
_explicit = re.compile(r"""(?:"([^"]+)"|'([^']+)'|([^\s"'\[]+))\s*\[\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\]\s*(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?\s*$""").match
_category = re.compile(r"\[([^\[\]()]+)\]\s+(.+)$").match
_clock = re.compile(r"\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?(?:\s+-\s+\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?)?$").match
_directive = re.compile(r"\s+#bm:links_to\s*$")
_effective = re.compile(r"\s*@effective\(\s*([^,()]*?)\s*(?:,\s*([^,()]*?)\s*)?\)")


def read(path: str, *, observations: str = "content", **_: Any) -> Read:
    """Return the notes below a folder, or one note. Raises Refused `bad_import`, ConfigurationError `bad_path`.

    A target of a link is a note by its permalink, its path, then its title; one that is nowhere becomes a bare NOTE.
    """
    found = Read()
    notes: dict[str, str] = {}
    links: list[tuple[str, str, str, str]] = []
    for file in _files(path, found):
        _note(found, notes, links, path, file, observations == "nodes")
    if not found.nodes:
        raise bad_import(f"{path} holds no Markdown note", "name the folder of a project of basic-memory")
    bare: dict[str, str] = {}
    titles: list[str] = []
    for source, name, target, context in links:
        id = notes.get(_plain(target)) or bare.get(_plain(target))
        if id is None:
            id = bare[_plain(target)] = derive_id("NOTE", target)
            titles.append(target)
            found.nodes.setdefault(id, Record("node", id, {"label": target}, "NOTE"))
        relation = relation_of(name)
        fields = {**({} if relation == name else {"name": name}), **({"context": context} if context else {})}
        found.edges.append(Record("edge", None, fields, "", source, relation, id))
    if bare:
        found.notes.append(f"no note is called this, so each became a bare NOTE: {named(titles)}")
    return found


def _files(path: str, found: Read) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        return
    if not os.path.isdir(path):
        raise ConfigurationError(f"{path} is no folder", code="bad_path", hint="name the folder of a project of basic-memory")
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = os.path.join(folder, name)
            if name.startswith(".") or not name.lower().endswith(".md"):
                continue
            if os.path.islink(file):
                found.left["links, which may lead anywhere"] += 1
                continue
            yield file


def _note(found: Read, notes: dict[str, str], links: list[tuple[str, str, str, str]], base: str, file: str, as_nodes: bool) -> None:
    try:
        relative = os.path.relpath(file, base if os.path.isdir(base) else os.path.dirname(base) or ".").replace(os.sep, "/").encode().decode()
        text = read_whole(file).decode("utf-8")
    except UnicodeError:
        found.left["files that are not UTF-8"] += 1
        return
    except ConfigurationError:
        found.left["files that cannot be read"] += 1
        return
    head, raw, body = frontmatter.split(text)
    if head is None:
        found.notes.append(f"the front matter of {relative} is malformed: kept as text")
    stem = relative[: -len(".md")] if relative.lower().endswith(".md") else relative
    known = {key: value for key, value in (head or {}).items() if key in ("title", "type", "permalink", "tags", "created", "modified")}
    more = fields_of({key: value for key, value in (head or {}).items() if key not in known})
    title, permalink = _text(known.get("title")) or os.path.basename(stem), _text(known.get("permalink"))
    what = _text(known.get("type"))
    kind = kind_of(what)
    id = derive_id(kind, permalink or stem)
    for name in (title, stem, permalink):  # what counts most comes last
        if name:
            notes[_plain(name)] = id
    tags = known.get("tags")
    fields = {
        **more,
        "label": title,
        "content": body.strip(),
        "permalink": permalink,
        "path": relative,
        "tags": " ".join(tags) if isinstance(tags, list) else _text(tags),
        "type": what if what.lower() != kind.lower() else "",
        "at": time_of(_text(known.get("modified"))) or time_of(_text(known.get("created"))),
        "front_matter": raw if head is None else "",
    }
    found.nodes[id] = Record("node", id, {key: value for key, value in fields.items() if value}, kind)
    for line, is_item in _lines(body):
        relation = _explicit(line) if is_item else None
        if relation is not None and not _directive.search(line):
            links.append((id, relation[1] or relation[2] or relation[3], _target(relation[4]), (relation[5] or "").strip()))
            continue
        links.extend((id, "links_to", _target(link[1]), "") for link in _link.finditer(line))
        if as_nodes and is_item:
            _observation(found, id, line)


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else text_of(value)


def _plain(name: str) -> str:
    """Return a name as links are compared: without case, .md and the slashes at its ends."""
    return name.strip().strip("/").removesuffix(".md").casefold()


def _target(text: str) -> str:
    return text.partition("|")[0].strip()


def _lines(body: str) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is an item of a list) of the lines outside code and quotes; code in a line is blanked."""
    fence = ""
    for line in body.split("\n"):
        mark = _fence(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]) else fence
            continue
        if mark:
            fence = mark[1]
            continue
        if line.lstrip().startswith(">"):
            continue
        item = _item(line)
        plain = _code.sub(lambda found: found.group().replace("[", " ").replace("]", " "), item[1] if item else line)
        yield plain.strip(), item is not None


def _observation(found: Read, about: str, line: str) -> None:
    """Add an observation as a row of its own: `[category] text #tag (context)`, or a text with a hashtag."""
    line = _directive.sub("", line).strip()
    if line.startswith(("[ ]", "[x]", "[-]")) or re.fullmatch(r"\[[^\]]*\]\([^)]*\)|\[\[[^\]]*\]\]", line):
        return
    category = _category(line)
    if category is not None:
        name = category[1].strip()
        if _clock(name) or (len(name) == 1 and (name in "xX" or not name.isalnum())):
            category = None
    tags = [tag for word in line.split() if word.startswith("#") for tag in word.split("#") if tag]
    if category is None and not tags:
        return
    text = (category[2] if category else line.removeprefix("[]")).strip()
    period = _effective.search(text)
    if period is not None:
        text = (text[: period.start()] + text[period.end() :]).strip()
    context = ""
    if text.endswith(")") and "(" in text:
        text, _, context = text[:-1].rpartition("(")
    fields = {
        "content": text.strip(),
        "category": category[1].strip() if category else "",
        "tags": " ".join(tags),
        "context": context.strip(),
        "valid_from": time_of(period[1]) if period else "",
        "valid_until": time_of(period[2] or "") if period else "",
    }
    id = derive_id("OBS", f"{about}\n{line}")
    found.nodes[id] = Record("node", id, {key: value for key, value in fields.items() if value}, "OBS")
    found.edges.append(Record("edge", None, {}, "", id, "about", about))
