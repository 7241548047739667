"""What passes over one link when the broker at one of its ends leaves for good: both ends of it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from stentor.broker.access import Permissions
from stentor.broker.succession.estate import FILES, Offer, discard_offer, release_offer
from stentor.errors import JournalUnavailable, NoReply, NotPermitted, ShuttingDown, StentorError
from stentor.protocol import messages as m
from stentor.transport import Connection

if TYPE_CHECKING:
    from stentor.broker.host import Broker

_log: Final = logging.getLogger("stentor.broker")

#: What a `Handover` is called by which the old owner lets go of the stream that it names.
RELEASED: Final = "released"
#: Bytes of one piece.
PIECE: Final = 256 * 1024
#: Seconds that a neighbor may take for one step.
PATIENCE: Final = 60.0


class Transfer:
    """The journals that pass over one link, in either direction."""

    def __init__(
        self, broker: Broker, connection: Connection, origin: m.Origin, permissions: Permissions
    ) -> None:
        self._broker = broker
        self._connection = connection
        #: The neighbor, and what it may do.
        self._origin = origin
        self._permissions = permissions
        #: What the neighbor says of what this broker hands over to it.
        self._answer: asyncio.Future[None] | None = None
        #: What the neighbor is handing over.
        self._offer: Offer | None = None
        #: Whether an offer was refused. What is still to come of it is ignored.
        self._refused = False
        #: Whether the neighbor has said anything yet as the owner of its stream.
        self._is_heard = False
        #: The journal that this neighbor has handed over, to be served when it is gone.
        self.legacy: Path | None = None

    def hear(self, message: Any) -> bool:
        """Whether a message of the neighbor was about this, and is dealt with."""
        match message:
            case m.Handover(file=file, data=data) if file == RELEASED:
                self._released(data.decode(errors="replace"))
            case m.Handover():
                self._take(message)
            case m.HandedOver():
                if self._answer is None:
                    self._broker.succession.acknowledged(self._origin.stream)
                self._settle(None)
            case _:
                if not self._is_heard:
                    self._is_heard = True
                    discard_offer(self._broker.settings.data, self._origin.stream)
                return False
        return True

    def lost(self, error: StentorError) -> None:
        """The link is at its end, and so is what was under way."""
        self._settle(error)
        self._abandon()

    # -- the broker that leaves

    async def offer(self, copy: Path) -> None:
        """Send a copy of the journal; return when the neighbor has it."""
        answer = self._expect()
        # The own journal comes last: with it everything is there.
        older = sorted(path.name for path in copy.iterdir() if path.is_dir())
        for name in [f"{number}/{file}" for number in older for file in FILES] + list(FILES):
            with (copy / name).open("rb") as file:
                await self._send(name, file, answer)
        await answered(answer)

    async def release(self, stream: m.StreamId) -> None:
        """Say that the neighbor is the owner; return when it knows."""
        if self._connection.is_closing:
            raise ShuttingDown("the link was lost")
        answer = self._expect()
        self.let_go(stream)
        await answered(answer)

    def let_go(self, stream: m.StreamId) -> None:
        self._connection.send(m.Handover(RELEASED, stream.encode(), last=True))

    async def _send(self, name: str, file: BinaryIO, answer: asyncio.Future[None]) -> None:
        piece = file.read(PIECE)
        while not answer.done():
            following = file.read(PIECE)
            await self._writable()
            self._connection.send(m.Handover(name, piece, last=not following))
            if not following:
                return
            piece = following

    async def _writable(self) -> None:
        connection = self._connection
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not connection.writable and not connection.is_closing:
            if asyncio.get_running_loop().time() > deadline:
                raise NoReply("it does not accept what is sent to it")
            await asyncio.sleep(0.01)
        if connection.is_closing:
            raise ShuttingDown("the link was lost")

    def _expect(self) -> asyncio.Future[None]:
        """Done when the neighbor says `HandedOver`; fails when it refuses or is lost."""
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def _settle(self, error: StentorError | None) -> None:
        """The neighbor has taken over what this broker handed it, or could not."""
        waiting, self._answer = self._answer, None
        if waiting is not None and not waiting.done():
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

    # -- the broker that stays

    def _take(self, piece: m.Handover) -> None:
        """The neighbor is about to go and hands its journal over."""
        if self._refused:
            return
        try:
            if self._permissions.rights is not None:
                raise NotPermitted(
                    "its grant limits what it may publish or see, so its journal is not taken over"
                )
            if self._offer is None:
                data = self._broker.settings.data
                self._offer = Offer(data, self._origin.stream, self._permissions.name)
            if self._offer.take(piece):
                self._broker.start_soon(self._verify(self._offer))
        except (JournalUnavailable, NotPermitted) as error:
            self._refuse(error)

    async def _verify(self, offer: Offer) -> None:
        """Everything is there: answer whether it is good."""
        try:
            await asyncio.to_thread(offer.verify)
            if self._offer is offer and not self._connection.is_closing:
                offer.keep()
                self._offer = None
                self._connection.send(m.HandedOver())
        except StentorError as error:
            self._refuse(error)
        finally:
            offer.abandon()

    def _refuse(self, error: StentorError) -> None:
        self._refused = True
        self._abandon()
        self._connection.send(m.Failure(error.code, str(error)))

    def _abandon(self) -> None:
        offer, self._offer = self._offer, None
        if offer is not None:
            offer.abandon()

    def _released(self, stream: m.StreamId) -> None:
        """The owner has let go of the stream for good. It may say so more than once."""
        broker = self._broker
        try:
            directory, is_new = release_offer(broker.settings.data, stream, self._permissions)
        except StentorError as error:
            text = "%s has let go of %s, which this broker cannot take over: %s"
            _log.warning(text, self._origin.broker, stream, error)
            return
        self._connection.send(m.HandedOver())
        if not is_new:
            return
        old = broker.links.get(stream)
        if old is None:
            broker.succession.take_over_soon(directory)
            return
        old.transfer.legacy = directory
        if old.transfer is not self:
            old.connection.abort()  # of a process that is dead


async def answered(answer: asyncio.Future[None]) -> None:
    """Until the neighbor has answered; `NoReply` if it takes too long."""
    try:
        await asyncio.wait_for(answer, PATIENCE)
    except TimeoutError:
        raise NoReply(f"no answer within {PATIENCE:g} seconds") from None
