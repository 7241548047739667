"""Multicast groups: who is sent to together, when the network can do that (R-03.46).

Planning only: which groups there must be, which of them a notification is sent to, and whom that
reaches. Groups of brokers are in `groups` and `schemes`, local networks that broadcast in
`two_level`, groups of regions in `regions`.
"""

from stentor.research.multicast.groups import Groups
from stentor.research.multicast.regions import Arrival, Churn, GridGroups, Region, RegionGroups
from stentor.research.multicast.schemes import (
    HopByHop,
    Multicast,
    OneStep,
    Plan,
    Scheme,
    clustered,
    ideal,
    interested,
    neighbor_matching,
    threshold_clustered,
)
from stentor.research.multicast.two_level import TwoLevel

__all__ = [
    "Arrival",
    "Churn",
    "GridGroups",
    "Groups",
    "HopByHop",
    "Multicast",
    "OneStep",
    "Plan",
    "Region",
    "RegionGroups",
    "Scheme",
    "TwoLevel",
    "clustered",
    "ideal",
    "interested",
    "neighbor_matching",
    "threshold_clustered",
]
