"""From canonical sets back to expressions of the language, so that filters can be printed.

Each value set is described by the plainest atoms that say it: `x = 5` for a point, `x between 1
and 5` for a closed interval, `x prefix 'ab'` for the strings of a prefix. Parsing the description
gives an equal filter; it need not give the words that the filter was first written with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from stentor.errors import FilterTooComplex
from stentor.filters.collection import Cell, CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import Constraint, Part
from stentor.filters.domains import BYTES, Cut, first_above, last_below
from stentor.filters.effort import TooCostly, afresh, spend
from stentor.filters.expression import And, Atom, Expression, Not, Or, Quantified, Truth
from stentor.filters.numbers import SplitNumbers
from stentor.filters.patterns import Pattern
from stentor.filters.ranges import Piece, Ranges
from stentor.filters.records import Records
from stentor.filters.tested import Tested, prefix_ranges
from stentor.filters.unordered import plain
from stentor.model.values import COLLECTION, RECORD

#: Elementary steps (see `effort`) for an interval: fewer than it takes to read what describes it.
PIECE: Final = 16


def expression_of(conjuncts: tuple[Conjunct, ...]) -> Expression:
    return any_of([_conjunct(c) for c in conjuncts])


def _conjunct(conjunct: Conjunct) -> Expression:
    parts = [constraint_expression(n, c) for n, c in conjunct.constraints.items()]
    residuals = sorted((r.compare for r in conjunct.residuals), key=repr)
    return all_of([*parts, *residuals])


def constraint_expression(name: str, constraint: Constraint, some: str = "") -> Expression:
    """The constraint in words. With `some="some "`, about the elements of a collection."""
    options: list[Expression] = [Atom(name, "missing")] if constraint.absent else []
    if constraint.rest:
        options += _rest(name, constraint, some)
    else:
        for type_name, part in constraint.parts:
            options.append(_part(name, type_name, part, some))
    return any_of(options)


def _rest(name: str, constraint: Constraint, some: str) -> list[Expression]:
    """Every type but those mentioned, or what is accepted of those."""
    if not constraint.parts:
        return [Atom(name, some + "exists")]
    only = constraint.parts[0][1]
    if len(constraint.parts) == 1 and isinstance(only, Records) and only.has_empty:
        return [expression_of(only.conjuncts)]
    options: list[Expression] = [
        _part(name, type_name, part, some)
        for type_name, part in constraint.parts
        if not part.is_none
    ]
    if some and (excluded := _finite(constraint.complement(), hull=True)) is not None:
        # An element that is none of these. Of numbers, only the integer 1 may be excluded and the
        # float 1.0 not: what is accepted of them is said again.
        others = Atom(name, "not subset", tuple(excluded))
        return [others, *options] if _has_split(constraint) else [others]
    return [all_of([Atom(name, some + "is not", (t,)) for t, _ in constraint.parts]), *options]


def _part(name: str, type_name: str, part: Part, some: str) -> Expression:
    if isinstance(part, CollectionSet):
        if part.is_all:
            return Atom(name, "is", (COLLECTION,))
        return any_of([_cell(name, cell) for cell in sorted(part.cells, key=repr)])
    if isinstance(part, Records):
        return _records(name, part)
    if isinstance(part, Tested):
        return _tested(name, part, some)
    if isinstance(part, SplitNumbers):
        return _split(name, part, some)
    return _ranges(name, type_name, part, some)


def _records(name: str, records: Records) -> Expression:
    """About an element that has no name of its own: the names are those of its fields."""
    if records.is_all:
        return Atom(name, "is", (RECORD,))
    fields = expression_of(records.conjuncts)
    return all_of([Atom(name, "is", (RECORD,)), fields]) if records.has_empty else fields


def _ranges(name: str, type_name: str, ranges: Ranges, some: str) -> Expression:
    if ranges.is_all:
        return Atom(name, some + "is", (type_name,))
    values = ranges.values
    if values is not None:
        return _listed(name, some + "=", some + "in", values)
    opposite = ranges.complement()
    values = opposite.values
    if values is not None:
        return _listed(name, some + "!=", some + "not in", values)
    pieces = ranges.pieces
    if len(pieces) > 1 and len(opposite.pieces) == 1:
        gap = _closed(ranges, opposite.pieces[0], some)
        if gap is not None:
            return Atom(name, some + "not between", gap)
    if len(pieces) > 8:
        spend(PIECE * len(pieces))
    return any_of([_piece(name, ranges, piece, some) for piece in pieces])


def _listed(name: str, single: str, several: str, values: list[Any]) -> Expression:
    if len(values) == 1:
        return Atom(name, single, (plain(values[0]),))
    return Atom(name, several, tuple([plain(v) for v in values]))


def _piece(name: str, ranges: Ranges, piece: Piece, some: str) -> Expression:
    low, high = piece
    if low is not None and not low[1] and isinstance(low[0], str | bytes):
        whole = prefix_ranges(ranges.domain, low[0])
        if whole == Ranges(ranges.domain, False, tuple(c for c in piece if c is not None)):
            return Atom(name, some + "prefix", (low[0],))
    closed = _closed(ranges, piece, some)
    if closed is not None:
        if closed[0] == closed[1]:
            return Atom(name, some + "=", closed[:1])
        return Atom(name, some + "between", closed)
    low, high = _rounder(low), _rounder(high)
    parts: list[Expression] = []
    if low is not None:
        parts.append(Atom(name, some + (">" if low[1] else ">="), (plain(low[0]),)))
    if high is not None:
        parts.append(Atom(name, some + ("<=" if high[1] else "<"), (plain(high[0]),)))
    if some and low is not None and high is not None:
        # Two tests of one element, which two `some` would not be.
        ends = ("(" if low[1] else "[") + ("]" if high[1] else ")")
        return Atom(name, some + "within", (plain(low[0]), plain(high[0]), ends))
    return all_of(parts)


def _closed(ranges: Ranges, piece: Piece, some: str) -> tuple[Any, Any] | None:
    """The first and the last value of a bounded piece, if it has them.

    Such as are nobody's words (the first string above 'a') only where there are no other words.
    """
    low, high = piece
    if low is None or high is None:
        return None
    if not some and ranges.domain.name != "integer":
        low, high = _rounder(low), _rounder(high)
        if low is None or high is None or low[1] or not high[1]:
            return None
    first, last = first_above(ranges.domain, low), last_below(ranges.domain, high)
    return None if first is None or last is None else (plain(first), plain(last))


def _rounder(cut: Cut | None) -> Cut | None:
    """Just above noon, rather than just below the first microsecond after it."""
    if cut is not None and isinstance(cut[0], datetime) and cut[0].microsecond % 1000 == 1:
        return (cut[0] - timedelta.resolution, 1)
    return cut


def _split(name: str, part: SplitNumbers, some: str) -> Expression:
    for type_name, whole, other in (
        ("int", part.ints, part.floats),
        ("float", part.floats, part.ints),
    ):
        if whole.is_all:
            options: list[Expression] = [Atom(name, some + "is", (type_name,))]
            if not other.is_none:
                options.append(_ranges(name, "number", other, some))
            return any_of(options)
    halves = [
        all_of([Atom(name, some + "is", (type_name,)), _ranges(name, "number", half, some)])
        for type_name, half in (("int", part.ints), ("float", part.floats))
        if not half.is_none
    ]
    return any_of(halves)


def _tested(name: str, part: Tested, some: str) -> Expression:
    if part.operator in ("leaf", "not"):
        return _test(name, part, some + ("not " if part.operator == "not" else ""))
    options = [_part(name, part.domain.name, p, some) for p in sorted(part.parts, key=repr)]
    return all_of(options) if part.operator == "and" else any_of(options)


def _test(name: str, leaf: Tested, negation: str) -> Expression:
    test = leaf.test
    if not isinstance(test, Pattern):
        return Atom(name, negation + test.operator.name, test.constants)
    if test.kind == "like" and test.escape is not None:
        return Atom(name, negation + "like", (test.literal, test.escape))
    text = test.literal.encode("latin-1") if leaf.domain is BYTES else test.literal
    return Atom(name, negation + test.kind, (text,))


def _cell(name: str, cell: Cell) -> Expression:
    parts: list[Expression] = []
    if not cell.universe.is_all_values:
        parts.append(_universe(name, cell.universe))
    hits = sorted(cell.hits, key=repr)
    single = [hit for hit in hits if hit.is_single]
    if len(single) > _FEW:
        parts.append(Atom(name, "superset", tuple([_only(hit) for hit in single])))
        hits = [hit for hit in hits if not hit.is_single]
    for hit in hits:
        values = _finite(hit)
        if _has_records(hit):
            parts.append(_over_records("any", name, hit))
        elif values is not None:
            parts.append(_listed(name, "has", "overlaps", values))
        else:
            parts.append(constraint_expression(name, hit, "some "))
    return all_of(parts) if parts else Atom(name, "is", (COLLECTION,))


#: More elements than this that must all be there are listed.
_FEW: Final = 8


def _only(constraint: Constraint) -> Any:
    """The one value that satisfies the constraint."""
    ((_, part),) = constraint.parts
    assert isinstance(part, Ranges)
    values = part.values
    assert values
    return plain(values[0])


def _universe(name: str, universe: Constraint) -> Expression:
    if _has_records(universe):
        return _over_records("all", name, universe)
    values = _finite(universe)
    if values is not None:
        return Atom(name, "subset", tuple(values))
    outside = universe.complement()
    values = _finite(outside)
    if values is not None:
        return _listed(name, "lacks", "disjoint", values)
    return Not(constraint_expression(name, outside, "some "))


def _over_records(word: str, name: str, said: Constraint) -> Expression:
    """Any or all elements are so. Where what lies outside has plainer words: not all, or not any.

    Whoever reads that must get back what was written, or what it was found to mean.
    """
    if said.rest:
        is_settled = all(p.is_settled for _, p in said.parts if isinstance(p, Records))
        try:
            with afresh(_OUTSIDE_STEPS):
                outside = said.complement().settled()
                back = outside.complement()
                same = back == said or (is_settled and back.settled() == said)
                if same and 2 * outside.size < said.size:
                    other = "all" if word == "any" else "any"
                    return Not(Quantified(other, name, constraint_expression("", outside)))
        except (TooCostly, FilterTooComplex):
            pass
    return Quantified(word, name, constraint_expression("", said))


#: Steps that looking for such words may take.
_OUTSIDE_STEPS: Final = 2_000


def _has_records(constraint: Constraint) -> bool:
    return any(isinstance(part, Records) for _, part in constraint.parts)


def _has_split(constraint: Constraint) -> bool:
    return any(isinstance(part, SplitNumbers) for _, part in constraint.parts)


def _finite(constraint: Constraint, hull: bool = False) -> list[Any] | None:
    """All accepted values, if they can be listed. With `hull`, an integer may stand for itself
    and for the float that equals it."""
    if constraint.rest:
        return None
    found: list[Any] = []
    for _, part in constraint.parts:
        values = part.values if isinstance(part, Ranges) else None
        if hull and isinstance(part, SplitNumbers):
            members = part.members
            values = None if members is None else [*(part.floats.values or ()), *members[1]]
        if values is None:
            return None
        found.extend(plain(v) for v in values)
    return found


def all_of(parts: Sequence[Expression]) -> Expression:
    if len(parts) == 1:
        return parts[0]
    flat: list[Expression] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, And) else (part,))
    return And(tuple(flat)) if flat else Truth(True)


def any_of(parts: Sequence[Expression]) -> Expression:
    if len(parts) == 1:
        return parts[0]
    flat: list[Expression] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Or) else (part,))
    return Or(tuple(flat)) if flat else Truth(False)
