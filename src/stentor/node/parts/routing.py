"""Routing: the router of this broker, and what it and those of its neighbors tell each other.

The router decides which filters each neighbor is told and where notifications go. Here its words
become frames, narrowed where a border is crossed, and those of neighbors become its words.

What has ended is withdrawn at the end of a turn, together: of many filters that go at once none is
announced anew just because another went before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from stentor.errors import ProtocolError
from stentor.filters import Filter
from stentor.filters.effort import effort
from stentor.model.codec import Envelope
from stentor.model.names import shown
from stentor.node.agenda import Agenda
from stentor.node.assurance import Assurance
from stentor.node.border import Borders, Rights
from stentor.node.holdings import Holdings
from stentor.node.hooks import VETO, Hooks
from stentor.node.portions import FILTERS
from stentor.node.streams import check_addresses
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.wording import Wording
from stentor.protocol import messages as m
from stentor.routing.graph import GraphRouter
from stentor.routing.graph.link_states import LinkState
from stentor.routing.graph.messages import Topology
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate, Update
from stentor.routing.protocol import (
    BrokerId,
    FilterId,
    LiveRouter,
    Message,
    Outputs,
    Place,
    Send,
)
from stentor.routing.rendezvous.messages import Holds, Sources, Watches
from stentor.routing.rendezvous.router import RendezvousRouter
from stentor.routing.table import Destination

#: Filters of a neighbor that is gone, or of an inbox, which are taken down in one step.
UNLINKED_AT_ONCE: Final = 25
#: Filters of an inbox that are asked for in one step.
ASKED_AT_ONCE: Final = 16
#: Elementary steps (see `effort`) in which filters of a neighbor, or of an inbox, are taken before
#: others have their turn.
EFFORT: Final = 10_000


class Routing:
    """The router among its neighbors."""

    def __init__(
        self,
        router: LiveRouter,
        *,
        subscriptions: Subscriptions,
        borders: Borders,
        hooks: Hooks,
        agenda: Agenda,
        assurance: Assurance,
        ids: Mapping[str, BrokerId],
        wording: Wording,
        holdings: Holdings | None = None,
    ) -> None:
        """`ids` is by what the router knows neighbors, where that is not their names.

        `holdings` is what the journals hold, where neighbors are told.
        """
        self.router = router
        self._wording = wording
        self._holdings = holdings
        self._names = ids
        self._borders = borders
        self._hooks = hooks
        self._agenda = agenda
        self._assurance = assurance
        #: By what the router knows each filter of a subscription.
        self._ids: dict[str, dict[Filter, FilterId]] = {}
        self._last = 0
        #: What subscriptions want, and the router does not know yet.
        self._unasked: dict[str, Turns[Filter]] = {}
        self._ended: list[FilterId] = []
        #: Neighbors whose links are gone, but not everything that they asked for.
        self._unlinking: Turns[str] = Turns()
        #: Neighbors of which the router was told what they are.
        self._placed: set[str] = set()
        #: Neighbors that have not been told everything, and what is to happen then.
        self._linking: dict[str, Callable[[], None]] = {}
        #: Filters that are taken from a neighbor in one step, by what the last ones have cost.
        self._at_once = FILTERS
        subscriptions.at_end(self._forget)

    @property
    def is_steered(self) -> bool:
        """Whether subscriptions go only where something that overlaps them is advertised."""
        return self.router.is_coupled

    @property
    def meets(self) -> bool:
        """Whether what is asked for elsewhere becomes known only when something is published."""
        return isinstance(self.router, RendezvousRouter)

    @property
    def terms(self) -> str:
        """What neighbors have to agree on, in words."""
        return self.router.terms

    @property
    def neighbors(self) -> list[str]:
        out = self._unlinking.keys() | self._linking.keys()
        return sorted(n for n in map(str, self.router.neighbors) if n not in out)

    # -- what is asked for and offered here

    def subscribe(self, id: str, filters: Iterable[Filter]) -> None:
        """A subscription wants these, besides what it has asked for; `asked` asks for them."""
        unasked = self._unasked.setdefault(id, Turns())
        for filter in filters:
            unasked.add(filter)

    def asked(self, id: str) -> Iterator[None]:
        """Ask for what the subscription wants; in steps, as that may be much."""
        while self._unasked.get(id):
            self._ask(id, self._unasked[id])
            if self._unasked.get(id):
                yield
        self._unasked.pop(id, None)

    def _ask(self, id: str, unasked: Turns[Filter]) -> None:
        before = effort.left
        for filter in list(islice(unasked, ASKED_AT_ONCE)):
            unasked.discard(filter)
            self._last += 1
            known = self._ids.setdefault(id, {})[filter] = FilterId(id, self._last)
            self.tell(self.router.subscribe(known, filter))
            if before - effort.left > EFFORT:
                break

    def unsubscribe(self, id: str, filters: Iterable[Filter]) -> Iterator[None]:
        """It no longer asks for these: at once, but what follows from that takes steps."""
        unasked, ids = self._unasked.get(id, Turns()), self._ids.get(id, {})
        gone = [ids.pop(filter) for filter in filters if unasked.pop(filter, self) is self]
        return self._ending(gone)

    def _ending(self, gone: list[FilterId]) -> Iterator[None]:
        try:
            while len(gone) > UNLINKED_AT_ONCE:
                some = gone[-UNLINKED_AT_ONCE:]
                del gone[-UNLINKED_AT_ONCE:]
                self.tell(self.router.withdraw(some, []))
                yield
        finally:
            self._ended += gone

    def _forget(self, subscription: Subscription) -> None:
        self._unasked.pop(subscription.feed.id, None)
        self._ended.extend(self._ids.pop(subscription.feed.id, {}).values())

    def withdraw(self) -> None:
        """Ask no longer for what has ended."""
        if self._ended:
            ended, self._ended = self._ended, []
            self.tell(self.router.withdraw(ended, []))

    def advertise(self, id: FilterId, filter: Filter) -> None:
        self.tell(self.router.advertise(id, filter))

    def unadvertise(self, id: FilterId) -> None:
        self.tell(self.router.unadvertise(id))

    def offers(self) -> list[Filter]:
        """What is advertised anywhere, as far as it is not covered by something else."""
        return self.router.offers()

    def interests(self) -> list[Filter]:
        """Whatever somebody asks for, as far as it is not covered by something else."""
        return self.router.interests()

    def watch(self, changed: Callable[[Filter, bool], None]) -> None:
        """Be told what is asked for from now on (True), or no longer by anybody (False)."""
        self.router.watch(changed)

    # -- neighbors

    def link_up(
        self,
        neighbor: str,
        rights: Rights | None,
        place: Place | None,
        then: Callable[[], None],
    ) -> None:
        """A new link; `rights` if not everything is allowed.

        `place` is what the neighbor is to this broker, if the router does not know. All that is
        asked for here is told in several steps. Until these are done and `then` was called, the
        neighbor is none: it is not to be heard (`linked`), and nothing goes there.
        """
        while neighbor in self._unlinking:
            self._unlink(neighbor)
        self._borders.link_up(neighbor, rights)
        if place is not None:
            self.router.place(self._id(neighbor), place)
            self._placed.add(neighbor)
        self._linking[neighbor] = then
        self.tell(self.router.link_up(self._id(neighbor)))
        self._link()

    def _link(self) -> None:
        """Neighbors that have been told everything are neighbors."""
        for neighbor in [n for n in self._linking if not self.router.is_joining(self._id(n))]:
            self._linking.pop(neighbor)()

    def linked(self, neighbor: str) -> Iterator[None]:
        """What has to be done before the neighbor is heard."""
        while neighbor in self._linking:
            self.work()
            yield

    def is_linking(self, neighbor: str) -> bool:
        """Whether the neighbor has not yet been told everything."""
        return neighbor in self._linking

    def link_down(self, neighbor: str) -> None:
        """The link is gone. What was asked for and offered there goes in several steps."""
        self._linking.pop(neighbor, None)
        self._unlinking.add(neighbor)
        self._unlink(neighbor)

    def _id(self, neighbor: str) -> BrokerId:
        return self._names.get(neighbor, neighbor)

    def is_unlinking(self, neighbor: str) -> bool:
        """Whether it is still being forgotten what a neighbor asked for that is gone."""
        return neighbor in self._unlinking

    def _unlink(self, neighbor: str) -> None:
        id = self._id(neighbor)
        self.tell(self.router.forget_some(id, UNLINKED_AT_ONCE))
        if not self.router.asks(id):
            self.tell(self.router.link_down(id))
            self._unlinking.discard(neighbor)
            self._borders.link_down(neighbor)
            if neighbor in self._placed:
                self._placed.discard(neighbor)
                self.router.place(id, "peer")

    def filters_heard(
        self, neighbor: str, message: m.Subscriptions | m.Advertisements
    ) -> Iterator[None]:
        """A neighbor asks for something, offers something, or no longer does.

        Many that come are taken in steps; what goes together with what comes goes at once.
        """
        if self._hooks.watches("admin_in"):
            answer = self._hooks.run("admin_in", message)
            if answer is VETO:
                return
            message = answer
        update = self._wording.read(message)
        border = self._borders.with_(neighbor)
        if border is not None:
            asks = isinstance(update, SubscriptionUpdate)
            update = (border.asked if asks else border.offered).update(update)
        if isinstance(update, AdvertisementUpdate) and update.removed and self.is_steered:
            # What it has offered may have gone by unasked for.
            self._assurance.say(neighbor)
        while not update.removed and len(update.added) > self._at_once:
            kind, added, most = type(update), update.added, self._at_once
            self._take(neighbor, kind(added[:most], ()))
            update = kind(added[most:], ())
            yield
        self._take(neighbor, update)
        yield from self.served()

    def served(self) -> Iterator[None]:
        """What has to be done before neighbors are asked for all that they offer.

        Who offers something is not heard before that, nor is a probe sent or passed on: its answer
        says that everything said before it is in force.
        """
        while self.router.is_serving:
            self.work()
            yield

    @property
    def is_serving(self) -> bool:
        return self.router.is_serving

    def _take(self, neighbor: str, update: Update) -> None:
        before = effort.left
        self.tell(self.router.receive(self._id(neighbor), update))
        if before - effort.left > EFFORT:
            self._at_once = max(1, self._at_once // 2)
        elif self._at_once < FILTERS:
            self._at_once += 1

    def links_heard(self, neighbor: str, message: m.Links) -> None:
        """A neighbor in a graph tells of links."""
        states = tuple(self._state(state) for state in message.states)
        self.tell(self.router.receive(self._id(neighbor), Topology(states)))

    def types_heard(self, neighbor: str, message: m.Types) -> None:
        """A neighbor tells what it has."""
        added = tuple(key for key, _ in message.added)
        self.tell(self.router.receive(self._id(neighbor), Holds(added, tuple(message.removed))))

    def watch_heard(self, neighbor: str, message: m.Watch) -> None:
        """A neighbor wants to know who has something."""
        watches = Watches(tuple(message.added), tuple(message.removed))
        self.tell(self.router.receive(self._id(neighbor), watches))

    def sources_heard(self, neighbor: str, message: m.Sources) -> None:
        """A neighbor tells who has something."""
        found = tuple((key, tuple(map(self._id, brokers))) for key, brokers in message.found)
        self.tell(self.router.receive(self._id(neighbor), Sources(found)))

    def _state(self, state: m.LinkState) -> LinkState:
        if any(cost < 1 for _, cost in state.links):
            raise ProtocolError(f"a link of {shown(state.broker)} costs nothing, or less")
        for origin in state.streams:
            check_addresses(origin)
        links = tuple((self._id(neighbor), cost) for neighbor, cost in state.links)
        return LinkState(self._id(state.broker), state.number, links, state.streams)

    def describe(self, streams: tuple[m.Origin, ...]) -> None:
        """Let all brokers know which streams enter here, where links are told to all."""
        router, floods = self.router, GraphRouter | RendezvousRouter
        if isinstance(router, floods) and streams != router.about(router.id):
            self.tell(router.describe(streams))

    def tell(self, outputs: Outputs) -> None:
        """Send neighbors what the router wants to be sent."""
        for output in outputs:
            if isinstance(output, Send):
                update, to = output.message, str(output.to)
                if not isinstance(update, Update):
                    self._agenda.to_links((to, word) for word in self._words(update))
                    continue
                asks = isinstance(update, SubscriptionUpdate)
                border = self._borders.with_(to)
                if border is not None:
                    update = (border.asks if asks else border.offers).update(update)
                for frame in self._wording.written(update):
                    for tree in self._trees(frame):
                        self._assurance.say(to, tree)
                    self._agenda.to_link(to, frame)

    def _trees(self, frame: m.Subscriptions | m.Advertisements) -> set[BrokerId | None]:
        """The trees that new filters take; None for all, where there is one."""
        if isinstance(self.router, GraphRouter):  # known by their brokers there, and a number
            return {key[0] for key, _ in frame.added}
        return {None} if frame.added else set()

    def _words(self, message: Message) -> Iterator[object]:
        """What a router says about other things than filters, in frames of which none is long."""
        match message:
            case Topology():
                yield _links(message)
            case Holds(added, removed):
                holdings = self._holdings
                assert holdings is not None
                own, through = holdings.stream, holdings.through()
                for keys, gone in _cut(added, removed):
                    named = [(key, holdings.before(key)) for key in keys]
                    yield m.Types(own, named, list(gone), through)
            case Watches(added, removed):
                for keys, gone in _cut(added, removed):
                    yield m.Watch(list(keys), list(gone))
            case Sources(found):
                for start in range(0, len(found), m.MAX_KEYS):
                    some = found[start : start + m.MAX_KEYS]
                    yield m.Sources([(key, list(map(str, brokers))) for key, brokers in some])

    @property
    def has_work(self) -> bool:
        """Whether neighbors were not told enough, or more than they have to be."""
        return bool(self._unlinking) or self.router.has_work

    def work(self) -> None:
        if self._unlinking:
            self._unlink(next(iter(self._unlinking)))
        if self.router.has_work:
            self.tell(self.router.work())
            self._link()

    # -- notifications

    def route_leading(
        self, envelopes: Sequence[Envelope], source: str | None, most: int, root: BrokerId
    ) -> tuple[int, dict[Destination, list[int]]]:
        """For each destination the indexes of what goes there, ascending.

        All entered at `root`. For as many leading ones, at least one, as cost about `most`
        (`RoutingTable`) to pass on; their number comes first.
        """
        sender = None if source is None else self._id(source)
        return self.router.route_leading(envelopes, sender, most, root)


def _cut(
    added: Sequence[str], removed: Sequence[str]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Some of them at a time; all that is new before what goes, and once if there is nothing."""
    most = m.MAX_KEYS
    if len(added) + len(removed) <= most:
        yield added, removed
        return
    for start in range(0, len(added), most):
        yield added[start : start + most], ()
    for start in range(0, len(removed), most):
        yield (), removed[start : start + most]


def _links(topology: Topology) -> m.Links:
    return m.Links(
        [m.LinkState(str(s.origin), s.number, _names(s.links), s.about) for s in topology.states]
    )


def _names(links: Iterable[tuple[BrokerId, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((str(neighbor), cost) for neighbor, cost in links)
