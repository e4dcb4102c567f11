"""What callers may pass: checked once, refused with what to do instead."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import Any

from pinfold import limits
from pinfold.call_key import call_key
from pinfold.errors import Refused
from pinfold.state.outcomes import Claimed, Pending
from pinfold.state.value import check_key

_PLAIN = frozenset((str, int, bool, type(None)))


class CallKeys:
    """Makes the canonical key of a function's calls; remembers recent ones, since canonical JSON costs more than a hit."""

    _KEPT = 4096

    def __init__(self, fn: Callable[..., Any], name: str | None) -> None:
        import inspect

        self._signature = inspect.signature(fn)
        self._name = name or f"{fn.__module__}.{fn.__qualname__}"
        self._known: dict[Any, str] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        # 1, 1.0 and True are equal and hash alike but are different calls: types are part of what is remembered.
        types = tuple(map(type, args)) if not kwargs else None
        if types is not None and _PLAIN.issuperset(types):
            call = (args, types)
            key = self._known.get(call)
            if key is None:
                if len(self._known) >= self._KEPT:
                    self._known.clear()
                key = self._known[call] = self._make(args, kwargs)
            return key
        return self._make(args, kwargs)

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return call_key(self._name, dict(bound.arguments))


def until_lapse(found: Pending, left_s: float) -> float:
    return left_s if found.lease_left_s is None else min(left_s, found.lease_left_s + 0.001)


def reason_of(error: BaseException) -> str:
    """Return an exception as one line for those who waited."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def check_reason(reason: str) -> str:
    """Return a reason as it can be journaled: what is no Unicode (a file's name in an exception) is escaped. Raises Refused `bad_reason`."""
    if not isinstance(reason, str):
        raise Refused(f"a reason is text, not {type(reason).__name__}", code="bad_reason", hint="say in words why the work failed")
    return reason.encode("utf-8", "backslashreplace").decode()


def deadline_of(timeout_s: float) -> float:
    """Return the monotonic time at which a wait ends. Raises Refused `bad_timeout`."""
    if not isinstance(timeout_s, (int, float)) or math.isnan(timeout_s):
        raise Refused(f"waiting {timeout_s!r} s is not possible", code="bad_timeout", hint="give seconds; math.inf waits without end")
    return time.monotonic() + timeout_s


def age_ms_of(age_s: float | None) -> int | None:
    if age_s is None:
        return None
    if not isinstance(age_s, (int, float)) or not 0 <= age_s < 1e12:
        raise Refused(f"an age of {age_s!r} s is not possible", code="bad_age", hint="give seconds from 0 up")
    return round(age_s * 1000)


def held(claim: Claimed | str, token: int | None) -> tuple[str, int | None]:
    if isinstance(claim, Claimed):
        return claim.key, claim.token
    return check_key(claim), token


def blobs_of(stored: Any, blob: bytes | None) -> dict[bytes, bytes] | None:
    return None if blob is None else {stored.sha256: blob}


def ttl_ms_of(ttl_s: float | None) -> int | None:
    if ttl_s is None:
        return None
    if not isinstance(ttl_s, (int, float)) or not 0 < ttl_s < 1e9:
        told = f"{ttl_s:g}" if isinstance(ttl_s, (int, float)) else repr(ttl_s)
        raise Refused(f"a ttl of {told} s is not possible", code="bad_ttl", hint="more than 0 and less than 1e9 seconds (31 years); without a ttl it stays")
    return max(1, round(ttl_s * 1000))


def lease_ms_of(lease_s: float) -> int:
    if not isinstance(lease_s, (int, float)) or not limits.LEASE_MIN_S <= lease_s <= limits.LEASE_MAX_S:
        raise Refused(f"a lease of {lease_s!r} s is not possible", code="bad_lease", hint=f"give {limits.LEASE_MIN_S} to {limits.LEASE_MAX_S:.0f} seconds")
    return round(lease_s * 1000)


def positive(name: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or not 1 <= value < 2**53):
        raise Refused(f"{name}={value!r} is not possible", code="bad_option", hint=f"give {name} a whole number above 0, or none for no limit")
    return value


def request_of(request_id: str | None) -> str | None:
    if request_id is not None and not (isinstance(request_id, str) and 0 < len(request_id) <= limits.REQUEST_ID_CHARS and _is_unicode(request_id)):
        raise Refused(f"a request_id has 1 to {limits.REQUEST_ID_CHARS} characters", code="bad_option", hint="a UUID is a good one")
    return request_id


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


DOOR_REQUEST = "cli:"
"""How a request id begins that a door made for itself, so that a lost answer can be asked for again; it is nobody's to see."""


def shown_request(request_id: str | None) -> str | None:
    """Return a request id as the log shows it: a caller's own."""
    return None if request_id is None or request_id.startswith(DOOR_REQUEST) else request_id


_NAME = re.compile(limits.SESSION_NAME_PATTERN)


def check_session_name(name: str) -> str:
    """Return name where a session can have it. Raises Refused `bad_session_name`."""
    if type(name) is str and _NAME.fullmatch(name):
        return name
    raise Refused(f"{str(name)[:40]!r} cannot name a session", code="bad_session_name", hint=f"use 1 to {limits.SESSION_NAME_CHARS} of A-Z a-z 0-9 _ . : -")


def check_actor(actor: str | None) -> str | None:
    """Return actor where it can be journaled. Raises Refused `bad_actor`."""
    if actor is None or (isinstance(actor, str) and 0 < len(actor) <= limits.ACTOR_CHARS and actor.isprintable()):
        return actor
    raise Refused(f"{str(actor)[:40]!r} cannot name an actor", code="bad_actor", hint=f"use 1 to {limits.ACTOR_CHARS} printable characters")


def is_async(fn: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(fn)
