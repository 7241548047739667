"""Links: the neighbors of a broker, those that are dialed and those that are up.

A neighbor that is named in the settings, or by an operator, is dialed again and again, with pauses
that grow, until it is removed. A link that would close a cycle where the overlay has none waits in
reserve: it is dialed on, and made when the other way is lost. Both ends say at the handshake who
they are; what speaks against a link is told there, and nothing of it has happened then.

There is one link for each neighbor. If both have dialed at once, the connection that the lower
stream made stays. If the same side dials again, it has lost the old connection, and the new one
takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stentor.broker.access import Permissions
from stentor.broker.peers import Dialing, Link
from stentor.broker.settings import OVERLAYS
from stentor.errors import (
    DuplicateBroker,
    InvalidAddress,
    InvalidConfiguration,
    LinkRefused,
    Overloaded,
    ShuttingDown,
    StentorError,
)
from stentor.node.streams import check_addresses
from stentor.protocol import messages as m
from stentor.protocol.handshake import Handshake, hello
from stentor.routing.protocol import Place
from stentor.transport import Address, Connection, connect

if TYPE_CHECKING:
    from stentor.broker.host import Broker

_log: Final = logging.getLogger("stentor.broker")

#: Seconds before a neighbor is dialed again: the first time, and at most.
DIAL_FIRST: Final = 0.1
DIAL_MOST: Final = 5.0


class Links(Mapping[str, Link]):
    """The links that are up, by the stream of the neighbor, and how they come and go."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._up: dict[str, Link] = {}
        self._dialers: dict[str, asyncio.Task[None]] = {}
        #: What has come of dialing, by address.
        self.dialing: dict[str, str] = {}
        #: Those among them that wait in reserve, because their brokers are reached another way.
        self.reserve: set[str] = set()
        #: Notifications that links dropped which are gone.
        self.dropped = 0

    def __getitem__(self, stream: str) -> Link:
        return self._up[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._up)

    def __len__(self) -> int:
        return len(self._up)

    # -- dialing

    @property
    def dialed(self) -> list[str]:
        """The addresses that are dialed until they are removed."""
        return list(self._dialers)

    def add(self, address: str) -> None:
        """Dial a neighbor, again and again until `remove`."""
        address = str(Address.parse(address))
        if address in self._broker.addresses:
            raise LinkRefused(f"{address} is this broker itself; link it with another")
        if address in self._dialers:
            raise DuplicateBroker(f"{address} is a neighbor already")
        self._start_dialing(address)

    def _start_dialing(self, address: str) -> None:
        self.dialing[address] = "dialing"
        self._dialers[address] = asyncio.get_running_loop().create_task(self._dial(address))

    def dial_now(self, address: str) -> None:
        """Dial a neighbor at once, however long it would have waited."""
        self._dialers[address].cancel()
        self.reserve.discard(address)
        self._start_dialing(address)

    def dial_again(self) -> None:
        """The broker stays after all: dial those whose links were lost while it was leaving."""
        for address, task in list(self._dialers.items()):
            if task.done():
                self._start_dialing(address)

    def stop_dialing(self) -> list[asyncio.Task[None]]:
        """Dial nobody any more; the tasks that end with that."""
        for task in self._dialers.values():
            task.cancel()
        return list(self._dialers.values())

    def clear(self) -> None:
        """Forget all of them, before the broker starts anew."""
        self._dialers.clear()
        self._up.clear()

    def at(self, address: str) -> Link | None:
        """The link with the broker at this address, if it is up."""
        for link in self._up.values():
            dialed = link.dialed and str(link.connection.address) == address
            if dialed or address in link.origin.addresses:
                return link
        return None

    def remove(self, which: str) -> None:
        """End the link to a neighbor, named by its address, name or stream."""
        parsed = which
        with suppress(InvalidAddress):
            parsed = str(Address.parse(which))
        found = False
        for address in (which, parsed):
            task = self._dialers.pop(address, None)
            if task is not None:
                task.cancel()
                self.dialing.pop(address, None)
                self.reserve.discard(address)
                found = True
        for link in list(self._up.values()):
            if which in (link.origin.broker, link.origin.stream) or parsed in link.origin.addresses:
                link.connection.send(m.Goodbye("the link was removed"))
                link.connection.close()
                found = True
        if not found:
            raise InvalidConfiguration(
                f"there is no link to {which!r}; `stentor links list` shows those there are"
            )

    async def _dial(self, address: str) -> None:
        """Make the link, and make it again whenever it is lost."""
        delay = DIAL_FIRST
        told = ""
        while not self._broker.draining:
            linked, error = await self.dial(address)
            if linked:
                delay = DIAL_FIRST
                told = ""
            reason = str(error) if error else "the connection was closed"
            self.dialing[address] = reason
            if isinstance(error, LinkRefused):
                self.reserve.add(address)
                reason = f"it waits in reserve: {self.why_in_reserve(address)}"
            else:
                self.reserve.discard(address)
            if reason != told:
                _log.info("no link to %s: %s", address, reason)
                told = reason
            await asyncio.sleep(delay * random.uniform(0.5, 1.5))
            delay = min(2 * delay, DIAL_MOST)

    async def dial(
        self, address: str, *, visited: str | None = None
    ) -> tuple[bool, Exception | None]:
        """Connect, and wait until that is over: whether it was a link, and what has ended it.

        `visited` is the stream of a broker that is to be linked for a while.
        """
        broker = self._broker
        place: Place = self._place_of(address) if visited is None else "visitor"
        dialing = Dialing(broker, address, place, visited)
        connection = None
        error: Exception | None
        try:
            connection = await connect(
                address,
                dialing,
                tls=broker.certificates.for_dialing,
                max_frame=broker.settings.limits.frame,
            )
            error = await dialing.over
        except StentorError as failure:
            error = failure
        finally:
            if connection is not None and not connection.is_closing:
                connection.close()
        return dialing.link is not None, error

    def hello(self, place: Place) -> m.Hello:
        """What this broker says to a neighbor that it dials, and what that is to it."""
        broker = self._broker
        return hello(
            "broker",
            broker.name,
            broker.settings.token,
            stream=broker.stream,
            addresses=broker.advertised,
            terms=broker.core.routing.terms,
            below=place == "parent",
            visits=place == "visitor",
        )

    def _place_of(self, address: str) -> Place:
        """What the broker at an address that is dialed is to this one."""
        parent = self._broker.settings.parent
        return "parent" if parent and address in (parent, str(Address.parse(parent))) else "peer"

    # -- coming and going

    def check(
        self, origin: m.Origin, permissions: Permissions, place: Place, *, dialed: bool
    ) -> None:
        """Raise why this broker cannot be linked, if it cannot."""
        broker = self._broker
        stream, overlay, parent = origin.stream, broker.settings.overlay, broker.settings.parent
        if place not in OVERLAYS[overlay] or (place == "peer" and parent is not None):
            raise InvalidConfiguration(
                f"in this {overlay} {origin.broker!r} cannot be a {place} of {broker.name!r}; "
                "links lead to the broker that is named as `parent`, or between peers that have "
                "none"
            )
        if stream == broker.stream:
            raise InvalidConfiguration(
                "this broker cannot be its own neighbor; give another address"
            )
        check_addresses(origin)
        old = self._up.get(stream)
        if old is not None:
            if old.permissions.name != permissions.name:
                raise LinkRefused(
                    f"there is a link with {origin.broker!r} already, by another grant; only who "
                    "made it may take its place"
                )
            if (old.place, place) == ("visitor", "peer"):
                return  # from now on it stands
            if (old.place, place) == ("peer", "visitor"):
                raise LinkRefused(f"there is a link with {origin.broker!r} already, and it stands")
            if old.dialed != dialed and (broker.stream < stream) == old.dialed:
                raise LinkRefused(f"there is a link with {origin.broker!r} already")
        elif broker.core.is_unlinking(stream):
            raise _still_unlinking(origin)
        elif broker.core.directory.reaches(stream) and not (
            place in ("peer", "visitor") and broker.core.directory.allows_cycles
        ):
            raise LinkRefused(
                f"{origin.broker!r} is reached another way already; a second link would close a "
                "cycle, it waits in reserve"
            )

    def made(
        self,
        connection: Connection,
        handshake: Handshake,
        origin: m.Origin,
        permissions: Permissions,
        place: Place,
        *,
        dialed: bool,
    ) -> Link:
        """Both sides have said who they are."""
        broker = self._broker
        if broker.draining:
            raise ShuttingDown("this broker is being shut down; link with another")
        self.check(origin, permissions, place, dialed=dialed)
        old = self._up.get(origin.stream)
        if old is not None:
            self.gone(old, None)
            old.connection.close()
            if broker.core.is_unlinking(origin.stream):
                raise _still_unlinking(origin)
        link = Link(broker, connection, handshake, origin, permissions, place, dialed=dialed)
        self._up[origin.stream] = link
        broker.core.link_up(origin.stream, permissions.rights, place)
        broker.succession.remind(link)
        broker.changed()
        _log.info("linked with %s at %s", origin.broker, connection.peer)
        return link

    def gone(self, link: Link, error: Exception | None) -> None:
        """The connection of a link is over."""
        if self._up.get(link.stream) is not link:
            return
        broker = self._broker
        del self._up[link.stream]
        self.dropped += link.queue.dropped
        broker.core.link_down(link.stream)
        broker.visits.link_gone(link.stream)
        if link.transfer.legacy is not None:
            broker.succession.take_over_soon(link.transfer.legacy)
        broker.changed()
        _log.info("lost the link with %s%s", link.origin.broker, f": {error}" if error else "")

    # -- what is told of them

    def via(self, origin: m.Origin) -> str:
        """The neighbor through which a broker is reached, or nothing."""
        way = self._broker.core.directory.towards(origin.stream)
        link = self._up.get(way) if way is not None else None
        return link.origin.broker if link is not None else ""

    def known_at(self, address: str) -> m.Origin | None:
        """The broker that listens at an address, if this one has heard of it."""
        others = self._broker.core.directory.others
        return next((origin for origin in others if address in origin.addresses), None)

    def why_in_reserve(self, address: str) -> str:
        """Why a link waits, as this broker sees it; else what the other one has said of it."""
        origin = self.known_at(address)
        way = "" if origin is None else self.via(origin)
        if origin is None or not way:
            return f"the broker there says: {self.dialing[address]}"
        if way == origin.broker:
            return f"there is a link with {origin.broker} already"
        return f"{origin.broker} is reached through {way}; this link is made when that way is lost"


def _still_unlinking(origin: m.Origin) -> Overloaded:
    return Overloaded(
        f"what {origin.broker!r} asked for over its last link is still being forgotten; try again"
    )
