"""Lists that collections must share an element with, checked on all candidates of a batch at once.

`tags has 'a'` leads to a filter by its token, but if an equality does so already, it remains as a
check, and in a batch it is by far the commonest. So the strings that the checks of a segment list
are numbered; a row has the numbers of its own elements, and a kernel compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stentor.matching.index import kernels
from stentor.matching.index.checks import Compiled
from stentor.matching.index.columns import Source

Int64s = NDArray[np.int64]


class Listed:
    """The checks of some boxes: those that are lists, as arrays, and the others."""

    def __init__(self, tests: Sequence[tuple[Compiled, ...]]) -> None:
        #: For each attribute the number of each string that is listed.
        self._numbers: dict[str, dict[Any, int]] = {}
        self._count = 0
        listed = [tuple([check for check in checks if _is_list(check)]) for checks in tests]
        every = list(chain.from_iterable(listed))
        members = [self._of(check) for check in every]
        #: The lists of each box, and the strings of each list.
        self._lists = _begins(map(len, listed))
        self._begins = _begins(map(len, members))
        self._members = np.array(list(chain.from_iterable(members)), np.int64)
        #: For each box whatever else is to be checked.
        self.others = [
            tuple([check for check in checks if not _is_list(check)]) if lists else checks
            for checks, lists in zip(tests, listed, strict=True)
        ]
        self.any_others = np.array([bool(checks) for checks in self.others], bool)

    def __len__(self) -> int:
        """How many lists there are."""
        return len(self._begins) - 1

    def hold(self, rows: Int64s, boxes: Int64s, source: Source) -> NDArray[np.bool_]:
        """For each pair of row and box, by row, whether the row has an element of every list."""
        begins, elements = self._elements(source)
        marks = np.full(self._count, -1, np.int64)
        found = np.ones(len(rows), np.bool_)
        kernels.test_lists(
            rows, boxes, self._lists, self._begins, self._members, begins, elements, marks, found
        )
        return found

    def _of(self, check: Compiled) -> list[int]:
        assert check.listed is not None
        numbers = self._numbers.setdefault(check.name, {})
        found = []
        for text in check.listed:
            number = numbers.get(("string", text))
            if number is None:
                number = numbers["string", text] = self._count
                self._count += 1
            found.append(number)
        return found

    def _elements(self, source: Source) -> tuple[Int64s, Int64s]:
        """Where the numbers of each row's elements begin, and these numbers."""
        rows, found = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for name, numbers in self._numbers.items():
            column = source.column(name)
            if column is None:
                continue
            of_column, codes, elements = column.tokens()
            known = np.array([numbers.get(element, -1) for element in elements], np.int64)[codes]
            rows.append(of_column[known >= 0])
            found.append(known[known >= 0])
        row = np.concatenate(rows)
        order = np.argsort(row, kind="stable")
        begins = np.searchsorted(row[order], np.arange(source.count + 1))
        return begins, np.concatenate(found)[order]


def _is_list(check: Compiled) -> bool:
    return check.listed is not None and check.constraint is not None and not check.constraint.absent


def _begins(sizes: Any) -> Int64s:
    return np.cumsum([0, *sizes], dtype=np.int64)
