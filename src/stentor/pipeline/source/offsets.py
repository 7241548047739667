"""Positions in journals, as pure arithmetic: where reading begins, how a batch is cut.

A stream's *offset*, as Spark keeps it in its checkpoint, says for each journal what is read next:

    {"streams": {"b1#3f2a": 1001, "b2#77c0": 512}, "begin": {"b2#77c0": 1}, "since": 0.0}

`since` is the rule for journals that are seen later, such as of a broker that was down when the
query began: they are read from this time on (0: from their beginning). `begin` holds where the
batch that ends here begins, in each journal of which it reads something. So the end of a batch
alone determines it, whatever has happened to the brokers when it is run once more; no clock and no
cluster has a say. Its start would not do: of the first batch Spark does not keep it, but asks for
the initial offset again, and a broker may be down by then, or have lost its oldest events.

`times` says for people how far that is in the time of events, by journal: the latest `_time` among
the last ones that were taken, or the attribute that `timeColumn` names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Offset:
    """What is read next, by journal."""

    streams: Mapping[str, int]
    since: float = 0.0
    begin: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, str | float] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Offset:
        """From what Spark kept."""
        begin, times = found.get("begin", {}), found.get("times", {})
        return cls(dict(found["streams"]), float(found["since"]), dict(begin), dict(times))

    def dump(self) -> dict[str, Any]:
        """For Spark, which compares the text: the same offset has one form."""
        found: dict[str, Any] = {"streams": dict(sorted(self.streams.items())), "since": self.since}
        for name, given in (("begin", self.begin), ("times", self.times)):
            if given:
                found[name] = dict(sorted(given.items()))
        return found


@dataclass(frozen=True)
class Range(InputPartition):
    """What one task reads: these offsets of a journal, first and last included."""

    stream: str
    #: The broker where the events entered.
    broker: str
    first: int
    last: int
    #: The address where the journal was last; only a hint.
    address: str | None = None


def broker_of(stream: str) -> str:
    """The name of the broker whose journal it is.

    >>> broker_of("b1#3f2a77c0")
    'b1'
    """
    return stream.rpartition("#")[0] or stream


def ranges(
    start: Offset, end: Offset, size: int, addresses: Mapping[str, str] | None = None
) -> list[Range]:
    """What lies between two offsets, in pieces of at most `size`.

    >>> pieces = ranges(Offset({"b1#0": 1}), Offset({"b1#0": 6}), 3)
    >>> [(piece.first, piece.last) for piece in pieces]
    [(1, 3), (4, 5)]
    """
    found: list[Range] = []
    if start == end:  # a batch without events: `begin` is of the one before
        return found
    for stream, behind in sorted(end.streams.items()):
        first = end.begin.get(stream, start.streams.get(stream, behind))
        address = (addresses or {}).get(stream)
        for at in range(first, behind, size):
            last = min(at + size, behind) - 1
            found.append(Range(stream, broker_of(stream), at, last, address))
    return found


def shares(available: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """How many of what is available are taken from each, fairly; all in all at most `limit`.

    Nobody gets more than there is, and what one leaves the others share.

    >>> shares({"a": 10, "b": 100, "c": 100}, 90)
    {'a': 10, 'b': 40, 'c': 40}
    """
    if limit is None or limit >= sum(available.values()):
        return dict(available)
    found = {}
    left, waiting = limit, len(available)
    for stream, count in sorted(available.items(), key=lambda item: (item[1], item[0])):
        found[stream] = min(count, left // waiting)
        left -= found[stream]
        waiting -= 1
    return found
