"""A simulated host of live brokers: journals, links and clients in memory, under one schedule.

Everything that the real host leaves open is decided by whoever drives the simulation: when a
message arrives, when the disk has written, when the core hears of it, when time passes, and what
fails. A step is one such event; after each the broker's actions are carried out.

  - A link has two queues of encoded messages. When it breaks, both are lost. When a queue has no
    room for notifications, they are dropped, and the word that their stream begins afresh stands in
    their place until it has arrived; so that each loss has one behind it.
  - A journal writes in order. Between writing and telling the core, its head is ahead of what was
    routed, and a crash loses what was not written.
  - A broker that crashes loses all but its journal and its stored durable subscriptions.
  - A client keeps its positions and its unanswered publications when its connection breaks, and
    presents them to whichever broker it connects to next.

Clients write down what they were given; `judge` holds that against what was published.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from stentor.errors import GroupElsewhere, JournalUnavailable, LeaseExpired
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, decode, encode
from stentor.node.agenda import Append, CloseClient, CloseLink, Persist, ToClient, ToLink
from stentor.node.border import Rights
from stentor.node.core import Core
from stentor.node.log import LastValue
from stentor.protocol import messages as m
from stentor.protocol.messages import Positions, StreamId
from stentor.routing import STRATEGIES, Strategy, TreeRouter


class MemoryLog:
    """A journal in memory. Only what was written counts; the rest is the host's."""

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self.entries: list[tuple[bytes, float]] = []
        self.published: dict[str, tuple[int, int]] = {}
        self.kept: dict[str, LastValue] = {}
        self._low = 1

    @property
    def stream(self) -> StreamId:
        return self._stream

    @property
    def head(self) -> int:
        return len(self.entries)

    @property
    def low(self) -> int:
        return self._low

    def read(self, first: int, limit: int) -> list[bytes]:
        assert first >= self._low, "what retention has taken must not be asked for"
        return [data for data, _ in self.entries[first - 1 : first - 1 + min(limit, 2)]]

    def offset_at(self, since: float) -> int:
        times = (o for o, (_, time) in enumerate(self.entries, 1) if time >= since)
        return max(next(times, self.head + 1), self._low)

    def last_values(self, after: str, limit: int) -> list[LastValue]:
        keys = sorted(key for key in self.kept if key > after)
        return [self.kept[key] for key in keys[: min(limit, 2)]]

    def write(self, append: Append, time: float) -> int:
        first = self.head + 1
        self.entries += [(data, time) for data in append.items]
        self.published[append.producer] = append.newest
        for key, i in append.retain:
            self.kept[key] = LastValue(key, time, append.items[i])
        return first

    def trim(self, low: int) -> None:
        """Retention: everything below is gone."""
        self._low = max(self._low, min(low, self.head + 1))


class Queue:
    """One direction of a link: encoded messages in order, with room for so many notifications."""

    def __init__(self, source: Host, to: str, limit: int) -> None:
        self.source = source
        self.to = to
        self.limit = limit
        self.messages: deque[bytes] = deque()
        self.notifications = 0
        #: Streams whose word that they begin afresh is in the queue, how often.
        self.words: dict[StreamId, int] = {}

    def push(self, message: Any) -> None:
        if isinstance(message, m.Forward):
            if self.notifications + len(message.items) > self.limit:
                self._drop(message)
                return
            self.notifications += len(message.items)
        self.messages.append(m.encoder.encode(message))

    def _drop(self, message: m.Forward) -> None:
        if not message.volatile and not self.words.get(message.stream):
            word = self.source.core.broken(message.stream, self.to)
            if word is not None:
                self.words[message.stream] = 1
                self.messages.append(m.encoder.encode(word))

    def pop(self) -> Any:
        message = m.decoder.decode(self.messages.popleft())
        if isinstance(message, m.Forward):
            self.notifications -= len(message.items)
        elif isinstance(message, m.Streams):
            for origin in message.up:
                self.words.pop(origin.stream, None)
        return message


