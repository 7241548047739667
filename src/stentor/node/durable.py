"""What is kept of a durable subscription while nobody is attached, and across restarts.

Only what it asks for, the confirmed positions, the time since which it exists, and the ids that
were confirmed last.
The notifications themselves stay in the journals of the brokers where they were published. The ids
catch what positions cannot: a publisher that lost its broker before it was answered publishes the
same notification again at another broker, and then two streams hold it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stentor.errors import JournalDamaged, StentorError
from stentor.filters import Filter
from stentor.model.identity import NotificationId
from stentor.model.seen import SeenIds
from stentor.node.interest import Interest
from stentor.protocol.messages import Positions

#: Confirmed ids that are remembered of one producer, as intervals.
RECENT: Final = 1_024


class _Stored(msgspec.Struct, array_like=True):
    #: The filter of a subscription, or those of an inbox.
    filter: str | list[str]
    since: float
    positions: Positions
    recent: dict[str, Any]
    group: bool = False
    owner: str | None = None


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
        self.positions: Positions = dict(positions or {})
        self.recent = recent or SeenIds(max_intervals=RECENT, forget_as_new=True)
        #: Whether it is shared by the members of a group.
        self.group = group
        #: The grant that it belongs to; None if it was made where there are no grants.
        self.owner = owner

    def belongs_to(self, owner: str | None) -> bool:
        """Whether somebody with this grant may consume it. Without grants everybody may."""
        return self.owner is None or owner is None or self.owner == owner

    def confirm(self, positions: Positions) -> bool:
        """Take up what the subscriber has dealt with; whether that is news."""
        news = False
        for stream, position in positions.items():
            if position > self.positions.get(stream, -1):
                self.positions[stream] = position
                news = True
        return news

    def remember(self, id: NotificationId) -> None:
        """A notification with this id was dealt with."""
        self.recent.add(id)

    def to_data(self) -> bytes:
        return msgspec.msgpack.encode(
            _Stored(
                str(self.interest) if self.interest.fixed else self.interest.texts,
                self.since,
                self.positions,
                self.recent.to_data(),
                self.group,
                self.owner,
            )
        )

    @classmethod
    def from_data(cls, name: str, data: bytes) -> Durable:
        """What `to_data` wrote."""
        try:
            stored = _decoder.decode(data)
            recent = SeenIds.from_data(stored.recent, max_intervals=RECENT, forget_as_new=True)
            fixed = isinstance(stored.filter, str)
            texts = [stored.filter] if isinstance(stored.filter, str) else stored.filter
            return cls(
                name,
                Interest(map(Filter, texts), fixed=fixed),
                since=stored.since,
                positions=stored.positions,
                recent=recent,
                group=stored.group,
                owner=stored.owner,
            )
        except (msgspec.MsgspecError, StentorError) as error:
            raise JournalDamaged(
                f"the state of the durable subscription {name!r} cannot be read ({error}); "
                "run `stentor journal repair` on the data directory"
            ) from error
