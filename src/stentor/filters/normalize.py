"""From any Boolean expression to a set of conjuncts (sheet 02, algorithm 4.5).

Negation is pushed down to the atoms, where each operator has an opposite that still requires the
attribute. Then the expression is distributed into disjunctive form; constraints on one attribute
are folded into one while conjuncts are put together, and a contradiction drops the conjunct at
once. The size of the form is limited: a few words can ask for an exponential one.
"""

from __future__ import annotations

from typing import Final

from stentor.errors import FilterTooComplex
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import EXISTS, Constraint, everything
from stentor.filters.expression import And, Atom, Compare, Expression, Not, Truth
from stentor.filters.merging import exact_union, merge_conjuncts
from stentor.filters.operators import constraint, opposite
from stentor.filters.residual import Residual

#: A filter may have this many conjuncts at most.
CONJUNCT_LIMIT: Final = 4_096
#: And so many pairs may be tried when two parts of it are multiplied out.
PRODUCT_LIMIT: Final = 16 * CONJUNCT_LIMIT

_ANY_NUMBER: Final = Constraint((("number", everything("number")),))


def conjuncts_of(expression: Expression) -> list[Conjunct]:
    """The conjuncts whose union is the expression; none if nothing can match it."""
    kind = type(expression)
    if kind is And:
        plain = _plain_conjunction(expression.parts)  # type: ignore[union-attr]
        if plain is not None:
            return plain
    elif kind is Atom:
        plain = _plain_conjunction((expression,))
        if plain is not None:
            return plain
    return _disjuncts(expression, False)


def _plain_conjunction(parts: tuple[Expression, ...]) -> list[Conjunct] | None:
    """The common case, `a and b and c` over atoms, without any detour; None if it is not."""
    folded: dict[str, Constraint] = {}
    several: dict[str, list[Constraint]] = {}
    for part in parts:
        if type(part) is not Atom:
            return None
        name = part.name
        found = constraint(part.operator, part.constants)
        if name in folded:
            several.setdefault(name, [folded[name]]).append(found)
        else:
            folded[name] = found
    for name, constraints in several.items():
        folded[name] = Constraint.intersection_of(constraints)
    conjunct = Conjunct.of(folded)
    return [] if conjunct is None else [conjunct]


def _disjuncts(expression: Expression, negated: bool) -> list[Conjunct]:
    if isinstance(expression, Not):
        return _disjuncts(expression.part, not negated)
    if isinstance(expression, Truth):
        return [Conjunct({})] if expression.value is not negated else []
    if isinstance(expression, Atom):
        operator = opposite(expression.operator) if negated else expression.operator
        return _listed(Conjunct.of({expression.name: constraint(operator, expression.constants)}))
    if isinstance(expression, Compare):
        residual = Residual(expression)
        return _listed(_of_residual(residual.negated() if negated else residual))
    branches = [_disjuncts(part, negated) for part in expression.parts]
    if isinstance(expression, And) is negated:
        return _union(branches)
    return _product(branches)


def _of_residual(residual: Residual) -> Conjunct | None:
    """Its attributes must be there, and be numbers where it calculates with them."""
    numeric = residual.arithmetic_names
    constraints = {n: _ANY_NUMBER if n in numeric else EXISTS for n in residual.names}
    return Conjunct.of(constraints, (residual,))


def _listed(conjunct: Conjunct | None) -> list[Conjunct]:
    return [] if conjunct is None else [conjunct]


def _union(branches: list[list[Conjunct]]) -> list[Conjunct]:
    found = list(dict.fromkeys([c for branch in branches for c in branch]))
    if len(found) > CONJUNCT_LIMIT:
        found = merge_conjuncts(found, exact_union)
        if len(found) > CONJUNCT_LIMIT:
            raise _too_complex()
    return found


def _product(branches: list[list[Conjunct]]) -> list[Conjunct]:
    # What can be said in one conjunct need not be multiplied out.
    branches = [merge_conjuncts(b, exact_union) if len(b) > 1 else b for b in branches]
    if not all(branches):
        return []
    found = _listed(_all_at_once([b[0] for b in branches if len(b) == 1]))
    for branch in branches:
        if len(branch) == 1:
            continue
        if len(found) * len(branch) > PRODUCT_LIMIT:
            raise _too_complex()
        joined: dict[Conjunct, None] = {}
        for mine in found:
            for theirs in branch:
                both = mine.conjoin(theirs)
                if both is not None:
                    joined[both] = None
            if len(joined) > CONJUNCT_LIMIT:
                raise _too_complex()
        found = list(joined)
    return found


def _all_at_once(conjuncts: list[Conjunct]) -> Conjunct | None:
    """The conjunction, each attribute folded in one go."""
    said: dict[str, list[Constraint]] = {}
    for conjunct in conjuncts:
        for name, found in conjunct.constraints.items():
            said.setdefault(name, []).append(found)
    folded = {n: c[0] if len(c) == 1 else Constraint.intersection_of(c) for n, c in said.items()}
    return Conjunct.of(folded, [r for c in conjuncts for r in c.residuals])


def _too_complex() -> FilterTooComplex:
    return FilterTooComplex(
        "once its parentheses are multiplied out, the filter has more than the "
        f"{CONJUNCT_LIMIT:,} alternatives that are allowed; write it as several subscriptions"
    )
