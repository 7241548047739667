"""What it means for a broker to be succeeded by a neighbor, or to succeed one.

A journal that was taken over is served as soon as the link to its old owner is down, and at every
start.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stentor.broker.storage import (
    Journal,
    JournalBatch,
    Moved,
    Outdated,
    confirmed,
    copy_journal,
    hand_over,
    outdated,
    set_aside,
    set_aside_outdated,
)
from stentor.broker.succession.estate import Imported, adopted, directory_of, journals_in
from stentor.errors import InvalidConfiguration, JournalUnavailable, ShuttingDown, StentorError

if TYPE_CHECKING:
    from stentor.broker.host import Broker
    from stentor.broker.peers import Link

_log: Final = logging.getLogger("stentor.broker")

#: Where the copy is made, below the data directory.
_COPY: Final = "handing-over"


class Succession:
    """The journals that a broker has of others, and whether another has its own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: Journals of brokers that were removed.
        self.journals: list[Journal] = []
        #: Those of this broker itself that were older copies, by their streams.
        self.outdated: dict[str, Outdated] = {}
        #: What was handed over from this directory to a neighbor that may not know it yet.
        self.unconfirmed: Moved | None = None
        self._has_moved = False
        self._tasks: set[asyncio.Task[None]] = set()

    # -- start and end of the broker

    def begin(self) -> None:
        """Before the journal is opened: finish a draining that was interrupted."""
        data = self._broker.settings.data
        if data is None or not data.is_dir():
            return
        set_aside_outdated(data, lambda stream: directory_of(data, stream))
        self.unconfirmed = set_aside(data)
        if self.unconfirmed is not None:
            _log.warning(
                "the journal %s was handed over to %s, which has not confirmed it; it is told "
                "again",
                self.unconfirmed.stream,
                self.unconfirmed.broker,
            )

    async def open(self) -> None:
        """Open the journals of others that are here."""
        for directory in adopted(self._broker.settings.data):
            await self._open(directory)

    def serve(self) -> None:
        """Answer for them."""
        for journal in self.journals:
            self._serve(journal)

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)
        for journal in self.journals:
            await asyncio.to_thread(journal.close)

    def finish(self) -> None:
        """The broker has stopped. If its journal is another's, the next one here is a new one."""
        data = self._broker.settings.data
        if data is None or not self._has_moved:
            return
        try:
            set_aside(data)
        except StentorError as error:
            _log.warning("%s; the next start does it", error)
            return
        if self.unconfirmed is None:
            confirmed(data)

    # -- of another

    async def _open(self, directory: Path) -> Journal:
        """Open another's journal, and take over what it has of subscriptions and producers.

        That is also what is not yet due.
        """
        broker = self._broker
        journal = await asyncio.to_thread(
            Journal.open, directory, name=None, retention=broker.settings.retention
        )
        journal.start(broker.call_from_thread, lambda done: None)
        try:
            context = Imported(directory)
            copy = outdated(journal, directory)
            if copy is not None:
                self.outdated[copy.stream] = copy
            if not context.is_done:
                durables = broker.core.import_durables(journal.stream, journal.durables())
                broker.journal.append(
                    JournalBatch(
                        [] if copy is None else copy.not_shown(),
                        producers=journal.producers(),
                        durables=durables,
                        schedule=journal.schedule(),
                        context=context,
                    )
                )
        except BaseException:
            journal.close()
            raise
        self.journals.append(journal)
        return journal

    def _serve(self, journal: Journal) -> None:
        copy = self.outdated.get(journal.stream)
        self._broker.core.adopt(copy or journal)
        self._broker.core.restore_detectors()
        self._broker.changed()
        what = "was removed" if copy is None else "is an older copy"
        _log.info("serves the journal %s of %s, which %s", journal.stream, journal.name, what)

    def reminded(self, known: Mapping[str, int]) -> None:
        """So far others know the streams to be that this broker answers for."""
        for stream, copy in self.outdated.items():
            if known.get(stream, 0) > copy.head:
                copy.extend(known[stream])
                self._broker.core.adopt(copy)

    def take_over_soon(self, directory: Path) -> None:
        """Serve the journal of a neighbor that is gone for good."""
        task = asyncio.get_running_loop().create_task(self._take_over(directory))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_over(self, directory: Path) -> None:
        """What fails now is tried again at the next start."""
        for each in journals_in(directory):
            try:
                self._serve(await self._open(each))
            except StentorError as error:
                _log.error("the journal in %s cannot be served: %s", each, error)

    # -- by another

    def remind(self, link: Link) -> None:
        """There is a new link: its other end may be the owner of a journal without knowing it."""
        moved = self.unconfirmed
        if moved is not None and moved.to == link.stream:
            link.transfer.let_go(moved.stream)

    def acknowledged(self, neighbor: str) -> None:
        """The neighbor knows now."""
        moved, data = self.unconfirmed, self._broker.settings.data
        if moved is not None and moved.to == neighbor and data is not None:
            confirmed(data)
            self.unconfirmed = None
            _log.info("%s has taken over %s", moved.broker, moved.stream)

    async def drain(self) -> dict[str, Any]:
        """Hand everything over to a neighbor; then the broker stops."""
        broker = self._broker
        if broker.draining:
            raise ShuttingDown("this broker is being shut down already")
        if not broker.links:
            raise InvalidConfiguration(
                "there is no neighbor to hand over to; link this broker with another first, or "
                "stop it"
            )
        if self.unconfirmed is not None:
            raise InvalidConfiguration(
                f"{self.unconfirmed.broker!r} has not confirmed yet that it has the journal that "
                "was handed over earlier; link this broker with it first"
            )
        broker.draining = True
        broker.core.pause(True)
        try:
            await broker.dismiss_clients("the broker is being removed")
            link = await self._hand_over()
        except BaseException:
            broker.draining = False
            broker.core.pause(False)
            broker.links.dial_again()
            broker.visits.dial()
            raise
        heir = link.origin.broker
        _log.info("handed everything over to %s", heir)
        try:
            await link.transfer.release(broker.stream)
            self.unconfirmed = None
        except StentorError as error:
            raise JournalUnavailable(
                f"the journal belongs to {heir!r} now, which has not confirmed it ({error}); start "
                "this broker once more, linked with it, to let it know"
            ) from error
        finally:
            broker.stop_soon("the broker was removed")
        return {
            "to": heir,
            "stream": broker.stream,
            "head": broker.journal.head,
            "durables": len(broker.core.durables),
        }

    async def _hand_over(self) -> Link:
        """Let the first neighbor that can take the journal have it."""
        broker = self._broker
        problems = []
        if broker.journal.pending:
            raise JournalUnavailable("the journal could not be written in time; drain again later")
        try:
            with _scratch(broker.settings.data) as copy:
                for number, journal in enumerate(self.journals, 1):
                    (copy / str(number)).mkdir(mode=0o700)
                    await asyncio.to_thread(copy_journal, journal, copy / str(number))
                head = await asyncio.to_thread(copy_journal, broker.journal, copy)
                for link in broker.heirs():
                    name = link.origin.broker
                    try:
                        await link.transfer.offer(copy)
                        if broker.journal.head != head:
                            raise JournalUnavailable(
                                "something was published meanwhile; drain again"
                            )
                        self._move(link)
                        return link
                    except StentorError as error:
                        problems.append(f"{name}: {error}")
                        _log.warning("%s did not take the journal over: %s", name, error)
                        link.connection.close()
        except StentorError:  # some are OSErrors too
            raise
        except OSError as error:
            raise JournalUnavailable(f"the journal cannot be copied: {error}") from error
        raise JournalUnavailable(f"no neighbor could take the journal over ({'; '.join(problems)})")

    def _move(self, link: Link) -> None:
        """From here on the neighbor is the owner."""
        moved = Moved(self._broker.stream, link.stream, link.origin.broker)
        if self._broker.settings.data is not None:
            hand_over(self._broker.settings.data, moved)
            self.unconfirmed = moved
        self._has_moved = True


@contextmanager
def _scratch(data: Path | None) -> Iterator[Path]:
    """A directory for the copy: beside the journal, where there is a disk for such sizes."""
    if data is None:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    copy = data / _COPY
    shutil.rmtree(copy, ignore_errors=True)  # of a draining that was interrupted
    copy.mkdir(mode=0o700)
    try:
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)
