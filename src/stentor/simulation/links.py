"""One direction of a virtual link, with room for so many notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from stentor.protocol import messages as m
from stentor.protocol.messages import StreamId
from stentor.routing.protocol import BrokerId, Kind, Message

#: From and to.
Channel: TypeAlias = tuple[BrokerId, BrokerId]

UNLIMITED: Final = 1 << 40
_KINDS: Final[dict[type, Kind]] = {
    m.Forward: "notification",
    m.Subscriptions: "subscription",
    m.Advertisements: "advertisement",
}


class LinkRoom:
    """What is on the way in one direction, as far as room is concerned.

    When there is no room for notifications, they are dropped, and the word that their stream begins
    afresh stands in their place until it has arrived; so that each loss has one behind it.
    """

    def __init__(
        self, limit: int = UNLIMITED, broken: Callable[[StreamId], m.Streams | None] | None = None
    ) -> None:
        """`broken` is what to say in place of notifications of a stream that were dropped."""
        self._broken = broken
        self.limit = limit
        self.notifications = 0
        #: Streams whose word that they begin afresh is on its way.
        self._words: set[StreamId] = set()

    def admit(self, message: Any) -> Any:
        """What goes on its way: the message, another in its place, or None."""
        if isinstance(message, m.Forward):
            if self.notifications + len(message.items) > self.limit:
                return self._dropped(message)
            self.notifications += len(message.items)
        return message

    def _dropped(self, message: m.Forward) -> m.Streams | None:
        if message.volatile or message.stream in self._words or self._broken is None:
            return None
        word = self._broken(message.stream)
        if word is not None:
            self._words.add(message.stream)
        return word

    def arrived(self, message: Any) -> None:
        if isinstance(message, m.Forward):
            self.notifications -= len(message.items)
        elif isinstance(message, m.Streams):
            self._words.difference_update(origin.stream for origin in message.up)


def together(messages: Iterable[Any], most: int = UNLIMITED) -> Iterator[Any]:
    """The same in fewer messages: what follows one another, and is of one kind, becomes one.

    Unless that would have more than so many notifications.

    >>> [f.items for f in together(m.Forward("b1#", [n], [b"."]) for n in (1, 2))]
    [[b'.', b'.']]
    """
    last: Any = None
    for message in messages:
        joined = _joined(last, message, most)
        if joined is None:
            if last is not None:
                yield last
            joined = message
        last = joined
    if last is not None:
        yield last


def _joined(one: Any, other: Any, most: int) -> Any:
    """Both as one message; None if they have to stay apart."""
    kind = type(one)
    if kind is not type(other):
        return None
    if kind is m.Forward:
        alike = one.stream == other.stream and one.volatile == other.volatile
        if alike and len(one.items) + len(other.items) <= most:
            offsets = [*one.offsets, *other.offsets]
            return m.Forward(one.stream, offsets, [*one.items, *other.items], one.volatile)
    elif kind in (m.Subscriptions, m.Advertisements) and not one.removed and not other.removed:
        return kind([*one.added, *other.added], [])
    return None


def kind_of(message: Any) -> Kind:
    """What a message is counted as."""
    if isinstance(message, Message):
        return message.kind
    return _KINDS.get(type(message), "control")


def count_of(message: Any) -> int:
    """How many messages it stands for: what travels together is counted apart."""
    return len(message.items) if isinstance(message, m.Forward) else 1
