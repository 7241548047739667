"""A client while it is connected, as the core sees it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from stentor.filters import Filter
from stentor.model.codec import Envelope
from stentor.model.identity import NotificationId
from stentor.node.allowance import UNLIMITED, Allowance
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol.messages import Read

#: Whether a publication, a subscription, or an advertisement that wants to hear of demand is
#: permitted. The place where a richer model of roles is put in.
PublishRule = Callable[[Envelope], bool]
SubscribeRule = Callable[[Filter], bool]
AdvertiseRule = Callable[[Filter], bool]


def nothing(_: object) -> bool:
    """The rule of who may do none of it, which need not be asked about each."""
    return False


@dataclass(eq=False, slots=True)
class Line:
    """What one producer has on its way to the journal, whatever its connection.

    A producer that connects again sends what was not answered once more. `newest` tells what is a
    repeat, even before the journal has it. If something could not be stored, nothing of the same
    producer behind it may be: it would make what is missing look like a repeat.
    """

    #: The newest epoch and sequence number that was journaled or is about to be.
    newest: tuple[int, int]
    #: Batches that are on their way, each with the newest id by then; None until there is one.
    pending: deque[tuple[tuple[int, int], list[Envelope]]] | None = None
    #: Connections that go on with it.
    sessions: int = 0
    failed: bool = False

    def sent(self, envelopes: list[Envelope]) -> None:
        """One more batch is on its way."""
        if self.pending is None:
            self.pending = deque()
        self.pending.append((self.newest, envelopes))

    def arrived(self) -> bool:
        """The first batch is there; whether that was all."""
        assert self.pending is not None
        self.pending.popleft()
        return not self.pending

    def original(self, id: NotificationId) -> Envelope | None:
        """What is on its way under this id."""
        this, pending = (id.epoch, id.sequence), self.pending or ()
        batch = bisect_left(pending, this, key=lambda each: each[0])
        if batch == len(pending):
            return None
        envelopes = pending[batch][1]
        at = bisect_left(envelopes, this, key=_order)
        return envelopes[at] if at < len(envelopes) and envelopes[at].id == id else None


def _order(envelope: Envelope) -> tuple[int, int]:
    assert envelope.id is not None  # brokers take nothing without one
    return envelope.id.epoch, envelope.id.sequence


@dataclass(eq=False, slots=True)
class Session:
    """One connection of one client."""

    id: int
    #: What it calls itself, for people.
    name: str
    #: The producer in the ids of everything it publishes.
    producer: str
    line: Line
    may_publish: PublishRule | None = None
    may_subscribe: SubscribeRule | None = None
    may_advertise: AdvertiseRule | None = None
    #: The grant by which it is connected; what it makes to last belongs to that. None: no grants.
    owner: str | None = None
    #: Whether it reads journals as they are, whatever scopes say: what archives need.
    audits: bool = False
    #: What that grant may have.
    allowance: Allowance = UNLIMITED
    subscriptions: dict[int, tuple[Subscription, Consumer]] = field(default_factory=dict)
    advertisements: dict[int, Filter] = field(default_factory=dict)
    #: Stretches of journals that it has asked for.
    reads: list[Read] = field(default_factory=list)
    #: Numbers of requests to publish, oldest first, how many notifications each has, and how many
    #: parts of it are not done; None until there is one.
    _open: deque[list[int]] | None = None
    #: Notifications that are not done.
    unanswered: int = 0
    published: int = 0
    refused: int = 0

    def opened(self, number: int, count: int) -> list[int]:
        """Publications have come; `closed` takes what this returns, once for each part of it."""
        entry = [number, count, 1]
        if self._open is None:
            self._open = deque()
        self._open.append(entry)
        self.unanswered += count
        return entry

    def closed(self, entry: list[int]) -> int | None:
        """A part of it is done: the number up to which all are, if that has changed."""
        entry[2] -= 1
        if entry[2]:
            return None
        self.unanswered -= entry[1]
        through = None
        while self._open and not self._open[0][2]:
            through = self._open.popleft()[0]
        return through
