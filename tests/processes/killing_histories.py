"""Generated histories of real broker and client processes that are killed while they settle.

A history is made from a seed: two or three brokers, a durable subscription or a durable group whose
handlers fail on some orders, one or several of them in processes of their own, publishers, and
somebody who records dead letters. While orders are published, brokers and workers die by SIGKILL
and come back, brokers are stopped by SIGTERM, hang, or are drained for good, and the home of the
durable moves. At the end everything is there again, and what all clients recorded is judged: each
acknowledged order was confirmed once, or is a dead letter once, told and counted as it should be.

Run as a program it takes a number of histories, a first seed, and perhaps a directory in which the
recordings and logs of wrong ones are kept. It goes on after a wrong one:

    python tests/processes/killing_histories.py 100 0 wrong
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from mortals import MortalWorker
from nursery import Nursery
from overlay_processes import Overlay
from witness import Run
from worker import Worker

from stentor import Bus, Retry
from stentor.errors import StentorError
from stentor.semantics import Report

NAME = "billing"
#: Orders that each publisher publishes, and about how many seconds that takes.
ORDERS = 60
SECONDS = 1.0


class History:
    """One generated run."""

    def __init__(self, overlay: Overlay, seed: int) -> None:
        self.overlay = overlay
        self.rng = rng = random.Random(seed)
        self.seed = seed
        self.seen = Run(overlay.directory)
        self.kinds: Counter[str] = Counter()
        self.group = rng.random() < 0.5
        self.overtake = rng.random() < 0.4
        self.deadline = rng.choice([None, None, 0.3])
        self.attempts = rng.choice([2, 3, 4])
        #: Whether publishers may turn to another broker, which ends their order.
        self.roams = False
        self.gone: set[str] = set()
        self.workers: list[MortalWorker] = []

    async def run(self) -> Report:
        rng, overlay = self.rng, self.overlay
        names = overlay.line(rng.choice([2, 2, 3]))
        await overlay.linked()
        self.home = rng.choice(names)
        drains = rng.random() < 0.15
        self.roams = drains
        async with AsyncExitStack() as stack:
            await self._work(stack, names)
            watcher = await self._bus(stack, "watcher", names)
            letters = f"type = 'DeadLetter' and durable = '{NAME}'"
            await stack.enter_async_context(self.seen.subscribed(watcher, letters))
            publishers = [await self._bus(stack, f"p{i}", names) for i in range(rng.choice([1, 2]))]
            self.seen.quiescent()
            publishing = [asyncio.create_task(self._publish(bus)) for bus in publishers]
            for _ in range(rng.randint(2, 5)):
                await asyncio.sleep(SECONDS * rng.random() * 0.5)
                await self._hurt()
            if drains:
                await self._drain()
            await asyncio.gather(*publishing)
            for worker in self.workers:
                if worker.child is not None and not worker.child.running:
                    worker.start()
            await overlay.linked()
            await self.seen.settled()
            order = () if self.roams else ("fifo",)
            report = self.seen.check(order=order)  # while all are there, so that all is owed
        for worker in self.workers:
            worker.kill()
        self.seen.check(order=order)  # with the last answers
        return report

    def _places(self, names: list[str], first: str | None = None) -> list[str]:
        """Addresses of brokers, of which the first is tried first."""
        first = first or self.rng.choice(names)
        others = [name for name in names if name != first]
        return [self.overlay[name].address for name in (first, *(others if self.roams else ()))]

    async def _bus(self, stack: AsyncExitStack, name: str, names: list[str]) -> Bus:
        bus = self.seen.connect(*self._places(names), name=name, delays=(0.02, 0.2), timeout=30.0)
        return await stack.enter_async_context(bus)

    async def _work(self, stack: AsyncExitStack, names: list[str]) -> None:
        """Attach those who work: one, or the members of a group; some can be killed."""
        rng = self.rng
        terms: dict[str, Any] = {"durable": NAME}
        members = 1
        if self.group:
            terms["group"] = "workers"
            members = rng.choice([2, 3])
        retry = {
            "attempts": self.attempts,
            "deadline": self.deadline,
            "overtake": self.overtake,
        }
        for i in range(members):
            where = self._places(names, self.home if i == 0 else None)
            if rng.random() < 0.5:
                worker = MortalWorker(
                    self.seen,
                    self.overlay.nursery,
                    self.overlay.directory,
                    name=f"w{i}",
                    addresses=where,
                    seed=self.seed,
                    hangs=True,
                    **retry,
                    **terms,
                )
                worker.start()
                await worker.alive()
                self.workers.append(worker)
                continue
            bus = self.seen.connect(*where, name=f"w{i}", delays=(0.02, 0.2), timeout=30.0)
            await stack.enter_async_context(bus)
            slow = self.deadline or 0.0
            await stack.enter_async_context(
                bus.subscribe(
                    "k >= 0",
                    handler=Worker(self.seed + i, slow=slow).handle,
                    retry=Retry(backoff="10ms..50ms", **retry),
                    dead_letter=True,
                    **terms,
                )
            )

    async def _publish(self, bus: Bus) -> None:
        rng = random.Random(self.seed)
        for k in range(ORDERS):
            await bus.publish({"k": k}, ack=rng.random() < 0.3)
            await asyncio.sleep(SECONDS / ORDERS * rng.random() * 2)
        await bus.flush(60.0)

    # -- what happens to them

    def _running(self) -> list[str]:
        return [name for name in self.overlay.brokers if name not in self.gone]

    async def _hurt(self) -> None:
        rng = self.rng
        acts = [(self._kill_home, 4), (self._kill, 2), (self._stop, 1), (self._hang, 1)]
        acts += [(self._move, 2)]
        if self.workers:
            acts += [(self._kill_worker, 4)]
        [act] = rng.choices([a for a, _ in acts], [w for _, w in acts])
        self.kinds[act.__name__] += 1
        await act()

    async def _kill_home(self) -> None:
        await self._kill(self.home if self.home not in self.gone else None)

    async def _kill(self, name: str | None = None) -> None:
        broker = self.overlay[name or self.rng.choice(self._running())]
        broker.kill()
        await asyncio.sleep(self.rng.choice([0.0, 0.05, 0.3]) * self.rng.random())
        broker.start()

    async def _stop(self) -> None:
        self.roams = True  # it sends its clients on
        broker = self.overlay[self.rng.choice(self._running())]
        await broker.terminate()
        await asyncio.sleep(0.1 * self.rng.random())
        broker.start()

    async def _hang(self) -> None:
        broker = self.overlay[self.rng.choice(self._running())]
        broker.process.pause()
        await asyncio.sleep(0.3 * self.rng.random())
        broker.process.resume()

    async def _kill_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        assert worker.child is not None
        if worker.child.running:
            worker.kill()
        await asyncio.sleep(0.1 * self.rng.random())
        worker.start()

    async def _move(self) -> None:
        """An operator lets it live elsewhere, if its home can be reached: else it is not exact."""
        to = self.rng.choice(self._running())
        broker = self.overlay[to]
        with suppress(StentorError):
            found = await broker.ask("durables", timeout=2.0, name=NAME)
            if found["reachable"]:
                await broker.ask("durables", timeout=15.0, name=NAME, do="move")
                self.home = to

    async def _drain(self) -> None:
        """The last of the line leaves for good."""
        name = self._running()[-1]
        await self.overlay.linked()
        self.kinds["_drain"] += 1
        await self.overlay[name].ask("drain", timeout=60.0)
        self.gone.add(name)
        while self.overlay[name].running:
            await asyncio.sleep(0.02)


def run_history(nursery: Nursery, seed: int, keep: Path | None = None) -> tuple[History, Report]:
    with (
        tempfile.TemporaryDirectory() as directory,
        Overlay(Path(directory), nursery) as overlay,
    ):
        history = History(overlay, seed)
        try:
            return history, asyncio.run(history.run())
        except BaseException as error:
            error.add_note(f"history with seed {seed}: {dict(history.kinds)}")
            error.add_note(f"group {history.group}, overtaking {history.overtake}")
            if keep is not None:
                shutil.copytree(directory, keep / str(seed), dirs_exist_ok=True)
            raise


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    keep = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    # Handlers fail all the time; but no subscription ends.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("stentor.client").addFilter(lambda said: "has ended" in said.msg)
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    wrong: list[int] = []
    published = owed = again = dead = 0
    nursery = Nursery()
    try:
        for seed in range(first, first + wanted):
            try:
                history, report = run_history(nursery, seed, keep)
            except Exception as error:
                wrong.append(seed)
                print(f"seed {seed}: {error}", *getattr(error, "__notes__", ()), sep="\n  ")
                continue
            kinds += history.kinds
            if not (seed + 1 - first) % 20:
                print(f"{seed + 1 - first} histories, {len(wrong)} wrong")
            published += report.publications
            owed += report.owed
            again += history.seen.again
            dead += history.seen.dead
    finally:
        nursery.close()
    seconds = time.monotonic() - began
    told = f"wrong are {wrong}" if wrong else "none wrong"
    print(f"{wanted} histories, {told}, in {seconds:.0f} s")
    print(f"published {published}, owed {owed}, given again {again}, dead {dead}")
    for name, number in kinds.most_common():
        print(f"  {number:5} {name.strip('_')}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
