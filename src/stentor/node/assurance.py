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
is covered, however many brokers lie behind. Where advertisements steer, a new one costs what the
ways to those are long who offer something that overlaps it. Others are told nothing of it, and
nothing for it can enter there but under a new offer, which is in force only when what it calls for
has come (see `parts.offers`). What they offered before and offer no longer may have gone by unasked
for. So of a neighbor that withdraws an offer nothing is sure any more, and the next probe goes
there, and on, as far as the word has come from. What its answer says lies behind all of that.

When a stream begins afresh, something on the way to it was interrupted, and of the neighbor on that
way nothing is sure any more.

In a graph the filters of each broker take its own tree, and so do its probes. What was said, and
what is sure, is counted apart for each tree there. When other brokers than before lie behind a
neighbor in a tree, nothing is sure of the neighbor for that tree: they may not know it yet, and
then they neither pass on what is asked for, nor say that their streams begin afresh, while how far
these are is already heard.
"""

from __future__ import annotations

from typing import Final

from stentor.node.marks import Marks
from stentor.node.ways import Ways
from stentor.protocol.messages import MAX_STREAMS, Positions, StreamId
from stentor.routing.protocol import BrokerId

#: Trees of which it is counted apart what a neighbor was told.
KEPT: Final = MAX_STREAMS


class Assurance:
    """What was said to each neighbor, and how much of it is known to be in force there."""

    def __init__(self, directory: Ways, marks: Marks) -> None:
        self._directory = directory
        self._marks = marks
        #: What was said to each neighbor, by the tree that it concerns; by None what concerns all.
        self._said: dict[str, dict[BrokerId | None, int]] = {}
        self._sure: dict[str, dict[BrokerId | None, int]] = {}

    def say(self, neighbor: str, tree: BrokerId | None = None) -> None:
        """The neighbor is told something that has to be in force; or it may no longer be."""
        said = self._said.setdefault(neighbor, {})
        if len(said) > KEPT:  # of none of them anything is sure then
            self._said[neighbor] = said = {None: sum(said.values())}
            tree = None
        said[tree] = said.get(tree, 0) + 1

    def forget(self, neighbor: str) -> None:
        """The link is gone."""
        self._said.pop(neighbor, None)
        self._sure.pop(neighbor, None)

    def said(self, neighbor: str, origin: StreamId) -> int:
        """How much the neighbor has been told by now of what a probe proves."""
        said, tree = self._said.get(neighbor, {}), self.tree(origin)
        return said.get(None, 0) + (0 if tree is None else said.get(tree, 0))

    def answered(self, neighbor: str, origin: StreamId, said: int, heads: Positions) -> None:
        """A probe that was sent when so much had been said has come back, with these heads."""
        for stream, head in heads.items():
            self._marks.heard(stream, head)
        if all(other.stream in heads for other in self._directory.behind(neighbor, origin)):
            sure, tree = self._sure.setdefault(neighbor, {}), self.tree(origin)
            if len(sure) > KEPT:
                sure.clear()
            sure[tree] = max(said, sure.get(tree, 0))

    def heads(self, neighbor: str, origin: StreamId) -> Positions | None:
        """How far the streams behind the neighbor are; None if the probe has to go there."""
        sure = self._sure.get(neighbor, {}).get(self.tree(origin))
        if sure != self.said(neighbor, origin):
            return None
        known = self._marks.heads
        streams = [other.stream for other in self._directory.behind(neighbor, origin)]
        if not all(stream in known for stream in streams):
            return None
        return {stream: known[stream] for stream in streams}

    def tree(self, origin: StreamId) -> BrokerId | None:
        """What a probe takes that was sent by the broker of this stream; None if there is one."""
        return self._directory.root(origin) if self._directory.allows_cycles else None
