"""Ways through a network: in which order places are reached from one, and what leads where."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Place = TypeVar("Place", bound=Hashable)


def beside(links: Iterable[tuple[Place, Place]]) -> dict[Place, list[Place]]:
    """Each place's neighbors.

    >>> beside([(1, 2), (2, 3)])
    {1: [2], 2: [1, 3], 3: [2]}
    """
    found: dict[Place, list[Place]] = {}
    for a, b in links:
        found.setdefault(a, []).append(b)
        found.setdefault(b, []).append(a)
    return found


def outwards(near: Mapping[Place, Sequence[Place]], start: Place) -> dict[Place, Place]:
    """All that can be reached, over the fewest links, with the place before it; nearest first.

    The start is reached from itself.

    >>> outwards({1: [2, 3], 2: [1, 3], 3: [1, 2]}, 1)
    {1: 1, 2: 1, 3: 1}
    """
    before = {start: start}
    order = [start]
    for place in order:
        for neighbor in near.get(place, ()):
            if neighbor not in before:
                before[neighbor] = place
                order.append(neighbor)
    return before


def connects(near: Mapping[Place, Sequence[Place]], places: Collection[Place]) -> bool:
    """Whether there are ways between all these places, and to no others.

    >>> connects(beside([(1, 2)]), [1, 2]), connects(beside([(1, 2)]), [1, 2, 3])
    (True, False)
    """
    return bool(places) and outwards(near, next(iter(places))).keys() == set(places)


def leading(before: Mapping[Place, Place], wanted: Iterable[Place]) -> set[Place]:
    """The wanted places, and all on the way to one of them.

    >>> sorted(leading({1: 1, 2: 1, 3: 2, 4: 2}, [3]))
    [1, 2, 3]
    """
    found: set[Place] = set()
    for place in wanted:
        while place not in found:
            found.add(place)
            place = before[place]
    return found
