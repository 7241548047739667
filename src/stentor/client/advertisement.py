"""Advertisements: what this client intends to publish, and whether anybody wants it.

The broker tells what is asked for of an advertisement, at once and after every change. With
`quench` the library makes use of that (R-07.73): a publication that an advertisement announces, and
that none of the filters asked for matches, is not sent. As long as it is not known what is asked
for, everything counts as wanted: before the broker's first word, and while there is no connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stentor.client.encoding import PARTS, notification_of
from stentor.client.times import resolve
from stentor.client.typed import filter_of
from stentor.errors import NotAdvertised, StentorError
from stentor.model import Notification, NotificationId
from stentor.notation.completion import offering
from stentor.protocol.messages import Advertise, Unadvertise

if TYPE_CHECKING:
    from stentor.client.bus import Bus
    from stentor.filters import Filter

_log: Final = logging.getLogger("stentor.client")

#: Called with the advertisement whenever what is asked for of it has changed.
OnDemand = Callable[["Advertisement"], object]


class Advertisement:
    """A standing offer. Made by `Bus.advertise`; ends with its `async with`, or by `close`."""

    def __init__(self, bus: Bus, filter: Filter, *, quench: bool, demand: bool) -> None:
        self._bus = bus
        self._local = bus._local
        self._number = self._local.number()
        self._demand = demand or quench
        self._filters: list[Filter] | None = None
        self._callbacks: list[OnDemand] = []
        self._open = False
        #: What is offered.
        self.filter = filter
        #: Whether publications that nobody asks for are held back.
        self.quench = quench
        #: How many publications were held back.
        self.quenched = 0

    __dir__ = offering(
        "close", "demanded", "filter", "filters", "on_demand", "open", "publish", "quenched"
    )

    def __repr__(self) -> str:
        return f"<Advertisement of {str(self.filter)!r}>"

    # -- demand

    @property
    def demanded(self) -> bool:
        """Whether somebody asks for some of it. Unknown counts as yes."""
        return self._filters is None or bool(self._filters)

    @property
    def filters(self) -> list[Filter] | None:
        """What is asked for, as far as it concerns this advertisement; None if unknown."""
        return None if self._filters is None else list(self._filters)

    def on_demand(self, callback: OnDemand) -> OnDemand:
        """Have a function called after every change of what is asked for; also a decorator."""
        self._callbacks.append(callback)
        return callback

    def wants(self, notification: Notification) -> bool:
        """Whether a publication that this announces is to be sent."""
        if not self.quench or self._filters is None:
            return True
        return any(filter.matches(notification) for filter in self._filters)

    def demand(self, filters: list[str]) -> None:
        """The broker says what is asked for."""
        try:
            self._filters = [filter_of(text) for text in filters]
        except StentorError:  # an operator that is registered elsewhere only: cannot tell
            self._filters = None
        for callback in self._callbacks:
            try:
                callback(self)
            except Exception:
                _log.exception("the callback %r for demand failed", callback)

    def unknown(self) -> None:
        """There is no connection, so there is no telling what is asked for."""
        self._filters = None

    # -- publishing

    async def publish(self, event: Any, ack: bool = False, **options: Any) -> NotificationId:
        """As `Bus.publish`, but `NotAdvertised` for what this advertisement does not announce."""
        parts: dict[str, Any] = {name: options.pop(name) for name in PARTS if name in options}
        resolve(parts, self._local.now())
        notification = notification_of(event, parts)
        if not self.filter.matches(notification):
            raise NotAdvertised(
                f"{notification!r} is not what was advertised, {str(self.filter)!r}; "
                "publish it through the bus, or advertise more"
            )
        return await self._bus.publish(notification, ack, **options)

    # -- life

    def message(self) -> Advertise:
        return Advertise(self._number, str(self.filter), self._demand)

    def _record(self, filter: Filter | None) -> None:
        if self._local.recording is not None:
            self._local.recording.advertised(self._number, filter)

    async def open(self) -> Advertisement:
        """Advertise; the broker has taken it when this returns."""
        if not self._open:
            self._local.check_open()
            self.filter = self._local.run_hooks("advertise", self.filter)
            self._open = True
            self._record(self.filter)
            answer = self._local.expect(self._number)
            self._local.advertisements[self._number] = self
            self._local.link.send(self.message())
            try:
                await answer
            except BaseException:
                self._open = False
                self._local.advertisements.pop(self._number, None)
                self._record(None)
                raise
        return self

    async def close(self) -> None:
        """Advertise no longer."""
        if not self._open:
            return
        self._open = False
        self._local.advertisements.pop(self._number, None)
        self._record(None)
        if self._local.state == "connected":  # otherwise the broker has forgotten it already
            answer = self._local.expect(self._number, lapses=True)
            self._local.link.send(Unadvertise(self._number))
            await answer

    def __await__(self) -> Any:
        return self.open().__await__()

    async def __aenter__(self) -> Advertisement:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
