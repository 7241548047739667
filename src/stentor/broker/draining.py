"""Taking a broker out of the overlay for good, without loss.

What a broker answers for must not go with it: subscribers who are away will ask for what was
published here, and durable subscriptions may live here. So a broker that is drained says goodbye to
its clients (who turn to its neighbors and publish again what was not answered), waits until its
journal is on disk, and hands a copy of the journal to a neighbor. The neighbor serves it from then
on under its old stream, and takes over the durable subscriptions and what is known of producers.
For subscribers everywhere the stream has just moved: it begins afresh at another broker. Journals
that the broker had adopted itself go along.

A stream must have one owner at any time, whoever crashes when. This takes four messages:

    drained broker                                neighbor (`adopting`)
    ──────────────                                ─────────────────────
    the copy, in pieces  ───── Handover ────▶     stores and verifies it: an offer
                         ◀─── HandedOver ────     I have it
    "handed-over" on disk: THE STREAM HAS MOVED
    I have let go        ─ Handover released ▶    keeps it for good
                         ◀─── HandedOver ────     I know

Up to the file on disk the drained broker is the owner, and any trouble just ends the attempt: the
link is closed, so that no late answer is taken for that to another offer, and the neighbor throws
the offer away when it hears from the owner again. From the file on the neighbor is the owner, and
all that may be missing is that it hears so. If the drained broker dies before it was heard, it
finds the file when it is started again; it sets the old journal aside, begins a new one under a new
stream, and repeats "I have let go" whenever it links up with that neighbor, until it is answered.

While it is draining, a broker makes no new links and takes nothing from clients. So what a neighbor
hears on a new link was said by an owner that has no offer under way.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from stentor.broker.adopting import FILES, RELEASED
from stentor.broker.storage import Moved, confirmed, copy_journal, hand_over, set_aside
from stentor.errors import (
    InvalidConfiguration,
    JournalUnavailable,
    NoReply,
    ShuttingDown,
    StentorError,
)
from stentor.protocol import messages as m

if TYPE_CHECKING:
    from stentor.broker.host import Broker
    from stentor.broker.peers import Link

_log: Final = logging.getLogger("stentor.broker")

#: Bytes of one piece.
PIECE: Final = 256 * 1024
#: Seconds that a neighbor may take for one step.
PATIENCE: Final = 60.0
#: Where the copy is made, below the data directory.
_COPY: Final = "handing-over"


async def drain(broker: Broker) -> dict[str, Any]:
    """Hand everything over to a neighbor; then the broker stops."""
    if broker.draining:
        raise ShuttingDown("this broker is being shut down already")
    if not broker.links:
        raise InvalidConfiguration(
            "there is no neighbor to hand over to; link this broker with another first, or stop it"
        )
    if broker.unconfirmed is not None:
        raise InvalidConfiguration(
            f"{broker.unconfirmed.broker!r} has not confirmed yet that it has the journal that was "
            "handed over earlier; link this broker with it first"
        )
    broker.draining = True
    try:
        await broker.dismiss_clients("the broker is being removed")
        link = await _hand_over(broker)
    except BaseException:
        broker.draining = False
        broker.dial_again()
        raise
    broker.afterwards(_set_aside)
    _log.info("handed everything over to %s", link.origin.broker)
    try:
        await _release(link, broker.stream)
        broker.unconfirmed = None
    except StentorError as error:
        broker.stop_soon("the broker was removed")
        raise JournalUnavailable(
            f"the journal belongs to {link.origin.broker!r} now, which has not confirmed it "
            f"({error}); start this broker once more, linked with it, to let it know"
        ) from error
    broker.stop_soon("the broker was removed")
    return {
        "to": link.origin.broker,
        "stream": broker.stream,
        "head": broker.journal.head,
        "durables": len(broker.core.durables),
    }


def begin(data: Path | None) -> Moved | None:
    """Before a journal is opened: finish a draining that was interrupted.

    What was handed over, as long as its new owner may not know.
    """
    if data is None or not data.is_dir():
        return None
    handed = set_aside(data)
    if handed is not None:
        _log.warning(
            "the journal %s was handed over to %s, which has not confirmed it; it is told again",
            handed.stream,
            handed.broker,
        )
    return handed


def remind(broker: Broker, link: Link) -> None:
    """There is a new link: its other end may be the owner of a journal without knowing it."""
    handed = broker.unconfirmed
    if handed is not None and handed.to == link.stream:
        link.connection.send(_let_go(handed.stream))


def acknowledged(broker: Broker, link: Link) -> None:
    """The neighbor knows now."""
    handed = broker.unconfirmed
    if handed is not None and handed.to == link.stream and broker.settings.data is not None:
        confirmed(broker.settings.data)
        broker.unconfirmed = None
        _log.info("%s has taken over %s", handed.broker, handed.stream)


def _set_aside(broker: Broker) -> None:
    """The journal is another's now: a broker that is started here again begins a new one."""
    data = broker.settings.data
    if data is None:
        return
    try:
        set_aside(data)
    except StentorError as error:
        _log.warning("%s; the next start does it", error)
        return
    if broker.unconfirmed is None:
        confirmed(data)


