"""Which notifications were seen: an exact memory of ids in little space.

Ids of one producer sort in publication order, epochs included, and mostly they arrive in that
order. So what was seen of a producer is a few intervals of consecutive ids. Epoch and sequence
number are joined into one integer, and a producer's memory is one flat list

    [floor, start, end, start, end, ...]        ends exclusive, everything ascending

in which a bisection tells by parity whether an id lies inside an interval or in a gap between two.

Memory is bounded by giving up precision, oldest first, and always on the safe side: what can no
longer be told apart counts as seen, so it is never taken for new.

- A producer with more than `max_intervals` intervals has its lowest one drowned by the floor.
  All below the floor counts as seen. Old epochs are the lowest ids, so they go under first.
- All producers together have at most half as many intervals again as `max_total`: from time to
  time those with more than their fair share of it are cut down to that.
- Of all but the `max_recent` producers added last, only the newest id is kept, as the floor.
- Of all but `max_resting` of those, nothing is kept. This is the one case in which an id could be
  taken for new a second time: it comes again after at least `max_recent + max_resting` other
  producers were heard and its own was silent. `forgotten` counts such producers. The alternative,
  to be deaf to every new producer from then on, would be worse.

Where something else already keeps ordinary repeats away and a loss would be worse than a repeat,
`forget_as_new` turns this around: what can no longer be told apart counts as new. The lowest
intervals then simply go, an eighth of them at a time so that this costs little, and so do the
producers that were silent longest; there is no floor and nobody rests.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from stentor.errors import InvalidConfiguration, InvalidValue
from stentor.model.identity import NotificationId

#: Intervals that are kept of one producer. A filter that takes every other event of a stream leaves
#: one for each, so this is how far behind the newest one an event may come.
MAX_INTERVALS: Final = 16_384
#: Intervals that are kept of all producers, and how many each may have in any case.
MAX_TOTAL: Final = 65_536
FAIR_SHARE: Final = 64
#: Producers of which intervals are kept.
MAX_RECENT: Final = 10_000
#: Producers of which the newest id is kept in addition.
MAX_RESTING: Final = 100_000

_SEQUENCE_BITS: Final = 63
_SEQUENCES: Final = (1 << _SEQUENCE_BITS) - 1


class SeenIds:
    """A set of notification ids that needs little memory and never forgets in favor of the new.

    >>> seen = SeenIds()
    >>> seen.add(NotificationId("sensor-7", 0, 0)), seen.add(NotificationId("sensor-7", 0, 0))
    (True, False)
    >>> NotificationId("sensor-7", 0, 1) in seen
    False
    """

    __slots__ = (
        "_forget_as_new",
        "_grown",
        "_max_intervals",
        "_max_recent",
        "_max_resting",
        "_max_total",
        "_packed",
        "_recent",
        "_resting",
        "closed",
        "forgotten",
    )

    def __init__(
        self,
        *,
        max_intervals: int = MAX_INTERVALS,
        max_recent: int = MAX_RECENT,
        max_resting: int = MAX_RESTING,
        max_total: int = MAX_TOTAL,
        forget_as_new: bool = False,
    ) -> None:
        if max_intervals < 1 or max_recent < 1 or max_resting < 0:
            raise InvalidConfiguration(
                "a memory of seen ids needs room for at least one interval of one producer; "
                f"it was given {max_intervals} intervals, {max_recent} producers"
            )
        self._max_intervals = max_intervals
        self._max_recent = max_recent
        self._max_resting = max_resting
        self._max_total = max_total
        self._forget_as_new = forget_as_new
        #: Intervals that came up since all were last counted.
        self._grown = 0
        self._recent: OrderedDict[str, list[int]] = OrderedDict()
        #: Of those that have not changed since, what `packed` has made.
        self._packed: dict[str, msgspec.Raw] = {}
        self._resting: OrderedDict[str, int] = OrderedDict()
        #: How often a floor rose over ids that may never have been seen; with `forget_as_new`, how
        #: many intervals were forgotten.
        self.closed = 0
        #: Producers of which nothing is known any more.
        self.forgotten = 0

    def __contains__(self, id: NotificationId) -> bool:
        bounds = self._recent.get(id.producer)
        if bounds is not None:
            return bisect_right(bounds, _code(id)) % 2 == 0
        return _code(id) < self._resting.get(id.producer, 0)

    def too_old(self, id: NotificationId) -> bool:
        """Whether the id lies below the floor: it counts as seen, whether or not it was."""
        bounds = self._recent.get(id.producer)
        return _code(id) < (self._resting.get(id.producer, 0) if bounds is None else bounds[0])

    @property
    def producers(self) -> int:
        """Producers of which something is known."""
        return len(self._recent) + len(self._resting)

    def add(self, id: NotificationId) -> bool:
        """Note that the id was seen; False if it was before, or counts as such."""
        bounds = self._of(id.producer)
        code = _code(id)
        if bounds[-1] == code and len(bounds) > 1:  # next in order: by far the most frequent
            bounds[-1] = code + 1
            return True
        i = bisect_right(bounds, code)
        if i % 2 == 0:
            return False
        touches_lower = i > 1 and bounds[i - 1] == code
        touches_upper = i < len(bounds) and bounds[i] == code + 1
        if touches_lower and touches_upper:
            del bounds[i - 1 : i + 1]
        elif touches_lower:
            bounds[i - 1] = code + 1
        elif touches_upper:
            bounds[i] = code
        else:
            bounds[i:i] = (code, code + 1)
            self._trim(bounds)
        return True

    def add_all(self, ids: Sequence[NotificationId]) -> list[int]:
        """Note that all these were seen; the indexes of those that were before, or repeat here.

        >>> seen = SeenIds()
        >>> ids = [NotificationId("sensor-7", 0, i) for i in (0, 1, 1, 2)]
        >>> seen.add_all(ids), seen.add_all(ids)
        ([2], [0, 1, 2, 3])
        """
        repeats: list[int] = []
        producer: str | None = None
        bounds: list[int] = []
        for i, id in enumerate(ids):
            if id.producer != producer:
                producer = id.producer
                bounds = self._of(producer)
            code = id.epoch << _SEQUENCE_BITS | id.sequence
            if bounds[-1] == code and len(bounds) > 1:
                bounds[-1] = code + 1
            elif bounds[-1] < code:  # behind a gap, as a filter leaves them
                bounds += (code, code + 1)
                if len(bounds) // 2 > self._max_intervals or self._grown >= self._max_total // 2:
                    self._trim(bounds)
                else:
                    self._grown += 1
            elif not self.add(id):
                repeats.append(i)
        return repeats

    def update(self, other: SeenIds) -> None:
        """Note that all ids were seen that another memory has intervals of.

        >>> ours, theirs = SeenIds(), SeenIds()
        >>> ours.add_all([NotificationId("sensor-7", 0, i) for i in (0, 1, 5)])
        []
        >>> theirs.add_all([NotificationId("sensor-7", 0, i) for i in (2, 3, 5)])
        []
        >>> ours.update(theirs)
        >>> [i for i in range(7) if NotificationId("sensor-7", 0, i) in ours]
        [0, 1, 2, 3, 5]
        """
        for producer, theirs in other._recent.items():
            bounds = self._of(producer)
            for start, end in zip(theirs[1::2], theirs[2::2], strict=True):
                start = max(start, bounds[0])
                i, j = bisect_left(bounds, start, 1), bisect_right(bounds, end, 1)
                if start < end:
                    bounds[i:j] = [start][: i % 2] + [end][: j % 2]
            self._trim(bounds)

    def discard(self, id: NotificationId) -> bool:
        """Take the id for unseen again; False if it is, or if it lies below the floor."""
        bounds = self._recent.get(id.producer)
        if bounds is None:
            return False
        code = _code(id)
        i = bisect_right(bounds, code)
        if i % 2 == 1 or i == 0:
            return False
        self._packed.pop(id.producer, None)
        starts, ends = bounds[i - 1] == code, bounds[i] == code + 1
        if starts and ends:
            del bounds[i - 1 : i + 1]
        elif starts:
            bounds[i - 1] = code + 1
        elif ends:
            bounds[i] = code
        else:
            bounds[i:i] = (code, code + 1)
            self._trim(bounds)
        return True

    def copy(self) -> SeenIds:
        """An independent memory of the same ids."""
        other = SeenIds(
            max_intervals=self._max_intervals,
            max_recent=self._max_recent,
            max_resting=self._max_resting,
            max_total=self._max_total,
            forget_as_new=self._forget_as_new,
        )
        other._recent.update((name, list(bounds)) for name, bounds in self._recent.items())
        other._resting.update(self._resting)
        other.closed, other.forgotten = self.closed, self.forgotten
        return other

    # -- bounds on memory

    def _of(self, producer: str) -> list[int]:
        """The producer's bounds; it is now the most recent one."""
        if self._packed:
            self._packed.pop(producer, None)
        bounds = self._recent.get(producer)
        if bounds is not None:
            self._recent.move_to_end(producer)
            return bounds
        bounds = self._recent[producer] = [self._resting.pop(producer, 0)]
        if len(self._recent) > self._max_recent:
            self._rest()
        return bounds

    def _trim(self, bounds: list[int]) -> None:
        """A new interval: let the floor drown the lowest ones until few enough are left."""
        self._drown(bounds, self._max_intervals)
        self._grown += 1
        if self._grown > self._max_total // 2:
            self._grown = 0
            if sum(len(each) // 2 for each in self._recent.values()) > self._max_total:
                self._packed.clear()
                share = max(FAIR_SHARE, self._max_total // len(self._recent))
                for each in self._recent.values():
                    self._drown(each, share)

    def _drown(self, bounds: list[int], limit: int) -> None:
        surplus = len(bounds) // 2 - limit
        if surplus > 0:
            if self._forget_as_new:
                surplus = min(surplus + limit // 8, len(bounds) // 2 - 1)
            else:
                bounds[0] = bounds[2 * surplus]
            del bounds[1 : 2 * surplus + 1]
            self.closed += surplus

    def _rest(self) -> None:
        """Keep only the newest id of the producer that was silent longest, or nothing."""
        producer, bounds = self._recent.popitem(last=False)
        self._packed.pop(producer, None)
        if bounds[-1] == 0:
            return  # all that was seen of it was discarded
        if self._forget_as_new:
            self.forgotten += 1
            return
        self.closed += len(bounds) // 2
        self._resting[producer] = bounds[-1]
        if len(self._resting) > self._max_resting:
            self._resting.popitem(last=False)
            self.forgotten += 1

    # -- plain data

    def to_data(self) -> dict[str, Any]:
        """Everything as lists, texts and 64-bit integers, to be stored with who has seen it.

        >>> seen = SeenIds()
        >>> seen.add(NotificationId("sensor-7", 3, 41))
        True
        >>> seen.to_data()["recent"]
        [['sensor-7', [[0, 0], [3, 41], [3, 42]]]]
        """
        return {
            "recent": [[name, _pairs(bounds)] for name, bounds in self._recent.items()],
            "resting": [[name, *_pairs([floor])] for name, floor in self._resting.items()],
            "closed": self.closed,
            "forgotten": self.forgotten,
        }

    def packed(self) -> dict[str, Any]:
        """The same for MessagePack, at the cost of the producers of which something has changed.

        >>> seen = SeenIds()
        >>> _ = seen.add(NotificationId("sensor-7", 3, 41))
        >>> packed = msgspec.msgpack.encode(seen.packed())
        >>> msgspec.msgpack.decode(packed) == seen.to_data()
        True
        """
        known = self._packed
        for name, bounds in self._recent.items():
            if name not in known:
                known[name] = msgspec.Raw(msgspec.msgpack.encode([name, _pairs(bounds)]))
        return {
            "recent": [known[name] for name in self._recent],
            "resting": [[name, *_pairs([floor])] for name, floor in self._resting.items()],
            "closed": self.closed,
            "forgotten": self.forgotten,
        }

    @classmethod
    def from_data(
        cls,
        data: Mapping[str, Any],
        *,
        max_intervals: int = MAX_INTERVALS,
        max_recent: int = MAX_RECENT,
        max_resting: int = MAX_RESTING,
        forget_as_new: bool = False,
    ) -> SeenIds:
        """What `to_data` wrote. The limits may be other ones; `InvalidValue` for other data."""
        self = cls(
            max_intervals=max_intervals,
            max_recent=max_recent,
            max_resting=max_resting,
            forget_as_new=forget_as_new,
        )
        try:
            for name, floor in data["resting"]:
                self._of(_checked(name))[0] = _joined(floor)
                self._rest()
            for name, pairs in data["recent"]:
                bounds = [_joined(pair) for pair in pairs]
                if len(bounds) % 2 == 0 or any(a > b for a, b in pairwise(bounds)):
                    raise ValueError(f"the intervals of {name!r} are not in order")
                if forget_as_new:
                    bounds[0] = 0
                self._of(_checked(name))[:] = bounds
                self._trim(self._recent[name])
            self.closed = int(data["closed"])
            self.forgotten = int(data["forgotten"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValue(
                f"this is not a stored memory of seen ids ({error}); restore it from a good copy"
            ) from error
        return self


def _code(id: NotificationId) -> int:
    """Epoch and sequence number as one integer; the order stays the same."""
    return id.epoch << _SEQUENCE_BITS | id.sequence


def _pairs(codes: list[int]) -> list[list[int]]:
    return [[code >> _SEQUENCE_BITS, code & _SEQUENCES] for code in codes]


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a producer is named by a text, not by {name!r}")
    return name


def _joined(pair: list[int]) -> int:
    epoch, sequence = pair
    if not (type(epoch) is type(sequence) is int and epoch >= 0 <= sequence):
        raise ValueError(f"{pair!r} is not an epoch and a sequence number")
    return epoch << _SEQUENCE_BITS | sequence
