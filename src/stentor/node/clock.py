"""Time, as the host tells it to a broker's core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """What time it is for all parts of one core."""

    #: Seconds that only go forward, from any beginning.
    now: float = 0.0
    #: Seconds since 1970.
    time: float = 0.0