class Host:
    """One broker, whatever it survives."""

    def __init__(self, sim: Overlay, name: str, *, queue: int) -> None:
        self.sim = sim
        self.name = name
        self.log = MemoryLog(f"{name}#")
        self.durables: dict[str, bytes] = {}
        self.queue = queue
        self.up = True
        self.sessions: dict[int, Client] = {}
        self.start()

    def start(self) -> None:
        self.up = True
        self.disk: deque[Append | Persist] = deque()
        self.written: deque[tuple[Append | Persist, int]] = deque()
        self.core = Core(
            self.name,
            self.log,
            addresses=[self.name],
            queue=self.queue,
            now=self.sim.clock,
            clock=self.sim.clock,
            router=self.sim.router(self.name),
            enforce_advertisements=self.sim.enforced,
        )
        self.core.restore(self.durables)

    def go_on(self, steps: Iterable[None]) -> None:
        """Deal with a message in steps, between which the core has its turn."""
        for _ in steps:
            self.flush()
            if self.core.has_work:
                self.core.work()
        self.flush()

    def flush(self) -> None:
        """Carry out what the core wants done."""
        for action in self.core.take():
            match action:
                case ToLink(neighbor, message):
                    queue = self.sim.queues.get((self.name, neighbor))
                    if queue is not None:
                        queue.push(message)
                case ToClient(session, message):
                    client = self.sessions.get(session)
                    if client is not None:
                        client.down.append(m.encoder.encode(message))
                case Append() | Persist():
                    self.disk.append(action)
                case CloseLink(neighbor, _, _):
                    self.sim.refused.append((self.name, neighbor))
                case CloseClient(session, code, _):
                    client = self.sessions.get(session)
                    if client is not None:
                        client.closings.append(code)
                        client.disconnect()

    def write(self, count: int) -> None:
        """The disk writes what has waited longest."""
        for _ in range(min(count, len(self.disk))):
            action = self.disk.popleft()
            first = 0
            if isinstance(action, Append):
                if action.line.failed or self.sim.disk_fails:
                    first = -1
                    action.line.failed = True  # nothing of this producer behind it, either
                else:
                    first = self.log.write(action, self.sim.clock)
            elif action.data is None:
                self.durables.pop(action.name, None)
            else:
                self.durables[action.name] = action.data
            self.written.append((action, first))

    def report(self) -> None:
        """The core hears of one thing that was written."""
        action, first = self.written.popleft()
        if isinstance(action, Persist):
            self.core.stored(action.context, None)
        elif first < 0:
            self.core.failed(action.context, JournalUnavailable("the disk is full"))
        else:
            self.core.committed([(action.context, first, action.items)])
        self.flush()


