"""Rosters: which members by rules are where, for policies that choose among them.

Where a policy chooses (`stentor.scopes.roster`), each broker tells the others which of its clients
are members of that scope by a rule: their names, what they say of themselves, and what they have
subscribed to, as far as that is in force everywhere. So whoever is chosen is given what it was
chosen for: the broker that chooses knows the way to it.

A change of the graph may make it necessary to know them, or make others members. Each broker tells
of its own as soon as it has made the change, before it answers any probe: first of those who have
come, then of the change, and then of those who have gone. So until a broker makes the change, it
chooses among those who were there before. Clients that publish wait meanwhile for a probe to be
answered, and so do clients that connect to a broker: what they publish is decided by somebody who
knows all members at the brokers that can be reached.

What a broker says of its members is numbered, and comes in order on every way. In a graph with
cycles it counts, and is passed on, once. A new link begins with all that is known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from stentor.filters import Filter
from stentor.node.agenda import Agenda
from stentor.node.assurance import Assurance
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.probing import Probing
from stentor.node.parts.routing import Routing
from stentor.node.pauses import Pauses
from stentor.node.scopes import Scopes
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Consumer
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m
from stentor.scopes.roster import Member

_log: Final = logging.getLogger("stentor.scopes")

#: Members at one broker of which others are told, and filters of one; more count as everything.
MAX_MEMBERS: Final = 10_000
MAX_FILTERS: Final = 16
#: Clients that are looked at, and members in one message.
AT_ONCE: Final = 100


class Rosters:
    """Knows the members at this broker, and tells others of them."""

    def __init__(
        self,
        scopes: Scopes,
        *,
        sessions: Sessions,
        subscriptions: Subscriptions,
        probing: Probing,
        pauses: Pauses,
        journals: Journals,
        directory: Ways,
        routing: Routing | Carriage,
        borders: Borders,
        assurance: Assurance,
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._scopes = scopes
        self._sessions = sessions
        self._probing = probing
        self._pauses = pauses
        self._journals = journals
        self._directory = directory
        self._routing = routing
        self._borders = borders
        self._assurance = assurance
        self._agenda = agenda
        #: Names, as scopes know them, of clients here that have to be looked at.
        self._stale: Turns[str] = Turns()
        #: While the graph is changed: those who have gone, of whom others hear after the change.
        self._leaving: dict[str, None] | None = None
        #: By broker, the number of what it has said last. It must not come again after a restart.
        self._numbers: dict[m.StreamId, int] = {journals.stream: int(clock.time * 1_000_000)}
        #: Whether others have been told of any since this broker was started.
        self._told = False
        self._is_full = False
        #: The scopes whose members had to be known when the graph was changed last, and the epoch
        #: in which somebody had come to see something else then.
        self._watched: frozenset[str] = frozenset()
        self._moved = 0
        self._said_words = False
        sessions.at_leave(self._left)
        subscriptions.at_leave(self._subscribed)
        probing.at_in_force(self._subscribed)

    # -- members here

    def join(self, session: Session) -> None:
        """A client has connected: it publishes when those are known among whom is chosen."""
        if self._scopes.entry.watched or self._scopes.entry.says_words:
            self._wait(session)

    def _left(self, session: Session) -> None:
        self._look(session.id)

    def _subscribed(self, consumer: Consumer) -> None:
        """What a client asks for is in force, or is gone."""
        self._look(consumer.session)

    def _look(self, session: int) -> None:
        if self._scopes.entry.watched and session in self._scopes.components:
            self._stale.add(self._scopes.components[session].name)

    def _wait(self, session: Session) -> None:
        self._pauses.hold(session)
        self._probing.then(session.id, partial(self._pauses.release, session))

    def scopes_moved(self, concerned: list[int] | None) -> Iterator[None]:
        """The graph has changed: others may have to know of more members, or of fewer.

        `concerned` are those who may see something else; None: all.
        """
        entry = self._scopes.entry
        watched, before = entry.watched, self._watched
        waits = not watched <= before or (entry.says_words and not self._said_words)
        waits |= bool(watched) and entry.moved > self._moved
        self._watched, self._said_words, self._moved = watched, entry.says_words, entry.moved
        if not watched and not before and not waits:
            return
        if concerned is None or watched != before:
            self._stale.update((each.name, None) for each in self._scopes.components.values())
            self._stale.update(dict.fromkeys(entry.roster.of(self._own)))
        else:
            for id in concerned:
                self._look(id)
        self._leaving = {}
        while self._stale:
            self.tell()
            yield
        if waits:
            for neighbor in self._routing.neighbors:  # behind each there is a change to be made
                self._assurance.say(neighbor)
            for session in list(self._sessions.held.values()):
                if session.id not in self._agenda.residents:
                    self._wait(session)
                yield
        self._stale.update(self._leaving)
        self._leaving = None

    @property
    def _own(self) -> m.StreamId:
        return self._journals.stream

    def tell(self) -> None:
        """Tell others of some members that have come, changed or gone."""
        if not self._stale:
            return
        roster, put, drop = self._scopes.entry.roster, list[Member](), list[str]()
        known = roster.of(self._own)
        for name in list(islice(self._stale, AT_ONCE)):
            del self._stale[name]
            member, before = self._member(name), known.get(name)
            if member is None:
                drop += [name] * (before is not None)
            elif before is not None or len(known) + len(put) < MAX_MEMBERS:
                if member != before:
                    put.append(member)
            elif not self._is_full:
                self._is_full = True
                _log.warning(
                    "policies choose among %d members here at most, and %r is one more: it is not "
                    "chosen; have some of them connect elsewhere",
                    MAX_MEMBERS,
                    name,
                )
        if self._leaving is not None:
            self._leaving |= dict.fromkeys(drop)
            drop = []
        if roster.put(self._own, put, drop):
            self._numbers[self._own] += 1
            number = self._numbers[self._own]
            self._flood(m.Roster(self._own, number, [*put], drop, more=self._told))
            self._told = True

    def _member(self, name: str) -> Member | None:
        """A client as others have to know it; None if nobody may choose it."""
        scopes, filters = self._scopes, dict[Filter, None]()
        component = None
        for id in sorted(scopes.saying("name", name)):
            session = self._sessions.held[id]
            if id in self._agenda.residents or self._sessions.is_leaving(id):
                continue
            if not scopes.entry.is_watched(scopes.components[id]):
                continue
            component = scopes.components[id]
            for subscription, _ in session.subscriptions.values():
                feed, interest = subscription.feed, subscription.interest
                if subscription.group is None and (feed.volatile or feed.begun):
                    filters |= dict.fromkeys(f for f in interest if f not in interest.recent)
        if component is None or not filters:
            return None
        texts = [str(each) for each in filters] if len(filters) <= MAX_FILTERS else [""]
        return Member(name, component.attributes, texts)

    # -- members elsewhere

    def roster_heard(self, neighbor: str, message: m.Roster) -> None:
        """Members at some broker."""
        stream, directory = message.stream, self._directory
        known_broker = stream not in self._journals and directory.origin(stream) is not None
        if self._borders.keeps_groups(neighbor) or not known_broker:
            return
        if not directory.allows_cycles and directory.towards(stream) != neighbor:
            return
        known = self._numbers.get(stream, -1)
        if message.number < known:
            return  # that came another way
        roster, drop = self._scopes.entry.roster, set(message.drop)
        put = [Member(*each) for each in message.put]
        before = roster.of(stream)
        if message.number > known and not message.more:
            drop |= before.keys() - {each.name for each in put}
        self._numbers[stream] = message.number
        if len(before) + len(put) > MAX_MEMBERS + AT_ONCE:
            put = []
        if roster.put(stream, put, drop) or message.number > known:
            self._flood(message, but=neighbor)

    def gone(self, stream: m.StreamId) -> None:
        """The broker of this stream cannot be reached."""
        self._scopes.entry.roster.away(stream)
        self._numbers.pop(stream, None)

    def link_up(self, neighbor: str) -> None:
        """A new link begins with all members that are known."""
        entry = self._scopes.entry
        for stream, number in self._numbers.items():
            told = self._told or entry.watched if stream == self._own else True
            if told and self._directory.towards(stream) != neighbor:
                members: list[m.RosterMember] = [*entry.roster.of(stream).values()]
                for at in range(0, max(1, len(members)), AT_ONCE):
                    part = members[at : at + AT_ONCE]
                    self._say(neighbor, m.Roster(stream, number, part, [], more=at > 0))

    def _flood(self, message: m.Roster, but: str | None = None) -> None:
        for neighbor in self._routing.neighbors:
            if neighbor != but:
                self._say(neighbor, message)

    def _say(self, neighbor: str, message: m.Roster) -> None:
        if not self._borders.keeps_groups(neighbor):
            self._assurance.say(neighbor)
            self._agenda.to_link(neighbor, message)
