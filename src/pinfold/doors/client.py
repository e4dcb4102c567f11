"""Hands a command over to the server of its store, where `pinfold serve` runs one. The first thing that a command does.

Its rules:

* it imports next to nothing: what a warm `pinfold peek` takes is the start of the interpreter;
* whatever goes wrong before a command has begun, the command runs in this process, as it does without a server;
* what has begun and whose answer is lost runs here under the id it was sent with: what was done is not done twice;
* stdin is read when the server asks for it, and nothing is printed before the answer is whole: no pipe holds the server up;
* a folder of sockets that others could write to is not looked into, and a port whose owner does not know the token is told nothing.

What goes over the wire is told in docs/design/serve.md.
"""

import os
import sys

from pinfold import __version__
from pinfold.journal.url import data_directory, default_url, resolved

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself takes longer to load than an answer
    from _socket import socket
    from collections.abc import Callable
    from typing import Any

PROTOCOL = 1
SWITCH = "PINFOLD_SERVE"
"""Set to `off`, commands run in their own process whether a server is there or not."""
SENT = ("HOME", "XDG_DATA_HOME", "LOCALAPPDATA", "USERPROFILE", "NO_COLOR", "TERM", "COLUMNS")
"""Variables that are sent beside PINFOLD_… and MEMNET_…; tokens are not."""
REQUEST_BYTES = 8 << 20
"""A longer command line is not sent."""
CONNECT_S = 2.0
FIRST_S = 5.0
"""A server that has not begun by then is stuck; the command runs here."""
HEAD_BYTES = 5
BEGUN, STDOUT, STDERR, STATUS, INPUT, YOURS, SKEW, PROOF, REFUSED, JSON = b"boexiyvprj"
"""What a frame of the server is: one of these, four bytes of length, and that many bytes."""


class Carried:
    """What a command brings back that was sent away and is to run here.

    input: what was read of stdin. request_id: what it was sent under. lost: it may have been done. skew: the other version of
    the server that refused it.
    """

    def __init__(self, request_id: str = "") -> None:
        self.request_id = request_id
        self.input: bytes | None = None
        self.lost = False
        self.skew = ""


def forward(argv: list[str]) -> "tuple[int | None, Carried | None]":
    """Return (exit status, None) of a command that the server ran and whose answer is printed, else (None, what it brings back)."""
    if os.environ.get(SWITCH) == "off" or argv[:1] == ["serve"]:  # one that is stuck must not hold up its own end
        return None, None
    words = [utf8(word) for word in argv]
    try:
        base = address_of(resolved(store_of(words)))
        folder = utf8(os.getcwd())
        link = connect(base)
    except Exception:  # a URL that is none, a folder that is gone: the command itself says what is wrong
        return None, None
    if link is None:
        return None, None
    carried = Carried(f"cli:{os.urandom(10).hex()}")
    answer = _converse(link, _request(words, folder, carried), carried)
    if answer is not None and answer[0] == INPUT:
        carried.input = b"" if sys.stdin is None else sys.stdin.buffer.read(int(answer[1]))
        link = connect(base)
        answer = None if link is None else _converse(link, _request(words, folder, carried), carried)
    if answer is None or answer[0] != STATUS:
        return None, carried
    return _shown(answer[2], int(answer[1]), words), None


# --- where --------------------------------------------------------------------------------------------------------


def store_of(words: list[str]) -> str:
    """Return the URL of the store a command line works on, as its parser would find it."""
    store = ""
    for place, word in enumerate(words):
        if word == "--":
            break
        if word == "--store":
            store = words[place + 1] if place + 1 < len(words) else ""
        elif word.startswith("--store="):
            store = word[8:]
    return store or default_url()


def address_of(url: str) -> str:
    """Return the path, without its ending, of what belongs to the server of a store: .sock, .tcp, .lock, .log."""
    return os.path.join(runtime_folder(), sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16])


def runtime_folder() -> str:
    """Return the folder of this user's servers. A socket's path has 100 bytes at most."""
    if os.name == "nt":
        return os.path.join(data_directory(), "run")
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base) and len(os.fsencode(base)) <= 64:
        return os.path.join(base, "pinfold")
    return f"/tmp/pinfold-{os.getuid()}"


def is_private(folder: str) -> bool:
    """Return whether a folder is this user's, and nobody else may put anything there. Raises FileNotFoundError."""
    if os.name == "nt":
        return os.path.isdir(folder)
    found = os.lstat(folder)
    return found.st_uid == os.getuid() and found.st_mode & 0o170077 == 0o040000


def connect(base: str) -> "tuple[socket, str] | None":
    """Return (a connection to the server at an address, its token), None where none listens. Raises OSError."""
    has_socket = os.path.exists(f"{base}.sock")
    if not has_socket and not os.path.exists(f"{base}.tcp"):
        return None
    if not is_private(os.path.dirname(base)):
        return None
    import _socket

    if has_socket and hasattr(_socket, "AF_UNIX"):
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        link.settimeout(CONNECT_S)
        try:
            link.connect(f"{base}.sock")
        except OSError:  # nobody listens there any more
            link.close()
            return None
        return link, ""
    try:
        with open(f"{base}.tcp", encoding="ascii") as file:
            host, port, token = file.read().split()
    except FileNotFoundError:
        return None
    link = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, _socket.SOCK_STREAM)
    link.settimeout(CONNECT_S)
    try:
        link.connect((host, int(port)))
        nonce = os.urandom(16).hex()
        link.sendall(framed(f'{{"nonce":"{nonce}"}}'.encode()))
        kind, proof, _ = read_answer(link, None)
        if kind != PROOF or proof != proof_of(token, nonce):
            raise OSError("another program listens there")
    except (OSError, EOFError):
        link.close()
        return None
    return link, token


