"""Distinct values by sorting.

NumPy's own `unique` hashes, which takes longer on large arrays and keeps other threads from running
meanwhile; its sorts do neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values in order.

    >>> distinct(np.array([3, 1, 3]))
    array([1, 3])
    """
    ordered = np.sort(values)
    found: NDArray[Any] = ordered[changes(ordered)]
    return found


def changes(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a value, or a row of values, differs from the one before; true at the first.

    >>> changes(np.array([1, 1, 3]))
    array([ True, False,  True])
    """
    differs = ordered[1:] != ordered[:-1]
    if differs.ndim > 1:
        differs = differs.any(axis=1)
    return np.concatenate((np.ones(min(1, len(ordered)), bool), differs))
