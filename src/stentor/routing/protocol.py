"""What every router is: a broker's routing decisions, without input or output.

A router is a deterministic state machine. It is told what happens (a client subscribes, a message
arrives, a link comes up, a timer expires) and answers with what is to be done: messages to send,
notifications to hand to local clients, timers to arm. Each call is one atomic step (R-03.08); a
host runs the steps of one broker one after the other and carries the outputs out in order.
The live broker and the simulator are such hosts, so both run the very same routers.

What a host promises (R-03.01 to R-03.03): messages from one broker to another arrive in the order
they were sent, unaltered and once, or not at all if the link goes down; after `link_down` nothing
of that link arrives any more, so a link that comes up again starts afresh. Nothing waits for ever.

Rules for messages: they are immutable, they hold nothing but values, and each class says in `kind`
what it is counted as.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from stentor.filters import Filter
from stentor.model.notification import Notification

if TYPE_CHECKING:
    from stentor.model.codec import Envelope
    from stentor.routing.table import Destination

BrokerId: TypeAlias = int | str
ClientId: TypeAlias = str
#: What a neighbor is to a broker. A visitor is linked for as long as one of the two needs it.
Place: TypeAlias = Literal["peer", "parent", "child", "visitor"]
Kind: TypeAlias = Literal["notification", "subscription", "advertisement", "control"]


class FilterId(Struct, frozen=True, order=True, array_like=True, gc=False):
    """One act of subscribing or advertising: whose it is, and which. Never used again."""

    client: ClientId
    number: int

    def __str__(self) -> str:
        return f"{self.client}#{self.number}"


class Message(Struct, frozen=True):
    """Base of all that brokers say to each other."""

    kind: ClassVar[Kind]


class Send(Struct, frozen=True):
    """Give a message to the link to another broker."""

    to: BrokerId
    message: Message


class Deliver(Struct, frozen=True):
    """A notification for a local client, at least one of whose subscriptions matches it."""

    to: ClientId
    notification: Notification


class Arm(Struct, frozen=True):
    """Call `expired(timer)` after so many units of time. Arming again starts anew."""

    timer: Hashable
    after: float


class Close(Struct, frozen=True):
    """The link to this neighbor is no longer used; it is closed when both ends say so."""

    to: BrokerId


Output: TypeAlias = Send | Deliver | Arm | Close
Outputs: TypeAlias = list[Output]


class TableSize(int):
    """How many entries for subscriptions a broker holds, and how they are made up.

    >>> size = TableSize(local=1, remote=2, advertisements=5)
    >>> size, size.remote, size + 1
    (TableSize(local=1, remote=2, advertisements=5), 2, 4)
    """

    #: Entries of the broker's clients, and those of others.
    local: int
    remote: int
    #: Entries for advertisements, of clients and others; not part of the number.
    advertisements: int

    def __new__(cls, local: int = 0, remote: int = 0, advertisements: int = 0) -> TableSize:
        size = super().__new__(cls, local + remote)
        size.local, size.remote, size.advertisements = local, remote, advertisements
        return size

    @property
    def total(self) -> int:
        """Subscription entries; advertisements are counted apart."""
        return int(self)

    def __repr__(self) -> str:
        return (
            f"TableSize(local={self.local}, remote={self.remote}, "
            f"advertisements={self.advertisements})"
        )


@runtime_checkable
class Router(Protocol):
    """The routing decisions of one broker, where notifications travel in the router's messages.

    A filter id is used for one subscription or advertisement and then never again. Withdrawing
    one that is unknown, or submitting one that is held, changes nothing (R-03.07).
    """

    @property
    def id(self) -> BrokerId: ...

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        """The brokers to which there is a link now."""

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        """A local client wants what the filter matches."""

    def unsubscribe(self, id: FilterId) -> Outputs:
        """It no longer does."""

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        """A local client intends to publish what the filter matches."""

    def unadvertise(self, id: FilterId) -> Outputs:
        """It no longer does."""

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        """A local client publishes. The notification has an id that is new."""

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        """A message from another broker."""

    def link_up(self, neighbor: BrokerId) -> Outputs:
        """A new, empty link to the neighbor is there."""

    def link_down(self, neighbor: BrokerId) -> Outputs:
        """The link is gone, with everything that was on its way."""

    def expired(self, timer: Hashable) -> Outputs:
        """A timer that was armed has run out."""

    def table_size(self) -> TableSize: ...

    def offers(self) -> list[Filter]:
        """What may currently be published, as far as this broker knows (R-01.37)."""


class LiveRouter(Protocol):
    """The routing decisions of a broker that runs: batches, and nothing that takes long.

    Notifications are not its messages. It says where a batch goes; the broker carries it there, in
    the order of the stream to which it belongs.
    """

    @property
    def id(self) -> BrokerId: ...

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        """The brokers to which there is a link now."""

    @property
    def terms(self) -> str:
        """What neighbors have to agree on, in words."""

    @property
    def is_coupled(self) -> bool:
        """Whether subscriptions go only where something that overlaps them is advertised."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held of what anybody asks for or offers."""

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs: ...

    def advertise(self, id: FilterId, filter: Filter) -> Outputs: ...

    def unadvertise(self, id: FilterId) -> Outputs: ...

    def withdraw(
        self, subscriptions: Iterable[FilterId], advertisements: Iterable[FilterId]
    ) -> Outputs:
        """Withdraw all of these in one step."""

    def receive(self, sender: BrokerId, message: Message) -> Outputs: ...

    def link_up(self, neighbor: BrokerId) -> Outputs: ...

    def link_down(self, neighbor: BrokerId) -> Outputs: ...

    def place(self, neighbor: BrokerId, place: Place) -> None:
        """What the neighbor is to this broker from now on; to be said while there is no link."""

    def is_joining(self, neighbor: BrokerId) -> bool:
        """Whether `work` has more to tell a neighbor of what stood when its link came up."""

    def asks(self, neighbor: BrokerId) -> bool:
        """Whether `forget_some` has something left to do before `link_down`."""

    def forget_some(self, neighbor: BrokerId, most: int) -> Outputs:
        """Forget so many filters of a neighbor that says nothing any more."""

    @property
    def is_serving(self) -> bool:
        """Whether `work` has to go on before neighbors are asked for all that they offer."""

    @property
    def has_work(self) -> bool:
        """Whether more is asked for or sent than has to be, until `work` was called."""

    def work(self) -> Outputs:
        """Do a part of what changes have left to do."""

    def route_leading(
        self,
        events: Sequence[Envelope | Notification],
        source: BrokerId | None,
        most: int | None,
        root: BrokerId | None = None,
    ) -> tuple[int, dict[Destination, list[int]]]:
        """Where a batch goes that a client (None) published or a neighbor forwarded.

        It entered the overlay at the root. For each neighbor and client the indexes of the events
        that go there, ascending; for as many leading events, at least one, as cost about `most` to
        pass on. Their number comes first.
        """

    def table_size(self) -> TableSize: ...

    def offers(self) -> list[Filter]:
        """What may currently be published, as far as this broker knows (R-01.37)."""

    def interests(self) -> list[Filter]:
        """What is asked for, as far as this broker knows."""

    def watch(self, changed: Callable[[Filter, bool], None]) -> None:
        """Be told of each of the `interests` that has come (True) or gone."""
