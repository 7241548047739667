"""Plain runs: the runs of a pattern in short form, moved on by `steps`.

A partition whose runs are plain is a tuple: its key, then the one branch of each run, oldest first.
Most partitions have one run that waits for its second event; such a one is the first event itself,
which says all there is to know. Every run ends a fixed time after it was opened, so deadlines come
in the order in which runs are opened, and one queue has them for all partitions of the pattern.

What there is no step for takes the general form, `runs.Runs`, with the same branches, and keeps it
until the partition is empty. So do a partition with many runs, where runs are better found by their
states; a run with too many events; and a run whose deadline is earlier than that of an older one,
because what opened it came late. Both forms do the same; tests hold them equal.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, TypeAlias

from stentor.composite.compiled_conditions import passes_all
from stentor.composite.events import Occurrence
from stentor.composite.runs import LINK_BYTES, Branch, Machine, Runs
from stentor.composite.steps import FAILED, GENERAL, Step, Steps

#: The key, and the branches of the runs; or the event that has opened the only one.
Partition: TypeAlias = tuple[Any, ...] | Occurrence

#: Runs of a partition: to copy so many is quicker than to find them by their states.
MOST: Final = 100

#: About what the parts take, in bytes.
FIRST_BYTES: Final = 600
PARTITION_BYTES: Final = 250
RUN_BYTES: Final = 250


class PlainRuns:
    """All plain runs of a pattern."""

    __slots__ = (
        "_attributes",
        "_deadlines",
        "_deadlines_most",
        "_machine",
        "_most",
        "_most_events",
        "_registers",
        "_steps",
        "_table",
        "is_announced",
        "opening",
    )

    def __init__(
        self, machine: Machine, steps: Steps, attributes: tuple[str, ...], table: dict[Any, Any]
    ) -> None:
        """`table` has the partitions of the pattern by their tokens, whatever their form."""
        self._machine = machine
        self._steps = steps
        self._attributes = attributes
        self._table = table
        #: The bits of an event that always opens a run, and may stand for it; 0 if there is none.
        self.opening = 0
        bits = machine.opening
        if bits & (bits - 1) == 0 and isinstance(step := steps.opening[bits], Step):
            self.opening = bits if step.target >= 0 else 0
        self._most = min(MOST, machine.limits.runs)
        self._most_events = machine.limits.events
        #: The registers of a new run behind that of its deadline, which is the first.
        self._registers = machine.no_registers[1:] if steps.span else machine.no_registers
        #: When runs end, and in which partition; some may be complete since.
        self._deadlines: deque[tuple[int, Any]] = deque()
        self._deadlines_most = 1_024
        #: Whether the detector knows of the first deadline.
        self.is_announced = False

    # -- events

    def open(self, token: Any, event: Occurrence) -> bool:
        """Open a run in a new partition, by an event whose bits are `opening`; whether it was."""
        span = self._steps.span
        if span:
            deadlines, deadline = self._deadlines, event[0] + span
            if deadlines and deadline < deadlines[-1][0]:
                return False
            if len(deadlines) > self._deadlines_most:
                self._clean()
                deadlines = self._deadlines
            deadlines.append((deadline, token))
        self._table[token] = event
        return True

    def _grown(self, event: Occurrence) -> tuple[Any, ...]:
        """A partition that is the event that has opened its run, in full."""
        key = tuple(event[4].facts[name] for name in self._attributes)
        return key, self._opened(self._steps.opening[self.opening], event)

    def _opened(self, step: Step, event: Occurrence) -> Branch:
        high, low = event[0], event[1]
        span = self._steps.span
        registers = (high + span, *self._registers) if span else self._registers
        return step[1], low, high, registers, (None, step[0], event), 1

    def consume(
        self,
        partition: Partition | None,
        token: Any,
        key: tuple[Any, ...],
        event: Occurrence,
        bits: int,
    ) -> Any:
        """Offer an event to a partition, which may be a new one: the branch that is complete by it,
        None, or `GENERAL` and no change.
        """
        steps = self._steps
        before = partition
        if partition is not None:
            if partition.__class__ is Occurrence:
                partition = before = self._grown(partition)
            if steps.span and partition[1][3][0] < event[0]:
                partition = self._alive(partition, event[0])
            if bits & steps.later and len(partition) > 1:
                found = self._offered(partition, event, bits)
                if found is GENERAL:
                    return GENERAL
                done, is_used, partition = found
                if is_used:
                    self._put(token, partition)
                    return done
        step = steps.opening[bits]
        if step is None or step is FAILED:
            if partition is not before:
                self._put(token, partition)
            return None
        if step is GENERAL:
            return GENERAL
        branch = self._opened(step, event)
        if branch[0] < 0:
            if partition is not before:
                self._put(token, partition)
            return branch
        if partition is not None and len(partition) > self._most:
            return GENERAL
        if steps.span:
            deadline, deadlines = branch[3][0], self._deadlines
            if deadlines:
                if deadline < deadlines[-1][0]:
                    return GENERAL
                if len(deadlines) > self._deadlines_most:
                    self._clean()
                    deadlines = self._deadlines
            deadlines.append((deadline, token))
        self._table[token] = (key, branch) if partition is None else (*partition, branch)
        return None

    def _offered(self, partition: tuple[Any, ...], event: Occurrence, bits: int) -> Any:
        """What is complete, whether a run has used the event, and the runs after that."""
        by_state, high, low = self._steps.by_state, event[0], event[1]
        place = 1
        while place < len(partition):
            state, first, last, registers, chain, length = branch = partition[place]
            step = by_state[state][bits]
            if step is None:
                place += 1
                continue
            if step is GENERAL or length >= self._most_events:
                return GENERAL
            if step is not FAILED:
                names, target, is_strict, tests, otherwise = step
                link = (chain, names, event)
                if tests and not passes_all(tests, link):
                    if otherwise is None:
                        place += 1
                        continue
                elif low > last if is_strict else high > last or (high == last and low > first):
                    if first < low:
                        low = first
                    if last > high:
                        high = last
                    branch = (target, low, high, registers, link, length + 1)
                    if target < 0:
                        return branch, True, partition[:place] + partition[place + 1 :]
                    return None, True, (*partition[:place], branch, *partition[place + 1 :])
            partition = partition[:place] + partition[place + 1 :]
        return None, False, partition

    def _put(self, token: Any, partition: tuple[Any, ...] | None) -> None:
        if partition is not None and len(partition) > 1:
            self._table[token] = partition
        else:
            del self._table[token]

    # -- time

    @property
    def next_deadline(self) -> int | None:
        """No run ends before that."""
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, before: int) -> None:
        """End the runs whose time was over before that moment."""
        deadlines, table, span = self._deadlines, self._table, self._steps.span
        while deadlines and deadlines[0][0] < before:
            token = deadlines.popleft()[1]
            partition = table.get(token)
            if partition.__class__ is Occurrence:
                if partition[0] + span < before:
                    del table[token]
            elif partition.__class__ is tuple and partition[1][3][0] < before:
                self._put(token, self._alive(partition, before))

    def _alive(self, partition: tuple[Any, ...], now: int) -> tuple[Any, ...]:
        return (partition[0], *[branch for branch in partition[1:] if branch[3][0] >= now])

    def _clean(self) -> None:
        """Without the deadlines of runs that are complete."""
        found = [
            (branch[3][0], token)
            for token, partition in self._table.items()
            if not isinstance(partition, Runs)
            for branch in self._full(partition)[1:]
        ]
        found.sort(key=_deadline)
        self._deadlines = deque(found)
        self._deadlines_most = 2 * len(found) + 1_024

    # -- the other form

    def general(self, token: Any, key: tuple[Any, ...]) -> Runs:
        """The runs of a partition in general form; it may be a new one."""
        partition = self._table.get(token)
        if partition is None:
            return Runs(self._machine, key)
        first, state = self.dump(partition)
        runs = Runs(self._machine, first)
        runs.load(state)
        return runs

    def _full(self, partition: Partition) -> tuple[Any, ...]:
        return self._grown(partition) if isinstance(partition, Occurrence) else partition

    def dump(self, partition: Partition) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The key of a partition, and its runs as `Runs.dump` has them."""
        key, *branches = self._full(partition)
        runs = [(serial, [branch]) for serial, branch in enumerate(branches, 1)]
        return key, (len(runs), 0, False, runs)

    def short(self, key: tuple[Any, ...], state: tuple[Any, ...]) -> Partition | None:
        """The runs of a dump in short form; None if they do not take it."""
        opened, dropped, is_over, runs = state
        if dropped or is_over or not 0 < opened == len(runs) <= self._most:
            return None
        partition: tuple[Any, ...] = (key,)
        for number, (serial, branches) in enumerate(runs, 1):
            if serial != number or len(branches) != 1 or not self._steps.fits(branches[0][0]):
                return None
            partition += (branches[0],)
        if self._steps.span:
            deadlines = [branch[3][0] for branch in partition[1:]]
            if deadlines != sorted(deadlines):
                return None
        return partition

    def loaded(self) -> None:
        """Partitions were put into the table."""
        if self._steps.span:
            self._clean()


def _deadline(pair: tuple[int, Any]) -> int:
    return pair[0]


def size(partition: Partition) -> tuple[int, int, int]:
    """How many runs there are, how many events they hold on to, and about how many bytes they take
    themselves.
    """
    if isinstance(partition, Occurrence):
        return 1, 1, FIRST_BYTES
    events = sum(branch[5] for branch in partition[1:])
    own = PARTITION_BYTES + RUN_BYTES * (len(partition) - 1)
    return len(partition) - 1, events, own + LINK_BYTES * events
