"""What clients did and saw, recorded as a trace and held against the specification.

Publishers and subscribers are made through a `Recorder`. Every subscription is a component of its
own, and so is every publisher. The recorder keeps two accounts of a run:

*What is missing.* From the moment at which a subscription is in force, everything that is published
and matches belongs to it. `settled` waits until publishers have been answered and nothing that was
acknowledged is missing.

*The trace.* `check` hands what happened to `stentor.semantics`: who subscribed, published and was
notified, in the order in which the clients saw it, and the points at which nothing was in flight.
It finds what nobody thought of: notifications that were altered, came twice, to the wrong one,
out of order, or of which nobody knows.

A publication that was not acknowledged, because its publisher died, may have happened or not. It
counts as published if somebody was notified of it: then it belongs to all others, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf
from operator import itemgetter
from typing import Any, Protocol

from overlay_processes import PATIENCE, until

from stentor.client import Bus
from stentor.client.subscription import Subscription
from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.semantics import Report, Trace, check


class Diary(Protocol):
    """Another process' account of itself."""

    def catch_up(self) -> None: ...


class Component:
    """A subscription, as the recorder sees it."""

    def __init__(self, name: str, filter: Filter) -> None:
        self.name = name
        self.filter = filter
        #: When it came into force: nothing that was published before is owed.
        self.in_force_at = inf
        self.over = False
        self.received: set[NotificationId] = set()
        #: What it must still be notified of, as far as it is acknowledged.
        self.missing: set[NotificationId] = set()
        #: Notifications, repeats included.
        self.notified = 0
        #: When it was notified first and last, on the monotonic clock.
        self.first_at = self.last_at = 0.0

    def begin(self, at: float | None = None) -> None:
        """It is in force from now on."""
        self.in_force_at = min(self.in_force_at, time.monotonic() if at is None else at)


class Publisher:
    """A bus whose publications are recorded."""

    def __init__(self, recorder: Recorder, bus: Bus) -> None:
        self._recorder = recorder
        self.bus = bus
        self._unacknowledged: list[NotificationId] = []

    async def publish(
        self, event: Mapping[str, Any], *, volatile: bool = False, **options: Any
    ) -> NotificationId:
        """Publish without waiting for an answer."""
        notification = Notification(dict(event), time=datetime.now(UTC), **options)
        id = await self.bus.publish(notification, volatile=volatile)
        # It is sent at the end of this turn of the loop, so nobody has seen it yet.
        notification = notification.replace(id=id)
        self._recorder.published(self.bus.name, notification, owed=not volatile)
        if not volatile:
            self._unacknowledged.append(id)
        return id

    async def flush(self, timeout: float | None = PATIENCE) -> None:
        """Wait until everything so far is acknowledged."""
        waiting, self._unacknowledged = self._unacknowledged, []
        try:
            await self.bus.flush(timeout)
        except BaseException:
            self._unacknowledged = waiting + self._unacknowledged
            raise
        self._recorder.acknowledge(waiting)


