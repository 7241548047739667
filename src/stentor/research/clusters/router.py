"""`CellRouter`: a broker's part in a tree of cells (07/O6).

It wraps a router for trees and shows it the tree of `Cells`: the wrapped router is told of a link
when the link carries the tree, and that it is gone when it no longer does. When the head of a
cell fails, the next member takes over by getting the links that the head had. The wrapped routers
at both ends of a new link exchange what they know as over any new link, and everything else is
their own business: whatever routes on a tree, with any strategy, routes on cells.

The two ends of a link see failures at different times. So a link carries the tree only while both
ends want it to, and they agree on since when. An end that begins to want the link says `Join` with
a new number, one that no longer does says `Leave`. An end that wants the link and has the other's
`Join` says `Start` with the number in it, and all that follows is said to the end that joined with
this number. If that one has left and joined again since, it does not listen until it hears `Start`
with its present number. Thus each wrapped router sees a link that comes up empty, at both ends, and
of which nothing arrives after it went down.

What it survives: in each cell all members but one may fail. Once all others know, deliveries are
exact again. What is on its way through a head while another takes its place is lost, as with any
broker that fails; this includes a former head that comes back and takes its place again. A failed
broker is one that has lost all its links; if a single link breaks between two brokers that live
on, the host has to take one of them for failed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.clusters.cells import Cells
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    FilterId,
    Kind,
    Message,
    Outputs,
    Router,
    Send,
    TableSize,
)


class Join(Message, frozen=True):
    """The sender wants this link to carry the tree."""

    kind: ClassVar[Kind] = "control"
    number: int


class Leave(Message, frozen=True):
    """It no longer does."""

    kind: ClassVar[Kind] = "control"


class Start(Message, frozen=True):
    """What follows is said to the receiver as it joined with this number."""

    kind: ClassVar[Kind] = "control"
    number: int


@dataclass
class _Link:
    """A link that is there, and whether it carries the tree."""

    #: How often this end joined; the present number while it wants the link.
    joined: int = 0
    wanted: bool = False
    #: The number with which the other end joined; None if it does not want the link.
    theirs: int | None = None
    #: Whether the other end speaks to this one as it joined last.
    listening: bool = False

    @property
    def carries(self) -> bool:
        return self.wanted and self.theirs is not None


class CellRouter:
    """A member of a cell, around a router for trees.

    >>> from stentor.research.trees import CarryingRouter
    >>> cells = Cells({"east": (1, 2), "west": (3, 4)}, [("east", "west")])
    >>> router = CellRouter(CarryingRouter(2), cells)
    >>> router.link_up(1)
    [Send(to=1, message=Join(number=1))]
    >>> router.link_up(3)
    []
    >>> router.link_down(1)
    [Send(to=3, message=Join(number=1))]
    """

    def __init__(self, inner: Router, cells: Cells) -> None:
        cells.cell_of(inner.id)
        self._inner = inner
        self._cells = cells
        self._links: dict[BrokerId, _Link] = {}
        #: Messages of the wrapped routers that came over a link after it had carried the tree.
        self.unheard = 0

    @property
    def id(self) -> BrokerId:
        return self._inner.id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._links)

    @property
    def tree_neighbors(self) -> frozenset[BrokerId]:
        """The neighbors over whose links it routes now."""
        return self._inner.neighbors

    # -- links

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._cells.cell_of(neighbor)
        outputs = self.link_down(neighbor)
        self._links[neighbor] = _Link()
        return outputs + self._choose()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        link = self._links.pop(neighbor, None)
        if link is None:
            return []
        outputs = self._inner.link_down(neighbor) if link.carries else []
        return outputs + self._choose()

    def _choose(self) -> Outputs:
        """Join and leave links, so that those of the tree are wanted."""
        outputs: Outputs = []
        tree = self._cells.tree_neighbors(self.id, self._links)
        for neighbor, link in self._links.items():
            if link.wanted and neighbor not in tree:
                outputs.append(Send(neighbor, Leave()))
                if link.carries:
                    outputs += self._inner.link_down(neighbor)
                link.wanted = link.listening = False
        for neighbor in tree:
            link = self._links[neighbor]
            if not link.wanted:
                link.wanted = True
                link.joined += 1
                outputs.append(Send(neighbor, Join(link.joined)))
                outputs += self._start(neighbor, link)
        return outputs

    def _start(self, neighbor: BrokerId, link: _Link) -> Outputs:
        if not link.wanted or link.theirs is None:
            return []
        return [Send(neighbor, Start(link.theirs)), *self._inner.link_up(neighbor)]

    # -- messages

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        link = self._links.get(sender)
        if link is None:
            return []
        match message:
            case Join(number):
                link.theirs = number
                return self._start(sender, link)
            case Leave():
                outputs = self._inner.link_down(sender) if link.carries else []
                link.theirs = None
                link.listening = False
                return outputs
            case Start(number):
                link.listening = link.wanted and number == link.joined
                return []
        if not link.listening:
            self.unheard += 1
            return []
        return self._inner.receive(sender, message)

    def expired(self, timer: Hashable) -> Outputs:
        return self._inner.expired(timer)

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        return self._inner.subscribe(id, filter)

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self._inner.unsubscribe(id)

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._inner.advertise(id, filter)

    def unadvertise(self, id: FilterId) -> Outputs:
        return self._inner.unadvertise(id)

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        return self._inner.publish(client, notification)

    def table_size(self) -> TableSize:
        return self._inner.table_size()

    def offers(self) -> list[Filter]:
        return self._inner.offers()
