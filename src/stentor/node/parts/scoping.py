"""Scoping: the scope graph of an overlay, kept the same at all brokers, and its changes.

*Order.* One broker, the owner, orders all changes; it is the one at which the first graph was
deployed. Each change has an epoch, made of the time, so that no two have the same, and whoever
knows of a later one follows that. If brokers that could not reach each other have had graphs of
their own, the one that was changed last counts for all when they meet, and that is told. An owner
that is gone for good can be replaced by a broker that takes over.

*A change takes effect* at a broker in these steps, one change after the other:

    store       at the owner it is on disk before anything else, elsewhere on its way there, before
                anything that is published from now on
    carry out   the graph is changed, or the change is refused and nothing has happened
    move        subscriptions whose component sees more, or less, are asked for anew
    tell        neighbors hear of it, and the administrator
    go on       what clients and neighbors have said meanwhile is heard

*Nothing is leaked.* On each link a change comes before whatever was published under it, since the
sender passes it on before it hears anything else. So a broker that has something of an epoch knows
that epoch, and can tell exactly who may see it. It stays so after a crash, as the disk has the
change before anything that was published under it.

*Nothing is lost.* A component that comes to see more is asked for more. Until all brokers know
that, something it should have may pass by. So all streams count as interrupted for it: it reads in
the journals what lies behind its position. What was published under the change does lie there, for
its broker has heard nothing since the change that could have moved the position. A component that
sees no longer what it saw keeps asking for what was published until then, by the epoch, and so is
given what was under way. Members of a group, who have to see the same, are sent away to come back
into the group that they belong to now.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from stentor.errors import (
    InvalidScopeGraph,
    ProtocolError,
    ScopesElsewhere,
    ShuttingDown,
    StentorError,
)
from stentor.node.agenda import Agenda, CloseClient, Persist
from stentor.node.assurance import Assurance
from stentor.node.clock import Clock
from stentor.node.journals import Journals
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.catching_up import CatchingUp
from stentor.node.parts.offers import Offers
from stentor.node.parts.probing import Probing
from stentor.node.parts.rosters import Rosters
from stentor.node.parts.routing import Routing
from stentor.node.parts.scope_holds import ScopeHolds
from stentor.node.parts.scope_updates import ScopeUpdates
from stentor.node.scopes import Scopes
from stentor.node.sessions import Sessions
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m
from stentor.scopes.definition import (
    HANDLED,
    Change,
    HandledData,
    Record,
    UpdateData,
    continued,
    decode,
    difference,
    encode,
)
from stentor.scopes.places import Span

_log: Final = logging.getLogger("stentor.scopes")

#: Under which the graph is stored, and each change since then.
STORED: Final = "\x00scopes"
_CHANGE: Final = "\x00scopes/"
#: Changes that are stored one by one before the graph is stored as a whole.
COMPACTED: Final = 64
#: Bytes of the largest graph.
MAX_GRAPH: Final = 8 * 2**20
#: Epochs in a second: those of a clock that counts microseconds.
_PER_SECOND: Final = 1_000_000

#: Called when a change is in force here, or with the reason why it is not.
Then: TypeAlias = Callable[[StentorError | None], None]


class _Whole(Struct, array_like=True):
    """A graph with all that is remembered of it."""

    owner: m.Origin
    epoch: int
    records: list[Record]
    open: list[Span]
    past: list[Span]
    #: The first epoch of all.
    begin: int = 0


_whole: Final = msgspec.msgpack.Decoder(_Whole)
_step: Final = msgspec.msgpack.Decoder(tuple[m.Origin, int, bytes])


class Scoping:
    """Changes the scope graph, here and everywhere."""

    def __init__(
        self,
        scopes: Scopes,
        *,
        subscriptions: Subscriptions,
        sessions: Sessions,
        journals: Journals,
        directory: Ways,
        routing: Routing | Carriage,
        probing: Probing,
        catching_up: CatchingUp,
        offers: Offers,
        holds: ScopeHolds,
        updates: ScopeUpdates,
        rosters: Rosters,
        assurance: Assurance,
        hungry: Turns[str],
        clock: Clock,
        agenda: Agenda,
    ) -> None:
        self._holds = holds
        self._rosters = rosters
        self._assurance = assurance
        self._scopes = scopes
        self._subscriptions = subscriptions
        self._sessions = sessions
        self._journals = journals
        self._directory = directory
        self._routing = routing
        self._probing = probing
        self._catching_up = catching_up
        self._offers = offers
        self._hungry = hungry
        self._clock = clock
        self._agenda = agenda
        self.owner: m.Origin | None = None
        #: What was decided when graphs met of which only one can count.
        self.superseded: list[str] = []
        #: What administrators want, and whether one of these is on its way to the disk.
        self._asked: deque[tuple[dict[str, Record] | None, Change | None, int | None, Then]] = (
            deque()
        )
        self._storing = False
        #: Changes to come, and what is left to do of the one that is being made.
        self._coming: deque[Callable[[], Iterator[None]]] = deque()
        self._steps: Iterator[None] | None = None
        #: Changes that are stored since the whole graph was.
        self._stored: list[str] = []
        updates.deploy = lambda change, then: self.deploy(None, then, change=change)
        updates.is_owner = lambda: self.owner == directory.own

    # -- administration

    def deploy(
        self,
        records: dict[str, Record] | None,
        then: Then,
        *,
        change: Change | None = None,
        take_over: bool = False,
        after: int | None = None,
    ) -> None:
        """Make the graph be these records, or carry out a change; an administrator wants it.

        Raises if that cannot be decided here. What was made for the graph of one epoch, `after`,
        is refused if there is a later one when its turn comes.
        """
        if isinstance(self._routing, Carriage):
            raise InvalidScopeGraph("this router carries notifications by itself, without scopes")
        own = self._directory.own
        if self.owner is not None and self.owner.stream != own.stream and not take_over:
            places = " or ".join(self.owner.addresses) or "it"
            raise ScopesElsewhere(
                f"changes of the scope graph are ordered by the broker {self.owner.broker!r}; "
                f"connect to {places}, or take over if it is gone for good"
            )
        self._asked.append((records, change, after, then))
        self._next()

    def _next(self) -> None:
        """Have the next change on disk, if none is on its way there."""
        if self._storing or not self._asked:
            return
        records, change, after, then = self._asked.popleft()
        entry, own = self._scopes.entry, self._directory.own
        if after is not None and after != entry.epoch:
            text = f"the scope graph has changed since epoch {after}; look at it, and try again"
            self._made(then, InvalidScopeGraph(text))
            return
        if change is None:
            assert records is not None
            change = difference(entry.records, continued(entry.records, records))
        self._storing = True
        if not change and self.owner == own:
            self._made(then, None)
            return
        epoch = max(entry.epoch + 1, int(self._clock.time * _PER_SECOND))
        wanted = change
        if HANDLED not in entry.records and any(isinstance(r, UpdateData) for r in change.put):
            wanted = Change([*change.put, HandledData({"": epoch})], change.drop)
        name = self._store(own, epoch, encode(wanted), lambda error: stored(error))

        def stored(error: StentorError | None) -> None:
            if error is None:
                self._coming.append(lambda: self._make(own, epoch, name, wanted, then))
            else:
                self._made(then, error)

    def _made(self, then: Then, error: StentorError | None) -> None:
        self._storing = False
        then(error)
        self._next()

    def _make(
        self, owner: m.Origin, epoch: int, name: str, change: Change, then: Then
    ) -> Iterator[None]:
        """The owner makes a change that is on disk."""
        entry = self._scopes.entry
        old, undo = entry.epoch, self._undoing(change)
        try:
            if old >= epoch:
                raise ScopesElsewhere("another broker has changed the scope graph meanwhile")
            entry.change(epoch, change)
            if entry.size > MAX_GRAPH:
                entry.change(epoch, undo)
                raise InvalidScopeGraph(f"a graph has at most {MAX_GRAPH:,} bytes; make it smaller")
        except StentorError as error:
            self._stored.remove(name)
            self._agenda.add(Persist(name, None, None))
            self._made(then, error)
            return
        self.owner = owner
        self._compact()
        yield from self._moved_from(old)
        self._tell(m.Scopes(owner, epoch, encode(change), old))
        self._made(then, None)

    def _undoing(self, change: Change) -> Change:
        records = self._scopes.entry.records
        keys = [*change.drop, *(record.key for record in change.put)]
        known = [records[key] for key in keys if key in records]
        return Change(known, [key for key in keys if key not in records])

    # -- brokers

    def link_up(self, neighbor: str) -> None:
        """A new link: the graph comes before everything else."""
        if self.owner is not None:
            self._agenda.to_link(neighbor, self._all())

    def scopes_heard(self, neighbor: str, message: m.Scopes) -> Iterator[None]:
        """A neighbor tells of a graph, or of a change."""
        if message.epoch <= self._scopes.entry.epoch:
            return
        if message.change is not None and message.after != self._scopes.entry.epoch:
            raise ProtocolError(
                f"a change of the scope graph from epoch {message.after} on, which is not known"
            )
        self._coming.append(lambda: self._follow(neighbor, message))
        yield from self.moved()

    def _follow(self, neighbor: str, message: m.Scopes) -> Iterator[None]:
        entry = self._scopes.entry
        old = entry.epoch
        if message.epoch <= old:
            return
        before, self.owner = self.owner, message.owner
        if message.change is not None:
            entry.change(message.epoch, decode(message.change))
            self._store(message.owner, message.epoch, message.change, None)
            self._compact()
        else:
            self._take_up(message.whole or b"")
            self._store_whole()
        if before is not None and before.stream != message.owner.stream:
            text = (
                f"the scope graph of {before.broker!r} has given way to that of "
                f"{message.owner.broker!r}, which was changed last"
            )
            self.superseded = [*self.superseded[-9:], text]
            _log.warning("%s", text)
        yield from self._moved_from(old)
        self._tell(message, but=neighbor)

    def _tell(self, message: m.Scopes, but: str | None = None) -> None:
        for neighbor in self._routing.neighbors:
            if neighbor != but:
                self._assurance.say(neighbor)
                self._agenda.to_link(neighbor, message)

    def _all(self) -> m.Scopes:
        assert self.owner is not None
        return m.Scopes(self.owner, self._scopes.entry.epoch, whole=self._whole(self.owner))

    # -- disk

    def _whole(self, owner: m.Origin) -> bytes:
        entry = self._scopes.entry
        found = _Whole(
            owner,
            entry.epoch,
            list(entry.records.values()),
            list(entry.places.values()),
            entry.past,
            entry.begin,
        )
        return msgspec.msgpack.encode(found)

    def _take_up(self, data: bytes) -> None:
        try:
            found = _whole.decode(data)
        except (msgspec.DecodeError, ValueError) as error:
            raise ProtocolError(f"this is not a scope graph: {error}") from None
        self.owner = found.owner
        self._scopes.entry.restore(found.epoch, found.records, found.open, found.past, found.begin)

    def _store(self, owner: m.Origin, epoch: int, data: bytes, then: Then | None) -> str:
        """Have a change on disk, and by which name."""
        name = f"{_CHANGE}{epoch:020}"
        self._stored.append(name)
        self._agenda.add(Persist(name, msgspec.msgpack.encode((owner, epoch, data)), then))
        return name

    def _compact(self) -> None:
        if len(self._stored) > COMPACTED:
            self._store_whole()

    def _store_whole(self) -> None:
        assert self.owner is not None
        self._agenda.add(Persist(STORED, self._whole(self.owner), None))
        for name in self._stored:
            self._agenda.add(Persist(name, None, None))
        self._stored.clear()

    def restore(self, stored: dict[str, bytes]) -> None:
        """Take up what was stored, and leave the rest of it."""
        whole = stored.pop(STORED, None)
        if whole is not None:
            self._take_up(whole)
        entry = self._scopes.entry
        for name in sorted(name for name in stored if name.startswith(_CHANGE)):
            owner, epoch, change = _step.decode(stored.pop(name))
            self._stored.append(name)
            if epoch > entry.epoch:  # else it is in the whole already
                try:
                    entry.change(epoch, decode(change))
                except StentorError as error:  # its administrator was not, or will not be, answered
                    _log.warning("a change of the scope graph was refused: %s", error)
                    continue
                self.owner = owner
        self._scopes.active = entry.epoch > 0

    # -- one change after the other

    @property
    def is_moving(self) -> bool:
        """Whether a change is being made: nobody is to be heard meanwhile."""
        return self._steps is not None or bool(self._coming)

    has_work = is_moving

    def work(self) -> None:
        """Do one step of a change."""
        if self._steps is None and self._coming:
            self._steps = self._coming.popleft()()
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        self._scopes.moving = self._steps is not None

    def moved(self) -> Iterator[None]:
        """What has to be done before anybody is heard."""
        while self.is_moving:
            self.work()
            yield

    # -- subscriptions

    def _moved_from(self, old: int) -> Iterator[None]:
        """The graph has changed: ask for what components see now."""
        is_first = not self._scopes.active
        if is_first:
            self._scopes.active = True
            self._offers.hush()
        yield from self._offers.scopes_moved()
        concerned = None if is_first else self._scopes.concerned(old)
        if is_first or self._scopes.entry.moved > old:  # else everybody sees the same as before
            yield from self._ask_anew(concerned)
        yield from self._holds.scopes_moved()
        yield from self._rosters.scopes_moved(concerned)

    def _ask_anew(self, concerned: list[int] | None) -> Iterator[None]:
        held = self._subscriptions.held
        if concerned is None:
            subscriptions = list(held.values())
        else:
            sessions = (self._sessions.held.get(id) for id in concerned)
            of = (
                s for each in sessions if each is not None for s, _ in each.subscriptions.values()
            )
            subscriptions = list(dict.fromkeys(of))
        for subscription in subscriptions:
            if held.get(subscription.feed.id) is subscription:
                yield from self._amend(subscription)
                yield  # what a component may see can take long to put into words

    def _amend(self, subscription: Subscription) -> Iterator[None]:
        feed, interest = subscription.feed, subscription.interest
        view = self._scopes.view_of(subscription)
        within = None if view is None else view.constraint
        if within is interest.within or within == interest.within:
            return  # the first, for all whose view is what it was
        if subscription.group is not None and interest.within is not None:
            self._send_away(subscription)
            return
        before = dict.fromkeys(interest.narrowed(interest))
        narrower = interest.within is None or (
            within is not None and interest.within.covers(within)
        )
        interest.within = within
        after = dict.fromkeys(interest.narrowed(interest))
        self._routing.subscribe(feed.id, [f for f in after if f not in before])
        ending = self._routing.unsubscribe(feed.id, [f for f in before if f not in after])
        yield from self._routing.asked(feed.id)
        yield from ending
        feed.asks_more()
        if narrower or feed.volatile:
            return
        others = (origin.stream for origin in self._directory.others)
        streams, probe = [*self._journals.heads(), *others], self._probing.next
        self._catching_up.ask_again(feed, streams, probe)  # it has asked for too little
        for stream in streams:
            feed.interrupted(stream, probe)
        self._probing.want(feed)
        self._hungry.add(feed.id)

    def _send_away(self, subscription: Subscription) -> None:
        """Members of a group see the same; these may no longer, and find the others again."""
        for consumer in list(subscription.consumers):
            text = "the scopes have changed; come back, into the group that it belongs to now"
            self._agenda.add(CloseClient(consumer.session, ShuttingDown.code, text))
            session = self._sessions.held.get(consumer.session)
            if session is not None:
                self._subscriptions.leave(session, consumer.number)

    # -- what operators see

    def _held(self) -> dict[str, int]:
        """How much each scope holds back here."""
        found = Counter[str]()
        for key, waiting in self._scopes.held.items():
            found[key.partition("\0")[0]] += len(waiting)
        return dict(found)

    def shown(self) -> dict[str, Any]:
        """The graph as it is, as plain data."""
        entry = self._scopes.entry
        members: dict[str, list[str]] = {}
        for id, component in self._scopes.components.items():
            if id in self._sessions.held:
                for key in entry.view(component).now:
                    members.setdefault(key, []).append(component.producer)
        return {
            "owner": None if self.owner is None else self.owner.broker,
            "addresses": [] if self.owner is None else list(self.owner.addresses),
            "epoch": entry.epoch,
            "graph": encode(Change(list(entry.records.values()))) if self.owner else b"",
            "members": members,
            "crossed": [[*edge, count] for edge, count in entry.crossed.items()],
            "held": self._held(),
            "superseded": self.superseded,
        }
