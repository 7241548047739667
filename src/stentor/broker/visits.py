"""Visits: links that are made when the core wants them, and closed when nobody does.

On a rendezvous overlay both ends of a link know whether one of them needs it. Who has dialed closes
it when that is no longer so, after a while. If both dial at once, one connection stays, as
everywhere; and a link that is configured takes the place of a visit.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Final

from stentor.protocol import messages as m

if TYPE_CHECKING:
    from stentor.broker.host import Broker

_log = logging.getLogger("stentor.broker")

#: Seconds for which a link stays that nobody needs.
IDLE: Final = 30.0
#: Seconds before a broker is dialed again: the first time, and at most.
AGAIN: Final = 0.1
AGAIN_MOST: Final = 5.0


class Visits:
    """The links of a broker that do not stand."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._wanted: dict[str, m.Origin] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: Set for all who wait for a link to be gone.
        self._gone: dict[str, asyncio.Event] = {}
        #: Why there is no link yet, by broker.
        self.failing: dict[str, str] = {}

    def want(self, origins: tuple[m.Origin, ...]) -> None:
        """Have links with these, and after a while no others."""
        self._wanted = {origin.stream: origin for origin in origins}
        self.dial()
        loop = asyncio.get_running_loop()
        if self._tasks.keys() - self._wanted.keys():
            loop.call_later(IDLE, self._close_idle)

    def dial(self) -> None:
        """See to all links that are wanted and that nobody sees to."""
        for stream in self._wanted:
            if stream not in self._tasks or self._tasks[stream].done():
                task = asyncio.get_running_loop().create_task(self._visit(stream))
                self._tasks[stream] = task

    def link_gone(self, stream: str) -> None:
        """A link is over: if it is needed, it has to be made again."""
        if stream in self._gone:
            self._gone[stream].set()

    def stop(self) -> list[asyncio.Task[None]]:
        """Make no more links; the tasks that end with that."""
        self._wanted = {}
        for task in self._tasks.values():
            task.cancel()
        return list(self._tasks.values())

    def _close_idle(self) -> None:
        for stream in self._tasks.keys() - self._wanted.keys():
            self._tasks.pop(stream).cancel()
            self._gone.pop(stream, None)
            self.failing.pop(stream, None)
            link = self._broker.links.get(stream)
            if link is not None and link.dialed and link.place == "visitor":
                link.connection.send(m.Goodbye("the link is no longer needed"))
                link.connection.close()

    async def _visit(self, stream: str) -> None:
        """See to it that there is a link, whoever makes it, for as long as it is wanted."""
        broker, delay = self._broker, AGAIN
        gone = self._gone[stream] = asyncio.Event()
        while not broker.draining:
            while stream in broker.links:
                gone.clear()
                await gone.wait()
                delay = AGAIN
            origin = self._wanted.get(stream)
            addresses = () if origin is None else origin.addresses
            for address in () if broker.links.dialing.keys() & addresses else addresses:
                linked, error = await broker.links.dial(address, visited=stream)
                if linked:
                    delay = AGAIN
                    self.failing.pop(stream, None)
                    break
                reason = str(error) if error else "the connection was closed"
                if self.failing.get(stream) != reason and stream not in broker.links:
                    self.failing[stream] = reason
                    _log.info("no link to %s at %s: %s", stream, address, reason)
            if stream not in broker.links:
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(2 * delay, AGAIN_MOST)
