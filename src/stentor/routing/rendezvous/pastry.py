"""A ring of brokers that finds, for any key, the one broker responsible for it (03/A18, 07/O9).

Brokers and keys live in one circular space of numbers. The broker whose number is closest to a key
is the key's root; of two that are equally close, it is the one with the smaller number. Read as
digits of base 2^b, numbers also have prefixes, and those make the way to the root short:

    leaf set        the next l/2 brokers on either side; within its range the root is known
    routing table   in row d and column c, a broker that shares d digits with this one and has c as
                    its next digit; where several qualify, the nearest by the proximity function

A message for a key goes to the broker of the table whose prefix agrees with the key in one digit
more, so it arrives after about log N (to base 2^b) hops. One rule is stricter than in the book:
every hop must be *closer* to the key than the one before, and where the broker of the table is not,
the closest broker known is taken instead. Closeness is a matter of numbers only, not of what anyone
knows. So a message never goes in a circle, not even while brokers disagree about who is there; and
as each knows its neighbors on the ring, a message stops at the root and nowhere else (03/P16).

A ring is told of every broker that can be reached, but remembers only its leaf set and its table,
with a few brokers as backup for each place. When a place has no backup left, `remove` says so, and
the ring wants to be told again who is there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from stentor.errors import DuplicateBroker, InvalidConfiguration
from stentor.routing.protocol import BrokerId

#: How many brokers are remembered for a place of the table beside the one in use.
BACKUPS: Final = 2
_BITS: Final = 128

#: How far away a broker is, by delay or any other cost. Less is better.
Proximity = Callable[[BrokerId], float]


def key_of(name: str) -> int:
    """The key of a name: 128 bits, spread evenly.

    >>> key_of("quote") == key_of("quote") != key_of("trade")
    True
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=_BITS // 8).digest(), "big")


def number_of(broker: BrokerId) -> int:
    """The place of a broker on the ring. The broker 7 and the broker "7" are different ones."""
    return key_of(f"{type(broker).__name__}:{broker}")


class _Seat(NamedTuple):
    """A place that a broker has: how good it is for that place, and which broker it is."""

    rank: float
    number: int
    broker: BrokerId


