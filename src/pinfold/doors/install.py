"""`pinfold install [CLIENT]` and `uninstall CLIENT`: registering with MCP clients, in words or as JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pinfold.doors.arguments import Common, Parser, UsageError
from pinfold.doors.cli import say, write, write_json

if TYPE_CHECKING:
    from pinfold.install.actions import Step, Wish
    from pinfold.install.clients import Client, Place

NAMES = "claude-code, claude-desktop, cursor, vscode, windsurf, codex, gemini, zed, or project (its .mcp.json)"


def run_install(words: Sequence[str]) -> int:
    parser = Parser("install", "[CLIENT] [flags] [-- MCP-FLAGS]", f"Register pinfold with an MCP client: {NAMES}. Without CLIENT: those that are here.")
    group = _add_arguments(parser)
    group.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="a variable for the server; may be repeated")
    group.add_argument("--hooks", action="store_true", help="claude-code: peek before read-only tools, set after, a pin map at start, save before compaction")
    group.add_argument("--hook-tools", metavar="REGEX", help="the tools that --hooks watches, only such that read; default WebFetch|WebSearch")
    group.add_argument("--print", action="store_true", help="print what to write by hand, and where; change nothing")
    flags, bare, before = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    from pinfold.install.clients import place_here

    common, place = Common(flags), place_here()
    if before == 0 and not bare:
        return _list(common, place)
    client = _client(parser, bare[:before])
    wish = _wish(flags, common, client, tuple(bare[before:]))
    if flags.print:
        return _print(common, client, wish, place)
    from pinfold.install.actions import install

    steps = install(client, wish, place)
    _tell(common, client, steps)
    if all(step.status == "unchanged" for step in steps):
        return 0
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        say("note: the server needs an extra that is not installed: pip install 'pinfold[mcp]'")
    if common.store is None and os.environ.get("PINFOLD_STORE"):
        say(f"note: $PINFOLD_STORE is set here, and {client.title} may not see it: --store URL passes one on")
    return 0


def run_uninstall(words: Sequence[str]) -> int:
    parser = Parser("uninstall", "CLIENT [flags]", f"Take pinfold's entry out of an MCP client's settings, and its hooks: {NAMES}.")
    _add_arguments(parser)
    flags, bare, _ = parser.read(words)
    if flags.help:
        write(parser.format_help())
        return 0
    from pinfold.install.actions import uninstall
    from pinfold.install.clients import place_here

    common, client = Common(flags), _client(parser, bare)
    _tell(common, client, uninstall(client, _wish(flags, common, client, ()), place_here()))
    return 0


def _add_arguments(parser: Parser) -> Any:
    group = parser.add_argument_group("flags of this command")
    group.add_argument("--scope", metavar="user|project|local", help="whose settings: yours (default), the project's, or yours in this project")
    group.add_argument("--dry-run", action="store_true", help="only say what would change, as a diff")
    group.add_argument("--edit", action="store_true", help="edit the file even where the client has a command line for it")
    group.add_argument("--force", action="store_true", help="though the client does not seem to be here")
    return group


def _client(parser: Parser, bare: Sequence[str]) -> Client:
    from pinfold.install.clients import CLIENTS, client_of

    if len(bare) != 1:
        parser.error("name one client: " + ", ".join(client.name for client in CLIENTS) if not bare else f"{bare[1]!r} is one word too many")
    client = client_of(bare[0])
    if client is None:
        raise UsageError(f"there is no client {bare[0]!r}", hint="one of " + ", ".join(client.name for client in CLIENTS))
    return client


def _wish(flags: Any, common: Common, client: Client, args: tuple[str, ...]) -> Wish:
    """Return what the flags ask for. The flags of every verb are what the server, and the hooks, shall use."""
    from pinfold.install.actions import Wish

    store = common.store
    if store is not None:
        from pinfold.journal.open import open_journal

        store = open_journal(store).url  # the absolute path of a file, wherever the server will be started
    given = {"PINFOLD_STORE": store, "PINFOLD_SESSION": common.session, "PINFOLD_ACTOR": common.actor}
    env = {name: value for name, value in given.items() if value is not None}
    hooked = [word for flag, value in (("--store", store), ("--session", common.session), ("--actor", common.actor)) if value for word in (flag, value)]
    for pair in getattr(flags, "env", ()):
        name, mark, value = pair.partition("=")
        if not mark or not name:
            raise UsageError(f"--env {pair} is no NAME=VALUE", hint="pinfold install --help")
        env[name] = value
    tools = getattr(flags, "hook_tools", None)
    wanted = getattr(flags, "hooks", False) or tools is not None
    return Wish(
        scope=flags.scope or next(iter(client.files)),
        args=args,
        env=env,
        flags=tuple(hooked),
        tools=(tools or "") if wanted else None,
        dry_run=flags.dry_run,
        force=flags.force,
        own_program=not flags.edit,
    )


# --- printing -----------------------------------------------------------------------------------------------------


def _list(common: Common, place: Place) -> int:
    from pinfold.install.actions import find_clients

    found = find_clients(place)
    if common.json:
        rows = [{"client": row.client, "title": row.title, "here": row.there, "registered": row.registered} for row in found]
        write_json({"clients": [{**row, **({"problem": seen.problem} if seen.problem else {})} for row, seen in zip(rows, found, strict=True)]})
        return 0
    lines = [f"{'client':<15} {'here':<5} pinfold is registered in"]
    for row in found:
        lines.append(f"{row.client:<15} {'yes' if row.there else 'no':<5} {', '.join(row.registered) or '-'}" + (f"  ({row.problem})" if row.problem else ""))
    write("\n".join(lines))
    if sys.stderr is not None and sys.stderr.isatty():
        say("pinfold install CLIENT registers it there; --dry-run says how")
    return 0


def _print(common: Common, client: Client, wish: Wish, place: Place) -> int:
    import msgspec

    from pinfold.install.actions import deeplink, entry_for, snippet, targets_of

    entry = entry_for(client, wish, place)
    target = targets_of(client, msgspec.structs.replace(wish, force=True), place)[0]
    text = snippet(target, entry)
    link = deeplink(entry) if client.name == "cursor" else ""
    hooks = ""
    if wish.tools is not None:
        from pinfold.install.actions import hook_snippet

        hooks = hook_snippet(wish, place)
    if common.json:
        more = {**({"link": link} if link else {}), **({"hooks": hooks} if hooks else {})}
        write_json({"client": client.name, "file": target.path, "text": text, "entry": entry, **more})
        return 0
    say(f"in {target.path}:")
    write(text)
    if hooks:
        say("and in the settings of the same scope:")
        write(hooks)
    if link:
        say(f"or open {link}")
    return 0


def _tell(common: Common, client: Client, steps: Sequence[Step]) -> None:
    import msgspec

    if common.json:
        write_json({"client": client.name, "steps": [msgspec.to_builtins(step) for step in steps]})
        return
    for step in steps:
        lines = [f"{step.status.replace('_', ' ')}: {step.what} in {step.file} ({client.title}, {step.scope})"]
        lines += [f"  by {step.via}"] if step.via and step.via != "edit" else []
        lines += [f"  as it was: {step.backup}"] if step.backup else []
        lines += [f"  {step.note}"] if step.note else []
        write("\n".join(lines))
        if step.diff:
            write(step.diff)
