"""Boxes: subscriptions as points, events as boxes, in a space that brokers share (Meghdoot).

A subscription of ranges [l, h] over n indexed attributes is the point (l1, h1, ..., ln, hn) in 2n
dimensions. It matches an event with the values v if l <= v <= h on each attribute, so the points
that match form a box: each l from the bottom up to v, each h from v up to the top. The space is a
CAN (see `can`): the zone with the subscription's point keeps it, and an event has to come to all
zones that meet its box. It enters at the corner (v1, v1, ..., vn, vn); each zone it comes to passes
it to the neighboring zones that meet the box, and drops it when it comes again. It comes to all of
them, because a box is convex: from any point of it to any other leads a path along the dimensions
that does not leave the box, and each step from zone to zone on it crosses a face.

Filters. Equality is the range [v, v]; an attribute that may be anything is the whole range; `!=`
and other constraints with gaps are several points, and so is a union. Where there would be too many
of them, gaps are closed. What has no range form is widened (see `axes`), and values are mapped to
the coarse grid of the space. All of this only lets points lie in more boxes: filters are tested
exactly at the zone and at the subscriber's broker, so nothing wrong is delivered (07/T-15).

An event that lacks an indexed attribute has no box, and a filter that accepts such an event is
refused with `UnsupportedMapping`; with `catch_all`, it is also kept at the bottom corner of the
space, and all such events go there and nowhere else.

Load. As l <= h, half of each (l, h) plane holds no points, and wide subscriptions crowd in the
corner of low l and high h (07/T-11). Brokers therefore join at points with l <= h, which leaves
large zones to where nothing is; the crowding remains, as it lies in the subscriptions.

Zones are a function of the set of brokers: everyone computes the CAN that arises when the brokers
join one after the other, in the order of their hashes, each at the point that its hash gives. So
brokers that know of the same brokers agree without any message, whatever they lived through. When
a broker comes or goes, only zones within the zone that it halves differ, few of them as a rule.
With everyone known, the way to the corner is a single hop; a broker that knew only its neighbors
would take `Can.route`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Final

from stentor.filters import Filter
from stentor.filters.conjunct import Conjunct
from stentor.filters.constraint import ANYTHING
from stentor.filters.facts import facts_of
from stentor.matching.protocol import Event
from stentor.model.notification import Notification
from stentor.research.rendezvous.axes import Axis, Span
from stentor.research.rendezvous.can import SIDE, Box, Can, Point
from stentor.research.rendezvous.direct import DirectRendezvousRouter
from stentor.research.rendezvous.mappings import accepts_absence, check_axes, needs_all
from stentor.routing.protocol import BrokerId
from stentor.routing.rendezvous.pastry import key_of, number_of

#: Points that one conjunct may have; with more, the gaps in its ranges are closed.
MAX_POINTS: Final = 64


class BoxSpace:
    """The points of subscriptions and the boxes of events.

    >>> space = BoxSpace([Axis("x", 0, 100)], side=100)
    >>> space.points_of(Filter("x between 10 and 30"))
    [(10, 30)]
    >>> space.box_of({"x": 28})
    Box(first=(0, 28), last=(28, 99))
    """

    def __init__(self, axes: Iterable[Axis], *, catch_all: bool = False, side: int = SIDE) -> None:
        """`side` is how finely each attribute's domain is divided."""
        self.axes = check_axes(axes)
        self.dimensions = 2 * len(self.axes)
        self.side = side
        #: Where filters and events without a point or box meet, or None if those are refused.
        self.catch_all: Point | None = (0,) * self.dimensions if catch_all else None

    def points_of(self, filter: Filter) -> list[Point]:
        """Where to keep the filter; `UnsupportedMapping` if it accepts events without a box."""
        points: dict[Point, None] = {}
        for conjunct in filter.conjuncts:
            if any(accepts_absence(conjunct, axis) for axis in self.axes):
                if self.catch_all is None:
                    raise needs_all(filter, conjunct, self.axes)
                points[self.catch_all] = None
            points.update(dict.fromkeys(self._points(conjunct)))
        return list(points)

    def _points(self, conjunct: Conjunct) -> Iterable[Point]:
        spans = [
            axis.spans(conjunct.constraints.get(axis.name, ANYTHING), self.side)
            for axis in self.axes
        ]
        if prod(map(len, spans)) > MAX_POINTS:
            spans = [[_hull(of_axis)] for of_axis in spans]
        for ranges in product(*spans):
            yield tuple(end for span in ranges for end in span)

    def box_of(self, notification: Event) -> Box | None:
        """Where the points of all filters lie that match the event; None if it has no box."""
        cells = self._cells(notification)
        if cells is None:
            return None
        return Box(
            tuple(end for cell in cells for end in (0, cell)),
            tuple(end for cell in cells for end in (cell, self.side - 1)),
        )

    def entry_of(self, notification: Event) -> Point | None:
        """The point to which an event is sent first; None if no filter can match it."""
        cells = self._cells(notification)
        if cells is None:
            return self.catch_all
        return tuple(cell for cell in cells for _ in range(2))

    def _cells(self, notification: Event) -> list[int] | None:
        facts = facts_of(notification, [axis.name for axis in self.axes])
        if any(axis.name not in facts for axis in self.axes):
            return None
        return [axis.cell(facts[axis.name], self.side) for axis in self.axes]

    def shared_by(self, brokers: Iterable[BrokerId]) -> Can:
        """The zones of a set of brokers."""
        ordered = sorted(set(brokers), key=number_of)
        points = {broker: self._joining_point(broker) for broker in ordered}
        return Can.of(points, self.dimensions, self.side)

    def _joining_point(self, broker: BrokerId) -> Point:
        """A random point, always the same for the same broker, where subscriptions can lie."""
        number = number_of(broker)
        random = [key_of(f"{number}/{d}") % self.side for d in range(self.dimensions)]
        pairs = zip(random[::2], random[1::2], strict=True)
        return tuple(end for pair in pairs for end in sorted(pair))


def _hull(spans: Sequence[Span]) -> Span:
    return spans[0][0], spans[-1][1]


class BoxPlacement:
    """Who keeps which points, and to whom an event is passed on."""

    def __init__(self, space: BoxSpace, brokers: Iterable[BrokerId]) -> None:
        self.space = space
        self.can = space.shared_by(brokers)

    def homes(self, filter: Filter) -> list[BrokerId]:
        return list(dict.fromkeys(map(self.can.owner, self.space.points_of(filter))))

    def entries(self, notification: Notification) -> list[BrokerId]:
        point = self.space.entry_of(notification)
        return [] if point is None else [self.can.owner(point)]

    def onward(self, broker: BrokerId, notification: Notification) -> list[BrokerId]:
        box = self.space.box_of(notification)
        if box is None:
            return []
        return [n for n in self.can.neighbors(broker) if self.can.zone(n).meets(box)]


class BoxRouter(DirectRendezvousRouter):
    """A router that keeps subscriptions as points in zones.

    >>> from stentor.routing.protocol import FilterId
    >>> router = BoxRouter("a", BoxSpace([Axis("price", 0, 100)]))
    >>> router.subscribe(FilterId("ann", 1), Filter("price > 60"))
    []
    >>> router.table_size()
    TableSize(local=1, remote=1, advertisements=0)
    """

    def __init__(self, id: BrokerId, space: BoxSpace) -> None:
        super().__init__(id, lambda brokers: BoxPlacement(space, brokers))
        self.space = space
