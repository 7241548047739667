"""From any Boolean expression to a set of conjuncts (sheet 02, algorithm 4.5).

Negation is pushed down to the atoms, where each operator has an opposite that still requires the
attribute. Then the expression is distributed into disjunctive form; constraints on one attribute
are folded into one while conjuncts are put together, and a contradiction drops the conjunct at
once. The size of the form is limited: a few words can ask for an exponential one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Final

from stentor.errors import FilterTooComplex, FilterTypeError
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import EXISTS, NO_VALUE, Constraint, everything
from stentor.filters.effort import TooCostly, spend, within
from stentor.filters.expression import And, Atom, Compare, Expression, Not, Quantified, Truth
from stentor.filters.merging import exact_union, merge_conjuncts
from stentor.filters.operators import PLAIN, constraint, opposite, quantified
from stentor.filters.records import Records
from stentor.filters.residual import Residual
from stentor.model.values import COLLECTION, RECORD

#: A filter may have this many conjuncts at most.
CONJUNCT_LIMIT: Final = 4_096
#: And so many pairs may be tried when two parts of it are multiplied out.
PRODUCT_LIMIT: Final = 16 * CONJUNCT_LIMIT

#: Steps that all of it may take.
WRITING_STEPS: Final = 4_000_000
#: From so many on, conjuncts that can be merged are merged before they are multiplied out.
MERGED_FIRST: Final = 64

#: What an element is called in a filter over its list.
_ITSELF: Final = ""

_ANY_NUMBER: Final = Constraint((("number", everything("number")),))


def conjuncts_of(expression: Expression) -> list[Conjunct]:
    """The conjuncts whose union is the expression; none if nothing can match it."""
    with _limited():
        return folded(_disjuncts(expression, False))


def product_of(*branches: Sequence[Conjunct]) -> list[Conjunct]:
    """The conjuncts whose union is what all of several unions match."""
    with _limited():
        return folded(_product([list(branch) for branch in branches]))


def plain_conjunct(expression: Expression) -> Conjunct | bool | None:
    """The common case, `a and b and c` over plain atoms, without any detour; None if it is not.

    False if nothing can match it.
    """
    kind = type(expression)
    if kind is And:
        parts = expression.parts  # type: ignore[union-attr]
    elif kind is Atom:
        parts = (expression,)
    else:
        return None
    constraints: dict[str, Constraint] = {}
    several: dict[str, list[Constraint]] = {}
    for part in parts:
        if type(part) is not Atom or part.operator not in PLAIN:
            return None
        name = part.name
        found = constraint(part.operator, part.constants)
        if name in constraints:
            several.setdefault(name, [constraints[name]]).append(found)
        else:
            constraints[name] = found
    for name, said in several.items():
        constraints[name] = Constraint.intersection_of(said)
    return Conjunct.of(constraints) or False


def folded(conjuncts: Iterable[Conjunct]) -> list[Conjunct]:
    """The same union, with all that concerns one attribute alone in one conjunct."""
    alone: dict[str, list[Constraint]] = {}
    found: dict[Conjunct | str, None] = {}
    for conjunct in conjuncts:
        if len(conjunct.constraints) == 1 and not conjunct.residuals:
            ((name, said),) = conjunct.constraints.items()
            alone.setdefault(name, []).append(said)
            found[name] = None
        elif not conjunct.constraints and not conjunct.residuals:
            return [conjunct]  # everything matches it
        else:
            found[conjunct] = None
    result: list[Conjunct] = []
    for item in found:
        if isinstance(item, str):
            whole = Conjunct.of({item: Constraint.union_of(alone[item])})
            if whole is None:
                continue
            if not whole.constraints:
                return [whole]
            item = whole
        result.append(item)
    return result


def _disjuncts(expression: Expression, negated: bool) -> list[Conjunct]:
    if isinstance(expression, Not):
        return _disjuncts(expression.part, not negated)
    if isinstance(expression, Truth):
        return [Conjunct({})] if expression.value is not negated else []
    if isinstance(expression, Atom):
        spend(4)
        operator = opposite(expression.operator) if negated else expression.operator
        return _listed(Conjunct.of({expression.name: constraint(operator, expression.constants)}))
    if isinstance(expression, Compare):
        residual = Residual(expression)
        return _listed(_of_residual(residual.negated() if negated else residual))
    if isinstance(expression, Quantified):
        spend(24)
        element = _element(_disjuncts(expression.part, False))
        found = quantified(expression.quantifier, element, negated)
        return _listed(Conjunct.of({expression.name: found}))
    branches = [_disjuncts(part, negated) for part in expression.parts]
    if isinstance(expression, And) is negated:
        return _union(branches)
    return _product(branches)


def _element(conjuncts: list[Conjunct]) -> Constraint:
    """What they say of an element: of its value, or of its fields. A plain value has none."""
    said: list[Constraint] = []
    records: list[Conjunct] = []
    for conjunct in folded(conjuncts):
        itself = conjunct.constraints.get(_ITSELF)
        if any(_ITSELF in residual.names for residual in conjunct.residuals):
            raise FilterTypeError("an element is compared with constants, its fields with fields")
        fields = {n: c for n, c in conjunct.constraints.items() if n != _ITSELF}
        of_fields = Conjunct(fields, conjunct.residuals)
        if itself is None:
            records.append(of_fields)
        else:
            said.append(itself.intersection(_with_fields([of_fields])))
    if records:
        said.append(_with_fields(records))
    if not said:
        return NO_VALUE
    whole = Constraint.union_of(said)
    # An element is never missing and never a collection: what is said of these goes.
    parts = tuple([(name, part) for name, part in whole.parts if name != COLLECTION])
    return Constraint(parts, rest=whole.rest)


def _with_fields(conjuncts: list[Conjunct]) -> Constraint:
    records = Records.of(conjuncts)
    if records.is_all:
        return EXISTS
    return Constraint(((RECORD, records),), rest=records.has_empty)


def _of_residual(residual: Residual) -> Conjunct | None:
    """Its attributes must be there, and be numbers where it calculates with them."""
    numeric = residual.arithmetic_names
    constraints = {n: _ANY_NUMBER if n in numeric else EXISTS for n in residual.names}
    return Conjunct.of(constraints, (residual,))


def _listed(conjunct: Conjunct | None) -> list[Conjunct]:
    return [] if conjunct is None else [conjunct]


def _union(branches: list[list[Conjunct]]) -> list[Conjunct]:
    found = folded([c for branch in branches for c in branch])
    if len(found) > CONJUNCT_LIMIT:
        found = _merged(found)
        if len(found) > CONJUNCT_LIMIT:
            raise _too_complex()
    return found


def _product(branches: list[list[Conjunct]]) -> list[Conjunct]:
    if not all(branches):
        return []
    if prod(map(len, branches)) > MERGED_FIRST:
        # What can be said in one conjunct need not be multiplied out.
        branches = [_merged(b) if len(b) > 1 else b for b in branches]
    found = _listed(_all_at_once([b[0] for b in branches if len(b) == 1]))
    for branch in branches:
        if len(branch) == 1:
            continue
        if len(found) * len(branch) > PRODUCT_LIMIT:
            raise _too_complex()
        joined: dict[Conjunct, None] = {}
        for mine in found:
            spend(len(branch) * (6 + 2 * len(mine.constraints) + 6 * len(mine.residuals)))
            for theirs in branch:
                both = mine.conjoin(theirs)
                if both is not None:
                    joined[both] = None
            if len(joined) > CONJUNCT_LIMIT:
                raise _too_complex()
        found = list(joined)
    return found


def _merged(conjuncts: list[Conjunct]) -> list[Conjunct]:
    return merge_conjuncts(sorted(conjuncts, key=repr), exact_union)


def _all_at_once(conjuncts: list[Conjunct]) -> Conjunct | None:
    """The conjunction, each attribute folded in one go."""
    said: dict[str, list[Constraint]] = {}
    for conjunct in conjuncts:
        for name, found in conjunct.constraints.items():
            said.setdefault(name, []).append(found)
    folded = {n: c[0] if len(c) == 1 else Constraint.intersection_of(c) for n, c in said.items()}
    return Conjunct.of(folded, [r for c in conjuncts for r in c.residuals])


@contextmanager
def _limited() -> Iterator[None]:
    try:
        with within(WRITING_STEPS):
            yield
    except TooCostly:
        raise FilterTooComplex(
            "it takes too much work to multiply out the parentheses of the filter; write it as "
            "several subscriptions"
        ) from None


def _too_complex() -> FilterTooComplex:
    return FilterTooComplex(
        "once its parentheses are multiplied out, the filter has more than the "
        f"{CONJUNCT_LIMIT:,} alternatives that are allowed; write it as several subscriptions"
    )
