"""Which notification this is.

Publishing equal content twice makes two notifications, so identity never rests on content. An id
names the producer, the producer's epoch and a sequence number. Within an epoch the numbers rise by
one; a producer that restarts without its counter begins a new, higher epoch and counts from zero
again. Ids of one producer therefore sort in publication order, and no id is ever handed out twice.

Ids are made for every notification, so this must be quick. A call `NotificationId(...)` checks all
three parts. A decoder makes instances without that call: msgspec holds the numbers to the bounds
that the fields declare, and `check_producer` has to be asked about the name. The names that were
found good are remembered, in a memory that is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, StructMeta

from stentor.errors import InvalidValue
from stentor.model.names import shown, text_problem
from stentor.model.values import INT_MAX

# No sign, no leading zero, no digits of other scripts: an id has exactly one written form.
_WRITTEN: Final = re.compile(r"(.+):(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})", re.DOTALL)


_MAX_PRODUCERS: Final = 4096

#: Producers that were found good; for others ask `check_producer`.
good_producers: Final[set[str]] = set()

_Number = Annotated[int, Meta(ge=0, le=INT_MAX)]


def check_producer(producer: object) -> None:
    """Raise `InvalidValue` unless a producer may have this name; if so, remember it."""
    problem = text_problem(producer)
    if problem is not None:
        raise InvalidValue(f"the producer {shown(producer)} of an id {problem}")
    if len(good_producers) >= _MAX_PRODUCERS:
        good_producers.clear()
    assert type(producer) is str
    good_producers.add(producer)


class _Checked(StructMeta):
    """Checks what is made by a call; see above."""

    def __call__(self, producer: str, epoch: int, sequence: int) -> Any:
        if type(producer) is not str or producer not in good_producers:
            check_producer(producer)
        if not (type(epoch) is type(sequence) is int and 0 <= epoch <= INT_MAX >= sequence >= 0):
            _check_number("epoch", epoch)
            _check_number("sequence", sequence)
        return _make(self, producer, epoch, sequence)


_make: Final = StructMeta.__call__


class NotificationId(
    Struct,
    metaclass=_Checked,
    frozen=True,
    order=True,
    array_like=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """Producer, epoch and sequence number: who published it, in which life, as which one.

    >>> first = NotificationId("sensor-7", 3, 41)
    >>> str(first)
    'sensor-7:3:41'
    >>> NotificationId.parse("sensor-7:3:41") == first
    True
    >>> first < NotificationId("sensor-7", 4, 0)
    True
    """

    producer: str
    epoch: _Number
    sequence: _Number

    def __str__(self) -> str:
        return f"{self.producer}:{self.epoch}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> NotificationId:
        """The id that `str` wrote. The producer's name may itself hold colons."""
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise InvalidValue(
                f"{shown(text)} is not a notification id; write producer:epoch:sequence"
            )
        return cls(match[1], int(match[2]), int(match[3]))


def parse_ids(texts: Iterable[str | None]) -> list[NotificationId | None]:
    """As `NotificationId.parse` for each, and None for None. Most ids go on where another ends.

    >>> [str(id) for id in parse_ids(["p:1:7", "p:1:8", None])]
    ['p:1:7', 'p:1:8', 'None']
    """
    found: list[NotificationId | None] = []
    lives: dict[str, tuple[str, int]] = {}
    for text in texts:
        if text is None:
            found.append(None)
            continue
        head, _, last = text.rpartition(":")
        life = lives.get(head)
        if life is None or not (last.isdecimal() and str(number := int(last)) == last):
            id = NotificationId.parse(text)
            lives[head] = id.producer, id.epoch
            found.append(id)
        else:
            found.append(NotificationId(*life, number))
    return found


def _check_number(field: str, value: object) -> None:
    if type(value) is not int:
        raise InvalidValue(f"the {field} of an id is a {type(value).__name__}, not an int")
    if not 0 <= value <= INT_MAX:
        raise InvalidValue(f"the {field} of an id is {value}; it must lie in 0..{INT_MAX}")


class IdSource:
    """Hands out the ids of one producer in one epoch. Safe to share between threads.

    >>> source = IdSource("sensor-7", epoch=3)
    >>> str(next(source)), str(next(source))
    ('sensor-7:3:0', 'sensor-7:3:1')
    """

    __slots__ = ("_epoch", "_numbers", "_producer")

    def __init__(self, producer: str, epoch: int, start: int = 0) -> None:
        first = NotificationId(producer, epoch, start)  # checks all three
        self._producer = first.producer
        self._epoch = first.epoch
        self._numbers = count(first.sequence)

    @property
    def producer(self) -> str:
        return self._producer

    @property
    def epoch(self) -> int:
        return self._epoch

    def __iter__(self) -> IdSource:
        return self

    def __next__(self) -> NotificationId:
        number = next(self._numbers)
        if number > INT_MAX:
            _check_number("sequence", number)
        found: NotificationId = _make(NotificationId, self._producer, self._epoch, number)
        return found
