"""Advertisements: what is offered anywhere, and what is asked for of it here."""

from __future__ import annotations

from typing import Any

from stentor.errors import (
    NotPermitted,
    Overloaded,
    ProtocolError,
)
from stentor.filters import Filter
from stentor.node.actions import (
    ToClient,
)
from stentor.node.hooks import VETO
from stentor.node.reading import received
from stentor.node.service.overlay import Overlay, read_filters
from stentor.node.session import Session
from stentor.protocol import messages as m
from stentor.routing.protocol import FilterId
from stentor.routing.table import Destination


class Offers(Overlay):
    """Keeps what is offered and what is asked for of it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.router.plane.subscriptions.watch(self._entry)

    def _advertise(self, session: Session, message: m.Advertise) -> None:
        if message.number in session.advertisements:
            raise ProtocolError(f"the number {message.number} is in use by another advertisement")
        if len(session.advertisements) >= self._max_subscriptions:
            raise Overloaded(
                f"{session.name!r} has {self._max_subscriptions} advertisements, the most that "
                "this broker allows to one client"
            )
        filter = received(message.filter)
        # What others ask for is told only to those who may answer it.
        permitted = session.may_advertise
        if message.demand and permitted is not None and not permitted(filter):
            raise NotPermitted(
                f"{session.name!r} may not publish all of {str(filter) or 'everything'!r}, so it "
                "may not know who asks for that; advertise less, or have the grant widened"
            )
        session.advertisements[message.number] = filter
        id = FilterId(f"{session.name}@{session.id}", message.number)
        self._send_offers(self._offers.subscribe(id, filter))
        self._to_client(session, m.Done(message.number))
        if message.demand:
            table = self.router.plane.subscriptions.table
            asked = [row.filter for row in table.rows()]
            self._demands.watch((session.id, message.number), filter, asked)

    def _unadvertise_asked(self, session: Session, message: m.Unadvertise) -> None:
        if message.number in session.advertisements:
            self._unadvertise(session, message.number)
        self._to_client(session, m.Done(message.number))

    def _unadvertise(self, session: Session, number: int) -> None:
        del session.advertisements[number]
        self._demands.forget((session.id, number))
        id = FilterId(f"{session.name}@{session.id}", number)
        self._send_offers(self._offers.unsubscribe(id))

    def offers(self) -> list[Filter]:
        """What is advertised anywhere, as far as it is not covered by something else."""
        return [row.filter for row in self._offers.plane.subscriptions.table.rows()]

    def _advertisements_heard(self, neighbor: str, message: m.Advertisements) -> None:
        if self.hooks.watches("admin_in"):
            answer = self.hooks.run("admin_in", message)
            if answer is VETO:
                return
            message = answer
        update = read_filters(message)
        if neighbor in self._borders:
            update = self._borders[neighbor].offered.update(update)
        self._send_offers(self._offers.receive(neighbor, update))

    def _entry(self, destination: Destination, filter: Filter) -> None:
        """An entry of the routing table has come or gone."""
        if self._demands:
            there = bool(self.router.plane.subscriptions.table.owners(filter))
            self._demands.entry(filter, there=there)

    def _tell_demand(self) -> None:
        for (id, number), filters in self._demands.changes(self._now, self._blocked):
            self._out.append(ToClient(id, m.Demand(number, filters)))
