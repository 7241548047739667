"""Notifications as columns: Spark schemas, Arrow batches, and rows that are published.

`BatchMaker` makes record batches of encoded notifications, `RowEncoder` and `numbered` encoded
notifications of rows. `infer` finds a schema for a sample of events, and `with_reserved` adds the
columns that every event table has: `_id`, `_type`, `_time` and so on.

Nothing here imports Spark before it is used; `RowEncoder` and `numbered` never need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.columns.attribute_values import row_of
    from stentor.pipeline.columns.from_arrow import Draft, RowEncoder, numbered
    from stentor.pipeline.columns.headers import all_attributes
    from stentor.pipeline.columns.inference import infer
    from stentor.pipeline.columns.layout import Layout
    from stentor.pipeline.columns.reserved import RESERVED, completed, with_reserved
    from stentor.pipeline.columns.to_arrow import MODES, BatchMaker

__all__ = [
    "MODES",
    "RESERVED",
    "BatchMaker",
    "Draft",
    "Layout",
    "RowEncoder",
    "all_attributes",
    "completed",
    "infer",
    "numbered",
    "row_of",
    "with_reserved",
]

__getattr__ = lazily(
    __name__,
    attribute_values="row_of",
    from_arrow="Draft RowEncoder numbered",
    headers="all_attributes",
    inference="infer",
    layout="Layout",
    reserved="RESERVED completed with_reserved",
    to_arrow="MODES BatchMaker",
)
