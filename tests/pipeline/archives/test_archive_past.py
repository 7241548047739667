"""Subscriptions that begin in an archive: past, present and future, each once, in order."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from archive_events import append
from archive_events import at as archive_at
from overlay_processes import BrokerProcess, Overlay
from pyspark.sql.types import ArrayType, StringType, StructType

import stentor
from stentor.client.direct import Direct
from stentor.errors import ArchiveError, InvalidConfiguration, NoReply
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, encode
from stentor.pipeline import past
from stentor.pipeline.archives.moments import micros
from stentor.pipeline.columns import BatchMaker

FAST: Any = {"delays": (0.01, 0.1)}
PATIENCE = 60.0
SCHEMA = (
    StructType()
    .add("n", "long")
    .add("place", StructType().add("x", "long"))
    .add("tags", ArrayType(StringType()))
    .add("_id", "string")
    .add("_type", "string")
    .add("_time", "timestamp")
    .add("_broker", "string")
    .add("_stream", "string")
    .add("_offset", "long")
)


def looped(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def at(n: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n)


def event(producer: str, n: int) -> Notification:
    return Notification(
        {"n": n, "place.x": n % 3, "tags": ("a", "b")},
        type="quote",
        id=NotificationId(producer, 1, n),
        time=at(n),
    )


def publish(broker: BrokerProcess, numbers: Sequence[int], producer: str | None = None) -> None:
    name = producer or f"p-{broker.name}"
    with Direct(broker.address, name=name) as direct:
        direct.publish([encode(event(name, n)) for n in numbers])


def archive_journal(
    path: Path,
    broker: BrokerProcess,
    *,
    writer: str = "w",
    until: int | None = None,
    only: str = "",
) -> None:
    """What a query does that archives a journal, up to some offset."""
    with Direct(broker.address) as direct:
        (journal,) = direct.streams()
        end = journal.head if until is None else until
        maker = BatchMaker(SCHEMA)
        batches = [
            maker.batch(found.items, found.offsets, stream=journal.stream, broker=broker.name)
            for found in direct.read(journal.stream, journal.low, end, only)
        ]
    found = archive_at(path)
    rows = pa.Table.from_batches(batches, maker.layout.arrow).combine_chunks().to_pylist()
    for row in rows:
        row["_time"] = micros(row["_time"])
    append(found, rows, schema=SCHEMA, writer=writer, next={journal.stream: end + 1})


async def take(sub: Any, count: int) -> list[Notification]:
    return [await sub.get(timeout=PATIENCE) for _ in range(count)]


def keys(found: Sequence[Notification]) -> list[tuple[str, int]]:
    return [(n.id.producer, n["n"]) for n in found if n.id is not None]


@pytest.mark.spec("R-07.60", "R-07.61", "R-07.86")
@looped
async def test_archive_then_journal_then_live(overlay: Overlay, tmp_path: Path) -> None:
    names = overlay.line(2)
    await overlay.linked()
    one, two = (overlay[name] for name in names)
    path = tmp_path / "archive"
    publish(one, range(300))
    publish(two, range(200))
    archive_journal(path, one, until=250)
    archive_journal(path, two)
    publish(two, range(200, 220))
    async with stentor.connect(one.address, **FAST) as bus, stentor.connect(two.address) as other:
        async with bus.subscribe("place.x != 1", since=past(path), window=7) as sub:
            found = await take(sub, 100)  # still in the archive
            await other.publish({"n": 999, "place.x": 0})
            wanted = [n for n in range(300) if n % 3 != 1]
            expected = Counter(
                [(f"p-{one.name}", n) for n in wanted]
                + [(f"p-{two.name}", n) for n in wanted if n < 220]
            )
            found += await take(sub, expected.total() - 100)
            last = await sub.get(timeout=PATIENCE)
            assert Counter(keys(found)) == expected
            assert last["n"] == 999
            with pytest.raises(NoReply):
                await sub.get(timeout=0.2)
            assert sub.lost == 0
    for name in names:  # in the order of publication
        of_one = [n for producer, n in keys(found) if producer == f"p-{name}"]
        assert of_one == sorted(of_one)
    # They are what was published, wherever they came from.
    for notification in found:
        assert notification.id is not None
        original = event(notification.id.producer, notification["n"])
        assert encode(notification) == encode(original)


@looped
async def test_a_broker_that_restarts_while_the_past_is_read(
    overlay: Overlay, tmp_path: Path
) -> None:
    (name,) = overlay.line(1)
    broker = overlay[name]
    path = tmp_path / "archive"
    publish(broker, range(100))
    archive_journal(path, broker, until=60)
    async with stentor.connect(broker.address, **FAST) as bus:
        async with bus.subscribe(since=past(path, at(10))) as sub:
            found = await take(sub, 20)
            broker.kill()
            broker.start()
            found += await take(sub, 70)
            assert [n["n"] for n in found] == list(range(10, 100))
            publish(broker, [100])
            assert (await sub.get(timeout=PATIENCE))["n"] == 100


@looped
async def test_of_several_writers_the_slowest_counts(overlay: Overlay, tmp_path: Path) -> None:
    (name,) = overlay.line(1)
    broker = overlay[name]
    path = tmp_path / "archive"
    publish(broker, range(50))
    archive_journal(path, broker, writer="even", until=20, only="place.x = 0")
    archive_journal(path, broker, writer="rest", until=40, only="place.x != 0")
    async with stentor.connect(broker.address) as bus:
        async with bus.subscribe(since=past(path)) as sub:
            found = await take(sub, 50)
            assert [n["n"] for n in found] == list(range(50))


@looped
async def test_a_second_attempt_of_a_publisher_is_a_repeat(
    overlay: Overlay, tmp_path: Path
) -> None:
    """Archived from one journal, and in another one, too."""
    names = overlay.line(2)
    await overlay.linked()
    one, two = (overlay[name] for name in names)
    publish(one, range(10), producer="p")
    archive_journal(tmp_path / "archive", one)
    publish(two, range(5, 12), producer="p")
    async with stentor.connect(two.address) as bus:
        async with bus.subscribe(since=past(tmp_path / "archive")) as sub:
            assert [n["n"] for n in await take(sub, 12)] == list(range(12))
            with pytest.raises(NoReply):
                await sub.get(timeout=0.2)


def test_what_does_not_go_with_an_archive_is_said(overlay: Overlay, tmp_path: Path) -> None:
    begun = past(tmp_path)

    async def main() -> None:
        (name,) = overlay.line(1)
        async with stentor.connect(overlay[name].address) as bus:
            for options, text in (
                ({"durable": "desk"}, "neither durable nor group"),
                ({"group": "desk"}, "neither durable nor group"),
                ({"retained": True}, "retained=True makes no sense"),
                ({"overflow": "drop_oldest"}, "use overflow='spill'"),
            ):
                with pytest.raises(InvalidConfiguration, match=text):
                    bus.subscribe(since=begun, **options)
            with pytest.raises(ArchiveError, match="no archive"):
                await bus.subscribe(since=begun)
            async with bus.subscribe() as sub:  # the bus goes on
                await bus.publish({"n": 1})
                assert (await sub.get(timeout=PATIENCE))["n"] == 1

    asyncio.run(main())


def test_an_archive_must_know_its_place(tmp_path: Path) -> None:
    """One of batches that say no more than the broker's name is in no journal."""
    schema = StructType().add("n", "long").add("_broker", "string").add("_offset", "long")
    rows = [{"n": n, "_broker": "b1", "_offset": n} for n in (1, 2)]
    append(archive_at(tmp_path), rows, schema=schema, writer=None)
    with pytest.raises(ArchiveError, match="journals of the broker 'b1'; archive a stream"):
        past(tmp_path).recall(Filter(""))