def proof_of(token: str, nonce: str) -> bytes:
    """Return what shows that a server knows the token, without saying it."""
    proof: str = sha256(f"{token} {nonce}".encode()).hexdigest()
    return proof.encode()


# --- the conversation ---------------------------------------------------------------------------------------------


def framed(body: bytes) -> bytes:
    """Return a frame as a client sends it: four bytes of length, and the body."""
    return len(body).to_bytes(4, "big") + body


def _request(words: list[str], folder: str, carried: Carried) -> "Callable[[str], bytes | None]":
    """Return a function of the token: the frame of a command, None where it is too long to be sent."""
    try:
        from _json import encode_basestring_ascii as quoted
    except ImportError:  # an interpreter without it
        from json import dumps as quoted
    terminal = sys.stdout is not None and sys.stdout.isatty()
    named = [(name, value) for name, value in os.environ.items() if name in SENT or (name.startswith(("PINFOLD_", "MEMNET_")) and "TOKEN" not in name)]
    environ = ",".join(f"{quoted(utf8(name))}:{quoted(utf8(value))}" for name, value in named)
    argv = ",".join(map(quoted, words))
    size = "null" if carried.input is None else len(carried.input)
    told = (
        f'"protocol":{PROTOCOL},"pinfold":{quoted(__version__)},"id":{quoted(carried.request_id)},"argv":[{argv}],"folder":{quoted(folder)},'
        f'"environ":{{{environ}}},"terminal":{"true" if terminal else "false"},"columns":{_columns() if terminal else 0},"input":{size}'
    )

    def frame(token: str) -> bytes | None:
        body = f'{{"token":{quoted(token)},{told}}}'.encode("ascii")
        return framed(body) + (carried.input or b"") if len(body) <= REQUEST_BYTES else None

    return frame


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 0


def _converse(
    connection: "tuple[socket, str]", request: "Callable[[str], bytes | None]", carried: Carried
) -> "tuple[int, bytes, list[tuple[int, bytes]]] | None":
    """Return (kind, payload, what to print) of the server's last frame, None where there is none; carried says what that means."""
    link, token = connection
    try:
        frame = request(token)
        if frame is None:
            return None
        link.settimeout(FIRST_S)
        link.sendall(frame)
        answer = read_answer(link, carried)
    except EOFError:  # it is gone; where it had not said so before, it had not begun
        return None
    except TimeoutError:  # it is stuck, and may come round
        carried.lost = True
        return None
    except OSError:
        carried.lost = carried.lost or bool(token)  # over TCP what it said may be lost with it
        return None
    finally:
        link.close()
    if answer[0] == SKEW:
        carried.skew = answer[1].decode()
    carried.lost = False
    return answer


def read_answer(link: "socket", carried: Carried | None) -> tuple[int, bytes, list[tuple[int, bytes]]]:
    """Return (kind, payload, what to print) of the frame that ends an answer. Raises EOFError, OSError."""
    shown: list[tuple[int, bytes]] = []
    data = bytearray()
    while True:
        while len(data) < HEAD_BYTES or len(data) < HEAD_BYTES + int.from_bytes(data[1:HEAD_BYTES], "big"):
            part = link.recv(1 << 18)
            if not part:
                raise EOFError
            data += part
        end = HEAD_BYTES + int.from_bytes(data[1:HEAD_BYTES], "big")
        kind, payload = data[0], bytes(data[HEAD_BYTES:end])
        del data[:end]
        if kind == BEGUN and carried is not None:
            carried.lost = True  # until its answer is here
            link.settimeout(None)
        elif kind in (STDOUT, STDERR):
            shown.append((kind, payload))
        else:
            return kind, payload, shown


def _shown(parts: list[tuple[int, bytes]], status: int, words: list[str]) -> int:
    """Print an answer as the command itself would have. Return the exit status."""
    try:
        for kind, payload in parts:
            if kind == STDOUT:
                _put(sys.stdout, payload)
            else:
                try:
                    _put(sys.stderr, payload)
                except OSError:
                    pass  # words are not worth failing for
        return status
    except OSError as error:
        from pinfold.doors.cli import not_printed

        return not_printed(error, status, words)


def _put(stream: "Any", payload: bytes) -> None:
    if stream is not None:
        stream.flush()
        stream.buffer.write(payload)
        stream.flush()


# --- shared with the command line ---------------------------------------------------------------------------------


def utf8(word: str) -> str:
    """Return a word of the command line as UTF-8 with surrogate escapes, whatever the locale decoded it with."""
    if word.isascii() or os.name == "nt":
        return word
    try:
        return os.fsencode(word).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return word


def sha256(data: bytes) -> "Any":
    """Return the interpreter's own SHA-256 of data: hashlib would load OpenSSL at every start."""
    try:
        from _sha2 import sha256 as digest  # type: ignore[import-not-found]  # 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256 as digest  # type: ignore[import-not-found]
        except ImportError:
            from hashlib import sha256 as digest
    return digest(data)
