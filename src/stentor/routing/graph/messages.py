"""What brokers of a generic graph say to each other, beside updates of filters.

A filter is known to all by the broker whose clients it is for and the number that this one gave it,
as a `FilterId`.
"""

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


class Forward(Message, frozen=True):
    """A notification, the broker where it entered, and how many more hops it may take."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    entry: BrokerId
    hops: int
