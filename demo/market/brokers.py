"""Five brokers, each a process of its own, and what they say about themselves.

    newyork ── london ── zurich
                  │
               lisbon ── madrid

They are run as `stentor up` runs them: a supervisor starts a process for each and starts it again
when it dies. What is known of them comes from their HTTP endpoints, twice a second.

*Counting what the links carried.* The broker that is killed takes its counters with it, but every
link has two ends, and in a tree they can be told apart: at one end is a broker that is an even
number of links away from the killed one, at the other end an odd number. So the odd ones together
have seen everything that went over any link exactly once, and none of them was killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from stentor.broker.overlay import Edge, Overlay, path_between
from stentor.broker.settings import Limits, Settings
from stentor.broker.supervisor import Child, Restarts, Supervisor

NAMES: Final = ("newyork", "london", "zurich", "lisbon", "madrid")
LINKS: Final = (
    Edge("newyork", "london"),
    Edge("zurich", "london"),
    Edge("lisbon", "london"),
    Edge("madrid", "lisbon"),
)

#: Seconds between two looks at the brokers; rates are over the last few looks.
LOOK_EVERY: Final = 0.5
_LOOKS: Final = 4
#: Below the ports that systems give to outgoing connections, so that none of those takes the port
#: of a broker that is dead for a moment.
_PORTS: Final = range(20_000, 32_000)
#: Seconds in which brokers come up, however slow the machine is.
PATIENCE: Final = 60.0

Counters = dict[str, int]


@dataclass
class Look:
    """What is known of a broker: its process, and its last answer if it gives any."""

    child: Child
    status: dict[str, Any] | None = None
    #: Its counters of late, with the time.
    _history: deque[tuple[float, Counters]] = field(default_factory=lambda: deque(maxlen=_LOOKS))

    def take(self, now: float, status: dict[str, Any] | None) -> None:
        if status is None or (self.status and status["started"] != self.status["started"]):
            self._history.clear()  # a new process counts from the beginning
        self.status = status
        if status is not None:
            self._history.append((now, dict(status["counters"])))

    @property
    def state(self) -> str:
        """In a word: up, starting, down."""
        if self.child.state in ("waiting", "crashing", "failed"):
            return "down"
        if self.child.state == "up" and self.status is None:
            return "starting"
        return self.child.state

    def rate(self, *names: str) -> float:
        """By how much these counters grow per second."""
        if len(self._history) < 2:
            return 0.0
        (then, old), (now, new) = self._history[0], self._history[-1]
        return sum(new[name] - old[name] for name in names) / (now - then)

    def links(self) -> set[str]:
        """The neighbors that it is linked with."""
        links = self.status["links"] if self.status else []
        return {str(link["broker"]) for link in links if link["state"] == "up"}

    def reaches(self) -> set[str]:
        """The other brokers that it knows a way to."""
        return {str(other["broker"]) for other in self.status["brokers"]} if self.status else set()


class Brokers:
    """The processes. Use `running`."""

    def __init__(self, directory: Path, *, dead_for: float) -> None:
        """`dead_for`: seconds until the supervisor starts a broker again that has died."""
        ports = iter(free_ports(2 * len(NAMES)))
        settings = {
            name: Settings(
                listen=(f"127.0.0.1:{next(ports)}",),
                monitor=f"127.0.0.1:{next(ports)}",
                name=name,
                data=directory / name,
                limits=Limits(shutdown=2.0),
                log_level="warning",
            )
            for name in NAMES
        }
        overlay = Overlay(directory / "overlay.toml", settings, LINKS, directory / "run")
        self._supervisor = Supervisor(overlay, self, restarts=Restarts(first=dead_for))
        self.looks = {name: Look(child) for name, child in self._supervisor.children.items()}
        #: What brokers said on stderr: with a level of `warning`, nothing if all is well.
        self.complaints: deque[str] = deque(maxlen=20)
        #: Is called after every look.
        self.on_look: Callable[[], None] = lambda: None

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path, *, dead_for: float) -> AsyncIterator[Brokers]:
        """Start them; they are linked when this is entered, and gone when it is left."""
        brokers = cls(directory, dead_for=dead_for)
        supervising = asyncio.create_task(brokers._supervisor.run())
        looking = asyncio.create_task(brokers._keep_looking())
        try:
            yield brokers
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await brokers._stop(supervising)

    async def _stop(self, supervising: asyncio.Task[bool]) -> None:
        self._supervisor.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await asyncio.shield(supervising)
            return
        self._supervisor.stop()  # a second time: at once
        await supervising

    def address(self, name: str) -> str:
        """Where clients connect."""
        return self._supervisor.overlay.address(name)

    def kill(self, name: str) -> int:
        """End a broker as no program can defend itself against. The id of its process."""
        pid = self.looks[name].child.pid
        assert pid is not None, f"{name} is not running"
        os.kill(pid, signal.SIGKILL)
        return pid

    async def all_linked(self) -> None:
        """Until every broker reaches every other one."""
        await self.until(
            lambda: all(
                look.state == "up" and look.reaches() == set(NAMES) - {name}
                for name, look in self.looks.items()
            ),
            "the brokers are linked",
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            said = "\n".join(["", *self.complaints])
            raise RuntimeError(f"not within {PATIENCE:g} seconds: {what}{said}") from None

    # -- looking

    async def look(self) -> None:
        """Ask all of them how they are."""
        answers = await asyncio.gather(*(self._ask(look.child) for look in self.looks.values()))
        now = asyncio.get_running_loop().time()
        for look, answer in zip(self.looks.values(), answers, strict=True):
            look.take(now, answer)
        self.on_look()

    async def _keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY)

    async def _ask(self, child: Child) -> dict[str, Any] | None:
        assert child.monitor is not None
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(2.0):
                body = await _get(child.monitor, "/status")
                return msgspec.json.decode(body, type=dict[str, Any])
        return None

    def carried(self, killed: str) -> int:
        """Notifications that went over links so far, in both directions (see above)."""
        odd = [name for name in NAMES if not len(path_between(killed, name, LINKS)) % 2]
        total = 0
        for name in odd:
            status = self.looks[name].status
            assert status is not None, f"{name} does not answer"
            total += sum(status["counters"][c] for c in ("forwarded", "received", "off_path"))
        return total

    # -- told by the supervisor

    def line(self, broker: str, text: str) -> None:
        if "WARNING" in text or "ERROR" in text or "Traceback" in text:
            self.complaints.append(f"{broker}: {text}")

    def event(self, broker: str | None, text: str, *, bad: bool = False) -> None:
        if bad:
            self.complaints.append(f"{broker or 'supervisor'}: {text}")


def links_within(broker: str, down: Iterable[str]) -> int:
    """Links that can be reached from a broker while others are down: what flooding would use."""
    without = set(down)
    if broker in without:
        return 0
    up = [link for link in LINKS if not without & set(link)]
    return sum(bool(path_between(broker, link.dialer, up)) for link in up)


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with closing(socket.socket()) as held, suppress(OSError):
            held.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"there are no {count} free ports between {_PORTS[0]} and {_PORTS[-1]}")


async def _get(address: str, path: str) -> bytes:
    """The body of an HTTP answer."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read(-1)
    finally:
        writer.close()
    return answer.partition(b"\r\n\r\n")[2]


def links_up(looks: dict[str, Look]) -> Sequence[Edge]:
    """The links that both ends say are up."""
    return [
        link
        for link in LINKS
        if link.other in looks[link.dialer].links() and link.dialer in looks[link.other].links()
    ]