@dataclass(eq=False)
class Sub:
    """A subscription as its client sees it, across connections."""

    client: Client
    filter: Filter
    options: dict[str, Any]
    key: str
    number: int = 0
    made_at: float = 0.0
    positions: Positions = field(default_factory=dict)
    #: The step at which the client first heard that it is in force.
    in_force: int | None = None
    #: The positions that it had then.
    began: Positions = field(default_factory=dict)
    #: What came, in order: stream, offset and id; and the ids of what no journal holds.
    given: list[tuple[StreamId, int, NotificationId]] = field(default_factory=list)
    volatile: list[NotificationId] = field(default_factory=list)
    volatile_at: set[tuple[NotificationId, object]] = field(default_factory=set)
    retained: list[Notification] = field(default_factory=list)
    gaps: list[m.Gap] = field(default_factory=list)
    seen: set[NotificationId] = field(default_factory=set)
    #: Positions that are confirmed on disk.
    confirmed: Positions = field(default_factory=dict)
    asked: dict[int, Positions] = field(default_factory=dict)
    ended: str | None = None
    over: bool = False
    #: Notifications of credit that were not given back yet.
    debt: int = 0
    #: Of each stream what was dealt with last, in order of giving: what a group's member confirms.
    last: Positions = field(default_factory=dict)
    #: What the client remembered at any time of its present life.
    remembered: set[tuple[StreamId, int]] = field(default_factory=set)

    def take(self, message: m.Deliver) -> None:
        notifications = [decode(data) for data in message.items]
        self.debt += len(notifications)
        sim = self.client.sim
        for i, notification in enumerate(notifications):
            id = notification.id
            assert id is not None
            assert sim.published[id] == notification, f"{id} was altered"
            assert self.filter.matches(notification), f"{self.key} does not want {notification!r}"
            if message.retained:
                self.retained.append(notification)
                continue
            if not message.offsets:
                assert id in sim.volatile
                # A client that connects elsewhere can overtake what it has had already: its own
                # gate drops that. At one broker nothing comes twice.
                assert (id, self.client.host) not in self.volatile_at, f"{id} came twice"
                self.volatile_at.add((id, self.client.host))
                if id not in self.volatile:
                    self.volatile.append(id)
                continue
            self._take(message.stream, message.offsets[i], notification, id)

    def _take(
        self, stream: StreamId, offset: int, notification: Notification, id: NotificationId
    ) -> None:
        sim = self.client.sim
        log = sim.hosts[stream.rstrip("#")].log
        assert log.entries[offset - 1][0] == encode(notification), f"{stream}:{offset} is another"
        if "group" not in self.options:
            position = self.positions.get(stream, 0)
            assert offset > position, f"{self.key} was given {stream}:{offset} after {position}"
            assert offset > self.confirmed.get(stream, 0), f"{stream}:{offset} was confirmed"
        assert (stream, offset) not in self.remembered, f"{self.key}: {stream}:{offset} twice"
        self.remembered.add((stream, offset))
        self.positions[stream] = self.last[stream] = offset
        self.given.append((stream, offset, id))
        if id not in self.seen:  # the client's gate: a producer that moved may be in two streams
            self.seen.add(id)
            sim.trace_notify(self, notification)


