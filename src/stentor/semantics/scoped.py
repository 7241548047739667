"""Does a run with scopes conform? The predicates of the three layers (04: Defs 1, 6.3, 6.6).

What scopes add to the model is one relation: `(n, X) ⇝ (n', Y)`, what X publishes as n is seen at Y
as n'. Without scopes everybody sees everything as it is; without mappings n' is n, and the relation
is visibility. So one checker does for all three layers, and a trace says by `Rescoped` what the
relation is from then on. How it comes about, by graphs, interfaces or mappings, does not matter
here: it is asked for (`Visibility`).

*Safety.* A component is notified of n' only if it has a subscription that matches n' (and not what
was published), if somebody has published n with `(n, X) ⇝ (n', Y)`, and never again of the same n'.

*Liveness* is read as it is meant (04/T4): as printed, one instant of invisibility would excuse all
later losses. Whatever is published after a subscription has settled, and is visible from then on to
the last settling point, has to be delivered by then.

When graphs change while notifications are under way, there are three readings of "visible"
(R-04.23):

    serial     at the moment of delivery: nothing is under way while a graph changes
    drain      the same, and before a change everything was delivered that it takes away
    interval   at some moment between publication and delivery; what was visible for a part of that
               time only may be delivered, and need not be
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from stentor.errors import InvalidConfiguration
from stentor.model import Notification, NotificationId
from stentor.semantics.actions import (
    Action,
    Notify,
    Pub,
    Quiescent,
    Rescoped,
    Sub,
    Unsub,
    Visibility,
)
from stentor.semantics.intervals import Intervals
from stentor.semantics.violations import Condition, Report, Violation

CONSISTENCY: Final = ("serial", "drain", "interval")
DUPLICATES: Final = ("version", "origin", "per_path")


class _Published(Struct, frozen=True):
    action: Pub
    position: int


def check_scoped(
    trace: Sequence[Action], *, consistency: str = "serial", duplicates: str = "version"
) -> Report:
    """Hold a trace against the predicates of scoped systems.

    With `duplicates="origin"` a component may have one version of a notification only, with
    "per_path" the same one several times; by default each version once (04/A5).

    >>> from stentor.filters import Filter
    >>> from stentor.semantics import Trace
    >>> class Nobody:
    ...     def seen(self, publisher, notification):
    ...         return [(publisher, notification)]
    >>> trace = Trace([Rescoped(Nobody())])
    >>> n = Notification({"x": 1}, id=NotificationId("a", 0, 0))
    >>> trace.sub("b", "b#1", Filter("x > 0"))
    >>> trace.pub("a", n)
    >>> trace.notify("b", n)
    >>> print(check_scoped(trace))
    1 violation (4 actions, 1 publication, 1 delivery, 0 owed)
      INVISIBLE at action 3: b was notified of a:0:0 at action 3, but it cannot see it
    """
    for value, known in ((consistency, CONSISTENCY), (duplicates, DUPLICATES)):
        if value not in known:
            raise InvalidConfiguration(f"{value!r}: choose from {', '.join(known)}")
    run = _Run(trace)
    violations = [*_safety(run, consistency, duplicates)]
    if consistency == "drain":
        violations += _drained(run)
    missing, owed = _liveness(run, duplicates)
    return Report(
        violations=tuple(sorted([*violations, *missing], key=lambda each: each.position)),
        actions=len(trace),
        publications=len(run.published),
        deliveries=sum(isinstance(action, Notify) for action in trace),
        owed=owed,
    )


class _Run:
    """A trace, with what was visible when."""

    def __init__(self, trace: Sequence[Action]) -> None:
        self.trace = trace
        self.changes: list[int] = [-1]
        #: None, before scopes are told of: everybody sees everything as it is.
        self._views: list[Visibility | None] = [None]
        self.points: list[int] = []
        self.published: dict[NotificationId, _Published] = {}
        self.repeated: list[tuple[int, Pub]] = []
        self._seen: dict[tuple[NotificationId, int], dict[str, set[Notification]]] = {}
        for position, action in enumerate(trace):
            match action:
                case Rescoped(view):
                    self.changes.append(position)
                    self._views.append(view)
                case Quiescent():
                    self.points.append(position)
                case Pub() if action.id in self.published:
                    self.repeated.append((position, action))
                case Pub():
                    self.published[action.id] = _Published(action, position)

    def views(self, first: int, last: int) -> range:
        """The views that were in force between two positions."""
        return range(bisect_right(self.changes, first) - 1, bisect_right(self.changes, last))

    def versions(self, each: _Published, view: int, component: str) -> set[Notification]:
        """As what a component sees a publication under one of the views."""
        action, visibility = each.action, self._views[view]
        if visibility is None:
            return {action.notification}
        key = action.id, view
        if key not in self._seen:
            found: dict[str, set[Notification]] = {}
            for consumer, version in visibility.seen(action.component, action.notification):
                found.setdefault(consumer, set()).add(version)
            self._seen[key] = found
        return self._seen[key].get(component, set())


def _safety(run: _Run, consistency: str, duplicates: str) -> Iterable[Violation]:
    for position, again in run.repeated:
        first = run.published[again.id]
        why = (
            f"{again.component} published {again.id} at action {position}, but "
            f"{first.action.component} had published it at action {first.position}"
        )
        yield Violation(Condition.REPEATED_PUBLICATION, position, again, why)
    subscriptions = Intervals()
    had: dict[tuple[str, Hashable], int] = {}
    for position, action in enumerate(run.trace):
        match action:
            case Sub(component, id, filter):
                subscriptions.begin(component, id, filter, position)
            case Unsub(component, id):
                subscriptions.end(component, id, position)
            case Notify():
                told = f"{action.component} was notified of {action.id} at action {position}"
                for condition, why in _wrong(run, action, position, consistency, subscriptions):
                    yield Violation(condition, position, action, f"{told}, {why}")
                version = action.id if duplicates == "origin" else (action.id, action.notification)
                first_time = had.setdefault((action.component, version), position)
                if first_time != position and duplicates != "per_path":
                    why = f"{told}, but had been notified of it at action {first_time}"
                    yield Violation(Condition.DUPLICATE, position, action, why)


def _wrong(
    run: _Run, action: Notify, position: int, consistency: str, subscriptions: Intervals
) -> Iterable[tuple[Condition, str]]:
    active = subscriptions.active(action.component)
    if not any(each.filter.matches(action.notification) for each in active):
        yield Condition.NOT_SUBSCRIBED, "but had no matching subscription then"
    published = run.published.get(action.id)
    if published is None or published.position > position:
        yield Condition.PHANTOM, "but nobody had published it"
        return
    first = published.position if consistency == "interval" else position
    seen: set[Notification] = set()
    for view in run.views(first, position):
        seen |= run.versions(published, view, action.component)
    if not seen:
        yield Condition.INVISIBLE, "but it cannot see it"
    elif action.notification not in seen:
        yield Condition.ALTERED, "but sees it otherwise"


def _drained(run: _Run) -> Iterable[Violation]:
    """What a change takes away, but was due: it had to be delivered before."""
    subscriptions = Intervals()
    had: set[tuple[str, NotificationId, Notification]] = set()
    waiting: list[_Published] = []
    for position, action in enumerate(run.trace):
        match action:
            case Sub(component, id, filter):
                subscriptions.begin(component, id, filter, position)
            case Unsub(component, id):
                subscriptions.end(component, id, position)
            case Notify():
                had.add((action.component, action.id, action.notification))
            case Pub():
                waiting.append(run.published[action.id])
            case Rescoped():
                view = run.views(position, position)[0]
                for each in waiting:
                    if each.position <= run.changes[view - 1]:
                        continue  # published under an earlier view, and judged then
                    for component in subscriptions.components():
                        before = run.versions(each, view - 1, component)
                        after = run.versions(each, view, component)
                        for version in before - after:
                            wanted = any(
                                s.since < each.position and s.filter.matches(version)
                                for s in subscriptions.active(component)
                            )
                            if wanted and (component, each.action.id, version) not in had:
                                why = (
                                    f"{each.action.id}, published at action {each.position}, was "
                                    f"not delivered to {component} before the scopes changed"
                                )
                                yield Violation(
                                    Condition.NOT_DRAINED, position, each.action, why, component
                                )
                waiting.clear()


def _liveness(run: _Run, duplicates: str) -> tuple[list[Violation], int]:
    if not run.points:
        return [], 0
    last = run.points[-1]
    received: dict[tuple[str, NotificationId], set[Notification]] = {}
    subscriptions = Intervals()
    for position, action in enumerate(run.trace):
        match action:
            case Notify() if position <= last:
                received.setdefault((action.component, action.id), set()).add(action.notification)
            case Sub(component, id, filter):
                subscriptions.begin(component, id, filter, position)
            case Unsub(component, id):
                subscriptions.end(component, id, position)
    violations: list[Violation] = []
    owed = 0
    for each in run.published.values():
        passed = bisect_right(run.points, each.position)
        if each.position > last or not passed:
            continue
        point = run.points[passed - 1]
        for component in subscriptions.components():
            kept = [s for s in subscriptions.active(component) if s.since < point]
            due = _lasting(run, each, component, last)
            due = {v for v in due if any(s.filter.matches(v) for s in kept)}
            have = received.get((component, each.action.id), set())
            missing = due - have
            if duplicates == "origin" and len(due) - len(missing):
                missing = set()
            owed += len(due)
            for version in missing:
                why = (
                    f"{each.action.component} published {each.action.id} at action "
                    f"{each.position}, but {component}, who saw it as {dict(version)} all the "
                    f"time, was not notified of it by the last settling point, action {last}"
                )
                violations.append(
                    Violation(Condition.LOST, each.position, each.action, why, component)
                )
    return violations, owed


def _lasting(run: _Run, each: _Published, component: str, last: int) -> set[Notification]:
    """The versions that a component saw from the publication on."""
    views = run.views(each.position, last)
    found = run.versions(each, views[0], component)
    for view in views[1:]:
        found = found & run.versions(each, view, component)
    return found
