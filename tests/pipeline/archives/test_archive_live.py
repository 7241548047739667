"""Past, present and future through one query: from the archive into the journals, and on."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from archive_events import DAWN, SCHEMA, append, at, event
from overlay_processes import LIMITS, BrokerProcess, Overlay
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from stentor.client.direct import Direct
from stentor.errors import HistoryGone
from stentor.model import Notification, NotificationId, encode
from stentor.pipeline import events, register
from stentor.pipeline.archives import archive, compact, history
from stentor.pipeline.archives.continuation import ArchivePart, HistoryReader
from stentor.pipeline.archives.data_files import ONE_DAY as DAY
from stentor.pipeline.archives.moments import Between

LONG = replace(LIMITS, timeout=60.0)
NOW = {"availableNow": True}


def publish(broker: BrokerProcess, numbers: Sequence[int]) -> None:
    """Events with these numbers, as a producer of each broker counts them."""
    with Direct(broker.address, name=f"p-{broker.name}") as direct:
        direct.publish(
            [
                encode(
                    Notification(
                        {"n": n, "even": n % 2 == 0},
                        type="quote",
                        id=NotificationId(f"p-{broker.name}", 1, n),
                        time=_at(n),
                    )
                )
                for n in numbers
            ]
        )


def _at(n: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n)


def addresses(*brokers: BrokerProcess) -> str:
    return ",".join(broker.address for broker in brokers)


def archived(
    spark: SparkSession, path: Path, brokers: str, columns: str, name: str, filter: str
) -> None:
    found = events(spark, brokers=brokers, filter=filter, columns=columns, stream=True)
    query = archive(found.table(), path, query_name=name, trigger=NOW)
    try:
        query.awaitTermination()
    finally:
        query.stop()


def by_broker(positions: dict[str, int]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, offset in positions.items():
        found.setdefault(name.partition("#")[0], set()).add(offset)
    return found


class Reader:
    """Reads a stream to its present end, again and again from one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[list[tuple[str, int]]] = []

    def read(self, events: DataFrame) -> list[tuple[str, int]]:
        found: list[list[tuple[str, int]]] = []

        def collect(batch: DataFrame, number: int) -> None:
            found.append([(row._broker, row.n) for row in batch.select("_broker", "n").collect()])

        query = (
            events.writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        self.batches = [batch for batch in found if batch]
        return sorted(row for batch in found for row in batch)


@pytest.mark.spec("R-07.60", "R-07.61", "R-07.86")
def test_no_gap_and_no_duplicate(spark: SparkSession, overlay: Overlay, tmp_path: Path) -> None:
    register(spark)
    b1, b2, b3 = (overlay.broker(name, limits=LONG) for name in ("b1", "b2", "b3"))
    for broker in (b1, b2, b3):
        broker.start()
    both = addresses(b1, b2)
    path = tmp_path / "archive"
    columns = "n long, even boolean"
    publish(b1, range(40))
    publish(b2, range(30))
    archived(spark, path, both, columns, "large", "n >= 4 and n != 41")
    publish(b1, range(40, 50))
    # Another query is further on, and has the rest.
    archived(spark, path, both, columns, "small", "n = 41 or n < 4")
    publish(b1, range(50, 55))
    state = at(path).table()
    # By the journals' ids, and by broker, which is all that the rows say.
    assert by_broker(state.positions()) == {"b1": {41}, "b2": {31}}
    assert by_broker(state.progress["small"].next) == {"b1": {51}, "b2": {31}}
    assert len(state.positions()) == 4

    def events(filter: str = "even = true", brokers: str = both, **times: Any) -> DataFrame:
        return history(
            spark,
            path,
            filter,
            **times,
            brokers=brokers,
            live=True,
            options={"maxRowsPerBatch": "16"},
        )

    reader = Reader(tmp_path / "checkpoint")
    assert reader.read(events()) == [
        *(("b1", n) for n in range(0, 55, 2)),
        *(("b2", n) for n in range(0, 30, 2)),
    ]
    live = {("b1", n) for n in range(40, 55)}
    phases = [bool(live & set(batch)) for batch in reader.batches]
    assert phases == sorted(phases)  # what was comes before what is
    assert len(phases) > 2
    # The archive grows and is compacted; the query goes on where it was, in the journals.
    archived(spark, path, both, columns, "large", "n >= 4 and n != 41")
    compact(spark, path)
    publish(b2, range(30, 35))
    publish(b3, range(5))
    every = addresses(b1, b2, b3)
    assert reader.read(events(brokers=every)) == [
        *(("b2", n) for n in range(30, 35, 2)),
        *(("b3", n) for n in range(0, 5, 2)),
    ]
    # A new query finds more in the archive, and the same in all; times hold in both parts.
    found = Reader(tmp_path / "times").read(events("", every, since=_at(38), until=_at(52)))
    assert found == [("b1", n) for n in range(38, 52)]


@pytest.mark.slow
def test_a_restart_in_the_middle_of_the_archive(
    spark: SparkSession, overlay: Overlay, tmp_path: Path
) -> None:
    """The version of the archive is in the checkpoint, so the files are the same ones."""
    register(spark)
    broker = overlay.broker("b1", limits=LONG)
    broker.start()
    path = tmp_path / "archive"
    columns = "n long, even boolean, _stream string"
    for start in range(0, 40, 10):
        publish(broker, range(start, start + 10))
        archived(spark, path, broker.address, columns, "q", "")
    publish(broker, range(40, 45))
    (stream,) = at(path).table().positions()
    assert stream.startswith("b1#")

    def events() -> DataFrame:
        options = {"maxRowsPerBatch": "10"}
        return history(spark, path, brokers=broker.address, live=True, options=options)

    seen: list[int] = []

    def failing(batch: DataFrame, number: int) -> None:
        if number == 2:
            raise RuntimeError("in the middle")
        seen.extend(row.n for row in batch.collect())

    options = {"checkpointLocation": str(tmp_path / "checkpoint")}
    query = events().writeStream.foreachBatch(failing).options(**options).start()
    with pytest.raises(Exception, match="in the middle"):
        query.awaitTermination()
    archived(spark, path, broker.address, columns, "q", "")
    compact(spark, path)
    reader = Reader(tmp_path / "checkpoint")
    rest = reader.read(events())
    assert sorted(seen + [n for _, n in rest]) == list(range(45))
    assert 0 < len(seen) < 40


def files_between(reader: HistoryReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The first offsets of the files that a batch reads."""
    parts = reader.partitions(start, end)
    return [
        file.offsets[0]
        for part in parts
        if isinstance(part, ArchivePart)
        for file in part.part.files
    ]


def test_a_filter_that_moves_on_leaves_out_nothing_after_a_restart(tmp_path: Path) -> None:
    """As `since="2 hours"` does, which means another time whenever the query is started."""
    found = at(tmp_path)
    for n in range(10):
        append(found, [event(n, n * DAY)])
    version = found.table().version

    def reader(since: int, version: int = version) -> HistoryReader:
        options = {
            "historyPath": str(tmp_path),
            "historyVersion": str(version),
            "filter": str(Between(DAWN + since * DAY).filter),
            "brokers": "127.0.0.1:1",
        }
        return HistoryReader(SCHEMA, options)

    first = reader(0)
    start, middle = first.initialOffset(), first.latestOffset(first.initialOffset(), ReadMaxRows(4))
    assert files_between(first, start, middle) == [0, 1, 2, 3]
    for since in (3, 6, 9, 11):
        again = reader(since)
        end = again.latestOffset(middle, ReadMaxRows(100))
        assert files_between(again, middle, end) == list(range(max(4, since), 10))
        assert end["next"] == 10
    # Files that do not matter are passed over at once, and a batch has as many rows as it may have.
    assert reader(6).latestOffset(middle, ReadMaxRows(2))["next"] == 8
    # Of the first batch, Spark asks for the beginning again; the archive has grown meanwhile.
    append(found, [event(10, -DAY)])
    grown = reader(0, version + 1)
    assert files_between(grown, grown.initialOffset(), middle) == [0, 1, 2, 3]


def test_a_query_that_is_no_more_is_named_when_it_keeps_others_back(tmp_path: Path) -> None:
    found = at(tmp_path)
    for writer, end in (("old", 5), ("new", 9)):
        append(found, writer=writer, next={"b1#1": end})
    options = {"historyPath": str(tmp_path), "historyVersion": "2", "brokers": "127.0.0.1:1"}
    reader = HistoryReader(SCHEMA, options)

    class Gone:
        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            raise HistoryGone("offsets 5..7 are lost")

    reader._reader = Gone()
    where = {"live": {"streams": {"b1#1": 5}, "since": 0.0}, "positions": {"b1#1": 5}}
    with pytest.raises(HistoryGone, match=r"5..7 are lost.*query 'old'.*retire=\['old'\]"):
        reader.latestOffset(where, ReadMaxRows(1))
    # Further on it is nobody's fault.
    where["live"] = {"streams": {"b1#1": 6}, "since": 0.0}
    with pytest.raises(HistoryGone, match=r"^offsets 5..7 are lost$"):
        reader.latestOffset(where, ReadMaxRows(1))
