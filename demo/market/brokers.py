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
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from stentor.broker.overlay import OverlayLink, OverlaySettings, path_between
from stentor.broker.settings import Limits, Settings
from stentor.broker.supervisor import Child, Restarts, Supervisor

NAMES: Final = ("newyork", "london", "zurich", "lisbon", "madrid")
#: Who dials whom.
LINKS: Final = (
    OverlayLink("newyork", "london"),
    OverlayLink("zurich", "london"),
    OverlayLink("lisbon", "london"),
    OverlayLink("lisbon", "madrid"),
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
    """What is known of a broker: its process, and what that said last."""

    child: Child
    status: dict[str, Any] | None = None
    #: Whether it answered the last time; a busy one may be too slow.
    answers: bool = False
    #: Its counters of late, with the time.
    _history: deque[tuple[float, Counters]] = field(default_factory=lambda: deque(maxlen=_LOOKS))

    def take(self, now: float, status: dict[str, Any] | None) -> None:
        """Its answer; None if there was none."""
        self.answers = status is not None
        if status is None:
            if self.child.state != "up":
                self.status = None
            return
        if self.status is None or status["started"] != self.status["started"]:
            self._history.clear()  # a new process counts from the beginning
        self.status = status
        links = {_link(link["broker"]): link["sent"] + link["received"] for link in _up(status)}
        self._history.append((now, status["counters"] | links))

    @property
    def state(self) -> str:
        """In a word: up, starting, down."""
        if self.child.state in ("waiting", "crashing", "failed"):
            return "down"
        if self.child.state == "up" and self.status is None:
            return "starting"
        return self.child.state

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits in it, and nobody catches up."""
        if self.status is None or not self.answers or any(self.status["queues"].values()):
            return False
        return not any(each["catching_up"] for each in self.status["subscriptions"])

    def rate(self, name: str) -> float:
        """By how much a counter grows per second."""
        if len(self._history) < 2:
            return 0.0
        (then, old), (now, new) = self._history[0], self._history[-1]
        # A link that was made again counts from the beginning.
        return max(0, new.get(name, 0) - old.get(name, 0)) / (now - then)

    def link_rate(self, neighbor: str) -> float:
        """Notifications per second over a link, in both directions."""
        return self.rate(_link(neighbor))

    @property
    def links(self) -> set[str]:
        """The neighbors that it is linked with."""
        return {str(link["broker"]) for link in _up(self.status or {"links": []})}

    @property
    def reaches(self) -> set[str]:
        """The other brokers that it knows a way to."""
        return {str(other["broker"]) for other in self.status["brokers"]} if self.status else set()


def _up(status: dict[str, Any]) -> list[dict[str, Any]]:
    return [link for link in status["links"] if link["state"] == "up"]


def _link(neighbor: str) -> str:
    return f"link with {neighbor}"


class Stalled(Exception):
    """Something that must happen does not."""


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
        overlay = OverlaySettings(directory / "overlay.toml", settings, LINKS, directory / "run")
        self._supervisor = Supervisor(overlay, self, restarts=Restarts(first=dead_for))
        self.looks = {name: Look(child) for name, child in self._supervisor.children.items()}
        self._one_at_a_time = asyncio.Lock()
        #: Is called after every look.
        self.on_look: Callable[[], None] = lambda: None

    @classmethod
    @asynccontextmanager
    async def running(cls, directory: Path, *, dead_for: float) -> AsyncIterator[Brokers]:
        """Start them; when this is left, they are gone."""
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

    @property
    def are_linked(self) -> bool:
        """Whether every broker reaches every other one."""
        return all(
            look.answers and look.reaches == set(NAMES) - {name}
            for name, look in self.looks.items()
        )

    @property
    def are_at_rest(self) -> bool:
        """Whether nothing waits in any of them, for the disk, a link or a client."""
        return all(look.is_at_rest for look in self.looks.values())

    async def all_linked(self) -> None:
        await self.until(lambda: self.are_linked, "the brokers are linked")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something; `Stalled` if it does not happen."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    if any(look.child.state == "failed" for look in self.looks.values()):
                        raise Stalled(f"a broker does not start\n{self._last_words()}")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise Stalled(f"not within {PATIENCE:g} s: {what}\n{self._last_words()}") from None

    def _last_words(self) -> str:
        children = [look.child for look in self.looks.values()]
        return "\n".join(
            f"  {child.name}: {line}" for child in children for line in child.last_words
        )

    # -- looking

    async def look(self) -> None:
        """Ask all of them how they are, now."""
        async with self._one_at_a_time:
            answers = await asyncio.gather(*(self._ask(look.child) for look in self.looks.values()))
            now = time.perf_counter()
            for look, answer in zip(self.looks.values(), answers, strict=True):
                look.take(now, answer)
        self.on_look()

    async def _keep_looking(self) -> None:
        """Now and then, and more often while something is not as it should be."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_EVERY if self.are_linked else LOOK_EVERY / 3)

    async def _ask(self, child: Child) -> dict[str, Any] | None:
        assert child.monitor is not None
        with suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(2.0):
                body = await _get(child.monitor, "/status")
                return msgspec.json.decode(body, type=dict[str, Any])
        return None

    def is_linked(self, link: OverlayLink) -> bool:
        """Whether both ends say that the link is up."""
        dialer, other = self.looks[link.dialer], self.looks[link.other]
        return link.other in dialer.links and link.dialer in other.links

    def carried(self, killed: str) -> int:
        """Notifications that went over links so far, in both directions (see above)."""
        odd = [name for name in NAMES if not len(path_between(killed, name, LINKS)) % 2]
        total = 0
        for name in odd:
            status = self.looks[name].status
            if status is None:
                raise Stalled(f"{name} does not say what it has forwarded")
            total += sum(status["counters"][c] for c in ("forwarded", "received", "off_path"))
        return total

    # -- told by the supervisor, who keeps the last lines himself

    def line(self, broker: str, text: str) -> None:
        pass

    def event(self, broker: str | None, text: str, *, bad: bool = False) -> None:
        pass


@cache
def links_within(broker: str, down: frozenset[str] = frozenset()) -> int:
    """Links that can be reached from a broker while others are down: what flooding would use."""
    if broker in down:
        return 0
    up = [link for link in LINKS if down.isdisjoint(link)]
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
