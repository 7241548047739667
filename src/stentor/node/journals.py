"""The journals that a broker answers for: its own, and those of brokers that were removed.

What is said of the own stream is said up to the last offset that was *routed*. The journal itself
may be ahead: what is on disk and has not been routed counts as not yet published.
"""

from __future__ import annotations

from stentor.node.log import Log
from stentor.protocol.messages import Positions, StreamId


class Journals:
    """Streams with their logs."""

    def __init__(self, own: Log) -> None:
        self.own = own
        #: The last offset of the own stream that was routed.
        self.head = own.head
        self._logs: dict[StreamId, Log] = {own.stream: own}
        #: How far clients say that they have read the own stream, where that is beyond its head.
        self.claimed = 0

    @property
    def stream(self) -> StreamId:
        """The own stream."""
        return self.own.stream

    def adopt(self, log: Log) -> None:
        """Answer for the journal of a broker that was removed."""
        self._logs[log.stream] = log

    def __contains__(self, stream: StreamId) -> bool:
        return stream in self._logs

    def __getitem__(self, stream: StreamId) -> Log:
        return self._logs[stream]

    def heads(self) -> Positions:
        """The last offset of each stream that this broker answers for."""
        if len(self._logs) == 1:
            return {self.stream: self.head}
        return {s: log.head if log is not self.own else self.head for s, log in self._logs.items()}

    def listed(self, since: float | None = None) -> list[dict[str, object]]:
        """The journals that there are; with a time, also where each was at that time."""
        found = []
        for stream, head in self.heads().items():
            log = self._logs[stream]
            entry: dict[str, object] = {
                "stream": stream,
                "broker": stream.rpartition("#")[0] or stream,
                "low": log.low,
                "head": head,
            }
            if since is not None:
                entry["at"] = log.offset_at(since)
            found.append(entry)
        return found
