"""Who may do what over HTTP: bearer tokens, their scopes and the sessions they are granted.

Its rules:

* a token is kept as its SHA-256; what a request shows is hashed and looked up, so a guess learns nothing from the time it takes;
* scopes are read, write and admin; write includes read, admin includes both;
* a grant names a session, or with a last segment `*` all below it: `team.*` is `team.a` and `team.a.b`, and neither `team`
  nor `teammate`; `*` alone is every session;
* every session a call touches is checked, named by `session_id` or by another argument, and once more where it is opened;
* who writes is the token's name: a caller cannot write as somebody else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold.errors import ConfigurationError, Refused

if TYPE_CHECKING:
    from pinfold.memory import Memory
    from pinfold.operations import Operation
    from pinfold.session import Session

SCOPES = ("read", "write", "admin")
TOKEN_CHARS_MIN = 20
"""A shorter token can be guessed."""

ADMIN_ROWS = frozenset(("session_close", "session_restore", "session_save", "session_load", "session_fork", "session_merge", "housekeep"))
"""Rows on whole sessions: ending, copying and moving them, and sweeping rows nobody named."""
NAMES_SESSIONS = {"open": ("long_term",), "session_fork": ("name",), "session_merge": ("fork",), "session_restore": ("as_name",)}
"""Arguments beside session_id that name a session."""


def covers(pattern: str, session_id: str) -> bool:
    """Return whether a grant's pattern covers a session, segment by segment."""
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return len(session_id) >= len(pattern) and session_id.startswith(pattern[:-1])
    return session_id == pattern


def check_pattern(pattern: Any) -> str:
    """Return pattern. Raises ConfigurationError `bad_token_file` where it is neither a session, nor PREFIX.*, nor *."""
    from pinfold.arguments import check_session_name

    if not isinstance(pattern, str):
        raise _bad_file(f"a session grant must be a string, not {type(pattern).__name__}")
    name = "x" if pattern == "*" else pattern.removesuffix(".*")
    try:
        check_session_name(name)
    except Refused as refused:
        raise _bad_file(f"{pattern!r} is no session grant: {refused.message}", "a session's name, a prefix like team.*, or *") from None
    return pattern


class Grant(msgspec.Struct, frozen=True):
    """What one caller may do. name: the actor of its writes, None for the server's own."""

    name: str | None
    scopes: frozenset[str]
    sessions: tuple[str, ...]

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes or (scope == "read" and "write" in self.scopes)

    @property
    def covers_all(self) -> bool:
        return "*" in self.sessions

    def covers(self, session_id: str) -> bool:
        return any(covers(pattern, session_id) for pattern in self.sessions)

    def need(self, scope: str, what: str) -> None:
        """Raise Refused `scope_required` where the caller may not."""
        if not self.may(scope):
            raise Refused(f"{what} needs a token with the scope {scope}", code="scope_required", hint="ask whoever runs this server", scope=scope)

    def need_session(self, session_id: Any) -> None:
        """Raise Refused `session_not_granted` where the session is not covered."""
        if not isinstance(session_id, str) or not self.covers(session_id):
            shown = str(session_id)[:130]
            granted = ", ".join(self.sessions) or "none"
            raise Refused(f"this token is not granted the session {shown!r}", code="session_not_granted", hint=f"granted: {granted}")

    def check(self, row: Operation, arguments: dict[str, Any]) -> None:
        """Raise Refused where a call of this row with these arguments is not allowed; session_id is checked apart."""
        erases = row.name == "forget" and bool(arguments.get("erase"))
        if row.name in ADMIN_ROWS or erases:
            self.need("admin", f"{row.name} with erase" if erases else row.name)
        elif row.changes(arguments):
            self.need("write", row.name)
        else:
            self.need("read", row.name)
        for name in NAMES_SESSIONS.get(row.name, ()):
            if arguments.get(name) is not None:
                self.need_session(arguments[name])
        if arguments.get("keep_id") and "*" not in self.sessions:
            raise Refused("keep_id takes the session's name from the file", code="session_not_granted", hint="pass session_id instead")


