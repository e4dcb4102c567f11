"""What runs in the process of a test's server. It loads neither pytest nor the tests."""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import pinfold.doors.daemon
import pinfold.doors.http
import pinfold.doors.http_options
import pinfold.journal.sqlite
import pinfold.recall.bind
import pinfold.recall_session
from pinfold.doors import serve as verb
from pinfold.operations import TABLE

PRELOADED = (pinfold.doors.daemon, pinfold.doors.http, pinfold.doors.http_options, pinfold.journal.sqlite, pinfold.recall_session, pinfold.recall.bind, TABLE)


def serve(ready: Any, environ: dict[str, str], options: tuple[str, ...]) -> None:
    """Serve $PINFOLD_STORE of environ until killed, in the root folder; send what `serve --json` prints once it does."""
    for name in ("PINFOLD_SESSION", "PINFOLD_ACTOR", "COLUMNS", "NO_COLOR"):
        environ.pop(name, None)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir("/")
    if patience_s := float(environ.get("TEST_PATIENCE_S", "0")):
        pinfold.doors.daemon.REQUEST_S = pinfold.doors.daemon.ANSWER_S = patience_s
    if environ.get("TEST_NO_UNIX"):
        verb._Server._bind = _without_unix(verb._Server._bind)  # type: ignore[method-assign]
    sys.stdout = io.TextIOWrapper(io.BytesIO())  # what a command printed here would be lost to its caller
    verb.write_json = ready.send
    verb.run_serve(["--json", *options])


def _without_unix(bind: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return what binds a server's sockets as on a platform that has no Unix sockets. The event loop needs them here."""

    def bound(server: Any) -> None:
        family = socket.AF_UNIX
        del socket.AF_UNIX
        try:
            bind(server)
        finally:
            socket.AF_UNIX = family  # type: ignore[misc]

    return bound
