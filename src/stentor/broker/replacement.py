"""One link in place of another, as an operator plans it (R-07.67).

The new neighbor is dialed first, while the old link carries everything. Where links may form
cycles, the new one is up before the old one goes, and nobody notices anything. In a tree it would
close a cycle: the other broker answers, and the link waits in reserve; then the old one goes and
the new one is made at once. Streams that come through it begin afresh, and subscribers read what
they missed from the journals; only what no journal holds can be lost meanwhile.

If the new neighbor does not answer, or the link is not made, everything stays as it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from stentor.errors import InvalidConfiguration, LinkRefused
from stentor.transport.address import Address

if TYPE_CHECKING:
    from stentor.broker.host import Broker

#: Seconds that a new neighbor has to answer, and again to be linked when the old link is gone.
PATIENCE: Final = 10.0
#: Seconds between two looks at it.
EVERY: Final = 0.02


async def replace_link(broker: Broker, old: str, new: str) -> None:
    """Link with the broker at `new` instead of `old`, an address or a name."""
    before = _dialed(broker, old)
    after = str(Address.parse(new))
    if after == before:
        raise InvalidConfiguration(f"{old} and {new} are the same neighbor")
    broker.links.add(after)
    try:
        if not await _comes(broker, after, reserve=True):
            raise LinkRefused(_told(broker, after, before))
        broker.links.remove(before)
        try:
            if not await _comes(broker, after, reserve=False):
                raise LinkRefused(_told(broker, after, before))
        except BaseException:
            broker.links.add(before)
            raise
    except BaseException:
        broker.links.remove(after)
        raise


def _dialed(broker: Broker, which: str) -> str:
    """The address at which this broker dials the neighbor."""
    for address in broker.links.dialing:
        link = broker.links.at(address)
        names = () if link is None else (link.origin.broker, link.stream, *link.origin.addresses)
        if which in (address, *names) or (":" in which and str(Address.parse(which)) == address):
            return address
    raise InvalidConfiguration(
        f"this broker dials no neighbor {which!r}; replace the link at the broker that does"
    )


async def _comes(broker: Broker, address: str, *, reserve: bool) -> bool:
    """Whether the link to this address is up in time; or waits in reserve, if that will do."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while loop.time() < end:
        if broker.links.at(address) is not None:
            return True
        if address in broker.links.reserve:
            if reserve:
                return True
            broker.links.dial_now(address)
        await asyncio.sleep(EVERY)
    return False


def _told(broker: Broker, new: str, old: str) -> str:
    reason = broker.links.dialing.get(new, "it was removed")
    return f"the link with {new} is not made ({reason}); that with {old} stays"
