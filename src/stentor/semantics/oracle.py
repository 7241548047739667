"""The reference machine: what the service means, one action at a time (algorithm A-2).

The oracle keeps the abstract state of R-01.07 to R-01.12 (S and A, each component's active filters;
P, what was published; D, what each component was notified of, in order) and changes it by nothing
but the actions that it is shown. It judges each delivery against the state just before it, reports
what is wrong, and then takes the action for done, so that it can go on. Nothing that a trace holds
makes it raise an error.

It judges safety only. Liveness is about whole runs (`liveness`), but whom a publication would have
to reach can be asked at any point: `interested` says who may be notified now, `owed` who has to be,
provided that nobody withdraws anything later.

Without advertisements the machine is the same: everyone advertises everything (R-01.36).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from msgspec import Struct

from stentor.model import Notification, NotificationId
from stentor.semantics.actions import (
    Action,
    Adv,
    Internal,
    Notify,
    Pub,
    Quiescent,
    Sub,
    Unadv,
    Unsub,
)
from stentor.semantics.intervals import Interval, Intervals
from stentor.semantics.violations import Condition, Violation


class Publication(Struct, frozen=True):
    """What is known of a notification since it was published."""

    component: str
    position: int
    conforms: bool
    notification: Notification


class Oracle:
    """The state of the service, and its judgment of every action.

    >>> from stentor.filters import Filter
    >>> n = Notification({"x": 2}, id=NotificationId("a", 0, 3))
    >>> oracle = Oracle()
    >>> oracle.step(Sub("b", "b#1", Filter("x > 1")))
    []
    >>> oracle.interested(n)
    {'b'}
    >>> oracle.step(Pub("a", n)), oracle.step(Unsub("b", "b#1"))
    ([], [])
    >>> print(*oracle.step(Notify("b", n)))
    NOT_SUBSCRIBED at action 3: b was notified of a:0:3 at action 3, but its last matching
    subscription b#1 (x > 1) was withdrawn at action 2
    """

    def __init__(self, *, advertisements: bool = False) -> None:
        self.subscriptions = Intervals()
        self.advertisements = Intervals(everything=not advertisements)
        self.published: dict[NotificationId, Publication] = {}
        self.delivered: dict[str, list[NotificationId]] = {}
        #: Where nothing was in flight, in order.
        self.settling_points: list[int] = []
        self._first_delivery: dict[tuple[str, NotificationId], int] = {}
        self._position = 0

    def step(self, action: Action, position: int | None = None) -> list[Violation]:
        """Take one action. Returns what is wrong with it, which for most is nothing.

        Actions are numbered from 0 on, unless they come with positions that rise.
        """
        position = self._position if position is None else position
        self._position = position + 1
        match action:
            case Notify():
                return self._notify(action, position)
            case Pub():
                return self._publish(action, position)
            case Sub(component, id, filter):
                self.subscriptions.begin(component, id, filter, position)
            case Unsub(component, id):
                self.subscriptions.end(component, id, position)
            case Adv(component, id, filter):
                self.advertisements.begin(component, id, filter, position)
            case Unadv(component, id):
                self.advertisements.end(component, id, position)
            case Quiescent():
                self.settling_points.append(position)
            case Internal():
                pass
        return []

    def interested(self, notification: Notification) -> set[str]:
        """The components that have an active subscription that matches."""
        return {
            component
            for component in self.subscriptions.components()
            if _any_matches(self.subscriptions.active(component), notification)
        }

    def owed(self, publisher: str, notification: Notification) -> set[str]:
        """The components that have to be notified if this is published now (algorithm A-3).

        These are the ones with a matching subscription that has settled, if a matching
        advertisement of the publisher has settled too. The debt lapses if either is withdrawn
        before the end of the run.
        """
        if not self.settling_points:
            return set()
        last = self.settling_points[-1]
        if not _any_matches(settled(self.advertisements.active(publisher), last), notification):
            return set()
        return {
            component
            for component in self.subscriptions.components()
            if _any_matches(settled(self.subscriptions.active(component), last), notification)
        }

    def _publish(self, action: Pub, position: int) -> list[Violation]:
        component, notification, id = action.component, action.notification, action.id
        earlier = self.published.get(id)
        if earlier is not None:
            why = (
                f"{component} published {id} at action {position}, "
                f"but {earlier.component} had published it at action {earlier.position}"
            )
            return [Violation(Condition.REPEATED_PUBLICATION, position, action, why)]
        conforms = _any_matches(self.advertisements.active(component), notification)
        self.published[id] = Publication(component, position, conforms, notification)
        return []

    def _notify(self, action: Notify, position: int) -> list[Violation]:
        component, id = action.component, action.id
        notification = action.notification
        wrong: list[tuple[Condition, str]] = []
        withdrawn: Hashable = None
        publication = self.published.get(id)
        if publication is None:
            wrong.append((Condition.PHANTOM, "but nobody had published it"))
        else:
            notification = publication.notification
            if action.notification != notification:
                wrong.append((Condition.ALTERED, _altered(publication, action.notification)))
        if not _any_matches(self.subscriptions.active(component), notification):
            why, withdrawn = self._not_subscribed(component, notification)
            wrong.append((Condition.NOT_SUBSCRIBED, why))
        first = self._first_delivery.setdefault((component, id), position)
        if first != position:
            wrong.append((Condition.DUPLICATE, f"but had been notified of it at action {first}"))
        if publication is not None and not publication.conforms:
            why = (
                f"but no advertisement of its publisher {publication.component} matched "
                f"when it was published at action {publication.position}"
            )
            wrong.append((Condition.UNADVERTISED, why))
        self.delivered.setdefault(component, []).append(id)
        told = f"{component} was notified of {id} at action {position}"
        return [
            Violation(
                condition,
                position,
                action,
                f"{told}, {why}",
                subscription=withdrawn if condition is Condition.NOT_SUBSCRIBED else None,
            )
            for condition, why in wrong
        ]

    def _not_subscribed(self, component: str, notification: Notification) -> tuple[str, Hashable]:
        """Why, and the matching subscription that was withdrawn last."""
        for interval in reversed(self.subscriptions.ended(component)):
            if interval.filter.matches(notification):
                why = (
                    f"but its last matching subscription {interval} "
                    f"was withdrawn at action {interval.until}"
                )
                return why, interval.id
        return "but it had never had a matching subscription", None


def settled(intervals: Iterable[Interval], point: int) -> Iterable[Interval]:
    """Those that were active at a settling point already."""
    return (interval for interval in intervals if interval.since < point)


def _any_matches(intervals: Iterable[Interval], notification: Notification) -> bool:
    return any(interval.filter.matches(notification) for interval in intervals)


def differing(published: Notification, delivered: Notification) -> list[str]:
    """The attributes and other parts in which two notifications differ.

    >>> differing(Notification({"x": 1, "y": 2}), Notification({"x": 1.0, "y": 2}, channel="c"))
    ['x', 'channel']
    """
    if published == delivered:
        return []
    names = [
        name
        for name in sorted({*published, *delivered})
        if name not in published
        or name not in delivered
        # As notifications, because their equality tells 1 from 1.0.
        or Notification({name: published[name]}) != Notification({name: delivered[name]})
    ]
    parts = ("type", "subject", "channel", "payload", "content_type", "time")
    return names + [part for part in parts if getattr(published, part) != getattr(delivered, part)]


def _altered(publication: Publication, delivered: Notification) -> str:
    names = differing(publication.notification, delivered)
    return (
        f"but {publication.component} had published it at action {publication.position} "
        f"with another value of {', '.join(names)}"
    )
