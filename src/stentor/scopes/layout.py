"""Where the nodes of a scope graph are drawn: in layers, superscopes above their members.

The method of Sugiyama in its plain form. Each node is one layer below the lowest of its parents. An
edge that passes layers gets a place of its own in each of them. Layers are then sorted again and
again by where their neighbors stand, which takes most crossings out, and finally every node is put
as near below its parents as those beside it allow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_SWEEPS: Final = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The layer and the middle of each node, and the bends of each edge, in the same units."""

    layers: list[list[str]]
    x: dict[str, float]
    layer: dict[str, int]
    bends: dict[tuple[str, str], list[str]]
    width: float


def layout(
    nodes: Iterable[str], edges: Iterable[tuple[str, str]], widths: Mapping[str, float], gap: float
) -> Layout:
    """Places for nodes whose edges lead from child to parent.

    >>> found = layout("abc", [("b", "a"), ("c", "a")], dict.fromkeys("abc", 10), 4)
    >>> found.layers, found.x
    ([['a'], ['b', 'c']], {'a': 12.0, 'b': 5.0, 'c': 19.0})
    """
    pairs = list(edges)
    parents: dict[str, list[str]] = {node: [] for node in nodes}
    for child, parent in pairs:
        parents[child].append(parent)
    depth = _depths(parents)
    above: dict[str, list[str]] = defaultdict(list)
    bends: dict[tuple[str, str], list[str]] = {}
    size = dict(widths)
    for child, parent in pairs:
        lower, places = child, []
        for number in range(depth[child] - 1, depth[parent], -1):
            bend = f"{child}\0{parent}\0{number}"
            depth[bend], size[bend] = number, 0.0
            places.append(bend)
            above[lower].append(bend)
            lower = bend
        above[lower].append(parent)
        bends[(child, parent)] = places
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node, number in depth.items():
        layers[number].append(node)
    below: dict[str, list[str]] = defaultdict(list)
    for lower, uppers in above.items():
        for upper in uppers:
            below[upper].append(lower)
    _sort(layers, above, below)
    x = _places(layers, above, below, size, gap)
    return Layout(layers, x, depth, bends, max((x[n] + size[n] / 2 for n in x), default=0.0))


def _depths(parents: Mapping[str, list[str]]) -> dict[str, int]:
    """The longest way up from each node, without recursion: graphs may be deep."""
    depth: dict[str, int] = {}
    for start in parents:
        ahead = [start]
        while ahead:
            node = ahead[-1]
            missing = [each for each in parents[node] if each not in depth]
            if missing:
                ahead += missing
                continue
            depth[node] = max((depth[each] + 1 for each in parents[node]), default=0)
            ahead.pop()
    return depth


def _sort(
    layers: list[list[str]], above: Mapping[str, list[str]], below: Mapping[str, list[str]]
) -> None:
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        place = {node: i for layer in layers for i, node in enumerate(layer)}
        for layer in layers if down else reversed(layers):
            middle = {
                node: sum(place[each] for each in near[node]) / len(near[node])
                if near.get(node)
                else float(place[node])
                for node in layer
            }
            layer.sort(key=lambda node: (middle[node], place[node]))  # used at once
            place.update((node, i) for i, node in enumerate(layer))


def _places(
    layers: list[list[str]],
    above: Mapping[str, list[str]],
    below: Mapping[str, list[str]],
    size: Mapping[str, float],
    gap: float,
) -> dict[str, float]:
    """From the left, then each layer as near to the next as its order allows."""
    x: dict[str, float] = {}
    for layer in layers:
        right = 0.0
        for node in layer:
            x[node] = right + size[node] / 2
            right += size[node] + gap
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 == 0 else above
        for layer in reversed(layers) if sweep % 2 == 0 else layers:
            wanted = [
                sum(x[each] for each in near[node]) / len(near[node]) if near.get(node) else x[node]
                for node in layer
            ]
            _align(layer, wanted, x, size, gap)
    least = min((x[node] - size[node] / 2 for node in x), default=0.0)
    return {node: at - least for node, at in x.items()}


def _align(
    layer: list[str],
    wanted: list[float],
    x: dict[str, float],
    size: Mapping[str, float],
    gap: float,
) -> None:
    """The middle between pushing everything to the right and everything to the left."""
    right: list[float] = []
    for node, at in zip(layer, wanted, strict=True):
        i = len(right)
        least = right[-1] + (size[layer[i - 1]] + size[node]) / 2 + gap if right else at
        right.append(max(at, least))
    left: list[float] = []
    for i in range(len(layer) - 1, -1, -1):
        most = left[-1] - (size[layer[i + 1]] + size[layer[i]]) / 2 - gap if left else wanted[i]
        left.append(min(wanted[i], most))
    for node, a, b in zip(layer, right, reversed(left), strict=True):
        x[node] = (a + b) / 2
