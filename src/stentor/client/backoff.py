"""Which errors waiting heals, and how long to wait before the next attempt.

The delays grow exponentially up to a bound, and each is drawn at random from the upper half of its
range, so that clients which lost the same broker at the same moment do not all come back at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from stentor.errors import (
    AccessDenied,
    InvalidAddress,
    JournalUnavailable,
    NotPermitted,
    Overloaded,
    ProtocolError,
    ShuttingDown,
    TlsError,
    Unreachable,
)

#: Refusals that no waiting heals: the application, or who runs the broker, has to act.
PERMANENT: Final = (AccessDenied, NotPermitted, ProtocolError, TlsError, InvalidAddress)
#: Refusals that pass: a broker that is down or about to be, has too much to do, or a full disk.
TRANSIENT: Final = (Unreachable, ShuttingDown, Overloaded, JournalUnavailable)

#: Seconds before the second attempt, and at most.
FIRST: Final = 0.05
LONGEST: Final = 10.0


class Backoff:
    """Delays between attempts.

    >>> delays = Backoff(first=1.0, longest=4.0, draw=lambda: 1.0)
    >>> [delays.next() for _ in range(4)]
    [1.0, 2.0, 4.0, 4.0]
    >>> delays.reset()
    >>> delays.next()
    1.0
    """

    def __init__(
        self,
        first: float = FIRST,
        longest: float = LONGEST,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._longest = longest
        self._draw = draw
        self._range = first

    def next(self) -> float:
        """Seconds to wait now."""
        delay = self._range * (1.0 + self._draw()) / 2
        self._range = min(self._range * 2, self._longest)
        return delay

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._range = self._first
