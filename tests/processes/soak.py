"""Hours of ordinary life in minutes: load, deaths, slow and absent consumers; nothing may add up.

    python tests/processes/soak.py --minutes 10 [--graph]

Five brokers run under load, in a tree or in a graph with cycles. In rounds of about twenty seconds,
brokers and client processes are killed and started again; at the end of each round everything must
have arrived, and at the end of all what the clients recorded passes the checker. One broker is
spared: its memory must not grow. A short report is printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from mortals import Mortal, MortalConsumer, MortalProducer
from nursery import Nursery
from overlay_processes import BrokerProcess, Overlay
from witness import Run
from workload import FILTERS, under_load

#: Whom each broker dials; the first one is spared.
SHAPE = [[], [0], [0], [1], [2]]
#: The same with two cycles.
GRAPH = [[], [0], [0, 1], [1], [2, 3]]


@dataclass
class Account:
    """What happened."""

    seconds: float = 0.0
    rounds: int = 0
    published: int = 0
    delivered: int = 0
    owed: int = 0
    broker_kills: int = 0
    client_kills: int = 0
    again: int = 0
    #: Bytes of the spared broker at the end of each round.
    memory: list[int] = field(default_factory=list)

    @property
    def growth(self) -> int:
        """From the end of the first quarter, when everything has happened once, to the end."""
        return max(self.memory[-3:]) - self.memory[len(self.memory) // 4]

    def __str__(self) -> str:
        megabytes = " ".join(f"{size / 2**20:.0f}" for size in self.memory)
        return "\n".join(
            [
                f"soaked for {self.seconds:.0f} s in {self.rounds} rounds, which conform",
                f"published   {self.published:,}",
                f"delivered   {self.delivered:,} of {self.owed:,} owed",
                f"killed      {self.broker_kills} brokers, {self.client_kills} clients",
                f"again       {self.again} unconfirmed, to consumers that died",
                f"memory      {megabytes} MiB, of the broker that was spared",
            ]
        )


async def soak(
    overlay: Overlay,
    seconds: float,
    *,
    seed: int = 1,
    round_seconds: float = 20.0,
    graph: bool = False,
    tell: Callable[[str], object] = lambda text: None,
) -> Account:
    """Run for so long, and give an account; whatever goes wrong is raised."""
    rng = random.Random(seed)
    account = Account()
    names = overlay.graph(GRAPH, overlay="graph") if graph else overlay.graph(SHAPE)
    await overlay.linked()
    seen = Run(overlay.directory)
    began = time.monotonic()
    async with AsyncExitStack() as stack:

        async def slowly() -> None:
            await asyncio.sleep(rng.random() * 0.002)

        for i, name in enumerate(names):
            bus = await stack.enter_async_context(
                seen.connect(overlay[name].address, name=f"s-{name}")
            )
            filter = FILTERS[i]
            pace = slowly if i == 1 else None
            options = {"window": 50, "limit": 100} if pace else {}
            await stack.enter_async_context(seen.subscribed(bus, filter, pace=pace, **options))
        consumers = [
            MortalConsumer(
                seen,
                overlay.nursery,
                overlay.directory,
                filter=filter,
                name=f"consumer-{at}",
                addresses=[overlay[at].address],
                durable=f"durable-{at}",
                every=every,
            )
            for at, filter, every in (("b1", "price > 150", 5), ("b4", "price > 50", 50))
        ]
        producer = MortalProducer(
            seen,
            overlay.nursery,
            overlay.directory,
            name="producer",
            addresses=[overlay["b3"].address],
            seed=seed,
        )
        for consumer in consumers:
            consumer.start()
            await consumer.alive()
        seen.quiescent()
        publishers = []
        for name in ("b1", "b4", "b5"):
            bus = await stack.enter_async_context(
                seen.connect(overlay[name].address, name=f"p-{name}")
            )
            publishers.append(bus)

        victims: list[BrokerProcess | Mortal] = [*consumers, producer]
        victims += [overlay[name] for name in names[1:]]
        while time.monotonic() < began + seconds:
            end = min(began + seconds, time.monotonic() + round_seconds)
            producer.start()
            async with under_load(publishers, account.rounds, batch=8, size=200) as load:
                while time.monotonic() < end:
                    await asyncio.sleep(rng.random() * 2.0)
                    victim = rng.choice(victims)
                    victim.kill()
                    account.broker_kills += isinstance(victim, BrokerProcess)
                    account.client_kills += isinstance(victim, Mortal)
                    await asyncio.sleep(rng.choice([0.0, 0.1, 1.0]) * rng.random())
                    victim.start()
                    load.check()
            producer.kill()
            await overlay.linked()
            await seen.settled()
            account.rounds += 1
            account.memory.append(overlay["b1"].process.private_bytes)
            tell(
                f"{time.monotonic() - began:5.0f} s  {seen.publications:,} published  "
                f"{account.memory[-1]:,} bytes"
            )
        report = seen.check()
        account.published = report.publications
        account.delivered = report.deliveries
        account.owed = report.owed
        account.again = seen.again
    account.seconds = time.monotonic() - began
    return account


def main() -> None:
    arguments = argparse.ArgumentParser(description="A long run under load, with deaths.")
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--graph", action="store_true", help="links form cycles")
    chosen = arguments.parse_args()
    nursery = Nursery()
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            Overlay(Path(directory), nursery) as overlay,
        ):
            seconds = 60 * chosen.minutes
            run = soak(overlay, seconds, seed=chosen.seed, graph=chosen.graph, tell=print)
            account = asyncio.run(run)
        print(account)
    finally:
        nursery.close()


if __name__ == "__main__":
    main()
