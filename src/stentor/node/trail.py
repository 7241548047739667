"""The trail: what has lately become of notifications at this broker, so that it can be asked for.

One entry for each message to a consumer, each lot that was dropped, each refusal of a publication
and each subscription that has ended; never one for each notification. All of it is in memory and
bounded: the oldest goes first. What is older than the trail goes back is known from the positions
of subscriptions only, which say that something was dealt with, but not when.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from stentor.filters.filter import RECEIVED_STEPS
from stentor.model.identity import NotificationId
from stentor.node.clock import Clock
from stentor.node.interest import Interest
from stentor.node.last_values import label
from stentor.node.subscription import Subscription
from stentor.protocol.messages import Positions, StreamId

#: Entries about notifications, and offsets that are named in all of them.
ENTRIES: Final = 50_000
OFFSETS: Final = 500_000
#: Refused publications, and subscriptions that have ended.
REFUSALS: Final = 1_000
ENDED: Final = 1_000
#: What the filters of these may weigh together: as much as ten of the heaviest that brokers take.
ENDED_WEIGHT: Final = 10 * RECEIVED_STEPS


class Step(NamedTuple):
    """What has become of some notifications of a stream, for one subscription."""

    time: float
    #: "delivered" or "dropped".
    what: str
    #: The subscription, and the session of whoever was given them.
    subscription: str
    session: int
    stream: StreamId
    offsets: list[int]
    #: How often they had been given, with that time.
    attempt: int


class Refusal(NamedTuple):
    """A publication that was refused."""

    time: float
    id: NotificationId
    code: str
    cause: str


class Ending(NamedTuple):
    """A subscription that is no more."""

    time: float
    id: str
    interest: Interest
    began: Positions


class Trail:
    """Notes what happens.

    >>> trail = Trail(Clock(0.0, 100.0))
    >>> trail.note("delivered", "ann@1/1", 1, "b1#0", [7, 9])
    >>> [step.time for step in trail.steps("ann@1/1", "b1#0", 9)]
    [100.0]
    >>> trail.steps("ann@1/1", "b1#0", 8)
    []
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: deque[Step] = deque()
        self._offsets = 0
        self._refusals: deque[Refusal] = deque(maxlen=REFUSALS)
        self._endings: deque[Ending] = deque()
        self._weight = 0

    def note(
        self,
        what: str,
        subscription: str,
        session: int,
        stream: StreamId,
        offsets: list[int],
        attempt: int = 1,
    ) -> None:
        """This has become of these; the list of offsets must not change any more."""
        steps = self._steps
        time = self._clock.time
        steps.append(Step(time, what, subscription, session, stream, offsets, attempt))
        self._offsets += len(offsets)
        while self._offsets > OFFSETS or len(steps) > ENTRIES:
            self._offsets -= len(steps.popleft().offsets)

    def refused(self, id: NotificationId | None, code: str, cause: str) -> None:
        """A publication was refused."""
        if id is not None:
            self._refusals.append(Refusal(self._clock.time, id, code, cause[:1_000]))

    def ended(self, subscription: Subscription) -> None:
        """A subscription has ended. Of a durable one or a group something is left to ask."""
        if subscription.durable is not None or subscription.group is not None:
            return
        feed, endings = subscription.feed, self._endings
        ending = Ending(self._clock.time, feed.id, subscription.interest, feed.began)
        endings.append(ending)
        self._weight += ending.interest.weight
        while len(endings) > ENDED or self._weight > ENDED_WEIGHT:
            self._weight -= endings.popleft().interest.weight

    # -- what is known

    @property
    def begin(self) -> float:
        """Since when everything is noted, in seconds since 1970; 0 if nothing was forgotten."""
        full = len(self._steps) >= ENTRIES or self._offsets >= OFFSETS // 2
        return self._steps[0].time if full else 0.0

    def steps(self, subscription: str, stream: StreamId, offset: int) -> list[Step]:
        """What has become of one notification for this subscription, oldest first."""
        return [
            step
            for step in self._steps
            if step.subscription == subscription
            and step.stream == stream
            and step.offsets[0] <= offset <= step.offsets[-1]
            and offset in step.offsets
        ]

    def refusals(self, id: NotificationId) -> list[Refusal]:
        return [refusal for refusal in self._refusals if refusal.id == id]

    def endings(self, client: str) -> list[Ending]:
        """Subscriptions of a client, or of this name, that have ended; oldest first."""
        return [ending for ending in self._endings if client_of(ending.id) == client]


def client_of(id: str) -> str:
    """Whose subscription this is, by its id: a client, a durable subscription or a group.

    >>> client_of("ann@7/1"), client_of("durable desk-7"), client_of("group workers")
    ('ann', 'desk-7', 'workers')
    """
    kind, _, name = id.partition(" ")
    if kind in ("durable", "group") and name:
        return label(name)
    return id.rpartition("@")[0]
