"""How long things take in a broker, as histograms that cost next to nothing.

`matching` is measured for every batch. Of publications and deliveries only samples are taken, since
to look at the clock for each would cost more than to pass it on: of each client, one request to
publish at a time from its arrival to its answer; and of deliveries one whenever the host asks for
the next (`wants_delivery`), from the time that the publisher gave it until it is handed over. Only
what comes live counts: who reads the past is late on purpose.

The core has no clocks of its own. The host gives it two; without, all times are 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

#: Upper bounds in seconds.
FINE: Final = tuple(m * 10**e for e in range(-7, -2) for m in (1, 2.5, 5))
COARSE: Final = (
    *(m * 10**e for e in range(-4, 1) for m in (1, 2.5, 5)),
    *(10.0, 30.0, 60.0, 300.0),
)


class Histogram:
    """Counts of values below bounds.

    >>> histogram = Histogram([0.1, 1.0])
    >>> for value in (0.05, 0.1, 0.2, 7.0):
    ...     histogram.observe(value)
    >>> list(histogram.buckets()), histogram.count, histogram.sum
    ([(0.1, 2), (1.0, 3)], 4, 7.35)
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """So many took so long, each."""
        self._counts[bisect_left(self._bounds, value)] += count
        self.count += count
        self.sum += value * count

    def buckets(self) -> Iterator[tuple[float, int]]:
        """Each bound, and how many are at or below it."""
        below = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            below += count
            yield bound, below


class Latencies:
    """What is measured in one broker."""

    def __init__(
        self,
        stopwatch: Callable[[], float] = lambda: 0.0,
        time_of_day: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.stopwatch = stopwatch
        self.time_of_day = time_of_day
        #: To find out where one notification goes.
        self.matching = Histogram(FINE)
        #: From the arrival of a publication to its answer.
        self.acknowledging = Histogram(COARSE)
        #: From the publisher's time to the delivery.
        self.delivering = Histogram(COARSE)
        #: Whether the next delivery is to be measured.
        self.wants_delivery = False
