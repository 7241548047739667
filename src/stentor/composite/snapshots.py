"""A detector's state as bytes.

Everything is written as MessagePack: events once each, in the codec of notifications; the links of
chains once each, by number, so that what branches share stays shared; values of partitions and of
`distinct` through the same codec, so that every value that an attribute can hold comes back as it
was. Equal states give equal bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stentor.composite.events import Occurrence
from stentor.composite.runs import Branch
from stentor.errors import DecodeError
from stentor.model import Notification, decode, encode

VERSION: Final = 1


class Writer:
    """Collects events and links while runs are written."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.links: list[tuple[int, tuple[str, ...], int]] = []
        self._event_numbers: dict[tuple[Any, ...], int] = {}
        self._link_numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def event(self, event: Occurrence) -> int:
        found = self._event_numbers.get(event.order)
        if found is None:
            found = self._event_numbers[event.order] = len(self.events)
            self.events.append((*event[:4], encode(event.event)))
        return found

    def chain(self, chain: Any) -> int:
        """The number of a chain, from 1; 0 is the empty one."""
        new = []
        while chain is not None and id(chain) not in self._link_numbers:
            new.append(chain)
            chain = chain[0]
        number = 0 if chain is None else self._link_numbers[id(chain)]
        for link in reversed(new):
            self.links.append((number, link[1], self.event(link[2])))
            number = self._link_numbers[id(link)] = len(self.links)
            self._kept.append(link)  # so that its id stays its own
        return number

    def branch(self, branch: Branch) -> tuple[Any, ...]:
        state, low, high, registers, chain, length = branch
        return state, low, high, [_register(each) for each in registers], self.chain(chain), length


class Reader:
    """Makes runs of what a `Writer` has collected."""

    def __init__(self, events: list[Any], links: list[Any]) -> None:
        self.events = [
            Occurrence(high, low, source, tuple(number), decode(data))
            for high, low, source, number, data in events
        ]
        self.chains: list[Any] = [None]
        for before, names, event in links:
            self.chains.append((self.chains[before], tuple(names), self.events[event]))

    def branch(self, written: Any) -> Branch:
        state, low, high, registers, chain, length = written
        values = tuple(_value(each) for each in registers)
        return state, low, high, values, self.chains[chain], length


def pack_values(values: tuple[Any, ...]) -> bytes:
    """Values of attributes, as they are."""
    if not values:
        return b""
    return encode(Notification({f"v{i:03}": value for i, value in enumerate(values)}))


def unpack_values(data: bytes) -> tuple[Any, ...]:
    if not data:
        return ()
    found = decode(data)
    return tuple(found[name] for name in sorted(found))


def _register(value: Any) -> Any:
    if isinstance(value, frozenset):  # values that were seen, each in a key of its own
        return {"seen": sorted(pack_values((_plain(token[0]),)) for token in value)}
    return value


def _plain(token: Any) -> Any:
    return token[1] if isinstance(token, tuple) else token


def _value(written: Any) -> Any:
    from stentor.composite.pattern import key_token

    if isinstance(written, dict):
        return frozenset(key_token(unpack_values(each)) for each in written["seen"])
    return tuple(written) if isinstance(written, list) else written


def pack(state: Any) -> bytes:
    return msgspec.msgpack.encode([VERSION, state])


def unpack(data: bytes) -> Any:
    try:
        version, state = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise DecodeError(f"this is not a snapshot of a detector: {error}") from None
    if version != VERSION:
        raise DecodeError(
            f"the snapshot is of version {version}, and this is version {VERSION}; "
            "read it with the release that has written it"
        )
    return state
