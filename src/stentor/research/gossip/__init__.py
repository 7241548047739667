"""Gossip: routers that spread notifications at random, so that no single failure matters.

`GossipRouter` tells everybody (push, pull or both). `SemiProbabilisticRouter` is certain near a
subscriber and random elsewhere. `GroupRouter` gossips among the interested, in a tree of groups.
`RepairRouter` wraps any router and mends by gossip what it lost.
"""

from stentor.research.gossip.basic import MODES, GossipRouter, Mode
from stentor.research.gossip.groups import GroupRouter
from stentor.research.gossip.informed import SemiProbabilisticRouter
from stentor.research.gossip.repair import RepairRouter
from stentor.research.gossip.tree import GroupTree

__all__ = [
    "MODES",
    "GossipRouter",
    "GroupRouter",
    "GroupTree",
    "Mode",
    "RepairRouter",
    "SemiProbabilisticRouter",
]
