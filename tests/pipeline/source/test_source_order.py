"""Aggregates over several brokers count every event once, however the brokers differ."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from journal_filling import ALL, TIME, Query, Windows, fill, stream_of
from overlay_processes import LIMITS, BrokerProcess, Overlay, until
from pyspark.sql.types import StructType

from stentor.pipeline.columns import with_reserved
from stentor.pipeline.source.journals import Journals
from stentor.pipeline.source.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def brokers_of(overlay: Overlay, count: int) -> list[BrokerProcess]:
    found = [overlay.broker(f"b{i}", limits=LIMITS) for i in range(count)]
    for broker in found:
        broker.start()
    return found


def over(seconds: float, first: int, count: int, disorder: float = 0.0, ahead: float = 0.0) -> Any:
    """The times of so many events, spread over a period."""
    draw = random.Random(first)

    def time(n: int) -> datetime:
        behind = disorder * draw.random()
        return TIME + timedelta(seconds=(n - first) * seconds / count + ahead - behind)

    return time


class Counting:
    """A query that counts events by minutes, in a driver that is started anew now and then."""

    def __init__(self, brokers: list[BrokerProcess], delay: float, **options: Any) -> None:
        self._brokers = brokers
        self._options = options
        self.query = Query(self._reader())
        self.windows = Windows(60.0, delay)

    def _reader(self) -> StreamReader:
        return stream_of(*self._brokers, **self._options)

    def run(self, batches: int | None = None) -> None:
        """So many batches, or all that there is now."""
        query = self.query
        while batches != 0 and (end := query.plan()) is not None:
            start, before = query.offset, len(query.rows)
            query.run(end)
            rows = query.rows[before:]
            if len(query.batches) % 3 == 0:
                query.reader.stop()
                query.reader = self._reader()
                assert query.read(start, end) == rows  # the same batch after a crash
            self.windows.add(row["_time"].timestamp() for row in rows)
            batches = None if batches is None else batches - 1

    def complete(self, count: int) -> bool:
        self.run()
        return len(self.query.rows) == count

    def check(self, count: int) -> None:
        """Every event was counted, once and in its minute."""
        assert self.query.numbers == list(range(count))
        assert self.windows.late == 0
        times = [row["_time"].timestamp() for row in self.query.rows]
        assert self.windows.counts == Counter(time // 60 * 60 for time in times)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 3))]
)
def test_every_event_is_counted_once(overlay: Overlay, seed: int) -> None:
    draw = random.Random(seed)
    brokers = brokers_of(overlay, draw.randint(2, 3))
    delay = draw.choice([1.0, 10.0])
    first = 0
    for broker in brokers:
        count = draw.choice([30, 300, 3_000])
        ahead = draw.choice([0.0, 0.0, 240.0])  # a clock that is wrong by minutes
        fill(broker, range(first, first + count), time=over(3600, first, count, delay, ahead))
        first += count
    limits = [1, 7] if first < 200 else [7, 100, 500] if first < 1_000 else [100, 500, 2_000]
    limit = draw.choice(limits)
    counting = Counting(brokers, delay, maxRowsPerBatch=limit)
    counting.run(draw.randint(1, 4))
    # A broker goes away for a while; the others must not get ahead of it.
    away = draw.choice(brokers)
    if draw.random() < 0.5:
        away.kill()
        counting.run()
        away.start()
    else:
        away.process.signal(signal.SIGSTOP)
        counting.run()
        away.process.signal(signal.SIGCONT)
    asyncio.run(until(lambda: counting.complete(first), "all is read"))
    counting.check(first)


def test_what_goes_on_without_a_broker_is_late_when_it_is_back(overlay: Overlay) -> None:
    brokers = brokers_of(overlay, 2)
    for i, broker in enumerate(brokers):
        fill(broker, range(i * 500, i * 500 + 500), time=over(3600, i * 500, 500))
    brokers[1].kill()
    counting = Counting(brokers, 10.0, maxRowsPerBatch=100, waitForBrokers=False)
    counting.run()
    assert counting.query.numbers == list(range(500))
    brokers[1].start()
    asyncio.run(until(lambda: counting.complete(1_000), "all is read"))
    assert counting.windows.late > 400


def test_the_order_is_that_of_the_column_that_is_named(overlay: Overlay) -> None:
    """Here the publishers have made up `_time`, and what counts is an attribute."""
    brokers = brokers_of(overlay, 2)
    for i, count in enumerate((1_000, 50)):
        fill(
            brokers[i],
            range(2_000 * i, 2_000 * i + count),
            lambda n: {"n": n, "at": TIME + timedelta(seconds=n % 2_000 * 3600 / count)},  # noqa: B023
            time=lambda n: TIME - timedelta(seconds=n),
        )

    def late(**options: Any) -> int:
        query = Query(stream_of(*brokers, maxRowsPerBatch=100, **options))
        query.reader._schema = with_reserved(StructType().add("n", "long").add("at", "timestamp"))
        windows = Windows(60.0, 10.0)
        while (end := query.plan()) is not None:
            before = len(query.rows)
            query.run(end)
            windows.add(row["at"].timestamp() for row in query.rows[before:])
        assert len(query.rows) == 1_050
        return windows.late

    assert late() > 0
    assert late(timeColumn="at") == 0


def test_only_what_the_filter_matches_has_a_say(overlay: Overlay) -> None:
    """An event of the far future that nobody reads holds up nothing."""
    brokers = brokers_of(overlay, 2)
    fill(brokers[0], range(1), lambda n: {"n": -1}, time=TIME + timedelta(days=30_000))
    fill(brokers[0], range(1, 501), time=over(3600, 1, 500))
    fill(brokers[1], range(1001, 1051), time=over(3600, 1001, 50))
    counting = Counting(brokers, 10.0, maxRowsPerBatch=60, filter="n > 0")
    counting.run()
    assert counting.windows.late == 0
    assert len(counting.query.rows) == 550


def test_heads_that_were_told_long_ago_are_asked_for_again(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker was slow to answer; meanwhile the first one has got events of the same time."""
    brokers = brokers_of(overlay, 2)
    for broker in brokers:
        fill(broker, range(10))
    reader = stream_of(*brokers)
    start = reader.initialOffset()
    clock = iter([0.0, 5.0])
    monkeypatch.setattr(
        "stentor.pipeline.source.stream_reader.time.monotonic", lambda: next(clock, 5.0)
    )
    look, looks = Journals.seen, []

    def seen(self: Journals) -> Any:
        found = look(self)
        if not looks:
            fill(brokers[0], range(10, 20))
        looks.append(found)
        return found

    monkeypatch.setattr(Journals, "seen", seen)
    end = reader.latestOffset(start, ALL)
    assert sorted(end["streams"].values()) == [11, 21]
    assert len(looks) == 2


