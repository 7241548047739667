"""Informed gossip in a tree of groups, in the manner of pmcast (07/4.6).

Brokers that are near each other form a group, whose delegates meet in a group one level up (see
`tree`). In a group everyone knows everyone's interest: on the lowest level what the clients of a
member asked for, above it what all members of the subgroup asked for whose delegate it is. Such
an aggregate is itself a list of filters, merged and without what another one covers; when it
changes, the delegate tells the group above, where this may change an aggregate again.

A broker that learns of a notification gossips in each group that it is a member of: to `fanout`
random members among those whose interest matches. So a notification goes down only into groups that
want it, and reaches the interested members of a group as basic gossip reaches all. To get to the
other groups it must first go up. Interest does not matter for that, because those below do not know
what is wanted above: the publisher hands it to delegates of its group as *rising*, these pass it
on to delegates one level up, until it has risen to the root. A broker that has seen a notification
lets it rise all the same if it has not done so before.

Aggregates can be stale: an interest is new and its announcement still on its way. So that no
subgroup is cut off for that, some choices are made blindly: on top of the informed ones, `fanout`
more, each with the probability `floor`, among all members of the group (07/T-13). What is wanted by
nobody costs so much and no more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import ClassVar

from stentor.errors import InvalidConfiguration
from stentor.filters import Filter
from stentor.model.notification import Notification
from stentor.research.gossip.edge import Edge
from stentor.research.gossip.memory import ID_LIMIT, RecentIds, id_of
from stentor.research.gossip.options import at_least, share
from stentor.research.gossip.tree import ROOT, GroupId, GroupTree
from stentor.routing.protocol import (
    BrokerId,
    ClientId,
    FilterId,
    Kind,
    Message,
    Outputs,
    Send,
    TableSize,
)
from stentor.routing.reducers.merging import MergingStage
from stentor.routing.table import Local, Neighbor, RoutingTable


class Tidings(Message, frozen=True):
    """A notification; one that rises is to be passed on towards the root."""

    kind: ClassVar[Kind] = "notification"
    notification: Notification
    rising: bool


class Interest(Message, frozen=True):
    """How the sender's interest as a member of a group changes."""

    kind: ClassVar[Kind] = "subscription"
    group: GroupId
    added: tuple[Filter, ...]
    removed: tuple[Filter, ...]


class _Membership:
    """A group, from the point of view of one member.

    `mine` merges what this broker stands for in the group; `theirs` has the interests of others.
    """

    def __init__(self, group: GroupId, others: Iterable[BrokerId]) -> None:
        self.group = group
        self.others = dict.fromkeys(others)
        self.mine = MergingStage()
        self.theirs = RoutingTable()

    def change_mine(self, added: Iterable[Filter], removed: Iterable[Filter]) -> Interest | None:
        """What the group is to be told when this broker comes to stand for more, or for less."""
        balance: Counter[Filter] = Counter()
        deltas = [self.mine.add(f) for f in added] + [self.mine.remove(f) for f in removed]
        for delta in deltas:
            balance.update(delta.added)
            balance.subtract(delta.removed)
        interest = Interest(
            self.group,
            tuple(filter for filter, change in balance.items() if change > 0),
            tuple(filter for filter, change in balance.items() if change < 0),
        )
        return interest if interest.added or interest.removed else None

    def change_theirs(self, member: BrokerId, interest: Interest) -> None:
        for filter in interest.added:
            self.theirs.add(Neighbor(member), filter, filter)
        for filter in interest.removed:
            self.theirs.remove(Neighbor(member), filter)

    def forget(self, member: BrokerId) -> Interest:
        """The change of interest that the loss of a member amounts to."""
        lost = Interest(self.group, (), tuple(self.theirs.at(Neighbor(member)).values()))
        self.change_theirs(member, lost)
        return lost


