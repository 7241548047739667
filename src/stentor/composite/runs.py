"""Runs of an automaton: how events move it on (06/A1).

`Runs` is everything that one pattern remembers in one partition. A *run* is opened by an event that
can leave the initial state, and consists of *branches*, the ways to read what it has consumed. A
branch is a tuple:

    state      where it is
    low, high  the hull of what it has consumed
    registers  floors, deadlines, values seen, hulls of sides; see `automaton`
    chain      what it has consumed, newest first: (chain before, names, occurrence), or None
    length     how many events these are

Branches share the beginning of their chains, so one more event costs one more link, whatever has
been consumed before.

An event is offered to the runs in the order of their age. Those that could have any use for it are
found by their states, so runs that wait for something else cost nothing. The first that consumes it
uses it up. A run ends when one of its branches is complete, and then the one with the most events
is told of; or when its last branch has failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from stentor.composite.automaton import Automaton, Edge, Outcome, State
from stentor.composite.compiled_conditions import Chain, passes_all, test_of_all
from stentor.composite.events import Occurrence, SubEvent
from stentor.composite.expressions import due
from stentor.composite.pattern import key_token
from stentor.composite.residuals import Guards
from stentor.composite.steps import Steps
from stentor.errors import DetectorFull
from stentor.model import Notification

Registers: TypeAlias = tuple[Any, ...]
Branch: TypeAlias = tuple[int, int, int, Registers, Chain, int]

#: What a time event is, to an automaton.
_TIME: Final = Notification({"time": True})


#: About what the parts of runs take, in bytes; `bench/composite.py` shows it beside what Python
#: says they take.
RUNS_BYTES: Final = 900
RUN_BYTES: Final = 320
BRANCH_BYTES: Final = 250
LINK_BYTES: Final = 300


class Limits(NamedTuple):
    """How much a detector may remember.

    When a limit is reached, `oldest` gives up the oldest run (or branch) for the new one, `newest`
    goes without the new one, and `raise` is a `DetectorFull`.
    """

    #: Partitions of a pattern that have runs, and runs of a partition.
    partitions: int = 100_000
    runs: int = 10_000
    branches: int = 64
    #: Events of one run; a run that has more is given up.
    events: int = 10_000
    #: Events that are held back until they are stable. Beyond it the oldest are consumed.
    waiting: int = 100_000
    when_full: str = "oldest"


DEFAULTS: Final = Limits()


class Run:
    """The branches that one event has opened."""

    __slots__ = ("branches", "serial")

    def __init__(self, serial: int, branches: list[Branch]) -> None:
        self.serial = serial
        self.branches = branches


class Found(NamedTuple):
    """What a complete branch has consumed, and when that was."""

    low: int
    high: int
    events: tuple[SubEvent, ...]


class Runs:
    """All runs of an automaton in one partition."""

    __slots__ = (
        "_sorted",
        "announced",
        "dropped",
        "is_over",
        "key",
        "machine",
        "opened",
        "runs",
        "timers",
        "waiting",
    )

    def __init__(self, machine: Machine, key: tuple[Any, ...] = ()) -> None:
        self.machine = machine
        #: The values that its events have in common.
        self.key = key
        #: By serial number, which rises with the age of what opened them.
        self.runs: dict[int, Run] = {}
        #: For each state, the runs that have a branch there.
        self.waiting: dict[int, dict[int, Run]] = {}
        self._sorted: dict[int, int] = {}
        #: When timers may go off, and of which run; some may have ended since.
        self.timers: list[tuple[int, int]] = []
        #: The deadline that the detector knows of.
        self.announced: int | None = None
        self.opened = 0
        #: Runs and branches that were given up at a limit.
        self.dropped = 0
        #: Whether a detection that is made once has been made, or has failed.
        self.is_over = False
        if machine.is_one_shot and not machine.is_window:
            start = [(i, 0, 0, machine.no_registers, None, 0) for i in machine.automaton.initial]
            self._keep(Run(-1, start))

    # -- time

    @property
    def next_deadline(self) -> int | None:
        """When the next timer goes off."""
        timers = self.timers
        while timers:
            deadline, serial = timers[0]
            run = self.runs.get(serial)
            if run is not None and any(
                deadline == at for b in run.branches for at, _, _ in self.machine.timers(b)
            ):
                return deadline
            heappop(timers)
        return None

    def expire(self, before: int) -> list[Found]:
        """What is complete because timers have gone off before that moment."""
        found: list[Found] = []
        while (deadline := self.next_deadline) is not None and deadline < before:
            serials = set()
            while self.timers and self.timers[0][0] == deadline:
                serials.add(heappop(self.timers)[1])
            for serial in sorted(serials):
                run = self.runs.get(serial)
                if run is None:
                    continue
                done: list[Branch] = []
                branches: list[Branch] = []
                for branch in run.branches:
                    branches += self.machine.fire(branch, deadline, done)
                self._settle(run, branches, done, found)
        return found

    # -- events

    def consume(self, event: Occurrence, bits: int) -> list[Found]:
        """What is complete by this event."""
        machine = self.machine
        found: list[Found] = []
        if self.waiting:
            states = machine.states
            if machine.is_window:
                for serial in sorted(self.runs):
                    if serial in self.runs:  # it may have been ended by another that consumes
                        self._offer(self.runs[serial], event, bits, found)
                if found and machine.automaton.is_consuming:
                    self._clear()
                    return found
            else:
                concerned = [i for i in self.waiting if states[i].domain & bits]
                if concerned and self._offered(concerned, event, bits, found):
                    return found
        if bits & machine.opening and (machine.is_window or not machine.is_one_shot):
            self._open(event, bits, found)
            if found and machine.automaton.is_consuming:
                self._clear()
        if found and machine.is_one_shot:
            self.is_over = True
        return found

    def _offered(
        self, concerned: list[int], event: Occurrence, bits: int, found: list[Found]
    ) -> bool:
        """Whether one of the runs in these states has used the event, the oldest first."""
        if len(concerned) == 1:
            queue = self._queue(concerned[0])
        else:
            queue = sorted({s for i in concerned for s in self.waiting[i]})
        return any(self._offer(self.runs[serial], event, bits, found) for serial in queue)

    def _queue(self, state: int) -> Any:
        """The runs in a state by their age; a run that has used an event is not asked again."""
        queue = self.waiting[state]
        if self._sorted[state] < 0:
            queue = self.waiting[state] = dict(sorted(queue.items()))
            self._sorted[state] = next(reversed(queue))
        if len(queue) == 1:
            return tuple(queue)
        return _ahead(queue)

    def _offer(self, run: Run, event: Occurrence, bits: int, found: list[Found]) -> bool:
        machine = self.machine
        branches = run.branches
        done: list[Branch] = []
        if len(branches) == 1:
            moved = machine.move(branches[0], event, bits, done)
            if moved is None:
                return False
            used = bool(moved or done)
            self._settle(run, moved, done, found)
            return used
        kept: list[Branch] = []
        used = changed = False
        for branch in branches:
            moved = machine.move(branch, event, bits, done)
            if moved is None:
                kept.append(branch)
            else:
                changed = True
                kept += moved
                used = used or bool(moved)
        if changed:
            self._settle(run, kept, done, found)
        return used or bool(done)

    def _open(self, event: Occurrence, bits: int, found: list[Found]) -> None:
        machine = self.machine
        done: list[Branch] = []
        branches: list[Branch] = []
        for state in machine.automaton.initial:
            start = (state, 0, 0, machine.no_registers, None, 0)
            branches += machine.move(start, event, bits, done) or ()
        if done:
            found.append(_told(done))
        elif branches:
            if len(self.runs) >= machine.limits.runs and not self._make_room():
                return
            self.opened += 1
            self._keep(Run(self.opened, self._within_limits(branches)))

    # -- keeping

    def _settle(
        self, run: Run, branches: list[Branch], done: list[Branch], found: list[Found]
    ) -> None:
        """The run goes on with these branches, unless it is complete or has failed."""
        self._leave(run)
        if done:
            found.append(_told(done))
            self.is_over = self.is_over or self.machine.is_one_shot
        elif branches:
            run.branches = self._within_limits(branches)
            if run.branches[0][5] > self.machine.limits.events:
                self.dropped += 1
                self.machine.full("events of a run", self.machine.limits.events)
            else:
                self._keep(run)
        elif self.machine.is_one_shot and not self.machine.is_window:
            self.is_over = True  # a window that does not match is no failure

    def _within_limits(self, branches: list[Branch]) -> list[Branch]:
        if len(branches) == 1:
            return branches
        distinct = _distinct(branches)
        limit = self.machine.limits.branches
        if len(distinct) > limit:
            self.dropped += len(distinct) - limit
            self.machine.full("branches of a run", limit)
            is_oldest = self.machine.limits.when_full == "oldest"
            distinct = distinct[-limit:] if is_oldest else distinct[:limit]
        return distinct

    def _make_room(self) -> bool:
        self.dropped += 1
        self.machine.full("runs of a partition", self.machine.limits.runs)
        if self.machine.limits.when_full != "oldest":
            return False
        self._leave(self.runs[min(self.runs)])
        return True

    def _keep(self, run: Run) -> None:
        serial = run.serial
        self.runs[serial] = run
        machine = self.machine
        for branch in run.branches:
            state = branch[0]
            queue = self.waiting.get(state)
            if queue is None:
                self.waiting[state] = {serial: run}
                self._sorted[state] = serial
            elif serial not in queue:
                newest = self._sorted[state]
                self._sorted[state] = serial if -1 < newest < serial else -2
                queue[serial] = run
            if machine.has_timers:
                for at, _, _ in machine.timers(branch):
                    heappush(self.timers, (at, serial))
        if len(self.timers) > 4 * len(self.runs) + 64:
            self._clean_timers()

    def _leave(self, run: Run) -> None:
        serial = run.serial
        self.runs.pop(serial, None)
        for branch in run.branches:
            queue = self.waiting.get(branch[0])
            if queue is not None:
                queue.pop(serial, None)
                if not queue:
                    del self.waiting[branch[0]]
                    del self._sorted[branch[0]]

    def _clear(self) -> None:
        self.runs.clear()
        self.waiting.clear()
        self._sorted.clear()
        self.timers.clear()

    def _clean_timers(self) -> None:
        """Without those of runs that have ended."""
        timers = self.machine.timers
        self.timers = [
            (at, run.serial)
            for run in self.runs.values()
            for branch in run.branches
            for at, _, _ in timers(branch)
        ]
        heapify(self.timers)

    def size(self) -> tuple[int, int]:
        """How many events the runs hold on to, and how many bytes they take themselves."""
        links: set[int] = set()
        branches = registers = 0
        for run in self.runs.values():
            for branch in run.branches:
                branches += 1
                registers += len(branch[3])
                chain = branch[4]
                while chain is not None and id(chain) not in links:
                    links.add(id(chain))
                    chain = chain[0]
        bytes_ = (
            RUNS_BYTES
            + RUN_BYTES * len(self.runs)
            + BRANCH_BYTES * branches
            + 8 * registers
            + LINK_BYTES * len(links)
            + 72 * len(self.timers)
        )
        return len(links), bytes_

    # -- as plain data

    def dump(self) -> tuple[Any, ...]:
        """Everything, in lists and tuples; occurrences as they are."""
        runs = [(serial, self.runs[serial].branches) for serial in sorted(self.runs)]
        return self.opened, self.dropped, self.is_over, runs

    def load(self, state: tuple[Any, ...]) -> None:
        """Take over what `dump` gave."""
        self._clear()
        self.opened, self.dropped, self.is_over, runs = state
        for serial, branches in runs:
            self._keep(Run(serial, list(branches)))


def _ahead(queue: dict[int, Run]) -> Iterator[int]:
    """The serial numbers in a queue that loses those that were asked."""
    first = next(iter(queue))
    yield first
    if queue:
        yield from [serial for serial in queue if serial > first]


def _told(done: list[Branch]) -> Found:
    """Of the branches that are complete by one event, the one with the most events."""
    best = done[0] if len(done) == 1 else min(done, key=_rank)
    return Found(best[1], best[2], events_of(best[4]))


def _rank(branch: Branch) -> tuple[Any, ...]:
    events = events_of(branch[4])
    return (
        -branch[5],
        [each.occurrence.order for each in events],
        [each.names for each in events],
    )


def events_of(chain: Chain) -> tuple[SubEvent, ...]:
    """What was consumed, oldest first."""
    found = []
    while chain is not None:
        found.append(SubEvent(chain[1], chain[2]))
        chain = chain[0]
    return tuple(reversed(found))


def _distinct(branches: list[Branch]) -> list[Branch]:
    """Without those that have consumed the same and are in the same place."""
    found: dict[tuple[Any, ...], Branch] = {}
    for branch in branches:
        state, low, high, registers, chain, length = branch
        newest = None if chain is None else (id(chain[0]), chain[1], id(chain[2]))
        found.setdefault((state, low, high, registers, newest, length), branch)
    return list(found.values())


class Machine:
    """An automaton with its limits: the rules by which branches move."""

    __slots__ = (
        "__weakref__",
        "_final",
        "automaton",
        "full",
        "has_timers",
        "is_one_shot",
        "is_window",
        "limits",
        "no_registers",
        "opening",
        "states",
        "steps",
    )

    def __init__(
        self, automaton: Automaton, *, one_shot: bool = False, limits: Limits = DEFAULTS
    ) -> None:
        self.automaton = automaton
        self.states: tuple[State, ...] = automaton.states
        self.opening = automaton.opening
        self.is_window = automaton.is_window
        self.is_one_shot = one_shot
        self.has_timers = automaton.has_timers
        self.limits = limits
        self.full: Any = _stop if limits.when_full == "raise" else _go_on
        self.no_registers: Registers = (None,) * automaton.registers
        #: The final parts of conditions, by number.
        self._final = {n: tuple(map(test_of_all, each)) for n, each in automaton.final.items()}
        self.steps = None if one_shot else Steps.of(automaton)

    def timers(self, branch: Branch) -> list[tuple[int, int, int]]:
        """The timers that are set: when, the register, and the bit of the name or 0."""
        registers = branch[3]
        return [
            (registers[r], r, bit)
            for r, _, bit in self.states[branch[0]].timers
            if registers[r] is not None
        ]

    def move(
        self, branch: Branch, event: Occurrence, bits: int, done: list[Branch]
    ) -> list[Branch] | None:
        """The branches that come of offering an event; None if it does not concern this one.

        Those that are complete by it are put into `done`.
        """
        state, low, high, registers, chain, length = branch
        here = self.states[state]
        if not here.domain & bits:
            return None
        event_high, event_low = event[0], event[1]
        concerned = False
        found: list[Branch] = []
        for edge in here.edges:
            if not edge.domain & bits:
                continue
            if edge.leaving and not passes_all(edge.leaving, chain):
                continue
            if not edge.wanted & bits or edge.unwanted & bits:
                concerned = True
                continue
            names = tuple([name for bit, name in edge.names if bit & bits])
            if not edge.is_ordered:
                made = self._taken(edge, branch, event, names, bits)
            elif edge.conditions and not passes_all(edge.conditions, (chain, names, event)):
                made = _BLOCKED if edge.others & bits else _OUT
            elif chain is not None and (
                event_low <= high
                if edge.raised
                else event_low < high
                if self.is_window
                else (event_high, event_low) <= (high, low)
            ):
                made = _BLOCKED
            else:
                made = registers
            if made is _OUT:
                continue
            concerned = True
            if made is _BLOCKED:
                continue
            if chain is None:
                new_low, new_high = event_low, event_high
            else:
                new_low = low if low < event_low else event_low
                new_high = high if high > event_high else event_high
            if names:
                taken = (0, new_low, new_high, made, (chain, names, event), length + 1)
            else:  # a time event is no part of the composite event
                taken = (0, new_low, new_high, made, chain, length)
            self._arrive(edge.outcome, taken, found, done)
        return found if concerned else None

    def _taken(
        self, edge: Edge, branch: Branch, event: Occurrence, names: tuple[str, ...], bits: int
    ) -> Any:
        """The registers after an event is taken, or why it is not."""
        _, low, high, before, chain, _ = branch
        registers = list(before)
        hull = None if chain is None else (low, high)
        for side, outer in edge.entered:
            registers[side] = hull if outer < 0 else registers[outer]
        for register in edge.cleared:
            registers[register] = frozenset()
        for register, attribute in edge.differing:
            value = event.event.facts.get(attribute)
            if value is None or key_token((value,)) in registers[register]:
                return _BLOCKED if edge.others & bits else _OUT
        after = (chain, names, event)
        if not passes_all(edge.conditions, after):
            return _BLOCKED if edge.others & bits else _OUT
        event_high, event_low = event[0], event[1]
        reached = registers[edge.sides[-1]] if edge.sides else hull
        if reached is not None and (event_high, event_low) <= (reached[1], reached[0]):
            return _BLOCKED
        for register in edge.floors:
            if event_low <= registers[register]:
                return _BLOCKED
        for register, side in edge.raised:
            left = hull if side < 0 else registers[side]
            assert left is not None
            if event_low <= left[1]:
                return _BLOCKED
            registers[register] = left[1]
        if not passes_all(edge.finally_, after):
            return _OUT
        for side in edge.sides:
            was = registers[side]
            registers[side] = (
                (event_low, event_high)
                if was is None
                else (min(was[0], event_low), max(was[1], event_high))
            )
        for register, attribute in edge.differing:
            registers[register] |= {key_token((event.event.facts[attribute],))}
        for register, spec, ways in edge.armed:
            is_set = any(self._may_end(way, after) for way in ways)
            registers[register] = due(spec, event_high) if is_set else None
        return tuple(registers)

    def _arrive(
        self, outcome: Outcome, taken: Branch, found: list[Branch], done: list[Branch]
    ) -> None:
        """Put the branch where it is now: among those that are complete, or go on."""
        _, low, high, registers, chain, length = taken
        for way in outcome.exits:
            if not way or self._may_end(way, chain):
                done.append(taken)
                return
        for target in outcome.targets:
            unused = self.states[target].unused
            if unused and registers is not self.no_registers:
                kept = list(registers)
                for register in unused:
                    kept[register] = None
                found.append((target, low, high, tuple(kept), chain, length))
            else:
                found.append((target, low, high, registers, chain, length))

    def _may_end(self, way: Guards, chain: Chain) -> bool:
        return all(passes_all(self._final[n], chain) for n in way)

    def fire(self, branch: Branch, now: int, done: list[Branch]) -> list[Branch]:
        """The branches after the timers of that moment; limits first, then what has a name."""
        waiting, branches = [branch], []
        while waiting:
            one = waiting.pop()
            limit = next((r for at, r, bit in self.timers(one) if at == now and not bit), None)
            if limit is None:
                branches.append(one)
                continue
            for guards, outcome in self.states[one[0]].expiries[limit]:
                if self._may_end(guards, one[4]):
                    self._arrive(outcome, _with(one, limit, None), waiting, done)
                    break
        named = sorted(
            {(r, bit) for b in branches for at, r, bit in self.timers(b) if at == now and bit},
            key=lambda each: each[1],
        )
        event = Occurrence(now, now, "", (0, 0), _TIME)
        for register, bit in named:
            after: list[Branch] = []
            for one in branches:
                if all(r != register or at != now for at, r, _ in self.timers(one)):
                    after.append(one)
                    continue
                off = _with(one, register, None)
                moved = self.move(off, event, bit, done)
                after += [off] if moved is None else moved
            branches = after
        return branches


_OUT: Final = object()
_BLOCKED: Final = object()


def _with(branch: Branch, register: int, value: Any) -> Branch:
    registers = list(branch[3])
    registers[register] = value
    return (*branch[:3], tuple(registers), *branch[4:])


def _go_on(what: str, limit: int) -> None:
    pass


def _stop(what: str, limit: int) -> None:
    raise DetectorFull(
        f"there are more than {limit} {what}; raise the limit, or let runs end sooner"
    )
