"""Dead letters: what is published of a notification that a subscriber could not deal with.

A dead letter is an event like any other. It says for which durable subscription or group it was
meant, how often it was given, and why in vain; what the notification said follows, under names that
begin with `event.`, and its payload is the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from stentor.errors import InvalidNotification
from stentor.model.codec import Envelope, decode, encode
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification

#: The event type of dead letters, and the value of their attribute `type`.
TYPE: Final = "DeadLetter"
#: Who publishes them: with this the name of their producer begins.
PRODUCER: Final = "dead letters of "
#: What the payload is if the notification does not fit into the attributes of another one.
WHOLE: Final = "application/vnd.stentor.notification"
#: Characters of a cause.
CAUSE: Final = 1_024


def dead_letter(
    data: bytes,
    *,
    kind: str,
    name: str,
    owner: str | None = None,
    attempts: int,
    cause: str,
    id: NotificationId,
    time: float,
) -> bytes:
    """The dead letter of an encoded notification, encoded; `kind` is "durable" or "group".

    >>> from stentor.model import encode
    >>> order = encode(Notification({"account": 7}, id=NotificationId("shop", 0, 3)))
    >>> own = NotificationId("dead letters of b1#0", 0, 0)
    >>> letter = dead_letter(order, kind="durable", name="billing", attempts=5,
    ...                      cause="no account", id=own, time=0.0)
    >>> found = decode(letter)
    >>> found["durable"], found["attempts"], found["cause"], found["event.account"]
    ('billing', 5, 'no account', 7)
    """
    dead = decode(data)
    about: dict[str, Any] = {
        "type": TYPE,
        kind: name,
        "owner": owner,
        "attempts": attempts,
        "cause": cause[:CAUSE] or "no cause was given",
        "producer": None if dead.id is None else dead.id.producer,
        "original": str(dead.id),
        "original_type": dead.type,
        "subject": dead.subject,
        "channel": dead.channel,
        "time": dead.time,
        "expires": dead.expires,
        "deliver_at": dead.deliver_at,
        "priority": None if dead.handling is None else dead.priority,
    }
    when = datetime.fromtimestamp(time, UTC)
    try:
        letter = Notification(
            {**about, **{f"event.{key}": value for key, value in dead.items()}},
            type=TYPE,
            payload=dead.payload,
            content_type=dead.content_type,
            id=id,
            time=when,
        )
    except InvalidNotification:  # too many attributes, or too long names
        letter = Notification(about, type=TYPE, payload=data, content_type=WHOLE, id=id, time=when)
    return encode(letter)


def is_of(envelope: Envelope, name: str, owner: str | None) -> bool:
    """Whether it is a dead letter of the durable subscription or group with this name and owner."""
    if envelope.id is None or not envelope.id.producer.startswith(PRODUCER):
        return False
    attributes = envelope.attributes
    return attributes.get("owner") == owner and name in (
        attributes.get("durable"),
        attributes.get("group"),
    )
