"""Stabbing queries: which of many intervals contain a value.

An interval lies between two cuts (see `stentor.filters.domains`), so open and closed ends need no
cases. The intervals form a treap: a search tree by (low, high) that is also a heap by a priority,
which is a hash of the interval. The tree is thereby balanced in expectation and its shape depends
on what it holds, not on the order of the changes that led there. Each node knows the highest end
below it; a query skips every subtree that ends before the value, and every right subtree that
begins after it, and takes O(log n + found) steps.
"""

from __future__ import annotations

from typing import Any, Generic

from stentor.filters.domains import Cut
from stentor.matching.counting.structure import T

Interval = tuple[Cut, Cut]


class _Node(Generic[T]):
    __slots__ = ("high", "items", "left", "low", "priority", "right", "top")

    def __init__(self, interval: Interval) -> None:
        self.low, self.high = interval
        self.top = self.high
        self.items: set[T] = set()
        self.priority = hash(interval) * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF
        self.left: _Node[T] | None = None
        self.right: _Node[T] | None = None

    @property
    def key(self) -> Interval:
        return self.low, self.high

    def updated(self) -> _Node[T]:
        """Its highest end anew, after its children have changed."""
        top = self.high
        for child in (self.left, self.right):
            if child is not None and top < child.top:
                top = child.top
        self.top = top
        return self


class IntervalTree(Generic[T]):
    """Items under bounded intervals.

    >>> tree: IntervalTree[str] = IntervalTree()
    >>> tree.add("a", ((1, 0), (5, 1)))
    >>> tree.add("b", ((5, 1), (9, 1)))
    >>> found: list[str] = []
    >>> tree.find(5, found); found
    ['a']
    """

    __slots__ = ("_nodes", "_root")

    def __init__(self) -> None:
        self._nodes: dict[Interval, _Node[T]] = {}
        self._root: _Node[T] | None = None

    def add(self, item: T, key: Interval) -> None:
        node = self._nodes.get(key)
        if node is None:
            node = _Node(key)
            below, above = _split(self._root, key)
            self._root = _joined(_joined(below, node), above)
            self._nodes[key] = node
        node.items.add(item)

    def remove(self, item: T, key: Interval) -> None:
        node = self._nodes[key]
        node.items.discard(item)
        if not node.items:
            del self._nodes[key]
            self._root = _without(self._root, node)

    def find(self, value: Any, found: list[T]) -> None:
        place = (value, 0)
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node is None or not place < node.top:
                continue
            stack.append(node.left)
            if not place < node.low:
                if place < node.high:
                    found.extend(node.items)
                stack.append(node.right)

    def __len__(self) -> int:
        return len(self._nodes)


def _split(node: _Node[T] | None, key: Interval) -> tuple[_Node[T] | None, _Node[T] | None]:
    """The nodes before the key, and those after it."""
    if node is None:
        return None, None
    if node.key < key:
        below, above = _split(node.right, key)
        node.right = below
        return node.updated(), above
    below, above = _split(node.left, key)
    node.left = above
    return below, node.updated()


def _joined(below: _Node[T] | None, above: _Node[T] | None) -> _Node[T] | None:
    """One tree of two, all of the first before all of the second."""
    if below is None or above is None:
        return below or above
    if above.priority < below.priority:
        below.right = _joined(below.right, above)
        return below.updated()
    above.left = _joined(below, above.left)
    return above.updated()


def _without(root: _Node[T] | None, gone: _Node[T]) -> _Node[T] | None:
    assert root is not None
    if root is gone:
        return _joined(root.left, root.right)
    if gone.key < root.key:
        root.left = _without(root.left, gone)
    else:
        root.right = _without(root.right, gone)
    return root.updated()
