"""Marks: how far the streams of other brokers have come, by their own word."""

from __future__ import annotations

from stentor.protocol.messages import Positions, StreamId


class Marks:
    """The last offset that was heard of each stream, as long as its way is unbroken."""

    def __init__(self) -> None:
        self.heads: Positions = {}

    def heard(self, stream: StreamId, head: int) -> None:
        """It is at least there; what its broker says of it may come behind what is further."""
        self.heads[stream] = max(head, self.heads.get(stream, 0))

    def end(self, stream: StreamId) -> int:
        """The way is broken: what was heard last counts once more, then no longer."""
        return self.heads.pop(stream, 0)
