"""The status of a broker, which may be long."""

import asyncio

import pytest

from stentor.broker import Broker, Settings, report
from stentor.protocol import messages as m
from stentor.transport import rota


def test_others_have_turns_while_a_long_status_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rota, "BUDGET", 0.0)
    count = 50

    async def run() -> None:
        async with Broker(Settings(listen=("127.0.0.1:0",))) as broker:
            broker.core.join(1_000, "ann")
            for number in range(count):
                broker.core.heard(1_000, m.Subscribe(number, f"x > {number}", 10))
            answer = asyncio.create_task(broker.rota.run(report.status_in_steps(broker)))
            turns = 0
            while not answer.done():
                turns += 1
                await asyncio.sleep(0)
            assert turns >= count
            found = await answer
            assert found["subscriptions"] == broker.status()["subscriptions"]
            assert len(found["subscriptions"]) == count

    asyncio.run(run())
