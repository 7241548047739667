"""What clients record of themselves, at real brokers, and what the checker says of it."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from scripted import looped, until

import stentor
from stentor.broker.host import Broker
from stentor.broker.settings import Grant, Settings
from stentor.errors import DecodeError, InvalidConfiguration, NotPermitted, StentorError
from stentor.semantics import Condition, Notify, Pub, Quiescent, Sub, Unsub, check
from stentor.semantics.lines import ACKNOWLEDGED, CUT_OFF, Line, decoded


def one_broker() -> Broker:
    return Broker(Settings(listen=("127.0.0.1:0",), name="b1"))


def new(directory: Path) -> Path:
    """A place for recordings: a test that runs in two kinds of loops has two runs."""
    return Path(mkdtemp(dir=directory))


def lines(path: Path) -> list[Line]:
    return [decoded(line) for line in path.read_bytes().splitlines()]


@pytest.mark.spec("R-01.15", "R-01.16", "R-01.17")
@looped
async def test_the_recordings_of_a_run_are_judged_together(tmp_path: Path) -> None:
    directory = new(tmp_path)
    desk, feed = directory / "desk.jsonl", directory / "feed.jsonl"
    async with (
        one_broker() as broker,
        stentor.connect(broker, name="desk", record=desk) as consumer,
        stentor.connect(broker, name="feed", record=feed) as producer,
        consumer.subscribe("price > 100") as quotes,
    ):
        for price in (99, 101, 102):
            await producer.publish({"price": price})
        async with producer.transaction() as together:
            await together.publish({"price": 103})
            await together.publish({"price": 104})
        await producer.publish_many({"price": price} for price in range(105, 110))
        async for n in quotes:
            if n["price"] == 109:
                break
        await producer.flush()
    run = stentor.recorded(desk, feed, settled=True)
    report = check(run.trace, order=["fifo", "causal", "total_global"])
    assert report.ok, report
    assert (report.publications, report.deliveries, report.owed) == (10, 9, 9)
    assert (run.torn, run.doubtful, run.again) == ((), 0, 0)
    # Somebody who leaves out what was published has everything invented.
    assert check(stentor.recorded(desk).trace).conditions == {Condition.PHANTOM}


@looped
async def test_what_is_left_out_of_a_recording_is_found(tmp_path: Path) -> None:
    desk = new(tmp_path) / "desk.jsonl"
    async with one_broker() as broker, stentor.connect(broker, name="desk", record=desk) as bus:
        async with bus.subscribe() as everything:
            await bus.publish_many([{"x": 1}, {"x": 2}], ack=True)
            assert [(await everything.get())["x"] for _ in range(2)] == [1, 2]
    text = desk.read_bytes().splitlines(keepends=True)
    assert check(stentor.recorded(desk, settled=True).trace, order=["fifo"]).ok
    given = [i for i, line in enumerate(text) if b'"op":"notify"' in line]
    desk.write_bytes(b"".join(line for i, line in enumerate(text) if i != given[0]))
    assert check(stentor.recorded(desk, settled=True).trace).conditions == {Condition.LOST}
    text[given[0]], text[given[1]] = text[given[1]], text[given[0]]
    desk.write_bytes(b"".join(text))
    assert check(stentor.recorded(desk).trace, order=["fifo"]).conditions == {Condition.FIFO}


@looped
async def test_every_subscription_is_a_component_of_its_own(tmp_path: Path) -> None:
    with stentor.Recorder(new(tmp_path) / "run.jsonl") as recorder:
        async with (
            one_broker() as broker,
            stentor.connect(broker, name="n", record=recorder) as bus,
        ):
            async with (
                bus.subscribe("x = 1") as one,
                bus.subscribe("x > 0") as two,
                bus.subscribe("x > 0", durable="d") as kept,
            ):
                recorder.quiescent()
                await bus.publish({"x": 1}, ack=True)
                for each in (one, two, kept):
                    await each.get()
                recorder.quiescent()
                trace = stentor.recorded(recorder.path).trace
                assert check(trace, order=["causal"]).owed == 3
    found = stentor.recorded(recorder.path).trace
    assert [a.component for a in found if isinstance(a, Sub)] == ["n", "n#2", "durable d"]
    assert {a.component for a in found if isinstance(a, Notify)} == {"n", "n#2", "durable d"}
    assert sum(isinstance(a, Unsub) for a in found) == 3
    assert sum(isinstance(a, Quiescent) for a in found) == 2


def told(path: Path) -> list[str]:
    """Actions at the interface but publications, and what each is about."""
    filters = {line.fid: line.filter for line in lines(path) if line.op == "sub"}
    return [
        f"{line.op} {line.nid or filters[line.fid]}"
        for line in lines(path)
        if line.op in ("sub", "notify", "unsub")
    ]


@pytest.mark.spec("R-01.14", "R-01.18", "R-01.20")
@looped
async def test_an_inbox_is_one_component_with_its_subscriptions(tmp_path: Path) -> None:
    file = new(tmp_path) / "n.jsonl"
    async with one_broker() as broker, stentor.connect(broker, name="n", record=file) as bus:
        async with bus.subscribe("x = 9"), bus.inbox("x > 0") as inbox:
            first = await bus.publish({"x": 1}, ack=True)
            await inbox.get(timeout=60)
            also = await inbox.subscribe("y > 0")
            again = await inbox.subscribe("y > 0")
            both = await bus.publish({"x": 1, "y": 1}, ack=True)
            await inbox.get(timeout=60)
            # What has come is not handed out any more, so it is not recorded.
            await bus.publish({"y": 1}, ack=True)
            last = await bus.publish({"x": 2}, ack=True)
            await until(lambda: len(inbox._arrivals) == 2)
            await inbox.unsubscribe(again)
            await inbox.unsubscribe(also)
            assert (await inbox.get(timeout=60))["x"] == 2
    assert told(file)[1:] == [
        "sub x > 0",
        f"notify {first}",
        *("sub y > 0", "sub y > 0"),
        f"notify {both}",
        *("unsub y > 0", "unsub y > 0"),
        f"notify {last}",
        *("unsub x > 0", "unsub x = 9"),
    ]
    run = stentor.recorded(file, settled=True)
    assert {a.component for a in run.trace if isinstance(a, Notify)} == {"n#2"}
    report = check(run.trace, order=["fifo"])
    assert report.ok, report
    assert (report.deliveries, report.owed) == (3, 3)


@looped
async def test_a_filter_of_an_inbox_is_in_force_when_the_broker_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = new(tmp_path) / "n.jsonl"

    def in_force() -> int:
        return file.read_bytes().count(b'"step":"in force"')

    async with one_broker() as broker, stentor.connect(broker, name="n", record=file) as bus:
        async with bus.inbox("x > 0") as inbox:
            put = inbox.attachment.put
            before: list[int] = []

            async def asked(word: Any) -> Any:
                before.append(in_force())
                return await put(word)

            monkeypatch.setattr(inbox.attachment, "put", asked)
            also = await inbox.subscribe("y > 0")
            assert (before, in_force()) == ([1], 2)
            await inbox.subscribe("y > 0")
            await inbox.unsubscribe(also)


@pytest.mark.spec("R-01.18")
@looped
async def test_what_an_inbox_is_given_for_nothing_is_found(tmp_path: Path) -> None:
    file = new(tmp_path) / "n.jsonl"
    async with one_broker() as broker, stentor.connect(broker, name="n", record=file) as bus:
        async with bus.inbox("x > 0") as inbox:
            also = await inbox.subscribe("y > 0")
            await bus.publish({"y": 1}, ack=True)
            await inbox.get(timeout=60)
            await inbox.unsubscribe(also)
    text = file.read_bytes().splitlines(keepends=True)
    [given] = [i for i, line in enumerate(text) if b'"op":"notify"' in line]
    ended = next(i for i, line in enumerate(text) if b'"op":"unsub"' in line)
    text.insert(ended, text.pop(given))
    file.write_bytes(b"".join(text))
    assert check(stentor.recorded(file).trace).conditions == {Condition.NOT_SUBSCRIBED}
    # Had it been kept, it would be owed.
    kept = [line for line in text if b'"y > 0"' not in line or b'"sub"' in line]
    file.write_bytes(b"".join(x for x in kept if b'"notify"' not in x and b'"unsub"' not in x))
    assert check(stentor.recorded(file, settled=True).trace).conditions == {Condition.LOST}


@looped
async def test_a_durable_inbox_is_judged_over_the_lives_of_its_readers(tmp_path: Path) -> None:
    """One that was killed withdraws nothing; who comes after it does so on its behalf."""
    directory = new(tmp_path)
    feed, names = directory / "feed.jsonl", [directory / f"desk-{i}.jsonl" for i in (1, 2)]
    async with (
        one_broker() as broker,
        stentor.connect(broker, name="feed", record=feed) as producer,
    ):
        async with stentor.connect(broker, name="desk-1", record=names[0]) as bus:
            async with bus.inbox("x > 0", "y > 0", durable="d") as inbox:
                await producer.publish({"x": 1}, ack=True)
                await inbox.get(timeout=60)
                killed = names[0].read_bytes()
        names[0].write_bytes(killed)
        async with stentor.connect(broker, name="desk-2", record=names[1]) as bus:
            async with bus.inbox(durable="d") as inbox:
                [_, ys] = inbox.subscriptions
                await producer.publish({"y": 1}, ack=True)
                await inbox.get(timeout=60)
                await inbox.unsubscribe(ys)
                await producer.publish({"y": 2}, ack=True)
                await producer.publish({"x": 2}, ack=True)
                await inbox.get(timeout=60)
    run = stentor.recorded(feed, *names, settled=True)
    report = check(run.trace, order=["fifo"])
    assert report.ok, report
    assert (report.publications, report.deliveries, report.owed) == (4, 3, 2)
    assert {a.component for a in run.trace if isinstance(a, Notify)} == {"durable d"}


@looped
async def test_the_inboxes_of_a_group_are_one_component(tmp_path: Path) -> None:
    directory = new(tmp_path)
    names = [directory / f"desk-{i}.jsonl" for i in (1, 2)]
    async with (
        one_broker() as broker,
        stentor.connect(broker, name="desk-1", record=names[0]) as bus,
        stentor.connect(broker, name="desk-2", record=names[1]) as other,
        bus.inbox("x > 0", group="g") as one,
        other.inbox(group="g") as two,
    ):
        added = await two.subscribe("y > 0")
        await until(lambda: len(one.subscriptions) == 2)
        for n in range(10):
            await bus.publish({"x": n % 3, "y": n % 2}, ack=True)
        for _ in range(4):
            await one.get(timeout=60)
            await two.get(timeout=60)
        await two.unsubscribe(added)
        await until(lambda: len(one.subscriptions) == 1)
    run = stentor.recorded(*names, settled=True)
    report = check(run.trace)
    assert report.ok, report
    # For what was withdrawn nothing is owed.
    assert (report.deliveries, report.owed) == (8, 6)
    assert {a.component for a in run.trace if isinstance(a, Notify)} == {"group g"}


@looped
async def test_every_connection_that_is_lost_is_noted(tmp_path: Path) -> None:
    """It may have been given something before it heard that it is in force again."""
    desk = new(tmp_path) / "desk.jsonl"
    async with (
        one_broker() as broker,
        stentor.connect(broker, name="desk", record=desk) as bus,
        bus.subscribe("x > 0", durable="d", group="g", settle=True) as orders,
    ):
        for _ in range(2):
            orders.connection_lost(StentorError("it is lost"), 0.0)
    assert [line.step for line in lines(desk)].count(CUT_OFF) == 2


@looped
async def test_a_publication_that_is_refused_is_in_doubt(tmp_path: Path) -> None:
    file = new(tmp_path) / "n.jsonl"
    grants = (Grant("small", token="secret", publish=("x < 3",)),)
    broker = Broker(Settings(listen=("127.0.0.1:0",), name="b1", grants=grants))
    async with broker, stentor.connect(broker, token="secret", record=file) as bus:
        await bus.publish({"x": 1}, ack=True)
        with pytest.raises(NotPermitted):
            await bus.publish({"x": 3}, ack=True)
        await bus.publish_many([{"x": 2}, {"x": 4}, {"x": 0}])
        with pytest.raises(StentorError):
            await bus.flush()
    run = stentor.recorded(file)
    assert run.doubtful == 2
    assert [a.notification["x"] for a in run.trace if isinstance(a, Pub)] == [1, 2, 0]


@looped
async def test_answers_are_noted_as_ranges(tmp_path: Path) -> None:
    file = new(tmp_path) / "n.jsonl"
    async with one_broker() as broker, stentor.connect(broker, name="n", record=file) as bus:
        await bus.publish_many(({"x": i} for i in range(400)), ack=True)
    noted = [line for line in lines(file) if line.step == ACKNOWLEDGED]
    assert len(noted) < 5
    assert noted[-1].seq == 399


@looped
async def test_advertisements_are_recorded(tmp_path: Path) -> None:
    file = new(tmp_path) / "n.jsonl"
    async with one_broker() as broker, stentor.connect(broker, name="n", record=file) as bus:
        async with bus.subscribe("x > 0") as wanted:
            async with bus.advertise("x > 0"):
                await bus.publish({"x": 1}, ack=True)
                await wanted.get()
    trace = stentor.recorded(file, settled=True).trace
    assert check(trace, advertisements=True).ok
    unadvertised = [
        line for line in file.read_bytes().splitlines(True) if b'"op":"adv"' not in line
    ]
    file.write_bytes(b"".join(unadvertised))
    trace = stentor.recorded(file).trace
    assert check(trace, advertisements=True).conditions == {Condition.UNADVERTISED}


def test_programs_without_async_record_too(tmp_path: Path) -> None:
    file = tmp_path / "n.jsonl"

    async def served(ready: asyncio.Future[str]) -> None:
        async with one_broker() as broker:
            ready.set_result(broker.address)
            await asyncio.to_thread(client, broker.address)

    def client(address: str) -> None:
        with stentor.connect_sync(address, name="n", record=file) as bus, bus.subscribe() as all:
            for i in range(5):
                bus.publish({"x": i}, ack=True)
            assert all.get(timeout=30)["x"] == 0

    async def main() -> None:
        await served(asyncio.get_running_loop().create_future())

    asyncio.run(main())
    report = check(stentor.recorded(file).trace, order=["fifo"])
    # What was not handed to the application has not been delivered.
    assert (report.ok, report.publications, report.deliveries) == (True, 5, 1)


# -- files


def test_a_torn_line_is_told_and_cut_off_when_the_file_is_written_on(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with stentor.Recorder(file) as recorder:
        recorder.quiescent()
        recorder.quiescent()
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    run = stentor.recorded(file)
    assert (len(run.trace), run.torn) == (1, (file,))
    with stentor.Recorder(file) as recorder:
        recorder.quiescent()
    run = stentor.recorded(file)
    assert (len(run.trace), run.torn) == (2, ())
    positions = [line.pos for line in lines(file)]
    assert positions == sorted(set(positions))


def test_positions_rise_though_the_clock_was_set_back(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    ahead = 2**62
    file.write_bytes(Line(pos=ahead, op="quiescent").encoded())
    with stentor.Recorder(file) as recorder:
        recorder.quiescent()
    assert [line.pos for line in lines(file)] == [ahead, ahead + 1]


def test_a_line_may_be_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    long = Line(pos=7, op="internal", step="x" * 200_000).encoded()
    file.write_bytes(Line(pos=5, op="quiescent").encoded() + long + long[:100_000])
    with stentor.Recorder(file) as recorder:
        assert recorder.pos() > 7
    assert file.stat().st_size == len(Line(pos=5, op="quiescent").encoded() + long)


def test_what_is_no_recording_is_not_touched(tmp_path: Path) -> None:
    notes = tmp_path / "notes.json"
    notes.write_text('{"dear": "diary"}\nmore')
    with pytest.raises(InvalidConfiguration, match="is not a recording that can be continued"):
        stentor.Recorder(notes)
    assert notes.read_text().endswith("more")
    with pytest.raises(InvalidConfiguration, match=r"end the name with \.jsonl"):
        stentor.Recorder(tmp_path / "notes.txt")
    with pytest.raises(InvalidConfiguration, match="cannot be written: No such file"):
        stentor.connect(record=tmp_path / "nowhere" / "run.jsonl")


def test_a_damaged_recording_is_told_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    good = Line(pos=1, op="quiescent").encoded()
    file.write_bytes(good + b"oops\n" + good)
    with pytest.raises(DecodeError, match=r"run\.jsonl, line 2: this is not a line of a trace"):
        stentor.recorded(file)
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        stentor.recorded(tmp_path / "nothing.jsonl")


def test_a_recording_that_cannot_be_written_is_no_secret(tmp_path: Path) -> None:
    """Who goes on without a line would have the service accused of what it did right."""
    recorder = stentor.Recorder(tmp_path / "run.jsonl")
    os.close(recorder._file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        recorder.quiescent()


@looped
async def test_a_client_that_cannot_connect_lets_go_of_its_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        bus = stentor.connect("unix:/nowhere", timeout=0.05, record=tmp_path / "n.jsonl")
        with pytest.raises(StentorError):
            await bus.open()
    assert len(os.listdir("/proc/self/fd")) <= before + 1
