"""Drivers are killed at any moment; what they leave is completed by the next, exactly."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journal_filling_for_sinks import fill
from overlay_processes import LIMITS, BrokerProcess, Overlay, until

from stentor.client.direct import Direct
from stentor.model import decode

KILLS = 20
EVENTS_PER_ROUND = 3_000
SCRIPT = Path(__file__).with_name("mortal_driver.py")


class Driver:
    """A driver process with its JVM, in a process group of their own."""

    def __init__(self, log: Path, **arguments: Any) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYSPARK_PYTHON": sys.executable,
        }
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(arguments)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait(self) -> int:
        return self._process.wait(600)


def batches(offsets: Path) -> int:
    """How many batches a query has begun so far, by its checkpoint."""
    if not offsets.is_dir():
        return 0
    return max((int(f.name) + 1 for f in offsets.iterdir() if f.name.isdigit()), default=0)


def begun(offsets: Path, goal: int, log: Path) -> None:
    """Wait until so many have."""
    said = lambda: f"{goal} batches begin\n{log.read_text()[-5000:]}"  # noqa: E731
    asyncio.run(until(lambda: batches(offsets) >= goal, said, 600.0))


def numbers(broker: BrokerProcess, name: str = "n") -> Counter[int]:
    with Direct(broker.address) as direct:
        (state,) = direct.streams()
        found: Counter[int] = Counter()
        for stretch in direct.read(state.stream, 1, state.head):
            events = map(decode, stretch.items)
            found.update(event[name] for event in events if name in event)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_query_whose_driver_is_killed_again_and_again_ends_exact(
    overlay: Overlay, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    brokers = [overlay.broker(name, limits=replace(LIMITS, timeout=10.0)) for name in ("b1", "b2")]
    for broker in brokers:
        broker.start()
    source, sink = brokers
    home = tmp_path / "home"
    arguments = {"source": source.address, "sink": sink.address, "home": str(home)}
    log = tmp_path / "driver.log"
    total = 0
    moment = threading.Event()
    for _ in range(KILLS):
        fill(source, range(total, total + EVENTS_PER_ROUND))
        total += EVENTS_PER_ROUND
        driver = Driver(log, **arguments, finish=False)
        try:
            assert driver.line() == "running", log.read_text()[-5000:]
            if draw.random() < 0.75:  # else while it still finds its way back
                offsets = home / draw.choice(["published", "written", "stored"]) / "offsets"
                begun(offsets, batches(offsets) + draw.randint(1, 3), log)
            moment.wait(draw.uniform(0.0, 2.0))
            assert not driver.ended(), log.read_text()[-5000:]
        finally:
            driver.kill()
    before = numbers(sink) + numbers(sink, "m")
    last = Driver(log, **arguments, finish=True)
    assert last.line() == "running"
    stored = last.line()
    assert last.wait() == 0, log.read_text()[-5000:]
    assert json.loads(stored) == [total, total, 0, total - 1]
    assert numbers(sink) == Counter(range(total))
    assert numbers(sink, "m") == Counter(range(total))
    assert sum(before.values()) > 0  # the killed ones have done something
