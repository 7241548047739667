"""Cancelling what waits at another broker than the one that serves now.

What is to be delivered later lies at the broker where it was published, and only there. A client
that has another broker since, or another process that was handed the id, cannot know which that is.
So the others are asked one after the other, each over a connection of its own that ends with the
answer. Names are per broker: the client is there under the name that it has here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stentor.errors import ProtocolError, StentorError, Unreachable

if TYPE_CHECKING:
    from stentor.client.local_broker import LocalBroker


async def cancel_elsewhere(local: LocalBroker, id: str) -> bool:
    """Whether another broker had it, and will not deliver it.

    `Unreachable` if none has it and one could not be asked.
    """
    try:
        brokers = await local.ask("brokers")
    except ProtocolError:  # it is of an older release
        return False
    unasked: list[str] = []
    for broker, addresses in brokers:
        try:
            if await local.ask_at(addresses, "cancel", {"id": id}):
                return True
        except StentorError as error:
            unasked.append(f"{broker}: {error}")
    if unasked:
        raise Unreachable(
            f"whether {id} is cancelled is not known: it is not at the brokers that could be "
            f"asked, but it may be at {'; '.join(unasked)}. Connect there, or try again later"
        )
    return False
