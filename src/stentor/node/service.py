"""`Service`: everything a live broker decides, without input or output.

A host feeds it what happens (a client says something, a neighbor says something, a link comes or
goes, the journal has committed, time has passed) and then calls `take`, which returns what is to be
done. The pieces are in their own files: where filters and notifications go is the router's part,
how a subscription is read gaplessly is `feed`'s, who consumes it `subscription`'s, which brokers
there are and when a subscription is in force `streams`', reading journals `reading`'s, what is
asked for of producers `demand`'s.

A publication goes like this. It is decoded and checked. If it is volatile it is routed at once.
Otherwise it goes to the journal; when it is on disk, `committed` routes it under its offset and
answers the client. So what travels is always on disk at its entry, and an offset that was ever
seen anywhere never stands for anything else.

A subscription becomes a feed and a filter in the router's table. The client hears `Subscribed` when
a probe sent after it has been echoed by all brokers: it is in force everywhere.

Notifications travel with the stream they belong to and are taken only from the neighbor through
which that stream comes. Whenever a stream begins afresh (see `streams`), all feeds catch up on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from stentor.errors import (
    DecodeError,
    GroupElsewhere,
    InvalidConfiguration,
    InvalidNotification,
    JournalDamaged,
    JournalUnavailable,
    LeaseExpired,
    LinkRefused,
    NameTaken,
    NotAdvertised,
    NotPermitted,
    Overloaded,
    ProtocolError,
    QueueOverflow,
    StentorError,
)
from stentor.filters import Filter
from stentor.model.codec import Envelope, decode_header, decode_headers
from stentor.node.actions import (
    Action,
    Append,
    CloseClient,
    CloseLink,
    Persist,
    ToClient,
    ToLink,
)
from stentor.node.demand import Demands
from stentor.node.durable import Durable
from stentor.node.feed import QUEUE_LIMIT, Feed, Run
from stentor.node.hooks import VETO, Dropped, Hooks, Point
from stentor.node.log import Log
from stentor.node.pieces import pieces
from stentor.node.reading import Fetches, Pending, last_values, parsed, stretch
from stentor.node.session import Line, PublishRule, Session, SubscribeRule
from stentor.node.streams import Directory, Probes, Sends
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol import messages as m
from stentor.routing import tree_router
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import FilterId, Outputs, Send
from stentor.routing.table import Destination, Local
from stentor.routing.tree import TreeRouter

#: Seconds between two words to neighbors on how far the own stream has come, and between two words
#: to clients on how far theirs have.
MARK_EVERY: Final = 1.0
PROGRESS_EVERY: Final = 5.0
#: Seconds that a subscriber waits for last values from brokers that do not answer.
LAST_VALUES_PATIENCE: Final = 5.0
#: Seconds, once to twice, for which a link may be in reserve before it counts as closing a cycle.
RESERVE_PATIENCE: Final = 5.0
#: The longest name of a durable subscription or group.
MAX_NAME: Final = 255


class _LastValues:
    """Last values that are being collected for a new subscription."""

    def __init__(self, waiting: set[str], deadline: float) -> None:
        self.waiting = waiting
        self.deadline = deadline
        self.best: dict[str, tuple[float, bytes]] = {}


class Service:
    """The decisions of one live broker."""

    def __init__(
        self,
        name: str,
        log: Log,
        *,
        router: TreeRouter | None = None,
        address: str = "",
        enforce_advertisements: bool = False,
        max_subscriptions: int = 10_000,
        queue: int = QUEUE_LIMIT,
        hooks: Hooks | None = None,
        now: float = 0.0,
        clock: float = 0.0,
    ) -> None:
        """`now` is a clock that only goes forward; `clock` is seconds since 1970."""
        self.name = name
        self.log = log
        self.router = router or tree_router(name)
        self.hooks = hooks or Hooks()
        self.directory = Directory(m.Origin(log.stream, name, address))
        self.sessions: dict[int, Session] = {}
        self._lines: dict[str, Line] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.durables: dict[str, Durable] = {}
        #: What was forwarded, received, delivered, dropped, ...: for operators.
        self.counters: dict[str, int] = dict.fromkeys(
            (
                "published",
                "volatile",
                "repeated",
                "refused",
                "received",
                "forwarded",
                "off_path",
                "delivered",
                "served",
                "probes",
                "interruptions",
            ),
            0,
        )
        #: Notifications that subscriptions dropped which are gone.
        self.dropped = 0
        self._enforce = enforce_advertisements
        self._max_subscriptions = max_subscriptions
        self._queue = queue
        self._now = now
        self._clock = clock
        self._out: list[Action] = []
        #: The last offset that was routed: what is said of the own stream is said up to here.
        self._head = log.head
        #: The own journal, and those of brokers that were removed.
        self._logs: dict[m.StreamId, Log] = {log.stream: log}
        self._marked = log.head
        # Numbers must not come again after a restart; no broker sends a million a second.
        first = int(clock * 1_000_000)
        self._probes = Probes(log.stream, first)
        self._probe_wanted = False
        #: Feeds that wait for a probe to be answered, and clients that wait with them.
        self._probing: dict[str, None] = {}
        self._settling: list[tuple[int, Session, Consumer, bool]] = []
        self._marks: m.Positions = {}
        self._ready: dict[str, None] = {}
        #: Feeds that may want to read journals, and those that have to wait for others to do so.
        self._hungry: dict[str, None] = {}
        self._starved: dict[str, None] = {}
        self._fetches = Fetches(first)
        self._serving: deque[m.Fetch] = deque()
        self._last_values: dict[str, _LastValues] = {}
        self._blocked: set[int] = set()
        #: Volatile publications that wait to be routed together, and answers to be given.
        self._volatile: tuple[list[bytes], list[Envelope]] = ([], [])
        self._answers: dict[int, int] = {}
        #: Subscriptions for which publishers wait.
        self._congested: set[str] = set()
        self._dirty: dict[str, None] = {}
        #: What is offered everywhere: advertisements spread as subscriptions do, on their own.
        self._offers = tree_router(name)
        self._demands = Demands()
        self.router.plane.subscriptions.watch(self._entry)
        #: Groups at other brokers, and members that they have here.
        self._groups: dict[m.StreamId, list[str]] = {}
        self._last_filter = 0
        #: Neighbors that are in reserve, and since when.
        self._reserve: dict[str, float] = {}
        self._next_mark = now
        self._next_progress = now

    @property
    def stream(self) -> m.StreamId:
        return self.log.stream

    @property
    def head(self) -> int:
        """The last offset of the own stream that was routed."""
        return self._head

    @property
    def neighbors(self) -> list[str]:
        return sorted(map(str, self.router.neighbors))

    @property
    def congested(self) -> bool:
        """Whether publishers wait for a slow subscriber, by its own policy."""
        return bool(self._congested)

    @property
    def has_work(self) -> bool:
        """Whether `work` has something to do at once."""
        return bool(self._serving or self._hungry)

    def announce_as(self, address: str) -> None:
        """Where others can connect; to be said before the first link is made."""
        self.directory.own = m.Origin(self.stream, self.name, address)

    def _heads(self) -> m.Positions:
        """The last offset of each stream that this broker answers for."""
        if len(self._logs) == 1:
            return {self.stream: self._head}
        return {s: log.head if log is not self.log else self._head for s, log in self._logs.items()}

    def adopt(self, log: Log) -> None:
        """Answer for the journal of a broker that was removed."""
        self._logs[log.stream] = log
        origin, sends = self.directory.adopt(log.stream)
        self._send(sends)
        self._fresh([origin])

    def import_durables(self, durables: dict[str, bytes]) -> dict[str, bytes | None]:
        """Take over durable subscriptions of a broker that was removed; what is to be stored."""
        news: dict[str, bytes | None] = {}
        for name, data in durables.items():
            theirs = Durable.from_data(name, data)
            ours = self.durables.setdefault(name, theirs)
            if ours is not theirs:
                ours.confirm(theirs.positions)
            news[name] = ours.to_data()
        return news

    def is_attached(self, durable: Durable) -> bool:
        """Whether somebody consumes this durable subscription now."""
        return any(s.durable is durable for s in self.subscriptions.values())

    def restore(self, durables: dict[str, bytes]) -> None:
        """Take up the durable subscriptions that were stored."""
        for name, data in durables.items():
            self.durables[name] = Durable.from_data(name, data)

    def take(self) -> list[Action]:
        """What is to be done now."""
        self._route_volatile()
        self._begin_probe()
        self._deliver()
        if self._answers and not self._congested:
            for id, through in self._answers.items():
                self._out.append(ToClient(id, m.Published(through)))
            self._answers.clear()
        for name in self._dirty:
            durable = self.durables.get(name)
            self._out.append(Persist(name, durable.to_data() if durable else None, None))
        self._dirty.clear()
        if self._demands:
            self._tell_demand()
        out, self._out = self._out, []
        return out

    # -- clients come and go

    def join(
        self,
        id: int,
        name: str,
        *,
        newest: tuple[int, int] | None = None,
        may_publish: PublishRule | None = None,
        may_subscribe: SubscribeRule | None = None,
    ) -> Session:
        """A client has connected; `newest` is what the journal holds of it."""
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(newest or (-1, -1))
        elif line.failed:
            raise JournalUnavailable(
                f"what {name!r} has published before could not be stored; try again"
            )
        session = Session(id, name, line, may_publish, may_subscribe)
        self.sessions[id] = session
        return session

    def leave(self, id: int) -> None:
        """A client's connection is gone."""
        session = self.sessions.pop(id, None)
        if session is None:
            return
        self._route_volatile()
        self._answers.pop(id, None)
        self._blocked.discard(id)
        self._release(session)
        gone: list[FilterId] = []
        for number in list(session.subscriptions):
            gone += self._detach(session, number)
        self._route_filters(self.router.withdraw(gone, []))
        for number in list(session.advertisements):
            self._unadvertise(session, number)

    def heard(self, id: int, message: Any) -> None:
        """A client says something."""
        session = self.sessions.get(id)
        if session is None:
            return
        handler = _FROM_CLIENT.get(type(message))
        if handler is None:
            raise ProtocolError(f"a client cannot send {type(message).__name__}")
        if not isinstance(message, m.Publish):
            self._route_volatile()  # it came before what this may change
        try:
            handler(self, session, message)
        except ProtocolError:
            raise
        except StentorError as error:
            number = getattr(message, "number", None)
            self._to_client(session, m.Failure(error.code, str(error), number))

    def block(self, id: int) -> None:
        """The client does not read what it is sent."""
        self._blocked.add(id)

    def unblock(self, id: int) -> None:
        """It does again."""
        self._blocked.discard(id)
        session = self.sessions.get(id)
        if session is not None:
            self._ready.update((s.feed.id, None) for s, _ in session.subscriptions.values())

    def _to_client(self, session: Session, message: Any) -> None:
        self._out.append(ToClient(session.id, message))

    # -- publishing

    def _publish(self, session: Session, message: m.Publish) -> None:
        entry = session.opened(message.number, len(message.items))
        items, envelopes, retain = self._checked(session, message)
        if message.volatile:
            self.counters["volatile"] += len(items)
            self._volatile[0].extend(items)
            self._volatile[1].extend(envelopes)
            self._answer(session, entry)
            return
        line = session.line
        if line.failed:
            return  # its connection is about to be closed
        items, envelopes, keys = self._new(session, items, envelopes, retain)
        # If all are repeats, the originals may still be on their way to the disk: the empty batch
        # behind them says when they have arrived.
        line.pending += 1
        context = (session, entry, envelopes)
        self._out.append(Append(items, session.name, line.newest, line, keys, context))

    def _checked(
        self, session: Session, message: m.Publish
    ) -> tuple[list[bytes], list[Envelope], dict[int, str]]:
        """The notifications that are in order; the client is told about the others."""
        items = message.items
        try:
            envelopes = decode_headers(items)
        except DecodeError:
            problems = [self._problem(session, data) for data in items]
        else:
            producer = session.name
            if not (session.may_publish or self._enforce) and all(
                e.id is not None and e.id.producer == producer for e in envelopes
            ):
                return items, envelopes, message.retain
            problems = [self._problem(session, data) for data in items]
        bad = [i for i, problem in enumerate(problems) if problem is not None]
        if not bad:
            return items, envelopes, message.retain
        first = problems[bad[0]]
        assert first is not None
        refused = list(range(len(items))) if message.atomic else bad
        self.counters["refused"] += len(refused)
        session.refused += len(refused)
        self._to_client(session, m.Rejected(message.number, refused, first.code, str(first)))
        without = set(refused)
        kept = [i for i in range(len(items)) if i not in without]
        items = [items[i] for i in kept]
        retain = {new: message.retain[i] for new, i in enumerate(kept) if i in message.retain}
        return items, decode_headers(items), retain

    def _problem(self, session: Session, data: bytes) -> StentorError | None:
        """Why the client may not publish this; None if it may."""
        try:
            envelope = decode_header(data)
        except DecodeError as error:
            return error
        id = envelope.id
        if id is None or id.producer != session.name:
            producer = None if id is None else id.producer
            return InvalidNotification(
                f"the id must name {session.name!r} as its producer, not {producer!r}"
            )
        if session.may_publish is not None and not session.may_publish(envelope):
            return NotPermitted(
                f"{session.name!r} may not publish {envelope.attributes}; publish what its grant "
                "allows, or have the grant widened"
            )
        offered = session.advertisements.values()
        if self._enforce and not any(f.matches(envelope.facts) for f in offered):
            return NotAdvertised(
                f"{session.name!r} has advertised nothing that matches {envelope.attributes}; "
                "advertise it before publishing"
            )
        return None

    def _new(
        self,
        session: Session,
        items: list[bytes],
        envelopes: list[Envelope],
        retain: dict[int, str],
    ) -> tuple[list[bytes], list[Envelope], list[tuple[str, int]]]:
        """Without what was published before; the client sends again what was not answered."""
        newest = session.line.newest
        keep: list[int] = []
        for i, envelope in enumerate(envelopes):
            id = envelope.id
            assert id is not None
            this = (id.epoch, id.sequence)
            if this > newest:
                newest = this
                keep.append(i)
        session.line.newest = newest
        session.published += len(keep)
        self.counters["published"] += len(keep)
        if len(keep) == len(items):
            return items, envelopes, [(key, i) for i, key in retain.items()]
        self.counters["repeated"] += len(items) - len(keep)
        kept_keys = [(retain[i], new) for new, i in enumerate(keep) if i in retain]
        return [items[i] for i in keep], [envelopes[i] for i in keep], kept_keys

    def committed(self, context: Any, first: int, items: list[bytes]) -> None:
        """What was appended is on disk, from this offset on."""
        self.committed_all([(context, first, items)])

    def committed_all(self, commits: Iterable[tuple[Any, int, list[bytes]]]) -> None:
        """The same for batches that follow one another in the journal, in one step."""
        offsets: list[int] = []
        items: list[bytes] = []
        envelopes: list[Envelope] = []
        arrived = []
        for (session, entry, found), first, data in commits:
            offsets.extend(range(first, first + len(data)))
            items += data
            envelopes += found
            arrived.append((session, entry))
        if items:
            self._head = offsets[-1]
            self._route(self.stream, offsets, items, envelopes, None)
        for session, entry in arrived:
            self._arrived(session)
            self._answer(session, entry)

    def failed(self, context: Any, error: StentorError) -> None:
        """What was appended could not be stored, nor anything of this producer behind it.

        The client loses its connection; it will send everything again, in order.
        """
        session = context[0]
        session.line.failed = True
        self._arrived(session)
        for other in self.sessions.values():
            if other.line is session.line:
                self._out.append(CloseClient(other.id, error.code, str(error)))

    def _arrived(self, session: Session) -> None:
        """One batch less of a producer is on its way to the disk."""
        session.line.pending -= 1
        self._release(session)

    def _release(self, session: Session) -> None:
        """Forget what a producer has on its way, if that is nothing, and nobody goes on with it."""
        line = session.line
        if (
            not line.pending
            and self._lines.get(session.name) is line
            and (line.failed or not any(s.line is line for s in self.sessions.values()))
        ):
            del self._lines[session.name]

    def _answer(self, session: Session, entry: list[int]) -> None:
        through = session.closed(entry)
        if through is not None and session.id in self.sessions:
            self._answers[session.id] = through

    # -- routing notifications

    def _route_volatile(self) -> None:
        """What was published since the last time, by whomever, goes in one batch."""
        items, envelopes = self._volatile
        if items:
            self._volatile = [], []
            self._route(self.stream, [], items, envelopes, None)

    def _route(
        self,
        stream: m.StreamId,
        offsets: list[int],
        items: list[bytes],
        envelopes: Sequence[Envelope],
        source: str | None,
    ) -> None:
        if self.hooks.watches("route"):
            offsets, items = self._hooked("route", offsets, items)
            envelopes = decode_headers(items)
        for destination, indexes in self.router.route(envelopes, source).items():
            if len(indexes) == len(items):
                these, numbers = items, offsets
            else:
                these = [items[i] for i in indexes]
                numbers = [offsets[i] for i in indexes] if offsets else offsets
            if isinstance(destination, Local):
                subscription = self.subscriptions.get(destination.id)
                if subscription is not None:
                    subscription.feed.offer(Run(stream if offsets else m.VOLATILE, numbers, these))
                    self._ready[destination.id] = None
            else:
                if self.hooks.watches("forward"):
                    numbers, these = self._hooked("forward", numbers, these)
                    if not these:
                        continue
                self.counters["forwarded"] += len(these)
                for some, data in pieces(numbers, these):
                    message = m.Forward(stream, some, data)
                    self._out.append(ToLink(str(destination.id), message))

    def _hooked(
        self, point: Point, offsets: list[int], items: list[bytes]
    ) -> tuple[list[int], list[bytes]]:
        """The batch as the hooks leave it."""
        answers = [self.hooks.run(point, data) for data in items]
        kept = [i for i, answer in enumerate(answers) if answer is not VETO]
        return [offsets[i] for i in kept] if offsets else [], [answers[i] for i in kept]

    def _forwarded(self, neighbor: str, message: m.Forward) -> None:
        stream = message.stream
        if self.directory.towards(stream) != neighbor:
            self.counters["off_path"] += len(message.items)
            return
        if message.offsets and len(message.offsets) != len(message.items):
            raise ProtocolError(
                f"{len(message.items)} notifications with {len(message.offsets)} offsets"
            )
        self.counters["received"] += len(message.items)
        envelopes = decode_headers(message.items)
        self._route(stream, message.offsets, message.items, envelopes, neighbor)

    def _deliver(self) -> None:
        """Give consumers what they have credit for."""
        if not self._ready:
            return
        ready, self._ready = self._ready, {}
        for id in ready:
            subscription = self.subscriptions.get(id)
            if subscription is None:
                continue
            feed = subscription.feed
            for consumer, run in subscription.deliveries(self._blocked):
                if run.gap:
                    gap = m.Gap(consumer.number, run.stream, run.offsets[0], run.offsets[1])
                    self._out.append(ToClient(consumer.session, gap))
                    continue
                self.counters["delivered"] += len(run.items)
                for offsets, items in pieces(run.offsets, run.items):
                    message = m.Deliver(consumer.number, run.stream, offsets, items, run.retained)
                    self._out.append(ToClient(consumer.session, message))
            if feed.dropped > subscription.told_dropped:
                lost = feed.dropped - subscription.told_dropped
                subscription.told_dropped = feed.dropped
                self.hooks.tell("drop", Dropped(feed.id, f"{lost} too many for its queue"))
            if feed.congested:
                self._congested.add(id)
            else:
                self._congested.discard(id)
            if feed.overflowed:
                for consumer in subscription.consumers:
                    self._out.append(
                        CloseClient(
                            consumer.session,
                            QueueOverflow.code,
                            f"more than {feed.limit} notifications waited; read faster, or choose "
                            "another overflow policy",
                        )
                    )
            if feed.catching:
                self._hungry[id] = None

    # -- subscribing

    def _subscribe(self, session: Session, message: m.Subscribe) -> None:
        number = message.number
        if number in session.subscriptions:
            raise ProtocolError(f"the number {number} is in use by another subscription")
        if len(session.subscriptions) >= self._max_subscriptions:
            raise Overloaded(
                f"{session.name!r} has {self._max_subscriptions} subscriptions, the most that "
                "this broker allows to one client"
            )
        filter = Filter(message.filter)
        if session.may_subscribe is not None and not session.may_subscribe(filter):
            raise NotPermitted(
                f"{session.name!r} may not subscribe to {str(filter) or 'everything'!r}; ask for "
                "less, or have the grant widened"
            )
        for name in (message.durable, message.group):
            if name is not None and not 0 < len(name) <= MAX_NAME:
                raise InvalidConfiguration(
                    f"the name of a durable subscription or group has 1 to {MAX_NAME} characters"
                )
        if message.lease is not None and not message.lease > 0:
            raise InvalidConfiguration(f"a lease of {message.lease} seconds ends before it begins")
        consumer = Consumer(session.id, number, max(0, message.credit))
        resumed = False
        if message.group is not None:
            subscription = self._join_group(session, message, filter)
            if subscription is None:
                return
        else:
            subscription, resumed = self._new_subscription(session, message, filter)
        subscription.add(consumer)
        session.subscriptions[number] = subscription, consumer
        self._ready[subscription.feed.id] = None
        self._want_probe(subscription.feed)
        self._settling.append((self._probes.number + 1, session, consumer, resumed))

    def _new_subscription(
        self, session: Session, message: m.Subscribe, filter: Filter
    ) -> tuple[Subscription, bool]:
        durable = None
        resumed = False
        since, positions = message.since, message.positions
        id = f"{session.name}@{session.id}/{message.number}"
        if message.durable is not None:
            id = f"durable {message.durable}"
            durable = self.durables.get(message.durable)
            resumed = durable is not None
            if durable is None:
                begin = self._clock if since is None else since
                durable = Durable(message.durable, filter, since=begin)
            elif durable.group:
                raise _of_a_group(durable.name)
            else:
                since = durable.since
            merged = dict(durable.positions)
            for stream, position in (positions or {}).items():
                merged[stream] = max(position, merged.get(stream, 0))
            positions = merged
        subscription = Subscription(
            self._feed(id, filter, message, since, positions),
            durable=durable,
            lease=message.lease,
        )
        if durable is not None:  # nothing can go wrong any more
            self._take_over(id)
            durable.filter = filter
            self.durables[durable.name] = durable
        self._enter(subscription)
        if message.retained:
            subscription.feed.held = True
        return subscription, resumed

    def _feed(
        self,
        id: str,
        filter: Filter,
        message: m.Subscribe,
        since: float | None,
        positions: m.Positions | None,
    ) -> Feed:
        return Feed(
            id,
            filter,
            since=since,
            positions=positions,
            limit=min(message.limit or self._queue, self._queue),
            overflow=message.overflow,
            probe=self._probes.number + 1,
            made=self._clock,
        )

    def _enter(self, subscription: Subscription) -> None:
        feed = subscription.feed
        self.subscriptions[feed.id] = subscription
        if subscription.lease is not None:
            subscription.ends = self._now + subscription.lease
        self._last_filter += 1
        self._route_filters(
            self.router.subscribe(FilterId(feed.id, self._last_filter), feed.filter)
        )
        if feed.catching:
            self._hungry[feed.id] = None

    def _take_over(self, id: str) -> None:
        """A durable subscription has one consumer; a new one takes the place of the old."""
        old = self.subscriptions.get(id)
        if old is None:
            return
        for consumer in list(old.consumers):
            session = self.sessions[consumer.session]
            text = "another client has taken over this durable subscription"
            self._to_client(session, m.Ended(consumer.number, NameTaken.code, text))
            self._route_filters(self.router.withdraw(self._detach(session, consumer.number), []))

    def _detach(self, session: Session, number: int) -> list[FilterId]:
        """A consumer leaves its subscription; the filters that go with it."""
        subscription, consumer = session.subscriptions.pop(number)
        subscription.remove(consumer)
        if subscription.consumers:
            self._ready[subscription.feed.id] = None
            return []
        id = subscription.feed.id
        del self.subscriptions[id]
        self.dropped += subscription.feed.dropped
        self._congested.discard(id)
        self._probing.pop(id, None)
        self._hungry.pop(id, None)
        self._starved.pop(id, None)
        self._fetches.forget(id)
        self._fed()
        self._last_values.pop(id, None)
        if subscription.group is not None:
            self._tell_groups()
        return [
            f
            for f in self.router.plane.subscriptions.table.at(Local(id))
            if isinstance(f, FilterId)
        ]

    def _unsubscribe(self, session: Session, message: m.Unsubscribe) -> None:
        if message.number in session.subscriptions:
            subscription, _ = session.subscriptions[message.number]
            gone = self._detach(session, message.number)
            self._route_filters(self.router.withdraw(gone, []))
            durable = subscription.durable
            if message.forget and durable is not None and not subscription.consumers:
                self.durables.pop(durable.name, None)
                self._dirty[durable.name] = None
        self._to_client(session, m.Ended(message.number))

    def _renew(self, session: Session, message: m.Renew) -> None:
        subscription, _ = self._held(session, message.number)
        if subscription.lease is not None:
            subscription.ends = self._now + subscription.lease
        self._to_client(session, m.Subscribed(message.number, subscription.lease))

    def _held(self, session: Session, number: int) -> tuple[Subscription, Consumer]:
        try:
            return session.subscriptions[number]
        except KeyError:
            raise LeaseExpired(
                f"there is no subscription {number}, or no longer; subscribe again"
            ) from None

    def _credit(self, session: Session, message: m.Credit) -> None:
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscription, consumer = held
            consumer.credit = min(consumer.credit + max(0, message.more), 1 << 40)
            self._ready[subscription.feed.id] = None

    def _confirm(self, session: Session, message: m.Confirm) -> None:
        held = session.subscriptions.get(message.number)
        if held is not None:
            subscription, consumer = held
            durable = subscription.durable
            if subscription.confirm(consumer, message.positions) and durable is not None:
                self._dirty[durable.name] = None
            if durable is not None and message.request is not None:
                self._dirty.pop(durable.name, None)
                context = (session, m.Done(message.request))
                self._out.append(Persist(durable.name, durable.to_data(), context))
                return
        if message.request is not None:
            answer: m.Done | m.Failure = m.Done(message.request)
            if held is None:
                text = f"there is no subscription {message.number}, or no longer; subscribe again"
                answer = m.Failure(LeaseExpired.code, text, message.request)
            self._to_client(session, answer)

    def stored(self, context: Any, error: StentorError | None) -> None:
        """The state of a durable subscription is on disk, or could not be stored."""
        if context is None:
            return
        session, answer = context
        if session.id in self.sessions:
            if error is not None:
                answer = m.Failure(error.code, str(error), answer.number)
            self._to_client(session, answer)

    # -- groups

    def _join_group(
        self, session: Session, message: m.Subscribe, filter: Filter
    ) -> Subscription | None:
        """The group's subscription, made if need be; None if the group lives elsewhere."""
        name = message.group
        assert name is not None
        id = f"group {name}"
        subscription = self.subscriptions.get(id)
        if subscription is None:
            home = self._home(name)
            if home is not None:
                self._send_home(session, message.number, name, home)
                return None
            durable = None
            positions = None
            since = message.since
            if message.durable is not None:
                durable = self.durables.get(message.durable)
                if durable is None:
                    begin = self._clock if since is None else since
                    durable = Durable(message.durable, filter, since=begin, group=True)
                elif not durable.group or self.is_attached(durable):
                    raise NameTaken(
                        f"the durable subscription {durable.name!r} belongs to another group or to "
                        "a single client; choose another name"
                    )
                else:
                    since, positions = durable.since, dict(durable.positions)
            subscription = Subscription(
                self._feed(id, filter, message, since, positions),
                durable=durable,
                group=name,
                choice=message.choice,
            )
            if durable is not None:
                durable.filter = filter
                self.durables[durable.name] = durable
            self._enter(subscription)
            self._tell_groups()
        elif subscription.feed.filter != filter:
            raise InvalidConfiguration(
                f"the group {name!r} subscribes to {str(subscription.feed.filter)!r}; its members "
                "must all use the same filter"
            )
        return subscription

    def _home(self, group: str) -> m.Origin | None:
        """The broker at which a group lives, if it is another one."""
        streams = [s for s, names in self._groups.items() if group in names]
        origins = [self.directory.origin(s) for s in sorted(streams)]
        return next((o for o in origins if o is not None), None)

    def _send_home(self, session: Session, number: int, group: str, home: m.Origin) -> None:
        text = f"the group {group!r} lives at broker {home.broker!r}; connect to {home.address}"
        ended = m.Ended(number, GroupElsewhere.code, text, instead=home.address)
        self._to_client(session, ended)

    def _own_groups(self) -> m.Groups:
        names = sorted(s.group for s in self.subscriptions.values() if s.group is not None)
        return m.Groups(self.stream, names)

    def _tell_groups(self) -> None:
        self._flood(self._own_groups())

    def _groups_heard(self, neighbor: str, message: m.Groups) -> None:
        if self.directory.towards(message.stream) != neighbor:
            return
        if message.names:
            self._groups[message.stream] = message.names
        else:
            self._groups.pop(message.stream, None)
        self._flood(message, but=neighbor)
        if message.stream < self.stream:  # two began the same group: the lower stream keeps it
            home = self.directory.origin(message.stream)
            for name in message.names:
                subscription = self.subscriptions.get(f"group {name}")
                if subscription is None or home is None:
                    continue
                for consumer in list(subscription.consumers):
                    session = self.sessions[consumer.session]
                    self._send_home(session, consumer.number, name, home)
                    gone = self._detach(session, consumer.number)
                    self._route_filters(self.router.withdraw(gone, []))

    # -- advertisements and demand

    def _advertise(self, session: Session, message: m.Advertise) -> None:
        if message.number in session.advertisements:
            raise ProtocolError(f"the number {message.number} is in use by another advertisement")
        if len(session.advertisements) >= self._max_subscriptions:
            raise Overloaded(
                f"{session.name!r} has {self._max_subscriptions} advertisements, the most that "
                "this broker allows to one client"
            )
        filter = Filter(message.filter)
        session.advertisements[message.number] = filter
        id = FilterId(f"{session.name}@{session.id}", message.number)
        self._send_offers(self._offers.subscribe(id, filter))
        self._to_client(session, m.Done(message.number))
        if message.demand:
            table = self.router.plane.subscriptions.table
            asked = [row.filter for row in table.rows()]
            self._demands.watch((session.id, message.number), filter, asked)

    def _unadvertise_asked(self, session: Session, message: m.Unadvertise) -> None:
        if message.number in session.advertisements:
            self._unadvertise(session, message.number)
        self._to_client(session, m.Done(message.number))

    def _unadvertise(self, session: Session, number: int) -> None:
        del session.advertisements[number]
        self._demands.forget((session.id, number))
        id = FilterId(f"{session.name}@{session.id}", number)
        self._send_offers(self._offers.unsubscribe(id))

    def offers(self, overlapping: Filter | None = None) -> list[Filter]:
        """What is advertised anywhere, as far as it is not covered by something else."""
        found = [row.filter for row in self._offers.plane.subscriptions.table.rows()]
        return [f for f in found if overlapping is None or f.overlaps(overlapping)]

    def _entry(self, destination: Destination, filter: Filter) -> None:
        """An entry of the routing table has come or gone."""
        if self._demands:
            there = bool(self.router.plane.subscriptions.table.owners(filter))
            self._demands.entry(filter, there=there)

    def _tell_demand(self) -> None:
        for (id, number), filters in self._demands.changes(self._now):
            self._out.append(ToClient(id, m.Demand(number, filters)))

    # -- links

    def link_up(self, neighbor: str) -> None:
        """A new link, over which nothing has been said yet."""
        self._route_filters(self.router.link_up(neighbor))
        self._send_offers(self._offers.link_up(neighbor))
        self._out.append(ToLink(neighbor, self.directory.link_up(neighbor)))
        groups = [self._own_groups()]
        groups += [
            m.Groups(stream, names)
            for stream, names in self._groups.items()
            if self.directory.towards(stream) != neighbor
        ]
        self._out += [ToLink(neighbor, group) for group in groups if group.names]

    def link_down(self, neighbor: str) -> None:
        """The link is gone, with everything that was on its way."""
        self._route_filters(self.router.link_down(neighbor))
        self._send_offers(self._offers.link_down(neighbor))
        renewed, gone, sends = self.directory.link_down(neighbor)
        self._send(sends)
        self._gone(gone)
        self._fresh(renewed)
        sends, complete = self._probes.link_down(neighbor, self._heads())
        self._send(sends)
        self._probed(complete)

    def receive(self, neighbor: str, message: Any) -> None:
        """A neighbor says something."""
        handler = _FROM_NEIGHBOR.get(type(message))
        if handler is None:
            raise ProtocolError(f"a broker cannot send {type(message).__name__}")
        handler(self, neighbor, message)

    def broken(self, stream: m.StreamId, neighbor: str | None = None) -> m.Streams | None:
        """What to say to a neighbor in place of notifications that were dropped on the way.

        Nothing if the stream is gone, or now comes through that neighbor: it has been told so.
        """
        origin = self.directory.origin(stream)
        if origin is None or (neighbor is not None and self.directory.towards(stream) == neighbor):
            return None
        return m.Streams([origin], [])

    def _send(self, sends: Sends) -> None:
        self._out += [ToLink(to, message) for to, message in sends]  # type: ignore[arg-type]

    def _flood(self, message: Any, but: str | None = None) -> None:
        self._out += [ToLink(n, message) for n in self.neighbors if n != but]

    def _route_filters(self, outputs: Outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                assert isinstance(output.message, SubscriptionUpdate)
                added, removed = _written(output.message)
                self._out.append(ToLink(str(output.to), m.Subscriptions(added, removed)))

    def _send_offers(self, outputs: Outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                assert isinstance(output.message, SubscriptionUpdate)
                added, removed = _written(output.message)
                self._out.append(ToLink(str(output.to), m.Advertisements(added, removed)))

    def _subscriptions_heard(self, neighbor: str, message: m.Subscriptions) -> None:
        if self.hooks.watches("admin_in"):
            answer = self.hooks.run("admin_in", message)
            if answer is VETO:
                return
            message = answer
        self._route_filters(self.router.receive(neighbor, _read(message)))

    def _advertisements_heard(self, neighbor: str, message: m.Advertisements) -> None:
        if self.hooks.watches("admin_in"):
            answer = self.hooks.run("admin_in", message)
            if answer is VETO:
                return
            message = answer
        self._send_offers(self._offers.receive(neighbor, _read(message)))

    def _streams_heard(self, neighbor: str, message: m.Streams) -> None:
        fresh, sends, cycle = self.directory.heard(neighbor, message)
        self._send(sends)
        if cycle:
            self._refuse(neighbor)
        self._gone([s for s in message.down if not self.directory.reaches(s)])
        self._fresh(fresh)

    def _refuse(self, neighbor: str) -> None:
        text = f"the link to {neighbor!r} closes a cycle; links must form a tree"
        self._out.append(CloseLink(neighbor, LinkRefused.code, text))

    def _look_for_cycles(self) -> None:
        """Close links that have been in reserve for too long."""
        now = self._now
        self._reserve = {n: self._reserve.get(n, now) for n in sorted(self.directory.reserve)}
        # Usually one broker acts before the others, and then they need not.
        patience = RESERVE_PATIENCE * (1 + crc32(self.stream.encode()) % 100 / 100)
        for neighbor, since in self._reserve.items():
            if now - since >= patience:
                self._refuse(neighbor)

    def _fresh(self, origins: Iterable[m.Origin]) -> None:
        """These streams begin afresh: all feeds may have missed something of them."""
        for origin in origins:
            stream = origin.stream
            self.counters["interruptions"] += 1
            self._cancel(stream)
            head = self._marks.pop(stream, 0)
            for id, subscription in self.subscriptions.items():
                feed = subscription.feed
                feed.mark(stream, head)
                feed.interrupted(stream, self._probes.number + 1)
                self._want_probe(feed)
                self._hungry[id] = None

    def _gone(self, streams: Iterable[m.StreamId]) -> None:
        for stream in streams:
            self._cancel(stream)
            self._groups.pop(stream, None)
            head = self._marks.pop(stream, 0)
            for subscription in self.subscriptions.values():
                subscription.feed.mark(stream, head)
            if self._serving:
                self._serving = deque(f for f in self._serving if f.origin != stream)

    def _cancel(self, stream: m.StreamId) -> None:
        """Requests to this stream will not be answered."""
        for pending in self._fetches.cancel(stream):
            subscription = self.subscriptions.get(pending.feed)
            if pending.retained:
                self._last_values_of(pending.feed, stream, None)
            elif subscription is not None:
                subscription.feed.fetch_failed(stream)
                self._hungry[pending.feed] = None
        self._fed()

    def _fed(self) -> None:
        """Requests have ended: others may send theirs."""
        if self._starved and not self._fetches.full:
            self._hungry.update(self._starved)
            self._starved.clear()

    # -- probes and marks

    def _want_probe(self, feed: Feed) -> None:
        self._probing[feed.id] = None
        self._probe_wanted = True

    def _begin_probe(self) -> None:
        while self._probe_wanted and not self._probes.waiting:
            self._probe_wanted = False
            self.counters["probes"] += 1
            self._send(self._probes.begin(self.neighbors))
            self._probed(self._probes.finish_own(self._heads()))

    def _probe_heard(self, neighbor: str, message: m.Probe) -> None:
        self._send(self._probes.passed(neighbor, message, self.neighbors, self._heads()))

    def _echo_heard(self, neighbor: str, message: m.Echo) -> None:
        sends, complete = self._probes.echoed(neighbor, message, self._heads())
        self._send(sends)
        self._probed(complete)

    def _probed(self, complete: tuple[int, m.Positions] | None) -> None:
        """All brokers have answered: subscriptions from before are in force."""
        if complete is None:
            return
        number, heads = complete
        # In a tree a broker is left out only if its link has failed. In a cycle its answer may be
        # lost with another link than the one it is reached by: it has to be asked again.
        left_out = [o.stream for o in self.directory.others if o.stream not in heads]
        waiting, self._probing = self._probing, {}
        for id in waiting:
            subscription = self.subscriptions.get(id)
            if subscription is None:
                continue
            feed = subscription.feed
            for stream in left_out:
                feed.interrupted(stream, number + 1)
            if feed.heads(number, heads) and subscription.durable is not None:
                # It begins here. Brokers that could not be asked are read from the time of its
                # making on, when they are there.
                subscription.durable.confirm(feed.positions)
            if feed.waits_for(number):
                self._want_probe(feed)
            if feed.held and id not in self._last_values:
                self._ask_last_values(feed, heads)
            self._hungry[id] = None
            self._ready[id] = None
        later = []
        for entry in self._settling:
            probe, session, consumer, resumed = entry
            subscription, holder = session.subscriptions.get(consumer.number, (None, None))
            if subscription is None or holder is not consumer:
                continue
            if probe > number:
                later.append(entry)
            else:
                self._settled(session, subscription, consumer, resumed)
        self._settling = later

    def _settled(
        self, session: Session, subscription: Subscription, consumer: Consumer, resumed: bool
    ) -> None:
        """A subscription is in force; one that is durable, when that is on disk."""
        # Where it begins comes first: who knows that it is in force must know from where on.
        self._tell_progress(subscription)
        answer = m.Subscribed(consumer.number, subscription.lease, resumed)
        durable = subscription.durable
        if durable is None:
            self._to_client(session, answer)
            return
        self._dirty.pop(durable.name, None)
        self._out.append(Persist(durable.name, durable.to_data(), (session, answer)))

    def _mark_heard(self, neighbor: str, message: m.Mark) -> None:
        if self.directory.towards(message.stream) == neighbor:
            self._marks[message.stream] = message.head
            self._flood(message, but=neighbor)

    # -- reading journals

    def work(self) -> None:
        """Do one piece of what can wait: a stretch for another broker, a stretch for a feed."""
        if self._serving:
            self._answer_fetch(self._serving.popleft())
        if self._hungry:
            id = next(iter(self._hungry))
            del self._hungry[id]
            subscription = self.subscriptions.get(id)
            if subscription is not None:
                self._feed_hungry(subscription.feed)

    def _feed_hungry(self, feed: Feed) -> None:
        for wish in feed.wishes():
            fetch = m.Fetch(wish.stream, self.stream, 0, str(feed.filter), wish.first, wish.since)
            if wish.stream in self._logs:
                feed.fetches(wish.stream)
                self._stretched(feed, wish.first, self._read(fetch))
                continue
            neighbor = self.directory.towards(wish.stream)
            if neighbor is None:
                continue  # when it can be reached again, the stream begins afresh
            if self._fetches.full:
                self._starved[feed.id] = None
                return
            feed.fetches(wish.stream)
            fetch.number = self._fetches.add(Pending(feed.id, wish.stream, wish.first, False))
            self._out.append(ToLink(neighbor, fetch))

    def _stretched(self, feed: Feed, asked: int, chunk: m.Chunk) -> None:
        feed.stretch(
            Run(chunk.stream, chunk.offsets, chunk.items),
            asked=asked,
            through=chunk.through,
            head=chunk.head,
            low=chunk.low,
        )
        self._ready[feed.id] = None

    def _read(self, fetch: m.Fetch) -> m.Chunk:
        self.counters["served"] += 1
        head = self._heads()[fetch.stream]
        try:
            return stretch(self._logs[fetch.stream], head, fetch)
        except JournalDamaged as error:
            # What is damaged is never served; for the reader it is gone, as by retention.
            last = getattr(error, "last", 0) or head
            return m.Chunk(fetch.origin, fetch.number, fetch.stream, [], [], last, head, last + 1)

    def _fetch_heard(self, neighbor: str, message: m.Fetch) -> None:
        if message.stream in self._logs:
            self._serving.append(message)
            return
        onwards = self.directory.towards(message.stream)
        if onwards is not None and onwards != neighbor:
            self._out.append(ToLink(onwards, message))

    def _answer_fetch(self, fetch: m.Fetch) -> None:
        neighbor = self.directory.towards(fetch.origin)
        if neighbor is not None:
            if fetch.retained:
                chunk = last_values(self._logs[fetch.stream], fetch)
            else:
                chunk = self._read(fetch)
                if self.hooks.watches("forward"):
                    chunk.offsets, chunk.items = self._hooked("forward", chunk.offsets, chunk.items)
            self._out.append(ToLink(neighbor, chunk))

    def _chunk_heard(self, neighbor: str, message: m.Chunk) -> None:
        if message.origin != self.stream:
            onwards = self.directory.towards(message.origin)
            if onwards is not None and onwards != neighbor:
                self._out.append(ToLink(onwards, message))
            return
        pending = self._fetches.answered(message.number)
        self._fed()
        if pending is None or pending.stream != message.stream:
            return
        subscription = self.subscriptions.get(pending.feed)
        if subscription is None:
            return
        if pending.retained:
            self._last_values_of(pending.feed, message.stream, message)
        else:
            self._stretched(subscription.feed, pending.first, message)

    # -- last values

    def _ask_last_values(self, feed: Feed, heads: m.Positions) -> None:
        collected = _LastValues(set(heads), self._now + LAST_VALUES_PATIENCE)
        self._last_values[feed.id] = collected
        for stream in heads:
            fetch = m.Fetch(stream, self.stream, 0, str(feed.filter), 0, 0.0, retained=True)
            neighbor = self.directory.towards(stream)
            if stream in self._logs:
                self._last_values_of(feed.id, stream, last_values(self._logs[fetch.stream], fetch))
            elif neighbor is None:
                self._last_values_of(feed.id, stream, None)
            else:
                fetch.number = self._fetches.add(Pending(feed.id, stream, 0, True))
                self._out.append(ToLink(neighbor, fetch))

    def _last_values_of(self, id: str, stream: str, chunk: m.Chunk | None) -> None:
        """The last values of one broker; the newest of a key counts."""
        collected = self._last_values.get(id)
        if collected is None:
            return
        if chunk is not None:
            for key, time, data in zip(chunk.keys, chunk.times, chunk.items, strict=True):
                if key not in collected.best or time > collected.best[key][0]:
                    collected.best[key] = time, data
        collected.waiting.discard(stream)
        if not collected.waiting:
            self._put_last_values(id)

    def _put_last_values(self, id: str) -> None:
        collected = self._last_values.pop(id)
        subscription = self.subscriptions.get(id)
        if subscription is not None:
            newest_last = sorted(collected.best.values())
            subscription.feed.put_last_values([data for _, data in newest_last])
            self._ready[id] = None

    # -- time

    def tick(self, now: float, clock: float) -> None:
        """Time has passed: `now` only goes forward, `clock` is seconds since 1970."""
        self._now, self._clock = now, clock
        for subscription in list(self.subscriptions.values()):
            if subscription.ends <= now:
                self._expire(subscription)
        for id, collected in list(self._last_values.items()):
            if collected.deadline <= now:
                self._put_last_values(id)
        if now >= self._next_mark:
            self._next_mark = now + MARK_EVERY
            self._look_for_cycles()
            if self._head > self._marked:
                self._marked = self._head
                self._flood(m.Mark(self.stream, self._head))
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_EVERY
            self._progress()

    def _expire(self, subscription: Subscription) -> None:
        text = f"the lease of {subscription.lease} seconds was not renewed; subscribe again"
        for consumer in list(subscription.consumers):
            session = self.sessions[consumer.session]
            self._to_client(session, m.Ended(consumer.number, LeaseExpired.code, text))
            gone = self._detach(session, consumer.number)
            self._route_filters(self.router.withdraw(gone, []))

    def _progress(self) -> None:
        """Tell subscribers how far streams have come in which there was nothing for them."""
        marks = {**self._marks, **self._heads()}
        for subscription in self.subscriptions.values():
            for stream, head in marks.items():
                subscription.feed.mark(stream, head)
            self._tell_progress(subscription)

    def _tell_progress(self, subscription: Subscription) -> None:
        if subscription.group is None:  # the members of a group know their own part only
            for consumer in subscription.consumers:
                news = subscription.news()
                if news:
                    self._out.append(ToClient(consumer.session, m.Progress(consumer.number, news)))


def _of_a_group(durable: str) -> NameTaken:
    return NameTaken(
        f"the durable subscription {durable!r} belongs to a group; join the group, or choose "
        "another name"
    )


def _index(all_items: list[bytes], items: list[bytes], i: int) -> int:
    """The index in the message of the i-th item that could be decoded."""
    if all_items is items:
        return i
    return next(k for k, data in enumerate(all_items) if data is items[i])


def _written(
    message: SubscriptionUpdate,
) -> tuple[list[tuple[m.Key, str]], list[m.Key]]:
    added = [(_key(key), str(filter)) for key, filter in message.added]
    return added, [_key(key) for key in message.removed]


def _key(key: object) -> m.Key:
    return (key.client, key.number) if isinstance(key, FilterId) else str(key)


def _read(message: m.Subscriptions | m.Advertisements) -> SubscriptionUpdate:
    try:
        added = tuple((_unwritten(key), parsed(text)) for key, text in message.added)
        return SubscriptionUpdate(added, tuple(_unwritten(key) for key in message.removed))
    except StentorError as error:
        raise ProtocolError(f"a neighbor sent a filter that is none: {error}") from error


def _unwritten(key: m.Key) -> FilterId | Filter:
    return parsed(key) if isinstance(key, str) else FilterId(*key)


_FROM_CLIENT: Final[dict[type, Any]] = {
    m.Publish: Service._publish,
    m.Subscribe: Service._subscribe,
    m.Unsubscribe: Service._unsubscribe,
    m.Renew: Service._renew,
    m.Credit: Service._credit,
    m.Confirm: Service._confirm,
    m.Advertise: Service._advertise,
    m.Unadvertise: Service._unadvertise_asked,
}

_FROM_NEIGHBOR: Final[dict[type, Any]] = {
    m.Subscriptions: Service._subscriptions_heard,
    m.Advertisements: Service._advertisements_heard,
    m.Forward: Service._forwarded,
    m.Streams: Service._streams_heard,
    m.Probe: Service._probe_heard,
    m.Echo: Service._echo_heard,
    m.Fetch: Service._fetch_heard,
    m.Chunk: Service._chunk_heard,
    m.Mark: Service._mark_heard,
    m.Groups: Service._groups_heard,
}
