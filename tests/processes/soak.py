"""Hours of ordinary life in minutes: load, deaths, slow and absent consumers; nothing may add up.

    python tests/processes/soak.py --minutes 10 [--graph] [--attack NAME]

Five brokers run under load, in a tree or in a graph with cycles. In rounds of about twenty seconds,
one of the `attacks` is made, and then brokers and client processes are killed and started again; at
the end of each round everything must have arrived and be settled, and at the end of all what the
clients recorded passes the checker. One broker is spared: its memory must not grow. A short report
is printed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from attacks import ATTACKS, DEADLINE, GRANTS, JOBS, QUIET_ATTACKS, Ground
from mortals import Mortal, MortalConsumer, MortalProducer, MortalWorker
from nursery import Nursery
from overlay_processes import BrokerProcess, Overlay
from witness import Run
from workload import FILTERS, under_load

from stentor.client import Bus

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
    dead: int = 0
    #: How often each attack was made, and the longest delays that were seen.
    attacks: Counter[str] = field(default_factory=Counter)
    delays: dict[str, float] = field(default_factory=dict)
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
                f"again       {self.again} unconfirmed or refused; {self.dead} are dead letters",
                *(f"attacked    {count} x {name}" for name, count in self.attacks.items()),
                *(f"longest     {took:.2f} s: {what}" for what, took in self.delays.items()),
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
    attacks: Sequence[Callable[[Ground], Awaitable[None]]] = (*ATTACKS, *QUIET_ATTACKS),
    tell: Callable[[str], object] = lambda text: None,
) -> Account:
    """Run for so long, and give an account; whatever goes wrong is raised."""
    rng = random.Random(seed)
    account = Account()
    overlay.operator_options = {"token": "operator-secret"}
    known: dict[str, Any] = {"grants": GRANTS, "token": "neighbor-secret"}
    if graph:
        known["overlay"] = "graph"
    names = overlay.graph(GRAPH if graph else SHAPE, **known)
    await overlay.linked()
    seen = Run(overlay.directory)
    began = time.monotonic()
    async with AsyncExitStack() as stack:

        def client(at: str, name: str) -> Bus:
            return seen.connect(overlay[at].address, name=name, token="house-secret")

        async def slowly() -> None:
            await asyncio.sleep(rng.random() * 0.002)

        for i, name in enumerate(names):
            bus = await stack.enter_async_context(client(name, f"s-{name}"))
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
                token="house-secret",
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
            token="house-secret",
        )
        workers = [
            MortalWorker(
                seen,
                overlay.nursery,
                overlay.directory,
                name=f"worker-{at}",
                addresses=[overlay[at].address],
                durable=JOBS,
                group="workers",
                seed=seed,
                hangs=True,
                attempts=3,
                deadline=DEADLINE,
                overtake=False,
                token="house-secret",
            )
            for at in ("b5", "b2", "b4")  # the first decides where they work
        ]
        for each in (*consumers, *workers):
            each.start()
            await each.alive()
        watcher = await stack.enter_async_context(client("b2", "watcher"))
        letters = f"type = 'DeadLetter' and durable = '{JOBS}'"
        await stack.enter_async_context(seen.subscribed(watcher, letters))
        seen.quiescent()
        publishers = []
        for name in (
            "b1",
            "b2",
            "b3",
        ):  # who is stopped sends publishers on, which ends their order
            publishers.append(await stack.enter_async_context(client(name, f"p-{name}")))
        ground = Ground(
            overlay,
            seen,
            rng,
            consumers={"b1": consumers[0], "b4": consumers[1]},
            workers=workers,
            publishers={
                name: await stack.enter_async_context(client(name, f"a-{name}"))
                for name in ("b1", "b3")
            },
            delays=account.delays,
        )
        orders = await stack.enter_async_context(client("b3", "orders"))
        numbers = count()

        async def order() -> None:
            while True:
                await orders.publish({"k": next(numbers)})
                # Those that cannot be dealt with, or take too long, hold up what follows.
                await asyncio.sleep(0.2 * rng.random())

        victims: list[BrokerProcess | Mortal] = [*consumers, *workers, producer]
        victims += [overlay[name] for name in names[1:]]
        while time.monotonic() < began + seconds or account.rounds < len(attacks):
            attack = attacks[account.rounds % len(attacks)] if attacks else None
            if attack in QUIET_ATTACKS:
                await attack(ground)
                account.attacks[attack.__name__] += 1
            producer.start()
            load = under_load(publishers, account.rounds, batch=8, size=200)
            async with load as load, running(order()):
                if attack is not None and attack not in QUIET_ATTACKS:
                    await attack(ground)
                    account.attacks[attack.__name__] += 1
                end = time.monotonic() + round_seconds
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
            made = "" if attack is None else attack.__name__.replace("_", " ")
            tell(
                f"{made:32} {time.monotonic() - began:5.0f} s  {seen.publications:,} published  "
                f"{account.memory[-1]:,} bytes"
            )
        report = seen.check()
        account.published = report.publications
        account.delivered = report.deliveries
        account.owed = report.owed
        account.again = seen.again
        account.dead = seen.dead
    account.seconds = time.monotonic() - began
    return account


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Meanwhile this goes on; what goes wrong with it is raised at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


def main() -> None:
    arguments = argparse.ArgumentParser(description="A long run under load, with deaths.")
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--graph", action="store_true", help="links form cycles")
    arguments.add_argument("--attack", action="append", help="only this, or these")
    arguments.add_argument("--round", type=float, default=20.0, help="seconds of each round")
    chosen = arguments.parse_args()
    attacks = [
        each
        for each in (*ATTACKS, *QUIET_ATTACKS)
        if chosen.attack is None or each.__name__ in chosen.attack
    ]
    nursery = Nursery()
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            Overlay(Path(directory), nursery) as overlay,
        ):
            seconds = 60 * chosen.minutes
            run = soak(
                overlay,
                seconds,
                seed=chosen.seed,
                graph=chosen.graph,
                round_seconds=chosen.round,
                attacks=attacks,
                tell=partial(print, flush=True),
            )
            account = asyncio.run(run)
        print(account)
    finally:
        nursery.close()


if __name__ == "__main__":
    main()
