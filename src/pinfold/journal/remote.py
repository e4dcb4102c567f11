"""The URLs of stores that are servers. Their drivers are extras, imported here only once such a URL is used."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from pinfold.errors import ConfigurationError
from pinfold.journal.base import Journal
from pinfold.journal.open import only_options, whole_number

_REDIS = ("replicas", "durability", "wait_ms", "timeout_ms", "retry_ms", "prefix", "ca", "cert", "key")
_POSTGRES = ("schema", "timeout_ms", "retry_ms", "pool", "sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs")


def open_redis(scheme: str, location: str, options: dict[str, Any], freshness: dict[str, Any]) -> Journal:
    """Return the journal of a redis:// URL, taken apart. freshness: max_stale_ms, confirm. Raises ConfigurationError."""
    user, password, hosts, path = _parts(location)
    tls, cluster = scheme.startswith("rediss"), scheme.endswith("+cluster")
    shown = f"{scheme}://{_shown(user, password)}{hosts}" + (f"/{path}" if path else "")
    only_options(shown, options, _REDIS)
    addresses = [_address(shown, part, 6379) for part in hosts.split(",")]
    if len(addresses) > 1 and not cluster:
        raise ConfigurationError(f"{shown} names several servers", code="bad_url", hint=f"write {scheme}+cluster:// for a cluster")
    db = whole_number(shown, "the database", path or "0")
    if cluster and db:
        raise ConfigurationError(f"{shown}: a cluster has no database but 0", code="bad_url", hint=f"leave /{path} out")
    if options.get("durability", "normal") not in ("normal", "full"):
        raise ConfigurationError(f"durability={options['durability']} is not known", code="bad_url", hint="use durability=normal or durability=full")
    prefix = options.get("prefix", "pinfold")
    if not prefix or not prefix.isprintable() or "{" in prefix or "}" in prefix:  # braces would move all sessions into one slot
        raise ConfigurationError(f"prefix={prefix} cannot be one", code="bad_url", hint="use letters, digits and : _ - .")
    try:
        from pinfold.journal.redis import RedisJournal
        from pinfold.journal.redis_nodes import Settings
    except ImportError as error:
        raise _missing_extra("redis", error) from error
    return RedisJournal(
        Settings(
            addresses,
            cluster,
            shown,
            username=user,
            password=password,
            db=db,
            tls=tls,
            ca=options.get("ca"),
            cert=options.get("cert"),
            key=options.get("key"),
            timeout_s=_option(shown, options, "timeout_ms", 5_000) / 1000,
            retry_s=_option(shown, options, "retry_ms", 10_000) / 1000,
        ),
        prefix=prefix,
        replicas=_option(shown, options, "replicas", None),
        durability=options.get("durability", "normal"),
        wait_ms=_option(shown, options, "wait_ms", 2_000),
        **freshness,
    )


def open_postgres(location: str, options: dict[str, Any], freshness: dict[str, Any]) -> Journal:
    """Return the journal of a postgresql:// URL, taken apart. freshness: max_stale_ms, confirm. Raises ConfigurationError."""
    user, password, hosts, path = _parts(location)
    shown = f"postgresql://{_shown(user, password)}{hosts}/{path}"
    only_options(shown, options, _POSTGRES)
    if not path:
        raise ConfigurationError(f"{shown} names no database", code="bad_url", hint="write postgresql://user@host:5432/database")
    addresses = [_address(shown, part, 5432) for part in hosts.split(",")]
    try:
        from pinfold.journal.postgres import PostgresJournal
    except ImportError as error:
        raise _missing_extra("postgres", error) from error
    connect: dict[str, Any] = {"host": ",".join(host for host, _ in addresses), "port": ",".join(str(port) for _, port in addresses), "dbname": unquote(path)}
    connect |= {"user": user, "password": password} if user else {}
    connect |= {name: options[name] for name in ("sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs") if name in options}
    return PostgresJournal(
        shown,
        connect,
        schema=options.get("schema", "pinfold"),
        pool=_option(shown, options, "pool", 4),
        timeout_s=_option(shown, options, "timeout_ms", 10_000) / 1000,
        retry_s=_option(shown, options, "retry_ms", 10_000) / 1000,
        **freshness,
    )


def _parts(location: str) -> tuple[str | None, str | None, str, str]:
    """Return (user, password, hosts, path) of what follows `://`."""
    authority, _, path = location.partition("/")
    login, mark, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    return (unquote(user) or None, unquote(password) or None, hosts, path) if mark else (None, None, hosts, path)


def _shown(user: str | None, password: str | None) -> str:
    """Return the login as messages may show it."""
    return "" if user is None and password is None else f"{user or ''}{':***' if password else ''}@"


def _address(shown: str, part: str, port: int) -> tuple[str, int]:
    host, mark, number = part.rpartition(":")
    if part.endswith("]") or not mark:
        host, number = part, str(port)
    host = host.strip("[]")
    if not host:
        raise ConfigurationError(f"{shown} names no host", code="bad_url", hint="write host or host:port after //")
    return host, whole_number(shown, "the port", number)


def _option(shown: str, options: dict[str, Any], name: str, default: Any) -> Any:
    return whole_number(shown, name, options[name]) if name in options else default


def _missing_extra(extra: str, error: ImportError) -> ConfigurationError:
    return ConfigurationError(f"this store needs a driver that is not installed ({error.name})", code="missing_extra", hint=f"pip install 'pinfold[{extra}]'")
