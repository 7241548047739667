"""A partition is published once, however it is tried: again, in another order, twice at once."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from overlay_processes import LIMITS, BrokerProcess, Overlay, until
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from stentor.broker.settings import Grant, Retention
from stentor.client.direct import Direct, broker_for
from stentor.errors import InvalidNotification, PipelineError, Unreachable, UnsupportedColumn
from stentor.model import Notification, NotificationId, decode, encode
from stentor.model.notification import MAX_VALUE_BYTES
from stentor.pipeline.sink import partitions
from stentor.pipeline.sink.partitions import publish_rows, verify_rows
from stentor.pipeline.sink.tasks import Task
from stentor.pipeline.source.options import Connecting

SCHEMA = StructType().add("n", "long").add("twin", "long")
TIMED = StructType().add("n", "long").add("_time", "timestamp")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG = replace(LIMITS, timeout=30.0)


class Fault(Exception):
    """What goes wrong with a task."""


def rows(count: int) -> list[dict[str, Any]]:
    """Some of them equal."""
    return [{"n": n if n % 3 else 0, "twin": n // 100} for n in range(count)]


def batches(
    rows: list[dict[str, Any]], schema: StructType = SCHEMA, size: int = 40, fails: bool = False
) -> Iterator[pa.RecordBatch]:
    arrow = to_arrow_schema(schema, timezone="UTC")
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[at : at + size], arrow)
    if fails:
        raise Fault


def journal(broker: BrokerProcess) -> list[dict[str, Any]]:
    with Direct(broker.address) as direct:
        (state,) = direct.streams()
        found = []
        for stretch in direct.read(state.stream, 1, state.head):
            found += [decode(item) for item in stretch.items]
    return [dict(n) | ({"_time": n.time} if "twin" not in n else {}) for n in found]


def in_any_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def started(overlay: Overlay, **settings: Any) -> tuple[BrokerProcess, Connecting]:
    broker = overlay.broker("b1", limits=LONG, **settings)
    broker.start()
    return broker, Connecting((broker.address,), patience=60.0)


@pytest.fixture
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of more than a few rows do not fit into one."""
    monkeypatch.setattr(partitions, "TRANSACTION_ROWS", 60)
    monkeypatch.setattr(partitions, "CHUNK_ROWS", 25)


def test_a_partition_that_is_published_again_is_there_once(overlay: Overlay) -> None:
    broker, options = started(overlay)
    task = Task("query", 0, 3)
    wanted = rows(500)
    for fails in (True, False, False):
        if fails:
            with pytest.raises(Fault):
                publish_rows(batches(wanted[:400], fails=True), SCHEMA, task, options)
            assert journal(broker) == []  # all or nothing
        else:
            again = random.Random(1).sample(wanted, len(wanted))
            assert publish_rows(batches(again), SCHEMA, task, options) == 500
    assert in_any_order(journal(broker)) == in_any_order(wanted)
    # The same rows in the next batch, partition or query are other events.
    for other in (Task("query", 1, 3), Task("query", 0, 4), Task("other", 0, 3)):
        publish_rows(batches(wanted), SCHEMA, other, options)
    assert len(journal(broker)) == 2000
    publish_rows(batches(wanted), SCHEMA, task, options)  # a straggler of a batch that is over
    assert len(journal(broker)) == 2000


