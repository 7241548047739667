"""`TreeRouter`: the framework of the routing sheet on acyclic overlays (03/A1).

Links form a tree, so that a notification that never returns to its sender reaches each broker at
most once (R-03.10). Each call is one atomic step: it changes the plane, tells every neighbor
what has changed in one message, and passes a notification to all its targets at once, which also
keeps the causal order (R-01.31).

A link that fails takes the neighbor's filters with it at once. A link that is about to be replaced
may go in three gentler ways: its filters linger for a while, or the change is planned along the
cycle that the old and the new link close (see `change`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Any, Final

from stentor.filters import Filter
from stentor.matching import Matcher
from stentor.model.codec import Envelope
from stentor.model.notification import Notification
from stentor.routing.messages import AdvertisementUpdate, Forward, SubscriptionUpdate, Update
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Close,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Place,
    Send,
    TableSize,
)
from stentor.routing.strategy import Strategy
from stentor.routing.table import Destination, Ghost, Local, Neighbor
from stentor.routing.tree.change import Ahead, Change, ChangeStep, HungUp, Plan, Restart
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
        shape: str = "tree",
        coupled: bool = True,
        at_once: int | None = None,
    ) -> None:
        """Subscriptions go only where something that overlaps them is advertised.

        Without advertisements, or where they are not `coupled`, subscriptions go everywhere; what
        is advertised is then only known everywhere.

        With `at_once`, no step announces or hides more filters because of others that cover them;
        while the router `has_work`, `work` does the rest, and no wanted filter is unasked for
        meanwhile, except at a neighbor that `is_joining`. `shape` is what kind of tree it is, for
        `terms`.
        """
        self._shape = shape
        self._id = id
        self._routing = routing
        self._advertisements = advertisements
        self._engine = engine
        self._coupled = coupled
        self._at_once = at_once
        self.plane = Plane(routing, advertisements, role, engine, coupled=coupled, at_once=at_once)
        self._watcher: Callable[[Filter, bool], None] | None = None
        self._ghosts = count()
        self._change: Change | None = None
        self._last_plan = 0
        #: Brokers to which there is a link, in use or not yet.
        self._links: set[BrokerId] = set()
        #: Neighbors with which it began afresh and that have not answered.
        self._awaited: set[BrokerId] = set()
        #: Messages of a plan that has not arrived here yet.
        self._early: list[tuple[BrokerId, Message]] = []

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
        return self._delete(SubscriptionUpdate, id)

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._insert(AdvertisementUpdate, id, filter)

    def unadvertise(self, id: FilterId) -> Outputs:
        return self._delete(AdvertisementUpdate, id)

    def _insert(self, kind: type[Update], id: FilterId, filter: Filter) -> Outputs:
        for plane in self._planes:
            plane.insert(kind, Local(id.client), id, filter)
        return self._tell()

    def _delete(self, kind: type[Update], id: FilterId) -> Outputs:
        for plane in self._planes:
            plane.delete(kind, Local(id.client), id)
        return self._tell()

    def withdraw(
        self, subscriptions: Iterable[FilterId], advertisements: Iterable[FilterId]
    ) -> Outputs:
        for plane in self._planes:
            for id in subscriptions:
                plane.delete(SubscriptionUpdate, Local(id.client), id)
            for id in advertisements:
                plane.delete(AdvertisementUpdate, Local(id.client), id)
        return self._tell()

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        return self._route(notification, None, ahead=self._change is not None)

    def route(
        self, events: Sequence[Envelope | Notification], source: BrokerId | None
    ) -> dict[Destination, list[int]]:
        """Where a batch goes that a client (None) published or a neighbor forwarded.

        For each neighbor and client the indexes of the events that go there, ascending: what
        `publish` and `receive` of a `Forward` decide for each of them, in one step. While a planned
        change `is_changing` this router, what goes to a neighbor may have to be wrapped; only
        `publish` and `receive` say that.
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
        plane = self.plane
        change = self._change
        if change is not None:
            ahead = True if source is None else change.of_new_plane(source)
            if ahead is None:
                return len(events), {}  # of a plane that is gone
            if change.committed or (ahead and self._goes_ahead(source)):
                plane = change.new
        return plane.targets_of(events, source, most)

    # -- links

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case ChangeStep():
                return self._change_step(sender, message)
            case Restart():
                return self._restarted(sender)
            case HungUp():
                return [*self.link_down(sender), Close(sender)]
            case Ahead():
                if self._change is None and message.plan > self._last_plan:
                    self._early.append((sender, message))
                    return []
                return self._receive(sender, message.message, ahead=True)
            case Forward() | Update():
                ahead: bool | None = self._change is not None
                if self._change is not None:
                    ahead = self._change.of_new_plane(sender)
                if ahead is None:
                    return []  # of a plane that is gone
                return self._receive(sender, message, ahead=ahead)
        return []

    def _receive(self, sender: BrokerId, message: Forward | Update, *, ahead: bool) -> Outputs:
        """A message for the new plane (`ahead`) or the old one; off the line it is for both."""
        if isinstance(message, Forward):
            return self._route(message.notification, sender, ahead=ahead)
        if sender in self._awaited:
            return []  # said before it began afresh
        for plane in self._planes:
            change = self._change
            on_line = change is not None and sender in change.on_line | change.on_new_line
            belongs = not on_line or (plane is self._planes[-1]) is ahead
            if belongs and sender in plane.subscriptions.neighbors:
                plane.apply(sender, message)
        return self._tell()

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._links.add(neighbor)
        self._awaited.discard(neighbor)
        for plane in self._planes:
            if neighbor in plane.subscriptions.neighbors:
                plane.drop_neighbor(neighbor)
            plane.add_neighbor(neighbor)
        self._asked(_EVERYTHING)
        return self._tell()

    def place(self, neighbor: BrokerId, place: Place) -> None:
        """What the neighbor is to this broker from now on; to be said while there is no link."""
        self.plane.place(neighbor, place)

    def is_joining(self, neighbor: BrokerId) -> bool:
        """Whether `work` has more to tell a neighbor of what stood when its link came up."""
        return any(plane.is_joining(neighbor) for plane in self._planes)

    def asks(self, neighbor: BrokerId) -> bool:
        """Whether the neighbor asks for anything, or offers anything."""
        return any(plane.asks(neighbor) for plane in self._planes)

    def forget_some(self, neighbor: BrokerId, most: int) -> Outputs:
        """Forget so many filters of a neighbor that says nothing any more, before `link_down`."""
        for plane in self._planes:
            plane.clear(Neighbor(neighbor), most)
        return self._tell()

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._links.discard(neighbor)
        self._awaited.discard(neighbor)
        self._early = [(sender, m) for sender, m in self._early if sender != neighbor]
        change = self._change
        if change is not None and not change.committed and neighbor in change.ring:
            return self._abandon(change)
        self._mark(neighbor)
        for plane in self._planes:
            if neighbor in plane.subscriptions.neighbors:
                plane.drop_neighbor(neighbor)
        self._asked(_EVERYTHING)
        return self._tell()

    def link_down_lingering(self, neighbor: BrokerId, patience: float) -> Outputs:
        """The link is gone, and another will take its place: wait with the withdrawals.

        Nothing goes to the neighbor any more, but the others are told only after `patience`, and
        then only of what has not come back another way (deferred unsubscription, 07/§4.9).
        """
        ghost = Ghost(neighbor, next(self._ghosts))
        self._links.discard(neighbor)
        for plane in self._planes:
            if neighbor in plane.subscriptions.neighbors:
                plane.linger(neighbor, ghost)
        return [*self._tell(), Arm(ghost, patience)]

    def expired(self, timer: Hashable) -> Outputs:
        if isinstance(timer, Ghost):
            for plane in self._planes:
                plane.end_linger(timer)
        return self._tell()

    @property
    def has_work(self) -> bool:
        """Whether neighbors were not told enough, or more than they have to be."""
        return any(plane.has_work for plane in self._planes)

    def work(self) -> Outputs:
        """Do a part of what the changes have left to do."""
        for plane in self._planes:
            plane.work()
        return self._tell()

    # -- planned changes

    def link_planned(self, neighbor: BrokerId) -> None:
        """There is a link to this broker, to be used when a planned change says so."""
        self._links.add(neighbor)

    def replace_link(self, plan: Plan) -> Outputs:
        """Begin a planned change; this broker is the first of its line."""
        return self._change_step(self._id, ChangeStep(plan, "prepare"))

    @property
    def is_peer(self) -> bool:
        """Whether all its links are between peers; only these can be replaced as planned."""
        return self.plane.role == Role()

    @property
    def is_changing(self) -> bool:
        return self._change is not None or bool(self._awaited)

    def _change_step(self, sender: BrokerId, step: ChangeStep) -> Outputs:
        change = self._change
        if step.name == "abandon":
            self._last_plan = max(self._last_plan, step.plan.number)
            self._early = []
            if change is not None and not change.committed and change.plan == step.plan:
                return self._abandon(change)
            return []
        if step.name == "prepare":
            if step.plan.number <= self._last_plan:
                return []  # given up before it came here
            self._last_plan = step.plan.number
            new = Plane(
                self._routing,
                self._advertisements,
                engine=self._engine,
                coupled=self._coupled,
                at_once=self._at_once,
            )
            change = self._change = Change(self._id, step.plan, self.plane, new)
            if not self._links.issuperset(change.ring):
                return self._abandon(change)  # a link has failed before this came here
            outputs = change.begin()
            early, self._early = self._early, []
            for sender, message in early:
                outputs += self.receive(sender, message)
            return outputs
        if self._change is None:
            if step.plan.number > self._last_plan:
                self._early.append((sender, step))
            return []
        outputs = self._change.step(step.name, sender)
        if self._change.committed:
            self._use(self._change.new)
            self._links -= self._change.on_line - self._change.on_new_line
        if self._change.over:
            self._change = None
        return outputs

    def _use(self, plane: Plane) -> None:
        """Route by another plane; who watches hears what is different there."""
        before, self.plane = self.plane, plane
        if self._watcher is not None:
            plane.subscriptions.watch(lambda _, filter: self._asked(filter))
            asked = {row.filter for row in before.subscriptions.table.rows()}
            now = {row.filter for row in plane.subscriptions.table.rows()}
            for filter in asked ^ now:
                self._watcher(filter, filter in now)

    def _abandon(self, change: Change) -> Outputs:
        """Give up a change; what is left of the cycle becomes the tree."""
        self._change = None
        for neighbor in change.ring:
            if neighbor in self.plane.subscriptions.neighbors:
                self.plane.drop_neighbor(neighbor)
        outputs: Outputs = []
        for neighbor in change.ring:
            if neighbor in self._links:
                outputs.append(Send(neighbor, ChangeStep(change.plan, "abandon")))
                outputs += self._restart(neighbor)
        return outputs + self._tell()

    def _mark(self, neighbor: BrokerId) -> None:
        """Nothing of the old plane can come from there any more."""
        if self._change is not None:
            self._change.mark(neighbor)
            if self._change.over:
                self._change = None

    def _restart(self, neighbor: BrokerId) -> Outputs:
        self.plane.add_neighbor(neighbor)
        self._awaited.add(neighbor)
        return [Send(neighbor, Restart())]

    def _restarted(self, neighbor: BrokerId) -> Outputs:
        """The neighbor has begun afresh: do so as well, unless that is what it answers to."""
        if neighbor not in self._links:
            return [Send(neighbor, HungUp())]
        self._mark(neighbor)
        outputs: Outputs = []
        if neighbor not in self._awaited:
            if neighbor in self.plane.subscriptions.neighbors:
                self.plane.drop_neighbor(neighbor)
            outputs += self._restart(neighbor)
        self._awaited.discard(neighbor)
        return outputs + self._tell()

    @property
    def _planes(self) -> list[Plane]:
        """The plane, or the old one and the new one while there are two."""
        if self._change is None or self._change.committed:
            return [self.plane]
        return [self._change.old, self._change.new]

    def _tell(self) -> Outputs:
        outputs: Outputs = []
        if self._change is None or not self._change.committed:
            outputs += [Send(to, message) for to, message in self.plane.take()]
        if self._change is not None:
            outputs += self._change.tell()
        return outputs

    def _route(
        self, notification: Notification, sender: BrokerId | None, *, ahead: bool
    ) -> Outputs:
        change = self._change
        outputs: Outputs
        if change is not None and (change.committed or (ahead and self._goes_ahead(sender))):
            outputs, clients = change.route(notification, sender)
        else:
            neighbors, clients = self.plane.targets(notification, sender)
            outputs = [Send(neighbor, Forward(notification)) for neighbor in neighbors]
        return outputs + [Deliver(client, notification) for client in clients]

    def _goes_ahead(self, sender: BrokerId | None) -> bool:
        """Whether a notification uses the new plane; on entering the line, once switched."""
        change = self._change
        assert change is not None
        return change.switched or sender in change.on_line | change.on_new_line

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
        self.plane.subscriptions.watch(lambda _, filter: self._asked(filter))

    def _asked(self, filter: Filter) -> None:
        """Whether somebody asks for this may have changed."""
        if self._watcher is not None:
            there = bool(self.plane.subscriptions.table.owners(filter))
            self._watcher(filter, there or (filter.is_always and self._may_want_everything))
