"""A run: what its clients record, followed while it goes on and judged at its end.

Everything rests on what `stentor.Recorder` writes: the clients of a test share a recording, and
client processes have one each. They are read as they grow, for one question that a test asks while
it runs: is anything *missing*? From the moment at which a subscription is in force, everything that
is published and matches belongs to it; `settled` waits until publishers have been answered and
nothing that was acknowledged is missing. Then `check` joins the recordings and holds them against
the specification, which finds what nobody thought of: notifications that were altered, came twice,
to the wrong one, out of order, or of which nobody knows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from overlay_processes import PATIENCE, until

from stentor import Recorder, recorded
from stentor.client import Bus, Subscription, connect
from stentor.filters import Filter
from stentor.model import Notification, NotificationId, decode
from stentor.semantics import Report, check
from stentor.semantics.lines import ACKNOWLEDGED, ATTACHED, DEALT, IN_FORCE, Line, decoded
from stentor.semantics.settlement import is_dead_letter

S = TypeVar("S", bound=Subscription[Any])

_numbers = count(1)


class Follower:
    """A recording, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def new(self) -> list[Line]:
        """Whole lines that were not there the last time."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [decoded(line) for line in whole.splitlines()]


class Component:
    """A subscription, or an inbox with several, as its recording tells."""

    def __init__(self) -> None:
        self.filters: dict[str, Filter] = {}
        #: When each came into force: nothing that was published before is owed.
        self.in_force_at: dict[str, int] = {}
        self.received: set[str] = set()
        #: What it must still be notified of, as far as it is acknowledged, and for which filters.
        self.missing: dict[str, set[str]] = {}
        #: Whether its readers settle what they get; and what none of them has dealt with.
        self.settles = False
        self.unsettled: set[str] = set()
        self._dealt: set[str] = set()
        self._given: defaultdict[str, list[str]] = defaultdict(list)

    def published(self, at: int, nid: str, notification: Notification) -> None:
        """Somebody has published this."""
        wanted = {
            fid
            for fid, since in self.in_force_at.items()
            if since < at and self.filters[fid].matches(notification)
        }
        if wanted and nid not in self.received:
            self.missing[nid] = wanted

    def notified(self, nid: str, reader: str) -> None:
        """It has come."""
        self.received.add(nid)
        self.missing.pop(nid, None)
        self._given[reader].append(nid)
        if self.settles and nid not in self._dealt:
            self.unsettled.add(nid)

    def dealt(self, line: Line) -> None:
        """A reader has dealt with some."""
        self.done(line.nids if line.seq is None else self._given[str(line.fid)][: line.seq])

    def done(self, nids: Iterable[str]) -> None:
        self._dealt.update(nids)
        self.unsettled.difference_update(nids)

    def unsubscribed(self, fid: str) -> None:
        """Nothing is owed for this any more."""
        self.in_force_at.pop(fid, None)
        for wanted in self.missing.values():
            wanted.discard(fid)
        self.missing = {nid: wanted for nid, wanted in self.missing.items() if wanted}


class Run:
    """All recordings of one run."""

    def __init__(self, directory: Path) -> None:
        self.recorder = Recorder(directory / f"run-{next(_numbers)}.jsonl")
        self._followers = [Follower(self.recorder.path)]
        self._buses: list[Bus] = []
        self.publications = 0
        self.acknowledged: set[str] = set()
        self._delivered: set[str] = set()
        self.components: dict[str, Component] = {}
        #: Notifications that came again to the clients of durable subscriptions that died.
        self.again = 0
        #: Dead letters that somebody got.
        self.dead = 0

    # -- clients

    def connect(self, *brokers: str, **options: Any) -> Bus:
        """A client that records."""
        bus = connect(*brokers, record=self.recorder, **options)
        self._buses.append(bus)
        return bus

    def follow(self, path: Path) -> None:
        """Another process records there."""
        self._followers.append(Follower(path))

    @asynccontextmanager
    async def subscribed(
        self, bus: Bus, filter: str = "", *, pace: Callable[[], Any] | None = None, **options: Any
    ) -> AsyncIterator[None]:
        """A subscription that is read all the time; `pace` is awaited after each notification."""
        async with self.reading(bus.subscribe(filter, **options), pace=pace):
            yield

    @asynccontextmanager
    async def reading(
        self, subscription: S, *, pace: Callable[[], Any] | None = None
    ) -> AsyncIterator[S]:
        """The same for one that the test changes meanwhile."""

        async def read() -> None:
            async for _ in subscription:
                if pace is not None:
                    await pace()

        async with subscription:
            reading = asyncio.create_task(read())
            try:
                yield subscription
            finally:
                reading.cancel()
                (outcome,) = await asyncio.gather(reading, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome

    def quiescent(self) -> None:
        """Nothing is in flight."""
        self.recorder.quiescent()

    # -- what is recorded

    def read(self) -> None:
        """Take in what has been recorded since the last time."""
        lines = [line for follower in self._followers for line in follower.new()]
        for line in sorted(lines, key=attrgetter("pos")):
            self._take(line)

    def _take(self, line: Line) -> None:
        match line:
            case Line(op="pub", body=bytes(body), nid=str(nid)):
                self.publications += 1
                notification = decode(body)
                for component in self.components.values():
                    component.published(line.pos, nid, notification)
            case Line(op="notify", comp=str(comp), nid=str(nid), body=bytes(body)):
                self._delivered.add(nid)
                self.components[comp].notified(nid, str(line.fid))
                notification = decode(body)
                if is_dead_letter(notification):
                    self._buried(notification)
            case Line(step=str(step), comp=str(comp)) if step == ATTACHED:
                self.components.setdefault(comp, Component()).settles = True
            case Line(step=str(step), comp=str(comp)) if step == DEALT:
                self.components[comp].dealt(line)
            case Line(op="sub", comp=str(comp), fid=str(fid), filter=str(filter)):
                component = self.components.setdefault(comp, Component())
                component.filters[fid] = Filter(filter)
            case Line(op="unsub", comp=str(comp), fid=str(fid)):
                self.components[comp].unsubscribed(fid)
            case Line(step=str(step), comp=str(comp), fid=str(fid)) if step == IN_FORCE:
                self.components[comp].in_force_at[fid] = line.pos
            case Line(step=str(step), nid=str(nid), seq=int(last)) if step == ACKNOWLEDGED:
                first = NotificationId.parse(nid)
                self.acknowledged |= {
                    str(NotificationId(first.producer, first.epoch, sequence))
                    for sequence in range(first.sequence, last + 1)
                }

    def _buried(self, letter: Notification) -> None:
        kind = "durable" if "durable" in letter else "group"
        component = self.components.get(f"{kind} {letter[kind]}")
        self.dead += 1
        if component is not None:
            component.done([str(letter["original"])])

    def lacking(self) -> dict[str, set[str]]:
        """What is certainly published, and has not come or was not dealt with."""
        self.read()
        certain = self.acknowledged | self._delivered
        return {
            name: lacking
            for name, component in self.components.items()
            if (lacking := component.missing.keys() & certain | component.unsettled)
        }

    # -- the end

    async def settled(self, seconds: float = PATIENCE) -> None:
        """Until everything is answered, and has come to all whom it belongs to.

        It fails when nothing has come for so many seconds.
        """
        for bus in self._buses:
            if bus.state != "closed":
                await bus.flush(seconds)

        def shown() -> str:
            lacking = {name: (len(ids), sorted(ids)[:3]) for name, ids in self.lacking().items()}
            return f"everything arrives; lacking is {lacking}"

        # Orders that fail are dealt with one after the other: what counts is that it goes on.
        while count := sum(map(len, self.lacking().values())):
            await until(lambda: sum(map(len, self.lacking().values())) < count, shown, seconds)
        self.quiescent()

    def check(self, *, order: Iterable[str] = ("fifo",)) -> Report:
        """Hold the run against the specification. The report, which has no violations."""
        run = recorded(*(each.path for each in self._followers if each.path.exists()))
        self.again = run.again
        report = check(run.trace, order=order)
        assert report.ok, str(report)[:4000]
        return report