def test_delay_expiry_and_priority_are_kept(overlay: Overlay) -> None:
    broker, options = started(overlay)
    schema = StructType().add("n", "long").add("_priority", "integer")
    schema = schema.add("_deliver_at", "timestamp").add("_expires", "timestamp")
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    late = soon + timedelta(days=1)
    wanted = [
        {"n": 0, "_priority": 9, "_deliver_at": None, "_expires": None},
        {"n": 1, "_priority": None, "_deliver_at": soon, "_expires": late},
        {"n": 2, "_priority": None, "_deliver_at": None, "_expires": late},
    ]
    task = Task("query", 0, 3)
    for _ in range(2):  # the second time nothing of it is published
        assert publish_rows(batches(wanted, schema), schema, task, options) == 3

    def found() -> list[Notification]:
        with Direct(broker.address) as direct:
            (state,) = direct.streams()
            stretches = direct.read(state.stream, 1, state.head)
            return [decode(item) for stretch in stretches for item in stretch.items]

    asyncio.run(until(lambda: len(found()) == 3, "what was delayed is in the journal"))
    by_number = sorted(found(), key=lambda n: n["n"])
    assert [(n.priority, n.deliver_at, n.expires) for n in by_number] == [
        (9, None, None),
        (4, soon, late),
        (4, None, late),
    ]


def test_rows_that_wait_need_a_partition_of_one_transaction(
    overlay: Overlay, small_transactions: None
) -> None:
    """What is not yet in the journal could not be read back."""
    _, options = started(overlay)
    schema = StructType().add("n", "long").add("_deliver_at", "timestamp")
    late = datetime.now(UTC) + timedelta(days=1)
    wanted = [{"n": n, "_deliver_at": late} for n in range(100)]
    with pytest.raises(PipelineError, match=r"rows with `_deliver_at`.*smaller partitions"):
        publish_rows(batches(wanted, schema), schema, Task("query", 0, 3), options)
    assert publish_rows(batches(wanted[:50], schema), schema, Task("q", 0, 0), options) == 50


def test_rows_that_cannot_be_published_go_to_dead_letters_once(
    overlay: Overlay, small_transactions: None, tmp_path: Path
) -> None:
    broker, options = started(overlay)
    schema = StructType().add("n", "long").add("twin", "long").add("text", "string")
    wanted = [{"n": n, "twin": n, "text": "x"} for n in range(200)]
    wrong = [row | {"text": "x" * (MAX_VALUE_BYTES + 1)} for row in wanted if row["n"] % 90 == 7]
    given = [row for row in wanted if row["n"] % 90 != 7] + wrong
    folder = tmp_path / "refused"
    for seed in range(3):
        again = random.Random(seed).sample(given, len(given))
        task = Task("query", 4, 2)
        assert publish_rows(batches(again, schema), schema, task, options, str(folder)) == 197
    assert in_any_order(journal(broker)) == in_any_order(given[:197])
    assert [file.name for file in folder.iterdir()] == ["query-4-2.parquet"]
    dead = pq.read_table(folder)
    assert in_any_order(dead.select(["n", "twin", "text"]).to_pylist()) == in_any_order(wrong)
    assert set(dead.column("_batch").to_pylist()) == {4}
    assert all("bytes; at most" in error for error in dead.column("_error").to_pylist())
    with pytest.raises(InvalidNotification, match=r"row .* of partition 2 in batch 5"):
        publish_rows(batches(given, schema), schema, Task("query", 5, 2), options)
    # Nothing but such rows: nothing is published, and all of them are there.
    assert publish_rows(batches(wrong, schema), schema, Task("q", 0, 0), options, str(folder)) == 0
    assert pq.read_table(folder).num_rows == 6


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_large_partition_that_is_broken_off_is_completed_in_any_order(
    overlay: Overlay, small_transactions: None, seed: int, compared: bool
) -> None:
    broker, options = started(overlay)
    draw = random.Random(seed)
    wanted = rows(400)
    task = Task("query", seed, 0, compared)
    for _ in range(3):
        attempt = draw.sample(wanted, len(wanted))[: draw.randrange(30, 350)]
        with pytest.raises(Fault):
            publish_rows(batches(attempt, fails=True), SCHEMA, task, options)
    there = len(journal(broker))
    assert 0 < there < 400
    for _ in range(2):
        attempt = draw.sample(wanted, len(wanted))
        assert publish_rows(batches(attempt), SCHEMA, task, options) == 400
        assert in_any_order(journal(broker)) == in_any_order(wanted)


