"""Anonymous request and reply over publish/subscribe (R-01.47, A-16).

A request is a publication that says where replies are wanted: its attribute `reply_to` names the
inbox of whoever asks, `correlation_id` the request. A reply is a publication with `in_reply_to`,
the same inbox, and the same `correlation_id`. Neither side knows the other: any number of providers
may answer, each as often as it likes, and whoever asks takes what comes until it has enough or time
is up. No reply at all is an error.

There is one inbox for each bus. It is subscribed before the first request goes out and stays: an
inbox for each request would miss the first replies. Replies to requests that are over are dropped.
Requests and replies are volatile unless asked otherwise.

A provider that raises an error replies with that: an event of the type `stentor.ProviderFailed`
with the name of the error's class in `kind` and its text in `reason`, but nothing of where it
happened.

Whether there is anybody to wait for is a question to the broker, put when the request is on its
way. A provider's filter asks for `reply_to`; a subscriber that happens to see requests has one that
matches without it, and does not count. The broker looks at the subscriptions of its own clients and
at what neighbors have announced, which may be more than there is; so it may say yes where nobody
replies, and then time has to tell.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable
from inspect import isasyncgen, isawaitable, isgenerator
from typing import TYPE_CHECKING, Any, Final

from stentor.client.encoding import notification_of
from stentor.client.subscription import Subscription
from stentor.client.terms import Terms
from stentor.client.times import resolve
from stentor.client.typed import filter_of
from stentor.client.waiting import checked_seconds
from stentor.errors import (
    InvalidConfiguration,
    InvalidNotification,
    NobodyProvides,
    NoReply,
    ProviderFailed,
    StentorError,
)
from stentor.model import Notification, encode

if TYPE_CHECKING:
    from stentor.client.bus import Bus
    from stentor.filters import Filter

#: The attributes by which requests and replies find each other.
REPLY_TO: Final = "reply_to"
IN_REPLY_TO: Final = "in_reply_to"
CORRELATION: Final = "correlation_id"
#: Replies to one request that may wait to be looked at; more are dropped.
MAX_WAITING: Final = 10_000
#: The event type of a reply that is an error, and the longest text of one.
FAILED: Final = "stentor.ProviderFailed"
MAX_REASON: Final = 1_000


class Requests:
    """The requesting side of a bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._inbox = f"{bus.name}/{secrets.token_hex(8)}"
        self._lock = asyncio.Lock()
        self._subscription: Subscription[Notification] | None = None
        self._numbers = itertools.count(1)
        self._open: dict[str, asyncio.Queue[Notification | None]] = {}
        #: Replies that came too late, or were too many.
        self.dropped = 0

    async def _ready(self) -> None:
        async with self._lock:
            if self._subscription is None or self._subscription.over:
                filter = filter_of(f"{IN_REPLY_TO} = '{self._inbox.replace(chr(39), chr(39) * 2)}'")
                self._subscription = await Subscription[Notification](
                    self._bus._local, filter, Terms(), handler=self._arrived
                ).open()

    def _arrived(self, reply: Notification) -> None:
        waiting = self._open.get(reply.get(CORRELATION))
        if waiting is None or waiting.qsize() >= MAX_WAITING:
            self.dropped += 1
        else:
            waiting.put_nowait(reply)

    async def all(
        self,
        event: Any,
        timeout: float,
        max_replies: int | None,
        volatile: bool,
        parts: dict[str, Any],
    ) -> AsyncGenerator[Notification, None]:
        """Replies as they come."""
        if max_replies is not None and max_replies < 1:
            raise InvalidConfiguration(f"max_replies={max_replies} leaves no reply to wait for")
        resolve(parts, self._bus._local.now())
        request = notification_of(event, parts)
        for name in (REPLY_TO, CORRELATION):
            if name in request:
                raise InvalidNotification(
                    f"the attribute {name!r} of a request is set by the library; rename it"
                )
        deadline = asyncio.get_running_loop().time() + (checked_seconds(timeout) or 0.0)
        replies: asyncio.Queue[Notification | None] = asyncio.Queue()
        count = good = 0
        failure: ProviderFailed | None = None
        asking: asyncio.Task[None] | None = None
        id = str(next(self._numbers))
        try:
            async with asyncio.timeout_at(deadline):
                await self._ready()
            self._open[id] = replies
            addressed = {**request, REPLY_TO: self._inbox, CORRELATION: id}
            async with asyncio.timeout_at(deadline):
                sent = request.replace(attributes=addressed)
                await self._bus.publish(sent, volatile=volatile)
            asking = self._bus._local.start(self._ask(sent, replies))
            while max_replies is None or count < max_replies:
                async with asyncio.timeout_at(deadline):
                    reply = await replies.get()
                if reply is None:
                    if not count:
                        raise NobodyProvides(
                            f"nobody provides {dict(request)}: no provider's filter matches it"
                        )
                    continue
                count += 1
                if reply.type == FAILED:
                    failure = failure or _failure(reply)
                    continue
                good += 1
                yield reply
        except NobodyProvides:  # a TimeoutError, too
            raise
        except TimeoutError:
            if not count:
                raise NoReply(
                    f"nobody replied to {dict(request)} within {timeout:g} seconds; is there a "
                    "provider that subscribes to it?"
                ) from None
        finally:
            if asking is not None:
                asking.cancel()
            self._open.pop(id, None)
        if failure is not None and not good:
            raise failure

    async def _ask(
        self, request: Notification, replies: asyncio.Queue[Notification | None]
    ) -> None:
        """Put None behind the replies if nobody will reply."""
        try:
            provided = await self._bus._local.ask("provided", {"request": encode(request)})
        except StentorError:  # it may not be asked, or the broker is of an older release
            return
        if provided is False:
            replies.put_nowait(None)


