"""Making many objects that stay: the garbage collector looks at all of them again and again, and finds nothing."""

from __future__ import annotations

import gc


class Bulk:
    """A context in which the cyclic collector does not run, for code that makes no cycles and ends soon.

    The collector belongs to the whole process. Only who switched it off switches it on again: where two threads
    overlap it may come back early, which costs time, but it never stays off.
    """

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        if self._was_on:
            gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_on:
            gc.enable()
