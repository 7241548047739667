"""An uplink: a client's connection to a broker, made again whenever it is lost.

An uplink has the addresses of one or more brokers that serve equally well. It tries them in order,
beginning with the one that was good last, and waits longer and longer between rounds in which none
answered (`backoff`). A connection counts from its `Welcome` on. An uplink that is not `lasting`
makes one connection only.

Errors have three fates. While the first connection is being made, those that no waiting heals (a
wrong token, an untrusted certificate) are raised as soon as every broker has one, the others when
time is up. Later nothing is raised: outages are ridden out, the reasons are logged (by a warning
when it takes long, see `outage`), and the last one is in `error`. Only a client that takes our name
ends the uplink for good. A broker that says `Goodbye` may name others; those that are trusted
(`trust`) are tried first. That happens at once, but not again and again: brokers that send a client
around in a circle are waited for like others.

A connection on which nothing was heard for as long as the broker said is given up: the other side
may be gone without a word. Pings, at a third of that time, make sure that something can be heard.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Final, Literal, Protocol, TypeAlias

from stentor.client.backoff import PERMANENT, Backoff
from stentor.client.outage import Outage
from stentor.client.trust import Trust
from stentor.errors import (
    NameTaken,
    RedirectRefused,
    ShuttingDown,
    StentorError,
    Unreachable,
)
from stentor.protocol.handshake import Handshake, Left
from stentor.protocol.messages import AnyMessage, Goodbye, Hello, Ping, Pong, Welcome
from stentor.transport import Address, Connection, connect

State: TypeAlias = Literal["connecting", "connected", "reconnecting", "closed"]

#: Seconds that one attempt may take once the first connection was made.
ATTEMPT: Final = 5.0
#: A connection that lasted so many seconds was a good one: delays begin anew.
STABLE: Final = 5.0
#: Brokers that are remembered because others named them.
MAX_NAMED: Final = 16
#: How often in a row a client turns to others at once, without a good connection in between.
MAX_HURRIES: Final = 3
#: Seconds that a further attempt at an address must have before the whole time is over.
SHORTEST: Final = 0.1
#: Seconds to wait for the other side to close.
CLOSING: Final = 6.0

_log: Final = logging.getLogger("stentor.client")


class UplinkUser(Protocol):
    """Who uses an uplink. All calls are made by the event loop."""

    def welcomed(self, link: Uplink, welcome: Welcome) -> None:
        """A connection is there. A `StentorError` refuses this broker."""

    def heard(self, link: Uplink, messages: list[AnyMessage]) -> None:
        """Messages have come, other than those about the connection itself."""

    def writable(self, link: Uplink) -> None:
        """What piled up has been sent."""

    def leaves(self, link: Uplink) -> None:
        """The broker leaves, and hears what was settled; nothing else need be said to it."""

    def lost(self, link: Uplink, error: StentorError) -> None:
        """The connection is gone. A lasting uplink makes another."""

    def gone(self, link: Uplink, error: StentorError) -> None:
        """There will not be another connection."""


class _Wire:
    """One connection, from `Hello` to its end."""

    def __init__(self, link: Uplink, hello: Hello) -> None:
        self._link = link
        self._hello = hello
        self.connection: Connection | None = None
        loop = asyncio.get_running_loop()
        self.welcome: asyncio.Future[Welcome] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        #: What the broker said about the end of the connection.
        self.reason: StentorError | None = None

    def opened(self, connection: Connection) -> None:
        self.connection = connection
        self._handshake = Handshake(f"the broker at {connection.address}", self._hello)
        connection.send(self._hello)

    def received(self, connection: Connection, messages: list[AnyMessage]) -> None:
        rest: list[AnyMessage] = []
        for message in messages:
            match self._handshake.hear(message):
                case None:
                    pass
                case Pong() as answer:
                    connection.send(answer)
                case Welcome() as welcome:
                    self._welcomed(connection, welcome)
                case Left(reason, instead):
                    self.reason = reason
                    if instead is not None:
                        self._link._named(instead, connection.address)
                        if self._link._wire is self:
                            self._link._user.leaves(self._link)
                    self._refused(reason)
                    connection.close()
                case _:
                    rest.append(message)
        if rest and self._link._wire is self:
            self._link._user.heard(self._link, rest)

    def _welcomed(self, connection: Connection, welcome: Welcome) -> None:
        try:
            self._link._welcomed(self, welcome)
        except StentorError as error:
            self._refused(error)
            connection.close()
        else:
            self.welcome.set_result(welcome)

    def _refused(self, error: StentorError) -> None:
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()  # whoever waits gets it; if nobody does, it is no news

    def writable_again(self, connection: Connection) -> None:
        if self._link._wire is self:
            self._link._user.writable(self._link)

    def closed(self, connection: Connection, error: Exception | None) -> None:
        if self.reason is None:
            self.reason = _stentor_error(error) or Unreachable(
                f"the broker at {connection.address} closed the connection"
            )
        self._refused(self.reason)
        self.over.set_result(None)
        self._link._closed(self, self.reason)


class Uplink:
    """A connection that is kept up. Made, used and closed within one event loop."""

    def __init__(
        self,
        addresses: Sequence[Address],
        hello: Hello,
        user: UplinkUser,
        *,
        tls: ssl.SSLContext | None = None,
        trust: Trust | None = None,
        lasting: bool = True,
        backoff: Backoff | None = None,
    ) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        #: Brokers that others named, the newest first.
        self._others: list[Address] = []
        self._hello = hello
        self._user = user
        self._tls = tls
        self._trust = trust or Trust(self._addresses, token=hello.token is not None)
        self._lasting = lasting
        self._backoff = backoff or Backoff()
        self._loop = asyncio.get_running_loop()
        self._wire: _Wire | None = None
        #: All connections that are not yet over, as when one is closing while the next is made.
        self._wires: set[_Wire] = set()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._since = 0.0
        self._outage = Outage()
        #: When the broker was heard last before the connection was lost, by the loop's clock.
        self.lost_at = 0.0
        self._hurry = False
        self._hurries = 0
        self.state: State = "connecting"
        self.on_state: Callable[[State], None] = lambda state: None
        self.welcome: Welcome | None = None
        #: The broker that serves, or served last.
        self.address: Address = self._addresses[0]
        #: Why there is no connection.
        self.error: StentorError | None = None
        #: Connections that were made.
        self.connections = 0

    # -- use

    @property
    def connected(self) -> bool:
        return self._wire is not None

    @property
    def writable(self) -> bool:
        """Whether there is a connection and what was sent has mostly been taken."""
        wire = self._wire
        return wire is not None and wire.connection is not None and wire.connection.writable

    def send(self, message: AnyMessage) -> bool:
        """Send a message if there is a connection."""
        wire = self._wire
        if wire is None or wire.connection is None:
            return False
        wire.connection.send(message)
        return True

    # -- connecting

    async def open(self, timeout: float) -> None:
        """Make the first connection, or raise why that cannot be."""
        deadline = self._loop.time() + timeout
        reasons: dict[Address, StentorError] = {}
        while True:
            for i, address in enumerate(self._addresses):
                left = deadline - self._loop.time()
                if left <= (SHORTEST if address in reasons else 0):
                    break  # it would only tell that it had no time
                # No broker that is silent may take the time of those behind it.
                share = left / (len(self._addresses) - i)
                try:
                    await self._attempt(address, share)
                except StentorError as error:
                    self.error = reasons[address] = error
                else:
                    if self._lasting:
                        self._keeper = self._loop.create_task(self._keep())
                    return
            left = deadline - self._loop.time()
            hopeless = len(reasons) == len(self._addresses) and all(
                isinstance(error, PERMANENT) for error in reasons.values()
            )
            if hopeless or left <= 0 or not self._lasting:
                self._set_state("closed")
                raise _unreachable(reasons, self._addresses, timeout)
            await asyncio.sleep(min(self._backoff.next(), left))

    async def _attempt(self, address: Address, timeout: float) -> None:
        """Connect to this broker and be welcomed, or raise why not."""
        wire = _Wire(self, self._hello)
        deadline = self._loop.time() + timeout
        try:
            await connect(address, wire, tls=self._tls, timeout=timeout)
            if not wire.over.done():
                self._wires.add(wire)
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(wire.welcome)
        except StentorError:
            raise
        except TimeoutError:
            raise Unreachable(
                f"{address} does not answer: there is a connection, but no broker said Welcome "
                f"within {timeout:g} seconds; is that the port of a broker?"
            ) from None
        except OSError as error:
            raise Unreachable(f"{address} cannot be reached: {error}") from error
        finally:
            if wire is not self._wire:
                self._give_up(wire)
        self.address = address

    def _give_up(self, wire: _Wire) -> None:
        answered = wire.welcome.done()
        wire.welcome.cancel()  # nothing happens if it was answered
        if wire.connection is not None:
            if answered:
                wire.connection.close()
            else:
                wire.connection.abort()

    def _welcomed(self, wire: _Wire, welcome: Welcome) -> None:
        self.welcome = welcome
        self._wire = wire
        self._lost.clear()
        self._since = self._loop.time()
        try:
            self._user.welcomed(self, welcome)
        except StentorError:
            self._wire = None
            raise
        self.connections += 1
        self.error = None
        self._next_beat(welcome)
        self._set_state("connected")

    def _named(self, texts: list[str], via: Address) -> None:
        """A broker that leaves names others."""
        if self._loop.time() - self._since >= STABLE:
            self._hurries = 0
        self._hurries += 1
        self._hurry = self._hurries <= MAX_HURRIES
        found, refused = self._trust.followed(texts, via)
        if refused:
            _log.warning("%s: %s", RedirectRefused.code, refused)
        self.turn_to(found)

    def turn_to(self, addresses: Sequence[Address]) -> None:
        """Try these first, as soon as there is no connection."""
        self._others = list(dict.fromkeys([*addresses, *self._others]))[:MAX_NAMED]

    # -- keeping

    async def _keep(self) -> None:
        while True:
            await self._lost.wait()
            await self._reconnect()

    async def _reconnect(self) -> None:
        while True:
            if not self._hurry:
                await asyncio.sleep(self._backoff.next())
            self._hurry = False
            for address in self._rotation():
                try:
                    await self._attempt(address, ATTEMPT)
                except StentorError as error:
                    self.error = error
                    level = logging.WARNING if isinstance(error, PERMANENT) else logging.INFO
                    _log.log(level, "reconnecting: %s", error)
                    self._outage.goes_on(self._loop.time(), error)
                else:
                    _log.info("connected again, to %s", address)
                    self._outage.connected(address)
                    return

    def _rotation(self) -> list[Address]:
        """The brokers in the order in which they are tried.

        Those that others named come first, but in turns with the own ones: however many are named
        that do not answer, an own one has its turn soon.
        """
        own = self._addresses
        start = own.index(self.address) if self.address in own else 0
        turns = zip_longest(self._others, [*own[start:], *own[:start]])
        return [each for each in dict.fromkeys(chain.from_iterable(turns)) if each is not None]

    def _closed(self, wire: _Wire, reason: StentorError) -> None:
        self._wires.discard(wire)
        if self._wire is not wire:
            return
        self._wire = None
        self._stop_heartbeat()
        now = self._loop.time()
        self.lost_at = self._last_sign(wire, now)
        was_good = now - self._since >= STABLE
        if was_good:
            self._backoff.reset()
        self._outage.begin(now, anew=was_good)
        if isinstance(reason, ShuttingDown) and self.address in self._others:
            self._others.remove(self.address)
        self.error = reason
        if self.state == "closed":
            return
        _log.info("the connection was lost: %s", reason)
        self._outage.goes_on(now, reason)
        # Whoever has taken our name would only be pushed out again, and push us out in turn.
        taken = isinstance(reason, NameTaken)
        self._set_state("reconnecting" if self._lasting and not taken else "closed")
        self._user.lost(self, reason)
        if taken:
            self._user.gone(self, reason)
        else:
            self._lost.set()

    def _last_sign(self, wire: _Wire, now: float) -> float:
        """When the broker was still there: now, or long before if it was given up for silence."""
        timeout = self.welcome.timeout if self.welcome is not None else 0
        heard = wire.connection.last_heard if wire.connection is not None else now
        return heard if 0 < timeout <= now - heard else now

    def _set_state(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self.on_state(state)

    def _beat(self) -> None:
        """Ask for a sign of life, or notice that there was none for too long."""
        wire, welcome = self._wire, self.welcome
        if wire is None or wire.connection is None or welcome is None:
            return
        silent = self._loop.time() - wire.connection.last_heard
        if silent >= welcome.timeout:
            wire.connection.abort(
                Unreachable(
                    f"nothing was heard of the broker at {wire.connection.address} "
                    f"for {silent:.0f} seconds"
                )
            )
            return
        wire.connection.send(Ping())
        self._next_beat(welcome)

    def _next_beat(self, welcome: Welcome) -> None:
        self._stop_heartbeat()
        if welcome.timeout > 0:
            self._heartbeat = self._loop.call_later(welcome.timeout / 3, self._beat)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    # -- the end

    async def close(self, reason: str = "") -> None:
        """Say goodbye and leave nothing behind."""
        self._set_state("closed")
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        self._stop_heartbeat()
        if self._wire is not None and self._wire.connection is not None:
            self._wire.connection.send(Goodbye(reason))
        for wire in list(self._wires):
            if wire.connection is not None:
                wire.connection.close()
        waiting = [wire.over for wire in self._wires]
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSING)
        for wire in list(self._wires):
            if wire.connection is not None:
                wire.connection.abort()
        self._wire = None


def _stentor_error(error: Exception | None) -> StentorError | None:
    if error is None or isinstance(error, StentorError):
        return error
    return Unreachable(f"the connection was lost: {error}")


def _unreachable(
    reasons: dict[Address, StentorError], addresses: Sequence[Address], timeout: float
) -> StentorError:
    """One error for all brokers: the one there is, or a list."""
    if len(addresses) == 1 and reasons:
        return next(iter(reasons.values()))
    kinds = {type(error) for error in reasons.values()}
    lines = [
        f"  {address}: {reasons.get(address, 'not tried, time was up')}" for address in addresses
    ]
    text = f"no broker could be reached within {timeout:g} seconds:\n" + "\n".join(lines)
    only = kinds.pop() if len(kinds) == 1 and len(reasons) == len(addresses) else Unreachable
    return only(text) if issubclass(only, PERMANENT) else Unreachable(text)
