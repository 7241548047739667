"""A growing table that is full: searched as it is until a segment has its boxes.

It costs a search less than a small segment would, and nothing to make. So while the background
joins it with what there was, searches go on in it, and whoever filled it need not compile it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import numpy as np

from stentor.matching.index.recent import Recent
from stentor.matching.index.segment import Segment, weight
from stentor.matching.index.table import GrowingTable, Table, joined


class Full:
    """Recent boxes that no others will come to, in the place of the segment they will be in."""

    def __init__(
        self,
        growing: GrowingTable,
        recent: Iterable[Recent],
        slots: Sequence[int],
        names: Set[str],
    ) -> None:
        self._growing = growing
        #: What is searched.
        self.parts = [boxes.now() for boxes in recent if boxes.count]
        self.distinct_slots = np.array(slots, np.int32)
        self.names = frozenset(names)
        self.nbytes = 400 * len(growing) + sum(boxes.nbytes for boxes in recent)

    def __len__(self) -> int:
        return len(self._growing)

    @property
    def weight(self) -> int:
        """What it takes to compile it, in plain boxes."""
        return weight(len(self), sum(len(part.tests) for part in self.parts), len(self.names))

    def table(self) -> Table:
        """The boxes in raw form, to be compiled."""
        return self._growing.frozen()

    def __reduce__(self) -> tuple[type[Segment], tuple[Table]]:
        every = np.ones(int(self.distinct_slots.max()) + 1, np.uint8)
        return Segment, (joined([self.table()], every),)
