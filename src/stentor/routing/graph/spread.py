"""How the filters of each origin spread over the graph, and how they are taken back.

What every broker should hold is a function of the graph and of what the origins announce: broker B
holds of origin O what the neighbor towards O holds of it, and tells its children in the tree of O.
`Spread` keeps a broker's part of this up to date. For each neighbor it remembers what that one told
of each origin (`held`), and what that one was told (`sent`); whenever either side of the function
changes, it sends the difference. Links are reliable and in order while they are up, and a link that
goes down takes `held` and `sent` with it; so on every link the two ends agree, once messages have
arrived.

Therefore nothing has to be repaired. When a tree changes, the old parent takes back what it told
and the new one tells it. When an origin cannot be reached any more, it is in nobody's tree, and
everybody takes back what it said. A filter that was withdrawn cannot come back (03, trap 16): a
broker passes on only what the neighbor towards the origin told it, and once all know the same graph
the ways towards an origin have no cycle in which a filter could keep itself alive. Until then a
cycle can last no longer than the link states are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias

from stentor.filters import Filter
from stentor.routing.graph.messages import Entry
from stentor.routing.graph.paths import order
from stentor.routing.messages import Update
from stentor.routing.protocol import BrokerId, FilterId, Outputs, Send

#: The filters of one origin, by the numbers it gave them.
Filters: TypeAlias = dict[int, Filter]
#: Told by or to one neighbor: filters by origin.
Told: TypeAlias = dict[BrokerId, Filters]


class Spread:
    """What one broker was told and has told of the filters of all origins."""

    def __init__(
        self,
        id: BrokerId,
        message: type[Update],
        towards: Callable[[BrokerId], BrokerId | None],
        targets: Callable[[BrokerId, Filter], Collection[BrokerId]],
    ) -> None:
        """`towards` is the neighbor on the way to an origin, or the broker itself.

        `targets` are the children in the origin's tree that are to be told of the filter.
        """
        self._id = id
        self._message = message
        self._towards = towards
        self._targets = targets
        self._held: dict[BrokerId, Told] = {id: {}}
        self._sent: dict[BrokerId, Told] = {}

    # -- links

    def link_up(self, neighbor: BrokerId) -> None:
        self._held[neighbor] = {}
        self._sent[neighbor] = {}

    def link_down(self, neighbor: BrokerId) -> Told:
        """Forget the neighbor. The answer is what it had told."""
        del self._sent[neighbor]
        return self._held.pop(neighbor)

    # -- changes

    def update(
        self, sender: BrokerId, origin: BrokerId, add: Iterable[Entry], remove: Iterable[int]
    ) -> tuple[list[Entry], list[Entry]]:
        """Note what a neighbor says, or the broker itself. The answer is what came and went."""
        told = self._held[sender]
        filters = told.setdefault(origin, {})
        went = [(number, filters.pop(number)) for number in remove if number in filters]
        came = [(number, filter) for number, filter in add if number not in filters]
        filters.update(came)
        if not filters:
            del told[origin]
        return came, went

    def tell(self, origin: BrokerId, numbers: Iterable[int] | None = None) -> Outputs:
        """Tell each neighbor how these filters of an origin, or all, differ from what it knows."""
        towards = self._towards(origin)
        source = {} if towards is None else self._held[towards].get(origin, {})
        if numbers is None:
            sent = (told.get(origin, {}) for told in self._sent.values())
            numbers = set(source).union(*sent)
        changes: dict[BrokerId, tuple[list[Entry], list[int]]] = {n: ([], []) for n in self._sent}
        for number in sorted(numbers):
            filter = source.get(number)
            targets = () if filter is None else self._targets(origin, filter)
            for neighbor, (add, remove) in changes.items():
                known = self._sent[neighbor].get(origin, {}).get(number)
                wanted = filter if neighbor in targets else None
                if known is not None and known != wanted:
                    remove.append(number)
                if wanted is not None and known != wanted:
                    add.append((number, wanted))
        outputs: Outputs = []
        for neighbor in sorted(changes, key=order):
            add, remove = changes[neighbor]
            if add or remove:
                self._note(neighbor, origin, add, remove)
                added = tuple((known_as(origin, number), filter) for number, filter in add)
                removed = tuple(known_as(origin, number) for number in remove)
                outputs.append(Send(neighbor, self._message(added, removed)))
        return outputs

    def _note(
        self, neighbor: BrokerId, origin: BrokerId, add: list[Entry], remove: list[int]
    ) -> None:
        filters = self._sent[neighbor].setdefault(origin, {})
        for number in remove:
            del filters[number]
        filters.update(add)
        if not filters:
            del self._sent[neighbor][origin]

    # -- questions

    def has_told(self, neighbor: BrokerId, origin: BrokerId, number: int) -> bool:
        """Whether the neighbor was told of this filter."""
        return number in self._sent.get(neighbor, {}).get(origin, {})

    def origins(self) -> list[BrokerId]:
        """All that the broker was told of, or told of, in order."""
        found = {o for told in (*self._held.values(), *self._sent.values()) for o in told}
        return sorted(found, key=order)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any origin, and nobody was told anything."""
        return not self.origins()

    def remote(self) -> int:
        """How many filters neighbors told of."""
        others = (told for sender, told in self._held.items() if sender != self._id)
        return sum(len(filters) for told in others for filters in told.values())


def known_as(origin: BrokerId, number: int) -> FilterId:
    """By what all brokers know a filter of an origin."""
    return FilterId(origin, number)  # type: ignore[arg-type]  # brokers of a test have numbers
