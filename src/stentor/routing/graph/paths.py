"""Shortest paths that every broker computes alike.

Routing rests on three properties of the paths: between two brokers there is exactly one, it is the
same in both directions, and each part of a path is itself the path between its ends. Then the paths
from a broker to all others form a tree, a filter that travels from its origin and a notification
that travels to it use the same edges, and brokers that know the same graph never disagree.

Costs alone do not give this, because paths may tie. So the edges are numbered in a fixed order, and
edge number i weighs its cost plus an infinitesimal of its own: the weight of a path is the integer
`cost << edges | mask`, with the bits in `mask` for the edges it uses. No two paths use the
same edges, hence no two weigh the same; and weights add up, since no path uses an edge twice. An
edge that comes or goes leaves the order of the others as it is, so no tie is decided anew.

Costs are whole numbers, because sums of floats depend on the direction in which one adds.

A change of a few edges leaves most trees as they are, and these need not be searched anew: a tree
changes only if it has lost an edge, or if an edge has come by which some broker is as near to the
root as before, or nearer.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeAlias

from stentor.routing.protocol import BrokerId

#: Two brokers, in their order.
Edge: TypeAlias = tuple[BrokerId, BrokerId]


def order(broker: BrokerId) -> tuple[bool, Any]:
    """Sorts brokers, numbers before names."""
    return isinstance(broker, str), broker


def edge(a: BrokerId, b: BrokerId) -> Edge:
    return (a, b) if order(a) < order(b) else (b, a)


class PathTree:
    """All shortest paths from one broker: its tree.

    `parents` leads from each broker that can be reached one step back to the root.
    """

    def __init__(self, parents: Mapping[BrokerId, BrokerId], costs: Mapping[BrokerId, int]) -> None:
        """The brokers come with those nearer to the root before those behind them."""
        self.parents = parents
        #: The cost of the path to each broker, the root included.
        self.costs = costs

    def outlives(self, before: Mapping[Edge, int], after: Mapping[Edge, int]) -> bool:
        """Whether it is still the tree when the costs of all edges have changed like this."""
        parents, costs = self.parents, self.costs
        for pair in before.keys() | after.keys():
            old, new = before.get(pair), after.get(pair)
            if old == new:
                continue
            a, b = pair
            if parents.get(a) == b or parents.get(b) == a:
                return False
            if new is not None and (a in costs or b in costs):
                if a not in costs or b not in costs:
                    return False
                if abs(costs[a] - costs[b]) >= new:
                    return False
        return True

    def branches(self, at: BrokerId) -> dict[BrokerId, BrokerId]:
        """For each broker that is reached through `at`: the child of `at` it is reached through."""
        found: dict[BrokerId, BrokerId] = {}
        for broker, parent in self.parents.items():
            if parent == at:
                found[broker] = broker
            elif parent in found:
                found[broker] = found[parent]
        return found


class Graph:
    """Brokers and links with costs, and the tree of each broker.

    >>> ring = Graph({("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1, ("a", "d"): 1})
    >>> ring.tree("a").parents
    {'b': 'a', 'd': 'a', 'c': 'b'}
    >>> ring.tree("c").parents["a"]
    'b'
    """

    def __init__(self, costs: Mapping[Edge, int]) -> None:
        self.costs = dict(costs)
        self._trees: dict[BrokerId, PathTree] = {}

    def changed(self, costs: Mapping[Edge, int]) -> Graph:
        """The graph with other links, which keeps the trees that are still the same."""
        graph = Graph(costs)
        graph._trees = {
            root: tree
            for root, tree in self._trees.items()
            if tree.outlives(self.costs, graph.costs)
        }
        return graph

    @cached_property
    def _weights(self) -> dict[BrokerId, dict[BrokerId, int]]:
        edges = sorted(self.costs, key=lambda pair: (order(pair[0]), order(pair[1])))
        weights: dict[BrokerId, dict[BrokerId, int]] = {}
        for number, (a, b) in enumerate(edges):
            weight = self.costs[a, b] << len(edges) | 1 << number
            weights.setdefault(a, {})[b] = weight
            weights.setdefault(b, {})[a] = weight
        return weights

    def tree(self, root: BrokerId) -> PathTree:
        """The paths from a broker, computed when first asked for."""
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = self._search(root)
        return tree

    def _search(self, root: BrokerId) -> PathTree:
        """Dijkstra's algorithm. Weights never tie, so the heap never compares brokers."""
        weights = self._weights
        parents: dict[BrokerId, BrokerId] = {}
        costs: dict[BrokerId, int] = {}
        heap = [(0, root, root)]
        while heap:
            so_far, broker, parent = heapq.heappop(heap)
            if broker in costs:
                continue
            costs[broker] = so_far >> len(self.costs)
            if broker != root:
                parents[broker] = parent
            for neighbor, weight in weights.get(broker, {}).items():
                if neighbor not in costs:
                    heapq.heappush(heap, (so_far + weight, neighbor, broker))
        return PathTree(parents, costs)
