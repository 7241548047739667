"""What patterns are detected in, and what is detected: events with their place in time.

An `Occurrence` is a notification at its place in the input sequence: its interval, and the source
and the number by which ties are broken (R-06.03). A `CompositeEvent` is a detection: its pattern,
the hull of all that contributed, and the events themselves under the names that they were accepted
by. Where one of them is a composite event itself, its own events hang below it: a tree whose
leaves are primitive.

A composite event is an ordinary notification as well (R-06.02). Its type is `composite.` and the
digest of its pattern; its attributes are those by which the pattern parts its events, the
attributes of the last event of each name (`B.price`), how many events each name has (`F.count`),
and `composite.start`, `.end`, `.events` and `.pattern`. Its payload holds the events. Its id is
made from the pattern and the ids of its events: whoever detects the same again gives it the same
id (06/T8). Ids of one pattern rise with the end of the interval.

Where a pattern parts its events by what is no attribute (`_producer`), the attribute that says it
is `composite.producer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from stentor.composite.intervals import END, START, Interval, bounds_of
from stentor.errors import DecodeError
from stentor.model import MAX_ATTRIBUTES, Notification, NotificationId, decode
from stentor.model.codec import encode_batch
from stentor.model.names import name_problem

if TYPE_CHECKING:
    from stentor.composite.pattern import Pattern

CONTENT_TYPE: Final = "application/vnd.stentor.composite"
#: Every composite event has a type below this one.
TYPE: Final = "composite"
#: How many bytes of events a composite event carries; beyond it, only their ids are in it.
MAX_CARRIED: Final = 8 * 2**20


class Occurrence(NamedTuple):
    """A notification at its place in time. The fields are in the order of the input sequence."""

    high: int
    low: int
    source: str
    number: tuple[int, int]
    event: Notification

    @property
    def interval(self) -> Interval:
        return Interval(self.low, self.high)

    @property
    def order(self) -> tuple[int, int, str, tuple[int, int]]:
        """What the input sequence is sorted by."""
        return self[:4]

    @property
    def identity(self) -> str:
        """Which event this is, also where it has no id."""
        return f"{self.source}:{self.number[0]}:{self.number[1]}"


def occurrence(
    notification: Notification, arrival: int = 0, source: str = "", uncertainty: int = 0
) -> Occurrence:
    """A notification as it takes part in patterns; one without an id is known by its arrival."""
    low, high = bounds_of(notification, uncertainty)
    identity = notification.id
    if identity is None:
        return _made(Occurrence, (high, low, source, (-1, arrival), notification))
    number = (identity.epoch, identity.sequence)
    return _made(Occurrence, (high, low, source or identity.producer, number, notification))


#: Half the time of a call of the class; there is one of these for each event.
_made: Final = tuple.__new__


def producer_of(notification: Notification) -> str:
    """Who has published it; nobody, if it was not."""
    identity = notification.id
    return "" if identity is None else identity.producer


class SubEvent(NamedTuple):
    """An event that contributed, and the names that it was accepted by."""

    names: tuple[str, ...]
    occurrence: Occurrence

    @property
    def event(self) -> Notification:
        return self.occurrence.event

    @property
    def events(self) -> tuple[Notification, ...]:
        """The events that it is composed of, if it is composite."""
        return sub_events(self.event)


class CompositeEvent:
    """A detection. Two are equal if the pattern and the contributing events are.

    >>> from stentor.composite import Pattern, detect_local, interval_of
    >>> from datetime import datetime, timezone
    >>> at = lambda s: datetime(2026, 1, 1, 0, 0, s, tzinfo=timezone.utc)
    >>> p = Pattern("A ; B", events={"A": "x = 1", "B": "x = 2"})
    >>> found, = detect_local(p, [Notification({"x": i}, time=at(i)) for i in (1, 2)])
    >>> [(each.names, each.event["x"]) for each in found.events]
    [(('A',), 1), (('B',), 2)]
    >>> found.notification()["B.x"], found.interval == interval_of(found.notification())
    (2, True)
    """

    __slots__ = ("_id", "_notification", "events", "interval", "key", "pattern")

    def __init__(
        self,
        pattern: Pattern,
        interval: Interval,
        events: tuple[SubEvent, ...],
        key: tuple[Any, ...] = (),
    ) -> None:
        self.pattern = pattern
        self.interval = interval
        self.events = events
        #: The values of the attributes by which the pattern parts events.
        self.key = key
        self._id: NotificationId | None = None
        self._notification: Notification | None = None

    @property
    def id(self) -> NotificationId:
        """Derived from what was detected, the same for everybody who detects it."""
        if self._id is not None:
            return self._id
        parts = [self.interval.low.to_bytes(16, "big", signed=True)]
        for names, (_, _, source, (epoch, sequence), _) in self.events:
            text = f"{'|'.join(names)}={source}:{epoch}:{sequence}"
            parts += len(text).to_bytes(4, "big"), text.encode()
        digest = blake2b(b"".join(parts), digest_size=8).digest()
        number = int.from_bytes(digest, "big") >> 1
        self._id = NotificationId(self.pattern.type, max(self.interval.high, 0), number)
        return self._id

    def notification(self) -> Notification:
        """The composite event as a notification that can be published."""
        found = self._notification
        if found is None:
            payload = pack_events(self.events)
            parts = self.pattern.type, None, None, payload, CONTENT_TYPE, self.id
            found = Notification.from_checked(self._attributes(), *parts, self.interval.end)
            self._notification = found
        return found

    def _attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            START: self.interval.start,
            END: self.interval.end,
            "composite.events": len(self.events),
            "composite.pattern": self.pattern.label,
        }
        for name, value in zip(self.pattern.partition, self.key, strict=True):
            attributes.setdefault(shown_as(name), value)
        taken = {name.partition(".")[0] for name in attributes}
        counts: dict[str, int] = {}
        last: dict[str, Notification] = {}
        for names, one in self.events:
            for name in names:
                counts[name] = counts.get(name, 0) + 1
                last[name] = one.event
        for name, event in last.items():
            if name in taken:
                continue
            own = {
                full: value
                for attribute, value in event.items()
                if (full := _own_name(name, attribute)) is not None
            }
            if len(attributes) + len(own) + 1 > MAX_ATTRIBUTES:
                break
            # An event that has an attribute `count` keeps it.
            if not any(map(_is_count, event)):
                attributes[f"{name}.count"] = counts[name]
            attributes.update(own)
        return attributes

    def leaves(self) -> Iterator[Notification]:
        """All primitive events below it."""
        waiting = [each.event for each in reversed(self.events)]
        while waiting:
            event = waiting.pop()
            below = sub_events(event)
            waiting.extend(reversed(below))
            if not below:
                yield event

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompositeEvent):
            return NotImplemented
        return (
            self.interval == other.interval
            and self.key == other.key
            and [(e.names, e.occurrence.order) for e in self.events]
            == [(e.names, e.occurrence.order) for e in other.events]
            and self.pattern == other.pattern
        )

    def __hash__(self) -> int:
        return hash((self.interval, tuple(each.occurrence.order for each in self.events)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{'|'.join(e.names)}={e.occurrence.identity}" for e in self.events)
        return f"CompositeEvent({self.pattern.label}, {self.interval}, {inside})"


@lru_cache(maxsize=4_096)
def _own_name(name: str, attribute: str) -> str | None:
    """An attribute of an event of that name, as composite events have it; None if they do not."""
    full = f"{name}.{attribute}"
    is_told = not attribute.startswith("composite.") and name_problem(full) is None
    return full if is_told else None


def _is_count(attribute: str) -> bool:
    return attribute[:5] == "count" and attribute[5:6] in (".", "")


def shown_as(name: str) -> str:
    """The attribute of composite events that says by which value of a name they are parted.

    >>> shown_as("host"), shown_as("_producer")
    ('host', 'composite.producer')
    """
    return f"{TYPE}.{name[1:]}" if name.startswith("_") else name


def detection_order(found: CompositeEvent) -> tuple[Any, ...]:
    """Detections are told in the order of their intervals, then of their patterns and ids."""
    return found.interval.high, found.interval.low, found.pattern.type, found.id.sequence


def in_order(found: list[CompositeEvent]) -> list[CompositeEvent]:
    """The same in that order; ids are made only for those that nothing else tells apart."""
    found.sort(key=_end)
    for one, other in pairwise(found):
        if one.interval == other.interval:
            return sorted(found, key=detection_order)
    return found


def _end(found: CompositeEvent) -> tuple[int, int]:
    low, high = found.interval
    return high, low


def pack_events(events: Sequence[SubEvent]) -> bytes:
    """The events of a composite event as its payload."""
    return packed(events, encode_batch([each.event for each in events]))


def packed(events: Sequence[SubEvent], encoded: Sequence[bytes]) -> bytes:
    """The same for events that were encoded already."""
    if sum(map(len, encoded)) > MAX_CARRIED:
        return b""
    names = [each.names for each in events]
    return msgspec.msgpack.encode(list(zip(names, encoded, strict=True)))


_unpack: Final = msgspec.msgpack.Decoder(list[tuple[tuple[str, ...], bytes]]).decode


def sub_events(notification: Notification) -> tuple[Notification, ...]:
    """The events that a composite event, received as a notification, is composed of."""
    return tuple(event for _, event in named_events(notification))


def named_events(notification: Notification) -> list[tuple[tuple[str, ...], Notification]]:
    """The same, each with the names that it was accepted by."""
    return [(names, decode(data)) for names, data in packed_events(notification)]


def packed_events(notification: Notification) -> list[tuple[tuple[str, ...], bytes]]:
    """The same, and the events encoded."""
    if notification.content_type != CONTENT_TYPE or not notification.payload:
        return []
    try:
        return _unpack(notification.payload)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"the payload holds no events: {error}") from None
