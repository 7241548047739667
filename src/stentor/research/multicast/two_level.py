"""Two levels: broadcast inside local networks, connections between them (07/O7).

Each local network has a router daemon. A notification is broadcast where it is published, if
anybody there wants it or if it has to leave: then the network's daemon hears it and passes it on,
daemon to daemon, along the tree of shortest ways to those networks in which somebody wants it.
Their daemons broadcast it in turn. The daemons know all networks, all connections and all
interests, so that the tree is always computed from what holds now. A broadcast reaches whole
networks, and the hosts in them must match again (07/T-15).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from stentor.errors import DuplicateBroker, InvalidTopology
from stentor.research.multicast.schemes import Multicast, Plan, others
from stentor.research.multicast.ways import beside, connects, leading, outwards
from stentor.routing.protocol import BrokerId

LanId: TypeAlias = int | str


class TwoLevel:
    """Local networks, each with its members, the router daemon first, and connections.

    >>> scheme = TwoLevel({"A": (1, 2), "B": (3,), "C": (4, 5)}, [("A", "B"), ("B", "C")])
    >>> [(send.sender, send.receivers) for send in scheme.plan(2, [5]).sends]
    [(2, (1,)), (1, (3,)), (3, (4,)), (4, (5,))]
    """

    def __init__(
        self,
        lans: Mapping[LanId, Iterable[BrokerId]],
        links: Iterable[tuple[LanId, LanId]] = (),
    ) -> None:
        self._lans = {lan: tuple(members) for lan, members in lans.items()}
        self._lan_of: dict[BrokerId, LanId] = {}
        for lan, members in self._lans.items():
            if not members:
                raise InvalidTopology(f"the network {lan!r} has no router daemon")
            for member in members:
                if self._lan_of.setdefault(member, lan) != lan or members.count(member) > 1:
                    raise DuplicateBroker(f"the broker {member!r} is given twice; ids must differ")
        self._beside = beside(links)
        if not connects(self._beside, self._lans):
            raise InvalidTopology("all local networks, and only these, must be connected")

    @property
    def count(self) -> int:
        """Each local network is one group."""
        return len(self._lans)

    def plan(self, sender: BrokerId, interested: Iterable[BrokerId]) -> Plan:
        wanted = others(sender, interested, self._lan_of.keys())
        concerned = {self._lan_of[broker] for broker in wanted}
        home = self._lan_of[sender]
        before = outwards(self._beside, home)
        ways = leading(before, concerned - {home})
        sends = []
        if home in concerned or (ways and sender != self._daemon(home)):
            sends.append(Multicast(sender, self._lans[home]))
        for lan, previous in before.items():
            if lan in ways and lan != home:
                daemon = self._daemon(lan)
                sends.append(Multicast(self._daemon(previous), (daemon,)))
                if wanted.intersection(self._lans[lan][1:]):
                    sends.append(Multicast(daemon, self._lans[lan]))
        return Plan(tuple(sends), wanted)

    def _daemon(self, lan: LanId) -> BrokerId:
        return self._lans[lan][0]
