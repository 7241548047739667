"""Homes: durable subscriptions belong to the overlay, and each lives at one broker of it.

*Finding.* All brokers know where each lives (`stentor.node.homes`). That one was made is told
before the probe that follows it: when its subscriber hears that it is in force, all brokers that
can be reached know its home. Who asks for it elsewhere is sent there. If the home cannot be reached
from here, the client is told so, and sent there nevertheless: it may have another way. It asks
again until one of them answers. What is written down of a name is never made a second time.

*Moving.* Where a client cannot reach the home but its broker can, it asks for the durable to come
to it. The home lets go of it: it writes down that it lives elsewhere, with what was kept, and only
when that is on disk it sends it there and tells everybody. From then on the other broker is its
home. If that never hears of it, because something dies or breaks in between, it will hear where
the durable lives, and seeks what was kept until the giver answers.

A home that is drained leaves what lives there to its heir, with its journal. Meanwhile it gives
nothing away and takes nothing over. But it may have asked for something before, which comes behind
the copy of the journal: that lives, by the word of all, at a broker whose journal the heir has. So
the heir is its home, and seeks what the giver has kept.

*Losing a home.* Neighbors have copies of what is kept, not older than `COPY_EVERY` seconds unless
more than `COPIES` of them change in that time. If a subscriber prefers to go on without a home that
cannot be reached for so long (`takeover`), or if the home is there again with nothing (its disk is
lost), its broker seeks all copies, unites them, and is the new home under a new term. What was
confirmed after the last copy comes again; what any journal still holds is not lost. The old home is
fenced by the term: when it hears of it, its subscribers are sent on, and what it has dealt with
meanwhile is united with the rest. It keeps that on disk, and tells it again, wherever the home may
be by then, until the home has it on disk. Both may have served while neither could hear the other:
that is the price of going on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from stentor.errors import DurableElsewhere, JournalDamaged, StentorError
from stentor.node.agenda import Agenda, Persist
from stentor.node.ages import Ages
from stentor.node.assurance import Assurance
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.durable import Durable
from stentor.node.homes import Registry, from_data, to_data
from stentor.node.journals import Journals
from stentor.node.last_values import label, owned
from stentor.node.marks import Marks
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.durables import Durables, Hear
from stentor.node.parts.routing import Routing
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Seconds between two copies of the same durable subscription, and how many are made in that time.
COPY_EVERY: Final = 1.0
COPIES: Final = 200
COPIED_BYTES: Final = 2**19
#: Seconds between two notes of how far streams are.
NOTE_EVERY: Final = 1.0
#: Seconds after which a home is told again what was dealt with elsewhere, unless it has answered.
TELL_EVERY: Final = 5.0
#: Seconds for which one that an operator wants here is asked for.
FETCHING: Final = 10.0
#: Seconds for which copies are sought.
SEEKING: Final = 1.0
#: Seconds for which an heir seeks what was given to the broker before it.
LATE: Final = 60.0
#: Homes that one message names.
AT_ONCE: Final = 200

#: What is stored under these is not the state of a durable subscription of this broker.
_HOME: Final = "\x00home "
_COPY: Final = "\x00copy "

_copies: Final = msgspec.msgpack.Decoder(m.Copy)


@dataclass(slots=True)
class _Search:
    """Copies of a durable subscription are sought until then, and what has been found."""

    until: float
    #: Since when, with all the searches before this one.
    began: float
    found: Durable | None = None
    #: Whether its giver has answered.
    given: bool = False


@dataclass(slots=True)
class _Told:
    """The home of one was told what had been dealt with here: of which term, and when again."""

    term: int
    again: float


@dataclass(slots=True)
class _Fetch:
    """An operator wants one to live here, and waits until then."""

    name: str
    until: float
    hear: Hear


@dataclass(slots=True, eq=False)
class _Write:
    """Something is on its way to the disk, or could not be stored; and who hears of it."""

    data: bytes | None
    hear: Hear | None
    failed: bool = False


class Homes:
    """Knows where durable subscriptions live, and takes in those that are to live here."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        durables: Durables,
        sessions: Sessions,
        journals: Journals,
        directory: Ways,
        marks: Marks,
        routing: Routing | Carriage,
        borders: Borders,
        assurance: Assurance,
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._subscriptions = subscriptions
        #: Called with one that begins here, and with the name of one that was deleted anywhere.
        self.at_begin: Callable[[Durable], None] = lambda durable: None
        self.at_end: Callable[[str], None] = lambda name: None
        self._durables = durables
        self._sessions = sessions
        self._journals = journals
        self._directory = directory
        self._marks = marks
        self._routing = routing
        self._borders = borders
        self._assurance = assurance
        self._clock = clock
        self._agenda = agenda
        self.registry = Registry()
        #: When streams were how far.
        self._ages = Ages()
        #: What is kept of those that live elsewhere.
        self._copies: dict[str, m.Copy] = {}
        #: Names of which neighbors are to hear, and those of which they should have copies.
        self._news: dict[str, str | None] = {}
        self._outdated: Turns[str] = Turns()
        self._next_copies = self._next_ages = clock.now
        self._searches: dict[str, _Search] = {}
        self._fetches: list[_Fetch] = []
        #: By name, of those that have parted and whose homes can be reached.
        self._told: dict[str, _Told] = {}
        #: The newest words and copies that are not on disk, by what they are stored under.
        self._writes: dict[str, _Write] = {}
        #: The newest search of each other broker, and of this one.
        self._sought: dict[m.StreamId, int] = {}
        self._number = int(clock.time * 1_000_000)
        #: Since when brokers cannot be reached; all that were not met yet, since the start.
        self._unreached: dict[m.StreamId, float] = {}
        self._started = clock.now
        #: Whether all of them are being handed over together: none is given to anybody else.
        self.paused = False
        durables.at_change(self._outdated.add)

    # -- at the start

    def restore(self, stored: dict[str, bytes]) -> None:
        """Take up what was stored, with the durable subscriptions of this broker."""
        held: dict[str, bytes] = {}
        for name, data in stored.items():
            if name.startswith(_HOME):
                self.registry.learn(from_data(name[len(_HOME) :], data))
            elif name.startswith(_COPY):
                self._copies[name[len(_COPY) :]] = _copy(name, data)
            else:
                held[name] = data
        self._durables.restore(held)
        for durable in list(self._durables.held.values()):
            home = self.registry.get(durable.name)
            if home is None and self.registry.term(durable.name):
                self._durables.delete(durable.name)  # its end was written down before it was gone
            elif home is None or self._is_ours(home):
                self._settle_here(durable)
            elif home.broker is not None and home.broker.broker == self._directory.own.broker:
                self._settle_here(durable, moved=True)  # the journal has become a new stream
            elif home.giver == self._journals.stream or self._is_over(durable):
                self._durables.delete(durable.name)  # it was given away, or is another by now
            else:
                self._durables.part(durable)  # another took it over

    def adopt(self, stream: m.StreamId, stored: dict[str, bytes]) -> dict[str, bytes | None]:
        """Take in those of the broker of a stream that was removed; what is to be stored."""
        given, parted = set(), set()
        for name, data in stored.items():
            if name.startswith(_HOME):
                home = from_data(name[len(_HOME) :], data)
                self._learn(home)
                if home.broker is None or home.giver == stream:
                    given.add(home.name)  # what is left of it there is older than what it became
                elif home.broker.stream != stream:
                    parted.add(home.name)
            elif name.startswith(_COPY):
                self._inherit(_copy(name, data))
        own = {n: data for n, data in stored.items() if not n.startswith("\x00") and n not in given}
        left = {name: own.pop(name) for name in parted & own.keys()}
        news = self._durables.adopt(own)
        for name in news:
            durable = self._durables.held.get(name)
            if durable is not None:
                self._reunite(durable)
                news[name] = durable.to_data()
                self._settle_here(durable, moved=True)
        for name, data in left.items():
            theirs = Durable.from_data(name, data)
            ours = self._durables.held.get(name) or self._durables.parted.get(name)
            if self._is_over(theirs):
                continue
            if ours is None:
                self._durables.part(theirs)
            else:
                ours.merge(theirs)
            news[name] = (ours or theirs).to_data()
        return news

    def _reunite(self, durable: Durable) -> None:
        """It is to live here again: what was dealt with here before it parted counts."""
        parted = self._durables.parted.pop(durable.name, None)
        self._told.pop(durable.name, None)
        if parted is not None:
            durable.merge(parted)

    def _is_over(self, durable: Durable) -> bool:
        """Whether it was deleted or reset since: what lives under its name is something else."""
        home = self.registry.get(durable.name)
        return home is None or durable.born < home.born

    def succeed(self, stream: m.StreamId) -> None:
        """The journal of a broker that was removed is here: so is what lived there.

        What was given to it too late to come with its journal is sought. It has served nobody
        there, so any copy of that term is the newest. If none is found for so long, it begins again
        with the best that there is.
        """
        for home in self.registry.at(stream):
            if stream != self._journals.stream and home.name not in self._durables.held:
                own = self._directory.own
                self._learn(replace(home, term=home.term + 1, broker=own, giver=stream))
        for home in self.registry.at(self._journals.stream):
            if home.giver and home.name not in self._durables.held:
                self._seek(home.name)

    def _inherit(self, copy: m.Copy) -> None:
        """The new home of what was given away may not have it yet, and asks here from now on."""
        known = self._copies.get(copy.name)
        if copy.given and (known is None or known.term <= copy.term):
            self._keep(copy)

    def _settle_here(
        self, durable: Durable, *, moved: bool = False, hear: Hear | None = None
    ) -> None:
        """Its home is here, and all are to know."""
        name, known = durable.name, self.registry.get(durable.name)
        if known is None or moved or not self._is_ours(known):
            term = self.registry.term(name) + 1
            self._learn(self._here(durable, term), hear=hear)
        self._outdated.add(name)

    def _here(self, durable: Durable, term: int) -> m.Home:
        own = self._directory.own
        return m.Home(
            durable.name, term, own, durable.since, owner=durable.owner, born=durable.born
        )

    def _is_ours(self, home: m.Home) -> bool:
        return home.broker is not None and home.broker.stream == self._journals.stream

    def _learn(self, home: m.Home, source: str | None = None, hear: Hear | None = None) -> bool:
        """Write down where one lives, if that is news, and let neighbors know."""
        if not self.registry.learn(home):
            return False
        self._store(_HOME, home.name, to_data(home), hear)
        for name in self.registry.forget_some():
            self._store(_HOME, name, None)
        parted = self._durables.parted.get(home.name)
        if parted is not None and self._is_over(parted):
            self._durables.delete(home.name)
        if home.broker is None:
            self.at_end(home.name)
        if home.broker is None and self._copies.pop(home.name, None) is not None:
            self._store(_COPY, home.name, None)
        self._news[home.name] = source
        return True

    def _store(self, kind: str, name: str, data: bytes | None, hear: Hear | None = None) -> None:
        """Store it, again and again if that fails; how it went is heard each time."""
        self._write(kind + name, _Write(data, hear))

    def _write(self, key: str, write: _Write) -> None:
        self._writes[key] = write
        write.failed = False

        def stored(error: StentorError | None) -> None:
            write.failed = error is not None
            if error is None and self._writes.get(key) is write:
                del self._writes[key]
            if write.hear is not None:
                write.hear(error)

        self._agenda.add(Persist(key, write.data, stored))

    # -- who asks for one

    def name(self, session: Session, name: str) -> str:
        """By what one is known that a client calls so: names belong to grants.

        One that was made before there were grants goes to the first that asks for it.
        """
        plain = self._durables.held.get(name) or self.registry.get(name)
        is_theirs = plain is not None and (
            plain.owner is None or session.owner is None or plain.owner == session.owner
        )
        return name if is_theirs else owned(session.owner, name)

    def admits(self, session: Session, message: m.Subscribe) -> bool:
        """Whether a durable subscription lives here or may begin here; else the client is told."""
        name = message.durable
        home = None if name is None else self.registry.get(name)
        if name is not None and 0 < message.born < self.registry.born(name):
            self._send(session.id, message.number, _gone_text(name), m.Origin("", ""))
            return False
        if name is None or home is None:
            return True
        if self._is_ours(home):
            durable = self._durables.held.get(name)
            if durable is not None and durable.united and message.positions:
                self._send(session.id, message.number, _united_text(name), m.Origin("", ""))
                return False  # and it comes again with what is kept here alone
            if durable is not None or name not in self._searches:
                return True
            text = f"the durable subscription {label(name)!r} is on its way to this broker"
            self._send(session.id, message.number, text, m.Origin("", ""), cut_off=True)
            return False
        assert home.broker is not None
        origin = self._directory.origin(home.broker.stream)
        if origin is None:
            origin = home.broker
            if self._is_due(home, message.takeover):
                self._seek(name)
            text = (
                f"the durable subscription {label(name)!r} lives at broker {origin.broker!r}, "
                "which cannot be reached from here"
            )
            self._send(session.id, message.number, text, origin, cut_off=True)
        else:
            if message.here:
                own = self._journals.stream
                self._towards(origin.stream, m.Claim(name, origin.stream, own, session.owner))
            self._send(session.id, message.number, _lives_at(name, origin), origin)
        return False

    def _send(
        self, session: int, number: int, text: str, to: m.Origin, *, cut_off: bool = False
    ) -> None:
        ended = m.Ended(number, DurableElsewhere.code, text, list(to.addresses), cut_off)
        self._agenda.to_client(session, ended)

    def _is_due(self, home: m.Home, takeover: float | None) -> bool:
        """Whether one is to be taken over whose home cannot be reached."""
        assert home.broker is not None
        brokers = [self._directory.own, *self._directory.others]
        if any(other.broker == home.broker.broker for other in brokers):
            return True  # it is there again, with another journal: what it kept is lost
        lost = self._unreached.get(home.broker.stream, self._started)
        return takeover is not None and self._clock.now - lost >= takeover

    def since(self, name: str) -> float | None:
        """From when on it asks for everything, if one lived here of which nothing is left."""
        home = self.registry.get(name)
        return home.since if home is not None else None

    def is_known(self, name: str) -> bool:
        """Whether one lives here or elsewhere, as far as this broker has heard."""
        return self.registry.get(name) is not None

    def lives_elsewhere(self, name: str) -> bool:
        """Whether it is known to live at another broker that can be reached."""
        home = self.registry.get(name)
        if home is None or home.broker is None or self._is_ours(home):
            return False
        return self._directory.origin(home.broker.stream) is not None

    def begins(self, durable: Durable) -> None:
        """One is attached here."""
        known = self.registry.get(durable.name)
        durable.born = self.registry.term(durable.name) + 1 if known is None else known.born
        self._settle_here(durable)
        self.at_begin(durable)

    def delete(self, durable: Durable, hear: Hear | None = None) -> None:
        """Nobody will come back to it; `hear` when that is on disk."""
        name = durable.name
        self._durables.delete(name)
        self._learn(m.Home(name, self.registry.term(name) + 1, None), hear=hear)
        self._outdated.discard(name)

    # -- what operators do

    def copied(self, name: str) -> m.Positions | None:
        """How far a durable subscription of another broker had come, by the copy that is here."""
        copy = self._copies.get(name)
        return None if copy is None else dict(Durable.from_data(name, copy.data).positions)

    def heads(self) -> m.Positions:
        """How far streams have come, as far as this broker knows."""
        return self._marks.heads | self._journals.heads()

    def waiting_since(self, durable: Durable) -> float | None:
        """About when the oldest was published that is not confirmed; None if there is none."""
        positions = durable.positions
        times = [
            self._ages.at(stream, positions.get(stream, 0) + 1)
            for stream, head in self.heads().items()
            if head > positions.get(stream, 0)
        ]
        found = min((time for time in times if time is not None), default=None)
        return found if found is None else max(found, durable.since)

    def reset(self, durable: Durable, since: float, hear: Hear) -> None:
        """Let it begin again, with what was published since then; its consumers have to ask.

        `hear` when that is on disk.
        """
        self._dismiss(durable, _gone_text(durable.name))
        again = Durable(
            durable.name,
            durable.interest,
            since=since,
            group=durable.group,
            owner=durable.owner,
        )
        again.born = self.registry.term(durable.name) + 1

        def stored(error: StentorError | None) -> None:
            if error is not None:
                hear(error)

        self._durables.take(again, stored)
        self._settle_here(again, moved=True, hear=hear)
        self.at_begin(again)

    def remove(self, durable: Durable, hear: Hear) -> None:
        """Delete it, whoever consumes it; `hear` when that is on disk."""
        self._dismiss(durable, _gone_text(durable.name))
        self.delete(durable, hear)

    def fetch(self, name: str, hear: Hear | None = None) -> None:
        """Let it live here, as soon as its home lets go of it or is given up; `hear` then."""
        if hear is not None:
            self._fetches.append(_Fetch(name, self._clock.now + FETCHING, hear))
        self._ask_for(name)

    def _ask_for(self, name: str) -> None:
        home = self.registry.get(name)
        if home is None or home.broker is None or self._is_ours(home):
            return
        if self._directory.reaches(home.broker.stream):
            own = self._journals.stream
            self._towards(home.broker.stream, m.Claim(name, home.broker.stream, own, home.owner))
        else:
            self._seek(name)

    def _fetch_on(self) -> None:
        """Ask again for what has not come: its home may have something of it on its way to disk."""
        fetches, self._fetches = self._fetches, []
        for fetch in fetches:
            home = self.registry.get(fetch.name)
            if home is None:
                fetch.hear(DurableElsewhere(_gone_text(fetch.name)))
            elif self._is_ours(home) and fetch.name not in self._searches:
                durable = self._durables.held.get(fetch.name)
                if durable is None:  # nothing is left of it
                    fetch.hear(None)
                else:
                    self._durables.store(durable, fetch.hear)
            elif self._clock.now >= fetch.until:
                text = f"{_lives_at(fetch.name, home.broker)}, and did not come in {FETCHING:g} s"
                fetch.hear(DurableElsewhere(f"{text}; move it again when that broker has time"))
            else:
                self._ask_for(fetch.name)
                self._fetches.append(fetch)

    # -- what others say

    def homes_heard(self, neighbor: str, message: m.Homes) -> Iterator[None]:
        """Neighbors say where durable subscriptions live; each that has to go is a step."""
        if self._borders.keeps_groups(neighbor):
            return
        for home in message.homes:
            if not self._learn(home, neighbor):
                continue
            name, durable = home.name, self._durables.held.get(home.name)
            if self._is_ours(home):
                if durable is None:
                    self._seek(name)
            else:
                self._searches.pop(name, None)
                if durable is not None:
                    self._yield(durable, home)
                    yield
                elif home.broker is not None and home.broker.stream in self._journals:
                    self.succeed(home.broker.stream)

    def _yield(self, durable: Durable, home: m.Home) -> None:
        """Another broker is its home: it hears what was dealt with here, and clients go there."""
        self._dismiss(durable, _lives_at(durable.name, home.broker), home.broker)
        if self._is_over(durable):
            self._durables.delete(durable.name)
        else:
            self._durables.part(durable)
            self._report()
        self._outdated.discard(durable.name)

    def _dismiss(self, durable: Durable, text: str, to: m.Origin | None = None) -> None:
        """Who consumes it here is sent on, or has to ask again."""
        for subscription in list(self._subscriptions.held.values()):
            if subscription.durable is durable:
                self._send_on(subscription, text, to or m.Origin("", ""))

    def _send_on(self, subscription: Subscription, text: str, to: m.Origin) -> None:
        for consumer in list(subscription.consumers):
            session = self._sessions.held[consumer.session]
            self._send(session.id, consumer.number, text, to)
            self._subscriptions.leave(session, consumer.number)

    def claim_heard(self, neighbor: str, message: m.Claim) -> None:
        """Another broker asks for one."""
        if self._borders.keeps_groups(neighbor):
            return
        if message.stream != self._journals.stream:
            self._towards(message.stream, message)
            return
        home, durable = self.registry.get(message.name), self._durables.held.get(message.name)
        to = self._directory.origin(message.origin)
        if home is None or to is None or not self._is_ours(home):
            return
        if None not in (home.owner, message.owner) and home.owner != message.owner:
            return
        if self.paused or (durable is not None and durable.dying):
            return  # a dead letter must not be made at two brokers; who asks asks again
        if durable is not None:
            self.give(durable, to)
        elif message.name not in self._searches:  # nothing is left of it
            self._learn(replace(home, term=home.term + 1, broker=to, giver=""))

    def give(self, durable: Durable, to: m.Origin) -> None:
        """Let it live at another broker from now on."""
        name, term = durable.name, self.registry.term(durable.name) + 1
        self._dismiss(durable, _lives_at(name, to), to)
        copy = m.Copy(name, term, durable.to_data(), to.stream, given=True)
        home = replace(self._here(durable, term), broker=to, giver=self._journals.stream)
        self.registry.learn(home)
        self._durables.part(durable)
        self._outdated.discard(name)

        def copied(error: StentorError | None) -> None:
            # While the disk was full it may have come back, or be somebody else's.
            if error is None and self.registry.get(name) is home:
                self._store(_HOME, name, to_data(home), stored)

        def stored(error: StentorError | None) -> None:
            if error is None and self.registry.get(name) is home:
                self._durables.delete(name)
                self._news[name] = None
                self._towards(to.stream, copy)

        self._keep(copy, copied)

    # -- copies

    def copy_heard(self, neighbor: str, message: m.Copy) -> None:
        if self._borders.keeps_groups(neighbor):
            return
        name, own = message.name, self._journals.stream
        if message.to not in ("", own):
            self._towards(message.to, message)
            return
        durable = self._durables.held.get(name)
        if message.origin and self.paused:
            return  # its heir will be told
        if not message.to:
            known = self._copies.get(name)
            if durable is None and (known is None or known.term <= message.term):
                self._keep(message)
        elif durable is not None:
            theirs = Durable.from_data(name, message.data)
            if not self._is_over(theirs):
                self._unite(durable, theirs)
            if message.origin:
                self._answer(durable, message)
        elif name in self._searches:
            self._find(self._searches[name], message)
        elif message.given and message.term > self.registry.term(name):
            self._take(Durable.from_data(name, message.data), message.term)

    def _unite(self, durable: Durable, theirs: Durable) -> None:
        """What another broker has dealt with counts here, too."""
        if durable.differs(theirs):  # it is asked for anew, with the filters of both
            self._dismiss(durable, _united_text(durable.name))
        durable.merge(theirs)
        for subscription in self._subscriptions.held.values():
            if subscription.durable is durable and subscription.settling is not None:
                subscription.settling.united()
        self._durables.changed(durable)

    def _answer(self, durable: Durable, message: m.Copy) -> None:
        """Tell a broker that what it has said of one is on disk here."""
        kept = m.Kept(message.name, message.term, message.origin)

        def stored(error: StentorError | None) -> None:
            if error is None:
                self._towards(kept.to, kept)

        self._durables.store(durable, stored)

    def kept_heard(self, neighbor: str, message: m.Kept) -> None:
        """The home of one that has parted has on disk what it was told."""
        if self._borders.keeps_groups(neighbor):
            return
        if message.to != self._journals.stream:
            self._towards(message.to, message)
            return
        told = self._told.get(message.name)
        if told is not None and told.term == message.term:
            del self._told[message.name]
            if message.name in self._durables.parted:
                self._durables.delete(message.name)

    def _keep(self, copy: m.Copy, hear: Hear | None = None) -> None:
        self._copies[copy.name] = copy
        self._store(_COPY, copy.name, msgspec.msgpack.encode(copy), hear)

    def _take(self, durable: Durable, term: int) -> None:
        """It lives here from now on."""
        self._reunite(durable)
        self._durables.take(durable)
        self._learn(self._here(durable, term))
        self._outdated.add(durable.name)
        if self._copies.pop(durable.name, None) is not None:
            self._store(_COPY, durable.name, None)

    def seek_heard(self, neighbor: str, message: m.Seek) -> None:
        """A broker seeks copies."""
        origin = message.origin
        if self._borders.keeps_groups(neighbor) or origin == self._journals.stream:
            return
        if message.number <= self._sought.get(origin, 0):
            return  # that came another way
        self._sought[origin] = message.number
        name = message.name
        copy, durable = self._copies.get(name), self._durables.held.get(name)
        durable = durable or self._durables.parted.get(name)
        if copy is not None:
            self._towards(origin, m.Copy(copy.name, copy.term, copy.data, origin, copy.given))
        if durable is not None:
            term = self.registry.term(message.name)
            self._towards(origin, m.Copy(message.name, term, durable.to_data(), origin))
        self._flood(message, but=neighbor)

    def _seek(self, name: str, began: float | None = None) -> None:
        """Find out what others have of one that is to live here."""
        if name in self._searches:
            return
        now = self._clock.now
        search = self._searches[name] = _Search(now + SEEKING, now if began is None else began)
        copy, parted = self._copies.get(name), self._durables.parted.get(name)
        if copy is not None:
            self._find(search, copy)
        if parted is not None:
            self._find(search, m.Copy(name, self.registry.term(name), parted.to_data()))
        self._number += 1
        self._flood(m.Seek(name, self._journals.stream, self._number))

    def _find(self, search: _Search, copy: m.Copy) -> None:
        """One more copy. None is newer than the giver's, if that is of this very move: who gave it
        away some time before has an old one.
        """
        theirs = Durable.from_data(copy.name, copy.data)
        if self._is_over(theirs):
            return
        if search.found is None:
            search.found = theirs
        else:
            search.found.merge(theirs)
        home = self.registry.get(copy.name)
        if home is None or not (self._is_ours(home) and home.giver):
            return
        late = home.giver in self._journals and copy.term == home.term - 1  # see `succeed`
        if late or (copy.given and copy.term == home.term):
            search.given, search.until = True, self._clock.now

    def _found(self, name: str, search: _Search) -> None:
        """A search is over."""
        home = self.registry.get(name)
        del self._searches[name]
        if home is None or home.broker is None:
            return
        ours = self._is_ours(home)
        if ours and home.giver and not search.given:
            if home.giver not in self._journals or self._clock.now - search.began < LATE:
                self._seek(name, search.began)  # the giver has it, and cannot be reached yet
            elif search.found is not None:
                self._take(search.found, home.term + 1)
            else:  # it begins again when somebody asks for it, with all there is since then
                self._learn(replace(home, term=home.term + 1, giver=""))
        elif ours and search.found is not None:
            self._take(search.found, home.term)
        elif not ours and not self._directory.reaches(home.broker.stream):
            if search.found is not None:
                self._take(search.found, home.term + 1)
            else:  # it begins again when somebody asks for it, with all there is since then
                own = self._directory.own
                self._learn(replace(home, term=home.term + 1, broker=own, giver=""))

    def on_their_way(self) -> Iterator[Durable | None]:
        """Those that were given away here and are not known to have come; None is one step."""
        for name, copy in list(self._copies.items()):
            home = self.registry.get(name)
            if copy.given and home is not None and home.giver and home.term == copy.term:
                yield Durable.from_data(name, copy.data)
            else:
                yield None

    # -- brokers that come and go

    def link_up(self, neighbor: str) -> None:
        """Tell a new neighbor all there is."""
        if self._borders.keeps_groups(neighbor):
            return
        for message in _messages(self.registry):
            self._agenda.to_link(neighbor, message)
        for name in self._durables.held:
            self._outdated.add(name)
        for home in self.registry.at(self._journals.stream):
            if home.name not in self._durables.held:
                self._seek(home.name)  # what was kept is lost; others may know something

    def gone(self, stream: m.StreamId) -> None:
        """The broker of this stream cannot be reached."""
        self._unreached[stream] = self._clock.now
        while len(self._unreached) > m.MAX_STREAMS:
            del self._unreached[next(iter(self._unreached))]
        self._sought.pop(stream, None)

    def tell(self) -> None:
        """Tell neighbors what is new."""
        if not self._news:
            return
        news, self._news = self._news, {}
        for source in dict.fromkeys(news.values()):
            homes = [home for home in self.registry if news.get(home.name, self) == source]
            for message in _messages(homes):
                self._flood(message, but=source)

    def _report(self) -> None:
        """Tell the homes of those that have parted what was dealt with here."""
        said = size = 0
        for name, durable in self._durables.parted.items():
            home = self.registry.get(name)
            if (
                home is None
                or home.broker is None
                or self._directory.relay(home.broker.stream) is None
            ):
                self._told.pop(name, None)
                continue
            # A dead letter may be on its way: only then it is known whether that is done.
            told = self._told.get(name)
            is_told = told is not None and told.again > self._clock.now
            if is_told or self._durables.is_on_hold(name):
                continue
            term, own = home.term - 1, self._journals.stream
            self._told[name] = _Told(term, self._clock.now + TELL_EVERY)
            data = durable.to_data()
            to = home.broker.stream
            self._towards(to, m.Copy(name, term, data, to, origin=own))
            said, size = said + 1, size + len(data)
            if said >= COPIES or size >= COPIED_BYTES:
                break

    def tick(self) -> None:
        self._report()
        self._fetch_on()
        for key, write in list(self._writes.items()):
            if write.failed:
                self._write(key, write)
        for name, search in list(self._searches.items()):
            if self._clock.now >= search.until and not self.paused:
                self._found(name, search)
        if self._durables.held and self._clock.now >= self._next_ages:
            self._next_ages = self._clock.now + NOTE_EVERY
            self._ages.note(self.heads(), self._clock.time)
        if self._outdated and self._clock.now >= self._next_copies:
            self._next_copies = self._clock.now + COPY_EVERY
            size = 0
            for name in list(islice(self._outdated, COPIES)):
                self._outdated.discard(name)
                durable = self._durables.held.get(name)
                if durable is not None:
                    data = durable.to_data()
                    self._flood(m.Copy(name, self.registry.term(name), data))
                    size += len(data)
                if size >= COPIED_BYTES:
                    break

    def _flood(self, message: m.Homes | m.Copy | m.Seek, but: str | None = None) -> None:
        for neighbor in self._routing.neighbors:
            if neighbor != but and not self._borders.keeps_groups(neighbor):
                if isinstance(message, m.Homes):
                    self._assurance.say(neighbor)
                self._agenda.to_link(neighbor, message)

    def _towards(self, stream: m.StreamId, message: m.Copy | m.Claim | m.Kept) -> None:
        neighbor = self._directory.relay(stream)
        if neighbor is not None:
            self._agenda.to_link(neighbor, message)


def _gone_text(name: str) -> str:
    return f"the durable subscription {label(name)!r} was deleted or reset; subscribe again"


def _united_text(name: str) -> str:
    return (
        f"the durable subscription {label(name)!r} was united with another of its name, and asks "
        "for more than before; subscribe again"
    )


def _lives_at(name: str, origin: m.Origin | None) -> str:
    if origin is None:
        return _gone_text(name)
    places = " or ".join(origin.addresses)
    text = f"the durable subscription {label(name)!r} lives at broker {origin.broker!r}"
    return f"{text}; connect to {places}" if places else text


def _messages(homes: Iterable[m.Home]) -> Iterator[m.Homes]:
    left = list(homes)
    for start in range(0, len(left), AT_ONCE):
        yield m.Homes(left[start : start + AT_ONCE])


def _copy(name: str, data: bytes) -> m.Copy:
    try:
        return _copies.decode(data)
    except msgspec.MsgspecError as error:
        raise JournalDamaged(
            f"the copy of the durable subscription {label(name[len(_COPY) :])!r} cannot be read "
            f"({error}); run `stentor journal repair` on the data directory"
        ) from error
