"""From what an application publishes to the bytes that travel.

An event is a mapping, an instance of an event class or a `Notification`. The careful way is to make
a `Notification`, which checks everything, and to encode it. Publishers repeat themselves, though:
the same few names again and again, with plain values. So there is a short way for a dictionary
whose names passed the checks before and whose values are visibly good: it is encoded as it is,
under the id and the time that the client gives. It must give exactly the bytes that the careful way
gives; everything that it is not sure of goes the careful way, errors included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final

from msgspec.msgpack import Encoder

from stentor.client.clock import clock
from stentor.client.typed import attributes_of, event_type_of, is_event
from stentor.errors import InvalidNotification
from stentor.model import INT_MAX, INT_MIN, Notification, NotificationId, encode
from stentor.model.codec import VERSION

#: What a publication may have besides its attributes.
PARTS: Final = (
    "type",
    "subject",
    "channel",
    "payload",
    "content_type",
    "time",
    "deliver_at",
    "expires",
    "priority",
)

#: Those of them that the short way knows.
_PLAIN_PARTS: Final = frozenset({"type", "subject", "channel"})

#: Longer texts are checked.
_SHORT: Final = 4_096
#: Sets of names that are remembered, and how many names one may have.
_MAX_SHAPES: Final = 1_024
_MAX_WIDTH: Final = 64

_pack: Final = Struct(">BII").pack
#: What stands before headers of less than so many bytes, where there is no payload.
_PREFIXES: Final = [_pack(VERSION, size, 0) for size in range(512)]
_header: Final = Encoder().encode

_good_shapes: set[tuple[str, ...]] = set()


def notification_of(event: Any, parts: Mapping[str, Any] | None = None) -> Notification:
    """The event as a notification; `parts` are further parameters of `Notification`.

    >>> notification_of({"symbol": "IBM"}, {"type": "quote"})
    Notification({'symbol': 'IBM'}, type='quote')
    """
    if isinstance(event, Notification):
        return event.replace(**parts) if parts else event
    if isinstance(event, Mapping):
        return Notification(event, **parts) if parts else Notification(event)
    if is_event(event):
        kind = {"type": event_type_of(type(event)), **(parts or {})}
        return Notification(attributes_of(event), **kind)
    raise InvalidNotification(
        f"a {type(event).__name__} cannot be published; "
        "give a mapping of attributes, a Notification, or an instance of a dataclass, a msgspec "
        "struct or a pydantic model"
    )


_TICK: Final = timedelta(microseconds=1)
_NO_TIME: Final = timedelta(0)
#: By how much a clock is behind that was set back, and not only asked twice in one microsecond.
_SET_BACK: Final = timedelta(seconds=1)


class EventEncoder:
    """Encodes the publications of one producer in one epoch.

    Each is a microsecond later than the one before, at least: what is published in one batch
    happened one after the other, and patterns over events ask for that.

    >>> encoder = EventEncoder("ann", 7)
    >>> items = encoder.many([{"x": 1}, {"x": 2}], 0, datetime.now(UTC))
    >>> from stentor.model import decode
    >>> [str(decode(item).id) for item in items]
    ['ann:7:0', 'ann:7:1']
    """

    __slots__ = ("_last", "epoch", "producer")

    def __init__(self, producer: str, epoch: int) -> None:
        first = NotificationId(producer, epoch, 0)  # checks both
        self.producer = first.producer
        self.epoch = first.epoch
        #: The time of the newest publication.
        self._last = datetime.min.replace(tzinfo=UTC)

    def _after(self, now: datetime) -> datetime:
        """The time of the next publication; a clock that was set back is followed."""
        ahead = self._last - now
        return self._last + _TICK if _NO_TIME <= ahead < _SET_BACK else now

    def one(self, notification: Notification, sequence: int, now: datetime) -> bytes:
        """A notification under a new id, and at this time unless it has its own.

        One that this client has published already would be another one under the same id, which is
        an error (R-01.13). One of somebody else is published anew.
        """
        time = notification.time
        if time is None:
            time = self._last = now if now > self._last else self._after(now)
        return self._written(notification, sequence, time)

    def _written(self, n: Notification, sequence: int, time: datetime) -> bytes:
        if n.id is not None and (n.id.producer, n.id.epoch) == (self.producer, self.epoch):
            raise InvalidNotification(
                f"the id {n.id} is that of a notification which this client has published; to "
                "publish another one with its content, take notification.replace(id=None)"
            )
        return encode(
            Notification.from_checked(
                dict(n),
                n.type,
                n.subject,
                n.channel,
                n.payload,
                n.content_type,
                NotificationId(self.producer, self.epoch, sequence),
                time,
                n.handling,
            )
        )

    def many(
        self,
        events: Sequence[Any],
        first: int,
        now: datetime,
        parts: Mapping[str, Any] | None = None,
    ) -> list[bytes]:
        """Events under consecutive ids, from this sequence number on.

        All of them have these `parts`, which are parameters of `Notification`.
        """
        event_type = subject = channel = None
        if parts:
            Notification({"x": 0}, **parts)  # checks them
            event_type, subject, channel = map(parts.get, ("type", "subject", "channel"))
            if not parts.keys() <= _PLAIN_PARTS:
                return [
                    self.one(notification_of(event, parts), first + i, now)
                    for i, event in enumerate(events)
                ]
        items: list[bytes] = []
        append = items.append
        producer, epoch, shapes, header = self.producer, self.epoch, _good_shapes, _header
        prefixes, short = _PREFIXES, len(_PREFIXES)
        sequence = first
        if now <= self._last:
            now = self._after(now)
        if events:
            self._last = now if len(events) == 1 else now + (len(events) - 1) * _TICK
        tick = _TICK
        for event in events:
            if type(event) is dict and tuple(event) in shapes:
                for value in event.values():
                    kind = type(value)
                    if kind is str:
                        if not value.isascii() or len(value) > _SHORT:
                            break
                    elif kind is float:
                        if value != value:
                            break
                    elif kind is int:
                        if not INT_MIN <= value <= INT_MAX:
                            break
                    elif kind is not bool:
                        break
                else:
                    id = (producer, epoch, sequence)
                    encoded = header((event, event_type, subject, channel, None, id, now))
                    size = len(encoded)
                    append((prefixes[size] if size < short else _pack(VERSION, size, 0)) + encoded)
                    sequence += 1
                    now += tick
                    continue
            append(self._carefully(event, sequence, now, parts))
            sequence += 1
            now += tick
        return items

    def _carefully(
        self, event: Any, sequence: int, now: datetime, parts: Mapping[str, Any] | None
    ) -> bytes:
        notification = notification_of(event, parts)
        data = self._written(notification, sequence, notification.time or now)
        if type(event) is dict and len(event) <= _MAX_WIDTH:
            names = tuple(event)
            # Nothing was flattened, left out or renamed, and no name is a subclass of `str`.
            if names == tuple(notification) and all(type(name) is str for name in names) and names:
                if len(_good_shapes) >= _MAX_SHAPES:
                    _good_shapes.clear()
                _good_shapes.add(names)
        return data


def utc_now() -> datetime:
    """The time that a publication without one gets."""
    now = datetime.now(UTC)
    return now + timedelta(seconds=clock.ahead) if clock.ahead else now
