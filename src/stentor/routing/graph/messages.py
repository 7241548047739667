"""What brokers of a generic graph say to each other."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.routing.graph.link_states import LinkState
from stentor.routing.protocol import BrokerId, Kind, Message

#: A filter and the number its origin gave it.
Entry: TypeAlias = tuple[int, Filter]


class Topology(Message, frozen=True):
    """Link states that are new to the receiver, as far as the sender can tell."""

    kind: ClassVar[Kind] = "control"
    states: tuple[LinkState, ...]


class Update(Message, frozen=True):
    """What changes in the filters of an origin that the sender told the receiver of: one step."""

    origin: BrokerId
    add: tuple[Entry, ...]
    remove: tuple[int, ...]


class Interest(Update, frozen=True):
    """An update of what the origin's clients subscribe to."""

    kind: ClassVar[Kind] = "subscription"


class Offer(Update, frozen=True):
    """An update of what the origin's clients advertise."""

    kind: ClassVar[Kind] = "advertisement"


class Forward(Message, frozen=True):
    """A notification, the broker where it entered, and how many more hops it may take."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    entry: BrokerId
    hops: int
