"""How many there are of something, in words."""

from __future__ import annotations


def counted(count: int, what: str, many: str | None = None) -> str:
    """A number with its noun, which is `what` of one thing and `many` of all else.

    >>> counted(1, "row"), counted(0, "row"), counted(1200, "row")
    ('1 row', '0 rows', '1,200 rows')
    >>> counted(2, "publication was", "publications were")
    '2 publications were'
    """
    return f"{count:,} {what if count == 1 else many or f'{what}s'}"
