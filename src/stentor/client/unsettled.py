"""What has arrived for a subscription that settles notifications one by one; pure.

It takes the place of `Arrivals`, whose tests by position cannot tell what comes again from what
comes twice. Here each notification is known by its stream and offset. It *waits* until the
application asks for it, is then *in hand*, and leaves by being settled. What was settled is
remembered for a while: it comes again if the broker has not heard of it, and is then settled once
more, unseen.

Without a connection everything that waits is forgotten; the broker brings it again. What is in
hand stays, and is not handed out a second time unless it was taken away in between. It may come
back by way of another stream, if its publisher had to publish it a second time elsewhere. Then its
id tells, and it is settled where it came last.

*Order.* Behind a notification that was refused, those of the same publisher have to wait. The
broker takes them back when it hears of that. Until it has said which, they are set aside here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, TypeAlias

from stentor.errors import DecodeError, ProtocolError
from stentor.model import Notification, NotificationId, decode, decode_many
from stentor.model.handling import Ranked
from stentor.protocol.messages import Positions, Refused, Settle, StreamId, Withdrawn

#: Messages about what was settled that are remembered.
MESSAGES: Final = 64
#: What may come again that is remembered, at least of as many messages.
MAX_REPEATS: Final = 200_000
#: Characters of a cause.
CAUSE: Final = 1_000

Key: TypeAlias = tuple[StreamId, int]

_PLACE: Final = attrgetter("_place")  # the property would cost a call for each

_log: Final = logging.getLogger("stentor.client")


@dataclass(frozen=True, slots=True)
class Delivery:
    """How notifications were given to this subscriber, and how it is told what became of them."""

    ack: Callable[[Notification], None]
    nack: Callable[[Notification, float | None, str], None]
    extend: Callable[[Notification, float], None]
    #: The subscription that they were given to.
    subscription: Any = None
    #: How often they have been given, with this time.
    attempt: int = 1


class Unsettled:
    """Notifications in order, and what has become of them."""

    def __init__(
        self, delivery: Delivery, *, ordered: bool, timed: bool, shared: bool, ranked: bool = False
    ) -> None:
        """`delivery` is called by applications, in any thread, and calls this in the right one.

        `timed` says that the broker wants to know what is in hand, because there is a deadline, and
        `shared` that this is a member of a group. If it is `ranked`, higher priorities go first.
        """
        self._delivery = delivery
        self._ordered = ordered
        self._timed = timed
        self._shared = shared
        #: Always empty: the broker knows what was settled.
        self.arrived: Positions = {}
        self._queue: Callable[..., deque[Notification] | Ranked[Notification]] = (
            Ranked[Notification] if ranked else deque[Notification]
        )
        self._waiting: deque[Notification] | Ranked[Notification] = self._queue()
        #: Those among them that no journal holds, so that nobody settles them.
        self._unplaced = 0
        self._aside: dict[Key, Notification] = {}
        self._withheld: dict[tuple[StreamId, str], dict[int, int]] = {}
        self._hands: dict[Key, Notification] = {}
        #: What was settled last, as it was told; all keys of that if it may come again.
        self._told: deque[dict[StreamId, list[int]]] = deque(maxlen=MESSAGES)
        self._may_repeat: set[Key] | None = None
        #: The same by ids; and the places of what was in hand when the connection was lost.
        self._told_ids: deque[list[NotificationId]] = deque(maxlen=MESSAGES)
        self._repeated_ids: set[NotificationId] = set()
        self._hand_ids: dict[NotificationId, Key] = {}
        #: Where those among them are settled that came back by way of another stream.
        self._moved: dict[Key, Key] = {}
        # What the broker is yet to be told.
        self._done: list[Key] = []
        self._done_ids: list[NotificationId] = []
        self._begun: dict[Key, None] = {}
        self._refused: list[Refused] = []
        self._extended: list[tuple[StreamId, int, float]] = []
        #: Those that were dropped since somebody asked: the broker may send others for them.
        self.freed = 0
        self.repeats = 0
        self.unreadable = 0

    def __len__(self) -> int:
        """Notifications that wait."""
        return len(self._waiting)

    def forget_place(self) -> None:
        """Nothing: its broker knows its place anyway."""

    @property
    def in_hand(self) -> list[Notification]:
        """What the application has and has not settled."""
        return list(self._hands.values())

    def has(self, notification: Notification) -> bool:
        """Whether the application has it, and has not settled it."""
        return self._hands.get(self._key(notification)) is notification

    # -- in

    def deliver(
        self,
        stream: str,
        offsets: list[int],
        items: Sequence[bytes],
        retained: bool = False,
        attempt: int = 1,
    ) -> int:
        """Take in what a broker delivers: how many notifications there are."""
        if offsets and len(offsets) != len(items):
            raise ProtocolError(
                f"{len(items)} notifications were delivered at {len(offsets)} offsets"
            )
        try:
            notifications = decode_many(items)
        except DecodeError:
            notifications, offsets = self._readable(stream, items, offsets)
        if offsets and not retained:
            delivery = self._delivery
            if attempt != 1:
                delivery = replace(delivery, attempt=attempt)
            places = zip(repeat(stream, len(offsets)), offsets, strict=True)
            Notification.for_deliveries(notifications, delivery, places)
            if self._may_repeat is not None:
                notifications = list(filter(self._is_new, notifications))
        else:
            self._unplaced += len(notifications)
        self._waiting.extend(notifications)
        if self._withheld:
            self._set_aside()
        return len(items)

    def _readable(
        self, stream: StreamId, items: Sequence[bytes], offsets: list[int]
    ) -> tuple[list[Notification], list[int]]:
        """One bad notification, such as of a value type unknown here, must not cost the others."""
        notifications, kept = [], []
        for i, data in enumerate(items):
            try:
                notifications.append(decode(data))
            except DecodeError as error:
                self.unreadable += 1
                self.freed += 1
                _log.warning("a notification was dropped that cannot be read: %s", error)
                if offsets:
                    self._done.append((stream, offsets[i]))
                continue
            if offsets:
                kept.append(offsets[i])
        return notifications, kept

    def _is_new(self, notification: Notification) -> bool:
        """Whether the application has not had it, or it was taken away since."""
        key, id = notification.place, _id_of(notification)
        if self._may_repeat is not None and (key in self._may_repeat or id in self._repeated_ids):
            self._done.append(key)
            self._done_ids.append(id)
        elif self._has_already(notification):
            self._begun[key] = None
        elif self._was_refused(notification):
            pass  # the broker had not heard of that, and gives it again when it has
        else:
            return True
        self.repeats += 1
        self.freed += 1
        return False

    def _has_already(self, notification: Notification) -> bool:
        """Whether it is in hand; if it came in another stream before, it is settled in this one."""
        key, attempt = notification.place, notification.attempt
        if key in self._hands:
            return self._hands[key].attempt >= attempt
        before = self._hand_ids.get(_id_of(notification))
        held = None if before is None else self._hands.get(before)
        if before is None or held is None or held.attempt < attempt:
            return False
        del self._hands[before]
        self._begun.pop(before, None)
        self._moved[before] = key
        self._hands[key] = held
        return True

    def _was_refused(self, notification: Notification) -> bool:
        """Whether the application has refused it this time, and the broker has not answered."""
        stream, offset = notification.place
        refused = self._withheld.get((stream, _id_of(notification).producer), {})
        return refused.get(offset) == notification.attempt

    def _key(self, notification: Notification) -> Key:
        """Where it is settled."""
        place = notification.place
        return self._moved.get(place, place) if self._moved else place

    def withdrawn(self, message: Withdrawn) -> None:
        """The broker has taken some back."""
        gone = {(message.stream, offset) for offset in message.offsets}
        self._expect_again(gone - {(message.stream, message.refused)})
        for key in gone:
            self._hands.pop(key, None)
            self._begun.pop(key, None)
            self.freed += self._aside.pop(key, None) is not None
        for line, refused in list(self._withheld.items()):
            if line[0] == message.stream:
                refused.pop(message.refused, None)
                if not refused:
                    del self._withheld[line]
        self._drop(gone)
        self._set_aside()

    def _expect_again(self, gone: set[Key]) -> None:
        """Some were taken back: what was settled here before is settled again if it comes again."""
        gone = {key for key in gone if key not in self._hands and key not in self._aside}
        gone.difference_update(n.place for n in self._waiting if n.delivery is not None)
        settled = gone & self._recent().union(self._done) if gone else gone
        if settled:
            self._may_repeat = settled.union(self._may_repeat or ())

    def _drop(self, gone: set[Key]) -> None:
        """Some that wait are not to be handed out."""
        before = len(self._waiting)
        self._waiting = self._queue(
            n for n in self._waiting if n.delivery is None or n.place not in gone
        )
        self.freed += before - len(self._waiting)

    def _set_aside(self) -> None:
        """What is behind one that was refused waits for the answer; the rest need not any more."""
        both = [*self._aside.values(), *self._waiting]
        self._aside, self._waiting = {}, self._queue()
        for notification in both:
            if notification.delivery is not None and self._is_withheld(notification):
                self._aside[notification.place] = notification
            else:
                self._waiting.append(notification)

    def _is_withheld(self, notification: Notification) -> bool:
        stream, offset = notification.place
        refused = self._withheld.get((stream, _id_of(notification).producer), ())
        return any(offset > each for each in refused)

    # -- out

    def next(self) -> Notification | None:
        """The next notification; or None."""
        found = self.some(1)
        return found[0] if found else None

    def some(self, limit: int) -> list[Notification]:
        """At most so many that wait."""
        waiting, hands = self._waiting, self._hands
        careful = self._may_repeat is not None
        if not (careful or self._timed or self._unplaced):  # by far the most frequent
            taken = [waiting.popleft() for _ in range(min(limit, len(waiting)))]
            hands.update(zip(map(_PLACE, taken), taken, strict=True))
            return taken
        found: list[Notification] = []
        while waiting and len(found) < limit:
            notification = waiting.popleft()
            if notification.delivery is not None:
                if careful and not self._is_new(notification):
                    continue
                place = notification.place
                hands[place] = notification
                if self._timed:
                    self._begun[place] = None
            else:
                self._unplaced -= 1
            found.append(notification)
        return found

    def forget_waiting(self) -> None:
        """The connection is lost: what waits comes again, and what the broker has not heard of."""
        self.clear()
        self.freed = 0
        self._aside.clear()
        self._withheld.clear()
        self._extended.clear()
        self._refused.clear()
        self._may_repeat = self._recent()
        self._may_repeat.update(self._done)
        self._repeated_ids = self._recent_ids()
        self._repeated_ids.update(self._done_ids)
        if self._shared:  # others get what was in hand
            self._hands.clear()
        self._begun = dict.fromkeys(self._hands)
        self._hand_ids = {_id_of(held): key for key, held in self._hands.items()}
        self._moved = {old: new for old, new in self._moved.items() if new in self._hands}

    def _recent(self) -> set[Key]:
        """What was settled last."""
        return {(s, o) for told in self._told for s, each in told.items() for o in each}

    def _recent_ids(self) -> set[NotificationId]:
        return {id for ids in self._told_ids for id in ids}

    def clear(self) -> None:
        """Hand out no more of what waits."""
        self._waiting.clear()
        self._unplaced = 0

    # -- settled

    def ack(self, notification: Notification) -> int:
        """It was dealt with. Of what is said about a notification only the first word counts.

        How many are to be told.
        """
        key = self._key(notification)
        if self._hands.pop(key, None) is None:
            if not self._is_late(notification):
                return len(self._done)
        elif self._begun:
            self._begun.pop(key, None)
        self._done.append(key)
        self._done_ids.append(notification.id)  # type: ignore[arg-type]
        if self._may_repeat is not None:  # it may come again before the broker is told
            self._may_repeat.add(key)
            self._repeated_ids.add(_id_of(notification))
        return len(self._done)

    def _is_late(self, notification: Notification) -> bool:
        """Whether it was taken away, and is not settled: the broker may be glad to hear of it."""
        key = self._key(notification)
        refused = any((r.stream, r.offset) == key for r in self._refused)
        return key not in self._done and not refused

    def nack(self, notification: Notification, delay: float | None, cause: str) -> None:
        """It could not be dealt with."""
        key = self._key(notification)
        if self._hands.get(key) is not notification:
            return
        del self._hands[key]
        self._begun.pop(key, None)
        self._refused.append(Refused(key[0], key[1], delay, cause[:CAUSE], notification.attempt))
        self._drop({key})  # it took too long, and came again meanwhile
        if self._ordered:
            line = key[0], _id_of(notification).producer
            self._withheld.setdefault(line, {})[key[1]] = notification.attempt
            self._set_aside()

    def places(self, notifications: Iterable[Notification]) -> dict[StreamId, list[int]]:
        """Where these are settled, by stream."""
        return _by_stream(map(self._key, notifications))

    def committed(self, notifications: Sequence[Notification]) -> None:
        """These were settled by a transaction: the broker knows."""
        done = [self._key(notification) for notification in notifications]
        ids = [_id_of(notification) for notification in notifications]
        for key in done:
            self._hands.pop(key, None)
            self._begun.pop(key, None)
        self._told.append(_by_stream(done))
        self._told_ids.append(ids)
        if self._may_repeat is not None:
            self._may_repeat.update(done)
            self._repeated_ids.update(ids)

    def extend(self, notification: Notification, seconds: float) -> None:
        """It takes longer."""
        key = self._key(notification)
        if self._hands.get(key) is notification:
            self._extended.append((*key, seconds))

    @property
    def pending(self) -> int:
        """How much the broker is to be told."""
        told = len(self._done) + len(self._begun)
        return told + len(self._refused) + len(self._extended)

    @property
    def told(self) -> Sequence[NotificationId]:
        """Those that the last message says were dealt with."""
        return self._told_ids[-1] if self._told_ids else ()

    def message(self, number: int) -> Settle | None:
        """What the broker is to be told, once."""
        if not self.pending:
            return None
        done = _by_stream(self._done)
        self._told.append(done)
        self._told_ids.append(self._done_ids)
        if self._may_repeat is not None:
            self._may_repeat.update((s, o) for s, each in done.items() for o in each)
            if len(self._may_repeat) > MAX_REPEATS:
                self._may_repeat = self._recent()
                self._repeated_ids = self._recent_ids()
        # The others behind one that was refused are taken back.
        begun = {
            key: self._hands[key].attempt for key in (self._hands if self._refused else self._begun)
        }
        message = Settle(
            number,
            done,
            _by_stream(key for key, attempt in begun.items() if attempt == 1),
            self._refused,
            self._extended,
            again=[(*key, attempt) for key, attempt in begun.items() if attempt > 1],
        )
        self._done, self._done_ids, self._begun = [], [], {}
        self._refused, self._extended = [], []
        return message


def _id_of(notification: Notification) -> NotificationId:
    assert notification.id is not None  # brokers take nothing without one
    return notification.id


def _by_stream(keys: Iterable[Key]) -> dict[StreamId, list[int]]:
    found: dict[StreamId, list[int]] = {}
    last, offsets = None, []
    for stream, offset in keys:
        if stream != last:
            last, offsets = stream, found.setdefault(stream, [])
        offsets.append(offset)
    return found
