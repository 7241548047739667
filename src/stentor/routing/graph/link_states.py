"""Link states: how every broker comes to know the graph.

Each broker states to which neighbors it has links, what they cost, and whatever else all others
have to know of it. The statement is numbered and flooded: a broker that receives one newer than the
one it holds keeps it and passes it on; to one that is older it answers with what it holds. So a
flood ends when all have the newest. When a link comes up, both ends tell each other all they know.
A link is part of the graph if both ends state it; if they disagree about its cost, the higher one
counts.

A broker that starts again counts from the beginning, while others still hold what it said in its
former life. They tell it, as they tell everything; it then continues above the highest number
it hears under its own name. Two lives may have used the same number for different statements; any
fixed order between such statements makes all brokers agree on one, and if that is not the present
one, its subject hears of it.

Statements of brokers that cannot be reached are kept for a while, since they may be right again
when a partition heals. But names of brokers that are gone for good must not pile up: of those
only the latest are kept. To forget one is safe. If its subject can be reached again, there is a
new link on the way, whose ends tell each other all they know; and who passes on an old statement is
told the newer one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from stentor.errors import InvalidConfiguration
from stentor.routing.graph.paths import Edge, edge, order
from stentor.routing.protocol import BrokerId

#: Brokers that cannot be reached whose statements are kept.
UNREACHABLE: Final = 1_000


class LinkState(Struct, frozen=True):
    """What one broker states, as of a number: neighbors with costs, in order."""

    origin: BrokerId
    number: int
    links: tuple[tuple[BrokerId, int], ...]
    #: What else the others have to know of it; nothing that routing looks at.
    about: tuple[Any, ...] = ()

    @property
    def age(self) -> tuple[Any, ...]:
        """Sorts the statements of one broker, the newest last."""
        links = [(order(neighbor), cost) for neighbor, cost in self.links]
        return self.number, links, str(self.about)


class LinkStates:
    """What one broker knows of the graph.

    >>> a, b = LinkStates("a"), LinkStates("b")
    >>> statement = a.linked({"b"})
    >>> b.linked({"a"}).number
    1
    >>> news, answers = b.learn([statement])
    >>> [known.origin for known in news], answers
    (['a'], [])
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
        own = self._known[self._id]
        links = tuple((n, self._costs.get(n, 1)) for n in sorted(neighbors, key=order))
        return self._state(own.number + 1, links, own.about)

    def describe(self, about: tuple[Any, ...]) -> LinkState:
        """State something else about this broker."""
        own = self._known[self._id]
        return self._state(own.number + 1, own.links, about)

    def learn(self, states: Iterable[LinkState]) -> tuple[list[LinkState], list[LinkState]]:
        """Take over what is new: what others must be told, and what is newer than what was said.

        The first is for all but who said it, the second is for who said it.
        """
        news: list[LinkState] = []
        answers: list[LinkState] = []
        for state in states:
            known = self._known.get(state.origin)
            if known is not None and state.age <= known.age:
                if state.age < known.age:
                    answers.append(known)
                continue
            if known is not None and state.origin == self._id:
                state = self._state(state.number + 1, known.links, known.about)
                answers.append(state)
            self._known.pop(state.origin, None)
            self._known[state.origin] = state
            news.append(state)
        return news, answers

    def _state(
        self, number: int, links: tuple[tuple[BrokerId, int], ...], about: tuple[Any, ...]
    ) -> LinkState:
        state = self._known[self._id] = LinkState(self._id, number, links, about)
        return state

    def forget(self, reachable: Collection[BrokerId]) -> None:
        """Keep only the latest statements of brokers that cannot be reached."""
        if len(self._known) > len(reachable) + UNREACHABLE:
            gone = [id for id in self._known if id not in reachable and id != self._id]
            for id in gone[:-UNREACHABLE]:
                del self._known[id]

    def about(self, origin: BrokerId) -> tuple[Any, ...]:
        """What else a broker states."""
        state = self._known.get(origin)
        return () if state is None else state.about

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
