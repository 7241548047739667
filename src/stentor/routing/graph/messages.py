"""What brokers of a generic graph say to each other, beside updates of filters.

A filter is known to all by the broker whose clients it is for and the number that this one gave it,
as a `FilterId`.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from stentor.filters import Filter
from stentor.routing.graph.link_states import LinkState
from stentor.routing.protocol import Kind, Message

#: A filter and the number its origin gave it.
Entry: TypeAlias = tuple[int, Filter]


class Topology(Message, frozen=True):
    """Link states that are new to the receiver, as far as the sender can tell."""

    kind: ClassVar[Kind] = "control"
    states: tuple[LinkState, ...]
