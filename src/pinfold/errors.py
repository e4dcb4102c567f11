"""The error tree. Every error has a stable code, the thing it is about, and what to do next.

    PinfoldError
    ├── Refused              the caller can fix it; nothing was written
    │   ├── DocumentRefused  a document of lines: every problem in it, each with line and column
    │   └── WorkFailed       the work behind a promise failed in its owner; shared with those who waited
    ├── Unavailable          try again; maybe_applied says whether the write may have happened
    │   └── Busy             a bounded wait for a lock ended
    ├── Broken               stop: the store cannot be trusted as it is
    │   ├── JournalCorrupt   a checksum, the hash chain or the file itself is damaged
    │   └── NewerFormat      written by a later pinfold
    └── ConfigurationError   a wrong URL, option or environment

A miss is a value, never an exception.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is more than a command loads that is handed to a running server
    from typing import Any


class PinfoldError(Exception):
    """Base of everything pinfold raises: `code`, `message`, `hint`, and `fields` (also as attributes)."""

    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = hint
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        # Only reached when normal lookup fails; __dict__ keeps unpickling from recursing.
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" | {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.code, self.hint, self.fields))

    def shape(self) -> dict[str, Any]:
        """Return {"code", "message", "hint"} plus "errors" where there are several: the JSON every door prints."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


def _rebuild(cls: type[PinfoldError], message: str, code: str, hint: str, fields: dict[str, Any]) -> PinfoldError:
    return cls(message, code=code, hint=hint, **fields)


class Refused(PinfoldError):
    """The request breaks a rule. Nothing was written."""

    default_code = "refused"


class DocumentRefused(Refused):
    """A document of lines was refused whole; `problems` lists every problem: line, column, code, message, hint."""

    default_code = "document_refused"

    def shape(self) -> dict[str, Any]:
        rows = [{"line": p.line, "column": p.column, "code": p.code, "message": p.message, "hint": p.hint} for p in self.fields.get("problems", ())]
        return {**super().shape(), "errors": rows}


class WorkFailed(Refused):
    """The owner of the promise rejected it: `key`, `reason`. Not kept; a later caller may try again."""

    default_code = "work_failed"


class Unavailable(PinfoldError):
    """The store cannot answer now. `maybe_applied` is True where the write may have happened."""

    default_code = "unavailable"
    maybe_applied = False

    def __init__(self, message: str, *, maybe_applied: bool = False, **rest: Any) -> None:
        super().__init__(message, maybe_applied=maybe_applied, **rest)
        self.maybe_applied = maybe_applied


class Busy(Unavailable):
    """Somebody held the lock for longer than the wait allowed. Nothing was written."""

    default_code = "busy"


class Broken(PinfoldError):
    """The store cannot be trusted as it is. `pinfold doctor` says where."""

    default_code = "broken"


class JournalCorrupt(Broken):
    """Damage: `session`, `seq` and what did not fit."""

    default_code = "journal_corrupt"


class NewerFormat(Broken):
    """The store was written by a later pinfold; opening it here could lose what this version does not know."""

    default_code = "newer_format"


class ConfigurationError(PinfoldError):
    """A URL, option or environment variable that cannot be right."""

    default_code = "configuration"
