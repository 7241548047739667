"""One form for every union of conjuncts: a decision diagram over the attributes.

Two unions of conjuncts can be equal without having a conjunct in common (a pinwheel and the
square it fills). Their decision diagrams are equal: go through the attributes in the order of
their names, divide the states of each one into classes that no conjunct tells apart, and join
classes below which everything is the same. The diagram exists to compare filters, so it is built
within a budget, and a filter that exceeds it is compared by its conjuncts instead.

Nodes are numbered: one that is reached on many ways is there once, and comparing two diagrams takes
no longer than reading them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from stentor.errors import FilterTooComplex
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import ANYTHING, Constraint
from stentor.filters.effort import TooCostly, afresh, spend

#: Steps that building one may take.
DIAGRAM_STEPS: Final = 6_000

Box = tuple[tuple[str, Constraint], ...]
#: An attribute; for each class of its states, the number of the node below.
Node = tuple[str, frozenset[tuple[Constraint, int]]]

_FALSE: Final = -1
_TRUE: Final = -2


class Diagram:
    """The nodes that a union of conjuncts comes down to."""

    def __init__(self, nodes: list[Node], root: int) -> None:
        self._nodes = nodes
        self._root = root

    @property
    def key(self) -> Hashable:
        """Equal for equal unions: the nodes, numbered as they are met from the root on."""
        number = {_FALSE: _FALSE, _TRUE: _TRUE, self._root: 0}
        order = [self._root] if self._root >= 0 else []
        rows: list[tuple[str, tuple[tuple[Constraint, int], ...]]] = []
        for node in order:
            name, branches = self._nodes[node]
            row: list[tuple[Constraint, int]] = []
            for constraint, below in sorted(branches, key=_place):
                if below not in number:
                    number[below] = len(order)
                    order.append(below)
                row.append((constraint, number[below]))
            rows.append((name, tuple(row)))
        return frozenset((tuple(rows),))  # a frozenset remembers its hash

    @property
    def conjunct(self) -> Conjunct | None:
        """The one conjunct that the diagram stands for, if it is only one."""
        constraints: dict[str, Constraint] = {}
        node = self._root
        while node >= 0:
            name, branches = self._nodes[node]
            open_branches = [(c, below) for c, below in branches if below != _FALSE]
            if len(open_branches) != 1:
                return None
            constraints[name], node = open_branches[0]
        return Conjunct.of(constraints) if node == _TRUE else None


def diagram(conjuncts: tuple[Conjunct, ...], steps: int = DIAGRAM_STEPS) -> Diagram | None:
    """The diagram of the union; None if it would be too large or the union has residuals."""
    if any(c.residuals for c in conjuncts):
        return None
    builder = _Builder()
    try:
        with afresh(steps):
            root = builder.build(frozenset(tuple(c.constraints.items()) for c in conjuncts))
    except (TooCostly, FilterTooComplex):
        return None
    return Diagram(builder.nodes, root)


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}
        self._known: dict[frozenset[Box], int] = {}

    def build(self, boxes: frozenset[Box]) -> int:
        if () in boxes:
            return _TRUE
        if not boxes:
            return _FALSE
        if boxes not in self._known:
            self._known[boxes] = self._node(boxes)
        return self._known[boxes]

    def _node(self, boxes: frozenset[Box]) -> int:
        name = min(box[0][0] for box in boxes)
        below: dict[int, Constraint] = {}
        for cell, inside in self._classes(name, boxes).items():
            node = self.build(inside)
            known = below.get(node)
            below[node] = cell if known is None else known.union(cell).settled()
        if len(below) == 1:
            return next(iter(below))
        made = (name, frozenset((constraint, node) for node, constraint in below.items()))
        number = self._numbers.setdefault(made, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(made)
        return number

    def _classes(self, name: str, boxes: frozenset[Box]) -> dict[Constraint, frozenset[Box]]:
        """The states of the attribute, divided; for each class what is left of the boxes."""
        said = [(b[0][1], b[1:]) if b[0][0] == name else (ANYTHING, b) for b in boxes]
        tails: dict[Constraint, set[Box]] = {}
        for constraint, tail in said:
            spend(2 + len(tail))
            tails.setdefault(constraint, set()).add(tail)
        classes: dict[Constraint, set[Box]] = {ANYTHING: set()}
        for constraint in sorted(tails, key=repr):  # the same steps whatever the order of a set
            here = tails[constraint]
            divided: dict[Constraint, set[Box]] = {}
            others = constraint.others()
            for cell, inside in classes.items():
                spend(12 + len(inside))
                within = cell.intersection(constraint).settled()
                outside = cell.intersection(others).settled()
                if not within.is_none:
                    divided[within] = inside | here
                if not outside.is_none:
                    divided[outside] = inside
            classes = divided
        return {cell: frozenset(inside) for cell, inside in classes.items()}


def _place(branch: tuple[Constraint, int]) -> tuple[int, str]:
    """Equal constraints may be written differently (1 and 1.0), but have one hash."""
    return hash(branch[0]), repr(branch[0])
