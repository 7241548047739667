"""Names of columns: which are reserved, and which may be set.

No Spark in here, so that a pipeline can be checked where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stentor.errors import PipelineDefinitionError
from stentor.model.names import name_problem, shown

#: Reserved columns that a step may set. The others say where an event comes from.
SETTABLE: Final = (
    *("_type", "_time", "_subject", "_channel", "_payload", "_content_type"),
    *("_deliver_at", "_expires", "_priority"),
)

#: How names begin under which is observed how many events belong to which window.
WINDOWS: Final = "windows"


def is_reserved(name: str) -> bool:
    """Whether the column is no attribute."""
    return name.startswith("_")


def check_names(names: Iterable[str]) -> None:
    """`PipelineDefinitionError` unless a step may set these columns."""
    for name in names:
        if is_reserved(name) and name not in SETTABLE:
            raise PipelineDefinitionError(
                f"{name!r} cannot be set; of the reserved columns, {', '.join(SETTABLE)} can"
            )
        if problem := name_problem(name):
            raise PipelineDefinitionError(f"{shown(name)} {problem}; no attribute has such a name")
