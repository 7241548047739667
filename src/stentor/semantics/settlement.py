"""What durable subscriptions and groups owe their readers: each notification settled, once.

A durable subscription, or a group, is one component with several *readers*: its clients, one after
the other or at once. What one of them was given and has not settled when it is cut off or dies is
given to the next. So a repeated delivery is no fault by itself. What has to hold is this:

- What was given is dealt with by some reader, or is a dead letter, or is in the hands of a reader.
  It is `UNSETTLED` if its reader has let go of it, and at a later settling point, with a reader
  attached, it still has not come again.
- What is confirmed is confirmed once, and is not a dead letter; there is one dead letter at most,
  and it comes after as many deliveries as it says.
- How often something was given is told: the broker counts what it has noted as refused, and leaves
  no number out.
- Behind one that was refused, later ones of the same producer wait (if the order `fifo` is asked
  for), unless the reader allows that they overtake it.

That something was given again after it was confirmed is a `DUPLICATE`, which the oracle finds.

Nobody is accused of what might have been right. A reader that was cut off may not know that others
have what it had, and a reader that was slow may take something from its queue that is no longer
its own: such deliveries are `late`. Where a durable subscription may be taken over, and in a group
that is not durable once somebody was cut off, repeats are part of the bargain.

Dead letters are known from those who recorded them. If nobody got any of a component, none is
missed; then having been refused at the last attempt is enough.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stentor.errors import StentorError
from stentor.model import Notification, NotificationId
from stentor.model.dead_letter import PRODUCER, TYPE
from stentor.semantics.actions import (
    Action,
    Again,
    Attach,
    CutOff,
    Detach,
    Notify,
    Pub,
    Quiescent,
    ReadingTerms,
    Settle,
)
from stentor.semantics.lines import CONFIRMED, DEALT, NOTED, REFUSED, TAKEN
from stentor.semantics.violations import Condition, Violation


def is_dead_letter(notification: Notification) -> bool:
    """Whether a broker has published it because a subscriber failed on something."""
    id = notification.id
    return notification.type == TYPE and id is not None and id.producer.startswith(PRODUCER)


def unordered(trace: Sequence[Action]) -> set[str]:
    """The components to which no order was promised."""
    return {
        action.component
        for action in trace
        if isinstance(action, Attach) and (action.terms.shared or action.terms.overtake)
    }


@dataclass(slots=True)
class _Given:
    """One notification, and what has become of it at a component."""

    #: Its last delivery, and to whom.
    at: int
    action: Notify | Again
    attempts: set[int] = field(default_factory=set)
    #: When its reader let go of it without having dealt with it, if it has.
    let_go: int | None = None
    refused: bool = False
    dealt: bool = False
    confirmed: tuple[int, str] | None = None
    #: Attempts at which it was refused and the broker has not said that it noted that; and up to
    #: which it has.
    refusals: deque[int] = field(default_factory=deque)
    noted: int = 0
    letter: tuple[int, NotificationId] | None = None

    @property
    def attempt(self) -> int:
        return self.action.attempt


@dataclass(slots=True)
class _Component:
    name: str
    terms: dict[str, ReadingTerms] = field(default_factory=dict)
    attached: set[str] = field(default_factory=set)
    given: dict[NotificationId, _Given] = field(default_factory=dict)
    cut_off: bool = False
    #: Whether somebody gets its dead letters.
    watched: bool = False
    #: What was refused and has not come again, by producers.
    waiting: defaultdict[tuple[str, int], set[NotificationId]] = field(
        default_factory=lambda: defaultdict(set)
    )
    #: The last settling point at which somebody was attached.
    served_at: int = -1

    @property
    def exact(self) -> bool:
        """Whether nothing may come again that was confirmed."""
        return all(t.exact and (t.durable or not self.cut_off) for t in self.terms.values())

    @property
    def counts(self) -> bool:
        """Whether all of its deliveries are counted."""
        return self.exact and all(t.one_by_one for t in self.terms.values())

    @property
    def ordered(self) -> bool:
        return not any(t.shared or t.overtake for t in self.terms.values())

    def gives_up(self, given: _Given) -> bool:
        """Whether it was given as often as it may be, in vain."""
        most = [t.attempts for t in self.terms.values()]
        return given.let_go is not None and any(0 < each <= given.attempt for each in most)

    @property
    def has_letters(self) -> bool:
        return all(t.dead_letter for t in self.terms.values() if t.attempts)


def settlement(
    trace: Sequence[Action], *, order: bool = False, settling: bool = True
) -> Iterator[Violation]:
    """Judge what readers of durable subscriptions and groups were given, and said of it."""
    return _Judge(order).run(trace, settling)


class _Judge:
    def __init__(self, order: bool) -> None:
        self._order = order
        self._components: dict[str, _Component] = {}
        self._published: set[NotificationId] = set()

    def run(self, trace: Sequence[Action], settling: bool) -> Iterator[Violation]:
        for position, action in enumerate(trace):
            match action:
                case Pub():
                    self._published.add(action.id)
                case Attach(name, reader, terms):
                    found = self._components.setdefault(name, _Component(name))
                    found.terms[reader] = terms
                    found.attached.add(reader)
                case Notify() | Again():
                    if is_dead_letter(action.notification):
                        yield from self._buried(position, action)
                    if action.component in self._components:
                        yield from self._given(position, action)
                case Detach() | CutOff() if action.component in self._components:
                    self._left(position, action)
                case Settle(name) if name in self._components:
                    yield from self._settled(position, action)
                case Quiescent():
                    for each in self._components.values():
                        if each.attached:
                            each.served_at = position
        for component in self._components.values():
            yield from self._counted(component)
            if settling:
                yield from self._left_over(component)

    # -- what happens

    def _given(self, position: int, action: Notify | Again) -> Iterator[Violation]:
        component, id = self._components[action.component], action.id
        given = component.given.get(id)
        if given is None:
            given = component.given[id] = _Given(position, action)
            if self._order and component.ordered:
                yield from self._overtakes(component, position, action)
        elif component.counts and not action.late and action.attempt <= given.noted:
            why = (
                f"{_told(action, position)} as attempt {action.attempt}, although its broker had "
                f"noted that it was refused at attempt {given.noted}"
            )
            yield Violation(Condition.MISCOUNTED, position, action, why)
        given.at, given.action = position, action
        given.attempts.add(action.attempt)
        given.let_go, given.refused = None, False
        component.waiting[id.producer, id.epoch].discard(id)
        most = max((t.attempts for t in component.terms.values()), default=0)
        if 0 < most < action.attempt:
            why = f"{_told(action, position)} as attempt {action.attempt} of {most}"
            yield Violation(Condition.MISCOUNTED, position, action, why)

    def _overtakes(
        self, component: _Component, position: int, action: Notify | Again
    ) -> Iterator[Violation]:
        id = action.id
        for earlier in component.waiting[id.producer, id.epoch]:
            given = component.given[earlier]
            done = given.dealt or given.letter is not None or component.gives_up(given)
            if earlier.sequence < id.sequence and not done:
                why = (
                    f"{_told(action, position)}, before {earlier} came again, which was given at "
                    f"action {given.at} and refused"
                )
                yield Violation(Condition.OVERTAKEN, position, action, why)
                return

    def _left(self, position: int, action: Detach | CutOff) -> None:
        component = self._components[action.component]
        if isinstance(action, Detach):
            component.attached.discard(action.reader)
        else:
            component.cut_off = True
            terms = component.terms.get(action.reader)
            if terms is None or not terms.shared:
                return  # it goes on with what it has
        for given in component.given.values():
            if given.action.reader == action.reader and given.let_go is None:
                given.let_go = position

    def _settled(self, position: int, action: Settle) -> Iterator[Violation]:
        component = self._components[action.component]
        for id in action.ids:
            given = component.given.get(id)
            if given is None:
                continue
            mine = given.action.reader == action.reader
            if action.word == DEALT:
                given.dealt = True
            elif action.word == CONFIRMED:
                yield from self._confirmed(component, position, action, id)
            elif action.word == NOTED and given.refusals:
                given.noted = max(given.noted, given.refusals.popleft())
            elif action.word in (REFUSED, TAKEN) and mine:
                given.let_go = position
                given.refused = True
                if action.word == REFUSED:
                    given.refusals.append(given.attempt)
                component.waiting[id.producer, id.epoch].add(id)

    def _confirmed(
        self, component: _Component, position: int, action: Settle, id: NotificationId
    ) -> Iterator[Violation]:
        given = component.given[id]
        before, given.confirmed = given.confirmed, (position, action.reader)
        given.dealt = True
        if not component.exact:
            return
        if before is not None:
            why = (
                f"{component.name} has {id} confirmed by {action.reader} at action {position}, "
                f"but {before[1]} had confirmed it at action {before[0]}"
            )
            yield Violation(Condition.CONFIRMED_TWICE, position, given.action, why)
        elif given.letter is not None:
            yield self._both(component, position, given)

    def _buried(self, position: int, action: Notify | Again) -> Iterator[Violation]:
        letter = action.notification
        kind = "durable" if "durable" in letter else "group"
        component = self._components.get(f"{kind} {letter.get(kind)}")
        try:
            original = NotificationId.parse(str(letter.get("original")))
        except StentorError:
            return  # it had no id
        if component is None:
            return
        component.watched = True
        given = component.given.get(original)
        if given is None or letter.get("attempts") not in given.attempts:
            if component.exact and original in self._published:
                why = (
                    f"{action.component} got a dead letter of {original} at action {position}, "
                    f"after {letter.get('attempts')} attempts as it says, but {component.name} was "
                    "not given it so often"
                )
                yield Violation(Condition.DEAD_TOO_EARLY, position, action, why)
            if given is None:
                return
        if given.letter is None:
            given.letter = position, action.id
            if given.confirmed is not None and component.exact:
                yield self._both(component, position, given)
        elif given.letter[1] != action.id and component.exact:
            why = (
                f"{action.component} got the dead letter {action.id} of {original} at action "
                f"{position}, but there is another one of {component.name}, {given.letter[1]}"
            )
            yield Violation(Condition.DEAD_TWICE, position, action, why)
            given.letter = given.letter[0], action.id

    def _both(self, component: _Component, position: int, given: _Given) -> Violation:
        assert given.confirmed is not None
        assert given.letter is not None
        why = (
            f"{component.name} has {given.action.id} confirmed by {given.confirmed[1]} at action "
            f"{given.confirmed[0]}, and there is a dead letter of it, {given.letter[1]}"
        )
        return Violation(Condition.CONFIRMED_AND_DEAD, position, given.action, why)

    # -- the end

    def _counted(self, component: _Component) -> Iterator[Violation]:
        """No number was left out, of what was published while it was watched."""
        if not component.counts:
            return
        for id, given in component.given.items():
            if id in self._published and max(given.attempts) > len(given.attempts):
                numbers = ", ".join(map(str, sorted(given.attempts)))
                why = f"{component.name} was given {id} as the attempts {numbers} only"
                yield Violation(Condition.MISCOUNTED, given.at, given.action, why)

    def _left_over(self, component: _Component) -> Iterator[Violation]:
        if any(not t.durable for t in component.terms.values()) and component.cut_off:
            return
        for given in component.given.values():
            if given.dealt or given.letter is not None or given.let_go is None:
                continue
            if given.let_go >= component.served_at:
                continue
            if component.gives_up(given):
                if not (component.has_letters and component.watched):
                    continue
                then = "and there is no dead letter of it"
            else:
                then = "and it did not come again"
            how = "refused it" if given.refused else "was gone before it had dealt with it"
            why = f"{_told(given.action, given.at)}, whose reader {how}, {then}"
            yield Violation(Condition.UNSETTLED, given.at, given.action, why)


def _told(action: Notify | Again, position: int) -> str:
    return f"{action.component} was given {action.id} at action {position}"
