"""Bridges: pipelines that carry events between brokers and topics of Kafka, without Spark.

    outcome = Bridge(load("bridge.toml")).run()

    records       a record of Kafka as a notification, and back
    values        what is in a record: JSON, Avro or JSON Schema by a registry, or bytes
    inbound       the records of topics are published, each once
    outbound      what a durable subscription gets is written to a topic, each once
    dead_letters  where it goes what cannot be read or written
    crossing      how one way over a bridge fares: its figures, its end, what it waits for
    bridge        all ways of a pipeline together

Each side remembers what it has of the other: a broker knows the newest id of each producer, and
Kafka knows how far a group has read. So a bridge keeps nothing on disk, and may be killed at any
moment. How that comes to exactly once is told in `inbound` and `outbound`.
"""

from __future__ import annotations

from stentor.pipeline.bridges.bridge import Bridge

__all__ = ["Bridge"]
