"""Checks: why a client may not publish what it wants to.

Before a publication is journaled or routed it passes these, in this order. A check that does not
concern a client costs nothing for what that one publishes; if none does, nothing is looked at one
by one. A capability that has something to say about publications adds a check here.
"""

from __future__ import annotations

from typing import Final, Protocol

from stentor.errors import (
    InvalidNotification,
    NotAdvertised,
    NotPermitted,
    Overloaded,
    StentorError,
)
from stentor.model.codec import Envelope, Headers
from stentor.model.names import shown
from stentor.model.stamp import without_stamps
from stentor.node.clock import Clock
from stentor.node.schedule import Schedule
from stentor.node.scopes import Scopes
from stentor.node.session import Session

#: Seconds by which a publisher's clock may be ahead.
EPOCH_AHEAD: Final = 86_400.0
#: Seconds until what is to be delivered later has to be due.
MOST_AHEAD: Final = 366 * 86_400.0


class Check(Protocol):
    """One reason for which a publication may be refused."""

    def concerns(self, session: Session, headers: Headers) -> bool:
        """Whether any of these has to be looked at."""

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        """Why the client may not publish this; None if it may."""


class Identity:
    """The id names the producer, and no time to come."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def _latest(self) -> float:
        """The latest epoch that is taken.

        Nothing older is taken afterwards: one far in the future would end what others publish under
        the same name for good.
        """
        return (self._clock.time + EPOCH_AHEAD) * 1000

    def concerns(self, session: Session, headers: Headers) -> bool:
        producer, latest = session.producer, self._latest()
        for source in headers.sources:
            if source is None or source[0] != producer or source[1] > latest:
                return True
        return False

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        id = envelope.id
        if id is None or id.producer != session.producer:
            producer = None if id is None else id.producer
            return InvalidNotification(
                f"the id must name {session.producer!r} as its producer, not {shown(producer)}"
            )
        if id.epoch > self._latest():
            return InvalidNotification(
                f"the epoch {id.epoch} is more than a day ahead of the clock of this broker; use "
                "milliseconds since 1970, and set the clock that is wrong"
            )
        return None


class Repetition:
    """What comes again under an id is the same (R-01.13).

    It is compared as long as the first is on its way to the journal. Afterwards only the newest id
    of a producer is known, and what is not newer counts as a repeat. Ids of a client rise, so
    repeats come first.
    """

    def concerns(self, session: Session, headers: Headers) -> bool:
        first = headers[0].id if headers else None
        return first is not None and (first.epoch, first.sequence) <= session.line.newest

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        original = None if envelope.id is None else session.line.original(envelope.id)
        if original is None or without_stamps([bytes(original.encoded)]) == [envelope.encoded]:
            return None
        return InvalidNotification(
            f"the id {envelope.id} is that of another publication, with other content; give each "
            "an id of its own, and each client a name of its own"
        )


class Unstamped:
    """Where something is visible is for brokers to say."""

    def concerns(self, session: Session, headers: Headers) -> bool:
        return headers.stamped

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        if envelope.stamp is None:
            return None
        return InvalidNotification(
            "a publication says nothing of scopes: brokers find out where it is visible"
        )


class Permission:
    """The grant of the client allows it."""

    def concerns(self, session: Session, headers: Headers) -> bool:
        return session.may_publish is not None

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        if session.may_publish is not None and not session.may_publish(envelope):
            return NotPermitted(
                f"{session.name!r} may not publish {envelope.attributes}; publish what its grant "
                "allows, or have the grant widened"
            )
        return None


class Timely:
    """What is to be delivered later finds room on the schedule, and is not too far away."""

    def __init__(self, schedule: Schedule, clock: Clock) -> None:
        self._schedule = schedule
        self._clock = clock

    def concerns(self, session: Session, headers: Headers) -> bool:
        return headers.handled

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        if envelope.handling is None:
            return None
        due = envelope.handling.due
        if due <= self._clock.time:
            return None
        if due > self._clock.time + MOST_AHEAD:
            return InvalidNotification(
                f"deliver_at={envelope.handling.deliver_at.isoformat()} is more than a year away, "
                "for which brokers keep nothing; publish it later"
            )
        problem = self._schedule.problem(session.owner, len(envelope.encoded))
        if problem is not None:
            return Overloaded(f"{problem}; publish it later, or raise limits.scheduled")
        return None


class Waitable:
    """What a policy of a scope may delay finds room on the schedule.

    Whether it will be is decided later; where there is no room, nothing is taken that might be.
    """

    def __init__(self, schedule: Schedule, scopes: Scopes) -> None:
        self._schedule = schedule
        self._scopes = scopes

    def concerns(self, session: Session, headers: Headers) -> bool:
        return self._scopes.active and self._scopes.may_delay(session.id)

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        problem = self._schedule.problem(session.owner, len(envelope.encoded))
        if problem is None or self._scopes.may_let_go(envelope):
            return None  # what makes room is never refused for want of it
        return Overloaded(
            f"{problem}, and a policy of its scopes may delay this; publish it later, or raise "
            "limits.scheduled"
        )


class AtOnce:
    """What no journal holds cannot be delivered later."""

    def concerns(self, session: Session, headers: Headers) -> bool:
        return headers.handled

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        if envelope.handling is None or envelope.handling.deliver_at is None:
            return None
        return InvalidNotification(
            "what is delivered later is kept on disk until then, which volatile publications skip; "
            "leave out deliver_at, or do not publish it as volatile"
        )


class Advertised:
    """The client has advertised it (R-03.26)."""

    def concerns(self, session: Session, headers: Headers) -> bool:
        return True

    def problem(self, session: Session, envelope: Envelope) -> StentorError | None:
        if any(f.matches(envelope.facts) for f in session.advertisements.values()):
            return None
        return NotAdvertised(
            f"{session.name!r} has advertised nothing that matches {envelope.attributes}; "
            "advertise it before publishing"
        )
