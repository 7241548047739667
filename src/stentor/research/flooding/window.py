"""Clean-up by age (03/A17 a): ids are kept for a while, and what is older is refused.

A notification is stamped with the time of its publication. Its id is kept until the stamp is older
than the window, and a notification whose stamp is older is refused, so none is accepted twice.
One is lost only if it was under way longer than the window, or if a clock is wrong by as much; a
window is therefore longer than the longest delay plus the difference between clocks.
Under load the window shrinks: more ids than the limit are never kept.
"""

from __future__ import annotations

import math
from typing import Final

from stentor.errors import InvalidConfiguration
from stentor.model.identity import NotificationId
from stentor.research.flooding.history import Clock, History, StampedIds

#: How long ids are kept, in the clock's unit.
AGE: Final = 300.0
#: How many are kept at most.
MAX_IDS: Final = 1_000_000


class AgeWindow(History):
    """Keeps the ids of notifications that are younger than an age.

    >>> now = 0.0
    >>> window = AgeWindow(lambda: now, age=10.0)
    >>> late = NotificationId("p", 0, 0)
    >>> now = 11.0
    >>> window.admit(late, 0.0), window.refused
    (False, 1)
    """

    def __init__(self, clock: Clock, *, age: float = AGE, limit: int = MAX_IDS) -> None:
        if not age > 0 or limit < 1:
            raise InvalidConfiguration(
                f"a window of age {age} with room for {limit} ids lets nothing through; "
                "give a positive age and a limit of at least 1"
            )
        self._clock = clock
        self._age = age
        self._ids = StampedIds(limit)
        self._last = -math.inf

    def stamp(self) -> float:
        """The time, but never twice the same and never below the floor."""
        self._last = max(self._clock(), math.nextafter(self._last, math.inf), self._ids.floor)
        return self._last

    def admit(self, id: NotificationId, stamp: float) -> bool:
        now = self._clock()
        self._ids.forget_below(now - self._age)
        # From a clock so far ahead, the id would be kept for who knows how long.
        if stamp < self._ids.floor or stamp > now + self._age:
            self.refused += 1
            return False
        return self._ids.add(id, stamp)

    def __len__(self) -> int:
        return len(self._ids)