async def _hand_over(broker: Broker) -> Link:
    """Let the first neighbor that can take the journal have it."""
    problems = []
    if broker.journal.pending:
        raise JournalUnavailable("the journal could not be written in time; drain again later")
    try:
        with _scratch(broker.settings.data) as copy:
            for number, journal in enumerate(broker.adopted_journals, 1):
                (copy / str(number)).mkdir(mode=0o700)
                await asyncio.to_thread(copy_journal, journal, copy / str(number))
            head = await asyncio.to_thread(copy_journal, broker.journal, copy)
            for link in broker.heirs():
                try:
                    await _offer(link, copy)
                    if broker.journal.head != head:
                        raise JournalUnavailable("something was published meanwhile; drain again")
                    _move(broker, link)
                    return link
                except StentorError as error:
                    problems.append(f"{link.origin.broker}: {error}")
                    _log.warning("%s did not take the journal over: %s", link.origin.broker, error)
                    link.connection.close()
    except StentorError:  # some are OSErrors too
        raise
    except OSError as error:
        raise JournalUnavailable(f"the journal cannot be copied: {error}") from error
    raise JournalUnavailable(f"no neighbor could take the journal over ({'; '.join(problems)})")


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


async def _offer(link: Link, copy: Path) -> None:
    """Send the copy; return when the neighbor has it."""
    answer = link.expect_handed_over()
    # The own journal comes last: with it everything is there.
    older = sorted(path.name for path in copy.iterdir() if path.is_dir())
    for name in [f"{number}/{file}" for number in older for file in FILES] + list(FILES):
        with (copy / name).open("rb") as file:
            await _send(link, name, file, answer)
    await _answered(answer)


async def _send(link: Link, name: str, file: BinaryIO, answer: asyncio.Future[None]) -> None:
    piece = file.read(PIECE)
    while not answer.done():
        following = file.read(PIECE)
        await _writable(link)
        link.connection.send(m.Handover(name, piece, last=not following))
        if not following:
            return
        piece = following


async def _writable(link: Link) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not link.connection.writable and not link.connection.is_closing:
        if asyncio.get_running_loop().time() > deadline:
            raise NoReply("it does not take what is sent to it")
        await asyncio.sleep(0.01)
    if link.connection.is_closing:
        raise ShuttingDown("the link was lost")


async def _answered(answer: asyncio.Future[None]) -> None:
    try:
        await asyncio.wait_for(answer, PATIENCE)
    except TimeoutError:
        raise NoReply(f"no answer within {PATIENCE:g} seconds") from None


def _move(broker: Broker, link: Link) -> None:
    """From here on the neighbor is the owner."""
    handed = Moved(broker.stream, link.stream, link.origin.broker)
    if broker.settings.data is not None:
        hand_over(broker.settings.data, handed)
        broker.unconfirmed = handed


async def _release(link: Link, stream: m.StreamId) -> None:
    """Tell it so; return when it knows."""
    if link.connection.is_closing:
        raise ShuttingDown("the link was lost")
    answer = link.expect_handed_over()
    link.connection.send(_let_go(stream))
    await _answered(answer)


def _let_go(stream: m.StreamId) -> m.Handover:
    return m.Handover(RELEASED, stream.encode(), last=True)
