"""The sequencer: one broker through which everything goes that is to have a total order (R-01.28).

What is published at one broker forms one stream, and every subscriber is given the notifications
of a stream in the order of their offsets: live, while it catches up, and after connections or
brokers were lost. So whatever is published at the same broker is delivered in the same order to
all, and the union of all orders of delivery has no cycle (`total_global`, R-01.32). Two publishers
at different brokers have no such order, and giving one to everybody would make every publication
wait for a single broker (R-01.30). Those who need it agree on a broker by its *name*, and publish
there only: a client with a sequencer is served by that broker or by none.

The name is given by the application, not chosen among the brokers there are. Whatever choice is
made by what brokers know of each other, the two sides of a partition would choose differently, and
there would be two orders. A name has one meaning on both sides: one can reach it, and the other
waits. The same goes for a broker that is down: publications are kept here and acknowledged when it
is back, each once and in order, as with any broker.

Which address the broker has, others know: the client asks those that it was given, when it is
opened and whenever the connection is lost. It connects there, and takes no other broker for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

from stentor.client.backoff import Backoff
from stentor.client.trust import Trust
from stentor.errors import RedirectRefused, Unreachable
from stentor.protocol.messages import Welcome
from stentor.transport import Address

if TYPE_CHECKING:
    from stentor.client.local_broker import LocalBroker

#: Seconds for the answer to a question.
ANSWER: Final = 5.0

_log: Final = logging.getLogger("stentor.client")


class Sequencer:
    """A broker by its name, whom other brokers know."""

    def __init__(self, broker: str, guide: Callable[[], LocalBroker], trust: Trust) -> None:
        """A guide is a client of some broker, to ask there; it is opened and closed here."""
        self._broker = broker
        self._guide = guide
        self._trust = trust
        self._stream: str | None = None

    async def locate(self, timeout: float) -> list[Address]:
        """Its addresses, as the first broker knows them that can be asked."""
        deadline = monotonic() + timeout
        guide = self._guide()
        await guide.open(timeout)
        try:
            welcome, via = guide.link.welcome, guide.link.address
            assert welcome is not None  # since it is open
            if welcome.broker == self._broker:
                return [via]
            backoff = Backoff()
            while not (texts := await guide.ask("where", {"broker": self._broker}, ANSWER)):
                delay = backoff.next()
                if monotonic() + delay > deadline:
                    raise Unreachable(
                        f"broker {welcome.broker!r} knows no broker {self._broker!r}, the "
                        "sequencer of this client; is that its name, is it running, and is it "
                        "linked with the others?"
                    )
                await asyncio.sleep(delay)
            places, refused = self._trust.followed(texts, via)
            if not places:
                raise RedirectRefused(
                    f"the broker {self._broker!r} is at {' or '.join(texts)}, where this client "
                    f"does not go: {refused}"
                )
            return places
        finally:
            await guide.close(0.0)

    def check(self, welcome: Welcome) -> None:
        """Raise unless it is this broker that bids welcome."""
        if welcome.broker != self._broker:
            raise Unreachable(
                f"broker {welcome.broker!r} is not {self._broker!r}, the sequencer of this client"
            )
        if self._stream not in (None, welcome.stream):
            _log.warning(
                "broker %r has begun another journal, so there is no order between what was "
                "published before and what is published from now on",
                self._broker,
            )
        self._stream = welcome.stream