class Client:
    """A program that publishes and subscribes."""

    def __init__(self, sim: Overlay, name: str) -> None:
        self.sim = sim
        self.name = name
        self.host: Host | None = None
        self.session = 0
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.numbers = count(1)
        self.epoch = 0
        self.sequence = 0
        self.unanswered: deque[m.Publish] = deque()
        self.subs: dict[int, Sub] = {}
        self.offers: dict[int, Filter] = {}
        self.demand: dict[int, list[str]] = {}
        self.closings: list[str] = []
        self.answers: list[Any] = []
        #: Where it has been connected, the last one last.
        self.homes: list[str] = []
        #: Credit is given back at once, or only when asked.
        self.window = 100
        self.slow = False

    def __repr__(self) -> str:
        return self.name

    # -- connections

    def connect(self, host: Host) -> None:
        assert self.host is None
        assert host.up
        self.session = next(self.sim.session_ids)
        try:
            host.core.join(self.session, self.name, newest=host.log.published.get(self.name))
        except JournalUnavailable:
            return
        self.host = host
        if host.name in self.homes:
            self.homes.remove(host.name)
        self.homes.append(host.name)
        host.sessions[self.session] = self
        offers, self.offers = self.offers, {}
        self.demand.clear()
        for filter in offers.values():
            self.advertise(filter)
        for publish in self.unanswered:
            self.say(publish)
        subs, self.subs = list(self.subs.values()), {}
        for sub in subs:
            self.ask(sub)

    def disconnect(self) -> None:
        """The connection breaks; both ends notice."""
        host, self.host = self.host, None
        if host is None:
            return
        self.up.clear()
        self.down.clear()
        self.unanswered = deque(p for p in self.unanswered if not p.volatile)
        for sub in self.subs.values():
            sub.asked.clear()
            if "group" in sub.options:  # what it was given may come back to it
                sub.last.clear()
                sub.remembered.clear()
        if host.sessions.pop(self.session, None) is not None and host.up:
            host.core.leave(self.session)
            host.flush()

    def restart(self) -> None:
        """The process dies and comes back with nothing but the names of what is durable."""
        self.disconnect()
        self.epoch += 1
        self.sequence = 0
        self.unanswered.clear()
        self.offers.clear()
        for number, sub in list(self.subs.items()):
            if "durable" in sub.options and "group" not in sub.options:
                self.sim.trace_end(sub)
                sub.positions, sub.last = {}, {}
                sub.remembered.clear()
                sub.debt = 0
            else:
                self.sim.end(sub)
                del self.subs[number]

    def say(self, message: Any) -> None:
        if self.host is not None:
            self.up.append(m.encoder.encode(message))

    # -- what it does

    def publish(
        self,
        events: list[dict[str, Any]],
        *,
        volatile: bool = False,
        retain: dict[int, str] | None = None,
    ) -> list[NotificationId]:
        if volatile and self.host is None:
            return []
        items = []
        ids = []
        for event in events:
            id = NotificationId(self.name, self.epoch, self.sequence)
            self.sequence += 1
            notification = Notification(event, id=id)
            self.sim.trace_pub(self, notification, volatile=volatile)
            items.append(encode(notification))
            ids.append(id)
        message = m.Publish(next(self.numbers), items, volatile=volatile, retain=retain or {})
        self.unanswered.append(message)
        self.say(message)
        return ids

    def subscribe(self, text: str, **options: Any) -> Sub:
        sub = Sub(self, Filter(text), options, f"{self.name}/{next(self.sim.keys)}")
        sub.made_at = self.sim.clock
        self.sim.subs.append(sub)
        self.sim.trace_sub(sub)
        if self.host is not None:
            self.ask(sub)
        else:
            self.subs[-next(self.numbers)] = sub
        return sub

    def ask(self, sub: Sub) -> None:
        sub.number = next(self.numbers)
        self.subs[sub.number] = sub
        sub.debt = 0
        options = dict(sub.options)
        if "group" not in options:
            if sub.in_force is not None or sub.positions:
                options["positions"] = dict(sub.positions)
            if sub.in_force is not None and "durable" not in options:
                # Brokers that it never heard of: everything since it was made.
                options.setdefault("since", sub.made_at)
        self.say(m.Subscribe(sub.number, str(sub.filter), self.window, **options))

    def unsubscribe(self, sub: Sub, *, forget: bool = False) -> None:
        del self.subs[sub.number]
        self.sim.end(sub)
        self.say(m.Unsubscribe(sub.number, forget))

    def confirm(self, sub: Sub, *, request: bool = False) -> None:
        positions = dict(sub.last if "group" in sub.options else sub.positions)
        number = next(self.numbers) if request else None
        if number is not None:
            sub.asked[number] = positions
        self.say(m.Confirm(sub.number, positions, number))

    def advertise(self, filter: Filter) -> None:
        number = next(self.numbers)
        self.offers[number] = filter
        self.say(m.Advertise(number, str(filter), demand=True))

    def give_credit(self) -> None:
        for sub in self.subs.values():
            if sub.debt and sub.number > 0:
                self.say(m.Credit(sub.number, sub.debt))
                sub.debt = 0

    # -- what it hears

    def hear(self) -> None:
        message = m.decoder.decode(self.down.popleft())
        sub = self.subs.get(getattr(message, "number", -1))
        match message:
            case m.Published(through):
                while self.unanswered and self.unanswered[0].number <= through:
                    publish = self.unanswered.popleft()
                    if not publish.volatile:
                        self.sim.acknowledge(decode(data) for data in publish.items)
            case m.Deliver() if sub is not None:
                sub.take(message)
                if not self.slow:
                    self.give_credit()
            case m.Progress(_, positions) if sub is not None:
                for stream, position in positions.items():
                    assert position >= sub.positions.get(stream, 0)
                    sub.positions[stream] = position
            case m.Gap() if sub is not None:
                sub.gaps.append(message)
                before = sub.positions.get(message.stream, 0)
                assert message.last >= message.first > before, f"{message} behind {before}"
                sub.positions[message.stream] = message.last
            case m.Subscribed() if sub is not None:
                if sub.in_force is None:
                    sub.in_force = self.sim.step
                    sub.began = dict(sub.positions)
            case m.Ended(_, code, _, instead) if sub is not None:
                if code == GroupElsewhere.code:
                    (place,) = instead
                    self._follow(sub, place)
                elif code is not None:
                    del self.subs[sub.number]
                    sub.ended = code
                    self.sim.end(sub)
            case m.Demand(number, filters):
                self.demand[number] = filters
            case m.Done(number):
                for each in self.subs.values():
                    for stream, position in each.asked.pop(number, {}).items():
                        each.confirmed[stream] = max(position, each.confirmed.get(stream, 0))
            case m.Rejected():
                raise AssertionError(f"{self.name} was told {message}")
            case m.Failure(code) if code != LeaseExpired.code:  # it ended while this was said
                raise AssertionError(f"{self.name} was told {message}")
        self.answers.append(message)

    def _follow(self, sub: Sub, broker: str) -> None:
        """The group lives elsewhere: go there."""
        sub.in_force = None
        self.disconnect()
        host = self.sim.hosts[broker]
        if host.up:
            self.connect(host)


