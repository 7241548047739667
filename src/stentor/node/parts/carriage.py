"""Carriage: a router that brings notifications to their subscribers in messages of its own.

On a tree, brokers know streams and where they come from, and the router only says which filters
go where (`routing`, `traffic`). Routers of other overlays decide everything themselves: where
a notification goes, in which message, and when to send it again. Then this part stands in for both.
It gives the router what clients ask and publish, lets its messages travel as they are, and gives
what it delivers to the feeds.

Such a router may bring a notification twice, or late: to who has had it, or no longer wants it.
What was seen is remembered for each subscription, and its filters are asked once more.

A core that carries so knows no streams but its own, and nothing in it is journaled: there is
nobody who could read journals of others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final

from stentor.errors import InvalidConfiguration, ProtocolError, StentorError
from stentor.filters import Filter
from stentor.model.codec import encode
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.node.agenda import Agenda
from stentor.node.batch import Batch
from stentor.node.feed import Run
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.protocol import messages as m
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    Close,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Router,
    Send,
)

#: Notifications that are routed in one step.
AT_ONCE: Final = 1_000


class Carriage:
    """What `Routing` and `Traffic` are to other parts, for a router that does it all."""

    #: It needs no turns, and no advertisement is ever in the way of a publication.
    has_work = False
    is_steered = False
    meets = False
    at_once = AT_ONCE
    terms = ""

    def __init__(
        self,
        router: Router,
        *,
        ids: Mapping[str, BrokerId],
        subscriptions: Subscriptions,
        sessions: Sessions,
        ready: Turns[str],
        agenda: Agenda,
    ) -> None:
        """`ids` is by what the router knows neighbors, where that is not their names."""
        self.router = router
        self._names = ids
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._ready = ready
        self._agenda = agenda
        self.counters = {"received": 0, "forwarded": 0, "repeated": 0, "unwanted": 0}
        self._ids: dict[str, dict[Filter, FilterId]] = {}
        self._last = 0
        self._ended: dict[FilterId, Filter] = {}
        #: What each subscription has had.
        self._seen: dict[str, SeenIds] = {}
        #: What was delivered last, encoded: it mostly goes to several.
        self._encoded: tuple[NotificationId | None, bytes] = (None, b"")
        subscriptions.at_end(self._forget)

    @property
    def neighbors(self) -> list[str]:
        """None with whom there is a word about streams."""
        return []

    # -- what is asked for and offered here

    def subscribe(self, id: str, filters: Iterable[Filter]) -> None:
        for filter in filters:
            self._last += 1
            known = FilterId(id, self._last)
            outputs = self.router.subscribe(known, filter)  # may refuse; then nothing has changed
            self._ids.setdefault(id, {})[filter] = known
            self.tell(outputs)

    def asked(self, id: str) -> Iterator[None]:
        """Nothing is left to ask for."""
        return iter(())

    def unsubscribe(self, id: str, filters: Iterable[Filter]) -> Iterator[None]:
        for filter in filters:
            self._ended[self._ids[id].pop(filter)] = filter
        return iter(())

    def _forget(self, subscription: Subscription) -> None:
        gone = self._ids.pop(subscription.feed.id, {})
        self._ended |= {id: filter for filter, id in gone.items()}
        self._seen.pop(subscription.feed.id, None)

    def withdraw(self) -> None:
        """Ask no longer for what has ended."""
        if self._ended:
            ended, self._ended = self._ended, {}
            self.tell(self._withdrawn(ended))

    def _withdrawn(self, ended: dict[FilterId, Filter]) -> Outputs:
        """What says most goes first.

        To withdraw a large filter first would announce small ones that are about to go as well
        (03/A14). What covers another filter mostly mentions fewer attributes.
        """
        said = {id: sum(len(c.constraints) for c in f.conjuncts) for id, f in ended.items()}
        order = sorted(ended, key=lambda id: -said[id])
        return [output for id in order for output in self.router.unsubscribe(id)]

    def advertise(self, id: FilterId, filter: Filter) -> None:
        self.tell(self.router.advertise(id, filter))

    def unadvertise(self, id: FilterId) -> None:
        self.tell(self.router.unadvertise(id))

    def offers(self) -> list[Filter]:
        return self.router.offers()

    def interests(self) -> list[Filter]:
        """Nobody is told: these routers do not say what is asked for elsewhere."""
        return []

    def watch(self, changed: Callable[[Filter, bool], None]) -> None:
        pass

    def work(self) -> None:
        pass

    # -- neighbors

    def link_up(
        self,
        neighbor: str,
        rights: object = None,
        place: object = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        if rights is not None:
            raise InvalidConfiguration("this overlay cannot keep anything from a neighbor")
        self.tell(self.router.link_up(self._id(neighbor)))

    def link_down(self, neighbor: str) -> None:
        self.tell(self.router.link_down(self._id(neighbor)))

    def is_unlinking(self, neighbor: str) -> bool:
        return False

    def is_linking(self, neighbor: str) -> bool:
        return False

    def linked(self, neighbor: str) -> Iterator[None]:
        """Nothing has to be done before a neighbor is heard."""
        return iter(())

    def served(self) -> Iterator[None]:
        """Nor is a probe passed on."""
        return iter(())

    @property
    def is_serving(self) -> bool:
        return False

    def describe(self, streams: object) -> None:
        """Nobody is told which streams there are."""

    def links_heard(self, neighbor: str, message: m.Links) -> None:
        raise ProtocolError("these brokers do not tell each other of links")

    def heard(self, neighbor: str, message: Message) -> None:
        """A message of the router of a neighbor."""
        self.tell(self.router.receive(self._id(neighbor), message))

    def expired(self, timer: Hashable) -> None:
        """A timer that the router has armed has run out."""
        self.tell(self.router.expired(timer))

    def _id(self, neighbor: str) -> BrokerId:
        return self._names.get(neighbor, neighbor)

    # -- notifications

    def passed(self) -> Iterator[None]:
        """Nothing has to be done before anything else is routed."""
        return iter(())

    def route(
        self,
        batch: Batch,
        source: str | None,
        then: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Let the router have what clients have published; how many these were."""
        for envelope in batch.envelopes:
            notification = envelope.notification()
            assert notification.id is not None
            producer = notification.id.producer
            try:
                self.tell(self.router.publish(producer, notification))
            except StentorError as error:
                for session in self._sessions.held.values():
                    if session.producer == producer:
                        failure = m.Failure(error.code, str(error))
                        self._agenda.to_client(session.id, failure)
        then(len(batch.items))
        return len(batch.items)

    def tell(self, outputs: Outputs) -> None:
        """Do what the router wants done."""
        for output in outputs:
            match output:
                case Send(to, message):
                    self.counters["forwarded"] += message.kind == "notification"
                    self._agenda.to_link(str(to), message)
                case Deliver(id, notification):
                    self._deliver(id, notification)
                case Arm() | Close():
                    self._agenda.add(output)

    def _deliver(self, id: str, notification: Notification) -> None:
        subscription = self._subscriptions.held.get(id)
        assert notification.id is not None
        self.counters["received"] += 1
        if subscription is None or not _wanted(subscription.interest, notification):
            self.counters["unwanted"] += 1
        elif not self._seen.setdefault(id, SeenIds()).add(notification.id):
            self.counters["repeated"] += 1
        else:
            if self._encoded[0] != notification.id:
                self._encoded = notification.id, encode(notification)
            if notification.handling is not None:
                subscription.feed.perishable = True
            subscription.feed.offer(Run(m.VOLATILE, [], [self._encoded[1]]))
            self._ready.add(id)


def _wanted(filters: Iterable[Filter], notification: Notification) -> bool:
    return any(filter.matches(notification) for filter in filters)
