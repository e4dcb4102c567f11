"""A journal by its URL; the drivers are imported only where their URL is used."""

from __future__ import annotations

import os
import sys
from typing import Any

from pinfold.errors import ConfigurationError
from pinfold.journal.base import Journal

ENVIRONMENT = "PINFOLD_STORE"


def default_url() -> str:
    """Return $PINFOLD_STORE, else the SQLite file in the platform's data directory."""
    return os.environ.get(ENVIRONMENT) or f"sqlite:///{os.path.join(data_directory(), 'pinfold.db')}"


def data_directory(platform: str = sys.platform, environ: dict[str, str] | None = None) -> str:
    """Return the folder where this platform keeps a user's application data for pinfold."""
    env = dict(os.environ) if environ is None else environ
    if platform == "win32":
        base = env.get("LOCALAPPDATA") or os.path.join(os.path.expanduser("~"), "AppData", "Local")
    elif platform == "darwin":
        base = os.path.join(os.path.expanduser("~"), "Library", "Application Support")
    else:
        base = env.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.path.join(base, "pinfold")


def store_bytes(path: str) -> int | None:
    """Return the size of a SQLite store with its write-ahead log, None where there is none."""
    if not os.path.exists(path):
        return None
    return sum(os.path.getsize(name) for name in (path, f"{path}-wal") if os.path.exists(name))


def open_journal(url: str) -> Journal:
    """Return the journal of a URL. Raises ConfigurationError.

    memory://
    sqlite:///path[?durability=full][&mode=ro]
    redis://, rediss://, redis+cluster://, rediss+cluster://[user:password@]host:port[,host:port][/db][?replicas=1]…
    postgresql://[user:password@]host[:port]/database[?schema=pinfold]…
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise ConfigurationError(f"{url!r} is not a store URL", code="bad_url", hint=f"write sqlite:///{url} for a file, or memory://")
    location, _, query = rest.partition("?")
    options = _options(url, query)
    if scheme == "memory":
        from pinfold.journal.memory import MemoryJournal

        only_options(url, options, ())
        return MemoryJournal()
    if scheme == "sqlite":
        from pinfold.journal.sqlite import SqliteJournal

        only_options(url, options, ("durability", "mode"))
        if not location.startswith("/") or location == "/":
            raise ConfigurationError(f"{url!r} names no file", code="bad_url", hint="write sqlite:///relative/path or sqlite:////absolute/path")
        return SqliteJournal(sqlite_path(location), **options)
    if scheme in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
        from pinfold.journal.remote import open_redis

        return open_redis(scheme, location, options)
    if scheme in ("postgresql", "postgres"):
        from pinfold.journal.remote import open_postgres

        return open_postgres(location, options)
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


def sqlite_path(location: str) -> str:
    """Return the file path of a URL's part after `sqlite://`: /relative, //absolute, /~/home or /C:/drive.

    Raises ConfigurationError where three slashes were written and four were surely meant: a store that lands in a new
    folder beside the program, unnoticed, would look like lost memory.
    """
    path = location[1:]
    parent = os.path.dirname(path)
    if not path.startswith("/") and parent and not os.path.isdir(os.path.expanduser(parent)) and os.path.isdir("/" + parent):
        raise ConfigurationError(
            f"sqlite://{location} is relative to this folder, where {parent} does not exist",
            code="bad_url",
            hint=f"write sqlite:///{location} for the absolute path, or make the folder first",
        )
    return os.path.abspath(os.path.expanduser(path))


def _options(url: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, mark, value = part.partition("=")
        if not mark:
            raise ConfigurationError(f"{part!r} in {url!r} is not an option", code="bad_url", hint="write name=value, joined by &")
        options[name] = value
    return options


def only_options(url: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            known_text = ", ".join(known) or "none"
            raise ConfigurationError(f"{name!r} in {url!r} is not an option of this store", code="bad_url", hint=f"options: {known_text}")
