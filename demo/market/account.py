"""What was published and what was delivered, held against the formal model.

While the demo runs, the account knows what every consumer should get: each publication is tested
with each filter, one by one, without any help of a broker. What has not come yet is `missing`.

At the end, the whole run is handed to the checker of `stentor.semantics` as a trace of who
subscribed, published and was notified. It counts what was owed and finds what is lost, came twice,
came out of order, was altered, or was never asked for.

A consumer who was away, or who came late and asked for history, is treated by the model as one who
was subscribed all the time: that is what a durable subscription and `since=` promise.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final, NamedTuple

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import Condition, Notify, Pub, Report, Trace, check

#: Deliveries that are shown, and those that the latency of a consumer is taken from.
RECENT: Final = 12
_LATEST: Final = 100


class Expected(NamedTuple):
    """A delivery that is due: since when, and whether the consumer was there at that time."""

    since: float
    present: bool


class Delivery(NamedTuple):
    """What a consumer was notified of: when it was published, and how long it took."""

    consumer: str
    notification: Notification
    published: float
    latency: float
    #: Whether the consumer was there when it was published.
    present: bool


@dataclass
class Consumer:
    """What one consumer is owed and has got."""

    name: str
    filter: Filter
    present: bool = False
    owed: int = 0
    got: int = 0
    missing: dict[NotificationId, Expected] = field(default_factory=dict)
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    @property
    def behind(self) -> int:
        """Deliveries that are still to come."""
        return len(self.missing)

    def left(self) -> None:
        """It went away. What it has not got by now will wait for it."""
        self.present = False
        self.missing = {id: Expected(due.since, False) for id, due in self.missing.items()}

    def has_all(self, until: float) -> bool:
        """Whether it has everything that was published before this time."""
        oldest = next(iter(self.missing.values()), None)  # they are in the order of publication
        return oldest is None or oldest.since >= until


@dataclass(frozen=True)
class Latencies:
    """Of some deliveries, in seconds, sorted."""

    values: Sequence[float]

    @classmethod
    def of(cls, values: Iterable[float]) -> Latencies:
        return cls(sorted(values))

    def __len__(self) -> int:
        return len(self.values)

    def percentile(self, share: float) -> float:
        """The smallest value that this share of all does not exceed.

        >>> Latencies.of([4.0, 1.0, 3.0, 2.0]).percentile(0.5)
        2.0
        """
        return self.values[max(1, ceil(share * len(self.values))) - 1]


@dataclass(frozen=True)
class Verdict:
    """The numbers of the whole run."""

    published: int
    acknowledged: int
    expected: int
    delivered: int
    missing: int
    twice: int
    out_of_order: int
    #: Altered, invented, or never asked for.
    wrong: int
    report: Report

    @property
    def ok(self) -> bool:
        """Whether everything was as it should be, and there was something to judge."""
        return self.report.ok and self.expected > 0 and self.published == self.acknowledged


class Account:
    """Keeps count of one run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._trace = Trace()
        self._published: dict[NotificationId, float] = {}
        self.consumers: dict[str, Consumer] = {}
        self.deliveries: list[Delivery] = []
        self.recent: deque[Delivery] = deque(maxlen=RECENT)

    def __len__(self) -> int:
        """Publications."""
        return len(self._published)

    # -- what happens

    def subscribed(self, name: str, filter: Filter) -> Consumer:
        """From here on it is owed everything that matches."""
        consumer = self.consumers[name] = Consumer(name, filter)
        self._trace.sub(name, name, filter)
        return consumer

    def settled(self) -> None:
        """Nothing is on its way."""
        self._trace.quiescent()

    def published(self, producer: str, notification: Notification) -> None:
        """Somebody has published, and nobody was notified of it so far."""
        id = notification.id
        assert id is not None
        now = self._published[id] = self._clock()
        self._trace.pub(producer, notification)
        for consumer in self.consumers.values():
            if consumer.filter.matches(notification):
                consumer.owed += 1
                consumer.missing[id] = Expected(now, consumer.present)

    def delivered(self, name: str, notification: Notification) -> None:
        """A consumer was notified."""
        id = notification.id
        assert id is not None
        self._trace.notify(name, notification)
        consumer = self.consumers[name]
        consumer.got += 1
        expected = consumer.missing.pop(id, None)
        if expected is None:  # twice, or not for this one: the checker will say so
            return
        latency = self._clock() - expected.since
        if expected.present:
            consumer.latencies.append(latency)
        delivery = Delivery(name, notification, expected.since, latency, expected.present)
        self.deliveries.append(delivery)
        self.recent.append(delivery)

    # -- what is to be seen

    @property
    def got(self) -> int:
        return sum(consumer.got for consumer in self.consumers.values())

    @property
    def behind(self) -> int:
        """Deliveries that are still to come, to those who are present."""
        return sum(c.behind for c in self.consumers.values() if c.present)

    def caught_up(self, until: float) -> bool:
        """Whether all who are present have everything that was published before this time."""
        return all(c.has_all(until) for c in self.consumers.values() if c.present)

    def latencies(
        self,
        *,
        published_after: float = -inf,
        published_before: float = inf,
        delivered_after: float = -inf,
        delivered_before: float = inf,
    ) -> Latencies:
        """Of deliveries to consumers who were there when it was published, in some time."""
        return Latencies.of(
            d.latency
            for d in self.deliveries
            if d.present
            and published_after <= d.published < published_before
            and delivered_after <= d.published + d.latency < delivered_before
        )

    def later(self) -> int:
        """Deliveries of what was published while their consumer was not there."""
        return sum(not d.present for d in self.deliveries)

    def verdict(self, unacknowledged: Iterable[NotificationId] = ()) -> Verdict:
        """Judge the run. What was not acknowledged need not have been published at all."""
        notified = {action.id for action in self._trace if isinstance(action, Notify)}
        uncertain = set(unacknowledged) - notified
        trace = [a for a in self._trace if not (isinstance(a, Pub) and a.id in uncertain)]
        report = check(trace, order=["fifo"])
        found = Counter(violation.condition for violation in report.violations)
        named = (Condition.LOST, Condition.DUPLICATE, Condition.FIFO)
        lost, twice, out_of_order = (found.pop(condition, 0) for condition in named)
        return Verdict(
            published=len(self._published),
            acknowledged=len(self._published) - len(set(unacknowledged)),
            expected=report.owed,
            delivered=report.deliveries,
            missing=lost,
            twice=twice,
            out_of_order=out_of_order,
            wrong=found.total(),
            report=report,
        )