class GroupRouter(Edge):
    """Gossips with those whose group is interested.

    >>> tree = GroupTree([["a", "b"], ["c", "d"]], delegates=1)
    >>> a, b = (GroupRouter(id, tree, random.Random(7), floor=0) for id in "ab")
    >>> _ = a.link_up("b"), a.link_up("c"), b.link_up("a")
    >>> [told] = b.subscribe(FilterId("bob", 1), Filter("x > 1"))  # the group is told
    >>> told.to, [output.to for output in a.receive("b", told.message)]  # and the one above
    ('a', ['c'])
    """

    def __init__(
        self,
        id: BrokerId,
        tree: GroupTree,
        rng: random.Random,
        *,
        fanout: int = 4,
        floor: float = 0.05,
        id_limit: int = ID_LIMIT,
    ) -> None:
        super().__init__(id, id_limit)
        self._rng = rng
        self._fanout = at_least(1, fanout=fanout)
        self._floor = share(floor=floor)
        self._risen = RecentIds(id_limit)
        self._up: dict[BrokerId, None] = {}
        self._memberships = [
            _Membership(group, (other for other in tree.members(group) if other != id))
            for group in tree.groups_of(id)
        ]
        top = self._memberships[-1].group
        self._above = () if top == ROOT else tree.delegates(top)

    @property
    def neighbors(self) -> frozenset[BrokerId]:
        return frozenset(self._up)

    # -- clients

    def subscribe(self, id: FilterId, filter: Filter) -> Outputs:
        if self._holds(id):
            return []
        self._table.add(Local(id.client), id, filter)
        return self._change(0, (filter,), ())

    def unsubscribe(self, id: FilterId) -> Outputs:
        if not self._holds(id):
            return []
        filter = self._table.at(Local(id.client))[id]
        self._table.remove(Local(id.client), id)
        return self._change(0, (), (filter,))

    def publish(self, client: ClientId, notification: Notification) -> Outputs:
        self._published(notification)
        self._risen.add(id_of(notification))
        return self._deliver(notification) + self._tell(notification, gossip=True, rise=True)

    # -- interests

    def _change(self, level: int, added: Iterable[Filter], removed: Iterable[Filter]) -> Outputs:
        """Tell the group on this level what changes there, and so on upwards."""
        outputs: Outputs = []
        for membership in self._memberships[level:]:
            interest = membership.change_mine(added, removed)
            if interest is None:
                break
            outputs += [Send(m, interest) for m in membership.others if m in self._up]
            added, removed = interest.added, interest.removed
        return outputs

    def _learn(self, sender: BrokerId, interest: Interest) -> Outputs:
        for level, membership in enumerate(self._memberships):
            if membership.group == interest.group and sender in membership.others:
                membership.change_theirs(sender, interest)
                return self._change(level + 1, interest.added, interest.removed)
        raise InvalidConfiguration(
            f"broker {self._id!r} was told of the group {interest.group} by {sender!r}, with whom "
            "it does not share it; give all brokers the same tree of groups"
        )

    # -- notifications

    def receive(self, sender: BrokerId, message: Message) -> Outputs:
        match message:
            case Tidings(notification, rising):
                new = self._arrived(notification)
                rise = rising and self._risen.add(id_of(notification))
                outputs = self._deliver(notification) if new else []
                return outputs + self._tell(notification, gossip=new, rise=rise)
            case Interest():
                return self._learn(sender, message)
        raise self._foreign(message)

    def expired(self, timer: Hashable) -> Outputs:
        return []

    def _tell(self, notification: Notification, *, gossip: bool, rise: bool) -> Outputs:
        targets: dict[BrokerId, bool] = {}
        if gossip:
            for membership in self._memberships:
                targets.update(dict.fromkeys(self._choose(membership, notification), False))
        if rise:
            delegates = [delegate for delegate in self._above if delegate in self._up]
            targets.update(dict.fromkeys(self._draw(delegates), True))
        return [Send(to, Tidings(notification, rising)) for to, rising in targets.items()]

    def _choose(self, membership: _Membership, notification: Notification) -> list[BrokerId]:
        """Members of the group to gossip with."""
        others = [member for member in membership.others if member in self._up]
        interested = membership.theirs.targets(notification)
        informed = self._draw([m for m in others if Neighbor(m) in interested])
        blind = sum(self._rng.random() < self._floor for _ in range(self._fanout))
        return informed + self._rng.sample(others, min(blind, len(others)))

    def _draw(self, brokers: list[BrokerId]) -> list[BrokerId]:
        return self._rng.sample(brokers, min(self._fanout, len(brokers)))

    # -- links

    def link_up(self, neighbor: BrokerId) -> Outputs:
        """A member that comes is told the interest of this one in all groups they share."""
        self._up[neighbor] = None
        outputs: Outputs = []
        for membership in self._memberships:
            mine = tuple(membership.mine.mergers)
            if neighbor in membership.others and mine:
                outputs.append(Send(neighbor, Interest(membership.group, mine, ())))
        return outputs

    def link_down(self, neighbor: BrokerId) -> Outputs:
        self._up.pop(neighbor, None)
        outputs: Outputs = []
        for level, membership in enumerate(self._memberships):
            lost = membership.forget(neighbor)
            outputs += self._change(level + 1, lost.added, lost.removed)
        return outputs

    def table_size(self) -> TableSize:
        remote = sum(len(membership.theirs) for membership in self._memberships)
        return TableSize(self._table.count(Local), remote, len(self._advertised))
