"""The overlay: links that come and go, which brokers there are, and how far their streams are.

Whenever a stream begins afresh (see `stentor.node.streams` and `stentor.node.graph_directory`), all
feeds catch up on it. And its broker is told how far it was known to be: from each neighbor that it
links with, and from whoever knows more than those on the way to it. So a broker that was started on
an older copy of its journal hears of it from the first neighbor that remembers (`known`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, product
from typing import Final
from zlib import crc32

from stentor.errors import LinkRefused, ProtocolError
from stentor.node.agenda import Agenda, CloseLink
from stentor.node.assurance import Assurance
from stentor.node.border import Borders, Rights
from stentor.node.clock import Clock
from stentor.node.feed import Feed
from stentor.node.journals import Journals
from stentor.node.log import Log
from stentor.node.marks import Marks
from stentor.node.parts.carriage import Carriage
from stentor.node.parts.catching_up import CatchingUp
from stentor.node.parts.groups import Groups
from stentor.node.parts.homes import Homes
from stentor.node.parts.probing import Probing
from stentor.node.parts.rosters import Rosters
from stentor.node.parts.routing import Routing
from stentor.node.stock import Stock
from stentor.node.subscriptions import Subscriptions
from stentor.node.turns import Turns
from stentor.node.ways import Ways
from stentor.protocol import messages as m
from stentor.routing.protocol import Place

#: Seconds between two words to neighbors on how far the own stream has come.
MARK_EVERY: Final = 1.0
#: Seconds, once to twice, for which a link may be in reserve before it counts as closing a cycle.
RESERVE_PATIENCE: Final = 5.0
#: Feeds that hear in one step of what concerns all of them; and how far streams came that are gone.
FEEDS_AT_ONCE: Final = 200
MARKS_AT_ONCE: Final = 10_000


class Overlay:
    """The place of this broker among others."""

    def __init__(
        self,
        directory: Ways,
        *,
        journals: Journals,
        marks: Marks,
        routing: Routing | Carriage,
        probing: Probing,
        catching_up: CatchingUp,
        groups: Groups,
        homes: Homes,
        rosters: Rosters,
        subscriptions: Subscriptions,
        borders: Borders,
        assurance: Assurance,
        hungry: Turns[str],
        clock: Clock,
        agenda: Agenda,
        stock: Stock | None = None,
    ) -> None:
        """`stock` is what neighbors have, where brokers find each other by that."""
        self._stock = stock
        self._directory = directory
        self._journals = journals
        self._marks = marks
        self._routing = routing
        self._probing = probing
        self._catching_up = catching_up
        self._groups = groups
        self._homes = homes
        self._rosters = rosters
        self._subscriptions = subscriptions
        self._borders = borders
        self._assurance = assurance
        self._hungry = hungry
        self._clock = clock
        self._agenda = agenda
        self.counters = {"interruptions": 0}
        #: Neighbors that are in reserve, and since when.
        self._reserve: dict[str, float] = {}
        #: How far streams had come that are gone, for feeds that do not know it yet.
        self._last_marks: deque[Iterator[tuple[Feed, m.StreamId, int]]] = deque()
        #: The last word on each stream, which was passed on.
        self._passed_on: m.Positions = {}
        self._marked = journals.head
        #: How far neighbors know the streams to be that this broker answers for.
        self.known: m.Positions = {}
        self._next_mark = clock.now

    def announce_as(self, name: str, addresses: Iterable[str]) -> None:
        """Where others can connect; to be said before the first link is made."""
        self._directory.announce_as(m.Origin(self._journals.stream, name, tuple(addresses)))

    def adopt(self, log: Log) -> None:
        """Answer for the journal of a broker that was removed."""
        self._journals.adopt(log)
        origin, sends = self._directory.adopt(log.stream)
        self._routing.describe(self._directory.entering)
        self._agenda.to_links(sends)
        self._fresh_at_once(origin)

    # -- links

    def link_up(
        self, neighbor: str, rights: Rights | None = None, place: Place | None = None
    ) -> None:
        """A new link, over which nothing has been said yet; `rights` if not all is allowed.

        `place` is what the neighbor is to this broker, if the router does not know.
        """
        self._routing.link_up(neighbor, rights, place, lambda: self._linked(neighbor))

    def _linked(self, neighbor: str) -> None:
        """The neighbor knows what is asked for here."""
        word = self._directory.link_up(neighbor)
        if word is not None:
            self._agenda.to_link(neighbor, word)
        if self._directory.spreads_marks:
            heads = self._marks.hearsay | self._marks.heads | self._journals.heads()
            told = [s for s in heads if neighbor in self._directory.hearers(s)]
            self._agenda.to_links((neighbor, m.Mark(stream, heads[stream])) for stream in told)
        self._groups.link_up(neighbor)
        self._homes.link_up(neighbor)
        self._rosters.link_up(neighbor)
        self._changed()

    def link_down(self, neighbor: str) -> None:
        """The link is gone, with everything that was on its way."""
        reaches, towards = self._directory.reaches, self._directory.towards
        streams = [origin.stream for origin in self._directory.behind(neighbor)]
        self._routing.link_down(neighbor)
        self._follow(*self._directory.link_down(neighbor))
        self._lost([s for s in streams if reaches(s) and towards(s) is None])
        if self._stock is not None:
            self._stock.link_down(neighbor)
        self._probing.link_down(neighbor)

    def links_heard(self, neighbor: str, message: m.Links) -> None:
        """A neighbor in a graph tells of links, its own and others."""
        self._routing.links_heard(neighbor, message)
        self._changed()

    def _changed(self) -> None:
        self._follow(*self._directory.changed())

    def _follow(
        self, fresh: list[m.Origin], gone: list[m.StreamId], sends: list[tuple[str, object]]
    ) -> None:
        """Streams come another way than before, or no longer."""
        self._routing.describe(self._directory.entering)
        for neighbor, word in sends:
            for origin in word.up if isinstance(word, m.Streams) else ():
                # Other brokers than before lie behind the neighbor, for what comes of the stream.
                self._assurance.say(neighbor, self._assurance.tree(origin.stream))
        self._agenda.to_links(sends)
        self._gone(gone)
        for origin in fresh:
            self._fresh_at_once(origin)

    def broken(self, stream: m.StreamId, neighbor: str | None = None) -> m.Streams | None:
        """What to say to a neighbor in place of notifications that were dropped on the way.

        Nothing if the stream is gone, or now comes through that neighbor: it has been told so.
        """
        origin = self._directory.origin(stream)
        if origin is None or (neighbor is not None and self._directory.towards(stream) == neighbor):
            return None
        return m.Streams([origin], [])

    def _refuse(self, neighbor: str) -> None:
        text = f"the link to {neighbor!r} closes a cycle; links must form a tree"
        self._agenda.add(CloseLink(neighbor, LinkRefused.code, text))

    # -- streams

    def streams_heard(self, neighbor: str, message: m.Streams) -> Iterator[None]:
        """Streams begin afresh or are gone; in steps, as all feeds have to look at each."""
        directory = self._directory
        if len(directory.others) + len(message.up) > m.MAX_STREAMS:
            raise ProtocolError(
                f"{neighbor!r} knows too many brokers; at most {m.MAX_STREAMS} form an overlay"
            )
        fresh, sends, cycle = directory.heard(neighbor, message)
        self._routing.describe(directory.entering)
        self._agenda.to_links(sends)
        if cycle:
            self._refuse(neighbor)
        self._gone([s for s in message.down if not directory.reaches(s)])
        # Of these something may come from another neighbor before it is its turn again.
        others = [origin for origin in fresh if directory.towards(origin.stream) != neighbor]
        for origin in others:
            self._fresh_at_once(origin)
        for origin in fresh:
            if origin not in others:
                yield from self.fresh(origin)
                yield

    def _fresh_at_once(self, origin: m.Origin) -> None:
        for _ in self.fresh(origin):
            pass

    def fresh(self, origin: m.Origin) -> Iterator[None]:
        """The stream begins afresh: all feeds may have missed something of it.

        In steps, between which nothing of the stream may come.
        """
        stream, held = origin.stream, self._subscriptions.held
        way = self._directory.towards(stream)
        if way is not None:
            self._assurance.say(way)
        self.counters["interruptions"] += 1
        self._catching_up.interrupted(stream)
        head = self._marks.end(stream)
        self._passed_on.pop(stream, None)
        highest = self._marks.highest.get(stream, 0)
        if way is not None and (highest or way == stream):
            self._agenda.to_link(way, m.Mark(stream, highest))
        for i, (id, subscription) in enumerate(list(held.items()), 1):
            feed = subscription.feed
            if held.get(id) is subscription and not feed.volatile:
                feed.mark(stream, head)
                if self._stock is not None and way is not None:
                    nothing = self._stock.nothing_up_to(way, stream, subscription.interest)
                    feed.skip(stream, nothing)
                feed.interrupted(stream, self._probing.next)
                self._probing.want(feed)
                self._hungry[id] = None
            if not i % FEEDS_AT_ONCE:
                yield

    def _gone(self, streams: Collection[m.StreamId]) -> None:
        for stream in streams:
            self._groups.gone(stream)
            self._homes.gone(stream)
            self._rosters.gone(stream)
        self._lost(streams)

    def _lost(self, streams: Collection[m.StreamId]) -> None:
        """There is no way to these streams."""
        self._catching_up.gone(streams)
        heads: m.Positions = {}
        for stream in streams:
            head = self._marks.end(stream)
            self._passed_on.pop(stream, None)
            if head:
                heads[stream] = head
        if heads:
            marks = product(list(self._subscriptions.held.values()), heads.items())
            self._last_marks.append((s.feed, *mark) for s, mark in marks)
            self.work()

    @property
    def has_work(self) -> bool:
        """Whether feeds are still to be told how far streams had come that are gone."""
        return bool(self._last_marks)

    def work(self) -> None:
        """Tell some of them."""
        if not self._last_marks:
            return
        looked = 0
        for feed, stream, head in islice(self._last_marks[0], MARKS_AT_ONCE):
            looked += 1
            feed.mark(stream, head)
        if looked < MARKS_AT_ONCE:
            self._last_marks.popleft()

    # -- how far they are

    def mark_heard(self, neighbor: str, message: m.Mark) -> None:
        """How far a stream is; from the other side, how far it was known to be."""
        stream, head = message.stream, message.head
        if self._directory.towards(stream) != neighbor:
            if self._borders.with_(neighbor) is None:
                self._reminded(neighbor, message)
        elif head > self._passed_on.get(stream, -1):
            self._passed_on[stream] = head
            self._marks.heard(stream, head)
            self._pass_on(message, but=neighbor)

    def _reminded(self, neighbor: str, message: m.Mark) -> None:
        stream, head = message.stream, message.head
        if stream in self._journals:
            self.known[stream] = max(head, self.known.get(stream, 0))
        elif self._directory.spreads_marks:
            if self._marks.heard_say(stream, head):
                self._pass_on(message, but=neighbor)
        elif self._marks.seen(stream, head):
            way = self._directory.towards(stream)
            if way is not None:
                self._agenda.to_link(way, message)

    def tick(self) -> None:
        """Say how far the own stream is; close links that have been in reserve for too long."""
        if self._clock.now < self._next_mark:
            return
        self._next_mark = self._clock.now + MARK_EVERY
        self._look_for_cycles()
        if self._journals.head > self._marked:
            self._marked = self._journals.head
            self._pass_on(m.Mark(self._journals.stream, self._marked))

    def _look_for_cycles(self) -> None:
        now = self._clock.now
        self._reserve = {n: self._reserve.get(n, now) for n in sorted(self._directory.reserve)}
        # Usually one broker acts before the others, and then they need not.
        patience = RESERVE_PATIENCE * (1 + crc32(self._journals.stream.encode()) % 100 / 100)
        for neighbor, since in self._reserve.items():
            if now - since >= patience:
                self._refuse(neighbor)

    def _pass_on(self, message: m.Mark, but: str | None = None) -> None:
        hearers = self._directory.hearers(message.stream)
        self._agenda.to_links((n, message) for n in hearers if n != but)
