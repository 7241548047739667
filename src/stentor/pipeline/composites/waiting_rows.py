"""Rows that wait until everything before them has come.

They stay Arrow's as long as they wait, in the state of a stream as well. Only when it is their turn
are they made events, sorted by their upper ends: so all that wait cost what copying them costs.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stentor.composite import Limits
from stentor.errors import DetectorFull
from stentor.pipeline.matching.parcels import unwrapped, wrapped

#: The column with the upper end of an event, in microseconds since 1970.
HIGH: Final = "_stentor_high"


class WaitingRows:
    """Rows of one table, and up to where they have been taken.

    >>> rows = WaitingRows(Limits())
    >>> rows.add(pa.record_batch({"x": [1, 2, 3], HIGH: [30, 10, 20]}))
    >>> rows.take(25).column("x").to_pylist(), rows.first
    ([2, 3], 30)
    >>> rows.add(pa.record_batch({"x": [4], HIGH: [24]}))
    >>> rows.late
    1
    """

    def __init__(self, limits: Limits, data: bytes | None = None, taken: int | None = None) -> None:
        """As `dump` says they were, taken before that time."""
        self._limits = limits
        self._batches: list[pa.RecordBatch] = [unwrapped(data)] if data else []
        #: Everything before it has been taken.
        self.taken = taken
        #: Those that came after that, and how often one was taken before its time.
        self.late = self.forced = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows that have come, but those that are late."""
        if self.taken is not None:
            in_time = pc.greater_equal(batch.column(HIGH), self.taken)
            # One without a time is for the detector to refuse.
            kept = batch.filter(pc.fill_null(in_time, True))
            self.late += batch.num_rows - kept.num_rows
            batch = kept
        if batch.num_rows:
            self._batches.append(batch)

    def take(self, before: int) -> pa.RecordBatch | None:
        """Those whose time is before that, in their order; some more if too many wait."""
        self.taken = before if self.taken is None else max(before, self.taken)
        if not self._batches:
            return None
        rows = pa.Table.from_batches(self._batches).combine_chunks().to_batches()[0]
        highs: NDArray[np.int64] = pc.fill_null(rows.column(HIGH), -(2**63)).to_numpy()
        order = np.argsort(highs, kind="stable")
        highs = highs[order]
        place = int(np.searchsorted(highs, self.taken))
        too_many = len(highs) - place - self._limits.waiting
        if too_many > 0:
            if self._limits.when_full == "raise":
                raise DetectorFull(
                    f"more than {self._limits.waiting} events wait for the watermark to pass them, "
                    "or have the same time; Limits(waiting=...) lets more wait"
                )
            last = highs[place + too_many - 1]
            end = int(np.searchsorted(highs, last, side="right"))
            self.forced += len(np.unique(highs[place:end]))
            self.taken, place = int(last) + 1, end
        left = np.sort(order[place:])
        self._batches = [rows.take(pa.array(left))] if len(left) else []
        return rows.take(pa.array(order[:place])) if place else None

    @property
    def first(self) -> int | None:
        """The earliest time of those that wait."""
        found = [pc.min(batch.column(HIGH)).as_py() for batch in self._batches]
        return min(found, default=None)

    def dump(self) -> bytes | None:
        """Those that wait, as bytes."""
        assert len(self._batches) <= 1, "they are taken before they are stored"
        return wrapped(self._batches[0]) if self._batches else None
