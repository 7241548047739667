"""An inbox: several subscriptions of one component, to which everything is delivered once.

For the broker it is one subscription, with one place in every stream, one queue and one credit,
that asks for what any of its filters matches; so what several of them match comes once (R-01.20).
Filters are added and removed while it runs. Which of its subscriptions want a notification is found
out here, at the moment when it is handed out: who has unsubscribed is given nothing any more, also
of what was on its way (R-01.18). The rest is that of any subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from stentor.client.arrivals import Arrivals
from stentor.client.interest import InboxInterest, SubId
from stentor.client.local_broker import LocalBroker
from stentor.client.subscription import Subscription
from stentor.client.terms import Terms
from stentor.client.typed import filter_of
from stentor.client.waiting import TimeLimit
from stentor.errors import InvalidConfiguration
from stentor.model import Notification
from stentor.protocol.messages import Amend, Amended

if TYPE_CHECKING:
    from stentor.filters import Filter

_log: Final = logging.getLogger("stentor.client")


class Inbox(Subscription[Notification]):
    """Notifications that any of several filters matches, in order, each once. See `Bus.inbox`.

    `subscriptions` of each notification are those of the inbox that match it.
    """

    def __init__(
        self,
        local: LocalBroker,
        filters: Iterable[Filter],
        terms: Terms,
        *,
        handler: Callable[[Any], Any] | None = None,
    ) -> None:
        self._interest = InboxInterest(filters)
        if terms.past is not None:
            raise InvalidConfiguration(
                "an archive is read for one filter, so since=past(...) is for `subscribe`"
            )
        if (terms.since is not None or terms.retained) and not self.subscriptions:
            raise InvalidConfiguration(
                "history and last values are those of the filters that an inbox begins with; give "
                "them to `inbox`, as in bus.inbox('price > 100', since='earliest')"
            )
        super().__init__(local, filter_of("false"), terms, reader=_as_it_is, handler=handler)

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), "subscribe", "subscriptions", "unsubscribe"])

    @property
    def filter(self) -> Filter:
        """What all its subscriptions together ask for."""
        return self._interest.filter

    @property
    def subscriptions(self) -> list[SubId]:
        """All that it has.

        A durable inbox comes back with those that it had; the members of a group have the same.
        """
        return list(self._interest)

    async def subscribe(
        self,
        filter: str | Filter | type[Any] = "",
        *,
        where: str | Filter | None = None,
        timeout: float | None = None,
    ) -> SubId:
        """Ask for what a filter matches, too; that is in force everywhere when this returns."""
        if not self.attachment.number:
            await self.open()
        id = self._interest.add(self._local.run_hooks("subscribe", filter_of(filter, where)))
        try:
            await self._tell([id.filter], timeout)
        except BaseException:
            if id in self._interest:  # it was not refused; nobody waits for it any more
                self._interest.remove(id)
                self._record()
                if self._interest.is_stray(id.filter):  # the broker has it, but could not store it
                    self._interest.begin([id.filter])
                    withdrawing = self._local.start(self._say([id.filter]))
                    withdrawing.add_done_callback(self._unheard)
            raise
        return id

    async def unsubscribe(self, subscription: SubId, timeout: float | None = None) -> None:
        """Ask for it no longer. Nothing is handed out for it from now on."""
        if self._interest.remove(subscription):
            await self._tell([subscription.filter], timeout)
        else:
            self._record()

    async def _tell(self, filters: list[Filter], timeout: float | None) -> None:
        """Tell the broker whether these are wanted; who stops waiting does not stop that."""
        self._interest.begin(filters)
        self._record()
        telling = self._local.start(self._say(filters))
        try:
            async with TimeLimit(timeout, f"the broker did not answer for {self!r}"):
                await asyncio.shield(telling)
        except BaseException:
            if not telling.done():
                telling.add_done_callback(self._unheard)
            raise

    async def _say(self, filters: list[Filter]) -> None:
        """Say it until the broker has heard the last word about them."""
        said: tuple[list[str], list[str]] | None = None

        def word(number: int) -> Amend:
            nonlocal said
            said = self._interest.word(filters)
            return Amend(number, self.attachment.number, *said)

        try:
            while said != self._interest.word(filters):
                await self.attachment.put(word)
        finally:
            self._interest.end(filters)
            self._record()

    def _unheard(self, telling: asyncio.Task[None]) -> None:
        if not telling.cancelled() and (error := telling.exception()) is not None:
            _log.warning("%r: %s", self, error)

    # -- what is different from a subscription to one filter

    def _hooked(self) -> None:
        if self._local.hooks is not None:
            run_hooks = self._local.run_hooks
            admitted = [run_hooks("subscribe", id.filter) for id in self._interest]
            self._interest = InboxInterest(admitted)

    async def _begin(self) -> None:
        first = [id.filter for id in self._interest]
        self._interest.begin(first)
        try:
            await super()._begin()
            if self._interest.unsaid:  # the durable inbox, or the group, was there with others
                await self.attachment.put(
                    lambda n: Amend(n, self.attachment.number, *self._interest.word(first))
                )
        finally:
            self._interest.end(first)
            self._record()

    def _asks(self) -> str | list[str]:
        return self._interest.take_up()

    def amended(self, message: Amended) -> None:
        """What it asks for has changed at the broker."""
        self._interest.amended(message.added, message.removed)
        self._record()

    def _record(self) -> None:
        if self._recorded is not None and not self.over:
            agreed = self._interest.agreed if self._begun else []
            self._recorded.has(self.subscriptions, agreed)

    def _given(self, batch: list[Notification]) -> list[Notification]:
        wanted = []
        for notification in batch:
            if matching := self._interest.matching(notification):
                wanted.append(notification.for_subscriptions(matching))
            else:
                if isinstance(self._arrivals, Arrivals):
                    self._arrivals.unmark(notification)
                elif notification.delivery is not None:
                    notification.ack()
                self._local.dropped(notification, "no longer wanted")
        return super()._given(wanted)

    def _shown(self, notification: Notification) -> Notification | None:
        shown = super()._shown(notification)
        return None if shown is None else shown.for_subscriptions(notification.subscriptions)


def _as_it_is(notification: Notification) -> Notification:
    return notification
