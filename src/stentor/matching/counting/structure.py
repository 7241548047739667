"""Value structures: the third level of the index, one class for each kind of test.

A structure holds items (predicates, say), each under a key that describes a set of values, and
finds the items whose set contains a given value. An item may stand under several keys of one
structure if their sets have no value in common, so that no query finds it twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from stentor.filters.domains import Cut

T = TypeVar("T", bound=Hashable)

#: How long the pieces of text are by which substrings are looked up.
GRAM: int = 3


class Structure(Protocol[T]):
    """Items under sets of values."""

    def add(self, item: T, key: Any) -> None:
        """Nothing has changed if this fails."""

    def remove(self, item: T, key: Any) -> None:
        """The item stands under the key."""

    def find(self, value: Any, found: list[T]) -> None:
        """Append all items whose set contains the value."""

    def __len__(self) -> int: ...


class Everything(Generic[T]):
    """Items that take any value: existence and type tests. The key is not used."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: set[T] = set()

    def add(self, item: T, key: Any) -> None:
        self.items.add(item)

    def remove(self, item: T, key: Any) -> None:
        self.items.discard(item)

    def find(self, value: Any, found: list[T]) -> None:
        found.extend(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Points(Generic[T]):
    """Single values, hashed: equality and membership."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: dict[Any, set[T]] = {}

    def add(self, item: T, key: Any) -> None:
        self.items.setdefault(key, set()).add(item)

    def remove(self, item: T, key: Any) -> None:
        items = self.items[key]
        items.discard(item)
        if not items:
            del self.items[key]

    def find(self, value: Any, found: list[T]) -> None:
        items = self.items.get(value)
        if items is not None:
            found.extend(items)

    def __len__(self) -> int:
        return len(self.items)


class HalfLines(Generic[T]):
    """Values on one side of a cut: sorted cuts, of which a query takes all up to or from one."""

    __slots__ = ("below", "cuts", "items")

    def __init__(self, *, below: bool) -> None:
        self.below = below
        self.cuts: list[Cut] = []
        self.items: list[set[T]] = []

    def add(self, item: T, key: Cut) -> None:
        i = bisect_left(self.cuts, key)
        if i == len(self.cuts) or self.cuts[i] != key:
            self.cuts.insert(i, key)
            self.items.insert(i, set())
        self.items[i].add(item)

    def remove(self, item: T, key: Cut) -> None:
        i = bisect_left(self.cuts, key)
        self.items[i].discard(item)
        if not self.items[i]:
            del self.cuts[i], self.items[i]

    def find(self, value: Any, found: list[T]) -> None:
        place = bisect_right(self.cuts, (value, 0))  # the cuts before the value
        found.extend(chain.from_iterable(self.items[place:] if self.below else self.items[:place]))

    def __len__(self) -> int:
        return len(self.cuts)


class Affixes(Generic[T]):
    """Prefixes or suffixes: a trie, kept as one hash table for each length in use."""

    __slots__ = ("at_end", "by_length")

    def __init__(self, *, at_end: bool) -> None:
        self.at_end = at_end
        self.by_length: dict[int, Points[T]] = {}

    def add(self, item: T, key: Any) -> None:
        self.by_length.setdefault(len(key), Points()).add(item, key)

    def remove(self, item: T, key: Any) -> None:
        points = self.by_length[len(key)]
        points.remove(item, key)
        if not points:
            del self.by_length[len(key)]

    def find(self, value: Any, found: list[T]) -> None:
        for length, points in self.by_length.items():
            if length <= len(value):
                points.find(value[len(value) - length :] if self.at_end else value[:length], found)

    def __len__(self) -> int:
        return sum(map(len, self.by_length.values()))


class Substrings(Generic[T]):
    """Texts that a string has to contain, each filed under one of its grams.

    A gram is a piece of `GRAM` characters, or the whole of a shorter text. Of a text's grams
    the one is chosen under which the fewest other texts stand, so that common grams stay empty.
    """

    __slots__ = ("gram_of", "lengths", "texts")

    def __init__(self) -> None:
        self.gram_of: dict[str, str] = {}
        self.texts: dict[str, dict[str, set[T]]] = {}
        self.lengths: dict[int, int] = {}  # how many grams in use have this length

    def add(self, item: T, key: str) -> None:
        gram = self.gram_of.get(key)
        if gram is None:
            size = min(GRAM, len(key))
            grams = [key[i : i + size] for i in range(len(key) - size + 1)]
            gram = min(grams, key=lambda g: len(self.texts.get(g, ())))
            self.gram_of[key] = gram
            if gram not in self.texts:
                self.texts[gram] = {}
                self.lengths[size] = self.lengths.get(size, 0) + 1
            self.texts[gram][key] = set()
        self.texts[gram][key].add(item)

    def remove(self, item: T, key: str) -> None:
        gram = self.gram_of[key]
        texts = self.texts[gram]
        texts[key].discard(item)
        if texts[key]:
            return
        del texts[key], self.gram_of[key]
        if not texts:
            del self.texts[gram]
            self.lengths[len(gram)] -= 1
            if not self.lengths[len(gram)]:
                del self.lengths[len(gram)]

    def find(self, value: str, found: list[T]) -> None:
        for size in self.lengths:
            for gram in {value[i : i + size] for i in range(len(value) - size + 1)}:
                for text, items in self.texts.get(gram, {}).items():
                    if text in value:
                        found.extend(items)

    def __len__(self) -> int:
        return len(self.gram_of)


class Questions(Generic[T]):
    """Sets that only know whether they contain a value: all are asked. The key is the set."""

    __slots__ = ("sets",)

    def __init__(self) -> None:
        self.sets: dict[T, Any] = {}

    def add(self, item: T, key: Any) -> None:
        self.sets[item] = key

    def remove(self, item: T, key: Any) -> None:
        del self.sets[item]

    def find(self, value: Any, found: list[T]) -> None:
        found.extend([item for item, values in self.sets.items() if values.contains(value)])

    def __len__(self) -> int:
        return len(self.sets)
