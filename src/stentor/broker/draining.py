"""Taking a broker out of the overlay for good, without loss.

What a broker answers for must not go with it: subscribers who are away will ask for what was
published here, and durable subscriptions may live here. So a broker that is drained says goodbye to
its clients (who turn to its neighbors and publish again what was not answered), waits until its
journal is on disk, and hands a copy of the journal to a neighbor. The neighbor serves it from then
on under its old stream, and takes over the durable subscriptions and what is known of producers.
For subscribers everywhere the stream has just moved: it begins afresh at another broker.

On the side of the neighbor the copy lies in a directory of its own below its data directory. It is
taken into use when the removed broker's link is down, and at every start. Retention applies to it
as to the neighbor's own journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stentor.broker.storage import Batch, Journal, copy_journal, set_aside
from stentor.errors import (
    InvalidConfiguration,
    JournalUnavailable,
    NoReply,
    ProtocolError,
    ShuttingDown,
    StentorError,
)
from stentor.node.actions import Persist
from stentor.protocol import messages as m

if TYPE_CHECKING:
    from stentor.broker.host import Broker
    from stentor.broker.peers import Link

_log: Final = logging.getLogger("stentor.broker")

#: The files of a journal, in the order in which they are handed over.
FILES: Final = ("journal.db", "journal.mark")
ADOPTED: Final = "adopted"
#: Bytes of one piece.
PIECE: Final = 256 * 1024
#: Seconds that a neighbor may take for one step.
PATIENCE: Final = 60.0


async def drain(broker: Broker) -> dict[str, Any]:
    """Hand everything over to a neighbor; then the broker stops."""
    if broker.draining:
        raise ShuttingDown("this broker is being shut down already")
    if not broker.links:
        raise InvalidConfiguration(
            "there is no neighbor to hand over to; link this broker with another first, or stop it"
        )
    broker.draining = True
    try:
        broker.say_goodbye("the broker is being removed")
        await broker.settle()
        link = await _hand_over(broker)
    except BaseException:
        broker.draining = False
        raise
    handed = {
        "to": link.origin.broker,
        "stream": broker.stream,
        "head": broker.journal.head,
        "durables": len(broker.service.durables),
    }
    _log.info("handed everything over to %s", link.origin.broker)
    broker.stop_soon("the broker was removed", after=_set_aside)
    return handed


def _set_aside(broker: Broker) -> None:
    """The journal is another's now: a broker that is started here again begins a new one."""
    if broker.settings.data is not None:
        set_aside(broker.settings.data)


async def _hand_over(broker: Broker) -> Link:
    """Send a copy of the journal to the first neighbor that can take it."""
    problems = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        await asyncio.to_thread(copy_journal, broker.journal, copy)
        for link in list(broker.links.values()):
            try:
                await _send(link, copy)
                return link
            except StentorError as error:
                problems.append(f"{link.origin.broker}: {error}")
    raise JournalUnavailable(f"no neighbor could take the journal over ({'; '.join(problems)})")


async def _send(link: Link, copy: Path) -> None:
    link.handed_over = asyncio.get_running_loop().create_future()
    for name in FILES:
        with (copy / name).open("rb") as file:
            piece = file.read(PIECE)
            while True:
                following = file.read(PIECE)
                await _writable(link)
                link.connection.send(m.Handover(name, piece, last=not following))
                if not following:
                    break
                piece = following
    try:
        await asyncio.wait_for(link.handed_over, PATIENCE)
    except TimeoutError:
        raise NoReply(f"no answer within {PATIENCE:g} seconds") from None


async def _writable(link: Link) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not link.connection.writable and not link.connection.is_closing:
        if asyncio.get_running_loop().time() > deadline:
            raise NoReply("it does not take what is sent to it")
        await asyncio.sleep(0.01)
    if link.connection.is_closing:
        raise ShuttingDown("the link was lost")


class Adoption:
    """A journal that arrives from a neighbor in pieces."""

    def __init__(self, data: Path | None, stream: m.StreamId) -> None:
        if data is None:
            raise JournalUnavailable("this broker has no data directory to keep another's journal")
        self._final = data / ADOPTED / _directory_name(stream)
        self._incoming = self._final.with_suffix(".incoming")
        self._file = 0
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir(mode=0o700, parents=True)

    def take(self, piece: m.Handover) -> Path | None:
        """Store a piece. The directory, when everything is there and on disk."""
        if self._file >= len(FILES) or piece.file != FILES[self._file]:
            raise ProtocolError(f"{piece.file!r} is not the file that is to come")
        try:
            with (self._incoming / piece.file).open("ab") as file:
                file.write(piece.data)
                if piece.last:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            shutil.rmtree(self._incoming, ignore_errors=True)
            raise JournalUnavailable(f"the journal cannot be stored: {error.strerror}") from error
        if not piece.last:
            return None
        self._file += 1
        if self._file < len(FILES):
            return None
        shutil.rmtree(self._final, ignore_errors=True)
        self._incoming.rename(self._final)
        return self._final

    def abandon(self) -> None:
        """The rest will not come."""
        shutil.rmtree(self._incoming, ignore_errors=True)


def _directory_name(stream: m.StreamId) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in stream)


def adopted(data: Path | None) -> list[Path]:
    """The journals of others in a data directory."""
    if data is None or not (data / ADOPTED).is_dir():
        return []
    found = sorted((data / ADOPTED).iterdir())
    return [path for path in found if path.is_dir() and path.suffix != ".incoming"]


def take_over(broker: Broker, directory: Path, *, import_state: bool) -> None:
    """Serve another's journal; with `import_state`, take its durable subscriptions over too."""
    journal = Journal.open(directory, name=None, retention=broker.settings.retention)
    journal.start(broker.call_from_thread, lambda done: None)
    broker.adopted_journals.append(journal)
    if import_state:
        durables = broker.service.import_durables(journal.durables())
        context = Persist("", None, None)
        broker.journal.append(
            Batch(producers=journal.producers(), durables=durables, context=context)
        )
    broker.service.adopt(journal)
    broker.changed()
    _log.info("serves the journal of %s, which was removed", journal.name)
