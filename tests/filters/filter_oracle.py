"""An evaluator of filter expressions that shares nothing with the algebra under test.

It follows the specification directly: an attribute that is missing satisfies no test (R-02.08), a
comparison is false for a value of another type, and negation is pushed down to the atoms, where it
means the other values of the same type (02/T4). Operators are plain Python on plain values.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from stentor.filters.expression import And, Atom, Expression, Not, Or, Quantified, Truth
from stentor.filters.language import parse

Facts = Mapping[str, Any]


def holds(text: str, facts: Facts) -> bool:
    return evaluate(parse(text), facts)


def evaluate(expression: Expression, facts: Facts, negated: bool = False) -> bool:
    match expression:
        case Truth(value):
            return value is not negated
        case Not(part):
            return evaluate(part, facts, not negated)
        case And(parts):
            answers = [evaluate(p, facts, negated) for p in parts]
            return any(answers) if negated else all(answers)
        case Or(parts):
            answers = [evaluate(p, facts, negated) for p in parts]
            return all(answers) if negated else any(answers)
        case Quantified(quantifier, name, part):
            elements = facts.get(name)
            if kind(elements) != "collection":
                return False
            found = [evaluate(part, element_facts(element)) for element in elements or ()]
            return (any(found) if quantifier == "any" else all(found)) is not negated
        case Atom(name, operator, constants):
            return atom_holds(operator, constants, facts.get(name), negated)
    raise AssertionError(expression)


def element_facts(element: Any) -> Facts:
    """What an element says: its fields under their names, and itself under the empty one."""
    return {"": element, **element} if isinstance(element, Mapping) else {"": element}


def kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "record"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, datetime):
        return "time"
    return "collection"


def same(a: object, b: object) -> bool:
    return kind(a) == kind(b) and a == b


def _among(value: object, constants: Iterable[object]) -> bool:
    return any(same(value, c) for c in constants)


def atom_holds(
    operator: str, constants: tuple[Any, ...], value: Any, negated: bool = False
) -> bool:
    if operator.startswith("not "):
        operator, negated = operator[4:], not negated
    if operator in ("exists", "missing"):
        return ((value is None) == (operator == "missing")) != negated
    if value is None:
        return False
    answer = _answer(operator, constants, value)
    return answer is not None and answer is not negated


def _answer(operator: str, constants: tuple[Any, ...], value: Any) -> bool | None:
    """Whether the value satisfies the operator; None if the operator is not about its type."""
    if operator in ("is", "is not"):
        wanted = constants[0]
        found = kind(value)
        right = type(value).__name__ == wanted if wanted in ("int", "float") else found == wanted
        return right is (operator == "is")
    if operator in _COLLECTION_OPERATORS or operator.startswith("some "):
        if kind(value) != "collection":
            return None
        if operator.startswith("some "):
            return any(atom_holds(operator[5:], constants, e) for e in value)
        return _COLLECTION_OPERATORS[operator](value, constants)
    if operator in ("in", "!in"):
        if not any(kind(value) == kind(c) for c in constants):
            return None
        return _among(value, constants)
    if kind(value) != kind(constants[0]):
        return None
    return _SCALAR[operator](value, *constants)


_COLLECTION_OPERATORS: dict[str, Any] = {
    "has": lambda x, m: _among(m[0], x),
    "lacks": lambda x, m: not _among(m[0], x),
    "overlaps": lambda x, m: any(_among(e, m) for e in x),
    "disjoint": lambda x, m: not any(_among(e, m) for e in x),
    "superset": lambda x, m: all(_among(c, x) for c in m),
    "subset": lambda x, m: all(_among(e, m) for e in x),
}

_SCALAR: dict[str, Any] = {
    "=": lambda v, c: v == c,
    "!=": lambda v, c: v != c,
    "<": lambda v, c: v < c,
    "<=": lambda v, c: v <= c,
    ">": lambda v, c: v > c,
    ">=": lambda v, c: v >= c,
    "between": lambda v, a, b: a <= v <= b,
    "prefix": lambda v, c: v.startswith(c),
    "suffix": lambda v, c: v.endswith(c),
    "contains": lambda v, c: c in v,
    "like": lambda v, c: _like(v, c),
}


def _like(value: str, pattern: str) -> bool:
    if not pattern:
        return not value
    if pattern[0] == "%":
        return any(_like(value[i:], pattern[1:]) for i in range(len(value) + 1))
    return bool(value) and pattern[0] in ("_", value[0]) and _like(value[1:], pattern[1:])