class Pastry:
    """What one broker knows of the ring.

    >>> ring = Pastry("123", digit_bits=2, bits=6, number=lambda broker: int(str(broker), 4))
    >>> for other in ("023", "102", "131", "230", "311", "332"):
    ...     ring.add(other)
    >>> ring.next_hop(int("132", 4)), ring.next_hop(int("123", 4))
    ('131', None)
    """

    def __init__(
        self,
        id: BrokerId,
        *,
        digit_bits: int = 4,
        leaves: int = 16,
        proximity: Proximity | None = None,
        bits: int = _BITS,
        number: Callable[[BrokerId], int] = number_of,
    ) -> None:
        """`digit_bits` is the book's b, `leaves` the size l of the leaf set.

        Of brokers that are equally near each ring prefers others, so that the load is spread.
        """
        if digit_bits not in (1, 2, 4) or bits < 1 or bits % digit_bits:
            raise InvalidConfiguration(
                f"digits of {digit_bits} bits do not fit numbers of {bits} bits; "
                "a digit has 1, 2 or 4 bits, and a number is made of whole digits"
            )
        if leaves < 2 or leaves % 2:
            raise InvalidConfiguration(
                f"a leaf set of {leaves} has no two equal sides; choose an even number from 2 on"
            )
        self._id = id
        self._digit_bits = digit_bits
        self._bits = bits
        self._size = 1 << bits
        self._proximity = proximity
        self._number_of = number
        self._number = number(id)
        self._above = _Leaves(leaves // 2)
        self._below = _Leaves(leaves // 2)
        self._table: dict[tuple[int, int], list[_Seat]] = {}

    @property
    def id(self) -> BrokerId:
        return self._id

    # -- membership

    def add(self, broker: BrokerId) -> None:
        """The broker can be reached; remember it if there is a place for it."""
        if broker == self._id:
            return
        number = self._number_of(broker)
        if number == self._number:
            raise _same_place(self._id, broker)
        self._above.add(_Seat((number - self._number) % self._size, number, broker))
        self._below.add(_Seat((self._number - number) % self._size, number, broker))
        cell = self._table.setdefault(self._cell(number), [])
        if all(seat.broker != broker for seat in cell):
            distance = 0.0 if self._proximity is None else self._proximity(broker)
            insort(cell, _Seat(distance, number, broker), key=self._preference)
            del cell[1 + BACKUPS :]

    def remove(self, broker: BrokerId) -> bool:
        """The broker is gone. Whether a place stayed empty: then a `refill` is due."""
        number = self._number_of(broker)
        wanting = self._above.remove((number - self._number) % self._size)
        wanting |= self._below.remove((self._number - number) % self._size)
        where = self._cell(number)
        cell = self._table.get(where)
        if cell is not None:
            cell[:] = [seat for seat in cell if seat.broker != broker]
            if not cell:
                del self._table[where]
                wanting = True
        return wanting

    def refill(self, brokers: Iterable[BrokerId]) -> None:
        """Fill empty places; these are all the brokers that can be reached."""
        self._above.forgetful = self._below.forgetful = False
        for broker in brokers:
            self.add(broker)

    def __contains__(self, broker: object) -> bool:
        return any(seat.broker == broker for seat in self._seats())

    def __len__(self) -> int:
        """How many places are taken, backups included: the size of what it knows."""
        return sum(1 for _ in self._seats())

    @property
    def leaf_set(self) -> list[BrokerId]:
        """The next brokers on either side: where to keep copies of what this one is root of."""
        near = [seat.broker for side in (self._below, self._above) for seat in side.in_use]
        return list(dict.fromkeys(near))

    # -- routing

    def next_hop(self, key: int) -> BrokerId | None:
        """The next broker on the way to the key's root; None if this one is the root."""
        key %= self._size
        here = self._distance(self._number, key)
        if self._above.reaches((key - self._number) % self._size) or self._below.reaches(
            (self._number - key) % self._size
        ):
            return self._closest((*self._above.in_use, *self._below.in_use), key, here)
        cell = self._table.get(self._cell(key))
        if cell is not None and self._distance(cell[0].number, key) < here:
            return cell[0].broker
        return self._closest(self._seats(), key, here)

    def _closest(self, seats: Iterable[_Seat], key: int, here: tuple[int, int]) -> BrokerId | None:
        best, broker = here, None
        for seat in seats:
            distance = self._distance(seat.number, key)
            if distance < best:
                best, broker = distance, seat.broker
        return broker

    def _distance(self, number: int, key: int) -> tuple[int, int]:
        """How far it is from the key, either way round; the smaller number counts as closer."""
        up = (number - key) % self._size
        return min(up, self._size - up), number

    def _cell(self, number: int) -> tuple[int, int]:
        """The place of a number in the table: how many digits it shares, and the next one."""
        differing = (number ^ self._number).bit_length()
        row = (self._bits - differing) // self._digit_bits
        shift = self._bits - (row + 1) * self._digit_bits
        return row, number >> max(shift, 0) & ((1 << self._digit_bits) - 1)

    def _preference(self, seat: _Seat) -> tuple[float, int]:
        return seat.rank, seat.number ^ self._number

    def _seats(self) -> Iterator[_Seat]:
        yield from self._above.seats
        yield from self._below.seats
        for cell in self._table.values():
            yield from cell


class _Leaves:
    """The brokers that come next on one side of the ring: all of them, up to the last one listed.

    As many again as are in use are listed as backup. Once some had to be left out, a broker beyond
    the last one listed must stay out too, for there may be others before it.
    """

    __slots__ = ("_in_use", "forgetful", "seats")

    def __init__(self, in_use: int) -> None:
        self._in_use = in_use
        self.seats: list[_Seat] = []
        self.forgetful = False

    @property
    def in_use(self) -> list[_Seat]:
        return self.seats[: self._in_use]

    def add(self, seat: _Seat) -> None:
        place = bisect_left(self.seats, (seat.rank,))
        if place < len(self.seats) and self.seats[place].rank == seat.rank:
            if self.seats[place].broker != seat.broker:
                raise _same_place(self.seats[place].broker, seat.broker)
        elif place < len(self.seats) or not self.forgetful:
            self.seats.insert(place, seat)
            if len(self.seats) > 2 * self._in_use:
                self.seats.pop()
                self.forgetful = True

    def remove(self, rank: int) -> bool:
        """Whether too few are left, although there may be more."""
        place = bisect_left(self.seats, (rank,))
        if place == len(self.seats) or self.seats[place].rank != rank:
            return False
        del self.seats[place]
        return self.forgetful and len(self.seats) < self._in_use

    def reaches(self, offset: int) -> bool:
        """Whether everything up to there is known."""
        if not self.forgetful and len(self.seats) <= self._in_use:
            return True
        return offset <= self.seats[: self._in_use][-1].rank


def _same_place(one: BrokerId, other: BrokerId) -> DuplicateBroker:
    return DuplicateBroker(
        f"the brokers {one!r} and {other!r} have the same place on the ring; rename one of them"
    )
