"""Journals with known contents, and readers that are driven as Spark drives them."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from math import inf
from typing import Any

from overlay_processes import BrokerProcess
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from stentor.client.direct import Direct
from stentor.model import Notification, NotificationId, encode
from stentor.pipeline.columns import with_reserved
from stentor.pipeline.source.options import reading
from stentor.pipeline.source.stream_reader import StreamReader

SCHEMA = with_reserved(StructType().add("n", "long").add("even", "boolean"))
TIME = datetime(2026, 5, 1, 12, tzinfo=UTC)


def numbered_event(n: int) -> dict[str, Any]:
    return {"n": n, "even": n % 2 == 0}


def fill(
    broker: BrokerProcess,
    numbers: Iterable[int],
    event: Callable[[int], dict[str, Any]] = numbered_event,
    producer: str = "desk",
    **parts: Any,
) -> int:
    """Publish events, each under its number; the last offset of the broker's journal.

    `time` may be one for all, or say it for each number.
    """
    time = parts.pop("time", TIME)
    items = [
        encode(
            Notification(
                event(n),
                id=NotificationId(producer, 0, n),
                time=time(n) if callable(time) else time,
                **parts,
            )
        )
        for n in numbers
    ]
    with Direct(broker.address, name=producer) as direct:
        direct.publish(items)
        return max(state.head for state in direct.streams() if state.broker == broker.name)


def stream_of(*brokers: BrokerProcess, **options: Any) -> StreamReader:
    """A reader as in a new driver."""
    given = {"brokers": ",".join(b.address for b in brokers), "patience": "60"}
    given |= {name: str(value) for name, value in options.items()}
    return StreamReader(SCHEMA, reading(given, streaming=True))


class Query:
    """What Spark does with a reader: offsets through a checkpoint, tasks in other processes."""

    def __init__(self, reader: StreamReader, checkpoint: str | None = None) -> None:
        self.reader = reader
        self.offset: dict[str, Any] = json.loads(
            checkpoint if checkpoint is not None else json.dumps(reader.initialOffset())
        )
        self.rows: list[dict[str, Any]] = []
        #: The ends of the batches that were run.
        self.batches: list[tuple[dict[str, Any], dict[str, Any]]] = []

    @property
    def checkpoint(self) -> str:
        return json.dumps(self.offset)

    @property
    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.rows)

    def plan(self) -> dict[str, Any] | None:
        """The end of the next batch, None if there is nothing new."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        text = json.dumps(end)
        return None if text == self.checkpoint else json.loads(text)

    def run(self, end: dict[str, Any]) -> int:
        """Run a batch; how many rows it had."""
        found = self.read(self.offset, end)
        self.batches.append((self.offset, end))
        self.rows += found
        self.offset = end
        return len(found)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        found = []
        for part in self.reader.partitions(start, end):
            reader, shipped = pickle.loads(
                cloudpickle.dumps((self.reader, part))  # type: ignore[no-untyped-call]
            )
            for batch in reader.read(shipped):
                found += batch.to_pylist()
        return found

    def drain(self) -> list[int]:
        """Batches until nothing is new; the rows of each."""
        sizes = []
        while (end := self.plan()) is not None:
            sizes.append(self.run(end))
        return sizes


class Windows:
    """Counts events by windows of their times as Spark does, and forgets windows that have ended.

    The watermark follows the newest event of the batches before; strictly, where Spark gives events
    one batch more.
    """

    def __init__(self, length: float, delay: float) -> None:
        self._length = length
        self._delay = delay
        self._newest = -inf
        self.counts: Counter[float] = Counter()
        self.late = 0

    def add(self, times: Iterable[float]) -> None:
        """One batch."""
        watermark = newest = self._newest
        for time in times:
            start = time // self._length * self._length
            if start + self._length <= watermark - self._delay:
                self.late += 1
            else:
                self.counts[start] += 1
            newest = max(newest, time)
        self._newest = newest


ALL = ReadAllAvailable()
