"""A client of a simulated network: an application with the library that it would use.

A client is one component (R-01.20): whatever it subscribes to, it gets each notification once, in
order. By default it publishes and subscribes *volatile*, so that nothing but routing is simulated.
One that is `journaled`, or `durable` under a name, has the guarantees of live clients, and does as
their library does: it keeps its positions and its unanswered publications when its connection
breaks, and presents them when it connects again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from stentor.errors import (
    DurableElsewhere,
    GroupElsewhere,
    InvalidConfiguration,
    JournalUnavailable,
    LeaseExpired,
    NotAdvertised,
    RepeatedPublication,
    StentorError,
    UnknownClient,
    error_of,
)
from stentor.filters import Filter
from stentor.model.codec import encode
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.model.stamp import without_stamps
from stentor.node.settling import Key
from stentor.protocol import messages as m
from stentor.protocol.messages import Positions, StreamId
from stentor.routing.protocol import BrokerId, ClientId, FilterId

if TYPE_CHECKING:
    from stentor.simulation.broker import SimulatedBroker
    from stentor.simulation.host import Host

#: Notifications that may be on their way to a client with guarantees; others have no limit.
WINDOW: Final = 100
_UNLIMITED: Final = 1 << 40
T = TypeVar("T")


class Held(NamedTuple):
    """A notification that is not settled, and how often it was given."""

    id: NotificationId
    attempt: int
    notification: Notification


@dataclass(eq=False)
class SimulatedCommit:
    """A transaction: what was taken of a subscription, and what is published."""

    inbox: SimulatedInbox
    keys: list[Key]
    items: list[bytes]
    name: tuple[str, int, int]
    #: Why it was refused, if it was; empty if it was carried out, None if it was not answered.
    code: str | None = None


class _Lazily(cached_property[T]):
    """An attribute that is made when it is first asked for; there may be very many clients."""

    def __init__(self, make: Callable[[], T]) -> None:
        super().__init__(lambda _: make())


@dataclass(eq=False)
class SimulatedInbox:
    """A subscription as its client sees it, over all its connections."""

    client: Client
    #: What it is in the trace.
    component: str
    filters: dict[FilterId, Filter]
    #: As on the wire: durable, since, group, lease, overflow, ...
    options: dict[str, Any]
    #: Whether its filters may change; what has been said about them and was not answered; and the
    #: step at which the client first heard of each that it is in force.
    changes: bool = False
    amendments = _Lazily(dict[int, Filter])
    settled = _Lazily(dict[FilterId, int])
    #: What was said about these could not be stored, and will be said again.
    unstored = _Lazily(dict[Filter, None])
    #: Those to which history belongs, those that the broker has to keep for a process that died,
    #: and what was asked for once.
    first = _Lazily(set[FilterId])
    kept = _Lazily(dict[FilterId, Filter])
    past = _Lazily(set[Filter])
    number: int = 0
    #: When it was made; None if the process has died since, and knows no more than names.
    made_at: float | None = 0.0
    positions = _Lazily(Positions)
    #: The step at which the client first heard that it is in force, and its positions then.
    in_force: int | None = None
    began = _Lazily(Positions)
    #: What came, in order: stream, offset and id; and the ids of what no journal holds.
    given = _Lazily(list[tuple[StreamId, int, NotificationId]])
    volatile = _Lazily(list[NotificationId])
    retained = _Lazily(list[Notification])
    gaps = _Lazily(list[m.Gap])
    seen = _Lazily(SeenIds)
    #: Positions that are confirmed on disk, and those that are about to be.
    confirmed = _Lazily(Positions)
    asked = _Lazily(dict[int, Positions])
    #: Why it ended, if the broker has ended it; and whether it is over.
    ended: str | None = None
    over: bool = False
    #: Whether it was told that it lives elsewhere, and has to ask again; and whether that was so
    #: after it had come in force. If it was made twice, what only one of the two owed comes late.
    waits: bool = False
    replaced: bool = False
    #: Notifications of credit that were not given back yet.
    debt: int = 0
    #: Of each stream what was dealt with last, in order of giving: what a group's member confirms.
    last = _Lazily(Positions)
    #: Where notifications are settled one by one: what waits for the application, and what it has,
    #: each with how often it was given; what it has settled; refusals that were not answered, what
    #: has to wait for the answers, and those that are said when it is in force again.
    waiting = _Lazily(dict[Key, Held])
    aside = _Lazily(dict[Key, Held])
    hands = _Lazily(dict[Key, Held])
    settled_keys = _Lazily(set[Key])
    withheld = _Lazily(dict[tuple[StreamId, str, int], int])
    unsaid = _Lazily(list[m.Refused])
    #: Those that are settled on disk, and those that are about to be.
    stored = _Lazily(set[Key])
    storing = _Lazily(dict[int, list[Key]])
    #: What came on this connection, or in this life: none of it may come again.
    _on_connection = _Lazily(set[Any])
    _in_life = _Lazily(set[tuple[StreamId, int]])

    def __post_init__(self) -> None:
        self.first.update(self.filters)

    @property
    def is_volatile(self) -> bool:
        return bool(self.options.get("volatile"))

    @property
    def is_shared(self) -> bool:
        return "group" in self.options

    @property
    def settles(self) -> bool:
        """Whether notifications are settled one by one."""
        return "settlement" in self.options

    def take(self, message: m.Deliver) -> None:
        """Notifications have come."""
        host = self.client.host
        notifications = host.read(message.items)
        self.debt += len(notifications)
        if self.settles and message.offsets:
            self._take_in(message, notifications)
            return
        if host.thorough:
            self._check(message, notifications)
        if message.retained:
            self.retained += notifications
            return
        if not (message.offsets or host.thorough):
            self.client.received += notifications
            host.notified(self.component, notifications, journaled=False)
            return
        for i, notification in enumerate(notifications):
            id = notification.id
            assert id is not None
            if message.offsets and not self._is_news(message.stream, message.offsets[i], id):
                continue
            if host.thorough and not self.wants(notification):
                self.seen.discard(id)
                continue  # it was on its way when the client changed its mind
            if not message.offsets:
                if id in self.volatile:
                    continue  # a client that connects elsewhere can overtake what it has had
                self.volatile.append(id)
            self.client.received.append(notification)
            host.notified(self.component, [notification], journaled=bool(message.offsets))

    def _take_in(self, message: m.Deliver, notifications: list[Notification]) -> None:
        """What is to be settled one by one waits until the application asks for it."""
        stream = message.stream
        for offset, notification in zip(message.offsets, notifications, strict=True):
            id = notification.id
            assert id is not None
            assert self.wants(notification), f"{self.component} does not want {notification!r}"
            key, held = (stream, offset), Held(id, message.attempt, notification)
            if not self.is_shared:  # else it may have been given before, and be taken back
                assert key not in self.stored, f"{key} came again, and is settled on disk"
            if key in self.settled_keys:
                self.client.settle(self, done=[key])
            elif key in self.hands and self.hands[key].attempt == message.attempt:
                self.client.settle(self, begun=[key])
            elif self.withheld.get((stream, id.producer, offset)) != message.attempt:
                assert key not in self.waiting | self.aside, f"{key} came twice"
                self.waiting[key] = held
                self.set_aside()

    def set_aside(self) -> None:
        """What is behind one that was refused waits for the answer."""
        both = {**self.aside, **self.waiting}
        self.aside = {
            (stream, offset): held
            for (stream, offset), held in both.items()
            if any((s, p) == (stream, held.id.producer) and offset > o for s, p, o in self.withheld)
        }
        self.waiting = {key: held for key, held in both.items() if key not in self.aside}

    def hand_out(self) -> tuple[Key, Held] | None:
        """The application asks for the next one."""
        if not self.waiting:
            return None
        key = next(iter(self.waiting))
        held = self.hands[key] = self.waiting.pop(key)
        self.given.append((*key, held.id))
        if self.seen.add(held.id):
            self.client.received.append(held.notification)
            self.client.host.notified(self.component, [held.notification], journaled=True)
        return key, held

    def withdrawn(self, message: m.Withdrawn) -> list[Key]:
        """What others get, or comes again; those that the application had."""
        keys = [(message.stream, offset) for offset in message.offsets]
        if message.refused:
            answered = message.stream, message.refused
            self.withheld = {k: n for k, n in self.withheld.items() if k[::2] != answered}
        for key in keys:
            self.waiting.pop(key, None)
            self.aside.pop(key, None)
        self.set_aside()
        return [key for key in keys if self.hands.pop(key, None) is not None]

    def wants(self, event: Mapping[str, Any] | Notification) -> bool:
        """Whether any of its filters matches."""
        return any(filter.matches(event) for filter in self.filters.values())

    def _is_news(self, stream: StreamId, offset: int, id: NotificationId) -> bool:
        """Whether the client has not had this, here or by another stream."""
        if self.is_volatile and offset <= self.positions.get(stream, 0):
            return False  # at another broker it can come again
        self.positions[stream] = self.last[stream] = offset
        if self.client.host.thorough:
            self.given.append((stream, offset, id))
        return self.seen.add(id)

    def _check(self, message: m.Deliver, notifications: list[Notification]) -> None:
        """What is promised of each single delivery."""
        host, stream = self.client.host, message.stream
        for i, notification in enumerate(notifications):
            id = notification.id
            assert id is not None
            known = host.publications.get(id)
            if known is None:
                assert id.producer.endswith("@"), f"{id} was never published"
            else:
                assert known.notification == notification, f"{id} was altered"
            wanted = self.wants(notification) or any(f.matches(notification) for f in self.past)
            assert wanted, f"{self.component} does not want {notification!r}, and never did"
            if message.retained:
                continue
            if not message.offsets:
                assert known is None or known.volatile, f"{id} came without its offset"
                self._once((id, self.client.broker))
                continue
            offset = message.offsets[i]
            entry = host.journal(stream).entries[offset - 1][0]
            (written,) = without_stamps([entry])
            assert written == encode(notification), f"{stream}:{offset} is another"
            self._once((stream, offset, self.client.session))
            if self.is_volatile:
                continue
            if not self.is_shared:
                before = max(self.positions.get(stream, 0), self.confirmed.get(stream, 0))
                before = max([before, *(o for s, o in self._of(message, i) if s == stream)])
                assert offset > before, f"{self.component} has had {stream}:{offset}"
            assert (stream, offset) not in self._in_life, f"{stream}:{offset} came twice"
            self._in_life.add((stream, offset))

    @staticmethod
    def _of(message: m.Deliver, count: int) -> list[tuple[StreamId, int]]:
        return [(message.stream, offset) for offset in message.offsets[:count]]

    def _once(self, what: Any) -> None:
        assert what not in self._on_connection, f"{what} came twice on one connection"
        self._on_connection.add(what)

    # -- filters that come and go

    def drop(self, id: FilterId) -> Filter:
        """Ask for it no longer."""
        gone = self.filters.pop(id)
        self.past.add(gone)
        self.client.host.trace.unsub(self.component, id)
        return gone

    def settle(self, filters: Collection[Filter]) -> None:
        """These are in force, says the broker, but for what was said about them since."""
        pending = self.amendments.values()
        for id, filter in self.filters.items():
            if filter in filters and filter not in pending:
                self.settled.setdefault(id, self.client.host.steps)

    def amended(self, added: list[Filter], removed: list[Filter]) -> None:
        """The broker's word counts, unless there is something to say to it."""
        pending = self.amendments.values()
        for filter in added:
            known = [id for id, each in self.kept.items() if each == filter]
            for id in known:
                del self.kept[id]
            if filter not in pending and filter not in self.filters.values():
                for id in known or [self.client.new_filter(self.component)]:
                    self.filters[id] = filter
                    self.client.host.trace.sub(self.component, id, filter)
        gone = set(removed).difference(pending)
        for id in [id for id, each in self.filters.items() if each in gone] if gone else ():
            self.drop(id)

    def forget_place(self) -> None:
        """It goes on wherever the broker does; only ids tell what has come."""
        self.replaced |= bool(self.positions)
        self.positions, self.last = {}, {}
        self._in_life.clear()
        self._on_connection.clear()

    def forget_life(self) -> None:
        """The process has died; only names are left. The broker says what it asked for."""
        if self.changes:
            pending = self.amendments.values()
            self.kept = {
                id: filter
                for id, filter in self.filters.items()
                if id in self.settled and filter not in pending
            }
            self.past.update(self.filters.values())
            self.filters, self.amendments, self.unstored = {}, {}, {}
        self.positions, self.last = {}, {}
        self.made_at = None
        self._in_life.clear()
        self.debt = 0
        self.seen = SeenIds()
        self.hands.clear()
        self.settled_keys.clear()
        self._forget_refusals()

    def lost_connection(self) -> None:
        self.asked.clear()
        self.storing.clear()
        self.waiting.clear()
        self.aside.clear()
        self._forget_refusals()
        if self.is_shared:  # what it was given may come back to it
            self.last.clear()
            self.hands.clear()
            self._in_life.clear()

    def _forget_refusals(self) -> None:
        """What no broker has heard of comes again."""
        self.withheld.clear()
        self.unsaid.clear()


