"""Epidemic repair: any router, made reliable by gossip about what it may have lost (07/4.6).

Deterministic routing loses what is on a link that breaks, and what is published before its tables
have recovered. A `RepairRouter` wraps a router and mends such gaps. It lets everything pass, but
keeps the latest notifications that were published or delivered here. For some rounds after the
last news it sends their ids to random peers. A peer that has clients asks for those it has not
heard of, together with its clients' filters; it is sent the notifications that match, and the ids
of those that do not, so that it need not ask again. So a digest may come from any broker that holds
something, also from the publisher's, which has no matching filter of its own, and no notification
travels to a broker that does not want it.

What arrives twice, once on its way and once by repair, is delivered once. A notification that was
examined when no client here wanted it is not fetched later for one who subscribes afterwards.

Repair is worth most where peers can be reached besides the links that routing uses: then the
wrapped router is told only of the links in `overlay`, while digests go to any neighbor.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable
from enum import Enum
from typing import ClassVar

from stentor.filters import Filter
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.research.gossip.edge import deliveries
from stentor.research.gossip.memory import (
    ID_LIMIT,
    STORE_LIMIT,
    RecentIds,
    RecentNotifications,
    id_of,
)
from stentor.research.gossip.options import at_least
from stentor.research.gossip.rounds import Rounds
from stentor.research.gossip.view import PeerView
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Kind,
    Message,
    Outputs,
    Router,
    Send,
    TableSize,
)
from stentor.routing.reducers.merging import MergingStage
from stentor.routing.table import Local, RoutingTable


class Held(Message, frozen=True):
    """Ids of notifications that the sender recently published or delivered."""

    kind: ClassVar[Kind] = "control"
    ids: tuple[NotificationId, ...]


class Fetch(Message, frozen=True):
    """Send me those of these that match one of my filters."""

    kind: ClassVar[Kind] = "control"
    ids: tuple[NotificationId, ...]
    filters: tuple[Filter, ...]


class Repair(Message, frozen=True):
    """A notification that matched."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification


class Examined(Message, frozen=True):
    """These did not match."""

    kind: ClassVar[Kind] = "control"
    ids: tuple[NotificationId, ...]


class Timer(Enum):
    """The timer of the wrapper; all others are those of the wrapped router."""

    REPAIR = "repair"


