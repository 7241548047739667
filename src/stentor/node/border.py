"""A border: what may cross the link with a neighbor whose grant does not allow everything.

A neighbor speaks for all that lies behind it, so its grant is not about persons but about content:
`admits` is what may come in from there, `shows` is what may be seen from there. Both are checked
where they are crossed, whatever the neighbor says and whoever has said it before:

- notifications that come in, live or from a journal, must match `admits`, and those that go out
  must match `shows`; the others are left out, as if nobody had asked for them;
- filters are narrowed: what the neighbor asks for to `shows`, what it offers to `admits`; and what
  is asked of it to `admits`, what is offered to it to `shows`, so that it does not even hear of the
  rest. Refusing a filter that is too wide would not do: a neighbor asks by one filter for many;
- a last value from there is kept apart from everybody else's of the same key;
- groups stay on their side, and a journal is not taken over from there.

Where streams come from, how far they are and which brokers there are is believed within the
direction of the neighbor; see `streams`.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from stentor.errors import StentorError
from stentor.filters import Filter
from stentor.model.codec import Envelope
from stentor.node.last_values import owned
from stentor.node.reading import parsed
from stentor.protocol.messages import Chunk
from stentor.routing.messages import Update
from stentor.routing.protocol import FilterId

_log: Final = logging.getLogger("stentor.broker")


class Rights(NamedTuple):
    """What a neighbor may send and see; None is everything."""

    #: The grant, for logs.
    grant: str
    admits: Filter | None
    shows: Filter | None


class Border:
    """The border with one neighbor, as long as the link is up."""

    def __init__(self, neighbor: str, rights: Rights) -> None:
        self._neighbor = neighbor
        self._grant, self._admits, self._shows = rights
        self._told: set[str] = set()
        self.asked = Narrowing(self, rights.shows, "asks for")
        self.offered = Narrowing(self, rights.admits, "offers")
        self.asks = Narrowing(self, rights.admits)
        self.offers = Narrowing(self, rights.shows)

    @property
    def keeps_groups(self) -> bool:
        """Whether groups stay on their side: members there see less than members here."""
        return self._shows is not None

    def tell(self, what: str) -> None:
        """Log it, once for each link."""
        if what not in self._told:
            self._told.add(what)
            _log.warning(
                "the neighbor %s %s more than its grant %r allows; the rest is left out",
                self._neighbor,
                what,
                self._grant,
                extra={"event": "border", "peer": self._neighbor},
            )

    def passes(self, envelope: Envelope) -> tuple[bool, bool]:
        """Whether this may come in, and whether it may go out."""
        admits, shows, facts = self._admits, self._shows, envelope.facts
        return admits is None or admits.matches(facts), shows is None or shows.matches(facts)

    def admitted(self, envelopes: Sequence[Envelope]) -> list[int] | None:
        """The indexes of what may come in; None for all."""
        found = _matching(self._admits, envelopes)
        if found is not None:
            self.tell("sends")
        return found

    def shown(self, envelopes: Sequence[Envelope], indexes: list[int]) -> list[int]:
        """Those of the indexes that may go out."""
        found = _matching(self._shows, [envelopes[i] for i in indexes])
        return indexes if found is None else [indexes[i] for i in found]

    def fetchable(self, text: str) -> str:
        """The filter by which the neighbor reads a journal, as far as it may."""
        if self._shows is None:
            return text
        return str(self.asked.narrowed(parsed(text)))

    def admit_chunk(self, chunk: Chunk, envelopes: Sequence[Envelope]) -> int:
        """Take out of a stretch what may not come in; how many that were."""
        before = len(chunk.items)
        kept = self.admitted(envelopes)
        if kept is not None:
            chunk.items = [chunk.items[i] for i in kept]
            chunk.offsets = [chunk.offsets[i] for i in kept] if chunk.offsets else []
            chunk.keys = [chunk.keys[i] for i in kept] if chunk.keys else []
            chunk.times = [chunk.times[i] for i in kept] if chunk.times else []
        chunk.keys = [owned(self._grant, key) for key in chunk.keys]
        return before - len(chunk.items)


class Borders:
    """The borders of one broker; most links are without."""

    def __init__(self) -> None:
        self._borders: dict[str, Border] = {}

    def __bool__(self) -> bool:
        return bool(self._borders)

    def link_up(self, neighbor: str, rights: Rights | None) -> None:
        """A new link; `rights` if not everything is allowed."""
        self._borders.pop(neighbor, None)
        if rights is not None:
            self._borders[neighbor] = Border(neighbor, rights)

    def link_down(self, neighbor: str) -> None:
        self._borders.pop(neighbor, None)

    def with_(self, neighbor: str) -> Border | None:
        """The border with this neighbor, if there is one."""
        return self._borders.get(neighbor)

    def keeps_groups(self, neighbor: str) -> bool:
        """Whether groups do not cross the link with this neighbor."""
        border = self._borders.get(neighbor)
        return border is not None and border.keeps_groups


class Narrowing:
    """Filters that cross a border, each narrowed to what is allowed.

    Different filters may be the same when they are narrowed. So it remembers what became of each,
    and how often.
    """

    def __init__(self, border: Border, allowed: Filter | None, what: str | None = None) -> None:
        """With `what`, it is told that more was wanted."""
        self._border = border
        self._allowed = allowed
        self._what = what
        self._became: dict[Hashable, FilterId | Filter | None] = {}
        self._count: dict[FilterId | Filter, int] = {}

    def narrowed(self, filter: Filter) -> Filter:
        """As much of the filter as is allowed."""
        if self._allowed is None or self._allowed.covers(filter):
            return filter
        if self._what is not None:
            self._border.tell(self._what)
        try:
            return filter & self._allowed
        except StentorError:  # it would be too large
            return Filter("false")

    def update(self, update: Update) -> Update:
        """The same change of the narrowed filters."""
        if self._allowed is None:
            return update
        added: list[tuple[FilterId | Filter, Filter]] = []
        removed: list[FilterId | Filter] = []
        for key, filter in update.added:
            if key in self._became:
                continue
            filter = self.narrowed(filter)
            entry = None if filter.is_never else key if isinstance(key, FilterId) else filter
            self._became[key] = entry
            if entry is not None:
                self._count[entry] = self._count.get(entry, 0) + 1
                if self._count[entry] == 1:
                    added.append((entry, filter))
        for key in update.removed:
            entry = self._became.pop(key, None)
            if entry is not None:
                self._count[entry] -= 1
                if not self._count[entry]:
                    del self._count[entry]
                    removed.append(entry)
        return type(update)(tuple(added), tuple(removed))


def _matching(allowed: Filter | None, envelopes: Sequence[Envelope]) -> list[int] | None:
    """The indexes of what the filter matches; None if that is all."""
    if allowed is None:
        return None
    found = [i for i, envelope in enumerate(envelopes) if allowed.matches(envelope.facts)]
    return None if len(found) == len(envelopes) else found
