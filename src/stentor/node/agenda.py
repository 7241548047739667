"""The agenda: what a broker's core asks its host to do, collected until the host takes it.

Nearly all that a broker hears under load is publications, and these give few of its parts anything
to do. So the agenda also tells whether the parts are at *rest*: all were asked, had nothing to do,
and were not stirred since. Whatever is told to the core stirs them, but for publications: of
clients, of neighbors, and those that are on disk now. Where these do give a part something to do,
whoever notices stirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from stentor.errors import StentorError
from stentor.node.schedule import Delayed
from stentor.node.session import Line
from stentor.protocol.messages import BetweenBrokers, FromBroker, Origin
from stentor.routing.protocol import Arm, Close, Message

#: Sessions with lower numbers have no connection: they belong to the broker itself.
RESIDENTS: Final = -1_000


class ToLink(NamedTuple):
    """Send a message to a neighbor."""

    neighbor: str
    message: BetweenBrokers | Message


class ToClient(NamedTuple):
    """Send a message to a client."""

    session: int
    message: FromBroker


class Append(NamedTuple):
    """Write notifications to the journal; `committed` or `failed` is then called."""

    items: list[bytes]
    #: Empty for what the broker publishes.
    producer: str
    #: The newest epoch and sequence number of the producer up to here, to be stored with them.
    newest: tuple[int, int]
    #: If it has `failed`, they must not be stored.
    line: Line
    #: Keys of last values, with the index of the item.
    retain: list[tuple[str, int]]
    context: Any
    #: States of durable subscriptions by name, stored in the same transaction.
    states: Mapping[str, bytes] = MappingProxyType({})
    #: Publications that are kept until they are due, and ids of those that need not be any longer.
    schedule: Sequence[Delayed] = ()
    unschedule: Sequence[str] = ()

    @property
    def marks(self) -> dict[str, tuple[int, int]]:
        """What is to be remembered of producers with it."""
        known = self.producer and (self.items or self.schedule)
        return {self.producer: self.newest} if known else {}


class Persist(NamedTuple):
    """Store the state of a durable subscription, or delete it (None); `context` hears of that."""

    name: str
    data: bytes | None
    context: Callable[[StentorError | None], None] | None


class CloseLink(NamedTuple):
    """Close the link to a neighbor, for the reason given."""

    neighbor: str
    code: str
    reason: str


class Visit(NamedTuple):
    """Have links with these brokers, and with no others but those that stand."""

    brokers: tuple[Origin, ...]


class CloseClient(NamedTuple):
    """Close the connection of a client, for the reason given."""

    session: int
    code: str
    reason: str


#: Routers that carry notifications themselves also arm timers and close links.
Action: TypeAlias = (
    ToLink | ToClient | Append | Persist | CloseLink | CloseClient | Visit | Arm | Close
)


class Agenda:
    """Actions in the order in which they are to be carried out.

    >>> agenda = Agenda()
    >>> agenda.to_link("b2", "a message")
    >>> agenda.take(), agenda.take()
    ([ToLink(neighbor='b2', message='a message')], [])
    """

    def __init__(self) -> None:
        self._actions: list[Action] = []
        #: Whether no part has anything to do but to pass on publications.
        self.at_rest = False
        #: Whether all of them were asked since they were stirred last.
        self._asked = False
        #: Who lives in the broker itself, by the numbers of their sessions.
        self.residents: dict[int, Callable[[Any], None]] = {}

    def __len__(self) -> int:
        return len(self._actions)

    def add(self, action: Action) -> None:
        self._actions.append(action)

    def to_client(self, session: int, message: Any) -> None:
        if session < RESIDENTS:
            hear = self.residents.get(session)
            if hear is not None:
                self.stir()
                hear(message)
            return
        self._actions.append(ToClient(session, message))

    def to_link(self, neighbor: str, message: Any) -> None:
        self._actions.append(ToLink(neighbor, message))

    def to_links(self, sends: Iterable[tuple[str, Any]]) -> None:
        """Each message to its neighbor."""
        self._actions += [ToLink(to, message) for to, message in sends]

    def take(self) -> list[Action]:
        """What is to be done; it is no longer on the agenda."""
        actions, self._actions = self._actions, []
        return actions

    # -- rest

    def stir(self) -> None:
        """Some part may have something to do now."""
        self.at_rest = self._asked = False

    def ask(self) -> None:
        """All parts are about to be asked what they have to say."""
        self._asked = True

    def idle(self) -> None:
        """None of them has any work."""
        self.at_rest = self._asked
