"""The notification: a typed record that says what happened.

A notification is a nonempty set of named values (`stentor.model.values`). Nested records are
flattened by dotted names when it is made, so that everything after sees one flat namespace:
`{"pos": {"x": 1}}` becomes `pos.x`. A value of None means that the attribute is absent. A list of
records stays a list, of `Record`s.

Beside its attributes a notification may have an event type, a subject and a channel, which filters
see under reserved names, and an opaque payload, which they do not see. `facts` is the complete view
that filters have.

Equality is equality on the wire: 1, 1.0 and True are three different values, and so are 0.0 and
-0.0, although a filter that compares numbers takes 1 and 1.0 for the same. A notification that has
an id is hashed by it, any other by its content.
"""

from __future__ import annotations

from collections.abc import Generator, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import UTC, datetime, timedelta
from math import copysign
from typing import Any, Final, TypeGuard, cast, final

from stentor.errors import InvalidConfiguration, InvalidNotification, InvalidValue
from stentor.model.event_types import event_types
from stentor.model.handling import DEFAULT, Handling, handling
from stentor.model.identity import NotificationId
from stentor.model.names import (
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    MAX_SUBJECT_BYTES,
    check_attribute_names,
    name_problem,
    plain_names,
    shown,
    text_problem,
)
from stentor.model.record import Record
from stentor.model.values import INT_MAX, INT_MIN, normal
from stentor.notation.completion import offering
from stentor.notation.units import seconds_of

#: The longest string (in UTF-8 bytes) or byte string that an attribute, or an element, can hold.
MAX_VALUE_BYTES: Final = 2**20
#: How many elements the collections may have, each field of a record among them counted as one.
MAX_ELEMENTS: Final = 65_536
#: The largest payload.
MAX_PAYLOAD_BYTES: Final = 16 * 2**20

_BUILT_IN: Final = frozenset(
    {bool, int, float, str, bytes, datetime, tuple, list, set, frozenset, bytearray}
)


