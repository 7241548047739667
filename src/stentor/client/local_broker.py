"""The local broker: the library's end of everything, one for each bus (R-01.54).

It holds what a client has going on: publications on their way (`outbox`), subscriptions,
advertisements, questions that wait for an answer. All of it survives the connection. When the
link has a new one, the local broker says everything again, in this order: subscriptions with their
positions, advertisements, open questions, unanswered publications. Numbers are given once and never
reused, so an answer always finds its question.

Usually there is one link. A group of consumers lives at one broker; a member that asks elsewhere is
told where. Then the local broker makes a second link to that place, for that subscription. Such a
link is not made again when it breaks: the subscription goes home and asks anew where its group is.

The ids of publications are the producer, an epoch and a sequence number. The producer is what the
broker says in `Welcome`: the client's name, with who it has proved to be. The epoch is the time of
the first connection in milliseconds, or one more than what the broker has of an earlier life of
this client. Both stay the same as long as anything waits to be answered, so that a publication that
is sent again is recognized at every broker that has it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from stentor.client.backoff import Backoff
from stentor.client.clock import clock
from stentor.client.encoding import EventEncoder, utc_now
from stentor.client.outbox import Outbox, Waiter
from stentor.client.sequencer import Sequencer
from stentor.client.trust import Trust
from stentor.client.uplink import ATTEMPT, State, Uplink
from stentor.client.waiting import TimeLimit, settles
from stentor.errors import (
    AccessDenied,
    DurableElsewhere,
    GroupElsewhere,
    NameTaken,
    NoReply,
    RedirectRefused,
    ShuttingDown,
    StentorError,
    Unreachable,
    Vetoed,
    error_of,
)
from stentor.model import Notification, NotificationId
from stentor.model.codec import decode
from stentor.model.names import shown, text_problem
from stentor.notation.counts import counted
from stentor.protocol.handshake import hello
from stentor.protocol.messages import (
    Amended,
    AnyMessage,
    Ask,
    Deliver,
    Demand,
    Done,
    Ended,
    Failure,
    Gap,
    Progress,
    Published,
    Rejected,
    Subscribed,
    Welcome,
    Withdrawn,
    Yielded,
)
from stentor.transport import Address

if TYPE_CHECKING:
    from stentor.client.advertisement import Advertisement
    from stentor.client.recorder import Recording
    from stentor.client.subscription import Subscription
    from stentor.node.hooks import Hooks

#: How often a subscription may be sent on to another broker before that is taken for an error; one
#: that is durable waits for a moment.
MAX_MOVES: Final = 8
#: Rejections that nobody waited for are logged, but not more than so many in a row.
_LOGGED: Final = 10

_log: Final = logging.getLogger("stentor.client")


class LocalBroker:
    """What one client has going on, whatever happens to its connection."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        name: str,
        token: str | None,
        tls: ssl.SSLContext | None,
        outbox: Outbox,
        trust: Trust | None = None,
        backoff: Callable[[], Backoff] = Backoff,
        sequencer: Sequencer | None = None,
        recording: Recording | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        self._attributes = dict(attributes or {})
        problem = text_problem(name)
        if problem is not None:
            raise NameTaken(f"the client's name {shown(name)} {problem}; choose another")
        self.name = name
        self.outbox = outbox
        #: Hooks of the application; None as long as it has none.
        self.hooks: Hooks | None = None
        self.subscriptions: dict[int, Subscription[Any]] = {}
        self.advertisements: dict[int, Advertisement] = {}
        self.closing = False
        #: Why there will never be a connection again.
        self.failure: StentorError | None = None
        #: Publications that were not sent because nobody asked for them.
        self.quenched = 0
        self.state_callbacks: list[Callable[[State], object]] = []
        self._addresses = addresses
        self._token = token
        self._tls = tls
        self._trust = trust or Trust(addresses, token=token is not None)
        self._backoff = backoff
        #: The one broker that may serve, if it has to be a certain one.
        self._sequencer = sequencer
        self._seeking = False
        self._encoder: EventEncoder | None = None
        self._sequence = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        #: How far the broker's clock is ahead of the loop's; unknown as long as none has told.
        self._ahead: float | None = None
        self._numbers = itertools.count(1)
        self._link: Uplink | None = None
        #: Links to brokers at which groups live, by the addresses that were named.
        self._away: dict[tuple[Address, ...], Uplink] = {}
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._lapsing: set[int] = set()
        #: Questions that are put again over a new connection.
        self._questions: dict[int, Ask] = {}
        self._room: list[asyncio.Future[None]] = []
        self._pumping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        #: Called with each publication that was refused and that nobody waits for.
        self.refusal_callbacks: list[Callable[[Notification, StentorError], object]] = []
        #: The first refusal since the last `flush`, and how many are not in the log.
        self._unheard: StentorError | None = None
        self._unlogged = 0
        self._logged = 0
        outbox.on_refusal = self._refused
        #: What everything is recorded by, if it is.
        self.recording = recording
        if recording is not None:
            outbox.on_journaled = recording.acknowledged

    # -- the connection

    @property
    def link(self) -> Uplink:
        if self._link is None:
            raise Unreachable(
                "the bus is not open; use it within `async with`, or await its `open()`"
            )
        return self._link

    @property
    def state(self) -> State:
        if self._link is None:
            return "closed" if self.closing else "connecting"
        return self._link.state

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def monotonic(self) -> float:
        """Seconds that only go forward, from any beginning."""
        return self.loop.time() + clock.ahead

    def time_moved(self) -> None:
        """A test has let time pass; called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._catch_up)

    def _catch_up(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.time_moved()

    async def open(self, timeout: float) -> None:
        """Connect for the first time."""
        self._loop = self.loop
        clock.clients.add(self)
        try:
            await self._connect(timeout)
        except BaseException:
            self.closing = True
            if self._link is not None:
                await self._link.close()
            if self.recording is not None:
                self.recording.close()
            raise

    async def _connect(self, timeout: float) -> None:
        deadline = self.loop.time() + timeout
        if self._sequencer is not None:
            self._addresses = await self._sequencer.locate(timeout)
        link = Uplink(
            self._addresses,
            hello("client", self.name, self._token, attributes=self._attributes),
            self,
            tls=self._tls,
            trust=self._trust,
            backoff=self._backoff(),
        )
        link.on_state = self._state_changed
        self._link = link
        await link.open(deadline - self.loop.time())

    def _state_changed(self, state: State) -> None:
        if state == "reconnecting" and self._sequencer is not None and not self._seeking:
            self.start(self._seek(self._sequencer))
        for callback in list(self.state_callbacks):
            try:
                callback(state)
            except Exception:
                _log.exception("the callback %r for the state of the bus failed", callback)

    async def _seek(self, sequencer: Sequencer) -> None:
        """Ask where the one broker is that may serve, as long as there is no connection."""
        self._seeking = True
        backoff = self._backoff()
        while self.state == "reconnecting":
            await asyncio.sleep(backoff.next())
            try:
                self.link.turn_to(await sequencer.locate(ATTEMPT))
            except StentorError as error:
                _log.info("looking for the sequencer: %s", error)
        self._seeking = False

    def welcomed(self, link: Uplink, welcome: Welcome) -> None:
        if link is self._link:
            self._take_up(welcome)
        for subscription in self._attached(link):
            subscription.subscribe_again()
        if link is not self._link:
            return
        for advertisement in self.advertisements.values():
            link.send(advertisement.message())
        for question in self._questions.values():
            link.send(question)
        self.pump()

    def now(self) -> datetime:
        """The time, by the broker's clock if it is known: that is the one that moments meet."""
        if self._ahead is None:
            return utc_now()
        return datetime.fromtimestamp(self.monotonic + self._ahead, UTC)

    def _take_up(self, welcome: Welcome) -> None:
        """Settle the epoch, or what has become of the publications that were on their way."""
        if welcome.time:
            self._ahead = welcome.time - self.monotonic
        if self._sequencer is not None:
            self._sequencer.check(welcome)
        published = welcome.published
        producer = welcome.producer or self.name
        if self._encoder is not None and self._encoder.producer != producer:
            if len(self.outbox):
                raise AccessDenied(
                    f"broker {welcome.broker!r} takes this client for {producer!r}, and what waits "
                    f"to be published has ids of {self._encoder.producer!r}; give grants for the "
                    "same party the same name at all brokers"
                )
            self._encoder = None
        if self._encoder is None:
            epoch = time.time_ns() // 1_000_000
            if published is not None:
                epoch = max(epoch, published[0] + 1)
            self._encoder = EventEncoder(producer, epoch)
            newest = -1
        else:
            epoch = self._encoder.epoch
            if published is not None and tuple(published) >= (epoch, self._sequence):
                raise NameTaken(
                    f"broker {welcome.broker!r} has newer publications of another client that is "
                    f"also called {self.name!r}, so it would take ours for old ones; "
                    "give each client a name of its own"
                )
            newest = published[1] if published is not None and published[0] == epoch else -1
        self.outbox.connected(newest, welcome.window, welcome.max_frame)
        self._make_room()

    def lost(self, link: Uplink, error: StentorError) -> None:
        if link is self._link:
            self.outbox.connection_lost()
            self._make_room()
            for advertisement in self.advertisements.values():
                advertisement.unknown()
            for number in list(self._lapsing):
                self._answered(number, None, None)
        else:
            self._away = {places: each for places, each in self._away.items() if each is not link}
            self.start(link.close())
        for subscription in self._attached(link):
            subscription.connection_lost(error, link.lost_at + clock.ahead)
            if link is not self._link and not subscription.over:
                self._go_home(subscription)

    def gone(self, link: Uplink, error: StentorError) -> None:
        """Nothing will ever be answered any more."""
        if link is not self._link:
            return
        self.failure = error
        self.outbox.fail(error)
        self._make_room()
        for subscription in list(self.subscriptions.values()):
            subscription.ended(error)
        for future in list(self._answers.values()):
            if not future.done():
                future.set_exception(error)

    def writable(self, link: Uplink) -> None:
        if link is self._link:
            self._pump()

    def leaves(self, link: Uplink) -> None:
        for subscription in self._attached(link):
            subscription.broker_leaves()

    # -- what is heard

    def heard(self, link: Uplink, messages: list[AnyMessage]) -> None:
        for message in messages:
            handler = _HANDLERS.get(type(message))
            if handler is not None:  # messages of a later release mean nothing to this one
                handler(self, link, message)

    def _published(self, link: Uplink, message: Published) -> None:
        self.outbox.published(message.through)
        self._make_room()
        self._pump()

    def _rejected(self, link: Uplink, message: Rejected) -> None:
        error = error_of(message.code, message.message)
        self.outbox.rejected(message.number, message.items, error)
        self._make_room()

    def _refused(self, items: list[bytes], error: StentorError) -> None:
        """Tell it once: to the application, to whoever waits in `flush`, or else to the log."""
        if self.refusal_callbacks:
            for item in items:
                notification = decode(item)
                for callback in list(self.refusal_callbacks):
                    try:
                        callback(notification, error)
                    except Exception:
                        _log.exception("the callback %r for refusals failed", callback)
            return
        if self._unheard is None:
            self._unheard = error
        self._unlogged += len(items)
        if not self.outbox.awaited:
            self._log_refusals(error)

    def _log_refusals(self, error: StentorError) -> None:
        if self._unlogged and self._logged < _LOGGED:
            self._logged += 1
            what = counted(self._unlogged, "publication was", "publications were")
            _log.warning("%s refused: %s", what, error)
        self._unlogged = 0

    def _attached(self, link: Uplink, number: int | None = None) -> list[Subscription[Any]]:
        """Subscriptions that are attached over this link: that of a number, or all."""
        held = self.subscriptions
        if number is None:
            return [each for each in held.values() if each.attachment.link is link]
        found = held.get(number)
        return [found] if found is not None and found.attachment.link is link else []

    def _deliver(self, link: Uplink, message: Deliver) -> None:
        for subscription in self._attached(link, message.number):
            subscription.deliver(message)

    def _subscribed(self, link: Uplink, message: Subscribed) -> None:
        for subscription in self._attached(link, message.number):
            subscription.subscribed(message)

    def _amended(self, link: Uplink, message: Amended) -> None:
        for subscription in self._attached(link, message.number):
            subscription.amended(message)

    def _progress(self, link: Uplink, message: Progress) -> None:
        for subscription in self._attached(link, message.number):
            subscription.progress(message.positions)

    def _withdrawn(self, link: Uplink, message: Withdrawn) -> None:
        for subscription in self._attached(link, message.number):
            subscription.withdrawn(message)

    def _gap(self, link: Uplink, message: Gap) -> None:
        for subscription in self._attached(link, message.number):
            subscription.gap(message)

    def _yielded(self, link: Uplink, message: Yielded) -> None:
        for subscription in self._attached(link, message.number):
            subscription.yielded(message)

    def _ended(self, link: Uplink, message: Ended) -> None:
        for subscription in self._attached(link, message.number):
            if message.instead and not subscription.closing:
                self._move(subscription, message, link.address)
            elif message.cut_off and not subscription.closing:  # it is on its way to that broker
                elsewhere = error_of(message.code or DurableElsewhere.code, message.message)
                subscription.sent_on(elsewhere, self.monotonic)
                self._go_home(subscription)
            else:
                error = None if message.code is None else error_of(message.code, message.message)
                subscription.ended(error)

    def _demand(self, link: Uplink, message: Demand) -> None:
        advertisement = self.advertisements.get(message.number)
        if advertisement is not None:
            advertisement.demand(message.filters)

    def _done(self, link: Uplink, message: Done) -> None:
        self._answered(message.number, message.data, None)

    def _failed(self, link: Uplink, message: Failure) -> None:
        number = message.number
        if number is None:
            return
        error = error_of(message.code, message.message)
        subscription = self.subscriptions.get(number)
        if subscription is not None and subscription.survives(error):
            self._go_home(subscription)
        elif subscription is not None:
            subscription.ended(error)
        elif self._answered(number, None, error):
            return
        elif number in self.advertisements:  # made again over a new connection
            _log.error("%r is no longer accepted: %s", self.advertisements.pop(number), error)
        else:
            self.outbox.rejected(number, None, error)
            self._make_room()

    # -- questions and answers

    def number(self) -> int:
        return next(self._numbers)

    def expect(self, number: int, *, lapses: bool = False) -> asyncio.Future[Any]:
        """The answer to the question with this number.

        One that lapses is answered as well by the loss of the connection.
        """
        future: asyncio.Future[Any] = self.loop.create_future()
        self._answers[number] = future
        if lapses:
            self._lapsing.add(number)

        def forget(_: object) -> None:
            if self._answers.get(number) is future:
                del self._answers[number]
                self._lapsing.discard(number)

        future.add_done_callback(forget)
        return future

    def _answered(self, number: int, data: Any, error: StentorError | None) -> bool:
        future = self._answers.get(number)
        if future is None or future.done():
            return future is not None
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(data)
        return True

    async def ask(
        self, what: str, arguments: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """Put a question to the broker, over several connections if need be."""
        self.check_open()
        question = Ask(self.number(), what, arguments or {})
        answer = self.expect(question.number)
        self._questions[question.number] = question
        self.link.send(question)
        try:
            async with TimeLimit(timeout, f"the broker did not answer {what!r}"):
                return await answer
        finally:
            del self._questions[question.number]

    async def ask_at(
        self, addresses: Sequence[str], what: str, arguments: dict[str, Any] | None = None
    ) -> Any:
        """Put a question to another broker, over a connection that ends with the answer."""
        places, refused = self._trust.followed(addresses, self.link.address)
        if not places:
            raise RedirectRefused(refused or "it has named no address")
        other = LocalBroker(
            places,
            name=self.name,
            token=self._token,
            tls=self._tls,
            outbox=Outbox(),
            trust=self._trust,
        )
        await other.open(ATTEMPT)
        try:
            return await other.ask(what, arguments, ATTEMPT)
        finally:
            await other.close(0.0)

    # -- publishing

    def check_open(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.closing:
            raise ShuttingDown("the bus is closed; open another one")

    @property
    def encoder(self) -> EventEncoder:
        if self._encoder is None:
            raise Unreachable(
                "the bus is not open; use it within `async with`, or await its `open()`"
            )
        return self._encoder

    @property
    def next_sequence(self) -> int:
        return self._sequence

    @property
    def careful(self) -> bool:
        """Whether each publication has to be looked at before it is sent."""
        hooks = self.hooks
        if hooks is not None and hooks.watches("publish"):
            return True
        return any(each.quench for each in self.advertisements.values())

    def admit(self, notification: Notification) -> Notification | None:
        """What the hooks make of a publication; None if nobody asks for it (R-01.97)."""
        hooks = self.hooks
        if hooks is not None and hooks.watches("publish"):
            notification = self.run_hooks("publish", notification)
        offers = [a for a in self.advertisements.values() if a.filter.matches(notification)]
        if offers and not any(offer.wants(notification) for offer in offers):
            for offer in offers:
                offer.quenched += 1
            self.quenched += 1
            self.dropped(notification, "quenched")
            return None
        return notification

    def run_hooks(self, point: Any, value: Any) -> Any:
        """What the hooks leave of a value, or `Vetoed`."""
        if self.hooks is None:
            return value
        from stentor.node.hooks import VETO  # loaded already, since there are hooks

        answer = self.hooks.run(point, value)
        if answer is VETO:
            raise Vetoed(f"a hook forbade to {point} {value!r}")
        return answer

    def dropped(self, value: Any, reason: str) -> None:
        if self.hooks is not None and self.hooks.watches("drop"):
            from stentor.node.hooks import Dropped  # loaded already, since there are hooks

            self.hooks.tell("drop", Dropped(value, reason))

    def put(
        self,
        items: list[bytes],
        *,
        skip: int = 0,
        volatile: bool = False,
        atomic: bool = False,
        retain: dict[int, str] | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """Queue items that were encoded from `next_sequence` on; `skip` ids are left unused."""
        newest = self._sequence + len(items) + skip - 1
        if items:
            if self.recording is not None:
                self.recording.published(items, self.id(self._sequence))
            self.outbox.put(
                items,
                newest=newest,
                volatile=volatile,
                atomic=atomic,
                retain=retain,
                waiter=waiter,
            )
        self._sequence = newest + 1
        self.pump()

    def id(self, sequence: int) -> NotificationId:
        return NotificationId(self.encoder.producer, self.encoder.epoch, sequence)

    def pump(self) -> None:
        """Send at the end of this turn of the loop, together with what else comes up in it."""
        if not self._pumping:
            self._pumping = True
            self.loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        link, outbox = self._link, self.outbox
        if link is None:
            return
        while link.writable:
            message = outbox.take(self.number)
            if message is None:
                break
            link.send(message)

    async def room(self, timeout: float | None = None) -> None:
        """Wait until the outbox takes more."""
        while self.outbox.full:
            self.check_open()
            future: asyncio.Future[None] = self.loop.create_future()
            self._room.append(future)
            async with TimeLimit(timeout, "the broker takes no more publications"):
                await future
        self.check_open()

    def _make_room(self) -> None:
        if self._room and (self.closing or self.failure or not self.outbox.full):
            waiting, self._room = self._room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was published so far is answered; raise the first refusal."""
        await self.answers_of_all(timeout)
        error, self._unheard = self._unheard, None
        if error is not None:
            self._unlogged = 0
            raise error

    async def answers_of_all(self, timeout: float | None) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        self.outbox.barrier(settles(future))
        waiting = counted(len(self.outbox), "publication is", "publications are")
        async with TimeLimit(timeout, f"{waiting} not acknowledged"):
            await future

    # -- groups and durable subscriptions that live elsewhere

    def _move(self, subscription: Subscription[Any], message: Ended, via: Address) -> None:
        attachment = subscription.attachment
        attachment.moves += 1
        elsewhere = error_of(message.code or GroupElsewhere.code, message.message)
        subscription.sent_on(elsewhere, self.monotonic)
        places, refused = self._trust.followed(message.instead, via)
        if not places:
            text = f"{message.message}, which this client does not do: {refused}"
            subscription.ended(RedirectRefused(text))
        elif attachment.moves > MAX_MOVES and not subscription.durable:
            text = f"{message.message}; it was sent on {MAX_MOVES} times, brokers disagree"
            subscription.ended(type(elsewhere)(text))
        elif attachment.moves > MAX_MOVES:  # while it moves, brokers disagree for a moment
            if not attachment.waits:
                _log.warning("%r waits: it was sent on %d times", subscription, MAX_MOVES)
            attachment.wait(cut_off=attachment.cut_off)
            self._go_home(subscription)
        else:
            self.start(self._move_to(subscription, tuple(places), message))

    async def _move_to(
        self, subscription: Subscription[Any], places: tuple[Address, ...], message: Ended
    ) -> None:
        link = self._away.get(places)
        if link is None:
            name = f"{self.name}~{secrets.token_hex(4)}"
            said = hello("client", name, self._token, attributes=self._attributes)
            link = Uplink(places, said, self, tls=self._tls, trust=self._trust, lasting=False)
            self._away[places] = link
            subscription.attachment.link = link
            try:
                await link.open(5.0)
            except StentorError as error:
                self._away.pop(places, None)
                for each in self._attached(link):
                    if not each.attachment.waits:
                        _log.warning("%r waits: %s (%s)", each, message.message, error)
                    each.attachment.wait(cut_off=not message.cut_off)
                    self._go_home(each)
            return
        subscription.attachment.link = link
        if link.connected:
            subscription.subscribe_again()

    def _go_home(self, subscription: Subscription[Any]) -> None:
        """Ask the own broker again where the group is, after a moment in which it may find out."""

        attachment = subscription.attachment

        def ask() -> None:
            self._timers.discard(timer)
            if attachment.link is self._link and self.link.connected:
                subscription.subscribe_again()

        attachment.link = self.link
        timer = self.loop.call_later(attachment.patience.next(), ask)
        self._timers.add(timer)

    # -- the end

    def start(self, work: Any) -> asyncio.Task[Any]:
        """Run something that ends with the bus."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, timeout: float) -> None:
        """End everything; `NoReply` if publications could not be delivered in time."""
        if self.closing and self._link is None:
            return
        handled = [each.finish(timeout) for each in self.subscriptions.values()]
        await asyncio.gather(*handled)
        self.closing = True
        clock.clients.discard(self)
        problem: StentorError | None = None
        if self._link is not None and self._link.state != "closed" and len(self.outbox):
            try:
                await self.answers_of_all(timeout)
            except NoReply as error:
                problem = NoReply(f"{error} when the bus was closed, and may be lost")
            except StentorError as error:
                _log.warning("what became of the last publications is not known: %s", error)
        if self._unheard is not None:
            self._log_refusals(self._unheard)
        closed = ShuttingDown("the bus was closed")
        self.outbox.fail(problem or closed)
        self._make_room()
        for subscription in list(self.subscriptions.values()):
            await subscription.bus_closes()
        for future in list(self._answers.values()):
            if not future.done():
                future.set_exception(closed)
                future.exception()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in [*self._away.values(), *([self._link] if self._link else [])]:
            await link.close()
        self._away.clear()
        self._link = None
        self.subscriptions.clear()
        self.advertisements.clear()
        if self.recording is not None:
            self.recording.close()
        if problem is not None:
            raise problem


_HANDLERS: Final[dict[type, Callable[[LocalBroker, Uplink, Any], None]]] = {
    Published: LocalBroker._published,
    Rejected: LocalBroker._rejected,
    Deliver: LocalBroker._deliver,
    Subscribed: LocalBroker._subscribed,
    Amended: LocalBroker._amended,
    Progress: LocalBroker._progress,
    Gap: LocalBroker._gap,
    Withdrawn: LocalBroker._withdrawn,
    Yielded: LocalBroker._yielded,
    Ended: LocalBroker._ended,
    Demand: LocalBroker._demand,
    Done: LocalBroker._done,
    Failure: LocalBroker._failed,
}