def test_rows_are_compared_by_their_key_if_there_is_one(overlay: Overlay) -> None:
    broker, options = started(overlay)
    task = Task("query", 0, 0, True, ("n",))
    first = [{"n": n, "twin": 0} for n in range(10)]
    publish_rows(batches(first), SCHEMA, task, options)
    other = [{"n": n, "twin": 7} for n in range(12)]
    assert verify_rows(batches(other), SCHEMA, task, options) == 12
    publish_rows(batches(other[::-1]), SCHEMA, task, options)
    assert in_any_order(journal(broker)) == in_any_order(first + other[10:])
    for fewer in (other[:9], [{"n": 99, "twin": 0}]):
        with pytest.raises(PipelineError, match=r"did not come again.*txnKey"):
            verify_rows(batches(fewer), SCHEMA, task, options)
    assert len(journal(broker)) == 12
    # Without a key, equal rows in the same number are needed.
    whole = task._replace(epoch=1, key=())
    twice = [{"n": 1, "twin": 1}] * 2
    publish_rows(batches(twice), SCHEMA, whole, options)
    with pytest.raises(PipelineError, match="did not come again"):
        verify_rows(batches(twice[:1]), SCHEMA, whole, options)
    publish_rows(batches(twice * 2), SCHEMA, whole, options)
    assert len(journal(broker)) == 16


def test_rows_are_told_apart_by_their_own_time(overlay: Overlay, small_transactions: None) -> None:
    broker, options = started(overlay)
    wanted = [{"n": n % 5, "_time": NOON + timedelta(seconds=n)} for n in range(200)]
    task = Task("query", 0, 0)
    with pytest.raises(Fault):
        publish_rows(batches(wanted[:120], TIMED, fails=True), TIMED, task, options)
    publish_rows(batches(wanted[::-1], TIMED), TIMED, task, options)
    assert in_any_order(journal(broker)) == in_any_order(wanted)


def test_a_query_that_gives_other_rows_each_time_is_told_so(
    overlay: Overlay, small_transactions: None
) -> None:
    _, options = started(overlay)
    task = Task("query", 0, 0)
    with pytest.raises(Fault):
        publish_rows(batches(rows(300), fails=True), SCHEMA, task, options)
    others = [{"n": 1000 + n, "twin": 0} for n in range(300)]
    with pytest.raises(PipelineError, match="gives other rows each time"):
        publish_rows(batches(others), SCHEMA, task, options)


def test_rows_that_are_added_or_missing_are_noticed(overlay: Overlay) -> None:
    """Such as by a table beside the stream that has changed before the batch was run again."""
    broker, options = started(overlay)
    task = Task("query", 4, 0)
    publish_rows(batches(rows(10)), SCHEMA, task, options)
    more = [{"n": 77, "twin": 7}, *rows(10)]
    for _ in range(2):
        publish_rows(batches(more), SCHEMA, task, options)
        assert in_any_order(journal(broker)) == in_any_order(more)
    for fewer in (rows(9), []):
        with pytest.raises(PipelineError, match="did not come again"):
            publish_rows(batches(fewer), SCHEMA, task, options)
    assert len(journal(broker)) == 11


def test_an_attempt_that_retention_has_removed_is_told(
    overlay: Overlay, small_transactions: None
) -> None:
    broker, options = started(overlay, retention=Retention(bytes=4_000))
    task = Task("query", 0, 0)
    with pytest.raises(Fault):
        publish_rows(batches(rows(300), fails=True), SCHEMA, task, options)

    def passed() -> bool:
        with Direct(broker.address, name="other") as direct:
            epoch = time.time_ns() // 1_000_000
            items = [
                encode(Notification({"x": "y" * 500}, id=NotificationId("other", epoch, n)))
                for n in range(200)
            ]
            direct.publish(items)
            (state,) = direct.streams()
            return state.low > 300

    asyncio.run(until(passed, "retention has removed the rows"))
    with pytest.raises(PipelineError, match="are gone from the journal"):
        publish_rows(batches(rows(300)), SCHEMA, task, options)


