"""What an index is made of: columns by slot, what filters its documents, and the parts of one query's scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinfold.recall.document import Document
from pinfold.recall.lexical import Floats, Gathered
from pinfold.recall.rank import Mask
from pinfold.recall.vectors import Names
from pinfold.state.resting import overlaps


class Filter(msgspec.Struct, frozen=True):
    """Which documents may answer; None: all. Scores do not depend on it. where: called in rank order, as far as needed."""

    ids: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    groups: frozenset[str | None] | None = None
    speakers: frozenset[str] | None = None
    actors: frozenset[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    where: Callable[[Document], bool] | None = None

    def accepts(self, d: Document) -> bool:
        """Return whether a document passes. since_ms is inclusive, until_ms is not; what has no time fails either.

        What says when it held passes where that was at some time between them.
        """
        return (
            (self.ids is None or d.id in self.ids)
            and (self.kinds is None or d.kind in self.kinds)
            and (self.groups is None or d.group in self.groups)
            and (self.speakers is None or (d.speaker or d.role or "") in self.speakers)
            and (self.actors is None or d.actor in self.actors)
            and self._is_timely(d)
            and (self.where is None or self.where(d))
        )

    def _is_timely(self, d: Document) -> bool:
        if self.since_ms is None and self.until_ms is None:
            return True
        held = d.held if d.held is not None else None if d.at_ms is None else (d.at_ms, d.at_ms + 1)
        return held is not None and overlaps(held, self.since_ms, self.until_ms)


EVERYTHING = Filter()


class Named:
    """The ids of some slots, by their place among them, without making a list of them."""

    __slots__ = ("_ids", "_slots")

    def __init__(self, ids: list[str], slots: NDArray[np.int64]) -> None:
        self._ids, self._slots = ids, slots

    def __getitem__(self, place: int, /) -> str:
        return self._ids[int(self._slots[place])]


class Column:
    """A growing array with one value a slot."""

    __slots__ = ("_data", "_empty")

    def __init__(self, dtype: Any, empty: Any) -> None:
        self._data = np.full(64, empty, dtype=dtype)
        self._empty = empty

    def __getitem__(self, slot: int) -> Any:
        return self._data[slot].item()

    def __setitem__(self, slot: int, value: Any) -> None:
        self._reserve(slot)
        self._data[slot] = value

    def put(self, slots: Sequence[int], values: Sequence[Any]) -> None:
        """Set the values of slots; of equal slots the last counts."""
        if slots:
            self._reserve(max(slots))
            self._data[slots] = values

    def _reserve(self, slot: int) -> None:
        if slot >= len(self._data):
            grown = np.full(max(slot + 1, len(self._data) * 3 // 2), self._empty, dtype=self._data.dtype)
            grown[: len(self._data)] = self._data
            self._data = grown

    def upto(self, capacity: int) -> NDArray[Any]:
        """Return the values of the slots below capacity and, last, an empty one: what stands at -1."""
        if capacity >= len(self._data):
            self[capacity] = self._empty
        return self._data[: capacity + 1]


class Direct(NamedTuple):
    """What a query matches by words and grams: float64[slots + 1] each, the last 0, for what is at -1."""

    gathered: Gathered
    lanes: dict[str, Floats]
    shares: dict[str, float]
    scores: Floats

    front: NDArray[np.int64]
    """The slots with the best scores above 0, as many as a pool takes."""
    best: tuple[int, float]
    """The slot that matches best, and the best value in the gram lane: what confidence is measured by."""


class Scored(msgspec.Struct):
    """The named parts of one query's scores. Arrays run over `slots` (ascending): all slots, or the pool of a large store."""

    slots: NDArray[np.int64]
    ids: Names
    total: Floats
    """What ranks; the best is 1."""
    lanes: dict[str, Floats]
    shares: dict[str, float]
    """Lane -> its weight / its maximum over the store."""
    partial: bool
    """Whether slots that match were left out."""
    gains: dict[str, Floats] = {}
    equal: float = 1.0
    grouped: Mask | None = None
    who: Floats | None = None
    scale: float = 1.0
    spread: dict[str, tuple[float, dict[int, float]]] = {}
    note: str = ""
