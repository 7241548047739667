"""Bridges between a broker and a Kafka cluster, which is librdkafka's mock (see `mock_cluster`)."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import mock_cluster
import pytest
from kafka_topics import (
    fill,
    into_broker,
    into_kafka,
    once,
    publish,
    published,
    records,
    started,
)
from overlay_processes import free_port, until

import stentor
from stentor.pipeline.bridges import Bridge
from stentor.pipeline.runs import load

if TYPE_CHECKING:
    from overlay_processes import Overlay


EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "bridge.toml"


@pytest.fixture
def kafka() -> Iterator[str]:
    with mock_cluster.mock_cluster() as address:
        yield address


def numbers(server: str) -> Counter[int]:
    return Counter(json.loads(record.value() or b"")["n"] for record in records(server, "copies"))


def test_records_are_published_once_however_often_the_bridge_runs(
    kafka: str, overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    pipeline = into_broker(tmp_path, kafka, broker.address, "filter = 'n >= 10'")
    for part in range(2):
        values = [{"n": n} for n in range(300 * part, 300 * part + 300)]
        fill(kafka, "quotes", values, key=b"IBM")
        outcome = once(pipeline)
        assert (outcome.problem, outcome.stopped) == (None, False)
        assert outcome.figures["in"].state == "done"
        assert outcome.figures["in"].rows == 300
        assert outcome.figures["in"].lag == 0
    found = published(broker)
    assert [n["n"] for n in found] == list(range(10, 600))  # one key: one partition, in order
    assert {n.type for n in found} == {"quotes"}


def test_notifications_are_written_once_with_their_keys(
    kafka: str, overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    publish(broker, [{"n": n, "symbol": f"S{n % 5}"} for n in range(500)])
    pipeline = into_kafka(tmp_path, kafka, broker.address, "filter = 'n < 400'", ", key = 'symbol'")
    assert once(pipeline).problem is None
    publish(broker, [{"n": n, "symbol": "S1"} for n in range(100)], first=500)
    outcome = once(pipeline)
    assert outcome.figures["out"].rows == 100
    assert numbers(kafka) == Counter(range(400)) + Counter(range(100))
    by_key: dict[bytes | None, set[int | None]] = {}
    for record in records(kafka, "copies"):
        by_key.setdefault(record.key(), set()).add(record.partition())
    assert set(by_key) == {b"S0", b"S1", b"S2", b"S3", b"S4"}
    assert all(len(partitions) == 1 for partitions in by_key.values())


@pytest.mark.slow
def test_both_ways_at_once_do_not_go_round(kafka: str, overlay: Overlay, tmp_path: Path) -> None:
    broker = started(overlay)
    fill(kafka, "quotes", [{"n": n} for n in range(50)])
    publish(broker, [{"n": n} for n in range(100, 150)])
    first = into_broker(tmp_path, kafka, broker.address)
    text = first.file.read_text()
    into_kafka(tmp_path, kafka, broker.address)
    both = text + first.file.read_text().replace("copies", "quotes").replace(
        "[[sink]]", "[[sink]]\nfrom = 'events'"
    )
    first.file.write_text(both.replace("name = 'in'", "name = 'in'\nfrom = 'quotes'"))
    assert once(load(first.file)).problem is None
    there = Counter(json.loads(r.value() or b"")["n"] for r in records(kafka, "quotes"))
    assert there == Counter([*range(50), *range(100, 150)])


def test_the_example_in_the_documentation(kafka: str, overlay: Overlay, tmp_path: Path) -> None:
    broker = started(overlay)
    fill(kafka, "orders", [{"symbol": "IBM", "volume": v} for v in (50, 100, 200)], key=b"a")
    fill(kafka, "orders", [b"no JSON"])
    file = tmp_path / "bridge.toml"
    shutil.copy(EXAMPLE, file)
    pipeline = load(
        file,
        set=[
            f"source.orders.servers={kafka}",
            f"source.alarms.brokers={broker.address}",
            f"sink.orders-in.stentor.brokers={broker.address}",
            f"sink.alarms-out.kafka.servers={kafka}",
        ],
    )
    with stentor.connect_sync(broker.address, timeout=60.0) as bus:
        bus.publish({"symbol": "SAP", "level": 3}, type="alarm", ack=True)
    assert once(pipeline).problem is None
    assert sorted(n["volume"] for n in published(broker, "_type = 'order'")) == [100, 200]
    (record,) = records(kafka, "alarms")
    assert (record.key(), json.loads(record.value())) == (b"SAP", {"symbol": "SAP", "level": 3})
    assert len((tmp_path / "unreadable.jsonl").read_text().splitlines()) == 1


BAD = [{"n": 1}, b"no JSON", {"n": 2}]


def test_a_record_that_cannot_be_read_ends_the_bridge(
    kafka: str, overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    fill(kafka, "quotes", BAD, key=b"k")
    outcome = once(into_broker(tmp_path, kafka, broker.address))
    assert outcome.problem is not None
    assert "quotes[" in outcome.problem
    assert "at offset 1 cannot be read: not JSON" in outcome.problem
    assert "dead_letter" in outcome.problem


@pytest.mark.slow
def test_dead_letters_in_a_file_in_a_topic_and_of_an_event_type(
    kafka: str, overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    fill(kafka, "quotes", BAD, key=b"k")
    file = tmp_path / "bridge.toml"
    wanted = {"a": "file = 'dead/a.jsonl'", "b": "topic = 'dead'", "c": "type = 'unreadable'"}
    parts = []
    for name, aside in wanted.items():
        lines, sink = f"dead_letter = {{ {aside} }}", f", type = '{name}'"
        text = into_broker(tmp_path, kafka, broker.address, lines, sink).file.read_text()
        text = text.replace("source.quotes", f"source.{name}")
        parts.append(text.replace("name = 'in'", f"name = '{name}-in'\nfrom = '{name}'"))
    file.write_text("".join(parts))
    outcome = once(load(file))
    assert outcome.problem is None
    assert [figures.corrupt for figures in outcome.figures.values()] == [1, 1, 1]
    for name in wanted:
        assert [n["n"] for n in published(broker, f"_type = '{name}'")] == [1, 2]
    (line,) = (tmp_path / "dead" / "a.jsonl").read_text().splitlines()
    letter = json.loads(line)
    assert letter["kafka"]["offset"] == 1
    assert letter["cause"].startswith("not JSON")
    assert letter["value_base64"] == "bm8gSlNPTg=="
    (record,) = records(kafka, "dead")
    assert (record.value(), record.key()) == (b"no JSON", b"k")
    headers = dict(record.headers() or [])
    assert json.loads(headers["stentor-about"])["kafka"]["offset"] == 1
    assert headers["stentor-cause"].startswith(b"not JSON")
    (event,) = published(broker, "_type = 'unreadable'")
    assert (event["kafka.offset"], event["bridge"], event.payload) == (1, "bridge.c-in", b"no JSON")


def test_notifications_that_cannot_be_written_are_put_aside(
    kafka: str, overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    publish(broker, [{"n": 1}, {"n": 2, "x": float("inf")}, {"n": 3}])
    outcome = once(into_kafka(tmp_path, kafka, broker.address))
    assert outcome.problem is not None
    assert "the notification feed:0:1 cannot be written to copies: JSON has no number" in (
        outcome.problem
    )
    aside = ", dead_letter = { type = 'unwritable' }"
    assert once(into_kafka(tmp_path, kafka, broker.address, sink=aside)).problem is None
    assert numbers(kafka) == Counter([1, 3])
    (letter,) = published(broker, "_type = 'unwritable'")
    assert (letter["original"], letter["event.n"]) == ("feed:0:1", 2)


class Running:
    """A bridge that runs in a thread, and what it has told."""

    def __init__(self, bridge: Bridge) -> None:
        self.told: list[str] = []
        self.bridge = bridge
        self.thread = threading.Thread(target=bridge.run)
        self.thread.start()

    def wait(self, text: str) -> None:
        asyncio.run(until(lambda: any(text in t for t in self.told), lambda: f"{text}{self.told}"))

    def stop(self) -> None:
        self.bridge.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.mark.slow
def test_whoever_is_away_is_told_at_once_and_waited_for(
    kafka: str, overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    fill(kafka, "quotes", [{"n": n} for n in range(20)])
    lines: list[str] = []
    bridge = Bridge(into_broker(tmp_path, kafka, broker.address), tell=lines.append)
    running = Running(bridge)
    running.told = lines
    try:
        asyncio.run(until(lambda: len(published(broker)) == 20, "all is published"))
        broker.kill()
        fill(kafka, "quotes", [{"n": n} for n in range(20, 40)])
        running.wait("cannot be reached")
        assert bridge.figures["in"].state == "waiting"
        broker.start()
        running.wait("the broker answers again")
        asyncio.run(until(lambda: len(published(broker)) == 40, "the rest is published"))
    finally:
        running.stop()
    assert Counter(n["n"] for n in published(broker)) == Counter(range(40))
    assert bridge.figures["in"].state == "stopped"


@pytest.mark.slow
def test_a_kafka_that_is_away_is_told_within_seconds(overlay: Overlay, tmp_path: Path) -> None:
    broker = started(overlay)
    nobody = f"127.0.0.1:{free_port()}"
    for pipeline in (
        into_broker(tmp_path, nobody, broker.address),
        into_kafka(tmp_path, nobody, broker.address),
    ):
        lines: list[str] = []
        running = Running(Bridge(pipeline, tell=lines.append))
        running.told = lines
        asyncio.run(until(lambda: lines, "it is told", 10.0))  # noqa: B023
        assert f"Kafka at {nobody} does not answer" in lines[0]
        assert lines[0].endswith("; trying on")
        running.stop()


@pytest.mark.slow
def test_a_topic_that_was_made_anew_is_no_repeat_but_an_error(
    overlay: Overlay, tmp_path: Path
) -> None:
    broker = started(overlay)
    with mock_cluster.mock_cluster() as first:
        fill(first, "quotes", [{"n": n} for n in range(30)], partition=0)
        pipeline = into_broker(tmp_path, first, broker.address)
        assert once(pipeline).problem is None
        bridge = Bridge(pipeline, once=True)
        way = bridge._ways[0][1]
        with mock_cluster.mock_cluster() as second:
            # The same cluster, by its name, that has lost its topics.
            fill(second, "quotes", [{"n": 0}], partition=0)
            way._source = {**way._source, "servers": [second]}
            name = published(broker)[0].id
            assert name is not None
            way._producer = lambda topic, partition: name.producer  # type: ignore[union-attr, method-assign]
            outcome = bridge.run()
    assert outcome.problem is not None
    assert "offset 29 of it was published before: it was made anew" in outcome.problem
