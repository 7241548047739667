"""A Kafka cluster on loopback: librdkafka's mock, in a process of its own.

It speaks Kafka's protocol to any client, with partitions, consumer groups and their offsets. It is
no real broker in three ways that matter here: what belongs to a transaction is visible at once, and
stays when that is aborted; offsets that are part of a transaction are dropped; and nobody is shut
out by a producer of the same name.

Run as a program it prints its address, and ends when its standard input does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def mock_cluster() -> Iterator[str]:
    """The address of a cluster, while it lasts."""
    process = start()
    try:
        yield address_of(process)
    finally:
        process.kill()
        process.wait()


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main() -> None:
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 3})
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
