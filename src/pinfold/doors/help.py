"""Words for people: the grouped help of `pinfold`, the help of a verb, and what to say to a verb that is none."""

from __future__ import annotations

from typing import Any

from pinfold.doors.arguments import Parser, UsageError, parser_of
from pinfold.doors.cli import OWN_VERBS, _row_of, write

_HEAD = """\
pinfold: working memory for agents. Peek before you work; nothing is done twice.

  pinfold once build@v1 -- make     run it once, everywhere; everyone gets its output
  pinfold set answer 42             keep a result
  pinfold peek answer               look before you work
"""
_FOOT = """\
pinfold VERB --help says more. Every verb takes --session, --store, --actor, --json and --fail-on-miss.
"""
_GROUPS = {"silo": "peek before work"}
_SESSION_VERBS = frozenset(("status", "flush", "log"))


def grouped() -> dict[str, list[tuple[str, str]]]:
    """Return the verbs in groups: title -> [(verb, what it does)]; each operation by its first verb."""
    from pinfold.operations import TABLE

    groups: dict[str, list[tuple[str, str]]] = {"peek before work": [("once", OWN_VERBS["once"][1])]}
    for row in TABLE:
        if not row.cli:
            continue
        room = row.handler.__module__.rpartition(".")[2]
        title = "sessions" if row.cli[0].startswith("session ") or row.cli[0] in _SESSION_VERBS else _GROUPS.get(room, room)
        groups.setdefault(title, []).append((row.cli[0], summary_of(row)))
    groups["store and surroundings"] = [(verb, words) for verb, (_, words) in OWN_VERBS.items() if verb != "once"]
    return groups


def summary_of(row: Any) -> str:
    """Return one line about a row: its summary, else the first sentence of its doc."""
    said = str(row.summary) or str(row.doc).partition(". ")[0].removesuffix(".")
    return said[:1].lower() + said[1:]


def run_help(words: list[str]) -> int:
    verbs = [word for word in words if not word.startswith("-")]
    if verbs and verbs[0] not in OWN_VERBS:
        verb, row, _ = _row_of(verbs)
        write(help_of(verb, row, parser_of(verb, row)))
        return 0
    if verbs:
        from pinfold.doors.cli import _run

        return _run([verbs[0], "--help"], None)
    parts = [_HEAD]
    for title, rows in grouped().items():
        lines = [f"  {verb:<16} {what}" for verb, what in rows]
        parts.append("\n".join([f"{title[:1].upper()}{title[1:]}", *lines, ""]))
    write("\n".join([*parts, _FOOT]))
    return 0


def help_of(verb: str, row: Any, parser: Parser) -> str:
    """Return the help text of a verb: what it does, its positionals, its flags, its other names, its result."""
    summary = f"{summary_of(row)[:1].upper()}{summary_of(row)[1:]}"
    again = row.doc.startswith(summary)  # what says it and goes on is enough
    lines = [parser.format_usage().rstrip(), *([] if again and row.summary else ["", f"{summary}."])]
    if row.summary and row.doc:
        lines += ["", *_wrapped(row.doc)]
    told = [(p.name.removesuffix("_id").upper(), p.doc) for p in row.params if p.positional]
    if told:
        lines += ["", *[f"  {name:<22}{doc}" for name, doc in told]]
    text = parser.format_help()
    start = min((text.find(title) for title in ("flags of", "options") if title in text), default=len(text))
    lines += ["", text[start:].rstrip()]
    others = [other for other in row.cli if other != verb]
    lines += ["", f"JSON: {row.result}"] if row.result else []
    lines += [f"Also: {', '.join(others)}"] if others else []
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 100)


def unknown_verb(verb: str, second: str) -> UsageError:
    """Return the error for a verb that is none, with the nearest."""
    import difflib

    from pinfold.operations import TABLE

    known = [*OWN_VERBS, *(name for row in TABLE for name in row.cli)]
    of_group = [name for name in known if name.startswith(f"{verb} ")]
    if of_group:
        words = [name.partition(" ")[2] for name in of_group]
        meant = difflib.get_close_matches(second, words, 1, 0.6)
        return UsageError(f"pinfold {verb} needs one of: {', '.join(words)}" + (f"; did you mean {meant[0]}?" if meant else ""), hint="pinfold --help")
    asked = f"{verb} {second}".strip()
    second_words = [name for name in known if name.endswith(f" {verb}")]
    near = second_words or difflib.get_close_matches(asked, known, 3, 0.7) or difflib.get_close_matches(verb, known, 3, 0.6)
    return UsageError(f"there is no verb {verb!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""), hint="pinfold --help lists them")
