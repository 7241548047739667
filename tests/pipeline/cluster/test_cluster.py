"""A real cluster: master, two workers and brokers as processes; a worker is lost on the way."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from overlay_processes import LIMITS, Overlay
from standalone import Cluster

from stentor.client.direct import Direct
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, decode, encode

JOB = Path(__file__).with_name("cluster_job.py")
SYMBOLS = [f"S{i}" for i in range(40)]
EVENTS = 12_000


def subscriptions(dice: random.Random) -> dict[str, str]:
    """More than fit into plain expressions: the index goes to the executors."""
    found = {}
    for i in range(300):
        low = dice.randrange(0, 90)
        found[f"s{i}"] = f"symbol = '{dice.choice(SYMBOLS)}' and price between {low} and {low + 10}"
    return found


def published(broker: Direct) -> list[Notification]:
    return [
        decode(item)
        for state in broker.streams()
        for stretch in broker.read(state.stream, state.low, state.head)
        for item in stretch.items
    ]


@pytest.mark.spec("R-07.85")
@pytest.mark.slow
def test_a_worker_dies_and_the_result_is_the_same(tmp_path: Path, overlay: Overlay) -> None:
    dice = random.Random(11)
    limits = replace(LIMITS, timeout=30.0)
    addresses = []
    for name in ("b1", "b2"):  # two brokers that are not linked: two journals
        broker = overlay.broker(name, limits=limits)
        broker.start()
        addresses.append(broker.address)
    events = [
        {"n": n, "symbol": dice.choice(SYMBOLS), "price": round(dice.uniform(0, 100), 2)}
        for n in range(EVENTS)
    ]
    for i, address in enumerate(addresses):
        with Direct(address, name=f"desk-{i}") as direct:
            direct.publish(
                [
                    encode(Notification(event, id=NotificationId(f"desk-{i}", 0, j)))
                    for j, event in enumerate(events[i::2])
                ]
            )
    wanted = subscriptions(dice)
    table = pa.table({"subscription_id": list(wanted), "filter": list(wanted.values())})
    pq.write_table(table, tmp_path / "subscriptions.parquet")
    filters = {id: Filter(text) for id, text in wanted.items()}
    expected = {
        (id, event["n"]) for event in events for id, f in filters.items() if f.matches(event)
    }

    with Cluster(tmp_path) as cluster:
        cluster.worker("w1")
        cluster.worker("w2")
        cluster.await_workers(2)
        driver = cluster.driver(
            JOB,
            ",".join(addresses),
            str(tmp_path / "subscriptions.parquet"),
            str(tmp_path / "checkpoint"),
            "1500",
        )
        driver.await_log("batch 1 is done")
        cluster.kill("w2")
        assert driver.wait() == 0, driver.logged()[-6000:]

    found: Counter[tuple[str, int]] = Counter()
    for address in addresses:
        with Direct(address) as direct:
            for notification in published(direct):
                if "wanted_by" in notification:
                    found[notification["wanted_by"], notification["n"]] += 1
    assert set(found) == expected
    assert max(found.values()) == 1, "published more than once"