class RepairRouter:
    """A router whose gaps are mended by its peers.

    >>> from stentor.research.gossip import SemiProbabilisticRouter
    >>> rng = random.Random(7)
    >>> router = RepairRouter(SemiProbabilisticRouter("here", rng, phi=9, tau=0), rng)
    >>> wanted = FilterId("ann", 1)
    >>> _ = router.link_up("there"), router.subscribe(wanted, Filter("x > 1"))
    >>> missed = NotificationId("bob", 0, 0)
    >>> [question] = router.receive("there", Held((missed,)))
    >>> question.message.filters
    (Filter('x > 1'),)
    >>> delivery, *_ = router.receive("there", Repair(Notification({"x": 2}, id=missed)))
    >>> delivery.to, dict(delivery.notification)
    ('ann', {'x': 2})
    """

    def __init__(
        self,
        inner: Router,
        rng: random.Random,
        *,
        overlay: Collection[BrokerId] | None = None,
        fanout: int = 2,
        rounds: int = 8,
        period: float = 1.0,
        id_limit: int = ID_LIMIT,
        store_limit: int = STORE_LIMIT,
    ) -> None:
        """`overlay` has the neighbors that the wrapped router shall know; without it, all."""
        self._inner = inner
        self._overlay = None if overlay is None else frozenset(overlay)
        self._fanout = at_least(1, fanout=fanout)
        self._peers = PeerView(rng)
        self._rounds = Rounds(Timer.REPAIR, rounds=rounds, period=period)
        self._recent = RecentNotifications(store_limit)
        self._delivered = RecentIds(id_limit)
        self._examined = RecentIds(id_limit)
        self._clients = RoutingTable()
        #: What the clients ask for altogether.
        self._interest = MergingStage()

    @property
    def id(self) -> BrokerId:
        return self._inner.id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return self._peers.neighbors

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        outputs = self._inner.subscribe(id, filter)  # may refuse; then nothing has changed
        if id not in self._clients.at(Local(id.client)):
            self._clients.add(Local(id.client), id, filter)
            self._interest.add(filter)
        return self._passed(outputs)

    def unsubscribe(self, id: FilterId) -> Outputs:
        if id in self._clients.at(Local(id.client)):
            row = self._clients.remove(Local(id.client), id)
            self._interest.remove(row.filter)
        return self._passed(self._inner.unsubscribe(id))

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._passed(self._inner.advertise(id, filter))

    def unadvertise(self, id: FilterId) -> Outputs:
        return self._passed(self._inner.unadvertise(id))

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        outputs = self._passed(self._inner.publish(client, notification))
        return outputs + self._keep(notification)

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Held(ids):
                return self._compare(sender, ids)
            case Fetch(ids, filters):
                return self._hand_out(sender, ids, filters)
            case Repair(notification):
                return self._mend(notification)
            case Examined(ids):
                for id in ids:
                    self._examined.add(id)
                return []
        return self._passed(self._inner.receive(sender, message))

    def _compare(self, sender: BrokerId, ids: tuple[NotificationId, ...]) -> Outputs:
        unknown = tuple(id for id in ids if id not in self._examined)
        filters = tuple(self._interest.mergers)
        if unknown and filters:
            return [Send(sender, Fetch(unknown, filters))]
        for id in unknown:
            self._examined.add(id)
        return []

    def _hand_out(
        self, to: BrokerId, ids: tuple[NotificationId, ...], filters: tuple[Filter, ...]
    ) -> Outputs:
        outputs: Outputs = []
        unwanted: list[NotificationId] = []
        for id in ids:
            notification = self._recent.get(id)
            if notification is None:
                continue  # too old by now; perhaps another peer still has it
            if any(filter.matches(notification) for filter in filters):
                outputs.append(Send(to, Repair(notification)))
            else:
                unwanted.append(id)
        if unwanted:
            outputs.append(Send(to, Examined(tuple(unwanted))))
        return outputs

    def _mend(self, notification: Notification) -> Outputs:
        self._examined.add(id_of(notification))
        return self._passed(deliveries(notification, self._clients.targets(notification)))

    # -- what passes

    def _passed(self, outputs: Outputs) -> Outputs:
        """The outputs, without deliveries of what was delivered in an earlier step."""
        passed: Outputs = []
        fresh: dict[NotificationId, Notification] = {}
        for output in outputs:
            if isinstance(output, Deliver):
                id = id_of(output.notification)
                if id in self._delivered:
                    continue
                fresh[id] = output.notification
            passed.append(output)
        for id, notification in fresh.items():
            self._delivered.add(id)
            passed += self._keep(notification)
        return passed

    def _keep(self, notification: Notification) -> Outputs:
        self._examined.add(id_of(notification))
        self._recent.add(notification)
        return self._rounds.news()

    def expired(self, timer: Hashable) -> Outputs:
        if timer is not Timer.REPAIR:
            return self._passed(self._inner.expired(timer))
        held = Held(self._recent.ids)
        outputs: Outputs = [Send(peer, held) for peer in self._peers.draw(self._fanout)]
        return outputs + self._rounds.next()

    # -- links

    def link_up(self, neighbor: BrokerId) -> Outputs:
        """The new neighbor is told at once what it may have missed."""
        self._peers.up(neighbor)
        outputs = self._passed(self._inner.link_up(neighbor)) if self._routes(neighbor) else []
        if self._recent:
            outputs.append(Send(neighbor, Held(self._recent.ids)))
        return outputs

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._peers.down(neighbor)
        return self._passed(self._inner.link_down(neighbor)) if self._routes(neighbor) else []

    def _routes(self, neighbor: BrokerId) -> bool:
        return self._overlay is None or neighbor in self._overlay

    def table_size(self) -> TableSize:
        return self._inner.table_size()

    def offers(self) -> list[Filter]:
        return self._inner.offers()
