"""Replay: in order, at a chosen speed, and nothing twice after an interruption."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_events import DAWN, SCHEMA, append, at, event
from nursery import Nursery
from overlay_processes import LIMITS, BrokerProcess, Overlay, until
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType

from stentor.client.direct import Direct
from stentor.errors import ArchiveError, InvalidConfiguration, Unreachable
from stentor.filters import Filter
from stentor.model import Notification, decode
from stentor.pipeline.archives import replay, replayer
from stentor.pipeline.archives.compaction import compact
from stentor.pipeline.archives.moments import Between
from stentor.pipeline.archives.replayer import TICK, Pacer, Progressed, Reached, new_note, outlook
from stentor.pipeline.archives.tables import NEVER

LONG = replace(LIMITS, timeout=60.0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[BrokerProcess]:
    with Overlay(tmp_path_factory.mktemp("brokers"), nursery) as overlay:
        found = overlay.broker("b1", limits=LONG)
        found.start()
        asyncio.run(until(found.reachable, "the broker answers"))  # a replay does not wait
        yield found


class Journal:
    """What a broker has got since this was made."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._address = broker.address
        with Direct(self._address) as direct:
            (state,) = direct.streams()
        self._stream, self._from = state.stream, state.head + 1

    def events(self) -> list[Notification]:
        with Direct(self._address) as direct:
            (state,) = direct.streams()
            stretches = direct.read(self._stream, self._from, state.head)
            return [decode(item) for stretch in stretches for item in stretch.items]


def prices(events: list[Notification]) -> list[float]:
    return [each["price"] for each in events]


def archive_of(path: Path, *batches: list[dict[str, Any]], schema: StructType = SCHEMA) -> Path:
    archive = at(path)
    for batch in batches:
        append(archive, batch, schema=schema)
    return path


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def pacer(self, speed: float | None) -> Pacer:
        return Pacer(speed, clock=self, sleep=self.sleep)


@pytest.mark.spec("01/T-9", "R-07.60")
def test_events_are_published_again_in_order(broker: BrokerProcess, tmp_path: Path) -> None:
    """Several journals and types; one clock was set back on the way."""
    one = [event(n, n * 10, symbol="b1", _type="quote" if n % 2 else "t") for n in range(1, 40)]
    back = [n * 10 + 5 - (120 if n > 20 else 0) for n in range(1, 40)]
    two = [event(n, t, symbol="b2", broker="b2") for n, t in enumerate(back, 1)]
    path = archive_of(tmp_path, one[:20] + two[:20], one[20:], two[20:])
    journal = Journal(broker)
    assert replay(None, path, broker.address, speed=None) == 78
    found = journal.events()
    assert [i.id.sequence for i in found if i.id] == list(range(78))
    assert len({(i.id.producer, i.id.epoch) for i in found if i.id}) == 1
    assert all(each.time and each.time > datetime.now(UTC) - timedelta(hours=1) for each in found)
    # The contents are the old ones, each journal is in its own order, and time goes forward.
    old = {(e["symbol"], e["price"]): e for e in one + two}
    latest = {"b1": 0, "b2": 0}
    turns = []
    for each in found:
        was = old[each["symbol"], each["price"]]
        assert dict(each) == {"symbol": was["symbol"], "price": was["price"]}
        assert each.type == was["_type"]
        latest[each["symbol"]] = max(latest[each["symbol"]], was["_time"])
        turns.append(latest[each["symbol"]])
    assert turns == sorted(turns)
    for name in ("b1", "b2"):
        assert prices([e for e in found if e["symbol"] == name]) == list(range(1, 40))


def test_filters_times_and_contents(broker: BrokerProcess, tmp_path: Path) -> None:
    schema = (
        StructType()
        .add("at", StructType().add("x", LongType()))
        .add("tags", ArrayType(StringType()))
        .add("_subject", StringType())
        .add("_payload", BinaryType())
        .add("_corrupt", StringType())
    )
    for field in SCHEMA.fields:
        schema = schema.add(field)
    events = [
        event(
            n,
            n * 1_000_000,
            at={"x": n},
            tags=["a", "b"],
            _subject=f"s/{n}",
            _payload=bytes([n]),
            _corrupt='{"y": "?"}' if n == 5 else None,
        )
        for n in range(10)
    ]
    empty = dict.fromkeys(schema.fieldNames()) | {"_time": DAWN + 5_500_000, "_offset": 11}
    path = archive_of(tmp_path, events, [empty], schema=schema)
    journal = Journal(broker)
    since = datetime.fromtimestamp(DAWN / 1e6 + 4, UTC)
    seen: list[Progressed] = []
    count = replay(
        None,
        path,
        f"127.0.0.1:1, {broker.address}",
        filter="at.x != 6 and _producer = 'p-b1' and isa quote",
        since=since,
        until=(since + timedelta(seconds=4)).isoformat(),
        speed=None,
        keep_time=True,
        progress=seen.append,
    )
    assert count == 3
    found = journal.events()
    assert [e["at.x"] for e in found] == [4, 5, 7]
    assert [e.time for e in found] == [since + timedelta(seconds=s) for s in (0, 1, 3)]
    first = found[0]
    assert (first.type, first.subject, first.payload) == ("quote", "s/4", b"\x04")
    assert first["tags"] == ("a", "b")
    last = seen[-1]
    assert (last.events, last.incomplete, last.time) == (3, 1, since + timedelta(seconds=3))
    assert last.span is not None
    assert last.span[0] == since
    assert outlook(path, filter="price > 100").most == 0


