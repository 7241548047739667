"""A host for routers of graphs and trees that hides nothing.

Where routers do not carry notifications themselves, it does so as a broker does: each goes where
the router says, and one that comes again is ignored. Messages keep their order on each directed
link, otherwise the random source picks which arrives next. Deliveries are recorded as the routers
make them, before any client's gate could hide a second copy; and what should be delivered is worked
out from nothing but the live subscriptions and the links that are up.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import combinations, count
from random import Random
from typing import Any, ClassVar

from stentor.filters import Filter
from stentor.model import Notification, NotificationId
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    Deliver,
    FilterId,
    Kind,
    LiveRouter,
    Message,
    Outputs,
    Router,
    Send,
)
from stentor.routing.table import Local

Link = tuple[BrokerId, BrokerId]

#: Far more than any of the small graphs of the tests needs to come to rest.
PATIENCE = 50_000


class Carried(Message, frozen=True):
    """A notification, and the broker where it entered."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    entry: BrokerId


class Overlay:
    """Routers, links, and clients that are named after their brokers."""

    def __init__(
        self,
        make: Callable[[BrokerId], Router | LiveRouter],
        brokers: Iterable[BrokerId],
        links: Iterable[Link] = (),
        random: Random | None = None,
    ) -> None:
        self._make = make
        self._random = random or Random(0)
        self._numbers = count(1)
        self._lives: Counter[BrokerId] = Counter()
        self.routers: dict[BrokerId, Any] = {broker: make(broker) for broker in brokers}
        self.channels: dict[Link, deque[Message]] = {}
        self.subscriptions: dict[FilterId, tuple[BrokerId, Filter]] = {}
        self.advertisements: dict[FilterId, tuple[BrokerId, Filter]] = {}
        self._seen: set[tuple[BrokerId, NotificationId]] = set()
        self.delivered: list[tuple[ClientId, NotificationId]] = []
        self.sent: list[tuple[BrokerId, BrokerId, Message]] = []
        for a, b in links:
            self.connect(a, b)

    # -- links and brokers

    @property
    def links(self) -> set[frozenset[BrokerId]]:
        return {frozenset(channel) for channel in self.channels}

    def connect(self, a: BrokerId, b: BrokerId) -> None:
        self.channels[a, b] = deque()
        self.channels[b, a] = deque()
        self._do(a, self.routers[a].link_up(b))
        self._do(b, self.routers[b].link_up(a))

    def disconnect(self, a: BrokerId, b: BrokerId) -> None:
        del self.channels[a, b], self.channels[b, a]
        self._do(a, self.routers[a].link_down(b))
        self._do(b, self.routers[b].link_down(a))

    def crash(self, broker: BrokerId) -> None:
        """The broker dies with its clients; it starts again, knowing nothing, without links."""
        neighbors = [b for a, b in self.channels if a == broker]
        for held in (self.subscriptions, self.advertisements):
            for id in [id for id, (at, _) in held.items() if at == broker]:
                del held[id]
        self.routers[broker] = self._make(broker)
        self._lives[broker] += 1
        for neighbor in neighbors:
            del self.channels[broker, neighbor], self.channels[neighbor, broker]
            self._do(neighbor, self.routers[neighbor].link_down(broker))

    def component(self, broker: BrokerId) -> set[BrokerId]:
        found, open_ = {broker}, [broker]
        while open_:
            at = open_.pop()
            for a, b in self.channels:
                if a == at and b not in found:
                    found.add(b)
                    open_.append(b)
        return found

    # -- clients

    def subscribe(self, at: BrokerId, filter: str | Filter, client: str = "c") -> FilterId:
        life = "'" * self._lives[at]  # clients of a broker that starts again are others
        id = FilterId(f"{client}{life}@{at}", next(self._numbers))
        filter = Filter(filter) if isinstance(filter, str) else filter
        self.subscriptions[id] = (at, filter)
        self._do(at, self.routers[at].subscribe(id, filter))
        return id

    def unsubscribe(self, id: FilterId) -> None:
        at, _ = self.subscriptions.pop(id)
        self._do(at, self.routers[at].unsubscribe(id))

    def advertise(self, at: BrokerId, filter: str | Filter) -> FilterId:
        id = FilterId(f"p@{at}", next(self._numbers))
        filter = Filter(filter) if isinstance(filter, str) else filter
        self.advertisements[id] = (at, filter)
        self._do(at, self.routers[at].advertise(id, filter))
        return id

    def unadvertise(self, id: FilterId) -> None:
        at, _ = self.advertisements.pop(id)
        self._do(at, self.routers[at].unadvertise(id))

    def publish(self, at: BrokerId, **attributes: Any) -> NotificationId:
        id = NotificationId(f"p@{at}", 0, next(self._numbers))
        notification, router = Notification(attributes, id=id), self.routers[at]
        if isinstance(router, Router):
            self._do(at, router.publish(f"p@{at}", notification))
        else:
            self._carry(at, None, Carried(notification, at))
        return id

    def _carry(self, at: BrokerId, source: BrokerId | None, message: Carried) -> None:
        id = message.notification.id
        assert id is not None
        if (at, id) in self._seen:
            return
        self._seen.add((at, id))
        router = self.routers[at]
        _, targets = router.route_leading([message.notification], source, None, message.entry)
        for target in sorted(targets, key=lambda target: (type(target).__name__, str(target.id))):
            if isinstance(target, Local):
                self._do(at, [Deliver(target.id, message.notification)])
            else:
                self._do(at, [Send(target.id, message)])

    # -- schedules

    def _do(self, broker: BrokerId, outputs: Outputs) -> None:
        for output in outputs:
            match output:
                case Send(to, message):
                    assert message.kind in (
                        "notification",
                        "subscription",
                        "advertisement",
                        "control",
                    )
                    self.channels[broker, to].append(message)
                    self.sent.append((broker, to, message))
                case Deliver(to, notification):
                    assert to.endswith(f"@{broker}")
                    assert notification.id is not None
                    self.delivered.append((to, notification.id))

    def pending(self) -> list[Link]:
        return [channel for channel, queue in self.channels.items() if queue]

    def step(self, sender: BrokerId, receiver: BrokerId) -> None:
        message = self.channels[sender, receiver].popleft()
        if isinstance(message, Carried):
            self._carry(receiver, sender, message)
        else:
            self._do(receiver, self.routers[receiver].receive(sender, message))

    def run(self, steps: int) -> None:
        """Let some messages arrive, or all there are."""
        for _ in range(steps):
            pending = self.pending()
            if not pending:
                return
            self.step(*self._random.choice(pending))

    def settle(self) -> None:
        self.run(PATIENCE)
        assert not self.pending(), "it goes on and on"

    # -- what must hold at rest

    def wanting(self, at: BrokerId, attributes: dict[str, Any]) -> dict[ClientId, BrokerId]:
        """Who should get what is published there, and the broker of each."""
        near = self.component(at)
        return {
            id.client: broker
            for id, (broker, filter) in self.subscriptions.items()
            if broker in near and filter.matches(attributes)
        }

    def check_delivery(
        self, at: BrokerId, attributes: dict[str, Any]
    ) -> Counter[frozenset[BrokerId]]:
        """Publish: exactly those who want it get it, exactly once. The answer is the links used."""
        before = len(self.sent)
        id = self.publish(at, **attributes)
        self.settle()
        got = Counter(client for client, delivered in self.delivered if delivered == id)
        assert got == Counter(list(self.wanting(at, attributes))), (at, attributes)
        return Counter(
            frozenset((sender, receiver))
            for sender, receiver, message in self.sent[before:]
            if message.kind == "notification"
        )

    def entries(self) -> int:
        return sum(router.table_size().total for router in self.routers.values())


def random_links(random: Random, brokers: list[BrokerId], extra: float) -> list[Link]:
    """A connected graph: a random tree, and each other link with the given probability."""
    links: set[Link] = set()
    for number, broker in enumerate(brokers[1:], 1):
        links.add((brokers[random.randrange(number)], broker))
    for pair in combinations(brokers, 2):
        if random.random() < extra:
            links.add(pair)
    return sorted(links, key=repr)
