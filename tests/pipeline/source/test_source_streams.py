"""The stream reader against brokers that run, die, come back, forget and move."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from journal_filling import ALL, SCHEMA, TIME, Query, fill, numbered_event, stream_of
from overlay_processes import LIMITS, BrokerProcess, Overlay, until
from pyspark.sql.streaming.datasource import ReadMaxRows

from stentor.broker.settings import Retention
from stentor.client.direct import Direct
from stentor.errors import HistoryGone, InvalidConfiguration, Unreachable
from stentor.model import Notification, NotificationId, decode
from stentor.node.reading import BULK
from stentor.pipeline.columns import Layout
from stentor.pipeline.source.batch_reader import BatchReader
from stentor.pipeline.source.offsets import Range, broker_of
from stentor.pipeline.source.options import reading
from stentor.pipeline.source.range_reader import _stretches

LONG = replace(LIMITS, timeout=30.0)


def brokers_of(overlay: Overlay, *names: str) -> list[BrokerProcess]:
    found = [overlay.broker(name, limits=LONG) for name in names]
    for broker in found:
        broker.start()
    return found


def test_all_journals_are_read_once_within_the_limit(overlay: Overlay) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(1000))
    fill(b2, range(1000, 1100))
    query = Query(stream_of(b1, b2, maxRowsPerBatch=300, maxRowsPerPartition=64))
    sizes = query.drain()
    assert sizes == [300, 300, 300, 200]
    assert query.numbers == list(range(1100))
    first = query.batches[0]
    assert {s.split("#")[0]: n for s, n in first[1]["streams"].items()} == {"b1": 201, "b2": 101}
    assert [row["_broker"] for row in query.rows if row["n"] >= 1000] == ["b2"] * 100
    row = query.rows[0]
    assert row == {
        "n": 0,
        "even": True,
        "_id": "desk:0:0",
        "_type": None,
        "_time": TIME,
        "_broker": "b1",
        "_offset": 1,
        "_corrupt": None,
    }
    latest = query.reader.latestOffset(query.offset, ALL)
    assert (query.reader.reportLatestOffset() or {})["streams"] == latest["streams"]
    # What comes later is read by the next batch, in a new driver as in this one.
    fill(b2, range(1100, 1150))
    again = Query(stream_of(b1, b2, filter="even = true"), query.checkpoint)
    again.drain()
    assert again.numbers == list(range(1100, 1150, 2))
    # A batch that is run again, such as after a crash, is the same batch whatever was published.
    for start, end in query.batches:
        ids = [row["_id"] for row in query.read(start, end)]
        assert len(ids) == len(set(ids))
    repeated = [row for start, end in query.batches for row in query.read(start, end)]
    assert repeated == query.rows


@pytest.mark.parametrize("waits", [True, False])
def test_a_broker_that_is_down_delays_and_loses_nothing(overlay: Overlay, waits: bool) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(100))
    fill(b2, range(100, 200))
    query = Query(stream_of(b1, b2, maxRowsPerBatch=50, waitForBrokers=waits))
    end = query.plan()
    assert end is not None
    query.run(end)
    b2.kill()
    fill(b1, range(200, 210))
    query.drain()
    others = [] if waits else [*range(25, 100), *range(200, 210)]
    assert query.numbers == sorted([*range(25), *range(100, 125), *others])
    b2.start()
    fill(b2, range(300, 310))
    asyncio.run(until(query.plan, "the broker is seen again"))
    query.drain()
    assert query.numbers == [*range(210), *range(300, 310)]


def test_a_task_waits_for_its_broker_and_goes_on_where_it_was(overlay: Overlay) -> None:
    (b1,) = brokers_of(overlay, "b1")
    fill(b1, range(60_000))
    query = Query(stream_of(b1))
    end = query.plan()
    assert end is not None
    (part,) = query.reader.partitions(query.offset, end)
    b1.kill()
    starter = threading.Thread(target=b1.start)
    starter.start()
    batches = query.reader.read(part)
    found = next(batches).column("n").to_pylist()  # it was down when the task began
    starter.join()
    b1.restart()
    for batch in batches:
        found += batch.column("n").to_pylist()
    assert found == list(range(60_000))


def test_offsets_tell_how_far_each_journal_is_read_in_time(overlay: Overlay) -> None:
    brokers = brokers_of(overlay, "b0", "b1")
    for number, broker in enumerate(brokers):
        numbers = range(300 * number, 300 * number + 300)
        fill(broker, numbers, time=lambda n: TIME + timedelta(seconds=n))
    query = Query(stream_of(*brokers, maxRowsPerBatch=200))
    found = []
    while (end := query.plan()) is not None:
        query.run(end)
        found.append({broker_of(stream): time for stream, time in end["times"].items()})
    times = [(TIME + timedelta(seconds=n)).isoformat() for n in range(600)]
    # The earliest first: one journal is read to its end, and then the other.
    assert found == [
        {"b0": times[199]},
        {"b0": times[299], "b1": times[399]},
        {"b0": times[299], "b1": times[599]},
    ]
    assert query.numbers == list(range(600))
    filtered = Query(stream_of(*brokers, filter="n < 10", timeColumn="n"))
    filtered.drain()
    assert filtered.offset.get("times", {}) == {}  # no such event is among the last ones
    by_number = Query(stream_of(*brokers, filter="n < 290", timeColumn="n"))
    by_number.drain()
    assert list(by_number.offset["times"].values()) == [289.0]


def test_batches_are_limited_in_bytes_without_payloads(overlay: Overlay) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(300), payload=bytes(10_000))
    fill(b2, range(300, 400), payload=bytes(10_000))
    query = Query(stream_of(b1, b2, maxBytesPerBatch=2_000, maxRowsPerBatch=60))
    sizes = query.drain()
    assert query.numbers == list(range(400))
    # An event has 30 to 40 bytes without its payload.
    assert all(45 <= size <= 60 for size in sizes[:-1])
    assert min(sizes[:-1]) < 60
    small = Query(stream_of(b1, b2, maxBytesPerBatch=1, filter="n < 3"))
    assert small.drain()  # there is progress, however small the limit
    assert small.numbers == [0, 1, 2]
    with Direct(b1.address) as direct:
        (stream,) = (state.stream for state in direct.streams() if state.broker == "b1")
    part = Range(stream, "b1", 1, 10, b1.address)
    options = reading({"brokers": b1.address})
    whole, bare = (
        [item for _, items in _stretches(part, options, "", layout) for item in items]
        for layout in (None, Layout(SCHEMA))
    )
    assert [len(decode(item).payload) for item in whole] == [10_000] * 10
    assert [decode(item) for item in bare] == [
        Notification(numbered_event(n), id=NotificationId("desk", 0, n), time=TIME)
        for n in range(10)
    ]


def test_a_limit_is_shared_by_the_journals_and_ends_a_read(overlay: Overlay) -> None:
    """Without a filter no more is planned than that; with one, a task stops when it has enough."""
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(1000))
    fill(b2, range(1000, 1003))
    given = {"brokers": f"{b1.address},{b2.address}", "limit": "9"}
    for filter, planned, read in (("", 9, [6, 3]), ("n >= 4", 1003, [9, 3])):
        options = reading({**given, "filter": filter}, streaming=False)
        reader = BatchReader(SCHEMA, options)
        parts = [part for part in reader.partitions() if isinstance(part, Range)]
        assert sum(part.last - part.first + 1 for part in parts) == planned
        assert [sum(batch.num_rows for batch in reader.read(part)) for part in parts] == read
    assert reader.count() == 9


def test_the_first_batch_is_the_same_when_it_is_run_again(overlay: Overlay) -> None:
    """Spark keeps the end of the first batch, and asks once more where it began."""
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(100))
    fill(b2, range(100, 120))
    for options in ({}, {"startingTimestamp": "2020-01-01T00:00:00Z"}):
        reader = stream_of(b1, b2, maxRowsPerPartition=30, **options)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        planned = reader.partitions(reader.initialOffset(), end)
        b2.kill()
        again = stream_of(b1, b2, maxRowsPerPartition=30, **options)
        start = again.initialOffset()
        assert len(start["streams"]) == 1
        parts = again.partitions(start, end)
        assert [(p.stream, p.first, p.last) for p in parts] == [
            (p.stream, p.first, p.last) for p in planned
        ]
        assert sum(p.last - p.first + 1 for p in parts) == 120
        assert again.partitions(end, end) == []
        b2.start()
        asyncio.run(until(b2.reachable, "b2 answers"))


def test_a_task_follows_a_journal_that_moves_while_it_is_read(overlay: Overlay) -> None:
    b1, b2 = (overlay[name] for name in overlay.line(2, limits=LONG))

    async def linked() -> None:
        await overlay.linked()

    asyncio.run(linked())
    count = 3 * BULK
    fill(b1, range(count))
    options = reading({"brokers": f"{b1.address},{b2.address}", "patience": "60"}, streaming=True)
    with Direct(b1.address) as direct:
        (state,) = direct.streams()
    part = Range(state.stream, "b1", 1, state.head, b1.address)
    stretches = _stretches(part, options, "")
    offsets = list(next(stretches)[0])
    assert len(offsets) < count

    async def removed() -> None:
        await b1.ask("drain", timeout=60.0)
        await until(lambda: not b1.running, "b1 ends")

    asyncio.run(removed())
    for found, _ in stretches:
        offsets += found
    assert offsets == list(range(1, count + 1))


def test_a_broker_with_too_many_clients_is_one_that_waits(overlay: Overlay) -> None:
    b1 = overlay.broker("b1", limits=replace(LONG, clients=2))
    b2 = overlay.broker("b2", limits=LONG)
    for broker in (b1, b2):
        broker.start()
        fill(broker, range(10))
    with Direct(b1.address), Direct(b1.address):
        reader = stream_of(b1, b2, waitForBrokers=False)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert [broker_of(stream) for stream in end["begin"]] == ["b2"]
        assert Query(stream_of(b1, b2)).plan() is None
    query = Query(stream_of(b1, b2))
    asyncio.run(until(lambda: len(query.drain()) >= 0 and len(query.rows) == 20, "all is read"))


def test_a_task_gives_up_after_its_patience(overlay: Overlay) -> None:
    (b1,) = brokers_of(overlay, "b1")
    fill(b1, range(10))
    query = Query(stream_of(b1, patience=0.2))
    end = query.plan()
    assert end is not None
    b1.kill()
    with pytest.raises(Unreachable, match=r"waited 0\.2 seconds \(option patience\)"):
        query.run(end)
    assert query.plan() is None  # while the driver just waits
    with pytest.raises(Unreachable, match="take it off the list"):
        stream_of(b1, patience=0.2).initialOffset()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_broker_that_is_seen_later_begins_by_the_same_rule(
    overlay: Overlay, starting: str
) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(5))
    fill(b2, range(10, 15))
    b2.kill()
    waiting = Query(stream_of(b1, b2, startingOffsets=starting))
    assert waiting.plan() is None
    query = Query(stream_of(b1, b2, startingOffsets=starting, waitForBrokers=False))
    query.drain()
    b2.start()
    fill(b2, range(15, 20))
    fill(b1, range(5, 8))
    asyncio.run(until(query.plan, "there is something new"))
    streams = len(query.offset["streams"])
    while streams == 1:  # until the other one was seen
        query.drain()
        streams = len(query.offset["streams"])
    query.drain()
    early = [*range(5), *range(10, 15)] if starting == "earliest" else []
    assert query.numbers == sorted([*early, *range(5, 8), *range(15, 20)])
    asyncio.run(until(waiting.plan, "the one that waited sees both"))
    waiting.drain()
    assert waiting.numbers == query.numbers
    # The batch that brought it says where it began, so it can be run again.
    (batch,) = [(s, e) for s, e in query.batches if len(e["streams"]) > len(s["streams"])]
    begin = {broker_of(stream): first for stream, first in batch[1]["begin"].items()}
    assert begin["b2"] == (1 if starting == "earliest" else 6)
    assert query.read(*batch) == query.read(*batch)


def test_where_a_query_begins(overlay: Overlay) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(10))
    fill(b2, range(10, 20))

    def numbers(**options: object) -> list[int]:
        query = Query(stream_of(b1, b2, **options))
        query.drain()
        return query.numbers

    assert numbers(startingOffsets="latest") == []
    assert numbers(startingOffsets='{"b1": 9}') == [8, 9, *range(10, 20)]
    with Direct(b2.address) as direct:
        (state,) = direct.streams()
    wanted = json.dumps({"b1": "latest", state.stream: 10})
    assert numbers(startingOffsets=wanted) == [19]
    middle = datetime.now(UTC)
    fill(b1, range(20, 25))
    assert numbers(startingTimestamp=middle.isoformat()) == list(range(20, 25))
    with pytest.raises(InvalidConfiguration, match=r"names 'b3'.*there are b1, b1#"):
        numbers(startingOffsets='{"b3": 9}')
    with pytest.raises(InvalidConfiguration, match="offset 99 of 'b1' is not there yet"):
        numbers(startingOffsets='{"b1": 99}')


def test_available_now_reads_what_there_is_and_no_more(overlay: Overlay) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(100))
    query = Query(stream_of(b1, b2, maxRowsPerBatch=30))
    query.reader.prepareForTriggerAvailableNow()
    end = query.plan()
    assert end is not None
    query.run(end)
    fill(b1, range(100, 200))
    fill(b2, range(200, 210))
    query.drain()
    assert query.numbers == list(range(100))
    # A run that began while a broker was up does not end before that was read.
    later = Query(stream_of(b1, b2, maxRowsPerBatch=30), query.checkpoint)
    later.reader.prepareForTriggerAvailableNow()
    b2.kill()
    starter = threading.Thread(target=b2.start)
    starter.start()
    later.drain()
    starter.join()
    assert later.numbers == list(range(100, 210))


def test_retention_that_has_passed_the_checkpoint_is_said(overlay: Overlay) -> None:
    broker = overlay.broker("b1", limits=LONG, retention=Retention(bytes=200_000))
    broker.start()
    fill(broker, range(10))
    query = Query(stream_of(broker))
    query.drain()
    low = 1
    for round in itertools.count():
        fill(broker, range(10 + 5_000 * round, 10 + 5_000 * (round + 1)))
        with Direct(broker.address) as direct:
            (state,) = direct.streams()
        low = state.low
        if low > 11:
            break
    with pytest.raises(HistoryGone, match=r"offsets 11\.\.\d+ of broker 'b1'") as e:
        query.plan()
    assert "failOnDataLoss" in str(e.value)
    assert "retention" in str(e.value)
    # A batch that was planned before says the same.
    start, end = query.batches[0]
    with pytest.raises(HistoryGone, match=r"offsets 1\.\.10 of broker 'b1'.*retention has removed"):
        query.read(start, end)
    accepted = Query(stream_of(broker, failOnDataLoss=False), query.checkpoint)
    accepted.drain()
    assert accepted.numbers == list(range(accepted.numbers[0], state.head))
    assert accepted.numbers[0] >= low - 1
    assert accepted.read(start, end) == []


def test_a_journal_that_is_gone_is_said(overlay: Overlay) -> None:
    b1, b2 = brokers_of(overlay, "b1", "b2")
    fill(b1, range(10))
    fill(b2, range(10, 20))
    query = Query(stream_of(b1, b2))
    query.drain()
    planned = query.batches[0]
    b1.kill()
    shutil.rmtree(b1.data)
    b1.start()
    fill(b1, range(20, 25), producer="other")
    with pytest.raises(HistoryGone, match="'b1', read up to offset 10, is gone") as e:
        query.plan()
    assert "Was its data directory replaced" in str(e.value)
    with pytest.raises(HistoryGone, match="no listed broker has this journal any more"):
        query.read(*planned)
    accepted = Query(stream_of(b1, b2, failOnDataLoss=False), query.checkpoint)
    accepted.drain()
    assert accepted.numbers == list(range(20, 25))
    assert [row["n"] for row in accepted.read(*planned)] == list(range(10, 20))


def test_a_journal_that_was_set_back_is_said(overlay: Overlay) -> None:
    (b1,) = brokers_of(overlay, "b1")
    fill(b1, range(10))
    b1.kill()
    shutil.copytree(b1.data, overlay.directory / "copy")
    b1.start()
    fill(b1, range(10, 20))
    query = Query(stream_of(b1))
    query.drain()
    b1.kill()
    shutil.rmtree(b1.data)
    shutil.copytree(overlay.directory / "copy", b1.data)
    b1.start()
    asyncio.run(until(b1.reachable, "the broker answers"))
    with pytest.raises(HistoryGone, match="ends at 10, but was read up to 20"):
        query.plan()
    with pytest.raises(HistoryGone, match=r"offsets 11\.\.20 of broker 'b1'"):
        query.read(*query.batches[0])
    accepted = Query(stream_of(b1, failOnDataLoss=False), query.checkpoint)
    accepted.drain()
    fill(b1, range(30, 35))
    accepted.drain()
    assert accepted.numbers == list(range(30, 35))


def test_a_journal_is_found_where_it_was_taken_over(overlay: Overlay) -> None:
    names = overlay.line(2, limits=LONG)
    b1, b2 = (overlay[name] for name in names)

    async def linked() -> None:
        await overlay.linked()

    asyncio.run(linked())
    fill(b1, range(100))
    fill(b2, range(100, 110))
    query = Query(stream_of(b1, b2, maxRowsPerBatch=40))
    first = query.plan()
    assert first is not None
    query.run(first)
    planned = query.plan()
    assert planned is not None

    async def removed() -> None:
        await b1.ask("drain", timeout=60.0)
        await until(lambda: not b1.running, "b1 ends")

    asyncio.run(removed())
    query.run(planned)  # it was planned to be read at b1
    asyncio.run(until(lambda: len(query.drain()) >= 0 and len(query.rows) == 110, "all is read"))
    assert query.numbers == list(range(110))
    assert {row["_broker"] for row in query.rows} == {"b1", "b2"}


def test_the_reader_takes_spark_at_its_word(overlay: Overlay) -> None:
    (b1,) = brokers_of(overlay, "b1")
    fill(b1, range(100))
    reader = stream_of(b1, maxRowsPerBatch=10)
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    assert list(reader.latestOffset(start, ALL)["streams"].values()) == [101]
    assert list(reader.latestOffset(start, ReadMaxRows(7))["streams"].values()) == [8]
    assert reader.partitions(start, start) == []
    assert stream_of(b1).getDefaultReadLimit() == ALL


def test_a_connection_that_was_closed_is_no_broker_that_is_down(overlay: Overlay) -> None:
    b1 = overlay.broker("b1")  # it hangs up after two seconds of silence
    b1.start()
    fill(b1, range(10))
    query = Query(stream_of(b1))
    query.drain()
    fill(b1, range(10, 20))
    b1.restart()
    asyncio.run(until(b1.reachable, "the broker answers"))
    assert query.plan() is not None  # at the first question, over a new connection