class Client:
    """Publishes and subscribes at one broker; `received` is what was delivered, in order.

    >>> from stentor.simulation import Network
    >>> net = Network.tree([(1, 2)])
    >>> a, b = net.client(at=1), net.client(at=2)
    >>> wanted = b.subscribe("x > 1")
    >>> net.settle()
    >>> _ = a.publish({"x": 2})
    >>> net.settle()
    >>> [dict(n) for n in b.received]
    [{'x': 2}]
    """

    def __init__(
        self,
        host: Host,
        id: ClientId,
        at: BrokerId,
        *,
        durable: str | None = None,
        journaled: bool = False,
        epoch: int = 0,
    ) -> None:
        self.host = host
        self.id = id
        self.at = at
        #: Where it is connected.
        self.broker: SimulatedBroker | None = None
        self.session = 0
        self.received: list[Notification] = []
        self.journaled = journaled or durable is not None
        self._durable = durable
        self._numbers = count(1)
        self._filters = count((epoch << 32) + 1)
        self.epoch = epoch
        self._sequence = 0
        self._published = SeenIds()
        self._own: SimulatedInbox | None = None
        #: How often the client has subscribed to each filter.
        self._held: Counter[Filter] = Counter()
        self.inboxes: dict[int, SimulatedInbox] = {}
        self.unanswered: deque[m.Publish] = deque()
        #: Transactions that were not answered.
        self.commits: dict[int, SimulatedCommit] = {}
        self._said_commits: set[int] = set()
        self._offers: dict[FilterId, int] = {}
        self.offered: dict[int, Filter] = {}
        self.demand: dict[int, list[str]] = {}
        #: Why brokers have closed its connections, and all that it was told if that is checked.
        self.closings: list[str] = []
        self.answers: list[Any] = []
        #: Where it has been connected, the last one last.
        self.homes: list[BrokerId] = []
        #: Credit that it gives, and whether it gives it back only when asked.
        self.window = WINDOW
        self.slow = False
        self._problem: StentorError | None = None
        #: What it says of itself to scopes.
        self.attributes: dict[str, Any] = {}

    # -- as one component

    def subscribe(self, filter: str | Filter) -> FilterId:
        """Ask for what the filter matches; the id is what `unsubscribe` takes."""
        self._check_here()
        wanted = _filter(filter)
        id = FilterId(self.id, next(self._filters))
        self.host.trace.sub(self.id, id, wanted)
        if self._own is None:
            self._own = SimulatedInbox(self, self.id, {id: wanted}, self._terms(), changes=True)
            self._begin(self._own)
        else:
            self._own.filters[id] = wanted
            if not self._held[wanted]:
                self._amend(self._own, wanted, is_wanted=True)
        try:
            self.raise_refusal()
        except StentorError:
            self.host.trace.pop()
            del self._own.filters[id]
            if not self._own.filters:
                self._own = None
            raise
        self._held[wanted] += 1
        return id

    def _terms(self) -> dict[str, Any]:
        if self._durable is not None:
            return {"durable": self._durable}
        return {} if self.journaled else {"volatile": True}

    def unsubscribe(self, id: FilterId) -> None:
        """Withdraw a subscription; one that is not held is no error."""
        self._check_here()
        if self._own is None or id not in self._own.filters:
            return
        gone = self._own.drop(id)
        self._held[gone] -= 1
        if not self._held[gone]:
            del self._held[gone]
            self._amend(self._own, gone, is_wanted=False)

    def _amend(self, inbox: SimulatedInbox, filter: Filter, *, is_wanted: bool) -> None:
        """Tell the broker about a filter; over new connections again until it has answered."""
        number = next(self._numbers)
        inbox.amendments[number] = filter
        text = self.host.worded(filter)
        texts = ([text], []) if is_wanted else ([], [text])
        self._say(m.Amend(number, inbox.number, *texts))

    @property
    def subscriptions(self) -> dict[FilterId, Filter]:
        """What it has subscribed to."""
        return {} if self._own is None else dict(self._own.filters)

    @property
    def known_as(self) -> str:
        """By which name its broker's router has its filters."""
        return self.id if self._own is None else f"{self.id}@{self.session}/{self._own.number}"

    @property
    def advertisements(self) -> dict[FilterId, Filter]:
        """What it has advertised."""
        return {id: self.offered[number] for id, number in self._offers.items()}

    def advertise(self, filter: str | Filter) -> FilterId:
        """Declare what will be published."""
        self._check_here()
        id = FilterId(self.id, next(self._filters))
        self.host.trace.adv(self.id, id, _filter(filter))
        self._offers[id] = self.offer(_filter(filter))
        self.raise_refusal()
        return id

    def unadvertise(self, id: FilterId) -> None:
        self._check_here()
        number = self._offers.pop(id, None)
        if number is not None:
            self.host.trace.unadv(self.id, id)
            self.withdraw(number)

    def publish(
        self, notification: Notification | Mapping[str, Any], *, strict: bool = False
    ) -> NotificationId:
        """Publish; the answer is the id that the notification got.

        Where advertisements are in use and none of this client's matches, the notification is
        dropped, or `NotAdvertised` is raised if `strict`.
        """
        self._check_here()
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        notification = self._stamped(notification)
        self.host.published(self, notification, volatile=not self.journaled)
        self._publish([notification], volatile=not self.journaled)
        try:
            self.raise_refusal()
        except NotAdvertised:
            if strict:
                raise
        except StentorError:
            self.host.trace.pop()
            raise
        assert notification.id is not None
        return notification.id

    def offers(self, overlapping: str | Filter | None = None) -> list[Filter]:
        """What may currently be published, as far as the client's broker knows (R-01.37)."""
        self._check_here()
        found = self.host.core(self.at).offers()
        wanted = None if overlapping is None else _filter(overlapping)
        return [f for f in found if wanted is None or f.overlaps(wanted)]

    def leave(self) -> None:
        """Withdraw everything and go."""
        self._check_here()
        self.host.leave(self)

    # -- as on the wire

    def open(self, filter: str | Filter, **options: Any) -> SimulatedInbox:
        """A subscription of its own, a component for itself, with the options of the wire."""
        return self._open([filter], options, changes=False)

    def open_inbox(self, *filters: str | Filter, **options: Any) -> SimulatedInbox:
        """The same with filters that come and go."""
        return self._open(filters, options, changes=True)

    def _open(
        self, filters: Iterable[str | Filter], options: dict[str, Any], *, changes: bool
    ) -> SimulatedInbox:
        component = f"{self.id}/{next(self.host.components)}"
        wanted = {self.new_filter(component): _filter(filter) for filter in filters}
        inbox = SimulatedInbox(self, component, wanted, options, changes)
        self.host.begun(inbox)
        if self.broker is None:
            self.inboxes[-next(self._numbers)] = inbox
        else:
            self._begin(inbox)
        return inbox

    def new_filter(self, component: str) -> FilterId:
        """The id of another filter."""
        return FilterId(component, next(self._filters))

    def add(self, inbox: SimulatedInbox, filter: str | Filter) -> FilterId:
        """An inbox asks for more, whether the client is connected or not."""
        id, wanted = self.new_filter(inbox.component), _filter(filter)
        inbox.filters[id] = wanted
        inbox.kept = {id: kept for id, kept in inbox.kept.items() if kept != wanted}
        self.host.trace.sub(inbox.component, id, wanted)
        self._amend(inbox, wanted, is_wanted=True)
        return id

    def drop(self, inbox: SimulatedInbox, id: FilterId) -> None:
        """And for less."""
        gone = inbox.drop(id)
        self._amend(inbox, gone, is_wanted=gone in inbox.filters.values())

    def _begin(self, inbox: SimulatedInbox) -> None:
        inbox.made_at = self.host.time
        self._ask(inbox)

    def _ask(self, inbox: SimulatedInbox) -> None:
        inbox.number = next(self._numbers)
        self.inboxes[inbox.number] = inbox
        inbox.debt = 0
        options = dict(inbox.options)
        if inbox.waits:
            options["here"], inbox.waits = True, False
        knows = inbox.made_at is not None
        if knows and not inbox.is_shared and not inbox.is_volatile and not inbox.settles:
            if inbox.in_force is not None or inbox.positions:
                options["positions"] = dict(inbox.positions)
            if inbox.in_force is not None:
                # Brokers that it never heard of: everything since it was made.
                options.setdefault("since", inbox.made_at)
        if not knows:
            inbox.made_at = self.host.time
        texts = list(dict.fromkeys(map(self.host.worded, inbox.filters.values())))
        credit = _UNLIMITED if inbox.is_volatile and inbox.changes else self.window
        wanted: Any = texts if inbox.changes else texts[0]
        self._say(m.Subscribe(inbox.number, wanted, credit, **options))
        unanswered, inbox.amendments = inbox.amendments, {}
        for filter in unanswered.values():
            self._amend(inbox, filter, is_wanted=filter in inbox.filters.values())

    def close(self, inbox: SimulatedInbox, *, forget: bool = False) -> None:
        """Unsubscribe; with `forget` also what is kept for a durable one."""
        del self.inboxes[inbox.number]
        self.host.ended(inbox)
        self._say(m.Unsubscribe(inbox.number, forget))

    def confirm(self, inbox: SimulatedInbox, *, request: bool = False) -> None:
        """It has dealt with all that came; a `request` is answered when that is on disk."""
        positions = dict(inbox.last if inbox.is_shared else inbox.positions)
        number = next(self._numbers) if request else None
        if number is not None:
            inbox.asked[number] = positions
        self._say(m.Confirm(inbox.number, positions, number))

    def settle(
        self,
        inbox: SimulatedInbox,
        *,
        done: Iterable[Key] = (),
        begun: Iterable[Key] = (),
        refused: Iterable[m.Refused] = (),
        extended: Iterable[tuple[StreamId, int, float]] = (),
        request: bool = False,
    ) -> int | None:
        """Say what has become of single notifications; the number of a request."""
        done, refused = list(done), list(refused)
        attempts = {key: held.attempt for key, held in inbox.hands.items()}
        for key in done:
            inbox.settled_keys.add(key)
            inbox.hands.pop(key, None)
            inbox.waiting.pop(key, None)
            inbox.aside.pop(key, None)
        for each in refused:
            key = each.stream, each.offset
            held = inbox.hands.pop(key, None)
            inbox.waiting.pop(key, None)  # it took too long, and came again meanwhile
            inbox.aside.pop(key, None)
            if held is not None and not inbox.options["settlement"].overtake:
                inbox.withheld[each.stream, held.id.producer, each.offset] = held.attempt
                inbox.set_aside()
        if inbox.waits or self.broker is None:
            inbox.unsaid += refused
            refused = []
        number = next(self._numbers) if request else None
        if number is not None:
            inbox.storing[number] = done
        counted = [(*key, attempts.get(key, 1)) for key in begun]
        message = m.Settle(
            inbox.number,
            _by_stream(done),
            _by_stream(each[:2] for each in counted if each[2] == 1),
            refused,
            list(extended),
            number,
            [each for each in counted if each[2] > 1],
        )
        self._say(message)
        return number

    def commit(
        self,
        inbox: SimulatedInbox,
        keys: Iterable[Key],
        events: Iterable[Mapping[str, Any] | Notification],
    ) -> SimulatedCommit:
        """Publish, and settle what was taken, as one step; over new connections again."""
        known = (e if isinstance(e, Notification) else Notification(e) for e in events)
        found = [notification.replace(id=self._next_id()) for notification in known]
        for notification in found:
            self.host.published(self, notification, volatile=False)
        name = self.id, self.epoch, self._sequence
        self._sequence += 1
        commit = SimulatedCommit(inbox, list(keys), self.host.written(found), name)
        self._say_commit(commit)
        return commit

    def _say_commit(self, commit: SimulatedCommit) -> None:
        number = next(self._numbers)
        self._said_commits.add(number)
        self.commits[number] = commit
        settled = {commit.inbox.number: _by_stream(commit.keys)}
        self._say(m.Commit(number, commit.items, settled, commit.name))

    def _committed(self, commit: SimulatedCommit, code: str | None) -> None:
        inbox = commit.inbox
        commit.code = code or ""
        if code is not None:  # what the broker thinks that this client has comes again
            held = [(key, inbox.hands[key].attempt) for key in commit.keys if key in inbox.hands]
            self.settle(inbox, refused=[m.Refused(*key, None, "", n) for key, n in held])
            return
        self.host.acknowledged(commit.items)
        inbox.settled_keys.update(commit.keys)
        inbox.stored.update(commit.keys)
        for key in commit.keys:
            for each in (inbox.hands, inbox.waiting, inbox.aside):
                each.pop(key, None)

    def offer(self, filter: Filter) -> int:
        """Advertise; the number of it on this connection."""
        number = next(self._numbers)
        self.offered[number] = filter
        volatile = not self.journaled and not self.host.thorough
        self._say(
            m.Advertise(
                number, self.host.worded(filter), demand=self.host.thorough, volatile=volatile
            )
        )
        return number

    def withdraw(self, number: int) -> None:
        """No longer offer what has this number."""
        del self.offered[number]
        self._say(m.Unadvertise(number))

    def send(
        self,
        events: Iterable[Mapping[str, Any]],
        *,
        volatile: bool = False,
        retain: dict[int, str] | None = None,
    ) -> list[NotificationId]:
        """Publish several in one message."""
        if volatile and self.broker is None:
            return []
        known = (e if isinstance(e, Notification) else Notification(e) for e in events)
        found = [notification.replace(id=self._next_id()) for notification in known]
        for notification in found:
            self.host.published(self, notification, volatile=volatile)
        self._publish(found, volatile=volatile, retain=retain)
        return [id for n in found if (id := n.id) is not None]

    def _stamped(self, notification: Notification) -> Notification:
        """The notification with an id: the client's next, or the one it brings if that is new."""
        id = notification.id
        if id is None:
            return notification.replace(id=self._next_id())
        if not self._published.add(id):
            raise RepeatedPublication(
                f"{id} was published by {self.id!r} before, or is too old to tell; "
                "leave the id out to get a new one"
            )
        return notification

    def _next_id(self) -> NotificationId:
        while True:
            id = NotificationId(self.id, self.epoch, self._sequence)
            self._sequence += 1
            if self._published.add(id):
                return id

    def _publish(
        self,
        notifications: list[Notification],
        *,
        volatile: bool,
        retain: dict[int, str] | None = None,
    ) -> None:
        items = self.host.written(notifications)
        message = m.Publish(next(self._numbers), items, volatile=volatile, retain=retain or {})
        if not volatile or self.host.thorough:
            self.unanswered.append(message)
        self._say(message)

    def give_credit(self) -> None:
        """Let as many come as have come."""
        for inbox in self.inboxes.values():
            if inbox.debt and inbox.number > 0:
                self._say(m.Credit(inbox.number, inbox.debt))
                inbox.debt = 0

    def _say(self, message: Any) -> None:
        self._problem = None
        if self.broker is not None:
            self.host.say(self, message)

    def raise_refusal(self) -> None:
        """What was refused last is an error."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _check_here(self) -> None:
        if not self.host.serves(self):
            raise UnknownClient(f"{self!r} has left; make a new client")
        if self.broker is None and not self.journaled:
            raise InvalidConfiguration(f"{self!r} is not connected: its broker is down")

    # -- connections

    def connect(self, broker: SimulatedBroker) -> None:
        """Take up at a broker what was begun elsewhere, or before."""
        assert self.broker is None
        assert broker.up
        session = self.host.new_session()
        newest = broker.log.published.get(self.id)
        try:
            broker.core.join(session, self.id, newest=newest, attributes=self.attributes)
        except JournalUnavailable:
            return
        self.broker, self.session, self.at = broker, session, broker.id
        if broker.id in self.homes:
            self.homes.remove(broker.id)
        self.homes.append(broker.id)
        broker.sessions[session] = self
        self.demand.clear()
        offered, self.offered = self.offered, {}
        renamed = {number: self.offer(filter) for number, filter in offered.items()}
        self._offers = {id: renamed[number] for id, number in self._offers.items()}
        for publish in list(self.unanswered):
            self._say(publish)
        inboxes, self.inboxes = list(self.inboxes.values()), {}
        for inbox in inboxes:
            if inbox.filters or inbox.changes:
                self._ask(inbox)

    def disconnect(self) -> None:
        """The connection breaks; both ends notice."""
        broker, self.broker = self.broker, None
        if broker is None:
            return
        self.host.hung_up(self)
        self.unanswered = deque(p for p in self.unanswered if not p.volatile)
        for inbox in self.inboxes.values():
            inbox.lost_connection()
        if broker.sessions.pop(self.session, None) is not None and broker.up:
            broker.core.leave(self.session)
            broker.flush()

    def restart(self) -> None:
        """The process dies and comes back with nothing but the names of what is durable."""
        self.disconnect()
        self.epoch += 1
        self._sequence = 0
        self.unanswered.clear()
        self.commits.clear()
        self.offered.clear()
        self._offers.clear()
        for number, inbox in list(self.inboxes.items()):
            if "durable" in inbox.options and not inbox.is_shared:
                self.host.reborn(inbox)
            else:
                self.host.ended(inbox)
                del self.inboxes[number]

    # -- what it hears

    def hear(self, message: Any) -> None:
        """The broker says something."""
        if self.host.thorough:
            self.answers.append(message)
        inbox = self.inboxes.get(getattr(message, "number", -1))
        if inbox is not None and inbox.waits:
            inbox = None  # that was said before it ended there
        match message:
            case m.Deliver() if inbox is not None:
                inbox.take(message)
                if not self.slow and not (inbox.is_volatile and inbox.changes):
                    self.give_credit()
            case m.Published(through):
                while self.unanswered and self.unanswered[0].number <= through:
                    publish = self.unanswered.popleft()
                    if not publish.volatile:
                        self.host.acknowledged(publish.items)
            case m.Amended(_, added, removed) if inbox is not None:
                read = self.host.wording.received
                inbox.amended(list(map(read, added)), list(map(read, removed)))
            case m.Done(number):
                if number in self.commits:
                    self._committed(self.commits.pop(number), None)
                for each in self.inboxes.values():
                    answered = each.amendments.pop(number, None)
                    if answered is not None and self.host.thorough:
                        each.settle([answered])
                    each.stored.update(each.storing.pop(number, ()))
                    for stream, position in each.asked.pop(number, {}).items():
                        each.confirmed[stream] = max(position, each.confirmed.get(stream, 0))
            case m.Progress(_, positions) if inbox is not None:
                for stream, position in positions.items():
                    assert position >= inbox.positions.get(stream, 0)
                    inbox.positions[stream] = position
            case m.Withdrawn() if inbox is not None:
                inbox.withdrawn(message)
            case m.Gap() if inbox is not None and inbox.settles:
                inbox.gaps.append(message)
            case m.Gap() if inbox is not None:
                inbox.gaps.append(message)
                before = inbox.positions.get(message.stream, 0)
                assert message.last >= message.first > before, f"{message} behind {before}"
                inbox.positions[message.stream] = message.last
            case m.Subscribed() if inbox is not None:
                if inbox.in_force is None:
                    inbox.in_force = self.host.steps
                    inbox.began = dict(inbox.positions)
                if inbox.unsaid:
                    unsaid, inbox.unsaid = inbox.unsaid, []
                    self._say(m.Settle(inbox.number, {}, refused=unsaid))
                for number in [n for n, each in self.commits.items() if each.inbox is inbox]:
                    self._say_commit(self.commits.pop(number))
                if self.host.thorough:  # one that was not found is united with the first later
                    assert not inbox.kept or not message.resumed, f"{inbox.kept} are lost"
                    inbox.settle(inbox.filters.values())
            case m.Ended(_, code, _, instead, cut_off) if inbox is not None:
                if code == GroupElsewhere.code:
                    inbox.in_force = None
                    self._follow(instead)
                elif code == DurableElsewhere.code or cut_off:
                    inbox.lost_connection()
                    inbox.forget_place()
                    if len(self.inboxes) == 1 and instead:
                        self._follow(instead)
                    else:  # it is on its way here; or there is something else on this connection
                        inbox.waits = True
                elif code is not None:
                    del self.inboxes[inbox.number]
                    inbox.ended = code
                    self.host.ended(inbox)
            case m.Demand(number, filters):
                self.demand[number] = filters
            case m.Failure(code=code, number=number) if number in self._said_commits:
                if number in self.commits:  # else it was said once more since
                    self._committed(self.commits.pop(number), code)
            case m.Failure(code=JournalUnavailable.code) if self.host.thorough:
                self._not_stored(message.number, inbox)
            case m.Rejected() | m.Failure():
                self._refused(message)

    def _refused(self, message: m.Rejected | m.Failure) -> None:
        if message.number is not None:
            for inbox in self.inboxes.values():
                if not inbox.waits:
                    inbox.amendments.pop(message.number, None)
        self._problem = error_of(message.code, message.message)
        if self.host.thorough and message.code != LeaseExpired.code:  # it ended while this was said
            raise AssertionError(f"{self.id} was told {message}")

    def _not_stored(self, number: int | None, inbox: SimulatedInbox | None) -> None:
        """The disk is full: the application subscribes again, or takes note."""
        if inbox is not None:
            inbox.lost_connection()
            inbox.waits = True
        if number is None:
            return
        for each in self.inboxes.values():
            each.asked.pop(number, None)
            each.storing.pop(number, None)
            unstored = each.amendments.pop(number, None)
            if unstored is not None:
                each.unstored[unstored] = None

    def ask_again(self) -> None:
        """Ask for what was elsewhere, and say what could not be stored."""
        for inbox in list(self.inboxes.values()) if self.broker is not None else ():
            if inbox.waits:
                del self.inboxes[inbox.number]
                self._ask(inbox)
            unstored, inbox.unstored = inbox.unstored, {}
            for filter in unstored:
                self._amend(inbox, filter, is_wanted=filter in inbox.filters.values())

    def _follow(self, instead: list[str]) -> None:
        """What it asks for lives elsewhere: go there."""
        self.disconnect()
        self.host.send_to(self, instead[0])

    def __repr__(self) -> str:
        return f"Client({self.id!r}, at={self.at!r})"


def _by_stream(keys: Iterable[Key]) -> dict[StreamId, list[int]]:
    found: dict[StreamId, list[int]] = {}
    for stream, offset in keys:
        found.setdefault(stream, []).append(offset)
    return found


def _filter(given: str | Filter) -> Filter:
    return given if isinstance(given, Filter) else Filter(given)
