"""What every filter language parses to: Boolean expressions over atoms.

The front ends (the subscription language, JMS selectors, event patterns, subject dialects) build
these nodes; `normalize` turns them into the canonical `Filter`. An `Atom` constrains one attribute
and is part of the algebra. A `Compare` relates arithmetic terms, possibly over several attributes;
one that reduces to an attribute against a constant becomes an `Atom`, any other is evaluated but
stays outside the algebra (R-02.13).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Atom:
    """`name operator constants`, for example `Atom("x", "between", (1, 5))`.

    The operators and the constants they take are listed in `stentor.filters.operators`.
    """

    name: str
    operator: str
    constants: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Expression


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of an attribute, as a term."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right` with one of `+ - * /`."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right` with one of `= != < <= > >=`, over terms."""

    operator: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Quantified:
    """`any x in name: part` or `all x in name: part`, over the elements of a collection.

    The names in `part` are those of the fields of an element; the empty name is the element itself.
    """

    quantifier: str
    name: str
    part: Expression


Term = Attribute | Constant | Arithmetic
Expression = Truth | Atom | And | Or | Not | Compare | Quantified
