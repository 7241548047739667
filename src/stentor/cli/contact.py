"""Says on stderr that a broker cannot be reached while a command goes on trying, and when it can.

A broker that restarts is back within a moment, which nobody needs to hear of. Longer than that,
silence would look like a command that hangs.
"""

from __future__ import annotations

import asyncio
from typing import Final

from stentor.cli.exits import note
from stentor.client import Bus
from stentor.client.outage import LOG

#: Seconds without a connection after which somebody is told.
MOMENT: Final = 1.5


class Contact:
    """Watches the connection of one bus, within a running event loop."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._told = False
        self._timer: asyncio.TimerHandle | None = None
        LOG.disabled = True  # it would say the same again
        bus.on_state(self._changed)
        self._changed(bus.state)

    def _changed(self, state: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if state in ("connecting", "reconnecting"):
            self._timer = asyncio.get_running_loop().call_later(MOMENT, self._tell)
        elif state == "connected" and self._told:
            self._told = False
            note(f"connected to {self._bus.broker}")

    def _tell(self) -> None:
        self._told = True
        reason = self._bus.error or "no answer yet"
        note(f"not connected, still trying: {reason}")
