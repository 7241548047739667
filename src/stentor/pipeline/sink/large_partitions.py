"""Partitions that do not fit into one transaction, published exactly once all the same.

A part of such a partition may be there already, from an attempt that was broken off, and its rows
may have come in another order. So an attempt begins with finding out what is there. It publishes
its first row: whether that is new or not, the answer comes only when everything before it is on
disk. Then it reads from the journal what there is of this producer in this epoch. Rows that are
there are left out by what they say, not by their number; the others follow under the next free
numbers.

This holds as long as nobody else publishes under the name, and on one connection nobody does: the
broker shuts out whoever was connected before. But when a connection is lost, another attempt may
have taken over in the meantime. So a chunk whose fate is unknown is not just sent again. After
connecting, the first row is published once more, to have everything on disk, and what the journal
has under the numbers of the chunk is compared with the chunk, byte by byte. If it is something
else, this attempt is the one that is superfluous, and it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from time import monotonic, sleep
from typing import TypeVar

from stentor.client.backoff import TRANSIENT, Backoff
from stentor.errors import NameTaken, NotPermitted, PipelineError
from stentor.model.codec import decode_many, encode
from stentor.model.handling import handling
from stentor.model.identity import IdSource
from stentor.model.notification import Notification
from stentor.notation.counts import counted
from stentor.pipeline.columns import Draft, numbered
from stentor.pipeline.sink.tasks import Task
from stentor.pipeline.source.journals import opened
from stentor.pipeline.source.options import Connecting

T = TypeVar("T")


def other_rows(task: Task, count: int) -> PipelineError:
    """What to say of rows that an earlier attempt had and this one has not."""
    hint = (
        "; if only some columns differ, name those that tell rows apart as txnKey. Or the same "
        "txnAppId and txnVersion were used for two tables: give each its own"
    )
    return PipelineError(
        f"{counted(count, 'row')} that an earlier attempt of batch {task.epoch}, partition "
        f"{task.partition} has published did not come again: the query gives other rows each "
        "time it runs. Make it deterministic, for example without rand(), and change neither its "
        f"filter nor its read limits while a batch is unfinished{hint if task.compared else ''}"
    )


class LargePartition:
    """Publishes one partition, chunk by chunk; use it by `with`."""

    def __init__(self, address: str, options: Connecting, task: Task) -> None:
        self._task = task
        self._patience = options.patience
        # Without patience of its own: each loss of the connection has to be dealt with here.
        self._direct = opened(address, options, name=task.producer, patience=0.0)
        self._now = datetime.now(UTC)
        self._known = _Known(task.key)
        self._next = 0
        #: Publishing it has everything before on disk, and is otherwise without effect.
        self._first_row: list[bytes] = []
        #: Where the journals ended when nothing of this attempt was there.
        self._heads: dict[str, int] = {}

    def __enter__(self) -> LargePartition:
        return self

    def __exit__(self, *_: object) -> None:
        self._direct.close()

    def begin(self, first: Draft) -> None:
        """Find out what is there; `first` is the first row of this attempt."""
        ids = IdSource(self._patiently(lambda: self._direct.producer), self._task.epoch)
        self._first_row = numbered([first], ids, self._now)
        self._patiently(self._find_out)
        self._next = self._known.newest + 1

    def _find_out(self) -> None:
        direct = self._direct
        self._heads = {state.stream: state.head for state in direct.streams()}
        # What the broker welcomes us with includes all that was before these heads. If that is
        # nothing of this epoch, the journals need not be read from their beginning.
        direct.close()
        epoch, newest = direct.welcome.published or (-1, -1)
        if (epoch, newest) >= (self._task.epoch, 0):
            self._heads = {}
        direct.publish(self._first_row)
        self._known = _Known(self._task.key)
        for item in self._of_this_epoch():
            self._known.add(item)
        known = self._known
        if known.left <= known.newest or (epoch == self._task.epoch and known.newest < newest):
            raise PipelineError(
                f"some rows that an earlier attempt of batch {self._task.epoch}, partition "
                f"{self._task.partition} has published are gone from the journal, so nobody can "
                "say which are missing: raise the retention of the broker at "
                f"{direct.address}, and begin the query anew behind this batch"
            )

    def publish(self, drafts: list[Draft]) -> None:
        """Publish those of the rows that are not there."""
        new = self.unknown(drafts)
        if any(draft.handling is not None and draft.handling.deliver_at for draft in new):
            raise PipelineError(
                f"batch {self._task.epoch}, partition {self._task.partition} has rows with "
                "`_deliver_at`, and it does not fit into one transaction, or is published a second "
                "time. What waits to be delivered cannot be read back from the journal, so nobody "
                "could tell what is there: use smaller partitions (repartition), or another "
                "txnAppId if the batch is new"
            )
        if not new:
            return
        ids = IdSource(self._direct.producer, self._task.epoch, self._next)
        items = numbered(new, ids, self._now)
        self._patiently(lambda: self._direct.publish(items), again=lambda: self._check(items))
        self._next += len(items)

    def unknown(self, drafts: list[Draft]) -> list[Draft]:
        """Those of the rows that are not there; the others have come again."""
        return self._known.without(drafts)

    def _check(self, items: list[bytes]) -> None:
        """Raise if something else has been published under the numbers of these."""
        self._direct.publish(self._first_row)
        for item in self._of_this_epoch():
            assert item.id is not None
            place = item.id.sequence - self._next
            if place >= len(items) or (place >= 0 and encode(item) != items[place]):
                raise NameTaken(f"another has published as {self._task.producer!r}")

    def end(self) -> None:
        """That was all; raise if something is there that should not be."""
        if self._known.left:
            raise other_rows(self._task, self._known.left)

    def _of_this_epoch(self) -> Iterator[Notification]:
        """What is there of this producer in this epoch, behind the heads."""
        producer = self._direct.producer.replace("'", "''")
        wanted = f"_producer = '{producer}'"
        epoch, newest = self._direct.welcome.published or (-1, -1)
        left = newest + 1 if epoch == self._task.epoch and not self._heads else None
        for state in self._direct.streams():
            lowest = max(state.low, self._heads.get(state.stream, 0) + 1)
            # Backwards: they are among the newest, and it is known how many they are.
            for first, last in _backwards(lowest, state.head):
                if left is not None and left <= 0:
                    return
                for found in self._read(state.stream, first, last, wanted):
                    if found.id is not None and found.id.epoch == self._task.epoch:
                        left = None if left is None else left - 1
                        yield found

    def _read(self, stream: str, first: int, last: int, filter: str) -> Iterator[Notification]:
        try:
            for stretch in self._direct.read(stream, first, last, filter, skip_lost=True):
                yield from decode_many(stretch.items)
        except NotPermitted as error:
            task = self._task
            hint = "" if task.compared else ". Or use smaller partitions (repartition)"
            why = "of an earlier attempt" if task.compared else "larger than a transaction"
            raise PipelineError(
                f"partition {task.partition} is {why}, so what was published of it has to be read "
                f"back: {error}{hint}"
            ) from error

    def _patiently(self, work: Callable[[], T], again: Callable[[], object] | None = None) -> T:
        """Do it; whenever the connection was lost, first `again`, then do it again."""
        backoff = Backoff()
        deadline = monotonic() + self._patience
        lost = False
        while True:
            try:
                if lost and again is not None:
                    again()
                return work()
            except TRANSIENT:
                lost = True
                if monotonic() >= deadline:
                    raise
                sleep(backoff.next())


def _backwards(first: int, last: int) -> Iterator[tuple[int, int]]:
    """A range in pieces, the last one first; each is longer than the one before.

    >>> list(_backwards(1, 300_000))
    [(234465, 300000), (103393, 234464), (1, 103392)]
    """
    size = 65_536
    while last >= first:
        begin = max(first, last - size + 1)
        yield begin, last
        last, size = begin - 1, size * 2


class _Known:
    """What a broker has already: how often each contents, with and without its time."""

    def __init__(self, key: tuple[str, ...] = ()) -> None:
        self.newest = -1
        #: How many have not come again yet.
        self.left = 0
        self._key = key
        self._timed: Counter[bytes] = Counter()
        self._untimed: Counter[bytes] = Counter()

    def add(self, notification: Notification) -> None:
        assert notification.id is not None
        self.newest = max(self.newest, notification.id.sequence)
        self.left += 1
        n = notification
        draft = Draft(
            *(dict(n), n.type, n.subject, n.channel, n.payload, n.content_type, n.time),
            handling(n.deliver_at, n.expires, n.priority),
        )
        self._timed[self._contents(draft, draft.time)] += 1
        self._untimed[self._contents(draft, None)] += 1

    def without(self, drafts: list[Draft]) -> list[Draft]:
        """Those that are not known; each known one is left out as often as it is known."""
        return [draft for draft in drafts if not self._is_known(draft)] if self.left else drafts

    def _is_known(self, draft: Draft) -> bool:
        if not self.left:
            return False
        untimed = self._contents(draft, None)
        if not self._untimed[untimed]:
            return False
        # Without a time of its own, it was published under the time of that attempt.
        if draft.time is not None and (not self._key or "_time" in self._key):
            timed = self._contents(draft, draft.time)
            if not self._timed[timed]:
                return False
            self._timed[timed] -= 1
        self._untimed[untimed] -= 1
        self.left -= 1
        return True

    def _contents(self, draft: Draft, time: datetime | None) -> bytes:
        """What tells a row from others."""
        key = self._key
        if not key:
            return encode(draft._replace(time=time).notification(None))
        attributes = {
            name: value
            for name, value in draft.attributes.items()
            if name in key or any(name.startswith(f"{each}.") for each in key)
        }
        return encode(
            Notification.from_checked(
                attributes,
                draft.type if "_type" in key else None,
                draft.subject if "_subject" in key else None,
                draft.channel if "_channel" in key else None,
                b"",
                None,
                None,
                time,
            )
        )
