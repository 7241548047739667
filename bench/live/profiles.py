"""How much to measure: half a minute, a minute, or as long as 100,000 filters take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: What a run consists of.
PARTS: Final = ("throughput", "durability", "latency", "overlay", "clients")


@dataclass(frozen=True)
class Profile:
    """Numbers of repeats, events, filters, brokers and clients."""

    name: str
    #: Every measurement is repeated so often, in turns with what it is compared with.
    repeats: int
    #: Events of one measurement, published by the client library; prepared ones are twice as many.
    events: int
    #: Content filters of others that the broker holds.
    filters: tuple[int, ...]
    #: Acknowledged publications of one measurement; of those that wait one by one, a quarter.
    durable_events: int
    #: Seconds for which latencies are taken.
    latency_seconds: float
    #: Brokers in a line, and content filters of others that all of them hold.
    lines: tuple[int, ...]
    line_filters: tuple[int, ...]
    #: Events from one to many, many to one, and over lines; and repeats of that.
    line_events: int
    line_repeats: int
    #: Clients that connect and stay, and connections that come and go.
    idle_clients: int
    connects: int


QUICK: Final = Profile(
    name="quick",
    repeats=2,
    events=30_000,
    filters=(0, 10_000),
    durable_events=30_000,
    latency_seconds=1.0,
    lines=(1, 3),
    line_filters=(1,),
    line_events=10_000,
    line_repeats=1,
    idle_clients=1_000,
    connects=1_000,
)
DEFAULT: Final = Profile(
    name="default",
    repeats=3,
    events=60_000,
    filters=(0, 10_000),
    durable_events=60_000,
    latency_seconds=2.0,
    lines=(1, 3),
    line_filters=(1,),
    line_events=20_000,
    line_repeats=1,
    idle_clients=10_000,
    connects=5_000,
)
FULL: Final = Profile(
    name="full",
    repeats=7,
    events=200_000,
    filters=(0, 1_000, 10_000, 100_000),
    durable_events=200_000,
    latency_seconds=10.0,
    lines=(1, 3, 7),
    line_filters=(1, 1_000, 100_000),
    line_events=50_000,
    line_repeats=3,
    idle_clients=10_000,
    connects=10_000,
)
PROFILES: Final = {profile.name: profile for profile in (QUICK, DEFAULT, FULL)}
