"""Coordinates on ranked axes: from a value to its place among the constants of a segment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import repeat
from math import nan
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stentor.filters.constraint import comparable
from stentor.matching.index.axes import MEASURED, OF_STRINGS, Axis, measure, numeric, seen_on
from stentor.matching.index.substrings import Substrings

if TYPE_CHECKING:
    from stentor.matching.index.elements import Conditions


class Ranking:
    """The constants of one ranked axis: from value to coordinate."""

    __slots__ = ("_cache", "constants", "elements", "ordered", "places", "substrings")

    #: This many values that are not constants are remembered with their coordinates.
    CACHE = 65_536

    def __init__(self, axis: Axis, constants: Sequence[Any], ordered: bool) -> None:
        self.constants = constants
        self.ordered = ordered
        #: On an axis of parts, what finds them.
        self.substrings = Substrings(constants) if axis.kind == "part" else None
        #: On an axis of elements, what finds the conditions that they satisfy.
        self.elements = _conditions(constants) if axis.kind == "element" else None
        self.places: dict[Any, float] = {}
        self._cache: dict[Any, float] = {}
        for i in range(0, len(constants), 16_384):  # in portions: other threads get their turn
            portion = constants[i : i + 16_384]
            odd = map(float, range(2 * i + 1, 2 * (i + len(portion)), 2))
            self.places.update(zip(portion, odd, strict=True))

    def __call__(self, value: Any) -> float:
        place = self.places.get(value)
        if place is not None:
            return place
        return self._between(value) if self.ordered else nan

    def of_all(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """The coordinates of many values, NaN for None."""
        if not self.ordered:
            return np.array(list(map(self.places.get, values, repeat(nan))), np.float64)
        found = list(map(self.places.get, values))
        if None in found:
            for i, (place, value) in enumerate(zip(found, values, strict=True)):
                if place is None and value is not None:
                    found[i] = self._between(value)
        return np.array(found, np.float64)

    def _between(self, value: Any) -> float:
        """The coordinate of a value that is no constant.

        It matters only on an axis with ranges; where there are only equalities, any value that is
        no constant may as well be absent.
        """
        place = self._cache.get(value)
        if place is None:
            if len(self._cache) >= self.CACHE:
                self._cache.clear()
            place = self._cache[value] = 2.0 * bisect_left(self.constants, value)
        return place


def _conditions(constants: Sequence[Any]) -> Conditions:
    from stentor.matching.index.elements import SettledConditions  # which is made of segments

    return SettledConditions(constants)


class Coordinates(Protocol):
    """From values to coordinates on a ranked axis, of which a notification may have several."""

    @property
    def places(self) -> dict[Any, float]:
        """The coordinate of each constant."""

    @property
    def substrings(self) -> Substrings | None:
        """On an axis of parts, what finds them."""

    @property
    def elements(self) -> Conditions | None:
        """On an axis of elements, what finds the conditions that they satisfy."""

    def __call__(self, value: Any) -> float: ...

    def of_all(self, values: Sequence[Any]) -> NDArray[np.float64]: ...


#: A type, a column of the matrix of points, and the function that gives the coordinate.
Reader = tuple[str, int, Callable[[Any], float]]


def reader_of(axis: Axis, column: int, ranking: Coordinates | None) -> Reader:
    """How the column of an axis is read from a value; the type is empty if it does not matter."""
    if axis.kind == "present":
        return "", column, lambda value: 1.0
    if axis.kind == "missing":
        return "", column, lambda value: nan
    return axis.value_type, column, coordinate_on(axis, ranking)


def coordinate_on(axis: Axis, ranking: Coordinates | None) -> Callable[[Any], float]:
    """The function from a value of the axis' type to its coordinate."""
    if axis.kind in OF_STRINGS:
        assert ranking is not None

        def derived(value: str) -> float:
            seen = seen_on(axis, value)
            return nan if seen is None else ranking(seen)

        return derived
    if ranking is not None:
        if axis.kind in ("string", "bytes"):
            return ranking
        kind = axis.value_type
        if kind == "number":
            return ranking
        if axis.kind == "far":
            return lambda value: ranking(numeric(kind, value))
        return lambda value: ranking(comparable(kind, value))
    if axis.kind == "number":
        return lambda value: float(value + 0.0)  # -0.0 would hash differently
    if axis.kind in MEASURED:
        return lambda value: measure(axis.kind, value) + 0.0
    return lambda value: 1.0