def requests_of(filter: Filter) -> Filter:
    """Of what the filter matches, the requests."""
    return filter & filter_of(f"exists {REPLY_TO}")


def _failure(reply: Notification) -> ProviderFailed:
    kind, reason = str(reply.get("kind", "")), str(reply.get("reason", ""))
    text = f"{kind}: {reason}" if reason else kind
    return ProviderFailed(f"the provider raised {text}", kind=kind, reason=reason)


async def answered(
    bus: Bus, request: Notification, provide: Callable[[], Any], volatile: bool
) -> None:
    """Publish what a provider makes of a request; if that is an error, raise it here as well."""
    try:
        await answer(bus, request, provide(), volatile)
    except Exception as error:
        await answer_failure(bus, request, error, volatile)
        raise


async def answer_failure(bus: Bus, request: Notification, error: Exception, volatile: bool) -> None:
    """Tell whoever asked that there was an error."""
    said = {"kind": type(error).__name__, "reason": _printable(str(error))[:MAX_REASON]}
    await _reply(bus, request, Notification(said, type=FAILED), volatile)


def _printable(text: str) -> str:
    """The text as an attribute can hold it: half of a pair of surrogates cannot travel."""
    return text.encode("utf-8", "replace").decode()


async def answer(bus: Bus, request: Notification, result: Any, volatile: bool) -> int:
    """Publish what a provider has made of a request: nothing, a reply, or several."""
    if isawaitable(result):
        result = await result
    if result is None:
        return 0
    count = 0
    if isasyncgen(result):
        async for event in result:
            await _reply(bus, request, event, volatile)
            count += 1
        return count
    for event in result if isgenerator(result) else (result,):
        await _reply(bus, request, event, volatile)
        count += 1
    return count


async def _reply(bus: Bus, request: Notification, event: Any, volatile: bool) -> None:
    reply = notification_of(event)
    attributes = {name: value for name, value in reply.items() if name != REPLY_TO}
    attributes[IN_REPLY_TO] = request[REPLY_TO]
    attributes[CORRELATION] = request.get(CORRELATION)
    await bus.publish(reply.replace(attributes=attributes, id=None, time=None), volatile=volatile)
