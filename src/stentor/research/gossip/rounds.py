"""Periodic rounds that come to rest.

A timer that runs for ever would keep a quiet network busy. So rounds are counted: news entitles a
broker to a fixed number of further rounds, and when these are over the timer is not armed again.
"""

from __future__ import annotations

from collections.abc import Hashable

from stentor.research.gossip.options import at_least, positive
from stentor.routing.protocol import Arm, Outputs


class Rounds:
    """A timer that runs a bounded number of times after the last news.

    >>> rounds = Rounds("tick", rounds=2, period=1.0)
    >>> rounds.news(), rounds.news()
    ([Arm(timer='tick', after=1.0)], [])
    >>> rounds.next(), rounds.next()
    ([Arm(timer='tick', after=1.0)], [])
    """

    def __init__(self, timer: Hashable, *, rounds: int, period: float) -> None:
        self.timer = timer
        self._rounds = at_least(1, rounds=rounds)
        self._period = positive(period=period)
        self._left = 0

    def news(self) -> Outputs:
        """Something is worth talking about."""
        resting = not self._left
        self._left = self._rounds
        return [Arm(self.timer, self._period)] if resting else []

    def next(self) -> Outputs:
        """A round has begun; whether there will be another."""
        self._left -= 1
        return [Arm(self.timer, self._period)] if self._left else []
