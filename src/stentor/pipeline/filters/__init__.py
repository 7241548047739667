"""Filters in Spark: as columns of a DataFrame."""

from stentor.pipeline.filters.to_column import are_native, is_native, to_column

__all__ = ["are_native", "is_native", "to_column"]
