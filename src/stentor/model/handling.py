"""How a notification is to be handled on its way: when, until when, and before which others.

The publisher says it, and it is part of the header, so that it travels, is journaled and comes
again with the notification. Most have nothing of it, and then their header is as short as ever.

A *moment* is absolute, in UTC. Whoever compares it with the time uses the clock of a broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from stentor.errors import InvalidNotification
from stentor.model.names import shown
from stentor.model.values import normal

#: Priorities are those of JMS: from 0 to 9, of which 5 and more are urgent.
LEAST: Final = 0
DEFAULT: Final = 4
MOST: Final = 9


class Handling(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """What its publisher has said, if that is anything."""

    # Moments are declared as anything, since msgspec would take a string for one.
    #: It is delivered to nobody before.
    deliver_at: Any = None
    #: It is delivered to nobody from then on.
    expires: Any = None
    #: Which of those that wait goes first, where a subscriber wants it so: the higher one.
    priority: int = DEFAULT

    def is_over(self, time: float) -> bool:
        """Whether it has expired at this time, in seconds since 1970."""
        expires: datetime | None = self.expires
        return expires is not None and expires.timestamp() <= time

    @property
    def due(self) -> float:
        """Seconds since 1970 from which on it may be delivered; 0 for at once."""
        at: datetime | None = self.deliver_at
        return 0.0 if at is None else at.timestamp()

    @property
    def end(self) -> float:
        """Seconds since 1970 at which it expires; infinity if it does not."""
        expires: datetime | None = self.expires
        return float("inf") if expires is None else expires.timestamp()


def handling(
    deliver_at: datetime | None = None, expires: datetime | None = None, priority: int = DEFAULT
) -> Handling | None:
    """What these say together; None if that is nothing.

    >>> handling(priority=7).priority, handling()
    (7, None)
    """
    if deliver_at is None and expires is None and type(priority) is int and priority == DEFAULT:
        return None
    found = Handling(
        None if deliver_at is None else _moment(deliver_at, "deliver_at"),
        None if expires is None else _moment(expires, "expires"),
        priority,
    )
    check(found)
    return found


def _moment(value: Any, what: str) -> datetime:
    if not isinstance(value, datetime):
        raise InvalidNotification(f"{what}={shown(value)} is not a datetime")
    return cast(datetime, normal(value))


def check(found: Handling) -> None:
    """Raise `InvalidNotification` unless this says something, and something possible."""
    deliver_at, expires, priority = found.deliver_at, found.expires, found.priority
    for what, moment in (("deliver_at", deliver_at), ("expires", expires)):
        if moment is not None and (type(moment) is not datetime or moment.tzinfo is not UTC):
            raise InvalidNotification(f"{what}={shown(moment)} is not a moment in UTC")
    if type(priority) is not int or not LEAST <= priority <= MOST:
        raise InvalidNotification(
            f"priority={shown(priority)} is not a priority; give one from {LEAST} to {MOST}, "
            f"where {MOST} is the highest and {DEFAULT} the usual one"
        )
    if deliver_at is not None and expires is not None and expires <= deliver_at:
        raise InvalidNotification(
            f"it would expire at {expires.isoformat()}, before it may be delivered "
            f"({deliver_at.isoformat()}); give a later `expires`"
        )
    if deliver_at is None and expires is None and priority == DEFAULT:
        raise InvalidNotification("how it is to be handled says nothing, so it must be absent")


class HasPriority(Protocol):
    """What can be ranked."""

    @property
    def priority(self) -> int: ...


Item = TypeVar("Item", bound=HasPriority)


class Ranked(Generic[Item]):
    """A queue from which the highest priority goes first, and among equals who came first.

    It has the methods of a deque that queues need.

    >>> from stentor.model import Notification
    >>> queue = Ranked([Notification({"x": x}, priority=p) for x, p in ((1, 4), (2, 7), (3, 4))])
    >>> [queue.popleft()["x"] for _ in range(len(queue))]
    [2, 1, 3]
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._ranks: list[deque[Item]] = [deque() for _ in range(LEAST, MOST + 1)]
        self._count = 0
        self.extend(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        for rank in reversed(self._ranks):
            yield from rank

    def __contains__(self, item: Item) -> bool:
        return item in self._ranks[item.priority]

    def __getitem__(self, index: int) -> Item:
        """The first one; of the others nobody asks."""
        assert index == 0
        return next(iter(self))

    def append(self, item: Item) -> None:
        self._ranks[item.priority].append(item)
        self._count += 1

    def extend(self, items: Iterable[Item]) -> None:
        for item in items:
            self.append(item)

    def popleft(self) -> Item:
        for rank in reversed(self._ranks):
            if rank:
                self._count -= 1
                return rank.popleft()
        raise IndexError("the queue is empty")

    def remove(self, item: Item) -> None:
        self._ranks[item.priority].remove(item)
        self._count -= 1

    def clear(self) -> None:
        for rank in self._ranks:
            rank.clear()
        self._count = 0
