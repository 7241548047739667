"""The reference detector: what patterns mean, by enumeration.

It takes a whole history, sorts it by the weak order, and offers each event to every run, oldest
first, as sheet 06 has it (A1). A run is the set of all ways to read the events that it has
consumed. Each way, a *branch*, keeps what is left to be matched as an expression, in which
everything that matters later stands as a plain value: floors, deadlines, values already seen. To
offer an event to a branch is to try it at every atom that may come next. Each attempt says that the
event is of no concern there (`OUT`), that it is in the domain but may not come now (`BLOCKED`), or
what is left when it is taken. A branch moves if some attempt succeeds, fails if there are only
blocked ones, and stays as it is if the event concerns none of its atoms.

What may come next of a loop (another round, or what follows it) is one state. The alternatives of
`|` are separate branches, each with its own domain and timers.

Nothing is compiled, indexed or shared, so this is slow and easy to check. The automata are held
equal to it by tests on generated histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from stentor.composite import expressions as e
from stentor.composite.conditions import can_be_tested, conjuncts, holds, is_final, names_in
from stentor.composite.events import (
    CompositeEvent,
    Occurrence,
    SubEvent,
    detection_order,
    occurrence,
)
from stentor.composite.intervals import END_OF_TIME, Interval
from stentor.composite.pattern import Pattern, key_token
from stentor.errors import InvalidNotification, InvalidPattern
from stentor.model import Notification

Mode = Literal["standing", "one_shot"]


@dataclass(frozen=True)
class Done:
    """Nothing is left."""


@dataclass(frozen=True)
class Then:
    """What is left of the first part, and all of the second."""

    rest: Rest
    second: Rest


@dataclass(frozen=True)
class ThenStrictly:
    """The same, where the second part comes strictly after the first, which has begun."""

    rest: Rest
    second: Rest


@dataclass(frozen=True)
class Above:
    """All events of the rest begin after that time."""

    rest: Rest
    floor: int


@dataclass(frozen=True)
class Both:
    """What is left on both sides of `||`, and how far each side is."""

    left: Rest
    right: Rest
    left_hull: Interval | None
    right_hull: Interval | None


@dataclass(frozen=True)
class Timed:
    """The first part of a timing operator; its timer is set whenever that is complete."""

    rest: Rest
    node: e.Timing | e.Deadline
    deadline: int | None
    has_begun: bool


@dataclass(frozen=True)
class Until:
    """The second part of a timing operator, with its timer; without a name, it ends the rest."""

    rest: Rest
    timer: str | None
    deadline: int | None


@dataclass(frozen=True)
class Checked:
    rest: Rest
    node: e.Where


@dataclass(frozen=True)
class Differing:
    rest: Rest
    attribute: str
    seen: frozenset[Any]


Rest: TypeAlias = (
    e.Expression | Done | Then | ThenStrictly | Above | Both | Timed | Until | Checked | Differing
)
DONE: Final = Done()


class Context(NamedTuple):
    """What an attempt needs to know of the event and of the branch."""

    event: Occurrence
    names: frozenset[str]
    hull: Interval | None
    floor: int
    bindings: dict[str, list[Notification]]
    conditions: tuple[Any, ...] = ()
    distinct: tuple[tuple[str, frozenset[Any]], ...] = ()


class Attempt(NamedTuple):
    """`rest` is None where the event is blocked."""

    rest: Rest | None
    names: tuple[str, ...] = ()


BLOCKED: Final = Attempt(None)


def attempts(rest: Rest, c: Context) -> list[Attempt]:
    """All ways to take the event next, and the places where it is blocked."""
    match rest:
        case Done():
            return []
        case e.Atom():
            return _at_atom(rest, c)
        case e.Concatenation(left, right):
            return attempts(Then(left, right), c)
        case Then(left, right):
            found = [_moved(a, lambda r: _then(r, right)) for a in attempts(left, c)]
            return found + (attempts(right, c) if complete(left, c.bindings) else [])
        case e.Sequence(left, right):  # nothing precedes what stands first
            found = [_moved(a, lambda r: ThenStrictly(r, right)) for a in attempts(left, c)]
            return found + (attempts(right, c) if complete(left, c.bindings) else [])
        case ThenStrictly(left, right):
            found = [_moved(a, lambda r: ThenStrictly(r, right)) for a in attempts(left, c)]
            if complete(left, c.bindings):
                assert c.hull is not None
                floor = c.hull.high
                second = attempts(right, c._replace(floor=max(c.floor, floor)))
                found += [_moved(a, lambda r: _above(r, floor)) for a in second]
            return found
        case Above(inner, floor):
            within = attempts(inner, c._replace(floor=max(c.floor, floor)))
            return [_moved(a, lambda r: _above(r, floor)) for a in within]
        case e.Iteration(body, least, most):
            more = e.Iteration(body, max(least - 1, 0), None if most is None else most - 1)
            if most == 1:
                return attempts(body, c)
            return [_moved(a, lambda r: _then(r, more)) for a in attempts(body, c)]
        case e.Alternation(left, right):
            return attempts(left, c) + attempts(right, c)
        case e.Parallel(left, right):
            return attempts(Both(left, right, c.hull, c.hull), c)
        case Both(left, right, one, other):
            return [
                _moved(a, lambda r: _both(r, right, _hull(one, c.event), other))
                for a in attempts(left, c._replace(hull=one))
            ] + [
                _moved(a, lambda r: _both(left, r, one, _hull(other, c.event)))
                for a in attempts(right, c._replace(hull=other))
            ]
        case e.Timing(first) | e.Deadline(first):
            return attempts(Timed(first, rest, None, False), c)
        case Timed():
            return _at_timed(rest, c)
        case e.Within(body, micros):
            deadline = c.event.high + micros
            return [_moved(a, lambda r: _until(r, None, deadline)) for a in attempts(body, c)]
        case Until(inner, timer, deadline):
            again = None if timer in c.names else deadline  # a timer goes off once
            return [_moved(a, lambda r: _until(r, timer, again)) for a in attempts(inner, c)]
        case e.Where(body):
            return attempts(Checked(body, rest), c)
        case Checked(inner, node):
            return _at_checked(inner, node, c)
        case e.Distinct(body, attribute):
            return attempts(Differing(body, attribute, frozenset()), c)
        case Differing(inner, attribute, seen):
            below = c._replace(distinct=(*c.distinct, (attribute, seen)))
            value = c.event.event.facts.get(attribute)
            now = seen if value is None else seen | {key_token((value,))}
            return [
                _moved(a, lambda r: _differing(r, attribute, now)) for a in attempts(inner, below)
            ]
        case e.Window():
            raise AssertionError("windows are detected by themselves")


def _at_atom(atom: e.Atom, c: Context) -> list[Attempt]:
    inside = c.names.intersection(atom.domain)
    if not inside:
        return []
    excluded = bool(c.names.intersection(atom.labels))
    if excluded == atom.negated:
        return [BLOCKED]
    names = tuple(sorted(c.names.intersection(atom.binds)))
    if not _describable(names, c):  # then it is none of those that the labels stand for
        return [BLOCKED] if inside - set(names) else []
    if c.hull is not None and not c.hull.weakly_before((c.event.low, c.event.high)):
        return [BLOCKED]
    return [BLOCKED if c.event.low <= c.floor else Attempt(DONE, names)]


def _describable(names: tuple[str, ...], c: Context) -> bool:
    for attribute, seen in c.distinct:
        value = c.event.event.facts.get(attribute)
        if value is None or key_token((value,)) in seen:
            return False
    after = _bound(c.bindings, names, c.event.event)
    return all(
        holds(condition, after)
        for condition in c.conditions
        if names_in(condition).intersection(names) and can_be_tested(condition, after)
    )


def _at_timed(timed: Timed, c: Context) -> list[Attempt]:
    node = timed.node
    found = []
    for attempt in attempts(timed.rest, c):
        rest = attempt.rest
        if rest is not None:
            is_complete = complete(rest, _bound(c.bindings, attempt.names, c.event.event))
            deadline = _due(node, c.event.high) if is_complete else None
            attempt = attempt._replace(rest=Timed(rest, node, deadline, True))
        found.append(attempt)
    if complete(timed.rest, c.bindings):
        timer = node.timer if isinstance(node, e.Timing) else None
        strict = timer is None and timed.has_begun
        second: Rest = ThenStrictly(DONE, node.second) if strict else node.second
        again = None if timer in c.names else timed.deadline
        found += [_moved(a, lambda r: _until(r, timer, again)) for a in attempts(second, c)]
    return found


def _due(node: e.Timing | e.Deadline, high: int) -> int | None:
    return high + node.micros if isinstance(node, e.Deadline) else e.due(node.spec, high)


def _at_checked(inner: Rest, node: e.Where, c: Context) -> list[Attempt]:
    tested = tuple(part for part in conjuncts(node.condition) if not is_final(part))
    found = []
    for attempt in attempts(inner, c._replace(conditions=(*c.conditions, *tested))):
        rest = attempt.rest
        if isinstance(rest, Done):
            after = _bound(c.bindings, attempt.names, c.event.event)
            if not _finally(node, after):
                continue  # it would complete what must not be complete yet
            found.append(attempt)
        else:
            found.append(_moved(attempt, lambda r: Checked(r, node)))
    return found


def _finally(node: e.Where, bindings: dict[str, list[Notification]]) -> bool:
    return all(holds(part, bindings) for part in conjuncts(node.condition) if is_final(part))


def complete(rest: Rest, bindings: dict[str, list[Notification]]) -> bool:
    """Whether nothing more has to come."""
    match rest:
        case Done():
            return True
        case e.Iteration(body, least):
            return least == 0 or complete(body, bindings)
        case e.Alternation(left, right):
            return complete(left, bindings) or complete(right, bindings)
        case e.Concatenation(left, right) | e.Sequence(left, right) | e.Parallel(left, right):
            return complete(left, bindings) and complete(right, bindings)
        case Then(left, right) | ThenStrictly(left, right) | Both(left, right):
            return complete(left, bindings) and complete(right, bindings)
        case e.Timing(first, second) | e.Deadline(first, second):
            return complete(first, bindings) and complete(second, bindings)
        case Timed(inner, node):
            return complete(inner, bindings) and complete(node.second, bindings)
        case Above(inner) | Until(inner) | Differing(inner):
            return complete(inner, bindings)
        case e.Within(body) | e.Distinct(body):
            return complete(body, bindings)
        case e.Where(body):
            return complete(body, bindings) and _finally(rest, bindings)
        case Checked(inner, node):
            return complete(inner, bindings) and _finally(node, bindings)
        case _:
            return False


def split(rest: Rest) -> list[Rest]:
    """The alternatives that stand at the head, as rests of their own."""
    match rest:
        case e.Alternation(left, right):
            return split(left) + split(right)
        case e.Concatenation(left, right):
            return [_then(each, right) for each in split(left)]
        case Then(left, right):
            return [_then(each, right) for each in split(left)]
        case ThenStrictly(Done(), right):
            return [ThenStrictly(DONE, each) for each in split(right)]
        case ThenStrictly(left, right):
            return [ThenStrictly(each, right) for each in split(left)]
        case Above(inner):
            return [replace(rest, rest=each) for each in split(inner)]
        case e.Where(body):
            return [Checked(each, rest) for each in split(body)]
        case Until(inner) | Checked(inner) | Differing(inner):
            return [replace(rest, rest=each) for each in split(inner)]
        case _:
            return [rest]


def deadlines(rest: Rest) -> list[tuple[int, str | None]]:
    """All timers that are set."""
    match rest:
        case Then(inner) | ThenStrictly(inner) | Above(inner) | Checked(inner) | Differing(inner):
            return deadlines(inner)
        case Both(left, right):
            return deadlines(left) + deadlines(right)
        case Until(inner, timer, deadline):
            return deadlines(inner) + ([] if deadline is None else [(deadline, timer)])
        case Timed(inner, node, deadline):
            timer = node.timer if isinstance(node, e.Timing) else None
            return deadlines(inner) + ([] if deadline is None else [(deadline, timer)])
        case _:
            return []


def expired(rest: Rest, now: int, bindings: dict[str, list[Notification]]) -> Rest | None:
    """What is left when the time limits of that moment are over; None if nothing can be."""
    match rest:
        case Then(inner, right):
            left = expired(inner, now, bindings)
            return None if left is None else _then(left, right)
        case Above() | ThenStrictly() | Checked() | Differing():
            left = expired(rest.rest, now, bindings)
            if left is None or (
                isinstance(rest, Checked)
                and isinstance(left, Done)
                and not _finally(rest.node, bindings)
            ):
                return None
            if isinstance(left, Done) and not isinstance(rest, ThenStrictly):
                return left
            return replace(rest, rest=left)
        case Both(one, other):
            first, second = expired(one, now, bindings), expired(other, now, bindings)
            if first is None or second is None:
                return None
            return _both(first, second, rest.left_hull, rest.right_hull)
        case Until(inner, timer, deadline):
            if timer is None and deadline == now:
                return DONE if complete(inner, bindings) else None
            left = expired(inner, now, bindings)
            return None if left is None else _until(left, timer, deadline)
        case Timed(inner, node, deadline):
            if isinstance(node, e.Deadline) and deadline == now:
                return DONE if complete(node.second, bindings) else None
            left = expired(inner, now, bindings)
            return None if left is None else replace(rest, rest=left)
        case _:
            return rest


# Making what is left, without what is done.


def _moved(attempt: Attempt, wrap: Any) -> Attempt:
    return attempt if attempt.rest is None else attempt._replace(rest=wrap(attempt.rest))


def _then(rest: Rest, second: Rest) -> Rest:
    return second if isinstance(rest, Done) else Then(rest, second)


def _above(rest: Rest, floor: int) -> Rest:
    return rest if isinstance(rest, Done) else Above(rest, floor)


def _until(rest: Rest, timer: str | None, deadline: int | None) -> Rest:
    return rest if isinstance(rest, Done) else Until(rest, timer, deadline)


def _differing(rest: Rest, attribute: str, seen: frozenset[Any]) -> Rest:
    return rest if isinstance(rest, Done) else Differing(rest, attribute, seen)


def _both(left: Rest, right: Rest, one: Interval | None, other: Interval | None) -> Rest:
    if isinstance(left, Done) and isinstance(right, Done):
        return DONE
    return Both(left, right, one, other)


def _hull(hull: Interval | None, event: Occurrence) -> Interval:
    return event.interval if hull is None else hull.hull(event.interval)


def _bound(
    bindings: dict[str, list[Notification]], names: Iterable[str], event: Notification
) -> dict[str, list[Notification]]:
    found = dict(bindings)
    for name in names:
        found[name] = [*found.get(name, ()), event]
    return found


# Runs: branches that were opened by one event, and what becomes of them.


class Branch(NamedTuple):
    rest: Rest
    hull: Interval | None
    events: tuple[SubEvent, ...]

    @property
    def bindings(self) -> dict[str, list[Notification]]:
        found: dict[str, list[Notification]] = {}
        for each in self.events:
            for name in each.names:
                found.setdefault(name, []).append(each.event)
        return found

    @property
    def rank(self) -> tuple[Any, ...]:
        """Which of several that are complete is told of: the one with most events, then the
        earliest ones."""
        return (
            -len(self.events),
            [each.occurrence.order for each in self.events],
            [each.names for each in self.events],
        )


def offered(branch: Branch, event: Occurrence, names: frozenset[str]) -> list[Branch] | None:
    """The branches that come of offering an event; None if it does not concern this one."""
    context = Context(event, names, branch.hull, -END_OF_TIME, branch.bindings)
    found = attempts(branch.rest, context)
    if not found:
        return None
    hull = _hull(branch.hull, event)
    moved = []
    for rest, taken in found:
        if rest is not None:
            events = (*branch.events, SubEvent(taken, event)) if taken else branch.events
            moved.append(Branch(rest, hull, events))
    return moved


class Runs:
    """All runs of one pattern in one partition."""

    def __init__(self, expression: e.Expression, mode: Mode) -> None:
        self._first = [Branch(each, None, ()) for each in split(expression)]
        self._one_shot = mode == "one_shot"
        self.is_over = False
        self._runs: list[list[Branch]] = [self._first] if self._one_shot else []

    def next_deadline(self) -> int | None:
        found = [d for run in self._runs for b in run for d, _ in deadlines(b.rest)]
        return min(found, default=None)

    def consume(self, event: Occurrence, names: frozenset[str]) -> list[Branch]:
        """What is complete by this event. The oldest run that can use it uses it up."""
        for run in list(self._runs):
            branches, used = [], False
            for branch in run:
                moved = offered(branch, event, names)
                branches += [branch] if moved is None else moved
                used = used or bool(moved)
            found = self._settle(run, branches)
            if used:
                return found
        if self._one_shot:
            return []
        opened = [b for first in self._first for b in offered(first, event, names) or ()]
        if not opened:
            return []
        self._runs.append(opened)
        return self._settle(opened, opened)

    def expire(self, now: int) -> list[Branch]:
        """What is complete because the timers of that moment have gone off."""
        found = []
        for run in list(self._runs):
            branches = []
            for branch in run:
                branches += self._timers(branch, now)
            found += self._settle(run, branches)
        return found

    def _timers(self, branch: Branch, now: int) -> list[Branch]:
        due = {timer for at, timer in deadlines(branch.rest) if at == now}
        if not due:
            return [branch]
        rest = expired(branch.rest, now, branch.bindings)
        if rest is None:
            return []
        branches = [branch._replace(rest=rest)]
        event = Occurrence(now, now, "", (0, 0), _TIME)
        for timer in sorted(due - {None}, key=lambda name: int(str(name).rpartition("#")[2])):
            for branch in list(branches):
                if (now, timer) not in deadlines(branch.rest):
                    continue  # it has left what the timer belongs to
                branches.remove(branch)
                moved = offered(branch, event, frozenset({str(timer)}))
                if moved is None:
                    branches.append(branch._replace(rest=_gone_off(branch.rest, str(timer))))
                else:
                    branches += [b._replace(events=branch.events) for b in moved]
        return branches

    def _settle(self, run: list[Branch], branches: list[Branch]) -> list[Branch]:
        """The run goes on with these branches, unless it is complete or has failed."""
        done = [b for b in branches if complete(b.rest, b.bindings) and b.hull is not None]
        alive = [b._replace(rest=r) for b in branches for r in split(b.rest)]
        place = next(i for i, each in enumerate(self._runs) if each is run)
        if done or not alive:
            del self._runs[place]
            self.is_over = self._one_shot
            return [min(done, key=lambda b: b.rank)] if done else []
        distinct: list[Branch] = []
        for each in alive:
            if each not in distinct:
                distinct.append(each)
        self._runs[place] = distinct
        return []


_TIME: Final = Notification({"time": True})


def _gone_off(rest: Rest, timer: str) -> Rest:
    """The same with the timer no longer set."""
    match rest:
        case Both(left, right):
            return replace(rest, left=_gone_off(left, timer), right=_gone_off(right, timer))
        case Until(inner, name) | Timed(inner, e.Timing(timer=name)):
            deadline = None if name == timer else rest.deadline
            return replace(rest, rest=_gone_off(inner, timer), deadline=deadline)
        case Then() | ThenStrictly() | Above() | Checked() | Differing() | Timed():
            return replace(rest, rest=_gone_off(rest.rest, timer))
        case _:
            return rest


# The history.


def detect_local(
    pattern: Pattern,
    notifications: Iterable[Notification],
    *,
    mode: Mode = "standing",
    uncertainty: int = 0,
) -> list[CompositeEvent]:
    """Every composite event in a history that is complete: the reference for all detectors.

    The notifications may come in any order; their times decide. `uncertainty` is by how many
    microseconds clocks may be wrong.

    >>> from datetime import datetime, timezone
    >>> at = lambda s: datetime(2026, 1, 1, 0, 0, s, tzinfo=timezone.utc)
    >>> p = Pattern("F+ ; L", events={"F": "type = 'login_failed'", "L": "type = 'lockout'"})
    >>> found, = detect_local(p, [
    ...     Notification({"type": "login_failed", "n": 1}, time=at(1)),
    ...     Notification({"type": "login_failed", "n": 2}, time=at(2)),
    ...     Notification({"type": "lockout"}, time=at(3)),
    ... ])
    >>> [each.names for each in found.events]
    [('F',), ('F',), ('L',)]
    """
    if not isinstance(pattern, Pattern):
        raise InvalidPattern(f"detect_local() takes a Pattern, not a {type(pattern).__name__}")
    history = []
    for arrival, each in enumerate(notifications):
        if not isinstance(each, Notification):
            raise InvalidNotification(
                f"detect_local() takes notifications, and this is a {type(each).__name__}; write "
                "Notification({...}, time=...)"
            )
        history.append(occurrence(each, arrival, uncertainty=uncertainty))
    return detect_history(pattern, history, mode)


def detect_history(
    pattern: Pattern, history: Sequence[Occurrence], mode: Mode = "standing"
) -> list[CompositeEvent]:
    """The same for events whose intervals and sources are known."""
    named: list[tuple[Occurrence, frozenset[str]]] = []
    for each in history:
        names = frozenset(
            name
            for name, meaning in pattern.events.items()
            if not isinstance(meaning, Pattern) and meaning.matches(each.event)
        )
        named.append((each, names))
    for inner in {m for m in pattern.events.values() if isinstance(m, Pattern)}:
        names = frozenset(name for name, meaning in pattern.events.items() if meaning == inner)
        for found in detect_history(inner, history):
            low, high = found.interval
            number = (found.id.epoch, found.id.sequence)
            event = Occurrence(high, low, inner.type, number, found.notification())
            named.append((event, names))
    named.sort(key=lambda pair: pair[0].order)
    parted: dict[Any, tuple[tuple[Any, ...], list[tuple[Occurrence, frozenset[str]]]]] = {}
    for each, names in named:
        key = pattern.key_of(each.event.facts)
        if names and key is not None:
            parted.setdefault(key_token(key), (key, []))[1].append((each, names))
    detections = []
    for key, events in parted.values():
        if isinstance(pattern.expression, e.Window):
            branches = _windows(pattern.expression, events, mode)
        else:
            branches = _played(with_timers(pattern.expression), events, mode)
        for branch in branches:
            assert branch.hull is not None
            detections.append(CompositeEvent(pattern, branch.hull, branch.events, key))
    return sorted(detections, key=detection_order)


with_timers = e.with_own_timers


def _played(
    expression: e.Expression, events: Sequence[tuple[Occurrence, frozenset[str]]], mode: Mode
) -> list[Branch]:
    runs = Runs(expression, mode)
    found: list[Branch] = []

    def let_time_pass(before: int) -> None:
        while not runs.is_over:
            deadline = runs.next_deadline()
            if deadline is None or deadline >= before:
                return
            found.extend(runs.expire(deadline))

    for event, names in events:
        let_time_pass(event.high)  # an event at the deadline is in time
        if runs.is_over:
            break
        found += runs.consume(event, names)
    let_time_pass(END_OF_TIME * 2)
    return found


def _windows(
    window: e.Window, events: Sequence[tuple[Occurrence, frozenset[str]]], mode: Mode
) -> list[Branch]:
    """SIENA's sequences: the last events, as many as there are filters, match them in turn."""
    size = len(window.labels)
    last: list[tuple[Occurrence, frozenset[str]]] = []
    found: list[Branch] = []
    for each in events:
        if last and each[0].low < last[-1][0].high:
            last = []  # it began before the one before it had ended
        last = [*last, each][-size:]
        if len(last) == size and all(
            label in names for label, (_, names) in zip(window.labels, last, strict=True)
        ):
            taken = tuple(
                SubEvent((label,), event)
                for label, (event, _) in zip(window.labels, last, strict=True)
            )
            hull = Interval(min(o.low for o, _ in last), max(o.high for o, _ in last))
            found.append(Branch(DONE, hull, taken))
            if mode == "one_shot":
                return found
            if window.consuming:
                last = []
    return found
