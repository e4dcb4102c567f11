"""Agent skills: a SKILL for each SKILL.md, the files beside it, and the tools it may use; what breaks the published rules is told.

A skill is a folder `<name>/` with a SKILL.md: front matter with name and description, then words. The front matter is read
as the plain YAML that skills are written in; where it says more than that, the skill is told as not understood, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from pinfold.errors import Refused
from pinfold.ingest.front_matter import parse_front_matter
from pinfold.ingest.pins import PinKind, Wanted
from pinfold.ingest.source import Unread, words

SKILL, SKILLFILE, TOOL = "SKILL", "SKILLFILE", "TOOL"
FILE = "SKILL.md"
NAME_CHARS, DESCRIPTION_CHARS, COMPATIBILITY_CHARS = 64, 1024, 500
BODY_LINES = 500
FILES = 200
"""Files of one skill that become pins: what a skill brings along is to be known, a data set in it is not."""
_TEXT_CHARS = 400

_is_name = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*").fullmatch
_fenced = re.compile(r"---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE).match
_tool = re.compile(r"[A-Za-z_][\w.:-]*(?:\([^()]*\))?")


class Skill(msgspec.Struct, gc=False):
    """One SKILL.md: fields in order, tools, and what is wrong with it."""

    name: str
    fields: dict[str, str]
    tools: list[str]
    problems: list[str]


def source(languages: tuple[str, ...]) -> SkillSource:
    if languages:
        raise Refused("languages are for code", code="bad_argument", hint="ingest skills PATH")
    return SkillSource()


class SkillSource:
    kinds = (
        PinKind(SKILL, ("skill_id", "path", "description", "license", "compatibility", "metadata", "lines", "problems"), "path"),
        PinKind(SKILLFILE, ("path",), "path"),
        PinKind(TOOL, ("name",)),
    )
    relations = ("has_file", "mentions_tool")
    link_fields = ("scope",)

    def takes(self, name: str) -> bool:
        return True

    def reads(self, name: str) -> bool:
        return name.rpartition("/")[2] == FILE

    def read(self, name: str, data: bytes) -> Skill | None:
        if not self.reads(name):
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Unread(f"not UTF-8 at byte {error.start}") from None
        folder = name.rpartition("/")[0].rpartition("/")[2]
        return read_skill(text, folder)

    def join(self, parts: Mapping[str, Skill | None], known: Mapping[str, str], wanted: Wanted) -> dict[str, int | list[str]]:
        homes = {name.rpartition("/")[0]: part for name, part in parts.items() if part is not None}
        ids: dict[str, str] = {}
        taken: set[str] = set()
        problems: list[str] = []
        for home, skill in homes.items():
            path = f"{home}/{FILE}" if home else FILE
            locator = skill.name if skill.name not in taken else f"{skill.name} ({home})"
            taken.add(skill.name)
            ids[home] = wanted.add(SKILL, {"skill_id": locator, "path": path, **skill.fields, "problems": words("; ".join(skill.problems), _TEXT_CHARS)})
            problems += [f"{path}: {problem}" for problem in skill.problems]
            for tool in skill.tools:
                name, _, scope = tool.partition("(")
                wanted.link(ids[home], "mentions_tool", wanted.add(TOOL, {"name": name}), scope=scope.removesuffix(")"))
        counts = dict.fromkeys(homes, 0)
        left_out = 0
        for name, part in parts.items():
            owner = name.rpartition("/")[0] if part is None else ""
            while owner and owner not in homes:
                owner = owner.rpartition("/")[0]
            if part is None and owner in homes:
                counts[owner] += 1
                if counts[owner] > FILES:
                    left_out += 1
                    continue
                wanted.link(ids[owner], "has_file", wanted.add(SKILLFILE, {"path": name}))
        return {"skills": len(homes), "problems": problems, **({"files_left_out": left_out} if left_out else {})}


def read_skill(text: str, folder: str) -> Skill:
    """Return what a SKILL.md says. folder: the name of the folder it is in. Raises Unread where its front matter cannot be read."""
    m = _fenced(text)
    if m is None:
        raise Unread("no front matter: it begins with a line ---, and ends with one")
    try:
        given = parse_front_matter(m[1])
    except ValueError as error:
        raise Unread(f"front matter, {error}") from None
    problems: list[str] = []
    name, description = given.get("name"), given.get("description")
    if not isinstance(name, str) or not name:
        problems.append("name is missing")
        name = folder or "skill"
    elif not _is_name(name) or len(name) > NAME_CHARS:
        problems.append(f"name is not 1 to {NAME_CHARS} small letters, digits and single hyphens")
    elif folder and name != folder:
        problems.append(f"name is not that of its folder, {folder}")
    if not isinstance(description, str) or not description.strip():
        problems.append("description is missing")
    elif len(description) > DESCRIPTION_CHARS:
        problems.append(f"description has {len(description)} characters, {DESCRIPTION_CHARS} are allowed")
    compatibility = given.get("compatibility")
    if isinstance(compatibility, str) and len(compatibility) > COMPATIBILITY_CHARS:
        problems.append(f"compatibility has {len(compatibility)} characters, {COMPATIBILITY_CHARS} are allowed")
    body = text[m.end() :]
    lines = body.count("\n") + (body[-1:] not in ("\n", ""))
    if lines > BODY_LINES:
        problems.append(f"the body has {lines} lines, {BODY_LINES} are advised at most")
    fields = {"description": _text(description), "license": _text(given.get("license")), "compatibility": _text(compatibility)}
    others = {key: value for key, value in given.items() if key not in ("name", "description", "license", "compatibility", "allowed-tools", "metadata")}
    fields["metadata"] = _text({**_mapping(given.get("metadata")), **others})
    fields["lines"] = str(lines)
    return Skill(words(name), fields, _tools(given.get("allowed-tools")), problems)


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {"metadata": value} if value else {}


def _text(value: object) -> str:
    """Return a value of the front matter as one line."""
    if isinstance(value, dict):
        return words("; ".join(f"{key}={_text(inner)}" for key, inner in value.items()), _TEXT_CHARS)
    if isinstance(value, list):
        return words(", ".join(_text(inner) for inner in value), _TEXT_CHARS)
    return words(str(value), _TEXT_CHARS) if value is not None else ""


def _tools(value: object) -> list[str]:
    """Return the tools of `allowed-tools`: a text with blanks or commas between them, or a list; `Bash(git add *)` is one."""
    text = " ".join(str(inner) for inner in value) if isinstance(value, list) else str(value or "")
    return list(dict.fromkeys(_tool.findall(text)))
