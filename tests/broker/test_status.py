"""The status of a broker, which may be long."""

import asyncio

import pytest

from stentor.broker import Broker, Settings, host
from stentor.broker.access import Permissions
from stentor.protocol import messages as m


def test_others_have_turns_while_a_long_status_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "BUDGET", -1.0)
    count = 50

    async def run() -> None:
        async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
            broker.core.join(1_000, "ann")
            for number in range(count):
                broker.core.heard(1_000, m.Subscribe(number, f"x > {number}", 10))
            answer = asyncio.create_task(broker._answer(m.Ask(1, "status"), Permissions()))
            turns = 0
            while not answer.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns >= count
            found = await answer
            assert found["subscriptions"] == broker.status()["subscriptions"]
            assert len(found["subscriptions"]) == count

    asyncio.run(run())
