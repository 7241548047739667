"""Scheduling: publications that are delivered later.

A publication whose time has not come is written to the broker's database beside the journal, and
acknowledged when it is there: it has no offset, and nobody hears of it. When it is due, the broker
publishes it under the id that it has. It enters the journal in the same transaction in which it
leaves the schedule, so that after any crash it is in one of the two, and never in both. From there
on it is as if it had just been published: it goes to those whose subscriptions match then, behind
what was published before that moment. So a stream has no holes, and no offset waits for another.

What is due at the same time goes in one transaction, in the order of its times, and one such is
under way at a time; if it fails, it is tried again.

What a policy of the scope graph delays waits here as well, each on the edge that it is to cross.
When it is due, the graph as it is then decides where it is visible, and whether it waits again. So
does what a policy holds until something is said (`stentor.node.parts.scope_holds`); it is never
due.

Where advertisements steer, who has published it may be gone, and its advertisement as well. So the
broker advertises what it has on its schedule, for as long as it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from stentor.errors import InvalidConfiguration, JournalUnavailable, StentorError
from stentor.filters import Filter
from stentor.model.codec import Envelope, decode_headers
from stentor.model.identity import NotificationId
from stentor.model.stamp import KEYS, is_stamped, split
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.publishing import Publishing
from stentor.node.parts.routing import Routing
from stentor.node.schedule import Delayed, Schedule, Scheduled
from stentor.node.scopes import Scopes, Stamped, version_of
from stentor.node.session import Session
from stentor.routing.protocol import FilterId
from stentor.scopes.places import waits

#: Publications that become due in one transaction, and their bytes.
AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 4 * 2**20
#: Seconds until a transaction that failed is tried again.
RETRY: Final = 1.0
#: What this broker publishes for others.
DELAYED: Final = Filter("exists _deliver_at")
VISIBLE: Final = Filter(f"exists {KEYS}")


class Scheduling:
    """Publishes what is due."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        publishing: Publishing,
        routing: Routing | Carriage,
        journals: Journals,
        scopes: Scopes,
        clock: Clock,
    ) -> None:
        self._scopes = scopes
        self.schedule = schedule
        self._publishing = publishing
        self._routing = routing
        self._journals = journals
        self._clock = clock
        self.counters = {"delayed": 0, "cancelled": 0}
        self._producer = f"schedule of {journals.stream}"
        self._session: Session | None = None
        self._advertised = not routing.is_steered
        self._advertises_scopes = False
        #: Those that are on their way to the journal, and not before when.
        self._written: list[Scheduled] = []
        self._not_before = 0.0
        #: Whether somebody else is about to answer for the journal.
        self.paused = False

    def look(self) -> None:
        """Publish what is due, if nothing is on its way."""
        schedule = self.schedule
        if not len(schedule):
            return
        if not self._advertised:
            self._advertised = True
            self._routing.advertise(FilterId(self._producer, 0), DELAYED)
        if self._routing.is_steered and self._scopes.active and not self._advertises_scopes:
            self._advertises_scopes = True
            self._routing.advertise(FilterId(self._producer, 1), VISIBLE)
        if schedule.next > self._clock.time or self._written or self.paused:
            return
        if self._clock.now < self._not_before:
            return
        found = schedule.take(self._clock.time, AT_ONCE)
        size = 0
        for i, entry in enumerate(found):
            size += entry.size
            if i and size > BYTES_AT_ONCE:
                schedule.arm(each.id for each in found[i:])
                del found[i:]
                break
        if found:
            self._publish(found)

    def _publish(self, due: list[Scheduled]) -> None:
        try:
            session = self._own()
        except JournalUnavailable:  # what has failed before is still being answered
            self._published(JournalUnavailable("try again"), due)
            return
        data = self._journals.own.delayed([entry.id for entry in due])
        self._written = [entry for entry in due if entry.id in data]
        for entry in due:
            if entry.id not in data:  # it cannot be read
                self.schedule.drop(entry.id)
        if not self._written:
            return
        items: list[bytes] = []
        envelopes: list[Envelope] = []
        keys: list[tuple[str, int]] = []
        later: list[Delayed] = []
        for entry in self._written:
            found = self._as_due(entry, data[entry.id])
            keys += [(key, len(items) + i) for key, i in found.keys]
            items += found.items
            envelopes += found.envelopes
            later += found.waiting
        self._publishing.publish_own(
            session,
            items,
            envelopes,
            retain=keys,
            unschedule=[entry.id for entry in self._written],
            later=later,
            then=lambda error: self._published(error, self._written),
        )

    def _as_due(self, entry: Scheduled, data: bytes) -> Stamped:
        if entry.id in self.schedule.dropped:
            return Stamped([], [], [], [])
        if is_stamped(data) and waits(split(data)[0]):
            return self._scopes.resume(data, entry)
        keys = [] if entry.key is None else [(entry.key, 0)]
        return Stamped([data], decode_headers([data]), keys, [])

    def _own(self) -> Session:
        if self._session is None or self._session.line.failed:
            line = self._publishing.line(self._producer, self._producer, None)
            self._session = Session(-2, self._producer, self._producer, line)
        return self._session

    def _published(self, error: StentorError | None, written: list[Scheduled]) -> None:
        self._written = []
        if error is not None:
            self._not_before = self._clock.now + RETRY
            self.schedule.arm(entry.id for entry in written)
            return
        for entry in written:
            self.schedule.drop(entry.id)
        self.counters["delayed"] += len(written)

    def cancel(
        self, session: Session, id: str, answer: Callable[[bool, StentorError | None], None]
    ) -> None:
        """Publish it never; `answer` is told whether that was in time, when it is on disk."""
        entry = self.schedule.get(id)
        if entry is None or entry in self._written or entry.owner != session.owner:
            answer(False, None)
            return
        if not id.startswith(f"{session.producer}:") and entry.owner is None:
            raise InvalidConfiguration(
                f"{id} was published by another than {session.producer!r}; only that one cancels it"
            )
        gone = [entry, *self._versions(id)]
        for each in gone:
            self.schedule.drop(each.id)

        def stored(error: StentorError | None) -> None:
            if error is not None:
                self.schedule.restore(gone)
            else:
                self.counters["cancelled"] += 1
            answer(error is None, error)

        ids = [each.id for each in gone]
        self._publishing.publish_own(self._own(), [], [], unschedule=ids, then=stored)

    def _versions(self, id: str) -> Iterator[Scheduled]:
        """What scopes have made of it besides (`stentor.node.scopes`)."""
        original = NotificationId.parse(id)
        for number in count(1):
            entry = self.schedule.get(str(version_of(original, number)))
            if entry is None:
                return
            yield entry
