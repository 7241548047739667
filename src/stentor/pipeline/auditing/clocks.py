"""Vector clocks: what each component knows of, in little memory.

A clock has an entry for every component that somebody has heard of, and says how much of it lies
in the past: a number, because the past holds with one action all earlier ones of the same
component. The number may be a count or a position. Components are numbered as they appear, so a
clock is a short array, and nothing is known of what is beyond its end. Arrays are replaced, never
changed: publications that have nothing between them share one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stentor.model import NotificationId

Clock: TypeAlias = NDArray[np.int64]

#: A clock that knows of nobody, and the entry of one that is not known.
NOTHING: Final[Clock] = np.empty(0, np.int64)
_UNKNOWN: Final = np.iinfo(np.int64).min


class VectorClocks:
    """What all components of one run know of.

    >>> clocks = VectorClocks()
    >>> clocks.learn("b", NOTHING, "a", 3)
    >>> clocks.learn("c", clocks.of("b"), "b", 1)
    >>> dict(clocks.entries(clocks.of("c")))
    {'a': 3, 'b': 1}
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._known: dict[str, Clock] = {}

    def of(self, component: str) -> Clock:
        """What it knows of now."""
        return self._known.get(component, NOTHING)

    def learn(self, component: str, past: Clock, source: str, level: int) -> None:
        """From now on it knows of a past, and of one component's actions up to a number."""
        number = self._numbers.get(source)
        if number is None:
            number = self._numbers[source] = len(self._names)
            self._names.append(source)
        known = self.of(component)
        merged = np.full(max(len(known), len(past), number + 1), _UNKNOWN)
        merged[: len(known)] = known
        np.maximum(merged[: len(past)], past, out=merged[: len(past)])
        merged[number] = max(int(merged[number]), level)
        self._known[component] = merged

    def entries(self, clock: Clock) -> Iterator[tuple[str, int]]:
        """A clock by names, as far as it knows them."""
        for number in np.flatnonzero(clock != _UNKNOWN).tolist():
            yield self._names[number], int(clock[number])


class Clocks:
    """For a recorder: stamps publications as they happen.

    >>> clocks = Clocks()
    >>> first, answer = NotificationId("a", 0, 0), NotificationId("b", 0, 0)
    >>> clocks.publish("a", first)
    {}
    >>> clocks.deliver("b", first)
    >>> clocks.publish("b", answer)
    {'a': 1}
    """

    def __init__(self) -> None:
        self._heard = VectorClocks()
        self._published: dict[str, int] = {}
        self._stamps: dict[NotificationId, tuple[str, int, Clock]] = {}
        self._receivers: dict[NotificationId, set[str]] = {}

    def publish(self, component: str, id: NotificationId) -> dict[str, int]:
        """What lies in the past of this publication."""
        heard = self._heard.of(component)
        before = self._published.get(component, 0)
        past = dict(self._heard.entries(heard))
        past.pop(component, None)
        if before:
            past[component] = before
        if id not in self._stamps:
            self._published[component] = before + 1
            self._stamps[id] = (component, before + 1, heard)
            self._receivers[id] = set()
        return past

    def deliver(self, component: str, id: NotificationId) -> None:
        """What was published lies in the past of all that the component publishes from now on."""
        stamp = self._stamps.get(id)
        if stamp is not None and component not in self._receivers[id]:
            self._receivers[id].add(component)
            publisher, serial, heard = stamp
            self._heard.learn(component, heard, publisher, serial)
