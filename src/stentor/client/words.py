"""The words that options of the client library take, and the options that several calls share.

They are types, so that a type checker finds a word that is misspelled.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, TypeAlias, TypedDict

#: What a broker does when more wait for a subscriber than may.
Overflow: TypeAlias = Literal["spill", "block", "drop_oldest", "drop_newest", "disconnect"]
#: How a group chooses who is given a notification.
Choice: TypeAlias = Literal["round_robin", "least_loaded"]
#: In which order a subscriber has what waits for it.
Order: TypeAlias = Literal["published", "priority"]
#: When a detector consumes an event.
DetectionPolicy: TypeAlias = Literal["best_effort", "guaranteed", "probabilistic"]
#: Where a pattern is detected: the policies of `stentor.composite.distribution`.
PlacementPolicy: TypeAlias = Literal[
    "minimum_latency",
    "minimum_bandwidth",
    "minimum_impact",
    "minimum_load",
    "maximum_reliability",
    "delegation",
]


class Parts(TypedDict, total=False):
    """What an event may have besides its attributes, as `Bus.publish` explains."""

    type: str | None
    subject: str | None
    channel: str | None
    payload: bytes | None
    content_type: str | None
    time: datetime | None
    deliver_at: str | float | timedelta | datetime | None
    expires: str | float | timedelta | datetime | None
    priority: int | None


class PublishOptions(Parts, total=False):
    """The options of `Bus.publish`."""

    volatile: bool
    retain: str | None
    timeout: float | None
