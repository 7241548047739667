"""Counting: which conjuncts have all of their constraints satisfied (R-02.61, sheet 02 §4.1).

Every distinct predicate, that is a name with a constraint, is held once, with the conjuncts that
use it. A value leads through the index to the predicates that it satisfies, each of these adds one
to the counters of its conjuncts, and a conjunct holds if its counter has reached its target. Only
counters that are touched exist, so a notification costs what it satisfies, not what is held.

A constraint that accepts almost everything (`x != 3`, `x not in (1, 2)`, `s` not containing 'a',
`tags lacks 'b'`) would be satisfied by almost every notification. It is turned around: the conjunct
has the credit in advance, and the values that the constraint rejects (`x = 3`) are a predicate
that takes one away. The credit is due only if the attribute is there with the right type; that
is the *guard*. A conjunct that also has predicates worth counting does not count its guards. They
are looked at when its counter has reached the target. One that has nothing else counts them.

A constraint that accepts absence is turned around in the same way, without a guard: what it rejects
is a value, and an attribute that is not there takes nothing away.

Conjuncts with a target of zero, the empty filter among them, are touched by nothing. They are kept
in `always` and looked at for each notification (02/T2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Generic

from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import EXISTS, Constraint, Part, comparable, everything
from stentor.filters.ranges import Ranges
from stentor.filters.tested import Tested
from stentor.matching.counting.value_index import ValueIndex
from stentor.matching.protocol import K
from stentor.model.values import value_type_of

#: The state of an attribute: type and comparable value. None stands for "there, but not known".
State = tuple[str, Any] | None
#: A type that an attribute must have; any if None.
Guard = str | None


class Predicate:
    """A constraint on a name, and the conjuncts it counts for and against."""

    __slots__ = ("constraint", "credits", "debits", "name")

    def __init__(self, name: str, constraint: Constraint) -> None:
        self.name = name
        self.constraint = constraint
        self.credits: set[CountedConjunct[Any]] = set()
        self.debits: set[CountedConjunct[Any]] = set()

    @property
    def uses(self) -> int:
        return len(self.credits) + len(self.debits)


class CountedConjunct(Generic[K]):
    """A distinct conjunct, with the keys of the filters that it is part of."""

    __slots__ = ("conjunct", "credits", "debits", "guards", "keys", "target")

    def __init__(self, conjunct: Conjunct) -> None:
        self.conjunct = conjunct
        self.keys: set[K] = set()
        self.credits: list[tuple[str, Constraint]] = []
        self.debits: list[tuple[str, Constraint]] = []
        self.guards: list[tuple[str, Guard]] = []
        for name, constraint in conjunct.constraints.items():
            self._count(name, constraint)
        if not self.credits:
            self.credits = [(name, _guard_constraint(guard)) for name, guard in self.guards]
            self.guards = []
        self.target = len(self.credits)

    def _count(self, name: str, constraint: Constraint) -> None:
        if constraint.absent:
            self.debits.append((name, constraint.others()))
        elif (turned := _turned_around(constraint)) is not None:
            guard, rejected = turned
            self.guards.append((name, guard))
            self.debits.append((name, rejected))
        else:
            self.credits.append((name, constraint))


class ConjunctIndex(Generic[K]):
    """Conjuncts, each under any number of keys. Residuals are left to the caller."""

    def __init__(self) -> None:
        self.conjuncts: dict[Conjunct, CountedConjunct[K]] = {}
        self.predicates: dict[tuple[str, Constraint], Predicate] = {}
        self.always: set[CountedConjunct[K]] = set()
        self.values: dict[str, ValueIndex[Predicate]] = {}

    def add(self, conjunct: Conjunct, key: K) -> None:
        counted = self.conjuncts.get(conjunct)
        if counted is None:
            counted = CountedConjunct(conjunct)
            try:
                for use in counted.credits:
                    self._predicate(use).credits.add(counted)
                for use in counted.debits:
                    self._predicate(use).debits.add(counted)
            except BaseException:
                self._withdraw(counted)
                raise
            if not counted.target:
                self.always.add(counted)
            self.conjuncts[conjunct] = counted
        counted.keys.add(key)

    def remove(self, conjunct: Conjunct, key: K) -> None:
        counted = self.conjuncts[conjunct]
        counted.keys.discard(key)
        if not counted.keys:
            del self.conjuncts[conjunct]
            self.always.discard(counted)
            self._withdraw(counted)

    def _predicate(self, use: tuple[str, Constraint]) -> Predicate:
        predicate = self.predicates.get(use)
        if predicate is None:
            name, constraint = use
            predicate = Predicate(name, constraint)
            values = self.values.get(name) or ValueIndex()
            values.add(predicate, constraint)
            self.values[name] = values
            self.predicates[use] = predicate
        return predicate

    def _withdraw(self, counted: CountedConjunct[K]) -> None:
        """From all predicates, also if it is not in all of them."""
        for use in (*counted.credits, *counted.debits):
            predicate = self.predicates.get(use)
            if predicate is None:
                continue
            predicate.credits.discard(counted)
            predicate.debits.discard(counted)
            if not predicate.uses:
                del self.predicates[use]
                values = self.values[predicate.name]
                values.remove(predicate, predicate.constraint)
                if not values:
                    del self.values[predicate.name]

    def matching(
        self,
        states: Mapping[str, State],
        known: dict[Any, list[Predicate]] | None = None,
    ) -> Iterator[CountedConjunct[K]]:
        """The conjuncts whose constraints hold; attributes that are not in `states` are absent.

        With an attribute that is there but not known, any constraint on it is taken to hold that
        some value satisfies. `known` remembers what values satisfy from one call to the next, as
        long as the index does not change.
        """
        count: dict[CountedConjunct[K], int] = defaultdict(int)
        for name, state in states.items():
            if name not in self.values:
                continue
            if state is None:
                for predicate in [p for p in self.predicates.values() if p.name == name]:
                    for counted in predicate.credits:
                        count[counted] += 1
                continue
            for predicate in self._remembered(name, state, known):
                for counted in predicate.credits:
                    count[counted] += 1
                for counted in predicate.debits:
                    count[counted] -= 1
        for counted in self.always:
            if not count.get(counted):
                yield counted
        for counted, hits in count.items():
            if hits == counted.target and hits and _guards_hold(counted, states):
                yield counted

    def _remembered(
        self, name: str, state: tuple[str, Any], known: dict[Any, list[Predicate]] | None
    ) -> list[Predicate]:
        type_name, value = state
        if known is None or type_name == "collection":  # (1,) == (True,), but not to a filter
            return self.values[name].find(type_name, value)
        key = (name, type_name, type(value), value)
        found = known.get(key)
        if found is None:
            found = known[key] = self.values[name].find(type_name, value)
        return found


def states_of(facts: Mapping[str, Any]) -> dict[str, State]:
    """The states of a notification's attributes."""
    states: dict[str, State] = {}
    for name, value in facts.items():
        type_name = value_type_of(value)
        states[name] = (type_name, comparable(type_name, value))
    return states


def _guards_hold(counted: CountedConjunct[Any], states: Mapping[str, State]) -> bool:
    for name, guard in counted.guards:
        if name not in states:
            return False
        state = states[name]
        if guard is not None and state is not None and state[0] != guard:
            return False
    return True


def _guard_constraint(guard: Guard) -> Constraint:
    return EXISTS if guard is None else Constraint(((guard, everything(guard)),))


def _turned_around(constraint: Constraint) -> tuple[Guard, Constraint] | None:
    """A constraint that accepts almost all values, as a guard and the values it rejects."""
    if constraint.rest:
        return (None, constraint.complement()) if constraint.parts else None
    if len(constraint.parts) != 1:
        return None
    type_name, part = constraint.parts[0]
    if not _is_wide(part):
        return None
    return type_name, Constraint(((type_name, part.complement()),))


def _is_wide(part: Part) -> bool:
    if isinstance(part, Ranges):
        return part.starts and len(part.cuts) > 1 and part.complement().values is not None
    if isinstance(part, Tested):
        return part.operator == "not"
    if isinstance(part, CollectionSet) and len(part.cells) == 1:
        (cell,) = part.cells
        return not cell.hits and cell.universe.rest and bool(cell.universe.parts)
    return False
