"""Filters as values, their algebra, and the languages they are written in."""

from stentor.filters.custom import Operator
from stentor.filters.filter import Filter, Questions, merge_all
from stentor.filters.merging import Merger, merge_within_budget
from stentor.filters.operators import register_operator

__all__ = [
    "Filter",
    "Merger",
    "Operator",
    "Questions",
    "merge_all",
    "merge_within_budget",
    "register_operator",
]