EVERYTHING = Grant(None, frozenset(SCOPES), ("*",))
"""What everybody may on a loopback server without tokens."""


class GrantedMemory:
    """A store as one grant shows it: the same store, every session checked where it is opened, writes under the grant's name.

    Whatever is not listed here is not there: a new method of Memory is refused until it says whom it touches.
    """

    def __init__(self, memory: Memory, grant: Grant) -> None:
        if grant.name is not None:  # the same journal and replicas, other handles: those know who writes
            memory = memory.by(grant.name)
        self._memory = memory
        self._engine = memory._engine
        self._sessions = memory._sessions
        self._journal = memory._journal
        self.grant = grant
        self.url = memory.url

    def session(self, session_id: str, **options: Any) -> Session:
        self.grant.need_session(session_id)
        if options.get("long_term"):
            self.grant.need_session(options["long_term"])
        return self._memory.session(session_id, **options)

    def sessions(self, *, expired: bool = False) -> list[Any]:
        return [row for row in self._memory.sessions(expired=expired) if self.grant.covers(row.session_id.partition("@")[0])]

    def end(self, session_id: str) -> bool:
        self.grant.need_session(session_id)
        return self._memory.end(session_id)

    def restore(self, session_id: str, *, as_name: str | None = None) -> Session:
        self.grant.need_session(session_id)
        if as_name is not None:
            self.grant.need_session(as_name)
        return self._memory.restore(session_id, as_name=as_name)

    def fork(self, session_id: str, name: str, *, at: int | None = None) -> Session:
        self.grant.need_session(session_id)
        self.grant.need_session(name)
        return self._memory.fork(session_id, name, at=at)

    def merge(self, fork_id: str, *, into: str) -> Any:
        self.grant.need_session(fork_id)
        self.grant.need_session(into)
        return self._memory.merge(fork_id, into=into)

    def save(self, session_id: str, path: str) -> tuple[int, int]:
        self.grant.need_session(session_id)
        return self._memory.save(session_id, path)

    def load(self, path: str, session_id: str | None = None, *, keep_id: bool = False, replace: bool = False) -> Session:
        if session_id is None and "*" not in self.grant.sessions:
            raise Refused("name the session to load into", code="session_required", hint="pass session_id")
        if session_id is not None:
            self.grant.need_session(session_id)
        return self._memory.load(path, session_id, keep_id=keep_id, replace=replace)


# --- tokens -------------------------------------------------------------------------------------------------------


class Tokens:
    """The tokens of a server, by hash. A file is read again when it changes: a token is revoked by taking it out."""

    def __init__(self, grants: dict[bytes, Grant], path: str | None = None) -> None:
        self._grants = grants
        self._path = path
        self._stamp = _stamp(path)

    def __len__(self) -> int:
        return len(self._grants)

    def grant_of(self, token: str) -> Grant | None:
        """Return the grant of a token, None where there is none."""
        if self._path is not None and (now := _stamp(self._path)) != self._stamp:
            self._stamp = now
            try:
                self._grants = read_tokens(self._path)
            except ConfigurationError as error:  # half-written, or gone: nobody gets in until it is right again
                import sys

                print(f"pinfold mcp: {error}; no token is accepted until the file is right", file=sys.stderr)
                self._grants = {}
        return self._grants.get(digest(token))


def digest(token: str) -> bytes:
    from hashlib import sha256

    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def open_tokens(path: str | None, one: str | None) -> Tokens | None:
    """Return the tokens of a file, with `one` (of $PINFOLD_TOKEN, everything allowed) beside them; None for neither."""
    if path is None and not one:
        return None
    grants = {} if path is None else read_tokens(path)
    if one:
        if path is not None:
            raise ConfigurationError("both --token-file and $PINFOLD_TOKEN are set", code="bad_tokens", hint="use one of them")
        grants[_checked_digest(one, "$PINFOLD_TOKEN")] = Grant("token", frozenset(SCOPES), ("*",))
    return Tokens(grants, path)


