"""Flooding, both ways round: every event to every broker, or every subscription to every broker."""

from stentor.routing.flooding.events import Flooded, FloodingRouter
from stentor.routing.flooding.history import Clock, History, Sequences
from stentor.routing.flooding.medym import Addressed, Announcement, MatchEarlyRouter
from stentor.routing.flooding.rounds import Rounds, Tick
from stentor.routing.flooding.subscriptions import (
    Direct,
    Interest,
    SubscriptionFloodingRouter,
)
from stentor.routing.flooding.summary import Summary
from stentor.routing.flooding.watermarks import Watermark, Watermarks
from stentor.routing.flooding.window import AgeWindow

__all__ = [
    "Addressed",
    "AgeWindow",
    "Announcement",
    "Clock",
    "Direct",
    "Flooded",
    "FloodingRouter",
    "History",
    "Interest",
    "MatchEarlyRouter",
    "Rounds",
    "Sequences",
    "SubscriptionFloodingRouter",
    "Summary",
    "Tick",
    "Watermark",
    "Watermarks",
]
