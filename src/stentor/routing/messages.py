"""What brokers of a tree say to each other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from stentor.filters import Filter
from stentor.routing.protocol import Kind, Message
from stentor.routing.reducers import Change

#: Filters under the keys by which the receiver knows them.
Keyed = tuple[tuple[Hashable, Filter], ...]


class Update(Message, frozen=True):
    """Filters that are no longer announced and filters that now are, in one step (R-03.06).

    What is removed was announced before, under the same key; the receiver's entries are thus always
    what the sender has announced, as soon as its messages have arrived.
    """

    added: Keyed
    removed: tuple[Hashable, ...]


class SubscriptionUpdate(Update, frozen=True):
    """`admin` for subscriptions."""

    kind: ClassVar[Kind] = "subscription"


class AdvertisementUpdate(Update, frozen=True):
    """`admin` for advertisements."""

    kind: ClassVar[Kind] = "advertisement"


def update(kind: type[Update], change: Change) -> Update:
    return kind(tuple(change.added.items()), tuple(change.removed))