def read_tokens(path: str) -> dict[bytes, Grant]:
    """Return the grants of a token file, by the token's hash. Raises ConfigurationError `bad_token_file`."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            raw = file.read(1 << 20)
    except OSError as error:
        raise _bad_file(f"{path} cannot be read: {error.strerror}") from error
    try:
        document = msgspec.json.decode(raw)
        rows = document["tokens"]
        assert isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    except (ValueError, KeyError, TypeError, AssertionError):
        raise _bad_file(f'{path} is not {{"tokens": [{{"name", "sha256" or "token", "scopes", "sessions"}}]}}') from None
    if os.name != "nt" and any("token" in row for row in rows) and stat.S_IMODE(found.st_mode) & 0o077:
        raise _bad_file(f"{path} holds tokens and others may read it", f"chmod 600 {path}")
    grants: dict[bytes, Grant] = {}
    for row in rows:
        key, grant = _read_row(row, path)
        if key in grants or any(other.name == grant.name for other in grants.values()):
            raise _bad_file(f"{path} names {grant.name!r} or its token twice")
        grants[key] = grant
    return grants


def _read_row(row: dict[str, Any], path: str) -> tuple[bytes, Grant]:
    from pinfold.arguments import check_actor

    unknown = sorted(set(row) - {"name", "sha256", "token", "scopes", "sessions"})
    if unknown:
        raise _bad_file(f"{path}: a token has no {unknown[0]!r}", "it has name, sha256 or token, scopes, sessions")
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise _bad_file(f"{path}: a token has no name", "the name is the actor of its writes")
    try:
        check_actor(name)
    except Refused as refused:
        raise _bad_file(f"{path}: {refused.message}") from None
    if "/" in name:  # NAME/ANY is what a caller with the token NAME may write as
        raise _bad_file(f"{path}: the name {name!r} has a /", "team-ci rather than team/ci")
    scopes = row.get("scopes", ["read"])
    if not isinstance(scopes, list) or not scopes or any(scope not in SCOPES for scope in scopes):
        raise _bad_file(f"{path}: {name!r} has scopes that are none", f"a list of {', '.join(SCOPES)}")
    sessions = row.get("sessions")
    if not isinstance(sessions, list) or not sessions:
        raise _bad_file(f"{path}: {name!r} is granted no session", 'sessions: ["team.*"], or ["*"] for all')
    grant = Grant(name, frozenset(scopes), tuple(check_pattern(pattern) for pattern in sessions))
    if ("sha256" in row) == ("token" in row):
        raise _bad_file(f"{path}: {name!r} needs a sha256 or a token, one of them", "pinfold mcp --new-token NAME makes an entry")
    if "token" in row:
        return _checked_digest(row["token"], name), grant
    try:
        key = bytes.fromhex(row["sha256"])
        assert len(key) == 32
    except (TypeError, ValueError, AssertionError):
        raise _bad_file(f"{path}: the sha256 of {name!r} is not 64 hex digits") from None
    return key, grant


def _checked_digest(token: Any, name: str) -> bytes:
    if not isinstance(token, str) or len(token) < TOKEN_CHARS_MIN:
        raise _bad_file(f"the token of {name} has fewer than {TOKEN_CHARS_MIN} characters", "pinfold mcp --new-token NAME makes a good one")
    return digest(token)


def new_token(name: str, scopes: Iterable[str], sessions: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Return (a new token, its entry for a token file). Raises ConfigurationError."""
    import secrets

    token = f"pinfold_{secrets.token_urlsafe(32)}"
    entry = {"name": name, "sha256": digest(token).hex(), "scopes": list(scopes), "sessions": list(sessions)}
    _read_row(entry, "--new-token")
    return token, entry


def _bad_file(message: str, hint: str = "docs/http.md shows one") -> ConfigurationError:
    return ConfigurationError(message, code="bad_token_file", hint=hint)
