"""What a gossiping broker remembers: ids it has seen, and notifications it can still hand on.

Gossip lets copies of one notification arrive again and again, so a broker must know its id for as
long as copies are about. A bounded cache that merely drops its oldest ids would take a late copy
for news and deliver it twice. But the ids of one producer rise in the order of publication. So when
an id leaves the cache it becomes the floor of its producer, and everything of that producer at or
below its floor counts as seen: what comes for the first time when `limit` other notifications have
come since can be lost, but nothing comes twice (03/A17, 07/T-06). Floors are bounded as well; those
of the producers that were silent for longest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from stentor.errors import InvalidNotification
from stentor.model.identity import NotificationId
from stentor.model.notification import Notification
from stentor.research.gossip.options import at_least

#: Ids that a broker remembers one by one, and producers whose floor it remembers.
ID_LIMIT: Final = 100_000
#: Notifications that a broker keeps for those who missed them.
STORE_LIMIT: Final = 1_000


def id_of(notification: Notification) -> NotificationId:
    """The id, which everything that is gossiped must have."""
    if notification.id is None:
        raise InvalidNotification(
            "a notification without an id cannot be gossiped; publish it through a node, or set id"
        )
    return notification.id


class RecentIds:
    """Bounded memory of ids, which forgets without ever taking an old id for a new one.

    >>> seen = RecentIds(limit=2)
    >>> [seen.add(NotificationId("p", 0, n)) for n in (1, 2, 2, 3)]
    [True, True, False, True]
    >>> seen.add(NotificationId("p", 0, 1)), len(seen)
    (False, 2)
    """

    def __init__(self, limit: int = ID_LIMIT) -> None:
        self._limit = at_least(1, id_limit=limit)
        self._ids: OrderedDict[NotificationId, None] = OrderedDict()
        self._floors: OrderedDict[str, NotificationId] = OrderedDict()

    def __contains__(self, id: NotificationId) -> bool:
        if id in self._ids:
            return True
        floor = self._floors.get(id.producer)
        return floor is not None and id <= floor

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: NotificationId) -> bool:
        """Whether the id is new."""
        if id in self:
            return False
        self._ids[id] = None
        if len(self._ids) > self._limit:
            self._raise_floor(self._ids.popitem(last=False)[0])
        return True

    def _raise_floor(self, id: NotificationId) -> None:
        floor = self._floors.pop(id.producer, id)
        self._floors[id.producer] = max(floor, id)
        if len(self._floors) > self._limit:  # the producer that was silent for longest
            self._floors.popitem(last=False)


class RecentNotifications:
    """The latest notifications, for those who missed them.

    >>> recent = RecentNotifications(limit=1)
    >>> for n in (1, 2):
    ...     recent.add(Notification({"x": n}, id=NotificationId("p", 0, n)))
    >>> [str(id) for id in recent.ids]
    ['p:0:2']
    """

    def __init__(self, limit: int = STORE_LIMIT) -> None:
        self._limit = at_least(1, store_limit=limit)
        self._held: OrderedDict[NotificationId, Notification] = OrderedDict()

    def add(self, notification: Notification) -> None:
        self._held[id_of(notification)] = notification
        if len(self._held) > self._limit:
            self._held.popitem(last=False)

    def get(self, id: NotificationId) -> Notification | None:
        return self._held.get(id)

    @property
    def ids(self) -> tuple[NotificationId, ...]:
        """Oldest first."""
        return tuple(self._held)

    def __len__(self) -> int:
        return len(self._held)