def trades(overlay: Overlay, *counts: int) -> list[BrokerProcess]:
    """Brokers with trades of the same hour."""
    brokers = brokers_of(overlay, len(counts))
    for i, count in enumerate(counts):
        first = 100_000 * i
        fill(brokers[i], range(first, first + count), time=over(3600, first, count))
    return brokers


@pytest.mark.slow
def test_spark_counts_every_trade(spark: SparkSession, overlay: Overlay, tmp_path: Path) -> None:
    from stentor.pipeline import events
    from stentor.pipeline.steps import collapse

    counts = 30_000, 3_000
    brokers = trades(overlay, *counts)
    stream = events(
        spark,
        brokers=[broker.address for broker in brokers],
        columns="n long, even boolean",
        stream=True,
        maxRowsPerBatch=5_000,
    )
    bars = collapse(
        stream.table(), [], {"trades": "count"}, window="1 minute", watermark="10 seconds"
    )
    query = (
        bars.writeStream.format("memory")
        .queryName("counted_trades")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = {row["window_start"].timestamp(): row["trades"] for row in _table(spark)}
    times = [over(3600, 0, count)(n).timestamp() for count in counts for n in range(count)]
    wanted = Counter(time // 60 * 60 for time in times)
    del wanted[max(wanted)]  # the last minute has not ended
    assert found == wanted


def _table(spark: SparkSession) -> list[Any]:
    return spark.table("counted_trades").collect()
