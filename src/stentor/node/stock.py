"""Stock: what the journals of neighbors hold, by their own word, on a rendezvous overlay.

So a feed that begins to read a stream need not look through what cannot be for it.
"""

from __future__ import annotations

from stentor.node.interest import Interest
from stentor.protocol.messages import Positions, StreamId, Types
from stentor.routing.rendezvous.keys import ANY, is_held, wanted


class Stock:
    """For each neighbor the keys under which it has something."""

    def __init__(self) -> None:
        #: By neighbor: its own stream; the keys, with the offset of that before the first under
        #: each; and up to where its streams hold nothing under others.
        self._own: dict[str, StreamId] = {}
        self._keys: dict[str, dict[str, int]] = {}
        self._through: dict[str, Positions] = {}

    def heard(self, neighbor: str, message: Types) -> None:
        """What a neighbor has, besides what it has said before."""
        keys = self._keys.setdefault(neighbor, {})
        keys.update(message.added)
        for key in message.removed:
            keys.pop(key, None)
        self._through[neighbor] = message.heads
        self._own[neighbor] = message.stream

    def link_down(self, neighbor: str) -> None:
        """What it has said no longer holds."""
        for said in (self._own, self._keys, self._through):
            said.pop(neighbor, None)

    def nothing_up_to(self, neighbor: str, stream: StreamId, interest: Interest) -> int:
        """The offset up to which a stream of the neighbor holds nothing that was owed.

        What was added to an inbox and is not in force does not count: it is owed nothing yet.
        """
        keys = {key for f in interest if f not in interest.recent for key in wanted(f)}
        theirs = self._keys.get(neighbor, {})
        common = [key for key in keys & theirs.keys() if is_held(key)]
        through = self._through.get(neighbor, {})
        if ANY in keys:
            return 0
        if not common:
            return through.get(stream, 0)
        return min(theirs[key] for key in common) if stream == self._own[neighbor] else 0
