"""Long messages of neighbors as several short ones that mean the same.

Whoever deals with one message deals with nothing else meanwhile. A message may name thousands of
filters or notifications, and each may cost a search. So it is cut where its meaning allows
that: what is new comes before what goes, so that nothing is missing in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stentor.errors import ProtocolError
from stentor.protocol import messages as m

#: Filters that come, and that go, in one step; and characters of those that come.
FILTERS: Final = 64
REMOVALS: Final = 256
TEXT: Final = 64 * 1024
#: Notifications in one step, and their bytes.
NOTIFICATIONS: Final = 1_000
BYTES: Final = 256 * 1024


def portions(message: Any) -> Iterator[Any]:
    """The message, or shorter ones in its place.

    >>> [len(part.items) for part in portions(m.Forward("b1#0", [*range(2500)], [b""] * 2500))]
    [1000, 1000, 500]
    """
    match message:
        case m.Forward():
            return _notifications(message)
        case m.Subscriptions() | m.Advertisements():
            return _filters(message)
    return iter((message,))


def _notifications(message: m.Forward) -> Iterator[m.Forward]:
    stream, offsets, items, volatile = (
        message.stream,
        message.offsets,
        message.items,
        message.volatile,
    )
    if len(offsets) != len(items):
        raise ProtocolError(f"{len(items)} notifications with {len(offsets)} offsets")
    if len(items) <= NOTIFICATIONS and sum(map(len, items)) <= BYTES:
        yield message
        return
    start = size = 0
    for end, item in enumerate(items):
        size += len(item)
        if end > start and (end - start >= NOTIFICATIONS or size > BYTES):
            yield m.Forward(stream, offsets[start:end], items[start:end], volatile)
            start, size = end, len(item)
    yield m.Forward(stream, offsets[start:], items[start:], volatile)


def _filters(message: m.Subscriptions | m.Advertisements) -> Iterator[Any]:
    kind, added, removed = type(message), message.added, message.removed
    if len(added) <= FILTERS and len(removed) <= REMOVALS:
        size = sum([len(text) for _, text in added])
        if size <= TEXT:
            yield message
            return
    start = size = 0
    for end, (_, text) in enumerate(added):
        size += len(text)
        if end > start and (end - start >= FILTERS or size > TEXT):
            yield kind(added[start:end], [])
            start, size = end, len(text)
    if start < len(added):
        yield kind(added[start:], [])
    for start in range(0, len(removed), REMOVALS):
        yield kind([], removed[start : start + REMOVALS])
