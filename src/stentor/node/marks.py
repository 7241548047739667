"""Marks: how far the streams of other brokers have come, by their own word.

What was heard is also kept when the way to a stream is lost (`highest`): a stream never goes back.
If its broker comes back with less, it was started on an older copy of its journal, and has to be
told before it uses offsets again that stand for something else.
"""

from __future__ import annotations

from typing import Final

from stentor.protocol.messages import MAX_STREAMS, Positions, StreamId

#: Streams of which it is kept how far they came.
KEPT: Final = MAX_STREAMS


class Marks:
    """The last offset that was heard of each stream, as long as its way is unbroken."""

    def __init__(self) -> None:
        self.heads: Positions = {}
        #: The highest offset of each stream that was ever heard of.
        self.highest: Positions = {}
        #: How far streams are at least that do not come, by the word of brokers.
        self.hearsay: Positions = {}

    def heard(self, stream: StreamId, head: int) -> None:
        """It is at least there; what its broker says of it may come behind what is further."""
        self.heads[stream] = max(head, self.heads.get(stream, 0))
        self.seen(stream, head)

    def seen(self, stream: StreamId, head: int) -> bool:
        """It was there once; whether that is news."""
        if head <= self.highest.get(stream, 0):
            return False
        if stream not in self.highest and len(self.highest) >= KEPT:
            del self.highest[next(iter(self.highest))]
        self.highest[stream] = head
        return True

    def heard_say(self, stream: StreamId, head: int) -> bool:
        """It is at least there, and what lies below may not have come; whether that is news."""
        if head <= self.hearsay.get(stream, -1):
            return False
        self.seen(stream, head)
        self.hearsay.pop(stream, None)
        self.hearsay[stream] = head
        if len(self.hearsay) > KEPT:
            del self.hearsay[next(iter(self.hearsay))]
        return True

    def end(self, stream: StreamId) -> int:
        """The way is broken: what was heard last counts once more, then no longer."""
        head = self.heads.pop(stream, None)
        if head is not None:
            self.heard_say(stream, head)
        return head or 0
