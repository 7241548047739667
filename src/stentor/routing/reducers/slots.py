"""Slots: the numbers of neighbors, and sets of neighbors as bit masks."""

from __future__ import annotations

from typing import Final

#: The slot that is no neighbor: wherever something is wanted, it is wanted here too.
REFERENCE: Final = 1


def slots_of(mask: int) -> list[int]:
    """The slots in a mask.

    >>> slots_of(0b1101)
    [0, 2, 3]
    """
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
