r"""SIENA's own filters, where they differ from Stentor's (sheet 08, 3.2).

A SIENA filter is a set of attribute constraints `(name, type, operator, value)`. Typing is strict:
an integer never satisfies a constraint on a float, nor the other way round. There is no negation
and no disjunction.

A *subscription* asks for a notification that has at least the named attributes, each satisfying all
of its constraints. That is a plain `Filter` with type tests, and matching, covering and overlap are
those of the algebra.

An *advertisement* looks the same and means something else. It describes notifications that have *at
most* the named attributes: each attribute of the notification is named, and its value is allowed.
Advertised attributes are optional, others are forbidden. So inclusion of names is turned around:

    N_A(a) = { n : names(n) ⊆ names(a), and n[N] ∈ vals_a(N) for every N in n }

More constraints on new names make an advertisement broader and a subscription narrower, and using
one `covers` for both loses notifications (07/T-08). "No other attribute" is nothing a filter can
say; therefore an advertisement is a class of its own, built from the value sets of the algebra:

    a overlaps s     every name of s is in a, with a common value           (R-08.13)
    a1 covers a2     every name that a2 can have is in a1, with all values  (R-08.15)

Several constraints on one name must all hold, in a subscription as in an advertisement, according
to the thesis; according to the book they are alternatives in an advertisement. The thesis is the
default, `adv_repeat="any"` is the book's reading.

System attributes (`_channel`, ...) are outside of SIENA's model: constraints cannot name them, and
advertisements do not restrict them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import reduce
from typing import Any, Final, NamedTuple

from stentor.errors import FilterSyntaxError, FilterTypeError, InvalidValue
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import MISSING, NO_VALUE, Constraint
from stentor.filters.filter import Filter
from stentor.filters.operators import constraint as operator_constraint
from stentor.model.names import name_problem, shown
from stentor.model.notification import Notification
from stentor.model.values import ValueType, normal, register_value_type


class Char(str):
    """A value of SIENA's type char: one character, which is not a string.

    >>> SienaSubscription([("grade", "char", "<", "C")]).matches({"grade": Char("B")})
    True
    >>> SienaSubscription([("grade", "string", "<", "C")]).matches({"grade": Char("B")})
    False
    """

    __slots__ = ()

    def __new__(cls, character: str) -> Char:
        if len(character) != 1:
            raise InvalidValue(f"a char is one character, not {shown(character)}")
        return super().__new__(cls, character)


register_value_type(
    ValueType(
        "char",
        (Char,),
        format=str.__str__,
        parse=Char,
        dump=lambda char: str.encode(char),
        load=lambda data: Char(data.decode()),
    )
)

Convert = Callable[[Any], Any]


class SienaConstraint(NamedTuple):
    """One attribute filter. The operator `any` takes no value."""

    name: str
    type: str
    operator: str
    value: Any = None


def _only(*classes: type) -> Convert:
    def convert(value: Any) -> Any:
        value = normal(value)
        if type(value) not in classes:
            raise FilterTypeError(f"a {type(value).__name__}")
        return value

    return convert


def _float(value: Any) -> float:
    number = _only(int, float)(value)
    if float(number) != number:
        raise FilterTypeError("an integer that no float is equal to")
    return float(number)


def _char(value: Any) -> Char:
    if not isinstance(value, str):
        raise FilterTypeError(f"a {type(value).__name__}")
    return Char(value)


#: SIENA's types: the type test of the filter language, how a constant is read, whether the
#: substring operators apply.
_TYPES: Final[dict[str, tuple[str, Convert, bool]]] = {
    "char": ("char", _char, False),
    "integer": ("int", _only(int), False),
    "boolean": ("bool", _only(bool), False),
    "float": ("float", _float, False),
    "string": ("string", _only(str), True),
    "byte-array": ("bytes", _only(bytes), True),
    "date": ("time", _only(datetime), False),
    "time": ("time", _only(datetime), False),
}

#: SIENA's operators, and the filter language's. The attribute's value is the left operand.
_OPERATORS: Final = {
    "=": "=",
    "<": "<",
    ">": ">",
    "<=": "<=",
    ">=": ">=",
    ">*": "prefix",
    "*<": "suffix",
}


def values_of(found: SienaConstraint) -> Constraint:
    """The set of values that one attribute filter accepts, all of its type (R-08.10)."""
    test, convert, has_substrings = _type(found)
    if found.operator == "any":
        if found.value is not None:
            raise FilterTypeError(f"{_shown(found)}: the operator any takes no value")
        return operator_constraint("is", (test,))
    operator = _OPERATORS.get(found.operator)
    if operator is None:
        raise FilterTypeError(
            f"{_shown(found)}: there is no operator {found.operator!r}; "
            f"SIENA has any, {', '.join(_OPERATORS)}"
        )
    if operator in ("prefix", "suffix") and not has_substrings:
        raise FilterTypeError(f"{_shown(found)}: {found.operator} works on strings and byte arrays")
    try:
        value = convert(found.value)
    except (FilterTypeError, InvalidValue) as error:
        raise FilterTypeError(
            f"{_shown(found)}: the value is not of type {found.type}: {error}"
        ) from None
    if test == "char":
        return _chars(operator, ord(value))
    # The type test keeps a float away from an integer's range, and says the type where the range
    # is everything (`>* ''`).
    return operator_constraint("is", (test,)).intersection(operator_constraint(operator, (value,)))


def _type(found: SienaConstraint) -> tuple[str, Convert, bool]:
    problem = name_problem(found.name)
    if problem is None and found.name.startswith("_"):
        problem = "is a system attribute, which SIENA's filters do not see"
    if problem is not None:
        raise FilterSyntaxError(f"the attribute name {shown(found.name)} {problem}")
    known = _TYPES.get(found.type)
    if known is None:
        raise FilterTypeError(
            f"{_shown(found)}: there is no type {found.type!r}; SIENA has {', '.join(_TYPES)}"
        )
    return known


def _chars(operator: str, code: int) -> Constraint:
    """Characters by a comparison, with closed ends, so that equal sets look equal (R-08.17)."""
    low = {"<": 0, "<=": 0, ">": _after(code)}.get(operator, code)
    high = {">": _LAST, ">=": _LAST, "<": _before(code)}.get(operator, code)
    if low > high:
        return NO_VALUE
    if (low, high) == (0, _LAST):
        return operator_constraint("is", ("char",))
    if low == 0:
        return operator_constraint("<=", (Char(chr(high)),))
    if high == _LAST:
        return operator_constraint(">=", (Char(chr(low)),))
    return operator_constraint("=", (Char(chr(low)),))


_LAST: Final = 0x10FFFF


def _after(code: int) -> int:
    return 0xE000 if code == 0xD7FF else code + 1  # surrogates are no characters


def _before(code: int) -> int:
    return 0xD7FF if code == 0xE000 else code - 1


def _shown(found: SienaConstraint) -> str:
    value = "" if found.value is None else f" {found.value!r}"
    return f"{found.type} {found.name} {found.operator}{value}"


Given = Iterable[SienaConstraint | tuple[Any, ...]]


def _grouped(given: Given) -> dict[str, list[Constraint]]:
    """The value sets of all constraints, by name."""
    grouped: dict[str, list[Constraint]] = {}
    for item in given:
        if not 3 <= len(item) <= 4:
            raise FilterTypeError(
                f"{item!r} is not a constraint; write (name, type, operator, value)"
            )
        found = SienaConstraint(*item)
        grouped.setdefault(found.name, []).append(values_of(found))
    return grouped


class SienaSubscription:
    """A subscription of SIENA: `filter` is the same in Stentor's algebra.

    >>> s = SienaSubscription([("event", "string", "=", "alarm"), ("level", "integer", ">", 3)])
    >>> s.matches({"event": "alarm", "level": 5, "user": "alice"})
    True
    >>> s.matches({"event": "alarm", "level": 5.0})
    False
    >>> print(s.filter)
    event = 'alarm' and level is int and level >= 4
    """

    __slots__ = ("filter", "names")

    #: The same subscription as a filter of the content model.
    filter: Filter
    #: The attributes that it asks for.
    names: frozenset[str]

    def __init__(self, constraints: Given = ()) -> None:
        grouped = _grouped(constraints)
        folded = {name: reduce(Constraint.intersection, sets) for name, sets in grouped.items()}
        conjunct = Conjunct.of(folded)
        self.names = frozenset(grouped)
        self.filter = Filter.of_conjuncts([] if conjunct is None else [conjunct])

    def matches(self, notification: Notification | Mapping[str, Any]) -> bool:
        return self.filter.matches(notification)

    def covers(self, other: SienaSubscription) -> bool:
        """Whether this subscription matches all that the other one matches (R-08.14)."""
        return self.filter.covers(other.filter)

    def overlaps(self, other: SienaSubscription) -> bool:
        """Whether one notification can match both."""
        return self.filter.overlaps(other.filter)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SienaSubscription):
            return NotImplemented
        return self.filter == other.filter

    def __hash__(self) -> int:
        return hash(self.filter)

    def __repr__(self) -> str:
        return f"<SienaSubscription {self.filter}>"


class SienaAdvertisement:
    """An advertisement of SIENA: what its publisher may publish.

    >>> a = SienaAdvertisement([("event", "string", "=", "alarm"), ("level", "integer", ">", 0)])
    >>> a.admits({"event": "alarm"}), a.admits({"event": "alarm", "user": "alice"})
    (True, False)
    >>> a.overlaps(SienaSubscription([("level", "integer", ">", 5)]))
    True
    >>> a.covers(SienaAdvertisement([("level", "integer", ">", 5)]))
    True
    """

    __slots__ = ("adv_repeat", "values")

    #: How several constraints on one name are read: all must hold, or any.
    adv_repeat: str
    #: The allowed values of every advertised attribute that can have one at all.
    values: Mapping[str, Constraint]

    def __init__(self, constraints: Given = (), *, adv_repeat: str = "all") -> None:
        if adv_repeat not in ("all", "any"):
            raise FilterTypeError(f"adv_repeat is 'all' or 'any', not {adv_repeat!r}")
        combine = Constraint.intersection if adv_repeat == "all" else Constraint.union
        self.adv_repeat = adv_repeat
        # A name without any allowed value is one that no notification has, like all unnamed ones.
        self.values = {
            name: allowed
            for name, sets in sorted(_grouped(constraints).items())
            if not (allowed := reduce(combine, sets)).is_none
        }

    @property
    def names(self) -> frozenset[str]:
        """The attributes that an advertised notification can have."""
        return frozenset(self.values)

    @property
    def filter(self) -> Filter:
        """The narrowest plain filter that takes in all advertised notifications.

        It lets unnamed attributes through, which no filter can forbid in general.

        >>> print(SienaAdvertisement([("level", "integer", ">", 0)]).filter)
        level is missing or (level is int and level >= 1)
        """
        optional = {name: allowed.union(MISSING) for name, allowed in self.values.items()}
        conjunct = Conjunct.of(optional)
        assert conjunct is not None  # a notification without attributes is always advertised
        return Filter.of_conjuncts([conjunct])

    def admits(self, notification: Notification | Mapping[str, Any]) -> bool:
        """Whether the notification is one of those advertised (R-08.12)."""
        if not isinstance(notification, Notification):
            # The channel, which nothing restricts, lets one without attributes be made as well.
            notification = Notification(notification, channel="any")
        return all(
            self.values.get(name, NO_VALUE).accepts(value) for name, value in notification.items()
        )

    def overlaps(self, subscription: SienaSubscription | Filter) -> bool:
        """Whether some advertised notification matches the subscription (R-08.13)."""
        wanted = subscription if isinstance(subscription, Filter) else subscription.filter
        return any(
            all(self._meets(name, sought) for name, sought in conjunct.constraints.items())
            for conjunct in wanted.conjuncts
        )

    def _meets(self, name: str, sought: Constraint) -> bool:
        if sought.absent or name.startswith("_"):
            return True
        return self.values.get(name, NO_VALUE).intersects(sought)

    def covers(self, other: SienaAdvertisement) -> bool:
        """Whether everything that the other one advertises is advertised here too (R-08.15)."""
        return all(
            self.values.get(name, NO_VALUE).includes(allowed)
            for name, allowed in other.values.items()
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SienaAdvertisement):
            return NotImplemented
        return self.values == other.values

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))

    def __repr__(self) -> str:
        return f"<SienaAdvertisement {self.filter}>"
