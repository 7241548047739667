"""The same trades on Spark: kept, matched against ten thousand subscriptions, made into bars.

When the exchanges have closed, `stentor pipeline run` works on `market.toml` as anybody would run
it. It reads the journals of all five brokers, writes an archive, finds out which of the stored
subscriptions each trade would go to, and publishes bars back into the overlay, where one more
client is waiting for them.

Everything is counted a second time without Spark: the trades by the account, the matches by the
index that brokers use, the bars by plain arithmetic.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter as clock
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from market.cast import EXCHANGES
from stentor.client import Bus, connect
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model import Notification

DEFINITION: Final = Path(__file__).with_name("market.toml")
#: What stands in the file for the addresses of the brokers.
_ADDRESSES: Final = '["127.0.0.1:7411"]'
SUBSCRIPTIONS: Final = 10_000
#: Seconds between two words on how far Spark is.
TOLD_EVERY: Final = 5.0
#: As in the file: what a bar is made of, and how late trades may come.
WINDOW: Final = timedelta(seconds=2)
WATERMARK: Final = timedelta(seconds=1)
#: Seconds for the bars to arrive when Spark has published them.
PATIENCE: Final = 30.0

Bar = dict[str, Any]
#: A symbol and the beginning of a window.
BarKey = tuple[str, datetime]


class PipelineFailed(Exception):
    """`stentor pipeline` did not do what it should; the text is what it said."""


@dataclass(frozen=True)
class Pipelined:
    """What came of it."""

    seconds: float
    trades: int
    archived: int
    subscriptions: int
    #: Pairs of a trade and a subscription: by Spark, and by the index.
    matched: int
    expected: int
    #: Bars that have arrived as they should be, and how many there should be.
    right: int
    due: int
    #: Bars that came more than once.
    twice: int
    bars: dict[BarKey, Bar]

    @property
    def ok(self) -> bool:
        return (
            self.archived == self.trades
            and self.matched == self.expected > 0
            and self.right == self.due == len(self.bars)
            and not self.twice
        )


def subscriptions(count: int, seed: int = 7) -> dict[str, str]:
    """Stored subscriptions: narrow bands of prices, large trades, moves of a sector."""
    dice = random.Random(seed)
    traded = [
        (symbol, sector, price)
        for exchange in EXCHANGES
        for symbol, (sector, price) in exchange.traded.items()
    ]
    found = {}
    for number in range(count):
        symbol, sector, price = dice.choice(traded)
        low = price * dice.uniform(0.9, 1.1)
        found[f"s-{number}"] = dice.choice(
            (
                f"symbol = '{symbol}' and price between {low:.3f} and {low * 1.0005:.3f}",
                f"symbol = '{symbol}' and volume > {dice.randrange(9_800, 9_900)} and change > 1",
                f"sector = '{sector}' and change < {dice.uniform(-2.5, -2):.2f} and volume > 9000",
            )
        )
    return found


def bars_of(trades: Sequence[Notification]) -> dict[BarKey, Bar]:
    """The bars that these trades complete; those of an exchange are in order."""
    found: dict[BarKey, Bar] = {}
    times = [trade.time for trade in trades if trade.time is not None]
    for trade in trades:
        assert trade.time is not None
        seconds = WINDOW.total_seconds()
        begin = datetime.fromtimestamp(trade.time.timestamp() // seconds * seconds, UTC)
        price, volume = trade["price"], trade["volume"]
        bar = found.setdefault(
            (trade["symbol"], begin),
            {"open": price, "high": price, "low": price, "volume": 0, "trades": 0},
        )
        bar["high"], bar["low"] = max(bar["high"], price), min(bar["low"], price)
        bar["close"] = price
        bar["volume"] += volume
        bar["trades"] += 1
    settled = max(times) - WATERMARK
    return {
        (symbol, begin): bar for (symbol, begin), bar in found.items() if begin + WINDOW <= settled
    }


class Charts:
    """A client that wants bars."""

    def __init__(self, address: str) -> None:
        self._bus: Bus = connect(address, name="charts")
        self.bars: dict[BarKey, Bar] = {}
        self.twice = 0

    async def open(self) -> None:
        await self._bus.open()
        await self._bus.subscribe("_type = 'bar'", handler=self._arrived)

    def _arrived(self, n: Notification) -> None:
        key = n["symbol"], n["window_start"]
        self.twice += key in self.bars
        self.bars[key] = {
            name: n[name] for name in ("open", "high", "low", "close", "volume", "trades")
        }

    async def close(self) -> None:
        await self._bus.close()


async def run(
    trades: Sequence[Notification],
    addresses: Sequence[str],
    home: Path,
    tell: Callable[[str], None],
) -> Pipelined:
    """Run the pipeline on what five brokers have, and count what came of it.

    `tell` hears now and then how far it is.
    """
    began = clock()
    queries: dict[str, str] = {}
    wanted = subscriptions(SUBSCRIPTIONS)
    table = pa.table({"subscription_id": list(wanted), "filter": list(wanted.values())})
    pq.write_table(table, home / "subscriptions.parquet")
    file = home / "market.toml"
    listed = "[" + ", ".join(f'"{address}"' for address in addresses) + "]"
    file.write_text(DEFINITION.read_text("utf-8").replace(_ADDRESSES, listed), "utf-8")
    charts = Charts(addresses[0])
    await charts.open()
    telling = asyncio.create_task(_tell_progress(tell, charts, queries, began))
    try:
        await _run_pipeline(file, queries)
        due = bars_of(trades)
        deadline = clock() + PATIENCE
        while charts.bars != due and clock() < deadline:
            await asyncio.sleep(0.05)
    finally:
        telling.cancel()
        await charts.close()
    return Pipelined(
        seconds=clock() - began,
        trades=len(trades),
        archived=_archived(home / "archive"),
        subscriptions=len(wanted),
        matched=ds.dataset(home / "wanted", format="parquet").count_rows(),
        expected=_matches(trades, wanted),
        right=sum(charts.bars.get(key) == bar for key, bar in due.items()),
        due=len(due),
        twice=charts.twice,
        bars=charts.bars,
    )


async def _tell_progress(
    tell: Callable[[str], None], charts: Charts, queries: dict[str, str], began: float
) -> None:
    """Say where it is, until that is over."""
    while True:
        await asyncio.sleep(TOLD_EVERY)
        where = ", ".join(f"{name} {state}" for name, state in queries.items()) or "it starts"
        if charts.bars:
            where += f"; {len(charts.bars):,} bars have arrived"
        tell(f"Spark has been at work for {clock() - began:.0f} s: {where}")


async def _run_pipeline(file: Path, queries: dict[str, str]) -> None:
    """Run the command, which says on its standard output how its queries are."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stentor", "pipeline", "run", str(file), "--once", "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**20,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    problems = asyncio.create_task(process.stderr.read())
    try:
        async for line in process.stdout:
            told = msgspec.json.decode(line)
            if "query" in told:
                queries[told["query"]] = told["state"]
        said = await problems
        await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    finally:
        problems.cancel()
    if process.returncode:
        raise PipelineFailed(said.decode(errors="replace").strip()[-2_000:])


def _archived(path: Path) -> int:
    """How many events an archive has: its log says so, without Spark."""
    from stentor.pipeline.archives.replayer import outlook

    return outlook(path).most


def _matches(trades: Sequence[Notification], wanted: dict[str, str]) -> int:
    index = Index((id, Filter(text)) for id, text in wanted.items())
    rows, _ = index.match_batch(list(trades))
    return len(rows)
