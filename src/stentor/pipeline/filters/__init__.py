"""Filters in Spark: as columns of a DataFrame, and from the predicates that Spark pushes down."""

from stentor.pipeline.filters.predicates import from_predicates
from stentor.pipeline.filters.to_column import is_native, to_column

__all__ = ["from_predicates", "is_native", "to_column"]
