"""Meetings: how brokers of a rendezvous overlay find each other (`stentor.routing.rendezvous`).

What is published here is noted by event type, and neighbors hear under which keys there is
something. What they say in turn tells feeds from where on to read their streams, once these begin
afresh. The router says with whom there have to be links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stentor.model.codec import Envelope
from stentor.node.agenda import Agenda, Visit
from stentor.node.holdings import Holdings
from stentor.node.log import Log
from stentor.node.parts.groups import Groups
from stentor.node.parts.overlay import Overlay
from stentor.node.parts.routing import Routing
from stentor.node.stock import Stock
from stentor.node.ways import Ways
from stentor.protocol import messages as m
from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.keys import is_held
from stentor.routing.rendezvous.router import RendezvousRouter


class Meetings:
    """Keeps this broker in touch with those that have something for it, or it for them."""

    def __init__(
        self,
        router: RendezvousRouter,
        holdings: Holdings,
        stock: Stock,
        *,
        routing: Routing,
        overlay: Overlay,
        directory: Ways,
        groups: Groups,
        agenda: Agenda,
    ) -> None:
        self._router = router
        self._holdings = holdings
        self._stock = stock
        self._routing = routing
        self._overlay = overlay
        self._directory = directory
        self._groups = groups
        self._agenda = agenda
        #: As the router has said it last, and what followed from that.
        self._visits: frozenset[BrokerId] = frozenset()
        self._visited: tuple[m.Origin, ...] = ()

    def note(self, envelopes: Iterable[Envelope]) -> None:
        """These are about to be written or passed on: name their types before."""
        self._hold(self._holdings.note(envelopes))

    def adopt(self, log: Log) -> None:
        """Answer for the journal of a broker that was removed."""
        self._holdings.adopt(log)

    def _hold(self, keys: list[str]) -> None:
        if keys:
            self._agenda.stir()
            self._routing.tell(self._router.hold(keys))

    @property
    def has_work(self) -> bool:
        """Whether a journal is still to be looked through."""
        return self._holdings.has_work

    def work(self) -> None:
        """Look at some of it."""
        self._hold(self._holdings.work())

    def tell(self) -> None:
        """Say with whom there have to be links."""
        self._router.reach_all(self._groups.some_here)
        visits = self._router.visits
        if visits is self._visits:
            return
        self._visits = visits
        stated = (self._router.about(broker) for broker in sorted(visits, key=str))
        visited = tuple(about[0] for about in stated if about)
        if visited != self._visited:
            self._visited = visited
            self._agenda.add(Visit(visited))

    def types_heard(self, neighbor: str, message: m.Types) -> Iterator[None]:
        """A neighbor has something under other keys than before."""
        self._stock.heard(neighbor, message)
        self._routing.types_heard(neighbor, message)
        if any(is_held(key) and self._router.asks_for(key) for key, _ in message.added):
            for origin in self._directory.behind(neighbor):
                yield from self._overlay.fresh(origin)
