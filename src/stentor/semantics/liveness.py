"""Liveness on finite runs (algorithm A-3).

The liveness of the model, Eq 2.2, cannot fail on a finite run: it tolerates any finite number of
losses and any finite delay. So runs record settling points, at which nothing is in flight, and are
held to something stricter. A subscription that is kept to the end of the run has settled at the
first settling point after it, and the same goes for an advertisement. Whatever is published after
both have settled, and matches both, must have been delivered by the last settling point.

Nothing is owed for a subscription that was withdrawn later, for what was published before it
settled, or after the last settling point (R-01.22). Nor is what may expire, or is delivered later
than it was published, to whoever subscribes then: a run does not say when that was. A run that has
fewer than two settling points therefore owes nothing, and `Report.owed` shows it.

The cost is that of matching each publication once with each distinct filter that may match it (see
`candidates`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics.actions import Notify, Pub
from stentor.semantics.candidates import Candidates
from stentor.semantics.history import History
from stentor.semantics.intervals import ALWAYS, Interval
from stentor.semantics.oracle import Oracle, settled
from stentor.semantics.violations import Condition, Violation


class Liveness(Struct, frozen=True):
    """How many deliveries were owed, and those that are missing."""

    owed: int
    violations: list[Violation]


class Finder(Protocol):
    """Filters by their places in a list."""

    def of(self, notification: Notification) -> Iterable[int]:
        """The places of all filters that may match, ascending."""


def liveness(
    history: History,
    end: Oracle,
    finder: Callable[[Iterable[Filter]], Finder] = Candidates,
) -> Liveness:
    """Judge a run by its history and by the state in which it ended.

    `finder` makes what finds the filters to be asked about a publication.
    """
    points = end.settling_points
    if not points:
        return Liveness(0, [])
    receivers: dict[NotificationId, set[str]] = {}
    publications: list[tuple[int, Pub]] = []
    for position, action in history:
        if position > points[-1]:
            break
        if isinstance(action, Notify):
            receivers[action.id].add(action.component)
        else:
            receivers[action.id] = set()
            if action.notification.expires is action.notification.deliver_at is None:
                publications.append((position, action))

    holders = list(_kept_subscriptions(end).items())
    candidates = finder(filter for filter, _ in holders)
    owed = 0
    violations: list[Violation] = []
    for position, action in publications:
        passed = bisect_right(points, position)
        if passed == 0:
            continue
        point = points[passed - 1]
        advertisement = _settled_advertisement(end, action, point)
        if advertisement is None:
            continue
        asked = (holders[place] for place in candidates.of(action.notification))
        reasons = _settled_subscriptions(asked, action.notification, point)
        owed += len(reasons)
        for component, subscription in reasons.items():
            if component not in receivers[action.id]:
                why = _lost(end, position, action, subscription, advertisement)
                violations.append(
                    Violation(Condition.LOST, position, action, why, component, subscription.id)
                )
    return Liveness(owed, violations)


def _kept_subscriptions(end: Oracle) -> dict[Filter, list[Interval]]:
    holders: dict[Filter, list[Interval]] = {}
    for component in end.subscriptions.components():
        for interval in end.subscriptions.active(component):
            holders.setdefault(interval.filter, []).append(interval)
    return holders


def _settled_advertisement(end: Oracle, action: Pub, point: int) -> Interval | None:
    for interval in settled(end.advertisements.active(action.component), point):
        if interval.filter.matches(action.notification):
            return interval
    return None


def _settled_subscriptions(
    holders: Iterable[tuple[Filter, list[Interval]]], notification: Notification, point: int
) -> dict[str, Interval]:
    """The components that a publication is owed to, each with a subscription that says so."""
    reasons: dict[str, Interval] = {}
    for filter, intervals in holders:
        if filter.matches(notification):
            for interval in settled(intervals, point):
                reasons.setdefault(interval.component, interval)
    return reasons


def _lost(
    end: Oracle, position: int, action: Pub, subscription: Interval, advertisement: Interval
) -> str:
    points = end.settling_points

    def since(interval: Interval) -> str:
        return f"settled at action {points[bisect_right(points, interval.since)]}"

    why = (
        f"{action.component} published {action.id} at action {position}, but "
        f"{subscription.component} was not notified of it by the last settling point, action "
        f"{points[-1]}, although its subscription {subscription} had {since(subscription)}"
    )
    if advertisement.since > ALWAYS:
        why += f" and the advertisement {advertisement} had {since(advertisement)}"
    return why
