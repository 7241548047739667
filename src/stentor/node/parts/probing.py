"""Probing: when a subscription is in force everywhere, and how far streams had come by then.

A client hears `Subscribed` when a probe sent after its subscription has been echoed by all brokers
that it concerns (see `stentor.node.streams`). The same answer tells feeds where a stream was whose
way was interrupted. One probe is under way at a time, and serves all that wait for it. It goes only
where it can find out something (see `stentor.node.assurance`).

An answer may leave out brokers that can be reached, because one of them hangs, or because links are
changing in a graph. Of their streams nothing is known then. Feeds read them from their journals as
soon as a later probe is answered by them: from where they were, and if they begin now, from how far
the stream was heard to be. What it had published by then was published before anybody was told that
the subscription is in force.

Where advertisements steer, brokers ask for what a client offers when they have heard of the offer.
Those that were left out do so later than the client is told that it may publish. So before it is,
they are told that the own stream begins afresh: a word that follows the advertisement and precedes
all that is published under it. They read that from the journal, and nobody waits for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from stentor.errors import StentorError
from stentor.node.agenda import Agenda
from stentor.node.assurance import Assurance
from stentor.node.clock import Clock
from stentor.node.feed import Feed
from stentor.node.journals import Journals
from stentor.node.marks import Marks
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.catching_up import CatchingUp
from stentor.node.parts.durables import Durables
from stentor.node.parts.last_values import LastValues
from stentor.node.parts.progress import Progress
from stentor.node.parts.routing import Routing
from stentor.node.session import Session
from stentor.node.streams import Probes, Sends
from stentor.node.subscription import Consumer, Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Feeds, and clients, that are told of an answer in one step.
TOLD_AT_ONCE: Final = 200
#: Seconds until those are asked again that were left out: at first, and at most.
AGAIN_FIRST: Final = 0.1
AGAIN_MOST: Final = 2.0
#: Seconds that count between two ticks. If more have passed, it is this broker that was slow.
AWAKE: Final = 0.5
#: Seconds for which a probe waits for links that are being made.
LINKS_PATIENCE: Final = 5.0


class Probing:
    """Sends probes, and passes on those of others."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        routing: Routing | Carriage,
        directory: Ways,
        journals: Journals,
        durables: Durables,
        last_values: LastValues,
        marks: Marks,
        progress: Progress,
        catching_up: CatchingUp,
        assurance: Assurance,
        ready: Turns[str],
        hungry: Turns[str],
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._subscriptions = subscriptions
        self._routing = routing
        self._directory = directory
        self._journals = journals
        self._durables = durables
        self._last_values = last_values
        self._marks = marks
        self._progress = progress
        self._catching_up = catching_up
        self._assurance = assurance
        self._ready = ready
        self._hungry = hungry
        self._clock = clock
        self._agenda = agenda
        self.counters = {"probes": 0}
        # Numbers must not come again after a restart; no broker sends a million a second.
        self.probes = Probes(journals.stream, int(clock.time * 1_000_000))
        #: Whether one is to be sent at once, or at some time; and how long the next such wait is.
        self._wanted = False
        self._again: float | None = None
        self._patience = AGAIN_FIRST
        self._ticked = clock.now
        #: Since when the one that is wanted waits for links, and brokers that it does not ask.
        self._waits_since: float | None = None
        self._away: m.Positions = {}
        #: Feeds that wait for a probe to be answered, and clients that wait with them.
        self._feeds: Turns[str] = Turns()
        self.settling: dict[Consumer, tuple[int, Session, bool]] = {}
        #: What else is to happen for clients when a probe is answered.
        self._afterwards: dict[int, deque[tuple[int, Callable[[], None], bool]]] = {}
        #: Answers of which not everybody has been told.
        self._answers: deque[Iterator[None]] = deque()
        self._at_in_force: list[Callable[[Consumer], None]] = []
        subscriptions.at_leave(self._left)
        subscriptions.at_end(self._forget)

    def at_in_force(self, note: Callable[[Consumer], None]) -> None:
        """Call this when all brokers know what a consumer asks for, or more of that."""
        self._at_in_force.append(note)

    def _left(self, consumer: Consumer) -> None:
        self.settling.pop(consumer, None)

    def _forget(self, subscription: Subscription) -> None:
        self._feeds.discard(subscription.feed.id)

    @property
    def next(self) -> int:
        """The number of the next probe that will be sent."""
        return self.probes.number + 1

    def want(self, feed: Feed) -> None:
        """The feed waits for the answer to a probe that is yet to be sent."""
        self._feeds.add(feed.id)
        self._wanted = True

    def then(self, session: int, done: Callable[[], None], *, steers: bool = False) -> None:
        """Call this when all brokers have dealt with what they have been told by now.

        Those that hang are left out. If what they were told `steers` them, they hear that they may
        miss something of the own stream.
        """
        self._afterwards.setdefault(session, deque()).append((self.next, done, steers))
        self._wanted = True

    def waiting(self, session: int) -> int:
        """For how many answers the client waits in this way."""
        return len(self._afterwards.get(session, ()))

    def left(self, session: int) -> None:
        """The client waits for nothing any more."""
        self._afterwards.pop(session, None)

    def settle(self, consumer: Consumer, session: Session, *, resumed: bool) -> None:
        """Tell the client when its subscription is in force."""
        subscription, _ = session.subscriptions[consumer.number]
        self.want(subscription.feed)
        self.settling[consumer] = self.next, session, resumed

    def begin(self) -> None:
        """Send a probe if one is wanted and none is under way."""
        while self._wanted and not self.probes.waiting and not self._answers and self._may_ask():
            self._wanted = False
            self._waits_since = None
            self.counters["probes"] += 1
            directory, hearsay = self._directory, self._marks.hearsay
            aside = (o.stream for o in directory.others if directory.towards(o.stream) is None)
            self._away = {stream: hearsay[stream] for stream in aside if stream in hearsay}
            own = self._journals.stream
            asked, heads = self._to_ask(self._directory.children(own), own)
            self._agenda.to_links(self.probes.begin(asked, heads))
            self._catching_up.fetches.probe = self.probes.number
            self._complete(self.probes.finish_own(self._journals.heads()))

    def _may_ask(self) -> bool:
        """Whether all are linked that have to be asked; in a while without them."""
        if self._routing.is_serving:
            return False
        if self._directory.is_settled:
            return True
        if self._waits_since is None:
            self._waits_since = self._clock.now
        return self._clock.now - self._waits_since >= LINKS_PATIENCE

    def tick(self) -> None:
        """Wait for nobody who hangs; ask again who was left out."""
        now = self._clock.now
        passed, self._ticked = min(now - self._ticked, AWAKE), now
        sends, complete = self.probes.passes(passed, self._journals.heads())
        self._send(sends)
        self._complete(complete)
        if self._again is not None and now >= self._again:
            self._again = None
            self._wanted = True

    def probe_heard(self, neighbor: str, message: m.Probe) -> Iterator[None]:
        yield from self._routing.served()
        if self._directory.towards(message.origin) != neighbor:
            # Nobody there waits for it whom we know. For whom we do not know, we are left out.
            self._agenda.to_link(neighbor, m.Echo(message.origin, message.number, {}))
            return
        others = [n for n in self._directory.children(message.origin) if n != neighbor]
        asked, heads = self._to_ask(others, message.origin)
        heads |= self._journals.heads()
        self._send(self.probes.passed(neighbor, message, asked, heads))

    def _to_ask(
        self, neighbors: list[str], origin: m.StreamId
    ) -> tuple[dict[str, int], m.Positions]:
        """Those who have to be asked, with what they have been told; for the others, heads."""
        asked: dict[str, int] = {}
        heads: m.Positions = {}
        for neighbor in neighbors:
            known = self._assurance.heads(neighbor, origin)
            if known is None:
                asked[neighbor] = self._assurance.said(neighbor, origin)
            else:
                heads |= known
        return asked, heads

    def echo_heard(self, neighbor: str, message: m.Echo) -> None:
        # Of a stream that comes another way, nobody there can know how far it is.
        towards = self._directory.towards
        message.heads = {s: head for s, head in message.heads.items() if towards(s) == neighbor}
        said = self.probes.said(neighbor, message)
        if said is not None and not message.waits:
            self._assurance.answered(neighbor, message.origin, said, message.heads)
        sends, complete = self.probes.echoed(neighbor, message, self._journals.heads())
        self._send(sends)
        self._complete(complete)

    def link_down(self, neighbor: str) -> None:
        self._assurance.forget(neighbor)
        sends, complete = self.probes.link_down(neighbor, self._journals.heads())
        self._send(sends)
        self._complete(complete)

    def _send(self, sends: Sends) -> None:
        """Pass on probes, and answers as far as the streams in them go on the same way."""
        leads = self._directory.leads
        for neighbor, message in sends:
            if isinstance(message, m.Echo):
                message.heads = {s: h for s, h in message.heads.items() if leads(s, neighbor)}
            self._agenda.to_link(neighbor, message)

    def _complete(self, complete: tuple[int, m.Positions] | None) -> None:
        """All brokers have answered: subscriptions from before are in force."""
        if complete is None:
            return
        number, heads = complete
        # It hangs; or in a cycle its answer came another way than its stream, and proves nothing.
        away, self._away = self._away, {}
        left_out = [
            o.stream
            for o in self._directory.others
            if o.stream not in heads and o.stream not in away
        ]
        self._catching_up.spare(left_out)
        if left_out:
            self._ask_again()
        else:
            self._patience = AGAIN_FIRST
        settled = [c for c, (probe, *_) in self.settling.items() if probe <= number]
        feeds = self._feeds.take()
        self._answers.append(self._tell(number, heads, away, left_out, feeds, settled))
        self.work()

    @property
    def has_work(self) -> bool:
        """Whether not everybody has been told of an answer."""
        return bool(self._answers)

    def work(self) -> None:
        """Tell some of them."""
        if self._answers and next(self._answers[0], self) is self:
            self._answers.popleft()

    def _tell(
        self,
        number: int,
        heads: m.Positions,
        away: m.Positions,
        left_out: list[m.StreamId],
        feeds: list[str],
        settled: list[Consumer],
    ) -> Iterator[None]:
        for i, id in enumerate(feeds, 1):
            if not i % TOLD_AT_ONCE:
                yield
            subscription = self._subscriptions.held.get(id)
            if subscription is not None:
                self._answered(subscription, number, heads, away, left_out)
        for i, consumer in enumerate(settled, 1):
            if not i % TOLD_AT_ONCE:
                yield
            if consumer in self.settling:
                _, session, resumed = self.settling.pop(consumer)
                subscription, _ = session.subscriptions[consumer.number]
                self._in_force(session, subscription, consumer, resumed)
        told = 0
        for client in list(self._afterwards):
            while (waiting := self._afterwards.get(client)) and waiting[0][0] <= number:
                _, done, steers = waiting.popleft()
                if not waiting:
                    # The client may have left, and nobody would ask for this again.
                    del self._afterwards[client]
                if steers and left_out:
                    self._begin_afresh(left_out)
                    left_out = []
                done()
                told += 1
                if not told % TOLD_AT_ONCE:
                    yield

    def _answered(
        self,
        subscription: Subscription,
        number: int,
        heads: m.Positions,
        away: m.Positions,
        left_out: list[m.StreamId],
    ) -> None:
        """A feed learns how far streams had come."""
        feed = subscription.feed
        if subscription.interest.recent:
            subscription.interest.in_force(number)
            for consumer in subscription.consumers:
                if consumer not in self.settling:
                    self._tell_in_force(consumer)
        self._catching_up.ask_again(feed, left_out, number + 1)
        for stream in left_out:
            feed.interrupted(stream, number + 1)
        self._catching_up.ask_again(feed, feed.unproved(number) & heads.keys(), number)
        known = self._marks.heads
        others = {s: known[s] for s in left_out if s in known}
        begins = feed.heads(number, heads, others, away)
        self._durables.take_back(subscription)
        if begins:
            # Brokers that could not be asked are read from the time of its making on, when they
            # are there.
            subscription.begins()
        if subscription.interest.recent:
            self._feeds.add(feed.id)
        if feed.waits_for(number):
            self._feeds.add(feed.id)
            self._wanted |= not left_out
        if feed.held:
            self._last_values.ask(subscription, heads)
        self._hungry.add(feed.id)
        self._ready.add(feed.id)

    def _tell_in_force(self, consumer: Consumer) -> None:
        for note in self._at_in_force:
            note(consumer)

    def _begin_afresh(self, left_out: list[m.StreamId]) -> None:
        """Who was left out has to read from the journal what enters here from now on."""
        directory = self._directory
        origin = directory.origin(self._journals.stream)
        for neighbor in dict.fromkeys(map(directory.towards, left_out)):
            if neighbor is not None and origin is not None:
                self._agenda.to_link(neighbor, m.Streams([origin], []))

    def _ask_again(self) -> None:
        """Ask in a while; if that is in vain, in a longer one."""
        if self._again is None:
            self._again = self._clock.now + self._patience
            self._patience = min(2 * self._patience, AGAIN_MOST)

    def _in_force(
        self, session: Session, subscription: Subscription, consumer: Consumer, resumed: bool
    ) -> None:
        """A subscription is in force; one that is durable, when that is on disk."""
        self._tell_in_force(consumer)
        # Where it begins comes first: who knows that it is in force must know from where on.
        self._progress.tell(subscription)
        durable = subscription.durable
        born = 0 if durable is None else durable.born
        answer = m.Subscribed(consumer.number, subscription.lease, resumed, self._clock.time, born)
        if durable is None:
            self._agenda.to_client(session.id, answer)
        else:
            tell = self._durables.answer(session, answer)

            def stored(error: StentorError | None) -> None:
                held = session.subscriptions.get(consumer.number)
                if durable.stored:  # as it was before: it goes on from there
                    error = None
                if error is not None and held == (subscription, consumer):
                    # For its client it has ended: nobody would deal with what it is given.
                    self._subscriptions.leave(session, consumer.number)
                tell(error)

            self._durables.store(durable, stored)
