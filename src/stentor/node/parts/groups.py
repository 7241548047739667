"""Groups of consumers that share one subscription (01/A-18): which live where.

A group lives at one broker: where its first member subscribed. All brokers know which groups live
where, and members that ask elsewhere are sent there. If two brokers began the same group at once,
the one with the lower stream keeps it.

That a group has begun is told before the probe that follows its first member: when that member
hears that its subscription is in force, all brokers know the group. That groups have ended is told
by a new list of those that are left. It may be long, and therefore comes once in a while. Nothing
is wrong meanwhile: who is sent to a broker at which the group has ended begins it there anew.

Names belong to grants, like those of durable subscriptions: here a group is known by its name
together with the grant of its members, where there are grants.

What a broker says of its groups is numbered. In a graph with cycles it comes from several sides; it
counts, and is passed on, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from stentor.errors import GroupElsewhere, Overloaded
from stentor.node.agenda import Agenda
from stentor.node.allowance import Shares
from stentor.node.assurance import Assurance
from stentor.node.border import Borders
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.last_values import label
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.routing import Routing
from stentor.node.session import Session
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.ways import Ways
from stentor.protocol import messages as m

#: Seconds between two lists of the groups that are left.
EVERY: Final = 1.0
#: Groups that one message names; a name has up to 255 characters.
AT_ONCE: Final = 256


class Groups:
    """Knows which groups live here and which elsewhere."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        sessions: Sessions,
        journals: Journals,
        directory: Ways,
        routing: Routing | Carriage,
        borders: Borders,
        assurance: Assurance,
        clock: Clock,
        agenda: Agenda,
        shares: Shares,
    ) -> None:
        """`shares` is how many groups may live here."""
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._journals = journals
        self._directory = directory
        self._routing = routing
        self._borders = borders
        self._assurance = assurance
        self._clock = clock
        self._agenda = agenda
        self.shares = shares
        self._here: set[str] = set()
        #: The groups at other brokers, by their streams, and as of which number.
        self.elsewhere: dict[m.StreamId, set[str]] = {}
        self._numbers: dict[m.StreamId, int] = {}
        #: The number of what was said last. It must not come again after a restart.
        self._number = int(clock.time * 1_000_000)
        #: Groups here as neighbors know them, those that began since, and whether some have ended.
        self._told: set[str] = set()
        self._begun: set[str] = set()
        self._ended = False
        self._next = clock.now
        subscriptions.at_end(self._forget)

    # -- here

    def check_room(self, session: Session) -> None:
        """Raise if this client may not begin one more group here."""
        held = self._subscriptions.held
        counts = Counter(held[group_id(name)].owner for name in self._here)
        session.allowance.check("groups", counts[session.owner])
        if not self.shares.has_room(session.owner, counts):
            raise Overloaded(
                f"{len(self._here)} groups live here, the most that this broker allows; begin the "
                "group at another broker, or raise limits.groups"
            )

    def begin(self, name: str) -> None:
        """The group lives here."""
        self._here.add(name)
        self._begun.add(name)

    @property
    def some_here(self) -> bool:
        """Whether a group lives here."""
        return bool(self._here)

    def _forget(self, subscription: Subscription) -> None:
        if subscription.group is not None:
            self._here.discard(subscription.group)
            self._begun.discard(subscription.group)
            self._ended = True

    # -- elsewhere

    def home(self, group: str) -> m.Origin | None:
        """The broker at which a group lives, if it is another one."""
        streams = [s for s, names in self.elsewhere.items() if group in names]
        origins = [self._directory.origin(s) for s in sorted(streams)]
        return next((o for o in origins if o is not None), None)

    def send_home(self, session: Session, number: int, group: str, home: m.Origin) -> None:
        """Send a member to the broker at which the group lives."""
        places = " or ".join(home.addresses)
        text = f"the group {label(group)!r} lives at broker {home.broker!r}; connect to {places}"
        ended = m.Ended(number, GroupElsewhere.code, text, instead=list(home.addresses))
        self._agenda.to_client(session.id, ended)

    def groups_heard(self, neighbor: str, message: m.Groups) -> None:
        """Groups that live at some broker."""
        stream, directory = message.stream, self._directory
        known_broker = stream not in self._journals and directory.origin(stream) is not None
        if self._borders.keeps_groups(neighbor) or not known_broker:
            return
        if not directory.allows_cycles and directory.towards(stream) != neighbor:
            return
        known, names = self._numbers.get(stream, -1), self.elsewhere.get(stream, set())
        if message.number < known or (message.number == known and names.issuperset(message.names)):
            return  # that came another way
        self._numbers[stream] = message.number
        if message.number > known and not message.more:
            names = set()
        self.elsewhere[stream] = names.union(message.names)
        self._flood(message, but=neighbor)
        home = self._directory.origin(stream)
        if stream < self._journals.stream and home is not None:  # two began the same group
            for name in message.names:
                self._give_up(name, home)

    def _give_up(self, name: str, home: m.Origin) -> None:
        """Another broker keeps the group: its members here go there."""
        subscription = self._subscriptions.held.get(group_id(name))
        for consumer in [] if subscription is None else list(subscription.consumers):
            session = self._sessions.held[consumer.session]
            self.send_home(session, consumer.number, name, home)
            self._subscriptions.leave(session, consumer.number)

    def gone(self, stream: m.StreamId) -> None:
        """The broker of this stream cannot be reached."""
        self.elsewhere.pop(stream, None)
        self._numbers.pop(stream, None)

    # -- what neighbors are told

    def link_up(self, neighbor: str) -> None:
        if self._borders.keeps_groups(neighbor):
            return
        own = self._journals.stream
        for stream, names in [(own, self._told), *self.elsewhere.items()]:
            if names and self._directory.towards(stream) != neighbor:
                number = self._number if stream == own else self._numbers[stream]
                for message in _messages(stream, names, number):
                    self._agenda.to_link(neighbor, message)

    def tell(self) -> None:
        """Tell neighbors which groups live here, as far as that has changed."""
        if self._begun:
            begun = self._begun - self._told
            self._begun.clear()
            if begun:
                self._told |= begun
                self._say(begun, more=True)
        # What somebody had who is gone is taken down in steps, and told when that is over.
        if self._ended and not self._sessions.has_work and self._clock.now >= self._next:
            self._ended = False
            self._next = self._clock.now + EVERY
            if self._told != self._here:
                self._told = set(self._here)
                self._say(self._here)

    def _say(self, names: Iterable[str], *, more: bool = False) -> None:
        self._number += 1
        for message in _messages(self._journals.stream, names, self._number, more=more):
            self._flood(message)

    def _flood(self, message: m.Groups, but: str | None = None) -> None:
        for neighbor in self._routing.neighbors:
            if neighbor != but and not self._borders.keeps_groups(neighbor):
                self._assurance.say(neighbor)
                self._agenda.to_link(neighbor, message)


def group_id(name: str) -> str:
    """The id of a group's subscription."""
    return f"group {name}"


def _messages(
    stream: m.StreamId, names: Iterable[str], number: int, *, more: bool = False
) -> Iterator[m.Groups]:
    """The groups at a broker as messages, none of which is too large."""
    left = sorted(names)
    while True:
        yield m.Groups(stream, left[:AT_ONCE], more, number)
        left, more = left[AT_ONCE:], True
        if not left:
            return
