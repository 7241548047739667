"""From a filter to the boxes that stand for it in the index.

A conjunct becomes one box, or several where a constraint has several pieces (`x in (1, 2)`, `x < 1
or x > 5`, `x = 1 or x is missing`). The pieces of one attribute do not overlap, so at most one of
the boxes contains a given point. What no box can say (regular expressions, sums of attributes, the
elements of collections) is left as *checks* on the box: whoever is inside is a candidate, and
the checks decide. A conjunct that would need too many boxes is widened on its most scattered
attributes and gets a check there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from math import prod
from typing import Final

from stentor.filters.collection import CollectionSet
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import NO_VALUE, Constraint, Part
from stentor.filters.domains import REAL, STRING
from stentor.filters.numbers import SplitNumbers
from stentor.filters.patterns import Pattern
from stentor.filters.ranges import Piece, Ranges
from stentor.filters.records import Records
from stentor.filters.residual import Residual
from stentor.filters.tested import Tested, prefix_ranges
from stentor.filters.unordered import BUILT_IN
from stentor.matching.index.axes import (
    MEASURED,
    Axis,
    Bound,
    measured_ends,
    numeric_piece,
)
from stentor.model.values import COLLECTION

#: A conjunct is put into at most this many boxes.
BOX_LIMIT: Final = 256
#: Gaps in a set of values up to this number become holes in one box instead of several boxes.
HOLE_LIMIT: Final = 2
#: So do single values that are left out, up to this number.
VALUES_LIMIT: Final = 16
#: Prefixes and suffixes are looked up by so many letters at most.
HEAD_LIMIT: Final = 8
#: Texts within strings, likewise.
PART_LIMIT: Final = 64

Check = tuple[str, Constraint] | Residual


@dataclass(slots=True)
class Box:
    """Bounds that must all hold, and checks for what they do not say."""

    bounds: list[Bound] = field(default_factory=list)
    #: Found through this token (an element, a text within) instead of through a bound.
    token: tuple[Axis, object] | None = None
    checks: list[Check] = field(default_factory=list)


@dataclass(slots=True)
class Option:
    """One way to satisfy the constraint on one attribute."""

    bounds: tuple[Bound, ...]
    exact: bool = True
    tokens: tuple[tuple[Axis, object], ...] = ()
    #: Another option of the same attribute may contain the same notification.
    shared: bool = False

    @property
    def leads(self) -> bool:
        """Whether it is better found by its texts within a string, or by the conditions on its
        elements, than by any equality."""
        kind = self.tokens[0][0].kind if self.tokens else ""
        if kind != "part":
            return kind == "element"
        return self.exact or not any(bound.point for bound in self.bounds)


#: Picks the token under which the fewest boxes stand so far.
Chooser = Callable[[Iterable[tuple[Axis, object]]], tuple[Axis, object]]


def boxes_of(conjunct: Conjunct, choose: Chooser) -> tuple[list[Box], bool]:
    """The boxes of a conjunct, and whether two of them may contain one notification."""
    simple = _simple_box(conjunct)
    if simple is not None:
        return [simple], False
    options = {name: _options(name, c) for name, c in conjunct.constraints.items()}
    while prod(len(o) for o in options.values()) > BOX_LIMIT:
        name = max(options, key=lambda n: len(options[n]))
        options[name] = [_loose(name, conjunct.constraints[name])]
    checks: dict[str, Check] = {name: (name, c) for name, c in conjunct.constraints.items()}
    boxes: list[Box] = []
    shared = any(option.shared for opts in options.values() for option in opts)
    for chosen in product(*options.values()):
        box = Box(checks=list(conjunct.residuals))
        tokens: list[tuple[Axis, object]] = []
        for option in chosen:
            box.bounds.extend(option.bounds)
            tokens.extend(option.tokens)
        # An equality leads to fewer candidates than an element would; but a text within a string
        # that does not lead to the box has to be checked, which takes longer.
        parts = [t for option in chosen if option.leads for t in option.tokens]
        if parts or (tokens and not any(bound.point for bound in box.bounds)):
            box.token = choose(parts or tokens)
        for name, option in zip(options, chosen, strict=True):
            if not option.exact or (option.tokens and box.token not in option.tokens):
                box.checks.append(checks[name])
                # It may let in what another option has: its bounds alone say less than it does.
                shared = shared or len(options[name]) > 1
        boxes.append(box)
    return boxes, shared


def _simple_box(conjunct: Conjunct) -> Box | None:
    """The common case, one interval or point per attribute, without any detour."""
    if conjunct.residuals:
        return None
    bounds: list[Bound] = []
    for name, constraint in conjunct.constraints.items():
        if constraint.rest or constraint.absent or len(constraint.parts) != 1:
            return None
        type_name, part = constraint.parts[0]
        if type(part) is not Ranges:
            return None
        cuts = part.cuts
        if len(cuts) == 2 and not part.starts:
            bound = _bound(name, type_name, cuts)
        elif len(cuts) == 1:
            piece = (None, cuts[0]) if part.starts else (cuts[0], None)
            bound = _bound(name, type_name, piece)
        else:
            return None
        if type_name == "string" and not bound.point:
            return None
        bounds.append(bound)
    return Box(bounds)


def _options(name: str, constraint: Constraint) -> list[Option]:
    if constraint.rest:
        return [_loose(name, constraint)] if constraint.parts else _exists(name, constraint.absent)
    found: list[Option] = []
    if constraint.absent:
        found.append(_flag(Axis(name, "missing")))
    for type_name, part in constraint.parts:
        found.extend(_part_options(name, type_name, part))
    return found


def _exists(name: str, or_missing: bool) -> list[Option]:
    options = [_flag(Axis(name, "present"))]
    return [*options, _flag(Axis(name, "missing"))] if or_missing else options


def _flag(axis: Axis, exact: bool = True) -> Option:
    return Option((Bound(axis, 1.0, 1.0),), exact)


def _loose(name: str, constraint: Constraint) -> Option:
    """An option that a check has to decide, with as tight a bound as one box can have."""
    if constraint.absent:
        return Option((), exact=False)
    if constraint.rest or len(constraint.parts) != 1:
        return _flag(Axis(name, "present"), exact=False)
    type_name, part = constraint.parts[0]
    if isinstance(part, Ranges) and not part.is_all:
        pieces = part.pieces
        hull = (pieces[0][0], pieces[-1][1])
        if hull != (None, None):
            return Option((_bound(name, type_name, hull),), exact=False)
    return _flag(Axis(name, "typed", type_name), exact=False)


def _part_options(name: str, type_name: str, part: Part) -> list[Option]:
    if part.is_all:
        return [_flag(Axis(name, "typed", type_name))]
    if isinstance(part, Ranges):
        return _range_options(name, type_name, part)
    if isinstance(part, SplitNumbers):
        together = part.floats.union(_reals(part.ints))
        if together.is_all:
            return [_flag(Axis(name, "typed", "number"), exact=False)]
        return [_inexact(o) for o in _range_options(name, "number", together)]
    if isinstance(part, CollectionSet):
        return _collection_options(name, part)
    assert isinstance(part, Tested)  # records are elements, and have no name of their own
    return [_tested_option(name, type_name, part)]


def _range_options(name: str, type_name: str, ranges: Ranges) -> list[Option]:
    """One option per interval; few gaps are cheaper as holes."""
    if ranges.starts and len(ranges.cuts) > 1:
        others = ranges.complement()
        gaps = others.pieces
        inner = [gap for gap in gaps if gap[1] is not None]
        if len(inner) <= HOLE_LIMIT or (len(inner) <= VALUES_LIMIT and others.values is not None):
            return [_with_holes(name, type_name, inner, gaps)]
    return [_piece_option(name, type_name, piece) for piece in ranges.pieces]


def _piece_option(name: str, type_name: str, piece: Piece) -> Option:
    bound = _bound(name, type_name, piece)
    head = _head(name, piece) if type_name == "string" and not bound.point else None
    if head is None:
        return Option((bound,))
    whole = len(piece[0][0]) <= HEAD_LIMIT  # type: ignore[index]
    return Option((head,) if whole else (head, bound))


def _head(name: str, piece: Piece) -> Bound | None:
    """A prefix as an equality on the first letters: found by a look-up instead of a search."""
    low = piece[0]
    if low is None or low[1]:
        return None
    prefix = low[0]
    if prefix_ranges(STRING, prefix).pieces != [piece]:
        return None
    letters = prefix[:HEAD_LIMIT]
    return Bound(Axis(name, "head", str(len(letters))), (letters, 0), (letters, 1), point=True)


def _with_holes(name: str, type_name: str, inner: list[Piece], gaps: list[Piece]) -> Option:
    bounds = [_bound(name, type_name, gap)._replace(hole=True, point=False) for gap in inner]
    if gaps[-1][1] is None:  # and nothing above the last gap
        bounds.append(_bound(name, type_name, (None, gaps[-1][0])))
    return Option(tuple(bounds))


def _bound(name: str, type_name: str, piece: Piece) -> Bound:
    axis = _axis(name, type_name)
    if type_name in MEASURED:
        piece = numeric_piece(type_name, piece)
        ends = measured_ends(piece)
        if ends is not None:
            low, high = ends
            return Bound(axis, low, high, False, low == high)
        axis = _axis(name, type_name, "far")
    low_cut, high_cut = piece
    if low_cut is None or high_cut is None:
        return Bound(axis, low_cut, high_cut)
    point = low_cut[1] == 0 and high_cut[1] == 1 and low_cut[0] == high_cut[0]
    return Bound(axis, low_cut, high_cut, False, point)


@lru_cache(maxsize=4_096)
def _axis(name: str, type_name: str, kind: str = "other") -> Axis:
    plain = type_name in BUILT_IN and kind == "other"
    return Axis(name, type_name) if plain else Axis(name, kind, type_name)


def _reals(ints: Ranges) -> Ranges:
    """The reals from each run of integers; enough for a bound that is checked anyway."""
    return Ranges(REAL, ints.starts, ints.cuts)


def _inexact(option: Option) -> Option:
    return Option(option.bounds, False, option.tokens, option.shared)


# -- strings and registered operators


def _tested_option(name: str, type_name: str, part: Tested) -> Option:
    parts = part.parts if part.operator == "and" else (part,)
    bounds: list[Bound] = []
    tokens: list[tuple[Axis, object]] = []
    exact = True
    for piece in parts:
        if isinstance(piece, Ranges):
            options = _range_options(name, type_name, piece)
            if len(options) == 1 and options[0].exact:
                bounds.extend(options[0].bounds)
            else:
                exact = False
        elif part.domain is STRING and _is_suffix(piece):
            bounds.extend(_suffix_bounds(name, piece.test.text))
        elif part.domain is STRING and _is_contained(piece):
            exact = exact and not tokens and len(piece.test.text) <= PART_LIMIT
            tokens.extend(_part_tokens(name, piece))
        else:
            exact = False
            around = piece.bounds
            if not around.is_all:
                hull = (around.pieces[0][0], around.pieces[-1][1])
                if hull != (None, None):
                    bounds.extend(_piece_option(name, type_name, hull).bounds)
            if part.domain is STRING and _is_pattern(piece) and piece.test.literal_suffix:
                bounds.extend(_suffix_bounds(name, piece.test.literal_suffix))
            tokens.extend(_part_tokens(name, piece))
    if not bounds and not tokens:
        bounds.append(Bound(Axis(name, "typed", type_name), 1.0, 1.0))
    return Option(tuple(bounds), exact, tuple(tokens))


def _suffix_bounds(name: str, suffix: str) -> list[Bound]:
    """As a prefix: an equality on the last letters, and an interval if that is not all."""
    letters = suffix[-HEAD_LIMIT:]
    tail = Bound(Axis(name, "tail", str(len(letters))), (letters, 0), (letters, 1), point=True)
    if letters == suffix:
        return [tail]
    low, high = prefix_ranges(STRING, suffix[::-1]).pieces[0]
    return [tail, Bound(Axis(name, "reverse"), low, high)]


def _is_pattern(piece: Tested) -> bool:
    return piece.operator == "leaf" and type(piece.test) is Pattern


def _is_suffix(piece: Tested) -> bool:
    return _is_pattern(piece) and piece.test.kind == "suffix"


def _is_contained(piece: Tested) -> bool:
    return _is_pattern(piece) and piece.test.kind == "contains"


def _part_tokens(name: str, piece: Tested) -> list[tuple[Axis, object]]:
    """The longest text that every accepted string contains, or the beginning of it."""
    if piece.domain is not STRING or not _is_pattern(piece):
        return []
    required = [text for text in piece.test.required if text]
    if not required:
        return []
    return [(Axis(name, "part"), max(required, key=len)[:PART_LIMIT])]


# -- collections


def _collection_options(name: str, part: CollectionSet) -> list[Option]:
    """Found by an element that must be there; else any collection is a candidate."""
    if len(part.cells) != 1:
        return [_flag(Axis(name, "typed", COLLECTION), exact=False)]
    (cell,) = part.cells
    listed = [values for hit in cell.hits if (values := finite_values(hit)) is not None]
    axis = Axis(name, "token")
    singles = [values[0] for values in listed if len(values) == 1]
    simple = len(cell.hits) == 1 and cell.universe.is_all_values
    if singles:
        tokens = tuple((axis, value) for value in singles)
        return [Option((), simple, tokens)]
    if listed:
        values = min(listed, key=len)
        return [Option((), simple, ((axis, value),), shared=True) for value in values]
    axis = Axis(name, "element")
    conditions = [hit for hit in cell.hits if _has_records(hit)]
    if conditions:
        return [Option((), simple, tuple((axis, hit) for hit in conditions))]
    if not cell.hits and _has_records(cell.universe) and not cell.universe.rest:
        # All elements are as they should be: there is none, or also some one is.
        empty = Option((), True, ((axis, NO_VALUE),))
        return [empty, Option((), False, ((axis, cell.universe),))]
    return [_flag(Axis(name, "typed", COLLECTION), exact=False)]


def _has_records(constraint: Constraint) -> bool:
    return any(isinstance(part, Records) for _, part in constraint.parts)


def finite_values(constraint: Constraint) -> list[tuple[str, object]] | None:
    """The accepted values with their types (1 and True are different tokens), if listable."""
    if constraint.rest:
        return None
    found: list[tuple[str, object]] = []
    for type_name, part in constraint.parts:
        values = part.values if isinstance(part, Ranges) else None
        if values is None:
            return None
        found.extend((type_name, value) for value in values)
    return found