def test_an_attempt_that_was_given_up_is_shut_out_by_the_next(
    overlay: Overlay, small_transactions: None
) -> None:
    broker, options = started(overlay)
    task = Task("query", 0, 0)
    wanted = rows(400)
    halfway, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def slowly() -> Iterator[pa.RecordBatch]:
        for count, batch in enumerate(batches(wanted)):
            if count == 5:
                halfway.set()
                go_on.wait(60)
            yield batch

    def zombie() -> None:
        try:
            publish_rows(slowly(), SCHEMA, task, options)
        except PipelineError as error:
            errors.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert halfway.wait(60)
    publish_rows(batches(wanted[::-1]), SCHEMA, task, options)
    go_on.set()
    thread.join(60)
    assert in_any_order(journal(broker)) == in_any_order(wanted)
    assert "another attempt of the same task" in str(errors[0])
    assert "spark.speculation" in str(errors[0])


def test_a_broker_that_dies_is_waited_for(overlay: Overlay, small_transactions: None) -> None:
    broker, options = started(overlay)
    wanted = rows(2_000)

    def deadly() -> Iterator[pa.RecordBatch]:
        for count, batch in enumerate(batches(wanted)):
            if count in (1, 20, 40):
                broker.kill()
                threading.Thread(target=broker.start).start()
            yield batch

    assert publish_rows(deadly(), SCHEMA, Task("query", 0, 0), options) == 2_000
    assert in_any_order(journal(broker)) == in_any_order(wanted)
    broker.kill()
    impatient = replace(options, patience=0.2)
    with pytest.raises(Unreachable):
        publish_rows(batches(wanted), SCHEMA, Task("query", 1, 0), impatient)


def test_errors_name_the_row_and_the_column(overlay: Overlay, small_transactions: None) -> None:
    _, options = started(overlay)
    wanted: list[dict[str, Any]] = rows(50)
    wanted[33] = {}
    with pytest.raises(InvalidNotification, match=r"row 33 of partition 2 in batch 7.*filter such"):
        publish_rows(batches(wanted), SCHEMA, Task("query", 7, 2), options)
    columns = StructType().add("n", "long").add("_type", "string")
    typed = [{"n": n, "_type": "good" if n < 70 else "bad..type"} for n in range(90)]
    with pytest.raises(InvalidNotification, match=r"row 70 of partition 2 in batch 8.*_type"):
        publish_rows(batches(typed, columns), columns, Task("query", 8, 2), options)
    with pytest.raises(UnsupportedColumn, match="cast it"):
        publish_rows(iter(()), StructType().add("d", "date"), Task("query", 9, 2), options)


def test_who_may_publish_only(overlay: Overlay, small_transactions: None) -> None:
    grants = (Grant("sink", token="s", publish=("",), subscribe=()),)
    broker, options = started(overlay, grants=grants)
    options = replace(options, token="s")
    assert publish_rows(batches(rows(50)), SCHEMA, Task("query", 0, 0), options) == 50
    with pytest.raises(PipelineError, match=r"has to be read back.*smaller partitions"):
        publish_rows(batches(rows(500)), SCHEMA, Task("query", 1, 0), options)
    assert broker.running


def test_an_empty_partition_publishes_nothing(overlay: Overlay) -> None:
    broker, options = started(overlay)
    assert publish_rows(iter(()), SCHEMA, Task("query", 0, 0), options) == 0
    assert journal(broker) == []


def test_producers_are_spread_over_the_brokers() -> None:
    brokers = [f"b{i}:7411" for i in range(4)]
    chosen = [broker_for(Task("query", 0, p).producer, brokers) for p in range(200)]
    assert all(chosen.count(broker) > 20 for broker in brokers)
