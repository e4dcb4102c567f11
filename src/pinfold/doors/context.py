"""Where a door is: the session of the folder it was started in."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from pinfold.errors import Refused

VARIABLES = ("PINFOLD_SESSION", "MEMNET_SESSION")


def default_session(cwd: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return $PINFOLD_SESSION, $MEMNET_SESSION, or the enclosing git root's (else the folder's) name + 4 hex digits of its path.

    Two projects never share by accident. Raises Refused `session_required` in the home or root folder.
    """
    env = os.environ if environ is None else environ
    for variable in VARIABLES:
        if env.get(variable):
            return env[variable]
    folder = os.path.realpath(os.getcwd() if cwd is None else cwd)
    root = _git_root(folder) or folder
    if root == os.path.dirname(root) or root == os.path.realpath(os.path.expanduser("~")):
        raise Refused(
            f"started in {root}, which is no project, so there is no default session",
            code="session_required",
            hint="name one: session_id, --session, or $PINFOLD_SESSION",
        )
    from hashlib import sha256

    name = re.sub(r"[^A-Za-z0-9_.:-]+", "-", os.path.basename(root))[:100].strip("-") or "folder"
    return f"{name}-{sha256(os.fsencode(root)).hexdigest()[:4]}"


def _git_root(folder: str) -> str | None:
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
