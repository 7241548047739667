"""One form for every union of conjuncts: a decision diagram over the attributes.

Two unions of conjuncts can be equal without having a conjunct in common (a pinwheel and the
square it fills). Their decision diagrams are equal: go through the attributes in the order of
their names, divide the states of each one into classes that no conjunct tells apart, and join
classes below which everything is the same. The diagram exists to compare filters, so it is built
within a budget, and a filter that exceeds it is compared by its conjuncts instead.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from stentor.errors import FilterTooComplex
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import ANYTHING, Constraint

STEP_LIMIT: Final = 2_000

#: True, False, or a node: (name, set of (constraint, diagram below)).
Diagram = Hashable
Box = tuple[tuple[str, Constraint], ...]


class _TooLarge(Exception):
    pass


def diagram(conjuncts: tuple[Conjunct, ...]) -> Diagram | None:
    """The diagram of the union; None if it would be too large or the union has residuals."""
    if any(c.residuals for c in conjuncts):
        return None
    try:
        return _Builder().build(frozenset(tuple(c.constraints.items()) for c in conjuncts))
    except (_TooLarge, FilterTooComplex):
        return None


def as_conjunct(node: Diagram) -> Conjunct | None:
    """The one conjunct that the diagram stands for, if it is only one."""
    constraints: dict[str, Constraint] = {}
    while isinstance(node, tuple):
        name, branches = node
        open_branches = [(c, below) for c, below in branches if below is not False]
        if len(open_branches) != 1:
            return None
        constraints[name], node = open_branches[0]
    return Conjunct.of(constraints) if node is True else None


class _Builder:
    def __init__(self) -> None:
        self.steps = 0
        self.known: dict[frozenset[Box], Diagram] = {}

    def build(self, boxes: frozenset[Box]) -> Diagram:
        if () in boxes:
            return True
        if not boxes:
            return False
        if boxes not in self.known:
            self.steps += 1
            if self.steps > STEP_LIMIT:
                raise _TooLarge
            self.known[boxes] = self._node(boxes)
        return self.known[boxes]

    def _node(self, boxes: frozenset[Box]) -> Diagram:
        name = min(box[0][0] for box in boxes)
        below: dict[Diagram, Constraint] = {}
        for cell, inside in self._classes(name, boxes).items():
            node = self.build(inside)
            known = below.get(node)
            below[node] = cell if known is None else known.union(cell)
        if len(below) == 1:
            return next(iter(below))
        return (name, frozenset((constraint, node) for node, constraint in below.items()))

    def _classes(self, name: str, boxes: frozenset[Box]) -> dict[Constraint, frozenset[Box]]:
        """The states of the attribute, divided; for each class what is left of the boxes."""
        said = [(b[0][1], b[1:]) if b[0][0] == name else (ANYTHING, b) for b in boxes]
        classes: dict[Constraint, set[Box]] = {ANYTHING: set()}
        for constraint, tail in said:
            divided: dict[Constraint, set[Box]] = {}
            others = constraint.others()
            for cell, inside in classes.items():
                within, outside = cell.intersection(constraint), cell.intersection(others)
                if not within.is_none:
                    divided[within] = inside | {tail}
                if not outside.is_none:
                    divided[outside] = inside
            classes = divided
            self.steps += 1 + len(classes) // 16
            if self.steps > STEP_LIMIT:
                raise _TooLarge
        return {cell: frozenset(inside) for cell, inside in classes.items()}
