"""Bulk reads: clients that read journals as they are.

They take turns, a stretch each, and one that does not take what it is sent loses its turn until
it does.
"""

from __future__ import annotations

from stentor.errors import HistoryGone, JournalDamaged, NotPermitted, Overloaded, StentorError
from stentor.node.agenda import Agenda
from stentor.node.journals import Journals
from stentor.node.reading import READS, Sight, bulk, received
from stentor.node.scopes import Scopes, check_names
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.turns import Turns
from stentor.protocol import messages as m


class BulkReads:
    """Reads journals for clients."""

    def __init__(
        self,
        name: str,
        *,
        journals: Journals,
        sessions: Sessions,
        agenda: Agenda,
        scopes: Scopes,
    ) -> None:
        """`name` is the broker's."""
        self._scopes = scopes
        self._name = name
        self._journals = journals
        self._sessions = sessions
        self._agenda = agenda
        self.counters = {"served": 0}
        #: Clients that have asked to read and can take what they read.
        self._turns: Turns[int] = Turns()
        self._blocked: set[int] = set()
        sessions.at_leave(self._forget)

    def _forget(self, session: Session) -> None:
        self._turns.discard(session.id)
        self._blocked.discard(session.id)

    def block(self, session: int) -> None:
        """The client does not read what it is sent."""
        self._blocked.add(session)
        self._turns.discard(session)

    def unblock(self, session: Session) -> None:
        """It does again."""
        self._blocked.discard(session.id)
        self._in_turn(session)

    def _in_turn(self, session: Session) -> None:
        if session.reads and session.id not in self._blocked:
            self._turns.add(session.id)

    def read_asked(self, session: Session, message: m.Read) -> None:
        """A client asks to read a stretch of a journal."""
        filter = check_names(received(message.filter))
        if session.may_subscribe is not None and not session.may_subscribe(filter):
            raise NotPermitted(
                f"{session.name!r} may not read {'everything' if filter.is_always else filter!s}; "
                "ask for less, or have the grant widened"
            )
        if message.stream not in self._journals:
            raise HistoryGone(
                f"{self._name!r} has no journal {message.stream!r}; turn to the broker that has "
                "taken it over, if there is one"
            )
        if len(session.reads) >= READS:
            raise Overloaded(f"{READS} requests to read wait already; wait for their answers")
        session.reads.append(message)
        self._in_turn(session)

    def _sight(self, session: Session) -> Sight | None:
        """What the client may see; None if all is written as it was published."""
        if not self._scopes.active:
            return None
        view = None if session.audits else self._scopes.view(session.id)
        return Sight(view)

    @property
    def has_work(self) -> bool:
        return bool(self._turns)

    def work(self) -> None:
        """The next stretch for a client; then it is the turn of others."""
        if not self._turns:
            return
        session = self._sessions.held.get(self._turns.next())
        if session is None or not session.reads:
            return
        read = session.reads.pop(0)
        self.counters["served"] += 1
        answer: m.Stretch | m.Failure
        head = self._journals.heads().get(read.stream, 0)
        try:
            answer = bulk(self._journals[read.stream], head, read, self._sight(session))
        except JournalDamaged as error:  # what is damaged is gone, as by retention
            last = getattr(error, "last", 0) or head
            answer = m.Stretch(read.number, read.stream, [], [], last, head, last + 1)
        except StentorError as error:
            answer = m.Failure(error.code, str(error), read.number)
        self._agenda.to_client(session.id, answer)
        if isinstance(answer, m.Stretch) and answer.through < min(read.last or head, head):
            read.first = answer.through + 1
            session.reads.insert(0, read)
        self._in_turn(session)
