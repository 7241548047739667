"""Sets of values described by tests: string patterns and registered operators.

What is not an interval (`suffix`, `contains`, `like`, `regex`, an operator that a user registered)
is a *test* on a value. A `Tested` set is a Boolean expression in negation normal form whose leaves
are tests, negated tests and plain sets of the same domain.

Sets are put together as they are written, which is cheap: flattened, without repetitions, the plain
sets among them folded into one. Two sets in that form are equal if they are written alike, in
whatever order. What they *mean* is worked out by `settled`: for strings all leaves describe regular
languages, so covering, overlap and equality are decided exactly with automata, and a set that turns
out to be plain, or to be one suffix or substring test, is brought to that form. So settled sets
that are equal have equal forms. Where an automaton would be too large, and for registered
operators, the answers come from the structure of the expression and err on the safe side: "does not
cover", "overlaps", "is not equal".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from functools import reduce
from typing import Any, Final, Protocol

from stentor.filters import numbers
from stentor.filters.automata import Dfa
from stentor.filters.domains import BYTES, INTEGER, REAL, Cut, Domain
from stentor.filters.effort import TooCostly, effort, spend, within
from stentor.filters.numbers import SplitNumbers
from stentor.filters.patterns import CONTAINS, SUFFIX, Pattern
from stentor.filters.ranges import Ranges
from stentor.filters.regular import COMBINED_LIMIT, is_text, pattern_dfa, ranges_dfa, ranges_of
from stentor.filters.unordered import plain

#: An expression with more leaves than this is not decided by automata.
LEAF_LIMIT: Final = 16
#: Nor is one whose automaton takes more steps than this to build.
AUTOMATON_STEPS: Final = 8_000
#: Nor are more pairs of leaves than this compared with each other.
PAIR_LIMIT: Final = 1_024


class Test(Protocol):
    """A leaf: something that holds or not for one value."""

    def matches(self, value: Any) -> bool: ...
    def __hash__(self) -> int: ...


class Tested:
    """An immutable set: `leaf` (a test), `not` (a negated test), or `and` / `or` of sets."""

    __slots__ = ("_cost", "_dfa", "_key", "domain", "is_settled", "operator", "parts", "weight")

    def __init__(self, domain: Domain, operator: str, parts: frozenset[Any]) -> None:
        self.domain = domain
        self.operator = operator
        self.parts = parts
        #: How many leaves the expression has.
        self.weight: int = 1 if operator in ("leaf", "not") else sum(map(_weight, parts))
        self._dfa: Dfa | bool | None = False  # False: not yet computed
        self._cost = 0  # what it takes to build the automaton
        self.is_settled = False
        self._key: Hashable = None

    @staticmethod
    def leaf(domain: Domain, test: Test, negated: bool = False) -> Tested:
        return Tested(domain, "not" if negated else "leaf", frozenset((test,)))

    @property
    def test(self) -> Any:
        """The test of a leaf."""
        return next(iter(self.parts))

    def contains(self, value: Any) -> bool:
        if self.operator == "and":
            return all(part.contains(value) for part in self.parts)
        if self.operator == "or":
            return any(part.contains(value) for part in self.parts)
        test = self.test
        if self.domain is BYTES and type(test) is Pattern:
            value = value.decode("latin-1")
        return bool(test.matches(plain(value))) ^ (self.operator == "not")

    # What can be settled was settled when the set was built. What is left counts as neither empty
    # nor everything.
    is_none: Final = False
    is_all: Final = False

    # -- Boolean operations

    def union(self, other: Plain | Tested) -> Plain | Tested:
        return joined(self.domain, "or", (self, other))

    def intersection(self, other: Plain | Tested) -> Plain | Tested:
        return joined(self.domain, "and", (self, other))

    def complement(self) -> Tested:
        operator = _OPPOSITE[self.operator]
        if operator in ("leaf", "not"):
            opposite = Tested(self.domain, operator, self.parts)
        else:
            parts = frozenset([part.complement() for part in self.parts])
            opposite = Tested(self.domain, operator, parts)
        if self._dfa is not False:  # the complement of a smallest automaton is a smallest one
            opposite._dfa = self._dfa.complement() if isinstance(self._dfa, Dfa) else None
            opposite._cost = self._cost
        return opposite

    def settled(self) -> Plain | Tested:
        """The set in its plainest form, as far as automata can tell.

        >>> from stentor.filters.domains import STRING
        >>> Tested.leaf(STRING, Pattern("regex", "^(a|b)")).settled()
        Ranges(string, False, (('a', 0), ('c', 0)))
        """
        if self.is_settled:
            return self
        found: Plain | Tested = self
        if self.operator in ("and", "or"):
            parts = [p.settled() if isinstance(p, Tested) else p for p in _ordered(self.parts)]
            found = _structure(self.domain, self.operator, parts)
        if isinstance(found, Tested):
            found = _plainest(found)
        if isinstance(found, Tested):
            found = found._as_settled()
        return found

    def _as_settled(self) -> Tested:
        made = Tested(self.domain, self.operator, self.parts)
        made._dfa, made._cost, made.is_settled = self._dfa, self._cost, True
        return made

    @property
    def is_written(self) -> bool:
        """Nobody has worked out yet what it means, nor what a part of it means."""
        if self.is_settled:
            return False
        return self.operator in ("leaf", "not") or all(
            p.is_written for p in self.parts if isinstance(p, Tested)
        )

    def as_written(self) -> Tested:
        """The same set as if nobody had."""
        parts = self.parts
        if self.operator in ("and", "or"):
            parts = frozenset([p.as_written() if isinstance(p, Tested) else p for p in parts])
        made = Tested(self.domain, self.operator, parts)
        made._dfa, made._cost = self._dfa, self._cost
        return made

    # -- relations

    def includes(self, other: Plain | Tested) -> bool:
        if isinstance(other, Tested):
            if self == other:
                return True
            known = _covers(self, other)
            if known is not None:
                return known
        else:
            if other.is_none or other.is_all:
                return other.is_none
            values = other.values
            if values is not None:
                _account(values, (self,))
                return all(self.contains(v) for v in values)
        mine, theirs = self.dfa, _dfa(other)
        if mine is not None and theirs is not None:
            return mine.includes(theirs) is True
        return self._includes_by_structure(other)

    def included_in(self, other: Plain | Tested) -> bool:
        if isinstance(other, Tested):
            return other.includes(self)
        if other.is_all or other.is_none:
            return other.is_all
        mine, theirs = self.dfa, _dfa(other)
        if mine is not None and theirs is not None:
            return theirs.includes(mine) is True
        choose = any if self.operator == "and" else all
        return self.operator in ("and", "or") and choose(includes(other, p) for p in self.parts)

    def intersects(self, other: Plain | Tested) -> bool:
        answer = self.meets(other)
        if answer is None:
            return not _structure(self.domain, "and", (self, other)).is_none
        return answer

    def meets(self, other: Plain | Tested) -> bool | None:
        """Whether the two have a value in common; None if it cannot be told at once."""
        if isinstance(other, Tested):
            if self == other:
                return True
            known = _overlaps(self, other)
            if known is not None:
                return known
        else:
            if other.is_all or other.is_none:
                return other.is_all
            values = other.values
            if values is not None:
                _account(values, (self,))
                return any(self.contains(v) for v in values)
        mine, theirs = self.dfa, _dfa(other)
        if mine is not None and theirs is not None:
            return mine.intersects(theirs)
        return False if other.complement() == self else None

    def merge(self, other: Plain | Tested) -> Plain | Tested | None:
        """The union if one side covers the other, if it is everything, or if it is plain."""
        if self.includes(other):
            return self
        if self.included_in(other):
            return other
        union = self.union(other)
        union = union.settled() if isinstance(union, Tested) else union
        return union if union.size <= max(self.size, other.size) else None

    def _includes_by_structure(self, other: Plain | Tested) -> bool:
        """Sound rules for sets without automata."""
        if self.weight * _weight(other) > PAIR_LIMIT:
            return False
        if isinstance(other, Tested) and other.operator == "or":
            return all(includes(self, part) for part in other.parts)
        if self.operator == "and":
            return all(includes(part, other) for part in self.parts)
        if self.operator == "or" and any(includes(part, other) for part in self.parts):
            return True
        if isinstance(other, Tested) and other.operator == "and":
            return any(includes(self, part) for part in other.parts)
        return False

    # -- shape

    @property
    def size(self) -> int:
        if self.operator in ("leaf", "not"):
            return 1
        return sum([part.size for part in self.parts])

    @property
    def bounds(self) -> Ranges:
        """A plain set that includes this one; what an index can use without running tests."""
        if self.operator == "leaf":
            prefix = getattr(self.test, "literal_prefix", "")
            if not prefix:
                return Ranges(self.domain, True, ())
            return prefix_ranges(
                self.domain, prefix.encode("latin-1") if self.domain is BYTES else prefix
            )
        if self.operator == "not":
            return Ranges(self.domain, True, ())
        bounds = [part if isinstance(part, Ranges) else part.bounds for part in self.parts]
        if self.operator == "and":
            return reduce(Ranges.intersection, bounds)
        return reduce(Ranges.union, bounds)

    @property
    def leaves(self) -> Iterator[Tested]:
        """All tests in the expression, each as a `leaf` or `not` set."""
        if self.operator in ("leaf", "not"):
            yield self
            return
        for part in self.parts:
            if isinstance(part, Tested):
                yield from part.leaves

    @property
    def dfa(self) -> Dfa | None:
        """The smallest automaton of this set, if it is one of strings and not too large."""
        if self._dfa is False:
            self._build_within(AUTOMATON_STEPS)
        else:
            spend(self._cost)
        return self._dfa  # type: ignore[return-value]

    def _build_within(self, steps: int) -> None:
        before = effort.left
        try:
            with within(steps):
                self._dfa = self._build()
            self._cost = before - effort.left
        except TooCostly:
            if before < steps:
                raise  # it was the budget of the whole that did not suffice
            self._dfa, self._cost = None, steps

    def _build(self) -> Dfa | None:
        if not is_text(self.domain) or self.weight > LEAF_LIMIT:
            return None
        if self.operator in ("leaf", "not"):
            if type(self.test) is not Pattern:
                return None
            dfa = pattern_dfa(self.domain, self.test)
            return dfa.complement() if dfa and self.operator == "not" else dfa
        result: Dfa | None = None
        for part in _ordered(self.parts):
            dfa = _dfa(part)
            if dfa is not None and result is not None:
                combine = result.intersection if self.operator == "and" else result.union
                dfa = combine(dfa, COMBINED_LIMIT)
            if dfa is None:
                return None
            result = dfa
        return result and result.minimize()

    # -- identity

    @property
    def key(self) -> Hashable:
        if self._key is None:
            self._key = self._make_key()
        return self._key

    def _make_key(self) -> Hashable:
        # Plain suffixes and substrings are the mass of all patterns and have one form each.
        if self.is_settled and isinstance(dfa := self._dfa, Dfa) and not _is_simple(self):
            return (self.domain.name, dfa.cuts, dfa.rows, dfa.accepting)
        parts = [part.key if isinstance(part, Tested) else part for part in self.parts]
        return (self.domain.name, self.operator, frozenset(parts))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tested):
            return NotImplemented
        return self is other or self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Tested({self.operator}, {', '.join(sorted(map(repr, self.parts)))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Tested, (self.domain, self.operator, self.parts)


#: A set of values without tests.
Plain = Ranges | SplitNumbers

_OPPOSITE: Final = {"leaf": "not", "not": "leaf", "and": "or", "or": "and"}


def includes(mine: Plain | Tested, theirs: Plain | Tested) -> bool:
    """Whether the first set includes the second, whatever kinds they are."""
    spend(2)
    if isinstance(mine, Tested):
        return mine.includes(theirs)
    if isinstance(theirs, Tested):
        return theirs.included_in(mine)
    return numbers.includes(mine, theirs)


def _plainest(found: Tested) -> Plain | Tested:
    """The same set as a plain one, or as one suffix or substring test, if it is such a set."""
    if _is_simple(found) or (dfa := found.dfa) is None:
        return found
    ranges = ranges_of(found.domain, dfa)
    if ranges is not None:
        return ranges
    for automaton, negated in ((dfa, False), (dfa.complement(), True)):
        # The shortest string of a suffix or substring test is its text.
        text = automaton.example()
        for kind in (SUFFIX, CONTAINS) if text else ():
            simple = Tested.leaf(found.domain, Pattern(kind, text or ""), negated)
            if simple.dfa == dfa:
                return simple
    return found


def _ordered(parts: Iterable[Plain | Tested]) -> list[Plain | Tested]:
    """In an order that depends on the parts alone, so that work on them takes the same steps."""
    kept = list(parts)
    spend(sum(map(_weight, kept)))
    return sorted(kept, key=repr)


def prefix_ranges(domain: Domain, prefix: Any) -> Ranges:
    """The strings (or byte strings) that begin with the prefix, as an interval."""
    return Ranges.of_cuts(domain, False, [(prefix, 0), *_after_prefix(prefix)])


def _after_prefix(prefix: Any) -> list[Cut]:
    """The cut above everything that begins with the prefix; none if nothing is above."""
    if isinstance(prefix, bytes):
        head = prefix.rstrip(b"\xff")
        return [(head[:-1] + bytes((head[-1] + 1,)), 0)] if head else []
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return []
    last = ord(head[-1]) + 1
    return [(head[:-1] + chr(0xE000 if last == 0xD800 else last), 0)]


def joined(domain: Domain, operator: str, nodes: Iterable[Plain | Tested]) -> Plain | Tested:
    """A flat `and` or `or`, with one plain set in it at most; nothing else is worked out.

    A plain set that alone decides the result is the result.
    """
    tests, rest = _flat(domain, operator, nodes)
    spend(16 + 4 * len(tests))
    both = operator == "and"
    if rest.is_none if both else rest.is_all:
        return rest
    parts: list[Plain | Tested] = list(tests)
    if not (rest.is_all if both else rest.is_none):
        parts.append(rest)
    return _whole(domain, operator, parts)


def _whole(domain: Domain, operator: str, parts: list[Plain | Tested]) -> Plain | Tested:
    if not parts:
        return Ranges(domain, operator == "and", ())
    return parts[0] if len(parts) == 1 else Tested(domain, operator, frozenset(parts))


def _flat(
    domain: Domain, operator: str, nodes: Iterable[Plain | Tested]
) -> tuple[dict[Tested, None], Plain]:
    """The different tests, and all plain sets in one."""
    both = operator == "and"
    tests: dict[Tested, None] = {}
    rest: list[Plain] = []
    for node in nodes:
        flat = node.parts if isinstance(node, Tested) and node.operator == operator else (node,)
        spend(len(flat))
        for part in flat:
            if isinstance(part, Tested):
                tests[part] = None
            else:
                rest.append(part)
    combine = numbers.intersection if both else numbers.union
    while len(rest) > 1:  # neighbors first: what came of all so far would be copied each time
        folded = [combine(a, b) for a, b in zip(rest[::2], rest[1::2], strict=False)]
        rest = folded + rest[len(rest) & ~1 :]
    return tests, rest[0] if rest else Ranges(domain, both, ())


def _structure(domain: Domain, operator: str, nodes: Iterable[Plain | Tested]) -> Plain | Tested:
    """A flat `and` or `or` in which no set is left that another one settles.

    A plain set that alone decides the result is the result, and so is a contradiction.
    """
    both = operator == "and"
    tests, rest = _flat(domain, operator, nodes)
    # The values on which the tests still matter, if they can be listed, are decided here.
    values = (rest if both else rest.complement()).values
    if values is not None:
        _account(values, tests)
        decide = all if both else any
        points = Ranges.points(domain, [v for v in values if decide(t.contains(v) for t in tests)])
        return points if both else numbers.union(rest, points)
    if both and isinstance(rest, SplitNumbers) and (members := rest.members) is not None:
        floats, ints = [[v for v in half if all(t.contains(v) for t in tests)] for half in members]
        return numbers.numbers(Ranges.points(REAL, floats), Ranges.points(INTEGER, ints))
    parts: list[Plain | Tested] = _ordered(tests)
    if not (rest.is_all if both else rest.is_none):
        parts.append(rest)
    if sum(map(_weight, parts)) ** 2 <= PAIR_LIMIT:
        kept = _without_settled(parts, both)
        if kept is None:
            return Ranges(domain, not both, ())
        parts = kept
    return _whole(domain, operator, parts)


def _without_settled(parts: list[Plain | Tested], both: bool) -> list[Plain | Tested] | None:
    """The parts that say something which no other one says; None if two contradict each other
    (or, in an `or`, leave nothing out)."""
    kept: list[Plain | Tested] = []
    pending = deque(parts)
    while pending:
        part = pending.popleft()
        if any(includes(part, o) if both else includes(o, part) for o in kept):
            continue
        for other in () if both else kept:
            merger = _merger(other, part)
            if merger is not None:
                kept = [o for o in kept if o is not other]
                pending.appendleft(merger)
                break
        else:
            if any(_contradict(part, other, both) for other in kept):
                return None
            kept = [o for o in kept if not (includes(o, part) if both else includes(part, o))]
            kept.append(part)
    return kept


def _contradict(mine: Plain | Tested, theirs: Plain | Tested, both: bool) -> bool:
    spend(2)
    if not both:
        mine, theirs = mine.complement(), theirs.complement()
    if isinstance(mine, Tested):
        return mine.meets(theirs) is False
    return isinstance(theirs, Tested) and theirs.meets(mine) is False


def _merger(mine: Plain | Tested, theirs: Plain | Tested) -> Tested | None:
    """The one test that a registered operator offers for two of its own."""
    if not isinstance(mine, Tested) or not isinstance(theirs, Tested):
        return None
    if not mine.operator == theirs.operator == "leaf" or type(mine.test) is not type(theirs.test):
        return None
    merged = getattr(mine.test, "merged", None)
    test = merged(theirs.test) if merged else None
    return None if test is None else Tested.leaf(mine.domain, test)


def _account(values: list[Any], tests: Collection[Tested]) -> None:
    """Spend what it takes to try the tests on each of the values."""
    weight = sum(map(_weight, tests))
    spend(8 * len(values) * (1 + weight))
    if values and isinstance(values[0], str | bytes):
        trials = [getattr(leaf.test, "trial", 0) for test in tests for leaf in test.leaves]
        spend(sum(map(len, values)) * ((1 + weight) // 3 + sum(trials)))


def _weight(node: Plain | Tested) -> int:
    return node.weight if isinstance(node, Tested) else 1


def _is_simple(node: Tested) -> bool:
    """One test that has no other form: a suffix, a substring, a registered operator."""
    return node.operator in ("leaf", "not") and (
        type(node.test) is not Pattern or node.test.kind in (SUFFIX, CONTAINS)
    )


def _dfa(node: Plain | Tested) -> Dfa | None:
    if isinstance(node, Tested):
        return node.dfa
    return ranges_dfa(node) if isinstance(node, Ranges) and is_text(node.domain) else None


# What two tests say of each other without automata. None: they do not say.


def _covers(mine: Tested, theirs: Tested) -> bool | None:
    match mine.operator, theirs.operator:
        case "leaf", "leaf":
            return _test_covers(mine.test, theirs.test)
        case "not", "not":
            return _test_covers(theirs.test, mine.test)
        case "not", "leaf":
            return _not(_test_overlaps(mine.test, theirs.test))
    return None


def _overlaps(mine: Tested, theirs: Tested) -> bool | None:
    match mine.operator, theirs.operator:
        case "leaf", "leaf":
            return _test_overlaps(mine.test, theirs.test)
        case "leaf", "not":
            return _not(_test_covers(theirs.test, mine.test))
        case "not", "leaf":
            return _not(_test_covers(mine.test, theirs.test))
    return None


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _test_covers(mine: Any, theirs: Any) -> bool | None:
    if type(mine) is Pattern and type(theirs) is Pattern:
        if theirs.kind not in (SUFFIX, CONTAINS):
            return None
        if mine.kind == CONTAINS:
            return mine.text in theirs.text
        if mine.kind == SUFFIX:
            return theirs.kind == SUFFIX and theirs.text.endswith(mine.text)
        return None
    return _registered_answer(mine, theirs, "covers")


def _test_overlaps(mine: Any, theirs: Any) -> bool | None:
    if type(mine) is Pattern and type(theirs) is Pattern:
        kinds = {mine.kind, theirs.kind}
        if kinds == {SUFFIX}:
            return mine.text.endswith(theirs.text) or theirs.text.endswith(mine.text)
        return True if kinds <= {SUFFIX, CONTAINS} else None
    return _registered_answer(mine, theirs, "overlaps")


def _registered_answer(mine: Any, theirs: Any, question: str) -> bool | None:
    """What a registered operator says of two of its own tests."""
    if type(mine) is not type(theirs) or type(mine) is Pattern:
        return None
    answer: bool | None = getattr(mine, question)(theirs)
    return answer
