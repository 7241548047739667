"""How far durable subscriptions are behind, for monitoring.

There may be very many, and many streams, so that it is found out in steps, now and then, and what
was found last is told. Of single ones only those are named that are furthest behind: each name is a
time series in whatever stores the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from heapq import nlargest
from typing import Final, NamedTuple

from stentor.node.core import Core
from stentor.node.last_values import label

#: How many are named.
NAMED: Final = 50
#: Seconds between two looks.
EVERY: Final = 5.0


class Lag(NamedTuple):
    """Of one durable subscription."""

    behind: int
    name: str
    owner: str | None
    #: Seconds since the oldest was published that is not confirmed.
    oldest: float


class Lags:
    """What was found last."""

    def __init__(self) -> None:
        self.named: list[Lag] = []
        #: Notifications behind all positions together, and behind the one that is furthest behind.
        self.total = 0
        self.most = 0
        #: The age of the oldest that is not confirmed, of those that are named.
        self.oldest = 0.0
        self._next = 0.0

    def is_due(self, now: float) -> bool:
        """Whether to look again; then not for a while."""
        if now < self._next:
            return False
        self._next = now + EVERY
        return True

    def look(self, core: Core) -> Generator[None, None, None]:
        """Find out, one after the other."""
        heads = core.homes.heads()
        counts: list[tuple[int, str]] = []
        for name, durable in list(core.durables.items()):
            positions = durable.positions
            behind = sum(max(0, head - positions.get(each, 0)) for each, head in heads.items())
            counts.append((behind, name))
            yield
        named = []
        now = time.time()
        for behind, name in nlargest(NAMED, counts):
            found = core.durables.get(name)
            if found is not None:
                since = core.homes.waiting_since(found)
                age = 0.0 if since is None else max(0.0, now - since)
                named.append(Lag(behind, label(name), found.owner, age))
            yield
        self.named = named
        self.total = sum(count for count, _ in counts)
        self.most = max((count for count, _ in counts), default=0)
        self.oldest = max((lag.oldest for lag in named), default=0.0)
