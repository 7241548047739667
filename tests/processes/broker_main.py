"""What a broker process of the tests runs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import uvloop

from stentor.broker import config
from stentor.broker.host import Broker


def run_broker(*, config_file: str) -> int:
    """A broker until SIGTERM, as the command line runs it."""
    import logging

    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s"
    )
    settings = config.load(Path(config_file), environment={}).settings

    async def run() -> None:
        loop = asyncio.get_running_loop()
        broker = Broker(settings)
        await broker.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, broker.stop_soon, "the broker is shutting down")
        await broker.wait_closed()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return 0
