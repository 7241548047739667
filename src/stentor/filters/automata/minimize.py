"""The smallest deterministic automaton of a language, and a numbering that depends on it alone.

Two states are equivalent if the same strings are accepted from them. Hopcroft's algorithm starts
with the accepting and the other states as two blocks and splits a block whenever some of its
states lead into a *splitter* block on a class and some do not. Of the two halves of a split block
only the smaller has to serve as a splitter later, which bounds the work to n log n per class.

The minimal automaton of a language is unique up to the names of its states and to needless cuts
between classes. So the result merges neighboring classes that no state tells apart, and numbers
the states in the order in which a breadth-first search meets them, classes in ascending order.
"""

from __future__ import annotations

from collections import defaultdict, deque

Rows = tuple[tuple[int, ...], ...]


def minimal(
    cuts: tuple[int, ...], rows: Rows, accepting: tuple[bool, ...]
) -> tuple[tuple[int, ...], Rows, tuple[bool, ...]]:
    """Cuts, rows and verdicts of the canonical minimal automaton."""
    block_of = _equivalence(list(dict.fromkeys(zip(*rows, strict=True))), accepting)
    representative: dict[int, int] = {}
    for state, block in enumerate(block_of):
        representative.setdefault(block, state)
    # Breadth-first from the start; `rename` is block -> canonical number, in order of discovery.
    rename = {block_of[0]: 0}
    order = [block_of[0]]
    merged: list[tuple[int, ...]] = []
    for block in order:
        row: list[int] = []
        for target in rows[representative[block]]:
            number = rename.setdefault(block_of[target], len(order))
            if number == len(order):
                order.append(block_of[target])
            row.append(number)
        merged.append(tuple(row))
    columns = list(zip(*merged, strict=True))
    kept = [k for k in range(len(cuts)) if k == 0 or columns[k] != columns[k - 1]]
    return (
        tuple([cuts[k] for k in kept]),
        tuple([tuple([row[k] for k in kept]) for row in merged]),
        tuple([accepting[representative[block]] for block in order]),
    )


def _equivalence(columns: list[tuple[int, ...]], accepting: tuple[bool, ...]) -> list[int]:
    """Per state, the number of its block of equivalent states. A column is the transitions of all
    states on one class; equal columns are given once."""
    block_of = [int(verdict) for verdict in accepting]
    members = [set[int](), set[int]()]
    for state, block in enumerate(block_of):
        members[block].add(state)
    if not members[0] or not members[1]:
        return [0] * len(accepting)
    sources = [_inverse(column) for column in columns]
    splitters = deque([min((0, 1), key=lambda block: len(members[block]))])
    while splitters:
        splitter = splitters.popleft()
        targets = tuple(members[splitter])
        for into in sources:
            touched: defaultdict[int, list[int]] = defaultdict(list)
            for target in targets:
                for state in into.get(target, ()):
                    touched[block_of[state]].append(state)
            for block, states in touched.items():
                if len(states) == len(members[block]):
                    continue
                # The new block is the smaller half and must serve as a splitter. The other half
                # keeps the old number: if that still waits for its turn, both will serve.
                members[block].difference_update(states)
                part = set(states)
                if len(part) > len(members[block]):
                    part, members[block] = members[block], part
                new = len(members)
                members.append(part)
                for state in part:
                    block_of[state] = new
                splitters.append(new)
    return block_of


def _inverse(column: tuple[int, ...]) -> dict[int, list[int]]:
    sources: dict[int, list[int]] = {}
    for state, target in enumerate(column):
        sources.setdefault(target, []).append(state)
    return sources
