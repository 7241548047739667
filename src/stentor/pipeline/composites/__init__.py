"""Composite events on Spark: the patterns of `stentor.composite` over tables and streams of events.

detect(events, pattern, ...)    a row for each composite event, as `detect_local` finds them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.composites.detection import detect, detect_as_written

__all__ = ["detect", "detect_as_written"]

__getattr__ = lazily(__name__, detection="detect detect_as_written")
