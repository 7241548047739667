"""`Host`: runs brokers on virtual links and disks, with a virtual clock.

Every broker is the `Core` that live brokers run. A call of a client is one step of its broker,
carried out at once; what follows from it is on its way until `step` or `settle` lets it happen:
messages on links, what disks write, timers. `settle` comes back when nothing of it is left.

  - A link has two directions, each in order. When it breaks, what is on it is lost. It may have
    room for so many notifications only.
  - A disk writes in order. Between writing and telling the core, its journal is ahead of what was
    routed, and a crash loses what was not written.
  - A broker that crashes loses all but its journal and its stored durable subscriptions.
  - A client keeps its positions and its unanswered publications when its connection breaks.

In a `thorough` run the connections of clients and what cores do on their own are part of the
schedule, too, messages are encoded, and clients check all that they are told.

The run is recorded in `trace` in the terms of the formal model, so that `check()` can say whether
the service did what it promises.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import combinations, count
from typing import Any, Final

from stentor.errors import (
    DuplicateBroker,
    InvalidConfiguration,
    InvalidTopology,
    UnknownBroker,
    Unsettled,
)
from stentor.filters import Filter
from stentor.model.codec import decode, encode
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.node.agenda import Append, CloseClient, CloseLink, Persist, ToClient, ToLink, Visit
from stentor.node.border import Rights
from stentor.node.bounds import Bounds
from stentor.node.core import Core
from stentor.node.feed import QUEUE_LIMIT
from stentor.node.wording import Wording
from stentor.protocol import messages as m
from stentor.protocol.messages import StreamId
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Close,
    LiveRouter,
    Outputs,
    Place,
    Router,
    TableSize,
)
from stentor.semantics import Action, Internal, Report, Trace, check
from stentor.simulation import topology
from stentor.simulation.broker import SideChannel, SimulatedBroker
from stentor.simulation.client import Client, SimulatedInbox
from stentor.simulation.counters import Counters
from stentor.simulation.journal import MemoryLog
from stentor.simulation.links import UNLIMITED, Channel, LinkRoom, count_of, kind_of, together
from stentor.simulation.schedule import Schedule

#: Steps for each broker and each thing on its way, after which `settle` gives up: something is
#: going round in circles.
PATIENCE: float = 2_000
#: Seconds that pass when a network with journals settles: marks, progress, ends of leases, demand.
_LULL: Final = (1.5, 6.0, 1.5, 1.5)
#: The virtual clock begins here, in seconds since 1970.
_BEGINNING: Final = 1_000.0
#: What a broker hears before it acts, if so much is there: no queue is to overflow by that.
AT_ONCE: Final = 1_000
#: Notifications whose encoded form is remembered.
_REMEMBERED: Final = 100_000


class _NoTrace(Trace):
    """Of a run that need not be checked."""

    __slots__ = ()

    def append(self, *_: Any, **__: Any) -> None:
        pass

    sub = unsub = adv = unadv = pub = notify = quiescent = append

    def pop(self) -> Action:
        return Internal()


@dataclass(eq=False, slots=True)
class PublicationRecord:
    """What is known of a publication, in a thorough run."""

    notification: Notification
    client: Client
    #: The step at which it was published.
    at: int
    volatile: bool
    acknowledged: bool = False


class Host:
    """Brokers, links and clients in one process.

    It takes any routers; `Network` makes those of every overlay.

    >>> from stentor.routing import tree_router
    >>> net = Host({name: tree_router(name) for name in "ab"}, [("a", "b")])
    >>> net.brokers
    ['a', 'b']
    """

    def __init__(
        self,
        routers: Mapping[BrokerId, Router | LiveRouter],
        links: Iterable[tuple[BrokerId, BrokerId]] | None,
        *,
        seed: int | None = None,
        advertisements: bool = False,
        make: Callable[[BrokerId], Router | LiveRouter] | None = None,
        acyclic: bool = False,
        record: bool = True,
        thorough: bool = False,
        queue: int = QUEUE_LIMIT,
        room: int = UNLIMITED,
        rights: Mapping[tuple[BrokerId, BrokerId], Rights] | None = None,
    ) -> None:
        """Without links, every broker can reach every other, as the Internet lets it.

        With a `seed`, things happen in a random order that is possible. `advertisements` says
        whether publications must be advertised. `make` gives the router of a broker that is added
        or restarted. On an `acyclic` overlay, links that would close a cycle are refused. A run
        that need not be checked does without its trace by `record=False`. Of a subscription `queue`
        notifications may wait, and on a link there is `room` for so many. `rights` are what the
        second broker of a link may at the first.
        """
        self.counters = Counters()
        self.trace = Trace() if record else _NoTrace()
        self.schedule = Schedule(seed)
        self.thorough = thorough
        self.now = 0.0
        self.steps = 0
        #: Whether disks are full.
        self.disks_fail = False
        #: What was published, in a thorough run.
        self.publications: dict[NotificationId, PublicationRecord] = {}
        #: Numbers of components that are only a part of a client.
        self.components = count(1)
        #: Whether routers bring notifications in messages of their own.
        self.carried = any(isinstance(router, Router) for router in routers.values())
        self._routers = dict(routers)
        self._record = record
        self.wording = Wording() if thorough else Wording.in_one_process()
        self._advertisements = advertisements
        self._make = make
        self._acyclic = acyclic
        self._mesh = links is None
        self._queue = queue
        self._at_once = min(AT_ONCE, queue)
        self._room = room
        self._rights = dict(rights or {})
        self._brokers: dict[BrokerId, SimulatedBroker] = {}
        #: Ids of brokers by the names that cores know.
        self._ids: dict[str, BrokerId] = {}
        self._links: dict[Channel, LinkRoom] = {}
        #: Links that are down with a broker or by a partition, and will come back.
        self._severed: dict[Channel, None] = {}
        #: Those of them that brokers have closed themselves.
        self._refused: set[Channel] = set()
        self._hung_up: set[Channel] = set()
        #: With whom brokers want to be linked for a while, and the links that are up by that.
        self._visits: dict[BrokerId, list[BrokerId]] = {}
        self._visiting: set[Channel] = set()
        #: Groups of brokers that cannot reach each other.
        self._sides: list[set[BrokerId]] = []
        self._clients: dict[ClientId, Client] = {}
        self._client_numbers = count(1)
        #: How often there was a client, or broker, of this name: ids are never used again.
        self._lives: Counter[ClientId] = Counter()
        self._broker_lives: Counter[BrokerId] = Counter()
        self._session_ids = count(1)
        #: Requests are known by them; none comes again, whichever broker is started anew.
        self._request_numbers = count(1)
        self._journals = False
        self._timers: list[tuple[float, int, BrokerId, Hashable]] = []
        self._armed: dict[tuple[BrokerId, Hashable], int] = {}
        self._timer_numbers = count()
        self._items: dict[bytes, Notification] = {}
        #: What clients have said while a broker acts.
        self._said: deque[tuple[Client, Any]] = deque()
        self._acting = False
        for id, router in routers.items():
            topology.check_id(id)
            if router.id != id:
                raise InvalidConfiguration(f"the router of {id!r} says that it is {router.id!r}")
            self._add(id)
        if links is not None:
            links = list(links)
            topology.brokers_of(links)
            topology.check_edges(links)
        for a, b in combinations(self._brokers, 2) if links is None else links:
            self._open(self.broker(a).id, self.broker(b).id)
        if not self.carried and not thorough:
            self._introduce()
            self.counters = Counters()

    def _introduce(self) -> None:
        """Let brokers know where all others are, in a tree without as many words as that takes.

        Nobody subscribes yet, so it matters to nobody that a stream begins.
        """
        if any(broker.core.directory.allows_cycles for broker in self._brokers.values()):
            self._run(timers=False)
            return
        for channel in self.schedule.pending:
            self.schedule.drop(channel)
        beside = topology.adjacent(self.links)
        for id, broker in self._brokers.items():
            for neighbor in beside.get(id, ()):
                behind = topology.behind(neighbor, id, beside)
                origins = [self._brokers[other].core.directory.own for other in behind]
                broker.core.directory.heard(str(neighbor), m.Streams(origins, []))

    # -- the brokers

    @property
    def brokers(self) -> list[BrokerId]:
        return list(self._brokers)

    @property
    def links(self) -> list[tuple[BrokerId, BrokerId]]:
        """Those that are up, in the order of brokers."""
        place = {id: i for i, id in enumerate(self._brokers)}
        found = [(place[a], place[b], a, b) for a, b in self._links if place[a] < place[b]]
        return [(a, b) for _, _, a, b in sorted(found, key=lambda each: each[:2])]

    def broker(self, id: BrokerId) -> SimulatedBroker:
        try:
            return self._brokers[id]
        except KeyError:
            raise UnknownBroker(
                f"there is no broker {id!r} here; there are {_listed(self._brokers)}"
            ) from None

    def core(self, broker: BrokerId) -> Core:
        """The broker's core."""
        return self.broker(broker).core

    def router(self, broker: BrokerId) -> Any:
        return self.core(broker).router

    def table_sizes(self) -> dict[BrokerId, TableSize]:
        """How many entries each broker holds."""
        return {id: broker.core.router.table_size() for id, broker in self._brokers.items()}

    def journal(self, stream: StreamId) -> MemoryLog:
        return self._brokers[self._ids[stream.partition("#")[0]]].log

    def _add(self, id: BrokerId) -> None:
        if self._ids.get(str(id), id) != id:
            raise DuplicateBroker(f"{id!r} and {self._ids[str(id)]!r} are the same name")
        self._ids[str(id)] = id
        life = self._broker_lives[id]
        self._broker_lives[id] += 1
        log = MemoryLog(f"{id}#{life or ''}", at_once=2 if self.thorough else 1_000)
        self._brokers[id] = SimulatedBroker(self, id, log)

    def core_of(self, broker: SimulatedBroker) -> Core:
        """The core of a broker that begins."""
        router = self._routers.pop(broker.id, None)
        if router is None:
            if self._make is None:
                raise InvalidConfiguration("this network does not know how to make routers")
            router = self._make(broker.id)
        return Core(
            broker.name,
            broker.log,
            router=router,
            ids=self._ids,
            addresses=[broker.name],
            enforce_advertisements=self._advertisements,
            bounds=Bounds(queue=self._queue),
            wording=self.wording,
            now=self.now,
            clock=self.time,
            draw=partial(next, self._request_numbers),
        )

    # -- clients

    def client(
        self,
        at: BrokerId,
        id: ClientId | None = None,
        *,
        durable: str | None = None,
        journaled: bool = False,
    ) -> Client:
        """A new client at a broker.

        What it publishes and asks for is volatile, unless it is `journaled`, or `durable` under
        a name.
        """
        broker = self.broker(at)
        if id is None:
            id = next(name for n in self._client_numbers if (name := f"c{n}") not in self._clients)
        elif id in self._clients:
            raise InvalidConfiguration(f"there is a client {id!r} already; give another id")
        if self.carried and (durable is not None or journaled):
            raise InvalidConfiguration("brokers of this overlay keep no journals")
        self._journals |= durable is not None or journaled
        epoch = self._lives[id]
        self._lives[id] += 1
        client = Client(self, id, at, durable=durable, journaled=journaled, epoch=epoch)
        self._clients[id] = client
        if broker.up:
            client.connect(broker)
        return client

    def serves(self, client: Client) -> bool:
        """Whether the client is one of this network."""
        return self._clients.get(client.id) is client

    def leave(self, client: Client) -> None:
        """The client goes for good."""
        self._record_withdrawals(client)
        client.disconnect()
        del self._clients[client.id]

    def _record_withdrawals(self, client: Client) -> None:
        """A client that goes asks for nothing any more, and offers nothing."""
        for id in client.subscriptions:
            self.trace.unsub(client.id, id)
        for id in client.advertisements:
            self.trace.unadv(client.id, id)

    def new_session(self) -> int:
        return next(self._session_ids)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What clients say meanwhile reaches all brokers before any of them does anything about it.

        As where many speak at the same time; brokers that deal with much at once are done sooner.
        What is refused is an error at the end.

        >>> from stentor.routing import tree_router
        >>> net = Host({"a": tree_router("a")}, [])
        >>> ann, bob = net.client(at="a"), net.client(at="a")
        >>> with net.together():
        ...     _ = ann.subscribe("x > 1"), bob.publish({"x": 2}), bob.publish({"x": 3})
        ...     print(len(ann.received))
        0
        >>> len(ann.received)
        2
        """
        acting, self._acting = self._acting, True
        try:
            yield
        finally:
            self._acting = acting
        said, self._said = self._said, deque()
        heard: dict[SimulatedBroker, list[tuple[Client, Any]]] = {}
        for client, message in said:
            if client.broker is not None:
                heard.setdefault(client.broker, []).append((client, message))
        for broker, words in heard.items():
            for i, (client, message) in enumerate(words, 1):
                broker.core.heard(client.session, message)
                if i == len(words) or not i % self._at_once:
                    self.carry_out(broker)
        for client in dict.fromkeys(client for client, _ in said):
            client.raise_refusal()

    def say(self, client: Client, message: Any) -> None:
        """A client says something to its broker."""
        if self.thorough:
            self.schedule.put(SideChannel("up", client), m.encoder.encode(message))
        else:
            self._said.append((client, message))
            if not self._acting:
                self._listen()

    def _listen(self) -> None:
        while self._said:
            client, message = self._said.popleft()
            if client.broker is not None:
                client.broker.core.heard(client.session, message)
                self.carry_out(client.broker)

    def hung_up(self, client: Client) -> None:
        """The client's connection is gone, with what was on its way."""
        self.schedule.drop(SideChannel("up", client))
        self.schedule.drop(SideChannel("down", client))

    def send_to(self, client: Client, name: str) -> None:
        """The client goes to another broker."""
        broker = self._brokers[self._ids[name]]
        if broker.up:
            client.connect(broker)

    # -- what clients tell of themselves

    def written(self, notifications: list[Notification]) -> list[bytes]:
        """Notifications as they travel."""
        items = [encode(notification) for notification in notifications]
        self._items.update(zip(items, notifications, strict=True))
        while len(self._items) > _REMEMBERED:
            del self._items[next(iter(self._items))]
        return items

    def read(self, items: list[bytes]) -> list[Notification]:
        """What has come; the notifications themselves, where they are remembered."""
        found = self._items
        return [found[data] if data in found else decode(data) for data in items]

    def worded(self, filter: Filter) -> str:
        """A filter as it travels."""
        # Some cost more to read than is allowed.
        return self.wording.text(filter) if filter.is_light else str(filter)

    def published(self, client: Client, notification: Notification, *, volatile: bool) -> None:
        assert notification.id is not None
        self.trace.pub(client.id, notification)
        if self.thorough:
            known = PublicationRecord(notification, client, self.steps, volatile)
            self.publications[notification.id] = known

    def acknowledged(self, items: list[bytes]) -> None:
        if self.thorough:
            for notification in self.read(items):
                assert notification.id is not None
                self.publications[notification.id].acknowledged = True

    def begun(self, inbox: SimulatedInbox) -> None:
        for id, filter in inbox.filters.items():
            self.trace.sub(inbox.component, id, filter)

    def ended(self, inbox: SimulatedInbox) -> None:
        inbox.over = True
        for id in inbox.filters:
            self.trace.unsub(inbox.component, id)

    def reborn(self, inbox: SimulatedInbox) -> None:
        """What comes from now on comes to another component."""
        self.ended(inbox)
        inbox.over = False
        inbox.forget_life()
        inbox.component = f"{inbox.client.id}/{next(self.components)}"
        self.begun(inbox)

    def notified(
        self, component: str, notifications: Sequence[Notification], *, journaled: bool
    ) -> None:
        self.counters.delivered += len(notifications)
        if self._record and (journaled or not self.thorough):
            for notification in notifications:
                self.trace.notify(component, notification)

    # -- time

    @property
    def time(self) -> float:
        """Seconds since 1970, by the virtual clock."""
        return _BEGINNING + self.now

    @property
    def pending(self) -> list[Channel]:
        """The links, as (from, to), on which a message may arrive next."""
        return [c for c in self.schedule.pending if not isinstance(c, SideChannel)]  # type: ignore[misc]

    def on_the_way(self, sender: BrokerId, receiver: BrokerId) -> list[Any]:
        """The messages from one broker to another that have not arrived, the next one first."""
        found = self.schedule.waiting((sender, receiver))
        filters = m.Subscriptions | m.Advertisements
        return [self.wording.read(each) if isinstance(each, filters) else each for each in found]

    def step(self, channel: Channel | None = None) -> bool:
        """Let one thing happen, on the given link or anywhere; False if there is nothing."""
        found = self.schedule.next(channel)
        if found is None:
            return False
        self._happen(*found)
        return True

    def _stride(self) -> bool:
        """Let everything happen that is in one channel; False if there is nothing."""
        found = self.schedule.next_all()
        if found is None:
            return False
        channel, things = found
        if isinstance(channel, SideChannel):
            for what in things:
                self._happen(channel, what)
        else:
            self._arrive(channel, things)  # type: ignore[arg-type]
        return True

    def _arrive(self, channel: Channel, messages: list[Any]) -> None:
        """Messages arrive on a link, one after the other; a core acts when it has heard many.

        Routers that carry notifications themselves may close the link at any of them.
        """
        sender, receiver = channel
        broker, link = self._brokers[receiver], self._links[channel]
        for message in messages:
            link.arrived(message)
        heard = 0
        for message in together(messages, self._at_once) if len(messages) > 1 else messages:
            self.steps += 1
            if self._links.get(channel) is not link:
                self.counters.lost += count_of(message)
                continue
            self._go_on(broker, broker.core.hear_neighbor(str(sender), message))
            heard += count_of(message)
            if self.carried or heard >= self._at_once:
                self.carry_out(broker)
                heard = 0
        self.carry_out(broker)

    def _happen(self, channel: Any, what: Any) -> None:
        if self.thorough:
            self.now += 0.001
        if not isinstance(channel, SideChannel):
            self._arrive(channel, [m.decoder.decode(what) if self.thorough else what])
            return
        self.steps += 1
        if channel.kind == "down":
            channel.of.hear(m.decoder.decode(what))
            return
        if channel.kind == "refused":
            a, b = channel.of
            if (a, b) in self._links:
                self._cut(a, b)
                self._severed[a, b] = None
                self._refused.add((a, b))
            return
        if channel.kind == "dial":
            self._dial(channel.of)
            return
        broker = channel.of.broker if channel.kind == "up" else self._brokers[channel.of]
        match channel.kind:
            case "up":
                steps = broker.core.hear(channel.of.session, m.decoder.decode(what))
                self._go_on(broker, steps or ())
            case "disk":
                broker.write(what)
            case "written":
                broker.written(*what)
            case "work":
                if broker.core.has_work:
                    broker.core.work()
        self.carry_out(broker)

    def _go_on(self, broker: SimulatedBroker, steps: Iterable[None]) -> None:
        """Deal with a message in steps; in a thorough run the core has its turn in between."""
        for _ in steps:
            if self.thorough:
                self.carry_out(broker)
                if broker.core.has_work:
                    broker.core.work()

    def settle(self) -> None:
        """Let everything happen that is on its way, and all timers run out.

        A link that brokers have closed is tried again: they may have heard late that it takes the
        place of another.
        """
        self._run(timers=True)
        while self._refused:
            refused, self._refused = self._refused, set()
            self._mend([link for link in self._severed if link in refused])
            self._run(timers=True)
        for seconds in _LULL if self._journals else ():
            self.tick(seconds)
            self._run(timers=True)
        if not self._severed:
            self.trace.quiescent()

    def _run(self, *, timers: bool = False) -> None:
        most = int(PATIENCE * len(self._brokers) * (1 + len(self.schedule)))
        # Whoever looks on sees each thing happen; nobody does here.
        go_on = self.step if self.thorough else self._stride
        for _ in range(most):
            if not go_on() and not (timers and self._fire()):
                return
        if len(self.schedule):
            raise Unsettled(
                f"after {most} steps there are still messages on their way: {self.pending}"
            )

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for broker in self._brokers.values():
            if broker.up:
                broker.core.tick(self.now, self.time)
                self.carry_out(broker)

    def _fire(self) -> bool:
        """Let the next timer run out; False if there is none."""
        while self._timers:
            at, number, id, timer = heapq.heappop(self._timers)
            if self._armed.get((id, timer)) == number and id in self._brokers:
                del self._armed[id, timer]
                self.now = max(self.now, at)
                broker = self._brokers[id]
                assert broker.core.carriage is not None
                broker.core.carriage.expired(timer)
                self.carry_out(broker)
                return True
        return False

    # -- what cores want done

    def carry_out(self, broker: SimulatedBroker) -> None:
        """Do what a core wants done, and let it go on with what it has to do."""
        core, outer = broker.core, self._acting
        self._acting = True
        try:
            while True:
                for action in core.take():
                    self._do(broker, action)
                if self.thorough or not core.wants_turn:
                    break
                core.work()
        finally:
            self._acting = outer
        if self.thorough and core.wants_turn:
            place = SideChannel("work", broker.id)
            if not self.schedule.waiting(place):
                self.schedule.put(place, None)
        if not outer:
            self._listen()

    def apply(self, broker: BrokerId, outputs: Outputs) -> None:
        """Do what a router wants done after a step that only some routers know."""
        found = self.broker(broker)
        found.core.routing.tell(outputs)
        self.carry_out(found)

    def _do(self, broker: SimulatedBroker, action: Any) -> None:
        match action:
            case ToLink(neighbor, message):
                self._send(broker.id, self._ids[neighbor], message)
            case ToClient(session, message):
                client = broker.sessions.get(session)
                if client is not None and self.thorough:
                    self.schedule.put(SideChannel("down", client), m.encoder.encode(message))
                elif client is not None:
                    client.hear(message)
            case Append() | Persist():
                self.schedule.put(SideChannel("disk", broker.id), action)
            case CloseClient(session, code, _):
                client = broker.sessions.get(session)
                if client is not None:
                    client.closings.append(code)
                    client.disconnect()
            case CloseLink(neighbor, _, _):
                self.schedule.put(SideChannel("refused", (broker.id, self._ids[neighbor])), None)
            case Visit(brokers):
                self._visits[broker.id] = [self._ids[origin.broker] for origin in brokers]
                self._dial_soon(broker.id)
            case Close(to):
                self._hung_up.add((broker.id, to))
                if (to, broker.id) in self._hung_up:
                    self._close(broker.id, to)
            case Arm(timer, after):
                number = self._armed[broker.id, timer] = next(self._timer_numbers)
                heapq.heappush(self._timers, (self.now + after, number, broker.id, timer))

    def _send(self, sender: BrokerId, receiver: BrokerId, message: Any) -> None:
        link = self._links.get((sender, receiver))
        if link is None:
            self.counters.lost += 1
            return
        admitted = link.admit(message)
        if admitted is not message:
            self.counters.lost += count_of(message)
        if admitted is not None:
            self.counters.links[kind_of(admitted)][sender, receiver] += count_of(admitted)
            what = m.encoder.encode(admitted) if self.thorough else admitted
            self.schedule.put((sender, receiver), what)

    def check(self, *, order: Sequence[str] = (), settling: bool = True) -> Report:
        """Whether the run so far kept the promises of the service, and if not, where and why.

        `order` names orders that it should have kept: fifo, causal, total_pairwise, total_global.
        Without `settling`, only what was delivered is judged, not what is missing.
        """
        if not self._record:
            raise InvalidConfiguration("this run was not recorded; leave out record=False")
        return check(
            self.trace, advertisements=self._advertisements, order=order, settling=settling
        )

    # -- brokers and links come and go

    def connect(self, a: BrokerId, b: BrokerId) -> None:
        """A new link between two brokers."""
        self._check_links([(a, b)])
        self._open(a, b)

    def disconnect(self, a: BrokerId, b: BrokerId) -> None:
        """Take a link away, with what is on its way; both ends are told.

        For an end it makes no difference whether the link failed or was taken away.
        """
        for broker in (a, b):
            self.broker(broker)
        if (a, b) not in self._links:
            raise InvalidTopology(f"there is no link between {a!r} and {b!r}")
        self._cut(a, b)

    def add_broker(self, id: BrokerId, links: Iterable[BrokerId] = ()) -> None:
        """A new broker, linked to others; where all reach all, to all."""
        if id in self._brokers:
            raise DuplicateBroker(f"there is a broker {id!r} already; choose another id")
        if self._make is None:
            raise InvalidConfiguration("this network does not know how to make routers")
        others = list(self._brokers) if self._mesh else list(links)
        topology.check_id(id)
        self._check_links([(other, id) for other in others], newcomer=id)
        self._add(id)
        for other in others:
            self._open(other, id)

    def fail_broker(self, id: BrokerId) -> list[BrokerId]:
        """The broker is gone for good, and its clients with it; who its neighbors were."""
        broker = self.broker(id)
        for client in [c for c in self._clients.values() if c.at == id]:
            self._record_withdrawals(client)
            self.hung_up(client)
            client.broker = None
            del self._clients[client.id]
        neighbors = self._stop(broker)
        del self._brokers[id]
        self._severed = {link: None for link in self._severed if id not in link}
        return neighbors

    def remove_broker(self, id: BrokerId) -> list[BrokerId]:
        """The broker goes as planned: its clients leave, what is on its way arrives first."""
        self.broker(id)
        for client in [c for c in self._clients.values() if c.at == id]:
            self.leave(client)
        self.settle()
        return self.fail_broker(id)

    # -- what fails and heals

    def crash(self, id: BrokerId) -> None:
        """The broker dies with all but what is on its disk; `restart` brings it back.

        Its clients wait for it, and go on as the client library does.
        """
        broker = self.broker(id)
        if not broker.up:
            raise InvalidConfiguration(f"the broker {id!r} is down already")
        broker.up = False
        for client in list(broker.sessions.values()):
            client.disconnect()
        visited = {other for channel in self._visiting if id in channel for other in channel}
        stood = [other for other in self._stop(broker) if other not in visited]
        self._severed |= {(id, other): None for other in stood}

    def restart(self, id: BrokerId) -> None:
        """A broker that has crashed is back, with its links and clients."""
        broker = self.broker(id)
        if broker.up:
            raise InvalidConfiguration(f"the broker {id!r} has not crashed")
        self.now += 1.0
        broker.start()
        self._mend([link for link in self._severed if id in link])
        for client in self._clients.values():
            if client.at == id and client.broker is None:
                client.connect(broker)

    def partition(self, *groups: Iterable[BrokerId]) -> None:
        """No link leads from one of these groups to another, until the network heals."""
        sides = self._sides = [set(group) for group in groups]
        for broker in (each for side in sides for each in side):
            self.broker(broker)
        for a, b in self.links:
            if not self.may_visit(a, b):
                if not self._visiting & {(a, b), (b, a)}:
                    self._severed[a, b] = None
                self._cut(a, b)

    def heal(self) -> None:
        """Brokers that have crashed are back, and so are all links that were lost."""
        self.disks_fail = False
        for id, broker in self._brokers.items():
            if not broker.up:
                self.restart(id)
        self._sides = []
        self._mend(list(self._severed))
        for id in self._visits:
            self._dial_soon(id)

    def _mend(self, links: list[Channel]) -> None:
        for a, b in links:
            if self._brokers[a].up and self._brokers[b].up:
                del self._severed[a, b]
                self._open(a, b)

    def _stop(self, broker: SimulatedBroker) -> list[BrokerId]:
        """Nothing of the broker is left but its disk; who its neighbors were."""
        id = broker.id
        neighbors = [other for other in self._brokers if (id, other) in self._links]
        broker.stop()
        broker.sessions.clear()
        for other in neighbors:
            self._close(id, other)
        self._armed = {key: n for key, n in self._armed.items() if key[0] != id}
        for other in neighbors:
            self._lose(other, id)
        return neighbors

    def place(self, broker: BrokerId, neighbor: BrokerId) -> Place | None:
        """What a neighbor is to a broker, if its router does not know."""
        return None

    def _open(self, a: BrokerId, b: BrokerId, *, visit: bool = False) -> None:
        if (a, b) in self._links:  # for a while only, and from now on it stands
            self._cut(a, b)
        if visit:
            self._visiting.add((a, b))
        for x, y in ((a, b), (b, a)):
            broken = partial(self._brokers[x].core.broken, neighbor=str(y))
            self._links[x, y] = LinkRoom(self._room, broken)
        for x, y in ((a, b), (b, a)):
            place = "visitor" if visit else self.place(x, y)
            self._brokers[x].core.link_up(str(y), self._rights.get((x, y)), place)
            self.carry_out(self._brokers[x])

    # -- links for a while

    def may_visit(self, a: BrokerId, b: BrokerId) -> bool:
        """Whether one of these brokers can connect to the other now."""
        here, there = (next((s for s in self._sides if x in s), None) for x in (a, b))
        return here is None or there is None or here is there

    def _dial_soon(self, id: BrokerId) -> None:
        place = SideChannel("dial", id)
        if not self.schedule.waiting(place):
            self.schedule.put(place, None)

    def _dial(self, id: BrokerId) -> None:
        """Make the links that the broker wants for a while, and close those that nobody wants."""
        wanted = self._visits.get(id, [])
        for other in wanted:
            free = (id, other) not in self._links and self.may_visit(id, other)
            if free and self._brokers[id].up and self._brokers[other].up:
                self._open(id, other, visit=True)
        for a, b in sorted((each for each in self._visiting if id in each), key=str):
            if b not in self._visits.get(a, []) and a not in self._visits.get(b, []):
                self._cut(a, b)

    def _cut(self, a: BrokerId, b: BrokerId) -> None:
        """The link is gone, and both ends notice."""
        self._close(a, b)
        self._lose(a, b)
        self._lose(b, a)

    def _lose(self, at: BrokerId, neighbor: BrokerId) -> None:
        self._brokers[at].core.link_down(str(neighbor))
        self.carry_out(self._brokers[at])

    def _close(self, a: BrokerId, b: BrokerId) -> None:
        self._hung_up -= {(a, b), (b, a)}
        if self._visiting & {(a, b), (b, a)}:
            self._visiting -= {(a, b), (b, a)}
            for id in (a, b):
                self._dial_soon(id)
        for channel in ((a, b), (b, a)):
            self._links.pop(channel, None)
            self.counters.lost += len(self.schedule.drop(channel))

    def _check_links(
        self, new: list[tuple[BrokerId, BrokerId]], newcomer: BrokerId | None = None
    ) -> None:
        """Whether the overlay allows these links."""
        links = [] if self._mesh else [*self.links, *self._severed]
        for a, b in new:
            for broker in (a, b):
                if broker != newcomer:
                    self.broker(broker)
            if a == b:
                raise InvalidTopology(f"a link {a!r}-{b!r} would lead from a broker to itself")
            if (a, b) in self._links:
                raise InvalidTopology(f"there is a link between {a!r} and {b!r} already")
            if self._acyclic and b in topology.reachable(a, links):
                raise InvalidTopology(
                    f"a link {a!r}-{b!r} would close a cycle; take another away first"
                )
            links.append((a, b))


def _listed(brokers: Iterable[Any]) -> str:
    shown = [repr(broker) for broker in brokers]
    return ", ".join(shown[:10]) + (", ..." if len(shown) > 10 else "")
