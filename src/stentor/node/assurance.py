"""Assurance: whether all that a neighbor was told is known to be in force behind it.

A probe proves that everything said before it is in force, and tells how far streams have come (see
`streams`). It need not go where that is known. A broker counts what it says to each neighbor, that
is filters, advertisements and groups. If a probe that was sent behind all of it has come back from
there, and nothing was said since, then what is asked for on this side is in force on that one. And
of each stream behind the neighbor the broker knows an offset up to which everything has passed
here: what it has forwarded last, or was told. So it can answer in place of the neighbor. Whatever
comes behind that offset finds the new filters already here, and what they ask for beyond what the
neighbor has been told before is nothing: otherwise it would have been told.

So a subscription that others cover costs as many messages as it takes to find the broker where it
is covered, however many brokers lie behind.

When a stream begins afresh, something on the way to it was interrupted, and of the neighbor on that
way nothing is sure any more. In a graph filters of each broker take ways of their own; there only
the probes of this broker itself prove something, and only for itself. Where advertisements steer,
a filter may be untold because nobody offers it any more, while what was offered before has gone by
unasked for; there everybody is asked.
"""

from __future__ import annotations

from stentor.node.marks import Marks
from stentor.node.ways import Ways
from stentor.protocol.messages import Positions


class Assurance:
    """What was said to each neighbor, and how much of it is known to be in force there."""

    def __init__(self, directory: Ways, marks: Marks) -> None:
        self._directory = directory
        self._marks = marks
        self._said: dict[str, int] = {}
        self._sure: dict[str, int] = {}

    def say(self, neighbor: str) -> None:
        """The neighbor is told something that has to be in force; or it may no longer be."""
        self._said[neighbor] = self._said.get(neighbor, 0) + 1

    def forget(self, neighbor: str) -> None:
        """The link is gone."""
        self._said.pop(neighbor, None)
        self._sure.pop(neighbor, None)

    def said(self, neighbor: str) -> int:
        """How much the neighbor has been told by now."""
        return self._said.get(neighbor, 0)

    def answered(self, neighbor: str, said: int, heads: Positions) -> None:
        """A probe that was sent when so much had been said has come back, with these heads."""
        for stream, head in heads.items():
            self._marks.heard(stream, head)
        if all(origin.stream in heads for origin in self._directory.behind(neighbor)):
            self._sure[neighbor] = max(said, self._sure.get(neighbor, 0))

    def heads(self, neighbor: str) -> Positions | None:
        """How far the streams behind the neighbor are; None if it has to be asked."""
        if self._sure.get(neighbor) != self.said(neighbor):
            return None
        known = self._marks.heads
        streams = [origin.stream for origin in self._directory.behind(neighbor)]
        if not all(stream in known for stream in streams):
            return None
        return {stream: known[stream] for stream in streams}
