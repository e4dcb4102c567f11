"""Whether a recorded history of calls can be explained by one order of instants: the check behind "linearizable".

A history is a list of calls on one object, each with when it began and ended by one clock. It is linearizable if every call
can be given an instant between the two so that the calls, one after another, give the results that were seen. Search after
Wing and Gong (Testing and verifying concurrent objects, 1993), with Lowe's memory of what was tried. Exponential at worst:
meant for a few hundred calls with a handful at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True):
    """One call: what was asked, what came of it, when. ended: None where nobody knows, it may have happened or not."""

    asked: Hashable
    answered: Hashable
    began: float
    ended: float | None


Step = Callable[[Any, Hashable], "tuple[Any, Hashable] | None"]
"""(state, asked) -> (state after, answer): the object as it should be, one call after another."""


def explains(history: Iterable[Call], step: Step, first: Hashable) -> bool:
    """Return whether one order of instants explains the history. step gets and gives hashable states."""
    calls = sorted(history, key=lambda call: call.began)
    known = frozenset(place for place, call in enumerate(calls) if call.ended is not None)
    tried: set[tuple[frozenset[int], Hashable]] = set()
    stack: list[tuple[frozenset[int], Hashable]] = [(frozenset(), first)]
    while stack:
        done, state = stack.pop()
        if known <= done:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        deadline = min(call.ended for place, call in enumerate(calls) if place not in done and call.ended is not None)
        for place, call in enumerate(calls):
            if call.began > deadline:
                break  # it began after another had ended that is not placed yet
            if place in done:
                continue
            stepped = step(state, call.asked)
            if stepped is not None and (call.ended is None or stepped[1] == call.answered):
                stack.append((done | {place}, stepped[0]))
    return False


class Recorder:
    """Records calls of several threads as a history."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.history: list[Call] = []

    def call(self, asked: Hashable, run: Callable[[], Hashable], unknown: type[BaseException] | tuple[type[BaseException], ...] = ()) -> Hashable:
        """Run a call and record it; an exception among unknown is recorded as a call that may have happened."""
        began = self._clock()
        ended: float | None = None
        answered: Hashable = None
        try:
            answered = run()
            ended = self._clock()
        except unknown:
            pass
        with self._lock:
            self.history.append(Call(asked, answered, began, ended))
        return answered


# --- the objects --------------------------------------------------------------------------------------------------


def register(state: Any, asked: Any) -> tuple[Any, Hashable] | None:
    """Step of a register: ("read",) -> value, ("cas", old, new) -> whether it stood at old."""
    if asked[0] == "read":
        return state, state
    _, old, new = asked
    return (new, True) if state == old else (state, False)


def claimable(state: Any, asked: Any) -> tuple[Any, Hashable] | None:
    """Step of one key: its state is ("free",), ("claimed", who) or ("stored", value).

    ("claim", who) -> "won", "pending" or ("hit", value); ("fulfil", who, value) and ("release", who) -> whether who held it;
    ("peek",) -> "miss", "pending" or ("hit", value).
    """
    verb = asked[0]
    told = {"free": "miss", "claimed": "pending", "stored": ("hit", state[-1])}[state[0]]
    if verb == "peek":
        return state, told
    if verb == "claim":
        return (("claimed", asked[1]), "won") if state[0] == "free" else (state, told)
    if state != ("claimed", asked[1]):
        return state, False
    return (("stored", asked[2]) if verb == "fulfil" else ("free",)), True
