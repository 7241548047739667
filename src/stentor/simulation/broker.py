"""A simulated broker: the core that brokers run, on a virtual disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from stentor.errors import JournalUnavailable
from stentor.node.agenda import Append, Persist
from stentor.routing.protocol import BrokerId
from stentor.simulation.journal import MemoryLog

if TYPE_CHECKING:
    from stentor.node.core import Core
    from stentor.simulation.client import Client
    from stentor.simulation.host import Host


class SideChannel(NamedTuple):
    """A channel of the schedule that is no link: a disk, or one way of a client's connection.

    `disk` and `written`: what is to be written, and of what the core is to hear that it was.
    `work`: a core has something to do on its own. `up` and `down`: what a client says and hears.
    `refused`: a core wants a link to be closed.
    """

    kind: str
    of: Any
    #: So that none is taken for a link between two brokers.
    apart: None = None


class SimulatedBroker:
    """One broker, whatever it survives: its journal and what is stored outlive its core."""

    def __init__(self, host: Host, id: BrokerId, log: MemoryLog) -> None:
        self._host = host
        self.id = id
        self.name = str(id)
        self.log = log
        #: Durable subscriptions, as they are on disk.
        self.durables: dict[str, bytes] = {}
        #: Its clients by their connections.
        self.sessions: dict[int, Client] = {}
        self.up = False
        self.core: Core
        self.start()

    def start(self) -> None:
        """Begin with what is on disk."""
        self.up = True
        self.core = self._host.core_of(self)
        self.core.restore(dict(self.durables))
        self.core.restore_schedule(self.log.scheduled())
        self.core.restore_detectors()

    def stop(self) -> None:
        """It crashes: what was on its way to the disk is lost, like everything in memory."""
        self.up = False
        for kind in ("disk", "written", "work"):
            self._host.schedule.drop(SideChannel(kind, self.id))

    def write(self, action: Append | Persist) -> None:
        """The disk writes; the core hears of it later."""
        first = 0
        if isinstance(action, Append):
            if action.line.failed or self._host.disks_fail:
                first = -1
                action.line.failed = True  # nothing of this producer behind it, either
            else:
                first = self.log.write(action, self._host.time)
                self.durables |= action.states
        elif self._host.disks_fail:
            first = -1
        elif action.data is None:
            self.durables.pop(action.name, None)
        else:
            self.durables[action.name] = action.data
        self._host.schedule.put(SideChannel("written", self.id), (action, first))

    def written(self, action: Append | Persist, first: int) -> None:
        """The core hears that something was written, and from which offset on."""
        error = JournalUnavailable("the disk is full") if first < 0 else None
        if isinstance(action, Persist):
            self.core.stored(action.context, error)
        elif error is not None:
            self.core.failed(action.context, error)
        else:
            self.core.committed([(action.context, first, action.items)])

    def flush(self) -> None:
        """Carry out what the core wants done."""
        self._host.carry_out(self)