@pytest.mark.parametrize("at_once", [1, 7])
def test_an_interrupted_replay_is_resumed(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Interrupted at any moment: before a batch, after it, and before that was written down."""
    monkeypatch.setattr(replayer, "BATCH", at_once)
    # Times repeat, so that a time alone does not say where it was.
    path = archive_of(tmp_path / "a", [event(n, n // 5) for n in range(1, 31)])
    journal = Journal(broker)
    real = Direct.publish
    for crash in range(4):
        left = [2]

        def publish(
            direct: Direct, items: Any, *, crash: int = crash, left: list[int] = left, **more: Any
        ) -> None:
            left[0] -= 1
            if left[0] == 0 and crash % 2 == 0:
                raise KeyboardInterrupt
            real(direct, items, **more)
            if left[0] == 0:
                raise KeyboardInterrupt  # published, but nobody knows

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Direct, "publish", publish)
            with pytest.raises(KeyboardInterrupt):
                replay(
                    None, path, broker.address, filter="price != 3", speed=None, resume=crash > 0
                )
        # The archive goes on, and is compacted: the replay is of what was there.
        archive_of(path, [event(100 + crash, 1)])
        compact(None, path)
    monkeypatch.undo()
    replay(None, path, broker.address, filter="price != 3", speed=None, resume=True)
    assert prices(journal.events()) == [n for n in range(1, 31) if n != 3]
    with pytest.raises(InvalidConfiguration, match="there is no interrupted replay"):
        replay(None, path, broker.address, filter="price != 3", speed=None, resume=True)


def test_the_note_may_be_elsewhere(broker: BrokerProcess, tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a", [event(1, 1)])
    note = tmp_path / "note.json"

    def look(progressed: Progressed) -> None:
        assert note.exists()
        assert not (path / "_stentor/replays").exists()

    assert replay(None, path, broker.address, note=note, progress=look) == 1
    assert not note.exists()
    note.write_text("{")
    with pytest.raises(ArchiveError, match="does not say where a replay is"):
        replay(None, path, broker.address, note=note, resume=True)


def test_the_speed_is_kept(broker: BrokerProcess, tmp_path: Path) -> None:
    """Ten seconds at tenfold speed take one; a pause is a pause, and bursts stay bursts."""
    times = [0, 0, 0, 1_000_000, 1_000_001, 10_000_000]
    path = archive_of(tmp_path, [event(n + 1, time) for n, time in enumerate(times)])
    clock = Clock()
    began = clock.now
    seen: list[tuple[float, int]] = []

    def note(progressed: Progressed) -> None:
        seen.append((clock.now - began, progressed.events))

    replay(None, path, broker.address, pacer=clock.pacer(10.0), progress=note)
    assert seen == [(0.0, 3), (pytest.approx(0.1), 5), (pytest.approx(1.0), 6)]


def test_who_is_behind_catches_up() -> None:
    clock = Clock()
    pacer = clock.pacer(2.0)
    assert pacer.due(NEVER) == NEVER
    assert pacer.due(1_000_000) == 1_000_000 + TICK * 2_000_000
    clock.now += 10.0  # the broker was slow
    assert pacer.due(2_000_000) == pytest.approx(1_000_000 + (10.0 + TICK) * 2_000_000)
    assert clock.now == 110.0
    pacer.due(31_000_000)
    assert clock.now == pytest.approx(115.0)
    assert clock.pacer(None).due(5) is None
    for speed in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidConfiguration, match="give a positive number"):
            Pacer(speed)


def test_what_cannot_be_replayed(broker: BrokerProcess, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no archive at"):
        replay(None, tmp_path / "nowhere", broker.address)
    path = archive_of(tmp_path / "a", [event(1, 1)])
    with pytest.raises(Unreachable):
        replay(None, path, "127.0.0.1:1,127.0.0.1:2", timeout=1.0)


def test_the_place_of_a_replay_is_one_value() -> None:
    """Whoever is interrupted finds the old one or the new one, never half of each."""
    turns = np.array([1, 1, 2, 2, 2, 2, 3], np.int64)
    whole = Reached().beyond(turns)
    assert whole == Reached(published=7, turn=3, of_turn=1)
    note = new_note(1, Filter(""), Between(), "", keep_time=False)
    for start, end in ((0, 1), (1, 4), (4, 4), (4, 6)):
        before = note.reached
        note.advance(turns[start:end])
        assert note.reached == before.beyond(turns[start:end])
    assert note.reached == Reached(published=6, turn=2, of_turn=4)
