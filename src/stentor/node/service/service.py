"""`Service`: everything a live broker decides, without input or output.

A host feeds it what happens (a client says something, a neighbor says something, a link comes or
goes, the journal has committed, time has passed) and then calls `take`, which returns what is to be
done. The pieces are in their own files: where filters and notifications go is the router's part,
how a subscription is read gaplessly is `feed`'s, who consumes it `subscription`'s, which brokers
there are and when a subscription is in force `streams`', reading journals `reading`'s, what is
asked for of producers `demand`'s.

A publication goes like this. It is decoded and checked. If it is volatile it is routed at once.
Otherwise it goes to the journal; when it is on disk, `committed` routes it under its offset and
answers the client. So what travels is always on disk at its entry, and an offset that was ever
seen anywhere never stands for anything else.

A subscription becomes a feed and a filter in the router's table. The client hears `Subscribed` when
a probe sent after it has been echoed by all brokers: it is in force everywhere.

Notifications travel with the stream they belong to and are taken only from the neighbor through
which that stream comes. Whenever a stream begins afresh (see `streams`), all feeds catch up on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from stentor.errors import (
    JournalUnavailable,
    ProtocolError,
    StentorError,
)
from stentor.node.actions import (
    Action,
    Persist,
    ToClient,
)
from stentor.node.parts import parts
from stentor.node.service.publishing import Publishing
from stentor.node.session import AdvertiseRule, Line, PublishRule, Session, SubscribeRule
from stentor.protocol import messages as m
from stentor.routing.protocol import FilterId

#: Seconds between two words to neighbors on how far the own stream has come, and between two words
#: to clients on how far theirs have.
MARK_EVERY: Final = 1.0
PROGRESS_EVERY: Final = 5.0
#: Subscriptions, and advertisements, of somebody who is gone that are taken down in one step; and
#: leases that end in one.
TAKEN_DOWN: Final = 64
EXPIRED_AT_ONCE: Final = 256


class Service(Publishing):
    """The decisions of one live broker."""

    def take(self) -> list[Action]:
        """What is to be done now."""
        next(self._routing_volatile(), None)
        self._tell_groups()
        self._begin_probe()
        self._deliver()
        if self._answers and not self._congested:
            for id, through in self._answers.items():
                self._out.append(ToClient(id, m.Published(through)))
            self._answers.clear()
        for name in self._dirty:
            durable = self.durables.get(name)
            self._out.append(Persist(name, durable.to_data() if durable else None, None))
        self._dirty.clear()
        if self._demands:
            self._tell_demand()
        out, self._out = self._out, []
        return out

    def join(
        self,
        id: int,
        name: str,
        *,
        producer: str | None = None,
        newest: tuple[int, int] | None = None,
        may_publish: PublishRule | None = None,
        may_subscribe: SubscribeRule | None = None,
        may_advertise: AdvertiseRule | None = None,
        owner: str | None = None,
    ) -> Session:
        """A client has connected; `newest` is what the journal holds of it as a producer.

        Its name is what it says. What it publishes is told from that of others by `producer`.
        """
        producer = name if producer is None else producer
        line = self._lines.get(producer)
        if line is None:
            line = self._lines[producer] = Line(newest or (-1, -1))
        elif line.failed:
            raise JournalUnavailable(
                f"what {name!r} has published before could not be stored; try again"
            )
        session = Session(
            id, name, producer, line, may_publish, may_subscribe, may_advertise, owner
        )
        line.sessions += 1
        self.sessions[id] = session
        return session

    def leave(self, id: int) -> None:
        """A client's connection is gone. What it had many of is taken down in several steps."""
        session = self.sessions.get(id)
        if session is None or id in self._leaving:
            return
        next(self._routing_volatile(), None)
        self._answers.pop(id, None)
        self._turns.pop(id, None)
        self._blocked.add(id)
        session.line.sessions -= 1
        self._release(session)
        self._leaving[id] = None
        self._take_down(session)

    def work(self) -> None:
        """Take down some of what those had who are gone, and do what else is to be done."""
        if self._leaving:
            self._take_down(self.sessions[next(iter(self._leaving))])
        super().work()

    def _take_down(self, session: Session) -> None:
        gone: list[FilterId] = []
        for number in list(islice(session.subscriptions, TAKEN_DOWN)):
            gone += self._detach(session, number)
        self._route_filters(self.router.withdraw(gone, []))
        for number in list(islice(session.advertisements, TAKEN_DOWN)):
            self._unadvertise(session, number)
        if not session.subscriptions and not session.advertisements:
            del self.sessions[session.id], self._leaving[session.id]
            self._blocked.discard(session.id)

    def heard(self, id: int, message: Any) -> None:
        """A client says something."""
        for _ in self.hear(id, message) or ():
            pass

    def hear(self, id: int, message: Any) -> Iterator[None] | None:
        """The same; what takes long is done in steps, of which all but the first are returned.

        They are to be done before the client is heard again. If it leaves they may be left undone.
        """
        session = self.sessions.get(id)
        if session is None:
            return None
        handler = _FROM_CLIENT.get(type(message))
        if handler is None:
            raise ProtocolError(f"a client cannot send {type(message).__name__}")
        if self._volatile[0] and not isinstance(message, m.Publish):
            # It came before what this may change.
            steps = self._routing_volatile()
            next(steps, None)
            if self._volatile[0]:
                return chain(steps, self._heard_later(id, message))
        return self._hear(session, handler, message)

    def _heard_later(self, id: int, message: Any) -> Iterator[None]:
        yield from self.hear(id, message) or ()

    def _hear(self, session: Session, handler: Any, message: Any) -> Iterator[None] | None:
        try:
            steps: Iterator[None] | None = handler(self, session, message)
        except ProtocolError:
            raise
        except StentorError as error:
            number = getattr(message, "number", None)
            self._to_client(session, m.Failure(error.code, str(error), number))
            return None
        return steps

    def block(self, id: int) -> None:
        """The client does not read what it is sent."""
        self._blocked.add(id)
        self._turns.pop(id, None)

    def unblock(self, id: int) -> None:
        """It does again."""
        self._blocked.discard(id)
        self._demands.unblock(id)
        session = self.sessions.get(id)
        if session is not None:
            self._ready.update((s.feed.id, None) for s, _ in session.subscriptions.values())
            if session.reads:
                self._turns[id] = None

    def receive(self, neighbor: str, message: Any) -> None:
        """A neighbor says something."""
        for _ in self.hear_neighbor(neighbor, message):
            pass

    def hear_neighbor(self, neighbor: str, message: Any) -> Iterator[None]:
        """The same, in steps: a long message is dealt with as several short ones."""
        handler = _FROM_NEIGHBOR.get(type(message))
        if handler is None:
            raise ProtocolError(f"a broker cannot send {type(message).__name__}")
        for part in parts(message):
            yield from handler(self, neighbor, part) or ()
            yield

    def tick(self, now: float, clock: float) -> None:
        """Time has passed: `now` only goes forward, `clock` is seconds since 1970."""
        self._now, self._clock = now, clock
        self._probe_wanted |= self._probe_later
        self._probe_later = False
        ended = (s for id in self._leases if (s := self.subscriptions[id]).ends <= now)
        for subscription in list(islice(ended, EXPIRED_AT_ONCE)):
            self._expire(subscription)
        self._lose_patience()
        for id, collected in list(self._last_values.items()):
            if collected.deadline <= now:
                self._put_last_values(id)
        if now >= self._next_mark:
            self._next_mark = now + MARK_EVERY
            self._look_for_cycles()
            if self._head > self._marked:
                self._marked = self._head
                self._flood(m.Mark(self.stream, self._head))
        if now >= self._next_progress and not self._to_tell:
            self._next_progress = now + PROGRESS_EVERY
            self._to_tell.extend(self.subscriptions)
        if self._to_tell:
            self._progress()


_FROM_CLIENT: Final[dict[type, Any]] = {
    m.Publish: Service._publish,
    m.Subscribe: Service._subscribe,
    m.Unsubscribe: Service._unsubscribe,
    m.Renew: Service._renew,
    m.Credit: Service._credit,
    m.Confirm: Service._confirm,
    m.Advertise: Service._advertise,
    m.Unadvertise: Service._unadvertise_asked,
    m.Read: Service._read_asked,
}

_FROM_NEIGHBOR: Final[dict[type, Any]] = {
    m.Subscriptions: Service._subscriptions_heard,
    m.Advertisements: Service._advertisements_heard,
    m.Forward: Service._forwarded,
    m.Streams: Service._streams_heard,
    m.Probe: Service._probe_heard,
    m.Echo: Service._echo_heard,
    m.Fetch: Service._fetch_heard,
    m.Chunk: Service._chunk_heard,
    m.Mark: Service._mark_heard,
    m.Groups: Service._groups_heard,
}