class Told:
    """What settling returns: it is said already, and need not be waited for, but may be."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return iter(())  # type: ignore[return-value]  # half of what a generator costs


_TOLD: Final = Told()


@final
class Notification(Mapping[str, Any]):
    """What a producer publishes and a consumer is told. Immutable; a mapping of its attributes.

    >>> n = Notification({"symbol": "IBM", "pos": {"x": 1, "y": 2}}, type="quote.stock")
    >>> n["symbol"], n["pos.x"], n.get("volume"), len(n)
    ('IBM', 1, None, 3)
    >>> sorted(n.facts["_types"])
    ['quote', 'quote.stock']
    """

    __slots__ = (
        "_attributes",
        "_channel",
        "_content_type",
        "_delivery",
        "_facts",
        "_handling",
        "_id",
        "_is_plain",
        "_payload",
        "_place",
        "_subject",
        "_subscriptions",
        "_time",
        "_type",
    )

    # The slots are written once, here or in `from_checked`, and read through properties only.
    _attributes: dict[str, Any]
    _type: str | None
    _subject: str | None
    _channel: str | None
    _payload: bytes
    _content_type: str | None
    _id: NotificationId | None
    _time: datetime | None
    _handling: Handling | None
    _facts: dict[str, Any] | None
    #: All values are numbers, strings or Booleans, for sure.
    _is_plain: bool
    #: Set for what an inbox hands out.
    _subscriptions: tuple[Any, ...]
    #: Set for what is settled one by one: by whom, and by what it is known there.
    _delivery: Any
    _place: tuple[str, int]

    def __init__(
        self,
        attributes: Mapping[str, Any],
        *,
        type: str | None = None,
        subject: str | None = None,
        channel: str | None = None,
        payload: bytes = b"",
        content_type: str | None = None,
        id: NotificationId | None = None,
        time: datetime | None = None,
        deliver_at: datetime | None = None,
        expires: datetime | None = None,
        priority: int = DEFAULT,
    ) -> None:
        if _plain(attributes):
            self._attributes = attributes.copy()
            self._is_plain = True
        else:
            flat: dict[str, Any] = {}
            _flatten(attributes, "", flat)
            _check_elements(flat)
            check_attribute_names(tuple(flat))
            self._attributes = flat
            self._is_plain = False
        if not (self._attributes and type is subject is channel is content_type is None):
            check_texts(self._attributes, type, subject, channel, content_type)
        if payload.__class__ is not bytes or len(payload) > MAX_PAYLOAD_BYTES:
            payload = _checked_payload(payload)
        if id is not None and not isinstance(id, NotificationId):
            raise InvalidNotification(f"id={shown(id)} is not a NotificationId")
        if time is not None and (
            time.__class__ is not datetime or time.tzinfo is not UTC or time.fold
        ):
            time = _checked_time(time)
        self._type = type
        self._subject = subject
        self._channel = channel
        self._payload = payload
        self._content_type = content_type
        self._id = id
        self._time = time
        self._handling = None
        if not (deliver_at is expires is None and priority is DEFAULT):
            self._handling = handling(deliver_at, expires, priority)
        self._facts = None

    @classmethod
    def from_checked(
        cls,
        attributes: dict[str, Any],
        type: str | None,
        subject: str | None,
        channel: str | None,
        payload: bytes,
        content_type: str | None,
        id: NotificationId | None,
        time: datetime | None,
        handling: Handling | None = None,
    ) -> Notification:
        """Make a notification of parts that the constructor would take unchanged.

        For the decoder, whose checks amount to the same. The dictionary is kept, not copied.
        """
        self = cls.__new__(cls)
        self._attributes = attributes
        self._type = type
        self._subject = subject
        self._channel = channel
        self._payload = payload
        self._content_type = content_type
        self._id = id
        self._time = time
        self._handling = handling
        self._facts = None
        self._is_plain = False
        return self

    @property
    def type(self) -> str | None:
        """The event type, a dotted path such as `quote.stock`."""
        return self._type

    @property
    def subject(self) -> str | None:
        """The path in a subject tree, in the notation of the namespace's dialect."""
        return self._subject

    @property
    def channel(self) -> str | None:
        """The named channel that it was published on."""
        return self._channel

    @property
    def payload(self) -> bytes:
        """Opaque content: carried to the consumer, invisible to filters."""
        return self._payload

    @property
    def content_type(self) -> str | None:
        """What the payload is, for example `application/json`."""
        return self._content_type

    @property
    def id(self) -> NotificationId | None:
        """Which notification this is; None until it was published."""
        return self._id

    @property
    def time(self) -> datetime | None:
        """When it happened, in UTC."""
        return self._time

    @property
    def handling(self) -> Handling | None:
        """The three that follow, if it has any of them."""
        return self._handling

    @property
    def deliver_at(self) -> datetime | None:
        """Before that moment it is delivered to nobody."""
        return None if self._handling is None else self._handling.deliver_at

    @property
    def expires(self) -> datetime | None:
        """From that moment on it is delivered to nobody."""
        return None if self._handling is None else self._handling.expires

    @property
    def priority(self) -> int:
        """From 0 to 9; subscribers who want it so get the higher ones first."""
        return DEFAULT if self._handling is None else self._handling.priority

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that filters can see: the attributes and, when set, the reserved names.

        Computed at first use, with the event types known by then, and kept. Do not change it.

        >>> Notification({"x": 2}, channel="news").facts
        {'x': 2, '_channel': 'news'}
        """
        facts = self._facts
        if facts is None:
            facts = self._facts = facts_of_parts(
                self._attributes,
                self._type,
                self._subject,
                self._channel,
                self._id,
                self._time,
                self._handling,
            )
        return facts

    @property
    def subscriptions(self) -> tuple[Any, ...]:
        """The subscriptions of an inbox that it was delivered for; elsewhere there are none.

        It is no part of what the notification says.
        """
        try:
            return self._subscriptions
        except AttributeError:
            return ()

    def for_subscriptions(self, subscriptions: tuple[Any, ...]) -> Notification:
        """The same notification, as an inbox delivers it for these."""
        self._subscriptions = subscriptions
        return self

    # -- settling: what a subscriber says of it

    @property
    def delivery(self) -> Any:
        """How it was given, if it is to be settled; None otherwise."""
        try:
            return self._delivery
        except AttributeError:
            return None

    @property
    def place(self) -> tuple[str, int]:
        """The stream and the offset of what is to be settled."""
        return self._place

    def for_delivery(self, delivery: Any, place: tuple[str, int]) -> Notification:
        """The same notification, to be settled by this, and known there by its place."""
        self._delivery = delivery
        self._place = place
        return self

    @staticmethod
    def for_deliveries(
        notifications: Iterable[Notification], delivery: Any, places: Iterable[tuple[str, int]]
    ) -> None:
        """The same for many, each with its place."""
        for notification, place in zip(notifications, places, strict=True):
            notification._delivery = delivery
            notification._place = place

    @property
    def attempt(self) -> int:
        """How often it has been given to a subscriber that settles: 1 for the first time."""
        return 1 if self.delivery is None else int(self.delivery.attempt)

    def ack(self) -> Told:
        """It was dealt with. The broker hears of it soon, together with others."""
        try:
            delivery = self._delivery
        except AttributeError:
            delivery = self._given()
        delivery.ack(self)
        return _TOLD

    def nack(
        self, delay: str | float | timedelta | None = None, reason: str | BaseException = ""
    ) -> Told:
        """It could not be dealt with: it comes again after a time, or becomes a dead letter.

        Without a `delay` the time is that of the subscription's `retry`. The `reason` is the cause
        in the dead letter.
        """
        wait = None if delay is None else seconds_of(delay, "delay")
        cause = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        self._given().nack(self, wait, cause)
        return _TOLD

    def extend(self, by: str | float | timedelta) -> Told:
        """It takes longer: its deadline is so far from now."""
        self._given().extend(self, seconds_of(by, "by"))
        return _TOLD

    def _given(self) -> Any:
        delivery = self.delivery
        if delivery is None:
            raise InvalidConfiguration(
                "this notification is not settled by itself; subscribe with settle=True, and with "
                "durable= or group="
            )
        return delivery

    def replace(self, **changes: Any) -> Notification:
        """A copy in which some parts are different; the names are those of the constructor.

        >>> Notification({"x": 2}, type="quote").replace(type="trade")
        Notification({'x': 2}, type='trade')
        """
        parts: dict[str, Any] = {"attributes": self._attributes, **self._parts(), **changes}
        return Notification(parts.pop("attributes"), **parts)

    def _parts(self) -> dict[str, Any]:
        """Everything but the attributes, by the names of the constructor's parameters."""
        return {
            "type": self._type,
            "subject": self._subject,
            "channel": self._channel,
            "payload": self._payload,
            "content_type": self._content_type,
            "id": self._id,
            "time": self._time,
            "deliver_at": self.deliver_at,
            "expires": self.expires,
            "priority": self.priority,
        }

    def __getitem__(self, name: str) -> Any:
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __bool__(self) -> bool:  # one that has only a type is still a notification
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._attributes

    def get(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or the default if there is none."""
        return self._attributes.get(name, default)

    def keys(self) -> KeysView[str]:
        """The names of its attributes."""
        return self._attributes.keys()

    def values(self) -> ValuesView[Any]:
        return self._attributes.values()

    def items(self) -> ItemsView[str, Any]:
        """Its attributes, each with its value."""
        return self._attributes.items()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Notification):
            return NotImplemented
        return (
            self._id == other._id
            and self._parts() == other._parts()
            and self._attributes == other._attributes
            and all(
                _on_the_wire(value) == _on_the_wire(other._attributes[name])
                for name, value in self._attributes.items()
            )
        )

    def __hash__(self) -> int:
        if self._id is not None:
            return hash(self._id)
        return hash((frozenset(self._attributes.items()), self._type, self._subject, self._channel))

    __dir__ = offering(
        "ack",
        "attempt",
        "channel",
        "content_type",
        "deliver_at",
        "expires",
        "extend",
        "facts",
        "get",
        "id",
        "items",
        "keys",
        "nack",
        "payload",
        "priority",
        "replace",
        "subject",
        "subscriptions",
        "time",
        "type",
        "values",
    )

    def __repr__(self) -> str:
        shown_parts = [repr(self._attributes)]
        for name, value in self._parts().items():
            if name == "payload" and len(value) > 32:
                shown_parts.append(f"payload=<{len(value)} bytes>")
            elif value != DEFAULT if name == "priority" else value:
                shown_parts.append(f"{name}={value!r}")
        return f"Notification({', '.join(shown_parts)})"

    def __copy__(self) -> Notification:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Notification:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self._attributes, self._type, self._subject, self._channel, self._payload
        others = self._content_type, self._id, self._time, self._handling
        return Notification.from_checked, (*parts, *others)


def facts_of_parts(
    attributes: dict[str, Any],
    type: str | None,
    subject: str | None,
    channel: str | None,
    id: NotificationId | None,
    time: datetime | None,
    handling: Handling | None = None,
) -> dict[str, Any]:
    """What filters see of a notification that has these parts."""
    facts = attributes.copy()
    if type is not None:
        facts["_type"] = type
        facts["_types"] = event_types.ancestors(type)
    if subject is not None:
        facts["_subject"] = subject
    if channel is not None:
        facts["_channel"] = channel
    if time is not None:
        facts["_time"] = time
    if id is not None:
        facts["_producer"] = id.producer
    if handling is not None:
        if handling.deliver_at is not None:
            facts["_deliver_at"] = handling.deliver_at
        if handling.expires is not None:
            facts["_expires"] = handling.expires
        if handling.priority != DEFAULT:
            facts["_priority"] = handling.priority
    return facts


def check_texts(
    attributes: dict[str, Any],
    type: str | None,
    subject: str | None,
    channel: str | None,
    content_type: str | None,
) -> None:
    """Raise `InvalidNotification` unless these texts can stand beside the attributes."""
    if type is not None and (problem := name_problem(type)):
        raise InvalidNotification(f"the event type {shown(type)} {problem}")
    if subject is not None and (problem := text_problem(subject, MAX_SUBJECT_BYTES)):
        raise InvalidNotification(f"the subject {shown(subject)} {problem}")
    if channel is not None and (problem := text_problem(channel)):
        raise InvalidNotification(f"the channel {shown(channel)} {problem}")
    if content_type is not None and (problem := text_problem(content_type)):
        raise InvalidNotification(f"the content type {shown(content_type)} {problem}")
    if not attributes and type is None and subject is None and channel is None:
        raise InvalidNotification(
            "a notification needs at least one attribute, or an event type, subject or channel"
        )


def check_size(value: Any) -> None:
    """Raise `InvalidNotification` if a normal value is longer than an attribute can hold."""
    kind = type(value)
    if kind is str:
        if len(value) * 4 > MAX_VALUE_BYTES and len(value.encode()) > MAX_VALUE_BYTES:
            raise InvalidNotification(
                f"a string of {len(value.encode())} bytes of UTF-8; "
                f"at most {MAX_VALUE_BYTES} are allowed, put more into the payload"
            )
    elif kind is bytes:
        if len(value) > MAX_VALUE_BYTES:
            raise InvalidNotification(
                f"a byte string of {len(value)} bytes; "
                f"at most {MAX_VALUE_BYTES} are allowed, put more into the payload"
            )
    elif kind is tuple or kind is frozenset:
        if len(value) > MAX_ELEMENTS:
            raise InvalidNotification(
                f"a collection of {len(value)} elements; at most {MAX_ELEMENTS} are allowed"
            )
        for element in value:
            check_size(element)
    elif kind is Record:
        for field in value.values():
            check_size(field)


def _check_elements(attributes: dict[str, Any]) -> None:
    count = sum(_size(v) for v in attributes.values() if type(v) is tuple or type(v) is frozenset)
    if count > MAX_ELEMENTS:
        raise InvalidNotification(
            f"{count} elements in lists and sets, the fields of records among them; "
            f"a notification may have at most {MAX_ELEMENTS}"
        )


def _size(collection: Any) -> int:
    """How many elements it has, and fields in them."""
    count = len(collection)
    for element in collection:
        if type(element) is Record:
            count += len(element)
            for value in element.values():
                if type(value) is tuple or type(value) is frozenset:
                    count += _size(value)
    return count


def _plain(attributes: Mapping[str, Any]) -> TypeGuard[dict[str, Any]]:
    """Whether it is a dictionary that can be taken as it is: nothing to flatten or to convert.

    The common case, decided quickly; of what is large or unusual it just says no.
    """
    if type(attributes) is not dict or len(attributes) > MAX_ATTRIBUTES:
        return False
    for name, value in attributes.items():
        if type(name) is not str or name not in plain_names:
            return False
        kind = type(value)
        if kind is str:
            if len(value) > MAX_VALUE_BYTES or not value.isascii():
                return False
        elif kind is float:
            if value != value:
                return False
        elif kind is int:
            if not INT_MIN <= value <= INT_MAX:
                return False
        elif kind is not bool:
            return False
    return True


def _flatten(attributes: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
    if not isinstance(attributes, Mapping):
        raise InvalidNotification(
            f"attributes are given as a mapping of names to values, "
            f"not as a {type(attributes).__name__}"
        )
    for key, value in attributes.items():
        if value is None:
            continue
        if type(key) is str:
            name = prefix + key
        elif isinstance(key, str):
            name = prefix + str.__str__(key)
        else:
            raise InvalidNotification(f"the attribute name {shown(key)} is not a string")
        if type(value) not in _BUILT_IN and isinstance(value, Mapping):
            if name.count(".") + 1 >= MAX_DEPTH:
                raise InvalidNotification(
                    f"{shown(name)} nests deeper than {MAX_DEPTH} levels of records"
                )
            _flatten(value, name + ".", flat)
            continue
        if name in flat:
            raise InvalidNotification(
                f"the attribute {shown(name)} is given twice, flat and in a nested record"
            )
        try:
            value = normal(value)
            check_size(value)
        except (InvalidValue, InvalidNotification) as error:
            raise type(error)(f"attribute {shown(name)}: {error}") from None
        flat[name] = value
    if len(flat) > MAX_ATTRIBUTES:
        raise InvalidNotification(
            f"{len(flat)} attributes; a notification may have at most {MAX_ATTRIBUTES}"
        )


def _checked_payload(payload: bytes) -> bytes:
    if type(payload) is not bytes:
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise InvalidNotification(
                f"the payload is a {type(payload).__name__}; encode it to bytes first"
            )
        payload = bytes(memoryview(payload))
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidNotification(
            f"a payload of {len(payload)} bytes; at most {MAX_PAYLOAD_BYTES} are allowed"
        )
    return payload


def _checked_time(time: datetime) -> datetime:
    if not isinstance(time, datetime):
        raise InvalidNotification(f"time={shown(time)} is not a datetime")
    return cast(datetime, normal(time))


def _on_the_wire(value: Any) -> Any:
    """A key that is equal for two values exactly if their encodings are."""
    kind = type(value)
    if kind is float:
        return kind, value, copysign(1.0, value)
    if kind is tuple:
        return kind, tuple([_on_the_wire(element) for element in value])
    if kind is frozenset:
        return kind, frozenset([_on_the_wire(element) for element in value])
    if kind is Record:
        return kind, frozenset([(name, _on_the_wire(field)) for name, field in value.items()])
    return kind, value
