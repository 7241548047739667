"""Link states: how every broker comes to know the graph.

Each broker states to which neighbors it has links, and what they cost. The statement is numbered
and flooded: a broker that receives one newer than the one it holds keeps it and passes it on, any
other is dropped, so a flood ends when all have it. When a link comes up, both ends tell each other
all they know. A link is part of the graph if both ends state it; if they disagree about its cost,
the higher one counts.

A broker that starts again counts from the beginning, while others still hold what it said in its
former life. They tell it, as they tell everything; it then continues above the highest number
it hears under its own name. Two lives may have used the same number for different statements; any
fixed order between such statements makes all brokers agree on one, and if that is not the present
one, its subject hears of it.

Statements of brokers that cannot be reached are kept: when a partition heals they may be right
again, and only their numbers tell. That is one small record for each broker id ever used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from stentor.errors import InvalidConfiguration
from stentor.routing.graph.paths import Edge, edge, order
from stentor.routing.protocol import BrokerId


class LinkState(Struct, frozen=True):
    """One broker's links, as of a number: neighbors with costs, in order."""

    origin: BrokerId
    number: int
    links: tuple[tuple[BrokerId, int], ...]

    @property
    def age(self) -> tuple[Any, ...]:
        """Sorts the statements of one broker, the newest last."""
        return self.number, [(order(neighbor), cost) for neighbor, cost in self.links]


class LinkStates:
    """What one broker knows of the graph.

    >>> a, b = LinkStates("a"), LinkStates("b")
    >>> statement = a.linked({"b"})
    >>> b.linked({"a"}).number
    1
    >>> [known.origin for known in b.learn([statement])]
    ['a']
    >>> b.edges()
    {('a', 'b'): 1}
    """

    def __init__(self, id: BrokerId, costs: Mapping[BrokerId, int] | None = None) -> None:
        """A link whose cost is not given costs 1."""
        self._id = id
        self._costs = dict(costs or {})
        for neighbor, cost in self._costs.items():
            if type(cost) is not int or cost < 1:
                raise InvalidConfiguration(
                    f"the link from {id!r} to {neighbor!r} costs {cost!r}; a cost is a whole "
                    "number from 1 up, such as a latency in microseconds"
                )
        self._known: dict[BrokerId, LinkState] = {id: LinkState(id, 0, ())}

    def linked(self, neighbors: Iterable[BrokerId]) -> LinkState:
        """State that there are links to these neighbors, and no others."""
        links = tuple((n, self._costs.get(n, 1)) for n in sorted(neighbors, key=order))
        return self._state(self._known[self._id].number + 1, links)

    def learn(self, states: Iterable[LinkState]) -> list[LinkState]:
        """Take over what is new. The answer is what others must be told."""
        news: list[LinkState] = []
        for state in states:
            known = self._known.get(state.origin)
            if known is not None and state.age <= known.age:
                continue
            if known is not None and state.origin == self._id:
                state = self._state(state.number + 1, known.links)
            self._known[state.origin] = state
            news.append(state)
        return news

    def _state(self, number: int, links: tuple[tuple[BrokerId, int], ...]) -> LinkState:
        state = self._known[self._id] = LinkState(self._id, number, links)
        return state

    def all(self) -> tuple[LinkState, ...]:
        """Everything known, for a new neighbor."""
        return tuple(self._known.values())

    def edges(self) -> dict[Edge, int]:
        """The links that both ends state, with their costs."""
        stated = {(s.origin, n): cost for s in self._known.values() for n, cost in s.links}
        return {
            edge(a, b): max(cost, stated[b, a])
            for (a, b), cost in stated.items()
            if (b, a) in stated
        }
