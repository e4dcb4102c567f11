"""Claude Code's hooks: which of its events call `pinfold hook`, in its settings files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pinfold.install.clients import Place, Target, claude_folder
from pinfold.install.jsonedit import ABSENT, Document

TOOLS = "WebFetch|WebSearch"
"""Tools whose results are the same for everybody for a while. Others the user names: only they know what only reads."""
TIMEOUT_S = 10
EVENTS = ("SessionStart", "PreToolUse", "PostToolUse", "PreCompact")
_WITH_TOOLS = ("PreToolUse", "PostToolUse")
_is_ours = re.compile(r"\bpinfold(?:\.exe)?[\"']?\s(?:.*\s)?hook\s").search


def settings_of(place: Place, scope: str) -> Target:
    """Return the settings file of a scope."""
    if scope == "user":
        folder = claude_folder(place)
        return Target(place.join(folder, "settings.json"), "json", ("hooks",), folder)
    name = "settings.json" if scope == "project" else "settings.local.json"
    return Target(place.join(place.project, ".claude", name), "json", ("hooks",))


def groups(command: Sequence[str], flags: Sequence[str], tools: str, system: str) -> dict[str, dict[str, Any]]:
    """Return event -> the group of hooks that stands for it in the settings."""
    made: dict[str, dict[str, Any]] = {}
    for event in EVENTS:
        line = " ".join([*(_quoted(word, system) for word in command), "hook", event, *(_quoted(word, system) for word in flags)])
        made[event] = {**({"matcher": tools} if event in _WITH_TOOLS else {}), "hooks": [{"type": "command", "command": line, "timeout": TIMEOUT_S}]}
    return made


def _quoted(word: str, system: str) -> str:
    """Return a word for the shell that runs hooks: sh, which on Windows is Git's and takes paths with slashes."""
    import shlex

    return shlex.quote(word.replace("\\", "/") if system == "win32" else word)


def with_hooks(text: str, wanted: dict[str, dict[str, Any]], name: str) -> str:
    """Return settings with these groups: our calls replaced where they stand, all others as they are."""
    for event, group in wanted.items():
        found = Document(text, name=name).get(("hooks", event))
        ours = _ours(found)
        if not ours:
            text = Document(text, name=name).with_value(("hooks", event, 0 if found is ABSENT else len(found)), group)
            continue
        place, calls = ours[0]
        text = Document(text, name=name).with_value(("hooks", event, place, "hooks", calls[0]), group["hooks"][0])
        if "matcher" in group and len(found[place]["hooks"]) == len(calls):
            text = Document(text, name=name).with_value(("hooks", event, place, "matcher"), group["matcher"])
    return text


def without_hooks(text: str, name: str) -> str:
    """Return settings without our calls, and without the groups that held nothing else."""
    for event in EVENTS:
        found = Document(text, name=name).get(("hooks", event))
        for place, calls in reversed(_ours(found)):
            if len(found[place]["hooks"]) == len(calls):
                text = Document(text, name=name).cleared(("hooks", event, place))
                continue
            for at in reversed(calls):
                text = Document(text, name=name).without(("hooks", event, place, "hooks", at))
    return text


def _ours(groups: Any) -> list[tuple[int, list[int]]]:
    """Return (place of a group, places of the calls in it that are ours) of an event's groups."""
    found = []
    for place, group in enumerate(groups if isinstance(groups, list) else ()):
        calls = group.get("hooks") if isinstance(group, dict) else None
        ours = [at for at, call in enumerate(calls if isinstance(calls, list) else ()) if isinstance(call, dict) and _is_ours(str(call.get("command", "")))]
        if ours:
            found.append((place, ours))
    return found
