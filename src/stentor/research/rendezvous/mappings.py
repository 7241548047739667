"""Three stateless mappings from subscriptions and events to keys.

A rendezvous works if whoever asks and whoever publishes come to the same place without knowing of
each other. A mapping sends a subscription s to the keys SN(s) and an event e to the keys EN(e), and
all it has to guarantee is the *intersection rule*: if e matches s, SN(s) and EN(e) share a key. It
looks at nothing but the filter or the event itself, so every broker computes the same, and it knows
nothing of brokers: which broker serves a key is another matter (see `key_router`).

Each indexed attribute is divided into cells (see `axes`). For a conjunct, the cells of an attribute
are those that its constraint touches; an attribute that it does not mention has all of them. A
union has the keys of all its conjuncts.

    mapping              subscription                       event
    AttributeSplit       the cells of every attribute       the cell of its first attribute
    KeySpaceSplit        the product of the cells           the one combination of its cells
    SelectiveAttribute   the cells of the narrowest one     the cells of all its attributes

The first stores much and asks one broker. The second stores little if all attributes are narrow,
and multiplies if not. The third stores least and asks a broker for each attribute.

What does not fit is absence (07/T-12): an event without an indexed attribute has no cell on it,
so a filter that accepts such an event would be stored where the event never comes. Whether that can
happen depends on the mapping: KeySpaceSplit needs all indexed attributes, the others only one of
them. A filter that would need the missing cell is refused with `UnsupportedMapping`. With
`catch_all`, it is kept under one more key as well, and events that lack a cell go there. That key
carries all of this load alone, which is why one has to ask for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import product
from typing import Final, Protocol, runtime_checkable

from stentor.errors import InvalidConfiguration, UnsupportedMapping
from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import ANYTHING
from stentor.filters.facts import facts_of
from stentor.matching.protocol import Event
from stentor.research.rendezvous.axes import Axis

#: The key space may have 2 to the power of so many keys: a wide filter is stored under all of them.
MAX_BITS: Final = 16


@runtime_checkable
class KeyMapping(Protocol):
    """What a key rendezvous needs to know of a mapping."""

    @property
    def size(self) -> int:
        """Keys are the numbers from 0 up to this one, which is none."""

    def keys_of_subscription(self, filter: Filter) -> frozenset[int]:
        """SN: the keys under which to keep it; `UnsupportedMapping` if none would do."""

    def keys_of_event(self, notification: Event) -> frozenset[int]:
        """EN: the keys at which to look for subscriptions; one in common with each that matches."""


class _CellMapping(ABC):
    """What the three mappings share: axes, cells, and the key for what has no cell."""

    #: The key for filters and events without a cell, or None if those are refused.
    catch_all: int | None

    def __init__(self, axes: tuple[Axis, ...], cells: int, size: int, catch_all: bool) -> None:
        if cells < 2 or size > 1 << MAX_BITS:
            raise InvalidConfiguration(
                f"{cells} cells for each of {len(axes)} attributes make {size} keys; choose the "
                f"bits so that there are at least 2 cells and at most {1 << MAX_BITS} keys"
            )
        self.axes = axes
        self.cells = cells
        self.catch_all = size if catch_all else None
        self.size = size + catch_all

    def keys_of_subscription(self, filter: Filter) -> frozenset[int]:
        """SN: the keys under which to keep it; `UnsupportedMapping` if none would do."""
        keys: set[int] = set()
        for conjunct in filter.conjuncts:
            if self._can_lack(conjunct):
                if self.catch_all is None:
                    raise self._refusal(filter, conjunct)
                keys.add(self.catch_all)
            keys.update(self._keys(conjunct))
        return frozenset(keys)

    def keys_of_event(self, notification: Event) -> frozenset[int]:
        """EN: the keys at which to look for subscriptions; one in common with each that matches."""
        facts = facts_of(notification, [axis.name for axis in self.axes])
        cells = {
            number: axis.cell(facts[axis.name], self.cells)
            for number, axis in enumerate(self.axes)
            if axis.name in facts
        }
        return frozenset(key for key in self._keys_at(cells) if key is not None)

    @abstractmethod
    def _keys(self, conjunct: Conjunct) -> Iterable[int]:
        """The keys for events that have the attributes which the mapping needs."""

    @abstractmethod
    def _keys_at(self, cells: Mapping[int, int]) -> Iterable[int | None]:
        """The keys for an event with these cells, by the number of the axis."""

    @abstractmethod
    def _can_lack(self, conjunct: Conjunct) -> bool:
        """Whether the conjunct accepts an event that comes to none of its keys."""

    @abstractmethod
    def _refusal(self, filter: Filter, conjunct: Conjunct) -> UnsupportedMapping:
        """What to say about a filter with such a conjunct."""

    def _cells(self, axis: Axis, conjunct: Conjunct) -> list[int]:
        """The cells that the conjunct touches on an axis."""
        spans = axis.spans(conjunct.constraints.get(axis.name, ANYTHING), self.cells)
        return list(dict.fromkeys(cell for low, high in spans for cell in range(low, high + 1)))


class _KeysPerAttribute(_CellMapping):
    """Each attribute has keys of its own, one for each of its cells."""

    def __init__(self, axes: Iterable[Axis], *, bits: int = 6, catch_all: bool = False) -> None:
        """Each attribute has 2 to the power of `bits` cells."""
        axes = check_axes(axes)
        super().__init__(axes, 1 << bits, len(axes) << bits, catch_all)

    def _can_lack(self, conjunct: Conjunct) -> bool:
        return all(accepts_absence(conjunct, axis) for axis in self.axes)

    def _refusal(self, filter: Filter, conjunct: Conjunct) -> UnsupportedMapping:
        names = [axis.name for axis in self.axes]
        return UnsupportedMapping(
            f"the filter {str(filter)!r} also matches events without any of the indexed attributes "
            f"({', '.join(names)}), which have no place in this mapping; add a condition on one "
            f"of them, for example 'exists {names[0]}', or make the mapping with catch_all=True"
        )


class AttributeSplit(_KeysPerAttribute):
    """Kept under the cells of every attribute; an event asks at its first attribute's cell.

    Any attribute of the event would do, because the filter is found under each.

    >>> mapping = AttributeSplit([Axis("x", 0, 8), Axis("y", 0, 8)], bits=2)
    >>> sorted(mapping.keys_of_subscription(Filter("x < 4 and y = 7")))
    [0, 1, 7]
    >>> mapping.keys_of_event({"x": 3, "y": 7}), mapping.keys_of_event({"y": 7})
    (frozenset({1}), frozenset({7}))
    """

    def _keys(self, conjunct: Conjunct) -> Iterable[int]:
        for number, axis in enumerate(self.axes):
            for cell in self._cells(axis, conjunct):
                yield number * self.cells + cell

    def _keys_at(self, cells: Mapping[int, int]) -> Iterable[int | None]:
        for number, cell in cells.items():
            return (number * self.cells + cell,)
        return (self.catch_all,)


class SelectiveAttribute(_KeysPerAttribute):
    """Kept under the narrowest attribute only; an event asks at the cells of all its attributes.

    >>> mapping = SelectiveAttribute([Axis("x", 0, 8), Axis("y", 0, 8)], bits=2)
    >>> mapping.keys_of_subscription(Filter("x < 4 and y = 7"))
    frozenset({7})
    >>> sorted(mapping.keys_of_event({"x": 3, "y": 7}))
    [1, 7]
    """

    def _keys(self, conjunct: Conjunct) -> Iterable[int]:
        # All events that match have a cell on an attribute that must be there. If none must, those
        # that lack the chosen one find the filter at the catch-all.
        numbered = list(enumerate(self.axes))
        required = [(n, axis) for n, axis in numbered if not accepts_absence(conjunct, axis)]
        choices = [(n, self._cells(axis, conjunct)) for n, axis in required or numbered]
        number, cells = min(choices, key=lambda choice: len(choice[1]))
        return (number * self.cells + cell for cell in cells)

    def _keys_at(self, cells: Mapping[int, int]) -> Iterable[int | None]:
        for number, cell in cells.items():
            yield number * self.cells + cell
        if len(cells) < len(self.axes):
            yield self.catch_all


class KeySpaceSplit(_CellMapping):
    """The bits of a key are divided among the attributes: a key is a cell on each of them.

    >>> mapping = KeySpaceSplit([Axis("x", 0, 8), Axis("y", 0, 8)], bits=4)
    >>> sorted(mapping.keys_of_subscription(Filter("x < 4 and y = 7")))
    [3, 7]
    >>> mapping.keys_of_event({"x": 3, "y": 7})
    frozenset({7})
    """

    def __init__(self, axes: Iterable[Axis], *, bits: int = 12, catch_all: bool = False) -> None:
        """A key has so many bits; each attribute gets the same number of them."""
        axes = check_axes(axes)
        share = bits // len(axes)
        super().__init__(axes, 1 << share, 1 << share * len(axes), catch_all)

    def _keys(self, conjunct: Conjunct) -> Iterable[int]:
        return map(self._key, product(*(self._cells(axis, conjunct) for axis in self.axes)))

    def _keys_at(self, cells: Mapping[int, int]) -> Iterable[int | None]:
        if len(cells) < len(self.axes):
            return (self.catch_all,)
        return (self._key(cells.values()),)

    def _key(self, cells: Iterable[int]) -> int:
        return reduce(lambda key, cell: key * self.cells + cell, cells)

    def _can_lack(self, conjunct: Conjunct) -> bool:
        return any(accepts_absence(conjunct, axis) for axis in self.axes)

    def _refusal(self, filter: Filter, conjunct: Conjunct) -> UnsupportedMapping:
        return needs_all(filter, conjunct, self.axes)


def accepts_absence(conjunct: Conjunct, axis: Axis) -> bool:
    """Whether the conjunct accepts an event without the attribute, as far as that one goes."""
    return conjunct.constraints.get(axis.name, ANYTHING).absent


def needs_all(filter: Filter, conjunct: Conjunct, axes: Iterable[Axis]) -> UnsupportedMapping:
    """The refusal of a filter that does without some of the attributes."""
    free = [axis.name for axis in axes if accepts_absence(conjunct, axis)]
    return UnsupportedMapping(
        f"the filter {str(filter)!r} also matches events without the indexed attribute "
        f"{' or '.join(free)}, which have no place in this mapping; add "
        f"'{' and '.join(f'exists {name}' for name in free)}' to it, "
        "or make the mapping with catch_all=True"
    )


def check_axes(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """The axes as given; there must be one at least, and none twice."""
    axes = tuple(axes)
    names = [axis.name for axis in axes]
    if not names or len(set(names)) < len(names):
        raise InvalidConfiguration(
            f"a mapping needs at least one indexed attribute, and each only once; not {names}"
        )
    return axes
