"""The clock of the library in this process: that of the machine, unless a test is ahead of it.

A test that lets an hour pass without waiting moves the clocks of its brokers, and the clients of
the process have to agree with them: about when something has expired, when a lease is to be
renewed, and which time an event is given. So all of them look here. Timers that only have to do
with the network (attempts to connect, signs of life) stay with the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from stentor.client.local_broker import LocalBroker


class ProcessClock:
    """How far this process is ahead of the machine's clock, in seconds."""

    __slots__ = ("ahead", "clients")

    def __init__(self) -> None:
        self.ahead = 0.0
        #: Those who are told when it moves.
        self.clients: WeakSet[LocalBroker] = WeakSet()

    def advance(self, seconds: float) -> None:
        """Let time pass, from any thread."""
        self.ahead += seconds
        for client in list(self.clients):
            client.time_moved()


clock: Final = ProcessClock()
