"""What brokers say to brokers of a publication: one more version of it, which only they see.

Such a version is a *word*. A broker publishes it in the same transaction as the publication that it
is about, and whoever has to know of it has a subscription of its own to all words. So they come as
notifications do: none is lost, whatever is cut or killed meanwhile, and each in the order of its
stream. After a restart they are read in the journals, from some time on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from stentor.model import Notification
from stentor.model.codec import decode
from stentor.model.stamp import without_stamps
from stentor.node.agenda import RESIDENTS, Agenda
from stentor.node.journals import Journals
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.subscribing import Subscribing
from stentor.node.scopes import Scopes
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.protocol import messages as m

#: The first session of such a subscription; detectors count down from the first resident.
SESSIONS: Final = RESIDENTS - (1 << 40)
CREDIT: Final = 1 << 60


class Words:
    """A subscription to all words, of one part of this broker, which is the `number`-th to hear."""

    def __init__(
        self,
        number: int,
        scopes: Scopes,
        *,
        subscribing: Subscribing,
        publishing: Publishing,
        sessions: Sessions,
        journals: Journals,
        agenda: Agenda,
    ) -> None:
        self._id = SESSIONS - number
        self._scopes = scopes
        self._subscribing = subscribing
        self._publishing = publishing
        self._sessions = sessions
        self._journals = journals
        self._agenda = agenda
        #: Called with each word.
        self.hear: Callable[[Notification], None] = lambda _: None

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens, or has listened a moment ago."""
        return self._id in self._sessions.held

    def begin(self, since: float | None) -> Iterator[None]:
        """Listen, if nobody does; first to what was said since some time."""
        if self.is_heard:
            return
        self._agenda.stir()
        producer = f"words of {self._journals.stream} {self._id}"
        line = self._publishing.line(producer, producer, None)
        session = Session(self._id, producer, producer, line)
        self._sessions.begin(session)
        self._scopes.listen(session)
        self._agenda.residents[self._id] = self._told
        since = None if since is None else max(0.0, since)
        yield from (
            self._subscribing.subscribe(session, m.Subscribe(1, "", CREDIT, since=since)) or ()
        )

    def end(self) -> None:
        """Listen no more."""
        if self.is_heard:
            self._agenda.stir()
            self._sessions.leave(self._id)

    def _told(self, message: Any) -> None:
        """What a client would be sent."""
        if isinstance(message, m.Deliver):
            for item in without_stamps(message.items):
                self.hear(decode(item))
