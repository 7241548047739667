"""A broker is drained: nothing it answered for is lost, and nobody answers for it twice."""

# Nested `async with`s stand as they would in an application.
# ruff: noqa: SIM117

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import stentor
from stentor.broker import Broker, Settings
from stentor.broker.settings import Retention
from stentor.broker.storage import Journal, JournalBatch, Moved, copy_journal, hand_over, set_aside
from stentor.broker.storage.directory import MarkFile
from stentor.broker.storage.moving import confirmed
from stentor.broker.succession import Succession, Transfer, succession, transfer
from stentor.errors import (
    InvalidConfiguration,
    JournalDamaged,
    JournalUnavailable,
    NoReply,
    ShuttingDown,
)
from stentor.protocol import messages as m
from stentor.transport import Connection, connect


def looped(test: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test(*args), 30)

    asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def settings(root: Path, name: str, *neighbors: str) -> Settings:
    return Settings(
        listen=("127.0.0.1:0",),
        name=name,
        data=root / name,
        neighbors=neighbors,
        routing="covering",
    )


async def started(root: Path, name: str, *neighbors: Broker) -> Broker:
    broker = Broker(settings(root, name, *(n.address for n in neighbors)))
    await broker.start()
    await until(lambda: len(broker.links) == len(neighbors))
    return broker


async def history(broker: Broker, count: int) -> list[int]:
    """What a new subscriber is told of all that was ever published."""
    async with (
        stentor.connect(broker.address) as bus,
        bus.subscribe("x >= 0", since="earliest") as found,
    ):
        return [(await found.get(60))["x"] for _ in range(count)]


async def publish(broker: Broker, numbers: Iterable[int]) -> None:
    async with stentor.connect(broker.address) as bus:
        await bus.publish_many([{"x": x} for x in numbers], ack=True)


