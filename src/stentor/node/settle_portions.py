"""A long `Settle` as several short ones that mean the same.

Whoever deals with one message deals with nothing else meanwhile, and one may name hundreds of
thousands of notifications. They are dealt with in the order of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from stentor.protocol import messages as m

#: Notifications that are named in one step.
NAMED: Final = 1_000


def is_short(message: m.Settle) -> bool:
    """Whether it is one step."""
    named = len(message.done) + len(message.begun) + len(message.again) + len(message.extended)
    if message.refused or named > NAMED:
        return False
    return named + sum(map(len, (*message.done.values(), *message.begun.values()))) <= NAMED


def portions(message: m.Settle, most: Callable[[], int]) -> Iterator[m.Settle]:
    """Shorter ones in its place, without the request; with `most` refusals at a time.

    >>> message = m.Settle(1, {"s": [*range(2_500)]}, refused=[m.Refused("s", 1)])
    >>> [(sum(map(len, p.done.values())), len(p.refused)) for p in portions(message, lambda: 1)]
    [(1000, 0), (1000, 0), (500, 0), (0, 1)]
    """
    number = message.number
    for done in _named(message.done):
        yield m.Settle(number, done)
    for begun in _named(message.begun):
        yield m.Settle(number, {}, begun)
    for start in range(0, len(message.again), NAMED):
        yield m.Settle(number, {}, again=message.again[start : start + NAMED])
    for start in range(0, len(message.extended), NAMED):
        yield m.Settle(number, {}, extended=message.extended[start : start + NAMED])
    start = 0
    while start < len(message.refused):
        end = start + most()
        yield m.Settle(number, {}, refused=message.refused[start:end])
        start = end


def _named(offsets: dict[m.StreamId, list[int]]) -> Iterator[dict[m.StreamId, list[int]]]:
    some: dict[m.StreamId, list[int]] = {}
    count = 0
    for stream, those in offsets.items():
        for start in range(0, len(those), NAMED):
            some[stream] = those[start : start + NAMED]
            count += len(some[stream])
            if count >= NAMED:
                yield some
                some, count = {}, 0
    if some:
        yield some
