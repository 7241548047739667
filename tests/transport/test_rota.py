"""The rota: what one round of the loop does, whoever and however many want something done."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator
from typing import Any

import pytest
from peers import Made, Recorder, Run, on_each_loop

from stentor.errors import ProtocolError
from stentor.protocol.messages import AnyMessage, Ping
from stentor.transport import Connection, Rota, connect, serve
from stentor.transport.rota import BUDGET, SLICE


class Steps:
    """Time passes only by steps, of which each takes a fifth of a slice."""

    LONG = SLICE / 5

    def __init__(self) -> None:
        self.rota = Rota(asyncio.get_running_loop(), lambda: self.LONG * len(self.done))
        #: Who has done each step.
        self.done: list[object] = []

    def begin(self, who: object, count: int) -> None:
        """Somebody wants to do so many steps, now if there is time."""

        def go_on() -> None:
            nonlocal count
            more = self.rota.more()
            while count:
                count -= 1
                self.done.append(who)
                if not more():
                    break
            if count:
                self.rota.wait(go_on)

        if self.rota.is_over:
            self.rota.wait(go_on)
        else:
            go_on()

    async def round(self) -> list[object]:
        """What is done until all that is ready has had its turn."""
        before = len(self.done)
        await asyncio.sleep(0)
        return self.done[before:]


IN_SLICE = round(SLICE / Steps.LONG)
IN_ROUND = round(BUDGET / Steps.LONG)


@on_each_loop
def test_a_round_has_one_budget_however_many_want_to_work(run: Run) -> None:
    async def main() -> None:
        steps = Steps()
        for who in range(50):
            steps.begin(who, 40)
        assert len(steps.done) <= IN_ROUND + 1
        while len(steps.rota):
            assert 0 < len(await steps.round()) <= IN_ROUND + 1
        assert sorted(steps.done, key=str) == sorted([*range(50)] * 40, key=str)

    run(main)


class Answer:
    """Something that is large."""


@on_each_loop
def test_nothing_is_left_of_an_answer_that_was_made_in_steps(run: Run, uncollected: None) -> None:
    def steps() -> Generator[None, None, Answer]:
        yield
        return Answer()

    def failing() -> Generator[None, None, Answer]:
        yield
        raise ProtocolError("no")

    async def main() -> None:
        rota = Rota(asyncio.get_running_loop())
        answer = await rota.run(steps())
        left: list[weakref.ref[object]] = [weakref.ref(answer)]
        try:
            await rota.run(failing())
        except ProtocolError as error:
            left.append(weakref.ref(error))
        del answer
        await asyncio.sleep(0)
        assert [each() for each in left] == [None, None]

    run(main)


@on_each_loop
def test_who_wants_little_waits_for_one_slice_of_each_other_at_most(run: Run) -> None:
    async def main() -> None:
        steps = Steps()
        others = 20
        for who in range(others):
            steps.begin(who, 1_000)
        await steps.round()
        before = len(steps.done)
        steps.begin("little", 1)
        while "little" not in steps.done:
            await steps.round()
        assert steps.done.index("little") - before <= others * (IN_SLICE + 1)

    run(main)


@on_each_loop
def test_who_is_alone_has_the_whole_budget_and_nobody_owes_for_an_earlier_round(run: Run) -> None:
    async def main() -> None:
        steps = Steps()
        steps.begin("a", IN_ROUND)
        assert len(steps.done) == IN_ROUND
        await steps.round()
        await steps.round()
        assert not steps.rota.is_over
        steps.begin("b", 1)
        assert steps.done[-1] == "b"

    run(main)


@on_each_loop
def test_a_long_answer_is_made_in_turn_with_others(run: Run) -> None:
    async def main() -> None:
        steps = Steps()

        def counting(who: str) -> Generator[None, None, str]:
            for _ in range(100):
                steps.done.append(who)
                yield
            return who

        def failing() -> Generator[None, None, str]:
            yield
            raise ValueError("no answer")

        runs = [steps.rota.run(counting("a")), steps.rota.run(counting("b"))]
        assert await asyncio.gather(*runs) == ["a", "b"]
        assert {"a", "b"} == {*steps.done[:50]}
        with pytest.raises(ValueError, match="no answer"):
            await steps.rota.run(failing())

    run(main)


@on_each_loop
def test_connections_that_share_a_rota_take_turns_and_lose_nothing(run: Run) -> None:
    """What comes when a round has no time left is decoded later, and in order."""

    async def main() -> None:
        handled: list[Connection] = []
        rota = Rota(asyncio.get_running_loop(), lambda: BUDGET * len(handled))

        class Sharing(Recorder):
            def opened(self, connection: Connection) -> None:
                super().opened(connection)
                connection.rota = rota

            def received(self, connection: Connection, messages: list[AnyMessage]) -> None:
                rota.more()
                handled.append(connection)  # which takes the rest of the round
                super().received(connection, messages)

        made = Made(Sharing)
        listener = await serve("127.0.0.1:0", made)
        senders: list[Any] = [await connect(listener.address, Recorder()) for _ in range(5)]
        for sender in senders:
            for _ in range(10_000):
                sender.send(Ping())
        while sum(len(handler.messages) for handler in made.handlers) < 50_000:
            before = len(handled)
            await asyncio.sleep(0)
            assert len(handled) - before <= 2  # this round may have begun before, and gone on
        assert [len(handler.messages) for handler in made.handlers] == [10_000] * 5
        for sender in senders:
            sender.close()
        await listener.close()

    run(main)
