"""Where durable subscriptions live: what every broker knows of each name, and whose word counts.

A durable subscription has one home at a time. Every broker keeps for each name the newest word
about where that is, on disk, so that nobody makes a second one while the first cannot be reached.
Each move, and each end, raises its `term`: the higher term counts. Two words of the same term are
from brokers that could not hear each other when both made one of that name. Then the older one
counts, since it promised more; its home takes up what the other has dealt with.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stentor.errors import JournalDamaged
from stentor.protocol.messages import Home, StreamId

#: Names that are remembered after they were deleted, so that no old word brings them back.
DELETED: Final = 10_000

_decoder: Final = msgspec.msgpack.Decoder(Home)


def prevails(one: Home, other: Home) -> bool:
    """Whether the first word counts, of two that differ about one name.

    >>> prevails(Home("desk", 2, None), Home("desk", 1, None))
    True
    """
    return _rank(one) > _rank(other)


def _rank(home: Home) -> tuple[int, bool, float, list[int], bool]:
    # One that lives rather than none, the older, then any: the lower stream. At last, the word of
    # a home that has it rather than that of the giver.
    stream = home.broker.stream if home.broker is not None else ""
    lower = [-ord(c) for c in stream]
    return home.term, home.broker is not None, -home.since, lower, not home.giver


class Registry:
    """The newest word about each name.

    >>> registry = Registry()
    >>> registry.learn(Home("desk", 1, None)), registry.learn(Home("desk", 1, None))
    (True, False)
    """

    def __init__(self) -> None:
        self._homes: dict[str, Home] = {}
        self._deleted: dict[str, None] = {}

    def __iter__(self) -> Any:
        return iter(list(self._homes.values()))

    def __len__(self) -> int:
        return len(self._homes)

    def learn(self, home: Home) -> bool:
        """Take up a word; whether it is news."""
        known = self._homes.get(home.name)
        if known is not None and not prevails(home, known):
            return False
        self._homes[home.name] = home
        self._deleted.pop(home.name, None)
        if home.broker is None:
            self._deleted[home.name] = None
        return True

    def forget_some(self) -> list[str]:
        """Names that were deleted so long ago that nobody need know; they are forgotten."""
        gone = list(self._deleted)[: max(0, len(self._deleted) - DELETED)]
        for name in gone:
            del self._deleted[name], self._homes[name]
        return gone

    def get(self, name: str) -> Home | None:
        """What is known of a name, unless it was deleted."""
        home = self._homes.get(name)
        return home if home is not None and home.broker is not None else None

    def term(self, name: str) -> int:
        """The newest term of a name; 0 if nothing was ever heard of it."""
        home = self._homes.get(name)
        return home.term if home is not None else 0

    def born(self, name: str) -> int:
        """The term in which what goes by a name was made or reset, or in which it ended."""
        home = self._homes.get(name)
        if home is None:
            return 0
        return home.term if home.broker is None else home.born

    def at(self, stream: StreamId) -> list[Home]:
        """Those that live at the broker of this stream."""
        return [h for h in self if h.broker is not None and h.broker.stream == stream]


def to_data(home: Home) -> bytes:
    return msgspec.msgpack.encode(home)


def from_data(name: str, data: bytes) -> Home:
    """What `to_data` wrote."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise JournalDamaged(
            f"where the durable subscription {name!r} lives cannot be read ({error}); run "
            "`stentor journal repair` on the data directory"
        ) from error
