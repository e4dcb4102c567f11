"""The session a command line or an MCP server works on when none is named: one per project folder.

It is the name of the enclosing git root (else of the folder) and four hex digits of its path, so that two projects
called `api` never share by accident. $PINFOLD_SESSION (else $MEMNET_SESSION) overrides it. The home and the root folder
have none: whatever is started there belongs to no project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pinfold import caller
from pinfold.doors.client import sha256
from pinfold.errors import Refused
from pinfold.limits import SESSION_NAME_CHARS

OVERRIDES = ("PINFOLD_SESSION", "MEMNET_SESSION")
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-")


def default_actor(environ: Mapping[str, str] | None = None) -> str | None:
    """Return who writes by the environment: $PINFOLD_ACTOR, else $MEMNET_AGENT."""
    env = caller.environ() if environ is None else environ
    return env.get("PINFOLD_ACTOR") or env.get("MEMNET_AGENT") or None


def default_session(cwd: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the session of the environment, else of the folder. Raises Refused `session_required`."""
    return explain_session(cwd, environ)[0]


def explain_session(cwd: str | None = None, environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return (the default session, why it is that one). Raises Refused `session_required`."""
    env = caller.environ() if environ is None else environ
    for variable in OVERRIDES:
        if env.get(variable):
            return env[variable], f"${variable}"
    try:
        folder = os.path.realpath(caller.current_folder() if cwd is None else cwd)
    except FileNotFoundError:
        raise _required("the current folder no longer exists") from None
    homes = {os.path.realpath(os.path.expanduser("~")), os.path.realpath(env.get("HOME") or os.sep)}
    if folder in homes or os.path.dirname(folder) == folder:
        raise _required(f"{folder} belongs to no one project")
    root = _git_root(folder, homes)
    if root is not None:
        return session_of(root), f"the git repository {root}"
    return session_of(folder), f"the folder {folder}"


def session_of(folder: str) -> str:
    """Return the session name of a folder: its own name and four hex digits of its path, in the alphabet of names."""
    digits = sha256(os.fsencode(folder)).hexdigest()[:4]
    name = "".join(char if char in _ALPHABET else "-" for char in os.path.basename(folder))
    return f"{name[: SESSION_NAME_CHARS - 5]}-{digits}"


def _git_root(folder: str, homes: set[str]) -> str | None:
    """Return the nearest folder with a .git, which a home full of dotfiles is not."""
    while folder not in homes and os.path.dirname(folder) != folder:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        folder = os.path.dirname(folder)
    return None


def _required(why: str) -> Refused:
    return Refused(f"there is no default session here: {why}", code="session_required", hint="name one: --session NAME, or set PINFOLD_SESSION")
