"""Reducers: what a broker announces to each neighbor, of all that it must be reachable for.

A routing strategy is an incremental reducer. A broker wants, at each neighbor, what its other
destinations asked for; it announces a reduced set that still asks for all of it. Simple and
identity-based routing announce everything (`plain`), covering-based routing only what nothing
else covers (`covering`). Merging acts before that, on what came from each destination (`merging`).
"""

from stentor.routing.reducers.announcements import Announcements, Change
from stentor.routing.reducers.covering import CoveringReducer, Visible
from stentor.routing.reducers.merging import MergingStage
from stentor.routing.reducers.plain import PlainReducer
from stentor.routing.reducers.reducer import Reducer
from stentor.routing.reducers.reduction import Reduction, ReductionName, check_reduction
from stentor.routing.reducers.sample import Sample

__all__ = [
    "Announcements",
    "Change",
    "CoveringReducer",
    "MergingStage",
    "PlainReducer",
    "Reducer",
    "Reduction",
    "ReductionName",
    "Sample",
    "Visible",
    "check_reduction",
]
