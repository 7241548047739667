"""Relations between unions of conjuncts: one includes another, two have something in common.

Both err on the safe side where the constraints do. They take steps from the budget of whoever asks,
who answers cautiously when it is used up.
"""

from __future__ import annotations

from collections.abc import Sequence

from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import ANYTHING
from stentor.filters.effort import spend


def includes(mine: Sequence[Conjunct], theirs: Sequence[Conjunct]) -> bool:
    """Whether the first union includes the second."""
    known = set(mine)
    open_questions = []
    for their in theirs:
        if their not in known:
            spend(4 * len(mine))
            if not any(m.covers(their) for m in mine):
                open_questions.append(their)
    if not open_questions or len(mine) < 2:
        return not open_questions
    return all(_included(their, mine) for their in open_questions)


def intersects(mine: Sequence[Conjunct], theirs: Sequence[Conjunct]) -> bool:
    """Whether they may have something in common."""
    for my in mine:
        spend(2 + 3 * len(theirs))
        if any(my.overlaps(their) for their in theirs):
            return True
    return False


def _included(box: Conjunct, covers: Sequence[Conjunct]) -> bool:
    """Whether a conjunct lies inside a union although inside none of its members.

    Cut it along the first member it meets: what is inside that member is covered; each part
    outside must be covered by the rest.
    """
    for i, cover in enumerate(covers):
        spend(4)
        if not cover.residuals <= box.residuals or not cover.overlaps(box):
            continue
        spend(len(covers) + 20 * len(cover.constraints))
        inside = box
        for name, constraint in cover.constraints.items():
            mine = inside.constraints.get(name, ANYTHING)
            outside = inside.replacing(name, mine.intersection(constraint.others()).settled())
            if outside is not None and not _included(outside, covers[i + 1 :]):
                return False
            shared = inside.replacing(name, mine.intersection(constraint).settled())
            if shared is None:
                return True  # nothing of it is inside, and all that is outside was covered
            inside = shared
        return True
    return False
