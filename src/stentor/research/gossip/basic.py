"""Basic gossip: everything is told to a few brokers at random, who do the same (R-03.49, 03/A20).

A broker that learns of a notification delivers it to its own clients and pushes it to F random
peers; what it already knows it ignores. There is no structure that could break, and no state but
the ids of what was seen: subscriptions stay where they are made, so they take effect at once and
may be written in any language. Uninterested brokers forward like all others (07/T-13).

Nothing is certain, but much is probable. Of N brokers the share z that is reached solves
z = 1 - exp(-F z), with about F·N·z messages: 94 % for F = 3, 99.9 % for F = 7. All are reached with
probability exp(-exp(-c)) if F = ln N + c. With a `ttl` a notification goes so many hops and no
further; without one the epidemic ends by itself, since each broker infects others only once.

*Pull* finds what was missed. For some rounds after the last news a broker sends the ids of its
recent notifications to F random peers. The peer requests those that it lacks, and answers with the
ids of those that the other seems to lack. What is fetched so is not pushed on, but it is news to
its receiver, which talks about it in turn. Pull alone takes more time and transmits a notification
hardly more than once to each broker; push and pull together are fast and complete.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from enum import Enum
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from stentor.errors import InvalidConfiguration, UnknownStrategy
from stentor.filters import Filter
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.research.gossip.edge import Edge
from stentor.research.gossip.memory import ID_LIMIT, STORE_LIMIT, RecentNotifications
from stentor.research.gossip.options import at_least
from stentor.research.gossip.rounds import Rounds
from stentor.research.gossip.view import PeerView
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    FilterId,
    Kind,
    Message,
    Outputs,
    Send,
)
from stentor.routing.table import Local

Mode: TypeAlias = Literal["push", "pull", "push-pull"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class Rumor(Message, frozen=True):
    """A notification, and how many hops it may go on from its receiver; None is any number."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    hops: int | None


class Digest(Message, frozen=True):
    """What the sender recently saw. If it is a question, it also wants to know what it lacks."""

    kind: ClassVar[Kind] = "control"
    ids: tuple[NotificationId, ...]
    question: bool


class Request(Message, frozen=True):
    """Send me these."""

    kind: ClassVar[Kind] = "control"
    ids: tuple[NotificationId, ...]


class Timer(Enum):
    """The one timer of this router."""

    DIGEST = "digest"


class GossipRouter(Edge):
    """Tells everything to `fanout` random peers, once.

    >>> router = GossipRouter("here", random.Random(7), fanout=2)
    >>> for peer in ("a", "b", "c"):
    ...     _ = router.link_up(peer)
    >>> news = Notification({"x": 1}, id=NotificationId("ann", 0, 0))
    >>> [output.to for output in router.publish("ann", news)]
    ['b', 'a']
    >>> router.receive("a", Rumor(news, None))
    []
    """

    def __init__(
        self,
        id: BrokerId,
        rng: random.Random,
        *,
        fanout: int = 4,
        ttl: int | None = None,
        view: int | None = None,
        mode: Mode = "push",
        rounds: int = 8,
        period: float = 1.0,
        id_limit: int = ID_LIMIT,
        store_limit: int = STORE_LIMIT,
    ) -> None:
        """`view` is the size of a random partial view; without it all neighbors are peers.

        Pulling goes on for `rounds` rounds, one every `period`, after the last news.
        """
        super().__init__(id, id_limit)
        if mode not in MODES:
            raise UnknownStrategy(f"there is no gossip mode {mode!r}; choose from {list(MODES)}")
        self._fanout = at_least(1, fanout=fanout)
        self._ttl = ttl if ttl is None else at_least(1, ttl=ttl)
        self._peers = PeerView(rng, view)
        if view is not None and view < fanout:
            raise InvalidConfiguration(
                f"a view of {view} peers has no {fanout} to choose from; give view >= fanout"
            )
        self._pushes = mode != "pull"
        self._pulls = mode != "push"
        self._recent = RecentNotifications(store_limit)
        self._rounds = Rounds(Timer.DIGEST, rounds=rounds, period=period)

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return self._peers.neighbors

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if not self._holds(id):
            self._table.add(Local(id.client), id, filter)
        return []

    def unsubscribe(self, id: FilterId) -> Outputs:
        if self._holds(id):
            self._table.remove(Local(id.client), id)
        return []

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        self._published(notification)
        return self._spread(notification, self._ttl)

    # -- other brokers

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Rumor(notification, hops):
                return self._spread(notification, hops) if self._arrived(notification) else []
            case Digest(ids, question):
                return self._compare(sender, ids, question)
            case Request(ids):
                found = (self._recent.get(id) for id in ids)
                return [Send(sender, Rumor(n, 0)) for n in found if n is not None]
        raise self._foreign(message)

    def _spread(self, notification: Notification, hops: int | None) -> Outputs:
        """Deliver news and pass it on."""
        outputs = self._deliver(notification)
        if self._pushes and hops != 0:
            rumor = Rumor(notification, None if hops is None else hops - 1)
            outputs += [Send(peer, rumor) for peer in self._peers.draw(self._fanout)]
        if self._pulls:
            self._recent.add(notification)
            outputs += self._rounds.news()
        return outputs

    def _compare(
        self, sender: BrokerId, ids: tuple[NotificationId, ...], question: bool
    ) -> Outputs:
        outputs: Outputs = []
        if missing := tuple(id for id in ids if id not in self._seen):
            outputs.append(Send(sender, Request(missing)))
        if question:
            theirs = set(ids)
            if surplus := tuple(id for id in self._recent.ids if id not in theirs):
                outputs.append(Send(sender, Digest(surplus, question=False)))
        return outputs

    def expired(self, timer: Hashable) -> Outputs:
        if timer is not Timer.DIGEST:
            return []
        digest = Digest(self._recent.ids, question=True)
        outputs: Outputs = [Send(peer, digest) for peer in self._peers.draw(self._fanout)]
        return outputs + self._rounds.next()

    # -- links

    def link_up(self, neighbor: BrokerId) -> Outputs:
        """A broker that pulls compares notes with one that comes back."""
        self._peers.up(neighbor)
        if self._recent:
            return [Send(neighbor, Digest(self._recent.ids, question=True))]
        return []

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._peers.down(neighbor)
        return []
