"""The operators of the filter model: what each one accepts, and what its negation is.

Every operator of the specification's tables is one row of `_OPERATORS`: a function from its
constants to the `Constraint` it stands for, and the operator that accepts exactly the other values
*of the same type*. Negation stays within the type and still requires the attribute, so `not x < 5`
is `x >= 5` and a missing attribute satisfies neither (02/T3, 02/T4).

Where a constraint accepts every value of its type (`s prefix ''`, `b in (true, false)`,
`x not in ()`) it is the same as `exists` under the model's rule that a name has one type, and is
turned into it here. A type test is the exception: it is about the type.

`some <operator>` applies an operator to the elements of a collection. Further operators are
registered with `register_operator`; they can be used in the language at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from stentor.errors import FilterTypeError, InvalidValue
from stentor.filters import patterns
from stentor.filters.collection import Cell, CollectionSet
from stentor.filters.constraint import (
    EXISTS,
    MISSING,
    NO_VALUE,
    Constraint,
    everything,
    nothing,
)
from stentor.filters.custom import (
    Constants,
    CustomTest,
    Operator,
    registered,
    registered_operator,
)
from stentor.filters.domains import REAL, Domain, domain
from stentor.filters.effort import spend
from stentor.filters.language.tokens import is_plain_name
from stentor.filters.networks import IN_NETWORK
from stentor.filters.numbers import ONLY_FLOATS, ONLY_INTS
from stentor.filters.ranges import Ranges
from stentor.filters.tested import Tested, prefix_ranges
from stentor.filters.unordered import BUILT_IN, comparable
from stentor.model import values
from stentor.model.event_types import event_types
from stentor.model.values import COLLECTION, INT_MAX, INT_MIN, RECORD, normal, value_type_of


def register_operator(operator: Operator) -> Operator:
    """Make an operator known to filters and to the language.

    >>> from stentor import Filter
    >>> _ = register_operator(Operator("divisible_by", "number", lambda v, n: v % n == 0))
    >>> Filter("x divisible_by 3").matches({"x": 9})
    True
    """
    name = operator.name
    if name in _OPERATORS:
        raise FilterTypeError(f"{name!r} is an operator of the language already")
    if not is_plain_name(name) or "." in name:
        raise FilterTypeError(f"{name!r} cannot be written as an operator; use letters and _ only")
    if operator.value_type == COLLECTION:
        raise FilterTypeError(
            "an operator works on single values; `some x` applies it to the elements"
        )
    if operator.value_type not in values.value_type_names():
        known = ", ".join(values.value_type_names())
        raise FilterTypeError(f"there is no value type {operator.value_type!r}; known: {known}")
    registered[name] = operator
    return operator


def constraint(operator: str, constants: Constants) -> Constraint:
    """What an operator with these constants accepts."""
    row = _OPERATORS.get(operator)
    if row is not None:
        return row[0](constants)
    if operator.startswith("some "):
        return _some(operator[5:], constants)
    if operator.startswith("not some "):
        return _within_collections(_some(operator[9:], constants))
    spend(24)
    custom = registered_operator(operator.removeprefix("not "))
    constants = tuple([_constant(operator, c) for c in constants])
    if custom.constants is not None:
        constants = custom.constants(*constants)
    leaf = Tested.leaf(
        _domain(custom.value_type), CustomTest(custom, constants), operator.startswith("not ")
    )
    return Constraint.of_part(custom.value_type, leaf)


#: Operators whose sets are plain: comparisons, lists, intervals, prefixes, types and presence.
PLAIN = frozenset(
    (
        *("=", "!=", "<", "<=", ">", ">=", "in", "between", "within", "prefix"),
        *("not in", "not between", "not within", "not prefix"),
        *("exists", "missing", "is", "is not"),
    )
)


def opposite(operator: str) -> str:
    """The operator that accepts the other values of the same type."""
    row = _OPERATORS.get(operator)
    if row is not None:
        return row[1]
    return operator[4:] if operator.startswith("not ") else "not " + operator


# -- comparisons


@lru_cache(maxsize=65_536, typed=True)
def _comparison(operator: str, constant: Any) -> Constraint:
    type_name, dom, value = _typed(operator, constant)
    if operator == "=":
        part = Ranges.points(dom, (value,))
    elif operator == "!=":
        part = Ranges.points(dom, (value,)).complement()
    else:
        _require_order(operator, type_name)
        if operator == "<":
            part = Ranges.below(dom, value, 0)
        elif operator == "<=":
            part = Ranges.below(dom, value, 1)
        elif operator == ">":
            part = Ranges.above(dom, value, 1)
        else:
            part = Ranges.above(dom, value, 0)
    return _of_type(type_name, part)


def _compare_with(operator: str) -> Callable[[Constants], Constraint]:
    def build(constants: Constants) -> Constraint:
        (constant,) = constants
        try:
            return _comparison(operator, constant)
        except TypeError as error:  # an unhashable constant cannot be cached
            if isinstance(error, FilterTypeError):
                raise
            return _comparison.__wrapped__(operator, constant)

    return build


def _between(constants: Constants) -> Constraint:
    return _within((*constants, "[]"))


def _not_between(constants: Constants) -> Constraint:
    return _not_within((*constants, "[]"))


def _within(constants: Constants) -> Constraint:
    type_name, part = _interval(constants)
    return _of_type(type_name, part)


def _not_within(constants: Constants) -> Constraint:
    type_name, part = _interval(constants)
    return _of_type(type_name, part.complement())


def _interval(constants: Constants) -> tuple[str, Ranges]:
    if len(constants) != 3 or constants[2] not in ("()", "(]", "[)", "[]"):
        raise FilterTypeError("within takes a low end, a high end, and '()', '(]', '[)' or '[]'")
    low, high, ends = constants
    type_name, dom, low = _typed("between", low)
    high_type, _, high = _typed("between", high)
    if type_name != high_type:
        raise FilterTypeError(
            f"an interval needs two ends of one type, not {type_name} and {high_type}"
        )
    _require_order("between", type_name)
    return type_name, Ranges.between(dom, low, high, int(ends[0] == "("), int(ends[1] == "]"))


def _in(constants: Constants) -> Constraint:
    return _whole(one_of(constants))


def _not_in(constants: Constants) -> Constraint:
    if not constants:
        return EXISTS
    return _whole(_within_types(one_of(constants)))


def one_of(constants: Iterable[Any]) -> Constraint:
    """Exactly these values, of whatever types."""
    constants = tuple(constants)
    spend(len(constants) // 4)
    plain = _PLAIN_LISTS.get(type(constants[0])) if len(constants) > 8 else None
    if plain is not None and plain(constants):
        type_name = value_type_of(constants[0])
        return Constraint(((type_name, Ranges.points(_domain(type_name), constants)),))
    by_type: dict[str, list[Any]] = {}
    for constant in constants:
        type_name, _, value = _typed("in", constant)
        by_type.setdefault(type_name, []).append(value)
    return Constraint(
        tuple([(name, Ranges.points(_domain(name), by_type[name])) for name in sorted(by_type)])
    )


def _are_integers(constants: Constants) -> bool:
    """Whether all are integers that a notification may hold."""
    return set(map(type, constants)) == {int} and (
        min(constants) >= INT_MIN and max(constants) <= INT_MAX
    )


def _are_ascii(constants: Constants) -> bool:
    return set(map(type, constants)) == {str} and all(map(str.isascii, constants))


#: Long lists of the usual kinds need not be looked at one by one.
_PLAIN_LISTS = {int: _are_integers, str: _are_ascii}


# -- strings


def _prefix(constants: Constants) -> Constraint:
    type_name, dom, value = _text("prefix", constants)
    return _of_type(type_name, prefix_ranges(dom, value))


def _pattern(kind: str) -> Callable[[Constants], Constraint]:
    make: Callable[..., Any] = getattr(patterns, kind)

    def build(constants: Constants) -> Constraint:
        type_name, _, value = _text(kind, constants[:1])
        is_bytes = isinstance(value, bytes)
        if is_bytes and kind in ("like", "regex"):
            raise FilterTypeError(f"{kind} works on strings, not on bytes")
        found = make(value.decode("latin-1") if is_bytes else value, *constants[1:])
        if isinstance(found, patterns.Anything):
            return EXISTS
        if isinstance(found, patterns.Exactly):
            return _comparison("=", found.text.encode("latin-1") if is_bytes else found.text)
        if isinstance(found, patterns.StartsWith):
            return _prefix((found.text.encode("latin-1") if is_bytes else found.text,))
        return _of_pattern(type_name, found)

    return build


@lru_cache(maxsize=4_096)
def _of_pattern(type_name: str, pattern: patterns.Pattern) -> Constraint:
    return Constraint(((type_name, Tested.leaf(domain(type_name), pattern)),))


# -- types


def _is(constants: Constants) -> Constraint:
    name = _type_named(constants)
    if name in ("int", "float"):
        return Constraint.of_part("number", ONLY_INTS if name == "int" else ONLY_FLOATS)
    return Constraint(((name, everything(name)),))


def _is_not(constants: Constants) -> Constraint:
    name = _type_named(constants)
    if name in ("int", "float"):
        part = ONLY_FLOATS if name == "int" else ONLY_INTS
        return Constraint((("number", part),), rest=True)
    return Constraint(((name, nothing(name)),), rest=True)


def _type_named(constants: Constants) -> str:
    (name,) = constants
    known = ("int", "float", *values.value_type_names(), COLLECTION, RECORD)
    if name not in known:
        raise FilterTypeError(f"there is no type {name!r}; known types: {', '.join(known)}")
    return str(name)


# -- collections


def _collections(cells: Iterable[Cell]) -> Constraint:
    return _of_type(COLLECTION, CollectionSet.of(cells))


def _hit(*hits: Constraint) -> Constraint:
    return _collections([Cell(EXISTS, frozenset(hits))])


def _all_in(universe: Constraint) -> Constraint:
    return _collections([Cell(universe, frozenset())])


def _superset(constants: Constants) -> Constraint:
    spend(12 * len(constants))
    return _hit(*[one_of((c,)) for c in constants])


def _not_superset(constants: Constants) -> Constraint:
    spend(12 * len(constants))
    return _collections([Cell(one_of((c,)).complement(), frozenset()) for c in constants])


def _not_subset(constants: Constants) -> Constraint:
    return _hit(one_of(constants).complement())


def _some(operator: str, constants: Constants) -> Constraint:
    inner = EXISTS if operator == "exists" else constraint(operator, constants)
    # An element is never missing and never a collection: what is said of these goes.
    parts = tuple([(name, part) for name, part in inner.parts if name != COLLECTION])
    return _hit(Constraint(parts, rest=inner.rest))


def quantified(quantifier: str, element: Constraint, negated: bool) -> Constraint:
    """Collections of which some element, or every one, is as it should be; or none, or not all."""
    if quantifier == "any":
        return _all_in(element.complement()) if negated else _hit(element)
    return _hit(element.complement()) if negated else _all_in(element)


def _isa(constants: Constants) -> Constraint:
    (event_type,) = constants
    return _superset(tuple(event_types.ancestors(event_type)))


# -- helpers


def _typed(operator: str, constant: Any) -> tuple[str, Domain, Any]:
    """The constant's type, the domain of that type, and the constant as sets store it."""
    value = _constant(operator, constant)
    type_name = value_type_of(value)
    if type_name == COLLECTION:
        raise FilterTypeError(
            f"{operator} compares with single values; for collections use has, overlaps, "
            "superset of, subset of or disjoint from"
        )
    _require_hash(operator, type_name, value)
    return type_name, _domain(type_name), comparable(type_name, value)


