"""What a Python worker remembers from task to task: the last few, within a limit of memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, Protocol, TypeVar

#: So many are remembered, and beyond the newest so many bytes.
MOST: Final = 32
MOST_BYTES: Final = 256 * 2**20


class Sized(Protocol):
    @property
    def nbytes(self) -> int:
        """How much memory it takes, about."""


S = TypeVar("S", bound=Sized)


class Memory(Generic[S]):
    """The least recently used is forgotten first."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._known: OrderedDict[str, S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, digest: str) -> bool:
        return digest in self._known

    def get(self, digest: str) -> S | None:
        found = self._known.get(digest)
        if found is not None:
            self._known.move_to_end(digest)
        return found

    def take(self, digest: str) -> S | None:
        """The same, to be changed: it is no longer what the digest stands for."""
        return self._known.pop(digest, None)

    def put(self, digest: str, value: S) -> S:
        self._known[digest] = value
        self._known.move_to_end(digest)
        total = sum(one.nbytes for one in self._known.values())
        while len(self._known) > 1 and (len(self._known) > self._most or total > self._most_bytes):
            total -= self._known.popitem(last=False)[1].nbytes
        return value
