"""The ordering qualities of service: FIFO, causal, total (algorithms A-4 to A-6).

Each order is a further safety property, and none follows from the basic service. An order never
asks for a delivery, it only forbids some: what a consumer did not subscribe to leaves a gap, and a
gap is fine. Each function here takes the history of a run and finds the deliveries that break its
order, by the whole history up to and including them.

*Causal.* A notification's past is what its publisher had published or been notified of before, and
the pasts of those. Sets of ancestors would grow with the square of the run, so each component has a
vector clock instead: for every publisher, how many of its publications lie in the past. That is
enough, since the past holds with one publication all earlier ones of the same component. For
each consumer we keep the largest clock among those of the notifications delivered so far; a
notification that lies below it comes too late.

*Causal as printed.* Eq 2.4 builds chains from deliveries alone, and a component's earlier
publications do not count. The past is then no longer closed under earlier publications, but it is
closed under earlier deliveries: it is a union of what some components had been notified of up to
some point. So here the clocks count deliveries.

*Total.* The orders in which components were notified, taken together, are a graph: an edge from
each delivery to the next one of the same component. It has no cycle exactly if one order fits all.
Only if there is a cycle can two components contradict each other directly, so only then are pairs
of components compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stentor.model import NotificationId
from stentor.semantics.actions import Notify, Pub
from stentor.semantics.history import History
from stentor.semantics.violations import Condition, Violation

_Clock: TypeAlias = NDArray[np.int32]
_Deliveries: TypeAlias = Sequence[tuple[int, Notify]]


def fifo(history: History) -> Iterator[Violation]:
    """One producer's notifications come in the order in which it published them.

    What is to be delivered later has no place in it.
    """
    published: dict[NotificationId, tuple[str, int]] = {}
    newest: dict[tuple[str, str], tuple[int, NotificationId]] = {}
    for position, action in history:
        id = action.id
        if isinstance(action, Pub):
            if action.notification.deliver_at is None:
                published[id] = (action.component, position)
            continue
        if id not in published:
            continue
        producer, at = published[id]
        stream = (producer, action.component)
        if stream not in newest or newest[stream][0] < at:
            newest[stream] = (at, id)
            continue
        later_at, later = newest[stream]
        why = (
            f"{_told(action, later, position)}, but {producer} published {id} "
            f"at action {at} and {later} at action {later_at}"
        )
        yield Violation(Condition.FIFO, position, action, why)


class _Frontier:
    """The largest clock, entry by entry, among those of what one component was notified of."""

    __slots__ = ("_whose", "clock")

    def __init__(self, width: int) -> None:
        self.clock: _Clock = np.zeros(width, np.int32)
        self._whose = np.zeros(width, np.int64)

    def advance(self, clock: _Clock, position: int) -> None:
        """Take in the clock of the notification that was delivered at a position."""
        higher = clock > self.clock
        self.clock[higher] = clock[higher]
        self._whose[higher] = position

    def whose(self, entry: int) -> int:
        """Where the notification was delivered that an entry comes from."""
        return int(self._whose[entry])


def causal(history: History) -> Iterator[Violation]:
    """Nothing is delivered after what it happened before."""
    publishers = _publishers(history)
    width = len(publishers)
    # `heard` leaves a publisher's own publications out, which `count` has. Its arrays are replaced,
    # never changed, so that all publications between two deliveries share one.
    heard: list[_Clock] = [np.zeros(width, np.int32)] * width
    count = [0] * width
    stamps: dict[NotificationId, tuple[int, int, _Clock]] = {}
    frontiers: defaultdict[str, _Frontier] = defaultdict(lambda: _Frontier(width))
    delivered: dict[int, NotificationId] = {}
    for position, action in history:
        if isinstance(action, Pub):
            publisher = publishers[action.component]
            count[publisher] += 1
            stamps[action.id] = (publisher, count[publisher], heard[publisher])
            continue
        producer, serial, past = stamps[action.id]
        delivered[position] = action.id
        frontier = frontiers[action.component]
        if frontier.clock[producer] >= serial:
            overtaker = delivered[frontier.whose(producer)]
            yield _overtaken(Condition.CAUSAL, action, overtaker, position)
        ancestors = past.copy()
        ancestors[producer] = serial - 1
        frontier.advance(ancestors, position)
        consumer = publishers.get(action.component)
        if consumer is not None:
            known = np.maximum(heard[consumer], past)
            known[producer] = max(known[producer], serial)
            heard[consumer] = known


def causal_printed(history: History) -> Iterator[Violation]:
    """The same, with a past that holds only what was delivered to its publishers (Eq 2.4)."""
    publishers = _publishers(history)
    width = len(publishers)
    known: list[_Clock] = [np.zeros(width, np.int32)] * width
    stamps: dict[NotificationId, _Clock] = {}
    # As which of its deliveries each publisher was notified.
    ranks: defaultdict[NotificationId, dict[int, int]] = defaultdict(dict)
    frontiers: defaultdict[str, _Frontier] = defaultdict(lambda: _Frontier(width))
    delivered: dict[int, NotificationId] = {}
    for position, action in history:
        id = action.id
        if isinstance(action, Pub):
            stamps[id] = known[publishers[action.component]]
            continue
        delivered[position] = id
        frontier = frontiers[action.component]
        for receiver, rank in ranks[id].items():
            if rank <= frontier.clock[receiver]:
                overtaker = delivered[frontier.whose(receiver)]
                yield _overtaken(Condition.CAUSAL_PRINTED, action, overtaker, position)
                break
        frontier.advance(stamps[id], position)
        consumer = publishers.get(action.component)
        if consumer is not None:
            ranks[id][consumer] = int(known[consumer][consumer]) + 1
            known[consumer] = np.maximum(known[consumer], stamps[id])
            known[consumer][consumer] = ranks[id][consumer]


def total_pairwise(history: History) -> Iterator[Violation]:
    """No two components are notified of two notifications in opposite orders (Eq 2.5).

    A delivery is at fault if it completes such a pair of pairs.
    """
    deliveries = _deliveries(history)
    if _cycle(deliveries) is None:
        return
    ranks: dict[NotificationId, dict[str, int]] = {}
    count: dict[str, int] = {}
    # For two components, what the second was notified of last among what both were notified of.
    newest: dict[tuple[str, str], tuple[int, NotificationId]] = {}
    for position, action in deliveries:
        id, component = action.id, action.component
        mine = count[component] = count.get(component, 0) + 1
        contradiction: tuple[str, NotificationId] | None = None
        others = ranks.setdefault(id, {})
        for other, rank in others.items():
            seen = newest.get((component, other))
            if seen is None or seen[0] < rank:
                newest[component, other] = (rank, id)
            elif contradiction is None:
                contradiction = (other, seen[1])
            newest[other, component] = (mine, id)
        others[component] = mine
        if contradiction is not None:
            other, earlier = contradiction
            why = f"{_told(action, earlier, position)}, but {other} of {id} before {earlier}"
            yield Violation(Condition.TOTAL_PAIRWISE, position, action, why)


def total_global(history: History) -> Iterator[Violation]:
    """One order of all notifications fits what every component was notified of.

    Only the first delivery is reported after which there is none.
    """
    deliveries = _deliveries(history)
    if _cycle(deliveries) is None:
        return
    # The graph only grows, so a cycle that is there stays.
    prefix = bisect_left(
        range(len(deliveries)), True, key=lambda size: _cycle(deliveries[:size]) is not None
    )
    position, action = deliveries[prefix - 1]
    cycle = _cycle(deliveries[:prefix])
    assert cycle is not None
    edges = dict(_edges(deliveries[:prefix]))
    steps = [
        f"{edges[before, after]} was notified of {before} before {after}"
        for before, after in pairwise(cycle)
    ]
    why = f"no order of all notifications fits any more: {', '.join(steps)}"
    yield Violation(Condition.TOTAL_GLOBAL, position, action, why)


#: The orders that can be asked for, by name.
ORDERS: Final[dict[str, Callable[[History], Iterator[Violation]]]] = {
    "fifo": fifo,
    "causal": causal,
    "causal_printed": causal_printed,
    "total_pairwise": total_pairwise,
    "total_global": total_global,
}


def _publishers(history: History) -> dict[str, int]:
    """The components whose actions a clock has to count, numbered."""
    numbers: dict[str, int] = {}
    for _, action in history:
        if isinstance(action, Pub):
            numbers.setdefault(action.component, len(numbers))
    return numbers


def _deliveries(history: History) -> _Deliveries:
    return [(position, action) for position, action in history if isinstance(action, Notify)]


def _edges(
    deliveries: _Deliveries,
) -> Iterator[tuple[tuple[NotificationId, NotificationId], str]]:
    last: dict[str, NotificationId] = {}
    for _, action in deliveries:
        before = last.get(action.component)
        if before is not None:
            yield (before, action.id), action.component
        last[action.component] = action.id


def _cycle(deliveries: _Deliveries) -> list[NotificationId] | None:
    """Notifications each of which was delivered right before the next; the first is the last."""
    graph: TopologicalSorter[NotificationId] = TopologicalSorter()
    for (before, after), _ in _edges(deliveries):
        graph.add(after, before)
    try:
        graph.prepare()
    except CycleError as error:
        cycle: list[NotificationId] = error.args[1]
        return cycle
    return None


def _told(action: Notify, earlier: NotificationId, position: int) -> str:
    return f"{action.component} was notified of {action.id} at action {position}, after {earlier}"


def _overtaken(
    condition: Condition, action: Notify, overtaker: NotificationId, position: int
) -> Violation:
    why = f"{_told(action, overtaker, position)}, but {action.id} happened before {overtaker}"
    return Violation(condition, position, action, why)