class Operator:
    """Asks one question."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def opened(self, connection: Connection) -> None:
        connection.send(m.Hello(list(m.VERSIONS), "operator", "op", None))
        connection.send(m.Ask(1, self._what))

    def received(self, connection: Connection, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, m.Done | m.Failure) and not self.answer.done():
                self.answer.set_result(message)

    def writable_again(self, connection: Connection) -> None:
        pass

    def closed(self, connection: Connection, error: Exception | None) -> None:
        pass


async def ask(broker: Broker, what: str) -> Any:
    operator = Operator(what)
    connection = await connect(broker.address, operator)
    answer = await operator.answer
    connection.close()
    return answer


@contextmanager
def journal_with(directory: Path, items: list[bytes]) -> Iterator[Journal]:
    journal = Journal.open(directory, name=directory.name, retention=Retention())
    committed = threading.Event()
    journal.start(lambda function, *args: function(*args), lambda done: committed.set())
    journal.append(JournalBatch(items))
    assert committed.wait(10)
    try:
        yield journal
    finally:
        journal.close()


class TestMoving:
    def test_the_copy_is_good_even_if_the_journal_goes_on(self, tmp_path: Path) -> None:
        (tmp_path / "copy").mkdir()
        with journal_with(tmp_path / "a", [b"one"]) as journal:
            # A commit right behind the snapshot, as retention makes them.
            backup = journal.backup_to

            def backup_and_commit(copy: sqlite3.Connection) -> None:
                backup(copy)
                journal._writer.commit([JournalBatch([b"two"])])

            journal.backup_to = backup_and_commit  # type: ignore[method-assign]
            assert copy_journal(journal, tmp_path / "copy") == 1
        copy = Journal.open(tmp_path / "copy", name=None, retention=Retention())
        assert copy.read(1, 10) == [b"one"]
        copy.close()

    @pytest.mark.parametrize("steps", range(5))
    def test_setting_aside_can_be_interrupted_anywhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
    ) -> None:
        directory = tmp_path / "a"
        with journal_with(directory, [b"one"]) as journal:
            stream = journal.stream
        (directory / "journal.db-wal").write_bytes(b"")
        assert set_aside(directory) is None
        handed = Moved(stream, "n#1", "n")
        hand_over(directory, handed)
        rename, left = Path.rename, iter(range(steps))

        def dying(path: Path, target: Path) -> Path:
            if next(left, None) is None:
                raise OSError("killed")
            return rename(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", dying)
            if steps < 4:
                with pytest.raises(JournalUnavailable):
                    set_aside(directory)
            else:
                set_aside(directory)
        assert set_aside(directory) == handed
        with journal_with(directory, [b"new"]) as journal:
            assert journal.stream != stream
        assert set_aside(directory) == handed, "and the new journal stays where it is"
        assert (directory / "journal.db").exists()
        confirmed(directory)
        assert set_aside(directory) is None

    def test_what_cannot_be_marked_is_not_handed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: object) -> None:
            raise OSError(28, "no space")

        monkeypatch.setattr("stentor.broker.storage.moving.sync", full)
        with pytest.raises(JournalUnavailable, match="no space"):
            hand_over(tmp_path, Moved("a#1", "n#1", "n"))
        assert set_aside(tmp_path) is None


def test_a_durable_subscriber_who_is_away_goes_on_at_the_neighbor(tmp_path: Path) -> None:
    async def test() -> None:
        n = await started(tmp_path, "n")
        a = await started(tmp_path, "a", n)
        async with stentor.connect(a.address, name="publisher") as bus:
            async with bus.subscribe("x >= 0", durable="desk-7") as desk:
                await bus.publish_many([{"x": x} for x in range(5)], ack=True)
                assert [(await desk.get(60))["x"] for _ in range(5)] == [0, 1, 2, 3, 4]
                await desk.confirm()
            await bus.publish_many([{"x": x} for x in range(5, 10)], ack=True)
        stream, mark = a.stream, a.journal.published("publisher")
        assert mark is not None
        handed = await a.drain()
        assert (handed["to"], handed["stream"], handed["head"]) == ("n", stream, 10)
        await a.wait_closed()
        await until(lambda: n.succession.journals)
        assert n.journal.published("publisher") in (None, mark)
        async with stentor.connect(n.address) as bus:
            async with bus.subscribe("x >= 0", durable="desk-7") as desk:
                assert [(await desk.get(60))["x"] for _ in range(5)] == [5, 6, 7, 8, 9]
                await bus.publish({"x": 10}, ack=True)
                assert (await desk.get(60))["x"] == 10
        await until(lambda: n.journal.published("publisher") == mark)
        await n.stop()

        again = await started(tmp_path, "a")
        assert again.stream != stream
        assert again.succession.unconfirmed is None
        assert again.journal.head == 0
        assert (tmp_path / "a" / "handed-over.journal.db").exists()
        assert not (tmp_path / "a" / "handing-over").exists()
        await again.stop()

    looped(test)


def test_the_history_of_a_drained_broker_is_read_from_elsewhere(tmp_path: Path) -> None:
    async def test() -> None:
        n = await started(tmp_path, "n")
        far = await started(tmp_path, "far", n)
        a = await started(tmp_path, "a", n)
        await publish(a, range(20))
        stream = a.stream
        await a.drain()
        await a.wait_closed()
        await until(lambda: n.succession.journals)
        assert await history(far, 20) == list(range(20))
        await n.stop()
        n = Broker(settings(tmp_path, "n", far.address))
        await n.start()
        await until(lambda: far.core.directory.reaches(stream))
        assert await history(far, 20) == list(range(20))
        await n.stop()
        await far.stop()

    looped(test)


def test_what_is_not_yet_due_is_delivered_by_the_neighbor(tmp_path: Path) -> None:
    async def test() -> None:
        n = await started(tmp_path, "n")
        a = await started(tmp_path, "a", n)
        async with stentor.connect(a.address) as bus:
            await bus.publish({"x": 1}, ack=True, deliver_at="1h")
            id = await bus.publish({"x": 2}, ack=True, deliver_at="3s")
        async with stentor.connect(n.address) as bus, bus.subscribe("x >= 0") as found:
            await a.drain()
            await a.wait_closed()
            await until(lambda: len(n.core.scheduling.schedule) == 2)
            assert (await found.get(20)).id == id
        assert n.journal.head == 1
        await n.stop()
        n = await started(tmp_path, "n")
        assert len(n.core.scheduling.schedule) == 1
        await n.stop()

    looped(test)


def test_a_neighbor_that_was_restarted_imports_what_it_adopted(tmp_path: Path) -> None:
    async def test() -> None:
        a = await started(tmp_path, "a")
        async with stentor.connect(a.address, name="p") as bus:
            async with bus.subscribe("x > 0", durable="desk-7"):
                pass
            await bus.publish({"x": 1}, ack=True)
        await a.settle()
        adopted = tmp_path / "n" / "adopted" / "a_1"
        adopted.mkdir(parents=True)
        copy_journal(a.journal, adopted)
        mark = a.journal.published("p")
        await a.stop()
        n = await started(tmp_path, "n")
        assert list(n.core.durables) == ["desk-7"]
        await until((adopted / "imported").exists)
        assert n.journal.published("p") == mark
        assert n.succession.journals[0].head == 1
        await n.stop()

        (adopted / "imported").unlink()  # it died between the commit and the file
        n = await started(tmp_path, "n")
        await until((adopted / "imported").exists)
        async with stentor.connect(n.address) as bus:
            async with bus.subscribe("x > 0", durable="desk-7") as desk:
                assert (await desk.get(60))["x"] == 1
                await desk.close(forget=True)
        await n.stop()
        n = await started(tmp_path, "n")
        assert not n.core.durables, "what was deleted here does not come back"
        await n.stop()

    looped(test)


class TestCrashes:
    def test_the_drained_broker_dies_before_it_can_say_that_it_let_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def dies(*_: object) -> None:
            raise ShuttingDown("killed")

        async def test() -> None:
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", n)
            await publish(a, range(5))
            stream = a.stream
            with monkeypatch.context() as patch:
                patch.setattr(Transfer, "release", dies)
                patch.setattr(Succession, "finish", lambda succession: None)
                with pytest.raises(JournalUnavailable, match="belongs to 'n' now"):
                    await a.drain()
                await a.wait_closed()
            await until(lambda: not n.links)
            await n.stop()
            n = await started(tmp_path, "n")
            assert not n.succession.journals, "it cannot know whether the stream is its own"

            a = await started(tmp_path, "a", n)
            assert a.stream != stream
            await until(lambda: n.succession.journals)
            await until(lambda: a.succession.unconfirmed is None)
            assert not n.core.directory.towards(stream)
            assert await history(a, 5) == [0, 1, 2, 3, 4]
            await a.stop()
            a = await started(tmp_path, "a", n)
            assert a.succession.unconfirmed is None
            await a.stop()
            await n.stop()

        looped(test)

    def test_the_neighbor_dies_when_it_has_heard_that_the_stream_is_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test() -> None:
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", n)
            await publish(a, range(5))
            with monkeypatch.context() as patch:
                patch.setattr(Succession, "take_over_soon", lambda *_: None)
                await a.drain()
                await a.wait_closed()
                await until(lambda: not n.links)
                await n.stop()
            n = await started(tmp_path, "n")
            assert await history(n, 5) == [0, 1, 2, 3, 4]
            await n.stop()

        looped(test)

    def test_an_answer_that_comes_too_late_hands_nothing_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def late(answer: asyncio.Future[None]) -> None:
            await answer
            raise NoReply("too late")

        async def test() -> None:
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", n)
            await publish(a, range(5))
            stream, link = a.stream, next(iter(a.links.values()))
            with monkeypatch.context() as patch:
                patch.setattr(transfer, "answered", late)
                with pytest.raises(JournalUnavailable, match="n: too late"):
                    await a.drain()
            await until(lambda: a.links and link not in a.links.values())
            await until(lambda: n.core.directory.towards(stream) == stream)
            assert not n.succession.journals
            assert list((tmp_path / "n" / "adopted").iterdir()) == [], "the offer is void"
            await publish(a, range(5, 8))
            await a.drain()
            await a.wait_closed()
            await until(lambda: n.succession.journals)
            assert await history(n, 8) == list(range(8))
            await n.stop()

        looped(test)


class TestFailures:
    def test_a_bad_copy_is_refused_and_the_broker_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def damaged(journal: Journal, directory: Path) -> int:
            head = copy_journal(journal, directory)
            MarkFile(directory, journal.stream, journal.status()["commits"] + 1, head).close()
            return head

        async def test() -> None:
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", n)
            await publish(a, range(5))
            with monkeypatch.context() as patch:
                patch.setattr(succession, "copy_journal", damaged)
                with pytest.raises(JournalUnavailable, match=r"no neighbor .* commits are missing"):
                    await a.drain()
            await until(lambda: a.links)
            assert await history(a, 5) == list(range(5))
            assert list((tmp_path / "n" / "adopted").iterdir()) == []
            await a.stop()
            await n.stop()

        looped(test)

    def test_the_copy_cannot_be_made(self, tmp_path: Path) -> None:
        async def test() -> None:
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", n)
            (tmp_path / "a" / "handing-over").write_text("in the way")
            answer = await ask(a, "drain")
            assert isinstance(answer, m.Failure)
            assert (answer.code, answer.number) == (JournalUnavailable.code, 1)
            assert "handing-over" in answer.message
            await publish(a, [1])
            await a.stop()
            await n.stop()

        looped(test)

    def test_every_error_is_answered(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def broken(succession: Succession) -> None:
            raise RuntimeError("unheard of")

        async def test() -> None:
            a = await started(tmp_path, "a")
            monkeypatch.setattr(Succession, "drain", broken)
            answer = await ask(a, "drain")
            assert isinstance(answer, m.Failure)
            assert "unheard of" in answer.message
            await a.stop()

        looped(test)

    def test_a_neighbor_without_a_disk_is_passed_over(self, tmp_path: Path) -> None:
        async def test() -> None:
            memory = Broker(Settings(listen=("127.0.0.1:0",), name="memory"))
            await memory.start()
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", memory)
            with pytest.raises(JournalUnavailable, match="memory: this broker has no data"):
                await a.drain()
            await until(lambda: a.links)
            a.links.add(n.address)
            await until(lambda: len(a.links) == 2)
            assert (await a.drain())["to"] == "n"
            await a.wait_closed()
            await n.stop()
            await memory.stop()

        looped(test)

    def test_a_broker_that_cannot_open_what_it_adopted_lets_go_of_everything(
        self, tmp_path: Path
    ) -> None:
        adopted = tmp_path / "n" / "adopted" / "a_1"
        with journal_with(tmp_path / "a", [b"one"]) as journal:
            adopted.mkdir(parents=True)
            copy_journal(journal, adopted)
        (adopted / "journal.mark").unlink()

        async def test() -> None:
            with pytest.raises(JournalDamaged):
                await started(tmp_path, "n")
            shutil.rmtree(adopted)
            await (await started(tmp_path, "n")).stop()

        looped(test)

    def test_an_earlier_draining_is_finished_first(self, tmp_path: Path) -> None:
        async def test() -> None:
            with journal_with(tmp_path / "a", [b"one"]) as journal:
                hand_over(tmp_path / "a", Moved(journal.stream, "gone#1", "gone"))
            n = await started(tmp_path, "n")
            a = await started(tmp_path, "a", n)
            with pytest.raises(InvalidConfiguration, match="'gone' has not confirmed"):
                await a.drain()
            await a.stop()
            await n.stop()

        looped(test)
