"""Routing: the router of this broker, and what it and those of its neighbors tell each other.

The router decides which filters each neighbor is told and where notifications go. Here its words
become frames, narrowed where a border is crossed, and those of neighbors become its words.

What has ended is withdrawn at the end of a turn, together: of many filters that go at once none is
announced anew just because another went before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from stentor.errors import ProtocolError, StentorError
from stentor.filters import Filter
from stentor.model.codec import Envelope
from stentor.node.agenda import Agenda
from stentor.node.border import Borders, Rights
from stentor.node.hooks import VETO, Hooks
from stentor.node.reading import parsed
from stentor.node.subscription import Subscription
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.protocol import messages as m
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate, Update
from stentor.routing.protocol import BrokerId, FilterId, Outputs, Send
from stentor.routing.table import Destination
from stentor.routing.tree import TreeRouter

#: About how many bytes of filters go into one frame, and what an entry takes besides its texts.
FRAME_BYTES: Final = 512 * 1024
ENTRY_BYTES: Final = 24
#: Filters whose texts are remembered.
TEXTS: Final = 10_000
#: Filters of a neighbor that is gone which are taken down in one step.
UNLINKED_AT_ONCE: Final = 100


class Routing:
    """The router among its neighbors."""

    def __init__(
        self,
        router: TreeRouter,
        *,
        subscriptions: Subscriptions,
        borders: Borders,
        hooks: Hooks,
        agenda: Agenda,
        ids: Mapping[str, BrokerId],
    ) -> None:
        """`ids` is by what the router knows neighbors, where that is not their names."""
        self.router = router
        self._names = ids
        self._borders = borders
        self._hooks = hooks
        self._agenda = agenda
        #: By what the router knows each filter of a subscription.
        self._ids: dict[str, dict[Filter, FilterId]] = {}
        self._last = 0
        self._ended: list[FilterId] = []
        #: Neighbors whose links are gone, but not everything that they asked for.
        self._unlinking: Turns[str] = Turns()
        subscriptions.at_end(self._forget)

    @property
    def is_steered(self) -> bool:
        """Whether subscriptions go only where something that overlaps them is advertised."""
        return self.router.is_coupled

    @property
    def terms(self) -> str:
        """What neighbors have to agree on, in words."""
        return self.router.terms

    @property
    def neighbors(self) -> list[str]:
        return sorted(n for n in map(str, self.router.neighbors) if n not in self._unlinking)

    # -- what is asked for and offered here

    def subscribe(self, id: str, filter: Filter) -> None:
        """Ask for this on behalf of a subscription, besides what it has asked for."""
        self._last += 1
        known = self._ids.setdefault(id, {})[filter] = FilterId(id, self._last)
        self.tell(self.router.subscribe(known, filter))

    def unsubscribe(self, id: str, filter: Filter) -> None:
        """It no longer asks for this."""
        self._ended.append(self._ids[id].pop(filter))

    def _forget(self, subscription: Subscription) -> None:
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

    def link_up(self, neighbor: str, rights: Rights | None) -> None:
        """A new link; `rights` if not everything is allowed."""
        while neighbor in self._unlinking:
            self._unlink(neighbor)
        self._borders.link_up(neighbor, rights)
        self.tell(self.router.link_up(self._id(neighbor)))

    def link_down(self, neighbor: str) -> None:
        """The link is gone. What was asked for and offered there goes in several steps."""
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

    def filters_heard(self, neighbor: str, message: m.Subscriptions | m.Advertisements) -> None:
        """A neighbor asks for something, offers something, or no longer does."""
        if self._hooks.watches("admin_in"):
            answer = self._hooks.run("admin_in", message)
            if answer is VETO:
                return
            message = answer
        update = read_update(message)
        border = self._borders.with_(neighbor)
        if border is not None:
            asks = isinstance(update, SubscriptionUpdate)
            update = (border.asked if asks else border.offered).update(update)
        self.tell(self.router.receive(self._id(neighbor), update))

    def tell(self, outputs: Outputs) -> None:
        """Send neighbors what the router wants to be sent."""
        for output in outputs:
            if isinstance(output, Send):
                update, to = output.message, str(output.to)
                assert isinstance(update, Update)
                asks = isinstance(update, SubscriptionUpdate)
                border = self._borders.with_(to)
                if border is not None:
                    update = (border.asks if asks else border.offers).update(update)
                kind = m.Subscriptions if asks else m.Advertisements
                for added, removed in _written(update):
                    self._agenda.to_link(to, kind(added, removed))

    @property
    def has_work(self) -> bool:
        """Whether neighbors are asked for more than they have to be, until `work` was called."""
        return bool(self._unlinking) or self.router.has_work

    def work(self) -> None:
        if self._unlinking:
            self._unlink(next(iter(self._unlinking)))
        if self.router.has_work:
            self.tell(self.router.work())

    # -- notifications

    def route_leading(
        self, envelopes: Sequence[Envelope], source: str | None, most: int
    ) -> tuple[int, dict[Destination, list[int]]]:
        """For each destination the indexes of what goes there, ascending.

        For as many leading ones, at least one, as cost about `most` (`RoutingTable`) to pass on;
        their number comes first.
        """
        return self.router.route_leading(
            envelopes, None if source is None else self._id(source), most
        )


def _written(update: Update) -> Iterator[tuple[list[tuple[m.Key, str]], list[m.Key]]]:
    """The update as texts, cut so that no frame is too large.

    Everything that is new comes before anything that goes, so that nothing is missing in between.
    """
    added: list[tuple[m.Key, str]] = []
    removed: list[m.Key] = []
    size = 0
    for key, filter in update.added:
        entry = _key(key), _text(filter)
        size += len(entry[1]) * (2 if isinstance(key, Filter) else 1) + ENTRY_BYTES
        added.append(entry)
        if size > FRAME_BYTES:
            yield added, removed
            added, removed, size = [], [], 0
    for gone in update.removed:
        name = _key(gone)
        size += (len(name) if isinstance(name, str) else len(name[0])) + ENTRY_BYTES
        removed.append(name)
        if size > FRAME_BYTES:
            yield added, removed
            added, removed, size = [], [], 0
    if added or removed:
        yield added, removed


def read_update(message: m.Subscriptions | m.Advertisements) -> Update:
    """The update as the router knows it."""
    asks = isinstance(message, m.Subscriptions)
    kind = SubscriptionUpdate if asks else AdvertisementUpdate
    try:
        added = tuple((_unwritten(key), parsed(text)) for key, text in message.added)
        return kind(added, tuple(_unwritten(key) for key in message.removed))
    except StentorError as error:
        raise ProtocolError(f"a neighbor sent a filter that is none: {error}") from error


@lru_cache(maxsize=TEXTS)
def _text(filter: object) -> str:
    """A filter goes to several neighbors, as its own key, and later it is withdrawn."""
    return str(filter)


def _key(key: object) -> m.Key:
    return (key.client, key.number) if isinstance(key, FilterId) else _text(key)


def _unwritten(key: m.Key) -> FilterId | Filter:
    return parsed(key) if isinstance(key, str) else FilterId(*key)
