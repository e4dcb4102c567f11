"""Talks to the server of $PINFOLD_STORE frame by frame, and asks it how it is."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinfold import __version__
from pinfold.doors import client
from pinfold.doors.serve import ask
from pinfold.journal.lock import FileLock


def base() -> str:
    return client.address_of(os.environ["PINFOLD_STORE"])


def status() -> dict[str, Any]:
    told = ask(base(), "status")
    assert told is not None
    return told


def counts() -> dict[str, int]:
    return dict(status()["counts"])


def becomes(so: Callable[[], bool]) -> bool:
    """Wait, at most a minute or so, until something is so. Return whether it is."""
    waiting = threading.Event()
    return any(so() or waiting.wait(0.01) for _ in range(6_000))


class Link:
    """A client of its own making."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(f"{base()}.sock")

    def send(self, raw: bytes) -> Link:
        try:
            self.socket.sendall(raw)
        except OSError:
            pass  # refused before it was all there
        return self

    def ask(self, *argv: str, **other: Any) -> Link:
        given = {"protocol": client.PROTOCOL, "pinfold": __version__, "id": f"cli:{os.urandom(10).hex()}", "argv": argv, "folder": "/", "terminal": False}
        environ = {name: os.environ[name] for name in client.SENT if name in os.environ}
        environ |= {name: os.environ[name] for name in ("PINFOLD_STORE", "PINFOLD_SESSION")}
        return self.send(client.framed(json.dumps({**given, "columns": 0, "input": None, "environ": environ, **other}).encode()))

    def frames(self) -> list[tuple[int, bytes]]:
        """Return what comes until the other end is closed."""
        data = b""
        try:
            while part := self.socket.recv(1 << 20):
                data += part
        except ConnectionError:
            pass  # it left with something unread
        finally:
            self.socket.close()
        found = []
        while data:
            size = int.from_bytes(data[1:5], "big")
            found.append((data[0], data[5 : 5 + size]))
            data = data[5 + size :]
        return found

    def answer(self, *argv: str) -> bytes:
        frames = self.ask(*argv).frames()
        assert frames[0] == (client.BEGUN, b"") and frames[-1] == (client.STATUS, b"0"), frames
        return b"".join(payload for kind, payload in frames if kind == client.STDOUT)


class Held:
    """Somebody else's turn, which writers wait for (a transaction of another program they would wait for two seconds only)."""

    def __init__(self, folder: Path) -> None:
        self._lock = FileLock(f"{folder}/store.db.lock")

    def __enter__(self) -> Held:
        assert self._lock.acquire(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
