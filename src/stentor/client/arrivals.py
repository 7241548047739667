"""What has arrived for a subscription and was not yet handed out: its delivery gate (01/A-7), pure.

Two tests keep repeats away. Journaled notifications come with their stream and offset; the gate
knows how far each stream has *arrived* and drops what lies at or below that. Whoever takes up a
subscription again after a lost connection presents these positions, so repeats are rare. But a
publisher that lost its broker before it was answered publishes the same notification once more at
another broker, and then two streams hold it. So the ids of what passed are remembered too, as many
as fit; an id that was forgotten counts as new, since a loss would be worse.

In a group each notification is for one member, and what a member left behind comes to another,
whatever offset that one has reached. There only ids count.

What arrives and what was *dealt with* are different positions. A notification has been dealt with
when the application asks for the next one. `dealt` says how far that is: it is what a durable
subscription confirms, and from where its successor continues if this process dies. `Progress` says
that up to some offset nothing else will come; it holds once everything that came before it has been
dealt with, so it waits in line with the notifications.

Chunks are kept as they came. Handing out the next notification is a step in a list; positions are
worked out when somebody asks for them.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from stentor.errors import DecodeError, ProtocolError
from stentor.model import Notification, NotificationId, SeenIds, decode, decode_many
from stentor.protocol.messages import VOLATILE, Positions, StreamId

#: Ids of one producer that are remembered (as intervals), of all, and producers.
MAX_INTERVALS: Final = 8_192
MAX_TOTAL: Final = 32_768
MAX_PRODUCERS: Final = 4_096

_log: Final = logging.getLogger("stentor.client")


class _Chunk:
    __slots__ = ("after", "notifications", "offsets", "stream")

    def __init__(
        self,
        notifications: list[Notification],
        stream: str,
        offsets: list[int],
        after: Positions,
    ) -> None:
        self.notifications = notifications
        self.stream = stream
        #: Parallel to the notifications; empty if no journal holds them.
        self.offsets = offsets
        #: Positions that are reached when all of it has been dealt with.
        self.after = after


class Arrivals:
    """Notifications in order, each once.

    >>> from stentor.model import encode
    >>> arrivals = Arrivals()
    >>> note = encode(Notification({"x": 1}, id=NotificationId("p", 0, 0)))
    >>> arrivals.deliver("b1#0", [7], [note]), arrivals.deliver("b1#0", [7], [note])
    (1, 0)
    >>> arrivals.next()["x"], arrivals.dealt(), arrivals.next(), arrivals.dealt()
    (1, {}, None, {'b1#0': 7})
    """

    def __init__(self, *, shared: bool = False) -> None:
        """`shared` says that this is one of the members of a group."""
        self._shared = shared
        self._seen = SeenIds(
            max_intervals=MAX_INTERVALS,
            max_total=MAX_TOTAL,
            max_recent=MAX_PRODUCERS,
            forget_as_new=True,
        )
        #: Up to here everything has come.
        self.arrived: Positions = {}
        self._dealt: Positions = {}
        self._queue: deque[_Chunk] = deque()
        #: Notifications in the queue.
        self._waiting = 0
        #: The chunk that is being handed out, how far it was, and how far it was dealt with.
        self._chunk = _Chunk([], VOLATILE, [], {})
        self._index = 0
        self._done = 0
        #: The application has asked for more than there is, so it is done with what there was.
        self._idle = True
        #: Notifications that came a second time, and ones that could not be read.
        self.repeats = 0
        self.unreadable = 0

    def __len__(self) -> int:
        """Notifications that wait."""
        return self._waiting + len(self._chunk.notifications) - self._index

    # -- in

    def deliver(
        self, stream: str, offsets: list[int], items: Sequence[bytes], retained: bool = False
    ) -> int:
        """Take in what a broker delivers: how many notifications are new."""
        if offsets and len(offsets) != len(items):
            raise ProtocolError(
                f"{len(items)} notifications were delivered at {len(offsets)} offsets"
            )
        if not items:
            return 0
        after: Positions = {}
        if not offsets or stream == VOLATILE or retained:
            offsets = []
            if self._shared:  # a group wants to know that its members are done with these too
                after[VOLATILE] = 0
        elif self._shared:
            after[stream] = offsets[-1]
        else:
            position = self.arrived.get(stream, 0)
            if offsets[0] <= position:
                start = bisect_right(offsets, position)
                self.repeats += start
                offsets, items = offsets[start:], items[start:]
                if not items:
                    return 0
            self.arrived[stream] = after[stream] = offsets[-1]
        notifications, offsets = self._new(items, offsets)
        if notifications:
            self._queue.append(_Chunk(notifications, stream, offsets, after))
            self._waiting += len(notifications)
            self._idle = False
        else:
            self._reach(after)
        return len(notifications)

    def recall(self, notifications: list[Notification]) -> None:
        """Take in what an archive has; those without an id are all new."""
        ids = [n.id for n in notifications]
        known = [i for i, id in enumerate(ids) if id is not None]
        repeats = self._seen.add_all([id for id in ids if id is not None])
        if repeats:
            self.repeats += len(repeats)
            gone = {known[i] for i in repeats}
            notifications = [n for i, n in enumerate(notifications) if i not in gone]
        if notifications:
            self._queue.append(_Chunk(notifications, VOLATILE, [], {}))
            self._waiting += len(notifications)
            self._idle = False

    def _new(
        self, items: Sequence[bytes], offsets: list[int]
    ) -> tuple[list[Notification], list[int]]:
        """What was never seen, decoded, and the offsets of that."""
        try:
            notifications = decode_many(items)
        except DecodeError:
            notifications, offsets = self._readable(items, offsets)
        ids = [n.id for n in notifications]
        if None in ids:  # brokers take nothing without an id
            raise ProtocolError("a notification without an id was delivered")
        repeats = self._seen.add_all(cast("list[NotificationId]", ids))
        if repeats:
            self.repeats += len(repeats)
            gone = set(repeats)
            keep = [i for i in range(len(notifications)) if i not in gone]
            notifications = [notifications[i] for i in keep]
            offsets = [offsets[i] for i in keep] if offsets else offsets
        return notifications, offsets

    def _readable(
        self, items: Sequence[bytes], offsets: list[int]
    ) -> tuple[list[Notification], list[int]]:
        """One bad notification, such as of a value type unknown here, must not cost the others."""
        notifications, kept = [], []
        for i, data in enumerate(items):
            try:
                notifications.append(decode(data))
            except DecodeError as error:
                self.unreadable += 1
                _log.warning("a notification was dropped that cannot be read: %s", error)
                continue
            if offsets:
                kept.append(offsets[i])
        return notifications, kept

    def progress(self, positions: Positions) -> None:
        """Up to these positions nothing else will come."""
        after = {}
        for stream, position in positions.items():
            if stream != VOLATILE and position > self.arrived.get(stream, -1):
                self.arrived[stream] = after[stream] = position
        self._reach(after)

    def _reach(self, after: Positions) -> None:
        """These positions are reached when all that has come is dealt with."""
        if self._queue:
            self._raise(self._queue[-1].after, after)
        elif self._idle:
            self._raise(self._dealt, after)
        else:
            self._raise(self._chunk.after, after)

    # -- out

    def next(self) -> Notification | None:
        """The next notification, by which the one before it counts as dealt with; or None."""
        index = self._index
        notifications = self._chunk.notifications
        if index >= len(notifications):
            if not self._advance():
                return None
            index = 0
            notifications = self._chunk.notifications
        self._done = index
        self._index = index + 1
        return notifications[index]

    def some(self, limit: int) -> list[Notification]:
        """Notifications that came together, at most `limit`; none if there are none."""
        index = self._index
        if index >= len(self._chunk.notifications):
            if not self._advance():
                return []
            index = 0
        found = self._chunk.notifications[index : index + limit]
        self._done = index
        self._index = index + len(found)
        return found

    def _advance(self) -> bool:
        """Go to the next chunk, with everything before it dealt with; False if there is none."""
        self._raise(self._dealt, self._chunk.after)
        if not self._queue:
            self._chunk = _Chunk([], VOLATILE, [], {})  # lets go of the notifications
            self._index = self._done = 0
            self._idle = True
            return False
        self._chunk = self._queue.popleft()
        self._waiting -= len(self._chunk.notifications)
        self._index = self._done = 0
        return True

    def forget_waiting(self) -> Positions:
        """Take back what was not handed out, as if it had never come; for members of a group.

        The positions are those behind which all of it lies.
        """
        chunk, index = self._chunk, self._index
        rest = _Chunk(chunk.notifications[index:], chunk.stream, chunk.offsets[index:], {})
        before: Positions = {}
        for each in (rest, *self._queue):
            for notification in each.notifications:
                assert notification.id is not None
                self._seen.discard(notification.id)
            if each.offsets:
                lowest = min(each.offsets) - 1
                before[each.stream] = min(lowest, before.get(each.stream, lowest))
        self.clear()
        return before

    def forget_place(self) -> None:
        """Go on wherever the broker does; only ids tell what has come before.

        A durable subscription may have been made a second time where the first was not known, and
        then be one again. What came of the second says nothing about how far the first one was.
        """
        self.forget_waiting()
        self.arrived.clear()
        self._dealt.clear()
        self._chunk.offsets, self._chunk.after = [], {}

    def unmark(self, notification: Notification) -> None:
        """It was not handed out after all, so it may come again (01/A-7)."""
        if notification.id is not None:
            self._seen.discard(notification.id)

    def clear(self) -> None:
        """Hand out no more of what waits. It was not dealt with."""
        self._queue.clear()
        self._waiting = 0
        chunk = self._chunk
        if self._index < len(chunk.notifications):
            del chunk.notifications[self._index :], chunk.offsets[self._index :]
            chunk.after = {chunk.stream: chunk.offsets[-1]} if chunk.offsets else {}

    # -- positions

    def in_hand(self) -> tuple[StreamId, int] | None:
        """The first that the application was given and has not dealt with, if a journal has it."""
        chunk, done = self._chunk, self._done
        if done >= min(self._index, len(chunk.offsets)):
            return None
        return chunk.stream, chunk.offsets[done]

    @property
    def held(self) -> int:
        """How many the application was given and has not dealt with."""
        return self._index - self._done

    def deal(self) -> None:
        """What was handed out has been dealt with, says the application."""
        self._done = self._index

    def dealt(self, *, handed_out: bool = False) -> Positions:
        """How far the application has dealt with each stream.

        With `handed_out`, what it was given last counts as well.
        """
        positions = self._dealt.copy()
        chunk = self._chunk
        done = self._index if handed_out else self._done
        if done and done == len(chunk.notifications):
            self._raise(positions, chunk.after)
        elif done and chunk.offsets:
            self._raise(positions, {chunk.stream: chunk.offsets[done - 1]})
        return positions

    def _raise(self, positions: Positions, to: Positions) -> None:
        """Move positions on. A member of a group may be given an offset after higher ones; what
        it confirms is therefore the one that it has dealt with last, in the order of giving.
        """
        for stream, position in to.items():
            if self._shared or position > positions.get(stream, -1):
                positions[stream] = position
