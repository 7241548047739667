"""A handler of orders that fails: always on some, now and then on others, sometimes too late."""

from __future__ import annotations

import asyncio
import random

from stentor import Notification

#: Every so manieth order cannot be dealt with by anybody.
HOPELESS = 10


class Worker:
    """Deals with orders that have a number `k`."""

    def __init__(self, seed: int, *, slow: float = 0.0) -> None:
        """If it is `slow`, it now and then takes so many seconds, and some more."""
        self._rng = random.Random(seed)
        self._slow = slow
        self.dealt: set[int] = set()

    async def handle(self, order: Notification) -> None:
        if order["k"] % HOPELESS == 3:
            raise ValueError(f"nobody can deal with {order['k']}")
        if self._rng.random() < 0.05:
            raise RuntimeError("not now")
        if self._slow and self._rng.random() < 0.02:
            await asyncio.sleep(self._slow * 1.5)
        self.dealt.add(order["k"])
