"""Scopes on Spark: who gets which event, by the graph that brokers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.pipeline.lazy_names import lazily

if TYPE_CHECKING:
    from stentor.pipeline.scopes.scoped import scoped

__all__ = ["scoped"]

__getattr__ = lazily(__name__, scoped="scoped")
