"""Filters in Spark: as columns of a DataFrame."""

from stentor.pipeline.filters.to_column import is_native, to_column

__all__ = ["is_native", "to_column"]
