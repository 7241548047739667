"""Taking over the journal of a neighbor that leaves for good; `draining` is the neighbor's side.

A journal that is handed over goes through three directories below `adopted`. Its pieces are
gathered in `….incoming`. When all are there they are opened and verified as any journal is that a
broker starts with, and the directory becomes `….offered`: only then is the offer answered. When the
neighbor says that it has let go of the stream (`RELEASED`), the directory loses its suffix and the
journal is this broker's for good. It is served as soon as the link to its old owner is down, and at
every start. Journals that the old owner had adopted itself come with it, in directories `1`, `2`,
... below.

Only the grant by which an offer was made can let go of its stream, and only a neighbor whose grant
allows everything can hand a journal over.

An offer alone gives no right to serve the journal. Whoever made it may have changed its mind: no
answer came in time, or it was restarted. Then it still answers for the stream, and says so by
linking up again under it; the offer is thrown away. If it had let go of the stream but could not
say so any more, it says so when it is started again. In between the stream has no owner that can be
reached, as if its broker were down; it never has two.

Durable subscriptions and what is known of producers are copied into this broker's own journal.
`imported` in the directory says that this is done. It is written behind the commit, and until it is
there every start imports again, which changes nothing that is newer here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from stentor.broker.settings import Retention
from stentor.broker.storage import Batch, Journal
from stentor.broker.storage.directory import ADOPTED, sync
from stentor.errors import JournalDamaged, JournalUnavailable, ProtocolError, StentorError
from stentor.protocol import messages as m

if TYPE_CHECKING:
    from stentor.broker.host import Broker
    from stentor.broker.peers import Link

_log: Final = logging.getLogger("stentor.broker")

#: The files of a journal, in the order in which they are handed over.
FILES: Final = ("journal.db", "journal.mark")
#: What a `Handover` is called by which the old owner lets go of the stream that it names.
RELEASED: Final = "released"

_FILE: Final = re.compile(r"([1-9][0-9]{0,5}/)?journal\.(?:db|mark)")
_INCOMING: Final = ".incoming"
_OFFERED: Final = ".offered"
_IMPORTED: Final = "imported"
_OFFERED_BY: Final = "offered-by"


class Imported(NamedTuple):
    """Context of the batch that imports an adopted journal's state."""

    directory: Path

    def stored(self, error: StentorError | None) -> None:
        """It is committed, or failed."""
        if error is not None:
            _log.error("%s is imported at the next start: %s", self.directory, error)
            return
        try:
            (self.directory / _IMPORTED).touch()
        except OSError as failure:
            _log.warning("%s is imported again at the next start: %s", self.directory, failure)


class Adoption:
    """A journal that arrives from a neighbor in pieces."""

    def __init__(self, data: Path | None, stream: m.StreamId, grant: str | None = None) -> None:
        """`grant` is that of the neighbor; only who has it can let go of the stream."""
        if data is None:
            raise JournalUnavailable("this broker has no data directory to keep another's journal")
        self._stream = stream
        self._grant = grant
        self._offer = _directory(data, stream, _OFFERED)
        if _directory(data, stream).exists():
            raise JournalUnavailable(f"this broker has adopted a journal {stream!r} already")
        #: The file that has to come next, if only one can.
        self._next: str | None = None
        self._complete = False
        try:
            self._offer.parent.mkdir(mode=0o700, exist_ok=True)
            # A name of its own: an earlier one may still be looked at by a thread.
            made = tempfile.mkdtemp(_INCOMING, f"{self._offer.stem}.", self._offer.parent)
        except OSError as error:
            raise _unstorable(error) from error
        self._incoming = Path(made)

    def take(self, piece: m.Handover) -> bool:
        """Store a piece. Whether everything is there."""
        found = _FILE.fullmatch(piece.file)
        fits = piece.file.endswith(FILES[0]) if self._next is None else piece.file == self._next
        if found is None or not fits or self._complete:
            raise ProtocolError(f"{piece.file!r} is not the file that is to come")
        path = self._incoming / piece.file
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with path.open("ab") as file:
                file.write(piece.data)
        except OSError as error:
            raise _unstorable(error) from error
        self._next = piece.file
        if piece.last:
            is_first = piece.file.endswith(FILES[0])
            self._next = f"{found[1] or ''}{FILES[1]}" if is_first else None
            self._complete = piece.file == FILES[1]
        return self._complete

    def verify(self) -> None:
        """Bring it to disk and see whether it is whole. Takes its time; meant for a thread."""
        for directory in journals_in(self._incoming):
            try:
                for name in FILES:
                    with (directory / name).open("rb") as file:
                        os.fsync(file.fileno())
                if directory != self._incoming:  # its state is in the old owner's own journal
                    (directory / _IMPORTED).touch()
                sync(directory)
            except OSError as error:
                raise _unstorable(error) from error
            journal = Journal.open(directory, name=None, retention=Retention())
            journal.close()
            if directory == self._incoming and journal.stream != self._stream:
                raise JournalDamaged(
                    f"this is the journal {journal.stream!r}, not {self._stream!r}"
                )

    def keep(self) -> None:
        """It is whole: keep it until its owner lets go of the stream, or thinks otherwise."""
        try:
            (self._incoming / _OFFERED_BY).write_text(self._grant or "", "utf-8")
            shutil.rmtree(self._offer, ignore_errors=True)
            self._incoming.rename(self._offer)
            sync(self._offer.parent)
        except OSError as error:
            raise _unstorable(error) from error

    def abandon(self) -> None:
        """Nothing will come of it."""
        shutil.rmtree(self._incoming, ignore_errors=True)


