"""Filling and reading topics, and bridges to them, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from overlay_processes import until

from stentor.client.direct import Direct
from stentor.model import Notification, NotificationId, decode, encode
from stentor.pipeline.bridges import Bridge
from stentor.pipeline.runs import Outcome, Pipeline, load

if TYPE_CHECKING:
    from overlay_processes import BrokerProcess, Overlay


def fill(server: str, topic: str, values: Iterable[Any], **more: Any) -> None:
    """Records with these values; bytes as they are, else as JSON."""
    producer = Producer({"bootstrap.servers": server, "log_level": 0})
    for value in values:
        data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        producer.produce(topic, data, **more)
        producer.poll(0)
    assert producer.flush(30) == 0


def records(server: str, topic: str) -> list[Any]:
    """All that a topic has."""
    options = {"group.id": "test", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": server, **options})
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        found = []
        while left:
            record: Any = consumer.poll(30)
            assert record is not None
            if record.error() is None:
                found.append(record)
            else:
                assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                left.discard(record.partition())
        return found
    finally:
        consumer.close()


def started(overlay: Overlay, name: str = "b1") -> BrokerProcess:
    broker = overlay.broker(name)
    broker.start()
    asyncio.run(until(broker.reachable, "the broker is up"))
    return broker


def published(broker: BrokerProcess, filter: str = "") -> list[Notification]:
    """All that is in the broker's journal."""
    with Direct(broker.address) as direct:
        (state,) = direct.streams()
        chunks = direct.read(state.stream, state.low, state.head, filter)
        return [decode(item) for chunk in chunks for item in chunk.items]


def publish(broker: BrokerProcess, events: Iterable[dict[str, Any]], first: int = 0) -> None:
    """Events of one producer, with their numbers."""
    items = [
        encode(Notification(event, id=NotificationId("feed", 0, number)))
        for number, event in enumerate(events, first)
    ]
    with Direct(broker.address, name="feed") as direct:
        direct.publish(items)


def into_broker(path: Path, server: str, broker: str, more: str = "", sink: str = "") -> Pipeline:
    """A bridge from the topic `quotes` to a broker; `more` are lines of the source."""
    file = path / "bridge.toml"
    file.write_text(
        f"[source.quotes]\nkafka = 'quotes'\nservers = '{server}'\n{more}\n"
        f"[[sink]]\nname = 'in'\nstentor = {{ brokers = ['{broker}'] {sink} }}\n"
    )
    return load(file)


def into_kafka(path: Path, server: str, broker: str, more: str = "", sink: str = "") -> Pipeline:
    """A bridge from a broker to the topic `copies`; `more` are lines of the source."""
    file = path / "bridge.toml"
    file.write_text(
        f"[source.events]\nbrokers = ['{broker}']\n{more}\n"
        f"[[sink]]\nname = 'out'\nkafka = {{ topic = 'copies', servers = '{server}' {sink} }}\n"
    )
    return load(file)


def once(pipeline: Pipeline, **options: Any) -> Outcome:
    """Run it over all that is there."""
    return Bridge(pipeline, once=True, **options).run()
