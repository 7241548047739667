"""Groups of consumers that share one subscription (01/A-18).

A group lives at one broker: where its first member subscribed. All brokers know which groups live
where, and members that ask elsewhere are sent there. If two brokers began the same group at once,
the one with the lower stream keeps it.
"""

from __future__ import annotations

from stentor.errors import (
    GroupElsewhere,
    InvalidConfiguration,
    NameTaken,
)
from stentor.filters import Filter
from stentor.node.durable import Durable
from stentor.node.service.subscriptions import Subscriptions
from stentor.node.session import Session
from stentor.node.subscription import Subscription
from stentor.protocol import messages as m


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
            durable = None
            positions = None
            since = message.since
            if message.durable is not None:
                durable = self.durables.get(message.durable)
                if durable is None:
                    begin = self._clock if since is None else since
                    durable = Durable(message.durable, filter, since=begin, group=True)
                elif not durable.group or self.is_attached(durable):
                    raise NameTaken(
                        f"the durable subscription {durable.name!r} belongs to another group or to "
                        "a single client; choose another name"
                    )
                else:
                    since, positions = durable.since, dict(durable.positions)
            subscription = Subscription(
                self._feed(id, filter, message, since, positions),
                durable=durable,
                group=name,
                choice=message.choice,
            )
            if durable is not None:
                durable.filter = filter
                self.durables[durable.name] = durable
            self._enter(subscription)
            self._tell_groups()
        elif subscription.feed.filter != filter:
            raise InvalidConfiguration(
                f"the group {name!r} subscribes to {str(subscription.feed.filter)!r}; its members "
                "must all use the same filter"
            )
        return subscription

    def _home(self, group: str) -> m.Origin | None:
        """The broker at which a group lives, if it is another one."""
        streams = [s for s, names in self._groups.items() if group in names]
        origins = [self.directory.origin(s) for s in sorted(streams)]
        return next((o for o in origins if o is not None), None)

    def _send_home(self, session: Session, number: int, group: str, home: m.Origin) -> None:
        text = f"the group {group!r} lives at broker {home.broker!r}; connect to {home.address}"
        ended = m.Ended(number, GroupElsewhere.code, text, instead=home.address)
        self._to_client(session, ended)

    def _groups_heard(self, neighbor: str, message: m.Groups) -> None:
        if self.directory.towards(message.stream) != neighbor:
            return
        if message.names:
            self._groups[message.stream] = message.names
        else:
            self._groups.pop(message.stream, None)
        self._flood(message, but=neighbor)
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
