"""Groups of consumers that share one subscription (01/A-18).

A group lives at one broker: where its first member subscribed. All brokers know which groups live
where, and members that ask elsewhere are sent there. If two brokers began the same group at once,
the one with the lower stream keeps it.

That a group has begun is told before the probe that follows its first member: when that member
hears that its subscription is in force, all brokers know the group. That groups have ended is told
by a new list of those that are left. It may be long, and therefore comes once in a while. Nothing
is wrong meanwhile: who is sent to a broker at which the group has ended begins it there anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stentor.errors import (
    GroupElsewhere,
    InvalidConfiguration,
    NameTaken,
    NotPermitted,
    Overloaded,
)
from stentor.filters import Filter
from stentor.node.actions import ToLink
from stentor.node.service.base import groups_at
from stentor.node.service.subscriptions import Subscriptions
from stentor.node.session import Session
from stentor.node.subscription import Subscription
from stentor.protocol import messages as m

#: Seconds between two lists of the groups that are left.
GROUPS_EVERY: Final = 1.0


class Groups(Subscriptions):
    """Keeps groups."""

    def _join_group(
        self, session: Session, message: m.Subscribe, filter: Filter
    ) -> Subscription | None:
        """The group's subscription, made if need be; None if the group lives elsewhere."""
        name = message.group
        assert name is not None
        id = f"group {name}"
        subscription = self.subscriptions.get(id)
        if subscription is None:
            home = self._home(name)
            if home is not None:
                self._send_home(session, message.number, name, home)
                return None
            if len(self._groups_here) >= self._max_groups:
                raise Overloaded(
                    f"{len(self._groups_here)} groups live here, the most that this broker allows; "
                    "begin the group at another broker, or raise limits.groups"
                )
            durable = None
            since = message.since
            # A member that has lost the group may know where to begin it again.
            positions = None if message.positions is None else self._plausible(message.positions)
            if message.durable is not None:
                durable = self.durables.get(message.durable)
                if durable is None:
                    begin = self._clock if since is None else since
                    durable = self._new_durable(session, message.durable, filter, begin, group=True)
                elif not durable.group or self.is_attached(durable):
                    raise NameTaken(
                        f"the durable subscription {durable.name!r} belongs to another group or to "
                        "a single client; choose another name"
                    )
                else:
                    self._check_owner(session, durable)
                    since, positions = durable.since, dict(durable.positions)
            subscription = Subscription(
                self._feed(id, filter, message, since, positions),
                durable=durable,
                group=name,
                choice=message.choice,
                owner=session.owner,
            )
            if durable is not None:
                durable.filter = filter
                durable.owner = session.owner or durable.owner
                self.durables[durable.name] = durable
            self._enter(subscription)
            self._groups_begun.add(name)
        elif subscription.owner != session.owner:
            raise NotPermitted(
                f"the group {name!r} belongs to another grant than that of {session.name!r}; "
                "choose another name"
            )
        elif subscription.feed.filter != filter:
            raise InvalidConfiguration(
                f"the group {name!r} subscribes to {str(subscription.feed.filter)!r}; its members "
                "must all use the same filter"
            )
        return subscription

    def _tell_groups(self) -> None:
        """Tell neighbors which groups live here, as far as that has changed."""
        if self._groups_begun:
            begun = self._groups_begun - self._groups_told
            self._groups_begun.clear()
            if begun:
                self._groups_told |= begun
                self._flood_groups(begun, more=True)
        # What somebody had who is gone is taken down in steps, and told when that is over.
        if self._groups_ended and not self._leaving and self._now >= self._next_groups:
            self._groups_ended = False
            self._next_groups = self._now + GROUPS_EVERY
            if self._groups_told != self._groups_here:
                self._groups_told = set(self._groups_here)
                self._flood_groups(self._groups_here)

    def _flood_groups(self, names: Iterable[str], *, more: bool = False) -> None:
        for piece in groups_at(self.stream, names, more=more):
            self._tell_others(piece)

    def _tell_others(self, message: m.Groups, but: str | None = None) -> None:
        for neighbor in self.neighbors:
            if neighbor != but and not self._keeps_groups(neighbor):
                self._out.append(ToLink(neighbor, message))

    def _home(self, group: str) -> m.Origin | None:
        """The broker at which a group lives, if it is another one."""
        streams = [s for s, names in self._groups.items() if group in names]
        origins = [self.directory.origin(s) for s in sorted(streams)]
        return next((o for o in origins if o is not None), None)

    def _send_home(self, session: Session, number: int, group: str, home: m.Origin) -> None:
        places = " or ".join(home.addresses)
        text = f"the group {group!r} lives at broker {home.broker!r}; connect to {places}"
        ended = m.Ended(number, GroupElsewhere.code, text, instead=list(home.addresses))
        self._to_client(session, ended)

    def _groups_heard(self, neighbor: str, message: m.Groups) -> None:
        if self.directory.towards(message.stream) != neighbor or self._keeps_groups(neighbor):
            return
        if not message.more:
            self._groups.pop(message.stream, None)
        if message.names:
            self._groups.setdefault(message.stream, set()).update(message.names)
        self._tell_others(message, but=neighbor)
        if message.stream < self.stream:  # two began the same group: the lower stream keeps it
            home = self.directory.origin(message.stream)
            for name in message.names:
                subscription = self.subscriptions.get(f"group {name}")
                if subscription is None or home is None:
                    continue
                for consumer in list(subscription.consumers):
                    session = self.sessions[consumer.session]
                    self._send_home(session, consumer.number, name, home)
                    gone = self._detach(session, consumer.number)
                    self._route_filters(self.router.withdraw(gone, []))
