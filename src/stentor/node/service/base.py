"""What all parts of the service share: its state, and how it speaks to clients and neighbors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from stentor.filters import Filter
from stentor.model.codec import Envelope
from stentor.node.actions import (
    Action,
    ToClient,
    ToLink,
)
from stentor.node.border import Border
from stentor.node.demand import Demands
from stentor.node.durable import Durable
from stentor.node.feed import QUEUE_LIMIT, Feed
from stentor.node.hooks import Hooks
from stentor.node.last_values import LastValues
from stentor.node.log import Log
from stentor.node.reading import Fetches
from stentor.node.session import Line, Session
from stentor.node.streams import Directory, Probes, Sends
from stentor.node.subscription import Consumer, Subscription
from stentor.protocol import messages as m
from stentor.routing import Strategy, TreeRouter
from stentor.routing.messages import SubscriptionUpdate
from stentor.routing.protocol import FilterId, Outputs, Send

#: About how many bytes of filters go into one frame, and what an entry takes besides its texts.
FRAME_BYTES: Final = 512 * 1024
ENTRY_BYTES: Final = 24
#: Filters that are announced or hidden in one step because another one has gone or come.
FILTERS_AT_ONCE: Final = 32
#: Pairs of a filter and an offer that are looked at in one step.
PAIRS_AT_ONCE: Final = 1_000
#: Groups that one message names; a name has up to 255 characters.
GROUPS_AT_ONCE: Final = 256


class Base:
    """State and speech."""

    def __init__(
        self,
        name: str,
        log: Log,
        *,
        router: TreeRouter | None = None,
        addresses: Iterable[str] = (),
        enforce_advertisements: bool = False,
        max_subscriptions: int = 10_000,
        max_durables: int = 10_000,
        max_groups: int = 1_000,
        window: int = 20_000,
        queue: int = QUEUE_LIMIT,
        hooks: Hooks | None = None,
        now: float = 0.0,
        clock: float = 0.0,
    ) -> None:
        """`now` is a clock that only goes forward; `clock` is seconds since 1970."""
        self.name = name
        self.log = log
        self.router = router or _router(name)
        self.hooks = hooks or Hooks()
        self.directory = Directory(m.Origin(log.stream, name, tuple(addresses)))
        self.sessions: dict[int, Session] = {}
        #: Those whose connections are gone, but not everything that they had.
        self._leaving: dict[int, None] = {}
        self._lines: dict[str, Line] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.durables: dict[str, Durable] = {}
        #: Names of durable subscriptions that are consumed now, and of groups that live here.
        self._attached: set[str] = set()
        self._groups_here: set[str] = set()
        #: Subscriptions that are leases, and those that are to be told how far streams have come.
        self._leases: dict[str, None] = {}
        self._to_tell: deque[str] = deque()
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
                "kept_out",
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
        self._max_durables = max_durables
        self._max_groups = max_groups
        self._window = window
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
        #: Whether one is to be sent at once, or when time has passed.
        self._probe_wanted = False
        self._probe_later = False
        #: Feeds that wait for a probe to be answered, and clients that wait with them.
        self._probing: dict[str, None] = {}
        self._settling: dict[Consumer, tuple[int, Session, bool]] = {}
        #: Answers to probes that feeds are being told of.
        self._answered: deque[Iterator[None]] = deque()
        self._marks: m.Positions = {}
        #: How far streams had come that are gone, for feeds that do not know it yet.
        self._last_marks: deque[Iterator[tuple[Feed, m.StreamId, int]]] = deque()
        self._ready: dict[str, None] = {}
        #: Feeds that may want to read journals, and those that have to wait for others to do so.
        self._hungry: dict[str, None] = {}
        self._starved: dict[str, None] = {}
        self._fetches = Fetches()
        self._serving: deque[m.Fetch] = deque()
        #: Clients that have asked to read and can take what they read.
        self._turns: dict[int, None] = {}
        self._last_values: dict[str, LastValues] = {}
        self._blocked: set[int] = set()
        #: What is on disk and was not yet routed: for whom, and from which offset on.
        self._landed: deque[tuple[Session, list[int], list[Envelope], list[bytes], int]] = deque()
        #: Volatile publications that wait to be routed together, and answers to be given.
        self._volatile: tuple[list[bytes], list[Envelope]] = ([], [])
        self._answers: dict[int, int] = {}
        #: The number of the newest volatile publication here, and of the newest that came of each
        #: stream. They rise over restarts: no broker takes a million a second for long.
        self._volatile_number = first
        self._volatile_seen: dict[m.StreamId, int] = {}
        #: Subscriptions for which publishers wait: since when, and what had been taken by then.
        self._congested: dict[str, tuple[float, int]] = {}
        #: Those for which they no longer do, until more than this has been taken.
        self._stuck: dict[str, int] = {}
        self._dirty: dict[str, None] = {}
        #: What is offered everywhere: advertisements spread as subscriptions do, on their own.
        self._offers = _router(name)
        self._demands = Demands(at_once=PAIRS_AT_ONCE)
        #: Groups at other brokers.
        self._groups: dict[m.StreamId, set[str]] = {}
        #: Groups here as neighbors know them, those that began since, and whether some have ended.
        self._groups_told: set[str] = set()
        self._groups_begun: set[str] = set()
        self._groups_ended = False
        self._next_groups = now
        self._last_filter = 0
        #: Neighbors whose grants do not allow everything.
        self._borders: dict[str, Border] = {}
        #: Those whose links are gone, but not everything that they asked for.
        self._unlinking: dict[str, None] = {}
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
        return sorted(n for n in map(str, self.router.neighbors) if n not in self._unlinking)

    @property
    def congested(self) -> bool:
        """Whether publishers wait for a slow subscriber, by its own policy."""
        return bool(self._congested)

    def _heads(self) -> m.Positions:
        """The last offset of each stream that this broker answers for."""
        if len(self._logs) == 1:
            return {self.stream: self._head}
        return {s: log.head if log is not self.log else self._head for s, log in self._logs.items()}

    def is_attached(self, durable: Durable) -> bool:
        """Whether somebody consumes this durable subscription now."""
        return durable.name in self._attached

    def _to_client(self, session: Session, message: Any) -> None:
        self._out.append(ToClient(session.id, message))

    def _send(self, sends: Sends) -> None:
        self._out += [ToLink(to, message) for to, message in sends]  # type: ignore[arg-type]

    def _flood(self, message: Any, but: str | None = None) -> None:
        self._out += [ToLink(n, message) for n in self.neighbors if n != but]

    def _route_filters(self, outputs: Outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                update, to = output.message, str(output.to)
                assert isinstance(update, SubscriptionUpdate)
                if to in self._borders:
                    update = self._borders[to].asks.update(update)
                for added, removed in _written(update):
                    self._out.append(ToLink(to, m.Subscriptions(added, removed)))

    def _send_offers(self, outputs: Outputs) -> None:
        for output in outputs:
            if isinstance(output, Send):
                update, to = output.message, str(output.to)
                assert isinstance(update, SubscriptionUpdate)
                if to in self._borders:
                    update = self._borders[to].offers.update(update)
                for added, removed in _written(update):
                    self._out.append(ToLink(to, m.Advertisements(added, removed)))

    def _fed(self) -> None:
        """Requests have ended: others may send theirs."""
        if self._starved and not self._fetches.full:
            self._hungry.update(self._starved)
            self._starved.clear()

    def _tell_progress(self, subscription: Subscription) -> None:
        if subscription.group is None:  # the members of a group know their own part only
            for consumer in subscription.consumers:
                news = subscription.news()
                if news:
                    self._out.append(ToClient(consumer.session, m.Progress(consumer.number, news)))


def _router(name: str) -> TreeRouter:
    return TreeRouter(name, Strategy("covering"), at_once=FILTERS_AT_ONCE)


def groups_at(
    stream: m.StreamId, names: Iterable[str], *, more: bool = False
) -> Iterator[m.Groups]:
    """The groups at a broker as messages, none of which is too large."""
    left = sorted(names)
    while True:
        yield m.Groups(stream, left[:GROUPS_AT_ONCE], more)
        left, more = left[GROUPS_AT_ONCE:], True
        if not left:
            return


def _written(
    message: SubscriptionUpdate,
) -> Iterator[tuple[list[tuple[m.Key, str]], list[m.Key]]]:
    """The update as texts, cut so that no frame is too large.

    Everything that is new comes before anything that goes, so that nothing is missing in between.
    """
    added: list[tuple[m.Key, str]] = []
    removed: list[m.Key] = []
    size = 0
    for key, filter in message.added:
        entry = _key(key), str(filter)
        size += len(entry[1]) * (2 if isinstance(key, Filter) else 1) + ENTRY_BYTES
        added.append(entry)
        if size > FRAME_BYTES:
            yield added, removed
            added, removed, size = [], [], 0
    for gone in message.removed:
        name = _key(gone)
        size += (len(name) if isinstance(name, str) else len(name[0])) + ENTRY_BYTES
        removed.append(name)
        if size > FRAME_BYTES:
            yield added, removed
            added, removed, size = [], [], 0
    if added or removed:
        yield added, removed


def _key(key: object) -> m.Key:
    return (key.client, key.number) if isinstance(key, FilterId) else str(key)
