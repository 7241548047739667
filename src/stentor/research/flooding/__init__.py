"""Flooding, both ways round: every event to every broker, or every subscription to every broker."""

from stentor.research.flooding.events import Flooded, FloodingRouter
from stentor.research.flooding.history import Clock, History, Sequences
from stentor.research.flooding.medym import Addressed, Announcement, MatchEarlyRouter
from stentor.research.flooding.rounds import Rounds, Tick
from stentor.research.flooding.subscriptions import (
    Direct,
    Interest,
    SubscriptionFloodingRouter,
)
from stentor.research.flooding.summary import Summary
from stentor.research.flooding.watermarks import Watermark, Watermarks
from stentor.research.flooding.window import AgeWindow

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
