"""The names inside `any x in xs: …`: `x` is the element itself, `x.sku` one of its fields.

A filter over a list looks at the elements of that list and at nothing else. A name of the world
around it would tie every element to the whole notification, for which there is no index and no
algebra; it is refused, with a word on how to write it instead.
"""

from __future__ import annotations

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
from stentor.filters.language.mistakes import TextError, shown


def inside(variable: str, expression: Expression, tokens: list[str], place: int) -> Expression:
    """The expression with the names of fields, the empty name for the element.

    `place` is the token that the quantifier begins with.
    """
    try:
        return _expression(variable, expression)
    except _ForeignName as found:
        name = str(found)
        for i in range(place, len(tokens)):
            if tokens[i] in (name, f'"{name}"') and i > place + 4:
                place = i
                break
        if name == "_types":
            raise TextError(f"isa is about the whole notification, not about {variable}") from None
        raise TextError(
            f"{shown(name)} is not of the element {variable}; write {variable}.{shown(name)} if "
            f"it is a field of it, or put (any {variable} in …: …) in parentheses if it is not",
            place,
            (f"{variable} or a name that begins with {variable}.",),
        ) from None


class _ForeignName(Exception):
    """A name that is not of the element."""


def _expression(variable: str, expression: Expression) -> Expression:
    if isinstance(expression, Atom):
        name = _name(variable, expression.name)
        return Atom(name, expression.operator, expression.constants)
    if isinstance(expression, And | Or):
        return type(expression)(tuple([_expression(variable, p) for p in expression.parts]))
    if isinstance(expression, Not):
        return Not(_expression(variable, expression.part))
    if isinstance(expression, Quantified):
        name = _name(variable, expression.name)
        return Quantified(expression.quantifier, name, expression.part)
    if isinstance(expression, Compare):
        left, right = _term(variable, expression.left), _term(variable, expression.right)
        return Compare(expression.operator, left, right)
    assert isinstance(expression, Truth)
    return expression


def _term(variable: str, term: Term) -> Term:
    if isinstance(term, Attribute):
        return Attribute(_name(variable, term.name))
    if isinstance(term, Arithmetic):
        return Arithmetic(term.operator, _term(variable, term.left), _term(variable, term.right))
    assert isinstance(term, Constant)
    return term


def _name(variable: str, name: str) -> str:
    if name == variable:
        return ""
    if not name.startswith(variable + "."):
        raise _ForeignName(name)
    return name[len(variable) + 1 :]


#: What an element is called in a text, by how deep its list lies.
def variable(level: int) -> str:
    """
    >>> variable(1), variable(2)
    ('item', 'item2')
    """
    return f"item{level}" if level > 1 else "item"


def outside(level: int, name: str) -> str:
    """The name of a field, or of the element, in a text; an attribute outside of all lists."""
    if not level:
        return name
    return f"{variable(level)}.{name}" if name else variable(level)
