"""The delivery gate of one client (01/A-7): safety, whatever the network does.

A notification on its way to a client passes two tests. When it is *offered*, it must be new to the
client and match one of its subscriptions; it is then marked as seen and queued. When it is *taken*,
a subscription must match it still: the client may have unsubscribed in between. So the client gets
only what it wants at that moment (R-01.18) and everything at most once in its whole life (R-01.20),
however often the network, a replay of history or a repeated batch brings it.

What was seen belongs to the client and not to its subscriptions or its connection. It outlives
both: `to_data` is stored with the client's identity and `from_data` restores it. A notification
that was queued and never taken was not delivered. It is unmarked when it is dropped and left out of
the stored data, so that history may bring it again. A host that wants "at most once" across
crashes stores the data before it hands out what it took; for "at least once" it does so after.

The gate is one client's, and used by one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from stentor.errors import InvalidConfiguration, InvalidNotification, UnknownStrategy
from stentor.filters import Filter
from stentor.matching import Index
from stentor.model.notification import Notification
from stentor.model.seen import SeenIds
from stentor.routing.protocol import FilterId

#: What happens to a notification that is offered to a full queue. `drop_oldest` lets it in and
#: drops the one that waited longest; `drop_newest` drops it; `refuse` leaves it with the host,
#: who holds it back while the gate is `full`.
Policy: TypeAlias = Literal["drop_oldest", "drop_newest", "refuse"]

#: Why a notification did not pass. `too_old`: it lies where the memory of seen ids is no longer
#: precise, so it may be a duplicate. `unwanted`: no subscription matched when it was offered;
#: `no_longer_wanted`: none did when its turn came.
Reason: TypeAlias = Literal[
    "duplicate", "too_old", "unwanted", "no_longer_wanted", "overflow", "refused"
]

#: Notifications that may wait for one client.
QUEUE_LIMIT: Final = 10_000


class Gate:
    """Lets through what the client wants now and never had.

    >>> from stentor.model import NotificationId
    >>> gate = Gate()
    >>> gate.subscribe(FilterId("ann", 1), Filter("price > 100"))
    >>> quote = Notification({"price": 120}, id=NotificationId("nyse", 0, 0))
    >>> gate.offer(quote), gate.offer(quote)
    (True, False)
    >>> dict(gate.take())
    {'price': 120}
    >>> gate.dropped["duplicate"]
    1
    """

    def __init__(
        self,
        *,
        limit: int = QUEUE_LIMIT,
        policy: Policy = "drop_oldest",
        seen: SeenIds | None = None,
    ) -> None:
        if limit < 1:
            raise InvalidConfiguration(f"a queue of {limit} notifications can never deliver one")
        if policy not in get_args(Policy):
            raise UnknownStrategy(
                f"there is no queue policy {policy!r}; choose one of {', '.join(get_args(Policy))}"
            )
        self._limit = limit
        self._policy = policy
        self._seen = SeenIds() if seen is None else seen
        self._interest: Index[FilterId] = Index(background=False)
        #: Each with the number of withdrawals before it was offered.
        self._queue: deque[tuple[Notification, int]] = deque()
        self._withdrawals = 0
        #: How many did not pass, for each reason.
        self.dropped: dict[Reason, int] = dict.fromkeys(get_args(Reason), 0)

    def __len__(self) -> int:
        """How many notifications wait to be taken."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether the next notification would find no room."""
        return len(self._queue) >= self._limit

    # -- interest

    def subscribe(self, id: FilterId, filter: Filter) -> None:
        """From now on the client wants what the filter matches. An id that is held stays."""
        if id not in self._interest:
            self._interest.add(id, filter)

    def unsubscribe(self, id: FilterId) -> None:
        """It no longer does. What waits and is wanted by nothing else will not be delivered."""
        if id in self._interest:
            self._interest.remove(id)
            self._withdrawals += 1

    def matching(self, notification: Notification) -> list[FilterId]:
        """The subscriptions that want it now; one delivery serves them all."""
        return sorted(self._interest.match(notification))

    # -- delivery

    def offer(self, notification: Notification) -> bool:
        """Queue the notification if the client wants it and never had it."""
        id = notification.id
        if id is None:
            raise InvalidNotification(
                "a notification without an id cannot be delivered at most once; "
                "publish it through a client, which gives it one"
            )
        if id in self._seen:
            return self._drop("too_old" if self._seen.too_old(id) else "duplicate")
        if not self._interest.match(notification):
            return self._drop("unwanted")
        if self.full:
            if self._policy == "refuse":
                return self._drop("refused")
            if self._policy == "drop_newest":
                return self._drop("overflow")
            oldest, _ = self._queue.popleft()
            self._unmark(oldest)
            self._drop("overflow")
        self._seen.add(id)
        self._queue.append((notification, self._withdrawals))
        return True

    def take(self) -> Notification | None:
        """The next notification that is still wanted: it counts as delivered. None if none is."""
        while self._queue:
            notification, withdrawals = self._queue.popleft()
            if withdrawals == self._withdrawals or self._interest.match(notification):
                return notification
            self._unmark(notification)
            self._drop("no_longer_wanted")
        return None

    def _drop(self, reason: Reason) -> Literal[False]:
        self.dropped[reason] += 1
        return False

    def _unmark(self, notification: Notification) -> None:
        assert notification.id is not None
        self._seen.discard(notification.id)

    # -- survival

    def to_data(self) -> dict[str, Any]:
        """What was delivered so far, as plain data."""
        delivered = self._seen.copy()
        for notification, _ in self._queue:
            assert notification.id is not None
            delivered.discard(notification.id)
        return delivered.to_data()

    @classmethod
    def from_data(
        cls, data: Mapping[str, Any], *, limit: int = QUEUE_LIMIT, policy: Policy = "drop_oldest"
    ) -> Gate:
        """A gate that remembers what was delivered. The client subscribes again."""
        return cls(limit=limit, policy=policy, seen=SeenIds.from_data(data))
