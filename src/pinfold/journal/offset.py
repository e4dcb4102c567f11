"""A server's clock as read here: the offset to the monotonic clock, held within what each reply proves about it."""

from __future__ import annotations

import time


class ServerClock:
    """Unix time of a server in ms, without a question for each look.

    A reply with the server's time, asked at a and received at b, proves that the offset lies within [t - b, t + 1 - a]. The
    offset is moved only where it lies outside: steady while the clocks agree, right within one round trip when they do not.
    """

    def __init__(self) -> None:
        self._offset_ms: float | None = None

    @property
    def known(self) -> bool:
        return self._offset_ms is not None

    def note(self, server_ms: int, asked_s: float, received_s: float) -> None:
        """Take in one reply. asked_s, received_s: `time.monotonic()` before and after."""
        low, high = server_ms - received_s * 1000, server_ms + 1 - asked_s * 1000
        offset = self._offset_ms
        if offset is None:
            self._offset_ms = (low + high) / 2
        elif offset < low:
            self._offset_ms = low
        elif offset > high:
            self._offset_ms = high

    def now_ms(self) -> int:
        """Return the server's time. Only where `known`."""
        assert self._offset_ms is not None
        return int(time.monotonic() * 1000 + self._offset_ms)
