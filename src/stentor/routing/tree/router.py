"""`TreeRouter`: the framework of the routing sheet on acyclic overlays (03/A1).

Links form a tree, so that a notification that never returns to its sender reaches each broker at
most once (R-03.10). Each call is one atomic step: it changes the plane and tells every neighbor
what has changed in one message, or says at once all the targets of a batch of notifications, which
also keeps the causal order (R-01.31). A link that fails takes the neighbor's filters with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from stentor.filters import Filter
from stentor.matching import Commons, Matcher
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate, Update
from stentor.routing.protocol import BrokerId, FilterId, Message, Outputs, Place, Send, TableSize
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Local, Neighbor, Row
from stentor.routing.tree.plane import Plane, Role

_EVERYTHING: Final = Filter("")


class TreeRouter:
    """Routes on a tree, among peers or in a hierarchy.

    >>> router = TreeRouter(1, Strategy("covering"))
    >>> router.link_up(2)
    []
    >>> [send] = router.subscribe(FilterId("ann", 1), Filter("x > 1"))
    >>> send.to, send.message.added
    (2, ((Filter('x > 1'), Filter('x > 1')),))
    """

    def __init__(
        self,
        id: BrokerId,
        routing: Strategy,
        advertisements: Strategy | None = None,
        role: Role | None = None,
        engine: Callable[[], Matcher[Any]] | None = None,
        *,
        commons: Commons | None = None,
        shape: str = "tree",
        coupled: bool = True,
        at_once: int | None = None,
    ) -> None:
        """Subscriptions go only where something that overlaps them is advertised.

        Without advertisements, or where they are not `coupled`, subscriptions go everywhere; what
        is advertised is then only known everywhere.

        With `at_once`, no step announces or hides more filters because of others that cover them;
        while the router `has_work`, `work` does the rest, and no wanted filter is unasked for
        meanwhile, except at a neighbor that `is_joining` or while the router `is_serving`. `shape`
        is what kind of tree it is, for `terms`. With `commons`, filters are searched together with
        those of other routers.
        """
        self._shape = shape
        self._id = id
        self._routing = routing
        self._advertisements = advertisements
        self._coupled = coupled
        self.plane = Plane(
            routing,
            advertisements,
            role,
            engine,
            commons=commons,
            coupled=coupled,
            at_once=at_once,
        )
        self._watcher: Callable[[Filter, bool], None] | None = None

    @property
    def id(self) -> BrokerId:
        return self._id

    @property
    def is_coupled(self) -> bool:
        """Whether subscriptions go only where something that overlaps them is advertised."""
        return self.plane.is_coupled

    @property
    def terms(self) -> str:
        """What neighbors have to agree on, in words.

        >>> TreeRouter(1, Strategy("merging"), Strategy("covering")).terms
        'a tree that announces filters, steered by advertisements that announce filters'
        """
        steered = ""
        if self._advertisements is not None and self._coupled:
            steered = f", steered by advertisements that announce {self._advertisements.terms}"
        return f"a {self._shape} that announces {self._routing.terms}{steered}"

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self.plane.subscriptions.neighbors)

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        return self._insert(SubscriptionUpdate, id, filter)

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self.withdraw([id], [])

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._insert(AdvertisementUpdate, id, filter)

    def unadvertise(self, id: FilterId) -> Outputs:
        return self.withdraw([], [id])

    def _insert(self, kind: type[Update], id: FilterId, filter: Filter) -> Outputs:
        self.plane.insert(kind, Local(id.client), id, filter)
        return self.tell()

    def withdraw(
        self, subscriptions: Iterable[FilterId], advertisements: Iterable[FilterId]
    ) -> Outputs:
        for id in subscriptions:
            self.plane.delete(SubscriptionUpdate, Local(id.client), id)
        for id in advertisements:
            self.plane.delete(AdvertisementUpdate, Local(id.client), id)
        return self.tell()

    # -- notifications

    def route(
        self, events: Sequence[Envelope | Notification], source: BrokerId | None
    ) -> dict[Destination, list[int]]:
        """Where a batch goes that a client (None) published or a neighbor forwarded.

        For each neighbor and client the indexes of the events that go there, ascending.
        """
        return self.route_leading(events, source, None)[1]

    def route_leading(
        self,
        events: Sequence[Envelope | Notification],
        source: BrokerId | None,
        most: int | None,
        root: BrokerId | None = None,
    ) -> tuple[int, dict[Destination, list[int]]]:
        """The same for as many leading events as cost about `most` (`RoutingTable`) to pass on.

        How many these are, at least one, comes first. Where they entered makes no difference.
        """
        return self.plane.targets_of(events, source, most)

    # -- links

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        if isinstance(message, Update) and sender in self.plane.subscriptions.neighbors:
            self.plane.apply(sender, message)
        return self.tell()

    def link_up(self, neighbor: BrokerId) -> Outputs:
        if neighbor in self.plane.subscriptions.neighbors:
            self.plane.drop_neighbor(neighbor)
        self.plane.add_neighbor(neighbor)
        self._linked()
        return self.tell()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        if neighbor in self.plane.subscriptions.neighbors:
            self.plane.drop_neighbor(neighbor)
        self._linked()
        return self.tell()

    def place(self, neighbor: BrokerId, place: Place) -> None:
        """What the neighbor is to this broker from now on; to be said while there is no link."""
        self.plane.place(neighbor, place)

    def is_joining(self, neighbor: BrokerId) -> bool:
        """Whether `work` has more to tell a neighbor of what stood when its link came up."""
        return self.plane.is_joining(neighbor)

    def asks(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor asks for anything, or offers anything."""
        return self.plane.asks(neighbor)

    def forget_some(self, neighbor: BrokerId, most: int) -> Outputs:
        """Forget so many filters of a neighbor that says nothing any more, before `link_down`."""
        self.plane.clear(Neighbor(neighbor), most)
        return self.tell()

    @property
    def is_serving(self) -> bool:
        """Whether `work` has to go on before neighbors are asked for all that they offer."""
        return self.plane.is_serving

    @property
    def has_work(self) -> bool:
        """Whether neighbors were not told enough, or more than they have to be."""
        return self.plane.has_work

    def work(self) -> Outputs:
        """Do a part of what the changes have left to do."""
        self.plane.work()
        return self.tell()

    def tell(self) -> Outputs:
        """What neighbors are to be told of what has changed."""
        return [Send(to, message) for to, message in self.plane.take()]

    # -- what it holds

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held of what anybody asks for or offers."""
        return self.plane.is_empty

    def table_size(self) -> TableSize:
        subscriptions = self.plane.subscriptions.table
        advertisements = self.plane.advertisements
        return TableSize(
            local=subscriptions.count(Local),
            remote=subscriptions.count(Neighbor),
            advertisements=0 if advertisements is None else len(advertisements.table),
        )

    def offers(self) -> list[Filter]:
        if self.plane.advertisements is None:
            return []
        return [row.filter for row in self.plane.advertisements.table.rows()]

    def interests(self) -> list[Filter]:
        """What is asked for, as far as it is not covered by something from the same direction.

        Where everything is flooded, neighbors do not say what they ask for, nor does a parent: that
        may be everything.
        """
        found = [row.filter for row in self.plane.subscriptions.table.rows()]
        return [*found, _EVERYTHING] if self._may_want_everything else found

    @property
    def _may_want_everything(self) -> bool:
        if self._routing.floods:
            return bool(self.neighbors)
        return self.plane.role.parent in self.neighbors

    def watch(self, changed: Callable[[Filter, bool], None]) -> None:
        """Be told of each of the `interests` that has come (True) or gone."""
        self._watcher = changed
        self.plane.subscriptions.watch(self._entry)

    def _entry(self, destination: Destination, row: Row) -> None:
        if self._watcher is not None:
            filter = row.filter
            there = row.sole is not None or bool(row)
            self._watcher(filter, there or (filter.is_always and self._may_want_everything))

    def _linked(self) -> None:
        """Whether a neighbor may want everything may have changed."""
        asked = bool(self.plane.subscriptions.table.owners(_EVERYTHING))
        if self._watcher is not None:
            self._watcher(_EVERYTHING, asked or self._may_want_everything)
