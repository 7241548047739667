"""Gossip: routers that spread notifications at random, so that no single failure matters.

`GossipRouter` tells everybody (push, pull or both). `SemiProbabilisticRouter` is certain near a
subscriber and random elsewhere. `GroupRouter` gossips among the interested, in a tree of groups.
`RepairRouter` wraps any router and mends by gossip what it lost.
"""

from stentor.routing.gossip.basic import MODES, GossipRouter, Mode
from stentor.routing.gossip.groups import GroupRouter
from stentor.routing.gossip.informed import SemiProbabilisticRouter
from stentor.routing.gossip.repair import RepairRouter
from stentor.routing.gossip.tree import GroupTree

__all__ = [
    "MODES",
    "GossipRouter",
    "GroupRouter",
    "GroupTree",
    "Mode",
    "RepairRouter",
    "SemiProbabilisticRouter",
]
