"""A batch: notifications of one stream that travel together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stentor.model.codec import Envelope
from stentor.protocol.messages import StreamId


class Batch(NamedTuple):
    """Notifications in order. What is `volatile` has numbers of its own in place of offsets."""

    stream: StreamId
    offsets: list[int]
    items: list[bytes]
    envelopes: Sequence[Envelope]
    volatile: bool = False

    def only(self, indexes: Sequence[int]) -> Batch:
        """Some of them; the batch itself if these are all."""
        if len(indexes) == len(self.items):
            return self
        stream, offsets, items, envelopes, volatile = self
        return Batch(
            stream,
            [offsets[i] for i in indexes],
            [items[i] for i in indexes],
            [envelopes[i] for i in indexes],
            volatile,
        )

    def after(self, count: int) -> Batch:
        """All but the first ones."""
        stream, offsets, items, envelopes, volatile = self
        return Batch(stream, offsets[count:], items[count:], envelopes[count:], volatile)
