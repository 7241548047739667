"""What happens, in order.

Four exchanges publish at their brokers, five desks listen at theirs. One desk goes away; a broker
in the middle of the overlay is killed and, some seconds later, started again by its supervisor; the
desk comes back; another joins late and wants the past as well. When the exchanges are done, every
publication is acknowledged and everybody has everything, or the demo says what is missing. Then
Spark takes the whole day from the journals.

All clients live in this process, so one clock times every delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from time import perf_counter as clock  # the loop's own clock has milliseconds only
from typing import Final, Protocol

from market.account import Account, Latencies, Verdict
from market.brokers import LINKS, NAMES, Brokers, links_within
from market.cast import DESKS, EXCHANGES, Desk, Exchange, Prices
from market.pipeline import SUBSCRIPTIONS, Pipelined, PipelineFailed
from market.pipeline import run as run_pipeline
from stentor.client import Bus, Subscription, connect
from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model import Notification, NotificationId

#: The broker that is killed. It is an entry of publications, on the way of others, and serves a
#: consumer, all at once.
VICTIM: Final = "lisbon"

#: Seconds between two rounds of a publisher.
ROUND: Final = 0.02
#: Seconds for the last deliveries, and for clients to go.
PATIENCE: Final = 30.0
PARTING: Final = 1.0


@dataclass(frozen=True)
class Script:
    """How long each part takes, in seconds, and how much is published."""

    #: Trades per second at each exchange.
    rate: float = 150.0
    calm: float = 4.0
    #: From the leaving of the durable desk to the kill.
    alone: float = 1.0
    #: From the kill to the next start of the broker.
    dead: float = 2.5
    #: After everybody has caught up.
    healed: float = 1.5
    #: After the durable desk is back.
    complete: float = 1.5
    #: After the late desk has joined.
    late: float = 2.0
    #: Whether Spark comes last.
    pipeline: bool = True
    seed: int = 7


#: For tests: the same story in a few seconds.
QUICK: Final = Script(rate=60.0, calm=0.5, alone=0.2, dead=0.2, healed=0.2, complete=0.2, late=0.2)


class Teller(Protocol):
    """Who tells people about it."""

    def tell(self, text: str) -> None:
        """Something has happened."""

    def show(self, scene: Scene) -> None:
        """Something may have changed that can be seen."""


class Listener:
    """A desk at work."""

    def __init__(self, desk: Desk, account: Account) -> None:
        self.desk = desk
        self.filter = Filter(desk.filter)
        self.bus: Bus | None = None
        self.has_come = False
        self._account = account
        self._subscription: Subscription[Notification] | None = None
        self.record = account.subscribed(desk.name, self.filter)

    async def arrive(self, brokers: Brokers) -> None:
        """Connect and subscribe; with a name or a past if the desk wants it."""
        desk = self.desk
        bus = connect(*map(brokers.address, desk.brokers), name=desk.name, timeout=PATIENCE)
        self.bus = await bus.open()
        self._subscription = await bus.subscribe(
            self.filter,
            durable=desk.name if desk.durable else None,
            since="earliest" if desk.history else None,
            handler=lambda n: self._account.delivered(desk.name, n),
            timeout=PATIENCE,
        )
        self.record.present = self.has_come = True

    async def leave(self) -> None:
        """Go, in good order; does nothing if it is not here."""
        bus, subscription, self.bus = self.bus, self._subscription, None
        self.record.left()
        if subscription is not None:
            await subscription.close()
        if bus is not None:
            await bus.close()

    @property
    def place(self) -> str:
        """Which broker serves it."""
        if self.bus is None:
            return "away"
        if self.bus.state != "connected":
            return "nowhere"
        return self.bus.broker or ""


class Publisher:
    """An exchange at work."""

    def __init__(self, exchange: Exchange, script: Script) -> None:
        self.exchange = exchange
        self._rate = script.rate
        self._prices = Prices(exchange, script.seed)
        self._ids: list[NotificationId] = []
        self.bus: Bus | None = None

    async def open(self, brokers: Brokers) -> None:
        bus = connect(brokers.address(self.exchange.broker), name=self.exchange.name)
        self.bus = await bus.open()

    async def work(self, scene: Scene) -> None:
        """Publish at an even rate, until cancelled."""
        assert self.bus is not None
        began = clock()
        while True:
            while len(self._ids) < (clock() - began) * self._rate:
                trade = Notification(self._prices.next(), time=datetime.now(UTC))
                id = await self.bus.publish(trade)
                # It leaves at the end of this turn of the loop: nobody has seen it yet.
                self._ids.append(id)
                scene.published(self.exchange, trade.replace(id=id))
            await asyncio.sleep(ROUND)

    async def leave(self) -> None:
        """Go; does nothing if it is not here."""
        if self.bus is not None:
            await self.bus.close()

    @property
    def is_waiting(self) -> bool:
        """Whether its broker cannot be reached."""
        return self.bus is not None and self.bus.state != "connected"

    @property
    def unacknowledged(self) -> int:
        """Publications that are not known to be on disk, and kept for that reason."""
        return self.bus.unacknowledged if self.bus is not None else 0

    def uncertain(self) -> Sequence[NotificationId]:
        """Which these are: the last ones, since brokers answer in order."""
        return self._ids[len(self._ids) - self.unacknowledged :]


@dataclass(frozen=True)
class Outcome:
    """What the report is made of."""

    verdict: Verdict
    #: Of deliveries to those who were there at the time of publication; the words say when.
    latencies: dict[str, Latencies]
    #: Deliveries of what happened while their consumer was not there.
    later: int
    #: Notifications over links, and what flooding would have sent at least.
    carried: int
    flooding: int
    #: Stretches of journals that were read for those who caught up.
    stretches: int
    #: What Spark made of it; None if it was not asked.
    pipelined: Pipelined | None
    problems: Sequence[str]

    @property
    def ok(self) -> bool:
        spark = self.pipelined is None or self.pipelined.ok
        return self.verdict.ok and spark and not self.problems


class Scene:
    """Everything that can be seen while the demo runs."""

    def __init__(self, brokers: Brokers, script: Script) -> None:
        self.began = clock()
        self.brokers = brokers
        self.account = Account(clock)
        self.listeners = [Listener(desk, self.account) for desk in DESKS]
        self.publishers = [Publisher(exchange, script) for exchange in EXCHANGES]
        #: Brokers that are known to be down or not yet linked again.
        self.down: frozenset[str] = frozenset()
        self.flooding = 0
        self.trades: list[Notification] = []
        #: What is going on, in words.
        self.now = ""

    @property
    def elapsed(self) -> float:
        return clock() - self.began

    def listener(self, name: str) -> Listener:
        return next(each for each in self.listeners if each.desk.name == name)

    def publisher_at(self, broker: str) -> Publisher:
        return next(each for each in self.publishers if each.exchange.broker == broker)

    def published(self, exchange: Exchange, notification: Notification) -> None:
        self.account.published(exchange.name, notification)
        self.trades.append(notification)
        self.flooding += links_within(exchange.broker, self.down)


async def play(script: Script, teller: Teller, directory: Path) -> Outcome:
    """The whole story."""
    async with Brokers.running(directory, dead_for=script.dead) as brokers:
        scene = Scene(brokers, script)
        brokers.on_look = lambda: teller.show(scene)
        played = _Play(script, teller, scene, directory)
        try:
            await played.run()
        except asyncio.CancelledError:
            teller.tell("interrupted; the brokers are stopped")
            raise
    return played.outcome()


class _Play:
    def __init__(self, script: Script, teller: Teller, scene: Scene, home: Path) -> None:
        self._script = script
        self._teller = teller
        self._scene = scene
        self._home = home
        self._pipelined: Pipelined | None = None
        self._brokers = scene.brokers
        self._working: list[asyncio.Task[None]] = []
        self._unacknowledged: list[NotificationId] = []
        self._problems: list[str] = []
        self._carried = 0
        #: When the broker was killed, and when all had caught up.
        self._times = 0.0, 0.0

    def _tell(self, text: str, now: str = "") -> None:
        self._scene.now = now or text
        self._teller.show(self._scene)
        self._teller.tell(text)

    async def run(self) -> None:
        script = self._script
        self._tell(f"five brokers are started, each a process of its own; {self._how_long()}")
        await self._brokers.all_linked()
        self._tell(f"they are linked: {len(NAMES)} brokers, {len(LINKS)} links, a tree")
        try:
            await self._assemble()
            await asyncio.sleep(script.calm)
            await self._desk_leaves()
            await asyncio.sleep(script.alone)
            await self._kill_and_heal()
            await asyncio.sleep(script.healed)
            await self._desk_returns()
            await asyncio.sleep(script.complete)
            await self._late_one_joins()
            await asyncio.sleep(script.late)
            await self._finish()
        finally:
            await self._disband()
        if script.pipeline:
            await self._to_spark()

    def _how_long(self) -> str:
        """What is to be expected."""
        script = self._script
        waits = script.calm + script.alone + script.dead
        waits += script.healed + script.complete + script.late
        live = f"the story takes about {waits + 5:.0f} seconds"
        return f"{live}, and Spark afterwards less than a minute" if script.pipeline else live

    # -- the parts

    async def _assemble(self) -> None:
        scene = self._scene
        here = [each for each in scene.listeners if not each.desk.history]
        await asyncio.gather(*(listener.arrive(self._brokers) for listener in here))
        for listener in here:
            self._watch_moves(listener)
        scene.account.settled()
        for publisher in scene.publishers:
            await publisher.open(self._brokers)
            self._watch_return(publisher)
        self._working = [asyncio.create_task(p.work(scene)) for p in scene.publishers]
        self._tell(
            f"{len(here)} consumers have subscribed by content, {len(EXCHANGES)} exchanges publish",
            "All is well: each trade goes only where somebody wants it.",
        )

    def _watch_moves(self, listener: Listener) -> None:
        bus = listener.bus
        assert bus is not None
        before = bus.broker

        def changed(state: str) -> None:
            nonlocal before
            if state == "connected" and bus.broker != before:
                self._teller.tell(f"{listener.desk.name} has moved from {before} to {bus.broker}")
                before = bus.broker

        bus.on_state(changed)

    def _watch_return(self, publisher: Publisher) -> None:
        bus = publisher.bus
        assert bus is not None

        def changed(state: str) -> None:
            if state == "connected":
                self._teller.tell(
                    f"{publisher.exchange.name} is connected again and sends "
                    f"{bus.unacknowledged:,} unacknowledged trades"
                )

        bus.on_state(changed)

    async def _desk_leaves(self) -> None:
        desk = self._scene.listener("blocks")
        await desk.leave()
        self._tell(
            f"{desk.desk.name} goes away; its subscription is durable",
            f"{desk.desk.name} is away. Its broker keeps its place, the journals what it misses.",
        )

    async def _kill_and_heal(self) -> None:
        scene, brokers = self._scene, self._brokers
        look = brokers.looks[VICTIM]
        began = look.status["started"] if look.status else 0.0
        kill = clock()
        pid = brokers.kill(VICTIM)
        scene.down = frozenset([VICTIM])
        self._tell(
            f"killed {VICTIM}: kill -9 {pid}",
            f"{VICTIM} was killed: madrid is cut off, XLIS cannot reach its broker, iberia moves. "
            "What is published waits in journals, or with its publisher.",
        )
        await brokers.until(
            lambda: bool(look.status and look.status["started"] != began), f"{VICTIM} is back"
        )
        await brokers.all_linked()
        back = clock()
        scene.down = frozenset()
        assert look.status is not None
        self._tell(
            f"{VICTIM} is back after {back - kill:.1f} s, its journal intact: "
            f"{look.status['journal']['head']:,} notifications",
            f"{VICTIM} is back. Subscribers read from journals what they missed, then go on live.",
        )
        await self._caught_up(back)
        self._times = kill, clock()
        self._tell(
            f"everybody has caught up, {clock() - back:.1f} s later",
            "Healed. The report will tell whether anything was lost, or came twice.",
        )

    async def _desk_returns(self) -> None:
        desk = self._scene.listener("blocks")
        waiting = desk.record.behind
        await desk.arrive(self._brokers)
        self._tell(
            f"{desk.desk.name} is back; {waiting:,} notifications waited for it",
            f"{desk.desk.name} goes on where it was, from the journals and then live.",
        )
        await self._caught_up(clock())

    async def _late_one_joins(self) -> None:
        desk = self._scene.listener("audit")
        past = desk.record.behind
        await desk.arrive(self._brokers)
        self._tell(
            f'{desk.desk.name} joins with since="earliest": {past:,} of the past, then live',
            f"{desk.desk.name} reads the past from the journals of four brokers, and goes on live.",
        )
        await self._caught_up(clock())

    async def _caught_up(self, until: float) -> None:
        await self._brokers.until(
            lambda: self._scene.account.caught_up(until), "everybody catches up"
        )

    async def _finish(self) -> None:
        """No more publications. All of them are acknowledged, all arrive, nothing else comes."""
        scene = self._scene
        await _cancel(self._working)
        self._tell(
            f"the exchanges close, after {len(scene.account):,} trades",
            "The exchanges are closed; the last notifications arrive.",
        )
        try:
            async with asyncio.timeout(PATIENCE):
                for publisher in scene.publishers:
                    assert publisher.bus is not None
                    await publisher.bus.flush()
                while not (scene.account.caught_up(inf) and self._brokers.are_at_rest):
                    await self._brokers.look()
            self._tell("all have everything; the formal model checks what happened")
        except TimeoutError:
            self._problems.append(f"not everything arrived within {PATIENCE:g} seconds")
        except StentorError as error:
            self._problems.append(f"a publication was refused: {error}")
        scene.account.settled()
        self._unacknowledged = [id for p in scene.publishers for id in p.uncertain()]
        self._carried = self._brokers.carried(VICTIM)

    async def _disband(self) -> None:
        """All clients go. If brokers are away, too, that is not waited for."""
        await _cancel(self._working)
        consumers = [listener.leave() for listener in self._scene.listeners]
        exchanges = [publisher.leave() for publisher in self._scene.publishers]
        with suppress(TimeoutError):
            async with asyncio.timeout(PARTING):
                await asyncio.gather(*consumers, *exchanges, return_exceptions=True)

    async def _to_spark(self) -> None:
        """`stentor pipeline run`, on what the journals have."""
        self._tell(
            f"Spark reads the journals: an archive, {SUBSCRIPTIONS:,} stored subscriptions, bars; "
            "that takes less than a minute, most of it for Spark to start",
            "Spark reads the five journals in parallel, and publishes bars back into the overlay.",
        )
        addresses = [self._brokers.address(name) for name in NAMES]
        home = self._home / "pipeline"
        home.mkdir()
        try:
            self._pipelined = await run_pipeline(
                self._scene.trades, addresses, home, self._teller.tell
            )
        except PipelineFailed as error:
            self._problems.append(f"the pipeline has failed:\n{error}")
            return
        self._tell(f"{len(self._pipelined.bars):,} bars have come back through the overlay")

    def outcome(self) -> Outcome:
        """What came of it."""
        account = self._scene.account
        kill, whole = self._times
        looks = self._brokers.looks
        statuses = [look.status for look in looks.values() if look.status is not None]
        return Outcome(
            verdict=account.verdict(self._unacknowledged),
            latencies={
                "before the kill": account.latencies(delivered_before=kill),
                f"in the {whole - kill:.1f} s until all caught up": account.latencies(
                    published_before=whole, delivered_after=kill
                ),
                "after that": account.latencies(published_after=whole),
            },
            later=account.later(),
            carried=self._carried,
            flooding=self._scene.flooding,
            stretches=sum(status["counters"]["served"] for status in statuses),
            pipelined=self._pipelined,
            problems=self._problems,
        )


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End them. One that had failed says so."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