class Overlay:
    """Brokers, links and clients, and what happens to them."""

    def __init__(
        self,
        links: list[tuple[str, str]],
        *,
        brokers: list[str] | None = None,
        queue: int = 1_000,
        link_limit: int = 10_000,
        seed: int = 0,
        rights: dict[tuple[str, str], Rights] | None = None,
        routing: Strategy | str = "covering",
        advertisements: Strategy | str | None = None,
        mixed: int = 0,
    ) -> None:
        """`rights` are what the second broker of a link may at the first."""
        self.routing = Strategy.of(routing)
        #: If not 0, brokers use different strategies that go together.
        self.mixed = mixed
        #: The strategy of advertisements, if they steer subscriptions.
        self.advertisements = None if advertisements is None else Strategy.of(advertisements)
        self.rng = random.Random(seed)
        self.rights = rights or {}
        self.clock = 1_000.0
        self.step = 0
        self.link_limit = link_limit
        self.disk_fails = False
        #: Whether clients go to other brokers when they connect again.
        self.moves = False
        #: What happens only if nothing else can.
        self.lazy: set[tuple[str, Any]] = set()
        self.queues: dict[tuple[str, str], Queue] = {}
        self.refused: list[tuple[str, str]] = []
        self.clients: list[Client] = []
        self.subs: list[Sub] = []
        self.session_ids = count(1)
        self.keys = count(1)
        self.published: dict[NotificationId, Notification] = {}
        self.publishers: dict[NotificationId, Client] = {}
        self.published_at: dict[NotificationId, int] = {}
        self.volatile: set[NotificationId] = set()
        self.acknowledged: set[NotificationId] = set()
        self.trace: list[tuple[Any, ...]] = []
        names = brokers or list(dict.fromkeys(name for link in links for name in link))
        self.hosts = {name: Host(self, name, queue=queue) for name in names}
        self.links = [(a, b) for a, b in links]
        for a, b in links:
            self.connect(a, b)

    @property
    def enforced(self) -> bool:
        """Whether clients have to advertise what they publish."""
        return self.advertisements is not None

    def router(self, name: str) -> TreeRouter:
        """Brokers differ in their strategies as far as these go together."""
        routing, offers = self.routing, self.advertisements or Strategy("covering")
        if self.mixed:
            alike = random.Random(f"{name} {self.mixed}")
            names = [n for n in STRATEGIES if Strategy(n).terms == routing.terms]
            routing = routing if routing.looseness else Strategy(alike.choice(names))
            names = [n for n in STRATEGIES if Strategy(n).terms == offers.terms]
            offers = Strategy(alike.choice(names))
        return TreeRouter(name, routing, offers, coupled=self.enforced)

    # -- what fails and heals

    def connect(self, a: str, b: str) -> None:
        if (a, b) in self.queues or not (self.hosts[a].up and self.hosts[b].up):
            return
        for x, y in ((a, b), (b, a)):
            self.queues[x, y] = Queue(self.hosts[x], y, self.link_limit)
        for x, y in ((a, b), (b, a)):
            self.hosts[x].core.link_up(y, self.rights.get((x, y)))
            self.hosts[x].flush()

    def disconnect(self, a: str, b: str) -> None:
        if self.queues.pop((a, b), None) is None:
            return
        del self.queues[b, a]
        for x, y in ((a, b), (b, a)):
            if self.hosts[x].up:
                self.hosts[x].core.link_down(y)
                self.hosts[x].flush()

    def crash(self, name: str) -> None:
        host = self.hosts[name]
        host.up = False
        for client in list(host.sessions.values()):
            client.disconnect()
        host.sessions.clear()
        for a, b in list(self.queues):
            if a == name:
                self.disconnect(a, b)

    def restart(self, name: str) -> None:
        self.hosts[name].start()

    def client(self, at: str | None = None, name: str | None = None) -> Client:
        client = Client(self, name or f"c{len(self.clients) + 1}")
        self.clients.append(client)
        if at is not None:
            client.connect(self.hosts[at])
        return client

    def places(self, client: Client) -> list[Host]:
        """Where a client may connect: a durable subscription is kept where it was made."""
        hosts = [host for host in self.hosts.values() if host.up]
        if client.homes and (
            not self.moves or any("durable" in s.options for s in client.subs.values())
        ):
            hosts = [host for host in hosts if host.name == client.homes[-1]]
        return hosts

    # -- steps

    def choices(self) -> list[tuple[str, Any]]:
        """What could happen next on its own."""
        found: list[tuple[str, Any]] = [("link", k) for k, q in self.queues.items() if q.messages]
        found += [("refused", link) for link in self.refused]
        for client in self.clients:
            if client.up:
                found.append(("up", client))
            if client.down:
                found.append(("down", client))
        for host in self.hosts.values():
            if host.up:
                if host.disk:
                    found.append(("disk", host))
                if host.written:
                    found.append(("written", host))
                if host.core.wants_turn:
                    found.append(("work", host))
        return found

    def happen(self, kind: str, what: Any) -> None:
        self.step += 1
        self.clock += 0.001
        if kind == "link":
            message = self.queues[what].pop()
            host = self.hosts[what[1]]
            host.go_on(host.core.hear_neighbor(what[0], message))
        elif kind == "up":
            message = m.decoder.decode(what.up.popleft())
            host = what.host
            host.go_on(host.core.hear(what.session, message) or ())
        elif kind == "refused":
            self.refused.remove(what)
            self.disconnect(*what)
        elif kind == "down":
            what.hear()
        elif kind == "disk":
            what.write(self.rng.randint(1, 3))
        elif kind == "written":
            what.report()
        else:
            if what.core.has_work:
                what.core.work()
            what.flush()

    def advance(self, most: int | None = None) -> None:
        """Let things happen, in any order, at most so many."""
        for _ in range(self.rng.randint(0, most) if most is not None else 1_000_000):
            found = self.choices()
            if not found:
                return
            if self.lazy and most is not None:
                found = [c for c in found if self._key(c) not in self.lazy] or found
            kind, what = self.rng.choice(found)
            self.happen(kind, what)
        assert most is not None, "it does not come to rest"

    @staticmethod
    def _key(choice: tuple[str, Any]) -> tuple[str, Any]:
        kind, what = choice
        return kind, what if isinstance(what, tuple) else what.name

    def dawdle(self) -> None:
        """From now on some links, clients, disks and journals have all the time in the world."""
        keys: list[tuple[str, Any]] = [("link", key) for key in self.queues]
        keys += [(kind, name) for kind in ("disk", "written", "work") for name in self.hosts]
        keys += [(kind, c.name) for kind in ("up", "down") for c in self.clients]
        self.lazy = {key for key in keys if self.rng.random() < 0.3}

    def tick(self, seconds: float) -> None:
        self.clock += seconds
        for host in self.hosts.values():
            if host.up:
                host.core.tick(self.clock, self.clock)
                host.flush()

    def heal(self) -> None:
        """Everything works again."""
        self.disk_fails = False
        for name, host in self.hosts.items():
            if not host.up:
                self.restart(name)
        for a, b in self.links:
            if b not in self.reached(a):
                self.connect(a, b)
        for queue in self.queues.values():
            queue.limit = 10_000

    def reached(self, name: str) -> set[str]:
        """The brokers that links lead to from here."""
        reached, edge = {name}, {name}
        while edge:
            edge = {b for a, b in self.queues if a in edge} - reached
            reached |= edge
        return reached

    def rewire(self, *, cycle: bool) -> None:
        """Put a link in another place; or leave the old one, so that there is a cycle."""
        a, b = self.rng.choice(self.links)
        if not cycle:
            self.disconnect(a, b)
            self.links.remove((a, b))
            reached = {b}
            while more := {y for x, y in self._both_ways() if x in reached} - reached:
                reached |= more
            ends = sorted(set(self.hosts) - reached), sorted(reached)
            self.links.append((self.rng.choice(ends[0]), self.rng.choice(ends[1])))
            self.connect(*self.links[-1])
        else:
            self.connect(*self.rng.sample(sorted(self.hosts), 2))

    def _both_ways(self) -> list[tuple[str, str]]:
        return self.links + [(b, a) for a, b in self.links]

    def settle(self) -> None:
        """Heal everything, and wait until nothing is under way."""
        for _ in range(2_000):
            self.heal()
            for client in self.clients:
                if client.host is None:
                    client.connect(self.rng.choice(self.places(client)))
                client.give_credit()
            if len(self.queues) > 2 * len(self.hosts) - 2:  # there is a cycle
                self.advance(10_000)
                self.tick(1.0)
                continue
            self.advance()
            if all(b in self.reached(a) for a, b in self.links) and all(
                c.host is not None and not self._owes(c) for c in self.clients
            ):
                break
        else:
            raise AssertionError("clients do not come to rest")
        for seconds in (1.5, 6.0, 1.5, 1.5):  # marks, progress, ends of leases, ends of demand
            self.tick(seconds)
            for _ in range(2_000):
                self.advance()
                if not any(map(self._owes, self.clients)):
                    break
                for client in self.clients:
                    client.give_credit()
        self.trace.append(("quiescent",))

    @staticmethod
    def _owes(client: Client) -> bool:
        return any(sub.debt for sub in client.subs.values())

    # -- what is written down

    def trace_pub(self, client: Client, notification: Notification, *, volatile: bool) -> None:
        id = notification.id
        assert id is not None
        self.published[id] = notification
        self.publishers[id] = client
        self.published_at[id] = self.step
        if volatile:
            self.volatile.add(id)
        else:
            self.trace.append(("pub", client.name, notification))

    def acknowledge(self, notifications: Iterator[Notification]) -> None:
        self.acknowledged.update(n.id for n in notifications if n.id is not None)

    def trace_sub(self, sub: Sub) -> None:
        self.trace.append(("sub", sub.key, sub.filter))

    def trace_end(self, sub: Sub) -> None:
        """What comes from now on comes to another component."""
        self.trace.append(("unsub", sub.key, sub.filter))
        sub.key = f"{sub.client.name}/{next(self.keys)}"
        sub.seen = set()
        self.trace_sub(sub)

    def end(self, sub: Sub) -> None:
        sub.over = True
        self.trace.append(("unsub", sub.key, sub.filter))

    def trace_notify(self, sub: Sub, notification: Notification) -> None:
        self.trace.append(("notify", sub.key, notification))
