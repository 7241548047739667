"""A detector's state as bytes.

Everything is written as MessagePack: events once each, in the codec of notifications; the links of
chains once each, by number, so that what branches share stays shared; values of partitions and of
`distinct` through the same codec, so that every value that an attribute can hold comes back as it
was. Equal states give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from stentor.composite.events import Occurrence
from stentor.composite.runs import Branch, Machine
from stentor.errors import DecodeError, StentorError
from stentor.model import Notification, decode, encode

VERSION: Final = 1

#: A number of something that is written elsewhere, or how many there are.
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Register: TypeAlias = int | tuple[int, int] | dict[str, list[bytes]] | None
_Branch: TypeAlias = tuple[_Number, int, int, list[_Register], _Number, _Number]
_Run: TypeAlias = tuple[int, Annotated[list[_Branch], msgspec.Meta(min_length=1)]]
_Partition: TypeAlias = tuple[bytes, _Number, _Number, bool, list[_Run]]
_Event: TypeAlias = tuple[int, int, str, tuple[int, int], bytes]
_Link: TypeAlias = tuple[_Number, tuple[str, ...], _Number]


class State(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A detector's state as it is written."""

    #: By their digests.
    patterns: list[tuple[str, list[_Partition]]]
    #: Events that are not stable, and what they are to which patterns.
    waiting: list[tuple[_Number, list[tuple[str, int]]]]
    counts: tuple[int, int, int, int, int]
    sources: tuple[dict[str, int], dict[str, list[int]]]
    events: list[_Event]
    links: list[_Link]


_decoder: Final = msgspec.msgpack.Decoder(State)


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

    def __init__(self, events: list[_Event], links: list[_Link]) -> None:
        self.events = [
            Occurrence(high, low, source, number, decode(data))
            for high, low, source, number, data in events
        ]
        self.chains: list[Any] = [None]
        for before, names, event in links:
            self.chains.append((self.chains[before], names, self.events[event]))

    def partition(
        self, written: _Partition, machine: Machine
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The key of a partition, and its runs as `Runs.dump` has them."""
        packed, opened, dropped, is_over, runs = written
        made = [(serial, [self._branch(b, machine) for b in branches]) for serial, branches in runs]
        return unpack_values(packed), (opened, dropped, is_over, made)

    def _branch(self, written: _Branch, machine: Machine) -> Branch:
        state, low, high, registers, chain, length = written
        if state >= len(machine.states) or len(registers) != len(machine.no_registers):
            raise DecodeError("it is of another automaton")
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


def _value(written: _Register) -> Any:
    from stentor.composite.pattern import key_token

    if isinstance(written, dict):
        return frozenset(key_token(unpack_values(each)) for each in written["seen"])
    return written


def pack(state: State) -> bytes:
    return msgspec.msgpack.encode((VERSION, state))


def unpack(data: bytes) -> State:
    with damages_told():
        version, state = msgspec.msgpack.decode(data, type=tuple[int, msgspec.Raw])
        if version == VERSION:
            return _decoder.decode(state)
    raise DecodeError(
        f"the snapshot is of version {version}, and this is version {VERSION}; "
        "read it with the release that has written it"
    )


@contextmanager
def damages_told() -> Iterator[None]:
    """What cannot be read in here is a `DecodeError`."""
    try:
        yield
    except (StentorError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
        raise DecodeError(f"this is not a snapshot of a detector: {error}") from None
