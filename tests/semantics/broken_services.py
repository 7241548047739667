"""A small correct service, and services with one mistake each: the negative controls.

`Service` is centralized: a publication is put in flight, at once and in order, for everyone with a
matching subscription, and what arrives passes a gate just before the consumer sees it. Each broken
service overrides one decision. It says which condition it breaks, and by which steps it is sure to
be caught, whatever came before (`provoked_by`): its own components `w`, `y` and `z` take part in
nothing else.

A history is a list of steps, each a tuple of an operation's name and its arguments.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import ClassVar

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import Condition, Trace

Step = tuple[Hashable, ...]
POSITIVE = Filter("x > 0")
LARGE = Filter("x > 5")


class Service:
    """Notifies exactly those who are interested, exactly once, in the order of publication."""

    breaks: ClassVar[Condition]
    provoked_by: ClassVar[list[Step]]
    advertisements = False
    order: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.trace = Trace()
        self.subscriptions: dict[tuple[str, Hashable], Filter] = {}
        self.advertised: dict[tuple[str, Hashable], Filter] = {}
        self.published: list[tuple[str, Notification]] = []
        self.in_flight: list[tuple[str, Notification]] = []
        self.seen: set[tuple[str, Hashable]] = set()

    def run(self, history: Iterable[Step]) -> Trace:
        for operation, *arguments in history:
            getattr(self, str(operation))(*arguments)
        self.settle()
        return self.trace

    def sub(self, component: str, id: Hashable, filter: Filter) -> None:
        self.trace.sub(component, id, filter)
        self.subscriptions.setdefault((component, id), filter)

    def unsub(self, component: str, id: Hashable) -> None:
        self.trace.unsub(component, id)
        self.subscriptions.pop((component, id), None)

    def adv(self, component: str, id: Hashable, filter: Filter) -> None:
        self.trace.adv(component, id, filter)
        self.advertised.setdefault((component, id), filter)

    def unadv(self, component: str, id: Hashable) -> None:
        self.trace.unadv(component, id)
        self.advertised.pop((component, id), None)

    def pub(self, component: str, x: int) -> None:
        id = NotificationId(component, 0, len(self.published))
        notification = Notification({"x": x}, id=id)
        self.trace.pub(component, notification)
        self.published.append((component, notification))
        if not self.advertisements or self.conforms(component, notification):
            for recipient in self.recipients(component, notification):
                self.in_flight.append((recipient, notification))

    def arrive(self) -> None:
        """The next in flight arrives."""
        if self.in_flight:
            recipient, notification = self.take()
            if self.gate(recipient, notification):
                self.notify(recipient, notification)

    def take(self) -> tuple[str, Notification]:
        return self.in_flight.pop(0)

    def notify(self, component: str, notification: Notification) -> None:
        self.trace.notify(component, notification)

    def settle(self) -> None:
        while self.in_flight:
            self.arrive()
        self.trace.quiescent()

    def conforms(self, component: str, notification: Notification) -> bool:
        return _any(self.advertised, component, notification)

    def recipients(self, publisher: str, notification: Notification) -> Iterable[str]:
        matching = [c for (c, _), f in self.subscriptions.items() if f.matches(notification)]
        return dict.fromkeys(matching)

    def gate(self, component: str, notification: Notification) -> bool:
        key = (component, self.identity(notification))
        if not self.interested(component, notification) or key in self.seen:
            return False
        self.seen.add(key)
        return True

    def interested(self, component: str, notification: Notification) -> bool:
        return _any(self.subscriptions, component, notification)

    def identity(self, notification: Notification) -> Hashable:
        return notification.id


def _any(
    table: dict[tuple[str, Hashable], Filter], component: str, notification: Notification
) -> bool:
    return any(c == component and f.matches(notification) for (c, _), f in table.items())


class WithHistory(Service):
    """Correct as well: a new subscription is told the past (R-01.23)."""

    def sub(self, component: str, id: Hashable, filter: Filter) -> None:
        super().sub(component, id, filter)
        self.in_flight += [(component, n) for _, n in self.published if filter.matches(n)]


class Advertising(Service):
    """Correct as well: what is not advertised is discarded when it is published (R-01.33)."""

    advertisements = True


class NeverNotifies(Service):
    breaks = Condition.LOST
    provoked_by: ClassVar = [("sub", "y", 1, POSITIVE), ("settle",), ("pub", "w", 1)]

    def gate(self, component: str, notification: Notification) -> bool:
        return False


class DeliversEverything(Service):
    breaks = Condition.NOT_SUBSCRIBED
    provoked_by: ClassVar = [("sub", "y", 1, LARGE), ("pub", "w", 1)]

    def recipients(self, publisher: str, notification: Notification) -> Iterable[str]:
        return dict.fromkeys(component for component, _ in self.subscriptions)

    def interested(self, component: str, notification: Notification) -> bool:
        return True


class OncePerSubscription(Service):
    """T-1: no elimination of duplicates."""

    breaks = Condition.DUPLICATE
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("sub", "y", 2, LARGE),
        ("pub", "w", 9),
    ]

    def recipients(self, publisher: str, notification: Notification) -> Iterable[str]:
        return [c for (c, _), f in self.subscriptions.items() if f.matches(notification)]

    def gate(self, component: str, notification: Notification) -> bool:
        return self.interested(component, notification)


class UnsubscribesLate(Service):
    """T-2: filters in the network only, so that what is in flight leaks."""

    breaks = Condition.NOT_SUBSCRIBED
    provoked_by: ClassVar = [("sub", "y", 1, POSITIVE), ("pub", "w", 1), ("unsub", "y", 1)]

    def interested(self, component: str, notification: Notification) -> bool:
        return True


class ForgetsWithTheSubscription(WithHistory):
    """T-3: what was delivered is forgotten at unsubscription, and history brings it again."""

    breaks = Condition.DUPLICATE
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("pub", "w", 1),
        ("settle",),
        ("unsub", "y", 1),
        ("sub", "y", 1, POSITIVE),
    ]

    def unsub(self, component: str, id: Hashable) -> None:
        super().unsub(component, id)
        self.seen = {(c, n) for c, n in self.seen if c != component}


class KnowsByContent(Service):
    """T-4: two equal readings are taken for one."""

    breaks = Condition.LOST
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("settle",),
        ("pub", "w", 1),
        ("pub", "w", 1),
    ]

    def identity(self, notification: Notification) -> Hashable:
        return tuple(notification.items())


class CountsSubscriptions(Service):
    """T-5: as many unsubscriptions are needed as there were subscriptions."""

    breaks = Condition.NOT_SUBSCRIBED
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("sub", "y", 1, POSITIVE),
        ("unsub", "y", 1),
        ("pub", "w", 1),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[tuple[str, Hashable]] = Counter()

    def sub(self, component: str, id: Hashable, filter: Filter) -> None:
        super().sub(component, id, filter)
        self.count[component, id] += 1

    def unsub(self, component: str, id: Hashable) -> None:
        self.count[component, id] -= 1
        if self.count[component, id] > 0:
            self.trace.unsub(component, id)
        else:
            super().unsub(component, id)


class KeysByPredicate(Service):
    """T-5: of two equal subscriptions, one kills the other."""

    breaks = Condition.LOST
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("sub", "y", 2, POSITIVE),
        ("unsub", "y", 1),
        ("settle",),
        ("pub", "w", 1),
    ]

    def unsub(self, component: str, id: Hashable) -> None:
        filter = self.subscriptions.get((component, id))
        super().unsub(component, id)
        for key in [k for k, f in self.subscriptions.items() if k[0] == component and f == filter]:
            del self.subscriptions[key]


class NoLocal(Service):
    """T-6: a publisher is not told of its own."""

    breaks = Condition.LOST
    provoked_by: ClassVar = [("sub", "y", 1, POSITIVE), ("settle",), ("pub", "y", 1)]

    def recipients(self, publisher: str, notification: Notification) -> Iterable[str]:
        return [c for c in super().recipients(publisher, notification) if c != publisher]


class HandlerPool(Service):
    """T-9: what arrived later may be handled earlier."""

    breaks = Condition.FIFO
    order = ("fifo",)
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("pub", "w", 1),
        ("pub", "w", 2),
    ]

    def take(self) -> tuple[str, Notification]:
        return self.in_flight.pop()


class MicroBatches(Service):
    """T-10: matched with a snapshot of the subscriptions, written without a gate."""

    breaks = Condition.NOT_SUBSCRIBED
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("pub", "w", 1),
        ("unsub", "y", 1),
        ("sub", "z", 1, POSITIVE),
    ]

    def gate(self, component: str, notification: Notification) -> bool:
        return True


class ReplayedMicroBatches(Service):
    """T-10: a batch that failed half way is written again."""

    breaks = Condition.DUPLICATE
    provoked_by: ClassVar = [("sub", "y", 1, POSITIVE), ("pub", "w", 1), ("pub", "w", 2)]

    def settle(self) -> None:
        for recipient, notification in self.in_flight:
            if self.interested(recipient, notification):
                self.trace.notify(recipient, notification)
        super().settle()


class WaitsForPredecessors(Service):
    """T-11: order by waiting for what the consumer never subscribed to."""

    breaks = Condition.LOST
    provoked_by: ClassVar = [
        ("sub", "y", 1, LARGE),
        ("settle",),
        ("pub", "w", 1),
        ("pub", "w", 9),
    ]

    def gate(self, component: str, notification: Notification) -> bool:
        assert notification.id is not None
        earlier = [n.id for _, n in self.published if n.id is not None and n.id < notification.id]
        mine = [id for id in earlier if id.producer == notification.id.producer]
        return all((component, id) in self.seen for id in mine) and super().gate(
            component, notification
        )


class AdvertisementsAtDelivery(Advertising):
    """T-12: the right test at the wrong time."""

    breaks = Condition.UNADVERTISED
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("pub", "w", 1),
        ("adv", "w", 1, POSITIVE),
    ]

    def conforms(self, component: str, notification: Notification) -> bool:
        return True

    def gate(self, component: str, notification: Notification) -> bool:
        assert notification.id is not None
        return super().conforms(notification.id.producer, notification) and super().gate(
            component, notification
        )


class AnyonesAdvertisement(Advertising):
    """T-12: the right time, but somebody else's advertisement."""

    breaks = Condition.UNADVERTISED
    provoked_by: ClassVar = [
        ("sub", "y", 1, POSITIVE),
        ("adv", "z", 1, POSITIVE),
        ("pub", "w", 1),
    ]

    def conforms(self, component: str, notification: Notification) -> bool:
        return any(filter.matches(notification) for filter in self.advertised.values())


