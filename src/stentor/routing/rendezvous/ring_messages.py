"""What brokers on a ring say to each other about their trees."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from msgspec import Struct

from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate
from stentor.routing.protocol import BrokerId, FilterId, Kind, Message


class Entry(Struct, frozen=True, array_like=True):
    """A filter that is asked for, under its id where each subscription is kept apart."""

    id: FilterId | None
    filter: Filter

    @property
    def key(self) -> Hashable:
        return self.filter if self.id is None else self.id


class Announce(Message, frozen=True):
    """A child asks its parent in a tree for more, and for less, in one step.

    The first message to a parent is `fresh`: it is all that the child asks for.
    """

    kind: ClassVar[Kind] = "subscription"
    tree: str
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...] = ()
    fresh: bool = False


class Ask(Message, frozen=True):
    """`Announce` where advertisements are in use."""

    kind: ClassVar[Kind] = "subscription"
    tree: str
    update: SubscriptionUpdate
    fresh: bool = False


class Offer(Message, frozen=True):
    """A child tells its parent what may be published below. Offers are numbered.

    The first message to a parent, be it an `Ask` or an `Offer`, is `fresh`.
    """

    kind: ClassVar[Kind] = "advertisement"
    tree: str
    update: AdvertisementUpdate
    number: int
    fresh: bool = False


class AskBack(Message, frozen=True):
    """A parent asks a child for something that meets its offers.

    `since` is the number of the first of these offers. If the child's is another by now, it has
    left and come back in the meantime.
    """

    kind: ClassVar[Kind] = "subscription"
    tree: str
    update: SubscriptionUpdate
    since: int


class Heard(Message, frozen=True):
    """The child's offers up to this number are known up to the root.

    All that meets them and was asked for anywhere before has been asked back before this.
    """

    kind: ClassVar[Kind] = "control"
    tree: str
    number: int


class Leave(Message, frozen=True):
    """A child asks its parent for nothing any more, and offers nothing."""

    kind: ClassVar[Kind] = "subscription"
    tree: str


class Carry(Message, frozen=True):
    """A notification on its way in a tree: rising to the root, or coming down from it.

    One that is `advertised` rises only as far as it is asked for from above.

    `asks` is the root of the notification's own type, on the way to the root of a supertype whose
    interest it does not know yet.
    """

    kind: ClassVar[Kind] = "notification"
    tree: str
    notification: Notification
    rising: bool
    advertised: bool = False
    asks: BrokerId | None = None


class SupertypeInterest(Message, frozen=True):
    """The root of a supertype tells the root of a type what is asked for in its tree."""

    kind: ClassVar[Kind] = "subscription"
    tree: str
    supertype: str
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...] = ()
    fresh: bool = False


class InterestUnknown(Message, frozen=True):
    """It is no longer the root of the supertype and will not tell any more."""

    kind: ClassVar[Kind] = "control"
    tree: str
    supertype: str


class AskNoMore(Message, frozen=True):
    """A broker is no longer the root of a subtype and need not be told."""

    kind: ClassVar[Kind] = "control"
    tree: str
    subtype: str


class FindRoot(Message, frozen=True):
    """A broker looks for the root of a tree."""

    kind: ClassVar[Kind] = "control"
    tree: str
    broker: BrokerId


class Found(Message, frozen=True):
    """The sender is the root."""

    kind: ClassVar[Kind] = "control"
    tree: str


class Moved(Message, frozen=True):
    """The sender is not the root, or not any more."""

    kind: ClassVar[Kind] = "control"
    tree: str
