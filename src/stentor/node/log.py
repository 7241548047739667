"""What a broker's core needs of its journal: reading. Appending is the host's part.

Offsets begin at 1 and have no gaps; `head` is the last one that is on disk, 0 if there is none.
Reads return committed entries only, from memory or from a disk that answers in well under a
millisecond, so they are plain calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from stentor.protocol.messages import StreamId


class LastValue(NamedTuple):
    """A notification that is kept under a key."""

    key: str
    #: Seconds since 1970 at which it was journaled.
    time: float
    data: bytes


class Log(Protocol):
    """A journal, as the core sees it."""

    @property
    def stream(self) -> StreamId: ...

    @property
    def head(self) -> int:
        """The last offset."""

    @property
    def low(self) -> int:
        """The first offset that is still there; `head + 1` if none is."""

    def read(self, first: int, limit: int) -> list[bytes]:
        """Up to `limit` entries from offset `first` on, which must not be below `low`.

        It may return fewer, but at least one if there is one.
        """

    def offset_at(self, since: float) -> int:
        """The first offset that was journaled at this time or later; `head + 1` if none was."""

    def delayed(self, ids: Sequence[str]) -> dict[str, bytes]:
        """Publications that are not yet due, by their ids, as far as they are on disk."""

    def last_values(self, after: str, limit: int) -> list[LastValue]:
        """Up to `limit` of what is kept under keys, in their order, behind one of them."""
