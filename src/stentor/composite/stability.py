"""When an event may be consumed: the three detection policies (R-06.31 to R-06.33).

Events are consumed in weak order, and an event is *stable* once nothing that precedes it can still
be on its way. What is known about that is the newest time heard from each source: every source
sends its events in their order, and one that has nothing to say sends heartbeats.

Under `Guaranteed`, an event is consumed when every source has been heard of with a later upper end.
That is a little stricter than 06/A2, which compares in weak order: all events with the same upper
end are consumed together, so that composite events take their place among them. Nothing is ever
detected that the whole history does not contain; a source that falls silent stops everything, until
it is removed.

Under `Probabilistic`, an event is also consumed when it is likely enough that nothing precedes it.
Of each source, the delays of its last events are remembered. The share of them that were at most as
long as the event is old estimates that the source has nothing older on its way; the sources are
taken as independent. What comes too late all the same is counted.

Under `Watermarked`, the host alone says up to where events are stable, by heartbeats: what it knows
of all sources together, such as the watermark of a stream on Spark.

Under `BestEffort`, events are consumed as they come.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from stentor.composite.intervals import END_OF_TIME
from stentor.errors import InvalidConfiguration


@dataclass(frozen=True)
class BestEffort:
    """Consume at once. Fastest; may miss and may invent what depends on the order of arrival."""

    kind: Literal["best_effort"] = "best_effort"


@dataclass(frozen=True)
class Guaranteed:
    """Consume what is stable. Nothing is missed or invented; waits for the slowest source.

    `sources` are those known from the start; others are known once they are heard of.
    """

    sources: tuple[str, ...] = ()
    kind: Literal["guaranteed"] = "guaranteed"


@dataclass(frozen=True)
class Probabilistic:
    """Consume what is stable with that probability, by the delays of the last events."""

    threshold: float = 0.99
    sources: tuple[str, ...] = ()
    #: How many delays of a source are remembered.
    remembered: int = 256
    kind: Literal["probabilistic"] = "probabilistic"

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise InvalidConfiguration(
                f"threshold={self.threshold} is not a probability between 0 and 1"
            )
        if not 1 <= self.remembered <= 65_536:
            raise InvalidConfiguration(f"remembered={self.remembered} must lie in 1..65536")


@dataclass(frozen=True)
class Watermarked:
    """Consume what lies before the last heartbeat, whatever it is of. Events say nothing of what
    else is on its way.
    """

    sources: tuple[str, ...] = ("watermark",)
    kind: Literal["watermarked"] = "watermarked"


Policy = BestEffort | Guaranteed | Probabilistic | Watermarked


class Delays:
    """How long the last events of a source took to arrive."""

    __slots__ = ("_last", "_sorted")

    def __init__(self, remembered: int, delays: Iterable[int] = ()) -> None:
        self._last: deque[int] = deque(delays, maxlen=remembered)
        self._sorted = sorted(self._last)

    def add(self, delay: int) -> None:
        if len(self._last) == self._last.maxlen:
            del self._sorted[bisect_right(self._sorted, self._last[0]) - 1]
        self._last.append(delay)
        insort(self._sorted, delay)

    def share(self, age: int) -> float:
        """How likely an event is to have arrived by that age; one more is taken to be late."""
        return bisect_right(self._sorted, age) / (len(self._sorted) + 1)

    def age_for(self, share: float) -> int | None:
        """The least age with at least that share; None if there is none yet."""
        place = _ceiling(share * (len(self._sorted) + 1)) - 1
        return self._sorted[max(place, 0)] if place < len(self._sorted) else None

    def dump(self) -> list[int]:
        return list(self._last)


def _ceiling(value: float) -> int:
    whole = int(value)
    return whole if whole == value else whole + 1


class Sources:
    """What has been heard of each source, and so up to where events are stable."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._last: dict[str, int] = {}
        self._delays: dict[str, Delays] = {}
        if not isinstance(policy, BestEffort):
            for source in policy.sources:
                self.add(source)

    def add(self, source: str) -> None:
        """From now on wait for this source, which may have sent anything."""
        self._last.setdefault(source, -END_OF_TIME)

    def remove(self, source: str) -> None:
        """Wait for this source no longer."""
        self._last.pop(source, None)
        self._delays.pop(source, None)

    def hear(self, source: str, high: int) -> None:
        """The source will send nothing with an upper end before that."""
        if high > self._last.get(source, -END_OF_TIME - 1):
            self._last[source] = high

    def delayed(self, source: str, high: int, now: int) -> None:
        """An event of the source arrived at `now`."""
        if isinstance(self._policy, Probabilistic):
            delays = self._delays.get(source)
            if delays is None:
                delays = self._delays[source] = Delays(self._policy.remembered)
            delays.add(max(now - high, 0))

    @property
    def stable_before(self) -> int:
        """Events whose upper end lies before that are stable."""
        return min(self._last.values(), default=-END_OF_TIME)

    @property
    def known(self) -> frozenset[str]:
        return frozenset(self._last)

    @property
    def slowest(self) -> str | None:
        return min(self._last, key=self._last.__getitem__, default=None)

    def likely_before(self, now: int, oldest: int) -> int:
        """The same where it is likely enough; `oldest` is the upper end of what waits longest."""
        stable = self.stable_before
        if not isinstance(self._policy, Probabilistic) or oldest < stable:
            return stable
        if self._likelihood(oldest, now) < self._policy.threshold:
            return stable
        # Younger events may be likely enough as well, each by itself; the next call tells.
        return oldest + 1

    def _likelihood(self, high: int, now: int) -> float:
        product = 1.0
        for source, last in self._last.items():
            if last <= high:
                delays = self._delays.get(source)
                product *= 0.0 if delays is None else delays.share(now - high)
        return product

    def wake_for(self, oldest: int) -> int | None:
        """When the oldest waiting event may have become likely enough; None if it never does."""
        if not isinstance(self._policy, Probabilistic):
            return None
        behind = [s for s, last in self._last.items() if last <= oldest]
        if not behind:
            return None
        share = self._policy.threshold ** (1 / len(behind))
        ages = [self._delays[s].age_for(share) if s in self._delays else None for s in behind]
        known = [age for age in ages if age is not None]
        return oldest + max(known) if len(known) == len(ages) else None

    def dump(self) -> tuple[Any, ...]:
        return self._last, {source: each.dump() for source, each in self._delays.items()}

    def load(self, state: tuple[Any, ...]) -> None:
        self._last = dict(state[0])
        remembered = getattr(self._policy, "remembered", 1)
        self._delays = {s: Delays(remembered, delays) for s, delays in state[1].items()}