@dataclass
class Told:
    """A past that is told step by step."""

    steps: list[list[Notification] | Exception]
    filter: Filter = field(default_factory=lambda: Filter(""))
    positions: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    def recall(self, filter: Filter) -> "Told":
        self.filter = filter
        return self

    def portions(self) -> Iterator[list[Notification]]:
        try:
            for step in self.steps:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.closed = True


@looped
async def test_an_archive_that_fails_is_not_passed_over(overlay: Overlay) -> None:
    (name,) = overlay.line(1)
    publish(overlay[name], [7])
    told = Told([[event("q", 1)], ArchiveError("a file is damaged")])
    async with stentor.connect(overlay[name].address) as bus:
        async with bus.subscribe(since=told) as sub:
            assert (await sub.get())["n"] == 1
            for _ in range(2):
                with pytest.raises(ArchiveError, match="damaged"):
                    await sub.get(timeout=PATIENCE)
        assert told.closed


@looped
async def test_who_leaves_in_the_middle_closes_the_archive(overlay: Overlay) -> None:
    (name,) = overlay.line(1)
    told = Told([[event("q", n)] for n in range(3)])
    async with stentor.connect(overlay[name].address) as bus:
        async with bus.subscribe("n >= 0", since=told) as sub:
            assert (await sub.get())["n"] == 0
        assert told.closed
        assert told.filter == Filter("n >= 0")


#: First on the path of a process, it hides Spark.
WITHOUT_SPARK = Path(__file__).parents[2] / "processes" / "without_spark"


def without_spark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, where no Spark is installed."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ | {"PYTHONPATH": str(WITHOUT_SPARK)},
    )


def test_the_command_prints_archive_and_journal(overlay: Overlay, tmp_path: Path) -> None:
    (name,) = overlay.line(1)
    broker = overlay[name]
    path = tmp_path / "archive"
    publish(broker, range(20))
    archive_journal(path, broker, until=15)
    command = ["-m", "stentor", "subscribe", broker.address, "place.x = 0"]
    command += ["--archive", str(path), "--since", "2026-01-01T00:03:00Z", "--count", "6"]
    done = without_spark(*command)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["n"] for line in done.stdout.splitlines()] == [3, 6, 9, 12, 15, 18]
    command[command.index(str(path))] = str(tmp_path / "none")
    done = without_spark(*command)
    assert done.returncode != 0
    assert "there is no archive at" in done.stderr


PROGRAM = """
import asyncio, sys
import stentor
from stentor.pipeline import compact, past, replay

async def first(address, path):
    async with stentor.connect(address) as bus:
        async with bus.subscribe("n >= 0", since=past(path)) as quotes:
            return [(await quotes.get(timeout=60))["n"] for _ in range(20)]

address, path = sys.argv[1:]
assert asyncio.run(first(address, path)) == list(range(20))
assert compact(None, path).version
assert replay(None, path, address, speed=None, filter="n < 3") == 3
assert "pyspark" not in sys.modules
print("done")
"""


def test_a_program_needs_no_spark(overlay: Overlay, tmp_path: Path) -> None:
    (name,) = overlay.line(1)
    publish(overlay[name], range(20))
    archive_journal(tmp_path / "archive", overlay[name], until=15)
    done = without_spark("-c", PROGRAM, overlay[name].address, str(tmp_path / "archive"))
    assert (done.stdout, done.stderr) == ("done\n", "")
    for hidden in ("pyspark", "py4j"):
        assert f"No module named '{hidden}'" in without_spark("-c", f"import {hidden}").stderr
