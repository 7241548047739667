"""Wording: how brokers tell filters, and are told: as texts, and neighbors as frames of texts.

The same filters come from several neighbors, and are withdrawn later. So filters are remembered by
their texts, as many as there is room for; a filter itself remembers its text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache
from typing import Final

from stentor.errors import ProtocolError, StentorError
from stentor.filters import Filter
from stentor.node.reading import parsed, received
from stentor.protocol import messages as m
from stentor.routing.messages import AdvertisementUpdate, SubscriptionUpdate, Update
from stentor.routing.protocol import FilterId

#: About how many bytes of filters go into one frame, and what an entry takes besides its texts.
FRAME_BYTES: Final = 512 * 1024
ENTRY_BYTES: Final = 24


class Wording:
    """Turns updates into frames and frames into updates.

    >>> wording = Wording()
    >>> filter = Filter("x > 1")
    >>> (frame,) = wording.written(SubscriptionUpdate(((filter, filter),), ()))
    >>> frame.added
    [('x > 1', 'x > 1')]
    >>> wording.read(frame).added
    ((Filter('x > 1'), Filter('x > 1')),)
    """

    def __init__(
        self,
        read: Callable[[str], Filter] = parsed,
        text: Callable[[Filter], str] = str,
        received: Callable[[str], Filter] = received,
    ) -> None:
        """How filters are read that come from neighbors, how they are written, and how those are
        read that come from clients; reading should remember the latest."""
        self._filter = read
        self.text = text
        self.received = received

    @classmethod
    def in_one_process(cls) -> Wording:
        """One for many brokers and their clients, who need not print a filter to tell it.

        A number stands for it, and whoever reads that has the same object. All are remembered.

        >>> wording = Wording.in_one_process()
        >>> [wording.text(Filter(text)) for text in ("x > 1", "y > 1", "x > 1")]
        ['#0', '#1', '#0']
        >>> wording.received("#1"), wording.received("z > 1")
        (Filter('y > 1'), Filter('z > 1'))
        """
        known: dict[str, Filter] = {}

        @cache
        def text_of(filter: Filter) -> str:
            text = f"#{len(known)}"  # no filter is written like that
            known[text] = filter
            return text

        return cls(
            lambda text: known.get(text) or parsed(text),
            text_of,
            lambda text: known.get(text) or received(text),
        )

    def written(self, update: Update) -> Iterator[m.Subscriptions | m.Advertisements]:
        """The update as texts, cut so that no frame is too large.

        Everything that is new comes before anything that goes, so that nothing is missing in
        between.
        """
        kind = m.Subscriptions if isinstance(update, SubscriptionUpdate) else m.Advertisements
        added: list[tuple[m.Key, str]] = []
        removed: list[m.Key] = []
        size = 0
        for key, filter in update.added:
            text = self.text(filter)
            size += len(text) + ENTRY_BYTES
            if key is filter:
                size += len(text)
                added.append((text, text))
            else:
                added.append((self._key(key), text))
            if size > FRAME_BYTES:
                yield kind(added, removed)
                added, removed, size = [], [], 0
        for gone in update.removed:
            name = self._key(gone)
            size += (len(name) if isinstance(name, str) else len(str(name[0]))) + ENTRY_BYTES
            removed.append(name)
            if size > FRAME_BYTES:
                yield kind(added, removed)
                added, removed, size = [], [], 0
        if added or removed:
            yield kind(added, removed)

    def read(self, message: m.Subscriptions | m.Advertisements) -> Update:
        """The update as the router knows it."""
        asks = isinstance(message, m.Subscriptions)
        kind = SubscriptionUpdate if asks else AdvertisementUpdate
        try:
            return kind(
                tuple([self._entry(key, text) for key, text in message.added]),
                tuple([self._unwritten(key) for key in message.removed]),
            )
        except StentorError as error:
            raise ProtocolError(f"a neighbor sent an invalid filter: {error}") from error

    def _entry(self, key: m.Key, text: str) -> tuple[FilterId | Filter, Filter]:
        filter = self._filter(text)
        return (filter if key == text else self._unwritten(key)), filter

    def _key(self, key: Hashable) -> m.Key:
        if isinstance(key, FilterId):
            return key.client, key.number
        assert isinstance(key, Filter)
        return self.text(key)

    def _unwritten(self, key: m.Key) -> FilterId | Filter:
        return self._filter(key) if isinstance(key, str) else FilterId(*key)
