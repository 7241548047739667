"""Batches cut into frames of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

#: Bytes of notifications that go into one frame; a larger one goes alone.
PIECE: Final = 1024 * 1024


def pieces(offsets: list[int], items: list[bytes]) -> Iterable[tuple[list[int], list[bytes]]]:
    """The batch, cut so that no piece is much larger than `PIECE`.

    >>> [len(items) for _, items in pieces([], [b"x" * 400_000] * 5)]
    [2, 2, 1]
    """
    return ((offsets, items),) if sum(map(len, items)) <= PIECE else _cut(offsets, items)


def _cut(offsets: list[int], items: list[bytes]) -> Iterator[tuple[list[int], list[bytes]]]:
    start = size = 0
    for end, item in enumerate(items):
        if size and size + len(item) > PIECE:
            yield offsets[start:end], items[start:end]
            start, size = end, 0
        size += len(item)
    yield offsets[start:], items[start:]
