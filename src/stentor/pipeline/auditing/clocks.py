"""Vector clocks: what each component knows of, in little memory.

A clock has an entry for every component that somebody has heard of, and says how much of it lies
in the past: a count, because the past holds with one action all earlier ones of the same
component. Components are numbered as they appear, so a clock is a short array, and what is beyond
its end is zero. Arrays are replaced, never changed: publications that have nothing between them
share one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stentor.model import NotificationId

Clock: TypeAlias = NDArray[np.int64]

#: A clock that knows of nobody.
NOTHING: Final[Clock] = np.zeros(0, np.int64)


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

    def number(self, component: str) -> int:
        """Where in a clock its entry is."""
        found = self._numbers.get(component)
        if found is None:
            found = self._numbers[component] = len(self._names)
            self._names.append(component)
        return found

    def of(self, component: str) -> Clock:
        """What it knows of now."""
        return self._known.get(component, NOTHING)

    def learn(self, component: str, past: Clock, source: str, count: int) -> None:
        """From now on it knows of a past, and of so many actions of one component."""
        number = self.number(source)
        known = self.of(component)
        merged = np.zeros(max(len(known), len(past), number + 1), np.int64)
        merged[: len(known)] = known
        np.maximum(merged[: len(past)], past, out=merged[: len(past)])
        merged[number] = max(int(merged[number]), count)
        self._known[component] = merged

    def clock(self, entries: Mapping[str, int]) -> Clock:
        """A clock with these entries."""
        numbers = [self.number(name) for name in entries]
        clock = np.zeros(max(numbers, default=-1) + 1, np.int64)
        clock[numbers] = list(entries.values())
        return clock

    def entries(self, clock: Clock) -> Iterator[tuple[str, int]]:
        """A clock by names, without what is zero."""
        for number in np.flatnonzero(clock).tolist():
            yield self._names[number], int(clock[number])


class Frontier:
    """The largest clock, entry by entry, among those of what one component was notified of."""

    __slots__ = ("_levels", "_whose")

    def __init__(self) -> None:
        self._levels = self._whose = NOTHING

    def advance(self, clock: Clock, whose: int) -> None:
        """Take in the clock of a notification, which has a number."""
        size = len(clock)
        if not size:
            return
        if size > len(self._levels):
            self._grow(size)
        levels = self._levels[:size]
        higher = clock > levels
        self._whose[:size][higher] = whose
        np.maximum(levels, clock, out=levels)

    def raise_to(self, level: int, number: int, whose: int) -> None:
        """The same for one entry alone."""
        if level > self.level(number):
            if number >= len(self._levels):
                self._grow(number + 1)
            self._levels[number] = level
            self._whose[number] = whose

    def _grow(self, size: int) -> None:
        """At least to twice the size, so that growing costs little."""
        more = np.zeros(2 * size - len(self._levels), np.int64)
        self._levels = np.concatenate((self._levels, more))
        self._whose = np.concatenate((self._whose, more))

    def level(self, number: int) -> int:
        return int(self._levels[number]) if number < len(self._levels) else 0

    def whose(self, number: int) -> int:
        """Which notification an entry comes from."""
        return int(self._whose[number])


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