def discard_offer(data: Path | None, stream: m.StreamId) -> None:
    """The owner of the stream goes on by itself."""
    if data is not None and (offer := _directory(data, stream, _OFFERED)).exists():
        shutil.rmtree(offer, ignore_errors=True)
        _log.info("the owner of %s goes on; its offer was discarded", stream)


def released(broker: Broker, link: Link, stream: m.StreamId) -> None:
    """The owner has let go of the stream for good. It may say so more than once."""
    data = broker.settings.data
    if data is None:
        return
    offer, final = _directory(data, stream, _OFFERED), _directory(data, stream)
    if final.exists():
        link.connection.send(m.HandedOver())
        return
    if link.permissions.rights is not None or _is_of_another(offer, link.permissions.name):
        _log.warning(
            "%s says that %s was let go of, which it has not offered; that is ignored",
            link.origin.broker,
            stream,
        )
        return
    try:
        offer.rename(final)
        sync(final.parent)
    except OSError as error:
        _log.error(
            "%s was handed over to this broker, but cannot be taken into use (%s); the directory "
            "of %s keeps a copy",
            stream,
            error,
            link.origin.broker,
        )
        return
    link.connection.send(m.HandedOver())
    old = broker.links.get(stream)
    if old is None:
        broker.take_over_soon(final)
        return
    old.legacy = final
    if old is not link:
        old.connection.abort()  # of a process that is dead


def _is_of_another(offer: Path, grant: str | None) -> bool:
    """Whether an offer was made by another grant. Of a neighbor that was dialed none is known."""
    try:
        by = (offer / _OFFERED_BY).read_text("utf-8")
    except OSError:
        return False
    return bool(by and grant and by != grant)


def journals_in(directory: Path) -> list[Path]:
    """The directories of journals that came together: that of the old owner, and older ones."""
    return [directory, *sorted(path for path in directory.iterdir() if path.is_dir())]


def adopted(data: Path | None) -> list[Path]:
    """The journals of others that belong to a data directory. Clears away what never arrived."""
    if data is None or not (data / ADOPTED).is_dir():
        return []
    found = sorted(path for path in (data / ADOPTED).iterdir() if path.is_dir())
    for path in found:
        if path.suffix == _INCOMING:
            shutil.rmtree(path, ignore_errors=True)
    return [each for path in found if not path.suffix for each in journals_in(path)]


async def open_adopted(broker: Broker, directory: Path) -> Journal:
    """Open another's journal, and take over its durable subscriptions and producers."""
    journal = await asyncio.to_thread(
        Journal.open, directory, name=None, retention=broker.settings.retention
    )
    journal.start(broker.call_from_thread, lambda done: None)
    try:
        if not (directory / _IMPORTED).exists():
            durables = broker.core.import_durables(journal.durables())
            broker.journal.append(
                Batch(producers=journal.producers(), durables=durables, context=Imported(directory))
            )
    except BaseException:
        journal.close()
        raise
    broker.adopted_journals.append(journal)
    return journal


def serve_adopted(broker: Broker, journal: Journal) -> None:
    """Answer for another's journal."""
    broker.core.adopt(journal)
    broker.changed()
    _log.info("serves the journal of %s, which was removed", journal.name)


async def take_over(broker: Broker, directory: Path) -> None:
    """Both, while the broker runs. What fails now is tried again at the next start."""
    for each in journals_in(directory):
        try:
            serve_adopted(broker, await open_adopted(broker, each))
        except StentorError as error:
            _log.error("the journal in %s cannot be served: %s", each, error)


def _directory(data: Path, stream: m.StreamId, suffix: str = "") -> Path:
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in stream)
    return data / ADOPTED / (name + suffix)


def _unstorable(error: OSError) -> JournalUnavailable:
    return JournalUnavailable(f"the journal cannot be stored: {error.strerror}")