def _constant(operator: str, constant: Any) -> Any:
    if constant is None:
        raise FilterTypeError(f"{operator} cannot compare with nothing; write `is missing` instead")
    try:
        return normal(constant)
    except InvalidValue as error:
        raise FilterTypeError(f"not a constant for {operator}: {error}") from None


def _text(operator: str, constants: Constants) -> tuple[str, Domain, Any]:
    (constant,) = constants
    type_name, dom, value = _typed(operator, constant)
    if type_name not in ("string", "bytes"):
        raise FilterTypeError(f"{operator} works on strings and bytes, not on a {type_name}")
    return type_name, dom, value


def _domain(type_name: str) -> Domain:
    return REAL if type_name == "number" else domain(type_name)


def _require_hash(operator: str, type_name: str, value: Any) -> None:
    if type_name not in BUILT_IN:
        try:
            hash(value)
        except TypeError:
            raise FilterTypeError(
                f"{operator} needs values that can be hashed, and those of type {type_name} cannot"
            ) from None


def _require_order(operator: str, type_name: str) -> None:
    if not values.value_type(type_name).ordered:
        raise FilterTypeError(f"values of type {type_name} have no order for {operator}")


def _of_type(type_name: str, part: Any) -> Constraint:
    if part.is_all:
        return EXISTS
    return NO_VALUE if part.is_none else Constraint(((type_name, part),))


