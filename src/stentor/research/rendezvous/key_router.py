"""Rendezvous by keys: a mapping makes keys of filters and events, an assignment gives them brokers.

The mapping (see `mappings`) never changes, so all that a change of brokers can do is give keys to
other brokers. How many depends on the assignment:

    Ring        every broker stands at several places of a circle and serves the keys from there
                back to the place before. Who joins takes keys from others and moves no other key
    Partition   the key space is cut into equal intervals, one for each broker. Neighboring keys
                have the same broker, so a narrow range has few homes, but each join moves the cuts
    Modulo      key mod N; a different N is a different broker for nearly every key (07/T-12)

An assignment is made anew from the set of brokers, so all who know the same set agree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.rendezvous.direct import DirectRendezvousRouter
from stentor.research.rendezvous.mappings import KeyMapping
from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.pastry import key_of, number_of

#: Places of each broker on the circle; more of them share the keys more evenly.
PLACES: Final = 32


class Assignment(Protocol):
    """Which broker serves a key."""

    def owner(self, key: int) -> BrokerId: ...


class Ring:
    """Consistent hashing: the broker at the next place on the circle serves the key.

    >>> ring, larger = Ring(["a", "b", "c"]), Ring(["a", "b", "c", "d"])
    >>> moved = [key for key in range(1000) if ring.owner(key) != larger.owner(key)]
    >>> {larger.owner(key) for key in moved}
    {'d'}
    """

    def __init__(self, brokers: Iterable[BrokerId]) -> None:
        places = sorted(
            (key_of(f"{number_of(broker)}/{i}"), i, broker)
            for broker in _in_order(brokers)
            for i in range(PLACES)
        )
        self._places = [place for place, _, _ in places]
        self._owners = [broker for _, _, broker in places]

    def owner(self, key: int) -> BrokerId:
        i = bisect_left(self._places, key_of(str(key)))
        return self._owners[i % len(self._owners)]


class Partition:
    """A static partition: equal intervals of the keys from 0 up to `keys`, in order of ids.

    >>> halves = Partition(["a", "b"], keys=10)
    >>> [halves.owner(key) for key in (0, 4, 5, 9)]
    ['a', 'a', 'b', 'b']
    """

    def __init__(self, brokers: Iterable[BrokerId], keys: int) -> None:
        self._brokers = _in_order(brokers)
        self._keys = keys

    def owner(self, key: int) -> BrokerId:
        return self._brokers[key * len(self._brokers) // self._keys]


class Modulo:
    """The remainder of the key by the number of brokers, in order of ids.

    >>> [Modulo(range(10)).owner(x * x) for x in range(6)]
    [0, 1, 4, 9, 6, 5]
    """

    def __init__(self, brokers: Iterable[BrokerId]) -> None:
        self._brokers = _in_order(brokers)

    def owner(self, key: int) -> BrokerId:
        return self._brokers[key % len(self._brokers)]


def share_moved(before: Assignment, after: Assignment, keys: Iterable[int]) -> float:
    """The share of the keys that another broker serves after than before.

    >>> share_moved(Modulo(range(10)), Modulo(range(11)), range(110))
    0.9090909090909091
    """
    moves = [before.owner(key) != after.owner(key) for key in keys]
    return sum(moves) / len(moves)


class KeyPlacement:
    """The brokers that serve the keys of filters and events."""

    def __init__(self, mapping: KeyMapping, assignment: Assignment) -> None:
        self.mapping = mapping
        self.assignment = assignment

    def homes(self, filter: Filter) -> list[BrokerId]:
        return self._owners(self.mapping.keys_of_subscription(filter))

    def entries(self, notification: Notification) -> list[BrokerId]:
        return self._owners(self.mapping.keys_of_event(notification))

    def onward(self, broker: BrokerId, notification: Notification) -> tuple[()]:
        """Nowhere: all rendezvous hear of the event from its publisher's broker."""
        return ()

    def _owners(self, keys: Iterable[int]) -> list[BrokerId]:
        """Each broker once, even if it serves several of the keys."""
        return list(dict.fromkeys(self.assignment.owner(key) for key in sorted(keys)))


class KeyRendezvousRouter(DirectRendezvousRouter):
    """A router that keeps subscriptions under keys.

    >>> from stentor.routing.protocol import FilterId
    >>> from stentor.research.rendezvous.axes import Axis
    >>> from stentor.research.rendezvous.mappings import SelectiveAttribute
    >>> mapping = SelectiveAttribute([Axis("x", 0, 2)], bits=1)
    >>> router = KeyRendezvousRouter("n2", mapping, lambda brokers: Partition(brokers, keys=2))
    >>> router.link_up("n1")
    []
    >>> [send.to for send in router.subscribe(FilterId("ann", 1), Filter("x < 1"))]
    ['n1']
    """

    def __init__(
        self,
        id: BrokerId,
        mapping: KeyMapping,
        assignment: Callable[[list[BrokerId]], Assignment] = Ring,
    ) -> None:
        """`assignment` gives keys to a set of brokers, whatever their order."""
        super().__init__(id, lambda brokers: KeyPlacement(mapping, assignment(brokers)))
        self.mapping = mapping


def _in_order(brokers: Iterable[BrokerId]) -> list[BrokerId]:
    """Numbers first, then names; there must be at least one broker."""
    ordered = sorted(set(brokers), key=lambda broker: (isinstance(broker, str), broker))
    if not ordered:
        raise InvalidConfiguration("keys cannot be given to no broker at all; name at least one")
    return ordered
