"""What a broker's core asks its host to do."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from stentor.node.session import Line
from stentor.protocol.messages import BetweenBrokers, FromBroker


class ToLink(NamedTuple):
    """Send a message to a neighbor."""

    neighbor: str
    message: BetweenBrokers


class ToClient(NamedTuple):
    """Send a message to a client."""

    session: int
    message: FromBroker


class Append(NamedTuple):
    """Write notifications to the journal; `committed` or `failed` is then called."""

    items: list[bytes]
    producer: str
    #: The newest epoch and sequence number of the producer up to here, to be stored with them.
    newest: tuple[int, int]
    #: If it has `failed`, they must not be stored.
    line: Line
    #: Keys of last values, with the index of the item.
    retain: list[tuple[str, int]]
    context: Any


class Persist(NamedTuple):
    """Store the state of a durable subscription, or delete it (None); `stored` is then called."""

    name: str
    data: bytes | None
    context: Any


class CloseLink(NamedTuple):
    """Close the link to a neighbor, for the reason given."""

    neighbor: str
    code: str
    reason: str


class CloseClient(NamedTuple):
    """Close the connection of a client, for the reason given."""

    session: int
    code: str
    reason: str


Action: TypeAlias = ToLink | ToClient | Append | Persist | CloseLink | CloseClient
