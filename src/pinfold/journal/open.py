"""A journal by its URL; the drivers are imported only where their URL is used."""

from __future__ import annotations

import os
from typing import Any

from pinfold.errors import ConfigurationError
from pinfold.journal.base import Journal
from pinfold.journal.url import sqlite_path


def store_bytes(path: str) -> int | None:
    """Return the size of a SQLite store with its write-ahead log, None where there is none."""
    if not os.path.exists(path):
        return None
    return sum(os.path.getsize(name) for name in (path, f"{path}-wal") if os.path.exists(name))


def _is_path(location: str) -> bool:
    try:
        return b"\0" not in os.fsencode(location)
    except UnicodeEncodeError:
        return False


def require_store(url: str) -> None:
    """Raise ConfigurationError `no_store` where url names a file that is not there: to open it would make it, and hide a slip."""
    scheme, _, rest = url.partition("://")
    location = rest.partition("?")[0]
    if scheme == "sqlite" and location.startswith("/") and not os.path.exists(path := sqlite_path(location)):
        raise ConfigurationError(f"there is no store at {path}", code="no_store", hint="check the path; `pinfold where` says which store is the default")


def open_journal(url: str) -> Journal:
    """Return the journal of a URL. Raises ConfigurationError.

    memory://
    sqlite:///path[?durability=full][&mode=ro]
    redis://, rediss://, redis+cluster://, rediss+cluster://[user:password@]host:port[,host:port][/db][?replicas=1]…
    postgresql://[user:password@]host[:port]/database[?schema=pinfold]…

    Each also takes one of max_stale_ms=N, what was read N ms ago is new enough, and fresh=confirm, no read that is not proved to be
    linearizable: a permission and a demand, which memory and files, always fresh, meet as they are.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise ConfigurationError(f"{url!r} is not a store URL", code="bad_url", hint=f"write sqlite:///{url} for a file, or memory://")
    location, _, query = rest.partition("?")
    url = without_password(url)
    options = _options(url, query)
    freshness = {"confirm": _confirm(url, options.pop("fresh", None)), "max_stale_ms": whole_number(url, "max_stale_ms", options.pop("max_stale_ms", "0"))}
    if all(freshness.values()):
        raise ConfigurationError(f"{url!r} asks for both fresh=confirm and max_stale_ms", code="bad_url", hint="leave one of them out")
    if scheme == "memory":
        from pinfold.journal.memory import MemoryJournal

        only_options(url, options, ())
        return MemoryJournal()
    if scheme == "sqlite":
        from pinfold.journal.sqlite import SqliteJournal

        only_options(url, options, ("durability", "mode"))
        if not location.startswith("/") or location == "/" or not _is_path(location):
            raise ConfigurationError(f"{url!r} names no file", code="bad_url", hint="write sqlite:///relative/path or sqlite:////absolute/path")
        if location == "/:memory:":
            raise ConfigurationError(f"{url!r} would be a file called :memory:", code="bad_url", hint="write memory:// for a store in RAM")
        return SqliteJournal(sqlite_path(location), **options)
    if scheme in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
        from pinfold.journal.remote import open_redis

        return open_redis(scheme, location, options, freshness)
    if scheme in ("postgresql", "postgres"):
        from pinfold.journal.remote import open_postgres

        return open_postgres(location, options, freshness)
    raise ConfigurationError(
        f"{scheme}:// is not a kind of store this pinfold knows",
        code="bad_url",
        hint="use sqlite:///path, redis://, redis+cluster://, postgresql:// or memory://",
    )


def migrate_store(url: str) -> list[str]:
    """Bring the tables of a PostgreSQL store to this pinfold's format. Return what was done, empty where nothing was to do.

    Other stores need none: they make their format at the first write. Raises ConfigurationError, Unavailable.
    """
    journal = open_journal(url)
    try:
        migrate = getattr(journal, "migrate", None)
        return migrate() if migrate is not None else []
    finally:
        journal.close()


def _options(url: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, mark, value = part.partition("=")
        if not mark:
            raise ConfigurationError(f"{part!r} in {url!r} is not an option", code="bad_url", hint="write name=value, joined by &")
        options[name] = value
    return options


def _confirm(url: str, value: str | None) -> bool:
    if value not in (None, "confirm"):
        raise ConfigurationError(f"fresh={value} in {url!r} is not known", code="bad_url", hint="write fresh=confirm, or leave it out")
    return value is not None


def without_password(url: str) -> str:
    """Return a store's URL as messages may show it."""
    scheme, mark, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{mark}{user}{':***' if colon else ''}{at}{hosts}{slash}{path}"


def whole_number(url: str, what: str, text: str) -> int:
    """Return the number that an option or a port is. Raises ConfigurationError."""
    if not text.isdecimal() or len(text) > 9:
        raise ConfigurationError(f"{url}: {what} {text!r} is not a number", code="bad_url", hint="write digits alone")
    return int(text)


def only_options(url: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            known_text = ", ".join(known) or "none"
            raise ConfigurationError(f"{name!r} in {url!r} is not an option of this store", code="bad_url", hint=f"options: {known_text}")
