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
from pinfold.session import AsyncSession, Memory, Session
from pinfold.state.outcomes import Claimed, Hit, Miss, Pending, PromiseState, Rejected, Settled, Stored

__version__ = "0.1.0"

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
