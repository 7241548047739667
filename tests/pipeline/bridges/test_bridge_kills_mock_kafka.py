"""Bridges are killed at any moment; both sides end exact. Kafka is a mock (see `mock_cluster`)."""

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
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka_topics import fill, publish, published, records, started
from mock_cluster import mock_cluster
from overlay_processes import until

if TYPE_CHECKING:
    from overlay_processes import Overlay

PER_ROUND = 1_500
#: Small batches, so that a kill is likely to be in the middle of one; and a short session, so that
#: Kafka does not wait for the dead for long.
BRIDGE = """
[source.quotes]
kafka = "quotes"
servers = "{kafka}"
max_rows_per_batch = 20
settings = {{ session.timeout.ms = 6000, heartbeat.interval.ms = 1000 }}

[source.events]
brokers = ["{broker}"]
filter = "side = 'out'"
max_rows_per_batch = 20

[[sink]]
name = "in"
from = "quotes"
stentor = {{ brokers = ["{broker}"] }}

[[sink]]
name = "out"
from = "events"
kafka = {{ topic = "copies", servers = "{kafka}" }}
"""


def run(file: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "stentor", "pipeline", "run", str(file), *options],
            stderr=out,
            env=environment,
        )


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_bridge_that_is_killed_again_and_again_loses_and_doubles_nothing(
    overlay: Overlay, tmp_path: Path, kills: int
) -> None:
    draw = random.Random(kills)
    broker = started(overlay)
    log, file = tmp_path / "bridge.log", tmp_path / "bridge.toml"
    moment = threading.Event()
    with mock_cluster() as kafka:
        file.write_text(BRIDGE.format(kafka=kafka, broker=broker.address))
        total = 0
        halfway = 0
        for _ in range(kills):
            fill(kafka, "quotes", [{"n": n} for n in range(total, total + PER_ROUND)])
            events = [{"m": n, "side": "out"} for n in range(total, total + PER_ROUND)]
            publish(broker, events, first=total)
            total += PER_ROUND
            said = len(log.read_text()) if log.exists() else 0
            process = run(file, log)
            try:
                names = ["in: running", "out: running"] if draw.random() < 0.8 else []
                for name in names:
                    began = lambda name=name, said=said: name in log.read_text()[said:]  # noqa: E731
                    asyncio.run(until(began, lambda: log.read_text()[-3000:]))
                if names:  # and then in the middle of it, on the way in as well
                    goal = len(published(broker, "n >= 0")) + draw.randint(1, PER_ROUND // 2)
                    there = lambda goal=goal: len(published(broker, "n >= 0")) >= goal  # noqa: E731
                    asyncio.run(until(there, lambda: log.read_text()[-3000:]))
                moment.wait(draw.uniform(0.0, 0.3))
                assert process.poll() is None, log.read_text()[-3000:]
            finally:
                process.kill()
                process.wait()
            halfway += 0 < len(published(broker, "n >= 0")) < total
        last = run(file, log, "--once")
        assert last.wait(120) == 0, log.read_text()[-3000:]
        copies = Counter(json.loads(r.value() or b"")["m"] for r in records(kafka, "copies"))
    assert Counter(n["n"] for n in published(broker, "n >= 0")) == Counter(range(total))
    assert copies == Counter(range(total))
    assert halfway > 0 or kills < 5  # some were killed in the middle


@pytest.mark.slow
def test_sigterm_lets_a_bridge_finish_and_ctrl_c_is_told_apart(
    overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    with mock_cluster() as kafka:
        file = tmp_path / "bridge.toml"
        file.write_text(BRIDGE.format(kafka=kafka, broker=broker.address))
        publish(broker, [{"m": n, "side": "out"} for n in range(200)])
        fill(kafka, "quotes", [{"n": 1}])
        for number, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
            log = tmp_path / f"{number}.log"
            process = run(file, log)
            began = lambda log=log: "out: running" in log.read_text()  # noqa: E731
            asyncio.run(until(began, "it runs"))
            process.send_signal(number)
            assert process.wait(60) == code, log.read_text()
            assert "out: stopped" in log.read_text()
        assert run(file, tmp_path / "last.log", "--once").wait(100) == 0
        copies = Counter(json.loads(r.value() or b"")["m"] for r in records(kafka, "copies"))
    assert copies == Counter(range(200))
