"""Files of other programs: read whole, written beside and renamed, a copy kept. A link is followed, the mode is kept."""

from __future__ import annotations

import os
import shutil

from pinfold.errors import ConfigurationError, Refused

BACKUP = ".pinfold-backup"
BYTES = 64 << 20
"""No client's settings are larger; what is, is something else."""


def read(path: str) -> bytes | None:
    """Return what is in a file, None where there is none. Raises ConfigurationError `bad_path`, Refused `invalid_file`."""
    try:
        with open(path, "rb") as file:
            content = file.read(BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}", code="bad_path", hint="is it a file, and yours?") from error
    if len(content) > BYTES:
        raise Refused(f"{path} has more than {BYTES} bytes", code="invalid_file", hint="--print shows what to add by hand")
    return content


def as_text(content: bytes, path: str) -> str:
    """Return a file's text; a byte order mark stays in it. Raises Refused `not_utf8`."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 text: {error}", code="not_utf8", hint="save it as UTF-8; --print shows what to add by hand") from error


def backup(path: str) -> str:
    """Copy a file beside itself, over an older copy. Return the copy's path. Raises ConfigurationError `bad_path`."""
    kept = path + BACKUP
    try:
        shutil.copy2(os.path.realpath(path), kept)
    except OSError as error:
        raise ConfigurationError(f"{kept} cannot be written: {error.strerror}", code="bad_path", hint="nothing was changed") from error
    return kept


def write(path: str, text: str, before: bytes | None) -> None:
    """Write text where before is what is there. Raises Refused `changed_meanwhile`, ConfigurationError `bad_path`."""
    real = os.path.realpath(path)
    beside = f"{real}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        with open(beside, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        if before is not None:
            shutil.copymode(real, beside)
        if read(real) != before:
            raise Refused(f"{path} was changed by another program just now", code="changed_meanwhile", hint="try again; quit the client if it goes on")
        os.replace(beside, real)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}", code="bad_path", hint="nothing was changed") from error
    finally:
        if os.path.exists(beside):
            os.remove(beside)
