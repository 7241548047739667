"""What is kept of a durable subscription while nobody is attached, and across restarts.

Only what it asks for, which offsets of each stream are done, the time since which it exists, and
the ids that were confirmed last.
The notifications themselves stay in the journals of the brokers where they were published. The ids
catch what offsets cannot: a publisher that lost its broker before it was answered publishes the
same notification again at another broker, and then two streams hold it.

*Done* is all up to a floor, where the subscription is read on, and what was settled out of order
above it. A subscription *begins* in each stream at some offset; what lies before was never for it.
That is not the same as done: where two copies of one subscription are united, the earlier beginning
holds, and what only the later copy took for the time before itself is still to be delivered.

Two copies of an inbox may ask for different things, if it was made twice or one of them is old.
United they ask for both. What is done for one was not looked at for what only the other asks for:
so that which the wider one is done with counts, or if neither is wider, what both are done with.
Whatever either has dealt with besides is known by its id. Positions of a subscriber who knew only
one of them count no longer (`united`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final

import msgspec

from stentor.errors import FilterTooComplex, JournalDamaged, StentorError
from stentor.filters import Filter
from stentor.model.identity import NotificationId
from stentor.model.seen import SeenIds
from stentor.node.interest import Interest
from stentor.node.last_values import label
from stentor.node.offsets import Offsets
from stentor.protocol.messages import Positions, StreamId

#: Confirmed ids that are remembered of one producer, as intervals.
RECENT: Final = 1_024


class Refusal(msgspec.Struct, array_like=True):
    """A notification that its subscriber could not deal with."""

    #: How often it was given in vain.
    attempts: int
    #: When it may come again, in seconds since 1970, and why it came to that.
    due: float
    cause: str = ""
    #: Its id: if its publisher has published it in two streams, it counts in both.
    id: str = ""
    #: For how many seconds it was to rest.
    wait: float = inf

    def left(self, time: float) -> float:
        """Seconds until it may come again; no more than at first, whatever clock this is."""
        return max(0.0, min(self.due - time, self.wait))


class _Stored(msgspec.Struct, array_like=True):
    #: The filter of a subscription, or those of an inbox.
    filter: str | list[str]
    since: float
    #: The floors of streams.
    positions: Positions
    recent: dict[str, Any]
    group: bool = False
    owner: str | None = None
    #: What is done above the floors, where that is anything.
    above: dict[StreamId, list[int]] = {}
    began: Positions = {}
    refused: dict[StreamId, dict[int, Refusal]] = {}
    united: bool = False
    memo: bytes = b""
    born: int = 0


_decoder: Final = msgspec.msgpack.Decoder(_Stored)


class Durable:
    """The kept state of one durable subscription.

    >>> durable = Durable("desk-7", Interest([Filter("price > 100")]), since=0.0)
    >>> durable.confirm({"b1#0": 7})
    True
    >>> Durable.from_data("desk-7", durable.to_data()).positions
    {'b1#0': 7}
    """

    def __init__(
        self,
        name: str,
        interest: Interest,
        *,
        since: float,
        positions: Positions | None = None,
        recent: SeenIds | None = None,
        group: bool = False,
        owner: str | None = None,
    ) -> None:
        self.name = name
        self.interest = interest
        #: Streams without a position are read from this time on.
        self.since = since
        #: What was dealt with, or never was for it, of each stream.
        self.done = {stream: Offsets(floor) for stream, floor in (positions or {}).items()}
        #: Where it began in each stream.
        self.began: Positions = {}
        #: What was refused, and is neither done nor given up.
        self.refused: dict[StreamId, dict[int, Refusal]] = {}
        #: Those that are about to be dead letters; they are not given again. This is not stored.
        self.dying: set[tuple[StreamId, int]] = set()
        self.recent = recent or SeenIds(max_intervals=RECENT, forget_as_new=True)
        #: Whether it is shared by the members of a group.
        self.group = group
        #: Whether it asks for more than its subscriber knows, since it was united with another.
        self.united = False
        #: The grant that it belongs to; None if it was made where there are no grants.
        self.owner = owner
        #: What its consumer knows by what is done; a later one is greater.
        self.memo = b""
        #: The term of its name in which it was made or reset.
        self.born = 0
        #: Whether the disk of this broker has it, as it is or as it was.
        self.stored = False

    @property
    def label(self) -> str:
        """What its subscriber calls it."""
        return label(self.name)

    def belongs_to(self, owner: str | None) -> bool:
        """Whether somebody with this grant may consume it. Without grants everybody may."""
        return self.owner is None or owner is None or self.owner == owner

    # -- what is done

    @property
    def positions(self) -> Positions:
        """Up to where everything of each stream is done: behind that it is read on."""
        return {stream: done.floor for stream, done in self.done.items() if done.floor >= 0}

    @property
    def intervals(self) -> int:
        """How many intervals are done out of order."""
        return sum(done.intervals for done in self.done.values())

    def begin(self, stream: StreamId, position: int) -> None:
        """It begins in this stream behind the position, unless it has before."""
        if stream not in self.done:
            self.done[stream] = Offsets(position)
            self.began[stream] = position

    def is_done(self, stream: StreamId, offset: int) -> bool:
        done = self.done.get(stream)
        return done is not None and offset in done

    def settle(self, stream: StreamId, offset: int, id: NotificationId | None = None) -> None:
        """This one was dealt with, and with it any other of the same id."""
        self.begin(stream, offset - 1)
        self.done[stream].add(offset)
        if id is not None:
            self.recent.add(id)
        if stream in self.refused:
            self.refused[stream].pop(offset, None)

    def settle_all(
        self, stream: StreamId, offsets: Sequence[int], ids: Sequence[NotificationId]
    ) -> None:
        """The same for many of a stream."""
        self.begin(stream, min(offsets) - 1)
        self.done[stream].add_all(offsets)
        self.recent.add_all(ids)
        refused = self.refused.get(stream)
        for offset in offsets if refused else ():
            self.refused[stream].pop(offset, None)

    def remember(self, id: NotificationId) -> None:
        """A notification with this id was dealt with."""
        self.recent.add(id)

    def pass_over(self, stream: StreamId, first: int, last: int) -> None:
        """Nothing from the first to the last of these is for it, or nothing is left of it."""
        self.begin(stream, first - 1)
        self.done[stream].add_range(first, last)

    def confirm(self, positions: Positions) -> bool:
        """All up to these positions was dealt with; whether that is news."""
        news = False
        for stream, position in positions.items():
            news |= stream not in self.done
            self.begin(stream, position)
            done = self.done[stream]
            if position > done.floor:
                done.add_range(0, position)
                self._forget_refusals(stream)
                news = True
        return news

    def take_back(self, positions: Positions) -> None:
        """These streams never reached farther, whoever said so."""
        for stream, position in positions.items():
            self.begin(stream, position)
            self.done[stream].cut(position)
            self.began[stream] = min(position, self.began.get(stream, position))

    def _forget_refusals(self, stream: StreamId) -> None:
        refused, done = self.refused.get(stream), self.done.get(stream)
        if refused and done is not None:
            self.refused[stream] = {o: r for o, r in refused.items() if o not in done}

    def refuse(self, stream: StreamId, offset: int, due: float, cause: str = "") -> int:
        """Its subscriber could not deal with this one; how often that is so now."""
        refused = self.refused.setdefault(stream, {})
        attempts = refused[offset].attempts + 1 if offset in refused else 1
        refused[offset] = Refusal(attempts, due, cause)
        return attempts

    def refused_elsewhere(self, stream: StreamId) -> dict[str, tuple[StreamId, int]]:
        """By its id, where in other streams each was refused that is known by one."""
        return {
            refusal.id: (other, offset)
            for other, refused in self.refused.items()
            if other != stream
            for offset, refusal in refused.items()
            if refusal.id
        }

    def rests_for(self, time: float) -> float:
        """Seconds until all that was refused may come again."""
        return max(
            (r.left(time) for each in self.refused.values() for r in each.values()), default=0
        )

    def merge(self, other: Durable) -> None:
        """Unite it with another copy: what is done in either is done.

        It begins where the earlier one began, in time and in each stream. Where the consumer has
        left a memo, that goes with what was done then, so the later copy is taken as it is.
        """
        if self.memo or other.memo:
            if other.memo > self.memo:
                self.memo, self.done, self.began = other.memo, other.done, other.began
            self.recent.update(other.recent)
            return
        if self.differs(other):
            self._widen(other)
        else:
            for stream in dict.fromkeys((*self.done, *other.done)):
                self._merge(stream, other)
        self.since = min(self.since, other.since)
        self.recent.update(other.recent)
        for stream, theirs in other.refused.items():
            ours = self.refused.setdefault(stream, {})
            for offset, refusal in theirs.items():
                if offset not in ours or refusal.attempts > ours[offset].attempts:
                    ours[offset] = refusal
        for stream in self.refused:
            self._forget_refusals(stream)

    def differs(self, other: Durable) -> bool:
        """Whether both are inboxes that ask for different things."""
        inboxes = not self.interest.fixed and not other.interest.fixed
        return inboxes and self.interest != other.interest

    def _widen(self, other: Durable) -> None:
        """Ask for what either asks for, and be done with what was looked at for all of that."""
        lacking, beyond = self.interest.changes(other.interest)
        counted = [self] if not lacking else [other] if not beyond else [self, other]
        try:
            self.interest = Interest([*self.interest, *other.interest])
        except FilterTooComplex:  # nobody may ask for so much
            counted = [self]
        done, began = {}, {}
        for stream in counted[0].done:
            if all(stream in each.done for each in counted):
                both = len(counted) > 1
                floor = min(each.done[stream].floor for each in counted)
                done[stream] = Offsets(floor) if both else counted[0].done[stream].copy()
                if all(stream in each.began for each in counted):
                    began[stream] = min(each.began[stream] for each in counted)
        self.done, self.began = done, began
        self.united = True

    def _merge(self, stream: StreamId, other: Durable) -> None:
        united, begins = Offsets(), []
        for each, twin in ((self, other), (other, self)):
            begin = each.began.get(stream, -1)
            if stream in each.done:
                united.update(each.done[stream].without(begin))
            elif each.since >= twin.since:
                continue  # it has nothing of what was before the other
            begins.append(begin)
        if min(begins) >= 0:
            united.add_range(0, min(begins))
        self.done[stream] = united
        self.began.pop(stream, None)
        if min(begins) >= 0:
            self.began[stream] = min(begins)

    def to_data(
        self,
        done: Iterable[tuple[StreamId, int]] = (),
        ids: Iterable[NotificationId] = (),
        positions: Positions | None = None,
        memo: bytes | None = None,
    ) -> bytes:
        """To be stored; with these it will be as if they were done, and these ids dealt with.

        With positions, as if all up to there were done.
        """
        new = [id for id in ids if self.recent.add(id)]
        above, floors = self.done, self.positions
        if positions:
            above = {stream: offsets.copy() for stream, offsets in above.items()}
            for stream, position in positions.items():
                above.setdefault(stream, Offsets()).add_range(0, position)
            floors = {stream: each.floor for stream, each in above.items() if each.floor >= 0}
        if done:
            above = {stream: offsets.copy() for stream, offsets in above.items()}
            for stream, offset in done:
                above[stream].add(offset)
            floors = {stream: each.floor for stream, each in above.items() if each.floor >= 0}
        data = msgspec.msgpack.encode(
            _Stored(
                str(self.interest) if self.interest.fixed else self.interest.texts,
                self.since,
                floors,
                self.recent.packed(),
                self.group,
                self.owner,
                {s: each.to_data() for s, each in above.items() if each.intervals},
                self.began,
                {s: refused for s, refused in self.refused.items() if refused},
                self.united,
                self.memo if memo is None else memo,
                self.born,
            )
        )
        for id in new:
            self.recent.discard(id)
        return data

    @classmethod
    def from_data(cls, name: str, data: bytes) -> Durable:
        """What `to_data` wrote."""
        try:
            stored = _decoder.decode(data)
            recent = SeenIds.from_data(stored.recent, max_intervals=RECENT, forget_as_new=True)
            fixed = isinstance(stored.filter, str)
            texts = [stored.filter] if isinstance(stored.filter, str) else stored.filter
            durable = cls(
                name,
                Interest(map(Filter, texts), fixed=fixed),
                since=stored.since,
                positions=stored.positions,
                recent=recent,
                group=stored.group,
                owner=stored.owner,
            )
            for stream, lengths in stored.above.items():
                floor = stored.positions.get(stream, -1)
                durable.done[stream] = Offsets.from_data(floor, lengths)
            durable.began, durable.united = stored.began, stored.united
            durable.memo, durable.born = stored.memo, stored.born
            durable.refused = {s: r for s, r in stored.refused.items() if s in durable.done}
            for stream in durable.refused:
                durable._forget_refusals(stream)
            return durable
        except (msgspec.MsgspecError, StentorError) as error:
            raise JournalDamaged(
                f"the state of the durable subscription {name!r} cannot be read ({error}); "
                "run `stentor journal repair` on the data directory"
            ) from error
