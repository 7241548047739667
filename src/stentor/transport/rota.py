"""The rota: how those who have much to do share the rounds of an event loop.

An event loop goes round: it runs what is ready, looks at all its connections, and begins again. If
each connection could work for a few milliseconds whenever it is looked at, a round would be the
longer the more of them are busy, and whoever wants little would wait for all the others. So there
is one budget for each round, whoever spends it. Who comes when it is spent waits, behind those who
wait already, and they go on first in the next round. While several wait, each goes on for a
`SLICE` and then waits again.

Time is looked at between steps. So a round is longer than its budget by one step at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Seconds of one round, and those of one who works while others wait.
BUDGET: Final = 0.005
SLICE: Final = 0.001


class Rota:
    """Who may work, and who has to wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = monotonic):
        self._loop = loop
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        #: When the budget of this round is spent, and what begins the next one.
        self._end = 0.0
        self._next: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_over(self) -> bool:
        """Whether the budget of this round is spent."""
        return self._next is not None and self._clock() >= self._end

    def more(self) -> Callable[[], bool]:
        """For one who begins to work: to be asked between steps whether there is time for more."""
        now = self._clock()
        if self._next is None:
            self._begin(now)
        clock, end = self._clock, self._end
        if self._waiting:
            end = min(end, now + SLICE)
        return lambda: clock() < end

    def wait(self, go_on: Callable[[], object]) -> None:
        """Call this when there is time again, and those who wait already had theirs."""
        self._waiting.append(go_on)
        if self._next is None:
            self._begin(self._clock())

    async def run(self, steps: Generator[Any, None, T]) -> T:
        """Do all the steps, in turn with others; what they come to."""
        done = self._loop.create_future()
        self.wait(partial(self._step, steps, done))
        try:
            result: T = await done
            return result
        finally:
            del done  # it keeps an error, which keeps this

    def _step(self, steps: Generator[Any, None, T], done: asyncio.Future[T]) -> None:
        more = self.more()
        try:
            while not done.done():
                next(steps)
                if not more():
                    self.wait(partial(self._step, steps, done))
                    break
        except StopIteration as end:
            done.set_result(end.value)
        except Exception as error:
            done.set_exception(error)
            del done

    def _begin(self, now: float) -> None:
        self._end = now + BUDGET
        self._next = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._next = None
        if self._waiting:
            self._begin(self._clock())
            self._waiting.popleft()()
            while self._waiting and self._clock() < self._end:
                self._waiting.popleft()()
