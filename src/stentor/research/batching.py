"""Batching: fewer and larger messages, for some delay (R-03.04, R-08.59).

A `BatchingRouter` wraps a router. What the router sends is collected in an outbox for each receiver
and leaves as one `Batch`, either when the oldest message has waited for `delay` or when there are
`limit` of them. The receiver takes a batch apart and lets its own router handle the messages one by
one, in order: each stays an atomic step of its own. They are never united into one larger update,
since "withdraw F" and "announce F" have another meaning in the other order (03/trap 12).

One thing is left out. If a change of filters waits and the very next message undoes it, both
go: the receiver would take the first, put everything back with the second, and nothing could happen
in between. This relies on what an `Update` promises, that a key stands for one filter, that it is
new to the receiver if it is added, and known there if it is removed.

What waits in an outbox when a link fails is lost like what was on the link, and is counted in
`lost`. Before a link is taken down as planned, its outbox is to be emptied by `flush`; a router
that closes a link itself (`Close`) has that done for it (08/trap 14).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Final

from msgspec import Struct

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.routing.messages import Update
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Close,
    FilterId,
    Kind,
    Message,
    Outputs,
    Router,
    Send,
    TableSize,
)


class Batch(Message, frozen=True):
    """Several messages in the order in which they were sent.

    It counts as the weightiest kind that it carries, everything else rides along for nothing.
    """

    messages: tuple[Message, ...]


class NotificationBatch(Batch, frozen=True):
    kind: ClassVar[Kind] = "notification"


class SubscriptionBatch(Batch, frozen=True):
    kind: ClassVar[Kind] = "subscription"


class AdvertisementBatch(Batch, frozen=True):
    kind: ClassVar[Kind] = "advertisement"


class ControlBatch(Batch, frozen=True):
    kind: ClassVar[Kind] = "control"


#: From the weightiest kind to the lightest.
_BATCHES: Final = (NotificationBatch, SubscriptionBatch, AdvertisementBatch, ControlBatch)


def batch(messages: list[Message]) -> Message:
    """All of them as one; a single message needs no wrapping."""
    if len(messages) == 1:
        return messages[0]
    kinds = {message.kind for message in messages}
    weightiest = next(of_kind for of_kind in _BATCHES if of_kind.kind in kinds)
    return weightiest(tuple(messages))


class Flush(Struct, frozen=True):
    """The timer of one outbox."""

    to: BrokerId


class BatchingRouter:
    """Any router, with its messages sent in batches.

    >>> from stentor.research.trees import CarryingRouter
    >>> router = BatchingRouter(CarryingRouter("here"), delay=1.0)
    >>> _ = router.link_up("there")
    >>> router.subscribe(FilterId("ann", 1), Filter("x = 1"))
    [Arm(timer=Flush(to='there'), after=1.0)]
    >>> router.subscribe(FilterId("ann", 2), Filter("x = 2"))
    []
    >>> [send] = router.expired(Flush("there"))
    >>> len(send.message.messages), send.message.kind
    (2, 'subscription')
    """

    def __init__(self, inner: Router, *, delay: float = 0.01, limit: int = 100) -> None:
        """A message waits for at most `delay`, and with fewer than `limit` others."""
        if not delay > 0:
            raise InvalidConfiguration(f"messages cannot wait for {delay}; give a delay above 0")
        if limit < 2:
            raise InvalidConfiguration(f"{limit} messages make no batch; give a limit of 2 or more")
        self._inner = inner
        self._delay = delay
        self._limit = limit
        self._outboxes: dict[BrokerId, list[Message]] = {}
        #: Messages that waited for a link that went down.
        self.lost = 0

    @property
    def id(self) -> BrokerId:
        return self._inner.id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return self._inner.neighbors

    # -- outboxes

    def _collected(self, outputs: Outputs) -> Outputs:
        """The outputs, with messages to others put into outboxes."""
        passed: Outputs = []
        for output in outputs:
            match output:
                case Send(to, message):
                    passed += self._put(to, message)
                case Close(to):
                    passed += [*self.flush(to), output]
                case _:
                    passed.append(output)
        return passed

    def _put(self, to: BrokerId, message: Message) -> Outputs:
        waiting = self._outboxes.setdefault(to, [])
        if waiting and _undoes(message, waiting[-1]):
            waiting.pop()
            return []
        waiting.append(message)
        if len(waiting) == self._limit:
            return self.flush(to)
        return [Arm(Flush(to), self._delay)] if len(waiting) == 1 else []

    def flush(self, to: BrokerId) -> Outputs:
        """Send what waits for this neighbor now."""
        waiting = self._outboxes.pop(to, None)
        return [Send(to, batch(waiting))] if waiting else []

    def expired(self, timer: Hashable) -> Outputs:
        if isinstance(timer, Flush):
            return self.flush(timer.to)
        return self._collected(self._inner.expired(timer))

    # -- links

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if not isinstance(message, Batch):
            return self._collected(self._inner.receive(sender, message))
        outputs: Outputs = []
        for each in message.messages:
            outputs += self._collected(self._inner.receive(sender, each))
        return outputs

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._lose(neighbor)
        return self._collected(self._inner.link_up(neighbor))

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._lose(neighbor)
        return self._collected(self._inner.link_down(neighbor))

    def _lose(self, neighbor: BrokerId) -> None:
        self.lost += len(self._outboxes.pop(neighbor, ()))

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        return self._collected(self._inner.subscribe(id, filter))

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self._collected(self._inner.unsubscribe(id))

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._collected(self._inner.advertise(id, filter))

    def unadvertise(self, id: FilterId) -> Outputs:
        return self._collected(self._inner.unadvertise(id))

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        return self._collected(self._inner.publish(client, notification))

    def table_size(self) -> TableSize:
        return self._inner.table_size()

    def offers(self) -> list[Filter]:
        return self._inner.offers()


def _undoes(later: Message, earlier: Message) -> bool:
    """Whether the later of two adjacent messages puts back all that the earlier one changed."""
    return (
        isinstance(later, Update)
        and isinstance(earlier, Update)
        and type(later) is type(earlier)
        and {key for key, _ in later.added} == set(earlier.removed)
        and {key for key, _ in earlier.added} == set(later.removed)
    )
