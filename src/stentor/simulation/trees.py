"""Changing simulated trees: links that take the place of others, brokers that join a hierarchy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

from stentor.errors import InvalidConfiguration, InvalidTopology, UnknownStrategy
from stentor.research.trees import CHANGE_MESSAGES, CarryingRouter, Plan
from stentor.routing.protocol import BrokerId
from stentor.routing.tree import Role, TreeRouter
from stentor.simulation import topology
from stentor.simulation.host import Host
from stentor.simulation.links import LinkRoom

#: The ways to replace a link.
REPLACEMENTS: Final = ("strawman", "deferred", "path", "lossless")
#: Numbers of planned changes; a later one has a higher number.
_plans = count(1)


class TreeHost(Host):
    """A host that knows what may happen to trees.

    >>> from stentor.simulation import Network
    >>> net = Network.tree([(1, 2), (2, 3)], planned=True)
    >>> net.replace_link((2, 3), (1, 3))
    >>> net.settle()
    >>> net.links
    [(1, 2), (1, 3)]
    """

    #: The brokers' parents, where there is a hierarchy.
    _parents: dict[BrokerId, BrokerId] | None = None

    def replace_link(
        self,
        old: tuple[BrokerId, BrokerId],
        new: tuple[BrokerId, BrokerId],
        how: str = "lossless",
        *,
        patience: float = 100.0,
    ) -> None:
        """One link of a tree for another (R-07.67).

        `strawman` takes the old link away and adds the new one. `deferred` does so too, but the
        ends of the old link wait for `patience` before they withdraw what came over it. `path`
        changes only the brokers along the cycle that both links close. These three can lose
        notifications on their way. `lossless` works like `path` and loses nothing.
        """
        (a, b), (c, d) = old, new
        check_choice("way to replace a link", how, REPLACEMENTS)
        if {a, b} == {c, d}:
            raise InvalidTopology(f"{a!r}-{b!r} and {c!r}-{d!r} are the same link")
        if self.is_changing:
            raise InvalidConfiguration(
                "the network still takes part in another change; let it settle first"
            )
        remaining = [edge for edge in self.links if set(edge) != {a, b}]
        if len(remaining) == len(self.links):
            raise InvalidTopology(f"there is no link between {a!r} and {b!r}")
        for broker in (a, b, c, d):
            self._check_peer(broker)
        if how != "strawman" and not self.carried:
            raise InvalidConfiguration(
                "brokers take part in a planned change if they were made for it; use "
                f"Network.tree(..., planned=True), or how='strawman' instead of {how!r}"
            )
        if d in topology.reachable(c, remaining):
            raise InvalidTopology(
                f"the link {c!r}-{d!r} does not join the two parts that are left without "
                f"{a!r}-{b!r}"
            )
        if how == "strawman":
            self.disconnect(a, b)
            self.connect(c, d)
        elif how == "deferred":
            self._close(a, b)
            self._lose_lingering(a, b, patience)
            self._lose_lingering(b, a, patience)
            self.connect(c, d)
        else:
            line = topology.path(c, d, self.links)
            cut = min(line.index(a), line.index(b))
            plan = Plan(next(_plans), tuple(line), cut, how == "lossless")
            self._start(plan, c, d)

    def add_broker(self, id: BrokerId, links: Iterable[BrokerId] = ()) -> None:
        """A new broker, linked to others; in a hierarchy, below one.

        One that has failed may come back above those that were below it.
        """
        links = list(links)
        if self._parents is not None and id not in self._brokers:
            above = [broker for broker in links if self._parents.get(broker) != id]
            if len(above) > 1 or not links:
                raise InvalidTopology(f"give the one broker that {id!r} shall be below")
            for parent in above:
                router = self.router(parent)
                assert isinstance(router, TreeRouter)
                if id in self._above(parent):
                    raise InvalidTopology(f"{id!r} cannot be below {parent!r}, which is below it")
                self._parents[id] = parent
                router.place(id, "child")
        super().add_broker(id, links)

    def _above(self, broker: BrokerId) -> list[BrokerId]:
        """The broker's parent, whose parent, and so on."""
        found: list[BrokerId] = []
        while self._parents is not None and broker in self._parents:
            broker = self._parents[broker]
            found.append(broker)
        return found

    def _check_links(
        self, new: list[tuple[BrokerId, BrokerId]], newcomer: BrokerId | None = None
    ) -> None:
        super()._check_links(new, newcomer)
        if self._parents is not None:
            for a, b in new:
                above, below = self._parents.get(a), self._parents.get(b)
                if above != b and below != a and not (above is None and below is None):
                    raise InvalidTopology(
                        f"{a!r} and {b!r} are not one above the other; in a hierarchy a broker is "
                        "linked to its parent only"
                    )

    def _lose_lingering(self, at: BrokerId, neighbor: BrokerId, patience: float) -> None:
        self.apply(at, self._carrying(at).link_down_lingering(neighbor, patience))

    def _start(self, plan: Plan, c: BrokerId, d: BrokerId) -> None:
        self._links[c, d], self._links[d, c] = LinkRoom(), LinkRoom()
        self._carrying(d).link_planned(c)
        router = self._carrying(c)
        router.link_planned(d)
        self.apply(c, router.replace_link(plan))

    @property
    def is_changing(self) -> bool:
        """Whether a planned change of links is under way, or its traces are."""
        routers = [self.router(broker) for broker in self._brokers]
        if any(isinstance(router, CarryingRouter) and router.is_changing for router in routers):
            return True
        messages = (m for channel in self.pending for m in self.on_the_way(*channel))
        return any(isinstance(message, CHANGE_MESSAGES) for message in messages)

    def _check_peer(self, broker: BrokerId) -> None:
        router = self.router(broker)
        known = isinstance(router, TreeRouter | CarryingRouter)
        if not known or router.plane.role != Role():
            raise InvalidConfiguration("only links between the peers of a tree can be replaced so")

    def _carrying(self, broker: BrokerId) -> CarryingRouter:
        router = self.router(broker)
        assert isinstance(router, CarryingRouter)
        return router


def check_choice(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise UnknownStrategy(f"there is no {what} {given!r}; choose one of {', '.join(known)}")
