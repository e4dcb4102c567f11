"""Registering pinfold with a client and taking it away again: look first, then the client's own command line, else an edit.

Rules kept here:
- What is there already is left alone: a second run changes nothing and says so.
- Of an entry that is ours only command, args and the variables given are set; what else stands in it is its user's.
- An entry called pinfold that starts something else is never touched.
- A file is written only where an edit of it was proved by reading it again; a copy of it stays beside it.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from pinfold.errors import ConfigurationError, PinfoldError, Refused
from pinfold.install import files, hooks, tomledit
from pinfold.install.clients import CLIENTS, Client, Place, Target, executable, is_ours, words_of
from pinfold.install.jsonedit import ABSENT, Document

NAME = "pinfold"
_WOULD = {"installed": "would_install", "updated": "would_update", "removed": "would_remove"}
PROGRAM_S = 60
"""Longest wait for a client's own command line; then the file is edited."""


class Wish(msgspec.Struct, frozen=True):
    """What is asked for. args: behind `mcp`; env: variables of the entry; tools: the matcher of the hooks, None for no hooks."""

    scope: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    flags: tuple[str, ...] = ()
    tools: str | None = None
    dry_run: bool = False
    force: bool = False
    own_program: bool = True


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one file. via: edit, or the words that ran.

    status: installed, updated, unchanged, removed, absent; with dry_run would_install, would_update, would_remove, and a diff.
    """

    client: str
    scope: str
    file: str
    what: str
    status: str
    via: str = ""
    backup: str = ""
    diff: str = ""
    note: str = ""


class Found(msgspec.Struct, frozen=True):
    """A client as it was found: its folder or command line there, and in which files pinfold is registered."""

    client: str
    title: str
    there: bool
    registered: list[str]
    problem: str = ""


# --- looking ------------------------------------------------------------------------------------------------------


def find_clients(place: Place) -> list[Found]:
    """Return every client: whether it is here and where pinfold is registered with it. Reads, writes nothing."""
    return [_found(client, place) for client in CLIENTS]


def _found(client: Client, place: Place) -> Found:
    registered, problem, there = [], "", bool(client.program and shutil.which(client.program))
    for scope in client.files:
        for target in client.files[scope](place):
            there = there or (scope == "user" and _is_there(target))
            try:
                if is_ours(_entry_in(target, _text_of(target)[0])):
                    registered.append(target.path)
            except PinfoldError as error:
                problem = str(error)
    return Found(client.name, client.title, there or client.name == "project", list(dict.fromkeys(registered)), problem)


def _is_there(target: Target) -> bool:
    return bool(target.sign and os.path.isdir(target.sign)) or os.path.exists(target.path)


def targets_of(client: Client, wish: Wish, place: Place) -> list[Target]:
    """Return the files to work on. Raises ConfigurationError `bad_scope`, Refused `client_not_found`."""
    if wish.scope not in client.files:
        raise ConfigurationError(f"{client.title} has no scope {wish.scope!r}", code="bad_scope", hint=f"one of {', '.join(client.files)}")
    targets = client.files[wish.scope](place)
    if wish.scope == "project" or (client.program and shutil.which(client.program)):
        there = [target for target in targets if not target.sign or _is_there(target)]
        return there or targets[:1]
    there = [target for target in targets if _is_there(target)]
    if not there and not wish.force:
        places = " or ".join(target.sign for target in targets)
        raise Refused(f"{client.title} is not here: no {places}", code="client_not_found", hint="start it once, or --force makes the file", client=client.name)
    return there or targets[:1]


def _text_of(target: Target) -> tuple[str, bytes | None]:
    """Return (a file's text, its bytes or None where there is none); an empty one reads as one without content."""
    content = files.read(target.path)
    text = "" if content is None else files.as_text(content, target.path)
    return (text if text.strip("\ufeff \t\r\n") or target.format == "toml" else "{}\n"), content


def _entry_in(target: Target, text: str) -> Any:
    path = (*target.keys, NAME)
    if target.format == "toml":
        return tomledit.get(text, path, target.path)
    return _document(target, text).get(path)


def _document(target: Target, text: str) -> Document:
    return Document(text, comments=target.format == "jsonc", name=target.path)


# --- what to write ------------------------------------------------------------------------------------------------


def entry_for(client: Client, wish: Wish, place: Place) -> dict[str, Any]:
    """Return the entry of a client: this pinfold by its absolute path; in a file that a team shares, by its name."""
    command = ["pinfold"] if wish.scope == "project" else executable(place.system)
    own = () if "--session" in wish.args or "PINFOLD_SESSION" in wish.env else client.args
    env = {"env": dict(wish.env)} if wish.env else {}
    return {**client.more, "command": command[0], "args": [*command[1:], "mcp", *own, *wish.args], **env}


def snippet(target: Target, entry: dict[str, Any]) -> str:
    """Return what to write into a file by hand."""
    if target.format == "toml":
        return tomledit.format_table((*target.keys, NAME), entry)
    made: Any = {NAME: entry}
    for key in reversed(target.keys):
        made = {key: made}
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


def deeplink(entry: dict[str, Any]) -> str:
    """Return Cursor's link that installs an entry."""
    from base64 import urlsafe_b64encode

    return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={urlsafe_b64encode(msgspec.json.encode(entry)).decode()}"


def _with_entry(target: Target, text: str, entry: dict[str, Any]) -> str:
    path = (*target.keys, NAME)
    present = _entry_in(target, text)
    if isinstance(present, dict) and not is_ours(present):
        raise Refused(
            f"{target.path} has a server called {NAME} that starts something else: {present.get('command') or present.get('url')}",
            code="name_taken",
            hint="rename or remove it first",
        )
    wanted = {**entry, "env": {**present.get("env", {}), **entry["env"]}} if isinstance(present, dict) and "env" in entry else entry
    if target.format == "toml":
        return tomledit.with_table(text, path, wanted, target.path)
    if present is ABSENT:
        return _document(target, text).with_value(path, wanted)
    for key, value in wanted.items():
        if key != "type" or "type" in present:  # a client that knows the word without it wrote it so
            text = _document(target, text).with_value((*path, key), value)
    return text


def _without_entry(target: Target, text: str) -> str:
    path = (*target.keys, NAME)
    present = _entry_in(target, text)
    if present is ABSENT:
        return text
    if not is_ours(present):
        raise Refused(f"{target.path} has a server called {NAME} that starts something else", code="name_taken", hint="it is not ours to remove")
    return tomledit.without_table(text, path, target.path) if target.format == "toml" else _document(target, text).cleared(path)


# --- doing --------------------------------------------------------------------------------------------------------


def install(client: Client, wish: Wish, place: Place) -> list[Step]:
    """Register pinfold with a client, and its hooks where asked for. Raises Refused, ConfigurationError."""
    entry = entry_for(client, wish, place)
    steps = []
    words = _own_words(client, client.add, wish, entry)
    for target in targets_of(client, wish, place):
        is_new = _entry_in(target, _text_of(target)[0]) is ABSENT
        step = Step(client.name, wish.scope, target.path, "server", "installed" if is_new else "updated", note=client.then)
        change = Change(step, target, partial(_with_entry, target, entry=entry), words if is_new else [])
        steps.append(_carried_out(change, wish, place))
        words = []  # it knows one file of several: the first
    if wish.tools is not None:
        steps.append(_hooked(client, wish, place))
    return steps


def _hooked(client: Client, wish: Wish, place: Place) -> Step:
    if client.name != "claude-code":
        raise ConfigurationError(f"{client.title} has no hooks that pinfold knows", code="no_hooks", hint="--hooks is for claude-code")
    target = hooks.settings_of(place, wish.scope)
    groups = _groups(wish, place)
    text = _text_of(target)[0]
    status = "installed" if hooks.without_hooks(text, target.path) == text else "updated"
    step = Step(client.name, wish.scope, target.path, "hooks", status)
    return _carried_out(Change(step, target, partial(hooks.with_hooks, wanted=groups, name=target.path)), wish, place)


def _groups(wish: Wish, place: Place) -> dict[str, dict[str, Any]]:
    command = ["pinfold"] if wish.scope == "project" else executable(place.system)
    return hooks.groups(command, wish.flags, wish.tools or hooks.TOOLS, place.system)


def hook_snippet(wish: Wish, place: Place) -> str:
    """Return what to write into Claude Code's settings by hand."""
    groups = {event: [group] for event, group in _groups(wish, place).items()}
    return msgspec.json.format(msgspec.json.encode({"hooks": groups}), indent=2).decode() + "\n"


def uninstall(client: Client, wish: Wish, place: Place) -> list[Step]:
    """Take pinfold's entry and hooks away. Raises as `install`."""
    changes: list[Change] = []
    for target in client.files[wish.scope](place) if wish.scope in client.files else targets_of(client, wish, place):
        step = Step(client.name, wish.scope, target.path, "server", "removed")
        words = [] if changes else _own_words(client, client.remove, wish, {})
        changes.append(Change(step, target, partial(_without_entry, target), words))
    if client.name == "claude-code":
        target = hooks.settings_of(place, wish.scope)
        step = Step(client.name, wish.scope, target.path, "hooks", "removed")
        changes.append(Change(step, target, partial(hooks.without_hooks, name=target.path)))
    steps = [_carried_out(change, wish, place) for change in changes]
    return [step for step in steps if step.status != "absent"] or steps[:1]


class Change(msgspec.Struct, frozen=True):
    """One change of one file: the step it is, what it makes of a text, and the client's own words that do the same."""

    step: Step
    target: Target
    edit: Callable[[str], str]
    words: list[str] = []


def _carried_out(change: Change, wish: Wish, place: Place) -> Step:
    """Do a change by the client's own words where they leave what was wanted, else by an edit of the file."""
    step, target = change.step, change.target
    text, before = _text_of(target)
    wanted = change.edit(text) if before is not None or step.status != "removed" else text
    if wanted == text:
        return msgspec.structs.replace(step, status="absent" if step.status == "removed" else "unchanged", note="")
    if wish.dry_run:
        via = " ".join(change.words) if change.words else "edit"
        return msgspec.structs.replace(step, status=_WOULD[step.status], via=via, diff=_diff(text if before is not None else "", wanted, target.path))
    kept = files.backup(target.path) if before is not None else ""
    if change.words:
        why = _run(change.words, place)
        text, before = _text_of(target)
        wanted = change.edit(text)
        if wanted == text:
            return msgspec.structs.replace(step, via=" ".join(change.words), backup=kept)
        step = msgspec.structs.replace(step, note=f"{change.words[0]} did not do it, so the file was edited: {why or 'it said nothing'}")
    files.write(target.path, wanted, before)
    return msgspec.structs.replace(step, via="edit", backup=kept)


def _diff(old: str, new: str, path: str) -> str:
    return "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, n=2, lineterm=""))


def _own_words(client: Client, words: dict[str, tuple[str, ...]], wish: Wish, entry: dict[str, Any]) -> list[str]:
    """Return the command of the client's own that does it, empty for none.

    A batch file (npm's and VS Code's on Windows) reads its arguments by cmd.exe's rules, which no quoting survives: not those.
    """
    program = shutil.which(client.program) if client.program and wish.own_program and wish.scope in words else None
    if program is None or program.lower().endswith((".cmd", ".bat")):
        return []
    return [program, *words_of(client, words[wish.scope], NAME, entry)]


def _run(words: Sequence[str], place: Place) -> str:
    """Run a client's own command in the project. Return why it failed, empty where it did not."""
    try:
        done = subprocess.run(words, cwd=place.project, env=dict(place.env), stdin=subprocess.DEVNULL, capture_output=True, timeout=PROGRAM_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {PROGRAM_S} s"
    except OSError as error:
        return str(error.strerror)
    said = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace").splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"it ended with {done.returncode}"
