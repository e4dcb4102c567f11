"""pinfold: working memory for LLM agents. Peek before you work; what is done or in flight anywhere is never done twice.

from pinfold import Memory

with Memory() as memory:
    session = memory.session("my-project")
    answer = session.once("expensive:42", lambda: work(42))
"""

from pinfold.call_key import call_key
from pinfold.errors import (
    Broken,
    Busy,
    ConfigurationError,
    DocumentRefused,
    JournalCorrupt,
    NewerFormat,
    PinfoldError,
    Refused,
    Unavailable,
    WorkFailed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is more than a command loads that is handed to a running server
    from typing import Any

    from pinfold.async_session import AsyncSession
    from pinfold.memory import Memory
    from pinfold.session import Session
    from pinfold.state.outcomes import Claimed, Hit, Miss, Pending, PromiseState, Rejected, Settled, Stored

__version__ = "0.1.0"

_LATER = {
    "pinfold.async_session": ("AsyncSession",),
    "pinfold.memory": ("Memory",),
    "pinfold.session": ("Session",),
    "pinfold.state.outcomes": ("Claimed", "Hit", "Miss", "Pending", "PromiseState", "Rejected", "Settled", "Stored"),
}
"""Public names that are loaded when first asked for, so that the command line starts before the engine does."""

__all__ = [
    "AsyncSession",
    "Broken",
    "Busy",
    "Claimed",
    "ConfigurationError",
    "DocumentRefused",
    "Hit",
    "JournalCorrupt",
    "Memory",
    "Miss",
    "NewerFormat",
    "Pending",
    "PinfoldError",
    "PromiseState",
    "Refused",
    "Rejected",
    "Session",
    "Settled",
    "Stored",
    "Unavailable",
    "WorkFailed",
    "__version__",
    "call_key",
]


def __getattr__(name: str) -> "Any":
    for module, names in _LATER.items():
        if name in names:
            from importlib import import_module

            globals().update({known: getattr(import_module(module), known) for known in names})
            return globals()[name]
    raise AttributeError(f"module 'pinfold' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
