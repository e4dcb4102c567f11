"""Which store a URL means. It imports next to nothing: a command that is forwarded to a running server gets no further."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = "PINFOLD_STORE"


def default_url(environ: "Mapping[str, str] | None" = None) -> str:
    """Return $PINFOLD_STORE, else the SQLite file in the platform's data directory."""
    env = dict(os.environ if environ is None else environ)
    return env.get(ENVIRONMENT) or f"sqlite:///{os.path.join(data_directory(environ=env), 'pinfold.db')}"


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


def resolved(url: str, folder: str = "") -> str:
    """Return a URL with a file's path made absolute, from folder or the current one; two names of one file stay two."""
    scheme, mark, rest = url.partition("://")
    if scheme != "sqlite" or not mark:
        return url
    location, question, query = rest.partition("?")
    return f"sqlite:///{sqlite_path(location, folder)}{question}{query}"


def sqlite_path(location: str, folder: str = "") -> str:
    """Return the file path of a URL's part after `sqlite://`: /relative, //absolute, /~/home or /C:/drive.

    Raises ConfigurationError where three slashes were written and four were surely meant: a store that lands in a new
    folder beside the program, unnoticed, would look like lost memory.
    """
    path = location[1:]
    parent = os.path.dirname(path)
    here = os.path.join(folder, os.path.expanduser(parent)) if parent else ""
    if not path.startswith("/") and parent and not os.path.isdir(here) and os.path.isdir("/" + parent):
        from pinfold.errors import ConfigurationError

        raise ConfigurationError(
            f"sqlite://{location} is relative to this folder, where {parent} does not exist",
            code="bad_url",
            hint=f"write sqlite:///{location} for the absolute path, or make the folder first",
        )
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path)))