class UncoversLate(Service):
    """T-13: a covering filter is withdrawn before the covered ones have taken its place."""

    breaks = Condition.LOST
    provoked_by: ClassVar = [
        ("sub", "y", 1, LARGE),
        ("sub", "z", 1, POSITIVE),
        ("settle",),
        ("unsub", "z", 1),
        ("pub", "w", 9),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.uncovered: list[Filter] = []

    def unsub(self, component: str, id: Hashable) -> None:
        self.uncovered += filter(None, [self.subscriptions.get((component, id))])
        super().unsub(component, id)

    def settle(self) -> None:
        super().settle()
        self.uncovered = []

    def recipients(self, publisher: str, notification: Notification) -> Iterable[str]:
        in_the_window = any(filter.matches(notification) for filter in self.uncovered)
        return [] if in_the_window else super().recipients(publisher, notification)


class Averages(Service):
    """R-01.19: the broker delivers the mean under the id of the last reading."""

    breaks = Condition.ALTERED
    provoked_by: ClassVar = [("sub", "y", 1, POSITIVE), ("pub", "w", 1), ("pub", "w", 9)]

    def notify(self, component: str, notification: Notification) -> None:
        readings = [n["x"] for _, n in self.published]
        mean = {"x": sum(readings) / len(readings)}
        super().notify(component, notification.replace(attributes=mean))


class Invents(Service):
    """R-01.19: the broker delivers the mean as a notification of its own."""

    breaks = Condition.PHANTOM
    provoked_by: ClassVar = [("sub", "y", 1, POSITIVE), ("pub", "w", 1)]

    def gate(self, component: str, notification: Notification) -> bool:
        mean = NotificationId("mean", 0, len(self.trace))
        self.trace.notify(component, notification.replace(id=mean))
        return super().gate(component, notification)


CORRECT: list[type[Service]] = [Service, WithHistory, Advertising]
BROKEN: list[type[Service]] = [
    NeverNotifies,
    DeliversEverything,
    OncePerSubscription,
    UnsubscribesLate,
    ForgetsWithTheSubscription,
    KnowsByContent,
    CountsSubscriptions,
    KeysByPredicate,
    NoLocal,
    HandlerPool,
    MicroBatches,
    ReplayedMicroBatches,
    WaitsForPredecessors,
    AdvertisementsAtDelivery,
    AnyonesAdvertisement,
    UncoversLate,
    Averages,
    Invents,
]
