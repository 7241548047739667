"""When the next events of a replay are due."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from stentor.errors import InvalidConfiguration
from stentor.pipeline.archives.tables import NEVER

#: Seconds within which events that are due soon go together: a steady flow to the eye.
TICK: Final = 0.05


class Pacer:
    """Keeps the distances in time between events, divided by the speed.

    Who falls behind, because a broker is slow, catches up: the events are due when they are due.
    Events without a time are due at once.
    """

    def __init__(
        self,
        speed: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Without a speed, everything is due at once."""
        if speed is not None and not (speed > 0 and math.isfinite(speed)):
            raise InvalidConfiguration(
                f"speed={speed} is none; give a positive number, such as 10 for ten times as fast "
                "as it was, or None for as fast as possible"
            )
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._first: int | None = None
        self._began = 0.0

    def due(self, turn: int) -> int | None:
        """Wait until an event at this time (in microseconds) is due; the time up to which others
        are due with it, None for all."""
        if self._speed is None:
            return None
        if turn == NEVER:
            return NEVER
        if self._first is None:
            self._first, self._began = turn, self._clock()
        at = self._began + (turn - self._first) / 1e6 / self._speed
        while (left := at - self._clock()) > 0:
            self._sleep(min(left, 1.0))
        passed = self._clock() - self._began + TICK
        return max(turn, self._first + int(passed * self._speed * 1e6))
