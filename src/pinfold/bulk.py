"""Making many objects that stay: the garbage collector looks at all of them again and again, and finds nothing."""

from __future__ import annotations

import gc
import os

_off = False
"""Whether a Bulk of this process has the collector switched off now."""


class Bulk:
    """A context in which the cyclic collector does not run, for code that makes no cycles and ends soon.

    The collector belongs to the whole process. Only who switched it off switches it on again: where two threads
    overlap it may come back early, which costs time, but it never stays off, in a child forked meanwhile neither.
    """

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        global _off
        self._was_on = gc.isenabled()
        if self._was_on:
            _off = True
            gc.disable()

    def __exit__(self, *error: object) -> None:
        global _off
        if self._was_on:
            gc.enable()
            _off = False


def _on_again() -> None:
    if _off:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_again)
