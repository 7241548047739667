r"""Regular expressions as trees, and the sequence that an unanchored search comes down to.

The tree has only regular constructs. `Begin` and `End` are the anchors `^` and `$`: they match the
empty string, at the first and at the last position of the text only.

A search for R accepts the strings of `.* R .*` (dot meaning every character). `search_items` writes
that as one flat sequence and simplifies it with two laws, in which S is `.*`, X has no anchors and
nothing is lost or gained:

    S X  = S         if X accepts the empty string
    S X{m,n} = S X{m}

and the same from the right. So `(a+)+$` becomes `S a`: a test for a suffix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stentor.filters.automata.characters import ALL, CharSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Concat:
    """The parts one after the other; with no parts, the empty string."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any one of the parts; with no parts, no string at all."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part `low` to `high` times; `high` None is without end."""

    part: Tree
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Begin:
    """`^`: the first position of the text."""


@dataclass(frozen=True, slots=True)
class End:
    """`$`: the position after the last character."""


Tree = Chars | Concat | Choice | Repeat | Begin | End

ANY_CHARACTER = Chars(ALL)
ANY_RUN = Repeat(ANY_CHARACTER, 0, None)


def size(tree: Tree) -> int:
    """How many nodes the tree's automaton has, by arithmetic alone.

    The empty sequence counts one in a repetition, so that this also bounds the work to build it.
    """
    match tree:
        case Concat(parts):
            return sum(map(size, parts))
        case Choice(parts):
            return 1 + sum(map(size, parts))
        case Repeat(part, low, None):
            return 1 + max(size(part), 1) * (low + 1)
        case Repeat(part, low, int(high)):
            return max(size(part), 1) * high + high - low
        case _:
            return 1


def nullable(tree: Tree) -> bool:
    """Whether a tree without anchors accepts the empty string."""
    match tree:
        case Chars():
            return False
        case Concat(parts):
            return all(map(nullable, parts))
        case Choice(parts):
            return any(map(nullable, parts))
        case Repeat(part, low, _):
            return low == 0 or nullable(part)
        case _:
            return True


def anchored(tree: Tree) -> bool:
    """Whether an anchor occurs anywhere in the tree."""
    match tree:
        case Chars():
            return False
        case Concat(parts) | Choice(parts):
            return any(map(anchored, parts))
        case Repeat(part, _, _):
            return anchored(part)
        case _:
            return True


def flatten(tree: Tree) -> list[Tree]:
    """The tree as a sequence, with repetitions of a fixed number written out and `.+` as `..*`."""
    match tree:
        case Concat(parts):
            return [item for part in parts for item in flatten(part)]
        case Choice((only,)):
            return flatten(only)
        case Repeat(part, low, high) if low == high:
            return flatten(part) * low
        case Repeat(part, low, None) if part == ANY_CHARACTER and low > 0:
            return [*([part] * low), ANY_RUN]
        case _:
            return [tree]


def search_items(tree: Tree) -> list[Tree]:
    """The sequence that accepts a text iff the tree matches somewhere in it.

    >>> search_items(Concat((Begin(), Chars(((97, 97),))))) == [Chars(((97, 97),)), ANY_RUN]
    True
    """
    items = _absorbed([ANY_RUN, *flatten(tree), ANY_RUN], Begin(), backward=False)
    return _absorbed(items[::-1], End(), backward=True)[::-1]


def _absorbed(items: Sequence[Tree], edge: Tree, backward: bool) -> list[Tree]:
    """One pass of the laws above in one direction; `edge` is the anchor of the side it starts at.

    An anchor at its own edge holds and vanishes; after a run it also shows the run to be empty.
    """
    kept: list[Tree] = []
    pending = list(reversed(items))
    while pending:
        item = pending.pop()
        after_run = bool(kept) and kept[-1] == ANY_RUN
        if item == edge and (not kept or (after_run and len(kept) == 1)):
            kept.clear()
        elif not after_run or anchored(item):
            kept.append(item)
        elif nullable(item):
            continue
        elif isinstance(item, Repeat) and item.low != item.high:
            copies = flatten(Repeat(item.part, item.low, item.low))
            pending.extend(copies if backward else reversed(copies))
        else:
            kept.append(item)
    return kept