class Recorder:
    """The account of one run."""

    def __init__(self) -> None:
        self.publications: dict[NotificationId, Notification] = {}
        self.acknowledged: set[NotificationId] = set()
        self.components: dict[str, Component] = {}
        self.publishers: list[Publisher] = []
        self._delivered: set[NotificationId] = set()
        #: Each with its time: diaries of other processes are read later than they are written.
        self._actions: list[tuple[float, tuple[Any, ...]]] = []

    # -- what happens

    def publisher(self, bus: Bus) -> Publisher:
        publisher = Publisher(self, bus)
        self.publishers.append(publisher)
        return publisher

    def _record(self, at: float | None, *action: Any) -> float:
        at = time.monotonic() if at is None else at
        self._actions.append((at, action))
        return at

    def published(
        self, who: str, notification: Notification, at: float | None = None, *, owed: bool = True
    ) -> None:
        id = notification.id
        assert id is not None
        self.publications[id] = notification
        at = self._record(at, "pub", who, notification)
        for component in self.components.values() if owed else ():
            if (
                component.in_force_at < at
                and not component.over
                and id not in component.received
                and component.filter.matches(notification)
            ):
                component.missing.add(id)

    def acknowledge(self, ids: Iterable[NotificationId]) -> None:
        self.acknowledged.update(ids)

    def component(self, name: str, filter: str) -> Component:
        """A new subscription, which may be notified from now on."""
        assert name not in self.components
        component = self.components[name] = Component(name, Filter(filter))
        self._record(None, "sub", name, name, component.filter)
        return component

    def ended(self, component: Component) -> None:
        """It was withdrawn: nothing more may come."""
        component.over = True
        component.missing.clear()
        self._record(None, "unsub", component.name, component.name)

    def also(self, component: Component, id: str, filter: str) -> None:
        """The component has a further subscription, whose notifications are not waited for."""
        self._record(None, "sub", component.name, id, Filter(filter))

    def no_longer(self, component: Component, id: str) -> None:
        self._record(None, "unsub", component.name, id)

    def notified(
        self, component: Component, notification: Notification, at: float | None = None
    ) -> None:
        id = notification.id
        assert id is not None
        at = self._record(at, "notify", component.name, notification)
        self._delivered.add(id)
        component.received.add(id)
        component.missing.discard(id)
        component.notified += 1
        component.last_at = at
        component.first_at = component.first_at or component.last_at

    @asynccontextmanager
    async def subscribed(
        self,
        bus: Bus,
        name: str,
        filter: str = "",
        *,
        pace: Callable[[], Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[Component]:
        """A subscription that is read all the time; `pace` is awaited before each notification."""
        component = self.component(name, filter)
        subscription = bus.subscribe(filter, **options)
        await subscription.open()
        component.begin()
        reading = asyncio.create_task(self.read(component, subscription, pace))
        try:
            yield component
        finally:
            reading.cancel()
            done = await asyncio.gather(reading, return_exceptions=True)
            await subscription.close()
            self.ended(component)
            if isinstance(done[0], Exception):
                raise done[0]

    async def read(
        self,
        component: Component,
        subscription: Subscription[Notification],
        pace: Callable[[], Any] | None = None,
    ) -> None:
        async for notification in subscription:
            self.notified(component, notification)
            if pace is not None:
                await pace()

    def quiescent(self) -> None:
        """Nothing is in flight."""
        self._record(None, "quiescent")

    # -- the end

    def lacking(self) -> dict[str, set[NotificationId]]:
        """What is certainly published, and has not come."""
        certain = self.acknowledged | self._delivered
        return {
            c.name: lacking for c in self.components.values() if (lacking := c.missing & certain)
        }

    def _shown_lack(self) -> str:
        shown = {name: (len(ids), sorted(ids)[:3]) for name, ids in self.lacking().items()}
        return f"everything arrives; lacking is {shown}"

    async def settled(self, seconds: float = PATIENCE, *, diaries: Iterable[Diary] = ()) -> None:
        """Until everything is answered, and has come to all whom it belongs to."""
        for publisher in self.publishers:
            await publisher.flush(seconds)

        def arrived() -> bool:
            for diary in diaries:
                diary.catch_up()
            return not self.lacking()

        await until(arrived, self._shown_lack, seconds)
        self.quiescent()

    def trace(self) -> Trace:
        trace = Trace()
        certain = self.acknowledged | self._delivered
        for _, action in sorted(self._actions, key=itemgetter(0)):
            match action:
                case ("pub", who, notification):
                    if notification.id in certain:
                        trace.pub(who, notification)
                case ("notify", name, notification):
                    trace.notify(name, notification)
                case ("sub", name, id, filter):
                    trace.sub(name, id, filter)
                case ("unsub", name, id):
                    trace.unsub(name, id)
                case _:
                    trace.quiescent()
        return trace

    def fold(self) -> None:
        """Forget what was checked, in a long run. Whatever comes of it later was not published."""
        live = [c for c in self.components.values() if not c.over]
        self.components = {component.name: component for component in live}
        self._actions.clear()
        self.publications.clear()
        self.acknowledged.clear()
        self._delivered.clear()
        for component in live:
            component.received.clear()
            self._record(None, "sub", component.name, component.name, component.filter)
        self.quiescent()

    def check(self, *, order: Iterable[str] = ("fifo",)) -> Report:
        """Hold the run against the specification. The report, which has no violations."""
        report = check(self.trace(), order=order)
        assert report.ok, str(report)[:4000]
        return report
