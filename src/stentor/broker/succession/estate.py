"""What a broker has on disk of journals that neighbors hand over to it.

Such a journal goes through three directories below `adopted`. Its pieces are gathered in
`….incoming`. When all are there they are opened and verified as any journal is that a broker starts
with, and the directory becomes `….offered`: only then is the offer answered. When the neighbor says
that it has let go of the stream, the directory loses its suffix and the journal is this broker's
for good. Journals that the old owner had adopted itself come with it, in directories `1`, `2`, ...
below. What is known of durable subscriptions and producers is copied into this broker's own
journal; `imported` says that this is done. It is written behind the commit, and until it is there
every start imports again, which changes nothing that is newer here.

An offer alone gives no right to serve the journal. Whoever made it may have changed its mind: no
answer came in time, or it was restarted. Then it still answers for the stream, and says so by
linking up again under it; the offer is thrown away.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from stentor.broker.access import Permissions
from stentor.broker.settings import Retention
from stentor.broker.storage import Journal
from stentor.broker.storage.directory import ADOPTED, DATABASE, MARK, sync
from stentor.errors import (
    JournalDamaged,
    JournalUnavailable,
    NotPermitted,
    ProtocolError,
    StentorError,
)
from stentor.protocol import messages as m

_log: Final = logging.getLogger("stentor.broker")

#: The files of a journal, in the order in which they are handed over.
FILES: Final = (DATABASE, MARK)

_FILE: Final = re.compile(r"([1-9][0-9]{0,5}/)?journal\.(?:db|mark)")
_INCOMING: Final = ".incoming"
_OFFERED: Final = ".offered"
_IMPORTED: Final = "imported"
_OFFERED_BY: Final = "offered-by"


class Imported(NamedTuple):
    """That the state of an adopted journal is in the broker's own; context of the batch for it."""

    directory: Path

    @property
    def is_done(self) -> bool:
        return (self.directory / _IMPORTED).exists()

    def stored(self, error: StentorError | None) -> None:
        """It is committed, or failed."""
        if error is not None:
            _log.error("%s is imported at the next start: %s", self.directory, error)
            return
        try:
            (self.directory / _IMPORTED).touch()
        except OSError as failure:
            _log.warning("%s is imported again at the next start: %s", self.directory, failure)


class Offer:
    """A journal that arrives from a neighbor in pieces."""

    def __init__(self, data: Path | None, stream: m.StreamId, grant: str | None = None) -> None:
        """`grant` is that of the neighbor; only who has it can let go of the stream."""
        if data is None:
            raise JournalUnavailable("this broker has no data directory to keep another's journal")
        self._stream = stream
        self._grant = grant
        self._offer = directory_of(data, stream, _OFFERED)
        if directory_of(data, stream).exists():
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
    if data is not None and (offer := directory_of(data, stream, _OFFERED)).exists():
        shutil.rmtree(offer, ignore_errors=True)
        _log.info("the owner of %s goes on; its offer was discarded", stream)


def release_offer(
    data: Path | None, stream: m.StreamId, permissions: Permissions
) -> tuple[Path, bool]:
    """Its owner has let go of a stream: where the journal is now, and whether that is news."""
    if data is None:
        raise JournalUnavailable("this broker has no data directory")
    offer, final = directory_of(data, stream, _OFFERED), directory_of(data, stream)
    if final.exists():
        return final, False
    if permissions.rights is not None or _is_of_another(offer, permissions.name):
        raise NotPermitted("it has not offered it")
    try:
        offer.rename(final)
        sync(final.parent)
    except OSError as error:
        raise JournalUnavailable(f"{error}; the old owner's directory keeps a copy") from error
    return final, True


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


def directory_of(data: Path, stream: m.StreamId, suffix: str = "") -> Path:
    """Where the journal of a stream is kept that entered elsewhere, or before."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in stream)
    return data / ADOPTED / (name + suffix)


def _unstorable(error: OSError) -> JournalUnavailable:
    return JournalUnavailable(f"the journal cannot be stored: {error.strerror}")
