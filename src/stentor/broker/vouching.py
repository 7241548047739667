"""Whether the journal that a broker was started with is all that it ever acknowledged.

Somebody may have put back an older copy of its directory: from a backup, a snapshot of a virtual
machine, a disk that had been replaced. Nothing in the copy tells. But others remember how far the
stream had come: neighbors, who say so as soon as they are linked, and clients, who come with their
positions. What the broker would journal under offsets that were used before, they would all take
for what they have had.

A broker with neighbors therefore acknowledges nothing when it starts until the first of them has
spoken, or `limits.contact` has passed. If somebody knows of more than the journal has, the broker
starts anew at once, with a new journal and a new stream; see `stentor.broker.storage.outdated` for
what becomes of the old one. What it has acknowledged since it started goes into the new journal,
so a word that comes late costs nothing but the second or so that this takes.

A client could say anything. So its word counts for a while after the start only, and never of a
stream that began after it: it can make a broker start anew once for each start, and lose nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from stentor.broker.storage import Ends, declare_outdated
from stentor.errors import StentorError
from stentor.node.agenda import Append

if TYPE_CHECKING:
    from stentor.broker.host import Broker

_log: Final = logging.getLogger("stentor.broker")

#: Seconds after the start in which the word of clients counts.
CLIENTS_COUNT: Final = 600.0


class Vouching:
    """Lets a broker begin when somebody has vouched for its journal."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: What is not journaled yet, and until when it may wait for the word of a neighbor.
        self._held: list[Append] = []
        self._until: float | None = None
        self._began = 0.0
        #: The last offset of the journal when it was opened.
        self._kept = 0
        self._renewing: asyncio.Task[None] | None = None

    def opened(self) -> None:
        """The journal is open, as it was found."""
        self._kept = self._broker.journal.head

    def begin(self, *, contact: bool) -> None:
        """The broker runs; `contact` if it has neighbors that may know more."""
        self._began = asyncio.get_running_loop().time()
        if contact and self._kept:
            self._until = self._began + self._broker.settings.limits.contact

    def holds(self, action: Append) -> bool:
        """Whether this is kept until somebody has spoken."""
        if self._until is not None:
            self._held.append(action)
        return self._until is not None

    def is_outdated(self) -> bool:
        """Whether the journal is an older copy, so that nothing of it may be said any more."""
        broker, core = self._broker, self._broker.core
        if self._renewing is not None:
            return True
        now = asyncio.get_running_loop().time()
        known = core.used or 0
        if not broker.journal.is_new and now - self._began < CLIENTS_COUNT:
            known = max(known, core.journals.claimed)
        if known > broker.journal.head and broker.settings.data is not None:
            self._held.clear()  # whoever published it will send it again
            self._until = None
            self._renewing = asyncio.get_running_loop().create_task(self._renew(known))
            return True
        if self._until is not None and (core.used is not None or now >= self._until):
            self.release()
        return False

    def release(self) -> None:
        """Wait no longer."""
        self._until = None
        held, self._held = self._held, []
        for action in held:
            self._broker.append(action)

    async def settled(self) -> None:
        """Until the broker has started anew, if it is about to."""
        if self._renewing is not None:
            await asyncio.wait([self._renewing])

    async def _renew(self, known: int) -> None:
        broker = self._broker
        data, stream = broker.settings.data, broker.stream
        assert data is not None
        _log.error(
            "the journal in %s is an older copy: it ends at offset %d, and %s had come to %d at "
            "least; what is missing is lost, and subscribers who have not had it are told of a "
            "gap. From now on this broker publishes under a new stream",
            data,
            self._kept,
            stream,
            known,
            extra={"event": "journal_outdated"},
        )
        try:
            declare_outdated(data, Ends(stream, self._kept, known))
            await broker.start_anew("the broker starts anew, with a new journal")
            _log.warning("%s goes on as %s", stream, broker.stream)
        except (StentorError, OSError):
            _log.exception("the broker cannot start anew; start it again")
            broker.ended()
        finally:
            self._renewing = None
