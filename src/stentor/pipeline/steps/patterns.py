"""Patterns of composite events as pipelines in TOML write them.

No Spark in here, so that a pipeline can be checked where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stentor.composite import Pattern
from stentor.composite.parser import parse_pattern
from stentor.filters import Filter


def written_pattern(pattern: str, events: Mapping[str, Any], name: str | None = None) -> Pattern:
    """A pattern of texts; events that are tables are patterns themselves."""
    named = {} if name is None else {"name": name}
    return Pattern.load({"pattern": pattern, "events": events, **named})


def read_pattern(text: Any) -> str | None:
    """The expression of a pattern, if it is one; what its names stand for is not looked at."""
    if not isinstance(text, str) or not text.strip():
        return None
    parse_pattern(text)
    return text


def read_events(value: Any) -> dict[str, Any] | None:
    """What the names of a pattern stand for: filters, or patterns as tables."""
    if not isinstance(value, dict) or not value:
        return None
    for each in value.values():
        if isinstance(each, dict):
            Pattern.load(each)
        elif isinstance(each, str):
            Filter(each)
        else:
            return None
    return dict(value)
