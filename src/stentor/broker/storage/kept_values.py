"""Which last values a journal keeps: their sizes, their owners, and which go if there are too many.

The values of one owner that were unchanged for longest go first, and the owner is the one that has
most: so nobody drops the values of others by keeping very many.
"""

from __future__ import annotations

from collections.abc import Iterable

from stentor.node.last_values import owner_of


class KeptValues:
    """Keys and sizes, oldest first for each owner.

    >>> kept = KeptValues([("feed\\x1fIBM", 10), ("eve\\x1f1", 10), ("eve\\x1f2", 10)])
    >>> len(kept), kept.bytes, kept.surplus(2, 1_000, 10)
    (3, 30, ['eve\\x1f1'])
    """

    def __init__(self, rows: Iterable[tuple[str, int]] = ()) -> None:
        self._owners: dict[str, dict[str, int]] = {}
        self._bytes: dict[str, int] = {}
        self._count = 0
        for key, size in rows:
            self.put(key, size)

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        return sum(self._bytes.values())

    def put(self, key: str, size: int) -> None:
        """A value is there, as the newest of its owner."""
        self.drop(key)
        owner = owner_of(key)
        self._owners.setdefault(owner, {})[key] = size
        self._bytes[owner] = self._bytes.get(owner, 0) + size
        self._count += 1

    def drop(self, key: str) -> None:
        """It is gone, if it was there."""
        owner = owner_of(key)
        size = self._owners.get(owner, {}).pop(key, None)
        if size is not None:
            self._bytes[owner] -= size
            self._count -= 1
            if not self._owners[owner]:
                del self._owners[owner], self._bytes[owner]

    def surplus(self, count: int, size: int, most: int) -> list[str]:
        """Keys without which at most so many values of so many bytes are left; `most` at a time."""
        too_many, too_large = self._count - count, self.bytes - size
        if too_many <= 0 and too_large <= 0:
            return []
        waiting = {owner: iter(keys.items()) for owner, keys in self._owners.items()}
        counts = {owner: len(keys) for owner, keys in self._owners.items()}
        sizes = dict(self._bytes)
        found: list[str] = []
        while len(found) < most and (too_many > 0 or too_large > 0):
            shares = counts if too_many > 0 else sizes
            owner = max(shares, key=shares.__getitem__)
            key, bytes_ = next(waiting[owner])
            found.append(key)
            counts[owner] -= 1
            sizes[owner] -= bytes_
            too_many -= 1
            too_large -= bytes_
        return found
