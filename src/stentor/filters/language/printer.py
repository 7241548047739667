"""From names, values and expressions back to text that parses to the same.

Parentheses are written wherever they keep a reader from having to know precedences. Expressions
that no text stands for (an empty name, a value of a type that cannot be written, a constant on the
left of a comparison that should have been an `Atom`) are refused or come back in simplest form.
"""

from __future__ import annotations

import math
from typing import Any

from stentor.errors import FilterTypeError, InvalidValue
from stentor.filters.expression import (
    And,
    Arithmetic,
    Atom,
    Attribute,
    Compare,
    Constant,
    Expression,
    Not,
    Or,
    Quantified,
    Term,
    Truth,
)
from stentor.filters.language.scopes import outside, variable
from stentor.filters.language.tokens import is_plain_name
from stentor.model.values import COLLECTION, normal, value_type, value_type_of

_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
_TEXT_TESTS = frozenset({"prefix", "suffix", "contains", "regex"})
_SET_TESTS = {
    "overlaps": "overlaps",
    "disjoint": "disjoint from",
    "superset": "superset of",
    "subset": "subset of",
    "not superset": "not superset of",
    "not subset": "not subset of",
}


def format_name(name: str) -> str:
    """
    >>> print(format_name("Position.x"), format_name("odd name"), format_name("and"))
    Position.x "odd name" "and"
    """
    if is_plain_name(name):
        return name
    if not name:
        raise InvalidValue("an attribute name cannot be empty")
    return '"' + name.replace('"', '""') + '"'


def format_literal(value: Any) -> str:
    """
    >>> print(format_literal("it's"), format_literal(b"\\x00"), format_literal(float("inf")))
    'it''s' x'00' number 'inf'
    """
    value = normal(value)
    kind = type(value)  # a registered type may derive from a built-in one
    if kind is bool:
        return "true" if value else "false"
    if kind is int or (kind is float and math.isfinite(value)):
        return repr(value)
    if kind is str:
        return _quoted(value)
    if kind is bytes:
        return f"x'{value.hex()}'"
    name = value_type_of(value)
    if name == COLLECTION:
        raise FilterTypeError("a collection is not a literal; its elements are")
    write = value_type(name).format
    if write is None:
        raise FilterTypeError(
            f"values of type {name} cannot be written: register the type with format and parse"
        )
    return f"{name} {_quoted(write(value))}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def format_atom(atom: Atom, level: int = 0) -> str:
    """
    >>> print(format_atom(Atom("price", "between", (1, 5))))
    price between 1 and 5
    """
    if atom.operator in ("isa", "not isa"):
        (event_type,) = atom.constants
        shown = event_type if is_plain_name(event_type) else _quoted(event_type)
        return f"{atom.operator} {shown}"
    name = format_name(outside(level, atom.name))
    if atom.operator == "exists":
        return f"exists {name}"
    operator = atom.operator
    before = ""
    for word in ("not some ", "some "):
        if operator.startswith(word):
            before, operator = word, operator.removeprefix(word)
    return f"{before}{name} {_format_test(operator, atom.constants)}"


def _format_test(operator: str, constants: tuple[Any, ...]) -> str:
    if operator == "missing":
        return "is missing"
    if operator == "exists":
        return "exists"
    if operator in ("is", "is not"):
        return f"{operator} {constants[0]}"
    literals = [format_literal(value) for value in constants]
    positive = operator.removeprefix("not ")
    if operator in _SET_TESTS:
        return f"{_SET_TESTS[operator]} ({', '.join(literals)})"
    if positive == "in":
        return f"{operator} ({', '.join(literals)})"
    if positive == "between":
        return f"{operator} {literals[0]} and {literals[1]}"
    if positive == "like":
        return f"{operator} {' escape '.join(literals)}"
    if operator in _COMPARISONS or positive in _TEXT_TESTS or operator in ("has", "lacks"):
        return f"{operator} {literals[0]}"
    if not is_plain_name(positive) or not literals:
        raise FilterTypeError(f"the language has no way to write the operator {operator!r}")
    if len(literals) == 1:
        return f"{operator} {literals[0]}"
    return f"{operator} ({', '.join(literals)})"


def format_term(term: Term, level: int = 0) -> str:
    """
    >>> print(format_term(Arithmetic("*", Attribute("x"), Constant(2))))
    x * 2
    """
    if isinstance(term, Attribute):
        return format_name(outside(level, term.name))
    if isinstance(term, Constant):
        return format_literal(term.value)
    left, right = (
        f"({format_term(side, level)})"
        if isinstance(side, Arithmetic)
        else format_term(side, level)
        for side in (term.left, term.right)
    )
    return f"{left} {term.operator} {right}"


def format_expression(expression: Expression, level: int = 0) -> str:
    """The text of an expression; `level` is how many lists it lies in.

    >>> print(format_expression(And((Atom("x", ">", (1,)), Not(Atom("y", "exists"))))))
    x > 1 and not (exists y)
    >>> print(format_expression(Quantified("any", "lines", Atom("sku", "=", ("A-17",)))))
    any item in lines: item.sku = 'A-17'
    """
    if isinstance(expression, Atom):
        return format_atom(expression, level)
    if isinstance(expression, Truth):
        return "true" if expression.value else "false"
    if isinstance(expression, Not):
        return f"not ({format_expression(expression.part, level)})"
    if isinstance(expression, Quantified):
        name = format_name(outside(level, expression.name))
        part = format_expression(expression.part, level + 1)
        return f"{expression.quantifier} {variable(level + 1)} in {name}: {part}"
    if isinstance(expression, Compare):
        right = format_term(expression.right, level)
        # A name right of a comparison is refused when bare: most often a string was meant.
        if isinstance(expression.right, Attribute) and (
            right.startswith('"') or expression.operator in ("=", "!=")
        ):
            right = f"({right})"
        return f"{format_term(expression.left, level)} {expression.operator} {right}"
    word, empty = (" and ", "true") if isinstance(expression, And) else (" or ", "false")
    if len(expression.parts) == 1:
        return format_expression(expression.parts[0], level)
    return word.join([_format_part(part, level) for part in expression.parts]) or empty


def _format_part(part: Expression, level: int) -> str:
    text = format_expression(part, level)
    if isinstance(part, Quantified):
        return f"({text})"
    return f"({text})" if isinstance(part, And | Or) and len(part.parts) > 1 else text
