"""The pipeline of the demo against a broker: what it keeps, matches, and publishes again."""

from __future__ import annotations

import asyncio
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stentor.client.direct import Direct
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, decode, encode
from stentor.pipeline.runs import Runner, load

if TYPE_CHECKING:
    from overlay_processes import BrokerProcess, Overlay
    from pyspark.sql import SparkSession

MARKET = Path(__file__).parents[3] / "docs" / "examples" / "market.toml"
BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
WANTS = {"ibm": "symbol = 'IBM'", "dear": "price > 90 and volume > 5", "none": "price < 0"}


def trades(first: int, last: int) -> list[Notification]:
    """Trades, five each second; the same whenever they are made."""
    rng = random.Random(7)
    found = [
        Notification(
            {
                "symbol": rng.choice(["IBM", "SAP"]),
                "price": float(rng.randint(1, 100)),
                "volume": rng.randint(1, 10),
            },
            id=NotificationId("desk", 0, n),
            time=BEGIN + timedelta(seconds=n / 5),
        )
        for n in range(last)
    ]
    return found[first:]


def publish(broker: BrokerProcess, events: list[Notification]) -> None:
    with Direct(broker.address, name="desk") as direct:
        direct.publish([encode(each) for each in events])


def bars(events: list[Notification], until: datetime) -> dict[tuple[str, datetime], Any]:
    """The bars of all windows that end by a time."""
    groups: dict[tuple[str, datetime], list[Notification]] = {}
    for each in events:
        assert each.time is not None
        start = each.time.replace(second=each.time.second // 10 * 10, microsecond=0)
        if start + timedelta(seconds=10) <= until:
            groups.setdefault((each["symbol"], start), []).append(each)
    return {
        key: (own[0]["price"], own[-1]["price"], sum(e["volume"] for e in own), len(own))
        for key, own in groups.items()
    }


def published_bars(broker: BrokerProcess) -> list[Notification]:
    with Direct(broker.address, name="reader") as direct:
        (state,) = direct.streams()
        chunks = direct.read(state.stream, state.low, state.head, "_type = 'bar'")
        return [decode(item) for chunk in chunks for item in chunk.items]


@pytest.mark.slow
@pytest.mark.spec("R-07.85")
def test_the_market_is_kept_matched_and_summed_up(
    spark: SparkSession, overlay: Overlay, tmp_path: Path
) -> None:
    from stentor.pipeline import history, register

    register(spark)
    broker = overlay.broker("b1")
    broker.start()
    asyncio.run(_reachable(broker))
    shutil.copy(MARKET, tmp_path)
    rows = list(WANTS.items())
    table = spark.createDataFrame(rows, "subscription_id string, filter string").coalesce(1)
    table.write.parquet(str(tmp_path / "subscriptions.parquet"))
    changes = [
        f'source.trades.brokers="{broker.address}"',
        f'sink.bars.stentor.brokers="{broker.address}"',
    ]
    pipeline = load(tmp_path / "market.toml", set=changes)

    count = 0
    for upto in (200, 400):
        publish(broker, trades(count, upto))
        count = upto
        outcome = Runner(pipeline, spark, once=True).run()
        assert outcome.problem is None
        every = trades(0, count)
        kept = history(spark, str(tmp_path / "archive"), "").select("_id").collect()
        assert sorted(row["_id"] for row in kept) == sorted(str(each.id) for each in every)
        found = spark.read.parquet(str(tmp_path / "matches")).collect()
        assert sorted((row["subscription_id"], row["_id"]) for row in found) == sorted(
            (name, str(each.id))
            for name, text in WANTS.items()
            for each in every
            if Filter(text).matches(each)
        )
        last = every[-1].time
        assert last is not None
        told = published_bars(broker)
        assert {
            (n["symbol"], n["window_start"]): (n["open"], n["close"], n["volume"], n["trades"])
            for n in told
        } == bars(every, last - timedelta(seconds=5))
        assert len(told) == len({(n["symbol"], n["window_start"]) for n in told})


async def _reachable(broker: BrokerProcess) -> None:
    from overlay_processes import until

    await until(broker.reachable, "the broker is up")
