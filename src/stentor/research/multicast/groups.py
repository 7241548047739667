"""The multicast groups that are set up over some brokers.

With a group for every subset a sender can always reach exactly those that it wants to, but the
number of subsets doubles with each broker. A threshold T keeps it small: there are groups for the
subsets of up to T brokers and one of all members, which is used as soon as more than T are wanted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import comb

from stentor.errors import DuplicateBroker, InvalidConfiguration
from stentor.routing.protocol import BrokerId


@dataclass(frozen=True)
class Groups:
    """The groups over some members: of all subsets, or of small ones and one of all.

    >>> groups = Groups((1, 2, 3, 4), threshold=2)
    >>> groups.group({1, 3}), groups.group({1, 3, 4})
    ((1, 3), (1, 2, 3, 4))
    >>> groups.selective, groups.count
    (10, 11)
    """

    members: tuple[BrokerId, ...]
    threshold: int | None = None

    def __post_init__(self) -> None:
        if len(set(self.members)) < len(self.members):
            raise DuplicateBroker(f"a broker is given twice in {self.members}; ids must differ")
        if self.threshold is not None and self.threshold < 1:
            raise InvalidConfiguration(
                f"with a threshold of {self.threshold} there is no group but that of all; "
                "give 1 or more"
            )

    @property
    def selective(self) -> int:
        """How many groups reach exactly some subset; without threshold also that of nobody."""
        size = len(self.members)
        if self.threshold is None:
            return int(2**size)
        return sum(comb(size, chosen) for chosen in range(1, self.threshold + 1))

    @property
    def count(self) -> int:
        """How many groups there are, with that of all members if it is needed beside the others."""
        size = len(self.members)
        all_apart = self.threshold is not None and self.threshold < size
        return self.selective + all_apart

    def group(self, wanted: Collection[BrokerId]) -> tuple[BrokerId, ...]:
        """The smallest group with all wanted members; empty if there are none."""
        found = tuple(member for member in self.members if member in wanted)
        if self.threshold is not None and len(found) > self.threshold:
            return self.members
        return found
