"""What the engines are measured on: seeded filters and events, the same in every run.

`stock` is the workload that engines are compared by. `SHAPES` are the others: each has filters of
one kind, most of them without any equality test, because an index that lives on equality alone
falls back to testing everything there. `blend` makes the mixes of the sweeps.
"""

from collections.abc import Callable

from workloads.base import Constraints, Event, Workload
from workloads.blend import blend
from workloads.many import many_shapes
from workloads.ranges import boxes, intervals, one_sided
from workloads.sets import collections, membership, unequal
from workloads.stock import EVENTS_DRAWN, EVENTS_USED, KNOWN_MATCHES, SEED, stock
from workloads.strings import contains, prefixes, regexes, suffixes

#: Called with the number of filters and of events.
Generator = Callable[[int, int], Workload]

SHAPES: dict[str, Generator] = {
    "intervals": intervals,
    "boxes": boxes,
    "one-sided": one_sided,
    "prefixes": prefixes,
    "suffixes": suffixes,
    "contains": contains,
    "regexes": regexes,
    "unequal": unequal,
    "membership": membership,
    "collections": collections,
    "many shapes": many_shapes,
}

__all__ = [
    "EVENTS_DRAWN",
    "EVENTS_USED",
    "KNOWN_MATCHES",
    "SEED",
    "SHAPES",
    "Constraints",
    "Event",
    "Generator",
    "Workload",
    "blend",
    "stock",
]