def _whole(found: Constraint) -> Constraint:
    """`EXISTS` for a constraint that accepts every value of its only type."""
    if len(found.parts) == 1 and found.parts[0][1].is_all:
        return EXISTS
    return found


def _within_types(found: Constraint) -> Constraint:
    """The other values of the same types."""
    parts = tuple([(name, part.complement()) for name, part in found.parts])
    return Constraint(tuple([(name, part) for name, part in parts if not part.is_none]))


def _within_collections(found: Constraint) -> Constraint:
    part = found.part(COLLECTION).complement()
    return _of_type(COLLECTION, part)


def _negated(build: Callable[[Constants], Constraint]) -> Callable[[Constants], Constraint]:
    """The operator's complement within its type."""

    def build_negated(constants: Constants) -> Constraint:
        found = build(constants)
        if found.is_none:
            return EXISTS
        return NO_VALUE if found is EXISTS else _within_types(found)

    return build_negated


def _rows() -> dict[str, tuple[Callable[[Constants], Constraint], str]]:
    rows: dict[str, tuple[Callable[[Constants], Constraint], str]] = {
        "exists": (lambda _: EXISTS, "missing"),
        "missing": (lambda _: MISSING, "exists"),
        "between": (_between, "not between"),
        "not between": (_not_between, "between"),
        "within": (_within, "not within"),
        "not within": (_not_within, "within"),
        "in": (_in, "not in"),
        "not in": (_not_in, "in"),
        "is": (_is, "is not"),
        "is not": (_is_not, "is"),
        "has": (lambda c: _hit(one_of(c)), "lacks"),
        "lacks": (lambda c: _all_in(one_of(c).complement()), "has"),
        "overlaps": (lambda c: _hit(one_of(c)), "disjoint"),
        "disjoint": (lambda c: _all_in(one_of(c).complement()), "overlaps"),
        "superset": (_superset, "not superset"),
        "not superset": (_not_superset, "superset"),
        "subset": (lambda c: _all_in(one_of(c)), "not subset"),
        "not subset": (_not_subset, "subset"),
        "isa": (_isa, "not isa"),
        "not isa": (lambda c: _all_in(one_of(c).complement()), "isa"),
        "prefix": (_prefix, "not prefix"),
        "not prefix": (_negated(_prefix), "prefix"),
    }
    for operator, negation in (("=", "!="), ("<", ">="), (">", "<=")):
        rows[operator] = (_compare_with(operator), negation)
        rows[negation] = (_compare_with(negation), operator)
    for kind in ("suffix", "contains", "like", "regex"):
        build = _pattern(kind)
        rows[kind] = (build, "not " + kind)
        rows["not " + kind] = (_negated(build), kind)
    return rows


_OPERATORS = _rows()
register_operator(IN_NETWORK)
