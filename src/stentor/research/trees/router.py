"""`CarryingRouter`: a router for trees that brings notifications along in its own messages.

A broker that runs knows streams and carries notifications itself; its router only says where they
go. Whoever wraps a router, or changes a tree under traffic, needs both in one place: then a
notification is a message like any other, in order with the changes of filters. So this router asks
a `TreeRouter` and passes on what it says as messages (`Forward`).

A link that fails takes the neighbor's filters with it at once. A link that is about to be replaced
may go in gentler ways: its filters linger for a while, or the change is planned along the cycle
that the old and the new link close (see `change`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from typing import Any

from stentor.filters import Filter
from stentor.matching import Matcher
from stentor.model.notification import Notification
from stentor.research.trees.change import (
    Ahead,
    ChangeStep,
    Forward,
    HungUp,
    LinkChange,
    Plan,
    Restart,
)
from stentor.routing.messages import Update
from stentor.routing.protocol import (
    Arm,
    BrokerId,
    ClientId,
    Close,
    Deliver,
    FilterId,
    Message,
    Outputs,
    Send,
    TableSize,
)
from stentor.routing.strategy import Strategy
from stentor.routing.table import Ghost, Local
from stentor.routing.tree.plane import Plane
from stentor.routing.tree.router import TreeRouter


class CarryingRouter:
    """Routes on a tree of peers, and carries notifications.

    >>> from stentor.model.identity import NotificationId
    >>> router = CarryingRouter(1)
    >>> _ = router.link_up(2), router.subscribe(FilterId("ann", 1), Filter("x > 1"))
    >>> news = Notification({"x": 2}, id=NotificationId("bob", 0, 0))
    >>> [delivery] = router.receive(2, Forward(news))
    >>> delivery.to
    'ann'
    """

    def __init__(
        self,
        id: BrokerId,
        routing: str | Strategy = "covering",
        advertisements: str | Strategy | None = None,
        engine: Callable[[], Matcher[Any]] | None = None,
    ) -> None:
        strategy = Strategy.of(routing)
        offers = None if advertisements is None else Strategy.of(advertisements)
        self._make = partial(TreeRouter, id, strategy, offers, engine=engine)
        self._tree = self._make()
        self._ghosts = count()
        self._change: LinkChange | None = None
        self._last_plan = 0
        #: Brokers to which there is a link, in use or not yet.
        self._links: set[BrokerId] = set()
        #: Neighbors with which it began afresh and that have not answered.
        self._awaited: set[BrokerId] = set()
        #: Messages of a plan that has not arrived here yet.
        self._early: list[tuple[BrokerId, Message]] = []

    @property
    def id(self) -> BrokerId:
        return self._tree.id

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return self._tree.neighbors

    @property
    def plane(self) -> Plane:
        return self._tree.plane

    def table_size(self) -> TableSize:
        return self._tree.table_size()

    def offers(self) -> list[Filter]:
        return self._tree.offers()

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        return self._each(lambda tree: tree.subscribe(id, filter))

    def unsubscribe(self, id: FilterId) -> Outputs:
        return self._each(lambda tree: tree.unsubscribe(id))

    def advertise(self, id: FilterId, filter: Filter) -> Outputs:
        return self._each(lambda tree: tree.advertise(id, filter))

    def unadvertise(self, id: FilterId) -> Outputs:
        return self._each(lambda tree: tree.unadvertise(id))

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        return self._route(notification, None, ahead=True)

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
                ahead = self._change is not None and self._change.of_new_tree(sender)
                if ahead is None:
                    return []  # of a tree that is gone
                return self._receive(sender, message, ahead=ahead)
        return []

    def _receive(self, sender: BrokerId, message: Forward | Update, *, ahead: bool) -> Outputs:
        """A message for the new tree (`ahead`) or the old one; off the line it is for both."""
        if isinstance(message, Forward):
            return self._route(message.notification, sender, ahead=ahead)
        if sender in self._awaited:
            return []  # said before it began afresh
        change = self._change
        if change is None or sender not in change.ring:
            return self._each(lambda tree: tree.receive(sender, message))
        tree = change.new if ahead else change.old
        return self._told(tree, tree.receive(sender, message)) if tree in self._trees else []

    def _route(
        self, notification: Notification, sender: BrokerId | None, *, ahead: bool
    ) -> Outputs:
        change = self._change
        tree = self._tree
        if change is not None and ahead and change.takes(sender):
            tree = change.new
        targets = tree.route([notification], sender)
        clients = sorted(target.id for target in targets if isinstance(target, Local))
        forward = Forward(notification)
        outputs: Outputs = [Send(t.id, forward) for t in targets if not isinstance(t, Local)]
        if change is not None and tree is change.new:
            outputs = change.carried(outputs)
        return outputs + [Deliver(client, notification) for client in clients]

    def link_up(self, neighbor: BrokerId) -> Outputs:
        self._links.add(neighbor)
        self._awaited.discard(neighbor)
        return self._each(lambda tree: tree.link_up(neighbor))

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._links.discard(neighbor)
        self._awaited.discard(neighbor)
        self._early = [(sender, m) for sender, m in self._early if sender != neighbor]
        change = self._change
        if change is not None and not change.committed and neighbor in change.ring:
            return self._abandon(change)
        self._mark(neighbor)
        return self._each(lambda tree: tree.link_down(neighbor))

    def link_down_lingering(self, neighbor: BrokerId, patience: float) -> Outputs:
        """The link is gone, and another will take its place: wait with the withdrawals.

        Nothing goes to the neighbor any more, but the others are told only after `patience`, and
        then only of what has not come back another way (deferred unsubscription, 07/§4.9).
        """
        ghost = Ghost(neighbor, next(self._ghosts))
        self._links.discard(neighbor)
        for tree in self._trees:
            if neighbor in tree.neighbors:
                tree.plane.linger(neighbor, ghost)
        return [*self._each(TreeRouter.tell), Arm(ghost, patience)]

    def expired(self, timer: Hashable) -> Outputs:
        if isinstance(timer, Ghost):
            for tree in self._trees:
                tree.plane.end_linger(timer)
        return self._each(TreeRouter.tell)

    # -- planned changes

    def link_planned(self, neighbor: BrokerId) -> None:
        """There is a link to this broker, to be used when a planned change says so."""
        self._links.add(neighbor)

    def replace_link(self, plan: Plan) -> Outputs:
        """Begin a planned change; this broker is the first of its line."""
        return self._change_step(self.id, ChangeStep(plan, "prepare"))

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
            change = self._change = LinkChange(self.id, step.plan, self._tree, self._make())
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
            self._tree = self._change.new
            self._links -= self._change.on_line - self._change.on_new_line
        if self._change.over:
            self._change = None
        return outputs

    def _abandon(self, change: LinkChange) -> Outputs:
        """Give up a change; what is left of the cycle becomes the tree."""
        self._change = None
        for neighbor in change.ring:
            if neighbor in self.neighbors:
                self.plane.drop_neighbor(neighbor)
        outputs: Outputs = []
        for neighbor in change.ring:
            if neighbor in self._links:
                outputs.append(Send(neighbor, ChangeStep(change.plan, "abandon")))
                outputs += self._restart(neighbor)
        return outputs + self._tree.tell()

    def _mark(self, neighbor: BrokerId) -> None:
        """Nothing of the old tree can come from there any more."""
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
            if neighbor in self.neighbors:
                self.plane.drop_neighbor(neighbor)
            outputs += self._restart(neighbor)
        self._awaited.discard(neighbor)
        return outputs + self._each(TreeRouter.tell)

    # -- the trees

    @property
    def _trees(self) -> list[TreeRouter]:
        """The tree, or the old one and the new one while there are two."""
        if self._change is None or self._change.committed:
            return [self._tree]
        return [self._change.old, self._change.new]

    def _each(self, step: Callable[[TreeRouter], Outputs]) -> Outputs:
        """Let each tree take the same step; what neighbors are to be told of it."""
        return [output for tree in self._trees for output in self._told(tree, step(tree))]

    def _told(self, tree: TreeRouter, outputs: Outputs) -> Outputs:
        change = self._change
        return outputs if change is None or tree is not change.new else change.told(outputs)
